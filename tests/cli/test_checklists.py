"""`checklists import` and `lint`; labelled examples from the command line."""

import json
import re
from pathlib import Path

import pytest

from checklist_rewards import Checklist
from checklist_rewards.files.rows import write_rows
from checklist_rewards.prompts import prompts_dir
from tests.jsonl import read_jsonl, write_jsonl

DATA = Path(__file__).parent.parent / "data"


def test_a_file_becomes_rows_and_says_what_was_left_out(run, engine):
    done = run("checklists import", DATA / "autorubric.json", "-o", "rows.jsonl")
    assert "autorubric: 3 rows with 7 items in rows.jsonl" in done.output
    assert "Dropped fields that items cannot hold: aggregation (1), dataset.name (1), scale_type (1)" in done.output
    first = read_jsonl("rows.jsonl")[0]
    assert list(first)[0] == "prompt" and list(first)[-1] == "checklist_model"
    assert [item["weight"] for item in first["checklist"]] == [4.0, -6.0, 5.0]
    assert first["checklist_source"] == "autorubric" and first["labels"] == ["yes", "no", "Warm"]
    run("checklists import", DATA / "autochecklist.jsonl", "-o", "rows.jsonl")
    engine(lambda prefix, tail: 0.9)
    run("score rows.jsonl -o scored.jsonl --no-store")
    answers = [[item["answer"] for item in row["checklist_score"]["items"]] for row in read_jsonl("scored.jsonl")]
    assert answers == [["yes"], ["yes"]]


def test_a_rubric_without_a_prompt_becomes_one_checklist_for_all_rows(run):
    done = run("checklists import", DATA / "rubric.yaml", "-o", "rubric.json")
    assert "rubric: one checklist with 3 items in rubric.json" in done.output
    assert [item.weight for item in Checklist.parse(Path("rubric.json").read_text()).items] == [3, -2, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DATA / "rubric.yaml", "-o", "rows.jsonl"], "holds a single checklist without a prompt"),
        ([DATA / "healthbench.jsonl", "-o", "one.json"], "has 2 different checklists, but --output one.json holds"),
        ([DATA / "rar.jsonl", "-o", "rows.jsonl", "--item-key", "weight"], "--item-key 'weight': expected FIELD=KEY"),
        (["empty.jsonl", "-o", "rows.jsonl"], "empty.jsonl has no rows"),
        (["bad.jsonl", "-o", "rows.jsonl"], "bad.jsonl, line 2, item 1: points: .* got 'x'"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence_and_leaves_nothing(run, arguments, words):
    Path("empty.jsonl").write_text("")
    good = {"prompt": "p", "rubrics": [{"criterion": "c", "points": 1}]}
    write_jsonl("bad.jsonl", good, {"prompt": "p", "rubrics": [{"criterion": "c", "points": "x"}]})
    done = run("checklists import", *arguments, refused="")
    assert re.search(words, done.stderr), done.stderr


MINE = (
    "name: mine\nchecklist: task.grading\nprompt: task.text\nitem: {question: claim, weight: how}\nwords: {must: 3}\n"
)
TASK = {"task": {"text": "Name it.", "grading": [{"claim": "Names it.", "how": "must"}], "id": 7}}


def test_a_format_of_the_users_own(run):
    write_jsonl("rows.jsonl", TASK)
    Path("mine.yaml").write_text(MINE)
    done = run("checklists import rows.jsonl --format mine.yaml -o out.jsonl")
    assert "mine: 1 rows with 1 items in out.jsonl" in done.output and "weights: must = 3" in done.output
    [row] = read_jsonl("out.jsonl")
    assert (row["prompt"], row["task"], row["checklist_source"]) == ("Name it.", {"id": 7}, "mine")
    assert [item["weight"] for item in row["checklist"]] == [3.0]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("name: mine\n", [], "own.yaml:1: checklist is missing"),
        (
            MINE + "shpe: text\n",
            [],
            r"own.yaml:6: unknown key 'shpe' \(did you mean 'shape'\?\); allowed: name, about",
        ),
        (MINE.replace("question", "text"), [], "own.yaml:4: item: 'text' is not a part of an item; allowed: question"),
        (MINE.replace("must: 3", "must: high"), [], "own.yaml:5: words.must: .* got 'high'"),
        (MINE.replace("grading", "rubric"), [], "rows.jsonl, line 1: key 'task.rubric' not found; the keys are task"),
        (MINE.replace("mine", "draco", 1), [], "own.yaml: the name 'draco' is taken by a packaged format; choose"),
        ("[1]\n", [], "own.yaml:1: expected a mapping, got"),
    ],
)
def test_a_wrong_format_of_ones_own_is_one_sentence(run, text, arguments, words):
    write_jsonl("rows.jsonl", TASK)
    Path("own.yaml").write_text(text)
    done = run("checklists import rows.jsonl --format own.yaml -o out.jsonl", *arguments, refused="")
    assert re.search(words, done.stderr), done.stderr


# --- examples

EXAMPLES = [
    {"target": f"{label} {n}", "question": "Is it short?", "label": label, "reason": "Look."}
    for label in ("yes", "no")
    for n in range(5)
]


def test_labelled_examples_are_shown_with_their_question(run, engine):
    fake = engine(lambda prefix, tail: 0.9)
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "Hi.", "checklist": ["Is it short?", "Is it red?"]})
    write_jsonl("examples.jsonl", *EXAMPLES)
    shown = "--judge.examples examples.jsonl --judge.shots 2 --judge.example-reasons"
    run(f"score rows.jsonl -o s.jsonl --no-store {shown}")
    short, red = [tail for _, tail in fake.asked]
    assert short.count("Answer: yes") == short.count("Answer: no") == 1 and short.count("Look.") == 2
    assert "Example" not in red


SHORT = {"question": "Is it short?", "check": '{"type": "words", "at_most": 9}'}
RECIPES = Path(__file__).parents[2] / "recipes"
READ = sorted(
    path for path in RECIPES.glob("**/*.yaml") if path.parent.name != "cluster"
)  # Ray and Kubernetes read those
RIGHT = {
    "judge.md": ("{input} {target} {question}", "a judge prompt with {input}, {question}, {target}"),
    "batch.md": ("{target}\n{checklist}", "a batch prompt with {checklist}, {target}"),
    "writer.md": ("Ask about {input}, seeing {candidates}", "a generator prompt with {candidates}, {input}"),
    "step.md": ("Merge {questions}", "a stage prompt with {questions}"),
    "mine.yaml": (
        "name: mine\ngenerator: {prompt: writer.md, kind: contrastive}\n",
        "pipeline 'mine': contrastive generator, checklist scorer",
    ),
    "panel.yaml": (
        "panel: {rule: majority}\njudges: [pocket, {model: pocket, votes: 3}]\n",
        "a panel of 2 judges",
    ),
    "cascade.yaml": (
        "cascade: {margin: 0.4}\njudges:\n- pocket\n- panel: {}\n  judges: [pocket, pocket]\n",
        "a cascade of 2 judges",
    ),
    "reward.yaml": ("model: pocket\nmin_answered: 0.8\n", "a reward"),
    "grpo.yaml": (
        "env: {A: b}\nreward_funcs: [checklist_rewards.rewards.trl.reward]\n",
        "a training config; trainer arguments are not checked",
    ),
    "format.yaml": (
        "name: own\nprompt: [task.text]\nchecklist: task.grading\nitem: {question: claim}\n",
        "the format 'own' for `checklists import`",
    ),
    "one.json": (json.dumps(["Is it kind?", SHORT]), "a checklist: 2 items, 1 with code checks"),
}


def test_what_is_right_is_known_for_what_it_is(run, no_engine):
    for name, (content, _) in RIGHT.items():
        Path(name).write_text(content)
    for name in ("rows.jsonl", "rows.csv", "rows.parquet"):
        with write_rows(name) as out:
            for checklist in (["a?"], None, [SHORT, "b?"]):
                out.write({"checklist": checklist})
    assert len(run("lint").stdout.splitlines()) == len(list(prompts_dir().glob("*/*.md"))), "the packaged prompts"
    shown = run("lint", *RIGHT, "rows.jsonl", "rows.csv", "rows.parquet", *READ)
    training, accelerate = "; trainer arguments are not checked", "an accelerate config, not checked"
    assert shown.stderr == ""
    assert [line.partition(": ")[2] for line in shown.stdout.splitlines()] == [
        *(said for _, said in RIGHT.values()),
        *["2 checklists: 3 items, 1 with code checks"] * 3,
        *[f"a training config with a reward{training}"] * 4,
        *[accelerate] * 4,
        f"a training config{training}",
        f"a training config with a reward{training}",
    ]


def checked(check):
    return json.dumps({"checklist": [{"id": "x1", "question": "Short?", "check": check}]})


WRONG = [
    ("typo.md", "Ask about\n{input} {refrence}", "typo.md:2: unknown placeholder {refrence}; allowed"),
    ("notes.txt", "x", "notes.txt: unknown file type; allowed: prompts (.md)"),
    ("twice.yaml", "model: pocket\nmode: item\nmodel: x\n", "twice.yaml:3: not valid YAML (duplicate key 'model')"),
    ("grpo.yaml", "output_dir: x\nreward: {modell: pocket}", "grpo.yaml, reward: unknown key 'modell'; the nearest "),
    ("key.yaml", "name: x\nscorer:\n  mode: item\n  metrik: pass\n", "key.yaml:4: scorer: unknown key 'metrik'"),
    (
        "prompt.json",
        '{\n"generator": {\n"prompt": "generators/tikc"\n}}',
        "prompt.json:3: generator.prompt: prompt not found: 'generators/tikc'; give the path of a Markdown file",
    ),
    ("broken.yaml", "a: [\n", "broken.yaml:2: not valid YAML"),
    ("deep.yaml", "[" * 600, "deep.yaml: nested more than 100 levels deep"),
    (
        "twice.json",
        '{"a": 1, "name": "x", "name": "y"}',
        "twice.json: not valid JSON (duplicate key 'name' in {'a': 1, 'name': 'y'})",
    ),
    ("empty.yaml", "", "empty.yaml is empty."),
    ("long.yaml", "name: " + "9" * 5000, "long.yaml: not valid YAML (Exceeds the limit (4300 digits)"),
    ("reward.yaml", "threshold: 1.5", "reward.yaml: threshold=1.5 is not allowed"),
    (
        "format.yaml",
        RIGHT["format.yaml"][0].replace("checklist", "checklst"),
        "format.yaml:3: unknown key 'checklst' (did you mean 'checklist'?)",
    ),
    (
        "rows.jsonl",
        checked('{"type": "wrds"}'),
        "rows.jsonl, line 1, item x1 ('Short?'): unknown check type 'wrds'; the nearest are words, ",
    ),
    ("rows.jsonl", checked("words"), "a code check must be a JSON object with a 'type'; got 'words'"),
    ("rows.jsonl", '{"prompt": "a"}', "rows.jsonl: no row has a value in column 'checklist'"),
    (
        "rows.jsonl",
        '{"checklist": ["Is it short?"]}\n{"checklist": ["Is it kind?", "What do you think about rain?"]}',
        ["rows.jsonl, line 2, item ", "'What do you think about rain?' cannot be answered with yes or no"],
    ),
]


@pytest.mark.parametrize(("name", "content", "words"), WRONG)
def test_what_is_wrong_is_named_with_file_and_line(run, no_engine, name, content, words):
    Path(name).write_text(content)
    Path("fine.md").write_text("{input}")  # a bad file does not hide the next
    shown = run(f"lint {name} fine.md", code=2)
    said = " ".join(shown.stderr.split())
    assert all(part in said for part in ([words] if isinstance(words, str) else words)), said
    assert said.startswith("error: ") and "1 of 2 files" in said
    assert shown.stdout.startswith("fine.md: a generator prompt")


def test_a_prompt_of_another_kind_is_refused(run, no_engine):
    Path("kind.md").write_text("Ask about {input}")
    run("lint kind.md --kind judge", refused=["kind.md:1: the placeholder {target} is missing", "1 of 1 files"])


def test_statements_and_double_questions_are_warnings(run, no_engine):
    options = [{"label": "well", "value": 1}, {"label": "badly", "value": 0}]
    fine = [
        {"question": "How well does it read?", "options": options},
        {"question": "Words?", "check": {"type": "words", "at_most": 9}},
    ]
    double = "Is it good and is it short?"
    Path("some.json").write_text(json.dumps([*fine, "The response is polite.", double]))
    result = run("lint some.json")
    shown = " ".join(result.output.split())
    assert "'The response is polite.' must end with a question mark" in shown
    assert f"{double!r} asks two questions; write one item for each" in shown
    rows = [{"checklist": [f"Is it {n} and is it short?", double]} for n in range(30)]
    write_jsonl("many.jsonl", *rows)
    shown = " ".join(run("lint many.jsonl").output.split())
    assert "and 29 more" in shown and "21 more such items" in shown


def test_items_that_repeat_a_check_contradict_each_other_or_ask_for_nothing_are_warnings(run, no_engine):
    words = {"question": "Does the response have at most 60 words?", "check": {"type": "words", "at_most": 60}}
    upper = {"question": "Is it in capitals?", "check": {"type": "casing", "casing": "upper"}}
    rude = {"question": "Does the poem have at most 60 words?", "weight": -1}
    asked = ["Is the poem no longer than 60 words?", "Is the response in lowercase?", "Does it contain a text only?"]
    Path("some.json").write_text(json.dumps([words, upper, *asked, rude, "Does it name 60 words that rhyme?"]))
    result = run("lint some.json")
    shown = " ".join(result.output.split())
    assert shown.count("warning: ") == 4
    assert f"{asked[0]!r} repeats the check of item " in shown and "omit it, because code answers it" in shown
    assert "'Is it in capitals?' contradicts item " in shown and f"({asked[1]!r}); no response meets both" in shown
    assert f"{asked[2]!r} is met by every response" in shown


def test_rows_under_other_names(run):
    write_jsonl("mine.jsonl", {"task": "t", "out": "o", "rubric": [{"criterion": "Is it red?", "points": -2, "n": 1}]})
    keys = "--prompt-key task --target-key out --checklist-key rubric"
    names = "--item-key question=criterion --item-key weight=points --source"
    done = run(f"checklists import mine.jsonl -o rows.jsonl {keys} {names}", "by hand")
    assert "Dropped fields that items cannot hold: n (1)" in done.output
    [row] = read_jsonl("rows.jsonl")
    assert (row["prompt"], row["target"], row["checklist_source"]) == ("t", "o", "by hand")
    assert (row["checklist"][0]["question"], row["checklist"][0]["weight"]) == ("Is it red?", -2.0)


def test_a_config_names_a_file_of_examples_beside_it(run, engine):
    fake = engine(lambda prefix, tail: 0.9)
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "Hi.", "checklist": ["Is it short?"]})
    Path("judges").mkdir()
    write_jsonl("judges/examples.jsonl", *EXAMPLES)
    Path("judges/judge.yaml").write_text("name: mine\nscorer: {examples: examples.jsonl, shots: 3}\n")
    run("score rows.jsonl -o s.jsonl --config judges/judge.yaml --no-store")
    assert fake.asked[0][1].count("Answer: ") == 3
