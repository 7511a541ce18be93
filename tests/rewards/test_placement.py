"""Where a judge may be: asleep beside the policy, and on its way into the child of AsyncGRPOTrainer."""

import importlib
import pickle
from contextlib import contextmanager
from itertools import groupby

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Backend, Engine, engine
from checklist_rewards.backends.base import time_left
from checklist_rewards.errors import BackendError, ModelError
from checklist_rewards.judges import LogprobJudge, Member, PanelJudge
from checklist_rewards.rewards import placement
from checklist_rewards.rewards.placement import in_process, load
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.fakes import call
from tests.rewards.test_trl_trainers import train

SERVED = dict(model="judge", base_url="http://127.0.0.1:9/v1", store=False)
HERE = dict(model="pocket", backend="transformers", store=False)
BUDGET = {"budget": {"dollars": 1, "prices": {"pocket": [1, 1]}}}


@pytest.fixture
def module():
    """TRL's module of the worker, which must be loaded for a reward to be on its way there."""
    return importlib.import_module("trl.experimental.async_grpo.async_rollout_worker")


@pytest.mark.parametrize(
    ("options", "form"),
    [({"capture_reasoning": True}, lambda reward: reward), (BUDGET, lambda reward: reward.as_async())],
    ids=["reasons", "behind a budget, async"],
)
def test_trls_worker_refuses_a_judge_in_this_process_before_it_starts_a_child(module, options, form, monkeypatch):
    monkeypatch.setattr(module, "is_vllm_available", lambda: True)  # the worker asks a server
    worker = module.AsyncRolloutWorker(reward_funcs=[form(ChecklistReward(**HERE, **options))])
    with pytest.raises(ModelError, match="without a GPU, where the judge 'pocket' cannot run; serve the judge"):
        worker.start()


def test_a_served_judge_goes_into_a_child_and_other_pickles_are_nobodys_business(module, monkeypatch):
    assert pickle.loads(pickle.dumps(ChecklistReward(**HERE))).scorer.judge.name == "pocket"
    monkeypatch.setattr(placement, "get_spawning_popen", object)
    assert pickle.loads(pickle.dumps(ChecklistReward(**SERVED))).scorer.judge.name == "judge"


def test_where_the_engine_of_a_judge_is(pocket):
    assert in_process(ChecklistReward(**HERE, mode="batch").scorer.judge) == "pocket"
    assert in_process(ChecklistReward(**SERVED, mode="quality").scorer.judge) is None
    assert in_process(ChecklistReward(**HERE, **BUDGET).scorer.judge) == "pocket"
    served = LogprobJudge(Engine("judge", base_url=SERVED["base_url"]), store=None)
    here = LogprobJudge(Engine("pocket", "transformers"), store=None)
    assert in_process(PanelJudge([served, Member(here)])) == "pocket"
    assert in_process(LogprobJudge(Engine("judge", pocket))) == "judge", "a backend object says whether it runs here"
    assert in_process(LogprobJudge(Engine("judge", FakeBackend()))) is None


def test_the_deadline_starts_after_an_engine_behind_a_budget_is_loaded(monkeypatch):
    loaded = []

    def slow_load(model, *_, **identity):
        loaded.append((model, time_left()))
        return FakeBackend()

    monkeypatch.setattr(engine, "load_backend", slow_load)
    with placement.within([ChecklistScorer(**HERE, **BUDGET).judge], 1.0):
        assert loaded == [("pocket", None)]


def test_an_engine_can_be_built_before_the_first_read_and_says_then_that_it_cannot(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    scorer = ChecklistScorer(str(tmp_path), backend="transformers", store=False)
    scorer.validate()
    with pytest.raises(ModelError, match="cannot be loaded with transformers"):
        load(scorer.judge)


# --- judges that sleep


class Napping(Backend):
    """The pocket engine as one that sleeps between two scorings; asleep it answers nothing."""

    chunk_reads = 4  # so a scoring takes several calls

    def __init__(self, engine=None):
        self.engine, self.identity, self.events, self.up = engine, getattr(engine, "identity", "fake"), [], False

    @contextmanager
    def stay_awake(self):
        self.events.append("wakes")
        self.up = True
        try:
            yield
        finally:
            self.events.append("sleeps")
            self.up = False

    def read(self, groups, labels):
        assert self.up
        self.events.append("reads")
        return self.engine.read(groups, labels)


def test_a_reward_prepares_only_judges_that_sleep_or_are_objects(monkeypatch):
    sleeping = Engine("pocket", "transformers", settings={"enable_sleep_mode": True})
    assert placement.is_placed(PanelJudge([LogprobJudge("pocket"), LogprobJudge(sleeping)]))
    assert placement.is_placed(LogprobJudge(Engine("judge", FakeBackend())))
    reward = ChecklistReward(**HERE)
    assert not placement.is_placed(reward.scorer.judge)
    monkeypatch.setattr("checklist_rewards.rewards.reward.within", None)  # it is not called
    assert reward(**call(["red?"], items=("Is it a question?",))) != [None]


def test_sleep_mode_works_behind_a_budget_and_when_another_engine_cannot_be_loaded(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    sleeper = Napping()
    broken = Engine(str(tmp_path), "transformers", settings={"enable_sleep_mode": True})
    judge = PanelJudge([LogprobJudge(Engine("a", sleeper)), LogprobJudge(broken)])
    with pytest.raises(ModelError, match="unknown engine setting"), placement.keep_awake(judge):
        pass
    assert sleeper.events == ["wakes", "sleeps"] and not sleeper.up
    monkeypatch.setattr(engine, "load_backend", lambda *_, **identity: sleeper)
    asleep = {"backend": "vllm", "engine_args": {"enable_sleep_mode": True}}
    with placement.keep_awake(ChecklistScorer("pocket", store=False, **BUDGET, **asleep).judge):
        assert sleeper.up
    assert sleeper.events == ["wakes", "sleeps"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("on_failure", ["row", "raise"])
def test_a_judge_that_sleeps_is_awake_for_the_reward_and_never_while_the_policy_samples(
    pocket, tmp_path, monkeypatch, on_failure
):
    from trl import GRPOTrainer

    judge, samples = Napping(pocket), GRPOTrainer._generate

    def watched(self, prompts):
        assert not judge.up
        judge.events.append("policy samples")
        return samples(self, prompts)

    monkeypatch.setattr(GRPOTrainer, "_generate", watched)
    fails = {"mass_floor": 1.0, "min_answered": 1.0} if on_failure == "raise" else {"mass_floor": 0.0}
    reward = ChecklistReward(ChecklistScorer(backend=judge, store=False, **fails), on_failure=on_failure)
    if on_failure == "row":
        train(reward, tmp_path)
    else:
        with pytest.raises(BackendError, match="could not be scored: off_label"):
            train(reward, tmp_path)
    steps = [key for key, _ in groupby(judge.events)]
    assert steps == ["policy samples", "wakes", "reads", "sleeps"] * (2 if on_failure == "row" else 1)
    assert judge.events.count("reads") > len(steps) / 4 and not judge.up
