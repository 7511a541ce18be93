"""What counts as a word, a sentence, a paragraph, a bullet ..."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks import ifeval_text
from checklist_rewards.checks.builtin import capitals_in, parts_of
from checklist_rewards.checks.ifeval_text import first_word
from checklist_rewards.checks.text import sentences_of, words_of
from tests.checks.holds import holds


def test_words():
    assert words_of("Don't over-think: 3 x_1s!") == ["Don't", "over-think", "3", "x_1s"]
    assert words_of("") == [] and words_of("Ünïcode 日本") == ["Ünïcode", "日", "本"]


def test_words_as_ifeval_counts_them():
    words = ["Don", "t", "over", "think", "3", "x_1s"]
    assert ifeval_text.words_of("Don't over-think: 3 x_1s!") == words
    assert ifeval_text.words_of("Ünïcode 日本") == ["Ünïcode", "日本"]
    assert holds("Don't over-think", type="words", exactly=4, ifeval=True)


SENTENCES = {
    "One. Two! Three?": ["One.", "Two!", "Three?"],
    "no mark at all": ["no mark at all"],
    "": [],
    "Really?! Yes...": ["Really?!", "Yes..."],
    "Dr. Lee came at 5 p.m. on Monday. He left.": ["Dr. Lee came at 5 p.m. on Monday.", "He left."],
    "It costs 3.50 at example.com. Cheap.": ["It costs 3.50 at example.com.", "Cheap."],
    'He said "Stop." Then he left.': ['He said "Stop."', "Then he left."],
    "“Where are you?” he asked.": ["“Where are you?” he asked."],
    "J. K. Rowling wrote it.": ["J. K. Rowling wrote it."],
    "So did I. You too.": ["So did I.", "You too."],
    "**Bold.** Plain.": ["**Bold.**", "Plain."],
    "A title\n\nA sentence. Another": ["A title\n\nA sentence.", "Another"],
    "1. First.\n2. Second.": ["1. First.", "2. Second."],
    "In 1990. Then.": ["In 1990.", "Then."],
}


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(text):
    assert sentences_of(text) == SENTENCES[text]


def test_the_number_of_a_list_item_is_a_sentence_only_on_request():
    text = "1. Wash it.\n2. Dry it\n3. go"
    assert sentences_of(text) == ["1. Wash it.", "2. Dry it\n3. go"]
    assert ifeval_text.sentences_of(text, list_numbers=True) == ["1.", "Wash it.", "2.", "Dry it\n3. go"]
    assert holds(text, type="sentences", exactly=2) and holds(text, type="sentences", exactly=4, list_numbers=True)


@given(st.text("ab .?!\n\"'1)", max_size=60))
def test_no_sentence_loses_or_adds_a_character(text):
    assert "".join("".join(sentences_of(text)).split()) == "".join(text.split())


def test_paragraphs():
    assert [part.strip() for part in parts_of("a\nb\n \nc\n\n\n\nd\n")] == ["a\nb", "c", "d"]
    assert holds("a\n\nb\n\n\n", type="paragraphs", exactly=2)
    assert holds("a\n***\nb", type="paragraphs", exactly=2, separator="***")
    assert holds("***\na\n***\nb\n***", type="paragraphs", exactly=2, separator="***")
    assert not holds("a\n***\n\n***\nb", type="paragraphs", at_most=9, separator="***")  # nothing between two of them


def test_bullets():
    text = "Intro\n- one\n  * two\n+ three\n• four\n-five\n---\n* * *\n - - -\n**bold**\n*italic* start\n1. no"
    assert holds(text, type="bullets", exactly=4)
    assert holds(text.replace("\n", "\r\n"), type="bullets", exactly=4)
    assert holds(text, type="bullets", exactly=7, loose=True)  # two of them are rules


def test_highlights():
    assert holds("*a* and **b c** but not * * nor ** ** nor a*b", type="highlights", exactly=2)


def test_sections_and_placeholders():
    assert holds("Section 1\nx\nSection2\ny\nsection 3", type="sections", marker="Section", exactly=2)
    assert holds("SECTION. 1", type="sections", marker="SECTION.", exactly=1)
    assert holds("Dear [name], [[street]] [a\nb] []", type="placeholders", exactly=3)


def test_capital_words():
    assert capitals_in("An HTML-page, NASA's 3D (WOW!) I 42 Ok") == ["3D", "WOW", "I"]
    assert holds("STOP! no, STOP", type="capital_words", exactly=2)


def test_first_words():
    assert first_word(' "Once upon') == "once" and first_word("Well, then") == "well" and first_word("  ") == ""
