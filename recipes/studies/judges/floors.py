"""Floors that a judge of the tasks has to beat: word overlap, the length of the text, and a lexical regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from english.tasks import Example
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from studies.judges.realsumm import content_recall, lexical_features

OVERLAP, LENGTH, REGRESSION = "word overlap", "length", "lexical regression"


def overlap(examples: Sequence[Example]) -> list[float]:
    """Fraction of the statement's content words in the text; the best of all accepted answers, if there are any."""
    return [
        max(content_recall(example.target, text) for text in (example.statement, *example.references))
        for example in examples
    ]


def length(examples: Sequence[Example]) -> list[float]:
    """Number of characters of the text."""
    return [float(len(example.target)) for example in examples]


def regression(training: Sequence[Example], examples: Sequence[Example]) -> list[float]:
    """P(yes) from a logistic regression on lexical features, trained on `training`."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(_features(training), [example.label > 0.5 for example in training])
    return model.predict_proba(_features(examples))[:, 1].tolist()


def _features(examples: Sequence[Example]) -> np.ndarray:
    best = np.array(overlap(examples))[:, None]
    return np.hstack([[lexical_features(example.target, example.statement) for example in examples], best])
