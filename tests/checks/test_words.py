"""Keywords, forbidden words, letters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks.text import occurrence_bounds
from tests.checks.holds import holds


def test_keywords():
    assert holds("The River by the old mill.", type="keywords", words=["river", "old mill"])
    assert not holds("The rivers.", type="keywords", words=["river"])
    assert holds("The rivers.", type="keywords", words=["river"], whole_words=False)
    assert not holds("The River.", type="keywords", words=["river"], ignore_case=False)
    assert holds("sea", type="keywords", words=["river", "sea"], need="any")
    assert not holds("sea", type="keywords", words=["river", "sea"])


def test_forbidden():
    assert holds("Everything is fine.", type="forbidden", words=["very", "thing"])
    assert not holds("Very fine.", type="forbidden", words=["very"])


@pytest.mark.parametrize("phrase", ["C++", "a.b", "(x)", "$5", "o'clock", "[note]"])
def test_a_phrase_is_no_pattern(phrase):
    assert holds(f"It is {phrase} here", type="keyword_count", word=phrase, exactly=1)
    assert not holds("It is Cxx or aXb, x, 5 or oXclock, note", type="keywords", words=[phrase])


def test_how_often():
    text = "Buffalo buffalo Buffaloes."
    assert holds(text, type="keyword_count", word="buffalo", exactly=2)
    assert holds(text, type="keyword_count", word="buffalo", exactly=3, whole_words=False)


def test_letters_and_signs():
    assert holds("Anna, and a", type="letters", letters="a", exactly=4)
    assert holds("no comma", type="letters", letters=",", exactly=0)
    assert holds("a1b22", type="letters", letters="0123456789", exactly=3)
    assert holds("aA", type="letters", letters="Aa", exactly=2)  # named twice, counted once


LETTERS = [
    ("café, cafe\u0301", "é", 2),  # composed and decomposed
    ("café, cafe\u0301", "e\u0301", 2),
    ("café, cafe\u0301, cafe", "e", 1),
    ("Ελλάδα", "α", 1),  # ά is another letter
    ("שָׁלוֹם", "ש", 1),  # a vowel sign is not
    ("कि का", "क", 2),
    ("ÀÉ", "àé", 2),
    ("👍🏽 👍", "👍🏽", 1),
    ("🇫🇷🇺🇸", "🇫🇷", 1),
    ("一二，三，", "，", 2),
]


@pytest.mark.parametrize(("text", "letters", "count"), LETTERS)
def test_letters_of_every_script(text, letters, count):
    assert holds(text, type="letters", letters=letters, exactly=count)


@given(st.lists(st.sampled_from(["cat", "cats", "dog", "Cat"]), max_size=20))
def test_whole_words_are_counted_as_words(words):
    count = sum(word.lower() == "cat" for word in words)
    assert occurrence_bounds(" ".join(words), "cat") == (count, count)


@given(st.text(max_size=50), st.text(min_size=1, max_size=3))
def test_what_is_there_is_not_missing(text, word):
    there = holds(text, type="keywords", words=[word])
    assert there is not holds(text, type="forbidden", words=[word])
    assert there is holds(text, type="keyword_count", word=word, at_least=1)
