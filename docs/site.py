"""mkdocs hooks for the pages that are made from other files.

These are the reference of the command line, made from the command line itself, the notebooks, and files of the
repository that belong on the site.
"""

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
COPIED = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "pocket.md": "checklist_rewards/pocket/README.md",
}
"""Pages that are files outside `docs/`."""


def on_files(files: Files, config: MkDocsConfig, **kwargs: Any) -> Files:
    """Add the pages that are not files."""
    pages = {uri: (ROOT / path).read_text(encoding="utf-8").replace("](docs/", "](") for uri, path in COPIED.items()}
    pages["cli.md"] = command_line()
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook(path)
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links to files of the checkout to the pages that are made from them."""
    return markdown if page.file.generated_by else site_links(markdown)


def site_links(markdown: str) -> str:
    """A page with links to pages of the site."""
    for uri, path in {**COPIED, "cli.md": "checklist_rewards/cli/"}.items():
        markdown = markdown.replace(f"../{path})", f"{uri})")
    return markdown.replace(".ipynb)", ".md)")


def notebook(path: Path) -> str:
    """A notebook as Markdown, with a link to the file."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    return "\n\n".join([*parts, f"[Download this notebook]({path.name})"])


def command_line() -> str:
    """The reference of the `checklist-rewards` command."""
    from typer.main import get_command

    from checklist_rewards.cli import app

    root = get_command(app)
    parts = ["# Command line", "Every page of this reference is also shown by `checklist-rewards COMMAND --help`."]
    parts.append(root.help or "")
    for name, command in commands(root):
        parts += [f"## checklist-rewards {name}", command.help or "", *options(command)]
    return "\n\n".join(parts)


def commands(group: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """All commands below a group, with their names."""
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        full = f"{prefix} {name}".strip()
        found += commands(command, full) if hasattr(command, "commands") else [(full, command)]
    return found


def options(command: Any) -> list[str]:
    """A table for every panel of the help."""
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        panel = getattr(parameter, "rich_help_panel", None) or "Arguments and options"
        panels.setdefault(panel, []).append(row(parameter))
    return [f"**{panel}**\n\n| | | default |\n|---|---|---|\n" + "\n".join(rows) for panel, rows in panels.items()]


def row(parameter: Any) -> str:
    """One option: its names, what it does, and its default."""
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = " ".join(f"`{name.upper() if parameter.param_type_name == 'argument' else name}`" for name in names)
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    value = parameter.default
    plain = value is not None and value is not False and not callable(value) and value != ()
    described = getattr(parameter, "show_default", False)
    default = described if isinstance(described, str) else f"`{getattr(value, 'value', value)}`" if plain else ""
    return f"| {shown} | {text} | {default} |"
