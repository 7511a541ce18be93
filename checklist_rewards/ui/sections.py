"""Parts of the report that are only a table: results of other commands, costs, and what a monitor recorded.

A section has a heading, a note, the heads of a table, and rows of cells. A cell is a text, a whole number, a figure
(`{"value": 0.5, "low": 0.4, "high": 0.6}`, with or without an interval), or None for nothing. The page shows all of
them as text. A head that is a pair with "n" is of numbers. A result that lacks a field is one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from checklist_rewards.errors import SampleError

_MOST_ATTACKS, _MOST_FALLEN = 25, 8
_REASONS = {
    "empty": "no text",
    "other_prompt": "a response to another prompt",
    "prompt": "the prompt itself",
    "words_removed": "a response without the words of one item",
}
Section = dict[str, Any]


def section(heading: str, heads: Sequence[Any], rows: Sequence[Sequence[Any]], note: str = "") -> Section:
    """A section. Heads are texts, or pairs of a text and "n" for numbers."""
    return {"heading": heading, "note": note, "heads": heads, "rows": rows}


def of_document(name: str, kind: str, value: Mapping[str, Any]) -> list[Section]:
    """The sections of a JSON result, such as the file of `attack` or a `--summary`.

    Raises:
        SampleError: If a field is missing or of another type.
    """
    parts = {"agree": _tests, "calibrate": _calibration, "attack": _attack, "summary": _cost}
    try:
        return list(parts[kind](name, value)) if kind in parts else []
    except (KeyError, TypeError, AttributeError) as error:
        raise SampleError(f"{name} is not a complete result of {kind} ({type(error).__name__}: {error}).") from None


def of_monitor(canaries: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]]) -> list[Section]:
    """What the judge gave to degenerate replies, and which parts of a monitor failed."""
    replies = [
        [f"step {one['step']:,}", one.get("canary"), _number(one.get("score")), one.get("completion") or "(empty)"]
        for one in canaries
    ]
    failed = [[f"step {one['step']:,}", one.get("part"), one.get("error")] for one in failures]
    about = "Degenerate replies, and the score that the judge gives them."
    lost = "Parts of the monitor that failed; training went on without them."
    found = [section("Canaries", ["step", "reply", ["score", "n"], "text"], replies, about)] if replies else []
    return found + ([section("Failures", ["step", "part", "error"], failed, lost)] if failed else [])


def of_overview(facts: Mapping[str, Any]) -> list[Section]:
    """The judges, settings and checklists of a file, from its figures."""
    judges = [
        [one["judge"] or "not recorded", one["method"] or "not recorded", one["reads"]] for one in facts["judges"]
    ]
    settings = [[one["settings"], one["rows"]] for one in facts["settings"]]
    lists = [[one["id"], one["rows"]] for one in facts["checklist_ids"]]
    least = "at least " if facts["checklists_more"] else ""
    number = f"{facts['checklists']:,} checklist{'s' * (facts['checklists'] != 1)}"
    most = "; the most frequent:" if facts["checklists"] > len(lists) else ":"
    return [
        section("Judge", ["judge", "read by", ["questions", "n"]], judges),
        section("Settings", ["settings", ["rows", "n"]], settings),
        section("Checklists", ["checklist", ["rows", "n"]], lists, f"{least}{number}, by content hash{most}"),
    ]


def _number(value: Any) -> Any:
    return {"value": value} if isinstance(value, float) else value


def _file(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _named(figures: Mapping[str, Any]) -> list[list[Any]]:
    """Rows of a name and a number."""
    return [
        [name.replace("_", " "), _number(value)]
        for name, value in figures.items()
        if isinstance(value, int | float) or value is None
    ]


def _tests(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    for test in value["tests"]:
        yield section(
            f"{name}: {_file(test['one'])} against {_file(test['other'])}", ["", ["value", "n"]], _named(test)
        )


def _calibration(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    for kind, part in value["kinds"].items():
        columns = {"before": part["before"], **part["after"]}
        names = dict.fromkeys(figure for figures in columns.values() for figure in figures)
        rows = [[one.replace("_", " "), *(figures.get(one) for figures in columns.values())] for one in names]
        yield section(
            f"{name}: calibration of {value['judge']}, {kind} items",
            ["", *([column, "n"] for column in columns)],
            rows,
            f"Held-out figures before calibration and with each method: {part['reads']:,} questions, "
            f"{part['groups']:,} groups; chosen: {part['method']}.",
        )


def _cost(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    receipt = value.get("receipt") or {}
    flat = {key: one for key, one in {**value, **receipt}.items() if one is not None and not isinstance(one, dict)}
    rows = [
        [key.replace("_", " "), _number(one) if isinstance(one, int | float) else str(one)]
        for key, one in flat.items()
        if not isinstance(one, list)
    ]
    tokens = [
        [f"tokens of {model}", f"{prompt:,} in, {reply:,} out"]
        for model, (prompt, reply) in (receipt.get("tokens") or {}).items()
    ]
    yield section(f"Cost ({name})", ["", ["value", "n"]], rows + tokens)


def _attack(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    shown = [
        one for place, one in enumerate(value["attacks"]) if place < _MOST_ATTACKS or one["name"] == value["chosen"]
    ]
    rows = [
        [
            f"{one['name']}{' (chosen)' * (one['name'] == value['chosen'])}: {one['does']}",
            one["kind"],
            one["rise"],
            {"value": one["earned"]["value"]},
            None if one["beats"]["value"] is None else f"{one['beats']['value']:.0%}",
            one["failed"],
        ]
        for one in shown
    ]
    heads = ["attack", "kind", ["rise", "n"], ["earned", "n"], ["beats honest", "n"], ["failed", "n"]]
    note = (
        "Rise of the score of bad responses. Attacks were chosen on "
        f"{value['searched']:,} prompts and measured on {value['reported']:,} others; {value['reads']:,} reads."
    )
    yield section(f"{name}: attack on {value['judge']}", heads, rows, note)
    before = [[_REASONS.get(reason, reason), figure] for reason, figure in value["bad"].items()]
    before.append(["honest responses", value["honest"]])
    yield section("Before an attack", ["", ["score", "n"]], before)
    for heading, groups in (
        ("Kinds of questions that fall", value["kinds"]),
        ("Items that fall", value["fallen"]),
    ):
        fallen = [
            [one["name"], f"{one['fell'] / one['failed'] if one['failed'] else 0:.0%}", one["failed"], one["attack"]]
            for one in groups[:_MOST_FALLEN]
        ]
        if fallen:
            yield section(heading, ["", ["falls", "n"], ["of", "n"], "most often under"], fallen)
    for one in value["examples"]:
        texts = [
            ["prompt", None, one["prompt"]],
            [_REASONS.get(one["reason"], one["reason"]), {"value": one["score"]}, one["response"]],
            ["attacked", {"value": one["attacked_score"]}, one["attacked"]],
        ]
        if one.get("honest") is not None:
            texts.append(["honest", {"value": one["honest_score"]}, one["honest"]])
        yield section(f"{name}: example of {one['attack']}", ["", ["score", "n"], "text"], texts)
