import sys

import pytest

from checklist_rewards.checks.builtin import language_of
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

FRENCH = "Le chat dort sur la table pendant que la pluie tombe sur le jardin."


def test_the_language_of_a_text():
    pytest.importorskip("langdetect")
    assert holds(FRENCH, type="language", language="fr") and not holds(FRENCH, type="language", language="en")
    assert not holds("12 + 30 = 42!", type="language", language="en")  # no letters, no language
    assert language_of("") is None


BY_SCRIPT = [
    ("今天下雨，我在家。", "zh"),
    ("這裡的天氣很好，我們去學校學習漢語。", "zh-tw"),
    ("这里的天气很好，我们去学校学习汉语。", "zh-cn"),
    ("我用 Python 写代码", "zh-cn"),
    ("東京都の天気", "ja"),
    ("안녕하세요", "ko"),
    ("สวัสดี", "th"),
]


@pytest.mark.parametrize(("text", "language"), BY_SCRIPT)
def test_the_script_decides_where_it_has_one_language(text, language, monkeypatch):
    monkeypatch.setitem(sys.modules, "langdetect.lang_detect_exception", None)
    others = {"en", "ko", "ja", "ru", "hi", "th"} - {language}
    if language in ("zh-cn", "zh-tw"):
        assert holds(text, type="language", language="zh")
        others |= {"zh-cn", "zh-tw"} - {language}
    assert holds(text, type="language", language=language)
    assert not [other for other in others if holds(text, type="language", language=other)]


def test_chinese_without_a_sign_of_its_script_is_chinese_and_nothing_more():
    assert holds("今天下雨", type="language", language="zh")
    with pytest.raises(CheckError, match="use 'zh' for both"):
        holds("今天下雨", type="language", language="zh-tw")


SHORT = [("ok", "en"), ("ok", "sk"), ("да", "ru"), ("नमस्ते", "hi"), ("سلام", "fa")]


@pytest.mark.parametrize(("text", "language"), SHORT)
def test_a_text_is_too_short_to_tell_languages_of_one_script(text, language):
    with pytest.raises(CheckError, match="letters, too few to tell its language; 30 are required"):
        holds(text, type="language", language=language)
    assert not holds(text, type="language", language="ja")  # of another script in any case
    assert isinstance(holds(text, type="language", language=language, ifeval=True), bool)


def test_the_same_text_has_the_same_language_whatever_was_drawn_before():
    langdetect = pytest.importorskip("langdetect")
    text = "SHELDON: CLEVER, ANALYTICAL, SCIENTIST, QUIRKY, UNIQUE."
    seen = set()
    for seed in range(2):
        langdetect.DetectorFactory.seed = seed  # somebody else's
        langdetect.detect(FRENCH)
        language_of.cache_clear()
        seen.add(language_of(text))
    langdetect.DetectorFactory.seed = None
    assert len(seen) == 1


def test_without_the_library_there_is_no_answer_but_the_name_of_the_extra(monkeypatch):
    language_of.cache_clear()
    monkeypatch.setitem(sys.modules, "langdetect.lang_detect_exception", None)
    with pytest.raises(CheckError, match=r"pip install 'checklist-rewards\[checks\]'"):
        holds(FRENCH, type="language", language="fr")
