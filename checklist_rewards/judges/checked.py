"""Code checks combined with a judge: items with a `check` are answered by code, all others by the judge.

The scorer runs the checks before it asks the judge. The argument `checks` selects how items with a check are answered:

- `only`: by the check.
- `mean`: by both. P(yes) is the mean of the judge's P(yes) and the check's 0 or 1, as in RLCF (arXiv:2507.18624).
  Both verdicts are kept in `votes`.
- `judge`: by the judge, ignoring the check.

On a scale, the judge grades these items too, and its P(yes) is the expected value of the grade.

If a check fails, its item is unanswered ("check_error: ..."). With `mean`, an item is answered only if both the check
and the judge answered. Otherwise a failure would shift the item to the other's answer, and a failure must not change a
score.

Checks that run code require `allow_code`, except with `judge`. They run in a sandbox (`checks/sandbox`), or in an
ordinary process with `allow_code="unsafe"`.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from checklist_rewards.backends import Progress
from checklist_rewards.backends.base import MISSED, is_over, time_left
from checklist_rewards.checklists import NO, YES, ChecklistItem, Option
from checklist_rewards.errors import CheckError, ChecklistError
from checklist_rewards.images import shown
from checklist_rewards.judges.base import Answers, Ask
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

if TYPE_CHECKING:
    from checklist_rewards.checks import Check

logger = logging.getLogger(__name__)

Checks = Literal["only", "mean", "judge"]
AllowCode = bool | Literal["unsafe"]
CODE = "code"
"""Judge name in the verdict of a check."""
_MISSED = Verdict(unanswered=MISSED, judge=CODE, method="check")


def by_check(item: ChecklistItem, checks: Checks) -> bool:
    """Whether an item is answered by its code check, alone or with the judge."""
    return item.check is not None and checks != "judge"


def by_judge(item: ChecklistItem, checks: Checks) -> bool:
    """Whether the judge answers an item, alone or with its check."""
    return not by_check(item, checks) or checks == "mean"


def check_and_ask(
    asks: Sequence[Ask],
    checks: Checks,
    allow_code: AllowCode,
    ask: Answers,
    progress: Progress | None = None,
    scale: Sequence[Option] | None = None,
) -> list[Verdict]:
    """The verdict of every read, in order: items with a code check from their check, all others from the judge.

    Equal checks of the same text run once. Checks that run code run while the judge answers, which gets items without
    their checks and reports its own progress. `progress` is called with the number of reads that a check alone has
    answered.
    """
    checked = [index for index, read in enumerate(asks) if by_check(read.item, checks)]
    judged = [index for index, read in enumerate(asks) if by_judge(read.item, checks)]
    verdicts: dict[int, Verdict] = {}
    by_key: dict[tuple[str | None, ...], list[int]] = {}
    for index in checked:
        read = asks[index]
        by_key.setdefault((read.item.check, read.target, read.input), []).append(index)
    with _running([asks[index] for index, *_ in by_key.values()], allow_code) as codes:
        if judged:
            asked = [replace(asks[index], item=without_check(asks[index].item, scale)) for index in judged]
            found = zip(judged, asked, ask(asked), strict=True)
            verdicts = {index: _answering(asks[index].item, graded.item, answer) for index, graded, answer in found}
        for indices, code in zip(by_key.values(), codes, strict=True):
            for index in indices:
                verdicts[index] = _mean(code, verdicts[index]) if index in verdicts else code
            if progress is not None and checks == "only":
                progress(len(indices))
    return [verdicts[index] for index in range(len(asks))]


@contextmanager
def _running(asks: Sequence[Ask], allow_code: AllowCode) -> Iterator[Iterator[Verdict]]:
    """Context manager in which checks run, code while the judge answers. Gives their verdicts, in order: those that
    the deadline of the call leaves no time for are unanswered."""

    def run(read: Ask) -> Verdict:
        if read.checked is not None:
            return read.checked
        return run_check(read.item, read.target, read.input, allow_code)

    if not allow_code or all(read.checked is not None for read in asks):
        yield iter([_MISSED if read.checked is None and is_over() else run(read) for read in asks])
        return
    # Sandboxed code runs in its own thread or process, so these threads only wait.
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield map(_in_time, [pool.submit(run, read) for read in asks])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what still runs ends at its own limits


def _in_time(check: Future[Verdict]) -> Verdict:
    try:
        return check.result(time_left())
    except TimeoutError:
        return _MISSED


def usable_check(item: ChecklistItem, where: str, allow_code: AllowCode) -> Check:
    """The item's check. Raises [`ChecklistError`], starting with `where`, if it cannot be used."""
    from checklist_rewards.checks import parse_check, sandbox  # a quarter of the time to import the package

    where = f"{where}, item {item.id} ({item.question!r})"
    if item.options is not None:
        raise ChecklistError(f"{where}: a check answers yes or no, but the item also has options; remove one of them.")
    check = parse_check(item.check or "", where)
    if check.runs_code and not allow_code:
        raise ChecklistError(
            f"{where}: its check runs code, which a model may have written; set allow_code=True (--allow-code) to run "
            "it in a sandbox."
        )
    if check.runs_code and allow_code is True and (reason := sandbox.unavailable()):
        raise ChecklistError(
            f"{where}: its check runs code, but the sandbox is not available: {reason}, or set "
            "allow_code='unsafe' (--allow-unsafe-code) to run it in an ordinary process."
        )
    return check


def run_check(item: ChecklistItem, target: str, input: str | None, allow_code: AllowCode) -> Verdict:
    """The verdict of the item's check on a target; unanswered("check_error: ...") if the check fails. Code reads
    "[image]" in place of an image."""
    from checklist_rewards.checks import sandbox

    try:
        check = usable_check(item, "not checked", allow_code)
        with sandbox.unsafe(allow_code == "unsafe"):
            holds = check.holds(shown(target), None if input is None else shown(input))
        if holds not in (True, False):
            raise TypeError(f"holds() returned {holds!r:.80} instead of True or False")
    except (CheckError, ChecklistError) as error:
        return failed_check(str(error))
    except Exception as error:
        # A failed check leaves its item unanswered; the other reads must not be lost.
        logger.warning("the check %s failed: %s: %s", item.check, type(error).__name__, error)
        return failed_check(f"{type(error).__name__}: {error}"[:200])
    return Verdict(answer=YES if holds else NO, judge=CODE, method="check")


def failed_check(why: str) -> Verdict:
    """The verdict of a check that did not answer."""
    return Verdict(unanswered=Unanswered(Reason.CHECK_ERROR, why), judge=CODE, method="check")


def without_check(item: ChecklistItem, scale: Sequence[Option] | None = None) -> ChecklistItem:
    """The item with the same id and no check, as the judge is asked it: on the scale, if there is one."""
    if item.check is None:
        return item
    options = None if scale is None or item.scope is not None else tuple(scale)
    return item.model_copy(update={"check": None, "options": options})


def _answering(item: ChecklistItem, graded: ChecklistItem, verdict: Verdict) -> Verdict:
    """The verdict on an item as an answer to it. A grade is P(yes)."""
    if item.values == graded.values:
        return verdict
    values = {label: value or 0.0 for label, value in graded.values.items()}
    likely = verdict.probabilities or ({} if verdict.answer is None else {verdict.answer: 1.0})
    yes = min(1.0, math.fsum(p * values[label] for label, p in likely.items()))
    return replace(
        verdict,
        probabilities={YES: yes, NO: 1 - yes} if likely else None,
        answer=None,
        method="reply" if verdict.method == "votes" else verdict.method,
        votes=tuple(_answering(item, graded, vote) for vote in verdict.votes),
        uncalibrated=None,
    )


def _mean(code: Verdict, judged: Verdict) -> Verdict:
    both = f"{CODE}+{judged.judge}"
    for part in (code, judged):
        if part.unanswered is not None:
            return Verdict(unanswered=part.unanswered, judge=both, method="check", votes=(code, judged))
    p_yes = judged.probabilities[YES] if judged.probabilities is not None else float(judged.answer == YES)
    yes = (p_yes + (code.answer == YES)) / 2
    return Verdict(
        {YES: yes, NO: 1 - yes},
        mass=judged.mass,
        reasoning=judged.reasoning,
        judge=both,
        method="check",
        quality=judged.quality,
        votes=(code, judged),
    )
