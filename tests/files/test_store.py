"""The store: content-addressed, shared by processes, and harmless when it breaks."""

import json
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.errors import StoreError
from checklist_rewards.files import store as store_module
from checklist_rewards.files.store import Store, key_of


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


KEY, OTHER = key_of("a"), key_of("b")
LETTER = "this is a letter, not a database " * 100


def test_what_was_put_first_is_there_again_in_another_process_of_the_same_file(tmp_path):
    store = Store(tmp_path / "deep" / "store.sqlite")
    answers = {key_of(str(n)): f"reply {n} ü\n" for n in range(3000)} | {KEY: "a long reply ü\n" * 1000}
    store.put(answers.items())
    store.put([(KEY, "second")])
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get([*answers, key_of("unknown")]) == answers and len(copy) == len(answers)


def test_the_first_answer_makes_the_file(tmp_path):
    (tmp_path / "empty.sqlite").touch()
    for path in (tmp_path / "deep" / "store.sqlite", tmp_path / "empty.sqlite"):
        store = Store(path)
        store.put([])
        assert store.get([key_of("a")]) == {} and len(store) == 0
        assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("empty.sqlite", 0)]
    store.put([(key_of("a"), "x")])
    assert Store(store.path).get([key_of("a")]) == {key_of("a"): "x"}


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_parts_have_different_keys(one, other):
    assert (key_of(*one) == key_of(*other)) == (one == other)


def test_several_processes_write_at_once(tmp_path):
    path = tmp_path / "store.sqlite"
    code = (
        "import sys; from checklist_rewards.files.store import Store, key_of\n"
        "store = Store(sys.argv[1])\n"
        "for n in range(100): store.put([(key_of(sys.argv[2], str(n)), 'x')])\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "abc"]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(Store(path)) == 300


@pytest.mark.parametrize(
    ("kind", "lock", "thread"),  # a write-ahead log, or a rollback journal; another thread connects while it is locked
    [
        ("ext4", "IMMEDIATE", "another thread"),
        ("ext4", "EXCLUSIVE", "the same thread"),
        ("nfs4", "EXCLUSIVE", "another thread"),
        ("nfs4", "IMMEDIATE", "the same thread"),
    ],
)
def test_a_lock_of_another_process_costs_neither_answers_nor_the_store(
    tmp_path, monkeypatch, caplog, kind, lock, thread
):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - {kind} source rw\n")
    monkeypatch.setattr(store_module, "_MOUNTS", mounts)
    monkeypatch.setattr(store_module, "_LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(store_module, "_LOCKED_TIMEOUT_S", 0.01)
    store = Store(tmp_path / "store.sqlite")
    store.put([(key_of("a"), "before")])
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute(f"BEGIN {lock}")
    keys = [key_of(name) for name in "abcd"]

    def during() -> dict:
        store.put([(keys[1], "during"), (keys[1], "again")])
        store.put([(keys[1], "later"), (keys[2], "also")])
        return store.get(keys)

    with ThreadPoolExecutor(1) as pool:
        found = during() if thread == "the same thread" else pool.submit(during).result()
    assert {keys[1]: "during", keys[2]: "also"}.items() <= found.items() and keys[3] not in found
    other.execute("COMMIT")
    store.put([(keys[3], "after")])
    expected = dict(zip(keys, ["before", "during", "also", "after"], strict=True))
    assert store.get(keys) == Store(store.path).get(keys) == expected
    assert caplog.text.count("is locked by another process") == 1 and "without it" not in caplog.text


def test_answers_that_waited_for_a_lock_are_written_when_python_exits(tmp_path):
    path = tmp_path / "store.sqlite"
    code = (
        "import sys; from checklist_rewards.files import store as module\n"
        "store = module.Store(sys.argv[1])\n"
        "print('open', flush=True); input()\n"
        "module._LOCK_TIMEOUT_S = 0.05\n"
        "store.put([(module.key_of('a'), 'x')])\n"
        "module._LOCK_TIMEOUT_S = 60\n"
        "print('kept', flush=True)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1, stderr=-1, text=True)
    assert worker.stdout.readline() == "open\n"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    worker.stdin.write("\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "kept\n"
    other.execute("COMMIT")
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "answers are kept in memory" in errors
    assert Store(path).get([key_of("a")]) == {key_of("a"): "x"}


def test_a_user_without_a_home_is_told_which_variable_to_set(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)  # in a container, without an entry in /etc/passwd
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="no home directory .*; set HOME or XDG_CACHE_HOME"):
        Store()


def test_what_is_no_store_is_refused_with_what_to_do(store, tmp_path, caplog):
    (tmp_path / "letter").write_text(LETTER)
    for path in (tmp_path / "letter", tmp_path / "letter" / "store.sqlite"):
        with pytest.raises(StoreError, match="cannot be opened.*--no-store"):
            Store(path)
    (tmp_path / "letter").replace(store.path)  # while it is open, that costs the resume, not the run
    assert store.get([KEY]) == {}
    store.put([(KEY, "x")])
    assert caplog.text.count("file is not a database") == 1
    assert store.path.read_text() == LETTER


@pytest.mark.parametrize(
    "value",
    ["no JSON", "[1, 2]", "7", b"not zlib", zlib.compress(b"\xff"), 7, None, 2.5],
    ids=["not-json", "another-shape", "a-number", "not-zlib", "not-utf8", "an-int", "null", "a-float"],
)
def test_a_value_that_cannot_be_decoded_is_a_miss_and_the_next_answer_replaces_it(store, value, caplog):
    store.put([(OTHER, '{"answer": "no"}')])
    with sqlite3.connect(store.path) as connection:
        connection.execute("INSERT INTO answers VALUES (?, ?)", (KEY, value))

    def decode(key, text):
        return json.loads(text)["answer"]

    assert store.get([KEY, OTHER], decode) == {OTHER: "no"}
    assert "1 answers in the store" in caplog.text and "cannot be decoded" in caplog.text
    store.put([(KEY, '{"answer": "yes"}')])
    assert store.get([KEY, OTHER], decode) == {KEY: "yes", OTHER: "no"}


def test_a_store_that_is_corrupted_while_open_costs_the_resume_not_the_run(store, caplog):
    store.put((key_of(str(n)), "x" * 300) for n in range(500))
    store._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._connection().execute("PRAGMA cache_size=0")
    with store.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (store.path.stat().st_size - 4096))
    keys = [key_of(str(n)) for n in range(500)]
    assert store.get(keys) == store.get(keys) == {}
    store.put([(KEY, "y")])
    assert caplog.text.count("cannot be read") == 1 and "malformed" in caplog.text


@pytest.mark.parametrize("also", [[], ["-wal", "-shm"]], ids=["the file", "the file and its log"])
def test_answers_are_kept_after_the_file_was_removed(store, tmp_path, caplog, also):
    store.put([(KEY, "x")])
    for name in ["", *also]:
        (tmp_path / f"store.sqlite{name}").unlink()
    store.put([(OTHER, "y")])
    assert caplog.text.count("was removed or replaced while in use") == 1
    assert Store(store.path).get([KEY, OTHER]) == {OTHER: "y"}


def test_a_replaced_file_is_the_store_from_then_on(tmp_path):
    store, fuller = Store(tmp_path / "store.sqlite"), Store(tmp_path / "fuller.sqlite")
    fuller.put([(KEY, "x")])
    fuller._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fuller._connection().close()
    fuller.path.replace(store.path)
    with ThreadPoolExecutor(1) as thread:  # which has no connection yet
        assert thread.submit(store.get, [KEY]).result() == {KEY: "x"}
    assert store.get([KEY]) == {KEY: "x"}
    store.put([(OTHER, "y")])
    assert Store(store.path).get([KEY, OTHER]) == {KEY: "x", OTHER: "y"}


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 0 259:1 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw
90 27 0:40 / {folder} rw,relatime - {kind} server:/export rw
91 90 259:2 / {folder}/local\\040disk rw - xfs /dev/sdb1 rw
"""


@pytest.mark.parametrize(
    ("kind", "folder", "mode"),
    [
        *((kind, "deep", "truncate") for kind in ("nfs4", "cifs", "lustre", "fuse.sshfs")),
        ("ext4", "deep", "wal"),
        ("nfs4", "local disk", "wal"),
    ],
)
def test_on_a_network_file_system_there_is_no_write_ahead_log(tmp_path, monkeypatch, caplog, kind, folder, mode):
    monkeypatch.setattr(store_module, "_MOUNTS", tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_text(MOUNTS.format(folder=tmp_path, kind=kind))
    store = Store(tmp_path / folder / "store.sqlite")
    assert store._connection().execute("PRAGMA journal_mode").fetchone() == (mode,)
    assert caplog.text.count(f"is on a network file system ({kind})") == (mode == "truncate")
    store.put([(KEY, "x")])
    assert Store(store.path).get([KEY]) == {KEY: "x"}


def test_a_store_that_only_reads_needs_no_place_to_write_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert Store(tmp_path / "file" / "store.sqlite", writes=False).get([KEY]) == {}
    written = Store(tmp_path / "store.sqlite")
    written.put([(KEY, "x")])
    reading = Store(written.path, writes=False)
    for store in (reading, pickle.loads(pickle.dumps(reading))):
        store.put([(OTHER, "y")])
        assert store.get([KEY, OTHER]) == {KEY: "x"}, "while another process writes"
        store._connection().close()
    written._connection().close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store.sqlite"]
    assert Store(written.path, writes=False).get([KEY, OTHER]) == {KEY: "x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store.sqlite"], "without a log of its own"
    with pytest.raises(StoreError, match="cannot be opened"):
        (tmp_path / "text.sqlite").write_text("no database" * 100)
        Store(tmp_path / "text.sqlite", writes=False)


def test_stores_are_merged_and_earlier_answers_are_kept(tmp_path):
    one, two = Store(tmp_path / "one.sqlite"), Store(tmp_path / "two.sqlite")
    one.put([(key_of("a"), "one"), (key_of("b"), "b")])
    two.put([(key_of("a"), "two"), (key_of("c"), "c" * 1000)])
    assert one.merge(two.path) == 1 and one.merge(two.path) == 0
    answers = one.get([key_of("a"), key_of("b"), key_of("c")])
    assert list(sorted(answers.values())) == ["b", "c" * 1000, "one"]
    (tmp_path / "empty.sqlite").touch()
    assert one.merge(tmp_path / "empty.sqlite") == 0, "an empty file becomes a store at its first answer"
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    for path, message in (("text.sqlite", "cannot be opened"), ("none.sqlite", "store not found")):
        with pytest.raises(StoreError, match=message):
            one.merge(tmp_path / path)
    assert not (tmp_path / "none.sqlite").exists()


def test_without_working_locks_a_network_file_system_costs_the_resume_not_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store_module, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(store_module, "_LOCK_TIMEOUT_S", 0)
    (tmp_path / "mountinfo").write_text(MOUNTS.format(folder=tmp_path, kind="nfs"))
    held = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    held.execute("PRAGMA journal_mode=DELETE")
    held.execute("CREATE TABLE answers (key BLOB PRIMARY KEY, value) WITHOUT ROWID")
    held.execute("BEGIN EXCLUSIVE")
    store = Store(tmp_path / "store.sqlite")
    store.put([(KEY, "x")])
    assert store.get([KEY]) == {}
    assert caplog.text.count("cannot be read (database is locked)") == 1


def stored(path, key=KEY):
    """The raw value of a key, as SQLite has it."""
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchall()


def test_a_text_that_is_not_utf8_costs_itself_and_not_its_neighbours(store):
    store.put([(OTHER, "fine")])
    with sqlite3.connect(store.path) as connection:
        connection.execute("INSERT INTO answers VALUES (?, CAST(x'22ff22' AS TEXT))", (KEY,))
    assert store.get([KEY, OTHER]) == {OTHER: "fine"}
    assert stored(store.path) == []


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


def test_a_full_disk_costs_the_resume_not_the_run(store, caplog):
    pages = store._connection().execute("PRAGMA page_count").fetchone()[0]
    store._connection().execute(f"PRAGMA max_page_count={pages + 2}")
    for n in range(3):
        store.put((key_of(f"{n} {m}"), "x" * 400) for m in range(200))
    assert caplog.text.count("cannot be written") == 1
    assert "database or disk is full" in caplog.text
    with pytest.raises(sqlite3.OperationalError):
        store._connection().execute("CREATE TABLE big AS SELECT randomblob(1000000)")


def test_a_table_that_is_gone_costs_the_resume_not_the_run(store, caplog):
    store.put([(OTHER, "x")])
    with sqlite3.connect(store.path) as connection:
        connection.execute("DROP TABLE answers")
    store.put([(KEY, "y")])
    assert store.get([KEY]) == {}
    assert caplog.text.count("no such table") == 2


def test_a_store_that_may_only_be_read_still_gives_what_it_has(store, caplog):
    store.put([(KEY, "x")])
    store._connection().execute("PRAGMA query_only=ON")
    store.put([(OTHER, "y")])
    store.put([(OTHER, "y")])
    assert store.get([KEY, OTHER]) == {KEY: "x"}
    assert caplog.text.count("cannot be written (attempt to write a readonly database)") == 1
