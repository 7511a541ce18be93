"""Every pipeline and every refiner on the command line, with recorded replies of a capable writer and their faults."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from checklist_rewards.pipelines import get_pipeline, list_pipelines
from tests.jsonl import read_jsonl, write_jsonl
from tests.pipelines.staged import recorded, staged

PIPELINES = [name for name in list_pipelines() if get_pipeline(name).paper]
PROMPTS = recorded("requests")["prompts"]
CORPUS = recorded("requests")["corpus"]
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
        write_jsonl("rows.jsonl", *({"target": text} for text in CORPUS.values()))
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


def refined(run) -> tuple[list[dict], dict, Counter]:
    """As [`example`], of the four refiners after `openrubrics_pairwise`."""
    config = get_pipeline("openrubrics_pairwise").replace({"name": "refined"}).model_dump(exclude_defaults=True)
    Path("refined.yaml").write_text(yaml.safe_dump(config | {"refiners": REFINERS}))
    write_jsonl("rows.jsonl", row_of(PROMPTS["landlord"], "openrubrics_pairwise"))
    return scored(run, recorded("openrubrics_pairwise") | recorded("refiners"), "--config", "refined.yaml")


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
    _, summary, asked = refined(run)
    assert asked.total() == CALLS["refiners"]
    assert summary["left_out"] == {"by tagger": 2, "by deduplicator": 1, "by unit_tester": 1, "by selector": 1}
