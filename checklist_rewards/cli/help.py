"""The help of commands, in plain text.

`--help` shows the options without a heading, each with the first sentence of its help; `--help-all` shows all options
in full, under their headings. A command without `--help-all` shows all of its options in both.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from checklist_rewards.validation import one_sentence

SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_show_locals": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}
"""Of every app of commands."""
_IN_FULL = "checklist_rewards.help_all"
_NAMES_WIDTH = 24
"""Columns of the names of options; longer ones have a line of their own."""


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[_IN_FULL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", help="Show all options in full.", is_eager=True, callback=_show_all),
]


class _Plain:
    """Writes this help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, options and commands."""
        _write_description(self, ctx, formatter)
        _write_options(self, ctx, formatter)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


class Command(_Plain, TyperCommand):
    """A command with this help. A value that an option does not allow is one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = one_sentence(error.__cause__)
            raise


class Group(_Plain, TyperGroup):
    """A group of commands with this help."""


def _write_description(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the usage and the docstring of a command. Code blocks keep their lines; bold words lose their stars."""
    code = re.compile(r"```\n(.*?)```", re.DOTALL)
    text = code.sub(lambda block: "\b\n" + re.sub("(?m)^", "  ", block[1].rstrip()), command.help or "")
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(re.sub(r"\*\*(.+?)\*\*", r"\1", text))


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options."""
    parameters = [one for one in command.get_params(ctx) if not one.hidden]
    in_full = ctx.meta.get(_IN_FULL) or not any("--help-all" in one.opts for one in parameters)
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for one in parameters:
        is_argument = one.param_type_name == "argument"
        heading = None if is_argument else one.rich_help_panel
        if in_full or heading is None:
            name = "Arguments" if is_argument else heading or "Options"
            sections.setdefault(name, []).append((_names(one, in_full), _help(one, in_full)))
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=_NAMES_WIDTH)


def _names(parameter: Any, in_full: bool) -> str:
    """The names of an option and the form of its value; in short without names that have a dot, if it has others."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    opts = [name for name in parameter.opts if "." not in name]
    names = ", ".join([*(parameter.opts if in_full or not opts else opts), *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'TEXT'}"


def _help(parameter: Any, in_full: bool) -> str:
    """The help, or its first sentence, and the default."""
    text = " ".join((parameter.help or "").split())
    text = text if in_full else re.split(r"(?<=[^.]\.) (?=[A-Z`\"])", text)[0]
    default = parameter.show_default and (
        parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    )
    if parameter.required:
        return f"{text} [required]"
    if default is None or isinstance(default, bool) or default == "":
        return text
    return f"{text} [default: {default}]"
