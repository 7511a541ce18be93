"""The store: content-addressed, shared by processes, and harmless when it breaks."""

import pickle
import sqlite3
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.errors import StoreError
from checklist_rewards.store import Store, default_store_path, key_of, open_store


def test_what_was_put_is_there_again_in_another_process_of_the_same_file(tmp_path):
    store = Store(tmp_path / "deep" / "store.sqlite")
    long = "a long reply ü\n" * 1000
    store.put([(key_of("a"), "1"), (key_of("b"), long)])
    assert Store(store.path).get([key_of("a"), key_of("b"), key_of("c")]) == {key_of("a"): "1", key_of("b"): long}
    assert len(store) == 2


def test_the_first_answer_of_a_key_stays(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    store.put([(key_of("a"), "first")])
    store.put([(key_of("a"), "second")])
    assert store.get([key_of("a")]) == {key_of("a"): "first"}


def test_thousands_of_keys_are_looked_up_at_once(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    keys = [key_of(str(n)) for n in range(3000)]
    store.put((key, str(n)) for n, key in enumerate(keys))
    assert list(store.get(keys).values()) != [] and len(store.get(keys)) == 3000


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_parts_have_different_keys(one, other):
    assert (key_of(*one) == key_of(*other)) == (one == other)


def test_several_processes_write_at_once(tmp_path):
    path = tmp_path / "store.sqlite"
    code = (
        "import sys; from checklist_rewards.store import Store, key_of\n"
        "store = Store(sys.argv[1])\n"
        "for n in range(100): store.put([(key_of(sys.argv[2], str(n)), 'x')])\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "abc"]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(Store(path)) == 300


def test_a_store_waits_for_the_process_that_is_making_it(tmp_path):
    path = tmp_path / "store.sqlite"
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, maker.commit)
    release.start()
    store = Store(path)
    release.join()
    store.put([(key_of("a"), "x")])
    assert len(store) == 1


def test_a_store_is_used_from_threads_and_survives_pickling(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    threads = [threading.Thread(target=store.put, args=([(key_of(str(n)), str(n))],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pickle.loads(pickle.dumps(store))) == 8


def test_a_file_that_is_no_store_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "store.sqlite"
    path.write_text("this is a letter, not a database " * 100)
    with pytest.raises(StoreError, match="cannot be opened.*--no-store"):
        Store(path)
    assert path.read_text().startswith("this is a letter")


def test_a_full_disk_costs_the_resume_not_the_run(tmp_path, caplog):
    store = Store(tmp_path / "store.sqlite")
    pages = store._connection().execute("PRAGMA page_count").fetchone()[0]
    store._connection().execute(f"PRAGMA max_page_count={pages + 2}")
    for n in range(3):
        store.put((key_of(f"{n} {m}"), "x" * 400) for m in range(200))
    assert caplog.text.count("takes no more answers") == 1
    assert "database or disk is full" in caplog.text
    with pytest.raises(sqlite3.OperationalError):
        store._connection().execute("CREATE TABLE big AS SELECT randomblob(1000000)")


def test_open_store_takes_what_a_user_passes(tmp_path):
    assert open_store(False) is open_store(None) is None
    assert open_store(tmp_path / "a.sqlite").path == tmp_path / "a.sqlite"
    assert open_store(True).path == default_store_path()
