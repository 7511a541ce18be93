"""`pairs`, `rerank`, `probe` and `refine` as a user meets them."""

import json
import shutil
from pathlib import Path

import pytest

from checklist_rewards.backends import Reply, Sampling
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.judges.probe import PROBE_ITEMS
from tests.encoders import tiny_bert
from tests.generators.fakes import Replies
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_self_refine import ITEMS, improving, knows


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
    lost = {**ROWS[1], "candidates": ["red lost", "red big"]}
    parts = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    write_jsonl("rows.jsonl", ROWS[0] | parts, *ROWS[1:], lost, {**ROWS[1], "checklist": None})
    done = run("pairs rows.jsonl -o out.jsonl --no-store --summary sum.json", code=1)
    first, second = read_jsonl("out.jsonl")
    assert (first["prompt"], first["chosen"], first["rejected"]) == ("Paint.", "redred", "plain")
    assert first["score_chosen"] == pytest.approx(0.5) and "margin" not in first
    assert first == first | parts, "DPOTrainer renders them with the prompt"
    assert (second["chosen"], second["rejected"], second["flipped"]) == ("red big", "plain", [])
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["pairs"], summary["dropped_tie"], summary["dropped_too_few"]) == (2, 2, 1)
    card = Path("out.md").read_text()
    assert "2 pairs from 6 prompts" in card and "| tie | 2 |" in card and "the best against the worst" in card
    assert "| no_checklist | 1 |" in card and "too_long" in done.stderr


# --- the scores that `rerank` wrote


TEXTS = ["plain", "red", "red red big"], ["big", "red big", "plain"], ["<think>red", "red", "big"]
CANDIDATES = [
    {"prompt": f"Paint {n}.", "checklist": ["Is it red?", "Is it big?"], "candidates": texts}
    for n, texts in enumerate(TEXTS)
]
SERVER = "http://localhost:9/v1"
LIKED = f"--no-store --model org/liked --base-url {SERVER}"


def ranked(run, engine, options="", output="ranked.jsonl"):
    """The output of `rerank` by a judge that likes red and big; afterwards any engine is one that dislikes them."""
    engine(likes)
    write_jsonl("rows.jsonl", *CANDIDATES)
    run(f"rerank rows.jsonl -o {output} {LIKED} {options}")
    return engine(lambda prefix, tail: 0.9 if "plain" in prefix else 0.1)


@pytest.mark.parametrize(
    ("output", "options"),
    [
        ("ranked.jsonl", "--select random"),
        ("ranked.parquet", "--unanswered bounds --form kto"),
        ("ranked.csv", "--select rlcf --top-fraction 0.5"),
    ],
)
def test_the_scores_of_rerank_are_used_and_no_judge_is_asked(run, engine, output, options):
    write_jsonl("rows.jsonl", *CANDIDATES)
    engine(likes)
    run(f"pairs rows.jsonl -o direct.jsonl {LIKED} {options}")
    other = ranked(run, engine, output=output)
    done = run(f"pairs {output} -o out.jsonl --no-store {options}")
    assert other.asked == [] and "--model" not in done.output, done.output
    assert read_jsonl("out.jsonl") == read_jsonl("direct.jsonl") != []
    card = Path("out.md").read_text()
    assert "answered by `org/liked`" in card and ("not_top" in card) == ("--top-fraction" in options)
    run(f"pairs {output} -o again.jsonl --no-store --model org/other --base-url {SERVER} {options}")
    assert other.asked, "a judge that is named scores again"
    assert read_jsonl("again.jsonl") != read_jsonl("out.jsonl") and "`org/other`" in Path("again.md").read_text()


@pytest.mark.parametrize("settings", ["--metric normalized", "--no-answer unscored"])
def test_settings_of_rerank_are_those_of_the_pairs(run, engine, settings):
    write_jsonl("rows.jsonl", *CANDIDATES)
    engine(likes)
    here = settings.startswith("--no-answer")  # an option of the aggregation applies here too
    code = int(here)  # one candidate has no answer
    run(f"pairs rows.jsonl -o direct.jsonl {LIKED} {settings}", code=code)
    ranked(run, engine, "" if here else settings)
    run(f"pairs ranked.jsonl -o out.jsonl --no-store {settings if here else ''}", code=code)
    assert read_jsonl("out.jsonl") == read_jsonl("direct.jsonl") != []


def test_weights_of_rerank_stay_also_in_files_of_earlier_versions_without_hashes(run, engine):
    Path("weights.json").write_text(json.dumps({"Is it big?": 100}))
    ranked(run, engine, "--weights weights.json")
    rows = read_jsonl("ranked.jsonl")
    assert [len(set(row.pop("checklist_hashes"))) for row in rows] == [3, 3, 3]
    write_jsonl("earlier.jsonl", *rows)
    for name in ("ranked", "earlier"):
        run(f"pairs {name}.jsonl -o {name}_pairs.jsonl --no-store")
    assert [item["weight"] for item in read_jsonl("ranked_pairs.jsonl")[0]["checklist"]] == [1.0, 100.0]
    assert read_jsonl("earlier_pairs.jsonl") == read_jsonl("ranked_pairs.jsonl")


def asks_otherwise(row):
    items = zip(row["checklist_scores"][0]["items"], ("Is it red?", "Is it small?"), strict=True)
    row["checklist"] = [{"id": item["id"], "question": question} for item, question in items]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda row: row["candidates"].reverse(), "", "has the scores of other candidates than the row"),
        (lambda row: row["candidates"].append("new"), "", "has the scores of other candidates than the row"),
        (lambda row: row["checklist_scores"].pop(), "", "has the scores of other candidates than the row"),
        (lambda row: row["candidates"].__setitem__(0, "another"), "", "a candidate, the prompt or the reference has"),
        (lambda row: row["candidates"].__setitem__(slice(2), ["red", "plain"]), "", "a candidate, the prompt or the"),
        (lambda row: row.update(prompt="Sing."), "", "a candidate, the prompt or the reference has changed since"),
        (asks_otherwise, "", "answers 'Is it big?', but the checklist asks 'Is it small?' under the same id"),
        (lambda row: row["checklist"].append("Is it new?"), "", "has no answer to some items of the checklist"),
        (lambda row: row.update(checklist_scores="red"), "", "'checklist_scores' must be a list"),
        (lambda row: row.update(checklist_scores={"a": 1}), "", "checklist_scores must be a list, got dict"),
        (lambda row: row.update(checklist_scores=[{"a": 1}] * 3), "", "is not a score"),
        (lambda row: None, "--judge.prompt judges/item", "--judge.prompt has no effect on the stored"),
        (lambda row: None, "--mode batch", "--mode has no effect on the stored checklist_scores"),
        (lambda row: row.pop("checklist_scores"), "", "no model is named"),
    ],
)
def test_scores_that_are_not_of_these_candidates_are_refused(run, engine, no_engine, change, options, words):
    ranked(run, engine)
    rows = read_jsonl("ranked.jsonl")
    change(rows[0])
    write_jsonl("changed.jsonl", *rows)
    run(f"pairs changed.jsonl -o out.jsonl --no-store {options}", refused=words, with_model=False)


def likes_red(prefix: str, tail: str) -> float | None:
    return None if "lost" in prefix else 0.2 + 0.2 * prefix.count("red")


def truth(prefix: str, tail: str) -> float:
    return 0.9 if any(i.holds and i.question in tail and f"\n{i.target}\n" in prefix for i in PROBE_ITEMS) else 0.1


def test_rerank_ranks_given_candidates_and_measures_against_gold(run, engine):
    engine(likes_red)
    row = {"input": "Paint.", "checklist": ["Is it red?"]}
    tied = {"candidates": ["red", "red", "plain"], "human": [5, 4, 1]}
    write_jsonl("rows.jsonl", row | {"candidates": ["plain", "red", "redred"], "human": [1, 2, 3]}, row | tied)
    run("rerank rows.jsonl -o out.jsonl --gold-key human --summary sum.json --no-store")
    first, second = read_jsonl("out.jsonl")
    assert first["checklist_ranks"] == [3, 2, 1] and first["checklist_best"] == ["redred"]
    assert second["checklist_ranks"] == [1, 1, 3] and second["checklist_best"] == ["red", "red"]
    assert [score["answered"] for score in first["checklist_scores"]] == [1, 1, 1]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["precision"] == pytest.approx(0.75) and summary["rows_with_ties"] == 1
    assert (summary["gold_picked"], summary["gold_first"]) == (pytest.approx(3.75), 3.0)


THOUGHTS = ["<think>red red red</think>plain", "<think>red red red", "<think>plain</think>red"]


def test_rerank_judges_the_answers_and_writes_the_full_texts(run, engine):
    fake = engine(likes_red)
    with write_rows("rows.csv") as rows:  # a CSV holds its candidates as JSON
        rows.write({"checklist": ["Is it red?"], "candidates": THOUGHTS})
    done = run("rerank rows.csv -o out.parquet --no-store")
    assert "1 of 3 targets (1 cut_in_thought); scored as the lowest" in done.stderr
    [row] = [found.data for found in read_rows("out.parquet")]
    assert row["checklist_ranks"] == [2, 3, 1] and row["checklist_best"] == [THOUGHTS[2]]
    assert [score["state"] for score in row["checklist_scores"]] == ["answered", "cut_in_thought", "answered"]
    assert len(fake.asked) == 2 and not any("red red red" in prefix for prefix, _ in fake.asked)


def test_sampled_candidates_that_were_cut_or_did_not_come_are_counted(run, engine, caplog):
    fake = engine(likes_red)
    replies = [Reply("<think>red", "length"), Reply("a red", "length"), Reply("red", "stop")]
    lost = [Reply("red", "stop"), Reply(None, unanswered="too_long"), Reply(None)]
    fake.generate = lambda prompts, sampling, arrived=None: [replies, lost, [Reply(None)] * 3]
    row = {"checklist": ["Is it red?"], "tools": [{"name": "f"}]}
    write_jsonl("rows.jsonl", *(row | {"prompt": f"Paint {n}."} for n in range(3)))
    done = run("rerank rows.jsonl -o out.jsonl --policy.model pocket --n 3 --summary sum.json --no-store", code=1)
    assert "line 1, 'tools': the policy that samples the candidates does not get this column" in caplog.text
    assert "1 of 4 targets reached the length limit" in done.stderr, done.output
    assert "no_reply" in done.stderr and "1 of 3 candidates" in done.stderr
    row, second, third = read_jsonl("out.jsonl")
    assert row["candidates"] == ["<think>red", "a red", "red"] and row["checklist_ranks"] == [3, 1, 1]
    assert [score["state"] for score in row["checklist_scores"]] == ["cut_in_thought", "cut", "answered"]
    assert second["checklist_best"] == ["red"] and third["candidates"] == [] and third["checklist_best"] is None
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["no_answer"], summary["cut"]) == ({"cut_in_thought": 1}, 1)
    run("pairs out.jsonl -o pairs.jsonl --summary sum.json --no-store")
    assert json.loads(Path("sum.json").read_text())["dropped_too_few"] == 2
    again = run("rerank out.jsonl -o again.jsonl --no-store", code=1)
    assert "no_reply" in again.stderr and "the row has no candidates" in again.stderr
    assert [row["checklist_ranks"] for row in read_jsonl("again.jsonl")] == [[3, 1, 1], [1], None]


def test_candidates_are_sampled_from_a_policy(run, engine, caplog, monkeypatch):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    engine(likes_red, replies=["a red one"])
    row = {"prompt": "Paint.", "checklist": ["Is it red?"]}
    write_jsonl("rows.jsonl", row, row | {"checklist": None, "candidates": ["mine"]})
    done = run("rerank rows.jsonl -o out.jsonl --policy.model pocket --n 3 --no-store", code=1)
    assert "no_checklist" in done.stderr
    first, second = read_jsonl("out.jsonl")
    assert first["candidates"] == ["a red one"] * 3 and first["checklist_ranks"] == [1, 1, 1]
    assert second["candidates"] == ["a red one"] * 3 and second["checklist_ranks"] is None
    [said] = [message for message in caplog.messages if "are replaced by those that are sampled" in message]
    assert said.startswith("rows.jsonl, line 2, 'candidates': ")


def test_probe_passes_a_judge_that_knows_and_refuses_one_that_does_not(run, engine):
    engine(truth, replies=["yes"])
    done = run("probe --json probe.json")
    assert "usable as a judge" in done.stdout and "margin" in done.stdout
    report = json.loads(Path("probe.json").read_text())
    assert report["accuracy"] == 1.0 and report["refusal"] is None and len(report["lines"]) == 12
    engine(lambda prefix, tail: 0.97, replies=["yes"])
    done = run("probe", code=1)
    assert "cannot tell yes from no" in done.stderr and "rejected" in done.stdout
    engine(truth, replies=["yes"], mass=0.3)  # as a server that counts one spelling of yes and no
    assert "off_label" in run("probe", code=1).stderr
    Path("mine.md").write_text("My words. {target} {question}")
    asked = engine(truth, replies=["yes"], mass=0.3).asked
    run("probe --judge.mass-floor 0 --judge.prompt mine.md")
    assert len(asked) == 12 and all("My words." in prefix for prefix, _ in asked)


@pytest.fixture
def model(engine):
    """One engine that answers, writes checklists and judges, where any model would be loaded."""

    def reply(text: str, sampling: Sampling) -> str:
        return "1. Is it red?\n2. Is it round?" if "a number before it" in text else improving(text, sampling)

    fake = Replies(reply)
    fake.rule = knows
    return engine(backend=fake)


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
    run("refine rows.jsonl -o out.jsonl --no-store --rounds 1 --method critique")
    given, _ = read_jsonl("out.jsonl")
    assert [step["feedback"] for step in given["refined_rounds"]] == [None, "a thing"]
    assert (given["refined_round"], given["refined_stopped"]) == (0, "rounds")
    done = run("refine rows.jsonl -o out.jsonl --no-store --budget 0 --price pocket=1,1", code=1)
    assert "budget: 0 of 0 US" in done.stderr


def test_what_the_judge_leaves_unanswered_is_named_and_the_exit_code_is_1(run, model):
    model.rule = lambda prefix, tail: None
    write_jsonl("rows.jsonl", {"prompt": "Draw.", "checklist": ITEMS})
    done = run("refine rows.jsonl -o out.jsonl --no-store", code=1)
    assert "too_long" in done.stderr
    (row,) = read_jsonl("out.jsonl")
    assert (row["refined"], row["refined_round"], row["refined_stopped"]) == ("a thing", None, "unscored")


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


def test_the_card_names_the_judges_that_answered(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    names = ("org/one", "org/two", "org/three")
    judges = [{"model": name, "base_url": SERVER} for name in names]
    Path("panel.json").write_text(json.dumps({"panel": {}, "judges": judges}))
    run("pairs rows.jsonl -o out.jsonl --no-store --judge panel.json")
    card = Path("out.md").read_text()
    assert "pocket" not in card and all(name in card for name in names)
