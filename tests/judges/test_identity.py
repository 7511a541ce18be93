"""The identity of a judge depends on what its verdicts depend on, and not on where its files lie."""

import shutil

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.prompts import prompts_dir
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl


class Continuing(FakeBackend):
    continues = True


def scorer(**settings):
    return ChecklistScorer(**{"backend": Continuing(replies=["No reply."]), "store": False, **settings})


@pytest.mark.parametrize("name", ["item", "batch", "quality", "thinking"])
def test_a_prompt_counts_by_its_text(tmp_path, name):
    settings = {"thinking": 64} if name == "thinking" else {"mode": name}
    scorers = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        prompt = shutil.copy(prompts_dir() / f"judges/{name}.md", folder / "judge.md")
        scorers.append(scorer(store=tmp_path / "store", prompt=prompt, **settings))
        scorers[-1].score(["Is it red?"], target="A red rose.", input="What is it?")
    one, two = scorers
    assert one.identity == two.identity == scorer(prompt=prompt, **settings).identity
    assert (one.receipt.asked, two.receipt.asked) == (1, 0)  # the other folder's answer was in the store
    prompt.write_text(prompt.read_text().replace("{target}", "{target}\n\nJudge strictly."))
    assert scorer(prompt=prompt, **settings).identity != one.identity


def test_examples_count_by_their_rows(tmp_path):
    found = [scorer().identity]
    for number, label in enumerate(("yes", "yes", "no")):
        row = {"target": "A red rose.", "question": "Is it red?", "label": label}
        found.append(scorer(examples=write_jsonl(tmp_path / f"{number}.jsonl", row)).identity)
    without, one, two, other = found
    assert one == two != other != without != one
