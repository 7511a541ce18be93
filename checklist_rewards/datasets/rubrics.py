"""The format of rows whose format is not named: a packaged one that fits, or one that is inferred.

[`inferred`] finds prompt and criteria by the shapes of values and by the names of keys (`names.py`): a list of objects
with a text and a number, numbered text, levels, a tree, verifiable instructions. If several values could be meant, it
raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from checklist_rewards.datasets.formats import ROWS, Format, Shape, known_formats
from checklist_rewards.datasets.meanings import answer_in, holds_faults
from checklist_rewards.datasets.names import (
    AROUND,
    CATEGORIES,
    EXPECTED,
    INNER,
    LISTS,
    PROMPTS,
    QUESTIONS,
    REFERENCES,
    TEXTS,
    WEIGHTS,
    WEIGHTS_BESIDE,
    spelled,
)
from checklist_rewards.datasets.texts import doubtful_levels, is_list, levels_of, names_levels, number_in, table_of
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import at, decoded, messages_in, places
from checklist_rewards.files.rows import SCORE_COLUMN
from checklist_rewards.judges.faults import is_question

_ALIKE = re.compile(
    r"rubric|criteri|checklist|requirement|pitfall|penalt|deduct|violation|demerit|must_?not|forbidden|hard_?rule|bonus",
    re.IGNORECASE,
)
_LEAST_TEXT = 12
"""Characters that texts of criteria have on average, where their key is not known."""


def detected(rows: Sequence[Mapping[str, Any]]) -> Format | None:
    """The packaged format that all of these rows fit, the most specific one; None if there is none."""
    fitting = [f for f in known_formats().values() if rows and all(_fits(f, row) for row in rows)]
    # of two formats that fit, the one with more keys is meant
    return max(fitting, key=lambda f: len(f.item) + len(f.prompt) + 2 * len(f.needs), default=None)


def _fits(format: Format, row: Mapping[str, Any]) -> bool:
    """Whether a row has all keys of this format."""
    value = decoded(criteria_at(row, format.checklist))
    prompts = [key.format(n=0) if "{n}" in key else key for key in format.prompt]
    needed = (*([] if format.promptless else prompts[:1]), *format.needs)
    if value is None or any(at(row, key) is None for key in needed):
        return False
    if format.shape != "items" or not format.item:
        return format.shape == _shape_of(value, format.checklist)
    first = next(_entries([value] if isinstance(value, str) else value), None)
    must = ("question", "expected", *(() if format.default_weight is not None else ("weight",)))
    parts = [format.item[part].partition(".*")[0] for part in must if part in format.item]
    if isinstance(first, str):
        beside = [key for part, key in format.item.items() if part != "question"]
        return bool(beside) and all(at(row, key) is not None for key in beside)
    return isinstance(first, Mapping) and all(key in first or at(first, key) is not None for key in parts)


def inferred(
    rows: Sequence[Mapping[str, Any]], where: str, checklist: str | None, prompt: Sequence[str] | None
) -> Format:
    """The format of the first rows of a file that no known format fits, found by the shapes of their values.
    `checklist` and `prompt` are the keys that the user named. Raises a [`SampleError`] that names what was
    found if no value, or more than one, could be the criteria."""
    if checklist is None:
        first, (key, shape) = _first_criteria(rows, where)
    else:
        first, key, shape = rows[0], checklist, _shape_at(rows[0], checklist, where)
    entries = [entry for row in rows for entry in _entries(decoded(at(row, key)))]
    item = _parts(entries, first) if shape == "items" else {"question": "requirements"} if shape == "tree" else {}
    found = () if prompt is not None else prompt_keys(first, key) or (("prompt",) if "prompt" in first else ())
    keys = tuple(prompt or found)
    reference = next((name for name in first if name.lower() in REFERENCES and isinstance(first[name], str)), None)
    taken = {*keys, key.partition(".")[0]}
    return Format(
        name=ROWS,
        checklist=key,
        shape=shape,
        prompt=keys,
        item=item,
        default_weight=1.0 if item.get("question") == "question" else None,
        reference=None if reference in taken else reference,
    )


def in_a_rubric(key: str) -> str:
    """The key of the mapping around criteria if it is a rubric; what else it has belongs to them. Otherwise empty."""
    outer = key.rpartition(".")[0]
    name = outer.rpartition(".")[2].lower()
    return outer if name in LISTS or (name and _ALIKE.search(name)) else ""


def numbered(row: Mapping[str, Any], key: str) -> list[str]:
    """The keys of a row that a key with "{n}" stands for, in order."""
    return [name for n in range(len(row) + 1) if (name := key.format(n=n)) in row] if "{n}" in key else []


def criteria_at(row: Mapping[str, Any], key: str) -> Any:
    """The criteria of a row; None if there are none."""
    if "{n}" not in key:
        return at(row, key)
    return [row[name] for name in numbered(row, key) if row[name] not in (None, "")] or None


def copies(row: Mapping[str, Any], key: str) -> list[str]:
    """The other places of a row that hold the same criteria as `key`."""
    value = decoded(criteria_at(row, key))
    return [name for name, other in places(row) if name != key and other == value and isinstance(value, list | dict)]


def _entries(value: Any) -> Iterator[Any]:
    """The criteria in a list, its sections, or a mapping of lists."""
    value = decoded(value)
    value = table_of(value) or value
    if isinstance(value, Mapping):
        inner = [value[key] for key in INNER if key in value]
        lists = inner[:1] or [entry for entry in value.values() if isinstance(decoded(entry), list)]
        for entry in lists:
            yield from _entries(entry)
        value = [] if lists else list(value.values())
    for entry in map(decoded, value) if isinstance(value, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("criteria"), list):
            yield from _entries(entry["criteria"])
        else:
            yield entry


def _shape_of(value: Any, key: str) -> Shape | None:
    """The shape of criteria that a value at a key has; None if it has none."""
    value, name = decoded(value), key.rpartition(".")[2].lower()
    listed = name in LISTS
    if isinstance(value, str):
        if not listed:
            return "items" if name in QUESTIONS and is_question(value) else None
        if len(levels_of(value, sure=False)) > 1:
            return "levels"
        return "items" if table_of(value) else "text" if is_list(value) else "items" if is_question(value) else None
    if isinstance(value, Mapping):
        if {"instruction_id_list", "instruction_id", "func_name"} & value.keys():
            return "instructions"
        if {"requirements", "sub_tasks"} <= value.keys():
            return "tree"
        numbered = any(number_in(str(key)) is not None for key in value)
        if len(levels_of(value, sure=False)) > 1 and (listed or not numbered):
            return "levels"
        if listed and (names_levels(value) or doubtful_levels(value)):
            return "levels"  # its reader asks
        if listed and value and all(isinstance(n, int | float) for n in value.values()):
            return "items" if all(" " in str(text).strip() for text in value) else None
        inner = next((key for key in INNER if key in value), None)
        if inner is not None and not {*value} <= {inner, *AROUND}:
            return None  # its list is found by itself
        if inner is None and len(value) == 1 and not listed:
            return None  # so is its only value
        if inner is None and len({type(decoded(one)) for one in value.values()} - {int, float}) > 1:
            return None  # no sections; so are the criteria among its values
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        if {"instruction_id_list", "instruction_id", "func_name"} & value[0].keys():
            return "instructions"
        if name == "assert":
            return "asserts"
    return "items" if _are_items(value, listed or _names_criteria(name)) else None


def _are_items(value: Any, named: bool) -> bool:
    """Whether a value holds criteria as a list of texts or mappings, in sections or not. `named`: its key says so."""
    entries = [entry for entry in _entries(value) if entry is not None]
    if not entries or not all(isinstance(entry, Mapping | str) for entry in entries):
        return False
    mappings = [entry for entry in entries if isinstance(entry, Mapping)]
    if not mappings:
        return named or all(map(is_question, entries))
    if any("role" in entry or {"from", "value"} <= entry.keys() for entry in mappings):
        return False
    text = _text_key(mappings)
    if text is None:
        return named and all(len(levels_of(entry)) > 1 for entry in mappings)  # a grade for each
    sure = named or text in ("question", "criterion", "requirement")
    return sure or (bool(_first(mappings, WEIGHTS, int | float | str)))


def _first(entries: Sequence[Mapping[str, Any]], names: Sequence[str], kind: Any) -> str | None:
    """The first of `names` that is a key of all entries, with values of a kind; in the file's own spelling."""
    if not entries:
        return None
    own = {spelled(key): str(key) for key in entries[0]}
    for name in names:
        key = own.get(name)
        if key and all(isinstance(entry.get(key), kind) and not isinstance(entry.get(key), bool) for entry in entries):
            return key
    return None


def _text_key(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """The key of the text of items: one of the names of texts, otherwise the key with the longest texts."""
    if found := _first(entries, TEXTS, str):
        return found
    named = [str(key) for key in (entries[0] if entries else ()) if number_in(str(key)) is None]
    texts = [key for key in named if all(isinstance(entry.get(key), str) for entry in entries)]
    lengths = {key: sum(len(entry[key]) for entry in entries) / len(entries) for key in texts}
    longest = max(lengths, key=lambda key: lengths[key], default=None)
    return longest if longest is not None and lengths[longest] >= _LEAST_TEXT else None


def _parts(entries: Sequence[Any], row: Mapping[str, Any]) -> dict[str, str]:
    """The key of each part of items."""
    mappings = [entry for entry in entries if isinstance(entry, Mapping)]
    text = _text_key(mappings) or "question"
    parts = {"question": text}
    present = {spelled(key): str(key) for entry in mappings for key, value in entry.items() if value is not None}
    for part, names in (("weight", WEIGHTS), ("expected", EXPECTED), ("category", CATEGORIES)):
        others = [present[name] for name in names if name in present and present[name] != text]
        if part == "expected":
            given = {key: [entry[key] for entry in mappings if entry.get(key) is not None] for key in others}
            others = [key for key, values in given.items() if all(map(answer_in, values))]
        if others:
            parts[part] = others[0]
    if "weight" not in parts:
        beside = {name.lower(): name for name in row if isinstance(decoded(row[name]), list)}
        if key := next((beside[name] for name in WEIGHTS_BESIDE if name in beside), None):
            parts["weight"] = key
    for part, meant in _OWN_PARTS.items():
        if part in present and present[part] != text and (part != "id" or text == "question"):
            values = [decoded(entry.get(present[part])) for entry in mappings]
            if all(value is None or meant(value) for value in values):
                parts[part] = present[part]
    return parts


_OWN_PARTS: Mapping[str, Callable[[Any], bool]] = {
    "required": answer_in,
    "options": lambda value: isinstance(value, list | Mapping),
    "check": lambda value: isinstance(value, Mapping) and "type" in value,
    "id": lambda value: True,
}
"""Parts that are taken where their values are what this package means by the name."""


def _first_criteria(rows: Sequence[Mapping[str, Any]], where: str) -> tuple[Mapping[str, Any], tuple[str, Shape]]:
    """The first row that has criteria, with their key and shape."""
    for row in rows:
        with suppress(SampleError):
            return row, _criteria(row, where)
    return rows[0], _criteria(rows[0], where)  # raises


def _criteria(row: Mapping[str, Any], where: str) -> tuple[str, Shape]:
    """The key and the shape of the criteria of a row."""
    found = [(key, shape, value) for key, value in places(row) if (shape := _shape_of(value, key))]
    outer = [one for one in found if not any(one[0].startswith(f"{key}.") for key, _, _ in found)]
    whole = _shape_of(row, "")
    if whole in ("instructions", "levels", "tree") and not any(shape == whole for _, shape, _ in outer):
        return "", whole
    different = [one for n, one in enumerate(outer) if all(one[2] != other[2] for other in outer[:n])]
    named = [one for one in different if one[0].rpartition(".")[2].lower() in LISTS]
    chosen = different if len(different) == 1 else named
    if len(chosen) == 1:
        key, shape, value = chosen[0]
        if others := alike(row, key, value):
            raise ambiguous(where, [key, *others])
        return key, shape
    if not different and _shape_of({"rubric": row}, "rubric") == "items" and not prompt_keys(row, ""):
        return "", "items"
    keys = ", ".join(map(str, row)) or "none"
    if not different:
        raise SampleError(
            f"{where}: no criteria found. The keys are {keys}. Name the key of the criteria with --checklist-key and "
            "the keys of their parts with --item-key, or describe the format in a YAML file (--format mine.yaml)."
        )
    raise ambiguous(where, [one[0] for one in different])


def alike(row: Mapping[str, Any], key: str, value: Any) -> list[str]:
    """The other columns of a row that sound like criteria, and have some that are not those of `key`. A score of this
    package has answers, not criteria."""
    found = []
    for name, other in row.items():
        if name != SCORE_COLUMN and _ALIKE.search(str(name)) and not f"{key}.".startswith(f"{name}."):
            other = decoded(other)
            if isinstance(other, list | Mapping) and other not in ([], {}, value):
                found.append(str(name))
    return found


def _names_criteria(name: str) -> bool:
    """Whether a key is one of criteria, and not one of faults alone."""
    return _ALIKE.search(name) is not None and holds_faults(name) == "no"


def ambiguous(where: str, keys: Sequence[str]) -> SampleError:
    """The error of a row with several values that could be its criteria."""
    return SampleError(
        f"{where}: several values could be the criteria: {', '.join(keys)}. Name one with --checklist-key; for "
        "more than one, write them into one mapping of sections."
    )


def _shape_at(row: Mapping[str, Any], key: str, where: str) -> Shape:
    value = decoded(at(row, key))
    if value is None and key not in row:
        return "items"  # the error names the row and its keys
    leaf = key if key.rpartition(".")[2].lower() in LISTS else f"{key}.rubric"
    return _shape_of(value, leaf) or "items"


def prompt_keys(row: Mapping[str, Any], checklist: str) -> tuple[str, ...]:
    """The keys of the prompt of a row; outer ones first."""
    for depth in (1, 3):
        candidates: dict[str, str] = {}
        for key, value in places(row, depth=depth):
            value = messages_in(value)
            messages = value.get("messages") if isinstance(value, Mapping) else value
            chat = (
                isinstance(messages, list)
                and bool(messages)
                and all(isinstance(m, Mapping) and ("role" in m or {"from", "value"} <= m.keys()) for m in messages)
            )
            if key != checklist and (chat or isinstance(value, str)):
                candidates.setdefault(key.rpartition(".")[2].lower(), key)
                if chat:
                    candidates.setdefault("chat", key)
        if "instruction" in candidates and "input" in candidates and not {"prompt", "question"} & candidates.keys():
            return (candidates["instruction"], candidates["input"])
        if name := next((name for name in (*PROMPTS, "chat") if name in candidates), None):
            return (candidates[name],)
    return ()
