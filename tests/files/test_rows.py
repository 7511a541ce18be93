"""Files of rows: what is written is read, what is refused, and chat messages in cells of text."""

import csv
import datetime
import io
import json
import math
import os
import signal
import stat
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict, Features, Json, List, Value
from hypothesis import example, given
from hypothesis import strategies as st

from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.cells import csv_text, decoded, from_csv, messages_in
from checklist_rewards.files.rows import FORMATS, read_rows, read_rows_for, write_rows


def read(path):
    return [row.data for row in read_rows(path)]


def write(path, rows):
    with write_rows(path) as out:
        for row in rows:
            out.write(row)
    return path


DAY = datetime.datetime(2026, 1, 2, 3, 4)
NESTED = {"checklist": [{"question": "Is it short?", "weight": 1.5}], "n": 1}
LATE = [{"n": None, "score": {"items": []}}] * 1500 + [{"n": 1, "score": {"items": [{"p": 0.5}], "quality": 3}}]
CALLS = [
    {
        "prompt": [{"role": "assistant", "tool_calls": [{"function": {"arguments": values}}]}],
        "tools": [{"function": values}],
    }
    for values in [{"city": "Rome"}] * 1500 + [{"x": 1}, {}]
]


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("a.parquet", [NESTED], [NESTED]),
        ("a.jsonl", [{"a": math.nan, "b": [math.inf, {"c": -math.inf}]}], [{"a": None, "b": [None, {"c": None}]}]),
        ("a.jsonl", [{"a": "\ud800", "b": "ü"}], [{"a": "\ud800", "b": "ü"}]),
        ("a.csv", [{"a": "\ud800", "b": "ü"}], [{"a": "?", "b": "ü"}]),
        ("a.parquet", [{"a": "\ud800", "b": "ü"}], [{"a": "\ud800", "b": "ü"}]),
        ("a.parquet", [{"t": DAY}], [{"t": DAY}]),
        ("a.jsonl", [{"t": DAY}], [{"t": "2026-01-02T03:04:00"}]),
        ("a.jsonl", [], []),
        # one column for numbers of all kinds and one struct with all fields, however late they come
        # but no argument that a call does not have, however late it comes
        ("a.parquet", CALLS, CALLS),
        ("a.parquet", LATE, [{"n": None, "score": {"items": [], "quality": None}}] * 1500 + [{**LATE[-1], "n": 1.0}]),
    ],
)
def test_a_value_is_read_in_the_form_that_its_file_has_for_it(tmp_path, name, rows, expected):
    assert read(write(tmp_path / name, rows)) == expected


def test_in_csv_a_list_stands_in_its_cell_as_json_and_null_is_empty(tmp_path):
    path = write(tmp_path / "rows.csv", [{"checklist": ["Is it short?"], "score": 0.5, "none": None, "flag": True}])
    assert path.read_bytes().decode() == 'checklist,score,none,flag\r\n"[""Is it short?""]",0.5,,true\r\n'


@pytest.mark.parametrize(("extension", "missing"), [(".csv", ""), (".parquet", None)])
def test_rows_need_not_have_the_same_keys(tmp_path, extension, missing):
    path = write(tmp_path / f"rows{extension}", [{"a": "1"}, {"b": "2"}])
    assert read(path) == [{"a": "1", "b": missing}, {"a": missing, "b": "2"}]


@pytest.mark.parametrize("extension", FORMATS)
def test_nothing_appears_when_the_block_fails_and_what_was_there_stays(tmp_path, extension):
    path = tmp_path / f"rows{extension}"
    with pytest.raises(KeyboardInterrupt), write_rows(path) as out:
        out.write({"a": "1"})
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    write(path, [{"a": "old"}])
    with pytest.raises(ZeroDivisionError), write_rows(path) as out:
        out.write({"a": 1 / 0})
    assert read(path) == [{"a": "old"}]
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from checklist_rewards.files.rows import write_rows
with write_rows(sys.argv[1]) as rows:
    rows.write({"a": 1})
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("extension", [".jsonl", ".parquet"])
def test_what_a_killed_process_left_is_removed_and_what_another_one_writes_is_not(tmp_path, extension):
    path = tmp_path / f"rows[1]{extension}"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert killed.returncode == -signal.SIGKILL and len(os.listdir(tmp_path)) == 1
    neighbours = [tmp_path / name for name in (f".rows1{extension}.00000000.tmp", f".rows[1]{extension}.tmp")]
    for neighbour in neighbours:
        neighbour.touch()
    with write_rows(path) as alive:
        [being_written] = set(tmp_path.iterdir()) - set(neighbours)
        write(path, [{"a": "2"}])
        assert set(tmp_path.iterdir()) == {path, being_written, *neighbours} and read(path) == [{"a": "2"}]
        alive.write({"a": "3"})
    assert set(tmp_path.iterdir()) == {path, *neighbours} and read(path) == [{"a": "3"}]


def test_what_the_output_cannot_hold_is_refused_while_rows_are_read(tmp_path):
    image = write(tmp_path / "images.parquet", [{"n": 1, "image": None}, {"n": 2, "image": {"bytes": b"\x89PNG"}}])
    deep = []
    for _ in range(900):
        deep = [deep]
    half = write(tmp_path / "half.jsonl", [{"a": 1}, {"a": 1, "\ud800": 2}])
    levels = write(tmp_path / "levels.jsonl", [{"v": 1}, {"v": deep}])
    why = r", row 2, 'image': a value of type bytes cannot be written as JSON: .* .drop the column"
    named = r", line 2, a Parquet column cannot be named '\\ud800': an unpaired surrogate is not valid"
    for path, output, message in (
        (image, "out.csv", why),
        (half, "out.parquet", named),
        (levels, "out.parquet", ", line 2, 'v': a value has more than 100 levels"),
    ):
        with pytest.raises(SampleError, match=path.name + message):
            list(read_rows_for(path, output))
        assert len(list(read_rows_for(path, f"out{path.suffix}"))) == 2
    assert read(write(tmp_path / "out.parquet", [{"a": {"\ud800": 1}}])) == [{"a": {"\ud800": 1}}]


def test_arrows_json_type_is_read_as_what_it_holds(tmp_path):
    columns = {
        "checklist": [["a?", {"question": "b?"}], None, [{"question": "c?", "weight": -2}, None]],
        "item": [{"check": {"type": "words"}, "n": 1}, None, {"check": None, "n": 2}],
        "text": ['{"not": "json"}'] * 3,
    }
    types = {"checklist": List(Json()), "item": {"check": Json(), "n": Value("int64")}, "text": Value("string")}
    path = tmp_path / "rows.parquet"
    Dataset.from_dict(columns, features=Features(types)).to_parquet(path)
    rows = read(path)
    assert {name: [row[name] for row in rows] for name in columns} == columns
    pq.write_table(pa.table({"a": pa.array(["{}", "{"], pa.json_())}), path)
    with pytest.raises(SampleError, match=r"rows.parquet, row 2: a JSON column contains invalid JSON"):
        read(path)


@pytest.mark.parametrize(
    "values",
    [
        ["text", ["list"]],
        [1, "text", "1", '"text"', ""],
        [{}, None],
        [2**70, 1],
        [{str(i): i} for i in range(300)],
        ["half \ud800", "whole", "null"],
        [{"text": "half \ud800"}],
    ],
)
def test_in_parquet_values_without_a_common_type_are_json_text(tmp_path, caplog, values):
    path = write(tmp_path / "rows.parquet", [{"v": value} for value in values])
    assert [row["v"] for row in read(path)] == values
    text = next(value for value in values if isinstance(value, str)) if "text" in values else None
    assert text is None or text in pq.read_table(path)["v"].to_pylist(), "other programs see plain text"
    assert "column 'v' is written as JSON text" in caplog.text


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@example(rows=[('a\r\n"b", c', ""), ("ü \u2028 {x} </s>", "x" * 200_000)], key="a")
@given(rows=st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=4), key=_TEXT)
def test_any_text_survives(tmp_path_factory, rows, key):
    rows = [{"a": a, "b": b} for a, b in rows if a.strip() or b.strip()]
    folder = tmp_path_factory.mktemp("rows")
    for extension in FORMATS:
        assert read(write(folder / f"rows{extension}", rows)) == rows
    keyed = [row | {key: "x"} for row in rows]
    assert read(write(folder / "keyed.jsonl", keyed)) == keyed


def test_rows_are_numbered_by_the_line_they_begin_on(tmp_path):
    (tmp_path / "a.jsonl").write_text('\ufeff{"a": 1}\n\n  \n{"a": 2}')
    (tmp_path / "a.csv").write_text('\ufeffa\n"1\n1"\n\n2\n')
    write(tmp_path / "a.parquet", [{"a": 1}, {"a": 2}])
    for name, numbers in (("a.jsonl", [1, 4]), ("a.csv", [2, 5]), ("a.parquet", [1, 2])):
        assert [row.number for row in read_rows(tmp_path / name)] == numbers
    assert next(iter(read_rows(tmp_path / "a.jsonl"))).where == f"{tmp_path}/a.jsonl, line 1"


def put(path, value=1):
    return write(path, [{"a": value}])


@pytest.mark.parametrize(
    ("use", "name", "words"),
    [
        (read_rows, "none.jsonl", "none.jsonl: cannot be read .No such file"),
        (read_rows, "folder.jsonl", "folder.jsonl: cannot be read .Is a directory"),
        (put, "folder.jsonl", "folder.jsonl: cannot be written, it is a folder"),
        (lambda path: put(path, object()), "a.jsonl", "a value of type object cannot be written"),
        (read_rows, "a.json", r"unknown extension '.json'; allowed: \.jsonl, \.csv, \.parquet"),
        (put, "a", r"has no extension; allowed: \.jsonl, \.csv, \.parquet"),
    ],
)
def test_a_file_that_cannot_be_read_or_written_is_refused_at_once(tmp_path, use, name, words):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(SampleError, match=words):
        use(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.jsonl"]


@pytest.mark.parametrize("early", [2**53 + 1, {"n": 2**53 + 1}, [[2**53 + 1]]], ids=["number", "struct", "list"])
def test_a_large_whole_number_and_a_later_fraction_are_json_text(tmp_path, caplog, early):
    late = json.loads(json.dumps(early).replace(str(2**53 + 1), "0.5"))
    rows = [{"v": early, "w": 1}] * 1000 + [{"v": late, "w": 0.5}] * 3  # two batches
    got = read(write(tmp_path / "rows.parquet", rows))
    assert [row["v"] for row in got] == [row["v"] for row in rows]
    assert [row["w"] for row in got] == [float(row["w"]) for row in rows]
    assert caplog.text.count("is written as JSON text") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_an_existing_file_keeps_its_permissions_and_a_new_one_has_those_of_any_new_file(tmp_path):
    path, plain = tmp_path / "new" / "secret.txt", tmp_path / "plain"
    write_text(path, "old")
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o600)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "new"


# --- files of other programs

SHEET = [{"prompt": "Say yes, please; now", "target": "Yes,\n\tI do; café"}, {"prompt": "Why?", "target": ""}]


def sheet(delimiter: str, encoding: str, end: str = "\n") -> bytes:
    out = io.StringIO()
    lines = csv.writer(out, delimiter=delimiter, lineterminator=end)
    lines.writerows([SHEET[0].keys(), SHEET[0].values(), ["", " "], [], SHEET[1].values(), ["", ""]])
    return out.getvalue().encode(encoding)


@pytest.mark.parametrize(
    ("delimiter", "encoding", "end"),
    [(",", "utf-8", "\n"), (";", "utf-8-sig", "\r\n"), ("\t", "utf-16", "\r\n"), (";", "utf-16", "\n")],
)
def test_the_csv_of_spreadsheets_is_read_without_its_blank_rows(tmp_path, delimiter, encoding, end):
    (tmp_path / "a.csv").write_bytes(sheet(delimiter, encoding, end))
    assert read(tmp_path / "a.csv") == SHEET
    lines = [f"sep={delimiter}", f"a{delimiter}b", f"1{delimiter}x"]  # the first line names the delimiter
    (tmp_path / "a.csv").write_bytes(end.join(lines).encode(encoding))
    assert [(row.number, row.data) for row in read_rows(tmp_path / "a.csv")] == [(3, {"a": "1", "b": "x"})]
    (tmp_path / "a.csv").write_text('target\n"a;b"\n\n""\n')  # one column
    assert read(tmp_path / "a.csv") == [{"target": "a;b"}, {"target": ""}]
    (tmp_path / "a.jsonl").write_text('{"a": "é\u2028"}\n{"a": "🌧"}\n', encoding=encoding)
    assert read(tmp_path / "a.jsonl") == [{"a": "é\u2028"}, {"a": "🌧"}]


OBJECT_PER_LINE = "a .jsonl file has one object per line"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1},\n{"a": 2}\n', f"line 1, column 9: .*; {OBJECT_PER_LINE}, without commas"),
        ("a.jsonl", b'[{"a": 1},\n{"a": 2}]\n', f"line 1, column 1: .*; {OBJECT_PER_LINE}, not a list"),
        ("a.jsonl", b'{\n "a": 1\n}\n', "line 1, column 1: .*; a .jsonl file has each object on one line"),
        ("a.jsonl", '{"a": 1}\n'.encode("utf-16-le"), "not UTF-8 .it looks like UTF-16 .*; save it as UTF-8"),
        ("a.csv", "a;b\n1;Olé\n".encode("cp1252"), "line 2, byte 5: not UTF-8 .*; save it as UTF-8 .in a spreadsheet"),
        ("a.csv", b"PK\x03\x04rest", "a workbook or an archive, not text; save the sheet as CSV UTF-8"),
        (
            "a.json",
            b"[{}]",
            "rows are not read from a JSON document; write one per line .jq -c .*allowed: .jsonl, .csv",
        ),
        ("a.xlsx", b"PK\x03\x04rest", "a workbook .* is not read; save the sheet as CSV UTF-8; allowed: .jsonl, .csv"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16")[:-1], "after line 1: not UTF-16 .truncated data"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', r"line 2: expected a JSON object, got list \[1\]"),
        ("a.jsonl", b'{"a": ' + b"[" * 100_000, r"line 1: not valid JSON"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", r"line 3: the row has 3 cells, but the header has 2 columns"),
        ("a.csv", b"a,a\n1,2\n", r"line 1: two columns have the same name"),
        ("a.csv", b'a,b\n1,"2\n', r"line 2: not valid CSV"),
        ("a.csv", b"a,b\n1,\xff\n", r"line 2, byte 3: not UTF-8"),
        ("a.parquet", b"not parquet", r"cannot be read as Parquet"),
        ("a.csv", b"a,b\r1,2\r", "line 1: a line ends with CR only; save the file with LF or CRLF"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place_and_a_remedy(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SampleError, match=f"{name}(, |: ){message}"):
        read(tmp_path / name)


def test_a_folder_of_save_to_disk_is_read(tmp_path):
    rows = [{"target": [{"role": "assistant", "content": "Yes."}], "checklist": ["Is it?"], "n": n} for n in range(3)]
    saved = Dataset.from_list(rows)
    saved.select([2, 0]).save_to_disk(tmp_path / "saved", num_shards=2)
    assert read(tmp_path / "saved") == [rows[2], rows[0]]
    assert [row.where for row in read_rows(tmp_path / "saved")] == [f"{tmp_path}/saved, row {n}" for n in (1, 2)]
    assert [row.data for row in read_rows_for(tmp_path / "saved", "out.jsonl")] == [rows[2], rows[0]]


def test_another_folder_is_refused_with_what_can_be_read(tmp_path):
    DatasetDict(train=Dataset.from_dict({"a": [1]}), test=Dataset.from_dict({"a": [2]})).save_to_disk(tmp_path / "all")
    with pytest.raises(SampleError, match="all has several splits; give the folder of one of them: .*test, .*train"):
        read_rows(tmp_path / "all")
    (tmp_path / "other").mkdir()
    words = "other: a folder is read only if .* wrote it; give one of its files, or .*; allowed"
    with pytest.raises(SampleError, match=words):
        read_rows(tmp_path / "other")
    (tmp_path / "other" / "state.json").write_text("{}")
    with pytest.raises(SampleError, match="other: cannot be read as a dataset on disk"):
        read(tmp_path / "other")


def test_a_csv_of_scores_has_plain_columns_which_are_not_read(tmp_path):
    def scored(value, **answers):
        items = [{"question": question, "answer": answer} for question, answer in answers.items()]
        return {"primary_score": value, "items": items}

    rows = [
        {"a": "x", "checklist_score": scored(0.5, short="yes", kind=None), "z": 1},
        {"a": "y", "checklist_score": None, "z": 2},
        {"a": "z", "checklist_score": scored(None, short="no", other="yes"), "z": 3},
    ]
    path = write(tmp_path / "a.csv", rows)
    with path.open(newline="") as file:
        header, *cells = csv.reader(file)
    plain = [f"checklist_score.{name}" for name in ("primary_score", "item/short", "item/kind", "item/other")]
    assert header == ["a", *plain, "checklist_score", "z"]
    assert [row[1:5] for row in cells] == [["0.5", "yes", "", ""], [""] * 4, ["", "no", "", "yes"]]
    assert [list(row) for row in read(path)] == [["a", "checklist_score", "z"]] * 3
    assert write(tmp_path / "b.csv", read(path)).read_bytes() == path.read_bytes()  # also of scores that are text
    many = [{"checklist_score": scored(1.0, **{f"q{row}-{n}": "yes" for n in range(60)})} for row in range(2)]
    [first, *_] = csv.reader(write(tmp_path / "c.csv", many).read_text().splitlines())
    assert first == ["checklist_score.primary_score", "checklist_score"]


CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}],
    [{"role": "assistant", "tool_calls": [{"name": "look"}]}],
    [{"role": "assistant", "reasoning_content": "Two words?"}],
    [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}],
]
TEXTS = [
    "Hello.",
    "[role] content",
    "[]",
    '[{"a": 1}]',
    '["role", "content"]',
    '{"role": "user", "content": "Hi"}',
    '[{"role": "admin"}]',
    '[{"role": "admin", "name": "Ann"}, {"role": "guest", "name": "Bo"}]',
    '[{"role": 1, "content": "Hi"}]',
    '[{"role": "user", "content": "Hi"}, "and more"]',
    '[{"role": "user", "content": "Hi"}',
    '[{"from": "Rome", "to": "Oslo"}]',
    '"Hello."',
    '"[role]"',
]


@pytest.mark.parametrize("chat", CHATS, ids=str)
def test_a_conversation_in_json_or_python_is_decoded_and_its_text_is_quoted(chat):
    for text in (json.dumps(chat), f"  {json.dumps(chat, indent=1)}\n", repr(chat)):
        assert messages_in(text) == from_csv(text) == chat
        assert from_csv(csv_text(text)) == text != csv_text(text)


@pytest.mark.parametrize("content", ["Hello.", "It's\n} {'role': 1}", "a" * 200])
def test_a_conversation_that_pandas_wrote_is_decoded(tmp_path, content):
    chat = [{"content": "Hi", "role": "user"}, {"content": content, "role": "assistant"}]
    pd.DataFrame({"target": [chat], "n": [1]}).to_parquet(tmp_path / "a.parquet")
    pd.read_parquet(tmp_path / "a.parquet").to_csv(tmp_path / "a.csv", index=False)
    assert [row.data for row in read_rows(tmp_path / "a.csv")] == [{"target": chat, "n": "1"}]


def test_a_list_that_pandas_wrote_keeps_its_strings_apart(tmp_path):
    questions = ["Is it short?", "Isn't it rude?", "Is it polite?" * 9]
    pd.DataFrame({"rubric": [questions]}).to_parquet(tmp_path / "a.parquet")
    pd.read_parquet(tmp_path / "a.parquet").to_csv(tmp_path / "a.csv", index=False)
    assert [decoded(row.data["rubric"]) for row in read_rows(tmp_path / "a.csv")] == [questions]


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_text_stays_text_even_if_it_is_json(text):
    assert messages_in(text) is from_csv(text) is csv_text(text) is text


@given(st.recursive(st.sampled_from([*TEXTS, *map(json.dumps, CHATS)]) | st.text(), lambda s: s.map(json.dumps)))
def test_every_text_survives_a_csv_cell(text):
    assert from_csv(csv_text(text)) == text


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(SampleError, match="rows.parquet: two columns have the same name 'a'"):
        read(path)
