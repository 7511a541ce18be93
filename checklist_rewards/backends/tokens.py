"""Conversion of chat messages to token ids, for all engines that run in this process.

The token ids are those of the whole prompt, as the model was trained to see it. Nevertheless the prefix is tokenized
only once. The text is split at the *seam*: a place where every tokenizer starts a new token, namely before a space
that is followed by a word. The words between the seam and the question are part of every tail. Tokens that all tails
have in common are moved back to the prefix. The first prompt of each kind is compared with the same prompt tokenized
whole. If they differ, all prompts of that kind are tokenized whole, and their common tokens are the prefix.

The user's message is data, and so is a thought that precedes the label. A tokenizer converts `<|im_end|>` to a control
token wherever it occurs, so a text to be judged could end its turn and continue as the model. In data, [`TextEncoder`]
splits strings of control tokens after their first character, and tokenizes the parts separately: the model sees the
text, but no control token. Control tokens are the tokenizer's special tokens, added tokens that the chat template
uses, and added tokens of the form `<|...|>`.

Labels are looked up in the vocabulary: every entry that decodes to the label ("Yes", " yes", "YES") is one of its
surface forms.

[`Bounds`] are upper bounds for the number of tokens of a request before it is sent, used by budgets and dry runs. With
the model's tokenizer, prompts are counted exactly. Without it, the bound is one token per byte of the text plus
`TEMPLATE_TOKENS` for the chat template and `IMAGE_TOKENS` for each image; English text takes about a quarter of that.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Sequence
from itertools import zip_longest
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from checklist_rewards.backends.base import Answer, Messages, ReadGroup, Sampling
from checklist_rewards.backends.models import POCKET, from_hub, pocket_dir
from checklist_rewards.backends.packaged import PACKAGED, packaged_folder
from checklist_rewards.backends.templates import NO_FORMAT, QUOTED_END, ChatTemplate, Frame
from checklist_rewards.errors import ModelError
from checklist_rewards.images import images_in
from checklist_rewards.markers import END_THINK, added_tokens
from checklist_rewards.prompts import prompt_messages
from checklist_rewards.scores.reasons import Unanswered

_SHAPE = re.compile(r"<[|｜].+[|｜]>")
# Texts after which a tokenizer continues as in the middle of a line. The first that does not merge with the next
# character is used.
_BEFORE = ("\n", ".", "a", "0")

Ids = list[int]
Span = tuple[int, int]


class TextEncoder:
    """Tokenizes texts whose data may contain strings of control tokens. Padding and truncation of the tokenizer are
    disabled. Calls of tokenizers without a Rust backend are serialized."""

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
        texts = [text if text.isascii() else encodable(text) for text in texts]
        if self._rust is not None:
            return [encoding.ids for encoding in self._rust.encode_batch_fast(texts, add_special_tokens=False)]
        with self._lock:
            return [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def data(self, texts: Sequence[str], spans: Sequence[Sequence[Span]] | None = None) -> list[Ids]:
        """Ids of each text, without control tokens inside its data. `spans` are start and end of the data in each
        text, in order; by default the whole of each text."""
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

    @property
    def ignores_clean_up(self) -> bool:
        """Whether transformers ignores `clean_up_tokenization_spaces` and warns if it is on: for byte-pair encoding,
        unless the tokenizer forces it."""
        bpe = self._rust is not None and type(self._rust.model).__name__ == "BPE"
        return bpe and vars(self._tokenizer).get(_FORCED) is False

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
    names = {str(token) for token in tokenizer.all_special_tokens}
    for token in added_tokens(tokenizer):
        if token.special or _SHAPE.fullmatch(token.content) or token.content in source:
            names.add(token.content)
    # Single characters and white space are text, even if the tokenizer declares them special.
    return frozenset(name for name in names if len(name.strip()) > 1)


_TO_LAST_SEAM = re.compile(r".*(?<=\S)(?= [^\W\d_])", re.DOTALL)
_SEAM_WITHIN = 400
"""Number of characters at the end of a prefix that are searched for the seam."""
_LONGEST_CONTEXT = 16
_CHECKED_BEFORE = 200
_MOST_SEAMS = 4096


Forms = Sequence[tuple[int, ...]]
"""The token ids of the surface forms of each label."""


class TokenGroup(NamedTuple):
    """A [`ReadGroup`] as token ids: the prompt of read i is `prefix + tails[i]`."""

    prefix: list[int]
    tails: list[list[int]]
    refused: Unanswered | None = None
    """Why the group cannot be read. It then has no tokens."""

    def unread(self, otherwise: Answer) -> list[Answer]:
        """The answers where its reads are not made: the reason, if it is refused."""
        return [otherwise if self.refused is None else Answer(None, self.refused)] * len(self.tails)


class _Text(NamedTuple):
    """A text and the spans of its data."""

    text: str
    data: tuple[Span, ...] = ()

    def after(self, start: int) -> list[Span]:
        """The data of the whole text, if `start` characters of data precede this one."""
        return [(0, start), *((start + first, start + last) for first, last in self.data)]


class _Tail(NamedTuple):
    """The text of a tail: some characters before the seam, the text from the seam on, and the foot."""

    context: str
    text: str
    foot: _Text
    """What follows the user message: the template's end, and the thought that the assistant has written."""


class _Parts(NamedTuple):
    """A group of reads as text, split at its seam."""

    head: _Text
    """The prefix up to its seam."""
    tails: list[_Tail]
    seam_tokens: int


class ChatTokenizer:
    """A Hugging Face tokenizer, with or without a chat template, for prompts whose user message is data. Safe to share
    between threads."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.encoder = TextEncoder(tokenizer)
        self.template = ChatTemplate(tokenizer)
        self._frames: dict[tuple[str | None, bool], Frame] = {}
        """The text around a user message, by system prompt and whether a thought follows."""
        self._seams: dict[tuple[str, str], int | None] = {}
        self._spellings: dict[str, tuple[int, ...]] | None = None
        self._ahead: tuple[Sequence[ReadGroup], list[TokenGroup]] | None = None

    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """Tokenize groups of reads. Each prefix and each distinct tail is tokenized once."""
        ahead = self._ahead
        if ahead is not None and ahead[0] is groups:
            self._ahead = None
            return ahead[1]
        frames = []
        for group in groups:
            key = group.system, bool(group.written)
            if key not in self._frames:
                self._frames[key] = self.template.frame(group.system, think=bool(group.written))
            frames.append(self._frames[key])
        return self.framed_groups(groups, frames)

    def framed_groups(self, groups: Sequence[ReadGroup], frames: Sequence[Frame]) -> list[TokenGroup]:
        """As [`groups`], with the text around each group's user message."""
        parts = [self._parts(group, frame) for group, frame in zip(groups, frames, strict=True)]
        tails = self._tails([tail for part in parts if part is not None for tail in part.tails])
        parts = [None if part is None or any(tail not in tails for tail in part.tails) else part for part in parts]
        heads = [part.head for part in parts if part is not None]
        prefixes = iter(self.encoder.data([head.text for head in heads], [head.data for head in heads]))
        out = []
        for group, frame, part in zip(groups, frames, parts, strict=True):
            if part is None:
                out.append(shared_prefix(self._whole_prompts(group, frame)))
                continue
            tail_ids = [tails[tail] for tail in part.tails]
            shared = _common(tail_ids)
            if len({written.thought for written in group.written}) != 1:
                shared = min(shared, part.seam_tokens)
            out.append(TokenGroup(next(prefixes) + tail_ids[0][:shared], [ids[shared:] for ids in tail_ids]))
        return out

    def groups_ahead(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """As [`groups`], which then gives the same result for the same object once, without work."""
        found = self.groups(groups)
        self._ahead = groups, found
        return found

    def prompt(self, messages: Messages) -> list[int]:
        """Token ids of a whole conversation, up to where the model's reply starts."""
        text, spans = self.template.conversation(messages)
        return self.encoder.data([text], [spans])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a model's reply, without special tokens. Thinking is in a `<think>` block. A closing tag that the
        model has spelled out is not the token that closes a block, and is changed so that it does not look like it."""
        if self.template.reader.drops_markers:
            return self.template.reply(self.template.reader.decode([ids])[0])
        text = self._decoded(ids)
        end = self.tokenizer.convert_tokens_to_ids(END_THINK) if END_THINK in text else None
        if end is not None and self.tokenizer.convert_ids_to_tokens(end) != END_THINK:
            end = None  # the unknown token
        if end is not None and text.count(END_THINK) > list(ids).count(end):
            parts: list[list[int]] = [[]]
            for token in ids:
                if token == end:
                    parts.append([])
                else:
                    parts[-1].append(token)
            text = END_THINK.join(self._decoded(part).replace(END_THINK, QUOTED_END) for part in parts)
        return self.template.reply(text)

    def _decoded(self, ids: Sequence[int]) -> str:
        settings = {"clean_up_tokenization_spaces": False} if self.encoder.ignores_clean_up else {}
        return self.tokenizer.decode(ids, skip_special_tokens=True, **settings)

    def label_ids(self, label: str) -> tuple[int, ...]:
        """Ids of all vocabulary tokens that decode to `label`, ignoring case and surrounding white space."""
        if self._spellings is None:
            self._spellings = self.encoder.spellings()
        return self._spellings.get(label.lower(), ())

    def label_groups(self, labels: Sequence[str]) -> Forms:
        """The token ids of all surface forms of each label. Raises [`ModelError`] with the label and the tokens if a
        label has no single-token form, or if two labels share one."""
        groups = [self.label_ids(label) for label in labels]
        for label, ids in zip(labels, groups, strict=True):
            if not ids:
                pieces = self.tokenizer.convert_ids_to_tokens(self.encoder.data([label])[0])
                raise ModelError(
                    f"this model cannot be used with the label {label!r}: it is not a single token, the tokenizer "
                    f"splits it into {pieces}."
                )
        for index, ids in enumerate(groups):
            for other in range(index):
                shared = sorted(set(ids) & set(groups[other]))
                if shared:
                    tokens = self.tokenizer.convert_ids_to_tokens(shared)
                    raise ModelError(
                        f"this model cannot be used with the labels {labels[other]!r} and {labels[index]!r}: they "
                        f"share the tokens {tokens}."
                    )
        return groups

    def _parts(self, group: ReadGroup, frame: Frame) -> _Parts | None:
        """Split a group at its seam. None if it has no seam, or if splitting there would change a token."""
        prefix = group.prefix.lstrip() if frame.strips else group.prefix
        found = _TO_LAST_SEAM.match(prefix, max(0, len(prefix) - _SEAM_WITHIN))
        if found is None or not group.tails:
            return None
        before, seam = prefix[: found.end()], prefix[found.end() :]
        context = before[-_LONGEST_CONTEXT:].split()[-1]
        texts = [tail.rstrip() for tail in group.tails] if frame.strips else group.tails
        feet = self._feet(frame, group)
        tails = [_Tail(context, seam + text, foot) for text, foot in zip(texts, feet, strict=True)]
        if (context, seam) not in self._seams:
            if len(self._seams) >= _MOST_SEAMS:
                self._seams.clear()
            self._seams[context, seam] = self._seam_tokens(before[-_CHECKED_BEFORE:], seam, tails[0])
        tokens = self._seams.get((context, seam))
        if tokens is None:
            return None
        span = len(frame.head), len(frame.head) + len(before)
        return _Parts(_Text(frame.head + before, (*frame.data, span)), tails, tokens)

    def _seam_tokens(self, before: str, seam: str, tail: _Tail) -> int | None:
        """Number of tokens of the seam. None if a prompt split there differs from the prompt tokenized whole."""
        text = before + tail.text
        left, whole = self.encoder.data(
            [before, text + tail.foot.text], [[(0, len(before))], tail.foot.after(len(text))]
        )
        after = self._tails([tail]).get(tail)
        if after is None or left + after != whole:
            return None
        context, both = self.encoder.data([tail.context, tail.context + seam])
        return max(0, len(both) - len(context))

    def _tails(self, tails: Sequence[_Tail]) -> dict[_Tail, Ids]:
        """Ids of each distinct tail without those of its context. Those that share a token with it are left out."""
        distinct = list(dict.fromkeys(tails))
        names = list(dict.fromkeys(tail.context for tail in distinct))
        contexts = dict(zip(names, self.encoder.whole(names), strict=True))
        ids = self.encoder.data(
            [tail.context + tail.text + tail.foot.text for tail in distinct],
            [tail.foot.after(len(tail.context) + len(tail.text)) for tail in distinct],
        )
        separable = {}
        for tail, both in zip(distinct, ids, strict=True):
            context = contexts[tail.context]
            if both[: len(context)] == context:
                separable[tail] = both[len(context) :]
        return separable

    def _whole_prompts(self, group: ReadGroup, frame: Frame) -> list[Ids]:
        """Ids of every prompt of a group, each tokenized whole."""
        users = [group.prefix + tail for tail in group.tails or ("",)]
        users = [user.strip() for user in users] if frame.strips else users
        start = len(frame.head)
        texts, spans = [], []
        for user, foot in zip(users, self._feet(frame, group), strict=True):
            texts.append(frame.head + user + foot.text)
            (_, end), *written = foot.after(start + len(user))
            spans.append([*frame.data, (start, end), *written])
        return self.encoder.data(texts, spans)

    def _feet(self, frame: Frame, group: ReadGroup) -> list[_Text]:
        """What follows each user message of a group."""
        if not group.written:
            return [_Text(frame.foot)] * max(1, len(group.tails))
        start = len(frame.foot)
        feet = []
        for text, spans in map(self.template.thoughts.around, group.written):
            feet.append(_Text(frame.foot + text, tuple((start + first, start + last) for first, last in spans)))
        return feet


def shared_prefix(prompts: Sequence[Ids]) -> TokenGroup:
    """Group prompts (at least one). The tokens that they all start with are the prefix."""
    shared = _common(prompts)
    return TokenGroup(prompts[0][:shared], [prompt[shared:] for prompt in prompts])


def _common(sequences: Sequence[Ids]) -> int:
    """Length of the common prefix of all sequences, at most one less than the length of the shortest."""
    return max(0, min(len(commonprefix(sequences)), min(map(len, sequences)) - 1))


class MistralChatTokenizer(ChatTokenizer):
    """A [`ChatTokenizer`] for tokenizers of mistral-common (a folder with `tekken.json` and no `tokenizer.json`),
    which build the whole prompt and never create a control token inside a message. Prompts are tokenized whole. A
    thought before a label is plain text: mistral-common cannot continue a reply."""

    @override
    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        return [shared_prefix(self._prompts(group)) for group in groups]

    def _prompts(self, group: ReadGroup) -> list[Ids]:
        prompts = [self.prompt(prompt_messages(group.system, group.prefix + tail)) for tail in group.tails or ("",)]
        if group.written:
            texts = [NO_FORMAT.around(written)[0] for written in group.written]
            prompts = [prompt + self.encoder.after(text) for prompt, text in zip(prompts, texts, strict=True)]
        return prompts

    @override
    def prompt(self, messages: Messages) -> Ids:
        chat = [{**message, "content": encodable(message["content"])} for message in messages]
        return self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)


def load_chat_tokenizer(path: str, **settings: Any) -> ChatTokenizer:
    """Load the tokenizer of a folder or a Hub id, with settings of `AutoTokenizer.from_pretrained`. Raises
    `ImportError` if transformers, or jinja2 for its chat templates, is not installed."""
    import jinja2  # noqa: F401
    from transformers import AutoTokenizer

    with from_hub(path):
        return _chat_tokenizer(AutoTokenizer.from_pretrained(path, **settings))


def chat_tokenizer(tokenizer: Any) -> ChatTokenizer:
    """The chat tokenizer of a copy of a tokenizer, which stays as it is."""
    return _chat_tokenizer(copy.deepcopy(tokenizer))


def _chat_tokenizer(tokenizer: Any) -> ChatTokenizer:
    if type(tokenizer).__name__ != "MistralCommonBackend":
        return ChatTokenizer(tokenizer)
    return MistralChatTokenizer(tokenizer)


WORD_TOKENS = 16
"""Maximum length of the answer to a label read without log-probabilities."""
THINKING_TOKENS = 4096
"""Additional tokens for models that think before every answer."""
IMAGE_TOKENS = 4096
"""Assumed maximum number of tokens of an image."""
TEMPLATE_TOKENS = 128
"""Assumed maximum number of tokens that a chat template adds to a prompt."""
_TOKENIZER = "tokenizer_config.json"
_FORCED = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
_THINKS = re.compile(r"(?:^|/)(?:o[1-9]|gpt-[5-9])(?![a-z0-9])(?!.*chat)", re.I)


class Tokens(NamedTuple):
    """Number of tokens of a request."""

    prompt: int
    completion: int


def thinks(model: str) -> bool:
    """Whether `model` is one of OpenAI's reasoning models, whose thinking is billed with every answer."""
    return _THINKS.search(model) is not None


class Bounds:
    """Upper bounds for the tokens of requests to a model, by its name and its tokenizer, if available. `requests` is
    the maximum number per label read: 2 if the server may return no log-probabilities of the labels and be requested
    to write the label."""

    def __init__(self, model: str, tokens: ChatTokenizer | None = None, *, requests: int = 1):
        self.tokens, self.requests = tokens, requests
        self._thinking = THINKING_TOKENS if thinks(model) else 0
        self._answer = 1 + (requests - 1) * WORD_TOKENS + requests * self._thinking

    def reads(self, groups: Sequence[ReadGroup]) -> list[Tokens]:
        """Bounds for label reads, in order."""
        if self.tokens is not None:
            tokenized = self.tokens.groups_ahead(groups)
            sizes = [len(group.prefix) + len(tail) for group in tokenized for tail in group.tails]
        else:
            prefixes = [_bytes((group.system or "") + group.prefix) for group in groups]
            sizes = [
                size + _bytes(tail + "".join((w.thought, w.question) if w else ())) + TEMPLATE_TOKENS
                for size, group in zip(prefixes, groups, strict=True)
                for tail, w in zip_longest(group.tails, group.written)
            ]
        images = [_of_images(group.prefix, tail) for group in groups for tail in group.tails]
        return [Tokens(self.requests * sum(both), self._answer) for both in zip(sizes, images, strict=True)]

    def reply(self, messages: Messages, sampling: Sampling) -> Tokens:
        """Bound for `sampling.n` replies to one prompt."""
        completion = sampling.n * (sampling.max_tokens + self._thinking)
        images = _of_images(*(message["content"] for message in messages))
        if self.tokens is not None:
            from jinja2 import TemplateError  # installed wherever a tokenizer is

            try:
                return Tokens(len(self.tokens.prompt(messages)) + images, completion)
            except (ModelError, TemplateError):  # the server may use a template that accepts these messages
                pass
        texts = sum(_bytes(message["content"]) for message in messages)
        return Tokens(texts + images + TEMPLATE_TOKENS, completion)


def local_tokenizer(model: str) -> ChatTokenizer | None:
    """The tokenizer of a model if its files are on this machine, else None. Nothing is downloaded."""
    source = str(pocket_dir()) if model == POCKET else model
    if model in PACKAGED:
        source = str(packaged_folder(model))  # if it was prepared
    try:
        from huggingface_hub import try_to_load_from_cache

        if not Path(source).is_dir() and not isinstance(try_to_load_from_cache(source, _TOKENIZER), str):
            return None
        return load_chat_tokenizer(source, local_files_only=True)
    except Exception:  # without transformers; an invalid name and broken files are reported when the model is loaded
        return None


def _of_images(*texts: str) -> int:
    """Bound for the tokens of the images in some texts."""
    return IMAGE_TOKENS * len(images_in(*texts))


def _bytes(text: str) -> int:
    """Bytes of a text, including those that neutralizing its control strings may add (`openai/wire.py`)."""
    return len(encodable(text).encode()) + 3 * (text.count("<") + text.count("[") + text.count("]"))
