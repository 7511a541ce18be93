"""Verifiable instructions as code checks, to convert their prompts to checklists: IFEval's 25 kinds
(arXiv:2311.07911), the 29 kinds that open-instruct adds for training, 55 of IFBench, and the functions of
RLVR-IFeval.

    >>> check_of_instruction("punctuation:no_comma", {}).holds("No, thanks.")
    False

The kinds are a table: the type and the fields of the check of each. "$name" is an argument of the instruction, and
`bound` names the arguments with a relation ("at least") and a number. Kinds that no other check expresses are in
`verifiable.py`.

In IFEval, an empty response follows no instruction. [`follows`] applies this rule; a check alone does not. Where
IFEval has a rule of its own (any line that starts with a hyphen is a bullet, the number of a list item is a sentence,
a keyword may occur inside a word), an option of the check selects it. Words, sentences and letters are counted by
IFEval's rules, which are for English: the option `ifeval`.

The packages `if-verifiable` and `lm-eval` are not used: they need data that NLTK downloads, and draw at random (the
language of a text; a letter in the place of a punctuation mark), so a verdict could not be repeated.

`tests/checks/test_ifeval_official.py` compares the checks with 14,178 official verdicts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from checklist_rewards.checks.base import CHECKS, Check, parsed_check
from checklist_rewards.checks.verifiable import VERIFIABLE, verifiable_spec, verifiable_words
from checklist_rewards.errors import ChecklistError
from checklist_rewards.validation import unknown

Spec = dict[str, Any]


def _row(kind: str, **fields: Any) -> Spec:
    return {"type": kind, **fields}


_COPY = {"type": "verifiable", "name": "copy:copy"}
_ENGLISH = _row("language", language="en")
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_IFEVAL = {
    "change_case:capital_word_frequency": _row("capital_words", bound=("capital_relation", "capital_frequency")),
    "change_case:english_capital": _row("all", checks=[_row("casing", casing="upper"), _ENGLISH]),
    "change_case:english_lowercase": _row("all", checks=[_row("casing", casing="lower"), _ENGLISH]),
    "combination:repeat_prompt": _row("repeats_prompt", prompt="$prompt_to_repeat"),
    "combination:two_responses": _row("two_responses"),
    "detectable_content:number_placeholders": _row("placeholders", at_least="$num_placeholders"),
    "detectable_content:postscript": _row("postscript", marker="$postscript_marker"),
    "detectable_format:constrained_response": _row(
        "keywords", words=_ANSWERS, need="any", whole_words=False, ignore_case=False
    ),
    "detectable_format:json_format": _row("json"),
    "detectable_format:multiple_sections": _row("sections", marker="$section_spliter", at_least="$num_sections"),
    "detectable_format:number_bullet_lists": _row("bullets", exactly="$num_bullets", loose=True),
    "detectable_format:number_highlighted_sections": _row("highlights", at_least="$num_highlights"),
    "detectable_format:title": _row("title", style="angled"),
    "keywords:existence": _row("keywords", words="$keywords", whole_words=False),
    "keywords:forbidden_words": _row("forbidden", words="$forbidden_words"),
    "keywords:frequency": _row("keyword_count", word="$keyword", whole_words=False, bound=("relation", "frequency")),
    "keywords:letter_frequency": _row("letters", letters="$letter", bound=("let_relation", "let_frequency")),
    "language:response_language": _row("language", language="$language"),
    "length_constraints:nth_paragraph_first_word": _row(
        "all",
        checks=[
            _row("paragraphs", exactly="$num_paragraphs"),
            _row("paragraph_start", paragraph="$nth_paragraph", word="$first_word"),
        ],
    ),
    "length_constraints:number_paragraphs": _row("paragraphs", separator="***", exactly="$num_paragraphs"),
    "length_constraints:number_sentences": _row("sentences", list_numbers=True, bound=("relation", "num_sentences")),
    "length_constraints:number_words": _row("words", bound=("relation", "num_words")),
    "punctuation:no_comma": _row("letters", letters=",", exactly=0),
    "startend:end_checker": _row("ends", phrase="$end_phrase"),
    "startend:quotation": _row("quoted"),
}

KINDS: Mapping[str, Spec] = {
    **_IFEVAL,
    **{name: _row("verifiable", name=name) for name in VERIFIABLE},
    # more kinds of open-instruct
    "copy:copying_simple": _COPY,
    "new:copy_span_idx": _COPY,
    "keywords:word_once": _row("keyword_count", word="$keyword", whole_words=False, exactly=1),
    "keywords:word_count_different_numbers": _IFEVAL["keywords:frequency"],
    "keywords:exclude_word_harder": _row("forbidden", words=["$spaced"], whole_words=False, ignore_case=False),
    "paragraphs:paragraphs": _row("paragraphs", separator="***", exactly=2),
    "paragraphs:paragraphs2": _row("paragraphs", exactly=2),
    "punctuation:punctuation_dot": _row("letters", letters=".", exactly=0),
    "punctuation:punctuation_exclamation": _row("letters", letters="!", exactly=0),
    "count:lowercase_counting": _row("regex", pattern=r"\b[a-z]+\b", at_most="$N"),
    "letters:letter_counting": _row("regex", pattern="[A-Za-z]", bound=("relation", "N")),
    "letters:letter_counting2": _IFEVAL["keywords:letter_frequency"],
    "count:count_increment_word": _row(
        "all",
        checks=[
            _row("keyword_count", word="$keyword1", whole_words=False, exactly=1),
            _row("keyword_count", word="$keyword2", whole_words=False, exactly=2),
        ],
    ),
    # the functions of RLVR-IFeval
    "verify_keywords": _row("keywords", words="$keyword_list", whole_words=False),
    "verify_keyword_frequency": _row("keyword_count", word="$word", exactly="$N"),
    "validate_forbidden_words": _row("forbidden", words="$forbidden_words"),
    "verify_letter_frequency": _row("regex", pattern="$escaped", exactly="$N"),
    "validate_response_language": _row("language", language="$language"),
    "verify_paragraph_count": _row("paragraphs", separator="* * *", exactly="$N"),
    "validate_word_constraint": _row("words", bound=("quantifier", "N")),
    "verify_sentence_constraint": _row("sentences", bound=("quantifier", "N")),
    "verify_postscript": _row("postscript", marker="$postscript_marker"),
    "validate_placeholders": _row("placeholders", at_least="$N"),
    "verify_bullet_points": _row("bullets", exactly="$N", loose=True),
    "validate_title": _row("title", style="angled"),
    "validate_highlighted_sections": _row("highlights", at_least="$N"),
    "validate_json_format": _row("json"),
    "validate_repeat_prompt": _row("repeats_prompt", prompt="$original_prompt"),
    "validate_two_responses": _row("two_responses"),
    "validate_uppercase": _row("casing", casing="upper"),
    "validate_lowercase": _row("casing", casing="lower"),
    "validate_frequency_capital_words": _row("capital_words", bound=("quantifier", "N")),
    "validate_end": _row("ends", phrase="$end_phrase"),
    "validate_quotation": _row("quoted"),
    "validate_no_commas": _row("letters", letters=",", exactly=0),
}
"""All known kinds of instructions, as rows: the type and the fields of their checks."""

_COMPUTED: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "new:copy_span_idx": lambda k: {"prompt_to_repeat": k["prompt_to_repeat"][k["n_start"] : k["n_end"]]},
    "keywords:exclude_word_harder": lambda k: {"spaced": f" {k['keyword'].strip()} "},
    "verify_letter_frequency": lambda k: {"escaped": re.escape(k["letter"])},
}
"""Arguments of rows that are computed from those of the instruction."""
_DEFAULTS = {"quantifier": "exactly"}
"""Arguments that an instruction may omit."""
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


def _filled(row: Any, given: Mapping[str, Any]) -> Any:
    """A row, or a value in it, with the arguments of an instruction in their places."""
    if isinstance(row, str):
        return given[row[1:]] if row.startswith("$") else row
    if isinstance(row, list):
        return [_filled(entry, given) for entry in row]
    if not isinstance(row, Mapping):
        return row
    if row["type"] == "verifiable":
        return verifiable_spec(row["name"], given)
    fields: Spec = {}
    for name, value in row.items():
        if name != "bound":
            fields[name] = _filled(value, given)
            continue
        relation, number = value
        fields |= _bound(given[relation], given[number])
    return fields | ({"ifeval": True} if "ifeval" in CHECKS[row["type"]].model_fields else {})


def spec_of_instruction(instruction: str, kwargs: Mapping[str, Any] | None) -> Spec:
    """The specification of the check of one instruction.

    Args:
        instruction (`str`): IFEval's `instruction_id`, such as "length_constraints:number_words".
        kwargs (mapping, *optional*): IFEval's `kwargs`. None, for all or for one of them, means that it is absent.

    Raises:
        ChecklistError: If the instruction is unknown, or an argument is missing or invalid.
    """
    if instruction not in KINDS:
        raise ChecklistError(
            unknown("IFEval instruction", instruction, KINDS, "checklist_rewards.checks.ifeval.KINDS")
        )
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}
    arguments = {n: int(v) if isinstance(v, float) and v.is_integer() else v for n, v in given.items()}  # from Parquet
    try:
        computed = _COMPUTED[instruction](arguments) if instruction in _COMPUTED else {}
        spec = _filled(KINDS[instruction], _DEFAULTS | arguments | computed)
        parsed_check(json.dumps(spec))
    except KeyError as error:
        raise ChecklistError(
            f"instruction {instruction!r}: the argument {error} is missing; got {arguments!r}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ChecklistError(f"instruction {instruction!r}: {error}.") from None
    return spec


def check_of_instruction(instruction: str, kwargs: Mapping[str, Any] | None) -> Check:
    """The check of one instruction; see [`spec_of_instruction`]."""
    return parsed_check(json.dumps(spec_of_instruction(instruction, kwargs)))


def quantity(bounds: Spec, thing: str) -> str:
    """Bounds in words: "at least 3 hashtags", "exactly 1 hashtag"."""
    if "at_least" in bounds and "at_most" in bounds:
        return f"between {bounds['at_least']} and {bounds['at_most']} {thing}"
    bound = next(bound for bound in ("exactly", "at_least", "at_most") if bound in bounds)
    if bounds[bound] == 1:
        thing = re.sub(r"(?:(?<=sh)e)?s\b", "", thing, count=1)
    return f"{bound.replace('_', ' ')} {bounds[bound]} {thing}"


def _all_of(words: Any, last: str) -> str:
    quoted = [f'"{word}"' for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


_QUESTIONS: dict[str, Callable[[Spec], str]] = {
    "words": lambda s: f"have {quantity(s, 'words')}",
    "sentences": lambda s: f"have {quantity(s, 'sentences')}",
    "paragraphs": lambda s: f"have {quantity(s, 'paragraphs')}",
    "bullets": lambda s: f"have {quantity(s, 'bullet points')}",
    "highlights": lambda s: f"highlight {quantity(s, 'passages')} with asterisks",
    "sections": lambda s: f'have {quantity(s, "sections")} marked with "{s["marker"]}"',
    "placeholders": lambda s: f"have {quantity(s, 'placeholders')} in square brackets",
    "capital_words": lambda s: f"have {quantity(s, 'words in capital letters')}",
    "keywords": lambda s: f"contain {_all_of(s['words'], 'or' if s.get('need') == 'any' else 'and')}",
    "forbidden": lambda s: f"do without {_all_of(s['words'], 'and')}",
    "keyword_count": lambda s: f'contain "{s["word"]}" {quantity(s, "times")}',
    "letters": lambda s: f'contain "{s["letters"]}" {quantity(s, "times")}',
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
    "regex": lambda s: f"match {s['pattern']!r} {quantity(s, 'times')}",
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
