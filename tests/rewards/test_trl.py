"""The reward's contract, without a trainer: what it takes, what it gives, what it logs, what it refuses."""

import asyncio
import functools
import inspect
import json
import math
import pickle
import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistScorer, Sample, Score
from checklist_rewards import scorer as scorer_module
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.pipelines import pipeline
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import rescore
from tests.fakes import FakeBackend
from tests.pipelines.fakes import Scripted


def knows(prefix: str, tail: str) -> float:
    """Yes if the word in the question stands in the prompt before it."""
    return 0.9 if tail.split()[1].rstrip("?") in prefix else 0.1


def reward_on(backend=None, scorer=None, **options) -> ChecklistReward:
    return ChecklistReward(scorer or ChecklistScorer(backend=backend or FakeBackend(knows), store=False), **options)


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


class Log:
    """What a trainer keeps of `log_metric` and `log_extra`."""

    def __init__(self):
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[str]] = defaultdict(list)

    def metric(self, name: str, value: float) -> None:
        assert math.isfinite(value), (name, value)
        self.metrics[name].append(value)

    def column(self, name: str, values: list[str]) -> None:
        self.extra[name].extend(values)


def test_standard_and_conversational_formats_get_the_same_rewards():
    checklist = [["Is red?", "Is blue?"], ["Is blue?"]]
    standard = reward_on()(prompts=["A", "B"], completions=["a red thing", "a red thing"], checklist=checklist)
    chat = reward_on()(prompts=[user("A"), user("B")], completions=[assistant("a red thing")] * 2, checklist=checklist)
    assert standard == chat == pytest.approx([0.5, 0.1])


def test_the_reward_is_what_score_batch_gives_for_the_same_texts_in_any_order():
    prompts, texts = ["A", "B"] * 4, [f"text {n} {'red blue'.split()[n % 3 % 2]}" for n in range(8)]
    checklists = [["Is red?", {"question": "Is blue?", "weight": -0.5}], ["Is blue?"]] * 4
    scorer = ChecklistScorer(backend=FakeBackend(knows), store=False)
    samples = [Sample(c, t, p) for c, t, p in zip(checklists, texts, prompts, strict=True)]
    expected = [score.primary_score for score in scorer.score_batch(samples)]
    assert reward_on()(prompts=prompts, completions=texts, checklist=checklists) == expected
    order = random.Random(0).sample(range(8), 8)
    shuffled = reward_on()(
        prompts=[prompts[i] for i in order],
        completions=[texts[i] for i in order],
        checklist=[checklists[i] for i in order],
    )
    assert shuffled == [expected[i] for i in order]


def test_equal_completions_of_a_prompt_are_read_once_and_its_completions_stand_together():
    backend = FakeBackend(knows)
    reward_on(backend)(prompts=["A", "B", "A", "B"], completions=["x", "y", "x", "z"], checklist=[["Is red?"]] * 4)
    assert len(backend.asked) == 3
    asked_about = ["A" if "\nA\n" in prefix else "B" for prefix, _ in backend.asked]
    assert asked_about in (["A", "B", "B"], ["B", "B", "A"])


def test_thinking_is_not_judged_unless_asked_for():
    thought = dict(prompts=["A"], completions=["<think>red</think>blue"], checklist=[["Is red?"]])
    assert reward_on()(**thought) == pytest.approx([0.1])
    assert reward_on(keep_thinking=True)(**thought) == pytest.approx([0.9])
    cut = dict(prompts=[user("A")], completions=[assistant("red, I think")], checklist=[["Is red?"]])
    assert reward_on()(**cut) == pytest.approx([0.9])
    assert reward_on(thinking_opened=True)(**cut) == [0.0]
    assert reward_on()(**cut | {"prompts": ["A<think>\n"], "completions": ["red, I think"]}) == [0.0]


def test_the_judge_sees_the_last_user_message_and_the_turns_before_it():
    backend = FakeBackend(knows)
    prompt = [{"role": "system", "content": "Be brief."}, *user("Hi"), *assistant("Hello"), *user("Again")]
    reward_on(backend)(prompts=[prompt], completions=[assistant("Hello")], checklist=[["Is red?"]])
    shown = backend.asked[0][0]
    assert "system: Be brief.\n\nuser: Hi\n\nassistant: Hello" in shown
    assert shown.index("Again") < shown.index("system: Be brief.")


# --- what is not scored


def test_a_read_that_failed_is_none_and_its_neighbours_keep_their_reward():
    backend = FakeBackend(knows, fails=lambda prefix, tail: "cursed" in prefix, chunk_reads=1)
    rewards = reward_on(backend)(prompts=["A"] * 3, completions=["red", "cursed", "blue"], checklist=[["Is red?"]] * 3)
    assert rewards == [pytest.approx(0.9), None, pytest.approx(0.1)]


def test_a_row_without_a_checklist_is_none_and_costs_nothing():
    backend, log = FakeBackend(knows), Log()
    rewards = reward_on(backend)(
        prompts=["A", "B"],
        completions=["red", "red"],
        checklist=[None, ["Is red?"]],
        log_extra=log.column,
        log_metric=log.metric,
    )
    assert rewards == [None, pytest.approx(0.9)]
    assert len(backend.asked) == 1
    assert log.extra["checklist_reward/items"] == ["not judged", "1/1  ✓ Is red? .90"]
    assert log.metrics["checklist_reward/unscored"] == [1.0, 0.0]
    assert reward_on()(prompts=["A"], completions=["x"], checklist=[None]) == [None]


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.floats(-3, 3).filter(lambda w: abs(w) > 1e-3), min_size=1, max_size=4),
    yes=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=4, max_size=4),
    metric=st.sampled_from([None, "pass", "weighted", "expected", "normalized"]),
    required=st.booleans(),
)
def test_a_reward_is_none_or_a_finite_number_from_0_to_1(weights, yes, metric, required):
    items = [{"question": f"Is {i}?", "weight": w, "required": required} for i, w in enumerate(weights)]
    backend = FakeBackend(lambda prefix, tail: yes[int(tail.split()[1].rstrip("?"))])
    (reward,) = reward_on(backend, metric=metric)(prompts=["A"], completions=["x"], checklist=[items])
    assert reward is None or (isinstance(reward, float) and 0 <= reward <= 1)
    if all(answer is None for answer in yes[: len(weights)]):
        assert reward is None


@pytest.mark.parametrize("metric", ["pass", "weighted", "expected", "normalized"])
def test_a_metric_gives_what_a_scorer_with_that_primary_metric_gives(metric, tmp_path):
    items = [
        {"question": "Is red?", "weight": 3, "required": True},
        {"question": "Is blue?", "weight": -1},
        "Is cursed?",
    ]
    backend = FakeBackend(lambda prefix, tail: None if "cursed" in tail else knows(prefix, tail))
    batch = dict(prompts=["A"] * 3, completions=["red", "red and blue", "blue"], checklist=[items] * 3)
    rewards = reward_on(backend, metric=metric, log=tmp_path / "log.jsonl")(**batch)
    scorer = ChecklistScorer(backend=backend, store=False, metric=metric)
    assert rewards == reward_on(scorer=scorer)(**batch)
    assert rewards[2] == 0.0, "the required item failed"
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {record["score"]["primary_metric"] for record in records} == {metric}


# --- the column


@pytest.mark.parametrize(
    "checklist",
    [
        ["Is red?"],
        [{"question": "Is red?", "weight": None, "category": None, "id": None}],
        '["Is red?"]',
        Checklist.parse(["Is red?"]),
    ],
)
def test_every_form_that_a_dataset_row_may_have_is_read(checklist):
    assert reward_on()(prompts=["A"], completions=["red"], checklist=[checklist]) == pytest.approx([0.9])


def test_the_column_may_have_another_name():
    reward = reward_on(column="rubric")
    call = dict(prompts=["A"], completions=["red"], checklist=[["Is blue?"]])
    assert reward(**call, rubric=[["Is red?"]]) == pytest.approx([0.9])
    with pytest.raises(SampleError, match="no column 'rubric' .columns: checklist, level."):
        reward(**call, level=[1])


def test_a_missing_column_is_refused_with_the_two_usual_causes():
    with pytest.raises(SampleError, match=r"no column 'checklist' \(columns: solution\).*remove_unused_columns"):
        reward_on()(prompts=["A"], completions=["x"], solution=["x"], trainer_state=object())


@pytest.mark.parametrize(
    ("checklist", "words"),
    [
        ([], "row 2 .*'Name a'.*empty"),
        ([{"question": "Is x?", "weight": math.inf}], "row 2 .*item 1.*inf"),
        ([{"question": " "}], "row 2 .*item 1.*blank"),
        ("Is it red?", "row 2 .*must be JSON"),
        (7, "row 2 .*got 7"),
    ],
)
def test_a_checklist_that_cannot_be_used_is_an_error_naming_the_row_before_anything_is_asked(checklist, words):
    backend = FakeBackend(knows)
    with pytest.raises(ChecklistError, match=words):
        reward_on(backend)(
            prompts=["Say", "Name a"], completions=["x", "y"], checklist=[["Is red?"], checklist], log_metric=print
        )
    assert not backend.asked


@pytest.mark.parametrize("checklist", [[["a?"]], "a?", {"items": ["a?"]}])
def test_one_checklist_per_completion_is_demanded(checklist):
    with pytest.raises(SampleError, match="one prompt and one checklist per completion"):
        reward_on()(prompts=["A", "B"], completions=["x", "y"], checklist=checklist)


# --- logging


def test_the_table_of_the_trainer_has_one_line_per_completion():
    log = Log()
    tone = {"question": "Is blue?", "category": "tone"}
    checklists = [["Is red?", tone], ["Is red?", "Is " + "very " * 20 + "red?"], [f"Is red {n}?" for n in range(12)]]
    reward_on(name="words")(
        prompts=["A", "B", "C", "D"],
        completions=["red", "blue", "red", ""],
        checklist=[*checklists, ["Is red?"]],
        log_extra=log.column,
    )
    assert list(log.extra) == ["words/items"]
    assert log.extra["words/items"] == [
        "1/2  ✓ Is red? .90  ✗ tone .10",
        "0/2  ✗ Is red? .10  ✗ Is very very very very very ver… .10",
        "12/12",
        "no answer: empty",
    ]


def test_the_log_has_scores_that_can_be_aggregated_again(tmp_path):
    path = tmp_path / "log.jsonl"
    rewards = reward_on(log=path)(prompts=["A"], completions=["red"], checklist=[["Is red?", "Is blue?"]])
    [record] = [json.loads(line) for line in path.read_text().splitlines()]
    score = Score.model_validate(record["score"])
    assert [score.primary_score] == rewards
    heavier = Checklist.parse([{"question": "Is red?", "weight": 3}, "Is blue?"])
    assert rescore(heavier, score).primary_score == pytest.approx((3 * 0.9 + 0.1) / 4)


def test_metrics_are_logged_once_per_completion_so_that_means_weigh_completions():
    log = Log()
    checklist = [
        {"question": "Is red?", "category": "colour"},
        {"question": "Is blue?", "category": "colour"},
        {"question": "Is cursed?", "category": "fate"},
    ]
    backend = FakeBackend(lambda prefix, tail: None if "cursed" in tail else knows(prefix, tail), mass=0.8)
    reward = reward_on(backend, categories=["colour", "fate"], name="r")
    rewards = reward(prompts=["A"] * 2, completions=["red", "gray"], checklist=[checklist] * 2, log_metric=log.metric)
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
    }, "no read of the category 'fate' was answered, so it has no number"


def test_metric_names_depend_on_the_settings_only_and_a_number_that_does_not_exist_is_not_logged():
    broken = FakeBackend(fails=lambda prefix, tail: True)
    reward = reward_on(broken, name="r", categories=["colour"])
    log = Log()
    checklist = [[{"question": "Is x?", "category": "another"}], None]
    assert reward(prompts=["A", "B"], completions=["x", "y"], checklist=checklist, log_metric=log.metric) == [
        None,
        None,
    ]
    assert log.metrics.keys() <= set(reward.metric_names)
    assert log.metrics["r/unscored"] == [1.0, 1.0] and log.metrics["r/unanswered"] == [1.0]
    assert reward.metric_names == [
        "r/judge_seconds",
        "r/score",
        "r/pass_rate",
        "r/unscored",
        "r/unanswered",
        "r/abstained",
        "r/mass",
        "r/empty",
        "r/cut_in_thought",
        "r/unfinished",
        "r/cut",
        "r/category/colour",
    ]


# --- settings, names, copies, threads


def test_the_scorer_may_be_given_by_its_arguments():
    reward = ChecklistReward(backend=FakeBackend(knows), store=False, threshold=0.95, metric="pass")
    assert reward(prompts=["A"], completions=["red"], checklist=[["Is red?"]]) == [0.0]


@pytest.mark.parametrize("name", ["tick", "rlcf_direct"])
def test_a_pipeline_gives_its_scorer_and_its_scale(name):
    pipe = pipeline(name, backend=Scripted(), store=False, scorer={"mode": "item"})
    batch = dict(prompts=["A"] * 2, completions=["red", "blue"], checklist=[["Is red?", "Is blue?"]] * 2)
    rewards = ChecklistReward(pipe, shaping=["earned"])(**batch)
    samples = [Sample(*row) for row in zip(batch["checklist"], batch["completions"], batch["prompts"], strict=True)]
    assert rewards == [score.expected_score for score in pipe.score_batch(samples)]
    assert {labels for _, _, labels in pipe.scorer.judge.engine.load().reads} == {
        ("yes", "no") if name == "tick" else tuple("0123456789")
    }


def test_weights_apply_to_the_score_and_to_shaping(tmp_path):
    weights = tmp_path / "weights.yaml"
    weights.write_text("Is red?: 3\n")
    batch = dict(prompts=["A"] * 2, completions=["red", "blue"], checklist=[["Is red?", "Is blue?"]] * 2)
    plain, weighted, shaped = (
        ChecklistReward(backend=FakeBackend(knows), store=False, **settings)(**batch)
        for settings in ({}, {"weights": weights}, {"weights": weights, "shaping": ["earned"]})
    )
    assert plain == pytest.approx([0.5, 0.5]) and weighted == shaped and weighted[0] > 0.6


def test_a_checklist_that_completions_share_is_put_on_a_scale_and_shown_once(monkeypatch):
    calls = Counter()
    monkeypatch.setattr(Checklist, "__repr__", lambda self: f"shown {calls.update(['shown'])} {self.id}")
    scaled = scorer_module.on_scale
    monkeypatch.setattr(scorer_module, "on_scale", lambda *given: calls.update(["scaled"]) or scaled(*given))
    pipe = pipeline("rlcf_direct", backend=Scripted(), store=False, scorer={"mode": "item"})
    prompts = ["A", "B"] * 8
    checklist = [[{"question": f"Is red in {prompt}?"}] for prompt in prompts]
    ChecklistReward(pipe, on_failure="group")(prompts=prompts, completions=["red"] * 16, checklist=checklist)
    assert calls == {"scaled": 2, "shown": 2}


def test_a_pipeline_whose_scorer_is_another_object_is_refused():
    pipe = pipeline("tick", store=False)
    pipe.scorer = object()
    with pytest.raises(SampleError, match="must be a ChecklistScorer or a Pipeline with one, got <object"):
        ChecklistReward(pipe)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "mean"}, "metric='mean'.*weighted"),
        ({"metric": "quality"}, "metric='quality' requires mode='quality', which grades; mode is 'item'"),
        ({"reference_column": "completion_ids"}, "reference_column='completion_ids'"),
        ({"judged": "first"}, "judged='first' is not known; allowed: 'answer', 'transcript'"),
        ({"on_failure": "zero"}, "on_failure='zero' is not known; allowed: 'row', 'group', 'raise'"),
        ({"name": "reward"}, "name='reward'"),
        ({"name": ""}, "name=''"),
        ({"column": "completions"}, "column='completions'"),
        ({"categories": "tone"}, "categories='tone'"),
        ({"threshold": 2}, "threshold=2"),
        ({"scorer": "pocket"}, "'pocket'.*model="),
        ({"scorer": ChecklistScorer(store=False), "threshold": 0.5}, "threshold cannot be combined with scorer"),
    ],
)
def test_bad_settings_are_refused_when_the_reward_is_made(options, words):
    with pytest.raises(SampleError, match=words):
        ChecklistReward(**{"store": False} | options if "scorer" not in options else options)


def test_trl_sees_the_name_and_the_kind_of_each_form():
    from trl.trainer.utils import get_callable_name, is_async_callable

    reward = ChecklistReward(name="tone", store=False)
    for form in (reward, reward.as_async(), functools.partial(reward)):
        assert get_callable_name(form) == "tone"
    assert not is_async_callable(reward) and is_async_callable(reward.as_async())


def test_the_async_form_is_a_coroutine_function_as_trl_up_to_1_12_requires():
    reward = ChecklistReward(name="tone", store=False)
    form = pickle.loads(pickle.dumps(reward.as_async()))
    assert inspect.iscoroutinefunction(form) and asyncio.iscoroutinefunction(form)
    assert inspect.iscoroutinefunction(functools.partial(form, other=1))
    assert not inspect.iscoroutinefunction(reward)
    assert list(inspect.signature(form).parameters) == ["prompts", "completions", "kwargs"]


def test_a_pickled_reward_is_its_settings(tmp_path):
    reward = ChecklistReward(
        store=tmp_path / "store.sqlite", name="tone", metric="pass", column="rubric", categories=["a"], threshold=0.7
    )
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.__name__, copy.metric, copy.column, copy.categories) == ("tone", "pass", "rubric", ("a",))
    assert copy.scorer.aggregation.threshold == 0.7 and copy.scorer.judge.store.path == tmp_path / "store.sqlite"
    assert pickle.loads(pickle.dumps(reward.as_async())).__name__ == "tone"
    assert len(pickle.dumps(reward)) < 10_000


def test_the_async_form_gives_the_same_rewards_off_the_loops_thread():
    threads = []

    def slow(prefix: str, tail: str) -> float:
        threads.append(threading.get_ident())
        return knows(prefix, tail)

    reward = reward_on(FakeBackend(slow))
    batch = dict(prompts=["A"] * 2, completions=["red", "blue"], checklist=[["Is red?"]] * 2)

    async def two() -> list:
        return await asyncio.gather(reward.as_async()(**batch), reward_on(name="b").as_async()(**batch, other=[1, 2]))

    assert asyncio.run(two()) == [reward(**batch)] * 2
    assert threads[0] != threading.get_ident()
    assert inspect.iscoroutinefunction(reward.as_async().__call__)


def test_threads_may_share_a_reward(tmp_path):
    scorer = ChecklistScorer(backend=FakeBackend(knows), store=tmp_path / "store.sqlite")
    reward = reward_on(scorer=scorer)
    batches = [
        dict(
            prompts=["A"] * 4,
            completions=[f"{n} {i} red"[: 4 + 4 * (i % 2)] for i in range(4)],
            checklist=[["Is red?"]] * 4,
        )
        for n in range(16)
    ]
    alone = [reward_on()(**batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda batch: reward(**batch), batches)) == alone
