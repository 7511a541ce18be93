"""The one filter: what a clause does with the thing that a rule found in it.

[`decide`] reads the basic words around the thing. Those before it must be one of four forms, completely:

- an order: "use", "do not mention", "make sure to include";
- the response as subject: "your answer should", "it must not";
- a task with its topic and a link: "write a poem about the sea in";
- nothing but known words at the start of a clause, or behind an order and a comma.

The word after it must be known too; otherwise the clause requires nothing. One negation in the form forbids the thing;
two are not understood. Coarse signs of danger then leave no check. They are short on purpose, because a wrong item is
worse than a missing one: a permission, a condition, a report, other persons or a part of the response in the clause;
code, a change of mind ("scratch that"), another language or another text ("then", "versions") in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from checklist_rewards.generators.constraints.lexicon import BASIC_WORDS
from checklist_rewards.generators.constraints.reading import Clause, Requirement, Spec
from checklist_rewards.generators.constraints.things import NAMES, question_of

A_PART = "it is about a part of the response"
CONDITIONAL = "it holds only under a condition"
APPROXIMATE = "the number is approximate"
PERMITTED = "it is permitted, not required"
OF_CODE = "it may be about what code does"
OTHER_LANGUAGE = "the checks cannot count in this language"
NO_BOUND = "every response or none meets it"
UNCLEAR = "the rules cannot tell whether it is required or forbidden"
ANY_VERB = frozenset("use write keep using is written contains in".split())
INCLUDES = frozenset("use using contains in is".split())
"""Verbs and links that ask for words."""
SIZES = ("words", "sentences", "paragraphs", "characters", "non-empty lines", "bullets")
"""What is counted of a whole text."""
_IN_EVERY_LANGUAGE = frozenset(
    "bullets paragraphs placeholders highlights json title postscript quoted two_responses repeats_prompt language "
    "hashtags emojis".split()
)
"""Types of checks that count no words or letters, which some languages separate otherwise."""
_WHOLE = frozenset(
    "keyword_count keywords forbidden paragraphs paragraph_start postscript repeats_prompt json title two_responses "
    "capital_words highlights placeholders letters hashtags emojis dashes sections".split()
)
"""Types of checks about the whole response, even where a part of it is named before."""
_OF_TEXT = ("language", "casing")
"""Types of checks about the form of the text that a task asks for."""


@dataclass(slots=True)
class Found:
    """A thing that a rule found: the basic words from `start` to `end` of the clause.

    `check` holds if it is required, `denied` if it is forbidden; None where no check expresses that. With a `reason`,
    no check expresses it at all.
    """

    start: int
    end: int
    check: Spec | None = None
    denied: Spec | None = None
    question: str = ""
    reason: str = ""
    verbs: Set[str] = ANY_VERB
    """Basic words that can govern it."""
    subject: bool = False
    """It has its own verb: "the letter e must appear at least twice"."""
    negations: int = 0
    """Negations inside it."""

    kind: str = field(init=False)
    """The type of its check, or the name of what its check counts with a pattern."""

    def __post_init__(self) -> None:
        check: Spec = self.check or self.denied or {"type": ""}
        self.kind = NAMES[check["pattern"]] if check.get("pattern") in NAMES else check["type"]


FRAGMENTS = {
    "lead": r"(?:<first only char>|\d+ )*",
    "joint": "<, and : ->",
    "ensure": "(?:ensure <in it the a response that>*)?",  # "make sure that in your answer"
    "place": "(?:<in about><the response in about end>*)?",  # "in your answer", "at the end of your reply"
    "response": "(?:<the short>*<_>?<short>*<response piece>*response |it (?:in the response )?)"
    "(?:in <it>+|(?:that )?it <it write use describe _>+|it )?",  # "the answer you give"
    "known": "(?:<the a short in using is written it number_of only>|(?<!a )response )*",
    "fill": "{known}(?:no {known})?",
    "verb": "<use is written used keep contains using start end>",
}
"""Parts of phrases."""


def phrase(text: str) -> re.Pattern[str]:
    """The pattern of a phrase of basic words, each with a space behind it. `{name}` is one of [`FRAGMENTS`]; `<a b>`
    is one of the basic words a and b."""
    while match := re.search(r"\{(\w+)\}", text):
        text = text.replace(match[0], FRAGMENTS[match[1]])
    one_of = re.compile(r"(?<!\(\?)(?<!\?P)<([^<>=!]+)>")
    return re.compile(one_of.sub(lambda one: f"(?:(?:{'|'.join(map(re.escape, one[1].split()))}) )", text))


_JOINT = phrase(".*(?:^| ){joint}")
"""What comes before the last part of a clause."""
_ORDER = phrase(
    "{lead}{ensure}{place}(?:it <must mustnt>)?<not mustnt first only>*"
    "(?P<verb><use write keep start end>|(?<=not )using )<not>*{fill}"
)
"""An order: "make sure to use", "do not mention"."""
_SUBJECT = phrase(
    "{lead}(?:(?:{ensure}{place}{response}|(?=must <not use write written keep contains start end only>))"
    "<must mustnt><not mustnt first only and>*(?P<verb>{verb}?)"
    "|(?:ensure <in that>*|write (?=the )){response}<only>*(?P<verb2><must mustnt contains use is written>)<not>*)"
    "{fill}"
)
"""The response as subject: "your answer should contain", "it must not", "make sure your answer has"."""
_SECOND_VERB = phrase("{lead}(?:<must mustnt><not>*(?P<verb>{verb}?)|(?P<verb2>contains )){fill}")
"""A second verb behind an order or a subject: "and must not"."""
_LINK = phrase(
    "(?:, )?(?:and )?(?:(?P<verb><in using start end written>)|no (?:using )?|not <using in>"
    "|that <must mustnt>?<not>*(?P<verb2><use contains is written write start end>))"
    r"<the a is only>*(?:using )?(?:in )?<the short only a>*(?:no )?<the short only a>*\Z"
)
"""What links a task to the thing: "a poem about the sea in", "… that does not use"."""
_TASK = phrase(
    "(?:.*(?:^| ){joint})?{lead}(?:{ensure}(?P<task><use write keep describe>)|ensure "
    "|{place}{response}must <is written>*<use describe is contains write>)"
    r"(?P<topic>(?:(?!<use write contains start end must mustnt not keep : such_as>)\S+ )*)"
)
"""A task with its topic: "write a poem about the sea"."""
_BARE = phrase(
    r"(?:<first only number_of>|\d+ )*(?:ensure <in it the a response>*)?<not no>?(?:using )?"
    "<the a short in written response number_of it only>*(?:no )?<the a short in written response number_of it only>*"
)
"""Known words only."""
_HEAD = phrase(
    r"(?:.*(?:^| ){joint})?{lead}(?:ensure |{ensure}(?:it <must mustnt>)?<not mustnt>*"
    r"(?:<use write keep start end describe no atleast atmost over under exactly only>|\d+ )"
    r"|{ensure}{response}must )(?!.*(?:^| )that )"
)
"""An order before a comma, which known words follow: "write a poem, no commas"."""
_OR_ANOTHER = phrase("^(?:(?!<not no mustnt>)\\S+ )*, or <write describe in not>")
"""An alternative to the order: ", or tell a joke"."""
_NEW_SUBJECT = phrase(r"(?<!in )(?<!in short )<the>(?<!in the )<short>*response \Z")
"""Not the end of known words: "the abstract at most"."""
_BEFORE_TASK = phrase(r"\Z|: |, <write describe>")
_OWN_VERB = phrase("{lead}{ensure}{place}<the a short it no that response in is use>*")
"""What may stand before a thing with its own verb: "make sure that" the word "sea" appears."""
_PASSIVE = phrase(
    "<,>*(?P<how>(?:must the )?<must mustnt not is written contains and>*)"
    "(?P<what><used forbidden allowed>|in (?:it |<the>+response ))"
)
"""The verb after a thing: "must be used", "is forbidden"."""
_NEXT = phrase(
    r"\Z|<, : and in using about that how no ensure string not - it they describe such_as written>|each written "
    r"|atmost (?:the )*response |<exactly only>(?:\Z|<, : and>)"
)
"""What may follow a thing."""
_NOT_AFTER_STRING = phrase(
    r"(?:, )?and not (?:use )?<the _>?(?:\Z|, |: )|, (?:and )?not <_ the>|in <the a>*<start end>|(?:, _ )?about "
    "|written <the a>"
)
"""What must not follow a string: "on its own", "to begin", "not both"."""
_PART = phrase("each (?!written )|<part first section>")
"""A part of the response: "each title", "in the second stanza"."""
_PART_FIRST = phrase(r"(?:<and ->|\d+ )*<in about>[^,]*<part first each section>[^,]*, ")
_PART_AFTER = phrase(
    r"(?:(?:in )?<the a short>*|(?:(?!<and : , in using>)\S+ )*)each (?!written )"
    r"|(?!, in \d+ mark )<,>*<in about><the a short>*<_ response>?(?:<each first part section piece mark>|\d+ )"
)
_IN_UNKNOWN = phrase(r"in <the>+<short>*(_ )(?:\Z|<, : and>)")
_IN_UNKNOWN_FIRST = phrase(r"(?:<and ->|\d+ )*in <the>+<_>?(_ ), ")
"""In a part or a text whose name is outside the basic words, after a thing or before: "in the punchline"."""
_WRITES = r"\b(?:write|compose|create|draft|give|make|generate|prepare|produce|need|want|like) (?:me )?(?:an?|the|my)"
_OF_ANOTHER = phrase(
    r"(?<!\S)(?:they (?!.*<, and>)|how they |<_ response>how |how_to (?!_ )"  # other persons, "a town where"
    r"|(?<!must written )(?:<_ book part they section piece letter word>|\d+ )<must mustnt>.*<, and><not>*"
    "<use write keep describe start end is contains must mustnt>"  # "lines must rhyme and" use
    "|<_ book part word>that (?:.*<, and><not>*<start end is contains must mustnt>"
    "|must .*and <use write keep describe>)|not .*that .*and |that is , "  # "a town that begins with A and"
    "|<not mustnt><, only>|<not no mustnt>.*or |no <_>+using "  # half of a negation
    r"|\A(?:(?:in <the>*<_>+, )?<the a short each>*<_ book part they section piece>+is (?!and )|<the>+<_>+)"
    r"(?:(?!<: write describe>|, and )\S+ )*and <not>*<start end contains>"  # "warnings are in red and start with"
    r"|\A(?:<and , ->|\d+ )*not <the response it>|\A_ <in about>[^:]*and |\Aresponse \Z"
    "|string and : |keep <the short>*<piece part mark>)"  # "keep sentences under"
)
"""What makes the words before a thing those of another text, or half of a negation."""
_OF_ANOTHER_SIZE = phrase(
    r"(?:and a <short _>*<response part>|that <_ quotes>|piece \d+ |or |in <short>*piece , ).*\||part , \|"
    r"|about .*\| about |\|.*and (?:(?:a )?\d+ (?!mark )|<the>+<short response _ part>*(?:in )?"
    r"<atleast atmost over under>\d+ |<_>+in <atleast atmost over under only exactly>?\d+ "
    r"|a <short _>*<response part>)|<write describe>.*\|.*<, and><it in they>*describe "
)
"""What makes a size between the words before and after it ("|") that of another text: "and explain it"."""
_WITH_BULLETS = phrase(r"(?<!no )mark and \||\| <, and>+(?:a )?\d+ mark ")
_AT_A_PLACE = re.compile(
    r"(?P<any>\s+(?:before|after|as an?|for the \w*[^\Ws]s)\b|\) (?:and|or|vs) (?!(?:no|nothing|use|end|start)\b))"
    r"|\s+(?:for(?! (?:this|your|the)(?: (?:whole|entire))? (?:task|response|answer)\b)"
    r"|at the (?:very )?(?:end|start|beginning))\b"
)
"""What follows a thing that is not in the whole response, or that is only forbidden there: "at the end", "for the
steps", "Twitter (max 280 characters) and"."""
_GREETED = re.compile(r"\be-?mails?\b|\b(?:write|draft|compose|cover)(?: me)?(?: an?| the)? (?:letter|mail)\b")
"""A greeting and a signature count as paragraphs."""
_OWN_NOUN = phrase("<_ short response>{0,3}response ")
_SAYS = phrase(r", (?:(?!<, and :>)\S+ )*says ")
_ELSEWHERE = phrase(r"<in about><the a short it>*<_ book they>|about <atleast atmost exactly only>*\d+ ")
_A_TEXT = phrase(r"(?:<the a short it>|\d+ )*<short _ response book language>*response (?:it )?")
_TEXT_FIRST = phrase(r"(?:<a short and it language>|\d+ )*<short _>*response ")
_THE_TEXT = phrase("the response (?=<must mustnt is>)")
_WRITTEN = frozenset("the a in using is written it response short only use write not contains".split())
# Words anywhere in the prompt that leave no check, most of them only none of a size.
_CODE = frozenset("python javascript typescript php golang bash sql perl html regex".split())
_CODE_OR_TOPIC, _PROGRAM = frozenset(("java", "haskell", "kotlin")), frozenset("function class method program".split())
_OWN_COMMAS = (
    "japanese chinese mandarin cantonese arabic persian farsi urdu pashto sindhi amharic armenian burmese khmer "
    "tibetan"
).split()
"""Languages with other commas than those of English."""
_UNCOUNTED = [
    *_OWN_COMMAS,
    *"thai lao hindi bengali gujarati kannada malayalam marathi nepali punjabi tamil telugu hebrew korean".split(),
    *"sinhala sanskrit georgian".split(),
]
"""Languages in which the checks cannot count words or letters."""
_IN = r"\b(?:in|into|using|only|entirely) (?:the )?(?:%s)\b"
_IN_UNCOUNTED, _IN_OWN_COMMAS = (re.compile(_IN % "|".join(names)) for names in (_UNCOUNTED, _OWN_COMMAS))
_TAKEN_BACK = frozenset(
    "strict firm flexible lenient leeway negotiable approximate optional whatever hurt sweat happy "
    "seriously feel okay ok fine alright acceptable exclude excluded included counting counted".split()
)
"""A limit is taken back, or a part of the text does not count."""
_RECONSIDERED = re.compile(
    r"\b(?<!n't )(?<!not )(?<!never )(?:(?:scratch|forget|ignore|disregard|strike) (?:that|this|it|about|the|my)"
    r"|second thoughts?|never ?mind|kidding|joking|changed my mind|take (?:that|it) back|correction|or rather"
    r"|no longer appl(?:y|ies))\b"
    r"|(?:(?<=[\x01.!?,;:\n(–—-])|\b(?:oh|ah|ok|well|lol|sorry)) *(?:actually,|hm+\b|no,|(?:no,? )?wait\b|no don't)"
)
"""What stands before is taken back, whatever it is."""
_TAKING_BACK = frozenset(
    "scratch forget ignore disregard strike second mind nevermind kidding joking changed take correction rather hm "
    "hmm actually no wait applies apply".split()
)
_SEVERAL = re.compile(
    r"\b(?:in a second|then|subsequently|followed|afterwards|also (?:re)?write|versions|variants|plus|headline|series"
    r"|chapters)\b"
)
"""Several texts are asked for."""
_MORE = frozenset(
    "second then subsequently followed afterwards also versions variants plus headline series chapters".split()
)
_JUDGED = frozenset("rate grade judge evaluate assess score feedback keys fields".split())
"""The prompt is about another text, or about one with named parts: "the story must" is not about the response."""
_ABOUT_OTHERS = frozenset("list name suggest recommend translate convert describe discuss explain compare".split())
"""Tasks whose object is not written: what follows "that" or "with" belongs to it."""


class _Form(NamedTuple):
    """How the words before a thing ask for it, with places of basic words."""

    verb: int
    """The verb or link that governs the thing, -1 for none."""
    segment: int
    """Where the part begins whose negations count."""
    negations: int
    task: int
    """The verb of the task."""
    topic: str | None = None
    """The basic words between a task and the link to the thing."""


def negations_in(plain: str) -> int:
    """The number of negations among basic words."""
    return plain.count("not ") + plain.count("no ") + plain.count("mustnt ")


def _form(clause: Clause, found: Found, left: str) -> _Form | None:
    """How the words before a thing ask for it, None if they do not."""
    if clause.words[0] in ("is", "does", "do", "are", "has") and _WRITTEN.issuperset(clause.tokens[1 : found.start]):
        return _Form(-1, 0, negations_in(left), 0)  # a question of a checklist as a statement
    if found.kind in _OF_TEXT:
        left = re.sub("language (?:, )?(?:and )?(?=(?:only )*$)", "", left)  # "in English and in capital letters"
    joint = _JOINT.match(left)
    first = joint.end() if joint else 0
    ensured = left.find("ensure ", first)
    if ensured > first and not negations_in(left[first:ensured]):
        first = ensured
    last, before, place = left[first:], left[:first], left.count(" ", 0, first)
    if before and {",", "and", ":", "-"}.issuperset(before.split()):
        before = ""
    negations = negations_in(last)
    if found.subject:
        own = _OWN_VERB.fullmatch(last)
        topical = not own and clause.tokens[found.end] != "about"  # not "written twice on his arm"
        return _Form(-1, place, negations, place) if own else _after_topic(clause, found, left) if topical else None
    goes_on = "must" in before or ("that " not in before and ("use " in before or "write " in before))
    match = _ORDER.fullmatch(last) or _SUBJECT.fullmatch(last) or (goes_on and _SECOND_VERB.fullmatch(last)) or None
    if match:
        group = "verb" if match["verb"] or match.re is _ORDER else "verb2"
        verb = match[group] or ""
        if not verb or verb.strip() in found.verbs:
            at = place + last.count(" ", 0, match.start(group)) if verb else -1
            return _Form(at, place, negations, max(at, place))
    return _after_topic(clause, found, left) or _bare(clause, found, before, last, negations)


def _after_topic(clause: Clause, found: Found, left: str) -> _Form | None:
    """The form of a task with its topic: "write a poem about the sea in"."""
    if clause.words[found.start] in ("within", "under"):
        left += "in "
    link = _LINK.search(left)
    match = _TASK.fullmatch(left, 0, link.start()) if link else None
    if link is None or match is None or (link["verb"] or link["verb2"] or "using ").strip() not in found.verbs:
        return None
    verb, task = max(link.start("verb"), link.start("verb2")), match.start("task" if match["task"] else "topic")
    at = left.count(" ", 0, verb) if verb >= 0 else -1
    segment = left.count(" ", 0, link.start())
    return _Form(at, segment, negations_in(link.group()), left.count(" ", 0, task), match["topic"])


def _bare(clause: Clause, found: Found, before: str, last: str, negations: int) -> _Form | None:
    """The form of known words only, or none, at the start of a clause or behind an order: "please, no"."""
    if not _BARE.fullmatch(last) or (before and not _HEAD.match(before)) or _NEW_SUBJECT.search(last):
        return None
    if not negations and ("not " in before or "mustnt " in before):
        return None
    thing = clause.tokens[found.start : found.end]
    if thing[0] == "language" and not before and not _BEFORE_TASK.match(clause.around(0, found.end)[1]):
        return None
    named = thing[0] in ("mark", "string", "word", "caps", "language", "json", "the", "a", "short")
    if thing == ["caps"] and clause.words[found.start].startswith("all "):
        named = clause.length > found.end and set(clause.tokens[found.end : clause.length]) != {","}
    if negations or not named or "in " in last or "using " in last or "times" in thing or thing[-1][-1:] == "x":
        place = found.start - last.count(" ")
        return _Form(-1, place, negations, place)
    return None


def _of_the_topic(clause: Clause, found: Found, form: _Form, topic: str) -> bool:
    """Whether a thing after a topic may belong to something that the topic names: "a poem about a letter with"."""
    seg, link = clause.tokens[form.segment : found.start], clause.words[form.verb] if form.verb >= 0 else ""
    if clause.words[found.start].endswith(("limit of", "maximum of")) and topic.endswith("_ "):
        return False
    if clause.words[form.task] in _ABOUT_OTHERS and link not in ("in", "using", "as", ""):
        return True
    if ("that" in seg or link == "of") and not _TEXT_FIRST.match(topic):
        return True
    if found.kind in _OF_TEXT:
        if "written" in seg or (clause.tokens[form.task] == "use" and topic.strip(" ,") not in ("", "language")):
            return True
    elif link in ("in", "using"):
        return False
    if found.kind in ("starts", "ends") and re.match(r"(?:the )*\d+ (?:short )*piece ", topic):
        return True  # "three sentences starting with"
    if seg[:1] == [","] or seg[:2] == ["and", "no"] or _A_TEXT.fullmatch(topic):
        return False
    return bool(re.search(r"(?<!\d )word $|(?:response|book|part|in piece) $", topic)) or (
        link == "of" and "in " in topic
    )


def decide(clause: Clause, found: Found) -> Requirement | None:
    """The requirement of a thing in its clause, with a check or with the reason why it has none; None if the clause
    requires nothing."""
    tokens, header = clause.tokens, clause.header
    left, right = clause.around(found.start, found.end)
    around = header + (left + right if found.kind == "ends" else clause.plain)
    if "may " in around:
        return _without(clause, found, PERMITTED)
    if "if " in around or (", or " in around and _OR_ANOTHER.search(around)):
        return _without(clause, found, CONDITIONAL)
    if "says " in left or ("says " in right and _SAYS.search(right)) or (left and _OF_ANOTHER.search(left)):
        return None
    if left.endswith("not ") and tokens[found.start] in ("only", "exactly"):
        return None
    if ": " in left and left.count(" ", 0, left.rfind(": ") + 1) > 2:
        return None  # a text after a colon
    passive = _PASSIVE.match(right)
    what = passive["what"].strip() if passive else ""
    if passive and (passive["how"] or ("ensure " in left and what in ("used", "forbidden", "allowed"))):
        negations, end = negations_in(passive["how"]) + (what == "forbidden"), found.end + passive[0].count(" ")
        found = replace(found, subject=True, end=end, negations=found.negations + negations)
        right = right[passive.end() :]
        if _ELSEWHERE.match(right):
            return None  # "is banned in our office", "must be used for 3 words"
    if own := _OWN_NOUN.match(right):
        right = right[own.end() :]  # "a 300-word magazine article"
    form, kind = _form(clause, found, left), found.kind
    follows = kind == "postscript" or _NEXT.match(right)
    if kind in ("keywords", "forbidden") and _NOT_AFTER_STRING.match(right):
        follows = None
    if not form or not follows or (form.topic is not None and _of_the_topic(clause, found, form, form.topic)):
        return _without(clause, found, A_PART) if kind not in _WHOLE and _PART.search(left + right) else None
    negations, check, question = form.negations + found.negations, found.check, found.question
    if negations == 1:
        check = found.denied
        question = question.replace(" with ", " with something else than ", 1) if found.check else question
    reason = _reason(clause, found, form, left, right) or found.reason
    if not reason and "roughly " in right and "roughly" in right.split()[:2]:
        reason = APPROXIMATE
    if not reason and found.subject and what == "allowed" and not negations:
        reason = PERMITTED
    unclear = check is None or negations_in(header) or negations > 1
    if not reason and (unclear or (negations and right[:7] == "such_as")):
        reason = UNCLEAR
    if reason or check is None or check.get("at_least", 1) < 1 or check.get("at_most", 0) < 0:
        return _without(clause, found, reason or NO_BOUND)
    negation = [n for n in range(form.segment, found.start) if tokens[n] in ("not", "no", "mustnt")]
    governs = found.verbs is not ANY_VERB or (tokens[form.verb] == "use" and kind in _OF_TEXT)
    start = negation[-1] if negation else form.verb if governs and form.verb >= 0 else found.start
    return Requirement(clause.starts[start], clause.ends[found.end - 1], check, question or question_of(check))


def _reason(clause: Clause, found: Found, form: _Form, left: str, right: str) -> str:
    """Why a thing is not required of the response as it stands, "" if it is."""
    view, words, kind = clause.view, clause.view.words, found.kind
    code = not words.isdisjoint(_CODE) or not (words.isdisjoint(_CODE_OR_TOPIC) or words.isdisjoint(_PROGRAM))
    if code and not clause.of_response():
        return OF_CODE
    if view.last(_RECONSIDERED, _TAKING_BACK) >= clause.ends[found.end - 1]:
        return CONDITIONAL
    commas = (found.denied or {}).get("letters") == ","
    if kind not in _IN_EVERY_LANGUAGE and view.last(_IN_OWN_COMMAS if commas else _IN_UNCOUNTED, _UNCOUNTED) >= 0:
        return OTHER_LANGUAGE
    part = ", " in left and (_PART_FIRST.match(left) or _in_unknown(clause, 0, left, _IN_UNKNOWN_FIRST))
    part = part or _in_unknown(clause, found.end, right, _IN_UNKNOWN)
    if part or (kind != "sections" and _PART_AFTER.match(right)):
        return A_PART
    after = _AT_A_PLACE.match(clause.text, clause.ends[found.end - 1] - clause.start)
    placed = after and (form.negations + found.negations or (after["any"] and not _at_least(found)))
    judged = not words.isdisjoint(_JUDGED) and _THE_TEXT.search(left) and not clause.of_response()
    if placed or judged or (kind not in _WHOLE and _PART.search((clause.header + left).rpartition(", ")[2])):
        return A_PART
    if (kind not in SIZES and kind != "json") or (found.check or {}).get("exactly") == 0:
        return ""
    if not words.isdisjoint(_TAKEN_BACK):
        return CONDITIONAL
    if clause.tokens[0] in ("must", "mustnt") and "part" in map(BASIC_WORDS.__getitem__, words):
        return A_PART  # "The title should be short. Must be under 50 characters."
    several = view.last(_SEVERAL, _MORE)
    if several >= clause.end or (several >= 0 and not clause.of_response()):
        return A_PART
    around = f"{left}| {right}"
    task, limited = clause.words[form.task], kind != "bullets" and not _at_least(found)
    added = task == "add" or (task in ("include", "insert") and limited and form.topic)  # "a summary of at most"
    if (added or _OF_ANOTHER_SIZE.search(around)) and not clause.of_response():
        return A_PART
    joined = kind == "paragraphs" and limited and "separator" not in (found.check or ())
    with_bullets = kind in ("paragraphs", "sentences") and _WITH_BULLETS.search(around)
    return A_PART if with_bullets or (joined and _GREETED.search(view.text)) else ""


def _in_unknown(clause: Clause, start: int, plain: str, form: re.Pattern[str]) -> bool:
    """Whether the basic words from `start` are in something that is neither the whole nor what the prompt asks to
    write: "in the punchline"."""
    match = form.match(plain)
    if match is None:
        return False
    end = start + plain.count(" ", 0, match.end(1))
    if not {"whole", "entire", "full"}.isdisjoint(clause.words[start:end]):
        return False
    name = re.escape(clause.words[end - 1])
    return not re.search(rf"{_WRITES} (?:[\w-]+ ){{0,2}}{name}\b", clause.view.text)


def _at_least(found: Found) -> bool:
    """Whether its check has a lower bound only: what holds for a part then holds for the whole."""
    return found.check is not None and "at_least" in found.check and "at_most" not in found.check


def _without(clause: Clause, found: Found, reason: str) -> Requirement:
    return Requirement(clause.starts[found.start], clause.ends[found.end - 1], None, reason=reason)
