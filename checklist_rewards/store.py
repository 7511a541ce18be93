"""The content-addressed store: what a model once answered is not asked again.

Every read and every sampled reply is kept under the hash of everything it depends on (model identity, rendered text,
labels or sampling parameters), so a second run asks only for what is missing, and changing one word of one item asks
for that item alone. There are no row numbers and there is no resume flag.

One SQLite file in WAL mode: several processes may read and write at once, and a process killed at any instant loses at
most the chunk it had not yet handed over. A store that stops taking writes (a full disk) costs the resume, not the
run: it warns once and the answers go on.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

from checklist_rewards.errors import StoreError

logger = logging.getLogger(__name__)

Key = bytes
_MAX_VARIABLES = 500
_COMPRESS_FROM = 512
_LOCK_TIMEOUT_S = 60


def key_of(*parts: str | bytes) -> Key:
    """16-byte hash of a sequence of strings; no two different sequences share an encoding."""
    digest = blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.digest()


def default_store_path() -> Path:
    """`checklist-rewards/store.sqlite` under the user's cache directory (`XDG_CACHE_HOME` is respected)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "checklist-rewards" / "store.sqlite"


class Store:
    """Keys to texts, kept in one file.

    Args:
        path (`str` or `Path`, *optional*): the file; made with its folder if it is not there. Defaults to
            [`default_store_path`].

    Raises:
        StoreError: if the file cannot be opened or is no store.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path) if path is not None else default_store_path()
        self._local = threading.local()
        self._broken = False
        self._connection()

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        return type(self), (self.path,)

    def get(self, keys: Sequence[Key]) -> dict[Key, str]:
        """The texts of those keys that are there."""
        found: dict[Key, str] = {}
        connection = self._connection()
        for start in range(0, len(keys), _MAX_VARIABLES):
            some = keys[start : start + _MAX_VARIABLES]
            marks = ",".join("?" * len(some))
            rows = connection.execute(f"SELECT key, value FROM answers WHERE key IN ({marks})", some)
            found.update((key, _unpacked(value)) for key, value in rows)
        return found

    def put(self, answers: Iterable[tuple[Key, str]]) -> None:
        """Keep answers; the first one of a key stays. They are on disk when this returns."""
        if self._broken:
            return
        try:
            with self._connection() as connection:
                connection.executemany(
                    "INSERT OR IGNORE INTO answers VALUES (?, ?)", ((key, _packed(text)) for key, text in answers)
                )
        except sqlite3.OperationalError as error:
            self._broken = True
            logger.warning("the store %s takes no more answers (%s); going on without it.", self.path, error)

    def __len__(self) -> int:
        return self._connection().execute("SELECT count(*) FROM answers").fetchone()[0]

    def _connection(self) -> sqlite3.Connection:
        # SQLite connections must not cross threads or forks.
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.connection = self._open()
            self._local.pid = os.getpid()
        return self._local.connection

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_S)
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, value) WITHOUT ROWID")
            connection.execute("SELECT key, value FROM answers LIMIT 1")
            return connection
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"the store {self.path} cannot be opened ({error}); give another path, or work without one "
                "(--no-store, store=False)."
            ) from error


def open_store(store: Store | str | Path | bool | None) -> Store | None:
    """True: the default store; False or None: none; a path: that file; a [`Store`]: itself."""
    if store is None or store is False:
        return None
    if isinstance(store, Store):
        return store
    return Store(None if store is True else store)


def _use_wal(connection: sqlite3.Connection) -> None:
    # Another process that makes the store at this moment holds a write lock, and here alone SQLite answers "busy" at
    # once instead of waiting out the connection's timeout.
    give_up = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _packed(text: str) -> str | bytes:
    return text if len(text) < _COMPRESS_FROM else zlib.compress(text.encode())


def _unpacked(value: str | bytes) -> str:
    return value if isinstance(value, str) else zlib.decompress(value).decode()
