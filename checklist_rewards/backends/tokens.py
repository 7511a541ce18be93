"""From chat text to token ids, the same for every engine that runs here.

A prompt is tokenized as a whole, as the model was trained to see it. Its prefix is shared all the same: the text is
cut at a place where every tokenizer begins a new token, before a space that a word follows, and the tails bring the
words between that place and the question with them. Tokens that all tails begin with then go back into the prefix. The
first prompt of every kind is compared with the prompt in one piece; where the two differ, prompts are tokenized whole
and their common tokens are the prefix.

The user's message is data: the strings of control tokens inside it are tokenized as text (`encoding.py`).

Labels are found in the vocabulary, not assumed: every entry that reads as the label ("Yes", " yes", "YES") is one of
its surface forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import AutoTokenizer

from checklist_rewards.backends.base import Messages, ReadGroup
from checklist_rewards.backends.encoding import Ids, TextEncoder
from checklist_rewards.backends.templates import ChatTemplate, Frame
from checklist_rewards.errors import ModelError

_WORD_AFTER_SPACE = re.compile(r"(?<=\S) (?=[^\W\d_])")
_SEAM_WITHIN = 400
"""Characters from the end of a prefix in which its seam is looked for."""
_CONTEXT = re.compile(r"\S{1,16}\Z")
_CHECKED_BEFORE = 200
_MOST_SEAMS = 4096


class TokenGroup(NamedTuple):
    """A [`ReadGroup`] as token ids: the prompt of read i is `prefix + tails[i]`."""

    prefix: list[int]
    tails: list[list[int]]

    def fitting(self, limit: int) -> list[tuple[int, list[int]]]:
        """Index and ids of the tails whose prompt leaves room for one token of answer in `limit` tokens."""
        room = limit - len(self.prefix)
        return [(index, tail) for index, tail in enumerate(self.tails) if len(tail) < room]


class _Head(NamedTuple):
    """The text of a prefix up to its seam, and where its data is."""

    text: str
    data: tuple[int, int]


class _Tail(NamedTuple):
    """The text of a tail: some characters before the seam, the seam with the question, the template's foot."""

    context: str
    text: str
    foot: str


class _Parts(NamedTuple):
    """A group of reads as text, cut at its seam."""

    head: _Head
    tails: list[_Tail]
    seam_tokens: int


def load_chat_tokenizer(path: str, **settings: Any) -> ChatTokenizer:
    """The tokenizer of a model.

    Args:
        path (`str`): a folder or a Hub id.
        **settings: of `AutoTokenizer.from_pretrained`, such as `revision`.
    """
    tokenizer = AutoTokenizer.from_pretrained(path, **settings)
    if type(tokenizer).__name__ != "MistralCommonBackend":
        return ChatTokenizer(tokenizer)
    from checklist_rewards.backends.mistral import MistralChatTokenizer

    return MistralChatTokenizer(tokenizer)


def count_tokens(groups: Sequence[TokenGroup], limit: int) -> tuple[int, int]:
    """Prompt tokens of the reads that fit: each prompt computed alone, and each prefix and tail computed once."""
    alone = floor = 0
    for group in groups:
        tails = [len(tail) for _, tail in group.fitting(limit)]
        alone += len(group.prefix) * len(tails) + sum(tails)
        floor += (len(group.prefix) if tails else 0) + sum(tails)
    return alone, floor


class ChatTokenizer:
    """A Hugging Face tokenizer with its chat template, for prompts whose user message is data. Threads may share one.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): with or without a chat template.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.encoder = TextEncoder(tokenizer)
        self.template = ChatTemplate(tokenizer)
        self._frames: dict[str | None, Frame] = {}
        self._seams: dict[tuple[str, str], int | None] = {}
        self._spellings: dict[str, tuple[int, ...]] | None = None

    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """Tokenize groups of reads: each prefix once, each distinct tail once."""
        parts = [self._parts(group) for group in groups]
        heads = [part.head for part in parts if part is not None]
        prefixes = iter(self.encoder.data([head.text for head in heads], [[head.data] for head in heads]))
        tails = self._tails([tail for part in parts if part is not None for tail in part.tails])
        out = []
        for group, part in zip(groups, parts, strict=True):
            if part is None:
                out.append(shared_prefix(self._in_one_piece(group)))
                continue
            prefix, mine = next(prefixes), [tails[tail] for tail in part.tails]
            known = [tail for tail in mine if tail is not None]
            if len(known) < len(mine):
                out.append(shared_prefix(self._in_one_piece(group)))
                continue
            shared = min(_common(known), part.seam_tokens)
            out.append(TokenGroup(prefix + known[0][:shared], [tail[shared:] for tail in known]))
        return out

    def prompt(self, messages: Messages) -> list[int]:
        """Token ids of a whole conversation, ready for the model's reply."""
        text, spans = self.template.conversation(messages)
        return self.encoder.data([text], [spans])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a model's reply, without special tokens; thinking stands in a `<think>` block."""
        return self.template.reply(self.tokenizer.decode(ids, skip_special_tokens=not self.template.marks_channels))

    def label_ids(self, label: str) -> tuple[int, ...]:
        """Ids of every vocabulary token that reads as `label`, whatever its case and the space around it."""
        if self._spellings is None:
            self._spellings = self.encoder.spellings()
        return self._spellings.get(label.lower(), ())

    def label_groups(self, labels: Sequence[str]) -> list[tuple[int, ...]]:
        """Surface forms of each label; each label must have one, and none may be shared.

        Raises:
            ModelError: naming the label and the tokens.
        """
        groups = [self.label_ids(label) for label in labels]
        for label, ids in zip(labels, groups, strict=True):
            if not ids:
                pieces = self.tokenizer.convert_ids_to_tokens(self.encoder.data([label])[0])
                raise ModelError(
                    f"this model cannot be read by label: {label!r} is no single token, the tokenizer cuts it into "
                    f"{pieces}."
                )
        for index, ids in enumerate(groups):
            for other in range(index):
                shared = sorted(set(ids) & set(groups[other]))
                if shared:
                    tokens = self.tokenizer.convert_ids_to_tokens(shared)
                    raise ModelError(
                        f"this model cannot be read by label: {labels[other]!r} and {labels[index]!r} share {tokens}."
                    )
        return groups

    def _parts(self, group: ReadGroup) -> _Parts | None:
        """The group cut at its seam; None if it has none, or if a cut there would change a token."""
        frame = self._frame(group.system)
        prefix = group.prefix.lstrip() if frame.strips else group.prefix
        places = [match.start() for match in _WORD_AFTER_SPACE.finditer(prefix, max(0, len(prefix) - _SEAM_WITHIN))]
        if not places or not group.tails:
            return None
        before, seam = prefix[: places[-1]], prefix[places[-1] :]
        context = before[_CONTEXT.search(before).start() :]  # type: ignore[union-attr]  # no space stands there
        texts = [tail.rstrip() for tail in group.tails] if frame.strips else group.tails
        tails = [_Tail(context, seam + text, frame.foot) for text in texts]
        if (context, seam) not in self._seams:
            if len(self._seams) >= _MOST_SEAMS:
                self._seams.clear()
            self._seams[context, seam] = self._seam_tokens(before[-_CHECKED_BEFORE:], seam, tails[0])
        tokens = self._seams.get((context, seam))
        if tokens is None:
            return None
        return _Parts(_Head(frame.head + before, (len(frame.head), len(frame.head) + len(before))), tails, tokens)

    def _seam_tokens(self, before: str, seam: str, tail: _Tail) -> int | None:
        """How many tokens the seam has; None if a prompt that is cut there differs from one in one piece."""
        text = before + tail.text
        left, whole = self.encoder.data([before, text + tail.foot], [[(0, len(before))], [(0, len(text))]])
        after = self._tails([tail])[tail]
        if after is None or left + after != whole:
            return None
        context, both = self.encoder.data([tail.context, tail.context + seam])
        return max(0, len(both) - len(context))

    def _tails(self, tails: Sequence[_Tail]) -> dict[_Tail, Ids | None]:
        """Ids of each distinct tail without those of its context; None where the two are not apart."""
        distinct = list(dict.fromkeys(tails))
        names = list(dict.fromkeys(tail.context for tail in distinct))
        contexts = dict(zip(names, self.encoder.whole(names), strict=True))
        ids = self.encoder.data(
            [tail.context + tail.text + tail.foot for tail in distinct],
            [[(0, len(tail.context) + len(tail.text))] for tail in distinct],
        )
        found: dict[_Tail, Ids | None] = {}
        for tail, both in zip(distinct, ids, strict=True):
            context = contexts[tail.context]
            found[tail] = both[len(context) :] if both[: len(context)] == context else None
        return found

    def _in_one_piece(self, group: ReadGroup) -> list[Ids]:
        """Ids of every prompt of a group."""
        frame = self._frame(group.system)
        users = [group.prefix + tail for tail in group.tails or ("",)]
        users = [user.strip() for user in users] if frame.strips else users
        start = len(frame.head)
        return self.encoder.data(
            [frame.head + user + frame.foot for user in users], [[(start, start + len(user))] for user in users]
        )

    def _frame(self, system: str | None) -> Frame:
        if system not in self._frames:
            self._frames[system] = self.template.frame(system)
        return self._frames[system]


def shared_prefix(prompts: Sequence[Ids]) -> TokenGroup:
    """Whole prompts, at least one, as a group: what they all begin with is the prefix."""
    shared = _common(prompts)
    return TokenGroup(prompts[0][:shared], [prompt[shared:] for prompt in prompts])


def _common(sequences: Sequence[Ids]) -> int:
    """How many ids all sequences begin with, at most all but the last of the shortest."""
    most = min(map(len, sequences)) - 1
    first = sequences[0]
    return next((at for at in range(most) if any(ids[at] != first[at] for ids in sequences)), max(0, most))
