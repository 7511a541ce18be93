"""The conformance suite: this package passes every case, a careless reward does not; the schema is the code's."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import ChecklistError
from conformance.__main__ import applies, cases_for, is_sound, judged, load_cases, main, served, summary
from conformance.adapters import ADAPTERS, outcomes
from conformance.schema import checklist_schema
from conformance.server import Judge

CASES, CHECKLISTS = load_cases()
HERE = Path(__file__).resolve().parent.parent / "conformance"


def by_id(name):
    return next(case for case in CASES if case["id"] == name)


OURS = [name for name in ADAPTERS if name.startswith("ours-")]


@pytest.fixture(scope="module")
def outcomes_of_ours():
    """The outcomes of this package's adapters by name. They run at the same time: most cases wait for a timeout."""

    def here(name):
        adapter = ADAPTERS[name]
        cases = cases_for(adapter)
        with served(adapter) as url:
            return judged(cases, outcomes(adapter, cases, url))

    with ThreadPoolExecutor(len(OURS)) as pool:
        return dict(zip(OURS, pool.map(here, OURS), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_no_failure_becomes_a_score_here_and_every_sound_reply_does(name, outcomes_of_ours):
    found = outcomes_of_ours[name]
    assert {key: (each["score"], each["why"]) for key, each in found.items() if not each["sound"]} == {}
    assert len(found) > 50


@pytest.mark.slow
def test_a_careless_reward_fails_the_suite(capsys, tmp_path):
    assert main(["plain", "--verbose", "--output", str(tmp_path / "results.json")]) == 1
    [result] = json.loads((tmp_path / "results.json").read_text())
    assert summary(result, CASES)["scored"] > 40
    found = result["outcomes"]
    for name in ("status_500", "empty", "thought_cut", "penalty_missing", "twice_no_yes"):
        assert not found[name]["sound"] and found[name]["score"] is not None
    assert all(found[name]["sound"] for name in ("all_yes", "all_no", "three_of_four", "penalty_earned", "fenced"))
    assert "status_500: 0.0" in capsys.readouterr().out


def test_cases_are_valid():
    assert len({case["id"] for case in CASES}) == len(CASES) >= 40
    for case in CASES:
        assert len(case["truth"]) == len(Checklist.parse(CHECKLISTS[case["checklist"]]).items)
        assert all(0 <= low <= high <= 1 for low, high in case["allow"])
        assert case["must"] == (case["group"] == "sound") and (case["allow"] or not case["must"])
        assert set(case["to"]) <= {"word", "item", "list", "grade"}


def test_a_score_is_sound_in_its_range_only():
    failure, partial, control = by_id("status_500"), by_id("one_missing"), by_id("three_of_four")
    assert is_sound(failure, None) and not is_sound(failure, 0.0) and not is_sound(failure, math.nan)
    assert is_sound(partial, None) and is_sound(partial, 2 / 3) and not is_sound(partial, 0.5)
    assert is_sound(control, 0.75) and not is_sound(control, None) and not is_sound(control, 0.5)


def test_cases_apply_to_rewards_to_which_they_can_happen():
    case, can = by_id("penalty_missing"), frozenset({"penalties"})
    applied = applies(case, "list", can), applies(case, "list", frozenset()), applies(case, "item", can)
    assert applied == (True, False, False)


def test_the_server_answers_what_it_is_asked():
    judge = Judge(CASES, CHECKLISTS, "list", json.dumps)
    questions = [item["question"] for item in CHECKLISTS["plain"]]

    def answer(name, *asked):
        status, body, *_ = judge.answer({"model": name, "messages": [{"role": "user", "content": "\n".join(asked)}]})
        return json.loads(json.loads(body)["choices"][0]["message"]["content"]) if status == 200 else status

    everything = [[1, "yes"], [2, "yes"], [3, "no"], [4, "yes"]]
    assert answer("three_of_four", *questions) == everything
    assert answer("one_missing", *questions) == everything[:3]
    assert answer("one_missing", questions[3]) == []  # asked again, it is missing again
    assert answer("twice_yes_no", questions[3]) == [[1, "yes"], [1, "no"]]
    assert [answer("rate_limited_once", questions[0]) for _ in range(2)] == [429, [[1, "yes"]]]


def test_the_schema_is_that_of_the_package():
    assert json.loads((HERE / "checklist.schema.json").read_text()) == checklist_schema()


SCHEMA = jsonschema.Draft202012Validator(checklist_schema())
OPTION = {"label": "a", "value": 1}
VALID = [
    [{"question": "Is it short?", "weight": -2, "required": True, "category": None}],
    {"items": ["Is it short?"], "source": "tick", "model": None},
    [{"question": "How clear?", "options": [OPTION, {"label": "b", "value": 0}]}],
    [{"question": "Cited?", "options": [OPTION, {"label": "n", "value": 0}, {"label": "?", "na": True}]}],
    [{"question": "At most 20 words?", "check": {"type": "words", "at_most": 20}}, {"question": "b?", "weight": 0}],
    [{"question": "Rude?", "scope": "any_turn", "options": None}],
]
INVALID = [
    [],
    "Is it short?",
    [{"question": "  "}],
    [{"weight": 1}],
    [{"question": "a?", "weight": "2"}],
    [{"question": "a?", "weight": 1e9}],
    [{"question": "a?", "wieght": 1}],
    [{"question": "a?", "weight": 0}],
    [{"question": "a?", "required": "yes"}],
    [{"question": "a?", "options": [OPTION]}],
    [{"question": "a?", "options": [{"label": "a", "value": 2}, {"label": "b", "value": 1}]}],
    [{"question": "a?", "options": [OPTION, {"label": "b"}]}],
    [{"question": "a?", "scope": "somewhere"}],
    [{"question": "a?", "scope": "final", "options": [OPTION, {"label": "b", "value": 0}]}],
]


@pytest.mark.parametrize("given", [*VALID, *CHECKLISTS.values()], ids=str)
def test_the_schema_allows_what_the_package_reads(given):
    SCHEMA.validate(given)
    Checklist.parse(given)


@pytest.mark.parametrize("given", INVALID, ids=str)
def test_the_schema_rejects_what_the_package_rejects(given):
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(given)
    with pytest.raises(ChecklistError):
        Checklist.parse(given)
