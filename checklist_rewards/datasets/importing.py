"""Importing checklists and rubrics of other projects: any source of `sources.py`, in any format of `formats.py`.

    imported = imported_rows("healthbench.jsonl")
    print(imported.taken())
    for row, checklist in imported.rows: ...

Every row is validated. The error of the first invalid row names its file, line, key and item.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, Checklist, ChecklistItem
from checklist_rewards.datasets.columns import (
    CHECKLIST_COLUMNS,
    PROMPT,
    checklist_columns,
    checklist_features,
    dataset_from_rows,
    in_order,
    media,
)
from checklist_rewards.datasets.criteria import Counts, CriteriaReader
from checklist_rewards.datasets.formats import PARTS, ROWS, Format, known_formats, own_format
from checklist_rewards.datasets.meanings import (
    LOSES_A_SCORE,
    holds_faults,
    is_number,
    keys_of,
)
from checklist_rewards.datasets.names import AROUND
from checklist_rewards.datasets.pitfalls import POLARITIES
from checklist_rewards.datasets.promptfoo import filled_asserts
from checklist_rewards.datasets.rubrics import (
    alike,
    ambiguous,
    copies,
    criteria_at,
    detected,
    in_a_rubric,
    inferred,
    numbered,
    prompt_keys,
)
from checklist_rewards.datasets.sources import SHARED, Shared, read_source
from checklist_rewards.datasets.texts import levels_of, number_in
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.cells import at, decoded, messages_in, only_text, places, without
from checklist_rewards.files.documents import FORMATS as DOCUMENTS
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.messages import chat_messages, speaker
from checklist_rewards.rows import IMAGE_COLUMNS, Columns, moved
from checklist_rewards.scores.scales import with_abstention
from checklist_rewards.validation import import_extra, unknown

if TYPE_CHECKING:
    from datasets import Dataset

TARGET, CHECKLIST, REFERENCE, LABELS = "target", "checklist", "reference", "labels"
AUTO, AUTORUBRIC = "auto", "autorubric"
Found = tuple[dict[str, Any], Checklist]
"""A row without its checklist, and the checklist. The row has a `prompt` unless the file has none."""

_LOOKED_AT = 16
"""Rows that are looked at to find the format."""
_VERDICTS = {"MET": YES, "UNMET": NO, "CANNOT_ASSESS": CANNOT_ASSESS}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImportedRows:
    """The rows of a source."""

    format: Format
    rows: Iterator[Found]
    features: Callable[[], Mapping[str, Any]]
    """The types of the columns of the source; see [`SourceRows`]."""
    counts: Counts = field(default_factory=Counts)
    """What was dropped, taken and changed; complete once all rows have been read."""

    @property
    def left_out(self) -> Counter[str]:
        """Dropped fields with the number of items that had them."""
        return self.counts.dropped

    def taken(self) -> list[str]:
        """What was taken for what, one line for each part; complete once all rows have been read."""
        format, counts, taken = self.format, self.counts, self.counts.taken
        words = ", ".join(f"{word} = {weight:g}" for word, weight in sorted(counts.words.items()))
        fault, avoided, unclear = (counts.pitfalls[name] for name in POLARITIES)
        said = f"{fault} texts state a fault, {avoided} say what is avoided and got a positive weight"
        lines = {
            "criteria": f"{format.checklist or 'the whole row'} ({format.shape})",
            "prompt": " + ".join(format.prompt),
            **{part: key for part, key in format.item.items() if part != "options" or taken["options"]},
            "reference": format.reference,
            "target": format.target,
            "weights": words,
            "gates": taken["required"],
            "items with options": taken["options"],
            "items with code checks": taken["check"],
            "negative weights": f"{said}, {unclear} do not say" if avoided else None,
            "kept as columns": ", ".join(counts.columns),
            "the data set's own score": format.metric and f"--metric {format.metric}",
        }
        return [f"{what}: {value}" for what, value in lines.items() if value]


@dataclass(frozen=True, slots=True)
class _Settings:
    """How to import; see [`import_checklists`]."""

    format: str | Path = AUTO
    prompt_key: str | Sequence[str] | None = None
    checklist_key: str | None = None
    target_key: str | None = None
    item_keys: Mapping[str, str] | None = None
    may_abstain: bool = False
    source: str | None = None
    drop: Collection[str] = ()
    pitfalls: Literal["fault", "avoided"] | None = None
    weights: Mapping[str, float] | None = None


def import_checklists(path: str | Path | Dataset, **settings: Any) -> Dataset:
    """Import checklists or rubrics as a dataset.

    Args:
        path (`str`, `Path` or `Dataset`): a file, a folder or a pattern of files (.jsonl, .csv, .parquet, .json,
            .yaml), a dataset, or the name of one on the hub.
        format (`str` or `Path`, *optional*, defaults to `"auto"`): the name of a packaged format, or the YAML file of
            another one (see [`formats.Format`]). `"auto"` detects it: a packaged format that fits, otherwise by shape.
        prompt_key (`str` or sequence of `str`, *optional*): the key of the prompt (a string or chat messages); dotted
            for a value inside another. The nonblank texts of several keys are joined by blank lines.
        checklist_key (`str`, *optional*): the key of the criteria.
        target_key (`str`, *optional*): the key of a text to score; its column is renamed to `target`.
        item_keys (mapping, *optional*): the keys of parts of items, such as `{"question": "criterion", "weight":
            "points"}`. A key is one of the items, or of the row with one value per item (lists of strings are joined
            by ", ").
        may_abstain (`bool`, *optional*, defaults to `False`): allow "cannot_assess" for every question.
        source (`str`, *optional*): origin of the checklists, for the column `checklist_source`.
        drop (collection of `str`): keys of items to drop although they sound like part of the score.
        pitfalls (`str`, *optional*): `"fault"` or `"avoided"`: what a text with a negative weight says that does not
            say it itself.
        weights (mapping, *optional*): numbers for weights in words, such as `{"Critical": 4}`.

    Returns:
        [`~datasets.Dataset`]: The columns of [`checklist_features`] and all other columns of the source.

    Raises:
        SampleError, ChecklistError: If a row is not valid.

    Example:

        >>> import_checklists("infobench.jsonl", target_key="output")  # doctest: +SKIP
    """
    import_extra("datasets", extra="datasets")
    imported = imported_rows(path, **settings)
    name = path if isinstance(path, str | Path) else "the dataset"

    def rows() -> Iterator[dict[str, Any]]:
        for row, checklist in imported.rows:
            if PROMPT not in row:
                raise SampleError(
                    f"{name}: the checklist has no prompt, but every row of a dataset needs one; `checklists import` "
                    "writes it to a .json file that can be used for all rows of another file."
                )
            yield row | checklist_columns(checklist)

    features = checklist_features()
    del features[PROMPT]
    if (first := next(found := rows(), None)) is None:
        raise SampleError(f"{name}: the file has no rows.")
    features |= {name: kind for name, kind in media(imported.features()).items() if name in first and name != PROMPT}
    dataset = dataset_from_rows(chain([first], found), features)
    assert dataset is not None
    if imported.left_out:
        logger.warning("%s: dropped fields that items do not have: %s", name, listed_fields(imported.left_out))
    return in_order(dataset)


def imported_rows(path: str | Path | Dataset, *, folder: Path = Path(), **settings: Any) -> ImportedRows:
    """The rows of [`import_checklists`] as an iterator, with what was taken and left. It has the same arguments, and
    the folder in which relative paths of images begin in the rows."""
    how = _Settings(**settings)
    for name in how.item_keys or ():
        if name not in PARTS and name not in ChecklistItem.model_fields:
            raise SampleError(f"item_keys: {name!r} is not a field of an item; allowed: {', '.join(PARTS)}.")
    source, features = read_source(path)
    where = str(path) if isinstance(path, str | Path) else "the dataset"
    known = _named_format(how)
    peeked = list(islice(source, _LOOKED_AT))
    if known is None:
        known = _found_format([row.data for row in peeked], peeked[0].where if len(peeked) else where, how)
    elif known.name == AUTORUBRIC and peeked and SHARED not in peeked[0].data:
        raise SampleError(
            f"{where}: format='autorubric' requires a {', '.join(DOCUMENTS)} file with 'rubric' and 'items'."
        )
    format = _with_keys(known, how)
    counts = Counts()
    reader = CriteriaReader(format, counts, how.pitfalls, frozenset(how.item_keys or ()))
    every = chain(peeked, source)
    found = _rows(every, format, reader, how, folder)

    def rows() -> Iterator[Found]:
        for row, checklist in found:
            checklist = with_abstention(checklist) if how.may_abstain else checklist
            yield row, checklist if how.source is None else checklist.model_copy(update={"source": how.source})
        if counts.undecided is not None:
            said = counts.pitfalls
            raise SampleError(
                f"{counts.undecided}: this text has a negative weight and does not say whether it is a fault or what "
                f"a good response avoids, like {said['unclear']} of {said.total()} such texts ({said['fault']} state "
                f"a fault, {said['avoided']} say what is avoided). Set --pitfalls fault, or --pitfalls avoided."
            )

    return ImportedRows(format, rows(), features, counts)


def write_imported(imported: ImportedRows, file: str | Path, output: Path) -> tuple[int | None, int]:
    """Write the imported rows of a file, or with an output in .json its only checklist.

    Returns:
        `tuple[int | None, int]`: The number of rows, None for a checklist, and the number of items.

    Raises:
        SampleError: If a row is not valid, or the output cannot hold the rows. Nothing is written.
    """
    if output.suffix.lower() == ".json":
        checklists = {checklist.id: checklist for _, checklist in imported.rows}
        if len(checklists) != 1:
            content = f"{len(checklists)} different checklists" if checklists else "no rows"
            raise SampleError(
                f"{file} has {content}, but --output {output} holds exactly one checklist; set it to a .jsonl, .csv "
                "or .parquet file."
            )
        [checklist] = checklists.values()
        write_json(output, checklist.model_dump(mode="json"))
        return None, len(checklist)
    rows = items = 0
    with write_rows(output) as out:
        for row, checklist in imported.rows:
            if PROMPT not in row:
                if row:
                    raise SampleError(
                        f"{file}: no prompt found; the other keys are {keys_of(row)}. Name its key with --prompt-key, "
                        "or write the checklist without a prompt to an --output in .json."
                    )
                raise SampleError(
                    f"{file} holds a single checklist without a prompt, which cannot be written as rows; set "
                    "--output to a .json file and use it with `score --checklist`."
                )
            out.write(row | checklist_columns(checklist))
            rows, items = rows + 1, items + len(checklist)
        if not rows:
            raise SampleError(f"{file} has no rows.")
    return rows, items


def listed_fields(left_out: Counter[str]) -> str:
    """The dropped fields with their counts, as text."""
    return ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))


# --- the format ------------------------------------------------------------------------------------------------------


def _named_format(how: _Settings) -> Format | None:
    """The format that the user named; None for one that is to be found."""
    name = str(how.format)
    if name in (AUTO, ROWS):
        return None
    own = Path(name).suffix.lower() in DOCUMENTS
    known = known_formats()
    if not own and name not in known:
        raise SampleError(f"{unknown('format', name, (AUTO, ROWS, *known)).rstrip('.')}, or a YAML file of your own.")
    named = ("prompt_key", how.prompt_key), ("checklist_key", how.checklist_key), ("item_keys", how.item_keys)
    given = next((key for key, value in named if value and not (own and key == "item_keys")), None)
    if given is not None:
        where = f"set {given} in that file" if own else f"{given} requires format='rows', or a YAML file of your own"
        raise SampleError(f"format={name!r} has fixed keys; {where}.")
    return own_format(name) if own else known[name]


def _found_format(rows: Sequence[Mapping[str, Any]], where: str, how: _Settings) -> Format:
    keys = None if how.prompt_key is None else [how.prompt_key] if isinstance(how.prompt_key, str) else how.prompt_key
    own = how.checklist_key or CHECKLIST
    if not rows:
        return Format(name=ROWS, checklist=own, prompt=tuple(keys or (PROMPT,)))
    named = keys is not None or how.checklist_key is not None or how.item_keys
    if SHARED in rows[0]:
        return known_formats()[AUTORUBRIC]
    if how.format == AUTO and not named and (known := detected(rows[:3])):
        return known
    inside = decoded(rows[0].get(CHECKLIST))
    if how.checklist_key is None and isinstance(inside, Mapping) and CHECKLIST in inside:
        own = f"{CHECKLIST}.{CHECKLIST}"  # a label, as in exported rows
    if not how.item_keys and is_own(at(rows[0], own)):
        prompt = keys if keys is not None else prompt_keys(rows[0], own) or (PROMPT,)
        return Format(name=ROWS, checklist=own, prompt=tuple(prompt))
    for name in [*(keys or ()), *([how.checklist_key] if how.checklist_key else [])]:
        if at(rows[0], name) is None and name not in rows[0]:
            raise SampleError(f"{where}: key {name!r} not found; the keys are {keys_of(rows[0])}.")
    try:
        return inferred(rows, where, how.checklist_key or (CHECKLIST if CHECKLIST in rows[0] else None), keys)
    except SampleError:
        if {"rubric", "sections", "criteria"} & rows[0].keys() and PROMPT not in rows[0] and not named:
            return known_formats()["rubric"]  # its reader says what is wrong with it
        raise


def is_own(value: Any) -> bool:
    """Whether criteria are items of this package with their ids, as it writes them: they are taken as they are."""
    value = decoded(value)
    items = value.get("items") if isinstance(value, Mapping) else value
    entries = [decoded(item) for item in items] if isinstance(items, list) else []
    return bool(entries) and all(
        isinstance(item, Mapping)
        and {"id", "question"} <= item.keys() <= ChecklistItem.model_fields.keys()
        and not isinstance(item.get("weight"), str)  # as in a table of criteria
        for item in entries
    )


def _with_keys(format: Format, how: _Settings) -> Format:
    found = {part: key for part, key in format.item.items() if part == "question" or key not in how.drop}
    item = {**found, **(how.item_keys or {})}
    own = {"target": how.target_key or format.target, "words": how.weights or format.words}
    return format.model_copy(update={"item": item, "drop": (*format.drop, *how.drop), **own})


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows(
    rows: Iterator[Row], format: Format, reader: CriteriaReader, how: _Settings, folder: Path
) -> Iterator[Found]:
    own = [key for key in (format.target, format.reference, format.grade, SHARED) if key]
    required = [key for key in (format.checklist, format.target) if key]
    outer, _, last = format.checklist.rpartition(".")
    faults = last if holds_faults(last) == "yes" else None
    previous: tuple[Any, Checklist] | None = None
    for row in rows:
        data = row.data
        shared: Shared | None = data.get(SHARED) if format.name == AUTORUBRIC else None
        reader.counts.dropped.update(shared.unused if shared else ())
        for key in required:
            if criteria_at(data, key) is None and key not in data:
                raise SampleError(f"{row.where}: key {key!r} not found; the keys are {keys_of(data)}.")
        value = criteria_at(data, format.checklist)
        if format.shape == "asserts" and outer and isinstance(asserts := decoded(value), list):  # promptfoo's results
            value = filled_asserts(asserts, at(data, f"{outer}.vars") or {}, row.where)
        columns: dict[str, Any] = {}
        if format.prompt and not (format.promptless and all(key not in data for key in format.prompt)):
            columns[PROMPT] = _prompt(row, format)
            pictured = _pictured(row) if isinstance(columns[PROMPT], list) else {}
            reading = Columns((PROMPT,), history=None, named=True, folder=row.folder)
            reading.request_of(pictured | columns, row.where)
            _check_prompt(columns[PROMPT], row, format, how)
        if format.target:
            columns[TARGET] = only_text(at(data, format.target), f"{row.where}: {format.target!r}")
        if format.reference and (reference := at(data, format.reference)) is not None:
            columns[REFERENCE] = reference
        sections = decoded(at(data, format.section_weights)) if format.section_weights else None
        if not how.item_keys and format.name == ROWS and is_own(value):
            checklist = Checklist.parse(decoded(value), row.where)
        elif shared and previous and previous[0] is value:
            checklist = previous[1]
        else:
            checklist = reader.checklist(
                value,
                shared.rubric if shared else row.where,
                data if format.shape == "items" else None,
                shared.unassessed if shared else frozenset(),
                section_weights=sections,
                section=faults,
            )
            _check_siblings(row, format, reader, how, decoded(value), checklist)
        previous = value, checklist
        if format.name == ROWS:
            checklist = _with_origin(checklist, value, data)
        grade = at(data, format.grade) if format.grade else None
        if grade is not None and format.shape == "levels":
            columns[LABELS] = [_level(grade, value, row.where)]
        elif format.grade and (grade is not None or shared):
            columns[LABELS] = _labels(grade, format.grade, checklist, row.where)
        others = dict(data)
        gone = _gone(data, format, value)
        for key in [*gone, *copies(data, format.checklist), *(k for k in format.prompt if "{n}" not in k), *own]:
            others = without(others, key)
        given = {TARGET: format.target, REFERENCE: format.reference, LABELS: format.grade}
        for name in [name for name in columns if name in others]:
            key = given.get(name) or " + ".join(format.prompt)
            if not isinstance(left := decoded(others.pop(name)), Mapping) or not key.startswith(f"{name}."):
                raise SampleError(
                    f"{row.where}: {key!r} would be renamed to {name!r}, but that column exists; rename it."
                )
            reader.counts.dropped.update(f"{name}.{inner}" for inner in left)  # what stood around the value
        reserved = next((name for name in others if name in CHECKLIST_COLUMNS), None)
        if reserved and format.name != ROWS:
            raise SampleError(f"{row.where}: the column name {reserved!r} is reserved; rename the column.")
        others = {name: content for name, content in others.items() if name not in CHECKLIST_COLUMNS}
        reader.counts.columns.update(dict.fromkeys(others))
        yield moved(columns | others, row.folder, folder), checklist


def _check_siblings(
    row: Row, format: Format, reader: CriteriaReader, how: _Settings, value: Any, checklist: Checklist
) -> None:
    """Look at what stands beside the criteria of a row.

    Raises:
        SampleError, ChecklistError: If it may be part of the score: more criteria, or a value for each criterion.
    """
    if format.name == ROWS and how.checklist_key is None and format.checklist:
        if others := [name for name in alike(row.data, format.checklist, value) if name not in reader.keys.values()]:
            raise ambiguous(row.where, [format.checklist, *others])
    if outer := in_a_rubric(format.checklist):
        around = decoded(at(row.data, outer))
        last = format.checklist.rpartition(".")[2]
        reader.leave("rubric.", {name: one for name, one in around.items() if name not in (last, *AROUND)}, row.where)
    for name, other in row.data.items() if format.checklist and format.shape in ("items", "text") else ():
        known = format.checklist, format.section_weights, format.grade, *format.drop
        taken = {name, str(name)} & {*reader.keys.values(), *known}
        if taken or not LOSES_A_SCORE.search(str(name)):
            continue
        other = decoded(other)
        alone = format.name == ROWS and isinstance(decoded(value), str) and len(checklist) == 1
        if alone and _WEIGHTS.search(str(name)) and (is_number(other) or number_in(str(other)) is not None):
            raise SampleError(
                f"{row.where}: {name!r} may be the weight of the only criterion of this row; write the criteria of a "
                f"prompt as a list into one row, each with its weight, or keep it as a column with --drop {name}."
            )
        if isinstance(other, Mapping):
            sections = {item.category for item in checklist.items}
            apart = all(map(is_number, other.values())) and (_WEIGHTS.search(str(name)) or {*other} <= sections)
        else:
            apart = isinstance(other, list) and len(other) == len(checklist)
        if apart:
            raise SampleError(
                f"{row.where}: {name!r} has {len(other)} values for the criteria or their sections, and may be part "
                f"of the score; map a list with --item-key weight={name}, or keep it as a column with --drop {name}."
            )


_WEIGHTS = re.compile("weight|points|importance", re.IGNORECASE)


def _gone(data: Mapping[str, Any], format: Format, value: Any) -> list[str]:
    """The keys of what became the checklist."""
    if not format.prompt and not format.checklist:
        return list(data)  # a rubric and nothing else
    if format.shape == "instructions" and isinstance(value := decoded(value), Mapping):
        names = [name for name in ("instruction_id_list", "instruction_id", "kwargs") if name in value]
        return [f"{format.checklist}.{name}" if format.checklist else name for name in names] or [format.checklist]
    if format.shape == "levels" and not format.checklist:
        return [name for name in data if _OF_A_LEVEL.fullmatch(name)]
    turns = [key.format(n=n) for key in format.prompt if "{n}" in key for n in range(len(data))]
    return [*(numbered(data, format.checklist) or [format.checklist]), *turns]


_OF_A_LEVEL = re.compile(r"(orig_)?(criteria|score_?\d+(_description)?|rubric|evaluation_steps)")


def _with_origin(checklist: Checklist, value: Any, data: Mapping[str, Any]) -> Checklist:
    """The checklist with the origin that its row names, and without a name of the format."""
    named = value if isinstance(value := decoded(value), Mapping) else {}
    origin = {key: named.get(key) or data.get(f"checklist_{key}") or None for key in ("source", "model")}
    return checklist.model_copy(update=origin)


def _prompt(row: Row, format: Format) -> Any:
    """The prompt of a row: text or messages."""
    turns = [key for key in format.prompt if "{n}" in key]
    if turns:
        return _turns(row, turns)
    values = {}
    for key in format.prompt:
        value = at(row.data, key)
        if value is None and key not in row.data:
            raise SampleError(f"{row.where}: key {key!r} not found; the keys are {keys_of(row.data)}.")
        value = messages_in(value)
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            value = value["messages"]
        elif isinstance(value, Mapping) and "user" in value and {*value} <= {"system", "user"}:
            value = [{"role": role, "content": value[role]} for role in ("system", "user") if value.get(role)]
        elif isinstance(value, Mapping):
            raise SampleError(
                f"{row.where}: {key!r} must be a text or messages, got a mapping with the keys {keys_of(value)}; name "
                f"one with --prompt-key {key}.KEY."
            )
        values[key] = chat_messages(value)
    return Columns(format.prompt, history=None, named=True, folder=row.folder).messages_of(
        _pictured(row) | values, row.where
    )


def _pictured(row: Row) -> dict[str, Any]:
    """The columns with the images of a row."""
    return {name: row.data[name] for name in IMAGE_COLUMNS if name in row.data}


def _check_prompt(prompt: Any, row: Row, format: Format, how: _Settings) -> None:
    """Look at what a prompt leaves open.

    Raises:
        SampleError: If it has an answer at its end, or a placeholder that another column fills.
    """
    if format.name != ROWS or how.prompt_key is not None:
        return
    if isinstance(prompt, list) and isinstance(prompt[-1], Mapping) and speaker(prompt[-1]) == "assistant":
        if not is_own(at(row.data, format.checklist)):
            raise SampleError(
                f"{row.where}: the messages in {format.prompt[0]!r} end with an answer of the assistant; move it to a "
                f"column of its own (--target-key), or keep it in the prompt with --prompt-key {format.prompt[0]}."
            )
    if isinstance(prompt, str) and "{" in prompt:
        for name in _PLACEHOLDER.findall(prompt):
            found = [key for key, value in places(row.data, depth=2) if key.rpartition(".")[2] == name]
            if found:
                raise SampleError(
                    f"{row.where}: the prompt has the placeholder {{{name}}}, which {found[0]!r} may fill; write it "
                    f"into the prompt, or keep the text as it is with --prompt-key {format.prompt[0]}."
                )


_PLACEHOLDER = re.compile(r"\{+\s*(\w+)\s*\}+")


def _turns(row: Row, keys: Sequence[str]) -> list[dict[str, str]]:
    """Messages from numbered columns (`prompt_0`, `response_0`, ...), up to the last turn of the user."""
    messages: list[dict[str, str]] = []
    start = 0 if keys[0].format(n=0) in row.data else 1
    for number in range(start, len(row.data) + 1):
        texts = [row.data.get(key.format(n=number)) for key in keys[:2]]
        if not isinstance(texts[0], str) or not texts[0].strip():
            break
        messages.append({"role": "user", "content": texts[0]})
        if len(texts) == 1 or not isinstance(texts[1], str) or not texts[1].strip():
            break
        messages.append({"role": "assistant", "content": texts[1]})
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages:
        raise SampleError(
            f"{row.where}: key {keys[0].format(n=start)!r} has no text; the keys are {keys_of(row.data)}."
        )
    return messages


def _level(grade: Any, value: Any, where: str) -> str:
    """The label of the level that people gave."""
    levels = dict(levels_of(decoded(value)))
    with suppress(TypeError, ValueError, OverflowError, KeyError):
        return levels[float(grade)]
    raise SampleError(f"{where}: the grade {grade!r} is not one of the levels {', '.join(f'{n:g}' for n in levels)}.")


def _labels(grades: Any, key: str, checklist: Checklist, where: str) -> list[str] | None:
    """The labels that people gave, one per item."""
    if grades is None:
        return None
    if not isinstance(grades, list) or len(grades) != len(checklist):
        raise SampleError(
            f"{where}: {key!r} must be a list of {len(checklist)}, one per criterion; got {grades!r:.60}."
        )
    labels = []
    for number, (value, item) in enumerate(zip(grades, checklist.items, strict=True), start=1):
        by_name = {label.casefold(): label for label in item.values}
        label = _VERDICTS.get(value, value) if item.yes_no and isinstance(value, str) else value
        match = by_name.get(label.casefold()) if isinstance(label, str) else None
        if match is None:
            allowed = ", ".join(_VERDICTS if item.yes_no else item.values)
            raise SampleError(f"{where}, {key} {number}: {value!r:.60} is not a verdict; allowed: {allowed}.")
        labels.append(match)
    return labels
