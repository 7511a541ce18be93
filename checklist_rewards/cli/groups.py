"""Option groups: a command takes a dataclass of options as one parameter.

    @dataclass(frozen=True)
    class StoreOptions:
        store: StorePath = None
        no_store: NoStore = False

    @grouped
    def score(files: Files, store_options: StoreOptions) -> None: ...

The command line has the options of all groups in order. The command is called with an instance of each group.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand every parameter of `command` whose type is a dataclass into the fields of that dataclass."""
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            types = get_type_hints(kind, include_extras=True)
            parameters += [_parameter(f.name, types[f.name], f.default) for f in fields(kind)]
        else:
            parameters.append(_parameter(name, kind, parameter.default))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        instances = {}
        for name, kind in groups.items():
            instances[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values, **instances)

    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del vars(call)["__wrapped__"]
    return call


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    absent = default is MISSING or default is inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,  # typer recognizes arguments by their annotation
        default=inspect.Parameter.empty if absent else default,
        annotation=annotation,
    )
