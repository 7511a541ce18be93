"""GRPO in TRL's environments: a pocket policy that calls tools, rewarded by checklists that the environments write.

    python recipes/studies/environments.py --output runs/environments

Two environments in one run (`environment_factory` with two names). In `Lookup`, the policy reads a word in the prompt,
calls `find` with it, and writes a text with the word that the tool returns. In `Rule`, it calls `rule` and follows the
instruction that the tool returns. Each environment writes its checklist in `reset`, with items about single messages.

The pocket model has never called a tool, so it is first trained on transcripts for a few minutes: they call the right
tool, and in half of them the text ignores the result. Their words are not those of GRPO, and its words not those of
the measurement. The judge is the pocket model; one read in `--fails` fails. Completions that it cannot score get None.

Gold is computed by code: the tool was called with the right word, and the final text does what the result says. It is
measured on held-out words before and after 20 steps, with all rollouts by TRL.
"""

from __future__ import annotations

import argparse
import random
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from datasets import Dataset
from pocket.world import TEST_WORDS, TRAIN_WORDS, Constraint, Plan, write_text
from rich.console import Console
from studies.common import markdown, once, run_main, shown, spread
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from typing_extensions import override

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, pocket_dir
from checklist_rewards.judges import Ask, LogprobJudge, Progress, Receipt
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

N = 8
"""Completions of a prompt."""
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|' + ('user' if message['role'] == 'tool' else message['role']) + '|>' + message['content'] }}"
    "{%- for call in message['tool_calls'] or [] %}"
    "{{- '<' + call['function']['name'] }}"
    "{%- for key, value in call['function']['arguments'].items() %}"
    "{{- ' ' + key + '=\"' + value + '\"' }}"
    "{%- endfor %}"
    "{{- '>' }}{%- endfor %}"
    "{%- if message['role'] == 'assistant' %}{{- '<|end|>' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)
"""The pocket template with calls such as `<find word="bakto">`. It has no token for tools: results are user turns."""
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<(?P<name>find|rule)",
            "close_pattern": r">",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r'(?P<key>\w+)="(?P<value>[^"]*)"',
                "value_parser": {"name": "text"},
            },
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<\|end\|>", "content": "text"},
    },
}
"""How TRL finds the calls in what the policy wrote."""
NO_DIGIT = Constraint("no_digits")


class _Task:
    """What both environments share: a constraint on the final text, which the policy learns from a tool only."""

    def _begin(self, constraint: Constraint) -> None:
        self.constraint, self.asked = constraint, False
        self.checklist = [
            {"question": constraint.question(), "scope": "final", "weight": 3},
            {"question": NO_DIGIT.question(), "scope": "every_turn"},
        ]

    def _gold(self, completion: Sequence[dict[str, Any]]) -> float:
        """1 if the right call was made and the final text meets the constraint, 0.5 for the call alone."""
        final = completion[-1]
        done = final["role"] == "assistant" and not final.get("tool_calls") and final["content"].strip()
        return 0.5 * self.asked + 0.5 * bool(self.asked and done and self.constraint.holds(final["content"]))


class Lookup(_Task):
    """The final text must mention the word that belongs to the word of the prompt."""

    def reset(self, word: str = "", result: str = "", **columns: Any) -> None:
        """Begin a rollout."""
        self._begin(Constraint("mention", result))
        self.word, self.result = word, result

    def find(self, word: str) -> str:
        """Find the word that belongs to a word.

        Args:
            word: The word.
        """
        self.asked = self.asked or word == self.word
        return f'Mention the word "{self.result}".' if word == self.word else "Is missing."


class Rule(_Task):
    """The final text must follow the instruction that the tool returns."""

    def reset(self, word: str = "", result: str = "", **columns: Any) -> None:
        """Begin a rollout."""
        self._begin(Constraint(result, word if result == "first" else None))

    def rule(self) -> str:
        """The instruction for the text."""
        self.asked = True
        return self.constraint.instruction(random.Random(0))


RULES = ("question", "exclaim", "first", "lowercase", "bullets")
ENVIRONMENTS = {"lookup": Lookup, "rule": Rule}


def rows_of(count: int, words: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Rows for the environments in turn, with words from `words`."""
    rng = random.Random(seed)
    rows = []
    for place in range(count):
        word, other = rng.sample(list(words), 2)
        lookup = place % 2 == 0
        ask = f'Write a short text. Include the word "{word}".' if lookup else "Write a short text. Follow the rule."
        rows.append(
            {
                "prompt": [{"role": "user", "content": ask}],
                "environment": "lookup" if lookup else "rule",
                "word": word,
                "result": other if lookup else rng.choice(RULES),
            }
        )
    return rows


def transcript(row: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    """A rollout for the warm-up: the right call, and in half of the cases a text that follows its result."""
    environment: Any = ENVIRONMENTS[row["environment"]]()
    environment.reset(**row)
    arguments = {"word": row["word"]} if row["environment"] == "lookup" else {}
    name = "find" if row["environment"] == "lookup" else "rule"
    result = getattr(environment, name)(**arguments)
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    family, value = environment.constraint.family, environment.constraint.value
    follows = rng.random() < 0.5
    plan = Plan(
        sentences=rng.randint(1, 2),
        mark={"question": "?", "exclaim": "!"}.get(family, ".") if follows else ".",
        lowercase=follows and family == "lowercase",
        bullets=follows and family == "bullets",
        first=str(value) if follows and family == "first" else None,
        words=(str(value),) if follows and family == "mention" else (),
    )
    return [
        *row["prompt"],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": name, "content": result},
        {"role": "assistant", "content": write_text(rng, plan, TRAIN_WORDS)},
    ]


def tokenizer_of() -> Any:
    """The pocket tokenizer with tool calls."""
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    return tokenizer


def warm_up(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train the pocket model on transcripts, on the turns of the assistant only, and save it."""
    torch.manual_seed(0)
    rng, tokenizer = random.Random(0), tokenizer_of()
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.warm_up_learning_rate)
    losses = []
    for step in range(args.warm_up_steps):
        rows = rows_of(args.warm_up_batch, TRAIN_WORDS, seed=step)
        encoded = [example(transcript(row, rng), tokenizer) for row in rows]
        longest = max(len(ids) for ids, _ in encoded)
        ids = torch.tensor([ids + [tokenizer.pad_token_id] * (longest - len(ids)) for ids, _ in encoded])
        labels = torch.tensor([own + [-100] * (longest - len(own)) for _, own in encoded])
        for group in optimizer.param_groups:
            group["lr"] = args.warm_up_learning_rate * (1 - step / args.warm_up_steps)
        loss = model(input_ids=ids, attention_mask=ids != tokenizer.pad_token_id, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.save_pretrained(folder / "policy")
    tokenizer.save_pretrained(folder / "policy")
    return {"loss": fmean(losses[-20:])}


def example(messages: list[dict[str, Any]], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Token ids of a transcript, and the same with -100 for all that the policy does not write."""

    def ids(until: int, prompt: bool) -> list[int]:
        return tokenizer.apply_chat_template(messages[:until], add_generation_prompt=prompt, return_dict=False)

    whole = ids(len(messages), False)
    own = [-100] * len(whole)
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            start, end = len(ids(place, True)), len(ids(place + 1, False))
            own[start:end] = whole[start:end]
    return whole, own


class Measured(ChecklistReward):
    """Keeps gold by code and the rewards of each call, by environment. Gold is in no reward."""

    def __call__(self, prompts: Any, completions: Any, environments: Any = (), **columns: Any) -> list[float | None]:
        rewards = super().__call__(prompts, completions, environments=environments, **columns)
        golds = [environment._gold(c) for environment, c in zip(environments, completions, strict=True)]
        self.calls = [*getattr(self, "calls", []), (columns["environment"], golds, rewards)]
        return rewards


def trainer_of(policy: Path, rows: list[dict[str, Any]], reward: Measured, folder: Path, **settings: Any) -> Any:
    """TRL's trainer for both environments."""
    return GRPOTrainer(
        model=str(policy),
        processing_class=tokenizer_of(),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        environment_factory=ENVIRONMENTS,
        args=GRPOConfig(
            output_dir=str(folder / "trainer"),
            # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=5,
            num_generations=N,
            max_completion_length=96,
            max_tool_calling_iterations=2,
            beta=0.0,
            **settings,
        ),
    )


def gold_of(policy: Path, seed: int, args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Gold by environment on held-out words: one call of the trainer's own rollout, without training."""
    reward = Measured(ChecklistScorer("pocket", backend="transformers", store=False))
    rows = rows_of(args.test_prompts, TEST_WORDS[1::2], seed=1000)
    trainer = trainer_of(policy, rows, reward, folder, per_device_train_batch_size=N, max_steps=1, seed=seed)
    trainer.model.train()
    torch.manual_seed(seed)
    with torch.no_grad():
        trainer._generate_and_score_completions([row for row in rows for _ in range(N)])
    return by_environment(reward.calls)


def by_environment(calls: Sequence[tuple[Any, Any, Any]]) -> dict[str, float]:
    """Mean gold of each environment."""
    pairs = [pair for names, golds, _ in calls for pair in zip(names, golds, strict=True)]
    return {name: fmean(gold for own, gold in pairs if own == name) for name in ENVIRONMENTS}


def train(seed: int, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train one run, and measure the policy before and after."""
    policy = args.output / "warm" / "policy"
    reward = Measured(ChecklistScorer(judge=LosingJudge(Engine("pocket", "transformers"), args.fails)))
    trainer = trainer_of(
        policy,
        rows_of(4 * args.steps * args.groups, TEST_WORDS[::2], seed=seed),
        reward,
        folder,
        per_device_train_batch_size=N * args.groups,
        max_steps=args.steps,
        learning_rate=args.learning_rate,
        seed=seed,
    )
    trainer.train()
    trainer.save_model(str(folder / "policy"))
    rewards = [value for _, _, values in reward.calls for value in values]
    return {
        "before": gold_of(policy, seed, args, folder),
        "after": gold_of(folder / "policy", seed, args, folder),
        "completions": len(rewards),
        "unscored": sum(value is None for value in rewards),
    }


class LosingJudge(LogprobJudge):
    """A judge that loses some reads, as a bad connection does: always the same, so that repeating them does not help.

    Args:
        one_in (`int`): Every how many reads one is lost; 0 for none.
    """

    def __init__(self, engine: Engine, one_in: int):
        super().__init__(engine)
        self.one_in = one_in

    @override
    def answer(self, reads: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        verdicts, spent = super().answer(reads, progress)
        lost = Verdict(unanswered=Unanswered(Reason.BACKEND_ERROR, "lost by the study"))
        return [lost if self._loses(read) else v for read, v in zip(reads, verdicts, strict=True)], spent

    def _loses(self, read: Ask) -> bool:
        return bool(self.one_in) and zlib.crc32(f"{read.item.question}{read.target}".encode()) % self.one_in == 0


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns gold before and after by environment, one value per seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/environments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--groups", type=int, default=4, help="prompts per step")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--fails", type=int, default=20, help="every how many reads one is lost; 0 for none")
    parser.add_argument("--test-prompts", type=int, default=32)
    parser.add_argument("--warm-up-steps", type=int, default=300)
    parser.add_argument("--warm-up-batch", type=int, default=16, help="transcripts per step")
    parser.add_argument("--warm-up-learning-rate", type=float, default=1e-3)
    args = parser.parse_args(argv)
    settings = {name: value for name, value in vars(args).items() if name not in ("output", "seeds")}
    warm = {name: value for name, value in settings.items() if name.startswith("warm_up")}
    once(args.output / "warm", warm, lambda: warm_up(args, args.output / "warm"))
    runs = []
    for seed in args.seeds:
        folder = args.output / str(seed)
        runs.append(once(folder, {**settings, "seed": seed}, lambda: train(seed, folder, args)))  # noqa: B023
    found = {name: {when: [run[when][name] for run in runs] for when in ("before", "after")} for name in ENVIRONMENTS}
    lines = [[name, *(shown(spread(values)) for values in when.values())] for name, when in found.items()]
    table = markdown(["environment", "gold before", f"gold after {args.steps} steps"], lines)
    lost, total = (sum(run[key] for run in runs) for key in ("unscored", "completions"))
    (args.output / "table.md").write_text(
        f"{table}\n\n{lost} of {total} completions had no reward.\n", encoding="utf-8"
    )
    Console(width=120).print(table, f"\n{lost} of {total} completions had no reward.")
    return found


if __name__ == "__main__":
    run_main(main)
