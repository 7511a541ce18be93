"""The app in headless Chromium, on the pocket judge: what a user does, from the printed URL to changed scores."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from checklist_rewards import BatchScore
from checklist_rewards.cli import app as cli
from checklist_rewards.evaluation.agreement import Bootstrap, compare, read_scored, units_against_labels
from checklist_rewards.scores.tally import PassRate
from checklist_rewards.ui.labels import ExportedLabels
from tests.conftest import HANG, REPO
from tests.ui import browser, layout
from tests.ui.app.conftest import write_jsonl
from tests.ui.test_browser import AXE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

QUESTIONS = [
    "Does the response end with a question mark?",
    'Does the response contain the word "rain"?',
    "Does the response have exactly 2 sentences?",
]
RESPONSES = [
    "The rain falls. Is it cold?",
    "Who is there?",
    "The cat sleeps. The dog runs.",
    "Rain falls on the river.",
    "The rain stops. The sun shines.",
    "Is it the rain?",
    "A bird sings.",
    "The river is deep. Where is the boat?",
    "The night is long. The rain is cold. We wait.",
    "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script> Is it?",
]
NOTED = 0
READY = {
    "/": "#view table",
    "/annotate": "form.setup",
    "/annotate?file=scored.jsonl&annotator=ann": ".item",
    "/judge": "[name=score]",
    "/compare": ".card",
    "/library": "[name=new-checklists]",
    "/library?name=checklists/weather.json": ".told p",
    "/batch?file=rows.jsonl": ".preview table",
    "/live": "[name=file]",
    "/report?file=scored.jsonl": ".tile",
}
"""Each view, and what it shows when it is complete."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project folder with ten responses, scored by the pocket judge."""
    folder = tmp_path_factory.mktemp("project")
    rows = [
        {"id": f"r{n}", "prompt": "Write about the weather.", "target": text, "checklist": QUESTIONS}
        for n, text in enumerate(RESPONSES)
    ]
    write_jsonl(folder / "rows.jsonl", rows)
    run("score", folder / "rows.jsonl", "-o", folder / "scored.jsonl", "--backend", "transformers")
    return folder


@pytest.fixture(scope="module")
def url(project):
    """The URL that `checklist-rewards ui` prints."""
    command = [
        sys.executable,
        "-m",
        "checklist_rewards.cli",
        "ui",
        str(project),
        "--port",
        "0",
        "--no-browser",
        "--backend",
        "transformers",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "400"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=REPO) as server:
        assert server.stderr is not None
        printed = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", printed)):
            line = server.stderr.readline()
            assert line, printed
            printed += line
        yield found[0]
        server.send_signal(signal.SIGTERM)
        server.wait(HANG)


@pytest.fixture(scope="module")
def page(url, chromium):
    """A browser that has opened the printed URL."""
    driver = chromium
    browser.leave(driver)
    driver.set_script_timeout(HANG)
    driver.get(url)
    base = url.partition("/?")[0]

    def wait(condition):
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(driver, HANG).until(lambda _: driver.execute_script(f"return {condition}"))

    wait("document.querySelector('#view table') !== null")
    return SimpleNamespace(driver=driver, base=base, wait=wait, js=driver.execute_script)


@pytest.fixture(autouse=True)
def no_messages(page):
    yield
    assert browser.errors(page.driver) == []
    assert page.driver.title != "broken"


def run(*arguments) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def keys(page, text):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page.driver).send_keys(text).perform()


def fill(page, selector, text):
    field = page.driver.find_element("css selector", selector)
    field.clear()
    field.send_keys(text)
    page.js("arguments[0].dispatchEvent(new Event('change', {bubbles: true}))", field)


def test_the_files_of_the_project_are_listed_and_the_address_has_no_token(page):
    assert "token" not in page.driver.current_url
    rows = page.js(
        "return [...document.querySelectorAll('#view tbody tr td:first-child')].map((td) => td.textContent)"
    )
    assert rows == ["rows.jsonl", "scored.jsonl"]


def test_a_report_is_that_of_the_command(page, project, tmp_path):
    from checklist_rewards.ui.bundle import read_data

    page.driver.get(f"{page.base}/report?file=scored.jsonl")
    page.wait("document.querySelector('.tile') !== null")
    shown = page.js("return document.querySelector('#view').textContent")
    run("report", project / "scored.jsonl", "-o", tmp_path / "report.html")
    overview = json.loads(read_data(tmp_path / "report.html"))["files"][0]["overview"]
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
    page.wait("document.querySelector('.tile') !== null")
    page.driver.find_element("css selector", "#header input[type=checkbox]").click()
    live.write_text("".join(lines))
    page.wait("[...document.querySelectorAll('.tile strong')].some((one) => one.textContent === '10')")
    live.unlink()


def truth(text: str) -> list[bool]:
    words = re.findall(r"[a-z]+", text.lower())
    return [text.rstrip().endswith("?"), "rain" in words, len(re.findall(r"[.?!]", text)) == 2]


def test_thirty_answers_by_keyboard_then_agree_calibrate_and_new_scores(page, project):
    """The loop of the issue: two people annotate, then the commands that the page shows are run as they are; the
    calibration changes the scores."""
    for name in ("ann", "bob"):
        page.driver.get(f"{page.base}/annotate?file=scored.jsonl")
        page.wait("document.querySelector('form.setup') !== null")
        fill(page, "[name=annotator]", name)
        page.driver.find_element("css selector", "form.setup button").click()
        page.wait("document.querySelector('.item') !== null")
        for place in range(10):
            target = page.wait("document.querySelector('.response')?.textContent")
            right = truth(target)
            if name == "ann" and place == NOTED:
                annotate_with_evidence(page)
            for k, yes in enumerate(right):
                assert (
                    page.js("return document.querySelector('.item[aria-current] .question').textContent")
                    == QUESTIONS[k]
                )
                wrong = name == "bob" and place == 3 and k == 0
                keys(page, "u" if name == "ann" and place == 9 and k == 2 else "y" if yes != wrong else "n")
            page.wait(f"document.querySelector('.progress-line').textContent.startsWith('{3 * place + 3} of 30')")
            if place < 9:
                page.wait(f"document.querySelector('.response').textContent !== {json.dumps(target)}")
        page.wait("document.querySelector('.saved').textContent === 'saved'")
        assert "All items are answered" in page.js("return document.querySelector('.progress-line').textContent")
    page.wait("document.querySelector('.agreement') !== null")
    alpha = page.js("return document.querySelector('.agreement .num').title")
    (project / "results").mkdir()
    lines = [json.loads(line) for line in (project / "annotations" / "ann.jsonl").read_text().splitlines()]
    assert {line["label"] for line in lines} == {"yes", "no", "cannot_assess", None}
    assert [span["text"] for line in lines for span in line["spans"]][0] in RESPONSES[int(lines[0]["row"][1:])]

    page.driver.find_element("xpath", "//button[text()='Export labels']").click()
    page.wait("document.querySelector('.code pre') !== null")
    commands = page.js("return document.querySelector('.code pre').textContent").splitlines()
    assert commands[0] == "checklist-rewards agree scored.jsonl --labels labels/scored.jsonl"

    typed(commands[0] + " --json results/agree.json", project)
    compared = json.loads((project / "results" / "agree.json").read_text())["comparisons"][0]
    assert compared["units"] == 29 and 0.5 < compared["items"]["yes/no"]["figures"]["accuracy"]["value"] <= 1
    assert float(alpha) == pytest.approx(alpha_of(project))
    typed(commands[1] + " --json results/calibrate.json", project)
    typed(commands[2], project)
    before, after = (scores(project / name) for name in ("scored.jsonl", "calibrated.jsonl"))
    assert before != after and len(after) == 10 and None not in after


def typed(command, project):
    """Run a command in the project folder, as a user types it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPO)}
    done = subprocess.run(["bash", "-c", command], cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def test_the_figures_are_equal_in_the_app_the_report_the_command_line_and_python(page, project, tmp_path):
    """All digits: mean score, pass rates with intervals, kappa, alpha and the other figures of agreement, and ECE."""
    results, shown = project / "results", {}
    labels = ["--labels", project / "labels" / "scored.jsonl"]
    run("report", project / "scored.jsonl", *labels, "-o", tmp_path / "report.html")
    summary = tmp_path / "summary.json"
    again = ["score", project / "rows.jsonl", "-o", tmp_path / "again.jsonl", "--backend", "transformers"]
    run(*again, "--summary", summary)
    for place, address in (
        ("app", f"{page.base}/report?file=scored.jsonl"),
        ("report", f"file://{tmp_path}/report.html"),
    ):
        page.driver.get("about:blank")
        page.driver.get(f"{address}#/0")
        page.wait("document.querySelector('.tile') !== null")
        read = "return [...document.querySelectorAll('#view .num, main .num')].map((one) => one.title)"
        rows = "return [...document.querySelectorAll('.rates tbody tr')].map((row) => row.textContent)"
        overview, rates = page.js(read), page.js(rows)
        page.driver.get(f"{address}#/0/trust")
        page.wait("document.querySelector('[aria-label=Agreement]') !== null")
        shown[place] = overview, rates, page.js(read)
    assert shown["app"] == shown["report"]
    overview, rates, trust = shown["app"]
    numbers = {float(title) for title in overview + trust if title not in ("", "none")}

    batch = BatchScore.from_jsonl(project / "scored.jsonl")
    assert json.loads(summary.read_text())["mean_score"] == batch.mean and batch.mean in numbers
    for place, question in enumerate(QUESTIONS):
        rate = PassRate()
        for score in batch.scores:
            rate.add(int(score.items[place].passed), 1)
        [line] = [text for text in rates if text.startswith(question)]
        assert rate.micro in numbers and "[{:.3f}, {:.3f}]".format(*rate.interval) in line
    rows = read_scored(project / "scored.jsonl")
    given, _ = ExportedLabels(project / "labels" / "scored.jsonl").of(rows)
    units, targets = units_against_labels(rows, given)
    names = ("scored.jsonl", "labels")
    python = compare(names, units, targets, Bootstrap(), against_labels=True).model_dump()["items"]["yes/no"][
        "figures"
    ]
    command = json.loads((results / "agree.json").read_text())["comparisons"][0]["items"]["yes/no"]["figures"]
    assert command == python and {"kappa", "alpha"} <= set(python)
    calibrated = json.loads((results / "calibrate.json").read_text())["kinds"]["yes/no"]["before"]
    assert "ece" in calibrated
    for name, figure in [*python.items(), *calibrated.items()]:
        assert figure["value"] is None or figure["value"] in numbers, name


def annotate_with_evidence(page):
    """A note, evidence from a selection, an answer, and two steps back."""
    page.js(
        "const r = document.createRange(), t = document.querySelector('.response').firstChild;"
        "r.setStart(t, 2); r.setEnd(t, 6); getSelection().removeAllRanges(); getSelection().addRange(r);"
    )
    keys(page, "e")
    page.wait("document.querySelector('.response mark') !== null && document.querySelector('.spans li') !== null")
    keys(page, "m")
    keys(page, "seen \ue00c")  # Escape
    page.wait("document.querySelector('.item .remark').value === 'seen '")
    keys(page, "y")
    page.wait("document.querySelectorAll('.item')[1].hasAttribute('aria-current')")
    keys(page, "z")
    page.wait("document.querySelectorAll('.item')[0].hasAttribute('aria-current')")
    page.wait("document.querySelectorAll('.item [aria-pressed=true]').length === 0")


def alpha_of(project) -> float:
    """Alpha of the stored answers by another library; "cannot assess" is none, because these items lack it."""
    import krippendorff

    given = {}
    for name in ("ann", "bob"):
        for line in map(json.loads, (project / "annotations" / f"{name}.jsonl").read_text().splitlines()):
            given[name, line["row"], line["item"]] = {"yes": 1.0, "no": 0.0}.get(line["label"], float("nan"))
    units = sorted({key[1:] for key in given})
    return krippendorff.alpha(
        [[given[name, *unit] for unit in units] for name in ("ann", "bob")], level_of_measurement="nominal"
    )


def scores(path):
    return [json.loads(line)["checklist_score"]["primary_score"] for line in path.read_text().splitlines()]


def test_a_response_is_scored_and_an_edit_reads_one_item(page, project):
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=score]') !== null")
    fill(page, "[name=input]", "Write about the weather.")
    fill(page, "[name=target]", RESPONSES[0])
    page.js("document.querySelector('[name=json]').closest('details').open = true")
    page.js("document.querySelector('[name=json]').value = arguments[0]", json.dumps(QUESTIONS))
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


def test_a_checklist_is_written_and_scored(page):
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[name=generate]') !== null")
    fill(page, "[name=input]", "Write exactly two sentences about the rain.")
    fill(page, "[name=target]", RESPONSES[9])
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
    fill(page, "[name=text]", json.dumps(QUESTIONS))
    page.wait("document.querySelector('.told').textContent.startsWith('Valid: 3 items')")
    page.driver.find_element("css selector", "[name=save]").click()
    page.wait("document.querySelector('.told [role=status]')?.textContent === 'Saved.'")
    assert json.loads((project / "checklists" / "weather.json").read_text()) == QUESTIONS
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
    assert json.loads((project / "checklists" / "again.json").read_text())[0]["question"] == QUESTIONS[0]


def test_columns_are_scored_together_and_a_failure_stays_in_its_own(page):
    page.driver.get(f"{page.base}/compare")
    page.wait("document.querySelectorAll('.card').length === 2")
    fill(page, "#view > .columns [name=target]", "Who is there?")
    fill(page, "#view > .columns [name=checklist]", "\n".join(QUESTIONS[:2]))
    page.js("document.querySelectorAll('.card')[1].querySelector('details').open = true")
    fill(page, ".card:nth-child(2) [name=threshold]", "3")
    page.driver.find_element("css selector", "[name=run]").click()
    page.wait("document.querySelector('.card:nth-child(1) .score .num') !== null")
    page.wait("document.querySelector('.card:nth-child(2) [role=alert]') !== null")
    assert "threshold" in page.js("return document.querySelector('.card:nth-child(2) [role=alert]').textContent")


def test_the_views_are_accessible_and_fit_a_phone(page):
    """axe-core's rules: WCAG 2.1 A and AA, with contrast, and best practices; in light and dark, wide and narrow."""
    axe = (REPO / "tests" / "ui" / "axe" / "axe.min.js").read_text(encoding="utf-8")
    found = {}
    for path, ready in READY.items():
        page.driver.get(page.base + path)
        page.wait(f"document.querySelector({json.dumps(ready)}) !== null")
        page.js(f"{axe}; window.axe = axe")
        for width in (1280, 390):
            for dark in (False, True):
                browser.resize(page.driver, width)
                browser.scheme(page.driver, dark)
                violations = page.driver.execute_async_script(AXE)
                if violations:
                    found[path, width, dark] = violations
            if page.js("return document.documentElement.scrollWidth > innerWidth"):
                found[path, width] = "scrolls sideways"
    browser.resize(page.driver, 1280)
    browser.scheme(page.driver, False)
    assert found == {}


def test_without_the_token_the_browser_gets_nothing(page):
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.js("localStorage.setItem('kept', localStorage.getItem('checklist-rewards-token'))")
    page.js("localStorage.removeItem('checklist-rewards-token')")
    page.driver.get(f"{page.base}/judge")
    page.wait("document.querySelector('[role=alert]') !== null")
    assert "open the URL" in page.js("return document.querySelector('[role=alert]').textContent")
    page.js("localStorage.setItem('checklist-rewards-token', localStorage.getItem('kept'))")
    assert all("401" in message for message in browser.errors(page.driver))
