"""The content-addressed store: a persistent cache of model answers.

Every read and every sampled reply is stored under the hash of everything it depends on (model identity, rendered text,
labels or sampling parameters). A second run computes only what is missing; after a change to one item, only that item
is read again. Row numbers do not matter, and no resume flag is needed.

The store is one SQLite file. Several processes may read and write it at the same time. A process that is killed loses
at most the answers that it had not yet written. The file uses a write-ahead log (WAL), except on a network file
system, where WAL does not work and a rollback journal is used.

If a store cannot be opened, an error is raised. If it fails later (corruption, a full or read-only disk), the run
continues without it after one warning, and cannot be resumed from it. A lock that another process holds for too long
is not such a failure: answers are kept in memory and written as soon as the lock is free, at the latest when Python
exits. A value that cannot be decoded is deleted and
computed again. If the file is removed or replaced while it is open, it is reopened, so that later answers are stored.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import Key
from checklist_rewards.checklists import key_of as key_of  # the key of what is stored, for callers
from checklist_rewards.errors import SampleError, StoreError
from checklist_rewards.files.atomic import check_writable

logger = logging.getLogger(__name__)

_ERRORS = (OSError, sqlite3.Error)
_MAX_VARIABLES = 500
_COMPRESS_FROM = 512
_LOCK_TIMEOUT_S, _LOCKED_TIMEOUT_S = 60, 1
"""How long to wait for a lock, and how long if the last wait was too short."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_FIRST = "SELECT key, value FROM answers LIMIT 1"
_INSERT = "INSERT OR IGNORE INTO answers VALUES (?, ?)"
_MOUNTS = Path("/proc/self/mountinfo")
_UNESCAPED = re.compile(r"\\([0-7]{3})")
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs pvfs2 smb3 smbfs vboxsf virtiofs "
    "wekafs".split()
)
"""File systems shared between machines. Every `fuse.*` file system is treated as one, too."""


def default_store_path() -> Path:
    """`checklist-rewards/store.sqlite` under the user's cache directory (`XDG_CACHE_HOME` is respected). Raises
    [`StoreError`] for a user without a home directory."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # in a container, a user without an entry in /etc/passwd
        raise StoreError("this user has no home directory for the store; set HOME or XDG_CACHE_HOME.") from None
    return Path(cache) / "checklist-rewards" / "store.sqlite"


class Store:
    """A persistent mapping from keys to texts in one SQLite file.

    Args:
        path (`str` or `Path`, *optional*): The file. If it does not exist, it is created, with its folder, for the
            first answer. Defaults to [`default_store_path`].
        writes (`bool`, *optional*, defaults to `True`): Whether answers are kept. Otherwise the store only gives those
            that it has, and neither the file nor its folder need be writable.

    Raises:
        StoreError: If the file cannot be opened or created, or is not a store. On a network file system without
            working locks, the store is disabled with a warning instead.
    """

    def __init__(self, path: str | Path | None = None, *, writes: bool = True):
        self.path = default_store_path() if path is None else Path(path).expanduser()
        self._may_write = writes
        self._local = threading.local()
        self._file: tuple[int, int] | None = None
        self._logs: dict[Path, tuple[int, int] | None] = {}
        self._reads, self._writes = True, writes
        self._late: dict[Key, str | bytes] = {}
        """Answers that could not be written because the file was locked."""
        self._late_lock = threading.Lock()
        self._locked = False
        kind = _file_system(self.path)
        self._wal = not (kind in _NETWORK or kind.startswith("fuse."))
        if not self._wal:
            logger.warning(
                "the store %s is on a network file system (%s), where SQLite is slow and locks may fail; use a local "
                "disk if possible (--store, store=).",
                self.path,
                kind,
            )
        try:
            if self._exists:
                self._connection()
            elif writes:
                check_writable(self.path)
        except (*_ERRORS, SampleError) as error:
            if not self._wal and isinstance(error, sqlite3.OperationalError):
                self._stop_reading(error)
                return
            reason = str(error).removeprefix(f"{self.path}: ").rstrip(".")
            raise StoreError(
                f"the store {self.path} cannot be opened ({reason}); give another path, or work without one "
                "(--no-store, store=False)."
            ) from error

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Path]]:
        return partial(type(self), writes=self._may_write), (self.path,)

    def get(self, keys: Sequence[Key], decode: Callable[[Key, str], Any] = lambda _, text: text) -> dict[Key, Any]:
        """Look up keys.

        Args:
            keys (sequence of [`Key`]):
                Any number, in any order.
            decode (`Callable[[Key, str], Any]`, *optional*):
                Converts the stored text of a key to a value. If it raises, the entry is deleted from the store, so
                that the next answer replaces it. Defaults to returning the text.

        Returns:
            `dict[Key, Any]`: The values of the keys that the store contains.
        """
        rows: list[tuple[Key, Any]] = []
        if self._reads and self._exists:
            try:
                connection = self._connection()
                for start in range(0, len(keys), _MAX_VARIABLES):
                    chunk = keys[start : start + _MAX_VARIABLES]
                    marks = ",".join("?" * len(chunk))
                    rows += connection.execute(f"SELECT key, value FROM answers WHERE key IN ({marks})", chunk)
            except _ERRORS as error:
                if not self._is_locked(error):
                    self._stop_reading(error)
        with self._late_lock:
            rows += [(key, self._late[key]) for key in keys if key in self._late]
        values: dict[Key, Any] = {}
        broken: list[Key] = []
        for key, value in rows:
            try:
                values[key] = decode(key, _decompressed(value))
            except Exception:  # a damaged value may raise anything and must not affect the others
                broken.append(key)
        if broken:
            logger.warning(
                "%d answers in the store %s cannot be decoded and are computed again.", len(broken), self.path
            )
            self._write("DELETE FROM answers WHERE key = ?", ((key,) for key in broken))
        return values

    def put(self, answers: Iterable[tuple[Key, str]]) -> None:
        """Store answers. They are on disk when this returns, unless another process holds a lock for more than a
        minute. An existing answer is not replaced."""
        rows = {key: _compressed(text) for key, text in reversed(list(answers))}
        if not self._writes:
            return
        with self._late_lock:
            late, self._late = self._late, {}
        if (rows or late) and not self._write(_INSERT, (rows | late).items()):
            with self._late_lock:
                self._late = rows | late | self._late

    def _write_late(self) -> None:
        """Write the answers that could not be written before."""
        if self._late:
            self._locked = False  # wait for the lock as long as for any
            self.put([])
        if self._late:
            logger.warning("%d answers could not be written to the store %s.", len(self._late), self.path)

    def merge(self, path: str | Path) -> int:
        """Add the answers of another store; an existing answer is not replaced.

        Args:
            path (`str` or `Path`): The file of the other store.

        Returns:
            `int`: Number of answers added.

        Raises:
            StoreError: If the file is not a store, or this store cannot be written.
        """
        if not Path(path).is_file():
            raise StoreError(f"{path}: store not found.")
        if not Store(path)._exists:  # raises if it is not one
            return 0
        before = len(self)
        connection = self._connection()
        try:
            connection.execute("ATTACH ? AS other", (str(path),))
            try:
                with connection:
                    connection.execute("INSERT OR IGNORE INTO answers SELECT key, value FROM other.answers")
            finally:
                connection.execute("DETACH other")
        except _ERRORS as error:
            raise StoreError(f"{path} cannot be merged into {self.path} ({error}).") from error
        return len(self) - before

    def __len__(self) -> int:
        return self._connection().execute("SELECT count(*) FROM answers").fetchone()[0] if self._exists else 0

    @property
    def _exists(self) -> bool:
        """Whether the file has content. An empty one may be any file, and becomes a store at the first answer."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> bool:
        """Write rows. False if the file is locked, so that it is worth another try."""
        if not self._writes:
            return True
        try:
            with self._connection() as connection:
                connection.executemany(statement, rows)
            self._locked = False
        except _ERRORS as error:
            if self._is_locked(error):
                return False
            if self._writes:
                logger.warning("the store %s cannot be written (%s); continuing without it.", self.path, error)
            self._writes = False
        return True

    def _is_locked(self, error: Exception) -> bool:
        """Whether an error is a lock of another process, which will end. Logs a warning at the first one."""
        if not isinstance(error, sqlite3.Error) or (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in _BUSY:
            return False
        if not self._locked:
            self._locked = True
            atexit.unregister(self._write_late)
            atexit.register(self._write_late)
            logger.warning(
                "the store %s is locked by another process; answers are kept in memory until it is free.", self.path
            )
        return True

    def _stop_reading(self, error: Exception) -> None:
        if self._reads:
            logger.warning("the store %s cannot be read (%s); continuing without it.", self.path, error)
        self._reads = self._writes = False

    def _connection(self) -> sqlite3.Connection:
        # SQLite connections must not cross threads or forks, and one whose file was removed loses what it writes.
        local, opened = self._local, (os.getpid(), _file_at(self.path))
        if getattr(local, "opened", None) == opened:
            local.connection.execute(f"PRAGMA busy_timeout={round(1000 * self._timeout)}")
            return local.connection
        if self._file not in (None, opened[1]):
            logger.warning("the store %s was removed or replaced while in use; reopening it.", self.path)
            # Otherwise SQLite would apply the log of the old file to the new one.
            for path, file in self._logs.items():
                if file is not None and file == _file_at(path):
                    path.unlink()
        local.connection = self._open()
        self._file = _file_at(self.path)
        self._logs = {path: _file_at(path) for path in (Path(f"{self.path}-wal"), Path(f"{self.path}-shm"))}
        local.opened = os.getpid(), self._file
        return local.connection

    @property
    def _timeout(self) -> float:
        """How long to wait for a lock, in seconds."""
        return _LOCKED_TIMEOUT_S if self._locked else _LOCK_TIMEOUT_S

    def _open(self) -> sqlite3.Connection:
        if not self._may_write:
            return self._open_to_read()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=self._timeout)
        connection.text_factory = _text
        _set_journal(connection, "WAL" if self._wal else "TRUNCATE", self._timeout)
        if self._wal:
            connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, value) WITHOUT ROWID")
        connection.execute(_FIRST)
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        """Open the file without writing next to it: SQLite keeps a log there unless it takes the file as unchanging,
        which it may not while there is a log."""
        logs = any(Path(f"{self.path}-{kind}").exists() for kind in ("wal", "journal"))
        address = f"{self.path.absolute().as_uri()}?mode=ro{'' if logs else '&immutable=1'}"
        connection = sqlite3.connect(address, uri=True, timeout=self._timeout)
        connection.text_factory = _text
        connection.execute(_FIRST)
        return connection


def open_store(store: Store | str | Path | bool | None, *, writes: bool = True) -> Store | None:
    """Open the store that a `store` argument specifies.

    Args:
        store ([`Store`], `str`, `Path` or `bool`): True means the default store, False or None no store, and a path
            that file. A [`Store`] is returned unchanged.
        writes (`bool`, *optional*, defaults to `True`): As for [`Store`].
    """
    if store is None or store is False:
        return None
    if isinstance(store, Store):
        return store
    return Store(None if store is True else store, writes=writes)


def _set_journal(connection: sqlite3.Connection, mode: str, timeout: float) -> None:
    # Another process that is creating the store holds a write lock. For this statement, SQLite reports "busy"
    # immediately and ignores the connection's timeout.
    give_up = time.monotonic() + timeout
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={mode}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _file_at(path: Path) -> tuple[int, int] | None:
    """Device and inode, which differ between a file and the file that replaces it; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _file_system(path: Path) -> str:
    """Type of the file system of `path`; "" if the operating system does not report it (only Linux does)."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    folder = path.absolute().parent.resolve()
    kind, depth = "", -1
    for fields in map(str.split, lines):
        mounted = Path(_UNESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two mounts on the same folder, the later one hides the other.
        if folder.is_relative_to(mounted) and len(mounted.parts) >= depth:
            kind, depth = fields[fields.index("-") + 1], len(mounted.parts)
    return kind


def _text(raw: bytes) -> str | None:
    # sqlite3's own decoding raises, so that one damaged value would lose the whole query.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _compressed(text: str) -> str | bytes:
    return text if len(text) < _COMPRESS_FROM else zlib.compress(text.encode())


def _decompressed(value: str | bytes) -> str:
    return value if isinstance(value, str) else zlib.decompress(value).decode()
