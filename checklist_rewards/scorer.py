"""The scorer: samples in, scores out. The one path that rewards, reranking, evaluation and the CLI all use.

    >>> scorer = ChecklistScorer(model="pocket")
    >>> score = scorer.score(["Does the response end with a question mark?"], target="Who is there?")
    >>> score.primary_score  # doctest: +SKIP
    0.99

Everything that can be refused (a missing model, a bad weight, a target that is no string) is refused before the judge
is asked anything. What the judge then fails to answer is unanswered in the score, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from checklist_rewards.backends import Engine, is_transient
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Judge, Progress, Read, Receipt
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.calibrated import CalibratedJudge
from checklist_rewards.judges.checked import ALLOW_CODE, CHECK_USES, AllowCode, CheckedJudge, Checks
from checklist_rewards.judges.jury import load_jury
from checklist_rewards.judges.settings import JudgeOptions, JudgeSettings, Mode, refuse_any
from checklist_rewards.scores import (
    ABSTENTIONS,
    DEFAULT_MIN_ANSWERED,
    DEFAULT_THRESHOLD,
    PRIMARY_METRICS,
    Abstention,
    Aggregation,
    PrimaryMetric,
    Score,
    score_checklist,
)
from checklist_rewards.validation import fraction, one_of


@dataclass(frozen=True, slots=True)
class Sample:
    """One target to be scored.

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
        target (`str`): the text being scored; may be empty.
        input (`str`, *optional*): what was asked.
        reference (`str`, *optional*): a known good answer, shown to the judge if its prompt has `{reference}`.
        history (`str`, *optional*): earlier turns, shown to the judge if its prompt has `{history}`.
    """

    checklist: Any
    target: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None


class ChecklistScorer:
    """Answers checklists about targets and aggregates the answers.

    Args:
        model (`str`, [`Engine`] or [`JudgeSettings`], *optional*, defaults to `"pocket"`):
            The judge: "pocket", a folder, a Hub id, or with `base_url` the name that the server uses for it. Or all
            settings of the judge as one value.
        primary_metric (`str`, *optional*):
            `pass`, `weighted`, `expected`, `normalized`, or `quality` (in mode `quality`, as (grade - 1) / 4).
            Defaults to `quality` in mode `quality`, otherwise to `expected`.
        threshold (`float`, *optional*):
            An answer is yes from this P(yes) up. Defaults to the calibration's, if it has one, otherwise to 0.6.
        min_answered (`float`, *optional*, defaults to `0.5`):
            Share of the weight that must be answered for a score.
        abstention (`str`, *optional*, defaults to `"skip"`):
            What "cannot assess" counts as: `skip`, `zero`, `partial` or `fail`.
        checks (`str`, *optional*, defaults to `"only"`):
            What answers an item that has a code check. `only`: the check; no model is asked. `mean`: both, and P(yes)
            is their mean. `judge`: the model.
        allow_code (`bool` or `"unsafe"`, *optional*, defaults to `False`):
            Whether checks may run code that a model may have written. True: in an isolated interpreter, which needs
            the extra `code` (see `checks/sandbox`). "unsafe": in a plain process, which can reach files and the
            network.
        budget ([`Budget`] or mapping, *optional*):
            What this judge and everything else that shares the budget may spend; or its
            `{"dollars": ..., "prices": {model: (in, out)}}`. Each process has its own.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`):
            Where reads are kept; False for nowhere.
        judge ([`Judge`] or path, *optional*):
            A judge object, or a YAML file that describes a panel or a cascade of judges (`judges/jury.py`), instead of
            judge settings.
        **settings:
            All other fields of [`JudgeSettings`]: `backend`, `base_url`, `engine`, `mode`, `prompt`, `calibration` ...

    Raises:
        ChecklistRewardsError: One sentence, for any argument that cannot be used. No model is loaded here: that
            happens at the first read that is not in the store.
    """

    def __init__(
        self,
        model: str | Engine | JudgeSettings = "pocket",
        *,
        primary_metric: PrimaryMetric | None = None,
        threshold: float | None = None,
        min_answered: float = DEFAULT_MIN_ANSWERED,
        abstention: Abstention = "skip",
        checks: Checks = "only",
        allow_code: AllowCode = False,
        budget: Budget | Mapping[str, Any] | None = None,
        store: bool | str | Path | Store = True,
        judge: Judge | str | Path | None = None,
        **settings: Unpack[JudgeOptions],
    ):
        if isinstance(model, JudgeSettings):
            refuse_any(settings, "together with JudgeSettings; set it there")
        self.settings = model if isinstance(model, JudgeSettings) else JudgeSettings(model, **settings)
        one_of("checks", checks, CHECK_USES)
        one_of("allow_code", allow_code, ALLOW_CODE)
        self.checks: Checks = checks
        self.allow_code = allow_code
        self.aggregation = self._aggregation(
            primary_metric, threshold, min_answered, abstention, graded=not isinstance(judge, None | str | Path)
        )
        self.judge = self._judge(judge, store, budget)

    def _aggregation(
        self,
        metric: PrimaryMetric | None,
        threshold: float | None,
        min_answered: float,
        abstention: Abstention,
        graded: bool,
    ) -> Aggregation:
        mode = self.settings.mode
        if metric is None:
            metric = "quality" if mode == "quality" else "expected"
        one_of("primary_metric", metric, PRIMARY_METRICS)
        if metric == "quality" and mode != "quality" and not graded and not self.settings.is_remote:
            raise SampleError(f"primary_metric='quality' requires mode='quality', which grades; mode is {mode!r}.")
        one_of("abstention", abstention, ABSTENTIONS)
        calibration = self.settings.loaded_calibration
        if threshold is None:
            fitted = None if calibration is None else calibration.threshold
            threshold = DEFAULT_THRESHOLD if fitted is None else fitted
        for name, value in (("threshold", threshold), ("min_answered", min_answered)):
            fraction(name, value)
        return Aggregation(
            primary_metric=metric, threshold=threshold, min_answered=min_answered, abstention=abstention
        )

    def _judge(
        self,
        judge: Judge | str | Path | None,
        store: bool | str | Path | Store,
        budget: Budget | Mapping[str, Any] | None,
    ) -> Judge:
        if judge is None:
            return self.settings.build(store, budget)
        if isinstance(judge, str | Path):
            refuse_any(self.settings.changed("calibration"), f"with judge={str(judge)!r}; set it in that file")
            judge = load_jury(judge, store, None if budget is None else Budget.of(budget).limited)
        elif budget is not None:
            raise SampleError("budget=... cannot limit a judge object; give its engine a Budgeted backend.")
        if not hasattr(judge, "judge"):
            raise SampleError(f"judge={judge!r:.60} is not allowed; it is a Judge or the path of a file of judges.")
        calibration = self.settings.loaded_calibration
        return judge if calibration is None else CalibratedJudge(judge, calibration)

    @property
    def mode(self) -> Mode:
        """How questions are put; see [`JudgeSettings`]."""
        return self.settings.mode

    @property
    def checked_judge(self) -> Judge:
        """The judge with code checks in front of it; a [`CheckedJudge`] that was passed as `judge` is that already."""
        judge = self.judge
        return judge if isinstance(judge, CheckedJudge) else CheckedJudge(judge, self.checks, self.allow_code)

    @property
    def receipt(self) -> Receipt:
        """What all calls so far have cost."""
        return self.judge.receipt

    def check(self) -> None:
        """Refuse a judge that cannot work, before the first read and without loading it."""
        self.judge.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that neither a check nor the judge can answer. Raises [`ChecklistError`] that begins with
        `where`."""
        self.checked_judge.check_item(item, where)

    def score(
        self,
        checklist: Any,
        target: str,
        input: str | None = None,
        *,
        reference: str | None = None,
        history: str | None = None,
    ) -> Score:
        """Score one target; see [`Sample`] for the arguments."""
        return self.score_batch([Sample(checklist, target, input, reference, history)])[0]

    def score_batch(
        self, samples: Sequence[Sample], progress: Progress | None = None, *, retries: int = 0
    ) -> list[Score]:
        """Score samples in one plan: identical reads are computed once and completions of one prompt share its prefix.

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
        judge = self.checked_judge
        checklists = self._checked(samples, judge)
        self.check()
        reads = [
            Read(item, sample.target, sample.input, sample.reference, sample.history, number)
            for number, (sample, checklist) in enumerate(zip(samples, checklists, strict=True))
            for item in checklist.items
        ]
        verdicts = list(judge.judge(reads, progress))
        for _ in range(retries):
            failed = [place for place, verdict in enumerate(verdicts) if is_transient(verdict.unanswered)]
            if not failed:
                break
            for place, verdict in zip(failed, judge.judge([reads[place] for place in failed]), strict=True):
                verdicts[place] = verdict
        answers = iter(verdicts)
        return [
            score_checklist(checklist, [next(answers) for _ in checklist.items], self.aggregation)
            for checklist in checklists
        ]

    def _checked(self, samples: Sequence[Sample], judge: Judge) -> list[Checklist]:
        """The samples' checklists. One that several samples share is checked once."""
        checklists: list[Checklist] = []
        usable: set[int] = set()
        for number, sample in enumerate(samples, start=1):
            where = f"sample {number}"
            checklist = Checklist.parse(sample.checklist, where)
            for name in ("target", "input", "reference", "history"):
                text = getattr(sample, name)
                if not isinstance(text, str) and (text is not None or name == "target"):
                    raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
            if id(checklist) not in usable:
                for item in checklist.items:
                    judge.check_item(item, where)
                usable.add(id(checklist))
            checklists.append(checklist)
        return checklists


def _signature() -> inspect.Signature:
    """With the fields of [`JudgeSettings`] in place of `**settings`, for `help` and for those who read signatures."""
    own = inspect.signature(ChecklistScorer.__init__).parameters
    there = inspect.signature(JudgeSettings).parameters
    parameters = [own["model"]]
    parameters += [there[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in there if name != "model"]
    parameters += [own[name] for name in own if name not in ("self", "model", "settings")]
    return inspect.Signature(parameters)


ChecklistScorer.__signature__ = _signature()  # type: ignore[attr-defined]
