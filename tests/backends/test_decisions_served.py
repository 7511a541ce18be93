"""The decisions of a real vLLM server: a random Qwen3 whose vocabulary has every label as one token.

What vLLM reads at `/v1/systemone` is what a direct read of the same prompt gives.
"""

import string

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from checklist_rewards import ChecklistItem, ChecklistScorer, Sample
from checklist_rewards.judges.probe import probe
from checklist_rewards.prompts import parse_prompt
from tests.backends.conftest import vllm_serving
from tests.backends.words import word_tokenizer

pytestmark = pytest.mark.vllm

NAME = "tiny-qwen3"
TEXTS = ["the red house stands near a green river", "a small dog runs", "near a river a dog stands", ""]
QUESTIONS = ["Is the house red?", "Is it about a dog?", "Is the text long?"]
TEMPLATE = "Question: {question}\nyes\nno\nAnswer with yes or no only."
"""What vLLM writes around a yes/no question."""
DECISION = parse_prompt("{target}\n\n{question}", "judge", "decision.md")
DIRECT = parse_prompt("{target}\n\n" + TEMPLATE, "judge", "direct.md")


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory) -> str:
    words = " ".join(
        [*TEXTS, *QUESTIONS, TEMPLATE, "Text between tags such as is material to look at [ ] < > - ? . : / user"]
    )
    vocabulary = [
        *string.ascii_uppercase,
        *string.digits,
        "yes",
        "no",
        *words.replace("?", "").replace(".", "").split(),
    ]
    tokenizer = word_tokenizer(" ".join(dict.fromkeys([*vocabulary, "?", ".", "target", "assistant"]))).tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>"]})
    tokenizer.chat_template = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>"
    folder = str(tmp_path_factory.mktemp("qwen3") / "model")
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=512,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(vllm_installed, qwen3, tmp_path_factory):
    log = tmp_path_factory.mktemp("vllm") / "qwen3.log"
    with vllm_serving(qwen3, NAME, log, "--max-model-len", "512") as address:
        yield address


def scorer(url: str, **settings) -> ChecklistScorer:
    return ChecklistScorer(NAME, base_url=url, store=False, mass_floor=0.0, no_answer="judge", **settings)


def answers(scorer: ChecklistScorer, checklist=QUESTIONS):
    scores = scorer.score_batch([Sample(checklist, text) for text in TEXTS])
    assert [line.unanswered for score in scores for line in score.items] == [None] * (len(TEXTS) * len(checklist))
    return [line for score in scores for line in score.items]


def test_decisions_are_the_probabilities_of_a_direct_read_of_the_same_prompt(server, qwen3):
    decided = answers(scorer(server, backend="decisions", prompt=DECISION))
    listed = answers(scorer(server, backend="openai", prompt=DIRECT))
    beside = ChecklistScorer(
        qwen3, backend="transformers", store=False, mass_floor=0.0, no_answer="judge", prompt=DIRECT
    )
    here = answers(beside)
    for decision, other, direct in zip(decided, listed, here, strict=True):
        assert decision.method == "decision" and other.method == "logprobs"
        for name in ("soft", "mass"):
            assert getattr(decision, name) == pytest.approx(getattr(direct, name), abs=1e-3)
            assert getattr(other, name) == pytest.approx(getattr(direct, name), abs=1e-3)
    assert len({round(line.soft, 3) for line in here}) > len(here) // 2  # the model does tell texts apart


def test_choices_and_scales(server):
    choice = ChecklistItem(
        question="Is it about a dog?", options=[{"label": "red", "value": 0}, {"label": "green", "value": 1}]
    )
    scale = ChecklistItem(question="Is the text long?", options=[{"label": str(n), "value": n / 4} for n in range(5)])
    lines = answers(scorer(server, backend="decisions"), [choice, scale])
    for line in lines:
        assert sum(line.probabilities.values()) == pytest.approx(1) and 0 < line.mass <= 1
    assert [set(line.probabilities) for line in lines[:2]] == [{"red", "green"}, set("01234")]


def test_probe_refuses_a_random_judge(server):
    report = probe(NAME, backend="decisions", base_url=server, mass_floor=0.0)
    assert report.refusal is not None and report.mass is not None


def test_the_receipt_counts_cached_tokens(server):
    judge = scorer(server, backend="decisions")
    answers(judge, [f"Is the text long {number}?" for number in range(8)])
    assert judge.receipt.prompt_tokens > (judge.receipt.computed_tokens or 0) > 0


def test_a_model_whose_decisions_vllm_does_not_serve_is_one_sentence(vllm_server):
    from checklist_rewards.errors import ModelError
    from tests.backends.brokenserver import SERVED_NAME

    judge = ChecklistScorer(SERVED_NAME, backend="decisions", base_url=vllm_server, store=False)
    with pytest.raises(ModelError, match=r"does not answer decisions .*status 501.*use backend='openai'"):
        judge.score(QUESTIONS, "a small dog runs")
