"""`recipes/cluster/serve_judge.py`: two replicas of a judge under Ray Serve, scored through one address."""

import os
import socket

import pytest
from pydantic import ValidationError

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import ModelError, SampleError
from tests.conftest import REPO

pytestmark = pytest.mark.slow
WORDS = {"model": "valid", "backend": "openai", "replicas": "2"}
SAMPLES = [
    Sample([f"Is it {word} (yes)?", "Is it short (no)?", "Is it a text (yes)?"][: 2 + n % 2], f"it is {word}", "Ask.")
    for n, word in enumerate(("red", "blue", "green", "grey", "black", "white"))
]


@pytest.fixture
def address(monkeypatch, fault_server):
    """The address of two replicas on a Ray of their own. Their judge is the fault server."""
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve")
    from cluster import serve_judge
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "secret")
    monkeypatch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # Serve kills a proxy that is not up in 5 s
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = os.pathsep.join([str(REPO / "recipes"), str(REPO)])
    environment = {"env_vars": {"PYTHONPATH": path, "OPENAI_BASE_URL": fault_server}}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        # As `serve run` calls it, with the words of the command line.
        serve.run(call_user_app_builder_with_args_if_necessary(serve_judge.app, WORDS), route_prefix="/")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.mark.parametrize("token", [None, "", " \n"])
def test_no_judge_is_served_without_a_token(monkeypatch, token):
    pytest.importorskip("ray.serve")
    from cluster import serve_judge

    monkeypatch.delenv("CHECKLIST_REWARDS_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", token)
    with pytest.raises(SampleError, match="CHECKLIST_REWARDS_TOKEN is not set or is blank"):
        serve_judge.app(serve_judge.Arguments(model="org/judge"))


def test_no_judge_is_served_without_its_name():
    pytest.importorskip("ray.serve")
    from cluster import serve_judge

    with pytest.raises(ValidationError, match="model"):
        serve_judge.Arguments()


def test_two_replicas_score_as_the_judge_does_and_one_may_die(address, fault_server, monkeypatch):
    import ray

    remote = ChecklistScorer(backend="remote", base_url=address, store=False)  # every call reaches the server
    judge = ChecklistScorer("valid", backend="openai", base_url=fault_server, store=False)
    expected = [score.primary_score for score in judge.score_batch(SAMPLES)]
    assert [score.primary_score for score in remote.score_batch(SAMPLES)] == pytest.approx(expected, abs=1e-6)
    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "wrong")
    with pytest.raises(ModelError, match="set CHECKLIST_REWARDS_TOKEN"):
        ChecklistScorer(backend="remote", base_url=address).score_batch(SAMPLES)
    actors = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    replicas = [name for name in actors if name.startswith("SERVE_REPLICA::default#judge")]
    assert len(replicas) == 2
    ray.kill(ray.get_actor(replicas[0], namespace="serve"))
    assert [score.primary_score for score in remote.score_batch(SAMPLES)] == pytest.approx(expected, abs=1e-6)
