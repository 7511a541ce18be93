"""`model="reference"` inside TRL's trainers: the judge is the base of a LoRA policy, or the reference of a KL term."""

import json
import logging

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from pocket.world import tasks
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, pocket_dir
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.configured import CONFIG_VARIABLE
from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.trl import ChecklistReward
from tests.ranks import on_two_ranks

pytestmark = pytest.mark.slow

LORA = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)
SETTINGS = dict(
    use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
    bf16=False,  # compared with a copy of the model that reads in float32
    save_strategy="no",  # no test here reads a checkpoint
    logging_steps=1,  # every step is compared
    seed=0,
    max_steps=2,
)
ONE_GROUP = dict(per_device_train_batch_size=4, max_completion_length=8)  # of short texts, where a step is slow
SMALL = dict(per_device_train_batch_size=8, num_generations=4, max_completion_length=16, learning_rate=0.01)


def rows(n: int = 4) -> list[dict]:
    return [
        {
            "prompt": [{"role": "user", "content": task.instruction}],
            "checklist": [constraint.question() for constraint in task.constraints],
        }
        for task in tasks(n, seed=1, split="train")
    ]


class Recorded(ChecklistReward):
    """Keeps the rewards of each call."""

    def __call__(self, *arguments, **columns):
        rewards = super().__call__(*arguments, **columns)
        self.given = [*getattr(self, "given", []), rewards]
        return rewards


def train(rewards, folder, *, algorithm="GRPO", adapter=LORA, model=None, **options):
    trainer = getattr(trl, f"{algorithm}Trainer")(
        model=model or str(pocket_dir()),
        reward_funcs=rewards,
        args=getattr(trl, f"{algorithm}Config")(output_dir=str(folder), **{**SETTINGS, **SMALL, **options}),
        train_dataset=Dataset.from_list(rows()),
        peft_config=adapter,
    )
    trainer.train()
    return trainer


def short(completions, **_) -> list[float]:
    return [-len(completion[-1]["content"]) / 100 for completion in completions]


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO"])
def test_the_base_of_a_lora_policy_rewards_like_a_separate_copy_and_shares_its_store(tmp_path, algorithm):
    own = Recorded(model="reference", store=tmp_path / "store", name="own")
    copy = Recorded(model="pocket", backend="transformers", store=tmp_path / "store", name="copy")
    trainer = train([own, copy], tmp_path, algorithm=algorithm, beta=0.0)
    assert own.given == copy.given and len({value for call in own.given for value in call}) > 4
    assert own.scorer.receipt.asked > 0 and copy.scorer.receipt.asked == 0  # every read was in the store
    assert own.scorer.judge.name == "pocket"
    assert not torch.equal(*(trainer.model.get_input_embeddings().weight[:2]))


def test_reads_in_bf16_are_stored_apart_from_those_in_single_precision(tmp_path):
    own = Recorded(model="reference", store=tmp_path / "store", name="own")
    copy = Recorded(model="pocket", backend="transformers", store=tmp_path / "store", name="copy")
    train([own, copy], tmp_path, max_steps=1, bf16=True, **ONE_GROUP)
    assert own.given != copy.given == [[pytest.approx(value, abs=0.05) for value in call] for call in own.given]
    assert copy.scorer.receipt.asked == own.scorer.receipt.asked > 0
    again = Recorded(model="reference", store=tmp_path / "store", name="again")
    train([again], tmp_path, max_steps=1, bf16=True, **ONE_GROUP)
    assert again.scorer.receipt.asked == 0 and again.given == own.given


def test_training_is_the_same_bit_for_bit_with_and_without_reads(tmp_path):
    def trained(*rewards):
        options = {"reward_weights": [1.0, 0.0][: len(rewards)], "beta": 0.1, **ONE_GROUP}
        trainer = train(list(rewards), tmp_path, max_steps=3, num_iterations=2, **options)
        history = [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]
        return history, {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}

    reads = Recorded(model="reference", store=False)
    history, weights = trained(short, reads)
    same_history, same_weights = trained(short)
    assert len(reads.given) == 2 and any(loss for loss, _ in history)
    assert history == same_history
    assert all(torch.equal(weights[name], weight) for name, weight in same_weights.items())


def test_with_a_kl_term_the_reference_model_judges(tmp_path):
    own = Recorded(model="reference", store=False, name="own")
    copy = Recorded(model="pocket", backend="transformers", store=False, name="copy")
    trainer = train([own, copy], tmp_path, adapter=None, beta=0.1, learning_rate=1e-3)
    assert references_of(own.scorer.judge)[0].bound.model is trainer.ref_model
    assert own.given == copy.given


def test_an_adapter_that_is_trained_further_with_a_kl_term_is_judged_by_its_start(tmp_path):
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    policy = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    reward = Recorded(model="reference", store=False)
    train(reward, tmp_path, adapter=None, model=policy, beta=0.1)
    bound = references_of(reward.scorer.judge)[0].bound
    assert bound.adapter == "ref"
    assert bound.identity != Engine("pocket", backend="transformers").identity


def test_trainers_without_frozen_weights_are_told_what_to_change(tmp_path):
    with pytest.raises(ModelError, match=r"this GRPOTrainer has none: train an adapter \(peft_config=LoraConfig"):
        train(ChecklistReward(model="reference", store=False), tmp_path, adapter=None, beta=0.0)
    with pytest.raises(ModelError, match="sync_ref_model=True changes the reference during training"):
        options = {"adapter": None, "beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 1}
        train(ChecklistReward(model="reference", store=False), tmp_path, **options)


def test_a_reward_for_another_base_is_refused(tmp_path):
    reward = ChecklistReward(model="reference", store=False)
    train(reward, tmp_path, max_steps=1, beta=0.0)
    train(reward, tmp_path, max_steps=1, beta=0.0)  # the same base in another trainer
    changed = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    with torch.no_grad():
        changed.get_input_embeddings().weight.mul_(1.5)
    with pytest.raises(ModelError, match="create a reward for each trainer"):
        train(reward, tmp_path, max_steps=1, model=changed, beta=0.0)


def test_without_a_trainer_it_says_where_it_judges():
    reward = ChecklistReward(model="reference", store=False)
    with pytest.raises(ModelError, match=r"needs the trainer that calls the reward.*Engine.of_model\(model, tokeni"):
        reward(prompts=["a"], completions=["b"], checklist=[["Is it b?"]])
    with pytest.raises(ModelError, match="model='reference' is the reference model of a trainer"):
        ChecklistScorer(model="reference", store=False).score(["Is it b?"], "b")


@pytest.mark.parametrize("mode", [{"mode": "batch"}, {"capture_reasoning": True}, {"mode": "quality"}, {"votes": 3}])
def test_modes_that_write_replies_are_refused(mode):
    with pytest.raises(SampleError, match="model='reference' reads the probabilities of labels and writes no replies"):
        ChecklistReward(model="reference", store=False, **mode)


def test_only_the_size_of_a_batch_can_be_set():
    assert ChecklistReward(model="reference", store=False, engine_args={"max_batch_tokens": 512})
    with pytest.raises(ModelError, match=r"'dtype' is not an? engine setting of model='reference'|dtype"):
        ChecklistReward(model="reference", store=False, engine_args={"dtype": "bfloat16"})


def test_options_scales_panels_and_thoughts(tmp_path):
    judges = [{"model": "reference"}, {"model": str(pocket_dir()), "backend": "transformers"}]
    (tmp_path / "panel.yaml").write_text(json.dumps({"panel": {"rule": "mean"}, "judges": judges}))
    rewards = [
        Recorded(model="reference", store=False, name="scale", scale=5, mass_floor=0.0),
        Recorded(judge=tmp_path / "panel.yaml", store=False, name="panel"),
        Recorded(model="pocket", backend="transformers", store=False, name="alone"),
        Recorded(model="reference", store=False, name="thought", thinking=4),
    ]
    train(rewards, tmp_path, max_steps=1, beta=0.0)
    scale, panel, alone, thought = (reward.given[0] for reward in rewards)
    assert panel == [None if value is None else pytest.approx(value, abs=1e-6) for value in alone]
    assert len(set(scale)) > 2 and len(set(thought)) > 2


def test_online_dpo(tmp_path):
    from trl.experimental.online_dpo import OnlineDPOConfig

    own = Recorded(model="reference", store=False, name="own")
    copy = Recorded(model="pocket", backend="transformers", store=False, name="copy")
    trainer = ChecklistOnlineDPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        reward_funcs=[own, copy],
        args=OnlineDPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=4, max_new_tokens=12, **SETTINGS),
        train_dataset=Dataset.from_list(rows()),
        peft_config=LORA,
    )
    trainer.train()
    assert own.given and own.given == copy.given


def test_a_monitored_reward_reads_its_retests_with_the_reference(tmp_path):
    shares = dict(extra_reads=1.0, retest_share=0.5, shadow_share=0.5)
    settings = {"log": tmp_path / "monitor.jsonl", "shadow": {"model": "reference"}, **shares}
    reward = ChecklistReward(model="reference", store=False, monitor=settings)
    train(reward, tmp_path, max_steps=2, beta=0.0)
    lines = [json.loads(line) for line in (tmp_path / "monitor.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    reads = {name: sum(step["reads"][name] for step in steps) for name in steps[0]["reads"]}
    assert reads["retests"] > 0 and reads["shadow"] > 0
    assert reward.monitor.shadow.receipt.asked == reads.pop("shadow")
    assert reward.scorer.receipt.asked == sum(reads.values()) and reward.monitor.shadow.receipt.unanswered == 0
    last = steps[-1]  # the shadow judge has the same weights as the judge, and neither is the policy
    assert last["statistics"]["shadow_reward"] == pytest.approx(last["statistics"]["shadow_own"], abs=1e-5)
    assert last["signals"]["flips"]["now"] == 0 and last["signals"]["shadow_disagreement"]["now"] == 1


def test_the_evaluation_callback_reads_with_the_reference(tmp_path):
    def metrics(scorer):
        trainer = trl.GRPOTrainer(
            model=str(pocket_dir()),
            reward_funcs=short,
            args=trl.GRPOConfig(output_dir=str(tmp_path), beta=0.0, **{**SETTINGS, **SMALL, "max_steps": 1}),
            train_dataset=Dataset.from_list(rows()),
            peft_config=LORA,
        )
        trainer.add_callback(ChecklistEvalCallback(trainer, scorer, rows(2), every=1))
        trainer.train()
        return [
            entry["checklist_eval/score"] for entry in trainer.state.log_history if "checklist_eval/score" in entry
        ]

    own = metrics(ChecklistScorer(model="reference", store=False))
    assert len(own) == 2 and own == metrics(ChecklistScorer("pocket", backend="transformers", store=False))


def test_a_yaml_file_names_it(tmp_path, monkeypatch):
    (tmp_path / "reward.yaml").write_text("model: reference\nstore: false\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "reward.yaml"))
    from checklist_rewards.rewards import trl as door

    reward = door.reward
    train(reward, tmp_path, max_steps=1, beta=0.0)
    assert reward.scorer.receipt.asked > 0


def test_a_reference_that_cannot_judge_is_reported_before_the_first_reward(tmp_path, caplog):
    changed = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    with torch.no_grad():
        changed.get_output_embeddings().weight.zero_()
    with caplog.at_level(logging.WARNING):
        train(ChecklistReward(model="reference", store=False), tmp_path, max_steps=1, model=changed, beta=0.0)
    assert any("model='reference': the judge" in record.message for record in caplog.records)


def close(rewards: list) -> list:
    return [None if value is None else pytest.approx(value, abs=1e-5) for value in rewards]


def test_two_ranks_give_the_rewards_of_separate_copies(tmp_path):
    for log in on_two_ranks("rewards/reference_ranks.py", tmp_path):
        assert log["own"] == [close(call) for call in log["copy"]]
        assert log["steps"] == 2 and log["asked"] > 0


def test_two_ranks_with_parts_of_the_weights_read_together(tmp_path):
    logs = on_two_ranks("rewards/sharded_reference_ranks.py", tmp_path)
    for log in logs:
        assert log["sharded"] and log["identity"] == Engine("pocket", backend="transformers").identity
        assert log["own"] == log["watched"] == [close(call) for call in log["copy"]]
        assert log["losses"] == log["plain"]
    assert [log["error"] for log in logs] == [
        "OtherRankError: rank 1 failed: 'the data of rank 1'",
        "KeyError: 'the data of rank 1'",
    ]
