"""Requirements in whole phrases: "in JSON", "in German", "answer with yes or no", "repeat the request".

[`FORMS`] is the table: words of which one must occur in a prompt, a pattern, and what builds the requirement.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

from checklist_rewards.generators.constraints.amounts import VALUES, amount, number, numbers
from checklist_rewards.generators.constraints.filtering import A_PART, Found
from checklist_rewards.generators.constraints.lexicon import LANGUAGES, ORDINALS
from checklist_rewards.generators.constraints.reading import Clause, Spec
from checklist_rewards.generators.constraints.rules import only_one_of, regex_check

Match = re.Match[str]


def _found(clause: Clause, match: Match, check: Spec | None, question: str = "", **others: object) -> Found:
    """A requirement about the form of the response, in any language. A verb at its start governs it."""
    start = bisect_left(clause.tokens, clause.start + match.start(), key=lambda token: token.start)
    end = bisect_left(clause.tokens, clause.start + match.end(), key=lambda token: token.start)
    verb = clause.symbols[start] in "otcb<>6" and end > start + 1
    settings: dict[str, object] = {
        "every": False,
        "counts": False,
        "first": start if verb else None,
        "verbs": "otcw<>b6vi",
        **others,
    }
    return Found(start + verb, max(end, start + 1), check, None, question, **settings)  # type: ignore[arg-type]


def language(clause: Clause) -> Iterator[Found]:
    """The language of the response: "in German", "using only the Kannada language"."""
    symbols = clause.symbols
    if symbols.count("Y") != 1 and len({clause.tokens[n].value for n, one in enumerate(symbols) if one == "Y"}) != 1:
        return
    at = symbols.index("Y")
    name = str(clause.tokens[at].value)
    end = at + 1
    if str(clause.tokens[end].value if end < len(symbols) else "") == "language":
        end += 1
    start = at
    while start and symbols[start - 1] in "aEdgL":
        start -= 1
    if re.search(r"\b(?:plain|simple) english\b", clause.text):
        return  # simple words
    only = "E" in symbols[start:at] or symbols[end : end + 1] == "E" or "a" in symbols[start:at]
    only = only or (start > 1 and symbols[start - 2] in "aE") or "no other language" in clause.text
    if symbols[start - 1 : start] not in ("i", "o", "w") or (
        str(clause.tokens[start - 1].value) not in ("in", "using", "use")
    ):
        return
    if re.match(r"[uxRrpWSC#]", symbols[end:]):
        return
    task = max(symbols.rfind("t", 0, start), symbols.rfind("5", 0, start))
    verb = str(clause.tokens[task].value) if task >= 0 else ""
    if verb in ("translate", "convert") or (
        re.search(r"[RpWQ][^,k]*$|[k,][^,k]*Q", symbols[: start - 1]) and not only
    ):
        return
    if (
        re.search(
            r"\b(?:means?|meaning|says?|called|words?|sentences?|phrases?|course|class|lessons?|books?|movies?|both"
            r"|following|literature)\b",
            clause.view.text[clause.start : clause.tokens[start].start],
        )
        and not only
    ):
        return
    if not only and "#" in symbols[:start] and "r" not in symbols[:start]:
        return
    check = {"type": "language", "language": LANGUAGES[name]}
    yield Found(
        start, end, check, None, f"Is the response in {name.capitalize()}?", counts=False, every=True, form=not only
    )


_JSON = re.compile(
    r"\b(?:a |an |the |one )?(?:valid |single |proper |strict |raw |well-formed |properly formatted |plain "
    r"|parsable |pure )*"
    r"json\b(?:[- ](?:format(?:ted)?|objects?|array|string|code|block|syntax|structure|output|only|response))*"
)
_TITLE = re.compile(
    r"\b(?:titles?|entitled|titled|name|title of [a-z ]{1,20})\b[^.\n]{0,80}?(?:double angular brackets"
    r"|double angle brackets|<<[^<>\n]{0,60}>>)"
    r"|(?:double angular brackets|double angle brackets|<<\s*title)"
)
_HEADING = re.compile(
    r"\b(?:start|begin|include|add|with|use|have|has)\b[^.\n]{0,40}?\b(?:a )?(?:markdown (?:heading|title|header)"
    r"|(?:heading|title|header) (?:in|using|with) markdown)"
)
_POSTSCRIPT = re.compile(
    r"\b(?:a |an |one )?(?:short |brief |final |funny )?(?:post-?\s?script|p\.?\s?(?:p\.?\s?)?s)\b\.?"
)
_MARKER = re.compile(r"[Pp](?<![\w.].)(?:\.\s?[Pp]\.\s?[Ss]\.?|\.\s?[Ss]\.?|[Pp][Ss]|[Ss])(?!\w)")
_MARKS = r"(?:double[- ])?(?:quotations?[- ]marks?|quotes|quote marks|quotations)"
_WRAPPED = re.compile(
    r"\b(?:wrap(?:ped)?|enclos(?:e|ed)|surround(?:ed)?|put|place|be|contained|begin and end|start and end"
    r"|encase(?:d)?)\b"
    rf"[^.;,\n]{{0,90}}?\b(?:in|with|by|within|inside|between)\s+(?:a pair of )?{_MARKS}"
    rf"|\b(?:put|place) {_MARKS} around (?:your|the) (?:entire |whole )?[a-z]+"
)
_ENTIRE = re.compile(
    r"\b(?:the (?:response|answer|output|reply)|(?:entire|whole|full|complete|your"
    r"|all of your)\s+(?:[a-z-]+\s+){0,2}[a-z]+"
    r"|everything|it)\b"
)
_BRACKETS = re.compile(r"\bplace-?holders?\b[^.\n]{0,80}?\b(?:square )?brackets\b")
_OTHER_FORMAT = re.compile(
    r"\b(?:in|as|into|using)\s+(?:a |an |the |valid )?(?P<a>ya?ml|xml|csv|html|latex|toml)\b(?: format| only)"
)


def _json(clause: Clause, match: Match) -> Found:
    return _found(clause, match, {"type": "json"})


def _title(clause: Clause, match: Match) -> Found:
    found = _found(
        clause, match, {"type": "title", "style": "angled"}, "Does the response have a title in double angle brackets?"
    )
    return found


def _heading(clause: Clause, match: Match) -> Found:
    denied = regex_check(r"\A\s*#{1,6}[ \t]+\S", exactly=0)
    found = _found(
        clause, match, {"type": "title", "style": "heading"}, "Does the response start with a Markdown heading?"
    )
    return found._replace(denied=denied, denied_question="Does the response start without a Markdown heading?")


def _postscript(clause: Clause, match: Match) -> Found | None:
    start, end = clause.start + match.start(), clause.start + match.end()
    if any(at in clause.view.quoted for at in range(end, end + 40)):
        return None
    if marker := _MARKER.search(clause.view.prompt, start, end + 200):
        found = _found(clause, match, {"type": "postscript", "marker": marker.group()}, verbs="otiw<")
        last = found.end
        while last < len(clause.tokens) and clause.tokens[last].start < marker.end():
            last += 1
        return found._replace(end=len(clause.tokens) if last > found.end else last, last=last)
    return _found(
        clause,
        match,
        regex_check(r"(?im)^\W*P\.?\s?S\b", at_least=1),
        "Does the response have a postscript?",
        verbs="otiw",
    )


def _wrapped(clause: Clause, match: Match) -> Found | None:
    if not _ENTIRE.search(clause.text[: match.end()]) or re.search(
        r"\b(?:title|line|sentence|paragraph|each|every|word|name|not|never|book|story'?s)\b", match.group()
    ):
        return None
    return _found(clause, match, {"type": "quoted"}, "Is the whole response in quotation marks?")


def _brackets(clause: Clause, match: Match) -> Found:
    return _found(clause, match, {"type": "placeholders", "at_least": 1})


def _other_format(clause: Clause, match: Match) -> Found:
    return _found(clause, match, None, reason=f"no check for {match['a'].upper()}")


_YES_NO = re.compile(
    r"\b(?:answer|respond|reply|say|output|return)\b[^.;\n]{0,40}?(?P<only>\bonly\b|\bjust\b|\bsimply\b|\bsingle\b"
    r"|\bone word\b)?"
    r"[^.;\n]{0,30}?\b(?:a )?(?P<words>yes or no|yes/no|true or false|true/false)\b(?P<after> only)?"
)


def _yes_or_no(clause: Clause, match: Match) -> Found | None:
    if re.search(r"\bthan\b|\bto (?:the|my|his)\b", match.group()) or re.match(
        r" to (?!this|the question)|[^.:?]* and ", clause.text[match.end() :]
    ):
        return None
    words = ("true", "false") if "true" in match["words"] else ("yes", "no")
    only = match["only"] or match["after"]
    check = regex_check(rf"(?i)\A\W*(?:{'|'.join(words)})" + (r"\W*\Z" if only else r"\b"), exactly=1)
    question = f"Does the response {'consist only of' if only else 'start with'} {' or '.join(words)}?"
    return _found(clause, match, check, question, every=True, counts=True)


_SAYS = r"(?:answer|respond|reply|output|return|print|say|state|give|provide|write)"
_ADVERB = r"(?:(?:the|a|an|your|one|single|final|correct|numeric(?:al)?|whole|resulting|option|answer)\s+)*"
_KIND = r"(?:number|integer|digit|numeral|numerical value|letter)s?"
_ONE_THING = re.compile(
    rf"\b{_SAYS}\b(?:\s+(?:me|back|with|your answer|the answer|as|in))*\s+(?:only|just|nothing but|solely"
    rf"|simply)\s+(?:with\s+|as\s+)?"
    rf"{_ADVERB}(?P<a>{_KIND})(?:\s+of (?:the|your) (?:correct |right )?(?:option|answer"
    rf"|choice))?(?=\s*(?:[.,;:!?\n]|$|and nothing))"
    rf"|\b(?:only|just)\s+{_SAYS}\s+(?:me\s+)?(?:with\s+)?{_ADVERB}(?P<b>{_KIND})(?=\s*(?:[.,;:!?\n]|$|and nothing))"
    rf"|\b{_SAYS}\b(?:\s+(?:with|as|your answer as|the answer as))*\s+{_ADVERB}(?P<c>{_KIND})\s+(?:only\b|alone\b"
    rf"|and nothing (?:else|more)\b)"
)
_KINDS = {
    "l": (r"\A\W*[A-Za-z]\W*\Z", "a single letter"),
    "d": (r"\A\W*\d\W*\Z", "a single digit"),
    "i": (r"\A\s*[-+−]?\d[\d,]*\.?\s*\Z", "a whole number"),
    "n": (r"\A\s*[-+−]?[$€£]?\d[\d,. ]*%?\.?\s*\Z", "a number"),
}


def _one_thing(clause: Clause, match: Match) -> Found:
    """A number or a letter and nothing else: "Respond with the number only."."""
    expression, thing = _KINDS[(match["a"] or match["b"] or match["c"])[0]]
    return _found(
        clause, match, regex_check(expression, exactly=1), f"Does the response consist only of {thing}?", counts=True
    )


_LABELS = re.compile(
    r"\b(?P<verb>answer|respond|reply|choose|select|pick|classify|label|rate|categori[sz]e|output|return|say)\b"
    r"(?P<way>[^.:;\n]{0,60}?)(?:\b(?:exactly |only )?one of(?: the| these)?(?: following)?(?: [a-z]+)?:?\s+"
    r"|\bonly (?:with|as)\s+|\bas (?:either\s+)?|\bwith either\s+|\beither\s+)"
    r"(?P<list>[a-z0-9][\w-]*(?:(?:\s*,\s*|\s*/\s*)[a-z0-9][\w-]*){0,8}?(?:\s*,)?(?:\s+(?:or|and)\s+|\s*,\s*)"
    r"[a-z0-9][\w-]*)(?=\s*(?:[.;:!?\n)]|$))"
)
_NO_LABELS = frozenset("yes no true false it this that them these those".split())


def _labels(clause: Clause, match: Match) -> Found | None:
    """One of several words without quotation marks: "Answer with one of the following: positive, negative."."""
    said, start = match.group(), clause.start + match.start("list")
    if (
        " as " in said
        and "either" not in said
        and match["verb"] not in ("classify", "label", "categorize", "categorise", "rate")
    ):
        return None
    words = tuple(
        re.split(
            r"\s*(?:,\s*(?:or|and)\s+|,\s*|/|\s(?:or|and)\s+)\s*",
            clause.view.prompt[start : clause.start + match.end("list")].strip(),
        )
    )
    if len(words) < 2 or any(not word or word.lower() in _NO_LABELS or word.lower() in LANGUAGES for word in words):
        return None
    if match["verb"] in ("choose", "select", "pick") and clause.view.text[clause.start + match.end() :].strip(
        " .!)\n"
    ):
        return None  # the choice may be the topic of a text
    named = f"{', '.join(words[:-1])} or {words[-1]}"
    found = _found(
        clause,
        match,
        {"type": "keywords", "words": list(words), "need": "any"},
        f"Does the response contain one of the answers {named}?",
        every=True,
    )
    if "only" in said:
        only = only_one_of(0, 0, words, named)
        found = found._replace(check=only.check, question=only.question)
    return found


_UNQUOTED_END = re.compile(
    r"(?:\b(?:end|finish|conclude|close)(?:ing)?\b[^.\n\x01]{0,60}?\bwith(?: (?:the|this|these))?(?:(?: (?:exact "
    r"|following |very |final )*"
    r"(?:phrase|sentence|words?|line|text|statement|question))?:|\s+(?:the |this )?exact (?:phrase|sentence|words?"
    r"|line|text))"
    r"|\b(?:very end|last (?:line|sentence|words)) of your (?:entire |whole )?(?:response|answer|reply|output)"
    r"(?: should| must) (?:be|read)(?: exactly)?(?: like)?:)(?!\s+of\b)\s*(?P<phrase>[^\x01\n]+)"
)


def _unquoted_end(clause: Clause, match: Match) -> Found | None:
    """A last sentence without quotation marks: "End with this exact phrase: See you soon."."""
    start, prompt = clause.start + match.start("phrase"), clause.view.prompt
    line = prompt.find("\n", start)
    phrase = prompt[start : line if line >= 0 else len(prompt)][:300]
    if stop := re.search(r"[.!?](?=\s|$)|,? and (?:no|do not|nothing|don't)", phrase):
        phrase = phrase[: stop.end() if stop.group()[0] in ".!?" else stop.start()]
    phrase = phrase.strip()
    if (
        not phrase
        or phrase[0] in "\"'“"
        or re.search(r"\b(?:unless|except)\b|, sa(?:ys|id)\b|\bin (?:japanese|german|french)\W*$", phrase.lower())
    ):
        return None
    found = _found(clause, match, {"type": "ends", "phrase": phrase}, f'Does the response end with "{phrase}"?')
    return found._replace(end=len(clause.tokens))


_ENDING_MARKS = {
    "question mark": "?", "exclamation mark": "!", "exclamation point": "!", "period": ".", "full stop": ".",
    "colon": ":", "semicolon": ";",
}  # fmt: skip
_ENDING_MARK = re.compile(
    r"\b(?:(?:end|finish|conclude|close)(?:s|ing)?(?: (?:your|the|this|it|its|my|each|every)(?: [a-z-]+){0,3})?\s"
    r"(?:with|in|on) (?:an?|one|exactly one|a single)"
    r"|(?:very )?(?:last|final) (?:character|symbol|punctuation mark|mark|thing)\b[^.\n\x01]{0,40}? (?:is|be) an?)\s"
    rf"(?P<mark>{'|'.join(_ENDING_MARKS)})\b"
)


def _ending_mark(clause: Clause, match: Match) -> Found:
    """The last character by its name: "End with a question mark."."""
    mark, name = _ENDING_MARKS[match["mark"]], f"a {match['mark']}".replace("a e", "an e")
    found = _found(
        clause, match, {"type": "ends", "phrase": mark}, f"Does the response end with {name}?", every=True, counts=True
    )
    if re.search(r"\b(?:each|every|title|paragraph|sentence|line|letter's|dialogue|stanza)\b", match.group()):
        return found._replace(check=None, reason=A_PART)
    denied = regex_check(rf"{re.escape(mark)}\s*\Z", exactly=0)
    return found._replace(
        denied=denied,
        denied_question=f"Does the response end with something else than {name}?",
        subject="last" in match.group() or "final" in match.group(),
    )


_NTH = rf"(?:paragraph (?P<n>\d+|{'|'.join(VALUES)})|(?P<nth>{'|'.join(ORDINALS)}) paragraph)"
_PARAGRAPH_START = re.compile(
    rf"(?:\b(?:the )?{_NTH}\b(?: of [a-z ]{{0,30}})?,?\s+(?:must|should|has to|have to|needs to|shall|will"
    rf"|to)?\s*(?:always )?(?:start|begin)(?:s|ning)?"
    rf"|\b(?:start|begin) (?:the )?{_NTH.replace('<n>', '<n2>').replace('<nth>', '<nth2>')})"
    r"\s+with\s+(?:the\s+)?(?:word\s+|phrase\s+)?"
    r"(?P<word>\x01+|[a-z][\w'-]*)(?=\s*(?:[.,;!?\n)]|$|and\b|in\b))"
)


def _paragraph_start(clause: Clause, match: Match) -> Found | None:
    n, nth = match["n"] or match["n2"], match["nth"] or match["nth2"]
    at = clause.start + match.start("word")
    given = clause.view.quoted.get(at)
    if (given and (len(given.values) > 1 or " " in given.values[0])) or match["word"] in ("a", "the", "an"):
        return None
    word = given.values[0] if given else clause.view.prompt[at : clause.start + match.end("word")]
    check = {"type": "paragraph_start", "paragraph": number(n) if n else ORDINALS[nth], "word": word}
    found = _found(clause, match, check, counts=True)
    if match["n"] or match["nth"]:
        return found._replace(subject=True)
    return found


_REPEAT = re.compile(
    r"\b(?:repeat|copy|restate|rewrite|reproduce)\s+(?:back\s+)?(?:(?P<quoted>\x01+)|(?:(?:the|my|this|above|below"
    r"|entire|whole|exact|same"
    r"|full|complete|user's|original|following)\s+)*(?P<what>request|prompt|question|query|instructions?|message"
    r"|sentence|text|task|input"
    r"|words|paragraph|what i (?:said|wrote|asked))s?\b)[^.\n]{0,120}"
)
_FIRST = re.compile(
    r"\bfirst\b|\bbefore\b|\bthen (?:give|answer|provide|respond|reply|write)|\bword[- ](?:for|by)[- ]word\b"
    r"|\bverbatim\b|\bexactly\b"
    r"|\bas is\b|\bwithout (?:any )?chang|\bunchanged\b"
)


def _repeats_prompt(clause: Clause, match: Match) -> Found | None:
    """The request repeated first: the text above this instruction, or below it."""
    view, start, end = clause.view, clause.start, clause.start + match.end()
    if not _FIRST.search(view.text[start : end + 120]) or re.match(
        r":[ \t]*[^\s]", clause.text[match.end("what") :] if match["what"] else ""
    ):
        return None
    found = _found(
        clause, match, {"type": "repeats_prompt"}, "Does the response begin by repeating the request word for word?"
    )
    verb = found.start - (found.first is not None)
    end_of = bisect_left(
        clause.tokens, start + match.end("what" if match["what"] else "quoted"), key=lambda token: token.start
    )
    found = found._replace(end=len(clause.tokens), last=end_of)
    if re.search(r"[jqze!]|h.*[ot]", clause.symbols[:verb].replace("e", "")) or re.search(
        r"n[a]*$", clause.symbols[:verb]
    ):
        return None
    check: Spec = {"type": "repeats_prompt"}
    if match["quoted"]:
        given = view.quoted.get(start + match.start("quoted"))
        return found._replace(check={**check, "prompt": given.values[0]}) if given else None
    below = re.search(r"\b(?:below|following)\b", match.group())
    if (
        not below
        and "above" not in match.group()
        and not match["what"].startswith(("request", "prompt", "question", "query", "instruction"))
    ):
        return None
    gap = view.text.find("\n\n", end) if below or start == 0 else -1
    text = view.prompt[gap:].strip() if gap > 0 else view.prompt[:start].strip()
    if below and not text:
        return None
    return found._replace(check=check | ({"prompt": text} if text else {}))


_STARS = re.compile(
    r"(?P<separated>\bseparat[^.\n]{0,90}?)?(?:(?<!\*)\*{6}(?!\*)|\b(?:6"
    r"|six) asterisks?(?: symbols?)?(?:\W{1,3}\*{6})?)"
)
_MORE_THAN_TWO = re.compile(
    r"\b(?:three|four|five|several|multiple|3|4|5)\s+(?:[a-z]+\s+){0,2}[a-z]+s\b|\b(?:each|every)\b(?! (?:version"
    r"|response|answer) (?:must|should|has))"
)
_PARAGRAPH = re.compile("paragraph")
_DIVIDED = re.compile(r"\b(?:separat|divid|delimit|split)\w*[^.]{0,60}?(?<!\*)\*{3}(?!\*)")
_PLURAL = re.compile(r"[\s-]+(?:(?!and\b|or\b|in\b|of\b|to\b)[a-z]+ ){0,2}?(?P<noun>(?!is\b|was\b|has\b)[a-z]+s)\b")
_UNITS = frozenset("words sentences characters times points bullets lines paragraphs sections asterisks".split())


def _two_responses(clause: Clause, match: Match) -> Found | None:
    """Two responses between six asterisks."""
    text, at = clause.view.text, clause.start + match.start()
    if not (match["separated"] or re.search(r"separat[^.]*$", text[max(at - 90, 0) : at])):
        return None
    if _MORE_THAN_TWO.search(text, max(clause.start - 150, 0), clause.start + match.end()):
        return None
    return _found(clause, match, {"type": "two_responses"})


def _divided(clause: Clause, match: Match) -> Found | None:
    """Parts between three asterisks: "two poems, separated by ***"."""
    text = clause.view.text
    if clause.view.search(_PARAGRAPH):
        return None
    head = text[max(clause.start + match.start() - 200, 0) : clause.start + match.start()]
    for given in reversed(numbers(head)[-5:]):
        noun, n = _PLURAL.match(head, given.end()), number(given.group())
        if noun and n > 1 and noun["noun"] not in _UNITS:
            return _found(clause, match, {"type": "paragraphs", "separator": "***", **amount("", n).bounds})
    return None


FORMS: tuple[tuple[frozenset[str], re.Pattern[str], Callable[[Clause, Match], Found | None]], ...] = tuple(
    (frozenset(words.split()), expression, build)
    for words, expression, build in (
        ("json", _JSON, _json),
        ("title angular angle", _TITLE, _title),
        ("markdown", _HEADING, _heading),
        ("postscript script p ps pps", _POSTSCRIPT, _postscript),
        ("quotes quotation quotations quote", _WRAPPED, _wrapped),
        ("placeholder placeholders holders", _BRACKETS, _brackets),
        ("yml yaml xml csv html latex toml", _OTHER_FORMAT, _other_format),
        ("yes true", _YES_NO, _yes_or_no),
        ("one only either classify label categorize categorise rate", _LABELS, _labels),
        ("number integer digit numeral numerical letter", _ONE_THING, _one_thing),
        ("mark point period stop colon semicolon", _ENDING_MARK, _ending_mark),
        ("end ending finish conclude close last", _UNQUOTED_END, _unquoted_end),
        ("paragraph", _PARAGRAPH_START, _paragraph_start),
        ("repeat copy restate rewrite reproduce", _REPEAT, _repeats_prompt),
        ("asterisk asterisks separate separated", _STARS, _two_responses),
        ("separate separated divided divide split delimited", _DIVIDED, _divided),
    )
)
"""The phrases, in the order in which they are read."""


def forms(clause: Clause) -> Iterator[Found]:
    """The requirements that whole phrases of a clause state."""
    text = clause.text
    if "Y" in clause.symbols:
        yield from language(clause)
    for words, expression, build in FORMS:
        if not words.isdisjoint(clause.words):
            for match in expression.finditer(text):
                if (found := build(clause, match)) is not None:
                    yield found
