"""Floors that a judge of the tasks has to beat: word overlap and a lexical regression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from english.tasks import Example
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

OVERLAP, REGRESSION = "word overlap", "lexical regression"
_WORD = re.compile(r"[a-z0-9]+")
_STOP = set(
    "the a an of to in on at for and or is was are were be been by with as that this it its from has have had he she "
    "they his her their not will would who which".split()
)


def overlap(examples: Sequence[Example]) -> list[float]:
    """Fraction of the statement's content words in the text; the best of all accepted answers, if there are any."""
    return [
        max(content_recall(example.target, text) for text in (example.statement, *example.references))
        for example in examples
    ]


def regression(training: Sequence[Example], examples: Sequence[Example]) -> list[float]:
    """P(yes) from a logistic regression on lexical features, trained on `training`."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(_features(training), [example.label > 0.5 for example in training])
    return model.predict_proba(_features(examples))[:, 1].tolist()


def _features(examples: Sequence[Example]) -> np.ndarray:
    best = np.array(overlap(examples))[:, None]
    return np.hstack([[lexical_features(example.target, example.statement) for example in examples], best])


def words(text: str) -> list[str]:
    """Lower-case words and numbers."""
    return _WORD.findall(text.lower())


def lexical_features(summary: str, criterion: str) -> list[float]:
    """Fractions of the criterion's words, content words, word prefixes, numbers and word pairs found in the summary,
    of its content words in the best sentence, and the length of the criterion."""
    there, asked = words(summary), words(criterion)
    content = [word for word in asked if word not in _STOP]
    numbers = [word for word in asked if word.isdigit()]
    sentences = [set(words(sentence)) for sentence in re.split(r" [.!?](?: |$)", summary)]
    return [
        _share(asked, set(there)),
        _share(content, set(there)),
        _share([word[:5] for word in content], {word[:5] for word in there}),
        _share(numbers, set(there)) if numbers else 1.0,
        _share(list(zip(asked, asked[1:], strict=False)), set(zip(there, there[1:], strict=False))),
        max(_share(content, sentence) for sentence in sentences),
        float(len(content)),
    ]


def content_recall(text: str, statement: str) -> float:
    """Fraction of the statement's content words in the text; of all its words, if none is a content word."""
    asked = words(statement)
    return _share([word for word in asked if word not in _STOP] or asked, set(words(text)))


def _share(asked: Sequence[Any], there: set[Any]) -> float:
    return sum(word in there for word in asked) / max(1, len(asked))
