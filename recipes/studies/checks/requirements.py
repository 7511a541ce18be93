"""Measure the rules that find requirements in a prompt on IFEval's prompts, whose true instructions are known.

    python recipes/studies/checks/requirements.py --output_dir runs/requirements

Prints precision and recall by type of instruction for two random halves of the prompts: the half on which the rules
were developed, and the other one. A requirement counts as found only with its exact arguments. A requirement is
compared by its parts: each keyword of a list, and the lower and the upper bound of a number, are one each. Differences
are written to `differences.jsonl` under `--output_dir`. The data (`ifeval/input_data.jsonl`) is read in place.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table
from studies.common import DATA, data_file, json_lines, run_main, save_json
from trl import TrlParser

from checklist_rewards.checks.ifeval import spec_of_instruction
from checklist_rewards.files.rows import write_rows
from checklist_rewards.generators.constraints import find_requirements

PROMPTS = "ifeval/input_data.jsonl"
SEED, DEVELOPED = 20261125, 270
"""Seed of the split, and number of prompts in the half on which the rules were developed."""
HOW = ("type", "at_least", "at_most", "exactly", "loose", "whole_words", "list_numbers", "ifeval")
"""Fields of a check that are a bound, or that IFEval's own rules set and no prompt states."""


@dataclass
class RequirementsArguments:
    """Input and output folders."""

    data: str = field(
        default=DATA, metadata={"help": "Folder with ifeval/; by default $CHECKLIST_REWARDS_DATA or ../shared/data."}
    )
    output_dir: str = field(default="runs/requirements", metadata={"help": "Folder for the results."})


def parts(check: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
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


def compare(rows: list[Mapping[str, Any]]) -> tuple[dict[str, Counter[str]], list[dict[str, Any]]]:
    """Counts of found, missed and false parts by type of instruction, and the differing prompts."""
    counts: dict[str, Counter[str]] = {}
    differences = []
    for row in rows:
        true: dict[tuple[Any, ...], str] = {}
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


def rates(counts: Counter[str]) -> tuple[float, float]:
    """(precision, recall)."""
    found, missed, false = counts["found"], counts["missed"], counts["false"]
    return found / max(found + false, 1), found / max(found + missed, 1)


def halves(rows: list[dict[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The prompts on which the rules were developed, and the others."""
    keys = sorted(row["key"] for row in rows)
    random.Random(SEED).shuffle(keys)
    developed = set(keys[:DEVELOPED])
    return {
        "developed": [row for row in rows if row["key"] in developed],
        "held out": [row for row in rows if row["key"] not in developed],
    }


def main() -> None:
    [arguments] = TrlParser(RequirementsArguments).parse_args_and_config()
    rows = list(json_lines(data_file(PROMPTS, arguments.data)))
    output, console = Path(arguments.output_dir), Console()
    output.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    with write_rows(output / "differences.jsonl") as writer:
        for half, some in halves(rows).items():
            counts, differences = compare(some)
            total = sum(counts.values(), Counter[str]())
            precision, recall = rates(total)
            result[half] = {"prompts": len(some), **total, "precision": precision, "recall": recall}
            table = Table("instruction", "found", "missed", "false", title=f"{half}: {len(some)} prompts")
            for name, line in sorted(counts.items(), key=lambda pair: pair[0]):
                table.add_row(name, *(str(line[column]) for column in ("found", "missed", "false")))
            console.print(table)
            console.print(f"{half}: precision {precision:.3f}, recall {recall:.3f}")
            for row in differences:
                writer.write({"half": half, **row})
    started = time.process_time()
    for row in rows:
        find_requirements(row["prompt"])
    result["prompts_per_second"] = round(len(rows) / (time.process_time() - started))
    console.print(f"{result['prompts_per_second']} prompts per second and core")
    save_json(output / "summary.json", result)


if __name__ == "__main__":
    run_main(main)
