"""Cross-encoders: what is where in a row, and that the answers of a batch are those of single rows."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.encoder import EncoderBackend
from checklist_rewards.backends.encoder_rows import (
    CONTEXT,
    CONTEXT_AT,
    CONTEXT_POSITIONS,
    LAYOUT,
    MATCHED,
    MAX_CONTEXT,
    OVERLAP,
    PACKED,
    WINDOW,
    EncoderTexts,
    rows_of,
)
from tests.backends.answers import LABELS
from tests.encoders import WORDS, tiny_bert

QUESTIONS = ("does it mention red ?", "does it mention lamp ?")
GIVEN = (("input", "blue cat"), ("reference", "red dog"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return EncoderTexts(AutoTokenizer.from_pretrained(tiny_bert(tmp_path_factory.mktemp("base"))))


def rows(texts, *groups, trained=("input", "reference"), layout=PACKED):
    """The rows of a model that was trained with `trained`."""
    config = SimpleNamespace(max_position_embeddings=520, **{LAYOUT: layout, CONTEXT: list(trained)})
    return rows_of(texts, SimpleNamespace(config=config), groups)


def group(target, *context, questions=QUESTIONS):
    return ReadGroup(None, target, questions, context)


def test_each_text_has_positions_of_its_own_and_marks_what_the_target_says(texts):
    [row], floor_tokens = rows(texts, group("red cat", *GIVEN))
    assert [segment.start for segment in row.context] == list(CONTEXT_AT.values())
    words = [texts.tokenizer.convert_ids_to_tokens(segment.tokens) for segment in row.context]
    assert words == [["blue", "cat", "[SEP]"], ["red", "dog", "[SEP]"]]
    assert [segment.kinds for segment in row.context] == [[0, 1, 0], [1, 0, 0]]
    assert row.length == len(row.target) + 6 + sum(len(tokens) for _, tokens in row.questions)
    assert floor_tokens == (2 + 2) + 2 * 3 + 2 * (5 + 2)


def test_what_is_not_given_or_not_trained_with_leaves_the_row_as_it_was(texts):
    plain = rows(texts, group("red cat"), trained=())
    assert rows(texts, group("red cat")) == plain
    assert rows(texts, group("red cat", *GIVEN), trained=()) == plain
    assert rows(texts, group("red cat", ("input", "  "), ("reference", "\n"))) == plain
    [row], _ = rows(texts, group("red cat", *GIVEN), trained=("reference",))
    assert [segment.start for segment in row.context] == [CONTEXT_AT["reference"]]


def test_a_long_text_keeps_its_two_ends_and_takes_nothing_from_the_window(texts):
    target, long = "cat dog " * WINDOW, "red " * 100 + "blue " * 300 + "green " * 100
    plain, _ = rows(texts, group(target))
    found, _ = rows(texts, group(target, ("input", long), ("reference", long)))
    assert [(row.target, row.questions) for row in found] == [(row.target, row.questions) for row in plain]
    red, blue, green = texts.tokenizer.convert_tokens_to_ids(["red", "blue", "green"])
    for row in found:
        for segment in row.context:
            assert len(segment.tokens) == MAX_CONTEXT
            assert [segment.tokens.count(token) for token in (red, blue, green)] == [48, 0, 47]


@pytest.mark.parametrize("layout", [PACKED, MATCHED])
def test_no_position_is_used_twice_even_with_the_longest_question(texts, layout):
    long = " ".join(WORDS * 60)
    asked = group(long, ("input", long), ("reference", long), questions=("red " * 128,))
    found, _ = rows(texts, asked, layout=layout)
    assert len(found) > 2
    ends = [0, *CONTEXT_AT.values(), CONTEXT_POSITIONS]
    for row in found:
        lengths = [len(row.target), *(len(segment.tokens) for segment in row.context)]
        assert all(start + length <= end for start, length, end in zip(ends, lengths, ends[1:], strict=False))


def test_a_separator_in_a_reference_is_a_text_about_one(texts):
    [row], _ = rows(texts, group("red cat", ("reference", "red [SEP] [CLS] cat")))
    [segment] = row.context
    assert (
        segment.tokens.count(texts.tokenizer.sep_token_id) == 1 and segment.tokens[-1] == texts.tokenizer.sep_token_id
    )
    assert texts.tokenizer.cls_token_id not in segment.tokens


@pytest.mark.parametrize("length", [0, WINDOW - 2, WINDOW - 1, 700])
def test_packed_windows_cover_the_target_and_overlap_by_half(texts, length):
    words = random.Random(length).choices(WORDS, k=length)
    found, _ = rows(texts, group(" ".join(words)))
    first, *others = [row.target[1:-1] for row in found]
    covered = list(first)
    for part in others:
        assert part[:OVERLAP] == covered[-OVERLAP:]
        assert OVERLAP < len(part) <= WINDOW - 2
        covered += part[OVERLAP:]
    assert covered == texts.tokenizer.convert_tokens_to_ids(words)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "deberta-v2", "convbert"])
def test_answers_do_not_depend_on_the_lengths_of_other_texts(tmp_path, kind):
    base = tiny_bert(tmp_path, kind)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.2)
    model.save_pretrained(base)
    groups = [group("red blue cat " * count, questions=("does it mention dog ?",)) for count in (1, 2, 5, 9, 9)]
    engine = EncoderBackend(base)
    assert engine.pads == (kind != "convbert")  # its convolutions mix padding into the text
    together = torch.tensor([answer.logprobs for answer in engine.read(groups, LABELS)[0]])
    alone = torch.tensor([engine.read([one], LABELS)[0][0].logprobs for one in groups])
    assert (together - alone).abs().max() < 1e-5


@pytest.mark.parametrize("context", [(), (("reference", "blue cat"),)])
def test_matched_encoders_of_earlier_versions_answer_as_before(tmp_path, context):
    """Question and target are in one row, the tokens of both are marked, and the head reads the mean of all tokens."""
    base = tiny_bert(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    model.config.update({LAYOUT: MATCHED, CONTEXT: ["reference"]})
    model.save_pretrained(base)
    engine = EncoderBackend(base)
    [answer], _ = engine.read([group("red cat", *context, questions=("does it mention red ?",))], LABELS)
    words = "[CLS] does it mention red ? [SEP] red cat [SEP]".split() + ["blue", "cat", "[SEP]"] * len(context)
    at = [*range(10), *range(CONTEXT_AT["reference"], CONTEXT_AT["reference"] + 3 * len(context))]
    marked = [int(place in (4, 7, 11)) for place in range(len(words))]
    bert, ids = engine.model.bert, engine.texts.tokenizer.convert_tokens_to_ids(words)
    with torch.no_grad():
        row = {"input_ids": ids, "token_type_ids": marked, "position_ids": at}
        hidden = bert(**{name: torch.tensor([values]) for name, values in row.items()}).last_hidden_state
        yes = engine.model.classifier(bert.pooler(hidden.mean(dim=1, keepdim=True)))
    assert answer.logprobs[0] == pytest.approx(float(logsigmoid(yes)), abs=1e-5)
