"""The judge that a recipe's command line names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean

from checklist_rewards.backends import Engine, Progress, is_encoder
from checklist_rewards.checklists import YES
from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import EncoderJudge, Judge, LogprobJudge, Read
from checklist_rewards.scores.reasons import Reason


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that [`judge_of`] reads."""
    parser.add_argument("model", help="a packaged model, an encoder judge, a folder or a Hub id")
    parser.add_argument("--adapter", help="folder of a LoRA adapter")


def judge_of(model: str, adapter: str | None = None, store: Store | None = None) -> Judge:
    """An encoder judge for the folder of one, else the one-token judge. All reads are answered, however low the label
    mass."""
    if is_encoder(model):
        return EncoderJudge(model, store=store)
    engine = Engine(model, "transformers", settings={} if adapter is None else {"adapter": adapter})
    return LogprobJudge(engine, mass_floor=0, store=store)


def probabilities_of_yes(judge: Judge, reads: Sequence[Read], progress: Progress | None = None) -> list[float]:
    """P(yes) of every read. Raises [`ModelError`] if one is unanswered: figures over some of the reads would not be
    comparable."""
    verdicts = judge.judge(reads, progress)
    lost = [verdict.unanswered for verdict in verdicts if verdict.unanswered is not None]
    if lost:
        raise ModelError(f"{len(lost)} of {len(reads)} reads are unanswered, the first because of {lost[0]}.")
    return [(verdict.probabilities or {})[YES] for verdict in verdicts]


def checklist_scores(
    judge: Judge, checklists: Sequence[Sequence[Read]], progress: Progress | None = None
) -> list[float | None]:
    """Mean P(yes) over the reads of every checklist; None if one of them does not fit the model's context. Raises
    [`ModelError`] if a read is unanswered for another reason."""
    verdicts = judge.judge([read for some in checklists for read in some], progress)
    lost = [v.unanswered for v in verdicts if v.unanswered is not None and v.unanswered.reason != Reason.TOO_LONG]
    if lost:
        raise ModelError(f"{len(lost)} of {len(verdicts)} reads are unanswered, the first because of {lost[0]}.")
    of_reads = iter(verdicts)
    scores: list[float | None] = []
    for some in checklists:
        answers = [next(of_reads) for _ in some]
        complete = all(verdict.unanswered is None for verdict in answers)
        scores.append(fmean((verdict.probabilities or {})[YES] for verdict in answers) if complete else None)
    return scores
