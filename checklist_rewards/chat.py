"""What was asked and what was answered: a trainer's prompts and completions as text for a judge or a generator.

Prompts and completions are strings (standard format) or lists of chat messages (conversational format). The content of
a message is a string or a list of typed blocks, whose texts are concatenated; the mark of an image stands in its place
(`images.py`), or nothing with `images="ignore"`. Other blocks without text are refused. One table of roles
(`SPEAKERS`) decides who speaks in a message; other roles are refused. Three texts are extracted:

- *input*: the last user message with the turns after it, or a prompt that is a plain string;
- *history*: the messages before it in order, including system messages, as "role: text" paragraphs;
- *target*: the answer of a completion, without its thought, its tool calls and its markers.

A [`Target`] has the answer, the thought, and a state. A completion without an answer (`cut_in_thought`, `unfinished`,
`empty`) is a failure of the policy: no part of it is an answer, and it must not be judged as one. In a completion of
several messages (tool use), only the last assistant message answers: text before a tool call is a preamble.

Models mark thoughts, answers and tool calls in different ways (`markers.py`). Without a tokenizer, only markers count
that no text contains by chance. [`CompletionReader`] adds the markers of a tokenizer: from its tokens, its
`response_template`, and its chat template. Many markers are special tokens, which decoding drops; a reader therefore
uses token ids where a trainer passes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import commonprefix
from typing import Any, Literal, NamedTuple

from checklist_rewards.errors import SampleError
from checklist_rewards.images import Image, clean, has_images
from checklist_rewards.markers import (
    BEGIN,
    CONTROL,
    CONTROL_AT_END,
    DROPPED_CHANNELS,
    END_THINK,
    END_TOKEN,
    GRAMMAR,
    LEADING,
    LIKE_THOUGHTS,
    MARKERS,
    MENTIONED,
    NO_ANSWER_STATES,
    PIECES,
    PLAIN,
    SECTIONS,
    STRIKE,
    THINK,
    WHOLE_CHANNELS,
    Grammar,
    Parsed,
    Section,
    TargetState,
    added_tokens,
    declared,
    literal,
    tokenizer_of,
)
from checklist_rewards.messages import (
    SPEAKERS,
    THOUGHT_KEYS,
    Images,
    calls_of,
    content_of,
    conversation,
    images_of,
    list_of_messages,
    parsed_thought,
    shown_call,
    speaker,
)

Part = Literal["answer", "transcript"]
"""What of a completion of several messages is judged: the final answer, or all messages."""

_PASS_TAGS = "Pass thinking_tags=(OPENING, CLOSING), or thinking_tags=() if the policy writes no thoughts."
_FEW = 4
"""Completions that must start with the same unknown token before it is refused."""
_LONGEST = 200
"""Characters in which the header of a turn or an end token is searched."""
_MARK = "CHECKLIST0MARK0B3"
_MARKED_THOUGHT, _MARKED_ANSWER = f"{_MARK}THOUGHT", f"{_MARK}ANSWER"


class Message(NamedTuple):
    """A message of a completion."""

    role: str
    text: str
    """Its text, without a thought and without tool calls."""
    shown: str
    """As in a transcript: with its role and its tool calls."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a policy answered.

    Args:
        text (`str`): The text to judge; "" without an answer.
        state (`str`): `answered`; `cut`: the answer reached the length limit; `cut_in_thought`: the thought was never
            closed; `unfinished`: the completion ends with a tool call or its result; `empty`: no text at all.
        thought (`str`, *optional*): What the policy thought first.
        messages (tuple of [`Message`]): The messages of a completion that has several; for items with a scope.
        images (tuple of [`Image`]): The images in its texts, such as those that tools returned.
    """

    text: str
    state: TargetState = "answered"
    thought: str | None = None
    messages: tuple[Message, ...] = ()
    images: tuple[Image, ...] = ()

    @property
    def has_answer(self) -> bool:
        """Whether there is a text to judge."""
        return self.state not in NO_ANSWER_STATES


_ATTRIBUTES = re.compile(r"""(?:\.|\[['"]|get\(['"])([A-Za-z_]\w*)""")
_RENDERED = {**SPEAKERS, "inst": "user", "/inst": "assistant", "system_prompt": "system"}
_HEADERS = re.compile(
    r"(?=[<\[\]])(?:"  # all begin with a bracket, which is looked for first: that is twice as fast
    r"\[(?P<inst>/?(?:INST|SYSTEM_PROMPT))\]|\[\|(?P<bar>(?!endofturn)\w+)\|\]"
    r"|(?:<\|START_OF_TURN_TOKEN\|>)?<\|(?P<cohere>SYSTEM|USER|CHATBOT)_TOKEN\|>"
    r"|<[|｜](?:hy_|im_|begin_)?(?P<token>[Uu]ser|[Aa]ssistant|[Ss]ystem|tool|observation|developer)(?:_start)?[|｜]>"
    r"(?:\n|(?:user|assistant|system|tool)?<\|im_middle\|>)?"
    rf"|(?:{CONTROL})(?:message role=\"|\n(?=User:|Assistant:))?"
    r"(?P<word>system|user|assistant|model|tool|developer|ai|human|User|Assistant|System|ipython)"
    r"(?:(?=<\|channel\|>analysis<|\s*to=self<)"  # a thought, with its marker
    rf"|(?:\s*to=\w+)?(?:\s*(?:{CONTROL}|\"<\|sep\|>|:|\n)(?:final<\|message\|>)?\s*|\Z)))"
)
"""The start of a turn in a prompt that a chat template has rendered."""


# ----- prompts -----


def prompt_text(prompt: Any, grammar: Grammar = GRAMMAR, *, images: Images = "show") -> tuple[str | None, str | None]:
    """Extract the input and the history from a prompt; None where there is none.

    Args:
        prompt (`str` or list of messages): A value of the `prompt` column. A string that a chat template has rendered
            is split into its messages. Turns after the last user message follow it in the input.
        grammar ([`Grammar`], *optional*): How the policy marks its thoughts in earlier assistant messages.
        images (`str`, *optional*, defaults to `"show"`): What to do with images: `"show"` puts their marks into the
            texts, as long as the caller holds them ([`with_images`]); `"ignore"` leaves them out.

    Raises:
        SampleError: If the prompt is neither a string nor a list of messages, or if a message has an unknown role or
            a part that is not text.
    """
    rendered = rendered_turns(prompt) if isinstance(prompt, str) else None
    if isinstance(prompt, str) and rendered is None:
        return clean(prompt), None
    messages = conversation(prompt, "a prompt", images) if rendered is None else rendered
    last_user = max((i for i, message in enumerate(messages) if speaker(message) == "user"), default=None)
    history = history_text(messages[:last_user], grammar)
    if last_user is None:
        return None, history
    input = "\n\n".join([content_of(messages[last_user]), *_paragraphs(messages[last_user + 1 :], grammar)])
    return input, history


def history_text(messages: Sequence[Mapping[str, Any]], grammar: Grammar = GRAMMAR) -> str | None:
    """Messages as "role: text" paragraphs; None if there is no text."""
    return "\n\n".join(_paragraphs(messages, grammar)) or None


def without_end_tokens(text: str, token: re.Pattern[str] = CONTROL_AT_END) -> str:
    """A text, decoded with its special tokens, without those at its end that `token` matches. A `</s>` that closes an
    HTML tag is text.

        >>> without_end_tokens("Rain falls.</s>"), without_end_tokens("<s>Rain</s>")
        ('Rain falls.', '<s>Rain</s>')
    """
    end, struck = len(text), None
    while True:
        last = end
        while last and text[last - 1].isspace():
            last -= 1
        found = token.search(text, max(0, last - _LONGEST), last)
        if found is not None and found[0] == "</s>":
            struck = _struck(text) if struck is None else struck
            found = None if found.start() in struck else found
        if found is None:
            return text[:end]
        end = found.start()


def _struck(text: str) -> set[int]:
    """Where `</s>` closes the HTML tag `<s>`."""
    closing, opened = set(), 0
    for tag in STRIKE.finditer(text):
        if tag[0] != "</s>":
            opened += 1
        elif opened:
            opened -= 1
            closing.add(tag.start())
    return closing


def _without_header(text: str, grammar: Grammar) -> str:
    """A decoded text without the header of its own turn at its start, such as `<|im_start|>assistant`."""
    header = _HEADERS.search(text, 0, _LONGEST)
    if header is None or not LEADING.match(text[: header.start()]):
        header = BEGIN.match(text)
        own, end = header is not None, 0 if header is None else header.end()
    else:
        group, name = next(item for item in header.groupdict().items() if item[1])
        own = _RENDERED.get(name.lower()) == "assistant" and not header[0].startswith(("<s>", "</s>"))
        end, after = header.end(), text[header.end(group) :].lstrip(" ")
        if after.startswith("\n") or grammar.starts(after):  # a control token that follows belongs to the turn
            end = len(text) - len(after.lstrip())
    if not own or grammar.starts(text.lstrip()) or MENTIONED.match(text, len(text[:end].rstrip())):
        return text
    return text[end:]


def rendered_turns(prompt: str) -> list[dict[str, Any]] | None:
    """The messages of a prompt, or of a part of one, that a chat template has rendered, without the turn that it opens
    for the policy. None for any other text."""
    headers = list(_HEADERS.finditer(prompt))
    before = prompt[: headers[0].start()] if headers else ""
    leads, begin = LEADING.match(before), BEGIN.match(before)
    if not headers or not (leads or (begin and "｜" in begin[0])):
        return None
    ends = [*(match.start() for match in headers[1:]), len(prompt)]
    # DeepSeek's system message has no header.
    messages = [] if leads or not begin else [{"role": "system", "content": before[begin.end() :].strip("\n")}]
    for match, end in zip(headers, ends, strict=True):
        name = next(group for group in match.groups() if group)
        text = without_end_tokens(prompt[match.end() : end]).strip("\n")
        if name != "/SYSTEM_PROMPT" and text.strip():
            messages.append({"role": _RENDERED.get(name.lower(), name.lower()), "content": text})
    return [message for message in messages if message["role"] != "assistant" or _own_text(message).strip()]


def _paragraphs(messages: Sequence[Mapping[str, Any]], grammar: Grammar) -> list[str]:
    """Messages as "role: text", with tool calls as "role calls name(arguments)"."""
    paragraphs: list[str] = []
    for message in messages:
        own = speaker(message) == "assistant"
        text = _own_text(message, grammar=grammar) if own else content_of(message)
        paragraphs += _paragraphs_of(message, text)
    return paragraphs


def _paragraphs_of(message: Mapping[str, Any], text: str) -> list[str]:
    """The paragraphs of a message with this text."""
    role = message.get("role")
    name = clean(f" {message['name']}") if role == "tool" and message.get("name") else ""
    said = [f"{role}{name}: {text}"] if text.strip() else []
    return [*said, *(f"{role} calls {shown_call(call)}" for call in calls_of(message))]


def _own_text(
    message: Mapping[str, Any],
    keep_thinking: bool = False,
    grammar: Grammar = GRAMMAR,
    token: re.Pattern[str] = END_TOKEN,
) -> str:
    """The text of an assistant message without its thought, or with it."""
    thought = parsed_thought(message)
    content = _once(_without_header(content_of(message), grammar), thought, grammar)
    if thought is None and not keep_thinking:
        content = grammar.parse(content).answer
    content = without_end_tokens(content, token)
    return content if thought is None or not keep_thinking else _thinking_block(thought) + content


def _once(text: str, thought: str | None, grammar: Grammar) -> str:
    """A text without the thought that a server has also parsed out of it into a field."""
    if not thought or thought.strip() not in text:
        return text
    parsed = grammar.parse(text, False)
    return parsed.answer if parsed.thought == thought.strip() else text


def _thinking_block(thought: str) -> str:
    return f"{THINK}\n{thought}\n{END_THINK}\n\n"


# ----- completions -----


def completion_text(
    completion: Any,
    *,
    part: Part = "answer",
    keep_thinking: bool = False,
    images: Images = "show",
) -> str:
    """The answer of a completion, or its transcript; "" without one. See [`CompletionReader.read`], which also returns
    the state. Raises [`SampleError`] for a text with an image, which would not be held."""
    target = CompletionReader(part=part, keep_thinking=keep_thinking, images=images).read(completion)
    if has_images(target.text):
        raise SampleError("the text has an image, but only inputs, histories and targets may have images.")
    return target.text


def strip_thinking(text: str) -> str:
    """Remove the thoughts of a model's reply and the white space after each.

    A thought that is never closed extends to the end of the text. If a text closes a thought before it opens one, the
    prompt has opened the thought; everything up to that point is thinking.

        >>> strip_thinking("<think>Two words?</think> Hello there.")
        'Hello there.'
        >>> strip_thinking("Two words?</think>Hello there.")
        'Hello there.'
        >>> strip_thinking("<think>Two words? Then")
        ''
    """
    return completion_text(text)


def transcript_of(messages: Iterable[Message]) -> str:
    """Messages as one text."""
    return "\n\n".join(message.shown for message in messages if message.shown)


class CompletionReader:
    """Reads what a policy answered from its completions.

    Args:
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`, *optional*):
            The policy's tokenizer. With it, token ids can be read, and the markers of its chat template and of its
            `response_template` are known. Without it, only markers count that no text contains by chance, such as
            `<think>` and control tokens.
        chat_template_kwargs (mapping, *optional*):
            Arguments with which the trainer renders prompts, such as `{"enable_thinking": False}`.
        part (`str`, *optional*, defaults to `"answer"`):
            `"answer"`: the last assistant message. `"transcript"`: all messages, with tool calls and results.
        keep_thinking (`bool`, *optional*, defaults to `False`):
            Whether thoughts belong to the text. Parsed thoughts are put in front, as a `<think>` block.
        thinking_tags (pair of `str`, *optional*):
            The markers of a thought of a policy that uses its own, such as `("<reasoning>", "</reasoning>")`. Empty
            if the policy writes no thoughts, whatever its tokenizer looks like: then nothing in a text is taken for
            one. Tool calls, and answers between control tokens, are still recognized.
        images (`str`, *optional*, defaults to `"show"`):
            What to do with images in messages. `"show"`: their marks are put into the texts. `"ignore"`: only the text
            is judged, also of messages with audio or videos, which are refused otherwise.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        part: Part = "answer",
        keep_thinking: bool = False,
        thinking_tags: Sequence[str] | None = None,
        images: Images = "show",
    ):
        self.processor = tokenizer
        self.tokenizer = tokenizer_of(tokenizer)
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.part: Part = part
        self.keep_thinking = keep_thinking
        self.images: Images = images
        self._special = _special_tokens(self.tokenizer)
        self._special_text = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        self._end_token = END_TOKEN if tokenizer is None else re.compile(rf"(?:{self._special_text.pattern})\Z")
        self._thinks = thinking_tags is None or bool(thinking_tags)
        tags = [literal("thought", *thinking_tags)] if thinking_tags else []
        shown = self._shown
        plain = [section for section in PLAIN if any(text in shown for text in section.shown)]
        self.grammar = self._grammar(*tags, *SECTIONS, *plain)
        found: list[Section] = []
        if self.tokenizer is not None:
            found = declared(getattr(self.tokenizer, "response_template", None))
            found += self._rendered_sections() if self._thinks else []
            self.grammar = self._grammar(*tags, *SECTIONS, *plain, *found)
        own = [*tags, *plain, *found]
        self._own = [section for section in own if section.kind == "thought"]
        self._known = thinking_tags is not None or any(section.kind == "thought" for section in found)
        self._channels = WHOLE_CHANNELS if tokenizer is None else DROPPED_CHANNELS if "<|channel|>" in shown else None

    def _grammar(self, *sections: Section) -> Grammar:
        """The grammar of these sections; without those of thoughts if the policy writes none."""
        if not self._thinks:
            sections = tuple(s for s in sections if s.kind != "thought" and s not in PLAIN)
        return GRAMMAR if sections == SECTIONS else Grammar(sections)

    def validate(self) -> None:
        """Refuse a tokenizer with special tokens that look like markers of a thought, if it is not known how they are
        used. Raises [`SampleError`]."""
        unknown = [token for token in self._special if LIKE_THOUGHTS.search(token)]
        known = self._known or self.grammar.closing.search(" ".join([*self._special, self._source]))
        if len(unknown) > 1 and not known:
            raise SampleError(
                "the policy's tokenizer has special tokens that look like markers of a thought "
                f"({', '.join(map(repr, unknown[:4]))}), but neither its chat template nor a response_template shows "
                f"how they are used. {_PASS_TAGS}"
            )

    def _check_starts(self, ids: Sequence[Sequence[int]]) -> None:
        """Refuse completions most of which start with a special token that is no known marker: it may open a thought,
        and decoding drops it."""
        starts = Counter(int(row[0]) for row in ids if len(row) > 1 and int(row[0]) in self._special_ids)
        token, count = starts.most_common(1)[0] if starts else (None, 0)
        if self._known or token is None or 2 * count <= len(ids) or count < _FEW:
            return
        text = str(self.tokenizer.convert_ids_to_tokens(token))
        if not (self._is_marker(text) or self.grammar.starts(text)):
            raise SampleError(
                f"{count} of {len(ids)} completions start with the special token {text!r}, which decoding drops, and "
                f"neither the chat template nor a response_template shows what it is for. {_PASS_TAGS}"
            )

    @cached_property
    def drops_markers(self) -> bool:
        """Whether decoding without special tokens drops markers of thoughts or answers, so that token ids are
        required."""
        return any(self._is_marker(token) for token in self._special)

    def prompt_text(self, prompt: Any) -> tuple[str | None, str | None]:
        """The input and the history of a prompt, as [`prompt_text`] extracts them. A prompt that was rendered with the
        policy's template has none of its special tokens left."""
        input, history = prompt_text(prompt, self.grammar, images=self.images)
        starts = self._special_text.match(prompt.lstrip()) if isinstance(prompt, str) else None
        if starts is None or not self._special:
            return input, history
        input, history = (None if t is None else self._special_text.sub("", t).strip() for t in (input, history))
        return input, history

    def without_special_tokens(self, text: str) -> str:
        """A decoded text without the tokenizer's special tokens."""
        return self._special_text.sub("", text)

    def opened(self, prompt: Any) -> Section | bool | None:
        """Whether the trainer's prompt opens a thought, and by which section; None if it cannot be rendered here."""
        if isinstance(prompt, str):
            return self.grammar.opened_by(prompt) or (False if self.tokenizer is not None else None)
        messages = [] if prompt is None else conversation(prompt, "a prompt", self.images)
        if messages and speaker(messages[-1]) == "assistant":  # some trainers continue this message
            prefilled = self.grammar.opened_by(content_of(messages[-1]))
            if prefilled is not None:
                return prefilled
        rendered = self._render(messages) if messages else None
        return None if rendered is None else self.grammar.opened_by(rendered) or False

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Completions as text with their special tokens. Where a policy has spelled one out with other tokens, a space
        is put into it, so that it is not read as a marker."""
        rows = [list(row) for row in ids]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=False)
        return [
            text
            if len(self._special_text.findall(text)) == sum(i in self._special_ids for i in row)
            else self._unspelled(row)
            for row, text in zip(rows, texts, strict=True)
        ]

    def _unspelled(self, ids: Sequence[int]) -> str:
        runs: list[list[int]] = [[]]
        for token in ids:
            special = token in self._special_ids
            runs += [[token], []] if special else []
            if not special:
                runs[-1].append(token)
        texts = self.tokenizer.batch_decode(runs, skip_special_tokens=False)
        return "".join(
            text
            if run and run[0] in self._special_ids
            else self._special_text.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
            for run, text in zip(runs, texts, strict=True)
        )

    def read_batch(
        self,
        completions: Sequence[Any],
        *,
        prompts: Sequence[Any] | None = None,
        ids: Sequence[Sequence[int]] | None = None,
        limit: int | None = None,
        tools: bool = False,
        rollouts: bool = False,
        opened: bool | None = None,
    ) -> list[Target]:
        """Read the completions of one call of a trainer.

        Args:
            completions (sequence of `str` or lists of messages): As the trainer passes them.
            prompts (sequence, *optional*): Their prompts, to find out whether they open a thought.
            ids (sequence of token ids, *optional*): The completions as the policy wrote them.
            limit (`int`, *optional*): Most tokens of a completion. One of this length without an end token was cut.
            tools, opened: As in [`read`], of all completions.
            rollouts (`bool`, *optional*, defaults to `False`): Whether the token ids of a completion may have several
                turns, also of others, as those of TRL's `rollout_func`.

        Raises:
            SampleError: If a completion is neither a string nor a list of messages, or if decoding has dropped the
                markers of its thought and there are no token ids.
        """
        raws: Sequence[str | None] = [None] * len(completions)
        known = ids if completions and self.tokenizer is not None else None
        if known is not None:
            self._check_starts(known)
        if known is not None and (self.drops_markers or tools or rollouts or not all(map(_is_unparsed, completions))):
            raws = self.decode(known)
        elif self._thinks and self.tokenizer is not None and self.drops_markers and self._are_stripped(completions):
            markers = [token for token in self._special if self._is_marker(token)]
            marker = next(filter(self.grammar.thought_opening.match, markers), markers[0])
            raise SampleError(
                f"the policy marks its thoughts with special tokens ({marker!r}), which decoding drops, and the "
                "trainer passed no completion_ids: thought and answer cannot be told apart. Pass completion_ids."
            )
        begins: dict[str, Section | bool | None] = {}  # the completions of a prompt share its rendering
        targets = []
        for place, (completion, raw) in enumerate(zip(completions, raws, strict=True)):
            begun: Section | bool | None = opened
            if prompts is not None and opened is not False:
                key = repr(prompts[place])
                if key not in begins:
                    begins[key] = self.opened(prompts[place])
                begun = begins[key] or (True if opened else begins[key])
            if raw is not None and ids is not None and not self._belongs(raw, ids[place], completion):
                raw = None
            if rollouts and raw is not None and (turns := self._turns(raw)) is not None:
                completion, raw, begun = turns, None, None
            cut = limit is not None and ids is not None and self._is_cut(ids[place], limit)
            try:
                targets.append(self.read(completion, raw=raw, opened=begun, cut=cut, tools=tools))
            except SampleError as error:
                raise SampleError(f"completion {place + 1} of {len(completions)}: {error}") from None
        return targets

    def read(
        self,
        completion: Any,
        *,
        raw: str | None = None,
        opened: Section | bool | None = None,
        cut: bool = False,
        tools: bool = False,
    ) -> Target:
        """Read one completion, as a trainer passes it to a reward function.

        Args:
            raw (`str`, *optional*): The completion decoded with special tokens. It is read instead of the text.
            opened (`bool`, *optional*): Whether the prompt has opened the thought; None if that is not known.
            cut (`bool`, *optional*, defaults to `False`): Whether the completion reached its length limit.
            tools (`bool`, *optional*, defaults to `False`): Whether the policy can call tools.

        Raises:
            SampleError: If the completion is neither a string nor a list of messages.
        """
        raw = None if raw is None else clean(raw)
        if isinstance(completion, str):
            return self._turn(clean(completion), None, raw, opened, cut, tools)[0]
        messages = conversation(completion, "a completion", self.images)
        images = tuple(images_of(messages))
        own = [place for place, message in enumerate(messages) if speaker(message) == "assistant"]
        called = any(speaker(message) == "tool" or calls_of(message) for message in messages)
        shown: dict[int, str] = {}
        if messages and speaker(messages[-1]) == "tool":
            target = Target("", "unfinished")
        elif not own:
            target = Target("", "empty")
        else:
            last = messages[own[-1]]
            if raw is not None and len(messages) > 1:
                raw, opened = self._last_turn(raw)
            target, shown[own[-1]] = self._turn(content_of(last), last, raw, opened, cut, tools or called)
        if images:
            target = replace(target, images=images)
        if not (called or len(messages) > 1):
            return target
        told = tuple(self._message(message, shown.get(place)) for place, message in enumerate(messages))
        if self.part == "answer":
            return replace(target, messages=told)
        whole = transcript_of(told)
        state: TargetState = "empty" if not whole.strip() else "cut" if target.state.startswith("cut") else "answered"
        return Target(whole, state, target.thought, told, images)

    def _message(self, message: Mapping[str, Any], read: str | None) -> Message:
        """A message, whose text is `read` if it has been read already."""
        role = speaker(message) or str(message["role"])
        text = read
        if text is None:
            own = role == "assistant"
            text = (
                _own_text(message, self.keep_thinking, self.grammar, self._end_token) if own else content_of(message)
            )
        return Message(role, text, "\n\n".join(_paragraphs_of(message, text)))

    def _turn(
        self,
        text: str,
        message: Mapping[str, Any] | None,
        raw: str | None,
        opened: Section | bool | None,
        cut: bool,
        tools: bool,
    ) -> tuple[Target, str]:
        """The turn that answers, from its text, its message (None of a text) and its text with special tokens: its
        target, and its text without regard to its state."""
        given: str | None = None
        called = False
        if message is not None:
            given, called = parsed_thought(message), bool(calls_of(message))
        thought = given
        text = _once(_without_header(text, self.grammar), given, self.grammar)
        if raw is not None:
            parsed = self.grammar.parse(_without_header(raw, self.grammar), opened, calls=tools)
            plain = text if not parsed.marked and thought is None and text.strip() else parsed.answer
            inside = parsed.thought and self._special_text.sub("", parsed.thought).strip()
            parsed = parsed._replace(answer=self._special_text.sub("", plain), thought=inside)
        elif thought is not None or called:
            text = without_end_tokens(text, self._end_token)
            parsed = Parsed(text, thought, open_thought=thought is not None and not text.strip(), marked=True)
        else:
            parsed = self.grammar.parse(text, opened, calls=tools)
            dropped = self._channels.match(text) if self._thinks and self._channels and not parsed.marked else None
            if dropped is not None:
                ended = dropped.end() < len(text) or dropped["thought"] is None
                parsed = Parsed(text[dropped.end() :], dropped["thought"], open_thought=not ended, marked=True)
        inner = None if parsed.thought is None else without_end_tokens(parsed.thought, self._end_token)
        parsed = parsed._replace(answer=without_end_tokens(parsed.answer, self._end_token), thought=inner)
        thought = inner if thought is None else thought
        state = parsed._replace(called=parsed.called or called).state
        if cut and state in ("answered", "empty"):
            state = "cut" if state == "answered" else "cut_in_thought" if thought else "empty"
        shown = parsed.answer
        if self.keep_thinking and thought:
            inline = given is None and self.grammar.parse(text, opened, calls=tools).thought
            shown = without_end_tokens(text, self._end_token) if inline else _thinking_block(thought) + shown
            state = {"cut_in_thought": "cut", "empty": "answered"}.get(state, state)  # type: ignore[assignment]
        return Target("" if state in NO_ANSWER_STATES else shown, state, thought), shown

    def _belongs(self, raw: str, ids: Sequence[int], completion: Any) -> bool:
        """Whether a decoded completion is the one that the trainer passed; a wrapper of the reward may change it."""
        if not _is_unparsed(completion):
            return True
        text = (completion if isinstance(completion, str) else content_of(completion[0])).strip()
        if text in raw or text in self._special_text.sub("", raw):
            return True
        return bool(self.tokenizer.decode(list(ids), skip_special_tokens=True).strip() == text)

    def _are_stripped(self, completions: Sequence[Any]) -> bool:
        """Whether some completions are decoded texts, and none of these has a special token left."""
        texts = [c if isinstance(c, str) else content_of(c[0]) for c in completions if _is_unparsed(c)]
        return any(text.strip() for text in texts) and not any(map(self._special_text.search, texts))

    def _is_cut(self, ids: Sequence[int], limit: int) -> bool:
        return bool(self._special_ids) and len(ids) >= limit and int(ids[-1]) not in self._special_ids

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.tokenizer.convert_tokens_to_ids(list(self._special))) if self._special else frozenset()

    def _is_marker(self, token: str) -> bool:
        grammar = self.grammar
        if token in PIECES or grammar.thought_opening.search(token) or grammar.closing.search(token):
            return True
        return any(re.escape(token) in section.open + section.close for section in self._own)

    def _turns(self, raw: str) -> list[dict[str, Any]] | None:
        """The messages in a rollout that is one text; None without turns of others, or with a header that is text."""
        text = self._foot + raw
        if not all(self._special_text.search(header[0]) for header in _HEADERS.finditer(text)):
            return None
        messages = rendered_turns(text) or []
        return messages if any(speaker(message) != "assistant" for message in messages) else None

    def _last_turn(self, raw: str) -> tuple[str | None, Section | bool | None]:
        """The last turn of a rollout with tools (None if it cannot be found), and what its prompt has opened."""
        for anchor in self._anchors:
            ends = [match.end() for match in anchor.finditer(raw)]
            if ends:
                before, turn = raw[: ends[-1]], raw[ends[-1] :]
                return turn, self.grammar.opened_by(before) or False
        return None, None

    @cached_property
    def _anchors(self) -> list[re.Pattern[str]]:
        """Where the policy's turn starts in rendered text."""
        template = getattr(self.tokenizer, "response_template", None)
        anchors = []
        if isinstance(template, Mapping):
            if template.get("start_anchor_pattern"):
                anchors.append(re.compile(template["start_anchor_pattern"], re.S))
            literal = template.get("start_anchor") or ()
            literals = [literal] if isinstance(literal, str) else list(literal)
            anchors += [re.compile(re.escape(text)) for text in literals]
        foot = self._foot
        if foot:
            opened = self.grammar.opened_by(foot)
            body = foot if opened is None else re.sub(rf"{opened.open}\s*\Z", "", foot)
            pieces = re.split(f"({self._special_text.pattern})", body)
            anchor = "".join(pieces[-2:]) if len(pieces) > 1 else body
            if anchor.strip():
                anchors.append(re.compile(re.escape(anchor)))
        return anchors

    @cached_property
    def _foot(self) -> str:
        """What the chat template puts after the last user message; "" without one."""
        text = self._render([{"role": "user", "content": _MARK}])
        return "" if text is None else text.rpartition(_MARK)[2]

    def render(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Any:
        """Messages as the trainer renders them, with the generation prompt by default. As in TRL, a processor gets
        parts: some templates of vision-language models leave out a content that is a string."""
        if self.processor is not self.tokenizer:
            messages = [
                {**m, "content": [{"type": "text", "text": m["content"]}]} if isinstance(m.get("content"), str) else m
                for m in messages
            ]
        arguments = {"add_generation_prompt": True, **self.chat_template_kwargs, **settings}
        return self.processor.apply_chat_template([list(messages)], **arguments)

    def _render(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> str | None:
        """The text of [`render`]; None without a template."""
        try:
            return str(self.render(messages, tokenize=False, **settings)[0])
        except Exception:  # the template is missing, or raises any error about a conversation that it refuses
            return None

    @property
    def _shown(self) -> str:
        """The texts of the policy that show its markers: its chat template, its `response_template`, its tokens."""
        declared = str(getattr(self.tokenizer, "response_template", None) or "")
        return "\n".join([self._source, declared, *self._special, *map(str, added_tokens(self.tokenizer))])

    @property
    def _source(self) -> str:
        source = getattr(self.processor, "chat_template", None) or ""
        return "".join(map(str, source.values())) if isinstance(source, Mapping) else str(source)

    def _rendered_sections(self) -> list[Section]:
        """The sections that the chat template shows when it renders an answer with a thought, if they are new."""
        names = {name for name in _ATTRIBUTES.findall(self._source) if LIKE_THOUGHTS.search(name)}
        fields = dict.fromkeys([*THOUGHT_KEYS, *sorted(names)], _MARKED_THOUGHT)
        shown = self._after_user({**fields, "role": "assistant", "content": _MARKED_ANSWER})
        before, thinks, rest = shown.partition(_MARKED_THOUGHT)
        between, answers, after = rest.partition(_MARKED_ANSWER)
        if not thinks or not answers:
            return []
        sections: list[Section] = []
        marks, foot = self._markers(between), self._foot
        if self.grammar.opened_by(before) is None:
            bare = self._after_user({"role": "assistant", "content": _MARKED_ANSWER}).partition(_MARKED_ANSWER)[0]
            header = foot if foot and before.startswith(foot) and before != foot else commonprefix([before, bare])
            opening = before[len(header) :].strip() or (self._markers(before) or [""])[-1]
            if len(opening.split()) > 1:
                opening = (self._markers(opening) or opening.split())[-1]
            own_turn = bool(foot.strip()) and foot in between  # the thought is a turn of its own
            one = own_turn or (len(between.split()) == 1 and len(marks) < 2)
            close = between.strip() if one or not marks else marks[0]
            if opening and close:
                sections.append(literal("thought", opening, close))
        wraps = [mark for mark in marks[1:] if not mark.startswith(("</", "[/"))]
        ending = (self._markers(after) or [""])[0]
        known = bool(wraps) and any(pattern.match(wraps[-1]) for _, pattern in self.grammar.sections)
        if wraps and ending == wraps[-1].replace("<", "</", 1) and not known:
            sections.append(literal("answer", wraps[-1], ending))
        return sections

    def _after_user(self, answer: Mapping[str, Any]) -> str:
        """What the chat template writes after a user message that gets this answer; "" without one."""
        shown = self._render([{"role": "user", "content": _MARK}, answer], add_generation_prompt=False)
        return "" if shown is None else shown.partition(_MARK)[2]

    def _markers(self, text: str) -> list[str]:
        """The markers in a rendered text: special tokens, and words in brackets."""
        pattern = f"{self._special_text.pattern}|{MARKERS.pattern}" if self._special else MARKERS.pattern
        return re.findall(pattern, text)


def _special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """The tokens that decoding drops, longest first."""
    added = [str(token) for token in added_tokens(tokenizer) if token.special]
    tokens = dict.fromkeys([*getattr(tokenizer, "all_special_tokens", ()), *added])
    return tuple(sorted(tokens, key=len, reverse=True))


def _is_unparsed(completion: Any) -> bool:
    """Whether a completion is one text whose thought, if any, is still in it."""
    if isinstance(completion, str):
        return True
    messages = list_of_messages(completion, "a completion")
    return len(messages) == 1 and not calls_of(messages[0]) and parsed_thought(messages[0]) is None
