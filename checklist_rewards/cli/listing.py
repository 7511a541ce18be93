"""`list`: what there is to choose from, one line each."""

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
    "item": "one read per question, by its probabilities",
    "batch": "one reply to all questions",
    "quality": "one reply to all questions, with a grade from 1 to 5",
}
_BACKENDS = {
    "auto": "a server where an address is given, else vLLM where it is installed, else transformers",
    "transformers": "in this process; every prefix is computed once",
    "vllm": "in this process, with vLLM",
    "encoder": "a cross-encoder, in this process; a folder that holds one is known for it",
    "remote": "a reward server: the address of a `checklist-rewards serve`",
    "openai": f"an OpenAI-compatible server: an address, or {' or '.join(SERVERS)}",
}


def show(
    what: Annotated[
        Section | None, typer.Argument(show_default="all", help="Only these.", metavar="[SECTION]")
    ] = None,
) -> None:
    """Show pipelines, generators, refiners, scorers, backends, checks and prompts, one line each.

    **Examples**

    ```
    checklist-rewards list
    checklist-rewards list pipelines
    ```
    """
    for section, lines in _SECTIONS.items():
        if what in (None, section):
            found = list(lines())
            typer.echo(f"{section}:" if found else f"{section}: none")
            width = max((len(name) for name, _ in found), default=0)
            for name, text in found:
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
