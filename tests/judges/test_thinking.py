"""The judge that thinks: thoughts, reads after them, what is stored and counted, what is refused."""

import math
import re
from dataclasses import replace

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Answer, Reply, Usage
from checklist_rewards.backends.budget import Budget
from checklist_rewards.errors import BackendError, ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, FewShot, Labelled, LogprobJudge, ThinkingJudge
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.settings import JudgeConfig, load_jury
from tests.judges.fakes import POLITE, SHORT, Script, answers, options

TWO = [Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")]


class Thinks(Script):
    """Writes thoughts from a script, and reads P(yes) as a number that the thought names (0.5 if it names none).

    After a thought with the word "aside", no label is likely; with "word", the server gives no log-probabilities.
    """

    continues = True
    chunk_reads = 64

    def __init__(self, script):
        super().__init__(script)
        self.groups = []

    def read(self, groups, labels):
        self.groups += groups
        self.labels = tuple(labels)
        return [self._of(written) for group in groups for written in group.written], Usage(7)

    def _of(self, written):
        if "word" in written.thought:
            return Answer(label=self.labels[0])
        words = [word for word in written.thought.split() if word.startswith("0.")]
        p = float(words[0]) if words else 0.5
        mass = 0.15 if "aside" in written.thought else 1
        rest = (1 - p) / (len(self.labels) - 1)
        return Answer((math.log(mass * p), *[math.log(mass * rest)] * (len(self.labels) - 1)))


def always(*thoughts):
    return Thinks(lambda messages: thoughts[0] if len(thoughts) == 1 else list(thoughts))


def p_yes(verdicts):
    return [verdict.probabilities["yes"] for verdict in verdicts]


def test_a_thought_is_written_and_the_label_is_read_after_it():
    thoughts = {"Is it short?": "Two letters: 0.9", "Is it polite?": "It greets: 0.2"}
    engine = Thinks(lambda messages: next(t for q, t in thoughts.items() if q in messages[-1]["content"]))
    seen = []
    (short, polite, again), spent = ThinkingJudge(engine, thinking=32).answer([*TWO, TWO[0]], seen.append)
    assert sum(seen) == 3 and min(seen) > 0
    assert short.probabilities == {"yes": pytest.approx(0.9), "no": pytest.approx(0.1)} and again == short
    assert (short.reasoning, short.method, short.mass) == ("Two letters: 0.9", "thought", pytest.approx(1))
    assert (polite.probabilities["yes"], polite.votes) == (pytest.approx(0.2), ())
    assert engine.samplings[0].max_tokens == 32 and engine.samplings[0].temperature == 0
    [group] = engine.groups  # both reads share the target, each has its own thought
    assert [written.thought for written in group.written] == list(thoughts.values())
    assert [messages[-1]["content"] for messages in engine.prompts] == [group.prefix + tail for tail in group.tails]
    assert all("Do not answer yet." in tail for tail in group.tails)
    # Tokens of thoughts, and of labels.
    assert (spent.reads, spent.deduplicated, spent.stored, spent.asked, spent.unanswered) == (3, 1, 0, 2, 0)
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (2 + 2, 2 * 100 + 7, 2 * 10 + 2)


def test_thoughts_and_reads_are_stored_and_only_what_is_missing_is_asked(tmp_path):
    class Dies(Thinks):
        def read(self, groups, labels):
            raise KeyboardInterrupt

    store = Store(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        ThinkingJudge(Dies(lambda messages: "0.9"), store=store).answer(TWO)
    silent = Thinks([])
    judge = ThinkingJudge(silent, store=store)
    before, spent = judge.answer(TWO)  # the thoughts were stored without their reads
    assert p_yes(before) == [pytest.approx(0.9)] * 2
    assert silent.prompts == [] and (spent.stored, spent.asked) == (0, 2)
    silent.groups.clear()
    verdicts, spent = judge.answer(TWO)
    assert verdicts == before and silent.prompts == silent.groups == []
    assert (spent.stored, spent.asked, spent.calls) == (2, 0, 0)
    fresh = always("0.1")
    kind = answers(ThinkingJudge(fresh, store=store), SHORT, POLITE, ChecklistItem(question="Is it kind?"))
    assert kind[:2] == before and len(fresh.prompts) == 1
    for settings in ({"thinking": 8}, {"per": "target"}, {"votes": 2}):
        other = always("0.9")
        answers(ThinkingJudge(other, store=store, **settings), SHORT)
        assert len(other.prompts) == 1, settings


@pytest.mark.parametrize("numbered", [True, False])
def test_one_thought_per_target_sees_all_its_items_and_each_is_put_again(numbered):
    engine = Thinks(lambda messages: "0.7" if "Hi." in messages[-1]["content"] else "0.3")
    reads = [*TWO, *(replace(ask, target="Ho.", sample=int(numbered)) for ask in TWO[::-1])]
    verdicts, spent = ThinkingJudge(engine, per="target").answer(reads)
    assert p_yes(verdicts) == [pytest.approx(p) for p in (0.7, 0.7, 0.3, 0.3)]
    of_hi, of_ho = (messages[-1]["content"] for messages in engine.prompts)
    assert "1. Is it short?\n\n2. Is it polite?" in of_hi and "1. Is it polite?\n\n2. Is it short?" in of_ho
    assert [{w.question for w in group.written} for group in engine.groups] == [{"Is it short?", "Is it polite?"}] * 2
    assert (spent.asked, spent.calls) == (4, 2 + 4)
    assert [len(set(group.tails)) for group in engine.groups] == [1, 1]


def test_the_letters_of_each_item_are_its_own_after_one_thought():
    """Items with equally many options share a thought and its letters, which stand for other labels in each."""

    class Polite(Thinks):
        def _of(self, written):
            shown = dict(re.findall(r"^([A-Z])\. (.+)$", written.question, re.MULTILINE))
            return Answer(tuple(math.log(0.9 if shown[label] == "polite" else 0.05) for label in self.labels))

    scale = options(rude=0, neutral=0.5, polite=1)
    items = [ChecklistItem(question=f"How polite is line {number}?", options=scale) for number in range(8)]
    verdicts = answers(ThinkingJudge(Polite(lambda messages: "Well."), per="target"), *items)
    assert all(max(v.probabilities, key=v.probabilities.__getitem__) == "polite" for v in verdicts)


def test_several_thoughts_are_averaged_and_each_is_kept():
    engine = always("sure 0.9", "less so 0.5", "no 0.1")
    judge = ThinkingJudge(engine, votes=3)
    score = ChecklistScorer(judge=judge).score([SHORT.question], target="Hi.")
    [item] = type(score).model_validate_json(score.model_dump_json()).items
    assert item.probabilities["yes"] == pytest.approx(0.5) and p_yes(item.votes) == pytest.approx([0.9, 0.5, 0.1])
    assert [vote.reasoning for vote in item.votes] == ["sure 0.9", "less so 0.5", "no 0.1"]
    assert item.method == "thought" and engine.samplings[0].temperature == 0.7 and engine.samplings[0].n == 3
    assert (item.answer, item.spread) == ("no", pytest.approx(math.sqrt(0.32 / 3)))  # the threshold applies

    engine = always("one 0.9", "two 0.7")
    assert p_yes(answers(ThinkingJudge(engine, votes=2, per="target"), SHORT, POLITE)) == pytest.approx([0.8] * 2)
    assert [{written.thought for written in group.written} for group in engine.groups] == [{"one 0.9"}, {"two 0.7"}]


def test_a_word_after_one_of_several_thoughts_counts_as_certain():
    for thoughts, mean in ((("word", "0.6"), 0.8), (("word", "word"), 1.0)):
        assert p_yes(answers(ThinkingJudge(always(*thoughts), votes=2), SHORT)) == [pytest.approx(mean)]


LOST = Reply(None, unanswered="timeout")


@pytest.mark.parametrize(
    ("thoughts", "outcome", "reasons"),
    [
        (["0.9", LOST, "0.7"], 0.8, [None, "timeout", None]),
        (["0.7", "aside", "0.9"], 0.8, [None, "off_label", None]),
        (["0.9", LOST, LOST], "quorum: timeout: 1 of 3 thoughts answered", [None, "timeout", "timeout"]),
        ([LOST, LOST], "timeout", ["timeout", "timeout"]),
        (["aside", LOST, LOST], "timeout", ["off_label", "timeout", "timeout"]),  # the most frequent reason
    ],
)
def test_what_is_missing_has_no_part_in_the_mean(thoughts, outcome, reasons):
    judge = ThinkingJudge(Thinks([thoughts]), votes=len(thoughts))
    [item] = ChecklistScorer(judge=judge).score([SHORT.question], target="Hi.").items
    assert [vote.unanswered for vote in item.votes] == reasons
    if isinstance(outcome, str):
        assert (item.unanswered, item.probabilities) == (outcome, None)
    else:
        assert item.probabilities["yes"] == pytest.approx(outcome) and item.spread == pytest.approx(0.1)
        assert item.reasoning == "0.9"  # the thought that is surest of the answer


def test_a_thought_that_is_missing_makes_the_read_unanswered_with_the_reason(tmp_path):
    store = Store(tmp_path / "s")
    engine = Thinks([LOST, "0.9"])
    lost, answered = answers(ThinkingJudge(engine, store=store), SHORT, POLITE)
    assert (lost.unanswered, lost.probabilities, answered.unanswered) == ("timeout", None, None)
    assert answers(ThinkingJudge(Thinks(["0.9"]), store=store), SHORT, POLITE)[0].unanswered is None
    [broken] = answers(ThinkingJudge(Thinks([BackendError("the engine broke")])), SHORT)
    assert broken.unanswered == "backend_error: the engine broke"
    [off] = answers(ThinkingJudge(always("aside")), SHORT)
    assert (off.unanswered, off.mass, off.reasoning) == ("off_label", pytest.approx(0.15), "aside")


@pytest.mark.parametrize(
    ("reply", "thought", "shown"),
    [
        (Reply("Two let", "length"), "Two let", "Two let [cut off at 9 tokens]"),
        (Reply("<think>\nTwo.\n</think>\n\nyes", "stop"), "Two.", "Two."),
        (Reply("<think>Two.</think>yes, bec", "length"), "Two.", "Two."),  # the thought itself is complete
        (Reply("It says </think>\n\nyes", "stop"), "It says </think>\n\nyes", "It says </think>\n\nyes"),
        (Reply("yes", "stop", thought="Two."), "Two.", "Two."),
        (Reply(None, "length", "cut_off", thought="Two let"), "Two let", "Two let [cut off at 9 tokens]"),
    ],
)
def test_what_the_thought_of_a_reply_is(tmp_path, reply, thought, shown):
    store, engine = Store(tmp_path / "s"), Thinks([reply])
    [written] = answers(ThinkingJudge(engine, thinking=9, store=store), SHORT)
    assert [written.thought for group in engine.groups for written in group.written] == [thought]
    assert written.reasoning == shown and written.unanswered is None
    assert answers(ThinkingJudge(Thinks([]), thinking=9, store=store), SHORT) == [written]


def test_options_and_examples_are_put_as_in_a_read_without_thoughts():
    colour = ChecklistItem(question="Which colour?", options=options(red=1.0, **{"dark blue": 0.5}))
    engine = always("0.75")
    [verdict] = ThinkingJudge(engine).answer([Ask(colour, "Red.")])[0]
    assert list(verdict.probabilities) == ["red", "dark blue"] and engine.labels == ("A", "B")
    assert sorted(verdict.probabilities.values()) == pytest.approx([0.25, 0.75])
    shots = FewShot([Labelled("Hello!", SHORT.question, "yes", reason="One word.")], reasons=True)
    for per in ("item", "target"):
        engine = always("0.75")
        answers(ThinkingJudge(engine, examples=shots, per=per), SHORT)
        [group] = engine.groups
        assert group.tails[0].count("Hello!") == 1 and "Hello!" not in group.written[0].question
        assert group.tails[0].index("One word.") < group.tails[0].index("Answer: yes")  # as the judge answers


def test_a_budget_limits_thoughts_and_reads():
    model = replace(ThinkingJudge(always("0.9")).engine, model="m")
    judge = JudgeConfig(model=model, thinking=8).build(store=False, budget=Budget(0.0, {"m": (1.0, 1.0)}))
    assert [verdict.unanswered.reason for verdict in judge.answer(TWO)[0]] == ["budget", "budget"]


def test_settings_and_files_make_the_judge_and_change_nothing_without_thinking(tmp_path):
    judge = JudgeConfig(thinking=64, thinking_per="target", votes=4).build(store=False)
    assert isinstance(judge, ThinkingJudge) and judge.per == "target"
    assert (judge.sampling.max_tokens, judge.sampling.n, judge.sampling.temperature) == (64, 4, 0.7)
    (tmp_path / "judges.yaml").write_text("panel:\njudges: [pocket, {model: pocket, thinking: 8, temperature: 0.3}]")
    plain, thinks = load_jury(tmp_path / "judges.yaml").judges
    assert type(plain) is LogprobJudge and isinstance(thinks, ThinkingJudge)
    assert (thinks.sampling.max_tokens, thinks.sampling.temperature) == (8, 0.3)
    (tmp_path / "judge.md").write_text("{target}\n{question}\nYes or no?")
    engine = always("0.9")
    answers(ThinkingJudge(engine, prompt=tmp_path / "judge.md"), SHORT)
    assert "Yes or no?\n\nDo not answer yet." in engine.prompts[0][-1]["content"]


HOT = {"method": "temperature", "temperature": 2, "reads": 9}
PLAIN_READS = Calibration(judge="pocket", read_by="logprobs", maps={"yes/no": HOT})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "batch"}, "thinking=8 contradicts mode='batch': it needs mode='item'"),
        ({"use_logprobs": False}, "thinking=8 contradicts use_logprobs=False: the label after the thought is read"),
        ({"capture_reasoning": True}, "thinking=8 contradicts capture_reasoning=True: the thought is the reasoning"),
        ({"max_tokens": 9}, "thinking=8 contradicts max_tokens=9"),
        ({"votes": 2, "temperature": 0.0}, "votes=2 needs a temperature above 0"),
        ({"backend": "decisions", "base_url": "http://x"}, "thinking=8 has no effect with backend='decisions'"),
        ({"backend": "remote", "base_url": "http://x"}, "thinking=8 has no effect with a reward server"),
        ({"thinking": None, "thinking_per": "target"}, "thinking_per='target' requires thinking=<tokens>"),
        ({"calibration": PLAIN_READS}, "fitted on answers read by logprobs, and these are read by thought"),
    ],
)
def test_settings_that_contradict_thinking_are_refused(settings, message):
    with pytest.raises(SampleError, match=message):
        JudgeConfig(**({"thinking": 8} | settings)).build(store=False)


def test_a_judge_checks_its_settings_and_that_its_engine_can_continue_a_reply():
    for settings in ({"per": "word"}, {"thinking": 0}, {"votes": 0}, {"temperature": 0.0, "votes": 2}):
        with pytest.raises(SampleError, match=next(iter(settings))):
            ThinkingJudge(Thinks([]), **settings)
    engine = Script(lambda messages: "0.9")
    with pytest.raises(ModelError, match="requires an engine that can continue a reply exactly"):
        ThinkingJudge(engine).answer(TWO)
    assert engine.prompts == []
