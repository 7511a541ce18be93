"""A checklist is the same checklist whatever file it went through, with this package or with `datasets`.

`datasets` gives a list whose mappings have the same keys a struct type, with null for what an item lacks; to any other
it gives Arrow's JSON type, whose values come back as JSON strings where only the storage is read.
"""

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, concatenate_datasets, load_dataset, load_from_disk

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.checks import parse_check
from checklist_rewards.datasets import import_checklists
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.rows import read_rows, write_rows
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl

SHORT = {"question": "Is it short?"}
RUDE = {"question": "Is it rude?", "weight": -2.5}
POLITE = {"question": "Is it polite?", "category": "tone", "required": True}
CLEAR = {
    "question": "How clear is it?",
    "options": [{"label": "hardly", "value": 0}, {"label": "quite", "value": 0.5}],
}
RIGHT = {"question": "Is it right?", "options": [{"label": "no", "value": 0}, {"label": "yes", "value": 1}]}
RIGHT["options"] += [{"label": "unknown", "na": True}]
README = CLEAR | {"options": [*CLEAR["options"], {"label": "fully", "value": 1}, {"label": "no text", "na": True}]}
WORDS = {"question": "Has it few words?", "check": {"type": "words", "at_most": 3}}
ENDS = {"question": "Does it end well?", "weight": 0.5, "check": {"phrase": "!", "type": "ends"}}
DIGIT = {"question": "Has it a digit?", "check": '{"type": "regex", "pattern": "[0-9]", "at_least": 1}'}

CHECKLISTS = {
    "the same keys": [[SHORT], [SHORT, {"question": "Is it kind?"}]],
    "one item has a weight": [[SHORT, RUDE], [SHORT]],
    "keys differ between rows": [[SHORT], [RUDE], [POLITE]],
    "options": [[CLEAR, CLEAR | {"question": "How deep is it?"}]],
    "the example of the README": [[README], [README, WORDS]],
    "options with na": [[RIGHT, CLEAR], [CLEAR]],
    "na and value in all options": [
        [RIGHT | {"options": [{"value": None, "na": None} | o for o in RIGHT["options"]]}]
    ],
    "checks of one type": [[WORDS, WORDS | {"check": {"at_most": 5, "type": "words"}}]],
    "checks of several types": [[WORDS, ENDS | {"weight": 2}], [SHORT, WORDS]],
    "checks with other keys in items with the same": [[WORDS, WORDS | {"check": {"type": "quoted"}}]],
    "checks as text": [[DIGIT], [DIGIT | {"check": '{"exactly":1, "type":"words"}'}]],
    "everything": [[SHORT, RUDE, POLITE, CLEAR, RIGHT, WORDS, ENDS, DIGIT], [SHORT], [ENDS, POLITE]],
    "strings": [["Is it short?"], ['Is it "kind"?', "{name} is greeted?"]],
    "strings and mappings": [["Is it short?", RUDE], ["Is it kind?"], [POLITE]],
    "strings here and mappings there": [["Is it short?"], [RUDE, SHORT]],
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


def saved_to_disk(path, tmp_path):
    loaded(path, tmp_path).save_to_disk(tmp_path / "folder")
    return load_from_disk(tmp_path / "folder")


def sharded(path, tmp_path):
    dataset = loaded(path, tmp_path)
    (tmp_path / "repo" / "data").mkdir(parents=True)
    for index in range(len(dataset)):
        shard = tmp_path / "repo" / "data" / f"train-{index:05d}-of-{len(dataset):05d}.parquet"
        dataset.shard(len(dataset), index).to_parquet(shard)
    return load_dataset(str(tmp_path / "repo"), split="train", cache_dir=str(tmp_path / "cache"))


def imported_in_shards(path, tmp_path):
    """Every shard is made from its own rows, so that each lacks other keys; the declared columns are all the same."""
    shards = []
    for number, row in enumerate(as_is(path, tmp_path)):
        write_jsonl(tmp_path / f"{number}.jsonl", row)
        shards.append(import_checklists(tmp_path / f"{number}.jsonl"))
        shards[-1].to_parquet(tmp_path / f"train-{number}.parquet")
    return concatenate_datasets([loaded(tmp_path / f"train-{n}.parquet", tmp_path) for n in range(len(shards))])


WAYS = [loaded, saved_as_parquet, read_by_arrow, saved_as_json, saved_to_disk, sharded, imported_in_shards]


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


@pytest.fixture(scope="module")
def judge():
    return ChecklistScorer("pocket", store=False, mass_floor=0)


@pytest.mark.parametrize(("way", "extension"), [(way, EXTENSIONS[n % 3]) for n, way in enumerate([as_is, *WAYS])])
def test_and_so_is_its_score(tmp_path, judge, extension, way):
    samples = [Sample(checklist, "hi 1!", "Say hi.") for checklist in CHECKLISTS["everything"]]
    rows = way(written(tmp_path / f"rows{extension}", CHECKLISTS["everything"]), tmp_path)
    found = judge.score_batch([Sample(row["checklist"], row["target"], row["prompt"]) for row in rows])
    assert found == judge.score_batch(samples)


def test_the_command_line_scores_what_datasets_saved_as_what_was_in_it(run, tmp_path):
    rows = [{"prompt": "Say hi.", "target": "hi 1!", "checklist": c} for c in CHECKLISTS["everything"]]
    write_jsonl("rows.jsonl", *rows)
    loaded(tmp_path / "rows.jsonl", tmp_path).to_parquet("rows.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        run(f"score {name} -o {name}.scored.jsonl --no-store --model pocket --judge.mass-floor 0")
    one, other = (read_jsonl(f"{name}.scored.jsonl") for name in ("rows.jsonl", "rows.parquet"))
    assert one == other and [row["checklist"] for row in other] == CHECKLISTS["everything"]


def test_the_csv_of_datasets_holds_no_json_and_is_refused(tmp_path):
    dataset = loaded(written(tmp_path / "rows.jsonl", CHECKLISTS["everything"]), tmp_path)
    dataset.to_csv(tmp_path / "saved.csv")
    for row in as_is(tmp_path / "saved.csv", tmp_path):
        with pytest.raises(ChecklistError, match="a checklist given as a string must be JSON"):
            Checklist.parse(row["checklist"])


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
