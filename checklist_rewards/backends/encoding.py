"""Tokenizes text that contains untrusted data.

A tokenizer converts `<|im_end|>` to a control token wherever it occurs, so a text to be judged could end its turn and
continue as the model. Here, strings of control tokens inside data are split after their first character, and the parts
are tokenized separately: the model sees the text, but no control token. All other text is tokenized in one call, as
the tokenizer itself would do.

Control tokens are the tokenizer's special tokens, added tokens that the chat template uses, and added tokens of the
form `<|...|>`. Fine-tuned models often have `<|im_start|>`, `<think>` or `<tool_call>` as ordinary added tokens.

The tokenizer is not modified, so it can be shared between threads. Calls of tokenizers without a Rust backend are
serialized.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

_SHAPE = re.compile(r"<[|｜].+[|｜]>")
# Texts after which a tokenizer continues as in the middle of a line. The first that does not merge with the next
# character is used.
_BEFORE = ("\n", ".", "a", "0")

Ids = list[int]
Span = tuple[int, int]


class TextEncoder:
    """Tokenizes texts whose data may contain strings of control tokens.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer. Padding and truncation are disabled.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._rust = getattr(tokenizer, "backend_tokenizer", None)
        if self._rust is not None:
            self._rust.no_padding()
            self._rust.no_truncation()
        self._lock = threading.Lock()
        self.control = _control_strings(tokenizer)
        """The strings that are split inside data."""
        self._lengths = sorted({len(string) for string in self.control})
        first = "".join(re.escape(character) for character in sorted({string[0] for string in self.control}))
        self._candidates = re.compile(f"[{first}]") if first else None

    def whole(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text as returned by the tokenizer, including control tokens, without added special tokens."""
        texts = [encodable(text) for text in texts]
        if self._rust is not None:
            return [encoding.ids for encoding in self._rust.encode_batch_fast(texts, add_special_tokens=False)]
        with self._lock:
            return [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def data(self, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None = None) -> list[Ids]:
        """Ids of each text, without control tokens inside its data.

        Args:
            texts (sequence of `str`): The texts.
            spans (sequence of sequences of `(int, int)`, *optional*): Start and end of the data in each text, in
                order. Defaults to the whole of each text.
        """
        if spans is None:
            spans = [[(0, len(text))] for text in texts]
        cuts = [self._cuts(text, data) for text, data in zip(texts, spans, strict=True)]
        ids = self.whole([text[: at[0]] if at else text for text, at in zip(texts, cuts, strict=True)])
        for first, text, at in zip(ids, texts, cuts, strict=True):
            for start, end in zip(at, [*at[1:], len(text)], strict=False):
                first += self.after(text[start:end])
        return ids

    def after(self, text: str) -> Ids:
        """Ids of a text in the middle of a line, where the tokenizer does not add a space before it."""
        for before in _BEFORE:
            context, ids = self.whole([before, before + text])
            if ids[: len(context)] == context:
                return ids[len(context) :]
        return self.whole([text])[0]

    def spellings(self) -> dict[str, tuple[int, ...]]:
        """All tokens of the vocabulary by their text, in lower case and without surrounding white space."""
        ids = sorted(set(self._tokenizer.get_vocab().values()))
        if self._rust is not None:
            texts = self._rust.decode_batch([[token] for token in ids], skip_special_tokens=False)
        else:
            texts = [self._tokenizer.decode([token]) for token in ids]
        spellings: dict[str, list[int]] = {}
        for token, text in zip(ids, texts, strict=True):
            spellings.setdefault(text.strip().lower(), []).append(token)
        return {text: tuple(tokens) for text, tokens in spellings.items()}

    def _cuts(self, text: str, spans: Sequence[Span]) -> list[int]:
        """Positions after the first character of every control string in the data, in order."""
        if self._candidates is None:
            return []
        return [
            match.start() + 1
            for start, end in spans
            for match in self._candidates.finditer(text, start, end)
            if any(text[match.start() : min(match.start() + n, end)] in self.control for n in self._lengths)
        ]


def encodable(text: str) -> str:
    """Replace unpaired surrogates with U+FFFD. They occur in texts cut inside an emoji, and no tokenizer accepts
    them."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _control_strings(tokenizer: Any) -> frozenset[str]:
    template = getattr(tokenizer, "chat_template", None)
    source = template if isinstance(template, str) else "".join((template or {}).values())
    added = getattr(tokenizer, "added_tokens_decoder", None)
    names = {str(token) for token in tokenizer.all_special_tokens}
    for token in added.values() if isinstance(added, dict) else ():
        if token.special or _SHAPE.fullmatch(token.content) or token.content in source:
            names.add(token.content)
    # Single characters and white space are text, even if the tokenizer declares them special.
    return frozenset(name for name in names if len(name.strip()) > 1)
