"""Requirements about given words: keywords, forbidden words, the start and the end, options, keys of JSON.

A rule starts from the quoted strings of an enumeration. The words before and after them give their role. Between a
verb and its strings only words of a fixed list may stand, so "use the word 'rain'" is read and "use a synonym of the
word 'rain'" is not. Keywords without quotation marks are read after "the word" and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from checklist_rewards.generators.constraints.amounts import NUMBER, number
from checklist_rewards.generators.constraints.clauses import DETERMINERS, words_of
from checklist_rewards.generators.constraints.clauses import RESPONSE as NOUNS
from checklist_rewards.generators.constraints.counting import FUNCTION_WORDS, SECTION_MARK, regex_check
from checklist_rewards.generators.constraints.filtering import A_PART, PART, RESPONSE, Found, passive, polarity
from checklist_rewards.generators.constraints.reading import Clause, Spec, Strings, one_line, pattern

_LONGEST = 300
"""Number of characters of a string that can be a keyword or a phrase."""

_BETWEEN = one_line(
    r"""(?:[\s,:(\[]+(?:the|all|of|both|these|those|each|any|at least one|at least|one|either|following|specific|exact|
    exactly|given|required|two|three|four|five|six|\d|also|and|or|in|into|your|my|this|that|response|answer|story|essay
    |text|poem|letter|reply|output|email|article|summary|post|blog|song|it|somewhere|entire|whole|explicitly|always|
    directly|please|the use of|single|english|important|extra|certain|some|other|are|is|be|to|will|here|names?|string|
    hashtags?|line|quote|sentences?|expressions?|keywords?|words?|phrases?|terms?|letters?|like|such as|for example|
    for instance|e\.g\.|i\.e\.|namely|as|punctuation|marks?|characters?|symbols?|key))*[\s:,(\[-]*$"""
)
"""What may stand between a verb and its strings."""
_VERB = pattern(
    r"""\b(?:(?P<verb>includ(?:e|es|ing)|contain(?:s|ing)?|us(?:e|es|ing)|utili[sz](?:e|es|ing)|mention(?:s|ing)?
    |incorporat(?:e|es|ing)|featur(?:e|es|ing)|add(?:s|ing)?|insert(?:s|ing)?|employ(?:s|ing)?|say(?:ing)?
    |weav(?:e|ing)(?: in)?|make use of|ha(?:ve|s|ving)|with|writ(?:e|ing)|work in|put|place|sprinkle in)
    |(?P<without>without|no|avoid(?:ing)?|refrain(?:ing)? from|exclud(?:e|ing)|omit(?:ting)?|leav(?:e|ing) out
    |skip))\b"""
    + _BETWEEN
)
_NOUN = re.compile(
    r"\b(?:key ?words?|words?|phrases?|terms?|expressions?|sentences?|string|hashtags?|quote|names?|line|text)\b"
)
_NOUN_BEFORE = re.compile(
    r"\b(?:key ?words?|words?|phrases?|terms?|expressions?|sentences?|hashtags?|names?|letters?|characters?|symbols?)"
    r"[\s:,(\[]*$"
)
_MARKED = pattern(
    r"""\b(?:mark|label|tag|replac|highlight|annotat|fill|start|begin|end|prefix|preced|follow|titl|nam|complet
    |substitut|swap|match|compar)\w*\b[^,;]*$"""
)
"""Verbs that make "with the word" another requirement than to contain the word."""
_LETTERS = re.compile(r"\b(?:letters?|characters?|symbols?|punctuation(?: marks?)?)\b[\s:,(\[-]*$")
_EXAMPLES = re.compile(r"\b(?:like|such as|for example|for instance|e\.g\.)[\s:,(]*$")
_CLEAR_ALONE = ("includ", "contain", "mention", "incorporat", "insert")
"""Verbs that need no noun such as "word" before the strings."""
_FOLLOWS = pattern(
    r"""\s*(?:[,.;:!?)\]\n-]|$|(?:and|in|as|at|somewhere|within|throughout|when|while|to|for|into|but|or|on|anywhere
    |inside|exactly|once|should|must|without|is|are|with|twice|so|before|after|because|using|verbatim)\b)"""
)
"""What follows a string that is no attribute of a noun (use "formal" language)."""
_WEAK = ("has", "have", "having", "write", "writing", "put", "place", "with", "say", "saying")
_PLACED = one_line(
    r"""(?:with|by|on|using|saying)\b(?P<between>(?:[\s,:(]+(?:the|this|that|these|an?|exact|exactly|following|same
    |phrase|sentence|words?|text|line|message|statement|question|quote|string|of|closing|sign-off|greeting|in|your|
    response|signature|note|expression|term|characters?|letters?|emoji|tag|hashtag|disclaimer|salutation|remark|and|or
    |be|to|here|:|either|one of|any of|very|specific|given|required|symbol|keyword|answer|capital|lowercase|
    uppercase|reads|reading|saying|marker|both))*[\s:,(\[-]*)$"""
)
_MODAL = r"(?:should|must|has to|have to|needs? to|is|are|be|being|shall|will|reads?|say)"
_CONTAINS = r"\b(?:contain|includ|mention|us(?:e|ing)\b|ha(?:ve|s)\b)"
_TO_THE_END = r"(?: of (?:your|the|this) (?:[a-z]+ ){0,2}[a-z]+)?\s*(?:[.,;:!)\n]|$|and\b)"


def _place(verbs: str, nouns: str, suffix: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    return (
        re.compile(rf"\b(?P<verb>{verbs})\b(?P<what>[^\x01]{{0,70}}?)\b{_PLACED}"),
        re.compile(rf"\b(?:{nouns})\b(?P<what>[^\x01]{{0,40}}?)\b{_MODAL}\b(?!.*{_CONTAINS})[^\x01]{{0,30}}$"),
        re.compile(suffix),
    )


_UNIT = "(?P<unit>words?|phrase|sentence|line|text|thing|statement)"
_PLACES = {
    "ends": _place(
        r"end(?:s|ing)?|finish(?:es|ing)?|conclud(?:e|es|ing)|clos(?:e|es|ing)|wrap(?:s|ping)? (?:it )?up|"
        r"sign(?:ing)? off",
        rf"(?:very )?(?:(?:last|final|closing|ending|concluding) {_UNIT}"
        r"|end of (?=your|the (?:entire|whole|full)? ?(?:response|answer|reply|output)))",
        rf"\s*(?:right )?(?:at|to) the (?:very )?end{_TO_THE_END}"
        r"|\s*as (?:the|your) (?:very )?(?:last|final|closing|ending) (?:words?|phrase|sentence|line|statement)\b",
    ),
    "starts": _place(
        r"start(?:s|ing)?|begin(?:s|ning)?|open(?:s|ing)?|preface|prefix(?:ed)?",
        rf"(?:very )?(?:first|opening|beginning|starting) {_UNIT}",
        rf"\s*(?:right )?(?:at|to) the (?:very )?(?:start|beginning){_TO_THE_END}"
        r"|\s*as (?:the|your) (?:very )?(?:first|opening) (?:words?|phrase|sentence|line)\b",
    ),
}
_ADD = re.compile(r"\b(?:add|put|place|write|append|say|include)\b[^\x01]{0,60}$")
_PARTICIPLE_SUBJECT = pattern(
    rf"""(?:^|[:(]|\b(?:by|please|always|avoid|without|from))\s*$|\b{RESPONSE},?\s*$
    |\b{RESPONSE},? (?:start|begin|open)\w* with \x01+,? and\s*$"""
)
_PART_HERE = pattern(
    rf"""(?:\b(?:each|every)\b|\b(?:a|the|new|next|another|same) (?:new |next |same )?(?:line|sentence|paragraph
    |section|bullet|slide|row|column|cell)\b|\b(?:{PART}|words)\b)(?:(?!,|\band\b|\bbut\b|;).)*$"""
)
ORDINALS = {
    word: n
    for n, word in enumerate("first second third fourth fifth sixth seventh eighth ninth tenth".split(), start=1)
}
_PARAGRAPH = re.compile(
    rf"\bparagraph ({NUMBER})\b|\b({'|'.join(ORDINALS)}|\d+(?=st|nd|rd|th))(?:st|nd|rd|th)? paragraph\b"
)
_SUBJECT_PARAGRAPH = pattern(
    rf"""\b(?:the )?(?:very )?(?:paragraph (?:{NUMBER})|(?:{"|".join(ORDINALS)}|\d+(?:st|nd|rd|th)) paragraph)
    (?: (?:of|in) (?:your|the) [a-z]+)?,? (?:(?:must|should|has to|have to|needs to|shall|will|to|always) )*$"""
)
_OPTIONS = pattern(
    r"""\b(?:answer|respond|response|reply|choose|select|pick|output|state|say|classify|label|categori[sz]e)\b
    [^\x01]{0,90}\b(?:one of|either|from|options?|choices|only|with|following)\b[^\x01]{0,60}$"""
)
_CHOICE = re.compile(r"\b(?:one of|either|options?|choices|choose|select|pick)\b")
_ONLY = pattern(
    r"""\b(?:respond|reply|answer|output|return|write|say)\b[^\x01]{0,25}\bonly\b
    |\bonly (?:respond|reply|answer|output|say)\b|\bnothing (?:else )?but\b"""
)
_ALONE = pattern(
    r"""\b(?:respond|reply|answer|output|return|write|say|print)\b(?: (?:with|back|me))*\s+
    (?:only|just|nothing but|nothing (?:else|other) (?:but|than)|simply)
    (?: (?:with|the|one|exact|single|word|phrase|sentence|text|following))*:?\s*$"""
)
_ALONE_ENDS = re.compile(r"\s*(?:[.;!)\n]|$|and nothing)")
_KEYS = re.compile(r"\b(?:json\b[^\x01.]{0,60}\b)?(?:keys?|fields?|properties|attributes)\b[^\x01.]{0,50}$")
_ANY_OF = re.compile(r"\b(?:any|one|either)(?: one)? of\b|\bat least one\b|\beither\b")


def quoted(value: str) -> str:
    """A value in quotation marks."""
    return f'"{value}"'


def listed(values: tuple[str, ...]) -> str:
    """Strings in quotation marks, joined by "and"."""
    return " and ".join(map(quoted, values))


def only_one_of(start: int, end: int, values: tuple[str, ...], said: str) -> Found:
    """An answer that consists only of one of the values. `said` names them in the question."""
    exact = "|".join(re.escape(value.rstrip(".")) for value in values)
    expression = rf"(?i)\A\W*(?:{exact})\W*\Z" if len(values) > 1 else rf"(?i)\A\W*{exact}\W*\Z"
    question = f"Does the response consist only of {said}?"
    return Found(start, end, regex_check(expression, exactly=1), None, question)


def one_of(phrases: tuple[str, ...]) -> Spec:
    """The check that one of several answers occurs, as IFEval checks it."""
    return {"type": "keywords", "words": list(phrases), "need": "any", "whole_words": False, "ignore_case": False}


def strings(clause: Clause) -> Iterator[Found]:
    """The requirements about the quoted strings of a clause."""
    text, counts = clause.text, _COUNTED.search(clause.text)
    for given in clause.strings:
        if any(len(value) > _LONGEST or "\n" in value for value in given.values):
            continue
        before, after = text[: given.start], text[given.end :]
        decided, found = _at_place(clause, given, before, after)
        if not decided and not counts:
            found = _keys(clause, given, before) or _options(given, before, after) or _words(given, before, after)
        if found is not None:
            yield found


_COUNTED = re.compile(
    rf"\b(?:(?:{NUMBER})(?: or more| or fewer| or less| different| separate)* times?|once|twice|thrice)\b"
)


def _at_place(clause: Clause, given: Strings, before: str, after: str) -> tuple[bool, Found | None]:
    """Whether the words speak of the start or the end of something, and the requirement if this is the response."""
    for kind, (verbs, nouns, suffixes) in _PLACES.items():
        place = verbs.search(before) or nouns.search(before)
        suffix = suffixes.match(after) if _ADD.search(before) else None
        if place or suffix:
            start = place.start() if place else given.start
            end = given.end + suffix.end() if suffix else given.end
            return True, _placed(clause, given, after, place, start, end, kind)
    return False, None


def _placed(
    clause: Clause, given: Strings, after: str, place: re.Match[str] | None, start: int, end: int, kind: str
) -> Found | None:
    groups = place.groupdict() if place else {}
    verb, unit, what = groups.get("verb") or "", groups.get("unit"), groups.get("what") or ""
    head, one = clause.text[:start] if place else "", given.one
    around, between = head + what, groups.get("between") or ""
    if unit and (_OF_ANOTHER.search(what) or " not " in what):
        return None
    if not _FOLLOWS.match(after) or (verb.endswith("ing") and not _PARTICIPLE_SUBJECT.search(head)):
        return None
    letter = one and len(one) == 1 and one.isalnum()
    if letter and one != "I" and not re.search(r"\b(?:letter|character|word|digit|number)\b", between):
        return None
    if re.search(r"\b(?:letter|character)\b", between) and letter:
        return None  # the word may go on
    if re.search(r"\b(?:postscript|p\.\s?s)", around):
        return Found(start, end, {"type": "postscript", "marker": one}, every=False, counts=False) if one else None
    if re.search(r"\b(?:sections?|chapters?|parts?)\b", around) and clause.view.anywhere(SECTION_MARK):
        return None
    paragraph = _PARAGRAPH.search(around) if kind == "starts" and one and " " not in one else None
    if paragraph and one:
        n = number(paragraph[1]) if paragraph[1] else ORDINALS.get(paragraph[2]) or int(paragraph[2])
        subject = _SUBJECT_PARAGRAPH.search(head)
        start = subject.start() if subject else start
        return Found(start, end, {"type": "paragraph_start", "paragraph": n, "word": one}, whole=True)
    if _PART_HERE.search(head if unit else around):
        return Found(start, end, reason=A_PART)
    if verb and not _of_response(what):
        return None
    any_of = "|".join(re.escape(value) for value in given.values)
    expression = rf"(?i)\A\W*(?:{any_of})(?!\w)" if kind == "starts" else rf"(?i)(?<!\w)(?:{any_of})\W*\Z"
    named, denied = " or ".join(map(quoted, given.values)), regex_check(expression, exactly=0)
    refused = f"Does the response {kind[:-1]} with something else than {named}?"
    if one is None:
        reason = "one of several phrases at this place" if given.either else ""
        return Found(start, end, None, denied, "", refused, reason="" if polarity(head) is False else reason)
    check: Spec = {"type": kind, "phrase": one}
    if unit == "word":
        check = regex_check(expression, exactly=1)
    return Found(start, end, check, denied, f'Does the response {kind[:-1]} with "{one}"?', refused)


def _of_response(what: str) -> bool:
    """Whether the object of "start" or "end" is the response: nothing, "it", "your letter", not "the experiment"."""
    words = set(words_of(what))
    return not words & DETERMINERS or bool(words & (NOUNS | {"it", "everything"}))


_OF_ANOTHER = re.compile(r"\bof (?!(?:your|the|this|each|every|it|my|our|an?)\b)")


def _keys(clause: Clause, given: Strings, before: str) -> Found | None:
    keys = _KEYS.search(before) if "json" in clause.view.text else None
    if keys is None or given.either:
        return None
    question = f"Is the response a JSON object with the keys {listed(given.values)}?"
    check = {"type": "json", "keys": list(given.values)}
    return Found(keys.start(), given.end, check, None, question, every=False, counts=False)


def _options(given: Strings, before: str, after: str) -> Found | None:
    """One of several answers, or one answer alone: "Answer with "agree" or "disagree"."."""
    if given.one is not None:
        alone = _ALONE.search(before)
        if alone is None or not _ALONE_ENDS.match(after):
            return None
        return only_one_of(alone.start(), given.end, given.values, quoted(given.one))
    options = _OPTIONS.search(before)
    if options is None or "at least one" in options.group():
        return None
    only = _ONLY.search(before) is not None and given.either
    if not (only or _CHOICE.search(options.group())):
        return None
    if _NOUN.search(before[-25:]) and "one of" not in before and not re.search(r"phrases?|sentences?", before[-25:]):
        return None
    if only:
        said = f"{', '.join(map(quoted, given.values[:-1]))} or {quoted(given.values[-1])}"
        return only_one_of(options.start(), given.end, given.values, said)
    return Found(options.start(), given.end, one_of(given.values))


def _words(given: Strings, before: str, after: str) -> Found | None:
    """Keywords and forbidden words."""
    letters = _LETTERS.search(before) is not None and all(len(value) == 1 for value in given.values)
    role = _VERB.search(before)
    if role is None:
        stated = _NOUN_BEFORE.search(before) is not None and passive(after)[1] > 0
        return _required(given, given.start, letters, "") if stated else None
    between, verb = role.group(), role["verb"]
    noun = _NOUN.search(between) is not None
    if _EXAMPLES.search(before):
        return (
            Found(role.start(), given.end, None, forbidden(given), reason="the words are examples") if noun else None
        )
    if not (noun or letters) and (not (verb and verb.startswith(_CLEAR_ALONE)) or not _FOLLOWS.match(after)):
        if not (verb and verb.startswith(("us", "say", "writ")) and _FOLLOWS.match(after)):
            return None
        found = _required(given, role.start(), letters, between)
        return found._replace(check=None)  # "use "x"" alone may name anything; "do not use "x"" is clear
    if verb == "with" and _MARKED.search(before[: role.start()]):
        return None
    if verb in _WEAK and not letters and not re.search(r"\b(?:key ?words?|words?|phrases?)\b", between):
        return None
    found = _required(given, role.start(), letters, between)
    if verb is None:
        return found._replace(check=found.denied, denied=None, question=found.denied_question)
    return found


def forbidden(given: Strings) -> Spec:
    """The check that none of the strings occurs."""
    return {"type": "forbidden", "words": list(given.values)}


def _required(given: Strings, start: int, letters: bool, between: str, end: int | None = None) -> Found:
    values = list(given.values)
    check: Spec | None = {"type": "keywords", "words": values}
    denied, question = forbidden(given), ""
    if len(values) > 1 and (given.either or _ANY_OF.search(between)):
        check = {"type": "keywords", "words": values, "need": "any"}
    if letters or all(len(value) == 1 and not value.isalnum() for value in values):
        check = None
        denied = {"type": "letters", "letters": "".join(values), "exactly": 0}
        question = f"Does the response do without {listed(given.values)}?"
    if re.search(r"\b(?:in|of) (?:each|every)\b", between):
        return Found(start, given.end, reason=A_PART)
    if re.search(r"\b(?:two|three|four|five|six|\d+) of\b", between):
        return Found(start, given.end, None, denied, "", question, reason="it asks for some of several words")
    return Found(start, given.end if end is None else end, check, denied, "", question)


_UNQUOTED = pattern(
    r"""\b(?P<noun>key ?words?|words?|terms?|phrases?)(?P<colon>\s*:)?\s*[\[(]?\s*
    (?P<list>[^\x01.;!?\n\[\](]{2,160}?)\s*[\])]?(?=\s+(?:in (?:your|the|its|my|this)|somewhere|throughout|within|to
    |as|at (?:least|all|the)|anywhere|should|must|may|can|will|cannot|has to|needs to|when|while|for|into|unless
    |except|and (?:make|write|use|do|ensure|avoid|end|start|keep|then|the)|is|are|but)\b|[.;!?\n\])]|$)"""
)
_WORD = re.compile(r"[\w'#@-]+(?: [\w'-]+){0,2}")
_COMMA = re.compile(r"\s*,\s*(?:and\s+|or\s+)?(?:the (?:key)?word )?|\s+(?:and|or)\s+(?:the (?:key)?word )?")
_NAMED = re.compile(
    r"(?:\b(?:the|a|following|these)|^|[^\w-])\s*(?:following )?key$|\b(?:the|these|following)\s*$|^\W*$"
)


def unquoted(clause: Clause) -> Iterator[Found]:
    """Keywords without quotation marks: "Include the keywords river, mill and boat."."""
    text = clause.text
    if _COUNTED.search(text):
        return
    for match in _UNQUOTED.finditer(text):
        before, after = text[: match.start("list")], text[match.end() :]
        role = _VERB.search(before)
        given = _enumerated(clause, match, several=bool(role and role["without"]) or " not " in before)
        if given is None:
            continue
        decided, found = _at_place(clause, given, before, text[match.end("list") :])
        if decided:
            if found is not None and given.one and not match["noun"].startswith("phrase"):
                yield found
            continue
        if re.search(r"\bone of\b", before) and (match["colon"] or match["noun"].startswith("phrase")):
            continue
        if role:
            found = _required(given, role.start(), False, role.group(), given.end)
            if role["without"]:
                found = found._replace(check=found.denied, denied=None, question=found.denied_question)
            yield found
        elif passive(after)[1] and _NAMED.search(text[max(match.start() - 20, 0) : match.start()]):
            yield _required(given, match.start(), False, "", match.end())


def _enumerated(clause: Clause, match: re.Match[str], several: bool) -> Strings | None:
    """The words of a list without quotation marks, if all of them can be keywords."""
    words = [word.strip() for word in _COMMA.split(match["list"]) if word.strip()]
    noun = match["noun"]
    if not words or any(not _WORD.fullmatch(word) or set(word.split()) & FUNCTION_WORDS for word in words):
        return None
    if not match["colon"]:
        if any(" " in word for word in words) or (len(words) > 1 and not noun.endswith("s") and not several):
            return None
        if len(words) == 1 and noun in ("words", "terms", "phrases"):
            return None
    values, end = [], match.start("list")
    for word in words:
        start = clause.text.index(word, end)
        end = start + len(word)
        values.append(clause.prompt(start, end))
    return Strings(tuple(values), match.start("list"), end, " or " in match["list"])
