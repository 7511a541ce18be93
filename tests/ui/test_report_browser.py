"""Every view of the report in a real browser: opened, clicked through, and without a message on the console."""

from pathlib import Path

import pytest

from checklist_rewards import BatchScore, Checklist
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.ui.report import joined_modules, write_report
from tests.jsonl import read_jsonl
from tests.ui import browser
from tests.ui.browser import ReportPage
from tests.ui.files import HOSTILE, WORDS, pair_rows, reward_rows, scored_rows, write

pytestmark = pytest.mark.slow
ROWS = 3_000
JUDGES = {
    "overview": "unanswered: timeout",
    "matrix": "rows",
    "matrix/3": "Row r3",
    "compare": "Rows that differ most",
    "trust": "Agreement with labels",
}
RUN = {
    "overview": "mean score",
    "matrix": "rows",
    "matrix/3": "Row 4",
    "training": "What the policy learned",
    "compare": "Groups that differ most",
    "trust": "Item analysis",
}
"""What each view of a page shows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def judges(folder, chromium) -> ReportPage:
    """Two judges and labels, an item analysis, and what a run cost."""
    browser.leave(chromium)
    one = write(folder / "one.jsonl", scored_rows(120))
    two = write(folder / "two.jsonl", scored_rows(120, "two", seed=5))
    items = write(folder / "items.json", [{"targets": 3, "items": [], "flags": {}}])
    cost = write(folder / "cost.json", [{"command": "score", "reads": 4, "receipt": {}}])
    path = folder / "judges.html"
    write_report(path, [one, two, items, cost], labels=Labels(key="labels"), intervals=Bootstrap(20))
    return ReportPage(chromium, path)


@pytest.fixture(scope="module")
def run_page(folder, chromium) -> ReportPage:
    """Two training runs."""
    browser.leave(chromium)
    one = write(folder / "rewards.jsonl", reward_rows())
    other = write(folder / "other.jsonl", reward_rows(seed=9))
    write_report(folder / "run.html", [one, other], intervals=Bootstrap(20))
    return ReportPage(chromium, folder / "run.html")


def test_every_view_opens_is_accessible_and_fits_a_phone_light_or_dark(judges, run_page, folder, chromium):
    write_report(folder / "pairs.html", [write(folder / "pairs.jsonl", pair_rows(30))])
    pairs = ReportPage(chromium, folder / "pairs.html")
    for page, views in (
        (judges, JUDGES),
        (run_page, RUN),
        (pairs, {"pairs": "only one of them passes"}),
    ):
        page.open()
        for view, expected in views.items():
            page.turn(f"0/{view}")
            page.wait("document.querySelector('main').innerText.includes(arguments[0])", expected)
            assert set(views) - {"matrix/3"} <= {link.lower() for link in page.texts("nav a")}
            page.pause()  # all cells are drawn
            for dark, rules in ((False, browser.RULES), (True, browser.OF_COLORS)):
                browser.scheme(page.driver, dark)
                assert browser.violations(page.driver, rules) == [], (view, dark)
            for width in (390, 1280):
                browser.resize(page.driver, width)
                page.check()
            browser.scheme(page.driver, False)
    for order, first in (("smallest", "good 29"), ("largest", "good 0")):
        pairs.pick("[aria-label=order]", order)
        assert next(text for text in pairs.texts(".written") if text.startswith("good")) == first


def test_the_matrix_filters_sorts_and_opens_rows(judges):
    one, two = (read_jsonl(judges.path.parent / f"{name}.jsonl") for name in ("one", "two"))
    scores, others = ([row["checklist_score"] for row in rows] for rows in (one, two))
    answers, other_answers = ([[line["answer"] for line in score["items"]] for score in of] for of in (scores, others))
    labels = [row["labels"] for row in one]

    def differing(given) -> int:
        """The number of rows with an item that both answered, but not alike."""
        return sum(any(a and b and a != b for a, b in zip(*row, strict=True)) for row in zip(*given, strict=True))

    judges.open("0/matrix")
    judges.wait("document.querySelectorAll('.grid-row').length > 5")
    assert judges.status == "120 of 120 rows"
    judges.filter("search", "onerror")
    assert judges.status == "1 of 120 rows"
    judges.js("document.querySelector('.grid-row').click()")
    judges.wait("!document.querySelector('.panel').hidden")
    assert HOSTILE in judges.text(".panel")
    assert "two.jsonl:" in judges.shown and "people:" in judges.shown
    judges.press("Clear")
    for name, value, count in (
        ("answer", "unanswered", sum(None in row for row in answers)),
        ("score from", "0.5", sum((score["primary_score"] or 0) >= 0.5 for score in scores)),
        ("people differ", True, sum(given != row for given, row in zip(answers, labels, strict=True))),
        ("judges differ", True, differing((answers, other_answers))),
    ):
        judges.filter(name, value)
        assert 0 < count < 120 and judges.status == f"{count} of 120 rows"
        judges.filter(name, "")
    judges.press("score", "button")
    best = min(range(120), key=lambda n: (-(scores[n]["primary_score"] or -1.0), n))
    assert judges.text(".grid-row [role=gridcell]") == f"r{best}"
    judges.check()


def test_the_matrix_by_keyboard(judges):
    from selenium.webdriver import Keys

    judges.open("0/matrix")
    judges.wait("document.querySelectorAll('.grid-row').length > 5")
    judges.focus(".grid")
    judges.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    assert judges.text(".panel h2") == "Row r2"
    assert judges.js("return location.hash") == "#/0/matrix/2"
    judges.keys("j")
    assert judges.text(".panel h2") == "Row r3"
    active = "document.querySelector('.grid').getAttribute('aria-activedescendant')"
    assert "here" in judges.js(f"return document.getElementById({active}).className")
    judges.keys(Keys.END)
    assert judges.text(".panel h2") == "Row r119"
    judges.keys(Keys.ESCAPE)
    assert judges.js("return document.querySelector('.panel').hidden")
    judges.keys("/")
    judges.keys("rain")
    judges.wait("document.querySelector('[role=status]').textContent !== '120 of 120 rows'")
    judges.check()


def test_thresholds_and_penalties_are_visible(judges):
    judges.open("0/overview")
    verdict = judges.text(".verdict")
    assert verdict.startswith("The mean score of 119 responses is ")
    assert "one.jsonl agrees with labels better" in verdict
    assert "penalty: Does it insult?" in judges.shown and "penalty: Is it polite?" not in judges.shown
    judges.open("0/matrix/4")
    judges.has(".panel .threshold")
    place = judges.js(
        """
        const box = (one) => document.querySelector(one).getBoundingClientRect();
        return (box('.threshold').left + 1 - box('.meter').left) / box('.meter').width;
        """
    )
    assert place == pytest.approx(0.6, abs=0.02) and judges.count(".panel .threshold") == 4  # none of options
    assert judges.texts(".grid-head button")[2:5] == ["response", "Is it polite?", "penalty: Does it insult?"]
    judges.check()


def test_the_focus_stays_where_the_reader_is(judges):
    from selenium.webdriver import Keys

    focused = "const a = document.activeElement; return a.getAttribute('aria-label') ?? a.textContent"
    judges.open("0/overview")
    judges.press("Fails most: Is it true?", "button")
    judges.wait("document.activeElement.className === 'grid'")
    first = judges.text(".panel h2")
    judges.keys("j")
    assert judges.text(".panel h2") != first
    judges.js("document.querySelector('[aria-label=\"next row\"]').focus()")
    judges.keys(Keys.ENTER)
    assert judges.js(focused) == "next row"
    judges.keys("k", Keys.ESCAPE)
    assert judges.js("return document.querySelector('.panel').hidden") and judges.js(focused) == "Rows and items"
    judges.js("document.querySelectorAll('.grid-head button')[1].focus()")
    judges.keys(Keys.ENTER)
    assert judges.js(focused) == "score ▼"
    judges.press("Trust", "a")
    judges.wait("document.activeElement.id === 'view'")
    judges.js("document.querySelector('.skip').click()")
    assert judges.js("return location.hash") == "#/0/trust"
    judges.check()


def test_other_columns_filter_and_group_and_hits_are_marked(folder, chromium):
    more = [{"topic": WORDS[n % 2], "n": n % 3, "meta": {"by": HOSTILE}} for n in range(60)]
    rows = [{**row, **other} for row, other in zip(scored_rows(60), more, strict=True)]
    for row in rows:
        del row["labels"]
    write_report(folder / "topics.html", [write(folder / "topics.jsonl", rows)])
    page = ReportPage(chromium, folder / "topics.html")
    page.open("0/matrix/2")
    page.has(".panel:not([hidden])")
    others = page.js("return document.querySelector('[aria-label=\"other columns\"]').innerText")
    assert others.startswith("topicthe\nn2\nmeta") and "onerror" in others
    page.filter("group by", "topic")
    scores = [row["checklist_score"]["primary_score"] for row in rows if row["topic"] == "the"]
    known = [score for score in scores if score is not None]
    mean = f"{sum(known) / len(known):.3f}"
    assert page.text(".groups tbody tr").startswith(f"the30{mean}")
    page.press("the", "button")
    page.wait("document.querySelector('[role=status]').textContent === '30 of 60 rows'")
    page.filter("search", "RIVER")
    found = [row for row in rows if row["topic"] == "the" and "river" in (row["prompt"] + row["target"])]
    assert page.status == f"{len(found)} of 60 rows"
    page.js("document.querySelector('.grid-row').click()")
    assert set(page.texts(".panel mark.hit")) == {"river"} and page.count(".grid-row mark.hit")
    page.driver.refresh()
    page.wait("document.querySelector('[role=status]')?.textContent === arguments[0]", f"{len(found)} of 60 rows")
    assert page.value("input[type=search]") == "RIVER"
    page.check()


def test_results_of_other_commands_are_shown_and_each_once(judges):
    for view, own, other in (("overview", "cost.json", "items.json"), ("trust", "items.json", "cost.json")):
        judges.open(f"0/{view}")
        headings = " ".join(judges.texts("main h2, main summary"))
        assert headings.count(own) == 1 and other not in headings


def test_from_an_item_of_the_overview_and_of_the_comparison_to_its_rows(judges):
    judges.open("0/overview")
    assert "Every question was answered" not in judges.shown
    judges.js("document.querySelector('.attention .failed button').click()")
    judges.wait("document.querySelector('main').dataset.view === 'matrix'")
    judges.wait("document.querySelector('[role=status]').textContent.includes(' of 120')")
    assert not judges.status.startswith("120 ")
    judges.wait("document.querySelector('.panel .answers') !== null && location.hash.split('/').length === 4")
    assert "–" not in judges.text(".panel .metrics"), "figures that the score does not have"
    assert "timeout" in judges.text(".panel .answers") and "rerun the command" in judges.text(".panel .answers")
    judges.open("0/compare")
    judges.press("Is it polite?", "button")
    judges.wait("document.querySelector('main').dataset.view === 'matrix'")
    judges.has(".cell.other")
    judges.open("1/overview")
    assert judges.value("header select") == "1"
    judges.check()


def test_one_prompt_over_the_run_by_keyboard(run_page):
    from selenium.webdriver import Keys

    run_page.open("0/training")
    told = "return document.querySelector('main output').textContent"
    assert run_page.js(told).startswith("step 0, 2 prompts; 1 of 4 steps with this one: 4 completions, rewards ")
    run_page.pick("[aria-label=step]", "3")
    assert run_page.js(told).startswith("step 3, 2 prompts; 2 of 4 steps with this one")
    run_page.has("figure[aria-label='Reward of the best, the median and the worst completion']", 1)
    one = run_page.value("[aria-label=prompt]")
    run_page.focus("[aria-label=step]")
    run_page.keys(Keys.ARROW_RIGHT)
    assert run_page.value("[aria-label=prompt]") != one and run_page.js(told).startswith("step 4, 2 prompts; ")
    run_page.keys(Keys.ARROW_LEFT)
    assert run_page.value("[aria-label=prompt]") == one, "the prompt is followed over steps without it"
    rows = [row for row in reward_rows() if row["step"] == 3 and "the" in row["prompt"][0]["content"]]
    best = max(rows, key=lambda row: row["reward"])
    cards = "[aria-label='completions of the prompt'] .card"
    heads = [f"{name}, changes since step 0" for name in ("best", "median", "worst")]
    assert run_page.texts(f"{cards} h3") == heads and run_page.count(cards) == 4
    run_page.pick("[aria-label='changes since']", "none")
    assert run_page.text(f"{cards} .written") == best["completion"]
    run_page.check()


def test_changes_between_two_texts(judges):
    judges.open("0/overview")
    script = f"{joined_modules()}; return difference_module.difference(arguments[0], arguments[1])"
    parts = judges.js(script, "The cat sat, on the mat.", "The dog sat, on a red mat.")
    assert "".join(part for kind, part in parts if kind != "ins") == "The cat sat, on the mat."
    assert "".join(part for kind, part in parts if kind != "del") == "The dog sat, on a red mat."
    assert ["del", "cat"] in parts and ["ins", "dog"] in parts
    parts = judges.js(script, "The rain falls. Is it cold?", "The rain stops. The sun shines.")
    assert ["del", "Is it cold?"] in parts and ["ins", "The sun shines."] in parts  # runs of words, not single ones
    assert judges.js(script, "A b c d e f.", "Nothing of it is here now") is None


def test_the_training_view(run_page):
    run_page.driver.get("about:blank")
    run_page.driver.get(f"file://{run_page.path}")  # without a place, a log opens with what was learned
    run_page.wait("document.querySelector('main').dataset.view === 'training'")
    assert "Does it mention the word …?" in run_page.shown
    assert run_page.texts("main h2")[:2] == ["What the policy learned", "Runs"]
    run_page.pick("input[type=range]", 2)
    assert "step 2, 2 prompts" in run_page.shown and "no reward" in run_page.text(".cards")
    run_page.js("document.querySelector('details').open = true")
    run_page.has("details table")
    run_page.js("document.querySelector('.cards button').click()")
    run_page.wait("document.querySelector('main').dataset.view === 'matrix'")
    run_page.has(".panel:not([hidden])")
    assert "advantage" in run_page.shown
    run_page.check()


def test_a_chart_is_zoomed_and_a_line_is_hidden(run_page):
    from selenium.webdriver import ActionChains

    run_page.open("0/training")
    run_page.has(".chart .plot")
    ends = "return document.querySelector('.chart .plot').textContent.match(/step \\d+/)[0]"
    lines = "return document.querySelector('.chart .plot').querySelectorAll('.line').length"
    whole, before = run_page.js(ends), run_page.js(lines)
    plot = run_page.js(
        "const p = document.querySelector('.chart .plot'); p.scrollIntoView({block: 'center'}); return p"
    )
    move = 0.3 * plot.rect["width"]
    drag = ActionChains(run_page.driver).move_to_element_with_offset(plot, -move / 2, 0).click_and_hold()
    drag.move_by_offset(move, 0).release().perform()
    assert run_page.js(ends) != whole
    run_page.js("document.querySelectorAll('.legend .toggle')[0].click()")
    assert run_page.js(lines) == before - 2  # of both runs
    run_page.js("document.querySelectorAll('.legend .toggle')[0].click()")
    run_page.js("document.querySelector('.legend > button:last-child').click()")
    assert run_page.js(ends) == whole and run_page.js(lines) == before
    run_page.check()


def test_a_chart_has_all_of_its_line_also_where_rewards_leave_0_to_1(folder, chromium):
    rows = [{**row, "reward": None if row["reward"] is None else 4 * row["reward"] - 2.5} for row in reward_rows()]
    write_report(folder / "outside.html", [write(folder / "outside.jsonl", rows)])
    page = ReportPage(chromium, folder / "outside.html")
    page.open("0/training")
    page.has(".chart .plot")
    inside = "const all = document.querySelector('.chart .plot'), box = all.viewBox.baseVal;"
    inside += "return [...all.querySelectorAll('.line')].every((one) => one.getBBox().y >= 0 && "
    inside += "one.getBBox().y + one.getBBox().height <= box.height)"
    assert page.js(inside) and "-2." in page.text(".chart .plot")


def test_a_filter_that_no_row_of_a_sample_has_shows_no_row(folder, chromium):
    rare = next(scored_rows(1, checklist=Checklist.parse(["Is it rare?"])))
    path = write(folder / "large.jsonl", [*scored_rows(300), {**rare, "id": "rare"}])
    write_report(folder / "large.html", [path], max_rows=20)
    page = ReportPage(chromium, folder / "large.html")
    page.open("0/overview")
    page.press("Is it rare?")
    page.wait("document.querySelector('main').dataset.view === 'matrix'")
    # The figures count it, and this page has none of its rows.
    page.wait("document.querySelector('[role=status]')?.textContent.startsWith('0 of ')")


def test_numbers_are_those_of_the_file_rounded_as_python_rounds(judges):
    """0.0625 is 0.062 in Python, and all digits are in the title."""
    judges.open("0/overview")
    values = [0.0625, 0.03125, 0.5, 1 / 3, -0.0002, 12.3455, 0.9995, 1e-9]
    shown = judges.js(f"{joined_modules()}; return arguments[0].map((value) => dom_module.fixed(value, 3))", values)
    assert shown == [f"{value:.3f}" for value in values]
    mean = judges.js("return document.querySelectorAll('.tiles .num')[0].title")
    assert float(mean) == BatchScore.from_jsonl(judges.path.parent / "one.jsonl").mean


def test_of_thousands_of_rows_only_those_in_view_are_drawn(folder, chromium):
    path = write(folder / "large.jsonl", scored_rows(ROWS))
    write_report(folder / "large.html", [path])
    page = ReportPage(chromium, folder / "large.html")
    page.open("0/matrix")
    page.wait("document.querySelector('[role=status]').textContent === arguments[0]", "3,000 of 3,000 rows")
    assert page.count(".grid-row") < 100
    page.js("const g = document.querySelector('.grid'); g.scrollTop = g.scrollHeight")
    page.wait("[...document.querySelectorAll('.grid-row')].some((row) => row.textContent.startsWith('r2999'))")
    page.filter("answer", "fail")
    assert 0 < page.count(".grid-row") < 100
    page.check()
