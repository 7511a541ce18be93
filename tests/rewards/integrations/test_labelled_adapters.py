"""What adapters do beside rewarding: labels that cannot be used, samples that are not scored, settings that travel.

That they all give the same rewards is in `test_reward_same_rewards.py`; the hosts that call them are in `hosts.py`.
"""

import asyncio
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations import areal
from checklist_rewards.rewards.integrations.areal import checklist_reward
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, Unscored, answer_after, labelled_sample
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.reward import ChecklistReward
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.rewards.hosts import openrlhf_executor, orms, swift_rewards
from tests.test_images import PILLOWS, RED, Seeing

CHECKLIST = ["Does the response end with a question mark?"]


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
        "checklist/no_answer": 0.0,
        "checklist/cut": 0.0,
    }
    assert failed == {
        "score": 0.25,
        "checklist/pass_rate": -1.0,
        "checklist/answered_weight": 0.0,
        "checklist/scored": 0.0,
        "checklist/no_answer": 0.0,
        "checklist/cut": 0.0,
    }
    for wrong in (True, "0", float("nan")):
        with pytest.raises(SampleError, match="unscored="):
            SamplewiseReward(broken_scorer(), unscored=wrong)


def test_calls_of_one_sample_each_reach_the_engine_as_a_batch():
    backend = FakeBackend()
    scorer = ChecklistScorer(backend=backend, store=False)
    reward = ChecklistRewardFunc(scorer, max_wait=HANG, max_batch=4)  # a batch waits until it is full
    rewards = openrlhf_executor(reward, [f"Q: {n}" for n in range(8)], ["Q: "] * 8, [["Is it?"]] * 8)
    assert rewards == [0.5] * 8
    assert reward.queue.batches == 2


@pytest.mark.parametrize(
    ("label", "error", "says"),
    [
        ("no json", SampleError, "row 2: a label that is a string must be JSON"),
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


@pytest.mark.parametrize("label", [dict, json.dumps])
def test_a_label_has_the_images_that_the_host_does_not_pass(label):
    scorer = ChecklistScorer(backend=Seeing(), store=False)
    given = label({"checklist": ["Is it red?"], "input": "What?", "images": [RED.url]})
    reward = ChecklistComputeScore(scorer)
    assert reward.compute_score("d", "Red.", given)["score"] == 0.75
    assert scorer.judge.engine.backend.shown == [[RED.key]]
    sample = labelled_sample(
        {"checklist": ["Is it red?"], "images": [RED.url]}, "Red.", "What?", "row 1", images=[RED]
    )
    assert sample.images == (RED,)  # passed by the host too
    ignoring = ChecklistComputeScore(ChecklistScorer(backend=FakeBackend(), store=False), images="ignore")
    assert ignoring.compute_score("d", "Red.", given)["score"] == 0.5
    with pytest.raises(SampleError, match="row 1, 'images' must be a data URL; got 'red.png'"):
        reward.compute_score("d", "Red.", {"checklist": ["Is it red?"], "images": ["red.png"]})


def test_areal_passes_the_images_of_its_rows(monkeypatch):
    reward = SamplewiseReward(ChecklistScorer(backend=Seeing(), store=False))
    monkeypatch.setattr(areal, "configured", lambda: reward)
    assert checklist_reward("What?", "Red.", checklist=["Is it red?"], images=[PILLOWS["red"]]) == 0.75
    assert reward.queue.scorer.judge.engine.backend.shown == [[RED.key]]


def test_adapters_travel_to_other_processes_as_their_settings():
    reward = ChecklistRewardFunc(model="pocket", backend="transformers", store=False, max_batch=7, unscored=0.0)
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.queue.max_batch, copy.unscored, copy.__name__) == (7, 0.0, "reward_func")


def test_rows_without_a_checklist_are_refused_where_the_host_holds_it(pocket, adapter):
    with pytest.raises(SampleError, match="requires a checklist in reward_spec.ground_truth"):
        adapter("skyrl").ChecklistEnv({}, {})
    env = adapter("nemo_rl").ChecklistEnvironment()
    with pytest.raises(SampleError, match="row 1: extra_env_info requires the key 'checklist'"):
        env.step([[{"role": "assistant", "content": "x"}]], [None])
    with pytest.raises(SampleError, match="row 1: the message log has no assistant message"):
        env.step([[{"role": "user", "content": "x"}]], [{"checklist": CHECKLIST}])
    judge = adapter("verifiers").ChecklistJudge()
    with pytest.raises(SampleError, match="requires a field 'checklist'"):
        asyncio.run(judge.score(SimpleNamespace(prompt_text=""), SimpleNamespace(last_reply="x")))


def test_swift_rewards_no_group_in_which_the_judge_failed(adapter):
    """ms-swift counts NaN as 0 in its sum, so a failure must not be NaN for one completion alone."""
    adapter("swift")
    reward = ChecklistReward(broken_scorer(), retries=0)
    ask, other = [{"role": "user", "content": "Ask."}], [{"role": "user", "content": "Say."}]
    conversations = [
        [*prompt, {"role": "assistant", "content": text}]
        for prompt, text in ((ask, "fine"), (ask, "boom"), (other, "fine"), (other, "fine"))
    ]
    columns = {"checklist": [["Is it?"]] * 4, "request_id": ["a", "b", "c", "d"]}
    grouped = orms["checklist"](reward=reward)
    assert np.isnan(swift_rewards(grouped, conversations, **columns)).tolist() == [True, True, False, False]
    alone = orms["checklist"](SimpleNamespace(scale_rewards="gdpo"), reward=reward)
    assert np.isnan(swift_rewards(alone, conversations, **columns)).tolist() == [False, True, False, False]
    assert reward.on_failure == "row"  # the reward that was given stays as it is
    with pytest.raises(SampleError, match="expected a column 'messages'"):
        grouped(["fine"], checklist=[["Is it?"]])


def test_areal_rows_without_a_checklist_are_refused_and_failures_raise(adapter, monkeypatch, tmp_path):
    with pytest.raises(SampleError, match="requires a column 'checklist', got the columns answer"):
        checklist_reward("Ask.", "fine", [1], [2], answer="x")
    with pytest.raises(ChecklistError, match="empty"):
        checklist_reward("Ask.", "fine", [1], [2], checklist="[]")
    monkeypatch.setattr(areal, "configured", lambda: SamplewiseReward(broken_scorer()))
    with pytest.raises(Unscored, match="answered 0 of 1 items"):
        checklist_reward("Ask.", "boom", [1], [2], checklist=["Is it?"])
    assert pickle.loads(pickle.dumps(checklist_reward)) is checklist_reward


def test_openrlhf_hides_exceptions_so_invalid_rows_are_logged(caplog):
    reward = ChecklistRewardFunc(broken_scorer())
    with pytest.raises(ChecklistError):
        reward(["Ask. fine"], ["Ask. "], ["[]"])
    assert "OpenRLHF gets no reward for an invalid row: row 1" in caplog.text


def test_the_configured_reward_is_one_per_process_and_needs_its_file(adapter, monkeypatch):
    assert configured() is configured()
    monkeypatch.delenv("CHECKLIST_REWARDS_CONFIG")
    with pytest.raises(SampleError, match="CHECKLIST_REWARDS_CONFIG"):
        configured()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("shaping: [clipped]", "shaping is supported by TRL trainers only"),
        ("deadline: 60", "deadline is supported by TRL trainers only; set the engine's timeout"),
        ("retries: 3", "retries is supported by TRL trainers only"),
        ("on_failure: raise", "on_failure is supported by TRL trainers only"),
        ("log: rewards.jsonl", "log is supported by TRL trainers only"),
        (
            "reference_column: answer",
            "reference_column is supported by TRL trainers only; put `reference` into the label",
        ),
        ("column: rubric", "column is supported by TRL trainers only"),
    ],
)
def test_a_setting_that_these_hosts_would_not_follow_is_refused(tmp_path, monkeypatch, setting, words):
    config = tmp_path / "reward.yaml"
    config.write_text(f"model: pocket\nstore: false\n{setting}\n")
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(config))
    with pytest.raises(SampleError, match=f"reward.yaml: {words}"):
        configured()


def test_a_trace_that_ends_with_a_call_has_no_answer(adapter):
    """`last_reply` is the text before the call there."""
    completion_of = adapter("verifiers").completion_of

    def trace(*messages, root_reply=None):
        nodes = [SimpleNamespace(message=m, sampled=m["role"] == "assistant") for m in messages]
        branches = [SimpleNamespace(nodes=nodes)]
        return SimpleNamespace(nodes=nodes, branches=branches, root_reply=root_reply, last_reply=root_reply or "x")

    call = {"function": {"name": "look", "arguments": '{"word": "a"}'}}
    preamble = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    answer = {"role": "assistant", "content": "It is 12.", "reasoning_content": "Two words?"}
    read = CompletionReader().read
    assert read(completion_of(trace(preamble))).state == "unfinished"
    assert read(completion_of(trace(preamble, answer))).text == "It is 12."
    assert read(completion_of(trace(preamble, root_reply="Done."))).text == "Done."
    assert completion_of(SimpleNamespace(last_reply="x")) == "x"


def test_areal_knows_from_the_decoded_prompt_that_a_thought_is_open(adapter, tmp_path, monkeypatch):
    """With `messages` for the judge, only the decoded prompt shows it."""
    config = tmp_path / "reward.yaml"
    config.write_text("model: pocket\nbackend: transformers\nstore: false\n")
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(config))
    row = {"checklist": ["Does the response contain no digit?"], "messages": [{"role": "user", "content": "Hi"}]}
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert checklist_reward(prompt, "So I greet", **row) == 0.0
    assert checklist_reward(prompt, "So I greet.\n</think>\n\nHello.<|im_end|>", **row) > 0.0
