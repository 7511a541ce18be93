"""Parts of the report that are only a table or a list: agreement, results of other commands, costs, what a monitor
recorded, and what to look at first.

A section has a heading, a note, the heads of a table, and rows of cells. A cell is a text, a whole number, a figure
(`{"value": 0.5, "low": 0.4, "high": 0.6}`, with or without an interval, and `digits` other than 3), or None for
nothing. The page shows all of them as text. A head that is a pair with "n" is of numbers. A result that lacks a field
is one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from checklist_rewards.attacks.attack import REASONS
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.items import FLAGS, ItemAnalysis, ItemReport
from checklist_rewards.scores.reasons import ADVICE
from checklist_rewards.ui.figures import FileFigures, many
from checklist_rewards.validation import install, is_finite, missing

_MOST_ITEMS, _MOST_ATTACKS, _MOST_FALLEN, _LOW_MASS = 200, 25, 8, 0.9
_MOST_FLIPPED, _MOST_FLIPS, _MOST_CHECKLISTS = 50, 3, 5
_CURVES = {
    "Rewarded and held-out items": {
        "reward_rewarded": "mean credit of rewarded items",
        "reward_held_out": "of held-out items",
    },
    "Judge and shadow judge": {"shadow_own": "judge", "shadow_reward": "shadow judge"},
    "Reward at the length of the start": {"reward_mean": "reward", "length_matched": "at the length of the start"},
    "Label mass and unanswered questions": {"label_mass": "label mass", "unanswered": "unanswered"},
}
ABOUT = {"hacking": "reward hacking", "judge": "the judge", "training": "training"}
"""What the signals of a monitor are about."""
Section = dict[str, Any]


def section(heading: str, heads: Sequence[Any], rows: Sequence[Sequence[Any]], note: str = "") -> Section:
    """A section. Heads are texts, or pairs of a text and "n" for numbers."""
    return {"heading": heading, "note": note, "heads": heads, "rows": rows}


def of_document(name: str, kind: str, value: Mapping[str, Any]) -> list[Section]:
    """The sections of a JSON result, such as the file of `attack` or a `--summary`.

    Raises:
        SampleError: If a field is missing or of another type.
    """
    try:
        return list(DOCUMENTS[kind][1](name, value))
    except (KeyError, TypeError, AttributeError) as error:
        raise SampleError(f"{name} is not a complete result of {kind} ({type(error).__name__}: {error}).") from None


def of_comparison(compared: Mapping[str, Any], heading: str = "Agreement") -> list[Section]:
    """A comparison of `agree`: the figures of all kinds of items side by side, and the answers to each kind."""
    kinds = {**compared["items"], "target scores": compared.get("targets"), "preferences": compared.get("preferences")}
    kinds = {kind: part for kind, part in kinds.items() if part and part["units"]}
    figures = [part["figures"] for part in kinds.values()]
    names = dict.fromkeys(name for one in figures for name in one)
    known = [name for name in names if any(one.get(name, {}).get("value") is not None for one in figures)]
    rows = [["units", *(part["units"] for part in kinds.values())]]
    rows += [[_words(name), *(one.get(name) for one in figures)] for name in known]
    note = f"Coverage {_short(compared['coverage'])} of {compared['units']:,} items."
    for field, text in (
        ("unmatched_rows", "rows are on one side only."),
        ("unmatched_items", "items are on one side only."),
        ("no_answer", "rows have no answer and are left out."),
    ):
        if compared.get(field):
            note += f" {compared[field]:,} {text}"
    if compared.get("ranked"):
        note += " The labels of whole responses are not on the scale from 0 to 1, so only their correlation with the "
        note += "scores is shown."
    if compared.get("code_checks"):
        equal = f"{compared['code_checks_equal']:,} of {compared['code_checks']:,}"
        note += f" Code checks: {equal} agree (they count in target scores only)."
    found = [section(heading, ["", *([kind, "n"] for kind in kinds)], rows, note)]
    for kind, part in kinds.items():
        if part.get("confusion"):
            answers = [[label, *row] for label, row in zip(part["labels"], part["confusion"], strict=True)]
            note = f"Rows: {compared['one']}. Columns: {compared['other']}."
            heads = ["", *([label, "n"] for label in part["labels"])]
            found.append(section(f"Answers to {kind} items", heads, answers, note))
    return found


def of_flips(items: Sequence[Mapping[str, Any]], heading: str, note: str, *, against: bool) -> Section:
    """Per item, how often the two sides answered differently, and kappa, with the `ids` of the items. With `against`,
    the second side is labels."""
    shown = items[:_MOST_FLIPPED]
    rows = []
    for one in shown:
        share = f" ({100 * one['flipped'] / one['answered']:.1f} %)" if one["answered"] else ""
        flips = [f"{flip['one']} → {flip['other']}: {flip['count']}" for flip in one["flips"][:_MOST_FLIPS]]
        figures = [{"value": one.get(name)} for name in ("accuracy", "kappa", *(["f1"] if against else []))]
        question = f"{'penalty: ' * one['penalty']}{one['question']}{' (code check)' * one['by_code']}"
        rows.append([question, one["answered"], f"{one['flipped']:,}{share}", "; ".join(flips), *figures])
    heads = ["item", ["both answered", "n"], ["wrong" if against else "flips", "n"]]
    heads += ["judge → people" if against else "first → second", ["accuracy", "n"], ["kappa", "n"]]
    more = f" {len(items) - len(shown):,} more items, with fewer differences." if len(items) > len(shown) else ""
    return {
        **section(heading, [*heads, *([["F1", "n"]] if against else [])], rows, note + more),
        "ids": [one["id"] for one in shown],
    }


def of_rates(rates: Sequence[Mapping[str, Any]]) -> list[Section]:
    """The rates of `agree`: of the judge, of the labels alone, and corrected."""
    rows = [
        [one["name"], one["judged"], one["labelled_units"], one["labelled"], one["refused"] or one["corrected"]]
        for one in rates[:_MOST_ITEMS]
    ]
    note = "The judge's rates over all rows, the rates of the labels, and the judge's rates corrected by the labels."
    heads = ["rate", ["by the judge", "n"], ["labels", "n"], ["by labels", "n"], ["corrected", "n"]]
    return [section("Rates corrected by labels", heads, rows, note)] if rows else []


def of_calibration(kinds: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """The figures of `calibrate` before calibration, per kind of item."""
    heads = ["", ["before calibration", "n"]]
    return [
        section(f"{kind} items, {many(part['reads'], 'question')}", heads, _named(part["figures"]))
        for kind, part in kinds.items()
    ]


def monitor_verdict(monitor: Mapping[str, Any]) -> str:
    """The alarms of a monitor in one sentence."""
    if not monitor["steps"]:
        return f"{monitor['name']} has seen no step yet."
    steps = many(len(monitor["steps"]), "step")
    raised = [f"{_words(one['signal'])} ({one['about']})" for one in monitor["alarms"]]
    if not raised:
        return f"No alarm in {steps}."
    return f"{many(len(raised), 'alarm')} in {steps}: {', '.join(dict.fromkeys(raised))}."


def item_analysis(figures: FileFigures) -> dict[str, Any] | None:
    """The figures of `inspect`, or why they are missing; None for a file without scores."""
    if not figures.analysis.targets:
        return None
    if missing("numpy"):
        return {"missing": f"Item analysis requires numpy: {install('evaluation')}."}
    return analysed(figures.analysis, figures.analysis.report())


def analysed(analysis: ItemAnalysis, reports: Sequence[ItemReport]) -> dict[str, Any]:
    """An item analysis for the page: the number of `flagged` items, the `verdict` and the `sections`."""
    flagged = sum(bool(one.flags) for one in reports)
    flags = f"{flagged:,} of {many(len(reports), 'item')} {'has' if flagged == 1 else 'have'} flags."
    verdict = f"Without labels, the accuracy of the judge is unknown. {flags}"
    found = {"targets": analysis.targets, "no_answer": analysis.no_answer, "flags": FLAGS}
    return {
        "flagged": flagged,
        "verdict": verdict,
        "sections": of_analysis({**found, "items": list(map(asdict, reports))}),
    }


def of_analysis(figures: Mapping[str, Any], name: str = "") -> list[Section]:
    """The items of an analysis, those with the most flags first, with their `ids`; and what the flags mean."""
    order = sorted(figures["items"], key=lambda one: -len(one["flags"]))
    measured = [name for name in ("similarity", "stability") if any(one[name] is not None for one in order)]
    columns = ("pass_rate", "variance", "discrimination", "phi", *measured)
    rows = []
    for one in order[:_MOST_ITEMS]:
        twins = [one[flag] for flag in ("same_answers", "same_words") if flag in one["flags"] and one[flag]]
        question = "\n".join([one["question"], *(f"like: {twin}" for twin in dict.fromkeys(twins))])
        flags = ", ".join(map(_words, one["flags"]))
        rows.append([question, one["answered"], *({"value": one[column]} for column in columns), flags])
    flagged = sum(bool(one["flags"]) for one in order)
    without = f" ({figures['no_answer']:,} without an answer are left out)" if figures["no_answer"] else ""
    more = f" {len(order) - _MOST_ITEMS:,} more items: see --json of inspect." if len(order) > _MOST_ITEMS else ""
    about = (
        f"{many(len(order), 'item')} over {many(figures['targets'], 'target')}{without}; {flagged:,} with flags. "
        "Discrimination is the correlation of an item with the rest of its checklist; phi that with the most similar "
        f"item. A penalty passes if the answer is no.{more}"
    )
    heads = ["question", ["answered", "n"], *([_words(column), "n"] for column in columns), "flags"]
    items = section(f"{name}: items" if name else "Item analysis", heads, rows, about)
    items["ids"] = [one["id"] for one in order[:_MOST_ITEMS]]
    raised = {flag for one in order for flag in one["flags"]}
    used = [[_words(flag), meaning] for flag, meaning in figures["flags"].items() if flag in raised]
    return [items, section("Flags", ["flag", "meaning"], used)] if used else [items]


def of_monitor(
    monitor: Mapping[str, Any], about: Mapping[str, Mapping[str, Any]], signals: Mapping[str, Sequence[Any]]
) -> list[Section]:
    """The signals of a monitor, what the judge gave to degenerate replies, and which parts of the monitor failed.
    `about` describes every signal, `signals` has the readings of those that had data."""
    numbers = ("last value", "size", "error", "largest", "threshold")
    heads = ["signal", "about", *([name, "n"] for name in numbers), "above it"]
    note = (
        "Size: what is compared with the threshold, mostly the change since the first steps, with its standard error."
    )
    silent = [_words(name) for name in about if name not in signals]
    if silent and monitor["steps"]:
        note += f" Not evaluated, because there were no data for them: {', '.join(silent)}."
    rows = [_signal(name, about.get(name, {}), readings) for name, readings in signals.items()]
    found = [section("Signals", heads, rows, note)]
    replies = [
        [f"step {one['step']:,}", one.get("canary"), _number(one.get("score")), one.get("completion") or "(empty)"]
        for one in monitor["canaries"]
    ]
    if replies:
        note = "Degenerate replies, and the score that the judge gives them."
        found.append(section("Canaries", ["step", "reply", ["score", "n"], "text"], replies, note))
    failed = [[f"step {one['step']:,}", one.get("part"), one.get("error")] for one in monitor["failures"]]
    if failed:
        note = "Parts of the monitor that failed; training went on without them."
        found.append(section("Failures", ["step", "part", "error"], failed, note))
    return found


def curves(statistics: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    """The charts of a monitor over its steps: the `label`, and the `lines` as pairs of a statistic and its name. A
    statistic without a value has no line."""
    known = {name for name, values in statistics.items() if any(value is not None for value in values)}
    charts = [
        {"label": label, "lines": [[name, shown] for name, shown in names.items() if name in known]}
        for label, names in _CURVES.items()
    ]
    return [chart for chart in charts if chart["lines"]]


def of_overview(figures: FileFigures) -> list[Section]:
    """The judges, settings and checklists of a file."""
    counted = figures.judges.most_common()
    judges = [[judge or "not recorded", method or "not recorded", reads] for (judge, method), reads in counted]
    settings, lists = figures.settings.most_common(), figures.checklists.most_common(_MOST_CHECKLISTS)
    note = f"{'at least ' * figures.is_cut_off}{many(len(figures.checklists), 'checklist')}, by content hash"
    note += "; the most frequent:" if len(figures.checklists) > len(lists) else ":"
    return [
        section("Judge", ["judge", "read by", ["questions", "n"]], judges),
        section("Settings", ["settings", ["rows", "n"]], settings),
        section("Checklists", ["checklist", ["rows", "n"]], lists, note),
    ]


def tiles(figures: FileFigures) -> list[list[Any]]:
    """The main numbers of a file: the name, the value, and what is to be known of it."""
    tally, interval = figures.tally, figures.tally.all.interval
    state: list[Any] = [{"value": None}, "not recorded in this file"]  # by earlier versions
    if known := figures.states.total():
        lost = sum(count for state, count, _ in figures.counted_states if state != "cut")
        unknown = f"{many(figures.without_state, 'row')} without a state" if figures.without_state else None
        state = [f"{lost:,} of {known:,}", unknown]
    without = f"{figures.without_score:,} without a checklist" if figures.without_score else None
    unscored = f"{many(tally.unscored, 'row')} without a score" if tally.unscored else None
    micro = "micro (DRFR)" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
    mass = "not reported by this judge"
    if figures.mass is not None:
        mass = "mean of the questions: the rest is on other words"
    return [
        ["rows", figures.rows, without],
        ["mean score", {"value": tally.mean, "digits": 4}, unscored],
        ["mean pass rate of a response", {"value": tally.macro, "digits": 4}, "macro"],
        ["answers that pass", {"value": tally.micro, "digits": 4}, micro],
        ["without an answer", *state],
        ["questions answered", f"{figures.answered:,} of {figures.tally.reads:,}", None],
        ["probability on the answers", {"value": figures.mass, "digits": 4}, f"label mass, {mass}"],
    ]


def attention(figures: FileFigures, analysis: Mapping[str, Any] | None, alarms: int) -> list[dict[str, Any]]:
    """What failed in a file and what to look at first, in order: `text` and `rest` of a line, whether it `failed`, and
    what a click shows: the rows of a `filter` of the page in an `order`, or a `view`."""
    lines: list[dict[str, Any]] = []

    def add(text: str, rest: str = "", *, failed: bool = True, **opens: Any) -> None:
        lines.append({"text": text, "rest": rest, "failed": failed, **opens})

    for reason, count in sorted(figures.tally.unanswered.items()):
        rest = "; ".join(filter(None, (ADVICE.get(reason), figures.details.get(reason))))
        add(f"{many(count, 'question')} unanswered: {reason}", rest, filter={"reason": reason})
    if unscored := figures.tally.unscored:
        add(f"{many(unscored, 'row')} without a score", "too few items were answered", filter={"unscored": True})
    for state, count, meaning in figures.counted_states:
        add(f"{many(count, 'response')} {_words(state)}", meaning, filter={"state": state})
    if figures.not_asked:
        rest = (
            f"The judge was not asked about {many(figures.not_asked, 'row')} without an answer: their scores count in "
            "the means, and not in questions and items."
        )
        add("", rest, failed=False)
    if alarms:
        rest = "signs of reward hacking, of the judge or of the training"
        add(f"{many(alarms, 'alarm')} of the monitor", rest, view="monitor")
    if figures.mass is not None and figures.mass < _LOW_MASS:
        rest = "the judge would often say something else (label mass); see checklist-rewards probe"
        add(f"The probability on the answers is {figures.mass:.3f}", rest)
    if flagged := (analysis or {}).get("flagged"):
        add(
            f"{many(flagged, 'item')} with flags", "Trust shows each flag with its meaning", failed=False, view="trust"
        )
    known = [
        (rate.micro or 0.0, id, line, rate.counted) for id, (line, rate, _) in figures.items.items() if rate.counted
    ]
    if len(known) > 1:
        share, id, line, counted = min(known, key=lambda one: one[0])
        text = f"Fails most: {'penalty: ' if line.weight < 0 else ''}{line.question}"
        rest = f"passes in {100 * share:.0f} % of {many(counted, 'answer')}"
        add(text, rest, failed=False, filter={"item": id, "answer": "fail"})
    if figures.tally.scored > 1:
        add("Rows with the lowest scores", failed=False, filter={}, order=["score", False])
    return lines


def _words(name: str) -> str:
    return name.replace("_", " ")


def _signal(name: str, about: Mapping[str, Any], readings: Sequence[Any]) -> list[Any]:
    known = [one for one in readings if isinstance(one, Mapping)]
    now, size, error = ([one[key] for one in known if is_finite(one.get(key))] for key in ("now", "size", "error"))
    threshold, above = about.get("threshold"), sum(bool(one.get("alarm")) for one in known)
    numbers = [values[-1] if values else None for values in (now, size, error)]
    numbers += [max(size, default=None), threshold if is_finite(threshold) else None]
    shown = _words(name) + (f"\n{about['doc']}" if about.get("doc") else "")
    whose = ABOUT.get(str(about.get("about")), about.get("about"))
    return [shown, whose, *({"value": number} for number in numbers), many(above, "step") if above else None]


def _number(value: Any) -> Any:
    return {"value": value} if isinstance(value, float) else value


def _short(figure: Mapping[str, Any]) -> str:
    """A figure with its interval, as text."""
    value, low, high = (figure.get(name) for name in ("value", "low", "high"))
    if value is None:
        return "–"
    return f"{value:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _named(figures: Mapping[str, Any]) -> list[list[Any]]:
    """Rows of a name and a value."""
    return [[_words(name), _number(value)] for name, value in figures.items()]


def _agreement(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    for one in value["comparisons"]:
        yield from of_comparison(one, f"{name}: {one['one']} and {one['other']}")
    for rates in (value.get("rates") or {}).values():
        yield from of_rates(rates)
    for test in value["tests"]:
        numbers = {key: one for key, one in test.items() if isinstance(one, int | float | None)}
        heading = f"{name}: {test['one']} against {test['other']}"
        yield section(heading, ["", ["value", "n"]], _named(numbers))


def _calibration(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    for kind, part in value["kinds"].items():
        columns = {"before": part["before"], **part["after"]}
        names = dict.fromkeys(figure for figures in columns.values() for figure in figures)
        rows = [[_words(one), *(figures.get(one) for figures in columns.values())] for one in names]
        yield section(
            f"{name}: calibration of {value['judge']}, {kind} items",
            ["", *([column, "n"] for column in columns)],
            rows,
            f"Held-out figures before calibration and with each method: {part['reads']:,} questions, "
            f"{part['groups']:,} groups; chosen: {part['method']}.",
        )


def _cost(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    receipt = value.get("receipt") or {}
    flat = {key: one for key, one in {**value, **receipt}.items() if isinstance(one, str | int | float)}
    tokens = [
        [f"tokens of {model}", f"{prompt:,} in, {reply:,} out"]
        for model, (prompt, reply) in (receipt.get("tokens") or {}).items()
    ]
    yield section(f"Cost ({name})", ["", ["value", "n"]], _named(flat) + tokens)


def _attack(name: str, value: Mapping[str, Any]) -> Iterator[Section]:
    rows = []
    for place, one in enumerate(value["attacks"]):
        is_chosen = one["name"] == value["chosen"]
        if place < _MOST_ATTACKS or is_chosen:
            what = f"{one['name']}{' (chosen)' * is_chosen}: {one['does']}"
            beats = None if one["beats"]["value"] is None else f"{one['beats']['value']:.0%}"
            rows.append([what, one["kind"], one["rise"], {"value": one["earned"]["value"]}, beats, one["failed"]])
    heads = ["attack", "kind", ["rise", "n"], ["earned", "n"], ["beats honest", "n"], ["failed", "n"]]
    note = (
        "Rise of the score of bad responses. Attacks were chosen on "
        f"{value['searched']:,} prompts and measured on {value['reported']:,} others; {value['reads']:,} reads."
    )
    yield section(f"{name}: attack on {value['judge']}", heads, rows, note)
    before = [[REASONS.get(reason, reason), figure] for reason, figure in value["bad"].items()]
    before.append(["honest responses", value["honest"]])
    yield section("Before an attack", ["", ["score", "n"]], before)
    for heading, groups in (("Kinds of questions that fall", value["kinds"]), ("Items that fall", value["fallen"])):
        fallen = [
            [one["name"], f"{one['fell'] / one['failed'] if one['failed'] else 0:.0%}", one["failed"], one["attack"]]
            for one in groups[:_MOST_FALLEN]
        ]
        if fallen:
            yield section(heading, ["", ["falls", "n"], ["of", "n"], "most often under"], fallen)
    for one in value["examples"]:
        texts = [
            ["prompt", None, one["prompt"]],
            [REASONS.get(one["reason"], one["reason"]), {"value": one["score"]}, one["response"]],
            ["attacked", {"value": one["attacked_score"]}, one["attacked"]],
        ]
        if one.get("honest") is not None:
            texts.append(["honest", {"value": one["honest_score"]}, one["honest"]])
        yield section(f"{name}: example of {one['attack']}", ["", ["score", "n"], "text"], texts)


def _inspected(name: str, value: Mapping[str, Any]) -> list[Section]:
    return of_analysis({"no_answer": 0, **value}, name)


DOCUMENTS: Mapping[str, tuple[Sequence[str], Callable[[str, Mapping[str, Any]], Iterable[Section]]]] = {
    "agree": (("comparisons", "tests", "bootstrap"), _agreement),
    "calibrate": (("judge", "kinds", "left_out"), _calibration),
    "inspect": (("targets", "items", "flags"), _inspected),
    "attack": (("judge", "attacks", "examples"), _attack),
    "summary": (("command", "reads", "receipt"), _cost),
}
"""By kind of JSON result: the keys by which it is known, and what makes its sections."""
