"""What the recipes of English share: data, results of finished runs, tables, and errors of scripts."""

import gzip

import pytest
from english.common import data_file, json_lines, markdown, once, run_main

from checklist_rewards.errors import SampleError


def test_rows_are_read_from_plain_and_compressed_files_and_tables_are_markdown(tmp_path):
    plain, compressed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text('{"a": "ä"}\n{"a": 2}\n', encoding="utf-8")
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(json_lines(plain)) == list(json_lines(compressed)) == [{"a": "ä"}, {"a": 2}]
    assert markdown(["", "n"], [["a", 1], ["", 2]]) == "| | n |\n|---|---|\n| a | 1 |\n| | 2 |"
    with pytest.raises(SampleError, match=r"votes.jsonl.gz: file not found; .* the folder that contains realsumm/\.$"):
        data_file("realsumm/votes.jsonl.gz", tmp_path)


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

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path, {}, interrupted)
    assert list(tmp_path.iterdir()) == []  # no summary
    first = once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run)
    assert first == {"settings": {"steps": 60, "seed": 0}, "gold": 0.5, "curve": {"10": 0.6}}
    assert once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run) == first and made == [0]
    assert once(tmp_path / "soft-0", {"steps": 30, "seed": 0}, run)["settings"]["steps"] == 30 and made == [0, 1]
