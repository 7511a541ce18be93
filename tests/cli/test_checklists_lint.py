"""`lint`: what is wrong with prompts and configs, by file and line."""

import json
from pathlib import Path

import pytest

from checklist_rewards.files.rows import write_rows
from checklist_rewards.prompts import prompts_dir
from tests.jsonl import write_jsonl

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


def test_a_bad_packaged_prompt_is_one_of_so_many(run, monkeypatch, tmp_path):
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "good.md").write_text("{target} {question}")
    (tmp_path / "judges" / "bad.md").write_text("{question} {target}")
    monkeypatch.setattr("checklist_rewards.cli.checklists.prompts_dir", lambda: tmp_path)
    assert "1 of 2 files are invalid." in run("lint", code=2).stderr


def test_without_files_the_packaged_prompts_are_checked(run):
    shown = run("lint")
    assert len(shown.stdout.splitlines()) == len(list(prompts_dir().glob("*/*.md")))


def checked(check):
    return json.dumps({"checklist": [{"id": "x1", "question": "Short?", "check": check}]})


WRONG = [
    ("order.md", "# User\n{question}\n\n{target}\n", "order.md:4: {target} comes after {question}"),
    ("typo.md", "Ask about\n{input} {refrence}", "typo.md:2: unknown placeholder {refrence}; allowed"),
    ("system.md", "# System\n{input}\n# User\n{input}", "system.md:2: {input} is in the system part"),
    ("front.md", "---\nauthor: me\n---\n{input}", "front.md:2: front matter"),
    ("kind.md --kind judge", "Ask about {input}", "kind.md:1: the placeholder {target} is missing"),
    ("missing.md", None, "missing.md: cannot be read"),
    ("notes.txt", "x", "notes.txt: unknown file type; allowed: prompts (.md)"),
    ("key.yaml", "name: x\nscorer:\n  mode: item\n  metrik: pass\n", "key.yaml:4: scorer: unknown key 'metrik'"),
    (
        "prompt.json",
        '{\n"generator": {\n"prompt": "generators/tikc"\n}}',
        "prompt.json:3: generator.prompt: prompt not found: 'generators/tikc'; give the path of a Markdown file",
    ),
    ("broken.yaml", "a: [\n", "broken.yaml:2: not valid YAML"),
    ("deep.yaml", "[" * 3000, "deep.yaml: nested more than 100 levels deep"),
    ("deep.json", "[" * 3000, "deep.json: nested more than 100 levels deep"),
    ("twice.yaml", "model: pocket\nmode: item\nmodel: x\n", "twice.yaml:3: not valid YAML (duplicate key 'model')"),
    (
        "twice.json",
        '{"a": 1, "name": "x", "name": "y"}',
        "twice.json: not valid JSON (duplicate key 'name' in {'a': 1, 'name': 'y'})",
    ),
    ("empty.yaml", "", "empty.yaml is empty."),
    ("comments.yaml", "# nothing\n", "comments.yaml is empty."),
    ("long.yaml", "name: " + "9" * 5000, "long.yaml: not valid YAML (Exceeds the limit (4300 digits)"),
    ("rule.yaml", "panel: {rule: most}\njudges: [pocket, pocket]", "rule.yaml, panel: rule='most' is not known"),
    (
        "judge.yaml",
        "panel: {}\njudges: [{modell: pocket}]",
        "judge.yaml, judge 1: unknown key 'modell' (did you mean 'model' or 'mode'?)",
    ),
    (
        "grpo.yaml",
        "output_dir: x\nreward: {modell: pocket}",
        "grpo.yaml, reward: unknown key 'modell'; the nearest are model, mode, ",
    ),
    ("metric.yaml", "model: pocket\nmetrik: pass", "metric.yaml: unknown key 'metrik'; the nearest are metric, "),
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
    ("rows.jsonl", checked('{"type": "words"}'), "check 'words': one of 'at_least', 'at_most', 'exactly' is required"),
    (
        "rows.jsonl",
        checked('{"type": "words", "at_least": "5"}'),
        "check 'words': at_least: Input should be a valid integer, got '5'",
    ),
    ("rows.jsonl", checked("words"), "a code check must be a JSON object with a 'type'; got 'words'"),
    ("rows.jsonl", '{"prompt": "a"}', "rows.jsonl: no row has a value in column 'checklist'"),
    (
        "rows.jsonl",
        '{"checklist": ["Is it short?"]}\n{"checklist": ["Is it kind?", "What about rain?"]}',
        "rows.jsonl, line 2, item ",
    ),
    (
        "rows.jsonl",
        '{"checklist": ["What do you think about rain?"]}',
        "'What do you think about rain?' cannot be answered with yes or no",
    ),
]


@pytest.mark.parametrize(("arguments", "content", "words"), WRONG)
def test_what_is_wrong_is_named_with_file_and_line(run, no_engine, arguments, content, words):
    name, *_ = arguments.split()
    if content is not None:
        Path(name).write_text(content)
    run(f"lint {arguments}", refused=["error: ", words, "1 of 1 files"])


def test_one_bad_file_does_not_hide_the_next(run):
    Path("a.md").write_text("{question} {target}")
    Path("b.md").write_text("{input}")
    Path("c.yaml").write_text("nam: x\n")
    shown = run("lint a.md b.md c.yaml", code=2)
    assert "a.md:1" in shown.stderr and "c.yaml:1" in shown.stderr
    assert shown.stdout.startswith("b.md: a generator prompt")


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
