import pytest

from checklist_rewards.checks import patterns
from checklist_rewards.errors import CheckError
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
    with pytest.raises(CheckError, match="was not through within 0.2 s"):
        holds(text, type="regex", pattern=pattern, at_least=1)


def test_many_slow_matches_do_not_add_up(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    text = ("a" * 22 + "b") * 2000  # each match takes some milliseconds, far under the limit of one
    with pytest.raises(CheckError, match="was not through"):
        holds(text, type="regex", pattern="(a|aa)+$|b", at_least=1)
