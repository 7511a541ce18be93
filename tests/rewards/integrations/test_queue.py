"""One call, one sample; the engine still sees batches."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import BackendError, ChecklistError, ModelError, SampleError
from checklist_rewards.rewards.integrations.queue import MicroBatcher, QueueClosed, QueueFull
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.rewards.fakes import knows, scorer_by

QUESTIONS = ["Is red?", "Is blue?"]
SAMPLES = [Sample(QUESTIONS, f"{'red blue green'.split()[n % 3]} {n}", "Say.") for n in range(24)]


def expected(samples: list[Sample]) -> list:
    return scorer_by(knows).score_batch(samples)


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


class Broken(ChecklistScorer):
    """Raises an error for batches in which a text occurs, after they were scored."""

    def __init__(self, error: Exception, text: str = ""):
        super().__init__(backend=FakeBackend(knows), store=False)
        self.error, self.text, self.sizes = error, text, []

    def score_batch(self, samples, progress=None):
        self.sizes.append(len(samples))
        scores = super().score_batch(samples, progress)
        if any(self.text in sample.target for sample in samples):
            raise self.error
        return scores


@pytest.fixture
def batcher():
    """`batcher(scorer, ...)` is a queue that is closed after the test."""
    made = []

    def make(scorer=None, **settings) -> MicroBatcher:
        made.append(MicroBatcher(scorer or scorer_by(knows), **settings))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def working(batcher):
    """`working(...)` is a queue whose scorer is held at its first sample, that scorer, and the future."""

    def make(**settings):
        scorer = Held()
        queue = batcher(scorer, max_wait=0, **settings)
        [first] = queue.submit(SAMPLES[:1])
        assert scorer.started.acquire(timeout=HANG)
        return queue, scorer, first

    return make


def test_calls_from_many_threads_get_the_scores_of_score_batch(batcher):
    queue = batcher(max_wait=HANG, max_batch=12)  # a batch waits until it is full
    with ThreadPoolExecutor(24) as threads:
        assert list(threads.map(queue.score, SAMPLES)) == expected(SAMPLES)
    assert queue.batches == 2


def test_coroutines_share_a_batch(batcher):
    queue = batcher(max_wait=HANG, max_batch=24)

    async def all_of_them():
        return await asyncio.gather(*[queue.score_async([sample]) for sample in SAMPLES])

    assert [scores[0] for scores in asyncio.run(all_of_them())] == expected(SAMPLES)
    assert queue.batches == 1


@pytest.mark.parametrize("error", [None, ModelError("the judge broke")], ids=["scores", "errors"])
def test_an_error_in_on_batch_reaches_the_log_and_not_the_callers(batcher, caplog, error):
    def report(waits, scores):
        raise RuntimeError("the metrics broke")

    queue = batcher(Broken(error) if error else None, on_batch=report)
    for _ in range(2):
        [future] = queue.submit(SAMPLES[:1])
        if error:
            with pytest.raises(ModelError, match="the judge broke"):
                future.result(HANG)
        else:
            assert [future.result(HANG)] == expected(SAMPLES[:1])
    assert "the metrics broke" in caplog.text


def test_what_arrives_while_the_engine_works_is_one_batch_of_at_most_max_batch(working):
    queue, scorer, first = working(max_batch=10)
    rest = [future for sample in SAMPLES[1:] for future in queue.submit([sample])]
    scorer.go.set()
    assert [future.result(HANG).primary_score is not None for future in [first, *rest]] == [True] * 24
    assert scorer.sizes == [1, 10, 10, 3]


def test_a_broken_sample_fails_alone(batcher):
    scorer = scorer_by(knows)
    queue = batcher(scorer, max_wait=0.05)
    futures = queue.submit([*SAMPLES[:5], Sample([], "red"), *SAMPLES[5:9], Sample(QUESTIONS, 7)])
    queue.close()
    with pytest.raises(ChecklistError, match="empty"):
        futures[5].result()
    with pytest.raises(SampleError, match="target must be a string, got int 7"):
        futures[10].result()
    assert [future.result() for n, future in enumerate(futures) if n not in (5, 10)] == expected(SAMPLES[:9])
    assert len(scorer.judge.engine.load().asked) == 9 * len(QUESTIONS)


@pytest.mark.parametrize("error", [OverflowError, RecursionError])
def test_a_sample_that_breaks_the_scorer_costs_the_others_nothing(batcher, error):
    scorer = Broken(error("too much"), text="green 5")
    queue = batcher(scorer, max_wait=0.05)
    futures = queue.submit(SAMPLES[:16])
    queue.close()
    with pytest.raises(SampleError, match=f"the sample cannot be scored .{error.__name__}: .*too much"):
        futures[5].result()
    scores = expected(SAMPLES[:16])
    assert all(future.result() == scores[n] for n, future in enumerate(futures) if n != 5)
    assert len(scorer.judge.engine.load().asked) <= 3 * 16 * len(QUESTIONS)


@pytest.mark.parametrize("error", [BackendError, ModelError])
def test_an_error_that_is_nobodys_fault_reaches_everybody(batcher, error):
    scorer = Broken(error("the engine is gone"))
    for future in batcher(scorer, max_wait=0.05).submit(SAMPLES[:3]):
        with pytest.raises(error, match="the engine is gone"):
            future.result(HANG)
    assert scorer.sizes == [3]


def test_a_full_queue_refuses_the_whole_call(working):
    queue, scorer, first = working(max_queue=3)
    futures = [first, *queue.submit(SAMPLES[1:3])]
    with pytest.raises(QueueFull, match="the queue has 2 waiting samples and cannot accept 2 more .at most 3."):
        queue.submit(SAMPLES[3:5])
    assert len(queue) == 2
    scorer.go.set()
    assert all(future.result(HANG) for future in futures)


def test_close_finishes_what_was_taken_and_takes_no_more(batcher):
    queue = batcher(max_wait=60, max_batch=7)
    futures = queue.submit(SAMPLES)
    queue.close()
    assert [future.result(0) for future in futures] == expected(SAMPLES)
    with pytest.raises(QueueClosed):
        queue.submit(SAMPLES[:1])


def test_a_cancelled_sample_is_not_scored(working):
    queue, scorer, _ = working()
    waiting = queue.submit(SAMPLES[1:3])
    assert waiting[0].cancel()
    scorer.go.set()
    assert waiting[1].result(HANG)
    assert scorer.sizes == [1, 1]


def test_a_forked_process_has_a_thread_of_its_own(batcher):
    queue = batcher()
    before = queue.score(SAMPLES[0])
    child = os.fork()
    if child == 0:
        signal.alarm(round(HANG))
        os._exit(0 if queue.score(SAMPLES[0]) == before else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("setting", [{"max_wait": -1}, {"max_batch": 0}, {"max_tokens": 0}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(SampleError, match=next(iter(setting))):
        MicroBatcher(scorer_by(), **setting)
