"""Requirements about given words: quoted strings, keywords, the start and the end of the response, a postscript."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checklist_rewards.generators.constraints.amounts import number
from checklist_rewards.generators.constraints.filtering import ANY_VERB, INCLUDES, Found, negations_in
from checklist_rewards.generators.constraints.lexicon import ORDINALS
from checklist_rewards.generators.constraints.reading import Clause, Spec, Strings
from checklist_rewards.generators.constraints.rules import counts, language, measures, times, without
from checklist_rewards.generators.constraints.things import THINGS, regex_check, thing_at

_NOT_LITERAL = re.compile(r"\n|\.\.\.|…|\[[^\]]*[a-z]|__")
"""Several lines, or places that a response fills: "In conclusion, ...", "Dear [name]"."""
_PLACED = re.compile(r"(?P<verb>[<>])[dagryWf]*?(?:i[dry]+?)?i[dDgaEW,:SKrtbyi]*$")
_LAST = re.compile(r"[ga]*(?P<f>f)[WSut](?:i[dg]*r)?(?P<is>[mM]+[an]*[b6]*|6)[gda,:]*$")


def quoted_strings(clause: Clause) -> Iterator[Found]:
    """The requirements about the quoted strings of a clause."""
    for at, symbol in enumerate(clause.symbols):
        if symbol != "Q":
            continue
        given = clause.given(at)
        if any(len(value) > 300 or _NOT_LITERAL.search(value) for value in given.values):
            continue
        before = clause.symbols[:at]
        if placed := _PLACED.search(before):
            if (len(given.values[0]) == 1 and given.values[0] != "I") or _MARKER.fullmatch(given.values[0]):
                continue  # a letter, a mark, or the start of a postscript
            found = _at(at, given, "starts" if placed["verb"] == "<" else "ends", False)
            yield found._replace(start=_named_from(clause, at), verbs=placed["verb"])
        elif last := _LAST.search(before):
            word = clause.words[last.start("f") + 1].startswith("word")
            first = clause.words[last.start("f")] in ("first", "opening")
            found = _at(at, given, "starts" if first else "ends", word)
            yield found._replace(start=last.start(), subject=True, negations=negations_in(last["is"]))
        elif len(given.values) > 1 and (options := _OPTIONS.search(clause.view.text, clause.start, given.start)):
            task = clause.at(options.start() - clause.start)
            exact = {"need": "any", "whole_words": False, "ignore_case": False}
            yield Found(task + 1, at + 1, {"type": "keywords", "words": list(given.values), **exact}, verbs="t")
        else:
            yield from _keywords(clause, at, given)


_NAMED = re.compile(r"(?:[dDgE]*[WSK](?:i[dr]*)?)?[dDgE:,]*\Z")


def _named_from(clause: Clause, at: int) -> int:
    """Where the words in front of a string begin that name it: "the word"."""
    named = _NAMED.search(clause.symbols, 0, at)
    return named.start() if named else at


def _at(at: int, given: Strings, kind: str, word: bool) -> Found:
    """The start or the end of the response."""
    any_of = "|".join(re.escape(value) for value in given.values)
    expression = rf"(?i)\A\W*(?:{any_of})(?!\w)" if kind == "starts" else rf"(?i)(?<!\w)(?:{any_of})\W*\Z"
    asked, denied = f"Does the response {kind[:-1]} with", regex_check(expression, exactly=0)
    if len(given.values) > 1:
        named = " or ".join(map(_in_quotes, given.values))
        return Found(at, at + 1, None, denied, f"{asked} something else than {named}?")
    check: Spec = regex_check(expression, exactly=1) if word else {"type": kind, "phrase": given.values[0]}
    return Found(at, at + 1, check, denied, f"{asked} {_in_quotes(given.values[0])}?")


_OPTIONS = re.compile(
    r"\b(?:answer|respond|reply|choose|select|pick|output|return|state|say|classify|label|categori[sz]e)\b"
    r"[^\x01]{0,90}\b(?:one of|either|options?|choices)\b[^\x01]{0,60}$"
)
_ANY = re.compile(r"\b(?:any|one|either)(?: one)? of\b|\beither\b")
_REQUIRING = ("includ", "contain", "mention", "incorporat", "insert")
_FORBIDDING = ("say", "us", "writ", "avoid", "without", "output")
_LINKS = ("but", "about", "than", "before", "after", "of", "for", "like", "to", "in")


def _keywords(clause: Clause, at: int, given: Strings) -> Iterator[Found]:
    """Keywords and forbidden words."""
    start, text = _named_from(clause, at), clause.view.text
    between = clause.symbols[start:at]
    governor = clause.words[start - 1] if start else ""
    noun = "W" in between or "S" in between
    if "K" in between or between.endswith("Wi") or governor in _LINKS or clause.symbols[start - 1 : start] == "f":
        return
    if not noun and not governor.startswith(_REQUIRING + _FORBIDDING):
        return
    words = list(given.values)
    if not any(map(str.isalnum, "".join(words))):
        return  # marks
    check: Spec | None = {"type": "keywords", "words": words}
    if len(words) > 1 and (given.either or _ANY.search(text, max(clause.start, given.start - 60), given.start)):
        check = {"type": "keywords", "words": words, "need": "any"}
    if not noun and governor.startswith(_FORBIDDING):
        check = None
    verbs = INCLUDES + "t" if governor in ("say", "write", "output") else INCLUDES
    yield Found(start, at + 1, check, {"type": "forbidden", "words": words}, verbs=verbs)


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


def unquoted(clause: Clause) -> Iterator[Found]:
    """Keywords without quotation marks: "Include the keywords river, mill and boat."."""
    for at, symbol in enumerate(clause.symbols):
        noun = clause.words[at]
        match = (
            _UNQUOTED.match(clause.text, clause.ends[at] - clause.start) if symbol == "W" and noun != "name" else None
        )
        if match is None or clause.symbols[at - 1] == "#":
            continue
        place, either = clause.start + match.start("list"), " or " in match["list"]
        values = [
            clause.view.prompt[place + word.start() : place + word.end()] for word in _WORD.finditer(match["list"])
        ]
        fits = either or match["colon"] or (len(values) > 1) == noun.endswith("s")
        if not fits or not _FUNCTION.isdisjoint(map(str.lower, values)):
            continue
        check: Spec = {"type": "keywords", "words": values, **({"need": "any"} if either else {})}
        last = clause.at(match.end())
        yield Found(_named_from(clause, at + 1), last, check, {"type": "forbidden", "words": values}, verbs=INCLUDES)


_ENDING_MARK = re.compile("(?:>[dagury]*?(?:i[dru]+)?i|(?P<last>f)[Su](?P<is>[mM][an]*[b6]))[DE#]+(?P<mark>C)")


def endings(clause: Clause) -> Iterator[Found]:
    """A last mark by its name: "End with a question mark", "The last character must be a question mark"."""
    for match in _ENDING_MARK.finditer(clause.symbols):
        name, subject = clause.words[match.start("mark")], bool(match["last"])
        mark = (THINGS[thing_at(clause, match.start("mark"))].spec or {}).get("letters", "")
        if len(mark) == 1 and not (subject and clause.words[match.start()] != "last"):
            article, denied = "an" if name[0] == "e" else "a", regex_check(rf"{re.escape(mark)}\s*\Z", exactly=0)
            check, asked = {"type": "ends", "phrase": mark}, f"Does the response end with {article} {name}?"
            found = Found(match.start() + (not subject), match.end(), check, denied, asked, verbs=">")
            yield found._replace(subject=subject, negations=negations_in(match["is"] or ""))


_PARAGRAPH = re.compile(
    r"(?:(?P<nth>fS|S#)(?:i[dr]*)?[mMa]*(?P<verb><)|<d?(?P<nth2>fS|S#)(?:i[dr]+)?)i[dW]*.(?=$|[,ki])"
)


def paragraph_starts(clause: Clause) -> Iterator[Found]:
    """The first word of a paragraph: "Paragraph 2 must start with"."""
    for match in _PARAGRAPH.finditer(clause.symbols):
        nth, verb, word = match["nth"] or match["nth2"], match["verb"], clause.given(match.end() - 1).values[0]
        named = [clause.words[match.start() + match.group().index(nth) + n] for n in (0, 1)]
        paragraph = ORDINALS.get(named[0]) if nth == "fS" else number(named[1])
        if paragraph and "paragraph" in named and " " not in word and word.lower() not in ("a", "an", "the"):
            check: Spec = {"type": "paragraph_start", "paragraph": paragraph, "word": word}
            yield Found(match.start() + (not verb), match.end(), check, subject=bool(verb), verbs="<")


_POSTSCRIPT = re.compile("I(?:[^,]*?(?P<marker>[IQ]))?")
_MARKER = re.compile(r"[Pp]\.?\s?(?:[Pp]\.?\s?)?[Ss]\.?")


def postscripts(clause: Clause) -> Iterator[Found]:
    """A postscript with its marker: "Add a postscript starting with P.S."."""
    if match := _POSTSCRIPT.search(clause.symbols):
        marker = clause.given(match.end() - 1).values[0]
        if _MARKER.fullmatch(marker):
            check: Spec = {"type": "postscript", "marker": marker}
            yield Found(match.start(), match.end(), check, verbs="otiw<>")


_REPEATING = ("repeat", "copy", "restate", "rewrite", "reproduce")
_REPEAT = re.compile(
    rf"\b(?:{'|'.join(_REPEATING)}) (?:back )?(?:(?P<quoted>\x01+)|(?:(?:the|my|this|above|entire|whole|exact|same"
    r"|full|original|(?P<below>below|following)) )+(?:request|prompt|question|query|instructions?"
    r"|(?:sentence|text)(?= above))\b(?P<after> below)?)"
)
_FIRST = re.compile(
    r"\bfirst\b|\bbefore\b|\bthen (?:give|answer|provide|respond|reply|write)|\bword[- ](?:for|by)[- ]word\b"
    r"|\bverbatim\b|\bexactly\b|\bwithout (?:any )?chang|\bunchanged\b|\bat the (?:very )?beginning"
)


def repeated(clause: Clause) -> Iterator[Found]:
    """The request repeated first: the text above this instruction, or below it."""
    view = clause.view
    match = None if view.words.isdisjoint(_REPEATING) else _REPEAT.search(clause.text)
    if match is None or not _FIRST.search(view.text, clause.start, clause.start + match.end() + 120):
        return
    verb = clause.at(match.start())
    told = not set("jz!").isdisjoint(clause.symbols[:verb]) or re.search("q|,d?[ur]*j", clause.symbols)
    if told or re.match(r":[ \t]*\S", clause.text[match.end() :]):
        return
    below = match["below"] or match["after"]
    gap = view.text.find("\n\n", clause.start + match.end()) if below or clause.start == 0 else -1
    text = view.prompt[gap:].strip() if gap > 0 else view.prompt[: clause.start].strip()
    if given := view.quoted.get(clause.start + match.start("quoted")):
        text = given.values[0]
    if text or not below:
        check: Spec = {"type": "repeats_prompt", **({"prompt": text} if text else {})}
        yield Found(verb + 1, len(clause.words), check, verbs="t")


_JSON = re.compile("J(?!-|[,k]iu|l|iD|~d[rf>])(?:[^Q,]*(?P<keys>Q))?")
_KEYS = re.compile(r"\b(?:keys?|fields?|properties|attributes)\b")
_SHAPES = (
    (re.compile("(?:[pW][^pe&]*|(?<=6i))&"), {"type": "title", "style": "angled"}, ANY_VERB),
    (re.compile('(?:d+[gur]*r|y)i"|i"|"~d+[gu]*r'), {"type": "quoted"}, "otb6"),
)
_STARS = re.compile(r"separat[^.]{0,90}?(?:(?<!\*)\*{6}(?!\*)|\b(?:6|six) asterisks?(?: symbols?)?(?:\W{1,3}\*{6})?)")


def json_objects(clause: Clause) -> Iterator[Found]:
    """JSON, perhaps with its keys."""
    for match in _JSON.finditer(clause.symbols):
        at, keys = match.start(), clause.given(match.end() - 1)
        if match["keys"] and not keys.either and _KEYS.search(clause.view.text, clause.starts[at], keys.start):
            check: Spec = {"type": "json", "keys": list(keys.values)}
            asked = f"Is the response a JSON object with the keys {' and '.join(map(_in_quotes, keys.values))}?"
            yield Found(at, match.end(), check, question=asked)
        else:
            yield Found(at, at + 1, {"type": "json"})


def shapes(clause: Clause) -> Iterator[Found]:
    """A title in angle brackets, the response in quotation marks."""
    for expression, check, verbs in _SHAPES:
        if match := expression.search(clause.symbols):
            yield Found(match.start(), match.end(), check, verbs=verbs)


def two_responses(clause: Clause) -> Iterator[Found]:
    """Two responses with six asterisks between them."""
    for match in _STARS.finditer(clause.text):
        verb = clause.at(match.start())
        end = max(clause.at(match.end()), verb + 2)
        yield Found(verb + 1, end, {"type": "two_responses"})


RULES = (
    (times, "xX"),
    (measures, "HV"),
    (counts, "#"),
    (language, "Y"),
    (repeated, "t5"),
    (paragraph_starts, "S"),
    (postscripts, "I"),
    (json_objects, "J"),
    (shapes, '&"'),
    (two_responses, "*C"),
    (endings, ">f"),
    (without, "CKZ"),
    (quoted_strings, "Q"),
    (unquoted, "W"),
)
"""All rules in the order in which they read a clause, each with symbols of which the clause must have one."""
