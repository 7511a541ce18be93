import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks.numbers import last_number
from tests.checks.holds import holds

ANSWERS = {
    "So it is 1,250.": 1250,
    "10 - 3 = 7.": 7,
    "The answer is -4": -4,
    "The answer is \u22124": -4,
    "about 3.5e2 m": 350,
    "3/4": 0.75,
    "$12.50": 12.5,
    "50%": 50,
    "On 2024-11-21": 21,
    r"It is \boxed{42}, not 43.": 42,
    r"\boxed{1} then \boxed{\frac{3}{4}}": 0.75,
    r"\boxed{x + 1} of 9": 1,
    "none at all": None,
    r"\boxed{yes} 5": None,
    "1/0": None,
    "v2 is a version": None,
    "": None,
}


@pytest.mark.parametrize("text", ANSWERS)
def test_the_last_number_is_the_answer(text):
    assert last_number(text) == ANSWERS[text]


def test_the_check():
    assert holds("2 + 2 = 4", type="number", value=4) and not holds("4 + 1 = 5", type="number", value=4)
    assert holds("3.14", type="number", value=3.1416, tolerance=0.01)
    assert not holds("3.14", type="number", value=3.1416)
    assert not holds("I do not know.", type="number", value=4)
    assert not holds("1e999999999", type="number", value=4)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{:,}", "{}", "**{}**", "${}$", r"\boxed{{{}}}", "x = {}."]))
def test_every_whole_number_is_read_as_it_was_written(number, form):
    assert last_number(f"First 7, then {form.format(number)}") == number
