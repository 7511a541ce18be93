"""How the rewards of one call were made, for the log: the values after every shaping step, and the groups.

The reward already computes these values. A [`Trail`] refers to them, so nothing is computed twice, and the rewards are
the same with and without a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checklist_rewards.checklists import Checklist
from checklist_rewards.scores import Score, score_checklist

UNCALIBRATED = "before calibration"
"""Name of the score under the judge's own probabilities."""
FAILED_GROUP = "failed group"
"""Name of the stage in which a completion got None because another one of its group has no score."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Trail:
    """The stages of the rewards of one call."""

    stages: Sequence[tuple[str, Sequence[float | None]]] = ()
    """Name and values of the stages, from the score on; one value per completion."""
    groups: Sequence[str] = ()
    """One name per completion, equal for the completions of one dataset row. Empty if no group was needed."""
    metrics: Sequence[tuple[str, float]] = ()
    """Metrics of the shaping steps and of the parts, as pairs of name and value."""
    parts: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """The rewards of each part of the checklists, if the reward is split."""

    def columns(self, place: int, checklist: Checklist | None, score: Score | None) -> dict[str, Any]:
        """The columns `group`, `parts` and `shaping` of the log line of one completion.

        `shaping` is a list of [name, value], from the score to the reward, and is left out if the reward is the score
        and no answer was calibrated.
        """
        columns: dict[str, Any] = {"group": self.groups[place][:_DIGITS]} if self.groups else {}
        if self.parts:
            columns["parts"] = {name: values[place] for name, values in self.parts.items()}
        if score is None or checklist is None:
            return columns
        calibrated = any(line.uncalibrated is not None for line in score.items)
        if len(self.stages) < 2 and not calibrated:
            return columns
        before: list[list[Any]] = [[UNCALIBRATED, _uncalibrated(checklist, score)]] if calibrated else []
        made: list[list[Any]] = [[name, values[place]] for name, values in self.stages]
        return {**columns, "shaping": before + (made or [[score.primary_metric, score.primary_score]])}


def _uncalibrated(checklist: Checklist, score: Score) -> float | None:
    verdicts = [
        replace(line.verdict(), probabilities=line.uncalibrated or line.probabilities, uncalibrated=None)
        for line in score.items
    ]
    return score_checklist(checklist, verdicts, score.aggregation, quality=score.quality).primary_score
