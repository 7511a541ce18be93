"""The view Build in headless Chromium: from dimensions to a saved checklist, with a scripted writer and judge."""

import json
import threading
from types import SimpleNamespace

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.files.store import Store
from checklist_rewards.ui.app import build_ui
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.generators import test_deductive as deductive
from tests.generators.fakes import Replies
from tests.serving import serving
from tests.ui import browser
from tests.ui.app.conftest import TOKEN, AppPage, colours, judging_of

pytestmark = pytest.mark.slow

HOSTILE = "Is it <img src=x onerror=\"document.title='broken'\">?"
GATE = threading.Event()
"""The writer replies while it is set."""
GATE.set()
SEEDS = ["Is it red?", HOSTILE]
ADDED = {"elaborate": ["Is the colour red?", "Does it rhyme?"], "diversify": ["Does it name a river?"]}


def writes(text, sampling):
    """What the scripted writer replies to each stage and refiner."""
    assert GATE.wait(HANG)
    if "ask the same thing" in text:
        return json.dumps({"same": True, "question": "Is it red?"})
    stage = deductive.stage_of(text)
    if stage is None or (stage == "elaborate" and "Is it crimson?" in text):
        return "I cannot write that."
    return deductive.questions(*(SEEDS if stage == "seed" else ADDED[stage]))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The app of an empty project, on a port of its own."""
    folder = tmp_path_factory.mktemp("project")
    store = Store(tmp_path_factory.mktemp("store") / "store.sqlite")
    judge, writer = FakeBackend(colours), Replies(writes)
    judging = judging_of(folder, Engine("judge", judge), Engine("writer", writer), store=store)
    with serving(build_ui(judging, TOKEN)) as base:
        yield SimpleNamespace(base=base, folder=folder, judge=judge, writer=writer)


@pytest.fixture(scope="module")
def page(served, chromium):
    yield AppPage(chromium, f"{served.base}/build?token={TOKEN}", "[name=run-seed]")
    chromium.execute_script("sessionStorage.clear()")
    assert browser.errors(chromium) == []
    assert chromium.title != "broken"


def click(page, selector):
    """Press a control with the keyboard."""
    control = page.find(selector)
    page.js("arguments[0].focus()", control)
    control.send_keys(" ")


def stage(number):
    return f".stages > li:nth-child({number})"


FOUND = f"{stage(1)} [name=seeds]"


def start(page):
    """A dimension, and its seeds."""
    page.fill(".source-form [name=task]", "Name a colour.")
    click(page, ".source-form .group > button")
    page.fill(".source-form [name=name]", "colour")
    page.fill(".source-form [name=definition]", "It has a colour.")
    assert page.js("return document.querySelector('[name=run-elaborate]').disabled")
    click(page, "[name=run-seed]")
    page.has(FOUND)


def test_dimensions_become_a_saved_checklist(page, served):
    start(page)
    assert page.texts(FOUND) == ["\n".join(SEEDS)]

    # A stage that fails says so in its own card, and nothing typed is lost.
    page.fill(FOUND, "Is it crimson?")
    click(page, "[name=run-elaborate]")
    page.has(f"{stage(2)} [role=alert]")
    sentence = page.texts("[role=alert]")
    assert len(sentence) == 1 and "the stage 'elaborate' failed. colour" in sentence[0]
    assert page.texts(FOUND) == ["Is it crimson?"]
    messages = browser.errors(page.driver)
    assert len(messages) == 1 and "400" in messages[0], messages

    page.fill(FOUND, f"Is it red?\n{HOSTILE}\nIs it polite?")
    click(page, "[name=run-elaborate]")
    page.has(f"{stage(2)} [name=added]")
    assert "- Is it polite?" in served.writer.sampled[-1][0][0]
    assert page.texts(f"{stage(2)} [name=added]") == ["\n".join(ADDED["elaborate"])]
    click(page, "[name=run-diversify]")
    page.wait("document.querySelector('[name=use-diversify]')?.hidden === false")
    click(page, "[name=use-diversify]")
    page.has(".editor .item", 6)
    questions = ["Is it red?", HOSTILE, "Is it polite?", *ADDED["elaborate"], *ADDED["diversify"]]
    assert page.texts(".editor .question") == questions
    assert page.count("#view img") == 0

    # Before and after; undo and redo by accepting again.
    page.unfold(".refine")
    page.unfold(".refine .settings")
    page.fill(".refine [name=threshold]", "0.9")
    click(page, "[name=refine]")
    page.has("[name=accept]")
    states = page.texts("[aria-label=Before] .state")
    assert states.count("dropped") == 1 and len(states) == 6
    assert "it was merged into 'Is it red?'" in page.texts("[aria-label=Before] .reason")
    assert len(page.texts("[aria-label=After] .state")) == 5
    click(page, "[name=accept]")
    page.has(".editor .item", 5)
    click(page, "[name=undo]")
    page.has(".editor .item", 6)
    click(page, "[name=refine]")
    page.has("[name=accept]")
    click(page, "[name=accept]")
    page.has(".editor .item", 5)

    # The preview: the judge reads once, and a weight changes the score without it.
    for number, text in ((1, "a red thing"), (2, "a blue thing")):
        page.fill(f".samples .card:nth-child({number}) [name=sample]", text)
    click(page, "[name=read]")
    scored = "[...document.querySelectorAll('.samples .score .num')].filter((one) => one.title !== 'none')"
    page.wait(f"{scored}.length === 2")
    page.has(".editor .item:first-child .pill", 2)
    before = page.js("return document.querySelector('.samples .score .num').title")
    asked = len(served.judge.asked)
    for number in (1, 3, 5):
        click(page, f".editor .item:nth-child({number}) .open-item")
    weight = page.find(".editor .item:first-child input[type=number]")
    weight.clear()
    weight.send_keys("4")
    page.wait(f"document.querySelector('.samples .score .num').title !== '{before}'")
    page.has(".samples .was")
    assert len(served.judge.asked) == asked
    after = float(page.js("return document.querySelector('.samples .score .num').title"))

    # A code check by form is computed at once; an item with another text waits for the judge.
    page.js("document.querySelectorAll('.editor .more')[4].open = true")
    page.has(".editor [name=check]")
    page.pick(".editor [name=check]", "words")
    for name, value in (("at_least", "3"), ("at_most", "3")):
        page.fill(f".editor [name={name}]", value)
    page.has(".editor .item:nth-child(5) .pill.pass", 2)
    assert len(served.judge.asked) == asked
    page.fill(".editor .item:nth-child(3) .question", "Is it short?")
    page.wait("document.querySelector('.editor .item:nth-child(3) .pill').textContent.includes('not read yet')")
    click(page, "[name=read]")
    page.wait("![...document.querySelectorAll('.editor .pill')].some((one) => one.textContent.includes('not read'))")
    assert len(served.judge.asked) == asked + 2

    page.fill("[name=checklist-name]", "built")
    click(page, "[name=save]")
    page.wait("[...document.querySelectorAll('[role=status]')].some((one) => one.textContent.endsWith('is saved'))")
    saved = Checklist.parse((served.folder / "checklists" / "built.json").read_text())
    assert [item.weight for item in saved.items] == [4.0, 1.0, 1.0, 1.0, 1.0]
    assert saved.items[4].check == '{"at_least": 3, "at_most": 3, "type": "words"}'
    expected = ChecklistScorer(backend=FakeBackend(colours), store=False).score(saved, "a red thing")
    assert page.js("return document.querySelector('.samples .score .num').title") == str(expected.primary_score)
    assert after > float(before)
    page.unfold(".export")
    page.has(".code pre", 3)
    assert "ChecklistScorer('judge'" in page.text(".code pre")


def test_a_page_that_is_opened_again_has_what_was_typed(page):
    page.driver.get(f"{page.base}/build")
    page.has(".stages [name=seeds]", 3)
    assert page.texts(".editor .question")[2] == "Is it short?"
    assert page.texts(".source-form [name=name]") == ["colour"]
    assert page.texts(".samples [name=sample]") == ["a red thing", "a blue thing"]
    assert page.texts(".stages .controls > :last-child") == ["", "", ""], "no draft is old"
    page.has(".editor .pill", 10)


def test_the_view_is_accessible_and_fits_a_phone(page):
    """With every part of the view open: stages, options, a check, before and after, settings and code."""
    page.driver.get(f"{page.base}/build")
    page.has(".editor .item", 5)
    page.js(
        "document.querySelectorAll('details').forEach((one) => (one.removeAttribute('name'), (one.open = true)));"
        "document.querySelectorAll('.open-item').forEach((one) => one.click())"
    )
    page.has(".editor [name=check]", 5)
    click(page, ".editor [name=add-option]")
    found = browser.problems(page.driver)
    browser.errors(page.driver)  # of the request that is refused for the option without a label
    assert found == {}


def test_a_running_stage_shows_its_progress_and_can_be_cancelled(page, served):
    page.driver.get(f"{served.base}/build")
    page.js("sessionStorage.clear()")
    page.driver.get(f"{served.base}/build")  # as in a new tab
    page.has("[name=run-seed]")
    start(page)
    page.fill(FOUND, "Is it mine?")
    page.unfold(".source-form")
    page.fill(".source-form [name=definition]", "It has another colour.")
    status = f"document.querySelector('{stage(1)} [role=status]').textContent"
    GATE.clear()
    try:
        click(page, "[name=run-seed]")
        page.wait(f"{status}.startsWith('0 of 1 request answered, ')")
        click(page, "[name=cancel-seed]")
        page.wait(f"{status}.startsWith('cancelled')")
        assert page.texts(FOUND) == ["Is it mine?"]
    finally:
        GATE.set()
    click(page, "[name=run-seed]")  # the reply that came after the end is in the store
    page.wait("document.querySelector('[name=undo-seed]').hidden === false")
    assert page.texts(FOUND) == ["\n".join(SEEDS)]
    age = f"document.querySelector('{stage(1)} .controls > :last-child').textContent"
    assert page.js(f"return {age}") == ""
    click(page, "[name=undo-seed]")
    assert page.texts(FOUND) == ["Is it mine?"]
    assert page.js(f"return {age}").startswith("made from an older version"), "of the first definition"
    page.unfold(".source-form")
    page.fill(".source-form [name=definition]", "It has a colour.")
    assert page.js(f"return {age}") == ""
    click(page, "[name=example]")
    page.has(".source-form .entry", 2)
    click(page, "[name=undo-example]")
    assert "It has a colour." in page.texts(".source-form [name=definition]")
