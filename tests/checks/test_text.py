"""Words, sentences and occurrences in every script. The numbers were counted by hand."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks import text as texts
from checklist_rewards.checks.text import occurrence_bounds, sentence_bounds, sentences_of, word_bounds, words_of
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

WORDS = {
    "": 0,
    "Don't": 1,
    "Don’t": 1,
    "don´t": 1,
    "Jean-Paul": 1,
    "co‑op": 1,  # a non-breaking hyphen
    "3.5": 1,
    "1,250": 1,
    "1\u202f250": 1,
    "2024-11-21": 1,
    "10:30": 1,
    "3/4": 1,
    "½": 1,
    "m²": 1,
    "10%": 1,
    "$5": 1,
    "C++": 1,
    "U.S.": 1,
    "U.K.-based firms": 2,
    "the U.S.'s army": 3,
    "'the U.S.' it": 3,
    "e.g. this": 2,
    "AT&T": 1,
    "rock 'n' roll": 3,
    "state-of-the-art": 1,
    "well--known": 2,
    "a—b": 2,
    "and/or": 2,
    "It rains.It stops": 4,
    "— – ! & *": 0,
    "___": 0,
    "_italic_ **bold**": 2,
    "x_1s": 1,
    "see https://example.com/a?b=c, now": 3,
    "user@example.com": 1,
    "cafés": 1,
    "cafe\u0301s": 1,
    "naïve café": 2,
    "Привет, мир": 2,
    "Ελλάδα είναι": 2,
    "l·l": 1,
    "Tôi là sinh viên": 4,
    "बारिश हो रही है": 4,
    "আমি ভাত খাই": 3,
    "நான் வீட்டுக்கு போகிறேன்": 3,
    "مرحبا بالعالم": 2,
    "مَرْحَبًا": 1,
    "می‌خواهم بروم": 2,  # with a zero-width non-joiner
    "שלום עליכם": 2,
    "שָׁלוֹם עֲלֵיכֶם": 2,
    'צה"ל ניצח': 2,
    "오늘은 비가 온다": 3,
    "ሰላም፡ዓለም": 2,
    "今天下雨了": 5,
    "今天下雨。": 4,
    "コーヒーを飲む": 7,
    "ｶﾞｽ": 2,
    "AI技術": 3,
    "第3章": 3,
    "Hi🙂there": 2,
    "I ❤️ NY": 2,
    "👍🏽 🇫🇷 👩‍💻": 0,
    "1️⃣ First": 1,
    "🅰": 0,
}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("text", WORDS)
def test_words(text, form):
    text, count = unicodedata.normalize(form, text), WORDS[text]
    assert word_bounds(text) == (count, count), words_of(text)
    assert holds(text, type="words", exactly=count) and not holds(text, type="words", at_least=count + 1)


UNCOUNTABLE = ["วันนี้ฝนตก", "ມື້ນີ້ຝົນຕົກ", "ថ្ងៃនេះភ្លៀង", "ယနေ့မိုးရွာသည်", "དེ་རིང་ཆར་པ་"]
"""It rains today: in Thai, Lao, Khmer, Burmese and Tibetan."""


@pytest.mark.parametrize("text", UNCOUNTABLE)
def test_words_that_only_a_dictionary_can_count_are_not_guessed(text):
    with pytest.raises(CheckError, match=r"the number is between 1 and \d+"):
        holds(text, type="words", exactly=3)
    assert holds(text, type="words", at_least=1) and holds(text, type="words", at_most=99)  # whatever the number is
    assert not holds(text, type="words", at_least=99)
    assert not holds(f"one two three {text}", type="words", at_most=3)


SENTENCES = {
    "今天下雨。我在家。你呢？": 3,
    "今天下雨！😀我在家。": 2,
    "“你好。”他说。": 2,
    "「行こう。」と彼は言った。": 1,
    "今日は雨です。家にいます。": 2,
    "मैं घर जाता हूँ। तुम आओ।": 2,
    "کیا حال ہے؟ میں ٹھیک ہوں۔": 2,
    "هل تمطر؟ نعم.": 2,
    "Πού είσαι; Εδώ.": 2,
    "Բարև։ Ողջույն։": 2,
    "អរុណ។ សួស្តី។": 2,
    "비가 온다. 집에 있다.": 2,
    "It rains… It stops.": 2,
    "Wait… what?": 1,
    "Well... maybe.": 1,
    "My answer is no. It rains.": 2,
    "My answer is no. Rain falls.": 2,
    "See no. 5. It is good.": 2,
    "No. 5 is alive.": 1,
    "He lives in the U.S. It is big.": 2,
    "The U.S. Senate met.": 1,
    "He came at 5 p.m. Rain fell.": 2,
    "At 5 p.m. Monday we go.": 1,
    "Apples, pears, etc. They are good.": 2,
    "Acme Inc. The firm grew.": 2,
    "e.g. The Beatles.": 1,
    "Mr. Smith came. He left.": 2,
    "Mme. Roux rit. Oui.": 2,
    "Sra. Gómez vino. Se fue.": 2,
    "George W. Bush won.": 1,
    "Take vitamin C. Eat fruit.": 2,
    "Plan B. It works.": 2,
    "Fig. 3 shows it. See p. 5.": 2,
    "It is 3.5 m. Good.": 2,
    "z. B. heute.": 1,
    "Er kam am 3. Mai. Gut.": 2,
    "это т. е. да. Нет.": 2,
    "1. Wash it.\n2. Dry it.": 2,
    "a. Wash it.\nb. Dry it.": 2,
    "**1. Wash it.** Now.": 2,
    "We ate etc.\n\nThen we left.": 2,
    "The U.S.\n\n- One\n- Two": 2,
    "(It rains.) It stops.": 2,
    "It rains.[1] It stops.": 2,
    "He said “Stop.” Then he left.": 2,
    "‘Why?’ he asked.": 1,
    "Il pleut. « Vraiment ? » dit-il.": 2,
    "¿Qué tal? ¡Bien!": 2,
    "It rains. 🌧 It stops. 🌞": 2,
    "It rains.🌧 It stops.🌞": 2,
    "Hi! 🇫🇷 Bye! 👍🏽": 2,
    "It works. :) Yes. :)": 2,
    "Wow. !!!": 1,
    "!!! It rains.": 1,
    "Yes.No": 1,
    "": 0,
}


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(text):
    assert sentence_bounds(text) == (SENTENCES[text],) * 2, sentences_of(text)
    assert holds(text, type="sentences", exactly=SENTENCES[text])


@given(st.lists(st.sampled_from(["It rains", "दिन है", "今天下雨", "비가 온다", "Идёт дождь"]), max_size=5), st.data())
def test_as_many_sentences_as_were_written_whatever_ends_them(sentences, data):
    marks = ["。", "！", "？", ". ", "! ", "? ", "… ", "। ", "؟ ", "。🌧", ". 🌧 ", "！」", ".” "]
    text = "".join(sentence + data.draw(st.sampled_from(marks)) for sentence in sentences)
    assert sentence_bounds(text) == (len(sentences),) * 2


def test_sentences_of_a_script_without_marks_are_not_guessed():
    text = "วันนี้ฝนตก ผมอยู่บ้าน"
    with pytest.raises(CheckError, match="the number is between 1 and 2"):
        holds(text, type="sentences", exactly=2)
    assert holds(text, type="sentences", at_most=2)


OCCURRENCES = [
    ("a—b", "—", 1),
    ("Hi🙂there", "🙂", 1),
    ("今天下雨了", "雨", 1),
    ("今天下雨了", "下雨", 1),
    ("生成AIは", "AI", 1),
    ("I like C++ and C#.", "C", 0),
    ("I like C.", "C", 1),
    ("C/C++", "C++", 1),
    ("don’t", "don't", 1),
    ("don't", "don’t", 1),
    ("don't", "don", 0),
    ("can't", "can", 0),
    ("it’s", "s", 0),
    ("I'm", "I", 1),
    ("the river’s edge", "river", 1),
    ("The rivers", "river", 0),
    ("_river_ **river**", "river", 2),
    ("my_river", "river", 0),
    ("l’eau", "eau", 1),
    ("the old\nmill, the old  mill", "old mill", 2),
    ("the old\u00a0mill", "old mill", 1),
    ("cafe\u0301", "café", 1),
    ("café", "cafe\u0301", 1),
    ("cafe\u0301", "cafe", 0),
    ("Straße", "STRASSE", 1),
    ("ΣΊΣΥΦΟΣ", "σίσυφος", 1),
    ("3.5", "3", 0),
    ("3.5", "5", 0),
    ("1,250", "250", 0),
    ("$5, 5.", "5", 2),
    ("2,3", "3", 1),
    ("👩‍💻", "👩", 0),
    ("👍🏽", "👍", 1),
    ("❤️", "❤", 1),
    ("1️⃣", "1", 0),
    ("비가 온다", "비", 1),
    ("비행기", "비", 0),
    ("AI는", "AI", 1),
    ("नमस्ते दुनिया", "दुनिया", 1),
    ("कि", "क", 0),
    ("for\u00adbid\u200bden", "forbidden", 1),
    ("well-known", "well", 1),
    ("שָׁלוֹם", "שלום", 1),
    ("שלום", "שָׁלוֹם", 1),
    ("مُحَمَّد", "محمد", 1),
    ("ＧＯ now", "go", 1),
    ("İstanbul'da", "istanbul", 1),
    ("서울에서", "서울", 1),
    ("Müller", "Muller", 0),
    ("Say “yes”", '"yes"', 1),
    ("“yes”", '"', 0),  # a single mark is meant as it is
    ("วันนี้", "ฝน", 0),
    ("มี ฝน มาก", "ฝน", 1),
]


@pytest.mark.parametrize(("text", "phrase", "count"), OCCURRENCES)
def test_occurrences(text, phrase, count):
    assert occurrence_bounds(text, phrase) == (count, count)
    assert holds(text, type="keyword_count", word=phrase, exactly=count)
    assert holds(text, type="keywords", words=[phrase]) is (count > 0)
    assert holds(text, type="forbidden", words=[phrase]) is (count == 0)


@pytest.mark.parametrize("kind", ["keywords", "forbidden"])
def test_whether_a_part_of_a_thai_text_is_a_word_is_unknown(kind):
    with pytest.raises(CheckError, match="'ฝน'.*only a dictionary"):
        holds("วันนี้ฝนตก", type=kind, words=["ฝน"])
    with pytest.raises(CheckError, match="the number is between 0 and 1"):
        holds("วันนี้ฝนตก", type="keyword_count", word="ฝน", exactly=1)
    assert holds("วันนี้ฝนตก", type="keywords", words=["ฝน"], whole_words=False)
    assert holds("วันนี้ฝนตก rain", type="keywords", words=["ฝน", "rain"], need="any")  # one of them is certain
    assert not holds("วันนี้ฝนตก", type="keywords", words=["ฝน", "rain"])


_LATIN = st.text(st.sampled_from("aB1 .,'’-—–…!?“”()&@:/_\n\u00a0\u202fé\u00ad%") | st.sampled_from("http://x.y"))


@given(_LATIN)
def test_the_faster_patterns_are_equal(text):
    latin = words_of(text), sentences_of(text)
    fast, texts._is_latin = texts._is_latin, lambda text: False
    try:
        assert (words_of(text), sentences_of(text)) == latin
    finally:
        texts._is_latin = fast


@pytest.mark.parametrize(
    "char",
    ["a", "a.", "'", "-", " ", "\n ", ". ", "…", "雨", "🙂", "ก", "가", "1,", "“", "http://", "a'", "\u0301", "…\n"],
)
def test_no_text_takes_more_than_linear_time(char):
    text = char * (200_000 // len(char))
    for phrase in ("old mill", "a", "雨", "ก", "가"):
        occurrence_bounds(text, phrase)
    assert word_bounds(text) and sentence_bounds(text)
