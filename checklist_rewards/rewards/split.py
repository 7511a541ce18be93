"""Rewards per criterion, from one scoring, and rewards that are awaited.

    >>> parts = reward.split(by="category", dataset=dataset)  # doctest: +SKIP
    >>> args = GRPOConfig(multi_objective_aggregation="normalize_then_sum", ...)  # doctest: +SKIP
    >>> trainer = GRPOTrainer(model=..., reward_funcs=parts, args=args, train_dataset=dataset)  # doctest: +SKIP

A trainer calls its reward functions one after another, or concurrently, with the same batch. The first part that is
called judges it, computes the rewards of all parts, and logs them; the other parts get theirs from it. A batch is
recognized by its content, and each part takes its rewards once: a part that is called again with equal completions,
such as those of an evaluation, starts a new scoring. Only the rewards are kept in between, of a bounded number of
batches, so a trainer may use some of the parts only.

The reward of a part is the metric over its items. A completion whose checklist has no item of a part gets None from
it. Failures abstain as for the whole reward (`ranks.py`), each part by itself.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.keys import content_key
from checklist_rewards.rewards.batch import Call, Rewards, only
from checklist_rewards.rewards.ranks import ranks
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score
from checklist_rewards.validation import nearest, one_of

By = Literal["category", "sign"] | Mapping[str, Sequence[str]] | Callable[[ChecklistItem], str | None]
"""How items are assigned to parts; see [`split`]."""
OTHER = "other"
"""The part of items that are assigned to none."""
_MOST_BATCHES = 64


class AsyncReward:
    """A reward that trainers await; create it with `as_async()` of a [`ChecklistReward`] or a [`RewardPart`].

    An object with an async `__call__` can be pickled and has a name of its own: TRL names a `functools.partial` after
    the wrapped function. TRL up to 1.12 only awaits what `inspect.iscoroutinefunction` accepts, so the object also has
    the attributes by which `inspect` recognizes an `async def` function.
    """

    __defaults__ = __kwdefaults__ = None

    def __init__(self, reward: Any):
        self.reward = reward
        self.__name__ = reward.__name__

    async def __call__(
        self, /, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any
    ) -> list[float | None]:
        """Run the reward in a thread; see [`ChecklistReward.__call__`].

        Raises [`SampleError`] if ranks have to exchange groups: the threads of several rewards would do so in a
        different order on each rank.
        """
        call = Call.of(prompts, completions, **kwargs)
        if ranks() > 1 and self.reward.exchanges(call):
            raise SampleError(
                f"{self.__name__}: groups on {ranks()} ranks (on_failure='group', a shaping step across the "
                "group, a monitor, several rewards that the trainer sums, or TRL before 1.14) require the reward "
                "itself instead of as_async()."
            )
        return (await asyncio.to_thread(self.reward.run, call)).rewards

    __code__ = __call__.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        """The arguments of a call; derived from `__code__`, they would include `self`."""
        return inspect.signature(self.__call__)


class RewardPart:
    """The reward of one part of the checklists; made by `split()` of a reward."""

    def __init__(self, parts: Parts, part: str, weight: float):
        self.__name__ = f"{parts.source.__name__}/{part}"
        self.part = part
        self.weight = weight
        """Suggestion for the trainer's `reward_weights`: the sum of |weight| of the part's items, as the mean over the
        checklists that have any. 1 if `split()` was called without a dataset."""
        self._parts = parts

    def __call__(self, /, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """The rewards of this part: None for a completion whose checklist has no item of this part, or of which too
        few were answered. The arguments are those of [`ChecklistReward.__call__`]."""
        return self.run(Call.of(prompts, completions, **kwargs)).rewards

    def run(self, call: Call) -> Call:
        """The call with the rewards of this part. How they were made stays with the reward of the whole checklist."""
        return replace(call, rewards=self._parts.rewards(self.part, call))

    @property
    def source(self) -> Any:
        """The [`ChecklistReward`] of the whole checklist."""
        return self._parts.source

    def exchanges(self, call: Call) -> bool:
        """Whether a call communicates between ranks."""
        return self.source.exchanges(call)

    def as_async(self) -> AsyncReward:
        """The same reward as a coroutine; see [`ChecklistReward.as_async`]."""
        return AsyncReward(self)


def split(
    source: Any,
    by: By,
    *,
    names: Sequence[str] | None = None,
    dataset: Iterable[Mapping[str, Any]] | None = None,
) -> list[RewardPart]:
    """Several reward functions that share one scoring.

    Args:
        source ([`ChecklistReward`]): Judges the completions. Its `categories` are the first parts for `by="category"`,
            unless `names` is given.
        by (`str`, mapping or callable): `"category"`: the item's category. `"sign"`: `positive` and `negative`
            weights. A mapping from the name of a part to its categories. A callable from a [`ChecklistItem`] to the
            name of its part. Items without a part belong to `other`.
        names (sequence of `str`, *optional*): Names of the parts, in their order. An item of another part is an error.
        dataset (iterable of mappings, *optional*): The training rows. Their checklists are checked and determine the
            names and weights of the parts.

    Returns:
        `list[RewardPart]`: One per part.

    Raises:
        SampleError: For an argument or a checklist that cannot be used.
    """
    if source.primary_metric == "quality":
        raise SampleError("metric='quality' cannot be split: it grades the whole text, not items.")
    parts = Parts(source, by, ())
    given = names
    if given is None:
        usual = {"sign": ("positive", "negative"), "category": source.categories}
        given = usual[by] if isinstance(by, str) else list(by) if isinstance(by, Mapping) else ()
    if isinstance(given, str) or not all(isinstance(name, str) and name for name in given):
        raise SampleError(f"names={given!r} is not allowed; it must be a list of strings.")
    if len(set(given)) < len(given):
        raise SampleError(f"names={list(given)} is not allowed: a name occurs twice.")
    parts.names = tuple(given) if names is not None or dataset is None else ()
    sizes = {name: [1.0] for name in given}
    if dataset is not None:
        column = source.column
        sizes = parts.check((_checklist(row, column, number) for number, row in enumerate(dataset, 1)), "dataset")
        empty = [name for name in parts.names if not sizes[name]]
        if empty:
            raise SampleError(f"part {empty[0]!r} has no item in the dataset; remove it from names.")
        sizes = {name: sizes[name] for name in [*filter(sizes.get, given), *sizes]}  # the given order comes first
    if not sizes:
        raise SampleError("split() does not know the names of the parts; pass dataset=... or names=[...].")
    parts.names = tuple(sizes)
    return [RewardPart(parts, name, sum(sizes[name]) / len(sizes[name])) for name in sizes]


@dataclass(eq=False)
class _Judged:
    """The rewards of a batch, for the parts that have not taken theirs."""

    key: str
    left: set[str]
    found: Future[Mapping[str, Sequence[float | None]]] = field(default_factory=Future)


class Parts:
    """The parts of all checklists of a run, and the scoring that they share. Thread-safe; a pickled copy starts empty.

    Args:
        source ([`ChecklistReward`]): Judges the completions.
        by (`str`, mapping or callable): As in [`split`].
        names (tuple of `str`): Names of the parts; empty if they are not known yet.
    """

    def __init__(self, source: Any, by: Any, names: tuple[str, ...]):
        self.source, self.by, self.names = source, by, names
        self._assigned = _assignment(by)
        self._lock = threading.Lock()
        self._judged: deque[_Judged] = deque(maxlen=_MOST_BATCHES)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.by, self.names)

    def part_of(self, item: ChecklistItem) -> str:
        """The name of the part an item belongs to."""
        return self._assigned(item) or OTHER

    def check(self, checklists: Iterable[Any], where: str) -> dict[str, list[float]]:
        """The sum of |weight| of each part, for each checklist that has it. With `names`, items of another part raise
        [`SampleError`]."""
        sizes: dict[str, list[float]] = {name: [] for name in self.names}
        for number, value in enumerate(checklists, start=1):
            if value is None:
                continue
            checklist = Checklist.parse(value, f"{where}, row {number}")
            found: dict[str, float] = {}
            for item in checklist.items:
                part = self.part_of(item)
                if self.names and part not in self.names:
                    raise SampleError(
                        f"{where}, row {number}: item {item.question!r:.60} belongs to part {part!r}, but the parts "
                        f"are {', '.join(self.names)}; add it to names, or pass the dataset to split()."
                    )
                found[part] = found.get(part, 0.0) + abs(item.weight)
            for part, size in found.items():
                sizes.setdefault(part, []).append(size)
        return sizes

    def calls(self, call: Call) -> Iterator[tuple[str, Call]]:
        """Name and call of each part: the samples and scores with its items, or None where a checklist has none."""
        for name in self.names:
            rows = [self._only(name, sample, score) for sample, score in zip(call.samples, call.scores, strict=True)]
            yield name, replace(call, samples=[sample for sample, _ in rows], scores=[score for _, score in rows])

    def _only(self, name: str, sample: Sample | None, score: Score | None) -> tuple[Sample | None, Score | None]:
        if sample is None or score is None:
            return None, None
        items = [item.id for item in sample.checklist.items if item.weight and self.part_of(item) == name]
        return only(sample, score, items, self.source.primary_metric) if items else (None, None)

    def rewards(self, part: str, call: Call) -> Rewards:
        """The rewards of one part, judged now or taken from another part's call."""
        source = self.source
        read = [call.columns.get(name) for name in (source.column, source.reference_column) if name is not None]
        key = content_key([call.identities, list(call.completions), read])
        with self._lock:
            judged = next((one for one in self._judged if one.key == key and part in one.left), None)
            judges = judged is None
            if judged is None:
                judged = _Judged(key, set(self.names))
                self._judged.append(judged)
            judged.left.discard(part)
            if not judged.left:
                self._judged.remove(judged)
        if judges:
            self._judge(judged, call)
        return list(judged.found.result()[part])

    def _judge(self, judged: _Judged, call: Call) -> None:
        try:
            self.check(self.source.values_of(self.source.column, call), self.source.__name__)
            judged.found.set_result(self.source.run(replace(call, split=self.calls)).parts)
        except BaseException as error:  # whatever it was, the parts that wait for this batch must not wait for ever
            judged.found.set_exception(error)
            with self._lock:
                if judged in self._judged:
                    self._judged.remove(judged)
            raise


def _assignment(by: By) -> Callable[[ChecklistItem], str | None]:
    """The function that gives the part of an item. Raises [`SampleError`] if `by` is not as in [`split`]."""
    if callable(by):
        return by
    if not isinstance(by, Mapping):
        one_of("by", by, ("category", "sign"))
        return (lambda item: item.category) if by == "category" else _sign
    of_category = {category: part for part, group in by.items() for category in _group(part, group)}
    if sum(map(len, by.values())) > len(of_category):
        raise SampleError(f"by={dict(by)} is not allowed: a category belongs to two parts.")
    return lambda item: of_category.get(item.category or "")


def _sign(item: ChecklistItem) -> str:
    return "negative" if item.weight < 0 else "positive"


def _group(part: str, group: Any) -> Sequence[str]:
    if isinstance(group, str) or not isinstance(group, Sequence) or not all(isinstance(c, str) for c in group):
        raise SampleError(f"by[{part!r}]={group!r} is not allowed; it must be a list of categories.")
    return group


def _checklist(row: Mapping[str, Any], column: str, number: int) -> Any:
    if column not in row:
        near = nearest(column, list(row))
        raise SampleError(
            f"dataset, row {number}: column {column!r} not found{near}; the columns are {', '.join(row)}."
        )
    return row[column]
