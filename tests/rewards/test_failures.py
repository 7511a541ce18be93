"""A judge that fails: what trainers make of it, and that no advantage moves because of it."""

import json
import sys

import pandas as pd
import pytest
from datasets import Dataset

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import BackendError
from checklist_rewards.rewards.failures import abstained
from checklist_rewards.rewards.trl import ChecklistReward
from tests.conftest import REPO
from tests.fakes import FakeBackend
from tests.rewards.test_trainers import ON_CPU, by_hash, rows, run, text_of, train

GROUPS, SIZE = 4, 4
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trainers")]


def unlucky(share: float):
    return lambda prefix, tail="": by_hash(prefix, "bad luck") < share


def failing(share: float, **options) -> ChecklistReward:
    """A reward whose judge breaks on this share of the targets, the same ones every time."""
    backend = FakeBackend(by_hash, fails=unlucky(share), chunk_reads=1)
    return ChecklistReward(ChecklistScorer(backend=backend, store=False), **options)


def length(completions, **columns) -> list[float]:
    """A second reward that never fails."""
    return [len(text_of(completion)) / 100 for completion in completions]


class TestReward:
    batch = dict(prompts=["A", "B", "A", "B"], completions=["w", "x", "cursed", "z"], checklist=[["Is it red?"]] * 4)

    def reward(self, **options) -> ChecklistReward:
        backend = FakeBackend(fails=lambda prefix, tail: "cursed" in prefix, chunk_reads=1)
        return ChecklistReward(ChecklistScorer(backend=backend, store=False), **options)

    def test_alone_by_default(self):
        assert self.reward()(**self.batch) == [0.5, 0.5, None, 0.5]

    def test_with_its_group_on_request_wherever_its_siblings_stand(self):
        reward = self.reward(on_failure="group")
        assert reward(**self.batch) == [None, 0.5, None, 0.5]
        assert reward.pop_stats()["checklist_reward/unscored"] == 0.5

    def test_or_training_stops(self):
        with pytest.raises(BackendError, match="1 of 4 completions have no score: backend_error .1 reads."):
            self.reward(on_failure="raise")(**self.batch)
        fine = self.batch | {"completions": ["w", "x", "y", "z"], "checklist": [["Is it red?"]] * 3 + [None]}
        assert self.reward(on_failure="raise")(**fine) == [0.5, 0.5, 0.5, None]

    def test_a_pair_of_online_dpo_always_abstains_together(self):
        calls_like_online_dpo = self.batch | {"trainer_state": object()}
        assert self.reward()(**calls_like_online_dpo) == [None, 0.5, None, 0.5]
        with_hooks = calls_like_online_dpo | {"log_metric": lambda name, value: None}
        assert self.reward()(**with_hooks) == [0.5, 0.5, None, 0.5]


def test_groups_that_failed_elsewhere_abstain_here_too():
    assert abstained([0.1, None, 0.3], ["a", "b", "c"], {"c"}) == [0.1, None, None]


def one_step(folder, reward_funcs, algorithm, **options) -> pd.DataFrame:
    """The completions of one step, with their rewards and the advantages that TRL computed."""
    sizes = dict(per_device_train_batch_size=GROUPS * SIZE, num_generations=SIZE, max_steps=1, max_completion_length=8)
    trainer = train(reward_funcs, folder, algorithm=algorithm, **sizes, **options)
    assert trainer.state.global_step == 1
    return pd.DataFrame({**trainer._logs["rewards"], "advantage": trainer._logs["advantages"]}).astype(float)


def advantages_of(rewards: pd.Series, algorithm: str) -> list[float]:
    """Of a group in which nothing is missing, as the trainer defines them."""
    if algorithm == "GRPO":
        return ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
    return (rewards - (rewards.sum() - rewards) / (len(rewards) - 1)).tolist()


def groups(table: pd.DataFrame) -> list[pd.DataFrame]:
    return [table.iloc[start : start + SIZE] for start in range(0, len(table), SIZE)]


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_alone_a_failure_moves_no_siblings_advantage(tmp_path, algorithm, share):
    table = one_step(tmp_path, failing(share), algorithm)
    missing = table["checklist_reward"].isna()
    assert missing.any() and missing.all() == (share == 1.0)
    assert (table["advantage"][missing] == 0).all()
    for group in groups(table):
        there = group[group["checklist_reward"].notna()]
        if len(there) > 1:
            expected = advantages_of(there["checklist_reward"], algorithm)
            assert there["advantage"].tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_beside_another_reward_a_group_that_abstains_leaves_its_advantages_to_the_other(tmp_path, algorithm, share):
    table = one_step(tmp_path, [failing(share, on_failure="group"), length], algorithm)
    missing = table["checklist_reward"].isna()
    assert missing.any() and missing.all() == (share == 1.0)
    for group in groups(table):
        assert group["checklist_reward"].isna().nunique() == 1
        rewards = group["checklist_reward"].fillna(0) + group["length"]
        assert group["advantage"].tolist() == pytest.approx(advantages_of(rewards, algorithm), abs=1e-3)


def test_beside_another_reward_normalized_by_itself_a_row_may_abstain_alone(tmp_path):
    rewards = [failing(0.1), length]
    table = one_step(tmp_path, rewards, "GRPO", multi_objective_aggregation="normalize_then_sum")
    missing = table["checklist_reward"].isna()
    assert 0 < missing.sum() < len(table)
    terms = []
    for group in groups(table):
        columns = (group["checklist_reward"], group["length"])
        terms += sum(((c - c.mean()) / (c.std() + 1e-4)).fillna(0) for c in columns).tolist()
    expected = (pd.Series(terms) - pd.Series(terms).mean()) / (pd.Series(terms).std() + 1e-4)
    assert table["advantage"].tolist() == pytest.approx(expected.tolist(), abs=1e-2)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_online_dpo_trains_with_it_and_no_failed_completion_loses_for_it(tmp_path, share):
    from transformers import AutoTokenizer
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    reward, given = failing(share, log=tmp_path / "reward.jsonl"), []

    class Recorded(OnlineDPOTrainer):
        def _calculate_rewards_from_functions(self, prompts, **columns):
            given.append((prompts, super()._calculate_rewards_from_functions(prompts, **columns)))
            return given[-1][1]

    settings = {key: value for key, value in ON_CPU.items() if key != "beta"}
    args = OnlineDPOConfig(
        str(tmp_path), **settings, per_device_train_batch_size=4, max_new_tokens=8, max_length=512, max_steps=2
    )
    data = Dataset.from_list(rows(conversational=True, n=8))
    trainer = Recorded(
        model=str(pocket_dir()),
        reward_funcs=reward,
        args=args,
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
    )
    trainer.train()
    assert trainer.state.global_step == len(given) == 2
    for prompts, rewards in given:
        first, second = rewards.split(len(prompts) // 2)
        assert ((first == 0) == (second == 0)).all(), "a pair has two scores or none"
        assert share < 1 or (rewards == 0).all()
    assert len((tmp_path / "reward.jsonl").read_text().splitlines()) == 16
    assert reward.pop_stats()["checklist_reward/unscored"] == pytest.approx(share, abs=0.4)


def test_a_group_that_is_spread_over_ranks_abstains_on_all_of_them(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    run([*torchrun, str(REPO / "tests" / "rewards" / "group_ranks.py"), str(tmp_path)], ACCELERATE_USE_CPU="true")
    for rank in (0, 1):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["rewards"] == [None, 0.5]
        assert "on_failure='group' on 2 ranks needs the reward itself, not as_async()" in found["async"]
