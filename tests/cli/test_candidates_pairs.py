"""`pairs` as a user meets it: candidates in, preference rows and a card out."""

import json
from pathlib import Path

import pytest

from checklist_rewards.files.rows import read_rows
from tests.jsonl import read_jsonl, write_jsonl


def likes(prefix: str, tail: str) -> float | None:
    if "lost" in prefix and "big" in tail:
        return None
    return 0.1 + 0.2 * prefix.count("red" if "red" in tail else "big")


ROWS = (
    {"prompt": "Paint.", "checklist": ["Is it red?"], "candidates": ["plain", "red", "redred"]},
    {"prompt": "Draw.", "checklist": ["Is it red?", "Is it big?"], "candidates": ["red big", "plain"]},
    {"prompt": "Tie.", "checklist": ["Is it red?"], "candidates": ["plain", "simple"]},
    {"prompt": "One.", "checklist": ["Is it red?"], "candidates": ["plain"]},
)


def test_pairs_of_the_best_and_the_worst_and_a_card(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    run("pairs rows.jsonl -o out.jsonl --no-store --summary sum.json")
    first, second = read_jsonl("out.jsonl")
    assert (first["prompt"], first["chosen"], first["rejected"]) == ("Paint.", "redred", "plain")
    assert first["score_chosen"] == pytest.approx(0.5) and "margin" not in first
    assert (second["chosen"], second["rejected"], second["flipped"]) == ("red big", "plain", [])
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["pairs"], summary["dropped_tie"], summary["dropped_too_few"]) == (2, 1, 1)
    card = Path("out.md").read_text()
    assert "2 pairs from 4 prompts" in card and "| tie | 1 |" in card and "the best against the worst" in card


def test_the_answers_are_judged_and_the_full_texts_are_written(run, engine):
    """Judged with its thought, the first candidate would be the chosen one."""
    fake = engine(likes)
    candidates = ["<think>red red red</think>plain", "<think>plain</think>red"]
    write_jsonl("rows.jsonl", {**ROWS[0], "candidates": candidates})
    run("pairs rows.jsonl -o out.parquet --no-store")
    [row] = [found.data for found in read_rows("out.parquet")]
    assert (row["chosen"], row["rejected"]) == (candidates[1], candidates[0])
    assert not any("red red red" in prefix for prefix, _ in fake.asked)


def test_a_candidate_without_an_answer_is_rejected_or_left_out(run, engine):
    fake = engine(likes)
    write_jsonl("rows.jsonl", {**ROWS[0], "candidates": ["<think>red red", "plain"]})
    done = run("pairs rows.jsonl -o out.jsonl --no-store")
    assert "1 of 2 targets (1 cut_in_thought); scored as the lowest" in done.stderr
    [row] = read_jsonl("out.jsonl")
    assert (row["chosen"], row["rejected"]) == ("plain", "<think>red red") and row["score_rejected"] == 0.0
    assert len(fake.asked) == 1
    run("pairs rows.jsonl -o out.jsonl --no-store --no-answer unscored", code=1)
    assert read_jsonl("out.jsonl") == [] and "| too_few | 1 |" in Path("out.md").read_text()


def test_rlcf_keeps_the_clearest_pair_of_the_whole_file(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    arguments = ("--select", "rlcf", "--top-fraction", "0.5", "--card", "card.md")
    run("pairs rows.jsonl -o out.jsonl --no-store", *arguments)
    assert [row["prompt"] for row in read_jsonl("out.jsonl")] == ["Paint."]
    assert "| not_top | 1 |" in Path("card.md").read_text() and not Path("out.md").exists()


@pytest.mark.parametrize(
    ("form", "keys", "count"),
    [("dpo", {"chosen", "rejected"}, 1), ("reward", {"chosen", "margin"}, 1), ("kto", {"completion", "label"}, 2)],
)
def test_every_form_is_read_back_from_parquet(run, engine, form, keys, count):
    from datasets import load_dataset

    engine(likes)
    message = [{"role": "user", "content": "Paint."}]
    write_jsonl("rows.jsonl", {**ROWS[0], "prompt": message})
    run(f"pairs rows.jsonl -o out.parquet --form {form} --no-store")
    data = load_dataset("parquet", data_files="out.parquet", split="train", cache_dir="cache")
    assert len(data) == count and keys <= set(data.column_names) and data[0]["prompt"] == message


def test_what_decides_no_pair_is_told_and_the_exit_code_is_1(run, engine):
    engine(likes)
    lost = {"prompt": "Draw.", "checklist": ["Is it red?", "Is it big?"], "candidates": ["red lost", "red big"]}
    write_jsonl("rows.jsonl", ROWS[0], lost, {**ROWS[1], "checklist": None})
    done = run("pairs rows.jsonl -o out.jsonl --no-store", code=1)
    assert "too_long" in done.stderr and len(read_jsonl("out.jsonl")) == 1
    card = Path("out.md").read_text()
    assert "| tie | 1 |" in card and "| no_checklist | 1 |" in card


# --- the scores that `rerank` wrote


CANDIDATES = [
    {"prompt": f"Paint {n}.", "checklist": ["Is it red?", "Is it big?"], "candidates": texts}
    for n, texts in enumerate(
        (["plain", "red", "red red big"], ["big", "red big", "plain"], ["<think>red", "red", "big"])
    )
]


def ranked(run, engine, *options, output="ranked.jsonl", rows=CANDIDATES):
    """The output of `rerank` by a judge that likes red and big; afterwards any engine is one that dislikes them."""
    engine(likes)
    write_jsonl("rows.jsonl", *rows)
    run(f"rerank rows.jsonl -o {output} --no-store --model org/liked --base-url {SERVER}", *options)
    return engine(lambda prefix, tail: 0.9 if "plain" in prefix else 0.1)


SERVER = "http://localhost:9/v1"
SELECT = [[], ["--select", "random"], ["--select", "rlcf", "--top-fraction", "1"], ["--unanswered", "bounds"]]


@pytest.mark.parametrize("options", SELECT, ids=str)
@pytest.mark.parametrize("output", ["ranked.jsonl", "ranked.parquet", "ranked.csv"])
def test_the_scores_of_rerank_are_used_and_no_judge_is_asked(run, engine, output, options):
    write_jsonl("rows.jsonl", *CANDIDATES)
    engine(likes)
    judge = ("--model", "org/liked", "--base-url", SERVER)
    run("pairs rows.jsonl -o direct.jsonl --no-store", *judge, *options)
    other = ranked(run, engine, output=output)
    done = run(f"pairs {output} -o out.jsonl --no-store", *options)
    assert other.asked == [] and "--model" not in done.output, done.output
    assert len(read_jsonl("out.jsonl")) == 3 and read_jsonl("out.jsonl") == read_jsonl("direct.jsonl")
    assert "answered by `org/liked`" in Path("out.md").read_text()
    run(f"pairs {output} -o again.jsonl --no-store --model org/other --base-url {SERVER}", *options)
    assert other.asked, "a judge that is named scores again"
    assert read_jsonl("again.jsonl") != read_jsonl("out.jsonl") and "`org/other`" in Path("again.md").read_text()


@pytest.mark.parametrize("settings", [["--metric", "normalized"], ["--threshold", "0.1"], ["--no-answer", "unscored"]])
def test_settings_of_rerank_are_those_of_the_pairs(run, engine, settings):
    write_jsonl("rows.jsonl", *CANDIDATES)
    engine(likes)
    judge = ("--model", "org/liked", "--base-url", SERVER)
    code = int("unscored" in settings)  # one candidate has no answer
    run("pairs rows.jsonl -o direct.jsonl --no-store", *judge, *settings, code=code)
    ranked(run, engine, *([] if settings[0] == "--no-answer" else settings))
    applied = settings if settings[0] == "--no-answer" else []  # an option of the aggregation applies here too
    run("pairs ranked.jsonl -o out.jsonl --no-store", *applied, code=code)
    assert read_jsonl("out.jsonl") == read_jsonl("direct.jsonl") != []


def test_weights_of_rerank_stay(run, engine):
    Path("weights.json").write_text(json.dumps({"Is it big?": 100}))
    ranked(run, engine, "--weights", "weights.json")
    run("pairs ranked.jsonl -o out.jsonl --no-store")
    assert [item["weight"] for item in read_jsonl("out.jsonl")[0]["checklist"]] == [1.0, 100.0]


def asks_otherwise(row):
    items = zip(row["checklist_scores"][0]["items"], ("Is it red?", "Is it small?"), strict=True)
    row["checklist"] = [{"id": item["id"], "question": question} for item, question in items]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda row: row["candidates"].reverse(), [], "has the scores of other candidates than the row"),
        (lambda row: row["candidates"].append("new"), [], "has the scores of other candidates than the row"),
        (lambda row: row["checklist_scores"].pop(), [], "has the scores of other candidates than the row"),
        (lambda row: row["candidates"].__setitem__(0, "another"), [], "a candidate, the prompt or the reference has"),
        (lambda row: row["candidates"].__setitem__(slice(2), ["red", "plain"]), [], "a candidate, the prompt or the"),
        (lambda row: row.update(prompt="Sing."), [], "a candidate, the prompt or the reference has changed since"),
        (asks_otherwise, [], "answers 'Is it big?', but the checklist asks 'Is it small?' under the same id"),
        (lambda row: row["checklist"].append("Is it new?"), [], "has no answer to some items of the checklist"),
        (lambda row: row.update(checklist_scores="red"), [], "'checklist_scores' must be a list"),
        (lambda row: row.update(checklist_scores={"a": 1}), [], "checklist_scores must be a list, got dict"),
        (lambda row: row.update(checklist_scores=[{"a": 1}] * 3), [], "is not a score"),
        (lambda row: None, ["--judge.prompt", "judges/item"], "--judge.prompt has no effect on the stored"),
        (lambda row: None, ["--mode", "batch"], "--mode has no effect on the stored checklist_scores"),
        (lambda row: row.pop("checklist_scores"), [], "no model is named"),
    ],
)
def test_scores_that_are_not_of_these_candidates_are_refused(run, engine, no_engine, change, options, words):
    ranked(run, engine)
    rows = read_jsonl("ranked.jsonl")
    change(rows[0])
    write_jsonl("changed.jsonl", *rows)
    run("pairs changed.jsonl -o out.jsonl --no-store", *options, refused=words, with_model=False)


def test_ranked_files_of_earlier_versions_have_no_hashes(run, engine):
    ranked(run, engine)
    rows = read_jsonl("ranked.jsonl")
    assert [len(set(row.pop("checklist_hashes"))) for row in rows] == [3, 3, 3]
    write_jsonl("earlier.jsonl", *rows)
    for name in ("ranked", "earlier"):
        run(f"pairs {name}.jsonl -o {name}_pairs.jsonl --no-store")
    assert read_jsonl("earlier_pairs.jsonl") == read_jsonl("ranked_pairs.jsonl")


def test_the_card_names_the_judges_that_answered(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    names = ("org/one", "org/two", "org/three")
    judges = [{"model": name, "base_url": SERVER} for name in names]
    Path("panel.json").write_text(json.dumps({"panel": {}, "judges": judges}))
    run("pairs rows.jsonl -o out.jsonl --no-store --judge panel.json")
    card = Path("out.md").read_text()
    assert "pocket" not in card and all(name in card for name in names)
