"""Pairs of rows of two files, and the answers of their scores that `diff` compares."""

from checklist_rewards import Checklist, Score
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.differences import Differences
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.scores import Verdict, score_checklist

CHECKLIST = Checklist.parse(["Is it red?", {"question": "Is it rude?", "weight": -1}])
NONE = score_checklist(CHECKLIST, [Verdict(unanswered="no_answer: cut_in_thought")] * 2, state="cut_in_thought")


def compared(one, other):
    """The rows that are paired, by group, and the rows of one file only. A row is its id, its prompt and P(yes)."""
    with Differences(by_id=True) as differences:
        for side, rows in enumerate((one, other)):
            for id, prompt, p in rows:
                score = (
                    p if isinstance(p, Score) else score_checklist(CHECKLIST, [Verdict({"yes": p, "no": 1 - p})] * 2)
                )
                data = {"prompt": prompt, "completion": "Red."}
                differences.add(side, ScoredText(id, id, score, data=data, kind="rewards", has_id=True))
        records = list(differences.rows())
        report = differences.report(("one", "other"), Bootstrap(0))
    pairs = [(record["row"], *(line["p_one"] for line in record["items"][:1]), record["prompt"]) for record in records]
    return pairs, records, report


def test_rows_are_paired_by_key_and_come_by_group():
    one = [("2", "g", 0.2), ("1", "f", 0.1), ("3", "g", 0.3), ("9", "g", 0.9)]
    other = [("3", "x", 0.8), ("1", "x", 0.6), ("2", "x", 0.7), ("7", "g", 0.7), ("8", "g", 0.8)]
    for first, second in ((one, other), (one[::-1], other[::-1])):
        pairs, records, report = compared(first, second)
        assert sorted(pairs) == [("1", 0.1, "f"), ("2", 0.2, "g"), ("3", 0.3, "g")]
        assert [prompt for *_, prompt in pairs] in (["f", "g", "g"], ["g", "g", "f"])
        assert {record["row"]: record["items"][0]["p_other"] for record in records} == {"1": 0.6, "2": 0.7, "3": 0.8}
        assert (report.rows, report.only_one.rows, report.only_other.rows) == (3, 1, 2)
        assert (report.only_one.first, set(report.only_other.first)) == (("9",), {"7", "8"})
    equal = [("1", "g", 0.1), ("1", "g", 0.2)]  # paired in turn
    pairs, records, report = compared(equal, equal[:1])
    assert pairs == [("1", 0.1, "g")] and records[0]["change"] == 0 and report.only_one.rows == 1
    _, records, report = compared(equal[:1], [])
    assert records == [] and (report.only_one.rows, report.only_other.rows) == (1, 0)


def test_a_score_of_an_earlier_version_has_no_state():
    dumped = NONE.model_dump(mode="json")
    assert Score.model_validate(dumped).recorded_state == "cut_in_thought" == NONE.recorded_state
    del dumped["state"]
    assert Score.model_validate(dumped).recorded_state is None


def test_a_text_without_an_answer_has_a_score_and_no_answers():
    assert NONE.primary_score == 0 and [line.value for line in NONE.items] == [0, 1]
    _, [record], report = compared([("1", "g", NONE)], [("1", "g", 0.5)])
    assert record["score_one"] == 0 and {(line["one"], line["p_one"]) for line in record["items"]} == {(None, None)}
    assert (report.counts["reads"], report.counts["scored"], report.reads) == (0, 1, ())
