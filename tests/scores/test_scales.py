"""Ordinal scales: labels, values, and checklists put on them."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.errors import ChecklistError
from checklist_rewards.scores.scales import on_scale, ordinal_scale
from tests.judges.fakes import Labels, Script


@pytest.mark.parametrize(
    ("steps", "first", "last"), [(10, "0", "9"), (11, "A", "K"), (20, "A", "T"), (101, "0", "100")]
)
def test_values_rise_evenly_from_0_to_1(steps, first, last):
    scale = ordinal_scale(steps)
    assert len({option.label for option in scale}) == len(scale) == steps
    assert (scale[0].label, scale[0].value, scale[-1].label, scale[-1].value) == (first, 0.0, last, 1.0)
    assert scale[1].value == pytest.approx(1 / (steps - 1))


@pytest.mark.parametrize("steps", [1, 2.5, True, "5"])
def test_a_scale_has_at_least_two_steps(steps):
    with pytest.raises(ChecklistError, match="at least 2 steps, got"):
        ordinal_scale(steps)


def test_only_plain_questions_are_put_on_the_scale_and_keep_their_weights():
    options = [{"label": "a", "value": 0}, {"label": "b", "value": 1}]
    plain = Checklist.parse(
        [{"question": "x?", "weight": 70, "category": "c", "required": True}, {"question": "y?", "options": options}]
    )
    scaled = on_scale(plain, ordinal_scale(10))
    x, y = scaled.items
    assert (x.weight, x.category, x.required, len(x.options)) == (70.0, "c", True, 10)
    assert x.id != plain.items[0].id and y == plain.items[1]


def test_rlcf_in_one_read_and_in_samples_gives_the_same_mean():
    checklist = [{"question": "Is it kind?", "weight": 100}, {"question": "Is it short?", "weight": 50}]
    read = ChecklistScorer(backend=Labels({"0": 0.2, "1": 0.0001, "9": 0.8}), prompt="judges/rlcf", store=False).score(
        on_scale(checklist, ordinal_scale(10)), "Hi."
    )
    assert read.primary_score == pytest.approx(0.8, abs=1e-3) and read.answered == 2
    sampled = ChecklistScorer(
        backend=Script([["100", "100", "50", "70"], ["80", "80", "80", "80"]]),
        prompt="judges/rlcf",
        use_logprobs=False,
        votes=4,
        temperature=1.0,
        store=False,
    ).score(on_scale(checklist, ordinal_scale(101)), "Hi.")
    assert [item.confidence for item in sampled.items] == [0.5, 1.0]
    assert sampled.primary_score == pytest.approx((100 * 0.8 + 50 * 0.8) / 150)
