"""Embedders with literal vectors, and the questions of a checklist."""

import math
from collections.abc import Mapping, Sequence

from checklist_rewards import Checklist


class Vectors:
    """Gives each text the vector that was set for it, and remembers what it was asked."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]):
        self.vectors, self.asked = dict(vectors), []

    def __call__(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.asked.append(list(texts))
        return [self.vectors[text] for text in texts]


def at_angles(degrees: Mapping[str, float]) -> Vectors:
    """Vectors in the plane: the cosine of two texts is that of the angle between them."""
    return Vectors({text: (math.cos(math.radians(d)), math.sin(math.radians(d))) for text, d in degrees.items()})


def orthogonal(texts: Sequence[str]) -> Vectors:
    """Texts that have nothing in common."""
    return Vectors({text: [float(i == j) for j in range(len(texts))] for i, text in enumerate(texts)})


def questions(checklist: Checklist) -> list[str]:
    return [item.question for item in checklist.items]
