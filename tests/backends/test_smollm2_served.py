"""A real writer on a real vLLM server: checklists with a schema."""

import pytest

from checklist_rewards import Checklist
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.generators.shapes import Questions
from tests.backends.conftest import IN_JSON, vllm_serving

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def writer(smollm2, vllm_installed, tmp_path_factory):
    log = tmp_path_factory.mktemp("smollm2") / "server.log"
    with vllm_serving(smollm2, "writer", log, "--max-model-len", "2048", *IN_JSON) as address:
        yield address


def test_it_writes_checklists_that_follow_the_schema(writer):
    generator = DirectGenerator(
        "writer", base_url=writer, shape=Questions, min_items=1, max_items=8, max_tokens=400, store=False
    )
    inputs = ["Write a haiku about rain.", "Explain in two sentences why the sky is blue."]
    found = generator.generate_batch(inputs)
    assert [type(checklist) for checklist in found] == [Checklist, Checklist]
    for checklist in found:
        assert all(item.question.strip() and item.weight >= 0 for item in checklist.items)
