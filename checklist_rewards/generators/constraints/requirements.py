"""All rules, applied to a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from checklist_rewards.generators.constraints import forms
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

Rule = Callable[[PromptText, set[int]], Iterator[Requirement]]

_RULES: tuple[tuple[Rule, str], ...] = (
    (counts, "word sentence paragraph bullet placeholder hash mark comma emo character line section part phrase time "
     "once twice page syllable stanza highlight italic bold point scene chapter verse"),
    (forms.without, "letter comma punctuation emo digit numeral mark hash colon hyphen dash period stop capital case "
     "bullet parenthes asterisk heading"),
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
    (forms.yes_or_no, "yes true"),
    (forms.choices, "following options choices phrases answers responses labels categories below"),
    (forms.unquoted_end, "end finish conclude close last"),
    (forms.paragraph_start, "paragraph"),
    (forms.repeats_prompt, "repeat copy restate rewrite reproduce"),
    (forms.divided, "*** asterisk"),
    (forms.count_of, "count limit length minimum maximum requirement"),
)  # fmt: skip
"""The rules with their trigger words. Earlier rules take quoted strings away from `strings`."""
_TRIGGERED = tuple((rule, tuple(triggers.split(" "))) for rule, triggers in _RULES)
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
