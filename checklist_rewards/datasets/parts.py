"""The parts of one criterion: values at keys that may lead inside, tags, and expected answers."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from checklist_rewards.checklists import NO, YES
from checklist_rewards.datasets.meanings import is_rank, plain
from checklist_rewards.datasets.names import ANSWERS, GRADES
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.cells import at, decoded


def keys_of(value: Mapping[Any, Any]) -> str:
    """The keys of a mapping, for error messages."""
    return ", ".join(map(str, value)) or "none"


def taken(rest: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, which is removed; what stands around it is left under dotted keys. Of a key with a
    star, the only value that is not null."""
    if key in rest:
        return rest.pop(key)
    if "." not in key:
        return None
    if "*" in key:
        outer, _, pattern = key.rpartition(".")
        inner = at(rest, outer)
        names = [name for name, found in inner.items() if fnmatch(name, pattern) and found is not None]
        return taken(rest, f"{outer}.{names[0]}") if len(names) == 1 else None
    value = at(rest, key)
    if value is not None:
        outer = next(name for name in rest if key.startswith(f"{name}."))
        inner = decoded(rest[outer])
        rest.pop(outer)
        name = key[len(outer) + 1 :]
        rest |= {f"{outer}.{other}": content for other, content in inner.items() if other != name.partition(".")[0]}
    return value


def axis_of(rest: dict[str, Any]) -> str | None:
    """The first tag "axis:…" of a HealthBench criterion, or else "cluster:…"; it is removed from the tags."""
    tags = rest.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    tag = next((tag for kind in ("axis:", "cluster:") for tag in tags if tag.startswith(kind)), None)
    if tag is None:
        return None
    rest["tags"] = [other for other in tags if other != tag]
    return tag.partition(":")[2]


def expecting(expected: Any, options: Any, where: str, key: str) -> list[dict[str, Any]] | None:
    """The options of a question with an expected answer; None for yes, which is what items expect."""
    answer = ANSWERS.get(str(expected).strip().lower())
    if answer is None or options is not None:
        raise ChecklistError(
            f"{where}: {key!r} must be yes or no, for a question without options; got {expected!r:.60}."
        )
    return None if answer == YES else [{"label": YES, "value": 0.0}, {"label": NO, "value": 1.0}]


def not_per_item(where: str, key: str, count: int, value: Any) -> ChecklistError:
    """The error of a column that should have one value per item."""
    return ChecklistError(
        f"{where}: {key!r} must be a key of the items, or a column with a list of {count} values (one per item); "
        f"got {value!r:.60}."
    )


def answer_in(value: Any) -> bool:
    """Whether a value is an answer: true, false, "yes", "N"."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ANSWERS)


def are_mappings(value: Any) -> bool:
    """Whether a value is a list of several mappings."""
    return isinstance(value, list) and len(value) > 1 and all(isinstance(entry, Mapping) for entry in value)


def names_grades(entries: list[Mapping[str, Any]], key: str) -> bool:
    """Whether the values of a key are different names of levels: A, B, C."""
    given = [entry.get(key) for entry in entries]
    names = {plain(name) for name in given if isinstance(name, str)}
    return len(names) == len(entries) and names <= GRADES and not any(is_rank(name) for name in names)
