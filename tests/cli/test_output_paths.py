"""No output replaces a file that its command reads or writes."""

from pathlib import Path

import pytest

from checklist_rewards import Checklist
from checklist_rewards.cli.output import check_outputs
from checklist_rewards.errors import SampleError
from checklist_rewards.files.ranks import other_ranks
from checklist_rewards.scores import Verdict, score_checklist
from tests.cli.conftest import write_jsonl

CHECKLIST = Checklist.parse(["Is it red?"])


def log_row(step, text="red"):
    score = score_checklist(CHECKLIST, [Verdict({"yes": 0.9, "no": 0.1})]).model_dump(mode="json")
    return {"step": step, "prompt": "p", "completion": text, "reward": 0.9, "score": score}


@pytest.fixture
def files(run):
    """A reward log of two ranks and a scored file, in the current folder."""
    for name in ("rewards.jsonl", "rewards.rank1.jsonl"):
        write_jsonl(name, *(log_row(step) for step in range(3)))
    for name in ("scored.jsonl", "again.jsonl"):
        row = {"id": "a", "target": "red", "checklist": ["Is it red?"], "checklist_score": log_row(0)["score"]}
        write_jsonl(name, row)
    return {path.name: path.read_bytes() for path in Path().iterdir()}


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("audit rewards.jsonl -o rewards.rank1.jsonl", "--output rewards.rank1.jsonl has the name of another rank"),
        ("audit rewards.jsonl --json rewards.rank7.jsonl", "--json rewards.rank7.jsonl has the name of another rank"),
        ("replay rewards.jsonl -o rewards.rank1.jsonl", "--output rewards.rank1.jsonl has the name of another rank"),
        ("diff rewards.jsonl rewards.jsonl -o rewards.rank1.jsonl", "has the name of another rank"),
        ("report rewards.jsonl -o rewards.rank1.jsonl", "has the name of another rank"),
        ("audit rewards.jsonl -o x --json x", "--json x is also --output"),
        ("audit rewards.jsonl -o .", "--output . is a folder"),
        ("cascade scored.jsonl again.jsonl --json x --plot ./x", "--json x is also --plot"),
        ("replay scored.jsonl -o o.jsonl --repeat 2 --json x --summary x", "--json x is also --summary"),
        ("replay scored.jsonl -o o.jsonl --weights again.jsonl --summary again.jsonl", "again.jsonl is an input file"),
        ("inspect scored.jsonl --repeat again.jsonl --json again.jsonl", "--json again.jsonl is an input file"),
        ("diff scored.jsonl again.jsonl -o x.jsonl --json x.jsonl", "--json x.jsonl is also --output"),
        ("score scored.jsonl -o o.jsonl --checklist again.jsonl --summary again.jsonl", "--summary again.jsonl is an"),
        ("agree scored.jsonl again.jsonl --json x --plots x", "--json x is also --plots"),
        ("calibrate scored.jsonl --label-key l -o x --json x", "--json x is also --output"),
        ("probe --summary .", "--summary . is a folder"),
    ],
)
def test_an_output_over_another_file_is_refused(run, files, no_engine, monkeypatch, command, complaint):
    monkeypatch.setattr("checklist_rewards.cli.scoring.read_checklist", lambda path: CHECKLIST)
    done = run(*command.split())
    assert done.exit_code == 2 and complaint in done.output, done.output
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == files


def test_a_link_to_an_input_is_the_input(files):
    Path("link.jsonl").symlink_to("scored.jsonl")
    with pytest.raises(SampleError, match="--output link.jsonl is an input file"):
        check_outputs([Path("scored.jsonl")], output=Path("link.jsonl"))


def test_only_reward_logs_have_ranks(files):
    check_outputs([Path("scored.jsonl"), None], output=Path("scored.rank1.jsonl"), json=None)
    for name in ("rewards.ranked.jsonl", "rewards.rank.jsonl", "rewards.rank10.jsonl", "rewards.rank2.bak.jsonl"):
        write_jsonl(name, {})
    names = [path.name for path in other_ranks(Path("rewards.jsonl"))]
    assert names == ["rewards.rank1.jsonl", "rewards.rank10.jsonl"]


def test_a_folder_that_is_missing_is_told(files, caplog):
    check_outputs([], folders={"--plots": Path("plots")}, output=Path("here.jsonl"), json=Path("new/deep/x.json"))
    assert caplog.messages == ["--json new/deep/x.json: the folder new/deep does not exist and is created."]
