"""Item analysis of scored checklists, as classical test theory does for exam questions.

    >>> analysis = ItemAnalysis()
    >>> for score in scores:
    ...     analysis.add(score)
    >>> [(line.question, line.discrimination, line.flags) for line in analysis.report()]  # doctest: +SKIP

Items are identified by id across checklists; each copy of a repeated question is an item of its own. All figures are
over the targets where the item was answered. Targets without an answer are left out: no judge has read them. The
analysis stores two small arrays per item, so a file is analysed in one pass.

[`similarity`] compares generated checklists with human ones: wording, number of questions, and item categories. BLEU
is the corpus BLEU of sacrebleu, ROUGE comes from rouge-score, each with its own tokenization. The questions of a
checklist are joined by line breaks, in order, as in TICK (arXiv:2410.03608, section 3.1).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from checklist_rewards.backends.embedding import Embedder, comparable, similarities
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.measures import correlation
from checklist_rewards.scores import ItemScore, Score, item_keys, ratio
from checklist_rewards.validation import import_extra, np

_ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of generated to human checklists over a corpus."""

    checklists: int
    bleu: float
    """Corpus BLEU, in [0, 100]."""
    rouge: Mapping[str, float]
    """Mean F1 of rouge1, rouge2 and rougeL, in [0, 1]."""
    count_mae: float
    """Mean absolute difference between the numbers of generated and human questions."""


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """Tagging quality of one category."""

    category: str
    precision: float | None
    """None if the category was never predicted."""
    recall: float | None
    """None if no item has the category."""
    f1: float | None
    support: int
    """Number of items with this category in the labels."""


def similarity(generated: Sequence[Checklist], human: Sequence[Checklist]) -> Similarity:
    """Compare checklists pair by pair.

    Args:
        generated, human (sequences of [`Checklist`]): checklists of the same inputs, in the same order.

    Raises:
        SampleError: If there are no pairs, the numbers differ, or the extra `evaluation` is not installed.
    """
    if not generated or len(generated) != len(human):
        raise SampleError(
            f"checklists are compared in pairs, but got {len(generated)} generated and {len(human)} human ones."
        )
    rouge, sacrebleu = import_extra("rouge_score.rouge_scorer", "sacrebleu")
    texts, references = ([_text(checklist) for checklist in side] for side in (generated, human))
    scorer = rouge.RougeScorer(list(_ROUGES))
    scored = [scorer.score(reference, text) for reference, text in zip(references, texts, strict=True)]
    return Similarity(
        checklists=len(texts),
        bleu=sacrebleu.corpus_bleu(texts, [references]).score,
        rouge={name: math.fsum(one[name].fmeasure for one in scored) / len(scored) for name in _ROUGES},
        count_mae=math.fsum(abs(len(a) - len(b)) for a, b in zip(generated, human, strict=True)) / len(generated),
    )


def category_figures(tagged: Sequence[str | None], truth: Sequence[str]) -> list[CategoryFigures]:
    """Precision, recall and F1 of every category, one-vs-rest.

    Args:
        tagged (sequence of `str` or None): the predicted category of each item, None if it has none.
        truth (sequence of `str`): the true category of each item.

    Raises:
        SampleError: If the two sequences differ in length.
    """
    if len(tagged) != len(truth):
        raise SampleError(f"got {len(tagged)} tagged items and {len(truth)} labels.")
    [metrics] = import_extra("sklearn.metrics")
    names = list(dict.fromkeys([*truth, *(tag for tag in tagged if tag is not None)]))
    if not names:
        return []
    given = ["" if tag is None else tag for tag in tagged]
    columns = metrics.precision_recall_fscore_support(truth, given, labels=names, zero_division=np.nan)
    found = []
    for name, *figures, support in zip(names, *columns, strict=True):
        precision, recall, f1 = (None if math.isnan(figure) else float(figure) for figure in figures)
        found.append(CategoryFigures(name, precision, recall, f1, int(support)))
    return found


def _text(checklist: Checklist) -> str:
    return "\n".join(item.question for item in checklist.items)


MIN_TARGETS = 5
"""Correlations are None below this number of targets."""
ALWAYS, NEVER = 0.95, 0.05
LOW_DISCRIMINATION = 0.1
SAME_ANSWERS = 0.9
"""Two items give the same answers if their phi is at least this."""
SAME_WORDS = 0.85
STABLE = 0.9
OFTEN_UNANSWERED = 0.2
FLAGS = {
    "always_passes": f"passes {ALWAYS:.0%} of its targets or more",
    "never_passes": f"passes {NEVER:.0%} of its targets or fewer",
    "inverted": "passes where the other items fail",
    "not_discriminating": f"item-rest correlation below {LOW_DISCRIMINATION}",
    "same_answers": f"another item gives the same answers (phi {SAME_ANSWERS} or more)",
    "same_words": f"another item asks nearly the same (cosine {SAME_WORDS} or more)",
    "unstable": f"fewer than {STABLE:.0%} of repeated answers agree with the first",
    "often_unanswered": f"{OFTEN_UNANSWERED:.0%} of its reads or more were unanswered",
}
"""The flags an item can get, with their conditions."""


@dataclass(frozen=True, slots=True)
class ItemReport:
    """The figures and flags of one item."""

    id: str
    """The item's id; "<id>#2" for the second copy of a repeated question."""
    question: str
    category: str | None
    answered: int
    unanswered: int
    pass_rate: float | None
    """In [0, 1]; for a penalty, the fraction of targets without the fault."""
    variance: float | None
    """p (1 - p), in [0, 0.25]."""
    discrimination: float | None
    """Item-rest correlation: Pearson's r over targets between passing the item and the fraction of the target's other
    answered items that pass, in [-1, 1]. Near 0 the item measures something unrelated, below 0 the opposite. None for
    fewer than 5 targets, or if the item or the rest is constant."""
    same_answers: str | None = None
    """Question of the item of the same checklist with the most similar answers."""
    phi: float | None = None
    """Pearson's r of passing the two items."""
    same_words: str | None = None
    """Question with the most similar wording, among the items that could be the same question (see `comparable`)."""
    similarity: float | None = None
    """Cosine of the sentence embeddings."""
    stability: float | None = None
    """Fraction of repeated answers that agree with the first, in [0, 1]. Repeats are further scorings, paraphrased
    questions, and the samples of a voting judge, which are compared with the outcome of the vote."""
    repeats: int = 0
    flags: tuple[str, ...] = ()


@dataclass
class _ItemRecord:
    """The answers of one item: the indices of the targets, and whether they passed."""

    question: str
    category: str | None
    targets: array[int] = field(default_factory=lambda: array("L"))
    passed: bytearray = field(default_factory=bytearray)
    unanswered: int = 0
    repeats: int = 0
    agreeing: int = 0

    @property
    def answers(self) -> np.ndarray:
        """1 for every target that passed, else 0."""
        return np.frombuffer(bytes(self.passed), dtype=np.uint8).astype(float)

    def add_samples(self, line: ItemScore) -> None:
        """Count the samples of one judge as repeats. The votes of a panel of several judges are not repeats."""
        if line.answer is not None and line.method == "votes" and len({vote.judge for vote in line.votes or ()}) == 1:
            answers = [vote.answer for vote in line.votes or () if vote.answer is not None]
            if len(answers) > 1:  # a single vote always agrees with the outcome
                self.repeats += len(answers)
                self.agreeing += answers.count(line.answer)


class ItemAnalysis:
    """Collects scores one by one with [`add`] and computes all figures in [`report`]; see the module docstring."""

    def __init__(self) -> None:
        self._items: dict[str, _ItemRecord] = {}
        self._checklists: set[tuple[str, ...]] = set()
        self._passed: array[int] = array("L")
        self._answered: array[int] = array("L")
        self.no_answer = 0
        """Number of targets that were left out because they have no answer."""
        self.penalties: set[str] = set()
        """Ids of the items with a negative weight, which pass if the answer is no."""

    @property
    def targets(self) -> int:
        """Number of targets added, without those that have no answer."""
        return len(self._answered)

    def add(self, score: Score) -> None:
        """Add the score of one target."""
        if score.no_answer:
            self.no_answer += 1
            return
        number = self.targets
        answered = 0
        passing = 0
        keys = item_keys(score.items)
        for key, line in zip(keys, score.items, strict=True):
            record = self._items.setdefault(key, _ItemRecord(line.question, line.category))
            record.add_samples(line)
            if line.weight < 0:
                self.penalties.add(key)
            if line.passed is None:
                record.unanswered += line.unanswered is not None and not line.not_needed
                continue
            record.targets.append(number)
            record.passed.append(line.passed)
            answered += 1
            passing += line.passed
        self._answered.append(answered)
        self._passed.append(passing)
        self._checklists.add(keys)

    def add_repeat(self, first: Score, again: Score) -> None:
        """Compare a repeated scoring of a target with the first one, item by item in order.

        Raises:
            SampleError: If the two scores have different numbers of items.
        """
        if len(first.items) != len(again.items):
            raise SampleError(
                f"the repeated score has {len(again.items)} items, but the first has {len(first.items)}."
            )
        for key, line, other in zip(item_keys(first.items), first.items, again.items, strict=True):
            if line.answer is not None and other.answer is not None:
                record = self._items.setdefault(key, _ItemRecord(line.question, line.category))
                record.repeats += 1
                record.agreeing += line.answer == other.answer

    def report(self, embedder: Embedder | None = None) -> list[ItemReport]:
        """One report per item, in order of first appearance. Without `embedder`, wordings are not compared."""
        answers = self._most_similar_answers()
        words = {} if embedder is None else self._most_similar_wording(embedder)
        none = None, None
        return [self._report(id, *answers.get(id, none), *words.get(id, none)) for id in self._items]

    def _report(
        self, id: str, phi: float | None, answered_alike: str | None, cosine: float | None, worded_alike: str | None
    ) -> ItemReport:
        record = self._items[id]
        count = len(record.targets)
        pass_rate = ratio(sum(record.passed), count)
        discrimination = self._discrimination(record)
        stability = ratio(record.agreeing, record.repeats)
        unanswered = ratio(record.unanswered, count + record.unanswered) or 0.0
        rate = pass_rate if count >= MIN_TARGETS else None
        conditions = {
            "always_passes": rate is not None and rate >= ALWAYS,
            "never_passes": rate is not None and rate <= NEVER,
            "inverted": discrimination is not None and discrimination < 0,
            "not_discriminating": discrimination is not None and 0 <= discrimination < LOW_DISCRIMINATION,
            "same_answers": phi is not None and phi >= SAME_ANSWERS,
            "same_words": cosine is not None and cosine >= SAME_WORDS,
            "unstable": stability is not None and stability < STABLE,
            "often_unanswered": unanswered >= OFTEN_UNANSWERED,
        }
        return ItemReport(
            id=id,
            question=record.question,
            category=record.category,
            answered=count,
            unanswered=record.unanswered,
            pass_rate=pass_rate,
            variance=None if pass_rate is None else pass_rate * (1 - pass_rate),
            discrimination=discrimination,
            same_answers=None if answered_alike is None else self._items[answered_alike].question,
            phi=phi,
            same_words=None if worded_alike is None else self._items[worded_alike].question,
            similarity=cosine,
            stability=stability,
            repeats=record.repeats,
            flags=tuple(name for name, holds in conditions.items() if holds),
        )

    def _discrimination(self, record: _ItemRecord) -> float | None:
        targets = np.asarray(record.targets, dtype=np.int64)
        own = record.answers
        others = np.asarray(self._answered)[targets] - 1.0
        rest = np.asarray(self._passed)[targets] - own
        return correlation(own[others > 0], rest[others > 0] / others[others > 0], MIN_TARGETS)

    def _most_similar_answers(self) -> dict[str, tuple[float, str]]:
        """Per item, the phi and the id of the item of the same checklist with the most similar answers."""
        best: dict[str, tuple[float, str]] = {}
        for one, other in {pair for checklist in self._checklists for pair in combinations(sorted(checklist), 2)}:
            first, second = self._items[one], self._items[other]
            if min(len(first.targets), len(second.targets)) < MIN_TARGETS:
                continue
            _, first_at, second_at = np.intersect1d(
                first.targets, second.targets, assume_unique=True, return_indices=True
            )
            phi = correlation(first.answers[first_at], second.answers[second_at], MIN_TARGETS)
            if phi is None:
                continue
            for id, partner in ((one, other), (other, one)):
                if id not in best or (phi, partner) > best[id]:
                    best[id] = phi, partner
        return best

    def _most_similar_wording(self, embedder: Embedder) -> dict[str, tuple[float, str]]:
        """Per item, the cosine and the id of the item of the same checklist with the most similar wording."""
        best: dict[str, tuple[float, str]] = {}
        for checklist in self._checklists:
            items = [ChecklistItem(id=id, question=self._items[id].question) for id in checklist]
            if len(items) < 2:
                continue
            # Questions that differ in a number, a quoted word or a "not" have similar embeddings but are not the same.
            cosines = np.where(comparable(items), similarities(embedder, items), -1.0)
            np.fill_diagonal(cosines, -1.0)
            for row, item in enumerate(items):
                nearest = int(cosines[row].argmax())
                candidate = float(cosines[row, nearest]), items[nearest].id
                if candidate[0] > -1.0 and (item.id not in best or candidate > best[item.id]):
                    best[item.id] = candidate
        return best


def flagged(reports: Sequence[ItemReport]) -> list[ItemReport]:
    """The items with at least one flag, those with the most flags first."""
    return sorted((line for line in reports if line.flags), key=lambda line: (-len(line.flags), line.question))
