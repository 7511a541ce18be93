"""Completions without an answer: an alarm says how many there are, and they are no evidence about anything else."""

import pytest

from checklist_rewards.monitor import MonitorConfig, audit
from tests.jsonl import read_jsonl, write_jsonl
from tests.monitor.fakes import CHECKLIST, QUICK, OptionsBackend, by_color, call, monitored, records
from tests.rewards.fakes import reward_by, scorer_by

THOUGHT = "<think>very red, or rather"
SETTINGS = MonitorConfig(**QUICK)
LETTERS = "b c d f g h j k l m n p q r s t v w x z".split()
ANSWERS = [f"{' '.join(LETTERS[:words])} very {color}" for words in (10, 16, 13) for color in ("red", "pink")]


def step_of(reward, step, without):
    """Two groups of six completions, the last `without` of each without an answer. Length earns nothing."""
    group = [*ANSWERS[: 6 - without], *["", THOUGHT][:without]]
    return call(reward, step, group * 2, prompts=[f"Prompt {place // 6} of step {step}" for place in range(12)])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run in which one completion in three has no answer from step 4 on; its files are in the current folder."""
    monkeypatch.chdir(tmp_path)
    reward = monitored(by_color, reward={"log": "rewards.jsonl"}, log="monitor.jsonl", **QUICK)
    for step in range(8):
        step_of(reward, step, 2 if step > 3 else 0)
    return reward


def test_an_alarm_says_how_many_completions_have_no_answer_and_why_and_no_other_alarm_is_raised(run):
    [alarm] = run.monitor.alarms
    assert (alarm.signal, alarm.about, alarm.threshold, alarm.action) == ("no_answer", "training", 0.1, "warn")
    assert alarm.message == (
        "Many completions have no answer: they are empty, were cut in their thought, or end with a tool call. "
        "4 of 12 completions of this step have no answer: 2 empty, 2 cut_in_thought."
    )
    assert {(one.completion, one.state, one.why) for one in alarm.completions} == {
        ("", "empty", "has no answer"),
        (THOUGHT, "cut_in_thought", "has no answer"),
    }
    assert "has no answer 1 (cut_in_thought): '<think>very red" in str(alarm)
    steps = records("monitor.jsonl", "step")
    shares = {"cut_in_thought": 1 / 6, "empty": 1 / 6, "unfinished": 0, "cut": 0}
    measured = {"unanswered": 0, "label_mass": pytest.approx(1.0), "words": 15}  # of texts and of the judge, as before
    assert steps[0]["signals"]["no_answer"]["now"] == 0
    for step in steps[4:]:
        assert step["reads"]["checklist"] == 40 and step["completions"] == 12
        assert step["signals"]["no_answer"]["now"] == 1 / 3 and step["signals"]["unanswered"]["now"] == 0
        assert {name: step["statistics"][name] for name in shares | measured} == shares | measured
    assert run.pop_stats()["checklist_reward/monitor/no_answer"] > 0


def test_an_audit_of_the_log_finds_the_same(run):
    result = audit(["rewards.jsonl"], SETTINGS)
    assert list(result.alarms) == list(run.monitor.alarms)
    assert not {"no_answer", "cut"} & set(result.not_evaluated)
    off = MonitorConfig(**QUICK, max_shadow_gap=None, max_no_answer=None)
    assert not {"shadow_gap", "no_answer"} & set(audit(["rewards.jsonl"], off).not_evaluated), (
        "turned off, not missing"
    )


def test_a_log_without_states_is_not_evaluated(run):
    rows = read_jsonl("rewards.jsonl")
    for row in rows:
        del row["score"]["state"]
        row.pop("state")
    write_jsonl("old.jsonl", *rows)
    result = audit(["old.jsonl"], SETTINGS)
    assert not {"no_answer", "cut"} & result.readings.keys()
    assert {"no_answer", "cut", "shadow_gap"} <= set(result.not_evaluated) and "steering" not in result.not_evaluated


@pytest.mark.parametrize("rule", ["lowest", "unscored", "judge"])
def test_the_canaries_are_answers_whatever_the_completions_are(tmp_path, rule):
    backend, monitor = OptionsBackend(lambda prefix, tail: 0.4), {"log": tmp_path / "monitor.jsonl"}
    call(reward_by(backend, scorer={"no_answer": rule}, monitor=monitor), 0, [THOUGHT] * 8)
    found = {one["canary"]: one["score"] for one in records(tmp_path / "monitor.jsonl", "canary")}
    assert ("empty" in found) == (rule == "judge")
    assert set(found.values()) == {0.4} and len(found) >= 5, "they are judged, and not the lowest score"


def test_neither_retests_nor_the_shadow_judge_are_asked_about_them():
    backend, shadow = OptionsBackend(by_color), OptionsBackend(by_color)
    shares = dict(shadow=scorer_by(shadow), shadow_share=1.0, retest_share=1.0, extra_reads=1.0)
    reward = monitored(backend, **shares, **QUICK)
    for step in range(3):
        step_of(reward, step, 2)
    for engine in (backend, shadow):
        assert engine.asked and not any("or rather" in prefix for prefix, _ in engine.asked)
    assert len(shadow.asked) <= 3 * 8 * len(CHECKLIST)
