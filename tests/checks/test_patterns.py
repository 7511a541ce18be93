import json
import re

import pytest
import regex

from checklist_rewards.checks import parse_check, patterns
from checklist_rewards.errors import CheckError, ChecklistError
from tests.checks.holds import holds


def test_matches_are_counted():
    assert holds("Step 1: a\nStep 2: b", type="regex", pattern="(?m)^Step [0-9]+:", exactly=2)
    assert holds("no digits", type="regex", pattern=r"\d", exactly=0)
    assert holds("A cat", type="regex", pattern="(?i)CAT$", at_least=1)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("^(a|aa)+$", "a" * 60 + "b"), (r"(?m)^(a|aa)+$", ("a" * 60 + "b\n") * 50)],
    ids=["one match", "many"],
)
def test_a_pattern_that_backtracks_without_end_gives_no_answer(monkeypatch, pattern, text):
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    with pytest.raises(CheckError, match="did not finish within 0.2 s"):
        holds(text, type="regex", pattern=pattern, at_least=1)


def test_many_slow_matches_do_not_add_up(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    text = ("a" * 22 + "b") * 2000  # each match takes some milliseconds, far under the limit of one
    with pytest.raises(CheckError, match="did not finish"):
        holds(text, type="regex", pattern="(a|aa)+$|b", at_least=1)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?:(?:(?:a{40}){40}){40}){40}", "its counted repeats make it longer than 50000 characters"),
        ("(?:" * 999 + "a" + ")" * 999, "it has 999 groups; at most 100 are allowed"),
        ("a|" * 2000 + "b", "it has 4001 characters; at most 4000 are allowed"),
        ("(?x)(?:a {40}) # {\n {40}", "the flag x (verbose) is not allowed"),
        ("(?i-x:a)", "the flag x (verbose) is not allowed"),
        ("(?R)", "recursive patterns and calls of groups are not allowed"),
        ("(?<all>a(?&all))", "recursive patterns and calls of groups are not allowed"),
    ],
)
def test_a_pattern_that_is_too_large_is_refused_before_it_is_compiled(monkeypatch, pattern, words):
    monkeypatch.setattr(regex, "compile", lambda *_, **__: pytest.fail("it was compiled"))
    with pytest.raises(ChecklistError, match=re.escape(words)):
        parse_check(json.dumps({"type": "regex", "pattern": pattern, "at_least": 1}), "item 1")


@pytest.mark.parametrize("lexed", ["[)](?#[", "[[:alpha:](]", r"\[(?#]", "(?V1)[[)]]", "{2", "(?<x>"])
def test_no_syntax_hides_a_repeat(lexed):
    assert patterns.refusal(f"{lexed}(?:(?:a{{200}}){{200}}){{200}}") is not None


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}$",
        r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
        r"^.{0,1000000}$",
        r"\p{Lu}\p{L}{3,}",
        "|".join(f"word{number}" for number in range(300)),
    ],
)
def test_patterns_of_ordinary_size_are_compiled(pattern):
    parse_check(json.dumps({"type": "regex", "pattern": pattern, "at_least": 1}), "item 1")
