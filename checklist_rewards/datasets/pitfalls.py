"""What the text of a criterion with a negative weight says: a fault, or what a good response avoids.

In Rubrics as Rewards, pitfalls have a negative weight in both forms: "Recommends antibiotics." and "The response
should not recommend antibiotics." Under the second, a good response would lose: it is true of it.

    >>> polarity("Does not mention the dose."), polarity("Does not invent a dose.")
    ('fault', 'avoided')

English only; a text in another language is `unclear`.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

Polarity = Literal["fault", "avoided", "unclear"]
POLARITIES: tuple[Polarity, ...] = get_args(Polarity)

_SUBJECT = re.compile(
    r"\A(?:(?:the|an?|this|your|its)\s+)?(?:(?:final|good|correct|ideal|model'?s?)\s+)?"
    r"(?:response|answer|solution|reply|explanation|output|assistant|model|text|it)\s+",
    re.IGNORECASE,
)
_NOT = r"(?:not|never)"
_AVOIDED = re.compile(
    rf"(?:should|must|shall|may|can|could|ought|need|needs)(?:\s+to)?(?:\s+{_NOT}\b|n't\b)|should(?:\s+\w+)?\s+(?:avoid|refrain)"
    rf"|(?:cannot|can't|shouldn't|mustn't)\b|(?:must|should)\s+(?:clearly|also|always)?\s*(?:avoid|refrain)"
    r"|(?:correctly |carefully |explicitly )?(?:avoid(?:s|ing)?|refrain(?:s|ing)?|steer(?:s|ing)? clear)\b"
    r"|(?:do not|don't)\s|is free (?:of|from)\b|remains free (?:of|from)\b|free (?:of|from)\b",
    re.IGNORECASE,
)
_HARM = (
    r"assum|conflat|confus|contradict|deviat|disregard|distort|dismiss|downplay|err\b|exaggerat|fabricat|fail|forget|"
    r"hallucinat|ignor|invent|lack|mis[a-z]|miss|neglect|omit|overlook|over(?:stat|estimat|simplif|generaliz)|skip|"
    r"speculat|stray|under(?:estimat|stat)|violat"
)
_GOOD = (
    r"acknowledg|address|advis|ask|answer|caution|cit|clarif|compar|comput|consider|cover|defin|deriv|describ|detail|"
    r"differentiat|discuss|distinguish|emphasi|ensur|establish|evaluat|explain|follow|giv|highlight|identif|illustrat|"
    r"includ|indicat|justif|list|mention|note|offer|outlin|present|provid|recogni|refer|report|show|specif|stat|support|"
    r"tak(?:e|ing) into account|understand|verif|warn|account for|apply|conclude|convert|check|interpret|meet|mark|"
    r"name|satisf|simplify|solve|write"
)
_DOES_NOT = re.compile(
    rf"(?:does\s+not|doesn't|did\s+not|didn't|is\s+not|not)\s+(?:\w+ly\s+)?(?:(?P<harm>{_HARM})|(?P<good>{_GOOD}))",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"(?:fail|neglect|omit|omission|confus|ignor|overlook|forget|miss|misstat|misinterpret|misidentif|mis[a-z]+|lack|incorrect|"
    r"inaccura|erroneous|wrong|false|incomplete|inadequate|unnecessar|excessive|over[a-z]+|contradict|fabricat|invent|"
    r"hallucinat|assum|conflat|exaggerat|error|mistake|absence|absent|without|too\b|only\b|vague|unclear|unsafe|"
    r"harmful|poor|skip|downplay)",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"(?:\w+ly\s+)?(?!(?:this|is|was|has|its|less|class|address|process|analysis)\b)[a-z]+(?:s|ing)\b", re.IGNORECASE
)


def polarity(text: str) -> Polarity:
    """What a criterion with a negative weight says: a `"fault"` that a bad response has ("Recommends antibiotics."),
    what is `"avoided"` by a good response, or neither (`"unclear"`)."""
    text = " ".join(text.split())
    subject = _SUBJECT.match(text)
    said = text[subject.end() :] if subject else text
    if _AVOIDED.match(said):
        return "avoided"
    if found := _DOES_NOT.match(said):
        return "avoided" if found["harm"] else "fault"
    if re.match(r"(?:does|do|is|did|are)\s+not\b|doesn't\b|not\b", said, re.IGNORECASE):
        return "unclear"
    if re.match(r"(?:should|must|shall|ought|needs?\s+to|has\s+to)\b", said, re.IGNORECASE):
        return "unclear"  # a duty with a negative weight
    if _FAULT.match(said) or _VERB.match(said):
        return "fault"
    return "unclear"
