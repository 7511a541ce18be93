"""The evaluation of the judges of English: floors, thresholds, the figures of all methods, and the probes."""

import json

import pytest
from english import evaluate, probes
from english.floors import overlap, regression
from english.tasks import Example

from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.judges import LogprobJudge
from tests.fakes import FakeBackend


def example(target="It rains in Rome.", statement="it rains", label=1.0, group="g", **more):
    return Example("semeval", group, target, statement, label, **more)


def test_floors():
    some = [example(), example("The sun shines.", label=0.0), example("It pours.", references=("it pours",))]
    assert overlap(some) == [1.0, 0.0, 1.0]
    predicted = regression(some * 5, some)
    assert predicted[0] > 0.5 > predicted[1]


def test_the_threshold_is_chosen_on_other_examples():
    some = [example(label=label, group=str(n)) for n, label in enumerate((1.0, 1.0, 0.0, 0.0))]
    chosen = evaluate.best_threshold([0.9, 0.8, 0.7, 0.1], some)
    assert 0.7 < chosen < 0.8
    found = evaluate.figures(evaluate.Answers(some, [0.9, 0.8, 0.7, 0.1], chosen), Bootstrap(0))
    assert (found["auc"].value, found["kappa"].value, found["accuracy"].value) == (1, 1, 1)
    ranks = evaluate.figures(evaluate.Answers(some, [3, 2, 4, 1], None), Bootstrap(0))
    assert set(ranks) == {"auc"}


@pytest.mark.study
def test_the_judges_that_are_trained_are_evaluated(data_dir, tmp_path, monkeypatch):
    """With a fake engine in place of SmolLM2, and no trained judge but one that left out semeval."""
    backend = FakeBackend(lambda prefix, tail: 0.5 + len(prefix) % 100 / 250)
    monkeypatch.setattr(evaluate, "_CHOSEN_ON", 10)
    monkeypatch.setattr(evaluate, "_FITTED_ON", 100)
    monkeypatch.setattr(
        evaluate.Evaluation,
        "judge",
        lambda self, name: LogprobJudge(backend) if name in ("base", "adapter-not-semeval") else None,
    )
    arguments = ["--output", str(tmp_path), "--reads", "30", "--untrained", "--data", str(data_dir)]
    found = evaluate.main([*arguments, "--resamples", "20"])
    methods = {task: set(of_task["methods"]) for task, of_task in found.items()}
    assert "SmolLM2 adapter, unseen" in methods["semeval"] and "SmolLM2 adapter, unseen" not in methods["argkp"]
    assert all(
        {"word overlap", "SmolLM2, untrained", "lexical regression, unseen"} <= some for some in methods.values()
    )
    assert json.loads((tmp_path / "figures.json").read_text()) == found
    assert "| SmolLM2 adapter, unseen |" in (tmp_path / "figures.md").read_text()


def test_probes_are_pairs_of_yes_and_no_that_differ_in_one_detail():
    for name in probes.PROBES:
        some = probes.probes(name)
        assert len(some) == 2 * probes.SIZE and some == probes.probes(name)
        for right, wrong in zip(some[::2], some[1::2], strict=True):
            assert right.yes and not wrong.yes and right.question == wrong.question and right.target != wrong.target
