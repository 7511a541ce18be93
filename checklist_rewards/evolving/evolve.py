"""Checklists that evolve with the policy: a reward function around another one.

    >>> reward = EvolvingChecklistReward(ChecklistReward(scorer), GroupProposer("org/model"))  # doctest: +SKIP
    >>> trainer = GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset)  # doctest: +SKIP

Every `every` calls in training, a proposer sees groups of completions and proposes items. Items that the refiners keep
are read about all completions of the group. The buffer (`buffer.py`) admits items that tell these completions apart,
and retires items that no longer do. The rewards of the same call are already those of the new checklist.

Rank 0 proposes; completions, candidates and credits are gathered, so all ranks have the same buffer. Between these
gatherings, an error is caught, logged and counted, and changes nothing: no rank waits for another one, and training
continues.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evolving.buffer import ChecklistBuffer, deviation, read_buffer, write_buffer
from checklist_rewards.evolving.candidates import (
    Changes,
    Credits,
    Lines,
    Row,
    Shown,
    candidates_for,
    check_groups,
    credits_of,
    group_of,
    groups_by,
    read_candidates,
    rescored,
    rows_of,
    shown_to_ranks,
)
from checklist_rewards.evolving.proposer import FromGenerator, Proposer
from checklist_rewards.generators.base import Generator
from checklist_rewards.refiners.base import Refiner
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.unit_tester import UnitTester
from checklist_rewards.rewards.batch import Batch, RewardLog, TrainerReward, log_to_trainer, trainer_of
from checklist_rewards.rewards.placement import bind_reference, is_collective, within
from checklist_rewards.rewards.ranks import gathered, rank
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import PrimaryMetric
from checklist_rewards.scores.scales import on_scale
from checklist_rewards.validation import fraction, whole_number

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
_FILE = "checklists.jsonl"
_REWRITES = 2
"""Rewrites per item of the default unit test."""


class EvolvingChecklistReward(TrainerReward):
    """Adds items to the checklists of a [`ChecklistReward`] while the policy is trained; pass it to the trainer in
    place of the reward. A [`RewardMonitor`] goes around it: `RewardMonitor(EvolvingChecklistReward(...))`.

    Args:
        reward ([`ChecklistReward`]):
            Its checklists are the persistent items, which never change.
        proposer (callable or [`Generator`]):
            Proposes items: a [`GroupProposer`], a generator that uses the responses as candidates, or a callable from
            a list of [`Group`] to a list of checklists.
        every (`int`, *optional*, defaults to `10`):
            Calls in training between two proposals. The first is at the first call.
        max_active (`int`, *optional*, defaults to `5`):
            Most active items per prompt. Those with the largest standard deviation in the group stay.
        min_deviation (`float`, *optional*, defaults to `0.01`):
            Items whose standard deviation in a group is at most this number retire. Credits are in [0, 1]: P(yes), or
            0 and 1 with `metric="pass"`.
        max_groups (`int`, *optional*, defaults to `8`):
            Most groups per call that the proposer sees: those whose last proposal is longest ago.
        refiners (sequence of [`Refiner`], *optional*):
            Applied to proposals, in order. Defaults to a [`Deduplicator`], and a [`UnitTester`] (two rewrites per
            item) if the proposer has a model.
        buffer (`str` or `Path`, *optional*):
            JSONL file of the buffer, written after every update. Defaults to `checklists.jsonl` in the trainer's
            output folder, else next to the log of the reward, if it has one.

    Raises:
        SampleError: For an argument that cannot be used.
    """

    def __init__(
        self,
        reward: ChecklistReward,
        proposer: Proposer | Generator,
        *,
        every: int = 10,
        max_active: int = 5,
        min_deviation: float = 0.01,
        max_groups: int = 8,
        refiners: Sequence[Refiner] | None = None,
        buffer: str | Path | None = None,
    ):
        if not isinstance(reward, ChecklistReward):
            raise SampleError(f"reward={reward!r:.60} is not allowed; it must be a ChecklistReward.")
        for name, number in (("every", every), ("max_active", max_active), ("max_groups", max_groups)):
            whole_number(name, number)
        fraction("min_deviation", min_deviation)
        if not callable(proposer) and hasattr(proposer, "generate_batch"):
            proposer = FromGenerator(proposer)
        if not callable(proposer):
            raise SampleError(f"proposer={proposer!r:.60} is not allowed; it must be a generator or a callable.")
        self.reward = reward
        self.__name__ = reward.__name__
        self.proposer: Proposer = proposer
        self.every, self.max_groups = every, max_groups
        self.refiners = _default_refiners(proposer, reward.scorer) if refiners is None else tuple(refiners)
        self.buffer = ChecklistBuffer(max_active, min_deviation)
        self.path = None if buffer is None else Path(buffer)
        self.failures: Counter[str] = Counter()
        """Number of failures by part: `proposal` (of one group), `proposer`, `reading`, `rescoring`, `file`."""
        self._begun = False

    @property
    def scorer(self) -> ChecklistScorer:
        """The scorer of the reward."""
        return self.reward.scorer

    @property
    def metric(self) -> PrimaryMetric | None:
        """The metric of the reward."""
        return self.reward.metric

    @property
    def deadline(self) -> float | None:
        """Seconds for the reads of a call, with those of new items."""
        return self.reward.deadline

    @property
    def log(self) -> RewardLog:
        """The log of the reward."""
        return self.reward.log

    def check(self) -> None:
        """Check the judge, the proposer and the refiners, without loading them. Raises a [`ChecklistRewardsError`]."""
        self.scorer.check()
        for part in (self.proposer, *self.refiners):
            if hasattr(part, "check"):
                part.check()

    def rewarded(self, batch: Batch) -> Batch:
        """Judge, reward and log a call; see [`ChecklistReward.rewarded`]."""
        batch = self.reward.rewards_of(self.judged(batch))
        self.reward.record(batch)
        return batch

    def judged(self, batch: Batch) -> Batch:
        """Score the completions of one call under the current checklists, and let these evolve. In an evaluation (the
        trainer's model is not in training mode), they do not change."""
        bind_reference(self.scorer.judge, trainer_of(batch.log_metric, batch.trainer_state))
        if is_collective(self.scorer.judge):
            raise SampleError(
                f"{self.__name__}: checklists cannot evolve with model='reference' if the ranks hold parts of its "
                "weights (FSDP, ZeRO-3); use DDP, or name a judge."
            )
        rows = rows_of(batch.prompts, batch.columns.get(self.reward.column))
        with within(self.scorer.judge, self.deadline):
            if rows is None:  # the reward reports what is wrong with the column
                return self.reward.judged(batch)
            if batch.training:
                self._begin(batch)
            current = [None if row is None else self.buffer.checklist(row.key, row.base) for row in rows]
            batch = self.reward.judged(replace(batch, columns={**batch.columns, self.reward.column: current}))
            if not batch.training:
                return batch
            self.buffer.calls += 1
            if (self.buffer.calls - 1) % self.every == 0:
                batch = self._evolved(batch, rows)
            saved = getattr(batch.trainer_state, "stateful_callbacks", None)
            if saved is not None:
                saved[self._key] = self.state
        return batch

    def exchanges(self, hook: Any) -> bool:
        """Whether a call communicates between ranks: always."""
        return True

    def pop_stats(self) -> dict[str, float]:
        """Mean of each metric since the last call of this method, with those of the buffer (`<name>/evolving/...`)."""
        return self.reward.pop_stats()

    @property
    def state(self) -> dict[str, Any]:
        """The state of the buffer, as JSON-compatible values. It is saved in `trainer_state.json`."""
        return self.buffer.state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.buffer.restore(state)

    @property
    def _key(self) -> str:
        return f"EvolvingChecklistReward/{self.__name__}"

    def _begin(self, batch: Batch) -> None:
        """At the first call in training: continue from the checkpoint, or without a trainer's state, from the file."""
        if self._begun:
            return
        self._begun = True
        if self.path is None:
            folder = getattr(getattr(batch.trainer, "args", None), "output_dir", None)
            own = self.log.path
            path = None if own is None else own.with_name(f"{own.stem}.{_FILE}")
            self.path = path if folder is None else Path(folder) / _FILE
        saved = (getattr(batch.trainer_state, "stateful_callbacks", None) or {}).get(self._key)
        if saved:
            self.restore(saved)
        elif batch.trainer_state is None and self.path is not None and self.path.is_file():
            self.restore(read_buffer(self.path))

    def _evolved(self, batch: Batch, rows: Sequence[Row | None]) -> Batch:
        """The batch with its samples and scores after one update of the buffer. All ranks call this equally often, and
        every rank reaches each `gathered`."""
        everyone = [one for part in gathered(shown_to_ranks(batch, rows)) for one in part]
        check_groups(everyone, self.__name__)
        proposed: dict[str, list[ChecklistItem]] = {}
        if rank() == 0:
            proposed = self._safely("proposer", lambda: self._proposed(everyone), proposed)
        proposed = gathered(proposed)[0]
        read: dict[int, Lines] = {}
        retries = self.reward.retries
        read = self._safely("reading", lambda: read_candidates(self.scorer, retries, batch, rows, proposed), read)
        credits: dict[str, dict[str, list[Credits]]] = {}
        mine = [
            (row.key, group, credits_of(score, read.get(place, {})))
            for place, (row, group, score) in enumerate(zip(rows, groups_by(batch, rows), batch.scores, strict=True))
            if row is not None
        ]
        for key, group, of_completion in (one for part in gathered(mine) for one in part):
            credits.setdefault(key, {}).setdefault(group, []).append(of_completion)
        changes = self._update({one.row.key: one.row for one in everyone}, credits, proposed)
        self._report(batch, proposed, changes)
        return self._safely("rescoring", lambda: rescored(batch, rows, read, changes, self.reward.prepared), batch)

    def _proposed(self, everyone: Sequence[Shown]) -> dict[str, list[ChecklistItem]]:
        """Ask the proposer about the groups whose last proposal is longest ago."""
        by_key: dict[str, list[Shown]] = {}
        for one in everyone:
            by_key.setdefault(one.row.key, []).append(one)
        had = {key: self.buffer.get(key, some[0].row.base) for key, some in by_key.items() if len(some) > 1}
        oldest = sorted(had, key=lambda key: -1 if (last := had[key].proposed) is None else last)[: self.max_groups]
        if not oldest:
            return {}
        groups = {key: group_of(by_key[key], had[key]) for key in oldest}
        known = {key: had[key].known for key in oldest}
        found, failures = candidates_for(groups, known, self.proposer, self.refiners)
        for error in failures:
            self._failed("proposal", error)
        scale = self.reward.scale
        if scale is not None:
            found = {key: list(on_scale(items, scale).items) for key, items in found.items()}
        return {key: found.get(key, []) for key in oldest}

    def _update(
        self,
        rows: Mapping[str, Row],
        credits: Mapping[str, Mapping[str, Sequence[Credits]]],
        proposed: Mapping[str, Sequence[ChecklistItem]],
    ) -> Changes:
        changes = {}
        for key, row in rows.items():
            groups = credits[key].values()
            ids = {id for group in groups for one in group for id in one}
            # The trainer compares within groups. A prompt that is in the call twice has two.
            found = {id: [deviation([one.get(id) for one in group]) for group in groups] for id in ids}
            deviations = {id: max((d for d in some if d is not None), default=None) for id, some in found.items()}
            changes[key] = self.buffer.update(key, row.base, deviations, proposed.get(key, ()), key in proposed)
        return changes

    def _report(
        self,
        batch: Batch,
        proposed: Mapping[str, Sequence[ChecklistItem]],
        changes: Changes,
    ) -> None:
        """Log the numbers of an update, and write the file."""
        ids = [({i.id for i in before.items}, {i.id for i in after.items}) for before, after in changes.values()]
        numbers = {
            "proposed": sum(map(len, proposed.values())),
            "admitted": sum(len(after - before) for before, after in ids),
            "retired": sum(len(before - after) for before, after in ids),
            "active": sum(len(after.active) for _, after in changes.values()) / max(1, len(changes)),
            "failures": sum(self.failures.values()),
        }
        named = [(f"{self.__name__}/evolving/{name}", float(number)) for name, number in numbers.items()]
        self.log.add(named)
        log_to_trainer(batch.log_metric, named)
        if rank() == 0 and self.path is not None:
            path = self.path
            self._safely("file", lambda: write_buffer(path, self.state), None)

    def _safely(self, part: str, work: Callable[[], Value], fallback: Value) -> Value:
        try:
            return work()
        except Exception as error:  # whatever fails here, training continues, and other ranks are waiting
            self._failed(part, f"{type(error).__name__}: {error}")
            return fallback

    def _failed(self, part: str, error: str) -> None:
        self.failures[part] += 1
        if self.failures[part] == 1:
            logger.warning(
                "%s: %s failed (%s); the checklists stay as they are. Further failures are counted.",
                self.__name__,
                part,
                error,
            )


def _default_refiners(proposer: Any, scorer: ChecklistScorer) -> tuple[Refiner, ...]:
    engine = getattr(proposer, "engine", None)
    tests = () if engine is None else (UnitTester(engine, scorer=scorer, max_samples=_REWRITES),)
    return (Deduplicator(), *tests)
