"""Training rows for the fourth skill: mend a response from feedback, and write that feedback as a plain critique.

A response breaks some constraints. `mend` edits it the shortest way: what was found wrong is put right, what was found
right stays, and what nobody spoke of is left as it is. The feedback is either the verdicts of a checklist, as
`self_refine.py` puts them into words, or a critique in plain sentences. Both are made from the code truth of the
world, come in equal numbers, and ask for the same edits: the two ways of refining differ in nothing but the feedback
and in how the model came by it.
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
"""What a critique says of a constraint that is not met."""
PHRASES = (NOTHING, "Wrong: Right: but it should be yes no", *CRITIQUES.values())
"""Words of the feedback, for the tokenizer."""
UNSPOKEN, MISTOLD = 0.1, 0.03
"""How often feedback leaves one constraint out, and how often it calls one wrong that is right."""
_SENTENCE = re.compile(r"([^.?!]+)([.?!]+)")


def critique(task: Task, text: str) -> str:
    """What is wrong with `text`, a sentence for each constraint it breaks, in the instruction's order."""
    return _critique([c for c in task.constraints if not c.holds(text)])


def _critique(wrong: Sequence[Constraint]) -> str:
    return " ".join(CRITIQUES[c.family].replace("{v}", str(c.value)) for c in wrong) or NOTHING


def told(constraints: Sequence[Constraint], wrong: Sequence[Constraint]) -> str:
    """Feedback as `self_refine.py` words it, of a checklist of the canonical questions."""
    checklist = Checklist(items=tuple(ChecklistItem(question=c.question()) for c in constraints))
    verdicts = [Verdict(answer=NO if c in wrong else YES) for c in constraints]
    return feedback_of(checklist, score_checklist(checklist, verdicts))


def mend(rng: random.Random, text: str, demanded: Sequence[Constraint]) -> str | None:
    """`text`, edited the shortest way so that it meets all of `demanded`; None if these edits do not get there."""
    wanted = {c.family: c for c in demanded}
    banned = {str(c.value) for c in demanded if c.family == "avoid"}
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
    mended = "\n".join(f"- {part}" for part in parts) if bullets else " ".join(parts)
    mended = mended.lower() if "lowercase" in wanted else mended
    return mended if all(c.holds(mended) for c in demanded) else None


def _sentences(text: str) -> tuple[list[str], list[str]]:
    """Sentences without bullets, and their end marks; a rest without an end mark is dropped, if it is not all."""
    found = [(body.strip().removeprefix("- "), mark) for body, mark in _SENTENCE.findall(text)]
    rest = text.strip().removeprefix("- ").rstrip(".?! ") or "The text is short"
    found = [pair for pair in found if pair[0]] or [(rest, ".")]
    return [body for body, _ in found], [mark for _, mark in found]


def _replaced(text: str, word: str, other: str) -> str:
    text = re.sub(rf"\b{word}\b", other, text)
    return re.sub(rf"\b{word.capitalize()}\b", other.capitalize(), text)


def sample_repair(
    rng: random.Random, own: list[tuple[Task, str]], *, flawless: float
) -> tuple[Task, str, list[Constraint], list[Constraint], str]:
    """A task, a response, the constraints spoken of, those called wrong, and the mended response.

    `own` are the policy's samples, a third of the responses; a share `flawless` may have nothing wrong.
    """
    while True:
        if own and rng.random() < 0.35:
            task, text = rng.choice(own)
        else:
            task = sample_task(rng, split="train")
            text = write_response(rng, task, rng.choice((0.2, VIOLATE, 0.6)))
        if rng.random() < 0.2:  # a response that was mended before, so that one thing is left to do
            broken = [c for c in task.constraints if not c.holds(text)]
            text = mend(rng, text, broken[1:]) or text
        if rng.random() < 0.1:
            text = spoil(rng, text)
        spoken = list(task.constraints)
        if len(spoken) > 2 and rng.random() < UNSPOKEN:
            spoken.remove(rng.choice(spoken))
        right = [c for c in spoken if c.holds(text) and rng.random() >= MISTOLD]
        wrong = [c for c in spoken if c not in right]
        mended = mend(rng, text, [*wrong, *right])
        if mended is not None and (wrong or rng.random() < flawless):
            return task, text, spoken, wrong, mended


def echo_row(encoder: Encoder, rng: random.Random) -> Row:
    """A response three times, the second and third predicted: where copying running text is learned cheaply."""
    text = encoder.ids(write_response(rng, sample_task(rng, split="train"), VIOLATE) + "\n\n")
    return encoder.causal([USER, *text], [*text, *text])


def brief_row(encoder: Encoder, rng: random.Random) -> Row:
    """Mending without the prompt around it: a response, feedback of either kind, the mended response."""
    _, text, spoken, wrong, mended = sample_repair(rng, [], flawless=0.5)
    feedback = told(spoken, wrong) if wrong and rng.random() < 0.4 else _critique(wrong)
    return encoder.causal([USER, *encoder.ids(f"{text}\n\n{feedback}"), ASSISTANT], [*encoder.ids(mended), END])


class RepairWriter:
    """Rows under the three prompts of `prompts/refine/`."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.prompts = {name: load_prompt(name, "stage") for name in PROMPTS}

    def chat(self, name: str, task: Task, text: str, feedback: str | None = None) -> tuple[str | None, str]:
        """System and user message, as `self_refine.py` renders them."""
        prompt = self.prompts[name]
        return prompt.system, prompt.render(
            instruction=task.instruction, history=None, response=text, feedback=feedback
        )

    def from_checklist(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """Verdicts in, a mended response out."""
        task, text, spoken, wrong, mended = sample_repair(rng, own, flawless=0.0)
        return self.encoder.written(*self.chat("refine/from_checklist", task, text, told(spoken, wrong)), mended)

    def from_critique(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """A critique in, a mended response out."""
        task, text, _, wrong, mended = sample_repair(rng, own, flawless=0.5)
        return self.encoder.written(*self.chat("refine/from_critique", task, text, _critique(wrong)), mended)

    def critique(self, rng: random.Random, own: list[tuple[Task, str]]) -> Row:
        """A response in, what is wrong with it out."""
        task, text, *_ = sample_repair(rng, own, flawless=0.5)
        return self.encoder.written(*self.chat("refine/critique", task, text), critique(task, text))
