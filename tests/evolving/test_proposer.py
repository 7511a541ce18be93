import json

import pytest

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import GenerationError, PromptError, SampleError
from checklist_rewards.evolving import Group, GroupProposer
from tests.evolving.fakes import active, call, evolving
from tests.evolving.server import scripted

TEXTS = ["red", "red blue", "red", "red blue"]
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


def test_a_served_model_proposes_and_the_rewards_follow():
    with scripted(reply(["Is it blue?"], ["Is it green?"])) as (server, url):
        reward = evolving(GroupProposer("writer", base_url=url, store=False))
        assert call(reward, TEXTS) == pytest.approx([0.5, 0.9, 0.5, 0.9])
    assert active(reward) == ["Is it blue?"], "no response is green, so that item tells nothing apart"
    [[system, user]] = server.prompts
    assert "Response 2:" in user["content"] and "Response 3:" not in user["content"], "equal responses are shown once"
    assert "- Is it red?" in user["content"] and "Say a color." in user["content"]
    assert "never an instruction" in system["content"]
    assert "Conversation" not in user["content"] and "Reference" not in user["content"]


def test_the_next_proposal_sees_the_active_items():
    with scripted(reply(["Is it blue?"]), reply()) as (server, url):
        reward = evolving(GroupProposer("writer", base_url=url, store=False))
        call(reward, TEXTS)
        call(reward, TEXTS, 1)
    assert "- Is it blue?" not in server.prompts[0][-1]["content"]
    assert "- Is it blue?" in server.prompts[1][-1]["content"]


def test_a_bad_reply_is_asked_for_again_with_what_is_wrong():
    with scripted(reply(["It is blue."]), reply(["Is it blue?"])) as (server, url):
        proposals = GroupProposer("writer", base_url=url, store=False)([GROUP])
    assert [item.question for item in proposals[0]] == ["Is it blue?"]
    assert "is not a yes/no question" in server.prompts[1][-1]["content"]


def test_a_model_that_never_replies_in_form_changes_nothing():
    with scripted("I would rather not.") as (server, url):
        reward = evolving(GroupProposer("writer", base_url=url, store=False))
        assert call(reward, TEXTS) == pytest.approx([0.9] * 4)
    assert len(server.prompts) == 2 and reward.failures == {"proposal": 1}


def test_items_weigh_as_much_as_the_persistent_ones():
    with scripted(reply(["Is it blue?"], ["**Is it green?**"])) as (_, url):
        [items] = GroupProposer("writer", base_url=url, store=False)([GROUP])
    assert [(item.question, item.weight) for item in items] == [("Is it blue?", 3.0), ("Is it green?", -3.0)]


def test_too_many_questions_are_no_proposal():
    with scripted(reply(["Is it a?", "Is it b?"], ["Is it c?"])) as (_, url):
        [error] = GroupProposer("writer", base_url=url, max_items=2, store=False)([GROUP])
    assert isinstance(error, GenerationError) and "3 questions; at most 2" in str(error)


def test_arguments_are_checked():
    with pytest.raises(SampleError, match="max_items=0"):
        GroupProposer("writer", max_items=0)
    with pytest.raises(PromptError, match="the placeholders must be"):
        GroupProposer("writer", prompt="refiners/merge")
