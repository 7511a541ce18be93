"""Judges that read labels as the next token, or with an encoder: what is asked, in which order, and what it means.

The [`LogprobJudge`] answers an item by the probabilities of its labels as the next token. Reads are rendered to text,
looked up in the store by key, and sent to the engine in chunks. Identical reads are computed once. Reads are grouped
by prefix and groups are sorted by prefix, so that completions of one input, which share rules and instruction, are
adjacent in any batch and their common prefix stays in the engine's cache. A group is never split between two chunks,
and the completions of one input only if they do not fit into one. Each chunk is stored before the next one is sent,
and [`Pace`] limits chunks, so an interrupted run loses only a few seconds of work.

The labels are yes and no, or the options of an item (`questions.py`). Their probabilities come from the softmax over
the full vocabulary, each summed over all surface forms of the label. Their sum is the *label mass*. If it is below
`mass_floor`, the judge's most likely reply is not a label, and the read is unanswered("off_label"), not 0.5.

The method of a verdict is "logprobs" (read from the full vocabulary), "top_logprobs" (read from the list of most
likely tokens, which is what most servers return) or "word" (the server returned no log-probabilities, only the label
as text). The method is stored with the answer, because the same server may later be read in another way, for example
when its tokenizer is installed.

With the [`EncoderJudge`], a cross-encoder answers every item with P(yes). It is written by `checklist-rewards
distill`, or is any cross-encoder with one output. It has no prompt: it sees the target and the question, and the input
and the reference if it was trained with them, but not the history. Otherwise it works like the one-token judge.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

from typing_extensions import override

from checklist_rewards.backends import Answer, Backend, Engine, Progress, is_kept
from checklist_rewards.backends.base import MISSED, ReadGroup, Written, not_logprobs, time_left
from checklist_rewards.backends.budget import Receipt
from checklist_rewards.backends.encoder_rows import context_of, context_texts
from checklist_rewards.backends.models import config_of
from checklist_rewards.checklists import NO, YES, ChecklistItem, Key, frame, key_of, key_of_frames
from checklist_rewards.errors import BackendError, ChecklistError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.base import Ask, Judge
from checklist_rewards.judges.questions import FewShot, question_for_reads
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.scores import Method, Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.scales import ONE_TOKEN_STEPS

_CHUNK_SECONDS = 5.0
_GROWTH = 8
_FASTER = 1.5
_LATENCIES = 8


Labels = Mapping[str, str]
"""Next tokens to read, and the label of the item that each stands for."""


@dataclass(slots=True)
class Read:
    """An [`Ask`] as text, with the store key of everything its answer depends on. Not frozen, as [`Ask`]."""

    key: Key
    labels: Labels
    about: ReadGroup
    """The prompt up to the question, which all reads about a text share. The tails of those that are sent together are
    added when they are sent."""
    tail: str
    """The question, and what follows it."""
    written: Written | None = None
    """The thought after which the label is read."""


def group_by_prefix(reads: Sequence[Read]) -> list[list[Read]]:
    """Group distinct reads by system prompt, prefix and context, sorted so that groups with a common start are
    adjacent. Reads of several questions after one thought are a group of their own, whose prefix includes the thought.
    """
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...], str], list[Read]] = {}
    for read in reads:
        about, written = read.about, read.written
        thought = written.thought if written is not None and written.question else ""
        groups.setdefault((about.system or "", about.prefix, about.context, thought), []).append(read)
    return [groups[about] for about in sorted(groups)]


class Pace:
    """The number of reads per chunk, chosen so that a killed run loses only a few seconds of work.

    The first chunk is one group. Each later chunk may grow up to 8 times, as long as it is expected to take at most
    5 s. An engine with high latency and high throughput, such as a busy server, would be idle most of the time. It is
    recognized by a higher rate on larger chunks, and gets chunks that take 8 times as long as the quickest one. Chunks
    never shrink, because an engine that became slower may be such an engine.
    """

    def __init__(self) -> None:
        self.reads = 1
        """Maximum number of reads in the next chunk."""
        self._quickest = math.inf
        self._first_rate: float | None = None

    def took(self, reads: int, seconds: float) -> None:
        """Update the chunk size with the duration of an answered chunk."""
        seconds = max(seconds, 1e-9)
        self._quickest = min(self._quickest, seconds)
        growth = _CHUNK_SECONDS / seconds
        if self._first_rate is None:
            self._first_rate, growth = reads / seconds, max(growth, 2)
        elif reads / seconds > _FASTER * self._first_rate:
            growth = max(growth, _LATENCIES * self._quickest / seconds)
        self.reads = max(self.reads, int(reads * min(growth, _GROWTH)))


def chunks(
    groups: Sequence[Sequence[Read]], chunk_reads: int, pace: Pace | None = None
) -> Iterator[list[Sequence[Read]]]:
    """Split the groups of [`group_by_prefix`] into chunks of at most `chunk_reads` reads, or of as many as `pace`
    allows when a group is added; a larger group is a chunk of its own.

    Adjacent groups with the same start, such as the completions of one prompt, stay in one chunk if they fit into one,
    because an engine computes their start once per chunk.
    """
    chunk: list[Sequence[Read]] = []
    size = 0
    starts = ((group, n if group[0].about.start is None else group[0].about.start) for n, group in enumerate(groups))
    for _, alike in groupby(starts, key=itemgetter(1)):
        together = [group for group, _ in alike]
        whole = sum(map(len, together))
        for place, group in enumerate(together):
            most = chunk_reads if pace is None else min(chunk_reads, pace.reads)
            new = whole if place == 0 and whole <= most else len(group)
            if chunk and size + new > most:
                yield chunk
                chunk, size = [], 0
            chunk.append(group)
            size += len(group)
    if chunk:
        yield chunk


logger = logging.getLogger(__name__)

LABELS = (YES, NO)
DEFAULT_PROMPT = "judges/item"
OPTIONS_PROMPT = "judges/options"
DEFAULT_MASS_FLOOR = 0.5
_FORMAT = "label-read-3"
_shared_key = lru_cache(maxsize=128)(key_of)
"""Keys of what the reads about many texts have in common: labels and rules, and the input of several completions."""


class LogprobJudge(Judge):
    """Answers items with exact label probabilities.

    Args:
        model (`str`, [`Engine`] or [`Backend`]):
            `"pocket"`, a local folder, a Hub id, an engine, or a backend object.
        prompt, mass_floor, examples (*optional*):
            As in [`JudgeConfig`]. The prompt defaults to `"judges/item"`, and of items with options to
            `"judges/options"`.
        store ([`Store`], *optional*):
            Store for the answers.
    """

    default_prompt = DEFAULT_PROMPT
    _reason_first = False
    """Whether examples show their reason before the answer."""
    _labels_apart = True
    """Whether the reads of one call of the engine have the same labels, which are passed to it."""
    _questions_alone = False
    """Whether the engine gets a question as it is, without the end of the prompt."""
    _most_options: int | None = ONE_TOKEN_STEPS
    """Most options of an item; None for any number."""
    _method: Method | None = None
    """How probabilities are read, if the engine's answers do not tell."""

    def __init__(
        self,
        model: str | Engine | Backend,
        *,
        prompt: str | Path | PromptTemplate | None = None,
        mass_floor: float = DEFAULT_MASS_FLOOR,
        examples: FewShot | None = None,
        store: Store | None = None,
    ):
        self.engine: Engine = Engine.of(model)
        prompt = self.default_prompt if prompt is None else prompt
        self.prompt: PromptTemplate = load_prompt(prompt, "judge")
        self.options_prompt: PromptTemplate = (
            load_prompt(OPTIONS_PROMPT, "judge") if prompt == DEFAULT_PROMPT else self.prompt
        )
        self.mass_floor = mass_floor
        self.examples = examples
        self.store = store
        self._pace = Pace()

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the model."""
        return self.engine.name

    @override
    def check_item(self, item: ChecklistItem, where: str) -> None:
        most = self._most_options
        if item.options is not None and most is not None and len(item.options) > most:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): {len(item.options)} options are too many for a "
                f"one-token read, which allows {most}; set use_logprobs=False for any number."
            )
        if self.examples is not None:
            self.examples.check(item)

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As [`Judge.answer`]. Equal reads are computed once; stored reads are reused."""
        rendered = self._render(asks)
        verdicts, asked, spent = self._answered(rendered, progress)
        in_order = [as_declared(verdicts[read.key], ask.item) for read, ask in zip(rendered, asks, strict=True)]
        return in_order, replace(
            spent,
            reads=len(asks),
            deduplicated=len(asks) - len(verdicts),
            stored=len(verdicts) - len(asked),
            asked=len(asked),
            unanswered=sum([verdict.unanswered is not None for verdict in verdicts.values()]),
        )

    def _answered(
        self, rendered: Sequence[Read], progress: Progress | None = None
    ) -> tuple[dict[Key, Verdict], set[Key], Receipt]:
        """The verdict of every distinct read by its key, the keys that were not in the store, and the cost. Answers of
        the engine are stored after each chunk."""
        distinct = {read.key: read for read in rendered}
        answers: dict[Key, Answer] = {}
        if self.store is not None:
            answers.update(self.store.get(list(distinct), lambda key, text: _loaded(text, distinct[key].labels)))
        missing = [read for key, read in distinct.items() if key not in answers]
        if progress is not None:
            progress(len(rendered) - len(missing))
        # The engine is asked in small chunks if answers are stored after each, or if time may run out between them.
        pace = None if self.store is None and time_left() is None else self._pace
        by_labels: dict[tuple[str, ...], list[Read]] = {}
        for read in missing:
            by_labels.setdefault(tuple(read.labels) if self._labels_apart else (), []).append(read)
        costs: list[Receipt] = []
        for labels, alike in by_labels.items():
            for chunk in chunks(group_by_prefix(alike), self.engine.chunk_reads, pace):
                fresh, cost = self._read(chunk, labels)
                costs.append(cost)
                if any(answer.unanswered is None for answer in fresh.values()):
                    self._pace.took(len(fresh), cost.engine_seconds)
                answers.update(fresh)
                if self.store is not None:
                    self.store.put((key, _dumped(answer)) for key, answer in fresh.items() if is_kept(answer))
                if progress is not None:
                    progress(len(fresh))
        spent = sum(costs, Receipt())
        judge = self.engine.name
        verdicts = {key: self._verdict(answer, distinct[key].labels, judge) for key, answer in answers.items()}
        used = spent.prompt_tokens, spent.completion_tokens
        return verdicts, {read.key for read in missing}, replace(spent, tokens={judge: used} if any(used) else {})

    def _render(self, asks: Sequence[Ask]) -> list[Read]:
        """The reads as text, each with its question."""
        groups: dict[tuple[str | None, ...], tuple[ReadGroup, bytes]] = {}
        tails: dict[tuple[str, str], tuple[str, bytes]] = {}
        rendered: list[Read] = []
        for read, (question, labels) in zip(asks, self._questions(asks), strict=True):
            prompt = self.prompt if read.item.options is None else self.options_prompt
            own = labels if self._labels_apart else ()
            about = (prompt.name, *own, read.input, read.reference, read.history, read.target)
            if (known := groups.get(about)) is None:
                group, key = self._group(read, prompt, labels)
                known = groups[about] = group, frame(key)
            if (asked := tails.get((prompt.name, question))) is None:
                tail = question if self._questions_alone else prompt.tail(question)
                asked = tails[prompt.name, question] = tail, frame(tail)
            (group, group_frame), (tail, tail_frame) = known, asked
            rendered.append(Read(key_of_frames(group_frame + tail_frame), labels, group, tail))
        return rendered

    def _group(self, read: Ask, prompt: PromptTemplate, labels: Labels) -> tuple[ReadGroup, Key]:
        """The prompt of a read up to its question, and the key of all that its answer depends on but the question."""
        prefix, system = prompt.prefix(**read.texts), prompt.system or ""
        start = _shared_key(prompt.name, system, read.input or "", read.reference or "", read.history or "")
        base = _shared_key(_FORMAT, self.engine.identity, *labels, system)
        return ReadGroup(prompt.system, prefix, start=start), key_of(base, prefix)

    def _questions(self, asks: Sequence[Ask]) -> list[tuple[str, Labels]]:
        """The question of each read, and its labels."""
        questions: list[tuple[str, Labels]] = []
        judge = self.engine.name
        for read in asks:
            question, labels = question_for_reads(read.item, read.target, judge)
            if self.examples is not None:
                # Shown as "B (kind)": the letter is the expected answer, and the label explains it, because the
                # letters of an item's labels differ between targets.
                words = {label: token if token == label else f"{token} ({label})" for token, label in labels.items()}
                question = self.examples.question(
                    read.item, read.target, question, words=words, reason_first=self._reason_first
                )
            questions.append((question, labels))
        return questions

    def _read(self, chunk: Sequence[Sequence[Read]], labels: tuple[str, ...]) -> tuple[dict[Key, Answer], Receipt]:
        started = time.perf_counter()
        keys = [read.key for reads in chunk for read in reads]
        if time_left() == 0:
            return dict.fromkeys(keys, Answer(None, MISSED)), Receipt()
        groups = [
            replace(
                reads[0].about,
                tails=tuple([read.tail for read in reads]),
                written=tuple([read.written for read in reads if read.written is not None]),
            )
            for reads in chunk
        ]
        try:
            answers, usage = self.engine.read(groups, labels)
        except BackendError as error:
            # The reads of this chunk are unanswered. They are not stored, so a rerun repeats them.
            logger.warning("%d reads failed: %s", len(keys), error)
            fresh = dict.fromkeys(keys, Answer(None, Unanswered(Reason.BACKEND_ERROR, str(error))))
            return fresh, Receipt(calls=len(keys), engine_seconds=time.perf_counter() - started)
        except BaseException:
            self._pace = Pace()  # restart with small chunks, so that the next call stores its first answers early
            raise
        if usage.completion_tokens is None:  # one per answered read
            usage = replace(usage, completion_tokens=sum(read.unanswered is None for read in answers))
        fresh = dict(zip(keys, map(_checked, answers), strict=True))
        return fresh, Receipt(calls=len(keys), engine_seconds=time.perf_counter() - started, **asdict(usage))

    def _verdict(self, read: Answer, labels: Labels, judge: str) -> Verdict:
        if read.logprobs is None:
            if read.label is not None:
                return Verdict(answer=labels[read.label], judge=judge, method="word")
            return Verdict(unanswered=read.unanswered, judge=judge)
        top = max(read.logprobs)
        if top == -math.inf:
            return Verdict(unanswered=Unanswered(Reason.OFF_LABEL), mass=0.0, judge=judge)
        weights = [math.exp(logprob - top) for logprob in read.logprobs]
        total = math.fsum(weights)
        mass = min(1.0, total * math.exp(top)) if read.mass_reported else None
        probabilities = {label: weight / total for label, weight in zip(labels.values(), weights, strict=True)}
        unsure = Unanswered(Reason.OFF_LABEL) if mass is not None and mass < self.mass_floor else None
        method = self._method or ("logprobs" if read.exact else "top_logprobs")
        return Verdict(probabilities, mass=mass, unanswered=unsure, judge=judge, method=method)


def _checked(read: Answer) -> Answer:
    """The answer of an engine. Numbers that are not log-probabilities make it unanswered, and it is not stored."""
    if read.logprobs is None or (reason := not_logprobs(read.logprobs, distinct=False)) is None:
        return read
    finite = all(logprob < math.inf for logprob in read.logprobs)  # False for NaN, also of numpy
    return Answer(None, reason if finite else Unanswered(Reason.NOT_FINITE), keep=False)


def as_declared(verdict: Verdict, item: ChecklistItem) -> Verdict:
    """The verdict with probabilities in the order of the item's options instead of that in which they were asked."""
    if item.options is None:
        return verdict
    raw = verdict.probabilities
    return replace(
        verdict,
        probabilities=None if raw is None else {label: raw[label] for label in item.values},
        votes=tuple([as_declared(vote, item) for vote in verdict.votes]),
    )


def _dumped(read: Answer) -> str:
    if read.unanswered is not None:
        return json.dumps({"unanswered": read.unanswered})
    if read.label is not None:
        return json.dumps({"answer": read.label})
    flags = {"exact": read.exact, "mass_reported": read.mass_reported}
    return json.dumps({"logprobs": read.logprobs} | {name: flag for name, flag in flags.items() if not flag})


def _loaded(text: str, labels: Labels) -> Answer:
    """Parse what [`_dumped`] wrote about these labels. Raises `ValueError` for any other text."""
    match json.loads(text):
        case {"logprobs": [*numbers], **rest} if len(numbers) == len(labels):
            logprobs = tuple(map(float, numbers))
            if not_logprobs(logprobs, distinct=False) is None:
                exact, mass_reported = rest.get("exact") is not False, rest.get("mass_reported") is not False
                return Answer(logprobs, exact=exact, mass_reported=mass_reported)
        case {"answer": str(answer)} if answer in labels:
            return Answer(label=answer)
        case {"unanswered": str(reason)}:
            return Answer(None, Unanswered(reason))
    raise ValueError(f"not a read of {list(labels)}: {text:.60}")


_ENCODER_FORMAT = "encoder-read-1"


class EncoderJudge(LogprobJudge):
    """Answers yes/no items with a cross-encoder.

    Args:
        model (`str`, [`Engine`] or [`Backend`]):
            Local folder or Hub id, an engine, or a backend object. A Hub id, which is not recognized as an encoder by
            its name, requires `Engine(model, "encoder")`. The sentence-transformers package is not required.
        store ([`Store`], *optional*):
            Store for the answers.
    """

    _questions_alone = True

    def __init__(self, model: str | Engine | Backend, *, store: Store | None = None):
        super().__init__(model, store=store)

    @cached_property
    def context(self) -> tuple[str, ...]:
        """What the model reads besides target and question: "input", "reference", both or nothing. The model is not
        loaded."""
        engine = self.engine
        if isinstance(engine.backend, str):
            return context_of(config_of(engine.model, engine.settings.get("revision")))
        return engine.backend.context

    @override
    def check_item(self, item: ChecklistItem, where: str) -> None:
        if item.options is not None:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): it has options, but an encoder only answers yes or no."
            )

    @override
    def _group(self, read: Ask, prompt: PromptTemplate, labels: Labels) -> tuple[ReadGroup, Key]:
        context = context_texts(read, self.context)
        key = key_of(_ENCODER_FORMAT, self.engine.identity, read.target, *chain.from_iterable(context))
        return ReadGroup(None, read.target, context=context), key
