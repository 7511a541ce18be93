"""A framework's rollout as a prompt and a completion of chat messages."""

import pytest

from checklist_rewards.chat import CompletionReader
from checklist_rewards.rewards.integrations.labelled import environment_turns, policy_turn, rollout

NESTED = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"word": "moon"}'}}
ASKED = {"role": "user", "content": "Look up moon."}
LOOKED = {"role": "assistant", "content": "Let me look.", "tool_calls": [NESTED]}
FOUND = {"role": "tool", "content": "a light"}
ANSWERED = {"role": "assistant", "content": "<think>So.</think>It is a light."}
WRITTEN = 'Let me look. <tool_call>\n{"name": "look", "arguments": {"word": "moon"}}\n</tool_call><|im_end|>'


def test_a_conversation_and_its_turns_give_the_same_target():
    prompt, whole = rollout([ASKED, LOOKED, FOUND, ANSWERED])
    assert prompt == [ASKED]
    turns = [
        policy_turn(WRITTEN),
        *environment_turns("<|im_end|>\n<|im_start|>tool\na light<|im_end|>\n<|im_start|>assistant\n"),
        policy_turn("<think>So.</think>It is a light.<|im_end|>"),
    ]
    shown = (
        'assistant: Let me look.\n\nassistant calls look(word="moon")\n\ntool: a light\n\nassistant: It is a light.'
    )
    for part, text in (("answer", "It is a light."), ("transcript", shown)):
        reader = CompletionReader(part=part)
        assert reader.read(whole) == reader.read(turns)
        assert reader.read(turns).text == text
    assert [message.role for message in reader.read(turns).messages] == ["assistant", "tool", "assistant"]


def test_messages_of_the_assistant_may_belong_to_the_prompt():
    assert rollout([ASKED, ANSWERED, ASKED, ANSWERED], start=3) == ([ASKED, ANSWERED, ASKED], [ANSWERED])
    assert rollout([ASKED]) == ([ASKED], [])


@pytest.mark.parametrize("text", ["<tool_call>{look}</tool_call>", '<tool_call>{"word": 1}</tool_call>'])
def test_what_is_no_call_in_json_stays_in_the_text(text):
    assert policy_turn(text) == {"role": "assistant", "content": text}


def test_a_plain_text_of_the_environment_is_a_tool_result():
    assert environment_turns("a light") == [FOUND] and environment_turns(" ") == []
