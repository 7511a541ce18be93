"""`lint`: validate prompts, configs and checklists. All files are checked; each error names the file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.report import console, refuse
from checklist_rewards.datasets.rows import read_checklist
from checklist_rewards.errors import ChecklistError, ChecklistRewardsError, ConfigError, PromptError, SampleError
from checklist_rewards.files.documents import FORMATS, read_text, read_value
from checklist_rewards.files.rows import FORMATS as ROWS
from checklist_rewards.files.rows import read_rows
from checklist_rewards.generators.shapes import is_open, question_fault
from checklist_rewards.judges.checked import usable_check
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.monitor.configured import MONITOR, monitor_of
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.prompts import Kind, lint_prompt, prompts_dir
from checklist_rewards.rewards.configured import config_keys
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.validation import unknown

CHECKLIST = "checklist"
"""Column of the checklist in files of rows."""
_PARTS = ("generator", "refiners", "scorer", "universal")
_LISTED = 10
_TRAINING = ("reward", "model_name_or_path", "output_dir")


def lint(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", show_default="the packaged prompts", help="Files to check."),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(show_default="detected from the placeholders", help="Kind of the prompt files."),
    ] = None,
) -> None:
    """Validate prompts (.md), configs (.json, .yaml) and checklists (.json, or rows in .jsonl, .csv, .parquet).

    A prompt is a **judge** prompt ({target}, then {question}), a **batch** prompt ({target}, then {checklist}), a
    **generator** prompt ({input}) or a **stage** prompt (any other). A config describes a pipeline, a panel or cascade
    of judges (--judge), a reward, or a training recipe. In a training recipe only the reward is checked, not the
    trainer's arguments. Files named in a config and the code checks of a checklist are checked too.

    An item without options and without a check must be answerable with yes or no: "What do you think about rain?" is
    an error. Statements, and two questions in one, are listed as warnings. Questions are recognized in English only.

    Exit code 2 if any file is invalid.

    **Examples**

    ```
    checklist-rewards lint my_judge.md my_pipeline.yaml
    checklist-rewards lint prompts/writer.md --kind generator
    checklist-rewards lint checklists.jsonl
    ```
    """
    wrong, paths = 0, files or sorted(prompts_dir().glob("*/*.md"))
    for path in paths:
        try:
            typer.echo(f"{path}: {_checked(path, kind)}")
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
        _check_reward(value.get("reward") or {}, f"{path}, reward")
        kind = "a training config with a reward" if "reward" in value else "a training config"
        return f"{kind}; trainer arguments are not checked"
    if not any(key in value for key in _PARTS) and _is_reward(value):
        _check_reward(value, str(path))
        return "a monitored reward" if MONITOR in value else "a reward"
    config = PipelineConfig.load(path)
    return f"pipeline {config.name!r}: {config.generator.kind} generator, {config.scorer.kind} scorer"


def _is_reward(value: Mapping[Any, Any]) -> bool:
    if value.keys() <= PipelineConfig.model_fields.keys():
        return False
    return value.keys() <= {*config_keys(), MONITOR}


def _check_reward(settings: Any, where: str) -> None:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: expected a mapping of settings, got {type(settings).__name__} {settings!r:.60}.")
    allowed = config_keys()
    without_monitor = {key: value for key, value in settings.items() if key != MONITOR}
    for key in without_monitor:
        if key not in allowed:
            raise ConfigError(f"{where}: {unknown('key', key, allowed)}")
    try:
        reward = ChecklistReward(**{**without_monitor, "store": False})
        monitor_of(reward, settings.get(MONITOR) or {})
    except (ChecklistRewardsError, TypeError) as error:
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
        if item.check is not None:
            check = usable_check(item, where, allow_code="unsafe")  # validates the check without running code
            if (fault := check.fault()) is not None:
                raise ChecklistError(f"{where}, item {item.id} ({item.question!r:.80}): its check is broken: {fault}.")
        elif item.options is None and (fault := question_fault(item.question)) is not None:
            place = f"{where}, item {item.id}"
            if not is_open(item.question):
                warnings.setdefault((item.question, fault), []).append(place)
                continue
            raise ChecklistError(f"{place}: {item.question!r:.100} {fault}; ask for yes or no, or give it options.")
    return checklist


def _counted(checklists: Sequence[Checklist]) -> str:
    items = [item for checklist in checklists for item in checklist.items]
    return f"{len(items)} items, {sum(item.check is not None for item in items)} with code checks"
