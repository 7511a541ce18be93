"""Self-refinement by checklist: a model answers, is told which questions its answer fails, and answers again.

    >>> engine, scorer = Engine("org/model"), ChecklistScorer("org/model")  # doctest: +SKIP
    >>> generator = DirectGenerator("org/model")  # doctest: +SKIP
    >>> done = refine_batch(["Write a haiku about rain."], engine, scorer, generator)  # doctest: +SKIP
    >>> done[0].text, [step.score.primary_score for step in done[0].rounds]  # doctest: +SKIP

This is STICK (TICK and STICK, arXiv:2410.03608, section 4.1). Round 0 is the plain answer. Every round is scored; the
verdicts of the items that were answered go back as feedback, and the next round mends what failed. It stops when all
items pass, and after `rounds` at the latest. One model can do all of it: answer, write the checklist, judge. All texts
of a round are sampled together, through the store, so a rerun asks for nothing twice.

`method="critique"` is the unstructured baseline: the model reviews its answer in its own words, and answers again with
the review. The checklist then only measures.

All rounds are kept. The best is the one with the highest score, of equal ones the earliest: refining that gained
nothing changes nothing. A judge's failure is no verdict: unanswered items are not in the feedback, a round without a
score is never the best, and ends the refinement of this input. So does a missing reply or checklist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from checklist_rewards.backends import Engine, Messages, Progress, Sampling
from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators import Generator, Request
from checklist_rewards.pipelines.pipeline import Scorer
from checklist_rewards.prompts import load_prompt
from checklist_rewards.replies import sample_replies
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import ItemScore, Score

Method = Literal["checklist", "critique"]
METHODS: tuple[str, ...] = get_args(Method)
DEFAULT_ROUNDS = 4
PASSED, ROUNDS, UNSCORED, NO_FEEDBACK = "passed", "rounds", "unscored", "no_feedback"
NO_REPLY, NO_CHECKLIST = "no_reply", "no_checklist"
_PROMPTS = {"checklist": "refine/from_checklist", "critique": "refine/from_critique"}
_CRITIQUE = "refine/critique"


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered.

    Args:
        prompt (`str` or chat messages): put to the model as it is.
        checklist (*optional*): anything that [`Checklist.parse`] takes; without one the generator writes it.
        reference (`str`, *optional*): a known good answer, shown to the judge and the checklist's writer if their
            prompts have a place for it, never to the model that answers.
    """

    prompt: str | Messages
    checklist: Any = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One answer."""

    text: str
    score: Score | None
    """None where there is no checklist."""
    feedback: str | None = None
    """What this answer was written from; None for the first."""


@dataclass(frozen=True, slots=True)
class Refinement:
    """One task, refined."""

    rounds: tuple[Round, ...]
    """From the plain answer on; empty where the model gave none."""
    checklist: Checklist | None
    stopped: str
    """passed (all items), rounds (no more allowed), unscored (the judge answered too little), no_feedback (nothing
    failed, but not everything was answered), no_reply or no_checklist (each with ": detail")."""

    @property
    def best(self) -> int | None:
        """Number of the round with the highest score, the earliest of equals; None where no round has a score."""
        scores = [None if step.score is None else step.score.primary_score for step in self.rounds]
        known = [score for score in scores if score is not None]
        return scores.index(max(known)) if known else None

    @property
    def text(self) -> str | None:
        """The best answer; where nothing was scored, the plain one; None where there is no answer at all."""
        return self.rounds[self.best or 0].text if self.rounds else None


@dataclass
class _Work:
    """One task on its way."""

    messages: Messages
    input: str
    history: str | None
    reference: str | None
    checklist: Checklist | None = None
    rounds: list[Round] = field(default_factory=list)
    feedback: str | None = None
    stopped: str | None = None

    @property
    def shown(self) -> dict[str, str | None]:
        return {"instruction": self.input, "history": self.history, "response": self.rounds[-1].text}


def refine_batch(
    tasks: Sequence[str | Task],
    engine: Engine,
    scorer: Scorer,
    generator: Generator | None = None,
    *,
    rounds: int = DEFAULT_ROUNDS,
    method: Method = "checklist",
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[Refinement]:
    """Refine the answers to all tasks, round by round.

    Args:
        tasks (sequence of `str` or [`Task`]).
        engine ([`Engine`]): the model that answers, and reviews.
        scorer (such as a [`ChecklistScorer`]): judges; the same model, if it is to refine itself.
        generator ([`Generator`], *optional*): writes the checklists of tasks that have none.
        rounds (`int`, *optional*, defaults to `4`): answers after the first, at most. 0 only answers and scores.
        method (`str`, *optional*, defaults to `"checklist"`): checklist, or critique for the baseline, which knows
            nothing of the checklist and so takes all its rounds.
        sampling ([`Sampling`], *optional*): of answers and reviews, one at a time; greedy by default. Round k samples
            with `seed + k`.
        store ([`Store`], *optional*): where replies are kept.
        progress (callable, *optional*): told how many replies were sampled since its last call.

    Returns:
        list of [`Refinement`], one per task, in order.

    Raises:
        SampleError, ChecklistError: naming the task (from 1), before anything is asked.
    """
    if method not in METHODS:
        raise SampleError(f"method={method!r} is not known; allowed: {', '.join(METHODS)}.")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise SampleError(f"rounds={rounds!r} is not allowed; it is a whole number from 0 up.")
    works = [_begun(task, f"task {number}", generator) for number, task in enumerate(tasks, start=1)]
    scorer.check()
    _write_checklists(works, generator)
    _answer(works, [work.messages for work in works], engine, replace(sampling, n=1), store, progress)
    for number in range(rounds + 1):
        of_round = replace(sampling, n=1, seed=sampling.seed + number + 1)
        _judge([work for work in works if work.stopped is None], scorer)
        going = [work for work in works if work.stopped is None]
        for work in going:
            score = work.rounds[-1].score
            assert work.checklist is not None and score is not None
            work.stopped = ROUNDS if number == rounds else None
            work.feedback = feedback_of(work.checklist, score)
            if method == "checklist" and all(line.passed is not False for line in score.items):
                work.stopped = PASSED if score.answered == score.total else NO_FEEDBACK
        going = [work for work in going if work.stopped is None]
        if method == "critique" and going:
            going = _review(going, engine, of_round, store, progress)
        prompt = load_prompt(_PROMPTS[method], "stage")
        asked = [prompt.messages(**work.shown, feedback=work.feedback) for work in going]
        _answer(going, asked, engine, of_round, store, progress)
    return [Refinement(tuple(work.rounds), work.checklist, work.stopped or ROUNDS) for work in works]


def feedback_of(checklist: Checklist, score: Score) -> str:
    """The verdicts in words, one line per answered item: what is wrong first, then what is right.

    An item that asks for a "no" (a penalty) says so. A reason is added where the judge gave one for what is wrong.
    """
    wrong: list[str] = []
    right: list[str] = []
    for item, line in zip(checklist.items, score.items, strict=True):
        if line.passed is None:
            continue
        (right if line.passed else wrong).append(_line(item, line))
    parts = [("Wrong:", wrong), ("Right:", right)]
    return "\n\n".join("\n".join([title, *lines]) for title, lines in parts if lines)


def _line(item: ChecklistItem, line: ItemScore) -> str:
    said = f"- {item.question} {line.answer}"
    if line.passed:
        return said
    values = {label: value for label, value in item.values.items() if value is not None}
    wanted = (max if item.weight >= 0 else min)(values, key=values.__getitem__)
    reason = " ".join((line.reasoning or "").split())
    return f"{said}, but it should be {wanted}." + (f" {reason}" if reason else "")


def _begun(task: str | Task, where: str, generator: Generator | None) -> _Work:
    task = Task(task) if isinstance(task, str) else task
    try:
        input, history = prompt_text(task.prompt)
    except SampleError as error:
        raise SampleError(f"{where}: {error}") from None
    if input is None or not input.strip():
        raise SampleError(f"{where}: the prompt asks nothing; it needs a text, or a message of the user.")
    checklist = None if task.checklist is None else Checklist.parse(task.checklist, where)
    if checklist is None and generator is None:
        raise SampleError(f"{where}: there is no checklist, and no generator to write one.")
    messages = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else task.prompt
    return _Work(messages, input, history, task.reference, checklist)


def _write_checklists(works: Sequence[_Work], generator: Generator | None) -> None:
    bare = [work for work in works if work.checklist is None]
    if not bare or generator is None:
        return
    requests = [Request(work.input, work.reference, work.history) for work in bare]
    for work, made in zip(bare, generator.generate_batch(requests), strict=True):
        if isinstance(made, GenerationError):
            work.stopped = f"{NO_CHECKLIST}: {made}"
        else:
            work.checklist = made


def _answer(
    works: Sequence[_Work],
    prompts: Sequence[Messages],
    engine: Engine,
    sampling: Sampling,
    store: Store | None,
    progress: Progress | None,
) -> None:
    """Add the reply to each prompt as a round of its work."""
    for work, (reply,) in zip(works, sample_replies(engine, prompts, sampling, store, progress), strict=True):
        if reply.text is None:
            work.stopped = f"{NO_REPLY}: {reply.unanswered}"
        else:
            work.rounds.append(Round(completion_text(reply.text), None, work.feedback))


def _review(
    works: Sequence[_Work], engine: Engine, sampling: Sampling, store: Store | None, progress: Progress | None
) -> list[_Work]:
    """Have each answer reviewed in words; gives those that were."""
    prompt = load_prompt(_CRITIQUE, "stage")
    replies = sample_replies(engine, [prompt.messages(**work.shown) for work in works], sampling, store, progress)
    for work, (reply,) in zip(works, replies, strict=True):
        if reply.text is None:
            work.stopped = f"{NO_REPLY}: {reply.unanswered}"
        else:
            work.feedback = completion_text(reply.text)
    return [work for work in works if work.stopped is None]


def _judge(works: Sequence[_Work], scorer: Scorer) -> None:
    """Score the last round of each."""
    samples = [Sample(w.checklist, w.rounds[-1].text, w.input, w.reference, w.history) for w in works]
    for work, score in zip(works, scorer.score_batch(samples) if samples else [], strict=True):
        work.rounds[-1] = replace(work.rounds[-1], score=score)
        if score.primary_score is None:
            work.stopped = UNSCORED
