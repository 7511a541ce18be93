"""The drawn world: coloured shapes on a grid of 3 by 3 cells, questions about them, and descriptions, all with truth.

A drawing is a tuple of nine cells in reading order. A cell is empty (None) or a pair of colour and shape. Code answers
every question, so it measures the judge, and it computes *gold* of a description without the judge.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from zlib import crc32

from PIL import Image, ImageDraw

COLOURS = {"red": (215, 45, 45), "blue": (50, 80, 215), "green": (40, 160, 70), "yellow": (235, 200, 40)}
SHAPES = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses"}
"""Shapes and their plurals."""
COLUMNS = ("left", "middle", "right")
ASKED = "What is drawn?"
CELL, SIDE = 16, 3
PIXELS = CELL * SIDE
Pair = tuple[str, str]
Drawing = tuple[Pair | None, ...]
"""Cells in reading order."""
Asked = tuple[str, bool]
"""A question and its answer."""
PAIRS: list[Pair] = [(colour, shape) for colour in COLOURS for shape in SHAPES]


def held_out(drawing: Drawing) -> bool:
    """Whether a drawing, an eighth of all, is not trained on."""
    return crc32(repr(drawing).encode()) % 8 == 0


def draw(rng: random.Random, test: bool = False) -> Drawing:
    """A random drawing of two to four shapes, to train on or held out."""
    cells: list[Pair | None] = [None] * SIDE**2
    for place in rng.sample(range(len(cells)), rng.randint(2, 4)):
        cells[place] = rng.choice(PAIRS)
    return tuple(cells) if held_out(tuple(cells)) == test else draw(rng, test)


def picture(drawing: Drawing, rng: random.Random) -> Image.Image:
    """The image of a drawing. Places in the cell, sizes, colours and the background vary."""
    shade = rng.randint(225, 255)
    image = Image.new("RGB", (PIXELS, PIXELS), (shade, shade, shade))
    pen = ImageDraw.Draw(image)
    for place, pair in enumerate(drawing):
        if pair is None:
            continue
        colour, shape = pair
        fill = tuple(min(255, max(0, value + rng.randint(-20, 20))) for value in COLOURS[colour])
        r = rng.randint(5, 6)
        x = place % SIDE * CELL + CELL // 2 + rng.randint(-1, 1)
        y = place // SIDE * CELL + CELL // 2 + rng.randint(-1, 1)
        if shape == "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill)
        elif shape == "square":
            pen.rectangle((x - r + 1, y - r + 1, x + r - 1, y + r - 1), fill)
        elif shape == "triangle":
            pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill)
        else:
            pen.rectangle((x - r, y - 1, x + r, y + 1), fill)
            pen.rectangle((x - 1, y - r, x + 1, y + r), fill)
    return image


def describe(pairs: list[Pair]) -> str:
    """The description of some shapes, such as "a red circle and a blue square"."""
    return " and ".join(f"a {colour} {shape}" for colour, shape in pairs)


def shown(drawing: Drawing) -> list[Pair]:
    """The shapes of a drawing in reading order."""
    return [pair for pair in drawing if pair is not None]


def named(text: str) -> list[Pair]:
    """The shapes that a description names: a colour followed by a shape."""
    words = text.lower().split()
    return [pair for pair in zip(words, words[1:], strict=False) if pair in PAIRS]


def gold(drawing: Drawing, text: str) -> float:
    """F1 of the shapes that a description names, by code: the number of shapes counts, their order does not."""
    true, said = Counter(shown(drawing)), Counter(named(text))
    return 2 * (true & said).total() / (true.total() + said.total())


def wrong(drawing: Drawing, rng: random.Random) -> list[Pair]:
    """The shapes of a drawing with one or two errors: one is left out, added, or has another colour or shape."""
    pairs = shown(drawing)
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(pairs))
        colour, shape = pairs[place]
        error = rng.choice(("colour", "shape", "out", "added"))
        if error == "colour":
            pairs[place] = rng.choice(list(COLOURS)), shape
        elif error == "shape":
            pairs[place] = colour, rng.choice(list(SHAPES))
        elif error == "out" and len(pairs) > 1:
            pairs.pop(place)
        elif len(pairs) < 4:
            pairs.insert(place, rng.choice(PAIRS))
    return pairs


def _words(drawing: Drawing) -> list[set[str]]:
    """The words of each cell that is not empty: colour, shape and column."""
    return [{*pair, COLUMNS[place % SIDE]} for place, pair in enumerate(drawing) if pair]


def _ask(*words: str) -> str:
    """The question whether a shape with one to three of a colour, a form and a side is in the drawing."""
    side = next((f"On the {word}, is" for word in words if word in COLUMNS), "Is")
    shape = next((word for word in words if word in SHAPES), "shape")
    return " ".join([side, "there a", *(word for word in words if word in COLOURS), f"{shape}?"])


def _one(drawing: Drawing, rng: random.Random, yes: bool, words: tuple[str, ...]) -> Asked | None:
    """A question about one of some words."""
    of = [word for word in words if any(word in cell for cell in _words(drawing)) == yes]
    return (_ask(rng.choice(of)), yes) if of else None


def _part(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    return _one(drawing, rng, yes, (*COLOURS, *SHAPES))


def _at(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    return _one(drawing, rng, yes, ("left", "right"))


def _place(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: the side and the word are in the drawing, but not together."""
    words = set[str]().union(*_words(drawing))
    pairs = [(side, word) for side in ("left", "right") for word in sorted(words - {*COLUMNS})]
    pairs = [pair for pair in pairs if any(cell >= {*pair} for cell in _words(drawing)) == yes]
    return (_ask(*rng.choice(pairs)), yes) if pairs else None


def _pair(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: where possible, colour and shape are both in the drawing, but not together."""
    present = shown(drawing)
    colours, shapes = ({pair[part] for pair in present} for part in (0, 1))
    absent = [pair for pair in PAIRS if pair not in present]
    hard = [pair for pair in absent if pair[0] in colours and pair[1] in shapes]
    colour, shape = rng.choice(present if yes else hard or absent)
    return _ask(colour, shape), yes


def _count(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    shape = rng.choice([None, *(pair[1] for pair in shown(drawing))])
    true = sum(shape in (None, pair[1]) for pair in shown(drawing))
    number = true if yes else rng.choice([n for n in range(1, 5) if n != true and abs(n - true) < 3])
    return f"Are there exactly {number} {SHAPES[shape] if shape else 'shapes'}?", yes


def _side(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: the shape is in the drawing, but on another side."""
    pair = rng.choice(shown(drawing))
    sides = [side for side in ("left", "right") if any(cell == {*pair, side} for cell in _words(drawing)) == yes]
    return (_ask(*pair, rng.choice(sides)), yes) if sides else None


ITEMS = {f"Is every named {colour} shape drawn?": colour for colour in COLOURS}
ITEMS |= {f"Is every named {shape} drawn?": shape for shape in SHAPES}
"""Items about each description, the same for every drawing, and the colour or form that each is about."""
NUMBER = "Is the number of named shapes right?"
CHECKLIST = [*({"question": question} for question in ITEMS), {"question": NUMBER, "weight": 3.0}]
"""The checklist of the reward. Without the number, a short description would be the best."""


def right(drawing: Drawing, text: str, question: str) -> bool:
    """The answer to one of `ITEMS` or to `NUMBER`."""
    if question == NUMBER:
        return len(named(text)) == len(shown(drawing))
    return all(pair in drawing for pair in named(text) if ITEMS[question] in pair)


def _named(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """Mostly about words of the description: what is not named is not wrong."""
    words = {word for pair in named(text) for word in pair}
    of = [question for question in ITEMS if right(drawing, text, question) == yes]
    of = [question for question in of if ITEMS[question] in words or rng.random() < 0.1]
    return (rng.choice(of), yes) if of else None


def _number(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    return (NUMBER, yes) if right(drawing, text, NUMBER) == yes else None


KINDS: dict[str, Callable[[Drawing, str, random.Random, bool], Asked | None]] = {
    "one word": _part,
    "red circle": _pair,
    "side": _at,
    "word on a side": _place,
    "left or right": _side,
    "counting": _count,
    "named": _named,
    "number": _number,
}
"""Kinds of questions, from easy to hard: drawing, description, random state and wanted answer to a question."""
