import json
from dataclasses import replace

import pytest

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, PromptError, SampleError
from checklist_rewards.evolving import FromGenerator, Group, GroupProposer
from tests.backends.answerserver import scripted
from tests.evolving.fakes import BLUE, active, call, evolving

GROUP = Group(
    "Say a color.",
    None,
    None,
    ("red", "red blue", "red"),
    (0.9, 0.9, 0.9),
    (ChecklistItem(question="Is it red?", weight=4), ChecklistItem(question="Is it rude?", weight=-2)),
    (ChecklistItem(question="Is it grey?"),),
)


def reply(positive=(), negative=()):
    return json.dumps({"positive": positive, "negative": negative})


def proposer(server, **settings):
    return GroupProposer("writer", base_url=server.base_url, store=False, **settings)


def test_a_served_model_proposes_and_the_rewards_follow():
    with scripted(reply(["Is it blue?"], ["Is it green?"])) as server:
        reward = evolving(proposer(server))
        assert call(reward) == pytest.approx(BLUE)
    assert active(reward) == ["Is it blue?"], "no response is green, so that item tells nothing apart"
    [[system, user]] = server.prompts
    assert "Response 2:" in user["content"] and "Response 3:" not in user["content"], "equal responses are shown once"
    assert "- Is it red?" in user["content"] and "Say a color." in user["content"]
    assert "never an instruction" in system["content"]
    assert "Conversation" not in user["content"] and "Reference" not in user["content"]


def test_the_next_proposal_sees_the_active_items():
    with scripted(reply(["Is it blue?"]), reply()) as server:
        reward = evolving(proposer(server))
        call(reward)
        call(reward, step=1)
    assert "- Is it blue?" not in server.prompts[0][-1]["content"]
    assert "- Is it blue?" in server.prompts[1][-1]["content"]


def test_a_bad_reply_is_asked_for_again_with_what_is_wrong():
    with scripted(reply(["It is blue."]), reply(["Is it blue?"])) as server:
        proposals = proposer(server)([GROUP])
    assert [item.question for item in proposals[0]] == ["Is it blue?"]
    assert "is not a yes/no question" in server.prompts[1][-1]["content"]


def test_a_model_that_never_replies_in_form_changes_nothing():
    with scripted("I would rather not.") as server:
        reward = evolving(proposer(server))
        assert call(reward) == pytest.approx([0.9] * 4)
    assert len(server.prompts) == 2 and reward.evolving.failures == {"proposal": 1}


def test_items_weigh_as_much_as_the_persistent_ones():
    with scripted(reply(["Is it blue?"], ["**Is it green?**"])) as server:
        [items] = proposer(server)([GROUP])
    assert [(item.question, item.weight) for item in items] == [("Is it blue?", 3.0), ("Is it green?", -3.0)]


class Written:
    """A generator that keeps its requests."""

    def __init__(self):
        self.requests = []

    def generate_batch(self, requests):
        self.requests += requests
        return [Checklist.parse(["Is it new?"]) for _ in requests]


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 3), (0, 1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("scores", [(0.9, 0.1, 0.5, 0.3), (-0.2, -0.9, 0.0, -0.5), (0.0, 0.0, 0.1, 0.0)])
def test_a_response_without_a_score_has_no_rank(scores, lost):
    generator, texts = Written(), ("a", "b", "c", "d")
    known = [(score, text) for place, (score, text) in enumerate(zip(scores, texts, strict=True)) if place not in lost]
    given = tuple(None if place in lost else score for place, score in enumerate(scores))
    whole = replace(GROUP, responses=texts, scores=scores)
    proposals = FromGenerator(generator)([replace(GROUP, responses=texts, scores=given), whole])
    best_first = tuple(text for _, text in sorted(known, key=lambda pair: -pair[0]))
    ranked = [request.candidates for request in generator.requests]
    assert len(ranked[-1]) == 4 and proposals[1] is not None
    assert ranked[:-1] == ([best_first] if len(known) > 1 else [])
    assert (proposals[0] is None) == (len(known) < 2), "one response, or none, has no rank"


def test_items_of_a_generator_have_the_scale_of_the_persistent_ones():
    generator = Written()
    failed, written = GenerationError("no"), Checklist.parse([{"question": "Is it new?", "weight": 90}, "Is it odd?"])
    generator.generate_batch = lambda requests: [failed, written]
    error, proposal = FromGenerator(generator)([GROUP, GROUP])
    assert error is failed
    one, other = (item.weight for item in proposal.items)
    assert (one + other) / 2 == pytest.approx(3.0) and one / other == pytest.approx(90)


def test_too_many_questions_are_no_proposal():
    with scripted(reply(["Is it a?", "Is it b?"], ["Is it c?"])) as server:
        [error] = proposer(server, max_items=2)([GROUP])
    assert isinstance(error, GenerationError) and "3 questions; at most 2" in str(error)


def test_arguments_are_checked():
    with pytest.raises(SampleError, match="max_items=0"):
        GroupProposer("writer", max_items=0)
    with pytest.raises(PromptError, match="the placeholder {conversation} is missing"):
        GroupProposer("writer", prompt="refiners/merge")
