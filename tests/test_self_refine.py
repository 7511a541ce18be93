"""Self-refinement with scripted replies: which texts are asked for, what they are told, when it stops."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.scores import Verdict
from checklist_rewards.self_refine import Task, feedback_of, refine_batch
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies
from tests.judges.voters import Voter

ITEMS = ["Is it red?", "Is it round?"]


def knows(prefix: str, tail: str) -> float | None:
    """Yes if the question's word stands in the response; nothing is read of a cursed one."""
    response = prefix[prefix.rindex("<target-") :]
    return None if "cursed" in response else 0.9 if tail.split()[2].rstrip("?") in response else 0.1


def scorer_on(rule=knows, **options) -> ChecklistScorer:
    return ChecklistScorer(backend=FakeBackend(rule, chunk_reads=1, **options), store=False)


def improving(text: str, sampling: Sampling) -> str:
    """Adds the word of the first question that is said to be wrong."""
    if "but it should be" not in text:
        return "a thing"
    response = text.split("<response-")[1].split("\n")[1]
    question = next(line for line in text.split("\n") if "but it should be" in line)
    return f"{response} {question.split()[3].rstrip('?')}"


def refine(reply=improving, tasks=None, *, scorer=None, **options):
    engine = Replies(reply)
    found = refine_batch(
        tasks or [Task("Draw.", ITEMS)], Engine("m", engine), scorer or scorer_on(), **{"store": None, **options}
    )
    return found, engine


def test_it_answers_until_every_item_passes_or_no_round_is_left():
    thinking = lambda text, sampling: f"<think>round?</think>{improving(text, sampling)}"  # noqa: E731
    (done,), engine = refine(thinking, sampling=Sampling(temperature=1.0, seed=5))
    assert [step.text for step in done.rounds] == ["a thing", "a thing red", "a thing red round"]
    assert [step.score.pass_rate for step in done.rounds] == [0.0, 0.5, 1.0]
    assert (done.stopped, done.best, done.text) == ("passed", 2, "a thing red round")
    assert done.rounds[0].feedback is None
    assert done.rounds[2].feedback == "Wrong:\n- Is it round? no, but it should be yes.\n\nRight:\n- Is it red? yes"
    assert [sampling.seed for _, sampling in engine.sampled] == [5, 6, 7]
    (done,), _ = refine(rounds=1)
    assert len(done.rounds) == 2 and done.stopped == "rounds"


def test_all_tasks_of_a_round_are_sampled_together_and_those_that_passed_are_left_alone():
    tasks = [Task("Draw.", ITEMS), Task("Paint.", ["Is it a?"]), Task("Write.", ITEMS[:1])]
    found, engine = refine(tasks=tasks)
    assert [len(done.rounds) for done in found] == [3, 1, 2]
    assert [len(texts) for texts, _ in engine.sampled] == [3, 2, 1]


def test_penalties_and_reasons_are_said_and_unanswered_items_are_not():
    checklist = Checklist.parse([{"question": "Is it a?", "weight": -1}, "Is it b?", "Is it cursed?", "Is it c?"])
    scorer = scorer_on(
        lambda prefix, tail: None if "cursed" in tail else 0.9 if " a?" in tail or " c?" in tail else 0.1
    )
    assert feedback_of(checklist, scorer.score(checklist, "x")) == (
        "Wrong:\n- Is it a? yes, but it should be no.\n- Is it b? no, but it should be yes.\n\nRight:\n- Is it c? yes"
    )


def test_feedback_names_the_best_grade_of_the_scale_on_which_the_judge_answered():
    judge = Voter(lambda read: Verdict({"0": 0.1, "1": 0.8, "2": 0.1, "3": 0.0}, method="logprobs"))
    (done,), _ = refine(tasks=[Task("Draw.", ITEMS[:1])], rounds=1, scorer=ChecklistScorer(judge=judge, scale=4))
    assert done.rounds[1].feedback == "Wrong:\n- Is it red? 1, but it should be 3."
    assert done.checklist == Checklist.parse(ITEMS[:1])


def test_critique_is_told_a_review_in_its_own_words_and_nothing_of_the_checklist():
    def reply(text: str, sampling: Sampling) -> str:
        if "write only the review" in text:
            return "Too plain."
        return "a red thing" if "Too plain." in text else "a thing"

    (done,), engine = refine(reply, method="critique", rounds=2)
    assert [step.text for step in done.rounds] == ["a thing", "a red thing", "a red thing"]
    assert [step.feedback for step in done.rounds] == [None, "Too plain.", "Too plain."]
    assert (done.stopped, done.best) == ("rounds", 1)
    assert not any("Is it red?" in text for texts, _ in engine.sampled for text in texts)


def test_it_writes_its_own_checklists_where_there_are_none():
    def reply(text: str, sampling: Sampling) -> str:
        if "a number before it" in text:
            return "no list" if "Paint" in text else "1. Is it red?\n2. Is it round?"
        return improving(text, sampling)

    engine = Replies(reply)
    generator = DirectGenerator("m", backend=engine, store=False, temperature=0.0)
    tasks = ["Draw.", "Paint.", Task("Write.", ITEMS[:1])]
    done, failed, given = refine_batch(tasks, Engine("m", engine), scorer_on(), generator)
    assert [item.question for item in done.checklist.items] == ITEMS and done.stopped == "passed"
    assert failed.stopped.startswith("no_checklist: ") and failed.checklist is None
    assert [(step.text, step.score) for step in failed.rounds] == [("a thing", None)] and failed.text == "a thing"
    assert len(given.checklist.items) == 1 and given.stopped == "passed"


# --- what fails


def test_a_judge_that_fails_ends_it_and_its_round_is_never_the_best():
    (done,), _ = refine(lambda text, sampling: "cursed red round" if "should be" in text else "red")
    assert [step.text for step in done.rounds] == ["red", "cursed red round"]
    assert done.stopped == "unscored" and done.text == "red"
    (never,), _ = refine(lambda text, sampling: "cursed")
    assert (never.best, never.text, never.stopped) == (None, "cursed", "unscored")


def test_an_item_without_an_answer_is_neither_feedback_nor_a_pass():
    scorer = scorer_on(lambda prefix, tail: None if "round" in tail else 0.9)
    (done,), _ = refine(scorer=scorer)
    assert done.stopped == "no_feedback" and len(done.rounds) == 1


def test_a_missing_reply_ends_its_task_and_costs_no_other():
    def reply(text: str, sampling: Sampling) -> str | Reply:
        if "Paint" in text and ("should be" in text or "first" in text):
            return Reply(None, unanswered="too_long")
        return improving(text, sampling)

    found, _ = refine(reply, [Task("Draw.", ITEMS), Task("Paint.", ITEMS), Task("Paint first.", ITEMS)])
    assert [done.stopped for done in found] == ["passed", "no_reply: too_long", "no_reply: too_long"]
    assert [done.text for done in found] == ["a thing red round", "a thing", None]


@pytest.mark.parametrize(
    ("tasks", "options", "error", "words"),
    [
        ([Task("A", ITEMS)], {"method": "talk"}, SampleError, "method='talk'.*critique"),
        ([Task("A", ITEMS), Task(" ", ITEMS)], {}, SampleError, "task 2: the prompt is empty"),
        ([Task(7, ITEMS)], {}, SampleError, "task 1: a prompt must be a string"),
        (["A"], {}, SampleError, "task 1: the task has no checklist"),
    ],
)
def test_bad_tasks_are_refused_before_anything_is_asked(tasks, options, error, words):
    with pytest.raises(error, match=words):
        refine(lambda text, sampling: pytest.fail("asked"), tasks, **options)


# --- replies without an answer


@pytest.mark.parametrize(
    ("reply", "state", "words", "method"),
    [
        (Reply("<think>red", "length"), "cut_in_thought", "reached its length limit before the answer", "checklist"),
        (Reply("", "stop"), "empty", "The response is empty.", "critique"),
        (Reply("", "length", thought="red"), "cut_in_thought", "reached its length limit", "checklist"),
    ],
)
def test_a_round_without_an_answer_never_passes_and_the_model_is_told(reply, state, words, method):
    """No text passes "Is it free of digits?", so an empty answer would be the best one."""

    def rule(text, sampling):
        if "write only the review" in text:
            return "Too many digits."
        return "7" if "digits" in text else "77" if words in text else reply

    scorer = scorer_on(lambda prefix, tail: 0.1 if "7" in prefix[prefix.rindex("<target-") :] else 0.9)
    (done,), engine = refine(rule, [Task("Draw.", ["Is it free of digits?"])], scorer=scorer, rounds=2, method=method)
    assert [(step.text, step.state) for step in done.rounds] == [("", state), ("77", "answered"), ("7", "answered")]
    assert (done.stopped, done.best, done.text) == ("rounds", 1, "77")
    assert [step.score.primary_score for step in done.rounds] == pytest.approx([0.0, 0.1, 0.1])
    assert words in done.rounds[1].feedback and "Right:" not in done.rounds[1].feedback
    told = engine.sampled[1][0][0]
    assert words in told and "## Response" not in told, "nothing is shown as the response"


@pytest.mark.parametrize(("rule", "score"), [("lowest", 0.0), ("unscored", None), ("judge", 0.9)])
def test_a_round_without_an_answer_is_not_the_best_under_any_rule(rule, score):
    replies = iter([Reply("<think>red round", "length"), "a thing", "a thing"])
    backend = FakeBackend(lambda prefix, tail: 0.9 if "\n\n</target" in prefix else 0.1)
    scorer = ChecklistScorer(backend=backend, store=False, no_answer=rule)
    (done,), _ = refine(lambda text, sampling: next(replies), scorer=scorer, rounds=2)
    assert (done.stopped, done.best, done.text) == ("rounds", 1, "a thing")
    assert done.rounds[0].score.primary_score == score
    (done,), _ = refine(lambda text, sampling: Reply("<think>red", "length"), scorer=scorer, rounds=1)
    assert (done.stopped, done.best, done.text) == ("rounds", None if score is None else 0, "")
    assert len(done.rounds) == 2


def test_a_cut_answer_is_judged_and_the_model_is_told_that_it_was_cut():
    (done,), _ = refine(lambda text, sampling: Reply("a red thing", "length"), rounds=1)
    assert [step.state for step in done.rounds] == ["cut", "cut"] and done.rounds[0].score.pass_rate == 0.5
    assert done.rounds[1].feedback.startswith("The response was cut off at its length limit. Write a shorter one.")
    assert "Is it round? no, but it should be yes." in done.rounds[1].feedback


@pytest.mark.parametrize(
    ("critique", "stopped"),
    [
        (Reply("<think>Hm, it is", "length"), "no_reply: the critique has no answer (cut_in_thought)"),
        ("<think>SECRET</think>Too plain.", "rounds"),
    ],
)
def test_a_critique_is_its_answer_and_without_one_refinement_ends(critique, stopped):
    def rule(text, sampling):
        return critique if "write only the review" in text else "a thing"

    (done,), _ = refine(rule, method="critique", rounds=1)
    assert (done.stopped, done.text) == (stopped, "a thing")
    assert [step.feedback for step in done.rounds[1:]] == (["Too plain."] if stopped == "rounds" else [])


def test_the_best_round_is_the_earliest_of_equals():
    replies = iter(["red", "a thing", "red again", "nothing"])
    (done,), _ = refine(lambda text, sampling: next(replies), rounds=3)
    assert [step.score.pass_rate for step in done.rounds] == [0.5, 0.0, 0.5, 0.0]
    assert done.best == 0 and done.text == "red"


def test_a_rerun_asks_for_nothing(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    first, engine = refine(lambda text, sampling: f"<think>round?</think>{improving(text, sampling)}", store=store)
    assert [step.text for step in first[0].rounds] == ["a thing", "a thing red", "a thing red round"]  # no thoughts
    again, silent = refine(lambda text, sampling: pytest.fail("asked"), store=store)
    assert again == first and not silent.sampled and engine.sampled
