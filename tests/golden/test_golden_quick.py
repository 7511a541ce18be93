"""The cases of the golden set that take a few seconds together; the others are in `test_golden.py`."""

import pytest

from tests.golden.golden import cases, check

CASES = [case for case in cases() if case.quick]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_gives_what_it_gave(case, tmp_path):
    check(case, tmp_path)
