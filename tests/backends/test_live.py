"""Engines around models that are in memory: what they answer, who they are, and what they leave behind."""

import copy
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Engine, ReadGroup, Sampling, model_identity, pocket_dir
from checklist_rewards.backends.live import LiveBackend, check_frozen, frozen, weights_hash
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.base import Ask
from checklist_rewards.judges.logprob import LogprobJudge
from tests.backends.answers import user
from tests.backends.architectures import in_autocast

READS = [
    Ask(ChecklistItem(question=question), target, "Write a short text. Use at least one digit.")
    for target in ("The 24 ronto holds this zatte.", "who is there?")
    for question in ("Does the response contain a digit?", "Does the response end with a question mark?")
]


def pocket(**options) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(pocket_dir(), **{"dtype": torch.float32} | options)


def policy(**options) -> PeftModel:
    """A LoRA policy whose adapter changes its answers, in training."""
    settings = {"target_modules": "all-linear", "lora_dropout": 0.2, "init_lora_weights": False, **options}
    return get_peft_model(pocket(), LoraConfig(r=4, **settings)).train()


def answers(engine: Engine) -> list:
    verdicts = LogprobJudge(engine).answer(READS)[0]
    return [(verdict.probabilities, verdict.mass) for verdict in verdicts]


FILED = Engine("pocket", backend="transformers")


def state(model) -> dict:
    weights = list(model.parameters())
    return {
        "training": [module.training for module in model.modules()],
        "trained": [weight.requires_grad for weight in weights],
        "gradients": [weight.grad is not None and weight.grad.tolist() for weight in weights],
        "weights": weights_hash(model, model.active_adapter),
        "random": torch.get_rng_state().tolist(),
        "adapter": model.active_adapter,
        "forward": model.forward,
        "hooks": [len(module._forward_pre_hooks) for module in model.modules()],
    }


def test_the_base_of_a_policy_answers_like_its_files_and_stays_so_while_the_adapter_trains():
    model = policy()
    engine = Engine.of_model(model)
    assert (engine.model, engine.identity) == ("pocket", FILED.identity)
    assert answers(engine) == answers(FILED)
    step(model, ["lora"])
    assert answers(engine) == answers(FILED)


def test_a_policy_keeps_training_modes_adapters_gradients_and_random_state_also_when_a_read_fails(monkeypatch):
    model = policy()
    model.get_submodule("base_model.model.model.layers.0").eval()  # one part was in evaluation mode before
    next(weight for weight in model.parameters() if weight.requires_grad).grad = torch.ones(4, 192)
    engine = Engine.of_model(model)
    before = state(model)
    answers(engine)
    assert state(model) == before
    monkeypatch.setattr(LiveBackend, "_label_logprobs", lambda *_: (_ for _ in ()).throw(KeyError("inside")))
    with pytest.raises(KeyError, match="inside"):
        answers(engine)
    assert state(model) == before


def test_steps_of_training_are_the_same_bit_for_bit_with_reads_between_them():
    def trained(reads: bool) -> list:
        torch.manual_seed(0)
        model = policy()
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
        read = partial(answers, Engine.of_model(model)) if reads else list
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
        losses = []
        for step in range(2):
            read()
            ids = torch.arange(40).reshape(2, 20) * 7 % 512 + step
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
                read()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return [*losses, *(weight.tolist() for weight in model.parameters() if weight.requires_grad)]

    assert trained(True) == trained(False)


def test_a_named_adapter_reads_with_that_adapter_and_has_an_identity_of_its_own():
    model = policy()
    model.add_adapter("ref", model.peft_config["default"])
    engine = Engine.of_model(model, adapter="ref")
    assert model.active_adapter == "default"
    own = copy.deepcopy(model)
    own.set_adapter("ref")
    merged = Engine.of_model(own.merge_and_unload(adapter_names=["ref"]))
    for (one, _), (other, _) in zip(answers(engine), answers(merged), strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert answers(engine) != answers(FILED)
    assert len({engine.identity, merged.identity, FILED.identity}) == 3
    with pytest.raises(ModelError, match="has no adapter 'other', only default, ref"):
        Engine.of_model(model, adapter="other")


def test_weights_that_are_not_those_of_the_files_have_another_identity(tmp_path):
    merged = policy().merge_and_unload()
    assert FILED.identity != Engine.of_model(merged).identity == Engine.of_model(copy.deepcopy(merged)).identity
    changed = pocket()
    with torch.no_grad():
        changed.get_output_embeddings().weight[200, 3] += 4.0
    assert Engine.of_model(changed).identity != FILED.identity
    folder = Path(shutil.copytree(pocket_dir(), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    save_file({f"other.{name}": weight for name, weight in weights.items()}, folder / "model.safetensors")
    unknown = pocket()  # the files have no weight of it
    unknown.config._name_or_path = str(folder)
    assert Engine.of_model(unknown).identity != model_identity(folder)
    before = weights_hash(merged)
    with torch.no_grad():
        merged.get_output_embeddings().weight[-1, -1] += 0.25
    assert weights_hash(merged) != before


def test_the_tokenizer_counts_in_the_identity_and_is_not_changed():
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    rules = tokenizer.backend_tokenizer.to_str()
    assert Engine.of_model(pocket(), tokenizer).identity == FILED.identity
    other = copy.deepcopy(tokenizer)
    other.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    assert Engine.of_model(pocket(), other).identity != FILED.identity
    assert tokenizer.backend_tokenizer.to_str() == rules


def test_a_model_without_files_needs_its_tokenizer():
    model, tokenizer = pocket(), AutoTokenizer.from_pretrained(pocket_dir())
    model.config._name_or_path = ""
    for build in (Engine.of_model, LiveBackend):
        with pytest.raises(ModelError, match="has no tokenizer in its files; pass the tokenizer"):
            build(model)
    engine = Engine.of_model(model, tokenizer)
    assert engine.model == type(model).__name__ and answers(engine) == answers(FILED)
    assert LiveBackend(model, spare=tokenizer).tokens.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert LiveBackend(pocket(), spare=tokenizer).identity == FILED.identity  # its files have one


def test_a_base_that_is_trained_too_is_refused():
    with pytest.raises(ModelError, match=r"trains biases of the base model \(bias='lora_only'\)"):
        Engine.of_model(policy(bias="lora_only"))
    model = policy()
    model.get_input_embeddings().weight.requires_grad_(True)
    with pytest.raises(ModelError, match="of the base model is trained"):
        check_frozen(model)


def test_modules_to_save_are_off_during_a_read():
    model = policy(target_modules=["q_proj"], modules_to_save=["lm_head"])
    with torch.no_grad():
        model.get_output_embeddings().modules_to_save["default"].weight.mul_(3)
    assert answers(Engine.of_model(model)) == answers(FILED)


def test_a_model_without_adapters_reads_as_it_is():
    model = pocket().train()
    assert answers(Engine.of_model(model)) == answers(FILED)
    assert model.training and all(weight.requires_grad for weight in model.parameters())


def test_a_scorer_takes_the_engine_and_a_thought_is_written_with_the_base():
    engine = Engine.of_model(policy())
    live = ChecklistScorer(engine, store=False, thinking=8)
    filed = ChecklistScorer("pocket", backend="transformers", store=False, thinking=8)
    checklist = ["Does the response contain a digit?"]
    assert live.score(checklist, "The 24 ronto.").model_dump() == filed.score(checklist, "The 24 ronto.").model_dump()


def step(model, names) -> None:
    """A step of training of the weights with one of these in their names."""
    weights = [weight for name, weight in model.named_parameters() if any(part in name for part in names)]
    with torch.no_grad():
        for weight in weights:
            weight.requires_grad_(True).add_(0.01 * torch.randn_like(weight))


@pytest.mark.parametrize(
    ("adapter", "trained", "trainable", "refused"),
    [
        ("ref", "ref", True, True),
        ("ref", "default", True, False),
        ("default", "default", False, True),  # its weights become trainable later
        (None, "embed_tokens", False, True),  # the base itself, under an adapter
        ("ref", "embed_tokens", False, True),
    ],
)
def test_a_judge_that_is_trained_is_refused_at_its_next_use(adapter, trained, trainable, refused):
    model = policy()
    model.add_adapter("ref", model.peft_config["default"])
    for name, weight in model.named_parameters():
        weight.requires_grad_(trainable and trained in name and "lora" in name)
    engine = Engine.of_model(model, adapter=adapter)
    backend = engine.load()
    uses = [lambda: answers(engine), lambda: backend.generate([user("Say it.")], Sampling(max_tokens=2))]
    before = [use() for use in uses]
    step(model, [trained])
    if refused:
        for use in uses:
            with pytest.raises(ModelError, match="have changed since this engine was created|changes during training"):
                use()
    else:
        assert [use() for use in uses] == before
    if trained == adapter:  # a new engine has another key
        assert Engine.of_model(model, adapter=adapter).identity != engine.identity


@pytest.mark.parametrize(
    ("part", "dtype"), [("embed_tokens", torch.float32), ("norm", torch.bfloat16), ("layers.0", torch.float16)]
)
def test_every_value_of_a_model_without_adapters_is_watched(part, dtype):
    model = pocket().requires_grad_(False).to(dtype)
    engine = Engine.of_model(model)
    weight = next(weight for name, weight in model.named_parameters() if part in name)
    with torch.no_grad():
        weight.view(-1)[weight.numel() // 3] += 0.25
    with pytest.raises(ModelError, match="the weights of 'pocket' have changed since this engine was created"):
        answers(engine)


def test_a_layer_whose_adapter_is_off_stays_off():
    model = policy()
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    layers[0].enable_adapters(False)
    with frozen(model):
        assert all(layer.disable_adapters for layer in layers)
    assert [layer.disable_adapters for layer in layers] == [True] + [False] * (len(layers) - 1)


def test_where_a_forward_pass_is_collective_nothing_is_kept_and_answers_are_the_same():
    prefixes = ["A long input. " * 80 + f"A {target} word. " * 20 for target in "abcd"]
    groups = [ReadGroup("Judge it. ", prefix, ("Is it red?", "Is it?")) for prefix in prefixes]
    model = pocket()
    one = LiveBackend(model)
    ranks = LiveBackend(model, forward=lambda **inputs: model(**inputs), gathered=lambda value: [value])
    with ranks.together():
        answers, shared = ranks.read(groups, ("yes", "no"))
    expected, alone = one.read(groups, ("yes", "no"))
    assert (one.keeps, ranks.keeps) == (True, False) and (alone.cached, shared.cached) == (8, 0)
    for first, second in zip(expected, answers, strict=True):
        assert first.logprobs == pytest.approx(second.logprobs, abs=1e-4)


def test_the_identity_has_the_precision_in_which_it_computes_also_once_a_trainer_has_wrapped_the_model():
    model = policy()
    engine = LiveBackend(model)
    assert engine.identity == FILED.identity
    in_autocast(model)  # as TRL's default bf16=True
    of_files = Engine("pocket", backend="transformers", settings={"dtype": "bfloat16"})
    assert engine.identity == of_files.identity != FILED.identity and engine.layers.dtype == torch.bfloat16
    assert LiveBackend(pocket(dtype="bfloat16")).identity == of_files.identity
    changed = pocket()
    step(changed, ["embed_tokens"])
    engine = LiveBackend(changed)  # whose weights are hashed
    before = engine.identity
    in_autocast(changed)
    assert engine.identity != before != FILED.identity


def test_frozen_can_be_entered_twice():
    model = policy()
    with frozen(model), frozen(model):
        assert not model.training
    assert model.training and any(weight.requires_grad for weight in model.parameters())
