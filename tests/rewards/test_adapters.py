"""Every adapter under a minimal host that calls it as its framework does, and one reward for one text everywhere.

The hosts below are the frameworks' own base classes and calls, shortened; where each was read is said in the adapter.
"""

import abc
import asyncio
import importlib
import inspect
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import pytest
import torch

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards import samplewise
from checklist_rewards.rewards.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.samplewise import SamplewiseReward, Unscored, answer_after
from checklist_rewards.rewards.verl import ChecklistComputeScore
from tests.fakes import FakeBackend

CHECKLIST = [
    "Does the response end with a question mark?",
    {"question": "Does the response contain the word moon?", "weight": 2},
]
TEXTS = ["Who is there?", "The moon is up.", "Is it the moon?", "Nobody.", "<think>Is it the moon?</think>Yes", ""]
LABEL = json.dumps({"checklist": CHECKLIST, "input": "Say something."})
PROMPT = "<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n"
MODULES = ("open_instruct", "skyrl", "nemo_rl", "verifiers")


def module(name: str, **content: Any) -> dict[str, ModuleType]:
    """A package of that name with these things in it, and its parents."""
    parts = name.split(".")
    packages = {".".join(parts[:n]): ModuleType(".".join(parts[:n])) for n in range(1, len(parts) + 1)}
    packages[name].__dict__.update(content)
    return packages


class VerifierConfig:
    @classmethod
    def from_args(cls, args):
        return cls()


@dataclass
class VerificationResult:
    score: float
    cost: float = 0.0
    reasoning: str | None = None


class VerifierFunction(abc.ABC):
    def __init__(self, name, weight=1.0, verifier_config=None):
        self.name, self.weight, self.verifier_config = name, weight, verifier_config

    @classmethod
    def get_config_class(cls):
        return VerifierConfig

    @abc.abstractmethod
    def __call__(self, tokenized_prediction, prediction, label, query=None): ...

    async def async_call(self, tokenized_prediction, prediction, label, query=None):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self(tokenized_prediction, prediction, label, query))


class BaseTextEnvStepOutput(TypedDict):
    observations: list[dict[str, str]]
    reward: float
    done: bool
    metadata: dict[str, Any]
    postprocessed_action: str | None


class BaseTextEnv:
    def __init__(self):
        self.turns, self.max_turns = 0, 1


class EnvironmentReturn(NamedTuple):
    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[Any]
    rewards: torch.Tensor
    terminateds: torch.Tensor
    answers: list[str | None] | None = None


class EnvironmentInterface(abc.ABC):
    @abc.abstractmethod
    def step(self, message_log_batch, metadata): ...

    @abc.abstractmethod
    def global_post_process_and_metrics(self, batch): ...


class Judge:
    def __init__(self, config=None):
        self.config = config


@pytest.fixture
def adapter(monkeypatch, tmp_path):
    """`adapter(name)` imports that adapter beside its host; it is configured with the pocket judge."""
    hosts = {
        **module(
            "open_instruct.ground_truth_utils",
            VerificationResult=VerificationResult,
            VerifierFunction=VerifierFunction,
        ),
        **module("skyrl_gym.envs.base_text_env", BaseTextEnv=BaseTextEnv, BaseTextEnvStepOutput=BaseTextEnvStepOutput),
        **module(
            "nemo_rl.environments.interfaces",
            EnvironmentInterface=EnvironmentInterface,
            EnvironmentReturn=EnvironmentReturn,
        ),
        **module("verifiers.v1.judge", Judge=Judge),
    }
    for name, host in hosts.items():
        monkeypatch.setitem(sys.modules, name, host)
    settings = tmp_path / "reward.yaml"
    settings.write_text("model: pocket\nbackend: transformers\nstore: false\n")
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(settings))
    yield lambda name: importlib.import_module(f"checklist_rewards.rewards.{name}")
    for name in MODULES:
        sys.modules.pop(f"checklist_rewards.rewards.{name}", None)


def verl_reward_loop(compute_score, texts, label) -> list[float]:
    """`RewardLoopManager.compute_rm_score` over `run_single` of each sample at once."""

    async def run_single(text):
        call = {"data_source": "d", "solution_str": text, "ground_truth": label, "extra_info": {}}
        if inspect.iscoroutinefunction(compute_score):
            result = await compute_score(**call, strict_box_verify=False)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(None, lambda: compute_score(**call, strict_box_verify=False))
        return result["score"], dict(result)

    async def all_of_them():
        return await asyncio.gather(*map(run_single, texts))

    outputs = asyncio.run(all_of_them())
    keys = list(outputs[0][1])
    assert all(isinstance(info[key], float) for _, info in outputs for key in keys)
    return [score for score, _ in outputs]


def openrlhf_executor(reward_func, queries, prompts, labels) -> list[float]:
    """`SingleTurnAgentExecutor.execute` of every sample at once: lists of one, each in a thread."""

    async def all_of_them():
        rows = zip(queries, prompts, labels, strict=True)
        return await asyncio.gather(*[asyncio.to_thread(reward_func, [q], [p], [x]) for q, p, x in rows])

    found = asyncio.run(all_of_them())
    assert all(torch.tensor([value]).shape == (1,) for info in found for value in info["extra_logs"].values())
    return [torch.tensor([info["rewards"]]).item() for info in found]


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

    from checklist_rewards.chat import strip_thinking
    from checklist_rewards.server import build_app

    n = len(TEXTS)
    with TestClient(build_app(pocket_scorer())) as client:
        queries = [f"{PROMPT}{text}<|im_end|>" for text in TEXTS]
        body = {"query": queries, "prompts": [PROMPT] * n, "labels": [LABEL] * n}
        rewards = client.post("/reward", json=body).json()["rewards"]
        rows = [{"checklist": CHECKLIST, "target": strip_thinking(t), "input": "Say something."} for t in TEXTS]
        scores = client.post("/score", json={"samples": rows}).json()["scores"]
    assert [score["primary_score"] for score in scores] == rewards
    return rewards


def pocket_scorer() -> ChecklistScorer:
    return ChecklistScorer("pocket", backend="transformers", store=False)


def expected() -> list[float | None]:
    targets = [text.partition("</think>")[2] or text for text in TEXTS]
    scores = pocket_scorer().score_batch([Sample(CHECKLIST, text, "Say something.") for text in targets])
    return [score.primary_score for score in scores]


@pytest.mark.parametrize(
    "through",
    [
        through_verl,
        through_verl_async,
        through_verl_batch,
        through_openrlhf,
        through_open_instruct,
        through_skyrl,
        through_nemo_rl,
        through_verifiers,
        through_the_server,
    ],
    ids=lambda through: through.__name__.removeprefix("through_"),
)
def test_the_same_texts_get_the_same_rewards_everywhere(pocket, adapter, through):
    wanted = expected()
    assert len(set(wanted)) > 3 and None not in wanted
    assert through(adapter) == pytest.approx(wanted, abs=1e-5)


def boom(prefix: str, tail: str) -> bool:
    return "boom" in prefix


def broken_scorer() -> ChecklistScorer:
    return ChecklistScorer(backend=FakeBackend(fails=boom, chunk_reads=1), store=False)


def test_what_the_judge_does_not_answer_raises_and_spares_the_neighbours():
    compute_score = ChecklistComputeScore(broken_scorer(), max_wait=0.05).compute_score_async

    async def both():
        calls = [compute_score(data_source="d", solution_str=t, ground_truth=["Is it?"]) for t in ("fine", "boom")]
        return await asyncio.gather(*calls, return_exceptions=True)

    fine, failed = asyncio.run(both())
    assert fine["score"] == 0.5
    assert isinstance(failed, Unscored) and "answered 0 of 1 items (1 backend_error)" in str(failed)


def test_a_number_for_the_unscored_is_the_users_choice_and_is_logged():
    reward = ChecklistComputeScore(broken_scorer(), unscored=0.25)
    fine, failed = reward.compute_score_batch(["d"] * 2, ["fine", "boom"], [["Is it?"]] * 2)
    assert fine == {
        "score": 0.5,
        "checklist/pass_rate": 0.0,
        "checklist/answered_weight": 1.0,
        "checklist/scored": 1.0,
    }
    assert failed == {
        "score": 0.25,
        "checklist/pass_rate": -1.0,
        "checklist/answered_weight": 0.0,
        "checklist/scored": 0.0,
    }
    for wrong in (True, "0", float("nan")):
        with pytest.raises(SampleError, match="unscored="):
            SamplewiseReward(broken_scorer(), unscored=wrong)


def test_calls_of_one_sample_each_reach_the_engine_as_a_batch():
    backend = FakeBackend()
    reward = ChecklistRewardFunc(ChecklistScorer(backend=backend, store=False), max_wait=0.2)
    rewards = openrlhf_executor(reward, [f"Q: {n}" for n in range(8)], ["Q: "] * 8, [["Is it?"]] * 8)
    assert rewards == [0.5] * 8
    assert reward.queue.batches == 1


@pytest.mark.parametrize(
    ("label", "error", "says"),
    [
        ("no json", SampleError, "row 2: a label given as a string must be JSON"),
        (
            {"checklist": ["Is it?"], "inptu": "x"},
            SampleError,
            "row 2: unknown key 'inptu' in a label; allowed: check",
        ),
        ({"checklist": ["Is it?"], "input": 7}, SampleError, "row 2: input must be a string, got int 7"),
        ([], ChecklistError, "row 2: .*empty"),
        (None, ChecklistError, "row 2: expected a list of questions"),
    ],
)
def test_a_broken_label_is_refused_with_its_row_before_anything_is_asked(label, error, says):
    backend = FakeBackend()
    reward = ChecklistComputeScore(ChecklistScorer(backend=backend, store=False))
    with pytest.raises(error, match=says):
        reward.compute_score_batch(["d"] * 2, ["a", "b"], [["Is it?"], label])
    assert not backend.asked


def test_the_answer_is_cut_out_of_a_decoded_query():
    assert answer_after("Hi ", "<s>Hi  there </s>", "row 1") == " there "
    assert answer_after("", "there<|endoftext|><|im_end|>\n", "row 1") == "there"
    with pytest.raises(SampleError, match="row 3: the query does not contain its prompt 'Hello'"):
        answer_after("Hello", "lo there", "row 3")


def test_a_label_says_what_was_asked_where_the_host_does_not():
    seen = []
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: seen.append(prefix) or 0.5), store=False)
    label = {"checklist": ["Is it?"], "input": "Name a colour.", "history": "user: Hello"}
    ChecklistRewardFunc(scorer)(["<raw>Red"], ["<raw>"], [label])
    assert "Name a colour." in seen[0] and "<raw>" not in seen[0]


def test_adapters_travel_to_other_processes_as_their_settings():
    reward = ChecklistRewardFunc(model="pocket", backend="transformers", store=False, max_batch=7, unscored=0.0)
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.queue.max_batch, copy.unscored, copy.__name__) == (7, 0.0, "reward_func")


def test_rows_without_a_checklist_are_refused_where_the_host_holds_it(pocket, adapter):
    with pytest.raises(SampleError, match="needs reward_spec.ground_truth"):
        adapter("skyrl").ChecklistEnv({}, {})
    env = adapter("nemo_rl").ChecklistEnvironment()
    with pytest.raises(SampleError, match="row 1: extra_env_info needs the key 'checklist'"):
        env.step([[{"role": "assistant", "content": "x"}]], [None])
    with pytest.raises(SampleError, match="row 1: the message log has no assistant message"):
        env.step([[{"role": "user", "content": "x"}]], [{"checklist": CHECKLIST}])
    judge = adapter("verifiers").ChecklistJudge()
    with pytest.raises(SampleError, match="no field 'checklist'"):
        asyncio.run(judge.score(SimpleNamespace(prompt_text=""), SimpleNamespace(last_reply="x")))


def test_the_configured_reward_is_one_per_process_and_needs_its_file(adapter, monkeypatch):
    assert samplewise.configured() is samplewise.configured()
    monkeypatch.delenv("CHECKLIST_REWARDS_CONFIG")
    with pytest.raises(SampleError, match="CHECKLIST_REWARDS_CONFIG"):
        samplewise.configured()
