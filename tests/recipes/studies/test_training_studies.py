"""The studies that train, as small as they go: what they write, and that a finished run is not repeated."""

import json

import pytest
from studies import arms

pytestmark = [pytest.mark.slow, pytest.mark.study, pytest.mark.xdist_group("trainers")]
TINY = ["--test-prompts", "3"]


def test_soft_and_hard_rewards_start_from_the_same_completions(tmp_path, monkeypatch):
    from studies import soft_vs_hard

    how = ["--output", str(tmp_path), "--seeds", "0", "--steps", "2", "--eval-every", "1", "--train-prompts", "8"]
    summary = soft_vs_hard.main([*how, *TINY])
    soft, hard = (json.loads((tmp_path / f"{arm}-0" / "summary.json").read_text()) for arm in ("soft", "hard"))
    assert soft["log"][0]["gold"] == hard["log"][0]["gold"] and soft["log"][0]["proxy"] != hard["log"][0]["proxy"]
    assert list(soft["curve"]) == ["1", "2"] and soft["curve"]["2"] == soft["gold"]
    assert list(summary["arms"]["soft"]["curve"]) == [0, 1, 2]
    assert summary["soft_minus_hard_gold"]["mean"] == soft["gold"] - hard["gold"]
    assert (tmp_path / "soft_vs_hard.png").is_file()

    monkeypatch.setattr(arms, "train", None)  # cannot be called
    assert soft_vs_hard.main([*how, *TINY])["arms"] == summary["arms"]


def test_rewards_per_criterion_train_and_continue(tmp_path, monkeypatch):
    from studies import per_criterion

    how = ["--output", str(tmp_path), "--seeds", "0", "--steps", "1", "--eval-every", "1", "--train-prompts", "8"]
    summary = per_criterion.main([*how, *TINY, "--arms", "GDPO", "whitened"])
    assert list(summary["arms"]) == ["GDPO", "whitened"] and list(summary["arms"]["GDPO"]["curve"]) == [0, 1]
    lines = [json.loads(line) for line in (tmp_path / "GDPO-0" / "rewards.jsonl").read_text().splitlines()]
    assert len(lines) == 64 and any(len(set(line["parts"].values()) - {None}) > 1 for line in lines)
    assert "| gold at the end |" in (tmp_path / "table.md").read_text() and (tmp_path / "per_criterion.png").is_file()

    monkeypatch.setattr(arms, "train", None)  # cannot be called
    again = per_criterion.main([*how, *TINY, "--summary"])
    assert again["arms"] == summary["arms"]


def test_candidates_become_pairs_and_pairs_a_policy(tmp_path):
    from studies import pairs_to_dpo

    how = ["--output", str(tmp_path), "--seeds", "0", "--prompts", "6", "--candidates", "3", "--epochs", "2"]
    summary = pairs_to_dpo.main([*how, *TINY])
    [run] = summary["runs"]
    pairs = [json.loads(line) for line in (tmp_path / "seed-0" / "pairs.jsonl").read_text().splitlines()]
    assert len(pairs) == run["pairs"] == 6 - sum(run["dropped"].values()) > 0
    assert all(pair["score_chosen"] > pair["score_rejected"] for pair in pairs)
    assert len(run["by_epoch"]) == 2 and run["by_epoch"][-1] == run["sampled"]
    assert summary["after"]["greedy"]["per_seed"] == [run["greedy"]]
    assert "the best against the worst" in (tmp_path / "seed-0" / "pairs.md").read_text()
    assert (tmp_path / "pairs_to_dpo.png").is_file()
