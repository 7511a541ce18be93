"""What of a completion of several messages is judged."""

from functools import partial

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.chat import completion_text
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend

transcript_text = partial(completion_text, part="transcript")

TOOLS = [
    {
        "role": "assistant",
        "content": "<think>Where?</think>I look it up.",
        "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bern", "day": None}}}
        ],
    },
    {"role": "tool", "name": "weather", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
]


def test_a_transcript_has_every_message_call_and_result_in_order():
    assert transcript_text(TOOLS) == (
        'assistant: I look it up.\n\nassistant calls weather(city="Bern")\n\n'
        "tool weather: rain\n\nassistant: It rains."
    )
    assert "assistant: <think>Where?</think>I look" in transcript_text(TOOLS, keep_thinking=True)


@pytest.mark.parametrize("completion", ["It rains.", [{"role": "assistant", "content": "It rains."}]])
def test_a_completion_of_one_message_is_its_text_alone(completion):
    assert transcript_text(completion) == "It rains."


def test_a_call_may_have_its_arguments_as_text_and_no_message_beside_it():
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}
    assert transcript_text([call]) == 'assistant calls f({"x": 1})'
    assert transcript_text([]) == ""


def test_what_is_no_completion_is_refused():
    with pytest.raises(SampleError, match="a completion must be a string or a list of mappings"):
        transcript_text(7)


@pytest.mark.parametrize(("target", "reward"), [("answer", 0.1), ("transcript", 0.9)])
def test_the_reward_judges_the_last_text_or_all_of_it(target, reward):
    backend = FakeBackend(lambda prefix, tail: 0.9 if "tool weather: rain" in prefix else 0.1)
    judged = ChecklistReward(ChecklistScorer(backend=backend, store=False), judged=target)
    assert judged(prompts=["A"], completions=[TOOLS], checklist=[["Was it looked up?"]]) == pytest.approx([reward])


def test_a_reference_column_is_shown_to_a_judge_that_has_a_place_for_it(tmp_path):
    prompt = tmp_path / "judge.md"
    prompt.write_text("# User\n## Good\n{reference}\n## Response\n{target}\n## Question\n{question}\n")
    backend = FakeBackend(lambda prefix, tail: 0.9 if "gold" in prefix else 0.1)
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False, prompt=prompt), reference_column="answer")
    batch = dict(prompts=["A"] * 3, completions=["x"] * 3, checklist=[["Is it so?"]] * 3)
    answers = ["gold", None, [{"role": "assistant", "content": "gold"}]]
    assert reward(**batch, answer=answers) == pytest.approx([0.9, 0.1, 0.9])
    with pytest.raises(SampleError, match="no column 'answer' .columns: checklist."):
        reward(**batch)
