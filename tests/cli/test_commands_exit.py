"""Commands run to the end of their process, as a user runs them for the first time: the home folder is empty."""

import json
import os
import re
import signal
import urllib.error
import urllib.request
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.judges import LogprobJudge
from tests.conftest import HANG, REPO
from tests.evaluation.files import scored_file
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl
from tests.waiting import until
from tests.zygote import Program, run

FIRST = """
import atexit, multiprocessing.util, sys, weakref

if __name__ == "__main__":
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]  # the real one
    # The order of exit handlers if a packaged model is prepared first, in a TemporaryDirectory. Handlers run in
    # reverse order, so multiprocessing waits for the engine before a finalizer stops it.
    for handler in (weakref.finalize._exitfunc, multiprocessing.util._exit_function):
        atexit.unregister(handler)
        atexit.register(handler)
    {}
"""
A_COMMAND = "from checklist_rewards.cli import main; main()"
ON_VLLM = "--model pocket --backend vllm"
COMMANDS = {
    "generate": f"prompts.jsonl -o out.jsonl {ON_VLLM}",
    "run": f"texts.jsonl -o out.jsonl {ON_VLLM}",
    "score": f"texts.jsonl -o out.jsonl {ON_VLLM}",
    "rerank": f"candidates.jsonl -o out.jsonl {ON_VLLM}",
    "pairs": f"candidates.jsonl -o out.jsonl {ON_VLLM}",
    "refine": f"texts.jsonl -o out.jsonl --method critique {ON_VLLM}",
    "replay": f"scored.jsonl -o out.jsonl {ON_VLLM}",
    "probe": ON_VLLM,
    "attack": f"checklists.jsonl -o attack.json {ON_VLLM}",
    "inspect": f"checklists.jsonl --policy.model pocket --n 2 {ON_VLLM}",
    "calibrate": f"reads.jsonl -o map.json --contextual {ON_VLLM}",
    "improve": f"checklist.json --data labelled.jsonl -o out.json --bootstrap 50 {ON_VLLM}",
}
"""Every command that loads a model in its own process, with arguments."""
ITEMS = ["Is it about rain?", "Is it short?"]


class Runs:
    """Starts programs in an empty home folder, with the stand-in for vLLM."""

    def __init__(self, folder: Path):
        self.folder, self.mark, self.log = folder, uuid.uuid4().hex, folder / "engine.log"

    @property
    def environment(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
        return given | {"HOME": str(self.folder / "home"), "PYTHONPATH": str(REPO), "OF_TEST": self.mark}

    def start(self, *arguments: object, waits: str = "", code: str = A_COMMAND) -> Program:
        standin = {"PYTHONPATH": f"{REPO}/tests/standin:{REPO}", "STANDIN_VLLM_LOG": str(self.log)}
        environment = {**self.environment, **standin, "STANDIN_VLLM_WAITS": waits}
        script = self.folder / "script.py"
        script.write_text(FIRST.format(code.replace("\n", "\n    ")))
        with (self.folder / "written").open("w") as written:
            return Program([script, *arguments], cwd=self.folder, env=environment, output=written)

    @property
    def written(self) -> str:
        return (self.folder / "written").read_text()

    def reached(self, place: str) -> bool:
        """Whether an engine is there: "load" or "generate"."""
        return self.log.is_file() and place in self.log.read_text().split()

    def left(self) -> list[str]:
        """The processes of the engine that are still running. They have a mark in their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"OF_TEST={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(folder.name)
            except OSError:  # it has ended, or belongs to another user
                continue
        return found


@pytest.fixture
def runs(tmp_path):
    write_jsonl(tmp_path / "prompts.jsonl", {"input": "Write about rain."})
    rows = [{"input": f"Write about rain {n}.", "checklist": ITEMS} for n in range(6)]
    write_jsonl(tmp_path / "checklists.jsonl", *rows)
    text = rows[0] | {"target": "Rain falls."}
    write_jsonl(tmp_path / "texts.jsonl", text)
    write_jsonl(tmp_path / "candidates.jsonl", text | {"candidates": ["Rain falls.", "No."]})
    score = ChecklistScorer(judge=LogprobJudge(Engine("pocket", FakeBackend())), store=False)
    scored = score.score(ITEMS, "Rain falls.", "Write about rain 0.").model_dump(mode="json")
    write_jsonl(tmp_path / "scored.jsonl", text | {"checklist_score": scored})
    reads = (text | {"id": n, "said": [0.3, 0.6] if n % 2 else [0.5, 0.5], "labels": [0, n % 2]} for n in range(12))
    scored_file(tmp_path / "reads.jsonl", *reads, judge="pocket")
    (tmp_path / "checklist.json").write_text(json.dumps({"items": [{"question": item} for item in ITEMS]}))
    labelled = ({"input": f"Write {n // 2}.", "target": f"Text {n}.", "label": n % 2} for n in range(64))
    write_jsonl(tmp_path / "labelled.jsonl", *labelled)
    (tmp_path / "home").mkdir()
    runs = Runs(tmp_path)
    yield runs
    for pid in runs.left():
        os.kill(int(pid), signal.SIGKILL)


WRITES = """
from checklist_rewards import build_checklists

if __name__ == "__main__":
    build_checklists(["Write about rain."], model="pocket").to_json("out.jsonl")
"""
CLI = "-m checklist_rewards.cli"
WITH_DEFAULTS = {
    "a command": f"{CLI} rerank checklists.jsonl -o out.jsonl --model pocket --policy.model pocket",
    "a script": "writes.py",
}
"""Nothing else is set. The pocket model is named because there is no default model; it runs in transformers."""


@pytest.mark.parametrize("name", WITH_DEFAULTS)
def test_with_the_defaults_it_ends_writes_one_file_and_asks_nothing_twice(runs, name):
    """In an environment without the variables of `conftest.py`: the store, threads and caches are as users have them.

    A second run finds all answers in the store, and replaces the file with an equal one.
    """
    (runs.folder / "writes.py").write_text(WRITES)
    home = runs.folder / "home"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPO)}
    before, written = {path.name for path in runs.folder.iterdir()}, []
    for _ in range(2):
        code, shown = run(WITH_DEFAULTS[name].split(), cwd=runs.folder, env=environment, timeout=HANG)
        assert code == 0, shown
        assert "Loading weights" not in shown and "Traceback" not in shown
        written.append((runs.folder / "out.jsonl").read_text())
    assert written[0] == written[1] != "" and {path.name for path in runs.folder.iterdir()} == before | {"out.jsonl"}
    files = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert all(name.startswith(".cache/checklist-rewards/store.sqlite") for name in files), files


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_with_its_engine(runs, command):
    code = runs.start(command, *COMMANDS[command].split()).wait(HANG)
    assert code in (0, 1) and runs.reached("load"), runs.written  # 1: the stand-in is not a good judge
    until(lambda: not runs.left(), seconds=30)  # the resource tracker notices that its pipe is closed


@pytest.mark.parametrize(
    ("sent", "code", "place"),
    [("SIGTERM", -15, "load"), ("SIGTERM", -15, "generate"), ("SIGINT", 130, "load"), ("SIGINT", 130, "generate")]
    + [("SIGKILL", -9, "generate")],
)
def test_a_command_that_is_stopped_leaves_no_process(runs, sent, code, place):
    process = runs.start("score", *COMMANDS["score"].split(), waits=place)
    until(lambda: runs.reached(place))
    process.send_signal(getattr(signal, sent))
    assert process.wait(HANG) == code, runs.written
    until(lambda: not runs.left(), seconds=30)


def test_a_server_that_is_stopped_leaves_no_process(runs):
    pytest.importorskip("uvicorn")
    process = runs.start("serve", "--port", "0", *ON_VLLM.split())
    [address] = until(lambda: re.findall(r"http://127[^\s;]+", runs.written))
    row = {"target": "Rain falls.", "checklist": ITEMS}
    until(lambda: answers(f"{address}/health"))
    assert answers(f"{address}/score", {"samples": [row]}) and runs.reached("load"), runs.written
    process.send_signal(signal.SIGTERM)
    process.wait(HANG)
    until(lambda: not runs.left(), seconds=30)


def answers(address: str, body: dict | None = None) -> bool:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False


SCRIPT = """
from checklist_rewards import ChecklistScorer
scorer = ChecklistScorer("pocket", backend="vllm", store=False)
print(scorer.score(["Is it short?"], "Rain falls.").answered)
"""


@pytest.mark.parametrize(
    ("code", "ends", "reached"),
    [
        (SCRIPT, 0, "generate"),
        (f"{SCRIPT}raise ValueError", 1, "generate"),
        (f"{SCRIPT}sys.exit(3)", 3, "generate"),
        (f"from checklist_rewards.backends import vllm\nvllm.load_chat_tokenizer = None\n{SCRIPT}", 1, "load"),
    ],
    ids=["at its end", "with an error", "with its own code", "with an engine that cannot be used"],
)
def test_a_script_ends_with_its_engine(runs, code, ends, reached):
    assert runs.start(code=code).wait(HANG) == ends, runs.written
    assert runs.reached(reached) and ("cannot be loaded with vLLM" in runs.written) == (reached == "load")
    until(lambda: not runs.left(), seconds=30)


@pytest.mark.vllm
@pytest.mark.slow
def test_the_first_command_of_a_user_ends(runs, smollm2):
    """The model is prepared in a home that has SmolLM2 only, and vLLM answers from an engine in a fresh process.
    What vLLM found out about its architectures in other tests, in processes that it starts for this, is there."""
    if absent := [name for name in ("vllm", "peft") if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(absent)}")
    models = Path(runs.environment["HOME"]) / ".cache/checklist-rewards/models"
    models.mkdir(parents=True)
    (models / Path(smollm2).name).symlink_to(smollm2)
    environment = runs.environment | {"VLLM_CACHE_ROOT": f"{os.environ['XDG_CACHE_HOME']}/vllm"}
    # One row on a CPU would be written with transformers. vLLM warms up with 4096 tokens by default.
    options = "--pipeline english --backend vllm --engine-args max_num_batched_tokens=1024"
    command = f"{CLI} generate prompts.jsonl -o out.jsonl {options}".split()
    code, shown = run(command, cwd=runs.folder, env=environment, timeout=2 * HANG)
    assert code == 0 and "preparing the model 'english-writer'" in shown, shown
    until(lambda: not runs.left(), seconds=30)
