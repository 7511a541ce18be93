"""Which reward teaches SmolLM2-135M to follow requests and to write about their topic? Seeds of `english/demo.py`.

    python recipes/studies/english_policy.py --output runs/english-policy --arms mixed code judge --seeds 0 1 2

The arms are those of the demo. Each run is evaluated on held-out prompts (other topics, words and wordings) by gold
that no reward sees: *requirements* by IFEval's verdicts, *topic* by lists of words. The table also has

- *best of 8*: of 8 answers of the untrained policy, the one with the highest score of the mixed checklist;
- *reward - gold*: the score of the mixed checklist minus the mean of both golds. If it grows during training, the
  policy exploits the judge;
- *alike*: the chance that answers to two prompts begin with the same three words. It rises if the policy answers every
  request with the same phrase;
- *IFEval*: the share of the instructions that answers to IFEval's held-out prompts follow (`english_grpo/`). No IFEval
  prompt is used in training, except with `--ifeval-training`: then its other half is.

Intervals are 95 % bootstrap intervals over prompts, whose values are means over seeds and samples. Finished runs are
skipped, so the same command continues the study. Writes `figures.md`, `summary.json` and `curves.png`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english import demo
from english.everyday import Everyday, prompts
from studies.common import DATA, band, figure, markdown, once, run_main, save_json, smoothed
from studies.english_grpo.instructions import Instructed
from studies.english_grpo.instructions import prompts as ifeval_prompts

from checklist_rewards import ChecklistScorer
from checklist_rewards.checks.ifeval import check_of_instruction, follows
from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Mean
from checklist_rewards.monitor.text import opening
from checklist_rewards.scorer import Sample

BEST_OF = 8
IFEVAL_TOKENS = 64
"""Most tokens of an answer to a prompt of IFEval."""
GOLDS = ("requirements", "topic", "both", "gap")
TEXT = ("words", "distinct", "logprob", "alike")


class Judged:
    """Held-out prompts with their checklists, and the scorer of the mixed arm."""

    def __init__(self, some: Sequence[Everyday], args: argparse.Namespace):
        self.prompts = some
        written = argparse.Namespace(output=args.output / "held-out", pipeline=args.pipeline)
        written.output.mkdir(parents=True, exist_ok=True)
        rows = zip(some, demo.checklists_of(some, written), strict=True)
        self.items = [demo.items_of("mixed", row["checklist"], one.prompt) for one, row in rows]
        self.scorer = ChecklistScorer(args.judge, metric="expected", store=False)

    def scores(self, answers: Sequence[Sequence[str]]) -> list[list[float]]:
        """The score of every answer to every prompt. An answer that is not scored counts as the reward does: 0."""
        samples = [
            Sample({"items": items}, text, one.prompt)
            for one, items, texts in zip(self.prompts, self.items, answers, strict=True)
            for text in texts
        ]
        found = iter(self.scorer.score_batch(samples))
        return [[next(found).primary_score or 0.0 for _ in texts] for texts in answers]

    def golds(self, answers: Sequence[Sequence[str]]) -> dict[str, list[float]]:
        """Each gold, and the score minus gold, as one mean per prompt."""
        rows: dict[str, list[float]] = {name: [] for name in GOLDS}
        for one, texts, scores in zip(self.prompts, answers, self.scores(answers), strict=True):
            met, about = [one.met(text) for text in texts], [float(one.about(text)) for text in texts]
            rows["requirements"].append(fmean(met))
            rows["topic"].append(fmean(about))
            rows["both"].append(fmean(float(m == 1 and a == 1) for m, a in zip(met, about, strict=True)))
            rows["gap"].append(fmean(scores) - (fmean(met) + fmean(about)) / 2)
        return rows


class Instruction:
    """A prompt of IFEval with the interface of `Everyday`. Its topic has no gold."""

    def __init__(self, one: Instructed):
        self.prompt, self.messages, self.met = one.request, one.messages, one.gold

    def about(self, text: str) -> float:
        return float("nan")


def by_requirement(some: Sequence[Everyday], runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The share of the answers that meet each kind of requirement, over all runs."""
    met: dict[str, list[bool]] = {}
    for run in runs:
        for one, texts in zip(some, run["answers"], strict=True):
            for name, kwargs in one.requirements:
                met.setdefault(name.split(":")[1], []).extend(
                    follows(check_of_instruction(name, kwargs), text) for text in texts
                )
    return {name: fmean(values) for name, values in sorted(met.items())}


def ifeval(adapter: Path | None, args: argparse.Namespace) -> dict[str, Any]:
    """The share of the instructions of each held-out prompt of IFEval that one sampled answer follows."""
    held_out = ifeval_prompts(args.data)[1][: args.ifeval_prompts]
    policy = demo.Policy(args.policy, adapter)
    # In batches: the padding of one long prompt costs as much as the prompts themselves.
    order = sorted(range(len(held_out)), key=lambda place: len(held_out[place].request))
    gold = {}
    for start in range(0, len(order), 16):
        places = order[start : start + 16]
        some: Any = [held_out[place] for place in places]
        for place, [text] in zip(places, policy.answers(some, 1, IFEVAL_TOKENS, args.temperature), strict=True):
            gold[place] = held_out[place].gold(text)
    return {"gold": [gold[place] for place in range(len(held_out))]}


def trained(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run of the demo: its figures before and after."""
    names = (
        "policy",
        "judge",
        "steps",
        "groups",
        "beta",
        "prompts",
        "test_prompts",
        "samples",
        "temperature",
        "pipeline",
        "tokens",
    )
    given = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in names]
    more: Any = [Instruction(one) for one in ifeval_prompts(args.data)[0]] if args.ifeval_training else []
    return demo.main([f"--output={args.output}", f"--arm={arm}", f"--seed={seed}", *given], more)


def finished(arm: str, seed: int, args: argparse.Namespace) -> bool:
    """Whether a run has ended."""
    return (args.output / f"{arm}-{seed}" / "summary.json").is_file()


def policy_of(arm: str, seed: int, args: argparse.Namespace) -> Path:
    """The adapter of a run."""
    return args.output / f"{arm}-{seed}" / "policy"


def best_of(judged: Judged, args: argparse.Namespace) -> Arm:
    """Of several answers of the untrained policy to each prompt, the one that the reward prefers."""

    def run() -> dict[str, Any]:
        answers = demo.Policy(args.policy).answers(judged.prompts, BEST_OF, args.tokens, args.temperature)
        places = [max(range(BEST_OF), key=scores.__getitem__) for scores in judged.scores(answers)]
        return {"answers": [[texts[place]] for texts, place in zip(answers, places, strict=True)]}

    how = {name: getattr(args, name) for name in ("policy", "judge", "temperature", "test_prompts")}
    return Arm([judged.golds(once(args.output / "best-of", how, run)["answers"])], [], [])


def over(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean over several runs, prompt by prompt."""
    return [fmean(values) for values in zip(*rows, strict=True)]


def alike(answers: Sequence[Sequence[str]]) -> float:
    """The chance that answers to two prompts begin with the same three words, as the monitor's `same_opening`."""
    openings = [Counter(map(opening, texts)) for texts in answers]
    total = sum(openings, Counter[str]())
    pairs = [
        (total[words] - counts[words]) * count / (total.total() - counts.total())
        for counts in openings
        for words, count in counts.items()
    ]
    return sum(pairs) / total.total()


def with_alike(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures of some runs with this one."""
    return [run | {"alike": alike(run["answers"])} for run in runs]


def interval(values: Sequence[float]) -> Figure:
    """The mean over prompts, with its interval."""
    return Bootstrap().figures(Mean("mean", list(values)), range(len(values)))["mean"]


@dataclass(frozen=True)
class Arm:
    """What was measured of an arm: golds of each run by prompt, figures of the demo, and IFEval's gold by prompt."""

    golds: list[dict[str, list[float]]]
    runs: list[dict[str, Any]]
    followed: list[float]

    def values(self, name: str) -> list[float]:
        """A gold by prompt, as the mean over the runs."""
        return self.followed if name == "IFEval" else over([golds[name] for golds in self.golds])

    def summary(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            **{name: interval(self.values(name)).model_dump() for name in (*GOLDS, "IFEval") if self.values(name)},
            "per_seed": {name: [fmean(golds[name]) for golds in self.golds] for name in GOLDS},
            **{name: [run[name] for run in self.runs] for name in TEXT},
        }


def figures(arms: dict[str, Arm]) -> str:
    """The table of all arms, and the changes since the untrained policy."""
    rows, changes = [], []
    for name, arm in arms.items():
        golds = [interval(arm.values(gold)).shown(2) if arm.values(gold) else "" for gold in (*GOLDS, "IFEval")]
        text = [f"{fmean(run[key] for run in arm.runs):.2f}" if arm.runs else "" for key in TEXT]
        rows.append([name, *golds, *text])
        if name != "untrained":
            pairs = [(arm.values(gold), arms["untrained"].values(gold)) for gold in (*GOLDS, "IFEval")]
            since = [[now - then for now, then in zip(*pair, strict=True)] if pair[0] else [] for pair in pairs]
            changes.append([name, *(interval(values).shown(2) if values else "" for values in since)])
    parts = [markdown(["", *GOLDS, "IFEval", *TEXT], rows), markdown(["change", *GOLDS, "IFEval"], changes)]
    return "\n\n".join(parts) + "\n"


def plot(runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Both golds of the completions during training, one panel each, with the spread over seeds."""
    with figure(path, 2, figsize=(9, 3.6)) as panels:
        for axes, title, key in zip(panels, ("requirements", "topic"), ("gold", "content"), strict=True):
            for place, (arm, found) in enumerate(runs.items()):
                curves = [
                    smoothed([float(row[f"rewards/{key}/mean"]) for row in run["after"]["log"]], 5) for run in found
                ]
                steps = [row["step"] for row in found[0]["after"]["log"]]
                band(axes, dict(zip(steps, zip(*curves, strict=True), strict=True)), arm, f"C{place}")
            axes.set(title=f"{title} (gold)", xlabel="GRPO step", ylim=(0, 1.02))
        panels[0].legend(frameon=False)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/english-policy"))
    parser.add_argument("--arms", choices=demo.ARMS, nargs="+", default=["mixed", "code", "judge"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--pipeline", default="english", help="writes the checklists")
    parser.add_argument("--judge", default="english-encoder")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--test-prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--tokens", type=int, default=40, help="most tokens of an answer to an everyday request")
    parser.add_argument("--ifeval-training", action="store_true", help="train on half of IFEval's prompts, too")
    parser.add_argument("--summary", action="store_true", help="start no run, only summarize those that are finished")
    parser.add_argument("--ifeval-prompts", type=int, help="number of IFEval's held-out prompts; all by default")
    parser.add_argument("--data", default=DATA, help="folder that contains ifeval/")
    args = parser.parse_args(argv)

    seeds = {arm: [seed for seed in args.seeds if not args.summary or finished(arm, seed, args)] for arm in args.arms}
    runs = {arm: [trained(arm, seed, args) for seed in found] for arm, found in seeds.items() if found}
    judged = Judged(prompts(args.test_prompts, held_out=True), args)
    how = {name: getattr(args, name) for name in ("policy", "temperature", "ifeval_prompts")}
    settings = how | {name: getattr(args, name) for name in ("steps", "groups", "beta", "prompts", "judge")}
    settings |= {"ifeval_training": True} if args.ifeval_training else {}
    untrained = next(iter(runs.values()))[0]["before"]
    start = once(args.output / "ifeval" / "untrained", how, lambda: ifeval(None, args))["gold"]
    arms = {
        "untrained": Arm([judged.golds(untrained["answers"])], with_alike([untrained]), start),
        f"best of {BEST_OF}": best_of(judged, args),
    }
    for arm, found in runs.items():
        answered = [
            once(args.output / "ifeval" / f"{arm}-{seed}", settings, partial(ifeval, policy_of(arm, seed, args), args))
            for seed in seeds[arm]
        ]
        afters = [run["after"] for run in found]
        golds = [judged.golds(after["answers"]) for after in afters]
        arms[arm] = Arm(golds, with_alike(afters), over([one["gold"] for one in answered]))
    plot(runs, args.output / "curves.png")
    kinds = {name: by_requirement(judged.prompts, arm.runs) for name, arm in arms.items() if arm.runs}
    names = list(kinds["untrained"])
    rows = [[arm, *(f"{of_arm[name]:.2f}" for name in names)] for arm, of_arm in kinds.items()]
    table = "\n".join([figures(arms), markdown(["requirement", *names], rows), ""])
    (args.output / "figures.md").write_text(table, encoding="utf-8")
    print(table)
    summary = {name: arm.summary() for name, arm in arms.items()}
    save_json(args.output / "summary.json", summary)
    return summary


if __name__ == "__main__":
    run_main(main)
