"""The rules on IFEval's prompts, whose instructions are known: precision and recall on held-out prompts.

A requirement is compared by its parts: each keyword of a list, and the lower and the upper bound of a number, are one
each. It counts as found only with its exact arguments.
"""

import json
from collections import Counter

from english.common import json_lines
from english.writer import PROMPTS, halves

from checklist_rewards.checks.ifeval import spec_of_instruction
from checklist_rewards.generators.constraints import find_requirements

HOW = ("type", "at_least", "at_most", "exactly", "loose", "whole_words", "list_numbers", "ifeval")
"""Fields of a check that are a bound, or that IFEval's own rules set and no prompt states."""
ROWS = [
    {
        "key": 1,
        "prompt": 'Describe fog in at least 40 words. Do not use the words "grey" and "wet".',
        "instruction_id_list": ["length_constraints:number_words", "keywords:forbidden_words"],
        "kwargs": [{"relation": "at least", "num_words": 40}, {"forbidden_words": ["grey", "wet"]}],
    },
    {
        "key": 2,
        "prompt": "Describe fog. Use no commas and fewer than 5 sentences.",
        "instruction_id_list": ["length_constraints:number_sentences"],
        "kwargs": [{"relation": "less than", "num_sentences": 4}],
    },
]


def parts(check):
    """The parts of a check by which it is compared."""
    kind = check["type"]
    if kind == "all":
        for inner in check["checks"]:
            yield from parts(inner)
        return
    if kind == "forbidden" or (kind == "keywords" and check.get("need") != "any"):
        yield from ((kind, word.strip().lower()) for word in check["words"])
        return
    low, high = (check.get(bound, check.get("exactly")) for bound in ("at_least", "at_most"))
    if kind == "keyword_count" and high == 0:
        yield "forbidden", check["word"].lower()
    elif kind == "keyword_count" and (low, high) == (1, None):
        yield "keywords", check["word"].lower()
    else:
        arguments = {name: value for name, value in check.items() if name not in HOW and value is not None}
        what = kind, json.dumps(arguments, sort_keys=True).lower()
        bounds = [(">=", low)] if low else []
        bounds += [("<=", high)] if high is not None else []
        yield from ((*what, *bound) for bound in bounds or [()])


def compare(rows):
    """Counts of found, missed and false parts by type of instruction, and the differing prompts."""
    counts = {}
    differences = []
    for row in rows:
        true = {}
        implied = set()  # English is part of IFEval's casing instructions, although some prompts do not say so
        for name, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            check = spec_of_instruction(name, kwargs)
            for part in parts(check):
                if check["type"] == "all" and part[0] == "language":
                    implied.add(part)
                else:
                    true[part] = name
        found = {part: r for r in find_requirements(row["prompt"]) if r.check for part in parts(r.check)}
        missed = [part for part in true if part not in found]
        false = [part for part in found if part not in true and part not in implied]
        for part, name in true.items():
            counts.setdefault(name, Counter())["missed" if part in missed else "found"] += 1
        for part in false:
            counts.setdefault(f"({part[0]})", Counter())["false"] += 1
        if missed or false:
            evidence = [row["prompt"][found[part].start : found[part].end] for part in false]
            differences.append({"prompt": row["prompt"], "missed": missed, "false": false, "evidence": evidence})
    return counts, differences


def test_a_requirement_counts_only_with_its_exact_arguments():
    counts, differences = compare(ROWS)
    assert counts["length_constraints:number_words"] == {"found": 1}
    assert counts["keywords:forbidden_words"] == {"found": 2}
    assert counts["length_constraints:number_sentences"] == {"missed": 1}
    assert counts["(sentences)"] == {"false": 1} and counts["(letters)"] == {"false": 1}
    assert [row["evidence"] for row in differences] == [["no commas", "fewer than 5 sentences"]]


def test_a_part_of_a_list_may_be_missing():
    words = {"type": "keywords", "words": ["river", "mill"]}
    assert list(parts(words)) == [("keywords", "river"), ("keywords", "mill")]
    assert list(parts({"type": "words", "exactly": 3})) == [
        ("words", "{}", ">=", 3),
        ("words", "{}", "<=", 3),
    ]


def test_the_rules_find_four_of_five_on_prompts_they_were_not_made_for(data_dir):
    _, held_out = halves(list(json_lines(data_dir / PROMPTS)))
    counts, _ = compare(held_out)
    total = sum(counts.values(), Counter())
    found = total["found"]
    assert len(held_out) == 271
    assert found / (found + total["false"]) >= 0.97 and found / (found + total["missed"]) >= 0.8
