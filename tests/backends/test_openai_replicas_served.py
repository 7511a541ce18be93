"""Three replicas of a served judge: where reads go, and what a replica that fails costs."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, ReadGroup
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.backend import list_keys
from checklist_rewards.cli import app
from checklist_rewards.errors import ModelError, NoServerError
from tests.backends.replicaservers import FAULTS, HANGS, MODEL, OTHER_MODEL, REFUSED, VLLM_CARD, replicas
from tests.conftest import HANG
from tests.jsonl import write_jsonl

QUESTIONS = ["Is it fine (yes)?", "Is it red (no)?", "Is it short (yes)?", "Is it long (no)?"]
WAYS = {"chats": (OpenAIBackend, None), "lists": (OpenAIBackend, VLLM_CARD), "decisions": (DecisionsBackend, None)}
FAST = {"pause": 0.005, "timeout": HANG, "attempts": 3}


def samples(count: int, about: str = "") -> list[Sample]:
    return [Sample(QUESTIONS, f"Text {about}{number}.") for number in range(count)]


def scorer_of(backend, store=False) -> ChecklistScorer:
    return ChecklistScorer(MODEL, backend=backend, store=store, mass_floor=0)


TEXTS = [sample.target for sample in samples(24)]


def text_of(body: dict) -> str:
    """The text that a request is about."""
    return str(body.get("messages") or body.get("state") or body.get("prompt"))


@pytest.fixture(params=WAYS)
def fleet(request):
    """Three replicas, and a function that connects to them."""
    kind, card = WAYS[request.param]
    with replicas(3, card) as servers:
        yield servers, lambda **settings: kind(MODEL, [server.address for server in servers], **FAST | settings)


def test_all_requests_about_a_text_go_to_one_replica_and_every_replica_gets_some(fleet):
    servers, connect = fleet
    scorer = scorer_of(connect())
    for _ in range(2):
        scores = scorer.score_batch(samples(24))
        assert all(score.answered == len(QUESTIONS) for score in scores)
    assert all(server.received for server in servers)
    if "prompt" not in servers[0].received[-1]:  # lists of tokens do not show their texts
        received = ["\n".join(map(text_of, server.received)) for server in servers]
        assert [sum(text in texts for texts in received) for text in TEXTS] == [1] * 24


@pytest.mark.parametrize("fault", FAULTS)
def test_a_replica_that_dies_costs_no_read_and_returns_when_it_answers(fleet, fault):
    servers, connect = fleet
    scorer = scorer_of(connect(concurrency=4, timeout=0.5 if fault == HANGS else HANG))
    scorer.score_batch(samples(12))
    dying = max(servers, key=lambda server: len(server.received))
    dying.dies_of, dying.dies_after = fault, len(dying.received) + 1
    check(scorer.score_batch(samples(24, "during ")), 24)
    assert dying.fault == fault
    dying.recovers()
    before = len(dying.received)
    check_until(scorer, lambda: len(dying.received) - before >= 3)


def check_until(scorer, is_used) -> None:
    for number in range(1000):
        check(scorer.score_batch(samples(8, f"after {number} ")), 8)
        if is_used():
            return
    raise AssertionError("the replica gets no requests")


def check(scores, count):
    assert len(scores) == count
    assert all([item.unanswered for item in score.items] == [None] * len(QUESTIONS) for score in scores)
    if scores[0].items[0].method != "logprobs":  # answers of lists are made up
        assert all([item.answer for item in score.items] == ["yes", "no", "yes", "no"] for score in scores)


@pytest.mark.parametrize("fleet", ["lists"], indirect=True)
def test_the_replica_with_another_model_is_named(fleet):
    servers, connect = fleet
    servers[1].fault = OTHER_MODEL
    with pytest.raises(ModelError, match=f"the server at {servers[1].address} serves .'another'.*not 'valid'"):
        connect()
    servers[1].fault, servers[2].card = None, VLLM_CARD | {"max_model_len": 512}
    with pytest.raises(ModelError, match=f"same model; the server at {servers[2].address} reports .* the others"):
        connect()


@pytest.mark.parametrize("fleet", ["chats"], indirect=True)
def test_a_replica_that_is_absent_at_the_start_is_used_once_it_answers(fleet, caplog):
    servers, connect = fleet
    servers[2].breaks(REFUSED)
    scorer = scorer_of(connect())
    assert f"no server responds at {servers[2].address}" in caplog.text
    check(scorer.score_batch(samples(12)), 12)
    servers[2].recovers()
    check_until(scorer, lambda: servers[2].received)
    for server in servers:
        server.breaks(REFUSED)
    with pytest.raises(NoServerError, match="no OpenAI-compatible server responds at http.*, http"):
        connect()


def test_a_replica_that_returns_with_other_weights_gets_no_read():
    with replicas(2, VLLM_CARD) as servers:
        scorer = scorer_of(OpenAIBackend(MODEL, [server.address for server in servers], **FAST))
        check(scorer.score_batch(samples(12)), 12)
        servers[0].breaks(REFUSED)
        check(scorer.score_batch(samples(12, "during ")), 12)
        servers[0].card = VLLM_CARD | {"root": "another/checkpoint"}
        servers[0].recovers()
        before = len(servers[0].received)
        for number in range(20):
            check(scorer.score_batch(samples(4, f"after {number} ")), 4)
        assert len(servers[0].received) == before


def test_stored_reads_do_not_depend_on_the_addresses(tmp_path):
    with replicas(5) as servers:
        addresses = [server.address for server in servers]
        for some in (addresses[:2], addresses[2:]):
            scorer = scorer_of(Engine(MODEL, base_url=some, settings=FAST).load(), tmp_path / "store.sqlite")
            check(scorer.score_batch(samples(4)), 4)
        assert scorer.receipt.stored == 4 * len(QUESTIONS) and not any(server.received for server in servers[2:])


def test_the_address_of_one_server_stays_part_of_its_identity(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert Engine("gpt", "openai").identity == "gpt@https://api.openai.com/v1"
    assert Engine("judge", base_url="http://one/v1/").identity == "judge@http://one/v1"
    assert Engine("judge", base_url=["http://one/v1"]).identity == "judge@http://one/v1"
    assert Engine("judge", base_url=["http://one/v1", "http://two/v1"]).identity == "judge@replicas"
    assert Engine("judge", base_url="http://two/v1, http://one/v1/").identity == "judge@replicas"


@pytest.mark.parametrize(
    ("backend", "base_url", "message"),
    [
        ("auto", "http://one/v1,openai", "combines 'openai' with other addresses; give it alone"),
        ("auto", "http://one/v1,http://one/v1/", "lists http://one/v1 twice"),
        ("auto", ["http://one/v1", "two"], "'two' is not a URL"),
        ("auto", [], "must be a URL or a list of URLs"),
        ("auto", [8000], "must be a URL or a list of URLs"),
        ("remote", ["http://one", "http://two"], "a reward server has one; give the replicas of its judge to"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(backend, base_url, message):
    named = {} if backend == "remote" else {"model": "judge"}
    with pytest.raises(ModelError, match=message):
        ChecklistScorer(**named, backend=backend, base_url=base_url, store=False).score(QUESTIONS, "Text.")


def test_computed_tokens_are_added_up_over_the_replicas():
    with replicas(3, VLLM_CARD) as servers:
        backend = OpenAIBackend(MODEL, [server.address for server in servers], **FAST)
        scorer = scorer_of(backend)
        scorer.score_batch(samples(3, "first "))
        known = scorer.receipt
        scorer.score_batch(samples(30))
        spent = scorer.receipt.prompt_tokens - known.prompt_tokens
        computed = scorer.receipt.computed_tokens - known.computed_tokens
        assert spent > 0 and computed == pytest.approx(spent / 2, abs=3)
        servers[1].breaks(REFUSED)
        for number in range(4):
            scorer.score_batch(samples(30, f"during {number} "))
        assert scorer.receipt.computed_tokens is None  # the counters of a replica that is down are missing
        servers[1].recovers()
        for number in range(1000):
            scorer = scorer_of(backend)
            scorer.score_batch(samples(8, f"after {number} "))
            if scorer.receipt.computed_tokens is not None:
                break
        assert scorer.receipt.computed_tokens is not None


def test_requests_name_their_prefix_for_a_router():
    with replicas(1) as [router]:
        scorer_of(OpenAIBackend(MODEL, router.address, **FAST)).score_batch(samples(3))
        by_text: dict[str, set[str]] = {}
        for body, headers in zip(router.received, router.headers, strict=True):
            [number] = re.findall(r"Text (\d)\.", text_of(body))
            by_text.setdefault(number, set()).add(headers["X-Session-ID"])
        assert sorted(by_text) == ["0", "1", "2"] and all(len(keys) == 1 for keys in by_text.values())
        assert len(set.union(*by_text.values())) == 3


@pytest.mark.parametrize(
    "options", [["--judge", "judges.yaml"], ["--model", MODEL, "--base-url", "ADDRESSES"]], ids=len
)
def test_a_file_of_judges_and_the_command_line_take_several_addresses(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "rows.jsonl", *({"target": text, "checklist": QUESTIONS} for text in TEXTS))
    with replicas(3) as servers:
        addresses = [server.address for server in servers]
        (tmp_path / "judges.yaml").write_text(yaml.safe_dump({"model": MODEL, "base_url": addresses}))
        given = [option.replace("ADDRESSES", ",".join(addresses)) for option in options]
        done = CliRunner().invoke(app, ["score", "rows.jsonl", "-o", "out.jsonl", "--no-store", *given])
        assert done.exit_code == 0, done.output
        scored = [json.loads(line)["checklist_score"] for line in Path("out.jsonl").read_text().splitlines()]
        assert [score["pass_rate"] for score in scored] == [0.5] * 24
        assert all(server.received for server in servers)
        assert sum(len(server.received) for server in servers) == 24 * len(QUESTIONS)


def test_from_ten_replicas_on_the_completions_of_enough_prompts_have_one_key_in_every_client():
    def keys(text: str, replicas: int) -> list[str]:
        groups = [ReadGroup("Be fair.", f"Prompt {n}. {text}", ("Is it?",), start=bytes([n])) for n in range(10)]
        return list_keys(groups, replicas)

    assert keys("One.", 10) == keys("Another.", 10) and len(set(keys("One.", 10))) == 10
    for count in (9, 11):  # few replicas, or fewer prompts than replicas
        assert not set(keys("One.", count)) & set(keys("Another.", count))
