"""Without the name of a model nothing is judged or written: every command and call refuses before an engine starts."""

import json
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer, Sample, build_checklists, pipeline
from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import NO_MODEL
from checklist_rewards.errors import ModelError
from checklist_rewards.generators import ContrastiveGenerator
from checklist_rewards.generators.base import Request
from checklist_rewards.judges.probe import probe
from checklist_rewards.rerank import rerank
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl, write_jsonl

ROW = {"prompt": "Write about rain.", "target": "Rain falls.", "checklist": ["Is it about rain?"]}
ROW |= {"candidates": ["Rain falls.", "No."]}

COMMANDS = [
    *(
        f"{name} rows.jsonl -o out.jsonl --no-store"
        for name in ("score", "generate", "run", "rerank", "refine", "pairs")
    ),
    "score rows.jsonl -o out.jsonl --no-store --mode batch",
    "score rows.jsonl -o out.jsonl --no-store --base-url http://localhost:9/v1",
    "generate rows.jsonl -o out.jsonl --no-store --dry-run",
    "pairs rows.jsonl -o out.jsonl --no-store --select random",
    "probe",
    "serve --port 0 --no-store",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_a_model_is_refused_before_anything_is_loaded(run, no_engine, command):
    write_jsonl("rows.jsonl", ROW)
    run(command, refused=NO_MODEL, with_model=False)


def scored(scorer):
    return scorer.score_batch([Sample(ROW["checklist"], "Rain falls.")])


IN_PYTHON = {
    "scorer": lambda: scored(ChecklistScorer(store=False)),
    "an engine": lambda: scored(ChecklistScorer(Engine(), store=False)),
    "empty": lambda: scored(ChecklistScorer("", store=False)),
    "batch": lambda: scored(ChecklistScorer(mode="batch", store=False)),
    "thinking": lambda: scored(ChecklistScorer(thinking=8, store=False)),
    "reasons": lambda: scored(ChecklistScorer(capture_reasoning=True, store=False)),
    "encoder": lambda: scored(ChecklistScorer(backend="encoder", store=False)),
    "a server": lambda: scored(ChecklistScorer(base_url="http://localhost:9/v1", store=False)),
    "check": lambda: ChecklistScorer(store=False).validate(),
    "rerank": lambda: rerank(ChecklistScorer(store=False), ROW["checklist"], ROW["candidates"]),
    "reward": lambda: ChecklistReward(store=False)(["A"], ["Rain falls."], checklist=[ROW["checklist"]]),
    "probe": lambda: probe(),
    "pipeline": lambda: pipeline("tick", store=False)(input="Write.", target="Rain falls."),
    "pipeline, one of two": lambda: pipeline("tick", scorer_model="pocket", store=False)(input="Write."),
    "build_checklists": lambda: build_checklists(["Write about rain."], store=False),
    "contrastive": lambda: ContrastiveGenerator(store=False).generate_batch([Request("W.", candidates=("a", "b"))]),
}


@pytest.mark.parametrize("call", IN_PYTHON.values(), ids=IN_PYTHON)
def test_python_without_a_model_is_refused_before_anything_is_loaded(no_engine, call):
    with pytest.raises(ModelError) as error:
        call()
    assert str(error.value).endswith(NO_MODEL) and "\n" not in str(error.value)


def test_a_pipeline_that_names_its_models_is_enough(run, engine):
    engine(lambda prefix, tail: 0.9)
    Path("mine.json").write_text(json.dumps({"name": "mine", "scorer": {"model": "pocket"}}))
    write_jsonl("rows.jsonl", ROW)
    run("score rows.jsonl -o out.jsonl --no-store --config mine.json", with_model=False)


@pytest.mark.parametrize("command", ["score", "rerank", "pairs"])
def test_code_checks_alone_need_no_store_that_can_be_written(run, no_engine, command):
    line = f"{command} rows.jsonl -o out.jsonl --store rows.jsonl/s.sqlite"
    check = {"question": "Is it short?", "check": '{"type": "words", "at_most": 1}'}
    write_jsonl("rows.jsonl", ROW | {"checklist": [check]})
    run(line)
    assert len(read_jsonl("out.jsonl")) == 1
    write_jsonl("rows.jsonl", ROW)
    run(line, refused="the store rows.jsonl/s.sqlite cannot be opened")
