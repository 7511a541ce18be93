"""`--dry-run`: what a command would ask, counted at the place where the engine would stand.

A [`Counter`] is an engine that answers nothing and counts. Everything else of the run is real: the rows, the prompts,
the store. So what the store has is not counted, and what it lacks is counted as it would be asked. Two things cannot
be known beforehand: how long replies get (counted at their limit), and what depends on them. Checklists that are not
there yet are taken to be as long as the writer may make them; asking again for an unusable reply, and refining what is
not yet written, is not counted.

Prompt tokens are estimated at four bytes each, every prompt alone; an engine that shares prefixes computes fewer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.backends import LabelRead, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ConfigError, SampleError
from checklist_rewards.judges.base import Prices
from checklist_rewards.pipelines.files import read_text, read_value
from checklist_rewards.replies import BACKEND_ERROR, Engine

BYTES_PER_TOKEN = 4
_UNANSWERED = f"{BACKEND_ERROR}: dry run"  # what the store does not keep
_USUAL_ITEMS = 10
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
        self.calls = self.prompt_tokens = self.reply_tokens = 0

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        for group in groups:
            for tail in group.tails:
                self._count((group.system or "") + group.prefix + tail, 1)
        return ReadResult([(LabelRead(None, _UNANSWERED),) * len(group.tails) for group in groups])

    def generate(self, prompts: Sequence[Messages], sampling: Sampling) -> list[list[Reply]]:
        """See [`Backend`]."""
        for messages in prompts:
            self._count("".join(message["content"] for message in messages), sampling.n * sampling.max_tokens)
        return [[Reply(None, unanswered=_UNANSWERED)] * sampling.n for _ in prompts]

    def _count(self, prompt: str, reply_tokens: int) -> None:
        self.calls += 1
        self.prompt_tokens += -(-len(prompt.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
        self.reply_tokens += reply_tokens


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
    table = Table("for", "model", "calls", "prompt tokens, about", "reply tokens, at most", "US dollars, at most")
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
    for note in (f"{rows} rows. Nothing was asked, no model was loaded, no file was written.", *notes):
        out.print(note)


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
