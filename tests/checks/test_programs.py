"""Code that is run: what the text's own failure is, what no answer is, and what it cannot reach."""

import os
import socket
from pathlib import Path

import pytest

from checklist_rewards.checks import sandbox
from checklist_rewards.checks.programs import python_of
from checklist_rewards.checks.sandbox import Outcome, run_python
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

ADD = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds."


def ran(source, *more, seconds=5, memory_mb=256, **given):
    return run_python(source, *more, seconds=seconds, memory_mb=memory_mb, **given)


def test_the_python_of_a_text():
    assert python_of(ADD) == "def add(a, b):\n    return a + b\n"
    assert python_of("```\na = 1\n```\n```js\nlet b\n```\n```py\nc = a\n```") == "a = 1\n\nc = a\n"
    assert python_of("x = 1") == "x = 1"


def test_code_that_passes_its_tests():
    assert holds(ADD, type="code", tests="assert add(2, 3) == 5")
    assert not holds(ADD, type="code", tests="assert add(2, 3) == 6")
    assert holds(ADD, type="code") and not holds("```python\ndef add(:\n```", type="code")
    assert not holds("```js\nlet a\n```", type="code")  # no Python in it


def test_code_cannot_hide_its_tests_or_leave_before_them():
    for text in ('x = """', "import os; os._exit(0)", "import sys; sys.exit(0)", "if False:\n    pass\nelse: exit()"):
        assert not holds(f"```python\n{text}\n```", type="code", tests="assert 1 == 2"), text


def test_a_program_answers():
    balanced = "def holds(text):\n    return text.count('(') == text.count(')')"
    assert holds("(a)", type="program", source=balanced) and not holds("(a", type="program", source=balanced)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def holds(text): return 1", "returned 1; it must return True or False"),
        ("def holds(text): return [True]", "returned 'list'"),
        ("def holds(text): return text.missing", "the program failed (AttributeError: 'str' object has no attribute"),
        ("def other(text): return True", "the program failed (KeyError: 'holds')"),
        ("holds = (", "the program failed (SyntaxError"),
        ("import os; os._exit(0)", "the program failed (left early)"),
    ],
)
def test_a_program_that_fails_gives_no_answer(source, words):
    with pytest.raises(CheckError) as failed:
        holds("text", type="program", source=source)
    assert words in str(failed.value)


def test_time_and_memory_end():
    assert ran("while True: pass", seconds=1) == Outcome(failure="out of time")
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert ran(ignoring, seconds=1) == Outcome(failure="out of time")
    assert ran("a = []\nwhile True: a.append('x' * 10**6)") == Outcome(failure="out of memory")
    assert ran("import time\ntime.sleep(10**6)") == Outcome()  # sleeping takes no time


def test_waiting_for_ever_is_the_codes_own_failure_and_a_busy_machine_is_not(monkeypatch):
    monkeypatch.setattr(sandbox, "_WAIT_SECONDS", 0.5)
    waits = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"
    assert ran(waits, seconds=0.1) == Outcome(failure="out of time")
    with pytest.raises(CheckError, match="no result within 0.8 s on the clock"):
        monkeypatch.setattr(sandbox, "_sleeps", lambda pid: False)  # as it looks where no processor is free
        ran(waits, seconds=0.1)


FORBIDDEN = {
    "a file": "open('/etc/passwd')",
    "a folder": "import os\nos.listdir('/')",
    "a new process": "import subprocess\nsubprocess.run(['true'])",
    "a fork": "import os\nos.fork()",
    "a shell": "import os\nos.system('true')",
    "foreign functions": "import ctypes\nctypes.CDLL(None)",
    "another process": "import os\nos.kill(os.getppid(), 0)",
    "removing files": "import shutil\nshutil.rmtree('.')",
    "its limits": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_out_of_reach(what):
    assert (ran(FORBIDDEN[what]).failure or "").startswith("PermissionError: "), what


def test_the_network_is_out_of_reach():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        address = server.getsockname()
        outcome = ran(f"import socket\nsocket.create_connection({address!r})")
        assert (outcome.failure or "").startswith("PermissionError: socket.")
        with pytest.raises(TimeoutError):
            server.accept()


def test_secrets_and_files_stay_here(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    seen = "def holds(text):\n    import os\n    return ' '.join([*os.environ, os.getcwd()])"
    value = str(ran(seen, text="").value)
    assert "OPENAI_API_KEY" not in value and os.getcwd() not in value
    assert not Path(value.split()[-1]).exists()  # its folder went with it


def test_it_may_write_a_little_and_print_what_it_likes():
    assert ran("open('a', 'w').write('x' * 1000)\nassert len(open('a').read()) == 1000") == Outcome()
    assert "File too large" in (ran("open('a', 'w').write('x' * 10**6)").failure or "")
    assert ran("for _ in range(10**4): print('x' * 1000)") == Outcome()
    assert ran("from collections import namedtuple\nimport dataclasses, datetime, math, re, random, json") == Outcome()


def test_a_printed_report_is_none():
    forged = (
        "import os\nfor fd in range(32):\n    try: os.write(fd, b'{\"value\": true}\\n')\n    except OSError: pass\n"
    )
    with pytest.raises(CheckError, match="returned False|left early|the program failed|KeyError"):
        holds("x", type="program", source=forged + "os._exit(0)")


def test_a_sandbox_that_cannot_start_is_no_answer(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "executable", "/nowhere/python")
    with pytest.raises(CheckError, match="the sandbox could not be started"):
        holds(ADD, type="code")
