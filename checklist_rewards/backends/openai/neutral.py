"""Text under judgement without control strings, for servers that tokenize chat messages themselves.

Such a server parses `<|im_end|>`, `[INST]` or `<think>` in the text of a message as the control token of that name, so
a policy could end the judge's user message and write the judge's answer: a reward hack. (Engines that are sent token
ids are not affected: `backends/tokens.py` never forms a control token from text.) [`neutral`] puts a zero-width space
behind the first character of every such string. A reader sees the same text; the tokenizer sees no control token.

The control strings of the common chat formats are known: everything written `<|name|>` or `<｜name｜>`, names with an
underscore in angle brackets (`<start_of_turn>`), the short ones (`<s>`, `</s>`, `<bos>`, `<think>`), and the bracketed
ones of Llama 2, Mistral, GLM, EXAONE and MiniMax. Where the model's tokenizer can be loaded, its own special tokens
are added.
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
# Only the first character is matched, so strings that overlap are all found.
_CONTROLS = {
    "<": re.compile(rf"<(?={_ANGLE})"),
    "[": re.compile(rf"\[(?i:(?=/?(?:{_BRACKETED})\]|\|\w{{1,32}}\|\]|e~\[))"),
    "]": re.compile(r"\](?=~!?b[\[\]])"),
}


def neutral(text: str, also: Iterable[str] = ()) -> str:
    """`text` with a zero-width space behind the first character of every control string.

    Args:
        text (`str`): any text.
        also (iterable of `str`, *optional*): further control strings, such as a tokenizer's special tokens.

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
