"""The one filter: what a clause does with the thing that a rule found in it.

[`decide`] reads the symbols of the whole clause around the thing. The words before it must have one of four forms, and
the words after it must be known; otherwise the clause requires nothing:

- an order: "use", "do not mention", "make sure to include", "you should write";
- the response as subject: "your answer should", "it must not";
- a task with its topic and a link: "write a poem about the sea in";
- nothing but known words at the start of a clause, or after a comma behind an order.

A permission, a condition, a report, a part of the response, a second text, code, or a language in which the checks
cannot count leaves no check, and neither does a limit that another sentence takes back. One negation in the form
forbids the thing; two are not understood.
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
# the other predicates of a relative clause: "a story that starts with this and" ends with
_SECOND = re.compile(r"(?<=\^)[^\^mM]*[,k](?=[<>][^,k]*$)")
# what may stand before a thing with its own verb: "make sure that" the word "sea" appears
_OWN_VERB = re.compile(rf"{_OTHERS}(?P<seg>{_LEAD}{_ASKED}{_PLACE}[dDgaiyN^rbo]*)")
# the verb after a thing: "must be used", "is forbidden"
_PASSIVE = re.compile(r"[a,]*(?P<how>[mMnb6vka]*)(?P<what>[234]|i(?:y|d+r))")
# what may follow a thing
_NEXT = re.compile(r"$|[,:kaiw~^hNsQ\-y*@6l8qz]|e6|Ld*r|E(?=$|[,:k])")
# what may follow a string: not "on its own", "to begin", "not both"
_NEXT_STRING = re.compile(rf"(?!,?kno?[du]?(?:$|[,:])|,k?n[ud]|i[dD]*[<>]|~|6[dD]|,?u~)(?:{_NEXT.pattern})")
# a part of the response: "each title", "in the conclusion, use", "in the second stanza", "per page", "on it"
_PART = re.compile("e(?!6)|[pfT]")
_PART_FIRST = re.compile(r"[ak#\-]*[i~][^,]*[pfeT][^,]*,")
_PART_AFTER = re.compile("(?:a*i?[dDg]*|[^k:,iw]*)e(?!6)|[a,]*[i~][dDg]*[ur]?[fpTSC#]|-?a*[pfT]|[^,k]*~y")
_OWN_NOUN = re.compile("^[ug]{0,3}r")
_EXPLAINED = re.compile("[,k]+a*5")
_THEN = re.compile("[a,k]*5(?:[yia@]|$)")
"""Another task after a task: "and explain it"; but not the only one: "In two sentences, explain it"."""
_AND_PART = re.compile("[,k]+[dDg]*p|[^:]*k(?:[D#][gu]{0,2}[rp]|#~)")
"""Another part or text: "and a title of", "and 3 about dogs"."""
_OTHER_TEXT = re.compile(
    r"[j!]|5[dDg]*[u@y]i[otcn]|[nNM][^:]*l[^,:]*[otcwvb<>]|[RSg][^:]*:|Q[ka]+:|\^b,|[nM],|^[ak,#\-]*n[dry]"
)
"""A report, another task, a text after a colon."""
_OTHER_SUBJECT = re.compile(
    r"(?:[a,#1:\-]*[dDgeuRp@i~]*(?:[uRp@]|S[#,k]*)[mMv]|[a,]*u[i~][dDgy]*u|.*(?:p\^|[uR]\^m|h[^,k]*[<>]))[^:]*[,k]a*n*[otc5<>bvmM][^,k]*$"
)
"""Another subject of the verbs before and after "and": "Applicants must write English and use no"."""
_LATER = re.compile(r"\bwill be (?:\w+ )?(?:\w+ed|read|shown|sent|sung)\b")
"""What others do with the response."""
_FOLLOWED = re.compile(r"\W*followed by\b")
_ELSEWHERE = re.compile("[i~][dDgy]*[uR@]")
_ONLY = ("just", "only", "merely", "simply", "always", "necessarily")
_NOT_ONLY = re.compile(rf"n(?:ot|'t|ever) (?:\w+ )?(?:{'|'.join(_ONLY)})\b")
_SAYS = re.compile(",[dD@iy]*[ur]{0,2}j")
_OF_PLACE = re.compile(r"\b(?:a|an|the|any|some) (?:[a-z'-]+ ){1,3}where\b")
"""A relative clause about the topic: "a town where people speak in"."""
_STATES = re.compile("[,a]+[dDg]*[uWKSpTQ@R]")
"""What follows a language if the clause is a statement about it: "In French, adjectives follow their noun"."""
_NAMES_ANOTHER = frozenset(
    "list name suggest recommend think choose pick translate convert describe discuss explain compare analyze analyse "
    "evaluate".split()
) | {"come up with"}
"""Verbs of tasks whose object is not written: what follows "that" or "with" belongs to it."""
_LANGUAGE = r"(?:python3?|java|javascript|typescript|c\+\+|c#|php|ruby|rust|golang|bash|sql|perl|html)"
_CODE = re.compile(
    rf"\b(?:in|using) {_LANGUAGE}(?!\w)"
    rf"|(?<!\w)(?:{_LANGUAGE}|django|react|shell|unit|linter)\s(?:script|program|code|function|class|method|query|page"
    r"|file|document|app|test|rule|component|form|one-liner)"
    r"|\b(?:functions?|programs?|scripts?|code|methods?|macros?|query|queries|regex|algorithms?|tests?)\s+"
    r"(?:that|which|to|prints?|returns?|outputs?|displays?|snippet)\b"
    r"|\b(?:write|create|implement|give me|fix|debug|run|refactor|build)\s+(?:a |an |the |some |this |my )?"
    r"(?:[a-z]+ )?(?:functions?|code|regex|algorithm|macro|class|parser|linter|one-liner|hook|component|test)\b"
)
_CODE_WORDS = frozenset(
    "function functions script scripts program programs code macro macros method methods query queries "
    "regex algorithm algorithms python python3 java javascript typescript c php ruby rust golang bash sql perl html "
    "test tests parser linter liner component class hook".split()
)
_TAKEN_BACK_WORDS = (
    "if strict hard firm hurt matter sweat kidding happy seriously okay ok fine alright acceptable".split()
)
_TAKEN_BACK = re.compile(
    r"\bif [^.;\n]{0,60}\b(?:use|up to|longer)\b|\b(?:if you can't|happy with|sweat it|just kidding)\b"
    r"|\bnot (?:a |an |so )?(?:strict|hard|firm)\b|(?:won't|doesn't) (?:hurt|matter)|too seriously"
    r"|\b(?:\d+|more|longer|shorter|less|fewer)\b[^.;\n]{0,25}(?:\b(?:is|are|be)|'s) (?:also )?"
    r"(?:okay|ok|fine|alright|acceptable)\b|\b(?:okay|ok|fine|alright) (?:if|to)\b[^.;\n]{0,40}\b(?:more|longer|less"
    r"|shorter|fewer|over|exceed)\b"
)
"""What another sentence says of a limit that is none."""
_SUBJECT = re.compile("dr(?=a*[mMbv])")
_WHOLE_TEXT = re.compile(r"\b(?:entire|whole|total|altogether)\b")
_READ = re.compile(r"\b(?:read|think|look|consider)\b")
_SEVERAL_WORDS = "title headline second then followed afterwards after also version versions time plus".split()
_SEVERAL = re.compile(
    r"(?<!being )(?<!is )(?<!was )\bfollowed by\b|\b(?:afterwards(?! i\b)|after that|at a time|plus an?)\b"
    r"|\b(?:(?:and|or) an? \w+-\w+ version|then,? (?:an?|in|another)|in (?:a|the) second)\b"
    r"|\bversions?\b[^\n]*\bversions?\b|\b(?:title|headline) and (?:an? )?(?:description|post|text|article|summary)\b"
    r"|(?P<task>\b(?:then|also),? (?:re)?(?:write|translate|explain|justify|tell|list|describe|summari[sz]e|make"
    r"|give (?:me|an?))\b)"
)
"""Another text than the one whose size is required."""
_UNCOUNTED_WORDS = (
    "japanese chinese mandarin cantonese thai lao khmer burmese tibetan hindi bengali gujarati kannada malayalam "
    "marathi nepali punjabi tamil telugu urdu arabic persian farsi hebrew korean sinhala sanskrit pashto sindhi "
    "amharic georgian armenian".split()
)
_IN_UNCOUNTED = re.compile(
    rf"\b(?:in|into|to|use|using|only)\s+(?:the |only |just |entirely )*(?:{'|'.join(_UNCOUNTED_WORDS)})\b"
    rf"|\b(?:{'|'.join(_UNCOUNTED_WORDS)})\s+(?:[a-z]+ )?(?:language|poem|essay|text|story|letter|email)\b"
)
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
    if second := _SECOND.search(left):
        form = _form_of(clause, found, left[: second.start()] + left[second.end() :])
        return form and form._replace(verb=form.verb + len(second.group()) if form.verb >= 0 else -1)
    return _form_of(clause, found, left)


def _form_of(clause: Clause, found: Found, left: str) -> _Form | None:
    """The form of the words before a thing, as symbols."""
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
        if thing[0] == "Y" and not match["head"] and _STATES.match(clause.symbols, found.end):
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


def _of_another(clause: Clause, form: _Form, found: Found, kind: str) -> bool:
    """Whether a thing after a topic belongs to something that the topic names: "a poem about a letter with"."""
    topic, seg = form.topic or "", clause.symbols[form.segment : found.start]
    link = clause.words[form.verb] if 0 <= form.verb < found.start else ""
    if clause.words[form.task] in _NAMES_ANOTHER and link not in ("in", "using", "as", ""):
        return True
    if _OF_PLACE.search(clause.text, 0, clause.starts[found.start] - clause.start):
        return True
    relative, last = "^" in seg, topic[-1:]
    if re.fullmatch("[dDga#y]*[gurRY]*ra*y?", topic):  # a text and nothing else
        return relative and "d" in topic
    if relative or link == "of":
        return not re.match("[Dgak#y]*[gu]*r", topic) or last in "rRpSW," or (link == "of" and "iD" in topic)
    if kind in _OF_TEXT and "6" in seg:
        return True
    if seg[:1] == "," or re.search("#[dga]*.$", topic) or (link in ("in", "using") and kind not in _OF_TEXT):
        return False
    return last in ("r", "R", "p", "W") or (last == "S" and link in ("with", "of"))


def decide(clause: Clause, found: Found) -> Requirement | None:
    """The requirement of a thing in its clause, with a check or with the reason why it has none; None if the clause
    requires nothing."""
    symbols = clause.symbols
    left, right = symbols[: found.start], symbols[found.end :]
    if not clause.view.words.isdisjoint(_ONLY) and _NOT_ONLY.search(clause.text):
        return _without(clause, found, PERMITTED)
    for symbol, reason in (("z", PERMITTED), ("q", CONDITIONAL)):
        if symbol in left or symbol in right or symbol in clause.header:
            return _without(clause, found, reason)
    if _asks(clause) or _OTHER_TEXT.search(left) or _OTHER_SUBJECT.match(left) or _SAYS.search(right):
        return None
    if "will be " in clause.text and _LATER.search(clause.text):
        return None
    if "followed" in clause.view.words and _FOLLOWED.match(clause.view.text, clause.ends[found.end - 1]):
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
    if (
        form is None
        or not following.match(right)
        or (form.topic is not None and _of_another(clause, form, found, kind))
    ):
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
    view = clause.view
    if view.search(_CODE, _CODE_WORDS) and not OF_RESPONSE.search(clause.text):
        return OF_CODE
    if kind not in _IN_EVERY_LANGUAGE and view.search(_IN_UNCOUNTED, _UNCOUNTED_WORDS):
        return OTHER_LANGUAGE
    if kind in SIZES and view.search(_TAKEN_BACK, _TAKEN_BACK_WORDS):
        return CONDITIONAL
    if kind in SIZES and not _WHOLE_TEXT.search(clause.text):
        several = view.search(_SEVERAL, _SEVERAL_WORDS)
        if several and not (several["task"] and _READ.search(view.text, 0, several.start())):
            return A_PART
    left = clause.symbols[: found.start]
    subject = _SUBJECT.search(left)
    if subject and clause.words[subject.start()] in ("the", "this") and clause.words[subject.end() - 1] in view.named:
        return A_PART
    if kind == "json" and _EXPLAINED.search(right):
        return A_PART
    if (
        kind == "paragraphs"
        and "at_least" not in (found.check or ())
        and (re.search("#g*C[,k]+$", left) or re.match("[,k]+#g*C", right))
    ):
        return A_PART  # a block of bullet points is one more
    if _PART_FIRST.match(left) or _PART_AFTER.match(right):
        return A_PART
    before = (clause.header + left[form.task :]).rpartition(",")[2]
    aside = clause.words[found.start - 1] == "(" and ("o" in left or clause.text.count("(") > 1)  # "a tip (20 words)"
    if kind not in _WHOLE and (
        aside
        or _PART.search(before)
        or (_THEN.match(right) and set("t5") & set(left))
        or _AND_PART.match(right)
        or clause.words[form.task] == "add"
        or (kind == "words" and right[:2] == "iY" and left[form.task] == "o")
    ):
        return A_PART
    return ""


def _without(clause: Clause, found: Found, reason: str) -> Requirement:
    return Requirement(clause.starts[found.start], clause.ends[found.end - 1], None, reason=reason)
