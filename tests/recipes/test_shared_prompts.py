"""GRPO that computes each prompt once: the same log-probabilities, gradients and samples as TRL."""

import pytest
import torch
from datasets import Dataset
from english.shared_prompts import SharedPromptTrainer, sample
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards.backends import pocket_dir


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    size = len(AutoTokenizer.from_pretrained(pocket_dir()))
    config = LlamaConfig(vocab_size=size, num_key_value_heads=2, initializer_range=0.3, **shape)
    return LlamaForCausalLM(config).eval()


def test_samples_at_a_low_temperature_are_the_most_probable_answers(model):
    prompts = [[5, 6, 7, 8], [9], [3, 4]]
    greedy = [
        model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=6, eos_token_id=-1)[0, len(prompt) :]
        for prompt in prompts
    ]
    expected = [each.tolist() for each in greedy]
    ended = expected[0][2]  # answers that have this token end with it
    cut = [answer[: answer.index(ended) + 1] if ended in answer else answer for answer in expected]
    how = {"max_tokens": 6, "temperature": 1e-5}
    assert sample(model, prompts, 2, eos=[-1], **how) == [[answer, answer] for answer in expected]
    assert sample(model, prompts, 2, eos=[ended], **how) == [[answer, answer] for answer in cut]


def test_samples_have_the_probabilities_of_the_model(model):
    with torch.no_grad():
        probabilities = (model(torch.tensor([[5, 6]])).logits[0, -1] / 2).softmax(-1)
    torch.manual_seed(0)
    [answers] = sample(model, [[5, 6]], 4000, max_tokens=1, temperature=2.0, eos=[])
    counts = torch.bincount(torch.tensor([answer[0] for answer in answers]), minlength=len(probabilities))
    error = (probabilities * (1 - probabilities) / 4000).sqrt()
    assert ((counts / 4000 - probabilities).abs() <= 5 * error + 1 / 4000).all()


def no_reward(completions, **columns):
    return [0.0 for _ in completions]


def trainer_of(model, folder, reward=no_reward, **options):
    # Without a GPU, TRL refuses its own default, bf16. One test below sets it; sums are compared in float32.
    options = {"use_cpu": True, "bf16": False, "temperature": 0.7, **options}
    return SharedPromptTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(pocket_dir(), padding_side="left"),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * 2),
        args=GRPOConfig(str(folder), per_device_train_batch_size=4, num_generations=2, **options),
    )


def test_log_probabilities_and_gradients_are_those_of_trl(model, tmp_path):
    trainer = trainer_of(model, tmp_path)
    # Two prompts of 3 and 2 tokens with two answers each, which begin alike, in the order of a shuffled batch.
    ids = torch.tensor([[5, 6, 7, 8, 9, 0], [0, 3, 4, 9, 0, 0], [5, 6, 7, 8, 9, 9], [0, 3, 4, 3, 8, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]])
    found = []
    for method in (
        SharedPromptTrainer._get_per_token_logps_and_entropies,
        GRPOTrainer._get_per_token_logps_and_entropies,
    ):
        model.zero_grad()
        logps, entropies, _ = method(trainer, model, ids, mask, 3, compute_entropy=True)
        (logps * mask[:, 3:] * torch.tensor([[1.0], [2.0], [-1.0], [0.5]])).sum().backward()
        found.append((logps * mask[:, 3:], entropies * mask[:, 3:], model.lm_head.weight.grad.clone()))
        found[-1] += (model.model.layers[0].self_attn.q_proj.weight.grad.clone(),)
    for ours, trls in zip(*found, strict=True):
        torch.testing.assert_close(ours, trls, rtol=1e-3, atol=1e-4)
    assert found[0][0].abs().sum() > 0


def test_a_model_with_windows_is_computed_exactly(tmp_path):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = MistralConfig(vocab_size=99, num_key_value_heads=2, initializer_range=0.3, sliding_window=3, **shape)
    trainer = trainer_of(MistralForCausalLM(config), tmp_path)
    ids, mask = torch.tensor([[5, 6, 7, 8, 9, 4], [5, 6, 7, 8, 3, 2]]), torch.ones(2, 6, dtype=torch.long)
    ours, trls = (
        method(trainer, trainer.model, ids, mask, 3)[0]
        for method in (
            SharedPromptTrainer._get_per_token_logps_and_entropies,
            GRPOTrainer._get_per_token_logps_and_entropies,
        )
    )
    torch.testing.assert_close(ours, trls, rtol=1e-3, atol=1e-4)


def test_a_step_trains_in_half_precision(model, tmp_path):
    torch.manual_seed(0)
    trained = LlamaForCausalLM(model.config)
    before = trained.lm_head.weight.detach().clone()
    options = {"bf16": True, "max_steps": 1, "max_completion_length": 4, "save_strategy": "no"}
    trainer = trainer_of(trained, tmp_path, reward=lambda completions, **columns: [0.0, 1.0] * 2, **options)
    trainer.train()
    assert not torch.equal(before, trained.lm_head.weight)
    assert trained.lm_head.weight.isfinite().all()


def test_what_it_does_not_do_is_refused(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="by temperature only"):
        trainer_of(model, tmp_path, top_p=0.9)
    monkeypatch.setattr(model.config, "_attn_implementation", "flash_attention_2")
    with pytest.raises(ValueError, match="gives other values if prompts share a row"):
        trainer_of(model, tmp_path)
