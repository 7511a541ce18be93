"""Four tasks with people's yes/no labels, as training data and test data of a judge.

| task | text | question | group |
|---|---|---|---|
| `realsumm` | a summary | does it contain this fact? | document |
| `semeval` | a student's answer | does it express the reference answer? | exam question |
| `argkp` | an argument | does it make this key point? | topic |
| `evouna` | a system's answer | is it right, given the key? | trivia question |

Each task has five wordings, so that a judge follows the question rather than a template. Two wordings of the tasks
with a reference answer do not quote it; the judge sees it as the reference of the read. Tests use the first wording.

REALSumm has no dev split: fold 1 of its documents is the dev split here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from english.common import DATA, data_file, json_lines
from english.opposites import form_pairs, negated

from checklist_rewards.distill.labels import by_target
from checklist_rewards.judges.labels import Labelled

TASKS = ("realsumm", "semeval", "argkp", "evouna")
TRAIN, DEV = "train", "dev"
_DEV_FOLD = 1
_ALIASES = 5
"""Number of accepted answers that a question quotes; some have more than a hundred."""

WORDINGS = {
    "realsumm": (
        "Does the summary say the following: '{}'?",
        "Is this fact in the summary: '{}'?",
        "Does the response state that '{}'?",
        "Can a reader of the text conclude this: '{}'?",
        "Is it mentioned that '{}'?",
    ),
    "semeval": (
        "Does the answer express the following: '{}'?",
        "Does the response mean the same as '{}'?",
        "Would a teacher who expects '{}' accept this answer?",
        "Does the response say the same as the reference answer?",
        "Is the answer correct, compared with the reference answer?",
    ),
    "argkp": (
        "Does the text make this point: '{}'?",
        "Is '{}' a point of this argument?",
        "Does the response argue that '{}'?",
        "Could the argument be summarized as '{}'?",
        "Does the author support the claim '{}'?",
    ),
    "evouna": (
        "Is the answer correct, given that the right answer is '{}'?",
        "Does the response name '{}' as its answer?",
        "Does the answer agree with '{}'?",
        "Does the response give the reference answer?",
        "Is the response right, according to the reference answer?",
    ),
}


@dataclass(frozen=True, slots=True)
class Example:
    """One label. The question is a wording around `statement`."""

    task: str
    group: str
    target: str
    statement: str
    label: float
    input: str | None = None
    references: tuple[str, ...] = ()
    """All accepted answers, of tasks that have them."""

    def pair(self, wording: int = 0) -> Labelled:
        """The example with one of the wordings of its task."""
        text = WORDINGS[self.task][wording]
        quotes = "{}" in text
        question = text.replace("{}", self.statement)
        reference = None if quotes else self.statement
        return Labelled(self.target, question, self.label, self.group, self.input, reference)


def load(task: str, split: str, data: str | Path = DATA) -> list[Example]:
    """The examples of a split, "train" or "dev", each once; dev examples that are in the training split are left out.
    Raises [`SampleError`] if the data is missing."""
    if task == "realsumm":
        rows = json_lines(data_file(f"{task}/votes.jsonl.gz", data))
        return [
            Example(
                task,
                row["doc_id"],
                row["response"],
                row["criterion"],
                row["votes_present"] / row["votes_total"],
            )
            for row in rows
            if (row["fold_by_example"] == _DEV_FOLD) == (split == DEV)
        ]
    examples = []
    seen = {_key(example) for example in load(task, TRAIN, data)} if split == DEV else set()
    for row in json_lines(data_file(f"{task}/{split}.jsonl.gz", data)):
        example = Example(
            task, row["group"], row["target"], _statement(row), row["label"], row["input"], _references(row)
        )
        if _key(example) not in seen:
            seen.add(_key(example))
            examples.append(example)
    return examples


def _key(example: Example) -> tuple[str, str, str | None]:
    return example.target, example.statement, example.input


def sample(examples: Sequence[Example], reads: int, seed: int = 0) -> list[Example]:
    """About this number of examples: random targets of random groups, with all their questions."""
    places = list(by_target(example.pair() for example in examples).values())
    random.Random(f"{seed}/{examples[0].task if examples else ''}").shuffle(places)
    chosen: list[Example] = []
    for some in places:
        if len(chosen) >= reads:
            break
        chosen += [examples[place] for place in some]
    return chosen


def training_pairs(
    tasks: Sequence[str],
    reads: int | None = None,
    seed: int = 0,
    data: str | Path = DATA,
    opposites: float = 0.0,
) -> list[Labelled]:
    """The labels of the training splits, each in a random wording.

    Args:
        tasks (sequence of `str`): The tasks to train on.
        reads (`int`, *optional*): Number of labels in all, the same of each task. Defaults to all labels.
        seed (`int`, *optional*, defaults to `0`): Seed of the sample and of the wordings.
        data (`str` or `Path`, *optional*): The folder of the data.
        opposites (`float`, *optional*, defaults to `0.0`): Share, in [0, 1], of the labels with a quoting question
            that are also asked the other way round. Questions about form are added, half this share of all labels
            (`opposites.py`).
    """
    rng = random.Random(seed)
    pairs: list[Labelled] = []
    for task in tasks:
        examples = load(task, TRAIN, data)
        if reads is not None:
            examples = sample(examples, reads // len(tasks), seed)
        for some in by_target(example.pair() for example in examples).values():
            # One choice of quoting or not per target, so that all its questions share the prefix.
            quoting = [k for k, text in enumerate(WORDINGS[task]) if "{}" in text]
            wordings = quoting if rng.random() < len(quoting) / len(WORDINGS[task]) else None
            for place in some:
                of = wordings or [k for k in range(len(WORDINGS[task])) if k not in quoting]
                pairs.append(examples[place].pair(rng.choice(of)))
                if wordings and rng.random() < opposites:
                    pairs.append(negated(task, pairs[-1], examples[place].statement, rng))
    pairs += form_pairs([pair.target for pair in pairs], int(opposites * len(pairs) / 2), seed)
    return pairs


def _statement(row: dict[str, Any]) -> str:
    match row["dataset"]:
        case "semeval":
            return row["closest_reference"]
        case "evouna":
            return "/".join(row["references"][:_ALIASES])
    return row["question"].split(": '", 1)[1].removesuffix("'?")


def _references(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row.get("references") or ())
