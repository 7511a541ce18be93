"""What the tests share. They run in the environments of their frameworks, with the light core of this package."""

import itertools
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.chat import CompletionReader

CHECKLIST = [
    "Does the response end with a question mark?",
    {"question": "Does the response contain the word moon?", "weight": 2},
]
INPUT = "Say something."
TEXTS = ["who is there?", "the moon is up.", "is it the moon?", "the lamo is old."]
BROKEN = json.dumps({"checklist": [], "input": INPUT})
LABEL = json.dumps({"checklist": CHECKLIST, "input": INPUT})
LOGGED = {f"checklist/{name}" for name in ("pass_rate", "answered_weight", "scored", "no_answer", "cut")}
"""What an adapter gives a framework to log of a sample."""
TURNS = {
    "call": 'Let me look. <tool_call>{"name": "look", "arguments": {"word": "moon"}}</tool_call>',
    "result": "a light at night",
    "answer": "the moon is up.",
    "checklist": [
        {"question": "Does the response contain the word moon?", "scope": "final"},
        {"question": "Is the response free of digits?", "scope": "every_turn"},
        {
            "question": "Does the result have at most 4 words?",
            "scope": "any_tool_result",
            "check": {"type": "words", "at_most": 4},
        },
    ],
}
"""A rollout with a tool: what the policy writes, what the tool returns, and items about its messages."""


@pytest.fixture(scope="session")
def server() -> str:
    """The reward server that `run.py` started."""
    return os.environ["REWARD_SERVER"]


@pytest.fixture(params=["server", "process"])
def judge(request, server) -> dict[str, str]:
    """Arguments of a scorer: the reward server, or the pocket model in the framework's own process."""
    if request.param == "server":
        return {"backend": "remote", "base_url": server}
    if find_spec("torch") is None or find_spec("transformers") is None:
        pytest.skip("this framework brings no torch and transformers")
    return {"model": "pocket", "backend": "transformers", "store": False}


class Silent(BaseHTTPRequestHandler):
    """An OpenAI-compatible server whose replies are empty."""

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "silent", "object": "model"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": None}
        self.answer({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def answer(self, body):
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        """Log nothing."""


@pytest.fixture(scope="session")
def silent_judge() -> Iterator[dict[str, object]]:
    """Arguments of a scorer whose server answers no item."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"model": "silent", "base_url": f"http://127.0.0.1:{server.server_port}/v1", "store": False}
        server.shutdown()


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """`configure(settings)` writes them to a YAML file that adapters read."""
    numbers = itertools.count()

    def write(settings: dict[str, object]) -> None:
        path = tmp_path / f"reward{next(numbers)}.yaml"  # a process reads each file once
        path.write_text(json.dumps(settings))
        monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(path))

    return write


@pytest.fixture(scope="session")
def expected(server) -> list[float]:
    """The scores of `TEXTS` by the server, without any framework."""
    return scores_of(server, TEXTS)


def scores_of(server: str, texts: list[str]) -> list[float]:
    scorer = ChecklistScorer(backend="remote", base_url=server)
    scores = [score.primary_score for score in scorer.score_batch([Sample(CHECKLIST, t, INPUT) for t in texts])]
    assert None not in scores and len(set(scores)) > 2
    return scores


def score_of_turns(server: str) -> float:
    """The score of `TURNS` by the server, without any framework."""
    call = {"name": "look", "arguments": {"word": "moon"}}
    messages = [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "content": TURNS["result"]},
        {"role": "assistant", "content": TURNS["answer"]},
    ]
    target = CompletionReader().read(messages)
    scorer = ChecklistScorer(backend="remote", base_url=server)
    [score] = scorer.score_batch([Sample(TURNS["checklist"], target.text, INPUT, messages=target.messages)])
    assert score.primary_score is not None and score.total == 3
    return score.primary_score


class Engine:
    """An inference engine that answers with one of `TEXTS` after the other."""

    def __init__(self, tokenizer, texts=TEXTS):
        self.tokenizer, self.texts = tokenizer, iter(texts)

    async def generate(self, prompt_ids, *args, **kwargs):
        ids = self.tokenizer.encode(next(self.texts), add_special_tokens=False) + [self.tokenizer.eos_token_id]
        text = self.tokenizer.decode(ids)
        output = SimpleNamespace(token_ids=ids, text=text, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the pocket model, with its chat template."""
    from transformers import AutoTokenizer

    from checklist_rewards.backends import pocket_dir

    return AutoTokenizer.from_pretrained(pocket_dir())
