"""Judges that take long: how long a step waits for them, and what goes on meanwhile. Clocks are set by the tests."""

import asyncio
import queue
import threading
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request

from checklist_rewards.backends import base, pocket_dir
from checklist_rewards.rewards.trl import ChecklistReward
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.faultserver import MARK
from tests.monitor.fakes import monitored
from tests.rewards.fakes import asked, call, reward_by
from tests.serving import serving

BATCH = call(["w", "x", "y"], ["A", "B", "C"])


@pytest.fixture
def now(monkeypatch):
    """A clock that a judge moves on."""
    now = SimpleNamespace(seconds=0.0, monotonic=lambda: now.seconds)
    monkeypatch.setattr(base, "time", now)
    return now


def taking(now, seconds):
    """An engine that takes this long for each read, one read per chunk."""

    def rule(prefix, tail):
        now.seconds += seconds
        return 0.5

    return FakeBackend(rule, chunk_reads=1)


def test_what_is_not_read_in_time_is_unanswered_and_only_that_is_read_again(now, tmp_path):
    settings = {"deadline": 30, "log": tmp_path / "log.jsonl"}
    reward = reward_by(taking(now, 20), scorer={"store": tmp_path / "store"}, **settings)
    assert reward(**BATCH).count(None) == 1, "the second read started in time, so it counts, although it was late"
    assert len(asked(reward)) == 2, "the third was not sent, and no retry was made"
    assert "deadline" in (tmp_path / "log.jsonl").read_text()
    assert reward(**BATCH) == [0.5] * 3 and len(asked(reward)) == 3


def test_waking_the_judge_does_not_count(now):
    class Sleepy(FakeBackend):
        def stay_awake(self):
            now.seconds += 100
            return threading.Lock()  # any context manager

    assert reward_by(Sleepy(), deadline=30)(**BATCH) == [0.5] * 3


def test_judges_that_write_get_no_further_request_either(now):
    calls = []

    class Slow(FakeBackend):
        def generate(self, prompts, sampling, arrived=None):
            calls.append(len(prompts))
            now.seconds += 40
            return super().generate(prompts, sampling, arrived)

    reward = reward_by(Slow(replies=["{}"]), scorer={"mode": "batch"}, deadline=30)
    assert reward(**BATCH) == [None] * 3 and calls == [3], "replies that cannot be used are not asked for again"


def test_the_reads_of_a_monitor_are_part_of_the_same_step(now, tmp_path):
    backend = taking(now, 20)
    options = dict(retest_share=1.0, extra_reads=1.0, max_canary=None, held_out=0)
    monitor = monitored(backend, reward={"deadline": 50}, log=tmp_path / "monitor.jsonl", **options)
    assert monitor(**BATCH) == [0.5] * 3
    assert len(backend.asked) == 3 and now.seconds == 60, "no time is left for the retests"
    assert '"kind": "failure"' not in (tmp_path / "monitor.jsonl").read_text()


def test_a_served_judge_that_hangs_costs_the_reads_that_it_holds(fault_server, tmp_path):
    batch = call(["fine", MARK], ["A", "B"], items=("Is it fine (yes)?",))
    judge = dict(model="hang@some", base_url=fault_server, store=str(tmp_path / "store"))
    [score] = ChecklistReward(**judge)(**{name: column[:1] for name, column in batch.items()})
    reward = ChecklistReward(**judge, deadline=0.5, log=tmp_path / "log.jsonl")
    assert reward(**batch) == [score, None] and score > 0.9
    assert '"unanswered": "deadline"' in (tmp_path / "log.jsonl").read_text()


def test_so_does_a_reward_server():
    server, given_up = FastAPI(), threading.Event()
    server.get("/health")(lambda: {"judge": "org/judge", "identity": "1"})

    @server.post("/score")
    def score():
        given_up.wait(HANG)

    with serving(server) as address:
        reward = ChecklistReward(backend="remote", base_url=address, deadline=0.5)
        assert reward(**BATCH) == [None] * 3
        given_up.set()


# --- AsyncGRPO's own worker loops. Its trainer cannot be tried here: it needs a kernel for GPUs.


def rolled_out(reward, texts, sampled, **options):
    """The samples after TRL's own worker loops have scored a group, with a server that writes one of these texts after
    the other. `sampled` gets the requests to the server."""
    from accelerate import PartialState
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import async_rollout_worker as trl

    PartialState(cpu=True)  # TRL's loggers need it
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    # TRL finds no template for replies by this chat template.
    tokenizer.response_template = {"defaults": {"role": "assistant"}, "fields": {"content": {"content": "text"}}}
    written = [tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
    vllm, scored = FastAPI(), queue.Queue()

    @vllm.post("/v1/completions")
    async def completions(request: Request):
        sampled.append(await request.json())
        ids = written[len(sampled) % len(written)]
        return {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [-1.0] * len(ids)}}]}

    async def until_scored(worker):
        loops = asyncio.create_task(worker._run_loops(worker._stop_event))
        async with asyncio.timeout(HANG):
            while scored.qsize() < options["num_generations"] and not loops.done():
                await asyncio.sleep(0.01)
        worker._stop_event.set()
        await loops

    rows = [{"prompt": [{"role": "user", "content": f"Ask {n}."}], "checklist": ["Is it red?"]} for n in range(4)]
    with serving(vllm) as address:
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
        worker._loop.run_until_complete(until_scored(worker))
        worker._loop.close()
    return [scored.get_nowait() for _ in range(options["num_generations"])]


@pytest.mark.slow
@pytest.mark.parametrize("form", [lambda reward: reward, lambda reward: reward.as_async()], ids=["sync", "async"])
def test_async_grpo_samples_further_groups_while_the_judge_works_on_one(form):
    """The judge of the first group answers when two more groups have been sampled."""
    six = threading.Event()

    class Requests(list):
        def append(self, request):
            super().append(request)
            if len(self) >= 6:
                six.set()

    def judge(prefix, tail):
        assert six.wait(HANG), "sampling waits for the judge"
        return 0.5

    # The least number of completions, one group at a time: the defaults, 8 and 32, sample all groups at once.
    samples = rolled_out(form(reward_by(judge)), ["is it red?"], Requests(), num_generations=2, max_inflight_tasks=2)
    assert [sample.metrics["rewards/checklist_reward"] for sample in samples] == [0.5, 0.5]


@pytest.mark.slow
def test_async_grpo_with_the_defaults_of_trl():
    from trl.experimental.async_grpo import AsyncGRPOConfig

    config, sampled = AsyncGRPOConfig(use_cpu=True), []  # without a GPU, TRL refuses its own default, bf16
    samples = rolled_out(
        reward_by(lambda prefix, tail: 0.9 if "?" in prefix.rsplit("red", 1)[-1] else 0.2),
        ["is it red?", "the bakto is old.", "a deko is small.", "3 lamo are red?"],
        sampled,
        num_generations=config.num_generations,
        max_inflight_tasks=config.max_staleness * config.per_device_train_batch_size,  # as the trainer infers it
        max_tokens=config.max_completion_length,
        temperature=config.temperature,
    )
    assert len({sample.metrics["rewards/checklist_reward"] for sample in samples}) == 2
    assert sum(sample.advantage for sample in samples) == pytest.approx(0, abs=1e-4)
    assert sampled[0]["max_tokens"] == 2048
