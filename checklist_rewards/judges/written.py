"""Judges that write their answers: one item with its reason, a whole checklist, or a grade of the text.

If a reply cannot be parsed, the model receives the complaint and can revise its reply, up to three replies in all. If
no reply is usable, or the engine gave none, the outcome is [`Unreadable`] with the reason: "unparsable", "cut_off" if
the reply reached its token limit, or that of the engine. With several samples per prompt, each is parsed on its own
and none is revised.

The [`ReasonedJudge`] makes one call per item. With `reasoning`, the judge writes its reasoning before the answer, as
JSON, so that the answer can follow from it. Otherwise it replies with the label only. With `votes=k`, every item is
sampled k times and the most frequent label is the answer (maj@k as in TICK, arXiv:2410.03608 section 3.2). The
fraction of replies with a label is its probability, so soft scores average over the samples, as in RLCF. A reply that
cannot be parsed has no vote and is kept among the votes, as in a panel (`panel.py`). If fewer than half of the replies
have a vote, the item is unanswered("quorum"). Among equally frequent labels, the one nearest to the mean of the votes
wins, and of two equally near ones (yes and no) the one that is worse for the target. If one of them is an abstention,
the item is unanswered("tie") and the probabilities are kept.

The [`BatchJudge`] answers a whole checklist in one call. The questions of a target are numbered 1 to n in one prompt;
the reply is JSON with one answer per number. Answers are matched to questions by number only, so the numbers are
validated first:

- If an index is below 1, or an index is missing while another is out of range or duplicated, the reply is misnumbered.
  It is discarded and requested again with the reason.
- Otherwise, every valid answer counts. Questions that are missing, have two different answers, or an answer that is
  not a label ("N/A" for an item without abstention) are asked again in a call of their own, numbered from 1.

Questions still without an answer are unanswered("missing") or unanswered("unparsable"). A reply that cannot be parsed
affects only its own questions. One call per checklist is cheaper than one per item, but the questions influence each
other, and changing one word of a question changes the prompt of all. Models miscount long lists, so a checklist of
more than [`MAX_QUESTIONS`] is divided into calls of about equal length.

The [`QualityJudge`] is a batch judge that justifies every answer and then grades from 1 to 5. The grade depends on all
answers, so a reply with a missing answer or without a grade is requested again as a whole. If no reply is complete,
the valid part of the last one counts: its answers become verdicts and its grade the `quality` of the score; the rest
is unanswered or None.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.backends.budget import Bill, Receipt, prompt_key
from checklist_rewards.backends.replies import NoReply, extract_json, json_values, sample_values, with_complaint
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.base import Ask, Judge, by_sample, counted, lost_votes
from checklist_rewards.judges.labels import named
from checklist_rewards.judges.questions import (
    FewShot,
    in_order,
    leading_label,
    question_for_words,
)
from checklist_rewards.prompts import PromptTemplate, load_prompt, prompt_messages
from checklist_rewards.scores import BEST_QUALITY, LEAST_QUALITY, Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

BATCH_PROMPT, QUALITY_PROMPT = "judges/batch", "judges/quality"
_MISSING = Unanswered(Reason.MISSING)
_TWO_WAYS = "it is answered twice, in two ways"
REASONING, JUSTIFICATION, GRADE = "reasoning", "justification", "grade"
DEFAULT_MAX_TOKENS = 4096
MAX_QUESTIONS = 25
"""Most questions of a call. Models lose count in longer lists, and a lost reply costs the answers of a whole call."""
_ROUNDS = 3
"""Maximum calls per target, not counting repetitions of unusable replies: one, and two for missing answers."""
_LIST_FORM = (
    "There are {count} questions, numbered from 1. Reply with a JSON object only, with one entry per question under "
    "its own number, in order:\n{example}"
)
_GRADE_FORM = (
    "There are {count} questions, numbered from 1. Reply with a JSON object only: first one entry per question under "
    "its own number, in order, with a justification of one or two sentences before the answer; then your "
    f"grade from {LEAST_QUALITY} to {BEST_QUALITY}:\n{{example}}"
)


class Unreadable(GenerationError):
    """A reply that cannot be used, and the outcome of a prompt without a usable reply.

    Args:
        complaint (`str`):
            What is wrong, as a sentence without full stop. It is sent to the model.
        partial (*optional*):
            The usable part of the reply.
        unanswered ([`Unanswered`], *optional*):
            Why the read is unanswered.
    """

    def __init__(self, complaint: str, partial: Any = None, unanswered: Unanswered | None = None):
        super().__init__(complaint)
        self.partial = partial
        self.unanswered = unanswered or Unanswered(Reason.UNPARSABLE, complaint)


@dataclass(slots=True)
class Answers:
    """A parsed reply, by question index from 0."""

    labels: dict[int, str] = field(default_factory=dict)
    reasoning: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Why an answer was rejected."""
    grade: int | None = None

    def refuse(self, place: int, why: str) -> None:
        """Take back the answer to a question."""
        self.refused[place] = why
        self.labels.pop(place, None)
        self.reasoning.pop(place, None)


class BatchJudge(Judge):
    """Answers the checklist of a target in one call.

    Args:
        model (`str`, [`Engine`] or [`Backend`]):
            Judge model.
        prompt, temperature, max_tokens (*optional*):
            As in [`JudgeConfig`]; by default `"judges/batch"`, 0 and 4096. The reply format is appended to the prompt.
        reasoning (`bool`, *optional*, defaults to `False`):
            Whether to request a short reason before every answer.
        store ([`Store`], *optional*):
            Store for the replies.
    """

    default_prompt = BATCH_PROMPT
    max_questions: int | None = MAX_QUESTIONS
    graded = False
    """Whether the judge also justifies every answer and grades the target."""

    def __init__(
        self,
        model: str | Engine | Backend,
        *,
        prompt: str | Path | PromptTemplate | None = None,
        reasoning: bool = False,
        temperature: float | None = None,
        max_tokens: int | None = None,
        store: Store | None = None,
    ):
        self.engine: Engine = Engine.of(model)
        self.name = self.engine.model
        self.prompt: PromptTemplate = load_prompt(self.default_prompt if prompt is None else prompt, "batch")
        self.reasoning = reasoning
        self.sampling: Sampling = Sampling(max_tokens or DEFAULT_MAX_TOKENS, temperature or 0.0)
        self.store = store

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As [`Judge.answer`]. Reads of one `sample` share a call; identical calls are made once."""
        bill = Bill()
        engine = self.engine.within(bill=bill)
        sheets = _sheets(asks, self.max_questions)
        prompts = self._ask(sheets, engine, _in_reads(sheets, progress))
        for _ in range(_ROUNDS - 1):
            self._ask([sheet for sheet in sheets if sheet.open], engine, None)
        verdicts = [self._verdicts(sheet) for sheet in sheets]
        placed = {
            place: verdict
            for sheet, own in zip(sheets, verdicts, strict=True)
            for place, verdict in zip(sheet.places, own, strict=True)
        }
        return [placed[place] for place in range(len(asks))], bill.receipt + _counted(prompts, bill, verdicts)

    def form(self, items: Sequence[ChecklistItem]) -> str:
        """The part of the prompt that describes the reply format."""
        entry = json.dumps({"index": 1, **({self._reason: "..."} if self._reason else {}), "answer": "yes or no"})
        grade = f', "{GRADE}": {LEAST_QUALITY} to {BEST_QUALITY}' if self.graded else ""
        form = _GRADE_FORM if self.graded else _LIST_FORM
        return form.format(count=len(items), example=f'{{"answers": [{entry}, ...]{grade}}}')

    def schema(self, items: Sequence[ChecklistItem]) -> str:
        """The JSON schema of a reply about these items."""
        entry: dict[str, Any] = {"index": {"type": "integer"}}
        if self._reason is not None:
            entry[self._reason] = {"type": "string"}
        labels = list(dict.fromkeys(label for item in items for label in item.values))
        entries = object_schema({**entry, "answer": {"type": "string", "enum": labels}})
        grades = list(range(LEAST_QUALITY, BEST_QUALITY + 1))
        grade = {GRADE: {"type": "integer", "enum": grades}} if self.graded else {}
        return json.dumps(object_schema({"answers": {"type": "array", "items": entries}, **grade}))

    def read(self, reply: str, items: Sequence[ChecklistItem]) -> Answers:
        """Parse a reply about these items. Raises [`Unreadable`] if it has no usable answer, or, of a judge that
        grades, if an answer or the grade is missing."""
        answers = _without_contradiction(reply, partial(read_answers, items=items, reason=self._reason or REASONING))
        if not self.graded:
            answers.grade = None
            if not answers.labels:
                raise Unreadable("it answers none of the questions by one of their possible answers", answers)
            return answers
        missing = [number for number in range(1, len(items) + 1) if number - 1 not in answers.labels]
        if missing:
            raise Unreadable(f"the questions {missing} have no answer that is possible", answers)
        if answers.grade is None:
            raise Unreadable(f'"{GRADE}" must be a whole number from {LEAST_QUALITY} to {BEST_QUALITY}', answers)
        return answers

    @property
    def _reason(self) -> str | None:
        """The key of the reason that is requested before each answer; None for no reason."""
        return JUSTIFICATION if self.graded else REASONING if self.reasoning else None

    def _ask(self, sheets: Sequence[_Sheet], engine: Engine, progress: Progress | None) -> list[Messages]:
        """Ask the open questions of each sheet, record the outcomes, and return the prompts."""
        asked = [sheet.open for sheet in sheets]
        items = [[sheet.reads[i].item for i in indices] for sheet, indices in zip(sheets, asked, strict=True)]
        prompts = [self._messages(sheet.reads[0], some) for sheet, some in zip(sheets, items, strict=True)]
        outcomes = ask_judge(
            engine,
            prompts,
            [partial(self.read, items=some) for some in items],
            list(map(self.schema, items)),
            self.sampling,
            store=self.store,
            progress=progress,
        )
        for sheet, indices, (outcome,) in zip(sheets, asked, outcomes, strict=True):
            sheet.take(indices, outcome)
        return prompts

    def _messages(self, about: Ask, items: Sequence[ChecklistItem]) -> Messages:
        questions = [question_for_words(item, in_order(item, about.target, self.name)) for item in items]
        lines = [question.replace("\n\n", "\n").strip() for question in questions]
        listed = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
        user = self.prompt.render(**about.texts, checklist=listed)
        return prompt_messages(self.prompt.system, f"{user}\n\n{self.form(items)}")

    def _verdicts(self, sheet: _Sheet) -> list[Verdict]:
        answers, out = sheet.answers, []
        for index in range(len(sheet.reads)):
            label, reasoning = answers.labels.get(index), answers.reasoning.get(index)
            lost = None if label is not None else sheet.lost.get(index, _MISSING)
            out.append(Verdict(None, label, None, lost, reasoning, self.name, "reply", answers.grade))
        return out


class QualityJudge(BatchJudge):
    """Answers the checklist of a target and grades it, in one call.

    Takes the arguments of [`BatchJudge`] except `reasoning`, which is always on.
    """

    default_prompt = QUALITY_PROMPT
    max_questions = None  # the grade depends on all answers
    graded = True

    def __init__(self, model: str | Engine | Backend, **options: Any):
        super().__init__(model, reasoning=True, **options)


def json_of(reply: str) -> Any:
    """The JSON value in a reply. Raises [`Unreadable`] if the reply has none."""
    try:
        return extract_json(reply)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _objects(reply: str) -> list[dict[str, Any]]:
    return [value for value in json_values(reply) if isinstance(value, dict)]


def _without_contradiction(reply: str, read: Callable[[Any], Answers]) -> Answers:
    """What the last JSON value of a reply answers, without what another one answers differently: a reply with two
    verdicts on an item has none."""
    answers = read(json_of(reply))
    for value in _objects(reply)[:-1]:
        try:
            other = read(value)
        except Unreadable:  # a quoted example
            continue
        for place, label in other.labels.items():
            if answers.labels.get(place, label) != label:
                answers.refuse(place, _TWO_WAYS)
        if other.grade is not None and other.grade != answers.grade:
            answers.grade = None
    return answers


def read_answers(value: Any, items: Sequence[ChecklistItem], reason: str = REASONING) -> Answers:
    """The answers and the grade in a JSON reply about these items, matched to questions by number; see the module
    docstring. `reason` is the key of the reason before each answer. Raises [`Unreadable`] if the reply is misnumbered
    or has no list of answers."""
    entries = value.get("answers") if isinstance(value, Mapping) else value
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise Unreadable('there is no list of "answers"')
    indices = [_index(entry.get("index")) for entry in entries]
    if None in indices:
        raise Unreadable('an entry has no "index", or one that is no whole number')
    _check_numbers([index for index in indices if index is not None], len(items))
    answers, conflicting = Answers(), set()
    answers.grade = _grade(value.get(GRADE)) if isinstance(value, Mapping) else None
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
        answers.refuse(place, _TWO_WAYS)
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


def _grade(value: Any) -> int | None:
    grade = _index(int(value) if isinstance(value, float) and value.is_integer() else value)
    return grade if grade is not None and LEAST_QUALITY <= grade <= BEST_QUALITY else None


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

    reads: list[Ask] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    lost: dict[int, Unanswered] = field(default_factory=dict)
    """Why a question has no answer so far."""
    given_up: bool = False

    @property
    def open(self) -> list[int]:
        """Indices of the questions to ask again."""
        return [] if self.given_up else [i for i in range(len(self.reads)) if i not in self.answers.labels]

    def take(self, indices: Sequence[int], outcome: Answers | Unreadable) -> None:
        """Record the outcome of a call about the questions `indices`."""
        # An unreadable reply has already been repeated. Only questions missing in a usable one are asked again.
        self.given_up = isinstance(outcome, Unreadable)
        answers = outcome.partial if isinstance(outcome, Unreadable) else outcome
        answers = Answers() if answers is None else answers
        for index, place in enumerate(indices):
            if index in answers.labels:
                self.answers.labels[place] = answers.labels[index]
                if index in answers.reasoning:
                    self.answers.reasoning[place] = answers.reasoning[index]
            elif index in answers.refused:
                self.lost[place] = Unanswered(Reason.UNPARSABLE, answers.refused[index])
            else:
                self.lost[place] = outcome.unanswered if isinstance(outcome, Unreadable) else _MISSING
        if self.answers.grade is None:
            self.answers.grade = answers.grade


def _sheets(asks: Sequence[Ask], most: int | None) -> list[_Sheet]:
    """The reads by sample; those of a sample with more than `most` in several sheets."""
    sheets = []
    for places in by_sample(asks):
        calls = 1 if most is None else math.ceil(len(places) / most)
        for number in range(calls):
            own = places[number * len(places) // calls : (number + 1) * len(places) // calls]
            sheets.append(_Sheet([asks[place] for place in own], own))
    return sheets


def _in_reads(sheets: Sequence[_Sheet], progress: Progress | None) -> Callable[[int], None] | None:
    """A progress callback that converts calls of the engine to reads."""
    if progress is None:
        return None
    sizes = iter([len(sheet.reads) for sheet in sheets])
    return lambda calls: progress(sum(next(sizes) for _ in range(calls)))


def _counted(prompts: Sequence[Messages], bill: Bill, verdicts: Sequence[Sequence[Verdict]]) -> Receipt:
    return counted(list(map(prompt_key, prompts)), list(map(bill.asked, prompts)), verdicts)


Value = TypeVar("Value")

_SHOWN = 160


def ask_judge(
    engine: Engine,
    prompts: Sequence[Messages],
    readers: Sequence[Callable[[str], Value]],
    schemas: Sequence[str | None],
    sampling: Sampling,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[list[Value | Unreadable]]:
    """Ask an engine, and repeat the prompts whose reply cannot be parsed, up to three replies in all.

    Each prompt has a reader, which returns the value of a reply's text or raises [`Unreadable`], and the JSON schema
    of its reply, if any. Prompts with the same schema are sent together. Returns `sampling.n` outcomes per prompt.
    """

    def parse(place: int, reply: Reply) -> Value:
        text = reply.text or ""
        try:
            return readers[alike[place]](text)
        except Unreadable as error:
            if reply.finish_reason == "length":
                complaint = f"the reply is longer than max_tokens={sampling.max_tokens}"
                raise Unreadable(complaint, error.partial, Unanswered(Reason.CUT_OFF, complaint)) from None
            if error.partial is None:
                error.unanswered = Unanswered(Reason.UNPARSABLE, f"{error}, got {text[:_SHOWN]!r}")
            raise

    by_schema: dict[str | None, list[int]] = {}
    for index, schema in enumerate(schemas):
        by_schema.setdefault(schema, []).append(index)
    outcomes: dict[int, list[Value | Unreadable]] = {}
    for schema, alike in by_schema.items():
        some, own = [prompts[index] for index in alike], replace(sampling, schema=schema)
        groups = sample_values(engine, some, parse, own, store=store, retry=_retry, progress=progress)
        for index, group in zip(alike, groups, strict=True):
            outcomes[index] = [_without_reply(each) if isinstance(each, NoReply) else each for each in group]  # type: ignore[misc]
    return [outcomes[index] for index in range(len(prompts))]


def _without_reply(error: NoReply) -> Unreadable:
    """The outcome of a prompt to which the engine gave no reply, at once or when it was asked again."""
    first = error.first
    if not isinstance(first, Unreadable):
        return Unreadable(str(error), None, error.unanswered)
    both = Unanswered(first.unanswered.reason, f"{first.unanswered.detail}; asked again: {error.unanswered}")
    return Unreadable(str(error), first.partial, both)


def _retry(messages: Messages, reply: str, complaint: str) -> Messages:
    complaint = f"That cannot be used: {complaint}. Answer again, in the form asked for."
    return with_complaint(messages, reply or "(nothing)", complaint)


REASONED_PROMPT = "judges/reasoned"
WORD_PROMPT = "judges/item"
WORD_OPTIONS_PROMPT = "judges/options"
DEFAULT_TEMPERATURE = 0.7
"""Sampling temperature with several votes; a single reply is greedy."""
_REASONED_TOKENS, _WORD_TOKENS = 1024, 64
_FORM = (
    "Reply with a JSON object only. First your reasoning in a few sentences, then the answer, which is {labels}:\n"
    '{{"reasoning": "...", "answer": "..."}}'
)


class ReasonedJudge(Judge):
    """Answers items in words, with one call per item.

    Args:
        model (`str`, [`Engine`] or [`Backend`]):
            Judge model.
        reasoning (`bool`, *optional*, defaults to `True`):
            Whether the judge writes its reasoning before the answer.
        prompt, votes, temperature, max_tokens, examples (*optional*):
            As in [`JudgeConfig`]. The reply format is appended to the prompt, which defaults to `"judges/reasoned"`;
            without reasoning to `"judges/item"`, and `"judges/options"` for items with options. `max_tokens` defaults
            to 1024 with reasoning and to 64 without. Thinking models need more.
        store ([`Store`], *optional*):
            Store for the replies.
    """

    def __init__(
        self,
        model: str | Engine | Backend,
        *,
        prompt: str | Path | PromptTemplate | None = None,
        reasoning: bool = True,
        votes: int = 1,
        temperature: float | None = None,
        max_tokens: int | None = None,
        examples: FewShot | None = None,
        store: Store | None = None,
    ):
        self.engine: Engine = Engine.of(model)
        self.name = self.engine.model
        default = REASONED_PROMPT if reasoning else WORD_PROMPT
        self.prompt: PromptTemplate = load_prompt(default if prompt is None else prompt, "judge")
        in_words = prompt is None and not reasoning
        self.options_prompt: PromptTemplate = load_prompt(WORD_OPTIONS_PROMPT, "judge") if in_words else self.prompt
        self.reasoning = reasoning
        if temperature is None:
            temperature = DEFAULT_TEMPERATURE if votes > 1 else 0.0
        if max_tokens is None:
            max_tokens = _REASONED_TOKENS if reasoning else _WORD_TOKENS
        self.sampling: Sampling = Sampling(max_tokens, temperature, n=votes)
        self.examples = examples
        self.store = store

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As [`Judge.answer`]. Equal prompts are sent once; stored replies are reused."""
        bill = Bill()
        engine = self.engine.within(bill=bill)
        prefixes: dict[tuple[str | None, ...], str] = {}
        prompts = [self._messages(read, prefixes) for read in asks]
        read_reply = read_reasoned if self.reasoning else read_word
        outcomes = ask_judge(
            engine,
            prompts,
            [partial(read_reply, item=read.item, judge=self.name) for read in asks],
            [_schema(read.item) if self.reasoning else None for read in asks],
            self.sampling,
            store=self.store,
            progress=progress,
        )
        verdicts = [self._verdict(outcome, read.item) for outcome, read in zip(outcomes, asks, strict=True)]
        return verdicts, bill.receipt + _counted(prompts, bill, [(verdict,) for verdict in verdicts])

    def _messages(self, read: Ask, prefixes: dict[tuple[str | None, ...], str]) -> Messages:
        prompt = self.prompt if read.item.options is None else self.options_prompt
        about = (prompt.name, *read.texts.values())
        if about not in prefixes:
            prefixes[about] = prompt.prefix(**read.texts)
        labels = in_order(read.item, read.target, self.name)
        question = question_for_words(read.item, labels)
        if self.examples is not None:
            question = self.examples.question(
                read.item, read.target, question, words=None, reason_first=self.reasoning
            )
        user = prefixes[about] + prompt.tail(question)
        if self.reasoning:
            user += "\n\n" + _FORM.format(labels=_alternatives(labels))
        return prompt_messages(prompt.system, user)

    def _verdict(self, outcomes: Sequence[Verdict | Unreadable], item: ChecklistItem) -> Verdict:
        votes = [
            Verdict(unanswered=each.unanswered, judge=self.name) if isinstance(each, Unreadable) else each
            for each in outcomes
        ]
        if len(votes) == 1:
            return votes[0]
        if (lost := lost_votes(votes, "replies")) is not None:
            return Verdict(unanswered=lost, judge=self.name, votes=tuple(votes))
        answered = [vote for vote in votes if vote.unanswered is None]
        return replace(_majority(answered, item, self.name), votes=tuple(votes))


def _majority(answered: Sequence[Verdict], item: ChecklistItem, judge: str) -> Verdict:
    """The majority verdict of several replies; see the module docstring for ties."""
    counts = Counter(vote.answer for vote in answered)
    shares = {label: counts[label] / len(answered) for label in item.values}
    most = max(counts.values())
    tied = [label for label in item.values if counts[label] == most]
    values = {label: value for label, value in item.values.items() if value is not None}
    if len(tied) > 1 and not values.keys() >= set(tied):
        said = ", ".join(f"{label} {count}" for label, count in counts.most_common())
        return Verdict(shares, unanswered=Unanswered(Reason.TIE, said), judge=judge, method="votes")
    winner = tied[0]
    if len(tied) > 1:
        sign = 1 if item.weight >= 0 else -1
        mean = sum(value * counts[label] for label, value in values.items()) / sum(counts[label] for label in values)
        winner = min(tied, key=lambda label: (round(abs(values[label] - mean), 9), sign * values[label]))
    reasoning = next(vote.reasoning for vote in answered if vote.answer == winner)
    return Verdict(shares, winner, reasoning=reasoning, judge=judge, method="votes")


def read_reasoned(reply: str, item: ChecklistItem, judge: str) -> Verdict:
    """Parse `{"reasoning": ..., "answer": ...}`. Raises [`Unreadable`] for any other reply."""
    value = json_of(reply)
    if not isinstance(value, dict) or "answer" not in value:
        raise Unreadable('the JSON has no "answer"')
    label = named(value["answer"], item)
    if label is None:
        raise Unreadable(f'the "answer" must be {_alternatives(tuple(item.values))}')
    if {named(other.get("answer"), item) for other in _objects(reply)} - {label, None}:
        raise Unreadable("it holds two different answers")
    reasoning = value.get("reasoning")
    return Verdict(
        answer=label, reasoning=reasoning if isinstance(reasoning, str) else None, judge=judge, method="reply"
    )


def read_word(reply: str, item: ChecklistItem, judge: str) -> Verdict:
    """Parse a reply that starts with a label. Raises [`Unreadable`] for any other reply."""
    label = leading_label(reply, item)
    if label is None:
        raise Unreadable(f"the reply must be {_alternatives(tuple(item.values))}")
    return Verdict(answer=label, judge=judge, method="reply")


def _alternatives(answers: Sequence[str]) -> str:
    """The labels as `"yes" or "no"`; a long scale is shortened to its ends."""
    labels = [json.dumps(label, ensure_ascii=False) for label in answers]
    if len(labels) > 12:
        return f"one of {labels[0]}, {labels[1]}, ... {labels[-1]}"
    return f"{', '.join(labels[:-1])} or {labels[-1]}"


def _schema(item: ChecklistItem) -> str:
    answer = {"type": "string", "enum": list(item.values)}
    return json.dumps(object_schema({REASONING: {"type": "string"}, "answer": answer}))  # the reasoning comes first
