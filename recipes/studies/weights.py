"""What are weights of checklist items worth that are fitted to labels?

    python recipes/studies/weights.py --output runs/weights

At 50 to 1,000 labels, four scores of held-out texts are compared: the checklist with equal weights, with the weights
of `checklist-rewards fit`, with weights of least squares without shrinkage, and no checklist at all but a ridge
regression on the sentence embedding of the text. Tasks:

- *summeval*: summaries, rated by experts (mean of four dimensions); 12 code checks of their form, a weight each.
- *semeval*: students' answers, right or wrong, judged by `english-encoder`; questions quote the expected answer, so
  weights belong to wordings.
- *pocket*: pairs of completions of the pocket policy. The checklist has a question per constraint, answered by code;
  weights belong to families of constraints. Gold is the weighted fraction of the constraints met; hidden weights are 1
  or 5 by family. The figure *best of 16* is gold of the chosen completion.

Labels are of random groups (articles, exam questions, instructions, prompts); the held-out groups are the same for all
budgets. Every cell has `--draws` draws. Figures are Spearman correlations, for semeval AUC, for pocket the fraction of
pairs in order. Reads are stored, so that an interrupted run continues.

    python recipes/studies/weights.py --output runs/weights --train 20

GRPO of the pocket policy on the checklist with equal weights, and with weights fitted to 300 pairs, on other prompts,
for three seeds. Seeds also draw the pairs. The figure is gold at the start and at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from english.tasks import DEV, WORDINGS, load
from pocket.policy import MAX_TOKENS, as_prompt, sample_policy
from pocket.world import Task as PocketTask
from pocket.world import tasks
from rich.console import Console
from studies.common import DATA, data_file, json_lines, markdown, once, run_main, save_json, shown, spread

from checklist_rewards import Checklist, ChecklistScorer, Sample, Score
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation import fitting
from checklist_rewards.evaluation.agreement import Bootstrap, Numbers
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.files.store import Store
from checklist_rewards.progress import progress_on
from checklist_rewards.refiners.embedding import SentenceEmbedder
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.scores.weights import Weights

BUDGETS = (50, 100, 300, 1000)
ARMS = ("equal weights", "fitted", "without shrinkage", "embedding")
TASKS = ("summeval", "semeval", "pocket")
HELD_OUT = 0.35
"""Fraction of the groups that no arm is fitted on."""
_HEAVY = 5.0
_OF_GROUP = 5
POOL = 16
"""Completions per prompt."""
BEST = f"best of {POOL}"
TRAINED_ON = ("equal weights", "fitted")
"""The weights of the GRPO runs."""
FORM = [
    {"question": f"Does the summary have {name}?", "check": check}
    for name, check in {
        "at least 20 words": {"type": "words", "at_least": 20},
        "at least 40 words": {"type": "words", "at_least": 40},
        "at least 60 words": {"type": "words", "at_least": 60},
        "at most 50 words": {"type": "words", "at_most": 50},
        "at most 80 words": {"type": "words", "at_most": 80},
        "at least 2 sentences": {"type": "sentences", "at_least": 2},
        "at least 3 sentences": {"type": "sentences", "at_least": 3},
        "at most 4 sentences": {"type": "sentences", "at_most": 4},
        "a capitalized word": {"type": "capital_words", "at_least": 1},
        "only lower case": {"type": "casing", "casing": "lower"},
        "a full stop at its end": {"type": "ends", "phrase": "."},
        "the word 'said'": {"type": "keywords", "words": ["said"]},
    }.items()
]


@dataclass
class Task:
    """Judged texts with labels. For preferences, `pairs` are (chosen, rejected), and `labels` is gold."""

    rows: list[ScoredText]
    texts: list[str]
    labels: list[float]
    measure: str = "spearman"
    by: fitting.By = "category"
    pairs: list[tuple[int, int]] | None = None
    pools: list[list[int]] = field(default_factory=list)
    """Completions of one prompt, of which one is chosen."""

    def figure(self, scores: np.ndarray, places: Sequence[int]) -> float:
        """The figure of some texts, or pairs."""
        if self.pairs is not None:
            ahead = [scores[a] - scores[b] for a, b in (self.pairs[place] for place in places)]
            return fmean((d > 1e-9) + 0.5 * (abs(d) <= 1e-9) for d in ahead)
        labels = [self.labels[place] for place in places]
        return Numbers(scores[list(places)], labels, only=[self.measure]).replicate(np.ones(len(places), int))[
            self.measure
        ]

    def group(self, place: int) -> str:
        """The group of a label."""
        return self.rows[place if self.pairs is None else self.pairs[place][0]].group

    @property
    def count(self) -> int:
        """Number of labels."""
        return len(self.labels if self.pairs is None else self.pairs)


def _summeval(args: argparse.Namespace, store: Store) -> Task:
    rows = list(json_lines(data_file("summeval/summeval_16sys_expert_mean.jsonl.gz", args.data)))[: args.texts]
    scores = ChecklistScorer("pocket", store=False).score_batch([Sample(FORM, row["summary"]) for row in rows])
    groups, texts = [row["doc_id"] for row in rows], [row["summary"] for row in rows]
    ratings = [fmean(row["expert_mean"].values()) for row in rows]
    return Task(_rows("summeval", groups, scores), texts, ratings, by="item")


def semeval(args: argparse.Namespace, store: Store) -> Task:
    """Held-out answers of students, with five wordings of one question each."""
    examples = load("semeval", DEV, args.data)[: args.texts]
    samples = [
        Sample(
            [
                {"question": e.pair(w).question, "category": f"wording {w + 1}"}
                for w in range(len(WORDINGS["semeval"]))
            ],
            e.target,
            e.input,
            e.pair(0).reference,
        )
        for e in examples
    ]
    scorer = ChecklistScorer("english-encoder", store=store)
    with progress_on(Console()) as bar:
        scores = scorer.score_batch(samples, bar("semeval, reads", sum(len(sample.checklist) for sample in samples)))
    rows = _rows("semeval", [e.group for e in examples], scores)
    return Task(rows, [e.target for e in examples], [e.label for e in examples], "auc")


def hidden_weights(items: Sequence[PocketTask]) -> dict[str, float]:
    """The weight of every family of constraints: 1 for one half, 5 for the other."""
    families = sorted({constraint.family for item in items for constraint in item.constraints})
    random.Random(3).shuffle(families)
    return {family: _HEAVY if place % 2 else 1.0 for place, family in enumerate(families)}


def checklist_of(item: PocketTask, number: int = 0) -> Checklist:
    """A question per constraint, whose category is its family."""
    return Checklist.parse(
        [
            {"question": constraint.question(), "category": constraint.family, "id": f"{number} {n}"}
            for n, constraint in enumerate(item.constraints)
        ]
    )


def by_code(checklist: Checklist, item: PocketTask, text: str) -> Score:
    """The score of a text, with the answers of code."""
    met = [float(constraint.holds(text)) for constraint in item.constraints]
    return score_checklist(checklist, [Verdict({"yes": p, "no": 1 - p}, judge="code") for p in met])


def gold_of(weights: Mapping[str, float], item: PocketTask, text: str) -> float:
    """The weighted fraction of the constraints that a text meets."""
    of_item = [weights[constraint.family] for constraint in item.constraints]
    return float(np.dot([constraint.holds(text) for constraint in item.constraints], of_item) / sum(of_item))


def _pocket(args: argparse.Namespace, store: Store) -> Task:
    path = args.output / "completions.json"
    items = tasks(args.prompts, seed=11, split="test")
    if not path.is_file():
        save_json(path, sample_policy(str(pocket_dir()), items, n=POOL, temperature=1.0, seed=11))
    replies = json.loads(path.read_text(encoding="utf-8"))
    weights = hidden_weights(items)
    scores, groups, texts, gold, pairs = [], [], [], [], []
    pools, rng = [], random.Random(5)
    for number, (item, pool) in enumerate(zip(items, replies, strict=True)):
        checklist, start = checklist_of(item, number), len(texts)
        for text in pool:
            scores.append(by_code(checklist, item, text))
            gold.append(gold_of(weights, item, text))
            groups.append(str(number))
            texts.append(text)
        pools.append(list(range(start, len(texts))))
        apart = [(a, b) for a, b in permutations(pools[-1], 2) if gold[a] > gold[b]]
        pairs += rng.sample(apart, min(len(pool), len(apart)))
    return Task(_rows("pocket", groups, scores), texts, gold, "in order", pairs=pairs, pools=pools)


def _rows(name: str, groups: Sequence[str], scores: Sequence[Score]) -> list[ScoredText]:
    return [
        ScoredText(str(number), f"{name}, row {number + 1}", score, group)
        for number, (group, score) in enumerate(zip(groups, scores, strict=True))
    ]


_LOAD: Mapping[str, Callable[[argparse.Namespace, Store], Task]] = {
    "summeval": _summeval,
    "semeval": semeval,
    "pocket": _pocket,
}


def drawn(task: Task, budget: int, seed: int) -> tuple[list[int], list[int]]:
    """Labels of random groups up to the budget, five of each group first, and all labels of the held-out groups."""
    groups = sorted({task.group(place) for place in range(task.count)})
    random.Random(0).shuffle(groups)
    cut = round(HELD_OUT * len(groups))
    held_out, pool = set(groups[:cut]), groups[cut:]
    random.Random(f"draw {seed}").shuffle(pool)
    rank = {group: place for place, group in enumerate(pool)}
    seen: Counter[str] = Counter()
    order: dict[int, tuple[int, int, int]] = {}
    for place in range(task.count):
        if (group := task.group(place)) in rank:
            order[place] = (seen[group] // _OF_GROUP, rank[group], place)
            seen[group] += 1
    return sorted(order, key=order.__getitem__)[:budget], [
        place for place in range(task.count) if task.group(place) in held_out
    ]


def compare(task: Task, vectors: np.ndarray, budget: int, seed: int) -> dict[str, Any]:
    """Held-out and training figures of every arm for one draw of the labels."""
    train, test = drawn(task, budget, seed)
    pairs = None if task.pairs is None else [task.pairs[place] for place in train]
    rows = list(task.rows)
    for place in train if pairs is None else ():
        rows[place] = replace(rows[place], labels=task.labels[place])
    labelled = fitting.labelled_scores(rows, by=task.by, pairs=pairs)
    everything = _everything(task, labelled)
    fit = fitting._Fitting(labelled, seed)
    every = np.ones(len(labelled.labels))
    strengths = {"fitted": fit.strength(every), "without shrinkage": 1e-6}
    scores = {"equal weights": everything.scores(labelled.present)}
    for arm, strength in strengths.items():
        scores[arm] = everything.scores(labelled.weights(fit.factors(every, strength)))
    scores["embedding"] = _ridge(task, vectors, train)
    found: dict[str, Any] = {
        arm: {"held out": task.figure(each, test), "train": task.figure(each, train)} for arm, each in scores.items()
    }
    if task.pools:
        groups = {task.group(place) for place in test}
        pools = [pool for pool in task.pools if task.rows[pool[0]].group in groups]
        for arm, each in scores.items():
            found[arm][BEST] = fmean(task.labels[max(pool, key=lambda place: each[place])] for pool in pools)
    try:
        fitting.fit_weights(labelled, Bootstrap(100, seed))
        found["refused"] = False
    except SampleError:
        found["refused"] = True
    return found


def _everything(task: Task, labelled: fitting.LabelledScores) -> fitting.LabelledScores:
    """All texts of the task under the weights of `labelled`."""
    columns = {name: place for place, name in enumerate(labelled.names)}
    rows = [replace(row, labels=float(place % 2)) for place, row in enumerate(task.rows)]
    whole = fitting.labelled_scores(rows, by=labelled.by)
    size = len(task.rows), len(labelled.names)
    arrays = {name: np.zeros(size) for name in ("gains", "losses", "counts")}
    for place, name in enumerate(whole.names):
        column = columns.get(name, columns.get(None))
        if column is not None:
            for key, array in arrays.items():
                array[:, column] += getattr(whole, key)[:, place]
    return fitting.LabelledScores(**vars(labelled) | arrays | {"bases": whole.bases, "pairs": None})


def _ridge(task: Task, vectors: np.ndarray, train: Sequence[int]) -> np.ndarray:
    """Scores of all texts by a ridge regression on their embeddings; its penalty is cross-validated over groups."""
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GroupKFold

    groups = [task.group(place) for place in train]
    folds = list(GroupKFold(min(5, len(set(groups)))).split(np.zeros(len(train)), groups=groups))
    if task.pairs is None:
        features, labels = vectors[list(train)], np.array([task.labels[place] for place in train])
    else:
        chosen, rejected = (np.array([task.pairs[place][side] for place in train]) for side in (0, 1))
        signs = np.where(np.arange(len(train)) % 2, 1.0, -1.0)
        features, labels = (vectors[chosen] - vectors[rejected]) * signs[:, None], signs
    return (
        RidgeCV(np.logspace(-2, 3, 11), cv=folds, fit_intercept=task.pairs is None)
        .fit(features, labels)
        .predict(vectors)
    )


def study(name: str, args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """All cells of one task."""
    task = _LOAD[name](args, store)
    vectors = np.asarray(SentenceEmbedder()(task.texts))
    found: dict[str, Any] = {}
    for budget in args.budgets:
        if len(drawn(task, budget, 0)[0]) < budget:
            continue
        cells = [compare(task, vectors, budget, seed) for seed in range(args.draws)]
        found[str(budget)] = {
            arm: {key: spread([cell[arm][key] for cell in cells]) for key in cells[0][arm]} for arm in ARMS
        } | {"refused": fmean(cell["refused"] for cell in cells)}
    return {"labels": task.count, "held out": len(drawn(task, 1, 0)[1]), "budgets": found}


def trained(args: argparse.Namespace, store: Store) -> dict[str, list[dict[str, Any]]]:
    """A GRPO run for each seed and each of `TRAINED_ON`: gold of the completions of every step, and the weights."""
    from datasets import Dataset
    from pocket.grpo_run import fit  # loads TRL

    task, known = _pocket(args, store), hidden_weights(tasks(args.prompts, seed=11, split="test"))
    # A family that no task of the fitted pairs has would have no hidden weight.
    items = [t for t in tasks(args.prompts, seed=12, split="test") if all(c.family in known for c in t.constraints)]
    by_prompt = {item.instruction: item for item in items}
    dataset = Dataset.from_list([{"prompt": as_prompt(item)} for item in items])
    assert task.pairs is not None
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in TRAINED_ON}
    for seed, arm in product(range(args.seeds), TRAINED_ON):
        pairs = [task.pairs[place] for place in drawn(task, args.pairs, seed)[0]]
        labelled = fitting.labelled_scores(task.rows, by=task.by, pairs=pairs)
        fitted = fitting.fit_weights(labelled, Bootstrap(100, seed)).dumped()
        weights = Weights.load(fitted if arm == "fitted" else dict.fromkeys(known, 1.0))
        checklists = {item.instruction: weights.of(checklist_of(item)) for item in items}

        def reward(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float | None]:
            texts = [
                (prompt[-1]["content"], done[-1]["content"]) for prompt, done in zip(prompts, completions, strict=True)
            ]
            return [by_code(checklists[p], by_prompt[p], text).primary_score for p, text in texts]  # noqa: B023

        def run() -> dict[str, Any]:
            log = fit(
                dataset,
                [reward],  # noqa: B023
                lambda prompt, text: gold_of(known, by_prompt[prompt], text),
                args.output / "run",
                policy=pocket_dir(),
                steps=args.train,
                learning_rate=3e-4,
                seed=seed,  # noqa: B023
                save_steps=None,
                groups=args.groups,
                max_tokens=MAX_TOKENS,
            )
            return {"gold": [entry["gold"] for entry in log], "weights": dict(weights.weights)}  # noqa: B023

        settings = {key: getattr(args, key) for key in ("prompts", "train", "groups", "pairs")} | {"seed": seed}
        folder = args.output / "trained" / f"{arm.replace(' ', '_')}-{seed}"
        runs[arm].append(once(folder, settings, run))
    return runs


def trained_table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Gold in the first steps and in the last as Markdown, and by seed the gain over equal weights."""
    last = max(1, len(runs[TRAINED_ON[0]][0]["gold"]) // 4)
    ends = {arm: [fmean(run["gold"][-last:]) for run in own] for arm, own in runs.items()}
    rows = [
        [
            arm,
            shown(spread([fmean(run["gold"][:2]) for run in own])),
            shown(spread(ends[arm])),
            ", ".join(f"{end - base:+.3f}" for end, base in zip(ends[arm], ends[TRAINED_ON[0]], strict=True)),
        ]
        for arm, own in runs.items()
    ]
    return markdown(["weights", "gold, steps 1 and 2", f"gold, last {last} steps", "against equal, by seed"], rows)


def table(found: Mapping[str, Any]) -> str:
    """The held-out figures as Markdown; below, those of training."""
    rows: list[Sequence[Any]] = []
    for name, task in found.items():
        for budget, cell in task["budgets"].items():
            cells = [f"{shown(cell[arm]['held out'])}, {cell[arm]['train']['mean']:.3f}" for arm in ARMS]
            rows.append([name, f"{int(budget):,}", *cells, f"{cell['refused']:.0%}"])
            if BEST in cell[ARMS[0]]:
                rows.append([f"{name}, {BEST}", f"{int(budget):,}", *(shown(cell[a][BEST]) for a in ARMS), ""])
    return markdown(["", "labels", *ARMS, "refused"], rows)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the study; returns the figures by task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/weights"))
    parser.add_argument("--tasks", nargs="*", default=TASKS, choices=TASKS)
    parser.add_argument("--budgets", type=int, nargs="*", default=BUDGETS)
    parser.add_argument("--draws", type=int, default=5, help="random draws of the labels per cell")
    parser.add_argument("--texts", type=int, default=1600, help="texts per task, at most")
    parser.add_argument(
        "--prompts", type=int, default=250, help="prompts of the pocket world, with 16 completions each"
    )
    parser.add_argument("--train", type=int, metavar="STEPS", help="steps of GRPO runs on the weights")
    parser.add_argument("--seeds", type=int, default=3, help="GRPO runs per weights")
    parser.add_argument("--groups", type=int, default=8, help="groups of 8 completions per step of GRPO")
    parser.add_argument("--pairs", type=int, default=300, help="preferences that the weights of GRPO are fitted to")
    parser.add_argument("--data", default=DATA, help="folder of the labelled data")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", module="sklearn")
    store = Store(args.output / "store.sqlite")
    if args.train is not None:
        runs = trained(args, store)
        (args.output / "trained.md").write_text(trained_table(runs) + "\n", encoding="utf-8")
        Console(width=160).print(trained_table(runs))
        return runs
    settings = {name: getattr(args, name) for name in ("draws", "texts", "prompts")} | {"budgets": list(args.budgets)}
    found = {
        name: once(args.output / name, settings, lambda name=name: study(name, args, store)) for name in args.tasks
    }
    text = table(found)
    (args.output / "table.md").write_text(text + "\n", encoding="utf-8")
    Console(width=200).print(text)
    return found


if __name__ == "__main__":
    run_main(main)
