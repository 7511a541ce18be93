import sys

import pytest

from checklist_rewards.checks.builtin import LANGUAGES, language_of
from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

FRENCH = "Le chat dort sur la table pendant que la pluie tombe sur le jardin."


def test_the_language_of_a_text():
    pytest.importorskip("langdetect")
    assert holds(FRENCH, type="language", language="fr") and not holds(FRENCH, type="language", language="en")
    assert not holds("12 + 30 = 42!", type="language", language="en")  # no letters, no language
    assert language_of("") is None


def test_the_same_text_has_the_same_language_whatever_was_drawn_before():
    langdetect = pytest.importorskip("langdetect")
    text = "SHELDON: CLEVER, ANALYTICAL, SCIENTIST, QUIRKY, UNIQUE."
    seen = set()
    for seed in range(5):
        langdetect.DetectorFactory.seed = seed  # somebody else's
        langdetect.detect(FRENCH)
        language_of.cache_clear()
        seen.add(language_of(text))
    langdetect.DetectorFactory.seed = None
    assert len(seen) == 1 and len({language_of(text, seed) for seed in range(20)}) > 1


def test_the_languages_are_those_of_the_library():
    detector_factory = pytest.importorskip("langdetect.detector_factory")
    detector_factory.init_factory()
    assert sorted({*LANGUAGES} - {"zh"}) == sorted(detector_factory._factory.get_lang_list())


def test_without_the_library_there_is_no_answer_but_the_name_of_the_extra(monkeypatch):
    language_of.cache_clear()
    monkeypatch.setitem(sys.modules, "langdetect.lang_detect_exception", None)
    with pytest.raises(CheckError, match=r"pip install 'checklist-rewards\[checks\]'"):
        holds(FRENCH, type="language", language="fr")
