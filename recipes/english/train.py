"""Train an English judge: a LoRA adapter of SmolLM2-135M-Instruct, or the MiniLM encoder.

    python recipes/english/train.py adapter --output runs/english --reads 8000
    python recipes/english/train.py adapter --output runs/english --reads 3000 --leave-out semeval
    python recipes/english/train.py encoder --output runs/final --reads 32000 --seed 1 --opposites 0.33 \\
        --learning-rate 1e-4 --after runs/english/encoder-all

Trains on the training splits of all tasks (`tasks.py`), or of all but one, into `<output>/<kind>-all` or
`<output>/<kind>-not-<task>`. A finished judge is not trained again; an interrupted adapter continues from its last
checkpoint. With `--reads`, the labels are a random sample with equal shares of the tasks. With `--opposites`, a share
of them is also asked with *not*, and there are questions about form (`opposites.py`). With `--after`, a trained judge
is trained further.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.tasks import DATA, TASKS, training_pairs
from rich.console import Console

from checklist_rewards.distill.adapter import AdapterTraining, train_adapter
from checklist_rewards.distill.training import Training, TrainingStep, train_encoder
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.progress import progress_on

ADAPTER, ENCODER = "adapter", "encoder"
RECORD = "training.json"


def name_of(kind: str, left_out: str | None) -> str:
    """The name of a judge's folder."""
    return f"{kind}-all" if left_out is None else f"{kind}-not-{left_out}"


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train one judge; returns its record."""
    folder: Path = args.output / name_of(args.kind, args.leave_out)
    after = None if args.after is None else str(args.after)
    settings = {"reads": args.reads, "epochs": args.epochs, "seed": args.seed, "after": after}
    settings |= {"opposites": args.opposites} if args.opposites else {}
    settings |= {"row_tokens": args.row_tokens} if args.row_tokens != AdapterTraining().row_tokens else {}
    if (folder / RECORD).is_file():
        record = json.loads((folder / RECORD).read_text())
        if record["settings"] != settings:
            raise SampleError(
                f"{folder} was trained with {record['settings']}; choose another --output for {settings}."
            )
        return record
    tasks = [task for task in TASKS if task != args.leave_out]
    pairs = training_pairs(tasks, args.reads, args.seed, args.data, args.opposites)
    with progress_on(Console()) as bar:
        steps = bar(f"{folder.name}, {len(pairs)} labels", None)

        def progress(step: TrainingStep) -> None:
            steps(1, f"epoch {step.epoch:.3f}, loss {step.loss:.3f}")

        if args.kind == ADAPTER:
            training = AdapterTraining(
                epochs=args.epochs,
                learning_rate=args.learning_rate or 5e-4,
                seed=args.seed,
                row_tokens=args.row_tokens,
            )
            record = train_adapter(
                pairs, folder, base=args.base or "smollm2", start=args.after, training=training, progress=progress
            )
        else:
            encoder = Training(
                epochs=args.epochs, learning_rate=args.learning_rate or 1.5e-4, seed=args.seed, targets=8
            )
            record = train_encoder(pairs, folder, base=args.base or after, training=encoder, progress=progress)
    record |= {"tasks": tasks, "settings": settings}
    if args.after is not None and (args.after / RECORD).is_file():
        record["before"] = json.loads((args.after / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return record


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=(ADAPTER, ENCODER))
    parser.add_argument("--output", type=Path, default=Path("runs/english"))
    parser.add_argument("--leave-out", choices=TASKS, help="train on the other tasks only")
    parser.add_argument("--after", type=Path, help="trained judge to train further")
    parser.add_argument(
        "--opposites", type=float, default=0.0, help="share of the labels that are also asked with *not*, in [0, 1]"
    )
    parser.add_argument("--reads", type=int, help="number of labels; all by default")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, help="5e-4 for the adapter, 1.5e-4 for the encoder")
    parser.add_argument(
        "--row-tokens",
        type=int,
        default=AdapterTraining().row_tokens,
        help="most tokens of a row of the adapter; 4096 for a GPU",
    )
    parser.add_argument(
        "--base", help="model to start from; `smollm2`, or the packaged MiniLM for an encoder, by default"
    )
    parser.add_argument("--data", default=DATA, help="folder of the tasks")
    parser.add_argument("--seed", type=int, default=0)
    record = train(parser.parse_args(argv))
    Console().print_json(data=record)


if __name__ == "__main__":
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None
