"""Reading scored rows and labels: what is matched, and what is refused with which sentence."""

import re
from dataclasses import replace

import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.labels import Labels, pairs_of
from checklist_rewards.evaluation.scored import (
    ScoredFile,
    ScoredText,
    answer_given,
    kind_of,
    read_scored,
    shown_completion,
)
from checklist_rewards.rows import Columns
from tests.evaluation.files import ABSTAINING, GRADED, LOST, copied, labelled, scored_file
from tests.jsonl import write_jsonl

CALL = {"role": "assistant", "content": "Wait.", "tool_calls": [{"function": {"name": "find", "arguments": {}}}]}


def only(path, **options):
    [row] = read_scored(path, **options)
    return row


def labels_of(row, value, key):
    [text] = labelled([replace(row, data={**row.data, key: value})], key)
    return text.labels


def row_of(tmp_path, *checklist, **more):
    said = [{"poor": 0.5, "fine": 0.5} if item is GRADED else 0.9 for item in checklist]
    return only(scored_file(tmp_path / "s.jsonl", {"checklist": list(checklist), "said": said, **more}))


def test_answers_are_read_with_their_soft_values(tmp_path):
    said = [0.7, {"poor": 0.25, "fine": 0.75}, {"yes": 0.3, "no": 0.1, "cannot_assess": 0.6}, LOST, "no"]
    checklist = ["Is it red?", GRADED, ABSTAINING, "Is it big?", "Is it old?"]
    row = only(scored_file(tmp_path / "s.jsonl", {"checklist": checklist, "said": said}))
    answers = [answer_given(item, line) for item, line in zip(row.items, row.score.items, strict=True)]
    assert [a and (a.label, a.value, a.soft) for a in answers] == [
        ("yes", 1, 0.7),
        ("fine", 1, 0.75),
        ("cannot_assess", None, pytest.approx(0.75)),  # of the labels that carry a value
        None,
        ("no", 0, 0),  # in words, without probabilities
    ]
    assert [kind_of(item) for item in row.items[:3]] == [
        "yes/no",
        "poor=0 | fine=1",
        "yes=1 | no=0 | cannot_assess=na",
    ]


def test_labels_by_item_id_may_leave_items_out_and_a_number_labels_the_whole_target(tmp_path):
    row = row_of(tmp_path, "Is it red?", "Is it big?", "Is it red?")
    assert row.keys[2] == f"{row.keys[0]}#2"  # the same question again has a key of its own
    found = labels_of(row, {row.keys[1]: "no", row.keys[2]: True}, "labels")
    assert [answer and answer.label for answer in found] == [None, "no", "yes"]
    stars = [replace(row, data={**row.data, "stars": value}) for value in (4, "0.5", None, "")]
    assert [text.labels for one in stars[:2] for text in labelled([one, *stars[2:]], "stars")] == [
        *(4.0, None, None),
        *(0.5, None, None),
    ]
    [single] = labels_of(row_of(tmp_path, "Is it red?"), True, "labels")  # of a row with one item, a bare label
    assert single.label == "yes"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([True], "line 1: 'labels' has 1 labels for 2 items"),
        (
            [True, "great"],
            "line 1, item 2 ('How clear?'): the label 'great' is not an answer of this item; allowed: poor, fine",
        ),
        ({"nobody": True}, "an item 'nobody' that is not in the score"),
        ("perhaps", "must be a list of 2 labels (one per item)"),
        (float("nan"), "must be a finite number"),
    ],
)
def test_what_cannot_be_a_label_is_refused(tmp_path, value, words):
    row = row_of(tmp_path, "Is it red?", GRADED)
    with pytest.raises(SampleError, match=re.escape(words)):
        labels_of(row, value, "labels")


def test_groups_and_ids_come_from_columns(tmp_path):
    row = {"checklist": ["Is it red?"], "said": [0.9]}
    path = scored_file(tmp_path / "s.jsonl", {**row, "id": "a", "doc": 7}, {**row, "id": "b", "doc": 7})
    assert [(r.id, r.group) for r in read_scored(path, group_key="doc")] == [("a", "7"), ("b", "7")]
    assert [(r.id, r.group) for r in read_scored(path)] == [("a", "a"), ("b", "b")]
    with pytest.raises(SampleError, match="line 2: 'doc' is '7', as in .*line 1"):
        read_scored(path, id_key="doc")
    with pytest.raises(SampleError, match=r"'page' is missing or empty \(--group-key\)"):
        read_scored(path, group_key="page")


def test_options_need_a_checklist_that_says_what_they_count_for_unless_they_are_a_scale(tmp_path):
    def unknown(checklist, said):
        path = scored_file(tmp_path / "s.jsonl", {"checklist": checklist, "said": [said]})
        path.write_text(path.read_text().replace('"checklist":', '"questions":'))
        return path

    path = unknown([GRADED], {"poor": 0.5, "fine": 0.5})
    with pytest.raises(SampleError, match="is answered by poor, fine, but the values of these labels are unknown"):
        read_scored(path)
    assert only(path, checklist="questions").known
    assert only(path, shared=Checklist.parse([GRADED])).items[0].values == {"poor": 0, "fine": 1}
    scale = [{"label": str(i), "value": i / 2} for i in range(3)]
    row = only(unknown([{"question": "Polite?", "options": scale}], {"0": 0.0, "1": 0.5, "2": 0.5}))
    assert row.items[0].values == {"0": 0, "1": 0.5, "2": 1} and not row.known  # nobody knows its weight


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_every_format_holds_the_same_and_a_row_without_an_id_has_its_number(tmp_path, ending):
    row = {"checklist": ["Is it red?", GRADED], "said": [0.9, {"poor": 1.0, "fine": 0.0}]}
    path = scored_file(tmp_path / "s.jsonl", {**row, "id": "a"}, {**row, "id": None}, {**row, "id": "c"})
    copy = copied(path, f"t.{ending}")
    assert [text.score for text in read_scored(copy)] == [text.score for text in read_scored(path)]
    assert [text.id for text in ScoredFile(copy)] == [text.id for text in read_scored(copy)] == ["a", "2", "c"]


def test_files_of_other_rows_are_refused(tmp_path):
    row = {"checklist": ["Is it red?"], "said": [0.9]}
    one = scored_file(tmp_path / "one.jsonl", {**row, "id": "a"})
    other = scored_file(tmp_path / "other.jsonl", {**row, "id": "b"}, {**row, "id": "c"})
    with pytest.raises(SampleError, match="have no row id in common: the first ids are 'a' and 'b'"):
        pairs_of(read_scored(one), read_scored(other), ("one", "other"))


def test_a_labels_file_with_a_repeated_id_is_refused_unless_it_is_read_leniently(tmp_path):
    row = {"checklist": ["Is it red?"], "said": [0.9]}
    scored = scored_file(tmp_path / "s.jsonl", {**row, "id": "a"}, {**row, "id": "b"})
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "labels": ["yes"]}\n{"id": "a", "labels": ["no"]}\n{"id": "b"}\n{"id": "c"}\n')
    strict = Labels(path)
    with pytest.raises(SampleError, match="duplicate id 'a'; ids must be unique"):
        strict.of(strict.read(scored))
    texts, unmatched = Labels(path, lenient=True).of(strict.read(scored))
    found = [[answer and answer.label for answer in text.labels or ()] for text in texts]
    assert found == [["no"], []] and unmatched == 1


def test_the_texts_of_two_files_are_compared_as_the_judge_saw_them(tmp_path):
    item = {"checklist": ["Is it red?"], "said": [0.9]}

    def file(name, *targets):
        return scored_file(tmp_path / name, *(item | {"id": str(n), "target": text} for n, text in enumerate(targets)))

    path = file("s.jsonl", [{"role": "assistant", "content": "It is red."}], "42", "Red.", "Red.", "Red.")
    one = read_scored(path)
    cases = {
        copied(path, "s.csv"): 5,
        file("t.jsonl", "It is red.", "42", "Red.\r\n", " Red.", "<think>Red?</think>Red."): 5,
        scored_file(tmp_path / "u.jsonl", item | {"id": "1"}): 1,  # without texts, nothing is known
    }
    for other, pairs in cases.items():
        assert len(pairs_of(one, read_scored(other), ("one", "other"))[0]) == pairs
    for targets, complaint in (
        (("It is red.", "43"), "the same id '1', but their texts differ: '42' and '43'"),
        (("It is blue.", "42"), "the same id '0', but their texts differ: 'It is red.' and 'It is blue.'"),
    ):
        other = read_scored(file("v.jsonl", *targets))
        with pytest.raises(SampleError, match=complaint):
            pairs_of(one, other, ("one", "other"))
        assert len(pairs_of(one, other, ("one", "other"), same_texts=False)[0]) == 2


TEXTS = [{"prompt": f"Name {n}.", "reply": f"text {n}", "checklist": ["Is it red?"], "said": [0.9]} for n in range(3)]
GOLD = [{**row, "target": "A", "response": row["reply"]} for row in TEXTS]  # of lm-evaluation-harness


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize(("rows", "target"), [(TEXTS, None), (TEXTS, "reply"), (GOLD, None), (GOLD, "response")])
def test_rows_whose_text_is_unknown_are_warned_of_and_never_joined_by_number_alone(
    tmp_path, rows, target, ids, caplog, monkeypatch
):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    rows = [{**row, "id": f"x{n}"} for n, row in enumerate(rows)] if ids else rows
    others = [{**row, "reply": "other", "response": "other"} for row in rows]

    def paired(others, **options):
        sides = [scored_file(tmp_path / name, *side) for name, side in (("a.jsonl", rows), ("b.jsonl", others))]
        return len(pairs_of(*(read_scored(side, target=target) for side in sides), ("a", "b"), **options)[0])

    assert paired(rows) == 3
    assert read_scored(tmp_path / "a.jsonl", target=target)[0].text == rows[0].get(target or "target")  # is shown
    said = [message for message in caplog.messages if "because one of the two has no text in this column" in message]
    assert len(said) == (target is None) and all(f"by {'id' if ids else 'row number'} alone" in one for one in said)
    if target is None:
        assert paired(others) == 3
    else:
        with pytest.raises(SampleError, match="but their texts differ"):
            paired(others)
    assert paired(others, same_texts=False) == 3
    if ids:
        assert paired(rows[::-1]) == paired(others[::-1], same_texts=False) == 3
    else:
        with pytest.raises(
            SampleError, match="their texts differ" if target else "their prompts differ: 'Name 0.' and"
        ):
            paired(rows[::-1])
        with pytest.raises(SampleError, match="matched by their row number, but their prompts differ"):
            paired(others[::-1], same_texts=False)


@pytest.mark.parametrize(
    ("image", "other", "same"),
    [
        ({"image": "a/red.png"}, {"image": "a/blue.png"}, False),
        ({"image": "a/red.png"}, {"image": "../x/a/red.png"}, True),  # of another folder
        ({"image": {"hash": "0", "path": "red.png"}}, {"image": {"hash": "1", "path": "red.png"}}, False),
        ({"image": "red.png"}, {}, True),  # nothing is known of the other
        ({"image": "red.png"}, {"image": {"hash": "1", "path": "red.png"}}, True),  # not compared
    ],
)
def test_equal_words_about_other_images_are_no_pair(image, other, same, tmp_path):
    row = {"id": "a", "prompt": "What is it?", "target": "Red.", "checklist": ["Is it red?"], "said": [0.9]}
    sides = [read_scored(scored_file(tmp_path / f"{n}.jsonl", row | each)) for n, each in enumerate((image, other))]
    if same:
        assert len(pairs_of(*sides, ("one", "other"))[0]) == 1
    else:
        with pytest.raises(SampleError, match="have the same id 'a', but their images differ. Judges are compared"):
            pairs_of(*sides, ("one", "other"))


def test_the_same_words_after_other_turns_are_another_prompt():
    columns = Columns.of({"prompt": ""})
    turns = ["user: Name a colour.", "user: Name an animal.", "", None]
    texts = [ScoredText("", "", data={"prompt": "Go on.", "history": before}, columns=columns) for before in turns]
    assert len({text.prompt_key for text in texts}) == 3 and {text.prompt for text in texts} == {"Go on."}


def test_a_completion_without_an_answer_is_shown_in_full():
    assert shown_completion("<think>a</think>b") == "<think>a</think>b"
    assert shown_completion([{"role": "assistant", "content": "b"}]) == "b"
    assert shown_completion([CALL]) == "assistant: Wait.\n\nassistant calls find()"
    tool = {"role": "tool", "content": "found"}
    assert shown_completion([CALL, tool]) == "assistant: Wait.\n\nassistant calls find()\n\ntool: found"
    assert shown_completion([]) == "" and shown_completion(None) is None and shown_completion(7) == "7"


def test_a_log_shows_what_the_trainer_passed_and_files_with_similar_names_are_not_other_ranks(tmp_path):
    row = {"step": 1, "prompt": "x", "completion": "", "written": "<think>a", "state": "cut_in_thought", "reward": 0}
    write_jsonl(tmp_path / "log.jsonl", {**row, "score": None}, {**row, "completion": "b", "score": None})
    for name in ("log.rank1.jsonl", "log.ranked.jsonl"):
        write_jsonl(tmp_path / name, {**row, "written": "c", "score": None})
    log = ScoredFile(tmp_path / "log.jsonl")
    assert [path.name for path in log.paths] == ["log.jsonl", "log.rank1.jsonl"]
    assert [record.text for record in log] == ["<think>a", "b", "c"]
    for name in ("scored.jsonl", "scored.rank1.jsonl"):
        write_jsonl(tmp_path / name, {"target": "a", "checklist_score": None})
    assert ScoredFile(tmp_path / "scored.jsonl").count() == 1


def test_a_log_is_read_once_unless_its_starts_are_asked_for(tmp_path, monkeypatch):
    def refused(path):
        raise AssertionError("read again")

    row = {"step": 1, "prompt": "x", "completion": "b", "state": "answered", "reward": 0, "score": None}
    log = ScoredFile(write_jsonl(tmp_path / "log.jsonl", row, row | {"evaluation": True}))
    assert [counts for _, counts in log.counted()] == [True, False]
    monkeypatch.setattr("checklist_rewards.files.ranks.read_rows", refused)
    assert [text.text for text in log] == ["b", "b"]
