"""One call, one sample; the engine still sees batches."""

import asyncio
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import BackendError, ChecklistError, ModelError, SampleError
from checklist_rewards.rewards.integrations.queue import MicroBatcher, QueueClosed, QueueFull
from tests.conftest import HANG
from tests.fakes import FakeBackend

QUESTIONS = ["Is red?", "Is blue?"]


def knows(prefix: str, tail: str) -> float:
    """Yes if the word in the question stands in the prompt before it."""
    question = tail.split("before it. ")[-1]  # about a single message, others are mentioned first
    return 0.9 if question.split()[1].rstrip("?") in prefix else 0.1


def scorer_on(backend=None) -> ChecklistScorer:
    return ChecklistScorer(backend=backend or FakeBackend(knows), store=False)


class Held(ChecklistScorer):
    """Notes the size of each batch, and holds every batch until told to go on."""

    def __init__(self):
        super().__init__(backend=FakeBackend(knows), store=False)
        self.sizes: list[int] = []
        self.started, self.go = threading.Semaphore(0), threading.Event()

    def score_batch(self, samples, progress=None):
        self.sizes.append(len(samples))
        self.started.release()
        assert self.go.wait(HANG)
        return super().score_batch(samples, progress)


@pytest.fixture
def samples() -> list[Sample]:
    return [Sample(QUESTIONS, f"{'red blue green'.split()[n % 3]} {n}", "Say.") for n in range(24)]


def test_calls_from_many_threads_get_the_scores_of_score_batch(samples):
    expected = scorer_on().score_batch(samples)
    queue = MicroBatcher(scorer_on(), max_wait=HANG, max_batch=12)  # a batch waits until it is full
    with ThreadPoolExecutor(24) as threads:
        assert list(threads.map(queue.score, samples)) == expected
    assert queue.scored == 24 and queue.batches == 2
    queue.close()


@pytest.mark.parametrize("broken", [False, True], ids=["scores", "errors"])
def test_an_error_in_on_batch_reaches_the_log_and_not_the_callers(samples, caplog, broken):
    def report(batch):
        raise RuntimeError("the metrics broke")

    class Broken(ChecklistScorer):
        def score_batch(self, samples, progress=None):
            raise ModelError("the judge broke")

    scorer = Broken(backend=FakeBackend(knows), store=False) if broken else scorer_on()
    queue = MicroBatcher(scorer, on_batch=report)
    for _ in range(2):
        [future] = queue.submit(samples[:1])
        if broken:
            with pytest.raises(ModelError, match="the judge broke"):
                future.result(HANG)
        else:
            assert [future.result(HANG)] == scorer_on().score_batch(samples[:1])
    assert "the metrics broke" in caplog.text
    queue.close()


def test_coroutines_share_a_batch(samples):
    queue = MicroBatcher(scorer_on(), max_wait=HANG, max_batch=24)

    async def all_of_them():
        return await asyncio.gather(*[queue.score_async([sample]) for sample in samples])

    found = [scores[0] for scores in asyncio.run(all_of_them())]
    assert found == scorer_on().score_batch(samples)
    assert queue.batches == 1
    queue.close()


def test_what_arrives_while_the_engine_works_is_one_batch_of_at_most_max_batch(samples):
    scorer = Held()
    queue = MicroBatcher(scorer, max_wait=0, max_batch=10)
    first = queue.submit(samples[:1])
    assert scorer.started.acquire(timeout=HANG)
    rest = [future for sample in samples[1:] for future in queue.submit([sample])]
    scorer.go.set()
    assert [f.result(HANG).primary_score is not None for f in first + rest] == [True] * 24
    assert scorer.sizes == [1, 10, 10, 3]
    queue.close()


def test_a_broken_sample_fails_alone(samples):
    backend = FakeBackend(knows)
    queue = MicroBatcher(scorer_on(backend), max_wait=0.05)
    broken = [Sample([], "red"), Sample(QUESTIONS, 7)]
    futures = queue.submit([*samples[:5], broken[0], *samples[5:9], broken[1]])
    queue.close()
    with pytest.raises(ChecklistError, match="empty"):
        futures[5].result()
    with pytest.raises(SampleError, match="target must be a string, got int 7"):
        futures[10].result()
    good = [future.result() for n, future in enumerate(futures) if n not in (5, 10)]
    assert good == scorer_on().score_batch(samples[:9])
    assert len(backend.asked) == 9 * len(QUESTIONS)


@pytest.mark.parametrize("error", [OverflowError, TypeError, RecursionError, KeyError, ValueError])
def test_a_sample_that_breaks_the_scorer_costs_the_others_nothing(samples, error):
    class Breaks(ChecklistScorer):
        def score_batch(self, samples, progress=None):
            scores = super().score_batch(samples, progress)
            if any("green 5" in sample.target for sample in samples):
                raise error("too much")
            return scores

    backend = FakeBackend(knows)
    queue = MicroBatcher(Breaks(backend=backend, store=False), max_wait=0.05)
    futures = queue.submit(samples[:16])
    queue.close()
    with pytest.raises(SampleError, match=f"the sample cannot be scored .{error.__name__}: .*too much"):
        futures[5].result()
    expected = scorer_on().score_batch(samples[:16])
    assert all(future.result() == expected[n] for n, future in enumerate(futures) if n != 5)
    assert len(backend.asked) <= 3 * 16 * len(QUESTIONS)


@pytest.mark.parametrize("error", [BackendError, ModelError])
def test_an_error_that_is_nobodys_fault_reaches_everybody(samples, error):
    calls = []

    class Broken(ChecklistScorer):
        def score_batch(self, samples, progress=None):
            calls.append(len(samples))
            raise error("the engine is gone")

    queue = MicroBatcher(Broken(backend=FakeBackend(), store=False), max_wait=0.05)
    for future in queue.submit(samples[:3]):
        with pytest.raises(error, match="the engine is gone"):
            future.result(HANG)
    queue.close()
    assert calls == [3]


def test_a_judge_that_fails_leaves_its_reads_unanswered_and_the_neighbours_alone():
    backend = FakeBackend(knows, fails=lambda prefix, tail: "boom" in prefix, chunk_reads=1)
    queue = MicroBatcher(scorer_on(backend), max_wait=0.05)
    fine, failed = (
        future.result(HANG) for future in queue.submit([Sample(QUESTIONS, "red"), Sample(QUESTIONS, "boom")])
    )
    assert fine.primary_score == pytest.approx(0.5)
    assert failed.primary_score is None
    queue.close()


def test_a_full_queue_refuses_the_whole_call(samples):
    scorer = Held()
    queue = MicroBatcher(scorer, max_wait=0, max_queue=3)
    futures = queue.submit(samples[:1])
    assert scorer.started.acquire(timeout=HANG)
    futures += queue.submit(samples[1:3])
    with pytest.raises(QueueFull, match="the queue has 2 waiting samples and cannot accept 2 more .at most 3."):
        queue.submit(samples[3:5])
    assert len(queue) == 2
    scorer.go.set()
    assert all(future.result(HANG) for future in futures)
    queue.close()


def test_close_finishes_what_was_taken_and_takes_no_more(samples):
    queue = MicroBatcher(scorer_on(), max_wait=60, max_batch=7)
    futures = queue.submit(samples)
    queue.close()
    assert [future.result(0) for future in futures] == scorer_on().score_batch(samples)
    with pytest.raises(QueueClosed):
        queue.submit(samples[:1])


def test_a_cancelled_sample_is_not_scored(samples):
    scorer = Held()
    queue = MicroBatcher(scorer, max_wait=0)
    queue.submit(samples[:1])
    assert scorer.started.acquire(timeout=HANG)
    waiting = queue.submit(samples[1:3])
    assert waiting[0].cancel()
    scorer.go.set()
    assert waiting[1].result(HANG)
    assert scorer.sizes == [1, 1]
    queue.close()


def test_it_pickles_as_its_settings(samples):
    queue = MicroBatcher(ChecklistScorer("pocket", store=False), max_wait=0.01, max_batch=3, max_queue=9)
    copy = pickle.loads(pickle.dumps(queue))
    assert (copy.max_wait, copy.max_batch, copy.max_queue, len(copy)) == (0.01, 3, 9, 0)


def test_a_forked_process_has_a_thread_of_its_own(samples):
    queue = MicroBatcher(scorer_on())
    before = queue.score(samples[0])
    child = os.fork()
    if child == 0:
        signal.alarm(round(HANG))
        os._exit(0 if queue.score(samples[0]) == before else 1)
    assert os.waitpid(child, 0)[1] == 0
    queue.close()


@pytest.mark.parametrize("setting", [{"max_wait": -1}, {"max_batch": 0}, {"max_queue": 0}, {"max_batch": True}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(SampleError, match=next(iter(setting))):
        MicroBatcher(scorer_on(), **setting)
