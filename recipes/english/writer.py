"""Instructions with experts' checklists, as training data and test data of a writer.

Experts wrote yes/no questions for InFoBench's 500 instructions. 100 instructions are held out; `evaluate_writer.py`
measures on them. Each of the others gives up to three examples, with the messages that the pipeline `english` sends:

- the instruction with its questions;
- the instruction with one to three requirements from other prompts, and a question about each of them;
- the same, where the message says that code checks cover these requirements, with the experts' questions only.

The added requirements are sentences of the half of IFEval's prompts on which the rules of the constraints generator
were developed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from english.common import data_file, json_lines

from checklist_rewards.backends import Messages
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.files.rows import read_rows
from checklist_rewards.generators.constraints import constraint_items, covering
from checklist_rewards.generators.direct import DEFAULT_PROMPT
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


def experts(data: str | Path) -> tuple[list[Expert], list[Expert]]:
    """InFoBench's instructions for training and the held-out ones. No instruction is in both."""
    by_instruction: dict[str, list[Expert]] = {}
    for row in read_rows(Path(data) / FILE):
        text = "\n\n".join(part.strip() for part in (row.data["instruction"], row.data["input"]) if part.strip())
        questions = tuple(map(reworded, row.data["decomposed_questions"]))
        by_instruction.setdefault(row.data["instruction"], []).append(Expert(text, questions))
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
