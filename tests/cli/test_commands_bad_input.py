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


TWICE = [{"label": "low", "value": 0}, {"label": "low", "value": 1}]
BAD_ROWS = [
    (GOOD + '{"target": "hi"', ["rows.jsonl, line 2", "not valid JSON"]),
    (GOOD + "[1]\n", ["rows.jsonl, line 2", "JSON object", "list [1]"]),
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
        '{"input": [{"role": "user", "content": [{"type": "image"}]}], "target": "", "checklist": ["a?"]}',
        ["line 1, 'input'", "1 image parts without an image", "0 images in the column"],
    ),
    (
        '{"prompt": "What is it?", "images": ["a.png"], "target": "", "checklist": ["a?"]}',
        ["line 1, 'images'", "a.png' cannot be read"],
    ),
    (
        GOOD + '{"input": null, "prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}',
        ["line 2", "an input in 'prompt', but none in 'input'", "--input-key input --input-key prompt"],
    ),
    (
        '{" Prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}',
        ["line 1", "would not see the column ' Prompt'", "rename it to 'prompt'", "--input-key"],
    ),
    ('{"target": "a"},\n{"target": "b"}\n', ["line 1, column 16", "without commas"]),
    ('{"target": 7, "checklist": ["a?"]}', ["line 1", "'target'", "string", "int 7"]),
    ('{"target": null, "checklist": ["a?"]}', ["line 1", "'target'", "NoneType"]),
    ('{"input": {"a": 1}, "target": "", "checklist": ["a?"]}', ["line 1", "'input'", "dict"]),
    (GOOD + '{"input": "", "target": "hi", "checklist": []}', ["line 2", "empty"]),
    ('{"target": "hi", "checklist": 3}', ["line 1", "list of questions", "3"]),
    ('{"target": "hi", "checklist": ["a?", " "]}', ["line 1", "item 2", "blank"]),
    (scored(weight=float("nan")), ["line 1", "item 1", "nan"]),
    (scored(weight=0).replace("0}", "1e999}"), ["item 1", "inf"]),
    (scored(wieght=2), ["wieght", "weight", "allowed"]),
    (scored(options=TWICE), ["line 1", "have the same label"]),
    (scored(check="{}"), ["line 1", "code check"]),
    (scored() + scored(id="x", check='{"type": "sentence"}'), ["line 2, item x", "unknown check type 'sentence'"]),
    ("\n", ["rows.jsonl", "no rows"]),
    (b'{"target": "\xff"}\n', ["line 1", "UTF-8"]),
    (GOOD * 600 + '{"input": "", "target": 5, "checklist": ["a?"]}\n', ["line 601", "int 5"]),
]


@pytest.mark.parametrize(("content", "words"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_refused_by_line(run, no_engine, content, words):
    Path("rows.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    run("score rows.jsonl -o out.jsonl", refused=words)


ROW = {"prompt": "Say hi.", "target": "hi", "candidates": ["hi", "ho"], "checklist": ["Is it short?"], "gold": [1]}
ROW |= {"label": 1}

FILES = {
    "bad.md": "{question} {target}\n",
    "bad.json": "[]",
    "bad.yaml": "generator:\n  promt: x\n",
    "checks.yaml": "name: mine\nscorer: {checks: most}\n",
    "source.json": '{"dimensions": [\n{\n"nme": "x",\n"definition": "y", "name": "z"}]}',
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
    write_jsonl("preferred.jsonl", {"chosen": "text 1", "rejected": "text 999"})
    write_jsonl("other.jsonl", {"id": "x", "labels": [True, True]})
    write_jsonl("twice.jsonl", *[{"id": "r0", "labels": None}] * 2)
    write_jsonl("broken.jsonl", {"checklist_score": {"answered": "x"}})
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
    ("score rows.txt -o out.jsonl", ["rows.txt", ".jsonl, .csv, .parquet"]),
    ("score rows.jsonl -o out.xlsx", ["out.xlsx", ".jsonl, .csv, .parquet"]),
    (f"{SCORE} --model ./none", ["'./none'", "pocket"]),
    (f"{SCORE} --judge.prompt mine", ["error: prompt not found: 'mine'", "judges/item"]),
    (f"{SCORE} --judge.prompt bad.md", ["bad.md:1", "{question}", "last"]),
    (f"{SCORE} --input-key ask", ["'ask'", "'prompt', 'target'"]),
    (f"{SCORE} --checklist c.json", ["c.json", "No such file"]),
    (f"{SCORE} --checklist bad.json", ["bad.json", "empty"]),
    (f"{SCORE} --checklist twice.json", "twice.json: not valid JSON (duplicate key 'question'"),
    (f"{SCORE} --store s --no-store", ["--store s", "--no-store"]),
    (f"{SCORE} --store rows.jsonl", ["rows.jsonl", "cannot be opened"]),
    (f"{SCORE} --base-url here", ["'here'", "not a URL"]),
    (f"{SCORE} --threshold 1.5", ["threshold", "1.5"]),
    (f"{SCORE} --threshold nan", ["threshold", "nan"]),
    (f"{SCORE} --metric best", ["Invalid value for '--metric': 'best' is not one of 'pass', 'weighted'", "expected"]),
    (f"{SCORE} --judge.temprature 1", ["No such option: --judge.temprature", "--judge.temperature"]),
    (f"{SCORE} --judge.votes 0", "Invalid value for '--judge.votes': Input should be greater than or equal to 1"),
    (f"{SCORE} --judge.votes some", ["Invalid value for '--judge.votes': ", ", got 'some'"]),
    (f"{SCORE} --judge.examples missing.jsonl", "missing.jsonl: cannot be read"),
    (
        f"{SCORE} --judge.examples maybe.jsonl",
        "maybe.jsonl, line 1: 'maybe' is not an answer to 'Is it short?'; allowed: yes, no",
    ),
    (f"{SCORE} --judge.examples maybe.jsonl --mode batch", "examples need mode='item'"),
    (f"{SCORE} --judge.shots 2", "shots=2 requires examples="),
    (f"{SCORE} --config checks.yaml", "checks='most' is not known; allowed: 'only', 'mean', 'judge'"),
    *((f"{SCORE} --engine-args {text}", SETTING) for text in ("tensor_parallel_size", "{broken", "=2", "[1,2]")),
    (f"{SCORE} --budget 1", "'pocket' has none (--price pocket=IN,OUT)"),
    (f"{SCORE} --judge judges.yaml --budget 1", "judges.yaml, judge 1: a budget requires the price"),
    (
        f"{SCORE} --backend remote --base-url http://localhost:9 --budget 1 --price pocket=0,1",
        "cannot limit the reward server at http://localhost:9",
    ),
    (f"{SCORE} --weights bad.json", "must map item ids, questions or categories to weights"),
    *(
        (f"{command} --checklist words.json --model pocket", "error: --checklist, item ")
        for command in (SCORE, RUN, RERANK, PAIRS, REFINE)
    ),
    ("generate rows.jsonl -o out.jsonl --writer.max-items 1", ["max_items=1", "min_items"]),
    ("generate rows.jsonl -o out.jsonl --writer.prompt judges/item", ["item.md:", "{target}", "generator"]),
    (
        "generate rows.jsonl -o out.jsonl --backend encoder",
        "'encoder' is not one of 'auto', 'transformers', 'vllm', 'openai'",
    ),
    (f"{RUN} --pipeline tik", ["unknown pipeline 'tik'", "did you mean 'tick'"]),
    (f"{RUN} --pipeline tick --config c.yaml", ["--pipeline tick", "--config c.yaml"]),
    (f"{RUN} --config c.yaml", ["c.yaml", "cannot be read"]),
    (f"{RUN} --config bad.yaml", ["bad.yaml:2: generator: unknown key 'promt'"]),
    (f"{RUN} --refiner tager", ["unknown refiner 'tager'", "'tagger'"]),
    (f"{RUN} --pipeline checkeval --writer.shape questions", "'deductive' has no setting 'shape'"),
    (f"{RUN} --pipeline checkeval", ["--source FILE", "--example-input checkeval", "--checklist FILE"]),
    (f"{RUN} --source source.json", ["--source source.json", "corpus-level"]),
    (f"{RUN} --pipeline checkeval --source source.json", "source.json:3: dimensions.0.nme: unknown key"),
    (f"{RUN} --pipeline openrubrics_pairwise", ["rows.jsonl, line 1", "chosen"]),
    (f"{RUN} --concurrency 4", ["--concurrency 4", "'pocket' runs in this process"]),
    (f"{RUN} --dry-run --price pocket=1", ["--price pocket=1", "two prices"]),
    (f"{RUN} --dry-run --price 1,1", ["--price 1,1", "MODEL=IN,OUT"]),
    (f"{RERANK} --gold-key gold", ["line 1", "2 numbers"]),
    (f"{RERANK} --policy.model ./none", "'./none'"),
    (f"{PAIRS} --min-margin 2", "min_margin=2.0"),
    (f"{PAIRS} --top-fraction 0.5", "requires select='rlcf'"),
    ("pairs rows.jsonl -o out.csv", "allowed: .jsonl, .parquet"),
    (f"{REFINE} --checklist-key items", "column 'items' not found"),
    (f"{REFINE} --pipeline checkeval", "checkeval writes one checklist for all rows"),
    (f"{REFINE} --policy.model ./nowhere", "model not found: './nowhere'"),
    (f"{REFINE} --dry-run --price pocket=1", "expected two prices"),
    (f"{REPLAY} --judge.prompt judges/item", "--judge.prompt has no effect on stored answers; set --model"),
    (f"{REPLAY} --repeat 2", "2 repeats require a judge"),
    (f"{REPLAY} --precision 0", "must be above 0"),
    (f"{REPLAY} --weights tone.json", "no item of rewards.jsonl has the id, question or category 'tone'"),
    ("replay rewards.jsonl -o again.csv", "a reward log is written as .jsonl or .parquet"),
    ("replay two.jsonl -o again.jsonl", "has pairs"),
    ("diff rewards.jsonl elsewhere.jsonl", "have no row in common: the first rows are rewards.jsonl, line 1 and"),
    ("diff rewards.jsonl two.jsonl", "two.jsonl has pairs"),
    ("diff rewards.jsonl rewards.jsonl -o rows.txt", "unknown extension"),
    ("inspect none.jsonl --no-embed", "none.jsonl has no rows"),
    ("inspect rows.jsonl --no-embed", "line 1: column 'checklist_score' not found; use a file written by `score` or"),
    ("inspect broken.jsonl --no-embed", "line 1: checklist_score is not a score: primary_score is missing"),
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
    (f"{AGREE} --label-key doc", "line 1: 'doc' must be a list of 2 labels"),
    (f"{AGREE} --label-key n", "label 7 is outside the range 0 to 1; set --label-range"),
    (f"{AGREE} --label-key n --label-range 9", "--label-range '9': expected two increasing numbers"),
    (f"{AGREE} --label-key empty", "has a label in column 'empty'"),
    (f"{AGREE} --label-key unsaid", "has a label in column 'unsaid'"),
    (f"{AGREE} --labels other.jsonl", "other.jsonl has labels for none of the scored rows"),
    (f"{AGREE} --labels twice.jsonl", "twice.jsonl, line 2: duplicate id 'r0'"),
    (f"{AGREE} --labels missing.jsonl", "missing.jsonl: cannot be read"),
    (f"{AGREE} other.jsonl", "column not found: 'checklist_score'"),
    (f"{AGREE} --label-key labels --plots other.jsonl", "--plots other.jsonl is a file"),
    (f"{AGREE} --label-key labels --input-key ask", "column 'ask' not found; set --input-key"),
    (f"{AGREE} again.jsonl --bootstrap 19", "'--bootstrap': resamples=19 is not allowed; it must be 0"),
    ("cascade scored.jsonl again.jsonl --label-key grade", "labels an item"),
    ("cascade scored.jsonl again.jsonl --label-key nobody", "no margin can be chosen"),
    (f"{CALIBRATE} --label-key labels --costs much", "--costs 'much': expected two numbers"),
    (
        f"{CALIBRATE} --label-key labels --costs 0,1",
        "the cost false_yes=0.0 is not allowed; it must be a finite number above 0.",
    ),
    (f"{CALIBRATE} --label-key gold", "column 'gold' not found"),
    (f"{CALIBRATE} --label-key labels --group-key prompt", "all 118 labelled reads belong to one group"),
    (f"{CALIBRATE} --label-key labels --contextual", "the file was scored by 'org/judge' but --model is 'pocket'"),
    (
        f"{CALIBRATE} --label-key labels --contextual --model org/judge --input-key question",
        "column 'question' not found",
    ),
    (
        "fit scored.jsonl --pairs preferred.jsonl -o w.json",
        "'rejected' is 'text 999', which is the id or text of no scored row",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key stars --group-key target",
        "scored.jsonl has 59 labelled rows in 59 groups; improving a checklist needs at least 60 in 15",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key humans --group-key target",
        "line 1: column 'humans' not found (--label-key); the row has",
    ),
    (
        f"{IMPROVE} --data scored.jsonl --label-key target --group-key target",
        "line 1: 'target' is 'text 0'; it must be a number per text",
    ),
    (f"{IMPROVE} --data rows.jsonl", "score the rows first, or name a judge with --model"),
    ("serve --model no/such/folder --backend transformers", "no/such/folder"),
    ("serve --threshold 2", "threshold"),
    ("serve --pipeline rlcf_direct", "the server scores checklists as clients send them"),
    ("probe --model ./none", "'./none'"),
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
        ("rerank", {"candidates": []}, ["line 1", "list of candidates is empty"]),
        ("rerank", {"candidates": ["a", 1]}, ["line 1", "candidate 2", "int 1"]),
        ("pairs", {"candidates": "red"}, "candidates"),
        ("pairs", {"candidates": []}, "the list of candidates is empty"),
        ("pairs", {"prompt": None}, "the input is empty"),
        ("refine", {"prompt": ..., "text": "x"}, "column 'prompt' not found"),
        ("refine", {"prompt": " "}, "rows.jsonl, line 1: the input is empty"),
        ("refine", {"checklist": []}, "empty"),
        ("refine", {"checklist": [{"question": "B?", "check": {"type": "wrds"}}]}, "rows.jsonl, line 1, item"),
    ],
)
def test_a_row_that_a_command_cannot_use_is_one_sentence(run, no_engine, command, change, words):
    write_jsonl("rows.jsonl", {name: value for name, value in (ROW | change).items() if value is not ...})
    name, *options = command.split()
    run(name, "rows.jsonl", "-o", "out.jsonl", *options, refused=words)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{SCORE} --target-key text", "'text'"),
        ("generate rows.jsonl -o out.jsonl --reference-key none", "'none'"),
        (f"{RUN} --pipeline checkeval", "--source FILE"),
        (f"{RERANK} --candidates-key none", "'none'"),
        (f"{PAIRS} --candidates-key none", "'none'"),
        (f"{REFINE} --checklist-key none", "'none'"),
        ("replay rows.jsonl -o out.jsonl --model pocket", "checklist_score"),
        ("inspect rows.jsonl --meta --model pocket --no-embed", "checklist_score"),
        ("attack rows.jsonl -o out.json --input-key none", "'none'"),
        ("improve bad.json --data rows.jsonl -o out.json --model pocket", "empty"),
        ("serve --model ./none", "'./none'"),
    ],
)
def test_a_refusal_makes_no_store(run, files, no_engine, command, words):
    run(f"{command} --store new/s.sqlite", refused=words)


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
