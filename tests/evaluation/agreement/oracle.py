"""The figures of agreement as scikit-learn, scipy, statsmodels and krippendorff compute them."""

import numpy as np
import pytest

krippendorff = pytest.importorskip("krippendorff")
metrics = pytest.importorskip("sklearn.metrics")
raters = pytest.importorskip("statsmodels.stats.inter_rater")
stats = pytest.importorskip("scipy.stats")


def of_numbers(one, other):
    """The figures of `Numbers`, for numbers that vary; the AUC is left out unless `other` is 0 and 1."""
    figures = {
        "pearson": stats.pearsonr(one, other).statistic,
        "spearman": stats.spearmanr(one, other).statistic,
        "kendall": stats.kendalltau(one, other).statistic,
        "rmse": metrics.root_mean_squared_error(other, one),
        "mae": metrics.mean_absolute_error(other, one),
        "bias": np.mean(np.subtract(one, other)),
        "emd": stats.wasserstein_distance(one, other),
        "ks": stats.ks_2samp(one, other, method="asymp").statistic,
    }
    return figures | ({"auc": metrics.roc_auc_score(other, one)} if set(other) == {0.0, 1.0} else {})


def of_categories(one, other, values, positive=None):
    """The figures of `Categories`, where all of them are defined."""
    labels = list(values)
    valued = [label for label in labels if values[label] is not None]
    both = [(a, b) for a, b in zip(one, other, strict=True) if a in valued and b in valued]
    table = metrics.confusion_matrix(*zip(*both, strict=True), labels=valued)
    numbers = np.array([values[label] for label in valued])
    codes = np.array([[labels.index(label) for label in side] for side in (one, other)])
    units = np.array([[values[label] for label in side] for side in zip(*both, strict=True)])
    figures = {
        "accuracy": metrics.accuracy_score(one, other),
        "kappa": metrics.cohen_kappa_score(one, other),
        "weighted_kappa": raters.cohens_kappa(table, weights=numbers, wt="quadratic", return_results=False),
        "alpha": krippendorff.alpha(codes, level_of_measurement="nominal"),
        "interval_alpha": krippendorff.alpha(units, level_of_measurement="interval"),
    }
    if positive is not None:
        truth, called = np.equal(other, positive), np.equal(one, positive)
        scores = metrics.precision_recall_fscore_support(truth, called, average="binary")
        figures |= dict(zip(("precision", "recall", "f1"), scores, strict=False))
        figures["phi"] = metrics.matthews_corrcoef(truth, called)
    return figures


def of_raters(answers, values):
    """The figures of `Raters`, where all of them are defined."""
    labels = list(values)
    counts = np.array([[row.count(label) for label in labels] for row in answers])
    valued = [place for place, value in enumerate(values.values()) if value is not None]
    domain = [value for value in values.values() if value is not None]
    complete = counts[counts.sum(1) == len(answers[0])]
    return {
        "alpha": krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"),
        "interval_alpha": krippendorff.alpha(
            value_counts=counts[:, valued], value_domain=domain, level_of_measurement="interval"
        ),
        "fleiss_kappa": raters.fleiss_kappa(complete, method="fleiss"),
    }
