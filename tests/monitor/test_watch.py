"""The state of all detectors: a resumed run counts what an uninterrupted one counts."""

import json

import pytest

from checklist_rewards.monitor import MonitorConfig
from checklist_rewards.monitor.watch import Watch
from tests.monitor.fakes import observed, seen


def step(number, checklists):
    completions = [seen(prompt_key=f"prompt {place}", checklist=name) for place, name in enumerate(checklists)]
    return observed(*completions, step=number)


def changed(watch, number, checklists):
    observation = step(number, checklists)
    watch.update(observation)
    return watch.statistics(observation).get("checklists_changed", 0)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_checklist_that_changes_between_two_runs_is_a_change(resumed):
    watch = Watch(MonitorConfig())
    assert changed(watch, 0, "aaa") == 0
    if resumed:
        state = json.loads(json.dumps(watch.state))
        watch = Watch(MonitorConfig())
        watch.restore(state)
    assert changed(watch, 1, "aba") == 1
    assert changed(watch, 2, "aba") == 0


def test_a_prompt_with_two_checklists_in_the_dataset_changes_none_and_each_may_evolve():
    def row(own, checklist):
        return seen(prompt_key="p", own_items=own, checklist=checklist)

    watch, found = Watch(MonitorConfig()), []
    for rows in ("aA", "aA bB", "bB", "aA bB", "aA bC", "bC aA", "aD bC", "aA bC"):  # a and b, and what they are now
        observation = observed(*(row(*pair) for pair in rows.split()), step=len(found))
        watch.update(observation)
        found.append(watch.statistics(observation).get("checklists_changed", 0))
    assert found == [0, 1, 0, 0, 1, 0, 1, 1]
