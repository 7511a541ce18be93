"""Rows of two files, paired by key. The rows are kept in a temporary database on disk, so files may be of any size and
in any order.

The n-th row with a key in one file is paired with the n-th row with this key in the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby

_CACHE_KIB = 64 * 1024
_TABLES = """
CREATE TABLE rows (id INTEGER PRIMARY KEY, side INTEGER, key BLOB, grp BLOB, body TEXT);
"""
_PAIRS = """
CREATE TABLE places AS
    SELECT side, key, grp, id, row_number() OVER (PARTITION BY side, key ORDER BY id) AS copy FROM rows;
CREATE INDEX by_key ON places (key, copy, side);
CREATE TABLE pairs AS
    SELECT a.grp AS grp, a.id AS one, b.id AS other FROM places a JOIN places b
    ON a.key = b.key AND a.copy = b.copy AND a.side = 0 AND b.side = 1
    ORDER BY a.grp, a.key, a.copy;
"""
_UNMATCHED = """
FROM places a WHERE a.side = ? AND NOT EXISTS (
    SELECT 1 FROM places b WHERE b.key = a.key AND b.copy = a.copy AND b.side = 1 - a.side)
"""


class Matching:
    """Pairs of rows of two files. Use as a context manager; the temporary database is deleted at the end.

    Memory is bounded by the cache of the database, 64 MiB; the disk holds the bodies of all rows.
    """

    def __init__(self) -> None:
        self.database = sqlite3.connect("", isolation_level=None)  # "" is a temporary file
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}; {_TABLES} BEGIN;")
        self._paired = False

    def __enter__(self) -> Matching:
        return self

    def __exit__(self, *error: object) -> None:
        self.database.close()

    def add(self, side: int, key: bytes, group: bytes, body: str) -> None:
        """Add a row.

        Args:
            side (`int`): 0 for the first file, 1 for the second.
            key (`bytes`): identity of the row.
            group (`bytes`): rows of the same group are returned together. The group in the first file counts.
            body (`str`): anything to get back.
        """
        self.database.execute("INSERT INTO rows (side, key, grp, body) VALUES (?, ?, ?, ?)", (side, key, group, body))

    def groups(self) -> Iterator[tuple[bytes, list[tuple[str, str]]]]:
        """The bodies of the paired rows, by group. The order depends on keys and groups only."""
        self._pair()
        query = """
            SELECT p.grp, a.body, b.body FROM pairs p JOIN rows a ON a.id = p.one JOIN rows b ON b.id = p.other
            ORDER BY p.rowid
        """
        for group, rows in groupby(self.database.execute(query), key=lambda row: row[0]):
            yield group, [(one, other) for _, one, other in rows]

    def unmatched(self, side: int, most: int) -> tuple[int, list[str]]:
        """The number of rows of a file without a partner, and the bodies of the first `most` of them."""
        self._pair()
        [(count,)] = self.database.execute(f"SELECT count(*) {_UNMATCHED}", (side,))
        first = f"SELECT r.body FROM (SELECT a.id AS id {_UNMATCHED} ORDER BY a.id LIMIT ?) u JOIN rows r USING (id)"
        return count, [body for (body,) in self.database.execute(first, (side, most))]

    def _pair(self) -> None:
        if not self._paired:
            self.database.executescript(f"{_PAIRS} BEGIN;")
            self._paired = True
