"""An open-instruct verifier with the name "checklist".

Import this module in a launcher script before the verifiers are built, set `CHECKLIST_REWARDS_CONFIG` to the YAML file
of settings, and use rows with the dataset name "checklist" and the label (see `labelled.py`) as ground truth.

Not run inside open-instruct: the tests use a minimal host. Based on allenai/open-instruct:
`open_instruct/ground_truth_utils.py` (0039262): `build_all_verifiers` creates every direct subclass of
`VerifierFunction` with its config only and registers it by name. `VerifierFunction.async_call` and `__call__` take
(tokenized_prediction, prediction, label, query) and return a `VerificationResult` with a score from 0 to 1.

Unscored samples raise [`Unscored`], because a `VerificationResult` requires a score.
"""

from __future__ import annotations

from typing import Any

from open_instruct.ground_truth_utils import VerificationResult, VerifierFunction

from checklist_rewards.rewards.configured import configured
from checklist_rewards.scores import Score


class ChecklistVerifier(VerifierFunction):
    """A verifier whose label is a checklist. Concurrent calls are batched."""

    def __init__(self, verifier_config: Any = None):
        super().__init__("checklist", weight=1.0, verifier_config=verifier_config)
        self.reward = configured()

    def __call__(
        self, tokenized_prediction: list[int], prediction: str, label: Any, query: str | None = None, **kwargs: Any
    ) -> Any:
        """Verify one prediction, blocking until it is scored."""
        return self._result(self.reward.scores([label], [prediction], [query])[0])

    async def async_call(
        self, tokenized_prediction: list[int], prediction: str, label: Any, query: str | None = None, **kwargs: Any
    ) -> Any:
        """Verify one prediction without blocking the event loop."""
        return self._result((await self.reward.scores_async([label], [prediction], [query]))[0])

    def _result(self, score: Score) -> Any:
        return VerificationResult(score=self.reward.reward(score))
