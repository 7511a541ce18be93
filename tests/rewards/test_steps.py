"""Shaping by name: what each step does to a reward, what is refused when it is made, and what holds in any order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.shaping import ShapingStep
from checklist_rewards.rewards.steps import STEPS, Shaping
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from tests.rewards.fakes import call, reward_by

ITEMS = [
    {"question": "Polite?", "required": True, "category": "tone"},
    {"question": "Short?", "weight": 3, "category": "form"},
    {"question": "Rude?", "weight": -2, "category": "tone"},
]
P_YES = {"Polite?": 0.9, "Short?": 0.8, "Rude?": 0.1}
UNREAD = {question: p for question, p in P_YES.items() if question != "Rude?"}
RUDE = {**P_YES, "Polite?": 0.2}
EARNED = (1 * 0.9 + 3 * 0.8) / 4 - 2 * 0.1 / 4
LENGTH = {"name": "length_penalty", "free": 0, "cap": 100, "exponent": 1}


def shaped(steps, *texts, p_yes=P_YES, **options) -> list[float | None]:
    """Rewards of texts; a question that `p_yes` does not know is not answered."""
    reward = reward_by(
        lambda prefix, tail: next((p for question, p in p_yes.items() if question in tail), None),
        shaping=steps,
        **options,
    )
    return reward(**call(list(texts or ["x"]), items=ITEMS))


class Square(ShapingStep):
    name: str = "square"

    def value(self, value, sample, score):
        return value**2


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (None, EARNED),
        ([], EARNED),
        ([{"name": "gate", "how": "floor", "floor": 0.1}], EARNED),
        ([{"name": "format_gate", "form": r"x"}], EARNED),
        ([{"name": "earned", "answers": "hard"}], 1.0),
        ([{"name": "earned", "categories": {"tone": 0}}, "gate"], 0.8 * 0.9),
        ([{"name": "format_gate", "form": r"\d+", "otherwise": 0.2}], 0.2),
        ([{"name": "length_penalty", "unit": "characters", "free": 0, "cap": 1, "at_cap": 0.25}], EARNED - 0.25),
        ([{"name": "clipped", "low": 0.9}, {**LENGTH, "cap": 2}], 0.65),
        ([Square()], EARNED**2),
        ([lambda value, sample, score: value / 2 + len(sample.target)], EARNED / 2 + 1),
        ([lambda value, sample, score: np.float32(0.5)], 0.5),
        ([lambda value, sample, score: float("nan"), "clipped"], None),
        ([lambda value, sample, score: -float("inf"), "clipped"], None),
    ],
)
def test_steps_by_example(steps, expected):
    [reward] = shaped(steps)
    assert reward == pytest.approx(expected) and type(reward) in (float, type(None))


def test_a_failed_gate_leaves_what_it_says():
    hard = [{"name": "earned", "answers": "hard"}, {"name": "gate", "how": "floor", "floor": 0.1, "answers": "hard"}]
    assert shaped(None, p_yes=RUDE) == [0.0] and shaped(hard, p_yes=RUDE) == [pytest.approx(0.1)]


def test_a_penalty_that_was_not_answered_leaves_nothing_to_shape():
    for metric in ("expected", "net", "weighted"):
        assert shaped(None, p_yes=UNREAD, metric=metric) == [None]
    assert shaped(None, p_yes=UNREAD, metric="pass") == [1.0]  # a share of items counts a penalty like any other
    assert shaped(["earned"], p_yes=UNREAD, metric="pass") == [None]
    assert shaped([Square(), "clipped"], p_yes={}) == [None], "a completion without a score has no shaped reward"


def test_centred_is_within_a_prompt_wherever_its_completions_stand():
    rule = lambda prefix, tail: 0.9 if "red" in prefix else 0.1 if "blue" in prefix else None  # noqa: E731
    reward = reward_by(rule, shaping=["centred"])
    rewards = reward(**call(["red", "red", "blue", "red", "lost", "red"], ["A", "B"] * 3, items=("Is it?",)))
    assert rewards == [pytest.approx(0.4), 0.0, pytest.approx(-0.4), 0.0, None, 0.0]


def test_a_length_is_counted_in_words_of_every_script_and_in_tokens_of_the_model_that_is_named():
    from transformers import AutoTokenizer

    words = [{"name": "length_penalty", "free": 100, "cap": 200}]
    texts = ["今天下雨" * 75, "rain " * 300, "วันนี้ฝนตก", "वर्षा " * 99]
    assert shaped(words, *texts) == pytest.approx([EARNED - 0.5, EARNED - 0.5, EARNED, EARNED])
    assert shaped(words, "วันนี้ฝนตก" * 30) == [None]  # between 1 and 300 words
    count = len(AutoTokenizer.from_pretrained(pocket_dir()).tokenize("a word or two"))
    tokens = [{**LENGTH, "unit": "tokens", "tokenizer": "pocket"}]
    assert shaped(tokens, "a word or two") == [pytest.approx(EARNED - 0.5 * count / 100)]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("clipped", "shaping must be a list of steps.*got 'clipped'"),
        ([7], "step 1: expected a mapping with a name"),
        ([Square], "step 1: expected a mapping with a name among .*, got <class .*Square"),
        (["earned", {"name": "clip"}], r"step 2: unknown step 'clip' \(did you mean 'clipped'\?\); allowed: earned"),
        (
            [{"name": "clipped", "hi": 1}],
            r"step 1 \(clipped\): hi: unknown key \(did you mean .high.\?\); allowed: name, low, high\.",
        ),
        ([{"name": "clipped", "low": 2}], r"low=2.0 is greater than high=1.0; allowed: low <= high\."),
        ([{"name": "clipped", "low": float("nan")}], "low: Input should be a finite number, got nan"),
        ([{"name": "earned", "categories": {"tone": -1}}], "categories: the weight of category 'tone' is -1"),
        ([{"name": "length_penalty", "free": 9000}], "got free=9000.0, cap=8000.*allowed: 0 <= free < cap"),
        ([{"name": "length_penalty", "unit": "tokens"}], "unit='tokens' and tokenizer require each other"),
        ([{**LENGTH, "unit": "tokens", "tokenizer": "./nowhere"}], "tokenizer='./nowhere' not found"),
        ([{"name": "format_gate", "form": "("}], r"form: '\(' is not a regular expression"),
    ],
)
def test_what_cannot_be_is_one_sentence_when_the_reward_is_made(steps, words):
    with pytest.raises(SampleError, match=words) as error:
        ChecklistReward(ChecklistScorer(store=False), shaping=steps)
    assert "\n" not in str(error.value)


def by_steps(steps, checklist, score, text) -> float | None:
    """The reward of a text with this score."""
    made = Call(["A"], [text], samples=[Sample(checklist, text)], scores=[score], groups=["A"])
    return Shaping(steps)(replace(made, rewards=[score.primary_score])).rewards[0]


_ANY_ORDER = st.lists(
    st.sampled_from(
        [
            {"name": "earned", "answers": "soft"},
            {"name": "earned", "answers": "hard"},
            {"name": "gate", "how": "multiply"},
            {"name": "gate", "how": "floor", "floor": 0.1},
            {"name": "gate", "how": "floor", "floor": -0.5},
            {"name": "length_penalty", "unit": "words", "free": 0, "cap": 2},
            {"name": "clipped", "low": -1.0},
        ]
    ),
    max_size=5,
)


@given(
    _ANY_ORDER,
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.floats(0, 1),
    st.integers(0, 2),
    st.sampled_from(["expected", "weighted", "net", "normalized", "pass"]),
    st.lists(st.sampled_from([5.0, 1.0, -1.0, -20.0]), min_size=3, max_size=3),
)
def test_a_better_answer_never_lowers_the_reward_whatever_its_sign(steps, yes, other, which, metric, weights):
    checklist = Checklist.parse([{**item, "weight": weight} for item, weight in zip(ITEMS, weights, strict=True)])

    def value(answers) -> float:
        verdicts = [Verdict({"yes": p, "no": 1 - p}) for p in answers]
        return by_steps(
            steps, checklist, score_checklist(checklist, verdicts, Aggregation(primary_metric=metric)), "x y"
        )

    credits = sorted([yes[which], other], reverse=weights[which] < 0)  # the better answer comes last
    worse, better = (value([*yes[:which], answer, *yes[which + 1 :]]) for answer in credits)
    assert worse <= better + 1e-9


@given(
    yes=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=3, max_size=3),
    steps=st.lists(st.sampled_from(sorted(set(STEPS) - {"format_gate"})), max_size=5),
    text=st.text(max_size=40),
)
def test_none_stays_none_and_a_clipped_value_is_in_its_range(yes, steps, text):
    checklist = Checklist.parse(ITEMS)
    verdicts = [Verdict(unanswered="timeout") if p is None else Verdict({"yes": p, "no": 1 - p}) for p in yes]
    score = score_checklist(checklist, verdicts)
    value = by_steps([*steps, "clipped"], checklist, score, text)
    assert value is None or (score.primary_score is not None and 0 <= value <= 1)
