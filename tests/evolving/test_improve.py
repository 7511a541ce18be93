"""The rubric loop, on checklists with known faults: who answers, who labels and what is wrong is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evolving.improve import FAULTS, improve
from checklist_rewards.evolving.rewriting import Rewriter
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from tests.backends.answerserver import scripted
from tests.fakes import FakeBackend

WORDS = ("red", "old", "big", "new")
DRAWS = Bootstrap(200)


def asked(*words, **weights):
    return Checklist.parse([{"question": f"Is it {word}?", "weight": weights.get(word, 1)} for word in words])


def rows_of(checklist, answers, labels, each=2):
    """Stored rows: `answers` has P(yes) by word, as arrays."""
    rows = []
    for number, label in enumerate(labels):
        verdicts = []
        for item in checklist.items:
            p = float(answers[item.question.split()[-1].rstrip("?")][number])
            verdicts.append(Verdict({"yes": p, "no": 1 - p}, method="logprobs"))
        score = score_checklist(checklist, verdicts)
        sample = Sample(checklist, f"text {number}", f"input {number // each}")
        where = f"rows.jsonl, row {number + 1}"
        rows.append(ScoredText(where, where, score, sample.input, labels=float(label), sample=sample))
    return rows


def world(count=600, seed=0, noise=0.15):
    """Answers to independent questions, of which the labels count `red`, `old` and `big`."""
    rng = np.random.default_rng(seed)
    answers = {word: rng.beta(0.4, 0.4, count) for word in WORDS}
    labels = sum(answers[word] for word in WORDS[:3]) + noise * rng.standard_normal(count)
    return answers, labels


def kinds(found, kept=True):
    return [step.change.kind for step in found.steps if step.kept is kept]


def questions(found):
    return [item.question for item in found.checklist.items]


def test_a_good_checklist_stays():
    answers, labels = world()
    checklist = asked(*WORDS[:3])
    found = improve(checklist, rows_of(checklist, answers, labels), bootstrap=DRAWS)
    assert found.checklist.items == checklist.items and not kinds(found) and found.stopped == "no gain"
    assert found.figures["gain"].value == 0 and found.rows == (200, 200, 200) and found.reads == 0


def test_an_item_that_disagrees_is_turned_and_an_unrelated_one_dropped():
    answers, labels = world()
    answers["rude"] = 1 - answers["big"]
    checklist = asked("red", "old", "rude", "new")
    found = improve(checklist, rows_of(checklist, answers, labels), bootstrap=DRAWS)
    assert [(one.item.question, one.fault) for one in found.findings] == [
        ("Is it rude?", "disagrees"),
        ("Is it new?", "unrelated"),
    ]
    assert kinds(found)[:2] == ["turn", "drop"] and questions(found)[:3] == ["Is it red?", "Is it old?", "Is it rude?"]
    assert [item.weight < 0 for item in found.checklist.items] == [False, False, True]
    assert found.figures["gain"].low > 0.2
    assert [step.level for step in found.steps[:2]] == [0.025, pytest.approx(0.05 / 6)]


def preferred(labels, each=2, noise=0.0):
    """A pair per input: the text with the higher label is chosen."""
    rng = np.random.default_rng(1)
    found = []
    for first in range(0, len(labels), each):
        one, other = labels[first : first + 2] + noise * rng.standard_normal(2)
        found.append((first, first + 1) if one > other else (first + 1, first))
    return found


def test_preferences_are_labels_too():
    answers, labels = world(900)
    answers["rude"] = 1 - answers["big"]
    checklist = asked("red", "old", "rude", "new")
    rows = rows_of(checklist, answers, np.zeros(900))
    found = improve(checklist, rows, pairs=preferred(labels), bootstrap=DRAWS)
    assert {(one.item.question, one.fault) for one in found.findings} == {
        ("Is it rude?", "disagrees"),
        ("Is it new?", "unrelated"),
    }
    assert kinds(found)[0] == "turn" and found.measure == "in order" and found.rows == (150, 150, 150)
    assert found.figures["before"].value < 0.75 < 0.85 < found.figures["after"].value
    pairs = [pair for pair in preferred(labels) if rows[pair[0]].group in last_groups(rows)]
    scores = [row.score.primary_score for row in rows]
    in_order = np.mean([scores[one] > scores[other] for one, other in pairs])
    assert found.figures["before"].value == pytest.approx(in_order)
    assert f"agreement on 150 test pairs: {in_order:.3f}" in found.diff()
    assert found.dumped()["measure"] == "in order"
    right = asked(*WORDS[:3])
    by_chance = [pair[:: int(sign)] for pair, sign in zip(preferred(labels), [1, -1] * 225, strict=True)]
    assert not kinds(improve(right, rows_of(right, answers, labels), pairs=by_chance, bootstrap=DRAWS))


def test_pairs_that_cannot_be_used_are_refused():
    answers, labels = world(200)
    checklist = asked("red", "old")
    rows = rows_of(checklist, answers, labels)
    with pytest.raises(SampleError, match="of the groups 'input 0' and 'input 1'; the texts of a pair need one group"):
        improve(checklist, rows, pairs=[*preferred(labels), (0, 3)])
    with pytest.raises(SampleError, match="has 40 pairs in 40 groups; improving a checklist needs at least 60"):
        improve(checklist, rows, pairs=preferred(labels)[:40])


def test_copies_are_merged_and_the_figures_are_those_of_the_score():
    answers, labels = world(900)
    answers["crimson"] = answers["red"] * 0.98
    checklist = asked("red", "crimson", "old", "big", crimson=2)
    rows = rows_of(checklist, answers, labels)
    found = improve(checklist, rows, bootstrap=DRAWS)
    assert {one.fault for one in found.findings} == {"redundant"}
    assert kinds(found)[0] in ("merge", "drop") and len(found.checklist) == 3
    again = rows_of(found.checklist, answers, labels)
    scores = np.array([row.score.primary_score for row in again])
    before = np.array([row.score.primary_score for row in rows])
    rest = np.array([n for n, row in enumerate(rows) if row.group in last_groups(rows)])
    assert found.figures["after"].value == pytest.approx(np.corrcoef(scores[rest], labels[rest])[0, 1])
    assert found.figures["before"].value == pytest.approx(np.corrcoef(before[rest], labels[rest])[0, 1])


def last_groups(rows):
    """The groups of the last third, as the module docstring draws them."""
    groups = list(dict.fromkeys(row.group for row in rows))
    order = np.random.default_rng(0).permutation(len(groups))
    return {groups[n] for n in np.array_split(order, 3)[2]}


def test_of_two_items_that_contradict_each_other_the_wrong_one_goes():
    answers, labels = world()
    answers["pale"] = 1 - answers["red"] * 0.99
    for checklist in (asked("red", "pale", "old", "big"), asked("pale", "red", "old", "big")):
        found = improve(checklist, rows_of(checklist, answers, labels), bootstrap=DRAWS)
        faults = {(one.item.question, one.fault) for one in found.findings}
        assert {("Is it red?", "contradicts"), ("Is it pale?", "contradicts"), ("Is it pale?", "disagrees")} <= faults
        assert kinds(found)[0] in ("turn", "drop") and "merge" not in kinds(found)
        left = {item.question: item.weight for item in found.checklist.items}
        assert left["Is it red?"] > 0 and left.get("Is it pale?", -1) < 0


@pytest.mark.parametrize("kind", ["plain", "penalties", "required", "unanswered", "pass rate"])
def test_the_figures_are_those_of_the_scores(kind):
    answers, labels = world(120)
    weights = {"plain": 2, "penalties": -2}.get(kind, 1)
    words = [{"question": f"Is it {word}?", "weight": weights if kind == "penalties" else 1} for word in WORDS]
    words[0] |= {"weight": weights, "required": kind == "required"}
    checklist = Checklist.parse(words)
    rows = rows_of(checklist, answers, -labels if kind == "penalties" else labels)
    scored = []
    for row in rows:
        verdicts = [line.verdict() for line in row.score.items]
        if kind == "unanswered":
            verdicts[len(scored) % 4] = Verdict(unanswered="timeout")
        rules = Aggregation(primary_metric="pass" if kind == "pass rate" else "expected")
        scored.append(score_checklist(checklist, verdicts, rules))
    rows = [replace(row, score=score) for row, score in zip(rows, scored, strict=True)]
    found = improve(checklist, rows, bootstrap=Bootstrap(0))
    last = [n for n, row in enumerate(rows) if row.group in last_groups(rows)]
    numbers = [scored[n].primary_score for n in last]
    expected = np.corrcoef(numbers, [rows[n].labels for n in last])[0, 1]
    assert found.figures["before"].value == pytest.approx(expected)


def test_a_constant_item_goes_only_with_a_tolerance():
    answers, labels = world()
    answers["long"] = np.full(600, 0.9)
    checklist = asked("red", "old", "big", "long")
    rows = rows_of(checklist, answers, labels)
    found = improve(checklist, rows, bootstrap=DRAWS)
    assert [one.fault for one in found.findings] == ["no_variance"] and len(found.checklist) == 4
    found = improve(checklist, rows, bootstrap=DRAWS, tolerance=0.01)
    assert kinds(found) == ["drop"] and len(found.checklist) == 3


def test_labels_by_chance_change_nothing():
    """The levels of all tests sum to 5 %: of 20 runs on noise, few may keep a change."""
    kept = 0
    for seed in range(20):
        answers, labels = world(150, seed)
        checklist = asked(*WORDS)
        noise = np.random.default_rng(100 + seed).permutation(labels)
        kept += bool(kinds(improve(checklist, rows_of(checklist, answers, noise), bootstrap=Bootstrap(0))))
    assert kept <= 3


def test_few_groups_of_dependent_rows_change_nothing_by_chance():
    """With the normal quantile and without G / (G - 1), 13 % of such runs kept a change."""
    kept = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        answers = {word: rng.beta(0.4, 0.4, 60) for word in WORDS}
        labels = rng.standard_normal(60) + np.repeat(rng.standard_normal(15), 4)  # a part common to a group
        rows = rows_of(asked(*WORDS), answers, labels, each=4)
        kept += bool(kinds(improve(asked(*WORDS), rows, bootstrap=Bootstrap(0))))
    assert kept <= 3


def test_weights_are_the_last_stage():
    answers, labels = world(900)
    checklist = asked("red", "old", "big", red=8)
    found = improve(checklist, rows_of(checklist, answers, labels), bootstrap=DRAWS)
    assert kinds(found)[-1] == "reweight"
    weights = [item.weight for item in found.checklist.items]
    assert max(weights) / min(weights) < 1.5 and found.figures["gain"].low > 0
    assert "reweight, kept: weights fitted to the labels" in found.diff()
    assert "- Is it red? (weight 8)" in found.diff()
    assert json.loads(json.dumps(found.dumped()))["steps"][-1]["kind"] == "reweight"


REPLIES = {
    "wordings": {"wordings": ["Is it crimson?", "Is it scarlet?"]},
    "split": {"questions": ["Is it old?", "Is it big?"]},
    "new": {"questions": [{"question": "Is it big?", "category": "hard_rule"}]},
}


def reading(count=240, seed=1):
    """Texts of words, the labels that count three of them, and a judge that looks for the word of the question."""
    rng = np.random.default_rng(seed)
    has = {word: rng.random(count) < 0.5 for word in WORDS}
    texts = [" ".join([f"text {n}", *(word for word in WORDS if has[word][n])]) for n in range(count)]
    labels = sum(has[word].astype(float) for word in WORDS[:3]) + 0.1 * rng.standard_normal(count)
    return texts, labels


def finds(prefix, tail):
    text = prefix.rpartition("<response")[2]
    asked_words = [word for word in WORDS if word in tail.rpartition("Is it")[2]]
    return 0.9 if asked_words and all(word in text for word in asked_words) else 0.1


def unread(checklist, texts, labels):
    return [
        ScoredText(str(n), f"rows.jsonl, row {n + 1}", group=f"input {n // 2}", labels=float(label),
                   sample=Sample(checklist, text, f"input {n // 2}"))
        for n, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]  # fmt: skip


def test_a_writer_adds_what_is_missing_and_a_second_run_asks_nobody(tmp_path):
    texts, labels = reading()
    checklist, store = asked("red", "old"), tmp_path / "store.sqlite"
    rows = unread(checklist, texts, labels)
    found, prompts, receipts = [], [], []
    with scripted(json.dumps(REPLIES["new"])) as server:
        for _ in range(2):
            scorer = ChecklistScorer("judge", backend=FakeBackend(finds), store=store)
            writer = Rewriter("writer", backend="openai", base_url=server.base_url, store=store)
            found.append(improve(checklist, rows, scorer=scorer, writer=writer, bootstrap=DRAWS))
            prompts.append(len(server.prompts))
            receipts.append(scorer.receipt.asked)
    assert found[0] == found[1] and prompts[0] == prompts[1] > 0 and receipts[0] > receipts[1] == 0
    assert kinds(found[0])[0] == "new" and "Is it big?" in questions(found[0])
    assert found[0].figures["gain"].value > 0.1 and found[0].reads == 240


def test_a_question_about_two_things_is_split():
    texts, labels = reading()
    checklist = Checklist.parse(["Is it red?", "Is it old? Is it big?"])
    with scripted(json.dumps(REPLIES["split"])) as server:
        scorer = ChecklistScorer(backend=FakeBackend(finds), store=False)
        made = {"backend": "openai", "base_url": server.base_url, "store": False}
        writer = Rewriter("writer", proposer=lambda groups: [[], None], **made)
        rows = unread(checklist, texts, labels)
        found = improve(checklist, rows, scorer=scorer, writer=writer, bootstrap=DRAWS)
    assert not any(isinstance(one, ChecklistError) for one in writer.failures), "an empty one counts as none"
    [split] = [step for step in found.steps if step.change.kind == "split"]
    assert split.kept and [item.weight for item in split.change.after] == [0.5, 0.5]
    assert any(one.fault == "wording" for one in found.findings)


def test_the_budget_of_reads_is_kept():
    texts, labels = reading()
    checklist = asked("red", "old")
    with scripted(json.dumps(REPLIES["new"])) as server:
        scorer = ChecklistScorer(backend=FakeBackend(finds), store=False)
        writer = Rewriter("writer", backend="openai", base_url=server.base_url, store=False)
        rows = unread(checklist, texts, labels)
        found = improve(checklist, rows, scorer=scorer, writer=writer, bootstrap=DRAWS, max_reads=79)
    assert found.stopped == "budget" and found.reads == 0 and found.checklist.items == checklist.items


def test_what_cannot_be_used_is_refused():
    answers, labels = world(60)
    checklist = asked(*WORDS)
    rows = rows_of(checklist, answers, labels)
    with pytest.raises(SampleError, match="rows.jsonl has 59 labelled rows in 30 groups; .* at least 60 in 15"):
        improve(checklist, rows[:59])
    with pytest.raises(SampleError, match=r"row 1: item \w+ \('Is it odd\?'\) of the checklist has no stored answer"):
        improve(asked("red", "odd"), rows)
    with pytest.raises(SampleError, match="all labels of a third of the groups are equal"):
        improve(checklist, [replace(row, labels=1.0) for row in rows])
    with pytest.raises(SampleError, match="a writer's items have no stored answers"):
        improve(checklist, rows, writer=Rewriter("writer", store=False))
    with pytest.raises(SampleError, match="tolerance=1 is not allowed"):
        improve(checklist, rows, tolerance=1)
    assert all(condition for condition in FAULTS.values())
