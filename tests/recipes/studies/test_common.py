"""What the studies share: finished runs are kept, data is found, spreads and shares are as worked out by hand."""

import gzip
import runpy

import pytest
from pocket.grpo_run import overhead, without_variance
from studies import common
from studies.common import Difference, data_file, json_lines, markdown, once, run_main, shown, smoothed, spread

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, Mean
from tests.conftest import REPO


def test_the_data_is_next_to_the_repository_unless_a_variable_names_its_folder(monkeypatch):
    monkeypatch.delenv("CHECKLIST_REWARDS_DATA", raising=False)
    assert runpy.run_path(common.__file__)["DATA"] == str(REPO.parent / "shared" / "data")
    monkeypatch.setenv("CHECKLIST_REWARDS_DATA", "/elsewhere")
    assert runpy.run_path(common.__file__)["DATA"] == "/elsewhere"


def test_a_missing_data_file_is_named(tmp_path):
    with pytest.raises(SampleError, match=r"votes.jsonl.gz: file not found; .* the folder that contains realsumm/\.$"):
        data_file("realsumm/votes.jsonl.gz", tmp_path)


def test_rows_are_read_from_plain_and_compressed_files(tmp_path):
    plain, compressed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text('{"a": "ä"}\n{"a": 2}\n', encoding="utf-8")
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(json_lines(plain)) == list(json_lines(compressed)) == [{"a": "ä"}, {"a": 2}]


def test_a_difference_is_that_of_the_same_resamples():
    now, before = [1.0, 1.0, 0.0, 1.0], [0.5, 0.5, -0.5, 0.5]
    difference = Difference(Mean("mean", now), Mean("mean", before), ["mean"])
    found = Bootstrap(50).figures(difference, "abcd")["mean"]
    assert len(difference) == 4 and (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_a_table_is_markdown():
    assert markdown(["", "n"], [["a", 1], ["", 2]]) == "| | n |\n|---|---|\n| a | 1 |\n| | 2 |"


def test_a_moving_average_is_centred():
    assert smoothed([0.0, 3.0, 0.0, 3.0], 3) == pytest.approx([1.5, 1.0, 2.0, 1.5])
    assert smoothed([0.0, 3.0, 6.0, 9.0], 3) == [1.5, 3.0, 6.0, 7.5]


def test_an_error_of_the_package_ends_a_script_with_one_line():
    def fails():
        raise SampleError("no rows.")

    with pytest.raises(SystemExit, match=r"^error: no rows\.$"):
        run_main(fails)


def test_a_finished_run_is_not_repeated_and_other_settings_are_another_run(tmp_path):
    made = []

    def run():
        made.append(len(made))
        return {"gold": 0.5, "curve": {10: 0.6}}

    first = once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run)
    assert first == {"settings": {"steps": 60, "seed": 0}, "gold": 0.5, "curve": {"10": 0.6}}
    assert once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run) == first and made == [0]
    assert once(tmp_path / "soft-0", {"steps": 30, "seed": 0}, run)["settings"]["steps"] == 30 and made == [0, 1]


def test_an_interrupted_run_leaves_no_summary(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        once(tmp_path, {}, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert list(tmp_path.iterdir()) == []


def test_a_spread_is_the_mean_the_range_and_the_sample_deviation():
    found = spread([0.6, 0.7, 0.8])
    assert found == {
        "mean": pytest.approx(0.7),
        "min": 0.6,
        "max": 0.8,
        "std": pytest.approx(0.1),
        "per_seed": [0.6, 0.7, 0.8],
    }
    assert shown(found) == "0.700 (0.600-0.800)"
    assert spread([0.6])["std"] is None  # one seed has no spread, not one of 0


def test_groups_without_variance():
    rewards = [0.5, 0.5, 0.5, 0.5, 0.505, 0.5, 0.0, 1.0, 0.0]
    assert without_variance(rewards, 3) == pytest.approx(1 / 3)
    assert without_variance(rewards, 3, 0.01) == pytest.approx(2 / 3)


def test_an_unscored_completion_is_compared_with_nothing():
    assert without_variance([None, 0.5, 0.5, None, 0.0, 1.0], 3) == 0.5
    assert without_variance([None, None, 0.5], 3) == 1.0


def test_the_overhead_is_what_the_reward_takes_outside_the_engine():
    log = [
        {"step_seconds": 2.0, "reward_seconds": 0.6, "engine_seconds": 0.5},
        {"step_seconds": 3.0, "reward_seconds": 0.7, "engine_seconds": 0.6},
    ]
    assert overhead(log) == pytest.approx(
        {"step_seconds": 2.5, "reward_seconds": 0.65, "engine_seconds": 0.55, "overhead": 0.2 / 5}
    )
