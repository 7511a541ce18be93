"""Take the screenshots of `docs/results.md`.

    python docs/screenshots.py rewards.jsonl shaped.jsonl scored.jsonl calibrated.jsonl

The files are the log of the demo, the log of a reward with `shaping`, and labelled rows scored twice:
`recipes/pocket/labelled.py`, `score`, `calibrate`, and `score --calibration`.
Needs Chromium (`apt-get install chromium chromium-driver`) and the extra `[dev]`.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from checklist_rewards.cli.trust import Labelled  # noqa: E402
from checklist_rewards.ui.report import write_report  # noqa: E402
from tests.ui import browser  # noqa: E402

SIZE = 1280, 860
SHOTS = (
    ("overview", "judges", "1/overview", None),
    ("matrix", "judges", "1/matrix/4", None),
    ("training", "run", "0/training", None),
    ("reward", "shaped", "0/matrix/379", "Response"),
    ("compare", "judges", "0/compare", "Scores"),
    ("trust", "judges", "0/trust", "Calibration"),
)
"""Name, page, view and first heading of each picture."""
SCROLL = "[...document.querySelectorAll('h2, h3')].find((one) => one.textContent === arguments[0]).scrollIntoView()"


def main(log: Path, shaped: Path, *scored: Path) -> None:
    """Write the pictures."""
    output = ROOT / "docs" / "images" / "report"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_report(folder / "run.html", [log])
        write_report(folder / "shaped.html", [shaped])
        write_report(folder / "judges.html", scored, labels=Labelled(label_key="labels", group_key="task"))
        driver = browser.start(folder / "profile", width=SIZE[0], height=SIZE[1])
        for shot, page, view, heading in SHOTS:
            driver.get("about:blank")
            driver.get(f"file://{folder}/{page}.html#/{view}")
            time.sleep(2)
            if heading:
                driver.execute_script(SCROLL, heading)
                time.sleep(0.5)
            picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
            picture.convert("RGB").save(output / f"{shot}.webp", quality=80, method=6)
        driver.quit()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
