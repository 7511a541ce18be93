"""A server in this process, behind it an engine that knows its colours."""

import pytest
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer
from checklist_rewards.server import build_app
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import knows


@pytest.fixture
def scorer() -> ChecklistScorer:
    backend = FakeBackend(knows, fails=lambda prefix, tail: "boom" in prefix, chunk_reads=1)
    return ChecklistScorer(backend=backend, store=False)


@pytest.fixture
def client(scorer):
    with TestClient(build_app(scorer)) as client:
        yield client
