"""A scorer behind a reward server: the numbers of the scorer that is served, and a reason where there are none."""

import asyncio
import json
import pickle
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from PIL import Image as Pillow

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, Sampling, choose_backend
from checklist_rewards.backends.replies import sample_replies
from checklist_rewards.backends.servers import Settings
from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.images import image_of
from checklist_rewards.judges import LogprobJudge, PanelJudge, RemoteJudge
from checklist_rewards.judges.remote import ROWS, RewardServer
from checklist_rewards.rewards import placement
from checklist_rewards.rewards.trl import ChecklistReward
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
    return ChecklistScorer(backend=FakeBackend(knows, fails=boom, chunk_reads=1), store=False)


def remote(url: str, store: Store | bool = False, **settings) -> ChecklistScorer:
    return ChecklistScorer(backend=RewardServer(url, **FAST, **settings), store=store)


def red(*numbers: int) -> list[Sample]:
    return [Sample(["Is red?"], f"red {number}") for number in numbers]


@contextmanager
def serving(app) -> Iterator[str]:
    """The address of an app, or of a scorer, while the block runs."""
    with served(build_app(app) if isinstance(app, ChecklistScorer) else app) as address:
        yield address


def picture(colour: str | tuple[int, ...]):
    return Pillow.new("RGB", (9, 9), colour)


@pytest.fixture(scope="module")
def url():
    with serving(colours()) as address:
        yield address


@pytest.mark.parametrize("metric", ["pass", "weighted", "expected", "normalized"])
def test_every_verdict_and_every_number_is_that_of_the_scorer_that_is_served(url, metric):
    settings = dict(metric=metric, threshold=0.95, min_answered=0.2)
    here = ChecklistScorer(backend=FakeBackend(knows, fails=boom, chunk_reads=1), store=False, **settings)
    scores = ChecklistScorer(backend="remote", base_url=url, store=False, **settings).score_batch(SAMPLES)
    assert scores == here.score_batch(SAMPLES)
    assert scores[3].items[0].unanswered.startswith("backend_error")
    assert scores[0].items[0].probabilities == pytest.approx({"yes": 0.9, "no": 0.1})
    assert scores[0].items[0].method == "logprobs" and scores[0].items[0].judge == "pocket"


READ_HERE = [
    "user: What is the tag?\n\nassistant: <think>\nred\n</think>\n\nIt is <think>.",  # a transcript
    "<think>\nred\n</think>\n\nblue",  # with keep_thinking=True
    "",
]


def test_a_target_that_was_read_here_is_judged_as_it_is(url):
    """Thoughts that the client has kept stay, and an empty text is judged if the client wants that."""
    samples = [Sample(CHECKLIST, text) for text in READ_HERE]
    here = ChecklistScorer(backend=FakeBackend(knows, chunk_reads=1), store=False, no_answer="judge")
    there = ChecklistScorer(backend="remote", base_url=url, store=False, no_answer="judge")
    scores = there.score_batch(samples)
    assert scores == here.score_batch(samples) and not scores[2].no_answer
    assert [score.items[0].answer for score in scores] == ["yes", "yes", "no"]


def test_a_target_without_an_answer_is_not_sent(url):
    lowest = remote(url).score_batch([Sample(CHECKLIST, "", state="cut_in_thought")])[0]
    assert (lowest.primary_score, lowest.state, lowest.no_answer) == (0.0, "cut_in_thought", True)
    there = ChecklistScorer(backend="remote", base_url=url, store=False, no_answer="unscored")
    unscored = there.score(CHECKLIST, "")
    assert (unscored.primary_score, unscored.state, unscored.no_answer) == (None, "empty", True)


HOW_RED = [("a lot", {"value": 1}), ("not at all", {"value": 0}), ("none", {"na": True})]
OPTIONS = {"question": "How red is it?", "options": [{"label": label} | value for label, value in HOW_RED]}


def test_options_and_mass_come_through():
    backend = Labels({"A": 0.2, "B": 0.1, "C": 0.05, "yes": 0.2, "no": 0.1})
    scorer = ChecklistScorer(backend=backend, store=False, mass_floor=0.33)
    sample = Sample([OPTIONS, "Is red?"], "red")
    with serving(scorer) as address:
        (score,) = remote(address).score_batch([sample])
    assert score == scorer.score_batch([sample])[0]
    options, yes_no = score.items
    assert set(options.probabilities) == {"a lot", "not at all", "none"} and options.mass == pytest.approx(0.35)
    assert yes_no.unanswered == "off_label" and yes_no.mass == pytest.approx(0.3) and yes_no.probabilities is not None


def test_words_reasons_grades_and_votes_come_through():
    words = {"reasoning": "It is.", "answer": "yes"}
    graded = {"answers": [{"index": 1, "justification": "So it is.", "answer": "yes"}], "grade": 4}
    sample = Sample(["Is red?"], "red")
    for reply, here, there in (
        (words, {"capture_reasoning": True}, {}),
        (graded, {"mode": "quality"}, {"metric": "quality"}),
    ):
        scorer = ChecklistScorer(backend=Script(lambda messages, reply=reply: json.dumps(reply)), store=False, **here)
        with serving(scorer) as address:
            found = ChecklistScorer(backend="remote", base_url=address, store=False, **there).score_batch([sample])
        assert found == scorer.score_batch([sample]) and found[0].primary_score is not None
        assert found[0].items[0].reasoning and found[0].items[0].answer == "yes"

    judges = [LogprobJudge(Engine(name, FakeBackend(lambda *_, p=p: p))) for name, p in (("one", 0.9), ("two", 0.2))]
    panel = ChecklistScorer(judge=PanelJudge(judges, rule="majority"))
    sample = Sample(["Is red?", {"question": "Is rude?", "weight": -1}], "red")
    with serving(panel) as address:
        found = remote(address).score_batch([sample])
    assert found == panel.score_batch([sample])
    assert [vote.judge for vote in found[0].items[0].votes] == ["one", "two"]


def test_many_rows_travel_in_a_few_requests_and_are_counted(url):
    scorer, told = remote(url), []
    samples = [Sample(CHECKLIST, f"red {number}") for number in range(3 * ROWS + 1)]
    assert scorer.score_batch(samples, told.append) == colours().score_batch(samples)
    assert scorer.receipt.calls == 4 and scorer.receipt.asked == sum(told) == 3 * len(samples)
    assert scorer.score_batch([]) == []


def test_rewards_and_callers_in_many_threads_use_it(url):
    expected = colours().score_batch(SAMPLES[:3])
    reward = ChecklistReward(backend="remote", base_url=url, store=False)
    assert reward(["Say."], ["a red thing"], [CHECKLIST]) == [expected[0].primary_score]
    scorer = remote(url)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda sample: scorer.score_batch([sample])[0], SAMPLES[:3] * 5))
    assert found == expected * 5


SETTINGS = {
    "mode": "batch",
    "prompt": "judges/item",
    "votes": 3,
    "capture_reasoning": True,
    "use_logprobs": False,
    "mass_floor": 0.9,
    "temperature": 0.5,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_how_the_judge_is_asked_is_the_servers_to_say(name):
    message = f"^{name}=.* has no effect with a reward server; set it when starting `checklist-rewards serve`"
    with pytest.raises(SampleError, match=message):
        ChecklistScorer(backend="remote", base_url="http://localhost:9", **{name: SETTINGS[name]})


@pytest.mark.parametrize(
    ("base_url", "settings", "words"),
    [(url, {}, "address of a reward server") for url in (None, "localhost:8090", "openai", "ftp://x")]
    + [("http://localhost:9", {"typo": 1}, "unknown server setting 'typo'; allowed: concurrency, ")]
    + [("http://localhost:9", {"timeout": "long"}, "timeout='l")],
)
def test_what_is_no_server_is_refused_at_once(base_url, settings, words):
    with pytest.raises(ModelError, match=words):
        ChecklistScorer(backend="remote", base_url=base_url, engine_args=settings or None)


def test_a_reward_server_is_no_engine(url):
    chats = [[{"role": "user", "content": "Hi"}]]
    for use in (
        lambda: choose_backend("pocket", "remote", url),
        lambda: DirectGenerator(backend="remote", base_url=url).generate("Say."),
        lambda: sample_replies(Engine("pocket", RewardServer(url)), chats, Sampling()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ModelError, match="neither writes nor reads prompts"):
            use()


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
    *({"question": "Is blue?", "scope": scope} for scope in ("any_turn", "every_turn", "final", "any_tool_result")),
    {"question": "Is red?", "scope": "every_tool_result", "weight": -1},
    {"question": "Short?", "check": {"type": "words", "at_most": 4}, "scope": "every_turn"},
    "Is green?",
]


class SmallContext(FakeBackend):
    """Answers as [`knows`] says, and reads no prompt of more than 3,000 characters."""

    def __init__(self):
        super().__init__(lambda prefix, tail: None if len(prefix) > 3000 else knows(prefix, tail))


def scoped_sample() -> Sample:
    target = CompletionReader(part="transcript").read(EPISODE)
    return Sample(SCOPED, target.text, "Look.", messages=target.messages)


def test_items_about_single_messages_get_the_verdicts_of_a_local_judge():
    here = ChecklistScorer(backend=SmallContext(), store=False, min_answered=0.1)
    seen = []
    with serving(ChecklistScorer(backend=SmallContext(), store=False)) as address:
        there = ChecklistScorer(backend=RewardServer(address, **FAST), store=False, min_answered=0.1)
        original = there.judge.server.score
        there.judge.server.score = lambda rows, received: seen.extend(rows) or original(rows, received)
        [found], [expected] = there.score_batch([scoped_sample()]), here.score_batch([scoped_sample()])
    assert found == expected and expected.items[1].answer == "no" and expected.items[5].answer == "no"
    assert str(expected.items[-1].unanswered) == "too_long" and expected.items[0].answer == "yes"
    assert len(seen) == 1 and len(seen[0]["messages"]) == 4  # the conversation once, not once per message


def test_a_server_that_would_combine_messages_differently_gets_each_as_a_row():
    with serving(ChecklistScorer(backend=FakeBackend(knows), store=False, threshold=0.7)) as address:
        [found] = remote(address).score_batch([scoped_sample()])
    [expected] = ChecklistScorer(backend=FakeBackend(knows), store=False).score_batch([scoped_sample()])
    assert found == expected and "message" in found.items[0].reasoning


def test_nobody_there_is_one_sentence():
    scorer = ChecklistScorer(backend=RewardServer("http://127.0.0.1:9", attempts=2, pause=0.01))
    with pytest.raises(ModelError, match="no reward server answers at http://127.0.0.1:9"):
        scorer.score_batch(SAMPLES)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_the_token_is_taken_from_the_environment_or_given(monkeypatch, token):
    monkeypatch.delenv("CHECKLIST_REWARDS_TOKEN", raising=False)
    with serving(build_app(colours(), token="secret")) as address:
        with pytest.raises(ModelError, match=r"set CHECKLIST_REWARDS_TOKEN.*: this server requires the header"):
            remote(address, token=token).score_batch(SAMPLES[:1])
        expected = colours().score_batch(SAMPLES[:1])
        assert remote(address, token="secret").score_batch(SAMPLES[:1]) == expected
        monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "secret")
        assert ChecklistScorer(backend="remote", base_url=address, store=False).score_batch(SAMPLES[:1]) == expected


def test_what_is_too_large_is_sent_in_smaller_requests_down_to_the_row_to_blame():
    samples = [*red(*range(7)), Sample(["Is red?"], "red " * 500)]
    with serving(build_app(colours(), max_body=700)) as address:
        scores = remote(address).score_batch(samples)
    assert [score.primary_score for score in scores[:-1]] == [0.9] * 7
    assert scores[-1].primary_score is None and scores[-1].items[0].unanswered == "too_long"


class Picky(ChecklistScorer):
    """Takes no question about rain."""

    def check_item(self, item, where):
        if "rain" in item.question:
            raise SampleError(f"{where}: no rain.")
        super().check_item(item, where)


@pytest.mark.parametrize("good", [0, 3])
def test_a_row_that_the_server_refuses_is_unanswered_with_its_reason_and_spares_the_others(good):
    samples = red(*range(good)) + [Sample(["Is it rain?"], "x")] * 3
    with serving(Picky(backend=FakeBackend(knows), store=False)) as address:
        scores = remote(address).score_batch(samples)
    assert [score.primary_score for score in scores] == [0.9] * good + [None] * 3
    assert all(" no rain." in score.items[0].unanswered for score in scores[good:])
    assert {score.items[0].unanswered.partition(":")[0] for score in scores[good:]} == {"refused"}


class Odd:
    """A server that answers `/score` by a function over the request's rows and the number of the call, once so many
    requests were there together."""

    def __init__(self, answer, together=1):
        judge = {"judge": "odd", "identity": "1"}
        self.calls = self.most = self.under_way = 0
        app = self.app = FastAPI()

        @app.get("/health")
        async def health():
            return {"status": "ok", **judge}

        @app.post("/score")
        async def score(request: Request):
            self.calls += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            rows = (await request.json())["samples"]
            async with asyncio.timeout(HANG):
                while self.most < together:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1 * (together > 1))  # for one too many
            self.under_way -= 1
            found = answer(rows, self.calls)
            return {**judge, **found} if isinstance(found, dict) else found


def scored(rows) -> list[dict]:
    scores = colours().score_batch([Sample(row["checklist"], row["target"]) for row in rows])
    return [score.model_dump(mode="json") for score in scores]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda rows, call: PlainTextResponse("broken", 500), "backend_error"),
        (lambda rows, call: PlainTextResponse("<html>", 200), "not_json"),
        (lambda rows, call: {"scores": scored(rows)[:-1]}, "error_body"),
        (lambda rows, call: {"scores": scored(rows), "judge": None}, "error_body"),
        (lambda rows, call: {"scores": scored(rows), "identity": None}, "error_body"),
        (lambda rows, call: {"scores": [{"primary_score": 1}] * len(rows)}, "error_body"),
        (lambda rows, call: {"scores": [{**s, "items": s["items"][::-1]} for s in scored(rows)]}, "error_body"),
        (lambda rows, call: {"scores": [None] * len(rows)}, "refused"),
        (lambda rows, call: {"scores": [None] * len(rows), "errors": "none"}, "refused"),
    ],
)
def test_an_answer_that_cannot_be_used_is_no_score(answer, reason):
    with serving(Odd(answer).app) as address:
        scores = remote(address, attempts=2).score_batch(SAMPLES[:2])
    assert [score.primary_score for score in scores] == [None, None]
    assert sum((score.unanswered for score in scores), Counter()) == {reason: 6}


def test_probabilities_that_do_not_fit_the_question_are_no_answer():
    def other_labels(rows, call):
        found = scored(rows)
        found[0]["items"][1] |= {"probabilities": {"maybe": 1.0}, "answer": "maybe"}
        return {"scores": found}

    with serving(Odd(other_labels).app) as address:
        (score,) = remote(address).score_batch(SAMPLES[:1])
    assert [line.unanswered for line in score.items] == [None, "error_body", None]
    assert score.items[0].answer == "yes"


def test_what_fails_for_a_while_is_asked_again():
    def sometimes(rows, call):
        if call == 1:
            return JSONResponse({"error": "come later", "errors": []}, 429, {"Retry-After": "0.01"})
        return JSONResponse({"error": "wait", "errors": []}, 503) if call == 2 else {"scores": scored(rows)}

    odd = Odd(sometimes)
    with serving(odd.app) as address:
        assert remote(address).score_batch(SAMPLES[:2]) == colours().score_batch(SAMPLES[:2])
    assert odd.calls == 3


def test_at_most_so_many_requests_are_under_way():
    odd = Odd(lambda rows, call: {"scores": scored(rows)}, together=3)
    with serving(odd.app) as address:
        scores = remote(address, concurrency=3).score_batch(red(*range(8 * ROWS)))
    assert all(score.primary_score == 0.9 for score in scores)
    assert odd.calls == 8 and odd.most == 3


def test_a_server_that_dies_leaves_reads_unanswered():
    with serving(colours()) as address:
        scorer = ChecklistScorer(backend=RewardServer(address, attempts=2, pause=0.01), store=False)
        assert scorer.score_batch(SAMPLES[:1])[0].primary_score is not None
    (score,) = scorer.score_batch(SAMPLES[:1])
    assert score.primary_score is None and score.unanswered == {"backend_error": 3}
    reward = ChecklistReward(scorer)
    assert reward(["Say."], ["a red thing"], [CHECKLIST]) == [None]


def test_it_travels_to_other_processes_as_its_settings(url):
    scorer = remote(url, token="x", concurrency=2)
    scorer.score_batch(SAMPLES[:1])
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.judge.server.settings == Settings(concurrency=2, **FAST) and copy.judge.server.token == "x"
    assert copy.score_batch(SAMPLES) == colours().score_batch(SAMPLES)


def test_trls_asynchronous_trainer_may_take_it_into_its_child(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl.experimental.async_grpo.async_rollout_worker", ModuleType("worker"))
    monkeypatch.setattr(placement, "get_spawning_popen", object)
    reward = ChecklistReward(backend="remote", base_url=url, store=False)
    assert placement.in_process(reward.scorer.judge) is None and isinstance(reward.scorer.judge, RemoteJudge)
    copy = pickle.loads(pickle.dumps(reward))
    assert copy(["Say."], ["a red thing"], [CHECKLIST]) == reward(["Say."], ["a red thing"], [CHECKLIST])


# ----- which judge answered, and what is kept -----


class Other(FakeBackend):
    """Another model under the same name: it says no to everything."""

    def __init__(self):
        super().__init__(lambda prefix, tail: 0.1, identity="another")


def judged_by(backend=None, name="pocket", **settings) -> ChecklistScorer:
    return ChecklistScorer(name, backend=backend or FakeBackend(knows), store=False, **settings)


CHANGES = {
    "weights": lambda: judged_by(Other()),
    "mass floor": lambda: judged_by(mass_floor=0.1),
    "prompt": lambda: judged_by(prompt="judges/options"),
    "threshold": lambda: judged_by(threshold=0.7),
    "mode": lambda: judged_by(Script(lambda messages: "{}"), mode="batch"),
    "name": lambda: judged_by(name="other"),
    "a panel": lambda: ChecklistScorer(judge=PanelJudge([judged_by(name=name).judge for name in ("pocket", "other")])),
}


class Restarted:
    """A server whose application a test exchanges, as a restart on the port does. `after`: requests until then."""

    def __init__(self, first, then, after=None):
        self.first, self.then, self.after, self.scored = build_app(first), build_app(then), after, 0
        self.is_exchanged = False
        self.state = self.first.state

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/score":
            self.scored += 1
            self.is_exchanged |= self.after is not None and self.scored > self.after
        await (self.then if self.is_exchanged and scope["type"] == "http" else self.first)(scope, receive, send)


BY_PROTOCOL = {"decisions": ("weights", "prompt", "mode"), "systemone": ("weights", "mass floor", "threshold")}


@pytest.mark.parametrize(
    ("client", "change"),
    [("remote", change) for change in CHANGES]
    + [(protocol, change) for protocol, changes in BY_PROTOCOL.items() for change in changes],
)
def test_a_server_that_is_restarted_with_another_judge_is_refused_in_the_next_response(client, change):
    server = Restarted(colours(), CHANGES[change]())
    with serving(server) as address:
        if client == "remote":
            scorer = remote(address)
            message = r"has changed its judge from 'pocket' \(identity .*\) to .*not mixed"
        else:  # which names its model
            settings = {"protocol": client, "attempts": 2, "pause": 0.01}
            engine = {"backend": "decisions", "base_url": f"{address}/v1", "engine_args": settings}
            scorer = ChecklistScorer("pocket", store=False, **engine)
            message = "has changed its judge 'pocket' from identity .* to .*not mixed"
        before = scorer.score_batch(SAMPLES[:2])
        server.is_exchanged = True
        copy = pickle.loads(pickle.dumps(scorer))  # in another process, it knows the judge too
        for asking in (scorer, copy) if client == "remote" else (scorer,):
            with pytest.raises(ModelError, match=message):
                asking.score_batch(SAMPLES[:2])
        server.is_exchanged = False
        assert scorer.score_batch(SAMPLES[:2]) == before


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_no_call_contains_verdicts_of_two_judges(after, tmp_path):
    samples, store = red(*range(4 * ROWS)), Store(tmp_path / "store.sqlite")
    with serving(Restarted(colours(), judged_by(Other()), after)) as address:
        scorer = remote(address, store, concurrency=1)
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
    image = image_of(picture("khaki"))
    with serving(ChecklistScorer(backend=Seeing(), store=False)) as address:
        scorer = remote(address, Store(tmp_path / "store.sqlite"))
        for stored in (False, True):
            object.__setattr__(image, "_url", None)
            [score] = scorer.score_batch([Sample(["Is red?"], "red", "What?", images=[image])])
            assert score.primary_score == 0.75 and (image._url is None) == stored


def test_rows_with_more_images_than_a_request_may_have_are_sent_in_parts(monkeypatch):
    monkeypatch.setattr(rows, "MAX_IMAGES", 2)
    monkeypatch.setattr(rows, "MAX_IMAGE_PIXELS", 100)
    samples = [Sample(["Is red?"], "red", "What?", images=[picture((shade, 0, 0))]) for shade in range(5)]
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
    store, samples = Store(tmp_path / "store.sqlite"), red(*range(4 * ROWS))

    def interrupt(reads):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remote(url, store, concurrency=1).score_batch(samples, interrupt)
    assert len(store) == ROWS
    first = remote(url, store)
    expected = first.score_batch(samples[: 2 * ROWS + 5])
    assert first.receipt.stored == ROWS
    again = remote(url, store)
    assert again.score_batch(samples)[: 2 * ROWS + 5] == expected
    assert (again.receipt.stored, again.receipt.asked) == (2 * ROWS + 5, 2 * ROWS - 5)
    assert again.receipt.calls == 2


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
