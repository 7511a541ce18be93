import pytest

from checklist_rewards import Checklist, __version__
from checklist_rewards.errors import SampleError
from checklist_rewards.refiners import Selector
from tests.refiners.vectors import Vectors, at_angles, orthogonal, questions

WORDS = "short polite clear exact complete honest fluent calm".split()
QUESTIONS = [f"Is it {word}?" for word in WORDS]


def test_distinct_questions_all_stay_if_there_is_room():
    refiner = Selector(embedder=orthogonal(QUESTIONS))
    refined = refiner.refine(Checklist.parse({"items": QUESTIONS, "source": "tick/1", "model": "writer"}))
    assert questions(refined) == QUESTIONS
    assert (refined.source, refined.model) == (f"tick/1+selector/{__version__}", "writer")
    assert not refiner.report.dropped


def test_near_duplicates_are_left_out_also_with_observations_of_their_own():
    angles = {f"Is it {'very ' * i}short?": i / 10 for i in range(30)}
    angles |= {"Does it name a city?": 90, "Is it polite?": 150}
    refiner = Selector(embedder=at_angles(angles))
    items = [{"question": q, "sources": (i,)} for i, q in enumerate(angles)]
    kept = questions(refiner.refine(Checklist.parse(items)))
    assert len(kept) == 3 and {"Does it name a city?", "Is it polite?"} < set(kept)
    [short] = set(kept) - {"Does it name a city?", "Is it polite?"}
    assert [note.reason for note in refiner.report.dropped] == [f"it repeats {short!r}"] * 29


def test_coverage_counts_the_observations_behind_the_items():
    sources = ((0, 1), (0, 1, 2), (3, 4, 5), (6,))
    checklist = Checklist.parse([{"question": q, "sources": s} for q, s in zip(QUESTIONS, sources, strict=False)])
    best = Selector(2, embedder=orthogonal(QUESTIONS)).refine(checklist)
    assert questions(best) == [QUESTIONS[1], QUESTIONS[2]]
    # Nothing alike in room for 4: each item adds 0.5 / 4, and its share of the 7 observations at half the weight.
    for penalty, kept in ((0.12, [0, 1, 2, 3]), (0.13, [1, 2, 3]), (0.19, [1, 2, 3]), (0.2, [1, 2]), (0.4, [1])):
        refined = Selector(size_penalty=penalty, embedder=orthogonal(QUESTIONS)).refine(checklist)
        assert questions(refined) == [QUESTIONS[index] for index in kept]


def test_a_gate_is_never_left_out():
    gates = Checklist.parse([{"question": question, "required": True} for question in QUESTIONS])
    assert len(Selector(2, embedder=orthogonal(QUESTIONS)).refine(gates)) == 8
    one = Checklist.parse([*QUESTIONS[:6], gates.items[6]])
    for penalty, count in ((0, 2), (0.002, 2), (50, 1)):
        kept = questions(Selector(2, size_penalty=penalty, embedder=orthogonal(QUESTIONS)).refine(one))
        assert QUESTIONS[6] in kept and len(kept) == count


def test_the_search_begins_with_every_item_not_with_the_first_few():
    # The best pair stands last; a beam that began with the first items only would not have it.
    shared = {f"Is it {'a' * n}?": 1.0 for n in range(1, 21)} | {"Is it up?": 0.5, "Is it down?": 0.2}
    own = orthogonal(list(shared)).vectors
    found = Selector(2, embedder=Vectors({q: [shared[q], *own[q]] for q in shared}))
    assert questions(found.refine(Checklist.parse(list(shared)))) == ["Is it up?", "Is it down?"]


def test_the_best_pair_need_not_be_part_of_the_best_three():
    angles = dict(zip(QUESTIONS[:4], (60, 15, 165, 90), strict=True))
    sources = ((0, 1), (0,), (2, 4), (1,))
    checklist = Checklist.parse([{"question": q, "sources": s} for q, s in zip(angles, sources, strict=True)])
    assert questions(Selector(3, embedder=at_angles(angles)).refine(checklist)) == QUESTIONS[1:4]


def test_an_item_stays_that_adds_little_unless_the_penalty_is_larger():
    pair = Checklist.parse([{"question": question, "sources": (0,)} for question in QUESTIONS[:2]])
    embedder = at_angles(dict(zip(QUESTIONS[:2], (0, 61), strict=True)))  # the second one adds 0.008
    assert len(Selector(embedder=embedder).refine(pair)) == 2
    assert len(Selector(size_penalty=0.01, embedder=embedder).refine(pair)) == 1


@pytest.mark.parametrize("settings", [{"max_items": 0}, {"size_penalty": -1}])
def test_numbers_that_make_no_sense(settings):
    with pytest.raises(SampleError, match=next(iter(settings))):
        Selector(**settings)
