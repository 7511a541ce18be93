"""Pipelines on the command line: those of papers, corpus-level ones from files, and what a dry run says."""

import gzip
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from checklist_rewards.pipelines import get_pipeline, list_pipelines
from tests.jsonl import read_jsonl, write_jsonl
from tests.pipelines.fakes import Scripted

PER_INPUT = [name for name in list_pipelines() if get_pipeline(name).paper and not get_pipeline(name).corpus_level]
CORPUS = ["checkeval", "interacteval", "feedback"]
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


@pytest.mark.parametrize("name", PER_INPUT)
def test_every_pipeline_runs_on_its_own_example(run, scripted, name):
    example = run(f"run --example-input {name}")
    Path("rows.jsonl").write_text(example.stdout)
    fake = scripted(writes_and_judges)
    run(f"run rows.jsonl -o out.jsonl --pipeline {name} --no-store")
    [row] = read_jsonl("out.jsonl")
    config = get_pipeline(name)
    assert row["checklist_source"].startswith(f"{name}/") and row["checklist"][0]["question"] == "Is it short?"
    assert row["checklist_score"]["primary_metric"] == config.scorer.metric
    assert row["checklist_score"]["answered"] == len(row["checklist"])
    shown = [key for key in ("reference", "context", "chosen", "rejected") if key in json.loads(example.stdout)]
    assert all(json.loads(example.stdout)[key] in fake.prompts[0] for key in shown)


@pytest.mark.parametrize("name", CORPUS)
def test_a_corpus_pipelines_example_is_a_source_that_it_takes(run, scripted, name):
    source = run(f"generate --example-input {name}")
    Path("source.json").write_text(source.stdout)
    get_pipeline(name).source.model_validate_json(source.stdout)
    shown = run(f"generate source.json -o c.json --pipeline {name} --dry-run --no-store")
    assert "first stage" in shown.stdout and not Path("c.json").exists()


def test_checkeval_writes_a_shared_checklist_that_score_and_run_use(run, scripted):
    fake = scripted(lambda text: {"questions": [{"question": "Is it grammatical?"}]})
    dimension = {"name": "fluency", "definition": "It reads well.", "seed_questions": ["Is it plain?"]}
    Path("source.json").write_text(json.dumps({"dimensions": [dimension]}))
    write_jsonl("rows.jsonl", *({"input": "Sum up.", "target": text} for text in ("one", "two")))
    kept = ["--pipeline", "checkeval", "--store", "s.sqlite"]
    run("generate source.json -o c.json", *kept, "--summary", "sum.json")
    shared = json.loads(Path("c.json").read_text())
    assert [item["question"] for item in shared["items"]] == ["Is it plain?", "Is it grammatical?"]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["questions"] == 2 and "1 sent" in summary["stage_elaborate"]
    asked = len(fake.prompts)
    item = ["--mode", "item", "--metric", "pass"]
    run("run rows.jsonl -o a.jsonl", *kept, "--source", "source.json", *item)
    assert len(fake.prompts) == asked  # the same checklist, out of the store
    run("run rows.jsonl -o b.jsonl", *kept, "--checklist", "c.json", *item)
    run("score rows.jsonl -o c.jsonl", *kept, "--checklist", "c.json", *item)
    scores = [[row["checklist_score"] for row in read_jsonl(f"{name}.jsonl")] for name in "abc"]
    assert scores[0] == scores[1] == scores[2] and len(scores[0]) == 2 and scores[0][0]["total"] == 2
    assert read_jsonl("a.jsonl")[0]["checklist_source"].startswith("checkeval/")


@pytest.mark.slow  # loads a sentence encoder
def test_feedback_is_unit_tested_on_a_few_of_the_rows(run, scripted):
    def reply(text: str) -> object:
        if '"sources"' in text:
            return {"questions": [{"question": "Is it grammatical?", "sources": [0]}]}
        return {"reason": "so", "general": True, "specific": True, "response": "bad"}

    fake = scripted(reply, last=0.1)
    Path("source.json").write_text('{"observations": ["The grammar is bad."]}')
    write_jsonl("rows.jsonl", *({"target": f"text {n}"} for n in range(50)))
    options = ["--pipeline", "feedback", "--source", "source.json", "--mode", "item", "--no-store"]
    done = run("run rows.jsonl -o out.jsonl", *options, code=1)
    assert "unit_test" in done.stderr, done.output  # every rewrite passes all the same
    tried = [prefix for prefix, _, _ in fake.reads if "\ntext " in prefix]
    assert len(tried) == 17 and any("\ntext 48\n" in prefix for prefix in tried)
    assert [row["checklist_score"] for row in read_jsonl("out.jsonl")] == [None] * 50


def test_a_stage_that_breaks_leaves_the_rows_unscored_and_is_named(run, scripted):
    scripted(lambda text: "I would rather not.")
    Path("source.yaml").write_text("dimensions: [{name: fluency, definition: It reads well.}]\n")
    write_jsonl("rows.jsonl", {"target": "one"}, {"target": "two"})
    options = ["--pipeline", "checkeval", "--source", "source.yaml", "--no-store", "--summary", "sum.json"]
    done = run("run rows.jsonl -o out.jsonl", *options, code=1)
    assert "seed" in done.stderr and "I would rather not." in done.stderr
    assert [row["checklist_score"] for row in read_jsonl("out.jsonl")] == [None, None]
    assert json.loads(Path("sum.json").read_text())["unanswered"] == {"no_checklist": 2, "not_generated": 1}
    run("generate source.yaml -o c.json --pipeline checkeval --no-store", code=1)
    assert not Path("c.json").exists()


def test_options_beat_the_pipeline(run, scripted):
    fake = scripted(writes_and_judges)
    Path("mine.md").write_text("Mine: {input}")
    Path("judge.md").write_text("Judged: {target} {question}")
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x"})
    options = ["--pipeline", "rocketeval", "--writer.prompt", "mine.md", "--judge.prompt", "judge.md"]
    options += "--writer.temperature 0.2 --metric pass --writer.model pocket --writer.max-items 3".split()
    run("run rows.jsonl -o out.jsonl", *options, "--no-store")
    [row] = read_jsonl("out.jsonl")
    assert fake.prompts[0].startswith("Mine: ") and fake.reads[0][0].startswith("Judged: ")
    assert fake.samplings[0].temperature == 0.2
    assert row["checklist_score"]["primary_metric"] == "pass" and row["checklist_source"].startswith("mine/")


def test_a_pipeline_of_ones_own_from_a_file(run, scripted):
    fake = scripted(lambda text: LIST)
    Path("mine.md").write_text("Mine: {input} {context}")
    Path("mine.yaml").write_text("name: mine\ngenerator: {prompt: mine.md}\nscorer: {metric: pass, threshold: 0.2}\n")
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x", "text": "of the sea"})
    options = ["--config", "mine.yaml", "--context-key", "text", "--no-store"]
    run("run rows.jsonl -o out.jsonl", *options)
    [row] = read_jsonl("out.jsonl")
    assert "of the sea" in fake.prompts[0] and row["checklist_score"]["primary_score"] == 1.0


@pytest.mark.parametrize(
    ("options", "calls", "n"),
    [
        (["--mode", "batch", "--judge.temperature", "0.5"], 1, 1),
        (["--judge.votes", "3", "--judge.temperature", "0.5"], 2, 3),
        (["--judge.no-use-logprobs"], 2, 1),
        (["--pipeline", "rocketeval", "--mode", "batch"], 1, 1),
    ],
)
def test_the_judges_ways_of_asking(run, scripted, options, calls, n):
    fake = scripted(writes_and_judges)
    write_jsonl("rows.jsonl", {"target": "x", "checklist": ["Is it a?", "Is it b?"]})
    run("score rows.jsonl -o out.jsonl", *options, "--no-store")
    assert len(fake.prompts) == calls and {sampling.n for sampling in fake.samplings} == {n} and not fake.reads
    assert fake.samplings[0].temperature == (0.5 if "0.5" in options else 0)
    assert read_jsonl("out.jsonl")[0]["checklist_score"]["pass_rate"] == 1.0


def test_the_quality_judge_grades(run, scripted):
    answers = [{"index": n, "justification": "It is.", "answer": "yes"} for n in (1, 2)]
    scripted(lambda text: {"answers": answers, "grade": 4})
    write_jsonl("rows.jsonl", {"target": "x", "checklist": ["Is it a?", "Is it b?"]})
    run("score rows.jsonl -o out.jsonl --mode quality --pipeline tick --no-store")
    [row] = read_jsonl("out.jsonl")
    assert (row["checklist_score"]["quality"], row["checklist_score"]["primary_metric"]) == (4, "pass")


def test_history_and_trainers_pairs_are_known_by_their_names(run, scripted):
    fake = scripted(writes_and_judges)
    turn = [{"role": "assistant", "content": "the better one"}]
    other = [{"role": "assistant", "content": "the worse one"}]
    write_jsonl("rows.jsonl", {"prompt": "Write.", "chosen": turn, "rejected": other, "target": "x"})
    run("generate rows.jsonl -o a.jsonl --pipeline openrubrics_pairwise --no-store")
    assert "the better one" in fake.prompts[0] and "the worse one" in fake.prompts[0]
    write_jsonl("rows.jsonl", {"input": "Write.", "history": "user: Hello.", "target": "x"})
    run("run rows.jsonl -o b.jsonl --pipeline rocketeval --no-store")
    assert "user: Hello." in fake.prompts[-1] and all("user: Hello." in prefix for prefix, _, _ in fake.reads)


def test_a_dry_run_counts_what_is_not_in_the_store(run, scripted, no_engine):
    write_jsonl("rows.jsonl", *({"input": f"Write {n}.", "target": "x"} for n in range(3)))
    options = ["--store", "s.sqlite", "--price", "pocket=1000000,2000000"]
    shown = run("run rows.jsonl -o out.jsonl --dry-run", *options)
    lines = {cells[0]: cells[1:] for cells in table(shown.stdout)}
    assert lines["checklists"][:2] == ["pocket", "3"] and lines["scores"][:2] == ["pocket", "24"]
    assert lines["checklists"][3] == "1,536" and lines["scores"][3] == "24"  # 512 per reply, 1 per read
    prompt, reply, price = (float(cell.replace(",", "")) for cell in lines["scores"][2:])
    assert price == pytest.approx(prompt + 2 * reply)
    assert "8 questions each" in shown.stdout and not Path("out.jsonl").exists()
    scripted(lambda text: LIST)
    run("run rows.jsonl -o out.jsonl --store s.sqlite")
    write_jsonl("rows.jsonl", *({"input": f"Write {n}.", "target": "x"} for n in range(4)))
    again = {cells[0]: cells[1:] for cells in table(run("run rows.jsonl -o o.jsonl --dry-run", *options).stdout)}
    assert again["checklists"][1] == "1" and again["scores"][1] == "8"


def test_a_dry_run_counts_candidates_by_model(run, no_engine):
    write_jsonl("rows.jsonl", {"input": "Write.", "reference": "x", "target": "x"})
    options = ["--pipeline", "rlcf_candidate", "--model", "big", "--base-url", "http://127.0.0.1:9/v1", "--no-store"]
    options += ["--writer.candidate-models", "small", "--writer.candidate-models", "tiny", "--price", "small=1,1"]
    shown = run("generate rows.jsonl -o out.jsonl --dry-run", *options)
    assert [cells[:3] for cells in table(shown.stdout)] == [
        ["candidates", "small", "1"],
        ["candidates", "tiny", "1"],
        ["checklists", "big", "1"],
    ]


def test_a_run_says_what_writing_and_all_of_it_cost(run, scripted):
    scripted(lambda text: LIST)
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x"})
    options = ["--no-store", "--summary", "sum.json", "--price"]
    run("run rows.jsonl -o out.jsonl", *options, "pocket=1,1")
    summary = json.loads(Path("sum.json").read_text())
    assert summary["writer_calls"] == 1 and summary["US_dollars"] >= 0
    run("run rows.jsonl -o out.jsonl", *options, "other=1,1")


def table(text: str) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")
    ]
    return [row for row in rows if len(row) == 6]


def test_concurrency_reaches_the_server_and_both_models_share_it(run, monkeypatch):
    made = []

    class Served(Scripted):
        def __init__(self, model, base_url, *, concurrency):
            super().__init__(lambda text: LIST)
            made.append((model, base_url, concurrency))

    monkeypatch.setattr("checklist_rewards.backends.openai.OpenAIBackend", Served)
    write_jsonl("rows.jsonl", {"input": "Write.", "target": "x"})
    options = ["--model", "m", "--base-url", "http://here/v1", "--concurrency", "7", "--no-store"]
    run("run rows.jsonl -o out.jsonl", *options)
    assert made == [("m", "http://here/v1", 7)]


DIMENSIONS = {
    "coherence": ["Does the response have more than one sentence?"],
    "consistency": ["Does the response contain a digit?"],
    "fluency": ["Does the response end with a period?", "Does the response start with a capital letter?"],
    "relevance": ["Does the response have fewer than 60 words?"],
}


@pytest.mark.slow
@pytest.mark.parametrize("every", [80, pytest.param(1, marks=pytest.mark.study)], ids=["20 rows", "all rows"])
def test_one_checklist_over_summeval_loses_no_row(every, run, pocket, data_dir):
    """With seed questions and no augmentation, checkeval asks no model for more: the pocket model could not. Nor does
    it read the articles, which take five minutes on one core and of which some are too long for it."""
    with gzip.open(data_dir / "summeval" / "summeval_16sys_expert_mean.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][::every]
    write_jsonl("rows.jsonl", *rows)
    dimensions = [{"name": name, "definition": name, "seed_questions": asked} for name, asked in DIMENSIONS.items()]
    Path("source.json").write_text(json.dumps({"dimensions": dimensions}))
    config = get_pipeline("checkeval").replace({"name": "seeds", "generator": {"options": {"augmentation": "none"}}})
    config.save("seeds.yaml")
    options = ["--config", "seeds.yaml", "--source", "source.json", "--mode", "item", "--target-key", "summary"]
    options += ["--backend", "transformers", "--no-store", "--summary", "sum.json"]
    run("run rows.jsonl -o out.jsonl", *options)
    out, summary = read_jsonl("out.jsonl"), json.loads(Path("sum.json").read_text())
    assert [{key: row[key] for key in rows[0]} for row in out] == rows
    assert (len(out), summary["rows"], summary["reads"]) == (len(rows), len(rows), 5 * len(rows))
    assert len({row["checklist_id"] for row in out}) == 1 and summary["questions"] == 5
    assert all(row["checklist_score"]["total"] == 5 for row in out)
    assert all(row["checklist_score"]["answered"] == 5 for row in out)


def test_what_nobody_named_may_be_missing_from_a_row(run, scripted):
    fake = scripted(lambda text: "1. Is it short?\n2. Is it kind?")
    write_jsonl("rows.jsonl", {"input": "a", "target": "b", "reference": "The best."}, {"input": "c", "target": "d"})
    run("generate rows.jsonl -o out.jsonl --pipeline tick --no-store")
    assert ["The best." in prompt for prompt in fake.prompts] == [True, False]
    words = "rows.jsonl, line 2: column 'reference' not found"
    run("generate rows.jsonl -o x.jsonl --pipeline tick --reference-key reference", refused=words)


def test_rules_alone_write_checklists_and_say_what_they_cannot_express(run, no_engine):
    Path("rules.yaml").write_text("name: rules\ngenerator: {kind: constraints}\n")
    write_jsonl(
        "rows.jsonl",
        {"prompt": "Explain tides in at most 30 words, without commas."},
        {"prompt": "Write about 100 words on tea.", "image": "red.png"},
    )
    Image.new("RGB", (2, 2), "red").save("red.png")
    options = ["--config", "rules.yaml", "--summary", "summary.json"]
    shown = run("generate rows.jsonl -o out.jsonl", *options, code=1)  # the second row has no checklist
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
    write_jsonl("rows.jsonl", {"prompt": "Explain tides."}, {"prompt": "Explain rain."}, {"prompt": "Explain rain."})
    options = ["--config", "strict.yaml", "--no-store", "--summary", "summary.json"]
    shown = run("generate rows.jsonl -o out.jsonl", *options)
    left_out = {"not one yes/no question": 3, "names a number that the input does not have": 3}
    assert json.loads(Path("summary.json").read_text())["left_out"] == left_out  # one of each per row
    assert "questions left out" in shown.stderr


def test_rules_find_items_before_a_model_writes_the_others(run, scripted):
    scripted(lambda text: LIST)
    write_jsonl("rows.jsonl", {"prompt": "Explain tides in at most 30 words."})
    options = ["--writer.constraints", "--no-store", "--summary", "summary.json"]
    run("generate rows.jsonl -o out.jsonl", *options)
    [row] = read_jsonl("out.jsonl")
    assert [item["check"] is not None for item in row["checklist"]] == [True, False, False]
    assert json.loads(Path("summary.json").read_text())["items"] == {"by rules": 1, "by the model": 2}
