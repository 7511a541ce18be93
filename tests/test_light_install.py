"""The wheel without extras, in an environment of its own, as in a host that pins its own torch and transformers.

Its dependencies are links to the packages of this environment, so that nothing is downloaded or compiled again. The
last tests add the extra `ui` to the same environment: the app starts, shows its page and a report, and judges without
torch. So they stand at the end of this file, after the tests of what works without an extra.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PathDistribution, distribution, distributions
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from tests.conftest import HANG, REPO
from tests.test_light import OF_EXTRAS
from tests.ui.files import scored_rows, write
from tests.waiting import printed, until
from tests.zygote import Program

pytestmark = pytest.mark.slow

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
ROW = {
    "prompt": "Name a colour.",
    "target": "blue",
    "checklist": ["Is it fine (yes)?", "Is it red (no)?"],
    "human": ["yes", "no"],
}
WORDS = {"question": "Is it short?", "check": {"type": "words", "at_most": 3}}


ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from checklist_rewards.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["checklist-rewards", *arguments]
    code, out, errors = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
    print(json.dumps([code, out.getvalue(), errors.getvalue()]))
"""
"""Runs several commands in one process: most of the time of a command is its imports."""


def link_needed(package: PathDistribution, extra: str, site: Path) -> None:
    """Link what a package needs with an extra into the folder `site`: the packages of this environment."""
    for requirement in map(Requirement, package.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            needed = package if requirement.name == package.name else distribution(requirement.name)
            assert needed.version in requirement.specifier, f"{needed.name} {needed.version} is not {requirement}"
            new = False
            for name in {file.parts[0] for file in needed.files or () if file.parts[0] != ".."}:
                if not (site / name).exists():
                    (site / name).symlink_to(needed.locate_file(name))
                    new = True
            if new or requirement.extras:
                for each in requirement.extras or {""}:
                    link_needed(needed, each, site)


@pytest.fixture(scope="module")
def light(tmp_path_factory, wheel) -> SimpleNamespace:
    """An environment with the wheel without extras: `run(program, *arguments)`, `python(code, *arguments)` and
    several `commands` run there, in `folder`, with the variables `environment`; `bin` has its programs;
    `install(extra)` adds an extra."""
    folder = tmp_path_factory.mktemp("light")
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    there = [*PIP, "--python", home / "bin" / "python", "install", "--no-compile", "--no-index", "--no-deps"]
    subprocess.run([*there, wheel], check=True)
    [site] = home.glob("lib/python*/site-packages")

    def install(extra: str = "") -> None:
        [package] = (found for found in distributions(path=[str(site)]) if found.name == "checklist-rewards")
        link_needed(package, extra, site)

    install()
    shutil.copy(REPO / "tests" / "rewards" / "hosts.py", folder)  # minimal frameworks for the integrations
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "OPENAI_API_KEY": "none", "COLUMNS": "200"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )

    def python(code: str, *arguments: object) -> str:
        done = run(home / "bin" / "python", "-c", code, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commands(*each: Sequence[str]) -> list[tuple[int, str, str]]:
        """The exit code, output and errors of each."""
        return [tuple(json.loads(line)) for line in python(ONE_AFTER_THE_OTHER, json.dumps(each)).splitlines()]

    given = dict(folder=folder, run=run, python=python, commands=commands, environment=environment)
    return SimpleNamespace(**given, bin=home / "bin", install=install)


@pytest.fixture(scope="module")
def scored(light, fault_server) -> SimpleNamespace:
    """The environment, with rows.jsonl and scored.jsonl in its folder."""
    (light.folder / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    judge = ("--model", "valid", "--base-url", fault_server)
    done = light.run(light.bin / "checklist-rewards", "score", "rows.jsonl", "-o", "scored.jsonl", *judge)
    assert done.returncode == 0, done.stderr
    return light


@pytest.fixture(scope="module")
def reward_server() -> Iterator[str]:
    """Address of `checklist-rewards serve` with the pocket judge, in the full environment."""
    pytest.importorskip("fastapi")
    command = "-m checklist_rewards.cli serve --model pocket --port 0 --no-store --backend transformers".split()
    with Program(command, cwd=REPO, output=subprocess.PIPE) as process:
        yield printed(process, r"http://[^\s;]+")[0]
        process.terminate()


def test_without_any_library_of_an_extra_code_checks_and_a_served_judge_work(light, fault_server):
    code = """
import json, sys
from importlib.util import find_spec
import checklist_rewards
from checklist_rewards import BatchScore, Checklist, ChecklistScorer, Score

assert "site-packages" in checklist_rewards.__file__
checklist = Checklist.parse([
    {"question": "Is it short?", "check": {"type": "words", "at_most": 3}},
    {"question": "Does it start with a capital?", "check": {"type": "regex", "pattern": "^[A-Z]", "at_least": 1}},
])
scorer = ChecklistScorer(store=False)  # code answers, so no model is needed
score = scorer.score(checklist, "two words")
assert [item.answer for item in score.items] == ["yes", "no"], score
BatchScore([score], [{"a": 1}]).to_jsonl("batch.jsonl")
assert list(BatchScore.from_jsonl("batch.jsonl").scores) == [score]
for settings in ({"capture_reasoning": True}, {"mode": "quality"}):
    scorer = ChecklistScorer("valid", base_url=sys.argv[1], store=False, **settings)
    score = scorer.score(["Is it fine (yes)?", "Is it red (no)?"], target="blue", input="Name a colour.")
    assert [item.answer for item in score.items] == ["yes", "no"], (settings, score)
print(json.dumps([name for name in sys.argv[2:] if find_spec(name)]))
"""
    assert json.loads(light.python(code, fault_server, *OF_EXTRAS)) == []


def test_the_command_line_works_on_jsonl_and_csv(scored, fault_server):
    judge = ("--model", "valid", "--base-url", fault_server)
    for code, *shown in scored.commands(
        ("run", "rows.jsonl", "-o", "run.csv", *judge),
        ("checklists", "import", "rows.jsonl", "-o", "imported.jsonl"),
        ("lint", "rows.jsonl"),
        ("list",),
        ("--help",),
    ):
        assert code == 0, shown
    row = json.loads((scored.folder / "scored.jsonl").read_text())
    assert [item["answer"] for item in row["checklist_score"]["items"]] == ["yes", "no"]


def test_what_needs_an_extra_names_it_in_one_sentence(scored, fault_server):
    served = ("--model", "m", "--base-url", fault_server)
    extras = {
        ("score", "rows.jsonl", "-o", "o.jsonl", "--model", "pocket"): "checklist-rewards[trl]",
        ("score", "rows.jsonl", "-o", "o.jsonl", "--model", "pocket", "--backend", "vllm"): "checklist-rewards[vllm]",
        ("score", "rows.parquet", "-o", "o.jsonl", *served): "rewards[datasets]",
        ("score", "rows.jsonl", "-o", "o.parquet", *served): "rewards[datasets]",
        ("agree", "scored.jsonl", "--label-key", "human"): "checklist-rewards[evaluation]",
        ("distill", "scored.jsonl", "-o", "judge"): "checklist-rewards[encoder]",
        ("serve",): "checklist-rewards[serve]",
        ("demo",): "checklist-rewards[recipes]",
    }
    for (code, _, errors), (arguments, extra) in zip(scored.commands(*extras), extras.items(), strict=True):
        assert code == 2 and "Traceback" not in errors, (arguments, errors)
        assert errors.startswith("error: ") and extra in "".join(errors.split("\n")), (arguments, errors)


def test_every_integration_is_imported_and_rewards(light, reward_server):
    (light.folder / "reward.yaml").write_text(f"backend: remote\nbase_url: {reward_server}\n")
    names = sorted(path.stem for path in (REPO / "checklist_rewards/rewards/integrations").glob("[a-z]*.py"))
    assert {"areal", "nemo_rl", "open_instruct", "openrlhf", "skyrl", "swift", "verifiers", "verl"} <= set(names)
    light.python(
        """
import asyncio, importlib, os, sys
from types import SimpleNamespace
sys.path.insert(0, "")
from hosts import host_modules, verl_reward_loop
sys.modules.update(host_modules())
server, *names = sys.argv[1:]
os.environ["CHECKLIST_REWARDS_CONFIG"] = "reward.yaml"
here = {name: importlib.import_module(f"checklist_rewards.rewards.integrations.{name}") for name in names}
label, text = ["Does the response end with a question mark?"], "is it old?"
remote = {"backend": "remote", "base_url": server}
[verl] = verl_reward_loop(here["verl"].ChecklistComputeScore(**remote).compute_score_async, [text], label)
env = here["skyrl"].ChecklistEnv({}, {"reward_spec": {"ground_truth": label}})
env.init("Ask something.")
skyrl = env.step(text)["reward"]
open_instruct = here["open_instruct"].ChecklistVerifier()([], text, label, "Ask something.").score
task = SimpleNamespace(checklist=label, prompt_text="Ask something.")
verifiers = asyncio.run(here["verifiers"].ChecklistJudge().score(task, SimpleNamespace(last_reply=text)))
messages = [{"role": "user", "content": "Ask something."}, {"role": "assistant", "content": text}]
[swift] = here["swift"].ChecklistORM()([text], messages=[messages], checklist=[label])
areal = here["areal"].checklist_reward("Ask something.", text, [1], [2], checklist=label)
rewards = {"verl": verl, "skyrl": skyrl, "open_instruct": open_instruct, "verifiers": verifiers, "swift": swift}
assert all(0.5 < reward <= 1 for reward in (*rewards.values(), areal)), (rewards, areal)

from checklist_rewards.rewards.trl import ChecklistReward
[reward] = ChecklistReward(**remote)(prompts=["Ask something."], completions=[text], checklist=[label])
assert 0.5 < reward <= 1
assert not {"torch", "transformers", "trl", "datasets", "accelerate", "numpy"} & set(sys.modules)
""",
        reward_server,
        *names,
    )


@pytest.fixture(scope="module")
def app(light, fault_server):
    """A client of the app, whose judge is a server, after the extra `ui` is installed."""
    httpx = pytest.importorskip("httpx")
    light.install("ui")
    project = light.folder / "project"
    project.mkdir()
    write(project / "scored.jsonl", scored_rows(20))
    write(project / "rows.jsonl", [{"prompt": "p", "target": "blue", "checklist": ["Is it fine (yes)?"]}])
    light.python("import importlib.util as u; assert not u.find_spec('torch') and not u.find_spec('transformers')")
    command = [light.bin / "checklist-rewards", "ui", project, "--port=0", "--no-browser", "--no-store"]
    command += ["--model=valid", f"--base-url={fault_server}"]
    environment = light.environment | {"COLUMNS": "400"}
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment) as server:
        found = printed(server, r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)")
        headers = {"x-checklist-rewards-token": found[2]}
        with httpx.Client(base_url=found[1], headers=headers, timeout=HANG, trust_env=False) as client:
            client.params = {"token": found[2]}
            yield client
        server.send_signal(signal.SIGINT)
        assert server.wait(HANG) == 0


def test_the_app_reports_judges_and_runs_jobs(app):
    assert "app.js" in app.get("/").text and app.get("/static/app.js").status_code == 200
    report = app.get("/api/report", params={"file": "scored.jsonl"}).json()
    assert report["files"][0]["overview"]["rows"] == 20 and report["files"][0]["analysis"]["sections"]

    body = {"target": "two words", "checklist": [WORDS, "Is it fine (yes)?", "Is it red (no)?"]}
    events = [json.loads(line) for line in app.post("/api/judge", json=body).text.splitlines()]
    assert [item["answer"] for item in events[-1]["score"]["items"]] == ["yes", "yes", "no"]

    created = app.post("/api/jobs", json={"file": "rows.jsonl", "output": "out.jsonl"})
    assert created.status_code == 200, created.text
    until(lambda: app.get("/api/jobs").json()["jobs"][0]["state"] not in ("new", "running"))
    [job] = app.get("/api/jobs").json()["jobs"]
    assert (job["state"], job["summary"]["mean_score"]) == ("done", pytest.approx(0.94, abs=0.01)), job["message"]

    queue = app.get("/api/annotate/queue", params={"file": "rows.jsonl", "annotator": "ann"}).json()
    assert len(queue["rows"]) == 1
