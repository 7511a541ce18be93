"""The last number of an answer."""

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks import numbers
from checklist_rewards.checks.numbers import last_number
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

ANSWERS = [
    ("10 - 3 = 7.", 7),
    ("The answer is -4", -4),
    ("The answer is –4", -4),
    ("about 3.5e2 m", 350),
    ("3/4", 0.75),
    ("$12.50", 12.5),
    ("On 2024-11-21", 21),
    *((text, None) for text in ("none at all", r"\boxed{yes} 5", "1/0", "10^9999", "v2 is a version", "")),
    *((text, -42) for text in ("答案是-42。", "答えは-42です", "답은-42입니다", "คำตอบคือ-42บาท", "_-42_", "Rs.-42")),
    *((text, 5) for text in ("3月-5月", "3만원-5만원", "３月–５月")),
    *((text, 3) for text in ("3 = H2O", "3 = x_2", "3 = v1.2", "3 = a.2", "3 = items.2", "3 = \\log_28")),
    # groups of digits
    *((text, 1250) for text in ("So it is 1,250.", "1 250", "1\u2009250", "1\u00a0250", "1'250")),
    ("50 100 150 200", 200),
    ("1,25,000", 125000),
    *((text, 1250.5) for text in ("1.250,50 €", "1 250,50 €", "1'250,50", "١٬٢٥٠٫٥")),
    ("1.250.000", 1250000),
    ("1.250", 1.25),
    ("3,5", 3.5),
    ("Die Antwort ist 3,1415.", 3.1415),
    ("on May 11,1985", 1985),
    ("In 2020,300 people died.", 300),
    ("2019,2020", 2020),
    ("答えは３．５です", 3.5),
    ("合計１，２３４円", 1234),
    ("１／２", 0.5),
    ("選択肢１，２", 2),
    ("误差为正负5", 5),
    ("the point (3,5)", 5),
    # notations
    ("3.5·10⁻² m", 0.035),
    ("10^6", 10**6),
    ("2⁵", 32),
    *((text, 12) for text in ("12 cm^2", "12 m²", "**12**", "$12$", "١٢")),
    ("x^2 = 4", 4),
    ("1 1/2 cups", 1.5),
    ("¾", 0.75),
    *((text, 42) for text in ("the 42nd", "४२", "４２")),
    # LaTeX
    (r"It is \boxed{42}, not 43.", 42),
    *((text, 12) for text in (r"\boxed{12\text{ cm}^2}", r"\boxed{12\ \mathrm{m/s}^{2}}", r"\boxed{12~\text{cm}}")),
    *((text, 12) for text in (r"\boxed{x = 12}", r"\boxed{\text{12}}", r"\boxed{\mathbf{12}}", r"\boxed {12}")),
    *((text, 1250) for text in (r"\boxed{1{,}250}", r"\boxed{1\,250}", r"\boxed{1 250}")),
    (r"\boxed{3{,}5}", 3.5),
    *((text, 0.5) for text in (r"\boxed{\frac12}", r"\boxed{\dfrac{1}{2}}", r"\boxed{\frac{1}{2} of it}")),
    (r"\boxed{-\frac{3}{4}}", -0.75),
    (r"\boxed{1\frac{1}{2}}", 1.5),
    (r"so $\frac{3}{4}$.", 0.75),
    (r"\boxed{12.\overline{36}}", 12 + 4 / 11),
    *((text, -1 / 6) for text in (r"\boxed{-0.1\overline{6}}", r"It is $-0.1\bar{6}$.")),
    (r"\boxed{\$12.50}", 12.5),
    (r"\boxed{90^{\circ}}", 90),
    (r"\boxed{- 4}", -4),
    (r"\boxed{\mathbf{-}3}", -3),
    (r"\boxed{1}, \boxed{2}, so \boxed{3} it is", 3),
    (r"\boxed{\{5\}}", 5),
    (r"\boxed{5", 5),
    (r"\boxed{3.5 \cdot 10^{-2}}", 0.035),
]
BY_MATH_VERIFY = [
    (r"\boxed{2\sqrt{3}}", 12**0.5),
    (r"\boxed{\frac{\pi}{2}}", 1.5707963267948966),
    (r"\boxed{\sqrt[3]{8}}", 2),
    (r"The answer is $x = \sqrt{16}$.", 4),
    (r"With $x = \sqrt{16}$ it is 5.", 5),
    (r"\boxed{\frac{3.5}{7}}", 0.5),
    (r"\boxed{5!}", 120),
]


@pytest.mark.parametrize(("text", "number"), ANSWERS)
def test_the_last_number_is_the_answer(text, number, monkeypatch):
    monkeypatch.setattr(numbers, "_library", lambda: pytest.fail("plain numbers need no library"))
    assert last_number(text) == (None if number is None else pytest.approx(number))


@pytest.mark.parametrize(("text", "number"), BY_MATH_VERIFY)
def test_math_verify_reads_other_expressions(text, number):
    pytest.importorskip("math_verify")
    assert last_number(text) == pytest.approx(number)
    assert holds(text, type="number", value=number)


def test_without_math_verify_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify.parser", None)
    numbers._computed.cache_clear()
    with pytest.raises(CheckError, match=r"pip install 'checklist-rewards\[checks\]'"):
        holds(r"\boxed{2\sqrt{5}}", type="number", value=4)
    assert holds(r"\boxed{\frac12}", type="number", value=0.5)


def test_a_fault_of_math_verify_says_nothing_about_the_answer(monkeypatch):
    from math_verify import parser

    def fails(*_, **__):
        raise RecursionError("too deep")

    monkeypatch.setattr(parser, "parse", fails)
    with pytest.raises(CheckError, match="math-verify failed on .*RecursionError: too deep"):
        last_number(r"\boxed{\sqrt{36}}")


def test_it_works_in_a_thread():
    pytest.importorskip("math_verify")
    found = []
    thread = threading.Thread(target=lambda: found.append(last_number(r"\boxed{3\sqrt{49}}")))
    thread.start()
    thread.join()
    assert found == [pytest.approx(21)]


NO_NUMBERS = [r"\frac{0}{0}", r"\sqrt{-4}", r"\sqrt{x}", r"9^{9^{9^{9}}}", r"9^99^99", r"10000000!"]
NO_NUMBERS += [r"\sum_{n=1}^{10000000} n", r"\int_0^1 e^{x^2} dx", r"__import__('os').system('true')"]


@pytest.mark.parametrize("latex", NO_NUMBERS)
def test_what_has_no_real_value_or_would_compute_for_ever_is_no_number(latex):
    assert last_number(rf"\boxed{{{latex}}}") is None


PARTS = ["1", "1,", "11,", "1 ", "\\frac{", "\\boxed{", "{", "$", "$x^", "\\(", "\\boxed{1}", "1/", "^{2", "\\[ "]
PARTS += ["½", "⁵", "1'", "\\text{", " \\", "   \\frac1"]


@pytest.mark.parametrize("part", PARTS)
def test_no_text_takes_more_than_linear_time(part):
    last_number(part * (100_000 // len(part)))
    last_number("\\boxed{" + part * 30_000 + "}")


def test_the_check():
    assert holds("2 + 2 = 4", type="number", value=4) and not holds("4 + 1 = 5", type="number", value=4)
    assert holds("3.14", type="number", value=3.1416, tolerance=0.01)
    assert not holds("3.14", type="number", value=3.1416)
    assert not holds("I do not know.", type="number", value=4)
    assert not holds("1e999999999", type="number", value=4)


_UNITS = st.sampled_from(["", " cm", "%", " apples", " m²", " €"])
_FORMS = ["{:,}", "{}", "**{}**", "${}$", r"\boxed{{{}}}", "x = {}.", r"\boxed{{{}\text{{ cm}}^2}}"]
_FORMS += [r"\boxed{{{}^\circ}}", r"\boxed{{x = {:,}}}"]


@given(st.integers(-(10**12), 10**12), st.sampled_from(_FORMS), _UNITS)
def test_every_whole_number_is_read_as_it_was_written(number, form, unit):
    assert last_number(f"First 7, then {form.format(number)}{unit}") == number


@given(st.integers(-(10**9), 10**9), st.sampled_from(["\u2009", "\u00a0", "\u202f", ",", "{,}", r"\,", "'", r"{,}\!"]))
def test_every_separator_of_thousands(number, separator):
    written = f"{number:,}".replace(",", separator)
    assert last_number(rf"\boxed{{{written}}}") == number
    if "\\" not in separator:
        assert last_number(f"It is {written}.") == number


@given(st.integers(0, 99), st.integers(1, 99), st.sampled_from([r"\frac{{{}}}{{{}}}", r"\dfrac{{{}}}{{{}}}", "{}/{}"]))
def test_every_fraction(above, below, form):
    assert last_number(rf"\boxed{{{form.format(above, below)}}}") == above / below
