"""The options of all commands, as dataclasses that several commands share.

Options that a pipeline also sets default to None here, so that only values given by the user override the pipeline.
"""

from checklist_rewards.cli.options.base import JUDGE, OUTPUT, PIPELINE, ROWS, WRITER, engine_settings
from checklist_rewards.cli.options.judging import (
    Backend,
    BaseUrl,
    Concurrency,
    EngineSettings,
    Judge,
    JudgePrompt,
    MassFloor,
    Model,
    OnlyJudge,
    Threshold,
)
from checklist_rewards.cli.options.rows import (
    ChecklistFile,
    ChecklistKey,
    Dry,
    Files,
    Keys,
    Preset,
    StoreOptions,
    Summary,
    TargetKey,
    WriterKeys,
)
from checklist_rewards.cli.options.writing import OwnWriter, Writer, Writing, policy

__all__ = [
    "JUDGE",
    "OUTPUT",
    "PIPELINE",
    "ROWS",
    "WRITER",
    "Backend",
    "BaseUrl",
    "ChecklistFile",
    "ChecklistKey",
    "Concurrency",
    "Dry",
    "EngineSettings",
    "Files",
    "Judge",
    "JudgePrompt",
    "StoreOptions",
    "Keys",
    "MassFloor",
    "Model",
    "OnlyJudge",
    "OwnWriter",
    "Preset",
    "Summary",
    "TargetKey",
    "Threshold",
    "Writer",
    "WriterKeys",
    "Writing",
    "engine_settings",
    "policy",
]
