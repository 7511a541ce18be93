"""The app in headless Chromium, on the pocket judge: what a user does, from the printed URL to changed scores."""

import json
import shutil

import pytest

from tests.jsonl import read_jsonl
from tests.ui import browser, layout
from tests.ui.app.conftest import POCKET_QUESTIONS, POCKET_RESPONSES
from tests.ui.files import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_messages")]

READY = {
    "/": "#view table",
    "/judge": "[name=score]",
    "/library": "[name=new-checklists]",
    "/library?name=checklists/views.json": ".told p",
    "/batch?file=rows.jsonl": ".preview table",
    "/live": "[name=file]",
    "/report?file=scored.jsonl": ".tiles .fact",
}
"""Each view, and what it shows when it is complete."""


def test_the_start_page_lists_the_files_and_tests_the_judge_and_the_address_has_no_token(page):
    assert "token" not in page.driver.current_url
    page.go("/", "[name=probe]")
    assert sorted(page.texts("#view tbody tr td:first-child")) == ["rows.jsonl", "scored.jsonl"]
    assert sorted(page.texts("#view tbody .tag")) == ["rows", "scored"]
    links = "return [...document.querySelectorAll('#view tbody td:nth-child(3)')].map((td) => td.innerText.trim())"
    assert sorted(page.js(links)) == ["Report Trust Annotate Score again", "Score Annotate"]
    assert "loaded in this process" in page.text(".health")
    page.click("[name=probe]")
    page.wait("document.querySelector('.health').textContent.includes('12 of 12 questions answered')")


def test_the_example_opens_with_one_click(page, project):
    page.go("/", "[name=example]")
    page.click("[name=example]")
    page.wait("document.querySelector('main').dataset.rows === 'read'")
    assert page.texts("#header nav a") == ["Overview", "Matrix", "Training", "Monitor", "Trust"]
    page.go("/report?file=example/scored.jsonl&labels=gold#/0/trust", "[role=alert]")
    assert "column 'gold' not found" in page.text("#view") and page.refused()
    page.press("The report without these labels", "a")
    page.has("#header nav a", 3)
    page.driver.get(f"{page.base}/report?file=example/scored.jsonl&labels=labels#/0/trust")
    page.wait("document.querySelector('main').textContent.includes('Agreement with labels')")
    assert page.text(".choices [aria-current]") == "the column labels"
    shutil.rmtree(project / "example")
    (project / "checklists" / "example.json").unlink()


def paste(page, checklist) -> None:
    """Put a checklist into the editor, as JSON."""
    page.unfold("[name=json]")
    page.js("document.querySelector('[name=json]').value = arguments[0]", json.dumps(checklist))
    page.click("[name=apply]")


def test_a_response_is_scored_and_an_edit_reads_one_item(page, project):
    page.go("/judge", "[name=score]")
    page.fill("[name=input]", "Write about the weather.")
    page.fill("[name=target]", POCKET_RESPONSES[0])
    paste(page, POCKET_QUESTIONS)
    page.pause()  # what was pasted is laid out
    layout.watch(page.driver)
    page.click("[name=score]")
    page.has(".score .num")
    assert layout.shifted(page.driver) < layout.LIMIT
    shown = page.js("return document.querySelector('.score .num').title")
    [row] = [row for row in read_jsonl(project / "scored.jsonl") if row["id"] == "r0"]
    assert float(shown) == row["checklist_score"]["primary_score"]  # to the last digit
    assert page.count(".editor .pill") == 3
    page.click(".editor li:nth-child(2) .open-item")
    page.fill(".editor li:nth-child(2) textarea.question", 'Does the response contain the word "sun"?')
    stale = "return [...document.querySelectorAll('.editor .given')].map((one) => one.classList.contains('stale'))"
    assert page.js(stale) == [False, True, False]
    page.find("[name=target]").send_keys("\ue009\ue007")  # Control and Enter
    page.has(".stale", 0)
    assert float(page.js("return document.querySelector('.score .num').title")) != float(shown)
    page.js("document.querySelectorAll('#view > details')[1].open = true")
    page.has(".code pre", 3)
    assert "ChecklistScorer('pocket'" in page.text(".code pre")


def shown_chip(page):
    return page.js("return document.getElementById('chip').textContent")


def test_the_chip_says_whose_scores_they_are_and_an_export_holds_what_was_scored(page):
    page.go("/", ".health .warning")
    toy = "yes from 0.6a toy: it means nothing on real text"
    assert shown_chip(page) == f"judge of the app pocket, {toy}"
    assert "meaningless" in page.text(".health .warning")
    page.go("/report?file=scored.jsonl", ".tiles .fact")
    assert shown_chip(page) == f"scored by pocket, {toy}current"
    page.go("/report?file=scored.jsonl#/0/matrix/0", ".panel .response")
    page.press("Open in Judge")
    page.wait("document.querySelector('[name=target]')?.value")
    assert "From row r0 of scored.jsonl" in page.text()
    assert shown_chip(page).endswith("not scored")
    page.click("[name=score]")
    page.has("#chip [data-state=current]")
    field = page.find("[name=target]")
    field.send_keys(" No.")
    assert shown_chip(page) == f"judge pocket, {toy}stale" and page.count(".given.stale") == 3
    assert "From row" not in page.text(), "it is another text now"
    page.unfold("details.export")
    page.has(".code pre", 3)
    code = page.text(".code pre")
    assert POCKET_RESPONSES[0] in code and "No." not in code
    assert "not of what is in the boxes now" in page.text("details.export")
    page.unfold("details.settings")
    page.fill("[name=threshold]", "0.9")
    page.wait("document.getElementById('chip').textContent.includes('yes from 0.9')")
    page.fill("[name=threshold]", "")
    field.send_keys(*["\ue003"] * 4)
    page.has("#chip [data-state=current]")
    assert "From row r0 of scored.jsonl" in page.text()


def test_a_score_is_stale_once_the_file_of_its_judge_has_changed(page, project):
    (project / "judges").mkdir(exist_ok=True)
    judges = project / "judges" / "mine.yaml"
    judges.write_text("{model: pocket, backend: transformers}")
    page.go("/judge", "[name=score]")
    page.fill("[name=target]", POCKET_RESPONSES[0])
    page.unfold("details.settings")
    page.pick("[name=judge]", "judges/mine.yaml")
    page.wait("document.getElementById('chip').textContent.includes('judges/mine.yaml')")
    page.click("[name=score]")
    page.has("#chip [data-state=current]")
    judges.write_text("{model: pocket, backend: transformers, modell: x}")
    page.js("window.dispatchEvent(new Event('focus'))")  # the reader comes back from an editor
    page.has("#chip [data-state=stale]")
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
    page.go("/batch", "[name=threshold]")
    page.unfold("[name=threshold]")
    page.js(HOLD, "settings")
    page.fill("[name=threshold]", "0.7")
    page.js("window.holds = false")
    page.fill("[name=threshold]", "0.8")
    page.wait("document.getElementById('chip').textContent.includes('yes from 0.8')")
    page.js("window.release()")
    page.pause()
    assert "yes from 0.8" in shown_chip(page)


def test_of_two_comparisons_the_later_one_counts(page):
    page.go("/compare", "[name=score]")
    page.fill("[name=target-A]", POCKET_RESPONSES[0])
    page.fill("[name=target-B]", POCKET_RESPONSES[4])
    page.fill("textarea.question", POCKET_QUESTIONS[0])
    page.js(HOLD, "judge")
    page.click("[name=score]")
    page.fill("[name=target-B]", POCKET_RESPONSES[5])
    page.js("window.holds = false")
    page.click("[name=score]")
    shown = "[...document.querySelectorAll('.scorebar .score .num')].map((one) => one.title).join()"
    page.has("#chip [data-state=current]")
    before = page.js(f"return {shown}")
    page.js("window.release()")
    page.pause()
    assert page.js(f"return {shown}") == before and before.count(",") == 1
    assert shown_chip(page).endswith("current")


def test_an_empty_response_has_no_answer(page):
    page.go("/judge", "[name=score]")
    page.fill("[name=target]", " ")
    paste(page, POCKET_QUESTIONS)
    page.click("[name=score]")
    page.has(".score .num")
    assert float(page.js("return document.querySelector('.score .num').title")) == 0
    assert page.text(".result .flag") == "empty"
    pills = "return [...document.querySelectorAll('.editor .pill')].map((one) => [one.textContent, one.className])"
    assert page.js(pills) == [["not asked", "pill open"]] * 3


def test_a_checklist_is_written_and_scored(page):
    page.go("/judge", "[name=generate]")
    page.fill("[name=input]", "Write exactly two sentences about the rain.")
    page.fill("[name=target]", POCKET_RESPONSES[9])
    page.unfold("[name=generate]")
    page.click("[name=generate]")
    page.wait("!document.querySelector('[name=generate]').disabled")
    assert page.count("[role=alert]") == 0 and page.count(".editor .item") >= 1
    page.click("[name=score]")
    page.has(".score .num")


def test_a_checklist_is_written_checked_saved_and_opened_from_the_library(page, project):
    page.go("/library", "[name=new-checklists]")
    page.click("[name=new-checklists]")
    page.wait("document.querySelector('.told')?.textContent.startsWith('Valid: 1 item')")
    page.fill("[name=name]", "checklists/weather.json")
    page.fill("[name=text]", '{"items": [{"question": "Is it red?", "wieght": 2}]}')
    page.has(".told [role=alert]")
    assert "wieght" in page.text(".told") and page.js("return document.querySelector('[name=save]').disabled")
    page.fill("[name=text]", json.dumps(POCKET_QUESTIONS))
    page.wait("document.querySelector('.told').textContent.startsWith('Valid: 3 items')")
    page.click("[name=save]")
    page.wait("document.querySelector('.told [role=status]')?.textContent === 'Saved.'")
    assert "weather.json" in page.texts(".shelf button.link")
    assert json.loads((project / "checklists" / "weather.json").read_text()) == POCKET_QUESTIONS
    page.go("/judge", "[name=saved]")
    page.pick("[name=saved]", "checklists/weather.json")
    page.has(".editor .item", 3)


def test_two_responses_are_compared_by_ones_checklist_and_a_failure_stays_on_its_side(page, project):
    (project / "checklists").mkdir(exist_ok=True)
    first, second, third = POCKET_QUESTIONS
    (project / "checklists" / "own.json").write_text(json.dumps([first, second, {"question": third, "weight": -1}]))
    page.go("/compare", "[name=score]")
    page.fill("[name=target-A]", "The rain falls. Is it cold?")
    page.fill("[name=target-B]", "The rain falls. It is cold.")
    page.pick("[name=saved]", "checklists/own.json")
    page.has(".editor .item", 3)
    page.click("[name=score]")
    page.has(".compared-items .pill", 6)
    items = page.texts(".compared-items td:first-child")
    assert items[0] == POCKET_QUESTIONS[0], "the item with the other answer comes first"
    page.has(".scorebar .score .num", 2)
    one, other = map(float, page.js("return [...document.querySelectorAll('.scorebar .num')].map((one) => one.title)"))
    assert page.text(".scorebar > :last-child .score") == f"{other - one:.3f}"
    assert f"{third}penalty -1" in items, "the weights of the checklist count"
    assert "by pocket" in page.text(".scorebar"), "each side names its judge"
    field = page.find("[name=target-B]")
    field.send_keys(" No.")
    page.has("#chip [data-state=stale]")
    assert browser.problems(page.driver) == {}
    field.send_keys(*["\ue003"] * 4)
    marked = page.texts("#view del, #view ins")
    assert "?" in marked and "." in marked
    page.js("document.activeElement.blur()")
    page.find("body").send_keys("j")
    current = page.text("[aria-current=true] td")
    assert current == items[1]
    page.unfold(".side-B details")
    page.fill(".side-B [name=threshold]", "3")
    page.click("[name=score]")
    page.has(".side-B [role=alert]")
    assert "threshold" in page.text(".side-B [role=alert]")
    page.has(".scorebar .score .num")


def test_which_of_two_judges_to_trust_takes_four_clicks(page, project):
    rows = read_jsonl(project / "scored.jsonl")
    for row in rows:
        row["human"] = [line["answer"] for line in row["checklist_score"]["items"]]
    write(project / "one.jsonl", rows)
    for row in rows:
        for line in row["checklist_score"]["items"]:
            line["answer"], line["judge"] = {"yes": "no", "no": "yes"}[line["answer"]], "another"
            line["probabilities"] = line["confidence"] = line["level"] = None
            line["value"] = line["soft"] = float(line["answer"] == "yes")
        row["checklist_score"]["items"][-1] |= {"judge": "code", "method": "check"}
    write(project / "two.jsonl", rows)
    page.go("/", "[name=compare]")
    for name in ("one", "two"):
        page.click(f"[aria-label='select {name}.jsonl']")
    page.click("[name=compare]")
    page.has(".choices")
    assert shown_chip(page).startswith("scored by pocket, another, yes from"), "code checks are no judge"
    page.press("the column human", "a")
    page.wait("document.querySelector('.verdict')?.textContent.startsWith('one.jsonl agrees with people more often')")
    page.go("/", "[name=compare]")  # the report asks for its files
    for name in ("one", "two"):
        (project / f"{name}.jsonl").unlink()


@pytest.mark.parametrize("path", READY)
def test_a_view_is_accessible_and_fits_a_phone(page, project, path):
    (project / "checklists").mkdir(exist_ok=True)
    (project / "checklists" / "views.json").write_text(json.dumps(POCKET_QUESTIONS))
    page.go(path, READY[path])
    assert browser.problems(page.driver) == {}


def test_without_the_token_the_browser_gets_nothing(page):
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.js("localStorage.setItem('kept', localStorage.getItem('checklist-rewards-token'))")
    page.js("localStorage.removeItem('checklist-rewards-token')")
    page.go("/judge", "[role=alert]")
    assert "open the URL" in page.text("[role=alert]")
    page.js("localStorage.setItem('checklist-rewards-token', localStorage.getItem('kept'))")
    assert all("401" in message for message in browser.errors(page.driver))
