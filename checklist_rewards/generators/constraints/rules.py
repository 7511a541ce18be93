"""The rules: a table of things that are counted or left out, and patterns over the symbols of a clause.

Each [`Thing`] has the words that name it and the check without its bounds. "At most 3 commas", "commas at most three
times", "no commas" and "commas are forbidden" are read from the same row. A number of words or characters without any
comparison is usually meant approximately, so it gives no check; a number of sentences or paragraphs is exact.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from checklist_rewards.generators.constraints.amounts import VALUES, Amount, Bounds, amount, quantity
from checklist_rewards.generators.constraints.filtering import A_PART, APPROXIMATE, INCLUDES, Found
from checklist_rewards.generators.constraints.lexicon import TRIGGERS, learn
from checklist_rewards.generators.constraints.reading import Clause, Spec, Strings

EMOJI = (
    r"\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3"  # a flag; a keycap
    r"|(?:\p{Emoji}\uFE0F|\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|(?!\p{RI})\p{Emoji_Presentation}(?!\uFE0E))"
    r"[\p{Emoji_Modifier}\U000E0020-\U000E007F]*"
    r"(?:\u200D[\p{Extended_Pictographic}\p{Emoji_Presentation}][\uFE0F\p{Emoji_Modifier}]*)*"
)
"""One emoji as people see it: with its skin tone, as a flag, as a sequence. A sign that is text by default (©, ™, ❤)
counts only with the variation selector that makes it an emoji."""
DASH = r"[–—]|(?<=\S[ \t])-{1,3}(?=[ \t])|(?<=\w)--(?=\w)"
"""A dash: also a hyphen between spaces, but not the hyphen of "well-known" or of a bullet point."""


def regex_check(expression: str, **bounds: int) -> Spec:
    """The specification of a check with a regular expression."""
    return {"type": "regex", "pattern": expression, **bounds}


def _letters(letters: str) -> Spec:
    return {"type": "letters", "letters": letters}


class Thing(NamedTuple):
    """What can be counted or left out."""

    symbol: str
    words: str
    """Its names, as in `lexicon.py`."""
    spec: Spec | None
    """The check without bounds; None if no check counts it."""
    name: str
    uses: str = "c"
    """How it can be required: `c` counted, `n` none of it, `s` some of it."""
    every: bool = False
    """Each part of a response has it too."""
    text: bool = True
    """It cannot be counted in every language."""


_HEADING, _TABLE, _NUMBERED = r"(?m)^\s*#{1,6}\s", r"(?m)^\s*\|.*\|\s*$", r"(?m)^\s*\d+[.)]\s"
THINGS = {
    "words": Thing("W", "word words", {"type": "words"}, "words", every=True),
    "sentences": Thing("S", "sentence sentences", {"type": "sentences"}, "sentences", every=True),
    "paragraphs": Thing("S", "paragraph paragraphs", {"type": "paragraphs"}, "paragraphs", text=False),
    "characters": Thing("S", "character characters", regex_check(r"\X"), "characters", every=True),
    "lines": Thing("S", "line lines", regex_check(r"(?m)^.*\S.*$"), "lines that are not empty", every=True),
    "capital_words": Thing(
        "C", "capital_words all_caps_words all_capital_words capitalized_words uppercase_words words_in_all_caps "
        "words_in_all_capital_letters words_in_capital_letters words_with_all_capital_letters words_in_all_capitals "
        "words_with_all_caps words_using_all_caps words_in_uppercase fully_capitalized_words words_in_all_uppercase "
        "all_-_caps_words words_with_capital_letters all_capitalized_words all_caps_word capitalized_word "
        "words_in_caps all_cap_words capital_letter_words words_in_all_uppercase_letters",
        {"type": "capital_words"}, "words in capital letters"),
    "highlights": Thing(
        "C", "highlighted_sections highlighted_parts highlighted_section highlighted_phrases highlighted_words "
        "highlighted_passages highlighted_text_sections highlights italicized_sections italic_sections "
        "highlighted_segments highlighted_areas highlighted_portions",
        {"type": "highlights"}, "highlighted passages", text=False),
    "bullets": Thing("C", "bullet_points bullet_point bullets bulletpoints bullet bullet_point_list bullet_list "
                     "bullet_lists bulleted_list bulleted_lists bulleted_points bullet_items bulleted_items "
                     "bullet_points_list list_of_bullet_points", {"type": "bullets"}, "bullet points", "cns",
                     text=False),
    "placeholders": Thing("C", "placeholder placeholders place_holders", {"type": "placeholders"}, "placeholders",
                          text=False),
    "hashtags": Thing("C", "hashtag hashtags hash_tags", regex_check(r"(?<![\w#])#\w+"), "hashtags", "cn", text=False),
    "exclamation": Thing("C", "exclamation_mark exclamation_marks exclamation_point exclamation_points", _letters("!"),
                         "exclamation marks", "cn"),
    "question": Thing("C", "question_mark question_marks", _letters("?"), "question marks", "cn"),
    "commas": Thing("C", "comma commas", _letters(","), "commas", "cn"),
    "semicolons": Thing("C", "semicolon semicolons semi_colons", _letters(";"), "semicolons", "cn"),
    "colons": Thing("C", "colon colons", _letters(":"), "colons", "cn"),
    "hyphens": Thing("C", "hyphen hyphens", _letters("-"), "hyphens", "cn"),
    "dashes": Thing("C", "dash dashes em_dash em_dashes en_dashes", regex_check(DASH), "dashes", "cn"),
    "emojis": Thing("C", "emoji emojis emoticons", regex_check(EMOJI), "emojis", "cn", text=False),
    "digits": Thing("C", "digit digits numerals numbers numeral", _letters("0123456789"), "digits", "n"),
    "parentheses": Thing("C", "parentheses parenthesis", _letters("()"), "parentheses", "n"),
    "periods": Thing("C", "period periods full_stop full_stops", _letters("."), "full stops", "n"),
    "asterisks": Thing("C", "asterisk asterisks", _letters("*"), "asterisks", "n"),
    "punctuation": Thing("C", "punctuation punctuation_marks", regex_check(r"\p{P}"), "punctuation marks", "n"),
    "headings": Thing("C", "markdown_headings markdown_heading headings heading", regex_check(_HEADING), "headings",
                      "n"),
    "upper": Thing("Z", "capital_letters capital_letter capitals caps uppercase upper_case uppercase_letters "
                   "upper_case_letters uppercase_letter all_caps all_capital_letters all_capitals all_uppercase "
                   "all_uppercase_letters all_upper_case fully_capitalized all_capital capitalized_letters "
                   "all_capitalized capital english_capital_letters "
                   "all_upper_case_letters",
                   {"type": "casing", "casing": "lower"}, "", "n"),
    "lower": Thing("Z", "lowercase lower_case lowercase_letters lower_case_letters all_lowercase "
                   "all_lowercase_letters all_lower_case small_letters all_lower_case_letters "
                   "english_lowercase_letters all_small_letters "
                   "lowercase_english_letters ",
                   {"type": "casing", "casing": "upper"}, "", "n"),
    "parts": Thing("T", "sections section parts part points ideas items chapters scenes "
                   "segments areas segment area idea portion portions passage passages item point key_points "
                   "key_point",
                   None, "parts"),
    "pages": Thing("T", "page pages", None, "pages"),
    "syllables": Thing("T", "syllable syllables", None, "syllables"),
    "stanzas": Thing("T", "stanza stanzas verses", None, "stanzas"),
    "table": Thing("7", "markdown_table", regex_check(_TABLE), "rows of a Markdown table", "s"),
    "numbered": Thing("7", "numbered_list ordered_list", regex_check(_NUMBERED), "numbered items", "s"),
}  # fmt: skip
"""The things, by name."""
TRIGGERS.update(("section", "sections", "parts", "chapters", "scenes"))
_NAMES: dict[str, str] = {}
for _name, _row in reversed(THINGS.items()):
    for _phrase in _row.words.split():
        _NAMES[_phrase.replace("_", " ").strip()] = _name
    learn(_row.symbol, _row.words.split(), trigger=_row.spec is not None)


def _thing(clause: Clause, at: int) -> str:
    """The name of the thing at a place, "" for none."""
    return _NAMES.get(str(clause.tokens[at].value).replace(" - ", " "), "")


def question_of_bounds(check: Mapping[str, Any]) -> str:
    """The question of a counting check for which the check itself has none; "" if it has one."""
    bounds = {name: value for name, value in check.items() if name in ("at_least", "at_most", "exactly")}
    spec = {name: value for name, value in check.items() if name not in bounds}
    for thing in THINGS.values():
        if thing.spec == spec and bounds and spec["type"] in ("letters", "regex"):
            if bounds == {"exactly": 0}:
                return f"Does the response do without {thing.name}?"
            return f"Does the response have {quantity(bounds, thing.name)}?"
    return ""


def counted(start: int, end: int, thing: Thing, bounds: Bounds, denied: Bounds | None = None) -> Found:
    """A thing with its bounds, and with those under a negation."""
    if thing.spec is None:
        return Found(start, end, reason=f"code does not count {thing.name}")
    check: Spec = {**thing.spec, **bounds}
    refused: Spec | None = None if denied is None else {**thing.spec, **denied}
    return Found(
        start, end, check, refused, question_of_bounds(check), question_of_bounds(refused or {}), every=thing.every,
        counts=thing.text,
    )  # fmt: skip


_AMOUNT = (
    r"(?P<limit>c[dgryH]*i)?(?P<how>[GLOUEAB](?:a?[EGLOU])?|~(?=[dD]?#))?[dD]?(?P<n>#)(?:(?P<to>[-ikl]|a)(?P<m>#))?"
    r"(?P<post>[PFL])?(?:,?k?(?P<how2>[GLOU])(?P<n2>#))?"
)
_COUNT = re.compile(
    _AMOUNT + r"(?P<dash>-?)(?P<what>[gdfur6]*?)(?P<unit>[WSCKT])(?P<post2>[PFLG])?"
    r"(?:,?k?(?P<how3>[GLOU])(?P<n3>#)(?P<again>[WSCKT]?)(?!-?[guCWSKT]))?"
)
_TIMES = re.compile(
    r"(?:(?P<what>[dDg]*(?:W[,:]?[Qu1]u?|K[,:]?[Q1D@]|Q|C|Z)|[u]))(?P<mid>[mMnb6vaidgry2~,]*?)"
    rf"(?:(?P<xhow>[GLOUEA])?(?P<x>x)(?P<xpost>[PFL])?|{_AMOUNT}g?X(?P<post2>[PFL])?)(?P<each>e?)"
)
_NUMBER_OF = re.compile(r"H[dg]*(?P<unit>[WSC])[idDgry]*(?P<mid>[mMnb6va]*)" + _AMOUNT)
_MARKED = re.compile(r"t[dgr]{0,2}" + _AMOUNT + r"[gu]{0,2}[urpK]")
_LIMIT = re.compile(r"(?P<how0>[GL]?)-?(?P<v>V)[:idgrmb6ta,]*" + _AMOUNT)


def _amount(clause: Clause, match: re.Match[str], second: str = "23") -> Amount:
    """The bounds that a match of `_AMOUNT` states, with the second bounds of these groups."""

    def value(name: str) -> Any:
        return clause.tokens[match.start(name)].value

    groups = match.groupdict()
    how = (groups["how"] or "")[-1:]
    if (groups["how"] or "")[:1] == "A" or (how == "~" and value("how") in ("about", "around")):
        return Amount(None, None, "A")
    first = int(value("n"))
    if groups["m"] is not None:
        last, to = int(value("m")), str(value("to"))
        if last <= first or to not in ("-", "to", "and", "or") or (to == "or" and last != first + 1):
            return Amount(None, None, "A")
        return Amount(first, last, "R" if how in ("", "B", "E") and (to != "and" or how == "B") else "A")
    found = amount("" if how in "B~" else how, first)
    if groups.get("limit") and not how:
        found = amount("L", first)
    post = groups.get("post") or groups.get("post2")
    if post and how in ("", "E"):
        found = amount({"P": "G", "F": "L"}.get(post, post), first)
    for n in second:
        if groups.get(f"n{n}") is not None:
            found = found.joined(amount(groups[f"how{n}"], int(value(f"n{n}"))))
    return found


_DEFINITE = frozenset("the these those my all both this other another same following above below such his her".split())


def counts(clause: Clause) -> Iterator[Found]:
    """The things with a number: "at least 100 words", "three paragraphs"."""
    symbols = clause.symbols
    if "#" not in symbols and "x" not in symbols:
        return
    done = yield from _times(clause)
    for match in _LIMIT.finditer(symbols):
        done.add(match.start("n"))
        what = str(clause.tokens[match.start("v")].value)
        name = next((f"{unit}s" for unit in ("word", "character", "sentence") if unit in what), "")
        found = _amount(clause, match)
        unit = re.match(r"-?[WS]", symbols[match.end() :])
        if unit:
            name = _thing(clause, match.end() + unit.end() - 1)
        end = match.end() + (unit.end() if unit else 0)
        if name not in THINGS:
            continue
        if found.how == "" and match["how0"]:
            found = amount(match["how0"], found.low or 0)
        elif found.how == "" and "limit" in what:
            found = amount("L", found.low or 0)
        if found.how in ("", "A"):
            yield Found(match.start(), end, reason=f"a {name[:-1]} count alone may be approximate")
        else:
            yield counted(match.start(), end, THINGS[name], found.bounds)._replace(subject=True)
    for match in _NUMBER_OF.finditer(symbols):
        done.add(match.start("n"))
        found, name = _amount(clause, match), _thing(clause, match.start("unit"))
        if name and found.how not in ("", "A"):
            thing = counted(match.start(), match.end(), THINGS[name], found.bounds, found.denied)
            yield thing._replace(subject=True, negations=sum(match["mid"].count(n) for n in "nM"))
    for match in _MARKED.finditer(symbols):
        found = _amount(clause, match)
        if _marks(clause, match.start()) and found.how != "A":
            found = found if found.how else found._replace(high=None)
            yield counted(match.start() + 1, match.end(), THINGS["highlights"], found.bounds)._replace(
                first=match.start()
            )
    at = 0
    while number := _COUNT.search(symbols, at):
        other = number["again"] and _thing(clause, number.start("again")) != _thing(clause, number.start("unit"))
        at = number.start("how3") if other else number.end()
        if number.start("n") not in done:
            yield from _units(clause, number, _amount(clause, number, "2" if other else "23"))


def _units(clause: Clause, match: re.Match[str], found: Amount) -> Iterator[Found]:
    start, end, name = match.start(), match.end(), _thing(clause, match.start("unit"))
    if match["limit"]:
        start += len(match["limit"])
    before = clause.symbols[:start]
    if match["again"] and _thing(clause, match.start("again")) != name:
        end = start + len(clause.symbols[start : match.start("how3")].rstrip(",k"))
    if clause.symbols[match.start("unit")] == "W" and not name:
        name = "parts"
    if set("ur6") & set(match["what"]) and not (name == "parts" or re.search(r"[tb6][dgr]*$", before)):
        return
    if not name or "c" not in THINGS[name].uses:
        return
    thing = THINGS[name]
    least = found if found.how else found._replace(high=None)  # "three bold words" may be more
    marked = re.search(r"[tb6][dgr]*$", before)
    if marked and name in ("parts", "sentences", "words", "bullets") and _marks(clause, marked.start()):
        made = counted(start, end, THINGS["highlights"], least.bounds, found.denied)
        yield made._replace(first=marked.start())
    elif name in ("parts", "words", "sentences") and (
        (over := _HIGHLIGHTED.match(clause.view.text, clause.tokens[end - 1].end, clause.end)) or "6" in match["what"]
    ):
        end = bisect_left(clause.tokens, over.end(), key=lambda token: token.start) if over else end
        yield counted(start, end, THINGS["highlights"], least.bounds, found.denied)
    elif name == "words" and (capital := re.match(r"(?:lW)?[\^imb6dr]*Z", clause.symbols[end:])):
        yield counted(start, end + capital.end(), THINGS["capital_words"], least.bounds, found.denied)
    elif name == "parts":
        yield from _sections(clause, match, found)
    elif found.how == "A":
        yield Found(start, end, reason=APPROXIMATE)
    elif (
        found.how in ("", "E")
        and not match["post"]
        and not match["post2"]
        and (reason := _bare(clause, match, found, name, start)) is not None
    ):
        if reason:
            yield Found(start, end, reason=reason)
    elif name == "characters" and max(found.low or 0, found.high or 0) < 20:
        return
    elif name == "words" and clause.view.search(_LEFT_OUT):
        yield Found(start, end, reason="a part of the response does not count")
    elif name == "paragraphs" and _divided(clause):
        yield counted(start, end, thing, found.bounds)._replace(
            check={"type": name, "separator": "***", **found.bounds}
        )
    else:
        several = name in ("placeholders", "capital_words", "hashtags", "emojis", "highlights") and not found.how
        found = found._replace(high=None) if several else found
        yield counted(start, end, thing, found.bounds, found.denied)


_HIGHLIGHTED = re.compile(
    r"(?:[^,.;\n]{0,60}?\b(?:should|must|are|to) be)?\s+(?:highlighted|emphasi[sz]ed|italici[sz]ed|in italics)\b"
)


def _marks(clause: Clause, at: int) -> bool:
    """Whether a verb asks for Markdown emphasis: "highlight" alone may mean "mention"."""
    verb = str(clause.tokens[at].value)
    return verb.startswith(("italic", "emphasize")) or (
        verb == "highlight" and re.search(r"\*|markdown|asterisk|italic", clause.view.text) is not None
    )


def _bare(clause: Clause, match: re.Match[str], found: Amount, name: str, start: int) -> str | None:
    """Why a number without a comparison gives no check: a reason, "" if it is not asked for; None if it gives one."""
    low, symbols = found.low or 0, clause.symbols
    exact = match["how"] == "E" and str(clause.tokens[match.start("how")].value) not in ("only", "just")
    previous = str(clause.tokens[start - 1].value) if start else ""
    if not exact and (previous in _DEFINITE or symbols[:start][-1:] in ("f", "S")):
        return ""
    if exact:
        return None
    if previous == "of" and name in ("words", "characters"):
        return ""
    if name in ("words", "characters"):
        if name == "words" and low <= 10:
            noun = re.match(r"r|[ut]", symbols[match.end() :])
            if match["dash"]:
                answer = (
                    noun and noun.group() == "r" and re.fullmatch(r"[a,]*s?[at]+[dDa]*", symbols[:start].rstrip("D"))
                )
                return None if answer else A_PART
            if re.search(r"(?:[iw]|[mM][b6][dDa]*)E?[dDa]*$", symbols[:start]) and re.match(
                r"$|[,:k]|a?$|i[tu]|\^", symbols[match.end() :]
            ):
                return None
            if not symbols[:start].strip(",aD") and symbols[match.end() :] in ("", "a", "E", "E,"):
                return None
        if low >= 20:
            return f'a number of {name} without "at least" or "at most" may be approximate'
        return ""
    if name == "lines":
        return "code cannot tell these lines from the other lines of the response"
    if match["dash"] and name != "bullets":
        return None if re.match(r"[a,]*s?[at]+[aDd]*$", symbols[:start]) else A_PART
    return None


_LEFT_OUT = re.compile(
    r"\bexclud\w+[^.\n]{0,60} (?:word count|word limit)|\bnot (?:be )?(?:included|counted"
    r"|part of)\b[^.\n]{0,40}\b(?:words?|count|limit)\b"
    r"|\b(?:not including|excluding|without counting|not counting) (?:the )?[a-z]"
)
_MARKER = r"""[\"'`“‘\[*]*([A-Za-z]{2,20})\s+(?:[XN]\b|\[?#|\d\b|\{?number\b|\[?[a-z]\b)"""
SECTION_MARK = re.compile(
    r"(?i)\b(?:mark|start|begin|label|separate|denote|indicate|precede|title|name|introduce|head|call|identify|divide"
    r"|note)\w*\b[^.\n]{0,80}?\b(?:with|as|by|using|:)\s*(?:the )?(?:(?:word|keyword|marker|heading|header|label) )?"
    + _MARKER
)
_SECTIONS_LIKE = re.compile(
    r"\b(?:sections?|parts?|chapters?)\b[^.\n]{0,60}?(?:such as|like|i\.e\.|e\.g\.|for example|:)\s*:?\s*"
    r"[\"'`“‘\[*]*([A-Za-z]{3,20})\s+(?:X\b|1\b|I\b)"
)
_DIVIDER = re.compile(r"(?:separat|divid|delimit|mark|split)[^\n]{0,80}\n?[^\n]{0,20}(?<!\*)\*{3}(?!\*)")


def _divided(clause: Clause) -> bool:
    """Whether the prompt asks for a divider of three asterisks."""
    return clause.view.search(_DIVIDER) is not None


def _sections(clause: Clause, match: re.Match[str], found: Amount) -> Iterator[Found]:
    """Sections need a marker or a divider that code can see."""
    view, unit = clause.view, str(clause.tokens[match.start("unit")].value)
    if not unit.startswith(("section", "part", "scene", "chapter")) or found.how == "A":
        return
    if _divided(clause):
        check = {"type": "paragraphs", "separator": "***", **found.bounds}
        yield Found(match.start(), match.end(), check, counts=False, every=False)
    elif marker := view.search(SECTION_MARK, masked=False) or view.search(_SECTIONS_LIKE, masked=False):
        check = {"type": "sections", "marker": marker[1], **(found if found.how else found._replace(high=None)).bounds}
        yield Found(match.start(), match.end(), check, counts=False, every=False)


def _times(clause: Clause) -> Any:
    """How often a word, a letter, a mark or words in capital letters occur."""
    done: set[int] = set()
    for match in _TIMES.finditer(clause.symbols):
        if match["x"]:
            n = VALUES[str(clause.tokens[match.start("x")].value)]
            how = {"P": "G", "F": "L"}.get(match["xpost"] or "", match["xhow"] or "")
            found = amount(how, n)
        else:
            found = _amount(clause, match)
            done.add(match.start("n"))
        found = found._replace(high=None) if not found.how else found
        specs = list(_target(clause, match))
        mid = match["mid"]
        verb = bool(set(mid) & set("mMb6v2n"))
        passive = re.search(r"[mMb6v2n]", mid)
        if passive and "i" in mid[: passive.start()]:
            continue
        if found.how == "A":
            yield Found(match.start(), match.end(), reason=APPROXIMATE)
            continue
        for spec in specs:
            check, refused = {**spec, **found.bounds}, found.denied and {**spec, **found.denied}
            question = question_of_bounds(check), question_of_bounds(refused or {})
            yield Found(
                match.start(), match.end(), check, refused, *question, every=False, subject=verb,
                negations=sum(mid.count(n) for n in "nM"), verbs="otwbvi",
            )  # fmt: skip
    return done


def _target(clause: Clause, match: re.Match[str]) -> Iterator[Spec]:
    at = match.start("what") + len(match["what"].rstrip("u")) if match["what"].endswith("u") else match.end("what") - 1
    token, kind = clause.tokens[at], match["what"]
    if kind[-1] == "Q":
        values = token.value.values
        if "K" in kind:
            if all(len(value) == 1 for value in values):
                yield from (_letters(value) for value in values)
            return
        yield from ({"type": "keyword_count", "word": value} for value in values)
    elif "K" in kind:
        yield _letters(clause.view.text[token.start])
    elif "W" in kind and kind[-1] in "u1":
        yield {
            "type": "keyword_count",
            "word": clause.view.prompt[token.start : clause.tokens[match.end("what") - 1].end],
        }
    elif kind[-1] in "CZ":
        name = _thing(clause, match.end("what") - 1)
        if name and "c" in THINGS[name].uses and THINGS[name].spec:
            yield THINGS[name].spec  # type: ignore[misc]


_LIST = re.compile(r"(?:[dDg]*(?:C|7|K[Q1D@]|Z)[,kl]{0,2})+")
_ONE = re.compile(r"[C7Z]|K[Q1D@]")


def without(clause: Clause, used: set[int]) -> Iterator[Found]:
    """What must not occur, or occur: commas, digits, emojis, a letter, capital letters; bullet points, a table."""
    for match in _LIST.finditer(clause.symbols):
        end = match.end() - len(match.group()) + len(match.group().rstrip(",kl"))
        if used & set(range(match.start(), end)):
            continue
        for one in _ONE.finditer(clause.symbols, match.start(), end):
            symbol = one.group()[0]
            free = clause.symbols[end : end + 1] == "-" and clause.view.text.startswith(
                "-free", clause.tokens[end].start
            )
            name = "" if symbol == "K" else _thing(clause, one.start())
            question = ""
            if symbol == "K":
                token = clause.tokens[one.end() - 1]
                values = token.value.values if isinstance(token.value, Strings) else (clause.view.text[token.start],)
                if any(len(value) != 1 for value in values):
                    continue
                spec: Spec | None = {**_letters("".join(values)), "exactly": 0}
                question = f'Does the response do without the letter "{"".join(values)}"?'
                found = Found(match.start(), end, None, spec, "", question)
            else:
                thing = THINGS[name]
                if symbol == "Z":
                    if "Z" in match.group() and match.end() - match.start() > 3:
                        continue
                    yield _cased(clause, match.start(), end, name)
                    continue
                spec = {**thing.spec, "exactly": 0} if "n" in thing.uses else None  # type: ignore[dict-item]
                some = {**thing.spec, "at_least": 2 if name == "table" else 1} if "s" in thing.uses else None  # type: ignore[dict-item]
                asked = {"table": "a Markdown table", "numbered": "a numbered list", "bullets": "bullet points"}.get(
                    name, ""
                )
                named = "numbers in digits" if "number" in str(clause.tokens[one.start()].value) else thing.name
                every = name not in ("hashtags", "emojis", "bullets", "headings")
                found = Found(
                    match.start(), end, some, spec, f"Does the response have {asked}?",
                    f"Does the response do without {named}?", every=every, counts=every and thing.text,
                )  # fmt: skip
            if free:
                found = found._replace(check=found.denied, denied=None, question=found.denied_question, end=end + 2)
            yield found


_CASED = {
    "upper": "Does the response use capital letters only?",
    "lower": "Does the response use small letters only?",
}


def _cased(clause: Clause, start: int, end: int, name: str) -> Found:
    """Capital or small letters only, or none of them."""
    text, before, after = (
        clause.view.text[clause.tokens[start].start : clause.tokens[end - 1].end],
        clause.symbols[:start],
        clause.symbols[end:],
    )
    whole = (
        re.search(r"E[oivtbwadr]*$", before)
        or "all" in text
        or "only" in text
        or "fully" in text
        or re.search(r"[aE]$", before)
        or re.match(r"[aE]", after)
    )
    placed = re.search(r"(?:i|using|[mM][b6])[aEdg]*$", before) or (
        before and str(clause.tokens[start - 1].value) in ("using", "with")
    )
    subject = re.search(r"[mM][b6]?[ab6E]*$", before)
    check: Spec | None = {"type": "casing", "casing": name}
    denied: Spec | None = THINGS[name].spec
    if re.search(r"i[aEdg]*$", before):
        denied = None
    if not (whole or placed or subject):
        check = None
    if re.match(r"[WKp]|i[Wu]|[kl]a?[CWu]|#|[GLUO]", after) or re.search(r"[WKQ][^,k]*$|1[aEdgi]*$", before):
        check = None
    verb = re.search(r"o$", before)
    return Found(
        start, end, check, denied, _CASED[name], _CASED["lower" if name == "upper" else "upper"], form=True,
        first=verb.start() if verb else None,
    )  # fmt: skip


_PLACED = re.compile(r"(?P<verb>[<>])(?P<what>[dagryWf]*?(?:i[dry]+?)?)i(?P<named>[dDgaEW,:SKrtbyi]*)$")
_LAST = re.compile(r"[ga]*(?P<f>f)(?P<unit>[WSut])(?:i[dg]*r)?(?P<is>[mM]+[an]*[b6]*|6)[gda,:]*$")
_JSON = re.compile("json")
_KEYS = re.compile(r"\b(?:keys?|fields?|properties|attributes)\b[^\x01.]{0,50}$")


def strings(clause: Clause, used: set[int]) -> Iterator[Found]:
    """The requirements about the quoted strings of a clause."""
    symbols = clause.symbols
    for at, symbol in enumerate(symbols):
        if symbol != "Q" or at in used:
            continue
        given: Strings = clause.tokens[at].value
        if any(len(value) > 300 or "\n" in value for value in given.values):
            continue
        before = symbols[:at]
        placed = _PLACED.search(before)
        last = _LAST.search(before)
        if placed:
            yield from _placed(clause, at, given, placed)
        elif last:
            kind = "starts" if str(clause.tokens[last.start("f")].value) in ("first", "opening") else "ends"
            found = _at(clause, at, given, kind, str(clause.tokens[last.start("unit")].value).startswith("word"))
            yield found._replace(start=last.start(), subject=True, negations=sum(last["is"].count(n) for n in "nM"))
        elif clause.view.search(_JSON) and (keys := _KEYS.search(clause.view.text[clause.start : given.start])):
            first = next(n for n, token in enumerate(clause.tokens) if token.start >= clause.start + keys.start())
            json = symbols.find("J")
            question = f"Is the response a JSON object with the keys {_listed(given.values)}?"
            check = {"type": "json", "keys": list(given.values)}
            if not given.either:
                yield Found(
                    json if 0 <= json < at else first,
                    at + 1,
                    check,
                    None,
                    question,
                    every=False,
                    counts=False,
                    first=first,
                )
        elif (chosen := _options(clause, at, given)) is not None:
            yield chosen
        else:
            yield from _keywords(clause, at, given)


def _quoted(value: str) -> str:
    return f'"{value}"'


def _listed(values: tuple[str, ...]) -> str:
    return " and ".join(map(_quoted, values))


def _placed(clause: Clause, at: int, given: Strings, match: re.Match[str]) -> Iterator[Found]:
    """ "Start your reply with", "Start the second paragraph with"."""
    kind = "starts" if match["verb"] == "<" else "ends"
    text = clause.view.text[clause.start : given.start]
    if re.search(r"\bpostscript|\bp\.\s?s|\bpost script", text):
        return
    unit = clause.symbols[match.start("named") : at]
    one = given.values[0] if len(given.values) == 1 else None
    if one and len(one) == 1 and one.isalnum() and one != "I" and "W" not in unit:
        return
    if "K" in unit or (one and len(one) == 1 and not one.isalnum()):
        return
    yield _at(clause, at, given, kind, False)._replace(
        start=_first_of(clause, at), first=match.start(), verbs=match["verb"] + "i"
    )


_NAMED = re.compile(r"(?:[dDgE]*[WSK](?:i[dr]*)?)?[dDgE:,]*\Z")


def _first_of(clause: Clause, at: int) -> int:
    """Where the words in front of a string begin that name it: "the word"."""
    named = _NAMED.search(clause.symbols, 0, at)
    return named.start() if named else at


def _at(clause: Clause, at: int, given: Strings, kind: str, word: bool) -> Found:
    """The start or the end of the response."""
    any_of = "|".join(re.escape(value) for value in given.values)
    expression = rf"(?i)\A\W*(?:{any_of})(?!\w)" if kind == "starts" else rf"(?i)(?<!\w)(?:{any_of})\W*\Z"
    named, denied = " or ".join(map(_quoted, given.values)), regex_check(expression, exactly=0)
    refused = f"Does the response {kind[:-1]} with something else than {named}?"
    if len(given.values) > 1:
        return Found(at, at + 1, None, denied, "", refused)
    check: Spec = regex_check(expression, exactly=1) if word else {"type": kind, "phrase": given.values[0]}
    return Found(at, at + 1, check, denied, f"Does the response {kind[:-1]} with {named}?", refused)


_OPTIONS = re.compile(
    r"\b(?:answer|respond|reply|choose|select|pick|output|return|state|say|classify|label|categori[sz]e)\b"
    r"[^\x01]{0,90}\b(?P<of>one of|either|options?|choices)\b[^\x01]{0,60}$"
)
_ALONE = re.compile(
    r"\b(?:respond|reply|answer|output|return|write|say|print)\b(?: (?:with|back|me))*\s+"
    r"(?:only|just|nothing but|nothing (?:else|other) (?:but|than)|simply)"
    r"(?: (?:with|the|one|exact|single|word|phrase|sentence|text|following|of|either))*:?\s*$"
    r"|\bonly (?:respond|reply|answer|output|say)(?: (?:with|the|word|either))*:?\s*$"
)


def only_one_of(start: int, end: int, values: tuple[str, ...], said: str) -> Found:
    """An answer that consists only of one of the values. `said` names them in the question."""
    exact = "|".join(re.escape(value.rstrip(".")) for value in values)
    expression = rf"(?i)\A\W*(?:{exact})\W*\Z" if len(values) > 1 else rf"(?i)\A\W*{exact}\W*\Z"
    question = f"Does the response consist only of {said}?"
    return Found(start, end, regex_check(expression, exactly=1), None, question)


def _options(clause: Clause, at: int, given: Strings) -> Found | None:
    """One of several answers, or one answer alone: "Answer with "agree" or "disagree"."""
    text = clause.view.text[clause.start : given.start]
    start = _first_of(clause, at)
    if alone := _ALONE.search(text):
        first = next(n for n, token in enumerate(clause.tokens) if token.start >= clause.start + alone.start())
        if len(given.values) == 1:
            found = only_one_of(start, at + 1, given.values, _quoted(given.values[0]))
        elif given.either:
            said = f"{', '.join(map(_quoted, given.values[:-1]))} or {_quoted(given.values[-1])}"
            found = only_one_of(start, at + 1, given.values, said)
        else:
            return None
        return found._replace(first=first, start=max(start, first + 1))
    if options := _OPTIONS.search(text):
        if re.search(r"\b(?:words?|terms?)\b", text[-25:]) and "one of" not in text:
            return None
        first = next(n for n, token in enumerate(clause.tokens) if token.start >= clause.start + options.start())
        check: Spec = {
            "type": "keywords",
            "words": list(given.values),
            "need": "any",
            "whole_words": False,
            "ignore_case": False,
        }
        return Found(first + 1, at + 1, check, first=first) if len(given.values) > 1 else None
    return None


def _keywords(clause: Clause, at: int, given: Strings) -> Iterator[Found]:
    """Keywords and forbidden words."""
    start = _first_of(clause, at)
    between = clause.symbols[start:at]
    noun = "W" in between or (set("S") & set(between) and "f" not in between)
    letters = "K" in between
    text = clause.view.text[clause.tokens[start].start : given.start]
    governor = str(clause.tokens[start - 1].value) if start else ""
    if letters or between.endswith("Wi") or re.search(r"\bnot\b|\b(?:two|three|four|five|\d) of\b|but one", text):
        return
    if not noun and not governor.startswith(
        ("includ", "contain", "mention", "incorporat", "insert", "say", "us", "writ", "avoid", "without", "output")
    ):
        return
    if governor in ("but", "about", "than", "before", "after", "of", "for", "like", "to", "in"):
        return
    check: Spec | None = {"type": "keywords", "words": list(given.values)}
    if len(given.values) > 1 and (
        given.either
        or re.search(
            r"\b(?:any|one|either)(?: one)? of\b|\bat least one\b|\beither\b",
            clause.view.text[max(clause.start, given.start - 60) : given.start],
        )
    ):
        check = {**check, "need": "any"}  # type: ignore[dict-item]
    if not noun and governor.startswith(("us", "say", "writ", "avoid", "without", "output")):
        check = None
    if not any(map(str.isalnum, "".join(given.values))) and any(len(value) > 1 for value in given.values):
        return
    if all(len(value) == 1 and not value.isalnum() for value in given.values):
        denied: Spec = {"type": "letters", "letters": "".join(given.values), "exactly": 0}
        yield Found(
            start, at + 1, None, denied, "", f"Does the response do without {_listed(given.values)}?", verbs="owt"
        )
        return
    yield Found(
        start,
        at + 1,
        check,
        {"type": "forbidden", "words": list(given.values)},
        verbs=INCLUDES + "t" if governor in ("say", "write", "output") else INCLUDES,
        every=False,
    )


_FUNCTION = frozenset(
    "that which of in with for to you and or like such as the a an is are be used should must can at on from by if "
    "it count "
    "limit counts limits choice order per length range number appears appear more no not only than".split()
)
_UNQUOTED = re.compile(
    r"(?P<colon>\s*:)?\s*[\[(]?\s*(?P<list>[^\x01.;!?\n\[\](]{2,160}?)\s*[\])]?(?=\s+(?:in (?:your|the|its|my|this)"
    r"|somewhere|throughout"
    r"|within|to|as|at (?:least|all|the)|anywhere|should|must|may|can|will|cannot|has to|needs to|when|while|for"
    r"|into|unless|except"
    r"|and (?:make|write|use|do|ensure|avoid|end|start|keep|then|the)|is|are|but)\b|[.;!?\n\])]|$)"
)
_WORD = re.compile(r"[\w'#@-]+(?: [\w'-]+){0,2}")
_COMMA = re.compile(r"\s*,\s*(?:and\s+|or\s+)?(?:the (?:key)?word )?|\s+(?:and|or)\s+(?:the (?:key)?word )?")


def unquoted(clause: Clause, used: set[int]) -> Iterator[Found]:
    """Keywords without quotation marks: "Include the keywords river, mill and boat."."""
    for at, symbol in enumerate(clause.symbols):
        noun = str(clause.tokens[at].value)
        if symbol != "W" or at in used or clause.symbols[at + 1 : at + 2] == "Q" or noun in ("name", "sentence"):
            continue
        match = _UNQUOTED.match(clause.text, clause.tokens[at].end - clause.start)
        if match is None:
            continue
        words = [word.strip() for word in _COMMA.split(match["list"]) if word.strip()]
        colon, plural = match["colon"], noun.endswith("s")
        if not words or any(not _WORD.fullmatch(word) or set(word.split()) & _FUNCTION for word in words):
            continue
        if not colon and (
            any(" " in word for word in words) or ((len(words) > 1) != plural and " or " not in match["list"])
        ):
            continue
        values, end = [], match.start("list")
        for word in words:
            start = clause.text.index(word, end)
            end = start + len(word)
            values.append(clause.view.prompt[clause.start + start : clause.start + end])
        last = bisect_left(clause.tokens, clause.start + match.end(), key=lambda token: token.start)
        check: Spec = {"type": "keywords", "words": values}
        if " or " in match["list"]:
            check["need"] = "any"
        yield Found(
            _first_of(clause, at + 1), last, check, {"type": "forbidden", "words": values}, verbs=INCLUDES, every=False
        )  # fmt: skip
