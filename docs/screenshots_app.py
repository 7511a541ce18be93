"""Take the screenshots of `docs/app.md` on the pocket judge: every view of the app, and all of them as one walk.

    python docs/screenshots_app.py
    python docs/screenshots_app.py --all folder    # each view at 1280 and 390 pixels, light and dark, as PNG

Needs Chromium (`apt-get install chromium chromium-driver`) and the extras `[dev]`, `[ui]` and `[trl]`.
"""

from __future__ import annotations

import argparse
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
from tests.ui import browser, files  # noqa: E402

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


LIBRARY = {
    "checklists/weather.json": json.dumps({"items": ITEMS}, indent=2),
    "prompts/short.md": "# System\n\nAnswer Yes or No.\n\n# User\n\n{input}\n\n{target}\n\n{question}\n",
    "pipelines/mine.yaml": "name: mine\nscorer: {mode: item, metric: pass}\n",
    "judges/two.yaml": "panel: {rule: mean}\njudges:\n  - {model: org/one}\n  - {model: org/two}\n",
}


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", type=Path, help="folder for all sizes and colours of the views")
    every = parser.parse_args().all
    output = ROOT / "docs" / "images" / "app"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "weather")
        folder.mkdir()
        rows = [{"prompt": "Write about the weather.", "target": text, "checklist": ITEMS} for text in TEXTS]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for saved, text in LIBRARY.items():
            (folder / saved).parent.mkdir(exist_ok=True)
            (folder / saved).write_text(text)
        many = [{**row, "target": f"{row['target']} {n}"} for n in range(150) for row in rows]
        (folder / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
        files.write(folder / "rewards.jsonl", files.reward_rows(steps=40))
        command = [*COMMAND, "ui", str(folder), "--port", "0", "--no-browser", "--backend", "transformers"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
            driver = browser.start(Path(name, "profile"), width=SIZE[0], height=SIZE[1])
            try:
                _open(driver, _address(server), "[name=probe]")
                base = driver.current_url.rstrip("/")
                driver.execute_script("document.querySelector('[name=probe]').click()")
                _until(driver, "document.querySelector('.health').textContent.includes('answered')")
                _save(driver, output / "start.webp")
                _annotate(driver, base)
                _save(driver, output / "annotate.webp")
                _judge(driver, base)
                _save(driver, output / "judge.webp")
                _compare(driver, base)
                _save(driver, output / "compare.webp")
                _build(driver, base)
                _save(driver, output / "build.webp")
                _batch(driver, base)
                _save(driver, output / "batch.webp")
                browser.resize(driver, *SIZE)
                _open(driver, f"{base}/library?name=judges/two.yaml", ".told p")
                _save(driver, output / "library.webp")
                _open(driver, f"{base}/live?file=rewards.jsonl", ".live svg")
                _save(driver, output / "live.webp")
                _walk(output, output.parent / "walk.webp")
                if every is not None:
                    _every(driver, base, every)
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


def _compare(driver, base: str) -> None:
    questions = "\n".join(item if isinstance(item, str) else item["question"] for item in ITEMS)
    kept = json.dumps({"prompt": "Write about the weather.", "questions": questions, "responses": TEXTS[:3:2]})
    driver.execute_script("sessionStorage.setItem('compare-view', arguments[0])", kept)
    _open(driver, f"{base}/compare", "[name=run]")
    driver.execute_script("document.querySelector('[name=run]').click()")
    _until(driver, f"document.querySelectorAll('.compared-items .pill').length === {2 * len(ITEMS)}")
    time.sleep(0.5)


def _open(driver, address: str, ready: str) -> None:
    driver.get(address)
    while not driver.execute_script("return document.querySelector(arguments[0]) !== null", ready):
        time.sleep(0.5)
    time.sleep(1)


def _batch(driver, base: str) -> None:
    _open(driver, f"{base}/batch?file=many.jsonl", ".preview table")
    driver.execute_script("document.querySelector('[name=forecast]').click()")
    while not driver.execute_script("return document.querySelector('.counted') !== null"):
        time.sleep(0.5)
    driver.execute_script("document.querySelector('[name=start]').click()")
    while not driver.execute_script("return document.querySelector('.job progress')?.value > 0.05"):
        time.sleep(0.5)
    browser.resize(driver, SIZE[0], driver.execute_script("return document.documentElement.scrollHeight"))
    time.sleep(1)


VIEWS = {
    "batch": ("/batch?file=many.jsonl", ".job"),
    "library": ("/library?name=judges/two.yaml", ".told p"),
    "live": ("/live?file=rewards.jsonl", ".live svg"),
    "judge": ("/judge", "[name=score]"),
    "compare": ("/compare", "[name=run]"),
    "build": ("/build", ".editor .item"),
    "annotate": ("/annotate?file=rows.jsonl&annotator=cy", ".item"),
    "files": ("/", "#view table"),
}


def _every(driver, base: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (path, ready) in VIEWS.items():
        for width in (1280, 390):
            for dark in (False, True):
                browser.resize(driver, width)
                browser.scheme(driver, dark)
                _open(driver, base + path, ready)
                height = driver.execute_script("return document.documentElement.scrollHeight")
                browser.resize(driver, width, min(height, 2400))
                driver.save_screenshot(str(folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"))


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


def _until(driver, condition: str) -> None:
    while not driver.execute_script(f"return {condition}"):
        time.sleep(0.2)


def _walk(folder: Path, path: Path) -> None:
    """The views one after the other, as one animated picture of a minute for the README."""
    first, *others = (
        Image.open(folder / f"{name}.webp").convert("RGB").crop((0, 0, *SIZE))
        for name in ("start", "judge", "compare", "build", "annotate", "batch", "live")
    )
    first.save(path, save_all=True, append_images=others, duration=60_000 // (1 + len(others)), quality=70, method=6)


def _save(driver, path: Path) -> None:
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    picture.convert("RGB").save(path, quality=80, method=6)


if __name__ == "__main__":
    main()
