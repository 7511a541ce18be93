"""A command assembles its pipeline once and checks each request once."""

from collections import Counter

import pytest

from checklist_rewards.generators import DirectGenerator
from checklist_rewards.pipelines import Pipeline
from tests.jsonl import write_jsonl
from tests.pipelines.fakes import Scripted

ROWS = [{"prompt": f"Write note {number}.", "target": "A note.", "checklist": ["Is it?"]} for number in range(3)]


@pytest.fixture
def counts(monkeypatch, engine):
    """Assembled pipelines, whether each has a generator, and checks of requests."""
    counts = Counter()
    assemble, check = Pipeline.__init__, DirectGenerator.check_request

    def counted_init(self, config, generator, *others):
        counts["pipelines"] += 1
        counts["generators"] += generator is not None
        assemble(self, config, generator, *others)

    def counted_check(self, *arguments):
        counts["checks"] += 1
        return check(self, *arguments)

    monkeypatch.setattr(Pipeline, "__init__", counted_init)
    monkeypatch.setattr(DirectGenerator, "check_request", counted_check)
    engine(backend=Scripted(lambda text: "1. Is it short?\n2. Is it kind?"))
    return counts


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["generate"], {"pipelines": 1, "generators": 1, "checks": 3}),
        (["run"], {"pipelines": 1, "generators": 1, "checks": 3}),
        (["run", "--checklist", "own.json"], {"pipelines": 1}),
        (["refine", "--rounds", "1"], {"pipelines": 1, "generators": 1}),
        (["score"], {"pipelines": 1}),
    ],
)
def test_one_pipeline_and_one_check_per_reading_of_the_file(run, counts, command, expected, dry):
    """Rows are read twice: validated before an engine starts, then processed. A dry run only validates them."""
    write_jsonl("rows.jsonl", *ROWS)
    write_jsonl("own.json", ["Is it?"])
    run(*command, "rows.jsonl", "-o", "out.jsonl", "--no-store", "--model", "pocket", *dry)
    readings = 1 if dry else 2
    assert +counts == {name: n * readings if name == "checks" else n for name, n in expected.items()}
