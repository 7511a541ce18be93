"""Converts targets and questions to input rows for a cross-encoder.

Targets and questions are data: the string `[SEP]` inside a text is tokenized as text (`encoding.py`). The special
tokens around them in a row, such as `[CLS]` and `[SEP]`, come from the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from checklist_rewards.backends.encoding import Ids, TextEncoder

LAYOUT = "checklist_layout"
PACKED, MATCHED, PAIRS = "packed", "matched", "pairs"
WINDOW = 256
"""Maximum number of tokens of a target in one row, including special tokens."""
MAX_QUESTION = 128
_ROW_TOKENS = 1024


class EncoderRow(NamedTuple):
    """One input row: a window of a target, and its questions with the places of their answers."""

    target: list[int]
    questions: list[tuple[Any, list[int]]]
    kinds: list[int] | None = None
    """Token types of a pair, whose `target` also contains the question: 0 for the first text, 1 for the second. In a
    matched pair, 1 for tokens that occur in both texts."""

    @property
    def length(self) -> int:
        """Number of tokens without padding."""
        return len(self.target) + sum(len(tokens) for _, tokens in self.questions)


class EncoderTexts:
    """Tokenizes the texts of a cross-encoder.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer of the model.
    """

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


def rows_of(
    texts: EncoderTexts, model: Any, groups: Sequence[tuple[str, Sequence[str]]], *, window: int = WINDOW
) -> tuple[list[EncoderRow], int]:
    """Create the input rows for targets and their questions. Questions of more than 128 tokens are skipped.

    Args:
        texts ([`EncoderTexts`]): Tokenizes the texts for the model.
        model: The cross-encoder; determines the layout of the rows.
        groups (sequence of `(target, questions)`): The texts.
        window (`int`, *optional*, defaults to `256`): Maximum number of tokens of a target per row. Limited by the
            model's number of positions.

    Returns:
        `tuple[list[EncoderRow], int]`: The rows, in which the place of a question is (index of the group, index of the
        question); and the minimum number of tokens to compute: each target once and each question once.
    """
    longest = texts.tokenizer.model_max_length
    limit = min(longest, getattr(model.config, "max_position_embeddings", longest))
    window = min(window, limit)
    distinct = list(dict.fromkeys(question for _, questions in groups for question in questions))
    question_ids = dict(zip(distinct, texts.tokens(distinct), strict=True))
    targets = texts.tokens([target for target, _ in groups])
    rows: list[EncoderRow] = []
    floor_tokens = 0
    for group, ((_, questions), tokens) in enumerate(zip(groups, targets, strict=True)):
        fitting = [index for index, question in enumerate(questions) if len(question_ids[question]) <= MAX_QUESTION]
        floor_tokens += len(tokens) + 2 + sum(len(question_ids[questions[index]]) + 2 for index in fitting)
        layout = layout_of(model)
        if layout == PACKED:
            places = [((group, index), texts.framed(question_ids[questions[index]])) for index in fitting]
            for part in _windows(tokens, window - 2):
                framed = texts.framed(part)
                rows += [EncoderRow(framed, batch) for batch in _filled(places, _ROW_TOKENS - len(framed))]
        else:
            for index in fitting:
                question = question_ids[questions[index]]
                room = min(window + len(question), limit)
                pairs = [
                    EncoderRow(ids, [((group, index), [])], kinds)
                    for ids, kinds in texts.pairs(question, tokens, room)
                ]
                rows += map(_matched, pairs) if layout == MATCHED else pairs
    return rows, floor_tokens


def _windows(tokens: list[int], room: int) -> Iterator[list[int]]:
    """Windows of at most `room` tokens that overlap by half, so every passage of up to half a window is complete in
    one of them."""
    yield tokens[:room]
    for start in range(room // 2, len(tokens) - room // 2, room // 2):
        yield tokens[start : start + room]


def _filled(places: Sequence[tuple[Any, list[int]]], room: int) -> Iterator[list[tuple[Any, list[int]]]]:
    """Split questions into batches of at most `room` tokens, in order."""
    batch: list[tuple[Any, list[int]]] = []
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


def _matched(row: EncoderRow) -> EncoderRow:
    assert row.kinds is not None
    sides: tuple[set[int], set[int]] = (set(), set())
    for token, kind in zip(row.target, row.kinds, strict=True):
        sides[kind].add(token)
    shared = sides[0] & sides[1] - {row.target[0], row.target[-1]}  # without the special tokens around the row
    return row._replace(kinds=[int(token in shared) for token in row.target])


def layout_of(model: Any) -> str:
    """The layout of a model's input rows: "packed", "matched" or "pairs"."""
    return getattr(model.config, LAYOUT, PAIRS)
