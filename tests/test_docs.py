"""Every code block of the README and the documentation runs here, or says in a comment before it why not.

Python blocks of one page run in order, in one namespace and one folder. Commands are parsed by the real command line,
and run where their input files are there. Models are small folders that hold the pocket model, and no server is asked:
names of models and addresses are replaced in the text before it runs. Trainers get small settings.
"""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pocket.world import tasks
from typer.main import get_command
from typer.testing import CliRunner

from checklist_rewards import Checklist
from checklist_rewards.backends import pocket_dir
from checklist_rewards.cli import app
from checklist_rewards.pipelines import builtin
from checklist_rewards.pipelines.registry import GENERATORS, REFINERS, SCORERS
from tests.conftest import REPO

PAGES = [REPO / "README.md", *sorted(REPO.glob("docs/*.md")), *sorted(REPO.glob("docs/studies/*.md"))]
PAGES += [REPO / "CONTRIBUTING.md", REPO / "SECURITY.md"]
NOTEBOOKS = sorted(REPO.glob("docs/notebooks/*.ipynb"))
GENERATED = {"cli.md", "pocket.md", "changelog.md", "contributing.md", "security.md"}
GENERATED |= {f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
"""Pages that `docs/site.py` makes, relative to `docs/`."""
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n+)?^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.M | re.S
)
MODEL = re.compile(r"\b(?:org|Qwen|some)/[\w.-]+")
SERVER = re.compile(r""",?\s*base_url[=:] ?(?:SERVER|"?https?://[^\s"})]+"?)|\s--base-url (?:http\S+|openrouter)""")
WRITTEN = ("-o", "--output", "--plot", "--plots", "--json", "--card", "--summary")
PARSED = {"distill", "refine", "rerank", "demo", "serve", "ui", "--pipeline", "--refiner", "--judge", "--engine-args"}
PARSED |= {"remote", "--concurrency", "my_judge", "--ray"}
"""Commands with one of these are parsed and not run: they take long, or the pocket model cannot do it."""
SMALL = dict(
    max_steps=1,  # pages train for epochs
    per_device_train_batch_size=8,  # pages set that of a GPU
    use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
    bf16=False,  # slow on a CPU
    save_strategy="no",  # pages read no checkpoint
)


@dataclass(frozen=True)
class Block:
    """One block of code."""

    where: str
    line: int
    language: str
    title: str | None
    code: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, rest = match["info"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        line = text[: match.start("code")].count("\n")
        where = f"{page.relative_to(REPO)}:{line}"
        found.append(Block(where, line, language, title and title[1], match["code"], match["reason"]))
    assert len(re.findall(r"^\s*```", text, re.M)) == 2 * len(found), f"{page}: a block that cannot be read"
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with the files that the pages speak of."""
    from checklist_rewards import ChecklistScorer, Sample

    folder = tmp_path_factory.mktemp("docs")
    wanted = tasks(8, seed=1, split="train")
    questions = [[c.question() for c in task.constraints] for task in wanted]
    texts = ["the gilgo is old. is it old?", "The 3 lamo are old!", "- one\n- two", "lamo"] * 2
    rows = [
        {"prompt": task.instruction, "target": text, "checklist": asked, "document": number // 2}
        for number, (task, asked, text) in enumerate(zip(wanted, questions, texts, strict=True))
    ]
    scores = ChecklistScorer("pocket", store=False).score_batch(
        [Sample(row["checklist"], row["target"], row["prompt"]) for row in rows]
    )
    for row, score in zip(rows, scores, strict=True):
        row["human"] = [item.answer if place % 3 else "no" for place, item in enumerate(score.items)]
    scored = [row | {"checklist_score": score.model_dump()} for row, score in zip(rows, scores, strict=True)]
    log = [
        {
            "step": 1,
            "prompt": row["prompt"],
            "completion": row["target"],
            "reward": s.primary_score,
            "score": s.model_dump(),
        }
        for row, s in zip(rows, scores, strict=True)
    ]
    files = {
        "prompts.jsonl": [{"prompt": row["prompt"]} for row in rows],
        "checklists.jsonl": [{"prompt": row["prompt"], "checklist": row["checklist"]} for row in rows],
        "answers.jsonl": rows,
        "candidates.jsonl": [row | {"candidates": texts[:3]} for row in rows],
        "scored.jsonl": scored,
        "small.jsonl": scored,
        "large.jsonl": scored,
        "rewards.jsonl": log,
        "mine.jsonl": [{"prompt": "Write.", "rubric": [{"criterion": "Is it short?", "points": 2}]}],
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "tasks.csv").write_text('instruction,context\n"Write a note. Use no digits. Finish with a question.",\n')
    (folder / "weights.yaml").write_text(f"{questions[0][0]!r}: 2\n")
    (folder / "shared.json").write_text('["Does the response contain a digit?"]')
    for name, source in (
        ("healthbench.jsonl", "healthbench.jsonl"),
        ("rubric.yaml", "rubric.yaml"),
        ("checklist.json", "autochecklist.json"),
        ("rubric_dataset.json", "autorubric.json"),
    ):
        shutil.copy(REPO / "tests" / "data" / source, folder / name)
    (folder / "shards").mkdir()
    shutil.copy(folder / "healthbench.jsonl", folder / "shards" / "part-0.jsonl")
    return folder


@pytest.fixture
def page_folder(world, tmp_path, monkeypatch) -> Path:
    """A copy of these files as the working folder, without vLLM, and with small trainers."""
    monkeypatch.setitem(sys.modules, "vllm", None)  # a model without a server is then one for transformers
    import trl
    from trl.experimental import online_dpo

    for module, name in ((trl, "GRPOConfig"), (trl, "RLOOConfig"), (online_dpo, "OnlineDPOConfig")):
        length = "max_new_tokens" if name == "OnlineDPOConfig" else "max_completion_length"
        monkeypatch.setattr(module, name, partial(getattr(module, name), **SMALL, **{length: 8}))
    monkeypatch.setattr(builtin, "_registered", {})
    for registry in (GENERATORS, REFINERS, SCORERS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    folder = tmp_path / "page"
    shutil.copytree(world, folder)
    monkeypatch.chdir(folder)
    return folder


def offline(code: str, folder: Path) -> str:
    """The code with models that are there, and without servers."""

    def model(match: re.Match[str]) -> str:
        place = folder / "models" / match[0].replace("/", "--")
        if not place.exists():
            shutil.copytree(pocket_dir(), place)
        return str(place)

    if '"remote"' not in code and "--backend remote" not in code:
        code = SERVER.sub("", code)
    return MODEL.sub(model, code)


def commands(code: str) -> Iterator[list[str]]:
    """The commands of a shell block."""
    for line in code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words[: words.index(">")] if ">" in words else words


def check_command(words: list[str], runnable: list[str], where: str) -> None:
    """Parse a command; run it, with the arguments `runnable`, if it can run here."""
    program, *arguments = words
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (REPO / "Makefile").read_text(), re.M), f"{where}: {words}"
    elif program == "pip":
        extras = [extra for several in re.findall(r"\[(.*)\]", words[-1]) for extra in several.split(",")]
        declared = (REPO / "pyproject.toml").read_text()
        assert all(f"\n{extra} = [" in declared for extra in extras), f"{where}: {words}"
    elif program == "python":
        assert (REPO / arguments[0]).is_file(), f"{where}: {words}"
    else:
        assert program == "checklist-rewards", f"{where}: {program} cannot be checked; say why it is not run"
        parse(arguments, where)
        read = [word for place, word in enumerate(runnable) if runnable[place - 1] not in WRITTEN]
        files = [word for word in read if Path(word).suffix in (".jsonl", ".json", ".csv", ".yaml", ".md")]
        if not PARSED.intersection(runnable) and all(Path(file).exists() for file in files):
            quick = ["--bootstrap", "20"] if runnable[0] in ("agree", "calibrate", "diff") else []
            done = CliRunner().invoke(app, runnable + quick)
            # 1: something was left unanswered. Of questions outside its world the pocket model answers few.
            # 3: the log of a run of one step has too few steps for an audit.
            codes = (0,) if "quickstart" in where else (0, 3) if runnable[0] == "audit" else (0, 1)
            assert done.exit_code in codes, f"{where}: {done.output}"


@cache
def command_line() -> Any:
    """The command line, with nothing behind its commands. Making it takes longer than reading arguments."""

    def emptied(command):
        for child in getattr(command, "commands", {}).values():
            emptied(child)
        if not hasattr(command, "commands"):
            command.callback = lambda **_: None
        return command

    return emptied(get_command(app))


def parse(arguments: list[str], where: str) -> None:
    """Have the command line read these arguments."""
    try:
        command_line().main(list(arguments), standalone_mode=False)
    except Exception as error:
        raise AssertionError(f"{where}: checklist-rewards {shlex.join(arguments)}: {error!r}") from error


def check_data(block: Block) -> None:
    """Refuse data that is not of its language."""
    if block.language == "json":
        for line in block.code.splitlines() if (block.title or "").endswith(".jsonl") else [block.code]:
            json.loads(line)
        if (block.title or "").endswith(".json"):
            Checklist.parse(json.loads(block.code))
    elif block.language == "yaml":
        yaml.safe_load(block.code)
    else:
        assert block.language in ("markdown", "text"), f"{block.where}: a block of {block.language!r}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_the_blocks_of_a_page_run(page, page_folder, capsys):
    namespace = {"__name__": "__main__"}
    for block in blocks(page):
        if block.reason:
            continue
        code = offline(block.code, page_folder)
        if block.title:
            Path(block.title).write_text(code)
        if block.language == "python":
            exec(compile("\n" * block.line + code, str(page), "exec"), namespace)
        elif block.language == "bash":
            for words, runnable in zip(commands(block.code), commands(code), strict=True):
                check_command(words, runnable[1:], block.where)
        else:
            check_data(block)
    if page.name in ("README.md", "quickstart.md"):
        assert namespace["trainer"].state.global_step > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_cells_of_a_notebook_run(path, page_folder, capsys):
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), namespace)


def test_links_to_files_lead_somewhere():
    broken = []
    for page in (*PAGES, REPO / "CHANGELOG.md", *sorted(REPO.glob("recipes/**/README.md"))):
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
            if not (target.startswith("https://") or (page.parent / target).exists()):
                broken.append((str(page.relative_to(REPO)), target))
    assert broken == []


def test_the_overview_and_the_navigation_name_every_page():
    pytest.importorskip("mkdocs")
    site = runpy.run_path(str(REPO / "docs" / "site.py"))
    overview, navigation = ((REPO / name).read_text() for name in ("docs/index.md", "mkdocs.yml"))
    overview = site["site_links"](overview)
    pages = {page.relative_to(REPO / "docs").as_posix() for page in REPO.glob("docs/**/*.md")}
    pages |= GENERATED
    assert set(re.findall(r": (\S+\.md)$", navigation, re.M)) == pages
    studies = (REPO / "docs" / "studies" / "index.md").read_text()
    led = {page for page in pages if f"({page})" in overview}
    led |= {page for page in pages if page.startswith("studies/") and f"({Path(page).name}" in studies}
    assert pages - {"index.md"} - led == set()


def test_the_examples_of_the_help_parse():
    def helps(command) -> Iterator[str]:
        yield command.help or ""
        for child in getattr(command, "commands", {}).values():
            yield from helps(child)

    examples = [code for text in helps(command_line()) for code in re.findall(r"```\n(.*?)```", text, re.S)]
    assert len(examples) > 15
    for code in examples:
        for words in commands(code):
            parse(words[1:], "--help")
            asks = words[1] in ("generate", "score", "run", "rerank", "refine", "probe", "attack", "serve")
            assert not asks or {"--model", "--backend", "--example-input"} & {*words}, f"no model is named: {words}"


def test_the_files_that_contributing_names_are_there():
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml|txt|yaml)))`", text):
        places = (REPO / name, REPO / "checklist_rewards" / name)
        if "NAME" not in name:
            assert any(place.exists() for place in places), name


def test_the_citation_names_the_authors_and_the_version_of_the_package():
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["authors"] == project["authors"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


@pytest.mark.slow
def test_the_site_builds_and_its_pages_load_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = r"""<(?:script|img|link|iframe)[^>]*(?:src|href)=["'](?:https?:)?//"""
        assert not re.search(loaded, page.read_text(encoding="utf-8")), page
