"""Conversion of chat messages to token ids, for all engines that run in this process.

The token ids are those of the whole prompt, as the model was trained to see it. Nevertheless the prefix is tokenized
only once. The text is split at the *seam*: a place where every tokenizer starts a new token, namely before a space
that is followed by a word. The words between the seam and the question are part of every tail. Tokens that all tails
have in common are moved back to the prefix. The first prompt of each kind is compared with the same prompt tokenized
whole. If they differ, all prompts of that kind are tokenized whole, and their common tokens are the prefix.

The user's message is data: strings of control tokens inside it are tokenized as text (`encoding.py`). So is a thought
of the model that precedes the label. Reads that share a thought have it in their common prefix.

Labels are looked up in the vocabulary: every entry that decodes to the label ("Yes", " yes", "YES") is one of its
surface forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Messages, ReadGroup
from checklist_rewards.backends.encoding import Ids, Span, TextEncoder
from checklist_rewards.backends.templates import QUOTED_END, ChatTemplate, Frame
from checklist_rewards.errors import ModelError

_WORD_AFTER_SPACE = re.compile(r"(?<=\S) (?=[^\W\d_])")
_SEAM_WITHIN = 400
"""Number of characters at the end of a prefix that are searched for the seam."""
_CONTEXT = re.compile(r"\S{1,16}\Z")
_CHECKED_BEFORE = 200
_MOST_SEAMS = 4096
_END_THINK = "</think>"


class TokenGroup(NamedTuple):
    """A [`ReadGroup`] as token ids: the prompt of read i is `prefix + tails[i]`."""

    prefix: list[int]
    tails: list[list[int]]

    def fitting(self, limit: int) -> list[tuple[int, list[int]]]:
        """Index and ids of the tails whose prompt, with one token for the answer, fits into `limit` tokens."""
        room = limit - len(self.prefix)
        return [(index, tail) for index, tail in enumerate(self.tails) if len(tail) < room]


class _Head(NamedTuple):
    """The text of a prefix up to its seam, and the span of its data."""

    text: str
    data: tuple[int, int]


class _Foot(NamedTuple):
    """What follows the user message: the template's end, and the thought that the assistant has written."""

    text: str
    data: tuple[Span, ...] = ()

    def after(self, start: int) -> list[Span]:
        """The data of the whole text, if `start` characters of data precede the foot."""
        return [(0, start), *((start + first, start + last) for first, last in self.data)]


class _Tail(NamedTuple):
    """The text of a tail: some characters before the seam, the text from the seam on, and the foot."""

    context: str
    text: str
    foot: _Foot


class _Parts(NamedTuple):
    """A group of reads as text, split at its seam."""

    head: _Head
    tails: list[_Tail]
    seam_tokens: int


def count_tokens(groups: Sequence[TokenGroup], limit: int) -> tuple[int, int]:
    """Count the prompt tokens of all reads that fit into `limit` tokens.

    Returns:
        `tuple[int, int]`: The count if each prompt is computed separately, and the count if each prefix and each tail
        is computed once.
    """
    separate = once = 0
    for group in groups:
        tails = [len(tail) for _, tail in group.fitting(limit)]
        separate += len(group.prefix) * len(tails) + sum(tails)
        once += (len(group.prefix) if tails else 0) + sum(tails)
    return separate, once


class ChatTokenizer:
    """A Hugging Face tokenizer with its chat template, for prompts whose user message is data. Safe to share between
    threads.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): A tokenizer with or without a chat template.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.encoder = TextEncoder(tokenizer)
        self.template = ChatTemplate(tokenizer)
        self._frames: dict[tuple[str | None, bool], Frame] = {}
        self._seams: dict[tuple[str, str], int | None] = {}
        self._spellings: dict[str, tuple[int, ...]] | None = None
        self._ahead: tuple[Sequence[ReadGroup], list[TokenGroup]] | None = None

    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """Tokenize groups of reads. Each prefix and each distinct tail is tokenized once."""
        ahead = self._ahead
        if ahead is not None and ahead[0] is groups:
            self._ahead = None
            return ahead[1]
        parts = [self._parts(group) for group in groups]
        heads = [part.head for part in parts if part is not None]
        prefixes = iter(self.encoder.data([head.text for head in heads], [[head.data] for head in heads]))
        tails = self._tails([tail for part in parts if part is not None for tail in part.tails])
        out = []
        for group, part in zip(groups, parts, strict=True):
            if part is None:
                out.append(shared_prefix(self._whole_prompts(group)))
                continue
            prefix, tail_ids = next(prefixes), [tails[tail] for tail in part.tails]
            separable = [ids for ids in tail_ids if ids is not None]
            if len(separable) < len(tail_ids):
                out.append(shared_prefix(self._whole_prompts(group)))
                continue
            shared = _common(separable)
            if len({written.thought for written in group.written}) != 1:
                shared = min(shared, part.seam_tokens)
            out.append(TokenGroup(prefix + separable[0][:shared], [ids[shared:] for ids in separable]))
        return out

    def groups_ahead(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """As [`groups`], which then gives the same result for the same object once, without work."""
        found = self.groups(groups)
        self._ahead = groups, found
        return found

    def prompt(self, messages: Messages) -> list[int]:
        """Token ids of a whole conversation, up to where the model's reply starts."""
        text, spans = self.template.conversation(messages)
        return self.encoder.data([text], [spans])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a model's reply, without special tokens. Thinking is in a `<think>` block. A closing tag that the
        model has spelled out is not the token that closes a block, and is changed so that it does not look like it."""
        if self.template.reader.drops_markers:
            return self.template.reply(self.template.reader.decode([ids])[0])
        text = self._decoded(ids)
        end = self.tokenizer.convert_tokens_to_ids(_END_THINK) if _END_THINK in text else None
        if end is not None and self.tokenizer.convert_ids_to_tokens(end) != _END_THINK:
            end = None  # the unknown token
        if end is not None and text.count(_END_THINK) > list(ids).count(end):
            parts: list[list[int]] = [[]]
            for token in ids:
                parts = [*parts, []] if token == end else [*parts[:-1], [*parts[-1], token]]
            text = _END_THINK.join(self._decoded(part).replace(_END_THINK, QUOTED_END) for part in parts)
        return self.template.reply(text)

    def _decoded(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def label_ids(self, label: str) -> tuple[int, ...]:
        """Ids of all vocabulary tokens that decode to `label`, ignoring case and surrounding white space."""
        if self._spellings is None:
            self._spellings = self.encoder.spellings()
        return self._spellings.get(label.lower(), ())

    def label_groups(self, labels: Sequence[str]) -> list[tuple[int, ...]]:
        """The token ids of all surface forms of each label.

        Raises:
            ModelError: If a label has no single-token form, or if two labels share one. The message names the label
                and the tokens.
        """
        groups = [self.label_ids(label) for label in labels]
        for label, ids in zip(labels, groups, strict=True):
            if not ids:
                pieces = self.tokenizer.convert_ids_to_tokens(self.encoder.data([label])[0])
                raise ModelError(
                    f"this model cannot be used with the label {label!r}: it is not a single token, the tokenizer "
                    f"splits it into {pieces}."
                )
        for index, ids in enumerate(groups):
            for other in range(index):
                shared = sorted(set(ids) & set(groups[other]))
                if shared:
                    tokens = self.tokenizer.convert_ids_to_tokens(shared)
                    raise ModelError(
                        f"this model cannot be used with the labels {labels[other]!r} and {labels[index]!r}: they "
                        f"share the tokens {tokens}."
                    )
        return groups

    def _parts(self, group: ReadGroup) -> _Parts | None:
        """Split a group at its seam. None if it has no seam, or if splitting there would change a token."""
        frame = self._frame(group)
        prefix = group.prefix.lstrip() if frame.strips else group.prefix
        places = [match.start() for match in _WORD_AFTER_SPACE.finditer(prefix, max(0, len(prefix) - _SEAM_WITHIN))]
        if not places or not group.tails:
            return None
        before, seam = prefix[: places[-1]], prefix[places[-1] :]
        context = before[_CONTEXT.search(before).start() :]  # type: ignore[union-attr]  # `before` ends without a space
        texts = [tail.rstrip() for tail in group.tails] if frame.strips else group.tails
        feet = self._feet(frame, group)
        tails = [_Tail(context, seam + text, foot) for text, foot in zip(texts, feet, strict=True)]
        if (context, seam) not in self._seams:
            if len(self._seams) >= _MOST_SEAMS:
                self._seams.clear()
            self._seams[context, seam] = self._seam_tokens(before[-_CHECKED_BEFORE:], seam, tails[0])
        tokens = self._seams.get((context, seam))
        if tokens is None:
            return None
        return _Parts(_Head(frame.head + before, (len(frame.head), len(frame.head) + len(before))), tails, tokens)

    def _seam_tokens(self, before: str, seam: str, tail: _Tail) -> int | None:
        """Number of tokens of the seam. None if a prompt split there differs from the prompt tokenized whole."""
        text = before + tail.text
        left, whole = self.encoder.data(
            [before, text + tail.foot.text], [[(0, len(before))], tail.foot.after(len(text))]
        )
        after = self._tails([tail])[tail]
        if after is None or left + after != whole:
            return None
        context, both = self.encoder.data([tail.context, tail.context + seam])
        return max(0, len(both) - len(context))

    def _tails(self, tails: Sequence[_Tail]) -> dict[_Tail, Ids | None]:
        """Ids of each distinct tail without those of its context. None if they share a token."""
        distinct = list(dict.fromkeys(tails))
        names = list(dict.fromkeys(tail.context for tail in distinct))
        contexts = dict(zip(names, self.encoder.whole(names), strict=True))
        ids = self.encoder.data(
            [tail.context + tail.text + tail.foot.text for tail in distinct],
            [tail.foot.after(len(tail.context) + len(tail.text)) for tail in distinct],
        )
        tail_ids: dict[_Tail, Ids | None] = {}
        for tail, both in zip(distinct, ids, strict=True):
            context = contexts[tail.context]
            tail_ids[tail] = both[len(context) :] if both[: len(context)] == context else None
        return tail_ids

    def _whole_prompts(self, group: ReadGroup) -> list[Ids]:
        """Ids of every prompt of a group, each tokenized whole."""
        frame = self._frame(group)
        users = [group.prefix + tail for tail in group.tails or ("",)]
        users = [user.strip() for user in users] if frame.strips else users
        start = len(frame.head)
        texts, spans = [], []
        for user, foot in zip(users, self._feet(frame, group), strict=True):
            texts.append(frame.head + user + foot.text)
            (_, end), *written = foot.after(start + len(user))
            spans.append([(start, end), *written])
        return self.encoder.data(texts, spans)

    def _feet(self, frame: Frame, group: ReadGroup) -> list[_Foot]:
        """What follows each user message of a group."""
        if not group.written:
            return [_Foot(frame.foot)] * max(1, len(group.tails))
        start = len(frame.foot)
        feet = []
        for text, spans in map(self.template.thoughts.around, group.written):
            feet.append(_Foot(frame.foot + text, tuple((start + first, start + last) for first, last in spans)))
        return feet

    def _frame(self, group: ReadGroup) -> Frame:
        key = group.system, bool(group.written)
        if key not in self._frames:
            self._frames[key] = self.template.frame(group.system, think=bool(group.written))
        return self._frames[key]


def shared_prefix(prompts: Sequence[Ids]) -> TokenGroup:
    """Group prompts (at least one). The tokens that they all start with are the prefix."""
    shared = _common(prompts)
    return TokenGroup(prompts[0][:shared], [prompt[shared:] for prompt in prompts])


def _common(sequences: Sequence[Ids]) -> int:
    """Length of the common prefix of all sequences, at most one less than the length of the shortest."""
    most = min(map(len, sequences)) - 1
    first = sequences[0]
    return next((at for at in range(most) if any(ids[at] != first[at] for ids in sequences)), max(0, most))
