"""`--dry-run`: what a command would ask, counted at the place where the engine would stand.

A [`Counter`] is an engine that answers nothing and counts. Everything else of the run is real: the rows, the prompts,
the store. So what the store has is not counted, and what it lacks is counted as it would be asked. Two things cannot
be known beforehand: how long replies get (counted at their limit), and what depends on them. Checklists that are not
there yet are taken to be as long as the writer may make them; asking again for an unusable reply, and refining what is
not yet written, is not counted.

Prompt tokens are counted by the model's tokenizer where its files are on this machine, else at the most that they can
be, a token per byte (`backends/bounds.py`); every prompt alone, though an engine that shares prefixes computes fewer.
So what is billed is at most what is printed, but for requests that fail and are sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.backends import (
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
from checklist_rewards.backends.bounds import Bounds, Tokens, local_tokenizer
from checklist_rewards.backends.servers import OPENAI
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ConfigError, SampleError
from checklist_rewards.judges.base import Prices
from checklist_rewards.pipelines.files import read_text, read_value
from checklist_rewards.replies import BACKEND_ERROR

_UNANSWERED = f"{BACKEND_ERROR}: dry run"  # what the store does not keep
_USUAL_ITEMS = 10
_ASKED_TWICE = (
    "A label read of a served model is counted as two requests: where the first gives no label, a word is asked for."
)
_QUESTION = "Does the response do what the instruction asks for under point {}, and in the form that it asks for?"


class Counter:
    """An engine that counts what it is asked, and leaves it unanswered.

    Args:
        engine ([`Engine`]): the one in whose place it stands; it is not loaded.
    """

    chunk_reads = 4096

    def __init__(self, engine: Engine):
        self.model = engine.model
        self.identity = engine.identity
        self.bounds = Bounds(engine.model, local_tokenizer(engine.model), requests=2 if served(engine) else 1)
        self.calls = self.prompt_tokens = self.reply_tokens = 0

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        self._count([tokens for group in self.bounds.reads(groups) for tokens in group])
        return ReadResult([(LabelRead(None, _UNANSWERED),) * len(group.tails) for group in groups])

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]."""
        self._count([self.bounds.reply(messages, sampling) for messages in prompts])
        return [[Reply(None, unanswered=_UNANSWERED)] * sampling.n for _ in prompts]

    def _count(self, calls: Sequence[Tokens]) -> None:
        self.calls += len(calls)
        self.prompt_tokens += sum(tokens.prompt for tokens in calls)
        self.reply_tokens += sum(tokens.completion for tokens in calls)


@dataclass(frozen=True)
class Line:
    """What one engine would be asked, for one purpose."""

    what: str
    counter: Counter

    def cost(self, prices: Prices) -> float | None:
        """In US dollars at most; None where the model has no price."""
        if self.counter.model not in prices:
            return None
        per_prompt, per_reply = prices[self.counter.model]
        return (self.counter.prompt_tokens * per_prompt + self.counter.reply_tokens * per_reply) / 1e6


def placeholder(max_items: int | None, universal: Sequence[ChecklistItem] = ()) -> Checklist:
    """A checklist to count with, where the real one is not there yet."""
    questions = [_QUESTION.format(number) for number in range(1, (max_items or _USUAL_ITEMS) + 1)]
    return Checklist.parse([*questions, *universal])


def show(rows: int, lines: Sequence[Line], prices: Prices, notes: Sequence[str]) -> None:
    """Print the table."""
    table = Table("for", "model", "calls", "prompt tokens, at most", "reply tokens, at most", "US dollars, at most")
    total = 0.0
    for line in lines:
        cost = line.cost(prices)
        total += cost or 0.0
        counts = (line.counter.calls, line.counter.prompt_tokens, line.counter.reply_tokens)
        price = "no price given" if cost is None else f"{cost:,.4f}"
        table.add_row(line.what, escape(line.counter.model), *(f"{count:,}" for count in counts), price)
    out = Console(soft_wrap=True, highlight=False)
    out.print(table)
    if prices and len(lines) > 1:
        out.print(f"All that has a price: at most {total:,.4f} US dollars.")
    by_bytes = [line.counter.model for line in lines if line.counter.calls and line.counter.bounds.tokens is None]
    counted = [
        f"The tokenizer of {model} is not on this machine: its prompts are counted at a token per byte, and English "
        "takes about a quarter of that."
        for model in dict.fromkeys(by_bytes)
    ]
    asked_twice = [_ASKED_TWICE] * any(line.counter.calls and line.counter.bounds.requests > 1 for line in lines)
    nothing = f"{rows} rows. Nothing was asked, no model was loaded, no file was written."
    for note in (nothing, *notes, *counted, *asked_twice):
        out.print(escape(note))


def served(engine: Engine) -> bool:
    """Whether an OpenAI-compatible server answers."""
    named = isinstance(engine.backend, str)
    return named and choose_backend(engine.model, str(engine.backend), engine.base_url) == OPENAI


def prices_from(given: Sequence[str] | None) -> Prices:
    """Model to dollars per million prompt and reply tokens, from "MODEL=IN,OUT" or from files of such pairs.

    Raises [`SampleError`] or [`ConfigError`] for anything else.
    """
    prices: dict[str, tuple[float, float]] = {}
    for text in given or ():
        model, equals, numbers = text.rpartition("=")
        found = {model: numbers.split(",")} if equals else read_value(read_text(Path(text)), Path(text))
        if not isinstance(found, Mapping):
            raise ConfigError(f"{text}: expected a mapping of models to [in, out], got {json.dumps(found):.60}.")
        for name, pair in found.items():
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
        raise SampleError(f"{where}: a price is a number from 0 up, got {value!r:.60}.")
    return per_prompt, per_reply
