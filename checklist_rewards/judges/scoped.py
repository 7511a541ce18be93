"""Items about single messages: "never reveals the key at any turn", "every tool result is mentioned".

An item with a scope is asked about each message in its scope, and the answers are combined:

| scope | messages | yes if |
|---|---|---|
| `final` | the last message of the assistant | it holds for this message |
| `any_turn` | all messages of the assistant | it holds for at least one |
| `every_turn` | all messages of the assistant | it holds for each, also if there is none |
| `any_tool_result`, `every_tool_result` | the results of tools | as above |

A judge sees the conversation up to the message and is asked about its last message only. So it knows what came before
("asks before it deletes"), and the prompts of one conversation start with each other: their shared tokens are computed
once. A code check sees the text of the message alone.

P(yes) is the largest P(yes) of the messages for *any*, and the smallest for *every*: a conversation is as good as the
message that decides. A message whose read failed makes the item unanswered, unless another message decides it: one
yes is enough for *any*, one no for *every*. If no message is in the scope, *any* is no and *every* is yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from checklist_rewards.chat import Message, transcript_of
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.judges.base import Read
from checklist_rewards.prompts import Growing
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.score import answer_of

_ABOUT = {
    "assistant": "Consider only the last message of the response, not the ones before it. {question}",
    "tool": "Consider only the last tool result in the response, not what stands before it. {question}",
}
_ROLES = {"any_tool_result": "tool", "every_tool_result": "tool"}

RunCheck = Callable[[ChecklistItem, str, str | None], Verdict]
"""Runs the check of an item on a text and an input."""


class ScopedReads:
    """The reads of a call, in which an item with a scope has one read per message.

    Args:
        samples (`int`): Number of samples of the call. Reads about a message get higher numbers, equal for the items
            about one message, so that a judge may answer them together.
        threshold (`float`): Lowest P(yes) that counts as yes.
    """

    def __init__(self, samples: int, threshold: float):
        self.reads: list[Read] = []
        """The reads to answer."""
        self._threshold = threshold
        self._numbers: dict[tuple[int, str, bool, int], int] = {}
        self._first = samples
        self._parts: list[tuple[ChecklistItem | None, int]] = []
        """The item of a scope, if it has one, and the number of its reads."""

    def add(self, read: Read, messages: Sequence[Message] = (), run: RunCheck | None = None) -> None:
        """Add the reads of an item.

        Args:
            read ([`Read`]): The item about the whole target.
            messages (sequence of [`Message`]): The messages of the target; if empty, the target is one message.
            run (callable, *optional*): Runs the item's check, if it is answered by one.
        """
        item = read.item
        if item.scope is None:
            self.reads.append(read)
            self._parts.append((None, 1))
            return
        role = _ROLES.get(item.scope, "assistant")
        told = messages or [Message("assistant", read.target, read.target)]
        places = [at for at, message in enumerate(told) if message.role == role]
        if item.scope == "final":
            places = places[-1:] if told[-1].role == role else []
        alone = len(told) == 1 or item.scope == "final"
        for at in places:
            question = item.question if alone else _ABOUT[role].format(question=item.question)
            number = self._numbers.setdefault((read.sample, role, alone, at), self._first + len(self._numbers))
            self.reads.append(
                replace(
                    read,
                    item=item.model_copy(update={"question": question, "scope": None}),
                    target=told[at].text if alone else Growing.of(transcript_of(told[: at + 1]), told[0].shown),
                    sample=number,
                    checked=None if run is None else run(item, told[at].text, read.input),
                )
            )
        self._parts.append((item, len(places)))

    def combined(self, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
        """One verdict per item, from one per read."""
        at = 0
        for item, count in self._parts:
            found = verdicts[at : at + count]
            yield found[0] if item is None else combine(item, found, self._threshold)
            at += count


def combine(item: ChecklistItem, verdicts: Sequence[Verdict], threshold: float) -> Verdict:
    """The verdict of an item with a scope from those about its messages; see the module docstring."""
    if item.scope == "final":
        return verdicts[0] if verdicts else Verdict(unanswered=Unanswered(Reason.NO_ANSWER, "no final message"))
    decides = YES if str(item.scope).startswith("any") else NO
    if not verdicts:
        answer = NO if decides == YES else YES
        return Verdict(answer=answer, method="check", reasoning="no message is in the scope of this item")
    answered = [(n, v) for n, v in enumerate(verdicts, start=1) if v.unanswered is None]
    if answered:
        sign = 1 if decides == YES else -1
        number, verdict = max(answered, key=lambda pair: sign * _p_yes(pair[1]))
        if len(answered) == len(verdicts) or answer_of(item, verdict, threshold) == decides:
            where = f"message {number} of {len(verdicts)} decides"
            return replace(verdict, reasoning=f"{where}: {verdict.reasoning}" if verdict.reasoning else where)
    number, lost = next((n, v) for n, v in enumerate(verdicts, start=1) if v.unanswered is not None)
    return replace(lost, reasoning=f"message {number} of {len(verdicts)} was not answered")


def _p_yes(verdict: Verdict) -> float:
    return float(verdict.answer == YES) if verdict.probabilities is None else verdict.probabilities[YES]
