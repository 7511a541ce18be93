"""Pairs of rows of two files."""

from checklist_rewards.evaluation.differences import Matching


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


def test_equal_keys_are_paired_in_turn():
    one = [(b"1", b"g", "first"), (b"1", b"g", "second")]
    assert groups(one, one[:1]) == ([(b"g", [("first", "first")])], (1, ["second"]), (0, []))


def test_nothing_in_common():
    assert groups([(b"1", b"g", "a")], []) == ([], (1, ["a"]), (0, []))
