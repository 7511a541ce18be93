"""Requirements found by rules: each wording gives exactly the checks that it states, or says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from checklist_rewards.checks import check_of
from checklist_rewards.generators.constraints import find_requirements
from checklist_rewards.generators.constraints.reading import PromptText

Check = dict[str, Any]


def prompts(name: str) -> list[tuple[str, str]]:
    """The prompts of a file, one a line, each with its checks as JSON, in the order of their text."""
    lines = (Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return [(prompt.replace("\\n", "\n"), checks) for prompt, checks in rows]


PLAIN = prompts("requirements_plain.txt")
"""Clauses that require something."""
MISLEADING = prompts("requirements.txt")
"""Prompts that were written to mislead the rules, or as users write, with the checks that they require."""


@pytest.mark.parametrize("rows", [PLAIN, MISLEADING], ids=["plain", "misleading"])
def test_a_prompt_gives_only_what_it_requires(rows):
    found = {
        prompt: " ".join(
            sorted(
                json.dumps(dict(one.check), separators=(",", ":"), ensure_ascii=False)
                for one in find_requirements(prompt)
                if one.check
            )
        )
        for prompt, _ in rows
    }
    assert [(prompt, found[prompt]) for prompt, checks in rows if found[prompt] != checks] == []


EMOJIS = {
    "👍🏽": 1,
    "🇫🇷": 1,
    "🇫🇷🇺🇸": 2,
    "🇫": 0,
    "👩‍💻 👨‍👩‍👧‍👦": 2,
    "👩🏽‍🚀": 1,
    "🏳️‍🌈": 1,
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f": 1,  # England
    "1️⃣#️⃣": 2,
    "☝🏽": 1,
    "❤️‍🔥": 1,
    "❤️": 1,
    "©™ ® ✓ → ❤ 12 #*": 0,
    "©️™️": 2,
    "😀\ufe0e": 0,  # asked to be text
    "Hi🙂there🎉🎉": 3,
    "今天☔下雨": 1,
    "": 0,
}


@pytest.mark.parametrize("text", EMOJIS)
def test_emojis_are_counted_as_people_see_them(text):
    [exactly] = find_requirements("Describe the sea. Use exactly 3 emojis.")
    spec = exactly.check | {"exactly": EMOJIS[text]}
    assert check_of(spec).holds(text) and not check_of(spec | {"exactly": EMOJIS[text] + 1}).holds(text)
    [none] = find_requirements("Describe the sea. Do not use any emojis.")
    assert check_of(none.check).holds(text) is (EMOJIS[text] == 0)


@pytest.mark.parametrize(("text", "count"), [("cafe\u0301", 4), ("👩‍💻", 1), ("கொ", 1), ("a\nb", 3)])
def test_characters_are_counted_as_people_see_them(text, count):
    [limit] = find_requirements("Describe the sea in at most 280 characters.")
    assert check_of({"type": "regex", "pattern": limit.check["pattern"], "exactly": count}).holds(text)


@pytest.mark.parametrize(
    "prompt",
    [
        "Write about 100 words on tea.",
        "Write a 500-word essay.",
        "Write 3 paragraphs, each with at least 50 words.",
        "Give it a title of at most five words.",
        "Each sentence must have fewer than 10 words.",
        "The first paragraph should have exactly two sentences.",
        "If you need more than 100 words, ask first.",
        "Limit each description to 50 words.",
        "Each tweet should:\n1. Begin with the phrase \"Breaking news\".\n2. Be funny.",
        "Write at most 200 words, not including the title.",
        "Use 200 words more or less.",
    ],
)  # fmt: skip
def test_what_no_check_expresses_is_said(prompt):
    found = find_requirements(prompt)
    assert all(requirement.check is None or requirement.check["type"] == "paragraphs" for requirement in found)
    assert any(requirement.reason for requirement in found)


def test_the_evidence_is_in_the_prompt_and_the_check_is_valid():
    for prompt, _ in [*PLAIN, *MISLEADING]:
        for found in find_requirements(prompt):
            assert 0 <= found.start < found.end <= len(prompt)
            assert prompt[found.start : found.end].strip()
            if found.check:
                check_of(dict(found.check))
                assert found.question.endswith("?")
            else:
                assert found.reason


COMPARISONS = {
    "at_least": "at the least, at the very least, at a minimum, as a minimum, minimum, or more, +, or longer",
    "at_most": "at the most, at the very most, at a maximum, as a maximum, max., tops, or fewer, or less, or under",
    "": "give or take, give or take one, or so, or thereabouts, -ish, - or six -, plus or minus one, +/- 1, ± 1, "
    "ideally, preferably, if possible, if you can, or ten, up to ten, ballpark, roughly, more or less, on average, "
    "and up, and above, and counting, as a guideline, as a rule of thumb, as an upper limit, as a floor, at best, "
    "at a stretch, at the outside, at the absolute most, at a time, to start with, for starters, so to speak, "
    "no less, no more, and no fewer, but not more, and nothing more, plus a few, (max), (at least), "
    "(or more), [min], - max",
}
"""Comparisons after a number, with the bound that they may give it."""
BOUNDS = {"at_least", "at_most", "exactly"}
COUNTED = ("sentences", "paragraphs", "bullet points", "emojis", "commas", "hashtags", "placeholders", "words")


@pytest.mark.parametrize("bound", COMPARISONS)
@pytest.mark.parametrize("link", [" ", ", "])
def test_a_number_with_a_comparison_is_never_exact(bound, link):
    counted = [f"Write a story with five {thing}{{}}." for thing in COUNTED]
    counted += ['Use the word "sea" five times{}.', "Use commas twice{}.", "The number of sentences should be 5{}."]
    wrong = []
    for phrase in COMPARISONS[bound].split(", "):
        for prompt in (text.format(f"{'' if phrase == '-ish' else link}{phrase}") for text in counted):
            checks = [found.check for found in find_requirements(prompt) if found.check]
            wrong += [prompt for check in checks if any(name in check for name in BOUNDS - {bound})]
    assert wrong == []


@pytest.mark.parametrize(
    ("prompt", "passes", "fails"),
    [
        ('Start with the word "I".', ["I am here.", "I, too."], ["It is."]),
        ('The first word must be "Yes".', ["Yes, it is."], ["Yesterday."]),
        ('The last word must be "end".', ["The end."], ["Spend."]),
        ("Do not use dashes.", ["A well-known\n- bullet"], ["It is - so.", "It is—so."]),
    ],
)
def test_a_check_answers_as_the_prompt_means_it(prompt, passes, fails):
    [found] = find_requirements(prompt)
    check = check_of(dict(found.check))
    assert all(map(check.holds, passes)) and not any(map(check.holds, fails))


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("Use at least 5 commas. Do not use commas.", ["'Do not use commas'", "'at least 5 commas'"]),
        ("Write it in all caps. Use lowercase letters only.", ["'Use lowercase letters'", "'all caps'"]),
        (
            "Include the word 'sun'. Do not use the word 'sun'.",
            ["\"Do not use the word 'sun'\"", "\"Include the word 'sun'\""],
        ),
    ],
)  # fmt: skip
def test_contradictory_requirements_drop_each_other_and_are_named(prompt, named):
    found = find_requirements(prompt)
    assert [requirement.check for requirement in found] == [None, None]
    assert [requirement.reason for requirement in found] == [f"it contradicts {other}" for other in named]


@pytest.mark.parametrize(
    "part",
    [
        "Use 3 sections. ",
        "Use at most {n} words. ",
        'Use the word "a{n}" at least 3 times. ',
        'Use the word "a". ',
        "Add a postscript. ",
        "advertise all of the " * 30 + "5 words. ",
        "1: " * 220 + "each 5 sentences. ",
        "<text> </b> Use 5 words. ",
        "[BEGIN A] Use 5 words. ",
        "A) Use 5 words. B) ",
        "Essay: The essay must have 5 words. ",
        'a"""\nUse 5 words. ',
        "---\nUse 5 words. ---\n",
        "cats must and " * 45 + "use 5 words. ",
        "Use 5 words in this version, if you can. ",
        "Translate the above: ",
        "Improve this prompt ",
        "Then use 5 words. Your answer must have 5 words. ",
    ],
)
def test_long_prompts_are_read(part):
    """Half a second of processor time each. A quadratic pattern, of which there were five, took minutes."""
    start = process_time()
    find_requirements("".join(part.format(n=n) for n in range(160_000 // len(part))))
    assert process_time() - start < 30


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _before(words: str):
    return lambda clause: f"{words} {_lower(clause)}"


def _behind(words: str):
    return lambda clause: f"{clause.rstrip('.!')} {words}."


def _in_quotes(clause: str) -> str:
    return f"Translate “{clause}” into French."


ORDER = re.compile("(?:Write|Use|Include|Keep|End|Start|Mention|Limit|Avoid|Do not use) ")
FRAMES = {
    "never": _before("Never"),
    "not just": _before("Don't just"),
    "free": _before("Feel free to"),
    "may": _before("You may"),
    "mind": _before("I would not mind if you"),
    "fine": _before("It is fine to"),
    "how": _before("Explain how to"),
    "code": _before("Write a program that prints"),
    "told": _before("My teacher told us to"),
    "story": _before("Write a story about a man who hears:"),
    "if": _before("If it helps,"),
    "part": _before("In the conclusion,"),
    "true": lambda clause: f"Is it true that one should {_lower(clause).rstrip('.!')}?",
    "feedback": _before("Give me feedback on this rule:"),
    "reported": lambda clause: f"{clause.rstrip('.!')}, says the manual.",
    "unless": _behind("unless needed"),
    "except": _behind("except in lists"),
    "japanese": _behind("in Japanese"),
    "below": _before("Translate the text below into French.\n\n"),
    "label": _before("Summarize it.\n\nText:"),
    "heading": _before("### Input\n"),
    "tags": lambda clause: f"<document>\n{clause}\n</document>\nSummarize the document.",
    "prompt": lambda clause: f"Improve this prompt: {clause}",
    "applicants": lambda clause: f"Applicants must be kind and {_lower(clause)}" if ORDER.match(clause) else "",
    "several": lambda clause: f"{clause} Then rewrite it for children.",
    "taken back": lambda clause: f"{clause} This is not a strict limit.",
    "quotes": _in_quotes,
}
IN_EVERY_LANGUAGE = (
    "bullets paragraphs placeholders highlights sections json title postscript quoted two_responses repeats_prompt "
    "language"
).split()
"""Checks that mean the same for a text in Japanese."""


SIZES = ("words", "sentences", "paragraphs", "bullets")
"""Checks of the size of a whole text."""


def _denied(check: Check) -> list[Check]:
    """What "never" makes of a requirement, apart from no requirement."""
    rest = {name: value for name, value in check.items() if name not in ("at_least", "at_most", "exactly")}
    turned = [rest | {"exactly": 0}]
    if "at_least" in check:
        turned.append(rest | {"at_most": check["at_least"] - 1})
    if "at_most" in check:
        turned.append(rest | {"at_least": check["at_most"] + 1})
    if check["type"] == "keywords":
        turned.append({"type": "forbidden", "words": check["words"]})
    if check["type"] == "casing":
        turned.append({"type": "casing", "casing": "lower" if check["casing"] == "upper" else "upper"})
    return turned


@pytest.mark.parametrize("frame", FRAMES)
def test_every_example_turns_or_goes_in_a_frame(frame):
    """The clause of each requirement of each example, in a frame: the requirement is turned, or goes."""
    wrong = []
    for prompt, _ in PLAIN:
        plain = [requirement for requirement in find_requirements(prompt) if requirement.check]
        for requirement in plain:
            ends = [0, *PromptText(prompt).ends, len(prompt)]
            start = max(end for end in ends if end <= requirement.start)
            end = min(end for end in ends if end >= requirement.end)
            if ", and" in prompt[start : requirement.start] or ", but" in prompt[start : requirement.start]:
                continue  # a frame before a clause does not reach over these
            framed = f"{prompt[:start]}\n{FRAMES[frame](prompt[start:end].strip())}\n{prompt[end:]}".strip()
            before = [other.check for other in plain]
            for found in find_requirements(framed):
                same = found.check == requirement.check
                new = found.check and found.check not in before
                if frame in ("several", "taken back") and requirement.check["type"] not in SIZES:
                    continue
                if frame == "japanese":
                    wrong += [framed] * bool((same or new) and found.check["type"] not in IN_EVERY_LANGUAGE)
                elif frame == "never":
                    places = found.check and found.check["type"] == "regex" and found.check.get("exactly") == 0
                    wrong += [framed] * bool(
                        same or (new and not places and found.check not in _denied(requirement.check))
                    )
                else:
                    wrong += [framed] * bool(same or new)
    assert wrong == []
