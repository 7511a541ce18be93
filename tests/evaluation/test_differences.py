"""Pairs of rows of two files, and the answers of their scores that `diff` compares."""

from checklist_rewards import Checklist, Score
from checklist_rewards.evaluation.differences import Matching, stored_reads
from checklist_rewards.scores import Verdict, score_checklist

CHECKLIST = Checklist.parse(["Is it red?", {"question": "Is it rude?", "weight": -1}])
NONE = score_checklist(CHECKLIST, [Verdict(unanswered="no_answer: cut_in_thought")] * 2, state="cut_in_thought")


def groups(one, other):
    with Matching() as matching:
        for side, rows in enumerate((one, other)):
            for key, group, body in rows:
                matching.add(side, key, group, body)
        found = list(matching.groups())
        return found, matching.unmatched(0, 1), matching.unmatched(1, 1)


def test_rows_are_paired_by_key_and_come_by_group():
    one = [(b"2", b"g", "a2"), (b"1", b"f", "a1"), (b"3", b"g", "a3"), (b"9", b"g", "a9")]
    other = [(b"3", b"x", "b3"), (b"1", b"x", "b1"), (b"2", b"x", "b2"), (b"7", b"g", "b7"), (b"8", b"g", "b8")]
    expected = [(b"f", [("a1", "b1")]), (b"g", [("a2", "b2"), ("a3", "b3")])]
    assert groups(one, other) == (expected, (1, ["a9"]), (2, ["b7"]))
    assert groups(one[::-1], other[::-1])[0] == expected
    equal = [(b"1", b"g", "first"), (b"1", b"g", "second")]  # paired in turn
    assert groups(equal, equal[:1]) == ([(b"g", [("first", "first")])], (1, ["second"]), (0, []))
    assert groups(equal[:1], []) == ([], (1, ["first"]), (0, []))


def test_a_score_of_an_earlier_version_has_no_state():
    dumped = NONE.model_dump(mode="json")
    assert Score.model_validate(dumped).recorded_state == "cut_in_thought" == NONE.recorded_state
    del dumped["state"]
    assert Score.model_validate(dumped).recorded_state is None


def test_a_text_without_an_answer_has_a_score_and_no_answers():
    assert NONE.primary_score == 0 and [line.value for line in NONE.items] == [0, 1]
    reads = stored_reads(NONE).values()
    assert [(read.answer, read.p, read.value) for read in reads] == [(None, None, None)] * 2
