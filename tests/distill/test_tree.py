"""Rows of prompts as prefix trees."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.distill.tree import positions, tree_rows, visible

PROMPTS = [([1, 2, 3, 4], "a"), ([1, 2, 3, 5], "b"), ([1, 2, 6], "c"), ([1, 2, 3, 4], "a again")]


def test_tokens_that_prompts_start_with_are_in_the_row_once():
    [row] = tree_rows(PROMPTS, 100)
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert row.parents.tolist() == [-1, 0, 1, 2, 2, 1]
    assert positions(row.parents).tolist() == [0, 1, 2, 3, 3, 2]
    assert row.answers.tolist() == [3, 4, 5, 3] and row.values == ["a", "b", "c", "a again"]


def test_a_full_row_is_followed_by_another_and_long_prompts_are_skipped():
    prompts = [([1, 2, 3], 0), ([1, 2, 4], 1), ([5, 6, 7], 2), ([1] * 9, 3), ([], 4)]
    first, second = tree_rows(prompts, 4)
    assert (first.values, second.values) == ([0, 1], [2])
    assert not list(tree_rows([], 4))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8))
def test_a_token_attends_to_its_own_prompt_only(prompts):
    for row in tree_rows([(prompt, prompt) for prompt in prompts], 20):
        seen, depth = visible(row.parents), positions(row.parents)
        for answer, prompt in zip(row.answers, row.values, strict=True):
            columns = np.flatnonzero(seen[answer])
            assert row.ids[columns].tolist() == prompt
            assert depth[columns].tolist() == list(range(len(prompt)))
