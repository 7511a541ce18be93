"""Whether a check holds, written in one line."""

import json

from checklist_rewards.checks import parse_check


def holds(text, input=None, **spec):
    return parse_check(json.dumps(spec), "here").holds(text, input)
