"""A reward on its way into the child of AsyncGRPOTrainer."""

import importlib
import multiprocessing
import pickle

import pytest

from checklist_rewards.errors import ModelError
from checklist_rewards.rewards.placement import in_process
from checklist_rewards.rewards.trl import ChecklistReward

SERVED = dict(model="judge", base_url="http://127.0.0.1:9/v1")


@pytest.fixture
def module():
    """TRL's module of the worker, which must be loaded for a reward to be on its way there."""
    return importlib.import_module("trl.experimental.async_grpo.async_rollout_worker")


@pytest.mark.vllm
@pytest.mark.parametrize("options", [{}, {"mode": "batch"}, {"capture_reasoning": True}])
@pytest.mark.parametrize("form", [lambda reward: reward, lambda reward: reward.as_async()], ids=["sync", "async"])
def test_trls_worker_refuses_a_judge_in_this_process_before_it_starts_a_child(module, options, form):
    if not module.is_vllm_available():
        pytest.skip("TRL's worker needs vLLM")
    reward = ChecklistReward(model="pocket", backend="transformers", store=False, **options)
    worker = module.AsyncRolloutWorker(reward_funcs=[form(reward)])
    with pytest.raises(ModelError, match="'pocket' runs in the process .* without a GPU; serve the judge"):
        worker.start()


def test_a_served_judge_goes_into_a_child(module):
    child = multiprocessing.get_context("spawn").Process(
        target=callable, args=(ChecklistReward(**SERVED, store=False),), daemon=True
    )
    child.start()
    child.kill()
    child.join()


def test_other_pickles_are_nobodys_business(module):
    reward = ChecklistReward(model="pocket", backend="transformers", store=False)
    assert pickle.loads(pickle.dumps(reward)).scorer.judge.name == "pocket"


@pytest.mark.parametrize("mode", ["item", "batch", "quality"])
def test_every_mode_knows_where_its_engine_is(mode):
    scorer = ChecklistReward(model="pocket", backend="transformers", mode=mode, store=False).scorer
    assert in_process(scorer.judge) == "pocket"
    assert in_process(ChecklistReward(**SERVED, mode=mode, store=False).scorer.judge) is None
