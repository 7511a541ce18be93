r"""The encoder judge on human data: REALSumm, 26,400 (summary, criterion) units judged by three or four workers each.

    python recipes/studies/judges/realsumm.py --output_dir runs/realsumm

Five-fold cross-validation by document. For each fold, a cross-encoder is fine-tuned on the other folds
(`checklist_rewards.distill`; labels are fractions of votes) and reads the held-out units as an `EncoderJudge`: one
encoder with packed rows, and one with matched pairs (`--layouts packed` is five times as fast). With `--layouts
adapter`, a LoRA adapter of SmolLM2-135M is trained and reads as a one-token judge, which takes a GPU
(`--row_tokens 4096`) or hours. Baselines on the same folds: the fraction of a criterion's words in the summary (word
overlap), and a logistic regression on seven such features (lexical). There are also two means of log-odds, as in a
panel: that of the judges, and that of the judges and the lexical regression.

Per criterion, the recipe reports AUC, kappa and accuracy against the majority of votes. Per summary, as published, it
reports the correlation across the systems of a document between the mean prediction and the mean fraction of votes
over the criteria, averaged over documents. Intervals are from the bootstrap over documents. Predictions of each fold
are saved under `--output_dir`, so a second run resumes, and figures can be recomputed without reading again.

Writes `figures.json`, `figures.png` and the models, with a table on the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from studies.common import DATA, data_file, json_lines, judge_of, probabilities_of_yes, run_main, save_json
from trl import TrlParser

from checklist_rewards.backends.budget import Bill
from checklist_rewards.backends.packaged import SMOLLM2
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.distill.adapter import AdapterTraining, train_adapter
from checklist_rewards.distill.training import Training, TrainingStep, train_encoder
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, Categories, Figure, Mean, Numbers
from checklist_rewards.files.rows import write_rows
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.progress import progress_on

OVERLAP, LEXICAL, TOGETHER, ALL = "word overlap", "lexical regression", "judges together", "judges + lexical"
PUBLISHED = {"word overlap": (0.520, 0.494), "RoBERTa-large, fine-tuned": (0.642, 0.601)}
"""Summary-level Pearson and Spearman over five folds by example (Zhang and Bansal 2021, Lite2Pyramid, p2c)."""
ADAPTER = "adapter"
EPOCHS = {"packed": 2.0, "matched": 1.0, ADAPTER: 2.0}
RATES = {"packed": 1.5e-4, "matched": 1.5e-4, ADAPTER: 5e-4}
_WORD = re.compile(r"[a-z0-9]+")
_STOP = set(
    "the a an of to in on at for and or is was are were be been by with as that this it its from has have had he she "
    "they his her their not will would who which".split()
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One criterion about one summary."""

    document: str
    system: str
    summary: str
    criterion: str
    present: int
    """Number of workers, out of `total`, who find the criterion in the summary."""
    total: int
    fold: int

    @property
    def share(self) -> float:
        """Fraction of workers who find it."""
        return self.present / self.total

    @property
    def majority(self) -> bool:
        """Whether most workers find it; a tie is no."""
        return 2 * self.present > self.total


@dataclass
class RealsummArguments:
    """Data and training settings."""

    data: str = field(default=DATA, metadata={"help": "The folder of the shared data, with realsumm/votes.jsonl.gz."})
    output_dir: str = field(default="runs/realsumm")
    base: str | None = field(
        default=None,
        metadata={"help": "The model to start from. Defaults to the packaged all-MiniLM-L6-v2, or SmolLM2-135M."},
    )
    epochs: float | None = field(
        default=None, metadata={"help": "Passes over the data; by default 2, and 1 with matched pairs."}
    )
    learning_rate: float | None = field(
        default=None, metadata={"help": "By default 1.5e-4 for encoders, 5e-4 for an adapter."}
    )
    targets: int = field(default=4, metadata={"help": "Summaries per step of an encoder, with all their criteria."})
    row_tokens: int = field(default=768, metadata={"help": "Most tokens of a row of the adapter."})
    layouts: list[str] = field(
        default_factory=lambda: ["packed", "matched"],
        metadata={"help": "Layouts of the encoders, and `adapter` for an adapter of SmolLM2."},
    )
    folds: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5], metadata={"help": "Folds to predict."})
    bootstrap: int = field(default=1000, metadata={"help": "Bootstrap resamples of the documents."})
    seed: int = field(default=0)


def load_units(folder: str | Path) -> list[Unit]:
    """The units, in the order of the file. Raises [`SampleError`] if the data is missing."""
    return [
        Unit(
            row["doc_id"],
            row["system"],
            row["response"],
            row["criterion"],
            row["votes_present"],
            row["votes_total"],
            row["fold_by_example"],
        )
        for row in json_lines(data_file("realsumm/votes.jsonl.gz", folder))
    ]


def predictions(
    units: Sequence[Unit],
    fold: int,
    folder: Path,
    base: str | None,
    training: Training | AdapterTraining,
    console: Console,
) -> list[float]:
    """P(present) of the units of a fold from a judge trained on the other folds; saved in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    held_out = [unit for unit in units if unit.fold == fold]
    kept, told = folder / f"fold{fold}.json", folder / f"training{fold}.json"
    if told.is_file() and json.loads(told.read_text())["training"] != asdict(training):
        raise SampleError(f"{told} was trained with other settings; give another --output_dir.")
    if kept.is_file():
        return json.loads(kept.read_text())
    model = folder / f"judge{fold}"
    if not told.is_file():
        pairs = [Labelled(u.summary, u.criterion, u.share, u.document) for u in units if u.fold != fold]
        with progress_on(console) as bar:
            total = training.steps(pairs) if isinstance(training, Training) else None
            steps = bar(f"{folder.name}, fold {fold}, steps", total)

            def progress(step: TrainingStep) -> None:
                steps(1, f"loss {step.loss:.3f}")

            if isinstance(training, Training):
                made = train_encoder(pairs, model, base=base, training=training, progress=progress)
            else:
                made = train_adapter(pairs, model, base=base or SMOLLM2, training=training, progress=progress)
        told.write_text(json.dumps(made, indent=2) + "\n")
    store = Store(folder / "store.sqlite")
    if isinstance(training, Training):
        judge = judge_of(str(model), store=store)
    else:
        judge = judge_of(base or SMOLLM2, str(model), store)
    items = {criterion: ChecklistItem(question=criterion) for criterion in {unit.criterion for unit in held_out}}
    bill = Bill()
    reads = [Ask(items[unit.criterion], unit.summary) for unit in held_out]
    found = probabilities_of_yes(judge, reads, bill=bill)
    console.print(f"{folder.name}, fold {fold}: {bill.receipt}")
    kept.write_text(json.dumps(found))
    return found


def words(text: str) -> list[str]:
    """Lower-case words and numbers."""
    return _WORD.findall(text.lower())


def lexical_features(summary: str, criterion: str) -> list[float]:
    """Fractions of the criterion's words, content words, word prefixes, numbers and word pairs found in the summary,
    of its content words in the best sentence, and the length of the criterion."""
    there, asked = words(summary), words(criterion)
    content = [word for word in asked if word not in _STOP]
    numbers = [word for word in asked if word.isdigit()]
    sentences = [set(words(sentence)) for sentence in re.split(r" [.!?](?: |$)", summary)]
    return [
        _share(asked, set(there)),
        _share(content, set(there)),
        _share([word[:5] for word in content], {word[:5] for word in there}),
        _share(numbers, set(there)) if numbers else 1.0,
        _share(list(zip(asked, asked[1:], strict=False)), set(zip(there, there[1:], strict=False))),
        max(_share(content, sentence) for sentence in sentences),
        float(len(content)),
    ]


def content_recall(text: str, statement: str) -> float:
    """Fraction of the statement's content words in the text; of all its words, if none is a content word."""
    asked = words(statement)
    return _share([word for word in asked if word not in _STOP] or asked, set(words(text)))


def _share(asked: Sequence[Any], there: set[Any]) -> float:
    return sum(word in there for word in asked) / max(1, len(asked))


def lexical_predictions(features: np.ndarray, majority: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """P(present) from a logistic regression trained on the other folds."""
    found = np.zeros(len(features))
    for fold in np.unique(folds):
        test = folds == fold
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(
            features[~test], majority[~test]
        )
        found[test] = model.predict_proba(features[test])[:, 1]
    return found


def mean_log_odds(*several: np.ndarray) -> np.ndarray:
    """The probability whose log-odds are the mean of the given log-odds."""
    return 1 / (1 + np.exp(-np.mean([np.log(p / (1 - p)) for p in np.clip(several, 1e-6, 1 - 1e-6)], axis=0)))


def figures(units: Sequence[Unit], predicted: Sequence[float], bootstrap: Bootstrap) -> dict[str, Figure]:
    """AUC, kappa and accuracy per criterion, Pearson and Spearman per summary, with intervals over documents."""
    documents = [unit.document for unit in units]
    majority = [unit.majority for unit in units]
    answers = [[YES if yes else NO for yes in side] for side in (np.asarray(predicted) > 0.5, majority)]
    by_unit = bootstrap.figures(Categories(*answers, {YES: 1.0, NO: 0.0}), documents)
    binary = Numbers(list(predicted), [float(yes) for yes in majority], only=["auc"])
    auc = bootstrap.figures(binary, documents)["auc"]
    found = {"auc": auc, "kappa": by_unit["kappa"], "accuracy": by_unit["accuracy"]}
    by_document = summary_correlations(units, predicted)
    for place, name in enumerate(("pearson", "spearman")):
        known = {document: pair[place] for document, pair in by_document.items() if pair[place] is not None}
        found[name] = bootstrap.figures(Mean(name, list(known.values())), list(known))[name]  # type: ignore[arg-type]
    return found


def summary_correlations(
    units: Sequence[Unit], predicted: Sequence[float]
) -> dict[str, tuple[float | None, float | None]]:
    """Of every document Pearson and Spearman, across its systems, of the mean prediction and the mean share of votes
    over its criteria; None where one of the two does not vary."""
    cells: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for unit, value in zip(units, predicted, strict=True):
        cells.setdefault(unit.document, {}).setdefault(unit.system, []).append((value, unit.share))
    found = {}
    for document, systems in cells.items():
        # Rounded, so that equal means are ties regardless of the order of summation.
        ours, theirs = np.round([np.mean(pairs, axis=0) for pairs in systems.values()], 9).T
        varied = np.ptp(ours) > 0 and np.ptp(theirs) > 0
        found[document] = (
            (float(pearsonr(ours, theirs).statistic), float(spearmanr(ours, theirs).statistic))
            if varied
            else (None, None)
        )
    return found


def gains(
    units: Sequence[Unit], one: Sequence[float], other: Sequence[float], bootstrap: Bootstrap
) -> dict[str, Figure]:
    """Difference of the summary-level correlations of `one` and `other`, per document."""
    ours, theirs = summary_correlations(units, one), summary_correlations(units, other)
    found = {}
    for place, name in enumerate(("pearson", "spearman")):
        pairs = {document: (ours[document][place], theirs[document][place]) for document in ours}
        known = {document: a - b for document, (a, b) in pairs.items() if a is not None and b is not None}
        found[name] = bootstrap.figures(Mean(name, list(known.values())), list(known))[name]
    return found


def against_the_others(units: Sequence[Unit], predicted: Sequence[float] | None = None) -> float:
    """Agreement of single workers, and of the judge, with the majority of the other workers of a unit.

    Every worker is left out once. Ties among the remaining workers are not counted.
    """
    agreed = counted = 0
    for place, unit in enumerate(units):
        for vote, workers in ((1, unit.present), (0, unit.total - unit.present)):
            yes, others = unit.present - vote, unit.total - 1
            if not workers or 2 * yes == others:
                continue
            said = bool(vote) if predicted is None else predicted[place] > 0.5
            agreed += workers * (said == (2 * yes > others))
            counted += workers
    return agreed / counted


def report(found: Mapping[str, Mapping[str, Figure]], people: Mapping[str, float], count: str) -> None:
    """Print the table."""
    names = list(next(iter(found.values())))
    table = Table(
        Column("", no_wrap=True), *names, "agrees with workers", title=f"REALSumm, five folds by document: {count}"
    )
    for method, line in found.items():
        table.add_row(method, *(line[name].shown() for name in names), f"{people[method]:.3f}")
    for method, pair in PUBLISHED.items():
        table.add_row(f"{method} (published)", "", "", "", *(f"{value:.3f}" for value in pair), "")
    table.add_row("one worker", *[""] * len(names), f"{people['one worker']:.3f}")
    Console(width=max(Console().width, 170)).print(table)  # in a log, too, every figure is whole


def plot(found: Mapping[str, Mapping[str, Figure]], path: Path) -> None:
    """Plot all figures with their intervals, and the published figures."""
    from matplotlib.figure import Figure as Picture

    names = list(next(iter(found.values())))
    picture = Picture(figsize=(2.4 * len(names), 2.6), layout="constrained")
    for axes, name in zip(picture.subplots(1, len(names), sharey=True), names, strict=True):
        for place, method in enumerate(found):
            line = found[method][name]
            assert line.value is not None
            axes.plot(line.value, place, "o")
            if line.low is not None and line.high is not None:
                axes.plot([line.low, line.high], [place, place], "-", color=axes.lines[-1].get_color())
        if name in ("pearson", "spearman"):
            axes.axvline(PUBLISHED["RoBERTa-large, fine-tuned"][name == "spearman"], color="grey", linestyle="--")
        axes.set_title(name)
        axes.set_yticks(range(len(found)), list(found))
    picture.savefig(path, dpi=120)


def main(arguments: RealsummArguments) -> dict[str, Any]:
    units = load_units(arguments.data)
    folder = Path(arguments.output_dir)
    console = Console()
    chosen = np.isin([unit.fold for unit in units], arguments.folds)
    judges: dict[str, np.ndarray] = {}
    for layout in arguments.layouts:
        epochs, rate = arguments.epochs or EPOCHS[layout], arguments.learning_rate or RATES[layout]
        training: Training | AdapterTraining = (
            AdapterTraining(epochs, rate, row_tokens=arguments.row_tokens, seed=arguments.seed)
            if layout == ADAPTER
            else Training(epochs, rate, arguments.targets, layout, seed=arguments.seed)
        )
        places = {
            fold: iter(predictions(units, fold, folder / layout, arguments.base, training, console))
            for fold in arguments.folds
        }
        name = "SmolLM2 adapter" if layout == ADAPTER else f"encoder, {layout}"
        judges[name] = np.array([next(places[unit.fold]) for unit in units if unit.fold in places])
    features = np.array([lexical_features(unit.summary, unit.criterion) for unit in units])
    majority, folds = np.array([[unit.majority, unit.fold] for unit in units]).T
    lexical = lexical_predictions(features, majority.astype(bool), folds)[chosen]
    units = [unit for unit in units if unit.fold in arguments.folds]
    predicted = {OVERLAP: features[chosen, 0], LEXICAL: lexical, **judges}
    if len(judges) > 1:
        predicted[TOGETHER] = mean_log_odds(*judges.values())
    best = list(predicted)[-1]
    predicted[ALL] = mean_log_odds(*judges.values(), lexical)
    bootstrap = Bootstrap(arguments.bootstrap, arguments.seed)
    found = {method: figures(units, values.tolist(), bootstrap) for method, values in predicted.items()}
    gained = {
        method: gains(units, predicted[best].tolist(), predicted[method].tolist(), bootstrap)
        for method in (OVERLAP, LEXICAL, *judges)
        if method != best
    }
    people = {method: against_the_others(units, values) for method, values in predicted.items()}
    people["one worker"] = against_the_others(units)
    documents = len({unit.document for unit in units})
    report(found, people, f"{len(units):,} units, {documents} documents, folds {arguments.folds}")
    for method, line in gained.items():
        console.print(f"{best} over {method}: " + ", ".join(f"{name} {figure}" for name, figure in line.items()))
    plot(found, folder / "figures.png")
    with write_rows(folder / "predictions.jsonl") as rows:
        for place, unit in enumerate(units):
            named = {name: float(values[place]) for name, values in predicted.items()}
            rows.write(
                {"document": unit.document, "system": unit.system, "criterion": unit.criterion, "share": unit.share}
                | named
            )
    summary = {
        "units": len(units),
        "documents": documents,
        "folds": arguments.folds,
        "figures": {
            method: {name: figure.model_dump() for name, figure in line.items()} for method, line in found.items()
        },
        f"{best} over": {
            method: {name: figure.model_dump() for name, figure in line.items()} for method, line in gained.items()
        },
        "agrees_with_the_majority_of_other_workers": people,
        "published": PUBLISHED,
    }
    save_json(folder / "figures.json", summary)
    return summary


if __name__ == "__main__":
    run_main(lambda: main(*TrlParser((RealsummArguments,)).parse_args_and_config()))
