"""Conversion of rubric criteria of other projects to checklist items.

A statement ("Names the capital.") is converted to a question about it. A criterion that ends in a question mark or has
options is kept unchanged. Weights, penalties (negative weights), options with their values, `na` and `required` are
kept. The category of an item is the title of its section, or the name of the criterion. Guidelines are prepended to
every question of their rubric.

Fields that items do not have are dropped and *counted*. Errors that would change a score (a weight that is not a
number, an option without a value) raise a [`ChecklistError`] that names file, row and item.
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
    """The keys of a format for the parts of an item."""

    text: str
    weight: str = "weight"
    default_weight: float | None = None
    """Weight of a criterion without one, as in the format's own package."""


_FORMS = {
    "autorubric": _Form("requirement", default_weight=10.0),
    "rubric": _Form("requirement", default_weight=10.0),
    "healthbench": _Form("criterion", "points"),
    "rar": _Form("description"),
    "autochecklist": _Form("question", default_weight=100.0),
}


@dataclass(frozen=True, slots=True)
class CriteriaReader:
    """Converts rubrics of one format to checklists.

    Args:
        format (`str`): a format of the table in `rubrics.py`.
        left_out (`Counter`): counts the dropped fields.
    """

    format: str
    left_out: Counter[str]

    def checklist(self, value: Any, where: str, abstaining: frozenset[int] = frozenset()) -> Checklist:
        """Convert a rubric. Items at the indices `abstaining` (from 0) allow "cannot_assess".

        Raises:
            ChecklistError: If the rubric is not valid. The message begins with `where`.
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
        variants = enumerate(zip(checklist.items, with_abstention(checklist).items, strict=True))
        abstaining_items = tuple(free if place in abstaining else item for place, (item, free) in variants)
        return checklist.model_copy(update={"items": abstaining_items})

    def _flat(self, value: Any, where: str) -> tuple[str | None, list[tuple[str | None, Any]]]:
        """The guidelines and criteria of a rubric, each criterion with the title of its section."""
        guidelines = None
        while isinstance(value, Mapping):
            key = next((key for key in _LISTS if key in value), None)
            if key is None:
                raise ChecklistError(f"{where}: a rubric needs criteria or sections; the keys are {keys_of(value)}.")
            guidelines = value.get("guidelines", guidelines)
            used = (key, "guidelines", *(_OF_A_CHECKLIST if self.format == "autochecklist" else ()))
            self._count_dropped("rubric.", {name: content for name, content in value.items() if name not in used})
            value = value[key]
        if guidelines is not None and not isinstance(guidelines, str):
            raise ChecklistError(f"{where}: 'guidelines' must be a string, got {guidelines!r:.60}.")
        if not isinstance(value, list):
            raise ChecklistError(
                f"{where}: a rubric must be a list of criteria, got {type(value).__name__} {value!r:.60}."
            )
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
            self._count_dropped("section.", {name: entry[name] for name in entry if name not in (title, "criteria")})
            criteria += [(str(entry[title]) if title else None, criterion) for criterion in entry["criteria"]]
        return guidelines, criteria

    def _item(self, criterion: Any, section: str | None, guidelines: str | None, where: str) -> dict[str, Any]:
        if not isinstance(criterion, Mapping):
            raise ChecklistError(f"{where}: expected a mapping, got {type(criterion).__name__} {criterion!r:.60}.")
        form, rest = _FORMS[self.format], dict(criterion)
        text, weight = rest.pop(form.text, None), rest.pop(form.weight, form.default_weight)
        if not isinstance(text, str) or not text.strip():
            raise ChecklistError(
                f"{where}: {form.text!r} must be a nonblank string, got {text!r:.60}; the keys are "
                f"{keys_of(criterion)}."
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
        self._count_dropped("", rest)
        return item | {"category": category, "question": _question(text, options is not None, guidelines)}

    def _options(self, options: Any, where: str) -> list[dict[str, Any]] | None:
        if options is None:
            return None
        if not isinstance(options, list) or not all(isinstance(option, Mapping) for option in options):
            raise ChecklistError(
                f"{where}: 'options' must be a list of mappings with 'label' and 'value', got {options!r:.60}."
            )
        parsed = []
        for option in options:
            rest = dict(option)
            label, value, na = (rest.pop(key, None) for key in ("label", "value", "na"))
            self._count_dropped("options.", rest)
            parsed.append({"label": label, "value": None if na else value, "na": bool(na)})
        return parsed

    def _count_dropped(self, what: str, rest: Mapping[Any, Any]) -> None:
        self.left_out.update(f"{what}{key}" for key, value in rest.items() if value not in (None, [], {}, ""))


def _axis(rest: dict[str, Any]) -> str | None:
    """The first tag "axis:…" of a HealthBench criterion; it is removed from the tags."""
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
    """Parse a JSON string, such as a list in a CSV cell; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def keys_of(value: Mapping[Any, Any]) -> str:
    """The keys of a mapping, for error messages."""
    return ", ".join(map(str, value)) or "none"
