"""The rules: what each phrase of basic words asks for, with the check for it and the check under a negation.

A rule is a function under `@rule`, which names the phrase: it gives the things that a match of the phrase states, and
the filter decides whether the clause requires them. Things that are counted need no rule of their own: "at most 3
commas", "commas at most three times", "no commas" and "commas are forbidden" are read from one row of `things.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from checklist_rewards.generators.constraints.amounts import Amount, amount_at, compared, followed
from checklist_rewards.generators.constraints.filtering import (
    A_PART,
    APPROXIMATE,
    INCLUDES,
    Found,
    negations_in,
    phrase,
)
from checklist_rewards.generators.constraints.lexicon import LANGUAGES, ORDINALS, QUOTE
from checklist_rewards.generators.constraints.reading import Clause, Spec, Strings
from checklist_rewards.generators.constraints.things import THINGS, regex_check, thing_at


class Match:
    """A match of a phrase in a clause: the basic words from `start` to `end`."""

    def __init__(self, clause: Clause, match: re.Match[str]):
        self.clause, self.match, (self.start, self.end) = clause, match, clause.span(match)

    def __getitem__(self, group: str) -> str:
        return (self.match[group] or "").rstrip()

    def at(self, group: str) -> int:
        """Where a group starts."""
        return self.clause.span(self.match, group)[0]

    def found(
        self, check: Spec | None, denied: Spec | None = None, start: int | None = None, **settings: Any
    ) -> Found:
        """The match, perhaps from another start, as a thing."""
        return Found(self.start if start is None else start, settings.pop("end", self.end), check, denied, **settings)


Rule = Callable[[Match], Iterator[Found]]
RULES: list[tuple[frozenset[str], re.Pattern[str], Rule]] = []
"""All rules in the order in which they read a clause, each with the words that it needs and its phrase."""
_NEEDED: set[str] = set()
"""The words that rules need."""


def rule(needed: str, text: str) -> Callable[[Rule], Rule]:
    """A rule for each match of a phrase, which is searched in clauses with one of the needed words or basic words."""

    def add(function: Rule) -> Rule:
        RULES.append((frozenset(needed.split()), phrase(rf"(?<!\S)(?:{text})"), function))
        _NEEDED.update(needed.split())
        return function

    return add


@lru_cache(1000)
def _rules_of(words: frozenset[str]) -> list[tuple[re.Pattern[str], Rule]]:
    """The rules that need one of some words."""
    return [(pattern, function) for needed, pattern, function in RULES if not needed.isdisjoint(words)]


def things_in(clause: Clause) -> list[Found]:
    """The things that the rules find in a clause. What one rule found is not found again by the next."""
    words = _NEEDED.intersection([*clause.tokens, *clause.words])
    if _NUMBER.search(clause.plain):
        words.add("number")
    found: list[Found] = []
    for pattern, function in _rules_of(frozenset(words)):
        things = [one for match in pattern.finditer(clause.plain) for one in function(Match(clause, match))]
        found += [one for one in things if not any(one.start < other.end and other.start < one.end for other in found)]
    return found


_NUMBER = re.compile(r"\d+x? ")
_OPEN = phrase(
    r"<, and ->*(?:or |<not no>?<the a>?(?:\d+ )?<extra atleast over under atmost or_more or_fewer roughly>"
    r"(?!<the a>*(?:\d+x|\d+ (?:- )?<_ short response first written word piece mark letter section times>))"
    "|in <start end>)"
)
_BETWEEN = phrase(r"between \d+ <short _>*<word piece mark><in and>\Z")
_OPENING = frozenset("at as up counting nothing being plus before after".split())
"""What follows a number that is not exact, or not that of the whole: "as a rule of thumb", "before the postscript"."""


def _open(clause: Clause, found: Amount, end: int) -> bool:
    """Whether words around a number without a comparison, which ends with what it counts at `end`, may be one."""
    after = end
    while clause.tokens[after] in (",", "and", "-"):
        after += 1
    rough = {"some", "inside"}.intersection(clause.words[max(found.start - 1, 0) : found.start + 1])
    return (
        bool(rough or _BETWEEN.search(clause.around(found.start, end)[0]))
        or clause.words[after] in _OPENING
        or _OPEN.match(clause.around(0, end)[1]) is not None
    )


def _bounded(start: int, end: int, name: str, found: Amount, spec: Spec | None = None, **settings: Any) -> Found:
    """The check of a thing with its bounds, and with those under a negation."""
    if (spec := spec or THINGS[name].spec) is None:
        return Found(start, end, reason=f"code does not count {name}")
    if found.how == "roughly":
        return Found(start, end, reason=APPROXIMATE)
    return Found(start, end, {**spec, **found.bounds}, found.denied and {**spec, **found.denied}, **settings)


_NAMED = phrase(
    "<the a short>*(?P<what>word <, :>?(?:string |<_ char><_>?)|letter <, :>?<string char a they>|string |mark )"
    r"(?P<between><must mustnt not is written used contains in the a short about it ,>*)\Z"
)
"""What is counted, before the number of times: "the letter e must appear"."""
_LIMIT = phrase(
    r"(?:(?:number_of <the short>*|\A(?=word : ))(?P<unit><word piece mark>)|(?P<how><atleast atmost>)?(?:- )?"
    r"(?P<limit>length ))<: in the a response short must mustnt not is written about that it ,>*\Z"
)
"""What a number is the limit of: "the number of words should be", "word limit"."""


@rule("number", r"\A.*")
def counts(m: Match) -> Iterator[Found]:
    """What the numbers count: "at least 100 words", "the word rain twice", "word limit: 50"."""
    after = 0
    for number in _NUMBER.finditer(m.clause.plain):
        if (at := m.clause.span(number)[0]) >= after:
            amount = amount_at(m.clause, at)
            things = list(_counted(m.clause, at, amount))
            yield from things
            after = max((amount.end, *(found.end for found in things)))


def _counted(clause: Clause, at: int, found: Amount) -> Iterator[Found]:
    """What a number counts."""
    tokens, before = clause.tokens, clause.around(found.start, found.end)[0]
    end = found.end + (tokens[found.end] == "short")
    timed = tokens[end] == "times"
    if (timed or tokens[at][-1] == "x") and (named := _NAMED.search(before)):
        return _times(clause, named, *followed(clause, found, end + timed))
    labelled = before == "word : " and max(found.low or 0, found.high or 0) >= 20
    limit = _LIMIT.search(before) if "number_of " in before or "length " in before or labelled else None
    return _limit(clause, limit, before, at, found) if limit else _things(clause, at, found)


def _times(clause: Clause, named: re.Match[str], found: Amount, end: int) -> Iterator[Found]:
    """How often a word, a letter or a mark occurs."""
    if found.how == "":
        found = found._replace(how="roughly") if _open(clause, found, end) else found._replace(high=None)
    start, (at, after) = clause.span(named)[0], clause.span(named, "what")
    settings: dict[str, Any] = {
        "negations": negations_in(named["between"]),
        "subject": not {"must", "mustnt", "is", "written", "used", "not"}.isdisjoint(named["between"].split()),
        "verbs": INCLUDES | {"write"},
    }
    specs: list[Spec] = []
    if clause.tokens[at] == "letter":
        specs = [{"type": "letters", "letters": letter} for letter in _letters(clause, after - 1)]
    elif clause.tokens[after - 1] == "string" and not clause.given(after - 1).either:  # one of them is enough
        specs = [{"type": "keyword_count", "word": word} for word in clause.given(after - 1).values]
    elif clause.tokens[at] == "word" and clause.tokens[after - 1] != "string":
        first = clause.starts[at + 1 + (clause.tokens[at + 1] in (",", ":"))]
        specs = [{"type": "keyword_count", "word": clause.view.prompt[first : clause.ends[after - 1]]}]
    elif clause.tokens[at] == "mark" and (name := thing_at(clause, at)) and "c" in THINGS[name].uses:
        specs = [THINGS[name].spec or {}]
    for spec in specs:
        yield _bounded(start, end + (clause.tokens[end] == "each"), "", found, spec, **settings)


def _letters(clause: Clause, at: int) -> tuple[str, ...]:
    """The letters that stand at a place, () if one of them is longer than a letter."""
    given = clause.given(at).values if clause.tokens[at] == "string" else (clause.words[at],)
    return given if all(len(letter) == 1 for letter in given) else ()


def _limit(clause: Clause, match: re.Match[str], before: str, at: int, found: Amount) -> Iterator[Found]:
    """Limits: "the number of words should be less than 50", "word limit: 50"."""
    after = found.end + (clause.tokens[found.end] == "-")
    counted = clause.tokens[after] in ("word", "piece")
    start, name = clause.span(match)[0], thing_at(clause, after)
    if match["unit"]:
        name = thing_at(clause, clause.span(match, "unit")[0])
    elif (named := clause.words[clause.span(match, "limit")[0]]) and not counted:
        name = named.split()[0] + "s"
    if match["limit"] and not found.how:
        how = (match["how"] or "").strip() or ("atmost" if "limit" in named else "")
        found = compared(how, found.low or 0, found.start, found.end)
    found, end = followed(clause, found, after + 1 if counted else found.end)
    mentioned = before[: match.start()].removesuffix("the ").removesuffix("a ").endswith("use ")
    if name in THINGS and found.how and not mentioned:  # not "mention the word limit of 250 words"
        negations = negations_in(match.group())
        yield _bounded(start, end, name, found, subject=True, negations=negations)
    else:
        yield from _things(clause, at, found)


_DIVIDER = re.compile(r"(?:separat|divid|delimit|mark|split)[^\n]{0,80}\n?[^\n]{0,20}(?<!\*)\*{3}(?!\*)")
_SECTIONS = re.compile(r"(?i)\b(?:each|every) (\w+)\b[^.\n]{0,40}? (?:with|by|as) \W?([a-z]+) X\b")
"""Numbered headings: "Mark the beginning of each section with SECTION X"."""
_EMPHASIS = re.compile(r"(?<!\S)(?:highlight|emphasi|italic)")
_MARKDOWN = re.compile(r"\*|markdown|asterisk|italic")
_IN_CAPITALS = phrase("(?:or word )?<that in is written must short the response>*caps ")
_WANTED = phrase("<,>*(?:ensure |(?:ensure )?<write describe><the a>*|ensure <the a>*)")
_EXACT = phrase(r"(?:in |using |<must mustnt><is written>)<the a only>*\Z")


def _things(clause: Clause, at: int, found: Amount) -> Iterator[Found]:
    """The things with a number: "three paragraphs"."""
    view, tokens = clause.view, clause.tokens
    unit = found.end + (tokens[found.end] == "-")
    first = unit
    while tokens[unit] in ("short", "the", "first", "_", "response", "written"):
        unit += 1
    name = thing_at(clause, unit) or ("phrases" if tokens[unit] == "word" else "")
    if not name or tokens[at][-1] == "x" or clause.words[unit].endswith("lists"):
        return
    start, (found, end) = found.start, followed(clause, found, unit + 1)
    if clause.words[unit].startswith("item") and tokens[start - 2] == "mark" and "list" in clause.words[start - 2]:
        start, name = start - 2, "bullet points"  # "a bulleted list with at least 10 items"
    if not found.how and _open(clause, found, end):
        found = found._replace(how="roughly")
    end_of = end
    while tokens[end_of] in ("must", "mustnt", "is", "written"):
        end_of += 1
    end_of = end_of if tokens[end_of - 1] == "written" else end
    marked = _SECTIONS.search(view.prompt) if name == "parts" and "X" in view.prompt else None
    if _EMPHASIS.search(_near(clause, start, end_of)) and _MARKDOWN.search(view.text):
        if name in ("parts", "sentences", "words", "phrases", "bullet points", "highlighted passages"):
            found = found if found.how else found._replace(high=None)
            yield _bounded(start, end_of, "highlighted passages", found)
    elif name == "words" and (capital := _IN_CAPITALS.match(clause.around(0, end)[1])):
        end += capital.group().count(" ")
        if thing_at(clause, end - 1) == "upper":
            yield _bounded(start, end, "words in capital letters", found)
    elif not {"the", "short"}.issuperset(tokens[first:unit]) or name not in THINGS or "c" not in THINGS[name].uses:
        return
    elif name in ("parts", "paragraphs") and "***" in view.text and _DIVIDER.search(view.text):
        yield _bounded(start, end, name, found, {"type": "paragraphs", "separator": "***"})
    elif marked and clause.words[unit].startswith(marked[1].lower()):
        found = found if found.how else found._replace(high=None)
        yield _bounded(start, end, name, found, {"type": "sections", "marker": marked[2]})
    elif found.how == "" and (reason := _unclear(clause, start, end, name, found)) is not None:
        if reason:
            yield _bounded(start, end, name, found, reason=reason)
    elif name != "characters" or max(found.low or 0, found.high or 0) >= 20:
        yield _bounded(start, end, name, found)


def _near(clause: Clause, start: int, end: int) -> str:
    """The words of a thing, with up to three before it in the same part of the clause."""
    first = start
    while first and first > start - 3 and clause.tokens[first - 1] not in (",", "and"):
        first -= 1
    return " ".join(clause.words[first:end])


def _unclear(clause: Clause, start: int, end: int, name: str, found: Amount) -> str | None:
    """Why a number without a comparison gives no check: a reason, "" if it is not asked for; None if it gives one.
    A number of words is usually meant approximately; one of sentences or paragraphs is exact."""
    before, after = clause.around(start, end)
    if name in ("words", "characters"):
        if (found.low or 0) <= 10 and _EXACT.search(before) and re.match(r"$|[,:] |and ", after):
            return None
        approximate = f'a number of {name} without "at least" or "at most" may be approximate'
        return approximate if (found.low or 0) >= 20 else ""
    if name == "non-empty lines":
        return "code cannot tell these lines from the other lines of the response"
    if clause.tokens[found.end] == "-" and name != "bullet points":
        return None if _WANTED.fullmatch(before) else A_PART
    return None


@rule("language", "(?:in |use |using )(?P<only><the only atmost>*)language (?:book )?")
def language(m: Match) -> Iterator[Found]:
    """The language of the response: "in German", "using only the Kannada language"."""
    tokens, left, after = m.clause.tokens, m.clause.tokens[: m.start], m.clause.tokens[m.end]
    names = {word for word, token in zip(m.clause.words, tokens, strict=True) if token == "language"}
    only = "only" in (*m["only"].split(), after, *left[-2:]) or "no other language" in m.clause.text
    other = not {"book", "part", "word", "piece", "string"}.isdisjoint(left)  # "the title in German"
    other = other or (any(token.isdigit() for token in left) and "response" not in left)  # "five words in German"
    added = m.clause.words[m.start].startswith(("incl", "mention", "add", "insert"))
    if len(names) > 1 or ((added or other) and not only) or (after == "about" and tokens[m.end + 1] != "a"):
        return  # "French for the dialogue"
    name = names.pop()
    check = {"type": "language", "language": LANGUAGES[name]}
    yield m.found(check, start=m.start + 1, question=f"Is the response in {name.capitalize()}?")


_REPEATING = "repeat copy restate rewrite reproduce"
_REPEAT = re.compile(
    rf"\b(?:{'|'.join(_REPEATING.split())}) (?:back )?(?:(?P<quoted>\x01+)|(?:(?:the|my|this|above|entire|whole"
    r"|exact|same|full|original|(?P<below>below|following)) )+(?:request|prompt|question|query|instructions?"
    r"|(?:sentence|text)(?= above))\b(?P<after> below)?)"
)
_FIRST = re.compile(
    r"\bfirst\b|\bbefore\b|\bthen (?:give|answer|provide|respond|reply|write)|\bword[- ](?:for|by)[- ]word\b"
    r"|\bverbatim\b|\bexactly\b|\bwithout (?:any )?chang|\bunchanged\b|\bat the (?:very )?beginning"
)


@rule(_REPEATING, r"\A.*")
def repeated(m: Match) -> Iterator[Found]:
    """The request repeated first: the text above this instruction, or below it."""
    clause, view = m.clause, m.clause.view
    match = _REPEAT.search(clause.text)
    if match is None or not _FIRST.search(view.text, clause.start, clause.start + match.end() + 120):
        return
    verb = clause.at(match.start())
    told = not {"says", "may", "how_to"}.isdisjoint(clause.tokens[:verb])
    if told or ", says " in clause.plain or re.match(r":[ \t]*\S", clause.text[match.end() :]):
        return
    below = match["below"] or match["after"]
    gap = view.text.find("\n\n", clause.start + match.end()) if below or clause.start == 0 else -1
    text = view.prompt[gap:].strip() if gap > 0 else view.prompt[: clause.start].strip()
    if given := view.quoted.get(clause.start + match.start("quoted")):
        text = given.values[0]
    if text or not below:
        check: Spec = {"type": "repeats_prompt", **({"prompt": text} if text else {})}
        yield m.found(check, verbs={"write"}, start=verb + 1, end=clause.length)


_FIRST_WORD = re.compile(r"\s*(\x01+|[\w'-]+)(?= in\b| and\b|\s*(?:[.,;:!?\n]|$))")


@rule(
    "start",
    r"(?:(?P<nth>first piece |piece \d+ )(?:in <the response>*)?<must mustnt>*(?P<verb>start )|start <the>?"
    r"(?P<nth2>first piece |piece \d+ )(?:in <the response>+)?)in <the word>*",
)
def paragraph_starts(m: Match) -> Iterator[Found]:
    """The first word of a paragraph: "Paragraph 2 must start with"."""
    clause, nth, own = m.clause, m.at("nth" if m["nth"] else "nth2"), bool(m["verb"])
    paragraph = int(clause.tokens[nth + 1]) if clause.tokens[nth + 1].isdigit() else ORDINALS.get(clause.words[nth])
    word = _FIRST_WORD.match(clause.text, clause.ends[m.end - 1] - clause.start)
    if word and paragraph and "paragraph" in clause.words[nth : nth + 2]:
        place = clause.start + word.start(1)
        plain = clause.view.prompt[place : clause.start + word.end(1)]
        given = clause.view.quoted.get(place, Strings((plain,), place, place)).values[0]
        if " " not in given and given.lower() not in ("a", "an", "the"):
            check: Spec = {"type": "paragraph_start", "paragraph": paragraph, "word": given}
            start = m.start + (not own)
            yield m.found(check, verbs={"start"}, start=start, end=clause.at(word.end()), subject=own)


_MARKER = re.compile(r"[Pp]\.?\s?(?:[Pp]\.?\s?)?[Ss]\.?")


@rule("postscript", "postscript (?:[^,]*?<postscript string>)?")
def postscripts(m: Match) -> Iterator[Found]:
    """A postscript with its marker: "Add a postscript starting with P.S."."""
    if _MARKER.fullmatch(marker := m.clause.given(m.end - 1).values[0]):
        yield m.found({"type": "postscript", "marker": marker}, verbs={"use", "write", "in", "using", "start", "end"})


_KEYS = re.compile(r"\b(?:keys?|fields?|properties|attributes)\b")


@rule(
    "json",
    r"json (?!<- or>|<, and>in _ |in a |about the <response first end>)(?:(?:(?!<string ,>)\S+ )*(?P<keys>string ))?",
)
def json_objects(m: Match) -> Iterator[Found]:
    """JSON, perhaps with its keys."""
    keys, clause = m.clause.given(m.end - 1), m.clause
    if m["keys"] and not keys.either and _KEYS.search(clause.view.text, clause.starts[m.start], keys.start):
        asked = f"Is the response a JSON object with the keys {' and '.join(map(_in_quotes, keys.values))}?"
        yield m.found({"type": "json", "keys": list(keys.values)}, question=asked)
    else:
        yield m.found({"type": "json"}, end=m.start + 1)


@rule("brackets", r"(?:<part word>(?:(?!<part each brackets>)\S+ )*|(?<=written in ))brackets ")
def titles(m: Match) -> Iterator[Found]:
    """A title in angle brackets."""
    yield m.found({"type": "title", "style": "angled"})


@rule(
    "quotes", r"(?:<the>+<short _>*response |it )?in quotes |quotes about <the>+(?:<short _ - piece>|\d+ )*response "
)
def in_quotation_marks(m: Match) -> Iterator[Found]:
    """The response in quotation marks."""
    yield m.found({"type": "quoted"}, verbs={"use", "write", "is", "written"})


_STARS = re.compile(
    r"separat[^.]{0,90}?(?:(?<!\*)\*{6}(?!\*)|\b(?:6|six) asterisks?(?: symbols?| marks?)?(?:\W{1,3}\*{6})?)"
)


@rule("asterisks asterisk", r"\A.*")
def two_responses(m: Match) -> Iterator[Found]:
    """Two responses with six asterisks between them."""
    for match in _STARS.finditer(m.clause.text):
        verb = m.clause.at(match.start())
        yield m.found({"type": "two_responses"}, start=verb + 1, end=max(m.clause.at(match.end()), verb + 2))


@rule(
    "end first",
    "(?:end <the short _ response it>*(?:in <the response _>+)?in |(?P<last>first )<piece _>"
    r"(?P<is><must mustnt><not>*<is written>))(?:<a only exactly>|\d+ )+mark ",
)
def endings(m: Match) -> Iterator[Found]:
    """A last mark by its name: "End with a question mark", "The last character must be a question mark"."""
    name, thing, subject = m.clause.words[m.end - 1], thing_at(m.clause, m.end - 1), bool(m["last"])
    mark = (THINGS[thing].spec or {}).get("letters", "") if thing else ""
    if len(mark) == 1 and not (subject and m.clause.words[m.start] != "last"):
        asked = f"Does the response end with {'an' if name[0] == 'e' else 'a'} {name}?"
        denied, negations = regex_check(rf"{re.escape(mark)}\s*\Z", exactly=0), negations_in(f"{m['is']} ")
        start, check = m.start + (not subject), {"type": "ends", "phrase": mark}
        yield m.found(check, denied, verbs={"end"}, start=start, subject=subject, negations=negations, question=asked)


@rule(
    "mark letter caps",
    "<the a short>*(?P<one>mark |letter <string char a they>|caps )"
    "(?:(?:, )?<and or>?<short the a>*(?:mark |letter <string char a they>|caps ))*",
)
def without(m: Match) -> Iterator[Found]:
    """What must not occur: commas, digits, emojis, a letter, capital letters; also that bullet points occur."""
    for at in range(m.start, m.end):
        token, name = m.clause.tokens[at], thing_at(m.clause, at)
        if token == "letter" and (given := _letters(m.clause, at + 1)):
            yield m.found(None, {"type": "letters", "letters": "".join(given), "exactly": 0})
        elif token == "caps" and m["one"] == "caps" and (m.end - at == 1 or "or" in m.clause.tokens[m.start : m.end]):
            yield from _cased(m, name)
        elif token == "mark" and (spec := THINGS[name].spec):
            some = {**spec, "at_least": 1} if "s" in THINGS[name].uses else None
            none = {**spec, "exactly": 0} if "n" in THINGS[name].uses else None
            if some or none:
                yield m.found(some, none)


def _cased(m: Match, name: str) -> Iterator[Found]:
    """Capital or small letters only, or none of them."""
    part = re.split("(?:, |and )", m.clause.around(m.start, m.end)[0])[-1].split()
    if {"word", "letter", "string"}.isdisjoint(part) and m.clause.words[m.end] not in ("for", "by", "at"):
        while part and part[-1] in ("the", "a", "short", "only"):
            part.pop()
        whole = part[-1:] == ["in"] or m.clause.words[m.end - 1].startswith("all ")
        yield m.found({"type": "casing", "casing": name}, None if whole else THINGS[name].spec)


_NOT_LITERAL = re.compile(r"\n|\.\.\.|…|\[[^\]]*[a-z]|__")
"""Several lines, or places that a response fills: "In conclusion, ...", "Dear [name]"."""
_PLACED = phrase(
    r"(?P<verb><start end>)<the short response it word first>*(?:in <the response it>+)?"
    r"in <the a short only exactly word , : piece letter response write is it in>*\Z"
)
"""What may stand before the string with which a response starts or ends: "end your letter with the words"."""
_LAST = phrase(
    r"<first the>(?P<unit><word piece _ write>)(?:in <the short>*response )?"
    r"(?P<is><must mustnt>+<not>*<is written>*|is |written )<short the , :>*(?:word )?\Z"
)
"""What may stand before the string that is the first or the last word."""
_NOUN = phrase(
    r"(?:<the a short only exactly>*<word piece letter>(?:in <the response>*)?)?<the a short only exactly : ,>*\Z"
)
"""What names a string: "the word"."""
_OPTIONS = re.compile(
    r"\b(?:answer|respond|reply|choose|select|pick|output|return|state|say|classify|label|categori[sz]e)\b"
    r"[^\x01]{0,90}\b(?:one of|either|options?|choices)\b[^\x01]{0,60}$"
)
_ANY = re.compile(r"\b(?:any|one|either)(?: one)? of\b|\beither\b")
_REQUIRING = ("includ", "contain", "mention", "incorporat", "insert")
_FORBIDDING = ("say", "us", "writ", "avoid", "without", "output")
_LINKS = ("but", "about", "than", "before", "after", "of", "for", "like", "to", "in")


@rule("string", "string ")
def quoted_strings(m: Match) -> Iterator[Found]:
    """The requirements about a quoted string or an enumeration of them."""
    clause, given, before = m.clause, m.clause.given(m.start), m.clause.around(m.start, m.end)[0]
    if any(len(value) > 300 or _NOT_LITERAL.search(value) for value in given.values):
        return
    start = clause.span(_NOUN.search(before))[0]  # type: ignore[arg-type]  # it matches the empty end
    if ("start " in before or "end " in before) and (placed := _PLACED.search(before)):
        if (len(given.values[0]) > 1 or given.values[0] == "I") and not _MARKER.fullmatch(given.values[0]):
            verb = placed["verb"].strip()
            yield m.found(*_place(given, verb, False), verbs={verb}, start=start, question=_asked(given, verb))
    elif last := _LAST.search(before):
        named, negations = clause.span(last, "unit")[0], negations_in(last["is"])
        final = (
            clause.words[named - 1] == "final" and clause.tokens[named] != "_" and clause.words[named] != "paragraph"
        )
        if not final and clause.words[named - 1] not in ("first", "opening", "last", "closing"):
            return
        verb, word = "start" if clause.words[named - 1] in ("first", "opening") else "end", clause.words[named]
        asked, checks = _asked(given, verb), _place(given, verb, word.startswith("word"))
        yield m.found(*checks, start=named - 1, subject=True, negations=negations, question=asked)
    elif len(given.values) > 1 and (options := _OPTIONS.search(clause.view.text, clause.start, given.start)):
        exact = {"whole_words": False, "ignore_case": False} if given.values[0][-1:] == "." else {}
        exact = exact or ({"ignore_case": False} if {"A", "I"}.intersection(given.values) else {})
        check: Spec = {"type": "keywords", "words": list(given.values), "need": "any", **exact}
        yield m.found(check, verbs={"write"}, start=clause.at(options.start() - clause.start) + 1)
    elif any(map(str.isalnum, "".join(given.values))):  # not marks
        yield from _keywords(m, start, given)


_UNQUOTED_END = re.compile(r"[\s:]*([^\W\d_][^\n\x01:;]{3,80})(?<=[\w.!?])$")


@rule(
    "end",
    "end <the short response it>*(?:in <the response>*)?in <the it short only>*"
    "(?:exactly <word piece>(?:: )?|(?P<named><word piece>)?: )",
)
def unquoted_end(m: Match) -> Iterator[Found]:
    """The last words without quotation marks: "End with this exact phrase: Any questions?"."""
    clause, after = m.clause, m.clause.ends[m.end - 1]
    text = _UNQUOTED_END.match(clause.view.prompt[after : clause.end].rstrip())
    exact = text and ("exactly " in m.match[0] or m["named"] or text[1][-1] in "!?")
    if text and exact and text[1][0].isupper() and QUOTE not in clause.text:
        check, asked = {"type": "ends", "phrase": text[1]}, _asked(Strings((text[1],), after, clause.end), "end")
        yield m.found(check, verbs={"end"}, start=m.start + 1, end=clause.length, question=asked)


def _place(given: Strings, verb: str, word: bool) -> tuple[Spec | None, Spec]:
    """The checks of a string, or a word, with which a response must start or end, or must not."""
    any_of = "|".join(map(re.escape, given.values))
    expression = rf"(?i)\A\W*(?:{any_of})(?!\w)" if verb == "start" else rf"(?i)(?<!\w)(?:{any_of})\W*\Z"
    phrase = regex_check(expression, exactly=1) if word else {"type": f"{verb}s", "phrase": given.values[0]}
    return phrase if len(given.values) == 1 else None, regex_check(expression, exactly=0)


def _asked(given: Strings, verb: str) -> str:
    return f"Does the response {verb} with {' or '.join(map(_in_quotes, given.values))}?"


def _keywords(m: Match, start: int, given: Strings) -> Iterator[Found]:
    """Keywords and forbidden words."""
    clause, words = m.clause, list(given.values)
    between, governor = clause.tokens[start : m.start], clause.words[start - 1]
    if (
        "letter" in between
        or between[-2:] == ["word", "in"]
        or governor in _LINKS
        or clause.tokens[start - 1] == "first"
    ):
        return
    noun = "word" in between or "piece" in between
    if not noun and not governor.startswith(_REQUIRING + _FORBIDDING):
        return
    check: Spec = {"type": "keywords", "words": words}
    if len(words) > 1 and (
        given.either or _ANY.search(clause.view.text, max(clause.start, given.start - 60), given.start)
    ):
        check["need"] = "any"
    required = noun or not governor.startswith(_FORBIDDING)
    verbs = INCLUDES | {"write"} if governor in ("say", "write", "output") else INCLUDES
    yield m.found(check if required else None, {"type": "forbidden", "words": words}, verbs=verbs, start=start)


def _in_quotes(word: str) -> str:
    return f'"{word}"'


_FUNCTION = frozenset(
    "that which of in with for to you and or like such as the a an is are be used should must can at on from by if it "
    "count limit per length itself appears appear more no not only than".split()
)
_UNQUOTED = re.compile(
    r"(?P<colon>\s*:)?\s*\[?(?P<list>[^\W\d][\w'-]*(?:(?:, (?:and |or )?| and | or )[^\W\d][\w'-]*)*)"
    r"(?=\s+(?:in (?:your|the|its|my|this)|somewhere|throughout|within|to|as|at (?:least|all|the)|anywhere|should|must"
    r"|may|can|will|cannot|when|while|for|into|unless|except|and (?:make|write|use|do|ensure|avoid|end|start|keep|then"
    r"|the)|is|are|but)\b|[.;!?\n)\]]|$)"
)
_WORD = re.compile(r"\b(?!(?:and|or)\b)[\w'-]+")


@rule("word", r"<the a short only exactly>*word ")
def unquoted(m: Match) -> Iterator[Found]:
    """Keywords without quotation marks: "Include the keywords river, mill and boat."."""
    clause, noun = m.clause, m.clause.words[m.end - 1]
    if noun == "name" or clause.tokens[m.end - 2].isdigit():
        return
    match = _UNQUOTED.match(clause.text, clause.ends[m.end - 1] - clause.start)
    if match is None:
        return
    place, either = clause.start + match.start("list"), " or " in match["list"]
    values = [clause.view.prompt[place + word.start() : place + word.end()] for word in _WORD.finditer(match["list"])]
    fits = either or match["colon"] or (len(values) > 1) == noun.endswith("s")
    if fits and _FUNCTION.isdisjoint(map(str.lower, values)):
        check: Spec = {"type": "keywords", "words": values, **({"need": "any"} if either else {})}
        denied = {"type": "forbidden", "words": values}
        yield m.found(check, denied, verbs=INCLUDES, end=clause.at(match.end()))
