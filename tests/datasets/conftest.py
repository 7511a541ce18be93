"""Ray in this process, and a Ray cluster."""

import pytest


@pytest.fixture
def inline(monkeypatch):
    """`datasets/ray.py` with its actors in this process (`tests/datasets/inline.py`)."""
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")
    from checklist_rewards.datasets import ray as module
    from tests.datasets.inline import InlineRay

    stand_in = InlineRay()
    monkeypatch.setattr(module, "ray", stand_in)
    yield stand_in
    assert not stand_in.actors, "actors were not killed"


@pytest.fixture(scope="module")
def cluster():
    """A local cluster of two CPUs, to which nodes can be added."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    ray.init(cluster.address, logging_level="warning")
    yield cluster
    ray.shutdown()
    cluster.shutdown()
