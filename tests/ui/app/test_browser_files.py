"""Batch, Library and Live in headless Chromium, on the pocket judge."""

import json
from urllib.parse import urlencode

import pytest

from checklist_rewards import BatchScore
from tests.conftest import HANG
from tests.ui import browser, layout
from tests.ui.app.conftest import POCKET_QUESTIONS, POCKET_RESPONSES, improved, logged
from tests.ui.files import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_messages")]
ROWS = 100
EVIL = "<img src=x onerror=\"document.title='broken'\">"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Rows under other column names, and a checklist."""
    folder = tmp_path_factory.mktemp("project")
    write(
        folder / "rows.jsonl",
        [{"ask": EVIL, "answer": f"{POCKET_RESPONSES[n % 10]} {n}", "rubric": POCKET_QUESTIONS} for n in range(ROWS)],
    )
    (folder / f"{EVIL}.jsonl").write_text("{\n")
    return folder


def test_a_job_from_the_dry_run_to_its_figures(page, project):
    page.go("/batch?file=rows.jsonl", ".preview table")
    for key, column in (("target", "answer"), ("input", "ask"), ("checklist", "rubric")):
        page.pick(f"[name=key-{key}]", column)
    page.click("[name=forecast]")
    page.has(".counted")
    assert f"{ROWS * len(POCKET_QUESTIONS):,}" in page.text(".counted")
    page.click("[name=start]")
    state = "document.querySelector('.job')?.dataset.state"
    page.wait(f"document.querySelector('.job [name=pause]') !== null || {state} === 'done'")
    page.js("document.querySelector('.job [name=pause]')?.click()")
    page.wait(f"['paused', 'done'].includes({state})")  # a job of seconds may end before it is paused
    page.js("document.querySelector('.job [name=resume]')?.click()")
    page.wait(f"{state} === 'done'")
    shown = page.js("return document.querySelector('.job .mean').title")
    assert float(shown) == BatchScore.from_jsonl(project / "scored" / "rows.jsonl").mean
    page.click(".job a.button")
    page.has(".tiles .fact")


def test_a_file_is_uploaded_and_a_bad_one_is_refused_with_a_sentence(page, tmp_path):
    page.go("/batch", "[name=upload]")
    write(tmp_path / "sent.jsonl", [{"target": EVIL}])
    page.find("[name=upload]").send_keys(str(tmp_path / "sent.jsonl"))
    page.wait("document.querySelector('[name=file]').value === 'uploads/sent.jsonl'")
    page.wait("document.querySelector('.preview table')?.textContent.includes('<img src=x')")
    (tmp_path / "bad.jsonl").write_text("{\n")
    page.find("[name=upload]").send_keys(str(tmp_path / "bad.jsonl"))
    page.wait("document.querySelector('[role=alert]')?.textContent.startsWith('bad.jsonl, line 1')")
    assert page.refused()


def test_another_checklist_is_replaced_only_after_a_question(page, project):
    path = project / "checklists" / "kind.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"items": [{"question": "Is it kind?"}]}')
    (path.parent / "mine.json").write_text('{"items": [{"question": "Is it mine?"}]}')
    before = path.read_text()
    page.go("/judge?checklist=checklists/mine.json", "[name=checklist-name]")
    label = "document.querySelector('[name=save]').textContent"
    for typed in ("kind", "kinder", "kind"):  # a question about one name does not count after another was typed
        page.fill("[name=checklist-name]", typed)
        assert page.js(f"return {label}") == "Save checklist"
        if typed == "kind":
            page.click("[name=save]")
            page.wait(f"{label} === 'Replace checklists/kind.json'")
            assert path.read_text() == before
    page.click("[name=save]")
    page.wait(f"{label} === 'Save checklist'")
    page.wait("document.querySelector('#view').textContent.includes('checklists/kind.json is saved')")
    assert [item["question"] for item in json.loads(path.read_text())] == ["Is it mine?"]
    assert page.refused()


def test_each_change_of_improve_is_accepted_or_refused(page, project):
    improved(project)
    steps = json.loads((project / "improved" / "steps.json").read_text())
    page.driver.get(f"{page.base}/")
    page.wait("document.querySelector('a[href=\"/improve?file=improved%2Fsteps.json\"]') !== null")
    page.go("/improve?file=improved/steps.json", "[name=step-0]")
    questions = "return [...document.querySelectorAll('section ol li')].map((one) => one.textContent)"
    kept = page.js(questions)
    assert [step["kind"] for step in steps["steps"] if step["kept"]][:1] == ["turn"]
    assert len(kept) == len(steps["checklist"]) and any(one.startswith("Is it new? weight -") for one in kept)
    assert "as tested" in page.text("#view")
    assert browser.violations(page.driver) == []
    for place, step in enumerate(steps["steps"]):
        if step["kept"]:
            page.click(f"[name=step-{place}]")
    assert page.js(questions) == [one["question"] for one in steps["before"]]
    assert "This selection was not tested" in page.text("#view")
    page.click("[name=step-0]")
    page.click("[name=save]")
    page.wait("document.querySelector('[role=status]')?.textContent.startsWith('Saved')")
    saved = json.loads((project / "checklists" / "steps-accepted.json").read_text())["items"]
    assert {item["question"]: item.get("weight", 1) for item in saved}["Is it new?"] == -1


def test_a_training_is_followed_while_it_writes(page, project):
    def lines(step):
        return "".join(json.dumps(row | {"reward": 0.5}) + "\n" for row in logged(step))

    log = project / "rewards.jsonl"
    log.write_text(lines(0) + lines(1))
    page.driver.set_page_load_timeout(HANG)
    page.driver.get(f"{page.base}/live")
    page.wait("document.querySelector('[role=status]')?.textContent.startsWith('10 completions, step 1')")
    assert "<script>" in page.text(".live")
    page.js("document.querySelector('.live details').open = true; scrollTo(0, 300)")
    page.focus(".live summary")
    page.has(".live details table")
    scrolled = page.js("return scrollY")
    layout.watch(page.driver)
    with log.open("a") as file:
        file.write(lines(2))
    page.wait("document.querySelector('[role=status]')?.textContent.startsWith('15 completions, step 2')")
    assert layout.shifted(page.driver) < layout.LIMIT
    assert page.js("return [document.querySelector('.live details').open, scrollY]") == [True, scrolled]
    assert page.js("return document.activeElement === document.querySelector('.live summary')")
    assert "<script>" in page.text(".live")


def test_names_of_files_errors_and_answers_with_html_are_shown_as_text(page, project):
    page.driver.get(page.base)
    page.wait("[...document.querySelectorAll('.files td')].some((one) => one.textContent.startsWith('<img src=x'))")
    query = urlencode({"file": f"{EVIL}.jsonl"})
    for view, ready in (
        ("report", "[role=alert]"),
        ("batch", "[role=alert]"),
        ("annotate", "form.setup"),
        ("live", "[role=alert]"),
    ):
        page.driver.get(f"{page.base}/{view}?{query}")
        page.has(ready)
    page.go("/judge", "[name=score]")
    for checklist, ready in (([EVIL], ".score .num"), ([{"question": EVIL, "check": {"type": EVIL}}], "[role=alert]")):
        page.js("document.querySelector('[name=json]').value = arguments[0]", json.dumps(checklist))
        page.js("document.querySelector('[name=apply]').click(); document.querySelector('[name=score]').click()")
        page.has(ready)
    assert "<img src=x onerror=" in page.text("[role=alert]")
    assert page.count("img, #view script") == 0
    assert page.refused()


def test_a_report_says_that_its_file_has_changed_and_a_reload_keeps_filter_order_and_row(page, project):
    log = write(project / "grown.jsonl", logged(0))
    page.driver.get(f"{page.base}/report?file=grown.jsonl#/0/matrix/1")
    page.has("#chip [data-state=current]")
    page.wait("document.querySelector('[role=status]')?.textContent === '5 of 5 rows'")
    page.pick(".filters input", "red")
    page.wait("document.querySelector('[role=status]').textContent === '3 of 5 rows'")
    page.press("reward", "button")
    seen = "return [location.hash, document.querySelector('[aria-sort=descending]').textContent]"
    before = page.js(seen)
    write(log, [*logged(0), *logged(1)])
    page.has("#chip [data-state=stale]")
    page.driver.refresh()
    page.wait("document.querySelector('[role=status]')?.textContent === '6 of 10 rows'")
    assert page.js(seen) == before and page.text(".panel h2") == "Row 2"
    page.has("#chip [data-state=current]")
