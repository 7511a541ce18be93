"""What of a completion of several messages is judged."""

import pytest

from checklist_rewards.chat import completion_text
from checklist_rewards.errors import SampleError
from tests.rewards.fakes import assistant, call, reward_by

WEATHER = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bern", "day": None}}}
TOOLS = [
    {"role": "assistant", "content": "<think>Where?</think>I look it up.", "tool_calls": [WEATHER]},
    {"role": "tool", "name": "weather", "content": "rain"},
    *assistant("It rains."),
]
AS_TEXT = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}
SHOWN = (
    'assistant: I look it up.\n\nassistant calls weather(city="Bern")\n\ntool weather: rain\n\nassistant: It rains.'
)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (TOOLS, SHOWN),
        ([AS_TEXT], 'assistant calls f({"x": 1})'),
        ("It rains.", "It rains."),
        (assistant("It rains."), "It rains."),
        ([], ""),
    ],
    ids=["every message, call and result", "a call alone", "a text", "one message", "nothing"],
)
def test_a_transcript_has_all_in_order(completion, text):
    assert completion_text(completion, part="transcript") == text


def test_a_transcript_has_thoughts_if_they_are_kept_and_is_made_of_messages():
    shown = completion_text(TOOLS, part="transcript", keep_thinking=True)
    assert shown == SHOWN.replace("I look", "<think>Where?</think>I look")
    with pytest.raises(SampleError, match="a completion must be a string or a list of mappings"):
        completion_text(7, part="transcript")


@pytest.mark.parametrize(("judged", "reward"), [("answer", 0.1), ("transcript", 0.9)])
def test_the_reward_judges_the_last_text_or_all_of_it(judged, reward):
    looks = reward_by(lambda prefix, tail: 0.9 if "tool weather: rain" in prefix else 0.1, judged=judged)
    assert looks(**call([TOOLS])) == pytest.approx([reward])
