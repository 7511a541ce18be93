"""Words, sentences and occurrences in every script. The numbers were counted by hand."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checks import text as texts
from checklist_rewards.checks.text import occurrence_bounds, sentence_bounds, sentences_of, word_bounds, words_of
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds


def counted(rows):
    """Text and number, of rows with a number and the texts that have it."""
    return [(text, count) for count, *texts in rows for text in texts]


WORDS = [
    (0, "", "— – ! & *", "___", "👍🏽 🇫🇷 👩‍💻", "🅰"),
    (1, "Don't", "Don’t", "don´t", "Jean-Paul", "co‑op", "state-of-the-art", "l·l", "x_1s"),  # with signs inside
    (1, "3.5", "1,250", "1\u202f250", "2024-11-21", "10:30", "3/4", "½", "m²", "10%", "$5", "C++", "U.S.", "AT&T"),
    (1, "user@example.com", "cafés", "cafe\u0301s", "1️⃣ First"),
    (2, "U.K.-based firms", "e.g. this", "well--known", "a—b", "and/or", "_italic_ **bold**", "naïve café"),
    (3, "the U.S.'s army", "'the U.S.' it", "rock 'n' roll", "see https://example.com/a?b=c, now"),
    (2, "Привет, мир", "ሰላም፡ዓለም", "Hi🙂there"),
    (4, "It rains.It stops", "Tôi là sinh viên", "बारिश हो रही है"),
    (3, "நான் வீட்டுக்கு போகிறேன்", "오늘은 비가 온다"),
    (2, "مرحبا بالعالم", "می‌خواهم بروم", "שָׁלוֹם עֲלֵיכֶם", 'צה"ל ניצח'),  # one with a non-joiner
    (5, "今天下雨了"),
    (4, "今天下雨。"),
    (7, "コーヒーを飲む"),
    (2, "ｶﾞｽ", "I ❤️ NY"),
    (3, "AI技術", "第3章"),
]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(("text", "count"), counted(WORDS))
def test_words(text, count, form):
    text = unicodedata.normalize(form, text)
    assert word_bounds(text) == (count, count), words_of(text)
    assert holds(text, type="words", exactly=count) and not holds(text, type="words", at_least=count + 1)


@pytest.mark.parametrize("text", ["วันนี้ฝนตก", "ມື້ນີ້ຝົນຕົກ", "ថ្ងៃនេះភ្លៀង", "ယနေ့မိုးရွာသည်", "དེ་རིང་ཆར་པ་"])
def test_words_that_only_a_dictionary_can_count_are_not_guessed(text):
    with pytest.raises(CheckError, match=r"the number is between 1 and \d+"):
        holds(text, type="words", exactly=3)
    assert holds(text, type="words", at_least=1) and holds(text, type="words", at_most=99)  # whatever the number is
    assert not holds(text, type="words", at_least=99)
    assert not holds(f"one two three {text}", type="words", at_most=3)


SENTENCES = [
    ("One. |Two! |Three?", "no mark at all", "Really?! |Yes...", "**Bold.** |Plain.", "Yes.No", "In 1990. |Then."),
    ("Wait… what?", "It rains… |It stops.", "Well... maybe.", "Wow. !!!", "!!! It rains.", "So did I. |You too."),
    ("(It rains.) |It stops.", "It rains.[1] |It stops.", "It costs 3.50 at example.com. |Cheap."),
    ("He said “Stop.” |Then he left.", 'He said "Stop." |Then he left.', "“Where are you?” he asked."),
    ("‘Why?’ he asked.", "Il pleut. |« Vraiment ? » dit-il.", "¿Qué tal? |¡Bien!"),
    # Numbers and abbreviations.
    ("No. 5 is alive.", "See no. 5. |It is good.", "My answer is no. |It rains.", "My answer is no. |Rain falls."),
    ("The U.S. Senate met.", "He lives in the U.S. |It is big.", "George W. Bush won.", "J. K. Rowling wrote it."),
    ("At 5 p.m. Monday we go.", "He came at 5 p.m. |Rain fell.", "Dr. Lee came at 5 p.m. on Monday. |He left."),
    ("Apples, pears, etc. |They are good.", "Acme Inc. |The firm grew.", "e.g. The Beatles.", "Plan B. |It works."),
    ("Mr. Smith came. |He left.", "Mme. Roux rit. |Oui.", "Sra. Gómez vino. |Se fue.", "Take vitamin C. |Eat fruit."),
    ("Fig. 3 shows it. |See p. 5.", "It is 3.5 m. |Good."),
    ("z. B. heute.", "Er kam am 3. Mai. |Gut.", "это т. е. да. |Нет."),
    # Lists and lines.
    ("1. Wash it.\n|2. Dry it.", "a. Wash it.\n|b. Dry it.", "**1. Wash it.** |Now.", "We ate etc.\n\n|Then we left."),
    ("The U.S.\n\n|- One\n- Two", "A title\n\nA sentence. |Another"),
    # Emoji.
    ("It rains. 🌧 |It stops. 🌞", "It rains.🌧 |It stops.🌞", "Hi! 🇫🇷 |Bye! 👍🏽", "It works. |:) Yes. :)"),
    # Other scripts.
    ("「行こう。」と彼は言った。", "今天下雨！😀|我在家。", "“你好。”|他说。", "今日は雨です。|家にいます。"),
    (
        "すごい!|次は何?|行こう!",
        "太好了!|我们走吧!|好的.",
        "가.나.다",
        "정말요?|네!",
        "用C#!很好",
        "等等...好的",
    ),
    (
        "Er kam ggf. am 3. Mai. |Nr. 5 kam 2020. |Usw. |Im 19. Jahrhundert. ",
        "В 2020 г. он уехал. |См. рис. 5. |Это 5 тыс. руб. |Дорого.",
    ),
    ("P is not NP. |The proof is long.", "A degree in EE. |Next came work."),
    ("EE. UU. es grande. |Ud. sabe.", "p. ex. le chat. |Fin."),
    ("今天下雨。|我在家。|你呢？", "비가 온다. |집에 있다.", "मैं घर जाता हूँ। |तुम आओ।", "អរុណ។ |សួស្តី។"),
    ("کیا حال ہے؟ |میں ٹھیک ہوں۔", "هل تمطر؟ |نعم.", "Πού είσαι; |Εδώ.", "Բարև։ |Ողջույն։"),
]


@pytest.mark.parametrize("marked", [marked for row in SENTENCES for marked in row])
def test_sentences(marked):
    text, sentences = marked.replace("|", ""), [sentence.strip() for sentence in marked.split("|")]
    assert sentences_of(text) == sentences and sentence_bounds(text) == (len(sentences),) * 2
    assert holds(text, type="sentences", exactly=len(sentences))


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
    (0, [("I like C++ and C#.", "C"), ("3.5", "3"), ("3.5", "5"), ("1,250", "250"), ("👩‍💻", "👩"), ("1️⃣", "1")]),
    (0, [("don't", "don"), ("can't", "can"), ("it’s", "s"), ("The rivers", "river"), ("my_river", "river")]),
    (0, [("cafe\u0301", "cafe"), ("비행기", "비"), ("कि", "क"), ("Müller", "Muller"), ("วันนี้", "ฝน")]),
    (0, [("“yes”", '"')]),  # a single mark is meant as it is
    (1, [("a—b", "—"), ("Hi🙂there", "🙂"), ("👍🏽", "👍"), ("❤️", "❤")]),
    (1, [("I like C.", "C"), ("C/C++", "C++"), ("2,3", "3")]),
    (1, [("don’t", "don't"), ("don't", "don’t"), ("I'm", "I"), ("the river’s edge", "river"), ("l’eau", "eau")]),
    (1, [("the old\u00a0mill", "old mill"), ("well-known", "well"), ("Say “yes”", '"yes"')]),
    (1, [("cafe\u0301", "café"), ("café", "cafe\u0301"), ("Straße", "STRASSE"), ("ΣΊΣΥΦΟΣ", "σίσυφος")]),
    (1, [("今天下雨了", "雨"), ("今天下雨了", "下雨"), ("生成AIは", "AI"), ("ＧＯ now", "go")]),
    (1, [("비가 온다", "비"), ("AI는", "AI"), ("서울에서", "서울"), ("नमस्ते दुनिया", "दुनिया"), ("มี ฝน มาก", "ฝน")]),
    (1, [("שָׁלוֹם", "שלום"), ("שלום", "שָׁלוֹם"), ("مُحَمَّد", "محمد"), ("İstanbul'da", "istanbul")]),
    (1, [("for\u00adbid\u200bden", "forbidden")]),
    (
        2,
        [
            ("_river_ **river**", "river"),
            ("the old\nmill, the old  mill", "old mill"),
            ("$5, 5.", "5"),
            ("a b c", " "),
        ],
    ),
    (1, [("It is a.b, not axb", "a.b"), ("Take [note], t", "[note]")]),  # a phrase is not a pattern
]


@pytest.mark.parametrize(
    ("text", "phrase", "count"), [(*pair, count) for count, pairs in OCCURRENCES for pair in pairs]
)
def test_occurrences(text, phrase, count):
    assert occurrence_bounds(text, phrase) == (count, count)
    assert holds(text, type="keyword_count", word=phrase, exactly=count)
    assert holds(text, type="keywords", words=[phrase]) is (count > 0)
    assert holds(text, type="forbidden", words=[phrase]) is (count == 0)


def test_whether_a_part_of_a_thai_text_is_a_word_is_unknown():
    for kind in ("keywords", "forbidden"):
        with pytest.raises(CheckError, match="'ฝน'.*only a dictionary"):
            holds("วันนี้ฝนตก", type=kind, words=["ฝน"])
    with pytest.raises(CheckError, match="the number is between 0 and 1"):
        holds("วันนี้ฝนตก", type="keyword_count", word="ฝน", exactly=1)
    assert holds("วันนี้ฝนตก", type="keywords", words=["ฝน"], whole_words=False)
    assert holds("วันนี้ฝนตก rain", type="keywords", words=["ฝน", "rain"], need="any")  # one of them is certain
    assert not holds("วันนี้ฝนตก", type="keywords", words=["ฝน", "rain"])


@given(st.text(max_size=50), st.text(min_size=1, max_size=3))
def test_what_is_there_is_not_missing(text, word):
    there = holds(text, type="keywords", words=[word])
    assert there is not holds(text, type="forbidden", words=[word])
    assert there is holds(text, type="keyword_count", word=word, at_least=1)


_LATIN = st.text(st.sampled_from("aB1 .,'’-—–…!?“”()&@:/_\n\u00a0\u202fé\u00ad%") | st.sampled_from("http://x.y"))


@given(_LATIN)
def test_the_faster_pattern_of_words_is_equal(text):
    latin = words_of(text)
    fast, texts._is_latin = texts._is_latin, lambda text: False
    try:
        assert words_of(text) == latin
    finally:
        texts._is_latin = fast


CHARS = [
    "a",
    "a.",
    "'",
    "-",
    " ",
    "\n ",
    ". ",
    "…",
    "雨",
    "🙂",
    "ก",
    "가",
    "1,",
    "“",
    "http://",
    "a'",
    "\u0301",
    "…\n",
]


@pytest.mark.parametrize("char", CHARS)
def test_no_text_takes_more_than_linear_time(char):
    text = char * (60_000 // len(char))
    for phrase in ("old mill", "a", "雨", "ก", "가"):
        occurrence_bounds(text, phrase)
    assert word_bounds(text) and sentence_bounds(text)
