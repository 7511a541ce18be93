"""Completions without an answer: an alarm says how many there are, and they are no evidence about anything else."""

import json

import pytest
from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer
from checklist_rewards.cli import app
from checklist_rewards.monitor import MonitorConfig, audit
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl, write_jsonl
from tests.monitor.fakes import CHECKLIST, OptionsBackend, call, monitored
from tests.monitor.test_monitor import QUICK, by_color, records

THOUGHT = "<think>very red, or rather"
SETTINGS = MonitorConfig(**QUICK)


def batch(without):
    """Two groups of six completions, the last `without` of each without an answer. Length earns nothing."""
    letters = "b c d f g h j k l m n p q r s t v w x z".split()
    group = [f"{' '.join(letters[:words])} very {color}" for words in (10, 16, 13) for color in ("red", "pink")]
    return ([*group[: 6 - without], *["", THOUGHT][:without]]) * 2


def step_of(reward, step, without):
    """One call with twelve completions."""
    prompts = [f"Prompt {place // 6} of step {step}" for place in range(12)]
    return call(reward, step, batch(without), prompts=prompts)


@pytest.fixture
def run(tmp_path):
    """A run in which one completion in three has no answer from step 4 on."""
    reward = monitored(by_color, reward={"log": tmp_path / "rewards.jsonl"}, log=tmp_path / "monitor.jsonl", **QUICK)
    for step in range(8):
        step_of(reward, step, 2 if step > 3 else 0)
    return reward


def test_an_alarm_says_how_many_completions_have_no_answer_and_why(run, tmp_path):
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
    steps = records(tmp_path / "monitor.jsonl", "step")
    assert steps[0]["signals"]["no_answer"]["now"] == 0 and steps[5]["signals"]["no_answer"]["now"] == 1 / 3
    assert steps[5]["statistics"]["cut_in_thought"] == 1 / 6 and steps[5]["statistics"]["empty"] == 1 / 6
    assert steps[5]["statistics"]["unfinished"] == steps[5]["statistics"]["cut"] == 0
    assert run.pop_stats()["checklist_reward/monitor/no_answer"] > 0


def test_what_is_measured_of_texts_and_of_the_judge_stays_as_it_was(run, tmp_path):
    steps = records(tmp_path / "monitor.jsonl", "step")
    for step in steps[4:]:
        assert step["reads"]["checklist"] == 40 and step["completions"] == 12
        assert step["statistics"]["unanswered"] == 0 and step["statistics"]["label_mass"] == pytest.approx(1.0)
        assert step["statistics"]["words"] == 15 and step["signals"]["unanswered"]["now"] == 0
    assert not {"length_change", "length_bias", "length_reward"} & {alarm.signal for alarm in run.monitor.alarms}


def test_an_audit_of_the_log_finds_the_same(run, tmp_path, monkeypatch):
    written = []
    result = audit([tmp_path / "rewards.jsonl"], SETTINGS, written.append)
    assert list(result.alarms) == list(run.monitor.alarms)
    live, offline = records(tmp_path / "monitor.jsonl", "step"), [one for one in written if one["kind"] == "step"]
    for name in ("signals", "statistics"):
        assert [one[name] for one in offline] == [one[name] for one in live]
    assert not {"no_answer", "cut"} & set(result.not_evaluated)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, ["audit", "rewards.jsonl", "--start", "3", "--window", "3", "--max-no-answer", "0.9"]
    )
    assert done.exit_code == 0 and "nothing found" in done.output, done.output


def test_a_log_without_states_is_not_evaluated(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = read_jsonl(tmp_path / "rewards.jsonl")
    for row in rows:
        del row["score"]["state"]
        row.pop("state")
    write_jsonl(tmp_path / "old.jsonl", *rows)
    result = audit([tmp_path / "old.jsonl"], SETTINGS)
    assert not {"no_answer", "cut"} & result.readings.keys()
    assert {"no_answer", "cut", "shadow_gap"} <= set(result.not_evaluated) and "steering" not in result.not_evaluated
    done = CliRunner().invoke(app, ["audit", "old.jsonl", "--json", "audit.json"])
    shown = " ".join(done.output.split())
    assert "signals could not be evaluated:" in shown and "no data in the log: " in shown and "no_answer, cut" in shown
    assert {"no_answer", "cut"} <= set(json.loads((tmp_path / "audit.json").read_text())["not_evaluated"])


def test_a_signal_that_is_turned_off_is_not_missing(run, tmp_path):
    settings = MonitorConfig(**QUICK, max_shadow_gap=None, max_no_answer=None)
    assert not {"shadow_gap", "no_answer"} & set(audit([tmp_path / "rewards.jsonl"], settings).not_evaluated)


def test_neither_retests_nor_the_shadow_judge_are_asked_about_them():
    engines = [OptionsBackend(by_color), OptionsBackend(by_color)]
    shadow = ChecklistScorer(backend=engines[1], store=False)
    reward = monitored(
        None, backend=engines[0], shadow=shadow, shadow_share=1.0, retest_share=1.0, extra_reads=1.0, **QUICK
    )
    for step in range(3):
        step_of(reward, step, 2)
    for engine in engines:
        assert engine.asked and not any("or rather" in prefix for prefix, _ in engine.asked)
    assert len(engines[1].asked) <= 3 * 8 * len(CHECKLIST)


@pytest.mark.parametrize("rule", ["lowest", "unscored", "judge"])
def test_the_canaries_are_answers_whatever_the_completions_are(tmp_path, rule):
    scorer = ChecklistScorer(backend=OptionsBackend(lambda prefix, tail: 0.4), store=False, no_answer=rule)
    call(ChecklistReward(scorer, monitor={"log": tmp_path / "monitor.jsonl"}), 0, [THOUGHT] * 8)
    found = {one["canary"]: one["score"] for one in records(tmp_path / "monitor.jsonl", "canary")}
    assert ("empty" in found) == (rule == "judge")
    assert set(found.values()) == {0.4} and len(found) >= 5, "they are judged, and not the lowest score"
