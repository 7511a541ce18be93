"""What a server computed: by its responses, by its counters, or not known."""

import threading

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.openai import OpenAIBackend, client
from checklist_rewards.backends.openai.served import Counts, counts_in
from checklist_rewards.judges import Receipt
from tests.backends.answerserver import SERVED_NAME, connect
from tests.conftest import HANG

LABELS = ("yes", "no")
GROUPS = [ReadGroup(None, "Hello there. ", ("Is it short?", "Is it long?"))]
METRICS = """# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
vllm:prefix_cache_queries_total{{engine="0",model_name="judge"}} {}
vllm:prefix_cache_queries_created{{engine="0",model_name="judge"}} 1.79530477632568e+09
vllm:prefix_cache_hits_total{{engine="0",model_name="judge"}} {}
vllm:external_prefix_cache_hits_total{{engine="0",model_name="judge"}} 77.0
"""


def counting(server, per_token=1.0, hits=0.5, others=0):
    """Has the server count the tokens of the lists it was asked, and half of them as hits."""

    def metrics():
        asked = sum(len(prompt) for body in server.asked for prompt in body.get("prompt", ()))
        return METRICS.format(asked * per_token + others * len(server.asked), int(asked * hits))

    server.metrics = metrics


def test_the_counters_of_all_engines_are_added_up():
    text = METRICS.format("1.7e+02", 30) + METRICS.format(8, 2).replace('engine="0"', 'engine="1"')
    assert counts_in(text) == Counts(178, 32)
    assert counts_in("vllm:num_requests_running 1.0") is None


def test_computed_tokens_are_those_that_were_not_in_the_cache(broken_server):
    judge = connect(broken_server)
    judge.read(GROUPS, LABELS)  # the first one tries a prompt of its own
    counting(broken_server)
    judge = connect(broken_server)
    _, result = judge.read(GROUPS, LABELS)
    hits = result.prompt_tokens - result.computed_tokens
    assert result.prompt_tokens > 0 and hits == pytest.approx(result.prompt_tokens / 2, abs=1)


@pytest.mark.parametrize(
    "counters", [{"others": 5}, {"per_token": 0.0}, None], ids=["another client", "no cache", "no counters"]
)
def test_what_cannot_be_told_is_not_known(broken_server, counters):
    if counters is not None:
        counting(broken_server, **counters)
    judge = connect(broken_server)
    scorer = ChecklistScorer(SERVED_NAME, backend=judge, store=False)
    scorer.score(["Is it short?", "Is it long?"], "Hello there.")
    assert scorer.receipt.computed_tokens is None
    assert scorer.receipt.prompt_tokens > scorer.receipt.floor_tokens > 0
    assert str(scorer.receipt).endswith("completion tokens; computed tokens not reported by the server")


def test_one_slow_answer_does_not_switch_the_counters_off(broken_server, monkeypatch):
    monkeypatch.setattr(client, "_TEXT_SECONDS", 0.2)
    counting(broken_server)
    judge = connect(broken_server)
    judge.read(GROUPS, LABELS)  # the first one tries a prompt of its own
    quick, late = broken_server.metrics, threading.Event()

    def slow():
        late.wait(HANG)
        return quick()

    broken_server.metrics = slow
    assert judge.read(GROUPS, LABELS)[1].computed_tokens is None
    late.set()
    assert judge.read(GROUPS, LABELS)[1].computed_tokens is not None


@pytest.mark.parametrize(
    ("metrics", "requests"),
    [(lambda: "vllm:num_requests_running 1.0", 1), (lambda: METRICS.format(5, 0), 3 * (1 + 3))],
    ids=["no counters", "counters that stay the same"],
)
def test_counters_that_say_nothing_are_not_asked_for_again(broken_server, metrics, requests):
    asked = []
    broken_server.metrics = lambda: asked.append(1) or metrics()
    judge = connect(broken_server)
    for _ in range(6):
        assert judge.read(GROUPS, LABELS)[1].computed_tokens is None
    assert len(asked) == requests


def test_chat_reads_are_counted_by_their_responses(chat_server):
    judge = connect(chat_server)
    assert judge.read(GROUPS, LABELS)[1].computed_tokens is None  # no usage at all
    usage = {"prompt_tokens": 30, "completion_tokens": 1}
    chat_server.usage = lambda asked: {"usage": usage}
    _, result = judge.read(GROUPS, LABELS)
    assert (result.prompt_tokens, result.computed_tokens, result.completion_tokens) == (60, None, 2)
    chat_server.usage = lambda asked: {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 16}}}
    assert judge.read(GROUPS, LABELS)[1].computed_tokens == 28


def test_receipts_add_up_to_unknown_where_one_part_is_unknown():
    known, unknown = Receipt(computed_tokens=5, floor_tokens=5), Receipt(computed_tokens=None)
    assert (known + unknown).computed_tokens is None and (known + known).computed_tokens == 10
    assert (known - unknown).computed_tokens is None


@pytest.mark.slow
@pytest.mark.vllm
def test_a_vllm_servers_receipt_is_near_the_floor(vllm_server, world_reads):
    judge = OpenAIBackend(SERVED_NAME, vllm_server)
    judge.read(GROUPS, LABELS)
    groups = [ReadGroup(group.system, f"{group.prefix} {'word ' * 200}", group.tails) for group in world_reads]
    _, result = judge.read(groups, LABELS)
    assert result.computed_tokens is not None
    assert 0 < result.computed_tokens < 1.3 * result.floor_tokens < result.prompt_tokens
