"""promptfoo's configurations: a row for each test, and its assertions as criteria and code checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.files.rows import Row

_ASSERTIONS = (
    "contains",
    "icontains",
    "contains-all",
    "icontains-all",
    "contains-any",
    "icontains-any",
    "regex",
    "starts-with",
    "is-json",
    "equals",
)
_VARIABLE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%")


def promptfoo_rows(document: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """The tests of a promptfoo configuration. `{{name}}` in its only prompt and in assertions is replaced by the
    variables of a test, in one pass: braces in a value are text. Raises a [`SampleError`] for several prompts, and for
    a variable that is missing, a file, or a list, which is one test per entry."""
    prompts, defaults = document.get("prompts") or [], document.get("defaultTest") or {}
    shared = defaults if isinstance(defaults, dict) else {}
    for number, test in enumerate(document["tests"], start=1):
        where = f"{path}, test {number}"
        if not isinstance(test, dict):
            raise SampleError(f"{where}: expected a mapping, got {test!r:.60}.")
        values = {**(shared.get("vars") or {}), **(test.get("vars") or {})}
        for name, value in values.items():
            if isinstance(value, list) or str(value).startswith("file://"):
                raise SampleError(
                    f"{where}: the variable {name!r} must be one value, got {value!r:.60}; write one test per value."
                )
        if len(prompts) != 1 or not isinstance(prompts[0], str) or prompts[0].startswith("file://"):
            raise SampleError(f"{path}: 'prompts' must be a list of one text, got {prompts!r:.60}.")
        asserts = [*(shared.get("assert") or []), *(test.get("assert") or [])]
        filled = [
            {**entry, "value": _filled(entry["value"], values, f"{where}, assertion {place}")}
            if isinstance(entry, dict) and "value" in entry
            else entry
            for place, entry in enumerate(asserts, start=1)
        ]
        yield Row(number, {**values, "prompt": _filled(prompts[0], values, where), "assert": filled}, where)


def _filled(template: Any, values: Mapping[str, Any], where: str) -> Any:
    """A text, or the texts of a list, with the values of its variables."""
    if isinstance(template, list):
        return [_filled(one, values, where) for one in template]
    if not isinstance(template, str):
        return template

    def value_of(match: re.Match[str]) -> str:
        value: Any = values
        for name in match[1].split(".") if match[1] not in values else [match[1]]:
            if not isinstance(value, Mapping) or name not in value:
                raise SampleError(
                    f"{where}: the variable {match[0]} has no value; the variables are {', '.join(values) or 'none'}."
                )
            value = value[name]
        if isinstance(value, Mapping | list):
            raise SampleError(f"{where}: the variable {match[0]} must be one value, got {value!r:.60}.")
        written = {None: "", True: "true", False: "false"}  # as promptfoo writes them
        return written[value] if value is None or isinstance(value, bool) else str(value)

    if _TEMPLATE.search(_VARIABLE.sub("", template)):
        raise SampleError(f"{where}: only variables such as {{{{name}}}} can be filled, got {template!r:.60}.")
    return _VARIABLE.sub(value_of, template)


def criteria_of_asserts(value: Any, where: str) -> tuple[list[dict[str, Any]], int]:
    """The criteria of assertions, and the number of thresholds that were left out. `llm-rubric` is a criterion; those
    about words, regular expressions and JSON are checks. Raises a [`ChecklistError`] for others."""
    if not isinstance(value, list):
        raise ChecklistError(f"{where}: 'assert' must be a list, got {value!r:.60}.")
    criteria, thresholds = [], 0
    for number, entry in enumerate(value, start=1):
        place = f"{where}, item {number}"
        if not isinstance(entry, Mapping):
            raise ChecklistError(f"{place}: expected a mapping, got {entry!r:.60}.")
        kind, content = entry.get("type"), entry.get("value")
        item: dict[str, Any] = {"weight": entry.get("weight", 1), "category": entry.get("metric")}
        if kind == "llm-rubric":
            thresholds += entry.get("threshold") is not None
            criteria.append(item | {"question": content})
            continue
        check = _check_of_assertion(str(kind), content)
        if check is None:
            raise ChecklistError(
                f"{place}: the assertion {kind!r} cannot be imported; allowed: llm-rubric, {', '.join(_ASSERTIONS)}."
            )
        words = f"{kind} {content!r}" if content is not None else kind
        criteria.append(item | {"question": f"Does the response pass the assertion {words}?", "check": check})
    return criteria, thresholds


def _check_of_assertion(kind: str, value: Any) -> dict[str, Any] | None:
    positive = kind.removeprefix("not-")
    negated = positive != kind
    if positive not in _ASSERTIONS or value is None and positive != "is-json":
        return None
    if "contains" in positive:
        words = list(map(str, value)) if isinstance(value, list) else [str(value)]
        check = {"words": words, "whole_words": False, "ignore_case": positive.startswith("i")}
        if negated:
            return None if positive.endswith("-all") else {"type": "forbidden"} | check
        return {"type": "keywords", "need": "any" if positive.endswith("-any") else "all"} | check
    if positive == "is-json":
        return None if negated else {"type": "json"}
    escaped = re.escape(str(value))
    patterns = {"regex": str(value), "starts-with": rf"\A{escaped}", "equals": rf"\A{escaped}\Z"}
    return {"type": "regex", "pattern": patterns[positive]} | ({"exactly": 0} if negated else {"at_least": 1})
