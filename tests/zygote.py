"""Programs in processes of their own that need not import torch, transformers and TRL first.

That import takes 10 to 15 seconds of a core, much of it vLLM, which TRL imports where it is installed. Here one
process for all workers of a run has done it, and forks for every program. A program has its own arguments,
environment, folder and output, and ends as it would by itself: only the libraries are there already. This package is
not among them. Where a test is about a fresh interpreter, use `subprocess`.

    code, written = run(["-m", "checklist_rewards.cli", "run", "rows.jsonl"], cwd=folder)
    code, written = run(["-m", "tests.zygote", "2", "script.py", "argument"])  # a script on ranks, as by torchrun

What is tested may start programs itself, as the app starts jobs. Give it `PYTHON` in place of the interpreter: a small
process that has such a program run in a fork, passes signals on to it, and ends as it ends.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
from pathlib import Path
from typing import IO

IMPORTS = """
accelerate aiohttp datasets fastapi httptools httpx pandas peft prometheus_client pyarrow.parquet pydantic regex
rich torch torch.distributed.run torch.utils.tensorboard transformers trl trl.cli trl.scripts.grpo
trl.experimental.online_dpo typer uvicorn yaml
""".split()
PYTHON = (sys.executable, "-P", __file__)
NAMES = {
    "transformers": ["AutoModelForCausalLM", "AutoTokenizer", "LlamaForCausalLM", "Trainer"],
    "trl": ["DPOTrainer", "GRPOTrainer", "RLOOTrainer"],
}
"""Both packages import what they offer when it is asked for."""


class Program:
    """A program that runs in a fork; the methods are those of `subprocess.Popen`.

    Args:
        arguments: those of `python`, with a script or `-m` and a module first.
        cwd, env: its folder and its whole environment; those of this process if left out.
        output: a file that gets what it writes, errors too, or `subprocess.PIPE`, which is then read as `stderr`; by
            default nothing does.
        errors: a file that gets the errors instead.
        session: whether it leads a session, which can be ended as a process group.
    """

    def __init__(self, arguments, *, cwd=None, env=None, output=None, errors=None, session=False):
        self.returncode: int | None = None
        request = {
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": session,
        }
        self.stderr: IO[str] | None = None
        self._replies = _connect()
        with contextlib.ExitStack() as files:
            if output is subprocess.PIPE:
                reads, writes = os.pipe()
                self.stderr, output = open(reads), files.enter_context(open(writes, "w"))
            elif output is None:
                output = files.enter_context(open(os.devnull, "w"))
            socket.send_fds(self._replies, [b"p"], [output.fileno(), (errors or output).fileno()])
        self._replies.sendall(json.dumps(request).encode() + b"\n")
        self._lines = self._replies.makefile()
        self.pid = int(self._lines.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wait()
        if self.stderr is not None:
            self.stderr.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with contextlib.suppress(TimeoutError):
            return self.wait(0.001)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal that ended it. Raises `TimeoutError` if it runs on."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._replies, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise TimeoutError(f"process {self.pid} runs on after {timeout} s")
            self.returncode = int(self._lines.readline())
            self._replies.close()
        return self.returncode


def run(arguments, *, cwd=None, env=None, timeout: float | None = None) -> tuple[int, str]:
    """Run a program to its end: its exit code, and what it wrote."""
    with tempfile.TemporaryFile("w+") as output:
        program = Program(arguments, cwd=cwd, env=env, output=output)
        try:
            code = program.wait(timeout)
        except TimeoutError:
            os.kill(program.pid, signal.SIGKILL)
            raise
        output.seek(0)
        return code, output.read()


def start() -> None:
    """Start the zygote of this run, if there is none. It is there until this process ends."""
    _connect().close()


def stand_in(arguments: list[str]) -> None:
    """Be this program: run it in a fork, pass signals on to it, and end as it ends."""
    program = Program(arguments, output=sys.stdout, errors=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(program.pid, number))
    code = program.wait()
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


_alive: list[socket.socket] = []
"""A connection that is open until this process ends. The zygote ends with the last of them."""


def _connect() -> socket.socket:
    """A connection to the zygote of this run, which is started if there is none."""
    folder = Path(os.environ["CHECKLIST_REWARDS_TESTS"])
    address = str(folder / "zygote")
    with (folder / "zygote.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            found = _open(address)
        except OSError:
            _start(address)
            found = _open(address)
        if not _alive:
            _alive.append(_open(address))
            _alive[0].sendall(b"a")
    return found


def _open(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def _start(address: str) -> None:
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        # No folder of the repository is in its path: programs find what their own paths have.
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(listening.fileno())],
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


# --- in the zygote


def serve(listening: socket.socket) -> None:
    """Fork for every program, as long as a process of the run is there."""
    import importlib
    import warnings

    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a driver that is in use does not survive a fork
    warnings.simplefilter("ignore")
    gc.disable()  # full collections take a quarter of the time of the imports
    for module in IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    for module, names in NAMES.items():
        for name in names:
            with contextlib.suppress(ImportError, RuntimeError):
                getattr(sys.modules[module], name)
    warnings.resetwarnings()
    if accelerate := sys.modules.get("accelerate.utils.imports"):  # as in conftest.py
        accelerate._is_package_available = functools.cache(accelerate._is_package_available)
    gc.collect()
    gc.freeze()  # else every collection of a fork copies what the imports have made
    gc.set_threshold(5_000, 10, 10)  # as in conftest.py
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers
    alive: set[socket.socket] = set()
    with selectors.DefaultSelector() as ready:
        ready.register(listening, selectors.EVENT_READ)
        while alive or len(ready.get_map()) == 1:
            for key, _ in ready.select():
                if key.fileobj is not listening:  # it has closed
                    ready.unregister(key.fileobj)
                    alive.discard(key.fileobj)
                    key.fileobj.close()
                    if not alive:
                        return
                    continue
                connection, _ = listening.accept()
                kind, files, _, _ = socket.recv_fds(connection, 1, 2)
                if kind == b"a":
                    alive.add(connection)
                    ready.register(connection, selectors.EVENT_READ)
                elif kind == b"p":
                    if os.fork() == 0:
                        listening.close()
                        for other in alive:
                            other.close()
                        return keep(connection, *files)
                    for file in files:
                        os.close(file)
                    connection.close()


def keep(connection: socket.socket, output: int, errors: int) -> None:
    """Fork once more and tell the client how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(connection.makefile().readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        if request["session"]:
            os.setsid()
        status = 1
        os.dup2(output, 1)
        os.dup2(errors, 2)
        os.close(output)
        os.close(errors)
        sys.stdout = open(1, "w", closefd=False)  # the old one remembers whether its file could seek
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ |= request["env"]
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        try:
            execute(request["arguments"])
            status = 0
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
            if isinstance(left.code, str):
                print(left.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:  # as the interpreter ends, but it need not free what the imports have made
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    try:
        connection.sendall(f"{pid}\n".encode())
        with selectors.DefaultSelector() as ready:
            for one in (connection, os.pidfd_open(pid)):
                ready.register(one, selectors.EVENT_READ)
            if any(key.fileobj is connection for key, _ in ready.select()):  # nobody waits for it any more
                (os.killpg if request["session"] else os.kill)(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    finally:
        os._exit(0)


def execute(arguments: list[str]) -> None:
    """Run a module or a script as the program of this process."""
    import runpy

    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def on_ranks(number: str, *arguments: str) -> None:
    """Run a script on ranks of this machine. The agent is that of torchrun, which forks its workers here."""
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, get_args_parser

    # For events that nothing records, it looks hundreds of times through all modules: two seconds of a core.
    dynamic_rendezvous.get_method_name = lambda depth=2: ""
    options = ["--nproc-per-node", number, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    options += ["--rdzv-id", uuid.uuid4().hex, "--start-method", "fork"]
    config, _, _ = config_from_args(get_args_parser().parse_args([*options, *arguments]))
    elastic_launch(config, execute)(list(arguments))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(socket.socket(fileno=int(sys.argv[1])))
    elif sys.argv[1] == "-m":
        stand_in(sys.argv[1:])
    else:
        on_ranks(*sys.argv[1:])
