"""The study of the rubric loop: the faults are there, and a small run counts them."""

import random

import pytest
from studies.rubric_loop import FAULTS, PROPERTIES, constraint, main, related, spoilt


@pytest.mark.parametrize("fault", FAULTS)
def test_a_checklist_has_the_faults_of_its_name(fault):
    checklist, bad = spoilt(fault, random.Random(0))
    asked = [item.question for item in checklist.items]
    assert set(bad) == ({fault} if fault not in ("none", "all") else set(bad) if fault == "all" else set())
    assert len(bad) == {"none": 0, "all": 5}.get(fault, 1)
    for name, questions in bad.items():
        assert all((question in asked) is (name != "missing") for question in questions)
    good = {constraint(family).question() for family in PROPERTIES} - set(bad.get("missing", ()))
    assert good <= set(asked)
    assert [item.weight for item in checklist.items if item.question in bad.get("wrong sign", ())] in ([], [-1])


def test_questions_are_related_if_they_ask_about_one_property():
    assert related("Does the response contain a digit?", "Is the response free of digits?")
    assert not related("Does the response contain a digit?", "Is the response good?")


@pytest.mark.slow
@pytest.mark.study
def test_a_small_run(tmp_path):
    cells = main(["pocket", f"--output={tmp_path}", "--labels", "60", "--seeds", "1", "--resamples", "20"])["pocket"]
    assert [cell["fault"] for cell in cells["cells"] if cell["writer"] == "none"] == list(FAULTS)
    assert all(0 <= cell["broken"] <= 5 for cell in cells["cells"])
    assert "| 60 | wrong sign | none |" in (tmp_path / "tables.md").read_text()


def test_the_checks_of_form_are_improved_on_the_ratings_of_a_dimension(tmp_path, data_dir):
    arguments = ["coherence-form", f"--data={data_dir}", "--rows=600", "--seeds=1", "--resamples=50"]
    found = main([*arguments, f"--output={tmp_path}"])["coherence-form"]
    assert (found["rows"], found["groups"]) == (600, 38)
    first, tolerant = found["runs"]
    assert first["rows"]["test"] + first["rows"]["choosing"] + first["rows"]["confirming"] == 600
    assert any(step["kept"] for step in first["steps"]) and len(tolerant["checklist"]) <= 12
    assert "| coherence-form | 0 | 0.0 |" in (tmp_path / "tables.md").read_text()
