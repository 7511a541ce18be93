"""Whether a clause asks for a thing that a rule found in it: an allow list for the words before it.

[`governing`] reads the words from the thing to the left. Words that may stand between an order and its object are
skipped ("your answer in exactly"). Then it must meet one of these, or the clause asks for nothing that is understood:

- an order ("use", "do not mention", "make sure to include", "you should write"),
- what the response must do ("your answer should", "my bio is limited to", "the poem must not"),
- a task with its topic and a preposition ("write a poem about the sea in"),
- the start of the clause or a comma, if an order stands before it ("write a poem, at most").

What stands before that must be another order or a main clause ("my boss is busy, so"): no condition, no report.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[\w'+/*<>\x01\x02]+|[,:;()\n-]")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NOUNS = (
    "length total content response answer reply output essay text story poem letter email mail article blog "
    "post summary description message review speech script song report content writing tweet caption rap haiku "
    "limerick joke riddle list note proposal resume cv explanation translation document piece submission completion "
    "dialogue conversation monologue memo ad slogan product advert advertisement pitch bio biography outline plan "
    "guide recipe narrative passage composition analysis itinerary lyrics announcement rubric quiz template "
    "brochure statement verse thread flyer invitation card toast obituary abstract poster blurb thing newsletter "
    "intro notice fable tale critique rant motto tagline instructions instruction paper rewrite play sonnet ode "
    "version result versions responses options sentence sentences introduction everything task profile complaint "
    "comment label press release contract request"
)
RESPONSE = _set(_NOUNS)
"""Nouns that stand for the response as a whole."""
_IT = _set("it this that which there you everything")
DETERMINERS = _set(
    "a an the your my our this that these those all entire whole full complete final total overall of its any each "
    "every yours"
)
_POLITE = _set(
    "please also then now finally additionally lastly kindly again just only always first second next instead and "
    "but so or however plus note simply really very ok okay thanks hi hello remember further furthermore moreover "
    "both explicitly either - ( try strictly let's lets particular absolutely yes together perhaps"
)
_NOT = _set(
    "not don't dont do never avoid avoids avoiding without no refrain from doesn't does cannot can't mustn't "
    "shouldn't isn't aren't nor neither exclude excluding omit abstain free nothing leave leaving out skip forbid"
)
ORDERS = _set(
    "use using open close answer respond reply write include mention contain containing including start begin end "
    "finish conclude limit keep say repeat add put wrap make making have having give provide create highlight "
    "italicize capitalize organize structure format separate divide return output produce insert incorporate weave "
    "restrict cap stick stay summarize summarise list mark employ utilize feature featuring appear be bold "
    "underline compose draft generate describe explain tell keeping limiting restricted limited writing show need "
    "sprinkle place deliver aim go ensure break split speak confine hold state get cover work exceed ending "
    "starting let forget fail reference condense craft enclose surround consist render reproduce copy restate "
    "translate rewrite"
)
_TASKS = _set(
    "write give create compose draft describe explain tell summarize summarise generate make provide come produce "
    "develop design rewrite rephrase translate suggest discuss compare critique answer respond reply show outline "
    "expand elaborate complete continue craft prepare need want convert turn plan sing help list paraphrase edit "
    "improve shorten analyze analyse argue do pretend act propose brainstorm finish present state define introduce "
    "recommend review write- report solve take share advertise formulate build organize find rework simplify reword "
    "sketch pen narrate talk would i'd i'm i name can could say extend evaluate assess persuade teach classify choose "
    "pick condense put type rank identify return output format"
)
_MODAL = _set(
    "should must shall will may can could needs need cannot can't mustn't shouldn't ought has have is are contains "
    "includes uses ends starts begins mentions features reads appears doesn't isn't does avoids occurs"
)
_STATED = _set(
    "has have is are contains includes uses ends starts begins mentions features reads appears doesn't isn't does "
    "avoids occurs"
)
"""Verbs that only say what a text is, if no request stands before them."""
_FILL = (
    DETERMINERS
    | RESPONSE
    | _set(
        "it this me us him them back in on with at to as into for under within using over between be been written "
        "made composed limited kept restricted long length size limit count consisting up of form style format "
        "markdown only just exactly precisely strictly some single short brief concise clear entirely completely "
        "fully exclusively different no not total english following least words word number and or most more than "
        "less fewer such each every include including contain usage containing having mention the a one two main "
        "simple text letter letters list set series also phrase keyword keywords - ( approximately around maximum "
        "max min minimum below above well split divided structured organized any combined wrapped bulleted numbered "
        "title sentence sentences paragraph paragraphs bullet points capital lowercase uppercase caps case lower "
        "upper separated followed represented formatted indicated small out name names line valid proper raw plain "
        "answer own three four five six seven eight ten"
    )
)
_LINKS = _set(
    "in with of using without as into to for under within containing that which including between over no excluding "
    "omitting having wrapped formatted entirely written separated"
)
_STARTS = _set("in with of using without as into to under within only entirely wrapped written separated divided")
_CONDITION = _set(
    "if when whenever unless whether suppose supposing assuming provided until imagine case picture according"
)
REPORTS = _set(
    "said says say told tells asked asks asking telling taught saying claims claimed believes thinks wants wanted "
    "wrote heard argues argued requested requests states insists insisted expects requires required requiring "
    "forbids demands ordered accepts allowed supposed vowed asserts reminds remind reminding"
)
_TOLD = (
    REPORTS
    | _CONDITION
    | _set(
        "contain must should shall may might could can cannot can't would wouldn't have has had is was were are "
        "uses used ends starts begins contains writes answers responds replies speaks speak spoken spell need needs "
        "never always don't doesn't won't not nobody ways reasons tips advice i we they he she him her though "
        "although however because than checks check rejects function script program code regex prints print "
        "validate return returns learn learning learns try tries trying means mean mentions mentioning read reads "
        "do does did examples instances called titled make makes tell ask"
    )
) - _set("have is are")
_HOW = _set("how ways why reasons tips advice means whether")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, with its commas, colons and brackets."""
    return _WORD.findall((_ASIDE.sub("", text) if "(" in text else text).replace("e-mail", "email"))


_ASIDE = re.compile(r"\([^()]*\)")
_JOIN = _set("and but so then or please - (")
_ENDS = _set(", : ; ( ) - s") | {"\n"}  # "s" ends "P.S."


def governed(before: str, thing: str, own: bool, form: bool) -> bool:
    """Whether the words before a thing ask for it, or forbid it.

    With `own`, the thing has a verb of its own. With `form`, it is the form of the text that is asked for.
    """
    words = words_of(before)
    if words and words[0] in ("is", "does", "do", "are", "has"):  # a question as a statement, of a written checklist
        return all(word in _FILL or word in ORDERS or word in _NOT or word in _MODAL for word in words[1:])
    if ":" in words and _given(words[: words.index(":")]):
        return False
    first = _WORD.match(thing.lstrip())
    if first and (first.group() in ORDERS or first.group() in _STARTS or first.group() in _STATED):
        words.append(first.group())
    return governing(words, own, form)


def governing(words: list[str], own: bool = False, form: bool = False) -> bool:
    """Whether some words ask for what follows them; see [`governed`]."""
    at = len(words)
    while at:
        word = words[at - 1]
        if word in ORDERS and _order(words, at - 1):
            return not _of_another(words[at - 1 :], form)
        if word in _MODAL and _subject(words, at - 1):
            return True
        if word in _SURE and _sure(words, at):
            return True
        if word in _FILL or word in _NOT or word in _POLITE or word.isdigit():
            if word == "such" and words[at : at + 1] == ["as"]:
                return False  # an example
            at -= 1
            continue
        break
    return _bare(words, own) or _topic(words, at, form)


def _of_another(words: list[str], form: bool) -> bool:
    """Whether what follows some words belongs to another text or to a part of one: "a poem about a book with"."""
    for at in range(len(words) - 1, 0, -1):
        word, noun = words[at], words[at - 1]
        if word in _BELONGS or (form and word == "in"):
            if noun in UNITS and word in ("with", "of", "that"):
                return words[at - 2] in DETERMINERS
            if noun in _WRITTEN or noun in RESPONSE or (noun[-1] == "s" and noun[:-1] in _WRITTEN | RESPONSE):
                return _topic_of(words[: at - 1], form)
        if word not in _FILL and word not in _NOT:
            return False
    return False


def _topic_of(words: list[str], form: bool) -> bool:
    """Whether the noun after some words is what a text is about: "write a poem about a", "describe a"."""
    definite = False
    for word, previous in zip(reversed(words[-4:]), reversed(["", *words][-5:-1]), strict=True):
        if word == "of" and previous in _KINDS:
            return False
        if word in _SHOWS or word in _MATERIAL or word in _PREPOSITIONS:
            return not definite or (form and word in _SHOWS)
        if word in ORDERS or word in RESPONSE or word in _ENDS:
            return False
        definite = definite or word in _OURS
    return False


_MATERIAL = _set(
    "shorten rewrite summarize summarise edit correct translate improve proofread expand find rephrase review"
)
_KINDS = _set("form format style kind type shape piece")
_BELONGS = _set("with without of that which containing")
_PREPOSITIONS = _set("about on describing regarding of like from")
_SHOWS = _set("describe discuss explain compare analyze analyse evaluate list name suggest find")
_WRITTEN = _set(
    "keyboard keypad typewriter language alphabet font website web password sign logo country book novel page "
    "tattoo label song film movie newspaper magazine law treaty contract form file menu name word headline banner "
    "plaque inscription manuscript diary spell prayer test exam class course lesson blog journal paper text term "
    "title"
)
"""Nouns, besides those for the response, that can have words, letters or a language of their own."""


def _opening(words: list[str], at: int) -> int:
    """Where an order that stands at `at` begins, with its polite words and its negation."""
    while at and (words[at - 1] in _POLITE or words[at - 1] in _NOT):
        at -= 1
    return at


def _order(words: list[str], at: int) -> bool:
    """Whether a verb at `at` is an order: after nothing but polite words, "make sure to", "you should"."""
    start = _opening(words, at)
    if start == 0 or words[start - 1] in _ENDS or words[start] in _JOIN:
        lead = words[:start]
        if start and words[start - 1] == ":" and not _RULES.isdisjoint(lead):
            return False
        return _main(lead, joined=start < at and words[start] in ("and", "or", "but"))
    if _place(words[:start]):
        return True
    last = words[start - 1]
    if start < at and (last in RESPONSE or last in _IT) and words[start] in _MODAL:
        return _subject(words, start)
    if last == "you" and words[start - 2 : start - 1] == ["that"] and _SURE & set(words[: start - 2]):
        return True
    if last in _MODAL and _subject(words, start - 1):
        return True
    if last == "you" or last == "to":
        if (
            start > 1
            and words[start - 2] in _SURE
            and (last == "you" or words[start - 2] not in ("need", "want", "like", "have"))
        ):
            return _sure(words, start - 1)
        if start > 1 and last == "you" and words[start - 2] in ("can", "could", "would", "will"):
            return True
        if last == "to" and start > 2 and words[start - 2] == "you" and words[start - 3] in _SURE:
            return _sure(words, start - 2)
        if last == "to" and start > 1 and words[start - 2] in ("has", "have", "need", "needs", "is", "are", "ought"):
            ours = words[at] in ("mention", "include") and words[0] in ("we", "i", "our") and start < 6
            return ours or _subject(words, start - 2)
        if last == "to" and words[start - 2 : start - 1] in (["allowed"], ["permitted"]):
            you = next((n for n in range(start - 1, -1, -1) if words[n] == "you"), None)
            return you is not None and bool(_NOT & set(words[you:start])) and _opening(words, you) == 0
        return (
            last == "to"
            and words[start - 2] in ("markdown", "syntax", "forget", "fail")
            and governing(words[: start - 1])
        )
    return last in _SURE and _sure(words, start)


_RULES = _set("instructions rules guidelines reminder sign notice prompt policy")
"""Texts that consist of orders: "Write instructions for students: use"."""
_PLACES = DETERMINERS | RESPONSE | _set("end start beginning top bottom of very")


def _place(words: list[str]) -> bool:
    """Whether some words are a place in the response: "at the end of your answer"."""
    return words[0] in ("at", "in") and all(word in _PLACES for word in words[1:])


_SURE = _set("sure ensure ensuring careful certain need want like remember try supposed that have expect")
"""Words of a request for what follows: "make sure that", "i want"."""
_REQUEST = _set("make making be i we i'd we'd would that sure you are aren't not must should it us")


def _sure(words: list[str], at: int) -> bool:
    """Whether the words before `at` are a request for what follows: "make sure to", "i want you to"."""
    start = at
    while start and (words[start - 1] in _SURE or words[start - 1] in _REQUEST or words[start - 1] in _POLITE):
        start -= 1
    asked = words[start:at]
    if not ({"sure", "ensure", "ensuring", "careful", "certain", "remember", "try"} & set(asked)) and not (
        {"i", "we", "i'd", "we'd", "you"} & set(asked) and {"want", "need", "like", "expect", "supposed"} & set(asked)
    ):
        return False
    return start == 0 or words[start - 1] in _ENDS or bool(asked and asked[0] in _POLITE)


def _subject(words: list[str], at: int) -> bool:
    """Whether the response is the subject of the verb at `at`: "your answer should", "it must"."""
    stated = words[at] in _STATED and words[at + 1 : at + 2] not in (["to"], ["limited"], ["a"])
    start = _opening(words, at)
    if start < at and words[start] in ("and", "but") or (start and words[start - 1] == ","):
        return _main(words[:start], joined=False) and _heads(words[:start])
    if not start:
        return False
    noun = words[start - 1]
    if noun in ("that", "which") and start > 1:
        return words[start - 2] in ("so", "such") or (
            _object(words[: start - 1]) and not _of_another(words[:start], False)
        )
    tail = start
    while tail and words[tail - 1] in _TAIL:
        tail -= 1
    if tail and words[tail - 1] in RESPONSE:
        start, noun = tail, words[tail - 1]
    if noun not in _IT and noun not in RESPONSE:
        return False
    end, start = start, start - 1
    while start and words[start - 1] in DETERMINERS | RESPONSE:
        start -= 1
    if noun not in UNITS and words[start] not in DETERMINERS and not stated:
        for first in range(max(start - 2, 1), start):
            if words[first - 1] in _OURS and all(map(_plain, words[first:start])):
                start = first - 1
                break
    if start < end and words[start] in ("a", "an"):
        return False
    start = _opening(words, start)
    if (
        start
        and words[start - 1] in _SURE
        and (_sure(words, start) or words[start - 2 : start - 1] in (["so"], ["such"]))
    ):
        return True
    if stated:
        return False
    if start == 0 or words[start - 1] in _ENDS or words[start] in _JOIN:
        return _main(words[:start], joined=start < at and words[start] in ("and", "or"))
    return False


_OURS = _set("the your my our this")
_TAIL = _set("to this that question request prompt you give write provide send create return produce itself here")


def _plain(word: str) -> bool:
    """Whether a word can be an adjective or a noun before a noun."""
    return word.isalpha() and word not in _TOLD and word not in _POLITE and word not in _ABOUT and word not in _LINKS


def _object(words: list[str]) -> bool:
    """Whether a relative clause after some words is about what they ask for: "write a short poem about rain"."""
    start = _opening_task(words)
    task = words[start] if start < len(words) else ""
    nouns = [word for word in words[start + 1 :] if word in RESPONSE]
    if (
        task in _LISTS
        or (task not in _TASKS and not {"want", "need", "like"} & set(words[:start]))
        or len(nouns) != 1
        or task in _MATERIAL
        or any(word in _TOLD for word in words[start + 1 :])
    ):
        return False
    return "the" not in words[start + 1 : words.index(nouns[0], start + 1)]


def _opening_task(words: list[str]) -> int:
    """Where the task of a clause begins."""
    start = 0
    while start < len(words) and (words[start] in _POLITE or words[start] in _REQUESTS):
        start += 1
    return start


_REQUESTS = _set("can could would will you i we i'd i'm want need like expect to")


def _main(lead: list[str], joined: bool) -> bool:
    """Whether the words before a clause leave it a main clause, which an order can be."""
    told = set(lead)
    if told & _CONDITION:
        return False
    return not (joined and told & (REPORTS | _HOW) and "to" in told)


_GIVEN = _set(
    "explain translate summarize summarise discuss interpret analyze analyse rewrite correct edit improve review"
)
_TEXTS = _set(
    "following rule instruction request prompt order requirement command advice guideline memo message rules "
    "instructions guidelines text sentence"
)


_SPEECH = [[verb] for verb in (*REPORTS, "hears", "reads", "was", "were")]


def _given(lead: list[str]) -> bool:
    """Whether the words before a colon introduce a text: "explain this rule:", "a sign reads:"."""
    told = set(lead)
    if told & _set("proofread paraphrase comment quote") or told & {"rules", "guidelines"} and "for" in told:
        return True
    about = lead[-3:-2] in (["on"], ["about"], ["of"]) and lead[-2] in DETERMINERS and lead[-1] in _TEXTS
    return about or lead[-1:] in _SPEECH or bool(told & _GIVEN and told & _TEXTS)


def _heads(words: list[str]) -> bool:
    """Whether some words begin with an order or a task, or say what the response must do."""
    start = 0
    while start < len(words) and (words[start] in _POLITE or words[start] in _NOT or words[start] in _ENDS):
        start += 1
    if start == len(words) or words[start] in _TASKS or words[start] in ORDERS or words[start - 1 : start] == ["no"]:
        return True
    return any(word in _MODAL and _subject(words, n) for n, word in enumerate(words) if n > start)


def _bare(words: list[str], own: bool) -> bool:
    """Whether a thing stands alone at the start of the clause, or after a comma behind an order."""
    at = len(words)
    while at:
        word = words[at - 1]
        if word in _ENDS or word in _JOIN:
            lead, joined = words[: at - 1], word in ("and", "or", "but")
            return _main(words[:at], joined) and (own or (_heads(lead) and not _of_list(lead) and not _to_write(lead)))
        if word not in _POLITE and word not in _NOT and word not in _FILL:
            return False
        at -= 1
    return True


_DONE = _set("make get go keep create start put split break cover hold have separate")


def taught(before: str, thing: str) -> bool:
    """Whether a clause asks how a text is written: "explain how to answer in", not "explain how to boil an egg in"."""
    words = words_of(before) if "how" in before else []
    if "how" not in words:
        return False
    at = words.index("how")
    if words[at + 1 : at + 2] != ["to"]:
        return False
    if len(words) == at + 2:
        return True
    verb, other = [*words, *words_of(thing), ""][at + 2 : at + 4]
    known = verb in ORDERS or verb in _FILL or verb in _NOT or verb in _POLITE or verb in _TASKS or verb.isdigit()
    return (known and verb not in _DONE) or other in _SURE or verb == "you"


def _to_write(words: list[str]) -> bool:
    """Whether some words speak of writing, as "explain how to answer" does."""
    pairs = zip(words, words[1:], strict=False)
    return any(word == "to" and (other in _TEXT_TASKS or other in _TEXT_VERBS) for word, other in pairs)


def _of_list(words: list[str]) -> bool:
    """Whether some words ask for a list of things that have something: "list words that contain"."""
    start = _opening_task(words)
    return start < len(words) and words[start] in _LISTS and bool({"that", "of", "with"} & set(words))


_ABOUT = _set("about on describing regarding for called titled from like")


def _topic(words: list[str], at: int, form: bool) -> bool:
    """Whether a task with a topic stands before a preposition that leads to the thing."""
    filler = words[at:]
    if not any(word in _LINKS for word in filler) or "in which" in " ".join(words[:at]):
        return False
    starts = [n for n in range(at, 0, -1) if words[n - 1] in _ENDS or words[n - 1] in ("so", "then", "please", "and")]
    for begin in (*starts, 0):
        start = begin + _opening_task(words[begin:at])
        asked = {"want", "need", "like", "expect"} & set(words[begin:start])
        if start < at and (words[start] in _TASKS or asked) and _main(words[:begin], words[begin - 1] == "and"):
            topic = words[start + (not asked) : at]
            return _leads(words[start], topic, filler, form) and not _of_another(words[start:], form)
    return False


def _leads(task: str, topic: list[str], filler: list[str], form: bool) -> bool:
    """Whether the words between a task and a thing are its topic and a preposition."""
    told, led = {word for n, word in enumerate(topic) if not n or topic[n - 1] not in _OURS}, set(filler)
    manner = not form and bool({"in", "using"} & led) and not led & RESPONSE and not {"of", "with", "that"} & led
    if ":" in told or told & _TEXT_VERBS or told & _CONDITION or (told & _TOLD and not manner):
        return False
    if _to_write(topic + filler):
        return False
    if not led.isdisjoint(("of", "that")) and not told.isdisjoint(("how", "why", "what")):
        return False
    if topic and topic[-1] in ("have", "is", "are", "be"):
        return False
    if task in _LISTS and {"of", "that", "with", "containing"} & led or task in _MATERIAL and {"of", "that"} & led:
        return False
    return True


_LISTS = _set("list name suggest find recommend think come identify")
UNITS = _set("sentence paragraph line bullet title sentences paragraphs points verse introduction passage")
_TEXT_TASKS = _set(
    "describe summarize summarise explain list give limit highlight wrap repeat put end start begin finish make "
    "keep choose create compose draft tell rate classify add avoid capitalize separate output return provide "
    "italicize"
)
_TEXT_VERBS = _set(
    "answer respond reply write use include mention say using saying printed said says speak speaks answers "
    "responds replies writes wrote"
)
