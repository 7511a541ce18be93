"""How many reads does it save to stop when the decision is fixed? On candidates of the pocket policy.

    python recipes/studies/decide_early.py --output runs/decide-early

The pocket judge reads all items of 8 candidates of each prompt. The checklists have 8 questions: those of the prompt
and others about form. Then the reads are repeated on paper, item by item, until the decision is fixed:
the best candidate, the best and the worst one, or the score if the first item is required and read first
(`decide_early=True`). *Equal* is the share of prompts with the same decision; it must be 1. *Tokens* is the work of an
engine without a prefix cache, which computes the prompt up to the question once per round: its tokens as a share of
those of reading everything at once.

*Advantages*: a group of 8 stops when no answer that is left can change an advantage by more than a tolerance. The
bound on the change is that of the mean and of the standard deviation, when each reward moves within its bounds.

Only the required item saves reads, so it is the only one of these that the package offers.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from pocket.policy import sample_policy
from pocket.world import sample_task, tasks
from studies.common import markdown, run_main, save_json

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.checklists import Checklist
from checklist_rewards.scorer import is_open
from checklist_rewards.scores import EQUAL, Reason, Score, Unanswered, Verdict, score_checklist

N, ITEMS = 8, 8
PREFIX, QUESTION = 60, 20
"""Tokens of the prompt up to the question, and of a question with its answer: about those of the pocket world."""
TOLERANCES = (0.05, 0.1, 0.25, 0.5)
ROUNDS = tuple((place,) for place in range(ITEMS))
GATE = ((0,), (1, 2, 3, 4, 5, 6, 7))
Group = Sequence[Score]
NOT_READ = Verdict(unanswered=Unanswered(Reason.NOT_NEEDED))


def fixed(scores: Group) -> list[bool]:
    """Open are scores whose bounds differ."""
    return [is_open(score) for score in scores]


def best(scores: Group) -> list[bool]:
    """Open are scores that can be the highest one."""
    floor = max(score.lower or 0.0 for score in scores)
    return [(score.upper or 0.0) >= floor - EQUAL for score in scores]


def either(scores: Group) -> list[bool]:
    """Open are scores that can be the highest or the lowest one."""
    ceiling = min(score.upper or 0.0 for score in scores)
    return [can or (score.lower or 0.0) <= ceiling + EQUAL for can, score in zip(best(scores), scores, strict=True)]


def value(score: Score) -> float | None:
    """The score, rounded so that equal ones are equal."""
    return None if score.primary_score is None else round(score.primary_score, 9)


def highest(scores: Group) -> Any:
    """The decision: the best candidates with their score."""
    known = [value(score) for score in scores]
    top = max(score for score in known if score is not None)
    return top, [place for place, score in enumerate(known) if score == top]


def ends(scores: Group) -> Any:
    """The decision: the best and the worst candidates with their scores."""
    known = [value(score) for score in scores]
    low = min(score for score in known if score is not None)
    return highest(scores), low, [place for place, score in enumerate(known) if score == low]


def every(scores: Group) -> Any:
    """The decision: all scores."""
    return [value(score) for score in scores]


def measured(
    checklists: Sequence[Checklist],
    verdicts: Sequence[Sequence[Sequence[Verdict]]],
    rounds: Sequence[Sequence[int]],
    still_open: Callable[[Group], list[bool]],
    decision: Callable[[Group], Any],
) -> dict[str, float]:
    """The share of reads that are saved, and of groups with the decision of reading everything."""
    saved, tokens, equal = [], [], []
    for checklist, group in zip(checklists, verdicts, strict=True):
        known = [[NOT_READ] * len(checklist) for _ in group]
        passes = [0] * len(group)
        for places in rounds:
            opened = still_open([score_checklist(checklist, answers) for answers in known])
            for number, wanted in enumerate(opened):
                passes[number] += wanted
                for place in places if wanted else ():
                    known[number][place] = group[number][place]
        early = [score_checklist(checklist, answers) for answers in known]
        whole = PREFIX + ITEMS * QUESTION
        saved += [score.not_needed / ITEMS for score in early]
        tokens += [
            (count * PREFIX + (ITEMS - score.not_needed) * QUESTION) / whole
            for count, score in zip(passes, early, strict=True)
        ]
        equal.append(decision(early) == decision([score_checklist(checklist, answers) for answers in group]))
    return {"saved": fmean(saved), "tokens": fmean(tokens), "equal": fmean(equal)}


def change_of_advantages(lower: np.ndarray, upper: np.ndarray) -> float:
    """A bound on the change of the advantages of a group if its rewards move from the middle to the ends of their
    bounds.

    With half widths h of n rewards, a reward minus the mean moves by at most d_i = h_i (1 - 2 / n) + sum(h) / n, and
    the standard deviation s by at most e = |h| / sqrt(n). So an advantage A_i moves by at most
    (d_i + |A_i| e) / (s - e).
    """
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    n, s = len(middle), middle.std()
    e = float(np.linalg.norm(half)) / n**0.5
    if s <= e:
        return 0.0 if s == 0 and not half.any() else float("inf")
    d = half * (1 - 2 / n) + half.sum() / n
    return float(((d + np.abs(middle - middle.mean()) / s * e) / (s - e)).max())


def saved_for_advantages(full: Sequence[Group], tolerance: float) -> float:
    """The share of reads that are saved if groups stop at a tolerance. A reward is the mean of P(yes)."""
    asked = total = 0
    for group in full:
        soft = np.array([[line.soft for line in score.items] for score in group])
        count = soft.shape[1]
        for known in range(count + 1):
            fixed = soft[:, :known].sum(axis=1) / count
            if change_of_advantages(fixed, fixed + (count - known) / count) <= tolerance:
                break
        asked += known * len(group)
        total += soft.size
    return 1 - asked / total


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/decide-early"))
    parser.add_argument("--prompts", type=int, default=100)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    scorer = ChecklistScorer("pocket", backend="transformers", store=args.output / "store.sqlite")
    items = tasks(args.prompts, seed=2, split="test")
    texts = sample_policy(str(pocket_dir()), items, n=N, temperature=1.0)

    rng = random.Random(0)
    asked = []
    for task in items:
        own = [constraint.question() for constraint in task.constraints]
        others = {sample_task(rng, split="train").constraints[0].question() for _ in range(200)}
        asked.append([*own, *rng.sample(sorted(others - set(own)), ITEMS - len(own))])

    plain = [Checklist.parse(questions) for questions in asked]
    gated = [
        Checklist.parse([{"question": q, "required": place == 0} for place, q in enumerate(questions)])
        for questions in asked
    ]
    pools = zip(items, plain, texts, strict=True)
    samples = [Sample(checklist, text, task.instruction) for task, checklist, found in pools for text in found]
    scores = iter(scorer.score_batch(samples))
    full = [[next(scores) for _ in found] for found in texts]
    verdicts = [[[line.verdict() for line in score.items] for score in group] for group in full]
    results = {
        "the best of 8": measured(plain, verdicts, ROUNDS, best, highest),
        "the best and the worst of 8": measured(plain, verdicts, ROUNDS, either, ends),
        "the score, first item required": measured(gated, verdicts, GATE, fixed, every),
    }
    advantages = {str(tolerance): saved_for_advantages(full, tolerance) for tolerance in TOLERANCES}
    rows = [[name, *(f"{line[key]:.2f}" for key in ("saved", "tokens", "equal"))] for name, line in results.items()]
    rows += [[f"advantages within {name}", f"{saved:.2f}", "", ""] for name, saved in advantages.items()]
    table = markdown(["decision", "reads saved", "tokens without a cache", "equal"], rows) + "\n"
    (args.output / "figures.md").write_text(table, encoding="utf-8")
    print(table)
    summary = {"decisions": results, "advantages": advantages}
    save_json(args.output / "summary.json", summary)
    return summary


if __name__ == "__main__":
    run_main(main)
