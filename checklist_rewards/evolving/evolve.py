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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checklist_rewards.backends.embedding import near_duplicates, similarities
from checklist_rewards.checklists import EVOLVING_CATEGORY, Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.evolving.buffer import ChecklistBuffer, PromptItems, deviation, read_buffer, write_buffer
from checklist_rewards.evolving.proposer import FromGenerator, Group, GroupProposer, Proposer, new_items
from checklist_rewards.images import shown
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.keys import content_key
from checklist_rewards.refiners.base import Refiner, refine_all
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.unit_tester import UnitTester
from checklist_rewards.rewards.batch import Call, Guard, RewardLog, log_to_trainer
from checklist_rewards.rewards.placement import is_collective
from checklist_rewards.rewards.ranks import gathered, rank
from checklist_rewards.rewards.settings import EvolvingConfig, ProposerConfig, RewardConfig
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import ItemScore, Score, rescore
from checklist_rewards.scores.scales import on_scale

logger = logging.getLogger(__name__)

Lines = dict[str, ItemScore]
"""Answers by item id."""
Changes = dict[str, tuple[PromptItems, PromptItems]]
"""The items of each prompt before and after an update."""
MOST_CANDIDATES = 8
"""Most candidates of a group; each is read about every completion of it."""
_FILE = "checklists.jsonl"
_REWRITES = 2
"""Rewrites per item of the default unit test."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """The prompt of a completion."""

    key: str
    """Equal for the completions of one prompt and checklist, on all ranks."""
    base: Checklist
    """The checklist of the dataset: the persistent items."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What other ranks get of a completion."""

    row: Row
    sample: Sample
    score: float | None
    group: str


def rows_of(call: Call, name: str) -> list[Row | None] | None:
    """The rows of a call, None for one without a checklist; None if a checklist cannot be used."""
    try:
        checklists = [None if value is None else Checklist.parse(value) for value in call.columns[name]]
    except ChecklistError:
        return None
    return [
        None if base is None else Row(content_key([prompt, base.id])[:_DIGITS], base)
        for prompt, base in zip(call.identities, checklists, strict=True)
    ]


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
        self.path = None if self._settings.buffer is None else Path(self._settings.buffer).expanduser()
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
        if rows is None:  # the reward reports which checklist
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
        groups = call.groups or ["" if row is None else row.key for row in rows]  # of the trainer, else by prompt
        mine = [
            Shown(row, replace(sample, checklist=None), None if score is None else score.primary_score, group)
            for row, sample, score, group in zip(rows, call.samples, call.scores, groups, strict=True)
            if row is not None and sample is not None
        ]
        everyone = [one for part in gathered(mine) for one in part]
        self._check_groups(everyone)
        proposed: dict[str, list[ChecklistItem]] = {}
        if rank() == 0:
            proposed = self._guard("proposer", lambda: self._proposed(everyone), proposed)
        proposed = gathered(proposed)[0]
        read: dict[int, Lines] = {}
        read = self._guard("reading", lambda: self._read(call, rows, proposed), read)
        credits = [
            (row.key, group, credits_of(score, read.get(place, {})))
            for place, (row, group, score) in enumerate(zip(rows, groups, call.scores, strict=True))
            if row is not None
        ]
        changes = self._update(everyone, [one for part in gathered(credits) for one in part], proposed)
        self._report(call, proposed, changes)
        return self._guard("rescoring", lambda: self._rescored(call, rows, read, changes), call)

    def _check_groups(self, everyone: Sequence[Shown]) -> None:
        """Refuse groups whose completions have different prompts or checklists: items are kept by prompt."""
        key_of: dict[str, str] = {}
        for one in everyone:
            if key_of.setdefault(one.group, one.row.key) != one.row.key:
                raise SampleError(
                    f"{self.name}: checklists cannot evolve where completions of one group have different prompts or "
                    "checklists, as environments may give them in reset(); let reset() return the same text for all "
                    "completions of a row, or omit the evolving checklists."
                )

    def _proposed(self, everyone: Sequence[Shown]) -> dict[str, list[ChecklistItem]]:
        """The candidates for the groups whose last proposal is longest ago, by prompt."""
        by_key: dict[str, list[Shown]] = {}
        for one in everyone:
            by_key.setdefault(one.row.key, []).append(one)
        had = {key: self.buffer.get(key, some[0].row.base) for key, some in by_key.items() if len(some) > 1}
        oldest = sorted(had, key=lambda key: -1 if (last := had[key].proposed) is None else last)[: self.max_groups]
        groups = {key: _group(by_key[key], had[key]) for key in oldest}
        proposals = self.proposer(list(groups.values())) if groups else []
        if len(proposals) != len(groups):
            raise SampleError(f"the proposer returned {len(proposals)} proposals for {len(groups)} groups.")
        found: dict[str, Checklist] = {}
        for (key, group), proposal in zip(groups.items(), proposals, strict=True):
            try:
                items = self._new(new_items(proposal, had[key].known), had[key].known)
            except (ChecklistError, GenerationError) as error:
                self._guard.failed("proposal", f"prompt {group.input and shown(group.input)!r:.80}: {error}")
                continue
            if items:
                found[key] = Checklist(items=tuple(items))
        for refiner in self.refiners if found else ():
            samples = [
                [Sample(checklist, text, group.input, group.reference, group.history) for text in group.responses]
                for checklist, group in ((checklist, groups[key]) for key, checklist in found.items())
            ]
            refined = refine_all(refiner, list(found.values()), samples) if found else []
            found = {key: one for key, one in zip(found, refined, strict=True) if isinstance(one, Checklist)}
        if (scale := self.scorer.scale) is not None:
            found = {key: on_scale(checklist.items, scale) for key, checklist in found.items()}
        return {key: list(found[key].items) if key in found else [] for key in oldest}

    def _new(self, items: Sequence[ChecklistItem], known: Sequence[ChecklistItem]) -> list[ChecklistItem]:
        """The items as candidates, without those that ask what a known item asks, by the measure of the deduplicator,
        if there is one. It sees only new items itself, because it might merge one with a persistent item."""
        new = [item.model_copy(update={"required": False, "category": EVOLVING_CATEGORY}) for item in items]
        deduplicator = next((refiner for refiner in self.refiners if isinstance(refiner, Deduplicator)), None)
        if deduplicator is not None and new and known:
            both = [*known, *new]
            near = near_duplicates(both, similarities(deduplicator.embedder, both), deduplicator.threshold)
            new = [item for place, item in enumerate(new, start=len(known)) if not near[place, : len(known)].any()]
        return new[:MOST_CANDIDATES]

    def _read(
        self, call: Call, rows: Sequence[Row | None], proposed: Mapping[str, Sequence[ChecklistItem]]
    ) -> dict[int, Lines]:
        """The judge's answers to the candidates, by the place of the completion in the call."""
        chosen = {
            place: replace(sample, checklist=Checklist(items=tuple(proposed[row.key])))
            for place, (row, sample) in enumerate(zip(rows, call.samples, strict=True))
            if row is not None and sample is not None and proposed.get(row.key)
        }
        scores = self.scorer.score_batch(list(chosen.values()), retries=self.retries) if chosen else []
        return {place: {line.id: line for line in score.items} for place, score in zip(chosen, scores, strict=True)}

    def _update(
        self,
        everyone: Sequence[Shown],
        credits: Sequence[tuple[str, str, Mapping[str, float | None]]],
        proposed: Mapping[str, Sequence[ChecklistItem]],
    ) -> Changes:
        """Update the buffer by the credits of the items about all completions, with their prompts and groups."""
        by_key: dict[str, dict[str, list[Mapping[str, float | None]]]] = {}
        for key, group, of_completion in credits:
            by_key.setdefault(key, {}).setdefault(group, []).append(of_completion)
        changes = {}
        for key, base in {one.row.key: one.row.base for one in everyone}.items():
            groups = by_key[key].values()
            ids = {id for group in groups for one in group for id in one}
            # The trainer compares within groups. A prompt that is in the call twice has two.
            found = {id: [deviation([one.get(id) for one in group]) for group in groups] for id in ids}
            deviations = {id: max((d for d in some if d is not None), default=None) for id, some in found.items()}
            changes[key] = self.buffer.update(key, base, deviations, proposed.get(key, ()), key in proposed)
        return changes

    def _rescored(self, call: Call, rows: Sequence[Row | None], read: Mapping[int, Lines], changes: Changes) -> Call:
        """The call under the new checklists. Nothing is read again."""
        samples, scores = list(call.samples), list(call.scores)
        for place, (row, sample, score) in enumerate(zip(rows, call.samples, call.scores, strict=True)):
            if row is None or sample is None or score is None or row.key not in changes:
                continue
            before, after = changes[row.key]
            if before.items == after.items:
                continue
            checklist = self.scorer.prepared(after.checklist(row.base))
            lines = (*score.items, *read.get(place, {}).values())
            samples[place] = replace(sample, checklist=checklist)
            scores[place] = rescore(checklist, score.model_copy(update={"items": lines}))
        return replace(call, samples=samples, scores=scores)

    def _report(self, call: Call, proposed: Mapping[str, Sequence[ChecklistItem]], changes: Changes) -> None:
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
            said = "%s: %s failed (%s); the checklists stay as they are. Further failures are counted."
            logger.warning(said, self.name, part, error)


def _group(some: Sequence[Shown], had: PromptItems) -> Group:
    """The completions of one prompt, for a proposer."""
    sample, scores = some[0].sample, tuple(one.score for one in some)
    responses, active = tuple(shown(one.sample.target) for one in some), tuple(one.item for one in had.active)
    return Group(sample.input, sample.history, sample.reference, responses, scores, had.persistent, active)


def credits_of(score: Score | None, read: Lines) -> dict[str, float | None]:
    """The credits in [0, 1] of all items about one completion, by item id; None if unanswered. Soft, unless the metric
    counts passed items."""
    if score is None:
        return {}
    soft = score.primary_metric != "pass"
    return {line.id: line.credit(soft) for line in (*score.items, *read.values())}


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
