import json

import pytest

from checklist_rewards import Checklist, __version__
from checklist_rewards.backends import Reply
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.errors import ChecklistError, ModelError, PromptError, SampleError
from checklist_rewards.refiners import QUALITIES, Tagger
from tests.generators.fakes import Replies
from tests.refiners.vectors import questions

CHECKLIST = Checklist.parse(["Is it short?", "Does it name Anna?", "Is it good?"])


def tags(reason="", **qualities):
    return json.dumps({"reason": reason, **({"general": True, "specific": True} | qualities)})


GOOD = tags()


def by_question(replies, fallback=GOOD):
    def rule(text, sampling):
        found = [reply for question, reply in replies.items() if question in text]
        if "That cannot be used" in text:
            return "Still no."
        return found[0] if found else fallback

    return Replies(rule)


def tagger(backend, **settings):
    return Tagger("fake", **{"backend": backend, "store": False} | settings)


def test_items_stay_that_have_every_quality():
    about_anna = tags("It is about one person.", general=False)
    backend = by_question({"name Anna": about_anna, "it good": tags(specific=False, general=False)})
    refiner = tagger(backend)
    refined = refiner.refine(CHECKLIST.model_copy(update={"model": "writer"}))
    assert questions(refined) == ["Is it short?"]
    assert refined.items[0] == CHECKLIST.items[0]
    assert (refined.source, refined.model) == (f"tagger/{__version__}", "writer+fake")
    reasons = [note.reason for note in refiner.report.dropped]
    assert reasons == ["it is not general: It is about one person.", "it is not general or specific"]
    assert [len(prompts) for prompts, _ in backend.sampled] == [3]


def test_any_quality_can_be_named():
    qualities = {"checkable by code": "a program could answer it", "schema": "it is about form"}
    backend = by_question(
        {"name Anna": '{"reason": "r", "checkable by code": "no", "schema": "yes"}'},
        '{"reason": "r", "checkable by code": "yes", "schema": true}',
    )
    refined = tagger(backend, qualities=qualities).refine(CHECKLIST)
    assert questions(refined) == ["Is it short?", "Is it good?"]
    prompts, sampling = backend.sampled[0]
    assert "- checkable by code: a program could answer it\n- schema: it is about form" in prompts[0]
    assert set(json.loads(sampling.schema)["required"]) == {"reason", *qualities}


@pytest.mark.parametrize(
    "reply",
    ["I would say so.", '{"reason": "", "general": "perhaps", "specific": true}', Reply(None, unanswered="too_long")],
)
def test_a_reply_that_cannot_be_read_keeps_its_item(reply, caplog):
    refiner = tagger(by_question({"name Anna": reply}, tags(general=False)))
    assert questions(refiner.refine(CHECKLIST)) == ["Does it name Anna?"]
    assert [note.item.question for note in refiner.report.unclear] == ["Does it name Anna?"]
    assert len(refiner.report.dropped) == 2
    assert "1 of 3 items could not be assessed and stay unchanged" in caplog.text


def test_a_checklist_with_a_reply_that_is_missing_for_now_is_not_refined(caplog):
    refiner = tagger(by_question({"name Anna": Reply(None, unanswered="timeout: 60 s")}, tags(general=False)))
    failed, refined = refiner.refine_batch([CHECKLIST, Checklist.parse(["Is it short?", "Is it good?"])], [(), ()])
    assert str(failed) == "tagger could not refine the checklist: timeout: 60 s." and failed.transient
    assert isinstance(refined, ChecklistError) and "could not be assessed" not in caplog.text
    with pytest.raises(NoReply, match="timeout: 60 s"):
        refiner.refine(CHECKLIST)


@pytest.mark.parametrize(
    ("weight", "replies", "fallback", "message"),
    [
        (1, {}, tags("Too vague.", specific=False), "no item is left of 3.*it is not specific: Too vague"),
        (0, {"it short": GOOD}, tags(general=False), "tagger: the refined checklist: every weight is 0"),
    ],
)
def test_nothing_or_only_items_without_weight_left_is_an_error_that_leaves_a_report(
    weight, replies, fallback, message
):
    checklist = Checklist.parse([{"question": "Is it short?", "weight": weight}, "Does it name Anna?", "Is it good?"])
    refiner = tagger(by_question(replies, fallback))
    with pytest.raises(ChecklistError, match=message):
        refiner.refine(checklist)
    assert [note.item for note in refiner.report.dropped] == list(checklist.items[len(replies) :])


@pytest.mark.parametrize("qualities", [{}, ["general"], {"reason": "x"}, {"general": " "}])
def test_qualities_are_names_with_definitions(qualities):
    with pytest.raises(SampleError, match="qualities"):
        Tagger("fake", qualities=qualities)


def test_what_can_be_refused_is_refused_before_any_call(tmp_path):
    with pytest.raises(ModelError):
        Tagger(str(tmp_path / "none"), store=False).validate()
    with pytest.raises(PromptError, match="unknown placeholder {questions}; allowed: {item}, {qualities}"):
        Tagger("fake", prompt="refiners/merge", store=False)
    with pytest.raises(SampleError, match="max_attempts=0"):
        Tagger("fake", max_attempts=0, store=False)
    assert set(QUALITIES) == {"general", "specific"}
