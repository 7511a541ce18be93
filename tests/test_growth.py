"""Texts that a policy or a client writes are searched in linear time: whatever is repeated.

A linear search takes hundredths of a second, a quadratic one about ten: the limit is for a hang, not for speed.
"""

import signal
import sys

import pytest

from checklist_rewards.chat import CompletionReader
from checklist_rewards.checks import parse_check
from checklist_rewards.checks.base import CHECKS, example_of
from checklist_rewards.checks.programs import python_of
from checklist_rewards.files.cells import decoded
from checklist_rewards.generators import find_requirements
from checklist_rewards.judges.written import Unreadable, json_of
from checklist_rewards.monitor import text as monitored

LENGTH = 20_000
SECONDS = 0.4
UNITS = r"""
a ``` ` ** _ [ ] { } ( < <| |> [/ # | \ . <think> </think> ?! !? .) <|channel|> <|channel|>analysis
<|channel|>analysis<|message|> [INST] ◁think▷ assistant analysis 1 1, 1,000 http:// <a " “ ' \boxed{ \frac{ {"
[[ {"a": ◁ \' '\
""".split()
UNITS += [
    *("* ", "**a ", "# ", "- ", "a <think> b ", "about <think>x", "` </think> a", "the <think> tag, "),
    *("[THINK] a ", "e.g.\t", "x.\t", " \n\t", "give this ", "<|im_start|>user\n", "answer ", "the answer is "),
    *("A. ", "a ", "\n", " ", "\t", "a\n", "``` \n", "``` </think>\n", "a. ", "the word rain twice "),
    *("at least 5 words and ", "highlight 3 ", 'use "a" and ', "no commas, ", "repeat the request "),
]
PARTS = [(unit,) for unit in UNITS] + [("give this ", "all questions ")]
"""A text repeats a unit, or one unit and then another."""


def _json(text):
    try:
        json_of(text)
    except Unreadable:
        pass


READER = CompletionReader()
SEARCHES = {
    "a completion": READER.read,
    "a completion with control tokens": lambda text: READER.read(text, raw=text),
    "code blocks": python_of,
    "a prompt": find_requirements,
    "JSON": _json,
    "a cell": lambda text: decoded(f"[{text}"),
    "repetition": monitored.repetition,
    "steering": monitored.steering,
}
for _name, _kind in CHECKS.items():
    if not _kind.executes and _name != "language":  # a library of its own
        _check = parse_check(example_of(_kind), "here")
        SEARCHES[f"check {_name}"] = lambda text, check=_check: check.holds(text, "Write a text.")
_bullets = parse_check('{"type": "bullets", "exactly": 1, "loose": true}', "here")
SEARCHES["check bullets, loose"] = lambda text: _bullets.holds(text, "Write a text.")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", SEARCHES)
def test_no_text_takes_quadratic_time(name):
    def hangs(number, frame):
        raise AssertionError(f"{name}: {unit!r} takes more than {SECONDS} s of a core")

    search = SEARCHES[name]
    before = signal.signal(signal.SIGVTALRM, hangs)
    try:
        for unit in PARTS:
            text = "".join((part * (LENGTH // len(part) + 1))[:LENGTH] for part in unit)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            search(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
