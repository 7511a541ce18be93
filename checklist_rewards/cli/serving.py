"""`serve` runs the reward server, `ui` the app on this machine."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from annotated_types import Ge, Le

from checklist_rewards.backends.models import POCKET
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import brief
from checklist_rewards.cli.output import console
from checklist_rewards.cli.work import CHECKLISTS, SCORES, Work
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import TOKEN_VARIABLE
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_WAIT
from checklist_rewards.rewards.placement import load
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    from fastapi import FastAPI


class Server(o.Options):
    """Where the server listens, and how much it takes."""

    heading = "Server"
    shown = ("host", "port", "token", "max_batch")

    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 accepts other machines and requires a token."""
    port: Annotated[int, Ge(0), Le(65535)] = 8090
    """Port; 0 chooses a free one."""
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE)] = None
    """Bearer token that clients must send. Prefer the environment variable, because options are visible in the process
    list."""
    max_wait_ms: Annotated[float, Ge(0)] = DEFAULT_MAX_WAIT * 1000
    """Longest time a row waits for others to batch with."""
    max_batch: Annotated[int, Ge(1)] = DEFAULT_MAX_BATCH
    """Most rows per batch."""
    max_queue_tokens: Annotated[int, Ge(1)] = 8_000_000  # as in `server.scoring`, which requires the extra `serve`
    """Most tokens in waiting rows (an estimate: 4 bytes are a token); further requests get status 429."""
    max_queue: Annotated[int, Ge(1)] | None = None
    """Most waiting rows; no limit by default."""


@brief("judge", "judge.calibration", "concurrency")
def serve(
    judge: o.JudgeOptions,
    server: Server,
    concurrency: o.Concurrency = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    """Serve rewards over HTTP: one judge for any number of trainers.

    POST /score takes {"samples": [{"checklist", "target", "input"}]} and returns scores. POST /reward is the endpoint
    for OpenRLHF's --reward.remote_url. GET /health, GET /ready and GET /metrics (Prometheus) are available once the
    judge is loaded. Concurrent requests are batched. On Ctrl-C or SIGTERM the server finishes the requests it has
    received, for at most 25 s, and exits with status 0.

    Other commands use the server with --backend remote --base-url, Python code with
    ChecklistScorer(backend="remote", base_url="http://localhost:8090"). Server and clients read the token from
    CHECKLIST_REWARDS_TOKEN.

    **Examples**

    ```
    checklist-rewards serve --model org/judge --port 8090 --max-batch 512
    checklist-rewards score answers.jsonl -o scored.jsonl --backend remote --base-url http://localhost:8090
    ```
    """
    host, token = server.host, server.token
    if token is not None and not token.strip():
        raise SampleError(f"the token is empty; set one, or omit --token and {TOKEN_VARIABLE}.")
    [served] = import_extra("checklist_rewards.server", extra="serve")
    work = Work.of(o.Preset(), store_options, judge=judge, concurrency=concurrency)
    if work.config.scorer.scale is not None:
        raise SampleError(
            "the server scores checklists as clients send them and cannot apply --scale; omit it, and add the grades "
            "as options of the checklist items."
        )
    scorer = work.scorer
    scorer.validate()
    with listen(host, server.port) as listening:
        bound, port = listening.getsockname()[:2]
        if token is None and not ip_address(bound.partition("%")[0]).is_loopback:
            raise SampleError(
                f"--host {host} accepts connections from other machines, which requires a token: set {TOKEN_VARIABLE} "
                "(or --token) here and for the clients, or omit --host to serve this machine only."
            )
        load(scorer.judge)  # load now, so that errors appear here and the first request does not wait
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        app = served.build_app(
            scorer,
            max_wait=server.max_wait_ms / 1000,
            max_batch=server.max_batch,
            max_queue=server.max_queue,
            max_tokens=server.max_queue_tokens,
            token=token,
        )
        console.print(f"Serving rewards of {work.judge_name} at {address}; press Ctrl-C to stop.")
        run_server(app, listening)


def run_server(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests already received."""
    from checklist_rewards.server.connections import run_server, server_of

    run_server(server_of(app), listening)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free port. Raises [`SampleError`] if the address cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SampleError(f"cannot listen on {host}:{port} ({error}); choose another --host or --port.") from error


class App(o.Options):
    """The project of the app, and where it is shown."""

    heading = "Server"

    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]")] = Path(".")
    """Project folder: the only files that the app reads and writes."""
    port: Annotated[int, Ge(0), Le(65535)] = 8091
    """Port on 127.0.0.1; 0 chooses a free one."""
    no_browser: bool = False
    """Only print the URL; open no browser."""


@brief("pipeline", "judge", "config")
def ui(
    preset: o.Preset,
    judge: o.JudgeOptions,
    writer: o.OwnWriter,
    app_options: App,
    concurrency: o.Concurrency = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Open the app: look at files, annotate responses, judge and compare, and export settings as code.

    The app runs on this machine, for one browser: the printed URL has a random token, without which every request is
    refused. It reads and writes only the files of FOLDER. Judge options are those of **score**; keys of servers stay
    in the environment.

    **Examples**

    ```
    checklist-rewards ui
    checklist-rewards ui runs/demo --model org/judge --base-url http://localhost:8000/v1
    checklist-rewards ui project --no-browser --port 8091
    ```
    """
    _, page = import_extra("checklist_rewards.server.connections", "checklist_rewards.ui.app", extra="ui")
    from checklist_rewards.ui.judging import Judging
    from checklist_rewards.ui.project import Project

    project = Project.at(app_options.folder)
    if judge.names_no_model and not preset.load().scorer.model:
        judge = judge.named(POCKET)  # the page shows the judge, and the command warns of it
    engine = writer.other_engine(judge) or judge.engine
    work = Work.of(preset, store_options, writing=writer, writer=engine, judge=judge, concurrency=concurrency)
    assert work.writer is not None
    chosen = None if store_options.store is None else str(store_options.store.resolve())
    judging = Judging(
        project,
        work.config,
        judge.settings,
        work.engine(SCORES, work.judge),
        work.engine(CHECKLISTS, work.writer),
        work.store,
        chosen,
    )
    judging.pipeline({}).scorer.validate()
    token = secrets.token_urlsafe(24)
    app = page.build_ui(judging, token)
    with listen("127.0.0.1", app_options.port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}"
        console.print(f"The app of {project.folder} is at {address}")
        console.print("Press Ctrl-C to stop.")
        if not app_options.no_browser:
            webbrowser.open(address)
        run_server(app, listening)
    for job in app.state.jobs.running():
        console.print(f"Job {job} goes on without the app; open the app again to follow or pause it.")
