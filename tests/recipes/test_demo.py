"""The demo, as small as it goes."""

import json
import re

import pytest

pytestmark = pytest.mark.slow


def test_the_demo_says_what_the_reward_cost(tmp_path, capsys):
    from demo import main

    arguments = ["--output", str(tmp_path), "--steps", "1", "--train-prompts", "8", "--test-prompts", "3"]
    main(arguments)
    summary = json.loads((tmp_path / "summary.json").read_text())
    cost = summary["reward_cost"]
    assert 0 < cost["engine_seconds"] < cost["reward_seconds"] < cost["step_seconds"] and 0 < cost["overhead"] < 1
    assert summary["zero_variance"] == 0.0  # 64 sampled texts with a probability per item are never that equal
    [command] = re.findall(r"^ +(\S.* report .*)$", capsys.readouterr().out, re.M)
    assert command.endswith(f"report {tmp_path}/rewards.jsonl -o {tmp_path}/report.html")
    assert len((tmp_path / "rewards.jsonl").read_text().splitlines()) == 64
    assert (tmp_path / "curves.png").is_file() and (tmp_path / "policy" / "model.safetensors").is_file()

    main(arguments)  # the same run again asks the judge nothing
    again = json.loads((tmp_path / "summary.json").read_text())
    assert again["reads"] == summary["reads"] and again["reads_per_second"] is None
    assert len((tmp_path / "rewards.jsonl").read_text().splitlines()) == 64
