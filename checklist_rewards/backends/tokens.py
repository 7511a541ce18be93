"""From chat text to token ids, the same for every engine that runs here.

The chat template is rendered once around a marker and cut there: *head* (everything before the user's message) and
*foot* (everything after it, up to where the model answers). Head and foot are the template's own and may hold special
tokens; the user's message is data and is tokenized with special tokens split like any other text, so a target that
contains a chat-template token or `</s>` stays a text about one.

Labels are found in the tokenizer, not assumed: every vocabulary entry that reads as the label ("Yes", " yes", "YES")
is one of its surface forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Messages, ReadGroup
from checklist_rewards.errors import ModelError

_MARK = "CHECKLIST0MARK0A7"
_THINK, _END_THINK = "<think>", "</think>"


class TokenGroup(NamedTuple):
    """A [`ReadGroup`] as token ids: the prompt of read i is `prefix + tails[i]`."""

    prefix: list[int]
    tails: list[list[int]]

    def fitting(self, limit: int) -> list[tuple[int, list[int]]]:
        """Index and ids of the tails whose prompt leaves room for one token of answer in `limit` tokens."""
        room = limit - len(self.prefix)
        return [(index, tail) for index, tail in enumerate(self.tails) if len(tail) < room]


def count_tokens(groups: Sequence[TokenGroup], limit: int) -> tuple[int, int]:
    """Prompt tokens of the reads that fit: each prompt computed alone, and each prefix and tail computed once."""
    alone = floor = 0
    for group in groups:
        tails = [len(tail) for _, tail in group.fitting(limit)]
        alone += len(group.prefix) * len(tails) + sum(tails)
        floor += (len(group.prefix) if tails else 0) + sum(tails)
    return alone, floor


class ChatTokenizer:
    """A Hugging Face tokenizer that keeps a chat template's own tokens and the text under judgement apart.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): with or without a chat template.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self._frames: dict[tuple[str | None, bool], tuple[list[int], list[int]]] = {}
        self._labels: dict[str, tuple[int, ...]] = {}

    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """Tokenize groups of reads: each prefix once, each distinct tail once."""
        distinct = dict.fromkeys(tail for group in groups for tail in group.tails)
        tails = dict(zip(distinct, self._data(list(distinct)), strict=True))
        prefixes = self._data([group.prefix for group in groups])
        out = []
        for group, prefix in zip(groups, prefixes, strict=True):
            head, foot = self._frame(group.system)
            out.append(TokenGroup(head + prefix, [tails[tail] + foot for tail in group.tails]))
        return out

    def prompt(self, messages: Messages) -> list[int]:
        """Token ids of a whole conversation, ready for the model's reply."""
        if len(messages) == 1 or (len(messages) == 2 and messages[0]["role"] == "system"):
            system = messages[0]["content"] if len(messages) == 2 else None
            head, foot = self._frame(system, think=True)
            return head + self._data([messages[-1]["content"]])[0] + foot
        marks = [f"{_MARK}N{index}N" for index in range(len(messages))]
        framed = [{**m, "content": mark} for m, mark in zip(messages, marks, strict=True)]
        rest = self._template(framed, think=True)
        ids: list[int] = []
        for message, mark in zip(messages, marks, strict=True):
            before, found, rest = rest.partition(mark)
            if not found:
                raise ModelError("the model's chat template drops a message of the conversation.")
            ids += self._special(before) + self._data([message["content"]])[0]
        return ids + self._special(rest)

    def label_ids(self, label: str) -> tuple[int, ...]:
        """Ids of every vocabulary token that reads as `label`, whatever its case and the space around it."""
        if label not in self._labels:
            wanted = label.casefold()
            vocabulary: dict[str, int] = self.tokenizer.get_vocab()
            near = [i for token, i in vocabulary.items() if wanted in token.casefold()]
            forms = [i for i in near if self.tokenizer.decode([i]).strip().casefold() == wanted]
            self._labels[label] = tuple(sorted(forms))
        return self._labels[label]

    def label_groups(self, labels: Sequence[str]) -> list[tuple[int, ...]]:
        """Surface forms of each label; each label must have one, and none may be shared.

        Raises:
            ModelError: naming the label and the tokens.
        """
        groups = [self.label_ids(label) for label in labels]
        for label, ids in zip(labels, groups, strict=True):
            if not ids:
                pieces = self.tokenizer.convert_ids_to_tokens(self._data([label])[0])
                raise ModelError(
                    f"this model cannot be read by label: {label!r} is no single token, the tokenizer cuts it into "
                    f"{pieces}."
                )
        for index, ids in enumerate(groups):
            for other in range(index):
                shared = sorted(set(ids) & set(groups[other]))
                if shared:
                    tokens = self.tokenizer.convert_ids_to_tokens(shared)
                    raise ModelError(
                        f"this model cannot be read by label: {labels[other]!r} and {labels[index]!r} share {tokens}."
                    )
        return groups

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a model's reply, without special tokens."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def _frame(self, system: str | None, think: bool = False) -> tuple[list[int], list[int]]:
        key = (system, think)
        if key not in self._frames:
            messages = [{"role": "system", "content": system}] if system is not None else []
            text = self._template([*messages, {"role": "user", "content": _MARK}], think)
            head, found, foot = text.partition(_MARK)
            if not found:
                raise ModelError("the model's chat template drops the user's message.")
            self._frames[key] = self._special(head), self._special(foot)
        return self._frames[key]

    def _template(self, messages: list[dict[str, str]], think: bool) -> str:
        if not self.tokenizer.chat_template:
            # A base model: plain paragraphs, opened as the model was trained to see a document open.
            return (self.tokenizer.bos_token or "") + "\n\n".join(m["content"] for m in messages) + "\n"
        from jinja2 import TemplateError

        def render(messages: list[dict[str, str]]) -> str:
            # Templates that know no `enable_thinking` ignore it.
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=think
            )

        try:
            text = render(messages)
        except TemplateError:
            if messages[0]["role"] != "system" or len(messages) == 1:
                raise
            # Some chat formats have no system role; the rules then open the first user message.
            system, first, *others = messages
            text = render([{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others])
        opened = text.rfind(_THINK)
        if not think and opened > text.rfind(_END_THINK):
            # A template that opens a thinking block whatever it is told; thinking models spell an empty one like this.
            text = f"{text.rstrip()}\n\n{_END_THINK}\n\n"
        return text

    def _special(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []

    def _data(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        texts = [encodable(text) for text in texts]
        return self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def encodable(text: str) -> str:
    """Half a surrogate pair, which a text cut inside an emoji has and no tokenizer takes, becomes U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
