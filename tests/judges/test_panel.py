"""Several judges, one verdict: every rule against a table worked by hand, failures and abstentions apart."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import is_transient
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, NoServerError, SampleError
from checklist_rewards.judges import Ask, CascadeJudge, PanelJudge
from checklist_rewards.judges.panel import margin_of
from checklist_rewards.scores import Aggregation, Verdict, answer_of, rescore, score_checklist
from tests.judges.fakes import options
from tests.judges.voters import DEAD, Absent, Voter, sure

PLAIN = ChecklistItem(question="Is it short?")
PENALTY = ChecklistItem(question="Is it rude?", weight=-1)
GRADED = ChecklistItem(question="How clear is it?", options=options(bad=0, fair=0.5, good=1, **{"n/a": None}))
GRADED_PENALTY = ChecklistItem(question="How rude is it?", weight=-2, options=options(bad=0, fair=0.5, good=1))


def said(label: str) -> Verdict:
    return Verdict(answer=label, method="reply")


def combine(item, votes, **settings) -> Verdict:
    """What a panel of judges with these votes answers."""
    panel = PanelJudge([Voter(vote) for vote in votes], **settings)
    return panel.answer([Ask(item, "text")])[0][0]


def outcome(item, votes, **settings):
    """The answer of the panel to votes such as "yes no dead", or its reason for none without the detail."""
    verdict = combine(item, [DEAD if vote == "dead" else said(vote) for vote in votes.split()], **settings)
    return verdict.unanswered.partition(":")[0] if verdict.unanswered else answer_of(item, verdict)


@pytest.mark.parametrize(
    ("votes", "settings", "p_yes"),
    [
        ([sure(0.9), sure(0.1), sure(0.8)], {"rule": "median"}, 0.8),
        ([sure(0.9), sure(0.1), sure(0.8)], {"rule": "min"}, 0.1),
        ([sure(0.9), sure(0.1), sure(0.8)], {"rule": "max"}, 0.9),
        # Weights move the mean and nothing else.
        ([sure(0.9), sure(0.3)], {"weights": [3, 1]}, 0.75),  # (2.7 + .3) / 4
        ([sure(0.9), sure(0.3)], {"rule": "median", "weights": [3, 1]}, 0.6),
        ([said("yes"), sure(0.4)], {}, 0.7),  # a judge without probabilities counts as certain
    ],
)
def test_soft_rules(votes, settings, p_yes):
    verdict = combine(PLAIN, votes, **settings)
    assert verdict.probabilities == {"yes": pytest.approx(p_yes), "no": pytest.approx(1 - p_yes)}


def test_soft_rules_of_options():
    votes = [said(label) for label in ("bad", "fair", "good", "good")]  # the median is between those in the middle
    assert combine(GRADED, votes, rule="mean").probabilities == {"bad": 0.25, "fair": 0.25, "good": 0.5, "n/a": 0}
    assert combine(GRADED, votes, rule="median").probabilities == {"bad": 0, "fair": 0.5, "good": 0.5, "n/a": 0}


RULES = ("mean", "median", "min", "max", "majority", "weighted", "mode", "unanimous", "any")
OUTCOMES = [
    # A judge that is gone never votes: with one of three gone, the others decide; with two gone, none does.
    *((rule, PLAIN, "yes yes dead", {}, "yes") for rule in RULES),
    *((rule, PLAIN, "no no dead", {}, "no") for rule in RULES),
    *((rule, PLAIN, "yes dead dead", {}, "quorum") for rule in RULES),
    ("mean", PLAIN, "dead dead dead", {"quorum": 0}, "quorum"),
    ("majority", PLAIN, "yes yes no", {}, "yes"),
    ("majority", PLAIN, "yes no no", {}, "no"),
    ("unanimous", PLAIN, "yes yes no", {}, "no"),
    ("any", PLAIN, "no no yes", {}, "yes"),
    # Weight beats heads only where the rule says so.
    ("weighted", PLAIN, "yes no no", {"weights": [3, 1, 1]}, "yes"),
    ("majority", PLAIN, "yes no no", {"weights": [3, 1, 1]}, "no"),
    # A tie is the worst for the target.
    *((rule, PLAIN, "yes no", {}, "no") for rule in ("majority", "weighted", "mode")),
    *((rule, PENALTY, "yes no", {}, "yes") for rule in ("majority", "weighted", "mode")),
    ("mode", GRADED, "good bad", {}, "bad"),
    ("mode", GRADED_PENALTY, "good bad", {}, "good"),
    # Options.
    ("mode", GRADED, "good fair good bad", {}, "good"),
    ("majority", GRADED, "good fair good bad", {}, "no_majority"),  # 2 of 4 is not more than half
    ("majority", GRADED, "good fair good", {}, "good"),
    ("unanimous", GRADED, "good fair good bad", {}, "disagreement"),
    ("unanimous", GRADED, "fair fair fair", {}, "fair"),
    ("min", GRADED, "good fair good bad", {}, "bad"),
    ("max", GRADED, "good fair good bad", {}, "good"),
    # Abstentions are answers without a vote.
    ("majority", GRADED, "good good n/a", {}, "good"),
    ("majority", GRADED, "good n/a n/a", {}, "n/a"),
    ("mean", GRADED, "good n/a", {}, "n/a"),
    ("mean", GRADED, "n/a dead n/a", {}, "n/a"),
    # The quorum is a share of the weight.
    ("majority", PLAIN, "yes dead dead", {"weights": [2, 1, 1]}, "yes"),
    ("majority", PLAIN, "yes dead dead", {"quorum": 0.3}, "yes"),
    ("majority", PLAIN, "yes yes dead", {"quorum": 1}, "quorum"),
    ("majority", PLAIN, "yes " * 5 + "dead " * 5, {"weights": [0.1] * 10}, "yes"),
]


@pytest.mark.parametrize(("rule", "item", "votes", "settings", "expected"), OUTCOMES)
def test_what_a_panel_answers(rule, item, votes, settings, expected):
    assert outcome(item, votes, rule=rule, **settings) == expected


@pytest.mark.parametrize(
    ("rule", "yes"), [("majority", 1 / 3), ("weighted", 0.6), ("mode", 1 / 3), ("unanimous", 0), ("any", 1)]
)
def test_the_rule_decides_the_soft_score_too(rule, yes):
    """The default metric uses probabilities: with those of the heads, no hard rule and no weight would change it."""
    verdict = combine(PLAIN, [said("yes"), said("no"), said("no")], rule=rule, weights=[3, 1, 1])
    assert verdict.probabilities == {"yes": pytest.approx(yes), "no": pytest.approx(1 - yes)}
    assert verdict.method == "votes" and len(verdict.votes) == 3
    assert score_checklist(Checklist(items=(PLAIN,)), [verdict]).primary_score == pytest.approx(yes)


def test_votes_are_shown_as_the_panel_counted_them():
    """Also when the score, or a stored score that is scored again, has another threshold than the panel."""
    panel = PanelJudge([Voter(sure(0.55)), Voter(sure(0.9))], rule="majority", threshold=0.5)
    scorer = ChecklistScorer(judge=panel, threshold=0.95)
    score = scorer.score([PLAIN], "text")
    for found in (score, rescore(Checklist(items=(PLAIN,)), score)):
        (line,) = found.items
        assert (line.answer, [vote.answer for vote in line.votes], line.agreement) == ("yes", ["yes", "yes"], 1)


def test_only_the_rule_any_refuses_options():
    panels = [PanelJudge([Voter(sure(0.9)), Voter(sure(0.8))], rule=rule) for rule in ("any", "mean")]
    for panel, item in ((panels[0], PLAIN), (panels[1], GRADED)):
        panel.check_item(item, "row 3")
    with pytest.raises(ChecklistError, match="row 3: item .* has options, but the rule any supports"):
        panels[0].check_item(GRADED, "row 3")


@pytest.mark.parametrize(
    ("failures", "quorum", "reason", "transient"),
    [
        (["too_long", "backend_error: status 500"], 0.6, "backend_error: ", True),
        (["quorum: timeout: 0 of 2 judges answered", "off_label"], 0.6, "timeout: ", True),
        (["too_long", "off_label"], 0.6, "", False),
        (["timeout", "too_long"], 1, "", False),  # permanent failures rule it out
    ],
)
def test_a_quorum_is_asked_for_again_where_that_may_help(failures, quorum, reason, transient):
    votes = [said("yes"), *(Verdict(unanswered=failure) for failure in failures)]
    found = combine(PLAIN, votes, quorum=quorum).unanswered
    assert (found, is_transient(found)) == (f"quorum: {reason}1 of 3 judges answered", transient)


def test_a_reward_asks_a_panel_again_that_lost_its_quorum():
    fails = iter([Verdict(unanswered="timeout"), sure(0.9)])
    panel = PanelJudge([Voter(sure(0.8)), Voter(lambda read: next(fails))], quorum=1)
    [score] = ChecklistScorer(judge=panel).score_batch([Sample(["Is it?"], "text")], retries=1)
    assert score.primary_score == pytest.approx(0.85)


def test_a_judge_without_a_server_is_a_failure_while_there_is_a_quorum(caplog):
    seen: list[int] = []
    panel = PanelJudge([Voter(sure(0.9), "a"), Absent("b"), Voter(sure(0.8), "c")])
    [score] = ChecklistScorer(judge=panel).score_batch([Sample([PLAIN, PENALTY], "text")], progress=seen.append)
    assert score.items[0].confidence == pytest.approx(0.85)
    reasons = [vote.unanswered for vote in score.items[0].votes]
    assert reasons == [None, "backend_error: no server answers for b", None]
    assert "continuing without the judge b" in caplog.text and sum(seen) == 2 and min(seen) >= 0


def test_without_a_quorum_it_is_an_error():
    with pytest.raises(NoServerError, match="no server answers for b"):
        PanelJudge([Voter(sure(0.9)), Absent("b")], weights=[1, 2]).answer([Ask(PLAIN, "text")])
    with pytest.raises(NoServerError, match="no server answers for a"):
        PanelJudge([Absent("a"), Absent("b")], quorum=0).answer([Ask(PLAIN, "text")])


def test_votes_and_agreement_are_in_the_score_and_survive_a_rescore():
    checklist = Checklist.parse([PLAIN, "Is it kind?"])
    panel = PanelJudge([Voter(sure(0.9), "a"), Voter(sure(0.2), "b"), Voter(DEAD, "c")])
    score = ChecklistScorer(judge=panel).score(checklist, "text")
    line = score.items[0]
    assert line.judge == panel.name == "mean of a, b, c"
    assert [vote.answer for vote in line.votes] == ["yes", "no", None]
    assert line.votes[2].unanswered == "backend_error: gone"
    assert (line.answer, line.agreement) == ("no", 0.5)  # .55 is under the threshold; one of two agrees
    again = rescore(checklist, score, Aggregation(threshold=0.5))
    assert (again.items[0].answer, again.items[0].agreement) == ("yes", 0.5)
    assert again.items[0].votes == line.votes
    alone = score_checklist(Checklist.parse(["Is it?"]), [sure(0.9)]).items[0]
    assert (alone.votes, alone.agreement) == (None, None)


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        (PanelJudge, {"rule": "average"}, "rule='average' is not known; allowed: 'mean', 'median'"),
        (PanelJudge, {"weights": [1]}, "one number above 0 for each of 2 judges"),
        (PanelJudge, {"weights": [1, float("nan")]}, "one number above 0"),
        (PanelJudge, {"quorum": 2}, "quorum=2"),
        (CascadeJudge, {"margin": 1.5}, "a number from 0 to 1"),
        (CascadeJudge, {"mass": -0.1}, "a number from 0 to 1"),
    ],
)
def test_settings_are_refused(kind, settings, complaint):
    with pytest.raises(SampleError, match=complaint):
        kind([Voter(DEAD), Voter(DEAD)], **settings)
    judge = Voter(DEAD)
    with pytest.raises(SampleError, match="two or more different judges"):
        kind([judge, judge])


# --- cascades: what a cheap judge is unsure of goes on ---------------------------------------------------------------


CHECKLIST = ["Is it sure?", "Is it unsure?", "Is it lost?"]


def cheap(read):
    return {"Is it sure?": sure(0.95), "Is it unsure?": sure(0.55), "Is it lost?": DEAD}[read.item.question]


def judged(*judges, **settings):
    """The lines of the checklist."""
    cascade = CascadeJudge([judge if isinstance(judge, Voter) else Voter(judge) for judge in judges], **settings)
    return ChecklistScorer(judge=cascade, min_answered=0).score(CHECKLIST, "text").items


def test_only_the_unsure_and_the_unanswered_go_on():
    strong = Voter(sure(0.1), "strong")
    one, two, three = judged(cheap, strong)
    assert [read.item.question for read in strong.asked] == CHECKLIST[1:]
    assert [line.answer for line in (one, two, three)] == ["yes", "no", "no"] and one.votes is None
    assert [vote.answer for vote in two.votes] == ["no", "no"]
    assert [vote.unanswered for vote in three.votes] == [DEAD.unanswered, None]


@pytest.mark.parametrize(
    ("first", "settings", "asked"),
    [
        (cheap, {"margin": 0}, CHECKLIST[2:]),
        (sure(0.75), {"margin": 0.5}, []),
        (sure(0.99, mass=0.6), {"mass": 0.9}, CHECKLIST),
        (Verdict(answer="no"), {}, []),  # a word is sure
    ],
)
def test_margin_and_mass_decide_what_goes_on(first, settings, asked):
    strong = Voter(sure(0.9))
    judged(first, strong, **settings)
    assert [read.item.question for read in strong.asked] == asked


def test_where_a_judge_fails_the_others_answer_unless_none_is_left():
    sure_, unsure, lost = judged(cheap, DEAD)
    assert unsure.probabilities["yes"] == pytest.approx(0.55) and lost.unanswered == DEAD.unanswered
    assert [line.answer for line in judged(cheap, Absent())] == ["yes", "no", None]
    assert [line.answer for line in judged(Absent(), sure(0.9))] == ["yes", "yes", "yes"]
    with pytest.raises(NoServerError, match="no server answers for one"):
        judged(Absent("one"), Absent())


def test_three_stages_and_the_progress_of_each_read_once():
    seen, last = [], Voter(sure(0.9), "last")
    scorer = ChecklistScorer(judge=CascadeJudge([Voter(cheap), Voter(sure(0.6)), last]))
    scorer.score_batch([Sample(CHECKLIST, "text")], progress=seen.append)
    assert len(last.asked) == 2 and seen == [1, 0, 2]
    assert scorer.receipt.reads == 3 + 2 + 2


def test_the_margin_of_options_is_between_the_best_two():
    assert margin_of(Verdict({"a": 0.5, "b": 0.3, "c": 0.2})) == pytest.approx(0.2)
    assert margin_of(sure(0.2)) == pytest.approx(0.6)
    assert margin_of(Verdict(answer="yes")) is None
