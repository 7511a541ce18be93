"""Options in every mode: no label gains by its place, and abstaining is an answer where an item allows it."""

import json
import math
from collections import Counter
from statistics import fmean

import pytest

from checklist_rewards import Checklist, ChecklistItem, ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, LogprobJudge, ReasonedJudge
from checklist_rewards.judges.questions import in_order, leading_label, named
from checklist_rewards.scores import Verdict, answer_of
from checklist_rewards.scores.scales import ordinal_scale, with_abstention
from tests.judges.fakes import SHORT, Lettered, Script, answers, options

CLEAR = ChecklistItem(question="How clear is it?", options=options(murky=0, fair=0.4, clear=0.5, lucid=1))
TARGETS = [f"Text number {number}." for number in range(1000)]


def scored(backend, targets=TARGETS, **settings):
    scorer = ChecklistScorer(backend=backend, store=False, **settings)
    return scorer.score_batch([Sample(Checklist(items=(CLEAR,)), target) for target in targets])


def test_a_judge_that_always_says_a_gives_the_mean_of_the_options_over_targets():
    scores = scored(Lettered(lambda shown: {"A": 1.0}))
    # The options' mean is 0.475 and their standard deviation 0.356, so the mean of 1000 has an error of 0.0113.
    assert fmean(score.expected_score for score in scores) == pytest.approx(0.475, abs=4 * 0.0113)
    chosen = Counter(score.items[0].answer for score in scores)
    assert all(count == pytest.approx(250, abs=4 * math.sqrt(1000 * 0.25 * 0.75)) for count in chosen.values())
    assert len(chosen) == 4


def first_listed(messages) -> str:
    listed = messages[-1]["content"].split("Possible answers: ")[1].splitlines()[0]
    answer = {"index": 1, "reasoning": "so", "answer": listed.split(", ")[0]}
    return json.dumps({"answers": [answer]} if "numbered from 1" in messages[-1]["content"] else answer)


@pytest.mark.parametrize("settings", [{"capture_reasoning": True}, {"mode": "batch"}])
def test_so_does_a_judge_that_writes_and_always_names_what_stands_first(settings):
    scores = scored(Script(first_listed), metric="weighted", **settings)
    assert fmean(score.primary_score for score in scores) == pytest.approx(0.475, abs=4 * 0.0113)


# --- the place of an option ------------------------------------------------------------------------------------------


def orders(item, targets=TARGETS, **settings):
    return {in_order(item, target, "judge", **settings) for target in targets}


def test_the_order_depends_on_question_target_and_judge_and_each_label_comes_first_as_often():
    assert len(orders(CLEAR, lettered=True)) == math.factorial(4)  # every order comes up
    first = Counter(in_order(CLEAR, target, "judge", lettered=True)[0] for target in TARGETS)
    assert len(first) == 4
    assert all(count == pytest.approx(250, abs=4 * math.sqrt(1000 * 0.25 * 0.75)) for count in first.values())
    backwards = ChecklistItem(question=CLEAR.question, id="x", weight=-3, options=tuple(reversed(CLEAR.options)))
    for target in TARGETS[:20]:
        assert in_order(backwards, target, "judge") == in_order(CLEAR, target, "judge")
    other_question = ChecklistItem(question="How clear?", options=CLEAR.options)
    for item, judge in ((CLEAR, "another judge"), (other_question, "judge")):
        assert any(in_order(item, target, judge) != in_order(CLEAR, target, "judge") for target in TARGETS[:20])


def test_grades_keep_their_order_unless_they_are_read_by_letters():
    grades = ChecklistItem(question="q?", options=options(**{"10": 0, "20": 0.3, "30": 0.6, "40": 1}))
    assert orders(grades, TARGETS[:200]) == {("10", "20", "30", "40")}
    assert len(orders(grades, TARGETS[:200], lettered=True)) == math.factorial(4)
    single = ChecklistItem(question="q?", options=options(**{"1": 0, "2": 1}))
    assert orders(single, TARGETS[:50], lettered=True) == {("1", "2")}
    mixed = with_abstention([ChecklistItem(question="q?", options=ordinal_scale(5))]).items[0]
    assert orders(mixed, TARGETS[:50]) == {tuple(mixed.values)}  # in words
    assert len(orders(mixed, lettered=True)) > 500  # as letters


def test_another_label_is_another_read_and_another_value_is_not(tmp_path):
    def asked(backend, item):
        judge = LogprobJudge(Engine("one", backend), store=Store(tmp_path / "s"))
        return answers(judge, item, target=TARGETS[0])

    [verdict] = asked(Lettered(lambda shown: {"A": 0.7, "B": 0.1}), CLEAR)
    again = Lettered(lambda shown: {"A": 1.0})
    other_values = options(murky=1, fair=0, clear=0, lucid=0)
    assert asked(again, ChecklistItem(question=CLEAR.question, options=other_values)) == [verdict]
    assert again.asked == []  # values change what an answer is worth, not what was asked
    renamed = options(murky=0, fair=0.4, clear=0.5, bright=1)
    asked(again, ChecklistItem(question=CLEAR.question, options=renamed))
    assert len(again.asked) == 1


def test_a_judge_that_writes_is_shown_the_same_order_and_answers_by_the_label():
    backend = Script(lambda messages: json.dumps({"reasoning": "so", "answer": "clear"}))
    verdicts = ReasonedJudge(backend).answer([Ask(CLEAR, target) for target in TARGETS[:40]])[0]
    assert {verdict.answer for verdict in verdicts} == {"clear"} and len(backend.samplings) == 1  # one schema for all
    shown = [in_order(CLEAR, target, "pocket") for target in TARGETS[:40]]
    for labels, messages in zip(shown, backend.prompts, strict=True):
        question, form = messages[-1]["content"].split("## Question")[1].split("Reply with a JSON")
        assert f"Possible answers: {', '.join(labels)}" in question
        assert f'"{labels[0]}", "{labels[1]}", "{labels[2]}" or "{labels[3]}"' in form
    assert len(set(shown)) > 10
    commas = ChecklistItem(question="q?", options=options(**{"clear, all of it": 1, "clear": 0}))
    answers(ReasonedJudge(backend), commas)
    assert "\n- clear, all of it" in backend.prompts[-1][-1]["content"]


# --- abstaining ------------------------------------------------------------------------------------------------------

SOURCE = with_abstention([{"question": "Is the source right?", "weight": 2}]).items[0]


PENALTY = SOURCE.model_copy(update={"weight": -2.0})


def test_with_abstention_every_question_may_be_answered_cannot_assess():
    penalty, checked = {"question": "a?", "weight": -3, "required": True}, {"question": "b?", "check": "{}"}
    checklist = with_abstention([penalty, CLEAR, SOURCE, checked])
    a, clear, source, coded = checklist.items
    assert a.values == {"yes": 1.0, "no": 0.0, "cannot_assess": None} and (a.weight, a.required) == (-3, True)
    assert list(clear.values) == [*CLEAR.values, "cannot_assess"] and clear.id != CLEAR.id
    assert source == SOURCE and coded.options is None  # it may already; code does not abstain
    assert with_abstention(checklist) == checklist
    assert (a.yes_no, clear.yes_no, SHORT.yes_no) == (True, False, True)


@pytest.mark.parametrize(
    ("shares", "answer"),
    [
        ({"yes": 0.55, "no": 0.35, "cannot_assess": 0.1}, "yes"),  # 0.61 of yes and no
        ({"yes": 0.5, "no": 0.4, "cannot_assess": 0.1}, "no"),  # 0.56: below the threshold, though likelier than no
        ({"yes": 0.4, "no": 0.1, "cannot_assess": 0.5}, "cannot_assess"),
        ({"yes": 0.3, "no": 0.4, "cannot_assess": 0.3}, "no"),
    ],
)
def test_yes_no_or_cannot_assess_is_read_in_one_token_and_the_threshold_holds(shares, answer):
    backend = Lettered(lambda shown: {letter: shares[label] for letter, label in shown.items()})
    [item] = ChecklistScorer(backend=backend, store=False).score([SOURCE], "Hi.").items
    assert item.answer == answer and item.confidence == pytest.approx(shares[answer])
    assert item.probabilities == pytest.approx(shares)
    assert answer_of(SOURCE, Verdict(shares)) == answer


def in_words(messages) -> str:
    text = messages[-1]["content"]
    if "numbered from 1" in text:
        answers = [{"index": 1, "justification": "so", "reasoning": "so", "answer": "yes"}]
        answers.append({"index": 2, "justification": "so", "reasoning": "so", "answer": "N/A"})
        return json.dumps({"answers": answers, "grade": 3})
    return json.dumps({"reasoning": "so", "answer": "N/A" if "cannot_assess" in text else "yes"})


def abstains(shown: dict[str, str]) -> dict[str, float]:
    return {letter: float(label == "cannot_assess") for letter, label in shown.items()}


MODES = {
    "logprobs": {"backend": Lettered(abstains, lambda prefix, tail: 1.0)},
    "reasoned": {"backend": Script(in_words), "capture_reasoning": True},
    "samples": {"backend": Script(in_words), "capture_reasoning": True, "votes": 3},
    "batch": {"backend": Script(in_words), "mode": "batch"},
    "quality": {"backend": Script(in_words), "mode": "quality", "metric": "weighted"},
}


@pytest.mark.parametrize("mode", MODES)
def test_an_abstention_is_an_answer_and_counts_in_every_mode(mode):
    scorer = ChecklistScorer(store=False, abstention="fail", **MODES[mode])
    for item, expected in ((SOURCE, 0.5), (PENALTY, 0.0)):  # (2 + 0)/4; (2 - 2)/2
        score = scorer.score([ChecklistItem(question="Is it polite?", weight=2), item], "Hi.")
        assert [line.answer for line in score.items] == ["yes", "cannot_assess"]
        assert score.primary_score == pytest.approx(expected, abs=1e-9)
        assert score.answered == 2 and score.answered_weight == 1.0  # an abstention is an answer
        assert score.lower == score.upper == score.primary_score


# --- which label the words of a judge name, without guessing ---------------------------------------------------------


STEPS = ChecklistItem(question="How short?", options=ordinal_scale(101))
KIND = ChecklistItem(question="Tone?", options=options(not_kind=0, kind=1, cannot_assess=None))
CASE = ChecklistItem(question="a?", options=options(a=0, A=1))


@pytest.mark.parametrize(
    ("item", "label", "given"),
    [
        (SHORT, "yes", ["yes", "Yes", "true"]),
        (SHORT, "no", [" **NO**. ", False]),
        (SHORT, None, ["N/A", "maybe", "yes and no", "", None, 1, ["yes"], 10**400]),
        (STEPS, "85", [85, 85.0]),
        (STEPS, "100", ["100"]),
        (STEPS, None, ["101", True]),
        (KIND, "not_kind", ["Not kind"]),
        (KIND, "cannot_assess", ["N/A", "cannot assess"]),
        (KIND, None, ["true"]),
        (CASE, "a", ["a"]),
        (CASE, "A", ["A"]),
        (CASE, None, [" A."]),
    ],
)
def test_a_json_answer_names_a_label_or_none(item, label, given):
    assert [named(answer, item) for answer in given] == [label] * len(given)


HAN = ChecklistItem(question="短い？", options=[{"label": "是", "value": 1}, {"label": "否", "value": 0}])
RIGHT = ChecklistItem(
    question="对吗？", options=[{"label": "答案正确", "value": 1}, {"label": "答案错误", "value": 0}]
)


@pytest.mark.parametrize(
    ("item", "label", "replies"),
    [
        (SHORT, "yes", ["Yes.", "Answer: **yes**"]),
        (SHORT, "no", ["No. It does not say yes.", "The answer is no.", "<think>No, wait ... yes?</think>\nno"]),
        (SHORT, None, ["<think>it says yes", "Yes and no", "Yesterday it was short.", "The response is short."]),
        (STEPS, "10", ["10"]),
        (STEPS, "85", ["85: nearly perfect"]),
        (STEPS, None, ["1.5"]),
        (KIND, "kind", ["kind\nIt thanks the reader."]),
        (SHORT, "yes", ["Yes。", "yes，因为很短", "**Yes**。", "「Yes」", "答案：yes", "yes؛"]),
        (SHORT, None, ["yes和no", "答案：不清楚"]),
        (HAN, "是", ["是。", "是，因为很短", "答案是：是", "「是」", "是！"]),
        (HAN, None, ["是的", "是否"]),
        (RIGHT, "答案正确", ["答案正确", "答案正确，因为很短"]),
    ],
)
def test_a_free_reply_says_the_label_it_begins_with(item, label, replies):
    assert [leading_label(reply, item) for reply in replies] == [label] * len(replies)
