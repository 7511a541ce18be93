"""The judge behind a reward server (`checklist-rewards serve`), and the client of that server.

[`RemoteJudge`] sends the reads of a target as one row and takes the verdicts from the server's scores: probabilities,
label mass, reasons, judge and method. Weights, thresholds, the primary metric and `no_answer` are those of this
process: its targets were read here, so the server judges them as they are. The model, prompt, mode and samples of the
judge are set on the server. Items about single messages are sent with the messages, so that the server reads them as a
local judge would, in its own context; only a server with another threshold gets each message as a row of its own.

Every response names the server's judge and has the hash of its model, prompts and settings ([`judge_identity`]). A
response of another judge than that of the first one, for example after a restart of the server, raises
[`ModelError`]: no call contains verdicts of two judges, and neither do two calls of one client.

Rows whose verdicts would be the same again are kept in the store, under the hash of the row and of the server's judge,
as soon as their response arrives. A row is stored as a whole, because a judge may answer the questions of a row
together.

[`RewardServer`] sends requests of [`ROWS`] rows, several at a time. Requests are repeated with growing pauses while
the server is busy (429), fails (5xx) or cannot be reached, until their deadline. A request that is too large, or whose
rows are all invalid, is halved until the invalid row is alone. A row that could not be scored is unanswered, with the
reason. Errors that no retry can fix (no server, a wrong token, another judge than the named one) raise [`ModelError`].
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pydantic import ValidationError
from typing_extensions import override

from checklist_rewards.backends import BackendName, Progress, is_transient
from checklist_rewards.backends.budget import REMOTE as REMOTE
from checklist_rewards.backends.budget import Receipt
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.servers import Settings
from checklist_rewards.checklists import ChecklistItem, Key, key_of
from checklist_rewards.errors import ModelError, NoServerError, SampleError, without_password
from checklist_rewards.files.store import Store
from checklist_rewards.images import NOT_FETCHED, Image, images_in
from checklist_rewards.judges.base import Ask, Judge, by_sample
from checklist_rewards.scores import Score, Verdict, answer_of
from checklist_rewards.scores.reasons import Reason, Unanswered

if TYPE_CHECKING:
    from checklist_rewards.backends.openai.client import Connection
    from checklist_rewards.backends.openai.wire import Failure

logger = logging.getLogger(__name__)

JudgeBackend = Literal[BackendName, "remote"]
JUDGE_BACKENDS: tuple[str, ...] = get_args(JudgeBackend)
TOKEN_VARIABLE = "CHECKLIST_REWARDS_TOKEN"
DEADLINE_HEADER = "X-Deadline-Ms"
"""Milliseconds that the client waits for the response of a request. The server does not score rows after that."""
ROWS = 32
"""Rows per request: a few requests fill a batch of the server, and a failed request repeats little work."""
CONCURRENCY = 16
_PATIENCE = 4.0  # as for lists of prompts: a request is answered when its last row is
_WAVE = 1024
"""Rows sent at once."""
_FORMAT = "remote-row-1"
_SCORES_ONLY = "it scores checklists and neither writes nor reads prompts, so name another model for that."


class ServedJudge(NamedTuple):
    """The judge of a server."""

    name: str
    identity: str
    """As [`judge_identity`]."""

    def __str__(self) -> str:
        return f"{self.name!r} (identity {self.identity[:12]})"


Outcome = Score | Unanswered
"""The score of a row, or the reason why it has none."""
Received = Callable[[int, Sequence[Outcome]], None]


class RemoteJudge(Judge):
    """Answers items through a reward server, which checks its judge when it starts and rejects rows that it cannot
    score.

    Args:
        server (`str` or [`RewardServer`]):
            Address of the server, or a client with its own settings.
        model (`str`, *optional*):
            Name of the server's judge, which is checked before the first row is sent. By default, any judge is
            accepted.
        store ([`Store`], *optional*):
            Where the scores of rows are kept.
    """

    def __init__(self, server: str | RewardServer, *, model: str = UNNAMED, store: Store | None = None):
        self.store = store
        self.server = RewardServer(server) if isinstance(server, str) else server
        self.name = model or self.server.address
        self._model = model or None

    @override
    def check_images(self, images: Sequence[Image], what: str) -> None:
        """Refuse addresses, which a reward server does not fetch. Whether its judge sees is known to the server."""
        if address := next((image.source for image in images if image.size is None), None):
            raise SampleError(f"{what} has the image {address}, {NOT_FETCHED}.")

    @override
    def load(self) -> None:
        self.server.served()

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As [`Judge.answer`].

        Raises:
            ModelError: If no reward server answers, if it does not accept the token, or if it has another judge.
        """
        if not asks:
            return [], Receipt()
        served = self._compared()
        places = by_sample(asks)
        bodies = [_row([asks[place] for place in row]) for row in places]
        keys = [_key(body, served.identity) for body in bodies]
        verdicts: dict[int, Verdict] = {}
        started, calls = time.perf_counter(), 0

        def answer(number: int, outcome: Outcome) -> list[Verdict]:
            found = self._verdicts([asks[place].item for place in places[number]], outcome)
            verdicts.update(zip(places[number], found, strict=True))
            return found

        stored: dict[Key, Score] = {}
        if self.store is not None:
            stored = self.store.get(list(dict.fromkeys(keys)), lambda _, text: Score.model_validate_json(text))
        for number, key in enumerate(keys):
            if key in stored:
                answer(number, stored[key])
        missing = [number for number, key in enumerate(keys) if key not in stored]
        asked = len(asks) - len(verdicts)
        if progress is not None and verdicts:
            progress(len(verdicts))
        for start in range(0, len(missing), _WAVE):
            wave = missing[start : start + _WAVE]

            def received(first: int, outcomes: Sequence[Outcome], wave: Sequence[int] = wave) -> None:
                numbers = wave[first : first + len(outcomes)]
                found = [
                    (number, outcome, answer(number, outcome))
                    for number, outcome in zip(numbers, outcomes, strict=True)
                ]
                if self.store is not None:
                    lasting = [(number, outcome) for number, outcome, given in found if _is_lasting(given)]
                    scores = [(keys[n], outcome) for n, outcome in lasting if isinstance(outcome, Score)]
                    self.store.put((key, score.model_dump_json()) for key, score in scores)
                if progress is not None:
                    progress(sum(len(given) for _, _, given in found))

            calls += self.server.score([bodies[number] for number in wave], received)[1]
        answered = [verdicts[place] for place in range(len(asks))]
        return answered, Receipt(
            reads=len(asks),
            stored=len(asks) - asked,
            asked=asked,
            unanswered=sum(verdict.unanswered is not None for verdict in answered),
            calls=calls,
            engine_seconds=time.perf_counter() - started,
        )

    def _compared(self) -> ServedJudge:
        served = self.server.served()
        if self._model not in (None, served.name):
            raise ModelError(
                f"the reward server at {self.server.address} judges with {served.name!r}, not {self._model!r}; omit "
                "model to use the server's judge."
            )
        return served

    def _verdicts(self, items: Sequence[ChecklistItem], outcome: Outcome) -> list[Verdict]:
        invalid = Verdict(unanswered=Unanswered(Reason.ERROR_BODY), judge=self.name)
        if isinstance(outcome, str):
            return [Verdict(unanswered=outcome, judge=self.name)] * len(items)
        if [line.id for line in outcome.items] != [item.id for item in items]:
            return [invalid] * len(items)
        grade = None if outcome.quality is None else int(outcome.quality)
        verdicts = [replace(line.verdict(), quality=grade) for line in outcome.items]
        return [v if _fits(item, v) else invalid for item, v in zip(items, verdicts, strict=True)]


def _fits(item: ChecklistItem, verdict: Verdict) -> bool:
    """Whether a verdict is unanswered or has the labels of the item."""
    try:
        return verdict.unanswered is not None or bool(answer_of(item, verdict))
    except ValueError:
        return False


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
        self.address = base_url.rstrip("/").removesuffix("/v1")  # that of its Decisions APIs
        self.token = token
        self.settings = Settings.of({"concurrency": CONCURRENCY, **settings})
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("address", "token", "settings", "_health")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start(self._health)

    def _start(self, health: Mapping[str, Any] | None = None) -> None:
        self._connection: Connection | None = None
        self._health = health
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Raises [`ModelError`]: a reward server is a judge, not an engine."""
        raise ModelError(f"the reward server at {self.address} cannot be used as an engine; {_SCORES_ONLY}")

    def served(self) -> ServedJudge:
        """The server's judge, as the server named it first. Raises [`ModelError`] if no reward server answers."""
        judge = _judge_in(self._reported())
        assert judge is not None
        return judge

    def messages_threshold(self) -> float | None:
        """The threshold by which the server combines the answers about single messages. Raises [`ModelError`] as
        [`served`] does."""
        return self._reported().get("messages_threshold")

    def _reported(self) -> Mapping[str, Any]:
        """What the server reported about itself when it was first asked."""
        if self._health is not None:
            return self._health
        from checklist_rewards.backends.openai.client import run
        from checklist_rewards.backends.openai.wire import NOT_SERVED, Failure, in_words

        health = run(self._connected().get("/health", None))
        if isinstance(health, Failure) and health.status in NOT_SERVED:
            raise ModelError(f"the server at {self.address} is not a reward server: it has no /health.")
        if isinstance(health, Failure):
            raise NoServerError(
                f"no reward server answers at {self.address} ({in_words(health)}); give another base_url, or "
                "start one with: checklist-rewards serve"
            )
        if _judge_in(health) is None:
            raise ModelError(
                f"the server at {self.address} is not a reward server: its /health does not report a judge and "
                "its identity."
            )
        self._health = health
        return health

    def _compare(self, now: ServedJudge) -> None:
        """Raise [`ModelError`] if the server reports another judge than before."""
        before = self.served()
        if before != now:
            raise ModelError(
                f"the reward server at {self.address} has changed its judge from {before} to {now}; verdicts of two "
                "judges are not mixed. Start the server with the first judge again, or start this run anew."
            )

    def score(
        self, rows: Sequence[Mapping[str, Any]], received: Received = lambda first, outcomes: None
    ) -> tuple[list[Outcome], int]:
        """The score of each row, or the reason for its absence, and the number of requests.

        Args:
            rows (sequence of mappings):
                With `checklist` and `target`, and optionally `input`, `reference`, `history`, `messages`, `images`
                (each an [`Image`] or a data URL) and `as_is` (true for a target whose thought is removed already).
            received (callable, *optional*):
                Called in this thread with each response when it arrives: the place of its first row, and its outcomes.

        Raises:
            ModelError: If the server does not accept the token, if it is not a reward server, or if its judge is not
                the one of earlier responses.
        """
        from checklist_rewards.backends.openai.client import in_parts, run_streaming, together

        connection, _ = self._connected(), self._reported()
        requests = 0

        async def send(some: Mapping[int, Mapping[str, Any]]) -> list[Outcome] | Failure:
            nonlocal requests
            requests += 1
            return await self._sent(connection, list(some.values()))

        async def ask(emit: Callable[[int, Sequence[Outcome]], None]) -> list[Outcome]:
            async def part(start: int) -> list[Outcome]:
                outcomes = await in_parts(rows[start : start + ROWS], send, self._unanswered)
                emit(start, outcomes)
                return outcomes

            return list(chain(*await together(map(part, range(0, len(rows), ROWS)))))

        return run_streaming(ask, received), requests

    async def _sent(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[Outcome] | Failure:
        """The outcomes of one request."""
        from checklist_rewards.backends.openai.wire import Failure

        body = {"samples": list(map(_with_urls, rows))}
        response = await connection.post("/score", body, key="scores", patience=_PATIENCE)
        if not isinstance(response, Failure):
            judge = _judge_in(response)
            if judge is None:
                return [Unanswered(Reason.ERROR_BODY)] * len(rows)
            self._compare(judge)
            return _outcomes(response, len(rows))
        if response.fatal:
            hint = f" (set {TOKEN_VARIABLE})" if response.status == 401 else ""
            raise ModelError(f"the reward server at {self.address} refused a request{hint}: {response.message}")
        return response

    def _unanswered(self, failure: Failure) -> Unanswered:
        """The reason for the absence of a score in a failed request."""
        if not failure.bad_request:
            return failure.unanswered
        logger.warning("the reward server at %s refused a row: %s", self.address, failure.message)
        return Unanswered(Reason.REFUSED, failure.message)

    def _connected(self) -> Connection:
        from checklist_rewards.backends.openai.client import Connection

        with self._lock:
            if self._connection is None:
                token = self.token or os.environ.get(TOKEN_VARIABLE) or "EMPTY"
                self._connection = Connection(self.address, token, self.settings, DEADLINE_HEADER)
            return self._connection


def _judge_in(reported: Mapping[str, Any]) -> ServedJudge | None:
    """The judge that a response or `/health` names. None if it names none."""
    name, identity = reported.get("judge"), reported.get("identity")
    return ServedJudge(name, identity) if isinstance(name, str) and isinstance(identity, str) else None


def _key(row: Mapping[str, Any], identity: str) -> Key:
    """The key of a row under the judge of a server. Of weights, only the signs may change a verdict. The marks in the
    texts are the hashes of the images."""
    items = [{**item, "weight": math.copysign(1.0, item["weight"])} for item in row["checklist"]]
    asked = {name: value for name, value in row.items() if name != "images"}
    return key_of(_FORMAT, identity, json.dumps({**asked, "checklist": items}, sort_keys=True))


def _is_lasting(verdicts: Sequence[Verdict]) -> bool:
    """Whether all verdicts of a row would be the same again. A prompt that is too long may fit after a restart."""
    reasons = [verdict.unanswered for verdict in verdicts if verdict.unanswered is not None]
    return not any(is_transient(reason) or reason.reason == Reason.TOO_LONG for reason in reasons)


def _row(asks: Sequence[Ask]) -> dict[str, Any]:
    """The row of one target. Its images get their URLs when it is sent: see [`_with_urls`]."""
    first = asks[0]
    row: dict[str, Any] = {"checklist": [_item(read.item) for read in asks], "target": first.target, "as_is": True}
    messages = next((read.messages for read in asks if read.messages), ())
    if messages:
        row["messages"] = [message._asdict() for message in messages]
    context = {"input": first.input, "reference": first.reference, "history": first.history}
    row |= {name: text for name, text in context.items() if text is not None}
    shown = images_in(*context.values(), first.target, *(message.shown for message in messages))
    return row | ({"images": list(dict.fromkeys(shown))} if shown else {})


def _with_urls(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row as it is sent, with the URLs of its images."""
    if "images" not in row:
        return row
    return {**row, "images": [image.url if isinstance(image, Image) else image for image in row["images"]]}


def _item(item: ChecklistItem) -> dict[str, Any]:
    # The weight changes no verdict, but its sign may (a panel's ties); a row of weights 0 only would be refused.
    return {**item.model_dump(mode="json", exclude_defaults=True), "weight": item.weight or 1.0}


def _outcomes(response: Mapping[str, Any], rows: int) -> list[Outcome]:
    """A score or a reason per row."""
    scores, errors = response["scores"], response.get("errors")
    if len(scores) != rows:
        return [Unanswered(Reason.ERROR_BODY)] * rows
    listed = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    outcomes: list[Outcome] = []
    for number, score in enumerate(scores, start=1):
        if score is None:
            said = [error.get("message") for error in listed if error.get("row") == number]
            outcomes.append(Unanswered(Reason.REFUSED, str((said or ["the server gave no reason"])[-1])))
            continue
        try:
            outcomes.append(Score.model_validate(score))
        except ValidationError:
            outcomes.append(Unanswered(Reason.ERROR_BODY))
    return outcomes
