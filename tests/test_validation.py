"""What is told where the extra is not installed."""

import sys

import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Numbers
from checklist_rewards.evaluation.cascade_replay import Point, plot_curve
from checklist_rewards.evaluation.items.page import page
from checklist_rewards.evaluation.items.similarity import similarity

POINT = Point(0.5, 0.1, 0.1, 0.9, 1.0)
QUESTIONS = [Checklist.parse(["Is it short?"])]


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("scipy.stats", lambda: Numbers([0.1], [0.2]).figures()),
        ("matplotlib.figure", lambda: plot_curve([POINT], POINT, "curve.png")),
        ("matplotlib.figure", lambda: page([], title="items", targets=0)),
        ("sacrebleu", lambda: similarity(QUESTIONS, QUESTIONS)),
    ],
)
def test_a_missing_library_names_the_extra(monkeypatch, library, use):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SampleError, match=rf"this needs {library}: pip install 'checklist-rewards\[evaluation\]'"):
        use()
