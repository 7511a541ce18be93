"""Checklists as a verifier of open-instruct, under the name "checklist".

Import this module before the verifiers are built (a launcher of two lines), name the YAML of settings in
`CHECKLIST_REWARDS_CONFIG`, and give rows the dataset name "checklist" and the label (see `samplewise`) as ground
truth.

Read in allenai/open-instruct: `open_instruct/ground_truth_utils.py` (0039262): `build_all_verifiers` makes one of
every direct subclass of `VerifierFunction` with its config alone and files it under its name;
`VerifierFunction.async_call` and `__call__` take (tokenized_prediction, prediction, label, query) and give a
`VerificationResult`, a score from 0 to 1.

What the judge leaves unscored raises [`Unscored`]: a `VerificationResult` cannot say "no score".
"""

from __future__ import annotations

from typing import Any

from open_instruct.ground_truth_utils import VerificationResult, VerifierFunction

from checklist_rewards.rewards.integrations.labelled import configured
from checklist_rewards.scores import Score


class ChecklistVerifier(VerifierFunction):
    """A verifier whose label is a checklist. Calls that come together share batches."""

    def __init__(self, verifier_config: Any = None):
        super().__init__("checklist", weight=1.0, verifier_config=verifier_config)
        self.reward = configured()

    def __call__(
        self, tokenized_prediction: list[int], prediction: str, label: Any, query: str | None = None, **kwargs: Any
    ) -> Any:
        """Verify one prediction; blocks."""
        return self._result(self.reward.scores([label], [prediction], [query])[0])

    async def async_call(
        self, tokenized_prediction: list[int], prediction: str, label: Any, query: str | None = None, **kwargs: Any
    ) -> Any:
        """Verify one prediction without blocking the event loop."""
        return self._result((await self.reward.scores_async([label], [prediction], [query]))[0])

    def _result(self, score: Score) -> Any:
        return VerificationResult(score=self.reward.reward(score))
