"""The best-of-N recipe: the best of the first 1, 2, 4 ... N against greedy, by the judge and by gold."""

from pathlib import Path

import pytest
from best_of_n import BestOfNArguments, compare, main

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.errors import SampleError
from tests.fakes import FakeBackend


class Policy(FakeBackend):
    """Writes three texts, and greedily the plain one."""

    def generate(self, prompts, sampling, arrived=None):
        texts = ["plain"] if sampling.temperature == 0 else ["red", "plain", "red red"]
        return [[Reply(text, "stop") for text in texts[: sampling.n]] for _ in prompts]


def compared(gold=None, policy=None):
    scorer = ChecklistScorer(backend=FakeBackend(lambda p, t: 0.2 + 0.2 * p.count("red")), store=False)
    engine = Engine("policy", policy or Policy())
    return compare(scorer, engine, ["Paint."], [Checklist.parse(["Is it?"])], Sampling(8, 1.0, n=3), gold)


def test_the_best_of_more_is_better_by_the_judge_and_gold_tells_how_good_the_choice_was():
    [ranking], result = compared()
    assert ranking.ranks == (2, 3, 1) and len(ranking.candidates) == 3  # the greedy reply is ranked with none
    assert result["greedy"] == {"proxy": pytest.approx(0.2)}
    assert {n: line["proxy"] for n, line in result["best_of"].items()} == pytest.approx({1: 0.4, 2: 0.4, 3: 0.6})
    assert "selection" not in result
    _, result = compared(gold=lambda number, text: 1.0 if text == "red" else 0.0)
    assert [line["gold"] for line in result["best_of"].values()] == [1.0, 1.0, 0.0]
    assert result["selection"]["precision"] == 0.0 and result["selection"]["gold_best"] == 1.0


def test_a_policy_without_replies_is_an_error():
    class Silent(FakeBackend):
        def generate(self, prompts, sampling, arrived=None):
            return [[Reply(None, unanswered="too_long")] * sampling.n for _ in prompts]

    with pytest.raises(SampleError, match="no reply to 2 prompts"):
        compared(policy=Silent())


def test_data_of_ones_own_requires_a_judge_and_a_policy(tmp_path):
    with pytest.raises(SampleError, match="--data requires --judge and --policy"):
        main(BestOfNArguments(policy="org/policy", data=str(tmp_path / "prompts.jsonl"), output_dir=str(tmp_path)))


@pytest.mark.slow
def test_the_recipe_runs_on_the_pocket_world(pocket, tmp_path):
    result = main(
        BestOfNArguments(
            prompts=8, n=4, max_tokens=48, store=str(tmp_path / "store"), output_dir=str(tmp_path / "out")
        )
    )
    assert list(result["best_of"]) == [1, 2, 4] and 0 <= result["best_of"][4]["gold"] <= 1
    assert {path.name for path in Path(tmp_path / "out").iterdir()} == {"summary.json", "ranked.jsonl"}
