"""Checklists: what is accepted, what is refused and in which words, and what an id depends on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistItem, Option, checklists
from checklist_rewards.errors import ChecklistError


def test_a_list_of_strings_a_list_of_dicts_and_json_give_the_same_checklist():
    strings = Checklist.parse(["Is it short?", "Is it polite?"])
    dicts = Checklist.parse([{"question": "Is it short?"}, {"question": "Is it polite?", "weight": 1}])
    text = Checklist.parse('["Is it short?", "Is it polite?"]')
    assert strings == dicts == text
    assert strings.id == dicts.id == text.id
    assert Checklist.parse(json.loads(strings.model_dump_json())) == strings


def test_equal_values_are_parsed_once():
    value = [{"question": "Is it short?", "weight": 2}]
    parsed = Checklist.parse(value)
    assert Checklist.parse(json.loads(json.dumps(value))) is parsed
    value[0]["weight"] = 3
    assert Checklist.parse(value).items[0].weight == 3
    assert Checklist.parse(value, "row 2") is not parsed


def test_a_thread_that_clears_the_cache_breaks_no_other(monkeypatch):
    class Cleared(dict):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()  # what another thread may do here
            return found

    monkeypatch.setattr(checklists, "_PARSED", Cleared())
    first = Checklist.parse(["Is it short?"])
    assert Checklist.parse(["Is it short?"]) == first


def test_none_stands_for_absent_as_arrow_gives_it_back():
    row = {"id": None, "question": "Is it short?", "weight": None, "category": None, "required": None, "options": None}
    item = Checklist.parse([row | {"check": None}]).items[0]
    assert (item.weight, item.required, item.options) == (1.0, False, None)
    options = [{"label": "no", "value": 0, "na": None}, {"label": "yes", "value": 1, "na": None}]
    item = Checklist.parse([{"question": "Is it?", "options": [*options, {"label": "na", "value": None, "na": True}]}])
    assert item.items[0].values == {"no": 0.0, "yes": 1.0, "na": None}


def test_an_id_is_what_determines_the_answer_of_an_item_and_the_score_of_a_checklist():
    def options(low):
        return [Option(label="a", value=low), Option(label="b", value=1)]

    def id_of(question="Is it short?", **more):
        return ChecklistItem(question=question, **more).id

    assert id_of() == id_of(weight=-3, category="style", required=True)
    assert len({id_of(), id_of("Is it short ?"), id_of(options=options(0))}) == 3
    assert id_of(options=options(0)) == id_of(options=options(0.5))
    assert Checklist.parse(["a?"]).id != Checklist.parse([{"question": "a?", "weight": 2}]).id
    assert Checklist.parse({"items": ["a?"], "source": "tick"}).id == Checklist.parse(["a?"]).id == "2093fa41416a1bcf"
    assert Checklist.parse(["Is it \ud83d?"]).id != Checklist.parse(["Is it \ud83e?"]).id  # half a surrogate pair


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], ["row 3", "empty"]),
        ([{"question": "a?", "weight": float("nan")}], ["row 3, item 1", "weight", "finite", "nan"]),
        (["a?", {"question": "b?", "weight": "heavy"}], ["row 3, item 2", "weight", "'heavy'"]),
        ([{"question": "a?", "weight": True}], ["row 3, item 1", "weight", "True"]),
        ([{"question": "a?", "wieght": 2}], ["row 3, item 1", "wieght", "allowed", "weight"]),
        ([{"weight": 2}], ["row 3, item 1", "question"]),
        ([" "], ["row 3, item 1", "blank"]),
        ([7], ["row 3, item 1", "7"]),
        ([{"question": "a?", "required": 1}], ["item 1: required: it must be true or false, got"]),
        ("Is it short?", ["row 3", "JSON", "Is it short?"]),
        ({"question": "a?"}, ["row 3", "list of questions"]),
        ([{"question": "a?", "weight": 0}], ["row 3", "weight", "0"]),
        ([{"question": "a?", "options": [{"label": "x", "value": 2}]}], ["row 3, item 1", "options", "2"]),
        ([{"question": "a?", "options": [{"label": "x", "value": 1}]}], ["row 3, item 1", "at least two"]),
        (
            [{"question": "a?", "options": [{"label": "x", "value": 1}, {"label": "x", "value": 0}]}],
            ["row 3, item 1", "have the same label"],
        ),
        ([{"question": "a?", "options": [{"label": "x"}, {"label": "y", "value": 0}]}], ["row 3, item 1", "na=true"]),
        (
            [{"question": "a?", "weight": 1e308}],
            ["row 3, item 1", "weight", "less than or equal to 1000000", "1e+308"],
        ),
        ([10**5000], ["row 3, item 1", "int too large to show"]),
        ("9" * 5000, ["row 3", "must be JSON", "4300 digits"]),
        ("['a?']", ["row 3", "must be JSON", "\"['a?']\"; this is a Python list, write it with json.dumps."]),
        ('[{"question": "a?",}]', ["row 3", "must be JSON", """'[{"question": "a?",}]'."""]),
        ("[" * 20_000, ["row 3", "must be JSON", "recursion"]),
        ([{"question": '{"question": "a?"}'}], ["row 3, item 1", "question", "a JSON object, not plain text"]),
        (['{"text": "a?"}'], ["row 3, item 1", "text: unknown key", "question"]),
        ([{"question": "a?", "check": {"at_most": float("nan")}}], ["row 3, item 1", "check", "JSON object"]),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence_with_place_and_value(value, words):
    with pytest.raises(ChecklistError) as refused:
        Checklist.parse(value, "row 3")
    message = str(refused.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_items_and_options_that_are_json_strings_are_what_they_hold():
    """`datasets` stores a list whose mappings have different keys as a list of JSON strings."""
    item = {
        "question": "How?",
        "weight": -2,
        "options": [{"label": "badly", "value": 0}, {"label": "well", "value": 1}],
    }
    packed = item | {"options": [json.dumps(option) for option in item["options"]]}
    parsed = Checklist.parse(["Is it short?", item])
    assert Checklist.parse(['"Is it short?"', json.dumps(item)]) == parsed
    assert Checklist.parse(["Is it short?", packed]) == parsed
    assert Checklist.parse(["Is it short?", item | {"options": json.dumps(packed["options"])}]) == parsed
    assert Checklist.parse(json.dumps(json.dumps(["Is it short?", item]))) == parsed
    empty = {"options": [], "evidence": {"start": None, "end": None, "text": None}}  # of items in a table with others
    assert Checklist.parse([{"question": "Is it short?", **empty}, item]) == parsed


def test_pandas_reads_the_lists_of_parquet_as_arrays(tmp_path):
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    options = [{"label": "no", "value": 0.0}, {"label": "yes", "value": 1.0}]
    items = [
        {"question": "Is it short?", "required": True, "options": None},
        {"question": "Is it?", "options": options},
    ]
    pd.DataFrame({"checklist": [items]}).to_parquet(tmp_path / "rows.parquet")
    read = pd.read_parquet(tmp_path / "rows.parquet")["checklist"][0]
    assert isinstance(read, np.ndarray) and Checklist.parse(read) == Checklist.parse(items)
    plain = Checklist.parse([{"question": "Is it?", "required": True, "weight": 2}])
    assert Checklist.parse([{"question": "Is it?", "required": np.True_, "weight": np.float32(2)}]) == plain


def test_a_question_may_begin_like_json():
    questions = ["{name} is greeted?", "[1] is cited?", '"Hello" is the first word?']
    assert [item.question for item in Checklist.parse(questions).items] == questions


def test_a_check_is_json_text_or_an_object():
    text = '{"type": "words", "at_most": 3}'
    kept = ChecklistItem(question="Short?", check=text)
    assert kept.check == text and kept.id == "4a6b7953338c9fc2"
    objects = [
        {"type": "words", "at_most": 3},
        {"at_most": 3.0, "type": "words", "exactly": None},  # as Arrow gives it back from a struct of all keys
    ]
    checks = [Checklist.parse([{"question": "Short?", "check": check}]).items[0] for check in objects]
    assert [item.check for item in checks] == ['{"at_most": 3, "type": "words"}'] * 2
    assert checks[0].id == checks[1].id
    assert ChecklistItem(question="Short?", check=json.dumps(text)).id == kept.id


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=3)
    | st.sampled_from([10**4000, "[" * 5000, '{"a":' * 5000, "9" * 5000, '"\\ud800"', '["a?"]', '{"question": "b?"}']),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.fixed_dictionaries({"items": inner}, optional={"source": inner, "model": inner})
        | st.fixed_dictionaries(
            {"question": st.text() | inner},
            optional={"id": inner, "weight": st.floats() | inner, "options": inner, "check": inner, "sources": inner},
        )
        | st.fixed_dictionaries({"label": st.text() | inner}, optional={"value": st.floats(0, 1) | inner, "na": inner})
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(_ANY | _ANY.map(lambda value: [value]) | st.recursive(st.none(), st.lists).map(str) | st.text())
def test_whatever_is_given_is_a_checklist_or_one_sentence(value):
    try:
        checklist = Checklist.parse(value, "row 3")
    except ChecklistError as error:
        assert str(error).startswith("row 3") and "\n" not in str(error)
    else:
        assert Checklist.parse(checklist.model_dump()) == checklist and checklist.id


def test_a_value_nested_deeper_than_python_recurses_is_refused():
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    places = [deep, [deep], [{"question": deep}], [{"question": "a?", "check": {"type": deep}}]]
    places += [[{"question": "a?", "options": options}] for options in (deep, [deep], [{"label": deep, "value": 1}])]
    for value in places:
        with pytest.raises(ChecklistError, match="^row 3"):
            Checklist.parse(value, "row 3")
