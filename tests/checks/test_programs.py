"""Code that is run: what the text's own failure is, what no answer is, and what tests can ask."""

import re

import pytest

from checklist_rewards.checks import programs
from checklist_rewards.checks.programs import python_of
from checklist_rewards.checks.sandbox import Execution, guests, run_code, run_program, unsafe
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

ADD = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds."


def ran(source, tests="", seconds=0.5, memory_mb=256):
    return run_code(source, tests, seconds=seconds, memory_mb=memory_mb)


IN_A_LIST = "1. So:\n   ```python\n   def f():\n       return 1\n   ```\n2. Done."
LONGER = "````python\na = '''\n```\n'''\n````"
FURTHER_IN = "```python\na = '''\n   ```\n'''\n```"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (ADD, "def add(a, b):\n    return a + b\n"),
        ("```\na = 1\n```\n```js\nlet b\n```\n```py\nc = a\n```", "a = 1\n\nc = a\n"),
        (IN_A_LIST, "def f():\n    return 1\n"),
        ("~~~python\na = 1\n~~~\n~~~js\nlet b\n~~~", "a = 1\n"),
        (LONGER, "a = '''\n```\n'''\n"),
        (FURTHER_IN, "a = '''\n   ```\n'''\n"),
        # Blocks without an end.
        ("```python\na = 1\n", "```python\na = 1\n"),
        ("```js\nx\n``` \n```py\nb = 2\n```\nmore", "b = 2\n"),
    ],
)
def test_the_python_of_a_text(text, code):
    assert python_of(text) == code


def test_code_that_passes_its_tests():
    assert holds(ADD, type="code", tests="assert add(2, 3) == 5")
    assert not holds(ADD, type="code", tests="assert add(2, 3) == 6")
    assert holds(ADD, type="code") and not holds("```python\ndef add(:\n```", type="code")
    assert not holds("```js\nlet a\n```", type="code")  # no Python in it
    assert not holds('```python\nx = """\n```', type="code", tests="assert add(1) == 2")  # hides no tests
    assert not holds("if False:\n    pass\nelse: exit()", type="code", tests="assert add(1) == 2")


def test_the_fences_of_a_hostile_text_are_found_in_linear_time(monkeypatch):
    steps = []

    class Counting:
        def match(self, line):
            steps.append(len(line))
            return None

    monkeypatch.setattr(programs, "_FENCE", Counting())
    for text in ("```" + "a" * 100_000, "```\n" * 25_000, "``` " * 25_000):
        steps.clear()
        python_of(text)
        assert sum(steps) <= len(text), "each character is looked at once"


REPORTS = "import os\nfor fd in range(32):\n    try: os.write(fd, b'{\"value\": true}\\n')\n    except OSError: pass\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def holds(text): return 1", "returned 1; it must return True or False"),
        ("def holds(text): return [True]", "returned 'list'"),
        ("def holds(text):\n    while True: pass", "the program failed (out of time)"),
        ("def holds(text): return text.missing", "the program failed (AttributeError: 'str' object has no attribute"),
        ("def other(text): return True", "the program failed (KeyError: 'holds')"),
        ("def holds(text): return txet > ''", "the program failed (NameError"),
        ("def holds(text, more): return True", "the program failed (TypeError"),
        ("import nltk\ndef holds(text): return True", "the program failed (ModuleNotFoundError"),
        ("import os; os._exit(0)", "the program failed (left early)"),
        (f"{REPORTS}os._exit(0)", "the program failed"),
    ],
)
def test_a_program_that_fails_on_any_text_gives_no_answer(source, words):
    with pytest.raises(CheckError, match=re.escape(words)):
        holds("text", type="program", source=source, seconds=0.1)


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        ("import json\ndef holds(text): return bool(json.loads(text))", '{"a": 1}', "plain"),
        ("import re\ndef holds(text): return re.search(r'\\d+', text).group() > '1'", "7", "none"),
        ("def holds(text):\n    if '(' in text:\n        return True", "(", "none"),
        ("def holds(text): return len(text) < 9 or text.split(':')[1] > ''", "", "to be dropped"),
        ("def holds(text): return len(text or 0) > 1", "some", ""),
    ],
    ids=["an error", "no match", "no result", "only on this text", "only on an empty text"],
)
def test_a_text_on_which_a_program_raises_fails_the_check_unless_the_checklist_says_otherwise(source, right, wrong):
    assert holds(right, type="program", source=source)
    assert not holds(wrong, type="program", source=source)
    with pytest.raises(CheckError, match="the program"):
        holds(wrong, type="program", source=source, on_error="unanswered")


@pytest.mark.parametrize(
    "source",
    [
        "import re\ndef holds(text): return bool(re.fullmatch('(a+)+b', text))",
        "def holds(text): return len('x' * (len(text) * 10**7)) > 1",
    ],
    ids=["time", "memory"],
)
def test_a_text_that_exhausts_a_program_fails_the_check(source):
    assert not holds("a" * 40, type="program", source=source, seconds=0.5, memory_mb=256)


def test_time_and_memory_end():
    ignoring = "try:\n    while True: pass\nexcept BaseException: pass"
    assert ran(ignoring) == Execution(failure="out of time")
    assert ran("a = []\nwhile True: a.append('x' * 10**6)") == Execution(failure="out of memory")
    assert ran("import time\ntime.sleep(10**6)") == Execution()  # sleeping takes no time
    assert ran("for _ in range(1000): print('x' * 10**5)", seconds=5) == Execution()  # printing takes no memory


WAITS = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"


def test_waiting_for_ever_is_the_codes_own_failure_and_a_busy_machine_is_not(monkeypatch):
    assert ran(WAITS) == Execution(failure="out of time")
    monkeypatch.setattr(guests, "WAIT_SECONDS", 2)
    with unsafe(True):
        assert ran(WAITS, seconds=0.1) == Execution(failure="out of time")
        with pytest.raises(CheckError, match="no result within 2.3 s of elapsed time"):
            monkeypatch.setattr(guests, "_sleeps", lambda pid: False)  # as it looks where no processor is free
            ran(WAITS, seconds=0.1)


def test_it_may_write_a_little_in_a_plain_process():
    with unsafe(True):
        assert ran("open('a', 'w').write('x' * 1000)\nassert len(open('a').read()) == 1000") == Execution()
        assert "File too large" in (ran("open('a', 'w').write('x' * 10**6)").failure or "")


@pytest.mark.parametrize("plain", [False, True])
def test_a_sandbox_that_cannot_start_is_no_answer(monkeypatch, plain):
    monkeypatch.setattr(guests.sys, "executable", "/nowhere/python")
    monkeypatch.setattr(guests, "_load", lambda: 1 / 0)
    with pytest.raises(CheckError, match="could not be started"), unsafe(plain):
        holds(ADD, type="code")


def test_random_numbers_are_the_same_in_every_run():
    source = "import random\ndef holds(text): return random.random()"
    first, second = (run_program(source, "", seconds=1, memory_mb=128).value for _ in range(2))
    assert first == second and first.startswith("0.")


STACK = """
class Stack:
    def __init__(self, *items):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
    def pop(self):
        if not self.items:
            raise IndexError("empty")
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __str__(self):
        return f"Stack({self.items})"
"""
STACK_TESTS = """
s = Stack(1)
s.push("a")
assert isinstance(s, Stack) and len(s) == 2 and list(s) == s.items == [1, "a"] and str(s) == "Stack([1, 'a'])"
assert s.pop() == "a" and s.pop() == 1 and s.items == []
try:
    s.pop()
    raise SystemExit("no error")
except IndexError as error:
    assert str(error) == "empty"
"""
FUNCTIONS = """
import math
LIMIT = 10**40
def order(items):
    items.sort()
def apply(f, x):
    return f(x)
def adder(n):
    return lambda x: x + n
def upto(n):
    yield from range(n)
"""
FUNCTIONS_TESTS = """
items = [3, 1]
assert order(items) is None and items == [1, 3]
assert apply(lambda x: x + 1, 2) == 3 and apply(str, 5) == "5"
assert adder(2)(3) == 5
assert list(upto(3)) == [0, 1, 2]
assert LIMIT == 10**40
assert math.floor(2.5) == 2  # a module that the code imports
assert set(upto(3)) == {0, 1, 2} and all(adder(n)(1) == n + 1 for n in (0, 1)) and abs(apply(float, 0.25) - 0.2) < 0.1
"""
VALUES_TESTS = """
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

for x in (
    None, True, -1, 10**30, -1.5, float("inf"), 1j, "\\ud800\\n", b"\\0", bytearray(b"x"), {1: [(2,)]}, {3},
    frozenset([4]), range(5), Decimal("1.10"), Fraction(1, 3), date(2026, 1, 2),
    datetime(2026, 1, 2, tzinfo=timezone.utc), timedelta(1), int, ValueError,
):  # fmt: skip
    assert same(x) == x and type(same(x)) is type(x), x
"""


@pytest.mark.parametrize(
    ("code", "tests"),
    [(STACK, STACK_TESTS), (FUNCTIONS, FUNCTIONS_TESTS), ("def same(x): return x", VALUES_TESTS)],
    ids=["a class", "functions", "values"],
)
def test_what_tests_can_ask(code, tests):
    assert ran(code, tests, seconds=2) == Execution()
    assert ran("def double(x): return x", tests, seconds=2).failure is not None


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ("assert add(", "SyntaxError"),
        ("import numpy as np\nassert add(1, 2) == 3", "No module named 'numpy'"),
        ("class Node: pass\nassert add(Node(), 1)", "a Node is passed to the code"),
    ],
)
def test_tests_that_cannot_be_run_give_no_answer(tests, words):
    with pytest.raises(CheckError, match=f"the tests cannot be run .*{words}"):
        holds(ADD, type="code", tests=tests)
