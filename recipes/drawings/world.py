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


def _part(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    words = {word for pair in shown(drawing) for word in pair}
    words = words if yes else {*COLOURS, *SHAPES} - words
    if not words:
        return None
    word = rng.choice(sorted(words))
    return f"Is there a {word} shape?" if word in COLOURS else f"Is there a {word}?", yes


def _pair(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    """No is hard: where possible, colour and shape are both in the drawing, but not together."""
    present = shown(drawing)
    colours, shapes = ({pair[part] for pair in present} for part in (0, 1))
    absent = [pair for pair in PAIRS if pair not in present]
    hard = [pair for pair in absent if pair[0] in colours and pair[1] in shapes]
    colour, shape = rng.choice(present if yes else hard or absent)
    return f"Is there a {colour} {shape}?", yes


def _count(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    shape = rng.choice([None, *(pair[1] for pair in shown(drawing))])
    true = sum(shape in (None, pair[1]) for pair in shown(drawing))
    number = true if yes else rng.choice([n for n in range(1, 5) if n != true and abs(n - true) < 3])
    return f"Are there exactly {number} {SHAPES[shape] if shape else 'shapes'}?", yes


def _side(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    single = [pair for pair, number in Counter(shown(drawing)).items() if number == 1]
    column = {pair: drawing.index(pair) % SIDE for pair in single}
    apart = [(a, b) for a in single for b in single if column[a] != column[b]]
    if not apart:
        return None
    a, b = rng.choice(apart)
    side = "left" if (column[a] < column[b]) == yes else "right"
    return f"Is the {' '.join(a)} {side} of the {' '.join(b)}?", yes


ITEMS = {f"Is the answer right about {colour} shapes?": colour for colour in COLOURS}
ITEMS |= {f"Is the answer right about {plural}?": shape for shape, plural in SHAPES.items()}
"""What the reward asks about each description, the same eight items for every drawing, and the word of each."""


def right(drawing: Drawing, text: str, question: str) -> bool:
    """The answer to one of `ITEMS`: whether all shapes of this colour or form are named, and no others of it."""
    true, said = (
        Counter(pair for pair in pairs if ITEMS[question] in pair) for pairs in (shown(drawing), named(text))
    )
    return true == said


def _answer(drawing: Drawing, text: str, rng: random.Random, yes: bool) -> Asked | None:
    of = [question for question in ITEMS if right(drawing, text, question) == yes]
    return (rng.choice(of), yes) if of else None


KINDS: dict[str, Callable[[Drawing, str, random.Random, bool], Asked | None]] = {
    "one word": _part,
    "red circle": _pair,
    "counting": _count,
    "left or right": _side,
    "answer": _answer,
}
"""Kinds of questions, from easy to hard: drawing, description, random state and wanted answer to a question."""
