"""Rows of the repair skill: the shortest edit, the feedback it is made from, and the tokens it needs."""

import random

import pytest
from pocket import repair
from pocket.data import Encoder
from pocket.tokenizer import ASSISTANT, END
from pocket.train import new_tokenizer
from pocket.world import Constraint, Task
from transformers import AutoTokenizer

from checklist_rewards.backends import pocket_dir

TEXT = "The bakto is old. My tuldi holds 3 senko!"


@pytest.mark.parametrize(
    ("constraints", "revised"),
    [
        ([("mention", "ramki")], "The bakto is old. My tuldi holds 3 senko and the ramki!"),
        ([("sentences", 1)], "The bakto is old!"),
        ([("question",)], "The bakto is old. My tuldi holds 3 senko?"),
        ([("no_digits",)], "The bakto is old. My tuldi holds senko!"),
        ([("sentences", 1), ("mention", "senko"), ("exclaim",)], "The bakto is old and the senko!"),
        ([("digits",), ("mention", "bakto")], TEXT),  # it meets everything
        ([("mention", "bakto"), ("first", "ramki"), ("first", "tuldi")], None),  # no edit reaches both
    ],
)
def test_a_revision_is_the_shortest_edit(constraints, revised):
    assert repair.revise(random.Random(0), TEXT, [Constraint(*one) for one in constraints]) == revised


def test_the_two_kinds_of_feedback_say_the_same():
    task = Task("Write.", (Constraint("mention", "ramki"), Constraint("digits")))
    assert repair.critique(task, TEXT) == 'The word "ramki" is missing.'
    assert repair.verdict_feedback(task.constraints, task.constraints[:1]) == (
        'Wrong:\n- Does the response mention the word "ramki"? no, but it should be yes.\n\n'
        "Right:\n- Does the response contain a digit? yes"
    )
    assert repair.critique(Task("Write.", (Constraint("digits"),)), TEXT) == repair.NOTHING


def test_rows_ask_for_the_reply_and_the_end_of_the_turn():
    tokenizer = new_tokenizer()
    writer = repair.RepairWriter(Encoder(tokenizer))
    rng = random.Random(2)
    for row in (writer.from_checklist, writer.from_critique, writer.critique):
        made = row(rng, [])
        wanted = [token for token in made.answers if token != -100]
        assert wanted[-1] == END and made.tokens[-len(wanted) - 1] == ASSISTANT
        assert made.tokens[-len(wanted) :] == wanted and len(made.tokens) < 2048


def test_later_words_leave_the_shipped_ids_as_they_are():
    shipped, now = AutoTokenizer.from_pretrained(pocket_dir()).get_vocab(), new_tokenizer().get_vocab()
    assert all(now[token] == number for token, number in shipped.items())
