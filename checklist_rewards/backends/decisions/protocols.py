"""Questions of the Decisions APIs, and their two wire formats.

In a [`ReadGroup`], the prefix is the input of the request and each tail is the JSON text of a [`DecisionQuestion`], so
reads of decisions are planned, deduplicated and stored like all others.

[`OpenAIDecisions`] is `POST /decisions`: a list of questions of type `predicate`, `choice` or `score`, answered in
order. [`SystemOne`] is `POST /systemone`: a map of questions of type `noul`, `choice` or `score`, answered with
diagnostics that include the label mass.

An image of the input is an `input_image` part in its place in OpenAI's format. System One has the field `images`: the
server shows them before the state, and the state names each of them in its place, such as "[image 1]". Only
OpenRouter's state has places for images.

Answers are matched to questions by name. An answer that is missing, has another type than its question, or whose
probabilities do not belong to the question's labels cannot be used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, get_args

from checklist_rewards.backends.base import Answer, Usage
from checklist_rewards.checklists import NO, YES
from checklist_rewards.images import has_images, images_in, parts
from checklist_rewards.scores.reasons import Reason, Unanswered

QuestionType = Literal["predicate", "choice", "score"]
TYPES: tuple[str, ...] = get_args(QuestionType)
PREDICATE_LABELS = (YES, NO)


@dataclass(frozen=True, slots=True)
class DecisionQuestion:
    """One typed question, independent of the protocol."""

    type: QuestionType
    """`predicate` (yes or no), `choice` (one of several options) or `score` (a level of an ordered scale)."""
    instructions: str
    """The question."""
    labels: tuple[str, ...] = PREDICATE_LABELS
    """The possible answers, as sent: the options of a choice, or the levels of a score from the lowest up."""

    def text(self) -> str:
        """The question as JSON text. [`parse`] restores it."""
        return json.dumps([self.type, self.instructions, *self.labels], ensure_ascii=False)

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str) -> Self:
        """The question that [`text`] wrote. Raises `ValueError` for any other text. Cached: all completions of a
        prompt are asked the same questions."""
        kind, instructions, *labels = json.loads(text)
        if kind not in TYPES:
            raise ValueError(f"not a question of a decision: {text:.60}")
        return cls(kind, instructions, tuple(labels))


Questions = Mapping[str, DecisionQuestion]
"""Name to question, in the order of the request."""
_ROUNDING = 0.005
"""Largest error of a rounded probability: some servers report two decimals."""
_LEAST_SLACK = 0.02
"""How far the probabilities of an answer may add up to something else than 1, even if they are few."""


class OpenAIDecisions:
    """OpenAI's `POST /v1/decisions`."""

    path = "/decisions"
    """Path relative to the address of the server."""
    most_questions = 200
    """Most questions in one request."""

    def body(self, model: str, system: str | None, state: str, questions: Questions) -> dict[str, Any]:
        """The request about `state`."""
        content: Any = state
        if has_images(state):
            content = [
                {"type": "input_text", "text": part}
                if isinstance(part, str)
                else {"type": "input_image", "image_url": part.url}
                for part in parts(state)
            ]
        about: Any = content if isinstance(content, str) else [{"role": "user", "content": content}]
        if system is not None:
            about = [{"role": "developer", "content": system}, {"role": "user", "content": content}]
        return {"model": model, "input": about, "questions": [_question(*entry) for entry in questions.items()]}

    def answers(self, response: Mapping[str, Any], questions: Questions) -> dict[str, Answer | None]:
        """The answers of a response by name; None for an answer that cannot be used. Missing ones are left out."""
        entries = response["answers"]
        answers: dict[str, Answer | None] = {}
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or name not in questions:
                continue
            # A name that is answered twice is not answered at all.
            answers[name] = None if name in answers else self._answer(entry, questions[name])
        return answers

    def _answer(self, entry: Mapping[str, Any], question: DecisionQuestion) -> Answer | None:
        if entry.get("type") == "refusal":
            return Answer(None, Unanswered(Reason.REFUSED))
        if entry.get("type") != question.type:
            return None
        if question.type == "predicate":
            return answer_of(question, _yes_no(entry.get("probability")))
        named = "value" if question.type == "choice" else "label"
        probabilities = entry.get("probabilities")
        if not isinstance(probabilities, list) or not all(isinstance(line, dict) for line in probabilities):
            return None
        pairs = [(line.get(named), line.get("probability")) for line in probabilities]
        if len(pairs) != len(question.labels) or not all(isinstance(label, str) for label, _ in pairs):
            return None
        return answer_of(question, dict(pairs))


class SystemOne:
    """System One's `POST /v1/systemone`, as served by vLLM, SGLang, Ollama, llama.cpp and LiteLLM.

    The label mass is optional. vLLM reports it in the diagnostics of a response, SGLang as `x_label_mass` in each
    answer. OpenRouter has this format at the path of OpenAI's. It requires a description for each option of a choice,
    for which the option itself is sent, and its state is a list of texts and images.
    """

    most_questions = 64

    def __init__(self, *, openrouter: bool = False):
        self.path = "/decisions" if openrouter else "/systemone"
        self._openrouter = openrouter

    def body(self, model: str, system: str | None, state: str, questions: Questions) -> dict[str, Any]:
        """The request about `state`."""
        asked: dict[str, Any] = {}
        for name, question in questions.items():
            asked[name] = {"type": _SYSTEM_ONE_TYPES[question.type], "instructions": question.instructions}
            if question.type == "choice":
                asked[name]["criteria"] = {label: label if self._openrouter else None for label in question.labels}
            elif question.type == "score":
                asked[name]["criteria"] = list(question.labels)
        instructions = {} if system is None else {"instructions": system}
        return {"model": model, "questions": asked} | self._state(state) | instructions

    def _state(self, state: str) -> dict[str, Any]:
        if not has_images(state):
            return {"state": state}
        pieces, images = parts(state), list(dict.fromkeys(images_in(state)))
        if self._openrouter:
            shown = [
                piece if isinstance(piece, str) else {"type": "image_url", "image_url": {"url": piece.url}}
                for piece in pieces
            ]
            return {"state": shown}
        text = "".join(piece if isinstance(piece, str) else f"[image {images.index(piece) + 1}]" for piece in pieces)
        return {"state": text, "images": [image.url for image in images]}

    def answers(self, response: Mapping[str, Any], questions: Questions) -> dict[str, Answer | None]:
        """The answers of a response by name; None for an answer that cannot be used."""
        entries, diagnostics = _mapping(response["answers"]), _mapping(response.get("diagnostics"))
        answers: dict[str, Answer | None] = {}
        for name, question in questions.items():
            entry = entries.get(name)
            if isinstance(entry, dict):
                mass = _mapping(diagnostics.get(name)).get("label_mass", entry.get("x_label_mass"))
                answers[name] = self._answer(entry, question, mass)
        return answers

    def _answer(self, entry: Mapping[str, Any], question: DecisionQuestion, mass: Any) -> Answer | None:
        if entry.get("type") == "refusal":
            return Answer(None, Unanswered(Reason.REFUSED))
        if entry.get("type") != _SYSTEM_ONE_TYPES[question.type]:
            return None
        if question.type == "predicate":
            return answer_of(question, _yes_no(entry.get("noul")), mass)
        probabilities = entry.get("probabilities")
        if not isinstance(probabilities, dict):
            return None
        if question.type == "score":  # levels are named by their number, from 0
            numbered = {str(place): label for place, label in enumerate(question.labels)}
            probabilities = {numbered.get(number, number): value for number, value in probabilities.items()}
        return answer_of(question, probabilities, mass)


DecisionProtocol = OpenAIDecisions | SystemOne
"""A wire format."""
_SYSTEM_ONE_TYPES = {"predicate": "noul", "choice": "choice", "score": "score"}


def answer_of(question: DecisionQuestion, probabilities: Mapping[str, Any], mass: Any = None) -> Answer | None:
    """The read of an answer by the probability of each label, or None if they are not a distribution over the
    question's labels. `mass` is the label mass in [0, 1], if the server reports it."""
    values: Sequence[Any] = [probabilities.get(label) for label in question.labels]
    if len(probabilities) != len(values) or not all(map(_is_probability, values)):
        return None
    total = math.fsum(values)
    if abs(total - 1) > max(_LEAST_SLACK, _ROUNDING * len(values)):
        return None
    reported = mass is not None
    if reported and not (_is_number(mass) and 0 <= mass <= 1 + _ROUNDING):  # a sum of probabilities, with its error
        return None
    scale = (min(mass, 1.0) if reported else 1.0) / total
    logprobs = tuple([math.log(value * scale) if value * scale > 0 else -math.inf for value in values])
    return Answer(logprobs, mass_reported=reported)


def _question(name: str, question: DecisionQuestion) -> dict[str, Any]:
    asked: dict[str, Any] = {"type": question.type, "name": name, "instructions": question.instructions}
    if question.type == "choice":
        asked["choices"] = [{"value": label} for label in question.labels]
    elif question.type == "score":
        asked["levels"] = [{"label": label} for label in question.labels]
    return asked


def usage_of(response: Mapping[str, Any]) -> Usage:
    """The tokens that a response reports."""
    usage = _mapping(response.get("usage"))
    cached = _mapping(usage.get("input_tokens_details")).get("cached_tokens")
    return Usage.reported(
        _tokens(usage.get("input_tokens")),
        cached if isinstance(cached, int) else None,
        _tokens(usage.get("output_tokens")),
    )


def _yes_no(yes: Any) -> dict[str, Any]:
    return {YES: yes, NO: 1 - yes} if _is_probability(yes) else {}


def _is_probability(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1  # NaN fails


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)  # as JSON has them; a bool is none


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
