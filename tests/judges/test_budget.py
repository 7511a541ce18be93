"""A budget stops a run cleanly: nothing is asked once it is spent, and more money goes on from there."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import LabelRead, ReadResult, Sampling, is_transient
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.budget import Budget, Budgeted
from checklist_rewards.replies import Engine
from checklist_rewards.store import open_store
from tests.fakes import FakeBackend
from tests.judges.fakes import Script

PRICES = {"m": (1.0, 2.0)}


class Priced(FakeBackend):
    """10 prompt tokens per read; yes to everything."""

    def read(self, groups, labels):
        self.calls.append(list(groups))
        reads = [(LabelRead((-0.1, -2.4)),) * len(group.tails) for group in groups]
        return ReadResult(reads, prompt_tokens=10 * sum(map(len, reads)))


def scorer(engine, budget, store):
    budgeted = Budgeted(Engine("m", engine), budget)
    budgeted.chunk_reads = 2
    return ChecklistScorer("m", backend=budgeted, store=store, min_answered=0)


def samples():
    return [Sample(["One?", "Two?"], f"text {number}") for number in range(3)]


def test_reads_stop_where_the_money_ends_and_go_on_with_more(tmp_path):
    engine, store = Priced(), open_store(tmp_path / "store.sqlite")
    budget = Budget(40e-6, PRICES)  # a chunk of two reads is 20 prompt tokens and 2 labels: 24e-6
    scores = scorer(engine, budget, store).score_batch(samples())
    assert sorted(score.answered for score in scores) == [0, 2, 2]
    [missing] = [score for score in scores if score.answered == 0]
    assert missing.items[0].unanswered == "budget: 4.8e-05 of 4e-05 US dollars are spent"
    assert missing.primary_score is None
    assert budget.spent == pytest.approx(48e-6) and len(engine.calls) == 2

    again = scorer(engine, Budget(1, PRICES), store).score_batch(samples())
    assert [score.answered for score in again] == [2, 2, 2]
    assert len(engine.calls) == 3  # the first four came from the store


def test_no_money_asks_nothing_but_gives_what_the_store_has(tmp_path):
    engine, store = Priced(), open_store(tmp_path / "store.sqlite")
    scorer(engine, Budget(1, PRICES), store).score_batch(samples()[:1])
    scores = scorer(engine, Budget(0, PRICES), store).score_batch(samples())
    assert [score.answered for score in scores] == [2, 0, 0] and len(engine.calls) == 1


def test_replies_are_paid_too():
    budget = Budget(100e-6, PRICES)
    engine = Budgeted(Engine("m", Script(lambda messages: "fine")), budget)  # 100 prompt and 10 reply tokens: 120e-6
    prompt = [{"role": "user", "content": "Hello"}]
    assert engine.generate([prompt], Sampling(10, 0.0))[0][0].text == "fine"
    [[reply]] = engine.generate([prompt], Sampling(10, 0.0))
    assert reply.text is None and is_transient(reply.unanswered)
    assert budget.spent == pytest.approx(120e-6)


@pytest.mark.parametrize("dollars", [-1, float("nan"), float("inf"), True])
def test_a_budget_is_a_sum_of_money(dollars):
    with pytest.raises(SampleError, match="from 0 up"):
        Budget(dollars, PRICES)


def test_a_model_without_a_price_is_refused():
    with pytest.raises(SampleError, match="there is none of 'other'"):
        Budgeted(Engine("other", Priced()), Budget(1, PRICES))
