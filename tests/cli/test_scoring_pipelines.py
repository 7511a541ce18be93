"""Pipelines on the command line: those of papers with recorded replies, corpus-level ones from files, dry runs."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from PIL import Image

from checklist_rewards.pipelines import get_pipeline, list_pipelines
from tests.jsonl import read_jsonl, write_jsonl
from tests.pipelines.fakes import Scripted
from tests.pipelines.staged import recorded, staged

LIST = "1. Is it short?\n2. Is it old?"


@pytest.fixture
def scripted(engine):
    """`scripted(rule)` puts a scripted engine where any model would be loaded, and gives it."""
    return lambda rule=lambda text: LIST, last=0.25: engine(backend=Scripted(rule, last))


def writes_and_judges(text: str) -> object:
    """Questions in whatever shape is asked for, or answers to those that the prompt holds."""
    if '"answers"' in text:
        [count] = re.findall(r"There are (\d+) questions", text)
        return {"answers": [{"index": n, "answer": "yes"} for n in range(1, int(count) + 1)]}
    if "Answer yes or no." in text:
        return "yes"
    item = {"question": "Is it short?", "weight": 50, "category": "hard_rule", "sources": [0]}
    wanted = {name: value for name, value in item.items() if f'"{name}"' in text}
    return {"questions": [wanted]} if wanted else LIST


@pytest.mark.parametrize("name", [name for name in list_pipelines() if get_pipeline(name).paper])
def test_every_pipeline_takes_its_own_example(run, no_engine, name):
    corpus = get_pipeline(name).corpus_level
    file, output = ("source.json", "c.json") if corpus else ("rows.jsonl", "c.jsonl")
    Path(file).write_text(run(f"generate --example-input {name}").stdout)
    shown = run(f"generate {file} -o {output} --pipeline {name} --dry-run --no-store")
    assert ("first stage" in shown.stdout) == corpus and not Path(output).exists()


def test_checkeval_writes_a_shared_checklist_that_score_and_run_use(run, scripted):
    fake = scripted(lambda text: {"questions": [{"question": "Is it grammatical?"}]})
    dimension = {"name": "fluency", "definition": "It reads well.", "seed_questions": ["Is it plain?"]}
    Path("source.json").write_text(json.dumps({"dimensions": [dimension]}))
    write_jsonl("rows.jsonl", *({"input": "Sum up.", "target": text} for text in ("one", "two")))
    kept = "--pipeline checkeval --store s.sqlite"
    run(f"generate source.json -o c.json {kept} --summary sum.json")
    shared = json.loads(Path("c.json").read_text())
    assert [item["question"] for item in shared["items"]] == ["Is it plain?", "Is it grammatical?"]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["questions"] == 2 and "1 sent" in summary["stage_elaborate"]
    asked = len(fake.prompts)
    kept += " --mode item --metric pass"
    run(f"run rows.jsonl -o a.jsonl {kept} --source source.json")
    assert len(fake.prompts) == asked  # the same checklist, out of the store
    run(f"run rows.jsonl -o b.jsonl {kept} --checklist c.json")
    run(f"score rows.jsonl -o c.jsonl {kept} --checklist c.json")
    scores = [[row["checklist_score"] for row in read_jsonl(f"{name}.jsonl")] for name in "abc"]
    assert scores[0] == scores[1] == scores[2] and len(scores[0]) == 2 and scores[0][0]["total"] == 2
    assert read_jsonl("a.jsonl")[0]["checklist_source"].startswith("checkeval/")


def test_a_stage_that_breaks_leaves_the_rows_unscored_and_is_named(run, scripted):
    scripted(lambda text: "I would rather not.")
    Path("source.yaml").write_text("dimensions: [{name: fluency, definition: It reads well.}]\n")
    write_jsonl("rows.jsonl", {"target": "one"}, {"target": "two"})
    options = "--pipeline checkeval --source source.yaml --no-store --summary sum.json"
    done = run(f"run rows.jsonl -o out.jsonl {options}", code=1)
    assert "seed" in done.stderr and "I would rather not." in done.stderr
    assert [row["checklist_score"] for row in read_jsonl("out.jsonl")] == [None, None]
    assert json.loads(Path("sum.json").read_text())["unanswered"] == {"no_checklist": 2, "not_generated": 1}
    run("generate source.yaml -o c.json --pipeline checkeval --no-store", code=1)
    assert not Path("c.json").exists()


def test_options_and_a_file_beat_the_pipeline(run, scripted):
    fake = scripted(writes_and_judges)
    Path("mine.md").write_text("Mine: {input} {context}")
    Path("judge.md").write_text("Judged: {target} {question}")
    Path("mine.yaml").write_text("name: mine\ngenerator: {prompt: mine.md}\nscorer: {metric: pass, threshold: 0.2}\n")
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x", "context": "of the sea"})
    options = "--writer.prompt mine.md --judge.prompt judge.md --writer.temperature 0.2 --metric pass --threshold 0.2"
    for given in (f"--pipeline rocketeval {options}", "--config mine.yaml"):
        run(f"run rows.jsonl -o out.jsonl --writer.model pocket --no-store --summary sum.json {given}")
        [row] = read_jsonl("out.jsonl")
        assert fake.prompts[-1].startswith("Mine: ") and "of the sea" in fake.prompts[-1]
        assert row["checklist_source"].startswith("mine/") and row["checklist_score"]["primary_score"] == 1.0
        rules = row["checklist_score"]["aggregation"]
        assert (rules["primary_metric"], rules["threshold"]) == ("pass", 0.2)
        assert json.loads(Path("sum.json").read_text())["writer_calls"] == 1
    assert fake.reads[0][0].startswith("Judged: ") and fake.samplings[0].temperature == 0.2


def test_columns_are_known_by_their_names_and_may_be_missing_if_nobody_named_them(run, scripted):
    fake = scripted(writes_and_judges)
    pair = {name: [{"role": "assistant", "content": f"the {name} one"}] for name in ("chosen", "rejected")}
    write_jsonl("rows.jsonl", {"prompt": "Write.", "target": "x", **pair})
    run("generate rows.jsonl -o a.jsonl --pipeline openrubrics_pairwise --no-store")
    assert "the chosen one" in fake.prompts[0] and "the rejected one" in fake.prompts[0]
    first = {"input": "Write.", "history": "user: Hello.", "target": "x", "reference": "The best."}
    write_jsonl("rows.jsonl", first, {"input": "c", "target": "d"})
    run("run rows.jsonl -o b.jsonl --pipeline rocketeval --no-store")
    assert ["The best." in prompt and "user: Hello." in prompt for prompt in fake.prompts[1:]] == [True, False]
    assert {"user: Hello." in prefix for prefix, _, _ in fake.reads} == {True, False}
    words = "rows.jsonl, line 2: column 'reference' not found"
    run("generate rows.jsonl -o x.jsonl --pipeline tick --reference-key reference", refused=words)


def test_a_dry_run_counts_what_is_not_in_the_store(run, scripted, no_engine):
    write_jsonl("rows.jsonl", *({"input": f"Write {n}.", "target": "x"} for n in range(3)))
    command = "run rows.jsonl -o out.jsonl --store s.sqlite"
    shown = run(f"{command} --dry-run --price pocket=1000000,2000000")
    lines = {cells[0]: cells[1:] for cells in table(shown.stdout)}
    assert lines["checklists"][:2] == ["pocket", "3"] and lines["scores"][:2] == ["pocket", "24"]
    assert lines["checklists"][3] == "1,536" and lines["scores"][3] == "24"  # 512 per reply, 1 per read
    prompt, reply, price = (float(cell.replace(",", "")) for cell in lines["scores"][2:])
    assert price == pytest.approx(prompt + 2 * reply)
    assert "8 questions each" in shown.stdout and not Path("out.jsonl").exists()
    scripted(lambda text: LIST)
    run(command)
    write_jsonl("rows.jsonl", *({"input": f"Write {n}.", "target": "x"} for n in range(4)))
    again = {cells[0]: cells[1:] for cells in table(run(f"{command} --dry-run").stdout)}
    assert again["checklists"][1] == "1" and again["scores"][1] == "8"
    models = "--model big --writer.candidate-models small --writer.candidate-models tiny --price small=1,1"
    options = f"--pipeline rlcf_candidate --base-url http://127.0.0.1:9/v1 --no-store {models}"
    write_jsonl("rows.jsonl", {"input": "Write.", "reference": "x", "target": "x"})
    shown = run(f"generate rows.jsonl -o out.jsonl --dry-run {options}")
    found = [" ".join(cells[:3]) for cells in table(shown.stdout)]
    assert found == ["candidates small 1", "candidates tiny 1", "checklists big 1"]


def table(text: str) -> list[list[str]]:
    lines = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == 6]


def test_rules_alone_write_checklists_and_say_what_they_cannot_express(run, no_engine):
    Path("rules.yaml").write_text("name: rules\ngenerator: {kind: constraints}\n")
    prompts = "Explain tides in at most 30 words, without commas.", "Write about 100 words on tea."
    write_jsonl("rows.jsonl", {"prompt": prompts[0]}, {"prompt": prompts[1], "image": "red.png"})
    Image.new("RGB", (2, 2), "red").save("red.png")
    command = "generate rows.jsonl -o out.jsonl --config rules.yaml --summary summary.json"
    shown = run(command, code=1)  # the second row has no checklist
    written, missing = read_jsonl("out.jsonl")
    assert [item["evidence"]["text"] for item in written["checklist"]] == ["at most 30 words", "without commas"]
    assert missing["checklist"] is None
    summary = json.loads(Path("summary.json").read_text())
    assert summary["items"] == {"by rules": 2} and summary["unexpressed"] == {"the number is approximate": 1}
    assert "a rule may misread a requirement" in " ".join(shown.stderr.split())
    assert "about 100 words" in shown.stderr and "pocket model" not in shown.stderr


def test_the_summary_says_how_many_questions_were_left_out_and_why(run, scripted):
    scripted(lambda text: f"{LIST}\n9. Why?\n10. Does it have 7 words?")
    Path("strict.yaml").write_text("name: strict\ngenerator: {kind: direct, drop_faults: true}\n")
    write_jsonl("rows.jsonl", {"prompt": "Explain tides in at most 30 words."}, {"prompt": "Explain rain."})
    options = "--config strict.yaml --writer.constraints --no-store --summary summary.json"
    shown = run(f"generate rows.jsonl -o out.jsonl {options}")
    summary = json.loads(Path("summary.json").read_text())
    left_out = {"not one yes/no question": 2, "names a number that the input does not have": 2}
    assert summary["left_out"] == left_out and "questions left out" in shown.stderr  # one of each per row
    assert summary["items"] == {"by rules": 1, "by the model": 4}, "rules find items first"
    checks = [[item["check"] is not None for item in row["checklist"]] for row in read_jsonl("out.jsonl")]
    assert checks == [[True, False, False], [False, False]]


PIPELINES = [name for name in list_pipelines() if get_pipeline(name).paper]
PROMPTS = recorded("requests")["prompts"]
TEXTS = recorded("requests")["corpus"]
REFINERS = ["deduplicator", "tagger", "unit_tester", {"kind": "selector", "options": {"max_items": 4}}]
CALLS = {
    "tick": 7,  # too many questions, and a refusal
    "rocketeval": 7,  # three refusals
    "rlcf_direct": 9,  # weights up to 1, weights in words, a refusal, a question too many
    "rlcf_candidate": 6,  # two questions in one
    "rlcf_candidates_only": 7,  # an open question, and broken JSON
    "openrubrics_pairwise": 6,  # an unknown category
    "openrubrics_listwise": 6,  # a reply that was cut off
    "checkeval": 22,  # a list in place of JSON; 15 questions are filtered
    "interacteval": 11,  # too many themes, a lost remark, a theme renamed, a question too many
    "feedback": 21,  # a number out of range, tags without a reason, a text that was not rewritten
    "refiners": 17,
}
"""Replies that the writer is asked for. Each fault costs one, and those that the parser reads all the same none."""


def row_of(prompt: dict, name: str) -> dict:
    """The row of a prompt, with the columns that a pipeline needs."""
    best, middle, worst = prompt["responses"]
    row = {"input": prompt["input"], "target": middle}
    needs = {
        "rocketeval": {"reference": best},
        "rlcf_direct": {"reference": best},
        "rlcf_candidate": {"reference": best, "candidates": [middle, worst]},
        "openrubrics_pairwise": {"chosen": best, "rejected": worst},
        "openrubrics_listwise": {"candidates": [best, middle, worst]},
    }
    return row | needs.get(name, {})


def example(name: str, run) -> tuple[list[dict], dict, Counter]:
    """The rows that `run` writes with a pipeline, its summary, and how often each stage was asked."""
    replies = recorded(name)
    options = ["--pipeline", name]
    if get_pipeline(name).corpus_level:
        Path("source.json").write_text(json.dumps(replies["source"]))
        write_jsonl("rows.jsonl", *({"target": text} for text in TEXTS.values()))
        options += ["--source", "source.json"]
    else:
        write_jsonl("rows.jsonl", *(row_of(prompt, name) for prompt in PROMPTS.values()))
    if name == "rlcf_candidates_only":
        options += ["--writer.candidate-models", "large", "--writer.candidate-models", "small"]
    if name == "checkeval":
        config = get_pipeline(name).replace({"name": "filtered", "generator": {"options": {"filtering": True}}})
        config.save("filtered.yaml")
        options[:2] = ["--config", "filtered.yaml"]
    return scored(run, replies, *options)


def scored(run, replies: dict, *options: str) -> tuple[list[dict], dict, Counter]:
    with staged(replies) as (server, url):
        models = f"--model judge --base-url {url} --writer.model writer --writer.base-url {url} --no-store"
        done = run(f"run rows.jsonl -o out.jsonl --summary summary.json {models}", *options, code=(0, 1))
    summary = json.loads(Path("summary.json").read_text())
    assert done.exit_code == bool(summary["unanswered"]), done.output
    return read_jsonl("out.jsonl"), summary, Counter(stage for stage, _ in server.asked.elements())


slow = pytest.mark.slow  # loads a sentence encoder


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=slow if name in ("checkeval", "feedback") else ()) for name in PIPELINES]
)
def test_a_pipeline_reads_the_replies_of_a_capable_writer(run, name):
    rows, summary, asked = example(name, run)
    written = [row for row in rows if row["checklist"] is not None]
    refused = [PROMPTS["villain"]["input"]] if name == "rocketeval" else []
    assert [row["input"] for row in rows if row["checklist"] is None] == refused
    assert summary["unanswered"] == ({"not_generated": 1} if refused else {})
    assert asked.total() == CALLS[name]
    for row in written:
        questions = [item["question"] for item in row["checklist"]]
        assert len({question.casefold() for question in questions}) == len(questions) >= 4
        assert all(question.endswith("?") and "*" not in question for question in questions)
        assert row["checklist_score"]["answered"] == len(questions)


@slow
def test_the_refiners_keep_what_can_be_checked_and_say_what_they_dropped(run):
    config = get_pipeline("openrubrics_pairwise").replace({"name": "refined"}).model_dump(exclude_defaults=True)
    Path("refined.yaml").write_text(yaml.safe_dump(config | {"refiners": REFINERS}))
    write_jsonl("rows.jsonl", row_of(PROMPTS["landlord"], "openrubrics_pairwise"))
    replies = recorded("openrubrics_pairwise") | recorded("refiners")
    _, summary, asked = scored(run, replies, "--config", "refined.yaml")
    assert asked.total() == CALLS["refiners"]
    assert summary["left_out"] == {"by tagger": 2, "by deduplicator": 1, "by unit_tester": 1, "by selector": 1}


def test_concurrency_reaches_the_server_and_both_models_share_it(run, monkeypatch):
    made = []

    class Served(Scripted):
        def __init__(self, model, base_url, *, concurrency):
            super().__init__(lambda text: LIST)
            made.append((model, base_url, concurrency))

    monkeypatch.setattr("checklist_rewards.backends.openai.OpenAIBackend", Served)
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x"})
    run("run rows.jsonl -o out.jsonl --model m --base-url http://here/v1 --concurrency 7 --no-store")
    assert made == [("m", "http://here/v1", 7)]
