"""The judge that thinks: thoughts, reads after them, what is stored and counted, what is refused."""

import math
import re
from dataclasses import replace

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer, Option
from checklist_rewards.backends import Answer, Reply, Usage
from checklist_rewards.backends.budget import Budget
from checklist_rewards.errors import BackendError, ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, FewShot, Labelled, LogprobJudge, ThinkingJudge
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.settings import JudgeConfig, load_jury
from checklist_rewards.scores import score_checklist
from tests.judges.fakes import Script

SHORT, POLITE = ChecklistItem(question="Is it short?"), ChecklistItem(question="Is it polite?")
TWO = [Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")]


class Thinks(Script):
    """Writes thoughts from a script, and reads P(yes) as a number that the thought names (0.5 if it names none)."""

    continues = True
    chunk_reads = 64

    def __init__(self, script, identity="fake"):
        super().__init__(script, identity)
        self.groups = []

    def read(self, groups, labels):
        self.groups += groups
        self.labels = tuple(labels)
        return [self._of(written) for group in groups for written in group.written], Usage(7)

    def _of(self, written):
        words = [word for word in written.thought.split() if word.startswith("0.")]
        p = float(words[0]) if words else 0.5
        rest = (1 - p) / (len(self.labels) - 1)
        return Answer((math.log(p), *[math.log(rest)] * (len(self.labels) - 1)))


def thought_about(questions):
    return lambda messages: next(
        thought for question, thought in questions.items() if question in messages[-1]["content"]
    )


def test_a_thought_is_written_and_the_label_is_read_after_it():
    engine = Thinks(thought_about({"Is it short?": "Two letters: 0.9", "Is it polite?": "It greets: 0.2"}))
    judge = ThinkingJudge(backend=engine, thinking=32)
    short, polite = judge.answer(TWO)[0]
    assert short.probabilities == {"yes": pytest.approx(0.9), "no": pytest.approx(0.1)}
    assert (short.reasoning, short.method, short.mass) == ("Two letters: 0.9", "thought", pytest.approx(1))
    assert (polite.probabilities["yes"], polite.votes) == (pytest.approx(0.2), ())
    assert engine.samplings[0].max_tokens == 32 and engine.samplings[0].temperature == 0
    [group] = engine.groups  # both reads share the target, each has its own thought
    assert [written.thought for written in group.written] == ["Two letters: 0.9", "It greets: 0.2"]
    assert [messages[-1]["content"] for messages in engine.prompts] == [group.prefix + tail for tail in group.tails]
    assert all("Do not answer yet." in tail for tail in group.tails)


def test_the_receipt_counts_the_tokens_of_thoughts_and_of_labels():
    judge = ThinkingJudge(backend=Thinks(lambda messages: "0.9"), thinking=32)
    _, spent = judge.answer([*TWO, TWO[0]])
    assert (spent.reads, spent.deduplicated, spent.stored, spent.asked, spent.unanswered) == (3, 1, 0, 2, 0)
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (2 + 2, 2 * 100 + 7, 2 * 10 + 2)


def test_a_rerun_asks_nothing_and_a_changed_item_asks_for_itself(tmp_path):
    store = Store(tmp_path / "s")
    before = ThinkingJudge(backend=Thinks(lambda messages: "0.9"), store=store).answer(TWO)[0]
    silent = Thinks([])
    judge = ThinkingJudge(backend=silent, store=store)
    verdicts, spent = judge.answer(TWO)
    assert verdicts == before and silent.prompts == silent.groups == []
    assert (spent.stored, spent.asked, spent.calls) == (2, 0, 0)
    again = Thinks(lambda messages: "0.1")
    kind = ThinkingJudge(backend=again, store=store).answer([*TWO, Ask(ChecklistItem(question="Is it kind?"), "Hi.")])[
        0
    ]
    assert kind[:2] == before and len(again.prompts) == 1


def test_thoughts_that_are_stored_without_their_reads_are_not_written_again(tmp_path):
    class Dies(Thinks):
        def read(self, groups, labels):
            raise KeyboardInterrupt

    store = Store(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        ThinkingJudge(backend=Dies(lambda messages: "0.9"), store=store).answer(TWO)
    engine = Thinks([])
    judge = ThinkingJudge(backend=engine, store=store)
    verdicts, spent = judge.answer(TWO)
    assert [verdict.probabilities["yes"] for verdict in verdicts] == [pytest.approx(0.9)] * 2
    assert engine.prompts == [] and (spent.stored, spent.asked) == (0, 2)


def test_other_settings_are_other_thoughts(tmp_path):
    store = Store(tmp_path / "s")
    for settings in (
        {"thinking": 8},
        {"thinking": 16},
        {"thinking": 8, "per": "target"},
        {"thinking": 8, "votes": 2},
    ):
        engine = Thinks(lambda messages: "0.9")
        ThinkingJudge(backend=engine, store=store, **settings).answer(TWO[:1])
        assert len(engine.prompts) == 1


def test_one_thought_per_target_sees_all_its_items_and_each_is_put_again():
    engine = Thinks(lambda messages: "0.7" if "Hi." in messages[-1]["content"] else "0.3")
    judge = ThinkingJudge(backend=engine, per="target")
    reads = [*TWO, replace(TWO[0], target="Ho.", sample=1), replace(TWO[1], target="Ho.", sample=1)]
    verdicts, spent = judge.answer(reads)
    assert [v.probabilities["yes"] for v in verdicts] == [pytest.approx(p) for p in (0.7, 0.7, 0.3, 0.3)]
    assert len(engine.prompts) == 2
    assert all("1. Is it short?\n\n2. Is it polite?" in messages[-1]["content"] for messages in engine.prompts)
    assert [[w.question for w in group.written] for group in engine.groups] == [["Is it short?", "Is it polite?"]] * 2
    assert (spent.asked, spent.calls) == (4, 2 + 4)
    assert [len(set(group.tails)) for group in engine.groups] == [1, 1]


def test_the_letters_of_each_item_are_its_own_after_one_thought():
    """Items with equally many options share a thought and its letters, which stand for other labels in each."""

    class Polite(Thinks):
        def _of(self, written):
            shown = dict(re.findall(r"^([A-Z])\. (.+)$", written.question, re.MULTILINE))
            return Answer(tuple(math.log(0.9 if shown[label] == "polite" else 0.05) for label in self.labels))

    options = tuple(
        Option(label=label, value=value) for label, value in (("rude", 0), ("neutral", 0.5), ("polite", 1))
    )
    judge = ThinkingJudge(backend=Polite(lambda messages: "Well."), per="target")
    items = [ChecklistItem(question=f"How polite is line {number}?", options=options) for number in range(8)]
    verdicts = judge.answer([Ask(item, "Hi.") for item in items])[0]
    assert all(max(v.probabilities, key=v.probabilities.__getitem__) == "polite" for v in verdicts)


def test_one_thought_per_target_has_no_question_about_another_target():
    """Also if the caller does not number its samples."""
    engine = Thinks(lambda messages: "0.7")
    ThinkingJudge(backend=engine, per="target").answer([TWO[0], replace(TWO[1], target="Ho.")])
    asked = [messages[-1]["content"] for messages in engine.prompts]
    assert [("Is it short?" in text, "Is it polite?" in text) for text in asked] == [(True, False), (False, True)]


def test_the_spread_is_that_of_the_answers_in_the_mean():
    class OffLabel(Thinks):
        def _of(self, written):
            return Answer((-9.0, -9.0)) if "aside" in written.thought else super()._of(written)

    judge = ThinkingJudge(backend=OffLabel(lambda messages: ["0.9", "aside", "0.7"]), votes=3)
    [item] = ChecklistScorer(judge=judge).score([SHORT.question], target="Hi.").items
    assert item.probabilities["yes"] == pytest.approx(0.8) and item.spread == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"per": "word"}, "per='word'"), ({"thinking": 0}, "thinking"), ({"votes": 0}, "votes")]
    + [({"votes": 2, "temperature": 0.0}, "temperature above 0")],
)
def test_a_judge_checks_its_settings(settings, message):
    with pytest.raises(SampleError, match=message):
        ThinkingJudge(backend=Thinks(["0.9"]), **settings)


def test_a_calibration_of_plain_reads_is_refused():
    map = {"method": "temperature", "temperature": 2, "reads": 9}
    plain = Calibration(judge="pocket", read_by="logprobs", maps={"yes/no": map})
    with pytest.raises(SampleError, match="fitted on answers read by logprobs, and these are read by thought"):
        JudgeConfig(thinking=8, calibration=plain).build(store=False)


def test_several_thoughts_are_averaged_and_each_is_kept():
    engine = Thinks(lambda messages: ["sure 0.9", "less so 0.5", "no 0.1"])
    judge = ThinkingJudge(backend=engine, votes=3)
    [verdict] = judge.answer(TWO[:1])[0]
    assert verdict.probabilities["yes"] == pytest.approx(0.5)
    assert [vote.probabilities["yes"] for vote in verdict.votes] == pytest.approx([0.9, 0.5, 0.1])
    assert [vote.reasoning for vote in verdict.votes] == ["sure 0.9", "less so 0.5", "no 0.1"]
    assert verdict.method == "thought" and engine.samplings[0].temperature == 0.7 and engine.samplings[0].n == 3
    score = ChecklistScorer(judge=judge).score([SHORT.question], target="Hi.")
    [item] = score.items
    assert (item.answer, item.spread) == ("no", pytest.approx(math.sqrt(0.32 / 3)))  # the threshold applies
    assert ChecklistScorer(judge=judge, threshold=0.4).score([SHORT.question], target="Hi.").items[0].answer == "yes"
    again = type(score).model_validate_json(score.model_dump_json())
    assert again.items[0].spread == pytest.approx(item.spread)


def test_several_thoughts_per_target_are_a_group_each():
    engine = Thinks(lambda messages: ["one 0.9", "two 0.7"])
    verdicts = ThinkingJudge(backend=engine, votes=2, per="target").answer(TWO)[0]
    assert [v.probabilities["yes"] for v in verdicts] == [pytest.approx(0.8)] * 2
    assert [len(group.written) for group in engine.groups] == [2, 2]
    assert all(len({written.thought for written in group.written}) == 1 for group in engine.groups)


LOST = Reply(None, unanswered="timeout")


def test_a_thought_that_is_missing_makes_the_read_unanswered_with_the_reason(tmp_path):
    store = Store(tmp_path / "s")
    engine = Thinks([LOST, "0.9"])
    judge = ThinkingJudge(backend=engine, store=store)
    (lost, answered), spent = judge.answer(TWO)
    assert (lost.unanswered, lost.probabilities) == ("timeout", None)
    assert answered.unanswered is None and spent.unanswered == 1
    assert len(engine.groups) == 1
    healed = Thinks(["0.9"])
    assert all(v.unanswered is None for v in ThinkingJudge(backend=healed, store=store).answer(TWO)[0])
    broken = Thinks([BackendError("the engine broke")])
    [verdict] = ThinkingJudge(backend=broken).answer(TWO[:1])[0]
    assert verdict.unanswered == "backend_error: the engine broke"


def test_a_missing_thought_has_no_part_in_the_mean():
    [verdict] = ThinkingJudge(backend=Thinks([["0.9", LOST, "0.7"]]), votes=3).answer(TWO[:1])[0]
    assert verdict.probabilities["yes"] == pytest.approx(0.8)
    assert [vote.unanswered for vote in verdict.votes] == [None, "timeout", None]
    [verdict] = ThinkingJudge(backend=Thinks([["0.9", LOST, LOST]]), votes=3).answer(TWO[:1])[0]
    assert (verdict.unanswered, verdict.probabilities) == ("quorum: timeout: 1 of 3 thoughts answered", None)
    [verdict] = ThinkingJudge(backend=Thinks([[LOST] * 2]), votes=2).answer(TWO[:1])[0]
    assert (verdict.unanswered, verdict.probabilities) == ("timeout", None)


@pytest.mark.parametrize(
    ("reply", "thought", "shown"),
    [
        (Reply("Two letters.", "stop"), "Two letters.", "Two letters."),
        (Reply("Two let", "length"), "Two let", "Two let [cut off at 9 tokens]"),
        (Reply("<think>\nTwo.\n</think>\n\nyes", "stop"), "Two.", "Two."),
        (Reply("<think>Two.</think>yes, bec", "length"), "Two.", "Two."),  # the thought itself is complete
        (Reply("<think>\nTwo let", "length"), "Two let", "Two let [cut off at 9 tokens]"),
        (Reply("It says </think>\n\nyes", "stop"), "It says </think>\n\nyes", "It says </think>\n\nyes"),
        (Reply("yes", "stop", thought="Two."), "Two.", "Two."),
        (Reply(None, "length", "cut_off", thought="Two let"), "Two let", "Two let [cut off at 9 tokens]"),
        (Reply("", "stop"), "", ""),
    ],
)
def test_what_the_thought_of_a_reply_is(tmp_path, reply, thought, shown):
    store = Store(tmp_path / "s")
    for engine in (Thinks([reply]), Thinks([])):  # written, and from the store
        judge = ThinkingJudge(backend=engine, thinking=9, store=store)
        [verdict] = judge.answer(TWO[:1])[0]
        assert verdict.reasoning == shown and verdict.unanswered is None
        assert [written.thought for group in engine.groups for written in group.written] == [thought][
            : len(engine.groups)
        ]


def test_options_and_examples_are_put_as_in_a_read_without_thoughts():
    colour = ChecklistItem(
        question="Which colour?", options=(Option(label="red", value=1.0), Option(label="dark blue", value=0.5))
    )
    engine = Thinks(lambda messages: "0.75")
    [verdict] = ThinkingJudge(backend=engine).answer([Ask(colour, "Red.")])[0]
    assert list(verdict.probabilities) == ["red", "dark blue"] and sorted(verdict.probabilities.values()) == [
        pytest.approx(0.25),
        pytest.approx(0.75),
    ]
    assert engine.labels == ("A", "B")
    shots = FewShot([Labelled("Hello!", SHORT.question, "yes", reason="One word.")], reasons=True)
    for per, count in (("item", 1), ("target", 1)):
        engine = Thinks(lambda messages: "0.75")
        ThinkingJudge(backend=engine, examples=shots, per=per).answer(TWO[:1])
        [group] = engine.groups
        assert group.tails[0].count("Hello!") == count and "Hello!" not in group.written[0].question
        assert group.tails[0].index("One word.") < group.tails[0].index("Answer: yes")  # as the judge answers


def test_an_off_label_answer_after_a_thought_is_unanswered():
    class Off(Thinks):
        def _of(self, written):
            return Answer((math.log(0.1), math.log(0.05)))

    [verdict] = ThinkingJudge(backend=Off(lambda messages: "Hm.")).answer(TWO[:1])[0]
    assert (verdict.unanswered, verdict.mass, verdict.reasoning) == ("off_label", pytest.approx(0.15), "Hm.")


def test_an_engine_that_cannot_continue_a_reply_is_refused_before_any_thought():
    engine = Script(lambda messages: "0.9")
    with pytest.raises(ModelError, match="requires an engine that can continue a reply exactly"):
        ThinkingJudge(backend=engine).answer(TWO)
    assert engine.prompts == []


def test_a_budget_limits_thoughts_and_reads():
    def judge(dollars):
        settings = JudgeConfig(model=replace(ThinkingJudge(backend=engine).engine, model="m"), thinking=8)
        return settings.build(store=False, budget=Budget(dollars, {"m": (1.0, 1.0)}))

    engine = Thinks(lambda messages: "0.9")
    assert [verdict.unanswered for verdict in judge(1.0).answer(TWO)[0]] == [None, None]
    assert {v.unanswered.reason for v in judge(0.0).answer(TWO)[0]} == {"budget"}


def test_a_repeat_writes_other_thoughts_only_if_they_are_sampled():
    sampled = ThinkingJudge(backend=Thinks(lambda messages: ["0.9", "0.8"]), votes=2)
    assert ChecklistScorer(judge=sampled).repeated(1).judge.sampling.seed != sampled.sampling.seed


def test_progress_counts_reads():
    for per in ("item", "target"):
        seen = []
        ThinkingJudge(backend=Thinks(lambda messages: "0.9"), per=per).answer([*TWO, TWO[0]], seen.append)
        assert sum(seen) == 3 and min(seen) > 0


def test_settings_make_the_judge_and_change_nothing_without_thinking(tmp_path):
    judge = JudgeConfig(thinking=64, thinking_per="target", votes=4).build(store=False)
    assert isinstance(judge, ThinkingJudge) and judge.per == "target"
    assert (judge.sampling.max_tokens, judge.sampling.n, judge.sampling.temperature) == (64, 4, 0.7)
    assert JudgeConfig(thinking=8, temperature=0.3).build(store=False).sampling.temperature == 0.3
    assert type(JudgeConfig().build(store=False)) is LogprobJudge
    custom = tmp_path / "judge.md"
    custom.write_text("{target}\n{question}\nYes or no?")
    engine = Thinks(lambda messages: "0.9")
    ThinkingJudge(backend=engine, prompt=custom).answer(TWO[:1])
    assert "Yes or no?\n\nDo not answer yet." in engine.prompts[0][-1]["content"]


def test_a_file_of_judges_takes_thinking(tmp_path):
    file = tmp_path / "judges.yaml"
    file.write_text(
        "panel: {rule: mean}\njudges:\n  - pocket\n  - {model: pocket, thinking: 8, thinking_per: target}\n"
    )
    plain, thinks = load_jury(file).judges
    assert type(plain) is LogprobJudge and isinstance(thinks, ThinkingJudge) and thinks.sampling.max_tokens == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "batch"}, "thinking=8 contradicts mode='batch': it needs mode='item'"),
        ({"mode": "quality"}, "thinking=8 contradicts mode='quality'"),
        ({"use_logprobs": False}, "thinking=8 contradicts use_logprobs=False: the label after the thought is read"),
        ({"capture_reasoning": True}, "thinking=8 contradicts capture_reasoning=True: the thought is the reasoning"),
        ({"max_tokens": 9}, "thinking=8 contradicts max_tokens=9"),
        ({"votes": 2, "temperature": 0.0}, "votes=2 needs a temperature above 0"),
        ({"backend": "decisions", "base_url": "http://x"}, "thinking=8 has no effect with backend='decisions'"),
        ({"backend": "encoder", "model": "m"}, "thinking=8 has no effect with the cross-encoder"),
        ({"backend": "remote", "base_url": "http://x"}, "thinking=8 has no effect with a reward server"),
        ({"thinking": 0}, "thinking=0 is not allowed"),
        ({"thinking": None, "thinking_per": "target"}, "thinking_per='target' requires thinking=<tokens>"),
        ({"thinking_per": "word"}, "thinking_per='word' is not known; allowed: 'item', 'target'"),
    ],
)
def test_settings_that_contradict_thinking_are_refused(settings, message):
    with pytest.raises(SampleError, match=message):
        JudgeConfig(**({"thinking": 8} | settings)).build(store=False)


def test_the_pocket_model_thinks_and_answers(pocket, scorer):
    questions = ["Does the response contain a digit?", 'Does the response mention the word "lamo"?']
    bare = scorer.score(questions, target="the 3 lamo is old.")
    for per in ("item", "target"):
        thinks = ChecklistScorer("pocket", backend="transformers", store=False, thinking=8, thinking_per=per)
        score = thinks.score(questions, target="the 3 lamo is old.")
        assert score.answered == 2 and all(item.mass > 0.5 and item.reasoning is not None for item in score.items)
        assert score_checklist(score_list(questions), [i.verdict() for i in score.items], thinks.aggregation) == score
        assert [i.confidence for i in score.items] != [i.confidence for i in bare.items]
        spent = thinks.receipt
        assert spent.computed_tokens == spent.floor_tokens > 0 and spent.completion_tokens > 2


def score_list(questions):
    from checklist_rewards import Checklist

    return Checklist.parse(questions)
