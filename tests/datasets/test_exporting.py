"""Rows for other trainers, and checklists that went through any file: an import reads everything back."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, concatenate_datasets, load_dataset

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.checks import parse_check
from checklist_rewards.datasets import import_checklists
from checklist_rewards.datasets.columns import checklist_columns
from checklist_rewards.datasets.exporting import EXPORTS, export_file, exported
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import at
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, labelled_sample
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.reward import ChecklistReward
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl
from tests.rewards.conftest import adapter  # noqa: F401 - a fixture
from tests.rewards.hosts import openrlhf_executor, swift_rewards
from tests.test_images import PILLOWS, RED

WHERE = {
    "verl": ("prompt", "reward_model.ground_truth"),
    "openrlhf": ("input", "label"),
    "swift": ("messages", "checklist"),
    "open-instruct": ("messages", "ground_truth"),
    "nemo-gym": ("responses_create_params.input", "verifier_metadata.checklist"),
    "verifiers": ("prompt", "checklist"),
}
HOW_CLEAR = [{"label": "a", "value": 0}, {"label": "b", "value": 1}, {"label": "?", "na": True}]
ITEMS = [
    {"question": "Is Bamako named?", "weight": 2, "category": "facts", "required": True},
    {"question": "How clear is it?", "options": HOW_CLEAR},
    {"question": "Is it short?", "check": {"type": "words", "at_most": 9}},
    {"question": "Does it lie?", "weight": -1.5},
]
CHECKLIST = Checklist.parse({"items": ITEMS, "source": "ours", "model": "writer"})
TURNS = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
TURNS += [{"role": "user", "content": "Capital of Mali?"}]


def row(prompt, **more):
    return {"prompt": prompt, **checklist_columns(CHECKLIST), "n": 7, **more}


@pytest.mark.parametrize(
    ("prompt", "extension"), [("Capital of Mali?", ".parquet"), (TURNS, ".jsonl")], ids=["text", "messages"]
)
@pytest.mark.parametrize("to", EXPORTS)
def test_a_trainer_finds_prompt_and_checklist_and_an_import_loses_nothing(to, extension, prompt, run):
    write_jsonl("rows.jsonl", row(prompt, reference="Bamako."), row(prompt, reference="Bamako."))
    done = run(f"checklists export rows.jsonl -o out{extension} --to {to}")
    assert f"{to}: 2 rows in out{extension}" in done.output
    [first, _] = [one.data for one in read_rows(f"out{extension}")]
    prompt_key, label_key = WHERE[to]
    messages = TURNS if prompt is TURNS else [{"role": "user", "content": prompt}]
    assert at(first, prompt_key) == messages and first["n"] == 7
    sample = labelled_sample(at(first, label_key), "Bamako.", None, "row 1")
    assert sample.checklist.items == CHECKLIST.items
    if to != "swift":  # it passes the messages
        assert (sample.input, sample.reference) == ("Capital of Mali?", "Bamako.")
    imported = imported_rows(f"out{extension}")
    (columns, checklist), _ = imported.rows
    assert (checklist.items, checklist.source, checklist.model) == (CHECKLIST.items, "ours", "writer")
    assert columns["prompt"] == messages and columns["n"] == 7 and columns["reference"] == "Bamako."


PARTS = [{"type": "image", "image": "red.png"}, {"type": "text", "text": "Or "}, {"type": "image", "image": "red.png"}]


@pytest.mark.parametrize(
    ("columns", "input"),
    [
        ({"prompt": "Which?", "image": "red.png"}, "Which?"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}, PARTS[1]]}], "image": "red.png"}, "Or "),
        ({"prompt": [{"role": "user", "content": PARTS}]}, "Or [image]"),
    ],
)
@pytest.mark.parametrize("to", [to for to in EXPORTS if to != "swift"])  # it passes the images
def test_a_label_has_the_images_of_its_prompt(to, columns, input, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    PILLOWS["red"].save(tmp_path / "data" / "red.png")
    write_jsonl(tmp_path / "data" / "rows.jsonl", columns | {"checklist": ["Is it red?"]})
    monkeypatch.chdir(tmp_path)
    assert export_file(Path("data/rows.jsonl"), Path("data/out.jsonl"), to) == 1
    [row] = read_rows("data/out.jsonl")
    sample = labelled_sample(at(row.data, WHERE[to][1]), "Red.", None, "row 1")
    assert sample.images == (RED,) and sample.input == f"{RED.mark}{input}"
    [(_, checklist)] = imported_rows("data/out.jsonl").rows
    assert [item.question for item in checklist.items] == ["Is it red?"]
    row = {"prompt": "Which?", "image": "https://example.org/red.png", "checklist": ["Is it red?"]}
    with pytest.raises(SampleError, match="row 3: the image https://example.org/red.png is an address, which a label"):
        exported(row, to, 2, "row 3")


def test_the_adapters_reward_exported_rows(adapter):  # noqa: F811
    """Each host passes what its trainer reads from the row; all rewards are the same."""
    row = {"prompt": "Capital of Mali?", "checklist": [{"question": "Is Bamako named?", "weight": 3}, "Is it short?"]}
    made = {to: exported(row, to) for to in EXPORTS}
    backend = FakeBackend(lambda prefix, tail: 0.75 if "Bamako" in tail else 0.25)
    scorer = ChecklistScorer(backend=backend, store=False, metric="weighted")
    label, prompt = made["openrlhf"]["label"], "<raw>"
    rewards = {"openrlhf": openrlhf_executor(ChecklistRewardFunc(scorer), [f"{prompt}Bamako."], [prompt], [label])[0]}
    verl = made["verl"]
    rewards["verl"] = ChecklistComputeScore(scorer).compute_score(
        verl["data_source"], "Bamako.", verl["reward_model"]["ground_truth"], verl["extra_info"]
    )["score"]
    verifier = adapter("open_instruct").ChecklistVerifier()
    verifier.reward = SamplewiseReward(scorer)
    assert made["open-instruct"]["dataset"] == verifier.name
    rewards["open-instruct"] = verifier([], "Bamako.", made["open-instruct"]["ground_truth"]).score
    swift = adapter("swift").ChecklistORM(reward=ChecklistReward(scorer))
    conversation = [*made["swift"]["messages"], {"role": "assistant", "content": "Bamako."}]
    rewards["swift"] = swift_rewards(swift, [conversation], checklist=[made["swift"]["checklist"]])[0]
    task = SimpleNamespace(checklist=made["verifiers"]["checklist"], prompt_text="Capital of Mali?")
    judge = adapter("verifiers").ChecklistJudge(reward=SamplewiseReward(scorer))
    trace = SimpleNamespace(last_reply="Bamako.")
    rewards["verifiers"] = asyncio.run(judge.score(task, trace))
    assert rewards == pytest.approx(dict.fromkeys(rewards, 3 / 4))
    assert all("Capital of Mali?" in prefix and "<raw>" not in prefix for prefix, *_ in backend.asked)
    sample = labelled_sample(made["nemo-gym"]["verifier_metadata"]["checklist"], "Bamako.", None, "row 1")
    assert scorer.score_batch([sample])[0].primary_score == pytest.approx(rewards["verl"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": None}, "the row: 'prompt' is null; remove the row"),
        ({"checklist": None}, "the row: 'checklist' is null; remove the row"),
        ({"reward_model": 1}, "the column 'reward_model' has a meaning for verl; rename it"),
    ],
)
def test_a_row_that_cannot_be_exported_is_named(changes, message):
    with pytest.raises(SampleError, match=message):
        exported(row("p") | changes, "verl")


SHORT = {"question": "Is it short?"}
RUDE = {"question": "Is it rude?", "weight": -2.5}
POLITE = {"question": "Is it polite?", "category": "tone", "required": True}
CLEAR = {
    "question": "How clear is it?",
    "options": [{"label": "hardly", "value": 0}, {"label": "quite", "value": 0.5}],
}
RIGHT = {"question": "Is it right?", "options": [{"label": "no", "value": 0}, {"label": "yes", "value": 1}]}
RIGHT["options"] += [{"label": "unknown", "na": True}]
WORDS = {"question": "Has it few words?", "check": {"type": "words", "at_most": 3}}
ENDS = {"question": "Does it end well?", "weight": 0.5, "check": {"phrase": "!", "type": "ends"}}
DIGIT = {"question": "Has it a digit?", "check": '{"type": "regex", "pattern": "[0-9]", "at_least": 1}'}

CHECKLISTS = {
    "keys differ between rows": [[SHORT, RUDE], [SHORT], [POLITE]],
    "options with na": [[RIGHT, CLEAR], [CLEAR]],
    "na and value in all options": [
        [RIGHT | {"options": [{"value": None, "na": None} | o for o in RIGHT["options"]]}]
    ],
    "checks of one type": [[WORDS, WORDS | {"check": {"at_most": 5, "type": "words"}}]],
    "checks of several types": [[WORDS, ENDS | {"weight": 2}], [SHORT, WORDS]],
    "checks with other keys in items with the same": [[WORDS, WORDS | {"check": {"type": "quoted"}}]],
    "checks as text": [[DIGIT], [DIGIT | {"check": '{"exactly":1, "type":"words"}'}]],
    "everything": [[SHORT, RUDE, POLITE, CLEAR, RIGHT, WORDS, ENDS, DIGIT], [SHORT], [ENDS, POLITE]],
    "strings": [["Is it short?", "a, b\\n?"], ['Is it "kind"?', "{'a': 1}?", "Names\n“Bamako”, 短い 😀?"]],
    "strings and mappings": [["Is it short?", RUDE], ["Is it kind?"], [POLITE]],
}


def as_is(path, tmp_path):
    return [row.data for row in read_rows(path)]


def loaded(path, tmp_path) -> Dataset:
    kind = {".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}[path.suffix]
    return load_dataset(kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))


def saved_as_parquet(path, tmp_path):
    loaded(path, tmp_path).to_parquet(tmp_path / "saved.parquet")
    return as_is(tmp_path / "saved.parquet", tmp_path)


def read_by_arrow(path, tmp_path):
    loaded(path, tmp_path).to_parquet(tmp_path / "saved.parquet")
    return pq.read_table(tmp_path / "saved.parquet").to_pylist()


def saved_as_json(path, tmp_path):
    loaded(path, tmp_path).to_json(tmp_path / "saved.jsonl")
    return as_is(tmp_path / "saved.jsonl", tmp_path)


def imported_in_shards(path, tmp_path):
    """Every shard is made from its own rows, so that each lacks other keys; the declared columns are all the same."""
    shards = []
    for number, row in enumerate(as_is(path, tmp_path)):
        write_jsonl(tmp_path / f"{number}.jsonl", row)
        shards.append(import_checklists(tmp_path / f"{number}.jsonl"))
        shards[-1].to_parquet(tmp_path / f"train-{number}.parquet")
    return concatenate_datasets([loaded(tmp_path / f"train-{n}.parquet", tmp_path) for n in range(len(shards))])


WAYS = [loaded, saved_as_parquet, read_by_arrow, saved_as_json, imported_in_shards]


EXTENSIONS = [".jsonl", ".csv", ".parquet"]
PAIRS = [(kind, as_is, extension) for kind in CHECKLISTS for extension in EXTENSIONS]
PAIRS += [(kind, way, EXTENSIONS[(row + n) % 3]) for row, kind in enumerate(CHECKLISTS) for n, way in enumerate(WAYS)]
"""This package's own files in full. With `datasets`: every kind in every way, and each of both in every format."""


@pytest.mark.parametrize(("kind", "way", "extension"), PAIRS)
def test_a_checklist_is_the_same_after_every_way(tmp_path, kind, extension, way):
    expected = [Checklist.parse(checklist) for checklist in CHECKLISTS[kind]]
    rows = [dict(row) for row in way(written(tmp_path / f"rows{extension}", CHECKLISTS[kind]), tmp_path)]
    parsed = [Checklist.parse(row["checklist"]) for row in rows]
    if (way, kind) == (read_by_arrow, "checks with other keys in items with the same") and extension != ".csv":
        # Here a check is JSON text that cannot be told from a user's own, so it is kept, and so is the id it gives.
        parsed, expected = [with_checks(checklist) for checklist in parsed], [with_checks(c) for c in expected]
    assert parsed == expected


@pytest.mark.parametrize(("to", "extension"), [(to, EXTENSIONS[n % 3]) for n, to in enumerate(EXPORTS)])
def test_every_checklist_comes_back_from_an_export_as_it_was(to, extension, tmp_path):
    made = [Checklist.parse(checklist) for rows in CHECKLISTS.values() for checklist in rows]
    with write_rows(tmp_path / f"out{extension}") as out:
        for number, checklist in enumerate(made):
            out.write(exported({"prompt": f"Prompt {number}.", **checklist_columns(checklist)}, to, number))
    assert [checklist.items for _, checklist in imported_rows(tmp_path / f"out{extension}").rows] == [
        checklist.items for checklist in made
    ]


def written(path, checklists):
    with write_rows(path) as out:
        for checklist in checklists:
            out.write({"prompt": "Say hi.", "target": "hi 1!", "checklist": checklist})
    return path


def with_checks(checklist):
    return [(item.question, item.weight, parse_check(item.check, "here")) for item in checklist.items]


def test_a_scored_file_is_imported_with_its_checklists_and_its_scores(tmp_path):
    scorer = ChecklistScorer("m", backend=FakeBackend(lambda prefix, tail: 0.9), store=False)
    score = scorer.score([SHORT], target="Hm.")
    row = {"prompt": "Write.", "target": "Hm.", "checklist": [SHORT], "checklist_score": score.model_dump()}
    write_jsonl(tmp_path / "scored.jsonl", row)
    [found] = import_checklists(tmp_path / "scored.jsonl")
    assert Checklist.parse(found["checklist"]) == Checklist.parse([SHORT])
    assert found["checklist_score"]["primary_score"] == score.primary_score
