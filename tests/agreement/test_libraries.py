"""What is told where the extra is not installed."""

import sys

import pytest

from checklist_rewards.agreement import Numbers
from checklist_rewards.errors import SampleError


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(SampleError, match=r"need scipy.stats: pip install 'checklist-rewards\[agreement\]'"):
        Numbers([0.1], [0.2]).figures()
