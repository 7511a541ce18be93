"""What a pipeline or a file of judges of the project may set.

A project folder may come from other people, so its files have fewer rights than the options with which the user
started the app. Each setting of a file must be in a table of this module, at every depth; a setting that is not listed
is refused, so a new one is refused until it is added. Not listed is everything that runs code, loads other files with
code, sends keys or opens other addresses. A file that is named must be in the project folder. The address of a server
must be one that the user named when starting the app, because keys of the environment are sent to it.

What is checked here is which settings there are and what they lead to. Their values are checked by the parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from checklist_rewards.backends import SERVED, Engine, choose_backend
from checklist_rewards.backends.models import POCKET, REFERENCE, UNNAMED
from checklist_rewards.backends.packaged import PACKAGED
from checklist_rewards.backends.servers import Settings, joined, server_addresses
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.prompts import prompts_dir
from checklist_rewards.ui.project import OutsideError, Project
from checklist_rewards.validation import unknown

Address = tuple[str, str]
"""The protocol (`openai`, `decisions` or `remote`) and the URL of a server."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_PLAIN_JUDGE = (
    *("mode", "use_logprobs", "capture_reasoning", "votes", "temperature", "thinking", "thinking_per"),
    *("max_tokens", "mass_floor", "shots", "example_reasons"),
)
_PLAIN_SCORER = ("metric", "threshold", "min_answered", "abstention", "no_answer", "checks", "scale")
_PLAIN_WRITER = (
    *("shape", "min_items", "max_items", "temperature", "max_tokens", "max_attempts", "seed", "constraints"),
    *("drop_faults", "num_candidates"),
)
_PLAIN_OPTIONS = (
    *("threshold", "max_tokens", "max_attempts", "max_samples", "max_items", "size_penalty", "augmentation"),
    *("filtering", "min_items", "temperature", "seed", "qualities"),
)
ENGINE = (
    *(field.name for field in fields(Settings)),
    *("dtype", "revision", "quantization", "kv_cache_dtype", "max_model_len", "max_batch_tokens", "max_num_seqs"),
    *("max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization"),
    *("cpu_offload_gb", "enforce_eager", "enable_prefix_caching"),
)
"""Engine arguments that a file may set: numbers, yes or no, or a word."""
_Table = dict[str, Callable[[Any, str], Any]]
"""A function per setting, which raises [`SampleError`] for a value that a file may not set."""
_GROUPS = {"panel": ("rule", "weights", "quorum", "threshold"), "cascade": ("margin", "mass")}


def named_addresses(engine: Engine) -> set[Address]:
    """The servers of an engine that the user chose; empty for a model in this process."""
    if not isinstance(engine.backend, str):
        return set()
    return _addresses(engine.model, engine.backend, engine.base_url)


@dataclass(frozen=True)
class Permitted:
    """Checks files of a project."""

    project: Project
    addresses: set[Address]
    """The servers that the user named when starting the app."""
    allow_code: bool
    """Whether the user allowed checks to run code."""
    remote_code: bool
    """Whether the user let the writer run code of its model; candidate models, which share its engine arguments, are
    then refused."""

    def check_pipeline(self, name: str, content: Any) -> None:
        """Check the content of a pipeline. Raises [`SampleError`] for what a file may not set, and [`OutsideError`]
        for a file outside the project."""
        folder = self.project.path(name).parent
        file, prompt = partial(self._inside, folder), partial(self._prompt, folder)
        options = partial(self._check, _plain(_PLAIN_OPTIONS) | {"prompt": prompt, "allow_code": self._code})
        common: _Table = {"kind": _any, "model": self._model, "prompt": prompt, "options": options}
        scorer = common | _plain((*_PLAIN_JUDGE, *_PLAIN_SCORER))
        scorer |= dict.fromkeys(("examples", "calibration", "weights"), file)
        scorer |= {"judge": partial(self._jury, folder), "allow_code": self._code}
        generator = common | _plain(_PLAIN_WRITER) | {"candidate_models": self._candidates}
        generator["prompts"] = partial(self._prompts, folder)

        def refiners(value: Any, where: str) -> None:
            for entry in value if isinstance(value, list | tuple) else [value]:
                self._check({"kind": _any, "options": options}, entry, where)

        table = _plain(("name", "description", "paper", "universal"))
        table |= {"scorer": partial(self._check, scorer), "generator": partial(self._check, generator)}
        self._check(table | {"refiners": refiners}, content, name)

    def check_judges(self, name: str, content: Any) -> None:
        """Check the content of a file of judges; see [`check_pipeline`]."""
        folder = self.project.path(name).parent
        judge = _plain((*_PLAIN_JUDGE, "model", "backend", "base_url"))
        judge |= dict.fromkeys(("examples", "calibration"), partial(self._inside, folder))
        judge |= {"engine_args": _engine, "prompt": partial(self._prompt, folder)}
        for settings, where in _judges_in(content, name):
            if "judges" not in settings:
                self._check(judge, settings, where)
                self._server(settings, where)
                continue
            kind = next((kind for kind in _GROUPS if kind in settings), "panel")
            self._check({"judges": _any, kind: partial(self._check, _plain(_GROUPS[kind]))}, settings, where)

    def check_jury(self, name: str) -> None:
        """Check a file of judges of the project."""
        path = self.project.existing(name)
        self.check_judges(name, read_value(read_text(path), name))

    def _check(self, table: _Table, settings: Any, where: str) -> None:
        """Check settings by their table. Other values than a mapping are left to the parser."""
        for key, value in settings.items() if isinstance(settings, Mapping) else ():
            name = ScorerConfig.older.get(key, key)
            if name not in table:
                raise SampleError(
                    f"{where}: {unknown('key', str(key), table)} A file of the project may set only these; set others "
                    "when starting the app."
                )
            if value is not None:
                table[name](value, f"{where}, {key}")

    def _server(self, settings: Mapping[str, Any], where: str) -> None:
        """Check model, backend and address of a judge, which belong together."""
        model, backend = settings.get("model", UNNAMED), settings.get("backend") or "auto"
        if not isinstance(backend, str):
            raise SampleError(f"{where}: backend must be a text, got {type(backend).__name__}.")
        try:
            addresses = _addresses(model, backend, settings.get("base_url"))
        except ModelError as error:
            raise SampleError(f"{where}: {error}") from None
        for protocol, address in sorted(addresses - self.addresses):
            raise SampleError(
                f"{where}: the server {address} ({protocol}) was not named when the app was started, so no request is "
                "sent to it; name it with --base-url or --judge."
            )
        if not addresses and model != UNNAMED:  # the parser refuses a judge without a model
            self._model(model, f"{where}: model")

    def _model(self, model: Any, where: str) -> None:
        """Refuse a model in a folder outside the project."""
        if not isinstance(model, str):
            raise SampleError(f"{where} must be a text, got {type(model).__name__}.")
        if model in PACKAGED or model in (POCKET, REFERENCE):
            return
        path = Path(model).expanduser()
        is_local = path.exists() or path.is_symlink()
        if (is_local and not self.project.holds(path)) or not (is_local or _HUB_ID.fullmatch(model)):
            raise SampleError(f"{where} names {model!r:.120}, which is neither a Hub id nor in the project folder.")

    def _candidates(self, models: Any, where: str) -> None:
        if self.remote_code:
            raise SampleError(
                f"{where}: a file of the project may not set this while the writer has trust_remote_code, which would "
                "also apply to these models."
            )
        for model in models if isinstance(models, list | tuple) else [models]:
            self._model(model, where)

    def _code(self, value: Any, where: str) -> None:
        if value and not self.allow_code:
            file = where.partition(",")[0]
            raise SampleError(f"{file} sets allow_code; start the app with --allow-code to let checks run code.")

    def _jury(self, folder: Path, value: Any, where: str) -> None:
        self.check_jury(self._inside(folder, value, where))

    def _prompt(self, folder: Path, value: Any, where: str) -> None:
        if not _is_packaged_prompt(value):
            self._inside(folder, value, where)

    def _prompts(self, folder: Path, values: Any, where: str) -> None:
        for stage, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            self._prompt(folder, value, f"{where}.{stage}")

    def _inside(self, folder: Path, value: Any, where: str) -> str:
        """The name in the project of a file that a setting names, relative to `folder`. The file must exist: the
        parser would look for it in the working directory otherwise."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise SampleError(f"{where} must be the name of a file, got {value!r:.80}.")
        there = self.project.real(folder / value)
        if there is None or not there.is_relative_to(self.project.folder) or value.startswith("~"):
            raise OutsideError(f"{where} names {value}, which is not in the project folder.")
        name = there.relative_to(self.project.folder).as_posix()
        try:
            self.project.existing(name)
        except SampleError as error:
            raise type(error)(f"{where}: {error}") from None
        return name


def _any(value: Any, where: str) -> None:
    """A value that has no effect outside the scorer; the parser checks it."""


def _plain(names: Iterable[str]) -> _Table:
    return dict.fromkeys(names, _any)


def _engine(settings: Any, where: str) -> None:
    """Engine arguments: those of the table, with values that are no path and hold nothing else."""
    for key, value in settings.items() if isinstance(settings, Mapping) else [(settings, None)]:
        if key not in ENGINE:
            raise SampleError(
                f"{where}: a file of the project may not set {key!r:.60}; allowed: {', '.join(ENGINE)}. Set others "
                "with --engine-args when starting the app."
            )
        if not isinstance(value, bool | int | float | None) and not (
            isinstance(value, str) and _WORD.fullmatch(value)
        ):
            raise SampleError(f"{where}.{key} must be a number, true, false or a word, got {value!r:.80}.")


def _judges_in(content: Any, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """All settings of judges and of groups of judges with their places, as in `parse_jury`."""
    if isinstance(content, str):
        content = {"model": content}
    if not isinstance(content, Mapping):
        return
    yield content, where
    judges = content.get("judges")
    for number, entry in enumerate(judges if isinstance(judges, list | tuple) else (), start=1):
        yield from _judges_in(entry, f"{where}, judge {number}")


def _addresses(model: Any, backend: str, base_url: Any) -> set[Address]:
    """The servers that would be asked; none for a model in this process."""
    if backend == REMOTE:
        return {(REMOTE, url.strip().rstrip("/")) for url in (joined(base_url) or "").split(",") if url.strip()}
    try:
        protocol = choose_backend(str(model), backend, joined(base_url)) if base_url or backend != "auto" else ""
    except ModelError:
        if base_url:
            raise
        return set()  # a backend that is unknown or not installed, which its own sentence refuses
    return {(protocol, address) for address in server_addresses(base_url)} if protocol in SERVED else set()


def _is_packaged_prompt(value: Any) -> bool:
    folder = prompts_dir()
    if not isinstance(value, str) or ".." in value or value.startswith(("/", "~")):
        return False
    return (folder / f"{value}.md").is_file()
