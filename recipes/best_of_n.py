"""Best-of-N with a checklist judge: the gain over greedy decoding, as a function of N.

    python recipes/best_of_n.py                                            # pocket policy and judge, gold by code
    python recipes/best_of_n.py --data prompts.parquet --policy org/policy --judge org/judge --n 16

Samples N candidates per prompt, ranks them by checklist score, and compares the best of the first 1, 2, 4 ... N
candidates with greedy decoding. Without `--data`, the prompts are held-out prompts of the pocket world, where code
computes a gold score (the fraction of constraints met), so the summary also has the precision of the choice. With
`--data` (written by `checklist-rewards generate` or `build_checklists`) only the judge's score is reported.

The judge and the gold score read the answer of a candidate, without its thought. `ranked.jsonl` has the full texts.

Writes `summary.json` and `ranked.jsonl` under `--output_dir`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from trl import TrlParser

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine, Sampling
from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.errors import ChecklistRewardsError, GenerationError, SampleError
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.rerank import Ranking, ranks_of, rerank_batch, sample_candidates, selection
from checklist_rewards.rows import Pool

if TYPE_CHECKING:
    from pocket.world import Task

Gold = Callable[[int, str], float]
"""How good an answer is to the prompt at this position."""


@dataclass
class BestOfNArguments:
    """Policy, judge and number of candidates."""

    data: str | None = field(
        default=None, metadata={"help": "Rows with prompt and checklist. Defaults to the pocket world."}
    )
    prompts: int = field(default=96, metadata={"help": "Number of pocket prompts, without --data."})
    policy: str | None = field(
        default=None, metadata={"help": "The model that writes candidates. Defaults to pocket, without --data."}
    )
    policy_base_url: str | None = field(default=None, metadata={"help": "Server of the policy, if it is served."})
    judge: str | None = field(
        default=None, metadata={"help": "The model that judges. Defaults to pocket, without --data."}
    )
    judge_base_url: str | None = field(default=None, metadata={"help": "Server of the judge, if it is served."})
    n: int = field(default=8, metadata={"help": "Candidates per prompt."})
    temperature: float = 1.0
    max_tokens: int | None = field(
        default=None, metadata={"help": "Most tokens of a reply. Defaults to 96 for the pocket policy, else to 1024."}
    )
    seed: int = 0
    store: str | None = field(default=None, metadata={"help": "Store file. Defaults to the user cache."})
    output_dir: str = "runs/best_of_n"


def compare(
    scorer: ChecklistScorer,
    policy: Engine,
    prompts: Sequence[Any],
    checklists: Sequence[Checklist],
    sampling: Sampling,
    gold: Gold | None = None,
    store: Store | None = None,
) -> tuple[list[Ranking], dict[str, Any]]:
    """Sample, rank, and compare with greedy decoding.

    Args:
        prompts (list of `str` or chat messages): the prompts.
        checklists (list): one checklist per prompt.
        sampling ([`Sampling`]): sampling settings, with `n` candidates per prompt.
        gold (callable, *optional*): the gold score of a reply, if available.

    Returns:
        The rankings, and {"greedy": {"proxy", "gold"}, "best_of": {N: {"proxy", "gold"}}, "selection"}.
    """
    candidates = sample_candidates(prompts, policy, sampling, store)
    greedy = sample_candidates(prompts, policy, Sampling(sampling.max_tokens), store)
    lost = sum(not texts for texts in (*candidates, *greedy))
    if lost:
        raise SampleError(f"the policy gave no reply to {lost} prompts; they may exceed its context.")
    pools = []
    for checklist, texts, first, prompt in zip(checklists, candidates, greedy, prompts, strict=True):
        text, history = prompt_text(prompt)
        pools.append(Pool(checklist, [*texts, *first], text, None, history))
    # The greedy reply is scored in the same batch, but not ranked.
    both = rerank_batch(scorer, pools)
    rankings = [_without_last(ranking) for ranking in both]
    sizes = sorted({*(2**k for k in range(sampling.n.bit_length()) if 2**k < sampling.n), sampling.n})
    result: dict[str, Any] = {
        "greedy": _mean(
            [_at(ranking, [len(ranking.candidates) - 1], number, gold) for number, ranking in enumerate(both)]
        ),
        "best_of": {
            size: _mean([_at(r, _best_of(r, size), number, gold) for number, r in enumerate(rankings)])
            for size in sizes
        },
    }
    if gold is not None:
        truths = [[gold(number, completion_text(text)) for text in r.candidates] for number, r in enumerate(rankings)]
        result["selection"] = asdict(selection(rankings, truths))
    return rankings, result


def _without_last(ranking: Ranking) -> Ranking:
    scores = ranking.scores[:-1]
    return Ranking(ranking.candidates[:-1], scores, tuple(ranks_of(scores)))


def _best_of(ranking: Ranking, size: int) -> list[int]:
    """Positions of the best among the first `size` candidates, including ties."""
    return [position for position, place in enumerate(ranks_of(ranking.scores[:size])) if place == 1]


def _at(ranking: Ranking, positions: Sequence[int], number: int, gold: Gold | None) -> dict[str, float]:
    """Mean proxy and gold score over some candidates; empty if none has a score."""
    scores = [ranking.scores[position].primary_score for position in positions]
    known = (
        {"proxy": fmean(score for score in scores if score is not None)} if any(s is not None for s in scores) else {}
    )
    if gold is not None and positions:
        known["gold"] = fmean(gold(number, completion_text(ranking.candidates[position])) for position in positions)
    return known


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name: None for row in rows for name in row}
    return {name: fmean(row[name] for row in rows if name in row) for name in names}


def world(count: int, store: str | bool) -> tuple[list[Task], list[str], list[Checklist]]:
    """Held-out pocket tasks with checklists written by the pocket model; tasks without a checklist are dropped."""
    from pocket.world import tasks

    items = tasks(count, seed=3, split="test")
    made = DirectGenerator("pocket", store=store).generate_batch([task.instruction for task in items])
    kept = [(task, found) for task, found in zip(items, made, strict=True) if not isinstance(found, GenerationError)]
    return [task for task, _ in kept], [task.instruction for task, _ in kept], [found for _, found in kept]


def read_data(path: str) -> tuple[list[Any], list[Checklist]]:
    """Prompts and checklists of a file; rows with a null checklist are dropped."""
    rows = [row for row in read_rows(path) if row.data.get("checklist") is not None]
    if not rows:
        raise SampleError(f"{path}: no row has a checklist; create them with `checklist-rewards generate`.")
    for row in rows:
        if "prompt" not in row.data:
            raise SampleError(f"{row.where}: key 'prompt' not found; the keys are {', '.join(row.data)}.")
    return [row.data["prompt"] for row in rows], [Checklist.parse(row.data["checklist"], row.where) for row in rows]


def report(result: dict[str, Any]) -> None:
    """Print the results as a table."""
    table = Table("", "proxy", "gold", title="Mean over prompts")
    for name, line in (
        ("greedy", result["greedy"]),
        *((f"best of {n}", line) for n, line in result["best_of"].items()),
    ):
        table.add_row(name, *(f"{line[key]:.3f}" if key in line else "-" for key in ("proxy", "gold")))
    Console().print(table)
    if "selection" in result and result["selection"]["precision"] is not None:
        Console().print(
            "Precision of the choice {precision:.3f}; gold of the picked {gold_picked:.3f}, of one at random "
            "{gold_mean:.3f}, of the best there was {gold_best:.3f}.".format(**result["selection"])
        )


def main(arguments: BestOfNArguments) -> dict[str, Any]:
    store: str | bool = arguments.store or True
    if arguments.data is not None and (arguments.judge is None or arguments.policy is None):
        raise SampleError("--data requires --judge and --policy, the models that judge and write.")
    judge_name, policy_name = arguments.judge or "pocket", arguments.policy or "pocket"
    scorer = ChecklistScorer(judge_name, base_url=arguments.judge_base_url, store=store)
    policy = Engine(policy_name, base_url=arguments.policy_base_url)
    gold: Gold | None = None
    if arguments.data is not None:
        prompts, checklists = read_data(arguments.data)
    else:
        try:
            from pocket.world import satisfaction
        except ImportError:
            raise SampleError(
                "without --data the prompts are those of recipes/pocket, which is not beside this file; set --data."
            ) from None
        items, prompts, checklists = world(arguments.prompts, store)

        def gold(number: int, text: str) -> float:
            return satisfaction(items[number], text)

    max_tokens = arguments.max_tokens or (96 if policy_name == "pocket" else 1024)
    sampling = Sampling(max_tokens, arguments.temperature, n=arguments.n, seed=arguments.seed)
    rankings, result = compare(scorer, policy, prompts, checklists, sampling, gold, open_store(store))
    output = Path(arguments.output_dir)
    with write_rows(output / "ranked.jsonl") as rows:
        for prompt, ranking in zip(prompts, rankings, strict=True):
            scores = [score.primary_score for score in ranking.scores]
            rows.write({"prompt": prompt, "candidates": ranking.candidates, "ranks": ranking.ranks, "scores": scores})
    result["receipt"] = asdict(scorer.receipt)
    (output / "summary.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    report(result)
    return result


if __name__ == "__main__":
    try:
        main(*TrlParser((BestOfNArguments,)).parse_args_and_config())
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None
