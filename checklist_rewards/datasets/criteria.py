"""Criteria of other projects' rubrics, made into the items of a checklist.

A criterion that is a statement ("Names the capital.") is put as a question about it; one that ends in a question mark
stays as it is, and so does one that has options. Weights, penalties (negative weights), options with their values,
`na` and `required` are kept. A section's title is the category of its items, else a criterion's own name is.
Guidelines stand before every question of their rubric, since they are part of what is asked.

What an item has no place for is left out and *counted*; what would change a score (a weight that is no number, an
option without a value) is refused, naming file, row and item.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError
from checklist_rewards.scores.scales import with_abstention

_STATEMENT = "Does this describe the response?\n{statement}"
_KIND = re.compile(r"\A\s*(essential|important|optional|pitfall)(?: criteria)?\s*:\s*", re.IGNORECASE)
_TITLES = ("name", "title", "section")
_LISTS = ("rubric", "sections", "criteria", "items")
_OF_A_CHECKLIST = ("id", "source_method", "generation_level", "created_at", "input")


@dataclass(frozen=True, slots=True)
class _Form:
    """Under which keys a format has the parts of an item."""

    text: str
    weight: str = "weight"
    default_weight: float | None = None
    """What the format's own package takes where there is none."""


_FORMS = {
    "autorubric": _Form("requirement", default_weight=10.0),
    "rubric": _Form("requirement", default_weight=10.0),
    "healthbench": _Form("criterion", "points"),
    "rar": _Form("description"),
    "autochecklist": _Form("question", default_weight=100.0),
}


@dataclass(frozen=True, slots=True)
class CriteriaReader:
    """Makes checklists of the rubrics of one format.

    Args:
        format (`str`): a key of the table in `rubrics.py`.
        left_out (`Counter`): is told what items have no place for.
    """

    format: str
    left_out: Counter[str]

    def checklist(self, value: Any, where: str, abstaining: frozenset[int] = frozenset()) -> Checklist:
        """A rubric as a checklist; the items at the places `abstaining`, from 0, may abstain.

        Raises:
            ChecklistError: that begins with `where`.
        """
        guidelines, criteria = self._flat(json_or_text(value), where)
        items = [
            self._item(criterion, section, guidelines, f"{where}, item {number}")
            for number, (section, criterion) in enumerate(criteria, start=1)
        ]
        source = value.get("source_method") if isinstance(value, Mapping) else None
        checklist = Checklist.parse({"items": items, "source": source or self.format}, where)
        if not abstaining:
            return checklist
        both = enumerate(zip(checklist.items, with_abstention(checklist).items, strict=True))
        chosen = tuple(free if place in abstaining else item for place, (item, free) in both)
        return checklist.model_copy(update={"items": chosen})

    def _flat(self, value: Any, where: str) -> tuple[str | None, list[tuple[str | None, Any]]]:
        """The guidelines and criteria of a rubric, each criterion with the title of its section."""
        guidelines = None
        while isinstance(value, Mapping):
            key = next((key for key in _LISTS if key in value), None)
            if key is None:
                raise ChecklistError(f"{where}: a rubric has criteria or sections; the keys are {keys_of(value)}.")
            guidelines = value.get("guidelines", guidelines)
            known = (key, "guidelines", *(_OF_A_CHECKLIST if self.format == "autochecklist" else ()))
            self._leave("rubric.", {name: content for name, content in value.items() if name not in known})
            value = value[key]
        if guidelines is not None and not isinstance(guidelines, str):
            raise ChecklistError(f"{where}: 'guidelines' must be a text, got {guidelines!r:.60}.")
        if not isinstance(value, list):
            raise ChecklistError(f"{where}: a rubric is a list of criteria, got {type(value).__name__} {value!r:.60}.")
        criteria: list[tuple[str | None, Any]] = []
        for number, entry in enumerate(value, start=1):
            if not isinstance(entry, Mapping) or "criteria" not in entry:
                criteria.append((None, entry))
                continue
            title = next((key for key in _TITLES if entry.get(key)), "")
            if not isinstance(entry["criteria"], list):
                raise ChecklistError(
                    f"{where}, section {number}: 'criteria' must be a list, got {entry['criteria']!r:.60}."
                )
            self._leave("section.", {name: entry[name] for name in entry if name not in (title, "criteria")})
            criteria += [(str(entry[title]) if title else None, criterion) for criterion in entry["criteria"]]
        return guidelines, criteria

    def _item(self, criterion: Any, section: str | None, guidelines: str | None, where: str) -> dict[str, Any]:
        if not isinstance(criterion, Mapping):
            raise ChecklistError(f"{where}: expected a mapping, got {type(criterion).__name__} {criterion!r:.60}.")
        form, rest = _FORMS[self.format], dict(criterion)
        text, weight = rest.pop(form.text, None), rest.pop(form.weight, form.default_weight)
        if not isinstance(text, str) or not text.strip():
            raise ChecklistError(
                f"{where}: {form.text!r} must be a text, got {text!r:.60}; the keys are {keys_of(criterion)}."
            )
        if weight is None:
            raise ChecklistError(f"{where}: {form.weight!r} must be a number; the keys are {keys_of(criterion)}.")
        options = self._options(rest.pop("options", None), where)
        item = {"weight": weight, "options": options, "required": rest.pop("required", None)}
        category = rest.pop("category", None) or section
        if self.format == "rar" and (kind := _KIND.match(text)):
            category, text = category or kind.group(1).lower(), text[kind.end() :]
        elif self.format == "healthbench":
            category = category or _axis(rest)
        elif self.format == "autochecklist":
            item["id"] = rest.pop("id", None)
        elif category is None:
            category = rest.pop("name", None)
        self._leave("", rest)
        return item | {"category": category, "question": _question(text, options is not None, guidelines)}

    def _options(self, options: Any, where: str) -> list[dict[str, Any]] | None:
        if options is None:
            return None
        if not isinstance(options, list) or not all(isinstance(option, Mapping) for option in options):
            raise ChecklistError(
                f"{where}: 'options' must be a list of mappings with 'label' and 'value', got {options!r:.60}."
            )
        read = []
        for option in options:
            rest = dict(option)
            label, value, na = (rest.pop(key, None) for key in ("label", "value", "na"))
            self._leave("options.", rest)
            read.append({"label": label, "value": None if na else value, "na": bool(na)})
        return read

    def _leave(self, what: str, rest: Mapping[Any, Any]) -> None:
        self.left_out.update(f"{what}{key}" for key, value in rest.items() if value not in (None, [], {}, ""))


def _axis(rest: dict[str, Any]) -> str | None:
    """The first tag "axis:..." of a HealthBench criterion, taken out of its tags."""
    tags = rest.get("tags")
    axes = [tag for tag in tags if isinstance(tag, str) and tag.startswith("axis:")] if isinstance(tags, list) else []
    if not axes:
        return None
    rest["tags"] = [tag for tag in tags or () if tag != axes[0]]
    return axes[0].removeprefix("axis:")


def _question(text: str, has_options: bool, guidelines: str | None) -> str:
    text = text.strip()
    if not has_options and not text.endswith("?"):
        text = _STATEMENT.format(statement=text)
    return text if not guidelines else f"{guidelines.strip()}\n\n{text}"


def json_or_text(value: Any) -> Any:
    """A CSV cell holds its list as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def keys_of(value: Mapping[Any, Any]) -> str:
    """The keys of a mapping, for an error."""
    return ", ".join(map(str, value)) or "none"
