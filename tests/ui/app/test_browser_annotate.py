"""Annotate in headless Chromium: two people answer, then the commands that the page shows are run as they are."""

import json
import os
import re
import shlex
import subprocess

import pytest

from tests import zygote
from tests.conftest import REPO
from tests.jsonl import read_jsonl
from tests.ui import browser
from tests.ui.app.conftest import POCKET_QUESTIONS, POCKET_RESPONSES
from tests.ui.files import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_messages")]


def truth(text: str) -> list[bool]:
    words = re.findall(r"[a-z]+", text.lower())
    return [text.rstrip().endswith("?"), "rain" in words, len(re.findall(r"[.?!]", text)) == 2]


def test_thirty_answers_by_keyboard_then_agree_calibrate_and_new_scores(page, project, tmp_path):
    """The commands that the page shows are run as they are; the calibration changes the scores."""
    for name in ("ann", "bob"):
        page.go("/annotate?file=scored.jsonl", "form.setup")
        page.fill("[name=annotator]", name)
        page.click("form.setup button")
        page.has(".item")
        for place in range(10):
            target = page.wait("document.querySelector('.response')?.textContent")
            right = truth(target)
            if name == "ann" and place == 0:
                annotate_with_evidence(page)
            for k, yes in enumerate(right):
                assert page.text(".item[aria-current] .question") == POCKET_QUESTIONS[k]
                wrong = name == "bob" and place == 3 and k == 0
                page.keys("u" if name == "ann" and place == 9 and k == 2 else "y" if yes != wrong else "n")
            page.wait(f"document.querySelector('.progress-line').textContent.startsWith('{3 * place + 3} of 30')")
            if place < 9:
                page.wait(f"document.querySelector('.response').textContent !== {json.dumps(target)}")
        page.wait("document.querySelector('.saved').textContent === 'saved'")
        assert "All items are answered" in page.text(".progress-line")
    page.has(".agreement .num")
    assert browser.problems(page.driver) == {}
    (project / "results").mkdir()
    lines = read_jsonl(project / "annotations" / "ann.jsonl")
    assert {line["label"] for line in lines} == {"yes", "no", "cannot_assess", None}
    assert [span["text"] for line in lines for span in line["spans"]][0] in POCKET_RESPONSES[int(lines[0]["row"][1:])]

    page.press("Export labels")
    page.has(".code pre")
    commands = page.text(".code pre").splitlines()
    assert commands[0] == "checklist-rewards agree scored.jsonl --labels labels/scored.jsonl"

    typed = typing(tmp_path, project)
    typed(commands[0] + " --json results/agree.json")
    compared = json.loads((project / "results" / "agree.json").read_text())["comparisons"][0]
    assert compared["units"] == 29 and 0.5 < compared["items"]["yes/no"]["figures"]["accuracy"]["value"] <= 1
    figures = compared["items"]["yes/no"]["figures"]
    typed(commands[1] + " --json results/calibrate.json")
    figures |= json.loads((project / "results" / "calibrate.json").read_text())["kinds"]["yes/no"]["before"]
    assert {"accuracy", "kappa", "alpha", "ece"} <= set(figures)
    page.driver.get(f"{page.base}/report?file=scored.jsonl#/0/trust")
    page.has("[aria-label=Agreement]")
    titles = page.js("return [...document.querySelectorAll('#view .num')].map((one) => one.title)")
    shown = {float(title) for title in titles if title not in ("", "none")}
    for name, figure in figures.items():
        assert figure["value"] is None or figure["value"] in shown, name  # to the last digit
    typed(commands[2])
    before, after = (scores(project / name) for name in ("scored.jsonl", "calibrated.jsonl"))
    assert before != after and len(after) == 10 and None not in after


def typing(folder, project):
    """What runs a command in the project folder, as a user types it."""
    program = folder / "checklist-rewards"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(zygote.PYTHON)} -m checklist_rewards.cli "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(REPO)}

    def typed(command):
        done = subprocess.run(["bash", "-c", command], cwd=project, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    return typed


def annotate_with_evidence(page):
    """A note, evidence from a selection, an answer, and two steps back."""
    page.js(
        "const r = document.createRange(), t = document.querySelector('.response').firstChild;"
        "r.setStart(t, 2); r.setEnd(t, 6); getSelection().removeAllRanges(); getSelection().addRange(r);"
    )
    page.keys("e")
    page.wait("document.querySelector('.response mark') !== null && document.querySelector('.spans li') !== null")
    page.keys("m")
    page.keys("seen \ue00c")  # Escape
    page.wait("document.querySelector('.item .remark').value === 'seen '")
    page.keys("y")
    page.wait("document.querySelectorAll('.item')[1].hasAttribute('aria-current')")
    page.keys("z")
    page.wait("document.querySelectorAll('.item')[0].hasAttribute('aria-current')")
    page.has(".item [aria-pressed=true]", 0)


def scores(path):
    return [row["checklist_score"]["primary_score"] for row in read_jsonl(path)]


def restarted(page, is_restarted: bool) -> None:
    """The app has another token, as after a restart, until its new URL is opened in another tab."""
    page.js(
        "const key = 'checklist-rewards-token', value = localStorage.getItem(key);"
        "localStorage.setItem(key, arguments[0] ? `x${value}` : value.slice(1))",
        is_restarted,
    )


def test_the_click_that_leaves_a_note_answers(page, project):
    page.go("/annotate?file=scored.jsonl&annotator=clicking", ".item")
    page.click(".item .remark")
    page.keys("seen")
    page.click(".item .buttons button")
    page.wait("document.querySelectorAll('.item')[1].hasAttribute('aria-current')")
    page.wait("document.querySelector('.saved').textContent === 'saved'")
    lines = read_jsonl(project / "annotations" / "clicking.jsonl")
    assert [(line["label"], line["note"]) for line in lines] == [(None, "seen"), ("yes", "seen")]


def test_a_second_key_before_the_next_response_is_there_changes_no_answer(page, project):
    write(
        project / "two.jsonl", [{"target": text, "checklist": POCKET_QUESTIONS[:1]} for text in POCKET_RESPONSES[:2]]
    )
    page.go("/annotate?file=two.jsonl&annotator=fast", ".item")
    page.js(
        """
        const real = window.fetch;
        window.fetch = async (address, init) => {
          if (String(address).includes('annotate/task')) await new Promise((done) => setTimeout(done, 500));
          return real(address, init);
        };
        """
    )
    target = page.text(".response")
    page.keys("yy")
    page.wait(f"document.querySelector('.response').textContent !== {json.dumps(target)}")
    page.keys("n")
    page.wait("document.querySelector('.progress-line').textContent.startsWith('2 of 2')")
    assert [line["label"] for line in read_jsonl(project / "annotations" / "fast.jsonl")] == ["yes", "no"]


def test_answers_that_cannot_be_saved_are_kept_and_sent_again(page, project):
    def labels():
        return [line["label"] for line in read_jsonl(project / "annotations" / "restarted.jsonl")]

    page.go("/annotate", "form.setup")
    assert browser.problems(page.driver) == {}
    page.go("/annotate?file=scored.jsonl&annotator=restarted", ".item")
    shown = "document.querySelector('.progress-line').textContent"
    page.keys("y")
    page.wait(f"{shown}.startsWith('1 of 30') && document.querySelector('.saved').textContent === 'saved'")
    restarted(page, True)
    page.keys("nu")
    page.wait(f"{shown}.includes('2 answers not saved')")
    assert page.js(f"return {shown}").startswith("1 of 30"), "the counter shows what is saved"
    assert "Not saved yet, 2 answers" in page.text(".waiting")
    page.keys("kz")  # an undone answer waits too
    page.press("Export labels")
    page.wait("document.querySelector('main').textContent.includes('export the labels when all are saved')")
    assert labels() == ["yes"]
    restarted(page, False)
    page.wait(f"{shown}.startsWith('2 of 30') && document.querySelector('.saved').textContent === 'saved'")
    assert page.text(".waiting") == ""
    assert labels() == ["yes", "no", "cannot_assess", None]
    browser.errors(page.driver)  # the browser notes each request that failed


def test_ten_rows_while_the_network_drops_twice_are_ten_lines(page, project):
    """Once the answer does not reach the server, and once its reply does not reach the page."""
    rows = [{"prompt": "Write.", "target": text, "checklist": POCKET_QUESTIONS[:1]} for text in POCKET_RESPONSES]
    write(project / "ten.jsonl", rows)
    page.go("/annotate?file=ten.jsonl&annotator=dropped", ".item")
    page.js(
        """
        const real = window.fetch;
        window.answers = 0;
        window.fetch = async (address, init) => {
          const answered = String(address).includes('annotate/answer') && ++window.answers === 8;
          const found = await real(address, init);
          if (answered) throw new TypeError('the connection was lost');
          return found;
        };
        """
    )
    page.driver.execute_cdp_cmd("Network.enable", {})  # nothing is blocked before
    for place in range(10):
        target = page.text(".response")
        if place == 3:
            page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*annotate/answer*"]})
        page.keys("y" if place % 2 else "n")
        if place == 3:
            page.wait("document.querySelector('.waiting').textContent.includes('The app\\'s server does not answer')")
            page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        if place < 9:
            page.wait(f"document.querySelector('.response').textContent !== {json.dumps(target)}")
    page.wait("document.querySelector('.progress-line').textContent.startsWith('10 of 10')")
    page.wait("document.querySelector('.saved').textContent === 'saved'")
    lines = read_jsonl(project / "annotations" / "dropped.jsonl")
    assert len(lines) == 10 and len({line["row"] for line in lines}) == 10 and page.js("return window.answers") > 11
    assert sorted(line["label"] for line in lines) == ["no"] * 5 + ["yes"] * 5
    browser.errors(page.driver)  # the browser notes each request that failed
