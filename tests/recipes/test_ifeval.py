"""The comparison with IFEval's official verdicts, on all of them."""

import json
from collections import Counter

import ifeval
import pytest

from checklist_rewards.errors import SampleError


@pytest.mark.slow
def test_the_checks_agree_with_the_official_verdicts(data_dir, tmp_path, monkeypatch, capsys):
    pytest.importorskip("langdetect")
    monkeypatch.setattr("sys.argv", ["ifeval.py", "--data", str(data_dir), "--output_dir", str(tmp_path)])
    ifeval.main()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["n"], summary["prompts"], len(summary["by_instruction"])) == (14_178, 541, 25)
    assert summary["agreement"] >= 0.995 and summary["interval"][0] >= 0.99
    assert min(line["agreement"] for line in summary["by_instruction"].values()) >= 0.97
    different = [json.loads(line) for line in (tmp_path / "differences.jsonl").read_text().splitlines()]
    assert len(different) == summary["differences"]
    assert all(row["reason"] != "not known" and row["ours"] is not None for row in different)
    # What is left: signs that IFEval replaces by random letters, a random detector, another splitter.
    kinds = Counter(row["instruction"].split(":")[1] for row in different)
    assert kinds["letter_frequency"] == 13 and sum(kinds.values()) <= 30
    assert "0.998" in capsys.readouterr().out


def test_it_says_where_the_data_should_be(tmp_path, monkeypatch):
    with pytest.raises(SampleError, match="en_labels.jsonl.gz: file not found; set --data"):
        ifeval.labels_file(str(tmp_path))


def test_the_data_is_looked_for_beside_the_repository(monkeypatch, tmp_path):
    monkeypatch.delenv("CHECKLIST_REWARDS_DATA", raising=False)
    script = tmp_path / "repository" / "recipes" / "evaluate" / "ifeval.py"
    monkeypatch.setattr(ifeval, "__file__", str(script))
    labels = tmp_path / "shared" / "data" / "ifeval" / "en_labels.jsonl.gz"
    labels.parent.mkdir(parents=True)
    labels.touch()
    assert ifeval.labels_file(None) == labels
