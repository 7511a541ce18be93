"""The one-token judge over an engine that answers at once: mass floor, dedupe, store, failures."""

import math
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Answer, Engine, ReadGroup, Usage
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.store import Store, key_of
from checklist_rewards.judges import Ask, LogprobJudge, Receipt
from checklist_rewards.judges.logprob import Pace, Read, chunks, group_by_prefix
from checklist_rewards.judges.questions import in_order
from checklist_rewards.scores.scales import ordinal_scale
from tests.fakes import FakeBackend
from tests.judges.fakes import POLITE, SHORT, TONE, Labels, Lettered, answers

CLEAR = ChecklistItem(question="How clear is it?", options=ordinal_scale(3))
KIND = ChecklistItem(question="Is it kind?")


def sure(**settings) -> FakeBackend:
    return FakeBackend(lambda prefix, tail: 0.9, **settings)


class Given(FakeBackend):
    """Gives these log-probabilities."""

    def __init__(self, logprobs):
        super().__init__()
        self.logprobs = logprobs

    def _read(self, prefix, tail):
        return Answer(self.logprobs)


@pytest.mark.parametrize("p", [0.75, 0.0])  # also if one label is impossible
def test_p_yes_is_the_labels_share_and_mass_their_sum(p):
    [verdict] = answers(LogprobJudge(FakeBackend(lambda prefix, tail: p, mass=0.8)), SHORT)
    assert verdict.probabilities == {"yes": pytest.approx(p), "no": pytest.approx(1 - p)}
    assert verdict.mass == pytest.approx(0.8) and verdict.unanswered is None
    [refused] = answers(LogprobJudge(FakeBackend(lambda prefix, tail: p, mass=0.8), mass_floor=0.9), SHORT)
    assert refused == replace(verdict, unanswered="off_label")  # what was read is kept
    assert LogprobJudge(FakeBackend()).mass_floor == 0.5


@pytest.mark.parametrize("logprobs", [(-1.0, math.nan), (math.inf, -1.0), np.float32([-1.0, math.nan])])
def test_a_read_that_is_not_finite_is_unanswered_and_not_stored(logprobs, tmp_path):
    backend = Given(logprobs)
    for _ in range(2):
        [verdict] = answers(LogprobJudge(backend, store=Store(tmp_path / "s.sqlite")), SHORT)
        assert verdict.unanswered == "not_finite" and verdict.probabilities is None
    assert len(backend.asked) == 2


def test_the_seconds_of_the_engine_are_those_of_its_reads_also_of_broken_ones(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("checklist_rewards.judges.logprob.time.perf_counter", lambda: now[0])

    def fails(prefix, tail):
        now[0] += 1.5
        return "bad" in prefix

    judge = LogprobJudge(FakeBackend(fails=fails, chunk_reads=1))
    assert judge.answer([Ask(SHORT, "good"), Ask(SHORT, "bad")])[1].engine_seconds == 3.0


def test_equal_reads_are_asked_once_and_answered_each_and_those_of_a_target_share_one_prefix():
    backend, seen = FakeBackend(), []
    reads = [Ask(SHORT, "Hi."), Ask(SHORT, "Hi."), Ask(POLITE, "Hi."), Ask(SHORT, "Ho."), Ask(POLITE, "Ho.")]
    verdicts, spent = LogprobJudge(backend).answer(reads, seen.append)
    assert len(verdicts) == sum(seen) == 5 and (spent.reads, spent.deduplicated, spent.asked) == (5, 1, 4)
    [groups] = backend.calls  # without a store, in whole chunks
    assert [len(group.tails) for group in groups] == [2, 2]


def test_a_rerun_asks_nothing_and_what_has_changed_is_another_read(tmp_path):
    def reads(*items, backend, **settings):
        judge = LogprobJudge(backend, store=Store(tmp_path / "s"), **settings)
        return judge.answer([Ask(item, "Hi.") for item in items])

    before, _ = reads(SHORT, POLITE, backend=sure())
    second = FakeBackend()
    after, spent = reads(SHORT, POLITE, KIND, backend=second)
    assert after[:2] == before and (spent.stored, spent.asked) == (2, 1)
    assert [tail.splitlines()[0] for _, tail in second.asked] == ["Is it kind?"]
    custom = tmp_path / "judge.md"
    custom.write_text("{target}\n{question}\nYes or no?")
    for backend, settings in ((FakeBackend(identity="two"), {}), (FakeBackend(), {"prompt": custom})):
        reads(SHORT, backend=backend, **settings)
        assert len(backend.asked) == 1

    backend = Labels({"0": 0.1, "1": 0.3, "2": 0.6, "yes": 0.9, "no": 0.1})
    (clear, kind), _ = reads(CLEAR, ChecklistItem(question="Is it new?"), backend=backend)
    assert clear.probabilities == pytest.approx({"0": 0.1, "1": 0.3, "2": 0.6})
    assert kind.probabilities == pytest.approx({"yes": 0.9, "no": 0.1})
    assert {labels for labels, _ in backend.read_calls} == {("0", "1", "2"), ("yes", "no")}  # in calls of their own
    again = Labels({})
    assert reads(CLEAR, backend=again)[0] == [clear] and again.read_calls == []
    reads(ChecklistItem(question=CLEAR.question, options=ordinal_scale(5)), backend=again)
    assert [labels for labels, _ in again.read_calls] == [("0", "1", "2", "3", "4")]


def test_a_broken_chunk_costs_its_own_reads_and_is_asked_again(tmp_path):
    store = Store(tmp_path / "s")
    reads = [Ask(item, text) for text in ("good", "bad", "fine") for item in (SHORT, POLITE)]
    flaky = sure(fails=lambda prefix, tail: "bad" in prefix, chunk_reads=2)
    verdicts = LogprobJudge(flaky, store=store).answer(reads)[0]
    assert [v.unanswered for v in verdicts] == [None, None, *["backend_error: the engine broke"] * 2, None, None]
    repaired = sure()
    verdicts = LogprobJudge(repaired, store=store).answer(reads)[0]
    assert [v.unanswered for v in verdicts] == [None] * 6 and len(repaired.asked) == 2


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
    backend, verdicts = Dies(), []
    runs = [LogprobJudge(backend, store=Store(tmp_path / "s")) for _ in range(judges)]
    for number in range(40):
        backend.left = 10
        with suppress(KeyboardInterrupt):
            verdicts = runs[number % judges].answer(reads)[0]
            break
    assert len(verdicts) == len(backend.asked) == len(reads)
    assert {verdict.unanswered for verdict in verdicts} == {None}


DAMAGED = ["", "7", "{}", '{"answer": "maybe"}', b"\x00\x01"]
DAMAGED += [f'{{"logprobs": {listed}}}' for listed in ("[-0.1]", '[-0.1, "x"]', "[-0.1, NaN]", "5")]


@pytest.mark.parametrize("value", DAMAGED)
def test_a_damaged_answer_is_asked_again_and_replaced(tmp_path, value):
    store = Store(tmp_path / "s")
    expected = answers(LogprobJudge(sure(), store=store), SHORT, POLITE)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE answers SET value = ? WHERE key = (SELECT max(key) FROM answers)", (value,))
    for asked in (1, 0):
        backend = sure()
        assert answers(LogprobJudge(backend, store=store), SHORT, POLITE) == expected
        assert len(backend.asked) == asked


def test_no_receipt_is_lost_where_two_threads_judge():
    entered, go = threading.Semaphore(0), threading.Event()

    class Held(Receipt):
        """A receipt whose additions wait, so that two threads can be caught adding at the same time."""

        def __add__(self, other):
            entered.release()
            assert go.wait(10)
            return super().__add__(other)

    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    scorer._bill.receipt = Held()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(scorer.score, ["Is it short?"], text) for text in ("one", "two")]
        assert entered.acquire(timeout=10)
        together = entered.acquire(timeout=0.2)
        go.set()
        for call in calls:
            call.result(10)
    assert not together and scorer.receipt.reads == scorer.receipt.calls == 2


def test_a_read_that_is_too_long_says_so_and_spoils_no_neighbour(tmp_path):
    backend = FakeBackend(lambda prefix, tail: None if "polite" in tail else 0.9)
    store = Store(tmp_path / "s")
    for _ in range(2):  # from the engine, then from the store
        verdicts = answers(LogprobJudge(backend, store=store), SHORT, POLITE)
        assert [v.unanswered for v in verdicts] == [None, "too_long"]
    assert len(backend.asked) == 2


def test_labels_that_are_no_single_characters_are_lettered_in_the_question():
    shares = {"rude": 0.2, "kind": 0.1, "cannot_assess": 0.7}
    backend = Lettered(lambda shown: {letter: shares[label] for letter, label in shown.items()})
    [verdict] = answers(LogprobJudge(backend), TONE)
    assert verdict.probabilities == pytest.approx(shares)
    assert list(verdict.probabilities) == ["rude", "kind", "cannot_assess"]  # as the item has them
    [(_, tail)] = backend.asked
    assert tail.startswith("Tone?\n\nPossible answers:\nA. ") and "\n\nReply with one" in tail


def test_a_server_without_logprobs_answers_in_a_word_and_the_verdict_says_so(tmp_path):
    class Word(FakeBackend):
        def read(self, groups, labels):
            return [Answer(label=labels[0]) for group in groups for _ in group.tails], Usage()

    for backend in (Word(), FakeBackend(fails=lambda *_: True)):  # asked, then from the store
        [verdict] = answers(LogprobJudge(backend, store=Store(tmp_path / "s")), TONE)
        assert (verdict.answer, verdict.method) == (in_order(TONE, "Hi.", "pocket", lettered=True)[0], "word")
        assert verdict.probabilities is verdict.mass is verdict.unanswered is None


def test_items_that_cannot_be_read_in_one_token_are_refused_by_name():
    judge = LogprobJudge(FakeBackend())
    judge.check_item(TONE, "row 1")
    long = ChecklistItem(question="How?", options=ordinal_scale(101))
    with pytest.raises(ChecklistError, match=rf"row 2, item {long.id} .*101 options are too many .*allows 20"):
        judge.check_item(long, "row 2")


def test_a_receipt_counts_calls_and_tokens_and_what_they_cost(tmp_path):
    class Counting(FakeBackend):
        def read(self, groups, labels):
            answers, usage = super().read(groups, labels)
            return answers, replace(usage, prompt_tokens=1000)

    judge = LogprobJudge(Engine("judge-1", Counting()), store=Store(tmp_path / "s"))
    _, receipt = judge.answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])
    assert (receipt.calls, receipt.prompt_tokens, receipt.completion_tokens) == (2, 1000, 2)
    assert receipt.cost({"judge-1": (2.0, 8.0)}) == pytest.approx((1000 * 2 + 2 * 8) / 1e6)
    assert receipt.cost({}) is None and Receipt().cost({}) == 0
    assert judge.answer([Ask(SHORT, "Hi.")])[1].cost({}) == 0  # from the store
    both = receipt + Receipt.of("other", prompt_tokens=10, completion_tokens=5)
    assert both.tokens == {"judge-1": (1000, 2), "other": (10, 5)} and both.cost({"judge-1": (2.0, 8.0)}) is None
    plain = "3 reads: 3 asked, 0 from the store, 0 duplicates"
    assert str(Receipt(reads=3, asked=3)) == plain
    assert str(Receipt(reads=3, asked=3, unanswered=2)) == f"{plain}, 2 unanswered"


# --- the planner: equal reads once, one group per prefix, chunks of a few seconds ------------------------------------


def read(prefix: str, tail: str, context: tuple[tuple[str, str], ...] = ()) -> Read:
    labels = {"yes": "yes", "no": "no"}
    return Read(key_of(prefix, tail, repr(context)), labels, ReadGroup(None, prefix, context=context), tail)


def test_completions_of_one_input_stand_together_however_a_trainer_mixed_them():
    tiled = [read(f"{prompt}: {completion}", "?") for completion in "xyz" for prompt in "AB"]
    assert [group[0].about.prefix[0] for group in group_by_prefix(tiled)] == ["A", "A", "A", "B", "B", "B"]
    other_reference = read("A: x", "?", (("reference", "red"),))
    assert len(group_by_prefix([tiled[0], other_reference])) == 2


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from("123456"))), st.integers(1, 9))
def test_a_chunk_never_cuts_a_group_and_every_read_is_in_one_chunk(pairs, size):
    reads = [read(*pair) for pair in dict.fromkeys(pairs)]
    planned = group_by_prefix(reads)
    cut = list(chunks(planned, size))
    assert [group for chunk in cut for group in chunk] == planned
    for chunk in cut:
        assert len(chunk) == 1 or sum(map(len, chunk)) <= size
    assert sorted(r.key for group in planned for r in group) == sorted(r.key for r in reads)


def started(start: int, completions: int, questions: int = 2) -> list[list[Read]]:
    reads = [read(f"{start}: {c}", str(q)) for c in range(completions) for q in range(questions)]
    return group_by_prefix([replace(one, about=replace(one.about, start=bytes([start]))) for one in reads])


def test_chunks_are_cut_between_prompts_where_these_fit():
    groups = [group for prompt in range(4) for group in started(prompt, 3)]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 14)] == [12, 12]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 8)] == [6, 6, 6, 6]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 4)] == [4, 4, 4, 4, 4, 4]  # no prompt fits


def sizes(engine_seconds) -> list[int]:
    """Reads per chunk for an engine that takes `engine_seconds(reads)`, where each group has eight."""
    pace, found = Pace(), []
    planned = group_by_prefix([read(f"{group:05}", tail) for group in range(1000) for tail in "12345678"])
    for chunk in chunks(planned, 4096, pace):
        found.append(sum(map(len, chunk)))
        pace.took(found[-1], engine_seconds(found[-1]))
    return found


@pytest.mark.parametrize(
    ("engine_seconds", "chunk_sizes"),
    [
        (lambda reads: reads / 10_000, [8, 64, 512, 4096, 3320]),
        (lambda reads: reads / 40, [8, 64, 200, 200]),  # what it answers in five seconds
        (lambda reads: reads * 2.0, [8, 16, 16, 16]),  # one group takes 16 s
        (lambda reads: 10.0 * -(-reads // 128), [8, 16, 128, 1024, 1024]),  # many at once, but late
        (lambda reads: 0.01 if reads == 8 else 30.0, [8, 64, 64, 64]),  # it becomes slow
    ],
)
def test_chunks_grow_with_the_pace_of_the_engine(engine_seconds, chunk_sizes):
    assert sizes(engine_seconds)[: len(chunk_sizes)] == chunk_sizes
