"""A judge that fails: what trainers make of it, and that no advantage moves because of it."""

import json

import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import AutoModelForCausalLM

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, pocket_dir
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.ranks import abstained
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.test_trl_trainers import ON_CPU, by_hash, rows, text_of

pytestmark = pytest.mark.slow


def unlucky(share: float):
    return lambda prefix, tail="": by_hash(prefix, "bad luck") < share


def failing(share: float, **options) -> ChecklistReward:
    """A reward whose judge breaks on this share of the targets, the same ones every time."""
    backend = FakeBackend(by_hash, fails=unlucky(share), chunk_reads=1)
    return ChecklistReward(ChecklistScorer(backend=backend, store=False), **options)


def asks_about(colour: str) -> list[dict]:
    image = {"type": "image", "image": Image.new("RGB", (8, 8), colour)}
    return [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]


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

    @pytest.mark.parametrize("options", [{"on_failure": "group"}, {}], ids=["group", "pairs"])
    def test_prompts_with_images_are_grouped_by_content(self, options):
        # A dataset decodes an image anew for every completion of its row.
        batch = self.batch | {"prompts": [asks_about(colour) for colour in ("red", "blue", "red", "blue")]}
        as_pairs = {} if options else {"trainer_state": object()}
        assert self.reward(**options, images="ignore")(**batch, **as_pairs) == [None, 0.5, None, 0.5]

    def test_an_image_is_refused_by_a_judge_of_text_unless_it_is_to_be_ignored(self):
        told = [{"role": "user", "content": "Hi"}]
        batch = self.batch | {"prompts": [told, told, asks_about("red"), told], "completions": ["w", "x", "y", "z"]}
        with pytest.raises(SampleError, match="sample 3: the input has an image, but the judge 'pocket' reads text"):
            self.reward()(**batch)
        assert self.reward(images="ignore")(**batch) == [0.5] * 4
        shown = [{"role": "assistant", "content": asks_about("red")[0]["content"]}]
        with pytest.raises(SampleError, match="sample 2: the target has an image"):
            self.reward()(**batch | {"prompts": [told] * 4, "completions": ["w", shown, "y", "z"]})
        with pytest.raises(SampleError, match="images='keep' is not known; allowed: 'show', 'ignore'"):
            self.reward(images="keep")

    @pytest.mark.parametrize("version", ["0.29.1", "1.5.4", "1.5.0.dev0"])
    def test_trl_before_1_6_counts_none_as_0_even_alone_so_the_group_abstains(self, monkeypatch, caplog, version):
        monkeypatch.setattr("trl.__version__", version)
        reward = self.reward()
        assert reward(**self.batch) == [None, 0.5, None, 0.5] and reward.exchanges(Call([], []))
        assert f"TRL {version} counts None as 0 even for a single reward" in caplog.text

    @pytest.mark.parametrize("version", ["1.6.0", "1.16.0", "2.0", "unknown"])
    def test_newer_versions_leave_none_out(self, monkeypatch, version):
        monkeypatch.setattr("trl.__version__", version)
        assert self.reward()(**self.batch) == [0.5, 0.5, None, 0.5]

    def test_or_training_stops(self):
        with pytest.raises(BackendError, match="1 of 4 completions could not be scored: backend_error .1 reads."):
            self.reward(on_failure="raise")(**self.batch)
        fine = self.batch | {"completions": ["w", "x", "y", "z"], "checklist": [["Is it red?"]] * 3 + [None]}
        assert self.reward(on_failure="raise")(**fine) == [0.5, 0.5, 0.5, None]

    def test_a_pair_of_online_dpo_always_abstains_together(self):
        calls_like_online_dpo = self.batch | {"trainer_state": object()}
        assert self.reward()(**calls_like_online_dpo) == [None, 0.5, None, 0.5]
        with_hooks = calls_like_online_dpo | {"log_metric": lambda name, value: None}
        assert self.reward()(**with_hooks) == [0.5, 0.5, None, 0.5]


class Shaky(FakeBackend):
    """Loses its first reads on the way."""

    def __init__(self, failures: int):
        super().__init__(by_hash)
        self.left = failures

    def _read(self, prefix, tail):
        self.left -= 1
        return Answer(None, "timeout") if self.left >= 0 else super()._read(prefix, tail)


class TestRetries:
    batch = dict(prompts=["A"] * 2, completions=["w", "x"], checklist=[["Is it red?", "Is it big?"]] * 2)

    def reward(self, failures: int, least: float = 0.5, **options) -> tuple[ChecklistReward, FakeBackend]:
        backend = Shaky(failures)
        scorer = ChecklistScorer(backend=backend, store=False, min_answered=least)
        return ChecklistReward(scorer, **options), backend

    def test_what_was_lost_on_the_way_is_asked_once_more_and_nothing_else_is(self):
        reward, backend = self.reward(failures=3)
        whole, _ = self.reward(failures=0)
        assert reward(**self.batch) == whole(**self.batch)
        assert len(backend.asked) == 4 + 3 and sorted(backend.asked[:3]) == sorted(backend.asked[4:])

    def test_then_the_item_is_left_out_and_then_the_row(self):
        detail = []
        reward, _ = self.reward(failures=4 + 1)  # of four reads, and of the one that is asked again first
        first, second = reward(**self.batch, log_extra=lambda name, values: detail.extend(values))
        answered = [text.count("✓") + text.count("✗") for text in detail]
        assert sorted(answered) == [1, 2] and None not in (first, second)
        strict, _ = self.reward(failures=4 + 1, least=1)
        assert sum(value is None for value in strict(**self.batch)) == 1
        hopeless, backend = self.reward(failures=99)
        assert hopeless(**self.batch) == [None, None] and len(backend.asked) == 8

    def test_as_often_as_is_wanted(self):
        assert None not in self.reward(failures=8, retries=2)[0](**self.batch)
        reward, backend = self.reward(failures=4, retries=0)
        assert reward(**self.batch) == [None, None] and len(backend.asked) == 4

    def test_what_no_asking_again_can_mend_is_not_asked_again(self):
        backend = FakeBackend(lambda prefix, tail: None)  # too long
        reward = ChecklistReward(ChecklistScorer(backend=backend, store=False))
        assert reward(**self.batch) == [None, None] and len(backend.asked) == 4

    def test_a_judge_that_answers_whole_checklists_is_asked_for_the_whole_one(self):
        class Writes(FakeBackend):
            def generate(self, prompts, sampling, arrived=None):
                self.calls.append(list(prompts))
                if len(self.calls) == 1:
                    raise BackendError("the engine broke")
                return super().generate(prompts, sampling)

        answers = [{"index": 1, "answer": "yes"}, {"index": 2, "answer": "no"}]
        backend = Writes(replies=[json.dumps({"answers": answers})])
        reward = ChecklistReward(ChecklistScorer(backend=backend, store=False, mode="batch"))
        assert reward(**self.batch) == [0.5, 0.5]
        assert backend.calls[0] == backend.calls[1]


def test_groups_that_failed_elsewhere_abstain_here_too():
    assert abstained([0.1, None, 0.3], ["a", "b", "c"], {"c"}) == [0.1, None, None]


def online_dpo(folder, reward, trainer=None, **options):
    """An OnlineDPO trainer after two steps; what it was given is in `trainer.given`."""
    from transformers import AutoTokenizer
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    class Recorded(trainer or OnlineDPOTrainer):
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
    )
    made.before = {name: value.clone() for name, value in made.model.state_dict().items()}
    made.train()
    assert made.state.global_step == len(made.given) == 2
    made.moved = any(not value.equal(made.before[name]) for name, value in made.model.state_dict().items())
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


@pytest.mark.parametrize(
    ("share", "rewards", "ties"),
    [(0.3, 1, None), (1.0, 1, 1.0), (1.0, 2, 0.0)],
)
def test_pairs_without_scores_are_left_out_by_our_online_dpo_trainer(tmp_path, caplog, share, rewards, ties):
    from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer

    def by_text(completions, **columns):
        return [by_hash(text_of(text), str(n)) for n, text in enumerate(completions)]

    functions = [failing(share), by_text][:rewards]
    trainer = online_dpo(tmp_path, functions, ChecklistOnlineDPOTrainer)
    logged = [entry["objective/ties"] for entry in trainer.state.log_history if "objective/ties" in entry]
    found = [sum(a == b for a, b in zip(given[:4], given[4:], strict=True)) / 4 for given in trainer.given]
    assert logged == found
    assert ties is None or set(logged) == {ties}
    assert trainer.moved == (ties != 1.0)
    assert "OnlineDPOTrainer" not in caplog.text


def test_a_penalty_for_a_missing_end_decides_pairs_without_scores(tmp_path):
    from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer

    options = {"missing_eos_penalty": 9.0, "max_new_tokens": 20}  # long enough for some to end, not for all
    trainer = online_dpo(tmp_path, failing(1.0), ChecklistOnlineDPOTrainer, **options)
    entries = [entry for entry in trainer.state.log_history if "objective/ties" in entry]
    assert trainer.moved and any(0 < entry["objective/ties"] < 1 for entry in entries)
    for entry in entries:
        assert entry["objective/scores_margin"] == pytest.approx(9 * (1 - entry["objective/ties"]))
