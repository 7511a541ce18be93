"""The functions of the golden set: what the Python code of a user does. Each returns values and may write files.

They run in a folder with the files of `inputs/` and `old/`, with the store of the golden set as the default store. If
a name of the package changes, change it here; `expected/` stays as it is. All was recorded with 46fd139, apart from
functions with a comment "since 46fd139": there, a fault was repaired before d864fff, with which they were recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PROMPTS = ["Write a note. End with a question mark."] * 4 + ["Write a text for me. Avoid digits."] * 4
COMPLETIONS = [
    "A morni sees the kesme?",
    "The bulla holds 3 nipta.",
    "<think>A question, then.</think>Who sees the red turfo?",
    "",
    "our lunmu is bright.",
    "The 19 morni paints every cold zemgu!",
    "- a bokza holds demlo\n- our ninpu is bright",
    "Remmu likes the mupla and this kesme from kepti.",
]
CHECKLIST = [
    {"question": "Does the response end with a question mark?", "weight": 2, "category": "form"},
    {"question": "Is the response free of digits?", "weight": 1, "category": "content"},
    {"question": "Is the response written in lower case only?", "weight": 1, "category": "form"},
    {"question": "Does the response use bullet points?", "weight": -1, "category": "form"},
]
OTHER = {"question": "Does the response have exactly 1 sentence?", "weight": 1}


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of an input."""
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def called(reward: Any, step: int = 0, number: int = 8, **columns: Any) -> list[float | None]:
    """One call of a reward, as a trainer makes it at a step. The texts of later steps are others."""
    texts, start = COMPLETIONS[step:] + COMPLETIONS[:step], 4 - number // 2
    columns = {"checklist": [CHECKLIST] * number} | columns
    state = SimpleNamespace(global_step=step, stateful_callbacks={})
    return reward(prompts=PROMPTS[start : start + number], completions=texts[:number], trainer_state=state, **columns)


def score_one_text() -> Any:
    from checklist_rewards import ChecklistScorer

    scorer = ChecklistScorer(model="pocket", metric="weighted", threshold=0.5)
    return scorer.score(CHECKLIST, target=COMPLETIONS[0], input=PROMPTS[0]).model_dump()


def score_a_batch_and_its_receipt() -> Any:
    from checklist_rewards import ChecklistScorer, Sample

    scorer = ChecklistScorer(model="pocket")
    samples = [Sample(CHECKLIST, text, prompt) for text, prompt in zip(COMPLETIONS, PROMPTS, strict=True)]
    scores = scorer.score_batch([*samples, samples[0]])
    receipt = scorer.receipt
    return {
        "scores": [score.primary_score for score in scores],
        "receipt": [receipt.reads, receipt.asked, receipt.stored, receipt.deduplicated],
    }


def reward_with_a_log() -> Any:
    from checklist_rewards.rewards.trl import ChecklistReward

    reward = ChecklistReward(model="pocket", log="new_rewards.jsonl", categories=["form"])
    metrics = {}
    rewards = called(reward, log_metric=metrics.__setitem__, log_extra=lambda *_: None)
    del metrics["checklist_reward/judge_seconds"]
    return {"rewards": rewards, "metrics": metrics}


def reward_with_shaping() -> Any:
    # since 46fd139: length_penalty counts words as the check `words` does: without bullets and punctuation
    from checklist_rewards.rewards.trl import ChecklistReward

    shaping = [
        "earned",
        {"name": "gate", "how": "floor", "floor": 0.1},
        {"name": "length_penalty", "free": 4, "cap": 10},
        "centred",
    ]
    checklist = [{**item, "required": item["weight"] > 1} for item in CHECKLIST]
    return called(ChecklistReward(model="pocket", shaping=shaping), checklist=[checklist] * 8)


def reward_split_by_category() -> Any:
    from checklist_rewards.rewards.trl import ChecklistReward

    dataset = [{"checklist": CHECKLIST}]
    parts = ChecklistReward(model="pocket").split("category", dataset=dataset)
    return {part.__name__: [part.weight, called(part)] for part in parts}


def reward_from_a_file() -> Any:
    # since 46fd139: length_penalty counts words as the check `words` does: without bullets and punctuation
    from checklist_rewards.rewards.configured import configured_reward

    return called(configured_reward(str(Path("reward.yaml").resolve())))


def reward_with_a_monitor() -> Any:
    # since 46fd139: the monitor counts words as the check `words` does: without bullets and punctuation
    from checklist_rewards.monitor import RewardMonitor
    from checklist_rewards.rewards.trl import ChecklistReward

    monitor = RewardMonitor(
        ChecklistReward(model="pocket", log="new_rewards.jsonl"),
        shadow={"model": "pocket", "prompt": "judges/rlcf"},
        log="new_monitor.jsonl",
        held_out=0.4,
        shadow_share=0.5,
        retest_share=0.5,
        extra_reads=1.0,
        start=3,
        window=3,
        certainty=1.0,
        canary_every=0,
    )
    rewards = [called(monitor, step, 4) for step in range(6)]
    return {"rewards": rewards, "alarms": [[alarm.signal, alarm.step, alarm.size] for alarm in monitor.alarms]}


def reward_with_evolving_checklists() -> Any:
    from checklist_rewards.evolving import EvolvingChecklistReward
    from checklist_rewards.rewards.trl import ChecklistReward

    proposed = [OTHER["question"], 'Does the response mention the word "morni"?']
    reward = EvolvingChecklistReward(
        ChecklistReward(model="pocket", log="new_rewards.jsonl"),
        lambda groups: [proposed] * len(groups),
        every=2,
        max_active=1,
        refiners=[],
        buffer="new_checklists.jsonl",
    )
    return [called(reward, step, 4) for step in range(4)]


def rerank_pools() -> Any:
    from checklist_rewards import ChecklistScorer
    from checklist_rewards.rerank import Pool, rerank_batch

    pools = [Pool(row["checklist"], row["candidates"], row["prompt"]) for row in rows("candidates.jsonl")]
    rankings = rerank_batch(ChecklistScorer(model="pocket"), pools, ties="first")
    return [[ranking.picked, [score.primary_score for score in ranking.scores]] for ranking in rankings]


def refine_tasks() -> Any:
    from checklist_rewards import ChecklistScorer
    from checklist_rewards.backends import Engine
    from checklist_rewards.files.store import Store
    from checklist_rewards.self_refine import Task, refine_batch

    tasks = [Task(row["prompt"], CHECKLIST) for row in rows("prompts.jsonl")]
    engine = Engine("pocket", "transformers")
    done = refine_batch(tasks, engine, ChecklistScorer(model="pocket"), rounds=2, store=Store())
    return [[one.text, one.best, [step.score.primary_score for step in one.rounds]] for one in done]


def pipeline_of_writer_and_judge() -> Any:
    from checklist_rewards import pipeline

    pipe = pipeline("tick", generator_model="pocket", scorer_model="pocket")
    results = pipe.run_batch([{"input": row["prompt"], "target": row["target"]} for row in rows("prompts.jsonl")])
    return [[[item.question for item in one.checklist.items], one.score.primary_score] for one in results]


def build_a_dataset() -> Any:
    from checklist_rewards import build_checklists

    dataset = build_checklists(rows("prompts.jsonl"), pipeline="tick", model="pocket")
    return dataset.to_list()


def serve_rewards() -> Any:
    from fastapi.testclient import TestClient

    from checklist_rewards import ChecklistScorer
    from checklist_rewards.server import build_app

    row = {"input": PROMPTS[0], "target": COMPLETIONS[0], "checklist": CHECKLIST}
    with TestClient(build_app(ChecklistScorer(model="pocket"))) as client:
        return client.post("/score", json={"rows": [row]}).json()


ENTRIES = [
    score_one_text,
    score_a_batch_and_its_receipt,
    reward_with_a_log,
    reward_with_shaping,
    reward_split_by_category,
    reward_from_a_file,
    reward_with_a_monitor,
    reward_with_evolving_checklists,
    rerank_pools,
    refine_tasks,
    pipeline_of_writer_and_judge,
    build_a_dataset,
    serve_rewards,
]
QUICK = {"score_one_text", "score_a_batch_and_its_receipt", "reward_with_a_log", "reward_split_by_category"}
