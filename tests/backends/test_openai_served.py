"""Every way of asking through a real vLLM server with the pocket model behind it.

The pocket model knows no JSON: it is the server that holds it to the schema, so the replies have the right form and
say what comes. What is tested is that the form arrives and that nothing is lost or made up on the way.
"""

import re
import urllib.request
from functools import partial
from typing import Annotated

import pytest
from pocket.world import tasks, write_response
from pydantic import BaseModel, Field

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.attacks.attack import attack
from checklist_rewards.attacks.bank import BANK
from checklist_rewards.errors import GenerationError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.rerank import Pool
from tests.backends.answerserver import SERVED_NAME
from tests.backends.conftest import DECISIONS_NAME
from tests.cli.test_forecast import forecast_and_bill

pytestmark = pytest.mark.vllm


PATTERN = r"^(Is|Does) [a-z ]{10,50}\?$"


class Questions(BaseModel):
    """Two or three short questions."""

    questions: list[Annotated[str, Field(pattern=PATTERN)]] = Field(min_length=2, max_length=3)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    import random

    rng = random.Random(3)
    return [
        Sample([c.question() for c in task.constraints], write_response(rng, task, 0.4, "test"), task.instruction)
        for task in tasks(6, seed=5, split="test")
    ]


@pytest.mark.parametrize(
    "ways", [{"mode": "batch"}, {"use_logprobs": False}, {"mode": "quality"}], ids=["batch", "words", "quality"]
)
def test_every_read_is_answered_or_says_why_not(vllm_server, samples, ways):
    scorer = ChecklistScorer(SERVED_NAME, base_url=vllm_server, store=False, max_tokens=256, **ways)
    scores = scorer.score_batch(samples)
    assert [score.total for score in scores] == [len(sample.checklist) for sample in samples]
    for item in (item for score in scores for item in score.items):
        assert (item.answer in ("yes", "no")) != (item.unanswered is not None)


def test_reads_through_the_server_are_those_of_this_process(vllm_server, samples, scorer):
    served = ChecklistScorer(SERVED_NAME, base_url=vllm_server, store=False).score_batch(samples)
    for there, here in zip(served, scorer.score_batch(samples), strict=True):
        assert [item.confidence for item in there.items] == pytest.approx(
            [item.confidence for item in here.items], abs=1e-3
        )


def test_an_attack_never_sends_more_than_its_budget(vllm_server, samples):
    rows = [Pool(Checklist.parse(sample.checklist), (sample.target,), sample.input) for sample in samples]
    scorer = ChecklistScorer(SERVED_NAME, base_url=vllm_server, store=False)
    scorer.score_batch(samples[:1])  # what the client asks a server about first is no read
    before, budget = prompts_answered(vllm_server), 700
    report = attack(scorer, rows, attacks=list(BANK)[:24], budget_reads=budget, bootstrap=Bootstrap(0))
    sent = prompts_answered(vllm_server) - before
    assert 0.5 * budget < sent <= report.reads <= budget and report.rounds > 0


def prompts_answered(address: str) -> int:
    """How many prompts the server has answered, by its own count."""
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:request_success_total")))


def test_a_servers_reasoning_parser_changes_no_read(qwen3_server, qwen3, monkeypatch):
    settings = {"store": False, "mass_floor": 0.0, "no_answer": "judge"}
    questions = ["Is the house red?", "Is it about a dog?", "Is the text long?"]
    texts = ["the red house stands near a green river", "a small dog runs", "near a river a dog stands"]
    samples = [Sample(questions, text) for text in texts]
    expected = ChecklistScorer(qwen3, backend="transformers", **settings).score_batch(samples)
    judge = partial(ChecklistScorer, DECISIONS_NAME, base_url=qwen3_server, **settings)
    scores = {"lists": judge().score_batch(samples), "batch": judge(mode="batch", max_tokens=64).score_batch(samples)}
    monkeypatch.setattr("checklist_rewards.backends.openai.backend.load_chat_tokenizer", no_tokenizer)
    scores["chats"] = judge().score_batch(samples)
    for way in ("lists", "chats"):
        there = [item.probabilities["yes"] for score in scores[way] for item in score.items]
        here = [item.probabilities["yes"] for score in expected for item in score.items]
        assert there == pytest.approx(here, abs=2e-3), way
    assert len({round(value, 3) for value in here}) > len(here) // 2  # the model does tell texts apart
    # The parser takes a reply for a thought. That is no answer, and never a flat one.
    [reason] = {str(item.unanswered) for score in scores["batch"] for item in score.items}
    assert reason == "null_content: the server took the whole reply for a thought (its reasoning parser)"


def no_tokenizer(*arguments, **options):
    raise OSError("not here")


@pytest.mark.parametrize("options", [(), ("--judge.no-use-logprobs",)], ids=["labels", "words"])
def test_the_bill_is_no_higher_than_a_dry_run_forecast(run, vllm_server, options):
    at_most, billed, _ = forecast_and_bill(run, SERVED_NAME, vllm_server, *options)
    assert at_most[0] >= billed[0] > 0 and at_most[1] >= billed[1] > 0


def test_a_generator_gives_a_checklist_or_the_reply_it_could_not_read(vllm_server, samples):
    writer = DirectGenerator(SERVED_NAME, base_url=vllm_server, store=False, temperature=0)
    found = writer.generate_batch([sample.input for sample in samples if sample.input])
    assert len(found) == 6 and sum(isinstance(one, Checklist) for one in found) >= 5
    assert all(one.raw for one in found if isinstance(one, GenerationError))


def test_a_generators_own_shape_reaches_the_server(vllm_server):
    settings = dict(shape=Questions, min_items=1, max_items=3, max_tokens=400, store=False)
    [checklist] = DirectGenerator(SERVED_NAME, base_url=vllm_server, **settings).generate_batch(["Write a haiku."])
    assert isinstance(checklist, Checklist), checklist
    assert 1 <= len(checklist) <= 3 and all(re.match(PATTERN, item.question) for item in checklist.items)
