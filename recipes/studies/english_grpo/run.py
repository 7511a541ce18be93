"""GRPO on real instructions: SmolLM2-135M on prompts of IFEval, rewarded by code, by an English judge, or by both.

    python recipes/studies/english_grpo/run.py --output runs/english-grpo

The prompts are those of `instructions.py`: half of them are trained on, the others are held out. The policy is a LoRA
adapter on the upper third of the layers. The arms differ only in what answers the items of a checklist:

- *code*: IFEval's code checks, so the reward is gold;
- *judge*: the judge, one read per item;
- *both*: the mean of the judge's P(yes) and the check's 0 or 1 (`checks="mean"`);
- *dropout*: the judge, and a monitor that leaves out half of the items, drawn anew at each step.

*Proxy* is the score that an arm is trained on, over all items, and *gold* the fraction of the instructions that
IFEval's strict code checks find followed. Both are in `rewards.jsonl` for every completion in training. The policy
also answers held-out prompts, greedily: before training (`before/`), half-way and at the end. There, the responses of
every arm are read by the judge and by the code. A monitor watches every run and changes no reward, except in
*dropout*. Its shadow judge is the code, which reads every completion.

Writes `figures.md`, `summary.json` and `english_grpo.png` under `--output` (`figures.py`). Finished runs are
skipped: the same command continues an interrupted study. An interrupted run starts again, but does not repeat its
reads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from peft import LoraConfig
from pocket.grpo_run import console, fit
from studies.arms import run_arms
from studies.common import DATA, Result, judge_of, once, probabilities_of_yes, run_main, save_json
from studies.english_grpo.figures import figures_of
from studies.english_grpo.instructions import dataset_of, prompts
from studies.hacking.logs import write_log
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Sampling, resolve_model
from checklist_rewards.backends.models import model_identity
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask
from checklist_rewards.judges.checked import without_check
from checklist_rewards.rewards.trl import ChecklistReward

ARMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "code": ("only", {}),
    "judge": ("judge", {}),
    "both": ("mean", {}),
    "dropout": ("judge", {"held_out": 0.5, "draw": "step"}),
}
"""What answers items with a check, and the monitor's settings."""
WATCHED = {"action": "log", "held_out": 0.0, "shadow_share": 1.0, "extra_reads": 1.0}
RANK = 16
_PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Study:
    """The prompts, the judge, and the settings that all runs share."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.training, held_out = prompts(args.data)
        self.held_out = held_out[: args.test_prompts]
        self.by_request = {one.request: one for one in self.training}
        args.output.mkdir(parents=True, exist_ok=True)
        self.judge = judge_of(args.judge, args.adapter, Store(args.output / "store.sqlite"))
        judge = {} if args.adapter is None else {"adapter": args.adapter}
        self.settings = {
            "policy": model_identity(args.policy),
            "judge": model_identity(args.judge, judge),
            **{name: getattr(args, name) for name in ("tokens", "test_prompts")},
        }
        self.how = {name: getattr(args, name) for name in ("steps", "groups", "learning_rate")}

    def gold(self, request: str, response: str) -> float:
        """Gold of a completion in training."""
        return self.by_request[request].gold(response)

    def evaluate(self, adapter: Path | None) -> list[Result]:
        """Greedy responses of a policy to the held-out prompts, with the verdicts of code and the judge's P(yes)."""
        # Not `load_backend`, which would keep the policies of all runs in memory.
        settings = {} if adapter is None else {"adapter": str(adapter)}
        policy = TransformersBackend(self.args.policy, **settings)
        how = Sampling(max_tokens=self.args.tokens, temperature=0, n=1, seed=0)
        replies = [reply.text or "" for [reply] in policy.generate([one.messages for one in self.held_out], how)]
        rows = list(zip(self.held_out, replies, strict=True))
        reads = [Ask(without_check(item), text, one.request) for one, text in rows for item in one.checklist.items]
        yes = iter(probabilities_of_yes(self.judge, reads))
        return [
            {
                "key": one.key,
                "response": text,
                "kinds": [item.category for item in one.checklist.items],
                "verdicts": one.verdicts(text),
                "yes": [next(yes) for _ in one.checklist.items],
            }
            for one, text in rows
        ]

    def before(self) -> Result:
        """Evaluate the untrained policy."""
        return {"held_out": self.evaluate(None)}

    def run(self, arm: str, seed: int, folder: Path) -> Result:
        """Train one run, and evaluate it half-way and at the end."""
        args, (checks, watched) = self.args, ARMS[arm]
        raw, monitored = folder / "all.jsonl", folder / "monitor.jsonl"
        for path in (raw, monitored):
            path.unlink(missing_ok=True)  # of an interrupted run
        scorer = ChecklistScorer(judge=self.judge, checks=checks)
        monitor = {
            **WATCHED,
            **watched,
            "seed": seed,
            "shadow": ChecklistScorer(judge=self.judge, checks="only"),
            "log": monitored,
        }
        reward = ChecklistReward(scorer, log=raw, monitor=monitor)
        folder_of_policy = resolve_model(args.policy)
        half = max(1, args.steps // 2)
        log = fit(
            dataset_of(self.training),
            [reward],
            self.gold,
            folder,
            policy=folder_of_policy,
            steps=args.steps,
            learning_rate=args.learning_rate,
            seed=seed,
            save_steps=half,
            groups=args.groups,
            max_tokens=args.tokens,
            adapter=upper_third(folder_of_policy),
        )
        write_log(raw, folder / "rewards.jsonl", self.gold)
        evaluations = {half: folder / "trainer" / f"checkpoint-{half}", args.steps: folder / "policy"}
        return {"held_out": {step: self.evaluate(path) for step, path in evaluations.items()}, "log": log}


def upper_third(policy: str) -> LoraConfig:
    """A LoRA adapter on the upper third of the layers: nothing is propagated back through the other layers."""
    count = AutoConfig.from_pretrained(policy).num_hidden_layers
    return LoraConfig(
        r=RANK,
        lora_alpha=2 * RANK,
        target_modules=_PROJECTIONS,
        layers_to_transform=list(range(2 * count // 3, count)),
        task_type="CAUSAL_LM",
    )


def options() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/english-grpo"))
    parser.add_argument("--judge", default="english", help="a packaged model, an encoder judge, a folder or a Hub id")
    parser.add_argument("--adapter", help="folder of the judge's LoRA adapter")
    parser.add_argument("--policy", default="smollm2", help="a packaged model, a folder or a Hub id")
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="training seeds")
    parser.add_argument("--steps", type=int, default=12, help="GRPO steps")
    parser.add_argument("--groups", type=int, default=2, help="prompts per step, with 8 completions each")
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a completion")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--test-prompts", type=int, default=32, help="number of held-out prompts that are answered")
    parser.add_argument("--data", default=DATA, help="folder that contains ifeval/")
    parser.add_argument("--summary", action="store_true", help="start no run, only summarize those that are finished")
    return parser


def main(argv: Sequence[str] | None = None) -> Result:
    """Run the study; returns its summary."""
    args = options().parse_args(argv)
    transformers_logging.disable_progress_bar()
    study = Study(args)
    console.print(f"{len(study.training)} prompts for training, {len(study.held_out)} held out")
    before = once(args.output / "before", study.settings, study.before)["held_out"]
    settings = {**study.settings, **study.how}
    runs = run_arms(args, settings, study.run, finished=args.summary)
    found = {arm: of_seeds for arm, of_seeds in runs.items() if of_seeds}
    summary = figures_of(args.output, before, found)
    save_json(args.output / "summary.json", {"settings": settings, **summary})
    console.print((args.output / "figures.md").read_text(), markup=False)
    return summary


if __name__ == "__main__":
    run_main(main)
