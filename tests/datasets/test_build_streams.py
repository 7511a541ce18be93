"""Checklists and scores of a stream: as it is iterated, in shards, and equal to those of a dataset."""

import io
import logging

import pytest
from datasets import Dataset, Features, Image, IterableDataset, Value, load_dataset

from checklist_rewards import ChecklistScorer, Score
from checklist_rewards.datasets import CHECKLIST_COLUMNS, checklist_features, push_to_hub, score_dataset
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.images import image_of
from tests.datasets.building import build, fake
from tests.fakes import FakeBackend
from tests.test_images import PILLOWS, Seeing

SHORT = {"question": "At most two words?", "check": '{"type": "words", "at_most": 2}'}


def stream(*prompts: str, shards: int = 1, **settings) -> IterableDataset:
    dataset = Dataset.from_dict({"prompt": list(prompts), "n": list(range(len(prompts)))})
    return dataset.to_iterable_dataset(num_shards=shards, **settings)


def test_a_stream_gets_the_checklists_of_a_dataset():
    prompts = [f"Write {number}." for number in range(5)]
    built = build(stream(*prompts, shards=2))
    assert isinstance(built, IterableDataset) and built.num_shards == 2
    assert built.features == Features(
        {"prompt": Value("string"), "n": Value("int64")}
        | {name: checklist_features()[name] for name in CHECKLIST_COLUMNS}
    )
    dataset = build(Dataset.from_dict({"prompt": prompts, "n": list(range(5))}))
    assert list(built) == list(dataset)


def test_nothing_is_written_before_a_stream_is_read():
    generator, backend = fake()
    built = build(stream("Write one.", "Write two."), generator)
    assert backend.sampled == []
    assert next(iter(built))["prompt"] == "Write one." and len(backend.sampled) == 1


@pytest.mark.parametrize("kind", ["dataset", "stream"])
def test_a_prompt_that_the_judge_does_not_see_is_warned_of_once_per_column(caplog, monkeypatch, kind):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    rows = [{"question": f"Write {n}.", "target": "a b", "checklist": ["Is it?"]} for n in range(3)]
    dataset = Dataset.from_list(rows)
    scorer = ChecklistScorer("m", backend=FakeBackend(lambda prefix, tail: 0.5), store=False)
    list(score_dataset(dataset if kind == "dataset" else dataset.to_iterable_dataset(), scorer))
    found = [message for message in caplog.messages if "the judge sees no input" in message]
    assert [message.startswith("row 1, 'question': ") for message in found] == [True]


def test_rows_without_a_checklist_are_reported_with_their_chunk(caplog):
    with pytest.raises(GenerationError, match=r"1 of 3 prompts got no checklist \(row 2\)"):
        list(build(stream("Write one.", "BAD", "Write two.")))
    with caplog.at_level(logging.WARNING):
        kept = list(build(stream("BAD"), on_failure="drop")) + list(build(stream("a", "BAD"), on_failure="drop"))
    assert [row["prompt"] for row in kept] == ["a"] and "These rows were dropped" in caplog.text
    with pytest.raises(SampleError, match="column 'question' not found; the columns are prompt, n"):
        build(stream("a"), prompt_key="question")
    with pytest.raises(SampleError, match="row 2: the input .prompt. is blank"):
        list(build(stream("a", " ")))


def test_a_stream_of_files_in_shards_is_built_and_scored(tmp_path):
    """Rows of a sharded dataset on the Hub come like this: without their number, and one file after the other."""
    for number in range(3):
        rows = {"prompt": [f"Write {number}."] * 2, "target": ["a b", "a b c"]}
        Dataset.from_dict(rows).to_parquet(tmp_path / f"train-{number:05d}-of-00003.parquet")
    files = str(tmp_path / "train-*.parquet")
    rows = load_dataset("parquet", data_files=files, split="train", streaming=True, cache_dir=str(tmp_path / "cache"))
    assert rows.num_shards == 3
    scorer = ChecklistScorer("judge", backend=FakeBackend(lambda prefix, tail: 0.9), store=False)
    scored = score_dataset(build(rows), scorer)
    assert isinstance(scored, IterableDataset) and scored.num_shards == 3
    scores = [Score.model_validate_json(row["checklist_score"]) for row in scored]
    assert [score.primary_score for score in scores] == pytest.approx([0.9] * 6) and scores[0].items[0].mass == 1


@pytest.mark.parametrize("kind", ["dataset", "stream"])
def test_scored_images_keep_their_bytes(kind):
    file = io.BytesIO()
    PILLOWS["red"].save(file, "JPEG")  # another JPEG of its pixels would have other pixels
    rows = {"prompt": ["Which?"], "target": ["Red."], "checklist": [["Is it?"]], "image": [{"bytes": file.getvalue()}]}
    dataset = Dataset.from_dict(rows).cast_column("image", Image())
    scorer = ChecklistScorer("judge", backend=Seeing(), store=False)
    scored = score_dataset(dataset if kind == "dataset" else dataset.to_iterable_dataset(), scorer)
    assert scorer.judge.engine.backend.shown == [[image_of(file.getvalue()).key]] * (kind == "dataset")
    [row] = scored.cast_column("image", Image(decode=False))
    assert scored.features["image"] == Image() and row["image"]["bytes"] == file.getvalue()


def of_text(row: dict) -> Score | None:
    return row["checklist_score"] and Score.model_validate_json(row["checklist_score"])


def test_a_scored_stream_is_the_scored_dataset(tmp_path):
    asked = [SHORT, {"question": "Is it red?", "check": None}]
    rows = [{"prompt": "p", "target": "one two three"[: 4 * n], "checklist": asked} for n in range(7)]
    rows.append(rows[0] | {"checklist": None})
    dataset = Dataset.from_list(rows)
    scorer = ChecklistScorer("judge", backend=FakeBackend(lambda prefix, tail: len(prefix) % 7 / 8), store=False)
    cells = score_dataset(dataset, scorer)["checklist_score"]
    scores = [cell and Score.model_validate(cell) for cell in cells]
    streamed = score_dataset(dataset.to_iterable_dataset(num_shards=2), scorer)
    assert list(map(of_text, streamed)) == scores
    assert scores[-1] is None and len({score.primary_score for score in scores[:-1]}) > 2
    streamed.to_parquet(tmp_path / "scored.parquet")
    again = Dataset.from_parquet(str(tmp_path / "scored.parquet"), cache_dir=str(tmp_path / "cache"))
    assert list(map(of_text, again)) == scores
    with pytest.raises(SampleError, match="dataset must be a Dataset or an IterableDataset, got dict"):
        score_dataset({"train": dataset}, scorer)


def test_the_card_of_a_dataset_needs_its_rows():
    words = r"IterableDataset cannot report; call its own push_to_hub\(repo_id, num_shards"
    with pytest.raises(SampleError, match=words):
        push_to_hub(build(stream("Write one.")), "user/name")
