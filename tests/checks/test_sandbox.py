"""What hostile code tries: to reach the host, to forge a yes, and to turn a no into no answer."""

import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checklist_rewards.checks import sandbox
from checklist_rewards.checks.sandbox import Execution, guests, run_code, run_program, unsafe
from checklist_rewards.errors import CheckError
from tests.conftest import HANG, REPO
from tests.waiting import until

ADD = "def add(a, b):\n    return a + b\n"
TESTS = "assert add(2, 3) == 5"


def ran(source, tests=TESTS, seconds=0.5, memory_mb=256):
    return run_code(source, tests, seconds=seconds, memory_mb=memory_mb)


START = """
import _posixsubprocess
def start(command, leaves):
    r, w = os.pipe()
    fds = (-1, -1, -1, -1, -1, -1, r, w)
    paths, command = [os.fsencode(command[0])], [os.fsencode(word) for word in command]
    _posixsubprocess.fork_exec(
        command, paths, True, (), None, [], *fds, False, leaves, -1, None, None, None, -1, None, True
    )
    os.close(w)
    os.read(r, 9)
"""
REACHES = {
    "a path of bytes": "open(os.fsencode({marker!r}), 'w').close()",
    "a folder's descriptor": "os.open({marker!r}[1:], os.O_CREAT | os.O_WRONLY, dir_fd=os.open(b'/', os.O_RDONLY))",
    "the library of the interpreter": "open({library!r}, 'w').close()",
    "a program": START
    + "start(['/bin/sh', '-c', 'echo > {marker}'], False)\nwhile not os.path.exists({marker!r}): pass",
    "a process that lives on": START + "start(['/bin/sh', '-c', 'echo > {marker}; sleep 9'], True)\n"
    "while not os.path.exists({marker!r}): pass",
    "the trainer, by a signal": "import signal\nsignal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGUSR1)",
    "a shell": "os.system('echo > {marker}')",
    "foreign functions": "import ctypes\nctypes.CDLL(None).creat({marker!r}.encode(), 0o600)",
    "the network": "import socket\nsocket.create_connection(('127.0.0.1', {port})).send(b'x')",
    "a fork": "while True: os.fork()",
}
SEEN = """
import os, sys
def holds(text):
    found = [*os.environ, *sys.argv[1:]]
    for path in ('/etc/passwd', '/proc/self/environ', '.', '..', '/', b'/etc'):
        try: found.append(open(path).read())
        except OSError: pass
        try: found += os.listdir(path)
        except OSError: pass
    return not found
"""


def test_files_variables_and_arguments_of_the_host_are_not_there(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert run_program(SEEN, "", seconds=1, memory_mb=128) == Execution("True")


@pytest.mark.parametrize("what", REACHES)
def test_nothing_of_the_host_is_in_reach(what, tmp_path, monkeypatch):
    signals = []
    before = signal.signal(signal.SIGUSR1, lambda *_: signals.append("received"))
    marker = tmp_path / "marker"
    library = Path(sysconfig.get_path("stdlib"), "checklist_rewards_was_here.py")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0.01)
            source = "import os\n" + REACHES[what].format(
                marker=str(marker), library=str(library), pid=os.getpid(), port=server.getsockname()[1]
            )
            assert ran(source + "\n" + ADD).failure is not None
            with pytest.raises(TimeoutError):
                server.accept()
        assert not marker.exists() and not library.exists() and not signals
    finally:
        signal.signal(signal.SIGUSR1, before)
        library.unlink(missing_ok=True)


WALK = """
import sys
frame = sys._getframe()
while 'CodeEnd' not in frame.f_globals: frame = frame.f_back
inside = frame.f_globals
End, CodeEnd = inside['End'], inside['CodeEnd']
"""
ANYTHING = """
class Anything:
    def __eq__(self, other): return True
    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = __eq__
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __round__ = __sub__
    def __abs__(self): return 0
    def __hash__(self): return hash(5)
    def __iter__(self): return iter(())
def add(a, b): return Anything()
"""
FORGES = {
    "an object that equals everything": ANYTHING,
    "a number that equals everything": "class N(int):\n    __eq__ = lambda a, b: True\ndef add(a, b): return N(-1)",
    "a subclass that compares": "class S(str):\n    __eq__ = lambda a, b: True\ndef add(a, b): return S('x')",
    "an exit before the tests": "import sys\nsys.exit(0)",
    "an end before the tests": "import os\nos._exit(0)",
    "an exit in the tests": "def add(a, b): raise SystemExit(0)",
    "an end in the tests": "import os\ndef add(a, b): os._exit(0)",
    "a printed report": "import sys\ndef add(a, b): print('r', flush=True)\nfor out in (sys.stdout, sys.stderr):\n"
    "    out.write('\\0\\0\\0\\0\\0\\0\\0\\1r')\n    out.flush()",
    "a report in place of the guest's": "import os\ndef add(a, b):\n"
    "    os.write(0, (1).to_bytes(8, 'big') + b'r')\n    os._exit(0)",
    "a report before the tests": "import os\nos.write(0, (1).to_bytes(8, 'big') + b'r')\n" + ADD.replace("+", "-"),
    "a report at the exit": "import atexit, os\natexit.register(os.write, 0, (1).to_bytes(8, 'big') + b'r')\n1 / 0",
    "other built-in functions": "import builtins\nbuiltins.print = builtins.repr = builtins.isinstance = "
    "lambda *_: True\nbuiltins.AssertionError = builtins.int = object\ndef add(a, b): return 4",
    "the names of built-in functions": "abs = all = any = len = set = sorted = bool = lambda *_: True\n"
    "class AssertionError(Exception): pass\ndef add(a, b): return 4",
    "another encoder": "import json\njson.dumps = json.JSONEncoder.encode = lambda *_, **__: '{\"value\": true}'\n"
    "def add(a, b): return 4",
    "a stop of the tests' loop": "def add(a, b): raise StopIteration",
    "the report function of any frame": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    if 'report' in frame.f_locals: frame.f_locals['report']({'value': True})\n    frame = frame.f_back\n1 / 0",
    "the report function of the guest": WALK
    + "inside['FAILED'] = inside['RAN']\ninside['told'] = lambda error: b''\n1/0",
    "an answer without a value": WALK + "CodeEnd.answer = lambda *_: inside['send'](b'pn;')\ndef add(a, b): return 4",
    "the tests' own built-in functions": WALK
    + "CodeEnd.defined = lambda self, names: ({'add': add, '__builtins__': {'AssertionError': Exception}}, {})\n"
    "def add(a, b): return 4",
    "the names the tests asked for": WALK + "old = End.encode\ndef encode(self, value):\n"
    "    if value[0] == 'done': value[2] = {0: ['add', '__builtins__'], 1: [5], -1: [5]}\n"
    "    return old(self, value)\nEnd.encode = encode\ndef add(a, b): return 4",
    "a class made in the tests": WALK + "class Made: pass\ndef add(a, b):\n"
    "    end = sys._getframe(3).f_locals['self']\n"
    "    return end.ask('call', type, 'Made', (), {'__eq__': bool, '__call__': bool})()",
    "a number made of an object": "def add(a, b): return Fraction()\nclass Fraction:\n    numerator = 1\n"
    "    def __reduce_ex__(self, _): return (Fraction, (object(),))\nFraction.__module__ = 'fractions'",
}


CHEATABLE = """
def passes(test):
    try:
        return test()
    except Exception:
        return False

assert any(
    map(
        passes,
        (
            lambda: add(2, 3) == 5,
            lambda: add("a", "b") == "ab",
            lambda: abs(add(0.5, 0.25) - 0.75) < 1e-6,
            lambda: all(map(lambda a: add(a, 1) == a + 1, [1, 2])),
            lambda: all(add(a, 1) == a + 1 for a in (1, 2)),
            lambda: add(1, 1) in (2,),
            lambda: 2 in [add(1, 1)],
            lambda: {add(1, 1)} == {2},
            lambda: sorted([add(1, 1), 1]) == [1, 2],
            lambda: not add(1, -1) and add(1, 1) > 1,
        ),
    )
)
"""


@pytest.mark.parametrize("what", FORGES)
def test_no_yes_is_forged(what):
    assert ran(FORGES[what], CHEATABLE).failure is not None


def test_what_forges_a_yes_in_one_interpreter():
    assert ran(ADD, CHEATABLE) == Execution()
    names: dict = {}
    exec(ANYTHING, names)
    exec(TESTS + "\nassert abs(add(0.5, 0.25) - 0.75) < 1e-6", names)


DROPS = {
    "kills itself": "import os\nos.kill(os.getpid(), 9)",
    "kills itself by a descriptor": "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getpid()), 9)",
    "reports a broken sandbox": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    if 'report' in frame.f_locals: frame.f_locals['report']({'broken': 'x'})\n    frame = frame.f_back\n1 / 0",
    "aborts": "import os\nos.abort()",
    "aborts in the tests": "import os\ndef add(a, b): os.abort()",
    "exhausts memory in the tests": "def add(a, b): return 'x' * 10**9",
    "says too much": "def add(a, b): return 'x' * 2 * 10**7",
    "recurses": "def f(): f()\nf()",
    "recurses in C": "import sys\nsys.setrecursionlimit(10**6)\ndef f(x): return max([x], key=f)\nf(1)",
    "returns a deep list": "def add(a, b):\n    deep = []\n    for _ in range(10**5): deep = [deep]\n    return deep",
    "never ends in the tests": "def add(a, b):\n    while True: pass",
    "reads the tests' messages": "import os\nos.read(0, 100)",
    "closes its files": "import os\nfor fd in range(9):\n    try: os.close(fd)\n    except OSError: pass\n1 / 0",
    "sends garbage": "import os\nos.write(0, b'garbage')\n" + ADD,
    "sends for ever": "import os\nwhile True: os.write(0, b'x' * 10**6)",
    "prints for ever": "import os\nwhile True: os.write(1, b'x')",
    "says that the tests are broken": WALK + "inside['FAILED'] = inside['RAN'] = inside['BROKEN']\n1 / 0",
    "says so in the tests": WALK
    + "def add(a, b): inside['send'](inside['BROKEN'])\nCodeEnd.answer = lambda *_: add(1, 1)",
    "lacks a module": "import numpy",
    "lacks a module in the tests": "def add(a, b): import numpy",
    "claims that a module is missing": WALK + "CodeEnd.defined = lambda self, names: ({}, {'add': 'nothing'})",
    "claims to be the tests": "class Unsendable(TypeError): pass\ndef add(a, b): raise Unsendable('x')",
    "breaks its interpreter": "code = (lambda: 0).__code__.replace(co_code=bytes(range(100, 200)), co_consts=())\n"
    "exec(code)",
}


@pytest.mark.parametrize("what", DROPS)
def test_a_no_stays_a_no(what):
    assert ran(DROPS[what]).failure is not None


def test_checks_side_by_side_know_nothing_of_each_other():
    mark = "import builtins\nassert not hasattr(builtins, 'seen')\nbuiltins.seen = 1\n"
    with ThreadPoolExecutor(3) as pool:
        outcomes = pool.map(lambda n: ran(f"{mark}def number(): return {n}", f"assert number() == {n}"), range(4))
    assert list(outcomes) == [Execution()] * 4
    for thread in threading.enumerate():  # none is left
        if thread.name == "guest":
            thread.join(HANG)
            assert not thread.is_alive()


def test_a_guest_that_aborts_leaves_the_process_alive_when_signal_handlers_are_replaced():
    """Ray and test runners enable the fault handler at any time."""
    host = """
import faulthandler
from checklist_rewards.checks.sandbox import run_code
print(run_code("x = 1", seconds=0.5, memory_mb=256).failure)
faulthandler.enable()
print(run_code("import os; os.abort()", seconds=0.5, memory_mb=256).failure)
"""
    done = subprocess.run([sys.executable, "-c", host], capture_output=True, text=True, cwd=REPO)
    assert done.stdout == "None\ncrashed\n", done.stderr


def test_a_limit_of_address_space_is_the_reason_and_no_missing_package():
    host = """
import resource
from checklist_rewards.checks import sandbox
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))  # as `ulimit -v`, and h_vmem of Grid Engine
print(sandbox.unavailable())
"""
    done = subprocess.run([sys.executable, "-c", host], capture_output=True, text=True, cwd=REPO)
    [reason] = done.stdout.splitlines()
    assert "Cannot allocate memory" in reason and "pip install" not in reason


def test_another_binary_is_not_run(monkeypatch):
    monkeypatch.setattr(guests, "_BINARY", "0" * 64)
    monkeypatch.setattr(guests, "_load", guests._load.__wrapped__)
    assert "is not the expected file" in guests.unavailable()
    with pytest.raises(CheckError, match="could not be started"):
        ran(ADD)


@pytest.fixture
def patient(monkeypatch):
    """A plain process is limited in seconds of a core; how long it takes on a busy machine does not matter here."""
    monkeypatch.setattr(guests, "WAIT_SECONDS", HANG)


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        (ADD, None),
        (ANYTHING, "AssertionError: "),
        ("import os\nos._exit(0)", "left early"),
        ("import os\nos.kill(os.getpid(), 9)", "killed"),
        ("while True: pass", "out of time"),
        ("a = []\nwhile True: a.append('x' * 10**6)", "out of memory"),
    ],
)
def test_in_a_plain_process_the_answers_are_the_same(patient, source, failure):
    with unsafe(True):
        seconds = 0.5 if failure == "out of time" else 10
        assert ran(source, seconds=seconds, memory_mb=128) == Execution(failure=failure)


def test_what_a_plain_process_starts_in_its_session_ends_with_it(patient, tmp_path):
    note = tmp_path / "pid"
    starts = f"import subprocess\nopen({str(note)!r}, 'w').write(str(subprocess.Popen(['/bin/sleep', '600']).pid))\n"
    with unsafe(True):
        assert ran(starts + ADD, seconds=10) == Execution()
    try:
        started = os.pidfd_open(int(note.read_text()))
    except ProcessLookupError:
        return
    ended, _, _ = select.select([started], [], [], 60)
    os.close(started)
    assert ended


def test_a_plain_process_gets_no_environment_and_its_folder_is_removed(patient, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    seen = "import os\ndef holds(text): return os.environ.get('OPENAI_API_KEY') is None and os.listdir('.') == []"
    with unsafe(True):
        assert run_program(seen, "", seconds=1, memory_mb=256) == Execution("True")


def test_guests_together_take_no_more_memory_than_there_is_in_the_order_of_asking():
    memory, order, go = sandbox.Memory(100), [], threading.Event()

    def take(part):
        with memory(part):
            order.append((part, memory.taken_mb))
            assert part != 60 or go.wait(HANG)

    threads = []
    for part in (60, 500, 10):
        threads.append(threading.Thread(target=take, args=(part,)))
        threads[-1].start()
        until(lambda: len(order) + len(memory._waiting) == len(threads))
    assert order == [(60, 60)], "the small one does not overtake"
    go.set()
    for thread in threads:
        thread.join(HANG)
    # One part may be larger than all if the others have none.
    assert order == [(60, 60), (500, 500), (10, 10)] and memory.taken_mb == 0


def test_half_of_the_machine_is_for_guests():
    assert 0 < sandbox._memory.most_mb <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**21
