"""Rubrics in shapes that no format names: read as their authors mean them, or refused with what would help."""

import json

import pytest

from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.rows import read_rows
from tests.datasets.samples import ASK
from tests.jsonl import write_jsonl

A, B, F = "Names Bamako.", "Is short.", "Insults the reader."


def imported(folder, row, **options):
    return imported_rows(write_jsonl(folder / "a.jsonl", {"prompt": ASK, **row}), **options)


def only(folder, row, **options):
    """Columns and items of the only row."""
    [(columns, checklist)] = imported(folder, row, **options).rows
    return columns, checklist.items


def items(*criteria):
    return [{"weight": 1, **one} for one in criteria]


FAULTS = [
    {"pros": [A], "cons": [F]},
    {"Must have": [A], "Must not have": [F]},
    [{"title": "Do", "criteria": items({"text": A})}, {"title": "Don't", "criteria": items({"text": F})}],
    f"Must have:\n- {A}\nMust not have:\n- {F}",
    f"## Good\n- {A}\n## **Avoid**\n- {F}",
    items({"criterion": A, "kind": "reward"}, {"criterion": F, "kind": "penalty"}),
    [A, f"[Negative] {F}"],
    [A, f"Don't: {F}"],
    [f"✅ {A}", f"❌ {F}"],
    {"include": [A], "exclude": [F]},
    {"pass_if": [A], "fail_if": [F]},
    {"good_signs": [A], "bad_signs": [F]},
    {"+": [A], "-": [F]},
    {"Pflicht": [A], "Verboten": [F]},
    [A, f"NOT: {F}"],
    items({"text": A, "kind": "pro"}, {"text": F, "kind": "con"}),
    items({"text": A, "type": "bonus"}, {"text": F, "type": "malus"}),
]


@pytest.mark.parametrize("rubric", FAULTS)
def test_what_is_named_a_fault_has_a_negative_weight(tmp_path, rubric):
    _, (good, fault) = only(tmp_path, {"rubric": rubric})
    assert (good.weight, fault.weight) == (1, -1) and fault.question.endswith(f"\n{F}")


def test_a_section_of_mistakes_is_asked_about(tmp_path):
    row = {"rubric": {"facts": [A], "common_mistakes": ["Handles errors badly."]}}
    with pytest.raises(ChecklistRewardsError, match="item 2: 'common_mistakes' may hold what a .*--pitfalls fault"):
        only(tmp_path, row)
    for pitfalls, weight in (("fault", -1), ("avoided", 1)):
        assert [item.weight for item in only(tmp_path, row, pitfalls=pitfalls)[1]] == [1, weight]


WEIGHTS = [
    {"rubric": [f"[+3] {A}", f"[-2] {F}"]},
    {"rubric": f"1. {A} (3 points)\n2. {F} (-2 points)"},
    {"rubric": f"1、{A}（3分）\n2、{F}（－2分）"},
    {"rubric": f"・{A} (3,0 Punkte)\n・{F}（-2点）"},
    {"rubric": [f"【+3分】 {A}", f"【-2分】 {F}"]},
    {"rubric": [f"{A} [weight=3]", f"{F} [weight=-2]"]},
    {"rubric": [f"3 points: {A}", f"-2 points: {F}"]},
    {"rubric": f"| # | Criterion | Points |\n|---|---|---|\n| 1 | {A} | 3 |\n| 2 | {F} | -2 |"},
    {"rubric": {A: 3, F: -2}},
    {"rubric": f"- Facts (3%): {A}\n- Tone (-2%): {F}"},
    {"rubric": f"| Criterion | Weight (%) |\n|---|---|\n| {A} | 3 |\n| {F} | −2 |"},
    {"rubric": f"- criterion: {A}\n  weight: 3\n- criterion: {F}\n  weight: -2"},
    {"rubric": {A: "3 points", F: "-2 points"}},
    {"rubric": [A, F], "weights": [3, -2]},
    {"evaluation_criteria": [{"check": A, "marks": 3}, {"check": F, "marks": -2}]},
    {"rubric": [{"claim_to_check": A, "weight": 3}, {"claim_to_check": F, "weight": -2}]},
    {"data": {"eval": {"my_rubric": [{"criterion": A, "points": 3}, {"criterion": F, "points": -2}]}}},
]


@pytest.mark.parametrize("row", WEIGHTS)
def test_weights_are_found_where_they_stand(tmp_path, row):
    found = [(item.question.rpartition("\n")[2].rpartition(": ")[2], item.weight) for item in only(tmp_path, row)[1]]
    assert found == [(A, 3), (F, -2)]


KINDS = {"rubric": [{"criterion": A, "type": "essential"}, {"criterion": B, "type": "optional"}]}
SIGNS = [{"criterion": A, "weight": 3, "type": "positive"}, {"criterion": F, "weight": 2, "type": "negative"}]


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ({"rubric": {"facts": A, "form": B}}, {}, [(1, "facts"), (1, "form")]),
        ({"rubric": {"facts": {"description": A, "weight": 3}}}, {}, [(3, "facts")]),
        ({"rubric": SIGNS}, {}, [(3, "positive"), (-2, "negative")]),
        ({"rubric": f"- {A}\n- {B}"}, {}, [(1, None), (1, None)]),
        ({"rubric": f"A good response does this:\n- {A}\n- {B}"}, {}, [(1, None), (1, None)]),
        ({"rubric": f"- [ ] {A}\n- [x] {B}"}, {}, [(1, None), (1, None)]),
        ({"rubric": [f"[ ] {A}", f"[x] {B}"]}, {}, [(1, None), (1, None)]),
        ({"rubric": f"- Facts:\n  - {A}\n  - {F}\n- Form:\n  - {B}"}, {}, [(1, "Facts"), (1, "Facts"), (1, "Form")]),
        ({"penalties": [F]}, {"checklist_key": "penalties"}, [(-1, "penalties")]),
        ({"rubric": [A, B], "criteria": [B]}, {"checklist_key": "criteria"}, [(1, None)]),
        (KINDS, {}, [(1, "essential"), (0.3, "optional")]),
        (KINDS, {"item_keys": {"question": "criterion", "category": "type"}}, [(1, "essential"), (1, "optional")]),
        (
            {"rubric": {"must": [A], "should": [B]}},
            {"weights": {"must": 2, "should": 1}},
            [(2, "must"), (1, "should")],
        ),
    ],
)
def test_weights_and_categories_are_taken_from_any_shape(tmp_path, row, options, expected):
    found = only(tmp_path, row, **options)[1]
    assert [(item.weight, item.category) for item in found] == expected
    assert not any("[" in item.question for item in found)


LEVELS = [
    ({"5": "Polite.", "3": "Plain.", "1": "Rude."}, {}),
    ("Is it polite?\nScore 1: Rude.\nScore 3: Plain.\nScore 5: Polite.", {}),
    ({"good": "Polite.", "fair": "Plain.", "poor": "Rude."}, {"weights": {"good": 2, "fair": 1, "poor": 0}}),
    ({"tone": {"1": "Rude.", "2": "Plain.", "3": "Polite."}}, {}),
    ([{"criterion": "tone", "score_1": "Rude.", "score_2": "Plain.", "score_3": "Polite."}], {}),
    ("| Criterion | Good (2) | Fair (1) | Poor (0) |\n|-|-|-|-|\n| Tone | Polite. | Plain. | Rude. |", {}),
    ([{"criterion": "Tone?", "weight": 2, "options": {"Rude.": 0, "Plain.": 0.5, "Polite.": 1}}], {}),
    (
        [
            {
                "criterion": "Tone?",
                "weight": 2,
                "levels": [
                    {"score": 0, "description": "Rude."},
                    {"score": 1, "description": "Plain."},
                    {"score": 2, "description": "Polite."},
                ],
            }
        ],
        {},
    ),  # fmt: skip
]


@pytest.mark.parametrize(("rubric", "options"), LEVELS)
def test_levels_are_one_question_with_options(tmp_path, rubric, options):
    [item] = only(tmp_path, {"rubric": rubric}, **options)[1]
    assert item.values == {"Rude.": 0, "Plain.": 0.5, "Polite.": 1}


ANSWERS = [("no", "yes"), (False, True), ("N", "Y")]


@pytest.mark.parametrize("key", ["pass_if", "desired", "expected", None])
@pytest.mark.parametrize(("no", "yes"), ANSWERS)
def test_an_expected_no_earns_the_point(tmp_path, key, no, yes):
    answers = {"Is it rude?": no, "Is it polite?": yes}
    listed = answers if key is None else [{"question": question, key: answers[question]} for question in answers]
    found = only(tmp_path, {"checklist": listed})[1]
    assert [(item.question, item.values["no"]) for item in found] == [("Is it rude?", 1), ("Is it polite?", 0)]


OPEN = [{"role": "user", "content": ASK}, {"role": "assistant", "content": "Bamako."}]
SHAREGPT = [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."}, {"from": "human", "value": ASK}]
CHAT = [{"role": role, "content": text} for role, text in (("user", "Hi."), ("assistant", "Hello."), ("user", ASK))]


@pytest.mark.parametrize(
    ("row", "options", "prompt"),
    [
        (
            {"prompt": {"system": "Be brief.", "user": ASK}},
            {},
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}],
        ),
        ({"prompt": OPEN}, {"prompt_key": "prompt"}, OPEN),
        ({"conversations": SHAREGPT}, {}, CHAT),
    ],
)
def test_a_prompt_may_be_messages_in_any_shape(tmp_path, row, options, prompt):
    [(columns, _)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", row | {"rubric": [A]}), **options).rows
    assert columns["prompt"] == prompt


ROW = {"prompt": ASK, "rubric": [A]}


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.yaml", f"- prompt: {ASK}\n  criteria:\n    - {{description: {A}, weight: 2}}\n", [{"prompt": ASK}]),
        ("a.json", json.dumps({"made_by": "us", "data": [ROW, ROW]}), [{"prompt": ASK}] * 2),
        ("a.json", json.dumps({"q1": ROW, "q2": ROW}), [{"prompt": ASK, "id": "q1"}, {"prompt": ASK, "id": "q2"}]),
        ("a.csv", "prompt,criterion\na,Is it short?\nb,Is it long?\n", [{"prompt": "a"}, {"prompt": "b"}]),
    ],
)
def test_a_document_with_prompts_is_rows(tmp_path, name, text, columns):
    (tmp_path / name).write_text(text)
    assert [row for row, _ in imported_rows(tmp_path / name).rows] == columns


def test_a_question_about_code_is_one(tmp_path):
    question = "Does the query use `WHERE id = ?;`, or match (a?|b)?"
    assert [item.question for item in only(tmp_path, {"rubric": question})[1]] == [question]


def test_questions_of_other_scripts_are_kept(tmp_path):
    texts = ["回复礼貌吗？", "هل الرد قصير؟"]
    assert [item.question for item in only(tmp_path, {"rubric": texts})[1]] == texts


def test_columns_that_are_left_and_words_that_became_weights_are_named(tmp_path):
    found = imported(tmp_path, KINDS | {"system": "Be brief.", "turn": 3})
    list(found.rows)
    assert {"kept as columns: system, turn", "weights: essential = 1, optional = 0.3"} <= set(found.taken())


# --- refused ---------------------------------------------------------------------------------------------------------

RUBRICS = [
    ({"A": "Fine.", "B": "Bad."}, "A, B are names of levels; .*--weights A=NUMBER"),
    ({"1": A, "2": B}, "the keys 1, 2 may be levels or numbers of criteria"),
    (f"1: {A}\n2: {B}", "'1: Names Bamako.' may be its place, its points or"),
    (f"1：{A}\n2：{B}", "'1：Names Bamako.' may be its place, its points or"),
    (
        [{"score": 5, "description": "Polite."}, {"score": 1, "description": "Rude."}],
        "'score' is 5, 1, so these may be the levels of one grade; use it as the weight with --item-key weight=score",
    ),
    (
        [{"criterion": A, "score": 1, "why": "met"}, {"criterion": B, "score": 0, "why": "not met"}],
        "'score' is 1, 0, so these may be",
    ),
    ({"5": [A], "-3": [F]}, "the sections 5, -3 are numbers"),
    (
        {"facts": {"weight": 0.7, "criteria": [A]}, "form": {"weight": 0.3, "criteria": [B]}},
        "section 1: 'weight' may be part of the score .it is 0.7.*It is not applied to the criteria",
    ),
    (
        {"criteria": [{"criterion": A, "points": 2}], "passing_score": 2},
        "'passing_score' may be part of the score .*--drop passing_score",
    ),
    ([f"{A} (3 points)", B], "names points, and not every criterion does"),
    ([f"{A}（3分）", B], "names points, and not every criterion does"),
    (["是否押韵？（是）", "是否生硬？（否）"], "something like .*expected=KEY"),
    (["押韵（3）", "生硬（2）"], "something like .*weight=KEY"),
    ([A, "Deduct 2 points for insults."], "item 2: 'Deduct 2 points .*names points"),
    ([f"+ {A}", f"- {F}"], "the texts begin with . and -, which may be their signs"),
    (items({"criterion": F, "is_bad": True}), "'is_bad' .*Write the sign into the weights, or drop it with"),
    (items({"criterion": F, "tags": ["negative"]}), "'tags' .*--item-key category=tags"),
    (items({"criterion": A, "mandatory": True}), "--item-key required=mandatory if it makes a"),
    (items({"criterion": "Is it rude?", "answer": "No"}), "--item-key expected=answer if it earns the points"),
    (
        [{"criterion": A, "priority": "P0"}],
        "--item-key weight=priority and --weights P0=NUMBER, or --item-key category=priority, or drop it with --drop",
    ),
    ([{"criterion": A, "worth": "-1"}], "'worth' .*--item-key weight=worth"),
    (items({"criterion": A, "meta": {"points": 9}}), "--item-key weight=meta.points"),
    (
        [{"criterion": A, "weight": {"value": 3, "unit": "points"}}],
        "got the keys value, unit; name one with --item-key weight=weight.value",
    ),
    (items({"criterion": A, "parts": [{"text": B}]}), "'parts' .*Write its entries as criteria"),
    (items({"criterion": A, "applies_if": "there is a map"}), "'applies_if' may be part of the score"),
    (
        items({"criterion": "tone", "good": "Polite.", "poor": "Rude."}),
        "Give the levels their numbers with --weights good=NUMBER",
    ),
    ([{"question": "How clear?", "type": "likert"}], "'likert' asks for a grade"),
    (items({"criterion": A, "required": ["date"]}), "'required' may be part of the score"),
    (items({"criterion": A, "check": "manual"}), "'check' may be part of the score"),
    ({"+3": A, "-2": F}, "the keys .3, -2 have signs, so they may be weights"),
    (
        {"must": [A], "should": [B]},
        "'must', 'should' may be ranks .*--weights 'must=NUMBER' --weights 'should=NUMBER'",
    ),
    (f"## Critical\n- {A}\n## Nice to have\n- {B}", "'Critical', 'Nice to have' may be"),
    (f"1. (critical) {A}\n2. (optional) {B}", "'critical', 'optional' may be ranks"),
    ([A, f"Bonus: {B}"], "'Bonus' may be ranks"),
    ({"strengths": [A], "gaps": [F]}, "'gaps' may hold what a good"),
    (
        items({"criterion": A, "category": "tone"}, {"criterion": F, "category": "critical error"}),
        "item 2: 'critical error' may hold .*--pitfalls fault",
    ),
    (items({"criterion": F, "scoring_type": "reverse"}), "'scoring_type' .*it is 'reverse'"),
    (items({"criterion": F, "effect": "subtracts"}), "'effect' may be part of the score"),
    ([{"kriterium": A, "gewichtung": "hoch"}], "--item-key weight=gewichtung"),
    ([{"criterion": A, "tier": "T1"}], "--item-key weight=tier and --weights T1=NUMBER"),
    (items({"criterion": "Is it rude?", "pass_on": "answered no"}), "'pass_on' .*--item-key expected=pass_on"),
    (items({"criterion": A, "status": "deprecated"}), "Remove the criteria that are not in use"),
    (
        items({"criterion": "Tone. 0: rude; 1: plain; 2: polite"}),
        "item 1: 'Tone. 0: rude; 1: plain; 2: polite' has the levels of a grade inside",
    ),
    (items({"criterion": A, "guide": "0: no city; 3: the city"}), "'guide' .*List the levels under 'options'"),
    (
        [{"grade": "A", "description": A}, {"grade": "B", "description": B}],
        "'grade' has the names of levels, so these may be one grade",
    ),
    ("Is it polite? Is it short?", "holds several questions; write them as a"),
    ("Is it polite?;Is it short?", "holds several questions; write them as a"),
    (f"1. {A} (3)\n2. {B} (1)", "'.3.' at its beginning or end"),
    ([f"{A} x3", f"{B} x1"], "'x3' at its beginning or end"),
    ([f"+3 {A}", f"-2 {F}"], "'.3' at its beginning or end"),
    ([f"*** {A}", f"* {B}"], "at its beginning or end"),
    ({"q1": "Is it short? (weight 3)", "q2": "Is it rude? (weight 1)"}, "'.weight 3.' at its"),
    ([{"criterion": A, "weight": 1}, None], "item 2: .*got .*None"),
    ("Give 5 if it is right, 3 if nearly, else 1.", "no criteria found"),
    ([], "no criteria found"),
    ([{"criterion": F, "weight": 3, "is_negative": True}], "'is_negative' may be part of the score"),
    ([{"criterion": A, "value": 3}], "'value' may be part of the score"),
    ([{"criterion": A, "priority": 3}], "'priority' may be part of the score"),
    (items({"criterion": "Clear?", "levels": ["bad", "good"]}), "'levels' may be part of the score"),
]
ROWS = [
    ({"criterion": A, "weight": 3}, "no criteria found"),
    ({"rubric": [A], "negative_rubric": [F]}, "could be the criteria: rubric, negative_rubric"),
    ({"rubric": [A], "deductions": [F]}, "could be the criteria: rubric, deductions"),
    (
        {"rubric": items({"criterion": A}), "criteria": items({"criterion": B})},
        "several values could be the criteria: rubric, criteria. Name one with --checklist-key",
    ),
    (
        {"positive_criteria": [A], "negative_criteria": [F]},
        "positive_criteria, negative_criteria. Name one with --checklist-key; for more than one, write them into one",
    ),
    ({"grading": {"must_have": [A], "must_not_have": [F]}}, "no criteria found"),
    (
        {"rubric": {"facts": [A], "form": [B]}, "section_weights": {"facts": 2, "form": 1}},
        "'section_weights' has 2 values for the criteria or their sections",
    ),
    ({"rubric": {"facts": A, "form": B}, "weights": {"facts": 2, "form": 1}}, "'weights' has 2 values"),
    ({"rubric": [A, F], "polarities": ["+", "-"]}, "'polarities' has 2 values"),
    (
        {"sections": [{"name": "facts", "weight": 1, "items": [A]}]},
        "'items' .*Write its entries as criteria of their own",
    ),
    (
        {"checklist": ["Is it short? [YES]", "Is it rude? [NO]"]},
        "'\\? .YES.' at its beginning or end, which may be a weight or an answer",
    ),
    ({"checklist": "1. Is it short? -> yes\n2. Is it rude? -> no"}, "'\\? -> yes' at its"),
    (
        {"prompt": OPEN, "rubric": [A]},
        "the messages in 'prompt' end with an answer of the assistant; .*--prompt-key prompt",
    ),
    (
        {"prompt": "Capital of {country}?", "vars": {"country": "Mali"}, "rubric": [A]},
        "the prompt has the placeholder .country., which 'vars.country' may fill",
    ),
    (
        {"prompt": {"topic": "Mali", "style": "short"}, "rubric": [A]},
        "'prompt' must be a text or messages, got a mapping with the keys topic, style",
    ),
]
REFUSED = [*(({"rubric": rubric}, message) for rubric, message in RUBRICS), *ROWS]


@pytest.mark.parametrize(("row", "message"), REFUSED)
def test_what_could_have_another_meaning_is_refused_in_one_line(tmp_path, row, message):
    with pytest.raises(ChecklistRewardsError, match=f"a.jsonl, line 1.*{message}") as refused:
        list(imported(tmp_path, row).rows)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["passing_score", "is_bad", "mandatory", "worth", "polarities"])
def test_what_may_be_lost_is_dropped_on_request(tmp_path, key):
    [row] = [row for row, _ in REFUSED if f"'{key}'" in str(row)]
    assert all(item.weight > 0 for item in only(tmp_path, row, drop=[key])[1])


def test_a_part_that_was_found_can_be_dropped(tmp_path):
    row = {"rubric": [{"criterion": A, "score": 1, "required": True}, {"criterion": B, "score": 0, "required": False}]}
    found = imported(tmp_path, row, drop=["score", "required"])
    [(_, checklist)] = found.rows
    assert [(item.weight, item.required) for item in checklist.items] == [(1, False), (1, False)]
    assert found.left_out == {"score": 2, "required": 2}


def test_more_criteria_in_a_later_row_are_seen(tmp_path):
    rows = [ROW | {"penalties": []}, ROW | {"penalties": [F]}]
    with pytest.raises(SampleError, match="line 2: several values could be the criteria: rubric, penalties"):
        list(imported_rows(write_jsonl(tmp_path / "a.jsonl", *rows)).rows)


@pytest.mark.parametrize(
    ("recipe", "rubric", "weights"),
    [
        ("shape: text", f"1: {A}\n2: {B}", [1, 1]),
        ("shape: items\nitem: {question: question}", {"1": A, "2": B}, [1, 1]),
        ("shape: items\nitem: {question: text, weight: score}", [{"score": 5, "text": A}], [5]),
        ("shape: levels", f"1: {A}\n2: {B}", {A: 0, B: 1}),
        ("shape: levels", {"1": A, "2": B}, {A: 0, B: 1}),
        ("shape: levels", [{"score": 5, "text": B}, {"score": 1, "text": A}], {A: 0, B: 1}),
    ],
)
def test_the_recipe_that_a_refusal_names_helps(tmp_path, recipe, rubric, weights):
    (tmp_path / "mine.yaml").write_text(f"name: mine\nprompt: [prompt]\nchecklist: rubric\n{recipe}\n")
    _, found = only(tmp_path, {"rubric": rubric}, format=tmp_path / "mine.yaml")
    assert weights == ([item.weight for item in found] if isinstance(weights, list) else dict(found[0].values))


@pytest.mark.parametrize(
    ("content", "weights"),
    [
        ("Criterion,Points,Area\nNames it.,5,facts\nIs short.,-2,form\n", [5, -2]),
        ("Criterion;Points;Area\r\nNames it.;5;facts\r\nIs short.;-2;form\r\n", [5, -2]),
        ("question,weight\nDoes it name it?,3\nIs it short?,1\n", [3, 1]),
        ("id,question,weight\n007,Does it name it?,3\n008,Is it short?,1.5\n", [3, 1.5]),
        ("Criterion\nNames it.\nIs short.\n", [1, 1]),
    ],
)
def test_a_table_of_criteria_is_one_checklist(tmp_path, content, weights):
    (tmp_path / "a.csv").write_text(content)
    [(row, checklist)] = imported_rows(tmp_path / "a.csv").rows
    assert row == {} and [item.weight for item in checklist.items] == weights
    (tmp_path / "a.json").write_text(json.dumps([row.data for row in read_rows(tmp_path / "a.csv")]))
    [(_, same)] = imported_rows(tmp_path / "a.json").rows
    assert same.items == checklist.items


LIST = json.dumps([{"prompt": "é", "rubric": [{"criterion": A, "weight": 2}]}], ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_list_in_json_is_read_in_the_encodings_of_documents(tmp_path, encoding):
    (tmp_path / "a.json").write_text(f"\n{LIST}\n", encoding)
    assert [row["prompt"] for row, _ in imported_rows(tmp_path / "a.json").rows] == ["é"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", f"{LIST}\n{LIST}".encode(), "not valid JSON .Extra data.; rename .* to .jsonl"),
        ("a.json", LIST.encode("latin-1"), "cannot be read"),
        ("a.csv", b"Criterion,Points\nNames it.,5\nIs short.,\n", "item 2: 'Points' must be a number"),
        ("a.csv", b"prompt,criterion,weight\nSay hi,Is it short?,2\nSay hi,Is it kind?,1\n", "'weight' may be the w"),
        ("a.csv", b'Prompt;Liste;Wert\nSay hi;"- Is it short?\n- Is it kind?";2\n', "no criteria found"),
    ],
    ids=range(5),
)
def test_a_document_that_is_damaged_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ChecklistRewardsError, match=f"{name}.*{said}"):
        list(imported_rows(tmp_path / name).rows)
