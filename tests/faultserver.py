"""An OpenAI-compatible server that fails on demand, in a process of its own.

The model's name says what goes wrong with its answers: `html`, `hang`, `drop` ... ([`FAULTS`]). A name that ends in
`@some` goes wrong only for prompts that contain [`MARK`]; its other answers are sound. `dense` is sound and only
costs: it bills a token per byte and a template besides. The right answers stand in the questions: `Is it fine (yes)?`
is answered yes, `Is it red (no)?` no.

It answers label reads (log-probabilities asked for, or none where a server refused them), and the JSON of batch,
reasoned and quality judgements, checklists as numbered lists, or JSON of any other schema. What is asked for is told
from the schema of the request, and where that was left out, from the words of the prompt.

    python -m tests.faultserver         # prints its port, serves until stdin closes
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections import Counter
from typing import Any

from aiohttp import web

from tests import decisionservers

MARK = "[BROKEN]"
TEMPLATE_TOKENS = 60
RETRY_AFTER = "0.3"
GRADE = 4
CHECKLIST = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "items": {"type": "object", "properties": {"question": {"type": "string"}, "weight": {"type": "integer"}}},
        }
    },
}
"""What is asked for in words where no schema says it."""
FAULTS = (
    *("valid", "fenced", "prose", "think", "upper", "429", "503_twice", "schema_refused", "split", "no_usage"),
    *("null", "empty_choices", "html", "error_body", "500", "hang", "drop", "truncated", "refusal", "cut"),
    *("missing", "duplicate", "zero_based", "extra"),  # numbered replies without the numbers of the questions
    *("na", "off_label", "no_logprobs", "logprobs_refused", "words_only"),  # about labels
)
DECISION_FAULTS = (
    *("wrong_order", "one_missing", "extra_answer", "few_questions"),  # right in the end
    *("null_answers", "never_answered", "answered_twice", "no_names", "nan", "above_one", "not_a_sum"),
    *("wrong_type", "wrong_labels"),
)
"""Faults of decisions, together with those of any request. `one_missing` leaves the last answer out the first time."""

_QUESTION = re.compile(r"^[^\S\n]*(?:(?:Q|\[|\()?(\d+)[.):\]]*\s+)?[^\n]*\((yes|no)\)", re.M)
_seen: Counter[tuple[str, str]] = Counter()


async def failure(request: web.Request, fault: str, times: int) -> web.StreamResponse | None:
    """The faults of any request. `times` counts the equal requests so far, with this one."""
    if fault == "429" and times == 1:
        headers = {"Retry-After": RETRY_AFTER}
        return web.json_response({"error": {"message": "slow down"}}, status=429, headers=headers)
    if fault == "500" or (fault == "503_twice" and times <= 2):
        return web.json_response({"error": {"message": "out of order"}}, status=int(fault[:3]))
    if fault == "hang":
        await asyncio.sleep(3600)
    if fault == "drop":
        assert request.transport is not None
        request.transport.abort()
    if fault == "html":
        return web.Response(text="<!doctype html><h1>Bad gateway</h1>", content_type="text/html")
    if fault == "error_body":
        return web.json_response({"error": {"message": "the upstream broke", "code": 502}})
    return None


async def decide(request: web.Request) -> web.StreamResponse:
    """One decision, as the model's name has it, in the protocol of the path."""
    asked = await request.json()
    system_one = request.path.endswith("systemone")
    state = asked["state"] if system_one else asked["input"]
    name, _, some = asked["model"].partition("@")
    fault = name if not some or MARK in str(state) else "valid"
    entries = asked["questions"].items() if system_one else [(q["name"], q) for q in asked["questions"]]
    wanted = dict(entries)
    key = json.dumps([asked["model"], state, list(wanted.values())])
    _seen[key, request.path] += 1
    if (failed := await failure(request, fault, _seen[key, request.path])) is not None:
        return failed
    if fault == "few_questions" and len(wanted) > 1:
        return web.json_response({"error": {"message": "questions: at most 1 for this model"}}, status=400)
    answers = {name: decided(question, fault, system_one) for name, question in wanted.items()}
    if fault == "never_answered" or (fault == "one_missing" and _seen[key, request.path] == 1 and len(wanted) > 1):
        answers.popitem()
    if fault == "extra_answer":
        answers = {"q99": decided({"type": "noul", "instructions": "(no)"}, "valid", system_one)} | answers
    if fault == "wrong_order":
        answers = dict(reversed(answers.items()))
    body: dict[str, Any] = {"model": asked["model"], "answers": answers}
    if system_one:
        body["diagnostics"] = {name: {"label_mass": 0.9, "argmax_is_label": True} for name in answers}
    else:
        lines = [answer | {"name": None if fault == "no_names" else name} for name, answer in answers.items()]
        body["answers"] = lines + lines[:1] * (fault == "answered_twice")
    if fault == "null_answers":
        body["answers"] = None
    if fault != "no_usage":
        body["usage"] = {"input_tokens": 100, "output_tokens": len(wanted)}
    return web.Response(text=json.dumps(body), content_type="application/json")


def decided(question: dict[str, Any], fault: str, system_one: bool) -> dict[str, Any]:
    """The answer to one question of a decision. The label in brackets, or the last one, is right."""
    if fault == "refusal":
        return {"type": "refusal"}
    kind = "score" if fault == "wrong_type" and question["type"] != "score" else question["type"]
    if kind in ("noul", "predicate"):
        truth = re.search(r"\((yes|no)\)", question["instructions"])
        yes = 0.94 if truth is not None and truth.group(1) == "yes" else 0.06
        yes = {"nan": math.nan, "above_one": 1.5, "wrong_labels": "yes", "not_a_sum": None}.get(fault, yes)
        return {"type": kind, "noul" if system_one else "probability": yes}
    criteria = question.get("criteria") or question.get("choices") or question.get("levels") or ["a", "b"]
    labels = [line if isinstance(line, str) else line.get("value", line.get("label")) for line in criteria]
    named = re.search(r"\(([^()]+)\)", question["instructions"])
    right = named.group(1) if named is not None and named.group(1) in labels else labels[-1]
    likely = {label: 0.9 if label == right else 0.1 / (len(labels) - 1) for label in labels}
    if fault in ("nan", "above_one", "not_a_sum"):
        likely[right] = {"nan": math.nan, "above_one": 1.5, "not_a_sum": 0.3}[fault]
    if fault == "wrong_labels":
        likely = {f"not {label}": value for label, value in likely.items()}
    if system_one:
        by_name = likely if kind == "choice" else {str(place): likely[label] for place, label in enumerate(likely)}
        return {"type": kind, "probabilities": by_name, "confidence": 0.9}
    of = "value" if kind == "choice" else "label"
    return {"type": kind, "confidence": 0.9, "probabilities": [{of: k, "probability": p} for k, p in likely.items()]}


async def models(request: web.Request) -> web.Response:
    """Every fault, with and without `@some`."""
    names = [name + suffix for name in (*FAULTS, "dense", *DECISION_FAULTS) for suffix in ("", "@some")]
    return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


async def chat(request: web.Request) -> web.StreamResponse:
    """One chat completion, as the model's name has it."""
    asked = await request.json()
    name, _, some = asked["model"].partition("@")
    text = "\n".join(message["content"] for message in asked["messages"])
    fault = name if not some or MARK in text else "valid"
    _seen[asked["model"], text] += 1
    if (failed := await failure(request, fault, _seen[asked["model"], text])) is not None:
        return failed
    if fault == "schema_refused" and "response_format" in asked:
        return web.json_response({"error": {"message": "response_format is not supported"}}, status=400)
    if fault == "logprobs_refused" and "logprobs" in asked:
        return web.json_response({"error": {"message": "logprobs are not supported by this model"}}, status=400)
    choices = [] if fault == "empty_choices" else [choice(asked, text, fault, n) for n in range(asked.get("n", 1))]
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": choices}
    if fault != "no_usage":
        prompt = 100 if fault != "dense" else TEMPLATE_TOKENS + len(text.encode())
        body["usage"] = {"prompt_tokens": prompt, "completion_tokens": 10 * len(choices), "total_tokens": prompt + 10}
    return web.json_response(body)


def choice(asked: dict[str, Any], text: str, fault: str, number: int) -> dict[str, Any]:
    """One choice of a completion."""
    if fault == "refusal":
        return _choice(number, None, "stop", refusal="I cannot help with that.")
    if fault == "null":
        return _choice(number, None, "stop")
    if fault == "cut":
        return _choice(number, None, "length")
    truth = questions(text)
    kind = kind_of(asked, text)
    if kind == "label":
        return label(number, truth[-1][1] if truth else "yes", fault, bool(asked.get("logprobs")))
    reply = numbered(fault) if kind == "list" else json.dumps(value(kind, asked, truth, fault))
    if fault == "fenced":
        reply = f"```{'' if kind == 'list' else 'json'}\n{reply}\n```"
    if fault == "prose":
        reply = f"Sure! Here you are: {reply}\nI hope that helps {{a lot}}."
    if fault == "think":
        reply = f'<think>Could be {{"answer": "no"}} ... or not.</think>\n{reply}'
    if fault == "truncated":
        return _choice(number, reply[: len(reply) // 2], "length")
    return _choice(number, reply, "stop")


def label(number: int, answer: str, fault: str, logprobs: bool) -> dict[str, Any]:
    """An answer of one token, with the likely tokens where they are asked for and the fault does not hide them."""
    other = "no" if answer == "yes" else "yes"
    likely = {answer: 0.9, other: 0.06, "\n": 0.01}
    if fault in ("off_label", "prose", "fenced", "think", "na"):
        first = {"prose": "Sure", "fenced": "```", "think": "<think>", "na": "N"}.get(fault, "Well")
        likely = {first: 0.9, answer: 0.03, other: 0.02}
    if fault == "split":
        # No form of the right label is as likely as the wrong one; together they are.
        likely = {other: 0.3, answer: 0.25, f" {answer}": 0.2, answer.title(): 0.13, answer.upper(): 0.1}
    if fault == "upper":
        likely = {answer.upper(): 0.9, other.upper(): 0.06}
    token = next(iter(likely))
    words = {"na": "N/A", "words_only": f"**{answer.title()}**.", "split": answer}
    if not logprobs or fault in ("no_logprobs", "words_only"):
        return _choice(number, words.get(fault, token) if not logprobs else token, "stop")
    top = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in likely.items()]
    found = {"content": [{"token": token, "logprob": math.log(likely[token]), "bytes": None, "top_logprobs": top}]}
    return _choice(number, token, "length") | {"logprobs": found}


def numbered(fault: str) -> str:
    """A checklist as a numbered list, or what the fault makes of it."""
    if fault == "na":
        return "N/A"
    return "\n".join(f"{number}. Is part {number} of it fine (yes)?" for number in range(1, 4))


def questions(text: str) -> list[tuple[int, str]]:
    """The questions of a prompt: the number in front, or else the place, and the right answer."""
    found = _QUESTION.findall(text)
    return [(int(number) if number else place, answer) for place, (number, answer) in enumerate(found, start=1)]


def kind_of(asked: dict[str, Any], text: str) -> str:
    """What is asked for: a label, an item, batch or quality judgement, a numbered list, or any other "schema"."""
    schema = asked.get("response_format", {}).get("json_schema", {}).get("schema", {})
    properties = schema.get("properties", {})
    for kind, field in (("quality", "grade"), ("batch", "answers"), ("item", "answer")):
        if field in properties or (not schema and f'"{field}"' in text):
            return kind
    if schema or "JSON" in text:
        return "schema"
    return "list" if "a number before it" in text else "label"


def value(kind: str, asked: dict[str, Any], truth: list[tuple[int, str]], fault: str) -> Any:
    """The right value, or one that is wrong in the way of the fault."""

    def said(answer: str) -> str:
        return "N/A" if fault == "na" else answer.upper() if fault == "upper" else answer

    if kind == "item":
        return {"reasoning": "One can see it.", "answer": said(truth[-1][1] if truth else "yes")}
    if kind in ("batch", "quality"):
        detail = "reasoning" if kind == "batch" else "justification"
        shift = 1 if fault == "zero_based" else 0
        answers = [{"index": n - shift, detail: "One can see it.", "answer": said(answer)} for n, answer in truth]
        if fault == "missing":
            answers = answers[:-1]
        if fault == "duplicate" and answers:
            answers.append(answers[-1] | {"answer": "yes" if answers[-1]["answer"] == "no" else "no"})
        if fault == "extra":
            answers.append({"index": 99, detail: "As well.", "answer": "yes"})
        return {"answers": answers} | ({"grade": GRADE} if kind == "quality" else {})
    schema = asked.get("response_format", {}).get("json_schema", {}).get("schema", CHECKLIST)
    return example(schema, schema)


def example(schema: dict[str, Any], root: dict[str, Any], name: str = "text") -> Any:
    """A value that fits a JSON schema."""
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, name)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], root, name)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {key: example(part, root, f"{name} {key}") for key, part in schema.get("properties", {}).items()}
    if kind == "array":
        count = max(2, schema.get("minItems", 2))
        entries = [example(schema.get("items", {}), root, f"{name} {n}") for n in range(1, count + 1)]
        return entries[: schema.get("maxItems", len(entries))]
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return True
    return f"Is the {name} fine (yes)?"


def _choice(number: int, content: str | None, finish: str, **message: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **message}
    return {"index": number, "message": message, "logprobs": None, "finish_reason": finish}


async def serve() -> None:
    """Serve on a free port of this machine until stdin closes."""
    application = web.Application(client_max_size=2**26)
    application.add_routes([web.get("/v1/models", models), web.post("/v1/chat/completions", chat)])
    # Each protocol alone, and both.
    for prefix, paths in (("both", ("systemone", "decisions")), ("one", ("systemone",)), ("two", ("decisions",))):
        application.router.add_get(f"/{prefix}/models", models)
        for path in paths:
            application.router.add_post(f"/{prefix}/{path}", decide)
    application.add_routes(decisionservers.routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
