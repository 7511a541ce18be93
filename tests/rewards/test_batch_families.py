"""The judge reads the answer and nothing but the answer: every chat format, in GRPO, RLOO and OnlineDPO."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.families import DECLARED, FAMILIES, HIDDEN, KNOWN, RENDERED, WORDED, Family, model, tokenizer, typed
from tests.rewards.fakes import reward_by, scorer_by, user
from tests.rewards.matrix import REFUSED, THOUGHT, faults

pytestmark = pytest.mark.slow


def kind(family: Family) -> tuple:
    """What the way to the answer depends on."""
    calls = getattr(family.call, "__name__", None)
    marks = family.tag, family.drops_markers, family.opened, family.opens_again, family.answer_opened
    return *marks, family.blocks, family.system, calls


KINDS = sorted({*{kind(family): family.name for family in reversed(KNOWN)}.values(), *WORDED})
"""A family of each kind, and those whose markers are words."""


FIVE = ("gptoss", "gemma4_v5", "qwen3", "deepseek_r1_distill", "magistral")
"""Families that run in RLOO and OnlineDPO."""


LABEL = json.dumps(["Is it so?"])


def judged_text(prefix: str) -> str:
    """The target in a rendered judge prompt: the text of its last fence."""
    return re.findall(r"<(target-\d+)>\n(.*?)\n</\1>", prefix, re.S)[-1][1]


def content(family: Family, text: str) -> str | list[dict[str, str]]:
    """A text as the messages of the family have it."""
    return [{"type": "text", "text": text}] if family.blocks else text


def encoded(tokens, *texts: str) -> tuple[list[list[int]], list[str]]:
    """What a policy writes: token ids, and the texts that a trainer decodes."""
    ids = [tokens(text, add_special_tokens=False)["input_ids"] for text in texts]
    return ids, tokens.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", KINDS)
def test_grpo_judges_the_answer(name, tmp_path):
    assert not faults(FAMILIES[name], tmp_path)


@pytest.mark.parametrize("family", [*map(FAMILIES.get, FIVE), DECLARED, RENDERED], ids=lambda family: family.name)
def test_rloo_judges_the_answer(family, tmp_path):
    assert not faults(family, tmp_path, "RLOO")


@pytest.mark.parametrize("name", FIVE)
def test_online_dpo_judges_the_answer(name, tmp_path):
    """It passes no hook, and decodes without the markers of thoughts."""
    family, backend = FAMILIES[name], FakeBackend()
    tokens, reward = tokenizer(family), reward_by(backend)
    trainer = OnlineDPOTrainer(
        model=model(family, tokens),
        reward_funcs=reward,
        processing_class=tokens,
        train_dataset=Dataset.from_list([{"prompt": "", "checklist": [""]}]),
        args=OnlineDPOConfig(str(tmp_path), use_cpu=True, bf16=False, max_new_tokens=320),
    )
    for prompt in (user(content(family, "How many?")), "How many?"):
        rendered = not isinstance(prompt, str)
        pairs = [
            (family.thought(THOUGHT, "It is 42.", rendered=rendered), family.plain("It is 7.", rendered=rendered)),
            (family.thought(THOUGHT, "It is 3.", rendered=rendered), family.cut_thought(THOUGHT, rendered=rendered)),
        ]
        for pair in pairs:
            ids = [torch.tensor(one) for one in encoded(tokens, *pair)[0]]
            padded = pad_sequence(ids, batch_first=True, padding_value=tokens.pad_token_id)
            trainer.model.generate = lambda input_ids, padded=padded, **settings: torch.cat([input_ids, padded], dim=1)
            trainer.training_step(trainer.model, {"prompt": [prompt], "checklist": [["Is it so?"]]})
        assert reward.last.rewards == [0.5, 0.0] and reward.last.samples[1].state == "cut_in_thought"
        judged = [judged_text(prefix).strip() for prefix, _ in backend.asked]
        assert sorted(judged[-3:]) == ["It is 3.", "It is 42.", "It is 7."]


def test_a_reward_that_cannot_know_the_tokenizer_says_once_what_to_pass(caplog):
    reward = reward_by()
    for _ in range(2):  # as a loop of one's own may do: nothing leads to the tokenizer
        reward(prompts=["A"], completions=["It is 42."], completion_ids=[[1]], checklist=[["Is it so?"]])
    assert caplog.text.count("pass tokenizer=...") == 1


# --- invented families


@pytest.mark.parametrize("family", [DECLARED, RENDERED], ids=lambda family: family.name)
def test_markers_that_a_template_shows_are_found(family, tmp_path):
    assert not faults(family, tmp_path)


MARKERS = [
    ("<|cot_begin|>", "<|cot_end|>"), ("[[musing]]", "[[/musing]]"), ("⟦inner⟧", "⟦/inner⟧"), ("{mull}", "{/mull}"),
    ("<|channel=self|>", "<|endchannel|>"), ("<%R%>", "<%/R%>"), ("<monologue>\n", "\n</monologue>\n\n"),
]  # fmt: skip


WAYS = list(itertools.product((False, True), ("declared", "rendered"), (False, True)))
"""Whether the markers are special tokens, how the template shows them, and whether the prompt opens a thought."""


@pytest.mark.parametrize(
    ("markers", "special", "how", "opened"),
    # The last markers have line breaks, which no token has.
    [(MARKERS[place], *WAYS[3 * place % 8]) for place in range(6)] + [(MARKERS[6], *WAYS[n]) for n in (1, 2)],
)
def test_any_markers_that_a_template_shows_are_found(markers, special, how, opened, tmp_path):
    opens, closes = markers
    field = {"open": opens.strip(), "close": closes.strip(), "content": "text"}
    family = typed(
        DECLARED if how == "declared" else RENDERED,
        turn="<|role|>ROLE\nTEXT<|done|>\n",
        thought="" if how == "declared" else None,
        opens=opens,
        closes=closes,
        opened=opened,
        special=("<|role|>", *([opens.strip(), closes.strip()] if special else [])),
    )
    if family.response_template is not None:
        fields = {**family.response_template["fields"], "reasoning_content": field}
        family = replace(family, response_template={**family.response_template, "fields": fields})
    assert not faults(family, tmp_path)


def test_an_unknown_token_at_the_start_of_most_completions_is_refused(tmp_path):
    """No name tells that these tokens are about thoughts, and nothing in the template shows what they are for."""
    family = replace(HIDDEN, special=("<|role|>", "<|lane_a|>", "<|lane_b|>"), opens="<|lane_a|>", closes="<|lane_b|>")
    tokens = tokenizer(family)
    ids, texts = encoded(tokens, *[family.thought(THOUGHT, "It is 42.")] * 8)
    columns = dict(prompts=["A"] * 8, completions=texts, completion_ids=ids, checklist=[["Is it so?"]] * 8)
    with pytest.raises(SampleError, match="8 of 8 completions start with the special token '<|lane_a|>', which"):
        reward_by(tokenizer=tokens)(**columns)
    tagged = reward_by(tokenizer=tokens, thinking_tags=("<|lane_a|>", "<|lane_b|>"))
    assert {sample.target for sample in tagged._samples(Call(["A"] * 8, texts, columns))} == {"It is 42."}
    assert reward_by(tokenizer=tokens, thinking_tags=())(**columns) == pytest.approx([0.5] * 8)


@pytest.mark.parametrize("name", [family.name for family in KNOWN])
def test_a_reward_for_a_policy_without_thoughts_judges_all_that_it_writes(name):
    """With token ids and without, closed or not: nothing is taken for a thought, and nothing is refused."""
    family = FAMILIES[name]
    tokens = tokenizer(family)
    ids, texts = encoded(tokens, family.thought(THOUGHT, "It is 42."), family.cut_thought(THOUGHT))
    reward = reward_by(tokenizer=tokens, thinking_tags=())
    prompts = [user(content(family, "Hi"))] * 2
    for columns in ({"completion_ids": ids}, {}):
        finished, cut = reward._samples(Call(prompts, texts, {"checklist": [["Is it so?"]] * 2, **columns}))
        assert (finished.state, cut.state) == ("answered", "answered")
        assert "It is 42." in finished.target and THOUGHT in cut.target


# --- the same text wherever a completion comes from


@pytest.mark.parametrize("name", [family.name for family in KNOWN])
def test_frameworks_that_decode_with_special_tokens_judge_the_answer(name):
    """OpenRLHF and AReaL, with the policy's tokenizer and, where no marker is ordinary text, without."""
    family = FAMILIES[name]
    tokens = tokenizer(family)
    prompt = tokens.apply_chat_template(
        user(content(family, "How many?")), tokenize=False, add_generation_prompt=True, **family.kwargs
    )
    answered, cut = family.thought(THOUGHT, "It is 42."), family.cut_thought(THOUGHT)
    for known in [True] if name in WORDED else [True, False]:
        backend = FakeBackend()
        reward = ChecklistRewardFunc(scorer_by(backend), tokenizer=tokens if known else None)
        found = reward([prompt + answered, prompt + cut], [prompt] * 2, [LABEL] * 2)
        assert found["rewards"].tolist() == [0.5, 0.0]
        assert [judged_text(prefix) for prefix, _ in backend.asked] == ["It is 42."]


@pytest.mark.parametrize("name", sorted(WORDED))
def test_thoughts_of_earlier_answers_are_found_with_the_markers_of_the_policy(name):
    family = FAMILIES[name]
    settings = dict(tokenizer=tokenizer(family), scorer=scorer_by())
    earlier = {"role": "assistant", "content": family.thought(THOUGHT, "It is 42.", rendered=False)}
    prompt = [*user("How many?"), earlier, *user("Sure?")]
    columns = {"checklist": [["Is it so?"]]}
    [by_trl] = ChecklistReward(**settings)._samples(Call([prompt], [family.end], columns))
    [by_label] = SamplewiseReward(**settings).samples([LABEL], ["Yes."], [prompt], special=True, rendered=[prompt])
    for sample in (by_trl, by_label):
        assert sample.history.split() == ["user:", "How", "many?", "assistant:", "It", "is", "42."]


def test_markers_that_nothing_shows_are_refused(tmp_path):
    assert set(faults(HIDDEN, tmp_path).values()) == {REFUSED}


def test_the_documentation_lists_every_family():
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")
    listed = re.findall(r"\w+", page.partition("<!-- families: begin -->")[2])
    assert [name for name in FAMILIES if name not in listed] == []
