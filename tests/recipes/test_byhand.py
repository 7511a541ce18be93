"""Rows of short texts, as people type them when they try the pocket judge."""

import random

from pocket import byhand
from pocket.data import Encoder
from pocket.train import new_tokenizer
from pocket.world import parse_question

from checklist_rewards.prompts import load_prompt

QUESTION = "## Question\n\n"


def encoder() -> Encoder:
    return Encoder(new_tokenizer())


def test_the_answers_of_a_row_are_true_of_its_text():
    made, rng = encoder(), random.Random(1)
    tokenizer = new_tokenizer()
    for _ in range(20):
        row = byhand.plain_row(made, rng, 6)
        prefix = tokenizer.decode([t for t, s in zip(row.tokens, row.segments, strict=True) if s == 0])
        target = prefix.partition("## Response\n\n")[2].split("\n", 1)[1].rpartition("\n</")[0]
        for number in range(1, 7):
            places = [place for place, segment in enumerate(row.segments) if segment == number]
            asked = tokenizer.decode([row.tokens[place] for place in places]).partition("\n\n")[0]
            answer = next(row.answers[place] for place in places if row.answers[place] != -100)
            constraint = parse_question(asked)
            assert constraint is not None and constraint.holds(target) == (answer == made.yes), (target, asked)


def test_examples_stand_before_the_question_as_a_judge_puts_them():
    made, tokenizer = encoder(), new_tokenizer()
    row = byhand.shown_row(made, random.Random(3), 2)
    text = tokenizer.decode(row.tokens)
    assert text.count("Example 1:") == 2 and "Answer: " in text
    ending = load_prompt("judges/item", "judge").tail("?").rpartition("?")[2]
    assert text.count(ending) == 2 and text.index("Example 1:") > text.index(QUESTION.strip())


def test_what_nobody_knows_is_yes_as_often_as_no():
    made, rng = encoder(), random.Random(4)
    answers = [a for _ in range(50) for a in byhand.unknown_row(made, rng, 4).answers if a != -100]
    assert set(answers) == {made.yes, made.no} and 70 < answers.count(made.yes) < 130
