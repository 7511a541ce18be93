"""The one filter: what a clause does with the thing that a rule found in it.

[`decide`] reads the symbols of the whole clause around the thing. The words before it must have one of four forms, and
the words after it must be known; otherwise the clause requires nothing:

- an order: "use", "do not mention", "make sure to include", "you should write";
- the response as subject: "your answer should", "it must not";
- a task with its topic and a link: "write a poem about the sea in";
- nothing but known words at the start of a clause, or after a comma behind an order.

A permission, a condition, a report, a part of the response, code, or a language in which the checks cannot count
leaves no check. One negation in the form forbids the thing; two are not understood.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from checklist_rewards.checks.ifeval import question_of_instruction
from checklist_rewards.generators.constraints.reading import Clause, PromptText, Requirement, Spec

A_PART = "it is about a part of the response"
CONDITIONAL = "it holds only under a condition"
APPROXIMATE = "the number is approximate"
PERMITTED = "it is permitted, not required"
OF_CODE = "it may be about what code does"
OTHER_LANGUAGE = "the checks cannot count in this language"
NO_BOUND = "every response or none meets it"
UNCLEAR = "the rules cannot tell whether it is required or forbidden"


INCLUDES = "owivb"
"""Symbols of the verbs and links that ask for words."""


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
    denied_question: str = ""
    reason: str = ""
    every: bool = True
    """Each part of a response has the thing too, so a part that is named before it may be meant."""
    counts: bool = True
    """The check counts words or letters, which it cannot in every language."""
    form: bool = False
    """It is the form of the text that a task asks for: its language or its casing."""
    verbs: str = "otcwb6vi"
    """Symbols of the verbs or links that can govern it."""
    first: int | None = None
    """Where its evidence begins, if not at `start`."""
    last: int | None = None
    """Where its evidence ends, if not at `end`."""
    subject: bool = False
    """It has its own verb: "the letter e must appear at least twice"."""
    negations: int = 0
    """Negations inside it."""


# Parts of the forms. `seg` is the part of a clause whose negations count.
_SAFE = r"[^jqz!]"  # before the part: no condition, permission or report
_LEAD = r"[akfE,:#1\-]*"
_ASKED = r"(?:s[aiydDr^]*)?"
_FILL = r"[dDgawib6ryHE]*"
_ALONE = r"[dDgawi6rHE]*"
_RESPONSE = r"(?:[dg]*u?g*[rS]*r|y(?:idr)?)(?:iy+|\^?y[tuo5]+|y|a)?"

# "make sure to use", "do not mention"
_ORDER = re.compile(
    rf"(?:{_SAFE}*[,k:\-]|[^jqz!nMN]*(?=s))?(?P<seg>{_LEAD}{_ASKED}(?:[i~][dri>]*,?)?(?:y[mM])?[anMfE]*(?P<verb>[otc<>]|(?<=n)w)[an]*{_FILL}N?{_FILL})"
)
# "your answer should contain", "it must not"
_SUBJECT = re.compile(
    rf"(?:{_SAFE}*[,k:\-])?(?P<seg>{_LEAD}{_ASKED}(?:[i~][dri>]*,?)?{_RESPONSE}a*[mM][ankfE]*(?P<verb>[ob6tcvw<>]?){_FILL}N?{_FILL})"
)
# a second verb after an order or a subject: "…, and must not"
_AGAIN = re.compile(
    rf"{_SAFE}*[otc<>mM]{_SAFE}*[,k](?P<seg>{_LEAD}(?:[mM][an]*"
    rf"|(?=v))(?P<verb>[ob6tcv<>]?){_FILL}N?{_FILL})"
)
# "write a poem about the sea in"
_TOPIC = re.compile(
    rf"(?:{_SAFE}*[,k:\-])?{_LEAD}(?:{_ASKED}a*(?P<task>[otc<>5])|s"
    rf"|(?:[i~][dri>]*,?)?{_RESPONSE}a*m[ab6]*[obtv6])(?P<topic>(?:[^jqzotv<>mMnc!:8]|!(?=u)|(?<=[dDg])t)*?)"
    rf"(?P<seg>,?k?a*(?:(?P<verb>[iw<>6])|[N]w?|\^[mM]?[an]*(?P<verb2>[ovb6t<>])|n[wi]){_FILL})"
)
# known words only, or nothing: "please, no"
_BARE = re.compile(rf"(?P<head>{_SAFE}*[,k:\-]+)?(?P<seg>{_LEAD}(?:s[aiydDr]*)?[nN]?w?{_ALONE}N?{_ALONE})")
# a subject without "must": "make sure your answer has"
_STATED = re.compile(
    rf"(?:{_SAFE}*[,k:\-]|[^jqz!nMN]*(?=s))?(?P<seg>{_LEAD}(?:s[ai^]*"
    rf"|t(?=d)){_RESPONSE}[aE]*(?P<verb>[mMbvo6])[an]*{_FILL}N?{_FILL})"
)
# what may stand before a comma in front of `_BARE`
_HEAD = re.compile(
    rf"(?:{_SAFE}*[,k:\-])?{_LEAD}(?:s|{_ASKED}(?:y[mM])?[anM]*[otc<>5NGLOUE#]|{_ASKED}{_RESPONSE}a*[mM])"
)
# what may stand before a thing with its own verb: "make sure that" the word "sea" appears
_OWN_VERB = re.compile(rf"(?:{_SAFE}*[,k:\-])?(?P<seg>{_LEAD}{_ASKED}(?:[i~][dri>]*,?)?[dDgaiyN^rbo]*)")
# the verb after a thing: "must be used", "is forbidden"
_PASSIVE = re.compile(r"[a,]*(?P<how>[mMnb6vka]*)(?P<what>[234]|i(?:y|d+r))")
# a relative clause with a second verb
_RELATIVE = re.compile(r"\^a*(?P<verb>[<>v]i?)[^^:]*[,k]+a*$")
# what may follow a thing
_NEXT = re.compile(r"$|[,:kaiw~^hNsQ\-y*@6l8qz]|e6|Ld*r|E(?=$|[,:k])")
# what makes a thing that of a part: "per page", "in the title"
_OF_PART_AFTER = re.compile(
    r"~y|(?:a*i?[dDg]*|[^k:,iw]*)e(?!6)|[a,]*[i~][dDgr]*[fpT#]|a*i[dDg]+(?:[S<>]|W(?![:,]?[Qu1]))|a*[pT]|-?a*[fp]"
)
_PLACE_AFTER = re.compile(
    r"[^.,]{0,20}\b(?:more|less|as|very|quite|too) (?:often|frequently|rarely|much|sparingly)\b"
    r"|\s*(?:before|after|on its own|to (?:start|begin|end|open|close)|at the (?:very )?(?:end|start|beginning))\b"
    r"|[^.\n]{0,200}\bnot both\b|\s*by\b"
)
"""Words after a keyword that make it another requirement than that it occurs."""
_FOR_ANOTHER = re.compile(r"\s*(?:for (?!my|our|his|her|an? )|by )")
_SUB_PART = re.compile(r"\s*in the (?:caption|dialogue|signature)\b(?! you)")
_THEN = re.compile(r"(?:\s[a-z]+){0,2}[,\s]*(?:and |then |and then )(?:explain|justify|discuss|describe|translate)\b")
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
_OF_RESPONSE = re.compile(
    r"\b(?:your|the|this)(?: (?:entire|whole|full|complete|final))? (?:response|answer|reply|(?<!the )output)\b"
)
_UNCOUNTED = (
    "japanese chinese mandarin cantonese thai lao khmer burmese tibetan hindi bengali gujarati kannada malayalam "
    "marathi nepali punjabi tamil telugu urdu arabic persian farsi hebrew korean sinhala sanskrit pashto sindhi "
    "amharic georgian armenian"
)
_IN_UNCOUNTED = re.compile(
    rf"\b(?:in|into|to|use|using|only)\s+(?:the |only |just |entirely )*(?:{_UNCOUNTED.replace(' ', '|')})\b"
    rf"|\b(?:{_UNCOUNTED.replace(' ', '|')})\s+(?:[a-z]+ )?(?:language|poem|essay|text|story|letter|email)\b"
)
_UNCOUNTED_WORDS = frozenset(_UNCOUNTED.split())
_ASKED_ABOUT = re.compile(
    r"[\s\W]*(?:is|was|are|does|did|do|should|would|what|why|how|which|who|when|can)\b(?! you)[^.!?]{0,200}"
    r"\b(?:that|this|it|one|them|out)\b[^.!?]{0,200}\?"
)
"""A question about the statement before it: "Our bio must be under 50 words. Is that too little?"."""
_QUESTIONS = frozenset(
    "is are was were do does did should would could can may must has have what why how which who whose whom when "
    "where am will shall".split()
)
_LISTS = frozenset("list name suggest recommend think choose pick".split()) | {"come up with"}
_TOPICS = frozenset("about on describing regarding of".split())
_SHOWS = frozenset("describe discuss explain compare analyze analyse evaluate suggest list name".split())
_MATERIAL = frozenset("shorten rewrite edit correct improve expand rephrase review translate proofread".split())
_GIVEN = re.compile(
    r"\b(?:following|instructions?|rules?|guidelines?|prompt|request|sign|poster|notice|reads?|memo|sentence|text"
    r"|essay)\b[^:]*:"
)
"""A colon after which the prompt gives a text, not an order."""
_WRITTEN = re.compile(r"[dDgawib6ryHEot5nNv]*")


class _Form(NamedTuple):
    """How the words before a thing ask for it, with places in the symbols of the clause."""

    segment: int
    """Where the part begins whose negations count."""
    task: int
    """The verb of the task, or the start of the part."""
    verb: int
    """The verb or link that governs the thing, -1 for none."""
    negations: int
    bare: bool = False
    """No verb governs the thing."""


def _form(clause: Clause, found: Found) -> _Form | None:
    """How the words before a thing ask for it, None if they do not."""
    left = clause.symbols[: found.start]
    if found.form:
        left = re.sub(r"Y,?k?(?=[aE]*$)", "", left)
    if re.search(r"[nM],|\^b,i|^[ak,#\-]*n[dry]", left):
        return None
    if ":" in left and _GIVEN.search(clause.text, 0, clause.tokens[found.start].start - clause.start):
        return None
    if str(clause.tokens[0].value) in ("is", "does", "do", "are", "has") and re.fullmatch(_WRITTEN, left[1:]):
        return _Form(0, 0, -1, _negations(left), bare=True)  # a question of a checklist as a statement
    if found.subject:
        own = _OWN_VERB.fullmatch(left)
        return own and _Form(own.start("seg"), own.start("seg"), -1, _negations(own["seg"]), bare=True)
    for expression in (_ORDER, _SUBJECT, _AGAIN, _STATED):
        if (match := expression.fullmatch(left)) and (not match["verb"] or match["verb"] in found.verbs):
            verb = match.start("verb") if match["verb"] else -1
            return _Form(match.start("seg"), max(verb, match.start("seg")), verb, _negations(match["seg"]))
    if str(clause.tokens[found.start].value) in ("within", "under"):
        left += "i"
    if (match := _TOPIC.fullmatch(left)) and (match["verb"] or match["verb2"] or "w") in found.verbs:
        task = match.start("task") if match["task"] else match.start("topic")
        at = max(match.start("verb"), match.start("verb2"))
        if (
            clause.tokens[task].value in _LISTS
            and 0 <= at < found.start
            and clause.tokens[at].value not in ("in", "using", "as")
        ):
            return None
        if (
            0 <= at < found.start
            and clause.tokens[at].value == "of"
            and clause.symbols[found.start] not in "GLOUEAB#Dc"
        ):
            return None
        return _Form(match.start("seg"), task, at, _negations(match["seg"]))
    match = _BARE.fullmatch(left)
    if match and (not (match["head"] or "").strip("ak,-:#1") or _HEAD.match(match["head"])):
        negations = _negations(match["seg"])
        if not negations and set(match["head"] or "") & set("nM"):
            return None
        listed = re.search(r"[t5].*[iw^]", match["head"] or "")
        if listed and clause.tokens[listed.start()].value in _LISTS:
            return None
        if (
            not negations
            and not set(match["seg"]) & set("iw")
            and (
                clause.symbols[found.start] in "CQWZYJdD7g"
                and not set("#x") & set(clause.symbols[found.start : found.end])
            )
        ):
            return None
        return _Form(match.start("seg"), match.start("seg"), -1, negations, bare=True)
    return None


def _negations(symbols: str) -> int:
    return sum(symbols.count(symbol) for symbol in "nNM")


def decide(clause: Clause, found: Found) -> Requirement | None:
    """The requirement of a thing in its clause, with a check or with the reason why it has none; None if the clause
    requires nothing."""
    symbols = clause.symbols
    right = symbols[found.end :]
    passive = _PASSIVE.match(right)
    if passive and (passive["how"].strip("a") or ("s" in symbols[: found.start] and passive["what"] in "234")):
        found = found._replace(subject=True, end=found.end + passive.end())
        refused = _negations(passive["how"]) + (passive["what"] == "3")
        found = found._replace(negations=found.negations + refused)
        right = symbols[found.end :]
    else:
        passive = None
    around = symbols[: found.start] + symbols[found.last or found.end :]
    reason = found.reason
    form = _form(clause, found)
    if form is None or _asks(clause) or (found.subject or symbols[form.task] in "mM") and _asked_about(clause):
        if form is None and "z" in around:
            return _without(clause, found, PERMITTED)
        if form is None and "q" in around:
            return _without(clause, found, CONDITIONAL)
        part = not form and set("epfT") & set(around) and found.every
        return _without(clause, found, reason or A_PART) if (reason and form) or part else None
    if right[:1] in tuple("ugr") and str(clause.tokens[found.end - 1].value) in (
        "word",
        "sentence",
        "paragraph",
        "section",
    ):
        right = re.sub("^[ug]{0,3}r", "", right)
    if not _NEXT.match(right) or (re.search(r",[dD@iy]*[ur]{0,2}j", symbols[found.last or found.end :])):
        return _without(clause, found, A_PART) if right[:1] == "p" else None
    reason = _reason(clause, found, form, around, right) or reason
    if form.verb >= 0 and str(clause.tokens[form.verb].value).endswith("s"):
        first = _RELATIVE.search(symbols, 0, form.verb)  # "a word that starts with "a" and ends with"
        shared = first and decide(clause, found._replace(start=first.end("verb"), verbs="<>vi"))
        if first and not (shared and shared.check):
            return None
    negations = form.negations + found.negations
    if passive and passive["what"] == "4" and not negations:
        reason = reason or ("" if found.check and "at_most" in found.check else PERMITTED)
    check, question = (found.denied, found.denied_question) if negations == 1 else (found.check, found.question)
    if not reason and (negations > 1 or (negations and right[:1] == "8") or right[:1] == "l"):
        reason = UNCLEAR
    if reason or check is None or check.get("at_least", 1) < 1 or check.get("at_most", 0) < 0:
        return _without(clause, found, reason or (UNCLEAR if check is None else NO_BOUND))
    start = found.start if found.first is None else found.first
    if negations == 1:
        at = max(symbols.rfind(symbol, 0, found.start) for symbol in "nNM")
        start = at if at >= form.segment else start
    elif found.verbs.startswith(INCLUDES) and form.verb >= 0:
        start = form.verb
    return Requirement(
        clause.tokens[start].start,
        clause.tokens[(found.last or found.end) - 1].end,
        check,
        question or question_of_instruction(check),
    )


def _without(clause: Clause, found: Found, reason: str) -> Requirement:
    return Requirement(clause.tokens[found.start].start, clause.tokens[found.end - 1].end, None, reason=reason)


def _asks(clause: Clause) -> bool:
    """Whether a clause is a question, not a request."""
    if not clause.text.rstrip().endswith("?"):
        return False
    first = next((n for n, symbol in enumerate(clause.symbols) if symbol not in "a,k"), 0)
    return clause.symbols[first] != "s" and str(clause.tokens[first].value).split()[0] in _QUESTIONS


def _asked_about(clause: Clause) -> bool:
    return _ASKED_ABOUT.match(clause.view.text, clause.end) is not None and clause.symbols[:1] not in ("s", "t", "o")


def _reason(clause: Clause, found: Found, form: _Form, around: str, right: str) -> str:
    """Why a thing is not required as it stands, "" if it is."""
    header, symbols, view = clause.header, clause.symbols, clause.view
    if "z" in around or "z" in header:
        return PERMITTED
    if "q" in around or "q" in header:
        return CONDITIONAL
    if header and _negations(header):
        return UNCLEAR
    if _of_code(view) and not _OF_RESPONSE.search(clause.text):
        return OF_CODE
    if found.counts and _uncounted(view):
        return OTHER_LANGUAGE
    before = symbols[form.task : found.start]
    lead = symbols[: form.segment] + symbols[form.segment : form.task]
    if re.match(r"[ak#\-]*[i~](?![GLOUE]?#)[^,]*[pfeST][^,]*,", lead) or "e" in symbols[
        found.start : found.end
    ].rstrip("e"):
        return A_PART
    if found.form and _FOR_ANOTHER.match(view.text, clause.tokens[found.end - 1].end):
        return A_PART
    if found.verbs == INCLUDES and _PLACE_AFTER.match(view.text, clause.tokens[found.end - 1].end):
        return UNCLEAR
    if (
        found.every
        and re.search(r"o[^,]*[rpu],$", symbols[: found.start])
        and clause.tokens[found.start - 1].value == "("
    ):
        return A_PART
    if _SUB_PART.match(view.text, clause.tokens[found.end - 1].end):
        return A_PART
    if found.every and (
        clause.tokens[form.task].value == "add"
        or (symbols[form.task] in "<>" and symbols[form.task] not in found.verbs)
    ):
        return A_PART
    if "e" in before or "e" in header or _OF_PART_AFTER.match(right):
        return A_PART
    near = re.sub(r"~[dDg]*f(?=u)", "", before[before.rfind(",") + 1 :])  # "about my first day"
    if found.every and (
        set("pfT") & set(near)
        or re.match(r"[,k]+[dDg]*p", right)
        or "p" in header
        or _THEN.match(view.text, clause.tokens[found.end - 1].end)
    ):
        return A_PART
    if before and re.search(r"[pfT][iwN^]*$", before):
        return A_PART
    if not form.bare and _of_another(clause, found, form):
        return A_PART
    return ""


def _of_another(clause: Clause, found: Found, form: _Form) -> bool:
    """Whether a thing after a topic belongs to the text that the topic names: "a poem about a letter with"."""
    region = clause.symbols[form.task + 1 : found.start]
    match = re.fullmatch(r"(?P<topic>.*?)(?P<link>,?k?\^[^\^rRpSW]*|n?[iwN6][dDgbaE]*w?|[<>]i?[dDg]*)", region)
    if match is None:
        return False
    topic = last = match["topic"].rstrip("a,k")
    if match["topic"].rstrip("ak").endswith(","):
        return False
    if found.every and re.search(r"r.*k[dD#]g*[ru]*r|l[dDg]*u?r", topic):
        return True
    named = clause.tokens[form.task + 1 + match.start("link")].value
    inside = re.search(r"r.*(i)[dD]g*[ur]+$", last)
    if found.every and named == "of" and inside and clause.tokens[form.task + 1 + inside.start(1)].value == "with":
        return True  # "an email with a hook of at most 15 words"
    relative = "^" in match["link"]
    at = form.task + len(topic)
    if found.form and re.search(r"[~i]", topic) and str(clause.tokens[at].value).endswith(("ed", "ten")):
        return True
    if relative and "r" not in topic and "S" not in topic:
        return True
    if re.search(r"#-?[dga]*.$", last):
        return False
    if last[-1:] == "S" and found.every and named in ("with", "of", "that"):
        return True
    if not last or last[-1] not in "rRpSW":
        return last[-1:] == "b" and "h" not in topic
    first = form.task + 1
    inner = any(str(token.value) in _TOPICS for token in clause.tokens[first : first + len(last) - 1])
    task = clause.tokens[form.task].value
    if any(re.match("as$|in ", str(token.value)) for token in clause.tokens[first + max(len(last) - 3, 0) :][:2]):
        return False  # "as a list of"
    if relative and re.search(r"d[gu]*.$", last):
        return True
    if not inner and not (task in _SHOWS and ("D" in last or last[-1] == "R")) and task not in _MATERIAL:
        return False
    definite = re.search(r"d[gu]*.$", last) is not None
    if relative and definite:
        return True
    if definite and not found.form:
        return False
    return found.form or named not in ("in", "using")


def _of_code(view: PromptText) -> bool:
    return view.search(_CODE, _CODE_WORDS) is not None


def _uncounted(view: PromptText) -> bool:
    return view.search(_IN_UNCOUNTED, _UNCOUNTED_WORDS) is not None
