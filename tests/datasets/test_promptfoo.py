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


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("Names {{a.b}}.", {"a": {"b": "Bamako"}}, "Names Bamako."),
        *(("{{a}}", {"a": value}, text) for value, text in ((5, "5"), (0.5, "0.5"), (True, "true"), (None, ""))),
        ("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}, "{{b}} x"),
        ("{{prompt}} {{assert}}", {"prompt": "hi", "assert": "ho"}, "hi ho"),
    ],
)
def test_a_value_is_written_as_promptfoo_does(text, values, expected):
    row = only_row(f"Say {text}", [{"type": "llm-rubric", "value": text}], values)
    assert row["prompt"] == f"Say {expected}" and row["assert"] == [{"type": "llm-rubric", "value": expected}]


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
