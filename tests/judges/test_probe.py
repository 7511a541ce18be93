"""The conformance probe: it passes who knows the twelve answers and refuses, with the reason, who does not."""

import re

import pytest
from pocket.world import parse_question

from checklist_rewards.backends import Answer, Reply
from checklist_rewards.backends.tokens import ChatTokenizer
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.judges.probe import CONTENT_ITEMS, PROBE_ITEMS, probe
from conformance.__main__ import load_cases
from conformance.adapters import word
from conformance.server import Judge, serving
from tests.fakes import FakeBackend


def truth(prefix: str, tail: str) -> float:
    items = PROBE_ITEMS + CONTENT_ITEMS
    [item] = [item for item in items if item.question in tail and f"\n{item.target}\n" in prefix]
    return 0.9 if item.holds else 0.1


@pytest.mark.parametrize("items", [PROBE_ITEMS, CONTENT_ITEMS])
def test_the_items_are_balanced(items):
    assert len(items) == 12 and len({item.target for item in items}) == 6
    for key in ("target", "question"):
        for value in {getattr(item, key) for item in items}:
            assert sorted(item.holds for item in items if getattr(item, key) == value) == [False, True]


def test_the_items_about_form_are_true_by_code():
    for item in PROBE_ITEMS:
        constraint = parse_question(item.question)
        assert constraint is not None and constraint.question() == item.question
        assert constraint.holds(item.target) is item.holds


def judged(rule=truth, replies=("yes",), mass=1.0, **settings):
    """What the probe of an engine reports."""
    return probe("fake", backend=FakeBackend(rule, mass=mass, replies=replies), **settings)


class Speaks(FakeBackend):
    """Gives one reply to everything, or breaks with an error."""

    def __init__(self, said, rule=truth, **settings):
        super().__init__(rule, **settings)
        self.said = said

    def generate(self, prompts, sampling, arrived=None):
        if isinstance(self.said, Exception):
            raise self.said
        return [[self.said] for _ in prompts]


def test_a_judge_that_knows_passes():
    backend = FakeBackend(truth, mass=0.95, replies=["Yes."])
    report = probe("fake", backend=backend)
    assert report.refusal is None
    assert report.accuracy == 1.0 and report.margin == pytest.approx(0.8) and report.mass == pytest.approx(0.95)
    assert (report.yes_mean, report.no_mean) == (pytest.approx(0.9), pytest.approx(0.1)) and report.label_first == 12
    assert report.labels is None and report.tail is None and report.thinking is None  # this backend has no tokenizer
    probe("fake", backend=backend)
    assert len(backend.asked) == 24  # the engine is asked and never the store


@pytest.mark.parametrize(("model", "items"), [("english", CONTENT_ITEMS), ("smollm2", PROBE_ITEMS)])
def test_a_judge_of_content_is_asked_about_content(model, items):
    report = probe(model, backend=FakeBackend(truth, replies=["yes"]))
    assert report.refusal is None and tuple(line.item for line in report.lines) == items


@pytest.mark.parametrize("answer", [lambda p, t: 0.99, lambda p, t: 0.01, lambda p, t: 1 - truth(p, t)])
def test_a_judge_that_cannot_separate_is_refused(answer):
    report = judged(answer)
    assert report.margin <= 0
    assert re.search("cannot tell yes from no: .* at least 0.30", report.refusal)


def test_the_margin_is_the_users_choice():
    def hardly(prefix, tail):
        return 0.55 + 0.1 * (truth(prefix, tail) > 0.5)

    assert judged(hardly).refusal is not None and judged(hardly, margin=0.05).refusal is None


def test_a_judge_that_says_something_else_is_refused_with_its_mass_and_what_it_says():
    report = judged(mass=0.03, replies=["The answer is yes."])
    assert report.answered == 0 and report.accuracy == 0.0 and report.margin is None
    assert "off_label" in report.refusal and "3.0%" in report.refusal and "'The answer is yes.'" in report.refusal
    assert {line.label_at for line in report.lines} == {4} and report.label_first == 0
    thinks = judged(mass=0.01, replies=["<think>\nDoes it mention"])
    assert thinks.thinking == "open" and "thinking off" in thinks.refusal


@pytest.mark.parametrize(("finish", "thought"), [("stop", "Yes."), ("length", "Okay, the question is whether")])
def test_a_reasoning_parser_that_takes_the_replies_is_named(finish, thought):
    reply = Reply(None, finish, thought=thought)
    report = probe("fake", backend=Speaks(reply))
    assert report.refusal is None and (report.taken, report.label_first) == (12, 0)
    assert "12 of 12 replies" in report.advice and "--reasoning-parser" in report.advice
    assert report.advice in probe("fake", backend=Speaks(reply, mass=0.01)).refusal
    assert judged(replies=["Yes."]).advice is None


def test_a_served_judge_behind_a_reasoning_parser_is_found():
    cases, checklists = load_cases()
    with serving(Judge(cases, checklists, "word", word)) as port:
        url = f"http://127.0.0.1:{port}/v1"
        report = probe("answer_taken_for_thought", backend="openai", base_url=url)
        sound = probe("reasoning_parsed", backend="openai", base_url=url)
    assert report.taken == 12 and "--reasoning-parser" in report.refusal  # this judge says yes to everything
    assert sound.taken == 0 and sound.advice is None


def test_a_judge_that_only_reads_is_a_judge():
    report = probe("fake", backend=Speaks(BackendError("no generation here")))
    assert report.refusal is None and report.lines[0].opening is None


def test_an_encoder_is_asked_the_questions_and_writes_nothing():
    class Encoder(Speaks):
        name, writes = "encoder", False

        def __init__(self, rule):
            super().__init__(AssertionError("an encoder was asked to write"), rule)

    backend = Encoder(lambda target, question: 0.9 if (target, question) in holds else 0.1)
    holds = {(item.target, item.question) for item in PROBE_ITEMS if item.holds}
    report = probe("fake", backend=backend)
    assert report.encoder and report.refusal is None and report.accuracy == 1.0
    assert set(backend.asked) == {(item.target, item.question) for item in PROBE_ITEMS}  # without a prompt
    assert {line.opening for line in report.lines} == {None} and report.tail is None and report.thinking is None
    told = probe("fake", backend=Encoder(lambda target, question: 0.5)).refusal
    assert told.endswith("only what it was trained on: compare it with labels of such questions by `agree`.")
    for settings, named in (
        ({"prompt": "judges/item"}, "prompt='judges/item'"),
        ({"mass_floor": 0.1}, "mass_floor=0.1"),
    ):
        with pytest.raises(SampleError, match=f"{named} has no effect with the cross-encoder fake"):
            probe("fake", backend=backend, **settings)


def test_labels_tail_and_thinking_are_read_off_the_tokenizer(pocket):
    local = FakeBackend(truth, replies=["yes"])
    local.tokens = pocket.tokens
    report = probe("fake", backend=local)
    assert {form.strip().casefold() for form in report.labels["yes"]} == {"yes"}
    assert report.tail.startswith(PROBE_ITEMS[0].question) and report.thinking == "none"
    tokenizer = pocket.tokens.tokenizer
    local.tokens = ChatTokenizer(type(tokenizer).from_pretrained(tokenizer.name_or_path))
    local.tokens.tokenizer.chat_template = "{{ messages[-1]['content'] }}\nassistant: <think>\n"
    report = probe("fake", backend=local)
    assert report.thinking == "closed" and report.tail.rstrip().endswith("</think>")


def test_the_pocket_judge_passes(pocket):
    report = probe("pocket", backend="transformers")
    assert report.refusal is None, report.refusal
    assert report.accuracy >= 10 / 12 and report.margin > 0.6 and report.mass > 0.9


@pytest.mark.parametrize(("right", "refused"), [(12, False), (9, False), (6, True), (0, True)])
def test_a_judge_that_answers_with_words_is_measured_by_them(right, refused):
    class Words(FakeBackend):
        """A server without log-probabilities, which is wrong about all items but the first `right` ones."""

        def read(self, groups, labels):
            _, usage = super().read(groups, labels)
            answers = [self._word(group.prefix, tail) for group in groups for tail in group.tails]
            return [Answer(label=answer) for answer in answers], usage

        def _word(self, prefix, tail):
            place = next(n for n, i in enumerate(PROBE_ITEMS) if i.question in tail and f"\n{i.target}\n" in prefix)
            return "yes" if PROBE_ITEMS[place].holds == (place < right) else "no"

    report = probe("fake", backend=Words(truth, replies=["yes"]))
    assert (report.accuracy, report.words, report.answered) == (right / 12, 12, 12)
    assert report.margin == pytest.approx(2 * right / 12 - 1, abs=0.01) and (report.refusal is not None) == refused
