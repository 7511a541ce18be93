"""The judge behind a reward server: the scorer of another process answers, this one adds up.

Reads go out as rows, those of one target together, and come back as the server's scores. Of these only the verdicts
are taken: probabilities, mass, reasons, who answered and how, exactly as the server read them. Weights, thresholds and
the primary metric are this side's, so a score is the one that the server's scorer would have given here.

How questions are put (model, prompt, mode, number of samples), and where answers are kept, is the server's affair. A
row that it could not score is unanswered, with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checklist_rewards.backends import Progress
from checklist_rewards.backends.models import POCKET
from checklist_rewards.backends.remote import RewardServer
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.scores import Score, Verdict, answer_of

_WAVE = 1024
"""Rows handed over at once; progress is told after each wave."""


class RemoteJudge(Paid):
    """Answers items through a reward server.

    Args:
        server (`str` or [`RewardServer`]): its address, or the client, where that needs settings.
        model (`str`, *optional*, defaults to `"pocket"`): a name other than "pocket" must be that of the server's
            judge, which is compared before the first row is sent.
    """

    def __init__(self, server: str | RewardServer, *, model: str = POCKET):
        self.server = RewardServer(server) if isinstance(server, str) else server
        self.name = self.server.address if model == POCKET else model
        self._model = None if model == POCKET else model

    def check(self) -> None:
        """Nothing can be known before the server is asked."""

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """What the server cannot answer it says itself, row by row."""

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order.

        Args:
            reads (sequence of [`Read`]).
            progress (callable, *optional*): told how many of `reads` were answered since its last call.

        Raises:
            ModelError: if there is no reward server, it does not accept the token, or its judge is another one.
        """
        if reads:
            self._compare()
        rows: dict[tuple[Any, ...], list[int]] = {}
        for place, read in enumerate(reads):
            about = (read.sample, read.target, read.input, read.reference, read.history)
            rows.setdefault(about, []).append(place)
        places = list(rows.values())
        verdicts: list[Verdict | None] = [None] * len(reads)
        started, calls = time.perf_counter(), 0
        for start in range(0, len(places), _WAVE):
            wave = places[start : start + _WAVE]
            outcomes, requests = self.server.score([_row([reads[place] for place in row]) for row in wave])
            calls += requests
            for row, outcome in zip(wave, outcomes, strict=True):
                for place, verdict in zip(row, self._verdicts([reads[p].item for p in row], outcome), strict=True):
                    verdicts[place] = verdict
            if progress is not None:
                progress(sum(map(len, wave)))
        found = [verdict for verdict in verdicts if verdict is not None]
        self._pay(
            Receipt(
                reads=len(reads),
                asked=len(reads),
                unanswered=sum(verdict.unanswered is not None for verdict in found),
                calls=calls,
                engine_seconds=time.perf_counter() - started,
            )
        )
        return found

    def _compare(self) -> None:
        served = self.server.judge()
        if self._model not in (None, served):
            raise ModelError(
                f"the reward server at {self.server.address} judges with {served!r}, not {self._model!r}; leave the "
                "model away to take what it has."
            )

    def _verdicts(self, items: Sequence[ChecklistItem], outcome: Score | str) -> list[Verdict]:
        if isinstance(outcome, str):
            return [Verdict(unanswered=outcome, judge=self.name)] * len(items)
        if [line.id for line in outcome.items] != [item.id for item in items]:
            return [Verdict(unanswered="error_body", judge=self.name)] * len(items)
        grade = None if outcome.quality is None else int(outcome.quality)
        verdicts = [replace(line.verdict(), quality=grade) for line in outcome.items]
        return [self._usable(item, verdict) for item, verdict in zip(items, verdicts, strict=True)]

    def _usable(self, item: ChecklistItem, verdict: Verdict) -> Verdict:
        """A server whose answer does not fit the question has not answered it."""
        if verdict.unanswered is None:
            try:
                answer_of(item, verdict)
            except ValueError:
                return Verdict(unanswered="error_body", judge=self.name)
        return verdict


def _row(reads: Sequence[Read]) -> dict[str, Any]:
    """What the server is sent of one target."""
    first = reads[0]
    row: dict[str, Any] = {"checklist": [_item(read.item) for read in reads], "target": first.target}
    beside = {"input": first.input, "reference": first.reference, "history": first.history}
    return row | {name: text for name, text in beside.items() if text is not None}


def _item(item: ChecklistItem) -> dict[str, Any]:
    # The weight changes no verdict, but its sign may (a panel's ties); a row of weights 0 only would be refused.
    return {**item.model_dump(mode="json", exclude_defaults=True), "weight": item.weight or 1.0}
