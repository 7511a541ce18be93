"""A criterion of Harbor's reward kit that scores a file, or the agent's trajectory, by a checklist.

In the `tests/` folder of a task, `checks.py`:

    import rewardkit as rk
    import checklist_rewards.rewards.integrations.harbor  # registers the criterion "checklist"

    rk.checklist(["Does the response name the file that was deleted?"], file="report.md", weight=2.0)

Without `file`, the agent's trajectory is judged, so that items may have a scope. Settings are read from the YAML file
in `CHECKLIST_REWARDS_CONFIG`; set it in `[verifier.env]` of `task.toml`, with a reward server as the judge.

Run inside harbor-rewardkit 0.2.3 (`make test-frameworks`): `rewardkit.run` finds the file and calls the criterion with
the workspace. A criterion that raises stops the run before `reward.json` is written, so an unscored sample raises
[`Unscored`] and Harbor gets no reward, instead of the 0.0 of its criteria about missing trajectories. Trajectories are
read from Harbor's format ATIF: steps with `source`, `message`, `reasoning_content`, `tool_calls` and `observation`.
An agent that summarizes its context may write several files, each of which names the next one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rewardkit import criterion

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, Turn, rollout

TRAJECTORY = "/logs/agent/trajectory.json"
"""Where Harbor puts the trajectory of its agent."""
_ROLES = {"agent": "assistant", "user": "user", "system": "system"}


def checklist(
    workspace: Path,
    checklist: Any,
    file: str | None = None,
    trajectory: str = TRAJECTORY,
    prompt: str | None = None,
    reward: SamplewiseReward | None = None,
) -> dict[str, Any]:
    """Score one file of the workspace, or the trajectory.

    Args:
        workspace (`Path`): Passed by the reward kit.
        checklist: The label (see `labelled.py`).
        file (`str`, *optional*): File of the workspace whose text is judged.
        trajectory (`str`, *optional*): File of the trajectory that is judged without `file`.
        prompt (`str`, *optional*): What the judge sees as the input. By default, the messages of the trajectory before
            the agent's first one; nothing for a file.
        reward ([`SamplewiseReward`], *optional*): Reward to use instead of the one configured for the process.

    Returns:
        `dict`: `score` in [0, 1], and `reasoning`: each question with its answer.

    Raises:
        SampleError: If the file cannot be read.
        Unscored: If the judge answered too few items.
    """
    reward = reward or configured()
    asked: Any = prompt
    try:
        if file is not None:
            completion: Any = (workspace / file).read_text(encoding="utf-8")
        else:
            before, completion = rollout([turn for step in steps_of(Path(trajectory)) for turn in turns_of(step)])
            asked = prompt or before or None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SampleError(f"{file or trajectory}: cannot be judged ({type(error).__name__}: {error}).") from None
    score = reward.scores([checklist], [completion], [asked])[0]
    value = reward.reward(score)
    lines = [f"{item.question} {item.answer or 'unanswered'}" for item in score.items]
    return {"score": value, "reasoning": "\n".join(lines)}


def steps_of(trajectory: Path, continues: bool = False) -> list[dict[str, Any]]:
    """The steps of a trajectory and of the files that continue it, without those that these copy."""
    document = json.loads(trajectory.read_text(encoding="utf-8"))
    steps = [step for step in document["steps"] if not (continues and step.get("is_copied_context"))]
    following = document.get("continued_trajectory_ref")
    return steps + (steps_of(trajectory.parent / following, continues=True) if following else [])


def turns_of(step: dict[str, Any]) -> list[Turn]:
    """The chat messages of a step of a trajectory: a message with its calls, and their results."""
    calls = [{"name": c["function_name"], "arguments": c.get("arguments")} for c in step.get("tool_calls") or ()]
    turn = {"role": _ROLES[step["source"]], "content": step.get("message") or "", "tool_calls": calls}
    turn["reasoning_content"] = step.get("reasoning_content")
    results = (step.get("observation") or {}).get("results") or ()
    return [turn, *({"role": "tool", "content": result.get("content") or ""} for result in results)]


criterion(description="checklist")(checklist)
