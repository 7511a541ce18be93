"""`serve`: the reward server."""

from __future__ import annotations

import gc
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated

import typer

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import console, warn_if_pocket
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import TOKEN_VARIABLE
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_QUEUE, DEFAULT_MAX_WAIT
from checklist_rewards.rewards.placement import load
from checklist_rewards.scorer import ChecklistScorer

if TYPE_CHECKING:
    from fastapi import FastAPI

SERVER = "Server"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8090


@grouped
def serve(
    preset: o.Preset,
    judge: o.OnlyJudge,
    host: Annotated[
        str,
        typer.Option(
            rich_help_panel=SERVER, help="Address to listen on; 0.0.0.0 lets other machines in and requires a token."
        ),
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(rich_help_panel=SERVER, min=0, max=65535, help="Port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SERVER,
            envvar=TOKEN_VARIABLE,
            help="Bearer token that clients must send. Prefer the environment variable: ps shows options.",
        ),
    ] = None,
    max_wait_ms: Annotated[
        float, typer.Option(rich_help_panel=SERVER, min=0, help="How long a row waits for others to share its batch.")
    ] = DEFAULT_MAX_WAIT * 1000,
    max_batch: Annotated[int, typer.Option(rich_help_panel=SERVER, min=1, help="Rows in one batch at most.")] = (
        DEFAULT_MAX_BATCH
    ),
    max_queue: Annotated[
        int, typer.Option(rich_help_panel=SERVER, min=1, help="Rows waiting at most; beyond, requests get 429.")
    ] = DEFAULT_MAX_QUEUE,
    max_body_mb: Annotated[float, typer.Option(rich_help_panel=SERVER, min=0.001, help="MiB of one request.")] = 16,
    concurrency: o.Concurrency = None,
    kept: o.Kept = o.Kept(),  # noqa: B008 - frozen
) -> None:
    """Serve rewards over HTTP: one judge for any number of trainers.

    POST /score takes {"samples": [{"checklist", "target", "input"}]} and gives scores. POST /reward is what OpenRLHF's
    --reward.remote_url asks. GET /health and /metrics (Prometheus) watch it, and answer once the judge is loaded.
    Requests that come together are one batch of the engine. On Ctrl-C or SIGTERM, requests already received are
    answered first, for at most 30 s.

    Trainers and commands of this package use it by --backend remote --base-url, in Python by
    ChecklistScorer(backend="remote", base_url="http://localhost:8090"). The token is taken from
    CHECKLIST_REWARDS_TOKEN on both sides.

    **Examples**

    ```
    checklist-rewards serve
    checklist-rewards serve --model org/judge --port 8090 --max-batch 512
    checklist-rewards score answers.jsonl -o scored.jsonl --backend remote --base-url http://localhost:8090
    ```
    """
    if token is not None and not token.strip():
        raise SampleError(f"the token is empty; give one, or omit --token and {TOKEN_VARIABLE}.")
    try:
        from checklist_rewards.server import build_app, connections  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "httptools"):
            raise
        raise SampleError(
            f"serve needs {error.name}, which is not installed: pip install 'checklist-rewards[serve]'."
        ) from None
    work = Work.of(preset, kept, judge=judge, concurrency=concurrency)
    if work.config.scorer.scale is not None:
        raise SampleError(
            "the grades of a scale are options of the checklist's items, and the server takes checklists as they "
            "come: give the items options, and leave --scale, and pipelines that have one, away."
        )
    scorer = work.pipeline().scorer
    if not isinstance(scorer, ChecklistScorer):
        raise SampleError(f"serve needs a ChecklistScorer, and {work.config.name} has {type(scorer).__name__}.")
    app = build_app(
        scorer,
        max_wait=max_wait_ms / 1000,
        max_batch=max_batch,
        max_queue=max_queue,
        max_body=int(max_body_mb * 2**20),
        token=token,
    )
    warn_if_pocket(judge.shown)
    with listen(host, port) as listening:
        bound, port = listening.getsockname()[:2]
        if token is None and not ip_address(bound.partition("%")[0]).is_loopback:
            raise SampleError(
                f"{host} lets other machines use this judge, which requires a token: set {TOKEN_VARIABLE} here and "
                "for the clients (or --token), or omit --host to serve this machine only."
            )
        load(scorer.judge)  # so that no trainer waits for it, or hears only then that it cannot be loaded
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        console.print(f"Serving rewards of {judge.shown} at {address}; Ctrl-C ends it.", soft_wrap=True)
        run_server(app, listening)


def run_server(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; requests received until then are answered."""
    from checklist_rewards.server.connections import server_of

    server = server_of(app)
    # What is loaded now stays. Looking through all of it for garbage, again and again, stops every request for 0.1 s.
    gc.collect()
    gc.freeze()
    # uvicorn answers what it has accepted, and then raises the signal again.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    gc.unfreeze()  # or libraries complain of what is never freed


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises [`SampleError`]."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SampleError(f"cannot listen on {host}:{port} ({error}); choose another --host or --port.") from error
