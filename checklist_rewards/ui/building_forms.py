"""Forms of the view Build: JSON schemas of the settings of generators and refiners, and of the code checks.

The page makes a form of each schema, so a registered check or part has its form without code in the page.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import create_model

from checklist_rewards.checks import CHECKS, Check
from checklist_rewards.pipelines.registry import SURROUNDINGS

JSON = {"type": "json"}
"""The schema of a value that the page edits as JSON."""
_PLAIN = (str, bool, int, float)


@cache
def settings_form(factory: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of the parameters of a part that are a number, a text, a choice or yes/no.

    Parameters of other kinds, such as a prompt file, an embedder or the permission to run code, are left out: the page
    cannot set them.
    """
    made = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    hints = get_type_hints(made)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        hint = hints.get(name)
        if name not in SURROUNDINGS and _is_plain(hint):
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hint, default)
    return create_model("Settings", **fields).model_json_schema() | {"title": "settings"} if fields else _EMPTY


_EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


def with_defaults(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with other defaults, those of a pipeline."""
    known = schema["properties"]
    return {**schema, "properties": known | {k: known[k] | {"default": v} for k, v in values.items() if k in known}}


def check_forms() -> list[dict[str, Any]]:
    """Name, description, example and form of every type of code check."""
    return [
        {
            "name": name,
            "summary": kind.summary,
            "runs_code": kind.executes,
            "example": dict(kind.example),
            "form": _check_form(kind),
        }
        for name, kind in CHECKS.items()
        if kind.offered
    ]


def _check_form(kind: type[Check]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    properties = {
        # A check inside a check can be of any type, which a form cannot know.
        name: JSON if "$ref" in json.dumps(value) else value
        for name, value in schema["properties"].items()
        if name != "type"
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return len(kinds) == 1 and _is_plain(kinds[0])
    return hint in _PLAIN or get_origin(hint) is Literal
