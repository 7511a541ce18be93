"""Training rows of the fourth skill: revise a response from feedback, and write a critique.

A response breaks some constraints. `revise` makes the shortest edit: it fixes what was found wrong, keeps what was
right, and does not change what the feedback does not mention. The feedback is either the verdicts of a checklist, as
rendered by `self_refine.py`, or a critique in plain sentences. Both are generated from code truth, in equal numbers,
and ask for the same edits, so the two kinds of refinement differ only in the feedback and in its source.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from pocket.data import VIOLATE, Encoder, Row, spoil
from pocket.tokenizer import ASSISTANT, END, USER
from pocket.world import ADJECTIVES, EVERYDAY_WORDS, Constraint, Task, sample_task, words_in, write_response

from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem
from checklist_rewards.prompts import load_prompt
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.self_refine import feedback_of

PROMPTS = ("refine/from_checklist", "refine/from_critique", "refine/critique")
NOTHING = "Nothing is wrong."
CRITIQUES = {
    "mention": 'The word "{v}" is missing.',
    "avoid": 'The word "{v}" should not be there.',
    "first": 'It should begin with the word "{v}".',
    "sentences": "It should have {v} sentences.",
    "question": "It should end with a question mark.",
    "exclaim": "It should end with an exclamation mark.",
    "lowercase": "It should be in lower case only.",
    "digits": "A digit is missing.",
    "no_digits": "There should be no digits.",
    "bullets": "It should use bullet points.",
}
"""The sentence of a critique about a constraint that is not met."""
PHRASES = (NOTHING, "Wrong: Right: but it should be yes no", *CRITIQUES.values())
"""Texts with all words of the feedback, for the tokenizer."""
OMITTED, FALSE_ALARM = 0.1, 0.03
"""Probability that the feedback omits one constraint, and that it reports a constraint that is met as broken."""
_SENTENCE = re.compile(r"([^.?!]+)([.?!]+)")


def critique(task: Task, text: str) -> str:
    """A critique of `text`: one sentence per broken constraint, in the order of the instruction."""
    return _critique([c for c in task.constraints if not c.holds(text)])


def _critique(wrong: Sequence[Constraint]) -> str:
    return " ".join(CRITIQUES[c.family].replace("{v}", str(c.value)) for c in wrong) or NOTHING


def verdict_feedback(constraints: Sequence[Constraint], wrong: Sequence[Constraint]) -> str:
    """Feedback on a checklist of the canonical questions, as rendered by `self_refine.py`."""
    checklist = Checklist(items=tuple(ChecklistItem(question=c.question()) for c in constraints))
    verdicts = [Verdict(answer=NO if c in wrong else YES) for c in constraints]
    return feedback_of(checklist, score_checklist(checklist, verdicts))


def revise(rng: random.Random, text: str, demanded: Sequence[Constraint]) -> str | None:
    """`text` with the shortest edits that make it meet all of `demanded`; None if these edits are not enough."""
    wanted = {c.family: c for c in demanded}
    banned = dict.fromkeys(str(c.value) for c in demanded if c.family == "avoid")  # a set has no fixed order
    small = text == text.lower() or "lowercase" in wanted
    bullets = "bullets" in wanted or re.search(r"^- ", text, re.MULTILINE) is not None
    bodies, marks = _sentences(text)
    filler = [w for w in EVERYDAY_WORDS if w not in banned]
    if "no_digits" in wanted:
        bodies = [re.sub(r"[0-9]+ ?", "", body).strip() for body in bodies]
    for word in banned:
        bodies = [_replaced(body, word, rng.choice(filler)) for body in bodies]
    if "sentences" in wanted and len(bodies) > (count := int(wanted["sentences"].value or 1)):
        bodies, marks = bodies[:count], [*marks[: count - 1], marks[-1]]
    missing = [str(c.value) for c in demanded if c.family == "mention"]
    missing = [w for w in missing if w not in words_in(" ".join(bodies))]
    while "sentences" in wanted and len(bodies) < int(wanted["sentences"].value or 1):
        word = missing.pop(0) if missing else rng.choice(filler)
        bodies.append(f"{'the' if small else 'The'} {word} is {rng.choice(ADJECTIVES)}")
        marks.insert(-1, ".")
    bodies[-1] += "".join(f" and the {word}" for word in missing)
    if "digits" in wanted and not re.search(r"[0-9]", " ".join(bodies)):
        bodies[-1] += f" with {rng.randint(2, 9)}"
    if "first" in wanted and not wanted["first"].holds(bodies[0]):
        word = str(wanted["first"].value)
        bodies[0] = f"{word if small else word.capitalize()} {bodies[0][:1].lower()}{bodies[0][1:]}"
    for family, mark in (("question", "?"), ("exclaim", "!")):
        if family in wanted and not marks[-1].endswith(mark):
            marks[-1] = mark
    parts = [body + mark for body, mark in zip(bodies, marks, strict=True)]
    revised = "\n".join(f"- {part}" for part in parts) if bullets else " ".join(parts)
    revised = revised.lower() if "lowercase" in wanted else revised
    return revised if all(c.holds(revised) for c in demanded) else None


def _sentences(text: str) -> tuple[list[str], list[str]]:
    """Sentences without bullets, and their end marks. A last part without an end mark is dropped, unless it is all."""
    sentences = [(body.strip().removeprefix("- "), mark) for body, mark in _SENTENCE.findall(text)]
    rest = text.strip().removeprefix("- ").rstrip(".?! ") or "The text is short"
    sentences = [pair for pair in sentences if pair[0]] or [(rest, ".")]
    return [body for body, _ in sentences], [mark for _, mark in sentences]


def _replaced(text: str, word: str, other: str) -> str:
    text = re.sub(rf"\b{word}\b", other, text)
    return re.sub(rf"\b{word.capitalize()}\b", other.capitalize(), text)


def sample_repair(
    rng: random.Random, own: list[tuple[Task, str]], *, flawless: float
) -> tuple[Task, str, list[Constraint], list[Constraint], str]:
    """A task, a response, the constraints in the feedback, those reported as broken, and the revised response.

    `own` has samples of the policy, used for a third of the responses. A response without anything wrong is kept with
    probability `flawless`.
    """
    while True:
        if own and rng.random() < 0.35:
            task, text = rng.choice(own)
        else:
            task = sample_task(rng, split="train")
            text = write_response(rng, task, rng.choice((0.2, VIOLATE, 0.6)))
        if rng.random() < 0.2:  # a response that was revised before, so that one error is left
            broken = [c for c in task.constraints if not c.holds(text)]
            text = revise(rng, text, broken[1:]) or text
        if rng.random() < 0.1:
            text = spoil(rng, text)
        mentioned = list(task.constraints)
        if len(mentioned) > 2 and rng.random() < OMITTED:
            mentioned.remove(rng.choice(mentioned))
        right = [c for c in mentioned if c.holds(text) and rng.random() >= FALSE_ALARM]
        wrong = [c for c in mentioned if c not in right]
        revised = revise(rng, text, [*wrong, *right])
        if revised is not None and (wrong or rng.random() < flawless):
            return task, text, mentioned, wrong, revised


def echo_row(encoder: Encoder, rng: random.Random) -> Row:
    """A response three times, of which the second and third are predicted. Teaches copying of running text."""
    text = encoder.ids(write_response(rng, sample_task(rng, split="train"), VIOLATE) + "\n\n")
    return encoder.causal([USER, *text], [*text, *text])


def brief_row(encoder: Encoder, rng: random.Random) -> Row:
    """Revision without the prompt: a response, feedback of either kind, the revised response."""
    _, text, mentioned, wrong, revised = sample_repair(rng, [], flawless=0.5)
    feedback = verdict_feedback(mentioned, wrong) if wrong and rng.random() < 0.4 else _critique(wrong)
    return encoder.causal([USER, *encoder.ids(f"{text}\n\n{feedback}"), ASSISTANT], [*encoder.ids(revised), END])


class RepairWriter:
    """Writes rows under the three prompts of `prompts/refine/`."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.prompts = {name: load_prompt(name, "stage") for name in PROMPTS}

    def chat(self, name: str, task: Task, text: str, feedback: str | None = None) -> tuple[str | None, str]:
        """System and user message, as rendered by `self_refine.py`."""
        prompt = self.prompts[name]
        return prompt.system, prompt.render(
            instruction=task.instruction, history=None, response=text, feedback=feedback
        )

    def from_checklist(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """Verdicts, answered with a revised response."""
        task, text, mentioned, wrong, revised = sample_repair(rng, own, flawless=0.0)
        return self.encoder.written(
            *self.chat("refine/from_checklist", task, text, verdict_feedback(mentioned, wrong)), revised
        )

    def from_critique(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """A critique, answered with a revised response."""
        task, text, _, wrong, revised = sample_repair(rng, own, flawless=0.5)
        return self.encoder.written(*self.chat("refine/from_critique", task, text, _critique(wrong)), revised)

    def critique(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """A response, answered with its critique."""
        task, text, *_ = sample_repair(rng, own, flawless=0.5)
        return self.encoder.written(*self.chat("refine/critique", task, text), critique(task, text))
