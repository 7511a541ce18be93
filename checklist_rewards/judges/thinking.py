"""The judge that thinks, then answers with exact label probabilities.

The judge first writes a thought of at most `thinking` tokens. The thought is closed as the model's chat template
closes one, and the label is read as the next token, as in `logprob.py`: probabilities from the full vocabulary, label
mass, options, few-shot examples. For a model whose template has no thoughts, the thought is plain text, and the label
follows "Answer:". The prompt asks every model to think first.

The thought is data. A closing tag, a control token or an answer inside it is text and ends nothing. A thought that
reaches the limit is closed there, and its end is marked in `reasoning`. If a thought cannot be written, the read is
unanswered with the reason.

What a thought depends on:

- *Per item*, on the target and the item, as every other read.
- *Per target*, on the target and on all items that are asked about it in this call, in order. It is written once, and
  each item is then put again after it. A changed item is a new thought for all; so is a call for only some of the
  items, such as a retry of failed reads or the second judge of a cascade.

With `votes=k`, k thoughts are sampled, and the probability of a label is its mean over them. The verdict of each
thought is kept in `votes`; [`ItemScore.spread`] is the standard deviation. A thought without an answer has no part in
the mean. If fewer than half of the thoughts have one, the item is unanswered("quorum").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple, get_args

from typing_extensions import override

from checklist_rewards.backends import Backend, Engine, Progress, Reply, Sampling
from checklist_rewards.backends.base import Written, check_continues
from checklist_rewards.backends.budget import Bill, Receipt
from checklist_rewards.backends.replies import sample_replies
from checklist_rewards.checklists import ChecklistItem, Key, key_of
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.base import Ask, ThinkingPer, by_sample, counted, lost_votes
from checklist_rewards.judges.logprob import Labels, LogprobJudge, Read, as_declared
from checklist_rewards.judges.questions import question_for_reads
from checklist_rewards.judges.written import DEFAULT_TEMPERATURE
from checklist_rewards.markers import END_THINK, THINK
from checklist_rewards.prompts import prompt_messages
from checklist_rewards.scores import Method, Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import one_of, whole_number

_FIRST = {
    "item": "Do not answer yet. First say in a few short sentences which words of the response decide the question.",
    "target": "Do not answer yet. First say in short sentences which words of the response decide each question.",
}
_TOGETHER = "Several questions about the response follow. Each of them is put again after you have thought about all."


class Thought(NamedTuple):
    """A thought, or why it is missing."""

    text: str | None
    cut_off: bool = False
    unanswered: Unanswered | None = None


class ThinkingJudge(LogprobJudge):
    """Answers items with exact label probabilities after a thought.

    Args:
        model (`str`, [`Engine`] or [`Backend`]):
            Judge model. The engine must be able to continue a reply: transformers, vLLM, or a vLLM server whose
            tokenizer can be loaded here.
        thinking (`int`, *optional*, defaults to `256`):
            Maximum number of tokens of a thought.
        per, votes, temperature (*optional*):
            `thinking_per`, `votes` and `temperature` of [`JudgeConfig`].
        **options:
            The other arguments of [`LogprobJudge`]. The request to think first is appended to the prompt, which
            defaults to `"judges/thinking"`. The store keeps the thoughts and the reads after them.
    """

    default_prompt = "judges/thinking"
    _reason_first = True

    def __init__(
        self,
        model: str | Engine | Backend,
        *,
        thinking: int = 256,
        per: ThinkingPer = "item",
        votes: int = 1,
        temperature: float | None = None,
        **options: Any,
    ):
        super().__init__(model, **options)
        one_of("per", per, get_args(ThinkingPer))
        whole_number("thinking", thinking)
        whole_number("votes", votes)
        if votes > 1 and temperature == 0:
            raise SampleError(f"votes={votes} needs a temperature above 0: at 0 all thoughts are the same.")
        self.options_prompt = self.prompt
        self.per = per
        if temperature is None:
            temperature = DEFAULT_TEMPERATURE if votes > 1 else 0.0
        self.sampling: Sampling = Sampling(thinking, temperature, n=votes)

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As [`Judge.answer`]. Equal thoughts are written once; stored thoughts and reads are reused. `progress`
        is called with the number of reads whose thoughts were written."""
        again = [""] * len(asks)
        if self.per == "target":
            again = [question_for_reads(read.item, read.target, self.name)[0] for read in asks]
        rendered = [replace(read, tail=f"{read.tail}\n\n{_FIRST[self.per]}") for read in self._render(asks)]
        bill = Bill()
        prompts = [prompt_messages(read.about.system, read.about.prefix + read.tail) for read in rendered]
        # Before it writes thoughts, an engine is refused if no label can be read after them.
        engine = self.engine.within(bill=bill)
        replies = sample_replies(engine, prompts, self.sampling, self.store, progress, before=check_continues)
        thoughts = [[self._thought(reply, place) for place, reply in enumerate(group)] for group in replies]
        after = [
            [_after(read, thought, question) for thought in group]
            for read, group, question in zip(rendered, thoughts, again, strict=True)
        ]
        verdicts, asked, spent = self._answered([read for group in after for read in group if read is not None])
        combined = [
            self._combined(ask.item, [self._vote(*pair, verdicts) for pair in zip(group, reads, strict=True)])
            for ask, group, reads in zip(asks, thoughts, after, strict=True)
        ]
        keys = [key_of(read.key, question) for read, question in zip(rendered, again, strict=True)]
        fresh = [
            bill.asked(prompt) or any(read is not None and read.key in asked for read in group)
            for prompt, group in zip(prompts, after, strict=True)
        ]
        verdicts_in_order = [as_declared(verdict, read.item) for verdict, read in zip(combined, asks, strict=True)]
        return verdicts_in_order, bill.receipt + spent + counted(keys, fresh, [(verdict,) for verdict in combined])

    @override
    def _questions(self, asks: Sequence[Ask]) -> list[tuple[str, Labels]]:
        put = super()._questions(asks)
        return put if self.per == "item" else _together(asks, put)

    def _thought(self, reply: Reply, place: int) -> Thought:
        if reply.thought is not None:
            return Thought(reply.thought.strip(), reply.finish_reason == "length" and not reply.text)
        if reply.text is None:
            backend = self.engine.backend
            assumed = None if isinstance(backend, str) else backend.stand_in(self.sampling.max_tokens, place)
            if assumed is not None:
                return Thought(assumed)
            return Thought(None, unanswered=reply.unanswered or Unanswered(Reason.BACKEND_ERROR))
        text, cut_off = reply.text.strip(), reply.finish_reason == "length"
        if text.startswith(THINK):
            text, closed, _ = text.removeprefix(THINK).partition(END_THINK)
            cut_off = cut_off and not closed
        return Thought(text.strip(), cut_off)

    def _vote(self, thought: Thought, read: Read | None, verdicts: Mapping[Key, Verdict]) -> Verdict:
        """The verdict after one thought."""
        if read is None:
            return Verdict(unanswered=thought.unanswered, judge=self.name)
        mark = f" [cut off at {self.sampling.max_tokens} tokens]" if thought.cut_off else ""
        verdict = verdicts[read.key]
        method: Method | None = None if verdict.method is None else "thought"
        return replace(verdict, reasoning=f"{thought.text}{mark}", method=method)

    def _combined(self, item: ChecklistItem, votes: Sequence[Verdict]) -> Verdict:
        """The verdict over all thoughts about an item. A word in place of probabilities counts as certain."""
        if len(votes) == 1:
            return votes[0]
        if (lost := lost_votes(votes, "thoughts")) is not None:
            return Verdict(unanswered=lost, judge=self.name, votes=tuple(votes))
        answered = [vote for vote in votes if vote.unanswered is None]
        given = [
            vote.probabilities or {label: float(label == vote.answer) for label in item.values} for vote in answered
        ]
        mean = {label: fmean([probabilities[label] for probabilities in given]) for label in given[0]}
        best = max(mean, key=mean.__getitem__)
        masses = [vote.mass for vote in answered if vote.mass is not None]
        return Verdict(
            mean,
            mass=fmean(masses) if masses else None,
            reasoning=answered[max(range(len(given)), key=lambda place: given[place][best])].reasoning,
            judge=self.name,
            method=answered[0].method,
            votes=tuple(votes),
        )


def _after(read: Read, thought: Thought, question: str) -> Read | None:
    """The read after a thought; None without a thought."""
    if thought.text is None:
        return None
    key = key_of(read.key, "after a thought", read.tail, thought.text, question)
    return replace(read, key=key, written=Written(thought.text, question))


def _together(asks: Sequence[Ask], put: Sequence[tuple[str, Labels]]) -> list[tuple[str, Labels]]:
    """In place of each question, all questions about its target, in order."""
    together = list(put)
    for places in by_sample(asks):
        questions = dict.fromkeys(put[place][0] for place in places)
        text = "\n\n".join([_TOGETHER, *(f"{number}. {each}" for number, each in enumerate(questions, start=1))])
        for place in places:
            together[place] = text, put[place][1]
    return together
