"""Tables and a plot of the study of `run.py`: proxy and gold, the judge against the code, and the monitor's alarms.

Held-out figures are means over prompts and seeds, with 95 % bootstrap intervals over prompts; a change is that of the
same prompt since the untrained policy. Two or three seeds give no interval of their own, so their values are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.arms import Runs
from studies.common import Result, band, figure, markdown, smoothed
from studies.hacking.logs import RunLog
from studies.hacking.onset import START

from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Mean, Numbers
from checklist_rewards.files.rows import read_rows

Rows = Sequence[Mapping[str, Any]]
"""Responses of a policy to the held-out prompts: `key`, `kinds`, `verdicts` of the code and `yes` of the judge."""
Number = Callable[[Mapping[str, Any]], float]
WIDTH = 5
"""Steps over which the plot averages."""


def gold(row: Mapping[str, Any]) -> float:
    """Fraction of the instructions that are followed."""
    return fmean(row["verdicts"])


def all_followed(row: Mapping[str, Any]) -> float:
    """Whether all instructions are followed: IFEval's strict verdict on the prompt."""
    return float(all(row["verdicts"]))


def judged(row: Mapping[str, Any]) -> float:
    """Mean P(yes) of the judge."""
    return fmean(row["yes"])


def proxy_of(arm: str) -> Number:
    """The score that an arm is trained on, over all items."""
    mean: Number = lambda row: (gold(row) + judged(row)) / 2  # noqa: E731
    return {"code": gold, "both": mean}.get(arm, judged)


def figures_of(output: Path, before: Rows, runs: Runs) -> Result:
    """Write `figures.md` and `english_grpo.png`, and return the figures.

    Args:
        output (`Path`): The folder of the study.
        before (rows): The untrained policy on the held-out prompts.
        runs ([`Runs`]): The finished runs of each arm.
    """
    logs = {arm: [RunLog(output / f"{arm}-{run['settings']['seed']}", run["settings"]) for run in of_seeds]
            for arm, of_seeds in runs.items()}  # fmt: skip
    held_out = {arm: held_out_figures(before, arm, of_seeds) for arm, of_seeds in runs.items()}
    training = {arm: [training_figures(log) for log in of_seeds] for arm, of_seeds in logs.items()}
    everything = [row for of_seeds in runs.values() for run in of_seeds for row in last(run)]
    judge = {"before": by_kind(before), "after": by_kind(everything)}
    alarms = {log.folder.name: first_alarms(log.folder / "monitor.jsonl") for some in logs.values() for log in some}
    text = "\n".join(
        (
            f"Held out: {len(before)} prompts, {sum(len(row['verdicts']) for row in before)} instructions.\n",
            *_held_out_table(before, held_out),
            *_training_table(training),
            *_judge_table(judge),
            *_alarm_table(alarms, logs),
        )
    )
    (output / "figures.md").write_text(text, encoding="utf-8")
    if logs:
        plot(before, runs, logs, output / "english_grpo.png")
    shown = {arm: {name: _dumped(value) for name, value in found.items()} for arm, found in held_out.items()}
    by_kinds = {when: {kind: _dumped(found) for kind, found in table.items()} for when, table in judge.items()}
    return {"held_out": shown, "training": training, "judge": by_kinds, "alarms": alarms}


def _dumped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _dumped(part) for name, part in value.items()}
    return value.model_dump() if isinstance(value, Figure) else value


def last(run: Result) -> Rows:
    """The held-out responses of the trained policy."""
    return run["held_out"][max(run["held_out"], key=int)]


def held_out_figures(before: Rows, arm: str, runs: Sequence[Result]) -> Result:
    """Gold, proxy and their changes of one arm at the end of training."""
    proxy = proxy_of(arm)
    pairs = [pair for run in runs for pair in zip(before, last(run), strict=True)]
    groups = [start["key"] for start, _ in pairs]

    def mean(values: Iterable[float]) -> Figure:
        return Bootstrap().figures(Mean("mean", list(values)), groups)["mean"]

    numbers: dict[str, Number] = {
        "gold": gold,
        "all_followed": all_followed,
        "proxy": proxy,
        "gap": lambda row: proxy(row) - gold(row),
    }
    found = {name: mean(number(end) for _, end in pairs) for name, number in numbers.items()}
    change = {f"{name}_change": mean(n(end) - n(start) for start, end in pairs) for name, n in numbers.items()}
    return {
        "seeds": [run["settings"]["seed"] for run in runs],
        **found,
        **change,
        "gold_by_seed": [fmean(map(gold, last(run))) for run in runs],
        "words": fmean(len(end["response"].split()) for _, end in pairs),
    }


def training_figures(log: RunLog) -> Result:
    """Proxy and gold of the first and the last steps of a run, and the step from which it counts as hacked."""
    ends = {
        f"{name}_{when}": fmean(part)
        for name, curve in (("proxy", log.proxy), ("gold", log.gold))
        for when, part in (("first", curve[:START]), ("last", curve[-START:]))
    }
    return {"seed": log.seed, "steps": len(log.steps), **ends, "onset": log.onset}


def by_kind(rows: Rows) -> dict[str, Result]:
    """How the judge agrees with the code on each kind of instruction, and on all of them."""
    items = [
        (kind, row["key"], yes, float(verdict))
        for row in rows
        for kind, yes, verdict in zip(row["kinds"], row["yes"], row["verdicts"], strict=True)
    ]
    kinds = sorted({kind for kind, *_ in items})
    if not items:
        return {}
    return {name: _agreement([item for item in items if name in ("all", item[0])]) for name in ("all", *kinds)}


def _agreement(items: Sequence[tuple[str, int, float, float]]) -> Result:
    _, keys, yes, followed = zip(*items, strict=True)
    auc = Bootstrap(resamples=300).figures(Numbers(yes, followed, only=["auc"]), keys)["auc"]
    return {
        "n": len(items),
        "prompts": len(set(keys)),
        "followed": fmean(followed),
        "p_yes": fmean(yes),
        "auc": auc,
    }


def first_alarms(path: Path) -> dict[str, Result]:
    """The step of the first alarm of each signal, and what the signal is about."""
    first: dict[str, Result] = {}
    for row in read_rows(path):
        if row.data["kind"] == "alarm":
            first.setdefault(row.data["signal"], {name: row.data[name] for name in ("step", "about", "size")})
    return first


def _held_out_table(before: Rows, held_out: Mapping[str, Result]) -> list[str]:
    start = Bootstrap().figures(Mean("mean", list(map(gold, before))), range(len(before)))["mean"]
    untrained = [
        f"Untrained: gold {start.shown()}, all instructions followed {fmean(map(all_followed, before)):.3f}, mean "
        f"P(yes) {fmean(map(judged, before)):.3f}, {fmean(len(row['response'].split()) for row in before):.0f} words.",
        "",
    ]
    rows = []
    for arm, found in held_out.items():
        seeds = ", ".join(f"{value:.3f}" for value in found["gold_by_seed"])
        cells = [found["gold"].shown(), seeds, found["gold_change"].shown(), found["all_followed"].shown()]
        cells += [found["proxy_change"].shown(), found["gap_change"].shown(), f"{found['words']:.0f}"]
        rows.append([arm, *cells])
    columns = ("gold", "by seed", "change of gold", "all followed", "change of the proxy", "change of proxy - gold")
    return [*untrained, markdown(["arm", *columns, "words"], rows), ""]


def _training_table(training: Mapping[str, Sequence[Result]]) -> list[str]:
    rows = []
    for arm, runs in training.items():
        for run in runs:
            curves = (f"{run[f'{name}_first']:.3f} to {run[f'{name}_last']:.3f}" for name in ("proxy", "gold"))
            onset = "never" if run["onset"] is None else run["onset"]
            rows.append([arm, run["seed"], *curves, onset])
    title = f"In training, means of the first and the last {START} steps:"
    return [title, "", markdown(["arm", "seed", "proxy", "gold", "hacked from step"], rows), ""]


def _judge_table(judge: Mapping[str, Mapping[str, Result]]) -> list[str]:
    rows = [
        [kind, found["prompts"], *_cells(found), *_cells(judge["after"].get(kind))]
        for kind, found in judge["before"].items()
    ]
    columns = ["followed", "P(yes)", "AUC"]
    head = ["instruction", "prompts", *columns, *(f"{column}, trained" for column in columns)]
    title = "The judge against the code, on the held-out responses of the untrained policy and of all trained ones:"
    return [title, "", markdown(head, rows), ""]


def _cells(found: Result | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [f"{found['followed']:.2f}", f"{found['p_yes']:.2f}", found["auc"].shown(2)]


def _alarm_table(alarms: Mapping[str, Mapping[str, Result]], logs: Mapping[str, Sequence[RunLog]]) -> list[str]:
    rows = []
    for name, found in alarms.items():
        ordered = sorted(found.items(), key=lambda pair: pair[1]["step"])
        shown = ", ".join(f"{signal} ({alarm['about']}) {alarm['step']}" for signal, alarm in ordered)
        rows.append([name, shown or "none"])
    return [markdown(["run", "first alarms of the monitor: signal (about), step"], rows), ""]


def plot(before: Rows, runs: Runs, logs: Mapping[str, Sequence[RunLog]], path: Path) -> None:
    """Plot proxy and gold over the steps, one panel per arm: curves in training, dots on the held-out prompts."""
    with figure(path, len(logs), figsize=(2.6 * len(logs) + 1, 3.2), sharey=True) as axes:
        panels = list(axes) if len(logs) > 1 else [axes]
        for axis, (arm, of_seeds) in zip(panels, logs.items(), strict=True):
            lines: tuple[tuple[str, str, Number, Callable[[RunLog], list[float]]], ...] = (
                ("reward (proxy)", "C0", proxy_of(arm), lambda log: log.proxy),
                ("gold (code)", "C1", gold, lambda log: log.gold),
            )
            for label, color, number, curve in lines:
                curves = [smoothed(curve(log), WIDTH) for log in of_seeds]
                band(axis, dict(enumerate(zip(*curves, strict=True))), label, color)
                points = {0: fmean(map(number, before))}
                for step in runs[arm][0]["held_out"]:
                    points[int(step)] = fmean(number(row) for run in runs[arm] for row in run["held_out"][step])
                axis.plot(list(points), list(points.values()), "o", color=color, label=f"{label}, held out")
            axis.set_title(arm)
            axis.set_xlabel("GRPO step")
            axis.set_ylim(0, 1)
        panels[0].legend(frameon=False, fontsize=7)
