"""The criteria of other projects as checklist items.

A *shape* is how a file writes its criteria down: as items, as numbered text, as levels of a grade, as a tree, as
verifiable instructions, or as assertions. [`CriteriaReader`] reads all of them, for one [`Format`] of `formats.py`:

- A statement ("Names the capital.") becomes a question about it, in one way ([`question_of`]). A question, or a
  criterion with options, is kept.
- Weights are numbers, numbers in text ("90/100"), or words of a table. Negative weights are penalties, unless the text
  says what a good response *avoids* (`pitfalls.py`).
- What code can decide (IFEval's kinds of instructions, `contains` and its like) becomes a check. Names of machines
  ("punctuation:no_comma") are never asked.
- Fields that items do not have are dropped and *counted*. Those that sound like part of the score are an error.

All errors name the file, the row and the item.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, Literal, get_args

from checklist_rewards.checklists import NO, YES, Checklist
from checklist_rewards.checks.ifeval import question_of_instruction, spec_of_instruction
from checklist_rewards.datasets.pitfalls import Polarity, polarity
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.cells import at, decoded
from checklist_rewards.generators.parsing import is_question
from checklist_rewards.scores.scales import with_abstention

Shape = Literal["items", "text", "levels", "tree", "instructions", "asserts"]
SHAPES: tuple[str, ...] = get_args(Shape)
PARTS = ("question", "weight", "category", "required", "options", "id", "check", "expected")
"""The parts of an item that a format can name."""
STATEMENT = "Does this describe the response?\n{statement}"
LOSES_A_SCORE = re.compile(
    r"weight|points|score|importance|pass_criteria|annotations|penal|deduct|polarity|negative|positive"
    r"|\A(?:levels|scale|anchors|grades|sign)\Z",
    re.IGNORECASE,
)
"""Keys that cannot be dropped without being told to."""
WORDS: tuple[dict[str, float], ...] = (
    {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": -0.9},
    {"critical": 4.0, "major": 3.0, "minor": 2.0, "additional": 1.0},
)
"""Weights in words: those of Rubrics as Rewards (arXiv:2507.17746) and of ProfBench (arXiv:2510.18941)."""

_LARGEST = 1e300
_LEVELS = ("levels", "scale", "anchors", "grades", "scoring", "choices")
_BAD = ("negative", "penalty", "deduction", "bad", "violation", "pitfall")
_COUNTERS = re.compile(
    r"id|idx|index|number|num|no|n|order|rank|position|step|turn|line|page|version|year", re.IGNORECASE
)
"""Keys whose numbers are no part of a score."""
_ASKS = re.compile(
    r"(?:is|are|was|were|does|do|did|has|have|can|could|will|would|should)\s+"
    r"(?:the|this|that|these|those|there|it|they|all|each|every|any|response|answer)\b",
    re.IGNORECASE,
)
"""How a question begins that has lost its mark."""
_KIND = re.compile(r"\A\s*(essential|important|optional|pitfall)(?: criteri(?:a|on))?\s*:\s*", re.IGNORECASE)
_MACHINE = re.compile(r"[a-z][a-z0-9_]*:[a-z0-9][a-z0-9_]*|(?:verify|validate)_[a-z_]+")
_NUMBER = re.compile(r"\A\s*([+-]?\d+(?:\.\d+)?)\s*(?:/\s*(?:10|100)|%|points?|pts?)?\s*\Z", re.IGNORECASE)
_LINE = re.compile(r"^[ \t]*(?:\d{1,3}[.):]|[-*•])[ \t]+", re.MULTILINE)
_IMPORTANCE = re.compile(
    r"\s*[(\[](?:importance|weight|points|score)\s*[:=]\s*([^()\[\]]{1,20})[)\]]\s*\Z", re.IGNORECASE
)
_TAG = re.compile(r"\s*\[([A-Z][\w ]{1,30})\]\s*\Z")
_LEVEL = re.compile(r"\A(?:orig_)?score_?(\d{1,2})(?:_description)?\Z", re.IGNORECASE)
_TITLES = ("name", "title", "section", "dimension", "category")
_LISTS = ("rubric", "rubrics", "sections", "criteria", "items")
_OF_A_CHECKLIST = ("id", "source_method", "generation_level", "created_at", "input", "source", "model")


@dataclass(slots=True)
class Counts:
    """What an import took, changed and left; complete once all rows have been read."""

    dropped: Counter[str] = field(default_factory=Counter)
    """Fields of items that were dropped, with the number of items that had them."""
    taken: Counter[str] = field(default_factory=Counter)
    """Fields that change the score, with the number of items that have them: weight, required, options, check."""
    pitfalls: Counter[Polarity] = field(default_factory=Counter)
    """What the texts of items with a negative weight say."""
    undecided: str | None = None
    """The first item with a negative weight whose text does not say whether it is a fault."""
    words: dict[str, float] = field(default_factory=dict)
    """Weights in words that were replaced by numbers."""


@dataclass(frozen=True, slots=True)
class CriteriaReader:
    """Converts the criteria of one row to a checklist.

    Args:
        source (`str`): the name of the format, for the column `checklist_source`.
        shape (`str`): one of `SHAPES`.
        keys (mapping): the key of each of `PARTS` that the items have; dotted for a key inside another.
        counts ([`Counts`]): receives what was dropped, taken and changed.
        default_weight (`float`, *optional*): the weight of a criterion without one, where the format allows that.
        words (mapping, *optional*): weights in words.
        drop (collection of `str`): keys that may be dropped although they sound like part of the score.
        pitfalls (`str`, *optional*): `"fault"` or `"avoided"`: what texts say that do not say it themselves.
        ask_pitfalls (`bool`): whether such texts are an error as long as `pitfalls` is None.
        whole (`bool`): whether the criteria are the whole row, with its other columns.
        needed (set of `str`): the parts that every row must have, in its items or beside them.
    """

    source: str
    shape: str
    keys: Mapping[str, str]
    counts: Counts
    default_weight: float | None = None
    words: Mapping[str, float] | None = None
    drop: frozenset[str] = frozenset()
    pitfalls: Literal["fault", "avoided"] | None = None
    ask_pitfalls: bool = False
    needed: frozenset[str] = frozenset()
    whole: bool = False

    def checklist(
        self,
        value: Any,
        where: str,
        row: Mapping[str, Any] | None = None,
        abstaining: frozenset[int] = frozenset(),
        section_weights: Mapping[str, Any] | None = None,
    ) -> Checklist:
        """Convert the criteria of a row.

        Args:
            value: what the row has at the format's key.
            where (`str`): the place to name in an error.
            row (mapping, *optional*): the row, for parts of items that stand beside them in lists.
            abstaining (set of `int`): items at these indices (from 0) allow "cannot_assess".
            section_weights (mapping, *optional*): factors of the weights by section.

        Raises:
            ChecklistError: If the criteria are not valid. The message begins with `where`.
        """
        value = decoded(value)
        guidelines, criteria = getattr(self, f"_{self.shape}")(value, where)
        if row:
            criteria = self._with_lists_of(row, criteria, where)
        items = []
        for number, (section, criterion) in enumerate(criteria, start=1):
            place = f"{where}, item {number}"
            item = self._item(criterion, section, guidelines, place)
            if section_weights is not None:
                share = section_weights.get(section or "")
                if not isinstance(share, int | float) or isinstance(share, bool):
                    raise ChecklistError(f"{place}: the section {section!r} has no weight; got {share!r:.60}.")
                item["weight"] = share * item["weight"]
            items.append(item)
        origin = value if isinstance(value, Mapping) else {}
        source = origin.get("source_method") or origin.get("source") or self.source
        checklist = Checklist.parse({"items": items, "source": source, "model": origin.get("model")}, where)
        if not abstaining:
            return checklist
        variants = enumerate(zip(checklist.items, with_abstention(checklist).items, strict=True))
        abstaining_items = tuple(free if place in abstaining else item for place, (item, free) in variants)
        return checklist.model_copy(update={"items": abstaining_items})

    # --- shapes: the guidelines, and the criteria with their sections ---------------------------------------------

    def _items(self, value: Any, where: str) -> tuple[str | None, list[tuple[str | None, Any]]]:
        guidelines = None
        while isinstance(value, Mapping):
            key = next((key for key in _LISTS if key in value), None)
            lists = [decoded(entry) for entry in value.values()]
            if key is None and value and all(isinstance(entry, str) for entry in lists):
                return None, [(str(name), entry) for name, entry in value.items()]
            if key is None and value and all(isinstance(entry, Mapping) for entry in lists):
                return None, [(str(name), decoded(entry)) for name, entry in value.items()]
            if key is None and any(lists) and all(isinstance(entry, list) for entry in lists):
                return None, [(str(name), one) for name, entry in value.items() for one in decoded(entry)]
            if key is None:
                raise ChecklistError(f"{where}: a rubric needs criteria or sections; the keys are {keys_of(value)}.")
            guidelines = value.get("guidelines", guidelines)
            used = (key, "guidelines", *_OF_A_CHECKLIST)
            self._drop("rubric.", {name: content for name, content in value.items() if name not in used}, where)
            value = decoded(value[key])
        if guidelines is not None and not isinstance(guidelines, str):
            raise ChecklistError(f"{where}: 'guidelines' must be a string, got {guidelines!r:.60}.")
        if isinstance(value, str) and is_question(value):
            return guidelines, [(None, value)]
        if not isinstance(value, list):
            raise ChecklistError(
                f"{where}: expected a list of questions or criteria, got {type(value).__name__} {value!r:.60}."
            )
        criteria: list[tuple[str | None, Any]] = []
        for number, entry in enumerate(value, start=1):
            entry = decoded(entry)
            if not isinstance(entry, Mapping) or isinstance(entry.get("criteria", ""), str):
                criteria.append((None, entry))
                continue
            title = next((key for key in _TITLES if entry.get(key)), "")
            if not isinstance(entry["criteria"], list):
                raise ChecklistError(
                    f"{where}, section {number}: 'criteria' must be a list, got {entry['criteria']!r:.60}."
                )
            rest = {name: entry[name] for name in entry if name not in (title, "criteria", "id")}
            self._drop("section.", rest, f"{where}, section {number}")
            criteria += [(str(entry[title]) if title else None, criterion) for criterion in entry["criteria"]]
        return guidelines, criteria

    def _text(self, value: Any, where: str) -> tuple[None, list[tuple[None, Any]]]:
        """Numbered or bulleted text; each entry may end with its importance and a tag in brackets."""
        if not isinstance(value, str) or not value.strip():
            raise ChecklistError(f"{where}: expected a text with numbered criteria, got {value!r:.60}.")
        criteria = []
        for text in split_text(value):
            item: dict[str, Any] = {}
            while True:
                if found := _IMPORTANCE.search(text):
                    item["weight"] = found.group(1)
                elif found := _TAG.search(text):
                    item["category"] = found.group(1)
                else:
                    break
                text = text[: found.start()]
            criteria.append((None, {"question": text} | item))
        return None, criteria

    def _levels(self, value: Any, where: str) -> tuple[None, list[tuple[None, Any]]]:
        """One item whose options are the levels of a grade."""
        if not isinstance(value, Mapping):
            raise ChecklistError(f"{where}: expected a mapping with levels, got {value!r:.60}.")
        levels = levels_of(value)
        if len(levels) < 2:
            raise ChecklistError(
                f"{where}: a grade needs at least two levels, such as 'score1_description'; the keys are "
                f"{keys_of(value)}."
            )
        criteria = next((value[key] for key in ("criteria", "orig_criteria", "description") if value.get(key)), None)
        lowest, highest = levels[0][0], levels[-1][0]
        options = [{"label": text, "value": (number - lowest) / (highest - lowest)} for number, text in levels]
        used = {"criteria", "orig_criteria", "description", "name", "rubric", "evaluation_steps"}
        rest = {key: content for key, content in value.items() if key not in used and not _LEVEL.match(str(key))}
        self._drop("", {} if self.whole else rest, where)
        steps = value.get("evaluation_steps")
        text = str(criteria or "Which description fits the response best?").strip()
        if isinstance(steps, list) and steps:
            text += "\n" + "\n".join(f"- {step}" for step in steps)
        name = value.get("name")
        return None, [(None, {"question": text, "options": options, "category": name})]

    def _tree(self, value: Any, where: str) -> tuple[None, list[tuple[str | None, Any]]]:
        """The leaves of a tree. The weight of a leaf is the product of the shares on its path: they add up to 1."""
        text_key, weight_key = self.keys["question"], self.keys.get("weight", "weight")
        leaves: list[tuple[str | None, Any]] = []
        pending = [(value, 1.0, where)]
        while pending:
            node, share, place = pending.pop()
            if not isinstance(node, Mapping):
                raise ChecklistError(f"{place}: expected a mapping, got {type(node).__name__} {node!r:.60}.")
            children = node.get("sub_tasks") or node.get("children") or []
            if not children:
                kind = node.get("task_category") or node.get("category")
                leaves.append((kind, {"question": node.get(text_key), "weight": share}))
                continue
            weights: list[Any] = [child.get(weight_key) if isinstance(child, Mapping) else None for child in children]
            if not all(isinstance(w, int | float) and not isinstance(w, bool) and w >= 0 for w in weights):
                raise ChecklistError(f"{place}: {weight_key!r} of every child must be a number from 0, got {weights}.")
            total = sum(weights)
            if not total:
                raise ChecklistError(f"{place}: the weights of its children add up to 0.")
            nodes = [
                (child, share * w / total, f"{place}, child {n}")
                for n, (child, w) in enumerate(zip(children, weights, strict=True), 1)
            ]
            pending += reversed(nodes)
        return None, leaves

    def _instructions(self, value: Any, where: str) -> tuple[None, list[tuple[None, Any]]]:
        """IFEval's kinds of instructions with their arguments."""
        found: list[tuple[str, Any]] = []
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                found.append((entry, None))
                continue
            if not isinstance(entry, Mapping):
                raise ChecklistError(f"{where}: expected a mapping with 'instruction_id_list', got {entry!r:.60}.")
            if "func_name" in entry:
                arguments = {name: content for name, content in entry.items() if name != "func_name"}
                found.append((str(entry["func_name"]), arguments))
                continue
            names: Any = next(
                (decoded(entry[key]) for key in ("instruction_id_list", "instruction_id") if key in entry), None
            )
            names = [names] if isinstance(names, str) else names
            kwargs: Any = decoded(entry.get("kwargs"))
            kwargs = [kwargs] if isinstance(kwargs, Mapping) else kwargs
            if not isinstance(names, list) or not names:
                raise ChecklistError(f"{where}: 'instruction_id_list' must be a list of names, got {names!r:.60}.")
            if kwargs is None:
                kwargs = [None] * len(names)
            if not isinstance(kwargs, list) or len(kwargs) != len(names):
                raise ChecklistError(
                    f"{where}: 'kwargs' must have one entry per instruction ({len(names)}), got {kwargs!r:.60}."
                )
            found += zip(names, kwargs, strict=True)
        return None, [(None, {"question": name, "kwargs": kwargs}) for name, kwargs in found]

    def _asserts(self, value: Any, where: str) -> tuple[None, list[tuple[None, Any]]]:
        """promptfoo's assertions: `llm-rubric` is a criterion; those about words, regular expressions and JSON are
        checks."""
        if not isinstance(value, list):
            raise ChecklistError(f"{where}: 'assert' must be a list, got {value!r:.60}.")
        criteria = []
        for number, entry in enumerate(value, start=1):
            place = f"{where}, item {number}"
            if not isinstance(entry, Mapping):
                raise ChecklistError(f"{place}: expected a mapping, got {entry!r:.60}.")
            kind, content = entry.get("type"), entry.get("value")
            item: dict[str, Any] = {"weight": entry.get("weight", 1), "category": entry.get("metric")}
            if kind == "llm-rubric":
                if entry.get("threshold") is not None:
                    self.counts.dropped["threshold"] += 1
                criteria.append((None, item | {"question": content}))
                continue
            check = _check_of_assertion(str(kind), content)
            if check is None:
                raise ChecklistError(
                    f"{place}: the assertion {kind!r} cannot be imported; allowed: llm-rubric, "
                    f"{', '.join(_ASSERTIONS)}."
                )
            words = f"{kind} {content!r}" if content is not None else kind
            criteria.append(
                (None, item | {"question": f"Does the response pass the assertion {words}?", "check": check})
            )
        return None, criteria

    # --- one item ----------------------------------------------------------------------------------------------------

    def _item(self, criterion: Any, section: str | None, guidelines: str | None, where: str) -> dict[str, Any]:
        criterion = {self.keys["question"]: criterion} if isinstance(criterion, str) else criterion
        if not isinstance(criterion, Mapping):
            raise ChecklistError(f"{where}: expected a mapping, got {type(criterion).__name__} {criterion!r:.60}.")
        rest = dict(criterion)
        keys = self.keys if self.shape == "items" else {part: part for part in PARTS}
        part = {name: _taken(rest, key) for name, key in keys.items()}
        text = part.get("question")
        if not isinstance(text, str) or not text.strip():
            raise ChecklistError(
                f"{where}: {keys['question']!r} must be a nonblank string, got {text!r:.60}; the keys are "
                f"{keys_of(criterion)}."
            )
        weight = self._weight(part.get("weight"), keys.get("weight"), where, criterion)
        options = self._options(part.get("options"), where)
        for key in _LEVELS:
            if options is None and isinstance(decoded(rest.get(key)), list | Mapping):
                options = _graded(decoded(rest[key]))
                rest.pop(key) if options else None
        category = part.get("category")
        category = ", ".join(map(str, category)) if isinstance(category, list | tuple) else category
        if (kind := _KIND.match(text)) and len(text) > kind.end():
            if category is not None:
                self.counts.dropped[keys["category"]] += 1
            category, text = kind.group(1).lower(), text[kind.end() :]
        category = category or _axis(rest) or section or rest.pop("name", None)
        check = part.get("check") or self._check(text, rest, where)
        if isinstance(check, Mapping) and _MACHINE.fullmatch(text.strip()):
            text = question_of_instruction(check)
        item: dict[str, Any] = {"weight": weight, "options": options, "check": check}
        if _MACHINE.fullmatch(text.strip()) and check is None:
            raise ChecklistError(
                f"{where}: {text.strip()!r} is the name of an instruction that no code check of this package answers, "
                f"and no question for a model."
            )
        item["category"] = None if category is None else str(category)
        item["required"], item["id"] = part.get("required"), part.get("id")
        expected = part.get("expected")
        if expected is not None:
            item["options"] = _expecting(expected, options, where, keys["expected"])
        if weight > 0 and str(category).lower() in _BAD and options is None and check is None:
            item["weight"] = weight = -weight  # its text says whether it is a fault
        if weight < 0 and options is None and check is None:
            item["weight"] = self._signed(weight, text, category, where)
        for name in ("required", "options", "check"):
            self.counts.taken[name] += bool(item.get(name))
        self._drop("", rest, where)
        item["question"] = question_of(text, item["options"] is not None or check is not None, guidelines)
        return item

    def _weight(self, weight: Any, key: str | None, where: str, criterion: Mapping[str, Any]) -> float:
        if weight is None:
            if self.default_weight is None and key is not None and self.shape == "items":
                raise ChecklistError(f"{where}: {key!r} must be a number; the keys are {keys_of(criterion)}.")
            return 1.0 if self.default_weight is None else self.default_weight
        if isinstance(weight, str):
            words = self.words or next((table for table in WORDS if weight.strip().lower() in table), {})
            if weight.strip().lower() in words:
                self.counts.words[weight.strip()] = words[weight.strip().lower()]
                return words[weight.strip().lower()]
            if found := _NUMBER.match(weight):
                return float(found.group(1))
            raise ChecklistError(
                f"{where}: {key or 'weight'}: a weight must be a finite number, got {weight!r:.60}; give words their "
                "numbers with --weights WORD=NUMBER."
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= _LARGEST:
            raise ChecklistError(f"{where}: {key or 'weight'}: a weight must be a finite number, got {weight!r:.60}.")
        return weight

    def _signed(self, weight: float, text: str, category: Any, where: str) -> float:
        """The weight with the sign that the text gives it: what a good response avoids is no fault."""
        said = polarity(text)
        self.counts.pitfalls[said] += 1
        if said == "unclear":
            if self.pitfalls is None and (self.ask_pitfalls or str(category).lower() == "pitfall"):
                self.counts.undecided = self.counts.undecided or f"{where}: {text.strip()!r:.120}"
            said = self.pitfalls or "fault"
        return -weight if said == "avoided" else weight

    def _check(self, text: str, rest: dict[str, Any], where: str) -> Mapping[str, Any] | None:
        """The code check that a criterion names, with its arguments; they are removed from `rest`."""
        tags = decoded(rest.get("tags"))
        name, arguments = text.strip(), None
        if isinstance(tags, Mapping) and tags.get("verifier") == "rule":
            name, arguments = str(tags.get("function") or name), tags.get("parameters")
            rest.pop("tags")
        elif not _MACHINE.fullmatch(name):
            if isinstance(tags, Mapping) and tags.get("verifier") == "llm":
                rest.pop("tags")
            return None
        for key in ("kwargs", "parameters", "arguments", "args"):
            if key in rest:
                arguments = rest.pop(key)
        arguments = decoded(arguments)
        if arguments is not None and not isinstance(arguments, Mapping):
            raise ChecklistError(f"{where}: the arguments of {name!r} must be a mapping, got {arguments!r:.60}.")
        try:
            return spec_of_instruction(name, arguments or {})
        except ChecklistError as error:
            raise ChecklistError(f"{where}: {error}") from None

    def _options(self, options: Any, where: str) -> list[dict[str, Any]] | None:
        options = decoded(options)
        if options is None or options == []:
            return None
        if not isinstance(options, list) or not all(isinstance(option, Mapping) for option in options):
            raise ChecklistError(
                f"{where}: 'options' must be a list of mappings with 'label' and 'value', got {options!r:.60}."
            )
        parsed = []
        for option in options:
            rest = dict(option)
            label, value, na = (rest.pop(key, None) for key in ("label", "value", "na"))
            self._drop("options.", rest, where)
            parsed.append({"label": label, "value": None if na else value, "na": bool(na)})
        return parsed

    def _with_lists_of(
        self, row: Mapping[str, Any], criteria: list[tuple[str | None, Any]], where: str
    ) -> list[tuple[str | None, Any]]:
        """The criteria with the parts that stand beside them, one value per item."""
        mappings = [one if isinstance(one, Mapping) else {self.keys["question"]: one} for _, one in criteria]
        for part, key in self.keys.items():
            if part == "question" or any(at(one, key) is not None or key in one for one in mappings):
                continue
            beside = decoded(at(row, key))
            if len(criteria) == 1 and isinstance(beside, str | int | float):
                beside = [beside]
            if not isinstance(beside, list) or len(beside) != len(criteria):
                if part in self.needed:
                    raise _not_per_item(where, key, len(criteria), beside)
                continue
            beside = [
                ", ".join(v) if isinstance(v, list) and all(isinstance(t, str) for t in v) else v for v in beside
            ]
            mappings = [{**one, key: value} for one, value in zip(mappings, beside, strict=True)]
        return [(section, one) for (section, _), one in zip(criteria, mappings, strict=True)]

    def _drop(self, what: str, rest: Mapping[Any, Any], where: str) -> None:
        """Count fields that items do not have.

        Raises:
            ChecklistError: If one of them may be part of the score.
        """
        for key, value in rest.items():
            if value is None or value in ([], {}, ""):
                continue
            name = f"{what}{key}"
            number = (
                isinstance(value, int | float) and not isinstance(value, bool) and not _COUNTERS.fullmatch(str(key))
            )
            unnamed = number and self.source == "rows" and not self.needed
            if (unnamed or LOSES_A_SCORE.search(str(key))) and not {name, str(key)} & self.drop:
                raise ChecklistError(
                    f"{where}: {key!r} may be part of the score (it is {value!r:.60}), and nothing says what it "
                    f"means. Map it to a field of the items (such as --item-key weight={key}), or drop it with "
                    f"--drop {key}."
                )
            self.counts.dropped[name] += 1


def question_of(text: str, as_it_is: bool = False, guidelines: str | None = None) -> str:
    """The question that is asked about a criterion: itself if it is a question, otherwise whether it is true.

    Args:
        text (`str`): The criterion.
        as_it_is (`bool`): Whether it has options or a check, and is not asked with yes or no.
        guidelines (`str`, *optional*): A text to show before it.
    """
    text = text.strip()
    if not as_it_is and not is_question(text) and (text.endswith(".") or not _ASKS.match(text)):
        text = STATEMENT.format(statement=text)
    return text if not guidelines else f"{guidelines.strip()}\n\n{text}"


def split_text(text: str) -> list[str]:
    """The entries of a numbered or bulleted text; a text without numbers and bullets is one entry. What stands before
    the first entry is left out if it ends with a colon."""
    places = [found.span() for found in _LINE.finditer(text)]
    if not places:
        return [" ".join(text.split())]
    head = text[: places[0][0]].strip()
    ends = [start for start, _ in places[1:]] + [len(text)]
    entries = [" ".join(text[end:until].split()) for (_, end), until in zip(places, ends, strict=True)]
    return [entry for entry in ([] if not head or head.endswith(":") else [" ".join(head.split())]) + entries if entry]


def levels_of(value: Mapping[Any, Any]) -> list[tuple[float, str]]:
    """The levels of a grade with their descriptions, in order: `score1_description` and its like (Prometheus,
    BiGGen-Bench, Ragas), or a `rubric` of ranges with expected outcomes (G-Eval)."""
    levels: list[tuple[float, str]] = []
    for key, text in value.items():
        if (found := _LEVEL.match(str(key))) and isinstance(text, str) and text.strip():
            levels.append((float(found.group(1)), text.strip()))
    ranges = value.get("rubric")
    for entry in ranges if isinstance(ranges, list) else []:
        span = entry.get("score_range") if isinstance(entry, Mapping) else None
        if isinstance(span, list | tuple) and span and all(isinstance(n, int | float) for n in span):
            levels.append((sum(span) / len(span), str(entry.get("expected_outcome", "")).strip()))
    return sorted(levels)


def keys_of(value: Mapping[Any, Any]) -> str:
    """The keys of a mapping, for error messages."""
    return ", ".join(map(str, value)) or "none"


def _taken(rest: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, which is removed; what stands around it is left under dotted keys. Of a key with a
    star, the only value that is not null."""
    if key in rest:
        return rest.pop(key)
    if "*" in key:
        outer, _, pattern = key.rpartition(".")
        inner = at(rest, outer)
        names = [name for name, found in inner.items() if fnmatch(name, pattern) and found is not None]
        return _taken(rest, f"{outer}.{names[0]}") if len(names) == 1 else None
    value = at(rest, key)
    if value is not None:
        outer = next(name for name in rest if key.startswith(f"{name}."))
        inner = decoded(rest[outer])
        rest.pop(outer)
        name = key[len(outer) + 1 :]
        rest |= {f"{outer}.{other}": content for other, content in inner.items() if other != name.partition(".")[0]}
    return value


def _axis(rest: dict[str, Any]) -> str | None:
    """The first tag "axis:…" of a HealthBench criterion, or else "cluster:…"; it is removed from the tags."""
    tags = rest.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    tag = next((tag for kind in ("axis:", "cluster:") for tag in tags if tag.startswith(kind)), None)
    if tag is None:
        return None
    rest["tags"] = [other for other in tags if other != tag]
    return tag.partition(":")[2]


def _expecting(expected: Any, options: Any, where: str, key: str) -> list[dict[str, Any]] | None:
    """The options of a question with an expected answer; None for yes, which is what items expect."""
    answer = str(expected).strip().lower() if not isinstance(expected, bool) else YES if expected else NO
    if answer not in (YES, NO) or options is not None:
        raise ChecklistError(
            f"{where}: {key!r} must be yes or no, for a question without options; got {expected!r:.60}."
        )
    return None if answer == YES else [{"label": YES, "value": 0.0}, {"label": NO, "value": 1.0}]


def _graded(levels: Any) -> list[dict[str, Any]] | None:
    """The options of a criterion from its levels: objects with a number and a text, or a mapping of one to the other.
    Their values go from 0 (the lowest) to 1. None if they cannot be read."""
    pairs: list[tuple[float, str]] = []
    if isinstance(levels, Mapping):
        levels = [{"score": number, "description": text} for number, text in levels.items()]
    for level in levels:
        number = text = None
        for value in level.values() if isinstance(level, Mapping) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                number = float(value)
            elif isinstance(value, str) and _NUMBER.match(value):
                number = float(_NUMBER.match(value).group(1)) if number is None else number  # type: ignore[union-attr]
            elif isinstance(value, str) and (text is None or len(value) > len(text)):
                text = value.strip()
        if number is None or not text:
            return None
        pairs.append((number, text))
    lowest, highest = min(pairs, default=(0.0, ""))[0], max(pairs, default=(0.0, ""))[0]
    if lowest == highest or len({text for _, text in pairs}) < len(pairs):
        return None
    return [{"label": text, "value": (number - lowest) / (highest - lowest)} for number, text in sorted(pairs)]


def _not_per_item(where: str, key: str, count: int, value: Any) -> ChecklistError:
    return ChecklistError(
        f"{where}: {key!r} must be a key of the items, or a column with a list of {count} values (one per item); "
        f"got {value!r:.60}."
    )


_ASSERTIONS = (
    "contains",
    "icontains",
    "contains-all",
    "icontains-all",
    "contains-any",
    "icontains-any",
    "regex",
    "starts-with",
    "is-json",
    "equals",
)


def _check_of_assertion(kind: str, value: Any) -> Mapping[str, Any] | None:
    positive = kind.removeprefix("not-")
    if positive not in _ASSERTIONS or value is None and positive != "is-json":
        return None
    words: Sequence[str] = [str(v) for v in value] if isinstance(value, list) else [str(value)]
    check: dict[str, Any]
    if "contains" in positive:
        check = {"words": words, "whole_words": False, "ignore_case": positive.startswith("i")}
        if positive != kind:
            if positive.endswith("-all"):
                return None
            return {"type": "forbidden"} | check
        return {"type": "keywords", "need": "any" if positive.endswith("-any") else "all"} | check
    if positive == "is-json":
        check = {"type": "json"}
    else:
        pattern = {
            "regex": str(value),
            "starts-with": r"\A" + re.escape(str(value)),
            "equals": rf"\A{re.escape(str(value))}\Z",
        }
        check = {"type": "regex", "pattern": pattern[positive]}
        return check | ({"exactly": 0} if positive != kind else {"at_least": 1})
    return None if positive != kind else check
