"""Who calls a reward."""

import asyncio
import gc
import json
import weakref
from types import FunctionType, MethodType, SimpleNamespace

import pytest
from transformers import TrainerState

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import trainer_of
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.ui.report import read_monitor
from tests.evolving.fakes import finds
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl
from tests.monitor.fakes import OptionsBackend


def test_the_trainer_behind_a_call_is_found_through_its_hook_or_among_the_callers():
    state, other = TrainerState(), TrainerState()

    class Trainer:
        def __init__(self, state, **more):
            self.state = state
            self.__dict__ |= more

        def log_metric(self, name, value):
            """Ignore it."""

        def calls(self, state, inner=None):
            return trainer_of(None, state) if inner is None else inner.calls(state)

    ours, theirs = Trainer(state, processing_class=1), Trainer(other, processing_class=2)
    assert trainer_of(theirs.log_metric, state) is theirs
    assert trainer_of(lambda name, value: None, None) is None and trainer_of(None, None) is None
    assert ours.calls(state) is ours and ours.calls(state, theirs) is ours and theirs.calls(state, ours) is ours
    assert theirs.calls(state) is None, "another trainer with an equal state"
    assert Trainer(state).calls(state) is None, "not a trainer"


class Trainer:
    """What a reward uses of transformers' `Trainer`."""

    def __init__(self, folder, *reward_funcs):
        self.callback_handler = SimpleNamespace(callbacks=[])
        self.add_callback = self.callback_handler.callbacks.append
        self.args = SimpleNamespace(output_dir=str(folder))
        self.state = TrainerState()
        self.reward_funcs = reward_funcs

    def log_metric(self, name, value):
        """Ignore it."""


def step(reward, trainer):
    rewards = reward(
        prompts=["Say a color."] * 2,
        completions=["red", "blue"],
        checklist=[["Is it red?"]] * 2,
        trainer_state=trainer.state,
        log_metric=trainer.log_metric,
    )
    trainer.state.global_step += 1
    return rewards


def both(name="checklist_reward", **more):
    """A reward with a monitor and evolving checklists, whose judge also rewards degenerate replies."""
    scorer = ChecklistScorer(backend=OptionsBackend(finds), store=False)
    evolving = {"proposer": lambda groups: [["Is it blue?"]] * len(groups), "every": 1, "refiners": []}
    monitor = {"action": "stop", "max_canary": 0.0}
    return ChecklistReward(scorer, name=name, evolving=evolving, monitor=monitor, **more)


def test_a_second_trainer_begins_with_the_checklists_of_its_dataset_and_a_monitor_that_has_seen_nothing(tmp_path):
    reward = both(log=tmp_path / "rewards.jsonl")
    reward(prompts=["A"], completions=["red"], checklist=[["Is it red?"]])  # by hand, to see that it works
    (tmp_path / "rewards.jsonl").unlink()
    for run in ("a", "b"):
        trainer = Trainer(tmp_path / run)
        rewards = [step(reward, trainer) for _ in range(3)]
        assert rewards == [[pytest.approx(0.5)] * 2] * 3 and reward.monitor.should_stop
        assert trainer.callback_handler.callbacks == [reward.callback] and len(reward.evolving.failures) == 0
        written = [one["step"] for one in read_jsonl(tmp_path / run / "monitor.jsonl") if one["kind"] == "step"]
        assert written == [0, 1, 2] and len(read_jsonl(tmp_path / run / "checklists.jsonl")) == 2
        assert reward.monitor.state["calls"] == reward.evolving.state["calls"] == 3
    lines = read_jsonl(tmp_path / "rewards.jsonl")
    assert len(lines) == 12 and len({line["started"] for line in lines}) == 2
    trainer.state = TrainerState()  # train() once more
    step(reward, trainer)
    assert reward.monitor.state["calls"] == 1 and trainer.callback_handler.callbacks == [reward.callback]
    assert len({line["started"] for line in read_jsonl(tmp_path / "rewards.jsonl")}) == 3


def test_a_trainer_that_goes_on_from_a_checkpoint_in_the_same_process_restores_its_stages(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    step(reward, trainer)
    saved = json.loads(json.dumps(trainer.state.stateful_callbacks))
    step(reward, trainer)
    again = Trainer(tmp_path)
    again.state.stateful_callbacks |= saved
    step(reward, again)
    assert reward.monitor.state["calls"] == reward.evolving.state["calls"] == 2


def test_a_run_continues_from_states_that_were_restored_by_hand(tmp_path):
    first, second = both(), both()
    step(first, Trainer(tmp_path / "first"))
    second.restore(json.loads(json.dumps(first.state)))
    assert second.state == first.state
    for calls, folder in ((2, "second"), (1, "third")):  # the run after that begins anew
        trainer = Trainer(tmp_path / folder)
        step(second, trainer)
        assert second.monitor.state["calls"] == second.evolving.state["calls"] == calls
        assert trainer.callback_handler.callbacks == [second.callback]
        assert [one["kind"] for one in read_jsonl(tmp_path / folder / "monitor.jsonl")][0] == "start"
    second.restore(second.state)
    trainer.state = TrainerState()  # train() once more
    step(second, trainer)
    assert second.monitor.state["calls"] == second.evolving.state["calls"] == 2


def test_a_state_that_cannot_be_restored_is_a_failure_of_the_run_that_begins(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    trainer.state.stateful_callbacks |= {reward.monitor.key: {"watch": None}}
    step(reward, trainer)
    [failure] = read_monitor(tmp_path / "monitor.jsonl")["failures"]
    assert failure["part"] == "restore"


def test_two_rewards_of_a_trainer_write_files_of_their_own(tmp_path):
    rewards = both(), both("my/reward")
    trainer = Trainer(tmp_path, lambda completions, **columns: [0.0], rewards[0].as_async(), rewards[1])
    for reward in rewards:
        step(reward, trainer)
    for first, second in (("monitor", "monitor.my_reward"), ("checklists", "checklists.my_reward")):
        assert (tmp_path / f"{first}.jsonl").is_file() and (tmp_path / f"{second}.jsonl").is_file()
    starts = [one["reward"] for one in read_jsonl(tmp_path / "monitor.jsonl") if one["kind"] == "start"]
    assert starts == ["checklist_reward"]


def test_two_split_rewards_of_a_trainer_write_files_of_their_own(tmp_path):
    scorer = ChecklistScorer(backend=OptionsBackend(finds), store=False)
    rewards = [ChecklistReward(scorer, name=name, monitor={}) for name in ("first", "second")]
    parts = [part for reward in rewards for part in reward.split(lambda item: "all", names=["all"])]
    trainer = Trainer(tmp_path, *parts)
    for part in parts:
        step(part, trainer)
    for name, file in (("first", "monitor.jsonl"), ("second", "monitor.second.jsonl")):
        assert [one["reward"] for one in read_jsonl(tmp_path / file) if one["kind"] == "start"] == [name]


def test_a_trainer_that_passes_its_hooks_and_no_state_is_one_run(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    trainer.state = None
    batch = dict(prompts=["A"] * 2, completions=["red", "blue"], checklist=[["Is it red?"]] * 2)
    for _ in range(2):
        assert reward(**batch, log_metric=trainer.log_metric) == [pytest.approx(0.5)] * 2
    assert reward.monitor.state["calls"] == 2


def test_a_reward_holds_no_trainer_with_its_models(tmp_path):
    reward, trainer = both(), Trainer(tmp_path)
    step(reward, trainer)
    freed = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert freed() is None and reward.last.rewards


@pytest.mark.parametrize("passes", [True, False])
def test_a_function_that_hides_the_trainer_from_the_reward_is_reported_once(tmp_path, caplog, passes):
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.5), store=False)
    reward = ChecklistReward(scorer)

    def wrapped(prompts, completions, checklist, **columns):
        return reward(prompts, completions, checklist, **(columns if passes else {}))

    trainer = Trainer(tmp_path, wrapped)
    trainer.processing_class, trainer._log_metric = None, trainer.log_metric  # as in TRL
    calls = (lambda self: step(self.reward_funcs[0], self)).__code__
    trainer.calculate_rewards = MethodType(FunctionType(calls, {"__name__": "trl.trainer", "step": step}), trainer)
    for _ in range(2):
        assert trainer.calculate_rewards() == [0.5, 0.5]
    said = [message for message in caplog.messages if "a function between Trainer and this reward" in message]
    assert len(said) == (not passes)
    assert reward(["A"], ["x"], [["Is it?"]]) == [0.5], "a call without a trainer"


def test_a_variable_of_a_loop_that_is_deleted_after_a_call_is_freed():
    """Up to Python 3.12, reading the variables of a frame keeps them alive until its function returns."""
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(), store=False))

    class Loop:
        def run(self):
            logits = Loop()
            freed = weakref.ref(logits)
            reward(["A"], ["x"], [["Is it?"]])
            del logits
            return freed() is None

    assert Loop().run()


@pytest.mark.parametrize("value", [5, 0.5, float("nan"), ["a", "b"], {"role": "assistant", "content": "a"}])
def test_a_reference_that_is_no_text_is_refused_by_column_and_row(value):
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(), store=False), reference_column="answer")
    batch = dict(prompts=["A", "B"], completions=["x", "y"], checklist=[["Is it?"]] * 2, answer=[None, value])
    with pytest.raises(SampleError, match=r"row 2 of the batch \(prompt 'B'\): 'answer' must be a string, a list of"):
        reward(**batch)


@pytest.mark.parametrize("name", ["cls", "self", "id", "target", "reference", "labels", "call", "rows", "score"])
def test_a_dataset_may_have_any_other_column(name):
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    batch = dict(prompts=["A"], completions=["x"], checklist=[["Is it?"]])
    reward = ChecklistReward(scorer)
    [part] = ChecklistReward(scorer, name="b").split(lambda item: "all", names=["all"])
    assert reward(**batch, **{name: [1]}) == part(**batch, **{name: [1]}) == [0.5]
    assert asyncio.run(reward.as_async()(**batch, **{name: [1]})) == [0.5]


def test_two_rewards_of_a_trainer_have_two_names():
    class Trainer:
        reward_func_names = ("checklist_reward", "length", "checklist_reward")

        def log_metric(self, name, value):
            """Ignore it."""

    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    batch = dict(prompts=["A"], completions=["x"], checklist=[["Is it?"]], log_metric=Trainer().log_metric)
    with pytest.raises(SampleError, match="two rewards of this trainer are named 'checklist_reward'.*name=..."):
        ChecklistReward(scorer)(**batch)
    assert ChecklistReward(scorer, name="length")(**batch) == [0.5]
