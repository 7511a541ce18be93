"""Criteria that are written as text: numbered or bulleted lists, tables in Markdown, points inside a text ("[+3] Names
the capital."), and levels of a grade.

>>> entries_of("Must:\\n- Names Bamako\\n- Is short\\nMust not:\\n- Names Timbuktu")
[('Must', 'Names Bamako'), ('Must', 'Is short'), ('Must not', 'Names Timbuktu')]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from checklist_rewards.datasets.names import GRADES
from checklist_rewards.judges.faults import is_question
from checklist_rewards.validation import is_finite

_ASCII = {0xFF01 + place: 0x21 + place for place in range(94)} | {ord("【"): "[", ord("】"): "]"}
"""Signs in full width as those that the patterns have."""
_LINE = re.compile(r"^[ \t]*(?:(\d{1,3})(?:[.):][ \t]+|[、．）：](?!\d)[ \t]*)|[-*•●][ \t]+|・[ \t]*)")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<marked>\S.*)|\*\*(?P<bold>[^*]+?):?\*\*:?|(?P<plain>[^:]{1,80}):")
_YAML = re.compile(r"\s*- [\w ]+:\s[^\n]*\n {2,}[\w ]+:\s")
_ROW = re.compile(r"^[ \t]*\|(.+)\|[ \t]*$", re.MULTILINE)
_LEVEL_KEY = re.compile(r"\A(?:orig_)?score_?(\d{1,2})(?:_description)?\Z", re.IGNORECASE)
_LEVEL_LINE = re.compile(
    r"^[ \t]*(?:[-*•][ \t]+)?\**(?:score|level|grade|rating)[ \t]*(\d{1,2})\**[ \t]*[:=)–-]\**[ \t]*", re.I | re.M
)
_NUMBER_LINE = re.compile(r"^[ \t]*(?:[-*•][ \t]+)?\**([+-]?\d{1,3})\**[ \t]*[.:=)–-]\**[ \t]+", re.MULTILINE)
_DIGITS = r"\d+(?:\.\d+|,\d\d?(?!\d))?"
_UNIT = (
    r"(?:points?|pts?\.?|marks?|punkte?|puntos?|pontos?|punti|punkt(?:y|ów)|pkt\.?|puan|điểm|балл(?:а|ов)?|[分点點점]|"
    r"نقاط|نقطة|درجات|درجة|अंक|คะแนน)"
)
_NUMBER = re.compile(rf"\s*([+−-]?{_DIGITS})\s*(?:/\s*(?:10|100)|%|{_UNIT})?\s*", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\((\d+(?:\.\d+)?)\s*(?:points?|pts?\.?)?\)\Z", re.IGNORECASE)
_AMOUNT = rf"[+−-]{_DIGITS}\s*(?:{_UNIT}|%)?|{_DIGITS}\s*(?:{_UNIT}|%)"
_NAMED = r"(?:importance|weight|points|score|权重|分值|重要度|配点|배점|вес)\s*[:=]\s*([^()\[\]]{1,20})"
_GAP = r"(?:\s+|(?=[\u3040-\u9fff]))"  # Chinese and Japanese have no space after a mark
_BEFORE = re.compile(
    rf"\A\s*(?:[\[(]\s*({_AMOUNT})\s*[\])]\s*[:–-]?|([+−-]{_DIGITS})\s*:|([+−-]?{_DIGITS}\s*{_UNIT})\s*[:–-]"
    rf"|[\[(]{_NAMED}[\])]){_GAP}",
    re.IGNORECASE,
)
_AFTER = re.compile(
    rf"\s*(?:[\[(]\s*(?:worth\s+)?({_AMOUNT})\s*[\])]|[\[(]{_NAMED}[\])]|[–—:-]{_GAP}([+−-]?{_DIGITS}\s*{_UNIT}))\s*[.。]?\s*\Z",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    rf"\A\s*([^:()\[\]]{{1,60}}?)\s*[\[(]\s*(?:weight\s*[:=]?\s*)?({_AMOUNT}|[01]?\.\d+)\s*[\])]\s*[:–—-]{_GAP}",
    re.IGNORECASE,
)
"""A label with its points: "Accuracy (40%): ..."."""
_TASK = re.compile(r"\A\s*\[[ xX✓✔]?\]\s+")
_DOUBTFUL = (
    re.compile(r"\A\s*[+−-]\s?\d+(?:\.\d+)?(?=\s)"),
    re.compile(
        r"(?:\s|(?<=[\u3040-\u9fff。]))(?:[\[(]\s*(?:(?:weight|points?|score)\s*)?\d+(?:\.\d+)?\s*[\])]|[x×/]\s?\d+(?:\.\d+)?)\s*\Z",
        re.I,
    ),
    re.compile(
        r"\?\s*(?:[\[(]\s*ANSWER\s*[\])]|(?:[-=]+>|[→:])\s*ANSWER)\s*\.?\s*\Z".replace(
            "ANSWER",
            "(?:yes|no|true|false|y|n|是|否|はい|いいえ|예|네|아니[요오]|да|нет|ja|nein|oui|non|s[íì]|sim|não|نعم|لا)",
        ),
        re.I,
    ),
    re.compile(r"\A\s*(?:[*★⭐]\s?)+(?=\s|\w)"),
)
_POINTS = re.compile(
    rf"\b(?:worth|deduct|deduction of|subtract|minus|award|add|loses?)\s+(?:up to\s+)?[+-]?{_DIGITS}\s*{_UNIT}\b"
    rf"|[加扣減减得]\s?{_DIGITS}\s?[分点點]",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:is|are|was|were|does|do|did|has|have|can|could|will|would|should)\s+"
    r"(?:the|this|that|these|those|there|it|they|all|each|every|any|response|answer)\b",
    re.IGNORECASE,
)
"""How a question begins that has lost its mark."""
STATEMENT = "Does this describe the response?\n{statement}"


def question_of(text: str, as_it_is: bool = False, guidelines: str | None = None) -> str:
    """The question that is asked about a criterion, after its guidelines: itself if it is a question or `as_it_is` (it
    has options or a check), otherwise whether it is true."""
    text = text.strip()
    if not as_it_is and not is_question(text) and (text.endswith(".") or not _ASKS.match(text)):
        text = STATEMENT.format(statement=text)
    return text if not guidelines else f"{guidelines.strip()}\n\n{text}"


def is_list(text: str) -> bool:
    """Whether a text has several numbered or bulleted entries, or one with a number."""
    return len(entries_of(text)) > 1 or text.lstrip()[:2] in ("1.", "1)")


def entries_of(text: str) -> list[tuple[str | None, str]]:
    """The entries of a numbered or bulleted text, with their headings; a text without either is one entry.

    A line before the entries that ends with a colon is left out. If there are several such lines, or if it has at most
    three words ("Must not:"), they are headings. Entries below an entry belong to it, or have it as their heading.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    indents = [_indent(line) for line in lines if _LINE.match(line)]
    if not indents:
        return [(None, " ".join(text.split()))]
    first = next(line for line in lines if _LINE.match(line))
    deeper = [indent for indent in indents[1:] if indent >= indents[0] + 2]
    stripped = len(deeper) == len(indents) - 1 and deeper and not _heading(first[_LINE.match(first).end() :])  # type: ignore[union-attr]
    base = min(deeper) if stripped else indents[0]
    found: list[tuple[str | None, str]] = []
    heading: str | None = None
    above: str | None = None
    headings: list[str] = []
    for line in lines:
        mark = _LINE.match(line)
        said = without_box(line[mark.end() :].strip() if mark else line.strip())
        if mark is None:
            if (name := _heading(said)) is not None:
                heading, above = name, None
                headings.append(name)
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]} {said}")
            else:
                found.append((None, said))
        elif _indent(line) >= base + 2 and found:
            if above is None and (name := _heading(found[-1][1])) is not None:
                above = name
                found.pop()
            if above is not None:
                found.append((above, said))
            else:
                found[-1] = (found[-1][0], f"{found[-1][1]}; {said}")
        else:
            above = None
            found.append((heading, said))
    if len(headings) == 1 and len(headings[0].split()) > 3:
        found = [(None if section == headings[0] else section, said) for section, said in found]
    return [(section, " ".join(said.split())) for section, said in found]


def doubtful_numbers(text: str) -> str | None:
    """The first line whose number may be its points or a level of a grade instead of its place; None if there is
    none."""
    marks = [
        (mark, line) for line in text.splitlines() if (mark := _LINE.match(line)) and mark[1] and line[:1].strip()
    ]
    numbers = [int(mark[1]) for mark, _ in marks]
    colons = any(mark[0].rstrip()[-1] in ":：" and not is_question(line) for mark, line in marks)
    if colons or (len(numbers) > 1 and numbers[0] > numbers[-1]):
        return marks[0][1].strip()
    return None


def table_of(text: Any) -> list[dict[str, Any]] | None:
    """The rows of a table in Markdown, by the names of its columns, or of a list of mappings in YAML; None for any
    other value."""
    if isinstance(text, str) and _YAML.match(text):
        try:
            entries = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            return None
        return entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else None
    if not isinstance(text, str) or text.count("|") < 6:
        return None
    rows = [[cell.strip() for cell in row.split("|")] for row in _ROW.findall(text)]
    if len(rows) < 3 or not all(set(cell) <= set("-: ") and cell for cell in rows[1]):
        return None
    names = rows[0]
    if len(set(names)) < len(names) or any(len(row) != len(names) for row in rows):
        return None
    return [dict(zip(names, row, strict=True)) for row in rows[2:]]


def points_in(text: str) -> tuple[str, str] | None:
    """A text without the points that it begins or ends with, and the points; None if it has none.

    >>> points_in("[+3] Names Bamako."), points_in("Names Bamako. (2 points)")
    (('Names Bamako.', '+3'), ('Names Bamako.', '2 points'))
    """
    plain = text.translate(_ASCII)
    if found := _LABELLED.search(plain):
        return f"{found[1].strip('* ')}: {text[found.end() :]}", found[2]
    if found := _BEFORE.search(plain):
        return text[found.end() :], next(filter(None, found.groups()))
    if found := _AFTER.search(plain):
        return text[: found.start()], next(filter(None, found.groups()))
    return None


def without_box(text: str) -> str:
    """An entry of a task list without its box: "[ ] Names Bamako."."""
    return _TASK.sub("", text)


def mentions_points(text: str) -> bool:
    """Whether a text says inside how many points it is worth."""
    return _POINTS.search(text.translate(_ASCII)) is not None


def doubtful_ends(texts: Sequence[str]) -> str | None:
    """What all texts begin or end with and may be a weight or an answer, such as "[3]", "x3", "+3" or "-> no"; None if
    they do not."""
    for pattern in _DOUBTFUL:
        found = [pattern.search(text.translate(_ASCII)) for text in texts]
        numbers = [match[0].strip() for match in found if match]
        if texts and len(numbers) == len(texts) and (len(set(numbers)) > 1 or not numbers[0].strip("[]()").isdigit()):
            return numbers[0]
    return None


def levels_of(value: Any, words: Mapping[str, float] | None = None, sure: bool = True) -> list[tuple[float, str]]:
    """The levels of a grade with their descriptions, in order.

    They are `score1_description` and its like (Prometheus, BiGGen-Bench, Ragas), a mapping of numbers, a `rubric` of
    ranges with expected outcomes (G-Eval), or lines ("Score 1: ..."). With `words`, names of levels have numbers.
    Unless `sure`, a mapping or lines that may be numbered criteria have no levels.
    """
    levels: list[tuple[float, str]] = []
    if isinstance(value, str):
        marks = list(_LEVEL_LINE.finditer(value)) or (list(_NUMBER_LINE.finditer(value)) if sure else [])
        ends = [*(mark.start() for mark in marks[1:]), len(value)][: len(marks)]
        levels = [(float(m[1]), " ".join(value[m.end() : end].split())) for m, end in zip(marks, ends, strict=True)]
        return sorted(levels) if all(text for _, text in levels) else []
    if isinstance(value, list):
        return sorted((number, text) for number, text in _pairs(value) or [])
    if not isinstance(value, Mapping):
        return []
    for key, text in value.items():
        if (found := _LEVEL_KEY.match(str(key))) and isinstance(text, str) and text.strip():
            levels.append((float(found.group(1)), text.strip()))
    if not levels and value and all(isinstance(text, str) and text.strip() for text in value.values()):
        numbers = [_number(key, words) for key in value]
        if None not in numbers and (sure or not _counts_up(_keys_of_texts(value))):
            levels = [(n, text.strip()) for n, text in zip(numbers, value.values(), strict=True) if n is not None]
    ranges = value.get("rubric")
    for entry in ranges if isinstance(ranges, list) else []:
        span = entry.get("score_range") if isinstance(entry, Mapping) else None
        if isinstance(span, list | tuple) and span and all(isinstance(n, int | float) for n in span):
            levels.append((sum(span) / len(span), str(entry.get("expected_outcome", "")).strip()))
    return sorted(levels)


def head_of_levels(text: str) -> str:
    """What stands before the levels of a text: the criterion."""
    first = _LEVEL_LINE.search(text) or _NUMBER_LINE.search(text)
    return text[: first.start()].strip().removeprefix("[").removesuffix("]").strip() if first else ""


def names_levels(value: Any) -> bool:
    """Whether the keys of a mapping of texts are names of levels ("excellent", "B")."""
    names = _keys_of_texts(value)
    return len(names) > 1 and all(name.lower() in GRADES for name in names)


def doubtful_levels(value: Any) -> bool:
    """Whether a mapping from 1, 2, ... to statements may hold numbered criteria or levels."""
    names = _keys_of_texts(value)
    return len(names) > 1 and _counts_up(names) and not any(map(is_question, value.values()))


def has_signed_keys(value: Any) -> bool:
    """Whether the keys of a mapping are numbers with signs, which are weights sooner than levels."""
    names = _keys_of_texts(value)
    if not names or any(number_in(name) is None for name in names):
        return False
    return any(name[0] == "+" for name in names) or (any(name[0] in "-−" for name in names) and "0" not in names)


def options_of(levels: Any) -> list[dict[str, Any]] | None:
    """The options of a criterion from its levels: objects with a number and a text, or a mapping of one to the other.
    Their values go from 0 (the lowest) to 1. None if they cannot be read."""
    if isinstance(levels, Mapping):
        levels = [{"score": number, "description": text} for number, text in levels.items()]
    pairs = _pairs(levels)
    return None if pairs is None else scaled(pairs)


def scaled(pairs: list[tuple[float, str]]) -> list[dict[str, Any]] | None:
    """Options with values from 0 to 1; None if all numbers are equal, or two texts are."""
    lowest, highest = min(pairs, default=(0.0, ""))[0], max(pairs, default=(0.0, ""))[0]
    if lowest == highest or len({text for _, text in pairs}) < len(pairs):
        return None
    return [{"label": text, "value": (number - lowest) / (highest - lowest)} for number, text in sorted(pairs)]


def number_in(text: str) -> float | None:
    """The number of a text such as "5", "90/100" or "3 points"; None if it is something else."""
    found = _NUMBER.fullmatch(text.translate(_ASCII))
    return float(found.group(1).replace("−", "-").replace(",", ".")) if found else None


def _pairs(levels: list[Any]) -> list[tuple[float, str]] | None:
    pairs: list[tuple[float, str]] = []
    for level in levels:
        number = text = None
        for value in level.values() if isinstance(level, Mapping) else ():
            if is_finite(value):
                number = float(value)
            elif isinstance(value, str) and (written := number_in(value)) is not None:
                number = written if number is None else number
            elif isinstance(value, str) and (text is None or len(value) > len(text)):
                text = value.strip()
        if number is None or not text:
            return None
        pairs.append((number, text))
    return pairs


def _number(key: Any, words: Mapping[str, float] | None) -> float | None:
    """The number of a level: "5", "Excellent (5)", or "excellent" with its number in `words`."""
    name = str(key).strip().lower()
    if (number := (words or {}).get(name, number_in(name))) is not None:
        return number
    found = _IN_BRACKETS.search(name)
    return float(found.group(1)) if found and name[: found.start()].strip() in GRADES else None


def _keys_of_texts(value: Any) -> list[str]:
    """The keys of a mapping of texts; none of another value."""
    texts = isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
    return [str(key).strip() for key in value] if texts else []


def _counts_up(names: list[str]) -> bool:
    return names == [str(number) for number in range(1, len(names) + 1)]


def _heading(line: str) -> str | None:
    found = _HEADING.fullmatch(line.strip())
    return None if found is None else str(found["marked"] or found["bold"] or found["plain"]).strip(" :*#")


def _indent(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
