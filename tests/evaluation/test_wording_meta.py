"""A checklist about checklists, and other wordings of its questions."""

import json

from checklist_rewards import ChecklistScorer
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.evaluation.wording import ITEM_QUESTIONS, Paraphraser, reads_of, review, reworded
from tests.judges.fakes import Script
from tests.judges.voters import DEAD, Voter, sure

LIST = Checklist.parse(["Is it short and kind?", "Is it short?"])


def careful(read):
    """Says that what has an "and" is not atomic, that nothing leads, and that all is covered."""
    if read.item.category == "atomic":
        return sure(0.1 if " and " in read.target else 0.9)
    return sure(0.1 if read.item.weight < 0 else 0.9)


def test_every_item_and_the_whole_are_judged():
    judge = Voter(careful)
    [one] = review([(LIST, "Be short and kind.")], ChecklistScorer(judge=judge))
    assert one.pass_rates == {
        "atomic": 0.5, "answerable": 1, "observable": 1, "not_leading": 1, "covers_input": 1, "not_repetitive": 1,
    }  # fmt: skip
    assert one.items[0].primary_score < one.items[1].primary_score
    assert len(judge.asked) == reads_of(LIST) == 2 * len(ITEM_QUESTIONS) + 2
    assert {read.input for read in judge.asked} == {"Be short and kind."}
    assert judge.asked[-1].target == "- Is it short and kind?\n- Is it short?"


def test_what_the_judge_does_not_say_is_not_a_fault():
    [one] = review([(LIST, None)], ChecklistScorer(judge=Voter(DEAD)))
    assert set(one.pass_rates.values()) == {None}
    assert one.whole.primary_score is None


def test_other_wordings_change_the_words_alone():
    item = ChecklistItem(question="Is it short?", weight=-2, category="form")
    script = Script([json.dumps({"wordings": ["Is it brief?", "Is it short?", "Is it concise?"]})])
    writer = Paraphraser("any", backend=script, store=False)
    [[one, two]] = writer.reword([item])
    assert [one.question, two.question] == ["Is it brief?", "Is it concise?"]
    assert (one.weight, one.category) == (-2, "form") and one.id != item.id
    assert reworded(Checklist.parse([item]), [[one, two]], 1).items == (two,)
    assert writer.unchanged == 0


def test_an_unreadable_reply_leaves_the_words_as_they_are():
    writer = Paraphraser("any", backend=Script(lambda messages: "no json here"), store=False, max_attempts=2)
    [wordings] = writer.reword([ChecklistItem(question="Is it short?")])
    assert [item.question for item in wordings] == ["Is it short?"] * 2
    assert writer.unchanged == 1
