"""The groups of a reward are those of its trainer: by the order of the completions, not by their prompts.

The trainers are TRL's own where they compute advantages; where only their order counts, its sampler makes the calls.
"""

import inspect
import itertools
import multiprocessing
from types import SimpleNamespace

import pytest
from trl.trainer.utils import RepeatSampler

from checklist_rewards.errors import SampleError
from checklist_rewards.monitor.audit import observations
from checklist_rewards.monitor.watch import Watch
from checklist_rewards.rewards import batch as batches
from checklist_rewards.rewards.batch import Call, groups_of
from tests.jsonl import read_jsonl
from tests.rewards.fakes import by_hash, call, knows, reward_by
from tests.rewards.test_reward_environments import Game, guesses, played, say
from tests.rewards.test_reward_failures import online_dpo
from tests.rewards.test_trl_trainers import completions, rows, train

JUDGED = {"scorer": {"no_answer": "judge"}, "shaping": ["centred"]}

# --- TRL's own trainers


class Dice(Game):
    """Returns another text for every completion."""

    numbers = itertools.count()

    def reset(self, word: str = "", **columns) -> str:
        """Begin a rollout."""
        super().reset(word)
        self.checklist = [{"question": f"Does it say `{word}`?", "scope": "final"}]
        return f"You rolled {next(self.numbers)}."


@pytest.mark.slow
def test_completions_of_a_row_are_one_group_although_their_environments_changed_the_prompt(tmp_path, monkeypatch):
    """For shaping, for what abstains together where the trainer sums, for the monitor, and for the audit of a log."""
    answers = ("It is plum.", "I give up.", "cursed plum", "No idea.")
    seen = []
    monkeypatch.setattr(Watch, "update", lambda self, observation: seen.append(observation) or ({}, []))

    def finds(prefix: str, tail: str) -> float | None:
        last = prefix.split("assistant: ")[-1]
        return None if "cursed" in last else 0.9 if "plum" in last else 0.1

    options = {"judged": "transcript", "log": tmp_path / "log.jsonl"}
    centred = reward_by(finds, shaping=["centred"], **options)
    summed = reward_by(finds, name="summed", judged="transcript", monitor={})
    rollouts = [(guesses("pear", "A try."), say(text)) for text in answers]
    trainer, out = played(rollouts, tmp_path, [centred, summed], Dice, word="plum")
    assert len({prompt[-1]["content"] for prompt in centred.last.prompts}) == 4 and trainer.num_generations == 2
    assert len(trainer.reward_funcs) == 3, "the environment has a reward of its own"
    assert centred.last.rewards == [pytest.approx(0.4), pytest.approx(-0.4), None, None]
    assert summed.last.rewards == [pytest.approx(0.9), pytest.approx(0.1), None, None]
    assert out["advantages"].tolist()[2:] == [0.0, 0.0]
    last_words = [[one.text.split()[-1] for one in group] for group in seen[0].groups.values()]
    assert last_words == [["plum.", "up."], ["plum", "idea."]]
    assert [line["group"] for line in read_jsonl(tmp_path / "log.jsonl")] == ["0.0", "0.0", "0.1", "0.1"]
    [step] = observations([tmp_path / "log.jsonl"])
    assert [len(group) for group in step.groups.values()] == [2, 2], "the audit sees the same groups"
    assert len(step.rewarded) == 1 and len(step.parts) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "size", "per_generation"), [("GRPO", 4, 1), ("GRPO", 2, 2), ("RLOO", 2, 2)])
def test_a_prompt_that_is_drawn_twice_makes_two_groups(tmp_path, algorithm, size, per_generation):
    """What is centred in the trainer's groups is the advantage."""
    reward = reward_by(by_hash, **JUDGED)
    settings = {"num_generations": size, "max_steps": 1, "temperature": 2.0, "max_completion_length": 8}
    settings |= {"steps_per_generation": per_generation, "gradient_accumulation_steps": per_generation}
    settings |= {"scale_rewards": "none"} if algorithm == "GRPO" else {}
    train(reward, tmp_path, algorithm=algorithm, data=rows(conversational=True, n=1) * 8, **settings)
    rewards = reward.last.rewards
    assert len(rewards) == 8 * per_generation and len(set(rewards)) > size
    sums = [sum(rewards[start : start + size]) for start in range(0, len(rewards), size)]
    assert sums == pytest.approx([0.0] * len(sums), abs=1e-6)
    if algorithm == "GRPO":
        assert completions(tmp_path)["advantage"].tolist() == pytest.approx(rewards, abs=1e-5)


@pytest.mark.slow
def test_online_dpo_compares_the_two_halves(tmp_path):
    def centred(prompts, completions, **columns):
        values = inner(prompts=prompts, completions=completions, **columns)
        calls.append((values, inner.last.groups))
        return values

    inner, calls = reward_by(by_hash, **JUDGED), []
    online_dpo(tmp_path, centred, temperature=2.0)
    assert len(calls) == 2
    for values, groups in calls:
        half = len(values) // 2
        assert [a + b for a, b in zip(values[:half], values[half:], strict=True)] == pytest.approx([0.0] * half)
        assert groups[:half] == groups[half:] and len(set(groups)) == half


# --- the order alone


class Order(SimpleNamespace):
    """What a reward sees of `GRPOTrainer`: its sizes, its mode and its hook."""

    def log_metric(self, name, value):
        """Ignore it."""


@pytest.mark.parametrize("resets", [False, True])  # whether an environment has changed the prompts
@pytest.mark.parametrize("data", ["ABCD", "AABA"])  # a prompt may be drawn twice
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("size", "eval_size"), [(2, 2), (3, 2), (4, None), (6, 3)])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_groups_are_the_rows_of_trls_view_on_every_rank(monkeypatch, world, size, eval_size, training, data, resets):
    used = size if training else eval_size or size
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
        found += groups_of(Call(mine, mine, columns, trainer=trainer), 7)
    assert found == [f"7.{place // used}" for place in range(len(prompts))], "`rewards.view(-1, num_generations)`"


@pytest.mark.parametrize("options", [{"shaping": ["centred"]}, {"shaping": ["item_zscore"]}, {"on_failure": "group"}])
def test_unknown_groups_are_refused_where_environments_may_change_the_prompts(options):
    reward, case = reward_by(by_hash, **options), call(["x", "y"], environments=[None] * 2)
    for hooks in ({}, {"log_metric": Order(num_generations=4).log_metric}):  # 2 completions are no group of 4
        with pytest.raises(SampleError, match="the groups of the completions are not known.*use GRPOTrainer"):
            reward(**case, **hooks)
    known = Order(num_generations=2)
    assert reward(**case, log_metric=known.log_metric) == reward(**case | {"environments": None})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            ({"shaping": [step]}, f"'{step}' compares items across a group, but completions of one group")
            for step in ("item_zscore", "contrast", "whitened")
        ),
        (
            {"evolving": {"proposer": lambda groups: [None] * len(groups)}},
            "completions of one group have different prompts or checklists",
        ),
    ],
)
def test_items_are_not_compared_across_different_checklists(options, words):
    checklists = [[f"Is it red {number}?"] for number in range(2)]
    with pytest.raises(SampleError, match=words):
        reward_by(**options)(
            **call(["x", "y"], ["A 1", "A 2"], checklists, environments=[None] * 2),
            log_metric=Order(num_generations=2).log_metric,
        )


def test_a_trainer_with_an_order_of_its_own_is_grouped_by_prompt():
    batch = call(["red", "red", "blue", "red"], ["A", "B", "A", "B"])
    values = reward_by(knows, shaping=["centred"])(**batch, log_metric=Order(num_generations=2).log_metric)
    assert values == pytest.approx([0.4, 0.0, -0.4, 0.0])


@pytest.mark.parametrize(
    ("name", "expected"), [(batches.ROLLOUT_WORKER, [0.4, -0.4]), ("a worker of another loop", [0.0, 0.0])]
)
def test_the_rollout_worker_of_async_grpo_passes_one_group_per_call(monkeypatch, name, expected):
    """Without its state and without hooks. The worker is known by the name of its process."""
    monkeypatch.setattr(multiprocessing.current_process(), "name", name)
    rewards = reward_by(knows, shaping=["centred"])(**call(["red", "blue"], ["A 1", "A 2"]))
    assert rewards == pytest.approx(expected)


def test_trl_names_the_process_of_its_rollout_worker():
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    assert f'name="{batches.ROLLOUT_WORKER}"' in inspect.getsource(worker.AsyncRolloutWorker.start)
