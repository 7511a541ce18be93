"""Few-shot calibration: labelled answers to a question, shown to a judge before it answers the same question itself.

An [`Example`] is a response with the label that people gave it. [`FewShot`] holds many and chooses a few per item:

- those that answer this very question (the same text, or the same item id), and no others;
- as many of each label as there are, one label after the other, so that no verdict looks likelier than the rest;
- shuffled, so that the last one shown is not always of the same label;
- always the same ones for an item, whatever else is judged with it: label, choice and order are drawn from hashes.

**No judge sees the answer it is asked for.** An example with the text under judgement, or of the same `group`, is left
out, and the next in line takes its place. Only responses that are examples themselves are affected: for all others an
item has one fixed set. It is part of the question, after the target, so the prefix that the items of a target share
stays as it was. Texts are compared without regard to case and white space.

Examples are data: each is fenced by a tag of its own hash, as the target is. An item without examples is asked as if
there were none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import Checklist, ChecklistItem, content_hash
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.judges.answers import named
from checklist_rewards.prompts import fence

DEFAULT_SHOTS = 4
_INTRODUCED = "How the question further down was answered about other responses shows how strictly it is meant."
_ASKED = "Now the question about the response above, which is none of the examples:"


@dataclass(frozen=True, slots=True)
class Example:
    """One response with its right answer."""

    target: str
    label: Any
    """A label of the item; also what a judge's words may say for one ("Yes", true)."""
    question: str | None = None
    item: str | None = None
    """The id of the item, instead of its question."""
    input: str | None = None
    """What was asked of the response; shown where it is known."""
    reason: str | None = None
    group: str | None = None
    """What belongs together, such as the responses to one prompt: none of a group is shown to a judge of one of them.
    """
    where: str = "an example"
    """Where it comes from, for an error."""


_Pool = list[tuple[str, Example]]
"""Examples with their label, which is the same for all."""


class FewShot:
    """Examples, of which a few are shown with every item that has any.

    Args:
        examples (sequence of [`Example`]).
        shots (`int`, *optional*, defaults to `4`): how many are shown with an item at most.
        reasons (`bool`, *optional*, defaults to `False`): show why a response was answered so, where that is known.

    Raises:
        SampleError: for examples that name no item, or that cannot be used.
    """

    def __init__(self, examples: Sequence[Example], shots: int = DEFAULT_SHOTS, reasons: bool = False):
        if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
            raise SampleError(f"shots={shots!r} is not allowed; it is a whole number from 1 up.")
        if not examples:
            raise SampleError("there are no examples; few-shot needs at least one.")
        self.examples, self.shots, self.reasons = tuple(examples), shots, reasons
        self._of_question: dict[str, list[Example]] = {}
        self._of_id: dict[str, list[Example]] = {}
        for example in self.examples:
            if example.question is not None:
                self._of_question.setdefault(_plain(example.question), []).append(example)
            elif example.item is not None:
                self._of_id.setdefault(example.item, []).append(example)
            else:
                raise SampleError(f"{example.where}: it names neither a question nor the id of an item.")
        self._groups: dict[str, set[str]] = {}
        """The groups that a text belongs to, for every text that is an example."""
        for example in self.examples:
            groups = self._groups.setdefault(_plain(example.target), set())
            groups.update(() if example.group is None else (example.group,))
        self._drawn: dict[tuple[str, ...], list[_Pool]] = {}

    @classmethod
    def load(cls, path: str | Path, shots: int = DEFAULT_SHOTS, reasons: bool = False) -> FewShot:
        """Examples from a JSONL, CSV or Parquet file.

        A row is one example: `target` (or `completion`), `question` (or `item`, an id), `label`, and if it has them
        `reason`, `prompt` (or `input`) and `group`. Or it is a response with all its answers: `target`, `checklist`
        and `labels`, one per item (null for none) or by item id, with `reasons` likewise.

        Raises:
            SampleError, ChecklistError: naming file and row.
        """
        return cls([example for row in read_rows(path) for example in _examples(row)], shots, reasons)

    def check(self, item: ChecklistItem) -> None:
        """Refuse examples that are no answers to `item`. Raises [`ChecklistError`] naming them."""
        self._pools(item)

    def chosen(self, item: ChecklistItem, target: str) -> list[tuple[str, Example]]:
        """The examples to show with `item` when `target` is judged, each with its label; the module says which."""
        text = _plain(target)
        groups = self._groups.get(text)  # None for a text that is no example

        def allowed(entry: tuple[str, Example]) -> bool:
            return groups is None or (entry[1].group not in groups and _plain(entry[1].target) != text)

        pools = [filter(allowed, pool) for pool in self._pools(item)]
        in_turn = (entry for turn in zip_longest(*pools) for entry in turn if entry is not None)
        return sorted(islice(in_turn, self.shots), key=lambda entry: _drawn("place", item, entry))

    def question(
        self, item: ChecklistItem, target: str, question: str, *, words: Mapping[str, str] | None, reason_first: bool
    ) -> str:
        """`question` with the examples of `item` before it.

        Args:
            item ([`ChecklistItem`]): what is asked.
            target (`str`): the text under judgement.
            question (`str`): the question as this judge is asked it, with the answers it may give.
            words (mapping, *optional*): what the judge says for each label; None for the label itself.
            reason_first (`bool`): whether this judge gives its reason before its answer.
        """
        chosen = self.chosen(item, target)
        if not chosen:
            return question
        shown = [
            self._shown(number, label if words is None else words[label], example, reason_first)
            for number, (label, example) in enumerate(chosen, start=1)
        ]
        return "\n\n".join([_INTRODUCED, *shown, _ASKED, question])

    def _shown(self, number: int, label: str, example: Example, reason_first: bool) -> str:
        lines = [f"Example {number}:"]
        if example.input is not None:
            lines.append(fence("instruction", example.input))
        lines.append(fence("response", example.target))
        answer = [f"Answer: {label}"]
        if self.reasons and example.reason is not None:
            reason = f"Reason: {fence('reason', example.reason)}"
            # A judge that is read by its first token must not learn to begin with a reason.
            answer = [reason, *answer] if reason_first else [*answer, reason]
        return "\n".join([*lines, *answer])

    def _pools(self, item: ChecklistItem) -> list[_Pool]:
        """The examples of an item, those of one label together, in the order in which they are drawn."""
        key = (item.id, item.question, *item.values)
        if key not in self._drawn:
            by_label: dict[str, _Pool] = {}
            answered: dict[tuple[str, str | None], str] = {}
            for example in (*self._of_question.get(_plain(item.question), ()), *self._of_id.get(item.id, ())):
                label = named(example.label, item)
                if label is None:
                    raise ChecklistError(
                        f"{example.where}: {example.label!r:.60} is no answer to {item.question!r:.80}; allowed: "
                        f"{', '.join(item.values)}."
                    )
                about = (_plain(example.target), example.input)
                if about not in answered:
                    by_label.setdefault(label, []).append((label, example))
                if answered.setdefault(about, label) != label:
                    raise ChecklistError(
                        f"{example.where}: the answer to {item.question!r:.80} about this response is {label!r}, and "
                        f"{answered[about]!r} in another example; give it one answer."
                    )
            labels = sorted(by_label, key=lambda label: content_hash("label", item.question, label))
            self._drawn[key] = [
                sorted(by_label[label], key=lambda entry: _drawn("draw", item, entry)) for label in labels
            ]
        return self._drawn[key]


def _drawn(what: str, item: ChecklistItem, entry: tuple[str, Example]) -> str:
    return content_hash(what, item.question, entry[1].target, entry[1].input)


def _examples(row: Row) -> Iterable[Example]:
    data = row.data
    target = next((data[key] for key in ("target", "completion") if data.get(key) is not None), None)
    if target is None:
        raise SampleError(f"{row.where}: there is no 'target'; the row has {', '.join(data)}.")
    try:
        target = completion_text(target)
        asked = next((data[key] for key in ("prompt", "input") if data.get(key) is not None), None)
        about: dict[str, Any] = {"target": target, "input": None if asked is None else prompt_text(asked)[0]}
    except SampleError as error:
        raise SampleError(f"{row.where}: {error}") from None
    group = data.get("group")
    about |= {"group": None if group is None or group == "" else str(group), "where": row.where}
    if "labels" in data:
        yield from _of_checklist(row, about)
        return
    if data.get("label") is None:
        raise SampleError(f"{row.where}: there is no 'label'; the row has {', '.join(data)}.")
    question, item, reason = (_text(data.get(key), key, row.where) for key in ("question", "item", "reason"))
    yield Example(label=data["label"], question=question, item=item, reason=reason, **about)


def _of_checklist(row: Row, about: Mapping[str, Any]) -> Iterable[Example]:
    checklist = Checklist.parse(row.data.get("checklist"), f"{row.where}, 'checklist'")
    labels, reasons = (_one_each(row, key, checklist) for key in ("labels", "reasons"))
    for number, (item, label, reason) in enumerate(zip(checklist.items, labels, reasons, strict=True), start=1):
        if label is not None:
            text = _text(reason, f"reason {number}", row.where)
            yield Example(label=label, question=item.question, reason=text, **about)


def _one_each(row: Row, key: str, checklist: Checklist) -> list[Any]:
    value = row.data.get(key)
    if isinstance(value, str):  # a CSV cell
        try:
            value = json.loads(value) if value else None
        except (ValueError, RecursionError):
            pass
    if value is None:
        return [None] * len(checklist)
    if isinstance(value, Mapping):
        unknown = sorted(map(str, set(value) - {item.id for item in checklist.items}))
        if unknown:
            raise SampleError(f"{row.where}: {key!r} names {unknown[0]!r:.60}, which is the id of no item.")
        return [value.get(item.id) for item in checklist.items]
    if not isinstance(value, list) or len(value) != len(checklist):
        raise SampleError(
            f"{row.where}: {key!r} must be a list of {len(checklist)}, one per item, or a mapping of item ids; got "
            f"{value!r:.60}."
        )
    return value


def _text(value: Any, what: str, where: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise SampleError(f"{where}: {what!r} must be a string, got {type(value).__name__} {value!r:.60}.")
    return value


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
