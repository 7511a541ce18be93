"""The vLLM engine: the answers of the transformers engine, each prefix computed once, no engine left behind."""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import ReadGroup, Sampling, base, load_backend
from checklist_rewards.backends import vllm as vllm_backend
from checklist_rewards.backends.base import Written, deadline
from checklist_rewards.backends.vllm import VLLMBackend, _load, _waves
from checklist_rewards.errors import ModelError
from checklist_rewards.rewards.trl import ChecklistReward
from tests import zygote
from tests.backends.answers import LABELS, largest_difference, turned, user
from tests.waiting import printed, until

BLOCK = 32


def with_engine(test):
    return pytest.mark.slow(pytest.mark.vllm(test))


@with_engine
def test_vllm_and_transformers_agree_on_p_yes_in_any_order(pocket, vllm_pocket, world_reads):
    ours, theirs = vllm_pocket.read(world_reads, LABELS)[0], pocket.read(world_reads, LABELS)[0]
    assert largest_difference(ours, theirs) < 1e-3
    assert largest_difference(ours, turned(vllm_pocket.read(world_reads[::-1], LABELS)[0], world_reads)) < 1e-4


@with_engine
def test_no_prefix_token_is_computed_twice_beyond_block_rounding(vllm_pocket):
    tails = tuple(f"Does the response mention the word {word}?" for word in ("apple", "pear", "plum", "fig"))
    groups = [ReadGroup(None, f"Target number {n}. " * 30, tails) for n in range(8)]
    _, result = vllm_pocket.read(groups, LABELS)
    repeats = sum(len(group.tails) for group in groups) - 1
    assert result.computed_tokens <= result.floor_tokens + repeats * (BLOCK - 1)
    assert result.prompt_tokens > 2 * result.computed_tokens


@with_engine
def test_labels_after_thoughts_agree_and_a_shared_thought_is_computed_once(pocket, vllm_pocket, world_reads):
    own, shared = [], []
    for group in world_reads:
        thoughts = tuple(Written(f"Thought {n}. It is so.") for n in range(len(group.tails)))
        own.append(replace(group, written=thoughts))
        one_thought = tuple(Written("word " * 90, tail) for tail in group.tails)
        shared.append(replace(group, tails=("Which hold?",) * len(group.tails), written=one_thought))
    assert largest_difference(vllm_pocket.read(own, LABELS)[0], pocket.read(own, LABELS)[0]) < 1e-3
    (ours, there), (theirs, here) = vllm_pocket.read(shared, LABELS), pocket.read(shared, LABELS)
    assert largest_difference(ours, theirs) < 1e-3
    assert here.computed_tokens >= here.floor_tokens == there.floor_tokens
    repeats = sum(len(group.tails) for group in shared) - 1
    assert there.computed_tokens <= there.floor_tokens + repeats * (BLOCK - 1) < there.prompt_tokens


@with_engine
def test_the_same_reads_are_too_long_in_both_engines(pocket, vllm_pocket):
    [frame] = pocket.tokens.groups([ReadGroup(None, "", ("",))])
    room = pocket.limit - len(frame.prefix) - len(frame.tails[0])
    groups = [ReadGroup(None, "7" * (room - spare), ("",)) for spare in (2, 1, 0, -5)]  # a digit is a token
    for engine in (pocket, vllm_pocket):
        reasons = [answer.unanswered for answer in engine.read(groups, LABELS)[0]]
        assert reasons == [None, None, "too_long", "too_long"]


@with_engine
def test_greedy_replies_are_the_transformers_engines(pocket, vllm_pocket):
    texts = ["Write something.", 'Write one sentence. Mention the word "happy".', "Avoid digits. Use bullet points."]
    prompts = [user(text) for text in texts]
    ours, theirs = (engine.generate(prompts, Sampling(max_tokens=40)) for engine in (vllm_pocket, pocket))
    assert ours == theirs


@with_engine
@pytest.mark.parametrize(
    "unheld",
    [
        "no schema",  # refused before the engine starts
        json.dumps({"type": "string", "pattern": r"\p{L}+"}),  # guidance has it, the engine's xgrammar does not
    ],
)
def test_a_schema_that_the_engine_cannot_hold_is_left_to_the_prompt(vllm_pocket, unheld, caplog):
    prompts = [user(text) for text in ("Write something.", "Avoid digits.")]
    held = vllm_pocket.generate(prompts, Sampling(max_tokens=40, schema=json.dumps({"enum": ["digits"]})))
    assert [json.loads(reply.text) for [reply] in held] == ["digits"] * 2
    free, left = (vllm_pocket.generate(prompts, Sampling(max_tokens=20, schema=schema)) for schema in (None, unheld))
    assert left == free and all(reply.unanswered is None for [reply] in left)
    assert "vLLM cannot enforce the JSON schema of the replies" in caplog.text


@with_engine
def test_a_sampled_reply_depends_on_its_prompt_and_seed_alone(vllm_pocket):
    prompts = [user(text) for text in ("Write something.", "Write one sentence.")]
    sampling = Sampling(max_tokens=24, temperature=1.0, n=3, seed=5)
    together = vllm_pocket.generate(prompts, sampling)
    assert [len(replies) for replies in together] == [3, 3]
    assert len({reply.text for reply in together[0]}) > 1
    assert vllm_pocket.generate(prompts[:1], sampling) == together[:1]
    assert vllm_pocket.generate(prompts[:1], Sampling(max_tokens=24, temperature=1.0, n=3, seed=6)) != together[:1]


@with_engine
def test_many_long_prompts_are_sampled_with_seeds(vllm_pocket, monkeypatch):
    """Divided by the scheduler, one of them would end the engine: "CPU Generator does not use offset"."""
    text = "Write something about the old red lamo and the small gilgo. " * 5
    prompts = [user(f"{text}{number}") for number in range(60)]
    total = sum(len(vllm_pocket.tokens.prompt(messages)) for messages in prompts)
    assert total > vllm_pocket._most_at_once, "they do not fit one step"
    sampling = Sampling(max_tokens=4, temperature=1.0, seed=3)
    together = vllm_pocket.generate(prompts, sampling)
    assert all(reply.text for [reply] in together)
    assert vllm_pocket.generate(prompts[-2:], sampling) == together[-2:], "the seeds count"


def test_prompts_that_do_not_fit_one_step_go_in_waves(caplog):
    params = [SimpleNamespace(n=1, seed=1) for _ in range(5)]
    prompts = [[0] * 4, [0] * 4, [0] * 3, [0] * 30, [0] * 2]
    assert [list(wave) for wave in _waves(prompts, params, 10)] == [[0, 1], [2], [3], [4]]
    assert [own.seed for own in params] == [1, 1, 1, None, 1] and "a prompt of 30 tokens" in caplog.text
    unseeded = [SimpleNamespace(n=1, seed=None)] * 5
    assert [list(wave) for wave in _waves(prompts, unseeded, 10)] == [[0, 1, 2, 3, 4]]


@with_engine
def test_replies_are_told_as_they_arrive_and_an_interruption_leaves_nothing_in_the_engine(vllm_pocket):
    prompts = [user(f'Write a note. Mention the word "{word}".') for word in ("bako", "rimo")]
    sampling, seen = Sampling(max_tokens=24, temperature=1.0, n=2, seed=5), {}
    replies = vllm_pocket.generate(prompts, sampling, seen.__setitem__)
    assert [seen[place] for place in range(2)] == replies

    def interrupted(place, replies):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vllm_pocket.generate(prompts * 20, sampling, interrupted)
    assert not vllm_pocket.llm.llm_engine.has_unfinished_requests()
    assert vllm_pocket.generate(prompts, sampling) == replies


@with_engine
def test_what_is_not_done_when_no_time_is_left_is_given_up(vllm_pocket, world_reads, monkeypatch):
    now = SimpleNamespace(seconds=0.0, monotonic=lambda: now.seconds)
    monkeypatch.setattr(base, "time", now)
    prompts = [user(text) for text in ("Say hello.", *(["Write a long story."] * 3))]
    sampling = Sampling(max_tokens=64, temperature=1.0, seed=5)
    with deadline(30):
        replies = vllm_pocket.generate(prompts, sampling, lambda place, reply: setattr(now, "seconds", 31))
        answers, _ = vllm_pocket.read(world_reads, LABELS)
    reasons = [reply.unanswered for (reply,) in replies]
    assert set(reasons) == {None, "deadline"} and {answer.unanswered for answer in answers} == {"deadline"}
    assert not vllm_pocket.llm.llm_engine.has_unfinished_requests()
    assert all(reply.unanswered is None for (reply,) in vllm_pocket.generate(prompts, sampling))


@with_engine
def test_a_prompt_that_leaves_no_room_gets_no_reply(vllm_pocket):
    prompts = [user("word " * 3000), user("Write something.")]
    [[long], [short]] = vllm_pocket.generate(prompts, Sampling(max_tokens=9000))
    assert (long.text, long.unanswered) == (None, "too_long")
    assert short.finish_reason == "stop" and "<|end|>" not in short.text


@with_engine
def test_one_engine_serves_everybody_and_leaves_the_environment_alone(vllm_load):
    backend, changed = vllm_load
    assert load_backend("pocket", "vllm") is backend
    assert changed == set()


ORPHAN = """
import multiprocessing, signal, subprocess, sys, time

def engine(pids):
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pids.send(worker.pid)
    time.sleep(600)

if __name__ == "__main__":
    from checklist_rewards.backends.vllm import _kill_after_us

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it, and so would its children
    context = multiprocessing.get_context("fork")  # vLLM's own starts as slowly as this program
    receives, sends = context.Pipe(duplex=False)
    child = context.Process(target=engine, args=(sends,))
    child.start()
    worker = receives.recv()
    guard = _kill_after_us([child])
    print(child.pid, worker, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_engine_and_its_workers_do_not_outlive_a_parent_that_is_killed(tmp_path, sent):
    (tmp_path / "script.py").write_text(ORPHAN)
    with zygote.Program([tmp_path / "script.py"], output=subprocess.PIPE) as parent:
        processes = [int(pid) for pid in printed(parent, r"^(\d+) (\d+)$").groups()]
        for pid in processes:
            os.kill(pid, 0)
        parent.send_signal(sent)
    until(lambda: all(map(is_gone, processes)))


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"  # dead; its new parent has not noticed yet
    except FileNotFoundError:
        return True


UNGUARDED = """
import threading
from checklist_rewards.backends.vllm import _refuse_unguarded_script

def train():
    thread = threading.Thread(target=score)  # as a reward that trainers await
    thread.start()
    thread.join()

def score():
    try:
        _refuse_unguarded_script()
        print("starts")
    except Exception as error:
        print(error)

"""


def run_as_main(source, file, monkeypatch, capsys):
    """What a main program prints; an interactive session has no file."""
    main = ModuleType("__main__")
    if file is not None:
        file.write_text(source)
        main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(source, vars(main))
    return capsys.readouterr().out


@pytest.mark.parametrize("call", ["score()", "if 1 > 0:\n    train()"])
def test_a_script_without_a_main_guard_is_refused_before_the_engine_starts(tmp_path, monkeypatch, capsys, call):
    written = run_as_main(UNGUARDED + call, tmp_path / "script.py", monkeypatch, capsys)
    assert f"imports {tmp_path / 'script.py'} again: put the code that scores (line " in written
    assert "if __name__ == '__main__':`." in written


def test_a_script_with_a_main_guard_and_an_interactive_session_start(tmp_path, monkeypatch, capsys):
    guarded = UNGUARDED + "if '__main__' == __name__ and 1 > 0:\n    train()"
    assert run_as_main(guarded, tmp_path / "script.py", monkeypatch, capsys) == "starts\n"
    assert run_as_main(UNGUARDED + "train()", None, monkeypatch, capsys) == "starts\n"


def test_a_judge_beside_a_policy_engine_or_other_ranks_is_warned_about(monkeypatch, caplog):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with caplog.at_level(logging.WARNING):
        vllm_backend._warn_about_sharing()
    assert "each of the 2 processes loads its own copy" in caplog.text
    assert "shares this process" in caplog.text


@pytest.fixture
def sleeper(vllm_pocket, monkeypatch):
    """The engine as if it had been loaded with enable_sleep_mode, and the calls it gets.

    A CPU's vLLM refuses that argument, for it has no GPU memory to free. The calls work all the same: an engine
    asleep takes no requests.
    """
    calls = []
    for name in ("sleep", "wake_up", "enqueue"):
        inner = getattr(vllm_pocket.llm, name)

        def told(*args, name=name, inner=inner, **options):
            calls.append(name)
            return inner(*args, **options)

        monkeypatch.setattr(vllm_pocket.llm, name, told)
    monkeypatch.setattr(vllm_pocket, "sleeps", True)
    with vllm_pocket.stay_awake():
        pass
    assert calls == ["sleep"] and vllm_pocket.llm.llm_engine.is_sleeping()
    calls.clear()
    yield vllm_pocket, calls
    monkeypatch.setattr(vllm_pocket, "sleeps", False)
    vllm_pocket.read([ReadGroup(None, "", ("",))], LABELS)
    assert not vllm_pocket.llm.llm_engine.is_sleeping()


@with_engine
def test_an_engine_that_sleeps_wakes_for_a_call_and_gives_the_same_answers(sleeper, pocket, world_reads):
    engine, calls = sleeper
    assert largest_difference(engine.read(world_reads, LABELS)[0], pocket.read(world_reads, LABELS)[0]) < 1e-3
    assert calls == ["wake_up", "enqueue", "sleep"]
    calls.clear()
    with engine.stay_awake():
        for _ in range(2):
            engine.read(world_reads[:1], LABELS)
        assert not engine.llm.llm_engine.is_sleeping()
    assert calls == ["wake_up", "enqueue", "enqueue", "sleep"] and engine.llm.llm_engine.is_sleeping()


@with_engine
def test_an_engine_that_does_not_wake_leaves_its_reads_unanswered(sleeper, monkeypatch):
    engine, calls = sleeper

    def gone():
        raise RuntimeError("the engine's process has ended")

    with monkeypatch.context() as patched:
        patched.setattr(engine.llm, "wake_up", gone)
        reward = ChecklistReward(ChecklistScorer(backend=engine, store=False))
        batch = dict(prompts=["A"], completions=["x"], checklist=[["Does it mention x?"]])
        assert reward(**batch) == [None]
    (value,) = reward(**batch)
    assert 0 <= value <= 1 and calls == ["wake_up", "enqueue", "sleep"]


@pytest.mark.vllm
def test_an_engine_that_ends_while_loading_is_one_sentence_with_what_to_try(monkeypatch, vllm_installed):
    """vLLM gives the reason in its log only, such as too little free memory of a GPU that a trainer uses too."""

    def ends(*_):
        raise RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")

    monkeypatch.setattr(vllm_backend, "_load", ends)
    with pytest.raises(ModelError, match=r"'pocket' cannot be loaded with vLLM.*gpu_memory_utilization=0\.3"):
        VLLMBackend("pocket")


def test_two_engines_load_one_after_the_other(monkeypatch):
    """Otherwise the first that is loaded would end what the processes of the second inherit."""
    taken = []

    def load(*_):
        taken.append(vllm_backend._loading.locked())
        raise ModelError("not here")

    monkeypatch.setattr(vllm_backend, "_load", load)
    with pytest.raises(ModelError, match="^not here$"):
        VLLMBackend("pocket")
    assert taken == [True] and not vllm_backend._loading.locked()


def test_logits_are_refused_before_the_engine_starts():
    with pytest.raises(ModelError, match="logprobs_mode='raw_logits' returns logits"):
        _load("/no/such/model", {"logprobs_mode": "raw_logits"})
