"""A trainer's prompts and completions as text: what the judge is shown, and what it is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.chat import (
    CompletionReader,
    Target,
    completion_text,
    prompt_text,
    strip_thinking,
    without_end_tokens,
)
from checklist_rewards.errors import SampleError
from checklist_rewards.messages import SPEAKERS, chat_messages
from tests.families import FAMILIES, HIDDEN, KNOWN, ORDINARY, RENDERED, WORDED, tokenizer


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


@pytest.mark.parametrize(
    ("prompt", "input", "history"),
    [
        ("Say hello.", "Say hello.", None),
        ([user("Say hello.")], "Say hello.", None),
        ([system("Be brief."), user("Hi")], "Hi", "system: Be brief."),
        (
            [user("Hi"), assistant("<think>greet</think>Hello!"), user("Say it in French.")],
            "Say it in French.",
            "user: Hi\n\nassistant: Hello!",
        ),
        ([user("Hi"), assistant("Sure:")], "Hi\n\nassistant: Sure:", None),
        ([user([{"type": "text", "text": "What "}, {"type": "text", "text": "is it?"}])], "What is it?", None),
        ([system("Be brief.")], None, "system: Be brief."),
        ([], None, None),
        # Turns of users and systems are not cut.
        (
            [system("Open it with <think>. Answer in French."), user("<think> is a tag. What for?")],
            "<think> is a tag. What for?",
            "system: Open it with <think>. Answer in French.",
        ),
        # Names in transcripts are those of the messages.
        (
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "model", "content": "<think>a</think>Yes."},
                user("Why?"),
            ],
            "Why?",
            "developer: Be brief.\n\nmodel: Yes.",
        ),
        ([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}], "Hi\n\nassistant: Hello.", None),
        (
            "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>Greet.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hello.<|end|><|start|>user<|message|>Why?<|end|>",
            "Why?",
            "user: Hi\n\nassistant: Hello.",
        ),
        (
            "<|start|>user<|message|>Hi<|eot|><|start|>assistant to=self<|message|>Greet.<|eom|>"
            "<|start|>assistant to=user<|message|>Hello.<|eot|><|start|>user<|message|>Why?<|eot|>",
            "Why?",
            "user: Hi\n\nassistant: Hello.",
        ),
    ],
)
def test_the_last_user_message_is_the_input_and_all_others_are_history(prompt, input, history):
    assert prompt_text(prompt) == (input, history)


CALLS = [{"function": {"name": "look", "arguments": {"word": "a", "at": None}}}]  # Arrow adds fields as None
TOOL = {"role": "tool", "content": "12"}
LOOK = assistant("Let me look.", tool_calls=CALLS)
TWO_PARTS = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]


@pytest.mark.parametrize(
    ("completion", "text", "state"),
    [
        ("  two spaces and a newline\n", "  two spaces and a newline\n", "answered"),
        ("", "", "empty"),
        (" \n", "", "empty"),
        ([], "", "empty"),
        ("<think>", "", "empty"),
        ("<think></think>", "", "empty"),
        ("<think>So, 12", "", "cut_in_thought"),
        ("It is 12. <think>Or is", "It is 12. ", "cut"),
        ([assistant("Hello.")], "Hello.", "answered"),
        ([assistant(TWO_PARTS)], "Hello.", "answered"),
        ([assistant([{"type": "reasoning", "text": "greet"}, *TWO_PARTS])], "Hello.", "answered"),
        ([assistant("Hello.", reasoning_content="greet")], "Hello.", "answered"),
        ([assistant("<think> is the tag.", reasoning_content="greet")], "<think> is the tag.", "answered"),  # parsed
        ([assistant("<think>\ngreet\n</think>\n\nHello.", reasoning_content="greet")], "Hello.", "answered"),  # twice
        ([assistant("<think>So, 12", reasoning_content="So, 12")], "", "cut_in_thought"),
        ([assistant("", reasoning_content="So, 12")], "", "cut_in_thought"),
        ([LOOK], "", "unfinished"),
        ([LOOK, TOOL], "", "unfinished"),
        ([LOOK, TOOL, assistant("")], "", "empty"),
        ([LOOK, TOOL, assistant("<think>12?")], "", "cut_in_thought"),
        ([LOOK, TOOL, assistant("It is 12.")], "It is 12.", "answered"),
        ([assistant(None, tool_calls=[{}]), TOOL], "", "unfinished"),
        ([assistant(None, tool_calls=CALLS), TOOL, assistant('Again:\n<tool_call>\n{"na')], "", "unfinished"),
        ([assistant("It is 12."), user("Right!")], "It is 12.", "answered"),
        ([TOOL], "", "unfinished"),
    ],
)
def test_the_target_is_the_last_text_of_the_assistant_or_says_why_there_is_none(completion, text, state):
    read = CompletionReader().read(completion)
    assert (read.text, read.state) == (text, state) and read.has_answer == (state in ("answered", "cut"))
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Two words?</think>\n\nHello there.", "Hello there."),
        ("<think>a</think>One. <think>b</think>Two.", "One. Two."),
        ("Two words?</think>\n\nHello there.", "Hello there."),
        ("<longcat_think>\nTwo?\n</longcat_think>\nHello.", "Hello."),
        ("Two?\n</longcat_think>\nHello.", "Hello."),
        ("<think>a</think>The tag </think> ends it.", "The tag </think> ends it."),
        ("No thinking at all, only 1 < 2.", "No thinking at all, only 1 < 2."),
    ],
)
def test_thinking_is_stripped_closed_or_not_opened_or_not(text, answer):
    assert strip_thinking(text) == completion_text([assistant(text)]) == answer


def test_a_completion_of_a_prompt_that_opened_the_block_is_all_thinking_until_it_closes_it():
    read, opened = CompletionReader().read, CompletionReader().opened
    assert read("Two words? Then", opened=True).text == ""
    assert read("Two words?</think>Hello there.", opened=True).text == "Hello there."
    assert opened("Say hello.<think>\n") and not opened("What does <think> mean?")
    assert opened([user("Hi"), assistant("<think>\n")])
    assert not opened([user("Is this a tag: <think>")]) and not opened([])


def test_thinking_is_kept_on_request_parsed_or_not():
    assert completion_text("<think>a</think>b", keep_thinking=True) == "<think>a</think>b"
    assert completion_text([assistant("b", reasoning_content="a")], keep_thinking=True) == "<think>\na\n</think>\n\nb"
    assert completion_text([assistant("", thinking="a")], keep_thinking=True) == "<think>\na\n</think>\n\n"


@pytest.mark.parametrize("value", [None, 7, user("Hi"), ["Hello."], [assistant(7)], [assistant(["x"])]])
def test_what_is_no_text_is_refused_by_name(value):
    with pytest.raises(SampleError, match="must be a string or a list of mappings"):
        completion_text(value)


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
        "Take `text.split(\"</think>\")[-1]`, or the part after '</think>'.",
        '```python\nanswer = text.split("</think>")[-1]\n```\nThe tag "</think>" ends it, and so does (</think>).',
        "模型把思考写在<think>和</think>之间，“</think>”结束思考。",
        '{"text": "<think>a</think>b"}',
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
        ('<think>What "</think>" does? `</think>`, say "so"</think>"So," he said.', '"So," he said.'),
        ("<think>So **bold**</think>**Bold.**", "**Bold.**"),
        ("<think>Use `len`</think>`len` counts.", "`len` counts."),
        ("<think>Say (</think>**Bold.**", "**Bold.**"),
        ("<think>Like:\n```py\nx\n```</think>```py\ny\n```", "```py\ny\n```"),
        ("<think>They ask what `</think>` does, or '</think>', and", ""),
        ("<think>Plan.</think>The tag </think>, as you know, ends it.", "The tag </think>, as you know, ends it."),
        ("<think>a</think>One. <think>b</think>Two. <think>c</think></think>Three.", "One. Two. Three."),
    ],
)
def test_a_policy_cannot_move_its_thinking_behind_the_first_closing_tag(text, answer):
    assert CompletionReader().read(text).text == answer
    assert CompletionReader().read(text.removeprefix("<think>"), opened=True).text == answer


THOUGHT_BLOCKS = {
    "DeepSeek": {"type": "reasoning", "text": "plan, do"},
    "Anthropic": {"type": "thinking", "thinking": "plan, do", "signature": "a"},
    "Mistral": {"type": "thinking", "thinking": [{"type": "text", "text": "plan, "}, {"type": "text", "text": "do"}]},
    "OpenAI": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "plan, do"}]},
    "OpenAI's open models": {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "plan, do"}]},
    "one part": {"type": "reasoning_text", "text": "plan, do"},
    "Gemini": {"text": "plan, do", "thought": True},
}


@pytest.mark.parametrize("block", THOUGHT_BLOCKS.values(), ids=THOUGHT_BLOCKS)
def test_a_block_with_a_thought_is_read_as_its_text(block):
    message = assistant([block, {"type": "text", "text": "It is 12."}])
    assert CompletionReader().read([message]) == Target("It is 12.", thought="plan, do")
    assert prompt_text([message, user("Yes?")]) == ("Yes?", "assistant: It is 12.")
    parsed = assistant("<think>plan, do</think>It is 12.", thinking=block.get("thinking") or [block])
    assert prompt_text([parsed, user("Yes?")]) == ("Yes?", "assistant: It is 12.")
    assert CompletionReader().read([parsed]).thought == "plan, do"


def test_a_refusal_is_the_text_of_its_message():
    block = {"type": "refusal", "refusal": "No."}
    for message in (assistant([block]), assistant(None, refusal="No."), assistant("", refusal="No.")):
        assert CompletionReader().read([message]) == Target("No.")
        assert prompt_text([message, user("Yes?")]) == ("Yes?", "assistant: No.")
    assert completion_text([assistant("It is 12.", refusal=None)]) == "It is 12."


def test_a_function_call_of_older_apis_is_a_tool_call():
    call = assistant(None, function_call={"name": "look", "arguments": '{"at": 1}'})
    assert CompletionReader().read([call]).state == "unfinished"
    history = prompt_text([call, {"role": "function", "name": "look", "content": "42"}, user("?")])
    assert history == ("?", 'assistant calls look({"at": 1})\n\nfunction: 42')


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"content": [{"type": "text", "text": 5}]}, "the text of a content block must be a string, got int 5"),
        ({"content": None, "refusal": 5}, "the refusal of a message must be a string, got 5"),
        ({"content": [{"type": "refusal", "refusal": 5}]}, "the text of a content block must be a string, got int 5"),
        ({"content": "", "function_call": "look"}, "its tool calls as a list of mappings, got .'look'"),
        ({"content": "", "tool_calls": "look"}, "its tool calls as a list of mappings, got 'look'"),
        ({"content": "", "tool_calls": [{"function": "look"}]}, "its tool calls as a list of mappings"),
    ],
)
def test_fields_of_another_type_are_refused(fields, words):
    for read in (completion_text, lambda messages: prompt_text([*messages, user("?")])):
        with pytest.raises(SampleError, match=words):
            read([{"role": "assistant", **fields}])


@pytest.mark.parametrize("message", [{"type": "text", "text": "It is 12."}, {"content": "It is 12."}, {"role": None}])
def test_messages_without_a_role_are_refused_and_no_empty_answer(message):
    with pytest.raises(SampleError, match="every message of a completion must have a role; got ."):
        completion_text([message])
    with pytest.raises(SampleError, match="every message of a prompt must have a role; got ."):
        prompt_text([user("Hi."), message])


@pytest.mark.parametrize(
    ("text", "answer", "state"),
    [
        ("analysisWe need 42.assistantfinalThe answer is 42.", "The answer is 42.", "answered"),
        ("analysisWe need 42", "", "cut_in_thought"),
        ("finalThe answer is 42.", "The answer is 42.", "answered"),
        ("analysis of the text: it is 42", "analysis of the text: it is 42", "answered"),
        ("final answer: 42", "final answer: 42", "answered"),
        ("final-year students, final_score", "final-year students, final_score", "answered"),
    ],
)
def test_channels_whose_markers_were_dropped_are_recognised(text, answer, state):
    read = CompletionReader(tokenizer(FAMILIES["gptoss"])).read(text)
    assert (read.text, read.state) == (answer, state)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("analysisWe need 42.assistantfinalThe answer is 42.", "The answer is 42."),  # nobody writes this by chance
        ("commentarySo.assistantfinal**42**", "**42**"),
        ("analysisWe need 42", "analysisWe need 42"),
        ("finalScore is 3.", "finalScore is 3."),
    ],
)
def test_without_a_tokenizer_only_whole_channels_are_recognised(text, answer):
    assert CompletionReader().read(text).text == answer
    assert CompletionReader(tokenizer(FAMILIES["qwen3"])).read(text) == Target(text)
    assert CompletionReader(thinking_tags=()).read(text) == Target(text)


# --- ordinary text

CONTEXTS = [
    "OPEN", "OPEN\nIt rains.", "OPEN\n1. It rains.\nCLOSE\nSo it is wet.", "It rains.\nOPEN\nIt is wet.",
    "It rains. OPEN It is wet. CLOSE", "It rains.\nCLOSE\nIt is wet.", "It rains. CLOSE", "OPEN It rains.CLOSE It is.",
    "Run this:\n```\nOPEN\nx = 1\nCLOSE\n```\nIt prints 1.", "The server sends OPENokCLOSE, and `OPEN` means yes.",
]  # fmt: skip


@pytest.mark.parametrize("family", [None, *FAMILIES])
def test_ordinary_words_are_text_unless_the_policy_shows_them_as_markers(family):
    reader = CompletionReader(family and tokenizer(FAMILIES[family]))
    for opens, closes, families in ORDINARY:
        for context in CONTEXTS:
            text = context.replace("OPEN", opens).replace("CLOSE", closes)
            if family not in families:
                assert (
                    reader.read(text) == reader.read(text, raw=text) == reader.read(text, opened=False) == Target(text)
                )
                prompt = [user(text), assistant(text), user(text)]
                assert reader.prompt_text(prompt) == (text, f"user: {text}\n\nassistant: {text}")
                assert not reader.opened(text) and not CompletionReader().opened(text)


WORDS = st.sampled_from(
    [
        word
        for opens, closes, _ in ORDINARY
        for mark in (opens, closes)
        if mark[0] not in "<["
        for word in (mark, *mark.split())
    ]
    + "Rain falls I think the user assistant model end of turn thought answer s".split()
)


@given(
    st.lists(
        st.tuples(WORDS, st.sampled_from([" ", "\n", ". ", ", ", ":\n", "! ", " (", ") ", "\n\n- ", "' "])), min_size=1
    )
)
def test_words_and_punctuation_are_never_parsed(parts):
    text = "".join(word + between for word, between in parts)
    assert CompletionReader().read(text) == Target(text)
    assert prompt_text([assistant(text), user(text)]) == (text, f"assistant: {text}")


@pytest.mark.parametrize("family", sorted(WORDED))
def test_ordinary_words_are_markers_where_the_policy_shows_them(family):
    shown = FAMILIES[family]
    reader = CompletionReader(tokenizer(shown))
    text = shown.thought("Plan.", "It rains.", rendered=False)
    assert reader.read(text).text.strip() == "It rains." and reader.read(text).thought == "Plan."
    history = reader.prompt_text([assistant(text), user("Hi")])[1]
    assert history.replace("\n", "") == "assistant: It rains."


# --- end tokens and headers


def header_of(family):
    """What a chat template writes after a user message and before the answer."""
    content = [{"type": "text", "text": "Hi."}] if family.blocks else "Hi."
    render = tokenizer(family).apply_chat_template
    prompt = render(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True, **family.kwargs
    )
    return prompt.partition("Hi.")[2]


@pytest.mark.parametrize("family", [family.name for family in KNOWN if family.name not in WORDED])
def test_end_tokens_and_a_header_are_not_part_of_an_answer(family):
    shown = FAMILIES[family]
    for text in ("Rain falls.", "Rain falls. </s> ends a text, and so does <|im_end|>.", "It was <s>dry</s>", "x < 3"):
        for after in (shown.end, shown.end + "\n", f" \n{shown.end}" * 3):
            assert completion_text(text + after).rstrip() == text
            assert completion_text([assistant(text + after)], keep_thinking=True).rstrip() == text
            assert CompletionReader(tokenizer(shown)).read(text + after).text.rstrip() == text
            assert without_end_tokens(text + after).rstrip() == text
        if not shown.opened and not shown.answer_opened:
            assert completion_text(header_of(shown) + shown.plain(text)).strip() == text
    assert CompletionReader().read(shown.end).state == "empty"


@pytest.mark.parametrize(
    "end", ["<|im_end|>", "</s>", "</s>\n", "<|eot_id|>", "<end_of_turn>\n", "</s><pad><pad>", "[|endofturn|]"]
)
@pytest.mark.parametrize("start", ["", "<|im_start|>assistant\n", "<s><|im_start|>assistant\n", "<bos>", "[/INST]"])
def test_a_thought_and_an_answer_are_found_between_them(start, end):
    read = CompletionReader().read
    assert read(f"{start}Rain falls.{end}") == Target("Rain falls.")
    assert read(f"{start}<think>Wet?</think>Rain falls.{end}") == Target("Rain falls.", thought="Wet?")
    assert read(f"{start}<think>Wet?{end}").state == "cut_in_thought"
    assert read(start + end).state == read(f"{start}<think>{end}").state == "empty"
    episode = [assistant("Let me look.", tool_calls=CALLS), TOOL, assistant(f"{start}Rain falls.{end}")]
    assert CompletionReader(part="transcript").read(episode).text.endswith("assistant: Rain falls.")


@pytest.mark.parametrize(
    "text",
    [
        "<s>old</s>", "The price is <s>10</s>", "<s class='x'>old</s>\n", "<p><s>a</s> and <s>b</s>",
        "Llama ends its text with </s>, Qwen with <|im_end|>.", "Write `</s>`", "```\nx</s>\n```", "A <s>b</s> c",
        "<|assistant|> marks the turn of the model.", "`<|im_start|>assistant` opens it.", "<s>AI:</s> Men wrote it.",
        "Best regards,\n<|name|>", "f <|x|>", "<turn>", "#include <s>", "Remove <|append|>",
        "It is <|begin_of_box|>42<|end_of_box|>",
        "<|im_start|>user\nis the header of a user.",
    ],
)  # fmt: skip
def test_texts_about_tokens_and_deleted_text_in_html_stay(text):
    assert CompletionReader().read(text) == Target(text) and completion_text([assistant(text)]) == text


# --- prompts


def test_turns_after_the_last_user_message_follow_it():
    prompt = [
        user("Hi"),
        assistant("<think>greet</think>Hello.", tool_calls=CALLS),
        {"role": "tool", "name": "look", "content": "12"},
    ]
    text = 'Hi\n\nassistant: Hello.\n\nassistant calls look(word="a")\n\ntool look: 12'
    assert prompt_text(prompt) == (text, None)
    again = [*prompt, assistant("It is 12."), user("Sure?")]
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
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Say hi.<｜Assistant｜><think>\n",
        "[|system|]Be brief.[|endofturn|]\n[|user|]Say hi.[|endofturn|]\n[|assistant|]<think>\n",
    ],
)
def test_a_rendered_prompt_is_split_into_its_messages(prompt):
    assert prompt_text(prompt) == ("Say hi.", "system: Be brief.")


@pytest.mark.parametrize(
    "prompt",
    ["What is <|im_start|>user for?", "user\nSay hi.", "[INST", "Be brief. [INST] Hi", "<bos>Is <|user|> one?"],
)
def test_other_strings_are_inputs_as_they_are(prompt):
    assert prompt_text(prompt) == (prompt, None)


# --- markers of one's own


def test_a_policy_may_have_tags_of_its_own():
    reader = CompletionReader(thinking_tags=("<reasoning>", "</reasoning>"))
    assert reader.read("<reasoning>Two?</reasoning>\nHello.") == Target("Hello.", thought="Two?")
    assert reader.read("<reasoning>Two?").state == "cut_in_thought"
    assert CompletionReader().read("<reasoning>Two?</reasoning>\nHello.").text.startswith("<reasoning>")


@pytest.mark.parametrize("family", [None, *FAMILIES])
def test_without_tags_nothing_is_taken_for_a_thought(family):
    reader = CompletionReader(family and tokenizer(FAMILIES[family]), thinking_tags=())
    for text in ("<think>Two?</think>Hello.", "Two?</think>Hello.", "<think>Two?", "[THINK]Two?[/THINK]Hello."):
        assert reader.read(text) == reader.read(text, opened=True) == Target(text)
    for opens, closes, _ in ORDINARY:
        text = f"{opens}\nTwo?\n{closes}\nHello."
        assert reader.read(text) == Target(text)
    assert reader.opened("Say hello.<think>") is (None if family is None else False)


def test_special_tokens_that_look_like_markers_are_refused_unless_their_use_is_known():
    hidden = tokenizer(HIDDEN)
    with pytest.raises(
        SampleError, match="look like markers of a thought .*'<|reasoning_start|>', '<|reasoning_end|>'"
    ):
        CompletionReader(hidden).validate()
    CompletionReader(hidden, thinking_tags=("<|reasoning_start|>", "<|reasoning_end|>")).validate()
    CompletionReader(tokenizer(replace(HIDDEN, special=("<|role|>", "<|reasoning_start|>")))).validate()  # has no end
    CompletionReader(tokenizer(RENDERED)).validate()
    CompletionReader(None).validate()


# --- roles, and parts without text

NAMES = [form(name) for name in SPEAKERS for form in (str, str.capitalize, str.upper)]
UNKNOWN = ["narrator", "assistent", "user ", "0", "assistant\n", "critic"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_role_is_read_as_its_speaker(name):
    speaker = SPEAKERS[name.lower()]
    named = {"role": name, "content": "Two."}
    plain = named | {"role": speaker}
    for turns in ([], [user("Hi")], [assistant("One."), TOOL]):
        one, other = (CompletionReader().read([*turns, message]) for message in (named, plain))
        assert (one.text, one.state) == (other.text, other.state)
        assert [message.role for message in one.messages] == [message.role for message in other.messages]
        given, expected = (prompt_text([*turns, message])[0] for message in (named, plain))
        assert given == (expected and expected.replace(f"{speaker}: Two.", f"{name}: Two."))


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_role_is_refused_by_name(name):
    for messages in ([{"role": name, "content": "Two."}], [assistant("One."), {"role": name, "content": "Two."}]):
        for read in (completion_text, prompt_text, CompletionReader().opened):
            with pytest.raises(SampleError, match=f"message {len(messages)} of a .* has the unknown role") as error:
                read(messages)
            assert repr(name) in str(error.value) and "allowed: user, human, " in str(error.value)


def test_the_messages_of_sharegpt_are_read():
    told = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]
    assert completion_text(told) == "Hello."
    assert chat_messages(told) == [user("Hi"), assistant("Hello.")]


TEXT = {"type": "text", "text": "It is 12."}
IMAGES = [
    {"type": "image"},
    {"type": "image", "image": b"GIF89a"},
    {"type": "image", "text": None},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    {"type": "input_image", "image_url": "x"},
    {"image": "x.png"},
]
MEDIA = [
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    {"type": "audio", "audio": "x"},
    {"type": "video", "video": "x.mp4"},
    {"type": "input_file", "file_id": "x"},
    {"type": "text", "text": "a caption", "image": "x.png"},
]
SILENT = [{"type": "tool_use", "name": "look", "input": {}}, {}]
PLACES = {
    "prompt": lambda part: prompt_text([user([part, TEXT])]),
    "history": lambda part: prompt_text([assistant([TEXT, part]), user("Why?")]),
    "completion": lambda part: completion_text([assistant([TEXT, part])]),
    "tool result": lambda part: completion_text([{"role": "tool", "content": [part]}, assistant("It is 12.")]),
    "opened": lambda part: CompletionReader().opened([user([part])]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("part", [*MEDIA, *SILENT], ids=str)
def test_a_part_that_is_no_text_is_refused(part, place):
    with pytest.raises(SampleError, match="message 1 of a .* has a part .*, (but a judge reads text and|which a)"):
        PLACES[place](part)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("part", IMAGES, ids=str)
def test_an_image_part_without_a_readable_image_is_refused(part, place):
    with pytest.raises(SampleError, match="image part(s without an image| 1 of a .*(cannot be|data URL))"):
        PLACES[place](part)


@pytest.mark.parametrize("part", [*IMAGES, *MEDIA], ids=str)
def test_images_are_ignored_on_request(part):
    caption = part.get("text") or ""
    told = [user([part, TEXT])]
    assert prompt_text(told, images="ignore") == (f"{caption}It is 12.", None)
    reader = CompletionReader(images="ignore")
    assert reader.prompt_text(told) == (f"{caption}It is 12.", None)
    assert reader.read([assistant([part, TEXT])]).text == f"{caption}It is 12."


@pytest.mark.parametrize(
    "part", [{"type": "text", "text": "", "image": None}, {"type": "text", "image": None}], ids=str
)
def test_arrow_adds_keys_without_values_to_parts(part):
    assert completion_text([assistant([part, TEXT])]) == "It is 12."


@pytest.mark.parametrize(
    "fields", [{"text": "Hi"}, {"parts": [{"text": "Hi"}]}, {"message": "Hi"}, {"refusal": "No."}]
)
def test_a_message_that_says_something_elsewhere_is_refused(fields):
    with pytest.raises(SampleError, match=f"message 1 of a completion has no content; .*{next(iter(fields))!r}"):
        completion_text([{"role": "assistant", **fields}])
    assert CompletionReader().read([{"role": "assistant"}]).state == "empty"


def test_images_beside_the_content_are_refused_too():
    with pytest.raises(SampleError, match="message 1 of a prompt has a part 'images'"):
        prompt_text([{"role": "user", "content": "What is it?", "images": ["x.png"]}])
    assert prompt_text([{"role": "user", "content": "What is it?", "images": []}])[0] == "What is it?"
