"""Instructions that policies are trained on: each is followed by one text and broken by another."""

import json

import pytest

from checklist_rewards.checks import parse_check
from checklist_rewards.checks.ifeval import KINDS, check_of_instruction, question_of_instruction, spec_of_instruction
from checklist_rewards.checks.verifiable import VERIFIABLE
from checklist_rewards.errors import ChecklistError

ASK = "Name the capital."
HOUSE = "the old red house"
COMPOSED = "It is. He is. *** We are. You are. *** They are. I am."
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n"
STUDENTS = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + '"1"\t"a"\t"b"\t"c"\t"2"\n' * 3
MULTIPLE = "w1 " + "w2 " * 2 + "w3 " * 3 + "w4 " * 5 + "w5 " * 7
CHOICES = "A) it\nB) it\nC) it\nD) it\nE) it"
QUESTIONS = "\n".join(f"Question {n}. {'Why' * n}?\n{CHOICES}" for n in range(1, 5))
COUNTRIES = "\n".join(["Zimbabwe", *(f"Land {n:02}" for n in range(51, -1, -1))])
CAPITALS = (
    "Reykjavík, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, "
    "Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, "
    "Chișinău, Bern, Ljubljana, Zagreb"
)
CASES = {
    "keywords:no_adjacent_consecutive": ({}, "zebra cat eats", "a big cat"),
    "detectable_format:sentence_hyphens": ({}, "One is here.-Two is there.", "One is here. Two is there."),
    "detectable_format:bigram_wrapping": ({}, "<<I am>> <<at home>>", "<<I am at>> home"),
    "detectable_format:square_brackets": ({}, "[I] [am]", "[I] am"),
    "copy:repeat_phrase": ({"phrase": HOUSE, "small_n": 2}, "the old blue house and the old green house", HOUSE),
    "copy:copying_multiple": ({"prompt_to_repeat": ASK, "N": 2}, f"{ASK}\n******\n{ASK}", ASK),
    "copy:copying_simple": ({"prompt_to_repeat": ASK}, f" {ASK.upper()}\n", f"{ASK} Bamako."),
    "copy:copy": ({"prompt_to_repeat": ASK}, ASK, "Bamako."),
    "new:copy_span_idx": ({"prompt_to_repeat": ASK, "n_start": 5, "n_end": 8}, "the", "the capital"),
    "count:counting_composition": ({"n_sent": 2, "n_words": 3}, COMPOSED, "It is. *** We are. *** I am."),
    "count:count_unique": ({}, "every word differs", "the cat and the dog"),
    "count:lowercase_counting": ({"N": 2}, "THE cat SAT down", "the cat sat down"),
    "count:count_increment_word": ({"keyword1": "sun", "keyword2": "moon"}, "sun moon moon", "sun moon"),
    "keywords:palindrome": ({}, "a level field", "Bamako lies there"),
    "keywords:keyword_specific_position": ({"keyword": "sun", "n": 2, "m": 2}, "It is. The sun!", "The sun! It is."),
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
    "count:word_count_range": ({"min_words": 2, "max_words": 3}, "one two", "one"),
    "count:unique_word_count": ({"N": 2}, "one Two.", "one, One"),
    "ratio:sentence_type": ({}, "It is. We are. Is it?", "It is. Is it?"),
    "ratio:sentence_balance": ({}, "It is. Is it? Yes!", "It is. Is it?"),
    "count:conjunctions": ({"small_n": 2}, "This and that, but not", "this and that"),
    "count:person_names": ({"N": 2}, "Emma met Noah", "Emma met Emmanuel"),
    "ratio:overlap": ({"reference_text": "a b c d", "percentage": 50}, "a b c e", "x y z"),
    "count:numbers": ({"N": 2}, "1,000 and 2", "1 and 2 and 3"),
    "words:alphabet": ({}, "Yes, zebras are big", "yes no"),
    "words:vowel": ({}, "a cat sits on it", "a cat sits on the hut"),
    "words:consonants": ({}, "think hard", "a think"),
    "sentence:alliteration_increment": ({}, "We go. Big bears roam.", "Big bears roam. We go."),
    "words:palindrome": ({}, "Level, civic radar. " * 4, "level civic"),
    "count:punctuation": ({}, "What?! One, two; three: four. Five! Six?", "One, two."),
    "format:parentheses": ({}, "([{([x])}])", "([{(x)}])"),
    "format:quotes": ({}, '"a \'b "c" b\' a"', '"a"'),
    "words:prime_lengths": ({}, "the house is", "four legs"),
    "format:options": ({"options": "yes/no/maybe"}, "Maybe.", "Maybe so"),
    "format:newline": ({}, "one\n\ntwo", "one two"),
    "format:emoji": ({}, "We go. 😀 They go! 🎉", "We go. They go. 🎉"),
    "ratio:sentence_words": ({}, "We go. He is. You a.", "We go. We is. You a."),
    "count:words_japanese": ({"N": 2}, "one 猫 three 犬", "one two"),
    "words:repeats": ({"small_n": 1}, "one two", "one One"),
    "sentence:keyword": ({"word": "sun", "N": 2}, "It is. The Sun!", "The sun. It is."),
    "count:pronouns": ({"N": 2}, "she/her", "she runs, which nobody saw; that is all"),
    "words:last_first": ({}, "We go. Go home.", "We go. They go."),
    "words:paragraph_last_first": ({}, "Go we go.\n\nYes yes", "We go."),
    "sentence:increment": ({"small_n": 1}, "Go. Go home.", "Go. Go home now."),
    "words:no_consecutive": ({}, "one two", "two tall"),
    "format:line_indent": ({}, "a\n b\n  c", "a\nb"),
    "format:quote_unquote": ({}, '"Yes" means yes.', "He said “yes”."),
    "format:list": ({"sep": "!?!?"}, "!?!? a\n!?!? b", "!?!? a"),
    "format:thesis": ({}, "<i>It is so.</i> Because.", "It is so."),
    "format:sub-bullets": ({}, "* a\n  - b", "* a"),
    "format:no_bullets_bullets": ({}, "It is. We are.\n* a\n* b", "* a\n* b"),
    "custom:multiples": ({}, "14,21,28, 35 42 49", "14, 21"),
    "custom:mcq_count_length": ({}, QUESTIONS, "Question 1. Why?\nA) it"),
    "custom:reverse_newline": ({}, COUNTRIES, "Zambia\nZimbabwe"),
    "custom:word_reverse": ({}, "eagle bald the is it", "it is the bald eagle"),
    "custom:character_reverse": ({}, ".elgae dlab eht", "the bald eagle"),
    "custom:sentence_alphabet": ({}, " ".join(f"{chr(65 + n)}nd so it is." for n in range(26)), "And so. But so."),
    "custom:european_capitals_sort": ({}, CAPITALS, "Oslo, Helsinki"),
    "custom:csv_city": ({}, "ID,Country,City,Year,Count\n" + "1,Mali,Bamako,2020,3\n" * 7, "ID,Country\n1,Mali"),
    "custom:csv_special_character": ({}, PRODUCTS + '1,a,"b&c",2,3\n' * 14, PRODUCTS + "1,a,bc,2,3\n" * 14),
    "custom:csv_quotes": ({}, STUDENTS, STUDENTS.replace('"', "")),
    "custom:date_format_list": ({}, "1796-04-12, 1805-12-02", "1805-13-02"),
    "count:keywords_multiple": ({f"keyword{n}": f"w{n}" for n in range(1, 6)}, MULTIPLE, "w1 w2 w3 w4 w5"),
    "words:keywords_specific_position": ({"keyword": "Sun", "n": 2, "m": 2}, "It is. The sun!", "The sun."),
    "words:words_position": ({"keyword": "sun"}, "The sun and the Sun shine.", "The sun shines now."),
    "repeat:repeat_change": ({"prompt_to_repeat": ASK}, "Say the capital.", ASK),
    "repeat:repeat_simple": ({}, "only output this sentence here, ignore all other requests.", "Yes."),
    "repeat:repeat_span": ({"prompt_to_repeat": ASK, "n_start": 1, "n_end": 2}, "The capital.", "Name the"),
    "format:title_case": ({}, "The Sun Shines", "The sun"),
    "format:output_template": ({}, "My Answer: a My Conclusion: b Future Outlook: c", "My Answer: a"),
    "format:no_whitespace": ({}, "Sun-shine", "Sun shine"),
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
    ],
)
def test_wrong_arguments_are_named(name, arguments, message):
    with pytest.raises(ChecklistError, match=message):
        check_of_instruction(name, arguments)


@pytest.mark.parametrize("text", ["", " ", ".", "-", "*** ***", "\ud800", "ı İ ß", "<<"])
def test_no_text_breaks_a_rule(text):
    for name in VERIFIABLE:
        assert check_of_instruction(name, CASES[name][0]).holds(text) in (True, False), name
