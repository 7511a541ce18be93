"""The markers with which models set off thoughts, answers and tool calls, and how a turn is split at them.

[`SECTIONS`] lists the markers of all known families that do not occur in ordinary text. [`PLAIN`] lists those that
do, such as "Here is my response:"; they count only for a policy whose tokenizer shows them. A [`Grammar`]
splits one turn of a model into its [`Parsed`] parts; the grammar of a tokenizer may have further sections, such as
those that its `response_template` declares.

A marker opens a section only where a model puts one: at the start of a turn, after another section, or after the end
of a sentence or line. In the middle of a sentence it is a mention, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

TargetState = Literal["answered", "cut", "cut_in_thought", "unfinished", "empty"]
"""What a policy made of its turn; see [`Target`]."""
NO_ANSWER_STATES = frozenset({"cut_in_thought", "unfinished", "empty"})
"""The states without an answer that could be judged."""
THINK, END_THINK = "<think>", "</think>"
"""The tags around a thought in the texts of this package."""


class Section(NamedTuple):
    """A part of a turn between two markers."""

    kind: Literal["thought", "answer", "call"]
    open: str
    """Regular expression. Its named group `tag` is repeated in the closing marker."""
    close: str
    """Regular expression; `{tag}` stands for the text of that group."""
    implied: bool = True
    """Whether the closing marker alone, without an opening one, shows that everything before it is a thought."""
    tools: bool = False
    """Whether the marker is text unless the policy has tools."""
    shown: tuple[str, ...] = ()
    """Texts one of which the chat template or the tokens of a policy must contain; otherwise the marker is text."""
    rest: str = ""
    """Regular expression for what may remain of this section at the end of an answer."""


_TAGS = r"think(?::[^\s<>]+)?|(?:seed:|mm:|longcat_)think|ifm\|think(?:_fast(?:er)?)?"
_HARMONY_END = r"<\|(?:end|return|call)\|>|(?=<\|start\|>)|(?=<\|channel\|>final)"
_HARMONY_START = r"(?:<\|start\|>assistant\s*)?"
_STARTS = r"[<\[\]◁]|to=(?=\w)"
"""How the markers of [`SECTIONS`] start."""
_MUSE_END = r"<\|eo[mt]\|>|(?=<\|start\|>)"
SECTIONS = (
    # Qwen, DeepSeek, GLM, Kimi K2, MiniMax, SmolLM, Phi, OLMo, Nemotron; Seed-OSS; LongCat; K2 Horizon; Hunyuan
    Section("thought", rf"<(?P<tag>{_TAGS})>", r"</{tag}>"),
    Section("thought", r"\[THINK\]", r"\[/THINK\]"),  # Magistral, Ministral
    Section("thought", "◁think▷", "◁/think▷"),  # Kimi-VL
    Section("thought", r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    Section("answer", r"<\|START_(?P<tag>RESPONSE|TEXT)\|>", r"<\|END_{tag}\|>"),
    Section("thought", r"<\|channel>(?:thought\b)?\n?", r"<channel\|>"),  # Gemma 4
    # gpt-oss: every message names its channel, and a call also its recipient.
    Section("call", rf"{_HARMONY_START}to=[\w.]+\s*<\|channel\|>[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>",
             _HARMONY_END),
    Section("call", rf"{_HARMONY_START}<\|channel\|>\w+\s+to=[^<]*(?:<\|constrain\|>[^<]*)?(?:<\|message\|>|\Z)",
             _HARMONY_END),
    Section("answer", rf"{_HARMONY_START}<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?(?:<\|message\|>|\Z)",
             r"<\|(?:end|return|call)\|>|(?=<\|start\|>)"),
    Section("thought", rf"{_HARMONY_START}<\|channel\|>[^<]*(?:<\|message\|>|\Z)", _HARMONY_END, implied=False),
    # Muse Glimmer: every message names its recipient.
    Section("thought", rf"{_HARMONY_START}to=self<\|message\|>", _MUSE_END, implied=False),
    Section("answer", rf"{_HARMONY_START}to=user<\|message\|>", _MUSE_END),
    Section("call", rf"{_HARMONY_START}to=(?!self<)[\w.]+<\|message\|>", _MUSE_END),
    Section("thought", r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),  # Kimi K3
    Section("answer", r"<\|open\|>response<\|sep\|>", r"<\|close\|>(?:response|message)<\|sep\|>"),
    Section("call", r"<\|open\|>tools<\|sep\|>", r"<\|close\|>tools<\|sep\|>"),
    Section("thought", r"(?:<\|message_model\|>)?<\|content_thinking\|>", r"<\|end_message\|>", implied=False),
    Section("answer", r"(?:<\|message_model\|>)?<\|content_text\|>",  # Inkling
             r"<\|end_message\|>|<\|content_model_end_sampling\|>"),
    Section("call", r"(?:<\|message_model\|>)?<\|content_invoke_tool_\w+\|>", r"<\|end_message\|>"),
    Section("thought", r"<\|plamo:begin_think:plamo\|>", r"<\|plamo:end_think:plamo\|>"),
    Section("thought", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    Section("thought", r"<\|think\|>", r"<\|end\|>", implied=False),  # Solar Open
    Section("answer", r"(?:<\|begin\|>assistant)?<\|content\|>", r"<\|(?:flush|end)\|>"),
    Section("call", r"(?:\]<\]minimax\[>\[)?<(?P<tag>(?:seed:|minimax:|longcat_|ifm\|)?tool_calls?(?::[^\s<>]+)?"
             r"|(?:atem:)?function_calls|｜DSML｜(?:function|tool)_?calls)>",
             r"(?:\]<\]minimax\[>\[)?</{tag}>", tools=True),
    Section("call", r"<\|tool_call>", r"<tool_call\|>", tools=True),  # Gemma 4
    Section("call", r"<\|tool_calls?(?P<tag>(?:_section)?)_(?:start|begin)\|>",
             r"<\|tool_calls?{tag}_end\|>", tools=True),
    Section("call", r"<｜tool▁(?P<tag>calls?)▁begin｜>", r"<｜tool▁{tag}▁end｜>", tools=True),  # DeepSeek
    Section("call", r"<\|plamo:begin_tool_requests:plamo\|>", r"<\|plamo:end_tool_requests:plamo\|>", tools=True),
    Section("call", r"<\|START_ACTION\|>", r"<\|END_ACTION\|>", tools=True),  # Cohere
    Section("call", r"\[TOOL_CALLS\]|<\|python_tag\|>|<\|action_start\|>|<function=", r"\Z", tools=True),
)  # fmt: skip
"""The markers of thoughts, answers and tool calls that do not occur in ordinary text. If several match at one place,
the first one counts."""
PLAIN = (
    Section("thought", r"(?:<\|im_start\|>assistant)?/think\n", r"<\|im_end\|>\s*<\|im_start\|>assistant\n?",
            shown=("assistant/think",)),  # HyperCLOVA X
    Section("thought", r"Here(?: is|'s) my thought process:", r"Here(?: is|'s) my response:",
            shown=("Here is my thought process:",)),  # Granite 3.2
    Section("thought", r"Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]",
            shown=("[BEGIN FINAL RESPONSE]",), rest=r"\[END FINAL RESPONSE\]"),  # Apriel
    Section("answer", r"<response>\n?", r"\n?</response>", shown=("<response>",)),  # Granite 3.3, Ernie
    Section("answer", r"<answer>\n?", r"\n?</answer>", shown=("<answer>", "<|extra_0|>")),  # Hunyuan A13B
)  # fmt: skip
"""The markers that also occur in ordinary text. They count only for a policy that shows them."""

OPENING_TAG = re.compile(
    r"(?:<\|?|\[|◁)(?![\w:.|]*(?<![a-z])end(?![a-z]))[\w:.|]*(?:think|thought|reason)[\w:.|]*[>\]▷]", re.IGNORECASE
)
"""A tag that opens a thought, recognized by its name: `<think>`, `<seed:think>`, `[THINK]`, `<|START_THINKING|>`."""

PIECES = frozenset(
    """<|channel|> <|message|> <|constrain|> <|channel> <channel|> <|open|> <|close|> <|sep|> <|content_thinking|>
    <|content_text|> <|message_model|> <|eom|> <|plamo:begin_ <|plamo:end_ :plamo|> <|content|> <|flush|>""".split()
)
"""Tokens that are part of a marker of [`SECTIONS`]."""
LIKE_THOUGHTS = re.compile(r"think|thought|reason|ponder|reflect|deliberat|rationale|scratchpad|(?<![a-z])cot", re.I)
"""What the name of a token for thoughts looks like."""

MARKERS = re.compile(r"<+[^<>\s]+>+|\[[^\[\]\s]+(?: [^\[\]\s]+)*\]|◁[^▷\s]+▷")

CONTROL = (
    r"<[|｜][^<>\s]{1,40}[|｜]>|<\|?(?:turn\|?|(?:start|end)_of_\w+|eos|bos|s|/s|seed:[be]os)>|\]~!?b[\[\]]|\[e~\["
    r"|<BOS_TOKEN>"
)
"""Tokens with which chat templates structure a conversation."""
_RESIDUE = r"<\|start\|>(?:assistant)?(?:\s*to=[\w.]*)?|<\|close\|>(?:response|message)<\|sep\|>"
"""Markers that may remain at the end of an answer: of the next message, or of an answer that the prompt has opened."""
_ENDS = r"(?!end_of_box)[^<>\s]{0,30}(?<![A-Za-z])(?:end|END|eo[dmst]|EO[DMST])[^<>\s]{0,30}"
END_TOKEN = re.compile(
    rf"(?:</s>\s*<s>|</s>|[<\[][|｜](?:{_ENDS}|return|calls?|flush|user|observation|pad(?:ding)?|plamo:tag)[|｜][>\]]"
    r"|<\|?endoftext\|?>|<(?:seed:)?eos>|<EOS_TOKEN>|<end_of_\w+>|<turn\|>|\[e~\[|\[EOS\]|<pad>)\Z"
)
"""A token that ends the turns of a known family, or that looks like one: `<|im_end|>`, `</s>`."""
CONTROL_AT_END = re.compile(rf"(?=[<\[\]])(?:{END_TOKEN.pattern}|(?!<s>)(?:{CONTROL})\Z)")
"""An end token, or any other control token, at the end of a text that was decoded with its special tokens. All begin
with a bracket, which is looked for first: that is three times as fast."""
STRIKE = re.compile(r"</s>|<s(?:\s[^<>]*)?>")
"""The HTML tag whose closing form is also an end token."""
BEGIN = re.compile(r"\s*(?:<[|｜](?:begin|start)[_▁]?of[_▁]?(?:text|sentence)[|｜]>|<bos>|<BOS_TOKEN>)")
"""Tokens at the beginning of a document."""
MENTIONED = re.compile(r" [a-z]|[,.;:]")
"""What follows a marker in the middle of a sentence."""
LEADING = re.compile(rf"(?:\s|{CONTROL}|\[gMASK\]|<sop>)*\Z")
_ENDS_OF_SENTENCES = ".!?…。！？>]▷"
_SAID = re.compile(r"[\w\n][^<\[◁]*?[\s.!?…。！？]")
"""A sentence at the start of a thought, unlike the "和" of "写在<think>和</think>之间"."""
_QUOTE = re.compile(
    r"(?:(?<![\w.!?…。！？)\]}*])(?:[rbfu]{0,2}[\"']|\*{1,3})|(?<![A-Za-z0-9_.)\]}\"'`])`|[“‘«「『(（])\Z"
)
"""What opens a quotation right before a marker. A quotation mark after a word or a sentence closes one, and so does a
backtick after code."""
_QUOTES = dict(zip("`\"'*“‘«「『(（", "`\"'*”’»」』)）", strict=True))
DROPPED_CHANNELS = re.compile(
    r"\A\s*(?:(?:analysis|commentary)(?P<thought>(?=[A-Z\"'(\d]).*?|.*?(?=assistantfinal))(?:assistantfinal|\Z)"
    r"|final(?!-[a-z]|_|[.,:;!?)](?:\s|\Z)))(?=[^a-z\s]|\Z)",
    re.S,
)
"""gpt-oss without its special tokens: "analysisPlan.assistantfinalThe answer", or "finalThe answer"."""
WHOLE_CHANNELS = re.compile(
    r"\A\s*(?:analysis|commentary)(?=\S)(?P<thought>.*?)assistantfinal(?![a-z\s.,:;!?)']|\Z)", re.S
)
"""Both channels of [`DROPPED_CHANNELS`], which do not occur in ordinary text."""


class Parsed(NamedTuple):
    """The parts of one turn."""

    answer: str
    thought: str | None = None
    open_thought: bool = False
    """Whether a thought is never closed."""
    called: bool = False
    """Whether the turn contains a tool call."""
    marked: bool = False
    """Whether any section was found, so that the answer differs from the text."""

    @property
    def state(self) -> TargetState:
        """The state of the turn, if it did not reach its length limit."""
        if self.called:
            return "unfinished"
        if self.answer.strip():
            return "cut" if self.open_thought else "answered"
        return "cut_in_thought" if self.open_thought and self.thought else "empty"


class Grammar:
    """The sections of which a turn may consist.

    Args:
        sections (sequence of `Section`): Where several match at one place, the first one counts.
    """

    def __init__(self, sections: Sequence[Section]):
        self.sections = tuple((section, re.compile(section.open, re.S)) for section in sections)
        self.thoughts = thoughts = [section for section in sections if section.kind == "thought"]
        self.thought_opening = _any_of([section.open for section in thoughts])
        self.closing = _any_of([s.close.replace("{tag}", f"(?:{_TAGS})") for s in thoughts if s.implied])
        self._candidates = _any_of([_STARTS, *(s.open for s in sections if s not in SECTIONS)])
        self._residue = re.compile(
            rf"(?:{'|'.join([_RESIDUE, *(s.rest for s in sections if s.rest)])})"
            r"(?:\s|<\|(?:end_of_msg|end)\|>|<\|close\|>message<\|sep\|>)*\Z"
        )

    def parse(self, text: str, opened: Section | bool | None = None, *, calls: bool = False) -> Parsed:
        """Split one turn of a model, with its markers, into its parts. `opened` says whether the prompt has opened the
        thought, and by which section; if it is None (not known), a closing marker without an opening one shows it.
        `calls` says whether the policy has tools."""
        begun = self._begun(text, opened)
        outside: list[str] = []
        answers: list[str] = []
        thoughts: list[str] = []
        called = open_thought = False
        position = 0
        if begun is not None:
            end, position = begun
            thoughts.append(text[:end])
            open_thought = position < 0
        while position >= 0:
            found = self._next(text, position, calls)
            if found is None:
                outside.append(text[position:])
                break
            section, opening = found
            if (between := text[position : opening.start()]).strip():
                outside.append(between)
            pattern = _closing(section, opening)
            closings = pattern.finditer(text, opening.end())
            if section.kind != "thought" or not section.implied:
                closing = next(closings, None)
            elif closing := next((found for found in closings if not _is_quoted(found)), None):
                closing = self._last_closing(text, closing, pattern)
            body = text[opening.end() : closing.start() if closing else len(text)]
            if section.kind == "thought":
                thoughts.append(body)
                open_thought = closing is None
            elif section.kind == "answer":
                answers.append(body)
            called |= section.kind == "call"
            position = _after_space(text, closing.end()) if closing else -1
        if not (thoughts or answers or called):
            answer = self._residue.sub("", text) if "|>" in text or "]" in text else text
            return Parsed(answer, marked=answer != text)
        if open_thought and calls:
            called |= self._next(thoughts[-1], 0, calls, "call") is not None
        answer = self._residue.sub("", "".join(answers or outside))
        return Parsed(answer, "\n".join(thoughts).strip() if thoughts else None, open_thought, called, True)

    def opened_by(self, prompt: str) -> Section | None:
        """The section of a thought that a prompt opens at its end, with the closing marker of this one."""
        tail = prompt[-200:].rstrip()
        for section, pattern in self.sections:
            if section.kind == "thought":
                for opening in pattern.finditer(tail):
                    if opening.end() == len(tail):
                        return section._replace(close=_closing(section, opening).pattern)
        return None

    def starts(self, marker: str) -> bool:
        """Whether a marker opens a section, or is the beginning of such a marker."""
        return any(pattern.match(marker) for _, pattern in self.sections)

    def _begun(self, text: str, opened: Section | bool | None) -> tuple[int, int] | None:
        """Where a thought ends with which the text begins, and where the rest starts (-1: nowhere). None if the text
        does not begin inside a thought."""
        if not self.thoughts or self.thought_opening.match(text, len(text) - len(text.lstrip())):
            return None
        pattern = re.compile(opened.close, re.S) if isinstance(opened, Section) else self.closing
        first, last = len(text) - len(text.lstrip()), len(text.rstrip())
        for closing in pattern.finditer(text):
            start, end = closing.span()
            alone = start <= first or text[start - 1] == "\n" or end >= last or text[end] == "\n"
            if _is_quoted(closing) or (not opened and (_is_mention(closing) or (opened is False and not alone))):
                continue
            if not opened and self.thought_opening.search(text[:start]):
                return None  # the thought that this closes is found by its opening marker
            if not isinstance(opened, Section) or opened.implied:
                closing = self._last_closing(text, closing, pattern)
            return closing.start(), _after_space(text, closing.end())
        return (len(text), -1) if opened else None

    def _last_closing(self, text: str, first: re.Match[str], pattern: re.Pattern[str]) -> re.Match[str]:
        """The marker at which a thought ends. A policy may close a thought and go on thinking: then it ends at the
        last closing marker before another thought, unless that is a mention."""
        last = first
        fences, position = text.count("```", 0, first.end()), first.end()
        for closing in pattern.finditer(text, position):
            between = text[position : closing.start()]
            fences, position = fences + between.count("```"), closing.end()
            if self.thought_opening.search(between) or fences % 2:
                break
            if not _is_quoted(closing) and not _is_mention(closing):
                last = closing
        return last

    def _next(
        self, text: str, position: int, calls: bool, kind: str | None = None
    ) -> tuple[Section, re.Match[str]] | None:
        """The next section (of one kind) that begins at `position` or later, and its opening marker."""
        begin, fences, counted = position, 0, position
        closings = _Closings(text)
        for candidate in self._candidates.finditer(text, position):
            start = candidate.start()
            fences, counted = fences + text.count("```", counted, start), start
            for section, pattern in self.sections:
                if (section.tools and not calls) or kind not in (None, section.kind):
                    continue
                opening = pattern.match(text, start)
                if opening is not None and _opens(section, opening, begin, fences, closings):
                    return section, opening
        return None


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    unnamed = [f"(?:{re.sub(r'[?]P<[a-zA-Z_]+>', '?:', pattern)})" for pattern in dict.fromkeys(patterns)]
    return re.compile("|".join(unnamed or ["(?!)"]), re.S)


class _Closings:
    """Where the next closing marker of each kind is. Markers without one are searched once, not once per opening."""

    def __init__(self, text: str):
        self.text = text
        self._found: dict[re.Pattern[str], re.Match[str] | None] = {}

    def after(self, pattern: re.Pattern[str], position: int) -> bool:
        """Whether a closing marker is at `position` or later. Positions do not decrease."""
        known = self._found.get(pattern)
        if pattern not in self._found or (known is not None and known.start() < position):
            self._found[pattern] = pattern.search(self.text, position)
        return self._found[pattern] is not None


def _opens(section: Section, opening: re.Match[str], begin: int, fences: int, closings: _Closings) -> bool:
    """Whether a marker opens a section, and is not merely mentioned. `fences` are those between `begin` and it."""
    text, start = closings.text, opening.start()
    word = start  # the end of the words before
    while word > begin and text[word - 1].isspace():
        word -= 1
    if word == begin:
        return True
    if section.kind == "call":
        return text[start - 1] != "`"
    if fences % 2:
        return False
    if text[word - 1] in _ENDS_OF_SENTENCES or "\n" in text[word:start]:
        return re.match(r" [a-z]", text[opening.end() : opening.end() + 2]) is None
    # In the middle of a sentence, only a whole thought counts, such as "about <think>Let me see.</think>".
    whole = section.kind == "thought" and closings.after(_closing(section, opening), opening.end())
    return whole and _SAID.match(text, opening.end()) is not None


def _is_quoted(closing: re.Match[str]) -> bool:
    """Whether a closing marker is in quotation marks or in inline code."""
    text, start = closing.string, closing.start()
    is_pair = text[closing.end() : closing.end() + 1] == _QUOTES.get(text[start - 1 : start])
    return is_pair and _QUOTE.search(text, max(0, start - 5), start) is not None


def _is_mention(closing: re.Match[str]) -> bool:
    """Whether a sentence goes on after a closing marker."""
    text, start = closing.string, closing.start()
    return text[start - 1 : start] == " " and MENTIONED.match(text, closing.end()) is not None


def _closing(section: Section, opening: re.Match[str]) -> re.Pattern[str]:
    tag = opening.groupdict().get("tag")
    return re.compile(section.close if tag is None else section.close.replace("{tag}", re.escape(tag)), re.S)


def _after_space(text: str, position: int) -> int:
    return len(text) - len(text[position:].lstrip())


GRAMMAR = Grammar(SECTIONS)
"""The sections of all known families, for texts whose policy is not known."""


def closing_tag(tag: str) -> str:
    """The tag that closes what a tag of [`OPENING_TAG`] opens.

    >>> closing_tag("<seed:think>"), closing_tag("<|START_THINKING|>")
    ('</seed:think>', '<|END_THINKING|>')
    """
    for begin, end in (("START", "END"), ("start", "end"), ("begin", "end")):
        if begin in tag:
            return tag.replace(begin, end, 1)
    return re.sub(r"\A(<\|?|\[|◁)", r"\1/", tag)


def literal(kind: Literal["thought", "answer", "call"], opening: str, closing: str) -> Section:
    """A section between two given strings."""
    return Section(kind, re.escape(opening), re.escape(closing), tools=kind == "call")


def declared(template: Any) -> list[Section]:
    """The sections of a tokenizer's `response_template`."""
    fields = template.get("fields") if isinstance(template, Mapping) else None
    sections = []
    for name, field in (fields or {}).items():
        opening, closing = _pattern(field, "open"), _pattern(field, "close")
        kind: Any = "answer" if name == "content" else "call" if "call" in name or "tool" in name else "thought"
        if opening is None:
            continue  # the text outside of all sections
        try:
            if re.search(opening, "") or opening.startswith("(?="):
                if kind != "thought":
                    continue
                opening = "(?!)"  # the prompt opens it
            re.compile(closing or "")
        except re.error:
            continue
        sections.append(Section(kind, opening, closing or r"\Z", closing is not None, tools=kind == "call"))
    return sections


def _pattern(field: Mapping[str, Any], name: str) -> str | None:
    """The opening or closing of a field of a `response_template`, as a regular expression."""
    if field.get(f"{name}_pattern"):
        return str(field[f"{name}_pattern"])
    literal = field.get(name)
    return None if not literal else "|".join(map(re.escape, [literal] if isinstance(literal, str) else literal))


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer of a processor; a tokenizer unchanged, also if its `tokenizer` is of another library, as that of
    transformers for mistral-common."""
    inner = getattr(processor, "tokenizer", None)
    return inner if hasattr(inner, "batch_decode") else processor


def added_tokens(tokenizer: Any) -> list[Any]:
    """The added tokens of a tokenizer; none for mistral-common, for which transformers does not list them."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    return list(added.values()) if isinstance(added, Mapping) else []
