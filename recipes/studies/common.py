"""What several studies use: the human-labelled data, judges, figures of finished runs, Markdown tables, and plots.

A run of a study is a function that returns its results. [`once`] writes them to `summary.json` together with the
settings. A later call with the same settings reads the file; with other settings, the run is repeated. An interrupted
run leaves no summary and starts again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from typing_extensions import override

from checklist_rewards.backends import Engine, Progress, is_encoder
from checklist_rewards.backends.budget import Bill
from checklist_rewards.checklists import YES
from checklist_rewards.errors import ChecklistRewardsError, ModelError, SampleError
from checklist_rewards.evaluation.agreement.measures import Measure
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, EncoderJudge, Judge, LogprobJudge, Receipt
from checklist_rewards.judges.logprob import as_declared
from checklist_rewards.judges.variants import variant_of
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason

Result = dict[str, Any]
DATA = os.environ.get("CHECKLIST_REWARDS_DATA") or str(Path(__file__).resolve().parents[3] / "shared" / "data")
"""The folder of the human-labelled data, which is not part of the repository."""


def data_file(name: str, folder: str | Path = DATA) -> Path:
    """The path of a file in the folder of the data. Raises [`SampleError`] if it does not exist."""
    path = Path(folder) / name
    if not path.is_file():
        data_set = name.partition("/")[0]
        raise SampleError(
            f"{path}: file not found; set --data or CHECKLIST_REWARDS_DATA to the folder that contains {data_set}/."
        )
    return path


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `.jsonl` or `.jsonl.gz` file."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that [`judge_of`] reads."""
    parser.add_argument("model", help="a packaged model, an encoder judge, a folder or a Hub id")
    parser.add_argument("--adapter", help="folder of a LoRA adapter")


def judge_of(model: str, adapter: str | None = None, store: Store | None = None) -> Judge:
    """An encoder judge for the folder of one, else the one-token judge. All reads are answered, however low the label
    mass."""
    if is_encoder(model):
        return EncoderJudge(model, store=store)
    engine = Engine(model, "transformers", settings={} if adapter is None else {"adapter": adapter})
    return LogprobJudge(engine, mass_floor=0, store=store)


def probabilities_of_yes(
    judge: Judge, reads: Sequence[Ask], progress: Progress | None = None, bill: Bill | None = None
) -> list[float]:
    """P(yes) of every read. Raises [`ModelError`] if one is unanswered: figures over some of the reads would not be
    comparable."""
    verdicts, spent = judge.answer(reads, progress)
    if bill is not None:
        bill.add(spent)
    lost = [verdict.unanswered for verdict in verdicts if verdict.unanswered is not None]
    if lost:
        raise ModelError(f"{len(lost)} of {len(reads)} reads are unanswered, the first because of {lost[0]}.")
    return [(verdict.probabilities or {})[YES] for verdict in verdicts]


class Reworded(Judge):
    """A judge that is asked every question in another wording."""

    def __init__(self, inner: Judge, number: int):
        self.inner, self.number, self.name = inner, number, inner.name

    def parts(self) -> Iterator[Judge]:
        """The inner judge and what it asks, and this judge."""
        yield from self.inner.parts()
        yield self

    def answer(self, reads: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As the inner judge, about the variants."""
        varied = [replace(read, item=variant_of(read.item, self.number)) for read in reads]
        verdicts, spent = self.inner.answer(varied, progress)
        return [as_declared(verdict, read.item) for verdict, read in zip(verdicts, reads, strict=True)], spent


def checklist_scores(
    judge: Judge, checklists: Sequence[Sequence[Ask]], progress: Progress | None = None
) -> list[float | None]:
    """Mean P(yes) over the reads of every checklist; None if one of them does not fit the model's context. Raises
    [`ModelError`] if a read is unanswered for another reason."""
    verdicts = judge.answer([read for some in checklists for read in some], progress)[0]
    lost = [v.unanswered for v in verdicts if v.unanswered is not None and v.unanswered.reason != Reason.TOO_LONG]
    if lost:
        raise ModelError(f"{len(lost)} of {len(verdicts)} reads are unanswered, the first because of {lost[0]}.")
    of_reads = iter(verdicts)
    scores: list[float | None] = []
    for some in checklists:
        answers = [next(of_reads) for _ in some]
        complete = all(verdict.unanswered is None for verdict in answers)
        scores.append(fmean((verdict.probabilities or {})[YES] for verdict in answers) if complete else None)
    return scores


class Difference(Measure):
    """Figures of some answers minus those of others about the same units, in the same resamples.

    Args:
        now, before ([`Measure`]): The answers that are compared.
        names (sequence of `str`): The figures to compare.
    """

    def __init__(self, now: Measure, before: Measure, names: Sequence[str]):
        self.now, self.before, self.names = now, before, names

    @override
    def __len__(self) -> int:
        return len(self.now)

    @override
    def replicate(self, weights: Any) -> dict[str, float]:
        now, before = self.now.replicate(weights), self.before.replicate(weights)
        return {name: now[name] - before[name] for name in self.names}


def once(folder: Path, settings: Result, run: Callable[[], Result]) -> Result:
    """The results of `run`, read from `folder/summary.json` if the file has these settings."""
    path = folder / "summary.json"
    if path.is_file():
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["settings"] == settings:
            return summary
    folder.mkdir(parents=True, exist_ok=True)
    save_json(path, {"settings": settings, **run()})
    # Read it back, so that the first and later calls return the same value (JSON has only string keys).
    return json.loads(path.read_text(encoding="utf-8"))


def save_json(path: Path, value: Any) -> None:
    """Write results atomically. Missing folders are created."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def run_main(main: Callable[[], object]) -> None:
    """Run a script. Errors of the package end it with one line."""
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None


def spread(values: Sequence[float]) -> Result:
    """Mean, minimum, maximum, sample standard deviation (None for a single value), and the values themselves."""
    return {
        "mean": fmean(values),
        "min": min(values),
        "max": max(values),
        "std": stdev(values) if len(values) > 1 else None,
        "per_seed": list(values),
    }


def shown(summary: Result, digits: int = 3) -> str:
    """A [`spread`] as text: the mean, with minimum and maximum in parentheses."""
    return f"{summary['mean']:.{digits}f} ({summary['min']:.{digits}f}-{summary['max']:.{digits}f})"


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Centred moving average; at both ends over the values that exist."""
    half = width // 2
    return [fmean(values[max(0, at - half) : at + half + 1]) for at in range(len(values))]


def markdown(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table, without a line end after the last row."""
    head, *lines = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row) for row in (columns, *rows)]
    return "\n".join([head, "|---" * len(columns) + "|", *lines])


def band(axes: Any, curve: Mapping[int, Sequence[float]], label: str, color: str) -> None:
    """Plot the values of all runs by step: their mean as a curve, in a band from the minimum to the maximum."""
    axes.plot(list(curve), [fmean(values) for values in curve.values()], color=color, label=label, linewidth=2)
    lowest, highest = map(min, curve.values()), map(max, curve.values())
    axes.fill_between(list(curve), list(lowest), list(highest), color=color, alpha=0.2)


@contextmanager
def figure(path: Path, columns: int = 1, dpi: int = 110, **how: Any) -> Iterator[Any]:
    """The axes of a figure, or a list of axes for several columns. The figure is saved when the block ends."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(1, columns, layout="constrained", **how)
    yield axes
    for one in drawn.axes:
        one.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=dpi)
    plt.close(drawn)
