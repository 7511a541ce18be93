"""`serve`: the reward server."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Annotated

import typer

from checklist_rewards.cli import options as o
from checklist_rewards.cli.report import console
from checklist_rewards.errors import SampleError
from checklist_rewards.microbatch import DEFAULT_MAX_BATCH, DEFAULT_MAX_QUEUE, DEFAULT_MAX_WAIT
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.store import open_store

SERVER = "Server"
TOKEN_VARIABLE = "CHECKLIST_REWARDS_TOKEN"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8090


def serve(
    host: Annotated[
        str,
        typer.Option(rich_help_panel=SERVER, help="Address to listen on; 0.0.0.0 lets other machines in."),
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(rich_help_panel=SERVER, min=0, max=65535, help="Port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SERVER,
            envvar=TOKEN_VARIABLE,
            help="What clients must bring as a bearer token. Better in the environment, where ps does not show it.",
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
    model: o.Model = "pocket",
    backend: o.Backend = "auto",
    base_url: o.BaseUrl = None,
    prompt: o.JudgePrompt = None,
    metric: o.Metric = None,
    threshold: o.Threshold = None,
    min_answered: o.MinAnswered = None,
    mass_floor: o.MassFloor = None,
    no_store: Annotated[bool, typer.Option("--no-store", rich_help_panel=o.OUTPUT, help="Keep no answers.")] = False,
) -> None:
    """Serve rewards over HTTP: one judge for any number of trainers.

    POST /score takes {"samples": [{"checklist", "target", "input"}]} and gives scores. POST /reward is what OpenRLHF's
    --reward.remote_url asks. GET /health and /metrics (Prometheus) watch it. Requests that come together are one batch
    of the engine. Ctrl-C or SIGTERM: what was accepted is answered first.

    **Examples**

    ```
    checklist-rewards serve
    checklist-rewards serve --model org/judge --port 8090 --max-batch 512
    ```
    """
    if token is not None and not token.strip():
        raise SampleError(f"the token is empty; give one, or leave --token and {TOKEN_VARIABLE} away.")
    given = {
        "prompt": prompt,
        "primary_metric": metric,
        "threshold": threshold,
        "min_answered": min_answered,
        "mass_floor": mass_floor,
    }
    try:
        import uvicorn

        from checklist_rewards.server import build_app
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn"):
            raise
        raise SampleError(
            f"serve needs {error.name}, which is not installed: pip install 'checklist-rewards[serve]'."
        ) from None
    scorer = ChecklistScorer(
        model,
        backend=backend,
        base_url=base_url,
        store=open_store(not no_store) or False,
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )
    app = build_app(
        scorer,
        max_wait=max_wait_ms / 1000,
        max_batch=max_batch,
        max_queue=max_queue,
        max_body=int(max_body_mb * 2**20),
        token=token,
    )
    if token is None and host not in ("127.0.0.1", "localhost", "::1"):
        console.print(f"No token: whoever reaches {host} can use this judge.", style="yellow")
    with _listening(host, port) as listening:
        address = f"http://{host}:{listening.getsockname()[1]}"
        console.print(f"Serving rewards of {model} at {address}; Ctrl-C ends it.", soft_wrap=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        # uvicorn answers what it has accepted, and then raises the signal again.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SampleError(f"cannot listen on {host}:{port} ({error}); choose another --host or --port.") from error
