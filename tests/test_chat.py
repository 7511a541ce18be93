"""A trainer's prompts and completions as text: what the judge is shown, and what it is not."""

from dataclasses import replace

import pytest

from checklist_rewards.chat import (
    CompletionReader,
    Target,
    completion_text,
    opens_thinking,
    prompt_text,
    strip_thinking,
)
from checklist_rewards.errors import SampleError
from tests.families import HIDDEN, RENDERED, tokenizer


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    ("prompt", "input", "history"),
    [
        ("Say hello.", "Say hello.", None),
        ([{"role": "user", "content": "Say hello."}], "Say hello.", None),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "Hi",
            "system: Be brief.",
        ),
        (
            [
                {"role": "user", "content": "Hi"},
                assistant("<think>greet</think>Hello!"),
                {"role": "user", "content": "Say it in French."},
            ],
            "Say it in French.",
            "user: Hi\n\nassistant: Hello!",
        ),
        ([{"role": "user", "content": "Hi"}, assistant("Sure:")], "Hi\n\nassistant: Sure:", None),
        (
            [{"role": "user", "content": [{"type": "text", "text": "What "}, {"type": "text", "text": "is it?"}]}],
            "What is it?",
            None,
        ),
        ([{"role": "system", "content": "Be brief."}], None, "system: Be brief."),
        ([], None, None),
    ],
)
def test_the_last_user_message_is_the_input_and_all_others_are_history(prompt, input, history):
    assert prompt_text(prompt) == (input, history)


@pytest.mark.parametrize(
    ("completion", "target"),
    [
        ("Hello.", "Hello."),
        ("  two spaces and a newline\n", "  two spaces and a newline\n"),
        ([assistant("Hello.")], "Hello."),
        ([assistant([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}])], "Hello."),
        ([assistant("Hello.", reasoning_content="greet")], "Hello."),
        ([assistant("Let me look."), {"role": "tool", "content": "12"}, assistant("It is 12.")], "It is 12."),
        ([assistant("I look.", tool_calls=[{}]), {"role": "tool", "content": "12"}, assistant("")], ""),
        ([assistant(None, tool_calls=[{}]), {"role": "tool", "content": "12"}], ""),
        ([], ""),
        ("", ""),
    ],
)
def test_the_target_is_the_last_text_of_the_assistant(completion, target):
    assert completion_text(completion) == target


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Two words?</think>\n\nHello there.", "Hello there."),
        ("<think>a</think>One. <think>b</think>Two.", "One. Two."),
        ("Two words?</think>\n\nHello there.", "Hello there."),
        ("<think>Two words? Then", ""),
        ("Hello. <think>Was that", "Hello. "),
        ("<think></think>", ""),
        ("<think>a</think>The tag </think> ends it.", "The tag </think> ends it."),
        ("No thinking at all, only 1 < 2.", "No thinking at all, only 1 < 2."),
    ],
)
def test_thinking_is_stripped_closed_or_not_opened_or_not(text, answer):
    assert strip_thinking(text) == completion_text([assistant(text)]) == answer


def test_a_completion_of_a_prompt_that_opened_the_block_is_all_thinking_until_it_closes_it():
    assert completion_text("Two words? Then", opened=True) == ""
    assert completion_text("Two words?</think>Hello there.", opened=True) == "Hello there."
    assert opens_thinking("Say hello.<think>\n") and not opens_thinking("What does <think> mean?")
    assert opens_thinking([{"role": "user", "content": "Hi"}, assistant("<think>\n")])
    assert not opens_thinking([{"role": "user", "content": "Is this a tag: <think>"}]) and not opens_thinking([])


def test_thinking_is_kept_on_request_parsed_or_not():
    assert completion_text("<think>a</think>b", keep_thinking=True) == "<think>a</think>b"
    assert completion_text([assistant("b", reasoning_content="a")], keep_thinking=True) == "<think>\na\n</think>\n\nb"
    assert completion_text([assistant("", thinking="a")], keep_thinking=True) == "<think>\na\n</think>\n\n"


@pytest.mark.parametrize("value", [None, 7, {"role": "user"}, ["Hello."], [assistant(7)], [assistant(["x"])]])
def test_what_is_no_text_is_refused_by_name(value):
    with pytest.raises(SampleError, match="must be a string or a list of mappings"):
        completion_text(value)


# --- states


CALLS = [{"function": {"name": "look", "arguments": {"word": "a"}}}]
TOOL = {"role": "tool", "content": "12"}


@pytest.mark.parametrize(
    ("completion", "target"),
    [
        ("It is 12.", ("It is 12.", "answered")),
        ("", ("", "empty")),
        (" \n", ("", "empty")),
        ([], ("", "empty")),
        ("<think>", ("", "empty")),
        ("<think></think>", ("", "empty")),
        ("<think>So, 12", ("", "cut_in_thought")),
        ("It is 12. <think>Or is", ("It is 12. ", "cut")),
        ([assistant("", reasoning_content="So, 12")], ("", "cut_in_thought")),
        ([assistant("Let me look.", tool_calls=CALLS)], ("", "unfinished")),
        ([assistant("Let me look.", tool_calls=CALLS), TOOL], ("", "unfinished")),
        ([assistant("Let me look.", tool_calls=CALLS), TOOL, assistant("")], ("", "empty")),
        ([assistant("Let me look.", tool_calls=CALLS), TOOL, assistant("<think>12?")], ("", "cut_in_thought")),
        ([assistant("Let me look.", tool_calls=CALLS), TOOL, assistant("It is 12.")], ("It is 12.", "answered")),
        ([assistant(None, tool_calls=CALLS), TOOL, assistant('Again:\n<tool_call>\n{"na')], ("", "unfinished")),
        ([assistant("It is 12."), {"role": "user", "content": "Right!"}], ("It is 12.", "answered")),
        ([TOOL], ("", "unfinished")),
    ],
)
def test_a_completion_without_an_answer_says_why(completion, target):
    read = CompletionReader().read(completion)
    assert (read.text, read.state) == target and read.has_answer == (target[1] in ("answered", "cut"))


def test_a_marker_of_a_call_is_text_where_there_are_no_tools():
    text = "Write <tool_call> before it.\n<tool_call>"
    assert CompletionReader().read(text) == Target(text)


# --- mentions, and texts that are not the policy's


@pytest.mark.parametrize(
    "text",
    [
        "Open your reasoning with <think>. Then answer.",
        "The <think> tag opens a thought and </think> closes it.",
        "The tag </think> closes a thought.",
        "Put `<think>` first, and `</think>` last.",
        "For example:\n```\n<think>\nplan\n</think>\n```\nThat is all.",
        "[THINK] is a token, and so is <|channel|>.".replace("[THINK] is", "A marker: [THINK], is"),
    ],
)
def test_a_mention_of_a_marker_is_text(text):
    assert strip_thinking(text) == text
    assert strip_thinking(f"<think>I explain it.</think>\n\n{text}") == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Plan.</think>More thinking.</think>The answer.", "The answer."),
        ("<think>Plan.</think></think>\n\nThe answer.", "The answer."),
        ("Plan.</think>More.\n</think>\n\nThe answer.", "The answer."),
        ("<think>Plan.</think>A river is about <think>Let me see.</think>The answer.", "A river is about The answer."),
        ("<think>Plan.</think>Write `</think>` last.", "Write `</think>` last."),
        ("<think>Plan.</think>The tag </think>, as you know, ends it.", "The tag </think>, as you know, ends it."),
        ("<think>a</think>One. <think>b</think>Two. <think>c</think></think>Three.", "One. Two. Three."),
    ],
)
def test_a_policy_cannot_move_its_thinking_behind_the_first_closing_tag(text, answer):
    assert CompletionReader().read(text).text == answer
    assert CompletionReader().read(text.removeprefix("<think>"), opened=True).text == answer


def test_turns_of_users_and_systems_are_not_cut():
    system = "Open your reasoning with <think>. Always answer in French."
    user = "<think> is a tag. What for?"
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    assert prompt_text(turns) == (user, f"system: {system}")


def test_content_that_was_parsed_already_is_kept():
    kept = "<think> is the tag. I used it."
    assert completion_text([assistant(kept, reasoning_content="plan")]) == kept


def test_thoughts_in_blocks_are_no_answer():
    blocks = [{"type": "reasoning", "text": "plan"}, {"type": "text", "text": "It is 12."}]
    assert completion_text([assistant(blocks)]) == "It is 12."
    with pytest.raises(SampleError, match="the text of a content block must be a string, got int 5"):
        completion_text([assistant([{"type": "text", "text": 5}])])


@pytest.mark.parametrize("message", [{"type": "text", "text": "It is 12."}, {"content": "It is 12."}, {"role": None}])
def test_messages_without_a_role_are_refused_and_no_empty_answer(message):
    with pytest.raises(SampleError, match="every message of a completion must have a role; got ."):
        completion_text([message])
    with pytest.raises(SampleError, match="every message of a prompt must have a role; got ."):
        prompt_text([{"role": "user", "content": "Hi."}, message])


@pytest.mark.parametrize(
    ("text", "answer", "state"),
    [
        ("analysisWe need 42.assistantfinalThe answer is 42.", "The answer is 42.", "answered"),
        ("analysisWe need 42", "", "cut_in_thought"),
        ("finalThe answer is 42.", "The answer is 42.", "answered"),
        ("analysis of the text: it is 42", "analysis of the text: it is 42", "answered"),
        ("final answer: 42", "final answer: 42", "answered"),
    ],
)
def test_channels_whose_markers_were_dropped_are_recognised(text, answer, state):
    read = CompletionReader().read(text)
    assert (read.text, read.state) == (answer, state)


# --- prompts


def test_turns_after_the_last_user_message_follow_it():
    prompt = [
        {"role": "user", "content": "Hi"},
        assistant("<think>greet</think>Hello.", tool_calls=CALLS),
        {"role": "tool", "name": "look", "content": "12"},
    ]
    text = 'Hi\n\nassistant: Hello.\n\nassistant calls look(word="a")\n\ntool look: 12'
    assert prompt_text(prompt) == (text, None)
    again = [*prompt, assistant("It is 12."), {"role": "user", "content": "Sure?"}]
    assert prompt_text(again) == ("Sure?", f"user: {text}\n\nassistant: It is 12.")


@pytest.mark.parametrize(
    "prompt",
    [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay hi.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nSay hi.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Say hi.[/INST]",
        "<|system|>\nBe brief.<|end|>\n<|user|>\nSay hi.<|end|>\n<|assistant|>\n",
    ],
)
def test_a_rendered_prompt_is_split_into_its_messages(prompt):
    assert prompt_text(prompt) == ("Say hi.", "system: Be brief.")


@pytest.mark.parametrize("prompt", ["What is <|im_start|>user for?", "user\nSay hi.", "[INST", "Be brief. [INST] Hi"])
def test_other_strings_are_inputs_as_they_are(prompt):
    assert prompt_text(prompt) == (prompt, None)


# --- markers of one's own


def test_a_policy_may_have_tags_of_its_own():
    reader = CompletionReader(thinking_tags=("<reasoning>", "</reasoning>"))
    assert reader.read("<reasoning>Two?</reasoning>\nHello.") == Target("Hello.", thought="Two?")
    assert reader.read("<reasoning>Two?").state == "cut_in_thought"
    assert CompletionReader().read("<reasoning>Two?</reasoning>\nHello.").text.startswith("<reasoning>")


def test_special_tokens_that_look_like_markers_are_refused_unless_their_use_is_known():
    hidden = tokenizer(HIDDEN)
    with pytest.raises(
        SampleError, match="look like markers of a thought .*'<|reasoning_start|>', '<|reasoning_end|>'"
    ):
        CompletionReader(hidden).check()
    CompletionReader(hidden, thinking_tags=("<|reasoning_start|>", "<|reasoning_end|>")).check()
    CompletionReader(tokenizer(replace(HIDDEN, special=("<|role|>", "<|reasoning_start|>")))).check()  # has no end
    CompletionReader(tokenizer(RENDERED)).check()
    CompletionReader(None).check()
