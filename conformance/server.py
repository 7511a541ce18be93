"""An OpenAI-compatible server that judges as a case says: soundly, or with the fault of the case.

The model's name is the id of a case; a name that ends in `--2` is the second judge of a panel. Only the standard
library is used. The adapter says what a sound reply looks like ([`Form`]); the server fills in its answers.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Kind = Literal["word", "item", "list", "grade"]
Form = Callable[[list[tuple[int, str]]], str]
"""A sound reply of a judge, from pairs of the number of an item, from 1, and "yes", "no" or another word."""

SURE = 0.97
"""Probability of the token that a judge writes first."""
PANEL = "--"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    judge: Judge

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        models = [{"id": name, "object": "model"} for name in self.judge.models]
        if self.path.endswith("/models"):
            self._send(200, json.dumps({"object": "list", "data": models}))
        else:
            self._send(404, json.dumps({"error": {"message": f"no {self.path}"}}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if not self.path.endswith("/chat/completions"):
            self._send(404, json.dumps({"error": {"message": f"no {self.path}"}}))
            return
        answer = self.judge.answer(asked)
        if answer is None:  # the connection is lost
            self.close_connection = True
            self.connection.close()
            return
        self._send(*answer)

    def _send(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        content = body.encode()
        self.send_response(status)
        kind = "text/html" if body.startswith("<!") else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class Judge:
    """What the server answers.

    Args:
        cases (sequence of mappings): The cases of `cases.json`.
        checklists (mapping): Its checklists.
        kind (`str`): How the adapter asks: one token per item, a reply per item, one for all items, or a grade.
        form ([`Form`]): A sound reply.
    """

    def __init__(
        self,
        cases: Sequence[Mapping[str, Any]],
        checklists: Mapping[str, Sequence[Mapping[str, Any]]],
        kind: Kind,
        form: Form,
    ):
        self.cases = {case["id"]: case for case in cases}
        self.checklists, self.kind, self.form = checklists, kind, form
        self.models = [name + end for name in self.cases for end in ("", *(f"{PANEL}{n}" for n in range(1, 6)))]
        self._seen: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def answer(self, asked: Mapping[str, Any]) -> tuple[int, str] | tuple[int, str, Mapping[str, str]] | None:
        """Status, body and headers of one chat completion; None if the connection is to be closed."""
        name, _, member = str(asked["model"]).partition(PANEL)
        case = self.cases.get(name)
        if case is None:
            return 404, json.dumps({"error": {"message": f"the model {name!r} does not exist"}})
        text = "\n".join(_text(message.get("content")) for message in asked["messages"])
        with self._lock:
            self._seen[asked["model"], text] += 1
            times = self._seen[asked["model"], text]
        numbers = self._numbers(case, text)
        fault = case["fault"]
        if not self._is_faulty(fault, numbers, times):
            fault = {}
        if "wait" in fault:
            time.sleep(fault["wait"])
        if fault.get("drop"):
            return None
        if "status" in fault:
            return fault["status"], json.dumps({"error": {"message": fault["error"]}}), fault.get("headers", {})
        if "raw" in fault:
            return 200, fault["raw"]
        if fault.get("refuses_logprobs") and "logprobs" in asked:
            return 400, json.dumps({"error": {"message": "logprobs are not supported by this model"}})
        votes = asked.get("n") or 1
        choices = []
        for place in range(votes):
            spared = fault.get("spares_last") and (place == votes - 1 if votes > 1 else member == "5")
            choices.append(self._choice(place, case, numbers, {} if spared else fault, bool(asked.get("logprobs"))))
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": choices}
        return 200, json.dumps(body | {"usage": usage})  # with NaN and Infinity, as Python's servers write them

    def _numbers(self, case: Mapping[str, Any], text: str) -> list[int]:
        """The numbers of the items that a request asks about."""
        items = self.checklists[case["checklist"]]
        found = [number for number, item in enumerate(items, start=1) if item["question"] in text]
        if self.kind in ("word", "item") and found:
            # Few-shot examples and complaints may quote other items: the question comes last.
            found = [max(found, key=lambda number: text.rfind(items[number - 1]["question"]))]
        return found or list(range(1, len(items) + 1))

    def _is_faulty(self, fault: Mapping[str, Any], numbers: Sequence[int], times: int) -> bool:
        if "on" in fault and fault["on"] not in numbers:
            return False
        return "times" not in fault or times <= fault["times"]

    def _choice(
        self, place: int, case: Mapping[str, Any], numbers: Sequence[int], fault: Mapping[str, Any], logprobs: bool
    ) -> dict[str, Any]:
        answers = [(number, case["truth"][number - 1]) for number in numbers]
        if "answer" in fault:
            answers = [(number, fault["answer"] if fault.get("on", number) == number else a) for number, a in answers]
        if "answers" in fault:
            answers = [(number, answer) for number, answer in fault["answers"]]
        items = range(1, len(self.checklists[case["checklist"]]) + 1)
        if self.kind == "list" and len(numbers) < len(items):  # asked again about some items, numbered from 1
            answers = [(numbers.index(number) + 1, answer) for number, answer in answers if number in numbers]
        sound = self.form(answers)
        other = self.form([(number, "no" if answer == "yes" else "yes") for number, answer in answers])
        filled = {"{sound}": sound, "{other}": other, "{half}": sound[: max(1, len(sound) // 2)]}

        def fill(value: Any) -> Any:
            for name, text in filled.items():
                value = value.replace(name, text) if isinstance(value, str) else value
            return value

        message = {"role": "assistant", "content": fill(fault.get("text", "{sound}"))}
        message |= {key: fill(value) for key, value in fault.get("message", {}).items()}
        finish = fault.get("finish", "stop")
        choice: dict[str, Any] = {"index": place, "message": message, "logprobs": None, "finish_reason": finish}
        written = message.get("reasoning_content") or message["content"] or ""
        if logprobs and "no_logprobs" not in fault and written.strip():
            choice["logprobs"] = {"content": [_token(written, fault)]}
        return choice


def _token(written: str, fault: Mapping[str, Any]) -> dict[str, Any]:
    """The first token of a reply with the likely ones: those of the fault, or nearly all probability on the first word
    and, if that is a label, the rest on the other."""
    first = written.split()[0].strip(".,:;!*\"'`")
    rest = {"yes": "No", "no": "Yes"}.get(first.casefold())
    likely = fault.get("likely") or {first: SURE, **({rest: 1 - SURE} if rest else {})}
    values = {token: math.log(p) if isinstance(p, float) and 0 < p <= 1 else float(p) for token, p in likely.items()}
    top = [{"token": token, "logprob": value, "bytes": list(token.encode())} for token, value in values.items()]
    return {**top[0], "top_logprobs": top}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""


@contextmanager
def serving(judge: Judge) -> Iterator[int]:
    """The port where `judge` is served as long as the block lasts."""
    handler = type("Handler", (_Handler,), {"judge": judge})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # clients that gave up
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
