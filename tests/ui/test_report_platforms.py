"""The report and the app can be imported where there is no `fcntl`: on Windows."""

import subprocess
import sys

_WITHOUT_FCNTL = """
import sys, multiprocessing.reduction, concurrent.futures.process, fastapi
import checklist_rewards.pipelines, checklist_rewards.evaluation.agreement
sys.platform, sys.modules["fcntl"] = "win32", None
import checklist_rewards.ui.report, checklist_rewards.ui.jobs
"""


def test_without_fcntl():
    subprocess.run([sys.executable, "-c", _WITHOUT_FCNTL], check=True, timeout=120)
