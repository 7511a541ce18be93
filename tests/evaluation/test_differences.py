"""The answers of a score that `diff` compares; `tests/cli/test_replaying.py` runs the command."""

from checklist_rewards import Checklist
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.differences import Differences
from checklist_rewards.evaluation.scored import ScoredText
from tests.evaluation.files import NO_ANSWER, score_of

CHECKLIST = Checklist.parse(["Is it red?", {"question": "Is it rude?", "weight": -1}])


def test_a_text_without_an_answer_has_a_score_and_no_answers():
    none, judged = score_of(CHECKLIST, *[NO_ANSWER] * 2), score_of(CHECKLIST, 0.5, 0.5)
    assert none.primary_score == 0 and [line.value for line in none.items] == [0, 1]
    with Differences(by_id=True) as differences:
        for side, score in enumerate((none, judged)):
            data = {"prompt": "g", "completion": "Red."}
            differences.add(side, ScoredText("1", "1", score, data=data, kind="rewards", has_id=True))
        [record] = differences.rows()
        report = differences.report(("one", "other"), Bootstrap(0))
    assert record["score_one"] == 0 and {(line["one"], line["p_one"]) for line in record["items"]} == {(None, None)}
    assert (report.counts["reads"], report.counts["scored"], report.reads) == (0, 1, ())
