"""The report's data: what the page shows is what the rows and the other commands say."""

import base64
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.datasets import checklist_columns
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.items import ItemAnalysis
from checklist_rewards.files.rows import write_rows
from checklist_rewards.generators import ConstraintsGenerator
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Score
from checklist_rewards.scores.tally import tally, wilson
from checklist_rewards.ui.figures import pattern_of
from checklist_rewards.ui.report import joined_modules, kind_of, parts_of, report_data, write_report
from checklist_rewards.ui.table import json_chunks
from checklist_rewards.ui.thumbnails import MAX_BYTES, MAX_OF_A_ROW
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl
from tests.ui.files import (
    CHECKLIST,
    HOSTILE,
    annotation,
    monitor_rows,
    page_data,
    pair_rows,
    quoting_rows,
    reward_rows,
    scored_rows,
    shaped_rows,
    stated_rows,
    write,
)


def data_of(tmp_path: Path, *paths: Path, **options) -> dict:
    write_report(tmp_path / "report.html", list(paths), **options)
    return page_data(tmp_path / "report.html")


def column(spec) -> list:
    return spec if isinstance(spec, list) else [spec["all"]] * spec["length"]


def scores_of(path: Path) -> list[Score]:
    return [Score.model_validate(row["checklist_score"]) for row in read_jsonl(path)]


def test_rows_and_cells_are_those_of_the_file(tmp_path):
    path = write(tmp_path / "scored.jsonl", scored_rows(6))
    data = data_of(tmp_path, path)
    [file] = data["files"]
    rows, cells, texts = file["table"]["rows"], file["table"]["cells"], data["texts"]
    scores = scores_of(path)
    assert [texts[place] for place in column(rows["id"])] == [f"r{number}" for number in range(6)]
    assert texts[column(rows["target"])[3]] == HOSTILE
    assert column(rows["score"]) == [score.primary_score for score in scores]
    assert column(rows["counts"]) == [5] * 6
    lines = [line for score in scores for line in score.items]
    assert column(cells["mass"]) == [line.mass for line in lines]
    answers = [None if place < 0 else file["table"]["answers"][place] for place in column(cells["answer"])]
    assert answers == [line.answer for line in lines]
    assert [item["id"] for item in file["table"]["items"]] == [item.id for item in CHECKLIST.items]
    p = [(line.probabilities or {}).get("yes", line.confidence) for line in lines]
    assert column(cells["p"]) == p  # to the last digit
    more = file["table"]["more"]["4"]["probabilities"]
    assert more == scores[0].items[4].probabilities


@pytest.mark.parametrize("name", ["scored.csv", "scored.parquet"])
def test_every_format_gives_the_same_page(tmp_path, name):
    rows = list(scored_rows(8))
    with write_rows(tmp_path / name) as writer:
        for row in rows:
            writer.write(row)
    data = data_of(tmp_path, tmp_path / name)
    expected = data_of(tmp_path, write(tmp_path / "scored.jsonl", rows))
    for place in ("table", "overview", "analysis"):
        assert data["files"][0][place] == expected["files"][0][place]
    assert data["texts"] == expected["texts"]


def test_a_column_of_times_is_shown_as_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "timed.parquet"
    with write_rows(path) as writer:
        for row in scored_rows(3):
            writer.write(row)
    frame = pandas.read_parquet(path)
    frame["when"] = pandas.to_datetime(["2026-11-27 10:00", "2026-11-28 11:30", None])
    frame.to_parquet(path)
    data = data_of(tmp_path, path)
    shown = [data["texts"][place] if place >= 0 else None for place in data["files"][0]["table"]["others"]["when"]]
    assert [text and text.strip('"') for text in shown] == ["2026-11-27 10:00:00", "2026-11-28 11:30:00", None]


@pytest.mark.parametrize("name", ["scored.jsonl", "scored.csv", "scored.parquet"])
def test_the_part_of_the_prompt_that_led_to_an_item_is_at_its_answers(tmp_path, name):
    checklist = ConstraintsGenerator().generate("Write about tea. Use at most 9 words.")
    score = ChecklistScorer("pocket", store=False).score(checklist, "Tea is warm.")
    rows = [
        {
            "prompt": "Write.",
            "target": "Tea is warm.",
            **checklist_columns(given),
            "checklist_score": score.model_dump(),
        }
        for given in (checklist, None)
    ]
    with write_rows(tmp_path / name) as writer:
        for row in rows:
            writer.write(row)
    data = data_of(tmp_path, tmp_path / name)
    more = data["files"][0]["table"]["more"]
    assert {cell: one["stated"] for cell, one in more.items() if "stated" in one} == {"0": "at most 9 words"}


def test_figures_are_those_of_the_tally_and_of_inspect(tmp_path):
    path = write(tmp_path / "scored.jsonl", scored_rows(40))
    [file] = data_of(tmp_path, path)["files"]
    overview, counted, analysis = file["overview"], tally(scores_of(path)), ItemAnalysis()
    for score in scores_of(path):
        analysis.add(score)
    assert (overview["mean"], overview["macro"], overview["micro"]) == (counted.mean, counted.macro, counted.micro)
    assert overview["reads"] == counted.reads == 200
    [timeout] = overview["unanswered"]
    assert timeout["count"] == counted.unanswered["timeout"] and "rerun" in timeout["advice"]
    assert timeout["detail"] == "60 s"
    for shown, line, other in zip(overview["items"], analysis.report(), file["analysis"]["items"], strict=True):
        assert shown["rate"] == line.pass_rate == other["pass_rate"] and shown["counted"] == line.answered
        low, high = shown["interval"]
        assert low < shown["rate"] < high
        assert other["discrimination"] == line.discrimination
    assert overview["checklist_ids"] == [{"id": CHECKLIST.id, "rows": 40}]
    assert overview["settings"][0]["settings"].startswith("metric expected, threshold 0.6")
    assert sum(overview["score_bins"]) == overview["scored"]


def test_wilson_intervals_are_those_of_statsmodels():
    from statsmodels.stats.proportion import proportion_confint

    for passed, counted in ((0, 5), (3, 7), (50, 50), (999, 2000)):
        assert wilson(passed, counted) == pytest.approx(proportion_confint(passed, counted, method="wilson"))
    assert wilson(0, 0) is None


@pytest.mark.parametrize("kind", ["scored", "rewards"])
def test_a_large_file_is_sampled_by_whole_groups_and_says_so(tmp_path, kind):
    rows = scored_rows(60) if kind == "scored" else reward_rows(steps=10)
    data = data_of(tmp_path, write(tmp_path / "rows.jsonl", rows), max_rows=20, seed=3)
    [file] = data["files"]
    total = 60 if kind == "scored" else 80
    assert (file["total"], file["overview"]["rows"]) == (total, total)
    assert file["shown"] == len(column(file["table"]["rows"]["id"])) == 20
    groups = column(file["table"]["rows"]["group"])
    assert kind == "scored" or all(groups.count(group) == 4 for group in groups)
    again = data_of(tmp_path, tmp_path / "rows.jsonl", max_rows=20, seed=3)
    assert again == data


def test_two_files_of_the_same_rows_keep_the_same_sample(tmp_path):
    one = write(tmp_path / "one.jsonl", scored_rows(60))
    other = write(tmp_path / "other.jsonl", scored_rows(60, "two", seed=5))
    data = data_of(tmp_path, one, other, max_rows=20, intervals=Bootstrap(0))
    first, second = ([data["texts"][place] for place in column(file["table"]["rows"]["id"])] for file in data["files"])
    assert first == second and len(first) == 20
    assert data["comparisons"][0]["comparison"]["units"] == 60 * 5  # of all rows


def test_what_was_learned_and_the_groups_of_a_run(tmp_path):
    path = write(tmp_path / "rewards.jsonl", reward_rows())
    [file] = data_of(tmp_path, path)["files"]
    training = file["training"]
    assert training["steps"] == list(range(12))
    first, *_, last = training["learned"]
    assert first["pattern"] == "Does it mention the word …?" and first["change"] > 0.5
    assert last["pattern"] == "Does it end with a question?" and last["change"] == 0
    rewards = [row["reward"] for row in read_jsonl(path)]
    known = [reward for reward in rewards[16:24] if reward is not None]
    assert training["series"]["reward"][2] == pytest.approx(sum(known) / len(known), abs=1e-15)
    assert training["series"]["without_reward"][2] == 1 / 8
    rows = file["table"]["rows"]
    advantages, groups = column(rows["advantage"]), column(rows["group"])
    for group in set(groups):
        members = [a for a, own in zip(advantages, groups, strict=True) if own == group and a is not None]
        assert sum(members) == pytest.approx(0, abs=1e-12) and len(members) in (3, 4)
    assert data_texts(tmp_path)[column(rows["prompt"])[0]] == "Write about the."


def test_states_are_on_the_page_and_a_row_without_an_answer_is_no_read(tmp_path):
    rows = list(stated_rows())
    [file] = data_of(tmp_path, write(tmp_path / "rewards.jsonl", rows))["files"]
    table, overview, training = file["table"], file["overview"], file["training"]
    assert [table["states"][place] for place in column(table["rows"]["state"])] == [row["state"] for row in rows]
    scores = [Score.model_validate(row["score"]) for row in rows]
    passed, reasons = column(table["cells"]["passed"]), column(table["cells"]["reason"])
    assert [p == -1 for p in passed] == [score.no_answer for score in scores for _ in score.items]
    assert {table["reasons"][place] for place in reasons if place >= 0} == {"no_answer"}
    counts = {line["state"]: line["count"] for line in overview["states"]}
    assert counts == {"empty": 12, "cut_in_thought": 6, "unfinished": 12, "cut": 12}
    assert (overview["with_state"], overview["without_state"], overview["not_asked"]) == (60, 0, 30)
    assert overview["reads"] == overview["answered"] == 2 * 30 and overview["unanswered"] == []
    assert [(line["rate"], line["counted"], line["unanswered"]) for line in overview["items"]] == [(1, 30, {})] * 2
    assert overview["judges"] == [{"judge": "pocket", "method": "logprobs", "reads": 60}]
    assert overview["mean"] == tally(scores).mean and overview["scored"] == 60  # their scores count
    assert overview["settings"][0]["settings"].endswith("abstention skip, no_answer lowest")
    assert (file["analysis"]["targets"], file["analysis"]["no_answer"]) == (30, 30)
    assert training["states"] == {
        "empty": [0.2] * 6,
        "cut_in_thought": [0.2] * 3 + [0.0] * 3,
        "unfinished": [0.2] * 6,
        "cut": [0.2] * 6,
    }
    assert training["series"]["words"] == [3] * 6  # of the completions with an answer
    assert all(line["change"] == 0 for line in training["learned"])  # finished thoughts are no better answers
    assert training["series"]["reward"][5] > training["series"]["reward"][0]


def test_a_file_without_states_does_not_say_that_all_rows_have_an_answer(tmp_path):
    rows = list(stated_rows(steps=2))
    old = [{**row, "score": {k: v for k, v in row["score"].items() if k != "state"}} for row in rows]
    [file] = data_of(tmp_path, write(tmp_path / "rewards.jsonl", old))["files"]
    assert file["table"]["states"] == [] and set(column(file["table"]["rows"]["state"])) == {-1}
    assert (file["overview"]["with_state"], file["overview"]["without_state"]) == (0, 20)
    assert file["overview"]["states"] == [] and file["training"]["states"] == {}
    mixed = data_of(tmp_path, write(tmp_path / "mixed.jsonl", old[:10] + rows[10:]))["files"][0]
    assert mixed["training"]["states"]["empty"] == [None, 0.2] and mixed["overview"]["with_state"] == 10


def test_rows_without_an_answer_are_left_out_of_comparisons(tmp_path):
    one = write(tmp_path / "one.jsonl", stated_rows())
    other = write(tmp_path / "other.jsonl", stated_rows())
    [compared] = data_of(tmp_path, one, other, intervals=Bootstrap(0))["comparisons"]
    assert compared["comparison"]["no_answer"] == 30 and compared["comparison"]["units"] == 60
    assert all(item["units"] == 30 for item in compared["items"])


def data_texts(tmp_path: Path) -> list[str]:
    return page_data(tmp_path / "report.html")["texts"]


def test_logs_of_several_ranks_are_one_run(tmp_path):
    one = write(tmp_path / "rewards.jsonl", reward_rows(seed=1))
    two = write(tmp_path / "rewards.rank1.jsonl", reward_rows(seed=2))
    [file] = data_of(tmp_path, one, two)["files"]
    assert file["name"] == "rewards.jsonl" and file["total"] == 2 * 96


def test_the_stages_of_a_reward_are_on_the_page(tmp_path):
    rows = shaped_rows()
    [file] = data_of(tmp_path, write(tmp_path / "rewards.jsonl", rows))["files"]
    assert file["table"]["shaping"] == {str(n): row["shaping"] for n, row in enumerate(rows) if "shaping" in row}


def test_completions_of_one_prompt_in_two_groups_have_two_means(tmp_path):
    rows = [{**row, "group": "ab"[n % 2]} for n, row in enumerate(reward_rows(steps=1, groups=1))]
    [file] = data_of(tmp_path, write(tmp_path / "rewards.jsonl", rows))["files"]
    assert column(file["table"]["rows"]["group"]) == [0, 1, 0, 1]


def test_a_log_with_broken_stages_is_refused(tmp_path):
    rows = [{**row, "shaping": [0.5]} for row in reward_rows(steps=1)]
    with pytest.raises(SampleError, match=r"line 1: shaping must be a list of \[name, value\], got \[0.5\]"):
        write_report(tmp_path / "report.html", [write(tmp_path / "rewards.jsonl", rows)])


def test_marked_evidence_is_on_the_page_while_the_text_is_the_same(tmp_path):
    [row] = quoting_rows()
    other = annotation(row, 1, "3.5")
    other["spans"][0]["text"] = "4.5"  # marked in an earlier version of the response
    lines = [annotation(row, 0, "Oh"), annotation(row, 0, "nonsense"), other]
    paths = [write(tmp_path / "quoting.jsonl", [row]), write(tmp_path / "ann.jsonl", lines)]
    [file] = data_of(tmp_path, *paths)["files"]
    start = row["target"].index("nonsense")
    spans = [[span for span in file["table"]["more"][cell]["spans"] if span["by"]] for cell in "01"]
    assert spans == [[{"by": "ann", "label": "no", "start": start, "end": start + 8}], []]
    data = data_of(tmp_path, write(tmp_path / "scored.jsonl", scored_rows(3)), paths[1])
    assert data["notes"] == ["The annotations are about quoting.jsonl, not about a file of this report."]


def test_evidence_is_of_the_annotated_file_and_not_of_another_with_its_name(tmp_path):
    [row] = quoting_rows()
    project, copy = tmp_path / "project", tmp_path / "copy"
    for folder in (project / "a", project / "b", project / "annotations", copy):
        folder.mkdir(parents=True)
    files = [write(folder / "quoting.jsonl", [row]) for folder in (project / "a", project / "b", copy)]
    line = annotation(row, 0, "Oh") | {"file": "a/quoting.jsonl"}
    marks = write(project / "annotations" / "ann.jsonl", [line])
    found = [data_of(tmp_path, file, marks)["files"][0]["table"]["more"].get("0", {}) for file in files]
    assert [any(span["by"] for span in more["spans"]) for more in found] == [True, False, True]


def test_two_logs_with_the_same_completions_are_compared_by_completion(tmp_path):
    rows = list(reward_rows(steps=4))
    flipped = [json.loads(json.dumps(row)) for row in rows[::-1]]  # another order
    wrong = next(row for row in flipped if row["score"])
    line = wrong["score"]["items"][0]
    line.update(answer="no" if line["answer"] == "yes" else "yes", value=1 - line["value"])
    one, other = write(tmp_path / "one.jsonl", rows), write(tmp_path / "other.jsonl", flipped)
    [compared] = data_of(tmp_path, one, other, intervals=Bootstrap(0))["comparisons"]
    assert compared["match"] == "completion" and sum(item["flipped"] for item in compared["items"]) == 1
    scored = [n for n, row in enumerate(rows, start=1) if row["score"]]
    assert column(compared["pairs"][0]) == scored
    assert column(compared["pairs"][1]) == [33 - n for n in scored]


def test_two_runs_are_compared_by_step_and_prompt(tmp_path):
    one = write(tmp_path / "one.jsonl", reward_rows(steps=4))
    other = write(tmp_path / "other.jsonl", ({**row, "completion": "x"} for row in reward_rows(steps=5, seed=9)))
    [compared] = data_of(tmp_path, one, other, intervals=Bootstrap(0))["comparisons"]
    assert compared["match"] == "step" and compared["comparison"]["unmatched_rows"] == 8
    assert len(column(compared["pairs"][0])) == 31


def test_the_file_of_a_monitor_is_read_and_of_a_repeated_step_the_last_line_counts(tmp_path):
    lines = list(monitor_rows())
    again = json.loads(json.dumps(lines[4]))
    again["statistics"]["reward_mean"] = 0.75
    paths = write(tmp_path / "rewards.jsonl", reward_rows(steps=2)), write(tmp_path / "m.jsonl", [*lines, again])
    [monitor] = data_of(tmp_path, *paths)["monitors"]
    assert monitor["steps"] == list(range(6)) and monitor["statistics"]["reward_mean"] == [0.5, 0.75, *[0.5] * 4]
    [signal] = monitor["signals"]
    assert (signal["about"], signal["threshold"]) == ("hacking", 0.1)
    assert signal["alarm"] == [False] * 3 + [True] * 3 and signal["error"] == [None] * 6
    assert [alarm["step"] for alarm in monitor["alarms"]] == [3]
    assert len(monitor["canaries"]) == len(monitor["failures"]) == 1
    assert monitor["not_evaluated"] == ["no_answer"]


def test_of_a_run_that_was_started_again_the_monitor_and_the_curves_show_the_last_start(tmp_path):
    before, after = ({"started": f"2026-11-29T10:0{minute}:00"} for minute in (0, 1))
    rewards = [*reward_rows(6), *({**row, "evaluation": True} for row in reward_rows(1))]
    rewards = [*({**row, **before} for row in rewards), *({**row, **after} for row in reward_rows(3))]
    rewards[-1]["reward"] = 0.0
    again = [dict(row) for row in monitor_rows(3)]  # from step 0, and shorter; its alarm is at step 3
    paths = [write(tmp_path / "r.jsonl", rewards), write(tmp_path / "m.jsonl", [*monitor_rows(), *again[:-1]])]
    data = data_of(tmp_path, *paths)
    [monitor], [file] = data["monitors"], data["files"]
    assert monitor["steps"] == [0, 1, 2] and not monitor["alarms"]
    assert len(monitor["canaries"]) == len(monitor["failures"]) == 1
    training = file["training"]
    assert training["steps"] == [0, 1, 2] and training["series"]["without_reward"] == [0, 0, 1 / 8]
    known = [row["reward"] for row in rewards[-8:] if row["reward"] is not None]
    assert training["series"]["reward"][2] == pytest.approx(sum(known) / len(known))
    assert file["total"] == 8 * 10, "the table has all rows"
    write(tmp_path / "r.jsonl", sorted(rewards, key=lambda row: str(row["completion"])))  # as a spreadsheet sorts them
    assert (
        data_of(tmp_path, tmp_path / "r.jsonl")["files"][0]["training"]["series"].keys() == training["series"].keys()
    )
    assert data_of(tmp_path, tmp_path / "r.jsonl")["files"][0]["training"]["steps"] == [0, 1, 2]


def test_a_log_of_evaluations_alone_has_no_training(tmp_path):
    paths = [
        write(tmp_path / name, ({**row, "evaluation": True} for row in reward_rows(2)))
        for name in ("one.jsonl", "other.jsonl")
    ]
    data = data_of(tmp_path, *paths)
    assert [(file["training"], file["total"]) for file in data["files"]] == [(None, 16)] * 2
    assert data["notes"] == [f"{paths[0]} has no scored rows of training."]


def test_a_prompt_with_two_checklists_in_the_dataset_interrupts_the_curves_once(tmp_path):
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    reward = ChecklistReward(scorer, log=tmp_path / "rewards.jsonl")
    grown = ["Is it b?", {"question": "Is it new?", "category": "evolving"}]
    for step, checklists in enumerate((["Is it a?"], ["Is it b?"], ["Is it a?"], ["Is it b?"], grown, grown)):
        state = SimpleNamespace(global_step=step)
        reward(prompts=["p"], completions=["c"], checklist=[checklists], trainer_state=state)
    [file] = data_of(tmp_path, tmp_path / "rewards.jsonl")["files"]
    assert file["training"]["changed"] == [0, 1, 0, 0, 1, 0]


def test_a_monitor_without_its_run_and_one_of_a_later_format_are_refused(tmp_path):
    path = write(tmp_path / "m.jsonl", monitor_rows())
    with pytest.raises(SampleError, match="has no scores; give the scored file or reward log of it too"):
        write_report(tmp_path / "report.html", [path])
    later = write(tmp_path / "later.jsonl", [{"kind": "start", "format": "checklist-rewards-monitor-2"}])
    with pytest.raises(SampleError, match="the format is 'checklist-rewards-monitor-2'"):
        write_report(tmp_path / "report.html", [later])


def test_logs_that_share_nothing_are_shown_but_not_compared(tmp_path):
    one = write(tmp_path / "one.jsonl", reward_rows(steps=1))
    other = write(tmp_path / "other.jsonl", ({**row, "prompt": "x"} for row in reward_rows(steps=1)))
    data = data_of(tmp_path, one, other)
    assert data["comparisons"] == [] and "not compared row by row" in data["notes"][0]


@pytest.mark.parametrize(
    ("question", "pattern"),
    [
        ('Does it say "rain" 3 times?', "Does it say … … times?"),
        ("Is the user's tone and others' kept?", "Is the user's tone and others' kept?"),
        ("Does it mention 'x'?", "Does it mention …?"),
        ("Is H2O mentioned?", "Is H2O mentioned?"),
    ],
)
def test_patterns(question, pattern):
    assert pattern_of(question) == pattern


@pytest.mark.parametrize("rows", [scored_rows, reward_rows], ids=["scored", "log"])
def test_a_response_whose_words_cannot_be_counted_is_measured_in_characters(tmp_path, rows):
    rows = list(rows(4))
    name = next(name for name in ("target", "completion") if name in rows[0])
    rows[0][name] = "ฉันไปทะเล"  # Thai
    [file] = data_of(tmp_path, write(tmp_path / "rows.jsonl", rows))["files"]
    assert column(file["table"]["rows"]["words"])[0] == 8


def test_pairs_and_their_texts(tmp_path):
    data = data_of(tmp_path, write(tmp_path / "pairs.jsonl", pair_rows()))
    [file] = data["files"]
    assert file["kind"] == "pairs" and len(file["table"]["pairs"]) == 3
    assert data["texts"][file["table"]["pairs"]["0"]["rejected"]] == HOSTILE
    assert file["table"]["pairs"]["1"]["flipped"][0]["question"] == "Is it polite?"


def test_the_same_files_give_the_same_bytes_and_no_text_reaches_the_html(tmp_path):
    path = write(tmp_path / "scored.jsonl", scored_rows(10))
    write_report(tmp_path / "one.html", [path], title="</title><script>")
    write_report(tmp_path / "two.html", [path], title="</title><script>")
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "two.html").read_text(encoding="utf-8")
    assert "hacked" not in page and "</title><script>" not in page
    assert page.count("<script") == 3 and "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_modules_of_the_page_use_no_html_from_texts_and_load_nothing():
    script = joined_modules()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "import ",
        "export ",
    ):
        assert word not in script, word


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("rows.jsonl", [{"prompt": "p"}], r"line 1: the row has 'prompt'; expected a scored file"),
        ("rows.jsonl", [], r"rows.jsonl has no rows"),
        ("rows.txt", [{}], r"unknown extension '.txt'"),
        ("result.json", [{"a": 1}], r"not a result that a report can show"),
    ],
)
def test_files_that_cannot_be_shown_are_refused_in_one_sentence(tmp_path, name, rows, message):
    with pytest.raises(SampleError, match=message):
        write_report(tmp_path / "report.html", [write(tmp_path / name, rows)])
    assert not (tmp_path / "report.html").exists()


def test_the_kind_of_a_file_is_that_of_its_first_row(tmp_path):
    [quoting] = quoting_rows()
    files = {
        "scored": scored_rows(1),
        "rewards": reward_rows(1),
        "pairs": pair_rows(1),
        "monitor": monitor_rows(1),
        "annotations": [annotation(quoting, 0, "you are wrong")],
        "rows": [{"prompt": "Go.", "target": "Gone."}],
    }
    found = {name: kind_of(write(tmp_path / f"{name}.jsonl", rows)) for name, rows in files.items()}
    assert {name: one["kind"] for name, one in found.items()} == {name: name for name in files}
    assert found["rows"]["columns"] == ["prompt", "target"]
    (tmp_path / "broken.jsonl").write_text('{"prompt": 1\n')
    broken = kind_of(tmp_path / "broken.jsonl")
    assert broken["kind"] == "unreadable" and broken["error"].startswith("broken.jsonl, line 1")
    assert kind_of(write(tmp_path / "empty.jsonl", []))["error"] == "empty.jsonl has no rows."
    assert kind_of(tmp_path / "notes.md") == {"kind": "document"}


def test_images_are_shown_as_small_thumbnails_once_per_report(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pillow.effect_noise((400, 200), 100).save(tmp_path / "noise.png")
    pillow.new("RGB", (20, 10), "red").save(tmp_path / "red.png")
    address, rows = "https://example.com/cat.png", list(scored_rows(5))
    parts = [{"type": "image", "image": "noise.png"}, {"type": "text", "text": " or "}]
    prompts = [
        "What is this?",
        [{"role": "user", "content": [*parts, {"type": "image"}]}],
        "And this?",
        "Gone?",
        "No.",
    ]
    images = [["red.png"], ["red.png"], [address], ["missing.png"], []]
    rows = [
        row | {"prompt": prompt, "images": image} for row, prompt, image in zip(rows, prompts, images, strict=True)
    ]
    rows += [row | {"image": "red.png", "id": f"{number}"} for number, row in enumerate(scored_rows(2))]
    data = data_of(tmp_path, write(tmp_path / "scored.jsonl", rows))
    table, texts = data["files"][0]["table"], data["texts"]
    shown = [texts[place] for place in column(table["rows"]["prompt"])]
    assert shown[:5] == ["[image]What is this?", "[image] or [image]", "[image]And this?", "[image]Gone?", "No."]
    found = {int(row): [texts[place] for place in places] for row, places in table["images"].items()}
    assert list(found) == [0, 1, 2, 3, 5, 6] and found[2] == [address]
    assert found[3][0].startswith("not shown: it: ") and "missing.png' cannot be read" in found[3][0]
    [red], [noise, again] = found[0], found[1]
    assert again == red == found[5][0] == found[6][0] and texts.count(red) == 1
    for url, largest in ((red, (20, 10)), (noise, (96, 48))):
        content = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"), validate=True)
        assert len(content) <= MAX_BYTES
        size = pillow.open(io.BytesIO(content)).size
        assert size[0] <= largest[0] and size[1] <= largest[1]
    assert "images" not in data_of(tmp_path, write(tmp_path / "plain.jsonl", scored_rows(2)))["files"][0]["table"]


def test_images_beyond_the_limits_are_counted_and_those_of_other_folders_are_not_read(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    [row] = scored_rows(1)
    colours = [bytes_of(pillow.new("RGB", (2, 2), (number, 0, 0))) for number in range(MAX_OF_A_ROW + 2)]
    data = report_data([write(tmp_path / "many.jsonl", [row | {"images": colours}])])
    assert data["notes"][0].startswith("2 images are not shown: ")
    assert "2 more images are not shown" in data["texts"]
    pillow.new("RGB", (2, 2)).save(tmp_path / "other.png")
    path = write(tmp_path / "one.jsonl", [row | {"image": "other.png"}])
    data = report_data([path], may_read=lambda path: False)
    assert any("other.png' may not be read" in text for text in data["texts"])


def test_a_pair_shows_each_of_its_images_once(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    red, blue, green = ([bytes_of(pillow.new("RGB", (8, 8), name))] for name in ("red", "blue", "green"))
    turns = [{"role": "user", "content": [{"type": "image", "image": red[0]}, {"type": "text", "text": "What?"}]}]

    def answered(text, *images):
        parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": text}]
        return [*turns, {"role": "assistant", "content": parts}]

    rows = [{"chosen": answered("Red."), "rejected": answered("No.")}]
    rows += [{"chosen": answered("So.", *blue, *blue), "rejected": answered("No.", *blue, *green)}]
    data = data_of(tmp_path, write(tmp_path / "pairs.jsonl", rows))
    shown = [[data["texts"][place] for place in places] for places in data["files"][0]["table"]["images"].values()]
    assert [len(images) for images in shown] == [1, 4] and len({*shown[1]}) == 3 and shown[0][0] == shown[1][0]


def test_paths_in_texts_of_the_policy_and_changed_files_are_not_shown(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (2, 2), "red").save(tmp_path / "red.png")
    path = str(tmp_path / "red.png")
    target = [{"role": "assistant", "content": [{"type": "image", "image": path}, {"type": "text", "text": "Red."}]}]
    [row] = scored_rows(1)
    rows = [row | {"prompt": "What?", "target": target}]
    rows += [row | {"prompt": "What?", "image": {"hash": "0" * 32, "path": path}, "id": "changed"}]
    data = data_of(tmp_path, write(tmp_path / "scored.jsonl", rows))
    shown = [[data["texts"][place] for place in places] for places in data["files"][0]["table"]["images"].values()]
    assert shown[0] == [f"not shown: it must be a data URL; got {path!r:.60}."]
    assert "has other pixels than the image that was logged" in shown[1][0]


def bytes_of(image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def test_columns_with_a_label_per_item_are_offered_and_the_first_part_has_no_rows(tmp_path):
    rows = [{**row, "tags": ["a"], "human": dict(enumerate(row["labels"]))} for row in scored_rows(4)]
    data = report_data([write(tmp_path / "scored.jsonl", rows)])
    assert data["files"][0]["labels"] == ["labels", "human"]
    first, rest = map(lambda part: json.loads("".join(json_chunks(part))), parts_of(data))
    assert first["files"][0]["overview"]["rows"] == 4 and first["files"][0]["shown"] == 4
    assert HOSTILE not in json.dumps(first) and HOSTILE in rest["texts"]
    assert len(rest["tables"][0]["items"]) == 5
