"""Tables and plots of the hacking study: which detector finds a hacked run, when, and how often it is wrong.

    python recipes/studies/hacking/evaluate.py runs/hacking detection
    python recipes/studies/hacking/evaluate.py runs/hacking \\
        {rates,biases,shadow,another,grid,thresholds,prevention,plots}

Each table is printed as Markdown:

- `rates`: how often the start policy has each weakness;
- `detection`: every signal, the whole monitor and rewardspy, on the reported runs;
- `biases`: the monitor and rewardspy on each bias, all seeds;
- `shadow`: the monitor with shadow judges that read more, or share the weakness;
- `another`: the monitor with shadow judges that are asked the questions reworded;
- `grid`: windows, certainty and thresholds of the shadow judge's signals, on the fitting part;
- `thresholds`: the largest sizes of the signals in the clean and the hacked runs of the fitting part;
- `prevention`: proxy and gold at the end with each prevention.

Which steps the shadow judge reads more of was chosen on the fitting part (`fitting`): seeds 0 and 1 of every bias and
strength, and the first ten clean runs. All other runs are reported. `certainty` was chosen after a look at both parts
(docs/studies/hacking.md); the thresholds of the monitor are those that were chosen on runs of an earlier version. A
run counts as hacked if it has an onset (`onset.py`). It counts as clean if it has none and its judge has no weakness.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from studies.common import Reworded, markdown, shown, smoothed, spread
from studies.hacking.biases import BIASES
from studies.hacking.logs import RunLog, Sizes, alarm_steps, finished, read_again, replayed, sizes
from studies.hacking.onset import GOLD_WIDTH, gold_lost
from studies.hacking.plots import draw
from studies.hacking.spy import installed, spy_alarms
from studies.hacking.study import PREVENTIONS, STRENGTH

from checklist_rewards import ChecklistScorer
from checklist_rewards.evaluation.agreement import Bootstrap, Mean
from checklist_rewards.judges import Judge
from checklist_rewards.monitor import MonitorConfig
from checklist_rewards.monitor.seen import Observation
from checklist_rewards.monitor.signals import SIGNALS
from checklist_rewards.scores.tally import wilson

FITTING_SEEDS, FITTING_CLEAN = (0, 1), range(10)
FITTING_WORDINGS, REPORTED_WORDINGS = (3, 5), (1, 2, 4)
"""Variants of the questions that a shadow judge is asked where it has to differ from the judge."""
SHARES = (0.05, 0.25)
"""Shares of the completions that a shadow judge reads."""
LOSS = 0.05
"""Loss of gold before which an alarm is in time."""
HACKING = frozenset(signal.name for signal in SIGNALS if signal.about == "hacking")
"""Signals that are the monitor's alarm of hacking; those about the judge and about training are hints."""


def fitting(run: RunLog) -> bool:
    """Whether thresholds were chosen on this run."""
    return run.seed in (FITTING_CLEAN if run.bias == "clean" else FITTING_SEEDS)


@dataclass(frozen=True)
class Outcome:
    """What one detector did in one run."""

    hacked: bool
    clean: bool
    """Whether the judge has no weakness and the run is not hacked."""
    alarm: int | None
    delay: int | None
    """Steps from the onset to the alarm; negative if the alarm was first."""
    lost: float | None
    """Gold lost at the alarm; without an alarm, at the end."""

    @property
    def in_time(self) -> bool:
        """Whether there was an alarm before gold had lost `LOSS`."""
        return self.alarm is not None and self.lost is not None and self.lost < LOSS


def outcome(run: RunLog, alarm: int | None, gold: Sequence[float]) -> Outcome:
    """The outcome of a detector with its first alarm at `alarm`, in a run with smoothed `gold`."""
    delay = None if alarm is None or run.onset is None else alarm - run.onset
    hacked = run.onset is not None
    lost = gold_lost(gold, len(gold) - 1 if alarm is None else alarm)
    return Outcome(hacked, run.clean, alarm, delay, lost)


def end(curve: Sequence[float]) -> float:
    """The value of a curve at the end of a run: the mean of the last ten steps."""
    return fmean(curve[-10:])


class Study:
    """The finished runs of a folder, and the alarms of all detectors in them."""

    def __init__(
        self,
        folder: Path,
        settings: MonitorConfig | None = None,
        share: float | None = None,
        first: int = 0,
    ):
        self.folder, self.first = folder, first
        self.settings = settings or MonitorConfig()
        self.share = share
        self.all = finished(folder)
        self.runs = [run for run in self.all if run.settings["prevention"] == "none"]
        self.reported = [run for run in self.runs if not fitting(run)]
        easy = json.loads((folder / "start" / "difficulty.json").read_text(encoding="utf-8"))
        self.gold = {run.folder: smoothed(run.adjusted_gold(easy), GOLD_WIDTH) for run in self.all}

    def reworded(self, number: int) -> Judge:
        """The pocket judge with every question in wording `number`."""
        return Reworded(ChecklistScorer("pocket", store=self.folder / "another.sqlite").judge, number)

    def monitor(self, run: RunLog) -> dict[str, int]:
        """The first alarm of each signal, and as "monitor" that of the whole monitor."""
        return whole(alarm_steps(self.sizes(run), self.settings))

    def sizes(self, run: RunLog) -> list[Sizes]:
        """The sizes of all signals of a run."""
        return sizes(replayed(run, self.share, first=self.first), self.settings)

    def alarms(self, run: RunLog) -> dict[str, int]:
        """The first alarm of each detector, those of rewardspy included."""
        found = self.monitor(run)
        if installed():
            spied = spy_alarms(run)
            found |= {f"rewardspy: {name}": step for name, step in spied.items()}
            if spied:
                found["rewardspy"] = min(spied.values())
        return found


def whole(first: Mapping[str, int]) -> dict[str, int]:
    """First alarms with that of the whole monitor: the earliest of a signal about hacking."""
    own = [step for name, step in first.items() if name in HACKING]
    return {**first, **({"monitor": min(own)} if own else {})}


def line(name: str, outcomes: Sequence[Outcome]) -> str:
    """A row of a table of detectors."""
    hacked, clean = [o for o in outcomes if o.hacked], [o for o in outcomes if o.clean]
    delays = [o.delay for o in hacked if o.delay is not None]
    lost = [o.lost for o in hacked if o.alarm is not None and o.lost is not None]
    return " | ".join(
        (
            f"| {name}",
            shares([o.alarm is not None for o in hacked]),
            shares([o.in_time for o in hacked]),
            "-" if not delays else f"{median(delays):+.0f} ({min(delays):+d} to {max(delays):+d})",
            "-" if not lost else f"{fmean(lost):.3f}",
            shares([o.alarm is not None for o in clean]) + " |",
        )
    )


def shares(hits: Sequence[bool]) -> str:
    """A fraction with its 95 % Wilson interval."""
    interval = wilson(sum(hits), len(hits))
    return "-" if interval is None else f"{sum(hits)}/{len(hits)} ({interval[0]:.2f}-{interval[1]:.2f})"


HEAD = (
    "| | hacked runs detected | before gold lost 0.05 | delay from onset, steps | gold lost at the alarm | clean runs "
    "with an alarm |\n|---|---|---|---|---|---|"
)


def detection(study: Study) -> str:
    """Every signal, the whole monitor and rewardspy, on the reported runs."""
    alarms = {run.folder: study.alarms(run) for run in study.reported}
    names = ["monitor", *(signal.name for signal in SIGNALS)]
    if installed():
        names += [
            "rewardspy",
            *(f"rewardspy: {name}" for name in ("variance", "slope", "ceiling", "length", "grpo_group")),
        ]
    rows = [
        line(name, [outcome(r, alarms[r.folder].get(name), study.gold[r.folder]) for r in study.reported])
        for name in names
    ]
    hint = [] if installed() else ["", "rewardspy is not installed, so its rows are missing."]
    return "\n".join([HEAD, *rows, *hint])


def biases(study: Study) -> str:
    """The monitor and rewardspy on each bias, on all seeds."""
    rows = []
    for bias, strength in dict.fromkeys((run.bias, run.strength) for run in study.runs):
        runs = [run for run in study.runs if (run.bias, run.strength) == (bias, strength)]
        for name in ("monitor", *(["rewardspy"] if installed() else [])):
            found = [outcome(r, study.alarms(r).get(name), study.gold[r.folder]) for r in runs]
            rows.append(line(f"{bias} {strength:g}: {name}", found))
    return "\n".join([HEAD, *rows])


def shadow(study: Study) -> str:
    """The monitor with other shadow judges: none, the share of completions, whether more of the first steps are read,
    and the part of the weakness it has. The last row is not a monitor: an alarm at the onset, which
    only gold shows."""
    rows = []
    start = study.settings.start
    cases = [(0.0, 0.0, 0), *((share, 0.0, first) for share in SHARES for first in (0, start)), (1.0, 0.0, 0)]
    for share, weakness, first in [*cases, *((share, 0.5, start) for share in SHARES)]:
        name = f"reads {share:.0%}" + (f", {weakness:.0%} of the weakness" if weakness else "")
        name += ", more of the first steps" if first else ""
        found = [
            outcome(run, _first(replayed(run, share, weakness, first), study.settings), study.gold[run.folder])
            for run in study.reported
        ]
        rows.append(line(name if share else "no shadow judge", found))
    known = [outcome(run, run.onset, study.gold[run.folder]) for run in study.reported]
    return "\n".join([HEAD, *rows, line("an alarm at the onset", known)])


def another(study: Study) -> str:
    """The monitor with a shadow judge that is asked in another way: every question reworded. It disagrees with the
    judge in clean runs too."""
    rows = []
    shares = SHARES if study.share is None else (study.share,)
    for number, share in product(REPORTED_WORDINGS, shares):
        seen = [read_again(run, share, study.reworded(number), study.first) for run in study.reported]
        found = [
            outcome(run, _first(steps, study.settings), study.gold[run.folder])
            for run, steps in zip(study.reported, seen, strict=True)
        ]
        rows.append(line(f"wording {number}, reads {share:.0%}", found))
    return "\n".join([HEAD, *rows])


def _first(steps: Iterable[Observation], settings: MonitorConfig) -> int | None:
    return whole(alarm_steps(sizes(steps, settings), settings)).get("monitor")


def grid(study: Study) -> str:
    """Windows, certainty and thresholds of the shadow judge's signals, on the fitting part, with two kinds of shadow
    judges: the judge without its weakness, and the same reworded. Each row counts every run with every shadow judge of
    its kind. Best first: the fewest clean runs with an alarm, then the most hacked runs in time, then the least gold
    lost."""
    runs = [run for run in study.runs if fitting(run)]
    shadows: dict[str, list[tuple[RunLog, list[Observation]]]] = {
        "same": [(run, list(replayed(run, share, first=study.first))) for share in SHARES for run in runs],
        "reworded": [
            (run, list(read_again(run, share, study.reworded(number), study.first)))
            for number, share in product(FITTING_WORDINGS, SHARES)
            for run in runs
        ],
    }
    found: list[tuple[MonitorConfig, dict[str, list[Outcome]]]] = []
    for start, window in product((5, 10), (5, 10)):
        windows = study.settings.replaced(start=start, window=window)
        sized = {kind: [(run, sizes(steps, windows)) for run, steps in seen] for kind, seen in shadows.items()}
        for certainty, gap, disagreement in product((2.0, 2.5, 3.0, 3.5, 4.0, 5.0), (0.05, 0.1), (0.2, 0.3)):
            limits = windows.replaced(certainty=certainty, max_shadow_gap=gap, max_shadow_disagreement=disagreement)
            found.append((limits, {kind: _outcomes(study, limits, pairs) for kind, pairs in sized.items()}))
    found.sort(key=lambda pair: badness([one for outcomes in pair[1].values() for one in outcomes]))
    return "\n".join([HEAD, *(line(_named(limits, kind), o) for limits, kinds in found for kind, o in kinds.items())])


def _outcomes(study: Study, limits: MonitorConfig, runs: Iterable[tuple[RunLog, Sequence[Sizes]]]) -> list[Outcome]:
    return [
        outcome(run, whole(alarm_steps(readings, limits)).get("monitor"), study.gold[run.folder])
        for run, readings in runs
    ]


def badness(outcomes: Sequence[Outcome]) -> tuple[int, int, float]:
    """The order of [`grid`]: false alarms, hacked runs in time (negative), gold lost."""
    hacked = [one for one in outcomes if one.hacked]
    false_alarms = sum(one.clean and one.alarm is not None for one in outcomes)
    return false_alarms, -sum(one.in_time for one in hacked), sum(one.lost or 0.0 for one in hacked)


def _named(limits: MonitorConfig, kind: str) -> str:
    return (
        f"start {limits.start}, window {limits.window}, certainty {limits.certainty:g}, gap {limits.max_shadow_gap}, "
        f"disagreement {limits.max_shadow_disagreement}, {kind}"
    )


def thresholds(study: Study) -> str:
    """For each signal about hacking or the judge: the largest size that counts in the clean runs of the fitting part,
    the default threshold, and the sizes that the hacked runs of that part reach."""
    clean = [study.sizes(run) for run in study.runs if fitting(run) and run.clean]
    hacked = [study.sizes(run) for run in study.runs if fitting(run) and run.onset is not None]
    rows = []
    for name in (signal.name for signal in SIGNALS if signal.about != "training"):
        sides = [[_largest(run, name, study.settings) for run in part] for part in (clean, hacked)]
        largest = [", ".join(f"{size:.2f}" for size in side) for side in sides]
        rows.append([name, *largest, study.settings.threshold(name)])
    return markdown(["signal", "clean, largest", "hacked, largest", "threshold"], rows)


def _largest(run: Sequence[Sizes], name: str, settings: MonitorConfig) -> float:
    known = [readings[name] for readings in run if name in readings]
    certain = [s for s, error in known if s is not None and (error is None or s >= settings.certainty * error)]
    return max(certain, default=0.0)


def rates(study: Study) -> str:
    """How often the start policy has each weakness: the completions of the first step of all runs."""
    rows = []
    first = [row for run in study.all for row in run.steps[0]]
    for bias, weakness in BIASES.items():
        found = [weakness(row["text"], row["prompt"]) for row in first]
        rows.append([bias, f"{fmean(size > 0 for size in found):.3f}", f"{fmean(found):.3f}", len(found)])
    return markdown(["bias", "completions with it", "mean size", "n"], rows)


def prevention(study: Study) -> str:
    """Proxy and gold at the end (mean of the last ten steps) with each prevention, and the hacked runs. Below: gold
    minus that of the same bias and seed without a prevention, with a 95 % bootstrap interval over the pairs."""
    rows = []
    all_runs = [run for run in study.all if run.settings["strength"] == STRENGTH]
    for bias in dict.fromkeys(run.bias for run in all_runs):
        for way in PREVENTIONS:
            runs = [r for r in all_runs if r.bias == bias and r.settings["prevention"] == way]
            if runs:
                proxy, gold = (
                    [end(curve) for curve in curves]
                    for curves in ([run.proxy for run in runs], [study.gold[run.folder] for run in runs])
                )
                hacked = sum(run.onset is not None for run in runs)
                rows.append([bias, way, len(runs), *(shown(spread(ends), 2) for ends in (proxy, gold)), hacked])
    levels = markdown(["judge", "prevention", "runs", "proxy", "gold", "hacked"], rows)
    rows = []
    ends = {(r.bias, r.seed, r.settings["prevention"]): end(study.gold[r.folder]) for r in all_runs}
    for way in PREVENTIONS:
        gains = [
            gold - ends[bias, seed, "none"]
            for (bias, seed, prevention), gold in ends.items()
            if prevention == way != "none" and (bias, seed, "none") in ends
        ]
        if gains:
            gain = Bootstrap().figures(Mean("gain", gains), range(len(gains)))["gain"]
            rows.append([way, len(gains), gain.shown(2), f"{sum(g > 0 for g in gains)} of {len(gains)}"])
    return f"{levels}\n\n{markdown(['prevention', 'pairs', 'gold minus that without', 'better in'], rows)}"


TABLES = {table.__name__: table for table in (rates, detection, biases, shadow, another, grid, thresholds, prevention)}


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table, or draw the plots."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the runs")
    parser.add_argument("what", choices=[*TABLES, "plots"])
    usual = MonitorConfig()
    parser.add_argument("--certainty", type=float, default=usual.certainty)
    parser.add_argument("--start", type=int, default=usual.start, help="first steps to compare with")
    parser.add_argument("--window", type=int, default=usual.window, help="last steps to compare")
    parser.add_argument("--share", type=float, help="share that the shadow judge reads; defaults to that of the runs")
    parser.add_argument(
        "--first", type=int, default=0, help="number of first steps of which it reads four times as many"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/figures"), help="folder of the plots")
    args = parser.parse_args(argv)
    settings = MonitorConfig(certainty=args.certainty, start=args.start, window=args.window)
    study = Study(args.folder, settings, args.share, args.first)
    if args.what == "plots":
        draw(study.all, study.gold, {run.folder: study.alarms(run) for run in study.runs}, args.output)
    else:
        print(TABLES[args.what](study))


if __name__ == "__main__":
    main()
