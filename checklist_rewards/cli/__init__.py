"""The command line: `checklist-rewards COMMAND`; `--help` lists the commands.

Every command first reads its rows once and refuses what cannot be used, before any model is loaded; then it works
through them in chunks and writes a new file, which appears at its place only when it is whole. What a model answered
is in the store, so the same command goes on where it was stopped. Progress, summaries and errors go to stderr.

Exit codes: 0 all is answered; 1 some reads were left unanswered, some rows got no checklist, a probe refused the judge
(a table says which and why), a distilled judge is not shown to be better than chance, or there was no room to write
the result; 2 bad usage or bad input, in one sentence, and nothing was written; 130 interrupted.
"""

from checklist_rewards.cli.commands import app, main

__all__ = ["app", "main"]
