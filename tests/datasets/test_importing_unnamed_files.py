"""Rubrics in shapes that no format names: read as their authors mean them, or refused with what would help."""

import json

import pytest

from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.files.rows import read_rows
from tests.datasets.samples import ASK
from tests.jsonl import write_jsonl

A, B, F = "Names Bamako.", "Is short.", "Insults the reader."


def imported(folder, row, **options):
    return imported_rows(write_jsonl(folder / "a.jsonl", {"prompt": ASK, **row}), **options)


def graded(texts):
    """Texts of levels with their values, evenly from 0 to 1."""
    return {text: n / (len(texts) - 1) for n, text in enumerate(texts)}


# --- faults ----------------------------------------------------------------------------------------------------------

FAULTS = {
    "a section": {"rubric": {"pros": [A], "cons": [F]}},
    "a section with spaces": {"rubric": {"Must have": [A], "Must not have": [F]}},
    "a section in a list": {
        "rubric": [
            {"title": "Do", "criteria": [{"text": A, "points": 1}]},
            {"title": "Don't", "criteria": [{"text": F, "points": 1}]},
        ]
    },
    "a heading": {"rubric": f"Must have:\n- {A}\nMust not have:\n- {F}"},
    "a heading in Markdown": {"rubric": f"## Good\n- {A}\n## **Avoid**\n- {F}"},
    "a kind": {
        "rubric": [
            {"criterion": A, "weight": 1, "kind": "reward"},
            {"criterion": F, "weight": 1, "kind": "penalty"},
        ]
    },
    "a name in brackets": {"rubric": [A, f"[Negative] {F}"]},
    "a name before a colon": {"rubric": [A, f"Don't: {F}"]},
    "a sign": {"rubric": [f"✅ {A}", f"❌ {F}"]},
    "what is excluded": {"rubric": {"include": [A], "exclude": [F]}},
    "when it fails": {"rubric": {"pass_if": [A], "fail_if": [F]}},
    "good and bad signs": {"rubric": {"good_signs": [A], "bad_signs": [F]}},
    "plus and minus": {"rubric": {"+": [A], "-": [F]}},
    "German sections": {"rubric": {"Pflicht": [A], "Verboten": [F]}},
    "not before a colon": {"rubric": [A, f"NOT: {F}"]},
    "pro and con": {
        "rubric": [{"text": A, "weight": 1, "kind": "pro"}, {"text": F, "weight": 1, "kind": "con"}],
    },
    "a malus": {
        "rubric": [{"text": A, "type": "bonus", "weight": 1}, {"text": F, "type": "malus", "weight": 1}],
    },
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_named_a_fault_has_a_negative_weight(tmp_path, name):
    [(_, checklist)] = imported(tmp_path, FAULTS[name]).rows
    assert [item.weight for item in checklist.items] == [1, -1]
    assert checklist.items[1].question.endswith(f"\n{F}")


def test_a_list_of_faults_that_the_user_names_is_one(tmp_path):
    [(_, checklist)] = imported(tmp_path, {"penalties": [F]}, checklist_key="penalties").rows
    assert [(item.weight, item.category) for item in checklist.items] == [(-1, "penalties")]


@pytest.mark.parametrize(("pitfalls", "weight"), [("fault", -1), ("avoided", 1)])
def test_a_section_of_mistakes_is_asked_about(tmp_path, pitfalls, weight):
    row = {"rubric": {"facts": [A], "common_mistakes": ["Handles errors badly."]}}
    with pytest.raises(
        ChecklistRewardsError, match="item 2: 'common_mistakes' may hold what a good .*--pitfalls fault"
    ):
        list(imported(tmp_path, row).rows)
    [(_, checklist)] = imported(tmp_path, row, pitfalls=pitfalls).rows
    assert [item.weight for item in checklist.items] == [1, weight]


# --- weights ---------------------------------------------------------------------------------------------------------

WEIGHTS = {
    "points before a text": {"rubric": [f"[+3] {A}", f"[-2] {F}"]},
    "points behind a text": {"rubric": f"1. {A} (3 points)\n2. {F} (-2 points)"},
    "a weight behind a text": {"rubric": [f"{A} [weight=3]", f"{F} [weight=-2]"]},
    "points and a colon": {"rubric": [f"3 points: {A}", f"-2 points: {F}"]},
    "a table": {"rubric": f"| # | Criterion | Points |\n|---|---|---|\n| 1 | {A} | 3 |\n| 2 | {F} | -2 |"},
    "a mapping of texts": {"rubric": {A: 3, F: -2}},
    "points behind a label": {"rubric": f"- Facts (3%): {A}\n- Tone (-2%): {F}"},
    "a column with its unit": {
        "rubric": f"| Criterion | Weight (%) |\n|---|---|\n| {A} | 3 |\n| {F} | −2 |",
    },
    "YAML in a cell": {"rubric": f"- criterion: {A}\n  weight: 3\n- criterion: {F}\n  weight: -2"},
    "a mapping of texts to points in text": {"rubric": {A: "3 points", F: "-2 points"}},
    "marks": {"evaluation_criteria": [{"check": A, "marks": 3}, {"check": F, "marks": -2}]},
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_found_where_they_stand(tmp_path, name):
    [(_, checklist)] = imported(tmp_path, WEIGHTS[name]).rows
    found = [(item.question.rpartition("\n")[2].rpartition(": ")[2], item.weight) for item in checklist.items]
    assert found == [(A, 3), (F, -2)]


def test_kinds_in_words_are_weights_where_there_is_no_number(tmp_path):
    row = {"rubric": [{"criterion": A, "type": "essential"}, {"criterion": B, "type": "optional"}]}
    found = imported(tmp_path, row)
    [(_, checklist)] = found.rows
    assert [item.weight for item in checklist.items] == [1, 0.3]
    assert "weights: essential = 1, optional = 0.3" in found.taken()
    [(_, checklist)] = imported(tmp_path, row, item_keys={"question": "criterion", "category": "type"}).rows
    assert [item.weight for item in checklist.items] == [1, 1]


# --- levels ----------------------------------------------------------------------------------------------------------

LEVELS = {
    "a mapping of numbers": ({"rubric": {"5": "Polite.", "3": "Plain.", "1": "Rude."}}, {}),
    "lines": ({"rubric": "Is it polite?\nScore 1: Rude.\nScore 3: Plain.\nScore 5: Polite."}, {}),
    "names with numbers": (
        {"rubric": {"good": "Polite.", "fair": "Plain.", "poor": "Rude."}},
        {"weights": {"good": 2, "fair": 1, "poor": 0}},
    ),
    "a criterion's own": ({"rubric": {"tone": {"1": "Rude.", "2": "Plain.", "3": "Polite."}}}, {}),
    "keys of a criterion": (
        {"rubric": [{"criterion": "tone", "score_1": "Rude.", "score_2": "Plain.", "score_3": "Polite."}]},
        {},
    ),
    "columns of a table": (
        {"rubric": "| Criterion | Good (2) | Fair (1) | Poor (0) |\n|-|-|-|-|\n| Tone | Polite. | Plain. | Rude. |"},
        {},
    ),
}


@pytest.mark.parametrize("name", LEVELS)
def test_levels_are_one_question_with_options(tmp_path, name):
    row, options = LEVELS[name]
    [(_, checklist)] = imported(tmp_path, row, **options).rows
    assert [item.values for item in checklist.items] == [graded(["Rude.", "Plain.", "Polite."])]


def test_options_may_be_a_mapping(tmp_path):
    row = {"rubric": [{"criterion": "Is it polite?", "weight": 2, "options": {"no": 0, "partly": 0.5, "yes": 1}}]}
    [(_, checklist)] = imported(tmp_path, row).rows
    assert checklist.items[0].values == {"no": 0, "partly": 0.5, "yes": 1}


# --- other ways ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "no", "yes"), [("pass_if", "no", "yes"), ("desired", False, True), ("expected", "N", "Y")]
)
def test_an_expected_no_earns_the_point_under_other_names(tmp_path, key, no, yes):
    row = {"checklist": [{"question": "Is it rude?", key: no}, {"question": "Is it polite?", key: yes}]}
    [(_, checklist)] = imported(tmp_path, row).rows
    assert [item.values["no"] for item in checklist.items] == [1, 0]


def test_a_mapping_of_questions_has_their_answers(tmp_path):
    for no, yes in (("no", "yes"), (False, True)):
        [(_, checklist)] = imported(tmp_path, {"checklist": {"Is it rude?": no, "Is it polite?": yes}}).rows
        assert [(item.question, item.values["no"]) for item in checklist.items] == [
            ("Is it rude?", 1),
            ("Is it polite?", 0),
        ]


def test_boxes_of_a_task_list_are_no_part_of_the_criteria(tmp_path):
    for rubric in (f"- [ ] {A}\n- [x] {B}", [f"[ ] {A}", f"[x] {B}"]):
        [(_, checklist)] = imported(tmp_path, {"rubric": rubric}).rows
        found = [(item.question.rpartition("\n")[2], item.weight) for item in checklist.items]
        assert found == [(A, 1), (B, 1)]


def test_ranks_get_the_numbers_that_the_user_names(tmp_path):
    row = {"rubric": {"must": [A], "should": [B]}}
    [(_, checklist)] = imported(tmp_path, row, weights={"must": 2, "should": 1}).rows
    assert [item.weight for item in checklist.items] == [2, 1]


def test_a_prompt_may_be_a_system_text_and_a_users(tmp_path):
    row = {"prompt": {"system": "Be brief.", "user": ASK}, "rubric": [A]}
    [(columns, _)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", row)).rows
    assert columns["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}]


def test_a_prompt_that_is_open_is_kept_if_the_user_names_it(tmp_path):
    row = REFUSED["a prompt with an answer"][0] | {"rubric": [A]}
    [(columns, _)] = imported(tmp_path, row, prompt_key="prompt").rows
    assert columns["prompt"] == row["prompt"]


def test_a_list_in_yaml_with_prompts_is_rows(tmp_path):
    (tmp_path / "a.yaml").write_text(f"- prompt: {ASK}\n  criteria:\n    - {{description: {A}, weight: 2}}\n")
    [(columns, checklist)] = imported_rows(tmp_path / "a.yaml").rows
    assert columns["prompt"] == ASK and [item.weight for item in checklist.items] == [2]


def test_sections_of_a_text_are_categories(tmp_path):
    text = f"- Facts:\n  - {A}\n  - Names Mali.\n- Form:\n  - {B}"
    [(_, checklist)] = imported(tmp_path, {"rubric": text}).rows
    assert [item.category for item in checklist.items] == ["Facts", "Facts", "Form"]


def test_questions_of_other_scripts_are_kept(tmp_path):
    [(_, checklist)] = imported(tmp_path, {"rubric": ["回复礼貌吗？", "هل الرد قصير؟"]}).rows
    assert [item.question for item in checklist.items] == ["回复礼貌吗？", "هل الرد قصير؟"]


def test_a_conversation_of_sharegpt_is_the_prompt(tmp_path):
    turns = [("human", "Hi."), ("gpt", "Hello."), ("human", ASK)]
    row = {"conversations": [{"from": who, "value": text} for who, text in turns], "rubric": [A]}
    [(columns, _)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", row)).rows
    assert columns["prompt"] == [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": ASK},
    ]


def test_a_mapping_with_a_list_of_rows_has_a_row_for_each(tmp_path):
    rows = [{"prompt": ASK, "rubric": [A]}, {"prompt": ASK, "rubric": [B]}]
    (tmp_path / "a.json").write_text(json.dumps({"made_by": "us", "data": rows}))
    assert len(list(imported_rows(tmp_path / "a.json").rows)) == 2


def test_columns_that_are_left_are_named(tmp_path):
    found = imported(tmp_path, {"rubric": [A], "system": "Be brief.", "turn": 3})
    list(found.rows)
    assert "kept as columns: system, turn" in found.taken()


# --- refused ---------------------------------------------------------------------------------------------------------


def items(*criteria):
    return {"rubric": [{"weight": 1, **one} for one in criteria]}


REFUSED = {
    "more criteria beside": ({"rubric": [A], "deductions": [F]}, "could be the criteria: rubric, deductions"),
    "good and bad ones apart": (
        {"positive_criteria": [A], "negative_criteria": [F]},
        "positive_criteria, negative_criteria. Name one with --checklist-key; for more than one, write them into one",
    ),
    "faults inside another column": ({"grading": {"must_have": [A], "must_not_have": [F]}}, "no criteria found"),
    "names of levels": ({"rubric": {"A": "Fine.", "B": "Bad."}}, "A, B are names of levels; .*--weights A=NUMBER"),
    "numbers of levels or criteria": (
        {"rubric": {"1": A, "2": B}},
        "the keys 1, 2 may be levels or numbers of criteria",
    ),
    "lines of levels or criteria": (
        {"rubric": f"1: {A}\n2: {B}"},
        "'1: Names Bamako.' may be its place, its points or",
    ),
    "a grade as a list": (
        {"rubric": [{"score": 5, "description": "Polite."}, {"score": 1, "description": "Rude."}]},
        "'score' is 5, 1, so these may be the levels of one grade; use it as the weight with --item-key weight=score",
    ),
    "marks of a response": (
        {"rubric": [{"criterion": A, "score": 1, "why": "met"}, {"criterion": B, "score": 0, "why": "not met"}]},
        "'score' is 1, 0, so these may be",
    ),
    "sections under numbers": ({"rubric": {"5": [A], "-3": [F]}}, "the sections 5, -3 are numbers"),
    "weights of sections": (
        {"rubric": {"facts": {"weight": 0.7, "criteria": [A]}, "form": {"weight": 0.3, "criteria": [B]}}},
        "section 1: 'weight' may be part of the score .it is 0.7.*It is not applied to the criteria",
    ),
    "weights of sections beside": (
        {"rubric": {"facts": [A], "form": [B]}, "section_weights": {"facts": 2, "form": 1}},
        "'section_weights' has 2 values for the criteria or their sections",
    ),
    "weights by name": (
        {"rubric": {"facts": A, "form": B}, "weights": {"facts": 2, "form": 1}},
        "'weights' has 2 values",
    ),
    "signs beside": ({"rubric": [A, F], "polarities": ["+", "-"]}, "'polarities' has 2 values"),
    "a threshold": (
        {"rubric": {"criteria": [{"criterion": A, "points": 2}], "passing_score": 2}},
        "'passing_score' may be part of the score .*--drop passing_score",
    ),
    "points of some texts": ({"rubric": [f"{A} (3 points)", B]}, "names points, and not every criterion does"),
    "points inside a text": (
        {"rubric": [A, "Deduct 2 points for insults."]},
        "item 2: 'Deduct 2 points .*names points",
    ),
    "signs before texts": ({"rubric": [f"+ {A}", f"- {F}"]}, "the texts begin with . and -, which may be their signs"),
    "no sign": (
        items({"criterion": F, "is_bad": True}),
        "'is_bad' .*Write the sign into the weights, or drop it with",
    ),
    "a fault as a tag": (items({"criterion": F, "tags": ["negative"]}), "'tags' .*--item-key category=tags"),
    "a gate under another name": (
        items({"criterion": A, "mandatory": True}),
        "--item-key required=mandatory if it makes a",
    ),
    "an answer": (
        items({"criterion": "Is it rude?", "answer": "No"}),
        "--item-key expected=answer if it earns the points",
    ),
    "a rank": (
        {"rubric": [{"criterion": A, "priority": "P0"}]},
        "--item-key weight=priority and --weights P0=NUMBER, or --item-key category=priority, or drop it with --drop",
    ),
    "a number as text": ({"rubric": [{"criterion": A, "worth": "-1"}]}, "'worth' .*--item-key weight=worth"),
    "a number inside": (items({"criterion": A, "meta": {"points": 9}}), "--item-key weight=meta.points"),
    "a weight inside": (
        {"rubric": [{"criterion": A, "weight": {"value": 3, "unit": "points"}}]},
        "got the keys value, unit; name one with --item-key weight=weight.value",
    ),
    "criteria of criteria": (
        items({"criterion": A, "parts": [{"text": B}]}),
        "'parts' .*Write its entries as criteria",
    ),
    "a condition": (items({"criterion": A, "applies_if": "there is a map"}), "'applies_if' may be part of the score"),
    "levels without numbers": (
        items({"criterion": "tone", "good": "Polite.", "poor": "Rude."}),
        "Give the levels their numbers with --weights good=NUMBER",
    ),
    "a scale without levels": (
        {"rubric": [{"question": "How clear?", "type": "likert"}]},
        "'likert' asks for a grade",
    ),
    "other things called required": (
        items({"criterion": A, "required": ["date"]}),
        "'required' may be part of the score",
    ),
    "other things called check": (items({"criterion": A, "check": "manual"}), "'check' may be part of the score"),
    "weights as keys": ({"rubric": {"+3": A, "-2": F}}, "the keys .3, -2 have signs, so they may be weights"),
    "ranks of sections": (
        {"rubric": {"must": [A], "should": [B]}},
        "'must', 'should' may be ranks .*--weights 'must=NUMBER' --weights 'should=NUMBER'",
    ),
    "ranks as headings": (
        {"rubric": f"## Critical\n- {A}\n## Nice to have\n- {B}"},
        "'Critical', 'Nice to have' may be",
    ),
    "ranks before texts": ({"rubric": f"1. (critical) {A}\n2. (optional) {B}"}, "'critical', 'optional' may be ranks"),
    "a rank of some": ({"rubric": [A, f"Bonus: {B}"]}, "'Bonus' may be ranks"),
    "a section opposed to strengths": ({"rubric": {"strengths": [A], "gaps": [F]}}, "'gaps' may hold what a good"),
    "a kind of errors": (
        items({"criterion": A, "category": "tone"}, {"criterion": F, "category": "critical error"}),
        "item 2: 'critical error' may hold .*--pitfalls fault",
    ),
    "criteria of a section under another key": (
        {"sections": [{"name": "facts", "weight": 1, "items": [A]}]},
        "'items' .*Write its entries as criteria of their own",
    ),
    "a sign in a word": (items({"criterion": F, "scoring_type": "reverse"}), "'scoring_type' .*it is 'reverse'"),
    "an effect": (items({"criterion": F, "effect": "subtracts"}), "'effect' may be part of the score"),
    "a weight in German": ({"rubric": [{"kriterium": A, "gewichtung": "hoch"}]}, "--item-key weight=gewichtung"),
    "a tier": ({"rubric": [{"criterion": A, "tier": "T1"}]}, "--item-key weight=tier and --weights T1=NUMBER"),
    "when it passes": (
        items({"criterion": "Is it rude?", "pass_on": "answered no"}),
        "'pass_on' .*--item-key expected=pass_on",
    ),
    "a criterion that is off": (
        items({"criterion": A, "status": "deprecated"}),
        "Remove the criteria that are not in use",
    ),
    "levels inside a text": (
        items({"criterion": "Tone. 0: rude; 1: plain; 2: polite"}),
        "item 1: 'Tone. 0: rude; 1: plain; 2: polite' has the levels of a grade inside",
    ),
    "levels inside another field": (
        items({"criterion": A, "guide": "0: no city; 3: the city"}),
        "'guide' .*List the levels under 'options'",
    ),
    "letters of a grade": (
        {"rubric": [{"grade": "A", "description": A}, {"grade": "B", "description": B}]},
        "'grade' has the names of levels, so these may be one grade",
    ),
    "several questions in one": ({"rubric": "Is it polite? Is it short?"}, "holds several questions; write them as a"),
    "an answer behind a question": (
        {"checklist": ["Is it short? [YES]", "Is it rude? [NO]"]},
        "'\\? .YES.' at its beginning or end, which may be a weight or an answer",
    ),
    "an answer behind an arrow": (
        {"checklist": "1. Is it short? -> yes\n2. Is it rude? -> no"},
        "'\\? -> yes' at its",
    ),
    "numbers behind texts": ({"rubric": f"1. {A} (3)\n2. {B} (1)"}, "'.3.' at its beginning or end"),
    "factors behind texts": ({"rubric": [f"{A} x3", f"{B} x1"]}, "'x3' at its beginning or end"),
    "signed numbers before texts": ({"rubric": [f"+3 {A}", f"-2 {F}"]}, "'.3' at its beginning or end"),
    "stars before texts": ({"rubric": [f"*** {A}", f"* {B}"]}, "at its beginning or end"),
    "a weight behind a question": (
        {"rubric": {"q1": "Is it short? (weight 3)", "q2": "Is it rude? (weight 1)"}},
        "'.weight 3.' at its",
    ),
    "a prompt with an answer": (
        {"prompt": [{"role": "user", "content": ASK}, {"role": "assistant", "content": "Bamako."}], "rubric": [A]},
        "the messages in 'prompt' end with an answer of the assistant; .*--prompt-key prompt",
    ),
    "a prompt with a placeholder": (
        {"prompt": "Capital of {country}?", "vars": {"country": "Mali"}, "rubric": [A]},
        "the prompt has the placeholder .country., which 'vars.country' may fill",
    ),
    "a prompt of parts": (
        {"prompt": {"topic": "Mali", "style": "short"}, "rubric": [A]},
        "'prompt' must be a text or messages, got a mapping with the keys topic, style",
    ),
    "an entry that is null": (
        {"rubric": [{"criterion": A, "weight": 1}, None]},
        "item 2: .*got .*None",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_have_another_meaning_is_refused_in_one_line(tmp_path, name):
    row, message = REFUSED[name]
    with pytest.raises(ChecklistRewardsError, match=f"a.jsonl, line 1.*{message}") as refused:
        list(imported(tmp_path, row).rows)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["a threshold", "no sign", "a gate under another name", "a number as text", "signs beside"]
)
def test_what_may_be_lost_is_dropped_on_request(tmp_path, name):
    row, message = REFUSED[name]
    [key] = set(message.replace("'", " ").replace("=", " ").split()) & {
        "passing_score", "is_bad", "mandatory", "worth", "polarities"
    }  # fmt: skip
    [(_, checklist)] = imported(tmp_path, row, drop=[key]).rows
    assert all(item.weight > 0 for item in checklist.items)


def test_a_part_that_was_found_can_be_dropped(tmp_path):
    row = {"rubric": [{"criterion": A, "score": 1, "required": True}, {"criterion": B, "score": 0, "required": False}]}
    found = imported(tmp_path, row, drop=["score", "required"])
    [(_, checklist)] = found.rows
    assert [(item.weight, item.required) for item in checklist.items] == [(1, False), (1, False)]
    assert found.left_out == {"score": 2, "required": 2}


def test_more_criteria_in_a_later_row_are_seen(tmp_path):
    rows = [{"prompt": ASK, "rubric": [A], "penalties": []}, {"prompt": ASK, "rubric": [A], "penalties": [F]}]
    with pytest.raises(ChecklistRewardsError, match="line 2: several values could be the criteria: rubric, penalties"):
        list(imported_rows(write_jsonl(tmp_path / "a.jsonl", *rows)).rows)


@pytest.mark.parametrize(
    ("recipe", "rubric", "weights"),
    [
        ("shape: text", f"1: {A}\n2: {B}", [1, 1]),
        ("shape: items\nitem: {question: question}", {"1": A, "2": B}, [1, 1]),
        (
            "shape: items\nitem: {question: text, weight: score}",
            [{"score": 5, "text": A}, {"score": 1, "text": B}],
            [5, 1],
        ),
        ("shape: levels", f"1: {A}\n2: {B}", {A: 0, B: 1}),
        ("shape: levels", {"1": A, "2": B}, {A: 0, B: 1}),
        ("shape: levels", [{"score": 5, "text": B}, {"score": 1, "text": A}], {A: 0, B: 1}),
    ],
)
def test_the_recipe_that_a_refusal_names_helps(tmp_path, recipe, rubric, weights):
    (tmp_path / "mine.yaml").write_text(f"name: mine\nprompt: [prompt]\nchecklist: rubric\n{recipe}\n")
    [(_, checklist)] = imported(tmp_path, {"rubric": rubric}, format=tmp_path / "mine.yaml").rows
    found = [item.weight for item in checklist.items]
    assert weights == (found if isinstance(weights, list) else dict(checklist.items[0].values))


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


def test_a_table_with_a_prompt_is_no_table_of_criteria(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,criterion\nName it.,Is it short?\nList two.,Is it long?\n")
    assert [row["prompt"] for row, _ in imported_rows(tmp_path / "a.csv").rows] == ["Name it.", "List two."]
    (tmp_path / "b.csv").write_text("Criterion,Points\nNames it.,5\nIs short.,\n")
    with pytest.raises(ChecklistRewardsError, match="b.csv, item 2: 'Points' must be a number"):
        list(imported_rows(tmp_path / "b.csv").rows)


LIST = json.dumps([{"prompt": "é", "rubric": [{"criterion": A, "weight": 2}]}], ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_list_in_json_is_read_in_the_encodings_of_documents(tmp_path, encoding):
    (tmp_path / "a.json").write_text(f"\n{LIST}\n", encoding)
    assert [row["prompt"] for row, _ in imported_rows(tmp_path / "a.json").rows] == ["é"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{LIST}\n{LIST}".encode(), "after the end of the list"),
        (LIST.encode() + b" " * 2**20 + b"x", "after the end of the list: 'x'"),
        (LIST.encode("latin-1"), "cannot be read"),
        (LIST[:-1].encode() + b" " * 2**21 + b"\xe9]", "cannot be read"),
        (f"[{{'a': {'9' * 5000}}}]".replace("'", '"').encode(), "not valid JSON"),
        (LIST[:-1].encode(), "not valid JSON"),
    ],
    ids=["two lists", "a rest", "another encoding", "another encoding later", "digits", "cut"],
)
def test_a_list_in_json_that_is_damaged_is_refused(tmp_path, content, said):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ChecklistRewardsError, match=f"a.json.*{said}"):
        list(imported_rows(tmp_path / "a.json").rows)
