"""What adapters do besides rewarding: labels that cannot be used, samples that are not scored, settings that travel.

That they all give the same rewards is in `test_reward_same_rewards.py`; the hosts that call them are in `hosts.py`.
"""

import asyncio
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations import areal
from checklist_rewards.rewards.integrations.areal import checklist_reward
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, Unscored, answer_after, labelled_sample
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.reward import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.fakes import assistant, scorer_by, user
from tests.rewards.hosts import orms, swift_rewards
from tests.test_images import PILLOWS, RED, Seeing


def broken_scorer():
    """A scorer whose judge breaks on the word boom."""
    return scorer_by(FakeBackend(fails=lambda prefix, tail: "boom" in prefix, chunk_reads=1))


@pytest.fixture
def config(tmp_path, monkeypatch):
    """`config(line)` adds a line to the file that configures rewards."""
    path = tmp_path / "configured.yaml"
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(path))
    return lambda line="": path.write_text(f"model: pocket\nbackend: transformers\nstore: false\n{line}\n")


# --- labels


@pytest.mark.parametrize(
    ("label", "error", "says"),
    [
        ({"checklist": ["Is it?"], "input": 7}, SampleError, "row 2: input must be a string, got int 7"),
        ({"checklist": ["Is it?"], "images": ["a.png"]}, SampleError, "row 2, 'images' must be a data URL; got 'a.p"),
        ([], ChecklistError, "row 2: .*empty"),
    ],
)
def test_a_broken_label_is_refused_with_its_row_before_anything_is_asked(label, error, says):
    """Further ones are in `tests/server/test_app_bad_input.py`."""
    backend = FakeBackend()
    reward = ChecklistComputeScore(scorer_by(backend))
    with pytest.raises(error, match=says):
        reward.compute_score_batch(["d"] * 2, ["a", "b"], [["Is it?"], label])
    assert not backend.asked


def test_a_label_says_what_was_asked_where_the_host_does_not():
    backend = FakeBackend()
    label = {"checklist": ["Is it?"], "input": "Name a colour.", "history": "user: Hello"}
    ChecklistRewardFunc(scorer_by(backend))(["<raw>Red"], ["<raw>"], [label])
    [(shown, _)] = backend.asked
    assert "Name a colour." in shown and "<raw>" not in shown


@pytest.mark.parametrize("form", [dict, json.dumps])
def test_a_label_has_the_images_that_the_host_does_not_pass(form):
    backend, label = Seeing(), {"checklist": ["Is it red?"], "input": "What?", "images": [RED.url]}
    assert ChecklistComputeScore(scorer_by(backend)).compute_score("d", "Red.", form(label))["score"] == 0.75
    assert backend.shown == [[RED.key]]
    passed = labelled_sample(label, "Red.", "What?", "row 1", images=[RED])  # by the host too
    assert passed.images == (RED,)
    ignoring = ChecklistComputeScore(scorer_by(), images="ignore")
    assert ignoring.compute_score("d", "Red.", form(label))["score"] == 0.5


def test_the_answer_is_cut_out_of_a_decoded_query():
    assert answer_after("Hi ", "<s>Hi  there </s>", "row 1") == " there "
    assert answer_after("", "there<|endoftext|><|im_end|>\n", "row 1") == "there"
    with pytest.raises(SampleError, match="row 3: the query does not contain its prompt 'Hello'"):
        answer_after("Hello", "lo there", "row 3")


def test_rows_without_a_checklist_are_refused_where_the_host_holds_it(adapter):
    env, judge = adapter("nemo_rl").ChecklistEnvironment(), adapter("verifiers").ChecklistJudge()
    task, trace = SimpleNamespace(prompt_text=""), SimpleNamespace(last_reply="x")
    for call, words in (
        (lambda: adapter("skyrl").ChecklistEnv({}, {}), "requires a checklist in reward_spec.ground_truth"),
        (lambda: env.step([assistant("x")], [None]), "row 1: extra_env_info requires the key 'checklist'"),
        (lambda: env.step([user("x")], [{"checklist": ["a?"]}]), "row 1: the message log has no assistant message"),
        (lambda: asyncio.run(judge.score(task, trace)), "requires a field 'checklist'"),
        (lambda: checklist_reward("Ask.", "a", answer="x"), "requires a column 'checklist', got the columns answer"),
    ):
        with pytest.raises(SampleError, match=words):
            call()


# --- samples without a score


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
    answered = {"checklist/no_answer": 0.0, "checklist/cut": 0.0}
    of_fine = {"score": 0.5, "checklist/pass_rate": 0.0, "checklist/answered_weight": 1.0, "checklist/scored": 1.0}
    of_failed = {"score": 0.25, "checklist/pass_rate": -1.0, "checklist/answered_weight": 0.0, "checklist/scored": 0.0}
    assert fine == of_fine | answered and failed == of_failed | answered
    with pytest.raises(SampleError, match="unscored="):
        SamplewiseReward(broken_scorer(), unscored=float("nan"))


def test_swift_rewards_no_group_in_which_the_judge_failed(adapter):
    """ms-swift counts NaN as 0 in its sum, so a failure must not be NaN for one completion alone."""
    adapter("swift")
    reward = ChecklistReward(broken_scorer(), retries=0)
    pairs = (("Ask.", "fine"), ("Ask.", "boom"), ("Say.", "fine"), ("Say.", "fine"))
    conversations = [[*user(prompt), *assistant(text)] for prompt, text in pairs]
    columns = {"checklist": [["Is it?"]] * 4, "request_id": ["a", "b", "c", "d"]}
    grouped = orms["checklist"](reward=reward)
    assert np.isnan(swift_rewards(grouped, conversations, **columns)).tolist() == [True, True, False, False]
    alone = orms["checklist"](SimpleNamespace(scale_rewards="gdpo"), reward=reward)
    assert np.isnan(swift_rewards(alone, conversations, **columns)).tolist() == [False, True, False, False]
    assert reward.on_failure == "row"  # the reward that was given stays as it is
    with pytest.raises(SampleError, match="expected a column 'messages'"):
        grouped(["fine"], checklist=[["Is it?"]])


def test_openrlhf_hides_exceptions_so_invalid_rows_are_logged(caplog):
    reward = ChecklistRewardFunc(broken_scorer())
    with pytest.raises(ChecklistError):
        reward(["Ask. fine"], ["Ask. "], ["[]"])
    assert "OpenRLHF gets no reward for an invalid row: row 1" in caplog.text


# --- what the host passes


def test_areal_passes_the_images_of_its_rows_and_raises_failures(monkeypatch):
    backend = Seeing()
    monkeypatch.setattr(areal, "configured", lambda: SamplewiseReward(scorer_by(backend)))
    assert checklist_reward("What?", "Red.", checklist=["Is it red?"], images=[PILLOWS["red"]]) == 0.75
    assert backend.shown == [[RED.key]]
    monkeypatch.setattr(areal, "configured", lambda: SamplewiseReward(broken_scorer()))
    with pytest.raises(Unscored, match="answered 0 of 1 items"):
        checklist_reward("Ask.", "boom", [1], [2], checklist=["Is it?"])


def test_areal_knows_from_the_decoded_prompt_that_a_thought_is_open(config):
    """With `messages` for the judge, only the decoded prompt shows it."""
    config()
    row = {"checklist": ["Does the response contain no digit?"], "messages": user("Hi")}
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert checklist_reward(prompt, "So I greet", **row) == 0.0
    assert checklist_reward(prompt, "So I greet.\n</think>\n\nHello.<|im_end|>", **row) > 0.0


def test_nemo_rl_renders_its_user_messages(adapter):
    """Its data processors store what the chat template writes as the content of a message."""
    env, backend = adapter("nemo_rl").ChecklistEnvironment(), FakeBackend()
    env.reward = SamplewiseReward(scorer_by(backend))
    asked = user("<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n<think>\n")
    logs = [
        [{"role": "system", "content": "Be brief."}, *asked, *assistant(text)] for text in ("Red", "So</think>Red")
    ]
    rewards = env.step(logs, [{"checklist": ["Is it?"]}] * 2).rewards.tolist()
    assert rewards == [0.0, 0.5]  # the first was cut in its thought
    [(shown, _)] = backend.asked
    assert "Name a colour." in shown and "system: Be brief." in shown and "im_start" not in shown


def test_verl_says_once_that_it_passes_several_turns_as_one_text(caplog):
    score = ChecklistComputeScore(scorer_by()).compute_score_batch
    for turns in (None, 2, np.int32(4), 6):  # 2: a prompt and an answer
        score(["d"] * 2, ["Red."] * 2, [["Is it?"]] * 2, np.array([{}, {"num_turns": turns}], dtype=object))
    assert [record.args for record in caplog.records] == [(4,)]


def test_a_trace_that_ends_with_a_call_has_no_answer(adapter):
    """`last_reply` is the text before the call there."""
    completion_of = adapter("verifiers").completion_of

    def read(*messages, root_reply=None):
        nodes = [SimpleNamespace(message=m, sampled=m["role"] == "assistant") for m in messages]
        branches = [SimpleNamespace(nodes=nodes)]
        trace = dict(nodes=nodes, branches=branches, root_reply=root_reply, last_reply=root_reply or "x")
        return CompletionReader().read(completion_of(SimpleNamespace(**trace)))

    call = {"function": {"name": "look", "arguments": '{"word": "a"}'}}
    preamble = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    answer = {"role": "assistant", "content": "It is 12.", "reasoning_content": "Two words?"}
    assert read(preamble).state == "unfinished"
    assert read(preamble, answer).text == "It is 12."
    assert read(preamble, root_reply="Done.").text == "Done."
    assert completion_of(SimpleNamespace(last_reply="x")) == "x"


def test_harbor_reads_a_trajectory_in_all_its_files_with_its_thoughts(adapter, tmp_path):
    """An agent that summarizes its context begins a new file, into which it copies the steps that it still sees."""
    asked = {"source": "user", "message": "Look up moon."}
    call = {"tool_call_id": "1", "function_name": "look", "arguments": {"word": "moon"}}
    observation = {"results": [{"source_call_id": "1", "content": "a light"}]}
    looked = {"source": "agent", "message": "", "tool_calls": [call], "observation": observation}
    answered = {"source": "agent", "message": "It is a light.", "reasoning_content": "So."}
    first = {"steps": [asked, looked], "continued_trajectory_ref": "trajectory.cont-1.json"}
    second = {"steps": [{**asked, "is_copied_context": True}, answered]}
    for name, document in (("trajectory.json", first), ("trajectory.cont-1.json", second)):
        (tmp_path / name).write_text(json.dumps(document))
    backend = FakeBackend()
    reward = SamplewiseReward(scorer_by(backend), judged="transcript", keep_thinking=True)
    adapter("harbor").checklist(tmp_path, ["Is it?"], trajectory=str(tmp_path / "trajectory.json"), reward=reward)
    [(shown, _)] = backend.asked
    assert shown.count("Look up moon.") == 1
    told = 'assistant calls look(word="moon")\n\ntool: a light\n\nassistant: <think>\nSo.\n</think>\n\nIt is a light.'
    assert told in shown


# --- settings


def test_adapters_travel_to_other_processes_as_their_settings():
    waits = {"max_wait": 0.01, "max_batch": 7}
    reward = ChecklistRewardFunc(model="pocket", backend="transformers", store=False, unscored=0.0, **waits)
    copy = pickle.loads(pickle.dumps(reward))
    assert {name: getattr(copy.queue, name) for name in waits} == waits and len(copy.queue) == 0
    assert (copy.unscored, copy.__name__) == (0.0, "reward_func")


def test_the_configured_reward_is_one_per_process(config):
    config()
    assert configured() is configured()


@pytest.mark.parametrize("setting", ["shaping: [clipped]", "retries: 3", "log: a.jsonl", "reference_column: answer"])
def test_a_setting_that_these_hosts_would_not_follow_is_refused(config, setting):
    config(setting)
    name = setting.partition(":")[0]
    with pytest.raises(SampleError, match=f"configured.yaml: {name} is supported by TRL trainers only; "):
        configured()
