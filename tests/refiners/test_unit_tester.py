import json

import pytest

from checklist_rewards import Checklist, Sample, __version__
from checklist_rewards.backends import Reply
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.errors import BackendError, ChecklistError, ModelError, SampleError
from checklist_rewards.refiners import UnitTester
from checklist_rewards.refiners.unit_tester import failing_answers
from tests.generators.fakes import Replies
from tests.refiners.vectors import questions

LETTERS = {"Is there an A?": "A", "Is there a B?": "B", "Is there a C?": "C"}
CHECKLIST = Checklist.parse(list(LETTERS))
ONLY_A = Checklist.parse(["Is there an A?"])


def asked_letter(text):
    return next(letter for question, letter in LETTERS.items() if question in text)


def target_of(prefix):
    return prefix.split("<target-")[1].split("\n")[1]


def says(prefix, tail):
    """A judge that looks for the letter, except that it is blind for B and cannot answer about '?'."""
    letter, target = asked_letter(tail), target_of(prefix)
    if "?" in target and letter in target:
        return None
    return 0.9 if letter in target or (letter == "B" and target.endswith("without")) else 0.1


def without_letter(text, sampling):
    response = text.split("<response-")[1].split("\n")[1]
    return json.dumps({"response": response.replace(asked_letter(text), "") + "without"})


def tries(rewrite=without_letter, judge=says, **settings):
    backend = Replies(rewrite)
    backend.rule = judge
    return UnitTester("fake", **{"backend": backend, "store": False} | settings), backend


def on(*targets):
    return [Sample(None, target, input="Write letters.") for target in targets]


def test_items_stay_that_a_broken_text_is_seen_to_fail():
    refiner, backend = tries()
    refined = refiner.refine(CHECKLIST, on("ABC", "AB", "C"))
    assert questions(refined) == ["Is there an A?", "Is there a C?"]
    assert (refined.source, refined.model) == (f"unit_tester/{__version__}", "fake")
    (note,) = refiner.report.dropped
    assert note.reason.startswith("only 0 of 2 texts rewritten to fail it were judged to fail it (at least 70%")
    assert not refiner.report.unclear
    # All samples on all items in one call, all rewrites in one, all rewritten texts in one.
    assert [sum(len(group.tails) for group in call) for call in backend.calls] == [9, 6]
    assert [len(prompts) for prompts, _ in backend.sampled] == [6]


def test_the_prompt_has_the_text_the_question_and_the_answer_wanted():
    refiner, backend = tries()
    refiner.refine(Checklist.parse(["Is there an A?", {"question": "Is there a C?", "weight": -1}]), on("AB"))
    first, second = backend.sampled[0][0]
    assert "\nAB\n" in first and "Is there an A?" in first and "\nno\n" in first
    assert "Is there a C?" in second and "\nyes\n" in second  # a penalty fails when the answer is yes


def test_the_threshold_is_the_share_that_must_fail_of_at_most_so_many_samples():
    def half(text, sampling):
        return without_letter(text, sampling) if "\nA1\n" in text else '{"response": "still A"}'

    samples = on("A1", "x", "A2", "A3")
    refiner, backend = tries(half, threshold=0.5, max_samples=2)
    assert refiner.refine(ONLY_A, samples).items == ONLY_A.items
    assert [len(prompts) for prompts, _ in backend.sampled] == [2]
    with pytest.raises(ChecklistError, match="no item is left of 1.*only 1 of 2"):
        tries(half, threshold=0.51, max_samples=2)[0].refine(ONLY_A, samples)


def test_without_samples_there_is_an_error_not_an_empty_checklist():
    refiner, backend = tries()
    with pytest.raises(SampleError, match="unit_tester needs samples.*got none"):
        refiner.refine(CHECKLIST)
    with pytest.raises(SampleError, match="sample 1 must be a Sample with a target, got str 'ABC'"):
        refiner.refine(CHECKLIST, ["ABC"])
    assert backend.sampled == [] and backend.calls == []


def to_two(reply):
    """Rewrites "A2" as asked, and gives this reply about other texts."""
    return lambda text, sampling: without_letter(text, sampling) if "\nA2\n" in text else reply


GONE = "no rewrite of 1 passing samples"


@pytest.mark.parametrize(
    ("reply", "samples", "reason"),
    [
        ("No.", ["A1"], GONE),
        ("No.", ["A1", "A2"], None),
        ('{"response": " "}', ["A1"], GONE),
        ('{"response": "A1"}', ["A1"], GONE),  # unchanged
        (Reply(None, unanswered="too_long"), ["A1"], GONE),
        # Of three rewrites one is seen to fail and two cannot be answered: 1 of 1 fails.
        ('{"response": "A?"}', ["A1", "A2", "A3", "A?"], None),
        ('{"response": "A?"}', ["A1"], f"{GONE} was judged (the judge gave no answer: too_long)"),
        ("No.", ["A?", "x"], "none of 2 samples passes it (1 reads were unanswered)"),
    ],
)
def test_what_could_not_be_had_or_answered_counts_neither_way(reply, samples, reason):
    refiner, _ = tries(to_two(reply))
    assert refiner.refine(ONLY_A, on(*samples)).items == ONLY_A.items
    assert [note.reason.startswith(f"untested: {reason}") for note in refiner.report.unclear] == [True] * bool(reason)


def test_rewrites_and_reads_that_are_missing_for_now_leave_the_checklist_unrefined():
    gone = Reply(None, unanswered="backend_error: gone")
    refiner, _ = tries(to_two(gone))
    with pytest.raises(NoReply, match="unit_tester could not refine the checklist: backend_error: gone"):
        refiner.refine(ONLY_A, on("A1", "A2"))

    def broken_engine(prefix, tail):
        raise BackendError("the engine broke")

    refiner, _ = tries(judge=broken_engine)
    with pytest.raises(NoReply, match="backend_error: the engine broke"):
        refiner.refine(CHECKLIST, on("A"))


def test_the_judge_may_be_another_scorer(scorer):
    digit, case = "Does the response contain a digit?", "Is the response written in lower case only?"
    refiner, backend = tries(lambda *_: '{"response": "my keno like this red tisa."}', scorer=scorer)
    samples = on("My 3 keno like this red tisa.", "the old lamo is red.")
    # One of the two passes each; the rewritten text has no digit, but is in lower case as before.
    assert questions(refiner.refine(Checklist.parse([digit, case]), samples)) == [digit] and backend.calls == []
    assert not refiner.report.unclear and refiner.report.dropped[0].item.question == case


def test_what_can_be_refused_is_refused_before_any_call(tmp_path):
    with pytest.raises(ModelError):
        UnitTester(str(tmp_path / "none"), store=False).validate()
    for name, value in (("threshold", 2), ("max_samples", 0)):
        with pytest.raises(SampleError, match=f"{name}={value}"):
            UnitTester("fake", store=False, **{name: value})


@pytest.mark.parametrize(("weight", "answers"), [(1, "poor or fair"), (-1, "good")])
def test_an_item_with_options_fails_by_the_answers_that_cost(weight, answers):
    values = {"poor": 0, "fair": 0.4, "good": 1, "cannot tell": None}
    options = [{"label": label, "value": value, "na": value is None} for label, value in values.items()]
    (item,) = Checklist.parse([{"question": "How clear is it?", "weight": weight, "options": options}]).items
    assert failing_answers(item) == answers
