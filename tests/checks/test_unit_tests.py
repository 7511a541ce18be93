"""Tests that only a test runner would call, and tests that would pass any code."""

import json
from pathlib import Path

import pytest

from checklist_rewards.checks.unit_tests import entry_point
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

RIGHT = "def add(a, b):\n    return a + b\n"
STUB = "def add(a, b):\n    return 0\n"
UNITTEST = """
import unittest

class Base(unittest.TestCase):
    def setUp(self):
        self.two = 2

class AddTest(Base):
    def test_it(self):
        self.assertEqual(add(self.two, 3), 5)
"""
FORMS = {
    "a function": "def test_add():\n    assert add(2, 3) == 5",
    "a class with set-up": """
class TestAdd:
    @classmethod
    def setup_class(cls):
        cls.two = 2
    def setup_method(self, method):
        self.three = 3
    def test_it(self):
        assert add(self.two, self.three) == 5
""",
    "inside a statement": "if True:\n    def test_add():\n        assert add(2, 3) == 5",
    "check with a default": "def check(candidate, n=2):\n    assert candidate(n, 3) == 5\n",
    "check, called": "def check(candidate):\n    assert candidate(2, 3) == 5\n\ncheck(add)",
    "unittest": UNITTEST,
    "unittest with a helper that is named like a test": f"{UNITTEST.replace('3)', 'test_number(3))')}"
    "\ndef test_number(number):\n    return number",
    "unittest.main": f"{UNITTEST}\nif __name__ == '__main__':\n    unittest.main()",
    "unittest.main that only prints": f"{UNITTEST}\nunittest.main(exit=False)",
    "a doctest": ">>> add(2, 3)\n5\n",
    "a doctest in a docstring": 'def test_add():\n    """\n    >>> add(2, 3)\n    5\n    """\n',
    "a loop over functions": "def test_add():\n    assert add(2, 3) == 5\n\nfor test in [test_add]:\n    test()",
}
ASYNC_CASE = "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
ASYNC_MAIN = "import asyncio\nasync def main():\n"
VACUOUS = {
    "async": ("async def test_add():\n    assert add(2, 3) == 5", "'test_add' is async"),
    "generator": ("def test_add():\n    yield add(2, 3) == 5", "'test_add' is async, a generator"),
    "fixture": ("class TestAdd:\n    def test(self, two):\n        assert add(two, 3) == 5", "'TestAdd.test' is"),
    "an asyncio test case": (f"{ASYNC_CASE}    async def test(self):\n        assert 0", "'T' is async"),
    "asyncio.run": (f"{ASYNC_MAIN}    assert await add(2, 3) == 5\nasyncio.run(main())", "'asyncio.run' is async"),
    "a name that no runner knows": ("def verify():\n    assert add(2, 3) == 5", "nothing in the tests is ever run"),
    "print": ("print(add(2, 3) == 5)", "the tests assert nothing"),
    "a constant": ("result = 5\nassert result == 5", "the tests do not use the code under test"),
}


@pytest.mark.parametrize("tests", FORMS.values(), ids=FORMS)
def test_what_a_test_runner_calls_is_called(tests):
    """Tests that are not called would pass code that computes nothing, and be broken."""
    assert holds(RIGHT, type="code", tests=tests, seconds=1, memory_mb=256)


_CHECK = "def check(candidate):\n    assert candidate([1, 2]) == 31 and candidate([]) == 1\n"
_OF_THE_HARNESS = ("check", "test_add", "main", "_checklist_entry", "_Something", "__name__", "sum")


def _honest(name):
    body = "    n = 1\n    for v in values:\n        n += 10 * v\n    helper(n)\n    return n\n"
    return f"def helper(x):\n    return x\n\ndef {name}(values):\n{body}"


@pytest.mark.parametrize("name", _OF_THE_HARNESS)
def test_the_name_of_a_function_does_not_decide_whether_it_is_tested(name):
    dishonest = f"def {name}(values):\n    return 31\n"
    assert holds(_honest(name), type="code", tests=_CHECK, seconds=1, memory_mb=256)
    assert not holds(dishonest, type="code", tests=_CHECK, seconds=1, memory_mb=256)


def test_code_without_a_function_fails():
    assert not holds("x = 1", type="code", tests=_CHECK)


def test_what_the_tests_call_themselves_is_not_called_again():
    counter = "count = [0]\ndef add(a, b):\n    count[0] += 1\n    return count[0]\n"
    tests = "def test_add():\n    assert add(2, 3) == 1\n\ntest_add()"
    assert holds(counter, type="code", tests=tests, seconds=1, memory_mb=256)


@pytest.mark.parametrize(("tests", "why"), VACUOUS.values(), ids=VACUOUS)
def test_tests_that_would_pass_any_code_are_broken(tests, why):
    with pytest.raises(CheckError, match=why.replace("(", ".")):
        holds(STUB, type="code", tests=tests)


def test_one_broken_part_breaks_all():
    with pytest.raises(CheckError, match="the tests assert nothing"):
        holds(STUB, type="all", checks=[{"type": "code", "tests": "print(add(2, 3) == 5)"}])


BLIND = {
    "a call and a true assertion": "assert True; add(2, 3)",
    "a swallowed failure": "try:\n    assert add(2, 3) == 6\nexcept AssertionError:\n    pass",
    "not as the main module": "if __name__ != '__main__':\n    assert add(2, 3) == 6",
    "check without a result": "def check(candidate):\n    candidate(2, 3)\n    assert True",
}
SEEING = {
    "truth": "assert add(2, 3)",
    "no truth": "assert not add(1, -1)",
    "difference": "assert add(2, 3) != 6",
    "an error": "try:\n    add(1, 'a')\nexcept TypeError:\n    pass\nelse:\n    assert False",
    "nearness": "import math\nassert math.isclose(add(2, 3), 5)",
    "a loop": "for letter in add('a', 'b'):\n    assert letter in 'ab'",
}


@pytest.mark.parametrize("tests", BLIND.values(), ids=BLIND)
def test_tests_that_code_passes_which_computes_nothing_are_broken(tests):
    with pytest.raises(CheckError, match="the tests pass code that computes nothing"):
        holds(RIGHT, type="code", tests=tests)


@pytest.mark.parametrize("tests", SEEING.values(), ids=SEEING)
def test_tests_that_look_at_results_are_not_broken(tests):
    assert holds(RIGHT, type="code", tests=tests)


ENTRY_POINTS = [
    ("import math\ndef helper(): ...\ndef solve(x):\n    def inner(): ...\nclass Late: ...\n", "solve"),
    ("class Stack: ...\nx = 1", "Stack"),
    ("def add(a, b):\n    return plus(a, b)\ndef plus(a, b): ...", "add"),  # not its helper
    ("def add(a, b): ...\ndef main():\n    add(1, 2)", "add"),
    ("def add(a, b): ...\ndef test_add(): ...\ndef check(candidate): ...", "add"),
    ("if True:\n    def add(a, b): ...\nelse:\n    def main(): ...", "add"),
    ("def one(n): return two(n)\ndef two(n): return one(n)", "two"),  # each calls the other
    ("def main(): ...", "main"),
    ("x = 1", "None"),
    ("def (", "None"),
]


@pytest.mark.parametrize(("code", "name"), ENTRY_POINTS)
def test_the_entry_point_is_the_last_function_that_is_no_helper(code, name):
    assert entry_point(code) == name


def test_lint_refuses_tests_that_would_pass_any_code(run):
    check = {"type": "code", "tests": VACUOUS["a name that no runner knows"][0]}
    Path("checks.json").write_text(json.dumps([{"question": "Does it add?", "check": check}]))
    result = run("lint checks.json", code=2)
    assert "its check is broken: nothing in the tests is ever run" in " ".join(result.stderr.split())
