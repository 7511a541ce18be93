"""Files and names, without a model: `checklists`, `lint`, `list` and `store`.

- `checklists import` and `export`: rubrics of other projects to rows with a checklist, and rows to other trainers.
- `lint`: validate prompts, configs and checklists. All files are checked; each error names the file and line.
- `list`: names that options and configs accept, one per line.
- `store`: merge files of stored answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from annotated_types import Ge
from pydantic import BaseModel

from checklist_rewards.backends.servers import SERVERS
from checklist_rewards.chat import prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.checks import CHECKS, example_of
from checklist_rewards.cli import options as o
from checklist_rewards.cli.help import SETTINGS, Command, Group
from checklist_rewards.cli.options import grouped
from checklist_rewards.cli.output import bars, check_outputs, console, refuse
from checklist_rewards.datasets.columns import PROMPT
from checklist_rewards.datasets.exporting import export_file
from checklist_rewards.datasets.formats import Format, known_formats, own_format
from checklist_rewards.datasets.importing import Found, imported_rows, listed_fields, write_imported
from checklist_rewards.datasets.sources import source_files
from checklist_rewards.errors import (
    ChecklistError,
    ChecklistRewardsError,
    ConfigError,
    PromptError,
    SampleError,
    StoreError,
)
from checklist_rewards.files.documents import FORMATS, load, read_text, read_value
from checklist_rewards.files.rows import FORMATS as ROWS
from checklist_rewards.files.rows import file_format, read_rows
from checklist_rewards.files.store import Store
from checklist_rewards.generators.constraints import rule_faults
from checklist_rewards.judges.checked import usable_check
from checklist_rewards.judges.faults import EMPTY, is_empty, is_open, question_fault
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.pipelines import GENERATORS, REFINERS, SCORERS, PipelineConfig, get_pipeline, list_pipelines
from checklist_rewards.pipelines.registry import Registry
from checklist_rewards.plugins import load_plugins
from checklist_rewards.prompts import Kind, lint_prompt, prompts_dir
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.rewards.settings import RewardConfig
from checklist_rewards.rows import read_checklist

Trainer = Literal["verl", "openrlhf", "swift", "open-instruct", "nemo-gym", "verifiers"]
_SHOWN = 100
"""Characters of a text that is shown."""

_OUTPUT = typer.Option("--output", "-o")

checklists_app = typer.Typer(cls=Group, help="Import checklists from other projects, and export them.", **SETTINGS)


class Imported(o.Options):
    """What is imported, and how it is read."""

    file: Annotated[str, typer.Argument(metavar="PATH")]
    """File (.jsonl, .csv, .parquet, .json, .yaml), folder or pattern of files, or dataset of the hub."""
    output: Annotated[Path, _OUTPUT]
    """Rows to write (.jsonl, .csv or .parquet), or a single shared checklist (.json)."""
    format: str = "auto"
    """Name of a format (see below), or a YAML file that describes one; auto detects it."""
    may_abstain: bool = False
    """Allow "cannot_assess" as an answer to every item."""
    prompt_key: list[str] | None = None
    """Key of the prompt. Repeatable; joined by a blank line. Defaults to detected."""
    target_key: str | None = None
    """Key of the text to score; written as target."""
    checklist_key: str | None = None
    """Key of the criteria; dotted inside another column. Defaults to detected."""
    item_key: Annotated[list[str] | None, typer.Option(metavar="FIELD=KEY")] = None
    """Key of a part of the items, such as weight=points. Repeatable. Defaults to detected."""
    weights: Annotated[list[str] | None, typer.Option(metavar="WORD=NUMBER")] = None
    """Number for a weight in words. Repeatable."""
    pitfalls: Literal["fault", "avoided"] | None = None
    """What texts with a negative weight say that do not say it: a fault, or what is avoided. Defaults to ask."""
    drop: Annotated[list[str] | None, typer.Option(metavar="KEY")] = None
    """Drop this key of items although it may be part of the score. Repeatable."""
    source: str | None = None
    """Value of the checklist_source column. Defaults to the format."""
    head: Annotated[int, Ge(0)] = 2
    """Rows to show as the judge is asked about them."""


@checklists_app.command("import", cls=Command)
@grouped()
def import_(
    imported: Imported,
) -> None:
    r"""Convert rubrics of other projects to rows with checklists.

    Criteria are found by their shape: lists of objects with a text and a number, numbered text, sections, levels of a
    grade, trees, IFEval's instructions. The output says what was taken for what.

    Known formats: FORMATS.

    Weights, penalties, options, abstentions and gates are imported. Fields that items cannot hold are dropped and
    counted; those that may be part of the score are refused, with the file, row and item.

    **Examples**

    ```
    checklist-rewards checklists import healthbench.jsonl -o rows.parquet
    checklist-rewards checklists import 'rubrichub/*.parquet' -o rows.parquet
    checklist-rewards checklists import rubric.yaml -o rubric.json
    checklist-rewards checklists import mine.jsonl -o rows.jsonl \
        --checklist-key rubric --item-key question=criterion --item-key weight=points
    ```
    """
    file, output = imported.file, imported.output
    check_outputs(*(source_files(file) or ()), output=output)
    if output.suffix.lower() != ".json":
        file_format(output)
    found = imported_rows(
        file,
        folder=output.parent,
        item_keys=_pairs("--item-key", "FIELD=KEY, such as weight=points", imported.item_key or []),
        drop=imported.drop or (),
        weights=_numbers(imported.weights or []),
        **imported.model_dump(
            include={"format", "prompt_key", "checklist_key", "target_key", "may_abstain", "source", "pitfalls"}
        ),
    )
    shown: list[Found] = []
    found = replace(found, rows=_remembering(found.rows, shown, imported.head))
    rows, items = write_imported(found, file, output)
    what = f"one checklist with {items} items" if rows is None else f"{rows} rows with {items} items"
    console.print(f"{found.format.name}: {what} in {output}")
    for line in found.taken():
        console.print(f"  {line}")
    if found.left_out:
        console.print(f"Dropped fields that items cannot hold: {listed_fields(found.left_out)}", style="yellow")
    for row, checklist in shown:
        _show(row, checklist)


class Exported(o.Options):
    """What is exported, and for whom."""

    file: Annotated[Path, typer.Argument(metavar="FILE")]
    """Rows with a prompt and a checklist (.jsonl, .csv, .parquet)."""
    output: Annotated[Path, _OUTPUT]
    """Rows to write."""
    to: Trainer
    """The trainer that reads them."""


@checklists_app.command("export", cls=Command)
@grouped()
def export_(
    exported: Exported,
) -> None:
    """Write rows with checklists for a trainer other than TRL.

    The adapters of `checklist_rewards.rewards.integrations` find the checklist there. All other columns are kept, and
    **checklists import** reads the rows back.

    **Example**

    ```
    checklist-rewards checklists export rows.parquet --to verl -o train.parquet
    ```
    """
    output, to = exported.output, exported.to
    check_outputs(output=output)
    file_format(output)
    rows = export_file(exported.file, output, to)
    console.print(f"{to}: {rows} rows in {output}")


import_.__doc__ = (import_.__doc__ or "").replace("FORMATS", ", ".join(sorted(known_formats())))


def _remembering(rows: Iterator[Found], shown: list[Found], most: int) -> Iterator[Found]:
    for found in rows:
        if len(shown) < most:
            shown.append(found)
        yield found


def _show(row: Mapping[str, Any], checklist: Checklist) -> None:
    prompt = row.get(PROMPT)
    text = prompt_text(prompt, images="ignore")[0] if prompt is not None else None
    console.print()
    if text:
        console.print(f"prompt: {_short(text)}")
    for item in checklist.items:
        kind = "check" if item.check else "choice" if item.options and not item.yes_no else "yes/no"
        notes = [
            f"weight {item.weight:g}",
            kind,
            *([item.category] if item.category else []),
            *(["gate"] if item.required else []),
        ]
        console.print(f"  {_short(item.question)}  ({', '.join(notes)})")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _pairs(option: str, expected: str, named: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in named:
        name, equals, value = entry.partition("=")
        if not equals or not name or not value:
            raise SampleError(f"{option} {entry!r}: expected {expected}.")
        pairs[name] = value
    return pairs


def _numbers(named: list[str]) -> dict[str, float] | None:
    numbers: dict[str, float] = {}
    for word, number in _pairs("--weights", "WORD=NUMBER, such as Critical=4", named).items():
        try:
            numbers[word] = float(number)
        except ValueError:
            raise SampleError(f"--weights {word}={number}: expected WORD=NUMBER, such as Critical=4.") from None
    return numbers or None


CHECKLIST = "checklist"
"""Column of the checklist in files of rows."""
_PARTS = ("generator", "refiners", "scorer", "universal")
_LISTED = 10
_TRAINING = ("reward", "reward_funcs", "model_name_or_path", "output_dir")


class Linted(o.Options):
    """The files to check."""

    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILES]...")] = None
    """Files to check. Defaults to the packaged prompts."""
    kind: Kind | None = None
    """Kind of the prompt files. Defaults to detected from the placeholders."""


@grouped()
def lint(
    linted: Linted,
) -> None:
    """Validate prompts (.md), configs (.json, .yaml) and checklists (.json, or rows in .jsonl, .csv, .parquet).

    A prompt is a **judge** prompt ({target}, then {question}), a **batch** prompt ({target}, then {checklist}), a
    **generator** prompt ({input}) or a **stage** prompt (any other). A config describes a pipeline, a panel or cascade
    of judges (--judge), a reward, a format of rubrics (`checklists import --format`), or a training recipe. In a
    training recipe only the reward is checked, not the trainer's arguments. Files named in a config and the code
    checks of a checklist are checked too.

    An item without options and without a check must be answerable with yes or no: "What do you think about rain?" is
    an error. Statements, two questions in one, questions that every response meets ("Does the response contain a
    text?"), questions that repeat the check of another item, and items that contradict each other are listed as
    warnings. Questions are recognized in English only.

    Exit code 2 if any file is invalid.

    **Examples**

    ```
    checklist-rewards lint my_judge.md my_pipeline.yaml
    checklist-rewards lint prompts/writer.md --kind generator
    checklist-rewards lint checklists.jsonl
    ```
    """
    wrong, paths = 0, linted.files or sorted(prompts_dir().glob("*/*.md"))
    for path in paths:
        try:
            typer.echo(f"{path}: {_checked(path, linted.kind)}")
        except ChecklistRewardsError as error:
            wrong += 1
            refuse(str(error))
    if wrong:
        console.print(f"{wrong} of {len(paths)} files are invalid.")
        raise typer.Exit(2)


def _checked(path: Path, kind: Kind | None) -> str:
    if path.suffix.lower() == ".md":
        prompt = lint_prompt(path, kind)
        fields = ", ".join(f"{{{name}}}" for name in sorted(prompt.placeholders))
        return f"a {prompt.kind} prompt with {fields or 'no placeholders'}"
    if path.suffix.lower() in ROWS:
        return _rows(path)
    if path.suffix.lower() not in FORMATS:
        raise PromptError(
            f"{path}: unknown file type; allowed: prompts (.md), configs ({', '.join(FORMATS)}) and checklists "
            f"(.json, {', '.join(ROWS)})."
        )
    value = read_value(read_text(path), path)
    if value is None:
        raise ConfigError(f"{path} is empty.")
    if path.suffix.lower() == ".json" and (isinstance(value, list) or (isinstance(value, dict) and "items" in value)):
        warnings = _Warnings()
        return f"a checklist: {_counted([_usable(read_checklist(path), str(path), warnings)])}{warnings}"
    return _config(path, value if isinstance(value, dict) else {})


def _config(path: Path, value: Mapping[Any, Any]) -> str:
    if "judges" in value:
        load_jury(path, store=False)
        kind = "panel" if "panel" in value else "cascade"
        return f"a {kind} of {len(value['judges'])} judges"
    if "distributed_type" in value:
        return "an accelerate config, not checked"
    if any(key in value for key in _TRAINING):
        _check_reward(value.get("reward") or {}, f"{path}, reward", path.parent)
        kind = "a training config with a reward" if "reward" in value else "a training config"
        return f"{kind}; trainer arguments are not checked"
    kind_of_config = _most_like(value)
    if kind_of_config is RewardConfig:
        _check_reward(value, str(path), path.parent)
        return "a monitored reward" if "monitor" in value else "a reward"
    if kind_of_config is Format:
        return f"the format {own_format(path).name!r} for `checklists import`"
    config = PipelineConfig.load(path)
    return f"pipeline {config.name!r}: {config.generator.kind} generator, {config.scorer.kind} scorer"


def _most_like(value: Mapping[Any, Any]) -> type[BaseModel]:
    """The kind of config that has the most of these keys, so a misspelled one does not count."""
    if any(key in value for key in _PARTS):
        return PipelineConfig
    of_reward = RewardConfig.model_fields.keys() | RewardConfig.older.keys()
    fields: dict[type[BaseModel], Set[str]] = {PipelineConfig: PipelineConfig.model_fields.keys()}
    fields |= {RewardConfig: of_reward, Format: Format.model_fields.keys()}
    return max(fields, key=lambda kind: len(value.keys() & fields[kind]))


def _check_reward(settings: Any, where: str, folder: Path) -> None:
    config = load(settings, RewardConfig, where, folder)
    try:
        ChecklistReward(config.replaced(store=False))
    except ChecklistRewardsError as error:
        raise ConfigError(f"{where}: {error}") from None


def _rows(path: Path) -> str:
    warnings = _Warnings()
    checklists = [
        _usable(Checklist.parse(row.data[CHECKLIST], row.where), row.where, warnings)
        for row in read_rows(path)
        if row.data.get(CHECKLIST) not in (None, "")
    ]
    if not checklists:
        raise SampleError(f"{path}: no row has a value in column {CHECKLIST!r}.")
    return f"{len(checklists)} checklists: {_counted(checklists)}{warnings}"


class _Warnings(dict[tuple[str, str], list[str]]):
    """The places of each item that may be misunderstood, by its question and its fault."""

    def __str__(self) -> str:
        """One line per item, after the first line of a file."""
        lines = [
            f"\n  warning: {places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {question!r:.100} "
            f"{fault}"
            for (question, fault), places in islice(self.items(), _LISTED)
        ]
        more = [f"\n  warning: {len(self) - _LISTED} more such items"] if len(self) > _LISTED else []
        return "".join([*lines, *more])


def _usable(checklist: Checklist, where: str, warnings: _Warnings) -> Checklist:
    """The checklist, after validating its code checks and its questions. Raises [`ChecklistError`]."""
    for item in checklist.items:
        place = f"{where}, item {item.id}"
        if item.check is not None:
            check = usable_check(item, where, allow_code="unsafe")  # validates the check without running code
            if (fault := check.fault()) is not None:
                raise ChecklistError(f"{place} ({item.question!r:.80}): its check is broken: {fault}.")
        elif item.options is None:
            fault = question_fault(item.question) or (EMPTY if is_empty(item.question) else None)
            if fault is not None and is_open(item.question):
                ask = "ask for yes or no, or give it options"
                raise ChecklistError(f"{place}: {item.question!r:.100} {fault}; {ask}.")
            if fault is not None:
                warnings.setdefault((item.question, fault), []).append(place)
    for item, fault in rule_faults(checklist.items):
        warnings.setdefault((item.question, fault), []).append(f"{where}, item {item.id}")
    return checklist


def _counted(checklists: Sequence[Checklist]) -> str:
    items = [item for checklist in checklists for item in checklist.items]
    return f"{len(items)} items, {sum(item.check is not None for item in items)} with code checks"


Line = tuple[str, str]
Section = Literal["pipelines", "generators", "refiners", "scorers", "backends", "checks", "prompts"]

_MODES = {
    "item": "one read per question, from the label probabilities",
    "batch": "one reply that answers all questions",
    "quality": "one reply that answers all questions, plus an overall grade from 1 to 5",
}
_BACKENDS = {
    "auto": "the server at --base-url if given, else vLLM if installed, else transformers",
    "transformers": "transformers in this process; each prefix is computed once",
    "vllm": "vLLM in this process",
    "encoder": "a cross-encoder in this process; chosen automatically for a folder that holds one",
    "remote": "a reward server: a running `checklist-rewards serve` at --base-url",
    "decisions": "a server with a Decisions API (/v1/systemone or /v1/decisions) at --base-url",
    "openai": f"an OpenAI-compatible server: its URL as --base-url, or {' or '.join(SERVERS)}",
}


@grouped()
def show(
    what: Annotated[
        Section | None, typer.Argument(show_default="all", help="Section to show.", metavar="[SECTION]")
    ] = None,
) -> None:
    """List pipelines, generators, refiners, scorers, backends, checks and prompts.

    **Examples**

    ```
    checklist-rewards list
    checklist-rewards list pipelines
    ```
    """
    load_plugins()
    for section, lines in _SECTIONS.items():
        if what in (None, section):
            entries = list(lines())
            typer.echo(f"{section}:" if entries else f"{section}: none")
            width = max((len(name) for name, _ in entries), default=0)
            for name, text in entries:
                typer.echo(f"  {name:<{width}}  {text}".rstrip())


def _pipelines() -> Iterator[Line]:
    for name in list_pipelines():
        config = get_pipeline(name)
        level = "one checklist for all rows" if config.corpus_level else ""
        yield name, " ".join(filter(None, (config.description, config.paper and f"[{config.paper}]", level)))


def _registered(registry: Registry) -> Callable[[], Iterator[Line]]:
    return lambda: ((entry.name, entry.summary) for entry in registry)


def _scorers() -> Iterator[Line]:
    for entry in SCORERS:
        yield entry.name, entry.summary
        if entry.built_in:
            yield from ((f"  --mode {mode}", text) for mode, text in _MODES.items())


def _prompts() -> Iterator[Line]:
    for path in sorted(prompts_dir().glob("*/*.md")):
        prompt = lint_prompt(path)
        yield str(path.relative_to(prompts_dir()).with_suffix("")), f"{prompt.kind}; {prompt.paper or 'no paper'}"


_SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "pipelines": _pipelines,
    "generators": _registered(GENERATORS),
    "refiners": _registered(REFINERS),
    "scorers": _scorers,
    "backends": lambda: iter(_BACKENDS.items()),
    "checks": lambda: ((name, f"{kind.summary} {example_of(kind)}") for name, kind in CHECKS.items()),
    "prompts": _prompts,
}


store_app = typer.Typer(cls=Group, help="Merge stores of answers.", **SETTINGS)


@store_app.callback()
def _stores() -> None:
    """Merge stores of answers."""


@store_app.command(cls=Command)
@grouped()
def merge(
    stores: Annotated[list[Path], typer.Argument(help="SQLite files of answers.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Store that gets all answers; created if it does not exist.")
    ],
) -> None:
    """Add the answers of stores to one store, for example those of the shards of a run with --ray.

    **Example**

    ```
    checklist-rewards store merge scored/.checklist-rewards/stores/*.sqlite -o all.sqlite
    ```
    """
    for path in stores:
        if not path.is_file():
            raise StoreError(f"{path}: store not found.")
        Store(path)  # raises if it is not one, before the output is created
    store = Store(output)
    with bars() as bar:
        progress = bar("stores", len(stores))
        added = 0
        for path in stores:
            added += store.merge(path)
            progress(1)
    console.print(f"{added:,} answers added; {output} has {len(store):,}.")
