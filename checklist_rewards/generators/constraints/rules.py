"""The rules about things that are counted or left out, about casing and about the language of the response.

Each [`Thing`] has the words that name it and the check without its bounds. "At most 3 commas", "commas at most three
times", "no commas" and "commas are forbidden" are read from the same row. A number of words or characters without any
comparison is usually meant approximately, so it gives no check; a number of sentences or paragraphs is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from checklist_rewards.generators.constraints.amounts import Amount, amount, number
from checklist_rewards.generators.constraints.filtering import A_PART, APPROXIMATE, Found, negations_in
from checklist_rewards.generators.constraints.lexicon import LANGUAGES
from checklist_rewards.generators.constraints.reading import Clause, Spec
from checklist_rewards.generators.constraints.things import THINGS, thing_at

_AMOUNT = (
    r"(?P<limit>c[dgryH]*i)?(?P<how>[GLOUEAB](?:a?[EGLOU])?|~(?=[dD]?#))?[dD]?(?P<n>#)(?:(?P<to>[-ikl]|a)(?P<m>#))?"
    r"(?P<post>[PFGL])?(?:,?k?(?P<how2>[GLOU])(?P<n2>#))?"
)
_OPEN = re.compile("[,k-]*(?:l|[nN]?[dD#]*[%GLOUPFA](?![adD]*(?:x|#-?[gurfd6WSCKTX]))|i[<>]|(?P<word>[i~ua6]))")
_OPENING = ("at", "as", "up", "counting", "nothing", "being", "plus", "before", "after")
"""What follows a number that is not exact, or not that of the whole: "as a rule of thumb", "before the postscript"."""
_ROUGH = {"some", "inside"}
_ABOUT = Amount(None, None, "A")
_TIMES = re.compile(
    r"(?P<what>[dDg]*(?:W[,:]?(?:Q|[u1]u?)|K[,:]?[Q1D@]|Q|C))(?P<mid>[mMnb6vaidgry2~,]*?)"
    + _AMOUNT.replace("#", "[#x]")
    + r"(?:g?X(?P<post2>[PFGL](?![dD]?#))?|(?<=x)|(?<=x[PFGL]))e?"
)
_MEASURE = re.compile(
    r"(?:H[dg]*(?P<unit>[WSC])|(?P<how0>[GL]?)-?(?P<limit0>V))(?P<mid>[:idDgrmMnb6tav,y]*)"
    rf"{_AMOUNT}(?:-?(?P<unit2>[WS]))?"
)
_COUNT = re.compile(
    _AMOUNT + r"(?P<dash>-?)(?P<what>[gdfur6]*?)(?P<unit>[WSCKT])(?P<post2>[PFGL](?![dD]?#))?"
    r"(?:,?k?(?:(?P<how3>[GLOU])(?P<n3>#)|(?P<n4>#)(?P<how4>[GL]))(?!-?[guCWSKT]))?"
)


def _amount(clause: Clause, match: re.Match[str]) -> Amount:
    """The bounds that a match of `_AMOUNT` states."""
    groups = match.groupdict()

    def value(name: str) -> str:
        return clause.words[match.start(name)]

    how = (groups["how"] or "")[-1:]
    if (groups["how"] or "")[:1] == "A" or (how == "~" and value("how") in ("about", "around")):
        return _ABOUT
    first = number(value("n"))
    if groups["m"] is not None:
        last, to = number(value("m")), value("to")
        if last <= first or to not in ("-", "to", "and", "or") or (to == "or" and last != first + 1):
            return _ABOUT
        return Amount(first, last, "R" if how in ("", "B", "E") and (to != "and" or how == "B") else "A")
    if groups.get("limit") and not how:
        how = "L"
    post = groups.get("post") or groups.get("post2")
    if post and how in ("", "E"):
        how = {"P": "G", "F": "L"}.get(post, post)
    found = amount(how.strip("~"), first)
    for n in "234":
        if groups.get(f"n{n}") is not None:
            found = found.joined(amount(groups[f"how{n}"], number(value(f"n{n}"))))
    return _ABOUT if how == "B" or (not found.how and _open(clause, match)) else found


def _open(clause: Clause, match: re.Match[str]) -> bool:
    """Whether words around a number without a comparison may be one."""
    start, after = match.start(), _OPEN.match(clause.symbols, match.end())
    if after and (after["word"] is None or clause.words[after.start("word")] in _OPENING):
        return True
    before = clause.words[max(start - 1, 0) : match.start("n")]
    return not _ROUGH.isdisjoint(before) or re.search("B#[gu]*[WSC][ik]$", clause.symbols[:start]) is not None


def _bounded(start: int, end: int, name: str, found: Amount, spec: Spec | None = None, **settings: Any) -> Found:
    """The check of a thing with its bounds, and with those under a negation."""
    if (spec := spec or THINGS[name].spec) is None:
        return Found(start, end, reason=f"code does not count {name}")
    if found.how == "A":
        return Found(start, end, reason=APPROXIMATE)
    return Found(start, end, {**spec, **found.bounds}, found.denied and {**spec, **found.denied}, **settings)


def times(clause: Clause) -> Iterator[Found]:
    """How often a word, a letter or a mark occurs."""
    for match in _TIMES.finditer(clause.symbols):
        found = _amount(clause, match)
        found = found if found.how else found._replace(high=None)
        verb, negations = bool(set("mMb6v2n") & set(match["mid"])), negations_in(match["mid"])
        for spec in _target(clause, match):
            yield _bounded(match.start(), match.end(), "", found, spec, subject=verb, negations=negations,
                           verbs="otwbvi")  # fmt: skip


def _target(clause: Clause, match: re.Match[str]) -> Iterator[Spec]:
    """The checks that count what a match of `_TIMES` names."""
    what = match["what"].lstrip("dDg")
    at = match.end("what") - len(what)
    last = match.end("what") - 1
    if what[0] == "K":
        yield from ({"type": "letters", "letters": letter} for letter in _letters(clause, last))
    elif what[-1] == "Q" and clause.given(last).either:
        return  # one of them is enough
    elif what[-1] == "Q":
        yield from ({"type": "keyword_count", "word": word} for word in clause.given(last).values)
    elif what[0] == "W":
        first = at + 1 + (what[1] in ",:")
        word = clause.view.prompt[clause.starts[first] : clause.ends[last]]
        yield {"type": "keyword_count", "word": word}
    elif "c" in THINGS[thing_at(clause, last)].uses:
        yield THINGS[thing_at(clause, last)].spec or {}


def _letters(clause: Clause, at: int) -> tuple[str, ...]:
    """The letters that stand at a place, () if one of them is longer than a letter."""
    given = clause.given(at).values if clause.symbols[at] == "Q" else (clause.words[at],)
    return given if all(len(letter) == 1 for letter in given) else ()


def measures(clause: Clause) -> Iterator[Found]:
    """Limits: "the number of words should be less than 50", "word limit: 50"."""
    for match in _MEASURE.finditer(clause.symbols):
        found, how = _amount(clause, match), match["how0"]
        if match["unit"] or match["unit2"]:
            name = thing_at(clause, match.start("unit" if match["unit"] else "unit2"))
        else:
            name = clause.words[match.start("limit0")].split()[0] + "s"
        if match["limit0"] and not found.how:
            how = how or ("L" if "limit" in clause.words[match.start("limit0")] else "")
            found = amount(how, found.low or 0)
        named = clause.symbols[: match.start()].rstrip("dD").endswith("o")  # "mention the word limit of 250 words"
        if name in THINGS and found.how and not named:
            negations = negations_in(match["mid"])
            yield _bounded(match.start(), match.end(), name, found, subject=True, negations=negations)


_DIVIDER = re.compile(r"(?:separat|divid|delimit|mark|split)[^\n]{0,80}\n?[^\n]{0,20}(?<!\*)\*{3}(?!\*)")
_EMPHASIS = ("highlight", "emphasi", "italic")


def counts(clause: Clause) -> Iterator[Found]:
    """The things with a number: "at least 100 words", "three paragraphs"."""
    view, symbols = clause.view, clause.symbols
    for match in _COUNT.finditer(symbols):
        found, name = _amount(clause, match), thing_at(clause, match.start("unit")) or "parts"
        start, end = match.start() + len(match["limit"] or ""), match.end()
        before, after = symbols[:start], symbols[end:]
        passive = re.match("[mMb]*6+|", after)
        end_of = end + len(passive.group() if passive else "")
        near = clause.words[max(start - 3, before.rfind(",") + 1, before.rfind("k") + 1) : end_of]
        if any(word.startswith(_EMPHASIS) for word in near) and view.places(_MARKDOWN):
            if name in ("parts", "sentences", "words", "bullet points", "highlighted passages"):
                yield _bounded(
                    start, end_of, "highlighted passages", found if found.how else found._replace(high=None)
                )
        elif name == "words" and (capital := re.match(r"(?:lW)?[\^imb6dr]*Z", after)):
            if thing_at(clause, end + capital.end() - 1) != "upper":
                continue
            yield _bounded(start, end + capital.end(), "words in capital letters", found)
        elif set("ur6") & set(match["what"]) or "c" not in THINGS[name].uses:
            continue
        elif name in ("parts", "paragraphs") and view.places(_DIVIDER):
            yield _bounded(start, end, name, found, {"type": "paragraphs", "separator": "***"})
        elif found.how == "" and (reason := _unclear(clause, match, name, found.low or 0)) is not None:
            if reason:
                yield _bounded(start, end, name, found, reason=reason)
        elif name == "characters" and max(found.low or 0, found.high or 0) < 20:
            continue
        else:
            yield _bounded(start, end, name, found)


_MARKDOWN = re.compile(r"\*|markdown|asterisk|italic")


def _unclear(clause: Clause, match: re.Match[str], name: str, low: int) -> str | None:
    """Why a number without a comparison gives no check: a reason, "" if it is not asked for; None if it gives one."""
    start = match.start()
    before, after = clause.symbols[:start], clause.symbols[match.end() :]
    if name in ("words", "characters"):
        if low <= 10 and re.search("(?:[iw]|[mM][b6])[dDa]*$", before) and re.match("$|[,:k]|a?$", after):
            return None
        return f'a number of {name} without "at least" or "at most" may be approximate' if low >= 20 else ""
    if name == "non-empty lines":
        return "code cannot tell these lines from the other lines of the response"
    if match["dash"] and name != "bullet points":
        return None if re.match("[a,]*(?:s|s?[at]+)[aDd]*$", before) else A_PART
    return None


_LIST = re.compile(r"[dDg]*(?:C|K[Q1D@]|Z)(?:[,kl]{0,2}g*(?:C|K[Q1D@]|Z))*")
_ONE = re.compile(r"[CZ]|K[Q1D@]")


def without(clause: Clause) -> Iterator[Found]:
    """What must not occur: commas, digits, emojis, a letter, capital letters; also that bullet points occur."""
    for match in _LIST.finditer(clause.symbols):
        start, end = match.span()
        for one in _ONE.finditer(clause.symbols, start, end):
            name = thing_at(clause, one.start())
            if one.group()[0] == "K":
                if given := _letters(clause, one.end() - 1):
                    yield Found(start, end, None, {"type": "letters", "letters": "".join(given), "exactly": 0})
            elif one.group() == "Z":
                if end - start <= 3 and (
                    one.start() == start or "l" in match.group() or match.group().strip("dDg") == "Z"
                ):
                    yield from _cased(clause, start, end, name)
            else:
                thing = THINGS[name]
                some = {**thing.spec, "at_least": 1} if "s" in thing.uses else None  # type: ignore[dict-item]
                none = {**thing.spec, "exactly": 0} if "n" in thing.uses else None  # type: ignore[dict-item]
                if some or none:
                    yield Found(start, end, some, none)


def _cased(clause: Clause, start: int, end: int, name: str) -> Iterator[Found]:
    """Capital or small letters only, or none of them."""
    before = clause.symbols[:start]
    if set("WKQ") & set(re.split("[,k]", before)[-1]) or clause.words[end : end + 1] in (["for"], ["by"]):
        return  # the casing of a word, "all caps for the title"
    denied = None if re.search("i[aEdg]*$", before) else THINGS[name].spec
    yield Found(start, end, {"type": "casing", "casing": name}, denied)


_LANGUAGE = re.compile("[iow](?P<only>[aEdL]*)YR?")


def language(clause: Clause) -> Iterator[Found]:
    """The language of the response: "in German", "using only the Kannada language"."""
    names = {clause.words[n] for n, symbol in enumerate(clause.symbols) if symbol == "Y"}
    match = _LANGUAGE.search(clause.symbols)
    if match is None or len(names) > 1:
        return
    name, left, right = names.pop(), clause.symbols[: match.start()], clause.symbols[match.end() :]
    only = set("aE") & set(match["only"] + right[:1] + left[-2:]) or "no other language" in clause.text
    if not only and (set("RpWSQ") & set(left) or ("#" in left and "r" not in left)):
        return  # "the title in German", "five words in German"
    if right[:1] == "~" and right[1:2] != "D":
        return  # "French for the dialogue"
    check = {"type": "language", "language": LANGUAGES[name]}
    asked = f"Is the response in {name.capitalize()}?"
    yield Found(match.start() + 1, match.end(), check, question=asked)
