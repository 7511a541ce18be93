"""Reasons for missing answers: one text form, read in one place."""

import copy
import json
import pickle

import pytest

from checklist_rewards.backends import Answer, Reply, is_transient
from checklist_rewards.checklists import Checklist
from checklist_rewards.scores import Reason, Score, Unanswered, Verdict, score_checklist
from checklist_rewards.scores.reasons import ADVICE

ONE = Checklist.parse(["Is it short?"])


@pytest.mark.parametrize(
    ("text", "reason", "detail", "retried"),
    [
        ("timeout", Reason.TIMEOUT, "", Reason.TIMEOUT),
        ("too_long", Reason.TOO_LONG, "", None),
        ("backend_error: status 500: broken", Reason.BACKEND_ERROR, "status 500: broken", Reason.BACKEND_ERROR),
        ("quorum: 1 of 3 judges answered", Reason.QUORUM, "1 of 3 judges answered", None),
        ("quorum: timeout: 1 of 3 answered", Reason.QUORUM, "timeout: 1 of 3 answered", Reason.TIMEOUT),
        ("quorum: too_long: 1 of 3 answered", Reason.QUORUM, "too_long: 1 of 3 answered", None),
        ("my_word: with: details", "my_word", "with: details", None),
        ("backend_error: ", Reason.BACKEND_ERROR, "", Reason.BACKEND_ERROR),
    ],
)
def test_text_is_split_into_reason_and_detail_and_stays_the_same_text(text, reason, detail, retried):
    found = Unanswered(text)
    assert (found.reason, found.detail, found.transient_reason) == (reason, detail, retried)
    assert found == str(found) == f"{found}" == text and json.dumps(found) == json.dumps(text)
    assert is_transient(text) == is_transient(found) == (retried is not None)
    if detail:
        assert Unanswered(reason, detail) == text
    for twin in (copy.deepcopy(found), pickle.loads(pickle.dumps(found, 0)), pickle.loads(pickle.dumps(found))):
        assert (twin, twin.reason, twin.detail, type(twin)) == (text, reason, detail, Unanswered)


def test_judges_and_engines_may_give_the_reason_as_text():
    for outcome in (
        Verdict(unanswered="their_word: why"),
        Answer(None, "their_word: why"),
        Reply(None, unanswered="their_word: why"),
    ):
        assert outcome.unanswered == "their_word: why" and outcome.unanswered.reason == "their_word"
    assert Verdict(unanswered=Reason.TIMEOUT).unanswered.reason is Reason.TIMEOUT
    assert Verdict(answer="yes").unanswered is Answer((0.0, -1.0)).unanswered is Reply("Hi.").unanswered is None


@pytest.mark.parametrize("text", ["backend_error: gone", "word_of_a_later_version: x: y"])
def test_files_hold_the_text_and_are_read_with_words_that_this_version_does_not_know(text):
    score = score_checklist(ONE, [Verdict(unanswered=text, votes=(Verdict(unanswered=text),))])
    record = json.loads(score.model_dump_json())
    [item] = record["items"]
    assert item["unanswered"] == item["votes"][0]["unanswered"] == text
    assert type(score.model_dump()["items"][0]["unanswered"]) is str
    for again in (Score.model_validate(record), Score.model_validate_json(score.model_dump_json())):
        assert again == score and again.items[0].unanswered.detail == Unanswered(text).detail
        assert again.unanswered == {text.split(":")[0]: 1}
        assert repr(again.unanswered) == f"Counter({{{text.split(':')[0]!r}: 1}})"


def test_every_reason_has_advice():
    assert ADVICE.keys() == set(Reason) and all(ADVICE.values())
