"""Do ten tasks of a new user in the app, by real clicks in Chromium: count the clicks, measure the seconds.

    python docs/ten_tasks.py [--before CHECKOUT]

Writes the table of `docs/app.md`. Each task begins on the first page and ends when its answer is on the screen. Typing
and scrolling are not counted. The seconds are those of the machine, medians of three runs: a person also reads.
`--before` does the same in the app of another checkout, whose pages had other names.
Needs Chromium (`apt-get install chromium chromium-driver`) and the extras `[dev]`, `[ui]` and `[trl]`.
"""

from __future__ import annotations

import argparse
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


def project(folder: Path) -> None:
    """Rows, two scored files with labels of people, one with a text that is too long for the judge, and a run."""
    write_example(Project.at(folder))
    (folder / "example").rename(folder / "run")
    texts = [{**row.data, "human": row.data["labels"]} for row in read_rows(folder / "run" / "texts.jsonl")]
    for row in texts:
        del row["labels"]
    rows = [{"prompt": "Write about the weather.", "target": text, "checklist": ITEMS} for text in TEXTS]
    _write(folder / "rows.jsonl", rows)
    _write(folder / "texts.jsonl", texts)
    _write(folder / "long.jsonl", [*rows, {**rows[0], "target": LONG}])
    for name, source, options in (
        ("judge_a", "texts", []),
        ("judge_b", "texts", ["--threshold", "0.95"]),
        ("failed", "long", []),
    ):
        paths = [folder / f"{source}.jsonl", "-o", folder / f"{name}.jsonl"]
        command = [
            sys.executable,
            "-m",
            "checklist_rewards.cli",
            "score",
            *map(str, paths),
            "--model=pocket",
            "--no-store",
            *options,
        ]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)  # not 0 where a read was not answered
    for name in ("run/texts", "run/scored", "texts", "long"):
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


def _agrees(hand: Hand) -> None:
    for name in ("judge_a", "judge_b"):
        hand.click(f"Trust: {name}.jsonl")
        hand.click("the column human")
        hand.sees("accuracy")
        if name == "judge_a":
            hand.click("Start")


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
        ("[name=response-A]", TEXTS[0]),
        ("[name=response-B]", TEXTS[2]),
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


def _link(hand: Hand, file: str, shown: str) -> None:
    """A link in the row of a file, on the first page of before."""
    hand.wait("document.querySelector('.files td') !== null")
    row = f"//tr[td[.='{file}']]//a[.='{shown}']"
    hand.driver.find_element("xpath", row).click()
    hand.clicks += 1


def _fails_most_before(hand: Hand) -> None:
    _link(hand, "judge_a.jsonl", "Report")
    hand.wait("document.querySelectorAll('.rates tbody tr').length > 40")


def _unanswered_before(hand: Hand) -> None:
    _link(hand, "failed.jsonl", "Report")
    hand.click("too_long")
    hand.click("", ".grid-row .name")
    hand.sees("too_long", ".panel")


def _unscored_before(hand: Hand) -> None:
    _link(hand, "failed.jsonl", "Report")
    hand.click("Matrix")
    hand.click("score", ".grid-head button")
    hand.click("5", ".grid-row .name")
    hand.sees("too_long", ".panel")


def _better_before(hand: Hand) -> None:
    hand.click("Compare")
    for css, text in (
        ("[name=input]", "Write about the weather."),
        ("[name=target]", TEXTS[0]),
        ("[name=checklist]", "\n".join(ITEMS)),
    ):
        hand.type(css, text)
    hand.click("Settings", ".cards > :nth-child(2) summary")
    hand.type(".cards > :nth-child(2) [name=target]", TEXTS[2])
    hand.click("Score all")
    hand.wait("document.querySelectorAll('.column-result .score, .column-result strong').length >= 2")


def _follows_before(hand: Hand) -> None:
    hand.click("Live")
    _grows(hand)


def _scores_before(hand: Hand) -> None:
    _link(hand, "rows.jsonl", "Score")
    _job(hand)


@dataclass(frozen=True)
class Task:
    """What a new user wants to know or do."""

    shown: str
    now: Callable[[Hand], None]
    before: Callable[[Hand], None] | None
    """None where the app did not have it."""
    without: str = "not possible"
    """What the reader does without it, or what the page of before left to do."""


TASKS = (
    Task("see whether the judge works", _works, None),
    Task("see a finished run in an empty folder", _finished, None),
    Task("find the item that fails most", _fails_most, _fails_most_before, "and a table of items to read"),
    Task("open a row that the judge could not answer", _unanswered, _unanswered_before, ""),
    Task("why was this row not scored?", _unscored, _unscored_before, ""),
    Task(
        "which of two judges agrees with people? (column `human`)", _agrees, None, "not possible: `agree` in a shell"
    ),
    Task("which of two judges should I trust?", _trusted, None, "not possible: `agree` in a shell"),
    Task("which of two responses is better, and on which item?", _better, _better_before, "two lists to compare"),
    Task("try a row of a file with another wording of a question", _reworded, None, "not possible: copy every text"),
    Task("follow the run that is training, with its alarms", _follows, _follows_before, "without alarms"),
    Task("score a file and see its report", _scores, _scores_before, ""),
)


def main() -> None:
    """Do the tasks and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    before = parser.parse_args().before
    measured: dict[str, list[tuple[int | None, float | None]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "weather")
        folder.mkdir()
        project(folder)
        log = (folder / "run" / "rewards.jsonl").read_text().splitlines(keepends=True)
        rest = next(place for place, line in enumerate(log) if json.loads(line)["step"] >= STEPS)
        (folder / "rest").write_text("".join(log[rest:]))
        driver = browser.start(Path(name, "profile"), width=1440, height=860)
        try:
            measured["now"] = _measured(driver, ROOT, "now", folder, log[:rest])
            if before:
                measured["before"] = _measured(driver, before, "before", folder, log[:rest])
        finally:
            driver.quit()
    lines = ["| task | clicks before | clicks now | seconds before | seconds now |", "|---|---|---|---|---|"]
    for place, task in enumerate(TASKS):
        clicks, seconds = measured["now"][place]
        was, took = measured["before"][place] if before else (None, None)
        told = task.without if was is None else ", ".join(filter(None, (str(was), task.without)))
        lines.append(f"| {task.shown} | {told} | {clicks} | {'' if took is None else f'{took:.1f}'} | {seconds:.1f} |")
    table = "\n".join(lines)
    print(table)
    page, changes = re.subn(r"\| task \|.*?\n(?=\n)", table + "\n", PAGE.read_text(), count=1, flags=re.S)
    assert changes, f"no table of tasks in {PAGE}"
    PAGE.write_text(page)


def _measured(driver, checkout: Path, when: str, folder: Path, log: list[str]) -> list[tuple[Any, Any]]:
    """Clicks and seconds of every task, in the app of a checkout."""
    found: list[tuple[Any, Any]] = []
    with _app(checkout, folder) as shared:
        for task in TASKS:
            do, runs = getattr(task, when), []
            for _ in range(RUNS if do else 0):
                (folder / "run" / "rewards.jsonl").write_text("".join(log))
                for made in (*folder.glob("scored/*"), *folder.glob("jobs/*.json")):
                    made.unlink()
                with tempfile.TemporaryDirectory() as empty:
                    # These two need an app that has not tested its judge, or an empty folder.
                    own = _app(checkout, Path(empty)) if do in (_works, _finished) else nullcontext(shared)
                    with own as address:
                        runs.append(_run(driver, address, folder, do))
            assert len({clicks for clicks, _ in runs}) < 2, f"{task.shown}: the clicks differ"
            found.append((runs[0][0], median(seconds for _, seconds in runs)) if runs else (None, None))
            print(when, task.shown, found[-1], file=sys.stderr)
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
def _app(checkout: Path, folder: Path) -> Iterator[str]:
    """The address of the app of a checkout."""
    command = [sys.executable, "-P", "-m", "checklist_rewards.cli", "ui", str(folder), "--port", "0", "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
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
