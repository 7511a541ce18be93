"""Every case of the golden set gives what it gave at 46fd139, and asks no model for anything: see `golden.py`."""

import pytest

from tests.golden.golden import cases, check

CASES = [case for case in cases() if not case.quick]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_gives_what_it_gave(case, tmp_path):
    check(case, tmp_path)
