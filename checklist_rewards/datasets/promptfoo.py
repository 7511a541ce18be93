"""promptfoo's configurations: a row for each test and prompt, and its assertions as criteria and code checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.files.cells import at
from checklist_rewards.files.rows import Row

_CONTAINS = ("contains", "icontains", "contains-all", "icontains-all", "contains-any", "icontains-any")
_ASSERTIONS = (*_CONTAINS, "regex", "starts-with", "is-json", "equals")
_READ = ("type", "value", "weight", "metric")
_OF_THE_JUDGE = ("threshold", "provider", "rubricPrompt")  # how promptfoo calls its own
_CHANGES = ("transform", "postprocess", "transformVars", "prefix", "suffix")  # the prompt, or the text that is judged
_VARIABLE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\Afile://")
_FILE = re.compile(r"(?s)(?:file://|exec:).*|[^\s{}]*[/*\\][^\s{}]*|[^\s{}]+\.\w{2,5}(?::\w+)?")
"""A prompt that names a file, or a pattern of files."""
_FIELD = re.compile(r'\s*(?:"([^"]*)"|([^,]+))')
"""A word in a text with several, which are separated by commas and may be in quotes."""


def promptfoo_rows(document: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """The tests of a promptfoo configuration, each with every prompt. `{{name}}` in prompts and assertions is replaced
    by the variables of a test, in one pass: braces in a value are text. Raises a [`SampleError`] for what is in other
    files, a variable that is missing, or a list, which is one test per entry, and for options that change more."""
    prompts, tests = _prompts(document.get("prompts"), path), document.get("tests")
    shared = _mapping(document, "defaultTest", str(path))
    if not isinstance(tests, list) or document.get("scenarios"):
        raise SampleError(f"{path}: 'tests' must be a list with all tests, without 'scenarios'; got {tests!r:.60}.")
    for number, test in enumerate(tests, start=1):
        where = f"{path}, test {number}"
        if not isinstance(test, dict):
            raise SampleError(f"{where}: expected a mapping, got {test!r:.60}.")
        values = {**_mapping(shared, "vars", where), **_mapping(test, "vars", where)}
        options = {**_mapping(shared, "options", where), **_mapping(test, "options", where)}
        if changed := next(filter(options.get, _CHANGES), None):
            raise SampleError(f"{where}: the option {changed!r} cannot be imported; remove it.")
        common = [] if options.get("disableDefaultAsserts") else shared.get("assert") or []
        filled = filled_asserts([*common, *(test.get("assert") or [])], values, where)
        for prompt in prompts:
            yield Row(number, {**values, "prompt": _filled(prompt, values, where), "assert": filled}, where)


def filled_asserts(asserts: list[Any], values: Mapping[str, Any], where: str) -> list[Any]:
    """Assertions with the values of the variables of their test. Raises a [`SampleError`] as [`promptfoo_rows`]."""
    return [
        entry
        if not isinstance(entry, Mapping) or "value" not in entry
        else {**entry, "value": _filled(entry["value"], values, f"{where}, assertion {place}")}
        for place, entry in enumerate(asserts, start=1)
    ]


def _mapping(outer: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value := outer.get(key) or {}, Mapping):
        raise SampleError(f"{where}: {key!r} must be a mapping, got {value!r:.60}.")
    return value


def _prompts(given: Any, path: Path) -> list[str]:
    """The texts of the prompts, which may have a name."""
    prompts = given if isinstance(given, list) else [given]
    texts: list[Any] = [prompt.get("raw") if isinstance(prompt, Mapping) else prompt for prompt in prompts]
    if not all(isinstance(text, str) and not _FILE.fullmatch(text) for text in texts):
        raise SampleError(f"{path}: 'prompts' must be a text or a list of texts, no files; got {given!r:.60}.")
    return texts


def _filled(template: Any, values: Mapping[str, Any], where: str) -> Any:
    """A text, or the texts of a list, with the values of its variables."""
    if isinstance(template, list):
        return [_filled(one, values, where) for one in template]
    if not isinstance(template, str):
        return template

    def value_of(match: re.Match[str]) -> str:
        value = at(values, match[1])
        if value is None and match[1] not in values:
            raise SampleError(
                f"{where}: the variable {match[0]} has no value; the variables are {', '.join(values) or 'none'}."
            )
        if isinstance(value, Mapping | list) or str(value).startswith("file://"):
            raise SampleError(f"{where}: the variable {match[0]} must be one value, got {value!r:.60}.")
        written = {None: "", True: "true", False: "false"}  # as promptfoo writes them
        return written[value] if value is None or isinstance(value, bool) else str(value)

    if _TEMPLATE.search(_VARIABLE.sub("", template)):
        raise SampleError(
            f"{where}: only variables such as {{{{name}}}} can be filled, no files; got {template!r:.60}."
        )
    return _VARIABLE.sub(value_of, template)


def criteria_of_asserts(value: Any, where: str) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The criteria of assertions, and the keys that were left out. `llm-rubric` is a criterion; those about words,
    regular expressions and JSON are checks. Raises a [`ChecklistError`] for others, and for other keys."""
    if not isinstance(value, list):
        raise ChecklistError(f"{where}: 'assert' must be a list, got {value!r:.60}.")
    criteria: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    for number, entry in enumerate(value, start=1):
        place = f"{where}, item {number}"
        if not isinstance(entry, Mapping):
            raise ChecklistError(f"{place}: expected a mapping, got {entry!r:.60}.")
        kind, content = entry.get("type"), entry.get("value")
        check = None if kind == "llm-rubric" else _check_of_assertion(str(kind), content)
        if check is None and kind != "llm-rubric":
            of = "" if content is None else f" with the value {content!r:.60}"
            raise ChecklistError(
                f"{place}: the assertion {kind!r}{of} cannot be imported; allowed: llm-rubric, "
                f"{', '.join(_ASSERTIONS)}."
            )
        if other := next((key for key in entry if key not in (*_READ, *_OF_THE_JUDGE)), None):
            raise ChecklistError(f"{place}: the key {other!r} cannot be imported; allowed: {', '.join(_READ)}.")
        dropped.update(key for key in _OF_THE_JUDGE if entry.get(key) is not None)
        item = {"question": content, "weight": entry.get("weight", 1), "category": entry.get("metric")}
        if check is not None:
            words = f"{kind} {content!r}" if content is not None else kind
            item |= {"question": f"Does the response pass the assertion {words}?", "check": check}
        criteria.append(item)
    return criteria, dropped


def _check_of_assertion(kind: str, value: Any) -> dict[str, Any] | None:
    """The check of an assertion; None for one that has none, and for values that promptfoo reads in another way."""
    positive = kind.removeprefix("not-")
    negated = positive != kind
    if positive == "is-json":
        return {"type": "json"} if value in (None, "") and not negated else None  # a value is a schema
    several = positive.endswith(("-any", "-all"))
    if several and isinstance(value, str):
        value = [word for quoted, plain in _FIELD.findall(value) if (word := quoted or plain.strip())]
    words = value if several and isinstance(value, list) else [value]
    if positive not in _ASSERTIONS or not words or any(type(word) not in (str, int, float) for word in words):
        return None
    words = list(map(str, words))
    if positive in _CONTAINS:
        check = {"words": words, "whole_words": False, "ignore_case": positive.startswith("i")}
        if negated:
            return None if positive.endswith("-all") else {"type": "forbidden"} | check
        return {"type": "keywords", "need": "any" if positive.endswith("-any") else "all"} | check
    escaped = re.escape(words[0])
    patterns = {"regex": words[0], "starts-with": rf"\A{escaped}", "equals": rf"\A{escaped}\Z"}
    return {"type": "regex", "pattern": patterns[positive]} | ({"exactly": 0} if negated else {"at_least": 1})
