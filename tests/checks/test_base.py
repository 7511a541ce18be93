"""Specs: what is taken, what is refused, and how one adds a type of one's own."""

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from checklist_rewards.checks import CHECKS, Check, check_of, describe, example_of, parse_check, register_check
from checklist_rewards.errors import ChecklistError
from tests.checks.holds import holds


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_has_a_line_of_english_and_a_spec_that_comes_back(name):
    kind = CHECKS[name]
    check = parse_check(example_of(kind), "here")
    assert check.type == name and "\n" not in kind.summary and kind.summary.endswith(".")
    assert parse_check(check.model_dump_json(exclude_none=True), "here") == check


def test_a_model_is_shown_what_it_may_choose_and_no_code_unless_wanted():
    lines = describe().splitlines()
    words = "- words: The text has the required number of words."
    assert words + ' Example: {"type": "words", "at_least": 50, "at_most": 100}' in lines
    assert {line.split(":")[0][2:] for line in lines} == set(CHECKS) - {"code", "program", "verifiable"}


REFUSED = [
    ("nothing", "a code check must be a JSON object with a 'type'; got 'nothing'"),
    ('{"at_least": 1}', "a code check must be a JSON object with a 'type'; got {'at_least': 1}"),
    ("[" * 100_000, "a code check must be a JSON object with a 'type'; got '[[["),
    ('{"type": "word"}', "unknown check type 'word'; the nearest are words, "),
    ('{"type": "words"}', "check 'words': one of 'at_least', 'at_most', 'exactly' is required."),
    ('{"type": "words", "min": 1}', "check 'words': unknown field 'min'; allowed: at_least, at_most, exactly."),
    ('{"type": "words", "at_least": "9"}', "check 'words': at_least: Input should be a valid integer, got '9'."),
    ('{"type": "words", "at_most": -1}', "check 'words': at_most: Input should be greater than or equal to 0, got -1"),
    ('{"type": "words", "at_least": 3, "at_most": 2}', "check 'words': at_least=3 is greater than at_most=2."),
    ('{"type": "words", "exactly": 3, "at_most": 5}', "check 'words': 'exactly' cannot be combined"),
    ('{"type": "sections", "exactly": 3}', "check 'sections': the field 'marker' is missing."),
    ('{"type": "keywords", "words": ["a", ""]}', "check 'keywords': words.1: String should have at least 1 character"),
    ('{"type": "regex", "pattern": "("}', "check 'regex': pattern: not a valid regular expression (missing )"),
    ('{"type": "language", "language": "English"}', "check 'language': language: unknown language; allowed"),
    ('{"type": "number", "value": NaN}', "check 'number': value: Input should be a finite number, got nan."),
    ('{"type": "all", "checks": [{"type": "wrds"}]}', "check 'all': checks.0: unknown check type 'wrds'"),
    ('{"type": "quoted", "x": 1}', "check 'quoted': unknown field 'x'; allowed: none."),
    (
        '{"type": "verifiable", "name": "copy:copy", "arguments": {"prompt_to_repeat": "a", "x": 1}}',
        "check 'verifiable'",
    ),
    (f'{{"type": "words", "at_most": {"9" * 5000}}}', "a code check must be a JSON object with a 'type'; got '{"),
    ('{"type": "all", "checks": [' * 300 + '{"type": "quoted"}' + "]}" * 300, "check 'all'"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=[spec[:40] for spec, _ in REFUSED])
def test_a_bad_spec_is_refused_with_one_sentence(spec, words):
    with pytest.raises(ChecklistError) as refused:
        parse_check(spec, "rows.jsonl, line 3, item a1")
    assert str(refused.value).startswith(f"rows.jsonl, line 3, item a1: {words}"), str(refused.value)


@runs(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(sorted(CHECKS)),
)
def test_whatever_stands_in_a_spec_is_a_check_or_is_refused(value, name):
    spec = {**value, "type": name} if isinstance(value, dict) else value
    try:
        assert isinstance(parse_check(json.dumps(spec), "here"), Check)
    except ChecklistError as error:
        assert str(error).startswith("here: ") and str(error).endswith(".")


@given(st.text(max_size=200), st.sampled_from([n for n in CHECKS if n not in ("code", "program", "language")]))
def test_every_example_answers_yes_or_no_about_any_text(text, name):
    assert parse_check(example_of(CHECKS[name]), "here").holds(text, "Say hello.") in (True, False)


def test_a_type_of_ones_own():
    class Palindrome(Check):
        """The same forwards and backwards."""

        summary = "The text reads the same backwards."
        type: Literal["palindrome"] = "palindrome"

        def holds(self, text, input=None):
            return text == text[::-1]

    with pytest.raises(ChecklistError, match="unknown check type 'palindrome'"):
        parse_check('{"type": "palindrome"}', "here")
    register_check(Palindrome)
    try:
        assert holds("level", type="palindrome") and not holds("levels", type="palindrome")
        assert holds("abba", type="all", checks=[{"type": "palindrome"}, {"type": "words", "exactly": 1}])
        assert '- palindrome: The text reads the same backwards. Example: {"type": "palindrome"}' in describe()
        register_check(Palindrome)  # the same class again, as a module that is loaded twice does
    finally:
        del CHECKS["palindrome"]


def test_what_cannot_be_registered():
    for name, fields, message in (
        ("words", {"summary": "It."}, "the check type 'words' already exists"),
        ("silent", {}, "Odd: a check needs a summary"),
        (
            "wrong",
            {"summary": "It.", "example": {"colour": "red"}},
            "the example of Odd: check 'wrong': unknown field",
        ),
        (None, {"summary": "It."}, "Odd: name the check type with a field"),
    ):
        typed = {"type": name, "__annotations__": {"type": Literal[name]}} if name else {}
        with pytest.raises(ChecklistError, match=message):
            register_check(type("Odd", (Check,), {"__module__": __name__, **fields, **typed}))
    assert not {"silent", "wrong"} & set(CHECKS)


def test_a_check_inside_another_that_runs_code_makes_it_one_that_does():
    assert check_of({"type": "code"}).runs_code and not check_of({"type": "quoted"}).runs_code
    assert check_of({"type": "all", "checks": [{"type": "quoted"}, {"type": "code"}]}).runs_code
