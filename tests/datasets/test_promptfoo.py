"""promptfoo's configurations: what stands in braces."""

from pathlib import Path

import pytest

from checklist_rewards.checks import check_of
from checklist_rewards.datasets.promptfoo import criteria_of_asserts, promptfoo_rows
from checklist_rewards.errors import SampleError

FILE = Path("promptfooconfig.yaml")


def only_row(prompt, asserts, values, shared=None):
    document = {"prompts": [prompt], "tests": [{"vars": values, "assert": asserts}], "defaultTest": shared}
    return next(promptfoo_rows(document, FILE)).data


@pytest.mark.parametrize("written", ["{{expected}}", "{{ expected }}", "{{expected }}"])
@pytest.mark.parametrize(
    ("kind", "value", "yes", "no"),
    [
        ("contains", "{}", "It is Bamako.", "It is {{expected}}."),
        ("icontains-any", ["{}", "x9"], "bamako", "expected"),
        ("not-contains", "{}", "Paris", "Bamako"),
        ("starts-with", "The {}", "The Bamako", "The expected"),
        ("equals", "{}", "Bamako", "{{expected}}"),
        ("regex", "^{}$", "Bamako", "expected"),
    ],
)
def test_the_variables_of_a_test_are_filled_into_its_assertions(written, kind, value, yes, no):
    value = [one.replace("{}", written) for one in value] if isinstance(value, list) else value.replace("{}", written)
    own = only_row("Name it.", [{"type": kind, "value": value}], {"expected": "Bamako"})
    shared = only_row("Name it.", [], {"expected": "Bamako"}, {"assert": [{"type": kind, "value": value}]})
    for row in (own, shared):
        (item,), _ = criteria_of_asserts(row["assert"], "here")
        check = check_of(item["check"])
        assert check.holds(yes) and not check.holds(no) and "{{" not in item["question"]


def test_a_rubric_names_the_value():
    row = only_row(
        "Capital of {{country}}?",
        [{"type": "llm-rubric", "value": "Names {{a.b}}."}],
        {"country": "Mali", "a": {"b": "Bamako"}},
    )
    assert row["prompt"] == "Capital of Mali?" and row["assert"][0]["value"] == "Names Bamako."


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (0.5, "0.5"), (True, "true"), (False, "false"), (None, "")])
def test_a_value_that_is_no_text_is_written_as_promptfoo_does(value, text):
    assert only_row("It is {{a}}.", [], {"a": value})["prompt"] == f"It is {text}."


def test_braces_in_a_value_are_text():
    row = only_row("{{a}} {{b}}", [], {"a": "{{b}}", "b": "x"})
    assert row["prompt"] == "{{b}} x"


def test_a_variable_named_like_a_column_does_not_replace_it():
    row = only_row("Say {{prompt}}.", [{"type": "contains", "value": "{{assert}}"}], {"prompt": "hi", "assert": "ho"})
    assert row["prompt"] == "Say hi." and row["assert"] == [{"type": "contains", "value": "ho"}]


@pytest.mark.parametrize(
    ("prompt", "value", "variables", "words"),
    [
        ("{{a}}", "x", {}, "test 1: the variable {{a}} has no value; the variables are none."),
        ("a", "{{other}}", {"a": 1}, "test 1, assertion 1: the variable {{other}} has no value; the variables are a."),
        ("a", "{{a | upper}}", {"a": 1}, "only variables such as {{name}} can be filled, got '{{a | upper}}'"),
        ("{% if a %}b{% endif %}", "x", {"a": 1}, "only variables such as {{name}} can be filled"),
        ("{{a}}", "x", {"a": ["b", "c"]}, "the variable 'a' must be one value, got ['b', 'c']"),
        ("{{a}}", "x", {"a": {"b": "c"}}, "test 1: the variable {{a}} must be one value, got {'b': 'c'}"),
        ("{{a.b}}", "x", {"a": {"b": ["c"]}}, "the variable {{a.b}} must be one value, got ['c']"),
        ("{{a}}", "x", {"a": "file://a.txt"}, "the variable 'a' must be one value, got 'file://a.txt'"),
    ],
)
def test_what_cannot_be_filled_is_refused(prompt, value, variables, words):
    with pytest.raises(SampleError) as refused:
        only_row(prompt, [{"type": "contains", "value": value}], variables)
    assert words in str(refused.value)
