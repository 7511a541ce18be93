"""The Decisions APIs of the reward server: requests to samples, and scores to answers.

`POST /v1/decisions` is OpenAI's format, `POST /v1/systemone` System One's (see `backends/decisions/protocols.py` for
the client). The questions of a request become one checklist about one target, so the server's judge answers them like
any other reads: batched with the reads of other requests, stored, calibrated, by a panel.

The target is the input. If the input is a list of messages, the last one is the target, the user message before it is
the instruction, and all earlier messages are the history. A state may be a JSON object with the string `target` and
optionally `input`, `reference` and `history`. Any other JSON state is judged as JSON text.

Images are data URLs, in parts of messages, in outputs of tools, and in a state that is a list of texts and parts, as
OpenRouter has it, or of messages, as llama.cpp has it. Those of System One's field `images` are put in front of the
state, or of its `input`. Images are bounded as those of `/score`; questions have none.

Of a target, the answer is judged, without its thought, as in training. The message of a user and JSON text are judged
as they are. So is a judge prompt of this package, which [`DecisionsJudge`] sends as text: its target was read already.
A target without an answer gives refusals, unless the scorer has `no_answer="judge"`; `target_state` has its state.

An answer without probabilities, from a judge that writes its answers, has the probability 1. An unanswered read is a
refusal, with two exceptions: a transient failure is status 503, and a text that is too long for the judge status 400.
A read below the judge's mass floor is a refusal in OpenAI's format; System One's answer has the label mass, so it is
returned.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from checklist_rewards.backends import is_transient
from checklist_rewards.backends.decisions.protocols import DecisionQuestion
from checklist_rewards.chat import CompletionReader, Target, history_text
from checklist_rewards.checklists import YES, Checklist, ChecklistItem, Option
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.images import Image, clean, image_of
from checklist_rewards.messages import IMAGE_TYPES, SPEAKERS, content_of, images_of, is_call, speaker
from checklist_rewards.prompts import fence
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import ItemScore, Reason, Score
from checklist_rewards.server.rows import TEXTS, Refused, bounded_images, parsed_body
from checklist_rewards.validation import one_sentence

MOST_QUESTIONS = 400
MOST_VALUES = 2**15
"""Most values of JSON in a request, without the text that is judged."""
_DATA = ("input", "state")
_READER = CompletionReader()
_FENCE = re.compile(r"<target-(\d+)>\n|\n</target-(\d+)>")
_FENCES = 16
"""Pairs of tags that are compared with the hash of what they enclose."""
_TEXT_PARTS = ("input_text", "output_text", "text")
_USAGE = {"input_tokens": 0, "output_tokens": 0}
"""Clients require the tokens of a request. The engine counts those of a batch, which may hold several requests."""
_OPENAI_USAGE = _USAGE | {
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def _text(value: Any) -> Any:
    """Instructions may be text, parts of text, or JSON. Raises `ValueError` for an image."""
    if isinstance(value, list) and any(map(_is_image, value)):
        raise ValueError("a question has no images; put them into the input")
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "text" in part for part in value):
        return "\n".join(str(part["text"]) for part in value)
    return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)


Text = Annotated[str, BeforeValidator(_text)]


class _Choice(BaseModel):
    value: str | bool
    description: str | None = None


class _Level(BaseModel):
    label: str
    description: str | None = None


class _Question(BaseModel):
    instructions: Text
    name: str | None = None


class _Predicate(_Question):
    type: Literal["predicate"]


class _ChoiceQuestion(_Question):
    type: Literal["choice"]
    choices: list[_Choice] = Field(min_length=2)


class _ScoreQuestion(_Question):
    type: Literal["score"]
    levels: list[_Level] = Field(min_length=2)


class _DecisionRequest(BaseModel):
    model: str
    input: Any
    questions: list[Annotated[_Predicate | _ChoiceQuestion | _ScoreQuestion, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MOST_QUESTIONS
    )


class _SystemOneQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["noul", "choice", "score"]
    instructions: Text = ""
    criteria: Any = None


class _SystemOneRequest(BaseModel):
    model: str | None = None
    state: Any
    instructions: str | None = None
    questions: dict[str, _SystemOneQuestion] = Field(min_length=1, max_length=MOST_QUESTIONS)
    images: list[str] | None = None
    audio: list[str] | None = None
    videos: list[str] | None = None


class DecisionRequest(NamedTuple):
    """A parsed request."""

    sample: Sample
    """The questions as a checklist, with the target."""
    questions: Sequence[DecisionQuestion]
    names: Sequence[str | None]
    """The names of the questions; None for a question without one."""
    choices: Sequence[Mapping[str, str | bool]]
    """Label to value for each choice, because a value may be a boolean."""


def decision_request(content: bytes, scorer: ChecklistScorer) -> DecisionRequest:
    """Parse the body of `POST /v1/decisions`. Raises [`Refused`] for a request that cannot be answered."""
    body = _validated(_DecisionRequest, content)
    _require_model(body.model, scorer)
    questions: list[DecisionQuestion] = []
    choices: list[Mapping[str, str | bool]] = []
    for asked in body.questions:
        values: dict[str, str | bool] = {}
        if isinstance(asked, _Predicate):
            questions.append(DecisionQuestion("predicate", asked.instructions))
        elif isinstance(asked, _ScoreQuestion):
            described = [(level.label, level.description) for level in asked.levels]
            questions.append(_described("score", asked.instructions, described))
        else:
            values = {_label(choice.value): choice.value for choice in asked.choices}
            described = [(_label(choice.value), choice.description) for choice in asked.choices]
            questions.append(_described("choice", asked.instructions, described))
        choices.append(values)
    with bounded_images():
        fields = _of_messages(body.input)
    sample = _sample(fields, questions, scorer)
    return DecisionRequest(sample, questions, [asked.name for asked in body.questions], choices)


def system_one_request(content: bytes, scorer: ChecklistScorer) -> DecisionRequest:
    """Parse the body of `POST /v1/systemone`. Raises [`Refused`] for a request that cannot be answered."""
    body = _validated(_SystemOneRequest, content)
    _require_model(body.model, scorer)
    if body.audio or body.videos:
        raise Refused(400, "a judge reads text and images only; omit audio and videos.", "audio")
    questions = [_system_one_question(name, asked) for name, asked in body.questions.items()]
    with bounded_images():
        images = [_image(url, "images") for url in body.images or ()]
        fields = _of_state(body.state, images)
    text, field = ("input", "images") if "input" in fields else ("target", "target_images")
    fields[text] = "".join(image.mark for image in images) + fields[text]
    fields[field] = (*images, *fields.get(field, ()))
    if body.instructions is not None:
        fields = {"input": clean(body.instructions)} | fields
    return DecisionRequest(_sample(fields, questions, scorer), questions, list(body.questions), [{}] * len(questions))


def decision_answers(request: DecisionRequest, score: Score, model: str) -> dict[str, Any]:
    """The response of `POST /v1/decisions`. Raises [`Refused`] with status 503 for a transient failure."""
    _require_answers(score)
    answers = []
    for line, question, name, values in zip(
        score.items, request.questions, request.names, request.choices, strict=True
    ):
        answers.append({"name": name} | _answer(line, question, values))
    return {"model": model, "answers": answers, "target_state": score.state, "usage": _OPENAI_USAGE}


def system_one_answers(request: DecisionRequest, score: Score, model: str) -> dict[str, Any]:
    """The response of `POST /v1/systemone`. Raises [`Refused`] with status 503 for a transient failure."""
    _require_answers(score)
    answers: dict[str, Any] = {}
    diagnostics: dict[str, Any] = {}
    for line, question, name in zip(score.items, request.questions, request.names, strict=True):
        assert name is not None
        answers[name] = _system_one_answer(line, question)
        if line.mass is not None:
            diagnostics[name] = {"label_mass": line.mass}
    return {
        "id": f"decision-{uuid.uuid4().hex}",
        "object": "structured_decision",
        "created": int(time.time()),
        "model": model,
        "answers": answers,
        "diagnostics": diagnostics,
        "target_state": score.state,
        "usage": _USAGE,
    }


def _answer(line: ItemScore, question: DecisionQuestion, values: Mapping[str, str | bool]) -> dict[str, Any]:
    if line.unanswered is not None:
        return {"type": "refusal"}
    likely = _probabilities(line, question)
    if question.type == "predicate":
        return {"type": "predicate", "probability": likely[YES]}
    best = max(question.labels, key=likely.__getitem__)
    if question.type == "choice":
        lines = [{"value": values[label], "probability": likely[label]} for label in question.labels]
        return {"type": "choice", "choice": values[best], "confidence": likely[best], "probabilities": lines}
    levels = [
        {"label": label, "value": value, "probability": likely[label]} for value, label in enumerate(question.labels)
    ]
    return {"type": "score", "score": _level(likely, question), "confidence": likely[best], "probabilities": levels}


def _system_one_answer(line: ItemScore, question: DecisionQuestion) -> dict[str, Any]:
    if line.unanswered is not None and line.probabilities is None:
        return {"type": "refusal"}
    likely = _probabilities(line, question)
    best = max(question.labels, key=likely.__getitem__)
    confidence = {"confidence": likely[best] * (1.0 if line.mass is None else line.mass)}
    if question.type == "predicate":
        return {"type": "noul", "noul": likely[YES], "probabilities": likely} | confidence
    if question.type == "choice":
        return {"type": "choice", "choice": best, "probabilities": likely} | confidence
    return {
        "type": "score",
        "score": _level(likely, question),
        "legend": {str(value): label for value, label in enumerate(question.labels)},
        "probabilities": {str(value): likely[label] for value, label in enumerate(question.labels)},
    } | confidence


def _probabilities(line: ItemScore, question: DecisionQuestion) -> dict[str, float]:
    if line.probabilities is not None:
        return {label: line.probabilities[label] for label in question.labels}
    return {label: float(label == line.answer) for label in question.labels}


def _level(likely: Mapping[str, float], question: DecisionQuestion) -> float:
    """The expected level, from 0."""
    return sum(value * likely[label] for value, label in enumerate(question.labels))


def _require_answers(score: Score) -> None:
    """Raise [`Refused`] for failures that a refusal would misreport: transient ones, and a text that is too long."""
    lost = [line.unanswered for line in score.items if line.unanswered is not None]
    transient = next((why for why in lost if is_transient(why)), None)
    if transient is not None:
        raise Refused(503, f"the judge could not answer ({transient}); send the request again.")
    if any(why.reason == Reason.TOO_LONG for why in lost):
        raise Refused(400, "the input exceeds the judge's context length.", "input")


def _validated(kind: type[Any], content: bytes) -> Any:
    body = parsed_body(content)
    asked = {name: value for name, value in body.items() if name not in _DATA}
    if _values(asked) > MOST_VALUES:  # pydantic would report each that is wrong
        raise Refused(413, f"the questions have more than {MOST_VALUES:,} values; send less at once.", "questions")
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        field = error.errors()[0]["loc"]
        raise Refused(400, f"{one_sentence(error, kind)}", str(field[0]) if field else "body") from None


def _values(value: Any) -> int:
    """How many values JSON has, counted until there are too many."""
    left, count = [value], 0
    while left and count <= MOST_VALUES:
        one = left.pop()
        inside = one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()
        left += inside
        count += len(inside)
    return count


def _require_model(model: str | None, scorer: ChecklistScorer) -> None:
    if model not in (None, scorer.judge.name):
        raise Refused(404, f"the model {model!r:.80} is not served here; the judge is {scorer.judge.name!r}.", "model")


def _described(
    kind: Literal["choice", "score"], instructions: str, labels: Sequence[tuple[str, str | None]]
) -> DecisionQuestion:
    names = [label for label, _ in labels]
    if len(set(names)) < len(names):
        raise Refused(400, f"the labels of a question must differ, got {names!r:.120}.", "questions")
    lines = [f"- {label}: {description}" for label, description in labels if description]
    return DecisionQuestion(kind, "\n".join([instructions, *lines]), tuple(names))


def _system_one_question(name: str, asked: _SystemOneQuestion) -> DecisionQuestion:
    criteria = asked.criteria
    if asked.type == "choice":
        if not isinstance(criteria, Mapping) or len(criteria) < 2:
            raise Refused(
                400, f"question {name!r:.60}: criteria must map at least two options to texts or null.", "questions"
            )
        options = [(str(option), None if text is None else str(text)) for option, text in criteria.items()]
        return _described("choice", asked.instructions, options)
    if asked.type == "score":
        if not isinstance(criteria, list) or len(criteria) < 2:
            raise Refused(400, f"question {name!r:.60}: criteria must be a list of at least two levels.", "questions")
        return _described("score", asked.instructions, [(str(level), None) for level in criteria])
    if criteria is not None and not (isinstance(criteria, Mapping) and criteria.keys() <= {"true", "false"}):
        raise Refused(400, f"question {name!r:.60}: criteria must be an object of true and false.", "questions")
    described: Mapping[str, Any] = criteria or {}
    sides = [f"- {side}: {described[key]}" for side, key in (("yes", "true"), ("no", "false")) if described.get(key)]
    return DecisionQuestion("predicate", "\n".join([asked.instructions, *sides]))


def _sample(fields: Mapping[str, Any], questions: Sequence[DecisionQuestion], scorer: ChecklistScorer) -> Sample:
    items = []
    for number, question in enumerate(questions, start=1):
        try:
            item = ChecklistItem(id=f"q{number}", question=question.instructions, options=_options(question))
            scorer.check_item(item, f"question {number}")
        except ValidationError as error:
            raise Refused(400, f"question {number}: {one_sentence(error, ChecklistItem)}", "questions") from None
        except ChecklistRewardsError as error:
            raise Refused(400, str(error), "questions") from None
        items.append(item)
    return Sample(Checklist(items=tuple(items)), **fields)


def _options(question: DecisionQuestion) -> tuple[Option, ...] | None:
    """The options of an item. Their values only keep the order of a scale; the score is not used."""
    if question.type == "predicate":
        return None
    last = len(question.labels) - 1
    values = [place / last if question.type == "score" else float(place == 0) for place in range(last + 1)]
    return tuple(Option(label=label, value=value) for label, value in zip(question.labels, values, strict=True))


def _of_state(state: Any, images: Sequence[Image] = ()) -> dict[str, Any]:
    """The fields of a sample from a state, which may name images."""
    if isinstance(state, str):
        marked = state
        for number, image in enumerate(images, start=1):
            marked = marked.replace(f"[image {number}]", image.mark)
        return _answered(Target(state) if _is_judge_prompt(marked) else _READER.read(state))
    if isinstance(state, list) and any(map(_is_image, state)):
        return _answered(_as_it_is(_parts(state, "state")))
    if isinstance(state, list) and any(map(_shows, state)):
        return _of_messages(state)
    own = isinstance(state, Mapping) and "target" in state and state.keys() <= set(TEXTS)
    if own and all(isinstance(text, str) for text in state.values()):
        return {name: clean(text) for name, text in state.items()} | _answered(_READER.read(state["target"]))
    return _answered(Target(json.dumps(state, ensure_ascii=False)))


def _of_messages(given: Any) -> dict[str, Any]:
    """The fields of a sample from an input of OpenAI's format."""
    if not isinstance(given, list):
        return _of_state(given)
    if not given:
        raise Refused(400, "input must be a text or a list of at least one message.", "input")
    *earlier, last = [_message(entry) for entry in given]
    own = speaker(last) == "assistant"
    fields = _answered(_READER.read([last]) if own else _as_it_is(last["content"]))
    earlier = [message for message in earlier if message["content"] or "reasoning" not in message]
    fields["images"] = images_of(earlier)
    if earlier and own and speaker(earlier[-1]) == "user":
        fields["input"] = content_of(earlier.pop())
    history = history_text(earlier)  # all turns, as in training
    return fields if history is None else fields | {"history": history}


def _as_it_is(content: str | list[dict[str, Any]]) -> Target:
    """The content of a message as a target."""
    message = {"content": content}
    return Target(content_of(message), images=tuple(images_of([message])))


def _answered(target: Target) -> dict[str, Any]:
    return {"target": target.text, "state": target.state, "target_images": target.images}


def _is_judge_prompt(text: str) -> bool:
    """Whether a text contains a target as judge prompts do: in tags with the hash of the target."""
    opened: dict[str, int] = {}
    pairs = 0
    for tag in _FENCE.finditer(text):
        number, closed = tag.groups()
        if closed is None:
            opened.setdefault(number, tag.start())
        elif (start := opened.pop(closed, None)) is not None:
            whole = text[start : tag.end()]
            if fence("target", whole[len(closed) + 10 : -len(closed) - 11]) == whole:
                return True
            pairs += 1
            if pairs == _FENCES:  # hashing many long texts would take quadratic time
                return False
    return False


def _message(entry: Any) -> dict[str, Any]:
    """A message with its content as text, or as parts if it has images. A thought, and a call of a tool or its output,
    become messages too."""
    if not isinstance(entry, Mapping):
        raise Refused(400, f"input must be a list of messages, got {type(entry).__name__}.", "input")
    if "role" in entry:
        if speaker(entry) is None:
            raise Refused(400, f"unknown role {entry['role']!r:.60}; allowed: {', '.join(SPEAKERS)}.", "input")
        calls = entry.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(is_call, calls)):
            raise Refused(400, f"tool_calls must be a list of calls, got {calls!r:.60}.", "input")
        return {**entry, "role": str(entry["role"]), "content": _content(entry), "tool_calls": calls}
    output = entry.get("output")
    if isinstance(output, list) and any(map(_is_image, output)):
        rest = {name: value for name, value in entry.items() if name != "output"}
        text = json.dumps(rest, ensure_ascii=False)
        return {"role": str(entry.get("type", "item")), "content": _parts([text, *output], "input")}
    text = json.dumps(dict(entry), ensure_ascii=False)
    if entry.get("type") == "reasoning":
        return {"role": "assistant", "content": "", "reasoning": text}
    return {"role": str(entry.get("type", "item")), "content": text}


def _content(message: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """The content of a message: its text, or its texts and images."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and message.get("tool_calls"):
        return ""
    found = content if isinstance(content, list) else [content]
    given = [part if isinstance(part, Mapping) else {"type": type(part).__name__} for part in found]
    parts = _parts(given, "input")
    return parts if images_of([{"content": parts}]) else content_of({"content": parts})


def _parts(given: Sequence[Any], field: str) -> list[dict[str, Any]]:
    """Texts, JSON and images as content parts. Texts that follow each other are separated by a line break."""
    parts: list[dict[str, Any]] = []
    for part in given:
        if _is_image(part):
            parts.append({"type": "image", "image": _image(part.get("image_url"), field)})
            continue
        if isinstance(part, str):
            text = part
        elif not isinstance(part, Mapping) or (field == "state" and part.get("type") not in _TEXT_PARTS):
            text = json.dumps(part, ensure_ascii=False)
        elif part.get("type") == "input_json":
            text = json.dumps(part.get("data"), ensure_ascii=False)
        elif part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
            text = part["text"]
        elif part.get("type") in IMAGE_TYPES:
            raise Refused(400, "an image part must have an image_url with a data URL.", field)
        else:
            raise Refused(
                400, f"a judge reads text and images only, got a part of type {part.get('type')!r:.40}.", field
            )
        between = "\n" if parts and "text" in parts[-1] else ""
        parts.append({"type": "text", "text": between + text})
    return parts


def _shows(message: Any) -> bool:
    """Whether a value is a message with an image."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(map(_is_image, content))


def _is_image(part: Any) -> bool:
    """Whether a part has an image. Any other JSON, such as a record of the type "image", is data."""
    return isinstance(part, Mapping) and part.get("type") in IMAGE_TYPES and "image_url" in part


def _image(value: Any, field: str) -> Image:
    try:
        return image_of(value, "an image", None)
    except SampleError as error:
        raise Refused(400, str(error), field) from None


def _label(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()
