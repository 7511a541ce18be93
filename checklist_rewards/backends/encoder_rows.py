"""Converts targets, questions and context to input rows for a cross-encoder.

The context is the input and the reference, for a model that was trained with them (`config.json` names them under the
key `CONTEXT`). Each is a segment that ends with a separator, in the row of every window of the target. A segment has
at most 96 tokens; of a longer text, the first 48 and the last 47 are read. The positions of a segment are its own,
above those of the target, so the window of the target does not shrink, and the model recognizes a segment by its
positions, also if the other one is missing:

    target 0 ...    input 320 ... 415    reference 416 ... 511

Tokens of a segment that also occur in the target have the second token type. A row without context is the same for
every model.

In packed rows, the windows of a long target overlap by half. An overlap of a quarter takes a quarter less time, but
its AUC was lower in all four measurements, by 0.001 to 0.009 (docs/studies/english_models.md).

Targets and questions are data: the string `[SEP]` inside a text is tokenized as text (`tokens.py`). The special
tokens around them in a row, such as `[CLS]` and `[SEP]`, come from the tokenizer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.tokens import Ids, TextEncoder

LAYOUT, PACKED, MATCHED = "checklist_layout", "packed", "matched"
WINDOW = 256
"""Maximum number of tokens of a target in one row, including special tokens."""
OVERLAP = (WINDOW - 2) // 2
"""Number of tokens that two neighbouring windows of a target share in packed rows. Every passage of up to as many
tokens is complete in one window."""
MAX_QUESTION = 128
CONTEXT = "checklist_context"
CONTEXT_AT = {"input": 320, "reference": 416}
"""Position of the first token of each segment."""
MAX_CONTEXT = 96
"""Maximum number of tokens of a segment, including the separator."""
CONTEXT_POSITIONS = 512
"""Number of positions that a model with context needs."""
_ROW_TOKENS = 1024


class Segment(NamedTuple):
    """The tokens of one text in a row, with their token types."""

    start: int
    """Position of the first token."""
    tokens: Ids
    kinds: Sequence[int]

    @property
    def positions(self) -> range:
        """The position of each token."""
        return range(self.start, self.start + len(self.tokens))


class EncoderRow(NamedTuple):
    """One input row: a window of a target, its context, and its questions with the places of their answers."""

    target: list[int]
    questions: list[tuple[int, list[int]]]
    kinds: Sequence[int] = ()
    """Token types of a pair, whose `target` also contains the question: 0 for the first text, 1 for the second. In a
    matched pair, 1 for tokens that occur in both texts."""
    context: tuple[Segment, ...] = ()
    """The input and the reference. Tokens that occur in the target have token type 1."""

    @property
    def shared(self) -> int:
        """Number of tokens that all questions of the row attend to."""
        return len(self.target) + sum(len(segment.tokens) for segment in self.context)

    @property
    def length(self) -> int:
        """Number of tokens without padding."""
        return self.shared + sum(len(tokens) for _, tokens in self.questions)


class EncoderTexts:
    """Tokenizes the texts of a cross-encoder."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        first, second = "a", "b"
        framed = tokenizer(first, second, return_token_type_ids=True, verbose=False)
        self._encoder = TextEncoder(tokenizer)
        ids, kinds = framed["input_ids"], framed["token_type_ids"]
        one, other = self.tokens([first, second])
        start = _place(ids, one, 0)
        middle = start + len(one)
        end = _place(ids, other, middle) + len(other)
        cut = end - len(other)
        self._start, self._middle, self._end = ids[:start], ids[middle:cut], ids[end:]
        self._kinds = kinds[:start], kinds[start], kinds[middle:cut], kinds[cut], kinds[end:]

    def tokens(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, without special tokens."""
        return self._encoder.data(list(texts))

    def framed(self, ids: Ids) -> Ids:
        """A single text with the special tokens around it."""
        return [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]

    def segments(self, context: Mapping[str, Ids], target: Collection[int]) -> tuple[Segment, ...]:
        """The context by name as segments of a row, with the tokens of the target marked."""
        segments = []
        for name, ids in context.items():
            room = MAX_CONTEXT - 1
            kept = ids if len(ids) <= room else [*ids[: room - room // 2], *ids[-(room // 2) :]]
            kinds = [int(token in target) for token in kept]
            segments.append(Segment(CONTEXT_AT[name], [*kept, self.tokenizer.sep_token_id], [*kinds, 0]))
        return tuple(segments)

    def pairs(self, question: Ids, target: Ids, room: int) -> Iterator[tuple[Ids, list[int]]]:
        """Ids and token types of a question paired with each window of a target, at most `room` tokens each. Windows
        overlap by `room // 4` tokens."""
        size = room - len(question) - len(self._start) - len(self._middle) - len(self._end)
        before, first, between, second, after = self._kinds
        for part in _overlapping(target, size, room // 4):
            yield (
                [*self._start, *question, *self._middle, *part, *self._end],
                [*before, *[first] * len(question), *between, *[second] * len(part), *after],
            )


def rows_of(texts: EncoderTexts, model: Any, groups: Sequence[ReadGroup]) -> tuple[list[EncoderRow], int]:
    """Create the input rows for targets (the prefixes of groups) and their questions (the tails), in the layout and
    with the context of the model. Questions of more than 128 tokens are skipped. A row has at most `WINDOW` tokens of
    a target, limited by the model's number of positions.

    Returns:
        `tuple[list[EncoderRow], int]`: The rows, in which the place of a question is its number among those of all
        groups; and the number of tokens with each target and its context once, and each question once.
    """
    longest = texts.tokenizer.model_max_length
    limit = min(longest, getattr(model.config, "max_position_embeddings", longest))
    window = min(WINDOW, limit)
    layout, known = layout_of(model), context_of(model.config)
    contexts = [{name: text for name, text in group.context if name in known} for group in groups]
    distinct = list(dict.fromkeys(chain(*(group.tails for group in groups), *(each.values() for each in contexts))))
    ids_of = dict(zip(distinct, texts.tokens(distinct), strict=True))
    targets = texts.tokens([group.prefix for group in groups])
    rows: list[EncoderRow] = []
    floor_tokens = first = 0
    for group, tokens, texts_by_name in zip(groups, targets, contexts, strict=True):
        context = {name: ids for name, text in texts_by_name.items() if (ids := ids_of[text])}
        questions = [(place, ids_of[tail]) for place, tail in enumerate(group.tails, first)]
        fitting = [(place, ids) for place, ids in questions if len(ids) <= MAX_QUESTION]
        first += len(questions)
        floor_tokens += len(tokens) + 2 + sum(len(ids) + 2 for _, ids in fitting)
        floor_tokens += sum(len(segment.tokens) for segment in texts.segments(context, ()))
        if layout == PACKED:
            framed = [(place, texts.framed(ids)) for place, ids in fitting]
            for part in _overlapping(tokens, window - 2, min(OVERLAP, (window - 2) // 2)):
                row = EncoderRow(texts.framed(part), [], context=texts.segments(context, set(part)))
                rows += [row._replace(questions=batch) for batch in _filled(framed, _ROW_TOKENS - row.shared)]
        else:
            room = min(limit, *CONTEXT_AT.values()) if context else limit
            for place, ids in fitting:
                for pair, kinds in texts.pairs(ids, tokens, min(window + len(ids), room)):
                    row = EncoderRow(pair, [(place, [])], kinds)
                    rows.append(_matched(row, texts, context) if layout == MATCHED else row)
    return rows, floor_tokens


def _filled(places: Sequence[tuple[int, list[int]]], room: int) -> Iterator[list[tuple[int, list[int]]]]:
    """Split questions into batches of at most `room` tokens, in order."""
    batch: list[tuple[int, list[int]]] = []
    used = 0
    for place, tokens in places:
        if batch and used + len(tokens) > room:
            yield batch
            batch, used = [], 0
        batch.append((place, tokens))
        used += len(tokens)
    if batch:
        yield batch


def _overlapping(tokens: Ids, size: int, overlap: int) -> Iterator[Ids]:
    """Windows of at most `size` tokens. Each starts with the last `overlap` tokens of the one before it."""
    for start in range(0, max(1, len(tokens) - overlap), max(1, size - overlap)):
        yield tokens[start : start + size]


def _place(ids: Ids, part: Ids, start: int) -> int:
    return next(at for at in range(start, len(ids)) if ids[at : at + len(part)] == part)


def _matched(row: EncoderRow, texts: EncoderTexts, context: Mapping[str, Ids]) -> EncoderRow:
    sides: tuple[set[int], set[int]] = (set(), set())
    for token, kind in zip(row.target, row.kinds, strict=True):
        sides[kind].add(token)
    both = sides[0] & sides[1] - {row.target[0], row.target[-1]}  # without the special tokens around the row
    return row._replace(kinds=[int(token in both) for token in row.target], context=texts.segments(context, sides[1]))


def layout_of(model: Any) -> str | None:
    """The layout of a model's input rows: `PACKED`, `MATCHED`, or None for plain pairs."""
    return getattr(model.config, LAYOUT, None)


def context_of(config: Any) -> tuple[str, ...]:
    """What a model reads besides target and question, by its configuration or the content of its `config.json`:
    "input", "reference", both or nothing."""
    names = config.get(CONTEXT) if isinstance(config, Mapping) else getattr(config, CONTEXT, None)
    return tuple(name for name in CONTEXT_AT if name in (names or ()))


def context_texts(source: Any, names: Collection[str] = tuple(CONTEXT_AT)) -> tuple[tuple[str, str], ...]:
    """`ReadGroup.context` from the attributes `input` and `reference` of `source`. Empty texts are omitted."""
    return tuple((name, text) for name in CONTEXT_AT if name in names and (text := getattr(source, name)))
