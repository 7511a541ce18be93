"""Logs of runs: proxy and gold per step, and what a monitor or rewardspy would have reported on them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.hacking.onset import onset

from checklist_rewards.attacks.patterns import Pattern
from checklist_rewards.checklists import YES, ChecklistItem
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.rows import read_rows
from checklist_rewards.judges import Ask, Judge
from checklist_rewards.monitor import MonitorConfig
from checklist_rewards.monitor.audit import observations
from checklist_rewards.monitor.extra_reads import Sampler
from checklist_rewards.monitor.seen import Observation, Shadowed
from checklist_rewards.monitor.watch import Watch
from checklist_rewards.scores import DEFAULT_THRESHOLD

Row = dict[str, Any]
Sizes = dict[str, tuple[float | None, float | None]]
"""Signal to size and standard error at one step."""
Answers = Callable[[Sequence[tuple[int, int]]], Sequence[Sequence[tuple[float, float]]]]
"""Step and place of completions to P(yes) of their items: pairs of the judge and of the shadow judge."""


@dataclass(frozen=True)
class RunLog:
    """A finished run."""

    folder: Path
    settings: Mapping[str, Any]

    @property
    def bias(self) -> str:
        """The weakness of the judge, or "clean"."""
        return self.settings["bias"] or "clean"

    @property
    def strength(self) -> float:
        """The strength of the weakness; 0 without one."""
        return self.settings["strength"] if self.settings["bias"] else 0.0

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings["seed"]

    @property
    def log(self) -> Path:
        """The reward log."""
        return self.folder / "rewards.jsonl"

    @cached_property
    def steps(self) -> list[list[Row]]:
        """The rows of each step, reduced to what the evaluation uses."""
        rows = ({**_reduced(row.data), "step": row.data["step"]} for row in read_rows(self.log))
        return [list(same) for _, same in groupby(rows, key=lambda row: row["step"])]

    @cached_property
    def proxy(self) -> list[float]:
        """Mean score of the judge over all items, per step."""
        return [fmean(row["score"] for row in rows) for rows in self.steps]

    @cached_property
    def gold(self) -> list[float]:
        """Mean gold per step."""
        return [fmean(row["gold"] for row in rows) for rows in self.steps]

    def adjusted_gold(self, easy: Mapping[str, float]) -> list[float]:
        """Gold per step as if every step had prompts of mean difficulty.

        Args:
            easy (mapping of `str` to `float`):
                Mean gold of the start policy on each prompt.
        """
        overall = fmean(easy.values())
        return [overall + fmean(row["gold"] - easy[row["prompt"]] for row in rows) for rows in self.steps]

    @cached_property
    def onset(self) -> int | None:
        """The step of the onset; None for a run that is not hacked."""
        return onset(self.proxy, self.gold)

    @property
    def clean(self) -> bool:
        """Whether the judge has no weakness and the run is not hacked."""
        return self.bias == "clean" and self.onset is None


def _reduced(data: Mapping[str, Any]) -> Row:
    prompt = data["prompt"][-1]["content"]
    return {
        "prompt": prompt,
        "text": data["completion"],
        "reward": data.get("reward"),
        "score": data["score"]["primary_score"],
        "gold": data["gold"],
    }


def write_log(raw: Path, path: Path, gold: Callable[[str, str], float]) -> None:
    """Write the log of a run with gold, without the fields of scores that are None; delete the raw log."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in read_rows(raw):
            found = gold(row.data["prompt"][-1]["content"], row.data["completion"])
            record = row.data | {"score": _without_none(row.data["score"]), "gold": found}
            file.write(json.dumps(record) + "\n")
    raw.unlink()


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value


def finished(folder: Path) -> list[RunLog]:
    """All finished runs in a folder."""
    found = []
    for path in sorted(folder.glob("*/summary.json")):
        found.append(RunLog(path.parent, json.loads(path.read_text(encoding="utf-8"))["settings"]))
    return found


class Ahead(Sampler):
    """A sampler that reads four times as many completions of the first steps, and pays this back by reading 0.6 times
    as many until the share is that of the whole run again.

    Args:
        share (`float`): Fraction of the completions, in [0, 1].
        first (`int`): Number of first steps; 0 is a plain [`Sampler`].
    """

    def __init__(self, share: float, first: int):
        super().__init__(share)
        self.first, self.ahead = first, 0.0

    def choose(self, places: Sequence[int], rng: random.Random) -> list[int]:
        """Some of `places`, in random order."""
        plain = self.share * len(places)
        more = min(4 * plain, len(places)) - plain if self.first > 0 else -min(0.4 * plain, self.ahead)
        self.first, self.ahead, self.due = self.first - 1, self.ahead + more, self.due + more
        return super().choose(places, rng)


def replayed(run: RunLog, share: float | None, weakness: float = 0.0, first: int = 0) -> Iterator[Observation]:
    """The observations of a run, as the monitor saw them or with another shadow judge.

    Args:
        run ([`RunLog`]):
            A run whose judge is a [`BiasedJudge`], or a clean one.
        share (`float`, *optional*):
            Share of the completions that the shadow judge reads; None keeps what was read in the run.
        weakness (`float`, *optional*, defaults to `0.0`):
            How much of the judge's weakness the shadow judge has, from 0 to 1.
        first (`int`, *optional*, defaults to `0`):
            Number of first steps of which more completions are read ([`Ahead`]).
    """
    if share is None:
        yield from observations([run.log])
        return
    scores = _unbiased(run, weakness)
    yield from _shadowed(run, Ahead(share, first), lambda chosen: [scores[step][place] for step, place in chosen])


def read_again(run: RunLog, share: float, judge: Judge, first: int = 0) -> Iterator[Observation]:
    """The observations of a run with `judge` as the shadow judge, which reads the completions now.

    Args:
        run ([`RunLog`]):
            Any run.
        share (`float`):
            Share of the completions that the shadow judge reads.
        judge ([`Judge`]):
            A judge that answers with probabilities.
        first (`int`, *optional*, defaults to `0`):
            Number of first steps of which more completions are read ([`Ahead`]).
    """
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for row in read_rows(run.log):
        rows.setdefault(row.data["step"], []).append(row.data)

    def answers(chosen: Sequence[tuple[int, int]]) -> list[list[tuple[float, float]]]:
        completions = [rows[step][place] for step, place in chosen]
        reads = [
            Ask(ChecklistItem(question=item["question"]), data["completion"], data["prompt"][-1]["content"])
            for data in completions
            for item in _answered(data)
        ]
        verdicts = iter(judge.answer(reads)[0])
        return [
            [
                (item["probabilities"][YES], verdict.probabilities[YES])
                for item in _answered(data)
                if (verdict := next(verdicts)).unanswered is None and verdict.probabilities is not None
            ]
            for data in completions
        ]

    yield from _shadowed(run, Ahead(share, first), answers)


def _shadowed(run: RunLog, sampler: Sampler, answers: Answers) -> Iterator[Observation]:
    rng = random.Random(f"shadow {run.seed}")
    steps = list(observations([run.log]))
    chosen = [(step.step, place) for step in steps for place in sampler.choose(range(len(step.seen)), rng)]
    shadows = {
        at: next_shadow(items) for at, items in zip(chosen, answers(chosen), strict=True) if items
    }  # all in one call of the judge
    for step in steps:
        seen = [replace(one, shadow=shadows.get((step.step, place))) for place, one in enumerate(step.seen)]
        yield Observation(step.step, seen)


def next_shadow(items: Sequence[tuple[float, float]]) -> Shadowed:
    """Both judges on the P(yes) of one completion: pairs of the judge and of the shadow judge."""
    table = [0, 0, 0, 0]
    for own, shadow in items:
        table[2 * (own < DEFAULT_THRESHOLD) + (shadow < DEFAULT_THRESHOLD)] += 1
    return Shadowed(
        fmean(own for own, _ in items), fmean(shadow for _, shadow in items), (table[0], table[1], table[2], table[3])
    )


def _answered(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The items of a row that the judge answered: it does not answer about a completion that is too long for it."""
    return [item for item in data["score"]["items"] if "probabilities" in item]


def _unbiased(run: RunLog, weakness: float) -> dict[int, list[list[tuple[float, float]]]]:
    scores: dict[int, list[list[tuple[float, float]]]] = {}
    for row in read_rows(run.log):
        items = []
        for item in _answered(row.data):
            own = item["probabilities"][YES]
            plain = (item.get("uncalibrated") or item["probabilities"])[YES]
            items.append((own, plain + weakness * (own - plain)))
        scores.setdefault(row.data["step"], []).append(items)
    return scores


def sizes(steps: Iterable[Observation], settings: MonitorConfig, attacks: Sequence[Pattern] = ()) -> list[Sizes]:
    """Size and standard error of each signal at each step, those of `attacks` included."""
    watch = Watch(settings, attacks=attacks)
    return [
        {name: (reading.size, reading.error) for name, reading in watch.update(observation)[0].items()}
        for observation in steps
    ]


def alarm_steps(steps: Sequence[Sizes], settings: MonitorConfig) -> dict[str, int]:
    """The first alarm of each signal that has one."""
    first: dict[str, int] = {}
    for step, readings in enumerate(steps):
        for name, (size, error) in readings.items():
            limit = settings.threshold(name)
            if limit is None or size is None or size < limit:
                continue
            if error is None or size >= settings.certainty * error:
                first.setdefault(name, step)
    return first
