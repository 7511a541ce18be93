"""A judge from a YAML file: a panel, a cascade, or the settings of one judge.

    panel: {rule: majority, weights: [2, 1, 1], quorum: 0.6}
    judges:
      - {model: org/one}
      - {model: org/two, base_url: "http://localhost:8001/v1", calibration: two.json}
      - {model: org/three, capture_reasoning: true, samples: 3}

or

    cascade: {margin: 0.4}
    judges:
      - {model: org/small}
      - panel: {}
        judges: [...]

or

    {model: org/judge, base_url: "http://localhost:8001/v1", calibration: map.json}

The keys of `panel` are those of [`PanelJudge`], of `cascade` those of [`CascadeJudge`], and of a judge those of
[`JudgeSettings`]. Paths in the file (calibration, examples, prompts) start from its
folder. Unknown keys are refused with the file and the judge.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Engine
from checklist_rewards.errors import ChecklistRewardsError, ConfigError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.judges.base import Judge
from checklist_rewards.judges.cascade import CascadeJudge
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.judges.settings import FILE_SETTINGS, JudgeSettings
from checklist_rewards.validation import unknown

_KINDS: dict[str, Any] = {"panel": PanelJudge, "cascade": CascadeJudge}
Limited = Callable[[Engine], Engine]
_FILES = ("judge", *FILE_SETTINGS)


def load_jury(path: str | Path, store: bool | str | Path | Store = True, limited: Limited | None = None) -> Judge:
    """The judge that a file describes. No model is loaded.

    Args:
        path (`str` or `Path`):
            YAML file; see the module.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`):
            Where all judges keep their reads.
        limited (callable, *optional*):
            Replaces the engine of each judge, for example by one with a budget.

    Raises:
        ConfigError: If the file cannot be used; names the file and the judge.
    """
    try:
        content = read_value(read_text(path), path)
    except ConfigError as error:
        raise ConfigError(f"{path}: the file of judges cannot be read as YAML ({str(error).rstrip('.')}).") from None
    return parse_jury(content, str(path), Path(path).parent, open_store(store), limited)


def parse_jury(
    content: Any, where: str, folder: Path, store: Store | None = None, limited: Limited | None = None
) -> Judge:
    """The judge that the content of a file describes; see [`load_jury`].

    Args:
        content (`Any`): The content, a mapping.
        where (`str`): Name of the file in errors.
        folder (`Path`): Folder of the files that it names.
        store ([`Store`], *optional*): Where all judges keep their reads.
        limited (callable, *optional*): Replaces the engine of each judge.

    Raises:
        ConfigError: If the content cannot be used.
    """
    if isinstance(content, Mapping) and "model" in content:
        return _one(content, where, folder, store, limited)
    kinds = [kind for kind in _KINDS if isinstance(content, Mapping) and kind in content]
    if len(kinds) != 1 or not isinstance(content.get("judges"), list) or len(content) != 2:
        raise ConfigError(
            f"{where}: expected either 'panel' or 'cascade', and 'judges', a list; or 'model' and other settings of "
            f"one judge; got {content!r:.80}."
        )
    [kind] = kinds
    settings = {} if content[kind] is None else content[kind]
    _known(settings, _KINDS[kind], ("judges",), f"{where}, {kind}")
    judges = [
        _one(entry, f"{where}, judge {number}", folder, store, limited)
        for number, entry in enumerate(content["judges"], start=1)
    ]
    return _made(_KINDS[kind], f"{where}, {kind}", judges, **settings)


def _one(entry: Any, where: str, folder: Path, store: Store | None, limited: Limited | None) -> Judge:
    if isinstance(entry, Mapping) and "judges" in entry:
        return parse_jury(entry, where, folder, store, limited)
    entry = {"model": entry} if isinstance(entry, str) else entry
    _known(entry, JudgeSettings, (), where)
    settings = _made(JudgeSettings, where, **placed(entry, folder))
    if limited is not None:
        settings = replace(settings, model=_made(limited, where, settings.asked))
    return _made(settings.build, where, False if store is None else store)


def placed(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a file in `folder`; names of files that exist in it become paths."""
    return {
        name: str(folder / value)
        if name in _FILES and isinstance(value, str) and (folder / value).is_file()
        else value
        for name, value in settings.items()
    }


def _known(settings: Any, of: Any, ours: tuple[str, ...], where: str) -> None:
    allowed = [name for name in inspect.signature(of).parameters if name not in ours]
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: expected settings by name, got {settings!r:.80}.")
    for name in settings:
        if name not in allowed:
            raise ConfigError(f"{where}: {unknown('key', name, allowed)}")


def _made(factory: Any, where: str, *arguments: Any, **settings: Any) -> Any:
    try:
        return factory(*arguments, **settings)
    except ChecklistRewardsError as error:
        raise ConfigError(f"{where}: {error}") from None
    except TypeError as error:  # a list where a number belongs
        raise ConfigError(f"{where}: {settings!r:.120} cannot be used ({error}).") from None
