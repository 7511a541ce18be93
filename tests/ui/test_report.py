"""The report's data: what the page shows is what the rows and the other commands say."""

import base64
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest
from PIL import Image as pillow

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.datasets import checklist_columns
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.items import ItemAnalysis
from checklist_rewards.files.rows import write_rows
from checklist_rewards.generators import ConstraintsGenerator
from checklist_rewards.images import image_of
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Aggregation, Score, Verdict, score_checklist
from checklist_rewards.scores.tally import tally
from checklist_rewards.ui import report as report_module
from checklist_rewards.ui.figures import pattern_of
from checklist_rewards.ui.report import joined_modules, kind_of, parts_of, report_data, write_report
from checklist_rewards.ui.table import json_chunks
from checklist_rewards.ui.thumbnails import MAX_OF_A_ROW
from tests.fakes import FakeBackend
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


def data_of(*paths: Path, **options) -> dict:
    """The data of the page of a report, which is written next to the first file."""
    page = paths[0].parent / "report.html"
    write_report(page, list(paths), **options)
    return page_data(page)


@pytest.fixture
def report(tmp_path):
    """Writes a report about files with these rows, and gives the data of its page."""

    def report(options=None, **files):
        paths = [write(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()]
        return data_of(*paths, **(options or {}))

    return report


NO_INTERVALS = {"intervals": Bootstrap(0)}


def column(spec) -> list:
    return spec if isinstance(spec, list) else [spec["all"]] * spec["length"]


def without_answer(file) -> list:
    """What the page says of responses without an answer."""
    return next(shown for name, *shown in file["tiles"] if name == "without an answer")


def test_rows_cells_and_figures_are_those_of_the_file_of_the_tally_and_of_inspect(report):
    rows = list(scored_rows(40))
    data = report(scored=rows)
    [file] = data["files"]
    table, cells, texts = file["table"]["rows"], file["table"]["cells"], data["texts"]
    scores = [Score.model_validate(row["checklist_score"]) for row in rows]
    assert [texts[place] for place in column(table["id"])] == [f"r{number}" for number in range(40)]
    assert texts[column(table["target"])[3]] == HOSTILE
    assert column(table["score"]) == [score.primary_score for score in scores]
    lines = [line for score in scores for line in score.items]
    assert column(cells["mass"]) == [line.mass for line in lines]
    answers = [None if place < 0 else file["table"]["answers"][place] for place in column(cells["answer"])]
    assert answers == [line.answer for line in lines]
    assert [item["id"] for item in file["table"]["items"]] == [item.id for item in CHECKLIST.items]
    p = [(line.probabilities or {}).get("yes", line.confidence) for line in lines]
    assert column(cells["p"]) == p  # to the last digit
    assert file["table"]["more"]["4"]["probabilities"] == scores[0].items[4].probabilities

    overview, counted, analysis = file["overview"], tally(scores), ItemAnalysis()
    for score in scores:
        analysis.add(score)
    means = [value["value"] for _, value, _ in file["tiles"][1:4]]
    assert means == [counted.mean, counted.macro, counted.micro] and overview["reads"] == counted.reads
    lost, advice = file["attention"][0], overview["advice"]["timeout"]
    assert lost["text"] == f"{counted.unanswered['timeout']} questions unanswered: timeout"
    assert lost["rest"] == f"{advice}; 60 s" and "rerun" in advice
    flagged = sum(bool(line.flags) for line in analysis.report())
    assert f"{flagged} item with flags" in [line["text"] for line in file["attention"]]
    listed = file["analysis"]["sections"][0]
    rows_of = dict(zip(listed["ids"], listed["rows"], strict=True))
    for shown, line in zip(overview["items"], analysis.report(), strict=True):
        _, answered, rate, _, discrimination, *_ = rows_of[line.id]
        assert {"value": shown["rate"]} == {"value": line.pass_rate} == rate
        assert shown["counted"] == line.answered == answered
        low, high = shown["interval"]
        assert low < shown["rate"] < high
        assert discrimination == {"value": line.discrimination}
    _, settings, checklists = (section["rows"] for section in file["sections"])
    assert checklists == [[CHECKLIST.id, 40]] and settings[0][0].startswith("metric expected, threshold 0.6")
    assert sum(overview["score_bins"]) == overview["scored"]


def test_scores_below_0_have_bars_of_their_own(report):
    """Net scores, where penalties outweigh: 20 bars from -2 to 1."""
    checklist = Checklist.parse(["Is it good?", {"question": "Is it rude?", "weight": -2}])
    rules = Aggregation(primary_metric="net")
    answers = [("yes", "no"), ("no", "no"), ("no", "yes"), ("yes", "yes"), ("yes", "yes")]  # 1, 0, -2, -1, -1
    given = [[Verdict(answer=one) for one in row] for row in answers]
    scores = [score_checklist(checklist, row, aggregation=rules).model_dump(mode="json") for row in given]
    overview = report(net=[{"target": "a", "checklist_score": score} for score in scores])["files"][0]["overview"]
    bins = {place: number for place, number in enumerate(overview["score_bins"]) if number}
    assert overview["lowest"] == -2 and bins == {0: 1, 6: 2, 13: 1, 19: 1}


@pytest.mark.parametrize("name", ["scored.csv", "scored.parquet"])
def test_every_format_gives_the_same_page(tmp_path, report, name):
    rows = list(scored_rows(8))
    with write_rows(tmp_path / name) as writer:
        for row in rows:
            writer.write(row)
    data, expected = data_of(tmp_path / name), report(rows=rows)
    for place in ("table", "overview", "analysis"):
        assert data["files"][0][place] == expected["files"][0][place]
    assert data["texts"] == expected["texts"]


def test_a_column_of_times_is_shown_as_text(tmp_path):
    path = tmp_path / "timed.parquet"
    with write_rows(path) as writer:
        for row in scored_rows(3):
            writer.write(row)
    frame = pandas.read_parquet(path)
    frame["when"] = pandas.to_datetime(["2026-11-27 10:00", "2026-11-28 11:30", None])
    frame.to_parquet(path)
    data = data_of(path)
    shown = [data["texts"][place] if place >= 0 else None for place in data["files"][0]["table"]["others"]["when"]]
    assert [text and text.strip('"') for text in shown] == ["2026-11-27 10:00:00", "2026-11-28 11:30:00", None]


def test_a_long_value_of_a_column_says_that_it_is_cut(report):
    systems = [f"{'Be kind. ' * 40}{end}" for end in ("", "Be brief.")]
    data = report(scored=[{**row, "system": text} for row, text in zip(scored_rows(2), systems, strict=True)])
    shown = [data["texts"][place] for place in column(data["files"][0]["table"]["others"]["system"])]
    assert shown == [f"{systems[0][:300]}… ({count} characters)" for count in (360, 369)], "two values in Group by"


def test_an_item_shows_the_part_of_the_prompt_that_led_to_it(report):
    checklist = ConstraintsGenerator().generate("Write about tea. Use at most 9 words.")
    score = ChecklistScorer("pocket", store=False).score(checklist, "Tea is warm.").model_dump()
    row = {"prompt": "Write.", "target": "Tea is warm.", **checklist_columns(checklist), "checklist_score": score}
    [file] = report(rows=[row])["files"]
    assert file["table"]["more"]["0"]["stated"] == "at most 9 words"


def test_rows_that_give_one_id_to_several_questions_show_their_own(report):
    questions = [
        {"id": "1", "question": "Is it red?"},
        {"id": "1", "question": "Is it blue?", "weight": 2, "required": True},
    ]
    scorer = ChecklistScorer("pocket", store=False)
    scores = [scorer.score([question], "red").model_dump() for question in questions]
    [file] = report(
        rows=[
            {"target": "red", "checklist": [q], "checklist_score": s} for q, s in zip(questions, scores, strict=True)
        ]
    )["files"]
    more = file["table"]["more"]["1"]
    assert (more["question"], more["weight"], more["required"]) == ("Is it blue?", 2, True)


def test_a_large_file_is_sampled_by_whole_groups(report):
    data = report({"max_rows": 20, "seed": 3}, rows=reward_rows(steps=10))
    [file] = data["files"]
    assert (file["total"], file["overview"]["rows"], file["shown"]) == (80, 80, 20)
    groups = column(file["table"]["rows"]["group"])
    assert len(groups) == 20 and all(groups.count(group) == 4 for group in groups)
    assert report({"max_rows": 20, "seed": 3}, rows=reward_rows(steps=10)) == data


def test_two_files_of_the_same_rows_keep_the_same_sample(report):
    data = report({"max_rows": 20, **NO_INTERVALS}, one=scored_rows(60), other=scored_rows(60, "two", seed=5))
    first, second = ([data["texts"][place] for place in column(file["table"]["rows"]["id"])] for file in data["files"])
    assert first == second and len(first) == 20
    assert data["comparisons"][0]["comparison"]["units"] == 60 * 5  # of all rows


def test_what_was_learned_and_the_groups_of_a_run(report):
    logged = list(reward_rows())
    data = report(rewards=logged)
    [file] = data["files"]
    training = file["training"]
    assert training["steps"] == list(range(12))
    first, *_, last = training["learned"]
    assert first["pattern"] == "Does it mention the word …?" and first["change"] > 0.5
    assert last["pattern"] == "Does it end with a question?" and last["change"] == 0
    known = [row["reward"] for row in logged[16:24] if row["reward"] is not None]
    assert training["series"]["reward"][2] == pytest.approx(sum(known) / len(known), abs=1e-15)
    assert training["series"]["without_reward"][2] == 1 / 8
    rows = file["table"]["rows"]
    advantages, groups = column(rows["advantage"]), column(rows["group"])
    for group in set(groups):
        members = [a for a, own in zip(advantages, groups, strict=True) if own == group and a is not None]
        assert sum(members) == pytest.approx(0, abs=1e-12) and len(members) in (3, 4)
    for steps in (1, 2):
        learned = report(short=reward_rows(steps))["files"][0]["training"]["learned"]
        assert [line["change"] is None for line in learned] == [steps == 1] * 2, "one step is no change"


def test_how_the_reward_of_a_run_changed_is_one_sentence(report):
    of_steps = "means of the first and of the last 1 of 3 steps."
    for rewards, verdict in (
        ([0.2], "The mean reward is 0.200; a change shows after 3 steps."),
        ([0.1, 0.5, 0.4], f"The reward rose from 0.100 to 0.400: {of_steps}"),
        ([0.5, 0.1, 0.4], f"The reward fell from 0.500 to 0.400: {of_steps}"),
        ([0.5, 0.1, 0.5], f"The reward stayed at 0.500: {of_steps}"),
        ([None, 0.5, 0.5], "The run has no rewards in its first or in its last steps."),
    ):
        rows = ({**row, "reward": rewards[row["step"]]} for row in reward_rows(len(rewards)))
        assert report(run=rows)["files"][0]["training"]["verdict"] == verdict


def test_states_are_on_the_page_and_a_row_without_an_answer_is_no_read(report):
    rows = list(stated_rows())
    data = report(NO_INTERVALS, rewards=rows, other=rows)
    file, _ = data["files"]
    [compared] = data["comparisons"]
    assert compared["comparison"]["no_answer"] == 30 and compared["comparison"]["units"] == 60
    table, overview, training = file["table"], file["overview"], file["training"]
    assert [table["states"][place] for place in column(table["rows"]["state"])] == [row["state"] for row in rows]
    scores = [Score.model_validate(row["score"]) for row in rows]
    assert [p == -1 for p in column(table["cells"]["passed"])] == [s.no_answer for s in scores for _ in s.items]
    lines = [(line["text"], line.get("filter")) for line in file["attention"][:4]]
    counts = {"empty": 12, "cut_in_thought": 6, "unfinished": 12, "cut": 12}
    texts = {state: f"{count} responses {state.replace('_', ' ')}" for state, count in counts.items()}
    assert lines == [(text, {"state": state}) for state, text in texts.items()]
    assert "was not asked about 30 rows" in file["attention"][4]["rest"]
    assert without_answer(file) == ["30 of 60", None]
    assert ["questions answered", "60 of 60", None] in file["tiles"] and overview["advice"] == {}
    assert [(line["rate"], line["counted"], line["unanswered"]) for line in overview["items"]] == [(1, 30, {})] * 2
    assert file["sections"][0]["rows"] == [["pocket", "logprobs", 60]] and overview["scored"] == 60
    assert "over 30 targets (30 without an answer are left out)" in file["analysis"]["sections"][0]["note"]
    expected = {"empty": [0.2] * 6, "cut_in_thought": [0.2] * 3 + [0.0] * 3}
    assert training["states"] == {**expected, "unfinished": [0.2] * 6, "cut": [0.2] * 6}
    assert training["series"]["words"] == [3] * 6  # of the completions with an answer
    assert all(line["change"] == 0 for line in training["learned"])  # finished thoughts are no better answers


def test_a_file_without_states_does_not_say_that_all_rows_have_an_answer(report):
    rows = list(stated_rows(steps=2))
    old = [{**row, "score": {k: v for k, v in row["score"].items() if k != "state"}} for row in rows]
    [file] = report(rewards=old)["files"]
    assert file["table"]["states"] == [] and file["training"]["states"] == {}
    assert without_answer(file) == [{"value": None}, "not recorded in this file"]
    [mixed] = report(mixed=old[:10] + rows[10:])["files"]
    assert mixed["training"]["states"]["empty"] == [None, 0.2]
    assert without_answer(mixed) == ["6 of 10", "10 rows without a state"]


def test_logs_of_several_ranks_are_one_run(report):
    [file] = report(**{"rewards": reward_rows(1, seed=1), "rewards.rank1": reward_rows(1, seed=2)})["files"]
    assert file["name"] == "rewards.jsonl" and file["total"] == 16


def test_the_stages_of_a_reward_are_on_the_page_and_broken_ones_are_refused(report):
    rows = shaped_rows()
    [file] = report(rewards=rows)["files"]
    assert file["table"]["shaping"] == {str(n): row["shaping"] for n, row in enumerate(rows) if "shaping" in row}
    with pytest.raises(SampleError, match=r"line 1: shaping must be a list of \[name, value\], got \[0.5\]"):
        report(rewards=[{**row, "shaping": [0.5]} for row in rows])


def test_completions_of_one_prompt_in_two_groups_have_two_means(report):
    [file] = report(rewards=[{**row, "group": "ab"[n % 2]} for n, row in enumerate(reward_rows(1, groups=1))])["files"]
    assert column(file["table"]["rows"]["group"]) == [0, 1, 0, 1]


def test_marked_evidence_is_on_the_page_while_the_text_is_the_same(report):
    [row] = quoting_rows()
    other = annotation(row, 1, "3.5")
    other["spans"][0]["text"] = "4.5"  # marked in an earlier version of the response
    lines = [annotation(row, 0, "Oh"), annotation(row, 0, "nonsense"), other]
    [file] = report(quoting=[row], ann=lines)["files"]
    start = row["target"].index("nonsense")
    spans = [[span for span in file["table"]["more"][cell]["spans"] if span["by"]] for cell in "01"]
    assert spans == [[{"by": "ann", "label": "no", "start": start, "end": start + 8}], []]
    notes = report(scored=scored_rows(3), ann=lines)["notes"]
    assert notes == ["The annotations are about quoting.jsonl, not about a file of this report."]


def test_evidence_is_of_the_annotated_file_and_not_of_another_with_its_name(tmp_path):
    [row] = quoting_rows()
    project, copy = tmp_path / "project", tmp_path / "copy"
    for folder in (project / "a", project / "b", project / "annotations", copy):
        folder.mkdir(parents=True)
    files = [write(folder / "quoting.jsonl", [row]) for folder in (project / "a", project / "b", copy)]
    line = annotation(row, 0, "Oh") | {"file": "a/quoting.jsonl"}
    marks = write(project / "annotations" / "ann.jsonl", [line])
    found = [data_of(file, marks)["files"][0]["table"]["more"].get("0", {}) for file in files]
    assert [any(span["by"] for span in more["spans"]) for more in found] == [True, False, True]


def test_two_logs_are_compared_by_completion_or_else_by_step_and_prompt_if_they_share_any(report):
    rows = list(reward_rows(steps=4))
    flipped = [json.loads(json.dumps(row)) for row in rows[::-1]]  # another order
    wrong = next(row for row in flipped if row["score"])
    line = wrong["score"]["items"][0]
    line.update(answer="no" if line["answer"] == "yes" else "yes", value=1 - line["value"])
    [compared] = report(NO_INTERVALS, one=rows, other=flipped)["comparisons"]
    flips = [flipped for _, _, flipped, *_ in compared["sections"]["items"]["rows"]]
    assert compared["match"] == "completion" and flips == ["1 (12.5 %)", *["0 (0.0 %)"] * (len(flips) - 1)]
    scored = [n for n, row in enumerate(rows, start=1) if row["score"]]
    assert column(compared["pairs"][0]) == scored
    assert column(compared["pairs"][1]) == [33 - n for n in scored]
    longer = ({**row, "completion": "x"} for row in reward_rows(steps=5, seed=9))
    [compared] = report(NO_INTERVALS, one=rows, other=longer)["comparisons"]
    assert compared["match"] == "step" and compared["comparison"]["unmatched_rows"] == 8
    data = report(one=rows, other=({**row, "prompt": "x"} for row in rows))
    assert data["comparisons"] == [] and "not compared row by row" in data["notes"][0]


def test_the_file_of_a_monitor_is_read_and_of_a_repeated_step_the_last_line_counts(report):
    lines = list(monitor_rows())
    again = json.loads(json.dumps(lines[4]))
    again["statistics"]["reward_mean"] = 0.75
    [monitor] = report(rewards=reward_rows(steps=2), m=[*lines, again])["monitors"]
    assert monitor["steps"] == list(range(6)) and monitor["statistics"]["reward_mean"] == [0.5, 0.75, *[0.5] * 4]
    assert monitor["sections"][0]["rows"][0][0].startswith("shadow gap")
    assert [alarm["step"] for alarm in monitor["alarms"]] == [3]
    with pytest.raises(SampleError, match="has no scores; give the scored file or reward log of it too"):
        report(m=lines)
    with pytest.raises(SampleError, match="the format is 'checklist-rewards-monitor-2'"):
        report(later=[{"kind": "start", "format": "checklist-rewards-monitor-2"}])


def test_of_a_run_that_was_started_again_the_monitor_and_the_curves_show_the_last_start(report):
    before, after = ({"started": f"2026-11-29T10:0{minute}:00"} for minute in (0, 1))
    rewards = [*reward_rows(6), *({**row, "evaluation": True} for row in reward_rows(1))]
    rewards = [*({**row, **before} for row in rewards), *({**row, **after} for row in reward_rows(3))]
    rewards[-1]["reward"] = 0.0
    again = [dict(row) for row in monitor_rows(3)]  # from step 0, and shorter; its alarm is at step 3
    data = report(r=rewards, m=[*monitor_rows(), *again[:-1]])
    [monitor], [file] = data["monitors"], data["files"]
    assert monitor["steps"] == [0, 1, 2] and not monitor["alarms"]
    assert len(monitor["canaries"]) == len(monitor["failures"]) == 1
    training = file["training"]
    assert training["steps"] == [0, 1, 2] and training["series"]["without_reward"] == [0, 0, 1 / 8]
    known = [row["reward"] for row in rewards[-8:] if row["reward"] is not None]
    assert training["series"]["reward"][2] == pytest.approx(sum(known) / len(known))
    assert file["total"] == 8 * 10, "the table has all rows"
    rows = {name: column(file["table"]["rows"][name]) for name in ("reward", "advantage", "counts_in_run")}
    assert rows["counts_in_run"] == [0] * 7 * 8 + [1] * 3 * 8
    for start in range(0, 80, 4):  # also of an evaluation, and of a step that was done again
        group = [value for value in rows["reward"][start : start + 4] if value is not None]
        expected = [None if v is None else v - sum(group) / len(group) for v in rows["reward"][start : start + 4]]
        assert rows["advantage"][start : start + 4] == pytest.approx(expected, abs=1e-12)
    as_sorted = sorted(rewards, key=lambda row: str(row["completion"]))  # as a spreadsheet sorts them
    again = report(r=as_sorted)["files"][0]["training"]
    assert again["series"].keys() == training["series"].keys() and again["steps"] == [0, 1, 2]


def test_a_log_of_evaluations_alone_has_no_training(tmp_path, report):
    rows = [{**row, "evaluation": True} for row in reward_rows(2)]
    data = report(one=rows, other=rows)
    assert [(file["training"], file["total"]) for file in data["files"]] == [(None, 16)] * 2
    assert data["notes"] == [f"{tmp_path / 'one.jsonl'} has no scored rows of training."]


def test_a_prompt_with_two_checklists_in_the_dataset_interrupts_the_curves_once(tmp_path):
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    reward = ChecklistReward(scorer, log=tmp_path / "rewards.jsonl")
    grown = ["Is it b?", {"question": "Is it new?", "category": "evolving"}]
    for step, checklists in enumerate((["Is it a?"], ["Is it b?"], ["Is it a?"], ["Is it b?"], grown, grown)):
        state = SimpleNamespace(global_step=step)
        reward(prompts=["p"], completions=["c"], checklist=[checklists], trainer_state=state)
    [file] = data_of(tmp_path / "rewards.jsonl")["files"]
    assert file["training"]["changed"] == [0, 1, 0, 0, 1, 0]


def test_patterns():
    assert pattern_of('Does it say "rain" 3 times?') == "Does it say … … times?"
    assert pattern_of("Does it mention 'x'?") == "Does it mention …?"
    assert pattern_of("「春」を3回使っていますか？") == "…を…回使っていますか？"
    for question in ("Is the user's tone and others' kept?", "Is H2O mentioned?"):
        assert pattern_of(question) == question


def test_a_response_whose_words_cannot_be_counted_is_measured_in_characters(report):
    rows = list(scored_rows(1))
    rows[0]["target"] = "ฉันไปทะเล"  # Thai
    [file] = report(rows=rows)["files"]
    assert column(file["table"]["rows"]["words"]) == [8]


def test_the_same_files_give_the_same_bytes_and_no_text_reaches_the_html(tmp_path):
    path = write(tmp_path / "scored.jsonl", scored_rows(4))
    for name in ("one.html", "two.html"):
        write_report(tmp_path / name, [path], title="</title><script>")
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "two.html").read_text(encoding="utf-8")
    assert "hacked" not in page and "</title><script>" not in page
    assert page.count("<script") == 3 and "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_pages_use_no_html_from_texts_and_the_report_loads_nothing():
    modules = [path.read_text() for path in (Path(report_module.__file__).parent / "page").glob("*.js")]
    assert len(modules) > 20
    for word in "innerHTML outerHTML insertAdjacentHTML document.write eval(".split():
        assert not any(word in module for module in modules), word
    for word in ("fetch(", "import ", "export "):
        assert word not in joined_modules(), word


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("rows.jsonl", [{"prompt": "p"}], r"line 1: the row has 'prompt'; expected a scored file"),
        ("rows.jsonl", [], r"rows.jsonl has no rows"),
        ("result.json", [{"a": 1}], r"not a result that a report can show"),
        ("result.json", [{"targets": 0, "items": [], "flags": {}}], r"has no scores; give the scored file"),
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


def images_in(data) -> dict[int, list[str]]:
    """What is shown for the images of each row that has some."""
    places = data["files"][0]["table"]["images"]
    return {int(row): [data["texts"][place] for place in of_a_row] for row, of_a_row in places.items()}


def test_images_are_shown_as_small_thumbnails_once_per_report(tmp_path, report):
    pillow.effect_noise((400, 200), 100).save(tmp_path / "noise.png")
    pillow.new("RGB", (20, 10), "red").save(tmp_path / "red.png")
    parts = [{"type": "image", "image": "noise.png"}, {"type": "text", "text": " or "}, {"type": "image"}]
    given = [
        ("What is this?", ["red.png"]),
        ([{"role": "user", "content": parts}], ["red.png"]),
        ("And this?", ["https://example.com/cat.png"]),
        ("Gone?", ["missing.png"]),
        ("No.", []),
    ]
    rows = [row | {"prompt": p, "images": i} for row, (p, i) in zip(scored_rows(5), given, strict=True)]
    data = report(scored=rows)
    shown = [data["texts"][place] for place in column(data["files"][0]["table"]["rows"]["prompt"])]
    assert shown == ["[image]What is this?", "[image] or [image]", "[image]And this?", "[image]Gone?", "No."]
    found = images_in(data)
    assert list(found) == [0, 1, 2, 3] and found[2] == ["https://example.com/cat.png"]
    assert found[3][0].startswith("not shown: it: ") and "missing.png' cannot be read" in found[3][0]
    [red], [noise, again] = found[0], found[1]
    assert again == red and data["texts"].count(red) == 1
    for url, size in ((red, (20, 10)), (noise, (96, 48))):
        content = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"), validate=True)
        assert pillow.open(io.BytesIO(content)).size == size


def test_images_beyond_the_limits_are_counted_and_those_of_other_folders_are_not_read(tmp_path):
    [row] = scored_rows(1)
    colours = [image_of(pillow.new("RGB", (2, 2), (number, 0, 0))).url for number in range(MAX_OF_A_ROW + 2)]
    data = report_data([write(tmp_path / "many.jsonl", [row | {"images": colours}])])
    assert data["notes"][0].startswith("2 images are not shown: ")
    assert "2 more images are not shown" in data["texts"]
    pillow.new("RGB", (2, 2)).save(tmp_path / "other.png")
    path = write(tmp_path / "one.jsonl", [row | {"image": "other.png"}])
    data = report_data([path], may_read=lambda path: False)
    assert any("other.png' may not be read" in text for text in data["texts"])


def test_pairs_show_their_texts_and_each_of_their_images_once(report):
    blue, green = (image_of(pillow.new("RGB", (8, 8), name)).url for name in ("blue", "green"))

    def answered(*images):
        parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": "So."}]
        return [{"role": "user", "content": "What?"}, {"role": "assistant", "content": parts}]

    data = report(pairs=[*pair_rows(2), {"chosen": answered(blue, blue), "rejected": answered(blue, green)}])
    [images] = images_in(data).values()
    assert len(images) == 3 and len(set(images)) == 2
    [file] = data["files"]
    assert file["kind"] == "pairs" and len(file["table"]["pairs"]) == 3
    assert data["texts"][file["table"]["pairs"]["0"]["rejected"]] == HOSTILE
    assert file["table"]["pairs"]["1"]["flipped"][0]["question"] == "Is it polite?"


def test_paths_in_texts_of_the_policy_and_changed_files_are_not_shown(tmp_path, report):
    pillow.new("RGB", (2, 2), "red").save(tmp_path / "red.png")
    path = str(tmp_path / "red.png")
    target = [{"role": "assistant", "content": [{"type": "image", "image": path}, {"type": "text", "text": "Red."}]}]
    [row] = scored_rows(1)
    rows = [row | {"prompt": "What?", "target": target}]
    rows += [row | {"prompt": "What?", "image": {"hash": "0" * 32, "path": path}, "id": "changed"}]
    shown = images_in(report(scored=rows))
    assert shown[0] == [f"not shown: it must be a data URL; got {path!r:.60}."]
    assert "has other pixels than the image that was logged" in shown[1][0]


def test_columns_with_a_label_per_item_are_offered_and_the_first_part_has_no_rows(tmp_path):
    rows = [{**row, "tags": ["a"], "human": dict(enumerate(row["labels"]))} for row in scored_rows(4)]
    data = report_data([write(tmp_path / "scored.jsonl", rows)])
    assert data["files"][0]["labels"] == ["labels", "human"]
    first, rest = map(lambda part: json.loads("".join(json_chunks(part))), parts_of(data))
    assert first["files"][0]["overview"]["rows"] == 4
    assert HOSTILE not in json.dumps(first) and HOSTILE in rest["texts"]
