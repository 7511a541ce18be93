"""Instructions that policies are trained on: each is followed by one text and broken by another."""

import json

import pytest

from checklist_rewards.checks import describe, parse_check
from checklist_rewards.checks.ifeval import KINDS, check_of_instruction, question_of_instruction, spec_of_instruction
from checklist_rewards.checks.verifiable import VERIFIABLE
from checklist_rewards.errors import ChecklistError

ASK = "Name the capital."
CASES = {
    "keywords:no_adjacent_consecutive": ({}, "zebra cat eats", "a big cat"),
    "detectable_format:sentence_hyphens": ({}, "One is here.-Two is there.", "One is here. Two is there."),
    "detectable_format:bigram_wrapping": ({}, "<<I am>> <<at home>>", "<<I am at>> home"),
    "detectable_format:square_brackets": ({}, "[I] [am]", "[I] am"),
    "copy:repeat_phrase": (
        {"phrase": "the old red house", "small_n": 2},
        "I saw the old blue house and the old green house today",
        "the old red house",
    ),
    "copy:copying_multiple": ({"prompt_to_repeat": ASK, "N": 2}, f"{ASK}\n******\n{ASK}", ASK),
    "copy:copying_simple": ({"prompt_to_repeat": ASK}, f" {ASK.upper()}\n", f"{ASK} Bamako."),
    "copy:copy": ({"prompt_to_repeat": ASK}, ASK, "Bamako."),
    "new:copy_span_idx": ({"prompt_to_repeat": ASK, "n_start": 5, "n_end": 8}, "the", "the capital"),
    "count:counting_composition": (
        {"n_sent": 2, "n_words": 3},
        "It is. He is. *** We are. You are. *** They are. I am.",
        "It is. *** We are. *** I am.",
    ),
    "count:count_unique": ({}, "every word differs", "the cat and the dog"),
    "count:lowercase_counting": ({"N": 2}, "THE cat SAT down", "the cat sat down"),
    "count:count_increment_word": ({"keyword1": "sun", "keyword2": "moon"}, "sun moon moon", "sun moon"),
    "keywords:palindrome": ({}, "a level field", "Bamako lies there"),
    "keywords:keyword_specific_position": (
        {"keyword": "lies", "n": 2, "m": 2},
        "It is far. Bamako lies there.",
        "Bamako lies there. It is far.",
    ),
    "keywords:start_end": ({}, "Bamako is called bamako", "Bamako is called bamako."),
    "keywords:word_once": ({"keyword": "sun"}, "The Sun.", "sun and sun"),
    "keywords:word_count_different_numbers": (
        {"keyword": "sun", "frequency": 2, "relation": "less than"},
        "The sun.",
        "sun and sun",
    ),
    "keywords:exclude_word_harder": ({"keyword": "sun"}, "Sun is up", "the sun is up"),
    "first_word:first_word_sent": ({"first_word": "We"}, "We go. we stay.", "We go. They stay."),
    "first_word:first_word_answer": ({"first_word": "we"}, "We go. They stay.", "They go."),
    "last_word:last_word_sent": ({"last_word": "up"}, "Stand up. Get up!", "Stand up. Sit down."),
    "last_word:last_word_answer": ({"last_word": "up"}, "Sit down. Stand up!", "Stand up. Sit down."),
    "paragraphs:paragraphs": ({}, "One.\n***\nTwo.", "One.\n\nTwo."),
    "paragraphs:paragraphs2": ({}, "One.\n\nTwo.", "One."),
    "punctuation:punctuation_dot": ({}, "No dot!", "A dot."),
    "punctuation:punctuation_exclamation": ({}, "A dot.", "No dot!"),
    "letters:letter_counting": ({"N": 5, "relation": "at least"}, "a1bc de", "a1bc d"),
    "letters:letter_counting2": ({"letter": "a", "let_frequency": 2, "let_relation": "at least"}, "banana", "bat"),
    "verify_keywords": ({"keyword_list": ["sun", "moon"]}, "Sun and moon", "Sun"),
    "verify_keyword_frequency": ({"word": "sun", "N": 2}, "sun, Sun", "sun sunny"),
    "validate_forbidden_words": ({"forbidden_words": ["sun"]}, "moon", "the sun"),
    "verify_letter_frequency": ({"letter": "a", "N": 3}, "banana", "bAnana"),
    "verify_paragraph_count": ({"N": 2}, "One.\n* * *\nTwo.", "One."),
    "validate_word_constraint": ({"N": 10, "quantifier": "around"}, "a " * 11, "a " * 12),
    "verify_sentence_constraint": ({"N": 2, "quantifier": "at most"}, "One. Two.", "One. Two. Three."),
    "validate_frequency_capital_words": ({"N": 2, "quantifier": "less than"}, "a DOG", "A DOG RAN"),
    "validate_end": ({"end_phrase": "The end."}, "So. The end.", "The end. So."),
}


@pytest.mark.parametrize("name", CASES)
def test_one_text_follows_it_and_the_other_does_not(name):
    arguments, good, bad = CASES[name]
    spec = spec_of_instruction(name, {**arguments, "another": None})
    check = check_of_instruction(name, arguments)
    assert (check.holds(good), check.holds(bad)) == (True, False)
    assert check == parse_check(json.dumps(spec), "item 1")
    question = question_of_instruction(spec)
    assert question.startswith("Does the response ") and question.endswith("?") and "{" not in question


def test_all_of_them_are_tested():
    assert {*VERIFIABLE} <= CASES.keys()
    kinds = ("copy", "count", "first_word", "last_word")
    assert {name for name in KINDS if name.partition(":")[0] in kinds} <= CASES.keys()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("first_word:first_word_sent", {}, "the argument 'first_word' is missing"),
        ("copy:copying_multiple", {"prompt_to_repeat": ASK, "N": "two"}, "the argument 'N' must be a whole number"),
        ("verify_keywords", {}, "the argument 'keyword_list' is missing"),
        ("validate_word_constraint", {"N": 3, "quantifier": "some"}, "the argument 'some' is missing"),
    ],
)
def test_wrong_arguments_are_named(name, arguments, message):
    with pytest.raises(ChecklistError, match=message):
        check_of_instruction(name, arguments)


@pytest.mark.parametrize("name", VERIFIABLE)
@pytest.mark.parametrize("text", ["", " ", ".", "-", "*** ***", "\ud800", "ı İ ß", "<<"])
def test_no_text_breaks_a_rule(name, text):
    assert check_of_instruction(name, CASES[name][0]).holds(text) in (True, False)


def test_writers_are_not_offered_them():
    assert "verifiable" not in describe()
