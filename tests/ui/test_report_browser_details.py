"""What the report shows about one row, and about a run that was monitored, in a real browser."""

import json
import statistics

import pytest

from checklist_rewards.rerank import Pool
from checklist_rewards.ui.report import write_report
from tests.attacks.test_report import report as attack_report
from tests.ui import browser
from tests.ui.browser import ReportPage
from tests.ui.files import (
    HOSTILE,
    annotation,
    monitor_rows,
    quoting_rows,
    reasoned_rows,
    reward_rows,
    scored_rows,
    shaped_rows,
    stated_rows,
    write,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def report_of(chromium, tmp_path):
    """Writes a report about files with these rows; returns its page."""
    browser.leave(chromium)

    def report_of(**files) -> ReportPage:
        paths = [write(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()]
        write_report(tmp_path / "report.html", paths)
        return ReportPage(chromium, tmp_path / "report.html")

    return report_of


def test_reasoning_and_votes(report_of):
    page = report_of(reasoned=reasoned_rows())
    page.open("0/matrix/0")
    page.has(".panel:not([hidden])")
    page.js("document.querySelector('.panel details').open = true")
    shown = page.js("return document.querySelector('.panel').innerText")
    assert f"It says {HOSTILE}" in shown and "3 votes" in shown and f"no: {HOSTILE}" in shown
    assert "agreement 0.667" in shown
    page.check()


def test_quotes_of_the_judge_and_marks_of_people_are_highlighted(report_of):
    [row] = quoting_rows()
    page = report_of(quoting=[row], ann=[annotation(row, 0, "you are wrong"), annotation(row, 1, "it was")])
    page.open("0/matrix/0")
    page.has(".response mark")
    shown = (
        "return [...document.querySelectorAll('.response mark')].map((one) => [one.textContent, one.dataset.items])"
    )
    assert page.js(shown) == [["you are wrong", "1"], ["nonsense", "1"], ["it was", "2"], ["3.5 percent", "2"]]
    assert page.text(".response") == row["target"]
    lines = page.texts(".evidence")
    assert lines == [
        "evidence: you are wrong (judge, ann), nonsense (judge)",
        "evidence: 3.5 percent (judge), it was (ann)",
    ]
    page.check()


def test_the_monitor_of_a_run(report_of):
    rows = [{**row, "held_out": [row["score"]["items"][1]["id"]] if row["score"] else []} for row in reward_rows()]
    rows[8]["shadow"] = rows[9]["score"]
    page = report_of(watched=rows, monitor=monitor_rows())
    page.open("0/monitor")
    page.has("[aria-label=Alarms] table")
    told = "shadow gap, 0.300 of 0.1, The judge gives more, Judge and shadow judge, 3 steps, AssertionError"
    assert all(part in page.shown for part in told.split(", "))
    assert "Not evaluated, because there were no data for them: no answer." in page.shown
    page.js("document.querySelector('[aria-label=Alarms] details').open = true")
    assert HOSTILE in page.shown
    page.check()
    page.open("0/matrix/8")
    page.has(".panel .making")
    assert "held out: not rewarded" in page.shown and "shadow judge: no" in page.shown
    page.check()


def test_what_a_reward_was_made_of(report_of):
    rows = shaped_rows()
    page = report_of(shaped=rows)
    page.open("0/matrix/40")
    page.has(".panel .making")
    cells = page.js(
        "const rows = [...document.querySelectorAll('.making tbody tr')];"
        "return rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    stages = [value for _, value in rows[40]["shaping"]]
    assert [name for name, *_ in cells[:4]] == ["score (expected)", "length penalty", "clipped", "reward"]
    assert [cell[1] for cell in cells[:3]] == [f"{value:.4f}" for value in stages]
    assert cells[1][2] == "-0.2500" and cells[2][2] in ("–", f"+{stages[2] - stages[1]:.4f}")
    group = [row["reward"] for row in rows[40:44]]
    mean = sum(group) / 4
    std = statistics.stdev(group)
    assert cells[4] == ["mean of the 4 rewards of its group", f"{mean:.4f}", ""]
    assert cells[5][1] == f"{group[0] - mean:.4f}" and cells[6][1] == f"{(group[0] - mean) / (std + 1e-4):.4f}"
    page.check()


def test_responses_without_an_answer_and_a_file_without_states(report_of):
    old = list(scored_rows(5))
    for row in old:
        del row["checklist_score"]["state"]
    page = report_of(rewards=stated_rows(), scored=scored_rows(5), old=old)
    page.open("0/overview")
    page.js("document.querySelector('details.part').open = true")
    assert "without an answer\n30 of 60" in page.shown and "the thought was cut or never closed" in page.shown
    assert browser.violations(page.driver) == []
    page.press("6 responses cut in thought", "button")
    page.wait("document.querySelector('main').dataset.view === 'matrix'")
    page.has(".grid-row", 6)
    assert page.status == "6 of 60 rows"
    shown = page.texts(".grid-row .flag")
    assert shown == ["cut in thought"] * 6
    cells = "[...document.querySelectorAll('.grid-row .cell')]"
    assert set(page.js(f"return {cells}.map((one) => one.dataset.passed)")) == {"-1"}
    assert "not asked: the response has no answer" in page.js(f"return {cells}[0].title")
    page.filter("state", "")
    page.filter("answer", "unanswered")
    assert page.status == "0 of 60 rows", "the judge did not fail"
    page.filter("answer", "fail")
    assert page.status == "0 of 60 rows"
    page.filter("answer", "")
    page.filter("state", "cut_in_thought")
    page.js("document.querySelector('.grid-row').click()")
    page.wait("!document.querySelector('.panel').hidden")
    panel = page.js("return document.querySelector('.panel').innerText")
    assert "The response has no answer, so the judge was not asked." in panel and "not asked" in panel
    assert HOSTILE in panel and "fails" not in panel, "what was written is shown, as text"
    assert browser.violations(page.driver) == []
    page.check()
    page.open("0/training")
    assert (
        "Completions without an answer, or cut" in page.shown
        and "Length of the completions with an answer" in page.shown
    )
    assert page.js("return [...document.querySelectorAll('.cards .card .flag')].length") > 0
    page.check()
    page.open("0/trust")
    assert "30 targets (30 without an answer are left out)" in page.shown
    page.open("1/overview")
    page.js("document.querySelector('details.part').open = true")
    assert "without an answer\n0 of 5" in page.shown
    page.open("1/matrix")
    page.has(".grid-row", 5)
    assert "state" not in [head.strip() for head in page.texts("[role=columnheader]")]
    page.check()
    page.open("2/overview")
    page.js("document.querySelector('details.part').open = true")
    assert "not recorded in this file" in page.shown
    page.check()


def test_an_attack_on_the_judge(chromium, tmp_path):
    browser.leave(chromium)
    rows = [Pool(["Is it short?"], (f"Story: {HOSTILE}",), f"{HOSTILE} {number}") for number in range(8)]
    found = attack_report(0.9, rows)
    (tmp_path / "attack.json").write_text(json.dumps(found.model_dump()))
    write_report(
        tmp_path / "report.html", [write(tmp_path / "scored.jsonl", scored_rows(3)), tmp_path / "attack.json"]
    )
    page = ReportPage(chromium, tmp_path / "report.html")
    page.open("0/trust")
    page.wait("document.querySelector('[aria-label^=\"attack.json\"]') !== null")
    [first, *_] = page.js(
        "const rows = document.querySelectorAll('[aria-label^=\"attack.json: attack\"] tbody tr');"
        "return [...rows].map((one) => one.innerText)"
    )
    assert found.attacks[0].name in first and "chosen" in first and f"{found.attacks[0].rise.value:.3f}" in first
    shown = page.js("return document.querySelector('main').innerText")
    assert "a response to another prompt" in shown and "honest responses" in shown and "Items that fall" in shown
    example = page.js("return document.querySelector('[aria-label*=\"example of\"]').innerText")
    assert HOSTILE in example and "attacked" in example
    page.check()


def test_thumbnails_of_a_row(report_of, tmp_path):
    pytest.importorskip("PIL.Image").new("RGB", (200, 100), "red").save(tmp_path / "red.png")
    rows = list(scored_rows(2))
    rows[0]["images"] = ["red.png", "https://example.com/cat.png"]
    page = report_of(scored=rows)
    page.open("0/matrix/0")
    page.wait("document.querySelector('.panel .images img')?.naturalWidth > 0")
    shown = page.js("const [one] = document.querySelectorAll('.images img'); return [one.alt, one.width, one.height]")
    assert shown == ["image 1", 96, 48]
    assert "[image][image]Tell me" in page.shown and "image 2: https://example.com/cat.png" in page.shown
    assert browser.errors(page.driver) == [] and browser.violations(page.driver) == []
