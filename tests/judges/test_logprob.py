"""The one-token judge over an engine that answers at once: mass floor, dedupe, store, failures."""

import math
import pickle
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from checklist_rewards import Checklist, ChecklistItem, ChecklistScorer, Option
from checklist_rewards.backends import Answer, Usage
from checklist_rewards.errors import ChecklistError, ModelError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, LogprobJudge, Receipt
from checklist_rewards.judges.questions import in_order
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.scores.scales import ordinal_scale
from tests.fakes import FakeBackend
from tests.judges.fakes import Labels, Lettered

SHORT, POLITE = ChecklistItem(question="Is it short?"), ChecklistItem(question="Is it polite?")


@pytest.mark.parametrize("p", [0.75, 0.0, 1.0])  # also if one label is impossible
def test_p_yes_is_the_labels_share_and_mass_their_sum(p):
    [verdict] = LogprobJudge(backend=FakeBackend(lambda prefix, tail: p, mass=0.8)).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.probabilities == {"yes": pytest.approx(p), "no": pytest.approx(1 - p)}
    assert verdict.mass == pytest.approx(0.8)
    assert verdict.unanswered is None


@pytest.mark.parametrize(
    "logprobs",
    [
        (-1.0, math.nan),
        (math.nan, -1.0),
        (math.nan, math.nan),
        (math.inf, -1.0),
        (np.float32(-1.0), np.float32("nan")),  # not a float: comparisons of `float` say nothing about it
    ],
)
def test_a_read_that_is_not_finite_is_unanswered_and_not_stored(logprobs, tmp_path):
    class Broken(FakeBackend):
        def _read(self, prefix, tail):
            return Answer(logprobs)

    backend = Broken()
    for _ in range(2):
        [verdict] = LogprobJudge(backend=backend, store=Store(tmp_path / "s.sqlite")).answer([Ask(SHORT, "Hi.")])[0]
        assert verdict.unanswered == "not_finite" and verdict.probabilities is None
        score = score_checklist(Checklist(items=(SHORT,)), [verdict])
        assert score.primary_score is None
    assert len(backend.asked) == 2


def test_an_engine_may_return_an_array():
    class Arrays(FakeBackend):
        def _read(self, prefix, tail):
            return Answer(np.array(super()._read(prefix, tail).logprobs))

    [verdict] = LogprobJudge(backend=Arrays(lambda prefix, tail: 0.75)).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.probabilities == {"yes": pytest.approx(0.75), "no": pytest.approx(0.25)}


@pytest.mark.parametrize("broken", [False, True])
def test_the_seconds_of_the_engine_are_those_of_its_reads(broken, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("checklist_rewards.judges.logprob.time.perf_counter", lambda: now[0])

    def fails(prefix, tail):
        now[0] += 1.5
        return broken

    judge = LogprobJudge(backend=FakeBackend(fails=fails))
    assert judge.answer([Ask(SHORT, "Hi.")])[1].engine_seconds == 1.5


def test_under_the_mass_floor_a_read_is_unanswered_not_half():
    [verdict] = LogprobJudge(backend=FakeBackend(mass=0.3)).answer([Ask(SHORT, "Hi.")])[0]
    assert (verdict.unanswered, verdict.mass) == ("off_label", pytest.approx(0.3))
    assert verdict.probabilities is not None  # what was read is kept
    [verdict] = LogprobJudge(backend=FakeBackend(mass=0.3), mass_floor=0.2).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.unanswered is None


def test_equal_reads_are_asked_once_and_answered_each():
    backend = FakeBackend()
    judge = LogprobJudge(backend=backend)
    verdicts, spent = judge.answer([Ask(SHORT, "Hi."), Ask(SHORT, "Hi."), Ask(POLITE, "Hi."), Ask(SHORT, "Ho.")])
    assert len(verdicts) == 4 and len(backend.asked) == 3
    assert (spent.reads, spent.deduplicated, spent.asked) == (4, 1, 3)


def test_reads_of_a_target_share_one_prefix():
    backend = FakeBackend()
    LogprobJudge(backend=backend).answer([Ask(item, text) for item in (SHORT, POLITE) for text in ("Hi.", "Ho.")])
    [groups] = backend.calls
    assert [len(group.tails) for group in groups] == [2, 2]


def test_a_rerun_asks_nothing_and_a_changed_word_asks_for_that_item_alone(tmp_path):
    first, second = FakeBackend(lambda p, t: 0.9), FakeBackend(lambda p, t: 0.1)
    before = LogprobJudge(backend=first, store=Store(tmp_path / "s")).answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])[
        0
    ]
    judge = LogprobJudge(backend=second, store=Store(tmp_path / "s"))
    kind = ChecklistItem(question="Is it kind?")
    after, spent = judge.answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi."), Ask(kind, "Hi.")])
    assert after[:2] == before
    assert [tail.splitlines()[0] for _, tail in second.asked] == ["Is it kind?"]
    assert (spent.stored, spent.asked) == (2, 1)


def test_another_model_or_another_prompt_is_another_read(tmp_path):
    store = Store(tmp_path / "s")
    LogprobJudge(backend=FakeBackend(identity="one"), store=store).answer([Ask(SHORT, "Hi.")])
    other_model = FakeBackend(identity="two")
    LogprobJudge(backend=other_model, store=store).answer([Ask(SHORT, "Hi.")])
    other_prompt = FakeBackend(identity="one")
    custom = tmp_path / "judge.md"
    custom.write_text("{target}\n{question}\nYes or no?")
    LogprobJudge(backend=other_prompt, store=store, prompt=custom).answer([Ask(SHORT, "Hi.")])
    assert len(other_model.asked) == len(other_prompt.asked) == 1


def test_a_broken_chunk_costs_its_own_reads_and_is_asked_again(tmp_path):
    store = Store(tmp_path / "s")
    reads = [Ask(item, text) for text in ("good", "bad", "fine") for item in (SHORT, POLITE)]
    flaky = FakeBackend(lambda p, t: 0.9, fails=lambda prefix, tail: "bad" in prefix, chunk_reads=2)
    verdicts = LogprobJudge(backend=flaky, store=store).answer(reads)[0]
    assert [v.unanswered for v in verdicts] == [None, None, *["backend_error: the engine broke"] * 2, None, None]
    mended = FakeBackend(lambda p, t: 0.9)
    verdicts = LogprobJudge(backend=mended, store=store).answer(reads)[0]
    assert [v.unanswered for v in verdicts] == [None] * 6
    assert len(mended.asked) == 2


class Dies(FakeBackend):
    """An engine that is killed when it has been asked for more than `left` reads."""

    def __init__(self):
        super().__init__(lambda prefix, tail: 0.9, chunk_reads=512)
        self.left = 0

    def read(self, groups, labels):
        self.left -= sum(len(group.tails) for group in groups)
        if self.left < 0:
            raise KeyboardInterrupt
        return super().read(groups, labels)


@pytest.mark.parametrize("judges", [1, 40], ids=["in one process", "in many"])
def test_a_run_that_is_killed_again_and_again_reaches_its_end(tmp_path, judges):
    reads = [Ask(item, f"text {n}") for n in range(40) for item in (SHORT, POLITE)]
    backend = Dies()
    runs = [LogprobJudge(backend=backend, store=Store(tmp_path / "s")) for _ in range(judges)]
    verdicts = []
    for number in range(40):
        backend.left = 10
        try:
            verdicts = runs[number % judges].answer(reads)[0]
            break
        except KeyboardInterrupt:
            continue
    assert len(verdicts) == len(backend.asked) == len(reads)
    assert {verdict.unanswered for verdict in verdicts} == {None}


def test_without_a_store_an_engine_gets_whole_chunks():
    backend = FakeBackend(chunk_reads=6)
    LogprobJudge(backend=backend).answer([Ask(item, f"text {n}") for n in range(6) for item in (SHORT, POLITE)])
    assert [len(groups) for groups in backend.calls] == [3, 3]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "7",
        "{}",
        '{"logprobs": [-0.1]}',
        '{"logprobs": [-0.1, "x"]}',
        '{"logprobs": [-0.1, NaN]}',
        '{"logprobs": 5}',
        '{"answer": "maybe"}',
        '{"unanswered": null}',
        b"\x00\x01",
    ],
)
def test_a_damaged_answer_is_asked_again_and_replaced(tmp_path, value):
    store = Store(tmp_path / "s")
    reads = [Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")]
    expected = LogprobJudge(backend=FakeBackend(lambda p, t: 0.9), store=store).answer(reads)[0]
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE answers SET value = ? WHERE key = (SELECT max(key) FROM answers)", (value,))
    for asked in (1, 0):
        backend = FakeBackend(lambda p, t: 0.9)
        assert LogprobJudge(backend=backend, store=store).answer(reads)[0] == expected
        assert len(backend.asked) == asked


class _Held(Receipt):
    """A receipt whose additions wait, so that two threads can be caught adding at the same time."""

    entered, go = threading.Semaphore(0), threading.Event()

    def __add__(self, other):
        self.entered.release()
        assert self.go.wait(10)
        return super().__add__(other)


def test_no_receipt_is_lost_where_two_threads_judge():
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    scorer._bill.receipt = _Held()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(scorer.score, ["Is it short?"], text) for text in ("one", "two")]
        assert _Held.entered.acquire(timeout=10)
        together = _Held.entered.acquire(timeout=0.2)
        _Held.go.set()
        for call in calls:
            call.result(10)
    assert not together
    assert scorer.receipt.reads == scorer.receipt.calls == 2


def test_a_read_that_is_too_long_says_so_and_spoils_no_neighbour(tmp_path):
    backend = FakeBackend(lambda prefix, tail: None if "polite" in tail else 0.9)
    store = Store(tmp_path / "s")
    for _ in range(2):  # from the engine, then from the store
        verdicts = LogprobJudge(backend=backend, store=store).answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])[0]
        assert [v.unanswered for v in verdicts] == [None, "too_long"]
    assert len(backend.asked) == 2


def test_progress_adds_up_to_the_reads(tmp_path):
    seen: list[int] = []
    reads = [Ask(item, text) for text in ("a", "b", "a") for item in (SHORT, POLITE)]
    LogprobJudge(backend=FakeBackend(chunk_reads=2)).answer(reads, seen.append)
    assert sum(seen) == len(reads) and min(seen) > 0 and len(seen) == 3


CLEAR = ChecklistItem(question="How clear is it?", options=ordinal_scale(3))
TONE = ChecklistItem(
    question="What is its tone?",
    options=(Option(label="rude", value=0), Option(label="kind", value=1), Option(label="cannot_assess", na=True)),
)


def test_options_are_read_exactly_each_set_of_labels_in_calls_of_its_own():
    backend = Labels({"0": 0.1, "1": 0.3, "2": 0.6, "yes": 0.9, "no": 0.1})
    verdicts = LogprobJudge(backend=backend).answer([Ask(CLEAR, "Hi."), Ask(SHORT, "Hi."), Ask(CLEAR, "Ho.")])[0]
    assert verdicts[0].probabilities == pytest.approx({"0": 0.1, "1": 0.3, "2": 0.6})
    assert verdicts[1].probabilities == pytest.approx({"yes": 0.9, "no": 0.1})
    assert {verdict.method for verdict in verdicts} == {"logprobs"}
    assert [(labels, sum(len(group.tails) for group in groups)) for labels, groups in backend.read_calls] == [
        (("0", "1", "2"), 2),
        (("yes", "no"), 1),
    ]


def test_labels_that_are_no_single_characters_are_lettered_in_the_question():
    shares = {"rude": 0.2, "kind": 0.1, "cannot_assess": 0.7}
    backend = Lettered(lambda shown: {letter: shares[label] for letter, label in shown.items()})
    [verdict] = LogprobJudge(backend=backend).answer([Ask(TONE, "Hi.")])[0]
    assert verdict.probabilities == pytest.approx(shares)
    assert list(verdict.probabilities) == ["rude", "kind", "cannot_assess"]  # as the item has them
    [(_, tail)] = backend.asked
    assert tail.startswith("What is its tone?\n\nPossible answers:\nA. ") and "\n\nReply with one" in tail
    score = score_checklist(Checklist(items=(TONE, SHORT)), [verdict, Verdict(answer="yes")])
    assert score.items[0].answer == "cannot_assess" and score.answered == 2


def test_an_option_read_is_stored_and_other_labels_are_another_read(tmp_path):
    store = Store(tmp_path / "s")
    first = LogprobJudge(backend=Labels({"0": 0.1, "1": 0.3, "2": 0.6}), store=store).answer([Ask(CLEAR, "Hi.")])[0]
    again = Labels({})
    assert LogprobJudge(backend=again, store=store).answer([Ask(CLEAR, "Hi.")])[0] == first
    assert again.read_calls == []
    wider = ChecklistItem(question=CLEAR.question, options=ordinal_scale(5))
    LogprobJudge(backend=again, store=store).answer([Ask(wider, "Hi.")])
    assert [labels for labels, _ in again.read_calls] == [("0", "1", "2", "3", "4")]


def test_a_server_without_logprobs_answers_in_a_word_and_the_verdict_says_so(tmp_path):
    class Word(FakeBackend):
        def read(self, groups, labels):
            return [Answer(label=labels[0]) for group in groups for _ in group.tails], Usage()

    for backend in (Word(), FakeBackend(fails=lambda *_: True)):  # asked, then from the store
        [verdict] = LogprobJudge(backend=backend, store=Store(tmp_path / "s")).answer([Ask(TONE, "Hi.")])[0]
        first = in_order(TONE, "Hi.", "pocket", lettered=True)[0]
        assert (verdict.answer, verdict.method) == (first, "word")
        assert verdict.probabilities is verdict.mass is verdict.unanswered is None


def test_items_that_cannot_be_read_in_one_token_are_refused_by_name():
    judge = LogprobJudge(backend=FakeBackend())
    judge.check_item(TONE, "row 1")
    long = ChecklistItem(question="How?", options=ordinal_scale(101))
    with pytest.raises(ChecklistError, match=rf"row 2, item {long.id} .*101 options are too many .*allows 20"):
        judge.check_item(long, "row 2")
    with pytest.raises(ChecklistError, match="row 3, item .*code check"):
        judge.check_item(ChecklistItem(question="a?", check="{}"), "row 3")


def test_a_receipt_counts_calls_and_tokens_and_what_they_cost(tmp_path):
    class Counting(FakeBackend):
        def read(self, groups, labels):
            answers, usage = super().read(groups, labels)
            return answers, replace(usage, prompt_tokens=1000)

    store = Store(tmp_path / "s")
    judge = LogprobJudge("judge-1", backend=Counting(), store=store)
    _, receipt = judge.answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])
    assert (receipt.calls, receipt.prompt_tokens, receipt.completion_tokens) == (2, 1000, 2)
    assert receipt.cost({"judge-1": (2.0, 8.0)}) == pytest.approx((1000 * 2 + 2 * 8) / 1e6)
    assert receipt.cost({}) is None and Receipt().cost({}) == 0
    assert judge.answer([Ask(SHORT, "Hi.")])[1].cost({}) == 0  # from the store
    both = receipt + Receipt.of("other", prompt_tokens=10, completion_tokens=5)
    assert both.tokens == {"judge-1": (1000, 2), "other": (10, 5)}
    assert both.cost({"judge-1": (2.0, 8.0)}) is None


def test_the_pocket_judge_reads_a_scale_in_one_token(pocket):
    judge = LogprobJudge("pocket", backend=pocket, mass_floor=0)
    [verdict] = judge.answer([Ask(ChecklistItem(question="Is it short?", options=ordinal_scale(10)), "Hi.")])[0]
    assert list(verdict.probabilities) == list("0123456789")
    assert math.fsum(verdict.probabilities.values()) == pytest.approx(1)


def test_a_model_that_is_not_there_is_refused_before_anything_is_asked():
    for name in ("./no/such/model", "/no/such/model", "a/b/c", "nonsense"):
        with pytest.raises(ModelError, match="model not found"):
            LogprobJudge(name).validate()


def test_a_judge_pickles_as_configuration(tmp_path):
    judge = pickle.loads(pickle.dumps(LogprobJudge("pocket", backend="transformers", store=Store(tmp_path / "s"))))
    assert judge.prompt.name.endswith("item.md") and judge.store.path == tmp_path / "s"


def test_a_receipt_says_what_was_left_unanswered_and_only_then():
    plain = "3 reads: 3 asked, 0 from the store, 0 duplicates"
    assert str(Receipt(reads=3, asked=3)) == plain
    assert str(Receipt(reads=3, asked=3, unanswered=2)) == f"{plain}, 2 unanswered"
