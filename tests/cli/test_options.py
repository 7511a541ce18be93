"""Options that are made from settings classes: what a user reads, and what a command and an engine get."""

import json
import re
from typing import Any

import pytest
from typer.main import get_command

from checklist_rewards import ChecklistScorer, pipeline
from checklist_rewards.backends import Engine
from checklist_rewards.cli import app
from checklist_rewards.cli.options import JudgeOptions, OwnWriter
from checklist_rewards.judges.settings import JudgeConfig, Mode
from checklist_rewards.scores import Aggregation
from tests.jsonl import write_jsonl


def options_of(command: str) -> dict[str, Any]:
    return {name: option for option in get_command(app).commands[command].params for name in option.opts}


def test_help_and_default_are_those_of_the_setting():
    options = options_of("score")
    floor = options["--judge.mass-floor"]
    assert floor.help == "Lowest P(yes) + P(no), from 0 to 1, for a read to count as answered."
    assert floor.show_default == str(JudgeConfig.model_fields["mass_floor"].default)
    assert options["--min-answered"].show_default == str(Aggregation.min_answered)
    assert options["--no-answer"].show_default == Aggregation.no_answer == "lowest"
    assert options["--metric"].show_default == "expected, or quality in mode quality"
    assert options["--model"].opts == ["--model", "-m", "--judge.model"]
    assert not options["--weights"].multiple and options["--engine-args"].multiple
    assert options["--judge.votes"].min == 1 and options["--threshold"].max is None
    assert options["--mode"].type_descriptor.annotation == Mode
    assert options["--judge.temperature"].show_default == "0, or 0.7 with several --judge.votes"


def test_settings_in_the_help_are_called_as_on_the_command_line():
    options = options_of("run")
    assert "the server at --base-url if given, else `encoder`" in options["--backend"].help
    unless = "True in mode item, unless --judge.capture-reasoning, --judge.votes,"
    assert options["--judge.use-logprobs"].show_default.startswith(unless)
    assert "`judge`: it is judged like any other text" in options["--no-answer"].help, "a choice is no option"


def test_help_shows_about_15_options_and_help_all_shows_all(run):
    short, full = run("score --help").stdout, run("score --help-all").stdout
    named = re.compile(r"^ {2,6}(--?[a-z].*?)(?=  |$)", re.MULTILINE)
    shown, every = (named.findall(text.partition("Options:")[2]) for text in (short, full))
    parameters = get_command(app).commands["score"].params
    assert len(shown) <= 16 < len(every) == len(parameters) and all(option.help for option in parameters)
    assert short.count("\n") <= 60 and "--help-all" in short
    assert not any("judge." in line for line in shown), "the short name is enough"


ROW = {"input": "Write a note.", "target": "Who is there?", "checklist": ["Does it end with a question mark?"]}


def test_settings_reach_the_engine_and_the_store_key(run):
    write_jsonl("rows.jsonl", ROW)
    command = "score rows.jsonl -o out.jsonl --backend transformers --store s.sqlite --summary summary.json"
    for options, asked in (
        ("", 1),
        ("--engine-args max_batch_tokens=64", 0),
        ('--engine-args dtype=bfloat16 --engine-args {"max_batch_tokens":128}', 1),
        ("--engine-args dtype=bfloat16", 0),
    ):
        run(f"{command} {options}")
        assert json.load(open("summary.json"))["receipt"]["asked"] == asked, options


@pytest.mark.parametrize("judge", ["auto", "transformers", "encoder"])
def test_the_backend_of_a_second_model_is_the_judges_if_that_can_write(judge):
    options = OwnWriter(given={"writer.model": "pocket"})
    engine = options.other_engine(JudgeOptions(given={"judge.backend": judge}))
    assert engine.backend == ("transformers" if judge == "transformers" else "auto")


def test_a_pipeline_has_settings_for_its_judge_and_for_its_writer():
    loading, writing = {"dtype": "bfloat16"}, {"max_batch_tokens": 64}
    pipe = pipeline("tick", model="pocket", engine_args=loading, generator_engine_args=writing)
    assert isinstance(pipe.scorer, ChecklistScorer)
    assert pipe.scorer.judge.engine == Engine("pocket", settings=loading)
    assert pipe.generator.engine == Engine("pocket", settings=writing)
    both = pipeline("tick", model="pocket", engine_args=loading)
    assert both.generator.engine == both.scorer.judge.engine


def test_every_option_of_every_command_has_help():
    for name, command in get_command(app).commands.items():
        for option in command.params:
            assert option.help, (name, option.opts)


def test_only_options_that_the_user_gave_override_a_pipeline():
    for option in options_of("score").values():
        if option.rich_help_panel == "Judge" or "--judge.model" in option.opts:
            assert option.default is None, option.opts
