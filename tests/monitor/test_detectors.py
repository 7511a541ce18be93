"""The detectors: windows of sums, the size of a change with its error, and CUSUM."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.monitor.detectors import Cusum, Shift, changed, fallen, lost, mean, reached, risen
from checklist_rewards.monitor.signals import SIGNALS
from checklist_rewards.rewards.settings import MonitorConfig


def shift(size=None, *, start=5, window=5, threshold=0.1, certainty=0.0):
    return Shift(mean, size or risen(), start=start, window=window, threshold=threshold, certainty=certainty)


def cusum(start, threshold=5.0):
    return Cusum(mean, start=start, threshold=threshold)


def feed(detector, values, count=10):
    return [detector.update([] if value is None else [(value * count, count)]) for value in values]


def raised(detector, values):
    """The steps at which an alarm begins."""
    return [step for step, reading in enumerate(feed(detector, values)) if reading.raised]


# --- the size of a change


def test_a_rise_is_measured_against_the_first_steps_and_raised_once():
    values = [0.2] * 5 + [0.2] * 3 + [0.6] * 5 + [0.2] * 5 + [0.6] * 5
    readings = feed(shift(), values)
    assert readings[4].start == pytest.approx(0.2) and readings[4].recent is None and readings[4].size is None
    assert raised(shift(), values) == [9, 19]
    assert readings[9].size == pytest.approx(0.16) and readings[9].alarm and not readings[14].raised


def test_a_level_needs_no_start_but_three_steps():
    readings = feed(shift(reached, threshold=0.8), [1.0] * 4)
    assert [reading.alarm for reading in readings] == [False, False, True, True]


def test_a_step_without_a_value_changes_nothing():
    assert feed(shift(), [0.1] * 5 + [0.4] * 4)[-1] == feed(shift(), [0.1, None] * 5 + [0.4] * 4)[-1]


def test_large_steps_weigh_more():
    detector = shift(reached)
    for count, value in ((10, 0.0), (10, 0.0), (80, 1.0)):
        reading = detector.update([(value * count, count)])
    assert reading.recent == pytest.approx(0.8)


def test_sizes():
    start, recent = (4.0, 10.0), (6.0, 10.0)
    assert risen()(start, recent) == pytest.approx(0.2) and fallen()(start, recent) == pytest.approx(-0.2)
    assert reached(start, recent) == 0.6 and changed(recent, start) == pytest.approx(0.5)
    assert lost(recent, (1.5, 10.0)) == pytest.approx(0.75)
    assert changed((0.0, 1.0), recent) is None and lost((0.0, 1.0), recent) is None
    assert risen()((0.0, 0.0), recent) is None


def test_the_error_is_the_standard_error_of_a_difference_of_means():
    first, last = 0.025 / 5, 0.1 / 5  # variances of the means
    reading = feed(shift(), [0.1, 0.2, 0.3, 0.4, 0.5] + [0.2, 0.4, 0.6, 0.8, 1.0])[-1]
    assert reading.error == pytest.approx((first + last) ** 0.5)
    reading = feed(shift(reached), [0.2, 0.4, 0.6, 0.8, 1.0])[-1]
    assert reading.error == pytest.approx(last**0.5)


def test_the_error_counts_the_parts_of_a_step():
    """Five steps whose means happen to be equal still vary from prompt to prompt."""
    steps = [[(0.0, 1), (1.0, 1)] if number % 2 else [(1.0, 1), (0.0, 1)] for number in range(10)]
    together, apart = shift(), shift()
    for parts in steps:
        whole = together.update([tuple(map(sum, zip(*parts, strict=True)))])
        reading = apart.update(parts)
    assert (whole.size, whole.error) == (reading.size, 0.0) == (0.0, 0.0)
    assert reading.error == pytest.approx((2 * 0.25 / 9) ** 0.5)


def test_certainty_asks_for_a_size_that_noise_does_not_have():
    noisy = [0.0, 0.8, 0.1, 0.9, 0.2] + [0.9, 0.3, 0.8, 0.9, 0.6]
    sure = feed(shift(certainty=3.0), noisy)[-1]
    assert not sure.alarm and sure.size > 0.1 and sure.size < 3 * sure.error
    assert feed(shift(certainty=0.0), noisy)[-1].alarm


# --- alarms at the limit


@pytest.mark.parametrize("level", [0.5, 0.499])
def test_a_size_exactly_at_its_threshold_alarms(level):
    """All numbers are exact in binary."""
    assert feed(shift(reached, threshold=0.5), [level] * 3)[-1].alarm == (level == 0.5)
    rise = feed(shift(threshold=0.5), [0.25] * 5 + [0.25 + level] * 3)[-1]
    assert rise.alarm == (level == 0.5) and rise.size == pytest.approx(level)
    jump = feed(cusum(2, 0.5), [0.0, 0.0, 0.0, 0.5 + level])[-1]  # changes count as they are
    assert jump.alarm == jump.raised == (level == 0.5) and jump.size == pytest.approx(level)


def test_a_size_of_exactly_as_many_standard_errors_as_certainty_asks_for_alarms():
    values = [0.0, 0.5, 0.0, 0.5, 0.25] + [0.75] * 5
    reading = feed(shift(), values)[-1]
    certainty = reading.size / reading.error
    assert certainty * reading.error == reading.size
    assert feed(shift(certainty=certainty), values)[-1].alarm
    assert not feed(shift(certainty=certainty * 1.001), values)[-1].alarm


ABSOLUTE = "passed_by_all failed_by_all dominance flips saturation flat_groups no_answer cut".split()


@pytest.mark.parametrize("signal", [s for s in SIGNALS if s.size is not None], ids=lambda signal: signal.name)
def test_a_level_alarms_absolute_signals_and_no_relative_one(signal):
    detector, absolute = signal.detector(MonitorConfig(start=5, window=5)), signal.name in ABSOLUTE
    level = {
        "shadow_disagreement": (5.0, 5.0, 5.0, 5.0),
        "length_bias": (1.0,) * 6,
        "length_reward": (1.0,) * 6,
    }.get(signal.name, (10.0, 10.0))
    readings = [detector.update([level]) for _ in range(12)]
    assert [reading.alarm for reading in readings] == [False] * 2 + [absolute] * 10
    assert (readings[4].recent is None) == (not absolute)  # the first steps are not among the last ones


# --- CUSUM


def test_cusum_finds_a_jump_and_not_steady_progress():
    rng = random.Random(0)
    steady = [0.2 + 0.004 * step + rng.gauss(0, 0.02) for step in range(100)]
    jump = [value + (0.5 if step >= 50 else 0.0) for step, value in enumerate(steady)]
    assert raised(cusum(10), steady) == [] and raised(cusum(10), jump)[0] == 50
    assert raised(cusum(10), [1 - value for value in jump]) == raised(cusum(10), jump)


@pytest.mark.parametrize("steps", [100, 300, 1000])
def test_cusum_is_silent_on_stationary_noise(steps):
    """The deviation of the first five changes alone raised an alarm in 13.5, 20 and 26 % of such runs."""
    rng = random.Random(steps)
    runs = [[rng.gauss(0.5, 0.05) for _ in range(steps)] for _ in range(60)]
    assert sum(bool(raised(cusum(5), run)) for run in runs) <= 1


def test_cusum_learns_its_scale_from_the_changes_before_a_change():
    steps = [0.0, 1.0, 0.0, 3.0]  # changes 1, -1, 3: standard deviation 2, and the factor of three changes is 2
    readings = feed(cusum(3, None), [*steps, 11.0, 11.0])
    assert [reading.size is None for reading in readings] == [True] * 4 + [False] * 2
    assert readings[4].size == pytest.approx(8 / (2 * 2) - 0.5)
    assert readings[5].size == pytest.approx(readings[4].size - 0.5)  # no change
    detector = cusum(3, 1.5)
    feed(detector, [*steps, 11.0, 11.5])
    assert detector.changes == [1.0, -1.0, 3.0, 0.5]  # without the change that raised an alarm
    feed(detector, [11.5] * 200)
    assert len(detector.state["changes"]) == 50


def test_the_rounding_of_equal_rewards_is_no_jump():
    detector = cusum(5)
    for count in ([8] * 40 + [5]) * 3:  # sometimes, completions have no score
        assert not detector.update([(sum([0.7] * count), count)]).raised


def test_the_change_at_which_a_new_segment_begins_is_no_jump():
    steady, parted = [0.50, 0.52, 0.49, 0.51, 0.50, 0.52], cusum(4)
    assert feed(cusum(4), [*steady, 0.9])[-1].raised
    feed(parted, steady)
    parted.new_segment()
    assert [reading.size for reading in feed(parted, [0.9, 0.9])] == [None, pytest.approx(0.0, abs=1.0)]


# --- states


@given(
    values=st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=40),
    cut=st.integers(0, 39),
    new=st.sampled_from([lambda: shift(certainty=1.0), lambda: shift(reached, certainty=1.0), lambda: cusum(5, 1.0)]),
)
def test_a_restored_detector_goes_on_as_if_it_had_never_stopped(values, cut, new):
    first, second = new(), new()
    feed(first, values[:cut])
    second.restore(json.loads(json.dumps(first.state)))
    assert feed(second, values[cut:]) == feed(new(), values)[cut:]


def test_a_scale_of_many_first_changes_is_restored_whole():
    one, other = cusum(60), cusum(60)
    feed(one, [n % 2 for n in range(61)])
    other.restore(json.loads(json.dumps(one.state)))
    assert feed(other, [1.0]) == feed(one, [1.0]) and one.changes == other.changes
