"""Compare the code checks with IFEval's own: 14,178 official strict verdicts on 541 prompts and 17 models' responses.

    python recipes/studies/checks/ifeval.py --output_dir runs/ifeval

Prints a table by type of instruction, and every differing verdict with its reason. The results are also written to
`summary.json` and `differences.jsonl` under `--output_dir`. The data (`ifeval/en_labels.jsonl.gz`: one line per
response with `instruction_id_list`, `kwargs` and `strict`) is read in place.
"""

from __future__ import annotations

import sys
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

from checklist_rewards.checks.builtin import language_of
from checklist_rewards.checks.ifeval import INSTRUCTIONS, check_of_instruction, follows
from checklist_rewards.checks.ifeval_text import capitals_in, sentences_of
from checklist_rewards.errors import CheckError
from checklist_rewards.evaluation.agreement import Bootstrap, Mean
from checklist_rewards.files.rows import write_rows

SEEDS = 50
RESAMPLES = 2000


@dataclass
class IFEvalArguments:
    """Input and output folders."""

    data: str = field(
        default=DATA, metadata={"help": "Folder with ifeval/; by default $CHECKLIST_REWARDS_DATA or ../shared/data."}
    )
    output_dir: str = field(default="runs/ifeval", metadata={"help": "Folder for summary.json and differences.jsonl."})


@dataclass(frozen=True)
class Compared:
    """One instruction of one response: the official verdict and ours (None if our check failed)."""

    key: int
    model: str
    instruction: str
    kwargs: Mapping[str, Any]
    response: str
    official: bool
    ours: bool | None
    error: str = ""


def compare(path: Path) -> Iterator[Compared]:
    """Compare every instruction of every response in a file of official verdicts."""
    for row in json_lines(path):
        response = row["response"] or ""
        for name, kwargs, official in zip(row["instruction_id_list"], row["kwargs"], row["strict"], strict=True):
            instruction = name.removeprefix("en:")
            ours, error = None, ""
            try:
                ours = follows(check_of_instruction(instruction, kwargs), response)
            except CheckError as broke:
                error = str(broke)
            yield Compared(row["key"], row["model"], instruction, kwargs, response, official, ours, error)


def reason(it: Compared) -> str:
    """Why our verdict differs from the official one, with measurements where possible."""
    if it.ours is None:
        return f"unanswered: {it.error}"
    if it.instruction == "keywords:letter_frequency" and not it.kwargs["letter"].isalpha():
        return f"IFEval puts a letter drawn at random in the place of {it.kwargs['letter']!r}, which is no letter"
    if it.instruction.startswith(("language:", "change_case:english_")):
        wanted = it.kwargs.get("language", "en")
        same = sum((language_of(it.response, seed) == wanted) == it.official for seed in range(SEEDS))
        return f"langdetect draws at random: the official verdict comes with {same} of {SEEDS} seeds"
    if it.instruction == "length_constraints:number_sentences":
        count = len(sentences_of(it.response, list_numbers=True))
        return f"IFEval splits sentences with nltk's punkt model, these checks by rules, which count {count}"
    if it.instruction == "change_case:capital_word_frequency":
        words = ", ".join(capitals_in(it.response)[:8])
        return f"IFEval's tokenizer makes a word of each clitic, such as 'S; here the words are {words}"
    return "not known"


def summary(compared: list[Compared]) -> dict[str, Any]:
    """Agreement overall, with a 95% bootstrap interval over prompts, and by type of instruction."""
    total, different = (
        Counter(it.instruction for it in compared),
        Counter(it.instruction for it in compared if _off(it)),
    )
    equal, prompts = Mean("agreement", [not _off(it) for it in compared]), [it.key for it in compared]
    agreement = Bootstrap(RESAMPLES).figures(equal, prompts)["agreement"]
    return {
        "n": len(compared),
        "prompts": len(set(prompts)),
        "differences": sum(different.values()),
        "agreement": agreement.value,
        "interval": [agreement.low, agreement.high],
        "by_instruction": {
            name: {"n": total[name], "differences": different[name], "agreement": 1 - different[name] / total[name]}
            for name in INSTRUCTIONS
            if total[name]
        },
    }


def _off(it: Compared) -> bool:
    return it.ours is not it.official


def main() -> None:
    [arguments] = TrlParser(IFEvalArguments).parse_args_and_config()
    console = Console()
    compared = list(compare(data_file("ifeval/en_labels.jsonl.gz", arguments.data)))
    result = summary(compared)
    different = [it for it in compared if _off(it)]
    rows = [
        {
            "instruction": it.instruction,
            "key": it.key,
            "model": it.model,
            "kwargs": dict(it.kwargs),
            "official": it.official,
            "ours": it.ours,
            "reason": reason(it),
        }
        for it in different
    ]
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    with write_rows(output / "differences.jsonl") as writer:
        for row in rows:
            writer.write(row)
    save_json(output / "summary.json", result)

    table = Table("instruction", "n", "differ", "agreement", title="Code checks against IFEval's strict verdicts")
    for name, line in result["by_instruction"].items():
        table.add_row(name, str(line["n"]), str(line["differences"]), f"{line['agreement']:.4f}")
    low, high = result["interval"]
    table.add_section()
    table.add_row("all", str(result["n"]), str(result["differences"]), f"{result['agreement']:.4f}")
    console.print(table)
    console.print(f"95 % interval, resampled by prompt: {low:.4f} to {high:.4f}")
    for row in rows:
        console.print(f"{row['instruction']} {row['key']} {row['model']}: {row['reason']}", highlight=False)


if __name__ == "__main__":
    run_main(main)
