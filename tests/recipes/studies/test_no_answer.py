"""Completions without an answer: the figures of the study, and the smallest run of both recipes."""

import json
import random

import pytest
from pocket.world import Constraint, Task
from studies.no_answer import run, thinking
from studies.no_answer.training import Completion, read_log

from checklist_rewards.chat import CompletionReader, Target

TASK = Task("Use at least one digit. Do not use digits.", (Constraint("digits"), Constraint("no_digits")))


def completion(whole, *read):
    target = CompletionReader().read(whole)
    return Completion(1, "Say 7.", target.state, target.text, target.thought, 0.5, whole, read)


def test_gold_is_0_without_an_answer():
    found = run.figures([(TASK, Target("Two.")), (TASK, Target("", "cut_in_thought", "one two three"))])
    assert (found["gold"], found["answered_gold"], found["no_answer"]) == (0.25, 0.5, 0.5)
    assert (found["thought"], found["unmarked"], found["cut_in_thought"], found["cut"]) == (1.5, 0.5, 0.5, 0.0)


def test_the_lengths_of_taught_thoughts_vary_widely():
    rng = random.Random(0)
    targets = [CompletionReader().read(run.draw(rng)[1]) for _ in range(200)]
    lengths = sorted(len(target.thought.split()) for target in targets)
    assert {target.state for target in targets} == {"answered"} and lengths[20] < 12 < 100 < lengths[-20]


def test_evidence_counts_what_a_judge_must_not_read():
    good = completion("<think>I should say seven here.</think>7 it is.", "7 it is.", "7 it is.")
    cut = completion("<think>I should say")
    found = thinking.evidence([good, cut])
    assert (found["completions"], found["with_a_thought"], found["without_an_answer"], found["reads"]) == (2, 2, 1, 2)
    assert not any(found[name] for name in thinking.VIOLATIONS)

    whole = completion("<think>I should say seven here.</think>7 it is.", "<think>I should say seven here.</think>7")
    leaked = thinking.evidence([whole, completion("<think>I should say seven here", "I should say seven here")])
    assert [leaked[name] for name in thinking.VIOLATIONS] == [1, 1, 1, 2, 1]


@pytest.mark.slow
@pytest.mark.xdist_group("trainers")
@pytest.mark.study
def test_the_smallest_study_trains_every_arm_and_continues(tmp_path, monkeypatch):
    how = ["--output", str(tmp_path), "--arms", "unscored", "masked", "--seeds", "0", "--steps", "2", "--groups", "1"]
    how += ["--tokens", "24", "--start-steps", "2", "--train-prompts", "4", "--test-prompts", "2"]
    summary = run.main(how)
    assert list(summary) == ["start", "unscored", "masked"]
    for arm in ("unscored", "masked"):
        assert 0 <= summary[arm]["gold"]["mean"] <= 1
        log = read_log(tmp_path / f"{arm}-0" / "rewards.jsonl")
        assert [one.step for one in log] == [1] * 8 + [2] * 8
        assert all(one.whole for one in log)
    assert "| masked | " in (tmp_path / "table.md").read_text() and (tmp_path / "no_answer.png").is_file()

    monkeypatch.setattr(run, "grpo", None)  # cannot be called
    assert run.main([*how, "--summary"]) == summary


@pytest.mark.slow
@pytest.mark.xdist_group("trainers")
@pytest.mark.study
def test_the_policy_that_thinks_is_taught_trained_and_read(tmp_path):
    """With the pocket model as policy and judge: it knows no English, but all parts are those of the real run."""
    how = ["--output", str(tmp_path), "--policy", "pocket", "--judge", "pocket", "--steps", "2", "--groups", "1"]
    how += ["--tokens", "16", "--taught-steps", "2"]
    result = thinking.main(how)
    evidence = result["evidence"]
    assert evidence["completions"] == 16 and not any(evidence[name] for name in thinking.VIOLATIONS)
    assert evidence["reads"] == 2 * (16 - evidence["without_an_answer"]) > 0
    for step, logged in zip(result["curve"], result["metrics"], strict=True):
        for name in ("cut_in_thought", "empty", "cut"):
            assert step[name] == pytest.approx(logged[name])
    lines = [json.loads(line) for line in (tmp_path / "run" / "rewards.jsonl").read_text().splitlines()]
    assert all(line["read"] == [line["completion"]] * 2 for line in lines if line["state"] in ("answered", "cut"))
    assert thinking.main(how) == result
