"""The settings on the screen as Python, as a command, and as a YAML file, each giving the same figures.

Keys are not part of them: models on servers take their keys from the environment. Engine arguments whose name looks
like a secret, and a password in an address, are left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pprint import pformat
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.scorer import Sample

_SECRET = re.compile(r"key|token|secret|password|credential|authorization|headers", re.I)
_WIDTH = 100


def snippets(config: PipelineConfig, judge: Engine, sample: Sample, store_path: str | None = None) -> dict[str, str]:
    """Code that scores `sample` as the page does.

    Args:
        config ([`PipelineConfig`]): The pipeline.
        judge ([`Engine`]): The judge's engine.
        sample ([`Sample`]): The response with its checklist.
        store_path (`str`, *optional*): A store that the user chose.

    Returns:
        `dict[str, str]`: `python`, `cli` (a shell script that writes its files), and `yaml` (the pipeline).
    """
    if config.scorer.kind != "checklist":
        raise SampleError(f"the scorer {config.scorer.kind!r} is not part of the package and cannot be exported.")
    document = config.model_dump(mode="json", exclude_defaults=True) | {"name": config.name}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return {
        "python": _python(config, judge, sample, store_path),
        "cli": _command(text, judge, sample, store_path),
        "yaml": text,
    }


def items_of(checklist: Checklist) -> list[str | dict[str, Any]]:
    """The items of a checklist in their shortest form; ids that follow from the content are left out."""
    items: list[str | dict[str, Any]] = []
    for item in checklist.items:
        dumped = item.model_dump(mode="json", exclude_defaults=True)
        if type(item)(**{**item.model_dump(), "id": ""}).id == item.id:
            dumped.pop("id", None)
        items.append(item.question if set(dumped) == {"question"} else dumped)
    return items


def loop_commands(file: str, labels: str, scored: bool, judge: Engine) -> list[str]:
    """The commands that use a labels file: agreement, calibration, few-shot examples and distillation."""
    options = _engine_options(judge)
    first = [] if scored else [["score", file, "-o", "scored.jsonl", *options]]
    answers = file if scored else "scored.jsonl"
    commands = [
        *first,
        ["agree", answers, "--labels", labels],
        ["calibrate", answers, "--labels", labels, "-o", "calibration.json"],
        ["score", file, "-o", "calibrated.jsonl", "--calibration", "calibration.json", *options],
        ["score", file, "-o", "with_examples.jsonl", "--examples", labels, *options],
        ["distill", labels, "-o", "judge"],
    ]
    return [shlex.join(["checklist-rewards", *command]) for command in commands]


def _engine_options(judge: Engine) -> list[str]:
    options: list[str] = []
    for name, value in engine_arguments(judge).items():
        if name == "engine":
            options += ["--engine", json.dumps(value)]
        else:
            options += [f"--{name.replace('_', '-')}", value]
    return options


def _python(config: PipelineConfig, judge: Engine, sample: Sample, store_path: str | None) -> str:
    scale = config.scorer.scale
    arguments = {**config.scorer.settings(), "store": store_path}
    if "judge" not in arguments:
        arguments = {**engine_arguments(judge), **arguments}
    model = arguments.pop("model", None)
    given = [repr(model)] if model is not None else []
    given += [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    lines = ["from checklist_rewards import Checklist, ChecklistScorer"]
    if scale is not None:
        lines.append("from checklist_rewards.scores.scales import on_scale, ordinal_scale")
    texts = {"target": sample.target, "input": sample.input, "reference": sample.reference, "history": sample.history}
    named = [f"    {name}={value!r}," for name, value in texts.items() if value is not None]
    lines += ["", f"scorer = ChecklistScorer({', '.join(given)})"]
    lines += [f"checklist = Checklist.parse({pformat(items_of(sample.checklist), width=_WIDTH, sort_dicts=False)})"]
    if scale is not None:
        lines.append(f"checklist = on_scale(checklist, ordinal_scale({scale}))")
    lines += ["score = scorer.score(", "    checklist,", *named, ")", "print(score.primary_score)"]
    lines += ["for item in score.items:", "    print(item.answer, item.probabilities, item.question)"]
    return "\n".join(lines) + "\n"


def _command(text: str, judge: Engine, sample: Sample, store_path: str | None) -> str:
    row: dict[str, Any] = {"prompt": sample.input, "target": sample.target, "checklist": items_of(sample.checklist)}
    options = _engine_options(judge)
    for name in ("reference", "history"):
        value = getattr(sample, name)
        if value is not None:
            row[name] = value
            options += [f"--{name}-key", name]
    if store_path is not None:
        options += ["--store", store_path]
    command = shlex.join(
        ["checklist-rewards", "score", "row.jsonl", "-o", "scored.jsonl", "--config", "judge.yaml", *options]
    )
    return f"cat > row.jsonl <<'END'\n{json.dumps(row)}\nEND\ncat > judge.yaml <<'END'\n{text}END\n{command}\n"


def engine_arguments(engine: Engine) -> dict[str, Any]:
    """The arguments of an engine that may be shown, without defaults except for the model."""
    settings = {name: value for name, value in engine.settings.items() if not _SECRET.search(name)}
    shown: dict[str, Any] = {"model": engine.model}
    if engine.backend != "auto" and isinstance(engine.backend, str):
        shown["backend"] = engine.backend
    if engine.base_url is not None:
        shown["base_url"] = ",".join(map(public_address, engine.base_url.split(",")))
    return shown | ({"engine": settings} if settings else {})


def public_address(address: str) -> str:
    """An address without its user name, password and query."""
    parts = urlsplit(address)
    if not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def without_secrets(message: str, environment: Mapping[str, str]) -> str:
    """A message without the keys of the environment, which a server may have repeated in its error."""
    for name, value in environment.items():
        if _SECRET.search(name) and len(value) >= 8:
            message = message.replace(value, "***")
    return re.sub(r"(\w+://)[^/\s@]+@", r"\1", message)
