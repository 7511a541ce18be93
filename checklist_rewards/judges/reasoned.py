"""The judge that writes: one call per item, answered in words, with its reasons where they are asked for.

With `reasoning` the judge thinks on paper first and then answers, as JSON with the reason before the answer, so that
the answer can follow from it. Without, it replies with the label alone. Either way the answer is words: there are no
probabilities, unless several samples vote.

With `samples=k` every item is asked k times and the label that most of the replies name is the answer (maj@k, as TICK
has it, arXiv:2410.03608 section 3.2); the share of each label among the replies stands as its probability, so soft
scores average over the samples, as RLCF does. A reply that cannot be read is no vote; it is kept beside the others, as
in a panel (`panel.py`). Of answers that got as many, the one nearest to the mean of the votes counts, and of two as
near (yes and no) the one that is worth least to the target. Where one of them abstains the item is unanswered("tie"),
and the shares are kept.

A single reply that cannot be read is asked for again with what is wrong with it, twice, and is then
unanswered("unparsable") or, where it was cut off, unanswered("cut_off").
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from checklist_rewards.backends import Backend, Engine, Progress, Sampling
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.files.store import Key, Store
from checklist_rewards.judges.answers import check_askable, in_order, named, question_for_words, said
from checklist_rewards.judges.asking import Lost, Question, Unreadable, put
from checklist_rewards.judges.base import Paid, Read, Receipt
from checklist_rewards.judges.examples import FewShot
from checklist_rewards.judges.meter import Meter, prompt_key
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.replies import extract_json
from checklist_rewards.scores import Verdict

REASONED_PROMPT = "judges/reasoned"
WORD_PROMPT = "judges/item"
WORD_OPTIONS_PROMPT = "judges/options"
DEFAULT_TEMPERATURE = 0.7
"""Of several samples; one is greedy."""
TIE = "tie"
_REASONED_TOKENS, _WORD_TOKENS = 1024, 64
_FORM = (
    "Reply with a JSON object only. First your reasoning in a few sentences, then the answer, which is {labels}:\n"
    '{{"reasoning": "...", "answer": "..."}}'
)

Said = tuple[str, str | None]
"""A label and the reasoning that led to it."""


class ReasonedJudge(Paid):
    """Answers items in words, one call each.

    Args:
        model, backend, base_url: who judges, as [`Engine`] takes them.
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*): the judge prompt, without a form of reply, which is
            added. Defaults to "judges/reasoned", and without reasoning to "judges/item", for items with options
            "judges/options".
        reasoning (`bool`, *optional*, defaults to `True`): reasons before the answer.
        samples (`int`, *optional*, defaults to `1`): replies per item, which vote.
        temperature (`float`, *optional*): defaults to 0 for one sample, to 0.7 for several.
        max_tokens (`int`, *optional*): of one reply; defaults to 1024 with reasoning and 64 without. A model that
            thinks before it answers needs more.
        seed (`int`, *optional*, defaults to `0`): of the samples.
        examples ([`FewShot`], *optional*): labelled answers to show with the questions that have any.
        store ([`Store`], *optional*): where replies are kept.
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
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.engine.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that no model is asked. Raises [`ChecklistError`] naming it."""
        check_askable(item, where)
        if self.examples is not None:
            self.examples.check(item)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order. Equal reads are asked once; stored replies are not asked for again."""
        meter = Meter(self.engine)
        prefixes: dict[tuple[str | None, ...], str] = {}
        questions = [self._question(read, prefixes) for read in reads]
        by_schema: dict[str | None, list[int]] = {}
        for index, read in enumerate(reads):
            by_schema.setdefault(_schema(tuple(read.item.values)) if self.reasoning else None, []).append(index)
        verdicts: dict[int, Verdict] = {}
        for schema, indices in by_schema.items():
            outcomes = put(
                Engine(self.name, meter),
                [questions[index] for index in indices],
                replace(self.sampling, schema=schema),
                store=self.store,
                progress=progress,
            )
            for index, outcome in zip(indices, outcomes, strict=True):
                verdicts[index] = self._verdict(outcome, reads[index].item)
        distinct: dict[Key, int] = {}
        for index, question in enumerate(questions):
            distinct.setdefault(prompt_key(question.messages), index)
        asked = sum(meter.asked(questions[index].messages) for index in distinct.values())
        counts = Receipt(
            reads=len(reads),
            deduplicated=len(reads) - len(distinct),
            stored=len(distinct) - asked,
            asked=asked,
            unanswered=sum(verdicts[index].unanswered is not None for index in distinct.values()),
        )
        self._pay(meter.spent, counts)
        return [verdicts[index] for index in range(len(reads))]

    def _question(self, read: Read, prefixes: dict[tuple[str | None, ...], str]) -> Question[Said]:
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
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        read_reply = read_reasoned if self.reasoning else read_word
        return Question([*system, {"role": "user", "content": user}], partial(read_reply, item=read.item))

    def _verdict(self, outcomes: Sequence[Said | Lost], item: ChecklistItem) -> Verdict:
        answered = [outcome for outcome in outcomes if not isinstance(outcome, Lost)]
        if not answered:
            reasons = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, Lost))
            return Verdict(unanswered=reasons.most_common(1)[0][0], judge=self.name)
        if len(outcomes) == 1:
            [(label, reasoning)] = answered
            return Verdict(answer=label, reasoning=reasoning, judge=self.name, method="reply")
        votes = tuple(
            Verdict(unanswered=outcome.reason, judge=self.name)
            if isinstance(outcome, Lost)
            else Verdict(answer=outcome[0], reasoning=outcome[1], judge=self.name, method="reply")
            for outcome in outcomes
        )
        return replace(vote(answered, item, self.name), votes=votes)


def vote(answered: Sequence[Said], item: ChecklistItem, judge: str | None = None) -> Verdict:
    """The verdict of several replies, at least one; see the module for what a tie is."""
    counts = Counter(label for label, _ in answered)
    shares = {label: counts[label] / len(answered) for label in item.values}
    most = max(counts.values())
    winner = _first([label for label in item.values if counts[label] == most], counts, item)
    if winner is None:
        tied = ", ".join(f"{label} {count}" for label, count in counts.most_common())
        return Verdict(shares, unanswered=f"{TIE}: {tied}", judge=judge, method="votes")
    reasoning = next(reasoning for label, reasoning in answered if label == winner)
    return Verdict(shares, winner, reasoning=reasoning, judge=judge, method="votes")


def read_reasoned(reply: str, item: ChecklistItem) -> Said:
    """Read `{"reasoning": ..., "answer": ...}`. Raises [`Unreadable`]."""
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


def read_word(reply: str, item: ChecklistItem) -> Said:
    """Read a reply that is a label, or begins with one. Raises [`Unreadable`]."""
    label = said(reply, item)
    if label is None:
        raise Unreadable(f"the reply must be {_alternatives(tuple(item.values))}")
    return label, None


def _first(tied: Sequence[str], counts: Counter[str], item: ChecklistItem) -> str | None:
    """The one of several labels with as many votes that counts; None if none does."""
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
    """ "yes" or "no"; long scales by their ends."""
    labels = [json.dumps(label, ensure_ascii=False) for label in answers]
    if len(labels) > 12:
        return f"one of {labels[0]}, {labels[1]}, ... {labels[-1]}"
    return f"{', '.join(labels[:-1])} or {labels[-1]}"


def _schema(labels: tuple[str, ...]) -> str:
    answer = {"type": "string", "enum": list(labels)}
    properties = {"reasoning": {"type": "string"}, "answer": answer}  # in this order: the reason comes first
    return json.dumps(
        {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    )
