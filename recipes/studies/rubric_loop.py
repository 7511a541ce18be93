"""What does the rubric loop find, repair and break?

    python recipes/studies/rubric_loop.py pocket --output runs/rubric_loop
    python recipes/studies/rubric_loop.py semeval summeval --output runs/rubric_loop

- *pocket*: texts of the pocket world. A rater counts which of five properties a text has, with noise. The checklist
  asks about these properties, and is spoilt in one known way, or in all ways together: an item twice in other words,
  an item with its opposite, two items that the rater does not care about, an item whose weight has the wrong sign, an
  item that is missing. The pocket judge reads all questions once, and all checklists are replayed. The writer is a
  list of the canonical questions of seven families, of which the rater counts five.
- *semeval*: ten questions for all answers of students to exam questions, written here, with the grades 0 and 1. The
  judge is `english-encoder`, which was trained on other answers to the same questions.
- *wordings*: the same grades. The checklist has the five wordings of one question that quote the accepted answer
  (`weights.py`), as five items for all rows. The same with preferences: of two answers to a question, one is right.
- *summeval*: twenty questions about summaries (`judges/summeval.py`), with the mean rating of three experts.
- *coherence*, *consistency*, *fluency*, *relevance*: the five questions of this dimension, with its rating.
- *coherence-form* and so on: twelve code checks of the form of a summary, with the same ratings.

A fault is *found* if the item is listed as weak by a name that fits. It is *repaired* if the final checklist has no
trace of it: the copy, the opposite or the irrelevant item is gone (or has less than a fourth of the mean weight), the
sign is turned, the missing item is there. *Broken* counts good items of the five properties that are gone or turned.

Answers are kept in `<output>/store.sqlite`. Results are in `<output>/NAME.json` and `<output>/tables.md`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, permutations, product
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pocket.world import EVERYDAY_WORDS, FAMILIES, Constraint, parse_question, sample_plan, write_text
from rich.console import Console
from studies import weights
from studies.common import DATA, data_file, json_lines, markdown, once, run_main
from studies.judges import summeval

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evolving.improve import Improvement, improve
from checklist_rewards.evolving.rewriting import Change, Rewriter
from checklist_rewards.files.store import Store
from checklist_rewards.progress import progress_on
from checklist_rewards.scores import Verdict, score_checklist

PROPERTIES = ("digits", "lowercase", "bullets", "question", "sentences")
"""What the rater counts."""
SENTENCES = 2
IGNORED = ('Does the response begin with the word "the"?', "Is the response good?")
NOISE = 0.5
FAULTS = ("none", "duplicated", "contradicting", "vague", "wrong sign", "missing", "all")
NAMES = {
    "duplicated": ("redundant",),
    "contradicting": ("contradicts", "disagrees"),
    "vague": ("unrelated", "no_variance", "disagrees"),
    "wrong sign": ("disagrees",),
}
"""The findings that fit a fault. A missing item is no item, so nothing can be found."""
SEMEVAL = [
    "Does the answer say what the reference answer says?",
    {"question": "Does the answer contradict the reference answer?", "weight": -1},
    "Is the answer correct?",
    "Does the answer respond to the question?",
    "Is the answer complete?",
    "Is the answer a full sentence?",
    "Does the answer use the words of the question?",
    "Is the answer clear, and does it give a reason?",
    "Is the answer specific?",
    "Is the answer well written?",
]


def constraint(family: str) -> Constraint:
    """The property of a family."""
    return Constraint(family, SENTENCES if family == "sentences" else None)


def questions() -> list[str]:
    """All questions about the world without words, both wordings, and those that the rater ignores."""
    families = [family for family in FAMILIES if family not in ("mention", "avoid", "first")]
    return [question for family in families for question in constraint(family).questions()] + list(IGNORED)


class ListWriter(Rewriter):
    """Proposes the canonical questions of all families in place of a model."""

    def __init__(self) -> None:
        self.known = [Checklist.parse([question]).items[0] for question in questions() if question not in IGNORED][::2]

    def validate(self) -> None:
        """There is no model."""

    def changes(self, checklist: Checklist, findings: Sequence[Any], groups: Sequence[Any]) -> list[Change]:
        """Every question that the checklist does not have."""
        asked = {item.id for item in checklist.items}
        return [Change("new", (), (item,), "in the list") for item in self.known if item.id not in asked]


def spoilt(fault: str, rng: random.Random) -> tuple[Checklist, dict[str, list[str]]]:
    """A checklist with a fault, and the questions that have it, by fault."""
    families = list(PROPERTIES)
    rng.shuffle(families)
    items: list[dict[str, Any]] = [{"question": constraint(family).question()} for family in families]
    bad: dict[str, list[str]] = {}
    if fault in ("missing", "all"):
        bad["missing"] = [items.pop(0)["question"]]
    if fault in ("wrong sign", "all"):
        items[-1]["weight"] = -1
        bad["wrong sign"] = [items[-1]["question"]]
    if fault in ("duplicated", "all"):
        family = families[1]
        bad["duplicated"] = [constraint(family).questions()[1]]
        items += [{"question": question} for question in bad["duplicated"]]
    if fault in ("contradicting", "all"):
        bad["contradicting"] = ["Is the response free of digits?"]
        items += [{"question": question} for question in bad["contradicting"]]
    if fault in ("vague", "all"):
        bad["vague"] = list(IGNORED)
        items += [{"question": question} for question in IGNORED]
    rng.shuffle(items)
    return Checklist.parse(items), bad


def texts(count: int) -> list[str]:
    """Texts of random properties."""
    rng = random.Random("rubric-0")
    return [write_text(rng, sample_plan(rng), EVERYDAY_WORDS) for _ in range(count)]


def rating(text: str, rng: random.Random) -> float:
    """How many of the properties the text has, with noise."""
    return sum(constraint(family).holds(text) for family in PROPERTIES) + rng.gauss(0, NOISE)


def repaired(fault: str, question: str, found: Improvement) -> bool:
    """Whether the final checklist has no trace of a fault."""
    weights = {item.question: item.weight for item in found.checklist.items}
    mean = fmean(map(abs, weights.values()))
    if fault == "wrong sign":
        return weights.get(question, 0) > 0
    if fault == "missing":
        return any(parse_question(other) == parse_question(question) for other in weights)
    if fault == "duplicated":
        same = [weight for other, weight in weights.items() if parse_question(other) == parse_question(question)]
        return len(same) == 1
    return weights.get(question, 0) < mean / 4


def broken(found: Improvement, bad: dict[str, list[str]]) -> int:
    """Good items of the rater's properties that are gone or turned."""
    spoilt_ones = {question for some in bad.values() for question in some}
    kept = {parse_question(item.question) for item in found.checklist.items if item.weight > 0}
    good = [item for item in found.before.items if item.question not in spoilt_ones and item.weight > 0]
    return sum(parse_question(item.question) not in kept for item in good)


def pocket(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """All faults, by number of labels and with and without the list of questions."""
    union = Checklist.parse(questions())
    scorer = ChecklistScorer("pocket", backend="transformers", store=store)
    written = texts(max(args.labels))
    samples = [Sample(union, text, "Write a short text.") for text in written]
    with progress_on(Console()) as bar:
        scores = scorer.score_batch(samples, bar("reads", len(samples) * len(union)))
    cells = []
    for writer, labels, seed, fault in product(("none", "list"), args.labels, range(args.seeds), FAULTS):
        if writer == "none" or fault in ("none", "missing", "all"):
            settings = {"writer": writer, "labels": labels, "seed": seed, "fault": fault, "resamples": args.resamples}
            rng = random.Random(f"{fault}-{seed}")
            checklist, bad = spoilt(fault, rng)

            def run() -> dict[str, Any]:
                rows = []
                for number in rng.sample(range(len(written)), labels):  # noqa: B023 - called at once
                    sample = replace(samples[number], checklist=checklist)  # noqa: B023
                    label, name = rating(written[number], rng), str(number)  # noqa: B023
                    rows.append(ScoredText(name, f"text {name}", scores[number], labels=label, sample=sample))
                judge, list_writer = (None, None) if writer == "none" else (scorer, ListWriter())  # noqa: B023
                how = Bootstrap(args.resamples, seed)  # noqa: B023
                return outcome(improve(checklist, rows, scorer=judge, writer=list_writer, bootstrap=how), bad)  # noqa: B023

            folder = args.output / "pocket" / f"{fault.replace(' ', '_')}-{labels}-{writer}-{seed}"
            cells.append({**settings, **once(folder, settings, run)})
    return {"cells": cells}


def outcome(found: Improvement, bad: dict[str, list[str]]) -> dict[str, Any]:
    """What a run found, repaired and broke."""
    listed: dict[str, set[str]] = {}
    for one in found.findings:
        listed.setdefault(one.item.question, set()).add(one.fault)
    faults = [(fault, question) for fault, some in bad.items() for question in some]
    seen = {
        fault: [
            any(
                listed.get(item.question, set()) & set(NAMES[fault])
                for item in found.before.items
                if item.question == question
                or (fault in ("duplicated", "contradicting") and related(item.question, question))
            )
            for question in some
        ]
        for fault, some in bad.items()
        if fault in NAMES
    }
    return {
        "found": seen,
        "repaired": {fault: [repaired(fault, one, found) for one in some] for fault, some in bad.items()},
        "faults": len(faults),
        "broken": broken(found, bad),
        "false_alarms": sum(
            parse_question(item.question) is not None
            and item.question not in {question for _, question in faults}
            and not any(related(item.question, question) for _, question in faults)
            and item.question in listed
            for item in found.before.items
        ),
        "figures": {name: figure.model_dump() for name, figure in found.figures.items()},
        "steps": [(step.change.kind, step.kept) for step in found.steps],
        "checklist": [(item.question, item.weight) for item in found.checklist.items],
        "stopped": found.stopped,
    }


def related(one: str, other: str) -> bool:
    """Whether two questions ask about the same property, or one about the opposite of the other."""
    first, second = parse_question(one), parse_question(other)
    if first is None or second is None:
        return False
    return first == second or {first.family, second.family} == {"digits", "no_digits"}


def pocket_table(result: dict[str, Any]) -> str:
    """Counts by fault, labels and arm as Markdown."""
    rows = []
    keys = dict.fromkeys((cell["labels"], cell["fault"], cell["writer"]) for cell in result["cells"])
    for labels, fault, writer in keys:
        cells = [c for c in result["cells"] if (c["labels"], c["fault"], c["writer"]) == (labels, fault, writer)]
        found = [one for cell in cells for some in cell["found"].values() for one in some]
        fixed = [one for cell in cells for some in cell["repaired"].values() for one in some]
        before, after = (fmean(cell["figures"][name]["value"] for cell in cells) for name in ("before", "after"))
        rows.append(
            [
                labels,
                fault,
                writer,
                f"{sum(found)} of {len(found)}" if found else "",
                f"{sum(fixed)} of {len(fixed)}" if fixed else "",
                sum(cell["broken"] for cell in cells),
                f"{before:.3f}",
                f"{after:.3f}",
                sum(not kept for cell in cells for _, kept in cell["steps"]),
            ]
        )
    head = ["labels", "fault", "writer", "found", "repaired", "broken", "before", "after", "refused changes"]
    return markdown(head, rows)


def semeval_rows(args: argparse.Namespace, store: Store) -> tuple[Checklist, list[ScoredText]]:
    """Answers of students that are in no training set, with their grades."""
    checklist, rows = Checklist.parse(SEMEVAL), []
    for number, row in enumerate(json_lines(data_file("semeval/dev.jsonl.gz", args.data)), start=1):
        if not row["in_train"]:
            reference = row["closest_reference"] or row["reference"]
            sample = Sample(checklist, row["target"], f"{row['input']}\n\nReference answer: {reference}")
            where = f"semeval, row {number}"
            rows.append(ScoredText(where, where, group=row["group"], labels=row["label"], sample=sample))
    return checklist, rows[: args.rows]


def wordings_rows(args: argparse.Namespace, store: Store) -> tuple[Checklist, list[ScoredText]]:
    """Answers of students, with the stored reads of five wordings."""
    task = weights.semeval(argparse.Namespace(texts=args.rows, data=args.data), store)
    names = [f"Does the answer say what the accepted answer says? (wording {n + 1})" for n in range(5)]
    checklist, rows = Checklist.parse(names), []
    for one, text, label in zip(task.rows, task.texts, task.labels, strict=True):
        said = [float(line.soft or 0.0) for line in one.judged.items]
        score = score_checklist(checklist, [Verdict({"yes": p, "no": 1 - p}, method="logprobs") for p in said])
        rows.append(replace(one, score=score, labels=label, sample=Sample(checklist, text)))
    return checklist, rows


def preferences(rows: Sequence[ScoredText], rng: random.Random) -> list[tuple[int, int]]:
    """Pairs of a better and a worse text, at most eight per group."""
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.group, []).append(place)
    found = []
    for places in groups.values():
        apart = [(one, other) for one, other in permutations(places, 2) if rows[one].labels > rows[other].labels]
        found += rng.sample(apart, min(8, len(apart)))
    return found


def summeval_rows(
    args: argparse.Namespace, store: Store, dimension: str | None = None
) -> tuple[Checklist, list[ScoredText]]:
    """Summaries with their rating in a dimension and its five questions, or with the mean rating and all questions."""
    chosen = summeval.QUESTIONS if dimension is None else {dimension: summeval.QUESTIONS[dimension]}
    items = [{"question": one, "category": name} for name, some in chosen.items() for one in some]
    checklist, rows = Checklist.parse(items), []
    for number, one in enumerate(summeval.load(args.data, 100)[: args.rows], start=1):
        sample = Sample(checklist, one.summary, f"Summarize this article.\n\n{one.article}")
        label = one.overall if dimension is None else one.ratings[dimension]
        where = f"summeval, row {number}"
        rows.append(ScoredText(where, where, group=one.document, labels=label, sample=sample))
    return checklist, rows


def form_rows(args: argparse.Namespace, store: Store, dimension: str) -> tuple[Checklist, list[ScoredText]]:
    """Summaries with their rating in a dimension, and the code checks of their form of `weights.py`."""
    checklist, rows = Checklist.parse(weights.FORM), []
    found = json_lines(data_file("summeval/summeval_16sys_expert_mean.jsonl.gz", args.data))
    for number, one in enumerate(islice(found, args.rows), start=1):
        where, label = f"summeval, row {number}", one["expert_mean"][dimension]
        sample = Sample(checklist, one["summary"])
        rows.append(ScoredText(where, where, group=one["doc_id"], labels=label, sample=sample))
    return checklist, rows


REAL: dict[str, Callable[[argparse.Namespace, Store], tuple[Checklist, list[ScoredText]]]] = {
    "semeval": semeval_rows,
    "wordings": wordings_rows,
    "summeval": summeval_rows,
    **{name: partial(summeval_rows, dimension=name) for name in summeval.QUESTIONS},
    **{f"{name}-form": partial(form_rows, dimension=name) for name in summeval.QUESTIONS},
}


def real(name: str, args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """Several divisions of the groups, without a writer."""
    checklist, rows = REAL[name](args, store)
    if rows[0].score is None:
        scorer = ChecklistScorer("english-encoder", store=store)
        with progress_on(Console()) as bar:
            samples = [one.to_judge for one in rows]
            scores = scorer.score_batch(samples, bar(name, len(rows) * len(checklist)))
        rows = [replace(one, score=score) for one, score in zip(rows, scores, strict=True)]
    runs = []
    for seed in range(args.seeds if name == "wordings" else 0):
        pairs = preferences(rows, random.Random(seed))
        found = improve(checklist, rows, pairs=pairs, bootstrap=Bootstrap(args.resamples, seed))
        runs.append({"seed": seed, "tolerance": 0.0, "pairs": True, **found.dumped(), "diff": found.diff()})
    for seed in range(args.seeds):
        for tolerance in (0.0, 0.01):
            found = improve(checklist, rows, tolerance=tolerance, bootstrap=Bootstrap(args.resamples, seed))
            runs.append({"seed": seed, "tolerance": tolerance, **found.dumped(), "diff": found.diff()})
    return {"runs": runs, "rows": len(rows), "groups": len({one.group for one in rows})}


def real_table(name: str, result: dict[str, Any]) -> str:
    """One line per division of the groups."""
    rows = []
    for run in result["runs"]:
        kept = [step["kind"] for step in run["steps"] if step["kept"]]
        shown = [
            f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]" for figure in run["figures"].values()
        ]
        counts = f"{len(run['before'])} to {len(run['checklist'])}"
        tried = f"{len(kept)} of {len(run['steps'])}"
        rows.append(
            [
                f"{name}, pairs" if run.get("pairs") else name,
                run["seed"],
                run["tolerance"],
                tried,
                counts,
                *shown,
                ", ".join(kept),
            ]
        )
    head = ["data", "division", "tolerance", "kept", "items", "before", "after", "gain", "changes kept"]
    return markdown(head, rows)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the study; returns the results by task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="+", choices=["pocket", *REAL])
    parser.add_argument("--output", type=Path, default=Path("runs/rubric_loop"))
    parser.add_argument("--labels", type=int, nargs="+", default=[150, 600], help="labels in the pocket world")
    parser.add_argument("--rows", type=int, default=1000, help="most rows of semeval and summeval")
    parser.add_argument("--seeds", type=int, default=5, help="divisions, and draws of texts")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--data", default=DATA)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    store, results, tables = Store(args.output / "store.sqlite"), {}, []
    for name in args.tasks:
        settings = {"task": name, "seeds": args.seeds, "resamples": args.resamples}
        settings |= {"labels": args.labels} if name == "pocket" else {"rows": args.rows}

        def run(name: str = name) -> dict[str, Any]:
            return pocket(args, store) if name == "pocket" else real(name, args, store)

        results[name] = once(args.output / name, settings, run)
        tables.append(pocket_table(results[name]) if name == "pocket" else real_table(name, results[name]))
        (args.output / "tables.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
        Console(width=200).print(tables[-1])
    return results


if __name__ == "__main__":
    run_main(main)
