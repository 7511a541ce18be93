"""What a thought before the answer changes, and what it costs: the same reads with no thought and with thoughts.

    python recipes/studies/judges/thinking.py --judge pocket
    python recipes/studies/judges/thinking.py --judge path/to/model --rows 150 \\
        --data ../shared/data/semeval/dev.jsonl.gz

Without `--data`, the texts are responses in the pocket world and its code checks are the gold labels. With `--data`,
rows have `target`, `question`, `label` (1 is yes), and optionally `input`, `reference` and `group`; `--rows` of them
are drawn with a fixed seed. For each number of thinking tokens (0: the label is the first token), the recipe reports
the AUC and the accuracy of P(yes) with 95 % intervals of the bootstrap over groups, the difference of the AUC to the
first number of tokens in the same resamples, the label mass, the generated tokens and the seconds per read, and how
many thoughts were cut off. Reads below the mass floor count too: AUC measures their ranking.
Thoughts are asked for with another prompt than bare labels are; `--prompt` sets one for both. With `--store`, a second
run writes no thought again, and its seconds are those of the store.

Writes `figures.json` and the thoughts (`reads.jsonl`) to `--output_dir`, and a Markdown table to the terminal.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trl import TrlParser

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pocket.world import tasks, write_response
from studies.common import Difference, json_lines, markdown, run_main, save_json

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import YES, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Mean, Numbers
from checklist_rewards.files.rows import write_rows
from checklist_rewards.files.store import open_store
from checklist_rewards.judges import Ask, LogprobJudge, ThinkingJudge
from checklist_rewards.scores import Verdict


@dataclass
class ThinkingArguments:
    """Data, judge and budgets."""

    judge: str = field(default="pocket", metadata={"help": "pocket, a folder or a Hub id."})
    backend: str = field(default="transformers", metadata={"help": "transformers or vllm."})
    data: str | None = field(
        default=None, metadata={"help": "Labelled rows (.jsonl or .jsonl.gz); else the pocket world."}
    )
    rows: int = field(default=150, metadata={"help": "Rows of the data, or reads of the pocket world."})
    thinking: list[int] = field(
        default_factory=lambda: [0, 32, 64], metadata={"help": "Most tokens of a thought; 0 to answer without one."}
    )
    samples: int = field(default=1, metadata={"help": "Thoughts per read."})
    per: str = field(default="item", metadata={"help": "item or target."})
    threshold: float = field(default=0.5, metadata={"help": "P(yes) that counts as yes, for the accuracy."})
    prompt: str | None = field(default=None, metadata={"help": "The judge's prompt. Defaults to that of each judge."})
    store: str | None = field(default=None, metadata={"help": "Store file. Defaults to none."})
    seed: int = field(default=0, metadata={"help": "Which rows are drawn."})
    output_dir: str = field(default="runs/thinking")


@dataclass
class Labelled:
    """A read with its gold label and the group with which it is resampled."""

    read: Ask
    label: bool
    group: str


def pocket_reads(count: int, seed: int) -> list[Labelled]:
    """Reads of the pocket world, with its code checks as labels; groups are tasks."""
    rng = random.Random(seed)
    found = [
        Labelled(Ask(ChecklistItem(question=c.question()), text, task.instruction, sample=n), c.holds(text), str(n))
        for n, task in enumerate(tasks(count, seed=seed + 40, split="test"))
        for text in [write_response(rng, task, 0.5, "test")]
        for c in task.constraints
    ]
    return found[:count]


def labelled_reads(path: Path, count: int, seed: int) -> list[Labelled]:
    """`count` rows of a file, drawn at random, in the order of the file."""
    rows = list(json_lines(path))
    if len(rows) < count:
        raise SampleError(f"{path}: it has {len(rows)} rows; --rows is {count}.")
    drawn = sorted(random.Random(seed).sample(range(len(rows)), count))
    return [
        Labelled(
            Ask(
                ChecklistItem(question=row["question"]),
                row["target"],
                row.get("input"),
                row.get("reference"),
                sample=n,
            ),
            row["label"] >= 0.5,
            str(row.get("group", n)),
        )
        for n, row in ((n, rows[n]) for n in drawn)
    ]


def figures_of(
    labelled: Sequence[Labelled],
    verdicts: Sequence[Verdict],
    first: Sequence[Verdict],
    threshold: float,
    bootstrap: Bootstrap,
) -> dict[str, Figure]:
    """AUC, its gain over the verdicts of `first`, and accuracy of P(yes) against the labels, over the reads with
    probabilities in both."""
    known = [
        (one, now.probabilities[YES], before.probabilities[YES])
        for one, now, before in zip(labelled, verdicts, first, strict=True)
        if now.probabilities and before.probabilities
    ]
    groups, truth = [one.group for one, _, _ in known], [float(one.label) for one, _, _ in known]
    right = [float((p >= threshold) == one.label) for one, p, _ in known]
    now, before = (
        Numbers(predicted, truth, only=["auc"]) for predicted in ([p for _, p, _ in known], [p for _, _, p in known])
    )
    return {
        "auc": bootstrap.figures(now, groups)["auc"],
        "auc_gain": bootstrap.figures(Difference(now, before, ["auc"]), groups)["auc"],
        **bootstrap.figures(Mean("accuracy", right), groups),
    }


def measured(
    labelled: Sequence[Labelled], arguments: ThinkingArguments, tokens: int, first: Sequence[Verdict] | None = None
) -> tuple[dict[str, Any], list[Verdict]]:
    """The figures and the cost of one number of thinking tokens, compared with `first`, and the verdicts."""
    engine = Engine(arguments.judge, arguments.backend)  # type: ignore[arg-type]
    engine.load()  # not part of the time
    store = open_store(arguments.store or False)
    settings: dict[str, Any] = {"store": store} | ({} if arguments.prompt is None else {"prompt": arguments.prompt})
    judge = LogprobJudge(engine, **settings)
    if tokens:
        judge = ThinkingJudge(engine, thinking=tokens, per=arguments.per, votes=arguments.samples, **settings)
    started = time.perf_counter()
    verdicts, spent = judge.answer([one.read for one in labelled])
    seconds = time.perf_counter() - started
    masses = [verdict.mass for verdict in verdicts if verdict.mass is not None]
    found = figures_of(labelled, verdicts, first or verdicts, arguments.threshold, Bootstrap())
    cut = sum("[cut off" in (vote.reasoning or "") for v in verdicts for vote in (v.votes or (v,)))
    count = len(labelled)
    return {
        "thinking": tokens,
        "reads": count,
        **{name: figure.model_dump() for name, figure in found.items()},
        "shown": {name: figure.shown() for name, figure in found.items()},
        "mass": sum(masses) / len(masses) if masses else None,
        "off_label": sum(verdict.unanswered == "off_label" for verdict in verdicts),
        "prompt_tokens_per_read": spent.prompt_tokens / count,
        "generated_tokens_per_read": spent.completion_tokens / count,
        "seconds_per_read": seconds / count,
        "cut_off": cut,
    }, verdicts


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    head = "thinking", "AUC", "AUC gain", "accuracy", "label mass", "tokens per read", "seconds per read", "cut off"
    rows = [
        (
            line["thinking"],
            *(line["shown"][name] for name in ("auc", "auc_gain", "accuracy")),
            "-" if line["mass"] is None else f"{line['mass']:.2f}",
            f"{line['generated_tokens_per_read']:.1f}",
            f"{line['seconds_per_read']:.3f}",
            line["cut_off"],
        )
        for line in lines
    ]
    return markdown(head, rows)


def main(arguments: ThinkingArguments) -> list[dict[str, Any]]:
    labelled = (
        pocket_reads(arguments.rows, arguments.seed)
        if arguments.data is None
        else labelled_reads(Path(arguments.data), arguments.rows, arguments.seed)
    )
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    first: list[Verdict] | None = None
    with write_rows(output / "reads.jsonl") as rows:
        for tokens in arguments.thinking:
            line, verdicts = measured(labelled, arguments, tokens, first)
            first = first or verdicts
            lines.append(line)
            print(table(lines[-1:]).splitlines()[-1], flush=True)
            for one, verdict in zip(labelled, verdicts, strict=True):
                rows.write(
                    {
                        "thinking": tokens,
                        "question": one.read.item.question,
                        "target": one.read.target,
                        "label": one.label,
                        "p_yes": verdict.probabilities[YES] if verdict.probabilities else None,
                        "mass": verdict.mass,
                        "thought": verdict.reasoning,
                    }
                )
    yes = sum(one.label for one in labelled)
    groups = len({one.group for one in labelled})
    print(f"\n{len(labelled)} reads in {groups} groups, {yes} of them yes.\n\n{table(lines)}")
    save_json(output / "figures.json", lines)
    return lines


if __name__ == "__main__":
    run_main(lambda: main(*TrlParser((ThinkingArguments,)).parse_args_and_config()))
