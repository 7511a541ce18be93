"""The one filter: what a clause does with the thing that a rule found in it.

A rule returns a [`Found`]: where the thing is named, and the checks for a clause that requires it and for one that
forbids it. [`decide`] reads the rest of the clause, with the line that introduces its list, in this order:

1. *Not about the response*: reports, questions, how something is done, what somebody in a story does. No requirement.
2. *Not required as it stands*: permissions, conditions and exceptions, what code prints, a part of the response, words
   or letters of a language in which the checks cannot count. A requirement without a check, with this reason.
3. *Polarity*: required or forbidden, by one negation before the thing or by a passive after it. If there are two
   negations, or if it is not clear how far one reaches, there is no check.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from checklist_rewards.checks.ifeval import question_of_instruction
from checklist_rewards.generators.constraints.clauses import REPORTS, UNITS, governed, taught
from checklist_rewards.generators.constraints.clauses import RESPONSE as NOUNS
from checklist_rewards.generators.constraints.reading import Clause, PromptText, Requirement, Spec, pattern

A_PART = "it is about a part of the response"
CONDITIONAL = "it holds only under a condition"
APPROXIMATE = "the number is approximate"
PERMITTED = "it is permitted, not required"
OF_CODE = "it may be about what code does"
OTHER_LANGUAGE = "the checks cannot count in this language"
UNCLEAR = "the rules cannot tell whether it is required or forbidden"


class Found(NamedTuple):
    """A thing that a rule found, at `start` to `end` of the clause.

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
    whole: bool = False
    """It is never about a part of the response."""
    every: bool = True
    """Each part of a response has the thing too, so a part that is named before it may be meant."""
    stated: int | None = None
    """Where a negation ends that belongs to it, if not at `start`: "the letter e must not appear more than twice"."""
    form: bool = False
    """It is the form of the text that a task asks for: its language or its casing."""
    counts: bool = True
    """The check counts words or letters, which it cannot in every language."""


_OTHERS = (
    "whole thing",
    "entire thing",
    "blog ?post",
    "e-mail",
    "it",
    "this",
    "that",
    "which",
    "you",
    "there",
    "paragraph",
)
RESPONSE = rf"(?:{'|'.join(sorted({*(NOUNS - UNITS), *_OTHERS}, reverse=True))})"
"""Nouns that stand for the response as a whole."""
_NTH = "(?:first|second|third|fourth|fifth|last|final|opening|closing|introductory|concluding|next)"
PART = (
    r"(?:titles?|subtitles?|headlines?|headings?|subject(?: lines?)?|introductions?|intro|conclusions?|"
    r"chorus|"
    r"verses?|refrain(?! from)|scenes?|acts|slides?|descriptions|summaries|biographies|"
    r"definitions|explanations|lines|names|"
    r"sentences|paragraphs|bullets?|bullet points|points|stanzas|steps|items|sections|chapters|questions|examples|"
    r"stories|poems|essays|tweets|posts|books|articles|messages|e-?mails|slogans|jokes|riddles|haikus|songs|reviews|"
    rf"captions?|greetings?|dialogues?|narration|subjects?|paragraph \d+|"
    rf"{_NTH}(?: [a-z]+)? (?:paragraph|sentence|line|section|part|stanza|bullet|word|half|"
    r"verse))"
)
"""Nouns that stand for a part of the response."""

_QUESTION = pattern(
    r"""[\s\W]*(?:is|are|was|were|do|does|did|should|would|could|can|may|must|has|have|what|why|how|which|who
    |whose|whom|when|where|am|will|shall)\b"""
)
_REPORTED = re.compile(
    rf",\s+(?:(?:my|the|our|his|her|their|an?) [a-z]+|he|she|they) (?:{'|'.join(REPORTS)})\b"
    rf"|,\s+(?:{'|'.join(REPORTS)}) (?:my|the|our|his|her|their|an?|he|she|they)\b"
)
"""A report around what is reported: "at most 50 words, my boss says"."""
_STATEMENT = re.compile(r"[\s\W]*(?:my|our|the|an?|there)\b")
_ASKED_ABOUT = pattern(
    r"""[\s\W]*(?:is|was|are|does|did|do|should|would|what|why|how|which|who|when|can)\b(?! you)[^.!?]*
    \b(?:that|this|it|one|them|out)\b[^.!?]*\?"""
)
"""A question about a statement before it: "Our bio is limited to 50 words. Is that too little?"."""
_REQUEST = re.compile(r"(?<!how )(?<!what )(?<!why )(?<!where )\b(?:can|could|would|will|may) (?:you|i)\b|\bplease\b")
_CHANGE_AFTER = pattern(
    r"""\s*(?:longer|shorter|more|fewer)\b(?! than| or )|\s*than (?:i|you|we|they|he|she|in)\b
    |\s+to (?:my|the|this) (?:draft|text|story|essay)\b"""
)
_PLACE_AFTER = pattern(
    r"""[^.,]{0,20}\b(?:more|less|as|very|quite|too) (?:often|frequently|rarely|much|sparingly)\b
    |\s*(?:before|after|on its own|to (?:start|begin|end|open|close)|at the (?:very )?(?:end|start|beginning))\b
    |.*\bnot both\b"""
)
"""Words after a keyword that make it another requirement than that it occurs."""
_WITHIN_PART = re.compile(rf"\s*(?:in|from|within) (?:the |your |any )(?:[a-z]+ )?{PART}\b")
_PERMITTED = pattern(
    r"""\b(?:feel free|free to|might|(?:maybe|perhaps) (?:you |also |even )*(?:use|add|write|end|start|begin
    |include|mention|finish|avoid|limit|keep|answer|respond|reply|make)|(?:do not|don't) (?:worry|hesitate)
    |you (?:also )?(?:may|can|could)(?! not\b|'t)
    |(?:may|could|can)(?! (?:not|you|i)\b|'t)
    |(?:would(?:n't| not)?|do(?:n't| not)?) (?:not )?mind|(?:is|are|it's|be|would be|'s)
    (?: also| perfectly| totally| completely| quite| just| all)? (?:fine|ok|okay|acceptable|alright|right|optional
    |welcome|up to you|good|nice|great|possible|permissible)|optional(?:ly)?|no need|(?:do|does)(?:n't| not)
    \s(?:really |necessarily |strictly )?(?:have|need)|need(?:n't| not)|not (?:really |strictly )?(?:necessary|required
    |needed|mandatory|necessarily|matter)|(?:n't|not) matter|welcome to|prefer(?:ably|red)?|consider(?! the
    | this)|i suggest|ideally|afraid (?:to|of)|ignor\w+|disregard\w*|regardless)\b
    |(?<!not )(?<!only )\ballowed to\b
    |(?:^|:)[\s\W\d]*(?:maybe|perhaps)\b|\b(?:maybe|perhaps)(?: (?:with|in|using|without|of|even|just))*\s*
    (?:\x02|\W*$)"""
)
_EXCEPTION = pattern(
    r"""\b(?:except\w*|unless|apart from|aside from|other than|besides|save for|only (?:in|for|to|as|where)|in case
    |whether|assuming|provided|where(?:ver)? (?:necessary|needed|possible|appropriate|it|you)
    (?!(?: [a-z]+)?,? (?:and|but)\b[^\x02]*\x02)|as needed
    |instead of|rather than|depending|outside(?: of)?|barring|when needed|if\b
    |(?<!explain )when(?:ever)?\b(?! (?:you(?:'re| are)? )?(?:writing|responding|answering|replying|write
    |respond|answer|reply)\b))|^\W*(?:should|were|had) (?:the|your|my|it|you|i|there|this)\b[^?]*,"""
)
_BUT_JUST = re.compile(r"(?:\bnot|n't|\bdont|\bnever|\bcannot)\s+(?:just|only|simply|merely|always)\b")
_LANGUAGES_OF_CODE = r"(?:python3?|java|javascript|typescript|c\+\+|c#|php|ruby|rust|golang|bash|sql|perl|html)"
_CODE_WORDS = tuple(
    "function script program code method macro quer regex algorithm python java c++ c# php ruby rust golang bash sql "
    "perl html".split()
)
_CODE = pattern(
    rf"""\b(?:in|using) {_LANGUAGES_OF_CODE}(?!\w)|(?<!\w){_LANGUAGES_OF_CODE} (?:script|program|code|function|class
    |method|query|page|file|document|app)
    |\b(?:functions?|programs?|scripts?|code|methods?|macros?|query|queries|regex
    |algorithms?)\s+(?:that|which|to|prints?|returns?|outputs?|displays?|snippet)\b
    |\b(?:write|create|implement|give me|fix|debug|run)\s+(?:a |an |the |some |this |my )?(?:[a-z]+ )?(?:functions?
    |code|regex|algorithm|macro)\b"""
)
_OF_RESPONSE = re.compile(
    r"\b(?:your|the|this)(?: (?:entire|whole|full|complete|final))? (?:response|answer|reply|(?<!the )output)\b"
)
_TWO_TEXTS = pattern(
    rf"""\b(?:an?|one) (?:[a-z]+ )?(?!it\b){RESPONSE} and (?:an?|one|another) (?:[a-z]+ )?{RESPONSE}\b"""
)
"""Two texts, each with its own requirements: "a haiku and a limerick"."""
UNCOUNTED = tuple(
    "japanese chinese mandarin cantonese thai lao khmer burmese tibetan hindi bengali gujarati kannada malayalam "
    "marathi nepali punjabi tamil telugu urdu arabic persian farsi hebrew korean sinhala sanskrit pashto sindhi "
    "amharic georgian armenian".split()
)
"""Languages with a script in which words, sentences, letters or capitals cannot be counted as in English."""
_IN_LANGUAGE = re.compile(
    rf"\b(?:in|into|to|use|using|only|the)\s+(?:{'|'.join(UNCOUNTED)})\b|\b(?:{'|'.join(UNCOUNTED)})\s+{RESPONSE}\b"
)
_EACH = pattern(
    r"""\b(?:each|every|per|apiece)\b(?! of (?:the|these|those)(?: following)? (?:key ?)?(?:words|terms|phrases
    |letters)| (?:separated|divided)\b)
    |\bnone of (?:the|your|these)\b"""
)
_IN_NONE = pattern(
    r"""\W*no (?:single )?(?:sentence|line|paragraph|stanza|verse|section|bullet(?: point)?|answer|title|name)\s
    (?:should|shall|may|must|can|has|(?:is )?(?:longer|shorter|over)|with|of|exceeds?|contain\w+|that|which|ends|starts
    |begins|uses)\b"""
)
"""What no part may have: "No sentence should have more than 12 words"."""
_EACH_AFTER = pattern(
    rf"""[^.;]{{0,40}}?\b(?:in|of|for|per|to|about|within|at the (?:start|beginning|end) of)\s+
    (?:(?:the |your |its )?(?:very )?{PART}\b|each\b|every\b)|[^.;]{{0,15}}\b(?:each|apiece|per|every)\b
    |[^.;]{{0,40}}?\bfollowed by\b
    |\s*,? (?:and|then|and then) (?:then )?(?:explain|justify|discuss|describe)\b|\s+(?:a|per) (?:day|week
    |month|line|page)\b
    |-?(?:long )?\s*(?:sentences?|titles?|headlines?|phrases?|slogans?|taglines?|introductions?|intro|conclusions?
    |quotes?|paragraphs?|lines?|stanzas?|steps?|bullets?|sections?|chapters?)\b"""
)
_IN_PART = re.compile(
    rf"[\s\W\d]*(?:in|for) (?:(?:the|your) {_NTH} [a-z]+|(?:the |your )?(?:[a-z]+ )?{PART}|(?:each|every) [a-z]+),"
)
"""A part at the start of a clause, which is then about nothing else: "In the title, use"."""
_PART_FIRST = re.compile(
    rf"[\s\W\d]*for (?:the |all |any |each |every )(?!(?:the |your )?(?:whole|entire|{RESPONSE}))[a-z' -]+,"
    rf"|[\s\W\d]*(?:(?:in|for|the|your|its|of|and|then|limit|keep)\s+)*(?:(?!no )[a-z]+ )?{PART}\b"
    r"(?! points?\b|,? (?:and|with|in|of|using|without|containing|where|wherever)\b)"
)
_OF_PART = re.compile(
    r"\b(?:conclud|end|start|begin|clos|open|finish)\w*\b[^,]*\bwith (?:an?|the|one) [^,]*$"
    r"|\band (?:then )?(?:explain|justify|describe|say|tell|summari[sz]e)\b[^,]*$"
    rf"|\b{PART}\b(?:(?!,|\band\b|\bbut\b|\bin (?:your|the) (?:entire|whole)?).)*$"
)
_LIMITED = pattern(
    rf"""\b(?:limit|restrict|cap|confine|keep)(?:s|ing|ping)?\s+
    (?!(?:(?:the|your|yourself|this|its|it|each|entire|whole|overall|total|length|size|of|word|count)\s+)*
    (?:{RESPONSE}\s+(?:length\s+)?|length\s+|count\s+|size\s+)?(?:to|at|under|below|within|between|$)\b)
    [a-z' ]+?\s+(?:to|at|under|below|within|between)\b[^,;]*$|\b(?:descriptions?|explanations?|definitions?|answers
    |examples?|reasons?|tips?|bios|{PART})\s*\([^()]{{0,30}}$"""
)
"""A limit on something else than the response: "limit descriptions to 50 words", "a title (max 5 words)"."""

_VERBAL = (
    r"(?:do not|don't|dont|does not|doesn't|must not|mustn't|should not|shouldn't|shall not|will not|won't|cannot|"
    r"can not|can't|may not|never|not|isn't|aren't|nor|neither|avoid(?:s|ing)?|refrain(?:s|ing)? from|forbid(?:s|"
    r"den)?|"
    r"prohibit(?:s|ed)?|banned|abstain(?:ing)? from)"
)
_NOMINAL = r"(?:no|without|exclud(?:e|es|ing)|omit(?:s|ting)?|leav(?:e|ing) out|free of|devoid of|skip(?:ping)?)"
_NEGATION = re.compile(rf"\b(?:(?P<verbal>{_VERBAL})|(?P<nominal>{_NOMINAL}))(?!\w)(?! more than)")
_POSITIVE = pattern(
    r"""\b(?:(?:do not|don't|dont|never) (?:forget|fail|hesitate|neglect|omit) to|no matter (?:what|how)
    |without fail)\b"""
)
_PARTICIPLE = re.compile(r"\s+[a-z]+ing\b")
_BREAK = pattern(
    r""",?\s+\bbut\b|\binstead\b|,\s+and\b|(?<!\x01)\s+(?:and|then)\s+(?:(?:it|you|that|please|also|instead|only|
    always|make sure|to|finally|do)\s+)*(?:use|write|include|make|end|start|begin|finish|keep|limit|add|answer|respond
    |reply|put|wrap|give|mention|contain|have|has|be|separate|highlight|repeat|ensure|must|should|with|provide|in
    |at)\b"""
)
_OUT_OF_REACH = re.compile(r",|\b(?:in|with|at|and|that|which|for|to|by|on|about)\b")
_MOST_WORDS = 9
"""Number of words between a negation and the thing that it forbids."""
_PASSIVE = pattern(
    r"""\s*(?:(?:(?P<modal>should|must|ha(?:s|ve) to|needs? to|may|can|could|might|will|shall|is|are|to|would|do|does)?
    \s*(?P<no>not\b|never\b|n't)?|(?P<never>cannot|can't|must ?n't|shouldn't|isn't|aren't|never|not))
    (?:\s+(?:be|to be|appear to be))?\s*(?:all |both |also |explicitly |anywhere )*)
    (?:(?P<asked>used|included|appears?|mentioned|occurs?|present|contained|featured|incorporated|shown|found
    |in (?:it|there|(?:your|the) [a-z]+)|part of (?:it|(?:your|the) [a-z]+))
    |(?P<allowed>allowed|permitted|fine|ok|okay|acceptable|welcome|optional)
    |(?P<refused>forbidden|banned|prohibited|avoided|excluded|omitted|off[- ]limits))\b"""
)


_EITHER_BEFORE = re.compile(r"\b(?:or|either)\s+(?:(?!and\b)[a-z]+\s+){0,3}$")
_TOGETHER = re.compile(r"\b(?:both|together|at the same time)\b")
_OR_AFTER = re.compile(r"\s*,?\s+or\b(?! (?:so|else)\b)")
_MATERIAL = pattern(
    r"""\b(?:summari[sz]e|translate|proofread|paraphrase|improve|rewrite|edit|correct|explain|review|analy[sz]e|shorten
    |simplify)\b[^.:\n\x01]{0,80}:[ \t]*(?![\s\x01])[^\n]*"""
)


def of_material(clause: Clause) -> bool:
    """Whether a clause belongs to a text that the prompt gives: "Summarize these rules: ..."."""
    found = clause.view.in_text(_MATERIAL, (":",))
    return found is not None and found.start() < clause.start < found.end()


def polarity(before: str) -> bool | None:
    """Whether the words before a thing ask for it (True) or forbid it (False); None if this is not clear."""
    if not _NEGATION.search(before):
        return True
    text = _POSITIVE.sub("", before)
    found = list(_NEGATION.finditer(text))
    if not found:
        return True
    last, between = found[-1], text[found[-1].end() :]
    if last["nominal"] and not _PARTICIPLE.match(between):
        if _OUT_OF_REACH.search(between):
            found, last, between = found[:-1], found[-1], text[found[-1].end() :]
            if not any(one["verbal"] for one in found) or _BREAK.search(text, found[-1].end()):
                return True
            return None
    elif _BREAK.search(between):
        return True
    if len(found) > 1 and not _BREAK.search(text, found[-2].end(), last.end()):
        if found[-2]["verbal"] or not text[found[-2].end() : last.start()].count(","):
            return None
    if "," in between or between.count(" ") > _MOST_WORDS:
        return None
    return False


def passive(after: str) -> tuple[bool | None, int, bool]:
    """What a passive after a thing says: required or forbidden (None: nothing), where it ends, whether it permits."""
    match = _PASSIVE.match(after)
    if match is None or (re.match(r"\s*(?:in|part) ", match.group()) and not (match["modal"] or match["never"])):
        return None, 0, False  # "the word in the text"
    refused = bool(match["no"] or match["never"])
    if match["refused"]:
        return refused, match.end(), False
    if match["allowed"]:
        return False if refused else None, match.end(), not refused
    return not refused, match.end(), not refused and match["modal"] in ("may", "can", "could", "might")


def decide(clause: Clause, found: Found) -> Requirement | None:
    """The requirement of a thing in its clause, with a check or with the reason why it has none; None if the clause
    requires nothing."""
    text = clause.text
    before, after = text[: found.start], text[found.end :]
    if _elsewhere(clause, found, before):
        return None
    own = found.stated is not None or passive(after)[1] > 0
    thing = text[found.start : found.end]
    if taught(before, thing) or not governed(before, thing, own, found.form):
        reason = _reason(clause, found, before, after) or found.reason
        return (
            Requirement(clause.start + found.start, clause.start + found.end, None, reason=reason) if reason else None
        )
    inside = found.whole and polarity(text[found.start : found.end]) is not True
    start, end, reason = found.start, found.end, found.reason
    required = polarity(text[: found.start if found.stated is None else found.stated])
    by_passive, length, permits = passive(after)
    if permits and not (found.check and "at_most" in found.check):
        reason = reason or PERMITTED
    if by_passive is not None:
        required = by_passive if required else (None if required is None or not by_passive else False)
        end += length
    reason = _reason(clause, found, before, after) or reason
    negations = list(_NEGATION.finditer(before)) if required is False and not reason else ()
    start = negations[-1].start() if negations else start
    check, question = found.check, found.question
    if required is False:
        check, question = found.denied, found.denied_question
    if (
        required is False
        and _TOGETHER.search(after)
        or ((found.check or found.denied or {}).get("type") in ("keywords", "forbidden") and _PLACE_AFTER.match(after))
        or required
        and _EITHER_BEFORE.search(before[-40:])
        or _OR_AFTER.match(after)
    ):
        required = None
    if not reason and (inside or required is None or check is None):
        reason = UNCLEAR
    start, end = clause.start + start, clause.start + end
    if reason:
        return Requirement(start, end, None, reason=reason)
    assert check is not None
    return Requirement(start, end, check, question or question_of_instruction(check))


def _elsewhere(clause: Clause, found: Found, before: str) -> bool:
    """Whether a clause asks something, or speaks of another text or of a change of one."""
    return bool(
        (_QUESTION.match(clause.text) and clause.text.rstrip().endswith("?") and not _REQUEST.search(clause.text))
        or _CHANGE_AFTER.match(clause.text, found.end)
        or _REPORTED.search(clause.text, found.end)
        or (_STATEMENT.match(before) and _ASKED_ABOUT.match(clause.view.text, clause.end))
    )


def _reason(clause: Clause, found: Found, before: str, after: str) -> str:
    """Why a thing is not required as it stands, "" if it is."""
    header, view = clause.header, clause.view
    around = f"{header} {before}{'not ' * clause.text.startswith('not ', found.start)}\x02 {after}"
    if _PERMITTED.search(around):
        return PERMITTED
    if _EXCEPTION.search(around):
        return CONDITIONAL
    if _BUT_JUST.search(before) or (header and polarity(f"{header[:-1]} ") is not True):
        return UNCLEAR
    if asks_for_code(view) and (_CODE.search(clause.text) or not _OF_RESPONSE.search(clause.text)):
        return OF_CODE
    if found.counts and in_uncounted_language(view):
        return OTHER_LANGUAGE
    if not found.whole and (two := view.in_text(_TWO_TEXTS, (" and ",))) and not _OF_RESPONSE.search(clause.text):
        return A_PART if clause.start + found.start > two.end() or found.every else ""
    part = _IN_PART.match(before) or (not found.whole and _of_a_part(clause, found, before, after))
    return A_PART if part else ""


def _of_a_part(clause: Clause, found: Found, before: str, after: str) -> bool:
    header, until = clause.header, clause.text[: found.end]
    if _EACH.search(until) or _IN_NONE.match(clause.text) or (_EACH.search(after) and _EACH_AFTER.match(after)):
        return True
    if (header and _EACH.search(header)) or _PART_FIRST.match(before):
        return True
    if not found.every:
        return _WITHIN_PART.match(after) is not None
    limited = _LIMITED.search(until)
    return bool(_OF_PART.search(before) or _EACH_AFTER.match(after) or limited)


def asks_for_code(view: PromptText) -> bool:
    """Whether a prompt speaks of code that is to be written."""
    return view.in_text(_CODE, _CODE_WORDS) is not None


def in_uncounted_language(view: PromptText) -> bool:
    """Whether a prompt asks for a text in one of the languages of `UNCOUNTED`."""
    return view.in_text(_IN_LANGUAGE, UNCOUNTED) is not None
