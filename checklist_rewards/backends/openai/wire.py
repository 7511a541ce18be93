"""Requests, replies and failures of OpenAI-compatible servers as JSON. Pure functions.

Each kind of [`Failure`] has a reason, which becomes the reason of the unanswered read: `too_long`, `refused`,
`not_json` (a web page with status 200), `error_body` (an error with status 200), `empty_choices`, `timeout`, and
`backend_error: ...` for all others.

A server that tokenizes chat messages itself converts `<|im_end|>`, `[INST]` or `<think>` in the text of a message to
the control token of that name. A policy could thus end the judge's user message and write the judge's answer, which is
a reward hack. (Engines that receive token ids are not affected: `backends/tokens.py` never creates a control token
from data.) [`neutral`] inserts a zero-width space after the first character of every such string, except in the system
message, which this package writes. The control strings of the common chat formats are built in; if the model's
tokenizer can be loaded, its special tokens are added.

In a chat request, a label read is one token with the log-probabilities of the twenty most likely tokens. P(label) is
the sum over all forms of the label among them ("Yes", " yes", "YES"). A label that is not among them counts as 0; its
probability is at most that of the last one. The label mass, which the judge compares with its minimum, is therefore
never overestimated. If a server returns no log-probabilities, the label is the word that the model wrote. Values that
cannot be log-probabilities (logits, NaN) make a read unanswered.

A server may sample with more than the parameters of a request: vLLM and SGLang take what a request omits from the
model's `generation_config.json` (a repetition penalty changes SGLang's log-probabilities too), and llama.cpp has
defaults of its own. So each request sets them to the values without effect: as with vLLM in this process, temperature
and top_p decide alone. Hosted servers are not sent parameters that OpenAI does not have.

Features that a server does not support are omitted from its requests; `without` contains their names ([`FEATURES`]).
A limit is not a missing feature: if the server allows fewer likely tokens, or requires more tokens per reply, requests
stay within its [`Limits`].

In a list of prompts, many reads are one `/v1/completions` request, as supported by vLLM. Prompts are sent as token
ids. With `logprob_token_ids`, vLLM returns the exact log-probabilities of the given tokens. They are keyed by token
id, because different tokens may have the same text ("yes" and " yes").
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from checklist_rewards.backends.base import Answer, Message, Messages, Reply, Sampling, not_logprobs
from checklist_rewards.backends.reads import TokenAnswer, logsumexp
from checklist_rewards.backends.tokens import THINKING_TOKENS, WORD_TOKENS, encodable, thinks
from checklist_rewards.backends.trees import Branch
from checklist_rewards.chat import strip_thinking
from checklist_rewards.errors import without_password
from checklist_rewards.images import Image, has_images, image_of, parts
from checklist_rewards.scores.reasons import Reason, Unanswered

RATE_LIMITED = 429
_RETRIED = (408, 409, 425, RATE_LIMITED)
UNAVAILABLE = (0, RATE_LIMITED, 502, 503, 504)
"""Statuses of a server that takes no requests at present, whatever they contain. 0 is a server that did not answer."""
NOT_SERVED = (404, 405, 501)
"""Statuses of a path that the server does not have."""
_FATAL = (401, 402, 403, *NOT_SERVED)
AT_FIRST = (400, 403, RATE_LIMITED)
"""Statuses that concern all requests only as long as the server has accepted none."""
_ABOUT_PROMPT = (Reason.TOO_LONG, Reason.REFUSED)
_LONG = re.compile(
    r"context.{0,9}(length|window|size)|maximum.{0,40}tokens|(prompt|input).{0,20}too long"
    r"|reduce the length of|`inputs` (tokens|must have less)",
    re.I,
)
_CONTEXT = re.compile(
    r"(?:context|model)\W{0,3}(?:length|window|size|limit)\D{0,12}(\d[\d,]{2,})|> (\d[\d,]{2,}) maximum", re.I
)
_REFUSED = re.compile(
    r"content.?(filter|policy|management)|moderation|flagged|inappropriate content|content exists risk", re.I
)
_WRONG_KEY = re.compile(r"(?:incorrect|invalid) api key|api key (?:not valid|expired)", re.I)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed."""

    unanswered: Unanswered
    """Why the reads of the request are unanswered."""
    retry: bool = False
    """Whether a retry of the request may succeed."""
    down: bool = False
    """Whether the server or a proxy does not work. The failure detector counts these failures."""
    wait: float | None = None
    """Seconds to wait, as requested by the server."""
    status: int = 200
    message: str = ""
    """The server's own message; "" if there is none."""
    fatal: bool = False
    """Whether all other requests would fail too, for example because of a wrong key or an unknown model."""

    @property
    def is_response(self) -> bool:
        """Whether the server works: it has answered the request, if only to refuse it."""
        return not self.down and self.status != RATE_LIMITED

    @property
    def concerns_request(self) -> bool:
        """Whether the server rejected this request, which it may do for one of several prompts in it."""
        return 400 <= self.status < 500 and not self.retry and not self.fatal

    @property
    def bad_request(self) -> bool:
        """Whether the server rejected the request for a reason other than the content of the prompt, as far as
        known."""
        return 400 <= self.status < 500 and not self.retry and self.unanswered.reason not in _ABOUT_PROMPT


TIMED_OUT = Failure(Unanswered(Reason.TIMEOUT), retry=True, down=True, status=0)
"""The failure for a request without a response in time."""


def no_connection(error: Exception) -> Failure:
    """The failure for a connection that was refused, reset, or closed before the response."""
    detail = textwrap.shorten(without_password(str(error)), 200, placeholder=" …") or "no answer"
    return Failure(Unanswered(Reason.BACKEND_ERROR, f"connection failed ({detail})"), retry=True, down=True, status=0)


def serialized(body: Mapping[str, Any] | str) -> bytes:
    """The body of a request, or a string, as JSON: by pydantic, which takes a quarter of the time of `json`, unless a
    text has unpaired surrogates, which only `json` can write."""
    try:
        return to_json(body)
    except ValueError:
        return json.dumps(body).encode()


def parsed(content: bytes) -> Any:
    """The JSON in a response. Raises `ValueError`. Unpaired surrogates and other encodings than UTF-8 are left to
    `json`."""
    try:
        return from_json(content)
    except ValueError:
        pass
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("lists in lists, thousands deep") from error


def answer_of(status: int, headers: Mapping[str, str], content: bytes, key: str | None) -> dict[str, Any] | Failure:
    """Parse a response: its JSON object, in which `key` contains the answers, or the failure."""
    if status >= 300:
        return _refusal(status, headers, content)
    try:
        body = parsed(content)
    except ValueError:
        return Failure(Unanswered(Reason.NOT_JSON), retry=True, down=True)
    if key is None and isinstance(body, dict):
        return body
    if key == "data" and isinstance(body, list):  # Together's list of models
        return {key: body}
    entries = body.get(key) if isinstance(body, dict) else None
    if key == "choices" and isinstance(entries, list):
        entries = body[key] = [choice for choice in entries if isinstance(choice, dict)]
    # The answers of decisions are a list or an object, depending on the protocol.
    if (isinstance(entries, list) and (entries or key != "choices")) or (
        isinstance(entries, dict) and key == "answers"
    ):
        return body
    if entries == [] and not body.get("error"):
        return Failure(Unanswered(Reason.EMPTY_CHOICES), retry=True)
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    lasting = isinstance(code, int) and not _is_transient(code) and code >= 400
    why = Unanswered(Reason.ERROR_BODY, _message(content) if error else "")
    return Failure(why, retry=not lasting, down=code != RATE_LIMITED)


_IN_WORDS: dict[str, str] = {
    Reason.NOT_JSON: "its response is not JSON",
    Reason.ERROR_BODY: "its response is not one of this API",
}


def in_words(failure: Failure) -> str:
    """Why a server cannot be used, for an error."""
    why = failure.unanswered
    said = f": {why.detail}" if why.detail else ""
    return f"{_IN_WORDS[why.reason]}{said}" if why.reason in _IN_WORDS else str(why)


def rejected(address: str, failure: Failure) -> str:
    """The error of a server that rejects every request, with what to check if it does not have the path."""
    advice = "; check the model and base_url, which usually ends with /v1" if failure.status in NOT_SERVED else ""
    return f"the server at {address} rejected a request: {failure.unanswered.detail}{advice}"


def _is_transient(status: int) -> bool:
    """Whether a request may succeed if it is sent again, by the status of the response."""
    return status in _RETRIED or (status >= 500 and status not in NOT_SERVED)


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> Failure:
    message = _message(content)
    why = Unanswered(Reason.BACKEND_ERROR, f"status {status}: {message}")
    if _is_transient(status):
        down = status not in (409, RATE_LIMITED)
        is_unpaid = status == RATE_LIMITED and b"insufficient_quota" in content
        return Failure(why, True, down, _wait(headers), status, message, fatal=is_unpaid)
    if status == 413 or (_LONG.search(message) and not FEATURES["logprobs"].search(message)):
        return Failure(Unanswered(Reason.TOO_LONG), status=status, message=message)
    if _REFUSED.search(message):
        return Failure(Unanswered(Reason.REFUSED), status=status, message=message)
    is_key = status == 400 and _WRONG_KEY.search(message) is not None
    return Failure(why, status=status, message=message, fatal=is_key or status in _FATAL)


def context_in(message: str) -> int | None:
    """The context in tokens that an error about a prompt that is too long names. None if it names none.

    >>> context_in("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.")
    8192
    >>> context_in("request (6000 tokens) exceeds the available context size (4096 tokens), try increasing it")
    4096
    """
    found = _CONTEXT.search(message)
    return None if found is None else int((found[1] or found[2]).replace(",", ""))


def _message(content: bytes) -> str:
    text = content.decode(errors="replace")
    try:
        body = parsed(text.encode())
        body = body[0] if isinstance(body, list) else body  # Gemini's
        error = body.get("error", body)
        text = str(error.get("message") or error.get("detail") or text) if isinstance(error, dict) else str(error)
        if isinstance(error, dict) and isinstance(error.get("metadata"), dict) and error["metadata"].get("raw"):
            text = f"{text}: {error['metadata']['raw']}"  # OpenRouter's, with the message of the provider
        details = body.get("errors")  # a reward server returns one error per row
        if details and isinstance(details, list):
            text = str(details[0].get("message") or text)
    except (ValueError, AttributeError, IndexError):
        pass
    text = text.encode(errors="backslashreplace").decode()  # logs cannot write half a surrogate pair
    return textwrap.shorten(text, 300, placeholder=" …") or "no message"


def _wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After-Ms` or `Retry-After` (a number or a date). None if neither is given,
    or not as a finite number or a date."""
    if "retry-after-ms" in headers:
        value, unit = headers["retry-after-ms"], 1000
    else:
        value, unit = headers.get("retry-after", ""), 1
    try:
        seconds = float(value) / unit
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


ZERO_WIDTH = "\u200b"

_SHORT = "s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|eot|eom|image|video|audio|think|thinking|thought|answer|tools?"
_BRACKETED = (
    "g?MASK|sMASK|sop|INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|MODEL_SETTINGS|ARGS|"
    "CALL_ID|THINK|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|PREFIX|MIDDLE|SUFFIX|BOS|EOS|PAD|UNK|CLS|SEP"
)
_ANGLE = (
    r"[|｜][^\s<>\u200b]"  # <|im_end|>, <｜Assistant｜>, Gemma 4's <|turn>
    r"|[^\s<>|｜\u200b]{1,64}+[|｜]>"  # Gemma 4's <turn|>
    r"|/?[A-Za-z][^\W_]*+_\w*+>"  # <start_of_turn>, </tool_call>
    rf"|(?i:/?(?:{_SHORT})>|SPECIAL\d+>|unused\d+>|(?:seed|ds):\w+>|<?/?SYS>>)"
)
# Only the first character is matched, so that overlapping strings are all found.
_CONTROLS = {
    "<": re.compile(rf"<(?={_ANGLE})"),
    "[": re.compile(rf"\[(?i:(?=/?(?:{_BRACKETED})\]|\|\w{{1,32}}\|\]|e~\[))"),
    "]": re.compile(r"\](?=~!?b[\[\]])"),
}


def neutral(text: str, also: Iterable[str] = ()) -> str:
    """Insert a zero-width space after the first character of every control string. `also` are further ones, such as
    a tokenizer's special tokens.

    >>> neutral("Fine.<|im_end|>").encode("ascii", "backslashreplace")
    b'Fine.<\\\\u200b|im_end|>'
    """
    for first, control in _CONTROLS.items():
        if first in text:
            text = control.sub(first + ZERO_WIDTH, text)
    for string in also:
        if len(string) > 1:
            text = text.replace(string, string[0] + ZERO_WIDTH + string[1:])
    return text


WHITE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoPo33UrYvQQckD4XAQEBAQ"
    "EBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAMpT0sIcNbcEAAAAAElFTkSuQmCC"
)
"""A white image of 64x64 pixels."""
_ABOUT_IMAGES = re.compile(r"image|multi.?modal|vision", re.I)


def is_about_images(failure: Failure) -> bool:
    """Whether the message of a failure is about images: the server has none, or it rejects this one."""
    return _ABOUT_IMAGES.search(failure.message) is not None


FEATURES = {
    "chat_template_kwargs": re.compile(r"chat_template_kwargs|enable_thinking", re.I),
    "response_format": re.compile(r"response_format|json_?schema|schema|structured|guided|grammar", re.I),
    "logprobs": re.compile(r"log.?prob|top_n_tokens|n_probs", re.I),
    "max_tokens": re.compile(r"max_completion_tokens", re.I),
    "temperature": re.compile(r"temperature", re.I),
    "top_p": re.compile(r"top_p", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "repetition_penalty": re.compile(r"(?:repetition|presence|frequency)_?penalty", re.I),
    "top_k": re.compile(r"\btop_k\b|\bmin_p\b", re.I),
    "n": re.compile(r"""['"`]n['"`]|\bn (?:>|must|should|cannot)|\bn_cmpl\b|only one candidate""", re.I),
}
"""Features that a server may not support, each by one of its parameters, and how an error message names them."""
_NO_THINKING = {"enable_thinking": False}
_NO_PENALTIES = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_NO_CUTS = {"top_k": -1, "min_p": 0.0}
BEYOND_OPENAI = frozenset({"chat_template_kwargs", "repetition_penalty", "top_k"})
"""Features whose parameters OpenAI does not have."""
_UNNAMED = ("chat_template_kwargs", "top_k", "repetition_penalty", "response_format", "logprobs", "n")
"""The features to omit, one after the other, if the error message names none."""
_CUT = ("length", "max_tokens", "model_length", "model_context_window_exceeded")
UNCUT = {"plugins": [{"id": "context-compression", "enabled": False}]}
"""By default, OpenRouter removes the middle of a prompt that is too long for a model of up to 8,192 tokens."""
_BROKEN_OFF = frozenset(
    "abort aborted cancelled error repetition timeout network_error insufficient_system_resource".split()
)
_FILTERED = re.compile(r"content.?filter|safety|recitation|blocklist|prohibited|spii|sensitive|refusal|guardrail")
TOP, FEWER = 20, 5
"""Likely tokens to request, and how many if the server allows fewer and does not say how many."""
_LEAST_TOKENS = 16
"""Tokens of a reply if the server requires more than 1 and does not say how many."""
_MOST_LEAST_TOKENS = 1024
_NUMBER = re.compile(
    r"(?:(?P<below>(?:less|smaller|lower|fewer) than|below|under|<)\s*|(?<![\w-])(?<!\d\.))"
    r"(?P<number>\d{1,4})(?![\w-]|\.\d)(?P<open>\)|\s*\(?exclusive)?",
    re.I,
)
_HALF_OPEN = re.compile(r"[\[(]\s*\d+\s*,\s*\Z")
_UNKNOWN = re.compile(
    r"unknown|unexpected|unrecogni[sz]ed|extra|not (?:permitted|allowed|supported|recogni[sz]ed)", re.I
)
_MAX_TOKENS = re.compile(r"max_(?:new_|output_|completion_)?tokens|maxOutputTokens", re.I)
_AT_LEAST = re.compile(
    r"(?:(?P<above>(?:greater|larger|more|higher) than(?! or)|>(?!=))|at least|minimum|below|≥|>=|or equal to"
    r"|less than|too (?:small|low|short))(?:\D{0,40}?(?P<number>\d{1,4}))?",
    re.I,
)
_WORD = re.compile(r"[^\w]*(\w+)[^\w]*(?:[.,:;!。，、：；！\n].*)?", re.DOTALL)
_SPACE = "▁Ġ \t\n"


def refused_by(model: str) -> frozenset[str]:
    """The features that are known to be unsupported for `model`. OpenAI's reasoning models ignore sampling parameters,
    return no log-probabilities, and count thinking as completion tokens."""
    return BEYOND_OPENAI | {"logprobs", "max_tokens", "temperature", "top_p"} if thinks(model) else frozenset()


class Limits(NamedTuple):
    """What a server allows in a label read, as far as known."""

    top: int = TOP
    """Likely tokens."""
    counted: bool = False
    """Whether `logprobs` is their number, as in the completions API, instead of true."""
    least_tokens: int = 1
    """Lowest `max_tokens`."""


def adapted(failure: Failure, body: Mapping[str, Any], limits: Limits) -> tuple[frozenset[str], Limits]:
    """What an error message demands: the features to omit, and the limits. Neither changes if the message names no
    parameter of the request.

    >>> error = "top_logprobs must be less than or equal to 5"
    >>> adapted(Failure(Unanswered("backend_error"), message=error), {"logprobs": True, "top_logprobs": 20}, Limits())
    (frozenset(), Limits(top=5, counted=False, least_tokens=1))
    """
    message = failure.message
    if (least := _least_tokens(message)) is not None and body.get("max_tokens", least) < least:
        limits = limits._replace(least_tokens=least)
        message = _MAX_TOKENS.sub("", message)
    named = {feature for feature in features(body) if FEATURES[feature].search(message)}
    if "logprobs" in named:
        fewer = _fewer(message, limits)
        if fewer is not None:
            named.remove("logprobs")
            limits = fewer
    return frozenset(named), limits


def _least_tokens(message: str) -> int | None:
    """The lowest `max_tokens` that an error about a lower one names; 16 if it names none. None for other errors."""
    found = _AT_LEAST.search(message) if _MAX_TOKENS.search(message) else None
    if found is None:
        return None
    if found["number"] is None:
        return _LEAST_TOKENS
    number = int(found["number"]) + (found["above"] is not None)
    return number if number <= _MOST_LEAST_TOKENS else None


def _fewer(message: str, limits: Limits) -> Limits | None:
    """The limits after an error about log-probabilities; None if the server does not support them."""
    numbers = []
    for found in _NUMBER.finditer(message):
        closed = found["open"] is None or (found["open"] == ")" and not _HALF_OPEN.search(message[: found.start()]))
        numbers.append(int(found["number"]) - (found["below"] is not None or not closed))
    allowed = [number for number in numbers if number < limits.top]
    if not (allowed or limits.counted) and (
        re.search(r"\bint(?:eger)?\b", message) or ("top_logprobs" in message and _UNKNOWN.search(message))
    ):
        return limits._replace(counted=True)
    most = max((number for number in allowed if number > 1), default=FEWER)
    return limits._replace(top=most) if most < limits.top else None


def guess(failure: Failure, body: Mapping[str, Any], omitted: Collection[str]) -> str | None:
    """The feature to omit after an error that names no parameter: the least common one that is still there. None if
    the error is about access or about the path."""
    if failure.status in _FATAL:
        return None
    return next((name for name in _UNNAMED if name in body and name not in omitted), None)


def label_body(
    model: str,
    messages: Messages,
    without: frozenset[str],
    controls: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - a constant
) -> dict[str, Any]:
    """Create a request for one label, with thinking disabled in the chat template. `controls` are additional control
    strings to neutralize."""
    tokens = max(limits.least_tokens, WORD_TOKENS if "logprobs" in without else 1)
    body = _body(model, messages, tokens, without, controls)
    if "logprobs" not in without:
        body |= {"logprobs": limits.top} if limits.counted else {"logprobs": True, "top_logprobs": limits.top}
    if "chat_template_kwargs" not in without:
        body["chat_template_kwargs"] = _NO_THINKING
    return body | _sampled(Sampling(), without)


def image_body(model: str, without: frozenset[str], limits: Limits) -> dict[str, Any]:
    """Create a request with a small white image, for one token: whether the server takes images."""
    white = image_of(WHITE)
    return _body(model, [{"role": "user", "content": f"{white.mark}What is it?"}], limits.least_tokens, without, ())


def reply_body(
    model: str,
    messages: Messages,
    sampling: Sampling,
    n: int,
    room: int,
    without: frozenset[str],
    controls: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - a constant
) -> dict[str, Any]:
    """Create a request for `n` replies of at most `room` tokens."""
    body = _body(model, messages, min(room, max(sampling.max_tokens, limits.least_tokens)), without, controls)
    body |= _sampled(sampling, without) | ({"n": n} if n > 1 and "n" not in without else {})
    if sampling.schema is not None and "response_format" not in without:
        schema = {"name": "reply", "schema": json.loads(sampling.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def features(body: Mapping[str, Any]) -> list[str]:
    """The [`FEATURES`] that a request uses."""
    return [feature for feature in FEATURES if feature in body]


_MASKED = -9999.0
"""What vLLM reports for the logarithm of 0."""
_MIXED = Unanswered(
    Reason.BACKEND_ERROR,
    "the server gave the log-probability of one token only, as vLLM does without its V2 model runner if it computes a "
    "chat together with reads by token id; send it one kind of reads at a time",
)
_THOUGHT_KEYS = ("reasoning_content", "reasoning")
_THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking")
_TEXT_PARTS = ("text", "output_text")
_TEXT_KEYS = ("text", "thinking", "reasoning", "content")


def label_of(choice: dict[str, Any], labels: Sequence[str]) -> Answer:
    """Parse the label in an answer."""
    if (reason := broken_off(choice)) is not None:
        return Answer(None, reason)
    likely = likely_of(choice)
    if isinstance(likely, str):
        return Answer(None, likely)
    if likely:
        folded = [(_folded(token), p) for token, p in likely]
        forms = [[p for token, p in folded if token == label] for label in map(str.casefold, labels)]
        return Answer(tuple([min(0.0, logsumexp(form)) for form in forms]), exact=False)
    text, missing = _text(choice)
    if text is None:
        return Answer(None, missing)
    word = _WORD.fullmatch(strip_thinking(text).strip())
    answer = next((label for label in labels if word and _folded(word[1]) == label.casefold()), None)
    if answer is None and not strip_thinking(text).strip():
        return Answer(None, _without_text(choice))
    return Answer(None, None if answer else Unanswered(Reason.OFF_LABEL), answer)


def reply_of(choice: dict[str, Any]) -> Reply:
    """Parse the text of an answer."""
    text, missing = _text(choice)
    return Reply(text, _finish(choice), missing, thought=_thought(choice))


def _finish(choice: dict[str, Any]) -> str | None:
    """Why an answer ended, in OpenAI's words. Gemini, for example, has "MAX_TOKENS" and "content_filter: RECITATION",
    and Mistral "model_length"."""
    finish = str(choice.get("finish_reason") or "").lower()
    return "length" if finish in _CUT else "content_filter" if _FILTERED.search(finish) else finish or None


def _thought(choice: dict[str, Any]) -> str | None:
    """The thought that the server has parsed out of an answer."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    parsed = [_joined(message.get(key)) for key in _THOUGHT_KEYS]
    return next((text for text in (*parsed, _joined(message.get("content"), thoughts=True)) if text), None)


def parses_thoughts(choice: dict[str, Any]) -> bool | None:
    """Whether the server has a reasoning parser, which takes thoughts out of the text. None if the answer does not
    show it."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    fields = [message[key] for key in _THOUGHT_KEYS if key in message]
    if any(field is not None for field in fields) or _thought(choice) is not None:
        return True  # an empty thought too
    return False if fields else None


def _joined(content: Any, thoughts: bool = False) -> str | None:
    """The text of a content: a string, or a list of typed parts, of which `thoughts` selects those of a thought. None
    without any text."""
    if isinstance(content, str):
        return None if thoughts else content
    texts = []
    for part in [content] if isinstance(content, dict) else content if isinstance(content, list) else []:
        if isinstance(part, str):
            texts.append(None if thoughts else part)
        elif isinstance(part, dict) and (part.get("type") in _THOUGHT_PARTS) == thoughts:
            texts.append(next((text for key in _TEXT_KEYS if (text := _joined(part.get(key))) is not None), None))
    found = [text for text in texts if text is not None]
    return "".join(found) if found else None


def _odd_part(content: Any) -> str | None:
    """The type of a part of a content that is no text, if there is one."""
    if not isinstance(content, list | dict):
        return None if isinstance(content, str | None) else type(content).__name__
    for part in [content] if isinstance(content, dict) else content:
        if not isinstance(part, str | dict):
            return type(part).__name__
        if isinstance(part, dict) and part.get("type") not in (*_THOUGHT_PARTS, *_TEXT_PARTS, "refusal", None):
            return str(part["type"])
    return None


def broken_off(choice: dict[str, Any]) -> Unanswered | None:
    """The reason if the server did not finish the answer (for example, an aborted request), else None."""
    error, finish = choice.get("error"), _finish(choice)  # OpenRouter has the error of a provider
    if not error and finish not in _BROKEN_OFF:
        return None
    return Unanswered(Reason.BACKEND_ERROR, f"the server ended the answer with {error or finish!r:.200}")


def choices_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a response, ordered by index."""
    return sorted(body["choices"], key=lambda choice: _number(choice.get("index")) or 0)


def usage_of(body: dict[str, Any]) -> tuple[int, int | None, int]:
    """The number of prompt tokens, of cached prompt tokens (None if not reported), and of completion tokens."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    prompt, completion, total = (_number(usage.get(name)) or 0 for name in counts)
    # xAI and Gemini count the tokens of thoughts, which cost as much as those of the reply, in the total only.
    return prompt, cached, max(completion, total - prompt) if prompt else completion


def _number(value: Any) -> int | None:
    """A number of tokens or a place in a list. None for other values."""
    return int(value) if isinstance(value, int | float) and 0 <= value < math.inf else None


def _body(
    model: str, messages: Messages, tokens: int, without: frozenset[str], controls: Sequence[str]
) -> dict[str, Any]:
    chat = [{**message, "content": _content(message, controls)} for message in messages]
    if "max_tokens" in without:
        return {"model": model, "messages": chat, "max_completion_tokens": tokens + THINKING_TOKENS}
    return {"model": model, "messages": chat, "max_tokens": tokens}


def _content(message: Message, controls: Sequence[str]) -> str | list[dict[str, Any]]:
    content = message["content"]
    if not has_images(content):
        return _sent_text(content, message["role"], controls)
    return [
        {"type": "image_url", "image_url": {"url": part.url}}
        if isinstance(part, Image)
        else {"type": "text", "text": _sent_text(part, message["role"], controls)}
        for part in parts(content)
    ]


def _sent_text(text: str, role: str, controls: Sequence[str]) -> str:
    text = encodable(text)
    return text if role == "system" else neutral(text, controls)


def _sampled(sampling: Sampling, without: frozenset[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.temperature:
        parameters |= {"top_p": sampling.top_p, "seed": sampling.seed}
    sampled = {name: value for name, value in parameters.items() if name not in without}
    if "repetition_penalty" not in without:
        sampled |= _NO_PENALTIES
    if sampling.temperature and "top_k" not in without:
        sampled |= _NO_CUTS
    return sampled


def likely_of(choice: dict[str, Any]) -> list[tuple[str, float]] | Unanswered:
    """The most likely first tokens with their log-probabilities, in the schema of chats or of completions. Empty
    without a list of at least two; or the reason why its numbers cannot be log-probabilities."""
    found = choice.get("logprobs")
    if isinstance(found, dict):
        content = found.get("content")
        found = content if isinstance(content, list) else found.get("top_logprobs")
    first = found[0] if isinstance(found, list) and found else found
    if isinstance(first, dict) and "top_logprobs" in first:
        first = first["top_logprobs"]
    elif isinstance(first, dict) and "logprob" in first:  # a list of tokens, not of positions
        first = found
    try:
        entries = first.items() if isinstance(first, dict) else [(entry["token"], entry) for entry in first or ()]
        tokens = dict.fromkeys([_likely_token(token, value) for token, value in entries])
    except (KeyError, TypeError, ValueError, OverflowError):
        return []
    values = [logprob for _, logprob in tokens]
    if (reason := not_logprobs(values)) is not None:
        return reason
    if len(values) == 2 and min(values) == _MASKED:
        return _MIXED
    return list(tokens) if len(tokens) > 1 and max(values) > -math.inf else []


def _likely_token(token: Any, value: Any) -> tuple[str, float]:
    """A token as text, with its log-probability; null is the logarithm of 0. Raises `TypeError` or `ValueError`."""
    data = None
    if isinstance(value, dict):
        token, data, value = value.get("decoded_token", token), value.get("bytes"), value["logprob"]
    token = str(token)
    if isinstance(data, list) and token.startswith("token_id:"):
        token = bytes(data).decode(errors="replace")
    return token, -math.inf if value is None else float(value)


def _folded(token: str) -> str:
    return token.strip(_SPACE).casefold()


def _text(choice: dict[str, Any]) -> tuple[str | None, Unanswered | None]:
    """The text of an answer, or the reason why it is missing."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None, Unanswered(Reason.ERROR_BODY)
    if (reason := broken_off(choice)) is not None:
        return None, reason
    finish, content = _finish(choice), message.get("content")
    refused = isinstance(content, list) and any(isinstance(part, dict) and part.get("refusal") for part in content)
    if message.get("refusal") or refused or finish == "content_filter":
        return None, Unanswered(Reason.REFUSED)
    if (kind := _odd_part(content)) is not None:
        return None, Unanswered(Reason.ERROR_BODY, f"the reply has a part of the type {kind!r:.40}, which is no text")
    text = _joined(content)
    if text or (text == "" and finish != "length"):
        return text, None
    return None, _without_text(choice)


def _without_text(choice: dict[str, Any]) -> Unanswered:
    if _finish(choice) == "length":
        return Unanswered(Reason.CUT_OFF)
    took = "the server took the whole reply for a thought (its reasoning parser)" if _thought(choice) else ""
    return Unanswered(Reason.NULL_CONTENT, took)


NO_ANSWER = Unanswered(Reason.EMPTY_CHOICES)
"""Of a prompt in a list to which the response has no answer, or several."""
NO_TOKENS = Unanswered(Reason.BACKEND_ERROR, "the server gave no log-probability of the label")


ListedPrompt = tuple[bytes, int]
"""The token ids of a prompt as JSON without brackets, and their number."""


def listed(branches: Sequence[Branch[Any]]) -> list[ListedPrompt]:
    """Serialize prompts, each prefix once. A tail is empty if the tokenizer drops all of its characters."""
    prompts = []
    for prefix, tails in branches:
        start = to_json(prefix)[1:-1] + b"," if prefix else b""
        prompts += [((start + to_json(tail)[1:-1]).rstrip(b","), len(prefix) + len(tail)) for tail, _ in tails]
    return prompts


def list_body(model: str, prompts: Sequence[ListedPrompt], ids: Sequence[int]) -> bytes:
    """Create a request for one token after each of `prompts`."""
    settings = {
        "max_tokens": 1,
        "temperature": 0,
        "repetition_penalty": 1.0,  # that of the model's generation_config.json would change processed logprobs
        "logprobs": 1,
        "logprob_token_ids": ids,
        "return_tokens_as_token_ids": True,
    }
    lists = b"],[".join([ids_of_prompt for ids_of_prompt, _ in prompts])
    return b'{"model":%b,"prompt":[[%b]],%b' % (serialized(model), lists, to_json(settings)[1:])


def list_answers(choices: Sequence[dict[str, Any]], ids: Sequence[int], count: int) -> list[TokenAnswer]:
    """Parse the answers to `count` prompts by their index in the response. Whether the values can be log-probabilities
    is checked with those of all engines."""
    by_index: dict[int | None, dict[str, Any] | None] = {}
    for choice in choices:
        index = _number(choice.get("index"))
        by_index[index] = None if index in by_index else choice
    names = [f"token_id:{token}" for token in ids]
    found = [by_index.get(place) for place in range(count)]
    return [NO_ANSWER if choice is None else _answer(choice, ids, names) for choice in found]


def _answer(choice: dict[str, Any], ids: Sequence[int], names: Sequence[str]) -> TokenAnswer:
    if (reason := broken_off(choice)) is not None:
        return reason
    try:
        top = choice["logprobs"]["top_logprobs"][0]
        found = [top[name] for name in names]
        logprobs = [-math.inf if value is None else float(value) for value in found]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return NO_TOKENS
    return NO_TOKENS if found.count(None) == len(found) else dict(zip(ids, logprobs, strict=True))
