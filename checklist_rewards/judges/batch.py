"""The judge that answers a whole checklist in one call.

The questions of a target are numbered 1 to n in one prompt; the reply is JSON with one answer per number. Answers are
matched to questions by number only, so the numbers are validated first:

- If an index is below 1, or an index is missing while another is out of range or duplicated, the reply is misnumbered.
  It is discarded and requested again with the reason.
- Otherwise, every valid answer counts. Questions that are missing, have two different answers, or an answer that is
  not a label ("N/A" for an item without abstention) are asked again in a call of their own, numbered from 1.

Questions still without an answer are unanswered("missing") or unanswered("unparsable"). A reply that cannot be parsed
affects only its own questions.

One call per checklist is cheaper than one per item, but the questions influence each other, and changing one word of a
question changes the prompt of all. Models miscount long lists, so a checklist of more than [`MAX_QUESTIONS`] is
divided into calls of about equal length.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Sampling
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.files.store import Store
from checklist_rewards.judges.answers import check_askable, in_order, named, question_for_words
from checklist_rewards.judges.asking import Lost, Unreadable, ask_judge
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.judges.meter import Meter, prompt_key
from checklist_rewards.prompts import PromptTemplate, chat_messages, load_prompt
from checklist_rewards.replies import extract_json
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

BATCH_PROMPT = "judges/batch"
_MISSING = Unanswered(Reason.MISSING)
REASONING = "reasoning"
DEFAULT_MAX_TOKENS = 4096
MAX_QUESTIONS = 25
"""Most questions of a call."""
_ROUNDS = 3
"""Maximum calls per target, not counting repetitions of unusable replies: one, and two for missing answers."""
_FORM = (
    "There are {count} questions, numbered from 1. Reply with a JSON object only, with one entry per question under "
    "its own number, in order:\n{example}"
)


@dataclass(slots=True)
class Answers:
    """A parsed reply, by question index from 0."""

    labels: dict[int, str] = field(default_factory=dict)
    reasoning: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Why an answer was rejected."""
    grade: int | None = None


class BatchJudge(Paid):
    """Answers the checklist of a target in one call.

    Args:
        model, backend, base_url:
            Judge model, as in [`Engine`].
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*, defaults to `"judges/batch"`):
            Prompt with `{checklist}`. The reply format is appended automatically.
        reasoning (`bool`, *optional*, defaults to `False`):
            Whether to request a short reason before every answer.
        temperature (`float`, *optional*, defaults to `0.0`):
            Sampling temperature.
        max_tokens (`int`, *optional*, defaults to `4096`):
            Maximum number of tokens per reply.
        seed (`int`, *optional*, defaults to `0`):
            Random seed of the sampling.
        store ([`Store`], *optional*):
            Store for the replies.
    """

    default_prompt = BATCH_PROMPT
    max_questions: int | None = MAX_QUESTIONS

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate | None = None,
        reasoning: bool = False,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
        store: Store | None = None,
    ):
        self.engine = Engine.of(model, backend, base_url)
        self.name = self.engine.model
        self.prompt = load_prompt(self.default_prompt if prompt is None else prompt, "batch")
        self.reasoning = reasoning
        self.sampling = Sampling(max_tokens or DEFAULT_MAX_TOKENS, temperature or 0.0, seed=seed)
        self.store = store

    def check(self) -> None:
        """Raise [`ModelError`] if the model is not found."""
        _ = self.engine.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`], starting with `where`, for an item with a code check."""
        check_askable(item, where)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Reads of one `sample` share a call; identical calls are made once."""
        meter = Meter(self.engine)
        sheets = _sheets(reads, self.max_questions)
        first = [self._messages(sheet, sheet.reads) for sheet in sheets]
        pending = [(sheet, list(range(len(sheet.reads)))) for sheet in sheets]
        for number in range(_ROUNDS):
            self._ask(pending, meter, _in_reads(pending, progress) if number == 0 else None)
            pending = [(sheet, sheet.open) for sheet, _ in pending if sheet.open]
            if not pending:
                break
        verdicts = {place: verdict for sheet in sheets for place, verdict in self._verdicts(sheet)}
        self._pay(meter.spent, _counts(sheets, first, meter, verdicts))
        return [verdicts[place] for place in range(len(reads))]

    def form(self, items: Sequence[ChecklistItem]) -> str:
        """The part of the prompt that describes the reply format."""
        entry = {"index": 1, **({REASONING: "..."} if self.reasoning else {}), "answer": "yes or no"}
        return _FORM.format(count=len(items), example=json.dumps({"answers": [entry]})[:-2] + ", ...]}")

    def schema(self, items: Sequence[ChecklistItem]) -> str:
        """The JSON schema of a reply about these items."""
        return json.dumps(object_schema({"answers": answers_schema(items, REASONING if self.reasoning else None)}))

    def read(self, reply: str, items: Sequence[ChecklistItem]) -> Answers:
        """Parse a reply about these items. Raises [`Unreadable`] if it has no usable answer."""
        answers = read_answers(json_of(reply), items)
        if not answers.labels:
            raise Unreadable("it answers none of the questions by one of their possible answers", answers)
        return answers

    def _ask(self, pending: Sequence[tuple[_Sheet, Sequence[int]]], meter: Meter, progress: Progress | None) -> None:
        by_schema: dict[str, list[tuple[_Sheet, Sequence[int]]]] = {}
        for sheet, indices in pending:
            schema = self.schema([sheet.reads[index].item for index in indices])
            by_schema.setdefault(schema, []).append((sheet, indices))
        for schema, jobs in by_schema.items():
            reads = [[sheet.reads[index] for index in indices] for sheet, indices in jobs]
            outcomes = ask_judge(
                meter.wrapped,
                [self._messages(sheet, some) for (sheet, _), some in zip(jobs, reads, strict=True)],
                [partial(self.read, items=[read.item for read in some]) for some in reads],
                replace(self.sampling, schema=schema),
                store=self.store,
                progress=progress,
            )
            for (sheet, indices), (outcome,) in zip(jobs, outcomes, strict=True):
                sheet.take(indices, outcome)

    def _messages(self, sheet: _Sheet, reads: Sequence[Read]) -> Messages:
        about, items = sheet.reads[0], [read.item for read in reads]
        user = self.prompt.render(
            input=about.input,
            target=about.target,
            reference=about.reference,
            history=about.history,
            checklist=numbered(items, [in_order(item, about.target, self.name) for item in items]),
        )
        return chat_messages(self.prompt.system, f"{user}\n\n{self.form(items)}")

    def _verdicts(self, sheet: _Sheet) -> list[tuple[int, Verdict]]:
        out = []
        for index, place in enumerate(sheet.places):
            label, reasoning = sheet.answers.labels.get(index), sheet.answers.reasoning.get(index)
            lost = None if label is not None else sheet.lost.get(index, _MISSING)
            verdict = Verdict(None, label, None, lost, reasoning, self.name, "reply", sheet.answers.grade)
            out.append((place, verdict))
        return out


def numbered(items: Sequence[ChecklistItem], labels: Sequence[Sequence[str]] | None = None) -> str:
    """The questions as a list numbered from 1, with the possible answers of items that have options.

    Args:
        items (sequence of [`ChecklistItem`]):
            Items to list.
        labels (sequence of sequences of `str`, *optional*):
            Labels of each item in the order to show; by default the order of the item.
    """
    orders = [tuple(item.values) for item in items] if labels is None else labels
    texts = (question_for_words(item, o).replace("\n\n", "\n") for item, o in zip(items, orders, strict=True))
    return "\n".join(f"{number}. {text.strip()}" for number, text in enumerate(texts, start=1))


def answers_schema(items: Sequence[ChecklistItem], reason: str | None) -> dict[str, Any]:
    """JSON schema of the list of answers. `reason` is the key of the reason before each answer, or None."""
    labels = list(dict.fromkeys(label for item in items for label in item.values))
    entry: dict[str, Any] = {"index": {"type": "integer"}}
    if reason is not None:
        entry[reason] = {"type": "string"}
    return {"type": "array", "items": object_schema({**entry, "answer": {"type": "string", "enum": labels}})}


def json_of(reply: str) -> Any:
    """The JSON value in a reply. Raises [`Unreadable`] if the reply has none."""
    try:
        return extract_json(reply)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def read_answers(value: Any, items: Sequence[ChecklistItem], reason: str = REASONING) -> Answers:
    """The answers in a JSON reply, matched to questions by number; see the module docstring.

    Args:
        value:
            JSON value of the reply.
        items (sequence of [`ChecklistItem`]):
            Items in the order of their numbers.
        reason (`str`, *optional*, defaults to `"reasoning"`):
            Key of the reason before each answer.

    Raises:
        Unreadable: If the reply is misnumbered or has no list of answers.
    """
    entries = value.get("answers") if isinstance(value, Mapping) else value
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise Unreadable('there is no list of "answers"')
    indices = [_index(entry.get("index")) for entry in entries]
    if None in indices:
        raise Unreadable('an entry has no "index", or one that is no whole number')
    _check_numbers([index for index in indices if index is not None], len(items))
    answers, conflicting = Answers(), set()
    for index, entry in zip(indices, entries, strict=True):
        assert index is not None
        place = index - 1
        if place >= len(items):
            continue
        label = named(entry.get("answer"), items[place])
        if label is None:
            answers.refused[place] = f"{entry.get('answer')!r:.60} is no possible answer"
            continue
        if answers.labels.setdefault(place, label) != label:
            conflicting.add(place)
        if isinstance(reasoning := entry.get(reason), str):
            answers.reasoning.setdefault(place, reasoning)
    for place in conflicting | answers.refused.keys() & answers.labels.keys():
        answers.refused[place] = "it is answered twice, in two ways"
    for place in answers.refused:
        answers.labels.pop(place, None)
        answers.reasoning.pop(place, None)
    return answers


def _check_numbers(indices: Sequence[int], count: int) -> None:
    expected = f"the questions are numbered 1 to {count}"
    if any(index < 1 for index in indices):
        raise Unreadable(f"{expected}, and the reply has the index {min(indices)}")
    missing = sorted(set(range(1, count + 1)).difference(indices))
    twice = sorted(index for index, times in Counter(indices).items() if times > 1)
    too_high = sorted({index for index in indices if index > count})
    if missing and (twice or too_high):
        raise Unreadable(
            f"{expected}; {missing} missing, {too_high or twice} {'too many' if too_high else 'there twice'}"
        )


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """JSON schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(slots=True)
class _Sheet:
    """The reads of one sample, and their answers so far."""

    reads: list[Read] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    lost: dict[int, Unanswered] = field(default_factory=dict)
    """Why a question has no answer so far."""
    given_up: bool = False

    @property
    def open(self) -> list[int]:
        """Indices of the questions to ask again."""
        return [] if self.given_up else [i for i in range(len(self.reads)) if i not in self.answers.labels]

    def take(self, indices: Sequence[int], outcome: Answers | Lost) -> None:
        """Record the outcome of a call about the questions `indices`."""
        answers = outcome.partial if isinstance(outcome, Lost) else outcome
        # A lost reply has already been repeated. Only questions missing in a usable reply are asked again.
        self.given_up = isinstance(outcome, Lost)
        for index, place in enumerate(indices):
            if answers is not None and index in answers.labels:
                self.answers.labels[place] = answers.labels[index]
                if index in answers.reasoning:
                    self.answers.reasoning[place] = answers.reasoning[index]
            elif answers is not None and index in answers.refused:
                self.lost[place] = Unanswered(Reason.UNPARSABLE, answers.refused[index])
            else:
                self.lost[place] = outcome.unanswered if isinstance(outcome, Lost) else _MISSING
        if answers is not None and self.answers.grade is None:
            self.answers.grade = answers.grade


def _sheets(reads: Sequence[Read], most: int | None) -> list[_Sheet]:
    """The reads by sample; those of a sample with more than `most` in several sheets."""
    samples: dict[tuple[Any, ...], list[int]] = {}
    for place, read in enumerate(reads):
        about = (read.sample, read.target, read.input, read.reference, read.history)
        samples.setdefault(about, []).append(place)
    sheets = []
    for places in samples.values():
        calls = 1 if most is None else math.ceil(len(places) / most)
        for number in range(calls):
            own = places[number * len(places) // calls : (number + 1) * len(places) // calls]
            sheets.append(_Sheet([reads[place] for place in own], own))
    return sheets


def _in_reads(
    pending: Sequence[tuple[_Sheet, Sequence[int]]], progress: Progress | None
) -> Callable[[int], None] | None:
    """A progress callback that converts calls of the engine to reads."""
    if progress is None:
        return None
    sizes = iter([len(indices) for _, indices in pending])
    return lambda calls: progress(sum(next(sizes) for _ in range(calls)))


def _counts(
    sheets: Sequence[_Sheet], first: Sequence[Messages], meter: Meter, verdicts: Mapping[int, Verdict]
) -> Receipt:
    distinct = {prompt_key(messages): (sheet, messages) for sheet, messages in zip(sheets, first, strict=True)}
    total = sum(len(sheet.reads) for sheet in sheets)
    reads = sum(len(sheet.reads) for sheet, _ in distinct.values())
    asked = sum(len(sheet.reads) for sheet, messages in distinct.values() if meter.asked(messages))
    unanswered = sum(
        verdicts[place].unanswered is not None for sheet, _ in distinct.values() for place in sheet.places
    )
    return Receipt(reads=total, deduplicated=total - reads, stored=reads - asked, asked=asked, unanswered=unanswered)
