"""Take the screenshots of `docs/results.md` from the example of the app.

    python docs/screenshots.py

The example is a finished run with what its audit found, and labelled texts with the scores of the pocket model. They
are scored again with a calibration, so that there are two judges.
Needs Chromium (`apt-get install chromium chromium-driver`) and the extra `[dev]`.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from checklist_rewards.evaluation.labels import Labels  # noqa: E402
from checklist_rewards.ui.project import Project, write_example  # noqa: E402
from checklist_rewards.ui.report import write_report  # noqa: E402
from tests.ui import browser  # noqa: E402

SIZE = 1280, 860
SHOTS = (
    ("overview", "judges", "0/overview", None),
    ("matrix", "judges", "0/matrix/4", None),
    ("training", "run", "0/training", None),
    ("reward", "run", "0/matrix/379", "Response"),
    ("compare", "judges", "0/compare", "Scores"),
    ("trust", "judges", "0/trust", "Calibration: statistics"),
)
"""Name, page, view and first heading of each picture."""
SCROLL = """
const heading = [...document.querySelectorAll('h2, h3, summary')].find((one) => one.textContent === arguments[0]);
if (heading.closest('details')) heading.closest('details').open = true;
heading.scrollIntoView();
"""


def main() -> None:
    """Write the pictures."""
    output = ROOT / "docs" / "images" / "report"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_example(Project.at(folder))
        run, scored, texts = (folder / "example" / f"{name}.jsonl" for name in ("rewards", "scored", "texts"))
        calibration, calibrated = folder / "calibration.json", folder / "calibrated.jsonl"
        _command("calibrate", scored, "--label-key", "labels", "--group-key", "task", "-o", calibration)
        _command("score", texts, "-o", calibrated, "--model", "pocket", "--calibration", calibration)
        write_report(folder / "run.html", [run, run.with_name("monitor.jsonl")])
        write_report(folder / "judges.html", [scored, calibrated], labels=Labels(key="labels", group_key="task"))
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


def _command(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "checklist_rewards.cli", *map(str, arguments)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
