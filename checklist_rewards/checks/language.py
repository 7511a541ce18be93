"""A check on the language of a text. Requires langdetect (the extra `checks`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import field_validator
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.errors import CheckError

# The languages that langdetect 1.0.9 supports: ISO 639-1 codes, and Chinese in two scripts.
LANGUAGES = tuple(
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt "
    "ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw".split()
)


@register_check
class Language(Check):
    """Compares the most probable language of the whole text."""

    summary = "The text is written in this language (ISO 639-1 code)."
    example = {"language": "en"}
    type: Literal["language"] = "language"
    language: str

    @field_validator("language")
    @classmethod
    def _known(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(f"unknown language; allowed: {', '.join(LANGUAGES)}")
        return language

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """False for a text without letters, which has no language."""
        return language_of(text) == self.language


@lru_cache(maxsize=1024)
def language_of(text: str, seed: int = 0) -> str | None:
    """The most probable language of a text, or None if it has no letters.

    langdetect samples n-grams, so another `seed` may give another language for a short or mixed text.

    Raises:
        CheckError: If langdetect is not installed.
    """
    try:
        from langdetect.lang_detect_exception import ErrorCode, LangDetectException
    except ImportError:
        raise CheckError(
            "langdetect, which detects languages, is not installed (pip install 'checklist-rewards[checks]')"
        ) from None
    detector = _factory().create()
    detector.seed = seed
    detector.append(text)
    try:
        return detector.detect()
    except LangDetectException as error:
        if error.code == ErrorCode.CantDetectError:
            return None
        raise


@lru_cache(maxsize=1)
def _factory() -> Any:
    # A separate factory, because langdetect's own is shared by the whole process.
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    return factory
