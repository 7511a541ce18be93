"""Instructions of open-instruct's verifiers and of IFBench (arXiv:2507.02833) that no other check can express, by name
and arguments.

Policies are trained on them in `IF_multi_constraints_upto5` and its like; `ifeval.py` converts its rows. Each rule is
that of the verifier, odd cases included, so that a reward and the trainer's own agree; only words are cut by a pattern
of our own where the verifier uses NLTK (letters and digits, with apostrophes and hyphens inside; every other mark
alone). All take linear time.

Three of IFBench's 58 kinds are refused when they are imported. They need what no rule has: a tagger
(`words:start_verb`), a dictionary of syllables (`words:odd_even_syllables`), and NLTK's list of stop words
(`ratio:stop_words`).
"""

from __future__ import annotations

import csv
import inspect
import io
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.builtin import parts_of
from checklist_rewards.checks.ifeval_text import sentences_of, words_of
from checklist_rewards.validation import unknown

_TOKEN = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")

_MARKS = re.compile(r"[^\w\s]")
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
    return [token for token in _TOKEN.findall(text) if any(char.isalnum() for char in token)]


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _whole(word: str, text: str) -> int:
    """How often a word occurs in any case, and not inside another."""
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


def _kinds(text: str) -> list[int]:
    """The numbers of statements, questions and exclamations."""
    sentences = sentences_of(text)
    return [sum(sentence.endswith(mark) for sentence in sentences) for mark in ".?!"]


def _alphabet(text: str) -> bool:
    starts = [ord(word[0]) - ord("a") for word in _plain(text)]
    return (
        bool(starts) and 0 <= starts[0] < 26 and all(after == (starts[0] + n) % 26 for n, after in enumerate(starts))
    )


def _alliteration(text: str) -> bool:
    before = -1
    for sentence in sentences_of(text):
        letters = [word[0] for word in (w.lstrip(_EDGES) for w in sentence.lower().split()) if word]
        same = [a == b for a, b in pairwise(letters)]
        count = sum(same) + sum(now and not last for last, now in zip([False, *same], same, strict=False))
        if count <= before:
            return False
        before = count
    return True


def _consonants(text: str) -> bool:
    return all(re.search("[bcdfghjklmnpqrstvwxyz]{2}", word) for word in text.lower().split())


def _punctuation(text: str) -> bool:
    bang = next((mark for mark in ("?!", "!?", "‽") if mark in text), None)
    return bang is not None and set(".,!?;:") <= set(text.replace(bang, "", 1) if bang != "‽" else text)


def _nested(text: str) -> bool:
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


def _quotes(text: str) -> bool:
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


def _options(text: str, options: str) -> bool:
    separator = "/" if "/" in options else "or" if "or" in options else ","
    allowed = [option.strip() for option in options.split(separator)]
    if _LETTERED.match(options):
        return text in allowed
    return text.strip(_EDGES).lower() in [option.strip(_EDGES).lower() for option in allowed]


def _lines_of_words(text: str) -> bool:
    bare = text.translate(_DROP).strip()
    return len([line for line in bare.split("\n") if line]) == len(bare.split())


def _is_emoji(char: str) -> bool:
    return unicodedata.category(char) == "So" and not 0x2100 <= ord(char) <= 0x214F


def _emoji(text: str) -> bool:
    bare = [sentence.translate(_DROP).strip() for sentence in sentences_of(text)]
    for place, sentence in enumerate(bare):
        after = bare[place + 1][:1] if place + 1 < len(bare) else ""
        if not sentence or not any(_is_emoji(char) for char in (*sentence[-2:], *after)):
            return False
    return True


def _equal_sentences(text: str) -> bool:
    sentences = sentences_of(text)
    words = _plain(" ".join(sentences))
    return len(sentences) == 3 and len({len(s.strip()) for s in sentences}) == 1 and len(words) == len(set(words))


def _japanese(text: str, N: int) -> bool:
    every = [word.strip(_EDGES) for word in text.split()][N - 1 :: N] if N > 0 else []
    return all(not word or word.isdigit() or _JAPANESE.search(word) is not None for word in every)


def _word_at(text: str, n: int, m: int, words_of: Callable[[str], list[str]]) -> list[str]:
    """Word m of sentence n, both from 1; empty if there is none."""
    sentence = sentences_of(text)[n - 1 : n] if n > 0 else []
    return words_of(sentence[0])[m - 1 : m] if sentence and m > 0 else []


def _nth_sentence(text: str, word: str, N: int) -> bool:
    sentences = sentences_of(text)
    return 0 < N <= len(sentences) and _whole(word, sentences[N - 1]) > 0


def _chained(text: str) -> bool:
    pairs = [(a.rstrip(_EDGES).split(), b.lstrip(_EDGES).split()) for a, b in pairwise(sentences_of(text))]
    return all(a and b and a[-1].lower() == b[0].lower() for a, b in pairs)


def _framed_paragraphs(text: str) -> bool:
    words = [line.strip().lower().strip(_EDGES).split() for line in text.split("\n")]
    return all(not each or each[0] == each[-1] for each in words)


def _growing(text: str, small_n: int) -> bool:
    counts = [len(sentence.translate(_DROP).split()) for sentence in sentences_of(text)]
    return bool(counts) and all(b == a + small_n for a, b in pairwise(counts))


def _stairs(text: str) -> bool:
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return all(b > a for a, b in pairwise(indents))


def _explained_quotes(text: str) -> bool:
    text = text.replace("“", '"').replace("”", '"')
    bare = "".join(text.replace("'\"'", "").split())
    return '""' not in bare and not bare.strip(string.digits + string.punctuation.replace('"', "")).endswith('"')


def _thesis(text: str) -> bool:
    start = next((text.find(tag) for tag in ("<i>", "<em>") if tag in text), -1)
    if start < 0:
        return False
    rest = text[start:]
    end = next((rest.find(tag) for tag in ("</i>", "</em>") if tag in rest), -1)
    return end >= 0 and bool(rest[3:end].strip()) and bool(rest[end + 4 :].strip())


def _bullets_last(text: str) -> bool:
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


def _choices(text: str) -> bool:
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


def _countries(text: str) -> bool:
    lines = [bare for line in text.split("\n") if (bare := line.strip(_EDGES))]
    start = next((place for place, line in enumerate(lines) if "Zimbabwe" in line), None)
    named = [] if start is None else [_ascii(line) for line in lines[start:]]
    return len(named) >= 52 and named == sorted(named, reverse=True)


def _reversed_words(text: str) -> bool:
    said = " ".join(reversed(_plain(text)))
    return "bald eagle" in said and sentences_of(said) == [said]


def _a_to_z(text: str) -> bool:
    starts = [sentence.lstrip(string.punctuation + string.whitespace)[:1].lower() for sentence in sentences_of(text)]
    return starts == list(string.ascii_lowercase)


def _table(text: str, delimiter: str = ",") -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _cities(text: str) -> bool:
    rows = _table(text)
    header = ["ID", "Country", "City", "Year", "Count"]
    return len(rows) == 8 and rows[0] == header and all(len(row) == 5 for row in rows)


def _header(text: str, names: str, gap: str) -> bool:
    either = gap.join(f'({name}|"{name}")' for name in names.split())
    return re.fullmatch(either, text.split("\n")[0].strip()) is not None


def _products(text: str) -> bool:
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


def _students(text: str) -> bool:
    if not _header(text, "StudentID Subject Grade Semester Score", r"\t *"):
        return False
    rows = _table(text.replace('"', '"""'), "\t")
    quoted = all(len(f.strip()) > 0 and f.strip()[0] == f.strip()[-1] == '"' for row in rows for f in row)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _dates(text: str) -> bool:
    for date in text.strip().split(","):
        found = _DATE.fullmatch(date.strip())
        if found is None:
            return False
        year, month, day = map(int, found.groups())
        days = 30 if month in (4, 6, 9, 11) else 29 if month == 2 else 31 if 0 < month else 99
        if not 1769 <= year <= 1821 or month > 12 or day > days:
            return False
    return True


def _five_keywords(text: str, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    return all(_whole(k.strip(), text) == times for k, times in zip(keywords, (1, 2, 3, 5, 7), strict=True))


def _second_words(text: str, keyword: str) -> bool:
    words = [word.lower() for word in _tokens(text)]
    return len(words) > 1 and words[1] == words[-2] == keyword.strip().lower()


def _changed(text: str, prompt_to_repeat: str) -> bool:
    return text != prompt_to_repeat and text.split()[1:] == prompt_to_repeat.split()[1:]


def _span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    words = prompt_to_repeat.split()[n_start : n_end + 1]
    return text.strip().lower() == " ".join(words).lower()


def _title_case(text: str) -> bool:
    words = [word for word in _TOKEN.findall(text) if word[0].isalpha()]
    return not any(w[0].islower() and (len(w) == 1 or w[1:].islower() or w[1:].isupper()) for w in words)


def _overlap(text: str, reference_text: str, percentage: int) -> bool:
    def trigrams(of: str) -> Iterator[tuple[str, ...]]:
        words = _TOKEN.findall(of)
        return zip(words, words[1:], words[2:], strict=False)

    own = set(trigrams(text))
    return bool(own) and abs(100 * len(own & set(trigrams(reference_text))) / len(own) - percentage) <= 2


def _unique_words(text: str, N: int) -> bool:
    return len({word.strip(_EDGES) for word in text.lower().split()}) >= N


def _statements_to_questions(text: str) -> bool:
    statements, questions, _others = _kinds(text)
    return statements == 2 * questions


def _conjunctions(text: str, small_n: int) -> bool:
    found = {w for w in text.split() if w.strip(_EDGES).lower() in ("and", "but", "for", "nor", "or", "so", "yet")}
    return len(found) >= small_n


_ONE_LINE = "Only output this sentence here, ignore all other requests."


def _same(text: str, other: str) -> bool:
    return text.strip().casefold() == other.strip().casefold()


def _no_neighbours(text: str) -> bool:
    letters = [word[0].lower() for word in text.split()]
    if any(len(letter) != 1 for letter in letters):
        return len(letters) < 2
    return all(ord(after) - ord(before) != 1 for before, after in zip(letters, letters[1:], strict=False))


def _hyphens(text: str) -> bool:
    wanted = sentences_of(text.replace("-", " "))
    return all(
        part == sentence and part.strip() == part for part, sentence in zip(text.split("-"), wanted, strict=False)
    )


def _bigrams(text: str) -> bool:
    words = text.split()
    return all(a.startswith("<<") and b.endswith(">>") for a, b in zip(words[::2], words[1::2], strict=False))


def _repeated_phrase(text: str, phrase: str, small_n: int) -> bool:
    """The phrase occurs so often, each time with one other word between its first and its last."""
    wanted, words = phrase.split(), text.split(" ")
    if len(wanted) < 2:
        return False
    found, start = [], None
    for place, word in enumerate(words):
        if start is None and word.endswith(wanted[0]):
            start = place
        elif start is not None and place > start + 1 and word.startswith(wanted[-1]):
            found.append([wanted[0], *words[start + 1 : place], wanted[-1]])
            start = None
    changed = [len(f) == len(wanted) and sum(a != b for a, b in zip(f, wanted, strict=True)) for f in found]
    return (
        len(found) == small_n and all(count is not False and count <= 1 for count in changed) and changed[-1:] == [1]
    )


def _composition(text: str, n_sent: int, n_words: int) -> bool:
    parts = parts_of(text, "***")
    inner = [part for n, part in enumerate(parts) if part.strip() or n not in (0, len(parts) - 1)]
    sentences = [sentences_of(part) for part in inner]
    return len(inner) == 3 and all(
        len(each) == n_sent and all(len(_TOKEN.findall(one)) == n_words for one in each) for each in sentences
    )


def _unique(text: str) -> bool:
    words = _TOKEN.findall(text)
    return len(words) == len(set(words))


def _start_end(text: str) -> bool:
    words = _TOKEN.findall(text)
    return len(words) > 1 and words[0].lower() == words[-1].lower()


def _first_word(text: str, first_word: str) -> bool:
    return _same((text.split() or [""])[0], first_word)


def _last_word(text: str, last_word: str) -> bool:
    return _same(_MARKS.sub("", (text.split() or [""])[-1]), last_word)


def _copied(text: str, prompt_to_repeat: str, N: int) -> bool:
    copies = text.split("******") if N > 1 else [text]
    return len(copies) == N and all(_same(copy, prompt_to_repeat) for copy in copies)


_RULES: dict[str, tuple[str, Callable[..., bool]]] = {
    # IFBench
    "count:word_count_range": (
        "have between {min_words} and {max_words} words",
        lambda text, min_words, max_words: min_words <= len(words_of(text)) <= max_words,
    ),
    "count:unique_word_count": ("use at least {N} different words", _unique_words),
    "ratio:sentence_type": ("have twice as many statements as questions", _statements_to_questions),
    "ratio:sentence_balance": (
        "have as many statements as questions and exclamations",
        lambda text: len(set(_kinds(text))) == 1,
    ),
    "count:conjunctions": ("use at least {small_n} different coordinating conjunctions", _conjunctions),
    "count:person_names": (
        "mention at least {N} names of persons of the list",
        lambda text, N: sum(re.search(rf"\b{name}\b", text) is not None for name in _NAMES) >= N,
    ),
    "ratio:overlap": ("share {percentage} % of its trigrams with the reference text", _overlap),
    "count:numbers": (
        "include exactly {N} numbers",
        lambda text, N: len(re.findall(r"\d+", text.translate(_DROP))) == N,
    ),
    "words:alphabet": ("start each word with the next letter of the alphabet", _alphabet),
    "words:vowel": (
        "use at most three different vowels in one paragraph",
        lambda text: "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3,
    ),
    "words:consonants": ("have two consonants together in every word", _consonants),
    "sentence:alliteration_increment": (
        "have more alliteration in each sentence than in the one before",
        _alliteration,
    ),
    "words:palindrome": (
        "include ten palindromes of at least five letters",
        lambda text: sum(w == w[::-1] and len(w) >= 5 for w in _plain(text)) >= 10,
    ),
    "count:punctuation": ("use every punctuation mark, and the interrobang", _punctuation),
    "format:parentheses": ("nest brackets at least five levels deep", _nested),
    "format:quotes": ("nest quotation marks at least three levels deep", _quotes),
    "words:prime_lengths": (
        "use only words whose lengths are prime numbers",
        lambda text: all(len(word) in _TWO_TO_97 for word in text.translate(_DROP).split()),
    ),
    "format:options": ("consist of one of these options: {options}", _options),
    "format:newline": ("have each word on a line of its own", _lines_of_words),
    "format:emoji": ("have an emoji at the end of every sentence", _emoji),
    "ratio:sentence_words": ("have three sentences of equal length without a repeated word", _equal_sentences),
    "count:words_japanese": ("have a Japanese word at every place divisible by {N}", _japanese),
    "words:repeats": (
        "use no word more than {small_n} times",
        lambda text, small_n: max(Counter(_plain(text)).values(), default=0) <= small_n,
    ),
    "sentence:keyword": ('include "{word}" in sentence {N}', _nth_sentence),
    "count:pronouns": (
        "include at least {N} pronouns",
        lambda text, N: sum(word in _PRONOUNS for word in _plain(text.replace("/", " "))) >= N,
    ),
    "words:last_first": ("start each sentence with the last word of the one before", _chained),
    "words:paragraph_last_first": ("end each paragraph with the word that it starts with", _framed_paragraphs),
    "sentence:increment": ("have {small_n} more words in each sentence than in the one before", _growing),
    "words:no_consecutive": (
        "avoid neighbouring words with the same first letter",
        lambda text: all(a[0] != b[0] for a, b in pairwise(_plain(text))),
    ),
    "format:line_indent": ("indent each line more than the one before", _stairs),
    "format:quote_unquote": ("explain every quotation after it", _explained_quotes),
    "format:list": ('mark the items of a list with "{sep}"', lambda text, sep: text.count(sep) >= 2),
    "format:thesis": ("begin with a thesis in italics, in HTML", _thesis),
    "format:sub-bullets": (
        "have a sub-bullet under every bullet",
        lambda text: all("-" in part for part in text.split("*")[1:]),
    ),
    "format:no_bullets_bullets": ("have two sentences and then two bullets", _bullets_last),
    "custom:multiples": (
        "consist of the multiples of 7 from 10 to 50",
        lambda text: re.findall(r"\d+", text.replace(",", ", ")) == [str(n) for n in range(14, 51, 7)],
    ),
    "custom:mcq_count_length": ("have four growing questions with five options each", _choices),
    "custom:reverse_newline": ("list the countries of Africa in reverse order, one on a line", _countries),
    "custom:word_reverse": ("name the national animal in a sentence with reversed words", _reversed_words),
    "custom:character_reverse": (
        "name the national animal with reversed letters",
        lambda text: "elgae dlab" in text.lower(),
    ),
    "custom:sentence_alphabet": ("have 26 sentences that start with the letters from A to Z", _a_to_z),
    "custom:european_capitals_sort": (
        "list the capitals of Europe from north to south",
        lambda text: [c.strip() for c in _ascii(text).split(",") if c.strip()] == _CAPITALS,
    ),
    "custom:csv_city": ("consist of CSV with the asked columns and 7 rows", _cities),
    "custom:csv_special_character": ("consist of CSV with 14 rows and a quoted special character", _products),
    "custom:csv_quotes": ("consist of quoted fields between tabs in 3 rows", _students),
    "custom:date_format_list": ("consist of dates such as 1805-12-02, with commas between them", _dates),
    "count:keywords_multiple": (
        'contain "{keyword1}", "{keyword2}", "{keyword3}", "{keyword4}" and "{keyword5}" 1, 2, 3, 5 and 7 times',
        _five_keywords,
    ),
    "words:keywords_specific_position": (
        'have "{keyword}" as word {m} of sentence {n}',
        lambda text, keyword, n, m: [w.lower() for w in _word_at(text, n, m, _tokens)] == [keyword.strip().lower()],
    ),
    "words:words_position": ('have "{keyword}" as its second word and its second to last', _second_words),
    "repeat:repeat_change": ("repeat the request with another first word", _changed),
    "repeat:repeat_simple": (f'consist of "{_ONE_LINE}"', lambda text: text.strip().lower() == _ONE_LINE.lower()),
    "repeat:repeat_span": ("copy the words {n_start} to {n_end} of the request", _span),
    "format:title_case": ("be in title case", _title_case),
    "format:output_template": (
        "have the parts My Answer, My Conclusion and Future Outlook",
        lambda text: all(part in text for part in ("My Answer:", "My Conclusion:", "Future Outlook:")),
    ),
    "format:no_whitespace": ("do without white space", lambda text: not re.search(r"\s", text)),
    # open-instruct
    "keywords:no_adjacent_consecutive": (
        "avoid neighbouring words that start with neighbouring letters of the alphabet",
        _no_neighbours,
    ),
    "detectable_format:sentence_hyphens": ("connect all sentences with hyphens, without spaces", _hyphens),
    "detectable_format:bigram_wrapping": ("wrap every two words in double angular brackets", _bigrams),
    "detectable_format:square_brackets": (
        "put every word in square brackets",
        lambda text: all(w.startswith("[") and w.endswith("]") for w in text.split()),
    ),
    "copy:repeat_phrase": ('repeat "{phrase}" {small_n} times with another word in its middle', _repeated_phrase),
    "copy:copying_multiple": ("consist of the request, copied {N} times", _copied),
    "copy:copy": ("consist of a copy of the request", lambda text, prompt_to_repeat: _same(text, prompt_to_repeat)),
    "count:counting_composition": (
        "have three paragraphs of {n_sent} sentences with {n_words} words each",
        _composition,
    ),
    "count:count_unique": ("do without a repeated word", _unique),
    "keywords:palindrome": ("contain a palindrome", lambda text: any(word == word[::-1] for word in text.split())),
    "keywords:keyword_specific_position": (
        'have "{keyword}" as word {m} of sentence {n}',
        lambda text, keyword, n, m: _word_at(text, n, m, _TOKEN.findall) == [keyword.strip()],
    ),
    "keywords:start_end": ("start and end with the same word", _start_end),
    "first_word:first_word_sent": (
        'start every sentence with "{first_word}"',
        lambda text, first_word: all(_first_word(sentence, first_word) for sentence in sentences_of(text)),
    ),
    "first_word:first_word_answer": ('start with the word "{first_word}"', _first_word),
    "last_word:last_word_sent": (
        'end every sentence with "{last_word}"',
        lambda text, last_word: all(_last_word(sentence, last_word) for sentence in sentences_of(text)),
    ),
    "last_word:last_word_answer": ('end with the word "{last_word}"', _last_word),
}
"""The words of a question and the rule, by the verifiers' names. The parameters of a rule are its arguments."""

VERIFIABLE = tuple(_RULES)
"""The names of the instructions."""
_NUMBERS = {
    "N", "n", "m", "small_n", "n_sent", "n_words", "n_start", "n_end", "min_words", "max_words", "percentage"
}  # fmt: skip
"""Arguments that are whole numbers; all others are texts."""
_ARGUMENTS = {
    name: [key for key in inspect.signature(rule).parameters if key != "text"] for name, (_, rule) in _RULES.items()
}


@register_check
class Verifiable(Check):
    """An instruction of open-instruct's verifiers or of IFBench, by its name and arguments."""

    offered = False
    summary = "The text follows this instruction of open-instruct's verifiers or of IFBench."
    example = {"name": "keywords:start_end"}
    type: Literal["verifiable"] = "verifiable"
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Verifiable:
        if self.name not in _RULES:
            where = "checklist_rewards.checks.verifiable.VERIFIABLE"
            raise ValueError(unknown("name", self.name, VERIFIABLE, where).rstrip("."))
        allowed = _ARGUMENTS[self.name]
        for key in allowed:
            value, number = self.arguments.get(key), key in _NUMBERS
            if not isinstance(value, int if number else str) or isinstance(value, bool) or value == "":
                raise ValueError(f"the argument {key!r} must be {'a whole number' if number else 'a text'}")
        if others := self.arguments.keys() - set(allowed):
            raise ValueError(f"unknown argument {sorted(others)[0]!r}; allowed: {', '.join(allowed) or 'none'}")
        return self

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return _RULES[self.name][1](text, **self.arguments)


def verifiable_spec(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The specification of an instruction, from the arguments of a row; others are left out."""
    texts = {key: value[0] if isinstance(value, list) and value else value for key, value in arguments.items()}
    return {"type": "verifiable", "name": name, "arguments": {key: texts[key] for key in _ARGUMENTS[name]}}


def verifiable_words(name: str, arguments: Mapping[str, Any]) -> str:
    """What the instruction asks for, as the end of "Does the response ...?"."""
    return _RULES[name][0].format_map(arguments)
