"""Do ten tasks of a new user in the app, by real clicks in Chromium: count the clicks, measure the seconds.

    python docs/ten_tasks.py

Writes the table of `docs/app.md`. Each task begins on the first page and ends when its answer is on the screen. Typing
and scrolling are not counted. The seconds are those of the machine, medians of three runs: a person also reads.
A task whose answer does not appear within two minutes ends the script with what was waited for, and the page stays as
it was.
Needs Chromium (`apt-get install chromium chromium-driver`) and the extras `[dev]`, `[ui]` and `[trl]`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from checklist_rewards.evaluation.replay import Replay  # noqa: E402
from checklist_rewards.evaluation.scored import ScoredFile  # noqa: E402
from checklist_rewards.files.rows import read_rows  # noqa: E402
from checklist_rewards.ui.project import Project, write_example  # noqa: E402
from tests.ui import browser  # noqa: E402

PAGE = ROOT / "docs" / "app.md"
RUNS = 3
LONGEST = 120
ITEMS = ["Does the response end with a question mark?", "Does the response have exactly 2 sentences?"]
TEXTS = ["The rain falls. Is it cold?", "Who is there?", "The rain stops. The sun shines.", "Is it the rain?"]
LONG = "The rain falls. " * 3000
STEPS = 25
"""Steps of the log when it is opened; the others are written while it is followed."""
LABELLED, DROPPED = 10, (3, 7)
"""Rows to label, and those whose answer does not reach the app at first."""


def project(folder: Path) -> None:
    """Rows, two scored files with labels of people, one with a text that is too long for the judge, and a run."""
    write_example(Project.at(folder))
    (folder / "example").rename(folder / "run")
    scored = folder / "run" / "scored.jsonl"
    rows = [row.data for row in read_rows(scored)]
    for row in rows:
        row["human"] = row.pop("labels")
    _write(folder / "judge_a.jsonl", rows)
    texts = [text.asked(checklist) for text in ScoredFile(scored) if (checklist := text.checklist) is not None]
    stricter = Replay(aggregation={"threshold": 0.95}).scores(texts)
    for row, (score,) in zip(rows, stricter, strict=True):
        row["checklist_score"] = score.model_dump(mode="json")
    _write(folder / "judge_b.jsonl", rows)
    rows = [{"prompt": "Write about the weather.", "target": text, "checklist": ITEMS} for text in TEXTS]
    _write(folder / "rows.jsonl", rows)
    ten = [{**rows[0], "target": f"It is {n}.", "checklist": ITEMS[:1]} for n in range(LABELLED)]
    _write(folder / "ten.jsonl", ten)
    _write(folder / "long.jsonl", [*rows, {**rows[0], "target": LONG}])
    paths = [str(folder / "long.jsonl"), "-o", str(folder / "failed.jsonl")]
    command = [sys.executable, "-m", "checklist_rewards.cli", "score", *paths, "--model=pocket", "--no-store"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)  # not 0 where a read was not answered
    for name in ("run/texts", "run/scored", "long"):
        (folder / f"{name}.jsonl").unlink()


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Hand:
    """A user's hand: what it does is counted."""

    def __init__(self, driver, folder: Path):
        self.driver = driver
        self.folder = folder
        self.clicks = 0

    def wait(self, condition: str) -> Any:
        """The value of a condition in JavaScript, once it holds."""
        end = time.monotonic() + LONGEST
        while not (value := self.driver.execute_script(f"return {condition}")):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: not so on {self.driver.current_url}")
            time.sleep(0.02)
        return value

    def click(self, text: str = "", css: str = "a, button, summary") -> None:
        """Click the first element in sight with this beginning of its name or text."""
        shown = "(one.getAttribute('aria-label') ?? one.textContent).trim()"
        found = (
            f"[...document.querySelectorAll({json.dumps(css)})].find((one) => one.checkVisibility() && !one.disabled "
            f"&& {shown}.startsWith({json.dumps(text)}))"
        )
        element = self.wait(found)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        self.clicks += 1

    def type(self, css: str, text: str) -> None:
        """Write into a field, which is reached by the Tab key."""
        self.wait(f"document.querySelector({json.dumps(css)}) !== null")
        field = self.driver.find_element("css selector", css)
        field.clear()
        field.send_keys(text)

    def sees(self, text: str, css: str = "main") -> None:
        """Until a part of the page has a text."""
        self.wait(f"document.querySelector({json.dumps(css)})?.textContent.includes({json.dumps(text)})")


def _works(hand: Hand) -> None:
    hand.click("Test the judge")
    hand.sees("questions answered", ".health")


def _finished(hand: Hand) -> None:
    hand.click("Open an example")
    hand.sees("What the policy learned")


def _fails_most(hand: Hand) -> None:
    hand.click("Report: judge_a.jsonl")
    hand.sees("Fails most: ", ".attention")


def _unanswered(hand: Hand) -> None:
    hand.click("Report: failed.jsonl")
    hand.click("2 questions unanswered")
    hand.sees("No answer", ".panel")


def _unscored(hand: Hand) -> None:
    hand.click("Report: failed.jsonl")
    hand.click("1 row without a score")
    hand.sees("No answer (too_long)", ".panel")


def _trusted(hand: Hand) -> None:
    for name in ("judge_a", "judge_b"):
        hand.click(f"select {name}.jsonl", "input")
    hand.click("Compare selected")
    hand.click("the column human")
    hand.sees("agrees with people more often", ".verdict")


def _better(hand: Hand) -> None:
    hand.click("Compare")
    for css, text in (
        ("[name=input]", "Write about the weather."),
        ("[name=target-A]", TEXTS[0]),
        ("[name=target-B]", TEXTS[2]),
        ("textarea.question", ITEMS[0]),
    ):
        hand.type(css, text)
    hand.click("Add item")
    hand.type("li:last-child textarea.question", ITEMS[1])
    hand.click("Score both")
    hand.sees("-", ".scorebar > :last-child .score")


def _reworded(hand: Hand) -> None:
    hand.click("Report: failed.jsonl")
    hand.click("Matrix")
    hand.click("1", ".grid-row .name")
    hand.click("Open in Judge")
    hand.click("Does the response end with a question mark?", ".open-item")
    hand.type("textarea.question", "Is the last character a question mark?")
    hand.click("Score")
    hand.sees("2 of 2 answered", "[role=status]")


def _follows(hand: Hand) -> None:
    hand.click("Follow: run/rewards.jsonl")
    _grows(hand)
    hand.sees("alarms of the monitor", ".live")


def _scores(hand: Hand) -> None:
    hand.click("Score: rows.jsonl")
    _job(hand)


def _grows(hand: Hand) -> None:
    """The training writes the rest of its log."""
    hand.sees(f"step {STEPS - 1}", "[role=status]")
    with (hand.folder / "run" / "rewards.jsonl").open("a") as log:
        log.write((hand.folder / "rest").read_text())
    hand.sees("step 29", "[role=status]")


def _job(hand: Hand) -> None:
    hand.wait("document.querySelector('.preview table') !== null")
    hand.click("Start", ".primary")
    hand.click("Open the report")
    hand.sees("mean score")


def _labels(hand: Hand) -> None:
    """Ten rows by keyboard, while the network drops twice; every answer is one line of the file."""
    from selenium.webdriver.common.action_chains import ActionChains

    hand.click("Annotate: ten.jsonl")
    hand.type("[name=annotator]", "ann")
    hand.click("Start", "button")
    for place in range(LABELLED):
        hand.sees(f"response {place + 1} of {LABELLED}")
        _network(hand, place not in DROPPED)
        ActionChains(hand.driver).send_keys("y").perform()
        if place in DROPPED:
            hand.sees("not saved", ".saved")
            _network(hand, True)
    hand.sees("All items are answered", ".progress-line")
    lines = (hand.folder / "annotations" / "ann.jsonl").read_text().splitlines()
    assert len(lines) == LABELLED, f"{len(lines)} lines for {LABELLED} answers"


def _network(hand: Hand, works: bool) -> None:
    """Whether answers of people reach the app."""
    hand.driver.execute_cdp_cmd("Network.enable", {})
    hand.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [] if works else ["*annotate/answer*"]})


@dataclass(frozen=True)
class Task:
    """What a new user wants to know or do."""

    shown: str
    does: Callable[[Hand], None]


TASKS = (
    Task("see whether the judge works", _works),
    Task("see a finished run in an empty folder", _finished),
    Task("find the item that fails most", _fails_most),
    Task("open a row that the judge could not answer", _unanswered),
    Task("why was this row not scored?", _unscored),
    Task("which of two judges should I trust? (people's answers in a column)", _trusted),
    Task("which of two responses is better, and on which item?", _better),
    Task("try a row of a file with another wording of a question", _reworded),
    Task("follow the run that is training, with its alarms", _follows),
    Task("score a file and see its report", _scores),
    Task("label 10 rows by keyboard while the network drops twice: 10 lines", _labels),
)


def main() -> None:
    """Do the tasks and write the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "weather")
        folder.mkdir()
        project(folder)
        log = (folder / "run" / "rewards.jsonl").read_text().splitlines(keepends=True)
        rest = next(place for place, line in enumerate(log) if json.loads(line)["step"] >= STEPS)
        (folder / "rest").write_text("".join(log[rest:]))
        driver = browser.start(Path(name, "profile"), width=1440, height=860)
        try:
            measured = _measured(driver, folder, log[:rest])
        finally:
            driver.quit()
    lines = ["| task | clicks | seconds |", "|---|---|---|"]
    for task, (clicks, seconds) in zip(TASKS, measured, strict=True):
        lines.append(f"| {task.shown} | {clicks} | {seconds:.1f} |")
    table = "\n".join(lines)
    print(table)
    page, changes = re.subn(
        r"(`docs/ten_tasks\.py` .*?\n\n)(?:\| task \|.*?\n\n)?",
        lambda found: f"{found[1]}{table}\n\n",
        PAGE.read_text(),
        count=1,
        flags=re.S,
    )
    assert changes, f"no paragraph about the tasks in {PAGE}"
    PAGE.write_text(page)


def _measured(driver, folder: Path, log: list[str]) -> list[tuple[int, float]]:
    """Clicks and seconds of every task."""
    found: list[tuple[int, float]] = []
    with _app(folder) as shared:
        for task in TASKS:
            runs = []
            for _ in range(RUNS):
                (folder / "run" / "rewards.jsonl").write_text("".join(log))
                for made in (*folder.glob("scored/*"), *folder.glob("jobs/*.json"), *folder.glob("annotations/*")):
                    made.unlink()
                with tempfile.TemporaryDirectory() as empty:
                    # These two need an app that has not tested its judge, or an empty folder.
                    own = _app(Path(empty)) if task.does in (_works, _finished) else nullcontext(shared)
                    with own as address:
                        runs.append(_run(driver, address, folder, task.does))
            assert len({clicks for clicks, _ in runs}) < 2, f"{task.shown}: the clicks differ"
            found.append((runs[0][0], median(seconds for _, seconds in runs)))
            print(task.shown, found[-1], file=sys.stderr)
    return found


def _run(driver, address: str, folder: Path, do: Callable[[Hand], None]) -> tuple[int, float]:
    """Clicks and seconds of one task, from the first page."""
    driver.get(address)
    driver.execute_script("sessionStorage.clear()")
    driver.get(address)
    hand = Hand(driver, folder)
    hand.sees("Files")
    hand.wait("!document.querySelector('main').textContent.includes('Loading')")
    started = time.monotonic()
    do(hand)
    return hand.clicks, time.monotonic() - started


@contextmanager
def _app(folder: Path) -> Iterator[str]:
    """The address of the app of a folder."""
    command = [sys.executable, "-P", "-m", "checklist_rewards.cli", "ui", str(folder), "--port", "0", "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["--backend", "transformers", "--no-store"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            printed = ""
            assert server.stderr is not None
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", printed)):
                line = server.stderr.readline()
                assert line, printed
                printed += line
            yield found[0]
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
