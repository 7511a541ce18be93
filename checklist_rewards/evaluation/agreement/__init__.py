"""Agreement of judges with labels and with each other: figures with confidence intervals, and significance tests.

`scored` reads scored files and labels, `measures` defines the figures and their confidence intervals, and `compare`
computes all figures of two sides and the tests between two judges.
"""

from checklist_rewards.evaluation.agreement.compare import (
    Comparison,
    PairedTest,
    Section,
    Target,
    Unit,
    agreement_of,
    compare,
    compare_judges,
    compare_raters,
    paired_test,
    permutation_p,
    units_against_labels,
    units_of_judges,
)
from checklist_rewards.evaluation.agreement.measures import (
    Bootstrap,
    Categories,
    Figure,
    Mean,
    Numbers,
    Preferences,
    Raters,
)
from checklist_rewards.evaluation.agreement.scored import (
    Answer,
    JudgedRow,
    Labels,
    judged_row,
    labels_of,
    labels_of_rows,
    other_texts,
    pairs_of,
    read_scored,
)

__all__ = [
    "Answer",
    "Bootstrap",
    "Categories",
    "Comparison",
    "Figure",
    "JudgedRow",
    "Labels",
    "Mean",
    "Numbers",
    "PairedTest",
    "Preferences",
    "Raters",
    "Section",
    "Target",
    "Unit",
    "agreement_of",
    "compare",
    "compare_judges",
    "compare_raters",
    "judged_row",
    "labels_of",
    "labels_of_rows",
    "other_texts",
    "paired_test",
    "pairs_of",
    "permutation_p",
    "read_scored",
    "units_against_labels",
    "units_of_judges",
]
