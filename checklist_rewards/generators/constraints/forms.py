"""Requirements in whole phrases: "no commas", "in JSON", "in all capital letters", "in German"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checklist_rewards.generators.constraints.amounts import NUMBER, amount, number, numbers
from checklist_rewards.generators.constraints.counts import EMOJI, FUNCTION_WORDS, HASHTAG, counted
from checklist_rewards.generators.constraints.reading import (
    A_PART,
    APPROXIMATE,
    CONDITIONAL,
    NEGATION,
    QUOTE,
    RESPONSE,
    PromptText,
    Requirement,
    Spec,
    conditional,
    contains,
    each,
    listed,
    negated,
    one_line,
    pattern,
    regex_check,
    required,
    unexpressed,
)
from checklist_rewards.generators.constraints.strings import ABOUT_PART, ORDINALS

# Without something

_THING = one_line(
    r"""(?:commas?|digits?|numerals?|numbers?\b(?! (?:of|one|\d))
    |exclamation (?:marks?|points?)|question marks?|emojis?|emoticons?|hash ?tags?|
    semi-?colons?|colons?|hyphens?|dashes|parenthes[ie]s|quotation marks?|periods?|full stops?|capital letters?
    |capitals?|
    upper-?case(?: letters?)?|lower-?case(?: letters?)?|bullet ?-?points?|bullets?|punctuation(?: marks?)?|asterisks?|
    headings?|(?:the )?letters? (?:[a-z](?![\w'])|\x01+))"""
)
_THINGS = re.compile(_THING)
_WITHOUT = pattern(
    rf"""{NEGATION}(?:[\s,]+(?:any|a|an|the|single|use|using|used|usage|allowed|permitted|supposed|to|including
    |include|
    contain|containing|have|having|put|insert|add|write|writing|employ|of|in|your|(?:entire |whole )?response|answer
    |reply|
    text|output|story|essay|kinds?|types?|forms?|with|or|more|ever|also|be|should|must|question|
    (?:punctuation|symbols) (?:like|such as)|such as|all|extra|special))*?
    \s+(?P<list>(?:the )?{_THING}(?:(?:\s*,\s*(?:or |and |nor )?|\s+(?:or|and|nor)\s+|/)(?:any |the )?{_THING})*)
    (?!\s+(?:only|other than|except|after|before|between|unless|where|more than|larger|to separate|greater|from|of the
    |in the (?:title|first)|with \d))"""
)
_NOT_USED = pattern(
    rf"""(?P<list>{_THING}(?:(?:\s*,\s*(?:or |and )?|\s+(?:or|and)\s+){_THING})*)\s+
    (?:(?:(?:should|must|may|can|are|is|do)\s*(?:not|n't)|cannot|can't|mustn't|shouldn't)\s*(?:be )?
    (?:used|allowed|permitted|appear|included|present)|(?:are|is) (?:forbidden|prohibited|banned))\b"""
)
_NOT_USED_TRIGGERS = tuple("used allowed permitted appear included present forbidden prohibited banned".split())
_FREE = re.compile(r"\b(?P<list>commas?|digit|emoji|punctuation)[- ]free\b")
_OTHER_PART = pattern(
    r"""\s*(?:in|within|for|of) (?:the |your |its |any )?(?:(?:first|last|opening|final|second)\b|title|heading|subject
    |names?)"""
)
_LETTERS = {
    "comma": (",", "commas"),
    "digit": ("0123456789", "digits"),
    "numeral": ("0123456789", "digits"),
    "number": ("0123456789", "numbers in digits"),
    "exclamation": ("!", "exclamation marks"),
    "question": ("?", "question marks"),
    "semi": (";", "semicolons"),
    "colon": (":", "colons"),
    "hyphen": ("-", "hyphens"),
    "dash": ("-–—", "dashes"),
    "parenthes": ("()", "parentheses"),
    "quotation": ('"“”', "quotation marks"),
    "period": (".", "full stops"),
    "full stop": (".", "full stops"),
    "asterisk": ("*", "asterisks"),
}
"""Start of a word: the characters that must not occur, and their name."""
_NONE_OF: dict[str, tuple[Spec, str]] = {
    "emo": (regex_check(EMOJI, exactly=0), "emojis"),
    "hash": (regex_check(HASHTAG, exactly=0), "hashtags"),
    "punctuation": (regex_check(r"\p{P}", exactly=0), "punctuation marks"),
    "heading": (regex_check(r"(?m)^\s*#{1,6}\s", exactly=0), "headings"),
    "bullet": ({"type": "bullets", "exactly": 0}, "bullet points"),
}


def without(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """What must not occur: commas, digits, emojis, a letter, capital letters."""
    text = view.text
    for phrase, triggers in ((_WITHOUT, ("",)), (_NOT_USED, _NOT_USED_TRIGGERS), (_FREE, ("-free", " free"))):
        if not contains(text, triggers):
            continue
        for match in phrase.finditer(text):
            before = view.before(match.start())
            if re.search(r"\b(?:who|whom|which|why|how|whether|people|characters?)\b[^.,]*$", before):
                continue
            part = ABOUT_PART.search(before) or _OTHER_PART.match(view.text, match.end()) or conditional(before)
            if part:
                yield unexpressed(match.start(), match.end(), A_PART)
                continue
            for thing in _THINGS.finditer(view.text, *match.span("list")):
                if (found := _without(view, thing, taken)) is not None:
                    yield required(match.start(), match.end(), *found)


def _without(view: PromptText, thing: re.Match[str], taken: set[int]) -> tuple[Spec, str] | None:
    word = thing.group()
    if re.match(r"(?:the )?letters? ", word):
        value = word[-1]
        if value == QUOTE:
            given = view.strings_at(thing.end() - 1)
            if given is None or any(len(letter) != 1 for letter in given.values):
                return None
            taken.add(given.start)
            value = "".join(given.values)
        check: Spec = {"type": "letters", "letters": value, "exactly": 0}
        return check, f"Does the response do without the letter {listed(value)}?"
    if word.startswith(("capital", "upper", "lower")):
        casing = "upper" if word.startswith("lower") else "lower"
        return {"type": "casing", "casing": casing}, _CASED[casing]
    for start, (letters, name) in _LETTERS.items():
        if word.startswith(start):
            return {"type": "letters", "letters": letters, "exactly": 0}, f"Does the response do without {name}?"
    check, name = next(value for start, value in _NONE_OF.items() if word.startswith(start))
    return check, f"Does the response do without {name}?"


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
    |caps)\b
    (?: letters?)?|\b(?P<d>lower-?case|upper-?case)(?: letters)? only
    |\ball (?:of )?(?:the |your )?(?:letters|text|words) (?:are|is|should be|must be|to be) (?:in )?(?:all )?
    (?P<e>lower-?case|upper-?case|capital(?:i[sz]ed)?|caps)(?: letters)?
    |\b(?P<f>capitali[sz]e) (?:every|each|all)(?: of)?(?: the| your)? (?:single )?(?:letters?|words?|text
    |characters?)\b"""
)
_CASED_PART = pattern(
    r"""\b(?P<part>words?|titles?|headlines?|headings?|headers?|names?|first letters?|initials?|acronyms?|key ?words?|
    sections?|sentences?|lines?|subject|terms?|phrases?|labels?|nouns?|verbs?|abbreviations?|letters? of|variables?
    |columns?|
    functions?|characters? names?|strings?|the letter)\b(?:(?!,\s|\band\b|\bbut\b).)*$"""
)
_OF_SOME = pattern(
    r"""\s*(?:words?|terms?|keywords?|names?|titles?|headings?|headlines?|nouns?|letters? (?:for|of|in the)
    |for (?:each|every|all|any|their)\b|for (?:the )?(?:titles?|emphasis|names?|headings?)|to emphasi
    |at the (?:start|beginning)|at least|less|more)\b"""
)
_SOME = pattern(
    r"""\b(?:at least|at most|less than|more than|fewer than|exactly|few|some|several|many|\d+|two|three|four|five)
     (?:(?!and\b|but\b)[a-z]+ ){0,3}(?:in |with )?$|\b(?:either|convert|change|turn|from|avoid|rather than
    |instead of)\b[^,]*$"""
)
_CASING_OF_RESPONSE = re.compile(
    rf"\b(?:{RESPONSE}|write|respond|answer|reply|use|using|in|be|make|only|english|keep|please)\b|^\s*\W*$"
)


def casing(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """Capital or small letters only, with the language English if the clause names it."""
    for match in _CASING.finditer(view.text):
        before = view.before(match.start(), 160)
        cased = next(value for value in match.groups() if value)
        if _OF_SOME.match(view.after(match.end(), 40)) or _SOME.search(before):
            continue
        if negated(before) or conditional(before):
            continue
        if part := _CASED_PART.search(before):
            if not part["part"].startswith(("word", "key")):
                yield unexpressed(match.start(), match.end(), A_PART)
            continue
        if _CASING_OF_RESPONSE.search(before):
            clause = view.text[view.start_of_clause(match.start()) : view.end_of_clause(match.start())]
            if "english" in clause:
                yield _language(match, "english")
            casing = "lower" if cased.startswith(("lower", "small")) else "upper"
            yield required(match.start(), match.end(), {"type": "casing", "casing": casing}, _CASED[casing])


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
_NAMES = tuple(LANGUAGES)
_TONGUE = "|".join(LANGUAGES)
_LANGUAGE = pattern(
    rf"""\b(?:in|using|use)\s+(?:only\s+|just\s+|entirely\s+|exclusively\s+)?(?:the\s+)?(?P<a>{_TONGUE})(?:\s+language)?
    (?=\s*(?:[.,;:!?)\n\x01]|$|(?:only|and|but|with|language|using|about|no|please|for|throughout|instead)\b))
    |\bonly (?:use |using )?(?:the )?(?P<b>{_TONGUE})(?: language| words)?\b|\b(?P<c>{_TONGUE})(?: language)? only\b
    |\bentirely (?:in )?(?P<d>{_TONGUE})\b
    |\b(?:other languages?|languages?) (?:other )?(?:than|except|besides|but|apart from) (?P<e>{_TONGUE})\b
    |\b(?:outside of|other than|except(?: for)?|apart from|besides) (?P<f>{_TONGUE}),? no (?:other )?languages?\b"""
)
_ONLY_LANGUAGE = re.compile(
    r"\b(?:entire|whole|only|respond|reply|your (?:[a-z]+ )?(?:response|answer|reply|output))\b"
)
_WRITES = pattern(
    rf"""^[\s\W]*(?:then |now |and |but |please |also |only )*(?:write|respond|answer|reply|compose|draft|speak|in
    |using|use
    |explain|the (?:entire|whole|complete|full))\b
    |\b(?:your|the|entire|whole|full|complete|this|it|all)\s+(?:(?:entire|whole|full|complete)\s+)?{RESPONSE}\b
    |\b(?:respond|answer|reply|write)\b|\b(?:should|must) be\b|,\s*$|^\s*$"""
)
_LANGUAGE_OF_OTHERS = pattern(
    r"""\b(?:translat\w*|convert|from|sentences?|text|words?|phrases?|article|quote|books?|movies?|films?|released
    |called|
    meaning|means?|published|literature|terms?|poet|poems by|equivalent|say|said|known|title|names?|subtitle|class
    |course|
    lessons?|keywords?|grammar|fluent|proficien\w+|skills?|difference|both|either|not|avoid|following|given|passage
    |original|
    version|learn|learning|teach|common|used|popular|interest(?:ed)?|major(?:ed)?|degree|studies|paragraph in)\b"""
)


def _language(match: re.Match[str], name: str) -> Requirement:
    check = {"type": "language", "language": LANGUAGES[name]}
    return required(match.start(), match.end(), check, f"Is the response in {name.capitalize()}?")


def language(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The language of the response."""
    if not contains(view.text, _NAMES):
        return
    for match in _LANGUAGE.finditer(view.text):
        before = view.before(match.start(), 200)
        if re.search(r"\b(?:speak|person|people|who|characters?)\w*\b", before):
            continue
        others = match["e"] or match["f"]
        only = (
            match["a"] is None
            or "only" in match.group()
            or re.match(r"\s*,?\s*(?:only|no other language)\b", view.after(match.end()))
            or _ONLY_LANGUAGE.search(before)
        )
        if not others:
            if negated(before) or conditional(before) or re.search(r"\b(?:either|both)\b", before):
                continue
            if not only and (not _WRITES.search(before) or _LANGUAGE_OF_OTHERS.search(before)):
                continue
        yield _language(match, next(value for value in match.groups() if value))


# Formats

_JSON = pattern(
    r"""\b(?:in|as|into|using|use|be|with|valid|return|output|respond with|wrapped in|within)\s+(?:a |an |the |one )?
    (?:valid |single |proper |strict |raw |well-formed |properly formatted |plain |parsable |parseable |pure )*json\b
    (?:[- ](?:format(?:ted)?|objects?|array|string|code|block|syntax|structure|output|only|response))*"""
)
_OTHER_JSON = pattern(
    r"""\b(?:function|script|program|code that|parse|api|endpoint|file|python|javascript|convert(?:s|ing)? (?:this
    |the|a)
     json|class|query|database|stored|example|sample|following json|given json|request|payload|library|difference
    |input|table)\b"""
)


def json(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """A response in JSON."""
    for match in _JSON.finditer(view.text):
        clause = view.text[view.start_of_clause(match.start()) : view.end_of_clause(match.start())]
        before = view.before(match.start(), 200)
        if not (_OTHER_JSON.search(clause) or negated(before) or conditional(before)):
            yield required(match.start(), match.end(), {"type": "json"})
            return


_TITLE = pattern(
    r"""\b(?:titles?|entitled|titled)\b[^.\n]{0,80}?(?:double angular brackets|double angle brackets|<<[^<>\n]{0,60}>>)
    |(?:double angular brackets|double angle brackets|<<\s*title)[^.\n]{0,60}"""
)
_HEADING = pattern(
    r"""\b(?:start|begin|include|add|with|use|have|has)\b[^.\n]{0,40}?\b(?:a )?
    (?:markdown (?:heading|title|header)|(?:heading|title|header) (?:in|using|with) markdown)"""
)


def title(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """A title in double angle brackets, or a Markdown heading."""
    if match := _TITLE.search(view.text):
        if not negated(view.before(match.start())):
            question = "Does the response have a title in double angle brackets?"
            yield required(match.start(), match.end(), {"type": "title", "style": "angled"}, question)
    elif match := _HEADING.search(view.text):
        question = "Does the response start with a Markdown heading?"
        yield required(match.start(), match.end(), {"type": "title", "style": "heading"}, question)


_POSTSCRIPT = re.compile(
    r"\b(?:postscript|post script|(?:add|include|write|with|append) (?:a |an )?p\.\s?(?:p\.\s?)?s\b\.?)"
)
_MARKER = re.compile(r"(?<![\w.])(?:P\.\s?P\.\s?S\.?|P\.\s?S\.?|PPS|PS)(?!\w)", re.IGNORECASE)


def postscript(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """A postscript. A quoted marker belongs to the rule about strings."""
    match = _POSTSCRIPT.search(view.text)
    if match is None or negated(view.before(match.start())):
        return
    if any(match.end() <= given.start < match.end() + 40 for given in view.strings):
        return
    if marker := _MARKER.search(view.prompt, match.start()):
        check = {"type": "postscript", "marker": marker.group()}
        yield required(match.start(), max(match.end(), marker.end()), check)
    else:
        check = regex_check(r"(?im)^\W*P\.?\s?S\b", at_least=1)
        yield required(match.start(), match.end(), check, "Does the response have a postscript?")


_MARKS = r"(?:double[- ])?(?:quotations?[- ]marks|quotes|quote marks)"
_WRAPPED = pattern(
    rf"""\b(?:wrap(?:ped)?|enclos(?:e|ed)|surround(?:ed)?|put|place|be|contained|begin and end|start and end
    |encase(?:d)?)\b
    [^.;\n]{{0,90}}?\b(?:in|with|by|within|inside|between)\s+(?:a pair of )?{_MARKS}
    |\b{_MARKS} (?:should |must )?(?:be )?(?:placed |put )?around [^.;\n]{{0,40}}?\b{RESPONSE}\b"""
)
_QUOTED_PART = pattern(
    rf"""\b(?:titles?|words?|phrases?|names?|keywords?|sentences|each sentence|dialogues?|quotes?|lyrics|lines)\b
    (?! long\b| and\b|,)[^,.;]{{0,40}}?{_MARKS}"""
)
_WHOLE = re.compile(
    r"\bthe (?:response|answer|output|reply)\b|\b(?:entire|whole|full|complete|your|all of your)\s+(?:[a-z-]+\s+){0,2}"
    rf"{RESPONSE}\b|\beverything\b|\bit\b"
)


def quoted(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The whole response in quotation marks."""
    if match := _WRAPPED.search(view.text):
        before = view.before(match.start(), 160)
        around = before + match.group()
        refused = negated(before) or conditional(before) or re.search(NEGATION, match.group())
        if _WHOLE.search(around) and not refused and not _QUOTED_PART.search(around):
            yield required(match.start(), match.end(), {"type": "quoted"}, "Is the whole response in quotation marks?")


_LIST = pattern(
    r"""\b(?:in|as|using|use|with|into|make|create|write|provide|give|be|format)\s+(?:me\s+)?(?:a |an |the |your )?
    (?:[a-z]+ ){0,2}?(?P<kind>numbered list|bullet(?:ed)?[- ]?(?:points(?: list)?|point list|list)|bullets
    |bulleted list
    |markdown table|ordered list)\b"""
)
_BRACKETS = re.compile(r"\bplace-?holders?\b[^.\n]{0,80}?\b(?:square )?brackets\b")


def lists(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """Bullet points, a numbered list, a table or placeholders, without a number."""
    for match in _LIST.finditer(view.text):
        before = view.before(match.start())
        if (
            each(view.text[view.start_of_clause(match.start()) : match.start()])
            or negated(before)
            or conditional(before)
            or ABOUT_PART.search(before)
        ):
            continue
        if match["kind"].startswith("bullet"):
            check: Spec = {"type": "bullets", "at_least": 1}
            question = "Does the response have bullet points?"
        elif match["kind"] == "markdown table":
            check = regex_check(r"(?m)^\s*\|.*\|\s*$", at_least=2)
            question = "Does the response have a Markdown table?"
        else:
            check = regex_check(r"(?m)^\s*\d+[.)]\s", at_least=1)
            question = "Does the response have a numbered list?"
        yield required(match.start(), match.end(), check, question)
    brackets = _BRACKETS.search(view.text)
    if brackets and not negated(view.before(brackets.start())):
        yield required(brackets.start(), brackets.end(), {"type": "placeholders", "at_least": 1})


_FORMATS = "ya?ml|xml|csv|html|latex|toml"
_FORMAT = pattern(
    rf"""\b(?:in|as|into|using)\s+(?:a |an |the |valid )?(?P<a>{_FORMATS})\b(?: format| only)
    |\b(?:respond|answer|reply|output|return)\b[^.\n]{{0,40}}?\b(?:in|as)\s+(?:valid )?(?P<b>{_FORMATS})\b"""
)


def other_formats(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """Formats that no check knows."""
    for match in _FORMAT.finditer(view.text):
        yield unexpressed(match.start(), match.end(), f"no check for {(match['a'] or match['b']).upper()}")


# Fixed texts

_PHRASE = r"(?:exact |following |very |final )*(?:phrase|sentence|words?|line|text|statement|question)"
_UNQUOTED_END = pattern(
    rf"""(?:\b(?:end|finish|conclude|close)(?:ing)?\b(?P<what>[^.\n\x01]{{0,60}}?)\bwith(?: (?:the|this|these))?
    (?:(?: {_PHRASE})?:|\s+(?:the |this )?exact (?:phrase|sentence|words?|line|text))
    |\b(?:very end|last (?:line|sentence|words)) of your (?:entire |whole )?(?:response|answer|reply
    |output) (?:should|must)
     (?:be|read)(?: exactly)?(?: like)?:)(?!\s+of\b)\s*(?P<phrase>[^\x01\n]+)"""
)


def unquoted_end(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """A last sentence without quotation marks: "End with this exact phrase: See you soon."."""
    match = _UNQUOTED_END.search(view.text)
    if match is None:
        return
    before, phrase = view.before(match.start()), view.prompt[slice(*match.span("phrase"))]
    if stop := re.search(r"[.!?](?=\s|$)|,? and (?:no|do not|nothing|don't)", phrase):
        phrase = phrase[: stop.end() if stop.group()[0] in ".!?" else stop.start()]
    phrase = phrase.strip()
    if phrase and not negated(before) and not ABOUT_PART.search(before + (match["what"] or "")):
        check = {"type": "ends", "phrase": phrase}
        yield required(
            match.start(), match.start("phrase") + len(phrase), check, f'Does the response end with "{phrase}"?'
        )


_ENDING_MARKS = {
    "question mark": "?", "exclamation mark": "!", "exclamation point": "!", "period": ".", "full stop": ".",
    "colon": ":", "semicolon": ";",
}  # fmt: skip
_OWNED = r"(?P<what>(?: (?:your|the|this|it|its|my|each|every)(?: [a-z-]+){0,3})?)"
_ENDING_MARK = pattern(
    rf"\b(?:(?:end|finish|conclude|close)(?:s|ing)?{_OWNED} (?:with|in|on) (?:an?|one|exactly one|a single)"
    r"|(?:very )?(?:last|final) (?:character|symbol|punctuation mark|mark|thing)\b(?P<of>[^.\n\x01]{0,40}?)"
    r" (?:is|be) an?)"
    rf" (?P<mark>{'|'.join(_ENDING_MARKS)})\b"
)


def ending_mark(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The last character by its name: "End with a question mark."."""
    for match in _ENDING_MARK.finditer(view.text):
        before = view.before(match.start())
        if ABOUT_PART.search(f"{before} {match['what'] or match['of'] or ''}"):
            yield unexpressed(match.start(), match.end(), A_PART)
            continue
        if conditional(before):
            yield unexpressed(match.start(), match.end(), CONDITIONAL)
            continue
        mark, question = _ENDING_MARKS[match["mark"]], f"a {match['mark']}"
        question = question.replace("a e", "an e")
        if negated(before):
            check = regex_check(rf"{re.escape(mark)}\s*\Z", exactly=0)
            yield required(
                match.start(), match.end(), check, f"Does the response end with something else than {question}?"
            )
        else:
            yield required(
                match.start(), match.end(), {"type": "ends", "phrase": mark}, f"Does the response end with {question}?"
            )


_PARAGRAPH_START = pattern(
    rf"""\b(?:the )?(?:paragraph (?P<n>{NUMBER})|(?P<nth>{"|".join(ORDINALS)}) paragraph)\b(?: of [a-z ]{{0,30}})?,?\s+
    (?:must|should|has to|have to|needs to|shall|will|to)?\s*(?:always )?(?:start|begin)(?:s
    |ning)?\s+with\s+(?:the\s+)?
    (?:word\s+|phrase\s+)?(?P<word>[a-z][\w'-]*)(?=\s*(?:[.,;!?\n)]|$|and\b|in\b))"""
)


def paragraph_start(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The first word of a paragraph, without quotation marks."""
    for match in _PARAGRAPH_START.finditer(view.text):
        if match["word"] not in FUNCTION_WORDS:
            paragraph = number(match["n"]) if match["n"] else ORDINALS[match["nth"]]
            word = view.prompt[slice(*match.span("word"))]
            check = {"type": "paragraph_start", "paragraph": paragraph, "word": word}
            yield required(match.start(), match.end(), check)


_REPEAT = pattern(
    r"""\b(?:repeat|copy|restate|rewrite|reproduce)\s+(?:back\s+)?(?:(?P<quoted>\x01+)|(?:(?:the|my|this|above|below
    |entire|
    whole|exact|same|full|complete|user's|original|following)\s+)*(?P<what>request|prompt|question|query|instructions?
    |message|sentence|text|task|input|words|paragraph|what i (?:said|wrote|asked))s?\b)[^.\n]{0,120}"""
)
_FIRST = pattern(
    r"""\bfirst\b|\bbefore\b|\bthen (?:give|answer|provide|respond|reply|write)|\bword[- ](?:for|by)[- ]word\b
    |\bverbatim\b
    |\bexactly\b|\bas is\b|\bwithout (?:any )?chang|\bunchanged\b"""
)


def repeats_prompt(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The request repeated first: the text above this instruction, or below it."""
    for match in _REPEAT.finditer(view.text):
        if (requirement := _repeated(view, match)) is not None:
            yield requirement
            return


def _repeated(view: PromptText, match: re.Match[str]) -> Requirement | None:
    start = view.start_of_clause(match.start())
    before = view.before(match.start())
    if not _FIRST.search(view.text[start : match.end() + 120]) or negated(before[-40:]) or conditional(before):
        return None
    question = "Does the response begin by repeating the request word for word?"
    check: Spec = {"type": "repeats_prompt"}
    if match["quoted"]:
        given = view.strings_at(match.start("quoted"))
        check["prompt"] = given.values[0] if given else None
        return required(match.start(), match.end(), check, question) if given else None
    below = re.search(r"\b(?:below|following)\b", match.group())
    names_place = below or re.search(r"\babove\b", match.group())
    if not names_place and not match["what"].startswith(("request", "prompt", "question", "query", "instruction")):
        return None
    end = view.text.find("\n\n", match.end())
    text = view.prompt[end:].strip() if (below or start == 0) and end > 0 else view.prompt[:start].strip()
    if below and not text:
        return None
    return required(match.start(), match.end(), check | ({"prompt": text} if text else {}), question)


# Parts with dividers, and "word count: 100"

_STARS = re.compile(r"(?<!\*)\*{6}(?!\*)|\b(?:6|six) asterisks?(?: symbols?)?")
_MORE_THAN_TWO = pattern(
    r"""\b(?:three|four|five|several|multiple|3|4|5)\s+(?:[a-z]+\s+){0,2}[a-z]+s\b
    |\b(?:each|every)\b(?! (?:version|response|answer) (?:must|should|has))"""
)
_SEPARATED = re.compile(r"separat[^.]*$")
_DIVIDER_LINE = re.compile(r"^[ \t]*\*{3}[ \t]*$", re.MULTILINE)
_OPEN_END = re.compile(r"\n[ \t]*(?:\.{3,}|…|etc\.?)[ \t]*(?:\n|$)")
_TWO_DIVIDED = pattern(
    r"""\bseparat\w+ (?:the|your) [a-z ]{2,40} and (?:the |your )?[a-z ]{2,40}? (?:by|with
    |using)\b[^.]{0,60}(?<!\*)\*{3}
    (?!\*)"""
)
_DIVIDED = re.compile(r"\b(?:separat|divid|delimit|split)\w*[^.]{0,60}?(?<!\*)\*{3}(?!\*)")
_PLURAL = re.compile(r"[\s-]+(?:(?!and\b|or\b|in\b|of\b|to\b)[a-z]+ ){0,2}?(?P<noun>(?!is\b|was\b|has\b)[a-z]+s)\b")
_UNITS_OF_TEXT = frozenset(
    "words sentences characters times points bullets lines paragraphs sections asterisks".split()
)


def divided(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """Two responses between six asterisks, or parts between three, by a template or in words."""
    text = view.text
    for match in _STARS.finditer(text):
        start = view.start_of_clause(match.start())
        separated = _SEPARATED.search(text, max(match.start() - 90, 0), match.start())
        if separated and not _MORE_THAN_TWO.search(text, max(start - 150, 0), match.end()):
            yield required(start, match.end(), {"type": "two_responses"})
            break
    if "***" not in view.prompt:
        return
    lines = list(_DIVIDER_LINE.finditer(text))
    check: Spec = {"type": "paragraphs", "separator": "***"}
    example = lines and re.search(r"\b(?:example|such as|e\.g\.)[^*]{0,120}$", text[: lines[0].start()])
    if lines and not example and not _OPEN_END.search(text, lines[0].start()):
        yield required(lines[0].start(), lines[-1].end(), {**check, "exactly": len(lines) + 1})
    elif two := _TWO_DIVIDED.search(text):
        yield required(two.start(), two.end(), {**check, "exactly": 2})
    elif "paragraph" not in text and (some := _DIVIDED.search(view.prompt.lower())):
        for counted_by in reversed(numbers(text[: some.start()])[-5:]):
            noun, found = _PLURAL.match(text, counted_by.end()), amount(view, counted_by)
            if some.start() - counted_by.start() < 200 and noun and not found.unclear:
                if (found.low or found.high or 0) > 1 and noun["noun"] not in _UNITS_OF_TEXT:
                    yield required(found.start, some.end(), {**check, **found.bounds})
                    return


_COUNT_OF = pattern(
    rf"""\b(?P<unit>word|character|sentence|line|paragraph)[- ](?P<what>count|limit|length|minimum|maximum
    |requirement)s?\b\s*
    (?:(?:is|of|should be|must be|has to be|to be|between|at|:|=|for your (?:response|answer)|in your response|to
    |restriction
    |set)\s*)*(?P<compared>at least|at most|exactly|under|below|over|above|less than|fewer than|more than|no more than|
    no less than|up to|about|around|approximately|within)?\s*(?:between\s+)?(?P<n>{NUMBER})
    (?:\s*(?:-|to|and)\s*(?P<m>{NUMBER}))?(?![\w%])"""
)


def count_of(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """ "Word count: 100 to 150", "word limit of 200", "a maximum word count of 50"."""
    for match in _COUNT_OF.finditer(view.text):
        before, value = view.before(match.start()), number(match["n"])
        compared, what = match["compared"], match["what"]
        if compared in ("about", "around", "approximately"):
            yield unexpressed(match.start(), match.end(), APPROXIMATE)
            continue
        if conditional(before) or each(view.after(match.start())):
            yield unexpressed(match.start(), match.end(), A_PART)
            continue
        if match["m"] and number(match["m"]) > value:
            bounds = {"at_least": value, "at_most": number(match["m"])}
        elif compared in ("under", "below", "less than", "fewer than"):
            bounds = {"at_most": value - 1}
        elif compared in ("over", "above", "more than"):
            bounds = {"at_least": value + 1}
        elif compared == "exactly":
            bounds = {"exactly": value}
        elif compared in ("at least", "no less than") or what == "minimum" or re.search(r"\bmin(?:imum)?\s*$", before):
            bounds = {"at_least": value}
        elif compared or what in ("limit", "maximum") or re.search(r"\bmax(?:imum)?\s*$", before):
            bounds = {"at_most": value}
        else:
            yield unexpressed(match.start(), match.end(), f"a {match['unit']} count alone may be approximate")
            continue
        yield counted(match.start(), match.end(), f"{match['unit']}s", bounds)
