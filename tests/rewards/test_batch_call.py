"""Who calls a reward."""

import gc
import json
import weakref
from types import FunctionType, MethodType, SimpleNamespace

import pytest
from transformers import TrainerState

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import trainer_of
from tests.evolving.fakes import finds
from tests.jsonl import read_jsonl
from tests.monitor.fakes import OptionsBackend
from tests.rewards.fakes import call, reward_by

COLOURS = call(["red", "blue"], "Say a color.")
HALF = [pytest.approx(0.5)] * 2


class Trainer:
    """What a reward uses of transformers' `Trainer`."""

    def __init__(self, folder=None, *reward_funcs, state=None, **more):
        self.callback_handler = SimpleNamespace(callbacks=[])
        self.add_callback = self.callback_handler.callbacks.append
        self.args = SimpleNamespace(output_dir=str(folder))
        self.state = state or TrainerState()
        self.reward_funcs, self.metrics = reward_funcs, {}
        self.__dict__ |= more

    def log_metric(self, name, value):
        self.metrics[name] = value

    def calls(self, state, inner=None):
        return trainer_of(None, state) if inner is None else inner.calls(state)


def step(reward, trainer, **columns):
    rewards = reward(**COLOURS | columns, trainer_state=trainer.state, log_metric=trainer.log_metric)
    trainer.state.global_step += 1
    return rewards


def both(name="checklist_reward", **more):
    """A reward with a monitor and evolving checklists, whose judge also rewards degenerate replies."""
    evolving = {"proposer": lambda groups: [["Is it blue?"]] * len(groups), "every": 1, "refiners": []}
    monitor = {"action": "stop", "max_canary": 0.0}
    return reward_by(OptionsBackend(finds), name=name, evolving=evolving, monitor=monitor, **more)


def calls_of(reward) -> int:
    """The calls that both stages have seen."""
    assert reward.monitor.state["calls"] == reward.evolving.state["calls"]
    return reward.monitor.state["calls"]


def kinds(path, kind, key):
    return [record[key] for record in read_jsonl(path) if record["kind"] == kind]


def test_the_trainer_behind_a_call_is_found_through_its_hook_or_among_the_callers():
    state, other = TrainerState(), TrainerState()
    ours, theirs = Trainer(state=state, processing_class=1), Trainer(state=other, processing_class=2)
    assert trainer_of(theirs.log_metric, state) is theirs
    assert trainer_of(lambda name, value: None, None) is None and trainer_of(None, None) is None
    assert ours.calls(state) is ours and ours.calls(state, theirs) is ours and theirs.calls(state, ours) is ours
    assert theirs.calls(state) is None, "another trainer with an equal state"
    assert Trainer(state=state).calls(state) is None, "not a trainer"


def test_a_second_trainer_begins_with_the_checklists_of_its_dataset_and_a_monitor_that_has_seen_nothing(tmp_path):
    reward = both(log=tmp_path / "rewards.jsonl")
    reward(**call(["red"]))  # by hand, to see that it works
    (tmp_path / "rewards.jsonl").unlink()
    for run in ("a", "b"):
        trainer = Trainer(tmp_path / run)
        assert [step(reward, trainer) for _ in range(3)] == [HALF] * 3 and reward.monitor.should_stop
        assert trainer.callback_handler.callbacks == [reward.callback] and len(reward.evolving.failures) == 0
        assert kinds(tmp_path / run / "monitor.jsonl", "step", "step") == [0, 1, 2]
        assert len(read_jsonl(tmp_path / run / "checklists.jsonl")) == 2 and calls_of(reward) == 3
    lines = read_jsonl(tmp_path / "rewards.jsonl")
    assert len(lines) == 12 and len({line["started"] for line in lines}) == 2
    trainer.state = TrainerState()  # train() once more
    step(reward, trainer)
    assert calls_of(reward) == 1 and trainer.callback_handler.callbacks == [reward.callback]
    assert len({line["started"] for line in read_jsonl(tmp_path / "rewards.jsonl")}) == 3


def test_a_trainer_that_goes_on_from_a_checkpoint_in_the_same_process_restores_its_stages(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    step(reward, trainer)
    saved = json.loads(json.dumps(trainer.state.stateful_callbacks))
    step(reward, trainer)
    again = Trainer(tmp_path)
    again.state.stateful_callbacks |= saved
    step(reward, again)
    assert calls_of(reward) == 2


def test_a_run_continues_from_states_that_were_restored_by_hand(tmp_path):
    first, second = both(), both()
    step(first, Trainer(tmp_path / "first"))
    assert set(first.state) == {"RewardMonitor/checklist_reward", "EvolvingChecklistReward/checklist_reward"}
    second.restore(json.loads(json.dumps(first.state | {"of another callback": {}})))
    assert second.state == first.state
    for calls, folder in ((2, "second"), (1, "third")):  # the run after that begins anew
        trainer = Trainer(tmp_path / folder)
        step(second, trainer)
        assert calls_of(second) == calls
        assert read_jsonl(tmp_path / folder / "monitor.jsonl")[0]["kind"] == "start"
    second.restore(second.state)
    trainer.state = TrainerState()  # train() once more
    step(second, trainer)
    assert calls_of(second) == 2


def test_a_state_that_cannot_be_restored_is_a_failure_of_the_run_that_begins(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    trainer.state.stateful_callbacks |= {reward.monitor.key: {"watch": None}}
    step(reward, trainer)
    assert kinds(tmp_path / "monitor.jsonl", "failure", "part") == ["restore"]


def test_two_rewards_of_a_trainer_write_files_of_their_own(tmp_path):
    rewards = both(), both("my/reward")
    watched = [reward_by(OptionsBackend(finds), name=name, monitor={}) for name in ("first", "second")]
    parts = [part for reward in watched for part in reward.split(lambda item: "all", names=["all"])]
    whole = Trainer(tmp_path, lambda completions, **columns: [0.0], rewards[0].as_async(), rewards[1])
    split = Trainer(tmp_path / "split", *parts)
    for trainer, functions in ((whole, rewards), (split, parts)):
        for reward in functions:
            step(reward, trainer)
    for file, name in (
        ("monitor.jsonl", "checklist_reward"),
        ("monitor.my_reward.jsonl", "my/reward"),
        ("split/monitor.jsonl", "first"),
        ("split/monitor.second.jsonl", "second"),
    ):
        assert kinds(tmp_path / file, "start", "reward") == [name]
    assert {path.name for path in tmp_path.glob("checklists*")} == {"checklists.jsonl", "checklists.my_reward.jsonl"}


def test_two_rewards_of_a_trainer_have_two_names_and_two_logs(tmp_path):
    trainer = Trainer(reward_func_names=("checklist_reward", "length", "checklist_reward"))
    with pytest.raises(SampleError, match="two rewards of this trainer are named 'checklist_reward'.*name=..."):
        step(reward_by(), trainer)
    assert step(reward_by(name="length"), trainer) == HALF
    first, second, third = (reward_by(name=name, log=tmp_path / file) for name, file in zip("abc", "xxy", strict=True))
    trainer = Trainer(tmp_path, first.as_async(), *second.split(lambda item: "all", names=["all"]))
    with pytest.raises(SampleError, match="the rewards 'a' and 'b' of this trainer have one log, .*x.*log=..."):
        step(first, trainer)
    assert step(first, Trainer(tmp_path, first, first.as_async(), third)) == HALF


def test_a_trainer_that_passes_its_hooks_and_no_state_is_one_run(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    for _ in range(2):
        assert reward(**COLOURS, log_metric=trainer.log_metric) == HALF
    assert calls_of(reward) == 2


def test_a_reward_holds_no_trainer_with_its_models(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    step(reward, trainer)
    freed = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert freed() is None and reward.last.rewards


@pytest.mark.parametrize("passes", [True, False])
def test_a_function_that_hides_the_trainer_from_the_reward_is_reported_once(tmp_path, caplog, passes):
    reward = reward_by()

    def wrapped(prompts, completions, checklist, **columns):
        return reward(prompts, completions, checklist, **(columns if passes else {}))

    trainer = Trainer(tmp_path, wrapped, processing_class=None)
    trainer._log_metric = trainer.log_metric  # as in TRL
    calls = (lambda self: step(self.reward_funcs[0], self)).__code__
    trainer.calculate_rewards = MethodType(FunctionType(calls, {"__name__": "trl.trainer", "step": step}), trainer)
    for _ in range(2):
        assert trainer.calculate_rewards() == [0.5, 0.5]
    said = [message for message in caplog.messages if "a function between Trainer and this reward" in message]
    assert len(said) == (not passes)


def test_a_variable_of_a_loop_that_is_deleted_after_a_call_is_freed():
    """Up to Python 3.12, reading the variables of a frame keeps them alive until its function returns."""
    reward = reward_by()

    class Loop:
        def run(self):
            logits = Loop()
            freed = weakref.ref(logits)
            reward(**call(["x"]))
            del logits
            return freed() is None

    assert Loop().run()
