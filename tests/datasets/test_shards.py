"""Shards without a cluster: which errors fail one shard and which end the run, and who owns the output folder."""

from pathlib import Path

import pytest

from checklist_rewards.backends import Engine
from checklist_rewards.datasets.shards import HIDDEN, Shard, ShardError, ShardFolder, process_shard, settings_of
from checklist_rewards.datasets.tasks import RowTask, Totals
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import read_rows
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns
from tests.jsonl import write_jsonl

CHECK = {"question": "At most five words?", "check": {"type": "words", "at_most": 5}}
ROW = {"prompt": "Write.", "target": "A text.", "checklist": [CHECK]}
DEVICE = Path("/proc/self/mem")


def task(**scorer) -> RowTask:
    config = PipelineConfig.model_validate({"scorer": scorer})
    return RowTask(config, Engine("pocket"), Columns.of({"prompt": "", "target": ""}))


@pytest.fixture
def folder(tmp_path) -> ShardFolder:
    """The output folder of a run."""
    folder = ShardFolder(tmp_path / "out", settings_of(task(), tmp_path, None))
    folder.claim()
    return folder


def test_a_shard_is_written_with_its_totals(folder, tmp_path):
    shard = Shard(write_jsonl(tmp_path / "part-0.jsonl", ROW, ROW))
    totals = process_shard(task(), folder, shard)
    assert [row.data["checklist_score"]["pass_rate"] for row in read_rows(folder.output(shard))] == [1, 1]
    assert totals.rows == 2 and folder.finished(shard) == totals
    shard.source.unlink()
    assert folder.finished(shard) is None


def test_a_source_that_cannot_be_read_fails_its_shard(folder, tmp_path):
    shard = Shard(write_jsonl(tmp_path / "part-0.jsonl", ROW))
    shard.source.write_text(shard.source.read_text() + "{oops\n")
    with pytest.raises(ShardError, match="part-0.jsonl, line 2, column 2: not valid JSON"):
        process_shard(task(), folder, shard)
    shard.source.unlink()
    with pytest.raises(ShardError, match="part-0.jsonl: cannot be read .No such file"):
        process_shard(task(), folder, shard)


@pytest.mark.skipif(not DEVICE.exists(), reason="requires a file that can be opened but not read")
def test_an_error_of_the_file_system_while_reading_fails_its_shard(folder, tmp_path):
    shard = Shard(tmp_path / "part-0.jsonl")
    shard.source.symlink_to(DEVICE)  # as a stale file of NFS: it opens, and its first read raises EIO
    with pytest.raises(ShardError, match="part-0.jsonl: cannot be read .Input/output error"):
        process_shard(task(), folder, shard)


def test_an_error_of_the_settings_or_the_output_is_not_of_the_shard(folder, tmp_path):
    shard = Shard(write_jsonl(tmp_path / "part-0.jsonl", ROW))
    maps = {"yes/no": CalibrationMap(method="temperature", temperature=1, reads=1)}
    Calibration(judge="judge", read_by="logprobs", maps=maps).save(tmp_path / "map.json")
    calibrated = task(calibration=str(tmp_path / "map.json"))
    (tmp_path / "map.json").unlink()
    with pytest.raises(SampleError, match="map.json: cannot be read") as raised:
        process_shard(calibrated, folder, shard)
    assert not isinstance(raised.value, ShardError)
    folder.output(shard).mkdir()
    with pytest.raises(SampleError, match="part-0.parquet: cannot be written, it is a folder") as raised:
        process_shard(task(), folder, shard)
    assert not isinstance(raised.value, ShardError)
    folder.attempts(shard).unlink()
    folder.attempts(shard).mkdir()
    with pytest.raises(IsADirectoryError):
        process_shard(task(), folder, shard)


def test_settings_may_change_until_a_shard_has_a_result(tmp_path):
    ShardFolder(tmp_path, {"model": "typo"}).claim()
    ShardFolder(tmp_path, {"model": "org/model"}).claim()
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(SampleError, match="holds results with model = 'org/model', now 'other'"):
        ShardFolder(tmp_path, {"model": "other"}).check_settings()


def test_a_run_writes_no_result_after_another_run_claimed_the_folder(tmp_path):
    first, second = (ShardFolder(tmp_path / "out", {"model": name}) for name in ("first", "second"))
    shard = Shard(write_jsonl(tmp_path / "part-0.jsonl", ROW))
    first.claim()
    first.attempts(shard).parent.mkdir()
    first.attempts(shard).write_text("start\n")

    def rows():
        yield {"row": 1}
        second.claim()
        yield {"row": 2}

    with pytest.raises(SampleError, match="another run, with model = 'second' where this run has 'first'") as raised:
        first.write(shard, rows(), Totals)
    assert not isinstance(raised.value, ShardError)
    assert [path.name for path in first.path.iterdir()] == [HIDDEN]
    assert first.attempts(shard).exists() and not second.attempts(shard).exists()
    second.write(shard, iter([{"row": 1}]), Totals)
    assert second.finished(shard) is not None and first.finished(shard) is None


def test_a_shard_that_another_run_replaced_is_not_reported_as_unreadable(folder, tmp_path):
    shard = Shard(write_jsonl(tmp_path / "part-0.jsonl", ROW))
    ShardFolder(folder.path, {"model": "other"}).claim()
    shard.source.unlink()
    with pytest.raises(SampleError, match="is now the output of another run"):
        process_shard(task(), folder, shard)


def test_a_run_whose_output_was_deleted_ends(tmp_path):
    with pytest.raises(SampleError, match="out was deleted during the run; start the run again"):
        ShardFolder(tmp_path / "out", {"model": "judge"}).confirm()
