"""The judge that answers a whole checklist in one call.

All questions of a target are numbered 1 to n and put together; the reply is JSON, an answer under each number. A
number is the only thing that ties an answer to its question, so the numbers are checked before anything is believed:

- An index below 1, or an index missing while another is out of range or there twice, means that the reply is
  misnumbered. Nothing in it is clear, and it is asked for again as a whole, with the reason.
- Otherwise every answer under a number of its own counts. What is missing, answered twice in two ways, or answered by
  something that is no possible answer ("N/A" where nothing may abstain) is asked again, in a call that holds those
  questions alone and numbers them from 1.

What then still has no answer is unanswered("missing") or unanswered("unparsable"); a reply that can never be read
leaves its own questions unanswered and no others.

One call costs less than one per item, but the questions see each other: a changed word in one of them is a new call
for all.
"""

from __future__ import annotations

import json
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
from checklist_rewards.judges.asking import UNPARSABLE, Lost, Question, Unreadable, put
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.judges.meter import Meter, prompt_key
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.replies import extract_json
from checklist_rewards.scores import Verdict

BATCH_PROMPT = "judges/batch"
MISSING = "missing"
REASONING = "reasoning"
DEFAULT_MAX_TOKENS = 4096
_ROUNDS = 3
"""Calls per target at most that bring new answers: the first, and two for what is missing."""
_FORM = (
    "There are {count} questions, numbered from 1. Reply with a JSON object only, with one entry per question under "
    "its own number, in order:\n{example}"
)


@dataclass(slots=True)
class Answers:
    """What a reply says, by index of the question from 0."""

    labels: dict[int, str] = field(default_factory=dict)
    reasoning: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """What was said that is no possible answer."""
    grade: int | None = None


class BatchJudge(Paid):
    """Answers the checklist of a target in one call.

    Args:
        model, backend, base_url: who judges, as [`Engine`] takes them.
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*, defaults to `"judges/batch"`): a prompt with
            `{checklist}`, without a form of reply, which is added.
        reasoning (`bool`, *optional*, defaults to `False`): a short reason before every answer.
        temperature (`float`, *optional*, defaults to `0.0`).
        max_tokens (`int`, *optional*, defaults to `4096`): of one reply.
        seed (`int`, *optional*, defaults to `0`).
        store ([`Store`], *optional*): where replies are kept.
    """

    default_prompt = BATCH_PROMPT

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
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.engine.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that no model is asked. Raises [`ChecklistError`] naming it."""
        check_askable(item, where)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Reads of one `sample` are put together; equal checklists about equal targets
        are asked once."""
        meter = Meter(self.engine)
        sheets = _sheets(reads)
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
        """What the prompt says about the reply."""
        entry = {"index": 1, **({REASONING: "..."} if self.reasoning else {}), "answer": "yes or no"}
        return _FORM.format(count=len(items), example=json.dumps({"answers": [entry]})[:-2] + ", ...]}")

    def schema(self, items: Sequence[ChecklistItem]) -> str:
        """The JSON schema of a reply about these items."""
        return json.dumps(object_schema({"answers": answers_schema(items, REASONING if self.reasoning else None)}))

    def read(self, reply: str, items: Sequence[ChecklistItem]) -> Answers:
        """Read a reply about these items. Raises [`Unreadable`] if nothing in it is clear."""
        answers = read_answers(json_of(reply), items)
        if not answers.labels:
            raise Unreadable("it answers none of the questions by one of their possible answers", answers)
        return answers

    def _ask(self, pending: Sequence[tuple[_Sheet, Sequence[int]]], meter: Meter, progress: Progress | None) -> None:
        by_schema: dict[str, list[tuple[_Sheet, Sequence[int]]]] = {}
        for sheet, wanted in pending:
            schema = self.schema([sheet.reads[index].item for index in wanted])
            by_schema.setdefault(schema, []).append((sheet, wanted))
        for schema, jobs in by_schema.items():
            questions = []
            for sheet, wanted in jobs:
                reads = [sheet.reads[index] for index in wanted]
                read = partial(self.read, items=[read.item for read in reads])
                questions.append(Question(self._messages(sheet, reads), read))
            sampling, engine = replace(self.sampling, schema=schema), Engine(self.name, meter)
            outcomes = put(engine, questions, sampling, store=self.store, progress=progress)
            for (sheet, wanted), (outcome,) in zip(jobs, outcomes, strict=True):
                sheet.take(wanted, outcome)

    def _messages(self, sheet: _Sheet, reads: Sequence[Read]) -> Messages:
        about, items = sheet.reads[0], [read.item for read in reads]
        system, user = (
            self.prompt.system,
            self.prompt.render(
                input=about.input,
                target=about.target,
                reference=about.reference,
                history=about.history,
                checklist=numbered(items, [in_order(item, about.target, self.name) for item in items]),
            ),
        )
        opening = [{"role": "system", "content": system}] if system else []
        return [*opening, {"role": "user", "content": f"{user}\n\n{self.form(items)}"}]

    def _verdicts(self, sheet: _Sheet) -> list[tuple[int, Verdict]]:
        out = []
        for index, place in enumerate(sheet.places):
            label, reasoning = sheet.answers.labels.get(index), sheet.answers.reasoning.get(index)
            lost = None if label is not None else sheet.lost.get(index, MISSING)
            verdict = Verdict(None, label, None, lost, reasoning, self.name, "reply", sheet.answers.grade)
            out.append((place, verdict))
        return out


def numbered(items: Sequence[ChecklistItem], labels: Sequence[Sequence[str]] | None = None) -> str:
    """The questions as a list from 1, each with its possible answers where those are not yes and no; in the order of
    `labels`, which has those of each item."""
    orders = [tuple(item.values) for item in items] if labels is None else labels
    texts = (question_for_words(item, o).replace("\n\n", "\n") for item, o in zip(items, orders, strict=True))
    return "\n".join(f"{number}. {text.strip()}" for number, text in enumerate(texts, start=1))


def answers_schema(items: Sequence[ChecklistItem], reason: str | None) -> dict[str, Any]:
    """JSON schema of the list of answers; `reason` is the key of what comes before each of them."""
    labels = list(dict.fromkeys(label for item in items for label in item.values))
    entry: dict[str, Any] = {"index": {"type": "integer"}}
    if reason is not None:
        entry[reason] = {"type": "string"}
    return {"type": "array", "items": object_schema({**entry, "answer": {"type": "string", "enum": labels}})}


def json_of(reply: str) -> Any:
    """The JSON of a reply. Raises [`Unreadable`] if there is none."""
    try:
        return extract_json(reply)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def read_answers(value: Any, items: Sequence[ChecklistItem], reason: str = REASONING) -> Answers:
    """The answers of a reply, matched to their questions by number alone; the module says how. `reason` is the key of
    what comes before each of them.

    Raises [`Unreadable`] for a reply that is misnumbered or holds no list of answers.
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
    extra = sorted({index for index in indices if index > count})
    if missing and (twice or extra):
        raise Unreadable(f"{expected}; {missing} missing, {extra or twice} {'too many' if extra else 'there twice'}")


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
    """The reads of one sample, and what is known of their answers."""

    reads: list[Read] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    lost: dict[int, str] = field(default_factory=dict)
    """Why a question has no answer yet."""
    given_up: bool = False

    @property
    def open(self) -> list[int]:
        """The questions that shall be asked again."""
        return [] if self.given_up else [i for i in range(len(self.reads)) if i not in self.answers.labels]

    def take(self, wanted: Sequence[int], outcome: Answers | Lost) -> None:
        """Take in a reply about the questions `wanted`."""
        answers = outcome.partial if isinstance(outcome, Lost) else outcome
        # A reply that was asked for again and again has had its chances; what is missing in a good one has not.
        self.given_up = isinstance(outcome, Lost)
        for index, place in enumerate(wanted):
            if answers is not None and index in answers.labels:
                self.answers.labels[place] = answers.labels[index]
                if index in answers.reasoning:
                    self.answers.reasoning[place] = answers.reasoning[index]
            elif answers is not None and index in answers.refused:
                self.lost[place] = f"{UNPARSABLE}: {answers.refused[index]}"
            else:
                self.lost[place] = outcome.reason if isinstance(outcome, Lost) else MISSING
        if answers is not None and self.answers.grade is None:
            self.answers.grade = answers.grade


def _sheets(reads: Sequence[Read]) -> list[_Sheet]:
    sheets: dict[tuple[Any, ...], _Sheet] = {}
    for place, read in enumerate(reads):
        about = (read.sample, read.target, read.input, read.reference, read.history)
        sheet = sheets.setdefault(about, _Sheet())
        sheet.reads.append(read)
        sheet.places.append(place)
    return list(sheets.values())


def _in_reads(
    pending: Sequence[tuple[_Sheet, Sequence[int]]], progress: Progress | None
) -> Callable[[int], None] | None:
    """Progress is told in reads where the engine's is told in calls."""
    if progress is None:
        return None
    sizes = iter([len(wanted) for _, wanted in pending])
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
