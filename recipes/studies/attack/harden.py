"""Does training on successful attacks make a packaged judge robust against other kinds of attacks?

    python recipes/studies/attack/harden.py english-encoder --output runs/attack
    python recipes/studies/attack/harden.py english --output runs/attack

1. The kinds of attacks are divided into two halves. The judge is attacked with the first half on the packaged
   prompts, and successful attacks on the searched prompts become labels (no), as by `attack --labels`.
2. It is trained further on these labels, on the honest responses to the prompts that are not reported (yes), responses
   to other prompts (no), and a sample of people's labels, which it was trained on (`english/tasks.py`): all weights of
   `english-encoder`, the adapter of `english`.
3. Both judges are attacked with the second half of the kinds. Figures are those of the reported prompts, which are in
   no training. Differences are paired by prompt.
4. Both answer a sample of the dev splits of the four tasks with people's labels: AUC, with the paired difference.

The reads of the untrained judge are in `<output>/store.sqlite`, which `defences.py` fills.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from english.tasks import DEV, TASKS, load, sample, training_pairs
from peft import PeftModel
from rich.console import Console
from studies.common import DATA, Difference, judge_of, markdown, probabilities_of_yes, run_main, save_json
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.attacks.attack import attack, default_rows, prompt_key
from checklist_rewards.attacks.bank import BANK
from checklist_rewards.attacks.report import AttackReport, compare
from checklist_rewards.backends.packaged import ENGLISH, ENGLISH_ENCODER, SMOLLM2, adapter_of, packaged_dir
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.distill.adapter import AdapterTraining, train_adapter
from checklist_rewards.distill.training import Training, TrainingStep, train_encoder
from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Numbers
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.progress import progress_on
from checklist_rewards.rerank import Pool

LEARNING_RATES = {ENGLISH_ENCODER: 5e-5, ENGLISH: 2e-4}
LEFT_OUT = ("empty", "filler")
"""`filler` takes as long as all other attacks together."""


def kinds_in_halves() -> tuple[list[str], list[str]]:
    """The attacks of every second kind, for training, and the others, for the test."""
    kinds = list(dict.fromkeys(known.kind for known in BANK.values()))
    names = [name for name in BANK if name not in LEFT_OUT]
    halves = (
        [name for name in names if kinds.index(BANK[name].kind) % 2 == 0],
        [name for name in names if kinds.index(BANK[name].kind) % 2 == 1],
    )
    return halves


def pairs_of_labels(report: AttackReport) -> list[Labelled]:
    """The labels of successful attacks."""
    return [
        Labelled(row["target"], item["question"], float(label == YES), row["group"], row["input"])
        for row in report.labels
        for item, label in zip(row["checklist"], row["labels"], strict=True)
        if label in (YES, NO)
    ]


def pairs_of_responses(rows: Sequence[Pool]) -> list[Labelled]:
    """Honest responses (yes), and the response to the next prompt (no)."""
    pairs = []
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        for item in row.checklist.items:
            for text, label in ((row.candidates[0], 1.0), (other.candidates[0], 0.0)):
                if item.check is None:  # a response to another prompt may meet what code checks
                    pairs.append(Labelled(text, item.question, label, row.input, row.input))
    return pairs


def train(model: str, pairs: Sequence[Labelled], output: Path, learning_rate: float) -> None:
    """Train a packaged judge further for one epoch; `output` gets a model of the same format, an adapter merged."""
    with progress_on(Console()) as bar:
        steps = bar(f"training {model} on {len(pairs)} labels", None)

        def progress(step: TrainingStep) -> None:
            steps(1, f"epoch {step.epoch:.2f}, loss {step.loss:.3f}")

        if model == ENGLISH_ENCODER:
            settings = Training(epochs=1, learning_rate=learning_rate, targets=8)
            train_encoder(pairs, output, base=packaged_dir(model), training=settings, progress=progress)
            return
        adapter, of_adapter = output.with_name(f"{output.name}-adapter"), AdapterTraining(learning_rate=learning_rate)
        train_adapter(pairs, adapter, base=SMOLLM2, start=adapter_of(model), training=of_adapter, progress=progress)
    base = packaged_dir(SMOLLM2)
    merged: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    AutoTokenizer.from_pretrained(base).save_pretrained(output)
    merged.merge_and_unload().save_pretrained(output)


def human_tasks(judges: dict[str, str], args: argparse.Namespace, bootstrap: Bootstrap) -> dict[str, Any]:
    """AUC of both judges on each task, and the paired difference."""
    found: dict[str, Any] = {}
    for task in TASKS:
        examples = sample(load(task, DEV, args.data), args.reads)
        pairs = [example.pair() for example in examples]
        reads = [Ask(ChecklistItem(question=p.question), p.target, p.input, p.reference) for p in pairs]
        truths, groups = [float(example.label > 0.5) for example in examples], [e.group for e in examples]
        aucs = {
            name: Numbers(probabilities_of_yes(judge_of(folder), reads), truths, only=["auc"])
            for name, folder in judges.items()
        }
        before, after = aucs.values()
        found[task] = {
            "n": len(examples),
            **{name: bootstrap.figures(auc, groups)["auc"].model_dump() for name, auc in aucs.items()},
            "change": bootstrap.figures(Difference(after, before, ["auc"]), groups)["auc"].model_dump(),
        }
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Harden and measure; returns the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=LEARNING_RATES)
    parser.add_argument("--output", type=Path, default=Path("runs/attack"))
    parser.add_argument("--prompts", type=int, default=20, help="half for the search, half for the figures")
    parser.add_argument("--budget-reads", type=int, default=4000, help="most reads per attack")
    parser.add_argument("--human", type=int, default=800, help="labels of people in the training")
    parser.add_argument("--reads", type=int, default=250, help="reads per task with people's labels")
    parser.add_argument("--learning-rate", type=float, help=f"default: {LEARNING_RATES}")
    parser.add_argument("--data", default=DATA, help="folder of the tasks")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    rows, (first, second) = default_rows()[: args.prompts], kinds_in_halves()
    store, bootstrap = Store(args.output / "store.sqlite"), Bootstrap()
    hardened = args.output / f"hardened-{args.model}"

    def attacked(judge: str, names: Sequence[str], kept: Store | bool) -> AttackReport:
        scorer = ChecklistScorer(judge, store=kept, checks="judge")
        with progress_on(Console()) as bar:
            reads = bar(f"{Path(judge).name}, {len(names)} attacks", None)
            return attack(
                scorer, rows, attacks=names, prompts=len(rows), budget_reads=args.budget_reads, progress=reads
            )

    training = attacked(args.model, first, store)
    labels = pairs_of_labels(training)
    reported = {prompt for figures in training.attacks for prompt in figures.rises}
    others = [row for row in default_rows() if prompt_key(row) not in reported]
    pairs = [*labels, *pairs_of_responses(others), *training_pairs(TASKS, args.human, 0, args.data)]
    if not (hardened / "config.json").is_file():
        train(args.model, pairs, hardened, args.learning_rate or LEARNING_RATES[args.model])
    before, after = attacked(args.model, second, store), attacked(str(hardened), second, False)
    compared = compare(before, after, bootstrap)
    found: dict[str, Any] = {
        "labels": len(labels),
        "pairs": len(pairs),
        "before": before.model_dump(),
        "after": after.model_dump(),
        "compared": compared.model_dump(),
    }
    save_json(args.output / f"harden-{args.model}.json", found)
    tasks = human_tasks({"before": args.model, "after": str(hardened)}, args, bootstrap)
    found["tasks"] = tasks
    save_json(args.output / f"harden-{args.model}.json", found)
    Console(width=160).print(
        markdown(
            ["", "before", "after", "change"],
            [
                ["rise of the chosen attack", compared.worst_one, compared.worst_other, ""],
                ["mean of all attacks of the test kinds", "", "", compared.change],
                *([f"`{one.name}`", one.one, one.other, one.change] for one in compared.attacks[:8]),
                ["honest responses", compared.honest_one, compared.honest_other, ""],
                ["bad beats honest, no attack", compared.beats_before_one, compared.beats_before_other, ""],
                *(
                    [
                        f"AUC, `{task}`, n = {line['n']}",
                        *(Figure(**line[key]) for key in ("before", "after", "change")),
                    ]
                    for task, line in tasks.items()
                ),
            ],
        )
    )
    return found


if __name__ == "__main__":
    run_main(main)
