"""The judge behind a reward server (`checklist-rewards serve`), and the client of that server.

[`RemoteJudge`] sends the reads of a target as one row and takes the verdicts from the server's scores: probabilities,
label mass, reasons, judge and method. Weights, thresholds, the primary metric and `no_answer` are those of this
process: its targets were read here, so the server judges them as they are. The model, prompt, mode and samples of the
judge, and the store of its answers, are set on the server. Items about single messages are sent with the messages, so
that the server reads them as a local judge would, in its own context; only a server of an earlier version, or with
another threshold, gets each message as a row of its own.

[`RewardServer`] sends requests of [`ROWS`] rows, several at a time. Requests are repeated with growing pauses while
the server is busy (429), fails (5xx) or cannot be reached, until their deadline. A request that is too large, or whose
rows are all invalid, is halved until the invalid row is alone. A row that could not be scored is unanswered, with the
reason. Errors that no retry can fix (no server, a wrong token, another judge than the named one) raise [`ModelError`].
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import ValidationError

from checklist_rewards.backends import BackendName, Progress
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.servers import Settings
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError, NoServerError, without_password
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.scores import Score, Verdict, answer_of
from checklist_rewards.scores.reasons import Reason, Unanswered

if TYPE_CHECKING:
    from checklist_rewards.backends.openai.client import Connection

logger = logging.getLogger(__name__)

JudgeBackend = Literal[BackendName, "remote"]
JUDGE_BACKENDS: tuple[str, ...] = get_args(JudgeBackend)
REMOTE = "remote"
TOKEN_VARIABLE = "CHECKLIST_REWARDS_TOKEN"
DEADLINE_HEADER = "X-Deadline-Ms"
"""Milliseconds that the client waits for the response of a request. The server does not score rows after that."""
ROWS = 32
"""Rows per request: a few requests fill a batch of the server, and a failed request repeats little work."""
CONCURRENCY = 16
_PATIENCE = 4.0  # as for lists of prompts: a request is answered when its last row is
_TOO_LARGE, _NO_USABLE_ROW = 413, 422
_WAVE = 1024
"""Rows sent at once; progress is reported after each wave."""
_SCORES_ONLY = "it scores checklists and neither writes nor reads prompts, so name another model for that."


class RemoteJudge(Paid):
    """Answers items through a reward server.

    Args:
        server (`str` or [`RewardServer`]):
            Address of the server, or a client with its own settings.
        model (`str`, *optional*):
            Name of the server's judge, which is checked before the first row is sent. By default, any judge is
            accepted.
    """

    def __init__(self, server: str | RewardServer, *, model: str = UNNAMED):
        self.server = RewardServer(server) if isinstance(server, str) else server
        self.name = model or self.server.address
        self._model = model or None

    def check(self) -> None:
        """Do nothing: the server checks its judge when it starts."""

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Do nothing: the server rejects rows that it cannot score."""

    def takes_messages(self, threshold: float) -> bool:
        """Whether the server answers items with a scope from the messages of a row as this process would with a
        threshold. Raises [`ModelError`] as [`judge`] does."""
        return self.server.messages_threshold() == threshold

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order.

        Args:
            reads (sequence of [`Read`]):
                Reads to answer.
            progress (`Callable[[int], None]`, *optional*):
                Called with the number of reads answered since the last call.

        Raises:
            ModelError: If no reward server answers, if it does not accept the token, or if it has another judge.
        """
        if reads:
            self._compare()
        rows: dict[tuple[Any, ...], list[int]] = {}
        for place, read in enumerate(reads):
            about = (read.sample, read.target, read.input, read.reference, read.history)
            rows.setdefault(about, []).append(place)
        places = list(rows.values())
        verdicts: list[Verdict | None] = [None] * len(reads)
        started, calls = time.perf_counter(), 0
        for start in range(0, len(places), _WAVE):
            wave = places[start : start + _WAVE]
            outcomes, requests = self.server.score([_row([reads[place] for place in row]) for row in wave])
            calls += requests
            for row, outcome in zip(wave, outcomes, strict=True):
                for place, verdict in zip(row, self._verdicts([reads[p].item for p in row], outcome), strict=True):
                    verdicts[place] = verdict
            if progress is not None:
                progress(sum(map(len, wave)))
        answered = [verdict for verdict in verdicts if verdict is not None]
        self._pay(
            Receipt(
                reads=len(reads),
                asked=len(reads),
                unanswered=sum(verdict.unanswered is not None for verdict in answered),
                calls=calls,
                engine_seconds=time.perf_counter() - started,
            )
        )
        return answered

    def _compare(self) -> None:
        served = self.server.judge()
        if self._model not in (None, served):
            raise ModelError(
                f"the reward server at {self.server.address} judges with {served!r}, not {self._model!r}; omit "
                "model to use the server's judge."
            )

    def _verdicts(self, items: Sequence[ChecklistItem], outcome: Score | Unanswered) -> list[Verdict]:
        if isinstance(outcome, str):
            return [Verdict(unanswered=outcome, judge=self.name)] * len(items)
        if [line.id for line in outcome.items] != [item.id for item in items]:
            return [Verdict(unanswered=Unanswered(Reason.ERROR_BODY), judge=self.name)] * len(items)
        grade = None if outcome.quality is None else int(outcome.quality)
        verdicts = [replace(line.verdict(), quality=grade) for line in outcome.items]
        return [self._usable(item, verdict) for item, verdict in zip(items, verdicts, strict=True)]

    def _usable(self, item: ChecklistItem, verdict: Verdict) -> Verdict:
        """The verdict, or an unanswered one if its labels are not those of the item."""
        if verdict.unanswered is None:
            try:
                answer_of(item, verdict)
            except ValueError:
                return Verdict(unanswered=Unanswered(Reason.ERROR_BODY), judge=self.name)
        return verdict


class RewardServer:
    """A reward server at an address. Pickles as its settings: a copy in another process opens its own connections.

    Args:
        base_url (`str`):
            URL of the server, such as "http://localhost:8090".
        token (`str`, *optional*):
            Bearer token. Defaults to the environment variable `CHECKLIST_REWARDS_TOKEN`.
        **settings:
            Fields of [`Settings`], such as `concurrency` (16 by default), `timeout`, `deadline` or `attempts`.

    Raises:
        ModelError: If `base_url` is not a URL, or if a setting is unknown or invalid.
    """

    def __init__(self, base_url: str, *, token: str | None = None, **settings: Any):
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise ModelError(
                f"base_url={base_url!r} is not the address of a reward server; use one such as 'http://localhost:8090'."
            )
        if "," in base_url:
            raise ModelError(
                f"base_url={base_url!r} has several addresses, and a reward server has one; give the replicas of its "
                "judge to `checklist-rewards serve --base-url`."
            )
        if without_password(base_url) != base_url:
            raise ModelError(
                f"base_url={base_url!r} has a login; give the token as token=..., or CHECKLIST_REWARDS_TOKEN."
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
        self._health: Mapping[str, Any] | None = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Raises [`ModelError`]: a reward server is a judge, not an engine."""
        raise ModelError(f"the reward server at {self.address} cannot be used as an engine; {_SCORES_ONLY}")

    def judge(self) -> str:
        """The name of the server's judge; requested once. Raises [`ModelError`] if no reward server answers."""
        return str(self._reported()["judge"])

    def messages_threshold(self) -> float | None:
        """The threshold by which the server combines the answers about single messages. None if it takes no messages.
        Raises [`ModelError`] as [`judge`] does."""
        threshold = self._reported().get("messages_threshold")
        return threshold if isinstance(threshold, float) else None

    def _reported(self) -> Mapping[str, Any]:
        """What the server reports about itself."""
        from checklist_rewards.backends.openai.client import run
        from checklist_rewards.backends.openai.wire import NOT_SERVED, Failure

        if self._health is None:
            health = run(self._connected().get("/health", None))
            if isinstance(health, Failure) and health.status in NOT_SERVED:
                raise ModelError(f"the server at {self.address} is not a reward server: it has no /health.")
            if isinstance(health, Failure):
                raise NoServerError(
                    f"no reward server answers at {self.address} ({health.unanswered}); give another base_url, or "
                    "start one with: checklist-rewards serve"
                )
            if not isinstance(health.get("judge"), str):
                raise ModelError(
                    f"the server at {self.address} is not a reward server: its /health does not report a judge."
                )
            self._health = health
        return self._health

    def score(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Score | Unanswered], int]:
        """Score rows.

        Args:
            rows (sequence of mappings):
                With `checklist` and `target`, and optionally `input`, `reference`, `history`, `messages` and `as_is`
                (true for a target whose thought is removed already).

        Returns:
            `tuple[list[Score | Unanswered], int]`: A score or the reason for its absence per row, in order; and the
            number of requests.

        Raises:
            ModelError: If the server does not accept the token, or if it is not a reward server.
        """
        from checklist_rewards.backends.openai.client import run

        connection = self._connected()
        parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]

        async def ask() -> list[tuple[list[Score | Unanswered], int]]:
            return await asyncio.gather(*(self._part(connection, part) for part in parts))

        return _joined(run(ask()))

    async def _part(
        self, connection: Connection, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Score | Unanswered], int]:
        from checklist_rewards.backends.openai.wire import Failure

        response = await connection.post("/score", {"samples": rows}, key="scores", patience=_PATIENCE)
        if not isinstance(response, Failure):
            return _outcomes(response, len(rows)), 1
        if response.fatal:
            hint = f" (set {TOKEN_VARIABLE})" if response.status == 401 else ""
            raise ModelError(f"the reward server at {self.address} refused a request{hint}: {response.message}")
        if response.status in (_TOO_LARGE, _NO_USABLE_ROW) and len(rows) > 1:
            middle = len(rows) // 2
            halves = await asyncio.gather(self._part(connection, rows[:middle]), self._part(connection, rows[middle:]))
            outcomes, requests = _joined(halves)
            return outcomes, requests + 1
        if not response.bad_request:
            return [response.unanswered] * len(rows), 1
        logger.warning("the reward server at %s refused a row: %s", self.address, response.message)
        return [Unanswered(Reason.REFUSED, response.message)] * len(rows), 1

    def _connected(self) -> Connection:
        from checklist_rewards.backends.openai.client import Connection

        with self._lock:
            if self._connection is None:
                token = self.token or os.environ.get(TOKEN_VARIABLE) or "EMPTY"
                self._connection = Connection(self.address, token, self.settings, DEADLINE_HEADER)
            return self._connection


def _row(reads: Sequence[Read]) -> dict[str, Any]:
    """The row of one target."""
    first = reads[0]
    row: dict[str, Any] = {"checklist": [_item(read.item) for read in reads], "target": first.target, "as_is": True}
    messages = next((read.messages for read in reads if read.messages), ())
    if messages:
        row["messages"] = [message._asdict() for message in messages]
    context = {"input": first.input, "reference": first.reference, "history": first.history}
    return row | {name: text for name, text in context.items() if text is not None}


def _item(item: ChecklistItem) -> dict[str, Any]:
    # The weight changes no verdict, but its sign may (a panel's ties); a row of weights 0 only would be refused.
    return {**item.model_dump(mode="json", exclude_defaults=True), "weight": item.weight or 1.0}


def _joined(parts: Sequence[tuple[list[Score | Unanswered], int]]) -> tuple[list[Score | Unanswered], int]:
    return list(chain.from_iterable(outcomes for outcomes, _ in parts)), sum(requests for _, requests in parts)


def _outcomes(response: Mapping[str, Any], rows: int) -> list[Score | Unanswered]:
    """A score or a reason per row."""
    scores, errors = response["scores"], response.get("errors")
    if len(scores) != rows:
        return [Unanswered(Reason.ERROR_BODY)] * rows
    messages = {error.get("row"): error.get("message") for error in errors or () if isinstance(error, Mapping)}
    outcomes: list[Score | Unanswered] = []
    for number, score in enumerate(scores, start=1):
        if score is None:
            outcomes.append(Unanswered(Reason.REFUSED, str(messages.get(number, "the server gave no reason"))))
            continue
        try:
            outcomes.append(Score.model_validate(score))
        except ValidationError:
            outcomes.append(Unanswered(Reason.ERROR_BODY))
    return outcomes
