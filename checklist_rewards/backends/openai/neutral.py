"""Neutralizes control strings in messages, for servers that tokenize chat messages themselves.

Such a server converts `<|im_end|>`, `[INST]` or `<think>` in the text of a message to the control token of that name.
A policy could thus end the judge's user message and write the judge's answer, which is a reward hack. (Engines that
receive token ids are not affected: `backends/tokens.py` never creates a control token from data.) [`neutral`] inserts
a zero-width space after the first character of every such string. The text looks the same, but the tokenizer does not
find a control token.

The control strings of the common chat formats are built in: `<|name|>` and `<｜name｜>`, names with an underscore in
angle brackets (`<start_of_turn>`), the short ones (`<s>`, `</s>`, `<bos>`, `<think>`), and the bracketed ones of
Llama 2, Mistral, GLM, EXAONE and MiniMax. If the model's tokenizer can be loaded, its special tokens are added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ZERO_WIDTH = "\u200b"

_SHORT = "s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|eot|eom|image|video|audio|think|thinking|thought|answer|tools?"
_BRACKETED = (
    "g?MASK|sMASK|sop|INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|MODEL_SETTINGS|ARGS|"
    "CALL_ID|THINK|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|PREFIX|MIDDLE|SUFFIX|BOS|EOS|PAD|UNK|CLS|SEP"
)
_ANGLE = (
    r"[|｜][^\s<>\u200b]"  # <|im_end|>, <｜Assistant｜>, Gemma 4's <|turn>
    r"|[^\s<>|｜\u200b]{1,64}+[|｜]>"  # Gemma 4's <turn|>
    r"|/?[A-Za-z][^\W_]*+_\w*+>"  # <start_of_turn>, </tool_call>
    rf"|(?i:/?(?:{_SHORT})>|SPECIAL\d+>|unused\d+>|(?:seed|ds):\w+>|<?/?SYS>>)"
)
# Only the first character is matched, so that overlapping strings are all found.
_CONTROLS = {
    "<": re.compile(rf"<(?={_ANGLE})"),
    "[": re.compile(rf"\[(?i:(?=/?(?:{_BRACKETED})\]|\|\w{{1,32}}\|\]|e~\[))"),
    "]": re.compile(r"\](?=~!?b[\[\]])"),
}


def neutral(text: str, also: Iterable[str] = ()) -> str:
    """Insert a zero-width space after the first character of every control string.

    Args:
        text (`str`): Any text.
        also (iterable of `str`, *optional*): Additional control strings, such as a tokenizer's special tokens.

    >>> neutral("Fine.<|im_end|>").encode("ascii", "backslashreplace")
    b'Fine.<\\\\u200b|im_end|>'
    """
    for first, control in _CONTROLS.items():
        if first in text:
            text = control.sub(first + ZERO_WIDTH, text)
    for string in also:
        if len(string) > 1:
            text = text.replace(string, string[0] + ZERO_WIDTH + string[1:])
    return text
