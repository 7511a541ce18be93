"""The options of all commands, as dataclasses that several commands share.

Options that a pipeline also sets default to None here, so that only values given by the user override the pipeline.
"""

from checklist_rewards.cli.options.base import JUDGE, OUTPUT, PIPELINE, ROWS, WRITER
from checklist_rewards.cli.options.cluster import CLUSTER, Cluster
from checklist_rewards.cli.options.generated import option_of
from checklist_rewards.cli.options.judging import (
    Concurrency,
    JudgeOptions,
    OnlyJudge,
    OtherJudge,
    ProbeOptions,
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
    "CLUSTER",
    "JUDGE",
    "OUTPUT",
    "PIPELINE",
    "ROWS",
    "WRITER",
    "ChecklistFile",
    "ChecklistKey",
    "Cluster",
    "Concurrency",
    "Dry",
    "Files",
    "JudgeOptions",
    "StoreOptions",
    "Keys",
    "OnlyJudge",
    "OtherJudge",
    "OwnWriter",
    "Preset",
    "ProbeOptions",
    "Summary",
    "TargetKey",
    "Writer",
    "WriterKeys",
    "Writing",
    "option_of",
    "policy",
]
