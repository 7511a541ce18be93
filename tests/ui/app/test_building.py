"""The view Build: stages one by one, refiners with before and after, and a preview that asks no model."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.checks import CHECKS
from checklist_rewards.generators import DeductiveGenerator
from tests.fakes import FakeBackend
from tests.generators import test_deductive as deductive
from tests.generators import test_inductive as inductive
from tests.generators import test_interactive as interactive
from tests.generators.fakes import Replies
from tests.ui.app.conftest import colours, judging_of

DIMENSIONS = {
    "dimensions": [{"name": "colour", "definition": "It has a colour.", "seed_questions": ["Is it red?"]}],
}


@pytest.fixture
def writer():
    return Replies(deductive.usual)


@pytest.fixture
def judging(folder, writer):
    return judging_of(folder, FakeBackend(colours), Engine("writer", writer))


def ok(client, path, **body):
    answer = client.post(f"/api/build/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client, path, **body):
    answer = client.post(f"/api/build/{path}", json=body)
    assert answer.status_code == (200 if path in ("plan", "preview") else 400), answer.text  # 200: asked while typing
    return answer.json()["error"]


def test_the_choices_describe_their_own_forms(client):
    found = client.get("/api/build").json()
    assert [one["name"] for one in found["pipelines"]] == ["checkeval", "interacteval", "feedback"]
    assert found["pipelines"][0]["settings"]["properties"]["augmentation"]["enum"][0] == "both"
    for one in (*found["pipelines"], *found["refiners"]):
        assert not {"model", "store", "prompt", "embedder", "allow_code"} & set(one["settings"]["properties"])
    checks = {one["name"]: one["form"] for one in found["checks"]}
    assert list(checks) == [name for name, kind in CHECKS.items() if kind.offered]
    assert checks["keywords"]["required"] == ["words"] and "type" not in checks["keywords"]["properties"]
    assert checks["all"]["properties"]["checks"] == {"type": "json"}


@pytest.mark.parametrize(
    ("pipeline", "rule", "source", "settings"),
    [
        ("checkeval", lambda: deductive.usual, deductive.SOURCE, {"augmentation": "both"}),
        ("feedback", lambda: inductive.usual, inductive.SOURCE, {}),
        ("interacteval", interactive.script, interactive.SOURCE, {}),
    ],
)
def test_every_stage_is_run_on_its_own(client, writer, pipeline, rule, source, settings):
    writer.reply = rule()
    given = {"pipeline": pipeline, "settings": settings, "source": source.model_dump()}
    plan = ok(client, "plan", pipeline=pipeline, settings=settings)
    assert plan["source"]["properties"].keys() == source.model_dump().keys()
    draft = None
    for calls, stage in enumerate(plan["stages"], start=1):
        found = ok(client, "stage", **given, stage=stage, draft=draft)
        assert len(writer.sampled) == calls and found["asked"] and found["kept"]
        assert found["draft"].keys() == plan["draft"]["properties"].keys()
        draft = found["draft"]
    checklist = ok(client, "checklist", **given, draft=draft)
    assert len(checklist["items"]) == found["questions"] and checklist["model"] == "writer"
    assert checklist["source"].startswith(pipeline)


def test_a_stage_that_is_stopped_ends_at_its_next_reply(client, writer):
    counts = []

    def reply(text, sampling):
        counts.append(client.get("/api/build/progress?run=one").json())
        assert client.post("/api/build/stop", json={"run": "one"}).json() == {"stopped": True}
        return deductive.usual(text, sampling)

    writer.reply = reply
    body = {"pipeline": "checkeval", "source": deductive.SOURCE.model_dump(mode="json"), "stage": "seed"}
    assert refused(client, "stage", **body, run="one") == "the stage was cancelled; the replies so far are stored."
    assert counts == [{"done": 0, "total": 1}]
    assert client.get("/api/build/progress?run=one").json() == {}


def test_the_next_stage_uses_the_edited_output(client, writer):
    given = {"pipeline": "checkeval", "source": DIMENSIONS}
    found = ok(client, "stage", **given, stage="seed")
    assert found["draft"] == {"pools": [{"dimension": "colour", "seeds": ["Is it red?"], "added": []}]}
    assert writer.sampled == []  # given seeds cost nothing
    found["draft"]["pools"][0]["seeds"] = ["Is it blue?"]
    ok(client, "stage", **given, stage="elaborate", draft=found["draft"])
    assert "- Is it blue?" in writer.sampled[-1][0][0] and "Is it red?" not in writer.sampled[-1][0][0]


def test_a_stage_that_fails_is_one_sentence(client, writer):
    given = {"pipeline": "checkeval", "source": DIMENSIONS}
    draft = ok(client, "stage", **given, stage="seed")["draft"]
    writer.reply = lambda text, sampling: "I cannot."
    sentence = refused(client, "stage", **given, stage="elaborate", draft=draft)
    assert sentence.startswith("checkeval: the stage 'elaborate' failed. colour:")
    assert "no question left" in refused(
        client, "stage", **given, stage="elaborate", draft={"pools": [{"dimension": "colour"}]}
    )


IMAGE_FILE = json.dumps([{"role": "user", "content": [{"type": "image", "path": "/tmp/a.png"}]}])
CHECKEVAL = {"pipeline": "checkeval"}
SELECT = {"refiner": "selector", "checklist": ["Is it?"]}
CODE = [{"question": "Does it run?", "check": {"type": "code"}}]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("plan", {}, "pipeline must be the name of a pipeline"),
        ("plan", {"pipeline": "tick"}, "'tick' has no stages"),
        ("plan", {**CHECKEVAL, "settings": {"model": "org/other"}}, "'model' is not a setting"),
        ("plan", {**CHECKEVAL, "settings": {"max_items": 0}}, "max_items=0 is not allowed"),
        ("stage", {**CHECKEVAL, "stage": "seed", "source": {}}, "Dimensions: dimensions is missing"),
        ("stage", {**CHECKEVAL, "stage": "best", "source": DIMENSIONS}, "stage='best' is not known"),
        ("stage", {**CHECKEVAL, "stage": "seed", "source": DIMENSIONS, "writer": "org/any"}, "is not a writer that"),
        ("refine", {**SELECT, "refiner": "best"}, "unknown refiner 'best'"),
        ("refine", {**SELECT, "settings": {"max_items": 0}}, "max_items=0"),
        ("refine", {**SELECT, "checklist": []}, "the checklist is empty"),
        ("refine", {**SELECT, "settings": {"embedder": "x"}}, "not a setting"),
        ("refine", {**SELECT, "refiner": "check_admission", "settings": {"allow_code": True}}, "not a"),
        ("refine", {**SELECT, "refiner": "unit_tester"}, "needs samples"),
        ("preview", {"samples": [{}]}, "sample 1 must have a text as 'target'"),
        ("preview", {"samples": [{"target": "x", "answers": [3]}]}, "answers must be items"),
        ("preview", {"samples": [{"target": "x", "input": IMAGE_FILE}]}, "must be a data URL"),
        ("preview", {"checklist": [{"question": "Is it?", "weight": 0}]}, "every weight is 0"),
        ("preview", {"checklist": CODE, "samples": [{"target": "1"}]}, "--allow-code"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(client, writer, path, body, sentence):
    assert sentence in refused(client, path, **({"checklist": ["Is it?"]} if path == "preview" else {}) | body)
    assert writer.sampled == []


def test_refining_tells_what_became_of_every_item(client, writer):
    writer.reply = lambda text, sampling: json.dumps({"same": True, "question": "Is the text short?"})
    checklist = [
        {"question": "Is the text short?", "weight": 3},
        "Is this text short?",
        "Does it name a river?",
    ]
    found = ok(client, "refine", refiner="deduplicator", checklist=checklist, settings={"threshold": 0.8})
    assert found["items"] == [{"question": "Is the text short?", "weight": 2.0}, "Does it name a river?"]
    assert [one["state"] for one in found["before"]] == ["changed", "dropped", "kept"]
    assert found["before"][1]["reason"] == "it was merged into 'Is the text short?'"
    assert found["after"] == [
        {"question": "Is the text short?", "state": "changed", "reason": "weight 3 → 2"},
        {"question": "Does it name a river?", "state": "kept", "reason": ""},
    ]


def test_tags_say_why_an_item_is_dropped_and_what_could_not_be_assessed(client, writer):
    def rule(text, sampling):
        if "Alan" in text:
            return json.dumps({"reason": "one author", "general": False, "specific": True})
        return inductive.TAGGED if "short" in text else "hm"

    writer.reply = rule
    found = ok(client, "refine", refiner="tagger", checklist=["Is it by Alan?", "Is it short?", "Is it clear?"])
    assert [one["state"] for one in found["before"]] == ["dropped", "kept", "kept"]
    assert found["before"][0]["reason"] == "it is not general: one author"
    assert found["after"][0]["reason"] == "" and found["after"][1]["reason"]
    writer.reply = lambda text, sampling: json.dumps({"reason": "no", "general": False, "specific": False})
    assert "no item is left of 1" in refused(client, "refine", refiner="tagger", checklist=["Is it ours?"])


def test_unit_tests_use_the_samples_and_the_judge(client, writer):
    writer.reply = lambda text, sampling: json.dumps({"response": "a grey thing"})
    samples = [{"target": "a red thing", "input": "Name a colour."}]
    found = ok(client, "refine", refiner="unit_tester", checklist=["Is it red?", "Is it blue?"], samples=samples)
    assert [one["state"] for one in found["before"]] == ["kept", "kept"]
    assert found["after"][0]["reason"] == "" and "none of 1 samples passes it" in found["after"][1]["reason"]


CHECKED = {"question": "Is it one word?", "check": {"type": "words", "exactly": 1}}


def read(client, checklist, target):
    answer = client.post("/api/judge", json={"target": target, "checklist": checklist})
    return [json.loads(line) for line in answer.text.splitlines()][-1]["score"]


def test_weights_change_the_score_without_a_read_and_an_item_with_another_text_is_not_read_yet(client, judging):
    score = read(client, ["Is it red?", "Is it blue?"], "a red thing")
    backend = judging.judge.backend
    asked = len(backend.asked)

    def preview(*checklist):
        sample = {"target": "a red thing", "answers": score["items"]}
        [found] = ok(client, "preview", checklist=checklist, samples=[sample])["scores"]
        return found

    heavier = [{"question": "Is it red?", "weight": 3}, "Is it blue?", CHECKED]
    found = preview(*heavier)
    assert len(backend.asked) == asked
    expected = ChecklistScorer(backend=FakeBackend(colours), store=False).score(heavier, "a red thing")
    assert found["primary_score"] == expected.primary_score != score["primary_score"]
    assert [line["answer"] for line in found["items"]] == ["yes", "no", "no"]
    found = preview("Is it red?", "Is it green?")
    assert [line["unanswered"] for line in found["items"]] == [None, "not_read"]
    assert (found["lower"], found["upper"]) == (0.45, 0.95)
    named = {"id": Checklist.parse(["Is it red?"]).items[0].id, "question": "Is it green?"}
    assert preview(named)["items"][0]["unanswered"] == "not_read"


def test_a_sample_without_an_answer_is_scored_without_a_read(client, judging):
    """Neither the judge nor a check is asked; and if it is to be judged, it is not read yet."""
    checklist = ["Is it red?", CHECKED]
    asked = len(judging.judge.backend.asked)
    score = read(client, checklist, "<think>a red")
    assert (score["primary_score"], score["state"]) == (0.0, "cut_in_thought")
    sample = {"target": "<think>a red", "answers": score["items"]}
    [found] = ok(client, "preview", checklist=checklist, samples=[sample])["scores"]
    assert (found["primary_score"], found["state"], found["items"]) == (0.0, "cut_in_thought", score["items"])
    settings = {"no_answer": "judge"}
    [found] = ok(client, "preview", checklist=checklist, samples=[sample], settings=settings)["scores"]
    assert [line["unanswered"] for line in found["items"]] == ["not_read", None]
    assert len(judging.judge.backend.asked) == asked


def test_a_pipeline_of_the_project_with_stages_is_listed(client, folder):
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "mine.yaml").write_text("name: mine\ngenerator: {kind: deductive, max_tokens: 77}\n")
    (folder / "pipelines" / "broken.yaml").write_text("generator: {kind: none}\n")
    names = [one["name"] for one in client.get("/api/build").json()["pipelines"]]
    assert names[-1] == "pipelines/mine.yaml"
    stages = list(DeductiveGenerator("pocket", filtering=True, store=False).order)
    for pipeline in ("checkeval", "pipelines/mine.yaml"):
        assert ok(client, "plan", pipeline=pipeline, settings={"filtering": True})["stages"] == stages
