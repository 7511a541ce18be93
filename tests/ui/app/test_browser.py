"""The app in headless Chromium, on the pocket judge: what a user does, from the printed URL to changed scores."""

import json
import shutil

import pytest

from tests.ui import browser, layout
from tests.ui.app.conftest import POCKET_QUESTIONS, POCKET_RESPONSES, fill, run
from tests.ui.files import page_data

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_messages")]

READY = {
    "/": "#view table",
    "/judge": "[name=score]",
    "/compare": "[name=score]",
    "/library": "[name=new-checklists]",
    "/library?name=checklists/views.json": ".told p",
    "/batch?file=rows.jsonl": ".preview table",
    "/live": "[name=file]",
    "/report?file=scored.jsonl": ".tiles .fact",
}
"""Each view, and what it shows when it is complete."""


def test_the_files_of_the_project_are_listed_and_the_address_has_no_token(page):
    assert "token" not in page.driver.current_url
    rows = page.js(
        "return [...document.querySelectorAll('#view tbody tr td:first-child')].map((td) => td.textContent)"
    )
    assert sorted(rows) == ["rows.jsonl", "scored.jsonl"]
    kinds = page.js("return [...document.querySelectorAll('#view tbody .tag')].map((one) => one.textContent)")
    assert sorted(kinds) == ["rows", "scored"]
    links = page.js(
        "return [...document.querySelectorAll('#view tbody td:nth-child(3)')].map((td) => td.innerText.trim())"
    )
    assert sorted(links) == ["Report Trust Annotate Score again", "Score Annotate"]


def test_the_judge_is_tested_on_the_start_page(page):
    page.driver.get(page.base)
    page.wait("document.querySelector('[name=probe]') !== null")
    assert "loaded in this process" in page.js("return document.querySelector('.health').textContent")
    page.driver.find_element("css selector", "[name=probe]").click()
    page.wait("document.querySelector('.health').textContent.includes('12 of 12 questions answered')")


def test_the_example_opens_with_one_click(page, project):
    page.driver.get(page.base)
    page.wait("document.querySelector('[name=example]') !== null")
    page.driver.find_element("css selector", "[name=example]").click()
    page.wait("document.querySelector('main').dataset.rows === 'read'")
    views = page.js("return [...document.querySelectorAll('#header nav a')].map((one) => one.textContent)")
    assert views == ["Overview", "Matrix", "Training", "Monitor", "Trust"]
    page.driver.get(f"{page.base}/report?file=example/scored.jsonl&labels=labels#/0/trust")
    page.wait("document.querySelector('main').textContent.includes('Agreement with labels')")
    assert page.js("return document.querySelector('.choices [aria-current]').textContent") == "the column labels"
    page.driver.get(f"{page.base}/report?file=example/scored.jsonl#/0/matrix/0")
    page.wait("document.querySelector('.panel .response') !== null")
    shown = page.js("return document.querySelector('.panel .response').textContent")
    page.driver.find_element("xpath", "//button[.='Open in Judge']").click()
    page.wait("document.querySelector('[name=target]') !== null")
    assert page.js("return document.querySelector('[name=target]').value") == shown
    shutil.rmtree(project / "example")
    (project / "checklists" / "example.json").unlink()


def test_a_report_is_that_of_the_command(page, project, tmp_path):
    page.driver.get(f"{page.base}/report?file=scored.jsonl")
    page.wait("document.querySelector('.tiles .fact') !== null")
    shown = page.js("return document.querySelector('#view').textContent")
    run("report", project / "scored.jsonl", "-o", tmp_path / "report.html")
    overview = page_data(tmp_path / "report.html")["files"][0]["overview"]
    assert f"{overview['mean']:.3f}" in shown
    page.driver.get(f"{page.base}/report?file=scored.jsonl#/0/matrix/9")
    page.wait("document.querySelector('.response') !== null")
    assert "<script>" in page.js("return document.querySelector('.response').textContent")
    assert page.js("return document.querySelectorAll('#view img, #view script').length") == 0


def test_a_report_follows_a_file_that_grows(page, project):
    live = project / "live.jsonl"
    lines = (project / "scored.jsonl").read_text().splitlines(keepends=True)
    live.write_text("".join(lines[:4]))
    page.driver.get(f"{page.base}/report?file=live.jsonl")
    page.wait("document.querySelector('.tiles .fact') !== null")
    page.driver.find_element("css selector", "#header input[type=checkbox]").click()
    live.write_text("".join(lines))
    page.wait("[...document.querySelectorAll('.tiles strong')].some((one) => one.textContent === '10')")
    live.unlink()


def test_a_response_is_scored_and_an_edit_reads_one_item(page, project):
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=input]", "Write about the weather.")
    fill(page, "[name=target]", POCKET_RESPONSES[0])
    page.js("document.querySelector('[name=json]').closest('details').open = true")
    page.js("document.querySelector('[name=json]').value = arguments[0]", json.dumps(POCKET_QUESTIONS))
    page.driver.find_element("css selector", "[name=apply]").click()
    page.driver.execute_async_script("setTimeout(arguments[0], 300)")  # what was pasted is laid out
    layout.watch(page.driver)
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('.score .num') !== null")
    assert layout.shifted(page.driver) < layout.LIMIT
    shown = page.js("return document.querySelector('.score .num').title")
    [row] = [row for row in map(json.loads, (project / "scored.jsonl").read_text().splitlines()) if row["id"] == "r0"]
    assert float(shown) == row["checklist_score"]["primary_score"]  # to the last digit
    assert page.js("return document.querySelectorAll('.editor .pill').length") == 3
    page.driver.find_element("css selector", ".editor li:nth-child(2) .open-item").click()
    fill(page, ".editor li:nth-child(2) textarea.question", 'Does the response contain the word "sun"?')
    assert page.js(
        "return [...document.querySelectorAll('.editor .given')].map((one) => one.classList.contains('stale'))"
    ) == [False, True, False]
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelectorAll('.stale').length === 0")
    assert float(page.js("return document.querySelector('.score .num').title")) != float(shown)
    page.js("document.querySelectorAll('#view > details')[1].open = true")
    page.wait("document.querySelectorAll('.code pre').length === 3")
    assert "ChecklistScorer('pocket'" in page.js("return document.querySelector('.code pre').textContent")


def shown_chip(page):
    return page.js("return document.getElementById('chip').textContent")


def test_the_chip_says_whose_scores_they_are_and_an_export_holds_what_was_scored(page):
    page.driver.get(page.base)
    page.wait("document.querySelector('.health .warning') !== null")
    toy = "yes from 0.6a toy: it means nothing on real text"
    assert shown_chip(page) == f"judge of the app pocket, {toy}"
    assert "meaningless" in page.js("return document.querySelector('.health .warning').textContent")
    page.driver.get(f"{page.base}/report?file=scored.jsonl")
    page.wait("document.querySelector('.tiles .fact') !== null")
    assert shown_chip(page) == f"scored by pocket, {toy}current"
    page.driver.get(f"{page.base}/report?file=scored.jsonl#/0/matrix/0")
    page.wait("document.querySelector('.panel .response') !== null")
    page.driver.find_element("xpath", "//button[.='Open in Judge']").click()
    page.wait("document.querySelector('[name=target]')?.value")
    assert "From row r0 of scored.jsonl" in page.js("return document.querySelector('main').textContent")
    assert shown_chip(page).endswith("not scored")
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('#chip [data-state=current]') !== null")
    field = page.driver.find_element("css selector", "[name=target]")
    field.send_keys(" No.")
    assert shown_chip(page) == f"judge pocket, {toy}stale"
    assert page.js("return document.querySelector('.result').classList.contains('stale')")
    assert page.js("return document.querySelectorAll('.given.stale').length") == 3
    assert browser.problems(page.driver) == {}
    assert "From row" not in page.js("return document.querySelector('main').textContent"), "it is another text now"
    page.js("document.querySelector('details.export').open = true")
    page.wait("document.querySelectorAll('.code pre').length === 3")
    code = page.js("return document.querySelector('.code pre').textContent")
    assert POCKET_RESPONSES[0] in code and "No." not in code
    told = page.js("return document.querySelector('details.export').textContent")
    assert "not of what is in the boxes now" in told and "Judge: pocket, yes from 0.6." in told
    page.js("document.querySelector('details.settings').open = true")
    fill(page, "[name=threshold]", "0.9")
    page.wait("document.getElementById('chip').textContent.includes('yes from 0.9')")
    fill(page, "[name=threshold]", "")
    field.send_keys(*["\ue003"] * 4)
    page.wait("document.querySelector('#chip [data-state=current]') !== null")
    assert "From row r0 of scored.jsonl" in page.js("return document.querySelector('main').textContent")


def test_a_score_is_stale_once_the_file_of_its_judge_has_changed(page, project):
    (project / "judges").mkdir(exist_ok=True)
    judges = project / "judges" / "mine.yaml"
    judges.write_text("{model: pocket, backend: transformers}")
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=target]", POCKET_RESPONSES[0])
    page.js("document.querySelector('details.settings').open = true")
    page.js(
        "const s = document.querySelector('[name=judge]'); s.value = 'judges/mine.yaml';"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.wait("document.getElementById('chip').textContent.includes('judges/mine.yaml')")
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('#chip [data-state=current]') !== null")
    judges.write_text("{model: pocket, backend: transformers, modell: x}")
    page.js("window.dispatchEvent(new Event('focus'))")  # the reader comes back from an editor
    page.wait("document.querySelector('#chip [data-state=stale]') !== null")
    judges.unlink()


HOLD = """
    const real = window.fetch, held = new Promise((done) => (window.release = done));
    window.holds = true;
    window.fetch = async (address, init) => {
      const waits = window.holds && String(address).endsWith(arguments[0]), found = await real(address, init);
      if (waits) await held;
      return found;
    };
"""
"""Hold the replies to requests of a path until `release()`; of later ones once `holds` is false."""


def test_of_two_replies_about_the_settings_the_later_request_counts(page):
    page.driver.get(f"{page.base}/batch")
    page.wait("document.querySelector('[name=threshold]') !== null")
    page.js("document.querySelector('[name=threshold]').closest('details').open = true")
    page.js(HOLD, "settings")
    fill(page, "[name=threshold]", "0.7")
    page.js("window.holds = false")
    fill(page, "[name=threshold]", "0.8")
    page.wait("document.getElementById('chip').textContent.includes('yes from 0.8')")
    page.js("window.release()")
    page.driver.execute_async_script("setTimeout(arguments[0], 300)")
    assert "yes from 0.8" in shown_chip(page)


def test_of_two_comparisons_the_later_one_counts(page):
    page.driver.get(f"{page.base}/compare")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=target-A]", POCKET_RESPONSES[0])
    fill(page, "[name=target-B]", POCKET_RESPONSES[4])
    fill(page, "textarea.question", POCKET_QUESTIONS[0])
    page.js(HOLD, "judge")
    page.driver.find_element("css selector", "[name=score]").click()
    fill(page, "[name=target-B]", POCKET_RESPONSES[5])
    page.js("window.holds = false")
    page.driver.find_element("css selector", "[name=score]").click()
    shown = "[...document.querySelectorAll('.scorebar .score .num')].map((one) => one.title).join()"
    page.wait("document.querySelector('#chip [data-state=current]') !== null")
    before = page.js(f"return {shown}")
    page.js("window.release()")
    page.driver.execute_async_script("setTimeout(arguments[0], 300)")
    assert page.js(f"return {shown}") == before and before.count(",") == 1
    assert shown_chip(page).endswith("current")


def test_an_empty_response_has_no_answer(page):
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=target]", " ")
    page.js("document.querySelector('[name=json]').closest('details').open = true")
    page.js("document.querySelector('[name=json]').value = arguments[0]", json.dumps(POCKET_QUESTIONS))
    page.driver.find_element("css selector", "[name=apply]").click()
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('.score .num') !== null")
    assert float(page.js("return document.querySelector('.score .num').title")) == 0
    assert page.js("return document.querySelector('.result .flag').textContent") == "empty"
    pills = "return [...document.querySelectorAll('.editor .pill')].map((one) => [one.textContent, one.className])"
    assert page.js(pills) == [["not asked", "pill open"]] * 3


def test_a_checklist_is_written_and_scored(page):
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=generate]') !== null")
    fill(page, "[name=input]", "Write exactly two sentences about the rain.")
    fill(page, "[name=target]", POCKET_RESPONSES[9])
    page.js("document.querySelector('[name=generate]').closest('details').open = true")
    page.driver.find_element("css selector", "[name=generate]").click()
    page.wait("!document.querySelector('[name=generate]').disabled")
    assert page.js("return document.querySelector('[role=alert]')?.textContent") is None
    assert page.js("return document.querySelectorAll('.editor .item').length") >= 1
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('.score .num') !== null")


def test_a_checklist_is_saved_and_opened_from_the_library(page, project):
    page.driver.get(f"{page.base}/library")
    page.wait("document.querySelector('[name=new-checklists]') !== null")
    page.driver.find_element("css selector", "[name=new-checklists]").click()
    fill(page, "[name=name]", "checklists/weather.json")
    fill(page, "[name=text]", json.dumps(POCKET_QUESTIONS))
    page.wait("document.querySelector('.told').textContent.startsWith('Valid: 3 items')")
    page.driver.find_element("css selector", "[name=save]").click()
    page.wait("document.querySelector('.told [role=status]')?.textContent === 'Saved.'")
    assert json.loads((project / "checklists" / "weather.json").read_text()) == POCKET_QUESTIONS
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=saved]') !== null")
    page.js(
        "const s = document.querySelector('[name=saved]'); s.value = 'checklists/weather.json';"
        "s.dispatchEvent(new Event('change'))"
    )
    page.wait("document.querySelectorAll('.editor .item').length === 3")
    fill(page, "[name=checklist-name]", "again")
    page.driver.find_element("css selector", ".controls [name=save]").click()
    page.wait("document.querySelector('[role=status]').textContent.includes('again.json is saved')")
    assert json.loads((project / "checklists" / "again.json").read_text())[0]["question"] == POCKET_QUESTIONS[0]


def test_two_responses_are_compared_by_ones_checklist_and_a_failure_stays_on_its_side(page, project):
    (project / "checklists").mkdir(exist_ok=True)
    first, second, third = POCKET_QUESTIONS
    (project / "checklists" / "own.json").write_text(json.dumps([first, second, {"question": third, "weight": -1}]))
    page.driver.get(f"{page.base}/compare")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=target-A]", "The rain falls. Is it cold?")
    fill(page, "[name=target-B]", "The rain falls. It is cold.")
    page.js(
        "const s = document.querySelector('[name=saved]'); s.value = 'checklists/own.json';"
        "s.dispatchEvent(new Event('change'))"
    )
    page.wait("document.querySelectorAll('.editor .item').length === 3")
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelectorAll('.compared-items .pill').length === 6")
    items = page.js(
        "return [...document.querySelectorAll('.compared-items td:first-child')].map((td) => td.textContent)"
    )
    assert items[0] == POCKET_QUESTIONS[0], "the item with the other answer comes first"
    page.wait("document.querySelectorAll('.scorebar .score .num').length === 2")
    one, other = map(float, page.js("return [...document.querySelectorAll('.scorebar .num')].map((one) => one.title)"))
    assert (
        page.js("return document.querySelector('.scorebar > :last-child .score').textContent") == f"{other - one:.3f}"
    )
    assert f"{third}penalty -1" in items, "the weights of the checklist count"
    assert "by pocket" in page.js("return document.querySelector('.scorebar').textContent"), (
        "each side names its judge"
    )
    field = page.driver.find_element("css selector", "[name=target-B]")
    field.send_keys(" No.")
    page.wait("document.querySelector('#chip [data-state=stale]') !== null")
    assert browser.problems(page.driver) == {}
    field.send_keys(*["\ue003"] * 4)
    page.wait("document.querySelector('#chip [data-state=current]') !== null")
    marked = page.js("return [...document.querySelectorAll('#view del, #view ins')].map((one) => one.textContent)")
    assert "?" in marked and "." in marked
    page.js("document.activeElement.blur()")
    page.driver.find_element("css selector", "body").send_keys("j")
    current = page.js("return document.querySelector('[aria-current=true] td').textContent")
    assert current == items[1]
    page.js("document.querySelector('.side-B details').open = true")
    fill(page, ".side-B [name=threshold]", "3")
    page.driver.find_element("css selector", "[name=score]").click()
    page.wait("document.querySelector('.side-B [role=alert]') !== null")
    assert "threshold" in page.js("return document.querySelector('.side-B [role=alert]').textContent")
    page.wait("document.querySelector('.scorebar .score .num') !== null")


def test_candidates_of_a_file_are_compared(page, project):
    row = {"prompt": "Write about the weather.", "candidates": POCKET_RESPONSES[:3], "checklist": POCKET_QUESTIONS}
    (project / "candidates.jsonl").write_text(json.dumps(row))
    page.driver.get(f"{page.base}/compare")
    page.wait("document.querySelector('[name=target-B]') !== null")
    fill(page, "[name=target-B]", "a draft")
    page.driver.get(page.base)
    page.wait("document.querySelector('.files a') !== null")
    page.driver.find_element("xpath", "//a[@aria-label='Compare: candidates.jsonl']").click()
    page.wait("document.querySelector('[name=target-B]')?.value")
    assert page.js("return document.querySelectorAll('.editor .item').length") == 3
    page.js("const s = document.querySelector('[name=pick-B]'); s.value = '2'; s.dispatchEvent(new Event('change'))")
    assert page.js("return document.querySelector('[name=target-B]').value") == POCKET_RESPONSES[2]
    page.driver.get(f"{page.base}/compare")
    page.wait("document.querySelector('[name=target-B]')?.value")
    assert page.js("return document.querySelector('[name=target-B]').value") == "a draft"
    (project / "candidates.jsonl").unlink()


def test_which_of_two_judges_to_trust_takes_four_clicks(page, project):
    rows = [json.loads(line) for line in (project / "scored.jsonl").read_text().splitlines()]
    for row in rows:
        row["human"] = [line["answer"] for line in row["checklist_score"]["items"]]
    (project / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        for line in row["checklist_score"]["items"]:
            line["answer"], line["judge"] = {"yes": "no", "no": "yes"}[line["answer"]], "another"
            line["probabilities"] = line["confidence"] = line["level"] = None
            line["value"] = line["soft"] = float(line["answer"] == "yes")
        row["checklist_score"]["items"][-1] |= {"judge": "code", "method": "check"}
        del row["human"]
    (project / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.driver.get(page.base)
    page.wait("document.querySelector('[name=compare]') !== null")
    for name in ("one", "two"):
        page.driver.find_element("css selector", f"[aria-label='select {name}.jsonl']").click()
    page.driver.find_element("css selector", "[name=compare]").click()
    page.wait("document.querySelector('.choices') !== null")
    assert shown_chip(page).startswith("scored by pocket, another, yes from"), "code checks are no judge"
    page.driver.find_element("xpath", "//a[.='the column human']").click()
    page.wait("document.querySelector('.verdict')?.textContent.startsWith('one.jsonl agrees with people more often')")
    assert "two.jsonl: scored by another." in page.js("return document.querySelector('main').textContent")
    page.driver.get(page.base)
    page.wait("document.querySelector('[name=compare]') !== null")
    assert page.js("return document.querySelector('[name=compare]').disabled")
    page.driver.find_element("css selector", "[aria-label='select rows.jsonl']").click()
    page.driver.find_element("css selector", ".controls [name=score]").click()
    page.wait("document.querySelector('.preview table') !== null")
    for name in ("one", "two"):
        (project / f"{name}.jsonl").unlink()


@pytest.mark.parametrize("path", READY)
def test_a_view_is_accessible_and_fits_a_phone(page, project, path):
    (project / "checklists").mkdir(exist_ok=True)
    (project / "checklists" / "views.json").write_text(json.dumps(POCKET_QUESTIONS))
    page.driver.get(page.base + path)
    page.wait(f"document.querySelector({json.dumps(READY[path])}) !== null")
    assert browser.problems(page.driver) == {}


def test_without_the_token_the_browser_gets_nothing(page):
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.js("localStorage.setItem('kept', localStorage.getItem('checklist-rewards-token'))")
    page.js("localStorage.removeItem('checklist-rewards-token')")
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[role=alert]') !== null")
    assert "open the URL" in page.js("return document.querySelector('[role=alert]').textContent")
    page.js("localStorage.setItem('checklist-rewards-token', localStorage.getItem('kept'))")
    assert all("401" in message for message in browser.errors(page.driver))
