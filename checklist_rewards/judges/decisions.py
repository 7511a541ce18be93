"""The judge behind a Decisions API: a server answers all questions about a target in one request.

Yes/no items are sent as predicates, ordered scales as scores, and other options as choices, whose order is shuffled
deterministically per (item, target, judge) to cancel position bias. The server writes the prompt around the questions.
The judge prompt of this package, `"judges/decision"` by default, is the input of the request up to `{question}`, and
the instructions of each question from there on.

The method of a verdict is "decision". Its label mass is None if the server does not report it; then `mass_floor` does
not apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.decisions.protocols import DecisionQuestion
from checklist_rewards.checklists import ChecklistItem, Key, key_of
from checklist_rewards.judges.base import Ask
from checklist_rewards.judges.logprob import Labels, LogprobJudge
from checklist_rewards.judges.questions import in_order, when_to_abstain
from checklist_rewards.prompts import PromptTemplate

DEFAULT_PROMPT = "judges/decision"
MOST_LEVELS = 10
"""Longest scale that is sent as a score: servers label its levels with the digits 0 to 9."""
_FORMAT = "decision-read-1"


class DecisionsJudge(LogprobJudge):
    """Answers items through a Decisions API; takes the arguments of [`LogprobJudge`] except `examples`. `mass_floor`
    applies if the server reports the label mass."""

    default_prompt = DEFAULT_PROMPT
    _labels_apart = False  # each question names its own labels to the server, so all of a target fit one request
    _questions_alone = True  # it has the text around a question, too
    _most_options = None
    _method = "decision"

    @override
    def _questions(self, asks: Sequence[Ask]) -> list[tuple[str, Labels]]:
        questions = [question_of(read.item, read.target, self.name, self.prompt) for read in asks]
        return [(question.text(), {label: label for label in question.labels}) for question in questions]

    @override
    def _group(self, read: Ask, prompt: PromptTemplate, labels: Labels) -> tuple[ReadGroup, Key]:
        state, system = self.prompt.prefix(**read.texts).rstrip(), self.prompt.system
        return ReadGroup(system, state), key_of(_FORMAT, self.engine.identity, system or "", state)


def question_of(item: ChecklistItem, target: str, judge: str, prompt: PromptTemplate) -> DecisionQuestion:
    """The question about `target` to send for an item. The order of its choices depends on the name of the judge."""
    instructions = prompt.tail(item.question + when_to_abstain(item)).strip()
    if item.options is None:
        return DecisionQuestion("predicate", instructions)
    levels = levels_of(item)
    if levels is not None:
        return DecisionQuestion("score", instructions, levels)
    return DecisionQuestion("choice", instructions, in_order(item, target, judge, lettered=True))


def levels_of(item: ChecklistItem) -> tuple[str, ...] | None:
    """The labels of an ordered scale from the lowest value to the highest; None for other options.

    A scale has 3 to 10 options, declared in ascending or descending order of distinct values, and no abstention.
    """
    values = list(item.values.values())
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not 3 <= len(values) <= MOST_LEVELS or len(set(known)) < len(known):
        return None
    labels = tuple(item.values)
    if known == sorted(known):
        return labels
    return labels[::-1] if known == sorted(known, reverse=True) else None
