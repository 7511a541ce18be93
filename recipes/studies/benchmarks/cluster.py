"""A discrete-event model of judges that serve a trainer: engines with a prefix cache, a router, senders, failures.

Traffic is that of GRPO: in every step P prompts x G completions x Q questions arrive when their rollouts end, and the
next step starts when all are answered. One *call* carries all questions about one completion, as the package's
prompt lists and Decisions requests do, or one question, as chat requests do.

The time of an engine step is `step_s + token_s * computed tokens + read_s * reads`. Attention is not modelled: the
cost of a token does not depend on its position.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import simpy

from checklist_rewards.backends.openai.replicas import Replicas, Sent

REFUSED_S = 0.05
"""Seconds until a connection to a replica that is down is refused."""
Policy = Literal["text", "prompt", "least", "round_robin"]


@dataclass(frozen=True)
class Engine:
    """What one replica costs.

    Args:
        step_s (`float`): Fixed seconds of an engine step.
        token_s (`float`): Seconds per computed prompt token.
        read_s (`float`): Seconds per read (sampling, log-probabilities, its part of the HTTP response).
        step_tokens (`int`): Most tokens computed in one step.
        step_reads (`int`): Most reads started in one step.
        cache_tokens (`int`): Tokens that the prefix cache keeps; the least recently used prefix leaves first.
        block (`int`): Tokens of a block of the cache. What does not fill a block is not kept.
    """

    step_s: float = 0.012
    token_s: float = 1 / 25_000
    read_s: float = 0.00005
    step_tokens: int = 8192
    step_reads: int = 256
    cache_tokens: int = 400_000
    block: int = 16


@dataclass(frozen=True)
class Traffic:
    """One GRPO run as the judge sees it. Lengths are in tokens, times in seconds.

    Args:
        prompts, completions, questions (`int`): P, G and Q of a step.
        prompt_tokens (`int`): What all completions of a prompt share, with the judge's instructions.
        target_tokens (`int`): Mean length of a completion; lengths are log-normal with sigma 0.5.
        question_tokens (`int`): Tokens that only one read has.
        spread_s (`float`): Rollouts end evenly over this time.
        steps (`int`): Training steps.
        per_call (`int`, *optional*): Questions in one call; a chat request carries 1. Defaults to all.
    """

    prompts: int = 64
    completions: int = 8
    questions: int = 10
    prompt_tokens: int = 300
    target_tokens: int = 400
    question_tokens: int = 25
    spread_s: float = 0.0
    steps: int = 3
    per_call: int | None = None


@dataclass(frozen=True)
class Senders:
    """Processes that render, send and parse calls: `number` of them, each busy `call_s + read_s * Q` per call."""

    number: int = 1
    call_s: float = 0.0
    read_s: float = 1 / 4400


@dataclass(frozen=True)
class Failure:
    """A replica dies at `at_s` and comes back with an empty cache `down_s` later. Senders notice after `seen_s`."""

    replica: int
    at_s: float
    down_s: float = 60.0
    seen_s: float = 0.05


@dataclass(eq=False)
class Call:
    """Reads of one completion. `left` holds the tokens of each unread question; the replica that admits it sets it."""

    prompt: int
    target: int
    lengths: tuple[int, int]
    questions: int
    question_tokens: int
    sent: float = 0.0
    left: deque[int] = field(default_factory=deque)
    sent_to: Sent = Sent(0, 0, False)
    done: Callable[[], None] = lambda: None


@dataclass
class Outcome:
    """What a run measured: `latencies` in seconds from the end of a rollout to the answer of its call, `step_s` from
    the last rollout to the last answer."""

    reads: int = 0
    calls: int = 0
    retried: int = 0
    seconds: float = 0.0
    computed: int = 0
    floor: int = 0
    asked: int = 0
    busy_s: float = 0.0
    sending_s: float = 0.0
    latencies: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens of all reads that came from a cache."""
        return 1 - self.computed / self.asked

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Replica:
    """One engine: a queue, a prefix cache, and one step after another."""

    def __init__(self, env: simpy.Environment, engine: Engine, outcome: Outcome):
        self.env, self.engine, self.outcome = env, engine, outcome
        self.queue: deque[Call] = deque()
        self.cache: OrderedDict[tuple[str, int], int] = OrderedDict()
        self.cached = 0
        self.load = 0
        self.up = True
        self._wake = env.event()
        self.process = env.process(self._run())

    def take(self, call: Call) -> None:
        self.queue.append(call)
        self.load += call.questions
        if not self._wake.triggered:
            self._wake.succeed()

    def _run(self) -> Iterator[simpy.Event]:
        while True:
            try:
                while not self.queue:
                    self._wake = self.env.event()
                    yield self._wake
                finished, tokens, reads = self._admit()
                seconds = self.engine.step_s + self.engine.token_s * tokens + self.engine.read_s * reads
                yield self.env.timeout(seconds)
                self.outcome.busy_s += seconds
                self.outcome.computed += tokens
                for call in finished:
                    self.queue.remove(call)
                    self.load -= call.questions
                    call.done()
            except simpy.Interrupt as failure:
                yield self.env.timeout(failure.cause)
                self.up = True

    def _admit(self) -> tuple[list[Call], int, int]:
        """Fill one step from the queue, first come first served; long prompts go on in the next step."""
        tokens = reads = 0
        finished = []
        for call in self.queue:
            if not call.left:
                call.left = self._work(call)
            while call.left and tokens < self.engine.step_tokens and reads < self.engine.step_reads:
                part = min(call.left[0], self.engine.step_tokens - tokens)
                tokens += part
                if part < call.left[0]:
                    call.left[0] -= part
                    break
                call.left.popleft()
                reads += 1
            if call.left:
                break
            finished.append(call)
        return finished, tokens, reads

    def _work(self, call: Call) -> deque[int]:
        """Tokens that each read computes: the first one also what no cache holds of the prompt and the target."""
        block = self.engine.block
        prompt, prefix = call.lengths[0] // block * block, sum(call.lengths) // block * block
        cached = 0
        if self._remember(("prompt", call.prompt), prompt):
            cached = prompt
        if self._remember(("target", call.target), prefix - prompt):
            cached = prefix
        rest = sum(call.lengths) + call.question_tokens
        return deque([rest - cached] + [rest - prefix] * (call.questions - 1))

    def _remember(self, key: tuple[str, int], length: int) -> bool:
        """Whether the cache holds a part of a prefix; it does from now on."""
        if key in self.cache:
            self.cache.move_to_end(key)
            return True
        self.cache[key] = length
        self.cached += length
        while self.cached > self.engine.cache_tokens and len(self.cache) > 1:
            self.cached -= self.cache.popitem(last=False)[1]
        return False

    def die(self, down_s: float) -> list[Call]:
        """Lose the cache and every call; returns the calls, which the router must send again."""
        lost = list(self.queue)
        for call in lost:
            call.left.clear()
        self.queue.clear()
        self.cache.clear()
        self.cached = self.load = 0
        self.up = False
        self.process.interrupt(down_s)
        return lost


class Router:
    """Chooses the replica of a call.

    The policies "text" and "prompt" are the package's own class, with the completion or the prompt as the key.
    "round_robin" takes turns, "least" the less loaded of two at random.
    """

    def __init__(self, env: simpy.Environment, fleet: Sequence[Replica], policy: Policy):
        self.env, self.fleet, self.policy = env, fleet, policy
        self._replicas = Replicas([str(number) for number in range(len(fleet))], pause=1.0)
        self._orders = cache(self._replicas.order)
        self._replicas.order = self._orders  # type: ignore[method-assign]
        self._turn = 0
        self._rng = random.Random(0)

    def send(self, call: Call) -> None:
        """Put a call into the queue of a replica, or send it again if that one is down."""
        live = [number for number, replica in enumerate(self.fleet) if replica.up]
        if not live:
            raise RuntimeError("all replicas are down; give the failures other times.")
        if self.policy in ("text", "prompt"):
            key = f"{self.policy} {call.target if self.policy == 'text' else call.prompt}"
            call.sent_to = self._replicas.choose(key, self.env.now, call.questions)
        else:
            self._turn += 1
            pair = self._rng.choices(live, k=2)
            least = min(pair, key=lambda number: self.fleet[number].load)
            place = least if self.policy == "least" else live[self._turn % len(live)]
            call.sent_to = self._replicas.send_to(place, call.questions)
        replica = self.fleet[call.sent_to.place]
        if replica.up:
            replica.take(call)
        else:
            self.env.process(self._refused(call))

    def _refused(self, call: Call) -> Iterator[simpy.Event]:
        """A replica that is down refuses the connection."""
        yield self.env.timeout(REFUSED_S)
        self.failed(call)

    def answered(self, call: Call) -> None:
        self._replicas.answered(call.sent_to)

    def failed(self, call: Call) -> None:
        """A call came back without an answer: send it again."""
        self._replicas.failed(call.sent_to, self.env.now)
        self.send(call)


def simulate(
    engine: Engine,
    traffic: Traffic,
    replicas: int = 1,
    policy: Policy = "text",
    senders: Senders = Senders(),
    failures: Sequence[Failure] = (),
    seed: int = 0,
) -> Outcome:
    """Run `traffic.steps` training steps and return what they took.

    Raises:
        ValueError: If a failure names a replica that does not exist.
    """
    for failure in failures:
        if not 0 <= failure.replica < replicas:
            raise ValueError(f"failure of replica {failure.replica}: replicas are 0 to {replicas - 1}.")
    env = simpy.Environment()
    outcome = Outcome()
    fleet = [Replica(env, engine, outcome) for _ in range(replicas)]
    router = Router(env, fleet, policy)
    for failure in failures:
        env.process(_fail(env, fleet[failure.replica], failure, router, outcome))
    trainer = env.process(_train(env, traffic, router, senders, outcome, random.Random(seed)))
    env.run(until=trainer)
    outcome.seconds = env.now
    return outcome


def _fail(
    env: simpy.Environment, replica: Replica, failure: Failure, router: Router, outcome: Outcome
) -> Iterator[simpy.Event]:
    yield env.timeout(failure.at_s)
    lost = replica.die(failure.down_s)
    yield env.timeout(failure.seen_s)
    outcome.retried += len(lost)
    for call in lost:
        router.failed(call)


def _train(
    env: simpy.Environment, traffic: Traffic, router: Router, senders: Senders, outcome: Outcome, rng: random.Random
) -> Iterator[simpy.Event]:
    for step in range(traffic.steps):
        calls = list(calls_of(traffic, step, rng))
        targets = {call.target: call.lengths[1] for call in calls}
        own = sum(call.questions * call.question_tokens for call in calls)
        outcome.floor += traffic.prompts * traffic.prompt_tokens + sum(targets.values()) + own
        outcome.asked += sum(call.questions * sum(call.lengths) for call in calls) + own
        started = env.now
        yield env.all_of(
            [
                env.process(_send(env, calls[number :: senders.number], traffic, router, senders, outcome))
                for number in range(senders.number)
            ]
        )
        outcome.step_s.append(max(0.0, env.now - started - traffic.spread_s))
        outcome.calls += len(calls)
        outcome.reads += sum(call.questions for call in calls)


def calls_of(traffic: Traffic, step: int, rng: random.Random) -> Iterator[Call]:
    """The calls of one training step, in the order of a trainer."""
    most = traffic.per_call or traffic.questions
    for number in range(traffic.prompts * traffic.completions):
        prompt = step * traffic.prompts + number // traffic.completions
        target = step * traffic.prompts * traffic.completions + number
        lengths = traffic.prompt_tokens, max(1, round(traffic.target_tokens * rng.lognormvariate(-0.125, 0.5)))
        for first in range(0, traffic.questions, most):
            yield Call(prompt, target, lengths, min(most, traffic.questions - first), traffic.question_tokens)


def _send(
    env: simpy.Environment,
    calls: Sequence[Call],
    traffic: Traffic,
    router: Router,
    senders: Senders,
    outcome: Outcome,
) -> Iterator[simpy.Event]:
    """One sender: a rollout ends, its call is rendered and sent; returns when all its calls are answered."""
    answered, started, waiting = env.event(), env.now, len(calls)
    if not calls:
        return

    def done(call: Call) -> None:
        nonlocal waiting
        waiting -= 1
        router.answered(call)
        outcome.latencies.append(env.now - call.sent)
        if not waiting:
            answered.succeed()

    for number, call in enumerate(calls):
        ends = started + traffic.spread_s * number / len(calls)
        if ends > env.now:
            yield env.timeout(ends - env.now)
        call.sent = ends
        busy = senders.call_s + senders.read_s * call.questions
        outcome.sending_s += busy
        yield env.timeout(busy)
        call.done = lambda call=call: done(call)  # type: ignore[misc]
        router.send(call)
    yield answered
