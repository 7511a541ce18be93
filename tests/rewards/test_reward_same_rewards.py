"""The same texts get the same rewards, whoever asks: every framework's adapter, the server, its client, the CLI."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.chat import strip_thinking
from checklist_rewards.cli import app as command_line
from checklist_rewards.rerank import rerank
from checklist_rewards.rewards.integrations.areal import checklist_reward, checklist_reward_async
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.trl import ChecklistReward
from tests.rewards.hosts import VerifierFunction, openrlhf_executor, orms, swift_rewards, verl_reward_loop

CHECKLIST = [
    "Does the response end with a question mark?",
    {"question": "Does the response contain the word moon?", "weight": 2},
]
TEXTS = ["Who is there?", "The moon is up.", "Is it the moon?", "Nobody.", "<think>Is it the moon?</think>Yes", ""]
LABEL = json.dumps({"checklist": CHECKLIST, "input": "Say something."})
PROMPT = "<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n"


def pocket_scorer() -> ChecklistScorer:
    return ChecklistScorer("pocket", backend="transformers", store=False)


def expected() -> list[float | None]:
    scores = pocket_scorer().score_batch([Sample(CHECKLIST, strip_thinking(t), "Say something.") for t in TEXTS])
    return [score.primary_score for score in scores]


def through_trl(adapter):
    """`GRPOTrainer._calculate_rewards`: one call with all columns."""
    messages = [{"role": "user", "content": "Say something."}]
    n = len(TEXTS)
    completions = [[{"role": "assistant", "content": text}] for text in TEXTS]
    return ChecklistReward(pocket_scorer())(
        prompts=[messages] * n, completions=completions, completion_ids=[[1]] * n, checklist=[CHECKLIST] * n
    )


def through_trl_async(adapter):
    reward = ChecklistReward(pocket_scorer()).as_async()
    n = len(TEXTS)
    return asyncio.run(reward(prompts=["Say something."] * n, completions=TEXTS, checklist=[CHECKLIST] * n))


def through_verl(adapter):
    return verl_reward_loop(ChecklistComputeScore(pocket_scorer()).compute_score, TEXTS, LABEL)


def through_verl_async(adapter):
    return verl_reward_loop(ChecklistComputeScore(pocket_scorer()).compute_score_async, TEXTS, LABEL)


def through_verl_batch(adapter):
    n = len(TEXTS)
    scores = ChecklistComputeScore(pocket_scorer()).compute_score_batch(
        data_sources=["d"] * n, solution_strs=TEXTS, ground_truths=[LABEL] * n, extra_infos=[None] * n
    )
    return [score["score"] for score in scores]


def through_openrlhf(adapter):
    queries = [f"{PROMPT}{text}<|im_end|>" for text in TEXTS]
    n = len(TEXTS)
    return openrlhf_executor(ChecklistRewardFunc(pocket_scorer()), queries, [PROMPT] * n, [LABEL] * n)


def through_open_instruct(adapter):
    """`build_all_verifiers`, then all `async_call`s of a batch at once."""
    adapter("open_instruct")
    (subclass,) = [c for c in VerifierFunction.__subclasses__() if sys.modules.get(c.__module__) is not None][-1:]
    verifier = subclass(subclass.get_config_class().from_args(None))
    assert verifier.name == "checklist"
    assert verifier([], TEXTS[0], LABEL).score == pytest.approx(expected()[0], abs=1e-6)

    async def all_of_them():
        calls = [verifier.async_call([], text, json.dumps(CHECKLIST), query="Say something.") for text in TEXTS]
        return await asyncio.gather(*calls)

    return [result.score for result in asyncio.run(all_of_them())]


def through_skyrl(adapter):
    """An environment per sample, stepped from a pool of threads."""
    entry = adapter("skyrl").ChecklistEnv

    def episode(text):
        env = entry({}, {"reward_spec": {"method": "rule", "ground_truth": CHECKLIST}})
        prompt, _ = env.init([{"role": "user", "content": "Say something."}])
        assert prompt[0]["content"] == "Say something."
        out = env.step(text)
        assert out["done"] and out["observations"] == []
        return out["reward"]

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(episode, TEXTS))


def through_nemo_rl(adapter):
    settings = {"model": "pocket", "backend": "transformers", "store": False}
    env = adapter("nemo_rl").ChecklistEnvironment(settings)
    logs = [
        [
            {"role": "user", "content": "Say something.", "token_ids": torch.tensor([1])},
            {"role": "assistant", "content": text, "token_ids": torch.tensor([2])},
        ]
        for text in TEXTS
    ]
    out = env.step(logs, [{"checklist": CHECKLIST}] * len(TEXTS))
    assert out.terminateds.all() and out.answers == TEXTS and len(out.observations) == len(TEXTS)
    assert env.global_post_process_and_metrics({"a": 1}) == ({"a": 1}, {})
    return out.rewards.tolist()


def through_verifiers(adapter):
    """A task's own `@reward` for each of the rollouts that ended."""
    ChecklistJudge = adapter("verifiers").ChecklistJudge
    task = SimpleNamespace(checklist=CHECKLIST, prompt_text="Say something.")

    async def all_of_them():
        return await asyncio.gather(
            *[ChecklistJudge().score(task, SimpleNamespace(last_reply=text)) for text in TEXTS]
        )

    return asyncio.run(all_of_them())


def through_the_server(adapter):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from checklist_rewards.server import build_app

    with TestClient(build_app(pocket_scorer())) as client:
        rows = [{"checklist": CHECKLIST, "target": strip_thinking(t), "input": "Say something."} for t in TEXTS]
        scores = client.post("/score", json={"samples": rows}).json()["scores"]
    return [score["primary_score"] for score in scores]


def through_the_server_in_openrlhfs_form(adapter):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from checklist_rewards.server import build_app

    n = len(TEXTS)
    queries = [f"{PROMPT}{text}<|im_end|>" for text in TEXTS]
    with TestClient(build_app(pocket_scorer())) as client:
        body = {"query": queries, "prompts": [PROMPT] * n, "labels": [LABEL] * n}
        return client.post("/reward", json=body).json()["rewards"]


def through_a_remote_scorer(adapter):
    with reward_server() as url:
        return ChecklistReward(backend="remote", base_url=url)(
            prompts=["Say something."] * len(TEXTS), completions=TEXTS, checklist=[CHECKLIST] * len(TEXTS)
        )


def through_the_command_line(adapter):
    return scored_by_command("--model", "pocket", "--backend", "transformers")


def through_the_command_line_and_a_remote_scorer(adapter):
    with reward_server() as url:
        return scored_by_command("--backend", "remote", "--base-url", url)


def through_verifiers_configuration(adapter):
    """A reward that `TaskConfig.rewards` names by its path."""
    reward = adapter("verifiers").checklist_reward
    task = SimpleNamespace(checklist=LABEL, prompt_text="")
    return [asyncio.run(reward(task=task, trace=SimpleNamespace(last_reply=text))) for text in TEXTS]


def through_swift(adapter):
    """`--reward_funcs checklist`, after the module was imported as a plugin."""
    adapter("swift")
    conversations = [
        [{"role": "user", "content": "Say something."}, {"role": "assistant", "content": text}] for text in TEXTS
    ]
    return swift_rewards(orms["checklist"](), conversations, checklist=[json.dumps(CHECKLIST)] * len(TEXTS))


def through_areal(adapter):
    """`AsyncRewardWrapper`: a call per sample, with decoded texts, token ids and the columns of the row."""
    row = {"messages": [{"role": "user", "content": "Say something."}], "checklist": json.dumps(CHECKLIST)}
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(checklist_reward, PROMPT, f"{t}<|im_end|>", [1], [2], **row) for t in TEXTS]
        return [call.result() for call in calls]


def through_areal_async(adapter):
    async def all_of_them():
        calls = [checklist_reward_async(PROMPT, text, [1], [2], checklist=LABEL, task="d") for text in TEXTS]
        return await asyncio.gather(*calls)

    return asyncio.run(all_of_them())


def through_rerank(adapter):
    ranking = rerank(pocket_scorer(), CHECKLIST, [strip_thinking(text) for text in TEXTS], "Say something.")
    return [score.primary_score for score in ranking.scores]


def reward_server():
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from checklist_rewards.server import build_app
    from tests.serving import serving

    return serving(build_app(pocket_scorer()))


def scored_by_command(*options: str) -> list[float | None]:
    rows = [{"prompt": "Say something.", "completion": text, "checklist": CHECKLIST} for text in TEXTS]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(
        command_line, ["score", "rows.jsonl", "-o", "scored.jsonl", "--no-store", *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    lines = Path("scored.jsonl").read_text().splitlines()
    return [json.loads(line)["checklist_score"]["primary_score"] for line in lines]


@pytest.mark.parametrize(
    "through",
    [
        through_trl,
        through_trl_async,
        through_verl,
        through_verl_async,
        through_verl_batch,
        through_openrlhf,
        through_open_instruct,
        through_skyrl,
        through_nemo_rl,
        through_verifiers,
        through_verifiers_configuration,
        through_swift,
        through_areal,
        through_areal_async,
        through_rerank,
        through_the_server,
        through_the_server_in_openrlhfs_form,
        through_a_remote_scorer,
        through_the_command_line,
        through_the_command_line_and_a_remote_scorer,
    ],
    ids=lambda through: through.__name__.removeprefix("through_"),
)
def test_the_same_texts_get_the_same_rewards_everywhere(pocket, adapter, through, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = expected()
    assert len(set(wanted)) > 3 and None not in wanted
    assert through(adapter) == pytest.approx(wanted, abs=1e-5)
