"""The file of a reward monitor (`monitor.jsonl`), as columns over the steps and a list of alarms.

After a restart the file has steps twice: the last line of a step counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.ui.records import number_or_none

FORMAT = "checklist-rewards-monitor-1"
_FORMATS = "checklist-rewards-monitor-"
_OF_A_SIGNAL = ("now", "size", "error")


def is_monitor(path: Path) -> bool:
    """Whether a file is that of a monitor. Raises [`SampleError`] for one of a later format."""
    first = next(iter(read_rows(path)), None) if path.suffix.lower() == ".jsonl" else None
    name = None if first is None else first.data.get("format")
    if first is None or not isinstance(name, str) or not name.startswith(_FORMATS):
        return False
    if name != FORMAT:
        raise SampleError(f"{first.where}: the format is {name!r}; this version reads {FORMAT!r}.")
    return True


def read_monitor(path: Path) -> dict[str, Any]:
    """The steps, signals, statistics, alarms, canaries and failures of a monitor, for the page. `not_evaluated` has
    the signals that had no data at any step."""
    steps: dict[int, Mapping[str, Any]] = {}
    about: dict[str, Mapping[str, Any]] = {}
    events: dict[str, list[Mapping[str, Any]]] = {"alarm": [], "canary": [], "failure": []}
    for row in read_rows(path):
        kind = row.data.get("kind")
        if kind == "start":
            about |= {str(signal.get("name")): signal for signal in _mappings(row, "signals")}
        elif kind == "step":
            steps[_step(row)] = row.data
        elif kind in events:
            events[kind].append({**row.data, "step": _step(row)})
    numbers = sorted(steps)
    lines = [steps[number] for number in numbers]
    names = list(dict.fromkeys(name for line in lines for name in line.get("signals") or {}))
    statistics = list(dict.fromkeys(name for line in lines for name in line.get("statistics") or {}))
    return {
        "name": path.name,
        "steps": numbers,
        "signals": [
            {
                "name": name,
                "about": about.get(name, {}).get("about"),
                "doc": about.get(name, {}).get("doc"),
                "threshold": number_or_none(about.get(name, {}).get("threshold")),
                "alarm": [bool(_of(line, "signals", name, "alarm")) for line in lines],
                **{key: [number_or_none(_of(line, "signals", name, key)) for line in lines] for key in _OF_A_SIGNAL},
            }
            for name in names
        ],
        "statistics": {
            name: [number_or_none((line.get("statistics") or {}).get(name)) for line in lines] for name in statistics
        },
        "alarms": events["alarm"],
        "not_evaluated": [name for name in about if name not in names] if numbers else [],
        "canaries": events["canary"],
        "failures": events["failure"],
    }


def _of(line: Mapping[str, Any], *names: str) -> Any:
    value: Any = line
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _step(row: Row) -> int:
    step = row.data.get("step")
    if not isinstance(step, int):
        raise SampleError(f"{row.where}: step must be a whole number, got {step!r:.40}.")
    return step


def _mappings(row: Row, name: str) -> Iterator[Mapping[str, Any]]:
    entries = row.data.get(name)
    return (entry for entry in (entries if isinstance(entries, list) else ()) if isinstance(entry, Mapping))
