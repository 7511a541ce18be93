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
    from checklist_rewards.rewards.trl import ChecklistReward

    monitor = {
        "shadow": {"model": "pocket", "prompt": "judges/rlcf"},
        "log": "new_monitor.jsonl",
        "held_out": 0.4,
        "shadow_share": 0.5,
        "retest_share": 0.5,
        "extra_reads": 1.0,
        "start": 3,
        "window": 3,
        "certainty": 1.0,
        "canary_every": 0,
    }
    reward = ChecklistReward(model="pocket", log="new_rewards.jsonl", monitor=monitor)
    rewards = [called(reward, step, 4) for step in range(6)]
    return {"rewards": rewards, "alarms": [[alarm.signal, alarm.step, alarm.size] for alarm in reward.monitor.alarms]}


def reward_with_evolving_checklists() -> Any:
    from checklist_rewards.rewards.trl import ChecklistReward

    proposed = [OTHER["question"], 'Does the response mention the word "morni"?']
    evolving = {
        "proposer": lambda groups: [proposed] * len(groups),
        "every": 2,
        "max_active": 1,
        "refiners": [],
        "buffer": "new_checklists.jsonl",
    }
    reward = ChecklistReward(model="pocket", log="new_rewards.jsonl", evolving=evolving)
    return [called(reward, step, 4) for step in range(4)]


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


def serve_scores_rewards_and_decisions() -> Any:
    # since 46fd139: responses name the judge, which clients compare
    from fastapi.testclient import TestClient

    from checklist_rewards import ChecklistScorer
    from checklist_rewards.server import build_app

    sample = {"input": PROMPTS[0], "target": COMPLETIONS[0], "checklist": CHECKLIST}
    label = json.dumps({"checklist": CHECKLIST, "input": PROMPTS[0]})
    asked = [{"type": "predicate", "name": "one", "instructions": CHECKLIST[0]["question"]}]
    bodies = {
        "/score": {"samples": [sample]},
        "/reward": {"query": [PROMPTS[0] + COMPLETIONS[0]], "prompts": [PROMPTS[0]], "labels": [label]},
        "/v1/decisions": {"model": "pocket", "input": COMPLETIONS[0], "questions": asked},
    }
    with TestClient(build_app(ChecklistScorer(model="pocket"))) as client:
        given = {path: client.post(path, json=body).json() for path, body in bodies.items()}
    identities = {
        answer.pop(key) for answer in given.values() for key in ("identity", "system_fingerprint") & answer.keys()
    }
    return {**given, "one identity of the judge": len(identities) == 1}


def app_with_annotations() -> Any:
    # since 46fd139: every file has its own labels; code checks and words are counted as by agree and the check `words`
    from fastapi.testclient import TestClient

    from checklist_rewards.backends import Engine
    from checklist_rewards.pipelines import PipelineConfig
    from checklist_rewards.ui.app import build_ui
    from checklist_rewards.ui.guard import HEADER
    from checklist_rewards.ui.judging import Judging
    from checklist_rewards.ui.project import Project

    engine = Engine("pocket", "transformers")
    app = build_ui(Judging(Project.at(Path.cwd()), PipelineConfig(), {}, engine, engine), "token")
    file = {"file": "scored.csv"}
    with TestClient(app, base_url="http://127.0.0.1:8091", headers={HEADER: "token"}) as client:
        return {
            "queue": client.get("/api/annotate/queue", params={**file, "annotator": "ann"}).json(),
            "task": client.get("/api/annotate/task", params={**file, "annotator": "ann", "place": 1}).json(),
            "export": client.post("/api/annotate/export", json=file).json() | {"commands": []},
            "report": client.get("/api/report", params=file).json(),
            "live": client.get("/api/live", params={"file": "rewards.jsonl"}).json(),
        }


def labels_to_distill() -> Any:
    from checklist_rewards.distill.labels import read_labels

    files = ("examples.jsonl", "strong.parquet")
    return {file: [[one.target, one.question, one.label, one.group] for one in read_labels(file)] for file in files}


def pairs_of_scored_pools() -> Any:
    from checklist_rewards import Checklist, ChecklistScorer, Sample
    from checklist_rewards.preferences import Rule, ScoredPool, mine_pairs

    scorer, pools = ChecklistScorer(model="pocket"), []
    for row in rows("candidates.jsonl"):
        scores = scorer.score_batch([Sample(row["checklist"], text, row["prompt"]) for text in row["candidates"]])
        pools.append(ScoredPool(row["prompt"], Checklist.parse(row["checklist"]), row["candidates"], scores))
    mined = mine_pairs(pools, Rule(select="rlcf", top_fraction=0.7))
    return [[pair.chosen, pair.rejected, pair.margin] for pair in mined.pairs]


def old_calibration_and_weights() -> Any:
    from checklist_rewards import ChecklistScorer

    scorer = ChecklistScorer(model="pocket", calibration="map.json", weights="fitted.json")
    items = [item for item in CHECKLIST if "lower case" not in item["question"]]
    return scorer.score(items, COMPLETIONS[0], PROMPTS[0]).model_dump()


def store_merged_with_another() -> Any:
    from checklist_rewards.files.store import Store

    other = Store("other.sqlite")
    return [other.merge(Store().path) == len(Store()), other.merge(Store().path)]


ENTRIES = [
    score_one_text,
    score_a_batch_and_its_receipt,
    reward_with_a_log,
    reward_with_shaping,
    reward_split_by_category,
    reward_from_a_file,
    reward_with_a_monitor,
    reward_with_evolving_checklists,
    refine_tasks,
    pipeline_of_writer_and_judge,
    build_a_dataset,
    serve_scores_rewards_and_decisions,
    app_with_annotations,
    labels_to_distill,
    pairs_of_scored_pools,
    old_calibration_and_weights,
    store_merged_with_another,
]
QUICK = {"score_one_text", "score_a_batch_and_its_receipt", "reward_with_a_log", "reward_split_by_category"}
