"""Registries: names, decorators, what a part is given, and names that are taken."""

import pytest
from pydantic import BaseModel

from checklist_rewards import Checklist
from checklist_rewards.backends import Engine
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.pipelines import (
    GENERATORS,
    REFINERS,
    SCORERS,
    ConfigError,
    PipelineConfig,
    assemble,
    pipeline,
    register_generator,
    register_refiner,
    register_scorer,
)
from checklist_rewards.scores import Verdict, score_checklist
from tests.pipelines.fakes import Scripted


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for registry in (GENERATORS, REFINERS, SCORERS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_the_built_in_parts_have_summaries():
    assert {"direct", "selector", "checklist"} < {entry.name for entry in (*GENERATORS, *REFINERS, *SCORERS)}
    assert all(entry.summary.endswith(".") for registry in (GENERATORS, REFINERS, SCORERS) for entry in registry)


def test_a_registered_refiner_is_made_by_name_and_gets_what_it_takes():
    made = []

    @register_refiner("head")
    class Head:
        """Keeps the first questions."""

        def __init__(self, keep: int = 1, *, model: str):
            made.append((keep, model))
            self.keep = keep

        def validate(self):
            pass

        def refine(self, checklist, samples=()):
            items = checklist.items[: self.keep]
            return Checklist(items=items) if self.keep == 1 else [item.question for item in items]

    with pytest.raises(ConfigError, match=r"refiner 'head' has no setting 'kep' \(did you mean 'keep'\?\)"):
        PipelineConfig.parse({"refiners": [{"kind": "head", "options": {"kep": 1}}]})
    config = PipelineConfig.parse({"refiners": ["head", {"kind": "head", "options": {"keep": 2}}]})
    fake = Scripted(lambda text: "1. Is it a?\n2. Is it b?\n3. Is it c?")
    pipe = assemble(config, Engine("writer", fake), Engine("judge", fake), None)
    assert made == [(1, "writer"), (2, "writer")]
    [checklist] = pipe.generate_batch(["Write."])
    assert [item.question for item in checklist.items] == ["Is it a?"]


def test_a_pipeline_of_parts_of_ones_own():
    class Topics(BaseModel):
        topics: list[str]

    @register_generator("topical", source=Topics)
    class Topical:
        """Asks after topics."""

        stages = ()

        def validate(self): ...

        def generate(self, source):
            return Checklist.parse([f"Is {topic} in it?" for topic in source.topics])

    @register_scorer("words")
    class Words:
        """Looks for the word."""

        def validate(self): ...

        def score_batch(self, samples, progress=None):
            return [score_checklist(s.checklist, [there(item, s) for item in s.checklist.items]) for s in samples]

    def there(item, sample):
        yes = float(item.question.split()[1] in sample.target)
        return Verdict({"yes": yes, "no": 1.0 - yes})

    config = PipelineConfig.parse({"generator": {"kind": "topical"}, "scorer": {"kind": "words"}})
    rows = [{"target": "rain falls"}, {"target": "sun"}]
    results = pipeline(config, store=False).run_batch(rows, source={"topics": ["rain", "sun"]})
    assert [[item.answer for item in result.score.items] for result in results] == [["yes", "no"], ["no", "yes"]]
    with pytest.raises(ConfigError, match="source: topics: Input should be a valid list, got 'rain'"):
        pipeline(config, store=False).generate({"topics": "rain"})


def test_names_that_are_taken():
    with pytest.raises(ConfigError, match="'direct' is a built-in name"):
        register_generator("direct", replace=True)
    register_refiner("mine")(object)
    with pytest.raises(ConfigError, match="'mine' is taken; pass replace=True"):
        register_refiner("mine")
    register_refiner("mine", replace=True)(dict)
    assert REFINERS.get("mine").factory is dict


def test_a_subclass_of_a_built_in_generator_is_not_bypassed():
    @register_generator("shouting")
    class Shouting(DirectGenerator):
        """Writes in capitals."""

        def generate_batch(self, requests, progress=None):
            written = super().generate_batch(requests, progress)
            return [Checklist.parse([item.question.upper() for item in one.items]) for one in written]

    config = PipelineConfig.parse({"generator": {"kind": "shouting"}})
    pipe = pipeline(config, model="m", backend=Scripted(lambda text: "1. Is it a?\n2. Is it b?"), store=False)
    [checklist] = pipe.generate_batch(["Write."])
    assert [item.question for item in checklist.items] == ["IS IT A?", "IS IT B?"]
