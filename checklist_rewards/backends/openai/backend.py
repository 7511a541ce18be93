"""An engine for models on OpenAI-compatible servers.

A server that reports a maximum context length is most likely vLLM. If the model's tokenizer can be loaded here, which
requires transformers, the first read sends a prompt of token ids. If the server returns the log-probabilities of the
given tokens, reads are exact and are sent in lists of a few hundred prompts. Otherwise each read is a chat request for
one token. Features that the server rejects (a JSON schema, log-probabilities) are omitted from then on.

Prompts with images are chat requests, too. If a server refuses one before it has accepted any, it is sent a small
white image. If it refuses that too, it takes no images, and [`ModelError`] has the server's own sentence. Otherwise it
has refused this prompt: its read is unanswered, with that sentence. How many tokens an image has is known to the
server only. A reply to a prompt with images for which `max_tokens` leaves no room is requested again with the room
that is left by the server's own count of the prompt.

A failed request affects only its own reads. Errors that no retry can fix (no server, an unknown model, a wrong key)
raise [`ModelError`]. The same applies to a server that rejects each of its first eight requests. They are sent one
after the other until one is accepted, to distinguish a single bad prompt from requests that are all invalid.

A prompt may open the thought of a reply, so that the reply begins inside it. A reply without a closing marker that
reached its token limit is then cut in its thought, as with an engine in this process. Whether the prompt opens a
thought is known from the prompt that the server renders (vLLM, llama.cpp), or from the model's tokenizer, if it can be
loaded here. Otherwise it is known as soon as one reply closes a thought that it did not open; until then, cut replies
of a call are held back, up to a limit. It cannot be known if no reply of a call is complete. A server with a reasoning
parser returns thoughts apart from the text, which is then the answer.

Requests start as slots become free, and replies are returned as they arrive, so the server is used with the full
`concurrency` until the last prompt. Reads of prompts that are too long are not stored, because the server may allow a
longer context after its next start.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeVar

from checklist_rewards.backends.base import (
    NO_USAGE,
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    check_continues,
    not_logprobs,
    reply_seed,
)
from checklist_rewards.backends.models import served_identity
from checklist_rewards.backends.openai import wire
from checklist_rewards.backends.openai.client import Connection, in_parts, run, run_streaming, together
from checklist_rewards.backends.openai.limits import estimated_tokens
from checklist_rewards.backends.openai.replicas import prefix_key
from checklist_rewards.backends.openai.served import (
    PrefixCache,
    has_encoded,
    served_card,
    served_prompt,
    takes_no_images,
)
from checklist_rewards.backends.openai.wire import NO_ANSWER, NO_TOKENS, Failure, ListedPrompt, neutral
from checklist_rewards.backends.reads import TokenAnswer, read_prompts
from checklist_rewards.backends.servers import SERVERS, Settings, is_hosted, server_addresses, server_key
from checklist_rewards.backends.tokens import ChatTokenizer, load_chat_tokenizer, local_tokenizer
from checklist_rewards.backends.trees import Branch
from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ModelError
from checklist_rewards.images import has_images, shown
from checklist_rewards.markers import END_THINK, THINK, Section, added_tokens
from checklist_rewards.prompts import prompt_messages
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)

BY_PROMPT = 10
"""Replicas from which on lists are routed by prompt."""
_READS_PER_REQUEST = 256
_PATIENCE = 4.0


def list_keys(groups: Sequence[ReadGroup], replicas: int) -> list[str]:
    """The routing key of each group in lists of prompts.

    With few replicas, it is the text. From 10 replicas on, it is the prompt, if the call has at least as many prompts
    as replicas: each prompt is then computed by one replica instead of up to all of them, and no replica is idle. In
    the simulation of docs/studies/cluster.md, that gives 10 to 23 % more reads; with 0.4 prompts per replica, it gave
    21 % fewer.
    """
    starts = {group.start for group in groups if group.start is not None}
    if replicas < BY_PROMPT or len(starts) < replicas:
        return [prefix_key(group.system, group.prefix) for group in groups]
    return [prefix_key(group.system, group.prefix if group.start is None else group.start.hex()) for group in groups]


_REFUSALS = 8
_HEAD_START = 2.0  # seconds
_MOST_HELD = 256
"""Prompts whose cut replies are held back until it is known whether a thought was cut."""
_TASKS_PER_SLOT = 2  # requests that wait for their next attempt do not need a slot

T = TypeVar("T")
Body = Callable[[frozenset[str], wire.Limits], dict[str, Any]]


class OpenAIBackend(Backend):
    """A model on a server.

    Args:
        model (`str`): The name of the model on the server.
        base_url (`str` or sequence of `str`, *optional*, defaults to `"openai"`): "openai", "openrouter", or a URL
            such as "http://localhost:8000/v1". Several URLs are replicas: all reads about a text go to the same one.
        key (`str`, *optional*): The API key. Defaults to the environment variable `OPENROUTER_API_KEY` for OpenRouter,
            and to `OPENAI_API_KEY` for all other servers.
        **settings: The fields of [`Settings`], such as `concurrency`, `requests_per_minute`, `tokens_per_minute`,
            `timeout`, `deadline` or `patience`. Example:
            `ChecklistScorer(model, backend=OpenAIBackend(model, "openrouter", concurrency=256))`.

    Raises:
        ModelError: If no server responds, if the API key is missing or rejected, if the server does not serve
            `model`, or if replicas serve different models.
    """

    chunk_reads = 4096
    sees = True

    def __init__(
        self, model: str, base_url: str | Sequence[str] | None = None, *, key: str | None = None, **settings: Any
    ):
        self.model = model
        addresses = server_addresses(base_url)
        self.identity = served_identity(model, addresses)
        self.connection = Connection(addresses, key or server_key(addresses[0]), Settings.of(settings))
        self.base_url = self.connection.address
        card = run(served_card(self.connection, model))
        self.limit: int = card.get("max_model_len") or 2**31
        """The context in tokens. If the server does not report it, it becomes known with the first prompt that is too
        long, if the error names it."""
        self.tokens = self._tokenizer(card) if "max_model_len" in card else None
        self._controls = [] if self.tokens is None else _special(self.tokens)
        self._cache = PrefixCache(self.connection, card)
        self._supports_lists: bool | None = None if self.tokens is not None else False
        """Whether reads are lists of prompts. None until [`_probe_lists`] has an answer."""
        self._without = wire.refused_by(model) | (wire.BEYOND_OPENAI if is_hosted(addresses[0]) else frozenset())
        self._limits = wire.Limits()
        self._accepted: frozenset[str] = frozenset()
        self._has_likely: bool | None = None
        self._warned_of_words = False
        self._most_likely = wire.TOP
        """Likely tokens in the smallest list so far, of which a warning was logged."""
        self._changed = 0
        """Latest requests in a row of which the server rejected something that it had accepted before."""
        self._opened: Section | bool | None = None
        """What the prompt of a reply opens. None if it is not known, or not asked for yet."""
        self._opened_by: Literal["server", "tokenizer", "replies"] | None = None
        """How that is known: from a prompt that the server or the tokenizer rendered, or only by replies. None if it
        was not asked for yet."""
        self._parses_thoughts = False
        self._tried = False
        self._saw = False
        """Whether the server has accepted a request with images."""
        self._refused: list[Failure] = []
        self._extra: dict[str, Any] = wire.UNCUT if self.base_url == SERVERS["openrouter"][0] else {}

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of the labels, in lists of prompts if the server supports them.

        `computed_tokens` is None if the server does not report cached tokens, and its counters are missing or were
        changed by another client during the call (`served.py`).
        """
        if any(group.written for group in groups):
            check_continues(self)
        if any(group.sees for group in groups):
            return self._read_with_images(groups, labels)
        if self.tokens is not None and self._supports_lists is not False:
            ids = sorted(set(chain.from_iterable(self.tokens.label_groups(labels))))
            supports = run(self._probe_lists(ids))
            if isinstance(supports, Failure):
                return [Answer(None, supports.unanswered)] * sum(len(group.tails) for group in groups), Usage()
            if supports:
                by_group = list_keys(groups, len(self.connection.addresses))
                keys = [key for key, group in zip(by_group, groups, strict=True) for _ in group.tails or ("",)]

                def ask(branches: list[Branch[int]], ids: list[int]) -> tuple[list[TokenAnswer], int | None]:
                    places = [place for _, tails in branches for _, place in tails]
                    return run(self._read_lists(wire.listed(branches), ids, [keys[place] for place in places]))

                answers, usage = read_prompts(self.tokens, groups, labels, ask, limit=self.limit)
                return list(map(_of_this_start, answers)), usage
        return run(self._read_chats(groups, labels))

    def _read_with_images(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Read groups, some of which have images."""
        pictured = [group for group in groups if group.sees]
        texts = [group for group in groups if not group.sees]
        if any(group.written for group in pictured):
            raise ModelError(
                f"thinking=... cannot be combined with images on the server at {self.base_url}, which takes images in "
                "chat messages only; omit it, or use transformers or vLLM in this process."
            )
        answers, usage = run(self._read_chats(pictured, labels))
        of_texts, more = self.read(texts, labels) if texts else ([], None)
        of_images, others = iter(answers), iter(of_texts)
        merged = [next(of_images if group.sees else others) for group in groups for _ in group.tails]
        return merged, usage if more is None else Usage.total([usage, more])

    @property
    def continues(self) -> bool:  # type: ignore[override]
        """Whether the server accepts prompts of token ids, which may end in a thought of the model. Tested once.

        If the server cannot be reached, True: the next request fails with the reason.
        """
        if self.tokens is None:
            return False
        ids = sorted({*self.tokens.label_ids("yes"), *self.tokens.label_ids("no")})
        return run(self._probe_lists(ids)) is not False

    @property
    def requests_per_read(self) -> int:  # type: ignore[override]
        """Maximum number of requests per read: 2 for chat requests, because a second one may request a word."""
        return 1 if self._supports_lists else 2

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample replies concurrently. The server renders the chat template."""
        held: list[tuple[int, list[Reply]]] = []

        def release() -> None:
            while held and arrived is not None:
                place, replies = held.pop(0)
                arrived(place, self._completed(replies))

        def receive(place: int, replies: list[Reply]) -> None:
            if self._opened_by == "replies" and self._opened is None and any(map(_may_be_thought, replies)):
                held.append((place, replies))
                if len(held) <= _MOST_HELD:
                    return
                self._opened = False
                logger.warning(
                    "the first %d replies of %r at %s were all cut at max_tokens=%d: if its prompt opens a thought, "
                    "thoughts are judged as answers. Allow more tokens.",
                    len(held),
                    self.model,
                    self.base_url,
                    sampling.max_tokens,
                )
            elif arrived is not None:
                arrived(place, self._completed(replies))
            if self._opened is not None:
                release()

        found = run_streaming(
            lambda emit: self._each(prompts, lambda messages: self._replies(messages, sampling), emit), receive
        )
        release()
        return [self._completed(replies) for replies in found]

    def _tokenizer(self, card: dict[str, Any]) -> ChatTokenizer | None:
        source = card.get("root") or self.model
        try:
            return load_chat_tokenizer(source)
        except Exception as error:  # a tokenizer may raise any error; the server has its own tokenizer
            why, remedy = "cannot be loaded here", "the tokenizer"
            if isinstance(error, ModuleNotFoundError):
                why, remedy = f"{why}: {error.name} is not installed", "pip install 'checklist-rewards[trl]'"
            logger.warning(
                "the tokenizer %r of the model served at %s %s, so each read is a separate chat request; with %s, "
                "reads would be sent in lists.",
                *(source, self.base_url, why, remedy),
            )
            return None

    async def _probe_lists(self, ids: list[int]) -> bool | Failure:
        """Whether the server supports lists of prompts; tested once, with a prompt of one token."""
        if self._supports_lists is None:
            prompts = wire.listed([((), [(ids[:1], None)])])
            response = await self.connection.post("/completions", wire.list_body(self.model, prompts, ids))
            if isinstance(response, Failure) and not response.bad_request:
                return response
            choices = [] if isinstance(response, Failure) else response["choices"]
            answer = wire.list_answers(choices, ids, 1)[0]
            if isinstance(answer, dict):
                answer = not_logprobs(list(answer.values())) or answer
            if isinstance(answer, Unanswered) and answer not in (NO_ANSWER, NO_TOKENS):
                return Failure(answer)  # it says nothing about lists: an aborted request, or logits
            self._supports_lists = isinstance(answer, dict)
            if not self._supports_lists:
                logger.info(
                    "the server at %s does not support logprob_token_ids; each read is a separate chat request.",
                    self.base_url,
                )
        return self._supports_lists

    async def _read_lists(
        self, prompts: Sequence[ListedPrompt], ids: list[int], keys: Sequence[str]
    ) -> tuple[list[TokenAnswer], int | None]:
        """The answers to prompts, each with its routing key, in order, and the number of computed prompt tokens, None
        if unknown."""
        before, lists = await self._cache.counts(), self._lists(keys)
        found = await together(
            self._read_list([prompts[place] for place in places], ids, keys[places[0]]) for places in lists
        )
        by_place = dict(zip(chain.from_iterable(lists), chain.from_iterable(found), strict=True))
        answers = [by_place[place] for place in range(len(prompts))]
        if any(isinstance(answer, str) for answer in answers):
            return answers, None
        return answers, await self._cache.computed(before, sum([tokens for _, tokens in prompts]))

    def _lists(self, keys: Sequence[str]) -> list[list[int]]:
        """The prompts of each request, by their index."""
        by_replica: dict[int, list[int]] = {}
        homes = {key: self.connection.home(key) for key in dict.fromkeys(keys)}
        for place, key in enumerate(keys):
            by_replica.setdefault(homes[key], []).append(place)
        lists = [
            places[start : start + _READS_PER_REQUEST]
            for places in by_replica.values()
            for start in range(0, len(places), _READS_PER_REQUEST)
        ]
        return sorted(lists)  # in turns, so that all replicas are busy from the start

    async def _read_list(self, prompts: Sequence[ListedPrompt], ids: list[int], key: str) -> list[TokenAnswer]:
        """The answers to the prompts of one request. Those that are missing or duplicated in the response are
        requested once more."""

        async def send(some: Mapping[int, ListedPrompt]) -> list[TokenAnswer] | Failure:
            batch = list(some.values())
            response = await self.connection.post(
                "/completions",
                wire.list_body(self.model, batch, ids),
                tokens=sum([tokens for _, tokens in batch]) + len(batch),
                patience=_PATIENCE,
                prefix=key,
                reads=len(batch),
            )
            if not isinstance(response, Failure):
                return wire.list_answers(response["choices"], ids, len(batch))
            if response.fatal:
                raise self._error(response)
            return response

        return await in_parts(prompts, send, lambda failure: failure.unanswered, lambda answer: answer is NO_ANSWER)

    async def _read_chats(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        prompts = [
            (prompt_messages(group.system, group.prefix + tail), key)
            for group, key in ((group, prefix_key(group.system, group.prefix)) for group in groups)
            for tail in group.tails
        ]
        before = await self._cache.counts()
        results = await self._each(prompts, lambda prompt: self._label(prompt[0], prompt[1], labels))
        answers = [_of_this_start(answer) for answer, _ in results]
        return answers, await self._cache.usage(before, [usage for _, usage in results])

    async def _label(
        self, messages: Messages, prefix: str, labels: Sequence[str], without: frozenset[str] = frozenset()
    ) -> tuple[Answer, Usage]:
        if self._room(messages) < 1:
            return Answer(None, Unanswered(Reason.TOO_LONG)), NO_USAGE
        limits = self._limits
        response, sent = await self._chat(
            lambda refused, limits: wire.label_body(self.model, messages, refused | without, self._controls, limits),
            messages,
            1,
            prefix,
        )
        if isinstance(response, Failure):
            return Answer(None, response.unanswered), NO_USAGE
        choice, usage = wire.choices_of(response)[0], Usage.reported(*wire.usage_of(response))
        read = wire.label_of(choice, labels)
        if read.logprobs is not None:
            self._has_likely = True
        elif "logprobs" in sent and read.unanswered in (None, Reason.OFF_LABEL):
            # The server accepts the parameter and returns no list of likely tokens.
            again = self._has_likely is None and self._next_limits(limits)
            if again or read.unanswered is not None:
                # The token may be the start of a label. A request without log-probabilities allows the whole word.
                omitted = without if again else frozenset({"logprobs"})
                read, more = await self._label(messages, prefix, labels, omitted)
                return read, Usage.total([usage, more])
        if read.label is not None:
            self._warn_of_words(
                f"its replies to {self.model!r} have no list of likely tokens"
                if "logprobs" not in self._without
                else f"it accepts no request for them for {self.model!r}"
            )
        return read, usage

    def _next_limits(self, limits: wire.Limits) -> bool:
        """Set another way to request likely tokens, after `limits` gave none. False if none is left: the first one is
        then restored."""
        if self._limits == limits:
            if limits.top > wire.FEWER:
                self._limits = limits._replace(top=wire.FEWER)
            elif not limits.counted:
                self._limits = limits._replace(counted=True)
            else:
                self._limits = wire.Limits(least_tokens=limits.least_tokens)
                self._has_likely = False
        return self._has_likely is None

    def _warn_of_words(self, why: str) -> None:
        if not self._warned_of_words:
            self._warned_of_words = True
            logger.warning(
                "the server at %s returns no log-probabilities (%s): labels are read as the words that the model "
                "writes. P(yes) is then 1 or 0, scores tie more often, and the threshold has no effect.",
                self.base_url,
                why,
            )

    async def _replies(self, messages: Messages, sampling: Sampling) -> list[Reply]:
        """Sample `sampling.n` replies. If the server returns fewer per request, the others are requested again."""
        room = self._room(messages)
        if room < 1:
            return [Reply(None, unanswered=Unanswered(Reason.TOO_LONG), keep=False)] * sampling.n
        seed = reply_seed(sampling.seed, messages)
        prefix = prefix_key(*(message["content"] for message in messages))
        replies: list[Reply] = []
        while len(replies) < sampling.n:
            seeded = replace(sampling, seed=seed + len(replies))
            missing = sampling.n - len(replies)

            def body(
                refused: frozenset[str],
                limits: wire.Limits,
                seeded: Sampling = seeded,
                missing: int = missing,
                room: int = room,
            ) -> dict[str, Any]:
                return wire.reply_body(self.model, messages, seeded, missing, room, refused, self._controls, limits)

            response, _ = await self._chat(body, messages, sampling.max_tokens * missing, prefix)
            if isinstance(response, Failure):
                is_long = response.unanswered.reason == Reason.TOO_LONG
                asked = min(room, sampling.max_tokens)
                if is_long and (left := await self._room_beside_images(messages, asked, prefix)) is not None:
                    room = left
                    continue
                return replies + [Reply(None, unanswered=response.unanswered, keep=not is_long)] * missing
            new = [await self._reply(choice) for choice in wire.choices_of(response)[:missing]]
            replies += _with_usage(new, *wire.usage_of(response))
        return replies

    async def _reply(self, choice: Any) -> Reply:
        """A reply, which begins with its thought if the prompt has opened that."""
        reply, parsed = wire.reply_of(choice), wire.parses_thoughts(choice)
        self._parses_thoughts |= bool(parsed)
        text = reply.text
        if text is None or parsed or text.lstrip().startswith(THINK):
            return reply
        closed = END_THINK in text
        if not closed and (self._parses_thoughts or not (reply.finish_reason == "length" or parsed is False)):
            if self._opened_by == "replies" and self._opened is None:
                self._opened = False  # a complete reply without a thought
            return reply
        opened = await self._opening()
        if not isinstance(opened, Section):
            if self._opened_by == "replies" and closed and THINK not in text.partition(END_THINK)[0]:
                self._opened = True
            return reply
        if re.match(opened.open, text.lstrip(), re.S):
            return reply
        closing = re.search(opened.close, text, re.S)
        if closing is not None:
            return replace(reply, text=f"{THINK}{text[: closing.start()]}{END_THINK}{text[closing.end() :]}")
        if reply.finish_reason == "length" or self._opened_by == "server":
            return replace(reply, text=THINK + text)
        return reply

    async def _opening(self) -> Section | bool | None:
        """What the prompt of a reply opens: a thought, or nothing (False). None if it is not known."""
        async with self.connection.lock("opening"):
            if self._opened_by is None:
                hosted = is_hosted(self.connection.addresses[0])
                tokens = self.tokens or (None if hosted else local_tokenizer(self.model))
                decode = (
                    None if self.tokens is None else partial(self.tokens.tokenizer.decode, skip_special_tokens=False)
                )
                prompt = None if hosted else await served_prompt(self.connection, self.model, decode)
                by: Literal["server", "tokenizer", "replies"] = "replies" if prompt is None else "server"
                if prompt is None and tokens is not None:
                    with suppress(Exception):  # a template may raise any error
                        prompt, by = tokens.template.frame(None, think=True).foot, "tokenizer"
                if prompt is not None:
                    reader = CompletionReader() if tokens is None else tokens.template.reader
                    self._opened = reader.opened(prompt) or False
                self._opened_by = by
        return self._opened

    def _completed(self, replies: list[Reply]) -> list[Reply]:
        """Replies. Those that were cut in a thought, as other replies have shown since, begin with its marker."""
        if self._opened is not True:
            return replies
        return [replace(r, text=f"{THINK}{r.text}") if _may_be_thought(r) else r for r in replies]

    def _room(self, messages: Messages) -> int:
        """Number of tokens that the context leaves for a reply, as far as known here. An image counts as a few tokens;
        see [`_room_beside_images`]."""
        if self.tokens is None:
            return self.limit
        from jinja2 import TemplateError  # installed wherever a tokenizer is

        try:
            texts = [{**message, "content": shown(message["content"])} for message in messages]
            return self.limit - len(self.tokens.prompt(texts))
        except (ModelError, TemplateError):  # the server may use a template that accepts these messages
            return self.limit

    async def _room_beside_images(self, messages: Messages, asked: int, prefix: str) -> int | None:
        """The room for a reply to a prompt with images that is too long with a reply of `asked` tokens, by the
        server's count of the prompt. None if there is none, or not less than that."""
        if not any(has_images(message["content"]) for message in messages):
            return None
        response, _ = await self._chat(
            lambda refused, limits: wire.reply_body(
                self.model, messages, Sampling(max_tokens=1), 1, asked, refused, self._controls, limits
            ),
            messages,
            1,
            prefix,
        )
        if isinstance(response, Failure):
            return None
        left = self.limit - wire.usage_of(response)[0]
        return left if 1 <= left < asked else None

    async def _each(
        self,
        prompts: Sequence[Any],
        ask: Callable[[Any], Coroutine[Any, Any, T]],
        emit: Callable[[int, T], None] = lambda place, answer: None,
    ) -> list[T]:
        """Call `ask` for every prompt, concurrently once the server has accepted a request. `emit` is called with each
        answer as it arrives."""
        answers: dict[int, T] = {}
        places = iter(range(len(prompts)))

        async def one(place: int) -> None:
            answers[place] = await ask(prompts[place])
            emit(place, answers[place])

        async def worker() -> None:
            for place in places:
                await one(place)

        tasks: list[asyncio.Future[None]] = []
        try:
            while not self._tried and len(self._refused) < _REFUSALS and (place := next(places, None)) is not None:
                tasks.append(asyncio.ensure_future(one(place)))
                if not (await asyncio.wait(tasks[-1:], timeout=_HEAD_START))[0]:
                    break  # a request that takes this long has not been rejected
                tasks[-1].result()
            if not self._tried and len(self._refused) >= _REFUSALS:
                refusal, self._refused = self._refused[-1], []
                raise self._error(refusal)
            workers = min(len(prompts) - len(tasks), _TASKS_PER_SLOT * self.connection.slots)
            tasks += [asyncio.ensure_future(worker()) for _ in range(workers)]
            await asyncio.gather(*tasks)
            return [answers[place] for place in range(len(prompts))]
        finally:
            for task in tasks:  # after an error, stop the others
                task.cancel()

    async def _chat(
        self, body: Body, messages: Messages, tokens: int, prefix: str
    ) -> tuple[dict[str, Any] | Failure, list[str]]:
        """Send a chat request, and again as the server demands if it rejects a feature or a number. What it demands is
        remembered; if it has accepted the feature or the number before, only after several such requests in a row.

        An error that names no parameter may be due to one all the same, so they are omitted one by one, after fewer
        likely tokens were requested. A parameter whose omission did not help is restored.

        Returns:
            `tuple`: The response, and the features of the request that it answers.
        """
        texts = [message["content"] for message in messages]
        estimate = 0
        if self.connection.settings.tokens_per_minute is not None:
            estimate = tokens + estimated_tokens(*texts)

        async def post(
            without: frozenset[str], limits: wire.Limits
        ) -> tuple[dict[str, Any], dict[str, Any] | Failure]:
            request = body(without, limits) | self._extra
            return request, await self.connection.post("/chat/completions", request, tokens=estimate, prefix=prefix)

        pictured = await has_encoded(*texts)
        without, limits, guessed = self._without, self._limits, frozenset[str]()
        last = frozenset[str]()
        unguessed = limits
        first: Failure | None = None
        while True:
            request, response = await post(without | guessed, limits)
            if not isinstance(response, Failure):
                break
            first = first or response
            if not response.bad_request:
                return self._failed(first, pictured), []
            named, demanded = wire.adapted(response, request, limits)
            if named or demanded != limits:
                without, limits, guessed = without | named, demanded, frozenset()
                unguessed = limits
                continue
            of_image = pictured and wire.is_about_images(response)
            unnamed = None if of_image else wire.guess(response, request, guessed)
            if unnamed is None:
                if pictured and (of_image or not first.fatal) and await self._takes_images(first):
                    first = replace(first, fatal=False)
                return self._failed(first, pictured), []
            if unnamed == "logprobs" and limits.top > wire.FEWER and not self._has_likely:
                last, limits = frozenset(), limits._replace(top=wire.FEWER)
            else:
                last, limits = frozenset({unnamed}), unguessed
                guessed |= last
        if guessed - last:
            smaller, answer = await post(without | last, limits)
            if not isinstance(answer, Failure):
                request, response, guessed = smaller, answer, last
        without |= guessed
        # After a restart, for example, a server may reject what it has accepted before.
        self._changed = self._changed + 1 if without - self._without or limits != self._limits else 0
        if self._changed >= _REFUSALS:
            self._accepted, self._has_likely = frozenset(), None
        omitted = without - self._without - self._accepted
        if omitted:
            logger.info("the server at %s does not support: %s.", self.base_url, ", ".join(sorted(omitted)))
        if limits.top < self._most_likely and "logprobs" in request:
            self._most_likely = limits.top
            logger.warning(
                "the server at %s returns at most %d likely tokens; a label that is not among them counts as 0.",
                self.base_url,
                limits.top,
            )
        sent = wire.features(request)
        self._without |= omitted
        if self._has_likely is not True:
            self._limits = limits
        self._accepted |= set(sent)
        self._tried = True
        self._saw |= pictured
        return response, sent

    async def _takes_images(self, refused: Failure) -> bool:
        """Whether the server takes images, after it has refused a prompt with images. False if it is not known.

        Raises:
            ModelError: If it refuses a small image too.
        """
        async with self.connection.lock("images"):
            if not self._saw:
                body = wire.image_body(self.model, self._without, self._limits) | self._extra
                response = await self.connection.post("/chat/completions", body, tokens=1)
                if not isinstance(response, Failure):
                    self._saw = self._tried = True
                elif response.fatal and not wire.is_about_images(response):
                    raise self._error(response)
                elif response.bad_request and (
                    self._tried or wire.is_about_images(response) or response.message == refused.message
                ):
                    raise takes_no_images(self.model, self.base_url, f": {response.message}")
            return self._saw

    def _failed(self, first: Failure, pictured: bool) -> Failure:
        """The failure of a request that was rejected in every form. That of a prompt with images has the server's
        sentence: which of its parts is too large is known to the server only."""
        if first.unanswered.reason == Reason.TOO_LONG:
            if (limit := wire.context_in(first.message)) is not None:
                self.limit = min(self.limit, limit)
            if pictured:
                first = replace(first, unanswered=Unanswered(Reason.TOO_LONG, first.message))
        if first.fatal:
            raise self._error(first)
        if not first.bad_request:
            self._tried = True
        elif not self._tried:
            self._refused.append(first)
        return first

    def _error(self, failure: Failure) -> ModelError:
        return ModelError(wire.rejected(self.base_url, failure))


def _may_be_thought(reply: Reply) -> bool:
    """Whether a reply is a cut thought if its prompt has opened one."""
    text = reply.text
    if text is None or reply.thought is not None or reply.finish_reason != "length":
        return False
    return END_THINK not in text and not text.lstrip().startswith(THINK)


def _of_this_start(read: Answer) -> Answer:
    """Mark a read as not to be stored if the prompt is too long, because the server's context may change at a
    restart."""
    is_long = read.unanswered is not None and read.unanswered.reason == Reason.TOO_LONG
    return replace(read, keep=False) if is_long else read


def _special(tokens: ChatTokenizer) -> list[str]:
    """The control strings declared by a tokenizer, without those that [`neutral`] always handles."""
    added = added_tokens(tokens.tokenizer)
    return [token.content for token in added if token.special and neutral(token.content) == token.content]


def _with_usage(replies: list[Reply], prompt: int, cached: int | None, completion: int) -> list[Reply]:
    """Distribute the usage of a request evenly among its replies. Prompt tokens are counted in the first reply."""
    each, rest = divmod(completion, len(replies))
    return [
        replace(
            reply,
            prompt_tokens=prompt if place == 0 else 0,
            completion_tokens=each + (rest if place == 0 else 0),
        )
        for place, reply in enumerate(replies)
    ]
