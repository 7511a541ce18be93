"""From text to token ids, where part of the text is data.

A tokenizer turns `<|im_end|>` into a control token wherever it stands, so a text under judgement could end its own
turn and speak for the model. Here the strings of control tokens inside data are cut after their first character and
the pieces are tokenized apart: the model sees the text, and no control token is formed. All other text is tokenized in
one piece, as the tokenizer itself would do it.

Control tokens are those that the tokenizer calls special, those that the chat template writes, and those in the form
of one (`<|...|>`): fine-tunes often add `<|im_start|>`, `<think>` or `<tool_call>` as ordinary tokens.

Nothing here changes the tokenizer, so threads may share it. Tokenizers without a Rust backend take one call at a time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

_SHAPE = re.compile(r"<[|｜].+[|｜]>")
# Texts after which a tokenizer goes on as in the middle of a line; one that merges with the next character is no use.
_BEFORE = ("\n", ".", "a", "0")

Ids = list[int]
Span = tuple[int, int]


class TextEncoder:
    """Tokenizes texts whose data may hold the strings of control tokens.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): as transformers loads it. Padding and truncation are switched off.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._rust = getattr(tokenizer, "backend_tokenizer", None)
        if self._rust is not None:
            self._rust.no_padding()
            self._rust.no_truncation()
        self._lock = threading.Lock()
        self.control = _control_strings(tokenizer)
        """The strings that are not tokenized as one inside data."""
        self._lengths = sorted({len(string) for string in self.control})
        first = "".join(re.escape(character) for character in sorted({string[0] for string in self.control}))
        self._candidates = re.compile(f"[{first}]") if first else None

    def whole(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text as the tokenizer gives them, control tokens included; nothing is added at the ends."""
        texts = [encodable(text) for text in texts]
        if self._rust is not None:
            return [encoding.ids for encoding in self._rust.encode_batch_fast(texts, add_special_tokens=False)]
        with self._lock:
            return [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def data(self, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None = None) -> list[Ids]:
        """Ids of each text, without control tokens inside its data.

        Args:
            texts (sequence of `str`).
            spans (sequence of sequences of `(int, int)`, *optional*): where the data of each text begins and ends, in
                order; defaults to all of each text.
        """
        if spans is None:
            spans = [[(0, len(text))] for text in texts]
        cuts = [self._cuts(text, some) for text, some in zip(texts, spans, strict=True)]
        ids = self.whole([text[: at[0]] if at else text for text, at in zip(texts, cuts, strict=True)])
        for first, text, at in zip(ids, texts, cuts, strict=True):
            for start, end in zip(at, [*at[1:], len(text)], strict=False):
                first += self.after(text[start:end])
        return ids

    def after(self, text: str) -> Ids:
        """Ids of a text that goes on in the middle of a line, where a tokenizer puts no space of its own before it."""
        for before in _BEFORE:
            context, ids = self.whole([before, before + text])
            if ids[: len(context)] == context:
                return ids[len(context) :]
        return self.whole([text])[0]

    def spellings(self) -> dict[str, tuple[int, ...]]:
        """Every token of the vocabulary by what it reads as, in lower case and without the space around it."""
        ids = sorted(set(self._tokenizer.get_vocab().values()))
        if self._rust is not None:
            texts = self._rust.decode_batch([[token] for token in ids], skip_special_tokens=False)
        else:
            texts = [self._tokenizer.decode([token]) for token in ids]
        found: dict[str, list[int]] = {}
        for token, text in zip(ids, texts, strict=True):
            found.setdefault(text.strip().lower(), []).append(token)
        return {text: tuple(tokens) for text, tokens in found.items()}

    def _cuts(self, text: str, spans: Sequence[Span]) -> list[int]:
        """Places inside every control string of the data, in order."""
        if self._candidates is None:
            return []
        return [
            match.start() + 1
            for start, end in spans
            for match in self._candidates.finditer(text, start, end)
            if any(text[match.start() : min(match.start() + n, end)] in self.control for n in self._lengths)
        ]


def encodable(text: str) -> str:
    """Half a surrogate pair, which a text cut inside an emoji has and no tokenizer takes, becomes U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _control_strings(tokenizer: Any) -> frozenset[str]:
    template = getattr(tokenizer, "chat_template", None)
    written = template if isinstance(template, str) else "".join((template or {}).values())
    added = getattr(tokenizer, "added_tokens_decoder", None)
    names = {str(token) for token in tokenizer.all_special_tokens}
    for token in added.values() if isinstance(added, dict) else ():
        if token.special or _SHAPE.fullmatch(token.content) or token.content in written:
            names.add(token.content)
    # What is one character or white space is text, whatever the tokenizer calls it.
    return frozenset(name for name in names if len(name.strip()) > 1)
