"""The client of a reward server (`checklist-rewards serve`): rows of checklists and targets in, their scores out.

It is no engine: it neither writes nor reads prompts, it hands whole rows to a scorer elsewhere. `judges/remote.py`
makes a judge of it, which is what `ChecklistScorer(backend="remote", base_url="http://localhost:8090")` builds.

Rows travel in requests of [`ROWS`], a few at a time, over the same connection as those to any other server: sent again
with growing pauses where the server is busy (429), broken (5xx) or not to be reached, given up when their time is up.
A request that the server finds too large, or of which it can use no row, is halved, so that the one row to blame is by
itself. A row without a score has the reason in its place; a reason is never a number. What no retry can mend (nobody
there, a wrong token, another judge than the one named) is a [`ModelError`].
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from checklist_rewards.backends.servers import Settings
from checklist_rewards.errors import ModelError, NoServerError
from checklist_rewards.scores import Score

if TYPE_CHECKING:
    from checklist_rewards.backends.openai.connection import Connection

logger = logging.getLogger(__name__)

REMOTE = "remote"
TOKEN_VARIABLE = "CHECKLIST_REWARDS_TOKEN"
ROWS = 32
"""Rows in one request: enough to fill a batch with a few, few enough that one that fails costs little."""
CONCURRENCY = 16
_PATHS = (("GET", "/health"), ("POST", "/score"))
_PATIENCE = 4.0  # as for lists of prompts: a request is answered when its last row is
_TOO_LARGE, _NO_USABLE_ROW = 413, 422


class RewardServer:
    """A reward server at an address. Pickles as its settings: a copy in another process opens its own connections.

    Args:
        base_url (`str`): such as "http://localhost:8090".
        token (`str`, *optional*): what the server wants to be shown. Defaults to what `CHECKLIST_REWARDS_TOKEN` says,
            in the process that asks.
        **settings: see [`Settings`] of `backends/servers.py`: `concurrency` (here 16 unless given),
            `timeout`, `deadline`, `attempts` ...

    Raises [`ModelError`] for an address that is none, and for settings that there are not.
    """

    def __init__(self, base_url: str, *, token: str | None = None, **settings: Any):
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise ModelError(
                f"base_url={base_url!r} is no address of a reward server; give one such as 'http://localhost:8090'."
            )
        self.address = base_url.rstrip("/")
        self.token = token
        self.settings = Settings.of({"concurrency": CONCURRENCY, **settings})
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("address", "token", "settings")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _start(self) -> None:
        self._connection: Connection | None = None
        self._judge: str | None = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """A reward server is no engine. Raises [`ModelError`]."""
        raise no_engine(self.address)

    def judge(self) -> str:
        """The name of the server's judge; asked for once. Raises [`ModelError`] if there is no reward server."""
        from checklist_rewards.backends.openai.failures import Failure
        from checklist_rewards.backends.openai.loop import run

        if self._judge is None:
            found = run(self._connected().get("/health", None))
            if isinstance(found, Failure):
                raise NoServerError(
                    f"no reward server answers at {self.address} ({found.reason}); give another base_url, or start "
                    "one with: checklist-rewards serve"
                )
            name = found.get("judge")
            if not isinstance(name, str):
                raise ModelError(f"what answers at {self.address} is no reward server: its /health names no judge.")
            self._judge = name
        return self._judge

    def score(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Score | str], int]:
        """Have rows scored.

        Args:
            rows: mappings of `checklist`, `target` and, if known, `input`, `reference`, `history`.

        Returns:
            `tuple[list[Score | str], int]`: A score per row, in order, or in its place the reason why there is none;
            and the number of requests this took.

        Raises:
            ModelError: if the server does not accept the token, or has no such path.
        """
        from checklist_rewards.backends.openai.loop import run

        connection = self._connected()
        parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]

        async def ask() -> list[tuple[list[Score | str], int]]:
            return await asyncio.gather(*(self._part(connection, part) for part in parts))

        return _joined(run(ask()))

    async def _part(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Score | str], int]:
        from checklist_rewards.backends.openai.failures import Failure

        found = await connection.post("/score", {"samples": rows}, key="scores", patience=_PATIENCE)
        if not isinstance(found, Failure):
            return _outcomes(found, len(rows)), 1
        if found.fatal:
            hint = f" (set {TOKEN_VARIABLE})" if found.status == 401 else ""
            raise ModelError(f"the reward server at {self.address} refused a request{hint}: {_said(found.reason)}")
        if found.status in (_TOO_LARGE, _NO_USABLE_ROW) and len(rows) > 1:
            middle = len(rows) // 2
            halves = await asyncio.gather(self._part(connection, rows[:middle]), self._part(connection, rows[middle:]))
            outcomes, requests = _joined(halves)
            return outcomes, requests + 1
        reason = found.reason
        if found.bad_request:
            reason = f"refused: {_said(reason)}"
            logger.warning("the reward server at %s refused a row: %s", self.address, _said(reason))
        return [reason] * len(rows), 1

    def _connected(self) -> Connection:
        from checklist_rewards.backends.openai.connection import Connection

        with self._lock:
            if self._connection is None:
                token = self.token or os.environ.get(TOKEN_VARIABLE) or "EMPTY"
                self._connection = Connection(self.address, token, self.settings, _PATHS)
            return self._connection


def no_engine(address: str | None) -> ModelError:
    """What to say to whoever takes a reward server for an engine."""
    return ModelError(
        f"the reward server at {address} scores checklists; it neither writes nor reads prompts, so name another "
        "model for that, with its own backend or base_url."
    )


def _joined(parts: Sequence[tuple[list[Score | str], int]]) -> tuple[list[Score | str], int]:
    return list(chain.from_iterable(outcomes for outcomes, _ in parts)), sum(requests for _, requests in parts)


def _outcomes(found: Mapping[str, Any], rows: int) -> list[Score | str]:
    """A score or a reason per row."""
    scores, errors = found["scores"], found.get("errors")
    if len(scores) != rows:
        return ["error_body"] * rows
    said = {error.get("row"): error.get("message") for error in errors or () if isinstance(error, Mapping)}
    outcomes: list[Score | str] = []
    for number, score in enumerate(scores, start=1):
        if score is None:
            outcomes.append(f"refused: {said.get(number, 'the server gave no reason')}")
            continue
        try:
            outcomes.append(Score.model_validate(score))
        except ValidationError:
            outcomes.append("error_body")
    return outcomes


def _said(reason: str) -> str:
    """The server's own words."""
    return reason.removeprefix("backend_error: ").removeprefix("refused: ").partition(": ")[2] or reason
