"""A judge that fails: what trainers make of it, and that no advantage moves because of it."""

import json
from contextlib import nullcontext

import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from checklist_rewards.backends import Answer, pocket_dir
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.scales import with_abstention
from tests.fakes import FakeBackend
from tests.judges.voters import Voter
from tests.rewards.fakes import asked, by_hash, call, reward_by, text_of, user
from tests.rewards.test_trl_trainers import ON_CPU, rows

pytestmark = pytest.mark.slow

LOST = call(["w", "x", "cursed", "z"], ["A", "B", "A", "B"])
FINE = call(["w", "x", "y", "z"], ["A", "B", "A", "B"])
ALONE, TOGETHER = [0.5, 0.5, None, 0.5], [None, 0.5, None, 0.5]


COLOURS = ("red", "blue", "red", "blue")


def asks_about(colour: str) -> list[dict]:
    """A prompt with an image, which a dataset decodes anew for every completion of its row."""
    image = {"type": "image", "image": Image.new("RGB", (8, 8), colour)}
    return [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]


def cursed(**options) -> ChecklistReward:
    """A reward whose judge breaks on one word."""
    return reward_by(FakeBackend(fails=lambda prefix, tail: "cursed" in prefix, chunk_reads=1), **options)


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        ({}, {}, ALONE),
        ({"on_failure": "group"}, {}, TOGETHER),
        ({"on_failure": "group", "images": "ignore"}, {"prompts": list(map(asks_about, COLOURS))}, TOGETHER),
        ({}, {"trainer_state": object(), "log_metric": lambda name, value: None}, ALONE),
    ],
    ids=["alone", "with its group", "images of equal content", "a trainer with hooks"],
)
def test_a_completion_that_failed_abstains(options, columns, expected, caplog):
    """Its siblings may stand anywhere. The reason is said once."""
    reward = cursed(**options)
    assert [reward(**LOST | columns) for _ in range(2)] == [expected] * 2
    assert caplog.text.count("1 of 4 completions could not be scored: backend_error (1 reads).") == 1
    assert reward.pop_stats()["checklist_reward/unscored"] == expected.count(None) / 4


def test_or_training_stops():
    reward = cursed(on_failure="raise")
    with pytest.raises(BackendError, match="1 of 4 completions could not be scored: backend_error .1 reads."):
        reward(**LOST)
    assert reward(**FINE | {"checklist": [["Is it red?"]] * 3 + [None]}) == [0.5, 0.5, 0.5, None]


@pytest.mark.parametrize("how", ["row", "raise"])
def test_a_judge_that_abstains_on_all_items_is_a_reason_too(how, caplog):
    judge = Voter(Verdict(answer="cannot_assess", method="reply"))
    reward = ChecklistReward(ChecklistScorer(judge=judge), on_failure=how)
    with nullcontext() if how == "row" else pytest.raises(BackendError) as raised:
        assert reward(**FINE | {"checklist": [with_abstention(["Is it red?"])] * 4}) == [None] * 4
    said = caplog.text if raised is None else str(raised.value)
    assert "4 of 4 completions could not be scored: no value (4 reads)." in said


def test_an_image_is_refused_by_a_judge_of_text_unless_it_is_to_be_ignored():
    batch = FINE | {"prompts": [user("Hi"), user("Hi"), asks_about("red"), user("Hi")]}
    with pytest.raises(SampleError, match="sample 3: the input has an image, but the judge 'pocket' reads text"):
        reward_by()(**batch)
    assert reward_by(images="ignore")(**batch) == [0.5] * 4
    shown = [{"role": "assistant", "content": asks_about("red")[0]["content"]}]
    with pytest.raises(SampleError, match="sample 2: the target has an image"):
        reward_by()(**call(["w", shown, "y", "z"], [user("Hi")] * 4))


# --- reads that were lost on the way


class Shaky(FakeBackend):
    """Loses its first reads."""

    def __init__(self, failures: int):
        super().__init__(by_hash)
        self.left = failures

    def _read(self, prefix, tail):
        self.left -= 1
        return Answer(None, "timeout") if self.left >= 0 else super()._read(prefix, tail)


FOUR = call(["w", "x"], items=("Is it red?", "Is it big?"))
"""A batch with four reads."""


@pytest.mark.parametrize(
    ("lost", "options", "least", "reads", "unscored"),
    [
        (3, {}, 0.5, 4 + 3, 0),
        (99, {}, 0.5, 4 + 4, 2),
        (5, {}, 0.5, 4 + 4, 0),
        (5, {}, 1.0, 4 + 4, 1),
        (8, {"retries": 2}, 0.5, 4 + 4 + 4, 0),
        (4, {"retries": 0}, 0.5, 4, 2),
    ],
)
def test_what_was_lost_is_asked_once_more_then_its_item_is_left_out_and_then_the_row(
    lost, options, least, reads, unscored
):
    reward = reward_by(Shaky(lost), scorer={"min_answered": least}, **options)
    rewards = reward(**FOUR)
    assert len(asked(reward)) == reads and rewards.count(None) == unscored
    assert set(asked(reward)[4:8]) <= set(asked(reward)[:lost]), "nothing else is asked again"
    answered = sorted(score.answered for score in reward.last.scores)
    if unscored == 0:
        assert answered == ([1, 2] if lost == 5 else [2, 2])
    if answered == [2, 2]:
        assert rewards == reward_by(Shaky(0))(**FOUR)


def test_a_failure_that_is_not_transient_is_not_asked_again():
    reward = reward_by(lambda prefix, tail: None)  # too long
    assert reward(**FOUR) == [None, None] and len(asked(reward)) == 4


def test_a_judge_that_answers_whole_checklists_is_asked_for_the_whole_one():
    class Writes(FakeBackend):
        def generate(self, prompts, sampling, arrived=None):
            self.calls.append(list(prompts))
            if len(self.calls) == 1:
                raise BackendError("the engine broke")
            return super().generate(prompts, sampling)

    backend = Writes(
        replies=[json.dumps({"answers": [{"index": n, "answer": "yes no".split()[n - 1]} for n in (1, 2)]})]
    )
    assert reward_by(backend, scorer={"mode": "batch"})(**FOUR) == [0.5, 0.5]
    assert backend.calls[0] == backend.calls[1]


# --- pairs of OnlineDPO


def failing(share: float, **options) -> ChecklistReward:
    """A reward whose judge breaks on this share of the targets, the same ones every time."""
    unlucky = FakeBackend(by_hash, fails=lambda prefix, tail: by_hash(prefix, "bad luck") < share, chunk_reads=1)
    return reward_by(unlucky, **options)


def online_dpo(folder, reward, trainer=OnlineDPOTrainer, adapter=None, **options):
    """An OnlineDPO trainer after two steps; what it was given is in `trainer.given`."""

    class Recorded(trainer):
        def _calculate_rewards_from_functions(self, prompts, **columns):
            rewards = super()._calculate_rewards_from_functions(prompts, **columns)
            self.given = [*getattr(self, "given", []), rewards.tolist()]
            return rewards

    settings = {key: value for key, value in ON_CPU.items() if key != "beta"} | {"max_new_tokens": 8} | options
    args = OnlineDPOConfig(str(folder), **settings, per_device_train_batch_size=4, max_length=512, max_steps=2)
    made = Recorded(
        # A CPU is slow in half precision, in which the weights are stored.
        model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list(rows(conversational=True, n=8)),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        peft_config=adapter,
    )
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    made.train()
    assert made.state.global_step == len(made.given) == 2
    made.moved = any(not value.equal(before[name]) for name, value in made.model.state_dict().items())
    made.ties = [entry["objective/ties"] for entry in made.state.log_history if "objective/ties" in entry]
    return made


def test_online_dpo_trains_with_it_and_no_failed_completion_loses_for_it(tmp_path, caplog):
    reward = failing(0.3, log=tmp_path / "reward.jsonl")
    trainer = online_dpo(tmp_path, reward)
    for rewards in trainer.given:
        pairs = list(zip(rewards[:4], rewards[4:], strict=True))
        assert all((first == 0) == (second == 0) for first, second in pairs), "a pair has two scores or none"
    scored = sum(value != 0 for rewards in trainer.given for value in rewards) / 16
    assert 0 < scored < 1 and trainer.moved
    assert caplog.text.count("ChecklistOnlineDPOTrainer, or set on_failure='raise'") == 1
    assert len((tmp_path / "reward.jsonl").read_text().splitlines()) == 16
    assert reward.pop_stats()["checklist_reward/unscored"] == pytest.approx(1 - scored)


def by_text(completions, **columns):
    return [by_hash(text_of(text), str(n)) for n, text in enumerate(completions)]


@pytest.mark.parametrize(("share", "others", "ties"), [(0.3, [], None), (1.0, [], 1.0), (1.0, [by_text], 0.0)])
def test_pairs_without_scores_are_left_out_by_our_online_dpo_trainer(tmp_path, caplog, share, others, ties):
    trainer = online_dpo(tmp_path, [failing(share), *others], ChecklistOnlineDPOTrainer)
    assert trainer.ties == [
        sum(a == b for a, b in zip(given[:4], given[4:], strict=True)) / 4 for given in trainer.given
    ]
    assert ties is None or set(trainer.ties) == {ties}
    assert trainer.moved == (ties != 1.0)
    assert "OnlineDPOTrainer" not in caplog.text


def test_a_penalty_for_a_missing_end_decides_pairs_without_scores(tmp_path):
    options = {"missing_eos_penalty": 9.0, "max_new_tokens": 20}  # long enough for some to end, not for all
    trainer = online_dpo(tmp_path, failing(1.0), ChecklistOnlineDPOTrainer, **options)
    entries = [entry for entry in trainer.state.log_history if "objective/ties" in entry]
    assert trainer.moved and any(0 < entry["objective/ties"] < 1 for entry in entries)
    for entry in entries:
        assert entry["objective/scores_margin"] == pytest.approx(9 * (1 - entry["objective/ties"]))
