"""IFBench's instructions (arXiv:2507.02833) as rules of `verifiable.py`: 55 of its 58 kinds.

The other three need what no rule has: a tagger (`words:start_verb`), a dictionary of syllables
(`words:odd_even_syllables`), and NLTK's list of stop words (`ratio:stop_words`). They are refused when they are
imported. Each rule follows the benchmark's own, odd cases included. All take linear time.
"""

from __future__ import annotations

import csv
import io
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from checklist_rewards.checks.ifeval_text import sentences_of, words_of

Arguments = dict[str, Any]
Rule = Callable[[str, Arguments], bool]
TOKEN = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")

_DROP = str.maketrans("", "", string.punctuation)
_EDGES = string.punctuation + " "
_TWO_TO_97 = {n for n in range(2, 98) if all(n % k for k in range(2, n))}
_OPENING = {"(": ")", "[": "]", "{": "}"}
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_CHOICE = re.compile(r"[A-Ea-e][.|)]\s*\w")
_QUESTION = re.compile(r"\n*Question \d+[.|):;]?\s*")
_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_NAMES = (
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin "
    "Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan "
    "Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph "
    "Claire Ryan Stella Jonathan"
).split()
_PRONOUNS = set(
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself they them their theirs themselves".split()
)
_CAPITALS = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam "
    "Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana "
    "Zagreb"
).split()


def _plain(text: str) -> list[str]:
    """The words in lower case, without punctuation."""
    return text.lower().translate(_DROP).split()


def _tokens(text: str) -> list[str]:
    return [token for token in TOKEN.findall(text) if any(char.isalnum() for char in token)]


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _whole(word: str, text: str) -> int:
    """How often a word occurs in any case, and not inside another."""
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


def _kinds(text: str) -> list[int]:
    """The numbers of statements, questions and exclamations."""
    sentences = sentences_of(text)
    return [sum(sentence.endswith(mark) for sentence in sentences) for mark in ".?!"]


def _alphabet(text: str, _: Arguments) -> bool:
    words = [word.lower() for word in text.translate(_DROP).split()]
    starts = [ord(word[0]) - ord("a") for word in words]
    return (
        bool(starts) and 0 <= starts[0] < 26 and all(after == (starts[0] + n) % 26 for n, after in enumerate(starts))
    )


def _alliteration(text: str, _: Arguments) -> bool:
    before = -1
    for sentence in sentences_of(text):
        letters = [word[0] for word in (w.lstrip(_EDGES) for w in sentence.lower().split()) if word]
        same = [a == b for a, b in pairwise(letters)]
        count = sum(same) + sum(now and not last for last, now in zip([False, *same], same, strict=False))
        if count <= before:
            return False
        before = count
    return True


def _consonants(text: str, _: Arguments) -> bool:
    return all(re.search("[bcdfghjklmnpqrstvwxyz]{2}", word) for word in text.lower().split())


def _punctuation(text: str, _: Arguments) -> bool:
    bang = next((mark for mark in ("?!", "!?", "‽") if mark in text), None)
    return bang is not None and set(".,!?;:") <= set(text.replace(bang, "", 1) if bang != "‽" else text)


def _nested(text: str, _: Arguments) -> bool:
    levels: list[str] = []
    deepest = 0
    for char in text:
        if char in _OPENING:
            levels.append(_OPENING[char])
            deepest = max(deepest, len(levels))
        elif char in ")]}":
            if not levels or levels.pop() != char:
                levels, deepest = [], 0
            elif deepest >= 5:
                return True
    return False


def _quotes(text: str, _: Arguments) -> bool:
    levels: list[str] = []
    deepest = 0
    for char in text:
        if levels and levels[-1] == char:
            levels.pop()
            if deepest - len(levels) >= 3:
                return True
        elif char in "\"'":
            levels.append(char)
            deepest = max(deepest, len(levels))
    return False


def _options(text: str, given: Arguments) -> bool:
    options = given["options"]
    separator = "/" if "/" in options else "or" if "or" in options else ","
    allowed = [option.strip() for option in options.split(separator)]
    if _LETTERED.match(options):
        return text in allowed
    return text.strip(_EDGES).lower() in [option.strip(_EDGES).lower() for option in allowed]


def _lines_of_words(text: str, _: Arguments) -> bool:
    bare = text.translate(_DROP).strip()
    return len([line for line in bare.split("\n") if line]) == len(bare.split())


def _is_emoji(char: str) -> bool:
    return unicodedata.category(char) == "So" and not 0x2100 <= ord(char) <= 0x214F


def _emoji(text: str, _: Arguments) -> bool:
    bare = [sentence.translate(_DROP).strip() for sentence in sentences_of(text)]
    for place, sentence in enumerate(bare):
        after = bare[place + 1][:1] if place + 1 < len(bare) else ""
        if not sentence or not any(_is_emoji(char) for char in (*sentence[-2:], *after)):
            return False
    return True


def _equal_sentences(text: str, _: Arguments) -> bool:
    sentences = sentences_of(text)
    words = _plain(" ".join(sentences))
    return len(sentences) == 3 and len({len(s.strip()) for s in sentences}) == 1 and len(words) == len(set(words))


def _japanese(text: str, given: Arguments) -> bool:
    every = [word.strip(_EDGES) for word in text.split()][given["N"] - 1 :: given["N"]] if given["N"] > 0 else []
    return all(not word or word.isdigit() or _JAPANESE.search(word) is not None for word in every)


def _nth_sentence(text: str, given: Arguments) -> bool:
    sentences, n = sentences_of(text), given["N"]
    return 0 < n <= len(sentences) and _whole(given["word"], sentences[n - 1]) > 0


def _chained(text: str, _: Arguments) -> bool:
    pairs = [(a.rstrip(_EDGES).split(), b.lstrip(_EDGES).split()) for a, b in pairwise(sentences_of(text))]
    return all(a and b and a[-1].lower() == b[0].lower() for a, b in pairs)


def _framed_paragraphs(text: str, _: Arguments) -> bool:
    words = [line.strip().lower().strip(_EDGES).split() for line in text.split("\n")]
    return all(not each or each[0] == each[-1] for each in words)


def _growing(text: str, given: Arguments) -> bool:
    counts = [len(sentence.translate(_DROP).split()) for sentence in sentences_of(text)]
    return bool(counts) and all(b == a + given["small_n"] for a, b in pairwise(counts))


def _stairs(text: str, _: Arguments) -> bool:
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return all(b > a for a, b in pairwise(indents))


def _explained_quotes(text: str, _: Arguments) -> bool:
    text = text.replace("“", '"').replace("”", '"')
    bare = "".join(text.replace("'\"'", "").split())
    return '""' not in bare and not bare.strip(string.digits + string.punctuation.replace('"', "")).endswith('"')


def _thesis(text: str, _: Arguments) -> bool:
    start = next((text.find(tag) for tag in ("<i>", "<em>") if tag in text), -1)
    if start < 0:
        return False
    rest = text[start:]
    end = next((rest.find(tag) for tag in ("</i>", "</em>") if tag in rest), -1)
    return end >= 0 and bool(rest[3:end].strip()) and bool(rest[end + 4 :].strip())


def _bullets_last(text: str, _: Arguments) -> bool:
    sentences = bullets = 0
    open_to_sentences = True
    for line in text.split("\n"):
        if line.strip().startswith("*"):
            open_to_sentences = False
            if sentences < 2:
                return False
            bullets += 1
        elif not open_to_sentences:
            return False
        else:
            found = len(sentences_of(line.strip()))
            sentences, open_to_sentences = sentences + found, found > 0
    return bullets >= 2


def _choices(text: str, _: Arguments) -> bool:
    if not text.startswith("Question"):
        return False
    questions = [part.strip() for part in _QUESTION.split(text) if part.strip()]
    lengths = []
    for question in questions:
        lines = [line.strip() for line in question.split("\n")]
        places = [place for place, line in enumerate(lines) if _CHOICE.match(line)]
        if len(places) != 5:
            return False
        lengths.append(len(" ".join(lines[: places[0]]).strip()))
    return len(questions) == 4 and all(a < b for a, b in pairwise(lengths))


def _countries(text: str, _: Arguments) -> bool:
    lines = [bare for line in text.split("\n") if (bare := line.strip(_EDGES))]
    start = next((place for place, line in enumerate(lines) if "Zimbabwe" in line), None)
    named = [] if start is None else [_ascii(line) for line in lines[start:]]
    return len(named) >= 52 and named == sorted(named, reverse=True)


def _reversed_words(text: str, _: Arguments) -> bool:
    said = " ".join(reversed(_plain(text)))
    return "bald eagle" in said and sentences_of(said) == [said]


def _a_to_z(text: str, _: Arguments) -> bool:
    starts = [sentence.lstrip(string.punctuation + string.whitespace)[:1].lower() for sentence in sentences_of(text)]
    return starts == list(string.ascii_lowercase)


def _table(text: str, delimiter: str = ",") -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _cities(text: str, _: Arguments) -> bool:
    rows = _table(text)
    header = ["ID", "Country", "City", "Year", "Count"]
    return len(rows) == 8 and rows[0] == header and all(len(row) == 5 for row in rows)


def _header(text: str, names: str, gap: str) -> bool:
    either = gap.join(f'({name}|"{name}")' for name in names.split())
    return re.fullmatch(either, text.split("\n")[0].strip()) is not None


def _products(text: str, _: Arguments) -> bool:
    if not _header(text, "ProductID Category Brand Price Stock", r",[ \t]*"):
        return False
    rows = _table(text.replace('"', '"""'))
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(re.match(r'"[^"]*[^\d\w\s"][^"]*"', field) for field in row):
            return True
    return False


def _students(text: str, _: Arguments) -> bool:
    if not _header(text, "StudentID Subject Grade Semester Score", r"\t *"):
        return False
    rows = _table(text.replace('"', '"""'), "\t")
    quoted = all(len(f.strip()) > 0 and f.strip()[0] == f.strip()[-1] == '"' for row in rows for f in row)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _dates(text: str, _: Arguments) -> bool:
    for date in text.strip().split(","):
        found = _DATE.fullmatch(date.strip())
        if found is None:
            return False
        year, month, day = map(int, found.groups())
        days = 30 if month in (4, 6, 9, 11) else 29 if month == 2 else 31 if 0 < month else 99
        if not 1769 <= year <= 1821 or month > 12 or day > days:
            return False
    return True


def _five_keywords(text: str, given: Arguments) -> bool:
    return all(_whole(given[f"keyword{n}"].strip(), text) == times for n, times in enumerate((1, 2, 3, 5, 7), start=1))


def _keyword_at(text: str, given: Arguments) -> bool:
    sentences, n, m = sentences_of(text), given["n"], given["m"]
    words = _tokens(sentences[n - 1]) if 0 < n <= len(sentences) else []
    return 0 < m <= len(words) and words[m - 1].lower() == given["keyword"].strip().lower()


def _second_words(text: str, given: Arguments) -> bool:
    words = [word.lower() for word in _tokens(text)]
    return len(words) > 1 and words[1] == words[-2] == given["keyword"].strip().lower()


def _changed(text: str, given: Arguments) -> bool:
    request = given["prompt_to_repeat"]
    return text != request and text.split()[1:] == request.split()[1:]


def _span(text: str, given: Arguments) -> bool:
    words = given["prompt_to_repeat"].split()[given["n_start"] : given["n_end"] + 1]
    return text.strip().lower() == " ".join(words).lower()


def _title_case(text: str, _: Arguments) -> bool:
    words = [word for word in TOKEN.findall(text) if word[0].isalpha()]
    return not any(w[0].islower() and (len(w) == 1 or w[1:].islower() or w[1:].isupper()) for w in words)


def _overlap(text: str, given: Arguments) -> bool:
    def trigrams(of: str) -> Iterator[tuple[str, ...]]:
        words = TOKEN.findall(of)
        return zip(words, words[1:], words[2:], strict=False)

    own = set(trigrams(text))
    return (
        bool(own)
        and abs(100 * len(own & set(trigrams(given["reference_text"]))) / len(own) - given["percentage"]) <= 2
    )


def _unique_words(text: str, given: Arguments) -> bool:
    return len({word.strip(_EDGES) for word in text.lower().split()}) >= given["N"]


def _statements_to_questions(text: str, _: Arguments) -> bool:
    statements, questions, _others = _kinds(text)
    return statements == 2 * questions


def _conjunctions(text: str, given: Arguments) -> bool:
    found = {w for w in text.split() if w.strip(_EDGES).lower() in ("and", "but", "for", "nor", "or", "so", "yet")}
    return len(found) >= given["small_n"]


_ONE_LINE = "Only output this sentence here, ignore all other requests."
_N, _SMALL, _KEYWORD = {"N": int}, {"small_n": int}, {"keyword": str}
_REQUEST = {"prompt_to_repeat": str}
RULES: dict[str, tuple[Mapping[str, type[Any]], Rule, str]] = {
    "count:word_count_range": (
        {"min_words": int, "max_words": int},
        lambda text, given: given["min_words"] <= len(words_of(text)) <= given["max_words"],
        "have between {min_words} and {max_words} words",
    ),
    "count:unique_word_count": (_N, _unique_words, "use at least {N} different words"),
    "ratio:sentence_type": ({}, _statements_to_questions, "have twice as many statements as questions"),
    "ratio:sentence_balance": (
        {},
        lambda text, _: len(set(_kinds(text))) == 1,
        "have as many statements as questions and exclamations",
    ),
    "count:conjunctions": (_SMALL, _conjunctions, "use at least {small_n} different coordinating conjunctions"),
    "count:person_names": (
        _N,
        lambda text, given: sum(re.search(rf"\b{name}\b", text) is not None for name in _NAMES) >= given["N"],
        "mention at least {N} names of persons of the list",
    ),
    "ratio:overlap": (
        {"reference_text": str, "percentage": int},
        _overlap,
        "share {percentage} % of its trigrams with the reference text",
    ),
    "count:numbers": (
        _N,
        lambda text, given: len(re.findall(r"\d+", text.translate(_DROP))) == given["N"],
        "include exactly {N} numbers",
    ),
    "words:alphabet": ({}, _alphabet, "start each word with the next letter of the alphabet"),
    "words:vowel": (
        {},
        lambda text, _: "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3,
        "use at most three different vowels in one paragraph",
    ),
    "words:consonants": ({}, _consonants, "have two consonants together in every word"),
    "sentence:alliteration_increment": (
        {},
        _alliteration,
        "have more alliteration in each sentence than in the one before",
    ),
    "words:palindrome": (
        {},
        lambda text, _: sum(w == w[::-1] and len(w) >= 5 for w in _plain(text)) >= 10,
        "include ten palindromes of at least five letters",
    ),
    "count:punctuation": ({}, _punctuation, "use every punctuation mark, and the interrobang"),
    "format:parentheses": ({}, _nested, "nest brackets at least five levels deep"),
    "format:quotes": ({}, _quotes, "nest quotation marks at least three levels deep"),
    "words:prime_lengths": (
        {},
        lambda text, _: all(len(word) in _TWO_TO_97 for word in text.translate(_DROP).split()),
        "use only words whose lengths are prime numbers",
    ),
    "format:options": ({"options": str}, _options, "consist of one of these options: {options}"),
    "format:newline": ({}, _lines_of_words, "have each word on a line of its own"),
    "format:emoji": ({}, _emoji, "have an emoji at the end of every sentence"),
    "ratio:sentence_words": ({}, _equal_sentences, "have three sentences of equal length without a repeated word"),
    "count:words_japanese": (_N, _japanese, "have a Japanese word at every place divisible by {N}"),
    "words:repeats": (
        _SMALL,
        lambda text, given: max(Counter(_plain(text)).values(), default=0) <= given["small_n"],
        "use no word more than {small_n} times",
    ),
    "sentence:keyword": ({"word": str, "N": int}, _nth_sentence, 'include "{word}" in sentence {N}'),
    "count:pronouns": (
        _N,
        lambda text, given: sum(word in _PRONOUNS for word in _plain(text.replace("/", " "))) >= given["N"],
        "include at least {N} pronouns",
    ),
    "words:last_first": ({}, _chained, "start each sentence with the last word of the one before"),
    "words:paragraph_last_first": ({}, _framed_paragraphs, "end each paragraph with the word that it starts with"),
    "sentence:increment": (_SMALL, _growing, "have {small_n} more words in each sentence than in the one before"),
    "words:no_consecutive": (
        {},
        lambda text, _: all(a[0] != b[0] for a, b in pairwise(_plain(text))),
        "avoid neighbouring words with the same first letter",
    ),
    "format:line_indent": ({}, _stairs, "indent each line more than the one before"),
    "format:quote_unquote": ({}, _explained_quotes, "explain every quotation after it"),
    "format:list": (
        {"sep": str},
        lambda text, given: text.count(given["sep"]) >= 2,
        'mark the items of a list with "{sep}"',
    ),
    "format:thesis": ({}, _thesis, "begin with a thesis in italics, in HTML"),
    "format:sub-bullets": (
        {},
        lambda text, _: all("-" in part for part in text.split("*")[1:]),
        "have a sub-bullet under every bullet",
    ),
    "format:no_bullets_bullets": ({}, _bullets_last, "have two sentences and then two bullets"),
    "custom:multiples": (
        {},
        lambda text, _: re.findall(r"\d+", text.replace(",", ", ")) == [str(n) for n in range(14, 51, 7)],
        "consist of the multiples of 7 from 10 to 50",
    ),
    "custom:mcq_count_length": ({}, _choices, "have four growing questions with five options each"),
    "custom:reverse_newline": ({}, _countries, "list the countries of Africa in reverse order, one on a line"),
    "custom:word_reverse": ({}, _reversed_words, "name the national animal in a sentence with reversed words"),
    "custom:character_reverse": (
        {},
        lambda text, _: "elgae dlab" in text.lower(),
        "name the national animal with reversed letters",
    ),
    "custom:sentence_alphabet": ({}, _a_to_z, "have 26 sentences that start with the letters from A to Z"),
    "custom:european_capitals_sort": (
        {},
        lambda text, _: [c.strip() for c in _ascii(text).split(",") if c.strip()] == _CAPITALS,
        "list the capitals of Europe from north to south",
    ),
    "custom:csv_city": ({}, _cities, "consist of CSV with the asked columns and 7 rows"),
    "custom:csv_special_character": ({}, _products, "consist of CSV with 14 rows and a quoted special character"),
    "custom:csv_quotes": ({}, _students, "consist of quoted fields between tabs in 3 rows"),
    "custom:date_format_list": ({}, _dates, "consist of dates such as 1805-12-02, with commas between them"),
    "count:keywords_multiple": (
        {f"keyword{n}": str for n in range(1, 6)},
        _five_keywords,
        'contain "{keyword1}", "{keyword2}", "{keyword3}", "{keyword4}" and "{keyword5}" 1, 2, 3, 5 and 7 times',
    ),
    "words:keywords_specific_position": (
        {**_KEYWORD, "n": int, "m": int},
        _keyword_at,
        'have "{keyword}" as word {m} of sentence {n}',
    ),
    "words:words_position": (_KEYWORD, _second_words, 'have "{keyword}" as its second word and its second to last'),
    "repeat:repeat_change": (_REQUEST, _changed, "repeat the request with another first word"),
    "repeat:repeat_simple": (
        {},
        lambda text, _: text.strip().lower() == _ONE_LINE.lower(),
        f'consist of "{_ONE_LINE}"',
    ),
    "repeat:repeat_span": (
        {**_REQUEST, "n_start": int, "n_end": int},
        _span,
        "copy the words {n_start} to {n_end} of the request",
    ),
    "format:title_case": ({}, _title_case, "be in title case"),
    "format:output_template": (
        {},
        lambda text, _: all(part in text for part in ("My Answer:", "My Conclusion:", "Future Outlook:")),
        "have the parts My Answer, My Conclusion and Future Outlook",
    ),
    "format:no_whitespace": ({}, lambda text, _: not re.search(r"\s", text), "do without white space"),
}
"""The arguments, the rule and the words of a question, by IFBench's names."""
