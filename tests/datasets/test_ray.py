"""The shards of a dataset: the results of one process, resumed and counted. The actors are in this process."""

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.datasets.shards import in_groups
from checklist_rewards.datasets.tasks import RowTask, RowWork
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns, score_from
from tests.datasets.shardjudges import Judge

pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")

SHORT = {"question": "At most five words?", "check": '{"type": "words", "at_most": 5}'}
QUESTION = {"question": "Is it kind?", "check": None}


@pytest.fixture
def run_shards(inline):
    from checklist_rewards.datasets.ray import run_shards

    return run_shards


def rows(count: int, *, start: int = 0) -> list[dict]:
    texts = {number: f"text {number}" + " more" * (number % 7) for number in range(start, start + count)}
    return [
        {"prompt": f"Write {number // 4}.", "target": text, "checklist": [SHORT, QUESTION]}
        for number, text in texts.items()
    ]


def write_shards(folder: Path, *shards: list[dict]) -> Path:
    for number, shard in enumerate(shards):
        with write_rows(folder / f"part-{number}.parquet") as out:
            for row in shard:
                out.write(row)
    return folder


def task(judge: Backend) -> RowTask:
    return RowTask(PipelineConfig(), Engine("judge", judge), Columns.of({"prompt": "", "target": ""}))


def outputs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def scored(folder: Path) -> list[dict]:
    return [row.data for path in outputs(folder) for row in read_rows(path)]


def alone(work: RowWork, source: Path) -> list[dict]:
    """The results of one process, as they are in a file."""
    found = [row for path in outputs(source) for row in read_rows(path)]
    with write_rows(source / "alone" / "all.parquet") as out:
        for row in work.process(found):
            out.write(row)
    return scored(source / "alone")


def reads(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_a_second_run_repeats_nothing_and_other_settings_are_refused(run_shards, tmp_path):
    source, out = write_shards(tmp_path / "in", rows(6), rows(6, start=6)), tmp_path / "out"
    first = run_shards(task(Judge(tmp_path / "log")), source, out)
    before = [(path.stat().st_mtime_ns) for path in outputs(out)]
    again = run_shards(task(Judge(tmp_path / "log")), source, out)
    assert again == first and [(path.stat().st_mtime_ns) for path in outputs(out)] == before
    with pytest.raises(SampleError, match="judge.identity = 'judge', now 'other'; choose another --output"):
        run_shards(task(Judge(tmp_path / "log", identity="other")), source, out)
    # A changed shard is processed again, with the answers that its store has.
    write_shards(tmp_path / "new", [*rows(6), *rows(1, start=90)])
    (tmp_path / "new" / "part-0.parquet").replace(source / "part-0.parquet")
    asked = len(reads(tmp_path / "log"))
    assert run_shards(task(Judge(tmp_path / "log")), source, out).rows == 13
    assert len(reads(tmp_path / "log")) == asked + 1


def test_an_invalid_row_fails_alone(run_shards, tmp_path):
    bad = [{"prompt": "Write.", "target": None, "checklist": [QUESTION]}]
    bad += [{"prompt": "Write.", "target": "x", "checklist": [QUESTION | {"weight": math.nan}]}]
    source = write_shards(tmp_path / "in", [*rows(3), *bad, *rows(2, start=3)])
    totals = run_shards(task(Judge(tmp_path / "log")), source, tmp_path / "out")
    missing = totals.unanswered["invalid_row"]
    assert (totals.rows, missing.count, missing.rows) == (7, 2, ["part-0:4", "part-0:5"])
    assert "part-0.parquet, row 4: 'target' must be" in missing.detail
    without = [place for place, row in enumerate(scored(tmp_path / "out")) if row["checklist_score"] is None]
    assert without == [3, 4]


def test_a_result_that_cannot_be_written_ends_the_run_and_frees_its_actors(run_shards, inline, tmp_path):
    source, out = write_shards(tmp_path / "in", rows(2), rows(2, start=2)), tmp_path / "out"
    (out / "part-0.parquet").mkdir(parents=True)
    with pytest.raises(SampleError, match="part-0.parquet: cannot be written, it is a folder") as raised:
        run_shards(task(Judge(tmp_path / "log")), source, out, actors=2)
    assert not inline.actors
    assert raised.tb is not None  # a caller that keeps the error, with all that its frames refer to


def test_a_jsonl_file_is_cut_where_the_prompt_changes(run_shards, tmp_path):
    folder = tmp_path / "out [1]"  # a pattern, if it is read as one
    with write_rows(tmp_path / "all.jsonl") as out:
        for row in rows(23):
            out.write(row)
    totals = run_shards(task(Judge(tmp_path / "log")), tmp_path / "all.jsonl", folder, shard_rows=6)
    prompts = [{row.data["prompt"] for row in read_rows(path)} for path in outputs(folder)]
    assert [len(names) for names in prompts] == [2, 2, 2] and len(set.union(*prompts)) == 6
    assert totals.rows == 23
    assert list(map(len, in_groups("a" * 7, 3, key=str))) == [6, 1]  # of one prompt, at most twice as many
    assert [row["target"] for row in scored(folder)] == [row["target"] for row in rows(23)]


def test_shards_get_the_same_columns_and_are_one_dataset(run_shards, tmp_path):
    """Without a checklist, with a failed row, with a category and with options, a score has other types."""
    answers = [{"label": "hardly", "value": 0.0}, {"label": "fully", "value": 1.0}]
    graded = {"question": "How clear?", "category": "form", "options": answers}
    notes = [(None, None, None), ("b", [QUESTION], "n"), (None, [QUESTION], None), ("b", [QUESTION, graded], ["n"])]
    shards = [
        [{"prompt": "a", "target": target, "checklist": checklist, "note": note}] for target, checklist, note in notes
    ]
    source, out = write_shards(tmp_path / "in", *shards[1:2], shards[0], *shards[2:]), tmp_path / "out"
    totals = run_shards(task(Judge(tmp_path / "log")), source, out)
    schemas = [pq.read_schema(path) for path in outputs(out)]
    assert all(schema.equals(schemas[0], check_metadata=False) for schema in schemas)
    assert [row["note"] for row in scored(out)] == ["n", None, None, ["n"]]
    dataset = load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    found = [row["checklist_score"] and score_from(row["checklist_score"], "row") for row in dataset]
    assert found == [row["checklist_score"] and score_from(row["checklist_score"], "row") for row in scored(out)]
    assert [score is None for score in found] == [False, True, True, False] and found[3].total == 2
    assert run_shards(task(Judge(tmp_path / "log")), source, out) == totals  # the totals are kept
