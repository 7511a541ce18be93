"""The engine behind an OpenAI-compatible server.

What the server can do is found out once. It is asked for its models; one that says how long a context may be is most
likely vLLM, and if the model's tokenizer can be loaded here, the first read tries a prompt of token ids. Where that
gives the log-probabilities of named tokens, reads are exact and travel in lists of a few hundred prompts
(`completions`); everywhere else each read is a chat request for one token (`chat`). What a server refuses (a JSON
schema, log-probabilities) is left out from then on.

A request that fails costs its own reads and no others. What no retry can repair (no server, another model, a wrong
key) is a [`ModelError`], and so is a server that refuses each of its first eight requests: these go out one after the
other until one is not refused, which tells one odd prompt from requests that are all wrong.

Requests start as slots become free and replies are passed on as they arrive, so the server works at the full
`concurrency` until the last prompt. A prompt that is too long is not stored as such: the server's next start may allow
a longer context.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from jinja2 import TemplateError

from checklist_rewards.backends.base import (
    TOO_LONG,
    Arrived,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
    reply_seed,
)
from checklist_rewards.backends.models import served_identity
from checklist_rewards.backends.openai import chat, completions
from checklist_rewards.backends.openai.cached import PrefixCache
from checklist_rewards.backends.openai.connection import Connection
from checklist_rewards.backends.openai.failures import Failure
from checklist_rewards.backends.openai.loop import run, run_telling
from checklist_rewards.backends.openai.neutral import neutral
from checklist_rewards.backends.reads import Answer, read_prompts
from checklist_rewards.backends.servers import SERVERS, Settings, server_address, server_key
from checklist_rewards.backends.tokens import ChatTokenizer, load_chat_tokenizer
from checklist_rewards.errors import ModelError, NoServerError

logger = logging.getLogger(__name__)

_READS_PER_REQUEST = 256
_LIST_PATIENCE = 4.0
_CHARACTERS_PER_TOKEN = 4  # for limits only, where the tokenizer is not here
_SHOWN_MODELS = 8
_REFUSALS = 8
_HEAD_START = 2.0  # seconds
_TASKS_PER_SLOT = 2  # those that wait for their next attempt need no slot

T = TypeVar("T")
Body = Callable[[frozenset[str]], dict[str, Any]]


class Usage(NamedTuple):
    """Tokens of one read's requests; `cached` is None where the server does not report it."""

    prompt: int = 0
    cached: int | None = 0
    completion: int = 0

    def plus(self, other: Usage) -> Usage:
        """The tokens of both."""
        cached = None if self.cached is None or other.cached is None else self.cached + other.cached
        return Usage(self.prompt + other.prompt, cached, self.completion + other.completion)


class OpenAIBackend:
    """A model on a server.

    Args:
        model (`str`): the name that the server knows it by.
        base_url (`str`, *optional*, defaults to `"openai"`): "openai", "openrouter", or an address such as
            "http://localhost:8000/v1". The key is taken from `OPENROUTER_API_KEY` for OpenRouter, else from
            `OPENAI_API_KEY`.
        key (`str`, *optional*): the key itself.
        **settings: see [`Settings`]: `concurrency`, `requests_per_minute`, `tokens_per_minute`, `timeout`,
            `deadline`, `patience` ... To give them, build the backend yourself:
            `ChecklistScorer(model, backend=OpenAIBackend(model, "openrouter", concurrency=256))`.

    Raises [`ModelError`] if no server answers, if it wants a key that is not there, or if it does not serve `model`.
    """

    chunk_reads = 4096

    def __init__(self, model: str, base_url: str | None = None, *, key: str | None = None, **settings: Any):
        self.model = model
        self.base_url = server_address(base_url)
        self.identity = served_identity(model, self.base_url)
        self.connection = Connection(self.base_url, key or server_key(self.base_url), Settings.of(settings))
        card = run(self._card())
        self.limit: int = card.get("max_model_len") or 2**31
        self.tokens = self._tokenizer(card) if "max_model_len" in card else None
        self._controls = [] if self.tokens is None else _special(self.tokens)
        self._cache = PrefixCache(self.connection) if "max_model_len" in card else None
        self._takes_lists: bool | None = None if self.tokens is not None else False
        hosted = self.base_url in (address for address, _ in SERVERS.values())
        self._without = chat.refused_by(model) | ({"no_thinking"} if hosted else set())
        self._tried = False
        self._refused: list[Failure] = []
        # OpenRouter cuts a prompt that is too long in its middle unless it is told not to.
        self._extra: dict[str, Any] = {"transforms": []} if self.base_url == SERVERS["openrouter"][0] else {}

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]. `computed_tokens` is None where the server reports neither cached tokens nor counters that
        no other client changed during the call (`cached.py`)."""
        if self.tokens is not None and self._takes_lists is not False:
            ids = sorted(set(chain.from_iterable(self.tokens.label_groups(labels))))
            lists = run(self._lists(ids))
            if isinstance(lists, Failure):
                return ReadResult([(LabelRead(None, lists.reason),) * len(group.tails) for group in groups])
            if lists:
                result = read_prompts(self.tokens, groups, labels, self._ask_lists, limit=self.limit)
                return replace(result, reads=[tuple(map(_of_this_start, reads)) for reads in result.reads])
        return run(self._read_chats(groups, labels))

    @property
    def requests_per_read(self) -> int:
        """At most: where reads are chat requests, a second one may ask for a word."""
        return 1 if self._takes_lists else 2

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]. The server renders the chat template."""
        return run_telling(
            lambda put: self._each(prompts, lambda messages: self._replies(messages, sampling), put),
            arrived or (lambda place, replies: None),
        )

    async def _card(self) -> dict[str, Any]:
        """What the server says about the model; nothing where it lists no models."""
        found = await self.connection.get("/models", "data")
        if isinstance(found, Failure):
            if found.status in (404, 405):
                return {}
            if found.status in (401, 403):
                raise ModelError(f"the server at {self.base_url} does not accept the key ({found.reason}).")
            raise NoServerError(
                f"no OpenAI-compatible server answers at {self.base_url} ({found.reason}); give another base_url, or "
                f"start one with: vllm serve {self.model}"
            )
        cards = {card.get("id"): card for card in found["data"] if isinstance(card, dict)}
        if not cards:
            return {}  # a proxy that lists nothing
        if self.model not in cards:
            names = [str(name) for name in cards]
            more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
            raise ModelError(
                f"the server at {self.base_url} serves {names[:_SHOWN_MODELS]}{more}, not {self.model!r}."
            )
        return cards[self.model]

    def _tokenizer(self, card: dict[str, Any]) -> ChatTokenizer | None:
        source = card.get("root") or self.model
        try:
            return load_chat_tokenizer(source)
        except Exception:  # whatever a tokenizer's files or code raise, the server has its own
            logger.warning(
                "the tokenizer %r of the model served at %s cannot be loaded here, so every read is a chat request; "
                "with it, reads would travel in lists.",
                source,
                self.base_url,
            )
            return None

    async def _lists(self, ids: list[int]) -> bool | Failure:
        """Whether reads travel in lists; tried once, with a prompt of one token."""
        if self._takes_lists is None:
            found = await self.connection.post("/completions", completions.body(self.model, [ids[:1]], ids))
            if isinstance(found, Failure) and not found.bad_request:
                return found
            choices = [] if isinstance(found, Failure) else found["choices"]
            self._takes_lists = isinstance(completions.answers(choices, ids, 1)[0], dict)
            if not self._takes_lists:
                logger.info("the server at %s names no tokens; every read is a chat request.", self.base_url)
        return self._takes_lists

    def _ask_lists(self, prompts: list[list[int]], ids: list[int]) -> tuple[list[Answer], int | None]:
        requests = [prompts[i : i + _READS_PER_REQUEST] for i in range(0, len(prompts), _READS_PER_REQUEST)]

        async def ask() -> tuple[list[Answer], int | None]:
            before = None if self._cache is None else await self._cache.counts()
            answers = list(chain(*await asyncio.gather(*(self._complete(request, ids) for request in requests))))
            if self._cache is None or any(isinstance(answer, str) for answer in answers):
                return answers, None
            return answers, await self._cache.computed(before, sum(map(len, prompts)))

        return run(ask())

    async def _complete(self, prompts: list[list[int]], ids: list[int]) -> list[Answer]:
        """An answer per prompt. Those that the server left out, or gave twice, are asked for once more."""
        answers: list[Answer | None] = [None] * len(prompts)
        for _ in range(2):
            missing = [place for place, answer in enumerate(answers) if answer is None]
            if not missing:
                break
            asked = [prompts[place] for place in missing]
            spent = sum(map(len, asked)) + len(asked)
            found = await self.connection.post(
                "/completions", completions.body(self.model, asked, ids), tokens=spent, patience=_LIST_PATIENCE
            )
            if isinstance(found, Failure):
                if found.fatal:
                    raise self._error(found)
                return [found.reason if answer is None else answer for answer in answers]
            for place, answer in zip(missing, completions.answers(found["choices"], ids, len(asked)), strict=True):
                answers[place] = answer
        return ["empty_choices" if answer is None else answer for answer in answers]

    async def _read_chats(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        prompts = [(group.system, group.prefix + tail) for group in groups for tail in group.tails]
        before = None if self._cache is None else await self._cache.counts()
        reads = await self._each(prompts, lambda prompt: self._label(_messages(*prompt), labels))
        found = iter(reads)
        taken = [tuple(_of_this_start(next(found)[0]) for _ in group.tails) for group in groups]
        usage = Usage()
        for _, used in reads:
            usage = usage.plus(used)
        computed = None if usage.cached is None else usage.prompt - usage.cached
        if computed is None and self._cache is not None:
            computed = await self._cache.computed(before, usage.prompt)
        return ReadResult(taken, usage.prompt, computed, completion_tokens=usage.completion or None)

    async def _label(
        self, messages: Messages, labels: Sequence[str], without: frozenset[str] = frozenset()
    ) -> tuple[LabelRead, Usage]:
        found = await self._chat(
            lambda refused: chat.label_body(self.model, messages, refused | without, self._controls), messages, 1
        )
        if isinstance(found, Failure):
            return LabelRead(None, found.reason), Usage()
        choice, usage = chat.choices_of(found)[0], Usage(*chat.usage_of(found))
        read = chat.label_of(choice, labels)
        if read.unanswered == "off_label" and "logprobs" not in self._without | without:
            # One token of text is not much: without log-probabilities the model may finish its word.
            read, more = await self._label(messages, labels, frozenset({"logprobs"}))
            usage = usage.plus(more)
        return read, usage

    async def _replies(self, messages: Messages, sampling: Sampling) -> list[Reply]:
        """`sampling.n` replies. A server that gives fewer at a time is asked again for the others."""
        room = self._room(messages)
        if room < 1:
            return [Reply(None, unanswered=TOO_LONG, keep=False)] * sampling.n
        seed = reply_seed(sampling.seed, messages)
        replies: list[Reply] = []
        while len(replies) < sampling.n:
            asked = replace(sampling, seed=seed + len(replies))
            left = sampling.n - len(replies)

            def body(refused: frozenset[str], asked: Sampling = asked, left: int = left) -> dict[str, Any]:
                return chat.reply_body(self.model, messages, asked, left, room, refused, self._controls)

            found = await self._chat(body, messages, sampling.max_tokens * left)
            if isinstance(found, Failure):
                return replies + [Reply(None, unanswered=found.reason, keep=found.reason != TOO_LONG)] * left
            fresh = [chat.reply_of(choice) for choice in chat.choices_of(found)[:left]]
            if not fresh:
                return replies + [Reply(None, unanswered="error_body")] * left
            replies += _with_usage(fresh, *chat.usage_of(found))
        return replies

    def _room(self, messages: Messages) -> int:
        """Tokens that the context leaves for a reply, as far as that is known here."""
        if self.tokens is None:
            return self.limit
        try:
            return self.limit - len(self.tokens.prompt(messages))
        except (ModelError, TemplateError):  # the server's template may allow what the tokenizer's does not
            return self.limit

    async def _each(
        self,
        prompts: Sequence[Any],
        ask: Callable[[Any], Coroutine[Any, Any, T]],
        put: Callable[[int, T], None] = lambda place, answer: None,
    ) -> list[T]:
        """Ask about every prompt, as many at once as there are slots and some more, once it is known that the server
        takes such requests. `put` gets each answer as it arrives."""
        answers: dict[int, T] = {}
        places = iter(range(len(prompts)))

        async def one(place: int) -> None:
            answers[place] = await ask(prompts[place])
            put(place, answers[place])

        async def several() -> None:
            for place in places:
                await one(place)

        tasks: list[asyncio.Future[None]] = []
        try:
            while not self._tried and len(self._refused) < _REFUSALS and (place := next(places, None)) is not None:
                tasks.append(asyncio.ensure_future(one(place)))
                if not (await asyncio.wait(tasks[-1:], timeout=_HEAD_START))[0]:
                    break  # what takes long is not refused
                tasks[-1].result()
            if not self._tried and len(self._refused) >= _REFUSALS:
                refusal, self._refused = self._refused[-1], []
                raise self._error(refusal)
            workers = min(len(prompts) - len(tasks), _TASKS_PER_SLOT * self.connection.settings.concurrency)
            tasks += [asyncio.ensure_future(several()) for _ in range(workers)]
            await asyncio.gather(*tasks)
            return [answers[place] for place in range(len(prompts))]
        finally:
            for task in tasks:  # the first error stops the others
                task.cancel()

    async def _chat(self, body: Body, messages: Messages, tokens: int) -> dict[str, Any] | Failure:
        """A chat request, sent again without what the server refuses; what it takes then is remembered."""
        spent = tokens + sum(len(message["content"]) for message in messages) // _CHARACTERS_PER_TOKEN
        without, first = self._without, None
        while True:
            asked = body(without) | self._extra
            found = await self.connection.post("/chat/completions", asked, tokens=spent)
            if not isinstance(found, Failure):
                if without - self._without:
                    logger.info("the server at %s does not take: %s.", self.base_url, ", ".join(sorted(without)))
                self._without |= without
                self._tried = True
                return found
            first = first or found
            dropped = chat.suspects(found, chat.features(asked), without) if found.bad_request else None
            if not dropped:
                break
            without |= dropped
        if first.fatal:
            raise self._error(first)
        if not first.bad_request:
            self._tried = True
        elif not self._tried:
            self._refused.append(first)
        return first

    def _error(self, failure: Failure) -> ModelError:
        reason = failure.reason.removeprefix("backend_error: ")
        return ModelError(f"the server at {self.base_url} refused a request: {reason}")


def _messages(system: str | None, user: str) -> Messages:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": user}]


def _of_this_start(read: LabelRead) -> LabelRead:
    """A context may be another one when the server is started again."""
    return replace(read, keep=False) if read.unanswered == TOO_LONG else read


def _special(tokens: ChatTokenizer) -> list[str]:
    """The control strings that a tokenizer declares, without those that every text is cleared of."""
    added = getattr(tokens.tokenizer, "added_tokens_decoder", {})
    return [token.content for token in added.values() if token.special and neutral(token.content) == token.content]


def _with_usage(replies: list[Reply], prompt: int, cached: int | None, completion: int) -> list[Reply]:
    """The server counts all replies of a request together: shared out evenly, the prompt counted at the first."""
    share, rest = divmod(completion, len(replies))
    return [
        Reply(
            reply.text,
            reply.finish_reason,
            reply.unanswered,
            prompt if place == 0 else 0,
            share + (rest if place == 0 else 0),
        )
        for place, reply in enumerate(replies)
    ]
