"""Steps, checks and parts of pipelines of other packages, which every command and server finds by their names.

A package names the modules that register them as entry points of the group `checklist_rewards`:

    [project.entry-points.checklist_rewards]
    mine = "my_package.steps"

The modules are imported when a name is looked up that is not built in, or when names are listed. So the command
line, `lint`, YAML files, `serve` and the processes that they start need no setting, and built-in names cost nothing.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from checklist_rewards.errors import ConfigError

GROUP = "checklist_rewards"


@cache
def load_plugins() -> None:
    """Import the modules of the entry points, once. Raises [`ConfigError`] for a module that cannot be imported."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            raise ConfigError(
                f"the entry point {entry.name!r} = {entry.value!r} of {GROUP!r} cannot be imported "
                f"({type(error).__name__}: {error})."
            ) from error
