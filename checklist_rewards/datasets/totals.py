"""Totals of a run over rows: scores, written checklists, missing answers with their reasons, and the cost.

A target without an answer (empty, cut in its thought, ending with a tool call) is the failure of a policy. It is
counted by its state, and is missing only if it has no score.

[`Totals`] keep counts only, so their size does not depend on the number of rows. Totals of parts of a run are added
up, and are saved as JSON.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import TypeAdapter

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import find_requirements
from checklist_rewards.judges import Receipt
from checklist_rewards.replies import NoReply
from checklist_rewards.scores import NO_ANSWER_STATES, Score
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.tally import Tally

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
            if item.unanswered is not None and item.value is None:
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
        self.rows += other.rows
        if other.checklists is not None:
            self.checklists = (self.checklists or 0) + other.checklists
        self.items.update(other.items)
        for reason, count in other.unexpressed.items():
            self.unexpressed.setdefault(reason, Count()).__iadd__(count)
        self.left_out.update(other.left_out)
        self.tally += other.tally
        for reason, count in other.unanswered.items():
            self.unanswered.setdefault(reason, Count()).__iadd__(count)
        self.states.update(other.states)
        self.not_asked += other.not_asked
        self.transient += other.transient
        self.silent.update(other.silent)
        self.votes.update(other.votes)
        if other.judged is not None:
            self.judged = (self.judged or Receipt()) + other.judged
        self.written += other.written
        return self

    def dump(self) -> dict[str, Any]:
        """The totals as JSON values."""
        return _TOTALS.dump_python(self, mode="json")

    @classmethod
    def load(cls, dumped: Any) -> Totals:
        """The inverse of [`Totals.dump`]."""
        return _TOTALS.validate_python(dumped)


_TOTALS = TypeAdapter(Totals)
