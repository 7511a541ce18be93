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
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, Literal

from pydantic import ValidationError

from checklist_rewards.checklists import YES, Checklist, ChecklistItem
from checklist_rewards.checks.base import parse_check
from checklist_rewards.checks.ifeval import question_of_instruction, spec_of_instruction
from checklist_rewards.datasets.formats import PARTS, ROWS, Format
from checklist_rewards.datasets.meanings import (
    answer_in,
    axis_of,
    expecting,
    fault_named,
    holds_faults,
    holds_levels,
    is_number,
    is_opposed,
    is_rank,
    key_of_grades,
    keys_of,
    plain,
    taken,
    way_to_keep,
)
from checklist_rewards.datasets.names import ANSWERS, INNER, LEVEL, LEVELS, OF_A_CHECKLIST, SCALES, TITLES, WORDS
from checklist_rewards.datasets.pitfalls import Polarity, polarity
from checklist_rewards.datasets.promptfoo import criteria_of_asserts
from checklist_rewards.datasets.texts import (
    doubtful_ends,
    doubtful_levels,
    doubtful_numbers,
    entries_of,
    has_signed_keys,
    head_of_levels,
    levels_of,
    mentions_points,
    names_levels,
    number_in,
    options_of,
    points_in,
    question_of,
    scaled,
    table_of,
    without_box,
)
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.cells import at, decoded
from checklist_rewards.judges.faults import is_question
from checklist_rewards.scores.scales import with_abstention
from checklist_rewards.validation import one_sentence

_LARGEST = 1e300
_POINTS, _ANSWERED = "(points)", "(answer)"
"""The keys of points and expected answers that were read from a text or a mapping."""
_QUESTIONS = re.compile(r"[?？؟](?=\s|\Z|[;|]\s*[^\W\da-z_])")
_KIND = re.compile(r"\A\s*(essential|important|optional|pitfall)(?: criteri(?:a|on))?\s*:\s*", re.IGNORECASE)
_MACHINE = re.compile(r"[a-z][a-z0-9_]*:[a-z0-9][a-z0-9_]*|(?:verify|validate)_[a-z_]+")
_TAG = re.compile(r"\s*\[([A-Z][\w ]{1,30})\]\s*\Z")


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
    columns: dict[str, None] = field(default_factory=dict)
    """The columns that rows keep."""
    words: dict[str, float] = field(default_factory=dict)
    """Weights in words that were replaced by numbers."""


class CriteriaReader:
    """Converts the criteria of rows in one format to checklists.

    Args:
        format ([`Format`]): where the criteria have their parts.
        counts ([`Counts`]): receives what was dropped, taken and changed.
        pitfalls (`str`, *optional*): `"fault"` or `"avoided"`: what texts say that do not say it themselves.
        needed (set of `str`): the parts that every row must have, in its items or next to them.
    """

    def __init__(
        self,
        format: Format,
        counts: Counts,
        pitfalls: Literal["fault", "avoided"] | None = None,
        needed: frozenset[str] = frozenset(),
    ):
        self.format, self.counts, self.pitfalls, self.needed = format, counts, pitfalls, needed
        self.keys = {"question": "question", **format.item}
        self.words = {word.lower(): number for word, number in (format.words or {}).items()}
        self.inferred = format.name == ROWS

    def checklist(
        self,
        value: Any,
        where: str,
        row: Mapping[str, Any] | None = None,
        abstaining: frozenset[int] = frozenset(),
        section_weights: Mapping[str, Any] | None = None,
        section: str | None = None,
    ) -> Checklist:
        """Convert what a row has at the format's key.

        Args:
            value: the criteria.
            where (`str`): what the [`ChecklistError`] of criteria that are not valid begins with.
            row (mapping, *optional*): the row, for parts of items in lists of their own.
            abstaining (set of `int`): items at these indices (from 0) allow "cannot_assess".
            section_weights (mapping, *optional*): factors of the weights by section.
            section (`str`, *optional*): the section of criteria that name none.
        """
        value = decoded(value)
        guidelines, criteria = getattr(self, f"_{self.format.shape}")(value, where)
        if row:
            criteria = self._with_lists_of(row, criteria, where)
        if self.format.shape in ("items", "text"):
            criteria = self._with_points(criteria, where)
        items = []
        sections = {own for own, _ in criteria if own}
        opposed = {own for own in sections if is_opposed(own, sections - {own})}
        for number, (own, criterion) in enumerate(criteria, start=1):
            place = f"{where}, item {number}"
            item = self._item(criterion, own or section, guidelines, place, own in opposed)
            if section_weights is not None:
                share = section_weights.get(own or "")
                if not is_number(share):
                    raise ChecklistError(f"{place}: the section {own!r} has no weight; got {share!r:.60}.")
                item["weight"] = share * item["weight"]
            items.append(item)
        if "weight" not in self.keys and self.inferred and "category" not in self.needed:
            self._refuse_ranks(items, where)
        origin = value if isinstance(value, Mapping) else {}
        source = origin.get("source_method") or origin.get("source") or self.format.name
        checklist = Checklist.parse({"items": items, "source": source, "model": origin.get("model")}, where)
        if not abstaining:
            return checklist
        variants = enumerate(zip(checklist.items, with_abstention(checklist).items, strict=True))
        abstaining_items = tuple(free if place in abstaining else item for place, (item, free) in variants)
        return checklist.model_copy(update={"items": abstaining_items})

    # --- shapes: the guidelines, and the criteria with their sections ---------------------------------------------

    def _items(self, value: Any, where: str) -> tuple[str | None, list[tuple[str | None, Any]]]:
        guidelines = None
        value = table_of(value) or value
        self._refuse_levels(value, where)
        if isinstance(value, str) and self.inferred and len(_QUESTIONS.findall(value)) > 1:
            raise ChecklistError(f"{where}: {value!r:.60} holds several questions; write them as a list.")
        while isinstance(value, Mapping):
            key = next((key for key in INNER if key in value), None)
            if key is None:
                lists = [decoded(entry) for entry in value.values()]
                if not lists or not all(isinstance(e, Mapping) and isinstance(e.get("criteria"), list) for e in lists):
                    return guidelines, self._named(value, lists, where)
                value = [{**entry, "name": str(name)} for name, entry in zip(value, lists, strict=True)]
                break
            guidelines = value.get("guidelines", guidelines)
            if guidelines is not None and not isinstance(guidelines, str):
                raise ChecklistError(f"{where}: 'guidelines' must be a string, got {guidelines!r:.60}.")
            used = (key, "guidelines", *OF_A_CHECKLIST)
            self.leave("rubric.", {name: content for name, content in value.items() if name not in used}, where)
            value = decoded(value[key])
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
            title = next((key for key in TITLES if entry.get(key)), "")
            if not isinstance(entry["criteria"], list):
                raise ChecklistError(
                    f"{where}, section {number}: 'criteria' must be a list, got {entry['criteria']!r:.60}."
                )
            rest = {name: entry[name] for name in entry if name not in (title, "criteria", "id")}
            self.leave("section.", rest, f"{where}, section {number}")
            criteria += [(str(entry[title]) if title else None, criterion) for criterion in entry["criteria"]]
        return guidelines, criteria

    def _named(self, value: Mapping[str, Any], entries: list[Any], where: str) -> list[tuple[str | None, Any]]:
        """The criteria of a mapping: names with answers or points, or sections with criteria."""
        text = self.keys["question"]
        if entries and all(map(answer_in, entries)):
            return [(None, {text: name, _ANSWERED: answer}) for name, answer in zip(value, entries, strict=True)]
        if entries and all(is_number(e) or (isinstance(e, str) and number_in(e) is not None) for e in entries):
            return [(None, {text: name, _POINTS: points}) for name, points in zip(value, entries, strict=True)]
        if entries and any(all(isinstance(entry, kind) for entry in entries) for kind in (str, Mapping)):
            return [(str(name), entry) for name, entry in zip(value, entries, strict=True)]
        if not any(entries) or not all(isinstance(entry, list) for entry in entries):
            raise ChecklistError(f"{where}: a rubric needs criteria or sections; the keys are {keys_of(value)}.")
        if any(number_in(str(name)) is not None for name in value):
            what = f"the sections {keys_of(value)} are numbers, which may be weights or grades"
            raise ChecklistError(f"{where}: {what}; write the weight into each criterion.")
        return [(str(name), one) for name, entry in zip(value, entries, strict=True) for one in entry]

    def _text(self, value: Any, where: str) -> tuple[None, list[tuple[str | None, Any]]]:
        """Numbered or bulleted text; each entry may end with its importance and a tag in brackets."""
        if not isinstance(value, str) or not value.strip():
            raise ChecklistError(f"{where}: expected a text with numbered criteria, got {value!r:.60}.")
        if self.inferred and (line := doubtful_numbers(value)):
            raise ChecklistError(
                f"{where}: the number of {line!r:.60} may be its place, its points or a level of a grade; describe "
                "the format in a YAML file with 'shape: text' or 'shape: levels' (--format mine.yaml)."
            )
        criteria: list[tuple[str | None, Any]] = []
        for section, text in entries_of(value):
            item: dict[str, Any] = {}
            if points := points_in(text):
                text, item[_POINTS] = points
            if tag := _TAG.search(text):
                text, item["category"] = text[: tag.start()], tag.group(1)
            if _POINTS not in item and (points := points_in(text)):
                text, item[_POINTS] = points
            criteria.append((section, {"question": text} | item))
        return None, criteria

    def _levels(self, value: Any, where: str) -> tuple[None, list[tuple[None, Any]]]:
        """One item whose options are the levels of a grade."""
        options = scaled(levels_of(value, self.words))
        if options is None or doubtful_levels(value) or has_signed_keys(value):
            self._refuse_levels(value, where)
        if options is None:
            raise ChecklistError(
                f"{where}: a grade needs at least two different levels with a number and a text, such as "
                f"'score1_description'; got {value!r:.60}."
            )
        text = head_of_levels(value) if isinstance(value, str) else ""
        value = value if isinstance(value, Mapping) else {"criteria": text}
        criteria = next((value[key] for key in ("criteria", "orig_criteria", "description") if value.get(key)), None)
        used = {"criteria", "orig_criteria", "description", "name", "rubric", "evaluation_steps"}
        shown = {option["label"] for option in options}
        rest = {
            key: content
            for key, content in value.items()
            if key not in used and not (isinstance(content, str) and content.strip() in shown)
        }
        self.leave("", rest if self.format.checklist else {}, where)
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
        criteria, dropped = criteria_of_asserts(value, where)
        self.counts.dropped.update(dropped)
        return None, [(None, criterion) for criterion in criteria]

    # --- one item ----------------------------------------------------------------------------------------------------

    def _item(
        self, criterion: Any, section: str | None, guidelines: str | None, where: str, opposed: bool = False
    ) -> dict[str, Any]:
        if isinstance(criterion, str):
            criterion = without_box(criterion)
            tag = _TAG.search(criterion)
            section, criterion = (tag.group(1), criterion[: tag.start()]) if tag else (section, criterion)
            criterion = {self.keys["question"]: criterion}
        if not isinstance(criterion, Mapping):
            raise ChecklistError(f"{where}: expected a mapping, got {type(criterion).__name__} {criterion!r:.60}.")
        rest = dict(criterion)
        keys = self.keys if self.format.shape == "items" else {part: part for part in PARTS}
        part = {name: taken(rest, key) for name, key in keys.items()}
        if _POINTS in rest:
            part["weight"] = rest.pop(_POINTS)
        if _ANSWERED in rest:
            part["expected"] = rest.pop(_ANSWERED)
        options = self._options(part.get("options"), where) or self._levels_in(rest)
        text = part.get("question")
        if text is None and options:
            text = (
                f"{section}: which description fits the response best?" if section else "Which description fits best?"
            )
        if not isinstance(text, str) or not text.strip():
            raise ChecklistError(
                f"{where}: {keys['question']!r} must be a nonblank string, got {text!r:.60}; the keys are "
                f"{keys_of(criterion)}."
            )
        category = part.get("category")
        category = ", ".join(map(str, category)) if isinstance(category, list | tuple) else category
        if (kind := _KIND.match(text)) and len(text) > kind.end():
            if category is not None:
                self.counts.dropped[keys["category"]] += 1
            category, text = kind.group(1).lower(), text[kind.end() :]
        elif category is None and (section is None or holds_faults(section) == "no"):
            named, text = fault_named(text)
            category = named
        category = category or axis_of(rest) or section or rest.pop("name", None)
        category = None if category is None else str(category)
        if category and options is None and plain(category) in SCALES and "category" not in self.needed:
            raise ChecklistError(
                f"{where}: {category!r} asks for a grade, and no levels are given; list them under 'options' (a "
                "label and a value from 0 to 1 each)."
            )
        if options is None and holds_levels(text):
            how = "list them under 'options' (a label and a value from 0 to 1 each)"
            raise ChecklistError(f"{where}: {text!r:.80} has the levels of a grade inside; {how}.")
        weight = self._weight(part.get("weight"), keys.get("weight"), where, criterion, category)
        check = self._check(part.get("check"), text, rest, where)
        if self._names_code(text) and isinstance(check, Mapping):
            text = question_of_instruction(check)
        item: dict[str, Any] = {"weight": weight, "options": options, "check": check, "category": category}
        required = part.get("required")
        if isinstance(required, str) and required.strip().lower() in ANSWERS:
            required = ANSWERS[required.strip().lower()] == YES
        item["required"], item["id"] = required, part.get("id")
        expected = part.get("expected")
        if expected is not None:
            item["options"] = expecting(expected, options, where, keys.get("expected", text))
        if options is None and check is None:
            item["weight"] = self._signed(weight, text, category, where, opposed)
        for name in ("required", "options", "check"):
            if item[name]:
                self.counts.taken[name] += 1
        if rest:
            self.leave("", rest, where)
        item["question"] = question_of(text, item["options"] is not None or check is not None, guidelines)
        return item

    def _weight(
        self, weight: Any, key: str | None, where: str, criterion: Mapping[str, Any], category: str | None
    ) -> float:
        alone = weight is None and key is None and "category" not in self.needed
        if alone and self.format.default_weight in (None, 1):
            word = str(category).strip().lower()
            tables = [self.words] if self.words else WORDS
            weight = category if any(word in table for table in tables) else None  # "essential" with no number
        if weight is None:
            if self.format.default_weight is None and key is not None and self.format.shape == "items":
                raise ChecklistError(f"{where}: {key!r} must be a number; the keys are {keys_of(criterion)}.")
            return 1.0 if self.format.default_weight is None else self.format.default_weight
        if isinstance(weight, str):
            words = self.words or next((table for table in WORDS if weight.strip().lower() in table), {})
            if weight.strip().lower() in words:
                self.counts.words[weight.strip()] = words[weight.strip().lower()]
                return words[weight.strip().lower()]
            if (number := number_in(weight)) is not None:
                return number
            raise ChecklistError(
                f"{where}: {key or 'weight'}: a weight must be a finite number, got {weight!r:.60}; give words their "
                "numbers with --weights WORD=NUMBER."
            )
        if isinstance(weight, Mapping) and weight:
            raise ChecklistError(
                f"{where}: {key!r}: a weight must be a finite number, got the keys {keys_of(weight)}; name one with "
                f"--item-key weight={key}.{next(iter(weight))}."
            )
        if not is_number(weight) or not abs(weight) <= _LARGEST:
            raise ChecklistError(f"{where}: {key or 'weight'}: a weight must be a finite number, got {weight!r:.60}.")
        if key == "score" and weight == 0 and "weight" not in self.needed:
            raise ChecklistError(
                f"{where}: 'score' is 0, so it may be the grade of a response; use it as the weight with --item-key "
                "weight=score, or drop it with --drop score."
            )
        return weight

    def _signed(self, weight: float, text: str, category: str | None, where: str, opposed: bool) -> float:
        """The weight with the sign that the section and the text give it: what a good response avoids is no fault."""
        faults = holds_faults(category) if category else "no"
        faults = "perhaps" if opposed and faults == "no" else faults
        if weight > 0 and faults == "yes":
            weight = -weight
        elif weight > 0 and faults == "perhaps" and "category" not in self.needed:
            if self.pitfalls is None:
                raise ChecklistError(
                    f"{where}: {category!r} may hold what a good response avoids; set --pitfalls fault if its texts "
                    "state faults, or --pitfalls avoided if a good response does what they say."
                )
            return -weight if self.pitfalls == "fault" else weight
        if weight >= 0:
            return weight
        said = polarity(text)
        self.counts.pitfalls[said] += 1
        if said == "unclear":
            if self.pitfalls is None and (self.format.pitfalls or plain(category) == "pitfall"):
                self.counts.undecided = self.counts.undecided or f"{where}: {text.strip()!r:.120}"
            said = self.pitfalls or "fault"
        return -weight if said == "avoided" else weight

    def _names_code(self, text: str) -> bool:
        """Whether a text is the name of an instruction that code checks instead of a question."""
        return self.format.shape == "instructions" or bool(_MACHINE.fullmatch(text.strip()))

    def _check(self, given: Any, text: str, rest: dict[str, Any], where: str) -> Any:
        """The code check of a criterion: its own, or the one it names, whose arguments are removed from `rest`."""
        if given is not None:
            try:
                given = ChecklistItem(question=text, check=given).check  # without the nulls of Parquet
            except ValidationError as error:
                raise ChecklistError(f"{where}: {one_sentence(error)}") from None
            parse_check(given or "", where)
            return given
        tags = decoded(rest.get("tags"))
        name, arguments = text.strip(), None
        if isinstance(tags, Mapping) and tags.get("verifier") == "rule":
            name, arguments = str(tags.get("function") or name), tags.get("parameters")
            rest.pop("tags")
        elif not self._names_code(name):
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
        if isinstance(options, Mapping) and options and all(is_number(value) for value in options.values()):
            options = [{"label": str(label), "value": value} for label, value in options.items()]
        if not isinstance(options, list) or not all(isinstance(option, Mapping) for option in options):
            raise ChecklistError(
                f"{where}: 'options' must be a list of mappings with 'label' and 'value', got {options!r:.60}; for "
                f"something else, --drop {self.keys.get('options', 'options')}."
            )
        parsed = []
        for option in options:
            rest = dict(option)
            label, value, na = (rest.pop(key, None) for key in ("label", "value", "na"))
            self.leave("options.", rest, where)
            parsed.append({"label": label, "value": None if na else value, "na": bool(na)})
        return parsed

    def _levels_in(self, rest: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The options of a criterion with its levels in a list or mapping, or in keys such as "1" and "score_5"."""
        for key in LEVELS:
            levels = decoded(rest.get(key))
            if isinstance(levels, list | Mapping) and (options := options_of(levels)):
                rest.pop(key)
                return options
        texts = {key: text for key, text in rest.items() if isinstance(text, str)}
        texts = {key: text for key, text in texts.items() if len(levels_of({key: text}, self.words)) == 1}
        if options := scaled(levels_of(texts, self.words)) if len(texts) > 1 else None:
            for key in texts:
                rest.pop(key)
        return options

    def _refuse_ranks(self, items: list[dict[str, Any]], where: str) -> None:
        """Raise an error for criteria that have ranks instead of weights, unless one table has all of them."""
        kinds = {plain(item["category"] or ""): item["category"] for item in items if item["weight"] > 0}
        ranks = [word for word in kinds if is_rank(word)]
        tables = [self.words] if self.words else [table for table in WORDS if len(ranks) == len(kinds)]
        if not ranks or len(kinds) < 2 or any(all(kinds[r].lower() in table for r in ranks) for table in tables):
            return
        names = ", ".join(repr(kinds[word]) for word in ranks)
        numbers = " ".join(f"--weights '{kinds[word]}=NUMBER'" for word in ranks)
        raise ChecklistError(
            f"{where}: {names} may be ranks with different weights; give them numbers with {numbers}."
        )

    def _refuse_levels(self, value: Any, where: str) -> None:
        """Raise an error for values that may be the levels of one grade instead of criteria."""
        shape = "describe the format in a YAML file with 'shape: levels' or 'shape: items' (--format mine.yaml)"
        if not self.inferred:
            return
        graded = key_of_grades(value)
        if graded is not None and graded not in self.keys.values():
            raise ChecklistError(f"{where}: {graded!r} has the names of levels, so these may be one grade; {shape}.")
        if names_levels(value):
            one = next(iter(value))
            raise ChecklistError(
                f"{where}: the keys {keys_of(value)} are names of levels; give them their numbers with --weights "
                f"{one}=NUMBER."
            )
        if has_signed_keys(value):
            what = f"the keys {keys_of(value)} have signs, so they may be weights"
            raise ChecklistError(f"{where}: {what}; write the weight into each criterion.")
        if doubtful_levels(value):
            raise ChecklistError(f"{where}: the keys {keys_of(value)} may be levels or numbers of criteria; {shape}.")
        key = self.keys.get("weight")
        if key is None or "weight" in self.needed or not isinstance(value, list) or len(value) < 2:
            return
        given = [entry.get(key) if isinstance(entry, Mapping) else None for entry in value]
        numbers = sorted(n for n in given if isinstance(n, int | float) and is_number(n))
        if len(numbers) < len(given) or len(set(numbers)) < len(numbers) or numbers[0] < 0:
            return
        counted = numbers == [numbers[0] + n for n in range(len(numbers))]
        alone = key in LEVEL and all(isinstance(entry, Mapping) and len(entry) == 2 for entry in value)
        if alone or (counted and numbers[0] == 0) or (counted and numbers[0] == 1 and key in LEVEL):
            raise ChecklistError(
                f"{where}: {key!r} is {', '.join(map(str, given))}, so these may be the levels of one grade; use it "
                f"as the weight with --item-key weight={key}, or {shape}."
            )

    def _with_points(self, criteria: list[tuple[str | None, Any]], where: str) -> list[tuple[str | None, Any]]:
        """The criteria with the points that their texts begin or end with, where they have no other weight."""
        if self.format.default_weight not in (None, 1) or self.needed & {"weight"}:
            return criteria
        key = self.keys["question"] if self.format.shape == "items" else "question"
        weight = self.keys.get("weight", "weight")
        ones = [one if isinstance(one, Mapping) else {key: one} for _, one in criteria]
        if any(one.get(weight) is not None or at(one, weight) is not None for one in ones):
            return criteria
        if not all(isinstance(one.get(key), str) for one in ones):
            return criteria
        signs = {one[key].lstrip()[:2] for one in ones}
        if {"+ ", "- "} <= signs or {"+ ", "− "} <= signs:
            raise ChecklistError(
                f"{where}: the texts begin with + and -, which may be their signs; write them into the weights "
                "(--item-key weight=KEY)."
            )
        found = [(one[key], one[_POINTS]) if _POINTS in one else points_in(one[key]) for one in ones]
        if found and all(found):
            return [
                (section, {**one, key: points[0], _POINTS: points[1]})
                for (section, _), one, points in zip(criteria, ones, found, strict=True)
                if points
            ]
        if self.inferred and (end := doubtful_ends([one[key] for one in ones])):
            raise ChecklistError(
                f"{where}: every criterion has something like {end!r} at its beginning or end, which may be a weight "
                "or an answer; write it into a key of its own (--item-key weight=KEY or expected=KEY)."
            )
        for number, (one, points) in enumerate(zip(ones, found, strict=True), 1):
            if (points and "%" not in str(points[1])) or mentions_points(one[key]):
                raise ChecklistError(
                    f"{where}, item {number}: {one[key]!r:.80} names points, and not every criterion does; write the "
                    "weight of each criterion into a key of its own (--item-key weight=KEY)."
                )
        return criteria

    def _with_lists_of(
        self, row: Mapping[str, Any], criteria: list[tuple[str | None, Any]], where: str
    ) -> list[tuple[str | None, Any]]:
        """The criteria with the parts that are in columns of their own, one value per item."""
        mappings: list[Mapping[str, Any]] | None = None
        for part, key in self.keys.items():
            if part == "question" or (values := decoded(at(row, key))) is None and part not in self.needed:
                continue
            mappings = mappings or [
                one if isinstance(one, Mapping) else {self.keys["question"]: one} for _, one in criteria
            ]
            if any(key in one or at(one, key) is not None for one in mappings):
                continue
            if len(criteria) == 1 and isinstance(values, str | int | float):
                values = [values]
            if not isinstance(values, list) or len(values) != len(criteria):
                if part in self.needed:
                    raise ChecklistError(
                        f"{where}: {key!r} must be a key of the items, or a column with a list of {len(criteria)} "
                        f"values (one per item); got {values!r:.60}."
                    )
                continue
            values = [
                ", ".join(v) if isinstance(v, list) and all(isinstance(t, str) for t in v) else v for v in values
            ]
            mappings = [{**one, key: value} for one, value in zip(mappings, values, strict=True)]
        if mappings is None:
            return criteria
        return [(section, one) for (section, _), one in zip(criteria, mappings, strict=True)]

    def leave(self, what: str, rest: Mapping[Any, Any], where: str) -> None:
        """Count fields that items do not have.

        Raises:
            ChecklistError: If one of them may be part of the score.
        """
        for key, value in rest.items():
            if value is None or value in ([], {}, ""):
                continue
            name = f"{what}{key}"
            way = way_to_keep(str(key), value, inside=not what, numbers=not self.needed)
            if way and not any(fnmatch(one, pattern) for one in (name, str(key)) for pattern in self.format.drop):
                if what:
                    way = "It is not applied to the criteria: write it into their weights"
                raise ChecklistError(
                    f"{where}: {key!r} may be part of the score (it is {value!r:.60}), and nothing says what it "
                    f"means. {way}, or drop it with --drop {key}."
                )
            self.counts.dropped[name] += 1
