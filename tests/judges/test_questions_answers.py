"""Which label a judge's words name: without guessing."""

import pytest

from checklist_rewards import ChecklistItem, Option
from checklist_rewards.judges.questions import leading_label, named
from checklist_rewards.scores.scales import ordinal_scale

PLAIN = ChecklistItem(question="Is it short?")
STEPS = ChecklistItem(question="How short?", options=ordinal_scale(101))
TONE = ChecklistItem(
    question="Tone?",
    options=(Option(label="not_kind", value=0), Option(label="kind", value=1), Option(label="cannot_assess", na=True)),
)


@pytest.mark.parametrize(
    ("answer", "item", "label"),
    [
        ("yes", PLAIN, "yes"),
        ("Yes", PLAIN, "yes"),
        (" **NO**. ", PLAIN, "no"),
        ("true", PLAIN, "yes"),
        (False, PLAIN, "no"),
        ("N/A", PLAIN, None),
        ("maybe", PLAIN, None),
        ("yes and no", PLAIN, None),
        ("", PLAIN, None),
        (None, PLAIN, None),
        (1, PLAIN, None),
        (["yes"], PLAIN, None),
        (85, STEPS, "85"),
        (85.0, STEPS, "85"),
        ("100", STEPS, "100"),
        ("101", STEPS, None),
        (True, STEPS, None),
        ("Not kind", TONE, "not_kind"),
        ("N/A", TONE, "cannot_assess"),
        ("cannot assess", TONE, "cannot_assess"),
        ("true", TONE, None),
    ],
)
def test_a_json_answer_names_a_label_or_none(answer, item, label):
    assert named(answer, item) == label


@pytest.mark.parametrize(
    ("reply", "item", "label"),
    [
        ("Yes.", PLAIN, "yes"),
        ("<think>No, wait ... yes?</think>\nno", PLAIN, "no"),
        ("<think>it says yes", PLAIN, None),
        ("No. It does not say yes anywhere.", PLAIN, "no"),
        ("Answer: **yes**", PLAIN, "yes"),
        ("The answer is no.", PLAIN, "no"),
        ("Yes and no", PLAIN, None),
        ("Yesterday it was short.", PLAIN, None),
        ("The response is short.", PLAIN, None),
        ("10", STEPS, "10"),
        ("1.5", STEPS, None),
        ("85: nearly perfect", STEPS, "85"),
        ("kind\nIt thanks the reader.", TONE, "kind"),
    ],
)
def test_a_free_reply_says_the_label_it_begins_with(reply, item, label):
    assert leading_label(reply, item) == label


def test_labels_that_only_differ_in_case_are_told_apart_by_it():
    item = ChecklistItem(question="a?", options=(Option(label="a", value=0), Option(label="A", value=1)))
    assert (named("a", item), named("A", item), named(" A.", item)) == ("a", "A", None)


def test_a_number_too_large_for_a_float_is_no_label():
    assert named(10**400, ChecklistItem(question="Is it?")) is None
