"""What rewardspy 0.1.0 says about a run: its public API, fed with the rewards of the log, step by step.

rewardspy is not a dependency. Without it, its rows are missing from the tables.
"""

from __future__ import annotations

import importlib.util

from studies.hacking.logs import RunLog

GROUP = 8


def installed() -> bool:
    """Whether `rewardspy` can be imported."""
    return importlib.util.find_spec("rewardspy") is not None


def spy_alarms(run: RunLog, sensitivity: str = "medium") -> dict[str, int]:
    """The first alarm of each detector of rewardspy that has one, as a step of the run.

    `watch_trl` sees the rewards and completions of each step, `GRPOSpy` each group of eight. Both have their default
    window; their scalar detectors are the same, so of the second only the group detector is kept.
    """
    from rewardspy.integrations import GRPOSpy, watch_trl

    batch: list[float] = []
    watched = watch_trl(lambda prompts, completions: batch, sensitivity=sensitivity, max_reward=1.0)
    groups = GRPOSpy(lambda text, reward: reward, group_size=GROUP, sensitivity=sensitivity, max_reward=1.0)
    first: dict[str, int] = {}
    for step, rows in enumerate(run.steps):
        batch[:] = [row["reward"] for row in rows]
        watched(prompts=[row["prompt"] for row in rows], completions=[row["text"] for row in rows])
        for start in range(0, len(rows), GROUP):
            with groups.step(step):
                for row in rows[start : start + GROUP]:
                    groups.reward(row["text"], row["reward"])
        found = [*watched.store.alerts, *(a for a in groups.store.alerts if a.detector == "grpo_group")]
        for alert in found:
            first.setdefault(alert.detector, step)
    return first
