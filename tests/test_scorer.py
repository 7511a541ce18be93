"""The scorer: what it refuses before asking, and that samples come back in order whatever the engine did."""

import json
import pickle

import pytest
import typer

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.cli import app
from checklist_rewards.errors import ChecklistError, ModelError, PromptError, SampleError
from checklist_rewards.judges import BatchJudge, Judge, LogprobJudge, QualityJudge, ReasonedJudge, Receipt
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.pipelines import ScorerPart
from checklist_rewards.rewards.settings import RewardConfig
from checklist_rewards.scores import Verdict, rescore
from tests.fakes import FakeBackend
from tests.judges.fakes import Script
from tests.judges.voters import Voter


def knows(prefix: str, tail: str) -> float:
    """Yes if the word in the question stands in the prompt before it."""
    return 0.9 if tail.split()[1].rstrip("?") in prefix else 0.1


def scorer_on(backend=None, **options) -> ChecklistScorer:
    return ChecklistScorer(backend=backend or FakeBackend(knows), store=False, **options)


def test_reads_that_failed_for_a_transient_reason_are_repeated_on_request():
    answers = {"Is it short?": ["timeout", "timeout", "yes"], "Is it kind?": ["too_long"], "Is it red?": ["yes"]}
    asked = []

    class Flaky(Judge):
        name = "flaky"

        def answer(self, asks, progress=None):
            asked.append([read.item.question for read in asks])
            said = [answers[question].pop(0) for question in asked[-1]]
            verdicts = [Verdict(answer=word) if word == "yes" else Verdict(unanswered=word) for word in said]
            return verdicts, Receipt()

    scorer = ChecklistScorer(judge=Flaky())
    [score] = scorer.score_batch([Sample(list(answers), "text")], retries=5)
    assert asked == [list(answers), ["Is it short?"], ["Is it short?"]]
    assert [line.unanswered for line in score.items] == [None, "too_long", None]


def test_a_judge_that_returns_another_number_of_verdicts_is_an_error_and_shifts_no_scores():
    class Twice(Voter):
        def answer(self, asks, progress=None):
            verdicts, receipt = super().answer(asks, progress)
            return [verdict for verdict in verdicts for _ in range(2)], receipt

    with pytest.raises(ValueError, match="judge returned 4 verdicts for 2 reads"):
        ChecklistScorer(judge=Twice(lambda read: Verdict(answer="yes"))).score(["Is it?", "Was it?"], "text")


def test_a_judge_is_validated_before_the_first_read_and_then_no_more():
    class Validated(Voter):
        found = 0

        def validate(self):
            self.found += 1
            if self.found == 1:
                raise ModelError("not yet.")

    judge = Validated(lambda read: Verdict(answer="yes"))
    scorer = ChecklistScorer(judge=judge)
    with pytest.raises(ModelError, match="not yet"):
        scorer.score(["Is it?"], "text")
    assert [scorer.score(["Is it?"], text).pass_rate for text in ("one", "two")] == [1, 1] and judge.found == 2


def test_scores_come_back_in_order_and_neither_order_nor_batch_size_changes_one():
    words = ("red", "blue", "grey")
    samples = [Sample([f"Is {w}?" for w in words[: 1 + n % 3]], f"thing {n}: {words[n % 3]}") for n in range(20)]
    together = scorer_on().score_batch(samples)
    answers = [[item.answer for item in score.items] for score in together[:3]]
    assert answers == [["yes"], ["no", "yes"], ["no", "no", "yes"]]
    assert scorer_on().score_batch(samples[::-1]) == together[::-1]
    assert [scorer_on().score(sample.checklist, sample.target) for sample in samples] == together
    assert scorer_on(FakeBackend(knows, chunk_reads=1)).score_batch(samples) == together


GRADED = {"question": "How good?", "options": [{"label": "low", "value": 0.25}, {"label": "high", "value": 1}]}
SHORT = {"question": "Is it short?", "check": json.dumps({"type": "words", "at_most": 3})}


@pytest.mark.parametrize("state", ["empty", "cut_in_thought", "unfinished"])
def test_a_target_without_an_answer_is_the_lowest_and_never_judged(state):
    backend = FakeBackend(knows)
    samples = [Sample(["Is red?"], "", state=state), Sample(["Is blue?"], "a blue thing")]
    lowest, judged = scorer_on(backend).score_batch(samples)
    assert (lowest.primary_score, lowest.state, lowest.answered) == (0.0, state, 0) and lowest.no_answer
    assert lowest.items[0].unanswered == f"no_answer: {state}" and not lowest.unanswered
    assert judged.primary_score == pytest.approx(0.9) and judged.state == "answered"
    assert len(backend.asked) == 1 and rescore(Checklist.parse(["Is red?"]), lowest) == lowest


def test_the_lowest_score_includes_penalties_checks_and_options():
    penalty = {"question": "Is rude?", "weight": -2}
    score = scorer_on().score(["Is red?", penalty, GRADED, SHORT], target=" \n")
    assert score.state == "empty" and [line.passed for line in score.items] == [False] * 4
    assert score.primary_score == score.lower == score.upper == 0.0
    assert [line.value for line in score.items] == [0.0, 1.0, 0.25, 0.0]
    assert scorer_on().score([{"question": "Is rude?", "weight": -1}], target="").primary_score == 0.0
    assert scorer_on().score([GRADED], target="").primary_score == 0.25


def test_a_target_without_an_answer_may_stay_unscored_or_be_judged_and_one_that_was_cut_is_judged():
    assert scorer_on(no_answer="unscored").score(["Is red?"], target="").primary_score is None
    judged = scorer_on(no_answer="judge").score(["Is red?"], target="")
    assert judged.primary_score == pytest.approx(0.1) and judged.state == "empty" and not judged.no_answer
    cut = scorer_on().score_batch([Sample(["Is red?"], "a red thi", state="cut")])[0]
    assert cut.primary_score == pytest.approx(0.9) and cut.state == "cut"


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (Sample(["Is red?"], 7), ["sample 2", "target", "int", "7"]),
        (Sample(["Is red?"], "x", input=["y"]), ["sample 2", "input", "list"]),
        (Sample([{"question": "a?", "weight": float("nan")}], "x"), ["sample 2, item 1", "nan"]),
        (Sample([{"question": "a?", "check": "{}"}], "x"), ["sample 2", "code check"]),
    ],
)
def test_bad_samples_are_refused_by_number_before_anything_is_asked(sample, words):
    backend = FakeBackend()
    with pytest.raises((SampleError, ChecklistError)) as refused:
        scorer_on(backend).score_batch([Sample(["Is red?"], "fine"), sample])
    assert all(word in str(refused.value) for word in words), refused.value
    assert not backend.asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 1.5}, "threshold=1.5.*from 0 to 1"),
        ({"no_answer": "worst"}, "no_answer='worst' is not known; allowed: 'lowest', 'unscored', 'judge'"),
        ({"calibration": 3}, "calibration=3 is not allowed; it must be a string or a path or Calibration"),
        ({"judge": 3}, "judge=3 is not allowed; it is a Judge or the path of a file of judges"),
        ({"backend": "tgi"}, "backend='tgi'.*'vllm'"),
        ({"mode": "batch", "use_logprobs": True}, "use_logprobs=True needs mode='item'.*mode is 'batch'"),
        ({"mode": "batch", "votes": 3}, "votes=3 needs mode='item'"),
        ({"use_logprobs": True, "capture_reasoning": True}, "capture_reasoning=True requires use_logprobs=False"),
        ({"use_logprobs": True, "votes": 5}, "votes=5 requires use_logprobs=False"),
        ({"use_logprobs": True, "temperature": 0.5}, "temperature=0.5 requires use_logprobs=False"),
        ({"use_logprobs": True, "max_tokens": 9}, "max_tokens=9 requires use_logprobs=False"),
        ({"votes": 3, "temperature": 0}, "votes=3 needs a temperature above 0"),
        ({"metric": "quality"}, "metric='quality' requires mode='quality'.*mode is 'item'"),
        ({"mode": "batch", "prompt": "judges/item"}, "item.md.*unknown placeholder .question"),
        ({"prompt": "judges/batch"}, "batch.md.*unknown placeholder .checklist"),
        ({"prompt": "gone.md"}, "prompt not found: 'gone.md'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence_with_what_is_allowed(options, words):
    with pytest.raises((SampleError, PromptError), match=words) as refused:
        ChecklistScorer(**{"store": False, **options})
    assert str(refused.value).count(". ") == 0 or "prompt" in options


@pytest.mark.parametrize(
    ("options", "judge", "metric", "temperature"),
    [
        ({}, LogprobJudge, "expected", None),
        ({"use_logprobs": False}, ReasonedJudge, "expected", 0.0),
        ({"votes": 5}, ReasonedJudge, "expected", 0.7),
        ({"temperature": 0.3}, ReasonedJudge, "expected", 0.3),
        ({"mode": "batch", "metric": "pass", "temperature": 0.5}, BatchJudge, "pass", 0.5),
        ({"mode": "quality"}, QualityJudge, "quality", 0.0),
    ],
)
def test_the_settings_choose_the_judge_and_the_defaults(options, judge, metric, temperature):
    scorer = ChecklistScorer("pocket", backend="transformers", store=False, **options)
    assert type(scorer.judge) is judge and scorer.aggregation.primary_metric == metric
    if temperature is not None:
        assert scorer.judge.sampling.temperature == temperature
    pickle.loads(pickle.dumps(scorer)).validate()


@pytest.mark.parametrize("options", [{"mode": "batch"}, {"capture_reasoning": True}, {"mode": "quality"}])
def test_history_and_reference_reach_every_judge(options):
    backend = Script(lambda messages: "no idea")
    scorer = ChecklistScorer(backend=backend, store=False, **options)
    score = scorer.score(["a?"], "Hi.", "Greet me.", reference="Hello.", history="user: Hey")
    text = backend.prompts[0][-1]["content"]
    assert all(part in text for part in ("Greet me.", "Hello.", "user: Hey", "Hi."))
    assert score.primary_score is None and score.unanswered == {"unparsable": 1}


def test_a_missing_model_is_refused_before_anything_is_loaded(tmp_path):
    for name in ("./gone", "a/b/c", "nonsense"):
        with pytest.raises(ModelError, match=f"model not found: '{name}'"):
            ChecklistScorer(name, store=False).validate()
    with pytest.raises(ModelError, match="has no config.json"):
        ChecklistScorer(str(tmp_path), store=False).validate()


def test_python_yaml_and_shell_have_the_same_settings_of_a_scorer():
    """Each setting has one name; the shell's are spelled with hyphens."""
    fields = set(ScorerConfig.model_fields)
    assert set(ScorerPart.model_fields) - fields == {"kind", "options"}
    assert fields < set(RewardConfig.model_fields), "of a reward"
    command = typer.main.get_command(app).commands["score"]
    options = {name.lstrip("-").removeprefix("judge.") for option in command.params for name in option.opts}
    assert {name.replace("_", "-") for name in fields} <= options
