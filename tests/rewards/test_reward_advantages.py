"""A judge that fails at random moves no advantage: what TRL computes, against a computation by hand.

By hand means: from what a judge without failures says of the same completions, without those that were lost. What is
said of a completion whose siblings were lost is then the same as if these had never been sampled.
"""

from statistics import fmean, stdev

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Answer
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.test_trl_trainers import by_hash, rows, text_of, train

GROUPS, SIZE = 4, 4
pytestmark = pytest.mark.slow

ALONE, BESIDE, BY_GROUP, NORMALIZED = "alone", "beside another", "on_failure=group", "normalize_then_sum"
RUNS = [(algorithm, company, 0.1) for algorithm in ("GRPO", "RLOO") for company in (ALONE, BESIDE)]
RUNS += [("GRPO", company, 0.1) for company in (BY_GROUP, NORMALIZED)]
RUNS += [("GRPO", company, 1.0) for company in (ALONE, NORMALIZED)]
"""Algorithm, other rewards, and share of the reads that are lost."""


class Lossy(FakeBackend):
    """Loses this share of the reads, the same ones whenever it is asked."""

    def __init__(self, share: float):
        super().__init__(by_hash)
        self.share = share

    def _read(self, prefix, tail):
        lost = by_hash(prefix + tail, "bad luck") < self.share
        return Answer(None, "timeout") if lost else super()._read(prefix, tail)


def judge(share: float, least: float) -> ChecklistScorer:
    return ChecklistScorer(backend=Lossy(share), store=False, min_answered=least)


def length(completions, **columns) -> list[float]:
    """A second reward, which never fails."""
    return [len(text_of(completion)) / 100 for completion in completions]


def by_hand(samples: list[Sample], share: float, least: float) -> list[float | None]:
    """Mean P(yes) over the items that were not lost; None where more than `least` allows was lost."""
    faultless, lossy = judge(0, least).score_batch(samples), judge(share, least).score_batch(samples)
    found: list[float | None] = []
    for whole, lost in zip(faultless, lossy, strict=True):
        kept = [
            w.probabilities["yes"] for w, line in zip(whole.items, lost.items, strict=True) if line.unanswered is None
        ]
        found.append(fmean(kept) if kept and len(kept) / whole.total >= least else None)
    return found


def groups_of(values: list) -> list[list]:
    return [values[start : start + SIZE] for start in range(0, len(values), SIZE)]


def advantages(algorithm: str, group: list[float | None]) -> list[float]:
    """Among those that exist; 0 for who does not, and for who is alone."""
    there = [value for value in group if value is not None]
    if len(there) < 2:
        return [0.0] * len(group)
    if algorithm == "RLOO":
        baseline = [None if v is None else (sum(there) - v) / (len(there) - 1) for v in group]
        return [0.0 if v is None else v - b for v, b in zip(group, baseline, strict=True)]
    return [0.0 if v is None else (v - fmean(there)) / (stdev(there) + 1e-4) for v in group]


def expected(algorithm: str, company: str, ours: list[list], others: list[list]) -> list[float]:
    if company == NORMALIZED:
        sums = []
        for mine, theirs in zip(ours, others, strict=True):
            terms = advantages("GRPO", mine), advantages("GRPO", theirs)
            sums += [a + b for a, b in zip(*terms, strict=True)]
        return [value / (stdev(sums) + 1e-4) for value in sums]  # their mean is 0: that of every group is
    found: list[float] = []
    for mine, theirs in zip(ours, others, strict=True):
        if company == ALONE:
            found += advantages(algorithm, mine)
        elif None in mine:  # the group abstains: the other reward alone decides
            found += advantages(algorithm, theirs)
        else:
            found += advantages(algorithm, [a + b for a, b in zip(mine, theirs, strict=True)])
    return found


@pytest.mark.parametrize(
    ("algorithm", "company", "share", "least"),
    [(*run, 1.0) for run in RUNS] + [("GRPO", ALONE, 0.1, 0.5)],
)
def test_advantages_are_those_of_what_was_judged(tmp_path, caplog, algorithm, company, share, least):
    reward = ChecklistReward(judge(share, least), on_failure="group" if company == BY_GROUP else "row")
    trainer = train(
        reward if company == ALONE else [reward, length],
        tmp_path,
        algorithm=algorithm,
        per_device_train_batch_size=GROUPS * SIZE,
        num_generations=SIZE,
        max_completion_length=8,
        max_steps=1,
        **({"multi_objective_aggregation": company} if company == NORMALIZED else {}),
    )
    assert trainer.state.global_step == 1
    logs = trainer._logs
    prompts, texts = ([text_of(text) for text in logs[key]] for key in ("prompt", "completion"))
    checklists = {row["prompt"][0]["content"]: row["checklist"] for row in rows(conversational=True)}
    samples = [Sample(checklists[p], text, p) for p, text in zip(prompts, texts, strict=True)]
    assert len(samples) == GROUPS * SIZE and all(len(set(group)) == 1 for group in groups_of(prompts))

    ours = by_hand(samples, share, least)
    assert None in ours or least < 1
    assert (share == 1) == (not any(value is not None for value in ours))
    others = groups_of(length(texts))
    found = list(logs["advantages"])
    assert found == pytest.approx(expected(algorithm, company, groups_of(ours), others), abs=2e-3)
    assert any(found) == (share < 1 or company != ALONE)
    warned = "all completions of their prompts get None" in caplog.text
    assert warned == (company == BESIDE)


def test_a_weight_of_0_adds_a_reward_up_all_the_same(tmp_path):
    rewards = [ChecklistReward(judge(0.04, 1.0)), length]  # some groups lose a read, some do not
    sizes = dict(per_device_train_batch_size=GROUPS * SIZE, num_generations=SIZE, max_completion_length=8)
    trainer = train(rewards, tmp_path, max_steps=1, reward_weights=[1.0, 0.0], **sizes)
    found = groups_of(
        list(zip(trainer._logs["rewards"]["checklist_reward"], trainer._logs["advantages"], strict=True))
    )
    lost = [group for group in found if any(reward != reward for reward, _ in group)]
    assert lost and len(lost) < len(found)
    assert all(advantage == 0 for group in lost for _, advantage in group)
    for group in found:
        if group not in lost:
            assert [a for _, a in group] == pytest.approx(advantages("GRPO", [r for r, _ in group]), abs=2e-3)
