"""Options generated from settings classes.

Type, limits, help and default of an option follow from the field of the setting. Stated here is only how options are
spelled where that differs from the field.
"""

from __future__ import annotations

import re
from dataclasses import make_dataclass
from typing import Annotated, Any, Literal

from checklist_rewards.cli.options.base import JUDGE, option
from checklist_rewards.fields import field_docs, settings_of
from checklist_rewards.judges.settings import JudgeSettings
from checklist_rewards.scores import Aggregation

SPELLED: dict[str, tuple[str, ...]] = {
    "model": ("--model", "-m", "--scorer-model"),
    "engine": ("--engine",),
    "primary_metric": ("--metric",),
    "prompt": ("--prompt", "--scorer-prompt"),
    "use_logprobs": ("--use-logprobs/--no-use-logprobs", "--logprobs/--no-logprobs"),
    "capture_reasoning": ("--capture-reasoning/--no-capture-reasoning", "--reasoning/--no-reasoning"),
    "temperature": ("--scorer-temperature",),
    "example_reasons": ("--example-reasons",),
}
"""Names of the options of judge settings: the name of the field first, unless a command has a writer with a setting of
that name, then shorter ones. All others are called as the field."""

NOT_AN_OPTION = ("max_tokens",)
"""Settings without an option in commands with a writer, which has an option of that name."""

OptionField = tuple[str, Any, Any]
"""Name, annotation and default of a field of an option group."""


def group_of(*options: OptionField) -> Any:
    """A dataclass with these fields, as the base of an option group."""
    return make_dataclass("Options", options, frozen=True)


def setting(
    owner: type,
    name: str,
    *,
    attribute: str | None = None,
    default: str = "{}",
    always: bool = False,
    **more: Any,
) -> OptionField:
    """A field of an option group for a judge setting, None unless the user gives the option.

    Args:
        owner (`type`):
            The dataclass of the setting.
        name (`str`):
            Its field.
        attribute (`str`, *optional*):
            Name of the field in the group. Defaults to `name`.
        default (`str`, *optional*, defaults to `"{}"`):
            The default shown, with `{}` for that of the field.
        always (`bool`, *optional*, defaults to `False`):
            Whether the default of the field is used if the option is not given, instead of None.
        **more:
            Arguments of [`option_of`].
    """
    field = settings_of(owner)[name]
    kind: Any = field.kind
    if field.kind is str and field.choices:
        kind = Literal.__getitem__(field.choices)
    if field.at_most is None:  # a value outside of two limits is refused by the class, as everywhere
        more["min"] = field.at_least
    if always:
        info = option_of(owner, name, *SPELLED.get(name, ()), default=True, **more)
        return attribute or name, Annotated[kind, info], field.default
    if field.default not in (None, False) or default != "{}":
        more["default"] = default.format(field.default)
    return attribute or name, Annotated[kind | None, option_of(owner, name, *SPELLED.get(name, ()), **more)], None


def option_of(
    owner: type,
    name: str,
    *names: str,
    panel: str | None = JUDGE,
    default: str | bool = False,
    form: str = "",
    **more: Any,
) -> Any:
    """An option whose help is the docstring under a field.

    Args:
        owner (`type`):
            The class of the setting.
        name (`str`):
            Its field. Settings in its docstring are replaced by their options, and the sentence "Defaults to ..." at
            its end becomes the default shown.
        *names (`str`):
            Names of the option. Defaults to that of the parameter.
        panel (`str`, *optional*, defaults to `JUDGE`):
            Panel of the help; None for the first one.
        default (`str` or `bool`, *optional*, defaults to `False`):
            The default shown if the docstring states none.
        form (`str`, *optional*):
            How the value is given on the command line; the help begins with it.
        **more:
            Arguments of `typer.Option`.
    """
    doc = re.sub(r"\[?`(\w+)`\]?", _as_option, " ".join(field_docs(owner).get(name, "").split()))
    text, _, documented = doc.partition(" Defaults to ")
    shown = documented.rstrip(".").replace("`", "")
    return option(panel, f"{form} {text}".strip(), *names, default=default or shown or False, **more)


def _as_option(name: re.Match[str]) -> str:
    """The option of a setting that a docstring names; other names stay code."""
    field = name[1]
    if field in NOT_AN_OPTION or field not in settings_of(JudgeSettings) | settings_of(Aggregation):
        return f"`{field}`"
    return SPELLED.get(field, (f"--{field.replace('_', '-')}",))[0].partition("/")[0]
