"""Engine settings from the command line and from YAML files."""

import json

import pytest
import yaml

from checklist_rewards import ChecklistScorer, pipeline
from checklist_rewards.backends import Engine
from checklist_rewards.cli.options import JudgeOptions, OwnWriter
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.rewards.configured import configured_reward
from tests.jsonl import write_jsonl

ROW = {"input": "Write a note.", "target": "Who is there?", "checklist": ["Does it end with a question mark?"]}


def test_settings_reach_the_engine_and_the_store_key(run):
    write_jsonl("rows.jsonl", ROW)
    command = ("score", "rows.jsonl", "-o", "out.jsonl", "--backend", "transformers", "--store", "s.sqlite")
    for options, asked in (
        ([], 1),
        (["--engine-args", "max_batch_tokens=64"], 0),
        (["--engine-args", "dtype=bfloat16", "--engine-args", '{"max_batch_tokens": 128}'], 1),
        (["--engine-args", "dtype=bfloat16"], 0),
    ):
        run(*command, *options, "--summary", "summary.json")
        assert json.load(open("summary.json"))["receipt"]["asked"] == asked, options


@pytest.mark.parametrize(
    ("judge", "writer"),
    [
        ("auto", "auto"),
        ("transformers", "transformers"),
        ("encoder", "auto"),
        ("decisions", "auto"),
        ("remote", "auto"),
    ],
)
def test_the_backend_of_a_second_model_is_the_judges_if_that_can_write(judge, writer):
    options = OwnWriter(given={"writer.model": "pocket"})
    assert options.engine_beside(JudgeOptions(given={"judge.backend": judge})).backend == writer


def test_settings_stand_in_files_of_judges_and_of_rewards(tmp_path):
    judges, reward = tmp_path / "judges.yaml", tmp_path / "reward.yaml"
    settings = {"tensor_parallel_size": 2, "quantization": "fp8"}
    asked = {"model": "pocket", "backend": "vllm", "engine_args": settings}
    judges.write_text(yaml.safe_dump({"panel": {}, "judges": ["pocket", asked]}))
    reward.write_text(yaml.safe_dump(asked))
    expected = Engine("pocket", "vllm", None, settings)
    assert load_jury(judges, store=False).judges[1].engine == expected
    assert load_jury(judges, store=False, limited=lambda engine: engine).judges[1].engine == expected
    assert configured_reward(str(reward)).scorer.judge.engine == expected


def test_a_pipeline_has_settings_for_its_judge_and_for_its_writer():
    pipe = pipeline(
        "tick", model="pocket", engine_args={"dtype": "bfloat16"}, generator_engine_args={"max_batch_tokens": 64}
    )
    assert isinstance(pipe.scorer, ChecklistScorer)
    assert pipe.scorer.judge.engine == Engine("pocket", settings={"dtype": "bfloat16"})
    assert pipe.generator.engine == Engine("pocket", settings={"max_batch_tokens": 64})
    both = pipeline("tick", model="pocket", engine_args={"dtype": "bfloat16"})
    assert both.generator.engine == both.scorer.judge.engine
