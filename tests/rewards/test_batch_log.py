"""Metrics and lines of a reward: for trainers without hooks, and how each reward was made from its score."""

import json
import pickle
import resource
import signal
from types import SimpleNamespace

import pytest

from checklist_rewards import BatchScore, Checklist, Sample, Score
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.files.store import Store
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rewards.batch import Call, RewardLog
from checklist_rewards.scores import Verdict, score_checklist
from tests.jsonl import read_jsonl
from tests.rewards.fakes import call, reward_by

BATCH = call(["red", "blue"], ["A", "B"], [["Is it red?"], None])
GROUPS = call(["red", "red and much longer", "blue", "red"], ["A", "A", "B", "B"], [["Is it red?"]] * 3 + [None])
SHAPING = [{"name": "length_penalty", "free": 1, "cap": 5, "at_cap": 0.4, "exponent": 1.0}, "centred", "clipped"]


def is_red(prefix: str, tail: str) -> float:
    return 0.9 if "red" in prefix.rpartition("<response")[2] else 0.2


def test_the_log_has_a_line_per_completion_and_the_stats_their_means(tmp_path):
    reward = reward_by(is_red, log=tmp_path / "logs" / "reward.jsonl", name="r")
    rewards = [*reward(**BATCH, trainer_state=SimpleNamespace(global_step=3)), *reward(**BATCH)]
    lines = read_jsonl(tmp_path / "logs" / "reward.jsonl")
    assert [line["reward"] for line in lines] == rewards
    assert [line["step"] for line in lines] == [3, 3, None, None]
    assert [line["completion"] for line in lines] == ["red", None, "red", None]
    assert Score.model_validate(lines[0]["score"]).primary_score == rewards[0] and lines[1]["score"] is None
    assert set(lines[0]) == {"step", "started", "prompt", "completion", "state", "reward", "checklist_hash", "score"}
    copy = pickle.loads(pickle.dumps(reward.log))
    assert copy.path == reward.log.path and copy.pop() == {}, "a pickled log begins at zero"
    stats = reward.pop_stats()
    assert stats["r/score"] == pytest.approx(0.9) and stats["r/unscored"] == 0.5
    assert reward.pop_stats() == {}


def test_the_stages_lead_from_the_score_to_the_reward(tmp_path):
    reward = reward_by(is_red, shaping=SHAPING, log=tmp_path / "rewards.jsonl")
    rewards = reward(**GROUPS)
    lines, records = read_jsonl(tmp_path / "rewards.jsonl"), list(ScoredFile(tmp_path / "rewards.jsonl"))
    assert [list(map(list, record.shaping)) for record in records] == [line.get("shaping", []) for line in lines]
    assert lines[1]["shaping"] == [
        ["expected", lines[1]["score"]["primary_score"]],
        ["length_penalty", pytest.approx(0.6)],
        ["centred", pytest.approx(-0.15)],
        ["clipped", 0.0],
    ]
    assert [line["shaping"][-1][1] for line in lines[:3]] == rewards[:3]
    assert reward.pop_stats()["checklist_reward/score"] == pytest.approx(sum(rewards[:3]) / 3)
    for groups in ([line["group"] for line in lines], [record.group for record in records]):
        assert groups[0] == groups[1] != groups[2]
    assert "shaping" not in lines[3]  # no checklist, no score


def test_a_group_that_failed_is_named(tmp_path):
    loses = lambda prefix, tail: None if "longer" in prefix else 0.9  # noqa: E731
    reward = reward_by(loses, log=tmp_path / "rewards.jsonl", on_failure="group")
    assert reward(**GROUPS)[:3] == [None, None, pytest.approx(0.9)]
    first, *_ = read_jsonl(tmp_path / "rewards.jsonl")
    assert first["shaping"] == [["expected", pytest.approx(0.9)], ["failed group", None]]


def test_a_calibrated_score_begins_with_the_score_before_calibration():
    checklist = Checklist.parse(["Is it red?"])
    verdict = Verdict({"yes": 0.7, "no": 0.3}, uncalibrated={"yes": 0.9, "no": 0.1}, method="logprobs")
    score = score_checklist(checklist, [verdict])
    batch = Call(["A"], ["red"], samples=[Sample(checklist, "red")], scores=[score])
    assert batch.log_columns(0) == {"shaping": [["before calibration", 0.9], ["expected", 0.7]]}


def test_each_further_rank_has_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    RewardLog(tmp_path / "reward.jsonl").write([{"x": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["reward.rank1.jsonl"]


def test_a_log_that_cannot_be_written_costs_the_log_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    reward = reward_by(is_red, log=tmp_path / "file" / "reward.jsonl")
    assert reward(**BATCH) == reward(**BATCH) == [pytest.approx(0.9), None]
    assert caplog.text.count("cannot write the log") == 1


def test_a_record_that_has_no_json_costs_the_log_only(tmp_path, caplog):
    log = RewardLog(tmp_path / "reward.jsonl")
    for value in (1, object(), 2):
        log.write([{"x": value}])
    assert (tmp_path / "reward.jsonl").read_text() == json.dumps({"x": 1}) + "\n"
    assert caplog.text.count("(TypeError: Object of type object is not JSON serializable); continuing without it") == 1


def test_a_full_disk_cuts_no_line(tmp_path, caplog):
    path, rows = tmp_path / "reward.jsonl", [{"x": "y" * 90}] * 5
    RewardLog(path).write(rows)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        RewardLog(path).write(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert read_jsonl(path) == rows and "No space left on device); continuing without it" in caplog.text
    RewardLog(path).write(rows)  # of the process that goes on when there is space
    assert read_jsonl(path) == rows * 2


def test_paths_of_settings_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    """A shell replaces the tilde, but not in a YAML file, in `--store=~/...` or in Python."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    evolving = {"proposer": lambda groups: [["Is it blue?"]] * len(groups), "buffer": "~/buffer.jsonl"}
    reward = reward_by(is_red, log="~/log.jsonl", evolving=evolving, monitor={"log": "~/monitor.jsonl"})
    reward(**GROUPS)
    Store("~/store.sqlite").put([(b"0" * 16, "yes")])
    BatchScore(reward.last.scores).to_jsonl("~/scores.jsonl")
    PipelineConfig(name="mine").save("~/mine.yaml")
    assert PipelineConfig.load("~/mine.yaml").name == "mine" and len(BatchScore.from_jsonl("~/scores.jsonl")) == 4
    written = {path.name for path in (tmp_path / "home").glob("*.*")}
    expected = {"log.jsonl", "buffer.jsonl", "monitor.jsonl", "store.sqlite", "scores.jsonl", "mine.yaml"}
    assert expected <= written and list(tmp_path.iterdir()) == [tmp_path / "home"]
