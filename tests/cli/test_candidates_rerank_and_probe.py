"""`rerank` and `probe` as a user meets them."""

import json
import shutil
from pathlib import Path

import pytest

from checklist_rewards.backends import Reply
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.judges.probe import PROBE_ITEMS
from tests.encoders import tiny_bert
from tests.jsonl import read_jsonl, write_jsonl


def likes(prefix: str, tail: str) -> float | None:
    return None if "lost" in prefix else 0.2 + 0.2 * prefix.count("red")


def truth(prefix: str, tail: str) -> float:
    return 0.9 if any(i.holds and i.question in tail and f"\n{i.target}\n" in prefix for i in PROBE_ITEMS) else 0.1


def test_rerank_ranks_given_candidates_and_measures_against_gold(run, engine):
    engine(likes)
    row = {
        "input": "Paint.",
        "checklist": ["Is it red?"],
        "candidates": ["plain", "red", "redred"],
        "human": [1, 2, 3],
    }
    write_jsonl("rows.jsonl", row, row | {"candidates": ["red", "red", "plain"], "human": [5, 4, 1]})
    run("rerank rows.jsonl -o out.jsonl --gold-key human --summary sum.json --no-store")
    first, second = read_jsonl("out.jsonl")
    assert first["checklist_ranks"] == [3, 2, 1] and first["checklist_best"] == ["redred"]
    assert second["checklist_ranks"] == [1, 1, 3] and second["checklist_best"] == ["red", "red"]
    assert [score["answered"] for score in first["checklist_scores"]] == [1, 1, 1]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["precision"] == pytest.approx(0.75) and summary["rows_with_ties"] == 1
    assert (summary["gold_picked"], summary["gold_first"]) == (pytest.approx(3.75), 3.0)


def test_ties_are_broken_on_request_and_a_candidate_without_a_score_has_no_rank(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", {"checklist": ["Is it red?"], "candidates": ["red", "red", "lost", "plain"]})
    for options, ranks in (("", [1, 1, None, 3]), ("--ties first", [1, 2, None, 3])):
        assert "too_long" in run(f"rerank rows.jsonl -o out.jsonl --no-store {options}", code=1).stderr
        assert read_jsonl("out.jsonl")[0]["checklist_ranks"] == ranks


THOUGHTS = ["<think>red red red</think>plain", "<think>red red red", "<think>plain</think>red"]


@pytest.mark.parametrize(("source", "output"), [("rows.jsonl", "out.parquet"), ("rows.csv", "out.jsonl")])
def test_the_answers_are_judged_and_the_full_texts_are_written(run, engine, source, output):
    fake = engine(likes)
    with write_rows(source) as rows:  # a CSV holds its candidates as JSON
        rows.write({"checklist": ["Is it red?"], "candidates": THOUGHTS})
    done = run(f"rerank {source} -o {output} --no-store")
    assert "1 of 3 targets (1 cut_in_thought); scored as the lowest" in done.stderr
    [row] = [found.data for found in read_rows(output)]
    assert row["checklist_ranks"] == [2, 3, 1] and row["checklist_best"] == [THOUGHTS[2]]
    assert [score["state"] for score in row["checklist_scores"]] == ["answered", "cut_in_thought", "answered"]
    assert len(fake.asked) == 2 and not any("red red red" in prefix for prefix, _ in fake.asked)


def test_sampled_candidates_that_were_cut_are_counted(run, engine):
    fake = engine(likes)
    replies = [Reply("<think>red", "length"), Reply("a red", "length"), Reply("red", "stop")]
    fake.generate = lambda prompts, sampling, arrived=None: [replies]
    write_jsonl("rows.jsonl", {"prompt": "Paint.", "checklist": ["Is it red?"]})
    done = run("rerank rows.jsonl -o out.jsonl --policy.model pocket --n 3 --summary sum.json")
    assert "1 of 3 targets reached the length limit" in done.stderr, done.output
    [row] = read_jsonl("out.jsonl")
    assert row["candidates"] == ["<think>red", "a red", "red"] and row["checklist_ranks"] == [3, 1, 1]
    assert [score["state"] for score in row["checklist_scores"]] == ["cut_in_thought", "cut", "answered"]
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["no_answer"], summary["cut"]) == ({"cut_in_thought": 1}, 1)


def test_candidates_are_sampled_from_a_policy(run, engine, caplog, monkeypatch):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    engine(likes, replies=["a red one"])
    row = {"prompt": "Paint.", "checklist": ["Is it red?"]}
    write_jsonl("rows.jsonl", row, row | {"checklist": None, "candidates": ["mine"]})
    done = run("rerank rows.jsonl -o out.jsonl --policy.model pocket --n 3 --no-store", code=1)
    assert "no_checklist" in done.stderr
    first, second = read_jsonl("out.jsonl")
    assert first["candidates"] == ["a red one"] * 3 and first["checklist_ranks"] == [1, 1, 1]
    assert second["candidates"] == ["a red one"] * 3 and second["checklist_ranks"] is None
    [said] = [message for message in caplog.messages if "are replaced by those that are sampled" in message]
    assert said.startswith("rows.jsonl, line 2, 'candidates': ")


def test_a_policy_that_does_not_reply_is_told(run, engine):
    fake = engine(likes)
    replies = [[Reply("red", "stop"), Reply(None, unanswered="too_long")], [Reply(None), Reply(None)]]
    fake.generate = lambda prompts, sampling, arrived=None: replies
    write_jsonl("rows.jsonl", *({"prompt": text, "checklist": ["Is it red?"]} for text in ("Paint.", "Draw.")))
    done = run("rerank rows.jsonl -o out.jsonl --policy.model pocket --n 2 --no-store", code=1)
    assert "no_reply" in done.stderr and "1 of 2 candidates" in done.stderr
    first, second = read_jsonl("out.jsonl")
    assert first["checklist_best"] == ["red"] and second["candidates"] == [] and second["checklist_best"] is None


def test_probe_passes_a_judge_that_knows(run, engine):
    engine(truth, replies=["yes"])
    done = run("probe --json probe.json")
    assert "usable as a judge" in done.stdout and "margin" in done.stdout
    report = json.loads(Path("probe.json").read_text())
    assert report["accuracy"] == 1.0 and report["refusal"] is None and len(report["lines"]) == 12


def test_probe_refuses_a_judge_that_does_not(run, engine):
    engine(lambda prefix, tail: 0.97, replies=["yes"])
    done = run("probe", code=1)
    assert "cannot tell yes from no" in done.stderr and "rejected" in done.stdout


def test_probe_of_an_encoder_reports_its_answers(run, tmp_path):
    from transformers import AutoConfig, AutoModelForSequenceClassification

    base, folder = tiny_bert(tmp_path / "base"), tmp_path / "judge"
    shutil.copytree(base, folder)
    config = AutoConfig.from_pretrained(base, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    done = run("probe --model", str(folder), "--json", "probe.json", code=1)
    assert "cannot tell yes from no" in done.stderr  # it is not trained
    assert "not applicable: an encoder writes no text" in done.stdout and "on a server" not in done.stdout
    report = json.loads(Path("probe.json").read_text())
    assert report["answered"] == 12 and report["encoder"] and report["label_first"] == 0
