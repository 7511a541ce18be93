"""The JSON Schema of a checklist, made from the package's models: `python -m conformance.schema` prints it.

What JSON Schema cannot say is in `README.md`. `tests/test_conformance.py` compares the file with this one.
"""

from __future__ import annotations

import json
from typing import Any


def checklist_schema() -> dict[str, Any]:
    """The schema of `checklist.schema.json`."""
    from checklist_rewards import Checklist

    schema = _plain(Checklist.model_json_schema())
    kinds = schema["$defs"]
    item, option = kinds["ChecklistItem"], kinds["Option"]
    item["properties"]["question"]["pattern"] = r"\S"
    item["properties"]["check"] = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}
    item["not"] = {
        "properties": {name: {"not": {"type": "null"}} for name in ("options", "scope")},
        "required": ["options", "scope"],
    }
    for kind in (item, option):
        for name, field in kind["properties"].items():
            if name not in kind["required"] and {"type": "null"} not in field.get("anyOf", ()):
                kind["properties"][name] = {"anyOf": [field, {"type": "null"}]}
    valued = {"properties": {"value": {"type": "number"}, "na": {"enum": [False, None]}}, "required": ["value"]}
    abstention = {"properties": {"value": {"type": "null"}, "na": {"const": True}}, "required": ["na"]}
    option["oneOf"] = [valued, abstention]
    options = item["properties"]["options"]["anyOf"][0]
    options |= {"contains": {"required": ["value"], "properties": {"value": {"type": "number"}}}, "minContains": 2}
    items = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"type": "string", "pattern": r"\S"}, {"$ref": "#/$defs/ChecklistItem"}]},
        "contains": {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"weight": {"not": {"const": 0}}}},
            ]
        },
    }
    whole = {key: schema[key] for key in ("type", "properties", "required", "additionalProperties")}
    whole["properties"] |= {"items": {"$ref": "#/$defs/Items"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Checklist",
        "description": "Questions about a response to one prompt: a list, or an object with the list and its origin.",
        "anyOf": [{"$ref": "#/$defs/Items"}, whole],
        "$defs": {"Items": items, **kinds},
    }


def _plain(value: Any) -> Any:
    """The schema without titles and docstrings, which are about Python."""
    if isinstance(value, dict):
        texts = ("title", "description", "default")
        return {key: _plain(entry) for key, entry in value.items() if key not in texts or isinstance(entry, dict)}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


if __name__ == "__main__":
    print(json.dumps(checklist_schema(), indent=1))
