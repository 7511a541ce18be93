"""`audit`: the signals of a log are those that the monitor saw, and exit codes say what was found."""

import json

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.monitor import MonitorConfig, audit
from checklist_rewards.monitor.audit import observations
from checklist_rewards.monitor.signals import SIGNALS
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl, write_jsonl
from tests.monitor.fakes import QUICK, OptionsBackend, by_color, monitored, records, trained
from tests.rewards.fakes import scorer_by

SETTINGS = MonitorConfig(**QUICK)
FAST = "--start 3 --window 3 --certainty 2 --about hacking"
LENIENT = "--max-length-bias 2"


def train(folder, *, hacked=False, monitor=True, steps=10):
    """A run with its logs: the reward, and the path of its log."""
    shadow = scorer_by(OptionsBackend(lambda prefix, tail: 0.3))
    options = dict(shadow=shadow, shadow_share=0.5, retest_share=0.5, extra_reads=1.0, log=folder / "monitor.jsonl")
    log = folder / "rewards.jsonl"
    reward = monitored(by_color, reward={"log": log}, **options, **QUICK)
    if not monitor:
        reward = ChecklistReward(reward.scorer, log=log)
    trained(reward, steps, steers_from=6 if hacked else None)
    return reward, log


def row(step, reward, **more):
    return {"step": step, "prompt": "p", "completion": "c", "reward": reward, "score": None, **more}


def steps_of(path):
    """Steps of a log, with their rewards."""
    return [(one.step, [seen.reward for seen in one.seen]) for one in observations([path])]


def test_an_audit_sees_what_the_monitor_saw(tmp_path):
    reward, log = train(tmp_path, hacked=True)
    written = []
    result = audit([log], SETTINGS, written.append)
    assert list(result.alarms) == list(reward.monitor.alarms)
    assert "steering" in {alarm.signal for alarm in result.alarms}
    live, offline = records(tmp_path / "monitor.jsonl", "step"), [one for one in written if one["kind"] == "step"]
    for name in ("signals", "statistics"):
        assert [one[name] for one in offline] == [one[name] for one in live]
    assert (result.steps, result.completions) == (10, 80)
    assert {"held_out_gap", "shadow_gap", "flips"} <= result.readings.keys()


def test_a_plain_log_has_the_signals_that_need_no_monitor(tmp_path):
    _, log = train(tmp_path, monitor=False, steps=12)
    result = audit([log], SETTINGS)
    assert not {"held_out_gap", "shadow_gap", "flips", "judged_steering"} & result.readings.keys()
    assert {"steering", "length_bias", "saturation", "mass_loss", "reward_jump"} <= result.readings.keys()
    flat = write_jsonl(tmp_path / "flat.jsonl", *(line | {"reward": 0.5} for line in read_jsonl(log)))
    missing = audit([flat], SETTINGS).not_evaluated
    assert missing["length_bias"] == "values that cannot be compared", (
        "rewards that do not vary correlate with nothing"
    )


# --- ranks and runs that were started again


def test_the_logs_of_all_ranks_are_one_run(tmp_path):
    _, log = train(tmp_path)
    whole, rows = audit([log], SETTINGS), read_jsonl(log)
    for name, part in (("", rows[::2]), (".rank1", rows[1::2]), (".ranked", rows), (".rank1.old", rows)):
        write_jsonl(tmp_path / f"split{name}.jsonl", *part)
    split = audit([tmp_path / "split.jsonl"], SETTINGS)  # without files that have a similar name only
    assert (split.steps, split.completions) == (10, 80)
    for name, reading in whole.readings.items():
        assert split.readings[name].recent == pytest.approx(reading.recent), name


def test_the_ranks_of_a_resumed_run_of_an_earlier_version_stay_together(tmp_path):
    steps = [(step, 0.1) for step in range(6)] + [(step, 0.9) for step in range(3, 8)]
    for name in ("rewards.jsonl", "rewards.rank1.jsonl"):
        write_jsonl(tmp_path / name, *(row(*step) for step in steps))
    assert steps_of(tmp_path / "rewards.jsonl") == [(step, [reward, reward]) for step, reward in steps]


@pytest.mark.parametrize(("first", "behind"), [(0, 0), (3, 1), (5, 0), (5, 1)])
def test_a_step_of_a_run_that_was_started_again_counts_as_it_was_done_last(tmp_path, first, behind):
    """It was killed in step 5, with or without the lines of rank 1, and goes on from step `first`."""
    for name, last in (("rewards.jsonl", 6), ("rewards.rank1.jsonl", 6 - behind)):
        rows = [row(step, 0.1, started="09:00") for step in range(last)]
        rows.append(row(last - 1, 0.0, started="09:00", evaluation=True))
        write_jsonl(tmp_path / name, *rows, *(row(step, 0.9, started="10:00") for step in range(first, 8)))
    steps = [(step, 0.1 if step < first else 0.9) for step in range(8)]
    assert steps_of(tmp_path / "rewards.jsonl") == [(step, [reward, reward]) for step, reward in steps]


def test_a_job_that_goes_on_with_the_run_may_write_another_log(tmp_path, caplog):
    jobs = {"09:00": (0.1, range(6)), "10:00": (0.9, range(3, 8))}
    logs = [
        write_jsonl(tmp_path / f"job{number}.jsonl", *(row(step, reward, started=time) for step in steps))
        for number, (time, (reward, steps)) in enumerate(jobs.items())
    ]
    found = [(one.step, [seen.reward for seen in one.seen]) for one in observations(logs)]
    assert found == [(step, [0.1 if step < 3 else 0.9]) for step in range(8)] and not caplog.messages
    whole = write_jsonl(tmp_path / "other_run.jsonl", *(row(step, 0.5, started="11:00") for step in range(8)))
    assert len(list(observations([*logs, whole]))) == 8
    assert [one.split(":")[0] for one in caplog.messages] == list(map(str, logs))


def test_the_ranks_of_a_replayed_log_are_one_run(tmp_path, monkeypatch):
    """`replay` writes the rows of all ranks into one file. Their clocks differ."""
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        train(tmp_path, monitor=False, steps=2)
        monkeypatch.setattr("checklist_rewards.rewards.reward._PROCESS", "2099-01-01T00:00:00.000+00:00")
    merged = [line for name in ("rewards.jsonl", "rewards.rank1.jsonl") for line in read_jsonl(tmp_path / name)]
    assert len({line["started"] for line in merged}) == 2
    path = write_jsonl(tmp_path / "merged.jsonl", *merged)
    assert [counts for _, counts in ScoredFile(path).counted()] == [True] * 32
    assert sum(len(one.seen) for one in observations([path])) == 32


def test_an_evaluation_in_a_process_that_trains_nothing_is_no_start_of_the_run(tmp_path):
    """`trainer.evaluate()` after the run, in a new process: its state is at step 0."""
    rows, evaluation = (
        [row(step, 0.1, started="09:00") for step in range(3)],
        row(0, 0.9, started="10:00", evaluation=True),
    )
    assert steps_of(write_jsonl(tmp_path / "rewards.jsonl", *rows, evaluation)) == [(step, [0.1]) for step in range(3)]
    with pytest.raises(SampleError, match="evaluated.jsonl: no rows of training."):
        audit([write_jsonl(tmp_path / "evaluated.jsonl", evaluation)])


# --- the command


def test_the_command_says_by_its_exit_code_what_was_found(run, tmp_path):
    (tmp_path / "clean").mkdir()
    train(tmp_path / "clean")
    train(tmp_path, hacked=True)
    done = run(f"audit rewards.jsonl {FAST} --json a.json", code=1)
    found = json.loads((tmp_path / "a.json").read_text())
    [alarm] = [alarm for alarm in found["alarms"] if alarm["signal"] == "steering"]
    assert alarm["step"] == 8 and len(alarm["completions"]) == 3 and found["signals"]["steering"]["size"] == 1.0
    assert "steering" in done.output and "step 8" in done.output
    assert "nothing found by" in run(f"audit clean/rewards.jsonl {FAST} {LENIENT}").output
    run(f"audit rewards.jsonl {FAST} --max-steering 1.1 {LENIENT}")


def test_a_log_with_too_few_steps_is_not_a_clean_one(run, tmp_path):
    train(tmp_path)
    shown = " ".join(run("audit rewards.jsonl --start 20 --json a.json", code=3).output.split())
    found = json.loads((tmp_path / "a.json").read_text())["not_evaluated"]
    assert f"{len(found)} of {len(SIGNALS)} signals could not be evaluated:" in shown
    assert "fewer than 23 steps" in found.values() and "fewer than 23 steps: " in shown
    evaluated = f"audit rewards.jsonl {FAST} {LENIENT} --require"
    run(f"{evaluated} steering")
    run(f"{evaluated} steering --start 9", code=3)
    run(f"{evaluated} shadow", refused="--require='shadow' is not known; allowed: ")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "p"}, "line 1: not a row of a reward log: 'step' is missing"),
        (row(None, 0.1), "step=None is not a whole number"),
        (row(0, 0.1, completion=3, prompt=None), "completion must be a string, got int"),
        (row(0, 0.1, retests=[3]), "a retest must be a mapping"),
        (row(0, "x"), "reward must be a finite number or null"),
        (row(0, 0.1, score={"a": 1}), "is not a score"),
        (row(0, 0.1, held_out="a"), "held_out must be a list"),
        (None, "no rows"),
    ],
)
def test_a_file_that_is_no_reward_log_is_refused(run, tmp_path, row, words):
    log = write_jsonl(tmp_path / "rewards.jsonl", *([] if row is None else [row]))
    run(f"audit {log}", refused=words)


def test_a_completion_without_a_score_or_a_checklist_is_not_a_failure(tmp_path):
    rows = [row(n, None, completion=c) for n in (0, 1) for c in "ab"]
    result = audit([write_jsonl(tmp_path / "rewards.jsonl", *rows, row(1, None, completion=None))])
    assert (result.steps, result.completions, result.alarms) == (2, 4, ())
