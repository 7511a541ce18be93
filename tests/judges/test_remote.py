"""A scorer behind a reward server: the numbers of the scorer that is served, and a reason where there are none."""

import json
import pickle
import sys
import threading
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import ModuleType

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from PIL import Image as Pillow

from checklist_rewards import ChecklistItem, ChecklistScorer, Sample
from checklist_rewards.backends import Engine, Sampling, choose_backend
from checklist_rewards.backends.replies import sample_replies
from checklist_rewards.backends.servers import Settings
from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.images import image_of
from checklist_rewards.judges import LogprobJudge, PanelJudge
from checklist_rewards.judges.remote import ROWS, RewardServer
from checklist_rewards.rewards import placement
from checklist_rewards.scores.scales import ordinal_scale
from checklist_rewards.server import build_app, rows
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.judges.fakes import Labels, Script
from tests.rewards.integrations.test_queue import knows
from tests.serving import serving as served
from tests.test_images import Seeing

CHECKLIST = [
    "Is red?",
    {"question": "Is blue?", "weight": -2, "category": "colour"},
    {"question": "Is green?", "weight": 0, "required": True, "id": "mine"},
]
TEXTS = ["a red thing", "blue and green", "", "boom", "off"]
SAMPLES = [Sample(CHECKLIST, text, "Say.", "a reference", "user: Hello") for text in TEXTS]
FAST = dict(pause=0.01, patience=0.5)


def boom(prefix: str, tail: str) -> bool:
    return "boom" in prefix


def colours() -> ChecklistScorer:
    return judged_by(FakeBackend(knows, fails=boom, chunk_reads=1))


def judged_by(backend=None, **settings) -> ChecklistScorer:
    return ChecklistScorer(backend=backend or FakeBackend(knows), store=False, **settings)


def remote(url: str, store: Store | bool = False, server=None, **settings) -> ChecklistScorer:
    return ChecklistScorer(backend=RewardServer(url, **FAST | (server or {})), store=store, **settings)


def red(*numbers: int) -> list[Sample]:
    return [Sample(["Is red?"], f"red {number}") for number in numbers]


def serving(app):
    """The address of an app, or of a scorer, while the block runs."""
    return served(build_app(app) if isinstance(app, ChecklistScorer) else app)


@pytest.fixture(scope="module")
def url():
    with serving(colours()) as address:
        yield address


def test_every_verdict_and_every_number_is_that_of_the_scorer_that_is_served(url):
    """Also of texts that were read here: thoughts that the client has kept stay, and it may want empty ones judged."""
    settings = dict(metric="weighted", threshold=0.95, min_answered=0.2, no_answer="judge", store=False)
    thought = Sample(CHECKLIST, "<think>\nred\n</think>\n\nIt is <think>.")
    here = ChecklistScorer(backend=FakeBackend(knows, fails=boom, chunk_reads=1), **settings)
    scores = ChecklistScorer(backend="remote", base_url=url, **settings).score_batch([*SAMPLES, thought])
    assert scores == here.score_batch([*SAMPLES, thought])
    assert scores[3].items[0].unanswered.startswith("backend_error")
    assert scores[0].items[0].probabilities == pytest.approx({"yes": 0.9, "no": 0.1})
    assert scores[0].items[0].method == "logprobs" and scores[0].items[0].judge == "pocket"
    assert [scores[place].items[0].answer for place in (2, -1)] == ["no", "no"] and not scores[2].no_answer


TONE = {"question": "How red is it?", "options": [{"label": "very", "value": 1}, {"label": "not", "value": 0}]}
GRADED = {"answers": [{"index": 1, "justification": "So it is.", "answer": "yes"}], "grade": 4}


def panel_of(*voters: tuple[str, float]) -> PanelJudge:
    judges = [LogprobJudge(Engine(name, FakeBackend(lambda *_, p=p: p))) for name, p in voters]
    return PanelJudge(judges, rule="majority")


def test_options_reasons_grades_and_votes_come_through():
    reasoned = Script(lambda messages: '{"reasoning": "It is.", "answer": "yes"}')
    masses = Labels({"A": 0.3, "B": 0.05, "yes": 0.2, "no": 0.1})
    of_tie = ["Is red?", {"question": "Is rude?", "weight": -1}]  # a tie depends on the sign of the weight
    lines = []
    for scorer, checklist in (
        (judged_by(masses, mass_floor=0.33), [TONE, "Is red?"]),
        (judged_by(reasoned, capture_reasoning=True), ["Is red?"]),
        (judged_by(Script(lambda messages: json.dumps(GRADED)), mode="quality"), ["Is red?"]),
        (ChecklistScorer(judge=panel_of(("one", 0.9), ("two", 0.2))), of_tie),
    ):
        with serving(scorer) as address:
            client = remote(address, metric=scorer.aggregation.primary_metric)
            found = client.score(checklist, "red")
        assert found == scorer.score(checklist, "red")
        lines += found.items
    options, off_label, reason, justification, red, rude = lines
    assert options.mass == pytest.approx(0.35) and off_label.unanswered == "off_label"
    assert (reason.reasoning, justification.reasoning) == ("It is.", "So it is.")
    assert [vote.judge for vote in red.votes] == ["one", "two"] and red.answer != rude.answer


def test_callers_in_many_threads_use_it(url):
    scorer = remote(url)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda sample: scorer.score_batch([sample])[0], SAMPLES[:3] * 5))
    assert found == colours().score_batch(SAMPLES[:3]) * 5


def test_how_the_judge_is_asked_is_the_servers_to_say():
    settings = dict(mode="batch", prompt="judges/item", votes=3, capture_reasoning=True, use_logprobs=False)
    for name, value in (settings | dict(mass_floor=0.9, temperature=0.5)).items():
        message = f"^{name}=.* has no effect with a reward server; set it when starting `checklist-rewards serve`"
        with pytest.raises(SampleError, match=message):
            ChecklistScorer(backend="remote", base_url="http://localhost:9", **{name: value})


@pytest.mark.parametrize(
    ("base_url", "settings", "words"),
    [
        (None, None, "address of a reward server"),
        ("localhost:8090", None, "address of a reward server"),
        ("http://localhost:9", {"typo": 1}, "unknown server setting 'typo'; allowed: concurrency, "),
    ],
)
def test_what_is_no_server_is_refused_at_once(base_url, settings, words):
    with pytest.raises(ModelError, match=words):
        ChecklistScorer(backend="remote", base_url=base_url, engine_args=settings)


def test_a_reward_server_is_no_engine(url):
    chats = [[{"role": "user", "content": "Hi"}]]
    for use in (
        lambda: choose_backend("pocket", "remote", url),
        lambda: DirectGenerator(backend="remote", base_url=url).generate("Say."),
        lambda: sample_replies(Engine("pocket", RewardServer(url)), chats, Sampling()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ModelError, match="neither writes nor reads prompts"):
            use()


def test_the_address_may_be_that_of_the_decisions_apis(url):
    assert ChecklistScorer(backend="remote", base_url=f"{url}/v1/", store=False).score_batch(SAMPLES[:1])


def test_a_model_that_is_named_must_be_the_servers(url):
    with pytest.raises(ModelError, match="judges with 'pocket', not 'org/judge'"):
        ChecklistScorer("org/judge", backend="remote", base_url=url, store=False).score_batch(SAMPLES[:1])
    named = ChecklistScorer("org/judge", backend=FakeBackend(knows), store=False)
    with serving(named) as address:
        scorer = ChecklistScorer("org/judge", backend="remote", base_url=address, store=False)
        assert scorer.score_batch(SAMPLES[:1]) == named.score_batch(SAMPLES[:1])


EPISODE = [
    {"role": "assistant", "content": "A red thing. "},
    {"role": "tool", "name": "look", "content": "blue"},
    {"role": "assistant", "content": "A green thing. " * 400},
    {"role": "assistant", "content": "Now in blue."},
]
SCOPED = [
    *({"question": "Is blue?", "scope": scope} for scope in ("any_turn", "every_turn", "any_tool_result")),
    {"question": "Short?", "check": {"type": "words", "at_most": 4}, "scope": "every_turn"},
    "Is green?",
]


@pytest.mark.parametrize("threshold", [0.6, 0.7], ids=["as here", "another threshold"])
def test_items_about_single_messages_get_the_verdicts_of_a_local_judge(threshold):
    """The conversation is sent once, and not once per message, to a server that combines messages as is done here."""

    def judge():  # which reads no prompt of more than 3,000 characters
        return FakeBackend(lambda prefix, tail: None if len(prefix) > 3000 else knows(prefix, tail))

    target, sent = CompletionReader(part="transcript").read(EPISODE), []
    sample = Sample(SCOPED, target.text, "Look.", messages=target.messages)
    with serving(judged_by(judge(), threshold=threshold)) as address:
        there = remote(address, min_answered=0.1)
        original = there.judge.server.score
        there.judge.server.score = lambda rows, received: sent.extend(rows) or original(rows, received)
        found = there.score_batch([sample])
    expected = judged_by(judge(), min_answered=0.1).score_batch([sample])
    assert [line.answer for line in expected[0].items] == ["yes", "no", "yes", "no", None]
    assert found == expected and (len(sent) == 1) == (threshold == 0.6)


def test_the_token_is_taken_from_the_environment_or_given(monkeypatch):
    monkeypatch.delenv("CHECKLIST_REWARDS_TOKEN", raising=False)
    with serving(build_app(colours(), token="secret")) as address:
        with pytest.raises(ModelError, match=r"set CHECKLIST_REWARDS_TOKEN.*: this server requires the header"):
            remote(address).score_batch(red(1))
        assert remote(address, server={"token": "secret"}).score_batch(red(1))[0].primary_score == 0.9
        monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "secret")
        assert remote(address).score_batch(red(1))[0].primary_score == 0.9


def test_what_is_too_large_is_sent_in_smaller_requests_down_to_the_row_to_blame(monkeypatch):
    monkeypatch.setattr("checklist_rewards.server.app.MAX_BODY", 700)
    samples = [*red(*range(7)), Sample(["Is red?"], "red " * 500)]
    with serving(colours()) as address:
        scores = remote(address).score_batch(samples)
    assert [score.primary_score for score in scores[:-1]] == [0.9] * 7
    assert scores[-1].primary_score is None and scores[-1].items[0].unanswered == "too_long"


@pytest.mark.parametrize("good", [0, 3])
def test_a_row_that_the_server_refuses_is_unanswered_with_its_reason_and_spares_the_others(good):
    too_many = ChecklistItem(question="How red?", options=ordinal_scale(101))
    with serving(colours()) as address:
        scores = remote(address).score_batch(red(*range(good)) + [Sample([too_many], "x")] * 3)
    assert [score.primary_score for score in scores] == [0.9] * good + [None] * 3
    reasons = {score.items[0].unanswered for score in scores[good:]}
    assert {reason.reason for reason in reasons} == {"refused"} and all("101 options" in reason for reason in reasons)


def odd(answer) -> FastAPI:
    """A server that answers `/score` by a function over the request's rows."""
    app, judge = FastAPI(), {"judge": "odd", "identity": "1"}

    @app.get("/health")
    async def health():
        return {"status": "ok", **judge}

    @app.post("/score")
    async def score(request: Request):
        found = answer((await request.json())["samples"])
        return {**judge, **found} if isinstance(found, dict) else found

    return app


def scored(rows, labels=None) -> list[dict]:
    """The scores of rows; `labels`: the probabilities of each item instead of its own."""
    scores = colours().score_batch([Sample(row["checklist"], row["target"]) for row in rows])
    found = [score.model_dump(mode="json") for score in scores]
    for line in chain.from_iterable(score["items"] for score in found if labels):
        line |= {"probabilities": labels, "answer": next(iter(labels))}
    return found


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda rows: PlainTextResponse("broken", 500), "backend_error"),
        (lambda rows: {"scores": scored(rows)[:-1]}, "error_body"),
        (lambda rows: {"scores": scored(rows), "identity": None}, "error_body"),
        (lambda rows: {"scores": scored(rows, {"maybe": 1.0})}, "error_body"),
        (lambda rows: {"scores": [{"primary_score": 1}] * len(rows)}, "error_body"),
        (lambda rows: {"scores": [{**s, "items": s["items"][::-1]} for s in scored(rows)]}, "error_body"),
        (lambda rows: {"scores": [None] * len(rows), "errors": "none"}, "refused"),
    ],
)
def test_an_answer_that_cannot_be_used_is_no_score(answer, reason):
    with serving(odd(answer)) as address:
        scores = remote(address, server={"attempts": 2}).score_batch(SAMPLES[:2])
    assert [score.primary_score for score in scores] == [None, None]
    assert sum((score.unanswered for score in scores), Counter()) == {reason: 6}


def test_what_fails_for_a_while_is_asked_again():
    passing = [
        JSONResponse({"error": "come later", "errors": []}, 429, {"Retry-After": "0.01"}),
        JSONResponse({"error": "wait", "errors": []}, 503),
    ]
    with serving(odd(lambda rows: passing.pop() if passing else {"scores": scored(rows)})) as address:
        assert remote(address).score_batch(SAMPLES[:2]) == colours().score_batch(SAMPLES[:2])
    assert not passing


def test_no_more_requests_are_under_way_than_concurrency_allows():
    together = threading.Barrier(3)  # of the threads that a route without `async` runs in
    app, under_way, most = FastAPI(), [], []

    @app.post("/score")
    def score(body: dict):
        under_way.append(1)
        together.wait(HANG)
        most.append(len(under_way))
        together.wait(HANG)
        under_way.pop()
        return {"judge": "odd", "identity": "1", "scores": scored(body["samples"])}

    app.get("/health")(lambda: {"status": "ok", "judge": "odd", "identity": "1"})
    with serving(app) as address:
        scores = remote(address, server={"concurrency": 3}).score_batch(red(*range(6 * ROWS)))
    assert all(score.primary_score == 0.9 for score in scores) and most == [3] * 6


def test_a_server_that_dies_leaves_reads_unanswered_and_one_that_never_was_is_an_error():
    with serving(colours()) as address:
        scorer = remote(address, server={"attempts": 2})
        assert scorer.score_batch(SAMPLES[:1])[0].primary_score is not None
    [score] = scorer.score_batch(SAMPLES[:1])
    assert score.primary_score is None and score.unanswered == {"backend_error": 3}
    with pytest.raises(ModelError, match="no reward server answers at http://127.0.0.1:9"):
        remote("http://127.0.0.1:9", server={"attempts": 2}).score_batch(SAMPLES)


def test_it_travels_to_other_processes_as_its_settings(url, monkeypatch):
    scorer = remote(url, server={"token": "x", "concurrency": 2})
    scorer.score_batch(SAMPLES[:1])
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.judge.server.settings == Settings(concurrency=2, **FAST) and copy.judge.server.token == "x"
    assert copy.score_batch(SAMPLES) == colours().score_batch(SAMPLES)
    # So TRL's asynchronous trainer may take it into its child.
    monkeypatch.setitem(sys.modules, "trl.experimental.async_grpo.async_rollout_worker", ModuleType("worker"))
    monkeypatch.setattr(placement, "get_spawning_popen", object)
    assert placement.in_process(scorer.judge) is None


# ----- which judge answered, and what is kept -----


class Other(FakeBackend):
    """Another model under the same name: it says no to everything."""

    def __init__(self):
        super().__init__(lambda prefix, tail: 0.1, identity="another")


OTHER_JUDGES = {
    "weights": lambda: judged_by(Other()),
    "mass floor": lambda: judged_by(mass_floor=0.1),
    "prompt": lambda: judged_by(prompt="judges/options"),
    "threshold": lambda: judged_by(threshold=0.7),
    "mode": lambda: judged_by(Script(lambda messages: "{}"), mode="batch"),
    "a panel": lambda: ChecklistScorer(judge=panel_of(("pocket", 0.9), ("other", 0.9))),
}


def test_another_judge_has_another_identity():
    identities = {make().identity for make in (colours, *OTHER_JUDGES.values())}
    assert len(identities) == 1 + len(OTHER_JUDGES) and colours().identity == colours().identity


class Restarted:
    """A server whose application a test exchanges, as a restart on the port does. `after`: requests until then."""

    def __init__(self, first, then, after=None):
        self.first, self.then, self.after, self.scored = build_app(first), build_app(then), after, 0
        self.is_exchanged, self.state = False, self.first.state

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/score":
            self.scored += 1
            self.is_exchanged |= self.after is not None and self.scored > self.after
        await (self.then if self.is_exchanged and scope["type"] == "http" else self.first)(scope, receive, send)


def test_a_server_that_is_restarted_with_another_judge_is_refused_in_the_next_response():
    server = Restarted(colours(), OTHER_JUDGES["threshold"]())
    with serving(server) as address:
        scorer = remote(address)
        before = scorer.score_batch(SAMPLES[:2])
        server.is_exchanged = True
        copy = pickle.loads(pickle.dumps(scorer))  # in another process, it knows the judge too
        for asking in (scorer, copy):
            message = r"has changed its judge from 'pocket' \(identity .*\) to .*not mixed"
            with pytest.raises(ModelError, match=message):
                asking.score_batch(SAMPLES[:2])
        server.is_exchanged = False
        assert scorer.score_batch(SAMPLES[:2]) == before


@pytest.mark.parametrize("protocol", ["decisions", "systemone"])
def test_so_it_is_behind_a_protocol_that_names_its_model(protocol):
    server = Restarted(colours(), judged_by(Other()))
    with serving(server) as address:
        settings = {"protocol": protocol, "attempts": 2, "pause": 0.01}
        engine = {"backend": "decisions", "base_url": f"{address}/v1", "engine_args": settings}
        scorer = ChecklistScorer("pocket", store=False, **engine)
        scorer.score_batch(SAMPLES[:2])
        server.is_exchanged = True
        with pytest.raises(ModelError, match="has changed its judge 'pocket' from identity .* to .*not mixed"):
            scorer.score_batch(SAMPLES[:2])


@pytest.mark.parametrize("after", [0, 2])
def test_no_call_contains_verdicts_of_two_judges(after, tmp_path):
    samples, store = red(*range(4 * ROWS)), Store(tmp_path / "store.sqlite")
    with serving(Restarted(colours(), judged_by(Other()), after)) as address:
        scorer = remote(address, store, server={"concurrency": 1})
        with pytest.raises(ModelError, match="has changed its judge"):
            scorer.score_batch(samples)
    with serving(colours()) as address:
        scores = remote(address, store).score_batch(samples)
    assert {score.primary_score for score in scores} == {0.9}


def test_the_same_judge_after_a_restart_goes_on():
    with serving(Restarted(colours(), colours(), 1)) as address:
        scorer = remote(address)
        assert scorer.score_batch(SAMPLES[:1]) == scorer.score_batch(SAMPLES[:1])


def test_images_are_encoded_for_rows_that_are_sent_and_not_for_stored_ones(tmp_path):
    image = image_of(Pillow.new("RGB", (9, 9), "khaki"))
    with serving(ChecklistScorer(backend=Seeing(), store=False)) as address:
        scorer = remote(address, Store(tmp_path / "store.sqlite"))
        for stored in (False, True):
            object.__setattr__(image, "_url", None)
            [score] = scorer.score_batch([Sample(["Is red?"], "red", "What?", images=[image])])
            assert score.primary_score == 0.75 and (image._url is None) == stored


def test_rows_with_more_images_than_a_request_may_have_are_sent_in_parts(monkeypatch):
    monkeypatch.setattr(rows, "MAX_IMAGES", 2)
    monkeypatch.setattr(rows, "MAX_IMAGE_PIXELS", 100)
    samples = [
        Sample(["Is red?"], "red", "What?", images=[Pillow.new("RGB", (9, 9), (shade, 0, 0))]) for shade in range(5)
    ]
    with serving(ChecklistScorer(backend=Seeing(), store=False)) as address:
        assert [score.primary_score for score in remote(address).score_batch(samples)] == [0.75] * 5


def test_the_judge_is_named_in_every_response(url):
    labels = json.dumps({"checklist": ["Is red?"]})
    predicate = {"type": "predicate", "name": "a", "instructions": "Is red?"}
    noul = {"type": "noul", "instructions": "Is red?"}
    bodies = {
        "/score": {"samples": [{"checklist": ["Is red?"], "target": "red"}]},
        "/reward": {"query": ["? red"], "prompts": ["? "], "labels": [labels]},
        "/v1/decisions": {"model": "pocket", "input": "red", "questions": [predicate]},
        "/v1/systemone": {"model": "pocket", "state": "red", "questions": {"a": noul}},
    }
    named = set()
    for path, body in bodies.items():
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            found = json.load(answer)
        named.add((found.get("judge", found.get("model")), found["identity"]))
        assert found.get("system_fingerprint", found["identity"]) == found["identity"]
    with urllib.request.urlopen(f"{url}/health") as answer:
        health = json.load(answer)
    assert named == {(health["judge"], health["identity"])}


def test_answers_of_a_reward_server_are_stored_as_they_arrive_and_only_what_is_missing_is_asked(url, tmp_path):
    store, samples, told = Store(tmp_path / "store.sqlite"), red(*range(4 * ROWS)), []

    def interrupt(reads):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remote(url, store, server={"concurrency": 1}).score_batch(samples, interrupt)
    assert len(store) == ROWS
    again = remote(url, store)
    assert again.score_batch(samples, told.append) == colours().score_batch(samples) and sum(told) == 4 * ROWS
    assert (again.receipt.stored, again.receipt.asked, again.receipt.calls) == (ROWS, 3 * ROWS, 3)


def test_failures_are_not_stored_and_neither_are_answers_of_another_judge(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    for scorer, value in ((colours(), 0.9), (judged_by(Other()), 0.1)):
        with serving(scorer) as address:
            good, failed = remote(address, store).score_batch([Sample(["Is red?"], text) for text in ("red", "boom")])
        assert good.primary_score == pytest.approx(value)
        assert (failed.primary_score is None) == (value == 0.9)
    assert len(store) == 3


def test_the_size_of_a_weight_changes_no_stored_answer_and_its_sign_does(url, tmp_path):
    scorer = remote(url, Store(tmp_path / "store.sqlite"))
    for weight in (1, 3, 0.5, -1, -2):
        scorer.score([{"question": "Is red?", "weight": weight}, {"question": "Is blue?"}], "red")
    assert scorer.receipt.calls == 2
    short = {"question": "Is it short?", "check": {"type": "words", "at_most": 3}}  # so the row weighs nothing
    assert scorer.score([short, {"question": "Is red?", "weight": 0}], "red").answered == 2
