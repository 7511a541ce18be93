"""The conformance probe: it passes who knows the twelve answers and refuses, with the reason, who does not."""

import pytest
from pocket.world import parse_question

from checklist_rewards.backends import Answer, Engine, Reply
from checklist_rewards.backends.tokens import ChatTokenizer
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.judges.probe import CONTENT_ITEMS, PROBE_ITEMS, probe
from tests.fakes import FakeBackend


def truth(prefix: str, tail: str) -> float:
    items = PROBE_ITEMS + CONTENT_ITEMS
    [item] = [item for item in items if item.question in tail and f"\n{item.target}\n" in prefix]
    return 0.9 if item.holds else 0.1


@pytest.mark.parametrize("items", [PROBE_ITEMS, CONTENT_ITEMS])
def test_the_items_are_balanced_and_those_about_form_true_by_code(items):
    assert len(items) == 12 and len({item.target for item in items}) == 6
    for key in ("target", "question"):
        for value in {getattr(item, key) for item in items}:
            assert sorted(item.holds for item in items if getattr(item, key) == value) == [False, True]
    assert items is CONTENT_ITEMS or all(parse_question(i.question).holds(i.target) is i.holds for i in items)


class Speaks(FakeBackend):
    """Gives one reply to everything, or breaks with an error."""

    said: Reply | Exception = BackendError("no generation here")

    def generate(self, prompts, sampling, arrived=None):
        if isinstance(self.said, Exception):
            raise self.said
        return [[self.said] for _ in prompts]


def test_a_judge_that_knows_passes():
    backend = FakeBackend(truth, mass=0.95, replies=["Yes."])
    report = probe(Engine("fake", backend))
    assert report.refusal is None
    assert report.accuracy == 1.0 and report.margin == pytest.approx(0.8) and report.mass == pytest.approx(0.95)
    assert (report.yes_mean, report.no_mean) == (pytest.approx(0.9), pytest.approx(0.1)) and report.label_first == 12
    assert report.labels is None and report.tail is None and report.thinking is None  # this backend has no tokenizer
    probe(Engine("fake", backend))
    assert len(backend.asked) == 24  # the engine is asked and never the store


@pytest.mark.parametrize(("model", "items"), [("english", CONTENT_ITEMS), ("smollm2", PROBE_ITEMS)])
def test_a_judge_of_content_is_asked_about_content(model, items):
    report = probe(Engine(model, FakeBackend(truth, replies=["yes"])))
    assert report.refusal is None and tuple(line.item for line in report.lines) == items


def judged(rule=truth, replies=("yes",), mass=1.0):
    """What the probe of an engine reports."""
    return probe(Engine("fake", FakeBackend(rule, mass=mass, replies=replies)))


@pytest.mark.parametrize(("share", "refused"), [(0, True), (-1, True), (0.3, True), (0.5, False)])
def test_a_judge_that_cannot_separate_by_the_margin_is_refused(share, refused):
    report = judged(lambda prefix, tail: 0.5 + share * (truth(prefix, tail) - 0.5))
    assert report.margin == pytest.approx(0.8 * share)
    assert bool(report.refusal and "at least 0.30" in report.refusal) == refused


def test_a_judge_that_says_something_else_is_refused_with_its_mass_and_what_it_says():
    report = judged(mass=0.03, replies=["The answer is yes."])
    assert report.answered == 0 and report.accuracy == 0.0 and report.margin is None
    assert "off_label" in report.refusal and "3.0%" in report.refusal and "'The answer is yes.'" in report.refusal
    assert {line.label_at for line in report.lines} == {4} and report.label_first == 0
    thinks = judged(mass=0.01, replies=["<think>\nDoes it mention"])
    assert thinks.thinking == "open" and "thinking off" in thinks.refusal


@pytest.mark.parametrize(("finish", "thought"), [("stop", "Yes."), ("length", "Okay, the question is whether")])
def test_a_reasoning_parser_that_takes_the_replies_is_named(finish, thought):
    reads, unsure = Speaks(truth), Speaks(truth, mass=0.01)
    only_reads = probe(Engine("fake", reads))
    assert only_reads.refusal is only_reads.lines[0].opening is only_reads.advice is None
    reads.said = unsure.said = Reply(None, finish, thought=thought)
    report = probe(Engine("fake", reads))
    assert report.refusal is None and (report.taken, report.label_first) == (12, 0)
    assert "12 of 12 replies" in report.advice and "--reasoning-parser" in report.advice
    assert report.advice in probe(Engine("fake", unsure)).refusal


def test_an_encoder_is_asked_the_questions_and_writes_nothing():
    class Encoder(Speaks):
        name, writes = "encoder", False
        said = AssertionError("an encoder was asked to write")

    backend = Encoder(lambda target, question: 0.9 if (target, question) in holds else 0.1)
    holds = {(item.target, item.question) for item in PROBE_ITEMS if item.holds}
    report = probe(Engine("fake", backend))
    assert report.encoder and report.refusal is None and report.accuracy == 1.0
    assert set(backend.asked) == {(item.target, item.question) for item in PROBE_ITEMS}  # without a prompt
    assert {line.opening for line in report.lines} == {None} and report.tail is None and report.thinking is None
    told = probe(Engine("fake", Encoder(lambda target, question: 0.5))).refusal
    assert told.endswith("only what it was trained on: compare it with labels of such questions by `agree`.")
    with pytest.raises(SampleError, match="mass_floor=0.1 has no effect with the cross-encoder fake"):
        probe(Engine("fake", backend), mass_floor=0.1)


def test_labels_tail_and_thinking_are_read_off_the_tokenizer(pocket):
    local = FakeBackend(truth, replies=["yes"])
    local.tokens = pocket.tokens
    report = probe(Engine("fake", local))
    assert {form.strip().casefold() for form in report.labels["yes"]} == {"yes"}
    assert report.tail.startswith(PROBE_ITEMS[0].question) and report.thinking == "none"
    tokenizer = pocket.tokens.tokenizer
    local.tokens = ChatTokenizer(type(tokenizer).from_pretrained(tokenizer.name_or_path))
    local.tokens.tokenizer.chat_template = "{{ messages[-1]['content'] }}\nassistant: <think>\n"
    report = probe(Engine("fake", local))
    assert report.thinking == "closed" and report.tail.rstrip().endswith("</think>")


@pytest.mark.parametrize(("right", "refused"), [(9, False), (6, True)])
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

    report = probe(Engine("fake", Words(truth, replies=["yes"])))
    assert (report.accuracy, report.words, report.answered) == (right / 12, 12, 12)
    assert report.margin == pytest.approx(2 * right / 12 - 1, abs=0.01) and (report.refusal is not None) == refused
