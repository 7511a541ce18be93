"""What keys and words of rubrics mean for a score: what may not be dropped, which sections hold faults, and the parts
of one criterion (values at keys that may lead inside, tags, expected answers).

>>> way_to_keep("priority", "P0")
'Map it with --item-key weight=priority and --weights P0=NUMBER, or --item-key category=priority'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any, Literal

from checklist_rewards.checklists import NO, YES
from checklist_rewards.datasets.names import ANSWERS, GRADES, RANKS, UNUSED
from checklist_rewards.datasets.texts import number_in
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.cells import at, decoded

LOSES_A_SCORE = re.compile(
    r"weight|points|score|importance|priorit|severity|mandatory|(?:pass|fail|award)_?(?:criteri|condition|if|on|when)"
    r"|applies_if|only_if|depends|annotations|penal|deduct|polarit|negative|positive|invert|revers|direction|expected"
    r"|desired|threshold|gate|veto|(?:sub|child).*(?:items|criteri)|gewicht|punkte|poids|puntos|ponder|权重|分值|分数"
    r"|\A(?:levels?|scale|anchors|grades?|choices|scoring|ratings?|signs?|required|options|check|marks?|bonus|children"
    r"|sub_?(?:tasks|questions)|tier|effect|peso|pontos|disabled|deprecated)\Z",
    re.IGNORECASE,
)
"""Keys that are only dropped if the user names them."""

_COUNTERS = re.compile(
    r"#|(?:\w+_)?(?:id|idx|index|number|num|no)|n|order|rank|position|step|turn|line|page|version|year", re.IGNORECASE
)
"""Keys whose numbers are no part of a score."""
_PREFIX = re.compile(r"\s*(?:\[([^\[\]]{1,30})\]|\(([^()]{1,30})\)|([^:.!?]{1,30}):|([❌✗✘👎⛔🚫]))[:\s]\s*")
_SIGN = re.compile(r"invert|revers|negat|bad|penal|deduct|pitfall|fault|sign", re.IGNORECASE)
_GATE = re.compile(r"required|mandatory|must(?!_be)|hard|gate|veto|critical|essential", re.IGNORECASE)
_ANSWER = re.compile(r"\A(?:y|n)\Z|\b(?:yes|no|true|false)\b", re.IGNORECASE)
_NOT_RANKED = re.compile(r"difficult|confiden|complex|quality|lang", re.IGNORECASE)
_BAD = re.compile(
    r"(?:negatives?|penalt(?:y|ies)|deductions?|demerits?|malus|bad|violations?|pitfalls?|cons?|not|must not"
    r"|should not|do not|donts?|never|avoid|exclude[sd]?|exclusions?|forbidden|prohibited|disallowed|not allowed"
    r"|unwanted|undesir(?:ed|able)|red flags?|weaknesses|disqualifiers?|deal ?breakers?|fail(?:s|ed)?(?: if| when)?"
    r"|minus|[-−–]"
    r"|(?:failure|rejection) criteri(?:a|on)"
    r"|revers(?:e|ed)|inverse|subtract(?:s|ive|ions?)?|deduct(?:s|ive)?"
    r"|verboten|abzüge?|interdits?|à éviter|prohibido|evitar|禁止|扣分项?|减分项?|負面|负面|減点)"
    r"(?: (?:criteri(?:a|on)|items?|points?|rules?|rubrics?|aspects?|signs?|behaviou?rs?|have|include|contain|do|be))?"
)
"""Names of kinds and sections of faults, in the forms of [`plain`]."""
_PERHAPS_BAD = re.compile(
    r"(?:[^ ]+ ){0,2}(?:errors?|mistakes?|faults?|failures?|flaws?|problems|violations|weaknesses|defects|fehler"
    r"|mängel|erreurs?|errores|错误)"
)
_GOOD = re.compile(
    r"(?:pros|strengths?|positives?|good|green flags?|includes?|dos?|pass(?:es|ed)?|plus|\+|rewards?|merits?|credits?"
    r"|allowed|desired|wanted)"
    r"(?: (?:criteri(?:a|on)|items?|points?|rules?|aspects?|signs?|behaviou?rs?|if|when))?"
)
_INSIDE = re.compile(r"any_?of|all_?of|one_?of|alternatives|items|questions|checks|rules|claims|facts|requirements")
_INLINE_LEVEL = re.compile(r"(?:\A|[;,.|(\n]|\s-)\s*\(?(\d{1,3})\)?\s*(?:points?|pts?)?\s*[:=–-]\s*[^\W\d]")


@lru_cache(maxsize=4096)
def plain(name: str | None) -> str:
    """A name in lower case, with spaces: "Must_Not-have" is "must not have"."""
    text = re.sub(r"[\s_-]+", " ", str(name).strip().lower()).replace("'", "").strip()
    return text or str(name).strip()


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def holds_faults(section: str | None) -> Literal["yes", "perhaps", "no"]:
    """Whether the criteria of a section or of a kind are faults, by its name."""
    name = plain(section)
    return "yes" if _BAD.fullmatch(name) else "perhaps" if _PERHAPS_BAD.fullmatch(name) else "no"


def is_opposed(section: str, others: Collection[str]) -> bool:
    """Whether the only other section is one of good signs ("strengths"), so that this one may hold faults."""
    return (
        len(others) == 1
        and all(_GOOD.fullmatch(plain(name)) for name in others)
        and not _GOOD.fullmatch(plain(section))
    )


def is_rank(name: str | None) -> bool:
    """Whether a section or a kind is a rank ("must", "nice to have"), which may stand for a weight."""
    return plain(name) in RANKS


def holds_levels(text: str) -> bool:
    """Whether a text has the levels of a grade inside ("0: wrong; 2: right")."""
    numbers = [int(number) for number in _INLINE_LEVEL.findall(text)]
    return len(numbers) > 1 and (sorted(set(numbers)) in (numbers, numbers[::-1]))


def fault_named(text: str) -> tuple[str | None, str]:
    """The name of a fault or of a rank that a text begins with, and the text without it.

    >>> fault_named("[Negative] Names Timbuktu."), fault_named("Note: names Bamako.")
    (('Negative', 'Names Timbuktu.'), (None, 'Note: names Bamako.'))
    """
    if found := _PREFIX.match(text):
        *names, sign = found.groups()
        name = next((part.strip() for part in names if part and part.strip()), "")
        if sign or (name and (holds_faults(name) == "yes" or is_rank(name))):
            return name or "negative", text[found.end() :]
    return None, text


def way_to_keep(key: str, value: Any, *, inside: bool = True, numbers: bool = True) -> str | None:
    """How a field that may be part of the score can be kept, as the beginning of a sentence; None if it may be
    dropped. Of a field that is not `inside` an item, only the key is looked at. With `numbers`, a number under any key
    may be a weight."""
    value = decoded(value)
    number = is_number(value) or (isinstance(value, str) and number_in(value) is not None)
    as_weight = f"Map it to a field of the items (such as --item-key weight={key})"
    if inside and isinstance(value, Mapping):
        inner = next((name for name in value if LOSES_A_SCORE.search(str(name))), None)
        if inner is not None:
            return f"Map it to a field of the items (such as --item-key weight={key}.{inner})"
    if inside and isinstance(value, str) and plain(value) in UNUSED:
        return "Remove the criteria that are not in use"
    if inside and isinstance(value, str) and holds_levels(value):
        return "List the levels under 'options' (a label and a value from 0 to 1 each)"
    answers = isinstance(value, str) and len(value) < 30 and _ANSWER.search(value) is not None
    if inside and (isinstance(value, bool) or answers):
        if _SIGN.search(key):
            return "Write the sign into the weights"
        gate = f"Map it with --item-key required={key} if it makes a gate"
        return gate if _GATE.search(key) else f"{gate}, with --item-key expected={key} if it earns the points"
    if inside and numbers and number and not _COUNTERS.fullmatch(key):
        return as_weight
    words = value if isinstance(value, list) else [value]
    if inside and isinstance(value, list):
        if any(isinstance(word, Mapping) for word in words) or (words and _INSIDE.fullmatch(key.lower())):
            return "Write its entries as criteria of their own"
    if inside and isinstance(value, str) and plain(key) in GRADES:
        return f"Give the levels their numbers with --weights {key}=NUMBER"
    if inside and not _NOT_RANKED.search(key):
        for word in words:
            if isinstance(word, str) and len(word) < 40 and (is_rank(word) or _BAD.fullmatch(plain(word))):
                return f"Map it with --item-key weight={key} and --weights {word}=NUMBER, or --item-key category={key}"
    if not LOSES_A_SCORE.search(key):
        return None
    if number or (isinstance(value, str) and len(value.split()) < 3):
        return as_weight if number else f"{as_weight[:-1]} and --weights {value}=NUMBER)"
    return "Write what it means into the criteria or their weights"


# --- the parts of one criterion --------------------------------------------------------------------------------------


def keys_of(value: Mapping[Any, Any]) -> str:
    """The keys of a mapping, for error messages."""
    return ", ".join(map(str, value)) or "none"


def taken(rest: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, which is removed; what stands around it is left under dotted keys. Of a key with a
    star, the only value that is not null."""
    if key in rest:
        return rest.pop(key)
    if "." not in key:
        return None
    if "*" in key:
        outer, _, pattern = key.rpartition(".")
        inner = at(rest, outer)
        names = [name for name, found in inner.items() if fnmatch(name, pattern) and found is not None]
        return taken(rest, f"{outer}.{names[0]}") if len(names) == 1 else None
    value = at(rest, key)
    if value is not None:
        outer = next(name for name in rest if key.startswith(f"{name}."))
        inner = decoded(rest[outer])
        rest.pop(outer)
        name = key[len(outer) + 1 :]
        rest |= {f"{outer}.{other}": content for other, content in inner.items() if other != name.partition(".")[0]}
    return value


def axis_of(rest: dict[str, Any]) -> str | None:
    """The first tag "axis:…" of a HealthBench criterion, or else "cluster:…"; it is removed from the tags."""
    tags = rest.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    tag = next((tag for kind in ("axis:", "cluster:") for tag in tags if tag.startswith(kind)), None)
    if tag is None:
        return None
    rest["tags"] = [other for other in tags if other != tag]
    return tag.partition(":")[2]


def expecting(expected: Any, options: Any, where: str, key: str) -> list[dict[str, Any]] | None:
    """The options of a question with an expected answer; None for yes, which is what items expect."""
    answer = ANSWERS.get(str(expected).strip().lower())
    if answer is None or options is not None:
        raise ChecklistError(
            f"{where}: {key!r} must be yes or no, for a question without options; got {expected!r:.60}."
        )
    return None if answer == YES else [{"label": YES, "value": 0.0}, {"label": NO, "value": 1.0}]


def answer_in(value: Any) -> bool:
    """Whether a value is an answer: true, false, "yes", "N"."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ANSWERS)


def key_of_grades(value: Any) -> str | None:
    """The key of several mappings whose values are different names of levels: A, B, C; None if there is none."""
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(entry, Mapping) for entry in value):
        return None
    for key in value[0]:
        names = {plain(entry[key]) for entry in value if isinstance(entry.get(key), str)}
        if len(names) == len(value) and names <= GRADES and not any(map(is_rank, names)):
            return str(key)
    return None
