"""Evaluate a judge: score rows with checklists and targets, and compare the answers with a gold column if given.

    python recipes/studies/judges/gold.py --data infobench.jsonl --prompt_keys instruction input --target_key output \
        --checklist_key decomposed_questions --category_key question_label --gold_key eval --judge org/judge

The gold column has, per row, either one label per item (true or false) or one number (the quality of the target). With
labels, the recipe reports accuracy and Cohen's kappa, overall and by category. With numbers, it reports the Pearson
correlation with the scores. Results are written to `summary.json` and `scored.jsonl` under `--output_dir`. A second
run reads all answers from the store.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import StatisticsError, correlation
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from datasets import Dataset
from rich.console import Console
from rich.table import Table
from studies.common import run_main, save_json
from trl import TrlParser

from checklist_rewards import Checklist, ChecklistScorer, Sample, Score
from checklist_rewards.chat import prompt_text
from checklist_rewards.datasets import import_checklists
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.scores import Aggregation
from checklist_rewards.scores.tally import Tally

CHUNK_ROWS = 256


@dataclass
class EvaluateArguments:
    """Data and judge."""

    data: str = field(metadata={"help": "Rows with checklists and targets: .jsonl, .csv or .parquet."})
    prompt_keys: list[str] = field(
        default_factory=lambda: ["prompt"], metadata={"help": "Keys of the prompt; several are joined."}
    )
    target_key: str = field(default="target", metadata={"help": "Key of the text to score."})
    checklist_key: str = field(default="checklist", metadata={"help": "Key of the checklist."})
    category_key: str | None = field(default=None, metadata={"help": "Key of a list with the category of each item."})
    gold_key: str | None = field(
        default=None, metadata={"help": "Key of the gold labels (one per item) or of a gold score per row."}
    )
    judge: str = field(
        default="pocket", metadata={"help": "pocket, a folder, a Hub id, or the name of a served model."}
    )
    backend: str = field(default="auto", metadata={"help": "auto, transformers, vllm or openai."})
    base_url: str | None = field(default=None, metadata={"help": "URL of an OpenAI-compatible server."})
    prompt: str = field(default="judges/item", metadata={"help": "The judge's prompt."})
    threshold: float = field(default=Aggregation.threshold, metadata={"help": "Lowest P(yes) that counts as yes."})
    store: str | None = field(default=None, metadata={"help": "Store file. Defaults to the user cache."})
    output_dir: str = field(default="runs/evaluate")


@dataclass
class Agreement:
    """Confusion counts of answers against gold labels."""

    pairs: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """(judge is yes, gold is yes) to count."""

    @property
    def count(self) -> int:
        return sum(self.pairs.values())

    @property
    def accuracy(self) -> float | None:
        """Fraction of equal answers."""
        return (
            sum(n for (judged, gold), n in self.pairs.items() if judged == gold) / self.count if self.count else None
        )

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, chance-corrected agreement; None if both sides are constant."""
        if not self.count:
            return None
        judged, gold = (sum(n for pair, n in self.pairs.items() if pair[side]) / self.count for side in (0, 1))
        chance = judged * gold + (1 - judged) * (1 - gold)
        return None if chance == 1 else ((self.accuracy or 0.0) - chance) / (1 - chance)


def evaluate(dataset: Dataset, scorer: ChecklistScorer, gold_key: str | None, scored: Path) -> dict[str, Any]:
    """Score every row, write it to `scored`, and compute the figures.

    Returns:
        `dict`: The totals; with gold, also agreement or correlation, overall and by category.
    """
    totals, agreement = Tally(), Agreement()
    by_category: dict[str, tuple[Counter[str], Agreement]] = defaultdict(lambda: (Counter(), Agreement()))
    numbers: list[tuple[float, float]] = []
    with write_rows(scored) as rows:
        for row, checklist, score in _scores(dataset, scorer):
            rows.write(row | {"checklist_score": score.model_dump()})
            totals.add(score)
            gold = row.get(gold_key) if gold_key else None
            if isinstance(gold, int | float) and not isinstance(gold, bool) and score.primary_score is not None:
                numbers.append((score.primary_score, float(gold)))
            truths = gold if isinstance(gold, list) else [None] * len(checklist)
            for item, line, truth in zip(checklist.items, score.items, truths, strict=True):
                seen, agrees = by_category[item.category or "none"]
                seen.update(items=1, answered=line.passed is not None, passed=line.passed is True)
                if truth is not None and line.value is not None:
                    pair = line.value >= 0.5, bool(truth)
                    agreement.pairs[pair] += 1
                    agrees.pairs[pair] += 1
    return {
        "rows": len(dataset),
        "scored": totals.scored,
        "mean_score": totals.mean,
        "macro": totals.macro,
        "micro": totals.micro,
        "unanswered": dict(totals.unanswered),
        "agreement": _measured(agreement),
        "pearson": _pearson(numbers),
        "by_category": {name: {**seen, **_measured(agrees)} for name, (seen, agrees) in sorted(by_category.items())},
        "receipt": asdict(scorer.receipt),
    }


def _scores(dataset: Dataset, scorer: ChecklistScorer) -> Iterator[tuple[dict[str, Any], Checklist, Score]]:
    for start in range(0, len(dataset), CHUNK_ROWS):
        rows = list(dataset.select(range(start, min(start + CHUNK_ROWS, len(dataset)))))
        checklists = [Checklist.parse(row["checklist"], f"row {start + n}") for n, row in enumerate(rows, start=1)]
        samples = [
            Sample(checklist, row["target"], *_asked(row["prompt"]))
            for row, checklist in zip(rows, checklists, strict=True)
        ]
        yield from zip(rows, checklists, scorer.score_batch(samples), strict=True)


def _asked(prompt: Any) -> tuple[str | None, None, str | None]:
    text, history = prompt_text(prompt)
    return text, None, history


def _measured(agreement: Agreement) -> dict[str, Any]:
    return {"compared": agreement.count, "accuracy": agreement.accuracy, "kappa": agreement.kappa}


def _pearson(numbers: Sequence[tuple[float, float]]) -> float | None:
    try:
        return correlation(*zip(*numbers, strict=True)) if numbers else None
    except StatisticsError:  # fewer than two rows, or one side is constant
        return None


def check_gold(dataset: Dataset, gold_key: str) -> None:
    """Validate the gold column. Raises [`SampleError`] that names the row."""
    if gold_key not in dataset.column_names:
        raise SampleError(f"column {gold_key!r} not found; the columns are {', '.join(dataset.column_names)}.")
    for number, row in enumerate(dataset.select_columns(["checklist", gold_key]), start=1):
        gold, items = row[gold_key], len(row["checklist"])
        if isinstance(gold, list) and len(gold) != items:
            raise SampleError(f"row {number}: {gold_key!r} has {len(gold)} values for {items} items.")
        if gold is not None and not isinstance(gold, list | int | float):
            raise SampleError(f"row {number}: {gold_key!r} must be a list of labels or a number, got {gold!r:.60}.")


def report(summary: dict[str, Any]) -> None:
    """Print the tables."""
    console = Console()
    table = Table(title=f"{summary['rows']} rows", show_header=False)
    for name in ("mean_score", "macro", "micro", "pearson"):
        table.add_row(name, _number(summary[name]))
    table.add_row("unanswered", str(summary["unanswered"] or "nothing"))
    console.print(table)
    table = Table("category", "items", "passed", "compared", "accuracy", "kappa", title="Against gold")
    overall = {"items": sum(line["items"] for line in summary["by_category"].values())}
    overall |= {key: sum(line[key] for line in summary["by_category"].values()) for key in ("passed", "answered")}
    for name, line in (*summary["by_category"].items(), ("all", overall | summary["agreement"])):
        passed = line["passed"] / line["answered"] if line["answered"] else None
        shown = (_number(passed), str(line["compared"]), _number(line["accuracy"]), _number(line["kappa"]))
        table.add_row(name, str(line["items"]), *shown)
    console.print(table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main(arguments: EvaluateArguments) -> dict[str, Any]:
    scorer = ChecklistScorer(
        arguments.judge,
        backend=arguments.backend,
        base_url=arguments.base_url,
        prompt=arguments.prompt,
        threshold=arguments.threshold,
        store=arguments.store or True,
    )
    dataset = import_checklists(
        arguments.data,
        prompt_key=arguments.prompt_keys if len(arguments.prompt_keys) > 1 else arguments.prompt_keys[0],
        checklist_key=arguments.checklist_key,
        target_key=arguments.target_key,
        item_keys={"category": arguments.category_key} if arguments.category_key else None,
    )
    if arguments.gold_key:
        check_gold(dataset, arguments.gold_key)
    scorer.validate()
    output = Path(arguments.output_dir)
    summary = evaluate(dataset, scorer, arguments.gold_key, output / "scored.jsonl")
    save_json(output / "summary.json", summary)
    report(summary)
    return summary


if __name__ == "__main__":
    run_main(lambda: main(*TrlParser((EvaluateArguments,)).parse_args_and_config()))
