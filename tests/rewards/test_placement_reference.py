"""`model="reference"` inside TRL's trainers: the judge is the base of a LoRA policy, or the reference of a KL term."""

import json
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, pocket_dir
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.rewards import trl as door
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.configured import CONFIG_VARIABLE
from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer
from checklist_rewards.rewards.placement import bind_reference, reference_of, references_of
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl
from tests.ranks import on_two_ranks
from tests.rewards.fakes import Recorded
from tests.rewards.placement_settings import LORA, by_code, losses, rows
from tests.rewards.test_reward_failures import online_dpo
from tests.rewards.test_trl_trainers import train as run

pytestmark = pytest.mark.slow

ONE_GROUP = dict(per_device_train_batch_size=4, max_completion_length=8)  # of short texts, where a step is slow


def by_reference(name="own", store=False, **options) -> Recorded:
    return Recorded(**{"model": "reference", "store": store, "name": name, **options})


def by_copy(store=False) -> Recorded:
    return by_reference("copy", store, model="pocket", backend="transformers")


def pocket(changed=lambda model: None):
    """The policy, after its weights were changed."""
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    with torch.no_grad():
        changed(model)
    return model


def train(rewards, folder, *, adapter=LORA, **options):
    """A run of the pocket policy, compared with a copy of the model that reads in float32."""
    settings = {"data": rows(4), "max_completion_length": 16, "learning_rate": 0.01, **options}
    return run(rewards, folder, adapter=adapter, **settings)


def close(rewards: list, abs=1e-5) -> list:
    return [None if value is None else pytest.approx(value, abs=abs) for value in rewards]


def test_the_base_of_a_lora_policy_rewards_like_a_separate_copy_and_shares_its_store(tmp_path):
    own, copy = by_reference(store=tmp_path / "store"), by_copy(tmp_path / "store")
    trainer = train([own, copy], tmp_path, algorithm="RLOO", beta=0.0)
    assert own.given == copy.given and len({value for call in own.given for value in call}) > 4
    assert own.scorer.receipt.asked > 0 and copy.scorer.receipt.asked == 0  # every read was in the store
    assert own.scorer.judge.name == "pocket"
    assert not torch.equal(*(trainer.model.get_input_embeddings().weight[:2]))


def test_all_that_a_judge_may_be_reads_with_the_reference(tmp_path, monkeypatch):
    """Scales, panels, thoughts, a reward of a YAML file, a monitor with its shadow judge, and held-out prompts."""
    (tmp_path / "reward.yaml").write_text("model: reference\nstore: false\nname: yaml\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "reward.yaml"))
    judges = [{"model": "reference"}, {"model": str(pocket_dir()), "backend": "transformers"}]
    (tmp_path / "panel.yaml").write_text(json.dumps({"panel": {"rule": "mean"}, "judges": judges}))
    shares = dict(extra_reads=1.0, retest_share=0.5, shadow_share=0.5)
    monitor = {"log": tmp_path / "monitor.jsonl", "shadow": {"model": "reference", "store": False}, **shares}
    rewards = own, copy, scale, panel, thought, monitored = [
        by_reference(),
        by_copy(),
        by_reference("scale", scale=5, mass_floor=0.0),
        Recorded(judge=tmp_path / "panel.yaml", store=False, name="panel"),
        by_reference("thought", thinking=4),
        by_reference("monitored", monitor=monitor),
    ]
    scorers = {"of_reference": own.scorer, "of_copy": copy.scorer}

    def evaluates(name):
        return lambda trainer: ChecklistEvalCallback(trainer, scorers[name], rows(2), every=1, name=name)

    trainer = train([*rewards, door.reward], tmp_path, beta=0.0, callbacks=map(evaluates, scorers))

    assert own.given == copy.given == monitored.given == [close(call, 1e-6) for call in panel.given]
    assert door.reward.scorer.receipt.asked > 0 and door.reward.last.rewards == own.given[-1]
    assert len(set(scale.given[0])) > 2 and len(set(thought.given[0])) > 2
    history = trainer.state.log_history
    evaluated = [[entry[f"{name}/score"] for entry in history if f"{name}/score" in entry] for name in scorers]
    assert evaluated[0] == evaluated[1] and len(evaluated[0]) == 3

    steps = [line for line in read_jsonl(tmp_path / "monitor.jsonl") if line["kind"] == "step"]
    assert monitored.monitor.shadow.receipt.asked > 0 and monitored.monitor.shadow.receipt.unanswered == 0
    last = steps[-1]  # the shadow judge has the same weights as the judge, and neither is the policy
    assert last["statistics"]["shadow_reward"] == pytest.approx(last["statistics"]["shadow_own"], abs=1e-5)
    assert last["signals"]["flips"]["now"] == 0 and last["signals"]["shadow_disagreement"]["now"] == 1


def test_reads_in_bf16_are_stored_apart_from_those_in_single_precision(tmp_path):
    own, copy = by_reference(store=tmp_path / "store"), by_copy(tmp_path / "store")
    once = {"max_steps": 1, "bf16": True, **ONE_GROUP}
    train([own, copy], tmp_path, **once)
    assert own.given != copy.given == [close(call, 0.05) for call in own.given]
    assert copy.scorer.receipt.asked == own.scorer.receipt.asked > 0
    again = by_reference("again", tmp_path / "store")
    train(again, tmp_path, **once)
    assert again.scorer.receipt.asked == 0 and again.given == own.given


def test_training_is_the_same_bit_for_bit_with_and_without_reads(tmp_path):
    def trained(*rewards):
        options = {"reward_weights": [1.0, 0.0][: len(rewards)], "beta": 0.1, **ONE_GROUP}
        trainer = train(list(rewards), tmp_path, max_steps=3, num_iterations=2, **options)
        return losses(trainer), {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}

    reads = by_reference()
    history, weights = trained(by_code, reads)
    same_history, same_weights = trained(by_code)
    assert len(reads.given) == 2 and any(loss for loss, _ in history)
    assert history == same_history
    assert all(torch.equal(weights[name], weight) for name, weight in same_weights.items())


def test_with_a_kl_term_the_reference_model_judges(tmp_path):
    own, copy = by_reference(), by_copy()
    trainer = train([own, copy], tmp_path, adapter=None, beta=0.1, learning_rate=1e-3)
    assert references_of(own.scorer.judge)[0].bound.model is trainer.ref_model
    assert own.given == copy.given


def test_an_adapter_that_is_trained_further_with_a_kl_term_is_judged_by_its_start(tmp_path):
    torch.manual_seed(1)
    policy = get_peft_model(pocket(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    reward = by_reference()
    train(reward, tmp_path, adapter=None, model=policy, beta=0.1, max_steps=1, **ONE_GROUP)
    bound = references_of(reward.scorer.judge)[0].bound
    assert bound.adapter == "ref"
    assert bound.identity != Engine("pocket", backend="transformers").identity


class GRPOTrainer(SimpleNamespace):
    """What a reward uses of a trainer that it judges with."""

    accelerator = SimpleNamespace(unwrap_model=lambda model: model)
    ref_model = None


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        (GRPOTrainer(model=object()), r"this GRPOTrainer has none: train an adapter \(peft_config=LoraConfig"),
        (
            SimpleNamespace(model=object(), accelerator=GRPOTrainer.accelerator),  # such as SDPOTrainer
            r"train an adapter \(peft_config=LoraConfig\(...\)\), or name a judge\.$",
        ),
        (
            GRPOTrainer(ref_model=object(), args=SimpleNamespace(sync_ref_model=True)),
            "sync_ref_model=True changes the reference during training",
        ),
    ],
)
def test_trainers_without_frozen_weights_are_told_what_to_change(trainer, words):
    with pytest.raises(ModelError, match=words):
        reference_of(trainer)


def test_a_reward_for_another_base_is_refused_and_one_that_cannot_judge_is_reported(caplog):
    def bind(judge, changed):
        tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
        bind_reference(judge, GRPOTrainer(model=get_peft_model(pocket(changed), LORA), processing_class=tokenizer))

    judge = by_reference().scorer.judge
    for _ in range(2):  # the same base in another trainer
        bind(judge, lambda model: None)
    with pytest.raises(ModelError, match="create a reward for each trainer"):
        bind(judge, lambda model: model.get_input_embeddings().weight.mul_(1.5))
    assert "the judge" not in caplog.text
    bind(by_reference().scorer.judge, lambda model: model.get_output_embeddings().weight.zero_())
    assert "model='reference': the judge" in caplog.text


def test_without_a_trainer_it_says_where_it_judges():
    with pytest.raises(ModelError, match=r"needs the trainer that calls the reward.*Engine.of_model\(model, tokeni"):
        by_reference()(prompts=["a"], completions=["b"], checklist=[["Is it b?"]])
    with pytest.raises(ModelError, match="model='reference' is the reference model of a trainer"):
        ChecklistScorer(model="reference", store=False).score(["Is it b?"], "b")


@pytest.mark.parametrize("mode", [{"mode": "batch"}, {"capture_reasoning": True}, {"mode": "quality"}, {"votes": 3}])
def test_modes_that_write_replies_are_refused(mode):
    with pytest.raises(SampleError, match="model='reference' reads the probabilities of labels and writes no replies"):
        ChecklistReward(model="reference", store=False, **mode)


def test_only_the_size_of_a_batch_can_be_set():
    assert by_reference(engine_args={"max_batch_tokens": 512})
    with pytest.raises(ModelError, match="dtype"):
        by_reference(engine_args={"dtype": "bfloat16"})


def test_online_dpo(tmp_path):
    own, copy = by_reference(), by_copy()
    online_dpo(tmp_path, [own, copy], ChecklistOnlineDPOTrainer, LORA, max_new_tokens=12)
    assert own.given and own.given == copy.given


def test_two_ranks_give_the_rewards_of_separate_copies(tmp_path):
    """Each has a part of the weights."""
    logs = on_two_ranks("rewards/placement_ranks.py", tmp_path, "together")
    parts = [log["together"] for log in logs]
    for log in parts:
        assert log["sharded"] and log["identity"] == Engine("pocket", backend="transformers").identity
        assert log["own"] == log["watched"] == [close(call) for call in log["copy"]]
        assert log["losses"] == log["plain"]
    assert [log["error"] for log in parts] == [
        "OtherRankError: rank 1 failed: 'the data of rank 1'",
        "KeyError: 'the data of rank 1'",
    ]
