"""No output replaces a file that its command reads or writes."""

import os
from pathlib import Path

import pytest

from checklist_rewards import Checklist
from checklist_rewards.cli.output import check_outputs
from checklist_rewards.errors import SampleError
from checklist_rewards.files.ranks import other_ranks
from checklist_rewards.files.store import Store, key_of
from checklist_rewards.scores import Verdict, score_checklist
from tests.commands import files_here
from tests.jsonl import write_jsonl

SCORE = score_checklist(Checklist.parse(["Is it red?"]), [Verdict({"yes": 0.9, "no": 0.1})]).model_dump(mode="json")
SCORED = {"id": "a", "target": "red", "human": [1], "checklist": ["Is it red?"], "checklist_score": SCORE}


def log_row(step):
    return {"step": step, "prompt": "p", "completion": "red", "reward": 0.9, "score": SCORE}


@pytest.fixture
def files(run):
    """A reward log of two ranks and a scored file, in the current folder."""
    for name in ("rewards.jsonl", "rewards.rank1.jsonl"):
        write_jsonl(name, *(log_row(step) for step in range(3)))
    for name in ("scored.jsonl", "again.jsonl"):
        write_jsonl(name, SCORED)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("audit rewards.jsonl -o rewards.rank1.jsonl", "--output rewards.rank1.jsonl has the name of another rank"),
        ("replay rewards.jsonl -o rewards.rank1.jsonl", "--output rewards.rank1.jsonl has the name of another rank"),
        ("replay scored.jsonl -o o.jsonl --repeat 2 --json x --summary x", "--json x is also --summary"),
        ("replay scored.jsonl -o o.jsonl --weights again.jsonl --summary again.jsonl", "again.jsonl is an input file"),
        ("calibrate scored.jsonl -o o.json --json x --plots x", "--json x is also --plots"),
    ],
)
def test_an_output_over_another_file_is_refused(run, files, no_engine, command, complaint):
    run(command, refused=complaint)


def test_only_reward_logs_have_ranks(files):
    check_outputs(Path("scored.jsonl"), output=Path("scored.rank1.jsonl"), json=None)
    for name in ("rewards.ranked.jsonl", "rewards.rank.jsonl", "rewards.rank10.jsonl", "rewards.rank2.bak.jsonl"):
        write_jsonl(name, {})
    names = [path.name for path in other_ranks(Path("rewards.jsonl"))]
    assert names == ["rewards.rank1.jsonl", "rewards.rank10.jsonl"]


def test_a_folder_that_is_missing_is_told_and_a_link_to_an_input_is_the_input(files, caplog):
    Path("link.jsonl").symlink_to("scored.jsonl")
    with pytest.raises(SampleError, match="--output link.jsonl is an input file"):
        check_outputs(Path("scored.jsonl"), output=Path("link.jsonl"))
    check_outputs(folders={"--plots": Path("plots")}, output=Path("here.jsonl"), json=Path("new/deep/x.json"))
    assert caplog.messages == ["--json new/deep/x.json: the folder new/deep does not exist and will be created."]


# --- every command, every output, every kind of path -----------------------------------------------------------------

OUTPUTS = {
    "score rows.jsonl": ("-o", "--summary"),
    "generate rows.jsonl": ("-o", "--summary"),
    "run rows.jsonl": ("-o", "--summary"),
    "rerank candidates.jsonl": ("-o", "--summary"),
    "pairs candidates.jsonl": ("-o", "--summary", "--card"),
    "refine rows.jsonl": ("-o", "--summary"),
    "replay scored.jsonl": ("-o", "--summary"),
    "diff scored.jsonl again.jsonl": ("-o", "--json"),
    "agree scored.jsonl again.jsonl": ("--json",),
    "calibrate scored.jsonl --label-key human": ("-o", "--json"),
    "cascade scored.jsonl again.jsonl": ("--json", "--plot"),
    "fit scored.jsonl --label-key human": ("-o",),
    "improve checklist.json --data scored.jsonl --label-key human": ("-o", "--json"),
    "inspect scored.jsonl": ("-o", "--json"),
    "report scored.jsonl": ("-o",),
    "audit rewards.jsonl": ("-o", "--json"),
    "attack": ("-o", "--labels"),
    "checklists import imported.jsonl": ("-o",),
    "checklists export rows.jsonl --to verl": ("-o",),
    "probe --model pocket": ("--json",),
    "distill scored.jsonl -o judge": ("--json",),
}
EACH = [(command, option) for command, options in OUTPUTS.items() for option in options]
ENDING = {"--json": "json", "--summary": "json", "--card": "md", "--plot": "png"}


@pytest.fixture
def rows(files):
    row = {"prompt": "p", "checklist": ["Is it red?"]}
    write_jsonl("rows.jsonl", row | {"target": "red"})
    write_jsonl("candidates.jsonl", row | {"candidates": ["red", "blue"]})
    write_jsonl("imported.jsonl", row)
    Path("checklist.json").write_text('["Is it red?"]')


def with_output(command, option, path):
    """The command with one output at `path`, and others, which it requires, elsewhere."""
    given = {"-o": f"other.{'html' if 'report' in command else 'jsonl'}"} if "-o" in OUTPUTS[command] else {}
    return [*command.split(), *(text for pair in (given | {option: str(path)}).items() for text in pair)]


PLACES = {
    "a folder": "there",
    "a loop of links": "loop",
    "a pipe": "pipe",
    "not writable": "/proc/1/out.{}",
}


@pytest.fixture
def places(rows):
    """What stands at the places where no output can be written."""
    Path("there").mkdir()
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")


ANY = list(PLACES)
CASES = [(*EACH[0], place) for place in PLACES]
CASES += [(*each, ANY[n % len(ANY)]) for n, each in enumerate(EACH[1:])]


@pytest.mark.parametrize(("command", "option", "place"), CASES, ids=lambda text: text)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(run, places, no_engine, command, option, place):
    path = PLACES[place].format(ENDING.get(option, "jsonl"))
    name = {"-o": "--output"}.get(option, option)
    run(*with_output(command, option, path), refused=f"{name} {path}")


@pytest.mark.parametrize(("command", "option"), [each for each in EACH if ".json" in each[0]])
def test_no_output_replaces_the_file_that_is_read(run, rows, no_engine, command, option):
    read = next(word for word in command.split() if ".json" in word)
    name = {"-o": "--output"}.get(option, option)
    run(*with_output(command, option, read), refused=f"{name} {read} is an input file of this command")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("replay scored.jsonl -o", "out.jsonl"),
        ("agree scored.jsonl again.jsonl --bootstrap 0 --json", "out.json"),
        ("report scored.jsonl -o", "out.html"),
    ],
)
def test_a_link_stays_and_its_target_is_written(run, rows, no_engine, command, name):
    Path("elsewhere").mkdir()
    Path(name).symlink_to(Path("elsewhere", name))
    for _ in range(2):  # also where the target exists
        run(f"{command} {name}", code=(0, 1))
    assert Path(name).is_symlink() and Path("elsewhere", name).stat().st_size > 3
    assert [path.name for path in Path("elsewhere").iterdir()] == [name]


LATE = {
    "diff scored.jsonl stranger.jsonl": "have no row in common",
    "replay broken.jsonl": "broken.jsonl",
    "calibrate scored.jsonl --label-key human": "",
    "checklists import broken.jsonl": "broken.jsonl",
    "score broken.jsonl --model pocket": "broken.jsonl",
    "store merge missing.sqlite": "missing.sqlite",
    "store merge rows.jsonl": "rows.jsonl",
}


@pytest.mark.parametrize("command", LATE)
def test_a_late_refusal_leaves_the_output_as_it_was(run, rows, no_engine, command):
    Path("out.jsonl").write_text("old")
    Path("broken.jsonl").write_text(Path("scored.jsonl").read_text() * 3 + "{")
    write_jsonl("stranger.jsonl", SCORED | {"id": "z", "target": "blue"})
    run(f"{command} -o out.jsonl", refused=LATE[command])


DRY = [
    "score rows.jsonl --model pocket",
    "run rows.jsonl --model pocket --pipeline tick --store new/s.sqlite",
    "generate rows.jsonl --model pocket",
    "replay scored.jsonl --model pocket --store new/s.sqlite",
    "replay rewards.jsonl",
    "attack --model pocket --prompts 4 --budget-reads 1000 --store new/s.sqlite",
]


@pytest.mark.parametrize("command", DRY)
def test_a_dry_run_writes_nothing(run, rows, no_engine, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    Path("out.jsonl").write_text("old")
    before = files_here()
    run(f"{command} -o out.jsonl --dry-run")
    assert files_here() == before


@pytest.mark.parametrize("command", ["score rows.jsonl", "rerank candidates.jsonl"])
def test_a_file_that_an_option_names_is_not_overwritten(run, rows, no_engine, command):
    Path("weights.json").write_text('{"Is it red?": 2}')
    Path("judge.yaml").write_text("model: pocket")
    write_jsonl("examples.jsonl", {"target": "blue", "question": "Is it red?", "label": "no"})
    for option, name in (
        ("--model pocket --weights", "weights.json"),
        ("--judge", "judge.yaml"),
        ("--model pocket --judge.examples", "examples.jsonl"),
    ):
        words = f"{command} {option} {name} -o out.jsonl --summary {name}"
        run(words, refused=f"--summary {name} is an input file")


LONG = f"{'a' * 300}.jsonl"
READS = dict.fromkeys("score generate run rerank pairs refine replay".split(), "{} -o out.jsonl")
READS |= {"distill": "{} -o judge", "calibrate": "{} -o out.json", "fit": "{} -o out.json", "report": "{} -o out.html"}
READS |= {"lint": "{}", "agree": "{0} {0}"}
"""The inputs of every command, which are read before a model is needed."""


@pytest.mark.parametrize("command", READS)
def test_a_name_that_no_file_can_have_is_refused_with_a_sentence(run, files, command):
    run(f"{command} {READS[command].format(LONG)}", refused="aaa")
    *words, last = READS[command].format("scored.jsonl").split()
    if "-o" in words:
        run(command, *words, "a" * 300 + Path(last).suffix, refused="File name too long")


@pytest.mark.parametrize("command", ["score", "calibrate", "report"])
def test_an_output_over_a_read_only_file_is_refused_before_anything_is_read(run, files, monkeypatch, command):
    words = READS[command].format("scored.jsonl")
    output = Path(words.split()[-1])
    output.write_text("kept")
    access = os.access  # root may write every file
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    run(f"{command} {words}", refused=f"{output}: cannot be written, it is read-only")


def test_a_device_is_not_replaced():
    with pytest.raises(SampleError, match="--output /dev/null: cannot be written, it is a device or a pipe"):
        check_outputs(output=Path("/dev/null"))


def test_brackets_and_colons_in_a_path_are_no_markup(run):
    Store("one.sqlite").put([(key_of("a"), "x")])
    assert "answers added; [a]:cat:.sqlite has 1." in run("store merge one.sqlite -o [a]:cat:.sqlite").output
    assert "error: [a]:cat:.jsonl" in run("report [a]:cat:.jsonl -o run.html", code=2).output
    write_jsonl("run[a].jsonl", SCORED)
    assert "run[a].jsonl: 1 rows" in run("report run[a].jsonl -o run.html").output
