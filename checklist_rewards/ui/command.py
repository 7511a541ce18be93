"""The command line of a batch job, and the environment of its process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from checklist_rewards.progress import SECONDS_VARIABLE
from checklist_rewards.ui.job import Job
from checklist_rewards.ui.judging import Judging


def arguments(job: Job, judging: Judging, config: Path) -> list[str]:
    """The arguments of `score` for a job. Every option is one argument, so that no value is taken for an option.

    Args:
        job ([`Job`]): The job.
        judging ([`Judging`]): The project, the judge and the store.
        config (`Path`): The file with the pipeline of the job.
    """
    project, judge = judging.project, judging.judge
    options: dict[str, Any] = {"config": config}
    if judging.config_of(job.settings).scorer.judge is None:  # otherwise, the config names a file of judges
        options["model"] = judge.model
        if isinstance(judge.backend, str) and judge.backend != "auto":
            options["backend"] = judge.backend
        if judge.base_url is not None:
            options["base-url"] = judge.base_url
        if judge.settings:
            options["engine"] = json.dumps(dict(judge.settings))
    if job.checklist is not None:
        options["checklist"] = project.existing(job.checklist)
    for name in ("target", "checklist", "reference", "history"):
        if getattr(job.columns, name) is not None:
            options[f"{name}-key"] = getattr(job.columns, name)
    if job.budget is not None:
        options["budget"] = job.budget
    if judging.store_path is not None:
        options["store"] = judging.store_path
    given = [f"--{name}={value}" for name, value in options.items()]
    given += [f"--input-key={name}" for name in job.columns.input]
    prices = job.price if isinstance(job.price, dict) else {judge.model: job.price}
    given += [f"--price={model}={price[0]},{price[1]}" for model, price in prices.items() if price is not None]
    given += ["--no-store"] * (judging.store is None)
    return [str(project.path(job.file)), f"--output={project.path(job.output)}", *given]


def environment() -> dict[str, str]:
    """The environment of the process: this package, a line of progress per second, and no line breaks in tables."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUTF8": "1",
        "COLUMNS": "1000",
        "NO_COLOR": "1",
        SECONDS_VARIABLE: "1",
    }
