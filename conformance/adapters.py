"""What is tested: rewards of this package, of other packages, and one as people write it.

An [`Adapter`] has a function `reward(checklist, prompt, response, url, model)` that returns a score in [0, 1] or None,
or raises. It uses the package as its documentation shows, with its defaults. Packages are imported inside the
functions: every adapter can be listed anywhere, and runs in an environment of its own.

The runner starts `python -m conformance.adapters NAME URL`, which reads a case and prints an outcome per line.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from conformance.server import PANEL, Form, Kind

Items = list[dict[str, Any]]
Reward = Callable[[Items, str, str, str, str], float | None]

LIMIT = 180.0
"""Seconds per case. A reward that still waits has no score then."""
_THREADS = 6


@dataclass(frozen=True)
class Adapter:
    """A reward under test."""

    reward: Reward
    kind: Kind
    """How it asks its judge: one token per item, a reply per item, one reply for all items, or one grade."""
    form: Form
    """A sound reply of its judge."""
    package: str = ""
    """Its distribution; "" if it is written here."""
    can: frozenset[str] = frozenset()
    """What its checklists may have: `penalties`, `gates`, `abstentions`; `votes` if it asks five times."""


def word(answers: Sequence[tuple[int, str]]) -> str:
    """One label."""
    return answers[0][1].capitalize()


def as_json(answer: Callable[[str], dict[str, Any]]) -> Form:
    """A JSON object per item."""
    return lambda answers: json.dumps(answer(answers[0][1]))


def as_list(name: str, entry: Callable[[int, str], dict[str, Any]]) -> Form:
    """A JSON object with a list of answers."""
    return lambda answers: json.dumps({name: [entry(number, answer) for number, answer in answers]})


def share(answers: Sequence[tuple[int, str]]) -> float:
    """The share of items that are answered yes."""
    return sum(answer == "yes" for _, answer in answers) / max(1, len(answers))


# --- this package ----------------------------------------------------------------------------------------------------


def ours(checklist: Items, prompt: str, response: str, url: str, model: str, **settings: Any) -> float | None:
    """Score by a served judge. Only the retries of a server in trouble are fewer and sooner than the default."""
    from checklist_rewards import ChecklistScorer
    from checklist_rewards.backends.openai import OpenAIBackend

    backend = OpenAIBackend(model, url, attempts=3, pause=0.05, patience=2.0, deadline=30.0)
    return (
        ChecklistScorer(model, backend=backend, store=False, **settings)
        .score(checklist, response, prompt)
        .primary_score
    )


_OURS: Any = {"package": "checklist-rewards", "can": frozenset({"penalties", "gates", "abstentions"})}
_REASONED = as_json(lambda answer: {"reasoning": "One can see it.", "answer": answer})

# --- others ----------------------------------------------------------------------------------------------------------


def plain(checklist: Items, prompt: str, response: str, url: str, model: str) -> float | None:
    """A judge reward in 40 lines, as people write it: ask for JSON, count the yes, and 0.0 if anything goes wrong."""
    questions = "\n".join(f"{number}. {item['question']}" for number, item in enumerate(checklist, start=1))
    text = (
        f"Prompt:\n{prompt}\n\nResponse:\n{response}\n\nAnswer these questions about the response:\n{questions}\n\n"
        'Reply with JSON only, like {"1": "yes", "2": "no"}.'
    )
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a strict evaluator."},
            {"role": "user", "content": text},
        ],
        "temperature": 0.0,
        "max_tokens": 512,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            reply = json.load(answer)["choices"][0]["message"]["content"]
        found = re.search(r"\{.*\}", reply, re.DOTALL)
        verdicts = json.loads(found.group()) if found else {}
        earned = total = 0.0
        for number, item in enumerate(checklist, start=1):
            weight = item.get("weight", 1.0)
            if str(verdicts.get(str(number), "no")).strip().lower().startswith("y"):
                earned += weight
            total += max(weight, 0.0)
        return min(1.0, max(0.0, earned / total))
    except Exception as error:
        print(f"judge failed: {error}", file=sys.stderr)
        return 0.0


def _plain_form(answers: Sequence[tuple[int, str]]) -> str:
    return "{" + ", ".join(f'"{number}": "{answer}"' for number, answer in answers) + "}"


def autochecklist(checklist: Items, prompt: str, response: str, url: str, model: str, **mode: Any) -> float | None:
    """AutoChecklist's scorer."""
    from autochecklist import Checklist, ChecklistItem, ChecklistScorer

    scorer = ChecklistScorer(provider="vllm", base_url=url, model=model, api_key="none", **mode)
    items = [ChecklistItem(question=item["question"]) for item in checklist]
    given = Checklist(items=items, source_method="tick", generation_level="instance", input=prompt)
    return scorer.score(given, target=response, input=prompt).primary_score


def autorubric(
    checklist: Items, prompt: str, response: str, url: str, model: str, judges: int = 1, **options: Any
) -> float | None:
    """Autorubric's criterion grader, with one judge or a panel."""
    import asyncio

    from autorubric import Criterion, LLMConfig, Rubric
    from autorubric.graders import CriterionGrader, JudgeSpec

    def config(name: str) -> LLMConfig:
        return LLMConfig(model=f"openai/{name}", api_base=url, api_key="none")

    if judges == 1:
        grader = CriterionGrader(judge_model_config=config(model), **options)
    else:
        panel = [JudgeSpec(config(f"{model}{PANEL}{n}"), f"judge {n}") for n in range(1, judges + 1)]
        grader = CriterionGrader(judges=panel, **options)
    rubric = Rubric([Criterion(requirement=i["question"], weight=i.get("weight", 1.0)) for i in checklist])
    return asyncio.run(rubric.grade(response, grader, query=prompt)).score


def _met(answer: str) -> str:
    return {"yes": "MET", "no": "UNMET", "cannot_assess": "CANNOT_ASSESS"}.get(answer, answer)


def verifiers(checklist: Items, prompt: str, response: str, url: str, model: str) -> float | None:
    """The rubric judge of verifiers. The task and trace have what it reads of them."""
    import asyncio

    from verifiers.v1.judges import RubricJudge, RubricJudgeConfig

    os.environ["CONFORMANCE_KEY"] = "none"
    criteria = [{"name": f"c{n}", "text": item["question"]} for n, item in enumerate(checklist, start=1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "criteria.json")
        path.write_text(json.dumps(criteria))
        judge = RubricJudge(
            RubricJudgeConfig(path=path, base_url=url, model=model, api_key_var="CONFORMANCE_KEY", view="last_reply")
        )
        task = SimpleNamespace(prompt_text=prompt)
        nothing = lambda *args, **kwargs: None  # noqa: E731
        trace = SimpleNamespace(last_reply=response, record_judge_call=nothing, record_metric=nothing)
        return asyncio.run(judge.score(task, trace))  # type: ignore[arg-type]


def openenv(checklist: Items, prompt: str, response: str, url: str, model: str) -> float | None:
    """OpenEnv's LLM judge per item, in its weighted sum."""
    import asyncio

    from openenv.core.llm_client import OpenAIClient
    from openenv.core.rubrics import LLMJudge, WeightedSum

    address, _, port = url.removesuffix("/v1").rpartition(":")
    client = OpenAIClient(address, int(port), model=model)
    form = "Prompt: {observation}\nResponse: {action}\n\nQuestion: %s\n\nScore (1 for yes, 0 for no):"
    judges = [LLMJudge(form % item["question"], client) for item in checklist]
    rubric = WeightedSum(judges, [1 / len(judges)] * len(judges))

    async def score() -> float:
        return await rubric(response, prompt)

    return asyncio.run(score())


def deepeval(checklist: Items, prompt: str, response: str, url: str, model: str) -> float | None:
    """DeepEval's G-Eval with the items as its evaluation steps, on a model that is served here."""
    from deepeval.metrics import GEval
    from deepeval.models import LocalModel
    from deepeval.test_case import LLMTestCase, SingleTurnParams

    metric = GEval(
        name="checklist",
        evaluation_steps=[item["question"] for item in checklist],
        evaluation_params=[SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT],
        model=LocalModel(model=model, base_url=url, api_key="none"),
        async_mode=False,
    )
    return metric.measure(LLMTestCase(input=prompt, actual_output=response), _show_indicator=False)


def prometheus(checklist: Items, prompt: str, response: str, url: str, model: str) -> float | None:
    """prometheus-eval's absolute grade from 1 to 5, by a served model; its scale moved to [0, 1]."""
    from prometheus_eval import PrometheusEval
    from prometheus_eval.litellm import LiteLLM

    os.environ["OPENAI_API_KEY"] = "none"
    rubric = "\n".join(item["question"] for item in checklist)
    judge = PrometheusEval(model=LiteLLM(f"openai/{model}", api_base=url))
    _, grade = judge.single_absolute_grade(instruction=prompt, response=response, rubric=rubric)
    return None if grade is None else (grade - 1) / 4


ADAPTERS: dict[str, Adapter] = {
    "ours-logprobs": Adapter(ours, "word", word, "checklist-rewards", frozenset({"penalties", "gates"})),
    "ours-reasoned": Adapter(partial(ours, capture_reasoning=True), "item", _REASONED, **_OURS),
    "ours-votes": Adapter(
        partial(ours, capture_reasoning=True, votes=5), "item", _REASONED, _OURS["package"], _OURS["can"] | {"votes"}
    ),
    "ours-batch": Adapter(
        partial(ours, mode="batch"), "list", as_list("answers", lambda n, a: {"index": n, "answer": a}), **_OURS
    ),
    "plain": Adapter(plain, "list", _plain_form, can=frozenset({"penalties"})),
    "autochecklist-batch": Adapter(
        partial(autochecklist, mode="batch"),
        "list",
        as_list("answers", lambda n, a: {"question_index": n, "answer": a.upper()}),
        "autochecklist",
    ),
    "autochecklist-item": Adapter(
        partial(autochecklist, mode="item"), "item", as_json(lambda a: {"answer": a.upper()}), "autochecklist"
    ),
    "autochecklist-logprobs": Adapter(
        partial(autochecklist, mode="item", use_logprobs=True, primary_metric="normalized"),
        "word",
        word,
        "autochecklist",
    ),
    "autorubric": Adapter(
        autorubric,
        "item",
        as_json(lambda a: {"criterion_status": _met(a), "explanation": "One can see it."}),
        "autorubric",
        frozenset({"penalties", "abstentions"}),
    ),
    "autorubric-panel": Adapter(
        partial(autorubric, judges=5),
        "item",
        as_json(lambda a: {"criterion_status": _met(a), "explanation": "One can see it."}),
        "autorubric",
        frozenset({"penalties", "abstentions", "votes"}),
    ),
    "verifiers": Adapter(
        verifiers,
        "list",
        as_list("verdicts", lambda n, a: {"name": f"c{n}", "reason": "One can see it.", "verdict": a}),
        "verifiers",
    ),
    "openenv": Adapter(
        openenv, "item", lambda answers: {"yes": "1", "no": "0"}.get(answers[0][1], answers[0][1]), "openenv-core"
    ),
    "deepeval": Adapter(
        deepeval,
        "grade",
        lambda answers: json.dumps({"reason": "One can see it.", "score": round(10 * share(answers))}),
        "deepeval",
    ),
    "prometheus": Adapter(
        prometheus,
        "grade",
        lambda answers: f"One can see it. [RESULT] {1 + round(4 * share(answers))}",
        "prometheus-eval",
    ),
}

PROMPT = "Write a haiku about rain."
RESPONSE = "Rain taps the window.\nAn autumn evening listens.\nThe gutters answer."


def outcome(adapter: Adapter, case: dict[str, Any], url: str) -> dict[str, Any]:
    """The score of one case, or why there is none."""
    box: dict[str, Any] = {"score": None, "why": f"no score within {LIMIT:g} s"}
    started = time.monotonic()

    def run() -> None:
        try:
            score = adapter.reward(case["items"], PROMPT, RESPONSE, url, case["id"])
            box.update(score=None if score is None else float(score), why="" if score is not None else "None")
        except BaseException as error:
            box.update(score=None, why=f"{type(error).__name__}: {str(error)[:160]}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return {"id": case["id"], **box, "seconds": round(time.monotonic() - started, 1)}


def outcomes(adapter: Adapter, cases: Iterable[dict[str, Any]], url: str) -> Iterator[dict[str, Any]]:
    """The outcome of every case, in their order; several cases run at the same time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(lambda case: outcome(adapter, case, url), cases)


def main() -> None:
    """Run the adapter and the cases of standard input."""
    name, url = sys.argv[1:]
    adapter = ADAPTERS[name]
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES"}
    out = os.dup(1)  # libraries print
    with contextlib.redirect_stdout(sys.stderr), os.fdopen(out, "w") as lines:
        try:
            version = importlib.metadata.version(adapter.package) if adapter.package else ""
        except importlib.metadata.PackageNotFoundError:
            print(json.dumps({"version": None}), file=lines, flush=True)
            return
        with contextlib.suppress(Exception):  # imports take long, and are not what is timed
            adapter.reward([{"question": "Is it about rain?"}], PROMPT, RESPONSE, url, "all_yes")
        print(json.dumps({"version": version}), file=lines, flush=True)
        for found in outcomes(adapter, map(json.loads, sys.stdin), url):
            print(json.dumps(found), file=lines, flush=True)
    os._exit(0)  # without waiting for requests that hang


if __name__ == "__main__":
    main()
