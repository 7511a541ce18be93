"""Tests that only a test runner would call, and tests that would pass any code."""

import builtins
import json
import keyword
from pathlib import Path

import pytest

from checklist_rewards.checks.unit_tests import entry_point, fault
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

RIGHT = "def add(a, b):\n    return a + b\n"
STUB = "def add(a, b):\n    return 0\n"
FORMS = {
    "a function": "def test_add():\n    assert add(2, 3) == 5",
    "a class": "class TestAdd:\n    def test_it(self):\n        assert add(2, 3) == 5",
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
    "check": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(2, 3) == 5\n",
    "check, called": "def check(candidate):\n    assert candidate(2, 3) == 5\n\ncheck(add)",
    "unittest": """
import unittest

class Base(unittest.TestCase):
    def setUp(self):
        self.two = 2

class AddTest(Base):
    def test_it(self):
        for three in (3, 3):
            with self.subTest(three=three):
                self.assertEqual(add(self.two, three), 5)
""",
    "unittest.main": """
import unittest

class AddTest(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add(2, 3), 5)

if __name__ == "__main__":
    unittest.main()
""",
    "a doctest": ">>> add(2, 3)\n5\n",
    "a doctest in a docstring": 'def test_add():\n    """\n    >>> add(2, 3)\n    5\n    """\n',
    "a loop over functions": "def test_add():\n    assert add(2, 3) == 5\n\nfor test in [test_add]:\n    test()",
    "a main function": """
def test_add():
    assert add(2, 3) == 5

def main():
    test_add()

if __name__ == "__main__":
    main()
""",
}
ASYNC_CASE = "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
ASYNC_MAIN = "import asyncio\nasync def main():\n"
VACUOUS = {
    "async": ("async def test_add():\n    assert add(2, 3) == 5", "'test_add' is async"),
    "generator": ("def test_add():\n    yield add(2, 3) == 5", "'test_add' is async, a generator"),
    "fixture": ("class TestAdd:\n    def test(self, two):\n        assert add(two, 3) == 5", "'TestAdd.test' is"),
    "an asyncio test case": (f"{ASYNC_CASE}    async def test(self):\n        assert 0", "'T' is async"),
    "asyncio.run": (f"{ASYNC_MAIN}    assert await add(2, 3) == 5\nasyncio.run(main())", "'asyncio.run' is async"),
    "comments": ("# assert add(2, 3) == 5\n", "nothing in the tests is ever run"),
    "a name that no runner knows": ("def verify():\n    assert add(2, 3) == 5", "nothing in the tests is ever run"),
    "print": ("print(add(2, 3) == 5)", "the tests assert nothing"),
    "an expression": ("add(2, 3) == 5", "the tests assert nothing"),
    "a constant": ("result = 5\nassert result == 5", "the tests do not use the code under test"),
}


@pytest.mark.parametrize("tests", FORMS.values(), ids=FORMS)
def test_what_a_test_runner_calls_is_called(tests):
    assert fault(tests) is None
    assert holds(RIGHT, type="code", tests=tests, seconds=1, memory_mb=256)
    assert not holds(STUB, type="code", tests=tests, seconds=1, memory_mb=256)


_CHECK = "def check(candidate):\n    assert candidate([1, 2]) == 31 and candidate([]) == 1\n"
_BUILTINS = [name for name in dir(builtins) if not keyword.iskeyword(name) and name != "__debug__"]
_OF_THE_HARNESS = (
    "check candidate test test_add main run unittest _checklist_run _checklist_entry _Something names __main__ "
    "__name__ __builtins__"
).split()


def _honest(name):
    body = "    n = 1\n    for v in values:\n        n += 10 * v\n    helper(n)\n    return n\n"
    return f"def helper(x):\n    return x\n\ndef {name}(values):\n{body}"


@pytest.mark.parametrize("name", _OF_THE_HARNESS)
def test_the_name_of_a_function_does_not_decide_whether_it_is_tested(name):
    dishonest = f"def {name}(values):\n    return 31\n"
    assert holds(_honest(name), type="code", tests=_CHECK, seconds=1, memory_mb=256)
    assert not holds(dishonest, type="code", tests=_CHECK, seconds=1, memory_mb=256)


def test_every_name_can_be_that_of_the_solution():
    for name in (*_OF_THE_HARNESS, *_BUILTINS):
        assert entry_point(_honest(name)) == name


def test_code_without_a_function_fails_and_one_with_the_name_of_a_builtin_is_tested():
    tests = "def check(candidate):\n    assert candidate([1, 2]) == 3\n"
    assert not holds("x = 1", type="code", tests=tests)
    assert not holds("def sum(values):\n    return 0\n", type="code", tests=tests)
    assert holds("def sum(values):\n    return values[0] + values[1]\n", type="code", tests=tests)


def test_what_the_tests_call_themselves_is_not_called_again():
    counter = "count = [0]\ndef add(a, b):\n    count[0] += 1\n    return count[0]\n"
    tests = "def test_add():\n    assert add(2, 3) == 1\n\ntest_add()"
    assert holds(counter, type="code", tests=tests, seconds=1, memory_mb=256)


@pytest.mark.parametrize(("tests", "why"), VACUOUS.values(), ids=VACUOUS)
def test_tests_that_would_pass_any_code_are_broken(tests, why):
    assert why in fault(tests)
    with pytest.raises(CheckError, match=why.replace("(", ".")):
        holds(STUB, type="code", tests=tests)
    with pytest.raises(CheckError):
        holds(STUB, type="all", checks=[{"type": "code", "tests": tests}])


BLIND = {
    "a call and a true assertion": "assert True; add(2, 3)",
    "an assertion about something else": "sum_ = add(2, 3)\nassert 1 == 1",
    "a swallowed failure": "try:\n    assert add(2, 3) == 6\nexcept AssertionError:\n    pass",
    "not as the main module": "if __name__ != '__main__':\n    assert add(2, 3) == 6",
    "check without a result": "def check(candidate):\n    candidate(2, 3)\n    assert True",
    "a test case": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        add(2, 3)\n"
    "        self.assertTrue(True)",
}
SEEING = {
    "truth": "assert add(2, 3)",
    "no truth": "assert not add(1, -1)",
    "a type": "assert isinstance(add(2, 3), int)",
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


def test_code_without_tests_and_invalid_tests_have_other_words():
    assert fault("assert add(") is None
    assert holds(RIGHT, type="code")


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


def test_the_entry_point_of_code_as_deep_as_the_parser_takes_it():
    assert entry_point(f"def add(a={'-' * 900}1): ...") in ("add", "None")


def test_lint_refuses_tests_that_would_pass_any_code(run):
    check = {"type": "code", "tests": VACUOUS["a name that no runner knows"][0]}
    Path("checks.json").write_text(json.dumps([{"question": "Does it add?", "check": check}]))
    result = run("lint checks.json", code=2)
    assert "its check is broken: nothing in the tests is ever run" in " ".join(result.stderr.split())
