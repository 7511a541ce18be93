r"""How to ask about a criterion that is a statement: three wordings, on three sets of people's answers.

    python recipes/studies/judges/statements.py --judges english english-encoder smollm2

Rubrics hold statements about the response ("States that the bulb is off.") and duties ("The response should state
that the bulb is off."). Facts of REALSumm, key points of ArgKP and reference answers of SemEval are written in both
forms and asked in three wordings. The table has the area under the ROC curve against people's answers: 0.5 is
guessing. Wordings of one judge and set are compared on the same texts.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from studies.common import DATA, data_file, json_lines, run_main, save_json

from checklist_rewards import ChecklistScorer, Sample

WORDINGS = {
    "describes": "Does this describe the response?\n{}",
    "is true of": "Is this true of the response?\n{}",
    "meets": "Does the response meet this criterion?\n{}",
}
FORMS = {"statement": "States that {}", "duty": "The response should state that {}"}
_QUOTED = re.compile(r"'(.+)'\?\Z")


def rows(folder: Path, name: str) -> Iterator[tuple[str, str, bool]]:
    """Fact, text and people's answer."""
    path = data_file(f"{name}/{'votes' if name == 'realsumm' else 'dev'}.jsonl.gz", folder)
    for row in json_lines(path):
        if name == "realsumm":
            yield row["criterion"], row["response"], 2 * row["votes_present"] > row["votes_total"]
        elif found := _QUOTED.search(row["question"]):
            yield found.group(1), row["target"], row["label"] > 0.5


def chosen(folder: Path, name: str, number: int) -> list[tuple[str, str, bool]]:
    """`number` rows, half of them with yes, the same in every run."""
    every, rng = list(rows(folder, name)), random.Random(0)
    yes, no = ([row for row in every if row[2] is answer] for answer in (True, False))
    return rng.sample(yes, number // 2) + rng.sample(no, number // 2)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print the table; returns its figures by "judge, set, form, wording"."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judges", nargs="+", default=["english", "english-encoder", "smollm2"])
    parser.add_argument("--sets", nargs="+", default=["realsumm", "argkp", "semeval"])
    parser.add_argument("--number", type=int, default=200, help="texts of each set")
    parser.add_argument("--data", type=Path, default=Path(DATA))
    parser.add_argument("--output", type=Path, default=Path("runs/statements.json"))
    options = parser.parse_args(argv)
    figures: dict[str, float] = {}
    table = Table("judge", "set", "form", *WORDINGS)
    for judge in options.judges:
        scorer = ChecklistScorer(
            judge, backend="encoder" if judge == "english-encoder" else "transformers", store=False
        )
        for name in options.sets:
            units = chosen(options.data, name, options.number)
            for form, statement in FORMS.items():
                cells = []
                for wording, question in WORDINGS.items():
                    asked = [question.format(statement.format(fact[:1].lower() + fact[1:])) for fact, _, _ in units]
                    samples = [Sample([one], text) for one, (_, text, _) in zip(asked, units, strict=True)]
                    scores = [score.primary_score for score in scorer.score_batch(samples)]
                    known = [(label, s) for (_, _, label), s in zip(units, scores, strict=True) if s is not None]
                    auc = float(roc_auc_score(*zip(*known, strict=True)))
                    figures[f"{judge}, {name}, {form}, {wording}"] = auc
                    cells.append(f"{auc:.3f}")
                table.add_row(judge, name, form, *cells)
        save_json(options.output, figures)
    Console().print(table)
    return figures


if __name__ == "__main__":
    run_main(main)
