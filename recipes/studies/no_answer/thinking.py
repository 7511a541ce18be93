"""A real policy that thinks: SmolLM2-135M is taught to write `<think>...</think>`, and trained by a few steps of GRPO.

    python recipes/studies/no_answer/thinking.py --output runs/thinking_policy

Some thoughts are cut by the length limit. The reward is a [`ChecklistReward`] with code checks and two items that a
judge answers. The recipe records every text that the judge reads, and compares it with what the policy wrote:

- no text has `<think>`, or the first characters of the thought of its completion, unless the policy repeats them in
  its answer;
- every text is the completion without its `<think>...</think>` (removed here by a regular expression, not by the
  package), up to the last `</think>`; how often a judge reads one is counted;
- no completion that is empty, or was cut in its thought, is read at all.

Writes the completions with their scores and the texts that were read (`run/rewards.jsonl`), the figures
(`summary.json`) and `table.md` under `--output`. A finished run is not repeated.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from pocket.grpo_run import console
from studies.common import Result, markdown, once, run_main, save_json
from studies.no_answer.training import Completion, LoggedReward, by_step, grpo, mean_words, read_log, shares, teach
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from checklist_rewards import Checklist, ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Progress, resolve_model
from checklist_rewards.backends.models import model_identity
from checklist_rewards.judges import Ask, Judge, Receipt
from checklist_rewards.rewards.batch import Call
from checklist_rewards.scores import Verdict

PROMPT = "Write one or two sentences about {topic}. Use at most 25 words and the word {word}."
TAUGHT = {
    "a bridge": ("river", "A bridge carries people safely over a river."),
    "honey": ("bees", "Honey is sweet food that bees make from flowers."),
    "the moon": ("night", "The moon shines at night and moves the sea."),
    "a bakery": ("bread", "A bakery sells warm bread early in the morning."),
    "snow": ("winter", "Snow covers the fields in winter and keeps them quiet."),
    "a garden": ("plants", "A garden is a place where plants grow and people rest."),
    "trains": ("travel", "Trains let many people travel quickly between cities."),
    "the sea": ("fish", "The sea is deep and full of fish. It never rests."),
    "coffee": ("cup", "Many people start the day with a cup of coffee."),
    "a library": ("books", "A library lends books to everyone who wants to read."),
    "rain": ("water", "Rain gives water to fields and fills the lakes."),
    "a clock": ("time", "A clock shows the time and ticks all day."),
}
"""What is taught: topic, word and answer."""
TOPICS = {
    "a lighthouse": "light", "tea": "leaves", "a mountain": "snow", "bicycles": "wheels", "a school": "children",
    "the sun": "warm", "a market": "fruit", "wolves": "forest", "a river": "water", "music": "songs",
    "a kitchen": "food", "an island": "sea",
}  # fmt: skip
"""The topics of training, each with a word that the answer must have."""
THOUGHTS = (
    "The user asks me about {topic}.",
    "I need one or two sentences.",
    "There must be at most 25 words.",
    "I have to use the word {word}.",
    "Let me remember what I know about {topic}.",
    "What do people usually say about it?",
    "I should keep this simple and true.",
    "First I choose a subject, then a verb.",
    "Maybe I can say where one finds it.",
    "That could work well here.",
    "I should not list too many facts.",
    "Let me put this together now.",
)
LONGEST_THOUGHT = 10
"""Most sentences of a taught thought. The number is drawn with the same probability for 1 to 2, 2 to 4, 4 to 8 ..."""
LOG = "rewards.jsonl"
START = 20
"""The characters at the start of a thought that must not be in a judged text."""
VIOLATIONS = (
    "reads_without_an_answer",
    "answers_not_read",
    "reads_with_an_opening_tag",
    "reads_with_the_thought",
    "reads_of_another_text",
)
"""The figures of [`evidence`] that must be 0."""
_THOUGHT = re.compile(r"<think>.*</think>|<think>.*", re.S)


class Recorder(Judge):
    """A judge that records the text of every read, by the number of its completion, and passes all reads on."""

    def __init__(self, judge: Judge):
        self.judge_of, self.name = judge, judge.name
        self.texts: dict[int, list[str]] = {}

    def parts(self) -> Iterator[Judge]:
        """The inner judge and what it asks, and this judge."""
        yield from self.judge_of.parts()
        yield self

    def validate(self) -> None:
        self.judge_of.validate()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        self.judge_of.check_item(item, where)

    def answer(self, reads: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        for read in reads:
            self.texts.setdefault(read.sample, []).append(read.target)
        return self.judge_of.answer(reads, progress)

    def pop(self) -> dict[int, list[str]]:
        """The texts since the last call."""
        texts, self.texts = self.texts, {}
        return texts


class RecordedReward(LoggedReward):
    """The logged reward. Its log has the texts that the judge has read for a completion as `read`."""

    def __init__(self, recorder: Recorder, **settings: Any):
        super().__init__(ChecklistScorer(judge=recorder), **settings)
        self.recorder = recorder

    def record(self, call: Call) -> None:
        texts = self.recorder.pop()
        reads = [{"read": texts.get(place, [])} for place in range(len(call.rewards))]
        super().record(replace(call, log_fields=reads))


def draw(rng: random.Random) -> tuple[str, str]:
    """An instruction, and a reply that thinks first."""
    topic, (word, answer) = rng.choice(list(TAUGHT.items()))
    said = rng.sample(THOUGHTS, min(len(THOUGHTS), round(LONGEST_THOUGHT ** rng.random())))
    thought = " ".join(said).format(topic=topic, word=word)
    return PROMPT.format(topic=topic, word=word), f"<think>{thought}</think>{answer}"


def dataset() -> Dataset:
    """The prompts with their checklists: three items that code answers, and two for the judge."""
    rows = []
    for topic, word in TOPICS.items():
        items = [
            ChecklistItem(question="Has the text at most 25 words?", check={"type": "words", "at_most": 25}),
            ChecklistItem(question=f"Does the text use the word {word}?", check={"type": "keywords", "words": [word]}),
            ChecklistItem(question="Does the text have one or two sentences?", check={"type": "sentences", **_FEW}),
            ChecklistItem(question=f"Is the text about {topic}?"),
            ChecklistItem(question=f"Does the text say something about {topic} in a full sentence?"),
        ]
        prompt = [{"role": "user", "content": PROMPT.format(topic=topic, word=word)}]
        rows.append({"prompt": prompt, "checklist": Checklist(items=items).model_dump_json()})
    return Dataset.from_list(rows)


_FEW = {"at_least": 1, "at_most": 2}


def adapter_of(model: Any) -> LoraConfig:
    """A LoRA adapter on the upper two thirds of the layers."""
    count = model.config.num_hidden_layers
    return LoraConfig(
        r=16,
        lora_alpha=32,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        layers_to_transform=list(range(count // 3, count)),
        task_type="CAUSAL_LM",
    )


def taught(args: argparse.Namespace) -> tuple[Any, Any]:
    """The policy that thinks, and its tokenizer. What is taught is kept as an adapter in `taught/`."""
    folder, source = args.output / "taught", resolve_model(args.policy)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    if not (folder / "adapter_config.json").is_file():
        learning = get_peft_model(model, adapter_of(model))
        teach(learning, tokenizer, draw, steps=args.taught_steps, batch=4, learning_rate=5e-4)
        learning.save_pretrained(folder)
        return learning.merge_and_unload(), tokenizer
    return PeftModel.from_pretrained(model, folder).merge_and_unload(), tokenizer


def evidence(completions: Sequence[Completion], judged_items: int = 2) -> Result:
    """What the judge has read, compared with what the policy wrote: numbers of reads, completions and violations."""
    answered = [one for one in completions if one.state not in ("cut_in_thought", "empty", "unfinished")]
    reads = [(one, text, _THOUGHT.sub("", one.whole).strip()) for one in completions for text in one.read]
    starts = [
        one.thought[:START] in own
        for one, text, own in reads
        if one.thought and len(one.thought) >= START and one.thought[:START] in text
    ]
    return {
        "completions": len(completions),
        "with_a_thought": sum(bool(one.thought) for one in completions),
        "without_an_answer": len(completions) - len(answered),
        "reads": len(reads),
        "reads_without_an_answer": len(reads) - sum(len(one.read) for one in answered),
        "answers_not_read": sum(len(one.read) != judged_items for one in answered),
        "reads_with_an_opening_tag": sum("<think>" in text for _, text, _ in reads),
        "reads_with_the_thought": starts.count(False),
        "reads_of_an_answer_that_repeats_the_thought": starts.count(True),
        "reads_with_a_second_closing_tag": sum("</think>" in text for _, text, _ in reads),
        "reads_of_another_text": sum(text.strip() != own for one, text, own in reads if one in answered),
    }


def curve(completions: Sequence[Completion]) -> list[Result]:
    """The figures of each step."""
    lines = []
    for step, found in by_step(completions):
        rewards = [one.reward for one in found if one.reward is not None]
        lines.append(
            {
                "step": step,
                "reward": fmean(rewards) if rewards else None,
                "answered_reward": _mean([one.reward for one in found if one.answer and one.reward is not None]),
                "thought": mean_words([one.thought for one in found]),
                "answer": mean_words([one.answer for one in found]),
                "second": _mean(["</think>" in one.answer for one in found if one.answer]),
                **shares([one.state for one in found]),
            }
        )
    return lines


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def run(args: argparse.Namespace, folder: Path) -> Result:
    """Teach the policy and train it; how long that took, and the metrics of the reward."""
    log = folder / LOG
    log.unlink(missing_ok=True)  # of an interrupted run
    started = time.perf_counter()
    model, tokenizer = taught(args)
    seconds = {"taught": time.perf_counter() - started}
    recorder = Recorder(ChecklistScorer(args.judge, store=False).judge)
    reward = RecordedReward(recorder, log=log)
    entries = grpo(
        model,
        tokenizer,
        dataset(),
        reward,
        folder,
        steps=args.steps,
        groups=args.groups,
        tokens=args.tokens,
        learning_rate=args.learning_rate,
        seed=args.seed,
        adapter=adapter_of(model),
    )
    seconds["step"] = fmean(entry["step_time"] for entry in entries)
    # What the trainer logged must be what the file says.
    metrics = [
        {name: entry[f"checklist_reward/{name}"] for name in ("score", "cut_in_thought", "empty", "cut")}
        for entry in entries
    ]
    return {"seconds": seconds, "metrics": metrics}


def table(result: Result) -> str:
    """The figures as Markdown."""
    names = {
        "reward": "reward", "answered_reward": "of answers", "cut_in_thought": "cut in thought", "empty": "empty",
        "cut": "cut", "thought": "words of thought", "answer": "words of answer",
        "second": "answers with a second `</think>`",
    }  # fmt: skip
    rows = [
        [step["step"], *("" if step[name] is None else f"{step[name]:.2f}" for name in names)]
        for step in result["curve"]
    ]
    facts = [f"- {name.replace('_', ' ')}: {count}" for name, count in result["evidence"].items()]
    return "\n".join([markdown(["step", *names.values()], rows), "", *facts, ""])


def options() -> argparse.ArgumentParser:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/thinking_policy"))
    parser.add_argument("--policy", default="smollm2", help="a packaged model, a folder or a Hub id")
    parser.add_argument("--judge", default="english-encoder", help="a packaged model, an encoder judge or a folder")
    parser.add_argument("--steps", type=int, default=10, help="GRPO steps")
    parser.add_argument("--groups", type=int, default=4, help="prompts per step, with 8 completions each")
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a completion, with its thought")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--taught-steps", type=int, default=100, help="steps in which the policy is taught to think")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(argv: Sequence[str] | None = None) -> Result:
    """Run it; returns its figures."""
    args = options().parse_args(argv)
    transformers_logging.disable_progress_bar()
    names = ("steps", "groups", "tokens", "learning_rate", "taught_steps", "seed", "judge")
    settings = {"policy": model_identity(args.policy), **{name: getattr(args, name) for name in names}}
    result = once(args.output / "run", settings, partial(run, args, args.output / "run"))
    completions = read_log(args.output / "run" / LOG)
    result = {**result, "curve": curve(completions), "evidence": evidence(completions)}
    save_json(args.output / "summary.json", result)
    (args.output / "table.md").write_text(table(result), encoding="utf-8")
    console.print(table(result), markup=False, soft_wrap=True)
    return result


if __name__ == "__main__":
    run_main(main)
