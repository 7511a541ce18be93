"""Whatever a file holds, a command reads it or refuses it with one sentence; nothing else comes out."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.pipelines import PipelineConfig, get_pipeline, source_from
from checklist_rewards.rows import Columns, read_checklist
from tests.datasets.test_table import ONE
from tests.evaluation.files import labelled as with_labels

DATA = Path(__file__).parents[1] / "data"


def rows_of(format):
    return lambda path: list(imported_rows(path, format=format).rows)


def labelled(path):
    with_labels(read_scored(path), "labels")


def source(path):
    source_from(get_pipeline("checkeval"), path)


RUBRICS = [rows_of(format) for format in ("auto", "autorubric", "rubric")]
ROWS = [rows_of(format) for format in ("auto", "rows", "healthbench", "rar", "autochecklist")]
READERS = {
    ".json": [PipelineConfig.load, read_checklist, Calibration.load, source, *RUBRICS],
    ".yaml": [PipelineConfig.load, load_jury, source, *RUBRICS],
    ".jsonl": [FewShot.load, labelled, read_labels, *ROWS],
}
ALIASES = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 12))])

HOSTILE = {
    "deep lists": "[" * 1200,
    "a long number": '{"a": ' + "9" * 5000 + "}",
    "a long number in base 16": "a: 0x" + "f" * 5000,
    "a time that is none": "a: !!timestamp x",
    "a list in itself": "&a [*a]",
    "judges in themselves": "&a\npanel: {}\njudges: [*a]",
    "aliases that expand": ALIASES,
    "aliases that expand in a key": f"{ALIASES}\n? [*a11]\n: b",
    "a key that is a list": "? [a]\n: b",
    "half a surrogate pair": '{"\\ud800": "\\udc00"}',
    "nothing": "",
    "null": "null",
    "a zero byte": "\0",
}


@pytest.mark.parametrize("extension", READERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_read_or_refused(tmp_path, text, extension):
    shorter = text.replace("[" * 1200, "[" * 600)  # of 1200, YAML takes a second of a core
    read_or_refused(tmp_path, shorter if extension == ".yaml" else text, extension)


MEMBERS = ["pocket", {"cascade": {}, "judges": ["pocket"] * 2}]
JURY = {"panel": {"rule": "weighted", "weights": [2, 1]}, "judges": MEMBERS}
CONFIG = {
    "generator": {"kind": "direct", "prompt": "generators/rlcf_direct", "max_items": 3},
    "refiners": [{"kind": "selector"}],
    "scorer": {"metric": "pass", "threshold": 0.5},
    "universal": [{"question": "a?", "options": [{"label": "a", "value": 0}, {"label": "b", "value": 1}]}],
}
SCORED = {"id": 1, "labels": {ONE.items[0].id: "yes"}, "checklist_score": ONE.model_dump(mode="json")}
CHECK = {"type": "all", "checks": [{"type": "words", "at_most": 3}]}
EXAMPLE = {"target": "t", "prompt": [{"role": "user", "content": "Say hi."}], "labels": ["yes", None]}
EXAMPLE |= {"checklist": ["a?", {"question": "b?", "check": CHECK}]}
DOCUMENTS = [(JURY, ".yaml"), (CONFIG, ".json"), (CONFIG, ".yaml"), (SCORED, ".jsonl"), (EXAMPLE, ".jsonl")]
DOCUMENTS += [(json.loads(path.read_text()), ".json") for path in DATA.glob("*.json")]
DOCUMENTS += [(yaml.safe_load(path.read_text()), ".yaml") for path in DATA.glob("*.yaml")]
DOCUMENTS += [(json.loads(path.read_text().splitlines()[0]), ".jsonl") for path in DATA.glob("*.jsonl")]
ODD = [None, True, -1, 1e308, 10**400, float("nan"), "", "x", '{"a": 1}']
ODD += [[], {}, [[]], [None], {"a": None}, {"items": []}]


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_file_with_a_value_where_another_belongs_is_read_or_refused(tmp_path_factory, data):
    value, extension = data.draw(st.sampled_from(DOCUMENTS))
    place = data.draw(st.sampled_from(list(places(value))))
    value = replaced(value, place, data.draw(st.sampled_from(ODD)))
    text = yaml.safe_dump(value) if extension == ".yaml" else json.dumps(value)
    read_or_refused(tmp_path_factory.mktemp("files"), text, extension)


@pytest.mark.parametrize("text", ["[" * 3000, "9" * 5000])
def test_a_cell_that_is_no_list_is_refused(text):
    columns = Columns.of({"prompt": "a", "candidates": text})
    with pytest.raises(ChecklistRewardsError, match="'candidates' must be a list or a JSON list"):
        columns.list_of({"candidates": text}, "candidates", "--candidates-key", "row 1")


def read_or_refused(folder, text, extension):
    path = folder / f"file{extension}"
    path.write_text(text)
    for read in READERS[extension]:
        try:
            read(path)
        except ChecklistRewardsError as error:
            assert len(str(error)) < 2000


def places(value, place=()):
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*place, key))


def replaced(value, place, new):
    if not place:
        return new
    value = copy.copy(value)
    value[place[0]] = replaced(value[place[0]], place[1:], new)
    return value


def test_a_document_in_another_encoding_is_read_and_one_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_bytes("usual: &usual {model: größer, mode: item}\r\njudge: {<<: *usual, model: b}\r\n".encode("utf-16"))
    text = read_text(path)
    assert text == "usual: &usual {model: größer, mode: item}\njudge: {<<: *usual, model: b}\n"
    assert read_value(text, "judge.yaml")["judge"] == {"model": "b", "mode": "item"}, "a merged key may be changed"
    path.write_bytes(bytes(range(256)))
    for read, begins in ((read_checklist, ""), (load_jury, "the file of judges ")):
        with pytest.raises(ChecklistRewardsError) as raised:
            read(path)
        assert str(raised.value).startswith(
            f"{begins}{path}: cannot be read as UTF-8 text ('utf-8' codec can't decode"
        )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_documents_are_read_in_the_encodings_of_rows(tmp_path, encoding, ends):
    checklist, judge = tmp_path / "checklist.json", tmp_path / "judge.yaml"
    checklist.write_bytes(f'["Is it größer?",{ends}"Is it kind?"]{ends}'.encode(encoding))
    judge.write_bytes(f"model: pocket{ends}threshold: 0.4{ends}".encode(encoding))
    assert [item.question for item in read_checklist(checklist).items] == ["Is it größer?", "Is it kind?"]
    assert read_text(judge) == "model: pocket\nthreshold: 0.4\n"
