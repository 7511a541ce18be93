"""Rows of a task in one process: what is counted, which errors fail a shard, and who owns the output folder."""

from pathlib import Path

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.datasets.shards import HIDDEN, Shard, ShardError, ShardFolder, process_shard, settings_of
from checklist_rewards.datasets.tasks import RowTask, Source, Totals
from checklist_rewards.errors import ConfigError, ModelError, SampleError
from checklist_rewards.files.rows import SCORE_COLUMN, Row, read_rows
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns
from checklist_rewards.scores.reasons import Reason, Unanswered
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies
from tests.jsonl import write_jsonl

WRITTEN = '{"questions": [{"question": "Is it kind?"}, {"question": "Is it short?"}]}'
NEW_COLUMNS = {"checklist", "checklist_id", "checklist_source", "checklist_model"}
ONE, TWO = {"prompt": "Greet me.", "target": "Hello."}, {"prompt": "Thank me.", "target": "Thanks."}


class Bar:
    """Counts as a progress bar does."""

    def __init__(self):
        self.done = self.expected = 0

    def __call__(self, n):
        self.done += n

    def expect(self, n):
        self.expected += n


def rows(*data: dict) -> list[Row]:
    return [Row(number, row, f"row {number}") for number, row in enumerate(data, start=1)]


def opened(first: dict, reply: str = WRITTEN, shard: str = "", **settings):
    """The work on rows like `first`; a writer's replies are `reply`."""
    writes = settings.get("checklists") is Source.WRITTEN
    if writes:
        settings["writer"] = Engine("writer", Replies(lambda text, sampling: reply))
    columns = Columns.of(first, **{"writer": {}} if writes else {})
    task = RowTask(PipelineConfig(), Engine("judge", FakeBackend(lambda p, t: 0.75)), columns, **settings)
    return task.open(None, shard)


def done(opened, data, *progress):
    return opened.process(rows(*data), *progress)


def test_rows_with_checklists_are_scored_and_counted():
    data = [ONE | {"checklist": ["Is it kind?", "Is it short?"]}, TWO | {"checklist": None}]
    work, bar = opened(data[0]), Bar()
    first, second = done(work, data, None, bar)
    assert first[SCORE_COLUMN]["primary_score"] == pytest.approx(0.75) and second[SCORE_COLUMN] is None
    assert [{key: row[key] for key in data[0]} for row in (first, second)] == data
    assert (bar.done, bar.expected) == (2, 0)  # the caller counts the reads of checklists in the rows
    totals = work.totals_with_cost
    assert (totals.rows, totals.tally.reads, totals.checklists) == (2, 2, None)
    assert totals.unanswered.keys() == {"no_checklist"} and totals.unanswered["no_checklist"].rows == [2]
    assert totals.judged.asked == 2 and totals.written.asked == 0


def test_checklists_are_written_scored_and_counted():
    work, bar, counted = opened(ONE, checklists=Source.WRITTEN), Bar(), []
    found = done(work, [ONE, TWO], counted.append, bar)
    assert [[item["question"] for item in row["checklist"]] for row in found] == [["Is it kind?", "Is it short?"]] * 2
    assert all(row[SCORE_COLUMN]["primary_score"] == pytest.approx(0.75) for row in found)
    assert sum(counted) == 2 and (bar.done, bar.expected) == (4, 4)
    totals = work.totals_with_cost
    assert (totals.rows, totals.checklists, totals.tally.reads) == (2, 2, 4)
    assert totals.judged.asked == 4 and totals.written.calls == 2


def test_a_checklist_that_was_not_written_is_counted_once():
    work = opened(ONE, reply="no JSON", checklists=Source.WRITTEN)
    [row] = done(work, [ONE])
    assert row[SCORE_COLUMN] is None and {row[name] for name in NEW_COLUMNS} == {None}
    assert (work.totals_with_cost.rows, work.totals_with_cost.checklists) == (1, 0)
    assert {reason: count.count for reason, count in work.totals_with_cost.unanswered.items()} == {"not_generated": 1}
    assert "The last reply was 'no JSON'" in work.totals_with_cost.unanswered["not_generated"].detail


def test_rows_that_are_only_given_a_checklist_have_no_score():
    data = {"prompt": "Greet me."}
    work = opened(data, checklists=Source.WRITTEN, scores=False)
    [row] = done(work, [data])
    assert SCORE_COLUMN not in row and row["prompt"] == "Greet me." and len(row["checklist"]) == 2
    assert work.totals_with_cost.judged is None and work.totals_with_cost.checklists == 1
    other = opened({"input": "Greet me."}, checklists=Source.WRITTEN, scores=False)
    with pytest.raises(SampleError, match="row 1.*the input is in input, but the row also has a column 'prompt'"):
        other.validate(*rows({"input": "Greet me.", "prompt": "Thank me."}))


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        ({"checklists": Source.WRITTEN}, {SCORE_COLUMN} | NEW_COLUMNS),
        ({"checklists": Source.WRITTEN, "scores": False}, NEW_COLUMNS),
    ],
)
def test_a_failed_row_keeps_its_columns_and_has_null_in_the_new_ones(settings, added):
    work = opened(ONE, shard="part-0", **settings)
    [row] = rows(ONE)
    found = work.failed(row, Unanswered(Reason.BACKEND_ERROR, "the actor died"))
    assert found == ONE | dict.fromkeys(added)
    totals, missing = work.totals_with_cost, work.totals_with_cost.unanswered["backend_error"]
    assert totals.rows == totals.transient == missing.count == 1
    assert (missing.rows, missing.detail) == (["part-0:1"], "the actor died")


def test_totals_of_parts_add_up_and_survive_json():
    data = [ONE | {"checklist": ["Is it kind?"]}, TWO | {"checklist": None}]
    whole, parts = opened(data[0]), [opened(data[0]), opened(data[0])]
    done(whole, [*data, *data])
    for part in parts:
        done(part, data)
    total = type(whole.totals_with_cost).load(parts[0].totals_with_cost.dump())
    total += parts[1].totals_with_cost
    assert (total.rows, total.tally.mean, total.judged.reads) == (4, whole.totals_with_cost.tally.mean, 2)
    assert total.unanswered["no_checklist"].count == whole.totals_with_cost.unanswered["no_checklist"].count == 2


def test_a_missing_model_is_found_before_the_first_row():
    columns = Columns.of(ONE)
    judge, writer = Engine("judge", FakeBackend()), Engine("./no-writer", "transformers")
    with pytest.raises(ModelError, match="./no-judge"):
        RowTask(PipelineConfig(), Engine("./no-judge", "transformers"), columns).validate()
    with pytest.raises(ModelError, match="./no-writer"):
        RowTask(PipelineConfig(), judge, columns, checklists=Source.WRITTEN, writer=writer).validate()
    # Rows that are not scored need no judge.
    writing = Engine("writer", FakeBackend())
    no_judge = Engine("./no-judge", "transformers")
    RowTask(PipelineConfig(), no_judge, columns, scores=False, checklists=Source.WRITTEN, writer=writing).validate()
    with pytest.raises(ConfigError, match="requires a writer"):
        RowTask(PipelineConfig(), judge, columns, checklists=Source.WRITTEN)


def test_the_settings_name_all_that_results_depend_on():
    def settings(images="show", **changed):
        judge, columns = Engine("judge", FakeBackend(identity="a")), Columns.of(ONE, images=images)
        return RowTask(PipelineConfig(), judge, columns, **changed).settings

    shared = Checklist.parse(["Is it kind?"])
    assert settings() == settings() != settings(checklists=shared)
    assert settings()["judge"] == {"model": "judge", "identity": "a"} and settings()["writer"] is None
    assert settings(checklists=shared)["checklists"] == shared.id and settings()["checklists"] == "column"
    assert settings(scores=False)["judge"] is None
    assert settings("show") != settings("ignore") and "images" not in settings("show")["columns"]


def totals_of(rule: str) -> Totals:
    scorer = ChecklistScorer(backend=FakeBackend(), store=False, no_answer=rule)
    targets = {"a text": {}, "a long text": {"state": "cut"}, " ": {"state": "cut_in_thought"}, "": {}}
    samples = [Sample(["Is it?", "Is it so?"], text.strip(), **state) for text, state in targets.items()]
    totals = Totals()
    for number, score in enumerate(scorer.score_batch(samples), start=1):
        totals.add(number, score)
    return totals


@pytest.mark.parametrize(
    ("rule", "not_asked", "missing", "unscored"),
    [
        ("lowest", 2, {}, 0),
        ("unscored", 2, {"no_answer": 4}, 2),
        ("judge", 0, {}, 0),
    ],
)
def test_targets_without_an_answer_are_counted_by_state(rule, not_asked, missing, unscored):
    totals = totals_of(rule)
    assert totals.no_answer == {"cut_in_thought": 1, "empty": 1} and totals.states["cut"] == 1
    assert {reason: count.count for reason, count in totals.unanswered.items()} == missing
    assert (totals.not_asked, totals.tally.unscored, totals.transient) == (not_asked, unscored, 0)


def test_totals_of_an_earlier_version_are_read():
    dumped = totals_of("lowest").dump()
    assert Totals.load({k: v for k, v in dumped.items() if k not in ("states", "not_asked")}).no_answer == {}


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
