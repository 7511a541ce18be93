"""`list`: names that options and configs accept, one per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import typer

from checklist_rewards.backends.servers import SERVERS
from checklist_rewards.checks import CHECKS, example_of
from checklist_rewards.pipelines import GENERATORS, REFINERS, SCORERS, get_pipeline, list_pipelines
from checklist_rewards.pipelines.registry import Registry
from checklist_rewards.prompts import lint_prompt, prompts_dir

Line = tuple[str, str]
Section = Literal["pipelines", "generators", "refiners", "scorers", "backends", "checks", "prompts"]

_MODES = {
    "item": "one read per question, from the label probabilities",
    "batch": "one reply that answers all questions",
    "quality": "one reply that answers all questions, plus an overall grade from 1 to 5",
}
_BACKENDS = {
    "auto": "the server at --base-url if given, else vLLM if installed, else transformers",
    "transformers": "transformers in this process; each prefix is computed once",
    "vllm": "vLLM in this process",
    "encoder": "a cross-encoder in this process; chosen automatically for a folder that holds one",
    "remote": "a reward server: a running `checklist-rewards serve` at --base-url",
    "decisions": "a server with a Decisions API (/v1/systemone or /v1/decisions) at --base-url",
    "openai": f"an OpenAI-compatible server: its URL as --base-url, or {' or '.join(SERVERS)}",
}


def show(
    what: Annotated[
        Section | None, typer.Argument(show_default="all", help="Section to show.", metavar="[SECTION]")
    ] = None,
) -> None:
    """List pipelines, generators, refiners, scorers, backends, checks and prompts.

    **Examples**

    ```
    checklist-rewards list
    checklist-rewards list pipelines
    ```
    """
    for section, lines in _SECTIONS.items():
        if what in (None, section):
            entries = list(lines())
            typer.echo(f"{section}:" if entries else f"{section}: none")
            width = max((len(name) for name, _ in entries), default=0)
            for name, text in entries:
                typer.echo(f"  {name:<{width}}  {text}".rstrip())


def _pipelines() -> Iterator[Line]:
    for name in list_pipelines():
        config = get_pipeline(name)
        level = "one checklist for all rows" if config.corpus_level else ""
        yield name, " ".join(filter(None, (config.description, config.paper and f"[{config.paper}]", level)))


def _registered(registry: Registry) -> Callable[[], Iterator[Line]]:
    return lambda: ((entry.name, entry.summary) for entry in registry)


def _scorers() -> Iterator[Line]:
    for entry in SCORERS:
        yield entry.name, entry.summary
        if entry.built_in:
            yield from ((f"  --mode {mode}", text) for mode, text in _MODES.items())


def _prompts() -> Iterator[Line]:
    for path in sorted(prompts_dir().glob("*/*.md")):
        prompt = lint_prompt(path)
        yield str(path.relative_to(prompts_dir()).with_suffix("")), f"{prompt.kind}; {prompt.paper or 'no paper'}"


_SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "pipelines": _pipelines,
    "generators": _registered(GENERATORS),
    "refiners": _registered(REFINERS),
    "scorers": _scorers,
    "backends": lambda: iter(_BACKENDS.items()),
    "checks": lambda: ((name, f"{kind.summary} {example_of(kind)}") for name, kind in CHECKS.items()),
    "prompts": _prompts,
}
