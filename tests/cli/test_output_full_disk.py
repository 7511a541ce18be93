"""A disk without room, played by a limit on the size of files: what the system says is of the same kind."""

import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from checklist_rewards.files.store import Store
from tests.jsonl import write_jsonl

QUESTIONS = ["Is it short?", "Is it kind?"]


@contextmanager
def no_file_over(size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(run, engine, output):
    engine()
    write_jsonl("rows.jsonl", *({"prompt": f"Write {i}.", "checklist": QUESTIONS, "target": "one"} for i in range(20)))
    with no_file_over(100):
        done = run(f"score rows.jsonl -o {output} --no-store", code=1)
    assert f"error: {output} could not be written completely (File too large), so it was discarded." in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_what_was_answered_before_the_disk_was_full_is_not_asked_again(run, engine):
    write_jsonl("rows.jsonl", *({"target": f"text {i}", "checklist": QUESTIONS} for i in range(200)))
    fake = engine()
    with no_file_over(100_000):  # room for half of the store
        run("score rows.jsonl -o out.jsonl --store s.sqlite", code=1)
    assert not Path("out.jsonl").exists()
    kept = len(Store("s.sqlite"))
    assert 0 < kept < len(fake.asked) == 400
    run("score rows.jsonl -o out.jsonl --store s.sqlite")
    assert len(fake.asked) == 400 + 400 - kept
