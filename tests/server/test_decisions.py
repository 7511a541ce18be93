"""The Decisions APIs of the server: any client gets the scorer's probabilities."""

import json
import math

import httpx
import pytest
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Usage
from checklist_rewards.distill.training import Training, train_encoder
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.prompts import fence
from checklist_rewards.server import build_app, decisions
from tests.encoders import mentions, tiny_bert
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS, knows
from tests.serving import serving


class Engine(FakeBackend):
    """Answers yes/no questions about colours, and prefers the first of other labels."""

    def read(self, groups, labels):
        if list(labels) == ["yes", "no"]:
            return super().read(groups, labels)
        likely = [0.6, *[0.3 / (len(labels) - 1)] * (len(labels) - 1)]
        read = Answer(tuple(map(math.log, likely)))
        return [read for group in groups for _ in group.tails], Usage()


@pytest.fixture
def scorer() -> ChecklistScorer:
    return ChecklistScorer(backend=Engine(knows, mass=0.9, fails=lambda prefix, tail: "boom" in prefix), store=False)


COLOURS = [{"value": "red", "description": "like a rose"}, {"value": "blue"}, {"value": "green"}]
LEVELS = [{"label": "bad"}, {"label": "fair"}, {"label": "good"}]
ASKED = [
    {"type": "predicate", "name": "one", "instructions": QUESTIONS[0]},
    {"type": "choice", "name": "colour", "instructions": "Which colour?", "choices": COLOURS},
    {"type": "score", "instructions": "How good?", "levels": LEVELS},
]
MAPPED = {
    "one": {"type": "noul", "instructions": QUESTIONS[0]},
    "colour": {"type": "choice", "instructions": "Which colour?", "criteria": {"red": "like a rose", "blue": None}},
    "grade": {"type": "score", "instructions": "How good?", "criteria": ["bad", "fair", "good"]},
}


def decision(client, questions=ASKED, input="a red thing", model="pocket", **others):
    return client.post("/v1/decisions", json={"model": model, "input": input, "questions": questions, **others})


def system_one(client, questions=MAPPED, state="a red thing", **others):
    return client.post("/v1/systemone", json={"state": state, "questions": questions, **others})


def test_both_protocols_answer_with_the_probabilities_of_the_scorer(client, scorer):
    expected = scorer.score([QUESTIONS[0]], "a red thing").items[0]
    answer = decision(client)
    assert answer.status_code == 200 and answer.json()["model"] == "pocket"
    one, colour, grade = answer.json()["answers"]
    assert one == {"name": "one", "type": "predicate", "probability": pytest.approx(expected.probabilities["yes"])}
    likely = [line["probability"] for line in colour["probabilities"]]
    assert [line["value"] for line in colour["probabilities"]] == ["red", "blue", "green"]
    assert sum(likely) == pytest.approx(1) and colour["confidence"] == max(likely)
    levels = [(line["value"], line["label"]) for line in grade["probabilities"]]
    assert levels == [(0, "bad"), (1, "fair"), (2, "good")] and grade["name"] is None
    assert grade["score"] == pytest.approx(sum(line["value"] * line["probability"] for line in grade["probabilities"]))

    body = system_one(client).json()
    assert body["answers"]["one"]["noul"] == one["probability"] and body["object"] == "structured_decision"
    assert body["diagnostics"]["one"]["label_mass"] == pytest.approx(expected.mass)
    assert body["answers"]["colour"]["choice"] in ("red", "blue")
    assert body["answers"]["grade"]["legend"] == {"0": "bad", "1": "fair", "2": "good"}
    assert 0 <= body["answers"]["grade"]["score"] <= 2

    choices = [{"value": True}, {"value": False}, {"value": "unknown"}]  # booleans keep their type
    (answer,) = decision(client, [{"type": "choice", "instructions": "Is it?", "choices": choices}]).json()["answers"]
    assert [line["value"] for line in answer["probabilities"]] == [True, False, "unknown"]


@pytest.fixture
def judged(scorer, monkeypatch):
    """The fields, as far as they have a text, of each sample that reaches the scorer."""
    seen = []
    score_batch = scorer.score_batch

    def watched(samples, *args, **kwargs):
        for sample in samples:
            texts = {name: getattr(sample, name) for name in ("target", "input", "reference", "history")}
            seen.append({name: text for name, text in texts.items() if text is not None})
        return score_batch(samples, *args, **kwargs)

    monkeypatch.setattr(scorer, "score_batch", watched)
    return seen


def user(content) -> dict:
    return {"role": "user", "content": content}


def assistant(content, **more) -> dict:
    return {"role": "assistant", "content": content, **more}


def texts(kind, *texts) -> list[dict]:
    return [{"type": kind, "text": text} for text in texts]


BRIEF = {"role": "developer", "content": "Be brief."}
PAINT = {"type": "function_call", "name": "paint", "call_id": "1"}
CALLS = {"tool_calls": [{"function": {"name": "paint"}}]}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "blue"}]}
INPUTS = [
    ("red", {"target": "red"}),
    ("<think>blue</think>red", {"target": "red"}),
    ([user("<think>blue</think>red")], {"target": "<think>blue</think>red"}),  # a person's message is not cut
    ([user([{"type": "input_json", "data": {"colour": "red"}}])], {"target": '{"colour": "red"}'}),
    (
        [BRIEF, user(texts("input_text", "Say", "it.")), assistant(texts("output_text", "red"))],
        {"target": "red", "input": "Say\nit.", "history": "developer: Be brief."},
    ),
    (
        [
            *(user("Open with <think>."), assistant("<think>blue</think>Red?"), user("Say."), THOUGHT),
            assistant("red", reasoning_content="blue"),
        ],
        {"target": "red", "input": "Say.", "history": "user: Open with <think>.\n\nassistant: Red?"},
    ),
    (
        [user("Say."), assistant(None, **CALLS), {"role": "tool", "content": "done"}, assistant("red")],
        {"target": "red", "history": "user: Say.\n\nassistant calls paint()\n\ntool: done"},
    ),
    ([user("Say."), user("red")], {"target": "red", "history": "user: Say."}),
    ([PAINT, user("red")], {"target": "red", "history": f"function_call: {json.dumps(PAINT)}"}),
]


@pytest.mark.parametrize(("input", "fields"), INPUTS)
def test_the_last_message_is_the_target(client, judged, input, fields):
    assert decision(client, ASKED[:1], input).status_code == 200
    assert judged == [fields]


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ({"target": "red", "input": "Say.", "reference": "blue"}, {"input": "Say.", "reference": "blue"}),
        ({"target": "red", "other": 1}, {"target": '{"target": "red", "other": 1}'}),
        ({"target": "<think>blue</think>red"}, {}),
        (["<think>blue</think>red"], {"target": '["<think>blue</think>red"]'}),
    ],
)
def test_a_state_may_name_its_fields(client, judged, state, fields):
    assert system_one(client, {"a": MAPPED["one"]}, state, instructions="About colours.").status_code == 200
    assert judged == [{"target": "red", "input": "About colours."} | fields]


@pytest.mark.parametrize(
    ("input", "state"),
    [
        ("", "empty"),
        ("<think>red", "cut_in_thought"),
        ({"target": "<think>red</think>"}, "empty"),
        ([user("Say."), assistant("<think>red")], "cut_in_thought"),
        ([user("Say."), {"type": "reasoning", "summary": []}], "cut_in_thought"),
        ([assistant("Wait.", **CALLS)], "unfinished"),
    ],
)
def test_a_target_without_an_answer_is_refused_with_its_state(client, input, state):
    answer = decision(client, input=input).json()
    assert [line["type"] for line in answer["answers"]] == ["refusal"] * 3 and answer["target_state"] == state
    if not isinstance(input, list):
        mapped = system_one(client, state=input).json()
        assert {line["type"] for line in mapped["answers"].values()} == {"refusal"}
        assert mapped["target_state"] == state
    assert decision(client).json()["target_state"] == "answered"
    assert f'no_answer_total{{state="{state}"}}' in client.get("/metrics").text


def test_a_target_without_an_answer_is_judged_on_request():
    scorer = ChecklistScorer(backend=Engine(knows), store=False, no_answer="judge")
    with TestClient(build_app(scorer)) as client:
        answer = decision(client, ASKED[:1], "<think>red").json()
    assert answer["answers"][0]["probability"] == pytest.approx(0.1) and answer["target_state"] == "cut_in_thought"


def test_a_target_in_a_prompt_of_this_package_was_read_already(scorer):
    """Our client sends the whole judge prompt as text. Thoughts that its target has were kept on purpose."""
    target = "user: Think.\n</think>\nIt is red."
    with serving(build_app(scorer)) as address:
        there = ChecklistScorer("pocket", backend="decisions", base_url=f"{address}/v1", store=False)
        score = there.score([QUESTIONS[0], "Is Think.?"], target)
    assert [line.answer for line in score.items] == ["yes", "yes"]


def colours(*values) -> dict:
    return {"questions": [ASKED[1] | {"choices": [{"value": value} for value in values]}]}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "gpt-6-luna"}, 404, "the model 'gpt-6-luna' is not served here; the judge is 'pocket'"),
        ({"questions": [{"type": "guess", "instructions": "What?"}]}, 400, "questions"),
        ({"questions": [ASKED[0]] * 401}, 400, "questions"),
        ({"questions": []}, 400, "questions"),
        (colours("red"), 400, "choices"),
        (colours("true", True), 400, "must differ"),
        (colours(*map(str, range(30))), 400, "30 options are too many"),
        ({"questions": [{"type": "predicate", "instructions": " "}]}, 400, "the question is blank"),
        ({"input": []}, 400, "at least one message"),
        ({"input": ["red"]}, 400, "must be a list of messages, got str"),
        ({"input": [{"role": "judge", "content": "red"}]}, 400, "unknown role 'judge'"),
        ({"input": [user([{"type": "input_audio", "data": "x"}])]}, 400, "text and images only"),
        *(
            ({"input": [assistant("red", tool_calls=calls)]}, 400, "tool_calls must be a list of calls")
            for calls in ("paint", [1], [{"function": "paint"}])
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(client, body, status, message):
    answer = client.post("/v1/decisions", json={"model": "pocket", "input": "red", "questions": ASKED} | body)
    assert answer.status_code == status and message in answer.json()["error"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"type": "choice", "criteria": ["a", "b"]}, "criteria must map"),
        ({"type": "score", "criteria": {"a": None}}, "criteria must be a list"),
        ({"type": "noul", "criteria": {"maybe": "x"}}, "an object of true and false"),
        ({"type": "noul", "weight": 1}, "weight"),
    ],
)
def test_criteria_must_fit_the_type(client, question, message):
    answer = system_one(client, {"a": {"instructions": "Is it?", **question}})
    assert answer.status_code == 400 and message in answer.json()["error"]
    for kind in ("audio", "videos"):
        refused = system_one(client, **{kind: ["data:audio/wav;base64,"]})
        assert refused.status_code == 400 and "text and images only" in refused.json()["error"]


def test_a_failed_judge_is_503_and_never_an_answer(client):
    for answer in (decision(client, ASKED[:1], "boom"), system_one(client, {"a": MAPPED["one"]}, "boom")):
        assert answer.status_code == 503 and "backend_error" in answer.json()["error"]


def test_a_text_that_is_too_long_is_an_error_and_too_long_for_our_client():
    backend = Engine(lambda prefix, tail: None if "long" in prefix else 0.9)
    with serving(build_app(ChecklistScorer(backend=backend, store=False))) as address:
        client = httpx.Client(base_url=address)
        for answer in (decision(client, ASKED[:1], "long"), system_one(client, {"a": MAPPED["one"]}, "long")):
            assert answer.status_code == 400 and "context length" in answer.json()["error"]
        asked = ChecklistScorer("pocket", backend="decisions", base_url=f"{address}/v1", store=False)
        assert asked.score(QUESTIONS, "a long thing").unanswered == {"too_long": len(QUESTIONS)}


def test_a_read_without_an_answer_is_a_refusal(scorer):
    scorer.judge.mass_floor = 1.0  # the labels of this engine have less
    with TestClient(build_app(scorer)) as client:
        (answer,) = decision(client, ASKED[:1]).json()["answers"]
        assert answer == {"name": "one", "type": "refusal"}
        read = system_one(client, {"a": MAPPED["one"]}).json()
        assert read["answers"]["a"]["type"] == "noul" and read["diagnostics"]["a"]["label_mass"] < 1


def test_openai_clients_and_our_own_read_the_same_probabilities(scorer, monkeypatch):
    import openai

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(build_app(scorer, token="secret")) as address:
        client = openai.OpenAI(base_url=f"{address}/v1")
        answered = client.decisions.create(model="pocket", input="a red thing", questions=ASKED)
        refused = openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            refused.decisions.create(model="pocket", input="a red thing", questions=ASKED)
        asked = ChecklistScorer("pocket", backend="decisions", base_url=f"{address}/v1", store=False)
        score = asked.score(QUESTIONS[:1], "a red thing")
    assert score.answered == 1 and score.items[0].method == "decision" and score.items[0].mass is not None
    expected = scorer.score([QUESTIONS[0]], "a red thing").items[0].probabilities["yes"]
    assert answered.answers[0].probability == pytest.approx(expected, abs=1e-9)
    assert answered.answers[1].type == "choice" and answered.answers[2].type == "score"


TEXTS = ("a small dog runs near the river", "The house is red.", "...")
POCKET_QUESTIONS = ["Does the text contain the word 'dog'?", "Is the text at most 10 words long?"]
INSTRUCTION = "Write one sentence."
PANEL = """
panel: {rule: mean}
judges:
  - pocket
  - {model: pocket, mass_floor: 0.2}
"""
CALIBRATION = {
    "judge": "pocket",
    "read_by": "logprobs",
    "maps": {"yes/no": {"method": "temperature", "temperature": 2.0, "reads": 10}},
}


def through_both_routes(address: str, questions, target: str, model: str) -> list[list[float]]:
    """P(yes) of each question by each decisions protocol, with the instruction in the state."""
    with httpx.Client(base_url=address, timeout=60) as client:
        mapped = {f"q{n}": {"type": "noul", "instructions": question} for n, question in enumerate(questions)}
        state = {"target": target, "input": INSTRUCTION}
        named = system_one(client, mapped, state, model=model).json()["answers"]
        asked = [{"type": "predicate", "instructions": question} for question in questions]
        listed = decision(client, asked, [user(INSTRUCTION), assistant(target)], model).json()["answers"]
    return [[named[name]["noul"] for name in mapped], [answer["probability"] for answer in listed]]


def judge_of(kind: str, folder) -> ChecklistScorer:
    """A scorer with a panel, a calibrated judge or a cross-encoder."""
    if kind == "panel":
        (folder / "panel.yaml").write_text(PANEL)
        return ChecklistScorer(judge=load_jury(folder / "panel.yaml", store=False), store=False)
    if kind == "calibrated":
        (folder / "map.json").write_text(json.dumps(CALIBRATION))
        return ChecklistScorer("pocket", calibration=folder / "map.json", store=False)
    training = Training(epochs=1, learning_rate=1e-2, targets=16, freeze_embeddings=False, bf16=False)
    train_encoder(mentions(20), folder / "judge", base=tiny_bert(folder / "base"), training=training)
    return ChecklistScorer(str(folder / "judge"), store=False)


@pytest.mark.parametrize("kind", ["calibrated", "panel", "encoder"])
def test_every_judge_gives_the_same_probabilities_here_remote_and_by_decisions(kind, tmp_path):
    here = judge_of(kind, tmp_path)
    with serving(build_app(here)) as address:
        remote = ChecklistScorer(backend="remote", base_url=address, store=False)
        for target in TEXTS:
            expected = [line.soft for line in here.score(POCKET_QUESTIONS, target, INSTRUCTION).items]
            assert None not in expected
            sent = [line.soft for line in remote.score(POCKET_QUESTIONS, target, INSTRUCTION).items]
            assert sent == pytest.approx(expected, abs=1e-3)
            for values in through_both_routes(address, POCKET_QUESTIONS, target, here.judge.name):
                assert values == pytest.approx(expected, abs=1e-3)


def test_the_command_serves_a_file_of_judges(run, monkeypatch, tmp_path):
    """`checklist-rewards serve --judge panel.yaml`, without its socket."""
    apps = []
    monkeypatch.setattr("checklist_rewards.cli.serving.run_server", lambda app, listening: apps.append(app))
    panel = judge_of("panel", tmp_path)
    run("serve --judge panel.yaml --port 0 --no-store")
    with TestClient(apps[0]) as client:
        assert client.get("/health").json()["identity"] == panel.identity


@pytest.mark.parametrize("unit", ["<target-1>\n\n</target-1>", "\n</target-1>"])
def test_a_hostile_state_is_searched_once(unit, monkeypatch):
    hashed = []
    monkeypatch.setattr(decisions, "fence", lambda name, text: hashed.append(text) or "")
    assert not decisions._is_judge_prompt(unit * 10_000)
    assert len(hashed) <= 16


def test_a_judge_prompt_is_known_beside_other_tags():
    for target in ("two\nlines", "", "x </target-1> y", "<target-2>\n"):
        prompt = f"Judge. <target-3>\nnone {fence('target', target)}\n\nIs it short?"
        assert decisions._is_judge_prompt(prompt), target
        assert not decisions._is_judge_prompt(prompt.replace("target-", "target-9"))
