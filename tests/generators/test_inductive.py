import json
import re

import pytest

from checklist_rewards import ChecklistScorer, Sample, __version__
from checklist_rewards.backends import Reply
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.generators import Feedback, InductiveGenerator, StageError, inductive
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies

SOURCE = Feedback(observations=["Too long.", "Names a wrong city.", "Far too long!", "Kind words."], domain="letters")
WRITTEN = [("Is it short?", [0, 2]), ("Are all names right?", [1]), ("Is it kind?", [3])]
TAGGED = json.dumps({"reason": "it is", "general": True, "specific": True})


def questions(*pairs):
    return json.dumps({"questions": [{"question": text, "sources": sources} for text, sources in pairs]})


def usual(text, sampling):
    if "each such thing" in text:
        return questions(*WRITTEN)
    if "ask the same thing" in text:
        return json.dumps({"same": True, "question": "Is it short?"})
    if "true or false for each quality" in text:
        return TAGGED
    if "Rewrite the response" in text:
        return json.dumps({"response": "FAILS"})
    raise AssertionError(text)


def apart(texts):
    """An embedding to which no two texts are alike."""
    return [[float(i == j) for j in range(len(texts))] for i in range(len(texts))]


def writes(rule=usual, breaks_at=(), **settings):
    backend = Replies(rule, breaks_at)
    settings = {"store": False, "embedder": apart} | settings
    return InductiveGenerator("fake", backend=backend, **settings), backend


def found(checklist):
    return [(item.question, list(item.sources)) for item in checklist.items]


def about_each(text, sampling=None):
    """A question about each observation in a prompt."""
    return questions(*((f"Is it {n}?", [int(n)]) for n in re.findall(r"^(\d+): ", text, re.MULTILINE)))


def asked(generator, source):
    """The questions of the first stage, which no refiner has seen."""
    return [(entry.question, entry.sources) for entry in generator.advance("questions", source).questions]


def remarks(count):
    return {"observations": [f"remark {n}" for n in range(count)]}


TWO = {"observations": ["a", "b"]}


def test_observations_become_questions_that_know_where_they_are_from():
    generator, backend = writes()
    watched = []
    checklist = generator.generate(SOURCE, progress=watched.append)
    assert found(checklist) == WRITTEN
    assert checklist.source.startswith(f"feedback/{__version__}") and checklist.model == "fake"
    stages = [("questions", 1, 3), ("deduplicate", 3, 3), ("tag", 3, 3)]
    assert [(s.name, s.asked, s.kept) for s in generator.stages] == stages
    assert watched == generator.stages
    assert "letters" in backend.sampled[0][0][0]
    assert "0: Too long.\n1: Names a wrong city.\n2: Far too long!\n3: Kind words." in backend.sampled[0][0][0]


def test_all_batches_are_asked_in_one_call_and_numbered_through():
    generator, backend = writes(about_each)
    assert asked(generator, remarks(250)) == [(f"Is it {n}?", [n]) for n in range(250)]
    [(texts, _)] = backend.sampled
    assert len(texts) == 3 and generator.stages[0].asked == 3
    asked(generator, {"observations": ["long " * 3000] * 2})
    assert generator.stages[0].asked == 2


def test_a_batch_that_is_too_long_for_the_model_is_halved():
    long = Reply(None, unanswered="too_long")
    generator, backend = writes(lambda text, s: long if text.count(": remark") > 2 else about_each(text))
    assert [sources for _, sources in asked(generator, remarks(7))] == [[n] for n in range(7)]
    with pytest.raises(StageError, match="observations 0-0: .*too_long"):
        writes(lambda text, s: long)[0].generate(TWO)


def test_equal_questions_of_several_batches_are_one_and_a_batch_may_have_none(monkeypatch):
    monkeypatch.setattr(inductive, "BATCH_SIZE", 1)
    first, second = questions(("Is it short?", [0])), questions(("is it SHORT?", [1]), ("Is it kind?", [1]))
    for other, expected in (
        (second, [("Is it short?", [0, 1]), ("Is it kind?", [1])]),
        (questions(), [("Is it short?", [0])]),
    ):
        generator, _ = writes(lambda text, s, other=other: other if "\n1: " in text else first)
        assert asked(generator, TWO) == expected


def test_more_than_max_items_are_selected_by_what_they_cover():
    generator, _ = writes(max_items=2)
    assert found(generator.generate(SOURCE)) == [WRITTEN[0], WRITTEN[1]]
    assert generator.stages[-1].name == "select" and generator.stages[-1].kept == 2


class JudgeAndWriter(Replies):
    """Writes by a rule, and judges that a text passes unless it says FAILS about a letter's names."""

    def read(self, groups, labels):
        return FakeBackend.read(self, groups, labels)


def test_with_samples_questions_that_cannot_be_enforced_are_left_out():
    backend = JudgeAndWriter(usual)
    backend.rule = lambda prefix, tail: 0.01 if "FAILS" in prefix and "kind" not in tail else 0.99
    generator = InductiveGenerator("fake", backend=backend, store=False, embedder=apart)
    checklist = generator.generate(SOURCE, [Sample(["x"], "Dear you, all is well.")])
    assert found(checklist) == WRITTEN[:2]  # rewritten to be unkind, a text is still called kind
    assert [stage.name for stage in generator.stages] == ["questions", "deduplicate", "tag", "unit_test"]
    with pytest.raises(SampleError, match="sample 1 must be a Sample, got str 'Dear'"):
        generator.generate(SOURCE, ["Dear"])


def test_the_judge_of_the_unit_tests_is_checked_before_anything_is_written():
    generator, backend = writes(scorer=ChecklistScorer("./gone", store=False))
    with pytest.raises(ModelError, match="./gone"):
        generator.generate(SOURCE, [Sample(["x"], "Dear you, all is well.")])
    assert not backend.sampled


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (questions(("Is it short?", [4])), "names observation 4; the numbers are 0 to 3"),
        (questions(("Is it short?", [])), "names no observation in 'sources'"),
        (questions(("It is short.", [1])), "'It is short.' is not a yes/no question"),
        ('{"questions": [{"question": "Is it short?"}]}', "sources: Field required"),
        (questions(), "wrote no question for any observation"),
    ],
)
def test_a_batch_that_cannot_be_used_is_never_left_out_silently(reply, reason):
    generator, _ = writes(lambda text, s: reply)
    with pytest.raises(StageError, match=reason) as broke:
        generator.generate(SOURCE)
    assert broke.value.stage == "questions" and generator.stages == []


def test_one_bad_batch_is_named(monkeypatch):
    monkeypatch.setattr(inductive, "BATCH_SIZE", 2)

    def rule(text, sampling):
        return "no" if "\n2: " in text or "cannot be used" in text else questions(("Is it a?", [0]))

    generator, _ = writes(rule)
    with pytest.raises(StageError, match=r"failed for 1 of 2 \(observations 2-3\)"):
        generator.generate(SOURCE)


def test_when_a_refiner_leaves_nothing_its_stage_is_named():
    def rule(text, sampling):
        no = json.dumps({"reason": "too vague", "general": True, "specific": False})
        return no if "true or false for each quality" in text else usual(text, sampling)

    generator, _ = writes(rule)
    with pytest.raises(StageError, match="the stage 'tag' failed. .*no item is left") as broke:
        generator.generate(SOURCE)
    assert broke.value.stage == "tag"
    assert [stage.name for stage in generator.stages] == ["questions", "deduplicate"]
