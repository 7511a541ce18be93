"""Compare the checklists of writers with those of experts, on the 100 held-out instructions of InFoBench.

    python recipes/english/evaluate_writer.py english-writer smollm2 constraints clauses english --output runs/writer

A writer is a model, the folder of an adapter of `smollm2`, or one of

- `constraints`: the requirements that rules find, without a model;
- `clauses`: a floor that asks about each clause of the instruction, word for word;
- `english`: the pipeline, rules first and then `english-writer`.

Figures per writer: *valid* is the share of instructions with a checklist; *questions* their mean number; BLEU and
ROUGE as in TICK (arXiv:2410.03608, table 2); *precision*, *recall* and *F1* match questions one to one by the cosine
of their embeddings (all-MiniLM-L6-v2) from a threshold on. Two questions of one expert about one instruction never
ask the same, so the threshold is the cosine that only 5 % of the training instructions' questions reach with another
question of their checklist. *Redundant* is the share of questions that are nearly equal to an earlier one.
Instructions without a checklist count with recall 0. Writes `figures.json`, `figures.md` and the checklists.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import DATA, markdown, run_main, save_json
from english.writer import Expert, experts

from checklist_rewards.backends import Engine
from checklist_rewards.backends.embedding import SentenceEmbedder, near_duplicates, similarities_of
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError
from checklist_rewards.evaluation.items import similarity
from checklist_rewards.files.rows import write_rows
from checklist_rewards.generators import ConstraintsGenerator, DirectGenerator
from checklist_rewards.pipelines import pipeline

CONSTRAINTS, CLAUSES, PIPELINE = "constraints", "clauses", "english"
SAME = 0.05
"""Share of an expert's questions that reach the threshold with another one of the same checklist."""
_CLAUSE = re.compile(r"(?<=[.!?;:])\s+|\n+|,\s+(?=and |but |or )")


def clauses(text: str) -> Checklist | GenerationError:
    """A question for every clause of an instruction."""
    parts = [part.strip(" .,;:") for part in _CLAUSE.split(text.split("\n\n")[0])]
    asked = [f"Does the response meet this: {part}?" for part in parts if len(part.split()) >= 2]
    return Checklist.parse({"items": list(dict.fromkeys(asked))}) if asked else GenerationError("no clauses.")


def written_by(writer: str, texts: Sequence[str], backend: str = "auto") -> list[Checklist | GenerationError]:
    """The checklist of each text."""
    if writer == CLAUSES:
        return list(map(clauses, texts))
    if writer == CONSTRAINTS:
        return ConstraintsGenerator().generate_batch(texts)
    if writer == PIPELINE:
        return pipeline(PIPELINE, backend=backend, store=False).generate_batch(texts)
    if Path(writer, "adapter_config.json").is_file():
        engine = Engine("smollm2", backend, settings={"adapter": writer})
        return DirectGenerator(engine, store=False, temperature=0.3, drop_faults=True).generate_batch(texts)
    return DirectGenerator(writer, backend=backend, store=False).generate_batch(texts)


def threshold(some: Sequence[Expert]) -> float:
    """The cosine that a share [`SAME`] of the experts' questions reach with another question of their checklist."""
    lists = [Checklist.parse({"items": list(dict.fromkeys(expert.questions))}).items for expert in some]
    nearest = []
    for cosines in similarities_of(SentenceEmbedder(None), [items for items in lists if len(items) > 1]):
        np.fill_diagonal(cosines, -1)
        nearest += list(cosines.max(axis=1))
    return float(np.quantile(nearest, 1 - SAME))


def matched(cosines: np.ndarray, least: float) -> list[tuple[int, int]]:
    """Pairs of places with a cosine of at least `least`, each place once, with the greatest sum of cosines."""
    rows, columns = linear_sum_assignment(np.where(cosines >= least, cosines, 0), maximize=True)
    return [(r, c) for r, c in zip(rows.tolist(), columns.tolist(), strict=True) if cosines[r, c] >= least]


def figures(found: Sequence[Checklist | GenerationError], held_out: Sequence[Expert], least: float) -> dict[str, Any]:
    """The figures of a writer."""
    pairs = [
        (checklist, Checklist.parse({"items": list(dict.fromkeys(expert.questions))}))
        for checklist, expert in zip(found, held_out, strict=True)
        if isinstance(checklist, Checklist)
    ]
    precision, recall, redundant, written = [], [], 0, 0
    for checklist, human in pairs:
        both = [*checklist.items, *human.items]
        [cosines] = similarities_of(SentenceEmbedder(None), [both])
        count = len(checklist.items)
        hits = matched(cosines[:count, count:], least)
        precision.append(len(hits) / count)
        recall.append(len(hits) / len(human.items))
        near = near_duplicates(checklist.items, cosines[:count, :count])
        redundant += sum(bool(near[place, :place].any()) for place in range(count))
        written += count
    if not pairs:
        return {"valid": 0.0}
    likeness = similarity([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    p, r = sum(precision) / len(pairs), sum(recall) / len(held_out)
    return {
        "valid": len(pairs) / len(held_out),
        "questions": written / len(pairs),
        "count_mae": likeness.count_mae,
        "bleu": likeness.bleu,
        **likeness.rouge,
        "precision": p,
        "recall": r,
        "f1": 2 * p * r / (p + r) if p + r else 0.0,
        "redundant": redundant / written,
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure the writers; returns their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("writers", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("runs/writer"))
    parser.add_argument("--data", default=DATA, help="folder with infobench/ and ifeval/")
    parser.add_argument("--backend", default="auto")
    args = parser.parse_args(argv)
    train, held_out = experts(args.data)
    least = threshold(train)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "figures.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    result["threshold"] = least
    for writer in args.writers:
        started = time.perf_counter()
        found = written_by(writer, [expert.text for expert in held_out], args.backend)
        seconds = (time.perf_counter() - started) / len(held_out)
        result[writer] = {**figures(found, held_out, least), "seconds": seconds, "instructions": len(held_out)}
        with write_rows(args.output / f"{Path(writer).name}.jsonl") as out:
            for checklist, expert in zip(found, held_out, strict=True):
                row: dict[str, Any] = {"prompt": expert.text, "experts": list(expert.questions)}
                if isinstance(checklist, Checklist):
                    row["checklist"] = [item.question for item in checklist.items]
                else:
                    row |= {"error": str(checklist), "raw": checklist.raw}
                out.write(row)
        save_json(path, result)
        (args.output / "figures.md").write_text(table(result))
    print(table(result))
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    names = ("valid", "questions", "bleu", "rouge1", "rougeL", "precision", "recall", "f1", "redundant", "seconds")
    rows = [
        [Path(writer).name, *(f"{line[name]:.3g}" if name in line else "-" for name in names)]
        for writer, line in result.items()
        if isinstance(line, dict)
    ]
    return markdown(["writer", *names], rows) + "\n"


if __name__ == "__main__":
    run_main(main)
