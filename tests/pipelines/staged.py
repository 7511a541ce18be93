"""An OpenAI-compatible server with the recorded replies of a writer, found by the stage that a prompt belongs to.

`replies/NAME.yaml` maps the name of a packaged prompt to replies: a text of the prompt (or several, joined by ` & `),
or `*` for all other prompts of this stage, to the replies to it in turn. A reply is a text, or `text` with
`finish_reason`. The last one is repeated.

The model `judge` answers no to the questions that `denied` lists for a text of the prompt, and yes to all others. The
models `small` and `large` give the candidates of `replies/requests.yaml`.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from checklist_rewards.prompts import prompts_dir, split_front_matter
from tests.backends.answerserver import answering

REPLIES = Path(__file__).parent / "replies"
MODELS = ("writer", "judge", "small", "large")
_PLACEHOLDER = re.compile(r"\{\w+\}")
_FENCED = re.compile(r"<(?P<name>[\w-]+-[0-9a-f]{6,})>\n(?P<text>.*?)\n</(?P=name)>", re.S)


def recorded(name: str) -> dict[str, Any]:
    """The content of `replies/NAME.yaml`."""
    return yaml.safe_load((REPLIES / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def _stages() -> dict[str, list[str]]:
    """The texts by which the prompt of a stage is known: all that its task says."""
    folder = prompts_dir()
    paths = [path for room in ("generators", "refiners") for path in sorted((folder / room).glob("*.md"))]
    stages = {}
    for path in paths:
        _, text = split_front_matter(path.read_text(encoding="utf-8"))
        task = text.split("## Task\n")[1].split("\n## ")[0]
        stages[f"{path.parent.name}/{path.stem}"] = _PLACEHOLDER.split(task.strip())
    return stages


def stage_of(text: str) -> str:
    """The name of the packaged prompt that `text` was rendered from."""
    [stage] = [name for name, parts in _stages().items() if all(part in text for part in parts)]
    return stage


class StagedServer:
    """Replies as recorded.

    Args:
        replies (mapping): stage to a text of the prompt to replies, and `no`, as in the files.
    """

    def __init__(self, replies: dict[str, Any]):
        self.recorded = replies
        self.asked: Counter[tuple[str, str]] = Counter()
        """How often each prompt was sent, by its stage and its text."""
        self.unknown: list[str] = []
        """Prompts without a recorded reply."""
        self._turn = threading.Lock()

    def respond(self, path: str, asked: dict[str, Any]) -> tuple[int, Any]:
        user = next(message["content"] for message in asked["messages"] if message["role"] == "user")
        with self._turn:
            choice = {"writer": self._written, "judge": self._judged}.get(asked["model"], self._candidate)(asked, user)
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return 200, {"choices": [{"index": 0, "finish_reason": "stop", "logprobs": None} | choice], "usage": usage}

    def _written(self, asked: dict[str, Any], user: str) -> dict[str, Any]:
        stage, about = stage_of(user), _about(user)
        of_stage = self.recorded.get(stage, {})
        known = (key for key in of_stage if all(text in about for text in key.split(" & ")))
        replies = of_stage.get(next(known, "*"))
        if replies is None:
            self.unknown.append(f"{stage}: {about}")
            return _message("")
        reply = replies[min(self.asked[stage, user], len(replies) - 1)]
        self.asked[stage, user] += 1
        if isinstance(reply, str):
            return _message(reply)
        return _message(reply["text"]) | {"finish_reason": reply["finish_reason"]}

    def _candidate(self, asked: dict[str, Any], user: str) -> dict[str, Any]:
        [prompt] = [entry for entry in recorded("requests")["prompts"].values() if entry["input"] == user]
        return _message(prompt["responses"][1 if asked["model"] == "large" else 2])

    def _judged(self, asked: dict[str, Any], user: str) -> dict[str, Any]:
        refused = [q for text, questions in self.recorded.get("denied", {}).items() if text in user for q in questions]
        fields = [match["text"] for match in _FENCED.finditer(user)]
        numbered = re.findall(r"^\d+\. (.+)$", fields[-1], re.M) if "## Checklist" in user else []
        if numbered:
            answers = ["no" if any(q in question for q in refused) else "yes" for question in numbered]
            return _message(json.dumps({"answers": [{"index": n, "answer": a} for n, a in enumerate(answers, 1)]}))
        no = any(q in fields[-1] or q in user[user.rindex("\n## ") :] for q in refused)
        labels = ("8", "2") if "The possible answers are the steps" in str(asked["messages"]) else ("yes", "no")
        label, other = labels[::-1] if no else labels
        likely = {label: 0.9, other: 0.06}
        top = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in likely.items()]
        content = [{"token": label, "logprob": math.log(0.9), "bytes": None, "top_logprobs": top}]
        return _message(label) | {"logprobs": {"content": content}}


def _about(user: str) -> str:
    """What a prompt inserts into its template."""
    return "\n".join(match["text"] for match in _FENCED.finditer(user))


def _message(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}}


@contextmanager
def staged(replies: dict[str, Any]) -> Iterator[tuple[StagedServer, str]]:
    """The server, and its base URL. No prompt may be left without a recorded reply."""
    server = StagedServer(replies)
    with answering(server.respond, *({"id": name} for name in MODELS)) as served:
        yield server, served.base_url
    assert server.unknown == []
