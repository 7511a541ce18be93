"""Take the screenshots of `docs/app.md`: an annotated and a scored response, and a checklist, on the pocket judge.

    python docs/screenshots_app.py

Needs Chromium (`apt-get install chromium chromium-driver`) and the extras `[dev]`, `[ui]` and `[trl]`.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.ui import browser  # noqa: E402

SIZE = 1280, 620
COMMAND = [sys.executable, "-m", "checklist_rewards.cli"]
ITEMS = [
    "Does the response end with a question mark?",
    {"question": 'Does the response contain the word "rain"?', "weight": 2},
    {"question": "Does the response have exactly 2 sentences?", "required": True},
]
DIMENSIONS = {
    "task": "Write about the weather.",
    "dimensions": [
        {
            "name": "form",
            "definition": "The response has the form that was asked for.",
            "seed_questions": [
                "Does the response have exactly 2 sentences?",
                "Does the response end with a question mark?",
            ],
        },
        {
            "name": "subject",
            "definition": "The response is about the weather.",
            "seed_questions": ['Does the response contain the word "rain"?'],
        },
    ],
}
TEXTS = ["The rain falls. Is it cold?", "Who is there?", "The rain stops. The sun shines.", "Is it the rain?"]


def main() -> None:
    """Write the pictures."""
    output = ROOT / "docs" / "images" / "app"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "weather")
        folder.mkdir()
        rows = [{"prompt": "Write about the weather.", "target": text, "checklist": ITEMS} for text in TEXTS]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [*COMMAND, "ui", str(folder), "--port", "0", "--no-browser", "--backend", "transformers"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
            driver = browser.start(Path(name, "profile"), width=SIZE[0], height=SIZE[1])
            try:
                driver.get(_address(server))
                time.sleep(2)
                base = driver.current_url.rstrip("/")
                _annotate(driver, base)
                _save(driver, output / "annotate.webp")
                _judge(driver, base)
                _save(driver, output / "judge.webp")
                _build(driver, base)
                _save(driver, output / "build.webp")
            finally:
                driver.quit()
                server.terminate()


def _address(server: subprocess.Popen[str]) -> str:
    printed = ""
    assert server.stderr is not None
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", printed)):
        printed += server.stderr.readline()
    return found[0]


def _annotate(driver, base: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for annotator, answers in (("ann", "ynyynn"), ("bob", "ynyyyn")):
        driver.get(f"{base}/annotate?file=rows.jsonl&annotator={annotator}")
        for key in answers:
            time.sleep(1)
            ActionChains(driver).send_keys(key).perform()
    time.sleep(2)


def _judge(driver, base: str) -> None:
    driver.get(f"{base}/judge")
    kept = json.dumps({"input": "Write about the weather.", "target": TEXTS[0], "reference": "", "checklist": ITEMS})
    driver.execute_script("sessionStorage.setItem('judge-view', arguments[0])", kept)
    driver.get(f"{base}/judge")
    time.sleep(2)
    driver.execute_script("document.querySelector('[name=score]').click()")
    while not driver.execute_script("return document.querySelector('.score') !== null"):
        time.sleep(0.5)


def _build(driver, base: str) -> None:
    """Seed questions of two dimensions as a checklist, with the scores of two responses. No stage needs the writer."""
    driver.get(f"{base}/build")
    kept = {
        "stages": {"pipeline": "checkeval", "sources": {"checkeval": DIMENSIONS}},
        "preview": {"prompt": "Write about the weather.", "samples": TEXTS[:2]},
    }
    driver.execute_script("sessionStorage.setItem('build-view', arguments[0])", json.dumps(kept))
    driver.get(f"{base}/build")
    for name, ready in (
        ("run-seed", "!document.querySelector('[name=use-seed]').hidden"),
        ("use-seed", "document.querySelectorAll('.editor .item').length === 3"),
        ("read", "document.querySelectorAll('.samples .score .num:not(.none)').length === 2"),
    ):
        _until(driver, f"document.querySelector('[name={name}]') !== null")
        driver.execute_script(f"document.querySelector('[name={name}]').click()")
        _until(driver, ready)
    driver.execute_script("document.querySelectorAll('.editor .more')[0].open = true")
    _until(driver, "document.querySelector('.editor [name=check]') !== null")
    driver.execute_script("document.querySelector('.build').scrollIntoView()")


def _until(driver, condition: str) -> None:
    while not driver.execute_script(f"return {condition}"):
        time.sleep(0.2)


def _save(driver, path: Path) -> None:
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    picture.convert("RGB").save(path, quality=80, method=6)


if __name__ == "__main__":
    main()
