"""What several recipes use: the human-labelled data, judges, results of finished runs, Markdown tables, and plots.

A run is a function that returns its results. [`once`] writes them to `summary.json` together with the
settings. A later call with the same settings reads the file; with other settings, the run is repeated. An interrupted
run leaves no summary and starts again.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Engine, Progress, is_encoder
from checklist_rewards.checklists import YES
from checklist_rewards.errors import ChecklistRewardsError, ModelError, SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, EncoderJudge, Judge, LogprobJudge

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


def judge_of(model: str, adapter: str | None = None, store: Store | None = None) -> Judge:
    """An encoder judge for the folder of one, else the one-token judge. All reads are answered, however low the label
    mass."""
    if is_encoder(model):
        return EncoderJudge(model, store=store)
    engine = Engine(model, "transformers", settings={} if adapter is None else {"adapter": adapter})
    return LogprobJudge(engine, mass_floor=0, store=store)


def probabilities_of_yes(judge: Judge, asks: Sequence[Ask], progress: Progress | None = None) -> list[float]:
    """P(yes) of every read. Raises [`ModelError`] if one is unanswered: figures over some of the reads would not be
    comparable."""
    verdicts = judge.answer(asks, progress)[0]
    lost = [verdict.unanswered for verdict in verdicts if verdict.unanswered is not None]
    if lost:
        raise ModelError(f"{len(lost)} of {len(asks)} reads are unanswered, the first because of {lost[0]}.")
    return [(verdict.probabilities or {})[YES] for verdict in verdicts]


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


@contextmanager
def staged(output: Path) -> Iterator[Path]:
    """A temporary folder. When the block ends, its files replace those of `output` one by one, the weights last."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        yield Path(folder)
        for path in sorted(Path(folder).iterdir(), key=lambda path: path.suffix == ".safetensors"):
            path.chmod(0o644)
            os.replace(path, output / path.name)


def run_main(main: Callable[[], object]) -> None:
    """Run a script. Errors of the package end it with one line."""
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None


def markdown(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table, without a line end after the last row."""
    head, *lines = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row) for row in (columns, *rows)]
    return "\n".join([head, "|---" * len(columns) + "|", *lines])


@contextmanager
def figure(path: Path, dpi: int = 110, **how: Any) -> Iterator[Any]:
    """The axes of a figure. The figure is saved when the block ends."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(layout="constrained", **how)
    yield axes
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=dpi)
    plt.close(drawn)
