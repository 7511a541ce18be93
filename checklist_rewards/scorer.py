"""The scorer: samples in, scores out. The one path that rewards, reranking, evaluation and the CLI all use.

    >>> scorer = ChecklistScorer(model="pocket")
    >>> score = scorer.score(["Does the response end with a question mark?"], target="Who is there?")
    >>> score.primary_score  # doctest: +SKIP
    0.99

Everything that can be refused (a missing model, a bad weight, a target that is no string) is refused before the judge
is asked anything. What the judge then fails to answer is unanswered in the score, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine, is_transient
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Judge, Progress, Read, Receipt
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.build import MODES, Mode, build_judge, is_remote, leave, loaded_calibration, one_of
from checklist_rewards.judges.calibrated import CalibratedJudge
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.checked import ALLOW_CODE, CHECK_USES, AllowCode, CheckedJudge, Checks
from checklist_rewards.judges.examples import FewShot
from checklist_rewards.judges.jury import load_jury
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR
from checklist_rewards.prompts import PromptTemplate
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
        model (`str` or [`Engine`], *optional*, defaults to `"pocket"`): the judge: "pocket", a folder, a Hub id, or
            with `base_url` the name the server knows it by.
        backend (`str`, [`Backend`] or [`RewardServer`], *optional*, defaults to `"auto"`): auto, transformers, vllm,
            openai, remote or encoder; auto takes a server where `base_url` is given, vLLM where it is installed and
            the model is not the pocket one, else transformers. remote is a `checklist-rewards serve` at `base_url`:
            its judge answers, in its way; a `model` that is named must be its model. encoder is a cross-encoder, which
            answers yes/no items by target and question alone; a folder that holds one is known for it.
        base_url (`str`, *optional*): an OpenAI-compatible server, such as "http://localhost:8000/v1", or the reward
            server.
        engine (mapping, *optional*): what the engine is loaded with, by the engine's own names: of vLLM
            `{"tensor_parallel_size": 2, "quantization": "fp8", "gpu_memory_utilization": 0.3}`, of transformers
            `{"dtype": "bfloat16", "device_map": "auto"}`, of a server `{"concurrency": 256}`; `revision` and
            `trust_remote_code` as in `from_pretrained`, and `adapter`, the folder of a LoRA adapter. Settings that
            change answers are part of what stored answers are found by.
        mode (`str`, *optional*, defaults to `"item"`): item: one question at a time. batch: all questions of a target
            in one call. quality: the same, each answer with a justification, then a grade from 1 to 5.
        use_logprobs (`bool`, *optional*): read an item's answer as the probabilities of one token rather than as
            words. Defaults to True in mode item, where nothing that needs words is asked for (`capture_reasoning`,
            `samples`, `temperature`).
        capture_reasoning (`bool`, *optional*, defaults to `False`): have the judge reason before it answers, and keep
            what it says. Mode quality always does.
        samples (`int`, *optional*, defaults to `1`): replies per item, whose majority is the answer (mode item).
        temperature (`float`, *optional*): of written replies; defaults to 0, of several samples to 0.7.
        max_tokens (`int`, *optional*): of one written reply; defaults to what the mode needs without thinking.
        primary_metric (`str`, *optional*): pass, weighted, expected, normalized, or quality (in mode quality, as
            (grade - 1) / 4). Defaults to quality in mode quality, else to expected.
        threshold (`float`, *optional*): yes from this P(yes) up; the calibration's, if it has one, else 0.6.
        min_answered (`float`, *optional*, defaults to `0.5`): share of the weight that must be answered for a score.
        abstention (`str`, *optional*, defaults to `"skip"`): what "cannot assess" counts for: skip, zero, partial,
            fail.
        mass_floor (`float`, *optional*, defaults to `0.5`): least P(yes) + P(no) for a read to count.
        prompt (`str` or `Path`, *optional*): a Markdown file, or the name of a packaged prompt, with `{question}` in
            mode item and `{checklist}` in the others. Defaults to the mode's own.
        examples (path or [`FewShot`], *optional*): labelled answers, a few of which are shown with the questions that
            have any (mode item; `judges/examples.py` has the form of the file).
        shots (`int`, *optional*, defaults to `4`): how many are shown with a question at most.
        example_reasons (`bool`, *optional*, defaults to `False`): show the reasons of the examples too.
        checks (`str`, *optional*, defaults to `"only"`): who answers an item that has a code check. only: the check,
            and no model is asked. mean: both, and P(yes) is their mean. judge: the model.
        allow_code (`bool` or `"unsafe"`, *optional*, defaults to `False`): whether checks may run code that a model
            may have written. True: in an isolated interpreter, which needs the extra `code` (see `checks/sandbox`).
            "unsafe": in a plain process, which can reach files and the network.
        calibration (path or [`Calibration`], *optional*): maps the judge's probabilities to calibrated ones; fitted on
            reads of this judge (`checklist-rewards calibrate`).
        budget ([`Budget`], *optional*): what may be spent, by this judge and whatever else shares the budget; or its
            `{"dollars": ..., "prices": {model: (in, out)}}`. Each process has its own.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where reads are kept; False for nowhere.
        judge ([`Judge`] or path, *optional*): a judge object instead of everything above that describes one, or a YAML
            file that describes a panel or a cascade of judges (`judges/jury.py`).

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used. No model is loaded here: that
            happens at the first read that is not in the store.
    """

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        engine: Mapping[str, Any] | None = None,
        mode: Mode = "item",
        use_logprobs: bool | None = None,
        capture_reasoning: bool = False,
        samples: int = 1,
        temperature: float | None = None,
        max_tokens: int | None = None,
        primary_metric: PrimaryMetric | None = None,
        threshold: float | None = None,
        min_answered: float = DEFAULT_MIN_ANSWERED,
        abstention: Abstention = "skip",
        mass_floor: float = DEFAULT_MASS_FLOOR,
        prompt: str | Path | PromptTemplate | None = None,
        examples: str | Path | FewShot | None = None,
        shots: int | None = None,
        example_reasons: bool = False,
        checks: Checks = "only",
        allow_code: AllowCode = False,
        calibration: str | Path | Calibration | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        store: bool | str | Path | Store = True,
        judge: Judge | str | Path | None = None,
    ):
        told: dict[str, Any] = {
            "mode": mode,
            "use_logprobs": use_logprobs,
            "capture_reasoning": capture_reasoning,
            "samples": samples,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "mass_floor": mass_floor,
            "prompt": prompt,
            "examples": examples,
            "shots": shots,
            "example_reasons": example_reasons,
        }
        described = judge is None or isinstance(judge, str | Path)
        one_of("mode", mode, MODES)
        if primary_metric is None:
            primary_metric = "quality" if mode == "quality" else "expected"
        one_of("primary_metric", primary_metric, PRIMARY_METRICS)
        elsewhere = not described or is_remote(backend)
        if primary_metric == "quality" and mode != "quality" and not elsewhere:
            raise SampleError(f"primary_metric='quality' needs mode='quality', which grades; mode is {mode!r}.")
        one_of("abstention", abstention, ABSTENTIONS)
        one_of("checks", checks, CHECK_USES)
        one_of("allow_code", allow_code, ALLOW_CODE)
        calibration = loaded_calibration(calibration)
        if threshold is None:
            fitted = None if calibration is None else calibration.threshold
            threshold = DEFAULT_THRESHOLD if fitted is None else fitted
        for name, value in (("threshold", threshold), ("min_answered", min_answered), ("mass_floor", mass_floor)):
            _share(name, value)
        self.mode = mode
        self.aggregation = Aggregation(
            primary_metric=primary_metric, threshold=threshold, min_answered=min_answered, abstention=abstention
        )
        self.checks: Checks = checks
        self.allow_code = allow_code
        self.judge: Judge
        if judge is None:
            self.judge = build_judge(
                model,
                backend=backend,
                base_url=base_url,
                engine=engine,
                store=store,
                calibration=calibration,
                budget=budget,
                **told,
            )
            return
        if isinstance(judge, str | Path):
            leave(
                told | {"model": model, "backend": backend, "base_url": base_url, "engine": engine},
                f"the file {judge}",
            )
            judge = load_jury(judge, store, None if budget is None else Budget.of(budget).limited)
        elif budget is not None:
            raise SampleError("budget=... cannot hold a judge object; give its engine a Budgeted backend.")
        if not hasattr(judge, "judge"):
            raise SampleError(f"judge={judge!r:.60} is not allowed; it is a Judge or the path of a file of judges.")
        self.judge = judge if calibration is None else CalibratedJudge(judge, calibration)

    @property
    def answerer(self) -> Judge:
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
        self.answerer.check_item(item, where)

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
        answerer = self.answerer
        checklists = self._checked(samples, answerer)
        self.check()
        reads = [
            Read(item, sample.target, sample.input, sample.reference, sample.history, number)
            for number, (sample, checklist) in enumerate(zip(samples, checklists, strict=True))
            for item in checklist.items
        ]
        verdicts = answerer.judge(reads, progress)
        for _ in range(retries):
            failed = [place for place, verdict in enumerate(verdicts) if is_transient(verdict.unanswered)]
            if not failed:
                break
            for place, verdict in zip(failed, answerer.judge([reads[place] for place in failed]), strict=True):
                verdicts[place] = verdict
        answers = iter(verdicts)
        return [
            score_checklist(checklist, [next(answers) for _ in checklist.items], self.aggregation)
            for checklist in checklists
        ]

    def _checked(self, samples: Sequence[Sample], answerer: Judge) -> list[Checklist]:
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
                    answerer.check_item(item, where)
                usable.add(id(checklist))
            checklists.append(checklist)
        return checklists


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from 0 to 1.")
