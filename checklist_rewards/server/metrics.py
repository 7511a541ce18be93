"""Metrics of the server for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from checklist_rewards.judges import Receipt
from checklist_rewards.rewards.integrations.queue import MicroBatcher
from checklist_rewards.scores import NO_ANSWER_STATES, Score

SCORING_PATHS = ("/score", "/reward", "/v1/decisions", "/v1/systemone")
PATHS = (*SCORING_PATHS, "/v1/models", "/health", "/ready", "/metrics")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_READS = tuple(2.0**power for power in range(0, 14))
_TOKENS = tuple(4.0**power for power in range(2, 12))
_PREFIX = "checklist_rewards_"


class ServerMetrics:
    """Counts requests by path and status (499: the client disconnected), and measures queue, batches and reads."""

    def __init__(self, queue: MicroBatcher):
        self.registry = CollectorRegistry()

        def counter(name: str, what: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(_PREFIX + name, what, labels, registry=self.registry)

        def histogram(name: str, what: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(_PREFIX + name, what, registry=self.registry, buckets=buckets)

        def gauge(name: str, what: str, value: Callable[[], float]) -> None:
            Gauge(_PREFIX + name, what, registry=self.registry).set_function(value)

        self.requests = counter("requests", "Answered requests.", ("path", "status"))
        self.request_seconds = histogram("request_seconds", "Time of a scoring request.", _SECONDS)
        self.request_reads = histogram("request_reads", "Checklist items of a scoring request.", _READS)
        self.request_tokens = histogram("request_tokens", "Estimated tokens of a scoring request.", _TOKENS)
        self.queue_seconds = histogram("queue_seconds", "Time a row waited for its batch.", _SECONDS)
        self.batch_reads = histogram("batch_reads", "Reads of a batch.", _READS)
        self.samples = counter("samples", "Scored rows.")
        self.unscored = counter("unscored", "Rows without a score.")
        self.no_answer = counter("no_answer", "Rows whose target has no answer.", ("state",))
        self.unanswered = counter("unanswered", "Reads without an answer.", ("reason",))
        self.refused = counter("refused", "Rows that were not queued or not started.", ("reason",))
        self.reads = counter("reads", "Reads of all batches, by where the answer came from.", ("source",))
        self.prompt_tokens = counter("prompt_tokens", "Tokens of the prompts sent to the judge, if it counts them.")
        self.batches = counter("batches", "Batches that the judge scored.")
        self.failed_batches = counter("failed_batches", "Batches that the judge failed as a whole.")
        gauge("waiting", "Rows that wait for a batch.", lambda: len(queue))
        gauge("waiting_tokens", "Estimated tokens of these rows.", lambda: queue.waiting_tokens)
        gauge("tokens_per_second", "Estimated tokens scored per second of recent batches.", lambda: queue.rate or 0.0)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request. All unknown paths count as one, so that clients cannot grow the table."""
        self.requests.labels(path if path in PATHS else "other", str(status)).inc()
        if path in SCORING_PATHS:
            self.request_seconds.observe(seconds)

    def batch(self, waits: Sequence[float], scores: Sequence[Score] | None, paid: Receipt) -> None:
        """Count a batch. `paid` is what it cost the judge."""
        for seconds in waits:
            self.queue_seconds.observe(seconds)
        for source, reads in (("judge", paid.asked), ("store", paid.stored), ("duplicate", paid.deduplicated)):
            self.reads.labels(source).inc(reads)
        self.prompt_tokens.inc(paid.prompt_tokens)
        if scores is None:
            self.failed_batches.inc()
        else:
            self.batches.inc()
            self.batch_reads.observe(sum(len(score.items) for score in scores))
            self.samples.inc(len(scores))
            self.scored(scores)

    def scored(self, scores: Sequence[Score]) -> None:
        """Count what is missing in scores."""
        reasons: Counts[str] = Counts()
        for score in scores:
            self.unscored.inc(score.primary_score is None)
            if score.state in NO_ANSWER_STATES:
                self.no_answer.labels(score.state).inc()
            reasons.update(score.unanswered)
        for reason, reads in reasons.items():
            self.unanswered.labels(reason).inc(reads)

    def text(self) -> str:
        """All metrics."""
        return generate_latest(self.registry).decode()
