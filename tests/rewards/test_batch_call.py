"""Who calls a reward."""

import pytest
from transformers import TrainerState

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import trainer_of
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend


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
