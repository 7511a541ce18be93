"""Decisions of the servers of others, in the shapes that they send (`tests/decisionservers.py`)."""

import asyncio

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.backends.decisions import backend as decisions_backend
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion, SystemOne
from checklist_rewards.backends.openai.client import run
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.probe import probe
from tests.decisionservers import CHATS, DECIDES, LABEL_MASS, LLAMA_CPP, OLLAMA, OPENROUTER, SERVERS, SGLANG


def options(*labels: str) -> list[dict]:
    return [{"label": label, "value": number / (len(labels) - 1)} for number, label in enumerate(labels)]


CHECKLIST = [
    ChecklistItem(question="Is it fine (yes)?"),
    ChecklistItem(question="Is it red (no)?"),
    ChecklistItem(question="Which colour (blue)?", options=options("red", "blue")),
    ChecklistItem(question="How good (fair)?", options=options("bad", "fair", "good")),
]
RIGHT = ["yes", "no", "blue", "fair"]
REJECTED = ChecklistItem(question="Which (0)?", options=[{"label": str(number), "value": 0.0} for number in range(60)])
"""More options than the imitated llama.cpp allows, without an order."""


@pytest.fixture
def address(fault_server, monkeypatch):
    """The address of a server by its name."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    base = fault_server.removesuffix("v1")
    monkeypatch.setattr(decisions_backend, "_OPENROUTER_DECISIONS", f"{base}{OPENROUTER}")
    return lambda server: OPENROUTER if server == OPENROUTER else f"{base}{server}"


def scorer(url: str, model: str = DECIDES) -> ChecklistScorer:
    return ChecklistScorer(model, backend="decisions", base_url=url, store=False, engine_args={"pause": 0.01})


@pytest.mark.parametrize("server", SERVERS)
def test_all_kinds_of_items(server, address):
    judge = scorer(address(server))
    score = judge.score(CHECKLIST, "A text.", "Write a text.")
    assert [line.answer for line in score.items] == RIGHT and {line.method for line in score.items} == {"decision"}
    assert [line.mass for line in score.items] == pytest.approx([LABEL_MASS.get(server)] * 4)
    assert judge.receipt.prompt_tokens == 200
    assert judge.receipt.computed_tokens == (190 if server == OPENROUTER else None)


@pytest.mark.parametrize("server", [LLAMA_CPP, OPENROUTER])
def test_a_model_that_answers_no_decisions_is_one_sentence_with_the_most_telling_status(server, address):
    status = "status 501: This model is not a decision model" if server == LLAMA_CPP else "status 404"
    judge = scorer(address(server), CHATS)
    with pytest.raises(ModelError, match=f"does not answer decisions for 'chatter' .*{status}.*backend='openai'"):
        judge.score_batch([Sample(CHECKLIST, f"Text {number}.") for number in range(50)])

    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    assert run(tasks()) == 0  # the other requests are cancelled


def test_a_server_that_rejects_everything_is_one_sentence_after_eight_inputs(address):
    judge = scorer(address(OLLAMA), CHATS)
    scores = judge.score_batch([Sample(CHECKLIST, f"Text {number}.") for number in range(7)])
    assert {line.unanswered.reason for score in scores for line in score.items} == {"backend_error"}
    with pytest.raises(ModelError, match=r"rejects every question to 'chatter' \(backend_error: status 400: .*supp"):
        judge.score_batch([Sample(CHECKLIST, f"Text {number}.") for number in range(8)])


def test_rejected_questions_of_a_model_that_answers_others_stay_unanswered(address):
    judge = scorer(address(LLAMA_CPP))
    score = judge.score([*CHECKLIST, REJECTED], "A text.")
    assert [line.answer for line in score.items] == [*RIGHT, None]
    assert "too many options (60)" in score.items[4].unanswered
    scores = judge.score_batch([Sample([REJECTED], f"Text {number}.") for number in range(9)])
    assert all(score.answered == 0 for score in scores)


def test_a_text_that_is_too_long_for_ollama(address):
    scores = scorer(address(OLLAMA)).score_batch([Sample(CHECKLIST, text) for text in ("A text.", "word " * 20_000)])
    assert [score.answered for score in scores] == [4, 0] and scores[1].unanswered == {"too_long": 4}


@pytest.mark.parametrize(("server", "mass"), [(LLAMA_CPP, None), (SGLANG, 0.62)])
def test_a_probe_needs_no_label_mass(server, mass, address):
    report = probe(Engine(DECIDES, "decisions", address(server)))
    assert report.answered == len(report.lines) and report.mass == (mass and pytest.approx(mass))


def test_openrouter_has_one_format(address):
    with pytest.raises(ModelError, match="protocol='systemone' has no effect on OpenRouter"):
        DecisionsBackend(DECIDES, "openrouter", protocol="systemone")


@pytest.mark.parametrize(("mass", "is_read"), [(1.0000004, True), (1.2, False)])
def test_rounded_probabilities_are_a_distribution(mass, is_read):
    labels = tuple(f"option {number}" for number in range(20))
    rounded = dict.fromkeys(labels, 0.05) | {labels[0]: 0.01, labels[1]: 0.02}  # 0.93 together
    reply = {"answers": {"q1": {"type": "choice", "probabilities": rounded, "x_label_mass": mass}}}
    read = SystemOne().answers(reply, {"q1": DecisionQuestion("choice", "Which?", labels)})["q1"]
    assert (read is not None and read.mass_reported) == is_read
