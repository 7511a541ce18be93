"""A trainer's prompts and completions as text: what the judge is shown, and what it is not."""

import pytest

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text, strip_thinking
from checklist_rewards.errors import SampleError


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
        ([{"role": "user", "content": "Hi"}, assistant("Sure:")], "Hi", "assistant: Sure:"),
        (
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}],
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
        ([assistant([{"type": "text", "text": "Hel"}, {"type": "image"}, {"type": "text", "text": "lo."}])], "Hello."),
        ([assistant("Hello.", reasoning_content="greet")], "Hello."),
        ([assistant("Let me look."), {"role": "tool", "content": "12"}, assistant("It is 12.")], "It is 12."),
        ([assistant("I look.", tool_calls=[{}]), {"role": "tool", "content": "12"}, assistant("")], "I look."),
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
