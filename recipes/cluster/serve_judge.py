"""A judge behind Ray Serve: replicas of the reward server on the GPUs of a cluster, under one address.

    export CHECKLIST_REWARDS_TOKEN=$(openssl rand -hex 32)
    serve run --working-dir recipes/cluster --app-dir recipes/cluster \\
        serve_judge:app model=org/judge replicas=4 gpus=1
    checklist-rewards score answers.jsonl -o scored.jsonl --backend remote --base-url http://localhost:8000

Every replica is one process with one engine, and the application of `checklist-rewards serve`. Ray Serve starts the
replicas where GPUs are free, sends each request to one of the two that are less busy, and replaces a replica that
dies; clients repeat its requests. A replica gets requests when its judge is loaded.

`CHECKLIST_REWARDS_TOKEN` is required, here and for the clients: this file cannot see whether Ray Serve listens to
other machines (`serve start --http-host 0.0.0.0`). Without that option the address is that of this machine only.
`/metrics` are those of the replica that answers.
"""

import os
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, PositiveInt
from ray import serve
from ray.serve import Application

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import TOKEN_VARIABLE
from checklist_rewards.rewards.placement import load
from checklist_rewards.server import build_app

ONGOING = 256
"""Requests per replica at the same time. A replica batches what it has, so Ray's default of 5 would starve it."""


class Arguments(BaseModel):
    """What `serve run` takes as name=value, and a Serve config file under `args`.

    Ray builds it from the annotation of [`app`], which therefore must not be a string: this module does not postpone
    annotations.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    backend: str = "auto"
    engine_args: dict[str, Any] = {}
    replicas: PositiveInt = 1
    gpus: float = 0.0
    """GPUs of a replica; with `tensor_parallel_size` in `engine_args`, as many as that."""


def app(arguments: Arguments) -> Application:
    """The application that `serve run` starts. Raises [`SampleError`] without a token."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token.strip():
        raise SampleError(
            f"{TOKEN_VARIABLE} is not set or is blank; set the same token here and for the clients: Ray Serve may "
            "accept connections from other machines."
        )

    def judge() -> FastAPI:
        """The reward server of one replica, called in its process."""
        scorer = ChecklistScorer(arguments.model, backend=arguments.backend, engine_args=arguments.engine_args)
        load(scorer.judge)  # a replica is ready when its judge is
        return build_app(scorer, token=token)

    deployment = serve.deployment(
        serve.ingress(judge)(),
        name="judge",
        num_replicas=arguments.replicas,
        max_ongoing_requests=ONGOING,
        ray_actor_options={"num_cpus": 1, "num_gpus": arguments.gpus},
    )
    return deployment.bind()
