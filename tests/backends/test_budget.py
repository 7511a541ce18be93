"""A budget: never more is spent than allowed, what is missing is listed, and more money goes on from there."""

import pickle

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Answer, Engine, ReadGroup, Reply, Sampling, Usage, is_transient
from checklist_rewards.backends.budget import Budget
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.tokens import TextEncoder
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.files.store import open_store
from checklist_rewards.judges.remote import RewardServer
from checklist_rewards.pipelines import pipeline
from tests.backends.answers import LABELS, user
from tests.fakes import FakeBackend
from tests.judges.fakes import Script

PRICES = {"m": (1.0, 2.0)}
HUNDRED = [ReadGroup(None, "", tuple(f"{n:072}" for n in range(100)))]
"""Reads of 72 bytes: with the template at most 200 tokens, and 2 for the label."""
AT_MOST = 202e-6


class Priced(FakeBackend):
    """Yes to everything, at so many prompt tokens per read."""

    def __init__(self, bill=10):
        super().__init__()
        self.bill = bill

    def read(self, groups, labels):
        self.calls.append(list(groups))
        answers = [Answer((-0.1, -2.4)) for group in groups for _ in group.tails]
        return answers, Usage(self.bill * len(answers))


def read(engine, budget, groups=HUNDRED, model="m"):
    answers, _ = budget.limited(Engine(model, engine)).read(groups, LABELS)
    return [answer.unanswered for answer in answers]


def samples():
    return [Sample(["One?", "Two?"], f"text {number}") for number in range(3)]


@pytest.mark.parametrize("bill", [1, 50, 199, 200])
def test_calls_are_cut_so_that_the_limit_is_never_passed_and_hardly_anything_is_left(bill):
    engine, budget = Priced(bill), Budget(5000e-6, PRICES)
    reasons = read(engine, budget)
    asked = reasons.count(None)
    assert budget.spent == pytest.approx(asked * (bill + 2) * 1e-6) and budget.overshoot == 0
    assert asked == 100 or 5000e-6 - AT_MOST < budget.spent <= 5000e-6
    assert reasons[:asked] == [None] * asked and sum(len(g.tails) for call in engine.calls for g in call) == asked
    if asked < 100:
        assert all(is_transient(reason) for reason in reasons[asked:])
        assert reasons[-1] == (
            f"budget: {budget.spent:.4g} of 0.005 US dollars are spent, and the next call may cost 0.000202"
        )
    engine = Priced(bill)
    assert read(engine, Budget(100 * AT_MOST, PRICES)) == [None] * 100 and len(engine.calls) == 1  # all of it fits


def test_a_bill_above_its_bound_is_an_overshoot_and_raises_the_next_bounds():
    budget = Budget(20_000e-6, PRICES)
    engine = budget.limited(Engine("m", Priced(2000)))
    engine.read([ReadGroup(None, "", HUNDRED[0].tails[:1])], LABELS)
    assert budget.overshoot == 0
    reads, _ = engine.read(HUNDRED, LABELS)
    assert sum(entry.unanswered is None for entry in reads) == 8 and budget.overshoot == 0
    tight = Budget(1000e-6, PRICES)
    assert read(Priced(2000), tight).count(None) == 4  # as many as should have fitted
    assert tight.overshoot == pytest.approx(4 * 2002e-6 - 1000e-6)


def test_a_server_that_bills_nothing_is_counted_at_the_bound(fault_server):
    budget = Budget(1.0, {"no_usage": (1.0, 2.0)})
    engine = budget.limited(Engine("no_usage", OpenAIBackend("no_usage", fault_server)))
    engine.read([ReadGroup(None, "Fine. ", ("Is it fine (yes)?",))], LABELS)
    spent = budget.spent
    assert spent == pytest.approx((2 * (6 + 17 + 128) + 2) * 1e-6)
    engine.generate([user("JSON")], Sampling(10))
    assert budget.spent > spent + 132e-6


def test_the_tokenizer_counts_the_prompts_where_there_is_one(pocket, monkeypatch):
    prices = {"pocket": (1.0, 0.0)}
    group = [ReadGroup("Be fair.", "A text of some words. ", ("Is it short?", "Is it long?"))]
    exact = pocket.read(group, LABELS)[1].prompt_tokens
    texts, data = [], TextEncoder.data
    monkeypatch.setattr(TextEncoder, "data", lambda *given: texts.extend(given[1]) or data(*given))
    assert read(pocket, Budget(exact * 1e-6, prices), group, "pocket") == [None, None]
    assert sum("A text of some" in text for text in texts) == 1  # the engine does not tokenize it again
    assert read(pocket, Budget((exact - 1) * 1e-6, prices), group, "pocket")[1] is not None


def test_reads_stop_where_the_money_ends_and_go_on_with_more(tmp_path):
    engine, store = Priced(200), open_store(tmp_path / "store.sqlite")
    budget = Budget(700e-6, PRICES)
    scores = scorer(engine, budget, store).score_batch(samples())
    answered = sum(score.answered for score in scores)
    assert 0 < answered < 6 and budget.spent == pytest.approx(answered * 202e-6)

    again = scorer(engine, Budget(1, PRICES), store).score_batch(samples())
    assert [score.answered for score in again] == [2, 2, 2]
    assert sum(len(group.tails) for call in engine.calls for group in call) == 6  # the first came from the store


def scorer(engine, budget, store):
    return ChecklistScorer("m", backend=engine, budget=budget, store=store, min_answered=0)


def test_no_money_builds_no_engine_but_gives_what_the_store_has(tmp_path):
    class Unbuilt(FakeBackend):
        def read(self, groups, labels):
            raise AssertionError("asked")

    store = open_store(tmp_path / "store.sqlite")
    scorer(Priced(), Budget(1, PRICES), store).score_batch(samples()[:1])
    scores = scorer(Unbuilt(), Budget(0, PRICES), store).score_batch(samples())
    assert [score.answered for score in scores] == [2, 0, 0]
    assert scores[1].items[0].unanswered == "budget: 0 of 0 US dollars are spent"


def test_replies_are_paid_too_and_arrive_under_their_own_places():
    budget, seen = Budget(700e-6, PRICES), []
    engine = budget.limited(Engine("m", Script(lambda messages: "fine")))  # billed 100 and 10 tokens: 120e-6
    prompts = [user(f"{n:072}") for n in range(9)]  # at most 200 and 100 tokens: 400e-6
    replies = engine.generate(prompts, Sampling(100), lambda place, found: seen.append(place))
    assert [reply.text for [reply] in replies] == ["fine"] * 3 + [None] * 6
    assert budget.spent == pytest.approx(360e-6) and is_transient(replies[3][0].unanswered)


def test_an_engine_that_breaks_is_paid_for_what_had_arrived():
    class Breaks(FakeBackend):
        def generate(self, prompts, sampling, arrived=None):
            arrived(0, [Reply("fine", "stop", None, 100, 10)])
            raise BackendError("the engine broke")

    budget, seen = Budget(1.0, PRICES), []
    engine = budget.limited(Engine("m", Breaks()))
    with pytest.raises(BackendError):
        engine.generate([user("a"), user("b")], Sampling(10), lambda place, found: seen.append(place))
    assert seen == [0] and budget.spent == pytest.approx(120e-6)
    assert budget.reserve([0.9998]) == 1  # what was set aside for the call is free again


def test_an_engine_that_breaks_later_costs_only_the_reads_it_was_asked_then():
    class BreaksLater(Priced):
        def read(self, groups, labels):
            if self.calls:
                raise BackendError("the engine broke")
            return super().read(groups, labels)

    engine = BreaksLater()
    assert read(engine, Budget(50 * AT_MOST, PRICES)) == [None] * 50 + ["backend_error: the engine broke"] * 50
    with pytest.raises(BackendError):  # as without a budget: the judge says what it was that was lost
        read(engine, Budget(1, PRICES))


def test_what_is_set_aside_for_one_call_is_not_there_for_another():
    budget = Budget(2.0, PRICES)
    assert budget.reserve([1.0, 1.0, 1.0]) == 2 and budget.reserve([0.5]) == 0
    budget.settle(2.0, 0.5)
    assert budget.reserve([1.5]) == 1 and budget.spent == 0.5


def test_a_scorer_takes_a_budget_or_its_settings():
    settings = {"dollars": 1, "prices": {"m": [1.0, 2.0]}}
    assert ChecklistScorer("m", backend=Priced(), budget=settings, store=False).score(["One?"], "text").answered == 1
    copied = pickle.loads(pickle.dumps(Budget.of(settings)))
    assert (copied.dollars, copied.prices, copied.reserve([1.0])) == (1, {"m": (1.0, 2.0)}, 1)


def test_the_models_of_a_pipeline_share_its_budget():
    budget = Budget(1.0, PRICES)
    engine = Script(lambda messages: "1. Is it short?\n2. Is it kind?\n")
    pipe = pipeline(model="m", backend=engine, budget=budget, store=False, scorer={"mode": "item"})
    [result] = pipe.run_batch([{"input": "Write.", "target": "A text."}])
    assert result.score.answered == 2 and budget.spent > 120e-6  # the reply, and two reads
    with pytest.raises(SampleError, match="'other' has none"):
        pipeline(model="other", backend=engine, budget=budget, store=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": {"dollars": 5}}, "is not allowed"),
        ({"backend": RewardServer("http://localhost:9"), "budget": Budget(5, {})}, r"budget=Budget\(5, \{\}\)"),
        ({"judge": FakeBackend, "budget": Budget(5, {})}, "cannot limit a judge object|is not allowed"),
    ],
)
def test_a_budget_that_cannot_hold_is_refused(arguments, words):
    with pytest.raises(SampleError, match=words):
        ChecklistScorer("m", **{"backend": Priced(), "store": False} | arguments)


@pytest.mark.parametrize("dollars", [-1, float("nan"), float("inf"), True])
def test_a_budget_is_a_sum_of_money(dollars):
    with pytest.raises(SampleError, match=">= 0"):
        Budget(dollars, PRICES)
