"""`replay`: score a log or a scored file again. `diff`: what changes between two scorings of the same texts."""

import json
import random
from pathlib import Path

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.files.rows import read_rows
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Verdict, score_checklist
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.fakes import Labels

CHECKLIST = [{"question": "Is it red?", "weight": 3, "category": "colour"}, {"question": "Is it short?"}]
WORDS = ["red", "blue", "red and long", "green"]
ROWS = [{"id": word, "prompt": "Name a colour.", "target": word, "checklist": CHECKLIST} for word in WORDS]


def red(prefix, tail):
    return 0.9 if ("\nred" in prefix) == ("red?" in tail) else 0.2


class Step:
    global_step = 7


def no_column_is_cut_off(output):
    rows = [line.rstrip() for line in output.splitlines() if line[:1] in ("┃", "│")]
    return rows and all(row[-1] == row[0] for row in rows)


@pytest.fixture
def log(run):
    """A reward log of four completions, one of them without a checklist."""
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(red), store=False), log="rewards.jsonl")
    columns = {"completions": [*WORDS, "red"], "checklist": [CHECKLIST] * 4 + [None]}
    reward(prompts=["Name a colour."] * 5, **columns, trainer_state=Step())
    return read_jsonl("rewards.jsonl")


@pytest.fixture
def scored(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    engine(red)
    run("score rows.jsonl -o scored.jsonl --no-store")
    return read_jsonl("scored.jsonl")


@pytest.mark.parametrize(("options", "target"), [({}, "red"), ({"keep_thinking": True}, "<think>blue</think>red")])
def test_a_log_is_replayed_with_the_texts_and_states_that_were_judged(run, engine, options, target):
    """Also the log of a reward that ignored the images of its prompts."""
    scorer = ChecklistScorer(backend=FakeBackend(red), store=False)
    reward = ChecklistReward(scorer, log="rewards.jsonl", images="ignore", **options)
    prompt = [{"role": "user", "content": [{"type": "image", "image": b"GIF89a"}, {"type": "text", "text": "What?"}]}]
    completions = ["<think>blue</think>red", ""]
    reward(prompts=[prompt] * 2, completions=completions, checklist=[CHECKLIST] * 2, trainer_state=Step())
    fake = engine(red)
    done = run("replay rewards.jsonl -o again.jsonl --model pocket --no-store")
    assert "1 of 2 targets (1 empty); scored as the lowest" in done.stderr, done.output
    before, again = read_jsonl("rewards.jsonl"), read_jsonl("again.jsonl")
    for name in ("prompt", "completion", "state", "reward"):
        assert [row[name] for row in again] == [row[name] for row in before], name
    assert [row["score"]["state"] for row in again] == ["answered", "empty"]
    assert len(fake.asked) == 2 and all(f"\n{target}\n</target" in prefix for prefix, _ in fake.asked)


def test_another_judge_answers_again_and_a_second_run_asks_for_nothing(run, log, engine):
    other = engine(lambda prefix, tail: 0.75)
    again = "replay rewards.jsonl -o again.jsonl --model pocket --store store.sqlite"
    run(again, code=1)  # the row without a checklist is reported
    rows = read_jsonl("again.jsonl")
    assert [row.keys() for row in rows] == [row.keys() for row in log]
    assert [row["reward"] for row in rows] == [pytest.approx(0.75)] * 4 + [None]
    found = [(row["step"], row["prompt"], row["completion"]) for row in rows[:4]]
    assert found == [(7, "Name a colour.", word) for word in WORDS]
    assert len(other.asked) == 8
    run(again, code=1)
    assert len(other.asked) == 8 and read_jsonl("again.jsonl") == rows


def test_other_rules_weights_and_checklists_use_no_engine(run, scored, no_engine):
    Path("weights.yaml").write_text("colour: 0\n'Is it short?': -1\n")
    run("replay scored.jsonl -o again.jsonl --metric weighted --threshold 0.95 --weights weights.yaml")
    [first, *_] = read_jsonl("again.jsonl")
    score = first["checklist_score"]
    assert score["primary_metric"] == "weighted" and score["aggregation"]["threshold"] == 0.95
    assert [item["weight"] for item in score["items"]] == [item["weight"] for item in first["checklist"]] == [0, -1]
    assert [item["answer"] for item in score["items"]] == ["no", "no"]
    assert score["primary_score"] == 1.0  # a penalty that is not earned
    before = scored[0]["checklist_score"]["items"]
    assert [item["probabilities"] for item in score["items"]] == [item["probabilities"] for item in before]
    write_jsonl("plain.jsonl", first | {"checklist": scored[0]["checklist"]})  # as `score --weights` writes it
    run("replay plain.jsonl -o again.jsonl --threshold 0.95")
    assert read_jsonl("again.jsonl")[0]["checklist_score"] == score
    for id in ("", before[1]["id"]):
        edited = [scored[0]["checklist"][0], {"id": id, "question": "Is it loud?"}]
        write_jsonl("edited.jsonl", scored[0] | {"checklist": edited})
        done = run("replay edited.jsonl -o again.jsonl", code=1)
        assert "not_read" in done.output
        items = read_jsonl("again.jsonl")[0]["checklist_score"]["items"]
        assert [(item["question"], item["answer"]) for item in items] == [("Is it red?", "yes"), ("Is it loud?", None)]


def test_stored_answers_are_calibrated_without_an_engine(run, log, no_engine):
    judge = log[0]["score"]["items"][0]["judge"]
    cold = CalibrationMap(method="temperature", temperature=1e-3, reads=9)
    Calibration(judge=judge, read_by="logprobs", maps={"yes/no": cold}).save("cold.json")
    run("replay rewards.jsonl -o cold.jsonl --calibration cold.json", code=1)
    [first, *_] = read_jsonl("cold.jsonl")
    assert [item["probabilities"]["yes"] for item in first["score"]["items"]] == pytest.approx([1, 0])
    assert first["score"]["items"][0]["uncalibrated"]["yes"] == pytest.approx(0.9)
    run("replay cold.jsonl -o twice.jsonl --calibration cold.json", code=1)
    assert read_jsonl("twice.jsonl")[0] == first  # calibrated from the judge's own probabilities again


def test_the_rewards_of_a_shaped_log_are_not_guessed(run, log, no_engine):
    write_jsonl("shaped.jsonl", *(row | {"reward": (row["reward"] or 0) - 0.5, "shaping": [["x", 1]]} for row in log))
    write_jsonl("shaped.rank1.jsonl", *log[:2])  # the files of all ranks are one log
    done = run("replay shaped.jsonl -o again.jsonl --metric pass", code=1)
    rows = read_jsonl("again.jsonl")
    assert len(rows) == 7 and {row["reward"] for row in rows} == {None} and "shaping" not in rows[0]
    assert rows[0]["score"]["primary_score"] == 0.5 and "differ from its scores" in done.output.replace("\n", " ")


def test_repeats_separate_the_judge_from_the_texts(run, log, engine):
    # The wording shifts the answer about red texts; the texts differ by more.
    other = engine(lambda prefix, tail: red(prefix, tail) - (0.1 if "No or yes" in tail and "\nred" in prefix else 0))
    repeats = "--repeat 4 --json variance.json --bootstrap 50"
    done = run(f"replay rewards.jsonl -o again.jsonl --model pocket --no-store {repeats}", code=1)
    assert "Traceback" not in done.output and no_column_is_cut_off(done.output), done.output
    record = json.loads(Path("variance.json").read_text())
    assert record["how"] == "reworded" and record["rows"] == 4 and record["incomplete"] == 0
    figures = {name: figure["value"] for name, figure in record["scores"]["figures"].items()}
    assert figures["text"] > 10 * figures["judge"] > 0
    assert record["needed"] == -(-figures["judge"] // 0.02**2)
    needed = f"A standard error of 0.02 or less needs {record['needed']} answers per question."
    assert len(other.asked) == 4 * 8 and needed in done.output
    assert read_jsonl("again.jsonl")[0]["reward"] == pytest.approx(log[0]["reward"])  # repeat 0 is the plain read


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [({"prompt": "Name a colour."}, 1), ({}, 4), ({"prompt": ""}, 4), ({"prompt": "p", "history": "after {}"}, 4)],
)
def test_rows_without_a_prompt_are_not_resampled_as_one(run, engine, prompt, prompts):
    write_jsonl(
        "rows.jsonl",
        *(
            {"target": word, "checklist": CHECKLIST} | {name: text.format(word) for name, text in prompt.items()}
            for word in WORDS
        ),
    )
    engine(red)
    run("score rows.jsonl -o scored.jsonl --no-store")
    run("replay scored.jsonl -o again.jsonl --model pocket --no-store --repeat 2 --json variance.json --bootstrap 0")
    record = json.loads(Path("variance.json").read_text())
    assert record["rows"] == 4 and record["scores"]["prompts"] == prompts


ITEMS = Checklist.parse(["Is it red?", "Is it short?"])


def line(prompt, completion, *yes, step=1):
    """A line of a reward log with these probabilities of yes; None is unanswered."""
    verdicts = [Verdict(unanswered="timeout") if p is None else Verdict({"yes": p, "no": 1 - p}) for p in yes]
    score = score_checklist(ITEMS, verdicts)
    texts = {"step": step, "prompt": prompt, "completion": completion}
    return texts | {"reward": score.primary_score, "score": score.model_dump()}


SAME = [line("A", "b", 0.5, 0.5), line("B", "a", 0.8, 0.8)]
ONE = [line("A", "a", 0.9, 0.9), *SAME, line("A", "c", 0.1, 0.1), line("B", "b", 0.7, 0.8)]
OTHER = [line("A", "a", 0.1, 0.2), *SAME, line("A", "c", 0.9, 0.8), line("B", "b", 0.7, None)]


def difference(run, one, other, *arguments):
    write_jsonl("one.jsonl", *one)
    write_jsonl("other.jsonl", *other)
    done = run("diff one.jsonl other.jsonl --json diff.json --bootstrap 20", *arguments)
    assert no_column_is_cut_off(done.output)
    return json.loads(Path("diff.json").read_text()), done.output


def test_the_number_of_a_row_without_an_id_is_not_the_id_of_another_row(run):
    def row(id, text, yes):
        score = score_checklist(ITEMS, [Verdict({"yes": yes, "no": 1 - yes})] * 2).model_dump()
        return {"id": id, "input": "A", "target": text, "checklist_score": score}

    one = [row("2", "first", 0.9), row(None, "second", 0.1)]
    other = [row("2", "first", 0.9), row("x", "another", 0.5), row(None, "second", 0.2)]
    found, _ = difference(run, one, other)
    assert found["rows"] == 2 and found["counts"]["changed"] == 1
    assert [found["only_one"]["rows"], found["only_other"]["rows"]] == [0, 1]


@pytest.mark.parametrize("more", [{}, {"target": "gold"}])
def test_rows_without_ids_whose_text_is_unknown_are_compared_with_a_warning(run, caplog, monkeypatch, more):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    scores = [score_checklist(ITEMS, [Verdict({"yes": p, "no": 1 - p})] * 2).model_dump() for p in (0.9, 0.1)]
    rows = [{"input": "A", "response": str(n), "checklist_score": score, **more} for n, score in enumerate(scores)]
    # `rerank` writes such a row for a prompt without a reply.
    unread = {"input": "B", "target": None, "response": None, "checklist_score": None}
    found, _ = difference(run, [*rows, unread], [unread, *rows][::-1], "--target-key", "response")
    assert found["rows"] == 3 and found["counts"]["changed"] == 0 and not caplog.messages
    found, _ = difference(run, [*rows, unread], [*rows, unread])
    assert found["rows"] == 3 and found["counts"]["changed"] == 0
    assert [m.partition(", 'target': ")[::2] for m in caplog.messages] == [
        (
            f"{name}.jsonl, line 1",
            "rows are matched by prompt alone, because one of the two has no text in this column, or a gold answer.",
        )
        for name in ("one", "other")
    ]


def test_figures_by_hand(run):
    found, shown = difference(run, ONE, OTHER)
    counts, figures = found["counts"], {name: figure["value"] for name, figure in found["figures"].items()}
    assert counts["reads"] == 9 and counts["flips"] == 4  # a and c of prompt A, both items
    assert figures["flips"] == pytest.approx(4 / 9)
    assert figures["shift"] == pytest.approx((-0.8 - 0.7 + 0.8 + 0.7) / 9)
    assert figures["distance"] == pytest.approx(3 / 9)
    assert counts["scored"] == 5 and counts["changed"] == 3
    assert figures["kendall"] == pytest.approx((-1 + 1) / 2)  # A is turned around; B keeps its order
    assert counts["advantages"] == 5 and counts["reversed"] == 2
    assert (counts["pairs"], counts["other_pair"], counts["reversed_pair"]) == (2, 1, 1)
    flipped = [(read["completion"], read["one"], read["other"]) for read in found["reads"][:2]]
    assert flipped == [("c", "no", "yes"), ("a", "yes", "no")]
    [red, short] = sorted(found["items"], key=lambda item: item["question"])
    assert (red["reads"], red["flips"], short["reads"]) == (5, 2, 4)
    assert red["figures"]["kappa"]["value"] == pytest.approx(1 / 6)
    assert "answers flipped" in shown and "reads that differ most" in shown


@pytest.mark.parametrize(
    ("again", "other_pair", "reversed_pair"),
    [
        ((0.5, 0.2, 0.3, 0.4), 1, 0),  # one of the best stays above the worst
        ((0.5, 0.5, 0.9, 0.1), 1, 0),  # one of the worst stays below the best
        ((0.2, 0.1, 0.3, 0.4), 1, 1),
        ((0.5, 0.2, 0.4, 0.2), 0, 0),  # one of the best and one of the worst stay so
        ((0.5, 0.5, 0.50001, 0.50001), 1, 0),  # all are equal
    ],
)
def test_the_best_and_the_worst_text_may_be_several(run, again, other_pair, reversed_pair):
    first, second = ([line("A", f"text {n}", p, p) for n, p in enumerate(of)] for of in ((0.9, 0.9, 0.1, 0.1), again))
    counts = difference(run, first, second)[0]["counts"]
    assert (counts["pairs"], counts["other_pair"], counts["reversed_pair"]) == (1, other_pair, reversed_pair)


def test_equal_scores_have_no_order_and_no_best_text(run):
    equal, apart = (
        [line("A", "a", one, one), line("A", "b", other, other)] for one, other in ((0.5, 0.5), (0.9, 0.1))
    )
    ordered = [row | {"prompt": "B"} for row in apart]
    for one, other, pairs in ((equal, apart, 1), (apart, equal, 2)):
        found = difference(run, one + ordered, other + ordered)[0]
        assert found["counts"]["pairs"] == pairs and found["figures"]["kendall"]["value"] == 1.0  # of B
        assert (found["counts"]["flat_one"], found["counts"]["flat_other"]) == (2 - pairs, pairs - 1)


def test_an_item_that_code_checks_in_one_file_is_no_read_of_a_judge(run):
    one, other = line("A", "a", 0.9, 0.9), line("A", "a", 0.1, 0.9)
    other["score"]["items"][0]["method"] = "check"
    counts = difference(run, [one], [other])[0]["counts"]
    assert (counts["reads"], counts["flips"], counts["checks"], counts["checks_flipped"]) == (1, 0, 1, 1)


def test_groups_are_those_of_the_trainer(run):
    """Rows of the dataset with one prompt, an evaluation, and a step that a later start did again are apart."""
    starts = [{"started": "2026-11-30T10:00:00"}, {"started": "2026-11-30T11:00:00"}]
    apart = [{"group": "x"}, {"group": "y"}, {"group": "x", "evaluation": True}]
    of = [{**start, **columns} for start in starts for columns in apart]
    yes = [[0.9, 0.8], [0.2, 0.1]] * 3
    one = [line("A", f"{n} {k}", p, p) | columns for n, columns in enumerate(of) for k, p in enumerate(yes[n])]
    other = [row | {"score": line("A", "", 0.5, 0.5)["score"]} for row in one]
    found, _ = difference(run, one, other, "-o", "rows.jsonl")
    assert found["counts"]["groups"] == 6
    assert [round(abs(row["advantage_one"]), 3) for row in read_jsonl("rows.jsonl")] == [0.05] * 12


def test_rows_of_one_file_are_counted_and_named_and_equal_rows_paired_in_turn(run):
    found, shown = difference(run, ONE, OTHER[1:])
    assert found["rows"] == 4 and found["only_other"]["rows"] == 0
    assert found["only_one"] == {"rows": 1, "first": ["one.jsonl, line 1"]}
    assert "one.jsonl: 1 rows are only in this file: one.jsonl, line 1" in shown
    found, _ = difference(run, [ONE[0], *ONE[:2]], ONE[1::-1])  # in any order
    assert found["rows"] == 2 and found["only_one"]["rows"] == 1 and found["reads"] == []


def test_scored_files_are_matched_by_id_in_any_order(run):
    without = [{"prompt": "A", "target": f"{n}", "checklist_score": row["score"]} for n, row in enumerate(ONE)]
    named = [row | {"id": n} for n, row in enumerate(without)]
    copies = [row | {"target": "a copy"} for row in named]
    for rows, others in ((without, without), (named, named), (named, without), (copies, copies)):
        found, _ = difference(run, rows, others[::-1])
        assert found["rows"] == 5 and found["counts"]["flips"] == found["counts"]["changed"] == 0


@pytest.mark.parametrize("extension", ["jsonl", "csv"])
def test_the_output_has_a_row_per_text(run, extension):
    difference(run, ONE, OTHER, "-o", f"rows.{extension}")
    rows = {(row.data["prompt"], row.data["completion"]): row.data for row in read_rows(f"rows.{extension}")}
    first = rows["A", "a"]
    assert len(rows) == 5 and int(first["flips"]) == 2
    found = [float(first[name]) for name in ("score_one", "change", "advantage_one")]
    assert found == pytest.approx([0.9, -0.75, 0.4])
    items = json.loads(first["items"]) if extension == "csv" else first["items"]
    assert [items[0][name] for name in ("question", "one", "other")] == ["Is it red?", "yes", "no"]


def test_the_order_of_the_rows_changes_nothing(run):
    rng = random.Random(1)
    one = [line(f"{n % 5}", f"text {n}", rng.random(), rng.random(), step=n % 2) for n in range(60)]
    other = [line(f"{n % 5}", f"text {n}", rng.random(), rng.random(), step=n % 2) for n in range(60)]
    found, _ = difference(run, one, other)
    rng.shuffle(one)
    rng.shuffle(other)
    again, _ = difference(run, one, other)
    for read in found["reads"] + again["reads"]:
        del read["row"]  # the place in the file
    assert again == found


def test_the_same_judge_gives_the_same_log(run, log, engine):
    engine(red)
    run("replay rewards.jsonl -o again.jsonl --model pocket --no-store", code=1)
    again = read_jsonl("again.jsonl")
    assert [row.keys() for row in again] == [row.keys() for row in log]
    for row, before in zip(again, log, strict=True):
        assert row == before or row["score"]["primary_score"] == pytest.approx(before["score"]["primary_score"])


def test_code_checks_of_a_log_keep_their_answers(run, engine):
    checked = [{"question": "Short?", "check": {"type": "words", "at_most": 1}}, "Is it red?"]
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(red), store=False), log="rewards.jsonl")
    reward(prompts=["x", "x"], completions=["red", "red and long"], checklist=[checked, checked])
    other = engine(lambda prefix, tail: 0.7)
    run("replay rewards.jsonl -o again.jsonl --model pocket --no-store")
    rows = read_jsonl("again.jsonl")
    assert [[item["method"] for item in row["score"]["items"]] for row in rows] == [["check", "logprobs"]] * 2
    assert [row["score"]["items"][0]["answer"] for row in rows] == ["yes", "no"]
    assert len(other.asked) == 2


def test_a_scaled_file_is_replayed_on_its_scale(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    engine(backend=Labels({"0": 0.2, "1": 0.3, "2": 0.5}))
    run("score rows.jsonl -o scaled.jsonl --scale 3 --no-store")
    run("replay scaled.jsonl -o again.jsonl --metric weighted")
    assert read_jsonl("again.jsonl")[0]["checklist_score"]["primary_score"] == 1.0


def test_rows_without_a_prompt_are_groups_of_their_own(run):
    def bare(rows):
        return [{"target": row["prompt"] + row["completion"], "checklist_score": row["score"]} for row in rows]

    found, _ = difference(run, bare(ONE), bare(OTHER))
    assert found["rows"] == 5 and found["counts"]["groups"] == found["counts"]["pairs"] == 0
    assert found["figures"]["flips"]["refused"] == "needs 15 groups, has 5"
