"""The parts of a step: prompts stay whole, and nothing is lost or counted twice."""

import random

import pytest

from checklist_rewards.monitor.detectors import _added
from checklist_rewards.monitor.seen import PARTS, Retest, Shadowed
from checklist_rewards.monitor.signals import SIGNALS
from tests.monitor.fakes import line, observed, seen


def completions(prompts, rng):
    """Groups of unequal size in random order, some completions without a reward, some read again."""
    found = []
    for prompt in range(prompts):
        for _ in range(rng.randint(1, 5)):
            lines = [line(rng.choice((rng.random(), None)), id=f"{prompt} {n}", held_out=n == 0) for n in range(4)]
            more = {"words": rng.randint(1, 50), "repetition": rng.random(), "copied": rng.random()}
            if rng.random() < 0.3:
                more["shadow"] = Shadowed(rng.random(), rng.random(), (rng.randint(0, 3), 1, 0, 2))
                more["retests"] = (Retest(f"{prompt} 1", "reworded", "yes", rng.choice(("yes", "no"))),)
            reward = rng.choice((rng.random(), rng.random(), None))
            keys = {"group": f"group {prompt}", "prompt_key": f"prompt {prompt // 2}"}
            found.append(seen(reward, lines=lines, **keys, **more))
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("prompts", [1, 2, 7, 20])
def test_the_parts_of_a_step_add_up_to_it_for_every_signal(prompts):
    step = observed(*completions(prompts, random.Random(prompts)))
    assert 1 <= len(step.parts) <= PARTS
    assert sorted(map(id, step.seen)) == sorted(id(one) for part in step.parts for one in part.seen)
    for key in {one.prompt_key for one in step.seen}:
        assert sum(any(one.prompt_key == key for one in part.seen) for part in step.parts) == 1
    for signal in SIGNALS:
        parts = [sums for part in step.parts if (sums := signal.measure(part)) is not None]
        whole = signal.measure(step)
        assert (whole is None) == (not parts), signal.name
        assert whole is None or _added(parts) == pytest.approx(whole), signal.name
