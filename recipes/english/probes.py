"""Where does a judge of English fail? Small sets of texts and questions, each about one ability.

    python recipes/english/probes.py MODEL [--adapter FOLDER]

Every probe has as many right answers yes as no: pairs of texts that differ only in the detail that is asked about.
Word overlap answers *fact* and *fact in a long text*, *negated question* the wrong way round, and none of the others.
A judge that cannot do what a probe needs has an AUC near 0.5. Prints a table, and writes `--json`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import judge_of, probabilities_of_yes, run_main, save_json
from rich.console import Console
from rich.table import Table

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.evaluation.measures import Numbers
from checklist_rewards.judges import Ask, Judge

SIZE = 24
"""Pairs of a text that fits and one that does not, per probe."""
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo")
THINGS = ("book", "key", "letter", "lamp", "coat", "ticket", "basket", "clock", "bottle", "map", "phone", "ring")
PLACES = ("kitchen", "garden", "library", "station", "office", "harbor", "market", "museum")
CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Canada": "Ottawa",
    "Norway": "Oslo",
    "Greece": "Athens",
}
SYNONYMS = (
    ("bought", "purchased", "sold"),
    ("began", "started", "ended"),
    ("is large", "is big", "is tiny"),
    ("was angry", "was furious", "was delighted"),
    ("left", "went away from", "arrived at"),
    ("is quick", "is fast", "is slow"),
)
FILLER = (
    "The weather was mild that day.",
    "Some people were waiting outside.",
    "A radio was playing in the next room.",
    "The trains were on time.",
    "There was coffee on the table.",
    "The street was quiet.",
)


class Probe(NamedTuple):
    """One question about a text, and whether yes is right."""

    target: str
    question: str
    yes: bool


def fact(rng: random.Random) -> Iterator[Probe]:
    """Is a simple fact stated?"""
    (name, other), thing, place = rng.sample(NAMES, 2), rng.choice(THINGS), rng.choice(PLACES)
    question = f"Does the text say that {name} left the {thing} in the {place}?"
    yield Probe(f"{name} left the {thing} in the {place}.", question, True)
    yield Probe(f"{other} left the {thing} in the {place}.", question, False)


def paraphrase(rng: random.Random) -> Iterator[Probe]:
    """The fact in other words, or its opposite."""
    said, same, opposite = rng.choice(SYNONYMS)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    subject = f"The {thing}" if said.startswith("is ") else name
    tail = "." if said.startswith(("is ", "was ")) else f" the {thing}."
    question = f"Does the text mean the same as '{subject} {said}{tail}'?"
    yield Probe(f"{subject} {same}{tail}", question, True)
    yield Probe(f"{subject} {opposite}{tail}", question, False)


def negation(rng: random.Random) -> Iterator[Probe]:
    """Does 'not' in the text change the answer?"""
    name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
    question = f"According to the text, is the {thing} in the {place}?"
    yield Probe(f"{name} says that the {thing} is in the {place}.", question, True)
    yield Probe(f"{name} says that the {thing} is not in the {place}.", question, False)


def negated_question(rng: random.Random) -> Iterator[Probe]:
    """Does 'not' in the question change the answer?"""
    thing, place, elsewhere = rng.choice(THINGS), *rng.sample(PLACES, 2)
    question = f"Is it true that the text does not mention the {place}?"
    yield Probe(f"The {thing} is in the {elsewhere}.", question, True)
    yield Probe(f"The {thing} is in the {place}.", question, False)


def roles(rng: random.Random) -> Iterator[Probe]:
    """Who did it to whom?"""
    (giver, taker), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    question = f"Did {giver} give the {thing} to {taker}?"
    yield Probe(f"{giver} gave the {thing} to {taker}.", question, True)
    yield Probe(f"{taker} gave the {thing} to {giver}.", question, False)


def arithmetic(rng: random.Random) -> Iterator[Probe]:
    """Is a sum right?"""
    one, other = rng.randint(2, 20), rng.randint(2, 20)
    question = "Is the calculation in the text correct?"
    yield Probe(f"{one} + {other} = {one + other}", question, True)
    yield Probe(f"{one} + {other} = {one + other + rng.choice((-3, -2, 2, 3))}", question, False)


def counting(rng: random.Random) -> Iterator[Probe]:
    """How many items does a list have?"""
    count = rng.randint(2, 6)
    other = rng.choice([n for n in range(2, 8) if n != count])
    question = f"Does the list have exactly {count} items?"
    for length in (count, other):
        yield Probe("\n".join(f"- {thing}" for thing in rng.sample(THINGS, length)), question, length == count)


def knowledge(rng: random.Random) -> Iterator[Probe]:
    """Is the answer right, without a key?"""
    country = rng.choice(list(CAPITALS))
    wrong = rng.choice([capital for name, capital in CAPITALS.items() if name != country])
    question = f"Is this the right answer to the question 'What is the capital of {country}?'?"
    yield Probe(f"The capital is {CAPITALS[country]}.", question, True)
    yield Probe(f"The capital is {wrong}.", question, False)


def form(rng: random.Random) -> Iterator[Probe]:
    """Lower case or not."""
    text = f"{rng.choice(NAMES)} found the {rng.choice(THINGS)} in the {rng.choice(PLACES)}."
    question = "Is the text written in lower case only?"
    yield Probe(text.lower(), question, True)
    yield Probe(text.upper(), question, False)


def long_text(rng: random.Random) -> Iterator[Probe]:
    """A fact among 40 sentences."""
    for probe in fact(rng):
        sentences = [rng.choice(FILLER) for _ in range(39)]
        sentences.insert(rng.randint(0, 39), probe.target)
        yield probe._replace(target=" ".join(sentences))


PROBES: dict[str, Callable[[random.Random], Iterator[Probe]]] = {
    "fact": fact,
    "paraphrase": paraphrase,
    "negation": negation,
    "negated question": negated_question,
    "roles": roles,
    "arithmetic": arithmetic,
    "counting": counting,
    "world knowledge": knowledge,
    "form": form,
    "fact in a long text": long_text,
}


def probes(name: str, seed: int = 0) -> list[Probe]:
    """The texts and questions of a probe, in pairs of yes and no."""
    rng = random.Random(f"{seed}/{name}")
    return [probe for _ in range(SIZE) for probe in PROBES[name](rng)]


def measure(judge: Judge, seed: int = 0) -> dict[str, dict[str, Figure]]:
    """AUC, accuracy at 0.5, and the share of pairs in which the right text has the higher P(yes), by probe."""
    found = {}
    bootstrap = Bootstrap()
    for name in PROBES:
        some = probes(name, seed)
        reads = [Ask(ChecklistItem(question=probe.question), probe.target) for probe in some]
        yes = probabilities_of_yes(judge, reads)
        pairs = [some[number - number % 2].target for number in range(len(some))]  # equal pairs are one group
        won = [float(a > b) + 0.5 * (a == b) for a, b in zip(yes[::2], yes[1::2], strict=True)]
        right = [(p >= 0.5) == probe.yes for p, probe in zip(yes, some, strict=True)]
        found[name] = {
            "auc": bootstrap.figures(Numbers(yes, [float(probe.yes) for probe in some], only=["auc"]), pairs)["auc"],
            "accuracy": bootstrap.mean(right, pairs),
            "pairs": bootstrap.mean(won, pairs[::2]),
        }
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Probe one judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a packaged model, an encoder judge, a folder or a Hub id")
    parser.add_argument("--adapter", help="folder of a LoRA adapter")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    found = measure(judge_of(args.model, args.adapter))
    table = Table("probe", "AUC", "accuracy", "pairs right", title=f"{args.model}: {2 * SIZE} reads per probe")
    for name, line in found.items():
        table.add_row(name, *(figure.shown(2) for figure in line.values()))
    Console(width=120).print(table)
    summary = {name: {key: figure.model_dump() for key, figure in line.items()} for name, line in found.items()}
    if args.json is not None:
        save_json(args.json, summary)
    return summary


if __name__ == "__main__":
    run_main(main)
