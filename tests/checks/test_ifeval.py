"""IFEval's instructions as checks."""

import pytest

from checklist_rewards.checks.ifeval import check_of_instruction, follows
from checklist_rewards.errors import ChecklistError

NTH = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Two"}
EXAMPLES = [
    (
        "length_constraints:number_sentences",
        {"relation": "at least", "num_sentences": 2},
        "A b. C d.",
        '"Why?" asked Dr. Lee.',
    ),
    ("startend:quotation", {}, '"yes"', '"'),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. Yes.", "Yes."),
    ("keywords:frequency", {"keyword": "ear", "relation": "at least", "frequency": 1}, "a bear", "a cat"),
    ("keywords:forbidden_words", {"forbidden_words": ["ear"]}, "a bear", "an ear"),
    ("punctuation:no_comma", {}, "yes", "yes, no"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b\n**c**", "* a"),
    ("length_constraints:nth_paragraph_first_word", NTH, "one\n\ntwo, it is", "one\n\ntwo\n\nthree"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", "one\n\ntwo"),
    ("keywords:existence", {"keywords": ["ear"]}, "a bear", "a cat"),
    ("startend:end_checker", {"end_phrase": "Bye."}, "So: bye.", "Bye. So"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n***\ntwo"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi.\nP.S. Bye.", "Hi."),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        "Part 1\nPart 2",
        "Part 1",
    ),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* *b*", "*a*"),
    ("detectable_format:title", {}, "<<A>>", "# A"),
]


@pytest.mark.parametrize(("instruction", "kwargs", "yes", "no"), EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_an_instruction_is_a_check(instruction, kwargs, yes, no):
    check = check_of_instruction(instruction, kwargs | {"unused": None})
    assert check.holds(yes) and not check.holds(no)


RELATIONS = {
    "at least": [2, 3, 4],
    "at most": [0, 1, 2],
    "less than": [0, 1],
    "more than": [3, 4],
    "exactly": [2],
    "around": [1, 2, 3],
}
"""The numbers from 0 to 4 that a relation to 2 allows."""
COUNTS = [
    ("length_constraints:number_words", "relation", "num_words", "word "),
    ("length_constraints:number_sentences", "relation", "num_sentences", "A b. "),
    ("keywords:frequency", "relation", "frequency", "x "),
    ("keywords:letter_frequency", "let_relation", "let_frequency", "x "),
    ("change_case:capital_word_frequency", "capital_relation", "capital_frequency", "OK "),
    ("letters:letter_counting", "relation", "N", "x "),
    ("validate_word_constraint", "quantifier", "N", "word "),
]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("instruction", "key", "number", "unit"), COUNTS, ids=[name for name, *_ in COUNTS])
def test_every_relation_in_every_spelling(instruction, key, number, unit, relation):
    for spelled in (relation, relation.title(), f" {relation.replace(' ', '_')} "):
        check = check_of_instruction(instruction, {key: spelled, number: 2, "keyword": "x", "letter": "x"})
        assert [n for n in range(5) if check.holds(unit * n)] == RELATIONS[relation]


@pytest.mark.parametrize("relation", ["", ">", ["at least"]])
def test_an_unknown_relation_is_refused(relation):
    with pytest.raises(ChecklistError, match="unknown relation .*; allowed: at least, at most, less than, more"):
        check_of_instruction("length_constraints:number_words", {"relation": relation, "num_words": 2})


def test_a_number_of_a_column_that_pandas_reads_is_whole():
    kwargs = {"relation": "at least", "num_words": 2.0}
    assert check_of_instruction("length_constraints:number_words", kwargs).at_least == 2


def test_ifevals_checks_keep_ifevals_rules():
    """On texts that the checks of people count differently."""
    own = {
        "length_constraints:number_words": ({"relation": "at least", "num_words": 2}, "Don't"),
        "length_constraints:number_sentences": ({"relation": "less than", "num_sentences": 2}, "一。二。"),
        "keywords:forbidden_words": ({"forbidden_words": ["don't"]}, "don’t"),
        "detectable_format:json_format": ({}, "[NaN]"),
        "language:response_language": ({"language": "en"}, "It rains in the old town."),
    }
    for name, (kwargs, text) in own.items():
        check = check_of_instruction(name, kwargs)
        assert check.ifeval and check.holds(text), name


def test_an_empty_response_follows_none():
    no_comma = check_of_instruction("punctuation:no_comma", {})
    assert no_comma.holds("") and not follows(no_comma, " \n") and follows(no_comma, "yes")


@pytest.mark.parametrize(
    ("instruction", "kwargs", "words"),
    [
        ("keywords:rhyme", {}, "unknown IFEval instruction 'keywords:rhyme'; the nearest are keywords:"),
        ("keywords:existence", {"keywords": None}, "the argument 'keywords' is missing"),
        ("keywords:existence", {"keywords": []}, "check 'keywords': words: Tuple should"),
        ("length_constraints:number_words", {"relation": "less than", "num_words": 2.5}, "whole number, got 2.5"),
    ],
)
def test_what_is_none_of_them_is_refused(instruction, kwargs, words):
    with pytest.raises(ChecklistError) as refused:
        check_of_instruction(instruction, kwargs)
    assert repr(instruction) in str(refused.value) and words in str(refused.value)
