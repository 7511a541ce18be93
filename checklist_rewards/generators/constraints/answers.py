"""Requirements on what the whole answer is: yes or no, one of several labels, a number or a letter alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checklist_rewards.generators.constraints.reading import (
    PromptText,
    Requirement,
    conditional,
    negated,
    one_line,
    pattern,
    regex_check,
    required,
)
from checklist_rewards.generators.constraints.strings import one_of

_YES_NO = pattern(
    r"""\b(?:answer|respond|reply|say|output|return)\b[^.;\n]{0,40}?(?P<only>\bonly\b|\bjust\b|\bsimply\b|\bsingle\b
    |\bone word\b)?[^.;\n]{0,30}?\b(?:a )?(?P<words>yes or no|yes/no|true or false|true/false)\b(?P<after> only)?"""
)


def yes_or_no(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """An answer with yes or no, or with true or false."""
    for match in _YES_NO.finditer(view.text):
        if conditional(view.before(match.start())):
            continue
        words = ("true", "false") if "true" in match["words"] else ("yes", "no")
        only = match["only"] or match["after"]
        check = regex_check(rf"(?i)\A\W*(?:{'|'.join(words)})" + (r"\W*\Z" if only else r"\b"), exactly=1)
        question = f"Does the response {'consist only of' if only else 'start with'} {' or '.join(words)}?"
        yield required(match.start(), match.end(), check, question)


_CHOICES = pattern(
    r"""\b(?:one of|from|between|either of) (?:the |these )?(?:following|options|choices|phrases|answers|labels
    |categories|
    below)[a-z ]{0,40}:\s*\n(?P<lines>(?:[ \t]*(?:[-*•]|\d+[.)]|\([a-d]\))?[ \t]*[^\n]{1,80}(?:\n|$)){2,8})"""
)
_INLINE_CHOICES = pattern(
    r"""\b(?:one of|either of|from|exactly one of)\b[^.:\n\x01]{0,60}\b(?:options|choices|phrases|answers|responses|
    sentences)\b[^.:\n\x01]{0,40}:[ \t]*(?P<list>[^\n\x01]{5,300})"""
)
_ANSWERS = re.compile(r"\b(?:answer|respond|reply|response|output|contain|say|write|choose|select|pick)\b")


def choices(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """One of several answers without quotation marks, in lines or in a row."""
    if match := _CHOICES.search(view.text):
        before = view.before(match.start(), 160) + match.group()[:40]
        lines = view.prompt[slice(*match.span("lines"))].split("\n")
        answers = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s*", "", line).strip() for line in lines]
        answers = answers[: answers.index("")] if "" in answers else answers
        if len(answers) > 1 and _ANSWERS.search(before) and not negated(before):
            yield required(match.start(), match.end(), one_of(answers))
    if match := _INLINE_CHOICES.search(view.text):
        before = view.before(match.start())
        pieces = re.findall(r"[^.;,\[\]()]+\.?", view.prompt[slice(*match.span("list"))])
        answers = [piece.strip() for piece in pieces if piece.strip()]
        first = answers[0].split()[0] if answers else ""
        same = [answer.split()[0] == first and len(answer.split()) <= 8 for answer in answers]
        answers = answers[: same.index(False)] if False in same else answers
        if len(answers) > 1 and not negated(before) and not conditional(before):
            yield required(match.start(), match.end(), one_of(answers))


_VERB = r"(?:answer|respond|reply|output|return|print|say|state|give|provide|write)(?:s|ing)?"
_WHAT = one_line(
    r"""(?:(?:the|a|an|your|one|single|final|correct|numeric(?:al)?|whole|resulting|option|answer)\s+)*
    (?P<what>number|integer|digit|numeral|numerical value|letter)s?"""
)
_ONE_THING = pattern(
    rf"""\b{_VERB}\b(?:\s+(?:me|back|with|your answer|the answer|as|in))*\s+(?:only|just|nothing but|solely|simply)\s+
    (?:with\s+|as\s+)?{_WHAT}(?P<plain>(?:\s+of (?:the|your) (?:correct |right |chosen |best )?(?:option|answer|choice
    |result))?)
    (?=\s*(?:[.,;:!?\n]|$|and nothing|without|\())
    |\bonly\s+{_VERB.replace("(?:s|ing)?", "")}\s+(?:with\s+)?{_WHAT.replace("?P<what>", "?P<what2>")}
    (?=\s*(?:[.,;:!?\n]|$|and nothing))
    |\b{_VERB}\b(?:\s+(?:with|as|your answer as|the answer as))*\s+{_WHAT.replace("?P<what>", "?P<what3>")}\s+
    (?:only\b|alone\b|and nothing (?:else|more)\b)"""
)
_OF_CODE = re.compile(
    r"\b(?:functions?|scripts?|programs?|code|python|java|javascript|sql|excel|query|method|regex|list|string|array"
    r"|how (?:do|can|to))\b"
)
_NUMBER_ALONE = r"\A\s*[-+−]?[$€£]?\d[\d,. ]*%?\.?\s*\Z"
_ALONE = {
    "letter": (r"\A\W*[A-Za-z]\W*\Z", "a single letter"),
    "digit": (r"\A\W*\d\W*\Z", "a single digit"),
    "integer": (r"\A\s*[-+−]?\d[\d,]*\.?\s*\Z", "a whole number"),
}


def one_thing(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """A number or a letter and nothing else: "Respond with the number only."."""
    for match in _ONE_THING.finditer(view.text):
        before = view.before(match.start())
        around = view.text[view.start_of_clause(match.start()) : view.end_of_clause(match.end())]
        if negated(before) or conditional(before) or _OF_CODE.search(around):
            continue
        what = match["what"] or match["what2"] or match["what3"]
        expression, thing = _ALONE.get(what, (_NUMBER_ALONE, "a number"))
        question = f"Does the response consist only of {thing}?"
        yield required(match.start(), match.end(), regex_check(expression, exactly=1), question)


_LABELS = pattern(
    r"""\b(?P<verb>answer|respond|reply|choose|select|pick|classify|label|rate|categori[sz]e|output|return|say)\b
    (?P<way>[^.:;\n\x01]{0,60}?)
    (?:\b(?:exactly |only )?one of(?: the| these)?(?: following)?(?: [a-z]+)?:?\s+|\bonly (?:with|as)\s+
    |\bas (?:either\s+)?|\bwith either\s+|\beither\s+)
    (?P<list>[a-z0-9][\w-]*(?:(?:\s*,\s*|\s*/\s*)[a-z0-9][\w-]*){0,8}?(?:\s*,)?(?:\s+(?:or|and)\s+|\s*,\s*)
    [a-z0-9][\w-]*)(?=\s*(?:[.;:!?\n)]|$))"""
)
_BETWEEN_LABELS = re.compile(r"\s*(?:,\s*(?:or|and)\s+|,\s*|/|\s(?:or|and)\s+)\s*")
_PICKS = ("choose", "select", "pick")
_SORTS = ("classify", "label", "categorize", "categorise", "rate")
_NO_LABELS = frozenset("yes no true false it this that them these those".split())


def labels(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """One of several words without quotation marks: "Answer with one of the following: positive, negative."."""
    for match in _LABELS.finditer(view.text):
        before = view.before(match.start())
        if " as " in match.group() and "either" not in match.group() and match["verb"] not in _SORTS:
            continue
        words = _BETWEEN_LABELS.split(view.prompt[slice(*match.span("list"))].strip())
        if negated(before) or conditional(before) or len(words) < 2:
            continue
        if match["verb"] in _PICKS and view.text[match.end() :].strip(" .!)\n"):
            continue  # the choice may be the topic of a text
        if any(not word or word.lower() in _NO_LABELS for word in words):
            continue
        only = "only" in match.group()
        if only:
            exact = "|".join(map(re.escape, words))
            check = regex_check(rf"(?i)\A\W*(?:{exact})\W*\Z", exactly=1)
            question = f"Does the response consist only of {', '.join(words[:-1])} or {words[-1]}?"
            yield required(match.start(), match.end(), check, question)
        else:
            check = {"type": "keywords", "words": words, "need": "any"}
            question = f"Does the response contain one of the answers {', '.join(words[:-1])} or {words[-1]}?"
            yield required(match.start(), match.end(), check, question)
