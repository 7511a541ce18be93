"""Verifiable instructions as code checks, to convert their prompts to checklists: IFEval's 25 kinds
(arXiv:2311.07911), the 29 kinds that open-instruct adds for training, 55 of IFBench, and the functions of
RLVR-IFeval.

    >>> check_of_instruction("punctuation:no_comma", {}).holds("No, thanks.")
    False

In IFEval, an empty response follows no instruction. [`follows`] applies this rule; a check alone does not. Where
IFEval has a rule of its own (any line that starts with a hyphen is a bullet, the number of a list item is a sentence,
a keyword may occur inside a word), an option of the check selects it. Words, sentences and letters are counted by
IFEval's rules, which are for English: the option `ifeval`.

`tests/checks/test_ifeval_official.py` compares the checks with 14,178 official verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from checklist_rewards.checks.base import CHECKS, Check, check_of
from checklist_rewards.checks.verifiable import VERIFIABLE, verifiable_spec, verifiable_words
from checklist_rewards.errors import ChecklistError

Spec = dict[str, Any]

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def _spec(kind: str, **fields: Any) -> Spec:
    own = {"ifeval": True} if "ifeval" in CHECKS[kind].model_fields else {}
    return {"type": kind, **fields, **own}


_ENGLISH: Spec = _spec("language", language="en")
_RELATIONS: dict[str, Callable[[int], dict[str, int]]] = {
    "at least": lambda number: {"at_least": number},
    "at most": lambda number: {"at_most": number},
    "less than": lambda number: {"at_most": number - 1},
    "more than": lambda number: {"at_least": number + 1},
    "exactly": lambda number: {"exactly": number},
    "around": lambda number: {  # a tenth more or less, and at least one
        "at_least": max(number - max(round(number / 10), 1), 0),
        "at_most": number + max(round(number / 10), 1),
    },
}
"""The relations and quantifiers of IFEval and its successors, as bounds."""


def _bound(relation: Any, number: Any) -> dict[str, int]:
    """The bound of a relation, in any spelling ("At least", "at_least").

    Raises:
        ValueError: If the relation is unknown.
        TypeError: If the number is not a whole number.
    """
    name = " ".join(re.split(r"[\W_]+", relation.strip().lower())) if isinstance(relation, str) else relation
    if not isinstance(name, str) or name not in _RELATIONS:
        raise ValueError(f"unknown relation {relation!r}; allowed: {', '.join(_RELATIONS)}")
    if isinstance(number, float) and number.is_integer():  # a column with missing values in pandas
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"the number must be a whole number, got {number!r:.60}")
    return _RELATIONS[name](number)


def _cased(casing: str) -> Spec:
    return _spec("all", checks=[_spec("casing", casing=casing), _ENGLISH])


def _nth_paragraph(k: Mapping[str, Any]) -> Spec:
    count = _spec("paragraphs", exactly=k["num_paragraphs"])
    return _spec("all", checks=[count, _spec("paragraph_start", paragraph=k["nth_paragraph"], word=k["first_word"])])


_SPECS: dict[str, Callable[[Mapping[str, Any]], Spec]] = {
    "change_case:capital_word_frequency": lambda k: _spec(
        "capital_words", **_bound(k["capital_relation"], k["capital_frequency"])
    ),
    "change_case:english_capital": lambda k: _cased("upper"),
    "change_case:english_lowercase": lambda k: _cased("lower"),
    "combination:repeat_prompt": lambda k: _spec("repeats_prompt", prompt=k["prompt_to_repeat"]),
    "combination:two_responses": lambda k: _spec("two_responses"),
    "detectable_content:number_placeholders": lambda k: _spec("placeholders", at_least=k["num_placeholders"]),
    "detectable_content:postscript": lambda k: _spec("postscript", marker=k["postscript_marker"]),
    "detectable_format:constrained_response": lambda k: _spec(
        "keywords", words=_ANSWERS, need="any", whole_words=False, ignore_case=False
    ),
    "detectable_format:json_format": lambda k: _spec("json"),
    "detectable_format:multiple_sections": lambda k: _spec(
        "sections", marker=k["section_spliter"], at_least=k["num_sections"]
    ),
    "detectable_format:number_bullet_lists": lambda k: _spec("bullets", exactly=k["num_bullets"], loose=True),
    "detectable_format:number_highlighted_sections": lambda k: _spec("highlights", at_least=k["num_highlights"]),
    "detectable_format:title": lambda k: _spec("title", style="angled"),
    "keywords:existence": lambda k: _spec("keywords", words=k["keywords"], whole_words=False),
    "keywords:forbidden_words": lambda k: _spec("forbidden", words=k["forbidden_words"]),
    "keywords:frequency": lambda k: _spec(
        "keyword_count", word=k["keyword"], whole_words=False, **_bound(k["relation"], k["frequency"])
    ),
    "keywords:letter_frequency": lambda k: _spec(
        "letters", letters=k["letter"], **_bound(k["let_relation"], k["let_frequency"])
    ),
    "language:response_language": lambda k: _spec("language", language=k["language"]),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "length_constraints:number_paragraphs": lambda k: _spec(
        "paragraphs", separator="***", exactly=k["num_paragraphs"]
    ),
    "length_constraints:number_sentences": lambda k: _spec(
        "sentences", list_numbers=True, **_bound(k["relation"], k["num_sentences"])
    ),
    "length_constraints:number_words": lambda k: _spec("words", **_bound(k["relation"], k["num_words"])),
    "punctuation:no_comma": lambda k: _spec("letters", letters=",", exactly=0),
    "startend:end_checker": lambda k: _spec("ends", phrase=k["end_phrase"]),
    "startend:quotation": lambda k: _spec("quoted"),
}

INSTRUCTIONS = tuple(_SPECS)
"""IFEval's names of the 25 kinds of instructions."""


def _quantified(k: Mapping[str, Any]) -> dict[str, int]:
    return _bound(k.get("quantifier", "exactly"), k["N"])


def _copies(k: Mapping[str, Any]) -> Spec:
    return verifiable_spec("copy:copy", {"prompt_to_repeat": k["prompt_to_repeat"]})


_TRAINING: dict[str, Callable[[Mapping[str, Any]], Spec]] = {
    **{name: lambda k, name=name: verifiable_spec(name, dict(k)) for name in VERIFIABLE},  # type: ignore[misc]
    "copy:copying_simple": _copies,
    "new:copy_span_idx": lambda k: _copies({"prompt_to_repeat": k["prompt_to_repeat"][k["n_start"] : k["n_end"]]}),
    "keywords:word_once": lambda k: _spec("keyword_count", word=k["keyword"], whole_words=False, exactly=1),
    "keywords:word_count_different_numbers": lambda k: _SPECS["keywords:frequency"](k),
    "keywords:exclude_word_harder": lambda k: _spec(
        "forbidden", words=[f" {k['keyword'].strip()} "], whole_words=False, ignore_case=False
    ),
    "paragraphs:paragraphs": lambda k: _spec("paragraphs", separator="***", exactly=2),
    "paragraphs:paragraphs2": lambda k: _spec("paragraphs", exactly=2),
    "punctuation:punctuation_dot": lambda k: _spec("letters", letters=".", exactly=0),
    "punctuation:punctuation_exclamation": lambda k: _spec("letters", letters="!", exactly=0),
    "count:lowercase_counting": lambda k: _spec("regex", pattern=r"\b[a-z]+\b", at_most=k["N"]),
    "letters:letter_counting": lambda k: _spec("regex", pattern="[A-Za-z]", **_bound(k["relation"], k["N"])),
    "letters:letter_counting2": lambda k: _SPECS["keywords:letter_frequency"](k),
    "count:count_increment_word": lambda k: _spec(
        "all",
        checks=[
            _spec("keyword_count", word=k[key], whole_words=False, exactly=times)
            for key, times in (("keyword1", 1), ("keyword2", 2))
        ],
    ),
}
_FUNCTIONS: dict[str, Callable[[Mapping[str, Any]], Spec]] = {
    "verify_keywords": lambda k: _spec("keywords", words=k["keyword_list"], whole_words=False),
    "verify_keyword_frequency": lambda k: _spec("keyword_count", word=k["word"], exactly=k["N"]),
    "validate_forbidden_words": lambda k: _spec("forbidden", words=k["forbidden_words"]),
    "verify_letter_frequency": lambda k: _spec("regex", pattern=re.escape(k["letter"]), exactly=k["N"]),
    "validate_response_language": lambda k: _spec("language", language=k["language"]),
    "verify_paragraph_count": lambda k: _spec("paragraphs", separator="* * *", exactly=k["N"]),
    "validate_word_constraint": lambda k: _spec("words", **_quantified(k)),
    "verify_sentence_constraint": lambda k: _spec("sentences", **_quantified(k)),
    "verify_postscript": lambda k: _spec("postscript", marker=k["postscript_marker"]),
    "validate_placeholders": lambda k: _spec("placeholders", at_least=k["N"]),
    "verify_bullet_points": lambda k: _spec("bullets", exactly=k["N"], loose=True),
    "validate_title": lambda k: _spec("title", style="angled"),
    "validate_highlighted_sections": lambda k: _spec("highlights", at_least=k["N"]),
    "validate_json_format": lambda k: _spec("json"),
    "validate_repeat_prompt": lambda k: _spec("repeats_prompt", prompt=k["original_prompt"]),
    "validate_two_responses": lambda k: _spec("two_responses"),
    "validate_uppercase": lambda k: _spec("casing", casing="upper"),
    "validate_lowercase": lambda k: _spec("casing", casing="lower"),
    "validate_frequency_capital_words": lambda k: _spec("capital_words", **_quantified(k)),
    "validate_end": lambda k: _spec("ends", phrase=k["end_phrase"]),
    "validate_quotation": lambda k: _spec("quoted"),
    "validate_no_commas": lambda k: _spec("letters", letters=",", exactly=0),
}
KINDS: Mapping[str, Callable[[Mapping[str, Any]], Spec]] = {**_SPECS, **_TRAINING, **_FUNCTIONS}
"""The specification of the check of every instruction that is known, from its arguments."""


def spec_of_instruction(instruction: str, kwargs: Mapping[str, Any]) -> Spec:
    """The specification of the check of one instruction; see [`check_of_instruction`]."""
    return _checked(instruction, kwargs)[0]


def check_of_instruction(instruction: str, kwargs: Mapping[str, Any] | None) -> Check:
    """Create the check of one instruction.

    Args:
        instruction (`str`): IFEval's `instruction_id`, such as "length_constraints:number_words".
        kwargs (mapping, *optional*): IFEval's `kwargs`. None, for all or for one of them, means that it is absent.

    Raises:
        ChecklistError: If the instruction is unknown, or an argument is missing or invalid.
    """
    return _checked(instruction, kwargs)[1]


def _checked(instruction: str, kwargs: Mapping[str, Any] | None) -> tuple[Spec, Check]:
    if instruction not in KINDS:
        raise ChecklistError(f"unknown IFEval instruction {instruction!r}; allowed: {', '.join(KINDS)}.")
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}
    arguments = {n: int(v) if isinstance(v, float) and v.is_integer() else v for n, v in given.items()}  # from Parquet
    try:
        spec = KINDS[instruction](arguments)
        return spec, check_of(spec)
    except KeyError as error:
        raise ChecklistError(
            f"instruction {instruction!r}: the argument {error} is missing; got {arguments!r}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ChecklistError(f"instruction {instruction!r}: {error}.") from None


def _quantity(spec: Spec, thing: str) -> str:
    if "at_least" in spec and "at_most" in spec:
        return f"between {spec['at_least']} and {spec['at_most']} {thing}"
    if "exactly" in spec:
        return f"exactly {spec['exactly']} {thing}"
    return f"at least {spec['at_least']} {thing}" if "at_least" in spec else f"at most {spec['at_most']} {thing}"


def _all_of(words: Any, last: str) -> str:
    quoted = [f'"{word}"' for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


_QUESTIONS: dict[str, Callable[[Spec], str]] = {
    "words": lambda s: f"have {_quantity(s, 'words')}",
    "sentences": lambda s: f"have {_quantity(s, 'sentences')}",
    "paragraphs": lambda s: f"have {_quantity(s, 'paragraphs')}",
    "bullets": lambda s: f"have {_quantity(s, 'bullet points')}",
    "highlights": lambda s: f"highlight {_quantity(s, 'passages')} with asterisks",
    "sections": lambda s: f'have {_quantity(s, "sections")} marked with "{s["marker"]}"',
    "placeholders": lambda s: f"have {_quantity(s, 'placeholders')} in square brackets",
    "capital_words": lambda s: f"have {_quantity(s, 'words in capital letters')}",
    "keywords": lambda s: f"contain {_all_of(s['words'], 'or' if s.get('need') == 'any' else 'and')}",
    "forbidden": lambda s: f"do without {_all_of(s['words'], 'and')}",
    "keyword_count": lambda s: f'contain "{s["word"]}" {_quantity(s, "times")}',
    "letters": lambda s: f'contain "{s["letters"]}" {_quantity(s, "times")}',
    "language": lambda s: f"use only the language {s['language']!r}",
    "json": lambda s: "consist of valid JSON only",
    "title": lambda s: "have a title in double angular brackets",
    "postscript": lambda s: f'end with a postscript that starts with "{s["marker"]}"',
    "quoted": lambda s: "stand in double quotation marks as a whole",
    "ends": lambda s: f'end with "{s["phrase"]}"',
    "repeats_prompt": lambda s: "begin by repeating the request word for word",
    "two_responses": lambda s: "give two different answers, separated by six asterisks",
    "paragraph_start": lambda s: f'begin paragraph {s["paragraph"]} with "{s["word"]}"',
    "casing": lambda s: f"use {'capital' if s['casing'] == 'upper' else 'small'} letters only",
    "regex": lambda s: f"match {s['pattern']!r} {_quantity(s, 'times')}",
    "verifiable": lambda s: verifiable_words(s["name"], s["arguments"]),
    "all": lambda s: " and ".join(_QUESTIONS[inner["type"]](inner) for inner in s["checks"]),
}


def question_of_instruction(spec: Mapping[str, Any]) -> str:
    """The specification of a check of this module as a question, for reports and for people.

    >>> question_of_instruction({"type": "words", "at_least": 300})
    'Does the response have at least 300 words?'
    """
    return f"Does the response {_QUESTIONS[spec['type']](dict(spec))}?"


def follows(check: Check, response: str) -> bool:
    """IFEval's strict verdict: like `check.holds`, but False for an empty response."""
    return bool(response.strip()) and check.holds(response)
