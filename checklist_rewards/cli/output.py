"""The output paths of a command, and its messages on stderr: progress, the summary and the exit code.

Output paths are checked before a command does anything. A [`RunReport`] receives scores one by one and keeps totals
only, so its size does not depend on the number of rows.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from checklist_rewards.datasets.tasks import BY_RULES, Totals
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.files.atomic import check_writable, write_json
from checklist_rewards.files.ranks import rank_of
from checklist_rewards.judges import Receipt
from checklist_rewards.progress import AddBar, progress_on
from checklist_rewards.scores.reasons import ADVICE, Reason

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Write errors for lack of space: a full disk, an exceeded quota, a file size limit."""
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""Errors of a path in a folder of another user, or that no file can have."""


def plain_console(stderr: bool = False) -> Console:
    """A console that prints text unchanged: without markup ("[bold]") or emoji (":cat:"), and with whole lines."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)


console = plain_console(stderr=True)


def refuse(message: str) -> None:
    """Print a one-line error."""
    console.print(Text.assemble(("error:", "bold red"), f" {message}"))


def bars() -> AbstractContextManager[AddBar]:
    """Progress bars on stderr; the context manager returns a callable that adds a bar."""
    return progress_on(console)


def table(
    *heads: str | Column, rows: Iterable[Iterable[str]] = (), title: str | None = None, header: bool = True
) -> Table:
    """A table of texts."""
    found = Table(*heads, title=title, title_justify="left", show_header=header)
    for row in rows:
        found.add_row(*row)
    return found


def decimal(value: float | None, format: str = ".4f", missing: str = "none") -> str:
    """A number in a table."""
    return missing if value is None else f"{value:{format}}"


class RunReport(Totals):
    """Totals of one command, with its summary."""

    def __init__(self, command: str):
        super().__init__()
        self.command = command
        self.extra: dict[str, Any] = {}
        """Additional lines of the summary: name to value."""
        self._started = time.perf_counter()

    def finish(self, output: Path, receipt: Receipt | None, summary: Path | None) -> int:
        """Print the summary, write it as JSON if `summary` is given, and return the exit code: 1 if anything is
        missing, else 0."""
        console.print(self._table(output, receipt))
        if self.unanswered:
            console.print(self._missing())
        if summary is not None:
            write_json(summary, self._record(output, receipt))
        return 1 if self.unanswered else 0

    def _table(self, output: Path, receipt: Receipt | None) -> Table:
        lines: dict[str, Any] = {"rows": self.rows}
        if self.checklists is not None:
            lines["checklists"] = f"{self.checklists} of {self.rows}"
        if self.items:
            lines["items"] = ", ".join(f"{count} {origin}" for origin, count in sorted(self.items.items()))
        if self.items[BY_RULES]:
            lines["rules"] = "a rule may misread a requirement; read the items of rules"
        if self.unexpressed:
            lines["requirements without a check"] = "; ".join(
                f"{found.count} because {reason} (rows {found.shown_rows}; first {found.detail})"
                for reason, found in sorted(self.unexpressed.items())
            )
        if self.left_out:
            lines["questions left out"] = ", ".join(
                f"{count} ({fault})" for fault, count in self.left_out.most_common()
            )
        if self.tally.scored or self.tally.unscored:
            answered = self.tally.reads - sum(self.tally.unanswered.values())
            lines |= {
                "mean score": _number(self.tally.mean) + _of(self.tally.unscored, "without a score"),
                "macro (mean pass rate)": _number(self.tally.macro),
                "micro (DRFR)": _number(self.tally.micro),
                "answered": f"{answered} of {self.tally.reads}",
            }
        if self.tally.not_needed:
            lines["not needed"] = f"{self.tally.not_needed} items, because the score was fixed"
        lines |= self._states()
        for judge, count in (+self.silent).items():
            lines[f"votes of {judge}"] = f"{count} of {self.votes[judge]} unanswered"
        lines |= self.extra
        if receipt is not None:
            lines["receipt"] = str(receipt)
            if receipt.engine_seconds:
                rate = receipt.asked / receipt.engine_seconds
                lines["engine"] = f"{receipt.engine_seconds:,.1f} s, {rate:,.0f} reads/s"
        rows = {**lines, "written": output}.items()
        shown = ((name, _number(value) if isinstance(value, float) else str(value)) for name, value in rows)
        return table(rows=shown, title=self.command, header=False)

    def _states(self) -> dict[str, str]:
        """The targets that are not whole answers."""
        total, lines = self.tally.scored + self.tally.unscored, {}
        if without := self.no_answer:
            states = ", ".join(f"{count} {state}" for state, count in without.items())
            lines["without an answer"] = f"{sum(without.values())} of {total} targets ({states}); {self._treatment}"
        if cut := self.states["cut"]:
            lines["cut"] = f"{cut} of {total} targets reached the length limit"
        return lines

    @property
    def _treatment(self) -> str:
        """What became of the targets without an answer."""
        if not self.not_asked:
            return "judged like other texts"
        return "not scored" if Reason.NO_ANSWER in self.unanswered else "scored as the lowest"

    def _missing(self) -> Table:
        rows = (
            (reason, str(missing.count), missing.shown_rows, cause(reason, missing.detail))
            for reason, missing in sorted(self.unanswered.items())
        )
        return table("reason", "count", "rows", "why", rows=rows, title="unanswered")

    def _record(self, output: Path, receipt: Receipt | None) -> dict[str, Any]:
        return {
            "command": self.command,
            "output": str(output),
            "rows": self.rows,
            "checklists": self.checklists,
            "items": dict(self.items),
            "unexpressed": {reason: found.count for reason, found in sorted(self.unexpressed.items())},
            "left_out": dict(self.left_out),
            "scored": self.tally.scored,
            "unscored": self.tally.unscored,
            "mean_score": self.tally.mean,
            "macro": self.tally.macro,
            "micro": self.tally.micro,
            "reads": self.tally.reads,
            "no_answer": self.no_answer,
            "cut": self.states["cut"],
            "unanswered": {reason: missing.count for reason, missing in sorted(self.unanswered.items())},
            "silent_votes": dict(+self.silent),
            "receipt": None if receipt is None else asdict(receipt),
            "seconds": round(time.perf_counter() - self._started, 3),
            **{name.replace(" ", "_"): value for name, value in self.extra.items()},
        }


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2e}"


def cause(reason: str, detail: str | None) -> str:
    """The cause of an unanswered read, and what to do."""
    return "; ".join(filter(None, (ADVICE.get(reason, ""), detail)))


def _of(count: int, what: str) -> str:
    return f" ({count} {what})" if count else ""


logger = logging.getLogger(__name__)


def check_outputs(*inputs: Path, folders: Mapping[str, Path | None] | None = None, **files: Path | None) -> None:
    """Check the output paths of a command before it does anything.

    Args:
        *inputs (`Path`):
            Files that the command reads and that none of its arguments and options names.
        folders (mapping, *optional*):
            Output folders by option, such as `{"--plots": plots}`.
        **files (`Path`, *optional*):
            Output files by the name of their option, such as `json=json`; None for an option that is not set.

    Raises:
        SampleError: If an output has the wrong type, cannot be written, is an input, has the path of another output,
            or has the name of another rank's log of an input.
    """
    read = [*inputs, *_paths_besides({*files, *(option.lstrip("-") for option in folders or {})})]
    outputs = [(option, path, True) for option, path in (folders or {}).items()]
    outputs += [(f"--{name}", path, False) for name, path in files.items()]
    written: list[tuple[str, Path]] = []
    for option, path, is_folder in outputs:
        if path is None:
            continue
        if is_folder and os.path.isfile(path):
            raise SampleError(f"{option} {path} is a file, expected a folder.")
        if not is_folder and os.path.isdir(path):
            raise SampleError(f"{option} {path} is a folder, expected a file name.")
        try:
            check_writable(path, folder=is_folder)
        except SampleError as error:
            raise SampleError(f"{option} {error}") from None
        if any(_same(path, other) for other in read):
            raise SampleError(f"{option} {path} is an input file of this command; choose a different file name.")
        for log in read:
            if rank_of(path, log) is not None and _is_log(log):
                raise SampleError(
                    f"{option} {path} has the name of another rank's log of {log}, which is read with it; choose a "
                    "different file name."
                )
        for other_option, other in written:
            if _same(path, other):
                raise SampleError(
                    f"{option} {path} is also {other_option}; choose a different file name for one of them."
                )
        written.append((option, path))
    for option, path in written:
        if not path.parent.exists():
            logger.warning("%s %s: the folder %s does not exist and will be created.", option, path, path.parent)


running: ContextVar[typer.Context | None] = ContextVar("running", default=None)
"""The context of the running command, with its arguments and options."""


def _paths_besides(outputs: Collection[str]) -> Iterator[Path]:
    """The paths and existing files that the options of the running command name, without its outputs."""
    context = running.get()
    for name, value in ({} if context is None else context.params).items():
        for path in value if isinstance(value, list | tuple) else [value]:
            if name not in outputs and (isinstance(path, Path) or (isinstance(path, str) and os.path.isfile(path))):
                yield Path(path)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _is_log(path: Path) -> bool:
    try:
        return ScoredFile(path).kind == "rewards"
    except SampleError:  # another kind of file, which its command refuses or reads alone
        return False
