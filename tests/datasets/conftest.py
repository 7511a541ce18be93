"""A Ray cluster that the modules of this folder share."""

import pytest


@pytest.fixture(scope="package")
def cluster():
    """A local cluster of two CPUs."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, logging_level="warning"
    )
    yield
    ray.shutdown()
