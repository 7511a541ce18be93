"""Checklists that evolve with the policy: a stage of a reward.

    >>> reward = ChecklistReward(scorer, evolving={"proposer": GroupProposer("org/model")})  # doctest: +SKIP
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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from checklist_rewards.evolving.proposer import FromGenerator, GroupProposer, Proposer
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.refiners.base import Refiner
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.unit_tester import UnitTester
from checklist_rewards.rewards.batch import Call, Guard, RewardLog, log_to_trainer
from checklist_rewards.rewards.placement import is_collective
from checklist_rewards.rewards.ranks import gathered, rank
from checklist_rewards.rewards.settings import EvolvingConfig, ProposerConfig, RewardConfig
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores.scales import on_scale

logger = logging.getLogger(__name__)

_FILE = "checklists.jsonl"
_REWRITES = 2
"""Rewrites per item of the default unit test."""


class Evolution:
    """The stage that adds items to the checklists of a reward while the policy is trained; made by
    `ChecklistReward(evolving=...)`. The checklists of the dataset are the persistent items, which never change.

    Args:
        scorer ([`ChecklistScorer`]): The judge of the reward.
        log ([`RewardLog`]): The log of the reward, which gets the metrics `<name>/evolving/...`.
        config ([`RewardConfig`]): The settings of the reward. `model`, `backend`, `base_url` and `store` are the
            proposer's too, unless it has its own.

    Raises:
        SampleError: For an argument that cannot be used.
    """

    def __init__(self, scorer: ChecklistScorer, log: RewardLog, config: RewardConfig):
        settings = config.evolving or EvolvingConfig()
        proposer: Any = settings.proposer
        if proposer is None or isinstance(proposer, ProposerConfig):
            proposer = _proposer_of(proposer or ProposerConfig(), config)
        elif not callable(proposer) and hasattr(proposer, "generate_batch"):
            proposer = FromGenerator(proposer)
        if not callable(proposer):
            raise SampleError(f"proposer={proposer!r:.60} is not allowed; it must be a generator or a callable.")
        refiners = settings.refiners
        if isinstance(refiners, str | Mapping) or any(isinstance(one, str | Mapping) for one in refiners or ()):
            raise SampleError(f"refiners={refiners!r:.60} is not allowed; it must be a list of refiners.")
        self.scorer, self.log = scorer, log
        self.name, self.column, self.retries = config.name, config.column, config.retries
        self.proposer: Proposer = proposer
        self.every, self.max_groups = settings.every, settings.max_groups
        self.refiners = _default_refiners(proposer, scorer) if refiners is None else tuple(refiners)
        self._settings = settings
        self.begin()

    def begin(self) -> None:
        """Begin a run of training: with the checklists of the dataset."""
        self.buffer = ChecklistBuffer(self._settings.max_active, self._settings.min_deviation)
        self.path = None if self._settings.buffer is None else Path(self._settings.buffer)
        self._guard = Guard(self._failed)
        self._begun = False

    @property
    def failures(self) -> Counter[str]:
        """Number of failures by part: `proposal` (of one group), `proposer`, `reading`, `rescoring`, `file`."""
        return self._guard.failures

    def validate(self) -> None:
        """Check the proposer and the refiners, without loading their models. Raises a [`ChecklistRewardsError`]."""
        for part in (self.proposer, *self.refiners):
            if hasattr(part, "validate"):
                part.validate()

    def current(self, call: Call) -> Call:
        """The call with the checklists of its prompts as they are now."""
        if is_collective(self.scorer.judge):
            raise SampleError(
                f"{self.name}: checklists cannot evolve with model='reference' if the ranks hold parts of its "
                "weights (FSDP, ZeRO-3); use DDP, or name a judge."
            )
        rows = rows_of(call, self.column)
        if rows is None:  # the reward reports what is wrong with the column
            return call
        if call.training:
            self._begin(call)
        checklists = [None if row is None else self.buffer.checklist(row.key, row.base) for row in rows]
        return replace(call, rows=rows, columns={**call.columns, self.column: checklists})

    def __call__(self, call: Call) -> Call:
        """The call, which was judged, after the checklists have evolved. In an evaluation (the trainer's model is not
        in training mode), they do not change."""
        if not call.training or call.rows is None:
            return call
        self.buffer.calls += 1
        if (self.buffer.calls - 1) % self.every == 0:
            call = self._evolved(call, call.rows)
        if call.saved is not None:
            call.saved[self.key] = self.state
        return call

    @property
    def key(self) -> str:
        """Name of the state in `trainer_state.json`."""
        return f"EvolvingChecklistReward/{self.name}"

    @property
    def state(self) -> dict[str, Any]:
        """The state of the buffer, as JSON-compatible values."""
        return self.buffer.state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.buffer.restore(state)

    def _begin(self, call: Call) -> None:
        """At the first call in training: continue from the checkpoint, or without a trainer's state, from the file,
        unless a state was restored by hand."""
        if self._begun:
            return
        self._begun = True
        if self.path is None:
            self.path = call.file(self.log.path, _FILE, self.name, "evolving")
        saved = (call.saved or {}).get(self.key)
        if saved:
            self.restore(saved)
        elif call.trainer_state is None and not self.buffer.calls and self.path is not None and self.path.is_file():
            self.restore(read_buffer(self.path))
            logger.warning("%s: continuing with the checklists of %s.", self.name, self.path)

    def _evolved(self, call: Call, rows: Sequence[Row | None]) -> Call:
        """The call with its samples and scores after one update of the buffer. All ranks call this equally often, and
        every rank reaches each `gathered`."""
        everyone = [one for part in gathered(shown_to_ranks(call, rows)) for one in part]
        check_groups(everyone, self.name)
        proposed: dict[str, list[ChecklistItem]] = {}
        if rank() == 0:
            proposed = self._guard("proposer", lambda: self._proposed(everyone), proposed)
        proposed = gathered(proposed)[0]
        read: dict[int, Lines] = {}
        read = self._guard("reading", lambda: read_candidates(self.scorer, self.retries, call, rows, proposed), read)
        credits: dict[str, dict[str, list[Credits]]] = {}
        mine = [
            (row.key, group, credits_of(score, read.get(place, {})))
            for place, (row, group, score) in enumerate(zip(rows, groups_by(call, rows), call.scores, strict=True))
            if row is not None
        ]
        for key, group, of_completion in (one for part in gathered(mine) for one in part):
            credits.setdefault(key, {}).setdefault(group, []).append(of_completion)
        changes = self._update({one.row.key: one.row for one in everyone}, credits, proposed)
        self._report(call, proposed, changes)
        return self._guard("rescoring", lambda: rescored(call, rows, read, changes, self.scorer.prepared), call)

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
            self._guard.failed("proposal", error)
        if (scale := self.scorer.scale) is not None:
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
        call: Call,
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
        named = [(f"{self.name}/evolving/{name}", float(number)) for name, number in numbers.items()]
        self.log.add(named)
        log_to_trainer(call.log_metric, named)
        if rank() == 0 and self.path is not None:
            path = self.path
            self._guard("file", lambda: write_buffer(path, self.state), None)

    def _failed(self, part: str, error: str, first: bool) -> None:
        if first:
            logger.warning(
                "%s: %s failed (%s); the checklists stay as they are. Further failures are counted.",
                self.name,
                part,
                error,
            )


def _default_refiners(proposer: Any, scorer: ChecklistScorer) -> tuple[Refiner, ...]:
    engine = getattr(proposer, "engine", None)
    tests = () if engine is None else (UnitTester(engine, scorer=scorer, max_samples=_REWRITES),)
    return (Deduplicator(), *tests)


_OF_THE_JUDGE = ("model", "backend", "base_url", "store")


def _proposer_of(settings: ProposerConfig, judge: ScorerConfig) -> GroupProposer:
    if not settings.model:
        given = settings.model_fields_set - {"model"}
        of_judge = {name: getattr(judge, name) for name in _OF_THE_JUDGE if name in judge.model_fields_set - given}
        settings = settings.replaced(**of_judge)
    if not settings.model:
        raise SampleError("proposer requires a model; set `proposer: {model: ...}`.")
    return GroupProposer(settings, max_items=settings.max_items, prompt=settings.prompt)
