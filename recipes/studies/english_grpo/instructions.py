"""IFEval's prompts as training data: those that a short response can follow, with one checklist item per instruction.

A prompt is kept if

- it has at least two instructions, so that a reward has more than two values and item dropout has a choice;
- all its instructions can be met together in at most [`WORDS`] words (`_KINDS` says how many words each kind needs);
- no instruction asks for another language, which SmolLM2 does not write, or counts a sign other than a letter
  (IFEval's own check puts a random letter in its place).

The kept prompts are divided in the order of the file: every second one is held out. An item has a yes/no question in
plain English for a judge, and as its check IFEval's strict verdict: the code check of the instruction, and the
response is not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from studies.common import DATA, data_file, json_lines

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.checks import parse_check
from checklist_rewards.checks.ifeval import check_of_instruction
from checklist_rewards.datasets import checklist_columns, checklist_features
from checklist_rewards.errors import SampleError
from checklist_rewards.validation import install, missing

WORDS = 40
"""Most words that a response may need. A completion has 64 tokens, about 48 words."""
LIMIT = f"Answer in at most {WORDS} words."
"""Added to every prompt, because a policy does not know where its completions are cut."""
LEAST = 2
"""Fewest instructions of a prompt."""

Arguments = Mapping[str, Any]
_SENTENCE, _PARAGRAPH, _BULLET, _SECTION, _HIGHLIGHT = 5, 6, 4, 8, 2
"""Words that one of these needs."""


def _counted(relation: str, number: int, noun: str) -> str:
    return f"{'at least' if relation == 'at least' else 'fewer than'} {_plural(number, noun)}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _least(relation: str, number: int, words: int = 1) -> int:
    """Words needed for a lower bound; an upper bound needs none."""
    return number * words if relation == "at least" else 0


_KINDS: dict[str, tuple[Callable[[Arguments], str], Callable[[Arguments], int]]] = {
    "change_case:capital_word_frequency": (
        lambda k: (
            "Does the response have "
            f"{_counted(k['capital_relation'], k['capital_frequency'], 'word')} in all capital letters?"
        ),
        lambda k: _least(k["capital_relation"], k["capital_frequency"]),
    ),
    "change_case:english_capital": (
        lambda k: "Is the whole response in English and in capital letters?",
        lambda k: 1,
    ),
    "change_case:english_lowercase": (
        lambda k: "Is the whole response in English and in lower case, without capital letters?",
        lambda k: 1,
    ),
    "combination:repeat_prompt": (
        lambda k: f"Does the response begin with a word for word copy of this request: '{k['prompt_to_repeat']}'?",
        lambda k: len(k["prompt_to_repeat"].split()) + _SENTENCE,
    ),
    "combination:two_responses": (
        lambda k: "Does the response give two different answers, separated by six asterisks (******)?",
        lambda k: 2 * _SENTENCE,
    ),
    "detectable_content:number_placeholders": (
        lambda k: (
            f"Does the response have at least {_plural(k['num_placeholders'], 'placeholder')} in square brackets, "
            "such as [address]?"
        ),
        lambda k: k["num_placeholders"],
    ),
    "detectable_content:postscript": (
        lambda k: f"Does the response have a postscript at the end that starts with '{k['postscript_marker']}'?",
        lambda k: 2 * _SENTENCE,
    ),
    "detectable_format:constrained_response": (
        lambda k: "Is the answer 'My answer is yes.', 'My answer is no.' or 'My answer is maybe.'?",
        lambda k: 4,
    ),
    "detectable_format:json_format": (lambda k: "Is the whole response valid JSON?", lambda k: _SENTENCE),
    "detectable_format:multiple_sections": (
        lambda k: (
            f"Does the response have at least {_plural(k['num_sections'], 'section')}, each marked with "
            f"'{k['section_spliter']}' and a number?"
        ),
        lambda k: k["num_sections"] * _SECTION,
    ),
    "detectable_format:number_bullet_lists": (
        lambda k: f"Does the response have exactly {_plural(k['num_bullets'], 'bullet point')}?",
        lambda k: k["num_bullets"] * _BULLET,
    ),
    "detectable_format:number_highlighted_sections": (
        lambda k: (
            f"Does the response highlight at least {_plural(k['num_highlights'], 'part')} between asterisks, "
            "like *this*?"
        ),
        lambda k: k["num_highlights"] * _HIGHLIGHT,
    ),
    "detectable_format:title": (
        lambda k: "Does the response have a title in double angular brackets, such as <<title>>?",
        lambda k: _SENTENCE,
    ),
    "keywords:existence": (
        lambda k: f"Does the response include all of these words: {_quoted(k['keywords'])}?",
        lambda k: len(k["keywords"]),
    ),
    "keywords:forbidden_words": (
        lambda k: f"Does the response avoid all of these words: {_quoted(k['forbidden_words'])}?",
        lambda k: 1,
    ),
    "keywords:frequency": (
        lambda k: f"Does the word '{k['keyword']}' appear {_counted(k['relation'], k['frequency'], 'time')}?",
        lambda k: _least(k["relation"], k["frequency"]),
    ),
    "keywords:letter_frequency": (
        lambda k: f"Does the letter '{k['letter']}' appear {_counted(k['let_relation'], k['let_frequency'], 'time')}?",
        lambda k: _least(k["let_relation"], k["let_frequency"]),
    ),
    "length_constraints:nth_paragraph_first_word": (
        lambda k: (
            f"Does the response have {_plural(k['num_paragraphs'], 'paragraph')}, and does paragraph "
            f"{k['nth_paragraph']} start with the word '{k['first_word']}'?"
        ),
        lambda k: k["num_paragraphs"] * _PARAGRAPH,
    ),
    "length_constraints:number_paragraphs": (
        lambda k: f"Does the response have exactly {_plural(k['num_paragraphs'], 'paragraph')}, separated by ***?",
        lambda k: k["num_paragraphs"] * _PARAGRAPH,
    ),
    "length_constraints:number_sentences": (
        lambda k: f"Does the response have {_counted(k['relation'], k['num_sentences'], 'sentence')}?",
        lambda k: _least(k["relation"], k["num_sentences"], _SENTENCE),
    ),
    "length_constraints:number_words": (
        lambda k: f"Does the response have {_counted(k['relation'], k['num_words'], 'word')}?",
        lambda k: _least(k["relation"], k["num_words"]),
    ),
    "punctuation:no_comma": (lambda k: "Is the response written without any commas?", lambda k: 1),
    "startend:end_checker": (
        lambda k: f"Does the response end with exactly these words: '{k['end_phrase']}'?",
        lambda k: len(k["end_phrase"].split()) + _SENTENCE,
    ),
    "startend:quotation": (
        lambda k: "Is the whole response wrapped in double quotation marks?",
        lambda k: _SENTENCE,
    ),
}
"""IFEval's name of a kind of instruction to its question and the words that a response needs. Kinds that are missing
here are not used."""


@dataclass(frozen=True)
class Instructed:
    """A prompt of IFEval with its checklist. The category of an item is the kind of its instruction."""

    key: int
    prompt: str
    checklist: Checklist

    @property
    def request(self) -> str:
        """The prompt as the policy gets it, and as the judge sees it."""
        return f"{self.prompt}\n\n{LIMIT}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """The request as chat messages."""
        return [{"role": "user", "content": self.request}]

    def verdicts(self, response: str) -> list[bool]:
        """IFEval's strict verdict on each instruction.

        Raises:
            CheckError: If a check fails.
        """
        return [parse_check(item.check or "", self.prompt).holds(response) for item in self.checklist.items]

    def gold(self, response: str) -> float:
        """Fraction of the instructions that a response follows, in [0, 1]."""
        return fmean(self.verdicts(response))


def words_needed(instruction: str, kwargs: Arguments) -> int | None:
    """About how many words a response needs at least to follow an instruction; None if it is not used at all."""
    if instruction not in _KINDS:
        return None
    if instruction == "keywords:letter_frequency" and not kwargs["letter"].isalpha():
        return None
    return _KINDS[instruction][1](kwargs)


def kept(row: Mapping[str, Any]) -> bool:
    """Whether a row of IFEval is used; the rule is in the docstring of the module.

    Instructions may share their words, so the words of a prompt are those of its most demanding instruction.
    """
    names, arguments = row["instruction_id_list"], row["kwargs"]
    needed = [words_needed(name, kwargs) for name, kwargs in zip(names, arguments, strict=True)]
    return len(names) >= LEAST and all(count is not None and count <= WORDS for count in needed)


def item_of(instruction: str, kwargs: Arguments) -> ChecklistItem:
    """The checklist item of an instruction."""
    check = check_of_instruction(instruction, kwargs).model_dump(exclude_none=True)
    # IFEval's verdict on an empty response is no; see `checks.ifeval.follows`.
    strict = {"type": "all", "checks": [{"type": "regex", "pattern": r"(?s)\S.*", "exactly": 1}, check]}
    return ChecklistItem(question=_KINDS[instruction][0](kwargs), category=instruction, check=strict)


def prompts(data: str | Path = DATA) -> tuple[list[Instructed], list[Instructed]]:
    """The prompts for training, and the held-out ones.

    Raises:
        SampleError: If the file `ifeval/input_data.jsonl` or langdetect is missing.
    """
    if missing("langdetect"):
        raise SampleError(f"the checks of IFEval's letter cases require langdetect: {install('checks')}.")
    rows = [row for row in json_lines(data_file("ifeval/input_data.jsonl", data)) if kept(row)]
    found = [
        Instructed(
            row["key"],
            row["prompt"],
            Checklist(items=tuple(map(item_of, row["instruction_id_list"], row["kwargs"])), source="ifeval"),
        )
        for row in rows
    ]
    return found[::2], found[1::2]


def dataset_of(some: Sequence[Instructed]) -> Dataset:
    """The columns `prompt` and `checklist` for a trainer."""
    rows = [{"prompt": one.messages, **checklist_columns(one.checklist)} for one in some]
    return Dataset.from_list(rows, features=checklist_features("messages"))
