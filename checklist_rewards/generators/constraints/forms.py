"""Requirements in whole phrases: "in JSON", "in all capital letters", "in German", "answer with yes or no".

[`FORMS`] is the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from checklist_rewards.generators.constraints.amounts import NUMBER, amount, number, numbers
from checklist_rewards.generators.constraints.counting import FUNCTION_WORDS, regex_check
from checklist_rewards.generators.constraints.filtering import A_PART, PART, RESPONSE, Found, polarity
from checklist_rewards.generators.constraints.reading import Clause, Spec, pattern
from checklist_rewards.generators.constraints.strings import ORDINALS, only_one_of

Match = re.Match[str]


def _form_of(match: Match, check: Spec, question: str = "", denied: Spec | None = None, refused: str = "") -> Found:
    """A requirement about the form of the response, in any language."""
    return Found(match.start(), match.end(), check, denied, question, refused, every=False, counts=False)


# Casing and language

_CASED = {
    "upper": "Does the response use capital letters only?",
    "lower": "Does the response use small letters only?",
}
_CASING = pattern(
    r"""\b(?:all|only|entirely|fully|completely|exclusively|just|solely|strictly)(?:[ -](?:in|of|with|using|use))?[ -]
    (?:the )?(?:english )?(?P<a>lower[- ]?case|small|capital(?:ized)?|caps|upper[- ]?case|capitals)(?: english)?
    (?: letters?| text| characters)?
    |\b(?P<b>lower[- ]?case|upper[- ]?case|capital|small)(?: english)? (?:letters?|characters|text) only
    |\b(?:in|using|with|use) (?:english )?(?P<c>lower[- ]?cases?|upper[- ]?case|capital letters|all-?caps|capitals
    |caps)\b(?: letters?)?|\b(?P<d>lower-?case|upper-?case)(?: letters)? only
    |\b(?:should|must|has to|needs to) be (?:all )?(?P<g>lower-?case|upper-?case)\b
    |\ball (?:of )?(?:the |your )?(?:letters|text|words) (?:are|is|should be|must be|to be) (?:in )?(?:all )?
    (?P<e>lower-?case|upper-?case|capital(?:i[sz]ed)?|caps)(?: letters)?
    |\b(?P<f>capitali[sz]e) (?:every|each|all)(?: of)?(?: the| your)? (?:single )?(?:letters?|words?|text
    |characters?)\b"""
)
_CASED_PART = pattern(
    r"""\b(?:words?|headers?|first letters?|initials?|acronyms?|key ?words?|sentences?|terms?|phrases?|labels?|nouns?
    |verbs?|abbreviations?|letters? of|variables?|columns?|strings?|the letter)\b(?:(?!,\s|\band\b|\bbut\b).)*$"""
)
_OF_SOME = pattern(
    rf"""\s*(?:words?|terms?|keywords?|names?|titles?|headings?|headlines?|nouns?|letters? (?:for|of|in the)
    |for (?!(?:my|our|his|her|an?)\b|(?:the |your |this )?(?:[a-z]+ )?{RESPONSE}\b)
    |in (?:this|these|my|each|every) (?!{RESPONSE}\b)|to emphasi
    |(?:,|and|or) (?:digits?|numbers?|symbols?|lower|upper)|at the (?:start|beginning)|at least|less|more)"""
)


def _casing(clause: Clause, match: Match) -> Found | None:
    before, after = clause.text[: match.start()], clause.text[match.end() :]
    if _OF_SOME.match(after) or _CASED_PART.search(before):
        return None
    cased = next(value for value in match.groups() if value)
    casing = "lower" if cased.startswith(("lower", "small")) else "upper"
    return Found(match.start(), match.end(), {"type": "casing", "casing": casing}, None, _CASED[casing], form=True)


LANGUAGES = {
    "afrikaans": "af", "arabic": "ar", "bulgarian": "bg", "bengali": "bn", "catalan": "ca", "czech": "cs",
    "welsh": "cy", "danish": "da", "german": "de", "greek": "el", "english": "en", "spanish": "es",
    "estonian": "et", "persian": "fa",
    "farsi": "fa", "finnish": "fi", "french": "fr", "gujarati": "gu", "hebrew": "he", "hindi": "hi", "croatian": "hr",
    "hungarian": "hu", "indonesian": "id", "italian": "it", "japanese": "ja", "kannada": "kn", "korean": "ko",
    "lithuanian": "lt", "latvian": "lv", "macedonian": "mk", "malayalam": "ml", "marathi": "mr", "nepali": "ne",
    "dutch": "nl", "norwegian": "no", "punjabi": "pa", "polish": "pl", "portuguese": "pt", "romanian": "ro",
    "russian": "ru", "slovak": "sk", "slovenian": "sl", "somali": "so", "albanian": "sq", "swedish": "sv",
    "swahili": "sw", "tamil": "ta", "telugu": "te", "thai": "th", "tagalog": "tl", "turkish": "tr", "ukrainian": "uk",
    "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip
"""Languages that the check `language` can tell apart, with their codes."""
_TONGUE = "|".join(LANGUAGES)
_LANGUAGE = pattern(
    rf"""\b(?:in|using|use)\s+(?P<only>only\s+|just\s+|entirely\s+|exclusively\s+)?(?:the\s+)?(?P<a>{_TONGUE})
    (?:\s+language)?(?=\s*(?:[.,;:!?)\n\x01]|$|(?:only|and|but|with|language|using|about|no|please|for
    |to (?:my|our|her|his)|throughout|instead)\b))
    |\bonly (?:use |using )?(?:the )?(?P<b>{_TONGUE})(?: language| words)?\b|\b(?P<c>{_TONGUE})(?: language)? only\b
    |\bentirely (?:in )?(?P<d>{_TONGUE})\b
    |\bno (?:other )?languages? (?:other )?(?:than|except|besides|but|apart from) (?P<e>{_TONGUE})\b(?: is allowed)?
    |\b(?:outside of|other than|except(?: for)?|apart from|besides) (?P<f>{_TONGUE}),? no (?:other )?languages?\b
    (?: is allowed)?"""
)
_ONLY_LANGUAGE = pattern(
    r"""\b(?:(?:should|must|ha(?:s|ve) to|needs? to|shall) be|entire|whole|only|respond|reply
    |your (?:[a-z]+ )?(?:response|answer|reply|output))\b"""
)
_ONLY_AFTER = re.compile(r"\s*,?\s*(?:only|no other language)\b")
_LANGUAGE_OF_OTHERS = pattern(
    r"""\b(?:translat\w*|convert|from|sentences?|text|words?|phrases?|article|quote|books?|movies?|films?|released
    |called
    |meaning|means?|published|literature|terms?|poet|poems by|equivalent|say|said|known|title|names?|subtitle|class
    |course|lessons?|keywords?|grammar|fluent|proficien\w+|skills?|difference|both|either|avoid|following|given|passage
    |original
    |version|learn|learning|teach|common|used|popular|interest(?:ed)?|major(?:ed)?|degree|studies|paragraph in)\b"""
)
_ANY_TONGUE = re.compile(rf"\b(?:{_TONGUE})\b")


def _language(clause: Clause, match: Match) -> Found | None:
    before, after = clause.text[: match.start()], clause.text[match.end() :]
    name = next(value for key, value in match.groupdict().items() if value and key != "only")
    if len(set(_ANY_TONGUE.findall(clause.text))) > 1:
        return None
    only = match["a"] is None or match["only"] or _ONLY_AFTER.match(after) or _ONLY_LANGUAGE.search(before)
    if not only and _LANGUAGE_OF_OTHERS.search(before):
        return None
    check = {"type": "language", "language": LANGUAGES[name]}
    return Found(
        match.start(), match.end(), check, None, f"Is the response in {name.capitalize()}?", counts=False,
        whole=bool(only), every=not only, form=True,
    )  # fmt: skip


def _english(clause: Clause, match: Match) -> Found | None:
    """English, which a clause names together with its casing."""
    found = _casing(clause, match) if "english" in clause.text else None
    check = {"type": "language", "language": "en"}
    return found and found._replace(check=check, question="Is the response in English?")


# Formats

_JSON = pattern(
    r"""\b(?:in|as|into|convert (?:this|it|the) [a-z]+ to|using|use|be|with|valid|return|output|respond with
    |wrapped in|within)\s+(?:a |an |the |one )?
    (?:valid |single |proper |strict |raw |well-formed |properly formatted |plain |parsable |parseable |pure )*json\b
    (?:[- ](?:format(?:ted)?|objects?|array|string|code|block|syntax|structure|output|only|response))*"""
)
_TITLE = pattern(
    r"""\b(?:titles?|entitled|titled)\b[^.\n]{0,80}?(?:double angular brackets|double angle brackets|<<[^<>\n]{0,60}>>)
    |(?:double angular brackets|double angle brackets|<<\s*title)"""
)
_HEADING = pattern(
    r"""\b(?:start|begin|include|add|with|use|have|has)\b[^.\n]{0,40}?\b(?:a )?(?:markdown (?:heading|title|header)
    |(?:heading|title|header) (?:in|using|with) markdown)"""
)
_POSTSCRIPT = pattern(
    r"""\b(?:add|include|including|write|with|and|append|has|have|having|contain|containing|put|use|need|want)\s+(?:a|an|one)\s
    (?:short |brief |final |funny )?(?:post-?\s?script|p\.?\s?(?:p\.?\s?)?s)\b\.?"""
)
_MARKER = re.compile(r"[Pp](?<![\w.].)(?:\.\s?[Pp]\.\s?[Ss]\.?|\.\s?[Ss]\.?|[Pp][Ss]|[Ss])(?!\w)")
_MARKS = r"(?:double[- ])?(?:quotations?[- ]marks|quotes|quote marks)"
_WRAPPED = pattern(
    rf"""\b(?:wrap(?:ped)?|enclos(?:e|ed)|surround(?:ed)?|put|place|be|contained|begin and end|start and end
    |encase(?:d)?)\b[^.;,\n]{{0,90}}?\b(?:in|with|by|within|inside|between)\s+(?:a pair of )?{_MARKS}
    |\b{_MARKS} (?:should |must )?(?:be )?(?:placed |put )?around [^.;\n]{{0,40}}?\b{RESPONSE}\b"""
)
_QUOTED_PART = pattern(
    rf"""\b(?:{PART}|words?|phrases?|names?|keywords?|quotes?|lyrics)\b
    (?! long\b| and\b|,)[^,.;]{{0,40}}?{_MARKS}"""
)
_ENTIRE = re.compile(
    r"\bthe (?:response|answer|output|reply)\b|\b(?:entire|whole|full|complete|your|all of your)\s+(?:[a-z-]+\s+){0,2}"
    rf"{RESPONSE}\b|\beverything\b|\bit\b"
)


def _json(clause: Clause, match: Match) -> Found | None:
    return _form_of(match, {"type": "json"})


def _title(clause: Clause, match: Match) -> Found:
    check = {"type": "title", "style": "angled"}
    return _form_of(match, check, "Does the response have a title in double angle brackets?")


def _heading(clause: Clause, match: Match) -> Found:
    check = {"type": "title", "style": "heading"}
    denied = regex_check(r"\A\s*#{1,6}[ \t]+\S", exactly=0)
    refused = "Does the response start without a Markdown heading?"
    return _form_of(match, check, "Does the response start with a Markdown heading?", denied, refused)


def _postscript(clause: Clause, match: Match) -> Found | None:
    if any(match.end() <= given.start < match.end() + 40 for given in clause.strings):
        return None
    if marker := _MARKER.search(clause.view.prompt, clause.start + match.start()):
        check = {"type": "postscript", "marker": marker.group()}
        return _form_of(match, check)._replace(end=max(match.end(), marker.end() - clause.start))
    return _form_of(match, regex_check(r"(?im)^\W*P\.?\s?S\b", at_least=1), "Does the response have a postscript?")


def _quoted(clause: Clause, match: Match) -> Found | None:
    around = clause.text[: match.end()]
    if polarity(match.group()) is not True or not _ENTIRE.search(around) or _QUOTED_PART.search(around):
        return None
    return _form_of(match, {"type": "quoted"}, "Is the whole response in quotation marks?")


_LISTS = pattern(
    r"""\b(?:in|as|using|use|with|into|make|create|write|provide|give|be|format)\s+(?:me\s+)?(?:a |an |the |your 
    |any )?(?:(?!or\b|and\b)[a-z]+ ){0,2}?(?P<kind>numbered list|bullet(?:ed)?[- ]?(?:points(?: list)?|point list|list)
    |bullets|markdown table|ordered list)\b"""
)
_TABLE = (regex_check(r"(?m)^\s*\|.*\|\s*$", at_least=2), "Does the response have a Markdown table?")
_NUMBERED = (regex_check(r"(?m)^\s*\d+[.)]\s", at_least=1), "Does the response have a numbered list?")


def _list(clause: Clause, match: Match) -> Found | None:
    if match["kind"].startswith("bullet"):
        check: Spec = {"type": "bullets", "at_least": 1}
        question = "Does the response have bullet points?"
    else:
        check, question = _TABLE if match["kind"] == "markdown table" else _NUMBERED
    return Found(match.start(), match.end(), check, None, question, counts=False)


_BRACKETS = re.compile(r"\bplace-?holders?\b[^.\n]{0,80}?\b(?:square )?brackets\b")


def _brackets(clause: Clause, match: Match) -> Found:
    return _form_of(match, {"type": "placeholders", "at_least": 1})


_OTHER_FORMAT = pattern(
    r"""\b(?:in|as|into|using)\s+(?:a |an |the |valid )?(?P<a>ya?ml|xml|csv|html|latex|toml)\b(?: format| only)
    |\b(?:respond|answer|reply|output|return)\b[^.\n]{0,40}?\b(?:in|as)\s+(?:valid )?(?P<b>ya?ml|xml|csv|html|latex
    |toml)\b"""
)


def _other_format(clause: Clause, match: Match) -> Found:
    reason = f"no check for {(match['a'] or match['b']).upper()}"
    return Found(match.start(), match.end(), reason=reason, counts=False)


# What the whole answer is

_YES_NO = pattern(
    r"""\b(?:answer|respond|reply|say|output|return)\b[^.;\n]{0,40}?(?P<only>\bonly\b|\bjust\b|\bsimply\b|\bsingle\b
    |\bone word\b)?[^.;\n]{0,30}?\b(?:a )?(?P<words>yes or no|yes/no|true or false|true/false)\b(?P<after> only)?"""
)
_YES_TO = re.compile(r" to (?:it|that|them|(?:my|his|her|an?|the) (?:proposal|offer|invitation|plan|deal))\b")


def _yes_or_no(clause: Clause, match: Match) -> Found | None:
    if "than" in match.group() or _YES_TO.match(clause.text, match.end()):
        return None  # "more than a yes or no", "say yes or no to it"
    words = ("true", "false") if "true" in match["words"] else ("yes", "no")
    only = match["only"] or match["after"]
    check = regex_check(rf"(?i)\A\W*(?:{'|'.join(words)})" + (r"\W*\Z" if only else r"\b"), exactly=1)
    question = f"Does the response {'consist only of' if only else 'start with'} {' or '.join(words)}?"
    return Found(match.start(), match.end(), check, None, question)


_SAYS = r"(?:answer|respond|reply|output|return|print|say|state|give|provide|write)"
_ADVERB = r"(?:(?:the|a|an|your|one|single|final|correct|numeric(?:al)?|whole|resulting|option|answer)\s+)*"
_KIND = r"(?:number|integer|digit|numeral|numerical value|letter)s?"
_CLOSED = r"(?=\s*(?:[.,;:!?\n]|$|and nothing|without|\())"
_ONE_THING = pattern(
    rf"""\b{_SAYS}(?:s|ing)?\b(?:\s+(?:me|back|with|your answer|the answer|as|in))*\s+(?:only|just|nothing but|solely
    |simply)\s+(?:with\s+|as\s+)?{_ADVERB}(?P<a>{_KIND})(?:\s+of (?:the|your) (?:correct |right |chosen 
    |best )?(?:option|answer|choice|result))?{_CLOSED}
    |\b(?:only|just)\s+{_SAYS}\s+(?:me\s+)?(?:with\s+)?{_ADVERB}(?P<b>{_KIND}){_CLOSED}
    |\b{_SAYS}(?:s|ing)?\b(?:\s+(?:with|as|your answer as|the answer as))*\s+{_ADVERB}(?P<c>{_KIND})\s+(?:only\b
    |alone\b|and nothing (?:else|more)\b)"""
)
_ALONE = {
    "l": (r"\A\W*[A-Za-z]\W*\Z", "a single letter"),
    "d": (r"\A\W*\d\W*\Z", "a single digit"),
    "i": (r"\A\s*[-+−]?\d[\d,]*\.?\s*\Z", "a whole number"),
    "n": (r"\A\s*[-+−]?[$€£]?\d[\d,. ]*%?\.?\s*\Z", "a number"),
}


def _one_thing(clause: Clause, match: Match) -> Found | None:
    """A number or a letter and nothing else: "Respond with the number only."."""
    expression, thing = _ALONE[(match["a"] or match["b"] or match["c"])[0]]
    check, question = regex_check(expression, exactly=1), f"Does the response consist only of {thing}?"
    return Found(match.start(), match.end(), check, None, question, every=False)


_LABELS = pattern(
    r"""\b(?P<verb>answer|respond|reply|choose|select|pick|classify|label|rate|categori[sz]e|output|return|say)\b
    (?P<way>[^.:;\n]{0,60}?)(?:\b(?:exactly |only )?one of(?: the| these)?(?: following)?(?: [a-z]+)?:?\s+
    |\bonly (?:with|as)\s+|\bas (?:either\s+)?|\bwith either\s+|\beither\s+)
    (?P<list>[a-z0-9][\w-]*(?:(?:\s*,\s*|\s*/\s*)[a-z0-9][\w-]*){0,8}?(?:\s*,)?(?:\s+(?:or|and)\s+|\s*,\s*)
    [a-z0-9][\w-]*)(?=\s*(?:[.;:!?\n)]|$))"""
)
_BETWEEN_LABELS = re.compile(r"\s*(?:,\s*(?:or|and)\s+|,\s*|/|\s(?:or|and)\s+)\s*")
_PICKS = ("choose", "select", "pick")
_SORTS = ("classify", "label", "categorize", "categorise", "rate")
_NO_LABELS = frozenset("yes no true false it this that them these those".split())


def _labels(clause: Clause, match: Match) -> Found | None:
    """One of several words without quotation marks: "Answer with one of the following: positive, negative."."""
    said = match.group()
    if " as " in said and "either" not in said and match["verb"] not in _SORTS:
        return None
    words = tuple(_BETWEEN_LABELS.split(clause.prompt(*match.span("list")).strip()))
    if len(words) < 2 or any(not word or word.lower() in _NO_LABELS or word.lower() in LANGUAGES for word in words):
        return None
    if match["verb"] in _PICKS and clause.view.text[clause.start + match.end() :].strip(" .!)\n"):
        return None  # the choice may be the topic of a text
    named = f"{', '.join(words[:-1])} or {words[-1]}"
    if "only" in said:
        return only_one_of(match.start(), match.end(), words, named)
    check = {"type": "keywords", "words": list(words), "need": "any"}
    return Found(match.start(), match.end(), check, None, f"Does the response contain one of the answers {named}?")


# Fixed texts

_PHRASE = r"(?:exact |following |very |final )*(?:phrase|sentence|words?|line|text|statement|question)"
_UNQUOTED_END = pattern(
    rf"""(?:\b(?:end|finish|conclude|close)(?:ing)?\b[^.\n\x01]{{0,60}}?\bwith(?: (?:the|this|these))?
    (?:(?: {_PHRASE})?:|\s+(?:the |this )?exact (?:phrase|sentence|words?|line|text))
    |\b(?:very end|last (?:line|sentence|words)) of your (?:entire |whole )?(?:response|answer|reply|output)
    (?: should| must) (?:be|read)(?: exactly)?(?: like)?:)(?!\s+of\b)\s*(?P<phrase>[^\x01\n]+)"""
)


_MORE_THAN_PHRASE = re.compile(rf"\b(?:unless|except)\b|, sa(?:ys|id)\b|\bin (?:{_TONGUE})\W*$")


def _unquoted_end(clause: Clause, match: Match) -> Found | None:
    """A last sentence without quotation marks: "End with this exact phrase: See you soon."."""
    start, prompt = clause.start + match.start("phrase"), clause.view.prompt
    line = prompt.find("\n", start)
    phrase = prompt[start : line if line >= 0 else len(prompt)][:300]
    if stop := re.search(r"[.!?](?=\s|$)|,? and (?:no|do not|nothing|don't)", phrase):
        phrase = phrase[: stop.end() if stop.group()[0] in ".!?" else stop.start()]
    phrase = phrase.strip()
    if _MORE_THAN_PHRASE.search(phrase.lower()):
        return None
    check = {"type": "ends", "phrase": phrase}
    end = match.start("phrase") + len(phrase)
    question = f'Does the response end with "{phrase}"?'
    return Found(match.start(), end, check, None, question) if phrase else None


_ENDING_MARKS = {
    "question mark": "?", "exclamation mark": "!", "exclamation point": "!", "period": ".", "full stop": ".",
    "colon": ":", "semicolon": ";",
}  # fmt: skip
_ENDING_MARK = pattern(
    rf"""\b(?:(?:end|finish|conclude|close)(?:s|ing)?(?: (?:your|the|this|it|its|my|each|every)(?: [a-z-]+){{0,3}})?\s
    (?:with|in|on) (?:an?|one|exactly one|a single)
    |(?:very )?(?:last|final) (?:character|symbol|punctuation mark|mark|thing)\b[^.\n\x01]{{0,40}}? (?:is|be) an?)\s
    (?P<mark>{"|".join(_ENDING_MARKS)})\b"""
)


def _ending_mark(clause: Clause, match: Match) -> Found:
    """The last character by its name: "End with a question mark."."""
    mark, name = _ENDING_MARKS[match["mark"]], f"a {match['mark']}".replace("a e", "an e")
    if part := re.search(rf"\b(?:each|every|{PART})\b", match.group()):
        return Found(match.start(), part.start(), reason=A_PART)
    denied, refused = (
        regex_check(rf"{re.escape(mark)}\s*\Z", exactly=0),
        "Does the response end with something else than",
    )
    check, question = {"type": "ends", "phrase": mark}, f"Does the response end with {name}?"
    return Found(match.start(), match.end(), check, denied, question, f"{refused} {name}?")


_PARAGRAPH_START = pattern(
    rf"""\b(?:the )?(?:paragraph (?P<n>{NUMBER})|(?P<nth>{"|".join(ORDINALS)}) paragraph)\b(?: of [a-z ]{{0,30}})?,?\s+
    (?:must|should|has to|have to|needs to|shall|will|to)?\s*(?:always )?(?:start|begin)(?:s
    |ning)?\s+with\s+(?:the\s+)?(?:word\s+|phrase\s+)?(?P<word>[a-z][\w'-]*)(?=\s*(?:[.,;!?\n)]|$|and\b|in\b))"""
)


def _paragraph_start(clause: Clause, match: Match) -> Found | None:
    if match["word"] in FUNCTION_WORDS:
        return None
    paragraph = number(match["n"]) if match["n"] else ORDINALS[match["nth"]]
    check = {"type": "paragraph_start", "paragraph": paragraph, "word": clause.prompt(*match.span("word"))}
    return _form_of(match, check)._replace(counts=True)


_REPEAT = pattern(
    r"""\b(?:repeat|copy|restate|rewrite|reproduce)\s+(?:back\s+)?(?:(?P<quoted>\x01+)|(?:(?:the|my|this|above|below
    |entire
    |whole|exact|same|full|complete|user's|original|following)\s+)*(?P<what>request|prompt|question|query|instructions?
    |message|sentence|text|task|input|words|paragraph|what i (?:said|wrote|asked))s?\b)[^.\n]{0,120}"""
)
_FIRST = pattern(
    r"""\bfirst\b|\bbefore\b|\bthen (?:give|answer|provide|respond|reply|write)|\bword[- ](?:for|by)[- ]word\b
    |\bverbatim\b|\bexactly\b|\bas is\b|\bwithout (?:any )?chang|\bunchanged\b"""
)


_COLON = re.compile(r":[ \t]*[^\s]")


def _repeats_prompt(clause: Clause, match: Match) -> Found | None:
    """The request repeated first: the text above this instruction, or below it."""
    view, start, end = clause.view, clause.start, clause.start + match.end()
    if not _FIRST.search(view.text[start : end + 120]) or _COLON.match(clause.text, match.end("what")):
        return None
    question = "Does the response begin by repeating the request word for word?"
    check: Spec = {"type": "repeats_prompt"}
    if match["quoted"]:
        given = next((one for one in clause.strings if one.start == match.start("quoted")), None)
        check["prompt"] = given.values[0] if given else ""
        return _form_of(match, check, question)._replace(end=match.end("quoted")) if given else None
    below = re.search(r"\b(?:below|following)\b", match.group())
    named = below or re.search(r"\babove\b", match.group())
    if not named and not match["what"].startswith(("request", "prompt", "question", "query", "instruction")):
        return None
    gap = view.text.find("\n\n", end)
    text = view.prompt[gap:].strip() if (below or start == 0) and gap > 0 else view.prompt[:start].strip()
    if below and not text:
        return None
    check |= {"prompt": text} if text else {}
    return _form_of(match, check, question)._replace(end=match.end("what"), whole=True)


# Parts with dividers

_STARS = re.compile(
    r"(?P<separated>\bseparat[^.\n]{0,90}?)?"
    r"(?:(?<!\*)\*{6}(?!\*)|\b(?:6|six) asterisks?(?: symbols?)?(?:\W{1,3}\*{6})?)"
)
_MORE_THAN_TWO = pattern(
    r"""\b(?:three|four|five|several|multiple|3|4|5)\s+(?:[a-z]+\s+){0,2}[a-z]+s\b
    |\b(?:each|every)\b(?! (?:version|response|answer) (?:must|should|has))"""
)
_SEPARATED = re.compile(r"separat[^.]*$")
_DIVIDED = re.compile(r"\b(?:separat|divid|delimit|split)\w*[^.]{0,60}?(?<!\*)\*{3}(?!\*)")
_PLURAL = re.compile(r"[\s-]+(?:(?!and\b|or\b|in\b|of\b|to\b)[a-z]+ ){0,2}?(?P<noun>(?!is\b|was\b|has\b)[a-z]+s)\b")
_UNITS_OF_TEXT = frozenset(
    "words sentences characters times points bullets lines paragraphs sections asterisks".split()
)


def _two_responses(clause: Clause, match: Match) -> Found | None:
    """Two responses between six asterisks."""
    text, at = clause.view.text, clause.start + match.start()
    if not (match["separated"] or _SEPARATED.search(text, max(at - 90, 0), at)):
        return None
    if _MORE_THAN_TWO.search(text, max(clause.start - 150, 0), clause.start + match.end()):
        return None
    return _form_of(match, {"type": "two_responses"})


def _divided(clause: Clause, match: Match) -> Found | None:
    """Parts between three asterisks: "two poems, separated by ***"."""
    text, check = clause.view.text, {"type": "paragraphs", "separator": "***"}
    at = clause.start + match.start()
    if "paragraph" in text:
        return None
    head = text[max(at - 200, 0) : at]
    for given in reversed(numbers(head)[-5:]):
        noun, found = _PLURAL.match(head, given.end()), amount(head, given)
        if noun and found.how != "about" and (found.low or found.high or 0) > 1 and noun["noun"] not in _UNITS_OF_TEXT:
            return _form_of(match, {**check, **found.bounds})
    return None


_CASES = "lowercase uppercase lower upper capital capitals caps capitalize small"
FORMS: tuple[tuple[str, re.Pattern[str], Callable[[Clause, Match], Found | None]], ...] = (
    (_CASES, _CASING, _english),
    (_CASES, _CASING, _casing),
    (" ".join(LANGUAGES), _LANGUAGE, _language),
    ("json", _JSON, _json),
    ("<< angular angle", _TITLE, _title),
    ("markdown", _HEADING, _heading),
    ("postscript p pps ps", _POSTSCRIPT, _postscript),
    ("quotes quotation", _WRAPPED, _quoted),
    ("list bullet bulleted table", _LISTS, _list),
    ("placeholder place holder", _BRACKETS, _brackets),
    ("yml yaml xml csv html latex toml", _OTHER_FORMAT, _other_format),
    ("yes true", _YES_NO, _yes_or_no),
    ("one only either classify label categorize rate", _LABELS, _labels),
    ("number integer digit numeral numerical letter", _ONE_THING, _one_thing),
    ("mark point period stop colon semicolon", _ENDING_MARK, _ending_mark),
    ("end ending finish conclude close last", _UNQUOTED_END, _unquoted_end),
    ("paragraph", _PARAGRAPH_START, _paragraph_start),
    ("repeat copy restate rewrite reproduce", _REPEAT, _repeats_prompt),
    ("*** asterisk", _STARS, _two_responses),
    ("***", _DIVIDED, _divided),
)
"""The phrases, in the order in which they are read: words of which one must occur in a clause, a pattern, and what
builds the requirement from its match."""
