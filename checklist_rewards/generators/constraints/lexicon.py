"""The words that the rules know, each with a symbol.

A clause becomes a string of symbols, one for each word or phrase, and rules and filter are short patterns over it:
"Do not use more than two commas." is `noO#C`. A word that is not here is `u`: it can be the topic of a task or the
adjective of a noun, nothing else. A phrase is written with underscores.

| symbols | meaning |
|---|---|
| `W K Q 1` | "word", "letter"; a quoted string; one character |
| `S C Z T` | things of `things.py`: sentences; marks and items; casing; parts |
| `Y J I & " *` | language, JSON, postscript, angle brackets, quotation marks, asterisks |
| `# X x H V` | a number, "times", "twice", "number of", "word limit" |
| `G L O U E B A P F` | at least, at most, over, under, exactly, between, about; "or more", "or fewer" |
| `o t 5 < >` | verbs of orders: include, write, explain (a task), start, end |
| `c v w b 6 2` | limit; contains; containing; is; written; used, as in "must be used" |
| `m M n N` | must, must not, not, no |
| `3 4 s y @` | forbidden; allowed; "make sure"; "it" and "you"; other persons |
| `q z j h ! 8` | conditions; permissions; reports and other tasks; how; how to; such as |
| `e f p r R` | each; first and last; a part of a response; the response; other texts and what carries texts |
| `d D g a % i ~ ^ k l` | the; a; adjectives; adverbs; "more"; in; about; that; and; or |
| `, : -` | punctuation: `,` also stands for brackets and ends of lines |
"""

from __future__ import annotations

from checklist_rewards.generators.constraints.amounts import DIGITS, TIMES, VALUES

LANGUAGES = {
    "afrikaans": "af", "arabic": "ar", "bulgarian": "bg", "bengali": "bn", "catalan": "ca", "czech": "cs",
    "welsh": "cy", "danish": "da", "german": "de", "greek": "el", "english": "en", "spanish": "es",
    "estonian": "et", "persian": "fa", "farsi": "fa", "finnish": "fi", "french": "fr", "gujarati": "gu",
    "hebrew": "he", "hindi": "hi", "croatian": "hr", "hungarian": "hu", "indonesian": "id", "italian": "it",
    "japanese": "ja", "kannada": "kn", "korean": "ko", "lithuanian": "lt", "latvian": "lv", "macedonian": "mk",
    "malayalam": "ml", "marathi": "mr", "nepali": "ne", "dutch": "nl", "norwegian": "no", "punjabi": "pa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "slovak": "sk", "slovenian": "sl",
    "somali": "so", "albanian": "sq", "swedish": "sv", "swahili": "sw", "tamil": "ta", "telugu": "te", "thai": "th",
    "tagalog": "tl", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip
"""Languages that the check `language` can tell apart, with their codes."""
ORDINALS = {
    word: n
    for n, word in enumerate("first second third fourth fifth sixth seventh eighth ninth tenth".split(), start=1)
} | {f"{n}{'th' if n > 3 else ('st', 'nd', 'rd')[n - 1]}": n for n in range(1, 11)}

WORDS = {
    # what a requirement counts or names; `things.py` adds the things of its table
    "#": " ".join(word.replace(" ", "_") for word in VALUES),
    "X": "time times",
    "x": " ".join(TIMES),
    "W": "keyword keywords key_word key_words phrase phrases term terms name",
    "K": "letter letters symbol symbols punctuation_mark",
    "Y": " ".join(LANGUAGES),
    "J": "json json_format json_object json_array json_block json_code_block json_code json_string json_structure "
    "json_output",
    "I": "postscript post_script p.s p.s. p.p.s p.p.s. ps",
    "&": "double_angular_brackets double_angle_brackets angular_brackets",
    '"': "quotation_marks double_quotation_marks double_quotes quotes double_quotation_mark",
    "*": "*** ****** ******* six_asterisks 6_asterisks 6_asterisk_marks asterisk_symbols 3_asterisks",
    "H": "number_of total_number_of",
    "V": "word_count word_limit length_limit character_limit sentence_limit length",
    # how many
    "G": "at_least at_the_least at_the_very_least at_minimum at_a_minimum at_the_minimum as_a_minimum a_minimum_of "
    "minimum minimum_of min min_of no_fewer_than no_less_than more_than_or_equal_to greater_than_or_equal_to >= ≥ "
    "nothing_less_than",
    "L": "at_most at_the_most at_the_very_most at_maximum at_a_maximum as_a_maximum a_maximum_of a_maximum_length_of "
    "maximum maximum_of max max_of up_to no_more_than not_more_than no_longer_than nothing_longer_than within "
    "inside_of less_than_or_equal_to fewer_than_or_equal_to <= ≤ a_limit_of limit_of",
    "O": "more_than greater_than longer_than over above exceed exceeds exceeding in_excess_of upwards_of upward_of "
    "north_of >",
    "U": "fewer_than less_than shorter_than under below south_of <",
    "E": "exactly precisely exact just only nothing_but",
    "B": "between from anywhere_between somewhere_between in_the_range_of ranging_from",
    "A": "approximately roughly nearly almost circa approx ~ ≈ ± +_/_- close_to on_average an_average_of ish or_so "
    "or_thereabouts give_or_take plus_or_minus so_to_speak for_starters ballpark a_ballpark_of",
    "P": "or_more + or_above or_longer or_over or_higher or_greater",
    "F": "or_fewer or_less or_below or_under or_shorter tops",
    # who does what
    "o": "aim_for use include mention contain incorporate insert add employ feature have weave utilize put place "
    "consist make_use_of sprinkle comprise cover",
    "t": "write answer respond reply give create compose draft generate make provide come_up_with produce develop "
    "design craft prepare build say return output wrap enclose surround format structure separate divide split "
    "highlight emphasize italicize express present print render do deliver submit type stay stick aim go pen sketch "
    "repeat reproduce speak state list choose pick classify label rate categorize select capitalize break",
    "5": "describe explain tell summarize summarise rewrite rephrase translate suggest discuss compare outline expand "
    "elaborate complete continue convert turn plan paraphrase edit improve shorten analyze analyse argue propose "
    "brainstorm define introduce recommend review share advertise formulate organize narrate talk extend evaluate "
    "assess persuade teach show reformat condense rap sing sum_up criticize act invent sell reword",
    "c": "limit keep restrict cap confine limiting keeping restricting limited restricted capped",
    "<": "start begin open starting beginning starts begins opens preface",
    ">": "end finish close conclude ending finishing ends concluding finishes concludes closes sign_off",
    "v": "incorporates employs utilizes contains includes uses mentions features reads consists",
    "w": "saying stating using containing including featuring mentioning having incorporating composed_of "
    "consisting_of consisting comprising totaling",
    "m": "needs should must shall will has_to have_to needs_to need_to ought_to is_to are_to to_be",
    "M": "should_not must_not shall_not will_not cannot can't mustn't shouldn't may_not won't should_never must_never "
    "are_not_allowed_to aren't_allowed_to is_not_allowed_to",
    "n": "i_don't_want i_do_not_want not do_not don't dont doesn't does_not never avoid avoids avoiding refrain_from "
    "refraining_from omit isn't aren't exclude leave_out skip make_sure_not_to not_to",
    "N": "no without free_of devoid_of excluding_the_words excluding_the_word excluding_the_keywords "
    "excluding_the_keyword excluding_words leaving_out omitting neither",
    "b": "is are has",
    "6": "printed typed be been being written made divided composed kept presented formatted structured organized "
    "wrapped enclosed separated answered rendered expressed represented indicated returned delivered surrounded "
    "marked highlighted italicized",
    "2": "used show_up shows_up included appear appears appearing mentioned occur occurs contained featured "
    "incorporated shown found part_of_it part_of_your_answer",
    "3": "forbidden banned prohibited avoided excluded omitted off_limits",
    "4": "allowed permitted",
    "s": "so_that such_that ensuring ensuring_that make_sure_you ensure_you make_sure make_sure_to make_sure_that "
    "ensure ensure_that ensure_to be_sure be_sure_to i_want i_need i_want_you_to i_would_like "
    "i_would_like_you_to i'd_like i_need_you_to remember_to remember_that we_want we_need i'd_love can_you "
    "could_you would_you will_you do_not_forget_to don't_forget_to do_not_fail_to making_sure making_sure_to "
    "i_expect are_required_to is_required_to you_are_to try_to let's mark_sure_you don't_fail_to "
    "never_forget_to never_fail_to",
    "y": "you it there everything this yourself this_question this_request the_question the_request",
    "@": "i we he she they nobody people someone anyone everyone them his her their him i'm i've we're others "
    "somebody",
    # what is not required as it stands
    "q": "not_including not_counted excluding if when whenever unless whether except excepting apart_from aside_from "
    "other_than besides save_for with_the_exception_of in_case assuming provided provided_that where_needed "
    "where_necessary where_possible where_appropriate where_it where_they wherever as_needed instead instead_of "
    "rather rather_than depending outside outside_of barring suppose supposing until once_you once_i once_we "
    "once_they as_long_as otherwise had even_if though although except_for sparingly overuse as_few_as as_many_as "
    "more_or_less usually often sometimes mostly former no_longer",
    "z": "welcome_to feel_free might may could can would wouldn't maybe perhaps fine acceptable alright optional "
    "optionally no_need need_not needn't not_necessary not_required not_mandatory not_needed don't_have_to "
    "do_not_have_to don't_need_to do_not_need_to doesn't_have_to does_not_have_to does_not_need_to "
    "doesn't_need_to don't_need do_not_need prefer preferably preferred preferable consider ideally afraid "
    "hesitate worry ignore disregard regardless mind possible possibly allowed_to permitted_to up_to_you hate "
    "don't_care do_not_care matter try bother wish stop do_not_want don't_want is_fine is_ok is_okay ok_if",
    "j": "i_want_you_to_help_me i_need_to i_want_to i_have_to we_need_to i_would_like_to i'd_like_to said says told "
    "tells asked asks taught claims claimed believes you_think they_think people_think thinks wants wanted wrote "
    "heard hears argues requested requests insists insisted expects requires require required forbids demands "
    "demanded ordered accepts allows allow supposed vowed asserts reminds reminded reminding according guideline "
    "guidelines policy instruction prompt checks rejects feedback_on me_feedback claim states asserted ask asking "
    "decided means swears swore promised learned requiring whose who whom pretend imagine proofread check mark count "
    "replace remove delete underline sort detect printing prints returns will_be followed_by function_that "
    "function_which function_to verify swap fix clause statute tips complained suggested in_which find reminder "
    "system_prompt asks_that want_you_to_help guess remind warn advise instruct urge encourage convince telling "
    "informing instructing advising used_to_say used_to_tell rubric_:",
    "u": "made_of mark_of check_out in_may",
    "%": "percent more fewer less additional extra",
    "h": "how why what where when_to",
    "!": "how_to where_to",
    "8": "such_as like e.g. i.e. e.g i.e for_example for_instance namely",
    "e": "each every per apiece respectively none_of respective",
    "f": " ".join(ORDINALS) + " last opening closing next previous half introductory",
    "p": "another title titles subtitle headline headlines heading headings subject subject_line introduction intro "
    "conclusion chorus refrain scene acts slide slides descriptions summaries definitions explanations step "
    "steps item chapter example examples stories poems essays tweets posts books articles messages emails "
    "slogans jokes riddles haikus songs reviews caption dialogue greeting greetings names signature footer "
    "header body questions row rows column columns entries table tables field labels recipes reports texts",
    "r": "e_mail content response answer reply output essay text story poem email mail article blog post blog_post "
    "summary description message review speech script song report writing tweet rap haiku limerick joke riddle "
    "note proposal resume explanation translation document piece submission completion dialogue conversation "
    "monologue memo ad slogan product advertisement advert pitch bio biography outline plan guide recipe "
    "narrative passage composition analysis itinerary lyrics announcement rubric quiz template brochure statement "
    "verse thread flyer invitation card toast obituary abstract poster blurb thing newsletter notice fable tale "
    "critique rant motto tagline paper version result play sonnet ode profile complaint comment press_release "
    "cover_letter job_ad eulogy wish entry job_description short_story fairy_tale job_posting solution letter "
    "list answers apology listing",
    "R": "keyboard keypad typewriter language alphabet font website web password sign logo country book novel page "
    "tattoo film movie newspaper magazine law treaty contract form file menu banner plaque inscription "
    "manuscript diary spell prayer test exam class course lesson journal novels laws contracts signs cake "
    "corpus study rulebook rules instructions",
    # the rest of a clause
    "d": "total a_total_of the your my our its entire whole full final overall all these both those same",
    "D": "in_the_style_of in_the_form_of in_form_of in_a_format_of in_the_format_of a an any some either one_of "
    "any_of all_of both_of at_least_one_of either_of",
    "g": "such short brief concise different distinct unique main key detailed simple clear specific given own "
    "following valid plain numbered unordered funny poetic formal proper raw strict polite single_spaced markdown "
    "descriptive informative catchy creative american brazilian british canadian european latin mexican",
    "a": "altogether collectively let help_me very long use_markdown_to please also then now finally additionally "
    "lastly kindly again simply really ok okay thanks hi hello however plus moreover furthermore strictly "
    "always absolutely exclusively entirely completely fully somewhere anywhere together throughout here too "
    "in_total in_length me us at_all hey dear solely further explicitly well yes importantly itself",
    "i": "as_a_list_of in_a_list_of in with of to as into inside",
    "~": "by about at for on regarding concerning describing around during after before against among named called "
    "titled entitled through toward towards asking_for",
    "^": "that which",
    "k": "and but so yet while",
    "l": "or nor /",
    ",": ", ; ( ) [ ]",
    ":": ":",
    "-": "-",
}
"""Symbols with their words."""
QUOTE, CODE = "\x01", "\x02"
"""Masks of quoted strings (with their quotation marks) and of code blocks and quoted lines."""


class _Symbols(dict[str, str]):
    """The symbols of single words."""

    def __missing__(self, word: str) -> str:
        if len(word) == 1 and word.isalpha():
            return "1"
        return "Q" if word[0] == QUOTE else "&" if word[:2] == "<<" else "#" if DIGITS.fullmatch(word) else "u"


SYMBOLS = _Symbols()
PHRASES: dict[tuple[str, str], list[tuple[list[str], str, str]]] = {}
"""Phrases by their first two words, each with its symbol and its name; longest first."""
TRIGGERS = set("repeat copy restate rewrite reproduce p mark".split())
"""Words of which a clause must contain one to be read; `learn` adds to them."""


def learn(symbol: str, phrases: list[str], trigger: bool = False) -> None:
    """Add words and phrases with a symbol. The first entry of a word counts."""
    for phrase in phrases:
        first, *rest = phrase.split("_")
        if rest:
            for parts in ([first, *rest], [first, "-", *rest]):
                others = PHRASES.setdefault((parts[0], parts[1]), [])
                others.append((parts, symbol, phrase.replace("_", " ")))
                others.sort(key=lambda one: -len(one[0]))
        else:
            SYMBOLS.setdefault(first, symbol)
        if trigger:
            TRIGGERS.add(max((first, *rest), key=len))


for _symbol, _words in WORDS.items():
    learn(_symbol, _words.split(), trigger=_symbol in 'YJI&"*VWK')
SYMBOLS["\n"] = ","
NOUNS = frozenset(
    word
    for word in (*WORDS["r"].split(), "use", "start", "end", "mention", "complete", "format", "form")
    if "_" not in word
)
"""Words that are verbs elsewhere and nouns after a determiner."""
