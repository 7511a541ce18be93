"""What a server's response means: literal responses and the reasons they give."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from checklist_rewards.backends.openai.wire import Failure, answer_of

GOOD = {"choices": [{"message": {"content": "yes"}}]}


def meaning(status, body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer_of(status, headers, content, "choices")


def test_an_answer_is_its_json():
    assert meaning(200, GOOD) == GOOD


@pytest.mark.parametrize(
    "status, body, reason, retry",
    [
        (200, b"<html>Bad gateway</html>", "not_json", True),
        (200, b"", "not_json", True),
        (200, {"choices": []}, "empty_choices", True),
        (200, {"error": {"message": "upstream", "code": 502}}, "error_body", True),
        (200, {"error": {"message": "no such model", "code": 404}}, "error_body", False),
        (200, {"choices": [], "error": {"code": 500}}, "error_body", True),
        (200, ["yes"], "error_body", True),
        (200, {"choices": "yes"}, "error_body", True),
        (400, {"error": {"message": "This model's maximum context length is 2048 tokens."}}, "too_long", False),
        (400, {"message": "the model's context length is only 2048 tokens"}, "too_long", False),
        (400, {"error": {"message": "the request exceeds the available context size"}}, "too_long", False),
        (400, {"error": {"message": "prompt is too long: 9 tokens"}}, "too_long", False),
        (413, b"", "too_long", False),
        (400, {"error": {"message": "The response was filtered by the content management policy"}}, "refused", False),
        (403, {"error": {"message": "Your input was flagged"}}, "refused", False),
        (400, {"error": {"message": "Bad seed"}}, "backend_error: status 400: Bad seed", False),
        (401, {"error": {"message": "Wrong key"}}, "backend_error: status 401: Wrong key", False),
        (408, {}, "backend_error: status 408: {}", True),
        (409, {"detail": "busy"}, "backend_error: status 409: busy", True),
        (429, {"error": "slow down"}, "backend_error: status 429: slow down", True),
        (503, b"<html>", "backend_error: status 503: <html>", True),
        (302, b"", "backend_error: status 302: no message", False),
    ],
)
def test_a_failure_has_a_reason_and_is_retried_where_that_may_help(status, body, reason, retry):
    failure = meaning(status, body)
    assert isinstance(failure, Failure)
    assert (failure.unanswered, failure.retry) == (reason, retry)


@pytest.mark.parametrize("status, body", [(429, {}), (409, {}), (400, {}), (200, {"choices": []})])
def test_a_server_that_says_no_is_not_down(status, body):
    assert not meaning(status, body).down


@pytest.mark.parametrize("status, body", [(500, {}), (503, {}), (408, {}), (200, b"<html>"), (200, {"error": {}})])
def test_a_server_that_breaks_is(status, body):
    assert meaning(status, body).down


@pytest.mark.parametrize("status, fatal", [(400, False), (401, True), (402, True), (404, True), (422, False)])
def test_some_failures_await_every_other_request(status, fatal):
    assert meaning(status, {}).fatal == fatal


def test_a_server_may_ask_for_a_pause_in_seconds_or_by_date():
    assert meaning(429, {}).wait is None
    assert meaning(429, {}, **{"retry-after": "3"}).wait == 3
    assert meaning(503, {}, **{"retry-after-ms": "250"}).wait == 0.25
    for odd in ("soon", "nan", f"Mon, 01 Jan {9**30} 00:00:00 GMT"):
        assert meaning(429, {}, **{"retry-after": odd}).wait is None
    date = format_datetime(datetime.now(UTC) + timedelta(days=2), usegmt=True)
    assert 86_400 < meaning(429, {}, **{"retry-after": date}).wait <= 2 * 86_400
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=30), usegmt=True)
    assert meaning(429, {}, **{"retry-after": past}).wait == 0
