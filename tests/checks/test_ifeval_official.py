"""The checks against IFEval's strict verdicts on 17 models' responses to its 541 prompts."""

from collections import Counter

import pytest
from english.common import json_lines

from checklist_rewards.checks.ifeval import check_of_instruction, follows

EVERY = 13
"""No divisor of the number of prompts or of models, so all of both are among every 13th response."""


def without_letters(row):
    """Whether the prompt asks about signs, which IFEval replaces with random letters."""
    return any(kwargs and not (kwargs.get("letter") or "a").isalpha() for kwargs in row["kwargs"])


@pytest.mark.slow
@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.study)], ids=["some", "all"])
def test_the_checks_agree_with_the_official_verdicts(data_dir, every):
    pytest.importorskip("langdetect")
    compared, different, prompts = Counter(), Counter(), set()
    for place, row in enumerate(json_lines(data_dir / "ifeval" / "en_labels.jsonl.gz")):
        if place % every and not without_letters(row):
            continue
        prompts.add(row["key"])
        for name, kwargs, official in zip(row["instruction_id_list"], row["kwargs"], row["strict"], strict=True):
            instruction = name.removeprefix("en:")
            compared[instruction] += 1
            different[instruction] += (
                follows(check_of_instruction(instruction, kwargs), row["response"] or "") != official
            )
    assert (compared.total(), len(prompts), len(compared)) == (1173 if every > 1 else 14_178, 541, 25)
    # What is left: signs that IFEval replaces with random letters, a random detector of languages, other splitters.
    assert set(different - Counter()) <= EXPECTED
    assert different["keywords:letter_frequency"] == 13
    assert different.total() <= (15 if every > 1 else 30)
    assert min(1 - different[name] / compared[name] for name in compared if every == 1 or name not in EXPECTED) >= 0.97


EXPECTED = {
    "keywords:letter_frequency",
    "language:response_language",
    "change_case:english_capital",
    "change_case:english_lowercase",
    "length_constraints:number_sentences",
    "change_case:capital_word_frequency",
}
