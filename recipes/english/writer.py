"""Train a small writer of English checklists: a LoRA adapter of SmolLM2-135M-Instruct.

    python recipes/english/writer.py --output runs/writer
    python recipes/english/writer.py --output runs/writer --save

Experts wrote yes/no questions for InFoBench's 500 instructions. 100 instructions are held out; `evaluate_writer.py`
measures on them. Each of the others gives up to three examples, with the messages that the pipeline `english` sends:

- the instruction with its questions;
- the instruction with one to three requirements from other prompts, and a question about each of them;
- the same, where the message says that code checks cover these requirements, with the experts' questions only.

The added requirements are sentences of the half of IFEval's prompts on which the rules of the constraints generator
were developed. A finished adapter is not trained again; an interrupted training continues from its last checkpoint.
`--save` makes it the packaged `english-writer`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import DATA, data_file, json_lines
from english.save import save_adapter
from rich.console import Console

from checklist_rewards.backends import Messages
from checklist_rewards.backends.packaged import ENGLISH_WRITER, adapter_of
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.distill.adapter import AdapterTraining, train_writer
from checklist_rewards.distill.training import TrainingStep
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.rows import read_rows
from checklist_rewards.generators.constraints import constraint_items, covering
from checklist_rewards.generators.direct import DEFAULT_PROMPT
from checklist_rewards.progress import progress_on
from checklist_rewards.prompts import load_prompt

PROMPTS = "ifeval/input_data.jsonl"
DEVELOPED = 270
"""Number of IFEval's prompts on which the rules of the constraints generator were developed."""
FILE = "infobench/infobench_en_gpt4out_gpt4judge.jsonl"
HELD_OUT, SEED = 100, 20261125
MOST = 8
"""Most questions of a checklist; the prompt asks for two to eight."""
LETTERS = 1200
"""Longest instruction, with its input, that is used for training."""
RECORD = "training.json"
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?=\s|$)|$|\n)")
_OWN_WORDS = (
    (re.compile(r"\b(?:the |this )?generated (?:text|response|output)s?\b"), "the response"),
    (re.compile(r"\bgenerated "), ""),
    (re.compile(r"\bthe given input\b"), "the input"),
    (re.compile(r"\bpost tile\b"), "post title"),
)


@dataclass(frozen=True)
class Expert:
    """An instruction with the questions that experts wrote about it."""

    text: str
    """The instruction and its input."""
    questions: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    """The kinds of constraints of each question: Format, Content, Linguistic, Style and Number."""


def experts(data: str | Path) -> tuple[list[Expert], list[Expert]]:
    """InFoBench's instructions for training and the held-out ones. No instruction is in both."""
    by_instruction: dict[str, list[Expert]] = {}
    for row in read_rows(Path(data) / FILE):
        text = "\n\n".join(part.strip() for part in (row.data["instruction"], row.data["input"]) if part.strip())
        questions = tuple(map(reworded, row.data["decomposed_questions"]))
        categories = tuple(map(tuple, row.data["question_label"]))
        by_instruction.setdefault(row.data["instruction"], []).append(Expert(text, questions, categories))
    groups = list(by_instruction.values())
    random.Random(SEED).shuffle(groups)
    held_out = [group[0] for group in groups[:HELD_OUT]]
    return [expert for group in groups[HELD_OUT:] for expert in group], held_out


def reworded(question: str) -> str:
    """A question in the words of this package: it is about "the response"."""
    for pattern, words in _OWN_WORDS:
        question = pattern.sub(words, question)
    return question[0].upper() + question[1:].strip()


def halves(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """IFEval's prompts on which the rules were developed, and the held-out ones."""
    keys = sorted(row["key"] for row in rows)
    random.Random(SEED).shuffle(keys)
    developed = set(keys[:DEVELOPED])
    return [row for row in rows if row["key"] in developed], [row for row in rows if row["key"] not in developed]


def requirement_sentences(data: str | Path) -> list[tuple[str, list[ChecklistItem]]]:
    """Sentences that state requirements and nothing else, with the items of the rules, from IFEval's prompts."""
    rows = list(json_lines(data_file(PROMPTS, data)))
    found: dict[str, list[ChecklistItem]] = {}
    for row in halves(rows)[0]:
        for number, match in enumerate(_SENTENCE.finditer(row["prompt"])):
            sentence = match[0].strip()
            # The first sentence says what to write, and short or long ones rarely state one requirement completely.
            if number == 0 or not 4 <= len(sentence.split()) <= 30 or not sentence.endswith((".", "!")):
                continue
            items = constraint_items(sentence)
            if items and sum(_length(item) for item in items) >= 0.5 * len(sentence):
                found.setdefault(sentence, items)
    return list(found.items())


def _length(item: ChecklistItem) -> int:
    return 0 if item.evidence is None else item.evidence.end - item.evidence.start


def examples(data: str, seed: int = 0) -> list[tuple[Messages, str]]:
    """Messages and replies for training."""
    rng = random.Random(seed)
    train, _ = experts(data)
    sentences = requirement_sentences(data)
    usable = [e for e in train if 2 <= len(e.questions) <= MOST and len(e.text) <= LETTERS]
    rng.shuffle(usable)
    found: list[tuple[Messages, str]] = []
    for expert in usable:
        found.append((_messages(expert.text), listed(expert.questions)))
        own = {item.check for item in constraint_items(expert.text)}
        drawn = [pair for pair in rng.sample(sentences, 6) if not own & {item.check for item in pair[1]}]
        added = _different(drawn)[: rng.choice((1, 1, 2, 3))]
        if not added:
            continue
        text = _with_sentences(expert.text, [sentence for sentence, _ in added], rng)
        asked = [item.question for _, items in added for item in items]
        if len(expert.questions) + len(asked) <= MOST:
            found.append((_messages(text), listed([*expert.questions, *asked])))
        found.append((_messages(text, constraint_items(text)), listed(expert.questions)))
    return found


def _different(drawn: Sequence[tuple[str, list[ChecklistItem]]]) -> list[tuple[str, list[ChecklistItem]]]:
    """Sentences with checks of different types."""
    kept, types = [], set[str]()
    for sentence, items in drawn:
        own = {str(item.check).split(",")[0] for item in items}
        if not own & types:
            kept.append((sentence, items))
            types |= own
    return kept


def _with_sentences(text: str, sentences: Sequence[str], rng: random.Random) -> str:
    """The text with the sentences after its first paragraph, or before it."""
    first, *others = text.split("\n\n")
    added = " ".join(sentences)
    first = f"{first} {added}" if rng.random() < 0.8 or not first.endswith(".") else f"{added} {first}"
    return "\n\n".join([first, *others])


def _messages(text: str, covered: Sequence[ChecklistItem] = ()) -> Messages:
    return covering(load_prompt(DEFAULT_PROMPT, "generator").messages(input=text), covered)


def listed(questions: Sequence[str]) -> str:
    """The reply that the prompt asks for: a numbered list."""
    return "\n".join(f"{number}. {question}" for number, question in enumerate(questions, start=1))


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train the writer; returns its record."""
    folder: Path = args.output / "adapter"
    settings = {"epochs": args.epochs, "learning_rate": args.learning_rate, "seed": args.seed}
    if (folder / RECORD).is_file():
        record = json.loads((folder / RECORD).read_text())
        if record["settings"] != settings:
            raise SampleError(f"{folder} was trained with {record['settings']}; choose another --output.")
        return record
    replies = examples(args.data, args.seed)
    with progress_on(Console()) as bar:
        steps = bar(f"{len(replies)} checklists", None)

        def progress(step: TrainingStep) -> None:
            steps(1, f"epoch {step.epoch:.3f}, loss {step.loss:.3f}")

        training = AdapterTraining(
            epochs=args.epochs, learning_rate=args.learning_rate, seed=args.seed, row_tokens=1024
        )
        record = train_writer(replies, folder, base=args.base, training=training, progress=progress)
    record |= {"settings": settings}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return record


def save(adapter: Path, record: dict[str, Any], figures: dict[str, Any]) -> None:
    """Make an adapter the packaged `english-writer`, in float16 and with its card."""
    from english.evaluate_writer import table

    output = adapter_of(ENGLISH_WRITER)
    output.mkdir(exist_ok=True)
    save_adapter(adapter, output)
    layers = json.loads((adapter / "adapter_config.json").read_text())["layers_to_transform"]
    card = (
        Path(__file__)
        .with_name("card_writer.md")
        .read_text()
        .format(
            **record,
            minutes=record["seconds"] / 60,
            rank=record["training"]["rank"],
            first=min(layers),
            last=max(layers),
            figures=table(figures),
            threshold=figures["threshold"],
            instructions=figures[ENGLISH_WRITER]["instructions"],
        )
    )
    (output / "README.md").write_text(card, encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/writer"))
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--base", default="smollm2", help="model to start from")
    parser.add_argument("--data", default=DATA, help="folder with infobench/ and ifeval/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="make the adapter the packaged english-writer")
    parser.add_argument(
        "--figures", type=Path, default=Path("runs/writing/figures.json"), help="of evaluate_writer.py"
    )
    args = parser.parse_args(argv)
    record = train(args)
    Console().print_json(data=record)
    if args.save:
        save(args.output / "adapter", record, json.loads(args.figures.read_text()))


if __name__ == "__main__":
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None
