"""The one-token judge: every item of a target answered by the probability of "yes" as the next token.

Reads are rendered to text, keyed, looked up in the store, planned (`plan.py`) and put to the engine chunk by chunk;
each chunk is stored before the next is asked, so a run that dies keeps what it paid for.

P(yes) and P(no) come from the softmax over the full vocabulary, each summed over every surface form of its label.
Their sum is the *mass*: below `mass_floor` the judge wanted to say something else, and the read is
unanswered("off_label"), not 0.5.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from checklist_rewards.backends import Backend, LabelRead, Progress, engine_identity, load_backend
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import BackendError, ChecklistError
from checklist_rewards.judges.base import Read, Receipt
from checklist_rewards.judges.plan import PlannedGroup, RenderedRead, chunks, distinct, group_by_prefix
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.scores import Verdict
from checklist_rewards.store import Key, Store, key_of

logger = logging.getLogger(__name__)

LABELS = (YES, NO)
DEFAULT_PROMPT = "judges/item"
DEFAULT_MASS_FLOOR = 0.5
_FORMAT = "label-read-1"


class LogprobJudge:
    """Answers yes/no items with exact probabilities.

    Args:
        model (`str`): "pocket", a folder, a Hub id, or the name of a served model.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): an engine's name, or an engine.
        base_url (`str`, *optional*): address of the server, if the model is served.
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*): the judge prompt.
        mass_floor (`float`, *optional*, defaults to `0.5`): least P(yes) + P(no) for a read to count, in [0, 1].
        store ([`Store`], *optional*): where answers are kept.
    """

    def __init__(
        self,
        model: str = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        mass_floor: float = DEFAULT_MASS_FLOOR,
        store: Store | None = None,
    ):
        self.name = model
        self.backend = backend
        self.base_url = base_url
        self.prompt = load_prompt(prompt, "judge")
        self.mass_floor = mass_floor
        self.store = store
        self.receipt = Receipt()
        self._identity: str | None = None

    @property
    def identity(self) -> str:
        """Hash of the model that answers; known without building an engine."""
        if self._identity is None:
            if isinstance(self.backend, str):
                self._identity = engine_identity(self.name, self.backend, self.base_url)
            else:
                self._identity = self.backend.identity
        return self._identity

    def check(self) -> None:
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that this judge cannot answer. Raises [`ChecklistError`] naming it."""
        if item.options is not None or item.check is not None:
            has = "options" if item.options is not None else "a code check"
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): it has {has}; this judge reads yes/no questions."
            )

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Equal reads are asked once; stored reads are not asked.

        Args:
            reads (sequence of [`Read`]).
            progress (callable, *optional*): told how many of `reads` were answered since its last call.
        """
        rendered = self._render(reads)
        unique = distinct(rendered)
        answers: dict[Key, LabelRead] = {}
        if self.store is not None:
            answers.update((key, _loaded(text)) for key, text in self.store.get(list(unique)).items())
        stored = len(answers)
        missing = [read for key, read in unique.items() if key not in answers]
        if progress is not None:
            progress(len(reads) - len(missing))
        spent = Receipt(reads=len(reads), deduplicated=len(reads) - len(unique), stored=stored, asked=len(missing))
        if missing:
            spent += self._ask(missing, answers, progress)
        verdicts = {key: self._verdict(answer) for key, answer in answers.items()}
        unanswered = sum(verdict.unanswered is not None for verdict in verdicts.values())
        self.receipt = self.receipt + spent + Receipt(unanswered=unanswered)
        return [verdicts[read.key] for read in rendered]

    def _render(self, reads: Sequence[Read]) -> list[RenderedRead]:
        base = key_of(_FORMAT, self.identity, *LABELS, self.prompt.system or "")
        prefixes: dict[tuple[str, str | None, str | None, str | None], tuple[str, Key]] = {}
        tails: dict[str, str] = {}
        out = []
        for read in reads:
            about = (read.target, read.input, read.reference, read.history)
            if about not in prefixes:
                prefix = self.prompt.prefix(
                    target=read.target, input=read.input, reference=read.reference, history=read.history
                )
                prefixes[about] = prefix, key_of(base, prefix)
            prefix, prefix_key = prefixes[about]
            question = read.item.question
            if question not in tails:
                tails[question] = self.prompt.tail(question)
            tail = tails[question]
            out.append(RenderedRead(key_of(prefix_key, tail), self.prompt.system, prefix, tail))
        return out

    def _ask(
        self, missing: Sequence[RenderedRead], answers: dict[Key, LabelRead], progress: Progress | None
    ) -> Receipt:
        backend = self._engine()
        spent = Receipt()
        for chunk in chunks(group_by_prefix(missing), backend.chunk_reads):
            fresh, cost = _read_chunk(backend, chunk)
            spent += cost
            answers.update(fresh)
            if self.store is not None:
                self.store.put((key, _dumped(read)) for key, read in fresh.items() if not _transient(read))
            if progress is not None:
                progress(len(fresh))
        return spent

    def _engine(self) -> Backend:
        if isinstance(self.backend, str):
            return load_backend(self.name, self.backend, self.base_url)  # type: ignore[arg-type]
        return self.backend

    def _verdict(self, read: LabelRead) -> Verdict:
        if read.logprobs is None:
            return Verdict(unanswered=read.unanswered, judge=self.name)
        top = max(read.logprobs)
        if not math.isfinite(top):
            return Verdict(unanswered="off_label", mass=0.0, judge=self.name)
        weights = [math.exp(logprob - top) for logprob in read.logprobs]
        total = math.fsum(weights)
        mass = min(1.0, total * math.exp(top))
        probabilities = {label: weight / total for label, weight in zip(LABELS, weights, strict=True)}
        reason = "off_label" if mass < self.mass_floor else None
        return Verdict(probabilities, mass=mass, unanswered=reason, judge=self.name)


def _read_chunk(backend: Backend, chunk: Sequence[PlannedGroup]) -> tuple[dict[Key, LabelRead], Receipt]:
    started = time.perf_counter()
    try:
        result = backend.read([planned.group for planned in chunk], LABELS)
    except BackendError as error:
        # The reads of this chunk are unanswered, not scored; they are not stored, so a rerun asks them again.
        logger.warning("%d reads failed: %s", sum(len(planned.keys) for planned in chunk), error)
        failed = LabelRead(None, f"backend_error: {error}")
        fresh = {key: failed for planned in chunk for key in planned.keys}
        return fresh, Receipt(engine_seconds=time.perf_counter() - started)
    fresh = {
        key: read
        for planned, group in zip(chunk, result.reads, strict=True)
        for key, read in zip(planned.keys, group, strict=True)
    }
    return fresh, Receipt(
        prompt_tokens=result.prompt_tokens,
        computed_tokens=result.computed_tokens,
        floor_tokens=result.floor_tokens,
        engine_seconds=time.perf_counter() - started,
    )


def _transient(read: LabelRead) -> bool:
    return read.unanswered is not None and read.unanswered.startswith("backend_error")


def _dumped(read: LabelRead) -> str:
    return json.dumps({"logprobs": read.logprobs} if read.unanswered is None else {"unanswered": read.unanswered})


def _loaded(text: str) -> LabelRead:
    data = json.loads(text)
    logprobs = data.get("logprobs")
    return LabelRead(None if logprobs is None else tuple(logprobs), data.get("unanswered"))
