"""The command line: `checklist-rewards COMMAND`; `--help` lists the commands.

A command first validates every row, before any model is loaded. It then processes the rows in chunks and writes a new
file, which replaces the output atomically when it is complete. Model answers are kept in the store, so rerunning an
interrupted command continues where it stopped. Progress, summaries and errors go to stderr.

Exit codes:

- 0: success, everything was answered.
- 1: the result is incomplete or unusable: unanswered reads or rows without a checklist (a table lists them with the
  reason), a judge that failed `probe`, a distilled judge that is not better than chance, or a full disk.
- 2: invalid arguments or input. The error is one sentence, and nothing was written.
- 130: interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checklist_rewards.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of `checklist-rewards`."""
    try:
        from checklist_rewards.cli.commands import run
    except KeyboardInterrupt:  # later ones are handled there
        print("Interrupted: the command had not begun.", file=sys.stderr)
        raise SystemExit(130) from None
    run()


def __getattr__(name: str) -> Any:
    if name == "app":
        from checklist_rewards.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
