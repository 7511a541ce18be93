"""Rows of prompts as prefix trees, and what a pass costs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.backends.tokens import TokenGroup
from checklist_rewards.backends.trees import branches_of, floor_tokens, tree_rows

BRANCHES = [([1, 2], [([3, 4], "a"), ([3, 5], "b"), ([6], "c")]), ([1, 2, 3], [([4], "a again"), ([], "ends inside")])]
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=5), st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=4)),
    min_size=1,
    max_size=6,
)


def test_tokens_that_prompts_start_with_are_in_the_row_once():
    [row] = tree_rows(BRANCHES, 100)
    assert row.ids == [1, 2, 3, 4, 5, 6]
    assert row.parent_columns().tolist() == [-1, 0, 1, 2, 2, 1]
    assert row.positions().tolist() == [0, 1, 2, 3, 3, 2]
    assert row.answers == [3, 4, 5, 3, 2] and row.values == ["a", "b", "c", "a again", "ends inside"]


def test_a_full_row_is_followed_by_another_and_a_long_prompt_has_its_own():
    branches = [([1, 2], [([3], 0), ([4], 1)]), ([5, 6, 7], [([], 2)]), ([1] * 9, [([], 3)]), ([], [([], 4)])]
    rows = list(tree_rows(branches, 4))
    assert [row.values for row in rows] == [[0, 1], [2], [3]]
    assert [len(row.ids) for row in rows] == [4, 3, 9]
    assert not list(tree_rows([], 4))


def test_a_row_that_is_too_large_is_halved():
    [row] = tree_rows(BRANCHES, 100)
    first, second = row.halves()
    assert (first.values, second.values) == (["a", "b"], ["c", "a again", "ends inside"])
    assert (first.ids, second.ids) == ([1, 2, 3, 4, 5], [1, 2, 6, 3, 4])


def test_a_branch_continues_a_row_only_if_that_is_worth_it():
    branches = [([1, 2, 3], [([4], 0)]), ([1, 2, 5], [([6], 1)]), ([7, 8, 9], [([6], 2)])]
    asked = []

    def worth(width, new, alone):
        asked.append((width, new, alone))
        return new < alone

    assert [row.values for row in tree_rows(branches, 100, worth)] == [[0, 1], [2]]
    assert asked == [(4, 2, 4), (6, 4, 4)]


@given(PROMPTS)
def test_a_token_attends_to_its_own_prompt_only(groups):
    branches = [(prefix, [(tail, prefix + tail) for tail in tails]) for prefix, tails in groups]
    read = []
    for row in tree_rows(branches, 20):
        seen, depth, before = row.visible(), row.positions(), row.parent_columns()
        for answer, prompt in zip(row.answers, row.values, strict=True):
            columns = np.flatnonzero(seen[answer])
            assert [row.ids[column] for column in columns] == prompt
            assert depth[columns].tolist() == list(range(len(prompt)))
            assert before[columns].tolist() == [-1, *columns[:-1]]
            read.append(prompt)
    assert read == [prompt for _, tails in branches for _, prompt in tails if prompt]


@given(PROMPTS)
def test_the_floor_is_the_number_of_different_beginnings(groups):
    tokenized = [TokenGroup(prefix, tails) for prefix, tails in groups]
    prompts = [prefix + tail for prefix, tails in groups for tail in tails if len(prefix + tail) < 7]
    beginnings = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert floor_tokens(branches_of(tokenized, 7)) == (sum(map(len, prompts)), len(beginnings))
