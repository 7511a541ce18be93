"""A griffe extension that reads TRL's form of docstrings.

[`Name`] becomes a link where the API reference has `Name`. Of "name (`type`, *optional*, defaults to `x`):" the type
is kept; the default is shown from the signature.
"""

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"^( +[*\w][\w*, ]*) \((.*)\):", re.MULTILINE)
REFERENCE = re.compile(r"\[`~?([A-Za-z_][\w.]*)`\](?![\[(])")


class References(griffe.Extension):
    """Links the names that docstrings put in brackets."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of a class, function or module."""
        if obj.docstring is not None:
            text = PARAMETER.sub(lambda match: f"{match[1]} ({plain(match[2])}):", obj.docstring.value)
            obj.docstring.value = REFERENCE.sub(lambda match: link(match[1], obj), text)


def plain(annotation: str) -> str:
    """The type of an argument, without markup."""
    return re.sub(r"[\[`~\]]", "", annotation.split(", *optional*")[0])


def link(name: str, obj: griffe.Object) -> str:
    """A link that is plain code where the reference has no such name."""
    try:
        path = obj.resolve(name)
    except (griffe.NameResolutionError, griffe.AliasResolutionError):
        path = name
    return f'<autoref identifier="{path}" optional><code>{name}</code></autoref>'
