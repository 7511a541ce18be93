"""An evolving reward configured by a YAML file, for `trl grpo`.

The file is that of `rewards.configured`, named by `CHECKLIST_REWARDS_CONFIG`, with the key `evolving`: a mapping of
the arguments of [`EvolvingChecklistReward`], where `proposer` has the arguments of a [`GroupProposer`]. Without
`proposer`, the judge's model proposes. `refiners` cannot be set in a file.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evolving.evolve import EvolvingChecklistReward
from checklist_rewards.evolving.proposer import GroupProposer
from checklist_rewards.rewards.configured import CONFIG_VARIABLE, read_config, reward_of
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.validation import unknown

EVOLVING = "evolving"
_OF_THE_JUDGE = ("model", "backend", "base_url", "store")


def evolving_from_environment() -> EvolvingChecklistReward:
    """The evolving reward of the file in `CHECKLIST_REWARDS_CONFIG`."""
    return configured_evolving(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def configured_evolving(path: str | None) -> EvolvingChecklistReward:
    """The evolving reward that a YAML file describes. Its models are checked but not loaded.

    Args:
        path (`str`, *optional*):
            File with the arguments of the reward, and `evolving`.

    Raises:
        ChecklistRewardsError: If the file cannot be used; names the file and the key.
    """
    config, file = read_config(path)
    reward = perhaps_evolving({EVOLVING: None, **config}, file)
    assert isinstance(reward, EvolvingChecklistReward)
    return reward


def perhaps_evolving(config: Mapping[str, Any], file: Path) -> ChecklistReward | EvolvingChecklistReward:
    """The reward that a mapping describes: an evolving one if it has the key `evolving`."""
    config = dict(config)
    if EVOLVING not in config:
        return reward_of(config, file)
    settings = config.pop(EVOLVING)
    reward = reward_of(config, file)
    judge = {name: config[name] for name in _OF_THE_JUDGE if name in config}
    try:
        return evolving_of(reward, {} if settings is None else settings, judge)
    except ChecklistRewardsError as error:
        raise type(error)(f"{CONFIG_VARIABLE}: {file}, {EVOLVING}: {error}") from error


def evolving_of(reward: ChecklistReward, settings: Any, judge: Mapping[str, Any]) -> EvolvingChecklistReward:
    """An evolving reward from plain values.

    Args:
        reward ([`ChecklistReward`]):
            The reward with the persistent items.
        settings (mapping):
            Arguments of [`EvolvingChecklistReward`].
        judge (mapping):
            Arguments of the reward's scorer: `model`, `backend`, `base_url` and `store` are the proposer's too, unless
            it has its own.
    """
    if not isinstance(settings, Mapping):
        raise SampleError(f"expected a mapping of settings, got {type(settings).__name__} {settings!r:.60}.")
    arguments = dict(settings)
    proposer = arguments.pop("proposer", None) or {}
    if not isinstance(proposer, Mapping):
        raise SampleError(f"proposer must be a mapping of settings, got {proposer!r:.60}.")
    if "model" not in proposer:
        proposer = {**{name: judge[name] for name in _OF_THE_JUDGE if name in judge}, **proposer}
    if "model" not in proposer:
        raise SampleError("proposer requires a model; set `proposer: {model: ...}`.")
    _known("", arguments, EvolvingChecklistReward, ("reward", "proposer", "refiners"))
    _known("proposer: ", proposer, GroupProposer, ())
    evolving = EvolvingChecklistReward(reward, GroupProposer(**proposer), **arguments)
    evolving.check()
    return evolving


def _known(where: str, arguments: Mapping[str, Any], of: type, fixed: tuple[str, ...]) -> None:
    allowed = [name for name in inspect.signature(of).parameters if name not in fixed]
    for key in arguments:
        if key not in allowed:
            raise SampleError(f"{where}{unknown('key', key, allowed)}")
