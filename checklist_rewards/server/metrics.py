"""Metrics of the server in the Prometheus text format."""

from __future__ import annotations

from collections import Counter

from checklist_rewards.rewards.integrations.queue import MicroBatcher

SCORING_PATHS = ("/score", "/reward", "/v1/decisions", "/v1/systemone")
PATHS = (*SCORING_PATHS, "/v1/models", "/health", "/metrics")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PREFIX = "checklist_rewards"


class RequestMetrics:
    """Counts requests by path and status (499: the client disconnected), and times the scoring requests."""

    def __init__(self, queue: MicroBatcher):
        self.queue = queue
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: Counter[float] = Counter()
        self.seconds, self.timed = 0.0, 0
        self.unscored = 0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request. All unknown paths count as one, so that clients cannot grow the table."""
        self.requests[path if path in PATHS else "other", status] += 1
        if path in SCORING_PATHS:
            self.seconds += seconds
            self.timed += 1
            self.buckets.update(bound for bound in _BUCKETS if seconds <= bound)

    def text(self) -> str:
        """All metrics, including those of the queue."""
        lines = [f"# TYPE {_PREFIX}_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'{_PREFIX}_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append(f"# TYPE {_PREFIX}_request_seconds histogram")
        lines += [f'{_PREFIX}_request_seconds_bucket{{le="{bound}"}} {self.buckets[bound]}' for bound in _BUCKETS]
        lines.append(f'{_PREFIX}_request_seconds_bucket{{le="+Inf"}} {self.timed}')
        lines += [
            f"{_PREFIX}_request_seconds_sum {self.seconds:.6f}",
            f"{_PREFIX}_request_seconds_count {self.timed}",
        ]
        for what, kind, value in (
            ("samples_total", "counter", self.queue.scored),
            ("unscored_total", "counter", self.unscored),
            ("batches_total", "counter", self.queue.batches),
            ("waiting", "gauge", len(self.queue)),
        ):
            lines += [f"# TYPE {_PREFIX}_{what} {kind}", f"{_PREFIX}_{what} {value}"]
        return "\n".join(lines) + "\n"
