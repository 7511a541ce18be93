"""The benchmark of the reward server runs, counts what fails, and says so."""

import asyncio
import json
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from fastapi import FastAPI
from studies.benchmarks import serve

from tests.conftest import HANG, REPO
from tests.serving import serving


@pytest.mark.slow
@pytest.mark.study
def test_a_short_run_has_no_errors_and_knows_the_servers_memory(tmp_path):
    report = tmp_path / "serve.json"
    command = [sys.executable, "-P", "recipes/studies/benchmarks/serve.py", "--seconds", "1", "--clients", "8"]
    done = subprocess.run([*command, "--output", report], cwd=REPO, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["failures"] == {} and found["requests"] > 8 and found["clients"] == 8
    assert found["reads"] == found["reads_expected"] >= 8 * found["requests"]
    assert len(found["memory_mb"]) >= 3 and found["memory_first_third_mb"] > 10
    assert "memory: last third" in done.stdout and "errors: none" in done.stdout


def test_whatever_is_no_score_is_counted_as_an_error():
    app = FastAPI()
    app.post("/score")(lambda: {"scores": [None], "errors": []})
    with serving(app) as address:
        latencies, failures = asyncio.run(serve.load(f"{address}/score", 2, 0.05, rows=True))
        assert failures == Counter({"not scored": len(latencies)}) and latencies
        latencies, failures = asyncio.run(serve.load(f"{address}/nowhere", 2, 0.05, rows=True))
        assert failures == Counter({"status 404": len(latencies)}) and latencies
    latencies, failures = asyncio.run(serve.load("http://127.0.0.1:9/score", 2, 0.05, rows=True))
    assert failures == Counter({"ClientConnectorError": len(latencies)}) and latencies
