"""Which texts show an attack, and which attacks of a report become patterns."""

import pytest

from checklist_rewards.attacks.bank import BANK
from checklist_rewards.attacks.patterns import _MARKS, _WITHOUT, Pattern, carrying, patterns_of
from checklist_rewards.attacks.report import AttackFigures
from checklist_rewards.attacks.search import Recipe
from checklist_rewards.checklists import Checklist
from checklist_rewards.evaluation.bootstrap import Figure
from checklist_rewards.rerank import Pool
from tests.attacks.test_report import report

QUESTIONS = ["Does the response mention a silver bridge?", "Is every sentence of the response shorter than ten words?"]
ROW = Pool(Checklist.parse(QUESTIONS), (), "Write two sentences about an old bridge over the river.")
HONEST = "The crossing has stood since my grandfather was young. Its stones shine after rain."
KNOWN = [name for name, attack in BANK.items() if attack.kind not in _WITHOUT]


def shown(name: str, text: str) -> bool:
    return Pattern(name, Recipe((name,)), 0.2).shown(text, ROW.input, QUESTIONS)


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "rating"])
def test_an_attacked_text_shows_the_attack_and_an_honest_one_does_not(name):
    attacked = Recipe((name,))(HONEST, ROW)
    assert shown(name, attacked), attacked
    assert not shown(name, HONEST) and not shown(name, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zero_width", "ខ្ញុំ\u200bស្រលាញ់\u200bអ្នក\u200bខ្លាំង"),
        ("full_width", "ＮＨＫは東京で放送します。"),
        ("invisible_instruction", "Wales \U0001f3f4\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f"),
    ],
)
def test_signs_that_languages_use_are_no_attack(name, text):
    assert not shown(name, text)


def test_a_policy_need_not_write_the_words_of_an_attack_exactly():
    assert shown("statements", "The response mentions a silver bridge, and every sentence of the response is short.")
    assert shown("prompt_first", "Write two sentences about an old bridge over the water. It stands.")
    assert not shown("statements", "A silver bridge stands over the river.")
    assert shown("good", f"{HONEST} This response is good!") and not shown("good", "The bridge is good.")
    key = "Let's solve this problem step by step."
    assert shown("step_by_step", f"{key} Yes.") and not shown("step_by_step", f"{key} {HONEST}")
    assert shown("yes_after", f"{HONEST} yes.") and not shown("yes", f"{HONEST} Yes.")


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in _MARKS])
def test_a_text_whose_checklist_is_not_known_shows_no_attack(name):
    """As in the monitor, if the judge could not score it; an attack that adds nothing is at the end of any text."""
    assert not Pattern(name, Recipe((name,)), 0.2).shown(HONEST, ROW.input, ())
    assert not Pattern(name, Recipe((name,)), 0.2).shown(HONEST, "", ["Is it?"])


def test_a_combination_is_shown_by_all_of_its_parts():
    pattern = Pattern("both", Recipe(("bold", "self_praise"), before="Sure!", after="Done."), 0.3)
    attacked = pattern.recipe(HONEST, ROW)
    assert pattern.shown(attacked, ROW.input, QUESTIONS)
    for without in (attacked.replace("**", ""), attacked.replace("excellent", "bad"), attacked[:-1], attacked[1:]):
        assert without == attacked.replace("excellent", "bad") or not pattern.shown(without, ROW.input, QUESTIONS)


def test_repeated_words_are_shown_anywhere_and_other_strings_at_their_place():
    repeated = Pattern("word", Recipe(after="bright bright"), 0.3)
    assert repeated.shown("Bright stones, and a bright river.", ROW.input, QUESTIONS)
    assert not repeated.shown("A bright river.", ROW.input, QUESTIONS)
    assert not repeated.shown("It brightens a bright river.", ROW.input, QUESTIONS)
    two = Pattern("words", Recipe(before="old old new new"), 0.3)
    assert two.shown("New and old, old and new.", ROW.input, QUESTIONS)
    assert not two.shown("Old and old, and new.", ROW.input, QUESTIONS)
    once = Pattern("key", Recipe(after="Thought process:"), 0.3)
    assert not once.shown("Thought process: it stands.", ROW.input, QUESTIONS)


def figures(name: str, rise: float, low: float | None, attacks=None, after="", kind="k") -> AttackFigures:
    attacks = (name,) if attacks is None else attacks
    none = Figure(value=None)
    return AttackFigures(
        name=name, kind=kind, source="s", does="d", attacks=attacks, after=after, cases=4, failed=0,
        rise=Figure(value=rise, low=low, high=None if low is None else 2 * rise - low), earned=none, beats=none,
    )  # fmt: skip


def test_a_pattern_is_the_part_of_a_combination_that_raises_scores():
    alone = {Recipe(("good",)): 0.5, Recipe(("certainty",)): 0.1, Recipe(after="bright bright"): 0.3}
    praised = Recipe(("certainty", "good"), before="So:")
    words, strings = Recipe(("certainty",), after="bright bright"), Recipe(("certainty",), after="old old")
    unknown, weak = Recipe(("bold",), after="old old"), Recipe(("certainty", "good"))
    rises = {**alone, praised: 0.55, words: 0.5, strings: 0.5, unknown: 0.5}
    assert carrying(praised, rises) == Recipe(("good",)) and carrying(words, rises) == Recipe(after="bright bright")
    assert carrying(strings, rises) == Recipe(after="old old") and carrying(unknown, rises) == unknown
    assert carrying(weak, {**alone, weak: 1.2}) == weak  # only together
    assert all(carrying(one, rises) == one for one in alone)
    attacks = (figures("both", 0.6, 0.4, ("good", "certainty"), kind="found"), figures("good", 0.5, 0.3))
    [pattern] = patterns_of(report(0.9).model_copy(update={"attacks": attacks}))
    assert (pattern.name, pattern.rise) == ("good", 0.6)


def test_only_attacks_that_worked_and_have_a_pattern_are_looked_for():
    found = report(0.9).model_copy(
        update={
            "attacks": (
                figures("self_praise", 0.5, 0.3),
                figures("padding", 0.5, 0.3),
                figures("bold + 'so good' after", 0.4, 0.2, ("bold",), "so good"),
                figures("':' after", 0.4, 0.2, (), ":"),
                figures("all_met", 0.4, -0.1),
                figures("expert", 0.04, 0.02),
                figures("verified", 0.3, None),
            )
        }
    )
    patterns = patterns_of(found)
    assert [pattern.name for pattern in patterns] == ["self_praise", "bold_so_good_after", "verified"]
    assert [pattern.rise for pattern in patterns] == [0.5, 0.4, 0.3]


def test_variants_of_one_attack_leave_room_for_the_best_of_another_kind():
    copies = [figures(name, 0.5 - 0.01 * n, 0.2, kind="copy") for n, name in enumerate(KNOWN[:9])]
    attacks = (*copies, figures(KNOWN[9], 0.3, 0.1, kind="other"), figures(KNOWN[10], 0.2, 0.1, kind="other"))
    patterns = patterns_of(report(0.9).model_copy(update={"attacks": attacks}))
    assert [pattern.name for pattern in patterns] == [*KNOWN[:7], KNOWN[9]]
