"""Everyday requests with requirements, for `demo.py`: prompts, and gold that neither the judge nor the reward sees.

A prompt is one of 16 kinds of requests about a topic, with two requirements. Topics, words and the wording of the
requirements are others in training than in the held-out prompts.

Gold has two parts. *Requirements*: the share of the requirements that IFEval's strict verdicts find met. *Content*:
the response is about the topic (it has one of the words listed for it that the prompt does not have, or names it
together with other words), and it is a text: at least five words, four in five of them different, and no more than
half of its pairs of words from the prompt.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from checklist_rewards.checks.ifeval import check_of_instruction, follows

KINDS = (
    "Write one or two sentences about {}.",
    "Describe {} to a child.",
    "Write a short note to a neighbour about {}.",
    "Tell a friend something nice about {}.",
    "Write a caption for a photo of {}.",
    "Write the first lines of a story about {}.",
    "Say why people like {}.",
    "Write a diary entry about {}.",
    "Give one piece of advice about {}.",
    "Write a short message to your family about {}.",
    "Write a line about {} for a postcard.",
    "Explain briefly what is special about {}.",
    "Write a short announcement about {}.",
    "Write a little poem about {}.",
    "Share a memory of {}.",
    "Recommend {} to a visitor.",
)
TOPICS: dict[str, tuple[str, ...]] = {
    "winter": ("snow", "cold", "ice", "frost", "white", "warm", "wind", "season", "coat", "holiday"),
    "a garden": ("flower", "plant", "green", "grow", "tree", "bloom", "soil", "rose", "seed", "bee"),
    "coffee": ("cup", "drink", "morning", "bean", "aroma", "brew", "warm", "bitter", "caf", "tast"),
    "a train": ("rail", "station", "travel", "journey", "track", "ride", "passenger", "engine", "window", "speed"),
    "the sea": ("wave", "water", "blue", "ocean", "beach", "shore", "salt", "fish", "sand", "ship"),
    "a dog": ("bark", "tail", "pet", "walk", "loyal", "friend", "play", "paw", "puppy", "fur"),
    "music": ("song", "sound", "melody", "sing", "listen", "dance", "rhythm", "note", "play", "heart"),
    "rain": ("wet", "cloud", "drop", "umbrella", "water", "storm", "sky", "puddle", "fall", "window"),
    "a library": ("book", "read", "quiet", "shelf", "learn", "story", "page", "knowledge", "stories", "shelves"),
    "bread": ("bake", "oven", "flour", "crust", "butter", "warm", "loaf", "dough", "eat", "tast"),
    "a mountain": ("peak", "climb", "high", "rock", "snow", "view", "hike", "summit", "sky", "tall"),
    "a market": ("fruit", "vegetable", "buy", "sell", "fresh", "stall", "food", "people", "shop", "color"),
}
HELD_OUT_TOPICS: dict[str, tuple[str, ...]] = {
    "a bridge": ("river", "cross", "water", "stone", "walk", "span", "steel", "connect", "road", "side"),
    "summer": ("sun", "hot", "beach", "warm", "heat", "swim", "holiday", "season", "day", "light"),
    "a cat": ("purr", "fur", "whisker", "paw", "pet", "sleep", "mouse", "play", "soft", "tail"),
    "tea": ("cup", "drink", "leaf", "leaves", "hot", "warm", "brew", "sip", "calm", "tast"),
    "a school": ("learn", "teach", "student", "class", "book", "child", "friend", "stud", "lesson", "education"),
    "the moon": ("night", "sky", "light", "star", "bright", "glow", "shine", "round", "dark", "earth"),
}
_WORDS = ("silver", "quiet", "golden", "always", "little", "wonder", "together", "bright")
_HELD_OUT_WORDS = ("gentle", "seven", "morning", "simple")
_NUMBERS, _HELD_OUT_NUMBERS = (10, 12, 15, 20), (14, 18)


@dataclass(frozen=True)
class _Kind:
    """A kind of requirement: IFEval's name, its arguments for a value, and the ways to say it."""

    name: str
    argument: str | None
    kwargs: Callable[[Any], dict[str, Any]]
    ways: tuple[str, ...]
    held_out: tuple[str, ...]


_REQUIREMENTS = (
    _Kind(
        "punctuation:no_comma",
        None,
        lambda value: {},
        ("Do not use any commas.", "Write it without commas.", "Use no commas at all."),
        ("Avoid commas.", "Commas are not allowed."),
    ),
    _Kind(
        "change_case:capital_word_frequency",
        None,
        lambda value: {"capital_relation": "at least", "capital_frequency": 1},
        (
            "Write at least one word in capital letters.",
            "Put one or more words in capital letters.",
            "It needs at least one word in all caps.",
        ),
        ("Include at least one word in all capitals.",),
    ),
    _Kind(
        "length_constraints:number_words",
        "number",
        lambda value: {"relation": "less than", "num_words": value + 1},
        ("Use at most {} words.", "Do not write more than {} words.", "Stay within {} words."),
        ("Keep it to {} words or fewer.", "Your answer must not exceed {} words."),
    ),
    _Kind(
        "keywords:existence",
        "word",
        lambda value: {"keywords": [value]},
        ("Include the word '{}'.", "Use the word '{}'.", "Make sure the word '{}' is in it."),
        ("The word '{}' must appear.",),
    ),
    _Kind(
        "startend:end_checker",
        None,
        lambda value: {"end_phrase": "?"},
        ("End with a question mark.", "The last character must be a question mark."),
        ("Finish with a question mark.",),
    ),
)


@dataclass(frozen=True)
class Everyday:
    """A prompt with what is needed for its gold."""

    prompt: str
    topic: str
    requirements: tuple[tuple[str, dict[str, Any]], ...]
    """IFEval's names and arguments."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages."""
        return [{"role": "user", "content": self.prompt}]

    def met(self, text: str) -> float:
        """Gold of the requirements: the share that is met, in [0, 1]."""
        verdicts = [follows(check_of_instruction(name, kwargs), text) for name, kwargs in self.requirements]
        return sum(verdicts) / len(verdicts)

    def about(self, text: str) -> bool:
        """Gold of the content: whether the text is one, and about the topic."""
        words = re.findall(r"[a-z']+", text.lower())
        asked = re.findall(r"[a-z']+", self.prompt.lower())
        if len(words) < 5 or len(set(words)) < 0.8 * len(words):
            return False
        pairs = list(zip(words, words[1:], strict=False))
        if sum(pair in set(zip(asked, asked[1:], strict=False)) for pair in pairs) > 0.5 * len(pairs):
            return False
        listed = (TOPICS | HELD_OUT_TOPICS)[self.topic]
        named = self.topic.split()[-1]
        others = set(words) - set(asked)
        return any(word.startswith(start) for word in others for start in listed) or (
            len(others) >= 4 and any(word.startswith(named[:5]) for word in words)
        )


def prompts(count: int, *, held_out: bool = False, seed: int = 0) -> list[Everyday]:
    """Prompts for training, or held-out ones, with all kinds of requests equally often."""
    rng = random.Random(f"{seed}/{held_out}")
    topics = list(HELD_OUT_TOPICS if held_out else TOPICS)
    found: dict[str, Everyday] = {}
    for place in range(100 * count):
        if len(found) == count:
            break
        topic = rng.choice(topics)
        drawn = [_requirement(kind, held_out, rng) for kind in rng.sample(_REQUIREMENTS, 2)]
        request = KINDS[place % len(KINDS)].format(topic)
        text = " ".join([request, *(sentence for sentence, _ in drawn)])
        found.setdefault(text, Everyday(text, topic, tuple(requirement for _, requirement in drawn)))
    return list(found.values())


def _requirement(kind: _Kind, held_out: bool, rng: random.Random) -> tuple[str, tuple[str, dict[str, Any]]]:
    values: Sequence[Any] = (None,)
    if kind.argument == "word":
        values = _HELD_OUT_WORDS if held_out else _WORDS
    elif kind.argument == "number":
        values = _HELD_OUT_NUMBERS if held_out else _NUMBERS
    value = rng.choice(values)
    sentence = rng.choice(kind.held_out if held_out else kind.ways).format(value)
    return sentence, (kind.name, kind.kwargs(value))
