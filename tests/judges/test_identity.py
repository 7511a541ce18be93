"""The identity of a judge depends on what its verdicts depend on, and not on where its files lie."""

import shutil

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.prompts import prompts_dir
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl

EXAMPLE = {"target": "A red rose.", "question": "Is it red?", "label": "yes"}


class Continuing(FakeBackend):
    continues = True


def identity(**settings):
    return ChecklistScorer(backend=FakeBackend(), store=False, **settings).identity


@pytest.mark.parametrize(
    ("mode", "name"), [("item", "item"), ("batch", "batch"), ("quality", "quality"), ("item", "thinking")]
)
def test_a_prompt_counts_by_its_text(tmp_path, mode, name):
    more = {"thinking": 64} if name == "thinking" else {}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(prompts_dir() / f"judges/{name}.md", tmp_path / folder / "judge.md")
    scorers = [
        ChecklistScorer(
            backend=Continuing(replies=["No reply."]),
            store=tmp_path / "store",
            mode=mode,
            prompt=tmp_path / folder / "judge.md",
            **more,
        )
        for folder in ("one", "two")
    ]
    one, two = (scorer.identity for scorer in scorers)
    assert one == two
    for scorer in scorers:
        scorer.score(["Is it red?"], target="A red rose.", input="What is it?")
    assert [scorer.receipt.asked for scorer in scorers] == [1, 0]  # the other folder's answer was in the store
    changed = (tmp_path / "two/judge.md").read_text().replace("{target}", "{target}\n\nJudge strictly.")
    (tmp_path / "two/judge.md").write_text(changed)
    assert identity(mode=mode, prompt=tmp_path / "two/judge.md", **more) != one


def test_examples_count_by_their_rows(tmp_path):
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "other.jsonl"]
    for file, label in zip(files, ("yes", "yes", "no"), strict=True):
        write_jsonl(file, EXAMPLE | {"label": label})
    one, two, other = (identity(examples=file) for file in files)
    assert one == two != other != identity()
