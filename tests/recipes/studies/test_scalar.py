"""Item labels against preferences: what is labelled and measured, and the smallest study of both."""

import json
import random
from statistics import fmean, pstdev

import pytest
from pocket.world import parse_question
from studies.scalar.labels import Prompt, fingerprint, item_labels, preferences, sampled_prompts
from studies.scalar.measures import Scale, best_of, chosen, ordered, sizes
from studies.scalar.report import summarize, table
from studies.scalar.rewards import epochs

from checklist_rewards.errors import SampleError

DIGIT, QUESTION = "Does the response contain a digit?", "Does the response end with a question mark?"
POOL = [
    Prompt("Use a digit. End with a question mark.", (DIGIT, QUESTION), ("7?", "old", "new?"), (1.0, 0.0, 0.5)),
    Prompt("Use some digit.", (DIGIT, "Is it nice?"), ("8", "9"), (1.0, 1.0)),
]


def test_an_item_label_is_the_truth_about_one_completion():
    labels = item_labels(POOL, 8, seed=0)
    assert {(pair.target, pair.question): pair.label for pair in labels} == {
        ("7?", DIGIT): 1.0,
        ("7?", QUESTION): 1.0,
        ("old", DIGIT): 0.0,
        ("old", QUESTION): 0.0,
        ("new?", DIGIT): 0.0,
        ("new?", QUESTION): 1.0,
        ("8", DIGIT): 1.0,
        ("9", DIGIT): 1.0,
    }  # "Is it nice?" cannot be labelled by code
    assert {pair.input for pair in labels if pair.question == QUESTION} == {POOL[0].instruction}


def test_a_preference_has_the_better_completion_first_and_no_ties():
    assert {pair[1:] for pair in preferences(POOL, 3, seed=0)} == {("7?", "old"), ("7?", "new?"), ("new?", "old")}


def test_a_smaller_budget_is_the_start_of_a_larger_one_and_another_seed_has_other_labels():
    assert item_labels(POOL, 3, seed=4) == item_labels(POOL, 8, seed=4)[:3]
    assert preferences(POOL, 1, seed=4) == preferences(POOL, 3, seed=4)[:1]
    assert len({tuple(preferences(POOL, 3, seed=seed)) for seed in range(20)}) > 1


def test_a_pool_with_too_few_labels_is_refused():
    with pytest.raises(SampleError, match="the pool has 3 preferences, but 4 are needed; raise --pool"):
        preferences(POOL, 4, seed=0)


def test_best_of_n_takes_the_first_n_by_reward_and_averages_ties():
    rewards, gold = [[0.1, 0.9, 0.5], [2.0, 2.0, 3.0]], [[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]]
    assert best_of(rewards, gold, 1) == {"proxy": pytest.approx(1.05), "gold": 0.5}
    assert best_of(rewards, gold, 2)["gold"] == fmean([0.0, 0.5])
    assert best_of(rewards, gold, 3)["gold"] == fmean([0.0, 0.25])


def test_pairs_in_order_leave_out_equal_gold_and_count_equal_rewards_as_half():
    assert ordered([[0.0, 1.0, 1.0]], [[0.0, 1.0, 0.5]]) == fmean([1.0, 1.0, 0.5])
    assert ordered([[5.0, 3.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]]) == 0.0


def test_a_mapped_reward_has_the_mean_and_the_deviation_of_gold():
    rng = random.Random(0)
    rewards, gold = ([[rng.gauss(center, 7) for _ in range(4)] for _ in range(9)] for center in (-3, 40))
    scale = Scale.of(rewards, gold)
    mapped, golds = ([value for line in table for value in line] for table in (rewards, gold))
    mapped = [scale(value) for value in mapped]
    assert fmean(mapped) == pytest.approx(fmean(golds)) and pstdev(mapped) == pytest.approx(pstdev(golds))
    assert Scale.of([[2.0, 2.0]], [[0.0, 1.0]])(9.0) == 0.5  # a constant reward predicts the mean


def test_gold_as_its_own_reward_is_the_oracle_without_over_optimisation():
    gold = [[0.0, 0.5, 1.0, 0.25], [0.5, 0.5, 0.75, 0.0]]
    found = chosen(gold, gold)
    assert found["ordered"] == 1.0 and found["gold"] == 0.875 and found["gap"] == pytest.approx(0.0)
    assert found["best_of"] == {1: 0.25, 2: 0.5, 4: 0.875}


def test_small_figures():
    assert sizes(1) == [1] and sizes(8) == [1, 2, 4, 8] and sizes(12) == [1, 2, 4, 8, 12]
    assert epochs(12) == epochs(100) == 15 and epochs(3000) == pytest.approx(2.74, abs=0.01) and epochs(10**6) == 1


def test_the_table_has_a_row_per_budget_and_reward_and_leaves_out_what_was_not_run():
    best = {"ordered": 0.7, "gold": 0.8, "gap": 0.1}
    cells = [
        {"arm": "judge", "budget": 1000, "seed": 0, "best": best, "grpo": {"gold": 0.6, "gap": 0.05}},
        {"arm": "scalar", "budget": 1000, "seed": 0, "best": best},
    ]
    known = {"random": 0.5, "greedy": 0.6, "oracle": 0.9, "start": best, "packaged": best}
    lines = table(summarize(cells, known)).splitlines()
    three = "0.700 (0.700-0.700) | 0.800 (0.800-0.800) | +0.100 (+0.100 to +0.100)"
    grpo = "0.600 (0.600-0.600) | +0.050 (+0.050 to +0.050)"
    assert lines[2] == f"| 1,000 | checklist judge | 1 | {three} | {grpo} |"
    assert lines[3] == f"| 1,000 | scalar reward model | 1 | {three} | | |"
    assert "| | best by gold | | | 0.900 | | | |" in lines


@pytest.mark.slow
@pytest.mark.xdist_group("trainers")
@pytest.mark.study
def test_the_smallest_study_trains_every_reward_and_continues(tmp_path, monkeypatch):
    from studies.scalar import run as study
    from studies.scalar.rewards import ARMS, ScalarReward

    how = "--budgets 12 --grpo-budgets 12 --seeds 0 --steps 1 --n 2 --pool 6 --start-steps 1".split()
    how = ["--output", str(tmp_path), *how, "--train-prompts", "4", "--test-prompts", "3"]
    summary = study.main(how)
    assert [(row["budget"], row["arm"]) for row in summary["rows"]] == [(12, arm) for arm in ARMS]
    for arm in ARMS:
        cell = tmp_path / f"{arm}-12-0"
        trained, best, grpo = (json.loads((cell / part / "summary.json").read_text()) for part in ("", "best", "grpo"))
        assert trained["steps"] > 0 and list(best["best_of"]) == ["1", "2"]
        [step] = grpo["curve"]
        assert 0 <= step["gold"] <= 1 and grpo["gap"] == grpo["proxy"] - grpo["gold"]
        assert (cell / "grpo" / "policy" / "model.safetensors").is_file()
    judge, model = (json.loads((tmp_path / f"{arm}-12-0" / "summary.json").read_text()) for arm in ("judge", "scalar"))
    assert model["parameters"] - judge["parameters"] == 192  # the same matrices; the head is the scalar model's own
    assert 0 < summary["references"]["oracle"] <= 1
    assert "| 12 | scalar reward model | 1 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "scalar.png").is_file()

    pool = sampled_prompts(tmp_path / "pool.jsonl", 6, seed=5, n=4, store=tmp_path / "checklists.sqlite")
    assert fingerprint(pool) == judge["settings"]["pool"]
    assert all(parse_question(question) for prompt in pool for question in prompt.questions)
    learned = ScalarReward(tmp_path / "scalar-12-0" / "reward")  # what was saved is what was trained
    pairs = preferences(pool, 12, seed=0)
    both = learned.scores([Prompt(instruction, (), tuple(texts), (1.0, 0.0)) for instruction, *texts in pairs])
    assert ordered(both, [(1.0, 0.0)] * 12) > 0.8

    for name in ("train_reward", "load_reward", "train"):
        monkeypatch.setattr(study, name, lambda *args, **settings: pytest.fail("a finished part was repeated"))
    assert study.main([*how, "--summary"]) == summary
