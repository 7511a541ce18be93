"""A real writer on a real vLLM server: checklists with a schema."""

import re
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from checklist_rewards import Checklist
from checklist_rewards.generators import DirectGenerator
from tests.backends.conftest import IN_JSON, vllm_serving

PATTERN = r"^(Is|Does) [a-z ]{10,50}\?$"
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def writer(smollm2, vllm_installed, tmp_path_factory):
    log = tmp_path_factory.mktemp("smollm2") / "server.log"
    with vllm_serving(smollm2, "writer", log, "--max-model-len", "2048", *IN_JSON) as address:
        yield address


class Questions(BaseModel):
    """Two or three short questions: a small model left alone goes on until it is cut off, or asks nothing."""

    questions: list[Annotated[str, Field(pattern=PATTERN)]] = Field(min_length=2, max_length=3)


def test_it_writes_checklists_that_follow_the_schema(writer):
    generator = DirectGenerator(
        "writer", base_url=writer, shape=Questions, min_items=1, max_items=3, max_tokens=100, store=False
    )
    [checklist] = generator.generate_batch(["Write a haiku about rain."])
    assert isinstance(checklist, Checklist), checklist
    assert 1 <= len(checklist) <= 3 and all(re.match(PATTERN, item.question) for item in checklist.items)
