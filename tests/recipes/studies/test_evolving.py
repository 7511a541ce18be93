"""The study of evolving checklists: its prompts and its proposer, and one run as small as it goes."""

import argparse
import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trainers")]


def test_the_proposer_asks_what_is_missing_or_what_nobody_asked_for():
    from pocket.world import parse_question, tasks
    from studies.evolving import OVERLOOKED, WorldProposer, covered

    from checklist_rewards.checklists import ChecklistItem
    from checklist_rewards.evolving import Group

    [task] = [task for task in tasks(40, seed=1, split="test") if len(covered(task)) == 1][:1]
    items = tuple(ChecklistItem(question=c.question()) for c in covered(task))
    group = Group(task.instruction, None, None, ("the lamo is old?", "a lamo."), (0.5, 0.5), items, ())
    by_instruction = {task.instruction: task}
    [relevant] = WorldProposer(by_instruction, draws=40, relevant=1.0, seed=0)([group])
    missing = {c.question() for c in task.constraints if c.family in OVERLOOKED}
    assert {one["question"] for one in relevant} == missing and all(one["weight"] == 1.0 for one in relevant)
    [noise] = WorldProposer(by_instruction, draws=40, relevant=0.0, seed=0)([group])
    families = {parse_question(one["question"]).family for one in noise}
    assert not families & {c.family for c in task.constraints} and {one["weight"] for one in noise} == {1.0, -1.0}
    whole = Group(*[getattr(group, name) for name in ("input", "history", "reference", "responses", "scores")],
                  tuple(ChecklistItem(question=c.question()) for c in task.constraints), ())  # fmt: skip
    assert WorldProposer(by_instruction, draws=5, relevant=1.0, seed=0)([whole]) == [[]]


def test_fixed_checklists_lack_families_and_complete_ones_lack_none(tmp_path):
    from pocket.world import parse_question
    from studies.evolving import OVERLOOKED, Study

    names = dict(steps=1, learning_rate=1e-4, eval_every=1, every=1, draws=1, relevant=1.0, output=tmp_path)
    study = Study(argparse.Namespace(train_prompts=10, test_prompts=3, **names))
    for fixed, evolving, complete, task in zip(
        *(study.dataset(arm)["checklist"] for arm in ("fixed", "evolving", "complete")), study.train_items, strict=True
    ):
        assert fixed == evolving and len(complete) == len(task.constraints) > len(fixed) > 0
        assert not {parse_question(question).family for question in fixed} & OVERLOOKED


@pytest.mark.study
def test_a_run_evolves_its_checklists(tmp_path):
    from studies import evolving

    how = ["--output", str(tmp_path), "--arms", "evolving", "--seeds", "0", "--steps", "2", "--eval-every", "2"]
    summary = evolving.main([*how, "--train-prompts", "8", "--test-prompts", "4", "--every", "1"])
    found = json.loads((tmp_path / "evolving-0" / "summary.json").read_text())
    assert found["buffer"]["active_per_prompt"] > 0 and list(found["curve"]) == ["2"]
    assert summary["arms"]["evolving"]["gold"]["mean"] == found["gold"]
    assert (tmp_path / "evolving.png").is_file()
