"""An encoder judge that reads the reference: a tiny one that learned whether a text mentions it."""

import json
from dataclasses import replace

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.budget import Budget
from checklist_rewards.backends.encoder import EncoderBackend
from checklist_rewards.backends.encoder_rows import WINDOW
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.distill.folds import read_pairs
from checklist_rewards.distill.training import Training, train_encoder
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, EncoderJudge
from tests.encoders import compared, mentions, tiny_bert

YES_NO = ("yes", "no")
IT = ChecklistItem(question="does it mention it ?")
TARGET = "red cat dog tree river"


@pytest.fixture(scope="module", params=["packed", "matched"])
def layout(request):
    return request.param


@pytest.fixture(scope="module")
def record(tmp_path_factory, layout):
    """A judge trained for a few seconds on two tasks, of which one has no reference; and what was recorded of it."""
    place = tmp_path_factory.mktemp("encoder")
    training = Training(8, learning_rate=5e-3, targets=16, layout=layout, freeze_embeddings=False, bf16=False)
    pairs = compared(200) + mentions(60)
    return {
        "folder": str(place / "judge"),
        **train_encoder(pairs, place / "judge", base=tiny_bert(place / "base"), training=training),
    }


@pytest.fixture(scope="module")
def folder(record):
    return record["folder"]


@pytest.fixture(scope="module")
def engine(folder):
    return EncoderBackend(folder)


def accuracy(engine, pairs):
    found = read_pairs(engine, pairs)
    return sum((value > 0.5) == (pair.label > 0.5) for pair, value in zip(pairs, found, strict=True)) / len(pairs)


def p_yes(engine, *groups):
    return [read.logprobs[0] for read in engine.read(groups, YES_NO)[0]]


def asked(target, reference, *questions, given="lamp"):
    return ReadGroup(None, target, questions or (IT.question,), (("input", given), ("reference", reference)))


def test_one_judge_answers_from_the_reference_and_without_one(engine):
    pairs = compared(200, seed=1)
    assert accuracy(engine, pairs) > 0.95
    assert accuracy(engine, mentions(60, seed=1)) > 0.95
    # Without the reference the question cannot be answered, and the input does not take its place.
    assert accuracy(engine, [replace(pair, reference=None) for pair in pairs]) < 0.7
    swapped = [replace(pair, input=pair.reference, reference=pair.input) for pair in pairs]
    assert accuracy(engine, swapped) < 0.7


def test_the_folder_tells_what_it_was_trained_with(record, folder, engine):
    assert record["context"] == {"input": 200, "reference": 200} and record["pairs"] == 200 + 360
    with open(f"{folder}/config.json") as file:
        assert json.load(file)["checklist_context"] == ["input", "reference"]
    assert EncoderJudge(folder).context == EncoderJudge("any name", backend=engine).context == ("input", "reference")
    limited = Budget(1.0, {folder: (0, 0)}).limited(Engine(folder))
    assert EncoderJudge(limited).context == ("input", "reference")


def test_an_answer_depends_neither_on_other_questions_nor_on_other_rows(engine):
    questions = [IT.question, *(f"does it mention {word} ?" for word in ("red", "blue", "lamp"))]
    groups = [
        asked(TARGET, "red", *questions),
        asked(TARGET, "blue", *questions),
        asked("cat dog " * WINDOW, "lamp " * 200, *questions),
        ReadGroup(None, TARGET, tuple(questions)),
    ]
    together = p_yes(engine, *groups)
    alone = [p_yes(engine, replace(group, tails=(tail,)))[0] for group in groups for tail in group.tails]
    assert together == pytest.approx(alone, abs=1e-4)
    turned = [replace(group, tails=group.tails[::-1]) for group in groups[::-1]]
    assert p_yes(engine, *turned)[::-1] == pytest.approx(together, abs=1e-4)


def test_every_window_of_a_long_target_is_compared_with_the_reference(engine):
    filler = "cat dog " * WINDOW
    without, early, late = p_yes(
        engine, asked(filler, "red"), asked("red " + filler, "red"), asked(filler + "red", "red")
    )
    assert min(early, late) > without


def test_the_reference_is_part_of_the_key_of_a_stored_answer(folder, tmp_path):
    reads = [Ask(IT, TARGET, "lamp", word) for word in ("red", "blue", "red")] + [
        Ask(IT, TARGET),
        Ask(IT, TARGET, ""),
    ]
    first = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    found, spent = first.answer(reads)
    assert (spent.asked, spent.deduplicated) == (3, 2)
    assert found[0] == found[2] != found[1] and found[3] == found[4]
    again = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    verdicts, spent = again.answer([*reads, Ask(IT, TARGET, "tree", "red"), Ask(IT, TARGET, None, "red")])
    assert verdicts[:5] == found and (spent.asked, spent.stored) == (2, 3)


def test_a_limited_engine_reads_the_same(folder):
    engine = Budget(1.0, {folder: (0, 0)}).limited(Engine(folder))
    reads = [Ask(IT, TARGET, "lamp", word) for word in ("red", "blue")]
    assert EncoderJudge(engine).answer(reads)[0] == EncoderJudge(folder).answer(reads)[0]


def test_a_served_row_gives_what_the_call_gives(folder):
    testclient = pytest.importorskip("fastapi.testclient")
    pytest.importorskip("httpx")
    from checklist_rewards.server import build_app

    scorer = ChecklistScorer(folder, store=False)
    references = ["red", "blue", None]
    expected = scorer.score_batch([Sample([IT], TARGET, "lamp", reference) for reference in references])
    rows = [{"checklist": [IT.question], "target": TARGET, "input": "lamp", "reference": word} for word in references]
    with testclient.TestClient(build_app(scorer)) as client:
        answer = client.post("/score", json={"samples": rows})
    served = [score["items"][0]["probabilities"]["yes"] for score in answer.json()["scores"]]
    assert served == pytest.approx([score.items[0].probabilities["yes"] for score in expected], abs=1e-6)
    assert served[0] > 0.5 > max(served[1:])
