"""Train a model of English: a judge (LoRA adapter or encoder) or a writer of checklists.

    python recipes/english/train.py adapter --output runs/english --reads 8000
    python recipes/english/train.py adapter --output runs/english --reads 3000 --leave-out semeval
    python recipes/english/train.py encoder --output runs/final --reads 32000 --seed 1 --opposites 0.33 \\
        --learning-rate 1e-4 --after runs/english/encoder-all
    python recipes/english/train.py writer --output runs/writer --epochs 2 --row-tokens 1024

The adapter and the writer start from SmolLM2-135M-Instruct, the encoder from MiniLM. A judge learns the training
splits of all tasks (`tasks.py`), or of all but one, and is saved in `<output>/<kind>-all` or
`<output>/<kind>-not-<task>`. The writer learns the checklists of experts (`writer.py`), and is saved in
`<output>/writer`. A finished model is not trained again; an interrupted adapter or writer continues from its last
checkpoint. With `--reads`, the labels are a random sample with equal shares of the tasks. With `--opposites`, a share
of them is also asked with *not*, and there are questions about form (`opposites.py`). With `--after`, a trained judge
is trained further.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import DATA, run_main
from english.tasks import TASKS, training_pairs
from english.writer import examples
from rich.console import Console

from checklist_rewards.distill.adapter import AdapterTraining, train_adapter, train_writer
from checklist_rewards.distill.training import Training, TrainingStep, train_encoder
from checklist_rewards.errors import SampleError
from checklist_rewards.progress import progress_on

ADAPTER, ENCODER, WRITER = "adapter", "encoder", "writer"
RECORD = "training.json"


def name_of(kind: str, left_out: str | None) -> str:
    """The name of a model's folder."""
    if kind == WRITER:
        return kind
    return f"{kind}-all" if left_out is None else f"{kind}-not-{left_out}"


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train one model; returns its record."""
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
    how = {"epochs": args.epochs, "seed": args.seed}
    about: dict[str, Any] = {"settings": settings}
    if args.kind == WRITER:
        data: list[Any] = examples(args.data, args.seed)
    else:
        about["tasks"] = [task for task in TASKS if task != args.leave_out]
        data = training_pairs(about["tasks"], args.reads, args.seed, args.data, args.opposites)
    if args.kind == ENCODER:
        encoder = Training(learning_rate=args.learning_rate or 1.5e-4, targets=8, **how)
        run = partial(train_encoder, base=args.base or after, training=encoder)
    else:
        adapter = AdapterTraining(learning_rate=args.learning_rate or 5e-4, row_tokens=args.row_tokens, **how)
        learn = train_writer if args.kind == WRITER else train_adapter
        run = partial(learn, base=args.base or "smollm2", start=args.after, training=adapter)
    with progress_on(Console()) as bar:
        steps = bar(f"{folder.name}, {len(data)} {'checklists' if args.kind == WRITER else 'labels'}", None)

        def progress(step: TrainingStep) -> None:
            steps(1, f"epoch {step.epoch:.3f}, loss {step.loss:.3f}")

        record = run(data, folder, progress=progress) | about
    if args.after is not None and (args.after / RECORD).is_file():
        record["before"] = json.loads((args.after / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return record


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=(ADAPTER, ENCODER, WRITER))
    parser.add_argument("--output", type=Path, default=Path("runs/english"))
    parser.add_argument("--leave-out", choices=TASKS, help="train a judge on the other tasks only")
    parser.add_argument("--after", type=Path, help="trained judge to train further")
    parser.add_argument(
        "--opposites", type=float, default=0.0, help="share of the labels that are also asked with *not*, in [0, 1]"
    )
    parser.add_argument("--reads", type=int, help="number of labels of a judge; all by default")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, help="1.5e-4 for the encoder, 5e-4 for the others")
    parser.add_argument(
        "--row-tokens",
        type=int,
        default=AdapterTraining().row_tokens,
        help="most tokens of a row of the adapter or the writer; 4096 for a GPU",
    )
    parser.add_argument(
        "--base", help="model to start from; `smollm2`, or the packaged MiniLM for an encoder, by default"
    )
    parser.add_argument("--data", default=DATA, help="folder of the tasks, or with infobench/ and ifeval/")
    parser.add_argument("--seed", type=int, default=0)
    record = train(parser.parse_args(argv))
    Console().print_json(data=record)


if __name__ == "__main__":
    run_main(main)
