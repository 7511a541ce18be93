"""Measure another package on the workload of `served.py`. Runs in its own environment, without this package.

    python -P rivals.py autochecklist-item http://127.0.0.1:8000/v1 work.json

`work.json` is a list of {"input", "target", "questions"}. Prints a JSON object with `verdicts` and `seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

Work = Sequence[dict[str, Any]]


def autochecklist(url: str, work: Work, **mode: Any) -> int:
    """Score one target after the other, because its scorer has no concurrency setting."""
    from autochecklist import Checklist, ChecklistItem, ChecklistScorer

    scorer = ChecklistScorer(provider="vllm", base_url=url, model="instant", api_key="none", **mode)
    verdicts = 0
    for row in work:
        items = [ChecklistItem(question=question) for question in row["questions"]]
        checklist = Checklist(items=items, source_method="tick", generation_level="instance", input=row["input"])
        score = scorer.score(checklist, target=row["target"], input=row["input"])
        verdicts += sum(item.answer.value == "yes" for item in score.item_scores)
    return verdicts


def autorubric(url: str, work: Work) -> int:
    """Score all targets concurrently, as its own runner does."""
    from autorubric import Criterion, LLMConfig, Rubric
    from autorubric.graders import CriterionGrader

    grader = CriterionGrader(judge_model_config=LLMConfig(model="openai/instant", api_base=url, api_key="none"))

    async def grade(row: dict[str, Any]) -> int:
        rubric = Rubric([Criterion(requirement=question) for question in row["questions"]])
        report = await rubric.grade(row["target"], grader, query=row["input"])
        return sum(entry.final_verdict.value == "MET" for entry in report.report)

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(grade(row) for row in work)))

    return asyncio.run(all_of_them())


RIVALS = {
    "autochecklist-item": lambda url, work: autochecklist(url, work, mode="item"),
    "autochecklist-logprobs": lambda url, work: autochecklist(url, work, mode="item", use_logprobs=True),
    "autochecklist-batch": lambda url, work: autochecklist(url, work, mode="batch"),
    "autorubric": autorubric,
}


def main() -> None:
    """Measure the package named on the command line."""
    name, url, path = sys.argv[1:]
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    with open(path) as stream:
        work = json.load(stream)
    with contextlib.redirect_stdout(sys.stderr):
        RIVALS[name](url, work[:1])  # imports and first calls are not measured
        started = time.perf_counter()
        verdicts = RIVALS[name](url, work)
        seconds = time.perf_counter() - started
    expected = sum(len(row["questions"]) for row in work)
    assert verdicts == expected, f"{name} returned {verdicts} of {expected} verdicts"
    print(json.dumps({"verdicts": verdicts, "seconds": seconds}))


if __name__ == "__main__":
    main()
