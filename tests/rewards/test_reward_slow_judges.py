"""Judges that take long: how long a step waits for them, and what goes on meanwhile. Clocks are set by the tests."""

import asyncio
import queue
import threading
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import base, pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.rewards.trl import ChecklistReward
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.faultserver import MARK
from tests.monitor.fakes import monitored
from tests.serving import serving

BATCH = dict(prompts=["A", "B", "C"], completions=["w", "x", "y"], checklist=[["Is it red?"]] * 3)


@pytest.fixture
def now(monkeypatch):
    """A clock that a judge moves on."""
    now = SimpleNamespace(seconds=0.0, monotonic=lambda: now.seconds)
    monkeypatch.setattr(base, "time", now)
    return now


def taking(now, seconds, **options):
    """An engine that takes this long for each read, one read per chunk."""

    def rule(prefix, tail):
        now.seconds += seconds
        return 0.5

    return FakeBackend(rule, chunk_reads=1, **options)


def test_what_is_not_read_in_time_is_unanswered_and_only_that_is_read_again(now, tmp_path):
    backend = taking(now, 20)
    reward = ChecklistReward(
        ChecklistScorer(backend=backend, store=Store(tmp_path / "store")), deadline=30, log=tmp_path / "log.jsonl"
    )
    assert reward(**BATCH).count(None) == 1, "the second read started in time, so it counts, although it was late"
    assert len(backend.asked) == 2, "the third was not sent, and no retry was made"
    assert "deadline" in (tmp_path / "log.jsonl").read_text()
    assert reward(**BATCH) == [0.5] * 3 and len(backend.asked) == 3


def test_without_a_deadline_all_is_read(now):
    reward = ChecklistReward(ChecklistScorer(backend=taking(now, 1000), store=False))
    assert reward(**BATCH) == [0.5] * 3


def test_waking_the_judge_does_not_count(now):
    class Sleepy(FakeBackend):
        def stay_awake(self):
            now.seconds += 100
            return threading.Lock()  # any context manager

    reward = ChecklistReward(ChecklistScorer(backend=Sleepy(), store=False), deadline=30)
    assert reward(**BATCH) == [0.5] * 3


@pytest.mark.parametrize("mode", ["batch", "quality"])
def test_judges_that_write_get_no_further_request_either(now, mode):
    backend = FakeBackend(replies=["{}"])
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False, mode=mode), deadline=30)
    generate = backend.generate
    calls = []

    def slow(prompts, sampling, arrived=None):
        calls.append(len(prompts))
        now.seconds += 40
        return generate(prompts, sampling, arrived)

    backend.generate = slow
    assert reward(**BATCH) == [None] * 3 and calls == [3], "replies that cannot be used are not asked for again"


def test_the_reads_of_a_monitor_are_part_of_the_same_step(now, tmp_path):
    backend = taking(now, 20)
    options = dict(retest_share=1.0, extra_reads=1.0, max_canary=None, held_out=0)
    monitor = monitored(None, backend=backend, reward={"deadline": 50}, log=tmp_path / "monitor.jsonl", **options)
    assert monitor(**BATCH) == [0.5] * 3
    assert len(backend.asked) == 3 and now.seconds == 60, "no time is left for the retests"
    assert '"kind": "failure"' not in (tmp_path / "monitor.jsonl").read_text()


def test_a_served_judge_that_hangs_costs_the_reads_that_it_holds(fault_server, tmp_path):
    batch = dict(prompts=["A", "B"], completions=["fine", MARK], checklist=[["Is it fine (yes)?"]] * 2)
    judge = dict(model="hang@some", base_url=fault_server, store=str(tmp_path / "store"))
    sound = {name: column[:1] for name, column in batch.items()}
    [score] = ChecklistReward(**judge)(**sound)
    reward = ChecklistReward(**judge, deadline=0.5, log=tmp_path / "log.jsonl")
    assert reward(**batch) == [score, None] and score > 0.9
    assert '"unanswered": "deadline"' in (tmp_path / "log.jsonl").read_text()


def test_so_does_a_reward_server():
    server, given_up = FastAPI(), threading.Event()

    @server.get("/health")
    def health():
        return {"judge": "org/judge", "identity": "1"}

    @server.post("/score")
    def score():
        given_up.wait(HANG)

    with serving(server) as address:
        reward = ChecklistReward(backend="remote", base_url=address, deadline=0.5)
        assert reward(**BATCH) == [None] * 3
        given_up.set()


@pytest.mark.parametrize("seconds", [0, -1, True, "5", float("nan")])
def test_a_deadline_is_a_number_of_seconds(seconds):
    with pytest.raises(SampleError, match=r"deadline=.* is not allowed; it must be a finite number above 0"):
        ChecklistReward(ChecklistScorer(backend=FakeBackend(), store=False), deadline=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("form", [lambda reward: reward, lambda reward: reward.as_async()], ids=["sync", "async"])
def test_async_grpo_samples_further_groups_while_the_judge_works_on_one(form):
    """TRL's own worker loops, with a server that gives every prompt the same tokens. The judge of the first group
    answers when two more groups have been sampled."""
    tokenizer = pocket_tokenizer()
    tokens = tokenizer("is it red?", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    sampled, two_more = [], threading.Event()
    vllm = FastAPI()

    @vllm.post("/v1/completions")
    def completions():
        sampled.append(None)
        if len(sampled) >= 6:
            two_more.set()
        return {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": [-1.0] * len(tokens)}}]}

    def judge(prefix, tail):
        assert two_more.wait(HANG), "sampling waits for the judge"
        return 0.5

    with serving(vllm) as address:
        reward = form(ChecklistReward(ChecklistScorer(backend=FakeBackend(judge), store=False)))
        # The least number of completions, one group at a time: the defaults, 8 and 32, sample all groups at once.
        scored = rolled_out(reward, tokenizer, address, groups=1, num_generations=2, max_inflight_tasks=2)
    assert len(sampled) >= 6
    assert scored.get_nowait().metrics["rewards/checklist_reward"] == 0.5


@pytest.mark.slow
def test_with_the_defaults_of_trl():
    """AsyncGRPO's groups with its own defaults. Its trainer cannot be tried here: it needs a kernel for GPUs."""
    from trl.experimental.async_grpo import AsyncGRPOConfig

    config = AsyncGRPOConfig(use_cpu=True)  # without a GPU, TRL refuses its own default, bf16
    tokenizer = pocket_tokenizer()
    texts = ["is it red?", "the bakto is old.", "a deko is small.", "3 lamo are red?"]
    texts = [tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
    sampled, vllm = [], FastAPI()

    @vllm.post("/v1/completions")
    async def completions(request: Request):
        sampled.append(await request.json())
        ids = texts[len(sampled) % len(texts)]
        return {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [-1.0] * len(ids)}}]}

    backend = FakeBackend(lambda prefix, tail: 0.9 if "?" in prefix.rsplit("red", 1)[-1] else 0.2)
    with serving(vllm) as address:
        reward = ChecklistReward(ChecklistScorer(backend=backend, store=False))
        scored = rolled_out(
            reward,
            tokenizer,
            address,
            groups=1,
            num_generations=config.num_generations,
            max_inflight_tasks=config.max_staleness * config.per_device_train_batch_size,  # as the trainer infers it
            max_tokens=config.max_completion_length,
            temperature=config.temperature,
        )
    samples = [scored.get_nowait() for _ in range(config.num_generations)]
    assert len({sample.metrics["rewards/checklist_reward"] for sample in samples}) == 2
    assert sum(sample.advantage for sample in samples) == pytest.approx(0, abs=1e-4)
    assert sampled[0]["max_tokens"] == 2048


def pocket_tokenizer():
    """The pocket model's, with the template for replies that TRL cannot find for its chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    tokenizer.response_template = {"defaults": {"role": "assistant"}, "fields": {"content": {"content": "text"}}}
    return tokenizer


def rolled_out(reward, tokenizer, address, *, groups, **options):
    """The queue of samples after TRL's own worker loops have scored as many groups."""
    from accelerate import PartialState
    from datasets import Dataset
    from trl.experimental.async_grpo import async_rollout_worker as trl

    PartialState(cpu=True)  # TRL's loggers need it
    rows = [{"prompt": [{"role": "user", "content": f"Ask {n}."}], "checklist": ["Is it red?"]} for n in range(4)]
    scored = queue.Queue()
    worker = trl._AsyncRolloutLoop(
        model_name="pocket",
        dataset=Dataset.from_list(rows),
        reward_funcs=[reward],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        rollout_buffer=scored,
        model_version_value=SimpleNamespace(value=0),
        heartbeat_value=SimpleNamespace(value=0.0),
        failed_event=threading.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
        vllm_server_url=address,
        **options,
    )

    async def until_scored():
        loops = asyncio.create_task(worker._run_loops(worker._stop_event))
        async with asyncio.timeout(HANG):
            while scored.qsize() < groups * options["num_generations"] and not loops.done():
                await asyncio.sleep(0.01)
        worker._stop_event.set()
        await loops

    worker._loop.run_until_complete(until_scored())
    worker._loop.close()
    return scored
