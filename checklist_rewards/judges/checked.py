"""Code checks in front of a judge: items with a `check` are answered by code, all others by the judge.

What becomes of an item with a check is `checks`:

- `only`: the check answers, the judge is not asked.
- `mean`: both answer, and P(yes) is the mean of the judge's and of the check's 0 or 1, as RLCF scores
  (arXiv:2507.18624). Both stay in the verdict's `votes`.
- `judge`: the judge answers the question, as if there were no check.

A check that breaks leaves its item unanswered ("check_error: ..."). In `mean` an item is answered only if both have
answered: were the other's answer to stand alone, a failure would move the item towards it, up or down, and a failure
moves no score.

Checks that run code are refused unless `allow_code`, except where `judge` answers. They run isolated
(`checks/sandbox`), or in a plain process if `allow_code="unsafe"`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal, get_args

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.checks import Check, parse_check, sandbox
from checklist_rewards.errors import CheckError, ChecklistError
from checklist_rewards.judges.base import Judge, Read, Receipt
from checklist_rewards.scores import Verdict

logger = logging.getLogger(__name__)

Checks = Literal["only", "mean", "judge"]
CHECK_USES: tuple[str, ...] = get_args(Checks)
AllowCode = bool | Literal["unsafe"]
ALLOW_CODE = (False, True, "unsafe")
CHECK_ERROR = "check_error"
CODE = "code"
"""The judge of a verdict that a check gave."""


class CheckedJudge:
    """Answers checks itself and hands everything else on.

    Args:
        inner ([`Judge`]): who answers the questions.
        checks (`str`, *optional*, defaults to `"only"`): only, mean or judge.
        allow_code (`bool` or `"unsafe"`, *optional*, defaults to `False`): whether checks may run code that a model
            wrote: isolated, or in a plain process.
    """

    def __init__(self, inner: Judge, checks: Checks = "only", allow_code: AllowCode = False):
        self.inner, self.checks, self.allow_code = inner, checks, allow_code
        self.name = inner.name

    @property
    def receipt(self) -> Receipt:
        """What the judge's calls have cost; a check costs nothing."""
        return self.inner.receipt

    def check(self) -> None:
        """See [`Judge`]."""
        self.inner.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that the judge cannot answer, or a check that cannot be used. Raises [`ChecklistError`]."""
        by_code = self._by_code(item)
        if by_code:
            usable_check(item, where, self.allow_code)
        if not by_code or self.checks == "mean":
            self.inner.check_item(without_check(item), where)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Equal checks of one text are made once."""
        if all(read.item.check is None for read in reads):  # the usual case costs nothing here
            return self.inner.judge(reads, progress)
        by_code = [index for index, read in enumerate(reads) if self._by_code(read.item)]
        only = set(by_code) if self.checks == "only" else set()
        asked = [index for index in range(len(reads)) if index not in only]
        said: dict[int, Verdict] = {}
        if asked:
            put = [replace(reads[index], item=without_check(reads[index].item)) for index in asked]
            said = dict(zip(asked, self.inner.judge(put, progress), strict=True))
        by_key: dict[tuple[str | None, ...], list[int]] = {}
        for index in by_code:
            read = reads[index]
            by_key.setdefault((read.item.check, read.target, read.input), []).append(index)
        for indices, code in zip(by_key.values(), self._run([reads[i] for i, *_ in by_key.values()]), strict=True):
            for index in indices:
                said[index] = _mean(code, said[index]) if self.checks == "mean" else code
            if progress is not None and self.checks == "only":
                progress(len(indices))
        return [said[index] for index in range(len(reads))]

    def _run(self, reads: Sequence[Read]) -> Iterator[Verdict]:
        def run(read: Read) -> Verdict:
            return run_check(read.item, read.target, read.input, self.allow_code)

        if not self.allow_code:
            yield from map(run, reads)
        else:  # guests compute in threads or processes of their own
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                yield from pool.map(run, reads)

    def _by_code(self, item: ChecklistItem) -> bool:
        return item.check is not None and self.checks != "judge"


def usable_check(item: ChecklistItem, where: str, allow_code: AllowCode) -> Check:
    """The item's check. Raises [`ChecklistError`], one sentence that begins with `where`, if it cannot be used."""
    where = f"{where}, item {item.id} ({item.question!r})"
    if item.options is not None:
        raise ChecklistError(f"{where}: it has a check, which answers yes or no, and options; leave one of them out.")
    check = parse_check(item.check or "", where)
    if check.runs_code and not allow_code:
        raise ChecklistError(
            f"{where}: its check runs code that a model may have written, and that is off; set allow_code=True "
            "(--allow-code) to run it in isolation."
        )
    if check.runs_code and allow_code is True and (reason := sandbox.unavailable()):
        raise ChecklistError(
            f"{where}: its check runs code, and there is no isolated interpreter for it: {reason}; run pip install "
            "'checklist-rewards[code]', or set allow_code='unsafe' (--allow-unsafe-code) to run it in a plain process."
        )
    return check


def run_check(item: ChecklistItem, target: str, input: str | None, allow_code: AllowCode) -> Verdict:
    """What the item's check says about a target; unanswered("check_error: ...") if it breaks."""
    try:
        check = usable_check(item, "not checked", allow_code)
        with sandbox.unsafe(allow_code == "unsafe"):
            holds = check.holds(target, input)
    except (CheckError, ChecklistError) as error:
        return Verdict(unanswered=f"{CHECK_ERROR}: {error}", judge=CODE, method="check")
    except Exception as error:
        # A check that breaks says nothing about the text, and must not cost the other reads.
        logger.warning("the check %s broke: %s: %s", item.check, type(error).__name__, error)
        reason = f"{CHECK_ERROR}: {type(error).__name__}: {error}"
        return Verdict(unanswered=reason[:200], judge=CODE, method="check")
    return Verdict(answer=YES if holds else NO, judge=CODE, method="check")


def without_check(item: ChecklistItem) -> ChecklistItem:
    """The item as a judge of questions takes it: the same id, no check."""
    return item if item.check is None else item.model_copy(update={"check": None})


def _mean(code: Verdict, said: Verdict) -> Verdict:
    both = f"{CODE}+{said.judge}"
    for part in (code, said):
        if part.unanswered is not None:
            return Verdict(unanswered=part.unanswered, judge=both, method="check", votes=(code, said))
    judged = said.probabilities[YES] if said.probabilities is not None else float(said.answer == YES)
    yes = (judged + (code.answer == YES)) / 2
    return Verdict(
        {YES: yes, NO: 1 - yes},
        mass=said.mass,
        reasoning=said.reasoning,
        judge=both,
        method="check",
        quality=said.quality,
        votes=(code, said),
    )
