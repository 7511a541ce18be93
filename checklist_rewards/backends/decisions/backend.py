"""An engine for models behind a Decisions API.

Every target is one request with all its questions, split at the limit of the protocol. The server renders the
questions with its own template. `POST /systemone` is tried first, because it reports the label mass, then `POST
/decisions`; the first one that the server has is used from then on.

If the server rejects a request, the request is halved, until the one question that it rejects is alone. Questions
without a usable answer are sent once more. A server that rejects all questions about each of the first eight inputs
raises [`ModelError`]: some servers reject a model that answers no decisions with status 400.

Before the first input with images, the server is sent a small white image. If it refuses that, or counts no token for
it, because it ignores the field, [`ModelError`] is raised: it would answer by the text alone.

A reward server (`checklist-rewards serve`) has the hash of its judge in every response. A response of another judge
than the first one, for example after a restart of the server, raises [`ModelError`].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from checklist_rewards.backends.base import (
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
)
from checklist_rewards.backends.decisions.protocols import (
    DecisionProtocol,
    DecisionQuestion,
    OpenAIDecisions,
    SystemOne,
    usage_of,
)
from checklist_rewards.backends.models import decisions_identity
from checklist_rewards.backends.openai.client import Connection, in_parts, run, together
from checklist_rewards.backends.openai.limits import estimated_tokens
from checklist_rewards.backends.openai.replicas import prefix_key
from checklist_rewards.backends.openai.served import PrefixCache, has_encoded, served_card, takes_no_images
from checklist_rewards.backends.openai.wire import NOT_SERVED, WHITE, Failure, rejected
from checklist_rewards.backends.servers import SERVERS, Settings, server_addresses, server_key
from checklist_rewards.errors import ModelError
from checklist_rewards.images import image_of
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import one_of

PROTOCOLS: dict[str, DecisionProtocol] = {"systemone": SystemOne(), "decisions": OpenAIDecisions()}
_MISSING = Answer(None, Unanswered(Reason.MISSING))
_UNPARSABLE = Answer(None, Unanswered(Reason.UNPARSABLE))
_REJECTED_INPUTS = 8
_LOOKING = ("What is it?", DecisionQuestion("predicate", "Is it white?"))
"""What is asked about the white image."""

_OPENAI, _OPENROUTER = SERVERS["openai"][0], SERVERS["openrouter"][0]
_OPENROUTER_DECISIONS = "https://openrouter.ai/api/alpha"
"""OpenRouter's Decisions API: System One's format at the path of OpenAI's, without a list of models."""


class DecisionsBackend(Backend):
    """A model behind a Decisions API.

    Args:
        model, base_url, key, **settings: As of [`OpenAIBackend`].
        protocol (`str`, *optional*): `systemone` or `decisions`. Defaults to the first one that the server has, and on
            OpenAI to `decisions`. OpenRouter has a format of its own, so `protocol` is not allowed there.

    Raises:
        ModelError: If no server responds, if it does not accept the key, or if it does not serve `model`.
    """

    chunk_reads = 4096
    requests_per_read = 1
    name = "decisions"
    sees = True
    writes = False

    def __init__(
        self,
        model: str,
        base_url: str | Sequence[str] | None = None,
        *,
        protocol: str | None = None,
        key: str | None = None,
        **settings: Any,
    ):
        if protocol is not None:
            one_of("protocol", protocol, tuple(PROTOCOLS))
        self.model = model
        addresses = server_addresses(base_url)
        self.base_url = ", ".join(addresses)
        self.identity = decisions_identity(model, addresses)
        key = key or server_key(addresses[0])
        card: dict[str, Any] = {}
        if self.base_url == _OPENROUTER:
            if protocol is not None:
                raise ModelError(f"protocol={protocol!r} has no effect on OpenRouter, which has one format; omit it.")
            self._protocols: tuple[DecisionProtocol, ...] = (SystemOne(openrouter=True),)
            self.connection = Connection(_OPENROUTER_DECISIONS, key, Settings.of(settings))
        else:
            if protocol is None and self.base_url == _OPENAI:
                protocol = "decisions"
            self._protocols = tuple(PROTOCOLS.values()) if protocol is None else (PROTOCOLS[protocol],)
            self.connection = Connection(addresses, key, Settings.of(settings))
            card = run(served_card(self.connection, model))
        self._cache = PrefixCache(self.connection, card)
        self._accepted = False
        self._rejected_inputs = 0
        self._judge: str | None = None
        self._takes_images = False

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str] = ()) -> tuple[list[Answer], Usage]:
        """Answer questions about texts. The prefix of a group is the input of a request, each tail the text of a
        [`DecisionQuestion`], which has its own labels. Log-probabilities are in their order.

        Raises:
            ModelError: If the server has no Decisions API, does not accept the API key, rejects all questions about
                each of the first eight inputs, takes no images, or is a reward server whose judge has changed.
        """
        return run(self._read(groups))

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Raise [`ModelError`]: a Decisions API writes no text."""
        raise ModelError(
            f"backend='decisions' answers questions and writes no text, so {self.model!r} cannot write here; use "
            "another model or backend='openai' for that."
        )

    async def _read(self, groups: Sequence[ReadGroup]) -> tuple[list[Answer], Usage]:
        before = await self._cache.counts()
        outcomes = await together(self._group(group) for group in groups)
        answers = list(chain.from_iterable(answers for answers, _ in outcomes))
        return answers, await self._cache.usage(before, [usage for _, usages in outcomes for usage in usages])

    async def _group(self, group: ReadGroup) -> tuple[list[Answer], list[Usage]]:
        """The answers to all questions about one input."""
        usages: list[Usage] = []
        refused: list[Failure] = []
        most = min(protocol.most_questions for protocol in self._protocols)
        questions = [DecisionQuestion.parse(tail) for tail in group.tails]
        parts = [questions[start : start + most] for start in range(0, len(questions), most)]
        reads = list(chain(*await together(self._part(group, part, usages, refused) for part in parts)))
        if reads and len(refused) == len(reads) and not self._accepted:
            self._rejected_inputs += 1
            if self._rejected_inputs >= _REJECTED_INPUTS:
                raise ModelError(
                    f"the server at {self.base_url} rejects every question to {self.model!r} "
                    f"({refused[0].unanswered}); give a model that answers decisions, or use backend='openai'."
                )
        return reads, usages

    async def _part(
        self, group: ReadGroup, questions: Sequence[DecisionQuestion], usages: list[Usage], refused: list[Failure]
    ) -> list[Answer]:
        """The answers of one request. Adds the failures of single questions that the server rejects to `refused`."""

        async def send(some: Mapping[int, DecisionQuestion]) -> list[Answer] | Failure:
            response = await self._post(group, {f"q{place + 1}": question for place, question in some.items()}, usages)
            if isinstance(response, Failure):
                return response
            return [response.get(f"q{place + 1}", _MISSING) or _UNPARSABLE for place in some]

        def failed(failure: Failure) -> Answer:
            if failure.bad_request:
                refused.append(failure)
            return Answer(None, failure.unanswered, keep=failure.unanswered.reason != Reason.TOO_LONG)

        return await in_parts(questions, send, failed, lambda read: read is _MISSING or read is _UNPARSABLE)

    async def _post(
        self, group: ReadGroup, questions: dict[str, DecisionQuestion], usages: list[Usage]
    ) -> dict[str, Answer | None] | Failure:
        """Send one request, in the first protocol that the server has."""
        tokens = estimated_tokens(group.prefix, *(question.instructions for question in questions.values()))
        missing: list[Failure] = []
        pictured = await has_encoded(group.prefix)
        for protocol in self._protocols:
            if pictured and (unknown := await self._require_images(protocol)) is not None:
                return unknown
            response = await self.connection.post(
                protocol.path,
                protocol.body(self.model, group.system, group.prefix, questions),
                key="answers",
                tokens=tokens,
                prefix=prefix_key(group.system, group.prefix),
                reads=len(questions),
            )
            if isinstance(response, Failure) and response.status in NOT_SERVED:
                missing.append(response)
                continue
            if isinstance(response, Failure):
                if response.fatal:
                    raise ModelError(rejected(self.base_url, response))
                return response
            self._protocols = (protocol,)
            self._accepted = True
            self._compare(response.get("identity"))
            usages.append(usage_of(response))
            return protocol.answers(response, questions)
        paths = " and ".join(protocol.path for protocol in self._protocols)
        why = max(missing, key=lambda failure: failure.status)  # 501 says more than a path that is not found
        raise ModelError(
            f"the server at {self.base_url} does not answer decisions for {self.model!r} at {paths} "
            f"({_message(why)}); check base_url, which usually ends with /v1, or use backend='openai', which reads "
            "the probabilities of a reply's first token."
        )

    async def _require_images(self, protocol: DecisionProtocol) -> Failure | None:
        """Raise [`ModelError`] if the server refuses a white image, or counts no token for it. Return the failure if
        that is not known yet, but a retry may tell."""
        async with self.connection.lock("images"):
            if self._takes_images:
                return None
            white, (text, question) = image_of(WHITE), _LOOKING
            body = protocol.body(self.model, None, white.mark + text, {"q1": question})
            seen = await self.connection.post(protocol.path, body, key="answers", tokens=1)
            why = ""
            if isinstance(seen, Failure):
                if seen.fatal or not seen.bad_request:  # not known yet
                    return seen if seen.retry else None
                why = _message(seen)
            elif "images" in body:
                del body["images"]
                unseen = await self.connection.post(protocol.path, body, key="answers", tokens=1)
                if isinstance(unseen, Failure) and unseen.retry:
                    return unseen
                counted = [0 if isinstance(r, Failure) else usage_of(r).prompt_tokens for r in (seen, unseen)]
                if counted[0] == counted[1] > 0:
                    why = "it counts as many tokens for a request with an image as without it"
            if why:
                raise takes_no_images(self.model, self.base_url, f" at {protocol.path}: {why}")
            self._takes_images = True
            return None

    def _compare(self, judge: Any) -> None:
        """Raise [`ModelError`] if a reward server names another judge than before."""
        if not isinstance(judge, str):
            return
        self._judge = self._judge or judge
        if judge != self._judge:
            raise ModelError(
                f"the reward server at {self.base_url} has changed its judge {self.model!r} from identity "
                f"{self._judge[:12]} to {judge[:12]}; answers of two judges are not mixed. Start the server with the "
                "first judge again, or restart this program."
            )


def _message(failure: Failure) -> str:
    return failure.unanswered.detail or str(failure.unanswered)
