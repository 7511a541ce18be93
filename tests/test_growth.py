"""Texts that a policy or a client writes are searched in linear time: whatever is repeated.

A linear search takes hundredths of a second, a quadratic one about a minute: the limit is for a hang, not for speed.
"""

import signal
import sys

import pytest

from checklist_rewards.chat import CompletionReader
from checklist_rewards.checks import parse_check
from checklist_rewards.checks.base import CHECKS, example_of
from checklist_rewards.checks.programs import python_of
from checklist_rewards.generators import find_requirements
from checklist_rewards.judges.written import Unreadable, json_of
from checklist_rewards.monitor import text as monitored

LENGTH = 100_000
SECONDS = 10
UNITS = [
    *(
        "a",
        "```",
        "`",
        "* ",
        "**",
        "_",
        "[",
        "]",
        "{",
        "}",
        "(",
        "<",
        "<|",
        "|>",
        "[/",
        "#",
        "# ",
        "- ",
        "|",
        "\\",
        ".",
    ),
    *(
        "<think>",
        "</think>",
        "a <think> b ",
        "about <think>x",
        "` </think> a",
        "the <think> tag, ",
        "[THINK] a ",
        "?!",
    ),
    *(
        "<|channel|>",
        "<|channel|>analysis",
        "<|channel|>analysis<|message|>",
        "<|im_start|>user\n",
        "[INST]",
        "◁think▷",
    ),
    *("assistant", "analysis", "answer ", "the answer is ", "A. ", "1", "1,", "1,000", "http://", "<a", '"', "“", "'"),
    *(
        "\\boxed{",
        "\\frac{",
        '{"',
        "[[",
        '{"a":',
        "a ",
        "\n",
        " ",
        "\t",
        "a\n",
        "``` \n",
        "``` </think>\n",
        "◁",
        "a. ",
    ),
    *(
        "the word rain twice ",
        "at least 5 words and ",
        "highlight 3 ",
        'use "a" and ',
        "no commas, ",
        "repeat the request ",
    ),
]


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
    "repetition": monitored.repetition,
    "steering": monitored.steering,
}
for _name, _kind in CHECKS.items():
    if not _kind.executes and _name not in ("language", "regex"):  # a library of its own, and a limit of time
        _check = parse_check(example_of(_kind), "here")
        SEARCHES[f"check {_name}"] = lambda text, check=_check: check.holds(text, "Write a text.")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", SEARCHES)
def test_no_text_takes_quadratic_time(name):
    def hangs(number, frame):
        raise AssertionError(f"{name}: {unit!r} takes more than {SECONDS} s of a core")

    search = SEARCHES[name]
    before = signal.signal(signal.SIGVTALRM, hangs)
    try:
        for unit in UNITS:
            text = (unit * (LENGTH // len(unit) + 1))[:LENGTH]
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            search(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
