"""The reward's contract, without a trainer: what it takes, what it gives, what it logs, what it refuses."""

import asyncio
import functools
import inspect
import math
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.trainer.utils import get_callable_name, is_async_callable

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.pipelines import pipeline
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl
from tests.pipelines.fakes import Scripted
from tests.rewards.fakes import Log, asked, assistant, call, knows, reward_by, scorer_by, user

RED = pytest.approx(0.9)
COLOURS = call(["red", "blue"])


def test_the_reward_is_what_score_batch_gives_for_the_same_texts_in_any_order():
    prompts, texts = ["A", "B"] * 4, [f"text {n} {'red blue'.split()[n % 3 % 2]}" for n in range(8)]
    checklists = [["Is red?", {"question": "Is blue?", "weight": -0.5}], ["Is blue?"]] * 4
    samples = [Sample(c, t, p) for c, t, p in zip(checklists, texts, prompts, strict=True)]
    expected = [score.primary_score for score in scorer_by(knows).score_batch(samples)]
    for order in (range(8), random.Random(0).sample(range(8), 8)):
        rows = ([column[place] for place in order] for column in (texts, prompts, checklists))
        assert reward_by(knows)(**call(*rows)) == [expected[place] for place in order]


def test_equal_completions_of_a_prompt_are_read_once_and_its_completions_stand_together():
    reward = reward_by(knows)
    reward(**call(["x", "y", "x", "z"], ["A", "B", "A", "B"]))
    assert "".join("A" if "\nA\n" in prefix else "B" for prefix, _ in asked(reward)) in ("ABB", "BBA")


@pytest.mark.parametrize(
    ("options", "prompt", "completion", "expected"),
    [
        ({}, "A", "<think>red</think>blue", 0.1),
        ({"keep_thinking": True}, "A", "<think>red</think>blue", 0.9),
        ({"thinking_opened": True}, user("A"), assistant("red, I think"), 0.0),
        ({}, "A<think>\n", "red, I think", 0.0),
    ],
)
def test_thinking_is_not_judged_unless_asked_for(options, prompt, completion, expected):
    batch = call([completion], [prompt], items=("Is red?",))
    assert reward_by(knows, **options)(**batch) == pytest.approx([expected])


def test_the_judge_sees_the_last_user_message_and_the_turns_before_it():
    reward = reward_by(knows)
    prompt = [{"role": "system", "content": "Be brief."}, *user("Hi"), *assistant("Hello"), *user("Again")]
    reward(**call([assistant("Hello")], [prompt]))
    [(shown, _)] = asked(reward)
    assert "system: Be brief.\n\nuser: Hi\n\nassistant: Hello" in shown
    assert shown.index("Again") < shown.index("system: Be brief.")


def test_a_row_without_a_checklist_is_none_and_costs_nothing():
    reward, log = reward_by(knows), Log()
    batch = call(["red", "red"], ["A", "B"], [None, ["Is red?"]])
    assert reward(**batch, log_extra=log.column, log_metric=log.metric) == [None, RED]
    assert len(asked(reward)) == 1
    assert log.extra["checklist_reward/items"] == ["not judged", "1/1  ✓ Is red? .90"]
    assert log.metrics["checklist_reward/unscored"] == [1.0, 0.0]


@given(
    weights=st.lists(st.floats(-3, 3).filter(lambda w: abs(w) > 1e-3), min_size=1, max_size=4),
    yes=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=4, max_size=4),
    metric=st.sampled_from([None, "pass", "weighted", "expected", "normalized"]),
    required=st.booleans(),
)
def test_a_reward_is_none_or_a_finite_number_from_0_to_1(weights, yes, metric, required):
    items = [{"question": f"Is {i}?", "weight": w, "required": required} for i, w in enumerate(weights)]
    reward = reward_by(lambda prefix, tail: yes[int(tail.split()[1].rstrip("?"))], metric=metric)
    [value] = reward(**call(["x"], items=items))
    assert value is None or (isinstance(value, float) and 0 <= value <= 1)
    if all(answer is None for answer in yes[: len(weights)]):
        assert value is None


@pytest.mark.parametrize("metric", ["pass", "weighted", "expected", "normalized"])
def test_a_metric_gives_what_a_scorer_with_that_primary_metric_gives(metric, tmp_path):
    items = [
        {"question": "Is red?", "weight": 3, "required": True},
        {"question": "Is blue?", "weight": -1},
        "Is cursed?",
    ]
    backend = FakeBackend(lambda prefix, tail: None if "cursed" in tail else knows(prefix, tail))
    batch = call(["red", "red and blue", "blue"], items=items)
    rewards = reward_by(backend, metric=metric, log=tmp_path / "log.jsonl")(**batch)
    assert rewards == reward_by(backend, scorer={"metric": metric})(**batch)
    assert rewards[2] == 0.0, "the required item failed"
    assert {record["score"]["primary_metric"] for record in read_jsonl(tmp_path / "log.jsonl")} == {metric}


# --- columns


def test_checklists_are_read_from_a_column_of_any_name():
    batch = call(["red"], items=("Is blue?",), rubric=['["Is red?"]'])
    assert reward_by(knows, column="rubric")(**batch) == [RED]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"column": "rubric"}, r"no column 'rubric' \(columns: checklist, level\).*remove_unused_columns"),
        ({"reference_column": "answer"}, r"no column 'answer' \(columns: checklist, level\)"),
        (
            {"reference_column": "completion"},
            r"no column 'completion' \(.*\)\. TRL keeps .* from rewards; rename it\.$",
        ),
    ],
)
def test_a_missing_column_is_refused_with_the_columns_that_are_there(options, words):
    with pytest.raises(SampleError, match=words):
        reward_by(**options)(**call(["x"], level=[1]), trainer_state=object())


@pytest.mark.parametrize(
    ("checklist", "words"),
    [
        ([], "row 2 .*'Name a'.*empty"),
        ([{"question": " "}], "row 2 .*item 1.*blank"),
        (7, "row 2 .*got 7"),
    ],
)
def test_a_checklist_that_cannot_be_used_is_an_error_naming_the_row_before_anything_is_asked(checklist, words):
    reward = reward_by(knows)
    with pytest.raises(ChecklistError, match=words):
        reward(**call(["x", "y"], ["Say", "Name a"], [["Is red?"], checklist]), log_metric=print)
    assert not asked(reward)


@pytest.mark.parametrize("checklist", [[["a?"]], "a?"])
def test_one_checklist_per_completion_is_demanded(checklist):
    with pytest.raises(SampleError, match="one prompt and one checklist per completion"):
        reward_by()(prompts=["A", "B"], completions=["x", "y"], checklist=checklist)


@pytest.mark.parametrize("value", [5, float("nan"), ["a", "b"], {"role": "assistant", "content": "a"}])
def test_a_reference_that_is_no_text_is_refused_by_column_and_row(value):
    reward = reward_by(reference_column="answer")
    with pytest.raises(SampleError, match=r"row 2 of the batch \(prompt 'B'\): 'answer' must be a string, a list of"):
        reward(**call(["x", "y"], ["A", "B"]), answer=[None, value])


def test_a_reference_column_is_shown_to_a_judge_that_has_a_place_for_it(tmp_path):
    prompt = tmp_path / "judge.md"
    prompt.write_text("# User\n## Good\n{reference}\n## Response\n{target}\n## Question\n{question}\n")
    reward = reward_by(
        lambda prefix, tail: 0.9 if "gold" in prefix else 0.1, scorer={"prompt": prompt}, reference_column="answer"
    )
    assert reward(**call(["x"] * 3), answer=["gold", None, assistant("gold")]) == pytest.approx([0.9, 0.1, 0.9])


def test_a_dataset_may_have_columns_with_the_names_of_our_arguments():
    others = {name: [1] for name in ("cls", "self", "id", "target", "reference", "labels", "call", "rows", "score")}
    reward, batch = reward_by(), call(["x"], **others)
    [part] = reward_by(name="b").split(lambda item: "all", names=["all"])
    assert reward(**batch) == part(**batch) == asyncio.run(reward.as_async()(**batch)) == [0.5]


# --- logging


def test_the_table_of_the_trainer_has_one_line_per_completion():
    log, tone = Log(), {"question": "Is blue?", "category": "tone"}
    checklists = [["Is red?", tone], ["Is red?", "Is " + "very " * 20 + "red?"], [f"Is red {n}?" for n in range(12)]]
    batch = call(["red", "blue", "red", ""], ["A", "B", "C", "D"], [*checklists, ["Is red?"]])
    reward_by(knows, name="words")(**batch, log_extra=log.column)
    assert log.extra == {
        "words/items": [
            "1/2  ✓ Is red? .90  ✗ tone .10",
            "0/2  ✗ Is red? .10  ✗ Is very very very very very ver… .10",
            "12/12",
            "no answer: empty",
        ]
    }


def test_metrics_are_logged_once_per_completion_so_that_means_weigh_completions():
    colours = [{"question": f"Is {colour}?", "category": "colour"} for colour in ("red", "blue")]
    checklist = [*colours, {"question": "Is cursed?", "category": "fate"}]
    backend = FakeBackend(lambda prefix, tail: None if "cursed" in tail else knows(prefix, tail), mass=0.8)
    log, reward = Log(), reward_by(backend, categories=["colour", "fate"], name="r")
    rewards = reward(**call(["red", "gray"], items=checklist), log_metric=log.metric)
    assert log.metrics.pop("r/judge_seconds")[0] >= 0
    assert log.metrics == {
        "r/score": rewards,
        "r/pass_rate": [0.5, 0.0],
        "r/unscored": [0.0, 0.0],
        "r/unanswered": [pytest.approx(1 / 3)] * 2,
        "r/abstained": [0.0, 0.0],
        "r/mass": [pytest.approx(0.8)] * 2,
        **{f"r/{state}": [0.0, 0.0] for state in ("empty", "cut_in_thought", "unfinished", "cut")},
        "r/category/colour": [0.5, 0.0],
    }


def test_a_number_that_does_not_exist_is_not_logged():
    log, reward = Log(), reward_by(FakeBackend(fails=lambda prefix, tail: True), name="r", categories=["colour"])
    checklist = [[{"question": "Is x?", "category": "another"}], None]
    assert reward(**call(["x", "y"], ["A", "B"], checklist), log_metric=log.metric) == [None, None]
    assert log.metrics["r/unscored"] == [1.0, 1.0] and log.metrics["r/unanswered"] == [1.0]
    assert not {f"r/{name}" for name in ("score", "pass_rate", "mass", "category/colour")} & log.metrics.keys()


# --- settings, names, copies, threads


def test_a_pipeline_gives_its_scorer_and_its_scale():
    pipe = pipeline("rlcf_direct", backend=Scripted(), store=False, scorer={"mode": "item"})
    batch = call(["red", "blue"], items=("Is red?", "Is blue?"))
    rewards = ChecklistReward(pipe, shaping=["earned"])(**batch)
    samples = [Sample(*row) for row in zip(batch["checklist"], batch["completions"], batch["prompts"], strict=True)]
    assert rewards == [score.expected_score for score in pipe.score_batch(samples)]
    assert {labels for _, _, labels in pipe.scorer.judge.engine.load().reads} == {tuple("0123456789")}


def test_weights_apply_to_the_score_and_to_shaping(tmp_path):
    weights = tmp_path / "weights.yaml"
    weights.write_text("Is red?: 3\n")
    batch = call(["red", "blue"], items=("Is red?", "Is blue?"))
    weighted, shaped = (
        ChecklistReward(backend=FakeBackend(knows), store=False, weights=weights, shaping=steps)(**batch)
        for steps in (None, ["earned"])
    )
    assert weighted == shaped == pytest.approx([(3 * 0.9 + 0.1) / 4, (3 * 0.1 + 0.9) / 4])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "mean"}, "metric='mean'.*weighted"),
        ({"metric": "quality"}, "metric='quality' requires mode='quality', which grades; mode is 'item'"),
        ({"on_failure": "zero"}, "on_failure='zero' is not known; allowed: 'row', 'group', 'raise'"),
        ({"threshold": 2}, "threshold=2"),
        ({"name": "reward"}, "name='reward'"),
        ({"name": ""}, "name=''"),
        ({"column": "completions"}, "column='completions'"),
        ({"reference_column": "completion_ids"}, "reference_column='completion_ids'"),
        ({"categories": "tone"}, "categories='tone'"),
        ({"retries": -1}, "retries=-1 is not allowed; it must be a whole number from 0 up"),
        ({"deadline": 0}, "deadline=0 is not allowed; it must be a finite number above 0"),
        ({"deadline": math.nan}, "deadline=nan is not allowed"),
        ({"scorer": "pocket"}, "'pocket'.*model="),
        ({"scorer": ChecklistScorer(store=False), "threshold": 0.5}, "threshold cannot be combined with scorer"),
    ],
)
def test_bad_settings_are_refused_when_the_reward_is_made(options, words):
    with pytest.raises(SampleError, match=words):
        ChecklistReward(**{"store": False} | options if "scorer" not in options else options)


def test_trl_sees_the_name_and_the_kind_of_each_form():
    """TRL up to 1.12 awaits only what `inspect` takes for an `async def` function."""
    reward = ChecklistReward(name="tone", store=False)
    form = pickle.loads(pickle.dumps(reward.as_async()))
    for one in (reward, form, functools.partial(reward)):
        assert get_callable_name(one) == "tone"
    assert not is_async_callable(reward) and is_async_callable(form)
    for function in (form, form.__call__, functools.partial(form, other=1)):
        assert inspect.iscoroutinefunction(function)
    assert asyncio.iscoroutinefunction(form) and not inspect.iscoroutinefunction(reward)
    assert list(inspect.signature(form).parameters) == ["prompts", "completions", "kwargs"]


def test_a_pickled_reward_is_its_settings(tmp_path):
    reward = ChecklistReward(
        store=tmp_path / "store.sqlite", name="tone", metric="pass", column="rubric", categories=["a"], threshold=0.7
    )
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.__name__, copy.metric, copy.column, copy.categories) == ("tone", "pass", "rubric", ("a",))
    assert copy.scorer.aggregation.threshold == 0.7 and copy.scorer.judge.store.path == tmp_path / "store.sqlite"
    assert len(pickle.dumps(reward)) < 10_000


def test_the_async_form_gives_the_same_rewards_off_the_loops_thread():
    threads = []

    def slow(prefix: str, tail: str) -> float:
        threads.append(threading.get_ident())
        return knows(prefix, tail)

    reward, other = reward_by(slow), reward_by(knows, name="b")

    async def two() -> list:
        return await asyncio.gather(reward.as_async()(**COLOURS), other.as_async()(**COLOURS))

    assert asyncio.run(two()) == [reward(**COLOURS)] * 2
    assert threads[0] != threading.get_ident()


def test_threads_may_share_a_reward(tmp_path):
    reward = reward_by(knows, scorer={"store": tmp_path / "store.sqlite"})
    batches = [call([f"{n} {i} it red"[: 4 + 7 * (i % 2)] for i in range(4)]) for n in range(16)]
    alone = [reward_by(knows)(**batch) for batch in batches]
    assert len({value for rewards in alone for value in rewards}) == 2
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda batch: reward(**batch), batches)) == alone
