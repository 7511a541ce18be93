"""What is done with rows: write their checklists, score them, or both. One process and a cluster share this code.

A [`RowTask`] is a value that can be sent to another process. [`RowTask.open`] builds its [`RowWork`] there, which
validates rows and processes them in batches. No engine is loaded before the first batch that needs one.

[`Totals`] of a run over rows are counts of its scores, written checklists, missing answers with their reasons, and the
cost. Those of parts of a run are added up, and are saved as JSON. A target without an answer (empty, cut in its
thought, ending with a tool call) is the failure of a policy: it is counted by its state, and missing only without a
score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter

from checklist_rewards.backends import Engine
from checklist_rewards.backends.budget import Bill
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.checklists import Checklist
from checklist_rewards.datasets.columns import PROMPT, checklist_columns
from checklist_rewards.errors import ChecklistError, ConfigError, GenerationError, SampleError, warn_once
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import SCORE_COLUMN, Row
from checklist_rewards.files.store import Store
from checklist_rewards.images import words_of
from checklist_rewards.judges import Progress, Receipt
from checklist_rewards.messages import with_places
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.progress import Bar
from checklist_rewards.rows import Columns, Request, image_column
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import NO_ANSWER_STATES, Score
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.tally import Tally

if TYPE_CHECKING:
    from checklist_rewards.pipelines import Pipeline

_SHOWN_ROWS = 5
BY_RULES, BY_MODEL = "by rules", "by the model"


@dataclass
class Count:
    """How often one reason occurred, with the first rows that have it."""

    count: int = 0
    rows: list[int | str] = field(default_factory=list)
    detail: str = ""

    def add(self, row: int | str, detail: str) -> None:
        """Count one occurrence in the row with this number or name."""
        self.count += 1
        self.detail = self.detail or detail
        if len(self.rows) <= _SHOWN_ROWS and row not in self.rows[-1:]:
            self.rows.append(row)

    def __iadd__(self, other: Count) -> Count:
        self.count += other.count
        self.detail = self.detail or other.detail
        self.rows = [*self.rows, *other.rows][: _SHOWN_ROWS + 1]
        return self

    @property
    def shown_rows(self) -> str:
        """The first rows, as text."""
        return ", ".join(map(str, self.rows[:_SHOWN_ROWS])) + (", …" if len(self.rows) > _SHOWN_ROWS else "")


@dataclass
class Totals:
    """What a run, or a part of it, did."""

    rows: int = 0
    checklists: int | None = None
    """Checklists that were written; None for runs that write none."""
    items: Counter[str] = field(default_factory=Counter)
    """Written items by origin, `BY_RULES` or `BY_MODEL`, in runs where rules find items."""
    unexpressed: dict[str, Count] = field(default_factory=dict)
    """Requirements that rules found but that no check expresses, by reason."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Entries of replies that are not in the checklists, by fault."""
    tally: Tally = field(default_factory=Tally)
    unanswered: dict[str, Count] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    """Targets that are not whole answers, by state; see [`Target`]."""
    not_asked: int = 0
    """Targets without an answer about which the judge was not asked."""
    transient: int = 0
    """Missing results that may not be missing if the run is repeated."""
    silent: Counter[str] = field(default_factory=Counter)
    """Unanswered votes per judge of a panel."""
    votes: Counter[str] = field(default_factory=Counter)
    judged: Receipt | None = None
    """Cost of judging; None for runs that judge nothing."""
    written: Receipt = field(default_factory=Receipt)
    """Cost of writing checklists."""

    def add(self, row: int | str, score: Score) -> None:
        """Count a score of the row with this number or name."""
        self.tally.add(score)
        if score.state != "answered":
            self.states[score.state] += 1
        self.not_asked += score.no_answer
        for item in score.items:
            if item.unanswered is not None and item.value is None and not item.not_needed:
                self.miss(item.unanswered, row)
            for vote in item.votes or ():
                self.votes[vote.judge or ""] += 1
                self.silent[vote.judge or ""] += vote.unanswered is not None
                # The item has an answer from other judges, but the run still stopped at its budget.
                if vote.unanswered is not None and vote.unanswered.reason == Reason.BUDGET and item.unanswered is None:
                    self.miss(vote.unanswered, row)

    @property
    def no_answer(self) -> dict[str, int]:
        """Targets without an answer, by state."""
        return {state: count for state, count in sorted(self.states.items()) if state in NO_ANSWER_STATES}

    def add_checklist(
        self, row: int | str, result: Checklist | GenerationError | None, ruled: str | None = None
    ) -> None:
        """Count the generator's result for the row with this number or name. `ruled` is its input if rules found some
        of the items."""
        self.checklists = (self.checklists or 0) + isinstance(result, Checklist)
        if ruled is not None:
            from checklist_rewards.generators import find_requirements  # a third of the time to start a command

            for item in result.items if isinstance(result, Checklist) else ():
                self.items[BY_MODEL if item.evidence is None else BY_RULES] += 1
            for found in find_requirements(ruled):
                if found.check is None:
                    self.unexpressed.setdefault(found.reason, Count()).add(row, repr(ruled[found.start : found.end]))
        if isinstance(result, GenerationError):
            raw = f" The last reply was {result.raw!r:.120}" if result.raw else ""
            self.miss(Unanswered(Reason.NOT_GENERATED, f"{result}{raw}"), row)
            self.transient += isinstance(result, NoReply) and result.transient

    def miss(self, unanswered: Unanswered, row: int | str) -> None:
        """Count a missing result of the row with this number or name."""
        self.unanswered.setdefault(str(unanswered.reason), Count()).add(row, unanswered.detail)
        self.transient += unanswered.transient_reason is not None

    def __iadd__(self, other: Totals) -> Self:
        for name in (one.name for one in fields(Totals)):
            own, more = getattr(self, name), getattr(other, name)
            if isinstance(more, Counter):
                own.update(more)
            elif isinstance(more, dict):
                for reason, count in more.items():
                    own.setdefault(reason, Count()).__iadd__(count)
            elif own is None:
                setattr(self, name, more)
            elif more is not None:
                own += more
                setattr(self, name, own)
        return self

    def dump(self) -> dict[str, Any]:
        """The totals as JSON values."""
        return _TOTALS.dump_python(self, mode="json")

    @classmethod
    def load(cls, dumped: Any) -> Totals:
        """The inverse of [`Totals.dump`]."""
        return _TOTALS.validate_python(dumped)


_TOTALS = TypeAdapter(Totals)


class Source(StrEnum):
    """Where the checklist of a row comes from."""

    COLUMN = "column"
    """The row, or the checklist that its [`Columns`] share."""
    WRITTEN = "written"
    """The writer of the pipeline, for each row."""


class RowWork:
    """A pipeline at work on rows.

    Args:
        pipe ([`Pipeline`]): the pipeline.
        columns ([`Columns`]): the columns of the rows.
        totals ([`Totals`]): receives the totals of the rows that were processed.
        scores (`bool`): score the rows.
        checklists ([`Source`], [`Checklist`] or None): where the checklists come from; or the checklist of all rows,
            which is then written to every row; or None if it could not be written.
        shard (`str`, *optional*): name of the file of the rows, which names them in the totals.
        bill ([`Bill`], *optional*): what writing has cost, for [`RowWork.totals_with_cost`].
    """

    def __init__(
        self,
        pipe: Pipeline,
        columns: Columns,
        totals: Totals,
        *,
        scores: bool,
        checklists: Source | Checklist | None,
        shard: str = "",
        bill: Bill | None = None,
    ):
        self.pipe, self.columns, self.totals, self.bill = pipe, columns, totals, bill or Bill()
        self.scores, self.checklists, self.shard = scores, checklists, shard
        self.writes = checklists is Source.WRITTEN
        self.keeps = checklists is not Source.COLUMN
        """Whether the checklists are written to the rows."""

    @property
    def totals_with_cost(self) -> Totals:
        """The totals so far, with what they have cost."""
        judged = getattr(self.pipe.scorer, "receipt", None) if self.scores else None
        return replace(self.totals, left_out=self.pipe.left_out, judged=judged, written=self.bill.receipt)

    def validate(self, row: Row) -> Checklist | None:
        """The checklist of a row; None if it has none or if it is still to be written. Raises a
        [`ChecklistRewardsError`] that names the place of a row that is not valid."""
        return self._read(row)[2]

    def has_images(self, row: Row) -> bool:
        """Whether a row has images, which are not read."""
        if self.columns.images == "ignore":
            return False
        texts = [messages_in(row.data.get(name)) for name in (*self.columns.inputs, self.columns.target)]
        return bool(image_column(row.data)[1]) or any(with_places(text)[1] for text in texts)

    def _read(self, row: Row) -> tuple[Request | None, Sample | None, Checklist | None]:
        """The request for the checklist of a row, if one is written; the text to score, if rows are scored; and the
        checklist that is there."""
        data, where, checklist = row.data, row.where, self.checklists
        request = sample = None
        if self.writes:
            if data.get("checklist") not in (None, "", []):
                warn_once(where, "checklist", "the row's own checklist is replaced by the one that is written")
            request = self.pipe.check_request(self.columns.request_of(data, where), where)
            if not self.scores and len(self.columns.inputs) > 1:
                self.columns.messages_of(data, where)  # raises for an image that the text would not have
            if not self.scores and PROMPT in data and self.columns.inputs != (PROMPT,):
                raise SampleError(
                    f"{where}: the input is in {', '.join(self.columns.inputs)}, but the row also has a column "
                    f"{PROMPT!r}, which a trainer would use as the input; remove or rename that column."
                )
        if checklist is Source.COLUMN:
            checklist = self.columns.checklist_of(data, where)
        if self.scores:
            sample = self.columns.sample_of(data, where, checklist if isinstance(checklist, Checklist) else ())
            if isinstance(checklist, Checklist):
                self.pipe.check_checklist(checklist, self.columns.checklist_place(where))
            if (sample.images or sample.target_images) and (self.keeps or checklist is not None):
                self.pipe.check_sample(sample, where)
        return request, sample, checklist if isinstance(checklist, Checklist) else None

    def process(
        self,
        rows: Sequence[Row],
        written: Progress | None = None,
        reads: Bar | None = None,
        *,
        skip_invalid: bool = False,
    ) -> list[dict[str, Any]]:
        """Write the checklists of rows and score them, as one batch. Returns the output rows, in order.

        Args:
            rows (sequence of [`Row`]): the rows.
            written (callable, *optional*): called with the number of checklists written since its last call.
            reads ([`Bar`], *optional*): counts the reads. Those of checklists that were not in the rows are added to
                its total.
            skip_invalid (`bool`, *optional*, defaults to `False`): an invalid row has no result, see
                [`RowWork.failed`], instead of raising its error.
        """
        valid, invalid = {}, {}
        for place, row in enumerate(rows):
            try:
                valid[place] = self._read(row)
            except (SampleError, ChecklistError) as error:
                if not skip_invalid:
                    raise
                invalid[place] = str(error)
        results: dict[int, Checklist | GenerationError | None]
        results = {place: checklist for place, (_, _, checklist) in valid.items()}
        if self.writes:
            requests = [request for request, _, _ in valid.values() if request is not None]
            results = dict(zip(valid, self.pipe.write_batch(requests, written), strict=True))
        samples = {
            place: replace(sample, checklist=result)
            for (place, result), (_, sample, _) in zip(results.items(), valid.values(), strict=True)
            if sample is not None and isinstance(result, Checklist)
        }
        if reads is not None and self.keeps:
            reads.expect(sum(len(sample.checklist) for sample in samples.values()))
        scores = dict(zip(samples, self.pipe.score_batch(list(samples.values()), reads), strict=True))
        out = {}
        for place, (request, _, _) in valid.items():
            row, result, score = rows[place], results[place], scores.get(place)
            data, name = dict(row.data), self.name_of(row)
            if self.keeps:
                if not self.scores:
                    data[PROMPT] = self.columns.messages_of(row.data, row.where)
                data |= checklist_columns(result)
            if self.scores:
                data[SCORE_COLUMN] = None if score is None else score.model_dump()
            out[place] = data
            if self.writes:
                ruled = words_of(request.input) if request is not None and self.pipe.finds_constraints else None
                self.totals.add_checklist(name, result, ruled)
            elif score is None:
                self.totals.miss(Unanswered(Reason.NO_CHECKLIST), name)
            if score is not None:
                self.totals.add(name, score)
        self.totals.rows += len(valid)
        for place, why in invalid.items():
            out[place] = self.failed(rows[place], Unanswered(Reason.INVALID_ROW, why))
        return [out[place] for place in range(len(rows))]

    def failed(self, row: Row, why: Unanswered) -> dict[str, Any]:
        """The output of a row that cannot be processed: all new columns are null."""
        self.totals.rows += 1
        self.totals.miss(why, self.name_of(row))
        columns = checklist_columns(None) if self.keeps else {}
        return row.data | columns | ({SCORE_COLUMN: None} if self.scores else {})

    def name_of(self, row: Row) -> int | str:
        """The row in the totals: its number, after the name of its shard if it has one."""
        return f"{self.shard}:{row.number}" if self.shard else row.number


@dataclass(frozen=True)
class RowTask:
    """Work on rows, as a value for another process.

    Args:
        config ([`PipelineConfig`]): the pipeline.
        judge ([`Engine`]): the engine of the judge.
        columns ([`Columns`]): the columns of the rows.
        scores (`bool`, *optional*, defaults to `True`): score the rows.
        checklists ([`Source`] or [`Checklist`], *optional*, defaults to `Source.COLUMN`): where the checklists come
            from.
        writer ([`Engine`], *optional*): the engine that writes checklists. Required with `Source.WRITTEN`.
    """

    config: PipelineConfig
    judge: Engine
    columns: Columns
    scores: bool = True
    checklists: Source | Checklist = Source.COLUMN
    writer: Engine | None = None

    def __post_init__(self) -> None:
        if self.writer is None and self.checklists is Source.WRITTEN:
            raise ConfigError("checklists=Source.WRITTEN requires a writer.")

    def of(self, folder: Path) -> RowTask:
        """The task for rows whose relative paths of images begin in a folder."""
        return replace(self, columns=replace(self.columns, folder=folder))

    def open(self, store: Store | None, shard: str = "") -> RowWork:
        """Build the pipeline, with `store` for its answers."""
        from checklist_rewards.pipelines import assemble

        bill = Bill()
        writer = None if self.writer is None else self.writer.within(bill=bill)
        pipe = assemble(self.config, writer, self.judge, store, None if writer is None else writer.named)
        what: dict[str, Any] = {"scores": self.scores, "checklists": self.checklists, "shard": shard, "bill": bill}
        return RowWork(pipe, self.columns, Totals(), **what)

    def validate(self) -> None:
        """Check that all models exist, without loading them. Raises a [`ChecklistRewardsError`]."""
        pipe = self.open(None).pipe
        if self.scores:
            pipe.scorer.validate()
        if self.writer is not None:
            pipe.check_writers()

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the results depend on besides the rows, as JSON values."""
        columns = asdict(replace(self.columns, optional=frozenset(), shared=None))
        if columns["images"] == "show":  # the settings of runs before there were images
            del columns["images"]
        del columns["named"]  # no result depends on it: rows are refused
        del columns["folder"]  # that of the source
        return {
            "pipeline": self.config.model_dump(mode="json"),
            "judge": _engine(self.judge) if self.scores else None,
            "writer": None if self.writer is None else _engine(self.writer),
            "columns": columns | {"optional": sorted(self.columns.optional), "shared": _id(self.columns.shared)},
            "scores": self.scores,
            "checklists": str(_id(self.checklists)),
        }


def _engine(engine: Engine) -> dict[str, Any]:
    """The model of an engine. The user names none if a file of judges or code checks answer all items."""
    return {"model": engine.model, "identity": engine.identity if engine.model != UNNAMED else UNNAMED}


def _id(checklist: Any) -> Any:
    return checklist.id if isinstance(checklist, Checklist) else checklist
