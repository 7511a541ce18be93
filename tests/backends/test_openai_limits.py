"""A limit of a server is not a missing feature: it is asked within the limit, and a fall back to words is reported."""

import itertools
import json
import logging
import math

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Engine, ReadGroup, Sampling, pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.wire import label_of
from checklist_rewards.files.store import Store
from checklist_rewards.judges.logprob import LogprobJudge
from tests.backends.answers import LABELS, ONE, p_yes, user
from tests.backends.answerserver import MODEL, answering, chat, listed, refusal
from tests.fakes import FakeBackend

LIKELY = {"yes": 0.6, "no": 0.25, " yes": 0.1, "Sure": 0.02, "Well": 0.01} | {f"x{n}": 0.0005 for n in range(15)}
P_YES = 0.7 / 0.95
TOP = {token: math.log(p) for token, p in LIKELY.items()}


def entries(top):
    return [{"token": token, "logprob": logprob} for token, logprob in top.items()]


def as_chat(top):
    return {"content": [{"token": "yes", "logprob": TOP["yes"], "top_logprobs": entries(top)}]}


SHAPES = {
    "chat": as_chat,
    "chat with a mapping": lambda top: {"content": [{"token": "yes", "top_logprobs": dict(top)}]},
    "completions": lambda top: {"tokens": ["yes"], "token_logprobs": [TOP["yes"]], "top_logprobs": [dict(top)]},
    "completions with lists": lambda top: {"tokens": ["yes"], "top_logprobs": [entries(top)]},
    "one position": lambda top: {"top_logprobs": entries(top)},
    "no content": lambda top: {"content": None, "top_logprobs": [dict(top)]},
    "a list": lambda top: as_chat(top)["content"],
    "ids with bytes": lambda top: as_chat({}) | {
        "content": [{
            "top_logprobs": [
                {"token": f"token_id:{n}", "bytes": list(token.encode()), "logprob": p}
                for n, (token, p) in enumerate(top.items())
            ]
        }]
    },
    "vLLM's own": lambda top: {
        "top_logprobs": [{str(n): {"logprob": p, "decoded_token": t} for n, (t, p) in enumerate(top.items())}]
    },
}  # fmt: skip
WORDINGS = {
    "OpenAI": "Invalid value for 'top_logprobs': must be less than or equal to {n}.",
    "OpenAI, new": "Invalid 'top_logprobs': integer above maximum value. Expected a value <= {n}, but got {given}.",
    "OpenAI, old": "{given} is greater than the maximum of {n} - 'top_logprobs'",
    "vLLM": "Requested sample logprobs of {given}, which is greater than max allowed: {n}",
    "TGI": "Input validation error: `top_n_tokens` must be >= 0 and <= {n}. Given: {given}",
    "pydantic": "[{{'loc': ('body', 'top_logprobs'), 'msg': 'Input should be less than or equal to {n}', 'input': "
    "{given}, 'ctx': {{'le': {n}}}}}]",
    "range": "top_logprobs must be between 0 and {n}",
    "brackets": "The valid range of top_logprobs is [0, {n}].",
    "exclusive": "the request has a logprobs value of {given} but the supported range is from 1 (inclusive) to {next} "
    "(exclusive)",
    "below": "top_logprobs must be less than {next}",
    "Azure": "This model does not support more than {n} top log probs (gpt-4.1-mini 2025-04-14).",
}


def likeliest(number: int) -> dict[str, float]:
    return dict(itertools.islice(TOP.items(), number))


def limited(most, wording):
    """The answers of a server that allows `most` likely tokens."""

    def respond(path, body):
        if "logprobs" not in body:
            return chat("yes")
        given = body["top_logprobs"]
        if given > most:
            return refusal(wording.format(n=most, given=given, next=most + 1))
        return chat("yes", as_chat(likeliest(given)))

    return respond


def share(read: Answer) -> float:
    return p_yes([read])[0]


def read_of(server, **settings):
    judge = OpenAIBackend(MODEL, server.base_url, pause=0.01, **settings)
    [read], _ = judge.read(ONE, LABELS)
    return judge, read


@pytest.mark.parametrize("most", [0, 1, 3, 5, 8, 16, 19, 20])
@pytest.mark.parametrize("wording", WORDINGS)
def test_fewer_likely_tokens_give_the_exact_probability_or_one_warning(wording, most, caplog):
    with answering(limited(most, WORDINGS[wording])) as server:
        judge, read = read_of(server)
        asked = len(server.asked)
        judge.read(ONE, LABELS)
    assert len(server.asked) == asked + 1  # what the server allows is remembered
    words = [record for record in caplog.records if "read as the words" in record.message]
    if most >= 3:
        assert share(read) == pytest.approx(P_YES) and not words
        assert judge._limits.top == min(most, 20)
    else:
        assert (read.label, read.logprobs, len(words)) == ("yes", None, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_list_gives_the_same_probability_or_the_reason_why_it_has_none(shape):
    def read(top, written="yes"):
        return label_of(chat(written, SHAPES[shape](top))[1]["choices"][0], LABELS)

    assert share(read(TOP)) == pytest.approx(P_YES)
    for nothing in (None, -math.inf, "-inf", -9999.0):
        if shape != "vLLM's own":
            assert share(read(TOP | {"No": nothing})) == pytest.approx(P_YES)
    for found, why in [
        *((read(TOP | {"x1": logit}), "--logprobs-mode raw_logprobs") for logit in (math.nan, math.inf, 0.02, 12.5)),
        # So from vLLM 0.32 with the V1 model runner, in a step with reads by token id: the written token, and token 0.
        *((read({word: -0.33, "<|pad|>": -9999.0}, word), "one kind of reads") for word in ("yes", "No", "Sure")),
    ]:
        assert (found.logprobs, found.label, found.unanswered.reason) == (None, None, "backend_error")
        assert why in found.unanswered


@pytest.mark.parametrize("values", [(5.0, 3.0), (-0.1, -0.2), (math.nan, -1.0), (-1.0, 0.011)])
def test_a_list_read_of_logits_is_unanswered(values):
    def respond(path, body):
        if "prompt" in body:
            return 200, {"choices": listed(body["prompt"], body["logprob_token_ids"], values)}
        return chat("yes", as_chat({"yes": 9.0, "no": 7.0, "Sure": 16.0}))

    with answering(respond, {"root": str(pocket_dir()), "max_model_len": 2048}) as server:
        scorer = ChecklistScorer(MODEL, backend=OpenAIBackend(MODEL, server.base_url), store=False)
        [item] = scorer.score(["Is it short?"], "Hello.").items
    assert item.answer is None and "--logprobs-mode" in item.unanswered


def test_an_engine_that_returns_logits_is_unanswered_and_not_stored(tmp_path):
    class Logits(FakeBackend):
        def read(self, groups, labels):
            answers, usage = super().read(groups, labels)
            return [Answer((-3.0, 0.011)) for _ in answers], usage

    store = Store(tmp_path / "store.sqlite")
    score = ChecklistScorer("m", backend=Logits(lambda p, t: 0.5), store=store).score(["Is it?"], "Hi.")
    assert "--logprobs-mode" in score.items[0].unanswered and len(store) == 0


def test_logits_that_an_earlier_version_stored_are_read_again(tmp_path):
    store, question = Store(tmp_path / "store.sqlite"), ["Is it?"]
    ChecklistScorer("m", backend=FakeBackend(lambda p, t: 0.5), store=store).score(question, "Hi.")
    [key] = [row[0] for row in store._connection().execute("SELECT key FROM answers")]
    store._write("UPDATE answers SET value = ? WHERE key = ?", [('{"logprobs": [4.0, 1.0]}', key)])
    judge = LogprobJudge(Engine("m", backend := FakeBackend(lambda p, t: 0.5)), store=store)
    assert ChecklistScorer(judge=judge).score(question, "Hi.").items[0].soft == pytest.approx(0.5)
    assert len(backend.asked) == 1


MINIMUM = {
    "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {n}, but got 1 instead.": 16,
    "max_tokens must be at least {n}": 24,
    "max_tokens must be greater than {less}": 16,
    "max_tokens: 1 is less than the minimum of {n}": 32,
    "max_new_tokens must be greater than or equal to {n}": 8,
    "max_tokens is too small": 16,
}


@pytest.mark.parametrize("wording", MINIMUM)
def test_a_minimum_of_tokens_is_kept(wording):
    least = MINIMUM[wording]

    def respond(path, body):
        if body["max_tokens"] < least:
            return refusal(wording.format(n=least, less=least - 1))
        return chat("yes, it is", as_chat(TOP))

    with answering(respond) as server:
        judge, read = read_of(server)
        [[reply]] = judge.generate([user("?")], Sampling(max_tokens=2))
    assert share(read) == pytest.approx(P_YES) and reply.unanswered is None
    assert [body["max_tokens"] for _, body in server.asked] == [1, least, least]


def counted(path, body):
    """Together's chats: `logprobs` is a number; true counts as 1."""
    if "logprobs" not in body:
        return chat("yes")
    number = int(body["logprobs"])
    top = [likeliest(number)] if number > 1 else None
    return chat("yes", {"tokens": ["yes"], "token_logprobs": [TOP["yes"]], "top_logprobs": top})


def from_five(path, body):
    """Gives no list for more than 5 likely tokens, without an error."""
    number = body.get("top_logprobs", 0)
    return chat("yes", as_chat(likeliest(number) if number <= 5 else {}))


def typed(path, body):
    if body.get("logprobs") is True:
        return refusal("Invalid type for 'logprobs': expected an integer, but got a boolean instead.")
    return counted(path, body)


def unknown(path, body):
    return refusal("top_logprobs: Extra inputs are not permitted") if "top_logprobs" in body else counted(path, body)


@pytest.mark.parametrize("respond", [counted, from_five, typed, unknown])
def test_another_way_to_ask_for_likely_tokens_is_found(respond, caplog):
    with answering(respond) as server:
        judge, read = read_of(server)
        asked = len(server.asked)
        judge.read(ONE, LABELS)
    assert share(read) == pytest.approx(P_YES) and len(server.asked) == asked + 1
    assert not [record for record in caplog.records if "read as the words" in record.message]


@pytest.mark.parametrize(
    "logprobs", [None, {}, {"content": []}, {"content": [{"top_logprobs": []}]}, {"top_logprobs": [None]}, as_chat({})]
)
def test_a_server_without_lists_falls_back_to_words_with_one_warning(logprobs, caplog):
    with answering(lambda path, body: chat("Yes", logprobs)) as server:
        judge, read = read_of(server)
        asked = len(server.asked)
        [again, _], _ = judge.read([ReadGroup(None, "Hi. ", ("Is it?", "Was it?"))], LABELS)
    assert read.label == again.label == "yes" and len(server.asked) == asked + 2  # the search is not repeated
    [said] = [record for record in caplog.records if "read as the words" in record.message]
    assert said.levelno == logging.WARNING and "no list of likely tokens" in said.message


def test_one_reply_without_a_list_changes_nothing_for_the_others():
    def respond(path, body):
        return chat("yes", None if "Was it" in str(body) else as_chat(TOP))

    with answering(respond) as server:
        judge = OpenAIBackend(MODEL, server.base_url)
        reads, _ = judge.read([ReadGroup(None, "Hi. ", ("Is it?", "Was it?", "Will it?"))], LABELS)
    assert [read.label for read in reads] == [None, "yes", None]
    assert all("logprobs" in body for body in server.of("/chat/completions"))


@pytest.mark.parametrize("guilty", [("chat_template_kwargs",), ("logprobs",), ("chat_template_kwargs", "logprobs")])
def test_a_parameter_whose_omission_did_not_help_is_restored(guilty):
    def respond(path, body):
        if any(name in body for name in guilty):
            return refusal("Bad request")
        return chat("yes", as_chat(TOP) if "logprobs" in body else None)

    with answering(respond) as server:
        judge, read = read_of(server)
        judge.read(ONE, LABELS)
        last = server.asked[-1][1]
    assert [name for name in ("chat_template_kwargs", "logprobs") if name not in last] == list(guilty)
    assert (read.label == "yes") == ("logprobs" in guilty)


@pytest.mark.parametrize("message", ["Model does not support parameter presencePenalty.", "Bad request"])
def test_a_server_that_refuses_another_parameter_too_keeps_the_probabilities(message):
    """xAI refuses penalties of models that think, and more than 8 likely tokens."""

    def respond(path, body):
        return refusal(message) if "presence_penalty" in body else limited(8, WORDINGS["range"])(path, body)

    with answering(respond) as server:
        judge, read = read_of(server)
        judge.read(ONE, LABELS)
        last = server.asked[-1][1]
    assert share(read) == pytest.approx(P_YES) and last["top_logprobs"] == 8 and "chat_template_kwargs" in last


def test_a_feature_that_was_accepted_is_omitted_from_the_request_that_is_rejected_only():
    def respond(path, body):
        if "Was it" in str(body) and "logprobs" in body:
            return refusal("logprobs are not supported")  # such as another provider behind a router
        return chat("yes", as_chat(TOP) if "logprobs" in body else None)

    with answering(respond) as server:
        judge = OpenAIBackend(MODEL, server.base_url)
        reads, _ = judge.read([ReadGroup(None, "Hi. ", ("Is it?", "Was it?", "Will it?"))], LABELS)
        [later], _ = judge.read(ONE, LABELS)
    assert [read.label for read in reads] == [None, "yes", None] and share(later) == pytest.approx(P_YES)


HTML = b"<html><head><title>400 Bad Request</title></head><body><h1>400 Bad Request</h1></body></html>"
TOO_MANY = "top_logprobs must be <= 5"
BODIES = {
    "web page": HTML,
    "nothing": b"",
    "plain text": TOO_MANY.encode(),
    "another encoding": TOO_MANY.encode("utf-16"),
    "nested JSON": {"error": {"message": json.dumps({"error": {"message": TOO_MANY}})}},
    "a list of errors": {"detail": [{"loc": ["body", "top_logprobs"], "msg": "at most 5", "ctx": {"le": 5}}]},
    "a list of texts": {"errors": [TOO_MANY]},
    "a router": {
        "error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message": TOO_MANY})}}
    },
    "a router without words": {"error": {"message": "Provider returned error", "code": 400}},
    **{
        message: {"error": {"message": message}}
        for message in (
            "top_logprobs must be in 1..5",
            "top_logprobs must be at most five",
            "1 validation error: top_logprobs 20 is too high",
            "Request 12: top_logprobs must be no more than 5",
            "top_logprobs darf höchstens 5 sein",
            "参数 top_logprobs 不能大于5，实际为20",
            "top_logprobsは5以下である必要があります（指定値: 20）",
            "top_logprobs 最大值为５",
        )
    },
}


@pytest.mark.parametrize(("body", "status"), [*((body, 400) for body in BODIES), ("a list of errors", 422)])
def test_an_error_in_any_form_costs_no_log_probabilities(body, status):
    def respond(path, asked):
        if asked.get("top_logprobs", 0) > 5:
            return status, BODIES[body]
        return chat("yes", as_chat(likeliest(asked["top_logprobs"])))

    with answering(respond) as server:
        judge, read = read_of(server)
        judge.read(ONE, LABELS)
    assert share(read) == pytest.approx(P_YES)
    assert "chat_template_kwargs" in server.asked[-1][1] and server.asked[-1][1]["top_logprobs"] == 5


MANY = [ReadGroup(None, f"Hello {n}. ", ("Is it short?",)) for n in range(24)]
LATER = {
    "likely tokens": (lambda body: body.get("top_logprobs", 0) > 5, TOO_MANY),
    "tokens": (lambda body: body["max_tokens"] < 16, "max_tokens must be at least 16"),
    "logprobs": (lambda body: "logprobs" in body, "logprobs is not supported"),
    "thinking": (lambda body: "chat_template_kwargs" in body, "chat_template_kwargs is not supported"),
}


@pytest.mark.parametrize(
    ("change", "sound"), [*((change, 1) for change in LATER), ("likely tokens", 0), ("logprobs", 10)]
)
def test_a_server_that_changes_while_it_is_used_is_warned_of_once_and_asked_once_per_read(change, sound, caplog):
    rejects, message = LATER[change]
    answered = itertools.count(1)

    def respond(path, body):
        if next(answered) > sound and rejects(body):
            return refusal(message)
        return chat("yes", as_chat(likeliest(body.get("top_logprobs", 0))))

    with answering(respond) as server:
        judge = OpenAIBackend(MODEL, server.base_url, concurrency=8)
        reads = judge.read(MANY, LABELS)[0]
        asked = len(server.asked)
        judge.read(MANY, LABELS)
    assert len(server.asked) == asked + len(MANY)
    assert all(read.label == "yes" or share(read) == pytest.approx(P_YES) for read in reads)
    assert change == "logprobs" or all(read.label is None for read in reads)
    assert len(caplog.records) == (change in ("likely tokens", "logprobs")), caplog.text
