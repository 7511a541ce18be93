"""Preference pairs: each rule by example, what unanswered reads may not decide, and that TRL takes the rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.preferences import (
    Pair,
    Rule,
    ScoredPool,
    choose_pair,
    mine_pairs,
    preference_card,
    rows_of,
    top_places,
)
from checklist_rewards.rerank import rerank
from tests.evaluation.files import score_of
from tests.fakes import FakeBackend

TWO = Checklist.parse(["Short?", "Funny?"])
LOST = None


def pool(*rows, checklist=TWO, prompt="Say it.", texts=None, least=0.5):
    """A candidate per row: P(yes) of each item, None where the read was lost."""
    scores = [score_of(checklist, *row, min_answered=least) for row in rows]
    return ScoredPool(prompt, checklist, texts or [f"text {n}" for n in range(len(rows))], scores)


def texts(found):
    return (found.chosen, found.rejected) if isinstance(found, Pair) else found


# --- which text is judged, and which is written --------------------------------------------------------------------


def scored_pool(*candidates, rule=lambda prefix, tail: 0.5, **settings):
    scorer = ChecklistScorer(backend=FakeBackend(rule), store=False, **settings)
    ranking = rerank(scorer, TWO, candidates)
    return ScoredPool("Say it.", TWO, ranking.candidates, ranking.scores)


def test_rows_have_the_full_text_of_what_was_judged_by_its_answer():
    thinking = "<think>funny funny</think>dull"
    pair = choose_pair(scored_pool(thinking, "funny", rule=lambda p, t: 0.9 if "funny" in p else 0.1), Rule())
    assert texts(pair) == ("funny", thinking)
    assert rows_of(pair)[0]["rejected"] == thinking and rows_of(pair, "kto")[1]["completion"] == thinking


@pytest.mark.parametrize(("text", "unanswered"), [("", "shared"), ("<think>Hm", "bounds")])
def test_a_candidate_without_an_answer_is_rejected_and_never_chosen(text, unanswered):
    rule = Rule(unanswered=unanswered)
    pair = choose_pair(scored_pool(text, "an answer"), rule)
    assert texts(pair) == ("an answer", text) and (pair.score_chosen, pair.score_rejected) == (0.5, 0.0)
    bad = scored_pool(text, "an answer", rule=lambda prefix, tail: 0.0)
    assert choose_pair(bad, rule) == "tie"
    kept = choose_pair(bad, Rule(unanswered=unanswered, ties="keep"))
    assert texts(kept) == ("an answer", text) and kept.margin == 0


def test_a_candidate_without_an_answer_is_compared_with_one_that_lost_an_item():
    lost = scored_pool("<think>Hm", "an answer", rule=lambda p, t: None if "Funny" in t else 0.8)
    assert texts(choose_pair(lost, Rule())) == ("an answer", "<think>Hm")
    assert choose_pair(lost, Rule()).score_chosen == pytest.approx(0.8)


def test_unscored_candidates_and_equal_answers_make_no_pair():
    assert choose_pair(scored_pool("", "an answer", no_answer="unscored"), Rule()) == "too_few"
    assert choose_pair(scored_pool("", "<think>Hm"), Rule(ties="keep")) == "too_few"
    assert choose_pair(scored_pool("<think>A</think>Yes", "<think>B</think>Yes"), Rule(ties="keep")) == "too_few"


# --- rules ----------------------------------------------------------------------------------------------------------


def test_best_against_worst_and_of_several_the_earliest():
    pair = choose_pair(pool((0, 0.5), (1, 1), (1, 1), (0, 0), (0, 0)), Rule())
    assert texts(pair) == ("text 1", "text 3")
    assert (pair.score_chosen, pair.score_rejected, pair.margin) == (1.0, 0.0, 1.0)
    pair = choose_pair(pool((0.9, 0.7), (0.9, 0.1)), Rule())
    assert [(item["question"], item["chosen"], item["rejected"]) for item in pair.flipped] == [("Funny?", "yes", "no")]
    assert pair.largest_difference == pytest.approx(0.6)
    checklist = Checklist.parse(["Short?", {"question": "Funny?", "weight": 0}])  # an item that does not count
    assert choose_pair(pool((0.9, 1), (0.8, 0), checklist=checklist), Rule()).largest_difference == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("rows", "rule", "reason"),
    [
        ([(1, 1)], Rule(), "too_few"),
        ([(1, 1), (LOST, LOST)], Rule(), "too_few"),
        ([(0.3, 0.1), (0.1, 0.3)], Rule(), "tie"),
        ([(0.3, 0.1), (0.1, 0.2)], Rule(min_margin=0.2), "margin"),
        ([(1, LOST), (LOST, 0)], Rule(), "unanswered"),
        ([(1, LOST), (0.5, 0.5)], Rule(unanswered="bounds"), "unanswered"),
    ],
)
def test_why_there_is_no_pair(rows, rule, reason):
    assert choose_pair(pool(*rows), rule) == reason
    if reason == "tie":  # kept on request
        assert texts(choose_pair(pool(*rows), Rule(ties="keep"))) == ("text 0", "text 1")
    if len(rows) == 2:
        assert choose_pair(pool(*rows, texts=["same", "same"]), rule) == "too_few"


def test_a_random_pair_is_above_the_gap_and_its_own_for_every_prompt():
    rows = [(n / 10, n / 10) for n in range(8)]
    rule = Rule(select="random", min_margin=0.3)
    pairs = [choose_pair(pool(*rows, prompt=f"prompt {n}"), rule) for n in range(20)]
    assert all(pair.margin >= 0.3 - 1e-9 for pair in pairs) and len({texts(pair) for pair in pairs}) > 3
    assert choose_pair(pool(*rows, prompt="prompt 7"), rule) == pairs[7]
    assert choose_pair(pool(*rows[:3]), rule) == "margin"


def test_rlcf_keeps_the_largest_single_item_differences():
    level = pool((0.9, 0.9), (0.5, 0.5))  # the larger margin, spread over two items
    sharp = pool((0.9, 0.5), (0.2, 0.5))
    mined = mine_pairs([level, sharp], Rule(select="rlcf", top_fraction=0.5))
    assert [pair.largest_difference for pair in mined.pairs] == [pytest.approx(0.7)]
    assert mined.dropped == {"not_top": 1}
    assert Rule(select="rlcf").fraction == 0.4 and Rule().fraction == 1.0
    assert top_places([0.4] * 5, 0.4) == {0, 1}
    assert top_places([], 0.4) == set() and top_places([0, 0.5, 1], 0.01) == {2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"min_margin": 2}, r"min_margin=2.*from 0 to 1"),
        ({"top_fraction": 0.5}, "requires select='rlcf'"),
        ({"select": "rlcf", "top_fraction": 0.0}, "above 0"),
        ({"ties": "keep", "min_margin": 0.1}, "cannot be combined"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(settings, words):
    with pytest.raises(SampleError, match=words):
        Rule(**settings)


# --- what was not answered decides nothing --------------------------------------------------------------------------


def test_candidates_are_compared_on_what_was_answered_for_both():
    # By its own score (1.0) the first would win; on the shared item it loses.
    three = Checklist.parse(["Short?", "Funny?", "Kind?"])
    pair = choose_pair(pool((0.8, 1, LOST), (0.9, 0.3, 0.1), checklist=three), Rule())
    assert texts(pair) == ("text 0", "text 1") and pair.score_rejected == pytest.approx(0.6)
    pair = choose_pair(pool((0.8, LOST, 1), (0.9, 0.9, LOST), checklist=three, least=0.3), Rule())
    assert texts(pair) == ("text 1", "text 0") and pair.margin == pytest.approx(0.1)


def test_bounds_take_only_what_no_answer_could_turn():
    pair = choose_pair(pool((1, LOST), (0.2, 0.1)), Rule(unanswered="bounds"))
    assert texts(pair) == ("text 0", "text 1")
    assert (pair.score_chosen, pair.score_rejected) == (pytest.approx(0.5), pytest.approx(0.15))


answers = st.one_of(st.none(), st.floats(0, 1))
three_items = st.tuples(answers, answers, answers)
THREE = Checklist.parse(["a?", {"question": "b?", "weight": 2}, {"question": "c?", "weight": -1}])


@given(three_items, three_items, st.tuples(*[st.floats(0, 1)] * 6))
def test_no_answer_to_a_lost_item_turns_a_pair_of_bounds(one, other, truth):
    found = choose_pair(pool(one, other, checklist=THREE, least=0.0), Rule(unanswered="bounds"))
    if isinstance(found, Pair):
        # Whatever the judge would have said, the full scores are in the same order.
        full = [
            tuple(t if p is None else p for p, t in zip(row, truths, strict=True))
            for row, truths in ((one, truth[:3]), (other, truth[3:]))
        ]
        scores = {f"text {n}": score.primary_score for n, score in enumerate(pool(*full, checklist=THREE).scores)}
        assert scores[found.chosen] >= scores[found.rejected]


# --- rows -----------------------------------------------------------------------------------------------------------


def test_rows_of_pairs_have_a_margin_for_reward_models():
    pair = choose_pair(pool((1, 1), (0, 0)), Rule())
    [dpo], [reward] = (rows_of(pair, form) for form in ("dpo", "reward"))
    assert (dpo["prompt"], dpo["chosen"], dpo["rejected"]) == ("Say it.", "text 0", "text 1")
    assert "margin" not in dpo and reward == dpo | {"margin": 1.0}
    assert Checklist.parse(dpo["checklist"]) == TWO


def test_trl_sees_preference_and_unpaired_rows_of_chats():
    from datasets import Dataset
    from trl import is_conversational, unpair_preference_dataset

    pair = choose_pair(pool((1, 1), (0, 0), prompt=[{"role": "user", "content": "Say it."}]), Rule())
    data = Dataset.from_list(rows_of(pair))
    assert is_conversational(data[0]) and data[0]["chosen"] == [{"role": "assistant", "content": "text 0"}]
    unpaired, kto = unpair_preference_dataset(data), rows_of(pair, "kto")
    for name in ("prompt", "completion", "label"):
        assert list(unpaired[name]) == [row[name] for row in kto]


def test_the_card_states_rule_and_counts():
    rule = Rule(select="rlcf", min_margin=0.1)
    mined = mine_pairs([pool((1, 1), (0, 0)), pool((1, 1), (1, 1)), pool((1, 1))], rule)
    card = preference_card("my pairs", rule, "dpo", len(mined.pairs), mined.dropped, ["judge"])
    assert "1 pairs from 3 prompts, for TRL's `DPOTrainer`" in card
    assert "at least 0.1 apart; of these the 40% with the largest difference in a single item" in card
    assert "| tie | 1 | the candidates have the same score |" in card and "| too_few | 1 |" in card


@given(three_items, three_items)
def test_shared_pairs_do_not_see_what_only_one_was_asked(one, other):
    """Answers to items lost for the other candidate change neither the order nor the margin."""
    masked = [
        tuple(p if q is not None else None for p, q in zip(a, b, strict=True)) for a, b in ((one, other), (other, one))
    ]
    found, again = (choose_pair(pool(*rows, checklist=THREE, least=0.0), Rule()) for rows in ((one, other), masked))
    if isinstance(found, Pair) and again != "too_few":  # a candidate that lost a penalty has no score, so no pair
        assert isinstance(again, Pair) and texts(again) == texts(found)
        assert again.margin == pytest.approx(found.margin)
