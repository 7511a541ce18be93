"""Where the answer of a judge starts, with the chat template of every family."""

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.templates import ChatTemplate
from checklist_rewards.backends.tokens import ChatTokenizer
from tests.backends.answers import user
from tests.backends.vocabularies import CHATML
from tests.backends.words import PLAIN, word_tokenizer

trl = pytest.importorskip("trl")
from tests.families import FAMILIES, Family, tokenizer  # noqa: E402 - reads the templates that TRL ships

RULES = "Be strict."
THINKING = {
    "apriel_1_6": "<|begin_assistant|>\nHere are my reasoning steps:\n\n[BEGIN FINAL RESPONSE]\n",
    "cohere_north": "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|><|START_TEXT|>",
    "cohere_reasoning": "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|><|START_RESPONSE|>",
    "deepseek_r1_distill": "<｜Assistant｜><think>\n\n</think>\n\n",
    "deepseekv3": "<｜Assistant｜><think>\n\n</think>\n\n",
    "ernie_4_5_thinking": "<think>\n\n</think>\n\n<response>\n",
    "hunyuan_a13b": "<think>\n\n</think>\n<answer>\n",
    "hunyuan_v3": "<think:opensource></think:opensource>",
    "hunyuan_v4": "<think:6124c78e></think:6124c78e>",
    "k2_horizon": "<ifm|think>\n\n</ifm|think>\n",
    "kimi_k3": '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>',
    "minimax_m2": "]~b]ai\n<think>\n\n</think>\n\n",
    "minimax_m3": "]~b]ai\n</mm:think>",
    "nemotron_super_1_5": "assistant<|end_header_id|>\n\n<think>\n\n</think>\n\n",
    "olmo_3_think": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "plamo_3": "<|plamo:begin_think:plamo|><|plamo:end_think:plamo|>",
    "seed_oss": "<seed:think><seed:cot_budget_reflect>The current thinking budget is 0, so I will directly start "
    "answering the question.</seed:cot_budget_reflect>\n</seed:think>",
    "smollm3": "<|im_start|>assistant\n<think>\n\n</think>\n",
    "step_3": "<|BOT|>assistant\n<think>\n\n</think>\n",
}
"""The end of the foot of families whose prompt has an empty thought that a rendered answer does not have."""
MARKED = {
    "glm4moe": "/nothink<|assistant|>\n<think></think>\n",
    "gptoss": "<|start|>assistant<|channel|>final<|message|>",
    "inkling": "<|message_model|><|content_text|>",
    "kimi_k2_thinking": "<|im_assistant|>assistant<|im_middle|><think></think>",
    "muse_glimmer": "<|start|>assistant to=user<|message|>",
}
"""The same for families whose template marks an answer without a thought, and whose generation prompt does not."""
UNSWITCHED = {"lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl", "lfm2_5_thinking", "magistral", "magistral_v11"} | {
    "phi_4_reasoning",
    "rendered",
}
"""Families with thoughts whose template has no switch and does not ask for a thought after a system message."""


def template_of(family: Family | str, name: str = "") -> ChatTemplate:
    found = tokenizer(FAMILIES[family] if isinstance(family, str) else family)
    found.name_or_path = name
    return ChatTemplate(found)


def rendered_answer(family: Family) -> str:
    """What the template writes between a user message and an answer, with thinking switched off as the family does."""
    texts = {"system": RULES, "user": "QUESTION", "assistant": "ANSWER"}
    contents = {role: [{"type": "text", "text": text}] if family.blocks else text for role, text in texts.items()}
    messages = [{"role": role, "content": content} for role, content in contents.items()]
    messages = messages if family.system else messages[1:]
    text = tokenizer(family).apply_chat_template(messages, tokenize=False, **(family.off or {}))
    return text.partition("QUESTION")[2].partition("ANSWER")[0]


def warnings_of(caplog, family: Family | str, name: str) -> tuple[str, list[str]]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        template = template_of(family, name)
        feet = {template.frame(rules).foot for rules in (RULES, None, RULES)}
    assert len(feet) == 1
    return feet.pop(), [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_read_starts_where_an_answer_without_a_thought_starts(name, caplog):
    plain = re.sub("_|thinking|reason", "", name)  # a name that tells nothing
    foot, warnings = warnings_of(caplog, name, f"org/{plain}")
    if name in THINKING:
        assert foot.endswith(THINKING[name])
    else:
        assert foot == rendered_answer(FAMILIES[name]).rstrip(" ")
        assert foot.endswith(MARKED.get(name, ""))
    assert len(warnings) == (name in UNSWITCHED)
    assert all("at the start of the reply" in warning for warning in warnings)


def test_templates_for_training_have_the_frames_of_those_that_they_replace():
    shipped = {path.stem: path for path in (Path(trl.__file__).parent / "chat_templates").glob("*.jinja")}
    patched = {name for name in shipped if name.endswith("_training")}
    assert patched == shipped.keys() - FAMILIES.keys()
    for name in patched:
        original = FAMILIES[name.removesuffix("_training")]
        training = replace(original, template=shipped[name].read_text(encoding="utf-8"))
        assert template_of(training).frame(RULES) == template_of(original).frame(RULES), name


@pytest.mark.parametrize("name", FAMILIES)
def test_rules_that_mention_a_tag_leave_the_foot_as_it_is(name):
    template = template_of(name)
    for rules in (
        "Ignore text inside <think> blocks.",
        "Text in [THINK] is no answer, nor after </think>.",
        "<think>",
    ):
        assert template.frame(rules).foot == template.frame(RULES).foot
        assert rules in template.frame(rules).head


@pytest.mark.parametrize("name", FAMILIES)
def test_reads_have_the_tokens_of_the_text_around_them(name):
    family = FAMILIES[name]
    frame = ChatTokenizer(tokenizer(family)).template.frame(RULES)
    prefix, tails = "A dog barks. It is loud. Is it ", ("short?", "about <think> tags?")
    [group] = ChatTokenizer(tokenizer(family)).groups([ReadGroup(RULES, prefix, tails)])
    for tail, ids in zip(tails, group.tails, strict=True):
        text = tokenizer(family).decode(group.prefix + ids, skip_special_tokens=False)
        assert text == f"{frame.head}{prefix}{tail}{frame.foot}"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_control_strings_of_a_family_are_text_in_a_target_and_in_a_question(name):
    chat = ChatTokenizer(tokenizer(FAMILIES[name]))
    control = {chat.tokenizer.convert_tokens_to_ids(token) for token in chat.encoder.control}
    attack = "".join(sorted(chat.encoder.control))

    def controls(prefix: str, tail: str) -> list[int]:
        [group] = chat.groups([ReadGroup(RULES, prefix, (tail,))])
        return [token for token in group.prefix + group.tails[0] if token in control]

    assert controls(f"A dog {attack} barks. ", f"Is it {attack} short?") == controls("A dog barks. ", "Is it short?")


def test_a_word_for_no_thinking_goes_only_to_templates_that_compare_with_it():
    prints = word_tokenizer("a", "{{ reasoning_effort }}" + PLAIN).template
    compares = word_tokenizer("a", "{% if reasoning_effort == 'none' %}[off]{% endif %}" + PLAIN).template
    assert (prints.frame(None).head, compares.frame(None).head) == ("[user]", "[off][user]")


def test_a_switch_in_the_system_message_is_used_where_it_works():
    template = template_of("nemotron_super_1_5")
    assert "Be strict.\n\n/no_think" in template.frame(RULES).head
    assert "/no_think" not in template.conversation(user("Hi."))[0]  # a writer may think
    mentions = word_tokenizer("a", PLAIN + "{# /no_think #}").template
    assert mentions.frame(RULES).head == f"[system]{RULES}[user]"


def test_templates_for_typed_blocks_get_blocks():
    template = template_of("idefics3")
    assert RULES in template.frame(RULES).head
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    text, spans = template.conversation([*messages, {"role": "user", "content": "three"}])
    assert [text[start:end] for start, end in spans] == ["one", "two", "three"]


def test_a_thought_in_words_that_the_prompt_opens_is_closed_as_the_template_does():
    assert template_of("apriel_1_6").thoughts == ("", "\n[BEGIN FINAL RESPONSE]\n", "")


OPENED = {
    "<think>": "<think>\n\n</think>\n\n",
    "<think>\nOkay": "<think>\nOkay\n\n</think>\n\n",
    "<seed:think>": "<seed:think></seed:think>",
    "<thought>\n": "<thought>\n\n</thought>\n\n",
    "[THINK]": "[THINK][/THINK]",
    "◁think▷": "◁think▷◁/think▷",
    "<|START_THINKING|>": "<|START_THINKING|><|END_THINKING|>",
    "<|plamo:begin_think:plamo|>": "<|plamo:begin_think:plamo|><|plamo:end_think:plamo|>",
    "<|channel>thought\n": "<|channel>thought\n<channel|>",
    "Here are my reasoning steps:\n": "Here are my reasoning steps:\n\n[BEGIN FINAL RESPONSE]\n",
    "<|END_THINKING|>": "<|END_THINKING|>",
    "</think>": "</think>",
    "<|reasoning_end|>": "<|reasoning_end|>",
}


@pytest.mark.parametrize("opening", OPENED)
def test_a_thought_that_only_the_generation_prompt_opens_is_closed(opening):
    template = CHATML.replace("assistant\n{%", f"assistant\n{opening}{{%")
    foot = word_tokenizer("a", template).template.frame(RULES).foot
    assert foot == f"<|im_end|>\n<|im_start|>assistant\n{OPENED[opening]}"


def test_an_opened_thought_is_closed_as_the_template_renders_one():
    opens = replace(
        FAMILIES["rendered"],
        template=FAMILIES["rendered"].template.replace(
            'assistant\\n" -}}{%- endif', 'assistant\\n<<ponder>>" -}}{%- endif'
        ),
    )
    assert template_of(opens).frame(RULES).foot.endswith("assistant\n<<ponder>><</ponder>>")


@pytest.mark.parametrize("fails", ["{{ raise_exception('no answers') }}", ""])
def test_a_template_that_renders_no_answers_keeps_its_generation_prompt(fails):
    template = f"{{% for m in messages %}}{{% if m.role == 'assistant' %}}{fails}{{% else %}}[{{{{ m.role }}}}]"
    template += "{{ m.content }}{% endif %}{% endfor %}[assistant]"
    assert word_tokenizer("a", template).template.frame(RULES).foot == "[assistant]"


def test_a_space_before_an_answer_belongs_to_its_first_token():
    template = PLAIN.replace("]{{ m.content }}", "]{{ ' ' if m.role == 'assistant' }}{{ m.content }}")
    assert rendered_answer(replace(FAMILIES["gemma3"], template=template)) == "[assistant] "
    assert word_tokenizer("a", template).template.frame(RULES).foot == "[assistant]"


def test_a_model_that_thinks_by_its_name_is_read_after_an_empty_thought(caplog):
    name = "LiquidAI/LFM2.5-1.2B-Thinking"
    foot, [warning] = warnings_of(caplog, "lfm2_2_5", name)
    assert foot.endswith("<|im_start|>assistant\n<think></think>")
    assert warning.startswith("LFM2.5-1.2B-Thinking may write a thought") and "after an empty thought" in warning
    assert "thinking=256" in warning
    cached = f"/cache/models--{name.replace('/', '--')}/snapshots/0123"
    assert warnings_of(caplog, "lfm2_2_5", cached)[0] == foot


def test_a_template_that_asks_for_thoughts_is_read_after_an_empty_one(caplog):
    asks = replace(FAMILIES["phi_4_reasoning"], template="Write <think> Thought </think> Answer." + CHATML)
    foot, [warning] = warnings_of(caplog, asks, "/models/ours")
    assert foot.endswith("assistant\n<think>\n\n</think>\n\n")
    assert warning.startswith("ours may write") and "after an empty thought" in warning
    foot, _ = warnings_of(caplog, replace(asks, template="Then write [BEGIN FINAL RESPONSE] ..." + CHATML), "ours")
    assert foot.endswith("assistant\n[BEGIN FINAL RESPONSE]\n")


def test_a_model_whose_thoughts_are_not_known_is_read_at_the_start_of_its_reply(caplog):
    foot, [warning] = warnings_of(caplog, "kimi_vl", "moonshotai/Kimi-VL-A3B-Thinking-2506")
    assert foot.endswith("<|im_assistant|>assistant<|im_middle|>")
    assert warning.startswith("Kimi-VL-A3B-Thinking-2506 may write") and "at the start of the reply" in warning
    assert warnings_of(caplog, "kimi_vl", "moonshotai/Kimi-VL-A3B-Instruct")[1] == []
