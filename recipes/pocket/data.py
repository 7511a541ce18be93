"""Training rows of the first three skills, as token ids. This module does not import torch.

A `Row` is a packed sequence: a prefix (segment 0) and, for judge rows, one tail per question (segments 1, 2, …). A
tail attends to the prefix and to itself, and its positions continue after the prefix, as when the package reads a
checklist.
`answers` has the token that the model must predict at each trained position.

The curriculum starts with bare word lists, which teach the model to match a word of the question with the target.
Then come the real prompts with a few words, and finally whole responses, well-formed and malformed.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

RECIPES = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(RECIPES), str(RECIPES.parent)]

from pocket.tokenizer import ASSISTANT, END, SYSTEM, USER
from pocket.world import (
    FAMILIES,
    SYLLABLES,
    TRAIN_WORDS,
    WORD_FAMILIES,
    Constraint,
    Split,
    Task,
    count_sentences,
    sample_plan,
    sample_task,
    words_in,
    words_of,
    write_response,
    write_text,
)
from transformers import PreTrainedTokenizerFast

from checklist_rewards.prompts import load_prompt

VIOLATE = 0.38
"""Probability that a demonstration of the follow skill breaks a constraint, so that the policy can still improve."""


@dataclass
class Row:
    """One packed sequence. The four lists have equal length; `answers` is -100 where no token is predicted."""

    tokens: list[int]
    segments: list[int]
    positions: list[int]
    answers: list[int]


class Encoder:
    """Encodes texts, and builds rows under the prompts of the judge and the checklist writer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._core = tokenizer.backend_tokenizer
        self.judge = load_prompt("judges/item", "judge")
        self.checklist = load_prompt("generators/tick", "generator")
        self.yes, self.no = (tokenizer.convert_tokens_to_ids(label) for label in ("yes", "no"))
        self.ids = lru_cache(maxsize=20_000)(self._ids)

    def _ids(self, text: str) -> list[int]:
        return self._core.encode(text, add_special_tokens=False).ids

    def chat(self, system: str | None, user: str) -> list[int]:
        """Ids of a system and a user turn, without the start of the assistant's turn."""
        return self._ids((f"<|system|>{system}" if system else "") + f"<|user|>{user}")

    def tree(self, prefix: list[int], tails: list[tuple[list[int], bool]], *, ends: bool = False) -> Row:
        """Pack questions about one prefix. Each tail ends where the one-token answer of the assistant is read.

        With `ends`, the last tail includes its answer, and the end of the turn is predicted after it.
        """
        row = Row(list(prefix), [0] * len(prefix), list(range(len(prefix))), [-100] * len(prefix))
        for number, (tail, truth) in enumerate(tails, start=1):
            n = len(tail) + 1
            row.tokens += [*tail, ASSISTANT]
            row.segments += [number] * n
            row.positions += range(len(prefix), len(prefix) + n)
            row.answers += [*[-100] * (n - 1), self.yes if truth else self.no]
        if ends:
            row.tokens.append(row.answers[-1])
            row.segments.append(row.segments[-1])
            row.positions.append(row.positions[-1] + 1)
            row.answers.append(END)
        return row

    def causal(self, prompt: list[int], output: list[int]) -> Row:
        """A prompt and the tokens to predict after it."""
        tokens = prompt + output
        answers = [*[-100] * (len(prompt) - 1), *output, -100]
        return Row(tokens, [0] * len(tokens), list(range(len(tokens))), answers)

    def written(self, system: str | None, user: str, reply: str) -> Row:
        """A chat turn, answered with `reply` and the end token."""
        return self.causal([*self.chat(system, user), ASSISTANT], [*self._ids(reply), END])

    def judged(
        self, target: str, instruction: str | None, questions: list[tuple[str, bool]], *, ends: bool = False
    ) -> Row:
        """Questions about one target with their correct answers, under the judge's prompt."""
        prefix = self.chat(self.judge.system, self.judge.prefix(input=instruction, target=target))
        return self.tree(prefix, [(self.ids(self.judge.tail(q)), truth) for q, truth in questions], ends=ends)


def bare_row(encoder: Encoder, rng: random.Random, longest: int, near: float) -> Row:
    """A list `w1 … wn.` and bare questions `wi`: is the word in the list?

    A fraction `near` of the absent words has a syllable of a present word. The others have none, so that the model can
    first learn to match single syllables.
    """
    words = rng.sample(TRAIN_WORDS, rng.randint(2, longest))
    tails = []
    for _ in range(12):
        word = rng.choice(words) if rng.random() < 0.5 else _absent_word(rng, words, near=near)
        tails.append((encoder.ids(f' word "{word}"' if rng.random() < 0.5 else f" {word}"), word in words))
    return encoder.tree([USER, *(i for w in words for i in encoder.ids(" " + w)), *encoder.ids(".")], tails)


def copy_row(encoder: Encoder, rng: random.Random, longest: int) -> Row:
    """A few repeated words, of which all but the first two rounds are predicted. Up to `longest` words per round."""
    period = rng.randint(1, longest)
    words = rng.sample(TRAIN_WORDS, period)
    listed = [i for n in range(max(16, 2 * period)) for i in encoder.ids(" " + words[n % period])]
    return encoder.causal(listed[: 2 * period], listed[2 * period :])


@lru_cache(maxsize=2)
def known_words(split: Split) -> frozenset[str]:
    """The content words of a split, as a set."""
    return frozenset(words_of(split))


def _absent_word(rng: random.Random, present: list[str], split: Split = "train", near: float = 0.25) -> str:
    known = known_words(split)
    alike = bool(present) and rng.random() < near
    stems, endings = {w[:3] for w in present}, {w[3:] for w in present}
    for _ in range(20):
        word = rng.choice(words_of(split))
        like, other = (rng.choice(present), rng.choice(present)) if alike else (word, word)
        if alike and len(like) == len(other) == 5:
            word = rng.choice((like[:3] + word[3:], word[:3] + like[3:], like[:3] + other[3:]))
        if word in known and word not in present and (alike or not (word[:3] in stems or word[3:] in endings)):
            return word
    return rng.choice([w for w in rng.sample(words_of(split), 50) if w not in present])


def ask(
    rng: random.Random, target: str, families: list[str], hints: list[str], split: Split
) -> list[tuple[str, bool]]:
    """One question about `target` per given family; about half of the answers are yes, as far as the text allows.

    `hints` are words of the instruction. Questions about them are more frequent, so that the model does not confuse a
    word of the instruction with a word of the response.
    """
    questions = []
    for family in families:
        constraint = _constraint_about(rng, target, family, hints, split)
        wording = rng.choice(constraint.questions()) if rng.random() < 0.3 else constraint.question()
        questions.append((wording, constraint.holds(target)))
    return questions


def questions_about(rng: random.Random, task: Task, target: str) -> list[tuple[str, bool]]:
    """Questions about the constraints of a held-out task, then one about each family of constraints."""
    hints = [str(c.value) for c in task.constraints if c.family in WORD_FAMILIES]
    of_task = [(c.question(), c.holds(target)) for c in task.constraints]
    return of_task + ask(rng, target, list(FAMILIES), hints, "test")


def _constraint_about(rng: random.Random, target: str, family: str, hints: list[str], split: Split) -> Constraint:
    known = known_words(split)
    words = words_in(target)
    present = [w for w in words if w in known]
    if family == "sentences":
        n = count_sentences(target)
        near = [m for m in (n - 1, n + 1, rng.randint(1, 4)) if 1 <= m <= 4 and m != n] or [1]
        return Constraint(family, n if rng.random() < 0.45 and 1 <= n <= 4 else rng.choice(near))
    if family not in WORD_FAMILIES:
        return Constraint(family)
    if hints and rng.random() < 0.35:
        return Constraint(family, rng.choice(hints))
    if family == "first":
        if words and words[0] in known and rng.random() < 0.7:
            return Constraint(family, words[0])
        return Constraint(
            family, rng.choice(present) if present and rng.random() < 0.6 else _absent_word(rng, words, split)
        )
    return Constraint(
        family, rng.choice(present) if present and rng.random() < 0.5 else _absent_word(rng, words, split)
    )


def sample_families(rng: random.Random, count: int) -> list[str]:
    """Random families for questions. Words and counts are more frequent."""
    pool = [*FAMILIES, *WORD_FAMILIES, "avoid", "first", "first", *["sentences"] * 4]
    return [rng.choice(pool) for _ in range(count)]


def few_words(rng: random.Random) -> str:
    """A target of one to six bare words, between word lists and sentences in difficulty."""
    text = " ".join(rng.sample(TRAIN_WORDS, rng.randint(1, 6)))
    return text if rng.random() < 0.5 else text[:1].upper() + text[1:]


def free_text(rng: random.Random, max_sentences: int, split: Split) -> str:
    """A random text. Each yes/no property is on in about half of the texts; most start with a content word."""
    plan = sample_plan(rng, max_sentences)
    first = rng.choice(words_of(split)) if rng.random() < 0.7 else None
    return write_text(rng, replace(plan, first=first), words_of(split))


def spoil(rng: random.Random, text: str) -> str:
    """A malformed version, as a small policy writes during training: truncated, repeated, unfinished, misspelt."""
    words = text.split(" ")
    spot = rng.randrange(len(words))
    match rng.randrange(9):
        case 0:
            return text.rstrip(".?!")
        case 1:
            return text[: rng.randrange(len(text) + 1)]
        case 2:
            return " ".join([*words[:spot], *[words[spot]] * rng.randint(2, 4), *words[spot + 1 :]])
        case 3:
            return " ".join(words[:spot] + words[spot + 1 :])
        case 4:
            return " ".join([*words[:spot], words[spot] + rng.choice(SYLLABLES), *words[spot + 1 :]])
        case 5:
            return " ".join([*words[:spot], rng.choice(SYLLABLES), *words[spot:]])
        case 6:
            return text + rng.choice((" ", "\n", "\n- ", "- ", " ", " and", " 7", ".", "!", "?"))
        case 7:
            return text + rng.choice((" ", "\n")) + text
        case _:
            rng.shuffle(words)
            return " ".join(words)


def garble(rng: random.Random, text: str, words: list[str]) -> str:
    """`text` with one of `words` replaced by a similar word (correct stem or ending), as a policy misspells."""
    present = [w for w in words if w in words_in(text)]
    if not present:
        return text
    word = rng.choice(present)
    other = rng.choice(TRAIN_WORDS)
    alike = rng.choice((word[:3] + other[3:], other[:3] + word[3:], word[:3]))
    return text.replace(word, alike).replace(word.capitalize(), alike.capitalize())


def judge_row(
    encoder: Encoder,
    rng: random.Random,
    *,
    max_sentences: int,
    questions: int,
    with_input: float,
    own: list[tuple[Task, str]],
) -> Row:
    """A target of any kind with questions. `own` has samples of the policy, used in a third of the rows."""
    task = sample_task(rng, split="train")
    kind = rng.random()
    max_sentences = rng.randint(1, max_sentences) if max_sentences > 1 or rng.random() < 0.8 else 0
    if max_sentences == 0:
        target = few_words(rng)
    elif own and kind < 0.35:
        task, target = rng.choice(own)
    elif kind < 0.6 and max_sentences >= 3:
        target = write_response(rng, task, rng.choice((0.0, 0.2, 0.4, 0.7)))
    else:
        target = free_text(rng, max_sentences, "train")
    if max_sentences >= 2 and rng.random() < 0.2:
        target = spoil(rng, target) if rng.random() < 0.97 else ""
    with_instruction = rng.random() < with_input
    named = [str(c.value) for c in task.constraints if c.family in WORD_FAMILIES]
    if max_sentences >= 2 and rng.random() < 0.25:
        target = garble(rng, target, named)
    hints = named if with_instruction or any(w in words_in(target) for w in named) else []
    families = (
        sample_families(rng, questions) if max_sentences else [rng.choice(WORD_FAMILIES) for _ in range(questions)]
    )
    pairs = ask(rng, target, families, hints, "train")
    if with_instruction:
        pairs = [*((c.question(), c.holds(target)) for c in task.constraints), *pairs][:questions]
    return encoder.judged(target, task.instruction if with_instruction else None, pairs, ends=True)


def bridge_row(encoder: Encoder, rng: random.Random) -> Row:
    """A few words under the judge's prompt, with questions of different length, from a bare word to the whole tail."""
    target = few_words(rng)
    words = words_in(target)
    prefix = encoder.chat(encoder.judge.system, encoder.judge.prefix(target=target))
    tails = []
    for _ in range(16):
        word = rng.choice(words) if rng.random() < 0.5 else _absent_word(rng, words, near=0.1)
        c = Constraint(rng.choice(("mention", "mention", "mention", "avoid")), word)
        forms = (f' word "{word}"', f'The word "{word}"?', c.question(), encoder.judge.tail(c.question()))
        form = rng.choices(range(4), (2, 2, 2, 4))[0]
        tails.append((encoder.ids(forms[form]), c.holds(target) if form > 1 else word in words))
    return encoder.tree(prefix, tails)


def checklist_text(task: Task) -> str:
    """The checklist of a task, as the generator must write it."""
    return "\n".join(f"{i}. {c.question()}" for i, c in enumerate(task.constraints, start=1))


def checklist_row(encoder: Encoder, rng: random.Random) -> Row:
    """An instruction, answered with numbered questions. A quarter of the prompts include a reference answer."""
    task = sample_task(rng, split="train")
    reference = write_response(rng, task) if rng.random() < 0.25 else None
    prompt = encoder.checklist.render(input=task.instruction, reference=reference)
    return encoder.written(encoder.checklist.system, prompt, checklist_text(task))


def short_checklist_row(encoder: Encoder, rng: random.Random) -> Row:
    """The same from a bare instruction without the prompt, which teaches copying of words at low cost."""
    words = rng.sample(TRAIN_WORDS, rng.randint(1, 4))
    constraints = tuple(Constraint(rng.choice(WORD_FAMILIES), w) for w in words)
    instruction = " ".join(c.instruction(rng) for c in constraints)
    reply = checklist_text(Task(instruction, constraints))
    return encoder.causal([SYSTEM, *encoder.ids(instruction), ASSISTANT], [*encoder.ids(reply), END])


def follow_row(encoder: Encoder, rng: random.Random, violate: float) -> Row:
    """An instruction, answered with a response that breaks each constraint with probability `violate`."""
    task = sample_task(rng, split="train")
    return encoder.written(None, task.instruction, write_response(rng, task, violate))
