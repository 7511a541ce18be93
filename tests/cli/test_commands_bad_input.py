"""What bad input gets: one sentence with the place and what is allowed, exit code 2, nothing written or loaded."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from checklist_rewards.files.rows import write_rows
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl

GOOD = '{"input": "Say hi.", "target": "hi", "checklist": ["Is it short?"]}\n'


def scored(**item) -> str:
    """A line without an input and with this item in its checklist."""
    return json.dumps({"target": "hi", "checklist": [{"question": "a?"} | item]}) + "\n"


BAD_ROWS = [
    (GOOD + '{"target": "hi"', ["rows.jsonl, line 2", "not valid JSON"]),
    ('{"text": "hi", "checklist": ["a?"]}', ["line 1", "'target'", "'text', 'checklist'", "--target-key"]),
    ('{"target": "hi"}', ["line 1", "'checklist'", "--checklist-key"]),
    (GOOD + scored(), ["line 2", "'input'", "--input-key"]),
    (
        scored() + GOOD,
        ["line 2", "the row has an input in 'input', but the first row has no such column", "--input-key"],
    ),
    (
        GOOD + '{"input": "", "target": [{"role": "narrator", "content": "hi"}], "checklist": ["a?"]}',
        ["line 2, 'target'", "message 1", "unknown role 'narrator'", "user, human"],
    ),
    (
        '{"prompt": "What is it?", "images": ["a.png"], "target": "", "checklist": ["a?"]}',
        ["line 1, 'images'", "a.png' cannot be read"],
    ),
    (
        GOOD + '{"input": null, "prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}',
        ["line 2", "an input in 'prompt', but none in 'input'", "--input-key input --input-key prompt"],
    ),
    (  # Alpaca's form
        '{"instruction": "Translate to German.", "input": "cat", "target": "Katze", "checklist": ["a?"]}',
        ["line 1", "an 'instruction' too", "--input-key instruction --input-key input"],
    ),
    (
        '{" Prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}',
        ["line 1", "would not see the column ' Prompt'", "rename it to 'prompt'", "--input-key"],
    ),
    ('{"target": null, "checklist": ["a?"]}', ["line 1", "'target'", "NoneType"]),
    ('{"input": {"a": 1}, "target": "", "checklist": ["a?"]}', ["line 1", "'input'", "dict"]),
    (GOOD + '{"input": "", "target": "hi", "checklist": []}', ["line 2", "empty"]),
    (scored(weight=0).replace("0}", "1e999}"), ["item 1", "inf"]),
    (scored(wieght=2), ["wieght", "weight", "allowed"]),
    (scored() + scored(id="x", check='{"type": "sentence"}'), ["line 2, item x", "unknown check type 'sentence'"]),
    ("\n", ["rows.jsonl", "no rows"]),
    (GOOD * 600 + '{"input": "", "target": 5, "checklist": ["a?"]}\n', ["line 601", "int 5"]),
]


@pytest.mark.parametrize(("content", "words"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_refused_by_line(run, no_engine, content, words):
    Path("rows.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    run("score rows.jsonl -o out.jsonl", refused=words)


@pytest.mark.parametrize(
    "command",
    [
        "score LONG -o out.jsonl --model pocket",
        "score rows.jsonl -o out.jsonl --model LONG",
        "score rows.jsonl -o out.jsonl --model pocket --judge.prompt LONG",
        "checklists import LONG -o out.jsonl",
        "store merge LONG -o out.sqlite",
    ],
)
def test_a_path_that_the_system_refuses_is_one_sentence(run, no_engine, command):
    Path("rows.jsonl").write_text(GOOD)
    run(command.replace("LONG", "a" * 300), refused=["error: aaa", "cannot be read or written (File name too long)"])


ROW = {"prompt": "Say hi.", "target": "hi", "candidates": ["hi", "ho"], "checklist": ["Is it short?"], "gold": [1]}
ROW |= {"label": 1}

FILES = {
    "bad.md": "{question} {target}\n",
    "bad.json": "[]",
    "source.json": "{}",
    "judges.yaml": "judges: [{model: pocket}, {model: pocket}]\npanel: {}\n",
    "tone.json": '{"tone": 2}',
    "list.json": '["Is it red?"]',
    "twice.json": '[{"question": "Is it?", "question": "Is it not?"}]',
    "words.json": '[{"question": "Is it?", "check": {"type": "words"}}]',
    "maybe.jsonl": '{"target": "t", "question": "Is it short?", "label": "maybe"}\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind that commands read, right ones and wrong ones."""
    folder = tmp_path_factory.mktemp("files")
    with contextlib.chdir(folder):
        write_files()
    return folder


@pytest.fixture
def files(run, folder):
    """These files in the working folder."""
    shutil.copytree(folder, ".", dirs_exist_ok=True)


def write_files():
    for name, text in FILES.items():
        Path(name).write_text(text)
    write_jsonl("rows.jsonl", ROW)
    columns = {"n": 7, "empty": None, "unsaid": [None, None], "checklist": ["Is it red?", "Is it big?"]}
    columns |= {"prompt": "Write.", "said": [0.9, 0.2], "grade": {"x": "yes"}}
    labelled = [
        {"id": f"r{n}", "doc": f"d{n // 2}", "target": f"text {n}", "labels": [True, n % 2]} for n in range(59)
    ]
    for name in ("scored.jsonl", "again.jsonl"):
        scored_file(name, *(row | columns | {"stars": n / 7} for n, row in enumerate(labelled)), judge="org/judge")
    scored_file("bare.jsonl", {"checklist": ["Is it?"], "said": [0.9]})
    [first, *_] = read_jsonl("scored.jsonl")
    log = {"step": 1, "prompt": "p", "completion": "red", "reward": 0.9, "score": first["checklist_score"]}
    write_jsonl("rewards.jsonl", log)
    write_jsonl("elsewhere.jsonl", log | {"prompt": "q"})
    write_jsonl("few.jsonl", first)
    write_jsonl("two.jsonl", {"prompt": "x", "chosen": "a", "rejected": "b"})
    write_jsonl("copies.jsonl", first, first | {"id": "r1"}, first | {"id": "same", "target": "same"})
    write_jsonl("preferred.jsonl", {"chosen": "same", "rejected": "text 0"})
    write_jsonl("other.jsonl", {"id": "x", "labels": [True, True]})
    write_jsonl("none.jsonl")


SCORE = "score rows.jsonl -o out.jsonl"
RUN = "run rows.jsonl -o out.jsonl"
PAIRS = "pairs rows.jsonl -o out.jsonl"
REFINE = "refine rows.jsonl -o out.jsonl"
RERANK = "rerank rows.jsonl -o out.jsonl"
REPLAY = "replay rewards.jsonl -o again.jsonl"
AGREE = "agree scored.jsonl"
CALIBRATE = "calibrate scored.jsonl -o map.json --fit-threshold cost --bootstrap 0"
IMPROVE = "improve list.json -o better.json"
SETTING = "expected NAME=VALUE, such as tensor_parallel_size=2, or a JSON object"
REFUSED = [
    ("score missing.jsonl -o out.jsonl", ["missing.jsonl", "No such file"]),
    (f"{SCORE} --model ./none", ["'./none'", "pocket"]),
    (f"{SCORE} --judge.prompt bad.md", ["bad.md:1", "{question}", "last"]),
    (f"{SCORE} --input-key ask", ["'ask'", "'prompt', 'target'"]),
    (f"{SCORE} --checklist bad.json", ["bad.json", "empty"]),
    (f"{SCORE} --checklist twice.json", "twice.json: not valid JSON (duplicate key 'question'"),
    (f"{SCORE} --store s --no-store", ["--store s", "--no-store"]),
    (f"{SCORE} --store rows.jsonl", ["rows.jsonl", "cannot be opened"]),
    (f"{SCORE} --base-url here", ["'here'", "not a URL"]),
    (f"{SCORE} --threshold nan", ["threshold", "nan"]),
    (f"{SCORE} --metric best", ["Invalid value for '--metric': 'best' is not one of 'pass', 'weighted'", "expected"]),
    (f"{SCORE} --judge.temprature 1", ["No such option: --judge.temprature", "--judge.temperature"]),
    (f"{SCORE} --judge.votes 0", "Invalid value for '--judge.votes': Input should be greater than or equal to 1"),
    (
        f"{SCORE} --judge.examples maybe.jsonl",
        "maybe.jsonl, line 1: 'maybe' is not an answer to 'Is it short?'; allowed: yes, no",
    ),
    *((f"{SCORE} --engine-args {text}", SETTING) for text in ("tensor_parallel_size", "{broken")),
    (f"{SCORE} --budget 1", "'pocket' has none (--price pocket=IN,OUT)"),
    (
        f"{SCORE} --backend remote --base-url http://localhost:9 --budget 1 --price pocket=0,1",
        "cannot limit the reward server at http://localhost:9",
    ),
    (f"{SCORE} --checklist words.json --model pocket", "error: --checklist, item "),
    ("generate rows.jsonl -o out.jsonl --writer.max-items 1", ["max_items=1", "min_items"]),
    (
        "generate rows.jsonl -o out.jsonl --backend encoder",
        "'encoder' is not one of 'auto', 'transformers', 'vllm', 'openai'",
    ),
    (f"{RUN} --pipeline tik", ["unknown pipeline 'tik'", "did you mean 'tick'"]),
    (f"{RUN} --pipeline tick --config c.yaml", ["--pipeline tick", "--config c.yaml"]),
    (f"{RUN} --config c.yaml", ["c.yaml", "cannot be read"]),
    (f"{RUN} --pipeline checkeval --writer.shape questions", "'deductive' has no setting 'shape'"),
    (f"{RUN} --pipeline checkeval", ["--source FILE", "--example-input checkeval", "--checklist FILE"]),
    (f"{RUN} --source source.json", ["--source source.json", "corpus-level"]),
    (f"{RUN} --pipeline openrubrics_pairwise", ["rows.jsonl, line 1", "chosen"]),
    (f"{RUN} --concurrency 4", ["--concurrency 4", "'pocket' runs in this process"]),
    (f"{RUN} --dry-run --price 1,1", ["--price 1,1", "MODEL=IN,OUT"]),
    (f"{RUN} --dry-run --price pocket=1", ["--price pocket=1", "two prices"]),
    (f"{RERANK} --gold-key gold", ["line 1", "2 numbers"]),
    ("pairs rows.jsonl -o out.csv", "allowed: .jsonl, .parquet"),
    (f"{PAIRS} --min-margin 2", "min_margin=2.0"),
    (f"{REFINE} --checklist-key items", "column 'items' not found"),
    (f"{REFINE} --pipeline checkeval", "checkeval writes one checklist for all rows"),
    (f"{REPLAY} --repeat 2", "2 repeats require a judge"),
    (f"{REPLAY} --precision 0", "must be above 0"),
    (f"{REPLAY} --weights tone.json", "no item of rewards.jsonl has the id, question or category 'tone'"),
    ("replay rewards.jsonl -o again.csv", "a reward log is written as .jsonl or .parquet"),
    ("replay two.jsonl -o again.jsonl", "has pairs"),
    ("diff rewards.jsonl two.jsonl", "two.jsonl has pairs"),
    ("diff rewards.jsonl elsewhere.jsonl", "have no row in common: the first rows are rewards.jsonl, line 1 and"),
    ("inspect none.jsonl --no-embed", "none.jsonl has no rows"),
    ("inspect rows.jsonl --no-embed", "line 1: column not found: 'checklist_score'; the columns are"),
    (
        "inspect scored.jsonl --paraphrases 1 --judge judges.yaml --no-embed",
        "requires a single --model to write them; omit --judge",
    ),
    ("inspect scored.jsonl --repeat few.jsonl --no-embed", "row counts differ"),
    (
        "agree bare.jsonl",
        "bare.jsonl is the only file and has no labels to compare with (no column 'labels')",
    ),
    (f"{AGREE} scored.jsonl", "each scored file may be given only once"),
    (f"{AGREE} --label-key gold", "column 'gold' not found; the row has 'id', 'doc', "),
    (f"{AGREE} --label-key n", "label 7 is outside the range 0 to 1; set --label-range"),
    (f"{AGREE} --label-key unsaid", "has a label in column 'unsaid'"),
    (f"{CALIBRATE} --label-key labels --plots other.jsonl", "--plots other.jsonl is a file"),
    (f"{AGREE} --label-key labels --input-key ask", "column 'ask' not found; the row has"),
    (f"{AGREE} again.jsonl --bootstrap 19", "'--bootstrap': resamples=19 is not allowed; it must be 0"),
    ("cascade scored.jsonl again.jsonl --label-key grade", "labels an item"),
    ("cascade scored.jsonl again.jsonl --label-key gold", "column 'gold' not found; the row has 'id', 'doc', "),
    (f"{CALIBRATE} --label-key labels --costs much", "--costs 'much': expected two numbers"),
    (f"{CALIBRATE} --label-key labels --contextual", "the file was scored by 'org/judge' but --model is 'pocket'"),
    (
        "fit copies.jsonl --pairs preferred.jsonl -o w.json",
        "'rejected' is 'text 0', which is the id or text of 2 scored rows; it must name one",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key stars --group-key target",
        "scored.jsonl has 59 labelled rows in 59 groups; improving a checklist needs at least 60 in 15",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key target --group-key target",
        "line 1: 'target' is 'text 0'; it must be a number per text",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key humans --group-key target",
        "column 'humans' not found; the row has",
    ),
    (f"{IMPROVE} --data rows.jsonl", "score the rows first, or name a judge with --model"),
    ("serve --scale 3", "the server scores checklists as clients send them"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_what_cannot_be_done_is_one_sentence(run, files, no_engine, command, words):
    run(command, refused=words)


@pytest.mark.parametrize(
    ("command", "change", "words"),
    [
        ("generate", {"prompt": ..., "question": "hi"}, ["line 1", "'prompt'", "--input-key"]),
        ("generate", {"prompt": "  "}, ["line 1", "blank"]),
        ("generate --input-key input", {"input": "a"}, ["line 1", "also has a column 'prompt'"]),
        ("run --refiner unit_tester", {"candidates": ...}, ["rows.jsonl, line 1", "unit_tester"]),
        ("rerank", {"candidates": ...}, ["line 1", "'candidates'", "--policy.model"]),
        ("rerank", {"candidates": ["a", 1]}, ["line 1", "candidate 2", "int 1"]),
        ("pairs", {"candidates": {}}, "candidates must be a list of strings, got dict {}"),
        ("pairs", {"prompt": None}, "the input is empty"),
        ("refine", {"prompt": ..., "text": "x"}, "column 'prompt' not found"),
        ("refine", {"prompt": " "}, "rows.jsonl, line 1: the input is empty"),
        ("refine", {"checklist": [{"question": "B?", "check": {"type": "wrds"}}]}, "rows.jsonl, line 1, item"),
    ],
)
def test_a_row_that_a_command_cannot_use_is_one_sentence(run, no_engine, command, change, words):
    write_jsonl("rows.jsonl", {name: value for name, value in (ROW | change).items() if value is not ...})
    name, *options = command.split()
    run(name, "rows.jsonl", "-o", "out.jsonl", *options, refused=words)


@pytest.mark.parametrize("command", [f"{SCORE} --target-key text", "serve --model ./none"])
def test_a_refusal_makes_no_store(run, files, no_engine, command):
    run(f"{command} --store new/s.sqlite", refused="")


def test_what_the_output_cannot_hold_is_refused_before_the_first_row_is_scored(run, no_engine):
    rows = [{"target": "hi", "checklist": ["a?"], "image": data} for data in (None, b"\x89PNG")]
    with write_rows("rows.parquet") as out:
        for row in rows:
            out.write(row)
    run("score rows.parquet -o out.jsonl", refused=["row 2, 'image'", "bytes", "a .parquet file"])
    Path("rows.jsonl").write_text('{"target": "hi", "checklist": ["a?"], "\\ud800": 1}\n')
    run("score rows.jsonl -o out.parquet", refused=["line 1", "'\\ud800'", "an unpaired surrogate"])


def test_run_refuses_before_writing_a_single_checklist(run, no_engine):
    write_jsonl("rows.jsonl", {"input": "a", "target": "b"}, {"input": "a", "target": None})
    run(RUN, refused=["line 2", "'target'", "NoneType"])
    run(f"{RUN} --writer.model ./none", refused=["line 2"])


def test_a_row_of_a_sheet_with_nothing_but_its_number_is_no_answer(run, no_engine):
    Path("rows.csv").write_text('id,prompt,target,checklist\n1,Say hi.,hi,"[""a?""]"\n2, ,,"[""a?""]"\n')
    run("score rows.csv -o out.jsonl", refused=["rows.csv, line 3", "'prompt', 'target' are blank"])


def test_columns_that_the_user_names_are_all_that_the_judge_sees(run, engine):
    fake = engine()
    row = {"prompt": "What is it?", "images": ["a.png"], "input": "other", "target": "hi", "checklist": ["a?"]}
    write_jsonl("rows.jsonl", row)
    run(f"{SCORE} --model pocket --input-key prompt --no-store --images ignore")
    [(prefix, _)] = fake.asked
    assert "What is it?" in prefix and "other" not in prefix
