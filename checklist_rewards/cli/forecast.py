"""`--dry-run`: counts the requests a command would send.

A [`Counter`] takes the place of the engine, counts requests and answers none. The rows, the prompts and the store are
the real ones, so stored answers are not counted. Some things are not known before the run:

- The length of replies is counted at its limit.
- A checklist that is not written yet is counted with as many questions as the writer may produce.
- Second attempts after an unusable reply, and refiners on checklists that are not written yet, are not counted.

Prompt tokens are counted with the model's tokenizer if its files are on this machine, otherwise as one token per byte,
the upper bound (`backends/tokens.py`). Every prompt counts in full, although an engine that shares prefixes computes
fewer tokens. The printed cost is therefore an upper bound, except for requests that fail and are sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typing_extensions import override

from checklist_rewards.backends import (
    OPENAI,
    Arrived,
    Engine,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
    choose_backend,
)
from checklist_rewards.backends.tokens import Bounds, Tokens, local_tokenizer
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ConfigError, SampleError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.judges.base import Prices
from checklist_rewards.judges.budget import Wrapper
from checklist_rewards.scores.reasons import Reason, Unanswered

ANSWERS, CANDIDATES, CHECKLISTS, SCORES = PURPOSES = ("answers", "candidates", "checklists", "scores")
"""What requests are for, in the order of the table."""
_UNANSWERED = Unanswered(Reason.BACKEND_ERROR, "dry run")  # a reason that the store does not save
_USUAL_ITEMS = 10
_ASKED_TWICE = (
    "Each read of a served model is counted as two requests: if the first returns no label probabilities, the answer "
    "is requested as text."
)
_QUESTION = "Does the response do what the instruction asks for under point {}, and in the form that it asks for?"


class Counter(Wrapper):
    """A backend that counts the requests to its engine and leaves them unanswered. The engine is never loaded."""

    def __init__(self, engine: Engine):
        super().__init__(engine)
        self.calls = self.prompt_tokens = self.reply_tokens = 0

    @cached_property
    def bounds(self) -> Bounds:
        """Counts the tokens of requests."""
        requests = 2 if _may_ask_twice(self.engine) else 1
        return Bounds(self.engine.model, local_tokenizer(self.engine.model), requests=requests)

    continues = True

    def stand_in(self, max_tokens: int, place: int) -> str:
        """A thought of `max_tokens` words, so that the reads after thoughts are counted too. Thoughts at several
        places differ."""
        return " ".join(["and", "or"][place >> bit & 1] for bit in range(max_tokens))

    @override
    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Count the reads; none is answered."""
        self._count([tokens for group in self.bounds.reads(groups) for tokens in group])
        return ReadResult([(LabelRead(None, _UNANSWERED),) * len(group.tails) for group in groups])

    @override
    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Count the prompts; the replies are empty."""
        self._count([self.bounds.reply(messages, sampling) for messages in prompts])
        return [[Reply(None, unanswered=_UNANSWERED)] * sampling.n for _ in prompts]

    def _count(self, calls: Sequence[Tokens]) -> None:
        self.calls += len(calls)
        self.prompt_tokens += sum(tokens.prompt for tokens in calls)
        self.reply_tokens += sum(tokens.completion for tokens in calls)


@dataclass(frozen=True)
class Line:
    """The requests to one engine for one purpose: a line of the table."""

    purpose: str
    counter: Counter

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.counter.engine.model

    def cost(self, prices: Prices) -> float | None:
        """Upper bound in US dollars; None if the model has no price."""
        if self.model not in prices:
            return None
        per_prompt, per_reply = prices[self.model]
        return (self.counter.prompt_tokens * per_prompt + self.counter.reply_tokens * per_reply) / 1e6


def placeholder(max_items: int | None, universal: Sequence[ChecklistItem] = ()) -> Checklist:
    """A stand-in for a checklist that is not written yet."""
    questions = [_QUESTION.format(number) for number in range(1, (max_items or _USUAL_ITEMS) + 1)]
    return Checklist.parse([*questions, *universal])


def show(rows: int, lines: Sequence[Line], prices: Prices, notes: Sequence[str]) -> None:
    """Print the table of calls, tokens and costs."""
    lines = sorted(lines, key=lambda line: PURPOSES.index(line.purpose))
    table = Table("for", "model", "calls", "prompt tokens, at most", "reply tokens, at most", "US dollars, at most")
    total = 0.0
    for line in lines:
        cost = line.cost(prices)
        total += cost or 0.0
        counts = (line.counter.calls, line.counter.prompt_tokens, line.counter.reply_tokens)
        price = "no --price" if cost is None else f"{cost:,.4f}"
        table.add_row(line.purpose, escape(line.model), *(f"{count:,}" for count in counts), price)
    out = Console(soft_wrap=True, highlight=False)
    out.print(table)
    if prices and len(lines) > 1:
        out.print(f"Total of the models with a price: at most {total:,.4f} US dollars.")
    by_bytes = [line.model for line in lines if line.counter.calls and line.counter.bounds.tokens is None]
    counted = [
        f"The tokenizer of {model} is not on this machine, so its prompts are counted as one token per byte. English "
        "text has about a quarter of that."
        for model in dict.fromkeys(by_bytes)
    ]
    asked_twice = [_ASKED_TWICE] * any(line.counter.calls and line.counter.bounds.requests > 1 for line in lines)
    summary = f"{rows} rows. Dry run: no request was sent, no model loaded, no file written."
    for note in (summary, *notes, *counted, *asked_twice):
        out.print(escape(note))


def _may_ask_twice(engine: Engine) -> bool:
    """Whether a read may take a second request, as on an OpenAI-compatible server."""
    named = isinstance(engine.backend, str)
    return named and choose_backend(engine.model, str(engine.backend), engine.base_url) == OPENAI


def prices_from(options: Sequence[str] | None) -> Prices:
    """US dollars per million prompt and reply tokens by model, from "MODEL=IN,OUT" or files that map models to pairs.

    Raises:
        SampleError: For a price that is not two numbers from 0 up.
        ConfigError: For a file that is not a mapping.
    """
    prices: dict[str, tuple[float, float]] = {}
    for text in options or ():
        model, equals, numbers = text.rpartition("=")
        pairs = {model: numbers.split(",")} if equals else read_value(read_text(Path(text)), Path(text))
        if not isinstance(pairs, Mapping):
            raise ConfigError(f"{text}: expected a mapping of models to [in, out], got {json.dumps(pairs):.60}.")
        for name, pair in pairs.items():
            prices[str(name)] = _pair(pair, f"--price {text}")
    return prices


def _pair(value: object, where: str) -> tuple[float, float]:
    try:
        per_prompt, per_reply = map(float, value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise SampleError(
            f"{where}: expected two prices, as in org/model=0.15,0.6 (US dollars per million prompt and reply "
            f"tokens), got {value!r:.60}."
        ) from None
    if not (0 <= per_prompt < float("inf") and 0 <= per_reply < float("inf")):
        raise SampleError(f"{where}: prices must be at least 0, got {value!r:.60}.")
    return per_prompt, per_reply
