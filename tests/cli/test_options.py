"""Options that are generated from settings classes: what a user of a command reads."""

from typing import Any

from typer.main import get_command

from checklist_rewards.cli import app
from checklist_rewards.judges.settings import JudgeConfig, Mode
from checklist_rewards.scores import Aggregation


def options_of(command: str) -> dict[str, Any]:
    return {option.opts[0]: option for option in get_command(app).commands[command].params}


def test_every_option_of_every_command_has_help():
    for name, command in get_command(app).commands.items():
        for option in command.params:
            assert option.help, (name, option.opts)


def test_help_and_default_are_those_of_the_setting():
    options = options_of("score")
    assert options["--mass-floor"].help == "Lowest P(yes) + P(no), from 0 to 1, for a read to count as answered."
    assert options["--mass-floor"].show_default == str(JudgeConfig.model_fields["mass_floor"].default)
    assert options["--min-answered"].show_default == str(Aggregation.min_answered)
    assert options["--no-answer"].show_default == Aggregation.no_answer == "lowest"
    assert options["--metric"].show_default == "the pipeline's, else expected"
    assert options["--model"].show_default == "the pipeline's"
    assert options["--model"].opts == ["--model", "-m", "--scorer-model"]
    assert options["--samples"].min == 1 and options["--threshold"].max is None
    assert options["--mode"].type_descriptor.annotation == Mode
    assert options["--temperature"].show_default == "0, or 0.7 with several --samples"


def test_settings_in_the_help_are_called_as_on_the_command_line():
    options = options_of("run")
    assert "the server at --base-url if given, else `encoder`" in options["--backend"].help
    unless = "True in mode item, unless --capture-reasoning, --samples,"
    assert options["--use-logprobs"].show_default.startswith(unless)
    assert options["--engine"].help.startswith("NAME=VALUE or a JSON object, repeatable. Engine arguments")


def test_only_options_that_the_user_gave_override_a_pipeline():
    for option in options_of("score").values():
        if option.rich_help_panel == "Judge":
            assert (option.default is None) == (option.name != "backend"), option.opts


def test_help_starts_with_the_ten_options_that_most_users_need():
    """Without a heading are the arguments and at most ten options; all others have one."""
    for name, command in get_command(app).commands.items():
        plain = [option for option in command.params if option.rich_help_panel is None]
        options = [option for option in plain if option.param_type_name == "option"]
        assert len(options) <= 10, name
        headings = {option.rich_help_panel for option in command.params} - {None}
        assert len(command.params) < 30 or (len(options) >= 6 and headings), name
    options = options_of("score")
    assert list(options)[:4] == ["--output", "--model", "--base-url", "--checklist"]
    assert options["--mass-floor"].rich_help_panel == "Judge"
