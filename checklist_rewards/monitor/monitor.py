"""The monitor: stages of a reward that watch it for reward hacking.

    >>> reward = ChecklistReward(scorer, monitor={"action": "stop"})  # doctest: +SKIP
    >>> trainer = GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset)  # doctest: +SKIP

At each call, the reward judges the completions as always. The monitor then takes held-out items out of the reward,
reads a few items again, gathers the numbers of all ranks, and updates its signals (`watch.py`). On every rank the
signals are the same, so all ranks stop together.

Nothing of this may break a training run. Each part runs in [`Guard`]: an error is written to the monitor's file and
logged once, and the rewards are those of the reward itself.

A share of each checklist can be held out: read but not rewarded. If the policy improves on rewarded items and not on
the others, it learns the items and not the task. The choice depends only on the seed and the items (and with
`draw="step"` on the step), so all completions of a prompt, on all ranks, have the same items held out.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from checklist_rewards.attacks.patterns import Pattern, patterns_of
from checklist_rewards.attacks.report import AttackReport, read_attack
from checklist_rewards.checklists import EVOLVING_CATEGORY, Checklist, content_hash
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.images import shown
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.monitor.extra_reads import Canary, Extra, ExtraReads
from checklist_rewards.monitor.seen import Observation, Seen, asked, seen_of
from checklist_rewards.monitor.text import steering
from checklist_rewards.monitor.watch import MOST_FAILURES, Alarm, Watch, start_record, step_record
from checklist_rewards.rewards.batch import Call, Guard, RewardLog, Rewards, log_to_trainer, only
from checklist_rewards.rewards.placement import check_child
from checklist_rewards.rewards.ranks import gathered, rank
from checklist_rewards.rewards.settings import Draw, MonitorConfig
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import NO_ANSWER_STATES, PrimaryMetric, Score

_DIGITS = 13


def hold_out(call: Call, settings: MonitorConfig, metric: PrimaryMetric, step: int) -> Call:
    """The call in which held-out items do not count."""
    chosen: dict[str, list[str]] = {}
    held_out: list[Sequence[str]] = []
    pairs: list[tuple[Sample | None, Score | None]] = []
    for sample, score in zip(call.samples, call.scores, strict=True):
        out: Sequence[str] = ()
        # A grade of the whole text does not depend on items.
        if sample is not None and score is not None and settings.held_out and metric != "quality":
            items = [item.id for item in sample.checklist.items]
            if (key := "\n".join(items)) not in chosen:
                share, seed, draw = settings.held_out, settings.seed, settings.draw
                chosen[key] = held_out_items(sample.checklist, share, seed=seed, draw=draw, step=step)
            if out := chosen[key]:
                sample, score = only(sample, score, [id for id in items if id not in out], metric)
        held_out.append(out)
        pairs.append((sample, score))
    return replace(call, held_out=held_out, counted=([sample for sample, _ in pairs], [score for _, score in pairs]))


def held_out_items(
    checklist: Checklist, share: float, *, seed: int = 0, draw: Draw = "fixed", step: int = 0
) -> list[str]:
    """Ids of the items of a checklist that are not rewarded.

    Required items always count. At least one item with a positive weight counts if the checklist has any, and one item
    otherwise. The number of held-out items is rounded up or down at random, so that over many checklists it is the
    share on average. Evolving items are never held out, so the held-out items stay the same while the checklist
    evolves.

    Args:
        checklist ([`Checklist`]): All items.
        share (`float`): Fraction to hold out, in [0, 1].
        seed (`int`, *optional*, defaults to `0`): Seed of the choice.
        draw (`str`, *optional*, defaults to `"fixed"`): `"step"` chooses other items at another step.
        step (`int`, *optional*, defaults to `0`): The step.
    """
    salt = f"{seed}" if draw == "fixed" else f"{seed}:{step}"
    own = [item for item in checklist.items if item.category != EVOLVING_CATEGORY]
    chance = _uniform(salt, *(item.id for item in own))
    count = math.floor(share * len(own) + chance)
    kept = [item for item in own if item.weight > 0] or [item for item in own if item.weight]
    ranked = sorted(own, key=lambda item: _uniform(salt, item.id))
    out: list[str] = []
    for item in ranked:
        last = {one.id for one in kept} - set(out) == {item.id}
        if len(out) < count and not item.required and not last and item.id not in out:
            out.append(item.id)
    return out


def _uniform(*parts: str) -> float:
    return int(content_hash(*parts, length=_DIGITS), 16) / 16**_DIGITS


logger = logging.getLogger(__name__)

_MOST_ALARMS = 100
_FILE = "monitor.jsonl"


class Monitor:
    """The stages of a monitor; made by `ChecklistReward(monitor=...)`.

    In an evaluation (the trainer's model is not in training mode), the same items are held out, but nothing is
    watched.

    Args:
        name (`str`): Name of the reward.
        scorer ([`ChecklistScorer`]): The judge of the reward.
        metric (`str`): The metric of the reward.
        stats ([`RewardLog`]): The log of the reward, which gets the metrics `<name>/monitor/...`.
        settings ([`MonitorConfig`]): What is read, when it alarms, what it does then.

    Raises:
        SampleError: For an argument that cannot be used.
    """

    def __init__(
        self,
        name: str,
        scorer: ChecklistScorer,
        metric: PrimaryMetric,
        stats: RewardLog,
        settings: MonitorConfig,
    ):
        self.name, self.scorer, self.metric, self.stats = name, scorer, metric, stats
        self.settings = settings
        shadow, attacks = settings.shadow, settings.attacks
        self.shadow: ChecklistScorer | None = ChecklistScorer(shadow) if isinstance(shadow, ScorerConfig) else shadow
        self.attacks: AttackReport | None = read_attack(attacks) if isinstance(attacks, str | Path) else attacks
        self._patterns = [] if self.attacks is None else patterns_of(self.attacks)
        if self.settings.penalize_attacks and self.attacks is None:
            raise SampleError("penalize_attacks=True requires attacks=..., the file of an attack on the judge.")
        self._penalized = [pattern for pattern in self._patterns if not pattern.honest]
        if self.settings.penalize_attacks and not self._penalized:
            logger.warning(
                "penalize_attacks=True has no effect: no attack of attacks=... raised scores and has a pattern that "
                "honest completions do not have."
            )
        self._callback: Any = None
        self.begin()

    def begin(self) -> None:
        """Begin a run of training: nothing was seen yet."""
        self.log = RewardLog(self.settings.log)
        self.alarms: deque[Alarm] = deque(maxlen=_MOST_ALARMS)
        """The last alarms."""
        self.should_stop = False
        """Whether an alarm with the action `stop` was raised."""
        self._guard = Guard(self._failed, MOST_FAILURES)
        self._watch = Watch(self.settings, self._guard, self._patterns)
        self._extra_reads = ExtraReads(self.scorer, self.shadow, self.metric, self.settings, self._guard)
        self._begun = False
        self._calls = 0
        self._step = 0

    def validate(self) -> None:
        """Check the shadow judge, without loading it. Raises a [`ChecklistRewardsError`]."""
        if self.shadow is not None:
            self.shadow.validate()

    def hold_out(self, call: Call) -> Call:
        """The call in which held-out items do not count."""
        self._step = self._calls if call.step is None else call.step
        if call.training:
            self._guard("start", lambda: self._begin(call), None)
            self._step = self._calls if call.step is None else call.step
        everything = replace(call, held_out=[()] * len(call.samples), counted=(call.samples, call.scores))
        return self._guard("held_out", lambda: hold_out(call, self.settings, self.metric, self._step), everything)

    def penalize(self, call: Call) -> Call:
        """The call with rewards of at most 0 for completions that address the grader or show an attack, if the
        settings say that."""
        if self.settings.steering == "penalize":
            steers = (sample is not None and steering(sample.target) is not None for sample in call.samples)
            call = self._guard("steering", lambda: _penalized(call, steers), call)
        if self.settings.penalize_attacks:
            call = self._guard("attacks", lambda: _penalized(call, _show_attacks(call, self._penalized)), call)
        return call

    def read_more(self, call: Call) -> Call:
        """The call with what is read in addition, in training, and with the fields of the monitor for its log."""
        extra = self._extra_reads(call, self._step) if call.training else Extra()
        return replace(call, extra=extra, log_fields=self._guard("log", lambda: extra.fields(call.held_out), ()))

    def __call__(self, call: Call) -> Call:
        """Watch the call: gather the completions of all ranks, and update the signals."""
        if call.training:
            self._calls += 1
            extra = call.extra
            seen: list[Seen] = self._guard("completions", lambda: _seen(call, self._patterns), [])
            ranks = self._guard("ranks", lambda: gathered((seen, extra.reads, extra.canaries)), None, always=True)
            if ranks is not None:
                self._guard("signals", lambda: self._update(self._step, call, ranks), None)
        return call

    @property
    def callback(self) -> Any:
        """A trainer callback that stops training after an alarm with the action `stop`."""
        if self._callback is None:
            from checklist_rewards.monitor.callback import MonitorCallback

            self._callback = MonitorCallback(self)
        return self._callback

    @property
    def key(self) -> str:
        """Name of the state in `trainer_state.json`."""
        return f"RewardMonitor/{self.name}"

    @property
    def state(self) -> dict[str, Any]:
        """The state of the monitor, as JSON-compatible values."""
        more = self._extra_reads
        return {
            "watch": self._watch.state,
            "calls": self._calls,
            "budget": more.budget,
            "due": dict(more.due),
            "last_canaries": more.last_canaries,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._watch.restore(state["watch"])
        self._calls, more = int(state["calls"]), self._extra_reads
        more.budget, more.due = float(state["budget"]), {name: float(state["due"][name]) for name in more.due}
        last = state["last_canaries"]
        more.last_canaries = None if last is None else int(last)

    def __getstate__(self) -> dict[str, Any]:
        if self.shadow is not None:
            check_child(f"{self.name}, shadow", self.shadow.judge)
        settings = self.settings.replaced(log=self.log.path, shadow=self.shadow, attacks=self.attacks)
        return {name: getattr(self, name) for name in ("name", "scorer", "metric", "stats")} | {"settings": settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Monitor.__init__(self, **state)

    def _begin(self, call: Call) -> None:
        """Prepare the first call in training: find the file, continue from the checkpoint, add the callback."""
        if self._begun:
            return
        self._begun = True
        if self.log.path is None:
            self.log = RewardLog(call.file(self.stats.path, _FILE, self.name, "monitor"))
        if rank() == 0:
            self.log.write([start_record(self.name, self._step, self._watch)])
        saved = (call.saved or {}).get(self.key)
        if saved:
            self._guard("restore", lambda: self.restore(saved), None)
        trainer = call.trainer
        handler = getattr(trainer, "callback_handler", None)
        if trainer is not None and handler is not None and self.callback not in handler.callbacks:
            trainer.add_callback(self.callback)

    def finish(self) -> None:
        """Log which signals were not evaluated in this run, and why. The callback calls it at the end of training."""
        missing, _ = self._watch.not_evaluated()
        if not missing or rank() != 0:
            return
        by_reason: dict[str, list[str]] = {}
        for name, reason in missing.items():
            by_reason.setdefault(reason.removesuffix(" in the log"), []).append(name)
        logger.warning(
            "%s: %d of %d signals of the monitor could not be evaluated: %s.",
            self.name,
            len(missing),
            len(self._watch.signals),
            "; ".join(f"{reason}: {', '.join(names)}" for reason, names in by_reason.items()),
        )

    def _update(self, step: int, call: Call, ranks: Sequence[tuple[list[Seen], Counter[str], list[Canary]]]) -> None:
        observation = Observation(step, [one for seen, _, _ in ranks for one in seen])
        reads = sum((counts for _, counts, _ in ranks), Counter())
        canaries = [canary for _, _, found in ranks for canary in found]
        readings, alarms = self._watch.update(observation)
        alarms = [*self._watch.canaries(step, canaries), *alarms]
        statistics = self._watch.statistics(observation)
        for alarm in alarms:
            self._raise(alarm)
        if rank() == 0:
            names = ("checklist", "retests", "shadow", "canaries")
            records = [canary.record(step) for canary in canaries]
            records.append(step_record(observation, readings, statistics, {name: reads[name] for name in names}))
            self.log.write([*records, *(alarm.record() for alarm in alarms)])
        metrics = {name: r.now if r.recent is None else r.recent for name, r in readings.items()}
        metrics |= {"alarms": float(self._watch.alarms), "length_matched": statistics.get("length_matched")}
        named = [(f"{self.name}/monitor/{name}", v) for name, v in metrics.items() if v is not None]
        self.stats.add(named)
        log_to_trainer(call.log_metric, named)
        if call.saved is not None:
            call.saved[self.key] = self.state

    def _failed(self, part: str, error: str, first: bool) -> None:
        if first:
            logger.warning("%s: the monitor's %s failed (%s); continuing without.", self.name, part, error)
        self.log.write([{"kind": "failure", "step": self._step, "part": part, "error": error}])

    def _raise(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)
        if rank() == 0 and alarm.action != "log":
            logger.warning("%s: %s", self.name, alarm)
        self.should_stop = self.should_stop or alarm.action == "stop"


def _show_attacks(call: Call, attacks: Sequence[Pattern]) -> Iterator[bool]:
    """Whether each completion shows one of some attacks."""
    for sample, prompt in zip(call.samples, call.prompts, strict=True):
        questions = () if sample is None else [item.question for item in sample.checklist.items]
        yield sample is not None and any(one.shown(shown(sample.target), asked(prompt), questions) for one in attacks)


def _penalized(call: Call, shown: Iterable[bool]) -> Call:
    """A call with rewards of at most 0 for some completions."""
    penalized = list(shown)

    def limited(rewards: Rewards) -> Rewards:
        pairs = zip(rewards, penalized, strict=True)
        return [min(reward, 0.0) if reward is not None and limit else reward for reward, limit in pairs]

    parts = {name: limited(values) for name, values in call.parts.items()}
    return replace(call, rewards=limited(call.rewards), parts=parts)


def _seen(call: Call, attacks: Sequence[Pattern]) -> list[Seen]:
    ids = call.checklist_ids
    return [
        seen_of(_text(call, place, sample, ids[place]), call.extra.retests.get(place, ()), attacks)
        for place, sample in enumerate(call.samples)
        if sample is not None
    ]


def _text(call: Call, place: int, sample: Sample, checklist_id: str | None) -> ScoredText:
    """A completion of the call, as the reader of its log returns it."""
    prompt, images = call.described[place]
    data = {
        "prompt": prompt,
        "images": images,
        "completion": shown(sample.target),
        "written": call.completions[place] if sample.target_state in NO_ANSWER_STATES else None,
        "checklist_hash": checklist_id,
        "group": call.groups[place] if call.groups else None,
        "held_out": list(call.held_out[place]),
        "shadow": call.extra.shadow.get(place),
    }
    return ScoredText(str(place), "", call.scores[place], reward=call.rewards[place], data=data, kind="rewards")
