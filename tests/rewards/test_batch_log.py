"""Numbers and lines of a reward whose trainer has no hooks for them."""

import json
import pickle
import resource
import signal

import pytest
from PIL import Image

from checklist_rewards import ChecklistScorer, Score
from checklist_rewards.rewards.batch import RewardLog
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl

BATCH = dict(prompts=["A", "B"], completions=["red", "blue"], checklist=[["Is it red?"], None])


class State:
    global_step = 3


def reward_with(**options) -> ChecklistReward:
    backend = FakeBackend(lambda prefix, tail: 0.9 if "red" in prefix else 0.1)
    return ChecklistReward(ChecklistScorer(backend=backend, store=False), name="r", **options)


def test_pop_stats_gives_the_means_since_it_was_last_asked():
    reward = reward_with()
    reward(**BATCH)
    reward(**BATCH)
    stats = reward.pop_stats()
    assert stats["r/score"] == pytest.approx(0.9) and stats["r/unscored"] == 0.5
    assert stats.keys() <= set(reward.metric_names)
    assert reward.pop_stats() == {}


def test_the_log_has_a_line_per_completion(tmp_path):
    reward = reward_with(log=tmp_path / "logs" / "reward.jsonl")
    rewards = [*reward(**BATCH, trainer_state=State()), *reward(**BATCH)]
    lines = [json.loads(line) for line in (tmp_path / "logs" / "reward.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == rewards
    assert [line["step"] for line in lines] == [3, 3, None, None]
    assert [line["completion"] for line in lines] == ["red", None, "red", None]
    assert Score.model_validate(lines[0]["score"]).primary_score == rewards[0] and lines[1]["score"] is None


def test_each_further_rank_has_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    RewardLog(tmp_path / "reward.jsonl").write([{"x": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["reward.rank1.jsonl"]


def test_a_log_that_cannot_be_written_costs_the_log_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    reward = reward_with(log=tmp_path / "file" / "reward.jsonl")
    assert reward(**BATCH) == reward(**BATCH) == [pytest.approx(0.9), None]
    assert caplog.text.count("cannot write the log") == 1


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


def test_a_prompt_with_images_is_logged_with_a_description_of_them(tmp_path):
    reward = reward_with(log=tmp_path / "reward.jsonl", images="ignore")
    image = {"type": "image", "image": Image.new("RGB", (640, 480))}
    prompt = [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]
    assert reward(prompts=[prompt], completions=["red"], checklist=[["Is it red?"]]) == [pytest.approx(0.9)]
    [line] = (tmp_path / "reward.jsonl").read_text().splitlines()
    assert json.loads(line)["prompt"] == [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": "<image 640x480 RGB, sha256 96f761f02481ec9e>"},
                {"type": "text", "text": "What is it?"},
            ],
        }
    ]


def test_a_record_that_has_no_json_costs_the_log_only(tmp_path, caplog):
    log = RewardLog(tmp_path / "reward.jsonl")
    log.write([{"x": 1}])
    log.write([{"x": object()}])
    log.write([{"x": 2}])
    assert (tmp_path / "reward.jsonl").read_text() == '{"x": 1}\n'
    assert caplog.text.count("(TypeError: Object of type object is not JSON serializable); continuing without it") == 1


def test_a_pickled_log_begins_at_zero(tmp_path):
    reward = reward_with(log=tmp_path / "reward.jsonl")
    reward(**BATCH)
    copy = pickle.loads(pickle.dumps(reward.log))
    assert copy.path == reward.log.path and copy.pop() == {}
