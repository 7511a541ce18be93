"""The cache of files that the app has read."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from checklist_rewards.ui.app import _Files
from tests.conftest import HANG


def test_a_file_that_takes_long_to_read_keeps_no_other_waiting_and_is_read_once(tmp_path):
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.write_text("slow")
    fast.write_text("fast")
    started, go = threading.Event(), threading.Event()
    reads = []

    def read(path):
        reads.append(path)
        if path == slow:
            started.set()
            assert go.wait(HANG)
        return path.read_text()

    files = _Files(read)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(files.get, slow)
        assert started.wait(HANG)
        second = threads.submit(files.get, slow)
        try:
            assert threads.submit(files.get, fast).result(10) == "fast"
        finally:
            go.set()
        assert first.result(HANG) == second.result(HANG) == "slow"
    assert reads.count(slow) == 1 and files.get(slow) == "slow" and reads.count(slow) == 1


def test_an_error_of_reading_is_not_kept(tmp_path):
    path = tmp_path / "file"
    path.write_text("broken")
    files = _Files(lambda path: int(path.read_text()))
    with pytest.raises(ValueError, match="broken"):
        files.get(path)
    path.write_text("1")
    assert files.get(path) == 1


def test_the_page_is_told_how_many_rows_of_a_report_are_read(client, monkeypatch):
    from checklist_rewards.ui import app

    told, read = [], app.report_data

    def reads(paths, **options):
        bar = options["progress"]("rows", 5)
        bar(2)
        told.append(client.get("/api/report/progress?file=scored.jsonl").json())
        return read(paths, **options)

    monkeypatch.setattr(app, "report_data", reads)
    assert client.get("/api/report?file=scored.jsonl").status_code == 200
    assert told == [{"done": 2, "total": 5}]
    assert client.get("/api/report/progress?file=scored.jsonl").json() == {}
