"""`pytest -p tests.forks --forks 4`: tests in processes that are forked once all tests are imported and collected.

Each worker of pytest-xdist would import and collect for itself: 10 seconds of a core, and 30 where no compiled modules
are there yet. A worker takes a group of tests whenever it is free: the tests of a file, or those that share an engine
or a browser. Groups start in the order of the collection. Fixtures of the session exist once in every worker.
"""

import atexit
import os
import signal
import sys
import traceback
import warnings
import weakref
from multiprocessing.connection import Connection, Pipe, wait

import pytest


def pytest_addoption(parser):
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    config = session.config
    if not config.option.forks or config.option.collectonly or session.testsfailed:
        return None
    groups: dict = {}
    for item in session.items:
        groups.setdefault(group_of(item), []).append(item)
    free, todo = os.pipe()  # numbers of groups, of which each worker takes one after the other
    os.write(todo, b"".join(place.to_bytes(4, "big") for place in range(len(groups))))
    os.close(todo)
    config.pluginmanager.get_plugin("terminalreporter").showfspath = False  # tests of several files take turns
    workers = {}
    for number in range(min(config.option.forks, len(groups))):
        receives, sends = Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            receives.close()
            work(session, number, list(groups.values()), free, sends)
        sends.close()
        workers[receives] = pid
    os.close(free)
    try:
        follow(session, workers)
    finally:
        for pid in workers.values():
            os.kill(pid, signal.SIGINT)
        while workers and (ended := wait(workers, 60)):
            for connection in ended:
                try:
                    connection.recv()
                except EOFError:
                    os.waitpid(workers.pop(connection), 0)
        for pid in workers.values():
            os.kill(pid, signal.SIGKILL)
    return True


def group_of(item):
    """What a test shares with others, or its file."""
    if item.get_closest_marker("vllm"):
        return "vllm"
    return "chromium" if "chromium" in item.fixturenames else item.path


def follow(session, workers):
    """Pass on what workers send, until all have ended or the run must stop. `workers` keeps those that run."""
    running = {}
    while workers:
        for connection in wait(workers):
            try:
                name, given = connection.recv()
            except EOFError:
                _, status = os.waitpid(workers.pop(connection), 0)
                if status and connection in running:
                    reason = f"The process of this test ended with {os.waitstatus_to_exitcode(status)}."
                    failed(session.config, running[connection], f"{reason} The other tests of its file did not run.")
                elif status:
                    raise RuntimeError("a worker ended before its first test") from None
                continue
            if name == "pytest_runtest_logstart":
                running[connection] = given["nodeid"]
            if name == "failed":
                failed(session.config, running.get(connection, "a worker"), given["text"])
            else:
                pass_on(session.config, name, given)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def pass_on(config, name, given):
    """Call the hook that a worker has called."""
    hook = getattr(config.hook, name)
    if name == "pytest_runtest_logreport":
        hook(report=config.hook.pytest_report_from_serializable(config=config, data=given["report"]))
    elif name == "pytest_warning_recorded":
        category = type(given.pop("category"), (Warning,), {})
        message = warnings.WarningMessage(given.pop("text"), category, *given.pop("place"))
        hook.call_historic(kwargs={**given, "warning_message": message})
    else:
        hook(**given)


def failed(config, nodeid, text):
    """Report a failure that no report of a test tells."""
    report = pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", text, "call")
    config.hook.pytest_runtest_logreport(report=report)


class Sender:
    """In a worker, in the place of the terminal: sends what happens to the first process."""

    def __init__(self, config, connection: Connection):
        self._config, self._connection = config, connection
        self._tw = config.get_terminal_writer()  # where pytest-timeout writes the stacks of a test that hangs

    def send(self, name, **given):
        self._connection.send((name, given))

    def pytest_runtest_logstart(self, nodeid, location):
        self.send("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logfinish(self, nodeid, location):
        self.send("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report):
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.send("pytest_runtest_logreport", report=data)

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        text, category = str(warning_message.message), warning_message.category.__name__
        place = (warning_message.filename, warning_message.lineno)
        self.send(
            "pytest_warning_recorded",
            text=text,
            category=category,
            place=place,
            when=when,
            nodeid=nodeid,
            location=location,
        )


def work(session, number, groups, free, connection):
    """Run groups until none is left, and end this process."""
    config, status = session.config, 1
    weakref.finalize._registry.clear()  # temporary folders of the first process are there until that ends
    try:
        sender = Sender(config, connection)
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(sender, "terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        capture.stop_global_capturing()  # its files are those of all workers
        capture.start_global_capturing()
        capture.suspend_global_capture()
        folders = config._tmp_path_factory
        folders._basetemp = folders.mktemp(f"worker{number}", numbered=False)
        while place := os.read(free, 4):
            items = groups[int.from_bytes(place, "big")]
            for item, following in zip(items, [*items[1:], session], strict=True):  # the session's fixtures stay
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session._setupstate.teardown_exact(None)
        status = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:
        sender.send("failed", text=traceback.format_exc())
        status = 0
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
