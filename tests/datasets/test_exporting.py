"""Rows for other trainers: their adapters find the checklist, and an import reads everything back."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.datasets.exporting import EXPORTS, exported
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import at
from checklist_rewards.files.rows import read_rows
from checklist_rewards.rewards.integrations.labelled import labelled_sample
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from tests.cli.conftest import run, write_jsonl  # noqa: F401 - a fixture
from tests.fakes import FakeBackend

WHERE = {
    "verl": ("prompt", "reward_model.ground_truth"),
    "openrlhf": ("input", "label"),
    "swift": ("messages", "checklist"),
    "open-instruct": ("messages", "ground_truth"),
    "nemo-gym": ("responses_create_params.input", "verifier_metadata.checklist"),
    "verifiers": ("prompt", "checklist"),
}
ITEMS = [
    {"question": "Is Bamako named?", "weight": 2, "category": "facts", "required": True},
    {
        "question": "How clear is it?",
        "options": [{"label": "a", "value": 0}, {"label": "b", "value": 1}, {"label": "?", "na": True}],
    },
    {"question": "Is it short?", "check": {"type": "words", "at_most": 9}},
    {"question": "Does it lie?", "weight": -1.5},
]
CHECKLIST = Checklist.parse({"items": ITEMS, "source": "ours", "model": "writer"})
TURNS = [
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Capital of Mali?"},
]


def row(prompt, **more):
    items = [item.model_dump(exclude={"sources"}) for item in CHECKLIST.items]
    return {
        "prompt": prompt,
        "checklist": items,
        "checklist_source": "ours",
        "checklist_model": "writer",
        "n": 7,
        **more,
    }


@pytest.mark.parametrize("prompt", ["Capital of Mali?", TURNS], ids=["text", "messages"])
@pytest.mark.parametrize("extension", [".jsonl", ".parquet"])
@pytest.mark.parametrize("to", EXPORTS)
def test_a_trainer_finds_prompt_and_checklist_and_an_import_loses_nothing(to, extension, prompt, run):  # noqa: F811
    write_jsonl("rows.jsonl", row(prompt, reference="Bamako."), row(prompt, reference="Bamako."))
    done = run("checklists", "export", "rows.jsonl", "-o", f"out{extension}", "--to", to)
    assert done.exit_code == 0 and f"{to}: 2 rows in out{extension}" in done.output
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


def test_verls_function_rewards_an_exported_row():
    row = {"prompt": "Capital of Mali?", "checklist": ["Is Bamako named?", "Is it short?"]}
    backend = FakeBackend(lambda prefix, tail: 0.75 if "Bamako" in tail else 0.25)
    function = ChecklistComputeScore(ChecklistScorer(backend=backend, store=False)).compute_score
    made = exported(row, "verl")
    found = function(made["data_source"], "Bamako.", made["reward_model"]["ground_truth"], made["extra_info"])
    assert found["score"] == pytest.approx(0.5) and "Capital of Mali?" in backend.asked[0][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": None}, "the row: 'prompt' is missing"),
        ({"checklist": None}, "the row: 'checklist' is missing"),
        ({"reward_model": 1}, "the column 'reward_model' has a meaning for verl; rename it"),
    ],
)
def test_a_row_that_cannot_be_exported_is_named(changes, message):
    with pytest.raises(SampleError, match=message):
        exported(row("p") | changes, "verl")
