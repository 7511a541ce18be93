"""A policy learns to follow everyday requests: rules and a small writer for the checklists, a small judge, GRPO.

    python recipes/english/demo.py --output runs/demo-english

1. The pipeline `english` writes a checklist for each of 32 prompts (`everyday.py`): code checks for the requirements
   that rules find, and questions about the content by `english-writer`.
2. The untrained policy, SmolLM2-135M, answers held-out prompts: other topics, other words.
3. GRPO trains a LoRA adapter of it. The reward is the mean over the items: code decides what it can, and
   `english-encoder` answers the rest. A monitor watches.
4. The trained policy answers the held-out prompts again.

Gold is computed by IFEval's verdicts and by a list of words per topic, which no reward sees.

Writes `summary.json`, `answers.md` (before and after, side by side), `curves.png`, `report.html`, `rewards.jsonl`,
`monitor.jsonl` and the adapter under `--output`. An interrupted run continues by the same command.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from datasets import Dataset
from english.common import figure, once, run_main, save_json
from english.everyday import Everyday, prompts
from english.shared_prompts import SharedPromptTrainer, sample
from peft import LoraConfig, PeftModel
from pocket.grpo_run import Bar, GoldReward, console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import resolve_model
from checklist_rewards.datasets import build_checklists, save_dataset
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.ui.report import write_report

N = 8
"""Completions per prompt."""
CONTENT = 0.5
"""Weight of an item that the judge answers."""
A_TEXT: dict[str, Any] = {
    "question": "Does the response use at least six different words?",
    "check": {"type": "verifiable", "name": "count:unique_word_count", "arguments": {"N": 6}},
}
RANK, FIRST = 16, 1 / 2
"""Rank of the adapter, and the share of the layers without one."""
_PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def bf16_is_fast() -> bool:
    """Whether the machine multiplies matrices in bfloat16 by its own instructions. On a CPU with them a backward pass
    takes half the time, on one without them many times as long."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def checklists_of(some: Sequence[Everyday], args: argparse.Namespace) -> Dataset:
    """The prompts with the checklists of the pipeline, written once."""
    path = args.output / "checklists.parquet"
    if not path.is_file():
        written = build_checklists(
            [{"prompt": one.messages} for one in some], pipeline=args.pipeline, store=args.output / "store.sqlite"
        )
        save_dataset(written, path)
    return Dataset.from_parquet(str(path))


def items_of(checklist: Any) -> list[dict[str, Any]]:
    """The items that are rewarded: a question about the content counts half of what code knows for certain, and one
    more item asks for a text at all."""
    items = [item.model_dump(exclude={"sources"}) for item in Checklist.parse(checklist).items]
    return [*(item if item["check"] else {**item, "weight": CONTENT} for item in items), A_TEXT]


class Policy:
    """A policy that answers prompts, with log-probabilities under the untrained model."""

    def __init__(self, name: str, adapter: Path | None = None):
        folder = resolve_model(name)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.adapted: Any = self.model if adapter is None else PeftModel.from_pretrained(self.model, str(adapter))
        self.adapted.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    def asked(self, one: Everyday) -> list[int]:
        """The token ids of a prompt; one token if the template has none of its own for it."""
        tokenizer = self.tokenizer
        start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return tokenizer.apply_chat_template(one.messages, add_generation_prompt=True, return_dict=False) or [start]

    @torch.inference_mode()
    def answers(self, some: Sequence[Everyday], n: int, tokens: int, temperature: float) -> list[list[str]]:
        """`n` sampled answers to each prompt."""
        torch.manual_seed(0)
        asked = [self.asked(one) for one in some]
        eos = [self.tokenizer.eos_token_id]
        found = sample(self.adapted, asked, n, max_tokens=tokens, temperature=temperature, eos=eos)
        return [[text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)] for ids in found]

    @torch.inference_mode()
    def fluency(self, some: Sequence[Everyday], answers: Sequence[Sequence[str]]) -> float:
        """Mean log-probability per token of the answers under the untrained model, without their prompts."""
        found = []
        disabled = self.adapted.disable_adapter() if isinstance(self.adapted, PeftModel) else torch.no_grad()
        with disabled:
            for one, texts in zip(some, answers, strict=True):
                asked = self.asked(one)
                for text in texts:
                    reply = self.tokenizer(text, add_special_tokens=False)["input_ids"]
                    if not reply:
                        continue
                    ids = torch.tensor([[*asked, *reply]], device=self.adapted.device)
                    logprobs = self.adapted(input_ids=ids).logits[0, -len(reply) - 1 : -1].float().log_softmax(-1)
                    found.append(logprobs.gather(1, ids[0, -len(reply) :, None]).mean().item())
        return fmean(found) if found else float("nan")


def evaluated(policy: Policy, some: Sequence[Everyday], args: argparse.Namespace) -> dict[str, Any]:
    """Figures of a policy on held-out prompts, and its answers."""
    answers = policy.answers(some, args.samples, args.tokens, args.temperature)
    flat = [(one, text) for one, texts in zip(some, answers, strict=True) for text in texts]
    words = [text.lower().split() for _, text in flat]
    return {
        "requirements": fmean(one.met(text) for one, text in flat),
        "content": fmean(one.about(text) for one, text in flat),
        "both": fmean(one.met(text) == 1 and one.about(text) for one, text in flat),
        "words": fmean(map(len, words)),
        "distinct": fmean(len(set(some)) / len(some) for some in words if some),
        "logprob": policy.fluency(some, answers),
        "answers": answers,
    }


def trained(
    dataset: Dataset, some: Sequence[Everyday], args: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Train the policy; its adapter is in `folder/policy`. Returns the log of the trainer."""
    by_prompt = {one.prompt: one for one in some}
    # Checklists as JSON text: their checks have different fields.
    rows = [{"prompt": row["prompt"], "checklist": json.dumps(items_of(row["checklist"]))} for row in dataset]
    scorer = ChecklistScorer(args.judge, metric="expected", store=False)
    reward = ChecklistReward(
        scorer,
        log=folder / "rewards.jsonl",
        monitor={"action": "log", "held_out": 0.0, "log": folder / "monitor.jsonl"},
    )
    policy = resolve_model(args.policy)
    model: Any = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    layers = model.config.num_hidden_layers
    trainer = SharedPromptTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(policy, padding_side="left"),
        reward_funcs=[
            reward,
            GoldReward(lambda prompt, text: by_prompt[prompt].met(text)),
            GoldReward(lambda prompt, text: by_prompt[prompt].about(text), "content"),
        ],
        train_dataset=Dataset.from_list(rows),
        peft_config=LoraConfig(
            r=RANK,
            lora_alpha=2 * RANK,
            target_modules=_PROJECTIONS,
            layers_to_transform=list(range(int(FIRST * layers), layers)),
            task_type="CAUSAL_LM",
        ),
        args=GRPOConfig(
            output_dir=str(folder / "trainer"),
            use_cpu=not torch.cuda.is_available(),  # without a GPU, TRL refuses its default, bf16
            bf16=bf16_is_fast(),
            gradient_checkpointing=False,  # memory is no concern, and it costs a second forward pass
            per_device_train_batch_size=N * args.groups,
            num_generations=N,
            max_completion_length=args.tokens,
            temperature=args.temperature,
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            lr_scheduler_type="constant",
            beta=args.beta,
            reward_weights=[1.0, 0.0, 0.0],
            save_steps=10,
            save_total_limit=1,
            logging_steps=1,
            seed=args.seed,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        callbacks=[Bar()],
    )
    trainer.remove_callback(ProgressCallback)
    last = get_last_checkpoint(folder / "trainer") if (folder / "trainer").is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(folder / "policy"))
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def side_by_side(some: Sequence[Everyday], before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first answer to each prompt, before and after, as Markdown."""
    lines = ["# Answers to held-out prompts, before and after", ""]
    for place, one in enumerate(some):
        lines += [f"**{one.prompt}**", ""]
        for when, found in (("before", before), ("after", after)):
            text = found["answers"][place][0]
            marks = f"requirements {one.met(text):.0%}, {'about it' if one.about(text) else 'not about it'}"
            lines += [f"- {when} ({marks}): {' '.join(text.split()) or '(empty)'}"]
        lines.append("")
    return "\n".join(lines)


def plot(before: dict[str, Any], after: dict[str, Any], path: Path) -> None:
    """The reward and both golds during training, with the held-out prompts before and after as dots."""
    log = after["log"]
    steps = [entry["step"] for entry in log]
    with figure(path, figsize=(7, 4.2)) as axes:
        for label, key, gold, color in (
            ("reward", "reward", None, "C0"),
            ("requirements met (gold)", "rewards/gold/mean", "requirements", "C1"),
            ("a text about the topic (gold)", "rewards/content/mean", "content", "C2"),
        ):
            values = [float(entry[key]) for entry in log]
            axes.plot(steps, values, color=color, alpha=0.25, linewidth=1)
            smooth = [fmean(values[max(0, place - 4) : place + 1]) for place in range(len(values))]
            axes.plot(steps, smooth, color=color, label=label, linewidth=2)
            if gold is not None:
                axes.plot([0, steps[-1]], [before[gold], after[gold]], "o", color=color)
        axes.set(xlabel="GRPO step", ylabel="mean over completions", ylim=(0, 1.02))
        axes.set_title("Everyday requests (dots: held-out prompts)")
        axes.legend(loc="upper left", frameon=False)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the demo; returns its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo-english"))
    parser.add_argument("--pipeline", default="english", help="writes the checklists")
    parser.add_argument("--judge", default="english-encoder")
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--steps", type=int, default=60, help="updates of the policy")
    parser.add_argument("--groups", type=int, default=4, help=f"prompts per step, with {N} completions each")
    parser.add_argument("--tokens", type=int, default=40, help="most tokens of a completion")
    parser.add_argument("--temperature", type=float, default=0.7, help="of sampling, in training and in evaluation")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--beta", type=float, default=0.04, help="weight of the KL term, which keeps the text a text")
    parser.add_argument("--prompts", type=int, default=32, help="number of prompts for training")
    parser.add_argument("--test-prompts", type=int, default=16, help="number of held-out prompts")
    parser.add_argument("--samples", type=int, default=2, help="answers to each held-out prompt")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    started = time.perf_counter()
    transformers_logging.disable_progress_bar()
    args.output.mkdir(parents=True, exist_ok=True)
    training, held_out = prompts(args.prompts), prompts(args.test_prompts, held_out=True)

    console.print("[bold]1/4[/] checklists: rules first, then the writer")
    dataset = checklists_of(training, args)
    console.print("[bold]2/4[/] the untrained policy")
    how = {name: getattr(args, name) for name in ("policy", "tokens", "temperature", "test_prompts", "samples")}
    before = once(args.output / "before", how, lambda: evaluated(Policy(args.policy), held_out, args))
    console.print("[bold]3/4[/] GRPO")
    folder = args.output / f"seed-{args.seed}"
    names = ("judge", "steps", "groups", "learning_rate", "beta", "prompts", "seed")
    settings = how | {name: getattr(args, name) for name in names}

    def run() -> dict[str, Any]:
        log = trained(dataset, training, args, folder)
        console.print("[bold]4/4[/] the trained policy")
        return {"log": log, **evaluated(Policy(args.policy, folder / "policy"), held_out, args)}

    after = once(folder, settings, run)
    (folder / "answers.md").write_text(side_by_side(held_out, before, after), encoding="utf-8")
    if after["log"]:
        plot(before, after, folder / "curves.png")
    write_report(folder / "report.html", [folder / "rewards.jsonl"], title="Everyday requests")
    table = Table("held-out prompts", "before", "after", title=f"{args.steps} steps")
    for name in ("requirements", "content", "both", "words", "distinct", "logprob"):
        table.add_row(name, f"{before[name]:.2f}", f"{after[name]:.2f}")
    console.print(table)
    summary = {"before": before, "after": after, "seconds": time.perf_counter() - started}
    save_json(args.output / "summary.json", summary)
    console.print(
        f"Everything is in {folder}/: answers.md, curves.png, report.html, rewards.jsonl, monitor.jsonl, policy/."
    )
    return summary


if __name__ == "__main__":
    run_main(main)
