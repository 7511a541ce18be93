import pytest

from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import parse_questions

BOTH = ("Is it short?", "Does it name a city?")


@pytest.mark.parametrize(
    "reply",
    [
        "1. Is it short?\n2. Does it name a city?",
        "1) Is it short?\r\n2) Does it name a city?\r\n",
        "(1) Is it short?\n(2) Does it name a city?",
        "[1] Is it short?\n[2] Does it name a city?",
        "Q1: Is it short?\nQ2: Does it name a city?",
        "Question 1: Is it short?\n\nQuestion 2: Does it name a city?",
        "- Is it short?\n- Does it name a city?",
        "* Is it short?\n* Does it name a city?",
        "• Is it short?\n• Does it name a city?",
        "- [ ] Is it short?\n- [x] Does it name a city?",
        "- 1. Is it short?\n- 2. Does it name a city?",
        "### 1. Is it short?\n### 2. Does it name a city?",
        "Is it short?\nDoes it name a city?",
    ],
)
def test_every_usual_way_of_numbering_is_read(reply):
    assert parse_questions(reply).questions == BOTH


@pytest.mark.parametrize(
    "reply",
    [
        "1. **Is it short?**\n2. **Does it name a city?**",
        "**1. Is it short?**\n**2. Does it name a city?**",
        "**1.** Is it short?\n**2.** Does it name a city?",
        "1. **Length**: Is it short?\n2. **City:** Does it name a city?",
        '1. "Is it short?"\n2. "Does it name a city?"',
        "1. Is it short? (Yes/No)\n2. Does it name a city? (yes or no)",
        "1. Is it  short?\n2. Does it name\n   a city?",
        "```\n1. Is it short?\n2. Does it name a city?\n```",
    ],
)
def test_the_dress_of_a_question_is_taken_off(reply):
    assert parse_questions(reply).questions == BOTH


@pytest.mark.parametrize(
    "reply",
    [
        '["Is it short?", "Does it name a city?"]',
        '[{"question": "Is it short?"}, {"question": "Does it name a city?", "weight": 3}]',
        '{"analysis": "What is asked?", "questions": ["Is it short?", "Does it name a city?"]}',
        'Here it is:\n```json\n[\n  "Is it short?",\n  "Does it name a city?"\n]\n```\nShall I go on?',
    ],
)
def test_json_is_read(reply):
    assert parse_questions(reply).questions == BOTH


@pytest.mark.parametrize(
    "reply",
    [
        "What does the user want? A short text.\n\n1. Is it short?\n2. Does it name a city?\n\nAnything else?",
        "Analysis: two things are asked.\n1. A short text\n2. A city\n\nAnswer:\nIs it short?\nDoes it name a city?",
        "Analysis: short, and a city. What else?\nAnswer: Is it short?\nDoes it name a city?",
        "## Checklist\n- Is it short?\n  - It should be.\n- Does it name a city?\n\nLet me know!",
        "<think>\n1. Is it this?\n2. Is it that?\n</think>\n1. Is it short?\n2. Does it name a city?",
        "1. Is it this?\n2. Is it that?\n</think>\n1. Is it short?\n2. Does it name a city?",
    ],
)
def test_what_is_said_around_the_list_is_left_out(reply):
    assert parse_questions(reply).questions == BOTH


def test_equal_questions_are_one():
    assert parse_questions("1. Is it short?\n2. Does it name a city?\n3. is it  short?").questions == BOTH


def test_marks_that_belong_to_a_question_stay():
    reply = (
        '1. Is the sum 3.5, written as **3.5**?\n2. Is "bako" the first word?\n3. Is it right? (If absent: "none".)'
    )
    assert parse_questions(reply).questions == (
        "Is the sum 3.5, written as **3.5**?",
        'Is "bako" the first word?',
        'Is it right? (If absent: "none".)',
    )


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "0 different questions, but at least 2"),
        ("I cannot help with that.", "0 different questions, but at least 2"),
        ("<think>1. Is it short?\n2. Is it long?", "0 different questions, but at least 2"),
        ("1. Is it short?\n2. Is it short?", "1 different questions, but at least 2"),
        ("\n".join(f"{i}. Is it number {i}?" for i in range(1, 10)), "9 different questions, but at most 8"),
        ("1. Is it short?\n2. It names a city.", "'It names a city.' is not a question"),
        ("2. Is it short?\n3. Does it name a city?", "starts at number 2"),
        ('["Is it short?", "a city"]', "'a city' is not a question"),
        (
            '[{"q": "Is it short?"}, {"q": "Does it name a city?"}]',
            "the 'question' of an entry is missing or not a string",
        ),
    ],
)
def test_a_reply_that_is_no_whole_checklist_is_refused_with_the_reply(reply, reason):
    with pytest.raises(GenerationError, match=reason) as refused:
        parse_questions(reply)
    assert refused.value.raw == reply


@pytest.mark.parametrize("reply", ["[" * 50_000, "1. " * 30_000, "<think>" * 20_000, "?(" * 20_000, "{\n" * 5_000])
def test_a_reply_gone_wild_ends_in_an_error(reply):
    with pytest.raises(GenerationError):
        parse_questions(reply)
