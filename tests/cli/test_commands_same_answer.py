"""One completion on all ways to a judge: everywhere it reads the same answer, and nothing of a text without one."""

import json
import re

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Score
from checklist_rewards.backends import Engine
from checklist_rewards.rerank import rerank
from checklist_rewards.self_refine import Task, refine_batch
from checklist_rewards.server import build_app
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl

QUESTION = "Is it free of digits?"
PROMPT = "Say something."
ANSWERED = {
    "The answer.": "The answer.",
    "<think>1, 2, 3</think>\n\nThe answer.": "The answer.",
    "1, 2, 3</think>The answer.": "The answer.",
    "<seed:think>1, 2, 3</seed:think>The answer.": "The answer.",
    "[THINK]1, 2, 3[/THINK]The answer.": "The answer.",
    "◁think▷1, 2, 3◁/think▷The answer.": "The answer.",
    "Put your reasoning into <think> tags.": "Put your reasoning into <think> tags.",
    "Thanks, Anna.\nHere is my response:\nYes, I will come.": "Thanks, Anna.\nHere is my response:\nYes, I will come.",
    "The answer.<|im_end|>": "The answer.",
    "<|im_start|>assistant\nThe answer.</s>\n": "The answer.",
    "The </s> of <s>old</s>": "The </s> of <s>old</s>",
}
WITHOUT = {"": "empty", " \n": "empty", "<think>1, 2, 3</think>": "empty", "<think>1, 2": "cut_in_thought"}


def no_digits(prefix: str, tail: str) -> float:
    return 0.02 if re.search("[0-9]", target_in(prefix)) else 0.98


def target_in(prefix: str) -> str:
    return re.search(r"<target-(\d+)>\n(.*?)\n</target-\1>", prefix, re.DOTALL)[2]


def by_rerank(completion, fake, run):
    return rerank(scorer_on(fake), [QUESTION], [completion], PROMPT).scores[0]


def by_refine(completion, fake, run):
    policy = Engine("m", FakeBackend(replies=[completion]))
    (done,) = refine_batch([Task(PROMPT, [QUESTION])], policy, scorer_on(fake), rounds=0)
    return done.rounds[0].score


def by_rerank_rows(completion, fake, run):
    write_jsonl("rows.jsonl", {"prompt": PROMPT, "checklist": [QUESTION], "candidates": [completion]})
    run("rerank rows.jsonl -o out.jsonl --no-store")
    return read_jsonl("out.jsonl")[0]["checklist_scores"][0]


def by_pairs_rows(completion, fake, run):
    write_jsonl("rows.jsonl", {"prompt": PROMPT, "checklist": [QUESTION], "candidates": ["7", completion]})
    run("pairs rows.jsonl -o out.jsonl --no-store")
    fake.asked = [asked for asked in fake.asked if target_in(asked[0]) != "7"]
    return None


def by_reward_endpoint(completion, fake, run):
    prompt = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    query = f"{prompt}{completion}<|im_end|>"
    body = {"query": [query], "prompts": [prompt], "labels": [json.dumps([QUESTION])]}
    return {"primary_score": posted(fake, "/reward", body)["rewards"][0]}


def by_decision_about(input):
    def asked(completion, fake, run):
        questions = [{"type": "predicate", "instructions": QUESTION}]
        answer = posted(fake, "/v1/decisions", {"model": "pocket", "input": input(completion), "questions": questions})
        [predicate] = answer["answers"]
        return {"primary_score": predicate.get("probability", predicate["type"]), "state": answer["target_state"]}

    return asked


def by_system_one(completion, fake, run):
    questions = {"a": {"type": "noul", "instructions": QUESTION}}
    answer = posted(fake, "/v1/systemone", {"state": completion, "questions": questions})
    noul = answer["answers"]["a"]
    return {"primary_score": noul.get("noul", noul["type"]), "state": answer["target_state"]}


def scorer_on(fake) -> ChecklistScorer:
    return ChecklistScorer(backend=fake, store=False)


def posted(fake, path, body):
    with TestClient(build_app(scorer_on(fake))) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


WAYS = {
    "rerank": by_rerank,
    "refine": by_refine,
    "rerank rows": by_rerank_rows,
    "pairs rows": by_pairs_rows,
    "/reward": by_reward_endpoint,
    "/v1/decisions, text": by_decision_about(lambda text: text),
    "/v1/decisions, state": by_decision_about(lambda text: {"target": text, "input": PROMPT}),
    "/v1/decisions, messages": by_decision_about(
        lambda text: [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": text}]
    ),
    "/v1/systemone": by_system_one,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_answer_reaches_the_judge(way, run, engine):
    for completion, answer in ANSWERED.items():
        fake = engine(no_digits)
        score = WAYS[way](completion, fake, run)
        assert [target_in(prefix) for prefix, _ in fake.asked] == [answer], completion
        assert score is None or dumped(score)["primary_score"] == pytest.approx(0.98), completion


@pytest.mark.parametrize("way", WAYS)
def test_a_text_without_an_answer_is_not_judged(way, run, engine):
    for completion, state in WITHOUT.items():
        fake = engine(no_digits)
        score = WAYS[way](completion, fake, run)
        assert fake.asked == [], completion
        if score is not None:
            assert dumped(score)["primary_score"] in (0.0, "refusal"), completion
            assert dumped(score).get("state", state) == state, completion


def dumped(score):
    return score.model_dump() if isinstance(score, Score) else score
