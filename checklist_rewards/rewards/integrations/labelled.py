"""Rewards for frameworks that score one sample at a time and pass the checklist as a label.

Most RL frameworks pass a reward function the prompt, the completion, and one opaque value of the row (`ground_truth`,
`label`). Here this *label* is a checklist in any form that [`Checklist.parse`] accepts, or a mapping of `checklist`
and any of `input`, `reference`, `history` and `images`, or the JSON of either. A JSON string is the safest form in
Parquet. Use `input` if the framework passes no prompt, or only the text of a chat template, and `images`, a list of
data URLs, if it passes the prompt without its images.

Calls from many threads and coroutines are batched by a [`MicroBatcher`]. These frameworks have no reward None: a
sample with too few answers raises [`Unscored`], unless `unscored` sets a number for it. An invalid label raises before
the judge is called.

Frameworks with environments pass a rollout as one conversation ([`rollout`]) or turn after turn ([`policy_turn`],
[`environment_turns`]). Either becomes a prompt and a completion of chat messages with tool calls and results, which
are read like any other completion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import CompletionReader, Target, rendered_turns, without_end_tokens
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.images import Image, clean
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.messages import images_of, speaker, with_images
from checklist_rewards.rewards.batch import Readers, ReadingConfig
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_WAIT, MicroBatcher
from checklist_rewards.rows import images_of_row
from checklist_rewards.scorer import ChecklistScorer, Sample, scorer_of
from checklist_rewards.scores import NO_ANSWER_STATES, Score
from checklist_rewards.validation import is_finite

_READER = CompletionReader()
_CONTEXT_FIELDS, _IMAGES = ("input", "reference", "history"), "images"
_WRITTEN_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.S)
"""A tool call as most chat templates write it (Hermes, Qwen)."""

Turn = dict[str, Any]
"""A chat message."""


class Unscored(BackendError):
    """The judge answered too few items of a checklist for a reward."""


class SamplewiseReward:
    """Base class of the framework adapters.

    Args:
        scorer ([`ChecklistScorer`], *optional*): Scorer for the completions.
        max_wait (`float`, *optional*, defaults to `0.005`): Longest time in seconds that a call waits for others to
            share its batch.
        max_batch (`int`, *optional*, defaults to `256`): Maximum number of samples per batch.
        unscored (`float`, *optional*): Reward of a sample that could not be scored. By default [`Unscored`] is raised,
            because any number would change the policy for a failure of the judge.
        **settings: The fields of [`ReadingConfig`] (`judged`, `keep_thinking`, `thinking_opened`, `tokenizer`,
            `thinking_tags`, `images`), and without `scorer` those of [`ScorerConfig`]. Frameworks do not pass the
            policy's tokenizer: without `tokenizer`, the answer is found in the text alone.
    """

    def __init__(
        self,
        scorer: ChecklistScorer | None = None,
        *,
        max_wait: float = DEFAULT_MAX_WAIT,
        max_batch: int = DEFAULT_MAX_BATCH,
        unscored: float | None = None,
        **settings: Any,
    ):
        if unscored is not None and not is_finite(unscored):
            raise SampleError(f"unscored={unscored!r} is not allowed; it must be a finite number, or None to raise.")
        reading = {name: settings.pop(name) for name in ReadingConfig.model_fields if name in settings}
        scorer = scorer_of(scorer, ScorerConfig(**settings))
        self.queue = MicroBatcher(scorer, max_wait=max_wait, max_batch=max_batch)
        self.unscored = unscored
        self.readers = Readers(ReadingConfig(**reading))

    def scores(
        self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any], **how: Any
    ) -> list[Score]:
        """Score samples, blocking until they are done; see [`samples`]. A completion without an answer is scored as
        the scorer's `no_answer` says, without the judge."""
        return [future.result() for future in self.queue.submit(self.samples(labels, completions, prompts, **how))]

    async def scores_async(
        self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any], **how: Any
    ) -> list[Score]:
        """Score samples without blocking the event loop; see [`scores`]."""
        return await self.queue.score_async(self.samples(labels, completions, prompts, **how))

    def reward(self, score: Score) -> float:
        """The reward for the framework. Raises [`Unscored`] if the score has no number and `unscored` is None."""
        if score.primary_score is not None:
            return score.primary_score
        if self.unscored is None:
            raise Unscored(unscored_reason(score))
        return float(self.unscored)

    def samples(
        self,
        labels: Sequence[Any],
        completions: Sequence[Any],
        prompts: Sequence[Any],
        *,
        special: bool = False,
        rendered: Sequence[Any] | None = None,
        images: Sequence[Any] | None = None,
    ) -> list[Sample]:
        """The samples to score.

        Args:
            labels (sequence): One label per completion; see the module docstring.
            completions (sequence of `str` or lists of messages): Completions to score.
            prompts (sequence of `str`, lists of messages or `None`): Their prompts.
            special (`bool`, *optional*, defaults to `False`): Whether the framework decodes completions with their
                special tokens.
            rendered (sequence of `str`, *optional*): The prompts as the policy got them, if `prompts` are others.
                Their ends show whether a completion begins inside a thought.
            images (sequence, *optional*): The images of each prompt, as in the column `images` of a dataset.

        Raises:
            SampleError, ChecklistError: For an invalid row, with its number from 1. The judge has not been called yet.
        """
        if not len(labels) == len(completions) == len(prompts):
            raise SampleError(
                f"expected one label and one prompt per completion, got {len(completions)} completions, "
                f"{len(labels)} labels and {len(prompts)} prompts."
            )
        if images is not None and len(images) != len(labels):
            raise SampleError(f"expected the images of each of {len(labels)} prompts, got {len(images)}.")
        reader, rendered = self.readers.of(), rendered or prompts
        if special:
            opened = self.readers.config.thinking_opened
            begun = [opened if opened is not None or p is None else reader.opened(p) for p in rendered]
            targets = [reader.read(c, raw=c, opened=o) for c, o in zip(completions, begun, strict=True)]
        else:
            targets = self.readers.read(completions, rendered)
        given = [None] * len(labels) if images is None or reader.images == "ignore" else images
        rows = zip(labels, targets, prompts, given, strict=True)
        return [
            labelled_sample(label, target, prompt, f"row {row}", reader, images_of_row({_IMAGES: own}, f"row {row}"))
            for row, (label, target, prompt, own) in enumerate(rows, start=1)
        ]


def labelled_sample(
    label: Any,
    target: Target | str,
    prompt: Any,
    where: str,
    reader: CompletionReader = _READER,
    images: Sequence[Image] = (),
) -> Sample:
    """The [`Sample`] of a label, what the policy answered, and a prompt (or None), which `reader` splits, with images
    for its parts without one. Those of the label are used where the framework passes none.

    Raises:
        SampleError, ChecklistError: For an invalid label or prompt. The message starts with `where`.
    """
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except ValueError as error:
            raise SampleError(
                f"{where}: a label that is a string must be JSON ({error}), got {label!r:.60}."
            ) from None
    context: dict[str, Any] = {}
    if isinstance(label, Mapping) and "checklist" in label:
        for key in label:
            if key not in (allowed := ("checklist", *_CONTEXT_FIELDS, _IMAGES)):
                raise SampleError(f"{where}: unknown key {key!r} in a label; allowed: {', '.join(allowed)}.")
        for name in _CONTEXT_FIELDS:
            text = label.get(name)
            if text is not None and not isinstance(text, str):
                raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
            context[name] = text and clean(text)
        if reader.images == "show":
            images = images or images_of_row({_IMAGES: label.get(_IMAGES)}, where, None)
        label = label["checklist"]
    checklist = Checklist.parse(label, where)
    try:
        prompt = prompt if reader.images == "ignore" else with_images(prompt, images, folder=None)
        input, history = (None, None) if prompt is None else reader.prompt_text(prompt)
    except SampleError as error:
        raise SampleError(f"{where}: {error}") from None
    if context.get("input") is not None:
        input, history = context["input"], None
    target = Target(target) if isinstance(target, str) else target
    history = context.get("history") or history
    seen: Sequence[Image] = ()
    if reader.images == "show":
        seen = images_of(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, str) else images
    return Sample.of(checklist, target, input, context.get("reference"), history, seen)


def answer_after(prompt: str, query: str, where: str) -> str:
    """Extract the completion from a decoded query (prompt and completion), without special tokens at its end.

        >>> answer_after("<|user|>Hi<|assistant|>", "<s><|user|>Hi<|assistant|>Hello.<|im_end|>", "row 1")
        'Hello.'

    Raises:
        SampleError: If the query does not contain the prompt, for example because it was truncated.
    """
    for name, text in (("prompt", prompt), ("query", query)):
        if not isinstance(text, str):
            raise SampleError(f"{where}: the {name} must be a string, got {type(text).__name__} {text!r:.60}.")
    _, match, answer = query.partition(prompt) if prompt else ("", "", query)
    if prompt and not match:
        raise SampleError(
            f"{where}: the query does not contain its prompt {prompt!r:.60}, so the answer cannot be extracted; was "
            "the prompt truncated?"
        )
    return without_end_tokens(answer)


def rollout(messages: Sequence[Any], start: int | None = None) -> tuple[list[Turn], list[Turn]]:
    """The prompt and the completion of a conversation.

    Args:
        messages (sequence): Chat messages: mappings, or pydantic models with the same fields. Tool calls may be nested
            (`{"function": {"name", "arguments"}}`) or flat (`{"name", "arguments"}`), with arguments as JSON or not.
        start (`int`, *optional*): Number of messages of the prompt. By default, those before the first message of the
            assistant.

    Returns:
        `tuple`: Both as lists of mappings.
    """
    turns: list[Turn] = [dict(m) if isinstance(m, Mapping) else m.model_dump(exclude_none=True) for m in messages]
    for turn in turns:
        if turn.get("tool_calls"):
            turn["tool_calls"] = [_flat(call) for call in turn["tool_calls"]]
    if start is None:
        start = next((at for at, turn in enumerate(turns) if speaker(turn) == "assistant"), len(turns))
    return turns[:start], turns[start:]


def _flat(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass  # shown as it is
    return {"name": function.get("name"), "arguments": arguments}


def policy_turn(text: str) -> Turn:
    """The message of a text that the policy wrote in one turn, decoded with or without its special tokens.

        >>> policy_turn('Let me look. <tool_call>{"name": "look", "arguments": {"word": "a"}}</tool_call><|im_end|>')
        {'role': 'assistant', 'content': 'Let me look.', 'tool_calls': [{'name': 'look', 'arguments': {'word': 'a'}}]}

    A call that has no name, is not JSON or is written in another form stays in the text.
    """
    calls: list[dict[str, Any]] = []

    def taken(found: re.Match[str]) -> str:
        try:
            call = json.loads(found[1])
        except ValueError:
            return found[0]
        if "name" not in call:
            return found[0]
        calls.append(call)
        return ""

    text = without_end_tokens(text)
    rest = _WRITTEN_CALL.sub(taken, text)
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": rest.strip(), "tool_calls": calls}


def environment_turns(text: str) -> list[Turn]:
    """The messages of a text with which an environment answered: turns that a chat template has rendered, or plain
    text, which is a tool result."""
    return rendered_turns(text) or ([{"role": "tool", "content": text}] if text.strip() else [])


def score_details(score: Score) -> dict[str, float]:
    """Metrics to log with a reward. Frameworks require the same keys for every sample; a missing value is -1."""
    numbers = {
        "pass_rate": None if score.primary_score is None else score.pass_rate,
        "answered_weight": score.answered_weight,
        "scored": float(score.primary_score is not None),
        "no_answer": float(score.state in NO_ANSWER_STATES),
        "cut": float(score.state == "cut"),
    }
    return {f"checklist/{name}": -1.0 if value is None else value for name, value in numbers.items()}


def unscored_reason(score: Score) -> str:
    """Why a score has no number, as one sentence."""
    if score.no_answer:
        return f"the completion has no answer ({score.state}), and no_answer='unscored' gives it no reward."
    why = ", ".join(f"{count} {reason}" for reason, count in score.unanswered.most_common())
    return (
        f"the judge answered {score.answered} of {score.total} items ({why or 'none unanswered'}), too few to score."
    )
