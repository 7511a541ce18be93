"""A real pretrained model with a real chat template and vocabulary, where the pocket model could hide something."""

import math

import pytest
import torch
from transformers import AutoTokenizer

from checklist_rewards.backends import Engine, ReadGroup
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges import Ask, ThinkingJudge
from checklist_rewards.prompts import load_prompt

pytestmark = pytest.mark.slow

QUESTIONS = ("Is it short?", "Does it mention a dog?", "Is it written in French?")


@pytest.fixture(scope="module")
def engine(smollm2) -> Engine:
    return Engine(smollm2, "transformers")


def test_prompts_are_those_of_its_chat_template(smollm2, engine):
    tokenizer, prompt = AutoTokenizer.from_pretrained(smollm2), load_prompt("judges/item", "judge")
    prefix = prompt.prefix(input="Write a note.", target="Ein Hund bellt.\n\n🐕")
    for system in (prompt.system, None):  # without rules the template writes some of its own
        tails = tuple(map(prompt.tail, QUESTIONS))
        [group] = engine.load().tokens.groups([ReadGroup(system, prefix, tails)])
        for tail, ids in zip(tails, group.tails, strict=True):
            chat = [{"role": "system", "content": system}] if system else []
            chat += [{"role": "user", "content": prefix + tail}]
            whole = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
            assert group.prefix + ids == list(whole)
        assert len(group.prefix) > 3 * max(map(len, group.tails))


def test_labels_have_all_their_forms(engine):
    tokens = engine.load().tokens
    yes, no = tokens.label_groups(["yes", "no"])
    assert {tokens.tokenizer.decode([token]) for token in yes} >= {"Yes", " Yes", "yes", " yes"}
    assert {tokens.tokenizer.decode([token]) for token in no} >= {"No", " No", "no", " no"}


def test_packed_reads_are_those_of_separate_prompts(engine):
    backend, prompt = engine.load(), load_prompt("judges/item", "judge")
    prefix, tails = prompt.prefix(target="A dog barks at the moon."), tuple(map(prompt.tail, QUESTIONS))
    ours, packed = backend.read([ReadGroup(prompt.system, prefix, tails)], ("yes", "no"))
    theirs, _ = backend.read([ReadGroup(prompt.system, prefix, (tail,)) for tail in tails], ("yes", "no"))
    assert backend.packs and packed.computed_tokens == packed.floor_tokens < packed.prompt_tokens
    for together, alone in zip(ours, theirs, strict=True):
        assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-3)


def test_it_keeps_its_label_mass_if_its_prompt_mentions_a_tag(engine):
    prompt, mention = load_prompt("judges/item", "judge"), "Ignore text inside <think> blocks."
    prefix, tails = prompt.prefix(target="A dog barks at the moon."), (prompt.tail("Does it mention a dog?"),)
    groups = [ReadGroup(rules, prefix, tails) for rules in (prompt.system, f"{prompt.system} {mention}")]
    groups.append(ReadGroup(None, f"{mention}\n\n{prefix}", tails))
    reads = engine.load().read(groups, ("yes", "no"))[0]
    masses = [sum(math.exp(logprob) for logprob in read.logprobs or ()) for read in reads]
    assert all(mass > 0.4 for mass in masses), masses


def test_a_label_after_a_thought_is_a_plain_forward_pass_over_all_that_was_written(smollm2, engine):
    judge = ThinkingJudge(engine, thinking=12, mass_floor=0.0)
    reads = [Ask(ChecklistItem(question=question), "A dog barks at the moon.") for question in QUESTIONS[:2]]
    verdicts = judge.answer(reads)[0]
    tokenizer, model = AutoTokenizer.from_pretrained(smollm2), engine.load().model
    places: dict[str, list[int]] = {"yes": [], "no": []}
    for token, place in tokenizer.get_vocab().items():
        places.get(tokenizer.convert_tokens_to_string([token]).strip().lower(), []).append(place)
    for read, verdict in zip(reads, verdicts, strict=True):
        user = judge.prompt.prefix(target=read.target) + judge.prompt.tail(read.item.question)
        user += "\n\nDo not answer yet. First say in a few short sentences which words of the response "
        user += "decide the question."
        chat = [{"role": "system", "content": judge.prompt.system}, {"role": "user", "content": user}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        thought = verdict.reasoning.removesuffix(" [cut off at 12 tokens]")
        assert thought  # it has written something
        ids = tokenizer(f"{text}{thought}\n\nAnswer:", add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            probabilities = model(input_ids=ids).logits[0, -1].float().softmax(-1)
        yes, no = (float(probabilities[forms].sum()) for forms in places.values())
        assert verdict.probabilities["yes"] == pytest.approx(yes / (yes + no), abs=1e-4)
        assert verdict.mass == pytest.approx(yes + no, abs=1e-4)
