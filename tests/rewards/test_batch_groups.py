"""The groups of a reward are those of its trainer: by the order of the completions, not by their prompts.

The trainers are TRL's own where they compute advantages; where only their order counts, its sampler makes the calls.
"""

import inspect
import itertools
import json
import multiprocessing
from types import SimpleNamespace

import pytest
from trl.trainer.utils import RepeatSampler

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.monitor.audit import observations
from checklist_rewards.monitor.watch import Watch
from checklist_rewards.rewards import batch as batches
from checklist_rewards.rewards.batch import Call, groups_of
from checklist_rewards.rewards.sdpo import ChecklistSDPOTrainer
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.test_reward_environments import Game, call, played, say
from tests.rewards.test_reward_failures import online_dpo
from tests.rewards.test_trl_trainers import Recorded, by_hash, completions, rows, train


def reward_by(rule=by_hash, **options) -> ChecklistReward:
    return ChecklistReward(ChecklistScorer(backend=FakeBackend(rule), store=False, no_answer="judge"), **options)


# --- TRL's own trainers


class Dice(Game):
    """Returns another text for every completion."""

    numbers = itertools.count()

    def reset(self, word: str = "", **columns) -> str:
        """Begin a rollout."""
        super().reset(word)
        self.checklist = [{"question": f"Does it say `{word}`?", "scope": "final"}]
        return f"You rolled {next(self.numbers)}."


ROLLOUTS = [(call("pear", "A try."), say(text)) for text in ("It is plum.", "I give up.", "cursed plum", "No idea.")]


def finds(prefix: str, tail: str) -> float | None:
    last = prefix.split("assistant: ")[-1]
    return None if "cursed" in last else 0.9 if "plum" in last else 0.1


class Kept(ChecklistReward):
    def __call__(self, *arguments, **columns):
        self.rewards = super().__call__(*arguments, **columns)
        return self.rewards


@pytest.mark.slow
def test_completions_of_a_row_are_one_group_although_their_environments_changed_the_prompt(tmp_path):
    judge = ChecklistScorer(backend=FakeBackend(finds), store=False)
    centred = Kept(judge, judged="transcript", shaping=["centred"], log=tmp_path / "log.jsonl")
    trainer, _ = played(ROLLOUTS, tmp_path, centred, Dice, word="plum")
    assert centred.rewards == [pytest.approx(0.4), pytest.approx(-0.4), None, None]
    prompts = [prompt[-1]["content"] for prompt in centred.last.prompts]
    assert len(set(prompts)) == 4 and trainer.num_generations == 2
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["group"] for line in lines] == ["0.0", "0.0", "0.1", "0.1"]
    [step] = observations([tmp_path / "log.jsonl"])
    assert [len(group) for group in step.groups.values()] == [2, 2], "the audit sees the same groups"
    assert len(step.rewarded) == 1 and len(step.parts) == 2


@pytest.mark.slow
def test_a_lost_completion_takes_its_group_along_where_the_trainer_sums(tmp_path):
    judge = ChecklistScorer(backend=FakeBackend(finds), store=False)
    summed = Kept(judge, judged="transcript")
    trainer, out = played(ROLLOUTS, tmp_path, summed, Dice, word="plum")
    assert len(trainer.reward_funcs) == 2, "the environment has a reward of its own"
    assert summed.rewards == [pytest.approx(0.9), pytest.approx(0.1), None, None]
    assert out["advantages"].tolist()[2:] == [0.0, 0.0]


@pytest.mark.slow
def test_a_monitor_and_evolving_checklists_take_the_groups_of_the_trainer(tmp_path, monkeypatch):
    judge = ChecklistScorer(backend=FakeBackend(finds), store=False)
    watched = ChecklistReward(judge, judged="transcript", monitor={})
    seen = []
    monkeypatch.setattr(Watch, "update", lambda self, observation: seen.append(observation) or ({}, []))
    played(ROLLOUTS, tmp_path, watched, Dice, word="plum")
    assert [[one.text.split()[-1] for one in group] for group in seen[0].groups.values()] == [
        ["plum.", "up."],
        ["plum", "idea."],
    ]
    proposer = lambda groups: [None] * len(groups)  # noqa: E731
    evolving = ChecklistReward(judge, judged="transcript", evolving={"proposer": proposer})
    with pytest.raises(SampleError, match="completions of one group have different prompts or checklists"):
        played(ROLLOUTS, tmp_path, evolving, Dice, word="plum", checklist=["Does it say `plum`?"])


@pytest.mark.slow
@pytest.mark.parametrize("step", ["item_zscore", "contrast", "whitened"])
def test_items_are_not_compared_across_different_checklists(tmp_path, step):
    class Different(Dice):
        def reset(self, word: str = "", **columns) -> str:
            """Begin a rollout."""
            text = super().reset(word)
            self.checklist = [{"question": f"Does it say `{next(self.numbers)}`?"}]
            return text

    reward = reward_by(lambda prefix, tail: 0.5, shaping=[step], judged="transcript")
    with pytest.raises(SampleError, match=f"'{step}' compares items across a group, but completions of one group"):
        played(ROLLOUTS, tmp_path, reward, Different, word="plum")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "size", "per_generation"), [("GRPO", 4, 1), ("GRPO", 2, 2), ("RLOO", 2, 1), ("RLOO", 2, 2)]
)
def test_a_prompt_that_is_drawn_twice_makes_two_groups(tmp_path, algorithm, size, per_generation):
    same = rows(conversational=True, n=1) * 8
    reward = Recorded(reward_by().scorer, shaping=["centred"])
    scaled = {"scale_rewards": "none"} if algorithm == "GRPO" else {}
    settings = {"num_generations": size, "max_steps": 1, "temperature": 2.0}
    settings |= {"steps_per_generation": per_generation, "gradient_accumulation_steps": per_generation}
    train(reward, tmp_path, algorithm=algorithm, data=same, **settings, **scaled)
    [(_, _, _, rewards)] = reward.calls
    assert len(rewards) == 8 * per_generation and len(set(rewards)) > size
    sums = [sum(rewards[start : start + size]) for start in range(0, len(rewards), size)]
    assert sums == pytest.approx([0.0] * len(sums), abs=1e-6)
    if algorithm == "GRPO":  # what is centred in the trainer's groups is the advantage
        assert completions(tmp_path)["advantage"].tolist() == pytest.approx(rewards, abs=1e-5)


@pytest.mark.slow
def test_online_dpo_compares_the_two_halves(tmp_path):
    def centred(prompts, completions, **columns):
        values = inner(prompts=prompts, completions=completions, **columns)
        calls.append((values, inner.last.groups))
        return values

    inner, calls = reward_by(shaping=["centred"]), []
    trainer = online_dpo(tmp_path, centred, temperature=2.0)
    assert len(calls) == 2 and trainer.state.global_step == 2
    for values, groups in calls:
        half = len(values) // 2
        assert [a + b for a, b in zip(values[:half], values[half:], strict=True)] == pytest.approx([0.0] * half)
        assert groups[:half] == groups[half:] and len(set(groups)) == half


@pytest.mark.slow
def test_sdpo_compares_consecutive_completions(tmp_path):
    from tests.rewards.test_sdpo import trainer

    reward = reward_by(shaping=["centred"])
    made = trainer(tmp_path, reward, num_generations=2, max_steps=1)
    assert isinstance(made, ChecklistSDPOTrainer)
    made.train()
    assert reward.last.groups == ["0.0", "0.0", "0.1", "0.1"]


# --- the order alone


class Order(SimpleNamespace):
    """What a reward sees of `GRPOTrainer`: its sizes, its mode and its hook."""

    def log_metric(self, name, value):
        """Ignore it."""


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("size", "eval_size"), [(2, 2), (3, 2), (4, None), (6, 3)])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_groups_are_the_rows_of_trls_view_on_every_rank(
    monkeypatch, world, size, eval_size, training, duplicates, resets
):
    used = size if training else eval_size or size
    data = ["A", "A", "B", "A"] if duplicates else ["A", "B", "C", "D"]
    prompts = [data[place] for place in RepeatSampler(data, mini_repeat_count=used, batch_size=2, seed=0)]
    prompts = prompts[: len(prompts) // (used * world) * used * world]
    if resets:
        prompts = [f"{prompt} {number}" for number, prompt in enumerate(prompts)]
    trainer = Order(num_generations=size, num_generations_eval=eval_size, model=SimpleNamespace(training=training))
    columns = {"environments": [None] * (len(prompts) // world)} if resets else {}
    monkeypatch.setattr(batches, "ranks", lambda: world)
    share, found = len(prompts) // world, []
    for rank in range(world):
        monkeypatch.setattr(batches, "rank", lambda rank=rank: rank)
        mine = prompts[rank * share : (rank + 1) * share]
        found += groups_of(trainer, Call(mine, mine, columns), 7)
    assert found == [f"7.{place // used}" for place in range(len(prompts))], "`rewards.view(-1, num_generations)`"


@pytest.mark.parametrize("options", [{"shaping": ["centred"]}, {"shaping": ["item_zscore"]}, {"on_failure": "group"}])
def test_unknown_groups_are_refused_where_environments_may_change_the_prompts(options):
    reward = reward_by(**options)
    case = dict(prompts=["A"] * 2, completions=["x", "y"], checklist=[["Is it?"]] * 2, environments=[None] * 2)
    with pytest.raises(SampleError, match="the groups of the completions are not known.*use GRPOTrainer") as error:
        reward(**case)
    assert "\n" not in str(error.value)
    known = Order(num_generations=2)
    assert reward(**case, log_metric=known.log_metric) == reward(**case | {"environments": None})
    uneven = Order(num_generations=4)
    with pytest.raises(SampleError, match="the groups of the completions are not known"):
        reward(**case, log_metric=uneven.log_metric)


def test_a_trainer_with_an_order_of_its_own_is_grouped_by_prompt():
    reward = reward_by(lambda prefix, tail: 0.9 if "red" in prefix else 0.1, shaping=["centred"])
    values = reward(
        prompts=["A", "B", "A", "B"],
        completions=["red", "red", "blue", "red"],
        checklist=[["Is it red?"]] * 4,
        log_metric=Order(num_generations=2).log_metric,
    )
    assert values == pytest.approx([0.4, 0.0, -0.4, 0.0])


@pytest.mark.parametrize(
    ("name", "expected"), [(batches.ROLLOUT_WORKER, [0.4, -0.4]), ("a worker of another loop", [0.0, 0.0])]
)
def test_the_rollout_worker_of_async_grpo_passes_one_group_per_call(monkeypatch, name, expected):
    """Without its state and without hooks. The worker is known by the name of its process."""
    monkeypatch.setattr(multiprocessing.current_process(), "name", name)
    reward = reward_by(lambda prefix, tail: 0.9 if "red" in prefix else 0.1, shaping=["centred"])
    rewards = reward(prompts=["A 1", "A 2"], completions=["red", "blue"], checklist=[["Is it red?"]] * 2)
    assert rewards == pytest.approx(expected)


def test_trl_names_the_process_of_its_rollout_worker():
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    assert f'name="{batches.ROLLOUT_WORKER}"' in inspect.getsource(worker.AsyncRolloutWorker.start)
