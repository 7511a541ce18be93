"""The one filter: what a clause does with the thing that a rule found in it.

[`decide`] reads the symbols of the whole clause around the thing. The words before it must have one of four forms, and
the words after it must be known; otherwise the clause requires nothing:

- an order: "use", "do not mention", "make sure to include", "you should write";
- the response as subject: "your answer should", "it must not";
- a task with its topic and a link: "write a poem about the sea in";
- nothing but known words at the start of a clause, or after a comma behind an order.

Coarse signs of danger then leave no check. They are short on purpose, because a wrong item is worse than a missing one
and no list of precise wordings is ever complete:

- in the clause: a permission, a condition, a report, other persons, another subject, a part of the response;
- in the prompt: code; a later change of mind ("scratch that"); for checks of words and letters, a language in which
  they cannot count; for sizes, words that take a limit back ("flexible") or ask for another text ("then", "versions").

One negation in the form forbids the thing; two are not understood.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from checklist_rewards.generators.constraints.reading import OF_RESPONSE, Clause, Requirement, Spec
from checklist_rewards.generators.constraints.things import NAMES, question_of

A_PART = "it is about a part of the response"
CONDITIONAL = "it holds only under a condition"
APPROXIMATE = "the number is approximate"
PERMITTED = "it is permitted, not required"
OF_CODE = "it may be about what code does"
OTHER_LANGUAGE = "the checks cannot count in this language"
NO_BOUND = "every response or none meets it"
UNCLEAR = "the rules cannot tell whether it is required or forbidden"


ANY_VERB = "otcwb6vi"
INCLUDES = "owivb"
"""Symbols of the verbs and links that ask for words."""


_WHOLE = frozenset(
    "keyword_count keywords forbidden paragraphs paragraph_start postscript repeats_prompt json title two_responses "
    "capital_words highlights placeholders letters hashtags emojis dashes".split()
)
"""Types of checks about the whole response, even where a part of it is named before."""
_IN_EVERY_LANGUAGE = frozenset(
    "bullets paragraphs placeholders highlights json title postscript quoted two_responses repeats_prompt language "
    "hashtags emojis".split()
)
"""Types of checks that count no words or letters, which some languages separate otherwise."""
SIZES = ("words", "sentences", "paragraphs", "characters", "non-empty lines", "bullets")
"""What is counted of a whole text."""
_OF_TEXT = ("language", "casing")
"""Types of checks about the form of the text that a task asks for."""


class Found(NamedTuple):
    """A thing that a rule found: the symbols from `start` to `end` of the clause.

    `check` holds if it is required, `denied` if it is forbidden; None where no check expresses that. With a `reason`,
    no check expresses it at all.
    """

    start: int
    end: int
    check: Spec | None = None
    denied: Spec | None = None
    question: str = ""
    reason: str = ""
    verbs: str = ANY_VERB
    """Symbols of the verbs or links that can govern it."""
    subject: bool = False
    """It has its own verb: "the letter e must appear at least twice"."""
    negations: int = 0
    """Negations inside it."""

    @property
    def kind(self) -> str:
        """The type of its check, or the name of what its check counts with a pattern."""
        check: Spec = self.check or self.denied or {"type": ""}
        return NAMES.get(check.get("pattern", ""), str(check["type"]))


# Parts of the forms. `seg` is the part of a clause whose negations count, `verb` what governs the thing.
_OTHERS = r"(?:.*[,k:\-]|[^nMN]*(?=s))?"  # other parts of the clause
_LEAD = r"[akfE,:#1\-]*"
_ASKED = r"(?:s[aiydDr^]*)?"
_PLACE = r"(?:[i~][dri>]*,?)?"
_WORDS = r"(?:[dDgawib6yHE]|(?<=[dgi])r)*"
_FILL = rf"{_WORDS}N?{_WORDS}"
_RESPONSE = r"(?:[dg]*u?g*[rS]*r|y(?:idr)?)(?:iy+|\^?y[tuo5]+|y|a)?"
_GOVERNED = [
    re.compile(form)
    for form in (
        # "make sure to use", "do not mention"
        rf"{_OTHERS}(?P<seg>{_LEAD}{_ASKED}{_PLACE}(?:y[mM])?[anMfE]*(?P<verb>[otc<>]|(?<=n)w)[an]*{_FILL})",
        # "your answer should contain", "it must not"
        rf"{_OTHERS}(?P<seg>{_LEAD}{_ASKED}{_PLACE}{_RESPONSE}a*[mM][ankfE]*(?P<verb>[ob6tcvw<>]?){_FILL})",
        # a second verb after an order or a subject: "…, and must not"
        rf"(?:.*[mM].*|[^\^]*[ot][^\^]*)[,k](?P<seg>{_LEAD}(?:[mM][an]*|(?=v))(?P<verb>[ob6tcv<>]?){_FILL})",
        # a subject without "must": "make sure your answer has"
        rf"{_OTHERS}(?P<seg>{_LEAD}(?:s[ai^]*|t(?=d)){_RESPONSE}[aE]*(?P<verb>[mMbvo6])[an]*{_FILL})",
    )
]
# "write a poem about the sea in"
_TOPIC = re.compile(
    rf"{_OTHERS}{_LEAD}(?:{_ASKED}a*(?P<task>[otc5])|s|{_PLACE}{_RESPONSE}a*m[ab6]*[obtv6])"
    rf"(?P<topic>(?:[^otv<>mMnc:8]|(?<=[dDg])t)*?)"
    rf"(?P<seg>,?k?a*(?:(?P<verb>[iw<>6])|Nw?|\^[mM]?[an]*(?P<verb2>[ovb6t<>])|n[wi])[dDgbaE]*w?i?[dDgaE]*N?[dDgaE]*)"
)
# known words only, or nothing, perhaps after an order: "please, no". The head ends at the last comma,
# so that no other place is tried
_BARE = re.compile(
    rf"(?P<head>(?:.*[,k:\-])?[afE#1]*(?:s|{_ASKED}(?:y[mM])?[anM]*[otc<>5NGLOUE#]|{_ASKED}{_RESPONSE}a*[mM])[^\^]*"
    rf"[,k:\-](?=[^,k:\-]*$))?(?P<seg>{_LEAD}(?:s[aiydDr]*)?[nN]?w?[dDgawi6rHE]*N?[dDgawi6rHE]*)"
)
# what may stand before a thing with its own verb: "make sure that" the word "sea" appears
_OWN_VERB = re.compile(rf"{_OTHERS}(?P<seg>{_LEAD}{_ASKED}{_PLACE}[dDgaiyN^rbo]*)")
# the verb after a thing: "must be used", "is forbidden"
_PASSIVE = re.compile(r"[a,]*(?P<how>[mMnb6vka]*)(?P<what>[234]|i(?:y|d+r))")
# what may follow a thing
_NEXT = re.compile(r"$|[,:kaiw~^hNsQ\-y*@6l8qz]|e6|Ld*r|E(?=$|[,:k])")
# what may follow a string: not "on its own", "to begin", "not both"
_NEXT_STRING = re.compile(rf"(?!,?kno?[du]?(?:$|[,:])|,k?n[ud]|i[dD]*[<>]|~|6[dD]|,?u~)(?:{_NEXT.pattern})")
# a part of the response: "each title", "in the conclusion, use", "in the second stanza", "per page"
_PART = re.compile("e(?!6)|[pfT]")
_PART_FIRST = re.compile(r"[ak#\-]*[i~][^,]*[pfeT][^,]*,")
_PART_AFTER = re.compile("(?:a*i?[dDg]*|[^k:,iw]*)e(?!6)|[a,]*[i~][dDg]*[ur]?[efpTSC#]")
# what makes a size between the words before and after it ("|") that of another text
_OF_ANOTHER_SIZE = re.compile(
    "|".join(
        (
            r"p,\||kD[gu]*[rp].*\||\|.*k(?:D?#(?!C)|u+i[GLOUE]?#|D[gu]*[rp])",  # "descriptions (", "and a title of"
            r"[t5].*\|.*[,k]+[yi@]*5|l.*\|",  # "and explain it", "or in"
            r"~.*\|~|\^[u\x22].*\||S#.*\|",  # "on tea, … on milk", "that quotes Ann in", "paragraph 2 in"
        )
    )
)
_OWN_NOUN = re.compile("^[ug]{0,3}r")
# what makes the words before a thing those of another text
_OF_ANOTHER = re.compile(
    "|".join(
        (
            "j|@(?!.*[,k])|h@",  # a report, other persons
            "!(?!u)|[ur]h",  # "how to write", "a town where"
            "(?<!m6)[uRp@TSWK#]a*[mM].*[,k]a*n*[otc5<>bvmM]|^u[i~][^:]*k|^r$",  # "lines must rhyme and" use
            r"[uRpW]\^(?:.*[,k]a*n*[<>bvmM]|m.*k[otc5])|n.*\^.*k|\^b,",  # "a town that begins with A and": it goes on
            r"[nNM].*l|[nM][,Ea]|Nu+w|^[ak,#\-]*n[dry]",  # "without A-ing or", "not only": half of a negation
            "...:",  # a text after a colon
        )
    )
)
_SAYS = re.compile(",[^,k:]*j")
_ELSEWHERE = re.compile("[i~][dDgy]*[uR@]")
# Words anywhere in the prompt that leave no check, most of them only none of a size.
_CODE = frozenset("python javascript typescript php golang bash sql perl html regex".split())
_UNCOUNTED = (
    "japanese chinese mandarin cantonese thai lao khmer burmese tibetan hindi bengali gujarati kannada malayalam "
    "marathi nepali punjabi tamil telugu urdu arabic persian farsi hebrew korean sinhala sanskrit pashto sindhi "
    "amharic georgian armenian".split()
)
_IN_UNCOUNTED = re.compile(rf"\b(?:in|into|using|only|entirely) (?:the )?(?:{'|'.join(_UNCOUNTED)})\b")
_TAKEN_BACK = frozenset(
    "strict firm flexible lenient leeway negotiable approximate optional whatever hurt sweat happy "
    "seriously feel okay ok fine alright acceptable exclude excluded included counting counted".split()
)
"""A limit is taken back, or a part of the text does not count."""
_RECONSIDERED = re.compile(
    r"(?<!n't )(?<!not )(?<!never )\b(?:(?:scratch|forget|ignore|disregard|strike) (?:that|this|it|about|the|my)"
    r"|second thoughts?|never ?mind|kidding|joking|changed my mind|take (?:that|it) back|correction|or rather)\b"
    r"|(?:[.!?,;:\n(–—-]|\b(?:oh|ah|ok|well|lol|sorry)) *(?:actually,|hm+\b|no,|(?:no,? )?wait\b|no don't)"
)
"""What stands before is taken back, whatever it is."""
_SEVERAL = re.compile(
    r"\b(?:in a second|then|subsequently|followed|afterwards|also (?:re)?write|versions|variants|plus|headline|series"
    r"|chapters)\b"
)
"""Several texts are asked for."""
_JUDGED = frozenset("rate grade judge evaluate assess score feedback keys fields".split())
"""The prompt is about another text, or about one with named parts: "the story must" is not about the response."""
_THE_TEXT = re.compile("dr(?=a*[mMb])")
_WRITTEN = re.compile("[dDgawib6ryHEot5nNv]*")
_QUESTIONS = ("do", "does", "did", "was", "were", "have", "which", "when", "am")


class _Form(NamedTuple):
    """How the words before a thing ask for it, with places in the symbols of the clause."""

    segment: int
    """Where the part begins whose negations count."""
    task: int
    """The verb of the task, or the start of the part."""
    verb: int
    """The verb or link that governs the thing, -1 for none."""
    negations: int
    topic: str | None = None
    """The symbols between a task and the link to the thing."""


def _form(clause: Clause, found: Found) -> _Form | None:
    """How the words before a thing ask for it, None if they do not."""
    left = clause.symbols[: found.start]
    if found.kind in _OF_TEXT:
        left = re.sub(r"Y,?k?(?=[aE]*$)", "", left)  # "in English and in capital letters"
    if clause.words[0] in ("is", "does", "do", "are", "has") and _WRITTEN.fullmatch(left[1:]):
        return _Form(0, 0, -1, negations_in(left))  # a question of a checklist as a statement
    if found.subject:
        own = _OWN_VERB.fullmatch(left)
        return own and _Form(own.start("seg"), own.start("seg"), -1, negations_in(own["seg"]))
    for expression in _GOVERNED:
        if (match := expression.fullmatch(left)) and (not match["verb"] or match["verb"] in found.verbs):
            verb, seg = match.start("verb") if match["verb"] else -1, match.start("seg")
            return _Form(seg, max(verb, seg), verb, negations_in(match["seg"]))
    if clause.words[found.start] in ("within", "under"):
        left += "i"
    if (match := _TOPIC.fullmatch(left)) and (match["verb"] or match["verb2"] or "w") in found.verbs:
        task = match.start("task") if match["task"] else match.start("topic")
        verb = max(match.start("verb"), match.start("verb2"))
        return _Form(match.start("seg"), task, verb, negations_in(match["seg"]), topic=match["topic"])
    if match := _BARE.fullmatch(left):
        seg, negations = match.start("seg"), negations_in(match["seg"])
        thing = clause.symbols[found.start : found.end]
        if not negations and set("nM") & set(match["head"] or ""):
            return None
        if thing[0] == "Y" and not match["head"] and not re.match("$|:|,a*[t5]", clause.symbols[found.end :]):
            return None
        if negations or thing[0] not in "CQWZYJdDg" or set("iw") & set(match["seg"]) or set("#x") & set(thing):
            return _Form(seg, seg, -1, negations)
    return None


def negations_in(symbols: str) -> int:
    """The number of negations among symbols."""
    return symbols.count("n") + symbols.count("N") + symbols.count("M")


def _asks(clause: Clause) -> bool:
    """Whether a clause is a question, not a request."""
    if not clause.text.rstrip().endswith("?"):
        return False
    first = next((n for n, symbol in enumerate(clause.symbols) if symbol not in "a,k"), 0)
    return clause.symbols[first] in "hbjzm" or clause.words[first] in _QUESTIONS


_ABOUT_OTHERS = frozenset("list name suggest recommend translate convert describe discuss explain compare".split())
"""Tasks whose object is not written: what follows "that" or "with" belongs to it."""
_A_TEXT = re.compile("[dDga#y]*[gurRY]*ra*y?")
_TEXT_FIRST = re.compile("[Dga#yY]*[gu]*r")


def _of_the_topic(clause: Clause, found: Found, form: _Form) -> bool:
    """Whether a thing after a topic may belong to something that the topic names: "a poem about a letter with"."""
    topic, seg = form.topic or "", clause.symbols[form.segment : found.start]
    link = clause.words[form.verb] if 0 <= form.verb < found.start else ""
    if clause.words[form.task] in _ABOUT_OTHERS and link not in ("in", "using", "as", ""):
        return True
    if ("^" in seg or link == "of") and not _TEXT_FIRST.match(topic):
        return True
    if found.kind in _OF_TEXT:
        if "6" in seg:
            return True
    elif link in ("in", "using"):
        return False
    if seg[:1] == "," or seg[:2] == "kN" or _A_TEXT.fullmatch(topic):
        return False
    return (topic[-1:] in ("r", "R", "p", "W") and topic[-2:] != "#W") or (link == "of" and "i" in topic)


def decide(clause: Clause, found: Found) -> Requirement | None:
    """The requirement of a thing in its clause, with a check or with the reason why it has none; None if the clause
    requires nothing."""
    symbols = clause.symbols
    left, right = symbols[: found.start], symbols[found.end :]
    for symbol, reason in (("z", PERMITTED), ("q", CONDITIONAL)):
        if symbol in left or symbol in right or symbol in clause.header:
            return _without(clause, found, reason)
    if (
        _asks(clause)
        or _OF_ANOTHER.search(left)
        or _SAYS.search(right)
        or symbols[found.start - 1 : found.start + 1] == "nE"
    ):
        return None
    passive = _PASSIVE.match(right)
    if passive and (passive["how"].strip("a") or ("s" in left and passive["what"] in "234")):
        refused = negations_in(passive["how"]) + (passive["what"] == "3")
        found = found._replace(subject=True, end=found.end + passive.end(), negations=found.negations + refused)
        right = symbols[found.end :]
        if _ELSEWHERE.match(right):
            return None  # "is banned in our office"
    right = _OWN_NOUN.sub("", right)  # "a 300-word magazine article"
    form, kind = _form(clause, found), found.kind
    following = _NEXT_STRING if found.verbs.startswith(INCLUDES) else _NEXT
    if form is None or not following.match(right) or (form.topic is not None and _of_the_topic(clause, found, form)):
        return _without(clause, found, A_PART) if kind not in _WHOLE and _PART.search(left + right) else None
    negations = form.negations + found.negations
    check, question = found.check, found.question
    if negations == 1:
        check = found.denied
        question = question.replace(" with ", " with something else than ", 1) if found.check else question
    reason = _reason(clause, found, form, kind, right) or found.reason or (APPROXIMATE if "A" in right[:2] else "")
    if not reason and passive and passive["what"] == "4" and not negations:
        reason = PERMITTED
    if not reason and (
        check is None
        or negations_in(clause.header)
        or negations > 1
        or (negations and right[:1] == "8")
        or right[:1] == "l"
    ):
        reason = UNCLEAR
    if reason or check is None or check.get("at_least", 1) < 1 or check.get("at_most", 0) < 0:
        return _without(clause, found, reason or NO_BOUND)
    verb = form.verb if found.verbs != ANY_VERB or symbols[form.verb] == "o" and kind in _OF_TEXT else -1
    negation = max(symbols.rfind(symbol, form.segment, found.start) for symbol in "nNM") if negations else -1
    start = next((at for at in (negation, verb) if at >= 0), found.start)
    first, last = clause.starts[start], clause.ends[found.end - 1]
    return Requirement(first, last, check, question or question_of(check))


def _reason(clause: Clause, found: Found, form: _Form, kind: str, right: str) -> str:
    """Why a thing is not required of the response as it stands, "" if it is."""
    words, left = clause.view.words, clause.symbols[: found.start]
    of_response = OF_RESPONSE.search(clause.text) is not None
    if not of_response and not words.isdisjoint(_CODE):
        return OF_CODE
    reconsidered = clause.view.places(_RECONSIDERED)
    if reconsidered and reconsidered[-1] >= clause.ends[found.end - 1]:
        return CONDITIONAL
    if kind not in _IN_EVERY_LANGUAGE and clause.view.places(_IN_UNCOUNTED, _UNCOUNTED):
        return OTHER_LANGUAGE
    if _PART_FIRST.match(left) or _PART_AFTER.match(right):
        return A_PART
    if kind not in _WHOLE and _PART.search((clause.header + left).rpartition(",")[2]):
        return A_PART
    if not of_response and not words.isdisjoint(_JUDGED) and _THE_TEXT.search(left):
        return A_PART
    if (kind not in SIZES and kind != "json") or (found.check or {}).get("exactly") == 0:
        return ""
    if not words.isdisjoint(_TAKEN_BACK):
        return CONDITIONAL
    several = clause.view.places(_SEVERAL)
    if several and (not of_response or several[-1] >= clause.end):
        return A_PART
    if not of_response and (_OF_ANOTHER_SIZE.search(f"{left}|{right}") or clause.words[form.task] == "add"):
        return A_PART
    with_bullets = kind == "paragraphs" and re.search(r"[^N]Ck\||\|[,k]+D?#C", f"{left}|{right}")
    return A_PART if with_bullets else ""


def _without(clause: Clause, found: Found, reason: str) -> Requirement:
    return Requirement(clause.starts[found.start], clause.ends[found.end - 1], None, reason=reason)
