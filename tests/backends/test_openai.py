"""A served judge: a real vLLM server gives the in-process numbers; a broken one costs what it breaks, and no more."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import ReadGroup, Sampling, engine_identity, load_backend, pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.errors import ModelError
from tests.backends.answers import largest_difference
from tests.backends.conftest import SERVED_NAME

LABELS = ("yes", "no")
ONE = [ReadGroup(None, "Hello there. ", ("Is it short?",))]


def with_server(test):
    return pytest.mark.slow(pytest.mark.vllm(test))


@with_server
def test_a_served_judge_gives_the_same_p_yes(pocket, vllm_server, world_reads):
    served = load_backend(SERVED_NAME, base_url=vllm_server).read(world_reads, LABELS)
    here = pocket.read(world_reads, LABELS)
    assert largest_difference(served, here) < 1e-3
    assert (served.prompt_tokens, served.floor_tokens) == (here.prompt_tokens, here.floor_tokens)


@with_server
def test_more_reads_than_fit_one_request_come_back_in_order(pocket, vllm_server):
    groups = [ReadGroup(None, f"{n} words. ", tuple(f"Is it {k}?" for k in range(10))) for n in range(60)]
    served = load_backend(SERVED_NAME, base_url=vllm_server).read(groups, LABELS)
    assert largest_difference(served, pocket.read(groups, LABELS)) < 1e-3


@with_server
def test_the_scorer_takes_a_base_url(vllm_server):
    questions, text = ["Does the response end with a question mark?", "Does the response use bullet points?"], "Is it?"
    served = ChecklistScorer(SERVED_NAME, base_url=vllm_server, store=False).score(questions, text, "Ask something.")
    here = ChecklistScorer("pocket", backend="transformers", store=False).score(questions, text, "Ask something.")
    assert served.expected_score == pytest.approx(here.expected_score, abs=1e-3)


@with_server
def test_what_does_not_fit_is_too_long_before_it_is_sent(vllm_server):
    judge = load_backend(SERVED_NAME, base_url=vllm_server)
    [[long], [short]] = judge.read([ReadGroup(None, "word " * 3000, ("Is it?",)), *ONE], LABELS).reads
    assert (long.unanswered, short.unanswered) == ("too_long", None)
    [[reply]] = judge.generate([[{"role": "user", "content": "word " * 3000}]], Sampling())
    assert (reply.text, reply.unanswered) == (None, "too_long")


@with_server
def test_greedy_replies_are_the_transformers_engines(pocket, vllm_server):
    prompts = [
        [{"role": "user", "content": text}] for text in ("Write something.", "Write one sentence. Avoid digits.")
    ]
    served = load_backend(SERVED_NAME, base_url=vllm_server)
    assert served.generate(prompts, Sampling(max_tokens=40)) == pocket.generate(prompts, Sampling(max_tokens=40))
    [replies] = served.generate(prompts[:1], Sampling(max_tokens=9000, temperature=1.0, n=3, seed=1))
    assert len({reply.text for reply in replies}) > 1


@with_server
def test_a_server_of_another_model_is_refused_by_name(vllm_server):
    with pytest.raises(ModelError, match=r"serves \['judge'\], not 'llama'"):
        load_backend("llama", base_url=vllm_server)


class BrokenServer(BaseHTTPRequestHandler):
    """Answers completions with the statuses in `server.statuses`, one per request, the last one for ever."""

    def do_GET(self):
        card = {"id": SERVED_NAME, "object": "model", "root": str(pocket_dir()), "max_model_len": 2048}
        self.answer(200, {"object": "list", "data": [card]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        statuses = self.server.statuses
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        status = 500 if self.server.fails(asked) else status
        if status != 200:
            return self.answer(status, {"error": {"message": f"status {status}"}})
        named = {f"token_id:{token}": -1.0 for token in asked["logprob_token_ids"]} if self.server.names_tokens else {}
        choices = [
            {"index": n, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [named]}}
            for n in reversed(range(len(asked["prompt"])))
        ]
        return self.answer(
            200, {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": choices}
        )

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("retry-after-ms", "1")  # so that the client's pauses do not slow the tests
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def broken_server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), BrokenServer)
    server.asked, server.statuses, server.names_tokens, server.fails = [], [200], True, lambda asked: False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    yield server
    server.shutdown()
    server.server_close()


def test_a_passing_failure_is_retried(broken_server):
    broken_server.statuses = [503, 429, 200]
    [[read]] = OpenAIBackend(SERVED_NAME, broken_server.base_url).read(ONE, LABELS).reads
    assert read.unanswered is None
    assert len(broken_server.asked) == 3


def test_a_lasting_failure_leaves_its_reads_unanswered_after_bounded_retries(broken_server):
    broken_server.statuses = [500]
    [[read]] = OpenAIBackend(SERVED_NAME, broken_server.base_url).read(ONE, LABELS).reads
    assert read.logprobs is None and read.unanswered.startswith("backend_error: ")
    assert len(broken_server.asked) == 5


def test_a_failed_request_costs_no_other_request(broken_server):
    broken_server.fails = lambda asked: len(asked["prompt"]) == 256
    groups = [ReadGroup(None, "Hello. ", tuple(f"Is it {n}?" for n in range(300)))]
    [reads] = OpenAIBackend(SERVED_NAME, broken_server.base_url).read(groups, LABELS).reads
    assert [read.unanswered is None for read in reads] == [False] * 256 + [True] * 44


def test_a_server_that_names_no_tokens_is_no_judge(broken_server):
    broken_server.names_tokens = False
    with pytest.raises(ModelError, match="gave no log-probability of 'token_id:.*logprob_token_ids"):
        OpenAIBackend(SERVED_NAME, broken_server.base_url).read(ONE, LABELS)


def test_a_request_that_the_server_refuses_is_an_error_at_once(broken_server):
    broken_server.statuses = [400]
    with pytest.raises(ModelError, match="refused a request: .*status 400"):
        OpenAIBackend(SERVED_NAME, broken_server.base_url).read(ONE, LABELS)
    assert len(broken_server.asked) == 1


def test_no_server_is_one_sentence(monkeypatch):
    monkeypatch.setattr("checklist_rewards.backends.openai._RETRIES", 0)
    with pytest.raises(ModelError, match=r"no server answers at http://127.0.0.1:9/v1 .*vllm serve judge"):
        OpenAIBackend(SERVED_NAME, "http://127.0.0.1:9/v1")


def test_a_served_model_is_known_by_name_and_address():
    assert engine_identity("judge", base_url="http://a:1/v1") == engine_identity("judge", base_url="http://a:1/v1/")
    assert engine_identity("judge", base_url="http://a:1/v1") != engine_identity("judge", base_url="http://b:1/v1")
