"""Who is to blame for an error that the data of a row may cause, such as a TypeError: the row or the judge.

The queue passes such an error to the client of the row. If the judge is broken, every row fails with it, so after such
an error the judge is asked a question that it can answer. If it fails in the same way, the error is the judge's.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Sequence

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, ChecklistRewardsError
from checklist_rewards.rewards.integrations.queue import SAMPLE_ERRORS
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score

logger = logging.getLogger(__name__)

_KNOWN = Checklist.parse(["Is the response in English?"])
_DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_TRUSTED_SECONDS = 1.0
"""How long the judge counts as working after it has scored a row. The rows of one batch fail within this time."""


class BlamingScorer:
    """A scorer that raises [`BackendError`] if the judge is to blame for an error.

    Args:
        scorer ([`ChecklistScorer`]):
            Scores the rows.
    """

    def __init__(self, scorer: ChecklistScorer):
        self.scorer = scorer
        self._worked = float("-inf")
        self._is_broken = False

    def score_batch(self, samples: Sequence[Sample]) -> list[Score]:
        """As [`ChecklistScorer.score_batch`]."""
        try:
            scores = self.scorer.score_batch(samples)
        except (*SAMPLE_ERRORS, ChecklistRewardsError):
            raise
        except _DATA_ERRORS as error:
            if self._is_judges(error):
                reason = f"it fails for every row ({type(error).__name__}: {error})."
                if not self._is_broken:
                    logger.exception("the judge of the reward server is broken: %s", reason)
                self._is_broken = True
                raise BackendError(reason) from error
            raise
        self._has_worked()
        return scores

    def _is_judges(self, error: Exception) -> bool:
        if time.monotonic() < self._worked + _TRUSTED_SECONDS:
            return False
        try:
            self.scorer.score_batch([Sample(_KNOWN, "The sky is blue.")])
        except Exception as other:  # noqa: BLE001 - errors of any kind are compared
            return _place(other) == _place(error)
        self._has_worked()
        return False

    def _has_worked(self) -> None:
        self._worked = time.monotonic()
        self._is_broken = False


def _place(error: Exception) -> tuple[object, ...]:
    """The type of an error and the line of code that raised it. Its message may name data of the row."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error), *((frames[-1].filename, frames[-1].lineno) if frames else ())
