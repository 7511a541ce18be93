"""The scorer: samples in, scores out. The one path that rewards, reranking, evaluation and the CLI all use.

    >>> scorer = ChecklistScorer(model="pocket")
    >>> score = scorer.score(["Does the response end with a question mark?"], target="Who is there?")
    >>> score.primary_score  # doctest: +SKIP
    0.99

Invalid arguments and samples (a missing model, a bad weight, a target that is not a string) raise an error before
anything is sent to the judge. A read that the judge then fails to answer is unanswered in the score, with the reason.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Unpack, runtime_checkable

from checklist_rewards.backends import Engine, is_transient
from checklist_rewards.backends.base import is_over
from checklist_rewards.backends.budget import Bill, Receipt
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.config import refuse_any
from checklist_rewards.errors import SampleError
from checklist_rewards.images import has_images, images_in
from checklist_rewards.judges.base import Answers, Ask, Progress
from checklist_rewards.judges.calibration import Member
from checklist_rewards.judges.checked import (
    by_check,
    by_judge,
    check_and_ask,
    failed_check,
    run_check,
    usable_check,
    without_check,
)
from checklist_rewards.judges.identity import judge_identity
from checklist_rewards.judges.logprob import as_declared
from checklist_rewards.judges.settings import Mode, ScorerConfig, ScorerKwargs
from checklist_rewards.judges.variants import check_rewordable, how_repeated, reseeded, variant_of
from checklist_rewards.judges.weights import Weights
from checklist_rewards.rows import Sample
from checklist_rewards.scores import (
    NO_ANSWER_STATES,
    Reason,
    Score,
    TargetState,
    Unanswered,
    Verdict,
    score_checklist,
)
from checklist_rewards.scores.scales import on_scale, ordinal_scale


class Scorer(Protocol):
    """Protocol of scorers, such as [`ChecklistScorer`]."""

    def validate(self) -> None:
        """Check settings and models without loading an engine."""

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """Score every sample, in order."""


class ChecklistScorer:
    """Answers checklists about targets and aggregates the answers.

    Args:
        model (`str`, [`Engine`] or [`ScorerConfig`], *optional*):
            The judge: a folder, a Hub id, or with `base_url` the name that the server uses for it; "pocket" for demos
            and tests. Or all settings as one value. Items that no code check answers need a judge.
        **settings:
            The other fields of [`ScorerConfig`].

    Raises:
        ChecklistRewardsError: One sentence, for any argument that cannot be used. No model is looked for or loaded
            here: that happens at the first read that is not in the store. Code checks alone need no model.
    """

    def __init__(self, model: str | Engine | ScorerConfig = UNNAMED, **settings: Unpack[ScorerKwargs]):
        if isinstance(model, ScorerConfig):
            refuse_any(settings, "together with a ScorerConfig; set it there")
        else:
            model = ScorerConfig(model=model, **settings)
        self.config = config = model
        self.scale = None if config.scale is None else ordinal_scale(config.scale)
        self.weights = None if config.weights is None else Weights.load(config.weights)
        self.aggregation = config.aggregation
        self.judge, self.calibration = config.member()
        self._variant = 0
        self._validated = False
        self._bill = Bill()

    @property
    def mode(self) -> Mode:
        """How questions are put; see [`ScorerConfig`]."""
        return self.config.mode

    @property
    def identity(self) -> str:
        """Hash of everything on which verdicts depend: the judge, its calibration and the steps of this scorer. No
        model is loaded."""
        steps = self.config.checks, self.config.allow_code, self.scale, self.aggregation.threshold
        return judge_identity(Member(self.judge, self.calibration), *steps)

    @property
    def receipt(self) -> Receipt:
        """What all calls so far have cost."""
        return self._bill.receipt

    def repeated(self, number: int) -> ChecklistScorer:
        """A scorer that asks the same again for the repeat `number`, from 0 (`judges/variants.py`). Both have one
        receipt.

        Raises:
            SampleError: If the judge shows examples, which are chosen by the wording of a question.
        """
        again = copy.copy(self)
        if number and how_repeated(self.judge) == "resampled":
            again.judge = reseeded(self.judge, number)
        elif number:
            check_rewordable(self.judge)
            again._variant = number
        return again

    def validate(self) -> None:
        """Refuse a judge that cannot work or answer on the scale, before the first read and without loading it."""
        Member(self.judge, self.calibration).validate()
        if self.scale is not None and all(part.examples is None for part in self.judge.parts()):
            self.check_item(ChecklistItem(question="any question", options=self.scale), f"scale={self.config.scale}")

    def asks(self, checklist: Checklist) -> bool:
        """Whether the judge answers any item of a checklist. Without such items, no model is needed."""
        return any(by_judge(item, self.config.checks) for item in checklist.items)

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that neither a check nor the judge can answer. Raises [`ChecklistError`] that begins with
        `where`."""
        if item.check is not None:
            if by_check(item, self.config.checks):
                usable_check(item, where, self.config.allow_code)
            if not by_judge(item, self.config.checks):
                return
            item = without_check(item, self.scale)
        self.judge.check_item(variant_of(item, self._variant) if self._variant else item, where)
        if self.calibration is not None:
            self.calibration.check_item(item, where)

    def score(
        self,
        checklist: Any,
        target: str,
        input: str | None = None,
        *,
        reference: str | None = None,
        history: str | None = None,
        images: Sequence[Any] = (),
    ) -> Score:
        """Score one target; see [`Sample`] for the arguments."""
        return self.score_batch([Sample(checklist, target, input, reference, history, images=images)])[0]

    def score_batch(
        self, samples: Sequence[Sample], progress: Progress | None = None, *, retries: int = 0
    ) -> list[Score]:
        """Score samples in one plan: identical reads are computed once and completions of one prompt share its prefix.
        Targets without an answer are scored as `no_answer` says, without the judge.

        Args:
            samples (sequence of [`Sample`]):
                Targets with their checklists, in any order.
            progress (`Callable[[int], None]`, *optional*):
                Called with the number of reads answered since the last call.
            retries (`int`, *optional*, defaults to `0`):
                How often to repeat reads that failed for a transient reason (timeout, lost connection, 5xx).

        Returns:
            `list[Score]`: One per sample, in the same order. A read that the judge did not answer is unanswered in the
            score, with the reason; it never counts as yes or no.

        Raises:
            SampleError, ChecklistError: For a sample that cannot be scored, named by its number (from 1) and item.
                Nothing has been sent to the judge at that point.
            ModelError: If the judge cannot be used.
        """
        return self.score_prepared(self.prepare(samples), progress, retries=retries)

    def prepare(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples as this scorer asks them: with parsed checklists, on its scale and with its weights. A checklist
        that several samples share is prepared and checked once.

        Raises:
            SampleError, ChecklistError: As [`score_batch`].
        """
        prepared: list[Sample] = []
        known: dict[int, tuple[Checklist, Checklist]] = {}  # by the id of a parsed checklist, which is kept alive here
        for number, sample in enumerate(samples, start=1):
            where = f"sample {number}"
            given = Checklist.parse(sample.checklist, where)
            if id(given) not in known:
                known[id(given)] = given, self.prepared(given)
                for item in known[id(given)][1].items:
                    self.check_item(item, where)
            checklist = known[id(given)][1]
            prepared.append(sample if sample.checklist is checklist else replace(sample, checklist=checklist))
            for name in ("target", "input", "reference", "history"):
                text = getattr(sample, name)
                if not isinstance(text, str) and (text is not None or name == "target"):
                    raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
            self.check_sample(prepared[-1], where)
        return prepared

    def check_sample(self, sample: Sample, where: str) -> None:
        """Refuse a sample with images that a judge cannot take. Items that only code answers need no judge. A sample
        without a parsed checklist counts as one whose checklist asks the judge.

        Raises:
            SampleError: One sentence that begins with `where`. No model has been loaded.
        """
        if not (sample.images or sample.target_images) or not self._is_judged(sample.target_state):
            return
        checklist = sample.checklist if isinstance(sample.checklist, Checklist) else None
        target = sample.target
        if checklist is not None and any(item.scope is not None for item in checklist.items):
            target = "".join([target, *(message.shown for message in sample.messages)])
        self.check_images(checklist, where, input=sample.input, history=sample.history, target=target)

    def check_images(self, checklist: Checklist | None, where: str, **texts: str | None) -> None:
        """[`check_sample`] for the texts of a sample by their names, before there is a target or a checklist."""
        if not any(map(has_images, texts.values())) or (checklist is not None and not self.asks(checklist)):
            return
        for name, text in texts.items():
            for judge in self.judge.parts():
                judge.check_images(images_in(text), f"{where}: the {name}")

    def score_prepared(
        self, samples: Sequence[Sample], progress: Progress | None = None, *, retries: int = 0
    ) -> list[Score]:
        """[`score_batch`] of samples that [`prepare`] returned."""
        states = [sample.target_state for sample in samples]
        judged = [self._is_judged(state) for state in states]
        answers = iter(self._verdicts(samples, judged, progress, retries))
        scores = []
        for sample, state, is_judged in zip(samples, states, judged, strict=True):
            if is_judged:
                verdicts = [next(answers) for _ in sample.checklist.items]
            else:
                verdicts = [Verdict(unanswered=Unanswered(Reason.NO_ANSWER, state))] * len(sample.checklist.items)
            scores.append(score_checklist(sample.checklist, verdicts, self.aggregation, state=state))
        return scores

    def _verdicts(
        self, samples: Sequence[Sample], judged: Sequence[bool], progress: Progress | None, retries: int
    ) -> Sequence[Verdict]:
        """The verdicts on the items of the samples that are judged, in one plan."""
        reads = [
            Ask(
                item,
                sample.target,
                sample.input,
                sample.reference,
                sample.history,
                number,
                None if sample.checked is None or item.check is None else sample.checked.get(item.check),
            )
            for number, sample in enumerate(samples)
            if judged[number]
            for item in sample.checklist.items
        ]
        if progress is not None and not all(judged):
            progress(sum(len(s.checklist.items) for s, asked in zip(samples, judged, strict=True) if not asked))
        if not reads:
            return []
        # Each step is left out where nothing needs it: calibration, code checks, items about single messages.
        checks, allow_code = self.config.checks, self.config.allow_code
        ask = self._asked if self.calibration is None else self._calibrated
        answer: Answers = partial(ask, progress=progress, retries=retries)
        if any([read.item.check is not None for read in reads]):
            asking = partial(check_and_ask, checks=checks, allow_code=allow_code, progress=progress, scale=self.scale)
            answer = partial(asking, ask=answer)
        if any([read.item.scope is not None for read in reads]):
            from checklist_rewards.judges.scoped import ScopedReads

            plain = self.calibration is None and not self._variant
            scoped = ScopedReads(len(samples), self.aggregation.threshold, self.judge, plain)
            for read in reads:
                by_code = read.item.scope is not None and by_check(read.item, checks)
                run = partial(run_check, allow_code=allow_code) if by_code else None
                scoped.add(read, samples[read.sample].messages, run)
            return scoped.answered(answer)
        return answer(reads)

    def _calibrated(self, asks: Sequence[Ask], progress: Progress | None, retries: int) -> list[Verdict]:
        """The calibrated verdicts of the judge on reads, in order."""
        assert self.calibration is not None
        verdicts = self._asked(asks, progress, retries)
        return self.calibration.calibrated(asks, verdicts, partial(self._asked, progress=None, retries=retries))

    def _asked(self, asks: Sequence[Ask], progress: Progress | None, retries: int) -> list[Verdict]:
        """The judge's own verdicts on reads, in order. Reads that failed are repeated."""
        if not self._validated:
            self.validate()
            self._validated = True
        asked = asks
        if self._variant:
            asked = [replace(read, item=variant_of(read.item, self._variant)) for read in asks]
        verdicts, spent = self.judge.answer(asked, progress)
        verdicts = list(verdicts)
        if len(verdicts) != len(asked):
            raise ValueError(f"judge returned {len(verdicts)} verdicts for {len(asked)} reads")
        self._bill.add(spent)
        for _ in range(retries):
            lost = [(place, verdict.unanswered) for place, verdict in enumerate(verdicts) if verdict.unanswered]
            failed = [place for place, why in lost if is_transient(why)]
            if not failed or is_over():
                break
            again, spent = self.judge.answer([asked[place] for place in failed])
            self._bill.add(spent)
            for place, verdict in zip(failed, again, strict=True):
                verdicts[place] = verdict
        if not self._variant:
            return verdicts
        return [as_declared(verdict, read.item) for verdict, read in zip(verdicts, asks, strict=True)]

    def checked(self, sample: Sample, seconds: float = math.inf) -> Sample:
        """Run the code checks of a sample now, in this thread: a later [`score_batch`] does not run those of the
        returned sample again. After `seconds`, no further check is started; the remaining ones are unanswered."""
        checklist = Checklist.parse(sample.checklist, "sample")
        whole = [item for item in checklist.items if item.scope is None]
        checks = {item.check or "": item for item in whole if by_check(item, self.config.checks)}
        if not checks or not self._is_judged(sample.target_state):
            return sample
        over = time.monotonic() + seconds
        late = failed_check(f"the checks of this row took more than {seconds:g} s")
        verdicts = {
            check: run_check(item, sample.target, sample.input, self.config.allow_code)
            if time.monotonic() < over
            else late
            for check, item in checks.items()
        }
        return replace(sample, checked=verdicts)

    def prepared(self, checklist: Checklist, where: str = "checklist") -> Checklist:
        """The checklist as this scorer asks it: on its scale and with its weights, if it has them. Raises
        [`ChecklistError`], starting with `where`, if no item has a weight other than 0."""
        checklist = checklist if self.scale is None else on_scale(checklist, self.scale)
        return checklist if self.weights is None else self.weights.of(checklist, where)

    def _is_judged(self, state: TargetState) -> bool:
        return self.aggregation.no_answer == "judge" or state not in NO_ANSWER_STATES


@runtime_checkable
class ScoringPipeline(Protocol):
    """What a reward uses of a [`pipelines.Pipeline`]."""

    @property
    def scorer(self) -> ChecklistScorer | None:
        """Its scorer; None if the pipeline only writes checklists."""


def scorer_of(given: Any, config: ScorerConfig, apart: Sequence[str] = ()) -> ChecklistScorer:
    """The scorer of a reward: that of the config, a given one, or that of a given pipeline. With a given one, the
    config may set no field of a scorer but those in `apart`."""
    if given is None:
        return ChecklistScorer(config)
    scorer = given.scorer if isinstance(given, ScoringPipeline) else given
    if not isinstance(scorer, ChecklistScorer):
        raise SampleError(
            f"scorer must be a ChecklistScorer or a Pipeline with one, got {scorer!r:.60}; pass a model's name as "
            "model=..."
        )
    usual = ScorerConfig()
    names = [name for name in ScorerConfig.model_fields if name in config.model_fields_set and name not in apart]
    if names := [name for name in names if getattr(config, name) != getattr(usual, name)]:
        raise SampleError(f"{', '.join(names)} cannot be combined with scorer=...; set it on the scorer.")
    return scorer
