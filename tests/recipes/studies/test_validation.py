"""Judges against ratings and preferences of people: the pairs, the figures, and the command."""

import argparse
import json
from types import SimpleNamespace

import pytest
from studies.common import checklist_scores
from studies.judges import pairs, summeval, validation
from studies.judges.floors import overlap
from studies.judges.validation import Named, named

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.judges import Ask, LogprobJudge
from tests.fakes import FakeBackend


def test_a_score_needs_all_answers_of_a_checklist():
    items = [ChecklistItem(question=f"Is it {n}?") for n in (2, 4, 6)]
    rule = lambda prefix, tail: None if "long" in prefix else int(tail[6]) / 10  # noqa: E731
    judge = LogprobJudge(backend=FakeBackend(rule))
    found = checklist_scores(judge, [[Ask(item, target) for item in items] for target in ("short", "too long")])
    assert found == [pytest.approx(0.4), None]
    broken = LogprobJudge(backend=FakeBackend(fails=lambda prefix, tail: True))
    with pytest.raises(ModelError, match="1 of 1 reads are unanswered, the first because of backend_error"):
        checklist_scores(broken, [[Ask(items[0], "short")]])


@pytest.mark.parametrize(("task", "number"), [("realsumm", 60), ("semeval", 60), ("evouna", 50)])
def test_pairs_are_made_from_labels_of_the_same_input(data_dir, task, number):
    found = pairs.pairs_of(task, number, data_dir)
    assert len(found) == number and found == pairs.pairs_of(task, number, data_dir)
    for pair in found:
        labels = [[one.label > 0.5 for one in side] for side in (pair.chosen, pair.rejected)]
        assert sum(labels[0]) > sum(labels[1]) and len(labels[0]) == len(labels[1])
        assert {one.group for side in pair[1:] for one in side} == {pair.group}
        assert pair.chosen[0].input == pair.rejected[0].input and pair.chosen[0].target != pair.rejected[0].target
    groups = [pair.group for pair in found]
    if task == "realsumm":
        assert {groups.count(group) for group in groups} == {3}
        assert [r.item.question for r in pairs.reads_of(found[0].chosen)] == [
            r.item.question for r in pairs.reads_of(found[0].rejected)
        ]
    else:
        assert len(set(groups)) == number and len(pairs.reads_of(found[0].chosen)) == 3


def test_preferences():
    found = pairs.preferences([0.4, 0.2, 0.0, -0.1, None, 0.3], "aabbcc", Bootstrap(100))
    assert (found["n"], found["unread"], found["groups"]) == (5, 1, 3)
    assert [found[name]["value"] for name in ("wins", "losses", "ties")] == pytest.approx([0.6, 0.2, 0.2])
    assert found["difference"]["value"] == pytest.approx(0.16) and found["cohens_d"]["value"] == pytest.approx(
        0.772, abs=1e-3
    )
    assert found["wilson"] == pytest.approx((0.231, 0.882), abs=1e-3)
    assert found["permutation_p"] == pytest.approx(0.5) and 0.1 < found["t_test_p"]["value"] < 0.2
    assert pairs.preferences([None], "a", Bootstrap(0)) == {"n": 0, "unread": 1, "groups": 0}


def test_word_overlap_prefers_right_answers(data_dir):
    some = pairs.pairs_of("evouna", 40, data_dir)
    found = pairs.preferences(pairs.by_rule(overlap, some), [pair.group for pair in some], Bootstrap(0))
    assert found["wins"]["value"] > 0.8 > found["ties"]["value"]


def test_ratings_of_summaries(data_dir):
    rated = summeval.load(data_dir, 3)
    assert len(rated) == 12 and rated == summeval.load(data_dir, 3)
    truth = {name: [(one.ratings[name] - 1) / 4 for one in rated] for name in summeval.QUESTIONS}
    found = summeval.measure(truth, rated, Bootstrap(0))
    assert all(line["spearman"]["value"] == pytest.approx(1) for line in found.values())
    assert all(line["mae"]["value"] == pytest.approx(0) for line in found.values())
    differences, documents = summeval.best_and_worst(truth, rated)
    assert min(differences) > 0 and len(set(documents)) == 3
    unread = {name: [None] * 12 for name in summeval.QUESTIONS}
    assert summeval.best_and_worst(unread, rated)[0] == [None] * 3
    assert summeval.measure(unread, rated, Bootstrap(0))["fluency"] == {"n": 0, "spearman": None, "mae": None}


def test_floors_of_the_ratings(data_dir):
    rated = summeval.load(data_dir, 5)
    floors = {
        name: summeval.measure(scores, rated, Bootstrap(0)) for name, scores in summeval.floors(data_dir, 5).items()
    }
    assert (
        floors["length"]["relevance"]["mae"] is None and floors["length"]["relevance"]["spearman"]["value"] is not None
    )
    constant = floors[summeval.CONSTANT]["fluency"]
    assert constant["spearman"]["value"] is None and constant["mae"]["value"] < 1


def test_a_judge_of_the_command_line():
    assert named("untrained=smollm2") == Named("untrained", "smollm2", None)
    assert named("mine=smollm2+runs/a=b") == Named("mine", "smollm2", "runs/a=b")
    with pytest.raises(argparse.ArgumentTypeError, match="is not a judge; write NAME=MODEL"):
        named("smollm2")


def test_finished_judges_are_skipped(data_dir, tmp_path, monkeypatch):
    backends = {}

    def judge_of(model, adapter=None, store=None):
        rule = lambda prefix, tail: None if model == "small" and len(prefix) > 1500 else len(prefix) % 100 / 100  # noqa: E731
        backends[model] = FakeBackend(rule, identity=model)
        return LogprobJudge(backend=backends[model], store=store)

    monkeypatch.setattr(validation, "judge_of", judge_of)
    arguments = ["--output", str(tmp_path), "--documents", "3", "--pairs", "5", "--resamples", "10"]
    arguments += ["--data", str(data_dir), "--judge", "one=large"]
    found = validation.main(arguments)
    assert set(found) == {"word overlap", "length", summeval.CONSTANT, "one"}
    assert {name: row["n"] for name, row in found["one"]["pairs"].items()} == {
        "summeval": 3,
        "realsumm": 5,
        "semeval": 5,
        "evouna": 5,
    }
    backends.clear()
    again = validation.main([*arguments, "--judge", "two=small"])
    assert set(backends) == {"small"} and json.loads(json.dumps(found["one"])) == again["one"]
    assert again["two"]["ratings"]["coherence"]["n"] < 12 and again["two"]["pairs"]["evouna"]["n"] == 5
    tables = (tmp_path / "tables.md").read_text()
    assert "| one | 12 |" in tables and "| published: checkeval, gpt-5-mini | 100 | 0.723, 1.104 |" in tables
    assert "| published: tick, gpt-5-mini | RewardBench | 100 | 0.75 |" in tables and "| two | summeval |" in tables
    other = SimpleNamespace(args=argparse.Namespace(output=tmp_path, documents=4, pairs=5, resamples=10))
    with pytest.raises(SampleError, match=r"one\.json has the settings"):
        validation.evaluate(other, Named("one", "large", None), store=None)


SMALL = ["--documents", "1", "--pairs", "2", "--resamples", "10"]


@pytest.mark.slow
@pytest.mark.study
def test_the_pocket_model(data_dir, tmp_path):
    """Some articles do not fit its context."""
    found = validation.main(["--output", str(tmp_path), *SMALL, "--data", str(data_dir), "--judge", "pocket=pocket"])
    assert 0 < found["pocket"]["ratings"]["fluency"]["n"] < 4 and found["pocket"]["pairs"]["summeval"]["unread"] == 1
    assert found["pocket"]["pairs"]["semeval"]["n"] == found["pocket"]["pairs"]["evouna"]["n"] == 2


@pytest.mark.slow
@pytest.mark.study
def test_smollm2(data_dir, tmp_path, smollm2):
    found = validation.main(["--output", str(tmp_path), *SMALL, "--data", str(data_dir), "--judge", f"base={smollm2}"])
    assert found["base"]["ratings"]["fluency"]["n"] == 4 and found["base"]["pairs"]["semeval"]["n"] == 2
