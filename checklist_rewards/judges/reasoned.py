"""The judge that writes text: one call per item, answered in words, optionally with reasoning.

With `reasoning`, the judge writes its reasoning before the answer, as JSON, so that the answer can follow from it.
Otherwise it replies with the label only. There are no probabilities, unless several samples vote.

With `samples=k`, every item is sampled k times and the most frequent label is the answer (maj@k as in TICK,
arXiv:2410.03608 section 3.2). The fraction of replies with a label is its probability, so soft scores average over the
samples, as in RLCF. A reply that cannot be parsed has no vote and is kept among the votes, as in a panel (`panel.py`).
Among equally frequent labels, the one nearest to the mean of the votes wins, and of two equally near ones (yes and no)
the one that is worse for the target. If one of them is an abstention, the item is unanswered("tie") and the
probabilities are kept.

A single reply that cannot be parsed is requested again up to two times with the complaint. Then the item is
unanswered("unparsable"), or unanswered("cut_off") if the reply reached its token limit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Sampling
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.files.store import Key, Store
from checklist_rewards.judges.answers import check_askable, in_order, leading_label, named, question_for_words
from checklist_rewards.judges.asking import Lost, Unreadable, ask_judge
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.judges.examples import FewShot
from checklist_rewards.judges.meter import Meter, prompt_key
from checklist_rewards.prompts import PromptTemplate, chat_messages, load_prompt
from checklist_rewards.replies import extract_json
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

REASONED_PROMPT = "judges/reasoned"
WORD_PROMPT = "judges/item"
WORD_OPTIONS_PROMPT = "judges/options"
DEFAULT_TEMPERATURE = 0.7
"""Sampling temperature with several samples; a single sample is greedy."""
_REASONED_TOKENS, _WORD_TOKENS = 1024, 64
_FORM = (
    "Reply with a JSON object only. First your reasoning in a few sentences, then the answer, which is {labels}:\n"
    '{{"reasoning": "...", "answer": "..."}}'
)

LabelAndReasoning = tuple[str, str | None]


class ReasonedJudge(Paid):
    """Answers items in words, with one call per item.

    Args:
        model, backend, base_url:
            Judge model, as in [`Engine`].
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*):
            Judge prompt. The reply format is appended automatically. Defaults to `"judges/reasoned"`; without
            reasoning to `"judges/item"`, and `"judges/options"` for items with options.
        reasoning (`bool`, *optional*, defaults to `True`):
            Whether the judge writes its reasoning before the answer.
        samples (`int`, *optional*, defaults to `1`):
            Number of replies per item, combined by majority vote.
        temperature (`float`, *optional*):
            Sampling temperature. Defaults to 0 for one sample and to 0.7 for several.
        max_tokens (`int`, *optional*):
            Maximum number of tokens per reply. Defaults to 1024 with reasoning and to 64 without. Thinking models need
            more.
        seed (`int`, *optional*, defaults to `0`):
            Random seed of the sampling.
        examples ([`FewShot`], *optional*):
            Few-shot examples.
        store ([`Store`], *optional*):
            Store for the replies.
    """

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate | None = None,
        reasoning: bool = True,
        samples: int = 1,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
        examples: FewShot | None = None,
        store: Store | None = None,
    ):
        self.engine = Engine.of(model, backend, base_url)
        self.name = self.engine.model
        default = REASONED_PROMPT if reasoning else WORD_PROMPT
        self.prompt = load_prompt(default if prompt is None else prompt, "judge")
        in_words = prompt is None and not reasoning
        self.options_prompt = load_prompt(WORD_OPTIONS_PROMPT, "judge") if in_words else self.prompt
        self.reasoning = reasoning
        if temperature is None:
            temperature = DEFAULT_TEMPERATURE if samples > 1 else 0.0
        if max_tokens is None:
            max_tokens = _REASONED_TOKENS if reasoning else _WORD_TOKENS
        self.sampling = Sampling(max_tokens, temperature, n=samples, seed=seed)
        self.examples = examples
        self.store = store

    def check(self) -> None:
        """Raise [`ModelError`] if the model is not found."""
        _ = self.engine.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`], starting with `where`, for an item with a code check or unusable examples."""
        check_askable(item, where)
        if self.examples is not None:
            self.examples.check(item)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Equal prompts are sent once; stored replies are reused."""
        meter = Meter(self.engine)
        prefixes: dict[tuple[str | None, ...], str] = {}
        prompts = [self._messages(read, prefixes) for read in reads]
        read_reply = read_reasoned if self.reasoning else read_word
        by_schema: dict[str | None, list[int]] = {}
        for index, read in enumerate(reads):
            by_schema.setdefault(_schema(tuple(read.item.values)) if self.reasoning else None, []).append(index)
        verdicts: dict[int, Verdict] = {}
        for schema, indices in by_schema.items():
            outcomes = ask_judge(
                meter.wrapped,
                [prompts[index] for index in indices],
                [partial(read_reply, item=reads[index].item) for index in indices],
                replace(self.sampling, schema=schema),
                store=self.store,
                progress=progress,
            )
            for index, outcome in zip(indices, outcomes, strict=True):
                verdicts[index] = self._verdict(outcome, reads[index].item)
        distinct: dict[Key, int] = {}
        for index, prompt in enumerate(prompts):
            distinct.setdefault(prompt_key(prompt), index)
        asked = sum(meter.asked(prompts[index]) for index in distinct.values())
        counts = Receipt(
            reads=len(reads),
            deduplicated=len(reads) - len(distinct),
            stored=len(distinct) - asked,
            asked=asked,
            unanswered=sum(verdicts[index].unanswered is not None for index in distinct.values()),
        )
        self._pay(meter.spent, counts)
        return [verdicts[index] for index in range(len(reads))]

    def _messages(self, read: Read, prefixes: dict[tuple[str | None, ...], str]) -> Messages:
        prompt = self.prompt if read.item.options is None else self.options_prompt
        about = (prompt.name, read.target, read.input, read.reference, read.history)
        if about not in prefixes:
            prefixes[about] = prompt.prefix(
                target=read.target, input=read.input, reference=read.reference, history=read.history
            )
        labels = in_order(read.item, read.target, self.name)
        question = question_for_words(read.item, labels)
        if self.examples is not None:
            question = self.examples.question(
                read.item, read.target, question, words=None, reason_first=self.reasoning
            )
        user = prefixes[about] + prompt.tail(question)
        if self.reasoning:
            user += "\n\n" + _FORM.format(labels=_alternatives(labels))
        return chat_messages(prompt.system, user)

    def _verdict(self, outcomes: Sequence[LabelAndReasoning | Lost], item: ChecklistItem) -> Verdict:
        answered = [outcome for outcome in outcomes if not isinstance(outcome, Lost)]
        if not answered:
            reasons = Counter(outcome.unanswered for outcome in outcomes if isinstance(outcome, Lost))
            return Verdict(unanswered=reasons.most_common(1)[0][0], judge=self.name)
        if len(outcomes) == 1:
            [(label, reasoning)] = answered
            return Verdict(answer=label, reasoning=reasoning, judge=self.name, method="reply")
        votes = tuple(
            Verdict(unanswered=outcome.unanswered, judge=self.name)
            if isinstance(outcome, Lost)
            else Verdict(answer=outcome[0], reasoning=outcome[1], judge=self.name, method="reply")
            for outcome in outcomes
        )
        return replace(vote(answered, item, self.name), votes=votes)


def vote(answered: Sequence[LabelAndReasoning], item: ChecklistItem, judge: str | None = None) -> Verdict:
    """The majority verdict of one or more replies; see the module docstring for ties."""
    counts = Counter(label for label, _ in answered)
    shares = {label: counts[label] / len(answered) for label in item.values}
    most = max(counts.values())
    winner = _first([label for label in item.values if counts[label] == most], counts, item)
    if winner is None:
        tied = ", ".join(f"{label} {count}" for label, count in counts.most_common())
        return Verdict(shares, unanswered=Unanswered(Reason.TIE, tied), judge=judge, method="votes")
    reasoning = next(reasoning for label, reasoning in answered if label == winner)
    return Verdict(shares, winner, reasoning=reasoning, judge=judge, method="votes")


def read_reasoned(reply: str, item: ChecklistItem) -> LabelAndReasoning:
    """Parse `{"reasoning": ..., "answer": ...}`. Raises [`Unreadable`] for any other reply."""
    try:
        value = extract_json(reply)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if not isinstance(value, dict) or "answer" not in value:
        raise Unreadable('the JSON has no "answer"')
    label = named(value["answer"], item)
    if label is None:
        raise Unreadable(f'the "answer" must be {_alternatives(tuple(item.values))}')
    reasoning = value.get("reasoning")
    return label, reasoning if isinstance(reasoning, str) else None


def read_word(reply: str, item: ChecklistItem) -> LabelAndReasoning:
    """Parse a reply that starts with a label. Raises [`Unreadable`] for any other reply."""
    label = leading_label(reply, item)
    if label is None:
        raise Unreadable(f"the reply must be {_alternatives(tuple(item.values))}")
    return label, None


def _first(tied: Sequence[str], counts: Counter[str], item: ChecklistItem) -> str | None:
    """The winner among labels with equally many votes; None if one of them is an abstention."""
    if len(tied) == 1:
        return tied[0]
    values = {label: value for label, value in item.values.items() if value is not None}
    if not all(label in values for label in tied):
        return None
    sign = 1 if item.weight >= 0 else -1
    votes = sum(count for label, count in counts.items() if label in values)
    mean = sum(values[label] * count for label, count in counts.items() if label in values) / votes
    return min(tied, key=lambda label: (round(abs(values[label] - mean), 9), sign * values[label]))


def _alternatives(answers: Sequence[str]) -> str:
    """The labels as `"yes" or "no"`; a long scale is shortened to its ends."""
    labels = [json.dumps(label, ensure_ascii=False) for label in answers]
    if len(labels) > 12:
        return f"one of {labels[0]}, {labels[1]}, ... {labels[-1]}"
    return f"{', '.join(labels[:-1])} or {labels[-1]}"


def _schema(labels: tuple[str, ...]) -> str:
    answer = {"type": "string", "enum": list(labels)}
    properties = {"reasoning": {"type": "string"}, "answer": answer}  # the reasoning comes first
    return json.dumps(
        {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    )
