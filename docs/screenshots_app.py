"""Take the pictures of `docs/app.md` on the pocket judge: every view of the app and of a report, sheets of all of them
in both colours and widths, and a walk of a minute for the README.

    python docs/screenshots_app.py

A view that is not complete within five minutes ends the script with what was waited for.
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

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from checklist_rewards.ui.project import Project, write_example  # noqa: E402
from tests.ui import browser  # noqa: E402

SIZE = 1440, 860
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


RUN, TEXTS_OF_RUN = "/report?file=example/rewards.jsonl#/0", "/report?file=example/scored.jsonl&labels=labels#/0"
VIEWS = {
    "start": ("/", "probe", "[name=probe]:enabled"),
    "judge": ("/judge", "score", ".scorebar .score"),
    "compare": ("/compare", "score", ".compared-items .pill"),
    "build": ("/build", "read", ".samples .score .num:not(.none)"),
    "annotate": ("/annotate?file=rows.jsonl&annotator=ann", None, ".item"),
    "batch": ("/batch?file=many.jsonl", None, ".job .mean"),
    "library": ("/library?name=judges/two.yaml", None, ".told p"),
    "live": ("/live?file=example/rewards.jsonl", None, ".live svg"),
    "overview": (f"{RUN}/overview", None, ".tiles"),
    "matrix": (f"{RUN}/matrix/118", None, ".panel .answers"),
    "training": (f"{RUN}/training", None, ".cards .card"),
    "monitor": (f"{RUN}/monitor", None, ".chart"),
    "trust": (f"{TEXTS_OF_RUN}/trust", None, ".square"),
}
"""The address of each view, the button to press, and what is there once the view is complete."""
WALK = (
    ("start", "Start: the judge, whether it works, and the files of the folder"),
    ("judge", "Judge: a response and a checklist; each answer with P(yes) and label mass"),
    ("compare", "Compare: two responses by the same checklist, the largest differences first"),
    ("build", "Build: a checklist in stages, with the scores of sample responses"),
    ("batch", "Batch: a file scored in a process of its own; what it will cost comes first"),
    ("overview", "Report: what failed and what to look at first"),
    ("matrix", "Matrix: every answer of every row, and what a reward was made of"),
    ("annotate", "Annotate: people answer the same items by keyboard"),
    ("trust", "Trust: how far the judge agrees with people"),
    ("live", "Live: a training while it writes its log"),
    ("training", "Training: what the policy learned"),
    ("monitor", "Monitor: signs of reward hacking, with the completions that show them"),
)
"""The pictures of the walk, with a sentence for each."""
SECONDS = 60
LONGEST = 300
"""Seconds to wait for a view."""


def main() -> None:
    """Write the pictures."""
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
        write_example(Project.at(folder))
        command = [*COMMAND, "ui", str(folder), "--port", "0", "--no-browser", "--backend", "transformers"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
            driver = browser.start(Path(name, "profile"), width=SIZE[0], height=SIZE[1])
            try:
                _open(driver, _address(server), "[name=probe]")
                base = driver.current_url.rstrip("/")
                for prepare in (_annotate, _texts, _build, _batch):
                    prepare(driver, base)
                for view in VIEWS:
                    _picture(driver, base, view).save(output / f"{view}.webp", quality=75, method=6)
                _walk(output, output.parent / "walk.webp")
                _sheets(driver, base, output)
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


def _texts(driver, base: str) -> None:
    """What Judge and Compare show when they are opened."""
    for view, texts in (("/judge", TEXTS[:1]), ("/compare", TEXTS[:3:2])):
        kept = {"input": "Write about the weather.", "targets": texts, "checklist": ITEMS}
        driver.execute_script("sessionStorage.setItem(...arguments)", view, json.dumps(kept))


def _open(driver, address: str, ready: str, button: str | None = None) -> None:
    driver.get("about:blank")  # an address that differs in its fragment only would not be loaded
    driver.get(address)
    if button is not None:
        _until(driver, f"document.querySelector('[name={button}]') !== null")
        driver.execute_script(f"document.querySelector('[name={button}]').click()")
    _until(driver, f"document.querySelector({json.dumps(ready)}) !== null")
    time.sleep(1)


def _batch(driver, base: str) -> None:
    """A job that is running."""
    _open(driver, f"{base}/batch?file=many.jsonl", ".preview table")
    driver.execute_script("document.querySelector('[name=start]').click()")
    _until(driver, "document.querySelector('.job') !== null")


def _build(driver, base: str) -> None:
    """Seed questions of two dimensions as a checklist, with the scores of two responses. The page asks for a writer,
    which this stage does not use."""
    driver.get(f"{base}/build")
    kept = {
        "writer": "english-writer",
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
    end = time.monotonic() + LONGEST
    while not driver.execute_script(f"return {condition}"):
        if time.monotonic() > end:
            raise TimeoutError(f"{condition}: not so on {driver.current_url}")
        time.sleep(0.2)


def _picture(driver, base: str, view: str) -> Image.Image:
    path, button, ready = VIEWS[view]
    _open(driver, base + path, ready, button)
    return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def _walk(folder: Path, path: Path) -> None:
    """The views one after the other, each with its sentence, as one animated picture for the README."""
    font = ImageFont.load_default(24)
    frames = []
    for name, sentence in WALK:
        with Image.open(folder / f"{name}.webp") as picture:
            view = picture.crop((0, 0, *SIZE)).resize((SIZE[0] * 3 // 4, SIZE[1] * 3 // 4), Image.Resampling.LANCZOS)
        frame = Image.new("RGB", (view.width, view.height + 48), "#0b6565")
        frame.paste(view, (0, 0))
        ImageDraw.Draw(frame).text((16, view.height + 10), sentence, "white", font)
        frames.append(frame)
    first, *others = frames
    first.save(path, save_all=True, append_images=others, duration=1000 * SECONDS // len(frames), quality=70, method=6)


def _sheets(driver, base: str, folder: Path) -> None:
    """All views side by side; those that are wide and light are pictures of their own."""
    for width, dark in ((1440, True), (390, False), (390, True)):
        columns, shown, height = (3, 560, 1000) if width > 1000 else (7, 240, 1000)
        browser.resize(driver, width, height)
        browser.scheme(driver, dark)
        size = shown, shown * height // width
        views = [_picture(driver, base, view).resize(size, Image.Resampling.LANCZOS) for view in VIEWS]
        step = shown + 16, views[0].height + 16
        rows = -(-len(views) // columns)
        sheet = Image.new("RGB", (columns * step[0] + 16, rows * step[1] + 16), "#808080")
        for place, view in enumerate(views):
            sheet.paste(view, (16 + place % columns * step[0], 16 + place // columns * step[1]))
        sheet.save(folder / f"all-{width}-{'dark' if dark else 'light'}.webp", quality=60, method=6)


if __name__ == "__main__":
    main()
