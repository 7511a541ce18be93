"""The accelerate configs, read by accelerate itself, and the commands that the recipes' configs give."""

import re
import shlex

import pytest
import yaml

from tests.conftest import REPO

pytestmark = pytest.mark.slow
CONFIGS = sorted((REPO / "recipes" / "accelerate_configs").glob("*.yaml"))
RECIPES = sorted((REPO / "recipes").glob("*/grpo/config_*.yaml"))


def commands(text: str) -> list[str]:
    """The `accelerate launch` commands in the comments of a file."""
    joined = re.sub(r"\\\n#\s*", "", text)
    return re.findall(r"^#\s+(?:CUDA_VISIBLE_DEVICES=\S+ )?accelerate launch (.+)$", joined, re.M)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_accelerate_reads_the_config(path):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    given = yaml.safe_load(path.read_text())
    assert all(getattr(config, name) == value for name, value in given.items())
    assert ("multi_node" in path.stem) == (config.num_machines > 1) == (config.main_process_ip is not None)
    assert config.num_processes == 8 * config.num_machines


@pytest.mark.parametrize("path", [*CONFIGS, *RECIPES], ids=lambda path: f"{path.parts[-3]} {path.stem}")
def test_the_commands_of_a_config_start_what_is_there(path):
    from accelerate.commands.launch import launch_command_parser

    found = commands(path.read_text())
    assert found or path.stem in ("ddp", "zero3", "config_cpu")
    for command in found:
        args = launch_command_parser().parse_args(shlex.split(command))
        assert (REPO / args.config_file).is_file() and (REPO / args.training_script).is_file()
        if "multi_node" in args.config_file:
            assert args.main_process_ip and args.machine_rank == 0
        config = args.training_script_args[args.training_script_args.index("--config") + 1]
        assert config == "..." or (REPO / config) == path
