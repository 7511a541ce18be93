"""The constraints generator: all rules, applied to each input, without a model.

It is also the first stage of a writer with a model: [`DirectGenerator`] with `constraints=True` takes the items of
the rules, tells the model which parts of the input they cover, and adds its questions.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from checklist_rewards.backends import Messages, Progress
from checklist_rewards.checklists import Checklist, ChecklistItem, Evidence
from checklist_rewards.checks.base import parsed_check
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators.base import Request, check_request
from checklist_rewards.generators.constraints.filtering import A_PART, SIZES, decide
from checklist_rewards.generators.constraints.reading import Clause, PromptText, Requirement
from checklist_rewards.generators.constraints.rules import things_in
from checklist_rewards.images import words_of
from checklist_rewards.version import __version__

SOURCE = f"constraints/{__version__}"


def find_requirements(prompt: str) -> list[Requirement]:
    """The requirements of a prompt, in the order of their text, each once. Requirements that contradict each other
    have no check, and a reason that names the other one. Places are those of the prompt as people see it, with
    "[image]" for an image."""
    prompt = words_of(prompt)
    found: dict[str, Requirement] = {}
    tasks: set[str] = set()
    for clause in PromptText(prompt).clauses():
        task = clause.plain.startswith(("describe ", "write a "))
        for requirement in _of_clause(clause):
            check = requirement.check or {}
            key = check if check.get("type") != "repeats_prompt" else "repeats_prompt"
            key = repr(key or (requirement.start, requirement.reason))
            if key in tasks and task and check.get("type") in SIZES:  # a text for each of two tasks
                found[key] = replace(requirement, check=None, question="", reason=A_PART)
            found.setdefault(key, requirement)
            if task:
                tasks.add(key)
    ordered = sorted(found.values(), key=lambda one: one.start)
    kinds = {one.check["type"] for one in ordered if one.check and one.check not in _WEAK}
    kept = [one for one in ordered if one.check not in _WEAK or one.check["type"] not in kinds]
    against = _contradictions([one.check for one in kept]) if len(kept) > 1 else {}
    for n, other in against.items():
        reason = f"it contradicts {prompt[kept[other].start : kept[other].end]!r}"
        kept[n] = Requirement(kept[n].start, kept[n].end, None, reason=reason)
    return kept


def _of_clause(clause: Clause) -> list[Requirement]:
    """The requirements of a clause. Where one size of a kind is that of a part, so are the others: "a headline of at
    most 8 words and a text of at most 50"."""
    if clause.asks():
        return []
    decided = [(thing, decide(clause, thing)) for thing in things_in(clause)]
    if len(decided) < 2:
        return [one for _, one in decided if one]
    sizes = [(thing.kind, one) for thing, one in decided if thing.kind in SIZES and thing.check not in _WEAK]
    parts = {kind for kind, one in sizes if one is None or one.reason == A_PART}
    checks = [one.check for _, one in sizes if one and one.check]
    casings = [(thing.check, one) for thing, one in decided if thing.kind == "casing"]
    if any(one and one.reason == A_PART for _, one in casings) and casings[0][0] != casings[-1][0]:
        parts.add("casing")
    return [
        replace(one, check=None, question="", reason=A_PART)
        if one.check and (thing.kind in parts or checks.count(one.check) > 1)
        else one
        for thing, one in decided
        if one
    ]


_WEAK = ({"type": "json"}, {"type": "bullets", "at_least": 1})
"""Checks that another one of their type includes."""
_ONE_VALUE = {"casing": "casing", "language": "language", "starts": "phrase", "ends": "phrase", "title": "style"}
"""Checks of which a response passes only one, with the argument that tells them apart."""
_COMPARED = 40
"""Number of checks of a prompt that are compared with each other."""


def _contradictions(checks: Sequence[Mapping[str, Any] | None]) -> dict[int, int]:
    """The places of the checks that no response passes together with another one, each with the place of that one."""
    against: dict[int, int] = {}
    meanings = [(n, check["type"], _meaning(check)) for n, check in enumerate(checks) if check][:_COMPARED]
    for (n, kind, one), (m, _, other) in itertools.combinations(meanings, 2):
        if any(_apart(kind, one[subject], other[subject]) for subject in one.keys() & other.keys()):
            against.setdefault(n, m)
            against.setdefault(m, n)
    return against


def _apart(kind: str, one: Any, other: Any) -> bool:
    """Whether no response has both of two values, or numbers in both of two ranges."""
    if isinstance(one, str):
        shorter, longer = sorted((one, other), key=len)
        return not (longer.endswith(shorter) if kind == "ends" else longer.startswith(shorter))
    (low, high), (its_low, its_high) = one, other
    limits = kind in SIZES and (math.inf > high != its_high < math.inf or -math.inf < low != its_low > -math.inf)
    return low > its_high or its_low > high or limits  # "at most 50 words on cats, at most 100 on dogs"


def _meaning(check: Mapping[str, Any]) -> dict[Any, Any]:
    """What a check is about, with its value, or with the smallest and the largest number that passes it."""
    kind = check["type"]
    if kind in _ONE_VALUE:
        return {kind: check[_ONE_VALUE[kind]].lower()}
    low = max(check.get("at_least", -math.inf), check.get("exactly", -math.inf))
    high = min(check.get("at_most", math.inf), check.get("exactly", math.inf))
    if kind == "keyword_count":
        return {check["word"].lower(): (low, high)}
    if kind in ("keywords", "forbidden"):
        low, high = (1, math.inf) if kind == "keywords" else (0, 0)
        return {word.lower(): (low, high) for word in check["words"] if check.get("need") != "any"}
    bounds = "at_least", "at_most", "exactly"
    return {frozenset((name, repr(value)) for name, value in check.items() if name not in bounds): (low, high)}


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
    input = words_of(input)
    return [
        ChecklistItem(
            question=found.question,
            check=found.check,  # type: ignore[arg-type]  # a mapping is stored as JSON
            evidence=Evidence(start=found.start, end=found.end, text=input[found.start : found.end]),
        )
        for found in find_requirements(input)
        if found.check is not None
    ]


def _checklist(input: str) -> Checklist | GenerationError:
    if items := constraint_items(input):
        return Checklist(items=tuple(items), source=SOURCE)
    input = words_of(input)
    others = [f"{input[found.start : found.end]!r}: {found.reason}" for found in find_requirements(input)]
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
    """The items of the rules followed by those of a written checklist, without its repetitions of them: equal
    questions, and questions about nothing but a rule ("Is the poem at most 60 words long?"). What a rule finds is
    stated in the input, so its item gets the largest weight of the checklist, whose scale the writer chose."""
    largest = max(abs(item.weight) for item in checklist.items)
    items = [item.model_copy(update={"weight": largest}) for item in items]
    known, rules = {item.question.casefold() for item in items}, [_rule_of(item) for item in items]
    written = [
        item for item in checklist.items if item.question.casefold() not in known and _rule_of(item) not in rules
    ]
    return checklist.model_copy(update={"items": (*items, *written)})


def rule_faults(items: Sequence[ChecklistItem]) -> Iterator[tuple[ChecklistItem, str]]:
    """The items that repeat the check of another item as a question, or contradict another item. A fault is the end of
    a sentence that starts with "it". Penalties have none: a response should fail them."""
    rules = [(item, rule) for item in items if item.weight > 0 and (rule := _rule_of(item)) is not None]
    against = _contradictions([rule for _, rule in rules])
    for n, (item, rule) in enumerate(rules):
        for other, its in rules:
            if item.check is None and other.check is not None and rule == its:
                yield item, f"repeats the check of item {other.id}; omit it, because code answers it"
        if n in against:
            other = rules[against[n]][0]
            yield item, f"contradicts item {other.id} ({other.question!r:.80}); no response meets both"


_FRAME = frozenset(
    "a all an and answer any are as be contain contains did do does entire entirely fully generated has have in "
    "include includes is it its keep kept long of only output response strictly text that the there this total use "
    "used uses was were whole written".split()
)
"""Words of a question that ask for nothing."""
_SUBJECTS = 1
"""Other words that a question about a rule may contain, such as "poem"."""


def _rule_of(item: ChecklistItem) -> dict[str, Any] | None:
    """What an item requires as a check: its own, or that of a question about nothing else. None for any other item."""
    if item.check is not None:
        return parsed_check(item.check).model_dump(exclude_none=True)
    if item.options is not None or not item.question.endswith("?"):
        return None
    statement = f"{item.question[:-1]}."
    found = find_requirements(statement)
    if len(found) != 1 or found[0].check is None:
        return None
    others = re.findall(r"[^\W_]+", f"{statement[: found[0].start]} {statement[found[0].end :]}".casefold())
    if len(set(others) - _FRAME) > _SUBJECTS:
        return None
    return parsed_check(json.dumps(dict(found[0].check))).model_dump(exclude_none=True)
