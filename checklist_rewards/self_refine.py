"""Self-refinement with a checklist: a model answers, gets the failed questions as feedback, and answers again.

    >>> engine, scorer = Engine("org/model"), ChecklistScorer("org/model")  # doctest: +SKIP
    >>> generator = DirectGenerator("org/model")  # doctest: +SKIP
    >>> refinements = refine_batch(["Write a haiku about rain."], engine, scorer, generator)  # doctest: +SKIP
    >>> refinements[0].text, [step.score.primary_score for step in refinements[0].rounds]  # doctest: +SKIP

This is STICK (TICK and STICK, arXiv:2410.03608, section 4.1). Round 0 is the plain answer. Each round is scored, and
the verdicts of the answered items are the feedback for the next round. Refinement stops when all items pass, or after
`rounds` rounds. One model can answer, write the checklist and judge. All texts of a round are sampled together and
kept in the store, so a rerun does not repeat calls.

`method="critique"` is the unstructured baseline: the model critiques its answer in free text and answers again with
the critique. The checklist is then only used for scoring.

All rounds are returned. The best round has the highest score; among equals the earliest, so refinement without gain
keeps the first answer. Unanswered items are not part of the feedback. A round without a score is never the best and
ends the refinement of its input, as does a missing reply or checklist.

Thoughts are no part of an answer, a critique or the feedback. A reply may have no answer: it was cut in its thought,
is empty, or ends with a tool call. Such a round is scored as the scorer's `no_answer` says. It never passes, it is
never the best if another round has an answer, and the feedback names what is missing instead of the failed items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from checklist_rewards.backends import Engine, Messages, Progress, Sampling
from checklist_rewards.backends.replies import sample_replies, target_of
from checklist_rewards.chat import Target, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators import Generator, Request
from checklist_rewards.images import Image
from checklist_rewards.messages import images_of, with_images
from checklist_rewards.prompts import load_prompt
from checklist_rewards.scorer import ChecklistScorer, Sample, Scorer
from checklist_rewards.scores import NO_ANSWER_STATES, Score, TargetState
from checklist_rewards.scores.feedback import feedback_of
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import one_of, whole_number

Method = Literal["checklist", "critique"]
METHODS: tuple[str, ...] = get_args(Method)
DEFAULT_ROUNDS = 4
PASSED, ROUNDS, UNSCORED, NO_FEEDBACK = "passed", "rounds", "unscored", "no_feedback"
_PROMPTS = {"checklist": "refine/from_checklist", "critique": "refine/from_critique"}
_CRITIQUE = "refine/critique"
_NO_ANSWER = {
    "cut_in_thought": "The response reached its length limit before the answer began. Think briefly, then answer.",
    "unfinished": "The response ends with a tool call. Write the answer itself.",
    "empty": "The response is empty. Write an answer.",
}
"""Feedback for a reply without an answer, by its state."""
_CUT = "The response was cut off at its length limit. Write a shorter one."


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt to answer and refine.

    Args:
        prompt (`str` or chat messages): sent to the model unchanged. Messages may contain images, which the judge and
            the generator see too.
        checklist (*optional*): any value that [`Checklist.parse`] accepts. Without one, the generator writes it.
        reference (`str`, *optional*): a known good answer for the judge and the generator, if their prompts have a
            placeholder for it. The answering model never sees it.
    """

    prompt: str | Messages
    checklist: Any = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One answer with its score."""

    text: str
    """The answer, without the thought; "" if the reply has none."""
    score: Score | None
    """None if there is no checklist."""
    feedback: str | None = None
    """The feedback this answer was written from; None for the first answer."""
    state: TargetState = "answered"
    """What the model made of its turn; see [`Target`]."""

    @property
    def has_answer(self) -> bool:
        """Whether the reply has an answer."""
        return self.state not in NO_ANSWER_STATES


@dataclass(frozen=True, slots=True)
class Refinement:
    """All rounds of one task."""

    rounds: tuple[Round, ...]
    """The rounds, starting with the plain answer; empty if the model gave no answer."""
    checklist: Checklist | None
    stopped: str
    """Why refinement stopped: `passed` (all items pass), `rounds` (limit reached), `unscored` (the judge gave too few
    answers), `no_feedback` (no item failed, but some are unanswered), `no_reply` or `no_checklist` (each with
    ": detail")."""

    @property
    def best(self) -> int | None:
        """Index of the round with the highest score, the earliest among equals; None if no round has a score. A round
        without an answer is the best only if all rounds with a score are."""
        scores = [None if step.score is None else step.score.primary_score for step in self.rounds]
        ranked = [
            (s.has_answer, v, -n) for n, (s, v) in enumerate(zip(self.rounds, scores, strict=True)) if v is not None
        ]
        return -max(ranked)[2] if ranked else None

    @property
    def text(self) -> str | None:
        """The best answer; the first answer if no round has a score; None if there is no reply."""
        if self.best is not None:
            return self.rounds[self.best].text
        return next((step.text for step in self.rounds if step.has_answer), "") if self.rounds else None


@dataclass
class _TaskState:
    """The state of one task during refinement."""

    messages: Messages
    input: str
    history: str | None
    reference: str | None
    images: Sequence[Image]
    checklist: Checklist | None = None
    rounds: list[Round] = field(default_factory=list)
    feedback: str | None = None
    stopped: str | None = None

    @property
    def fields(self) -> dict[str, str | None]:
        step = self.rounds[-1]
        return {"instruction": self.input, "history": self.history, "response": step.text if step.has_answer else None}


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
        tasks (sequence of `str` or [`Task`]): the prompts.
        engine ([`Engine`]): the model that answers (and critiques, with `method="critique"`).
        scorer (such as a [`ChecklistScorer`]): the judge; it may use the same model.
        generator ([`Generator`], *optional*): writes the checklists of tasks without one.
        rounds (`int`, *optional*, defaults to `4`): maximum number of answers after the first. With 0, tasks are only
            answered and scored.
        method (`str`, *optional*, defaults to `"checklist"`): `"checklist"`, or `"critique"` for the baseline. The
            critique does not see the checklist, so all rounds are run. A reply without an answer is not critiqued.
        sampling ([`Sampling`], *optional*): sampling of answers and critiques. Defaults to greedy. Round k uses
            `seed + k`.
        store ([`Store`], *optional*): where replies are stored.
        progress (callable, *optional*): called with the number of replies sampled since its last call.

    Returns:
        `list[Refinement]`: One per task, in order.

    Raises:
        SampleError, ChecklistError: If a task is not valid. The message names its number, from 1; nothing has been
            sampled at that point.
    """
    one_of("method", method, METHODS)
    whole_number("rounds", rounds, at_least=0)
    works = [_start(task, f"task {number}", generator) for number, task in enumerate(tasks, start=1)]
    scorer.validate()
    _write_checklists(works, generator)
    sample = partial(_sampled, engine, store, progress)
    _answer(sample(works, [work.messages for work in works], replace(sampling, n=1)))
    for number in range(rounds + 1):
        of_round = replace(sampling, n=1, seed=sampling.seed + number + 1)
        _judge([work for work in works if work.stopped is None], scorer)
        active = [work for work in works if work.stopped is None]
        for work in active:
            step, score = work.rounds[-1], work.rounds[-1].score
            assert work.checklist is not None and score is not None
            work.stopped = ROUNDS if number == rounds else None
            if not step.has_answer:
                work.feedback = _NO_ANSWER[step.state]
                continue
            asked = scorer.prepared(work.checklist) if isinstance(scorer, ChecklistScorer) else work.checklist
            work.feedback = feedback_of(asked, score)
            if step.state == "cut":
                work.feedback = f"{_CUT}\n\n{work.feedback}"
            if method == "checklist" and all(line.passed is not False for line in score.items):
                work.stopped = PASSED if score.answered == score.total else NO_FEEDBACK
        active = [work for work in active if work.stopped is None]
        if method == "critique":
            critiqued = [work for work in active if work.rounds[-1].has_answer]
            prompt = load_prompt(_CRITIQUE, "stage")
            for work, critique in sample(critiqued, [prompt.messages(**work.fields) for work in critiqued], of_round):
                work.feedback = critique.text
                if not critique.has_answer:
                    work.stopped = Unanswered(Reason.NO_REPLY, f"the critique has no answer ({critique.state})")
            active = [work for work in active if work.stopped is None]
        prompt = load_prompt(_PROMPTS[method], "stage")
        prompts = [prompt.messages(**work.fields, feedback=work.feedback) for work in active]
        _answer(sample(active, prompts, of_round))
    return [Refinement(tuple(work.rounds), work.checklist, work.stopped or ROUNDS) for work in works]


def _start(task: str | Task, where: str, generator: Generator | None) -> _TaskState:
    task = Task(task) if isinstance(task, str) else task
    try:
        prompt = with_images(task.prompt)
        input, history = prompt_text(prompt)
    except SampleError as error:
        raise SampleError(f"{where}: {error}") from None
    if input is None or not input.strip():
        raise SampleError(f"{where}: the prompt is empty; give a nonblank string or messages with a user message.")
    checklist = None if task.checklist is None else Checklist.parse(task.checklist, where)
    if checklist is None and generator is None:
        raise SampleError(f"{where}: the task has no checklist; give one, or pass a generator.")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return _TaskState(messages, input, history, task.reference, images_of(prompt), checklist)


def _write_checklists(works: Sequence[_TaskState], generator: Generator | None) -> None:
    without = [work for work in works if work.checklist is None]
    if not without or generator is None:
        return
    requests = [Request(work.input, work.reference, work.history, images=work.images) for work in without]
    for work, checklist in zip(without, generator.generate_batch(requests), strict=True):
        if isinstance(checklist, GenerationError):
            work.stopped = Unanswered(Reason.NO_CHECKLIST, str(checklist))
        else:
            work.checklist = checklist


def _sampled(
    engine: Engine,
    store: Store | None,
    progress: Progress | None,
    works: Sequence[_TaskState],
    prompts: Sequence[Messages],
    sampling: Sampling,
) -> list[tuple[_TaskState, Target]]:
    """The replies to the prompts of tasks. A task without one stops."""
    replies = sample_replies(engine, prompts, sampling, store, progress) if works else []
    for work, (reply,) in zip(works, replies, strict=True):
        if reply.text is None:
            work.stopped = Unanswered(Reason.NO_REPLY, str(reply.unanswered))
    return [(work, target_of(one)) for work, (one,) in zip(works, replies, strict=True) if one.text is not None]


def _answer(replies: Sequence[tuple[_TaskState, Target]]) -> None:
    """Add each reply as a round of its task."""
    for work, target in replies:
        work.rounds.append(Round(target.text, None, work.feedback, target.state))


def _judge(works: Sequence[_TaskState], scorer: Scorer) -> None:
    """Score the last round of each task."""
    last = [work.rounds[-1] for work in works]
    samples = [
        Sample(
            work.checklist, step.text, work.input, work.reference, work.history, state=step.state, images=work.images
        )
        for work, step in zip(works, last, strict=True)
    ]
    for work, score in zip(works, scorer.score_batch(samples) if samples else [], strict=True):
        work.rounds[-1] = replace(work.rounds[-1], score=score)
        if score.primary_score is None and not score.no_answer:
            work.stopped = UNSCORED
