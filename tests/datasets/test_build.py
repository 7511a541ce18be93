"""Prompts in, checklists and scores out: of a dataset, and of a stream as it is iterated."""

import io
import json
import logging

import pytest
from datasets import Dataset, Features, Image, IterableDataset, List, Value

from checklist_rewards import Checklist, ChecklistScorer, Score, __version__
from checklist_rewards.datasets import (
    CHECKLIST_COLUMNS,
    build_checklists,
    checklist_features,
    score_dataset,
)
from checklist_rewards.errors import ChecklistRewardsError, GenerationError, SampleError
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.images import image_of
from tests.datasets.building import GOOD, build, fake
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies
from tests.test_images import BLUE, PILLOWS, RED, Seeing, asks


def test_prompts_become_a_dataset_with_the_declared_columns():
    dataset = build(["Name a city.", "Name two."])
    assert dataset.features == checklist_features()
    assert dataset["prompt"] == ["Name a city.", "Name two."]
    assert dataset[0]["checklist_source"] == f"tick/{__version__}"
    assert dataset[0]["checklist_model"] == "fake"
    checklist = Checklist.parse(dataset[0]["checklist"])
    assert [item.question for item in checklist.items] == ["Is it short?", "Does it name a city?"]
    assert checklist.id == dataset[0]["checklist_id"]


def test_of_chat_messages_the_last_by_the_user_is_the_input_and_the_rest_its_history():
    generator, backend = fake()
    turns = (("system", "Be brief."), ("user", "Hello."), ("assistant", "Hi."), ("user", "Name a city."))
    prompt = [{"role": role, "content": text} for role, text in turns]
    dataset = build([prompt], generator)
    assert dataset.features == checklist_features("messages")
    assert dataset[0]["prompt"] == prompt
    ((asked,), _) = backend.sampled[0]
    instruction = asked.split("## Instruction")[1].split("##")[0]
    assert "Name a city." in instruction and "Hello." not in instruction
    assert "system: Be brief.\n\nuser: Hello.\n\nassistant: Hi." in asked


def test_a_list_may_mix_texts_and_messages():
    messages = [{"role": "user", "content": "Name it."}]
    generator, backend = fake()
    dataset = build(["plain", messages, json.dumps(messages), "5", '{"a": 1}'], generator)
    asked = [text for sampled in backend.sampled for text in sampled[0]]
    inputs = [text.split("## Instruction")[1].split("##")[0].strip() for text in asked]
    assert [one.splitlines()[-2] for one in inputs] == ["plain", "Name it.", "5", '{"a": 1}']  # messages asked once
    assert dataset["prompt"][:] == ["plain", *[json.dumps(messages)] * 2, "5", '{"a": 1}']


PICTURED = [{"prompt": "Which?", "images": [PILLOWS["red"], PILLOWS["blue"]]}, {"prompt": "Who?", "images": []}]
PLACES = [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "Which?"}]}]


@pytest.mark.parametrize(
    "rows",
    [
        [{"prompt": "Which?", "images": (PILLOWS["red"], PILLOWS["blue"])}],
        [{"prompt": PLACES, "images": [PILLOWS["red"], PILLOWS["blue"]]}],
        Dataset.from_list(PICTURED),
    ],
    ids=["tuples", "places", "dataset"],
)
def test_images_are_shown_to_the_writer_and_survive_parquet(tmp_path, rows):
    generator, backend = fake()
    backend.sees = True
    built = build(rows, generator)
    Dataset.from_list(list(built), features=built.features).to_parquet(tmp_path / "built.parquet")
    asked = [text for sampled in backend.sampled for text in sampled[0]]
    assert RED.mark + BLUE.mark in asked[0] and all(RED.mark not in text for text in asked[1:])
    again = Dataset.from_parquet(str(tmp_path / "built.parquet"), cache_dir=str(tmp_path))
    assert again.features["images"] == List(Image()) and [image_of(i) for i in again[0]["images"]] == [RED, BLUE]


def test_images_in_messages_are_stored_as_cells(tmp_path):
    generator, backend = fake()
    backend.sees = True
    [row] = build([asks(PILLOWS["red"], "Which?")], generator)
    assert [image_of(part["image"]) for part in row["prompt"][0]["content"] if part["image"]] == [RED]


def test_a_row_with_an_image_that_the_writer_cannot_take_is_named_first():
    generator, backend = fake()
    for rows in (PICTURED[::-1], Dataset.from_list(PICTURED[::-1])):
        with pytest.raises(SampleError, match="row 2: the input has an image, but the model 'fake' reads text only"):
            build(rows, generator)
    assert not backend.sampled


def test_all_other_columns_are_kept_as_they_are():
    source = Dataset.from_dict({"prompt": ["a", "b"], "n": [1, 2], "tags": [["x"], []]})
    dataset = build(source.select([1, 0]))
    assert dataset.column_names == ["prompt", "n", "tags", *CHECKLIST_COLUMNS]
    assert [dataset.features[name] for name in ("n", "tags")] == [source.features[name] for name in ("n", "tags")]
    assert (dataset["prompt"], dataset["n"], dataset["tags"]) == (["b", "a"], [2, 1], [[], ["x"]])


def test_rows_may_stream_in_and_their_columns_get_the_type_that_fits_all():
    rows = ({"prompt": str(i % 7), "n": None if i < 1500 else i} for i in range(1600))
    dataset = build(rows)
    assert dataset["n"] == [None] * 1500 + list(range(1500, 1600)) and len(dataset["checklist"]) == 1600


def test_several_columns_are_joined_to_a_prompt_and_blank_ones_left_out():
    rows = [{"instruction": "Sum up.", "input": "A text.", "n": 1}, {"instruction": "Hi.", "input": " ", "n": 2}]
    for prompts in (rows, Dataset.from_list(rows)):
        dataset = build(prompts, prompt_key=("instruction", "input"))
        assert dataset.column_names == ["prompt", "n", *CHECKLIST_COLUMNS]
        assert dataset["prompt"] == ["Sum up.\n\nA text.", "Hi."]


def test_the_prompt_column_may_have_another_name_and_a_reference_beside_it():
    generator, backend = fake()
    row = {"question": "Which city?", "answer": "Bern."}
    dataset = build([row], generator, prompt_key="question", reference_key="answer")
    assert dataset.column_names == ["prompt", "answer", *CHECKLIST_COLUMNS]
    assert "Bern." in backend.sampled[0][0][0]


def test_a_prompt_without_a_checklist_is_an_error_that_names_it_after_all_others_are_done(tmp_path):
    generator, backend = fake(store=tmp_path / "store.sqlite")
    with pytest.raises(GenerationError) as failed:
        build(["a", "BAD 1", "b", "BAD 2"], generator)
    assert str(failed.value).startswith(
        "2 of 4 prompts got no checklist (row 2, 4). Row 2: the reply has 0 different questions, but at least 2 are "
        "required. The reply was 'no list'."
    )
    assert failed.value.raw == "no list"
    again, asked = fake(store=tmp_path / "store.sqlite")
    assert len(build(["a", "b"], again)) == 2
    assert asked.sampled == []


def test_a_prompt_without_a_checklist_may_be_dropped_with_a_warning(caplog):
    source = Dataset.from_dict({"prompt": ["a", "BAD", "b"], "n": [1, 2, 3]})
    dataset = build(source, on_failure="drop")
    assert (dataset["prompt"], dataset["n"]) == (["a", "b"], [1, 3])
    assert "1 of 3 prompts got no checklist (row 2)" in caplog.text


def test_a_dataset_without_any_checklist_is_an_error_even_if_prompts_may_be_dropped():
    with pytest.raises(GenerationError, match="1 of 1 prompts got no checklist"):
        build(["BAD"], on_failure="drop")


def test_progress_counts_the_prompts(capsys):
    done = []
    build_checklists([str(i) for i in range(300)], fake()[0], progress=done.append)
    assert sum(done) == 300 and len(done) > 1
    build_checklists(["a"], fake()[0])
    out, err = capsys.readouterr()
    assert out == "" and "checklists: 1 of 1 (100%)" in err


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        ([], {}, "prompts is empty"),
        ("Name a city.", {}, "prompts must be a Dataset or an iterable of prompts, got str"),
        ({"train": ["a"]}, {}, "got dict. Pass one of its splits"),
        (["a", 3], {}, "row 2: expected a prompt .a string or a list of messages., got int 3"),
        ([{"prompt": "a"}, "b"], {}, "row 2: expected a mapping, as in row 1, got str"),
        (["a", " "], {}, "row 2: the input .prompt. is blank; a checklist requires an input"),
        ([[{"role": "system", "content": "x"}]], {}, "row 1: the input .prompt. is blank"),
        ([{"text": "a"}], {}, "column 'prompt' not found; the columns are text"),
        ([{"prompt": "a", "checklist": ["b"]}], {}, "the dataset already has a column 'checklist'"),
        ([{"prompt": "a", "text": "b"}], {"prompt_key": "text"}, "the dataset already has a column 'prompt'"),
        (
            [{"a": "x", "b": ["y"]}],
            {"prompt_key": ("a", "b")},
            "row 1: 'b' must be a string or chat messages, got list",
        ),
        ([{"prompt": "a", "r": 3}], {"reference_key": "r"}, "row 1: 'r' must be a string or chat messages with"),
        (["a"], {"on_failure": "ignore"}, "on_failure='ignore' is not known"),
        (["a"], {"temperature": 1.0}, "temperature cannot be combined with `generator`"),
        ([{"prompt": "a"}], {"prompt_key": "promt"}, r"column 'promt' not found \(did you mean 'prompt'\?\)"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused_before_anything_is_asked(prompts, settings, message):
    generator, backend = fake()
    with pytest.raises(SampleError, match=message):
        build(prompts, generator, **settings)
    assert backend.sampled == []


def test_a_run_that_died_goes_on_where_it_stopped_and_ends_the_same(tmp_path):
    prompts = [f"{i} BAD" if i % 50 == 7 else str(i) for i in range(400)]

    def rule(text, sampling):
        return GOOD if "BAD" not in text or sampling.seed == 2 else "no list"

    def dies(text, sampling):
        if "\n300\n" in text:
            raise KeyboardInterrupt
        return rule(text, sampling)

    store = tmp_path / "store.sqlite"
    with pytest.raises(KeyboardInterrupt):
        build(prompts, fake(dies, store=store)[0])
    (resumed, after), (whole, before) = fake(rule, store=store), fake(rule)
    assert build(prompts, resumed).to_list() == build(prompts, whole).to_list()
    (first, _), *later = before.sampled
    assert after.sampled == [(first[300:], before.sampled[0][1]), *later]  # what had come before the end was kept


def test_a_pipeline_writes_by_its_name_with_what_the_rows_have_for_it():
    made = {"questions": [{"question": "Is it short?", "category": "hard_rule"}]}
    backend = Replies(lambda text, sampling: json.dumps(made))
    row = {"prompt": "Name a city.", "chosen": [{"role": "assistant", "content": "Rome"}], "rejected": "A town"}
    settings = {"model": "m", "backend": backend, "store": False, "progress": False}
    dataset = build_checklists([row], pipeline="openrubrics_pairwise", **settings)
    [[text]] = [texts for texts, _ in backend.sampled]
    assert "Rome" in text and "A town" in text
    assert dataset[0]["checklist"][0]["category"] == "hard_rule" and dataset[0]["rejected"] == "A town"
    assert dataset[0]["checklist_source"] == f"openrubrics_pairwise/{__version__}"
    with pytest.raises(SampleError, match="row 1: the prompt .* needs a chosen and a rejected response"):
        build_checklists(["Name a city."], pipeline="openrubrics_pairwise", **settings)


def test_settings_beat_the_pipeline_and_refiners_and_universal_items_are_applied():
    made = {"questions": [{"question": f"Is it {n}?", "weight": n} for n in ("1", "2", "3")]}
    backend = Replies(lambda text, sampling: json.dumps(made))
    row = {"prompt": "Name a city.", "answer": "Rome", "history": "user: Hello."}
    settings = {"model": "m", "backend": backend, "store": False, "progress": False, "reference_key": "answer"}
    dataset = build_checklists([row], pipeline="rlcf_direct", temperature=0.5, max_items=3, **settings)
    [([text], sampling)] = backend.sampled
    assert "Rome" in text and "user: Hello." in text and sampling.temperature == 0.5
    assert [item["weight"] for item in dataset[0]["checklist"]] == [1, 2, 3, 100]
    with pytest.raises(GenerationError, match="at most 2"):
        build_checklists([row], pipeline="rlcf_direct", max_items=2, **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pipeline": "tik"}, "unknown pipeline 'tik'"),
        ({"pipeline": "checkeval"}, "'checkeval' writes one checklist for a whole corpus"),
        ({"max_itmes": 3}, r"build_checklists: unknown argument 'max_itmes' \(did you mean 'max_items'"),
        ({"pipeline": "rlcf_direct", "generator": DirectGenerator("pocket", store=False)}, "pass one of them"),
    ],
)
def test_a_pipeline_that_cannot_be_used_is_refused(settings, words):
    with pytest.raises(ChecklistRewardsError, match=words):
        build_checklists([{"prompt": "a"}], progress=False, **settings)


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
    with pytest.raises(SampleError, match="row 2: the input .prompt. is blank"):
        list(build(stream("a", " ")))


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


def test_what_a_transform_shows_is_scored_and_written_about():
    dataset = Dataset.from_list([{"asked": "Hello.", "said": "one", "checklist": [SHORT]}] * 2)
    dataset.set_transform(
        lambda rows: {"prompt": [f"Say: {asked}" for asked in rows["asked"]], "target": ["one two three"] * 2, **rows}
    )
    scored = score_dataset(dataset, ChecklistScorer("judge", backend=FakeBackend(lambda *_: 0.5), store=False))
    plain = Dataset.from_list([{"prompt": "Say: Hello.", "target": "one two three", "checklist": [SHORT]}])
    [same] = score_dataset(plain, ChecklistScorer("judge", backend=FakeBackend(lambda *_: 0.5), store=False))
    assert [row["checklist_score"] for row in scored] == [same["checklist_score"]] * 2
    dataset.set_transform(lambda rows: {"prompt": [f"Say: {asked}" for asked in rows["asked"]]})
    assert build(dataset)["prompt"] == ["Say: Hello."] * 2
