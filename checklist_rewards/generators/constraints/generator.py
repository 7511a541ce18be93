"""The constraints generator: all rules, applied to each input, without a model.

It is also the first stage of a writer with a model: [`DirectGenerator`] with `constraints=True` takes the items of
the rules, tells the model which parts of the input they cover, and adds its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from checklist_rewards.backends import Messages, Progress
from checklist_rewards.checklists import Checklist, ChecklistItem, Evidence
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators.base import Request, check_request
from checklist_rewards.generators.constraints import answers, forms
from checklist_rewards.generators.constraints.counts import counts
from checklist_rewards.generators.constraints.reading import (
    A_PART,
    QUOTE,
    PromptText,
    Requirement,
    contains,
    of_a_part,
    reported,
    unexpressed,
)
from checklist_rewards.generators.constraints.strings import strings, unquoted
from checklist_rewards.version import __version__

SOURCE = f"constraints/{__version__}"


Rule = Callable[[PromptText, set[int]], Iterator[Requirement]]

_RULES: tuple[tuple[Rule, str], ...] = (
    (counts, "word sentence paragraph bullet placeholder hash mark comma colon dash hyphen emo character line section "
     "part phrase time once twice page syllable stanza highlight italic bold point scene chapter verse"),
    (forms.without, "letter comma punctuation emo digit numeral number mark hash colon hyphen dash period stop "
     "capital case bullet parenthes asterisk heading"),
    (strings, QUOTE),
    (unquoted, "word term phrase"),
    (forms.casing, "case capital caps small"),
    (forms.language, "in using use only entirely language"),
    (forms.json, "json"),
    (forms.title, "title << angular heading header"),
    (forms.postscript, "postscript p.s p.p.s"),
    (forms.quoted, "quot"),
    (forms.lists, "list bullet table brackets"),
    (forms.other_formats, "yaml yml xml csv html latex toml"),
    (answers.yes_or_no, "yes true"),
    (answers.choices, "following options choices phrases answers responses labels categories below"),
    (answers.labels, "one of|only |either |classify|label|categori|rate "),
    (answers.one_thing, "number integer digit numeral letter"),
    (forms.ending_mark, "mark point period stop colon"),
    (forms.unquoted_end, "end finish conclude close last"),
    (forms.paragraph_start, "paragraph"),
    (forms.repeats_prompt, "repeat copy restate rewrite reproduce"),
    (forms.divided, "*** asterisk"),
    (forms.count_of, "count limit length minimum maximum requirement"),
)  # fmt: skip
"""The rules with their trigger words. Earlier rules take quoted strings away from `strings`."""
_TRIGGERED = tuple((rule, tuple(triggers.split("|" if "|" in triggers else " "))) for rule, triggers in _RULES)
_WHOLE = frozenset(
    "json language two_responses repeats_prompt paragraph_start verifiable sections title quoted".split()
)
"""Checks that are never about a part of the response."""


def find_requirements(prompt: str) -> list[Requirement]:
    """The requirements of a prompt, in the order of their text, each once."""
    view, taken = PromptText(prompt), set[int]()
    found: dict[str, Requirement] = {}
    for rule, triggers in _TRIGGERED:
        if contains(view.text, triggers):
            for requirement in rule(view, taken):
                check = requirement.check
                if reported(view, requirement.start):
                    continue
                if check and check["type"] not in _WHOLE and of_a_part(view, requirement.start):
                    requirement = unexpressed(requirement.start, requirement.end, A_PART)
                found.setdefault(repr(requirement.check or (requirement.start, requirement.reason)), requirement)
    return _without_weaker(sorted(found.values(), key=lambda requirement: requirement.start))


def _without_weaker(found: list[Requirement]) -> list[Requirement]:
    """Without "at least one bullet point" where a number of bullet points is required too, and the like."""
    checks = [requirement.check for requirement in found if requirement.check]
    counted = {check["type"] for check in checks if not _some(check)}
    counted |= {"json"} if any("keys" in check for check in checks) else set()
    return [r for r in found if not (r.check and _some(r.check) and r.check["type"] in counted)]


def _some(check: Mapping[str, Any]) -> bool:
    return check == {"type": "json"} or (
        check.get("at_least") == 1 and check["type"] in ("bullets", "placeholders", "highlights")
    )


class ConstraintsGenerator:
    """Writes the checks that rules find in each input. No model is used.

    Each item has the part of the input that states it in `evidence`. An input without a requirement that a check can
    express gets a [`GenerationError`]; for such inputs, a writer with a model is needed.
    """

    constraints: ClassVar[bool] = True

    def validate(self) -> None:
        """Nothing to check: there are no settings and no model."""

    def check_request(self, request: str | Request, where: str) -> Request:
        """Check one request. Raises a [`SampleError`] that begins with `where` if it is not valid."""
        return check_request(request, where)

    def generate(self, input: str) -> Checklist:
        """The checklist of one input. Raises [`GenerationError`] if no requirement of it can be checked by code."""
        [checklist] = self.generate_batch([input])
        if isinstance(checklist, GenerationError):
            raise checklist
        return checklist

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """One checklist per request, in order, or the error that replaces it.

        Raises:
            SampleError: If a request is not valid. The message names its number, from 1.
        """
        checked = [self.check_request(request, f"request {n}") for n, request in enumerate(requests, start=1)]
        results = [_checklist(request.input) for request in checked]
        if progress is not None:
            progress(len(results))
        return results


def constraint_items(input: str) -> list[ChecklistItem]:
    """The items of the requirements of an input that code can check, with their evidence."""
    return _items(input, find_requirements(input))


def _items(input: str, requirements: Sequence[Requirement]) -> list[ChecklistItem]:
    return [
        ChecklistItem(
            question=found.question,
            check=found.check,  # type: ignore[arg-type]  # a mapping is stored as JSON
            evidence=Evidence(start=found.start, end=found.end, text=input[found.start : found.end]),
        )
        for found in requirements
        if found.check is not None
    ]


def _checklist(input: str) -> Checklist | GenerationError:
    requirements = find_requirements(input)
    items = _items(input, requirements)
    if items:
        return Checklist(items=tuple(items), source=SOURCE)
    others = [f"{input[found.start : found.end]!r}: {found.reason}" for found in requirements]
    without = f" Without a check: {'; '.join(others)}." if others else ""
    return GenerationError(f"no requirement of the input can be checked by code.{without}")


def covering(messages: Messages, items: Sequence[ChecklistItem]) -> Messages:
    """The messages with a last section that lists the parts of the input for which items exist already."""
    if not items:
        return messages
    *before, last = messages
    parts = "\n".join(f"- {item.evidence.text}" for item in items if item.evidence is not None)
    section = (
        "## Already covered\n\nCode checks these requirements of the input. Write no questions about them, only about "
        f"everything else that the input asks for:\n\n{parts}"
    )
    return [*before, {**last, "content": f"{last['content']}\n\n{section}"}]


def with_constraints(checklist: Checklist, items: Sequence[ChecklistItem]) -> Checklist:
    """The items of the rules followed by those of a written checklist, without its repetitions of them."""
    known = {item.question.casefold() for item in items}
    written = [item for item in checklist.items if item.question.casefold() not in known]
    return checklist.model_copy(update={"items": (*items, *written)})
