"""What the report shows about one row, and about a run that was monitored, in a real browser."""

import statistics

import pytest
from PIL import Image as pillow

from checklist_rewards.ui.report import write_report
from tests.ui import browser
from tests.ui.browser import ReportPage
from tests.ui.files import (
    HOSTILE,
    annotation,
    monitor_rows,
    quoting_rows,
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


EVIL = "<script>window.hacked = 1</script>"


def test_reasoning_and_votes_are_shown_with_quotes_and_marks_of_people_highlighted(report_of):
    [row] = quoting_rows()
    row["checklist_score"]["items"][0]["reasoning"] += f" {EVIL}"
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
    page.js("document.querySelectorAll('.panel details').forEach((one) => (one.open = true))")
    told = page.js("return document.querySelector('.panel').innerText")
    assert EVIL in told and "2 votes" in told and "agreement 0.500" in told
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
    assert [cell[1] for cell in cells[:3]] == [f"{value:.4f}" for value in stages] and cells[1][2] == "-0.2500"
    group = [row["reward"] for row in rows[40:44]]
    mean = sum(group) / 4
    assert cells[4] == ["mean of the 4 rewards of its group", f"{mean:.4f}", ""]
    advantage = (group[0] - mean) / (statistics.stdev(group) + 1e-4)
    assert cells[5][1] == f"{group[0] - mean:.4f}" and cells[6][1] == f"{advantage:.4f}"
    page.check()


def test_responses_without_an_answer_and_a_file_without_states(report_of):
    old = list(scored_rows(5))
    for row in old:
        del row["checklist_score"]["state"]
    page = report_of(rewards=stated_rows(), old=old)
    page.open("0/overview")
    page.js("document.querySelector('details.part').open = true")
    assert "without an answer\n30 of 60" in page.shown and "the thought was cut or never closed" in page.shown
    page.press("6 responses cut in thought", "button")
    page.wait("document.querySelector('main').dataset.view === 'matrix'")
    page.has(".grid-row", 6)
    assert page.status == "6 of 60 rows" and page.texts(".grid-row .flag") == ["cut in thought"] * 6
    assert page.count(".grid-row .cell[data-passed='-1'][title*='not asked: the response has no answer']") == 12
    page.filter("state", "")
    for answer in ("unanswered", "fail"):
        page.filter("answer", answer)
        assert page.status == "0 of 60 rows", "the judge neither failed nor said no"
    page.filter("answer", "")
    page.filter("state", "cut_in_thought")
    page.js("document.querySelector('.grid-row').click()")
    page.wait("!document.querySelector('.panel').hidden")
    panel = page.js("return document.querySelector('.panel').innerText")
    assert "The response has no answer, so the judge was not asked." in panel and "fails" not in panel
    assert HOSTILE in panel, "what was written is shown, as text"
    assert browser.violations(page.driver) == []
    page.check()
    page.open("0/training")
    assert "Completions without an answer, or cut" in page.shown and page.count(".cards .card .flag") > 0
    page.open("0/trust")
    assert "30 targets (30 without an answer are left out)" in page.shown
    page.open("1/overview")
    page.js("document.querySelector('details.part').open = true")
    assert "not recorded in this file" in page.shown
    page.check()


def test_thumbnails_of_a_row(report_of, tmp_path):
    pillow.new("RGB", (200, 100), "red").save(tmp_path / "red.png")
    rows = list(scored_rows(2))
    rows[0]["images"] = ["red.png", "https://example.com/cat.png"]
    page = report_of(scored=rows)
    page.open("0/matrix/0")
    page.wait("document.querySelector('.panel .images img')?.naturalWidth > 0")
    shown = page.js("const [one] = document.querySelectorAll('.images img'); return [one.alt, one.width, one.height]")
    assert shown == ["image 1", 96, 48]
    assert "[image][image]Tell me" in page.shown and "image 2: https://example.com/cat.png" in page.shown
    assert browser.errors(page.driver) == [] and browser.violations(page.driver) == []
