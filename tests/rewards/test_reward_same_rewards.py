"""The same texts get the same rewards on every way: each adapter of a framework, the server and its client."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.chat import strip_thinking
from checklist_rewards.rewards.integrations.areal import checklist_reward, checklist_reward_async
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.server import build_app
from tests.rewards.fakes import assistant, call, user
from tests.rewards.hosts import VerifierFunction, openrlhf_executor, orms, swift_rewards, verl_reward_loop
from tests.serving import serving

SAY = "Say something."
CHECKLIST = [
    "Does the response end with a question mark?",
    {"question": "Does the response contain the word moon?", "weight": 2},
]
TEXTS = ["Who is there?", "The moon is up.", "Is it the moon?", "Nobody.", "<think>Is it the moon?</think>Yes", ""]
LABEL = json.dumps({"checklist": CHECKLIST, "input": SAY})
LABELS = [LABEL] * len(TEXTS)
PROMPT = f"<|im_start|>user\n{SAY}<|im_end|>\n<|im_start|>assistant\n"
QUERIES = [f"{PROMPT}{text}<|im_end|>" for text in TEXTS]
BATCH = call(TEXTS, SAY, items=CHECKLIST)
POCKET = {"model": "pocket", "backend": "transformers", "store": False}


def pocket_scorer() -> ChecklistScorer:
    return ChecklistScorer(**POCKET)


def through_trl(adapter):
    """`GRPOTrainer._calculate_rewards`: one call with all columns."""
    chats = {"prompts": [user(SAY)] * len(TEXTS), "completions": [assistant(text) for text in TEXTS]}
    return ChecklistReward(pocket_scorer())(**BATCH | chats, completion_ids=[[1]] * len(TEXTS))


def through_trl_async(adapter):
    return asyncio.run(ChecklistReward(pocket_scorer()).as_async()(**BATCH))


def through_verl(adapter):
    return verl_reward_loop(ChecklistComputeScore(pocket_scorer()).compute_score, TEXTS, LABEL)


def through_verl_async(adapter):
    return verl_reward_loop(ChecklistComputeScore(pocket_scorer()).compute_score_async, TEXTS, LABEL)


def through_verl_batch(adapter):
    n = len(TEXTS)
    scores = ChecklistComputeScore(pocket_scorer()).compute_score_batch(
        data_sources=["d"] * n, solution_strs=TEXTS, ground_truths=LABELS, extra_infos=[None] * n
    )
    return [score["score"] for score in scores]


def through_openrlhf(adapter):
    return openrlhf_executor(ChecklistRewardFunc(pocket_scorer()), QUERIES, [PROMPT] * len(TEXTS), LABELS)


def through_open_instruct(adapter):
    """`build_all_verifiers`, then all `async_call`s of a batch at once."""
    adapter("open_instruct")
    [subclass] = [c for c in VerifierFunction.__subclasses__() if sys.modules.get(c.__module__) is not None][-1:]
    verifier = subclass(subclass.get_config_class().from_args(None))
    assert verifier.name == "checklist"

    async def all_of_them():
        calls = [verifier.async_call([], text, json.dumps(CHECKLIST), query=SAY) for text in TEXTS]
        return await asyncio.gather(*calls)

    found = [result.score for result in asyncio.run(all_of_them())]
    assert verifier([], TEXTS[0], LABEL).score == pytest.approx(found[0], abs=1e-6)
    return found


def through_skyrl(adapter):
    """An environment per sample, stepped from a pool of threads."""
    entry = adapter("skyrl").ChecklistEnv

    def episode(text):
        env = entry({}, {"reward_spec": {"method": "rule", "ground_truth": CHECKLIST}})
        prompt, _ = env.init(user(SAY))
        assert prompt == user(SAY)
        out = env.step(text)
        assert out["done"] and out["observations"] == []
        return out["reward"]

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(episode, TEXTS))


def through_nemo_rl(adapter):
    env = adapter("nemo_rl").ChecklistEnvironment(POCKET)
    asked = {**user(SAY)[0], "token_ids": torch.tensor([1])}
    logs = [[asked, {**assistant(text)[0], "token_ids": torch.tensor([2])}] for text in TEXTS]
    out = env.step(logs, [{"checklist": CHECKLIST}] * len(TEXTS))
    assert out.terminateds.all() and out.answers == TEXTS and len(out.observations) == len(TEXTS)
    assert env.global_post_process_and_metrics({"a": 1}) == ({"a": 1}, {})
    return out.rewards.tolist()


def through_verifiers(adapter):
    """A task's own `@reward` for each of the rollouts that ended."""
    judge = adapter("verifiers").ChecklistJudge
    task = SimpleNamespace(checklist=CHECKLIST, prompt_text=SAY)

    async def all_of_them():
        return await asyncio.gather(*[judge().score(task, SimpleNamespace(last_reply=text)) for text in TEXTS])

    return asyncio.run(all_of_them())


def through_verifiers_configuration(adapter):
    """A reward that `TaskConfig.rewards` names by its path."""
    reward = adapter("verifiers").checklist_reward
    task = SimpleNamespace(checklist=LABEL, prompt_text="")
    return [asyncio.run(reward(task=task, trace=SimpleNamespace(last_reply=text))) for text in TEXTS]


def through_swift(adapter):
    """`--reward_funcs checklist`, after the module was imported as a plugin."""
    adapter("swift")
    conversations = [[*user(SAY), *assistant(text)] for text in TEXTS]
    return swift_rewards(orms["checklist"](), conversations, checklist=[json.dumps(CHECKLIST)] * len(TEXTS))


def through_areal(adapter):
    """`AsyncRewardWrapper`: a call per sample, with decoded texts, token ids and the columns of the row."""
    row = {"messages": user(SAY), "checklist": json.dumps(CHECKLIST)}
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(checklist_reward, PROMPT, f"{t}<|im_end|>", [1], [2], **row) for t in TEXTS]
        return [call.result() for call in calls]


def through_areal_async(adapter):
    async def all_of_them():
        calls = [checklist_reward_async(PROMPT, text, [1], [2], checklist=LABEL, task="d") for text in TEXTS]
        return await asyncio.gather(*calls)

    return asyncio.run(all_of_them())


def through_the_server_in_openrlhfs_form(adapter):
    body = {"query": QUERIES, "prompts": [PROMPT] * len(TEXTS), "labels": LABELS}
    with TestClient(build_app(pocket_scorer())) as client:
        return client.post("/reward", json=body).json()["rewards"]


def through_a_remote_scorer(adapter):
    with serving(build_app(pocket_scorer())) as url:
        return ChecklistReward(backend="remote", base_url=url)(**BATCH)


WAYS = {name.removeprefix("through_"): way for name, way in dict(globals()).items() if name.startswith("through_")}


@pytest.fixture(scope="module")
def expected(pocket) -> list[float]:
    scores = pocket_scorer().score_batch([Sample(CHECKLIST, strip_thinking(text), SAY) for text in TEXTS])
    found = [score.primary_score for score in scores]
    assert len(set(found)) > 3 and None not in found
    return found


@pytest.mark.parametrize("through", WAYS.values(), ids=WAYS)
def test_the_same_texts_get_the_same_rewards_everywhere(expected, adapter, through):
    assert through(adapter) == pytest.approx(expected, abs=1e-5)
