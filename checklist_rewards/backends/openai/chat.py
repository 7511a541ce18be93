"""Creates chat requests and parses their responses. Pure functions on JSON.

A label read requests one token with the log-probabilities of the twenty most likely tokens. P(label) is the sum over
all forms of the label among them ("Yes", " yes", "YES"). A label that is not among them counts as 0; its probability
is at most that of the last one. The label mass, which the judge compares with its minimum, is therefore never
overestimated. If a server returns no log-probabilities, the label is the word that the model wrote.

Features that a server does not support are omitted from its requests; `without` contains their names ([`FEATURES`]).
Control strings in messages are neutralized (`neutral.py`), except in the system message, which this package writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from checklist_rewards.backends.base import LabelRead, Message, Messages, Reply, Sampling
from checklist_rewards.backends.bounds import THINKING_TOKENS, WORD_TOKENS, thinks
from checklist_rewards.backends.encoding import encodable
from checklist_rewards.backends.openai.failures import Failure
from checklist_rewards.backends.openai.neutral import neutral
from checklist_rewards.backends.reads import logsumexp
from checklist_rewards.chat import strip_thinking
from checklist_rewards.scores.reasons import Reason, Unanswered

FEATURES = {
    "no_thinking": re.compile(r"chat_template_kwargs|enable_thinking", re.I),
    "schema": re.compile(r"response_format|json_?schema|schema|structured|guided|grammar", re.I),
    "logprobs": re.compile(r"logprob", re.I),
    "max_tokens": re.compile(r"max_completion_tokens", re.I),
    "temperature": re.compile(r"temperature", re.I),
    "top_p": re.compile(r"top_p", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
}
"""Features that a server may not support, and how its error message names them."""
_NO_THINKING = {"enable_thinking": False}
_KEYS = {"schema": "response_format", "no_thinking": "chat_template_kwargs"}
_UNNAMED = ("no_thinking", "schema", "logprobs")
"""The features to omit, in this order, if the error message names none."""
_BROKEN_OFF = ("abort", "aborted", "cancelled", "error")
TOP = 20
_WORD = re.compile(r"[^\w]*(\w+)[^\w]*(?:[.,:;!\n].*)?", re.DOTALL)
_SPACE = "▁Ġ \t\n"


def refused_by(model: str) -> frozenset[str]:
    """The features that are known to be unsupported for `model`. OpenAI's reasoning models ignore sampling parameters,
    return no log-probabilities, and count thinking as completion tokens."""
    return frozenset({"logprobs", "max_tokens", "temperature", "top_p"} if thinks(model) else ())


def suspects(failure: Failure, sent: Sequence[str], without: frozenset[str]) -> frozenset[str]:
    """The features to omit after a bad request: those named in the error message, or else the least common one."""
    remaining = [feature for feature in sent if feature not in without]
    named = [feature for feature in remaining if FEATURES[feature].search(failure.unanswered)]
    return frozenset(named or [feature for feature in remaining if feature in _UNNAMED][:1])


def label_body(
    model: str, messages: Messages, without: frozenset[str], controls: Sequence[str] = ()
) -> dict[str, Any]:
    """Create a request for one label, with thinking disabled in the chat template. `controls` are additional control
    strings to neutralize."""
    body = _body(model, messages, WORD_TOKENS if "logprobs" in without else 1, without, controls)
    if "logprobs" not in without:
        body |= {"logprobs": True, "top_logprobs": TOP}
    if "no_thinking" not in without:
        body["chat_template_kwargs"] = _NO_THINKING
    return body | _sampled(Sampling(), without)


def reply_body(
    model: str,
    messages: Messages,
    sampling: Sampling,
    n: int,
    room: int,
    without: frozenset[str],
    controls: Sequence[str] = (),
) -> dict[str, Any]:
    """Create a request for `n` replies of at most `room` tokens."""
    body = _body(model, messages, min(room, sampling.max_tokens), without, controls)
    body |= _sampled(sampling, without) | ({"n": n} if n > 1 else {})
    if sampling.schema is not None and "schema" not in without:
        schema = {"name": "reply", "schema": json.loads(sampling.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def features(body: dict[str, Any]) -> list[str]:
    """The [`FEATURES`] that a request uses."""
    return [feature for feature in FEATURES if _KEYS.get(feature, feature) in body]


def label_of(choice: Any, labels: Sequence[str]) -> LabelRead:
    """Parse the label in an answer."""
    if (reason := broken_off(choice)) is not None:
        return LabelRead(None, reason)
    likely = _likely(choice)
    if likely:
        forms = [[p for token, p in likely if _same(token, label)] for label in labels]
        return LabelRead(tuple(min(0.0, logsumexp(form)) for form in forms), exact=False)
    text, missing = _text(choice)
    if text is None:
        return LabelRead(None, missing)
    word = _WORD.fullmatch(strip_thinking(text).strip())
    answer = next((label for label in labels if word and _same(word[1], label)), None)
    if answer is None and not strip_thinking(text).strip():
        return LabelRead(None, _without_text(choice))
    return LabelRead(None, None if answer else Unanswered(Reason.OFF_LABEL), answer)


def reply_of(choice: Any) -> Reply:
    """Parse the text of an answer."""
    text, missing = _text(choice)
    finish = choice.get("finish_reason") if isinstance(choice, dict) else None
    return Reply(text, finish, missing, thought=_thought(choice))


def _thought(choice: Any) -> str | None:
    """The thought that the server has parsed out of an answer."""
    message = choice.get("message") if isinstance(choice, dict) else None
    parsed = [message.get(key) for key in ("reasoning_content", "reasoning")] if isinstance(message, dict) else []
    return next((text for text in parsed if isinstance(text, str) and text), None)


def broken_off(choice: Any) -> Unanswered | None:
    """The reason if the server did not finish the answer (for example, an aborted request), else None."""
    finish = choice.get("finish_reason") if isinstance(choice, dict) else None
    if finish not in _BROKEN_OFF:
        return None
    return Unanswered(Reason.BACKEND_ERROR, f"the server ended the answer with {finish!r}")


def choices_of(body: dict[str, Any]) -> list[Any]:
    """The choices of a response, ordered by index."""
    choices = [choice for choice in body["choices"] if isinstance(choice, dict)]
    return sorted(choices, key=lambda choice: choice.get("index") or 0)


def usage_of(body: dict[str, Any]) -> tuple[int, int | None, int]:
    """The number of prompt tokens, of cached prompt tokens (None if not reported), and of completion tokens."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return usage.get("prompt_tokens") or 0, cached, usage.get("completion_tokens") or 0


def _body(
    model: str, messages: Messages, tokens: int, without: frozenset[str], controls: Sequence[str]
) -> dict[str, Any]:
    chat = [{**message, "content": _content(message, controls)} for message in messages]
    if "max_tokens" in without:
        return {"model": model, "messages": chat, "max_completion_tokens": tokens + THINKING_TOKENS}
    return {"model": model, "messages": chat, "max_tokens": tokens}


def _content(message: Message, controls: Sequence[str]) -> str:
    text = encodable(message["content"])
    return text if message["role"] == "system" else neutral(text, controls)


def _sampled(sampling: Sampling, without: frozenset[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.temperature:
        parameters |= {"top_p": sampling.top_p, "seed": sampling.seed}
    return {name: value for name, value in parameters.items() if name not in without}


def _likely(choice: Any) -> list[tuple[str, float]]:
    """The most likely first tokens with their log-probabilities. Empty if they are missing or invalid."""
    try:
        top = choice["logprobs"]["content"][0]["top_logprobs"]
        tokens = [(str(entry["token"]), float(entry["logprob"])) for entry in top]
    except (KeyError, IndexError, TypeError, ValueError):
        return []
    return [] if any(math.isnan(p) or p > 0.01 for _, p in tokens) else tokens


def _same(token: str, label: str) -> bool:
    return token.strip(_SPACE).casefold() == label.casefold()


def _text(choice: Any) -> tuple[str | None, Unanswered | None]:
    """The text of an answer, or the reason why it is missing."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return None, Unanswered(Reason.ERROR_BODY)
    if (reason := broken_off(choice)) is not None:
        return None, reason
    finish = choice.get("finish_reason")
    if message.get("refusal") or finish == "content_filter":
        return None, Unanswered(Reason.REFUSED)
    text = message.get("content")
    if text or (text == "" and finish != "length"):
        return str(text), None
    return None, _without_text(choice)


def _without_text(choice: Any) -> Unanswered:
    if choice.get("finish_reason") == "length":
        return Unanswered(Reason.CUT_OFF)
    took = "the server took the whole reply for a thought (its reasoning parser)" if _thought(choice) else ""
    return Unanswered(Reason.NULL_CONTENT, took)
