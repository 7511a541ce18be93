"""The library: checklists, prompts, pipelines and judges as files of the project folder, in a folder per kind.

A file is saved only if the parser of its kind accepts it, whose sentence is shown otherwise, and only if it is still
the version that was opened, so that an edit elsewhere (an editor, `git pull`) is not overwritten.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import Checklist
from checklist_rewards.datasets.formats import ROWS, known_formats
from checklist_rewards.datasets.importing import AUTO, imported_rows, listed_fields, write_imported
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import FORMATS
from checklist_rewards.judges.checked import usable_check
from checklist_rewards.judges.settings import parse_jury
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.prompts import kind_of_prompt, parse_prompt
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import OutsideError
from checklist_rewards.validation import one_of

LONGEST = 2**20
"""Most bytes of a file that can be edited."""
_saving = threading.Lock()
_CONFIGS = (".yaml", ".yml", ".json")
_PITFALLS = ("fault", "avoided")
KINDS = {"checklists": (".json",), "prompts": (".md",), "pipelines": _CONFIGS, "judges": _CONFIGS}
"""The folders of the library with the extensions of their files."""
NEW = {
    "checklists": '{"items": [\n  {"question": "Does the response …?"}\n]}\n',
    "prompts": (
        "# System\n\nYou answer a question about a response with Yes or No.\n\n# User\n\n{input}\n\n{target}\n\n"
        "{question}\n"
    ),
    "pipelines": "name: mine\nscorer: {mode: item, metric: expected}\n",
    "judges": "panel: {rule: majority}\njudges:\n  - {model: org/one}\n  - {model: org/two}\n",
}
"""How a new file begins."""


class ConflictError(SampleError):
    """A file is not the version that was opened. `stamp`: that of the version that is there, None if there is none."""

    def __init__(self, message: str, stamp: str | None):
        super().__init__(message)
        self.stamp = stamp


@dataclass(frozen=True)
class Library:
    """The library of a project."""

    judging: Judging

    def listed(self) -> dict[str, Any]:
        """The files by kind, each with a line about its content or the sentence of its error."""
        names = [file.name for file in self.judging.project.files()]
        kinds = {
            kind: [{"name": name, **self._state(name)} for name in names if _kind(name) == kind] for kind in KINDS
        }
        return {"kinds": kinds, "new": NEW, "extensions": KINDS, "importing": self._import_form(names)}

    def read(self, name: Any) -> dict[str, Any]:
        """The text of a file, its stamp, and its state."""
        text = self._text_of(name)
        return {"name": name, "text": text, "stamp": _stamp(text), **self._state(name, text)}

    def check(self, name: Any, text: Any) -> dict[str, Any]:
        """The state that a file with this name and text would have."""
        try:
            _known(name)
            self.judging.project.path(name)
            return self._state(name, _text(text, name))
        except SampleError as error:  # also while the name is typed
            return {"summary": None, "error": str(error)}

    def save(self, name: Any, text: Any, stamp: Any) -> dict[str, Any]:
        """Save a file. `stamp` is that of the text that was opened, or None for a new file.

        Raises a [`ChecklistRewardsError`] if the parser refuses the text, and [`ConflictError`] if the file has
        another stamp.
        """
        _known(name)
        path = self.judging.project.target(name)
        self._summary(name, _text(text, name))
        with _saving:
            present = _stamp(read_text(path)) if path.exists() else None
            if stamp is None and present is not None:
                raise ConflictError(f"{name} exists; open it, or choose another name.", present)
            if stamp != present:
                raise ConflictError(
                    f"{name} has changed since it was opened; open it again, and copy your text before.", present
                )
            write_text(path, text)
        return self.read(name)

    def import_file(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a `file` of another project as `checklists import` does, to the `output`: a new file of rows
        (.jsonl, .csv, .parquet) or a checklist of the library (.json), by default named after the file. `format`,
        `may_abstain` and `pitfalls` are those of [`imported_rows`]."""
        project, format, pitfalls = self.judging.project, body.get("format") or AUTO, body.get("pitfalls") or None
        one_of("format", format, (AUTO, ROWS, *known_formats()))  # not a path, which could lie outside the project
        one_of("pitfalls", pitfalls, (None, *_PITFALLS))
        source = project.existing(body.get("file") or "")
        named = f"checklists/{source.stem}.json" if source.suffix in _CONFIGS else f"imported/{source.stem}.jsonl"
        output = body.get("output") or named
        path = project.target(output)
        if path.suffix.lower() not in FORMATS:
            _known(output)
        if path.exists():
            raise SampleError(f"{output} exists; choose another name.")
        try:
            may_abstain = bool(body.get("may_abstain"))
            imported = imported_rows(source, format=format, may_abstain=may_abstain, pitfalls=pitfalls)
            rows, items = write_imported(imported, source, path)
        except ChecklistRewardsError as error:
            raise SampleError(self.judging.project.public(str(error))) from None
        dropped = listed_fields(imported.left_out)
        name, taken = imported.format.name, imported.taken()
        return {"name": output, "format": name, "rows": rows, "items": items, "dropped": dropped, "taken": taken}

    def _import_form(self, names: Sequence[str]) -> dict[str, Any]:
        """The JSON schema of what [`Library.import_file`] is given."""
        fields = {
            "file": {"enum": list(names)},
            "format": {"enum": [ROWS, *known_formats()], "optional": True, "empty": "detect"},
            "pitfalls": {"enum": list(_PITFALLS), "optional": True, "empty": "by their text"},
            "output": {"type": "string", "optional": True},
            "may_abstain": {"type": "boolean", "default": False},
        }
        return {"type": "object", "properties": fields}

    def _text_of(self, name: Any) -> str:
        _known(name)
        path = self.judging.project.existing(name)
        _bounded(path.stat().st_size, name)
        return read_text(path)

    def _state(self, name: str, text: str | None = None) -> dict[str, Any]:
        try:
            return {"summary": self._summary(name, self._text_of(name) if text is None else text), "error": None}
        except ChecklistRewardsError as error:
            return {"summary": None, "error": self.judging.project.public(str(error))}

    def _summary(self, name: str, text: str) -> str:
        try:
            return _PARSERS[_known(name)](self.judging, name, text)
        except ChecklistRewardsError as error:
            raise SampleError(self.judging.project.public(str(error))) from None


def checklist_text(value: Any) -> str:
    """A checklist of the page as the text of its file. Raises [`ChecklistError`]."""
    Checklist.parse(value)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _checklist(_: Judging, name: str, text: str) -> str:
    checklist = Checklist.parse(text, name)
    for item in checklist.items:
        if item.check is not None:
            usable_check(item, name, allow_code="unsafe")  # checks the settings, and runs nothing
    penalties = sum(item.weight < 0 for item in checklist.items)
    shown = f"{penalties} {'penalty' if penalties == 1 else 'penalties'}" if penalties else None
    return ", ".join(filter(None, [f"{len(checklist)} item{'s' * (len(checklist) != 1)}", shown, checklist.source]))


def _prompt(_: Judging, name: str, text: str) -> str:
    prompt = parse_prompt(text, kind_of_prompt(text), name)
    return f"a {prompt.kind} prompt with {', '.join(f'{{{field}}}' for field in sorted(prompt.placeholders))}"


def _pipeline(judging: Judging, name: str, text: str) -> str:
    value = read_value(text, name)
    judging.permitted.check_pipeline(name, value)
    config = PipelineConfig.parse(value, name, judging.project.path(name).parent)
    return f"pipeline {config.name!r}: {config.generator.kind} generator, {config.scorer.kind} scorer"


def _judges(judging: Judging, name: str, text: str) -> str:
    value = read_value(text, name)
    judging.permitted.check_judges(name, value)
    parse_jury(value, name, judging.project.path(name).parent)
    if "judges" not in value:
        return f"the judge {value['model']}"
    return f"a {'panel' if 'panel' in value else 'cascade'} of {len(value['judges'])} judges"


_PARSERS: Mapping[str, Callable[[Judging, str, str], str]] = {
    "checklists": _checklist,
    "prompts": _prompt,
    "pipelines": _pipeline,
    "judges": _judges,
}


def _kind(name: str) -> str | None:
    folder, slash, rest = name.partition("/")
    return folder if slash and Path(rest).suffix.lower() in KINDS.get(folder, ()) else None


def _known(name: Any) -> str:
    """The kind of a file of the library. Raises [`OutsideError`] for other names."""
    kind = _kind(name) if isinstance(name, str) else None
    if kind is None:
        allowed = ", ".join(f"{kind}/NAME{'|'.join(found)}" for kind, found in KINDS.items())
        raise OutsideError(f"{name!r:.120} is not a file of the library; allowed: {allowed}.")
    return kind


def _text(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise SampleError(f"{name}: the text must be a string, got {type(text).__name__}.")
    try:
        _bounded(len(text.encode("utf-8")), name)
    except UnicodeEncodeError:
        raise SampleError(f"{name}: the text has half a surrogate pair, which a file in UTF-8 cannot hold.") from None
    return text


def _bounded(size: int, name: str) -> None:
    if size > LONGEST:
        raise SampleError(f"{name} has {size:,} bytes; the library edits files of up to {LONGEST:,} bytes.")


def _stamp(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
