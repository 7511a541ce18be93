"""AReaL: its reward wrapper with processes, and its RLVR workflow with an engine of fixed answers."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from areal.api import AsyncRewardWrapper
from areal.api.cli_args import GenerationHyperparameters
from areal.workflow.rlvr import RLVRWorkflow
from conftest import CHECKLIST, INPUT, TEXTS

from checklist_rewards.errors import ChecklistError
from checklist_rewards.rewards.integrations.areal import checklist_reward, checklist_reward_async
from checklist_rewards.rewards.integrations.labelled import Unscored

PATH = "checklist_rewards.rewards.integrations.areal.checklist_reward"
ROW = {"messages": [{"role": "user", "content": INPUT}], "checklist": json.dumps(CHECKLIST)}


class ChecklistWorkflow(RLVRWorkflow):
    """The workflow of the adapter's docstring."""

    def __init__(self, *args, **kwargs):
        super().__init__(checklist_reward, *args, **kwargs)
        self.async_reward_fn = checklist_reward_async


class Engine:
    """Answers with one of `TEXTS` after the other."""

    def __init__(self, tokenizer):
        self.tokenizer, self.texts = tokenizer, iter(TEXTS)

    async def agenerate(self, request):
        answer = self.tokenizer.encode(next(self.texts)) + [self.tokenizer.eos_token_id]
        n = len(answer)
        return SimpleNamespace(
            input_tokens=request.input_ids,
            output_tokens=answer,
            input_len=len(request.input_ids),
            output_len=n,
            output_logprobs=[0.0] * n,
            output_versions=[0] * n,
        )


@pytest.fixture(autouse=True)
def executors():
    """Processes of the wrapper inherit the settings of one test only."""
    yield
    AsyncRewardWrapper._atexit_shutdown_all()


def episodes(workflow, tokenizer) -> list[float]:
    async def all_of_them():
        engine = Engine(tokenizer)
        return [await workflow.arun_episode(engine, ROW) for _ in TEXTS]

    return [episode["rewards"].item() for episode in asyncio.run(all_of_them())]


def test_the_wrapper_calls_the_function_in_its_processes(judge, configure, expected):
    configure(judge)
    wrapped = AsyncRewardWrapper(checklist_reward, timeout_seconds=300, max_workers=1)

    async def all_of_them():
        return await asyncio.gather(*[wrapped(INPUT, text, [1], [2], **ROW) for text in TEXTS])

    assert asyncio.run(all_of_them()) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("reward", [PATH, checklist_reward], ids=["path", "function"])
def test_the_workflow_takes_the_function_or_its_path(server, configure, tokenizer, expected, reward):
    configure({"backend": "remote", "base_url": server})
    workflow = RLVRWorkflow(reward, GenerationHyperparameters(max_new_tokens=64), tokenizer)
    assert episodes(workflow, tokenizer) == pytest.approx(expected, abs=1e-4)


def test_the_workflow_awaits_the_coroutine(judge, configure, tokenizer, expected):
    configure(judge)
    workflow = ChecklistWorkflow(GenerationHyperparameters(max_new_tokens=64), tokenizer)
    assert episodes(workflow, tokenizer) == pytest.approx(expected, abs=1e-4)


def test_failures_raise(server, silent_judge, configure, tokenizer):
    configure({"backend": "remote", "base_url": server})
    wrapped = AsyncRewardWrapper(checklist_reward, timeout_seconds=300, max_workers=1, max_retries=0)
    with pytest.raises(ChecklistError, match="empty"):
        asyncio.run(wrapped(INPUT, TEXTS[0], [1], [2], checklist="[]"))
    AsyncRewardWrapper._atexit_shutdown_all()
    configure(silent_judge)
    wrapped = AsyncRewardWrapper(checklist_reward, timeout_seconds=300, max_workers=1, max_retries=0)
    with pytest.raises(Unscored):
        asyncio.run(wrapped(INPUT, TEXTS[0], [1], [2], **ROW))


def test_too_short_a_timeout_is_a_reward_of_zero(server, configure):
    configure({"backend": "remote", "base_url": server})
    wrapped = AsyncRewardWrapper(checklist_reward, timeout_seconds=1e-4, max_workers=1, max_retries=0)
    assert asyncio.run(wrapped(INPUT, TEXTS[0], [1], [2], **ROW)) == 0
