"""`generate`, `run` and `score` with `--ray`: the rows and the report of the same command in one process."""

import errno
import json
import math
import socket
from pathlib import Path

import pytest

from checklist_rewards.backends import engine as engines
from checklist_rewards.files.rows import read_rows
from checklist_rewards.images import image_of
from tests.faultserver import MARK
from tests.jsonl import write_jsonl
from tests.test_images import IMAGES, PILLOWS, Seeing

pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")

PRICE = ("--price", "pocket=1,2", "--price", "valid=1,2")
SHORT = ("--writer.max-tokens", 96)
TEXT = "The dog sees the moon. It barks."


def row(prompt: str | None, target: str = TEXT, **more) -> dict:
    return {"prompt": prompt, "target": target, **more}


ROWS = [row(f"Write {number} sentences and mention the word moon.") for number in ("two", "three", "four", "five")]
TOO_LONG = row("Write two sentences about the moon. " * 2000)


def shards(folder: Path, *parts: list) -> Path:
    folder.mkdir()
    for number, rows in enumerate(parts):
        write_jsonl(folder / f"part-{number}.jsonl", *rows)
    return folder


def output(path: str) -> list[dict]:
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    return [row.data for file in files for row in read_rows(file)]


def times(folder: str) -> list[int]:
    return [path.stat().st_mtime_ns for path in sorted(Path(folder).glob("*.parquet"))]


def same(one, other) -> bool:
    """Equal, with the same columns in the same order. A batch of another size changes the last digits of floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
    return one == other


def summary(path: str) -> dict:
    """A summary without the name of the output, the seconds, and the tokens that rows share only in one process."""
    found = json.loads(Path(path).read_text())
    del found["output"], found["seconds"]
    if found["receipt"] is not None:
        for name in ("engine_seconds", "computed_tokens", "floor_tokens"):
            del found["receipt"][name]
    return found


@pytest.fixture
def both(inline, run, tmp_path):
    """`both("score", rows, *options)` runs a command on shards and in one process, compares the results, and gives
    those of Ray and the exit code. With `cut`, Ray gets one file."""

    def compare(command: str, parts: list[list[dict]], *options, ray=(), cut=False) -> tuple[list[dict], int]:
        write_jsonl(tmp_path / "all.jsonl", *(row for part in parts for row in part))
        source = "all.jsonl" if cut else shards(tmp_path / "in", *parts)
        files = "-o alone.parquet --summary alone.json --store alone.sqlite"
        alone = run(f"{command} all.jsonl {files}", *options, code=(0, 1))
        on_ray = run(f"{command} {source} -o out --ray --summary ray.json", *ray, *options, code=alone.exit_code)
        assert same(output("out"), output("alone.parquet"))
        assert same(summary("ray.json"), summary("alone.json"))
        return output("out"), on_ray.exit_code

    return compare


def test_generate_on_shards_is_generate_and_is_not_repeated(both, inline, run, fault_server):
    served = ["--model", "valid", "--base-url", fault_server, *PRICE]
    rows, code = both("generate", [ROWS[:2], ROWS[2:]], *served, ray=["--actors", 2])
    assert code == 0 and all(row["checklist"] for row in rows) and inline.started == 2
    columns = ["prompt", "target", "checklist", "checklist_id", "checklist_source", "checklist_model"]
    assert list(rows[0]) == columns and [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]
    before, first = times("out"), summary("ray.json")
    run("generate in -o out --ray --summary again.json --actors 2", *served)
    assert times("out") == before and summary("again.json") == first
    assert first["US_dollars"] > 0 and first["writer_calls"] >= 4


def test_a_file_that_is_cut_gives_the_rows_of_one_process(both):
    """With an engine in the actor."""
    rows, code = both("run", [[*ROWS[:2], TOO_LONG, ROWS[2]]], *SHORT, *PRICE, ray=["--shard-rows", 2], cut=True)
    assert len(times("out")) == 2 and code == 1  # the model's context is shorter than one of the prompts
    assert [bool(row["checklist"]) for row in rows] == [True, True, False, True]
    assert [row["checklist_score"] is not None for row in rows] == [True, True, False, True]
    found = summary("ray.json")
    assert found["unanswered"] == {"not_generated": 1} and found["scored"] == 3
    assert found["US_dollars_per_read_asked"] > 0


def test_a_file_that_cannot_be_read_and_an_invalid_row_fail_alone(inline, run, tmp_path, fault_server):
    source = shards(tmp_path / "in", ROWS[:1], ROWS[1:2], [ROWS[2], row("  "), row("Write.", None)])
    (source / "part-1.jsonl").write_text(json.dumps(ROWS[1]) + "\n{oops\n")
    command = ("generate", "in", "-o", "out", "--ray", "--model", "valid", "--base-url", fault_server)
    done = run(*command, "--summary", "sum.json", code=1)
    assert "part-1.jsonl, line 2, column 2: not valid JSON" in done.stderr, done.output
    assert summary("sum.json")["unanswered"] == {"shard_failed": 1, "invalid_row": 1}
    assert summary("sum.json")["rows"] == 4 and "part-2:2" in done.stderr
    assert "part-2.jsonl, line 2: the input (prompt) is blank" in done.stderr
    before = times("out")
    write_jsonl(source / "part-1.jsonl", ROWS[1])
    run(*command, code=1)
    after = times("out")
    assert [after[0], after[2]] == before
    assert [row["prompt"] for row in output("out")] == [*(row["prompt"] for row in ROWS[:3]), "  ", "Write."]
    assert [row["checklist"] is None for row in output("out")] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("image", "message", "cut"),
    [("gone.png", "gone.png' cannot be read: No such file", False), ("list.json", "cannot be decoded as", True)],
)
def test_a_row_with_a_bad_image_is_named_before_the_cluster_starts(inline, run, tmp_path, image, message, cut):
    """By the file and the line that the user knows, although a file may be cut."""
    (tmp_path / "list.json").write_text("[]")
    bad = row("What is this?", checklist=["Is it red?"], image=f"../{image}")
    parts = [[row("Write.", checklist=["Is it red?"])], [row("Write.", checklist=["Is it red?"]), bad]]
    source = shards(tmp_path / "in", *parts)
    source = source / "part-1.jsonl" if cut else source
    done = run(f"score {source} -o out --ray --model pocket --no-store", code=2)
    assert "part-1.jsonl, line 2, 'image'" in done.stderr, done.output
    assert message in done.stderr and not inline.started and not Path("out").exists()


@pytest.mark.parametrize("cut", [False, True])
def test_images_of_shards_begin_in_their_folders_and_open_beside_the_results(inline, run, tmp_path, cut, monkeypatch):
    """Two folders of the pattern have an image of the same name."""
    backend = Seeing()
    monkeypatch.setattr(engines, "_engines", {})
    monkeypatch.setattr(engines, "_build", lambda *_: backend)
    (tmp_path / "vlm").mkdir()
    (tmp_path / "vlm/config.json").write_text('{"model_type": "smolvlm"}')
    colours = ["red"] if cut else ["red", "blue"]
    for colour in colours:
        folder = tmp_path / "data" / colour
        folder.mkdir(parents=True)
        PILLOWS[colour].save(folder / "it.png")
        write_jsonl(folder / f"{colour}.jsonl", row("What is this?", checklist=["Is it red?"], image="it.png"))
    source = "data/red/red.jsonl" if cut else "data/*/*.jsonl"
    run(f"score {source} -o out --ray --model vlm --no-store")
    assert sorted(backend.shown) == sorted([IMAGES[colour].key] for colour in colours)
    found = [image_of(one["image"], folder="out") for one in output("out")]
    assert {image.key for image in found} == {IMAGES[colour].key for colour in colours}
    assert {one["image"] for one in output("out")} == {f"../data/{colour}/it.png" for colour in colours}


def test_a_checklist_that_the_server_lost_is_written_by_the_next_run(inline, run, tmp_path, fault_server):
    shards(tmp_path / "in", ROWS[:1], [row(f"Write {MARK} again."), ROWS[1]])
    served = ["--model", "503_twice@some", "--base-url", fault_server, "--engine-args", "attempts=1"]
    codes, states = [], []
    for _ in range(3):
        done = run("generate in -o out --ray --summary sum.json", *served, code=(0, 1))
        codes.append(done.exit_code)
        states.append((summary("sum.json")["writer_calls"], times("out")[0]))
    assert codes == [1, 1, 0], done.output
    assert states[0][1] == states[2][1]  # the shard without failures was kept
    assert all(row["checklist"] for row in output("out"))


@pytest.mark.parametrize(
    "options",
    [
        ["--metric", "pass", "--pipeline", "rocketeval", "--threshold", "0.5", "--checks", "mean"],
        ["--metric", "weighted", "--judge", "panel.yaml", "--checklist", "shared.json", "--input-key", "prompt"],
    ],
    ids=["pipeline", "panel"],
)
def test_options_of_the_judge_give_the_columns_of_one_process(options, both, fault_server):
    one, two = {"model": "valid", "base_url": fault_server}, {"model": "split", "base_url": fault_server}
    Path("panel.yaml").write_text(json.dumps({"panel": {"rule": "mean"}, "judges": [one, two | {"mass_floor": 0.2}]}))
    Path("shared.json").write_text(json.dumps(["Is the word moon there (yes)?", "Is it one sentence (no)?"]))
    served = [] if "--judge" in options else ["--model", "valid", "--base-url", fault_server]
    check = {"question": "At most four words?", "check": '{"type": "words", "at_most": 4}'}
    asked = {"question": "Are these two sentences (yes)?", "check": None}
    rows = [row | {"checklist": [asked, check], "id": 7} for row in ROWS]
    scored, code = both("score", [rows[:3], rows[3:]], *options, *served)
    assert code == 0 and {row["checklist_score"]["primary_metric"] for row in scored} == {options[1]}
    assert list(scored[0]) == ["prompt", "target", "checklist", "id", "checklist_score"]


def test_a_full_disk_names_the_shard_that_has_no_room(inline, run, engine, tmp_path, monkeypatch):
    from checklist_rewards.datasets import shards as module

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_batches", full)
    shards(tmp_path / "in", ROWS)
    Path("list.json").write_text(json.dumps(["Is it?"]))
    engine()
    done = run("score in -o out --ray --model pocket --checklist list.json", code=1)
    assert "out/part-0.parquet could not be written completely (No space left on device)" in done.stderr, done.output
    assert "rerun the same command to continue" in done.stderr


@pytest.mark.parametrize(
    ("source", "address", "said"),
    [
        ("in", "127.0.0.1:1", "refused"),
        ("in", "ray://127.0.0.1:1", "refused"),
        ("in/part-0.jsonl", None, "cannot be reached: no GCS."),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_one_sentence(run, tmp_path, monkeypatch, source, address, said):
    waits = address is not None

    def unreachable(**options):
        assert not waits, "Ray waits for minutes"
        raise ConnectionError("no GCS\nmore lines")

    shards(tmp_path / "in", ROWS)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", unreachable)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = address or f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        words = [f"the cluster at RAY_ADDRESS={address} cannot be reached", said]
        run(f"run {source} -o out --ray --model pocket", refused=words)


def test_options_that_do_not_fit_are_refused_before_ray_starts(run, tmp_path, monkeypatch):
    from checklist_rewards.datasets import ray as module

    monkeypatch.setattr(module, "_connected", lambda: pytest.fail("Ray was started"))
    shards(tmp_path / "in", ROWS)
    write_jsonl("file.jsonl", *ROWS)
    Path("folder").mkdir()
    shards(tmp_path / "judged", [row | {"checklist": ["Is it fine?"]} for row in ROWS])
    for command, sentence in (
        ("generate in -o out --ray --budget 1 --price pocket=1,1", "--budget counts the calls of one process"),
        ("run in -o out --ray --dry-run", "--dry-run counts the calls of one process"),
        ("run in -o out --shard-rows 2", "--shard-rows has no effect without --ray; omit it."),
        ("generate in -o out --ray --input-key question", "column 'question' not found"),
        ("run in -o out --ray --model nowhere", "model not found: 'nowhere'"),
        ("generate in -o out --ray --summary folder", "--summary folder is a folder"),
        ("run in -o out --ray --summary out", "--summary out is also --output"),
        ("generate in -o out --ray --summary in/part-0.jsonl", "--summary in/part-0.jsonl is an input file"),
        ("run in -o file.jsonl --ray", "--output file.jsonl is a file, expected a folder."),
        ("generate in -o new.jsonl --ray", "--output new.jsonl looks like a file; --ray writes a folder"),
        ("generate in -o out --ray --pipeline checkeval", "checkeval writes"),
        ("score judged -o out --actors 2", "--actors has no effect without --ray; omit it."),
        ("score judged -o out --ray --target-key answer", "column 'answer' not found"),
        ("score judged -o out --ray --store a --no-store", "contradict"),
        ("score judged/*.jsonl -o judged --ray", "--output judged is the folder of the input; choose another one."),
        ("score nowhere -o out --ray", ""),
    ):
        run(command, refused=sentence)
