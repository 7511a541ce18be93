"""The comparison with IFEval's official verdicts, on some of them and on all of them."""

import gzip
import json
from collections import Counter

import pytest
from studies.checks import ifeval

from checklist_rewards.errors import SampleError

EVERY = 13  # no divisor of the number of prompts or of models, so all of both are among these responses


def some_of(data_dir, folder):
    """A data folder with a few responses: all those to the odd letters that IFEval replaces, and every 13th."""
    path = folder / "data" / "ifeval" / "en_labels.jsonl.gz"
    path.parent.mkdir(parents=True)
    with gzip.open(data_dir / "ifeval" / path.name, "rt") as lines, gzip.open(path, "wt") as out:
        for place, line in enumerate(lines):
            letters = [kwargs["letter"] for kwargs in json.loads(line)["kwargs"] if kwargs and kwargs.get("letter")]
            if place % EVERY == 0 or not all(letter.isalpha() for letter in letters):
                out.write(line)
    return folder / "data"


@pytest.mark.slow
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.study)], ids=["some", "all"])
def test_the_checks_agree_with_the_official_verdicts(data_dir, tmp_path, monkeypatch, capsys, all_of_them):
    pytest.importorskip("langdetect")
    data = data_dir if all_of_them else some_of(data_dir, tmp_path)
    monkeypatch.setattr("sys.argv", ["ifeval.py", "--data", str(data), "--output_dir", str(tmp_path)])
    ifeval.main()
    summary = json.loads((tmp_path / "summary.json").read_text())
    size = (14_178, 541, 25) if all_of_them else (1173, 541, 25)
    assert (summary["n"], summary["prompts"], len(summary["by_instruction"])) == size
    different = [json.loads(line) for line in (tmp_path / "differences.jsonl").read_text().splitlines()]
    assert len(different) == summary["differences"]
    assert all(row["reason"] != "not known" and row["ours"] is not None for row in different)
    # What is left: signs that IFEval replaces by random letters, a random detector, another splitter.
    kinds = Counter(row["instruction"].split(":")[1] for row in different)
    assert kinds["letter_frequency"] == 13
    if not all_of_them:
        assert sum(kinds.values()) <= 15 and "0.98" in capsys.readouterr().out
        return
    assert sum(kinds.values()) <= 30 and "0.998" in capsys.readouterr().out
    assert summary["agreement"] >= 0.995 and summary["interval"][0] >= 0.99
    assert min(line["agreement"] for line in summary["by_instruction"].values()) >= 0.97


def test_missing_data_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["ifeval.py", "--data", str(tmp_path), "--output_dir", str(tmp_path)])
    with pytest.raises(SampleError, match="en_labels.jsonl.gz: file not found; set --data"):
        ifeval.main()
