"""Reward functions for AReaL's rollout workflows.

Rows need a column `checklist` with the label (see `labelled.py`). Settings are read from the YAML file in the
environment variable `CHECKLIST_REWARDS_CONFIG`, which must be set on every rollout worker. If a row has a column
`messages`, it is the input that the judge sees; otherwise this is the decoded prompt.

There are two functions:

- `checklist_reward`: a plain function that AReaL can pickle. `AsyncRewardWrapper` calls it in a few processes, one
  sample at a time, so nothing is batched and each process has its own scorer. Use a served judge (`backend: remote`).
- `checklist_reward_async`: a coroutine for the workflow itself. All concurrent episodes share batches and one judge.

AReaL's wrapper gives a call 15 seconds, including the wait for a free process, and returns the reward 0 when it has
timed out four times. So either use the coroutine as `async_reward_fn` of the workflow (`docs/integrations.md`), or
raise the limit: `AsyncRewardWrapper(checklist_reward, timeout_seconds=600)`.

Run inside AReaL 1.0.4 (`make test-frameworks`): `AsyncRewardWrapper` (`areal/api/reward_api.py`) and
`RLVRWorkflow.arun_episode` (`areal/workflow/rlvr.py`) call `reward_fn(prompt, completion, prompt_ids, completion_ids,
**row)`, with both texts decoded with special tokens, and require a number.

Unscored samples raise [`Unscored`], because AReaL has no reward None. The wrapper repeats a call that raises three
times before the episode fails.
"""

from __future__ import annotations

from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations.labelled import answer_after


def checklist_reward(
    prompt: str | None, completions: str, prompt_ids: Any = None, completion_ids: Any = None, **row: Any
) -> float:
    """Reward one completion, blocking until it is scored.

    Args:
        prompt (`str`, *optional*): The decoded prompt; used if the row has no `messages`.
        completions (`str`): The decoded completion. Special tokens at its end are removed.
        prompt_ids, completion_ids: Not used.
        **row: The columns of the row: `checklist`, and optionally `messages` and `images`.

    Returns:
        `float`: The reward in [0, 1].

    Raises:
        SampleError, ChecklistError: If the row has no valid checklist.
        Unscored: If the judge answered too few items.
    """
    reward = configured()
    return reward.reward(reward.scores(**_sample(prompt, completions, row))[0])


async def checklist_reward_async(
    prompt: str | None, completions: str, prompt_ids: Any = None, completion_ids: Any = None, **row: Any
) -> float:
    """[`checklist_reward`] as a coroutine. Concurrent calls are batched."""
    reward = configured()
    return reward.reward((await reward.scores_async(**_sample(prompt, completions, row)))[0])


def _sample(prompt: str | None, completion: str, row: dict[str, Any]) -> dict[str, Any]:
    if row.get("checklist") is None:
        raise SampleError(f"the row requires a column 'checklist', got the columns {', '.join(row) or 'none'}.")
    return {
        "labels": [row["checklist"]],
        "completions": [answer_after("", completion, "the row")],
        "prompts": [row.get("messages") or prompt],
        "special": True,
        "rendered": [prompt],
        "images": [row.get("images")],
    }
