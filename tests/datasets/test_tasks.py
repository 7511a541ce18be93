"""`RowWork` and `RowTask` in one process, with an engine that answers at once."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.datasets.tasks import RowTask, Source, Totals
from checklist_rewards.errors import ConfigError, ModelError, SampleError
from checklist_rewards.files.rows import SCORE_COLUMN, Row
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns
from checklist_rewards.scores.reasons import Reason, Unanswered
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies

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
    return opened.work.process(rows(*data), *progress)


def test_rows_with_checklists_are_scored_and_counted():
    data = [ONE | {"checklist": ["Is it kind?", "Is it short?"]}, TWO | {"checklist": None}]
    work, bar = opened(data[0]), Bar()
    first, second = done(work, data, None, bar)
    assert first[SCORE_COLUMN]["primary_score"] == pytest.approx(0.75) and second[SCORE_COLUMN] is None
    assert [{key: row[key] for key in data[0]} for row in (first, second)] == data
    assert (bar.done, bar.expected) == (2, 0)  # the caller counts the reads of checklists in the rows
    totals = work.totals
    assert (totals.rows, totals.tally.reads, totals.checklists) == (2, 2, None)
    assert totals.unanswered.keys() == {"no_checklist"} and totals.unanswered["no_checklist"].rows == [2]
    assert totals.judged.asked == 2 and totals.written.asked == 0


def test_one_checklist_for_all_rows_is_written_to_them():
    checklist = Checklist.parse(["Is it kind?"])
    work, bar = opened(ONE, checklists=checklist), Bar()
    found = done(work, [ONE, TWO], None, bar)
    assert [row["checklist_id"] for row in found] == [checklist.id] * 2
    assert all(NEW_COLUMNS <= row.keys() and row[SCORE_COLUMN] is not None for row in found)
    assert (bar.done, bar.expected) == (2, 2)
    assert work.totals.rows == 2 and not work.totals.unanswered


def test_checklists_are_written_scored_and_counted():
    work, bar, counted = opened(ONE, checklists=Source.WRITTEN), Bar(), []
    found = done(work, [ONE, TWO], counted.append, bar)
    assert [[item["question"] for item in row["checklist"]] for row in found] == [["Is it kind?", "Is it short?"]] * 2
    assert all(row[SCORE_COLUMN]["primary_score"] == pytest.approx(0.75) for row in found)
    assert sum(counted) == 2 and (bar.done, bar.expected) == (4, 4)
    totals = work.totals
    assert (totals.rows, totals.checklists, totals.tally.reads) == (2, 2, 4)
    assert totals.judged.asked == 4 and totals.written.calls == 2


def test_a_checklist_that_was_not_written_is_counted_once():
    work = opened(ONE, reply="no JSON", checklists=Source.WRITTEN)
    [row] = done(work, [ONE])
    assert row[SCORE_COLUMN] is None and {row[name] for name in NEW_COLUMNS} == {None}
    assert (work.totals.rows, work.totals.checklists) == (1, 0)
    assert {reason: count.count for reason, count in work.totals.unanswered.items()} == {"not_generated": 1}
    assert "The last reply was 'no JSON'" in work.totals.unanswered["not_generated"].detail


def test_rows_that_are_only_given_a_checklist_have_no_score():
    data = {"prompt": "Greet me."}
    work = opened(data, checklists=Source.WRITTEN, scores=False)
    [row] = done(work, [data])
    assert SCORE_COLUMN not in row and row["prompt"] == "Greet me." and len(row["checklist"]) == 2
    assert work.totals.judged is None and work.totals.checklists == 1
    other = opened({"input": "Greet me."}, checklists=Source.WRITTEN, scores=False)
    with pytest.raises(SampleError, match="row 1.*the input is in input, but the row also has a column 'prompt'"):
        other.work.validate(*rows({"input": "Greet me.", "prompt": "Thank me."}))


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        ({}, {SCORE_COLUMN}),
        ({"checklists": Checklist.parse(["Is it kind?"])}, {SCORE_COLUMN} | NEW_COLUMNS),
        ({"checklists": Source.WRITTEN}, {SCORE_COLUMN} | NEW_COLUMNS),
        ({"checklists": Source.WRITTEN, "scores": False}, NEW_COLUMNS),
    ],
)
def test_a_failed_row_keeps_its_columns_and_has_null_in_the_new_ones(settings, added):
    work = opened(ONE, shard="part-0", **settings)
    [row] = rows(ONE)
    found = work.work.failed(row, Unanswered(Reason.BACKEND_ERROR, "the actor died"))
    assert found == ONE | dict.fromkeys(added)
    totals, missing = work.totals, work.totals.unanswered["backend_error"]
    assert totals.rows == totals.transient == missing.count == 1
    assert (missing.rows, missing.detail) == (["part-0:1"], "the actor died")


def test_totals_of_parts_add_up_and_survive_json():
    data = [ONE | {"checklist": ["Is it kind?"]}, TWO | {"checklist": None}]
    whole, parts = opened(data[0]), [opened(data[0]), opened(data[0])]
    done(whole, [*data, *data])
    for part in parts:
        done(part, data)
    total = type(whole.totals).load(parts[0].totals.dump())
    total += parts[1].totals
    assert (total.rows, total.tally.mean, total.judged.reads) == (4, whole.totals.tally.mean, 2)
    assert total.unanswered["no_checklist"].count == whole.totals.unanswered["no_checklist"].count == 2


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
    [("lowest", 2, {}, 0), ("unscored", 2, {"no_answer": 4}, 2), ("judge", 0, {}, 0)],
)
def test_targets_without_an_answer_are_counted_by_state(rule, not_asked, missing, unscored):
    totals = totals_of(rule)
    assert totals.no_answer == {"cut_in_thought": 1, "empty": 1} and totals.states["cut"] == 1
    assert {reason: count.count for reason, count in totals.unanswered.items()} == missing
    assert (totals.not_asked, totals.tally.unscored, totals.transient) == (not_asked, unscored, 0)


def test_totals_of_an_earlier_version_are_read():
    dumped = totals_of("lowest").dump()
    assert Totals.load({k: v for k, v in dumped.items() if k not in ("states", "not_asked")}).no_answer == {}
