"""Rows with checklists in the shapes that trainers other than TRL read; the adapters of `rewards/integrations` find
the checklist there.

The checklist is JSON text, the safest form in Parquet. Except for ms-swift, the text also has the input, its images,
the history and the reference, because some trainers pass no prompt to a reward. All other columns are kept, and
`checklists import` reads the rows back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import Checklist
from checklist_rewards.datasets.columns import CHECKLIST_COLUMNS, PROMPT
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import read_rows_for, write_rows
from checklist_rewards.images import PLACE, Image, images_in, parts, shown
from checklist_rewards.messages import chat_messages
from checklist_rewards.rows import REFERENCE, Columns, moved
from checklist_rewards.validation import one_of

Row = dict[str, Any]
NAME = "checklist"
"""What rows of mixed datasets are called (`data_source`, `ability`, `dataset`)."""
_COLUMNS = Columns((PROMPT,), history=None, named=True)


EXPORTS: Mapping[str, Row] = {
    "verl": {
        "data_source": NAME,
        "prompt": "$messages",
        "ability": NAME,
        "reward_model": {"style": "rule", "ground_truth": "$label"},
        "extra_info": {"index": "$number"},
    },
    "openrlhf": {"input": "$messages", "label": "$label"},
    "swift": {"messages": "$messages", "checklist": "$items"},
    "open-instruct": {"messages": "$messages", "ground_truth": "$label", "dataset": NAME},
    "nemo-gym": {
        "responses_create_params": {"input": "$messages"},
        "verifier_metadata": {"checklist": "$label"},
    },
    "verifiers": {"prompt": "$messages", "checklist": "$label", "info": "{}"},
}
"""The shape of a row by trainer; "$name" is one of its messages, its label, its items and its number."""


def exported(row: Mapping[str, Any], to: str, number: int = 0, where: str = "the row", folder: str | Path = "") -> Row:
    """A row with `prompt` and `checklist` in the shape of another trainer, one of `EXPORTS`. Its label has the images
    of its prompt as data URLs; relative paths of images begin in `folder`.

    Raises:
        SampleError, ChecklistError: If it has no prompt or no valid checklist, an image that is an address, or a
            column of the same name.
    """
    one_of("to", to, tuple(EXPORTS))
    for name in (PROMPT, "checklist"):
        if row.get(name) is None:
            problem = (
                "null; remove the row" if name in row else f"missing; the row has {', '.join(row) or 'no columns'}"
            )
            raise SampleError(f"{where}: {name!r} is {problem}.")
    input, history, _held = replace(_COLUMNS, folder=Path(folder)).context_of(row, where)
    prompt, checklist = messages_in(row[PROMPT]), Checklist.parse(row["checklist"], where)
    items: Any = [_without_none(item.model_dump(exclude={"sources"})) for item in checklist.items]
    origin = {
        "source": checklist.source or row.get("checklist_source"),
        "model": checklist.model or row.get("checklist_model"),
    }
    whole = {"items": items, **_without_none(origin)} if any(origin.values()) else items
    reference = row.get(REFERENCE)
    label = {"checklist": whole, "input": input and _worded(input), "history": history and shown(history)}
    images = list(dict.fromkeys(images_in(history, input)))
    if address := next((image.source for image in images if image.size is None), None):
        raise SampleError(f"{where}: the image {address} is an address, which a label cannot have; download it.")
    label |= {"images": [image.url for image in images]} if images else {}
    label |= {"reference": reference} if isinstance(reference, str) and reference else {}
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else chat_messages(prompt)
    others = {name: value for name, value in row.items() if name not in (PROMPT, *CHECKLIST_COLUMNS)}
    filled = {
        "messages": messages,
        "label": json.dumps(_without_none(label), ensure_ascii=False),
        "items": json.dumps(whole, ensure_ascii=False),
        "number": number,
    }
    shaped = _filled(EXPORTS[to], filled)
    for name in others:
        if name in shaped and name != "extra_info":
            raise SampleError(f"{where}: the column {name!r} has a meaning for {to}; rename it.")
    return shaped | others


def export_file(file: Path, output: Path, to: str) -> int:
    """Write the rows of a file in the shape of another trainer. Returns their number."""
    number = 0
    with write_rows(output) as out:
        for row in read_rows_for(file, output):
            out.write(moved(exported(row.data, to, number, row.where, row.folder), row.folder, output.parent))
            number += 1
        if not number:
            raise SampleError(f"{file} has no rows.")
    return number


def _worded(input: str) -> str:
    """The text of an input. "[image]" stands for an image, unless it is in front, where those of a label are put."""
    after = dropwhile(lambda part: isinstance(part, Image), parts(input))
    return "".join(PLACE if isinstance(part, Image) else part for part in after)


def _filled(shape: Any, parts: Mapping[str, Any]) -> Any:
    """A shape with the parts of a row in their places."""
    if isinstance(shape, Mapping):
        return {name: _filled(value, parts) for name, value in shape.items()}
    return parts[shape[1:]] if shape.startswith("$") else shape


def _without_none(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: content for name, content in value.items() if content is not None}
