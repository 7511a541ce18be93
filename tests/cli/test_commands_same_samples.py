"""A row is the same sample to every command, to the server, the app, a pipeline, and in training data.

Rows are the product of shapes of prompts and shapes of targets. Each is written to a file, sent to the server, and
given to the app and to a pipeline; what reaches `ChecklistScorer.score_batch` is compared with what was meant.
"""

import json
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("datasets")
from fastapi.testclient import TestClient

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.datasets import build_checklists
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.evaluation.labels import text_of
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.files.rows import write_rows
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.pipelines import PipelineConfig, assemble
from checklist_rewards.server import build_app
from checklist_rewards.ui.annotations import read_tasks
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.fakes import FakeBackend

QUESTION = "Is it free of digits?"


def said(content, role="assistant", **fields):
    return {"role": role, "content": content, **fields}


TURNS = [said("Be brief.", "system"), said("Hello.", "user"), said("<think>1</think>Hi.")]
TURNS += [said("Name a city.", "user")]
HISTORY = "system: Be brief.\n\nuser: Hello.\n\nassistant: Hi."
RENDERED = "<|im_start|>user\nName a city.<|im_end|>\n<|im_start|>assistant\n"
OPENING = "a rendered prompt that opens a thought"
PROMPTS = {
    "a text": ("Name a city.", ("Name a city.", None)),
    "a message": ([said("Name a city.", "user")], ("Name a city.", None)),
    "turns": (TURNS, ("Name a city.", HISTORY)),
    "parts": ([said([{"type": "text", "text": "Name a city."}], "user")], ("Name a city.", None)),
    "messages in JSON": (json.dumps(TURNS), ("Name a city.", HISTORY)),
    "another role": ([said("Name a city.", "Human")], ("Name a city.", None)),
    "ShareGPT": ([{"from": "human", "value": "Name a city."}], ("Name a city.", None)),
    "a rendered prompt": (RENDERED, ("Name a city.", None)),
    OPENING: (f"{RENDERED}<think>\n", ("Name a city.", None)),
}
CALL = said(None, tool_calls=[{"function": {"name": "look", "arguments": {"word": "a"}}}])
TARGETS = {
    "a text": ("Rome.", "Rome."),
    "a thought": ("<think>1, 2</think>\n\nRome.", "Rome."),
    "a thought that the prompt opened": ("1, 2</think>Rome.", "Rome."),
    "a message": ([said("<think>1</think>Rome.")], "Rome."),
    "a parsed thought": ([said("Rome.", reasoning_content="1, 2")], "Rome."),
    "a call of a tool": ([CALL, said("12", "tool"), said("Rome.")], "Rome."),
    "parts": ([said([{"type": "text", "text": "Ro"}, {"type": "text", "text": "me."}])], "Rome."),
    "another role": ([said("Rome.", "gpt")], "Rome."),
    "ShareGPT": ([{"from": "gpt", "value": "Rome."}], "Rome."),
    "a list in JSON": ('[{"a": 1}]', '[{"a": 1}]'),
    "a mapping in JSON": ('{"role": "admin"}', '{"role": "admin"}'),
    "a list of roles in JSON": ('[{"role": "admin"}]', '[{"role": "admin"}]'),
    "a conversation in JSON, as a text": (json.dumps(TURNS[:2]),) * 2,
    "the same in quotes": (json.dumps(json.dumps(TURNS[:2])),) * 2,
    "blanks": (" ", ""),
    "half a thought": ("<think>1, 2", ""),
}
SHAPES = list(product(PROMPTS, TARGETS, (None, "<think>Oslo.")))
ROWS = [
    {"input": PROMPTS[prompt][0], "target": TARGETS[target][0], "reference": reference, "checklist": [QUESTION]}
    for prompt, target, reference in SHAPES
]
CLOSED = {"a thought", "a thought that the prompt opened", "a message", "a parsed thought"}
"""Targets that are not all thought if their prompt opens one."""
MEANT = [
    (*PROMPTS[prompt][1], "" if prompt == OPENING and target not in CLOSED else TARGETS[target][1], reference)
    for prompt, target, reference in SHAPES
]
NAMES = list(map(str, SHAPES))
SAID = [len(row["target"]) if isinstance(row["target"], list) and len(row["target"]) > 1 else 0 for row in ROWS]


@pytest.fixture
def scored(monkeypatch):
    """All samples that reach a scorer."""
    samples = []
    score_batch = ChecklistScorer.score_batch

    def remembering(self, some, *arguments, **options):
        samples.extend(some)
        return score_batch(self, some, *arguments, **options)

    monkeypatch.setattr(ChecklistScorer, "score_batch", remembering)
    return samples


def file_of(kind, rows=ROWS, **more) -> str:
    with write_rows(f"rows.{kind}") as out:
        for number, row in enumerate(rows):
            out.write({"id": str(number), **row, **more})
    return f"rows.{kind}"


def named(found) -> dict:
    """What was found of each row, by the names of its prompt and its target."""
    return dict(zip(NAMES, found, strict=True))


def by_score(kind):
    def score(run):
        run("score", file_of(kind), "-o", f"out.{kind}", "--no-store", "--reference-key", "reference")

    return score


def by_server(run):
    with TestClient(build_app(ChecklistScorer(backend=FakeBackend(), store=False))) as client:
        answer = client.post("/score", json={"samples": ROWS})
    assert answer.status_code == 200 and not answer.json()["errors"], answer.text


def by_app(run):
    engine = Engine("fake", FakeBackend())
    judging = Judging(Project.at("."), PipelineConfig(), {}, engine, engine)
    for row in ROWS:
        *_, last = judging.score(row)
        assert last["event"] == "score", last


def by_pipeline(run):
    assemble(PipelineConfig(), None, Engine("m", FakeBackend()), None).run_batch(ROWS, checklist=[QUESTION])


WAYS = {
    **{f"score, {kind}": by_score(kind) for kind in ("jsonl", "csv", "parquet")},
    **{"/score": by_server, "the app": by_app, "a pipeline": by_pipeline},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_the_same_sample_on_every_way(way, scored, run, engine):
    engine()
    WAYS[way](run)
    found = [(s.input or None, s.history or None, s.target, s.reference or None) for s in scored]
    assert named(found) == named(MEANT)
    assert [len(sample.messages) for sample in scored] == SAID
    assert {sample.state for sample in scored} == {"answered", "empty", "cut_in_thought"}


KINDS = ["jsonl", "csv", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_in_training_data(kind, run):
    read = [(one.input, one.target, one.reference) for one in read_labels(file_of(kind, label=1, question=QUESTION))]
    assert named(read) == named((input, answer, reference) for input, _, answer, reference in MEANT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_example(kind, run):
    examples = FewShot.load(file_of(kind, label="yes", question=QUESTION), 1).examples
    assert named((one.input, one.target) for one in examples) == named((one[0], one[2]) for one in MEANT)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_scored_row_is_the_same_to_every_reader(kind, scored, run, engine):
    answered = [place for place, (_, _, answer, _) in enumerate(MEANT) if answer]
    rows, answers = [ROWS[place] for place in answered], [MEANT[place][2] for place in answered]
    engine()
    for name in ("scored.jsonl", f"again.{kind}"):
        run(f"score {file_of('jsonl', rows)} -o {name} --no-store")
    scored.clear()
    run(f"score again.{kind} -o last.jsonl --no-store")
    assert [sample.target for sample in scored] == answers
    assert [pair.target for pair in read_labels(f"again.{kind}")] == answers
    assert [task.target for task in read_tasks(Path(f"again.{kind}"))] == answers
    run(f"agree scored.jsonl again.{kind} --bootstrap 0")  # refuses two texts of the same id
    found = [text_of(row.data["target"]) for row in read_scored(f"again.{kind}")]
    assert found == [text_of(row["target"]) for row in rows]


class Remembering:
    """A generator that remembers its requests."""

    def __init__(self):
        self.requests = []

    def validate(self):
        pass

    def generate_batch(self, requests, progress=None):
        self.requests += requests
        return [Checklist.parse([QUESTION]) for _ in requests]


@pytest.mark.parametrize("shape", PROMPTS)
def test_a_prompt_is_the_same_request_to_a_writer(shape):
    prompt, (input, history) = PROMPTS[shape]
    writer = Remembering()
    rows = [{"prompt": prompt, "reference": reference} for reference in ("<think>Oslo.", "")]
    build_checklists(rows, writer, reference_key="reference", progress=False)
    asked = [(request.input, request.history, request.reference) for request in writer.requests]
    assert asked == [(input, history, "<think>Oslo."), (input, history, None)]
