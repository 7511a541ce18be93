"""Agreement of judges with labels and with each other: figures with confidence intervals, and significance tests.

`measures` defines the figures, and `compare` computes all figures of two sides and the
tests between two judges.
"""

from checklist_rewards.evaluation.agreement.compare import (
    Comparison,
    ItemAgreement,
    PairedTest,
    Section,
    Target,
    Unit,
    agreement_of,
    by_item,
    compare,
    compare_judges,
    compare_raters,
    paired_test,
    permutation_p,
    units_against_labels,
    units_of_judges,
    verdict,
)
from checklist_rewards.evaluation.agreement.measures import (
    Categories,
    Numbers,
    Preferences,
    Raters,
)

__all__ = [
    "Categories",
    "Comparison",
    "ItemAgreement",
    "Numbers",
    "PairedTest",
    "Preferences",
    "Raters",
    "Section",
    "Target",
    "Unit",
    "agreement_of",
    "by_item",
    "compare",
    "compare_judges",
    "compare_raters",
    "paired_test",
    "permutation_p",
    "units_against_labels",
    "units_of_judges",
    "verdict",
]
