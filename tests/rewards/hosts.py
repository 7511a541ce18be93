"""The frameworks that the adapters are for, as minimal hosts: their own base classes and calls, shortened.

Where each was read is said in its adapter.
"""

import abc
import asyncio
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, TypedDict


def module(name: str, **content: Any) -> dict[str, ModuleType]:
    """A package of that name with these things in it, and its parents."""
    parts = name.split(".")
    packages = {".".join(parts[:n]): ModuleType(".".join(parts[:n])) for n in range(1, len(parts) + 1)}
    packages[name].__dict__.update(content)
    return packages


class VerifierConfig:
    @classmethod
    def from_args(cls, args):
        return cls()


@dataclass
class VerificationResult:
    score: float
    cost: float = 0.0
    reasoning: str | None = None


class VerifierFunction(abc.ABC):
    def __init__(self, name, weight=1.0, verifier_config=None):
        self.name, self.weight, self.verifier_config = name, weight, verifier_config

    @classmethod
    def get_config_class(cls):
        return VerifierConfig

    @abc.abstractmethod
    def __call__(self, tokenized_prediction, prediction, label, query=None): ...

    async def async_call(self, tokenized_prediction, prediction, label, query=None):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self(tokenized_prediction, prediction, label, query))


class BaseTextEnvStepOutput(TypedDict):
    observations: list[dict[str, str]]
    reward: float
    done: bool
    metadata: dict[str, Any]
    postprocessed_action: str | None


class BaseTextEnv:
    def __init__(self):
        self.turns, self.max_turns = 0, 1


class EnvironmentReturn(NamedTuple):
    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[Any]
    rewards: Any
    terminateds: Any
    answers: list[str | None] | None = None


class EnvironmentInterface(abc.ABC):
    @abc.abstractmethod
    def step(self, message_log_batch, metadata): ...

    @abc.abstractmethod
    def global_post_process_and_metrics(self, batch): ...


class Judge:
    def __init__(self, config=None):
        self.config = config


class AgentInstanceBase(abc.ABC):
    @abc.abstractmethod
    async def step(self, state_dict, **kwargs): ...


class TrajectoryRubric:
    def __init__(self, intermediate_reward=0.0):
        self.intermediate_reward, self._trajectory = intermediate_reward, []


def criterion(**settings):
    return lambda function: function


class ORM:
    def __init__(self, args=None, **kwargs):
        self.args = args


orms: dict[str, type[ORM]] = {}


def host_modules() -> dict[str, ModuleType]:
    """The packages that the adapters import, with what they take from them."""
    return {
        **module(
            "open_instruct.ground_truth_utils",
            VerificationResult=VerificationResult,
            VerifierFunction=VerifierFunction,
        ),
        **module("skyrl_gym.envs.base_text_env", BaseTextEnv=BaseTextEnv, BaseTextEnvStepOutput=BaseTextEnvStepOutput),
        **module(
            "nemo_rl.environments.interfaces",
            EnvironmentInterface=EnvironmentInterface,
            EnvironmentReturn=EnvironmentReturn,
        ),
        **module("verifiers.v1.judge", Judge=Judge),
        **module("openrlhf.utils.agent", AgentInstanceBase=AgentInstanceBase),
        **module("openenv.core.rubrics", TrajectoryRubric=TrajectoryRubric),
        **module("rewardkit", criterion=criterion),
        **module("swift.rewards", ORM=ORM, orms=orms),
    }


def verl_reward_loop(compute_score, texts, label) -> list[float]:
    """`RewardLoopManager.compute_rm_score` over `run_single` of each sample at once."""

    async def run_single(text):
        call = {"data_source": "d", "solution_str": text, "ground_truth": label, "extra_info": {}}
        if inspect.iscoroutinefunction(compute_score):
            result = await compute_score(**call, strict_box_verify=False)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(None, lambda: compute_score(**call, strict_box_verify=False))
        return result["score"], dict(result)

    async def all_of_them():
        return await asyncio.gather(*map(run_single, texts))

    outputs = asyncio.run(all_of_them())
    keys = list(outputs[0][1])
    assert all(isinstance(info[key], float) for _, info in outputs for key in keys)
    return [score for score, _ in outputs]


def openrlhf_executor(reward_func, queries, prompts, labels) -> list[float]:
    """`SingleTurnAgentExecutor.execute` of every sample at once: lists of one, each in a thread."""
    import torch

    async def all_of_them():
        rows = zip(queries, prompts, labels, strict=True)
        return await asyncio.gather(*[asyncio.to_thread(reward_func, [q], [p], [x]) for q, p, x in rows])

    found = asyncio.run(all_of_them())
    assert all(torch.tensor([value]).shape == (1,) for info in found for value in info["extra_logs"].values())
    return [torch.tensor([info["rewards"]]).item() for info in found]


def swift_rewards(reward, conversations, **columns) -> list[float]:
    """`compute_rewards_per_func`: the completions first, the columns by name, None as NaN."""
    import torch

    completions = [messages[-1]["content"] for messages in conversations]
    found = reward(completions, trainer_state=object(), messages=conversations, **columns)
    return torch.tensor([torch.nan if value is None else value for value in found], dtype=torch.float32).tolist()
