"""The decisions of other servers, imitated: their limits, statuses, error bodies and extra fields.

Each server answers at `/<name>/systemone` (OpenRouter at `/openrouter/decisions`) of the fault-injecting server. The
right answers stand in the questions, as there. [`DECIDES`] is a decision model, [`CHATS`] is not.
"""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web

LLAMA_CPP, SGLANG, OLLAMA, LITELLM, OPENROUTER = "llama.cpp", "sglang", "ollama", "litellm", "openrouter"
SERVERS = (LLAMA_CPP, SGLANG, OLLAMA, LITELLM, OPENROUTER)
DECIDES, CHATS = "decider", "chatter"
NOT_A_DECISION_MODEL = {
    LLAMA_CPP: (501, "This model is not a decision model"),
    SGLANG: (400, "/v1/systemone does not support --enable-mis"),
    OLLAMA: (400, f'"{CHATS}" does not support decision'),
    LITELLM: (404, "litellm.NotFoundError: NotFoundError: Hosted_vllmException - 404: Not Found"),
    OPENROUTER: (404, f"No endpoints found for {CHATS}."),
}
LABEL_MASS = {SGLANG: 0.62, LITELLM: 0.9}
"""LiteLLM passes the diagnostics of a vLLM server on."""
_MOST_OPTIONS = {LLAMA_CPP: 52, SGLANG: 255, OLLAMA: 26, LITELLM: 255, OPENROUTER: 255}
_MOST_LEVELS = {OLLAMA: 26}
_OLLAMA_BYTES = 64 * 2**10


class Rejected(Exception):
    """The status and the message of an error."""


async def models(request: web.Request) -> web.Response:
    """The list of models."""
    return web.json_response(
        {"object": "list", "data": [{"id": name, "object": "model"} for name in (DECIDES, CHATS)]}
    )


async def decide(request: web.Request) -> web.Response:
    """The decisions of the server that the path names."""
    server = request.path.split("/")[1]
    content = await request.read()
    try:
        if server == OLLAMA and len(content) > _OLLAMA_BYTES:
            raise Rejected(413, "http: request body too large")
        return web.json_response(decisions(server, json.loads(content)))
    except Rejected as rejection:
        status, message = rejection.args
        return web.json_response(error(server, status, message), status=status)


def decisions(server: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises [`Rejected`]."""
    if asked.get("model") == CHATS:
        raise Rejected(*NOT_A_DECISION_MODEL[server])
    if server == OLLAMA and not 1 <= len(asked["questions"]) <= 64:
        raise Rejected(400, "questions must contain 1–64 fields")
    answers = {name: answer(server, name, question) for name, question in asked["questions"].items()}
    body: dict[str, Any] = {"model": asked["model"], "answers": answers}
    tokens = 50 * len(answers)
    body["usage"] = {"input_tokens": tokens, "output_tokens": len(answers) if server == OLLAMA else 0}
    if server == LITELLM:
        body["diagnostics"] = {name: {"label_mass": LABEL_MASS[LITELLM], "argmax_is_label": True} for name in answers}
    if server == OPENROUTER:
        body |= {"id": "gen-dec-1", "provider": "TypeSafe"}
        body["usage"] |= {"cost": 0.00001, "input_tokens_details": {"cached_tokens": 10}}
    return body


def answer(server: str, name: str, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question. The label in brackets is right."""
    kind, criteria = question["type"], question.get("criteria")
    named = re.search(r"\(([^()]+)\)", question["instructions"])
    right = named.group(1) if named is not None else "no"
    if kind == "noul":
        found = {"type": "noul", "noul": 0.94 if right == "yes" else 0.06}
    elif kind == "choice":
        found = {"type": "choice", "choice": right} | spread(options(server, name, criteria), right)
    else:
        if not isinstance(criteria, list) or not 2 <= len(criteria) <= _MOST_LEVELS.get(server, 10):
            raise Rejected(400, f'questions.{name}: "criteria" must be an array of 2 to 10 levels')
        levels = {str(place): label for place, label in enumerate(criteria)}
        found = {"type": "score", "score": float(criteria.index(right)), "legend": levels}
        found |= spread(list(levels), str(criteria.index(right)))
    if server == OPENROUTER:
        found = json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 2))
    return found | ({"x_label_mass": LABEL_MASS[SGLANG]} if server == SGLANG else {})


def options(server: str, name: str, criteria: Any) -> list[str]:
    """The options of a choice. Raises [`Rejected`]."""
    if not isinstance(criteria, dict) or not 1 <= len(criteria) <= _MOST_OPTIONS[server]:
        raise Rejected(400, f"questions.{name}: too many options ({len(criteria)}), this model supports fewer")
    if server == OPENROUTER and not all(isinstance(text, str) for text in criteria.values()):
        raise Rejected(400, f"questions.{name}.criteria: expected string, received null")
    return list(criteria)


def spread(labels: list[str], right: str) -> dict[str, Any]:
    """A distribution over labels of which one is right."""
    others = 0.1 / (len(labels) - 1)
    return {"probabilities": {label: 0.9 if label == right else others for label in labels}, "confidence": 0.85}


def error(server: str, status: int, message: str) -> dict[str, Any]:
    """The body of an error."""
    if server == OLLAMA:
        return {"error": message}
    if server == SGLANG:
        return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
    return {"error": {"code": status, "message": message, "type": "invalid_request_error"}}


def routes() -> list[web.RouteDef]:
    """The routes of all servers."""
    found = []
    for server in SERVERS:
        path = "decisions" if server == OPENROUTER else "systemone"
        found += [web.get(f"/{server}/models", models), web.post(f"/{server}/{path}", decide)]
    return found
