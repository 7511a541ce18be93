"""From targets and questions to the rows that a cross-encoder reads.

Targets and questions are data: the string `[SEP]` inside a text is tokenized as text (`encoding.py`). What stands
around them in a row, such as `[CLS]` and `[SEP]`, is the tokenizer's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from checklist_rewards.backends.encoding import Ids, TextEncoder

LAYOUT = "checklist_layout"
PACKED, MATCHED, PAIRS = "packed", "matched", "pairs"
WINDOW = 256
"""Tokens of a target that are read at once, special tokens included."""
MAX_QUESTION = 128
_ROW_TOKENS = 1024


class Row(NamedTuple):
    """What stands in one row: a window of a target, and questions with the place that each answer belongs to."""

    target: list[int]
    questions: list[tuple[Any, list[int]]]
    kinds: list[int] | None = None
    """Of a pair, which stands in `target` with its question, the type of every token: 0 for the first text, 1 for the
    second; where tokens are matched, 1 for those that both have."""

    @property
    def length(self) -> int:
        """Tokens, padding excluded."""
        return len(self.target) + sum(len(tokens) for _, tokens in self.questions)


class EncoderTexts:
    """The texts of a cross-encoder as token ids.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): the model's.
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
        """Ids of each text alone."""
        return self._encoder.data(list(texts))

    def framed(self, ids: Ids) -> Ids:
        """One text as a row of its own."""
        return [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]

    def pairs(self, question: Ids, target: Ids, room: int) -> Iterator[tuple[Ids, list[int]]]:
        """Ids and token types of a question with each window of a target, in rows of at most `room` tokens. Windows
        overlap by a quarter of the room."""
        size = room - len(question) - len(self._start) - len(self._middle) - len(self._end)
        before, first, between, second, after = self._kinds
        for part in _overlapping(target, size, room // 4):
            yield (
                [*self._start, *question, *self._middle, *part, *self._end],
                [*before, *[first] * len(question), *between, *[second] * len(part), *after],
            )


def rows_of(
    texts: EncoderTexts, model: Any, groups: Sequence[tuple[str, Sequence[str]]], *, window: int = WINDOW
) -> tuple[list[Row], int]:
    """The rows to be read for targets and their questions.

    Args:
        texts ([`EncoderTexts`]): of the model's tokenizer.
        model: decides the layout, see the module.
        groups (sequence of `(target, questions)`).
        window (`int`, *optional*, defaults to `256`): tokens of a target per row, at most what the model has positions
            for.

    Returns:
        `(list[Row], int)`: the rows, whose questions' places are (group, question); and the fewest tokens that could
        be read: each target once, each question once. A question of more than 128 tokens is in no row.
    """
    longest = texts.tokenizer.model_max_length
    limit = min(longest, getattr(model.config, "max_position_embeddings", longest))
    window = min(window, limit)
    asked = list(dict.fromkeys(question for _, questions in groups for question in questions))
    known = dict(zip(asked, texts.tokens(asked), strict=True))
    targets = texts.tokens([target for target, _ in groups])
    rows: list[Row] = []
    fewest = 0
    for group, ((_, questions), tokens) in enumerate(zip(groups, targets, strict=True)):
        fitting = [index for index, question in enumerate(questions) if len(known[question]) <= MAX_QUESTION]
        fewest += len(tokens) + 2 + sum(len(known[questions[index]]) + 2 for index in fitting)
        layout = layout_of(model)
        if layout == PACKED:
            places = [((group, index), texts.framed(known[questions[index]])) for index in fitting]
            for part in _windows(tokens, window - 2):
                framed = texts.framed(part)
                rows += [Row(framed, some) for some in _filled(places, _ROW_TOKENS - len(framed))]
        else:
            for index in fitting:
                question = known[questions[index]]
                room = min(window + len(question), limit)
                pairs = [Row(ids, [((group, index), [])], kinds) for ids, kinds in texts.pairs(question, tokens, room)]
                rows += map(_matched, pairs) if layout == MATCHED else pairs
    return rows, fewest


def _windows(tokens: list[int], room: int) -> Iterator[list[int]]:
    """Parts of at most `room` tokens that overlap by half, so what is no longer than that is whole in one of them."""
    yield tokens[:room]
    for start in range(room // 2, len(tokens) - room // 2, room // 2):
        yield tokens[start : start + room]


def _filled(places: Sequence[tuple[Any, list[int]]], room: int) -> Iterator[list[tuple[Any, list[int]]]]:
    """Questions by the rowful, in order."""
    some: list[tuple[Any, list[int]]] = []
    used = 0
    for place, tokens in places:
        if some and used + len(tokens) > room:
            yield some
            some, used = [], 0
        some.append((place, tokens))
        used += len(tokens)
    if some:
        yield some


def _overlapping(tokens: Ids, size: int, overlap: int) -> Iterator[Ids]:
    """Parts of at most `size` tokens, each of which begins with the last `overlap` of the one before it."""
    for start in range(0, max(1, len(tokens) - overlap), max(1, size - overlap)):
        yield tokens[start : start + size]


def _place(ids: Ids, part: Ids, start: int) -> int:
    return next(at for at in range(start, len(ids)) if ids[at : at + len(part)] == part)


def _matched(row: Row) -> Row:
    assert row.kinds is not None
    sides: tuple[set[int], set[int]] = (set(), set())
    for token, kind in zip(row.target, row.kinds, strict=True):
        sides[kind].add(token)
    shared = sides[0] & sides[1] - {row.target[0], row.target[-1]}  # but the tokens that frame a row
    return row._replace(kinds=[int(token in shared) for token in row.target])


def layout_of(model: Any) -> str:
    """How a model reads: packed rows, matched pairs or pairs."""
    return getattr(model.config, LAYOUT, PAIRS)
