"""Code checks in front of a judge: who answers, what is asked, and what a failure is."""

import json
import sys
import threading
from typing import ClassVar, Literal

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.base import deadline
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.checks import CHECKS, Check
from checklist_rewards.checks.sandbox import guests
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.judges import Ask
from checklist_rewards.judges.checked import check_and_ask
from checklist_rewards.scores import Verdict, rescore
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.judges.fakes import Script
from tests.judges.voters import Voter

SHORT = {"question": "Is it short?", "check": '{"type": "words", "at_most": 3}'}
KIND = {"question": "Is it kind?"}
CODE = {"question": "Does the code run?", "check": '{"type": "code"}'}


def scorer_on(backend=None, p=0.9, **settings):
    """A scorer on an engine, or on one that answers with this P(yes)."""
    return ChecklistScorer(backend=backend or FakeBackend(lambda prefix, tail: p), store=False, **settings)


def test_a_check_answers_and_the_judge_is_asked_the_rest():
    backend = FakeBackend(lambda prefix, tail: 0.7)
    scorer = scorer_on(backend)
    score = scorer.score([SHORT, KIND], "One two.")
    short, kind = score.items
    assert (short.answer, short.judge, short.method, short.confidence) == ("yes", "code", "check", None)
    assert (kind.answer, kind.method, kind.confidence) == ("yes", "logprobs", pytest.approx(0.7))
    assert score.expected_score == pytest.approx((1 + 0.7) / 2) and score.pass_rate == 1.0
    assert [tail for _, tail in backend.asked if "short" in tail] == [] and len(backend.asked) == 1
    assert scorer.receipt.reads == scorer.receipt.asked == 1  # only what went to the engine
    outage = scorer_on(FakeBackend(fails=lambda prefix, tail: True))
    short, kind = outage.score([SHORT, KIND], "a").items  # named by the judge, and not by the check
    assert short.answer == "yes" and kind.unanswered.startswith("backend_error")


def test_the_mean_of_both_is_the_probability():
    [yes], [no] = (scorer_on(p=0.4, checks="mean").score([SHORT], text).items for text in ("a", "a b c d"))
    assert (yes.confidence, yes.answer) == (pytest.approx(0.7), "yes")  # (0.4 + 1) / 2
    assert (no.probabilities["yes"], no.answer) == (pytest.approx(0.2), "no")  # (0.4 + 0) / 2
    assert (yes.method, yes.judge) == ("check", "code+pocket")
    assert [(vote.judge, vote.answer) for vote in yes.votes] == [("code", "yes"), ("pocket", "no")]
    words = scorer_on(Script(lambda messages: "No"), checks="mean", use_logprobs=False)
    [line] = words.score([SHORT], "a").items
    assert (line.confidence, line.answer) == (0.5, "no")


def test_the_judge_alone_is_asked_as_if_there_were_no_check():
    backend, plain = FakeBackend(lambda prefix, tail: 0.9), FakeBackend()
    [line] = scorer_on(backend, checks="judge").score([SHORT], "a b c d").items
    assert (line.answer, line.method) == ("yes", "logprobs")
    scorer_on(plain).score([SHORT["question"]], "a b c d")
    assert backend.asked == plain.asked


@pytest.mark.parametrize(("checks", "yes"), [("mean", 0.7), ("judge", 0.4)])
@pytest.mark.parametrize("how", ["read", "word", "votes"])
def test_on_a_scale_the_judge_grades_items_with_a_check_too(checks, yes, how):
    """As RLCF averages the grade of its judge with the verifier."""
    verdict = Verdict({"0": 0.2, "1": 0.4, "2": 0.4, "3": 0.0}, method="logprobs")  # 0.4 / 3 + 0.8 / 3
    if how != "read":
        words = [Verdict(answer=label, method="reply") for label in "0123"]
        shares = {"0": 0.2, "1": 0.4, "2": 0.4, "3": 0.0}
        verdict = Verdict(answer="1", method="reply")
        if how == "votes":
            verdict = Verdict(shares, "1", method="votes", votes=(words[0], words[1], words[1], words[2], words[2]))
        else:
            yes = {"mean": 2 / 3, "judge": 1 / 3}[checks]
    judge = Voter(lambda read: verdict)
    score = ChecklistScorer(judge=judge, checks=checks, scale=4).score([SHORT], "a")
    [line] = score.items
    assert list(judge.asked[0].item.values) == ["0", "1", "2", "3"]
    assert line.probabilities["yes"] == pytest.approx(yes) == pytest.approx(score.primary_score)
    assert rescore(Checklist.parse([SHORT]), score).primary_score == score.primary_score


@pytest.fixture
def broken(monkeypatch):
    """An item whose check breaks on texts with a question mark."""

    class Broken(Check):
        summary = "It breaks."
        type: Literal["broken"] = "broken"

        def holds(self, text, input=None):
            return None if "none" in text else 1 / (0 if "?" in text else 1) > 0

    monkeypatch.setitem(CHECKS, "broken", Broken)
    return {"question": "Is it whole?", "check": '{"type": "broken"}'}


def test_a_check_that_breaks_is_no_answer_and_no_neighbours_loss(broken, caplog):
    texts = ("what?", "fine", "none")
    lost, fine, none = scorer_on().score_batch([Sample([broken, SHORT], text) for text in texts])
    whole, short = lost.items
    assert none.items[0].unanswered == "check_error: TypeError: holds() returned None instead of True or False"
    assert whole.unanswered == "check_error: ZeroDivisionError: division by zero" and whole.value is None
    assert short.answer == "yes" and (lost.lower, lost.upper) == (0.5, 1.0) and lost.answered == 1
    assert fine.primary_score == 1.0 and "broken" in caplog.text


@pytest.mark.parametrize("check_breaks", [True, False])
def test_in_a_mean_no_failure_lets_the_other_stand_alone(broken, check_breaks):
    backend = FakeBackend(lambda prefix, tail: 0.9, fails=lambda prefix, tail: not check_breaks)
    [line] = scorer_on(backend, checks="mean").score([broken], "what?" if check_breaks else "what.").items
    assert line.unanswered.split(":")[0] == ("check_error" if check_breaks else "backend_error")
    assert line.value is None and line.confidence is None
    assert {vote.unanswered is None for vote in line.votes} == {True, False}  # what was answered is kept


def test_code_is_off_until_it_is_allowed():
    message = r"sample 1, item \w+ \('Does the code run\?'\): its check runs code, .*allow"
    with pytest.raises(ChecklistError, match=message):
        scorer_on().score([CODE], "x = 1")
    inside = {"question": "Both?", "check": json.dumps({"type": "all", "checks": [{"type": "code"}]})}
    with pytest.raises(ChecklistError, match="runs code"):
        scorer_on(checks="mean").score([inside], "x = 1")
    good, bad = scorer_on(allow_code=True).score_batch([Sample([CODE], "x = 1"), Sample([CODE], "x = y")])
    assert (good.primary_score, bad.primary_score) == (1.0, 0.0)
    assert scorer_on(checks="judge").score([CODE], "x = y").pass_rate == 1.0  # the judge reads it; nothing is run


def test_code_that_cannot_be_isolated_is_refused_unless_the_user_accepts_a_plain_process(monkeypatch):
    monkeypatch.setattr(guests, "_load", guests._load.__wrapped__)
    monkeypatch.setitem(sys.modules, "wasmtime", None)  # as if it were not installed
    message = r"'Does the code run\?'\): .* wasmtime is not installed; run pip install"
    with pytest.raises(ChecklistError, match=message):
        scorer_on(allow_code=True).score([CODE], "x = 1")
    assert scorer_on(allow_code="unsafe").score([CODE], "x = 1").pass_rate == 1.0
    with pytest.raises(SampleError, match="allow_code='yes' is not known; allowed: False, True, 'unsafe'"):
        scorer_on(allow_code="yes")


def test_code_that_was_not_allowed_is_not_run_even_unasked(monkeypatch):
    monkeypatch.setattr("checklist_rewards.checks.programs.run_code", lambda *_, **__: pytest.fail("it ran"))
    [verdict] = check_and_ask([Ask(ChecklistItem(**CODE), "x = 1")], "only", False, lambda reads: [])
    assert verdict.unanswered.startswith("check_error: not checked, item") and "runs code" in verdict.unanswered


def test_bad_specs_are_refused_before_anything_is_asked():
    backend = FakeBackend()
    bad = {"id": "b2", "question": "Short?", "check": '{"type": "words", "at_most": "3"}'}
    message = r"^sample 2, item b2 \('Short\?'\): check 'words': at_most: Input should be a valid integer, got '3'.$"
    with pytest.raises(ChecklistError, match=message):
        scorer_on(backend).score_batch([Sample([KIND], "a"), Sample([KIND, bad], "a")])
    with_options = SHORT | {"options": [{"label": "yes", "value": 1}, {"label": "no", "value": 0}]}
    with pytest.raises(ChecklistError, match="a check answers yes or no, but the item also has options"):
        scorer_on(backend).score([with_options], "a")
    with pytest.raises(SampleError, match="checks='both' is not known; allowed: 'only', 'mean', 'judge'"):
        scorer_on(backend, checks="both")
    assert backend.asked == []


def test_equal_checks_of_one_text_and_input_are_made_once_and_progress_counts_every_read(monkeypatch):
    made = []
    whole = CHECKS["words"].holds

    def noted(self, text, input=None):
        made.append(text)
        return whole(self, text)

    monkeypatch.setattr(CHECKS["words"], "holds", noted)
    samples = [Sample([SHORT, KIND], "a"), Sample([SHORT], "a"), Sample([SHORT], "b"), Sample([SHORT], "a", "p")]
    for checks in ("only", "mean"):
        seen, made[:] = [], []
        scorer_on(checks=checks).score_batch(samples, seen.append)
        assert made == ["a", "b", "a"] and sum(seen) == 5 and min(seen) >= 0


class Slow(Check):
    """A check whose `holds` waits until a test lets it go on."""

    executes, summary, example = True, "Waits.", {}
    type: Literal["slow"] = "slow"
    started: ClassVar[threading.Event]
    go: ClassVar[threading.Event]

    def holds(self, text, input=None):
        self.started.set()
        return self.go.wait(HANG)


@pytest.fixture
def slow(monkeypatch):
    """An item with this check."""
    monkeypatch.setitem(CHECKS, "slow", Slow)
    Slow.started, Slow.go = threading.Event(), threading.Event()
    yield {"question": "Does it run?", "check": '{"type": "slow"}'}
    Slow.go.set()


def test_code_runs_while_the_judge_answers(slow):
    def rule(prefix, tail):
        assert Slow.started.wait(HANG)
        Slow.go.set()
        return 0.9

    score = scorer_on(FakeBackend(rule), allow_code="unsafe").score([slow, KIND], "a")
    assert [line.answer for line in score.items] == ["yes", "yes"]


def test_a_deadline_ends_the_wait_for_code(slow):
    scorer = scorer_on(allow_code="unsafe")
    with deadline(0.5):
        score = scorer.score([slow, KIND], "a")
    assert [line.unanswered for line in score.items] == ["deadline", None]
    assert scorer.score([SHORT], "a").items[0].answer == "yes"
    with deadline(1e-9):  # no check runs after it
        assert scorer_on().score([SHORT], "a").items[0].unanswered == "deadline"
