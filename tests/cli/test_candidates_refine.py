"""`refine` as a user meets it."""

import json
from pathlib import Path

import pytest

from checklist_rewards.backends import Reply, Sampling
from tests.cli.test_scoring_pipelines import table
from tests.generators.fakes import Replies
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_self_refine import ITEMS, improving, knows


@pytest.fixture
def model(engine):
    """One engine that answers, writes checklists and judges, where any model would be loaded."""

    def reply(text: str, sampling: Sampling) -> str:
        return "1. Is it red?\n2. Is it round?" if "a number before it" in text else improving(text, sampling)

    fake = Replies(reply)
    fake.rule = knows
    return engine(backend=fake)


def refined(run, rounds):
    """The only row after so many rounds, and the summary."""
    run(f"refine rows.jsonl -o out.jsonl --summary sum.json --no-store --rounds {rounds}")
    [row] = read_jsonl("out.jsonl")
    return row, json.loads(Path("sum.json").read_text())


def test_rows_are_refined_with_their_own_checklist_or_one_that_is_written(run, model):
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": ITEMS[:1]}, {"prompt": "Paint.", "checklist": None})
    run("refine rows.jsonl -o out.jsonl --summary sum.json --no-store")
    given, written = read_jsonl("out.jsonl")
    assert (given["refined"], given["refined_round"], given["refined_stopped"]) == ("a thing red", 1, "passed")
    assert given["checklist"] == ITEMS[:1] and "checklist_id" not in given
    assert written["refined"] == "a thing red round" and len(written["checklist"]) == 2
    assert [step["score"]["pass_rate"] for step in written["refined_rounds"]] == [0.0, 0.5, 1.0]
    assert written["refined_rounds"][0]["feedback"] is None and "Wrong:" in written["refined_rounds"][1]["feedback"]
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["answers"], summary["rows_that_pass"]) == (5, 2)
    assert (summary["score_of_the_first"], summary["score_of_the_best"]) == pytest.approx((0.1, 0.9))


def test_a_second_run_asks_for_nothing_and_writes_the_same(run, model):
    write_jsonl("rows.jsonl", {"prompt": "Draw."})
    run("refine rows.jsonl -o one.jsonl --store store.sqlite")
    asked = len(model.sampled), len(model.asked)
    run("refine rows.jsonl -o two.jsonl --store store.sqlite")
    assert (len(model.sampled), len(model.asked)) == asked
    assert Path("one.jsonl").read_text() == Path("two.jsonl").read_text()


def test_rounds_and_method(run, model):
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": ITEMS})
    assert refined(run, 1)[0]["refined_stopped"] == "rounds"
    row, _ = refined(run, "2 --method critique")
    assert [step["feedback"] for step in row["refined_rounds"]] == [None, "a thing", "a thing"]
    assert row["refined_round"] == 0


def test_answers_that_pass_are_counted_for_the_baseline_too(run, model):
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": [{"question": "Is it red?", "weight": -1}]})
    for method, answers in (("checklist", 1), ("critique", 2)):
        _, summary = refined(run, f"1 --method {method}")
        assert (summary["answers"], summary["rows_that_pass"]) == (answers, 1)


def test_a_reply_cut_in_its_thought_does_not_pass(run, model):
    """No text passes "Is it blue?" as a penalty, so an empty answer would be the best one."""
    said, model.reply = model.reply, lambda text, sampling: Reply("<think>red", "length")
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": [{"question": "Is it blue?", "weight": -1}]})
    done = run("refine rows.jsonl -o out.jsonl --no-store --rounds 0")
    assert "1 of 1 targets (1 cut_in_thought); scored as the lowest" in done.stderr
    row, summary = refined(run, 1)
    assert (row["refined"], row["refined_stopped"], summary["rows_that_pass"]) == ("", "rounds", 0)
    found = [(step["state"], step["score"]["primary_score"]) for step in row["refined_rounds"]]
    assert found == [("cut_in_thought", 0.0)] * 2
    cut = Reply("<think>r", "length")
    model.reply = lambda text, sampling: said(text, sampling) if "length limit" in text else cut
    row, summary = refined(run, 1)
    assert (row["refined"], row["refined_round"], row["refined_stopped"]) == ("a thing", 1, "passed")
    assert (summary["score_of_the_first"], summary["score_of_the_best"]) == pytest.approx((0.0, 0.9))


def test_what_the_judge_leaves_unanswered_is_named_and_the_exit_code_is_1(run, model):
    model.rule = lambda prefix, tail: None
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": ITEMS})
    done = run("refine rows.jsonl -o out.jsonl --no-store", code=1)
    assert "too_long" in done.stderr
    (row,) = read_jsonl("out.jsonl")
    assert (row["refined"], row["refined_round"], row["refined_stopped"]) == ("a thing", None, "unscored")


def test_a_dry_run_counts_every_round_at_its_longest_and_touches_nothing(run, no_engine):
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": ITEMS}, {"prompt": "Paint.", "checklist": ITEMS})
    command = "refine rows.jsonl -o out.jsonl --store s.sqlite --dry-run --rounds 3"
    shown = run(f"{command} --policy.max-tokens 100 --price pocket=0,1000000")
    lines = {cells[0]: cells[1:] for cells in table(shown.stdout)}
    assert lines["answers"][1] == "8" and lines["answers"][3] == "800", "two rows, one answer and three more"
    assert lines["scores"][1] == str(8 * len(ITEMS)) and lines["checklists"][1] == "0"
    assert float(lines["answers"][4].replace(",", "")) == 800
    prompt_tokens = int(lines["answers"][2].replace(",", ""))
    assert prompt_tokens > 6 * 100, "the later rounds are shown the answer before, of 100 tokens"
    assert "no answer passes before the last round" in shown.stdout and not Path("out.jsonl").exists()
    critique = {cells[0]: cells[1:] for cells in table(run(f"{command} --method critique").stdout)}
    assert critique["answers"][1] == str(2 * (1 + 2 * 3))


def test_a_dry_run_counts_the_checklists_to_write_and_not_what_the_store_has(run, model):
    write_jsonl("rows.jsonl", {"prompt": "Draw."}, {"prompt": "Paint."})
    command = "refine rows.jsonl -o out.jsonl --store s.sqlite --rounds 3"

    def counted() -> list[str]:
        return [cells[2] for cells in table(run(f"{command} --dry-run").stdout)]

    before = counted()
    assert before[:2] == ["8", "2"] and int(before[2]) % 8 == 0
    assert counted() == before, "a dry run leaves nothing in the store"
    run(command)
    assert counted() == ["0", "0", "0"]
