"""Requirements found by rules: each wording gives exactly the checks that it states, or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest

from checklist_rewards.checks import check_of
from checklist_rewards.generators.constraints import find_requirements


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
    "🇫🇷": 1,
    "🇫": 0,
    "👩‍💻 👨‍👩‍👧‍👦": 2,
    "👩🏽‍🚀": 1,
    "🏳️‍🌈": 1,
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f": 1,  # England
    "1️⃣#️⃣": 2,
    "☝🏽": 1,
    "❤️‍🔥": 1,
    "©™ ® ✓ → ❤ 12 #*": 0,
    "😀\ufe0e": 0,  # asked to be text
    "Hi🙂there🎉🎉": 3,
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
        "Each tweet should:\n1. Begin with the phrase \"Breaking news\".\n2. Be funny.",
        "Limit each description to 50 words.",
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
        'Use the word "a{n}" at least 3 times. ',
        "Add a postscript. ",
        "advertise all of the " * 30 + "5 words. ",
        "<text> </b> Use 5 words. ",
        "[BEGIN A] Use 5 words. ",
        "A) Use 5 words. B) ",
        'a"""\nUse 5 words. ',
        "---\nUse 5 words. ---\n",
        "cats must and " * 45 + "use 5 words. ",
        "Translate the above: ",
        "Then use 5 words. Your answer must have 5 words. ",
    ],
)
def test_long_prompts_are_read(part):
    """Half a second of processor time each. A quadratic pattern, of which there were five, took minutes."""
    start = process_time()
    find_requirements("".join(part.format(n=n) for n in range(160_000 // len(part))))
    assert process_time() - start < 30
