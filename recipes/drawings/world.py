"""The drawn world: coloured shapes on a grid of 3 by 3 cells, questions about them, and descriptions, all with truth.

A drawing is a tuple of nine cells in reading order. A cell is empty (None) or a pair of colour and shape. Code answers
every question, so it measures the judge, and it computes *gold* of a description without the judge.
"""

from __future__ import annotations

import random
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


def describe(pair: Pair) -> str:
    """The description of a shape, such as "a red circle"."""
    return f"a {' '.join(pair)}"


def shown(drawing: Drawing) -> list[Pair]:
    """The shapes of a drawing in reading order."""
    return [pair for pair in drawing if pair is not None]


def named(text: str) -> list[Pair]:
    """The shapes that a description names: a colour followed by a shape."""
    words = text.lower().split()
    return [pair for pair in zip(words, words[1:], strict=False) if pair in PAIRS]


def gold(drawing: Drawing, text: str) -> float:
    """The fraction of the shapes that a text names that are in the drawing; 0 if it names none."""
    said = named(text)
    return sum(pair in drawing for pair in said) / len(said) if said else 0.0


def some(drawing: Drawing, rng: random.Random, right: bool) -> Pair:
    """A shape of the drawing, or one that is not: with its colour or its form in the drawing, where possible."""
    present = shown(drawing)
    absent = [pair for pair in PAIRS if pair not in present]
    words = {word for pair in present for word in pair}
    return rng.choice(present if right else [pair for pair in absent if words & {*pair}] or absent)


def _noun(word: str) -> str:
    return word if word in SHAPES else f"{word} shape"


def _part(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    words = {word for pair in shown(drawing) for word in pair} | {*_columns(drawing)}
    of = [word for word in (*COLOURS, *SHAPES, *COLUMNS) if (word in words) == yes]
    word = rng.choice(of) if of else ""
    return (f"Is there a {_noun(word)}?", yes) if of else None


def _pair(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: where possible, colour and shape are both in the drawing, but not together."""
    present = shown(drawing)
    colours, shapes = ({pair[part] for pair in present} for part in (0, 1))
    absent = [pair for pair in PAIRS if pair not in present]
    hard = [pair for pair in absent if pair[0] in colours and pair[1] in shapes]
    colour, shape = rng.choice(present if yes else hard or absent)
    return f"Is there a {colour} {shape}?", yes


def _columns(drawing: Drawing, word: str = "") -> set[str]:
    """The columns with a shape, or with one that has this colour or form."""
    return {COLUMNS[place % SIDE] for place, pair in enumerate(drawing) if pair and word in ("", *pair)}


def _side(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: the shape is in the drawing, in another column."""
    word = rng.choice(rng.choice(shown(drawing)))
    columns = _columns(drawing, word)
    of = [column for column in COLUMNS if (column in columns) == yes]
    return (f"Is there a {rng.choice(of)} {_noun(word)}?", yes) if of else None


def _count(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    shape = rng.choice([None, *(pair[1] for pair in shown(drawing))])
    true = sum(shape in (None, pair[1]) for pair in shown(drawing))
    number = true if yes else rng.choice([n for n in range(1, 5) if n != true and abs(n - true) < 3])
    return f"Are there exactly {number} {SHAPES[shape] if shape else 'shapes'}?", yes


def _named(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    return (NAMED, yes) if (gold(drawing, text) == 1) == yes else None


NAMED = "Is every named shape drawn?"
"""The question about a description; the checklist of the reward."""
KINDS: dict[str, Callable[[Drawing, str, random.Random, bool], Asked | None]] = {
    "one word": _part,
    "red circle": _pair,
    "left or right": _side,
    "counting": _count,
    "named": _named,
}
"""Kinds of questions, from easy to hard: drawing, description, random state and wanted answer to a question."""
