"""What counts as a word, a sentence, a paragraph, a bullet ..."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks import ifeval_text
from checklist_rewards.checks.builtin import capitals_in, parts_of
from checklist_rewards.checks.ifeval_text import first_word
from checklist_rewards.checks.text import sentences_of
from tests.checks.holds import holds


def test_words_as_ifeval_counts_them():
    words = ["Don", "t", "over", "think", "3", "x_1s"]
    assert ifeval_text.words_of("Don't over-think: 3 x_1s!") == words
    assert ifeval_text.words_of("Ünïcode 日本") == ["Ünïcode", "日本"]
    assert holds("Don't over-think", type="words", exactly=4, ifeval=True)


def test_the_number_of_a_list_item_is_a_sentence_only_on_request():
    text = "1. Wash it.\n2. Dry it\n3. go"
    assert sentences_of(text) == ["1. Wash it.", "2. Dry it\n3. go"]
    assert ifeval_text.sentences_of(text, list_numbers=True) == ["1.", "Wash it.", "2.", "Dry it\n3. go"]
    assert holds(text, type="sentences", exactly=2) and holds(text, type="sentences", exactly=4, list_numbers=True)


@given(st.text("ab .?!\n\"'1)", max_size=60))
def test_no_sentence_loses_or_adds_a_character(text):
    assert "".join("".join(sentences_of(text)).split()) == "".join(text.split())


BULLETS = "Intro\n- one\n  * two\n+ three\n• four\n-five\n---\n* * *\n - - -\n**bold**\n*italic* start\n1. no"
PARTS = {"type": "paragraphs", "separator": "***"}
COUNTS = [
    (2, "a\n\nb\n\n\n", {"type": "paragraphs"}),
    (2, "a\n***\nb", PARTS),
    (4, BULLETS, {"type": "bullets"}),
    (4, BULLETS.replace("\n", "\r\n"), {"type": "bullets"}),
    (3, "・りんご\n\u3000● 苹果\n  ▪ eins\n-zwei\n- - -\n・・・", {"type": "bullets"}),
    (7, BULLETS, {"type": "bullets", "loose": True}),  # two of them are rules
    (2, "*a* and **b c** but not * * nor ** ** nor a*b", {"type": "highlights"}),
    (2, "Section 1\nx\nSection2\ny\nsection 3", {"type": "sections", "marker": "Section"}),
    (1, "SECTION. 1", {"type": "sections", "marker": "SECTION."}),
    (3, "Dear [name], [[street]] [a\nb] []", {"type": "placeholders"}),
    (2, "STOP! no, STOP", {"type": "capital_words"}),
    (3, "Buffalo buffalo Buffaloes.", {"type": "keyword_count", "word": "buffalo", "whole_words": False}),
]
LETTERS = [
    (4, "Anna, and a", "a"),
    (3, "a1b22", "0123456789"),
    (2, "aA", "Aa"),  # named twice, counted once
    (2, "café, cafe\u0301", "é"),  # composed and decomposed
    (2, "café, cafe\u0301", "e\u0301"),
    (1, "café, cafe\u0301, cafe", "e"),
    (1, "Ελλάδα", "α"),  # ά is another letter
    (1, "שָׁלוֹם", "ש"),  # a vowel sign is not
    (2, "कि का", "क"),
    (2, "ÀÉ", "àé"),
    (1, "👍🏽 👍", "👍🏽"),
    (1, "🇫🇷🇺🇸", "🇫🇷"),
    (2, "一二，三，", "，"),
]
COUNTS += [(count, text, {"type": "letters", "letters": letters}) for count, text, letters in LETTERS]


@pytest.mark.parametrize(("count", "text", "spec"), COUNTS)
def test_counts(count, text, spec):
    assert holds(text, exactly=count, **spec) and not holds(text, at_least=count + 1, **spec)


def test_parts_and_words_of_a_text():
    assert [part.strip() for part in parts_of("a\nb\n \nc\n\n\n\nd\n")] == ["a\nb", "c", "d"]
    assert not holds("a\n***\n\n***\nb", at_most=9, **PARTS)  # nothing between two of them
    assert capitals_in("An HTML-page, NASA's 3D (WOW!) I 42 Ok") == ["3D", "WOW", "I"]
    assert first_word(' "Once upon') == "once" and first_word("Well, then") == "well" and first_word("  ") == ""
