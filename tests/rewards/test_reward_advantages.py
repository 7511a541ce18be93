"""A judge that fails at random moves no advantage: what TRL computes, against a computation by hand.

By hand means: from what a judge without failures says of the same completions, without those that were lost. What is
said of a completion whose siblings were lost is then the same as if these had never been sampled.
"""

from statistics import fmean, stdev

import pytest

from checklist_rewards import Sample
from checklist_rewards.backends import Answer
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.fakes import by_hash, scorer_by, text_of
from tests.rewards.test_trl_trainers import rows, train

GROUPS, SIZE = 4, 4
pytestmark = pytest.mark.slow

ALONE, BESIDE, BY_GROUP, NORMALIZED = "alone", "beside another", "on_failure=group", "normalize_then_sum"


class Lossy(FakeBackend):
    """Loses this share of the reads, the same ones whenever it is asked."""

    def __init__(self, share: float):
        super().__init__(by_hash)
        self.share = share

    def _read(self, prefix, tail):
        lost = by_hash(prefix + tail, "bad luck") < self.share
        return Answer(None, "timeout") if lost else super()._read(prefix, tail)


def length(completions, **columns) -> list[float]:
    """A second reward, which never fails."""
    return [len(text_of(completion)) / 100 for completion in completions]


def by_hand(samples: list[Sample], share: float, least: float) -> list[float | None]:
    """Mean P(yes) over the items that were not lost; None where more than `least` allows was lost."""
    faultless, lossy = (scorer_by(Lossy(lost), min_answered=least).score_batch(samples) for lost in (0, share))
    found: list[float | None] = []
    for whole, lost in zip(faultless, lossy, strict=True):
        kept = [
            w.probabilities["yes"] for w, line in zip(whole.items, lost.items, strict=True) if line.unanswered is None
        ]
        found.append(fmean(kept) if kept and len(kept) / whole.total >= least else None)
    return found


def in_groups(values) -> list[list]:
    values = list(values)
    return [values[start : start + SIZE] for start in range(0, len(values), SIZE)]


def advantages(group: list[float | None], algorithm: str = "GRPO") -> list[float]:
    """Among those that exist; 0 for who does not, and for who is alone."""
    there = [value for value in group if value is not None]
    if len(there) < 2:
        return [0.0] * len(group)
    if algorithm == "RLOO":
        baseline = [None if v is None else (sum(there) - v) / (len(there) - 1) for v in group]
        return [0.0 if v is None else v - b for v, b in zip(group, baseline, strict=True)]
    return [0.0 if v is None else (v - fmean(there)) / (stdev(there) + 1e-4) for v in group]


def normalized_sums(columns: list[list[list[float | None]]], weights: list[float]) -> list[float]:
    """`normalize_then_sum` of several rewards, each in groups. The mean is 0: that of every group is."""
    pairs = zip(columns, weights, strict=True)
    terms = [[weight * value for group in column for value in advantages(group)] for column, weight in pairs]
    sums = [sum(row) for row in zip(*terms, strict=True)]
    return [value / (stdev(sums) + 1e-4) for value in sums]


def expected(algorithm: str, company: str, ours: list[list], others: list[list]) -> list[float]:
    if company == NORMALIZED:
        return normalized_sums([ours, others], [1.0, 1.0])
    found: list[float] = []
    for mine, theirs in zip(ours, others, strict=True):
        if company == ALONE:
            found += advantages(mine, algorithm)
        elif None in mine:  # the group abstains: the other reward alone decides
            found += advantages(theirs, algorithm)
        else:
            found += advantages([a + b for a, b in zip(mine, theirs, strict=True)], algorithm)
    return found


def trained(rewards, folder, **options):
    """A trainer after a step with four groups, and its samples."""
    sizes = dict(per_device_train_batch_size=GROUPS * SIZE, num_generations=SIZE, max_completion_length=8)
    trainer = train(rewards, folder, max_steps=1, **sizes, **options)
    assert trainer.state.global_step == 1
    prompts, texts = ([text_of(text) for text in trainer._logs[key]] for key in ("prompt", "completion"))
    checklists = {text_of(row["prompt"]): row["checklist"] for row in rows(conversational=True)}
    samples = [Sample(checklists[prompt], text, prompt) for prompt, text in zip(prompts, texts, strict=True)]
    assert len(samples) == GROUPS * SIZE and all(len(set(group)) == 1 for group in in_groups(prompts))
    return trainer, samples


@pytest.mark.parametrize(
    ("algorithm", "company", "share", "least"),
    [
        ("GRPO", ALONE, 0.1, 1.0),
        ("GRPO", ALONE, 0.1, 0.5),
        ("GRPO", ALONE, 1.0, 1.0),
        ("RLOO", ALONE, 0.1, 1.0),
        ("GRPO", BESIDE, 0.1, 1.0),
        ("RLOO", BESIDE, 0.1, 1.0),
        ("GRPO", BY_GROUP, 0.1, 1.0),
        ("GRPO", NORMALIZED, 0.1, 1.0),
        ("GRPO", NORMALIZED, 1.0, 1.0),
    ],
)
def test_advantages_are_those_of_what_was_judged(tmp_path, caplog, algorithm, company, share, least):
    judge = scorer_by(Lossy(share), min_answered=least)
    reward = ChecklistReward(judge, on_failure="group" if company == BY_GROUP else "row")
    trainer, samples = trained(
        reward if company == ALONE else [reward, length],
        tmp_path,
        algorithm=algorithm,
        **({"multi_objective_aggregation": company} if company == NORMALIZED else {}),
    )
    ours = by_hand(samples, share, least)
    assert None in ours or least < 1
    others = in_groups(length([sample.target for sample in samples]))
    found = list(trainer._logs["advantages"])
    assert found == pytest.approx(expected(algorithm, company, in_groups(ours), others), abs=2e-3)
    assert any(found) == (share < 1 or company != ALONE)
    if company == ALONE:
        assert trainer.state.log_history[0]["checklist_reward/unscored"] == pytest.approx(ours.count(None) / len(ours))
    warned = "all completions of their prompts get None" in caplog.text
    assert warned == (company == BESIDE)


def test_a_weight_of_0_adds_a_reward_up_all_the_same(tmp_path):
    lossy = scorer_by(Lossy(0.04), min_answered=1.0)  # some groups lose a read, some do not
    trainer, _ = trained([ChecklistReward(lossy), length], tmp_path, reward_weights=[1.0, 0.0])
    ours, found = (
        in_groups(values) for values in (trainer._logs["rewards"]["checklist_reward"], trainer._logs["advantages"])
    )
    lost = [any(reward != reward for reward in group) for group in ours]
    assert 0 < sum(lost) < GROUPS
    for is_lost, rewards, values in zip(lost, ours, found, strict=True):
        assert values == ([0.0] * SIZE if is_lost else pytest.approx(advantages(rewards), abs=2e-3))
