"""The app and the report in Firefox: every view at two widths and colours, keyboard only, without a message."""

import json
from urllib.parse import urlsplit

import pytest

from checklist_rewards.ui.report import write_report
from tests.ui import firefox
from tests.ui.app.conftest import POCKET_QUESTIONS, POCKET_RESPONSES, improved
from tests.ui.files import HOSTILE, scored_rows, write

pytestmark = pytest.mark.slow
RUN = "/report?file=example/rewards.jsonl#/0"
VIEWS = {
    "/": "#view table",
    "/judge": "[name=score]",
    "/compare": "[name=score]",
    "/build": ".editor .item",
    "/annotate?file=rows.jsonl&annotator=cy": ".item",
    "/batch?file=rows.jsonl": ".preview table",
    "/library": "[name=new-checklists]",
    "/live?file=example/rewards.jsonl": ".live svg",
    "/improve?file=improved/steps.json": "[name=step-0]",
    f"{RUN}/overview": ".tiles .fact",
    f"{RUN}/matrix/3": ".panel .answers",
    f"{RUN}/training": ".cards .card",
    f"{RUN}/monitor": ".chart",
    "/report?file=example/scored.jsonl&labels=labels#/0/trust": ".square",
}
"""Each view, and what it shows when it is complete."""
UP, DOWN, ENTER, ESCAPE, CONTROL = "\ue013", "\ue015", "\ue007", "\ue00c", "\ue009"


@pytest.fixture(scope="module")
def fox(tmp_path_factory):
    if firefox.found() is None:
        pytest.skip(firefox.MISSING)
    driver = firefox.Firefox(tmp_path_factory.mktemp("firefox") / "profile")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def base(url, project, fox):
    """The app with its example, and what `improve` tested."""
    improved(project)
    fox.get(url)
    fox.wait("return document.querySelector('[name=example]') !== null")
    fox.run("document.querySelector('[name=example]').click()")
    fox.wait("return document.querySelector('main').dataset.rows === 'read'")
    return f"http://{urlsplit(url).netloc}"


def shown(fox, address: str, ready: str) -> None:
    fox.get("about:blank")
    fox.get(address)
    fox.wait("return document.querySelector(arguments[0]) !== null", ready)


def check(fox, where: str) -> None:
    """No message, nothing hostile ran, nothing is wider than the window."""
    assert fox.errors() == [], where
    assert fox.run("return document.title !== 'broken' && window.hacked === undefined"), where
    assert fox.run("return document.documentElement.scrollWidth <= innerWidth"), f"{where} is wider than the window"


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_every_view(fox, base, width, dark):
    fox.resize(width, dark)
    for path, ready in VIEWS.items():
        shown(fox, base + path, ready)
        check(fox, path)


def test_the_keyboard_is_enough(fox, base):
    fox.resize(1440)
    kept = {"input": "Write about the weather.", "targets": POCKET_RESPONSES[-1:], "checklist": POCKET_QUESTIONS}
    fox.get(f"{base}/judge")
    fox.run("sessionStorage.setItem('/judge', arguments[0])", json.dumps(kept))
    shown(fox, f"{base}/judge", "[name=score]")
    fox.keys(ENTER, held=CONTROL)
    fox.wait("return document.querySelector('.scorebar .score') !== null")
    assert fox.run("return document.querySelectorAll('.editor .meter').length") == 3
    check(fox, "judge")

    shown(fox, f"{base}/annotate?file=rows.jsonl&annotator=dee", ".item")
    fox.keys("y", "n", "u")
    fox.wait("return document.querySelector('.people').textContent.includes('dee: 3 items')")
    check(fox, "annotate")

    shown(fox, f"{base}{RUN}/matrix", ".grid-row")
    fox.run("document.querySelector('.grid').focus()")
    fox.keys(DOWN, DOWN, ENTER)
    fox.wait("return document.querySelector('.panel h2')?.textContent === 'Row 3'")
    fox.keys(UP, ESCAPE)
    fox.wait("return document.querySelector('.panel').hidden")
    check(fox, "matrix")


def test_a_chart_is_zoomed_and_a_line_is_hidden(fox, base):
    fox.resize(1440)
    shown(fox, f"{base}{RUN}/training", ".chart .plot")
    ends = "return document.querySelector('.chart .plot').textContent.match(/step \\d+/)[0]"
    lines = "return document.querySelector('.chart .plot').querySelectorAll('.line').length"
    whole, before = fox.run(ends), fox.run(lines)
    left, top, width = fox.run(
        "const plot = document.querySelector('.chart .plot'); plot.scrollIntoView({block: 'center'});"
        "const box = plot.getBoundingClientRect(); return [box.x, box.y, box.width]"
    )
    fox.drag((left + 0.3 * width, top + 60), (left + 0.6 * width, top + 60))
    assert fox.run(ends) != whole
    fox.run("document.querySelectorAll('.legend .toggle')[0].click()")
    assert fox.run(lines) == before - 2
    fox.run("document.querySelectorAll('.legend .toggle')[0].click()")
    fox.run("document.querySelector('.legend > button:last-child').click()")
    assert fox.run(ends) == whole and fox.run(lines) == before
    check(fox, "training")


def test_a_report_from_the_disk(fox, tmp_path):
    rows = write(tmp_path / "one.jsonl", scored_rows(40))
    write_report(tmp_path / "report.html", [rows])
    for view, ready in (("overview", ".tiles"), ("matrix/3", ".panel .answers")):
        shown(fox, f"file://{tmp_path}/report.html#/0/{view}", ready)
        check(fox, view)
    assert HOSTILE in fox.run("return document.querySelector('.panel').textContent")
