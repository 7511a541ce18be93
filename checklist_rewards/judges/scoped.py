"""Items about single messages: "never reveals the key at any turn", "every tool result is mentioned".

An item with a scope is asked about each message in its scope, and the answers are combined:

| scope | messages | yes if |
|---|---|---|
| `final` | the last message of the assistant | it holds for this message |
| `any_turn` | all messages of the assistant | it holds for at least one |
| `every_turn` | all messages of the assistant | it holds for each, also if there is none |
| `any_tool_result`, `every_tool_result` | the results of tools | as above |

A judge sees the conversation up to the message and is asked about its last message only. So it sees what came before
("asks before it deletes"), and the prompts of one conversation start with each other: their shared tokens are computed
once. A code check sees the text of the message alone.

P(yes) is the largest P(yes) of the messages for *any*, and the smallest for *every*: a conversation is as good as the
message that decides. A message whose read failed makes the item unanswered, unless another message decides it: one
yes is enough for *any*, one no for *every*. If no message is in the scope, *any* is no and *every* is yes.

A conversation may be longer than the judge's context. What fits is read as above. The messages after that are read in
windows: a window holds consecutive messages, and the next one starts with the last messages of the one before, up to a
quarter of the context. A message that is longer than the context is read in parts that end with a sentence, or, where
a sentence does not fit, with a word; parts overlap in the same way. *Any* and *every* say what the parts mean
together, as they do for messages. The tokens computed are at most about 4/3 of those of the conversation. An item
without a scope, or about the final message, has no such meaning: its target is read whole or is unanswered
("too_long").

Texts are measured with the engine's tokenizer and its context ([`Ruler`]). What is surely too long is not sent; what
may fit is sent as in a judge with a longer context, so stored reads stay valid. If a server reports no context, the
longest text of a long conversation is sent first: if it is refused, the others are read in windows from then on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from checklist_rewards.backends.engine import SERVED
from checklist_rewards.chat import Message, transcript_of
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.images import outside
from checklist_rewards.judges.base import Answers, Ask, Judge
from checklist_rewards.judges.remote import RemoteJudge
from checklist_rewards.judges.written import BatchJudge
from checklist_rewards.prompts import Growing
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.score import answer_of

_ABOUT = {
    "assistant": "Consider only the last message of the response, not the ones before it. {question}",
    "tool": "Consider only the last tool result in the response, not what stands before it. {question}",
}
_ROLES = {"any_tool_result": "tool", "every_tool_result": "tool"}
_OMITTED = "[Earlier messages are left out.]\n\n"
_OVERLAP = 4
"""A window or part shares at most a quarter of the context with the one before it: enough for the turns or sentences
that a text refers to, for a third more tokens."""
_LONG = 16_384
"""Characters of a conversation from which an engine that is not loaded is loaded to measure it."""
_SURELY = 1.1
"""How much longer than the context a measured prompt must be to be surely too long."""
_BYTES_PER_TOKEN, _MOST_BYTES = 2, 6
"""Without a tokenizer: bytes per token that hardly any text falls below, and that hardly any exceeds."""
UNLIMITED = _ANY = 2**31
"""An engine with this context or a larger one has no limit."""
_LEAST = 32
"""Tokens, or characters, of the shortest window."""
_FORM_TOKENS = 128
"""What a judge and a chat template add to a prompt besides its template."""
_WHOLE_ONLY = "an item about the final message needs the whole message in the judge's context"
_NO_ROOM = Unanswered(Reason.TOO_LONG, "not even a part of a message fits into the judge's context")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\s+")

RunCheck = Callable[[ChecklistItem, str, str | None], Verdict]
"""Runs the check of an item on a text and an input."""
Sizes = Callable[[Sequence[str]], list[int]]
Span = tuple[int, int]


class Ruler:
    """Measures texts for the context of a judge.

    Args:
        judge ([`Judge`]): The judge, or None.
        load (`bool`): Whether to load an engine in this process to learn its context. A server is always asked.
    """

    def __init__(self, judge: Judge | None, load: bool):
        parts = [] if judge is None else judge.parts()
        found = [(*known, each) for each in parts if (known := _context(each, load)) is not None]
        self.limit: int | None = None
        """The context in tokens, the smallest of several judges; None if it is not known."""
        self.whole = 0.0
        """Tokens from which a prompt is surely too long for all judges."""
        self._tokens: Any = None
        self._judge: Judge | None = None
        if found:
            self.limit, self._tokens, self._judge = min(found, key=lambda one: one[0])
            slack = _SURELY if self._tokens is not None else _MOST_BYTES / _BYTES_PER_TOKEN
            self.whole = slack * max(limit for limit, *_ in found)

    @property
    def exact(self) -> bool:
        """Whether an engine counts tokens here, so that no prompt that is too long is sent."""
        return self._tokens is not None

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """The size of each text in tokens; without a tokenizer, an upper estimate; without a limit, in characters."""
        if self.limit is None:
            return _characters(texts)
        if self._tokens is None:
            return [-(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN) for text in texts]
        return list(map(len, self._tokens.encoder.data(list(texts))))

    def room(self, asks: Sequence[Ask]) -> tuple[int, int]:
        """Tokens of a target that fit into the prompts of some reads of one sample, which may be below 1; and the
        tokens of their input, reference and history. Requires a limit."""
        assert self.limit is not None
        first, unit = asks[0], max(1, self.limit // 16)
        questions = self.sizes([read.item.question for read in asks])
        asked = sum(questions) if isinstance(self._judge, BatchJudge) else max(questions)
        context = sum(self.sizes([t for t in (first.input, first.reference, first.history) if t is not None]))
        # In steps, so that another word in a question seldom moves the borders of windows.
        around = math.ceil((asked + self._template() + _FORM_TOKENS) / unit) * unit
        return self.limit - unit - around - context - self._reply(), context

    def _reply(self) -> int:
        """Tokens to keep free for the reply. An engine with a tokenizer shortens a reply that is too long for them."""
        assert self.limit is not None and self._judge is not None
        sampling = self._judge.sampling
        share = self.limit // 4 if self._tokens is not None else self.limit * 3 // 4
        return 1 if sampling is None else min(sampling.max_tokens, share)

    def _template(self) -> int:
        assert self._judge is not None
        prompts, examples = (self._judge.prompt, self._judge.options_prompt), self._judge.examples
        texts = ["\n".join([p.system or "", *p.sections]) for p in prompts if p is not None]
        shown: list[str] = []
        if examples is not None:
            shown = sorted((each.target for each in examples.examples), key=len)[-examples.shots :]
        return max(self.sizes(texts), default=0) + sum(self.sizes(shown))


def _context(judge: Judge, load: bool) -> tuple[int, Any] | None:
    """The context of a judge's engine and its tokenizer. None if it has none, or if the engine is not to be loaded."""
    engine = judge.engine
    if engine is None:
        return None
    served = engine.base_url is not None or engine.backend in SERVED
    if not (load or served or engine.is_loaded):
        return None
    try:
        backend = engine.load()
        limit = backend.limit
        return None if limit is None or limit >= UNLIMITED else (limit, backend.tokens)
    except ChecklistRewardsError:  # raised again by the first read that needs the engine
        return None


@dataclass(eq=False)
class _Conversation:
    """The messages of a sample."""

    told: Sequence[Message]
    numbers: dict[Any, int] = field(default_factory=dict)
    """Sample numbers of the reads, by the text that they are about."""
    around: list[Ask] = field(default_factory=list)
    """Its reads with a scope, as they would be without one."""
    sizes: list[int] = field(default_factory=list)
    """Of each message, by the ruler; empty if it is not measured."""
    room: int = 0
    """Tokens of a target that fit."""
    context: int = 0
    """Tokens of input, reference and history."""
    fits: int = 0
    """Characters of the longest text that was not too long."""
    fails: int = _ANY
    """Characters of the shortest text that was too long."""
    _starts: dict[tuple[bool, int], list[int | None]] = field(default_factory=dict)

    def measure(self, ruler: Ruler, always: bool = False) -> None:
        """Measure the messages, once; not if no limit is known, or if the text is far below it, unless `always`."""
        if self.sizes or ruler.limit is None or not (always or self.characters > 2 * ruler.limit):
            return
        self.room, self.context = ruler.room(self.around)
        self.sizes = ruler.sizes([message.shown + "\n\n" for message in self.told])

    @cached_property
    def lengths(self) -> list[int]:
        """Characters of the transcript up to each message."""
        return list(accumulate(len(message.shown) + 2 for message in self.told))

    @property
    def characters(self) -> int:
        """Characters of the whole transcript."""
        return self.lengths[-1]

    @cached_property
    def totals(self) -> list[int]:
        """Measured size of the transcript up to each message."""
        return list(accumulate(self.sizes))

    def start(self, at: int, room: int) -> int | None:
        """The first message of the window of a size that ends with a message; None if that is longer by itself."""
        key = bool(self.sizes), room
        if key not in self._starts:
            sizes = self.sizes or [len(message.shown) + 2 for message in self.told]
            self._starts[key] = windows(sizes, room)
        return self._starts[key][at]


@dataclass(eq=False)
class _Part:
    """What one read of an item is about: a message after those from `start` on, or some characters of it."""

    about: _Conversation
    at: int
    alone: bool
    """Whether it is read without the messages before it, and asked about as a whole text."""
    start: int = 0
    span: Span | None = None
    verdict: Verdict | None = None

    @property
    def text(self) -> str:
        """The target of the read."""
        told = self.about.told
        if self.span is not None:
            return self._message[slice(*self.span)]
        if self.alone:
            return told[self.at].text
        transcript = transcript_of(told[self.start : self.at + 1])
        return Growing.of((_OMITTED if self.start else "") + transcript, told[self.start].shown)

    @property
    def characters(self) -> int:
        """Length of the text, without building it."""
        if self.span is not None:
            return self.span[1] - self.span[0]
        if self.alone:
            return len(self.about.told[self.at].text)
        return self.about.lengths[self.at] - (self.about.lengths[self.start - 1] if self.start else 0)

    @property
    def size(self) -> float:
        """Measured size of the transcript up to the message, with its context. Minus infinity of a window, of a part
        of a message, and if it is not measured."""
        about = self.about
        measured = bool(about.sizes) and not self.start and self.span is None
        return about.totals[self.at] + about.context if measured else -math.inf

    @property
    def _message(self) -> str:
        message = self.about.told[self.at]
        return message.text if len(self.about.told) == 1 else message.shown

    def split(self, room: int, measure: Sizes) -> list[_Part]:
        """The parts of at most `room` in which to read this one; they are shorter."""
        if self.span is None and len(self.about.told) > 1:
            while (start := self.about.start(self.at, room)) is not None and self.start < self.at:
                if start > self.start:
                    return [replace(self, start=start, verdict=None)]
                room //= 2
        first, last = self.span or (0, len(self._message))
        spans = pieces(self._message[first:last], room, measure)
        return [replace(self, alone=True, start=0, span=(first + a, first + b), verdict=None) for a, b in spans]


def windows(sizes: Sequence[int], room: int) -> list[int | None]:
    """The first message of the window in which each message, of these sizes, is the last; None for one that is larger
    than `room` by itself.

        >>> windows([4, 4, 4, 4, 20, 4], 10)
        [0, 0, 2, 2, None, 5]
        >>> windows([2, 2, 2, 2, 2, 2], 8)
        [0, 0, 0, 0, 3, 3]
    """
    starts: list[int | None] = []
    start = used = lowest = 0
    for at, size in enumerate(sizes):
        if size > room:
            starts.append(None)
            start = lowest = at + 1
            used = 0
            continue
        if used + size > room:
            start, used = at, 0
            while start > lowest and used + sizes[start - 1] <= min(room // _OVERLAP, room - size):
                start -= 1
                used += sizes[start]
        used += size
        starts.append(start)
    return starts


def pieces(text: str, room: int, measure: Sizes) -> list[Span]:
    """First and last character (excluded) of parts of at most `room`, by `measure`, that together contain all of a
    text, and overlap. A part ends after a sentence, else after a word.

        >>> pieces("One two. Three four. Five six.", 20, lambda texts: list(map(len, texts)))
        [(0, 20), (15, 30)]
    """
    atoms = _atoms(text, room, measure)
    starts = windows([size for _, _, size in atoms], room)
    spans: list[Span] = []
    for (own, end, _), start in zip(atoms, starts, strict=True):
        first = own if start is None else atoms[start][0]
        if spans and spans[-1][0] == first:
            spans[-1] = first, end
        else:
            spans.append((first, end))
    return spans


def _atoms(text: str, room: int, measure: Sizes) -> list[tuple[int, int, int]]:
    """The sentences of a text with their sizes. In place of one that is longer than an overlap: its words; and in
    place of such a word: some characters each. The mark of an image is never cut."""
    atoms: list[tuple[int, int, int]] = []
    for level in (_SENTENCE, _WORD, None):
        fresh: list[tuple[int, int, int]] = []
        long: list[Span] = [(0, len(text))] if level is _SENTENCE else []
        for first, last, size in atoms:
            if size > room // _OVERLAP and last - first > 1:
                long.append((first, last))
            else:
                fresh.append((first, last, size))
        spans = [span for first, last in long for span in _spans(text, first, last, level, max(1, room // 16))]
        fresh += [(*span, size) for span, size in zip(spans, measure([text[a:b] for a, b in spans]), strict=True)]
        atoms = sorted(fresh)
    return atoms


def _spans(text: str, first: int, last: int, border: re.Pattern[str] | None, characters: int) -> Iterator[Span]:
    if border is None:
        while first < last:
            end = min(outside(text, first + characters), last)
            yield first, end
            first = end
        return
    for match in border.finditer(text, first, last):
        if match.end() > first:
            yield first, match.end()
            first = match.end()
    if first < last:
        yield first, last


@dataclass(eq=False)
class _Asked:
    """An item, and what it is asked about."""

    read: Ask
    item: ChecklistItem | None = None
    """None without a scope."""
    messages: list[list[_Part]] = field(default_factory=list)
    """The parts of each message in the scope."""
    checked: dict[int, Verdict] = field(default_factory=dict)
    """Verdicts of its code check by message."""
    verdict: Verdict | None = None

    @property
    def may_split(self) -> bool:
        return self.item is not None and self.item.scope != "final"


class ScopedReads:
    """The reads of a call, in which an item with a scope has one read per message.

    Args:
        samples (`int`): Number of samples of the call. Reads about a message get higher numbers, equal for the items
            about one text, so that a judge may answer them together.
        threshold (`float`): Lowest P(yes) that counts as yes.
        judge ([`Judge`]): The judge, for the length of its context.
        plain (`bool`): Whether its verdicts are used as they are. A reward server then gets the messages, and answers
            items with a scope itself.
    """

    def __init__(self, samples: int, threshold: float, judge: Judge, plain: bool):
        self._threshold, self._judge, self._plain = threshold, judge, plain
        self._number = samples
        self._asked: list[_Asked] = []
        self._about: dict[int, _Conversation] = {}
        self._ruler = Ruler(None, load=False)

    @cached_property
    def _takes_messages(self) -> bool:
        """Whether the judge, a reward server, answers items with a scope from messages as this process would."""
        judge = self._judge
        return self._plain and isinstance(judge, RemoteJudge) and judge.server.messages_threshold() == self._threshold

    def add(self, read: Ask, messages: Sequence[Message] = (), run: RunCheck | None = None) -> None:
        """Add the reads of an item about the whole target. `messages` are those of the target; without any, it is one
        message. `run` runs the item's check, if it is answered by one."""
        item = read.item
        if item.scope is None:
            self._asked.append(_Asked(read))
            return
        if run is None and self._takes_messages:
            self._asked.append(_Asked(replace(read, messages=tuple(messages))))
            return
        about = self._about.get(read.sample)
        if about is None:
            told = messages or [Message("assistant", read.target, read.target)]
            about = self._about[read.sample] = _Conversation(told)
        role, told = _role(item), about.told
        places = [at for at, message in enumerate(told) if message.role == role]
        if item.scope == "final":
            places = places[-1:] if told[-1].role == role else []
        alone = len(told) == 1 or item.scope == "final"
        question = item.question if alone else _ABOUT[role].format(question=item.question)
        plain = replace(read, item=item.model_copy(update={"question": question, "scope": None}))
        about.around.append(plain)
        asked = _Asked(plain, item, [[_Part(about, at, alone)] for at in places])
        if run is not None:
            asked.checked = {at: run(item, told[at].text, read.input) for at in places}
        self._asked.append(asked)

    def answered(self, ask: Answers) -> list[Verdict]:
        """One verdict per item, in order. `ask` is called again for the parts of texts that were too long."""
        while pending := self._next():
            verdicts = ask([self._read(asked, part) for asked, part in pending])
            for (asked, part), verdict in zip(pending, verdicts, strict=True):
                if part is None:
                    asked.verdict = verdict
                    continue
                part.verdict = verdict
                if not _is_too_long(verdict):
                    part.about.fits = max(part.about.fits, part.characters)
                elif asked.may_split:
                    part.about.fails = min(part.about.fails, part.characters)
        return [self._combined(asked) for asked in self._asked]

    def _next(self) -> list[tuple[_Asked, _Part | None]]:
        """What to ask next, after what is too long was split."""
        self._measure()
        pending: list[tuple[_Asked, _Part | None]] = []
        for asked in self._asked:
            if asked.item is None:
                pending += [(asked, None)] if asked.verdict is None else []
                continue
            if asked.may_split:
                asked.messages = [[each for part in parts for each in self._fitting(part)] for parts in asked.messages]
            pending += [(asked, part) for parts in asked.messages for part in parts if part.verdict is None]
        # Where only the server can tell whether a text fits, one text of a conversation shows it for others: first the
        # longest one, then the one in the middle of those that are still uncertain.
        uncertain = [p for asked, p in pending if asked.may_split and p is not None and self._is_uncertain(p)]
        lengths: dict[_Conversation, list[int]] = {}
        for part in uncertain:
            lengths.setdefault(part.about, []).append(part.characters)
        probes = {
            about: max(own) if about.fails == _ANY else sorted(own)[len(own) // 2] for about, own in lengths.items()
        }
        waiting = {part for part in uncertain if part.characters != probes[part.about]}
        return [(asked, part) for asked, part in pending if part not in waiting]

    def _is_uncertain(self, part: _Part) -> bool:
        if part.characters <= part.about.fits:
            return False
        if self._ruler.limit is None:
            return part.characters > _LONG
        return not self._ruler.exact and part.size > part.about.room

    def _measure(self) -> None:
        """Measure the conversations that may be too long."""
        waiting = [part for asked in self._asked if asked.may_split for parts in asked.messages for part in parts]
        open_ones = {part.about for part in waiting if not part.about.sizes and _is_open(part)}
        if open_ones:
            load = any(about.characters > _LONG or about.fails < _ANY for about in open_ones)
            self._ruler = Ruler(self._judge, load)
            for about in open_ones:
                about.measure(self._ruler, about.fails < _ANY)

    def _fitting(self, part: _Part) -> list[_Part]:
        """The part itself, or the shorter ones to read in its place."""
        about, ruler = part.about, self._ruler
        tried = part.verdict is not None
        if not (_is_open(part) and (tried or self._is_surely_too_long(part))):
            return [part]
        measure = ruler.sizes if about.sizes else _characters
        if not about.sizes:
            room = about.fits if about.fails // 2 <= about.fits < 0.9 * about.fails else about.fails // 2
        else:
            room = about.room
            if tried and room > 0.95 * (size := measure([part.text])[0]):  # it is longer than it measures
                room = size // 2
        if room >= _LEAST:
            return part.split(room, measure)
        part.verdict = replace(part.verdict or Verdict(), unanswered=_NO_ROOM)
        return [part]

    def _is_surely_too_long(self, part: _Part) -> bool:
        if not self._ruler.exact and part.characters >= part.about.fails:
            return True
        return part.size > self._ruler.whole

    def _read(self, asked: _Asked, part: _Part | None) -> Ask:
        if part is None:
            return asked.read
        key = (_role(asked.item), part.alone, part.at, part.start, part.span)
        number = part.about.numbers.get(key)
        if number is None:
            number = part.about.numbers[key] = self._number
            self._number += 1
        item, read = asked.read.item, asked.read
        if part.span is not None and asked.item is not None:
            item = item.model_copy(update={"question": asked.item.question})
        return replace(read, item=item, target=part.text, sample=number, checked=asked.checked.get(part.at))

    def _combined(self, asked: _Asked) -> Verdict:
        if asked.item is None:
            assert asked.verdict is not None
            return asked.verdict
        count = len(asked.messages)
        verdicts, names = [], []
        for number, parts in enumerate(asked.messages, start=1):
            for part in parts:
                assert part.verdict is not None
                verdicts.append(part.verdict)
                names.append(_name(part, f"message {number} of {count}"))
        return combine(asked.item, verdicts, self._threshold, names)


def _role(item: ChecklistItem | None) -> str:
    return "assistant" if item is None else _ROLES.get(str(item.scope), "assistant")


def _characters(texts: Sequence[str]) -> list[int]:
    return list(map(len, texts))


def _is_open(part: _Part) -> bool:
    """Whether a part is not read yet, or was too long and may be split."""
    return part.verdict is None or (part.verdict.unanswered is not _NO_ROOM and _is_too_long(part.verdict))


def _is_too_long(verdict: Verdict) -> bool:
    """Whether a text did not fit into the context of the judge, or of judges that a panel lacks."""
    if verdict.unanswered is None:
        return False
    return verdict.unanswered.reason == Reason.TOO_LONG or any(map(_is_too_long, verdict.votes or ()))


def _name(part: _Part, message: str) -> str:
    if part.span is not None:
        return f"{message}, characters {part.span[0] + 1:,} to {part.span[1]:,},"
    return f"{message}, read after the {part.at - part.start} before it," if part.start else message


def combine(item: ChecklistItem, verdicts: Sequence[Verdict], threshold: float, names: Sequence[str]) -> Verdict:
    """The verdict of an item with a scope from those about its messages, or parts of messages; see the module
    docstring. `names`, for `reasoning`, are what each verdict is about."""
    if item.scope == "final":
        if not verdicts:
            return Verdict(unanswered=Unanswered(Reason.NO_ANSWER, "no final message"))
        if verdicts[0].unanswered == Reason.TOO_LONG:
            return replace(verdicts[0], unanswered=Unanswered(Reason.TOO_LONG, _WHOLE_ONLY))
        return verdicts[0]
    decides = YES if str(item.scope).startswith("any") else NO
    if not verdicts:
        answer = NO if decides == YES else YES
        return Verdict(answer=answer, method="check", reasoning="no message is in the scope of this item")
    told = list(zip(names, verdicts, strict=True))
    answered = [(name, verdict) for name, verdict in told if verdict.unanswered is None]
    if answered:
        sign = 1 if decides == YES else -1
        name, verdict = max(answered, key=lambda pair: sign * _p_yes(pair[1]))
        if len(answered) == len(verdicts) or answer_of(item, verdict, threshold) == decides:
            where = f"{name} decides"
            return replace(verdict, reasoning=f"{where}: {verdict.reasoning}" if verdict.reasoning else where)
    name, lost = next((name, verdict) for name, verdict in told if verdict.unanswered is not None)
    return replace(lost, reasoning=f"{name} was not answered")


def _p_yes(verdict: Verdict) -> float:
    return float(verdict.answer == YES) if verdict.probabilities is None else verdict.probabilities[YES]
