"""The judges of English: floors, the protocol, the probes, InFoBench, and questions with *not*."""

import json

import pytest
from english import opposites
from english.tasks import TASKS, WORDINGS, Example
from studies.judges import comparison, infobench, negated, probes, protocol
from studies.judges.floors import length, overlap, regression

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import encoder_rows
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.judges import LogprobJudge
from tests.fakes import FakeBackend


def example(target="It rains in Rome.", statement="it rains", label=1.0, group="g", **more):
    return Example("semeval", group, target, statement, label, **more)


def test_floors():
    some = [example(), example("The sun shines.", label=0.0), example("It pours.", references=("it pours",))]
    assert overlap(some) == [1.0, 0.0, 1.0] and length(some) == [17.0, 15.0, 9.0]
    predicted = regression(some * 5, some)
    assert predicted[0] > 0.5 > predicted[1]


def test_the_threshold_is_chosen_on_other_examples():
    some = [example(label=label, group=str(n)) for n, label in enumerate((1.0, 1.0, 0.0, 0.0))]
    chosen = protocol.best_threshold([0.9, 0.8, 0.7, 0.1], some)
    assert 0.7 < chosen < 0.8
    found = protocol.figures(protocol.Answers(some, [0.9, 0.8, 0.7, 0.1], chosen), Bootstrap(0))
    assert (found["auc"].value, found["kappa"].value, found["accuracy"].value) == (1, 1, 1)
    ranks = protocol.figures(protocol.Answers(some, [3, 2, 4, 1], None), Bootstrap(0))
    assert set(ranks) == {"auc"}


@pytest.mark.study
def test_the_protocol_reads_the_judges_that_are_trained(data_dir, tmp_path, monkeypatch):
    """With a fake engine in place of SmolLM2, and no trained judge but one that left out semeval."""
    backend = FakeBackend(lambda prefix, tail: 0.5 + len(prefix) % 100 / 250)
    monkeypatch.setattr(protocol, "_CHOSEN_ON", 10)
    monkeypatch.setattr(protocol, "_FITTED_ON", 100)
    monkeypatch.setattr(
        protocol.Evaluation,
        "judge",
        lambda self, name: LogprobJudge(backend=backend) if name in ("base", "adapter-not-semeval") else None,
    )
    arguments = ["--output", str(tmp_path), "--reads", "30", "--untrained", "--data", str(data_dir)]
    found = protocol.main([*arguments, "--resamples", "20"])
    methods = {task: set(of_task["methods"]) for task, of_task in found.items()}
    assert "SmolLM2 adapter, unseen" in methods["semeval"] and "SmolLM2 adapter, unseen" not in methods["argkp"]
    assert all(
        {"word overlap", "SmolLM2, untrained", "lexical regression, unseen"} <= some for some in methods.values()
    )
    assert json.loads((tmp_path / "figures.json").read_text()) == found
    assert "| SmolLM2 adapter, unseen |" in (tmp_path / "figures.md").read_text()


def test_the_protocol_compares_two_precisions_of_the_packaged_encoder(data_dir, tmp_path):
    arguments = ["--output", str(tmp_path), "--reads", "20", "--data", str(data_dir), "--resamples", "20"]
    found = protocol.main([*arguments, "--dtype", "bfloat16"])
    assert list(found) == list(TASKS) and json.loads((tmp_path / "dtype.json").read_text()) == found
    for line in found.values():
        assert line["n"] >= 20 and line["change"]["low"] <= line["change"]["value"] <= line["change"]["high"]
        assert 0 < line["mean_change_of_p_yes"] <= line["largest_change_of_p_yes"] < 0.1


def test_the_protocol_compares_overlaps_of_windows_on_long_texts(data_dir, tmp_path):
    arguments = ["--output", str(tmp_path), "--reads", "20", "--data", str(data_dir), "--resamples", "20"]
    found = protocol.main([*arguments, "--overlaps", "64", "127"])
    assert list(found) == ["realsumm", "argkp"] and encoder_rows.OVERLAP == 127
    for of_task in found.values():
        quarter, half = of_task["overlaps"].values()
        assert 1 < quarter["computed_over_floor"] < half["computed_over_floor"]
        assert quarter["change"]["value"] == 0


def test_probes_are_pairs_of_yes_and_no_that_differ_in_one_detail():
    for name in probes.PROBES:
        some = probes.probes(name)
        assert len(some) == 2 * probes.SIZE and some == probes.probes(name)
        for right, wrong in zip(some[::2], some[1::2], strict=True):
            assert right.yes and not wrong.yes and right.question == wrong.question and right.target != wrong.target


def test_a_judge_that_looks_for_not_passes_the_probe_of_negation_only_in_the_text(few_resamples):
    judge = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.2 if " not " in prefix else 0.8), store=False)
    found = probes.measure(judge.judge)
    assert found["negation"]["auc"].value == 1 and found["negation"]["pairs"].value == 1
    assert found["roles"]["auc"].value == 0.5 and found["roles"]["pairs"].value == 0.5
    assert found["roles"]["accuracy"].value == 0.5


@pytest.fixture
def few_resamples(monkeypatch):
    for module in (comparison, probes):
        monkeypatch.setattr(module, "Bootstrap", lambda: Bootstrap(50))


def test_infobench_asks_about_the_right_answer_and_about_another_one(tmp_path, few_resamples):
    rows = [
        {
            "instruction": f"Write about {word}.",
            "input": None,
            "category": word,
            "decomposed_questions": [f"Does the text name {word}?", "Is it in verse?"],
            "eval": [True, False],
            "output": f"Here is {word}.",
        }
        for word in ("rain", "snow", "wind")
    ]
    path = tmp_path / infobench.FILE
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures = infobench.main(
        ["pocket", "--data", str(tmp_path), "--output", str(tmp_path / "out"), "--questions", "3"]
    )
    assert figures["word overlap"]["another answer"]["value"] == 1.0
    assert set(figures) == {"word overlap", "pocket"}
    assert "| word overlap | 1.000" in (tmp_path / "out" / "figures.md").read_text()


def test_an_opposite_question_has_the_opposite_label(data_dir, tmp_path, few_resamples):
    figures = negated.main(["pocket", "--data", str(data_dir), "--output", str(tmp_path), "--questions", "5"])
    assert set(figures["pocket"]) == {name for task in TASKS for name in (task, f"{task}, not")}
    overlap_of = {name: figure["value"] for name, figure in figures["word overlap"].items()}
    assert overlap_of["evouna"] > 0.8 and overlap_of["evouna, not"] < 0.2
    trained = {text for some in (WORDINGS, opposites.NEGATED) for texts in some.values() for text in texts}
    assert not trained & set(negated.WORDINGS.values())
