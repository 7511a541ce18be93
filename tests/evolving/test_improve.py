"""The rubric loop, on checklists with known faults: who answers, who labels and what is wrong is known."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evolving.improve import improve
from checklist_rewards.evolving.rewriting import Finding, Rewriter
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from tests.backends.answerserver import scripted
from tests.rewards.fakes import scorer_by

WORDS = ("red", "old", "big", "new")
DRAWS, QUICKLY = Bootstrap(200), Bootstrap(0)


def asked(*words, **weights):
    return Checklist.parse([{"question": f"Is it {word}?", "weight": weights.get(word, 1)} for word in words])


def rows_of(checklist, answers, labels, each=2):
    """Stored rows: `answers` has P(yes) by word, as arrays."""
    rows = []
    for number, label in enumerate(labels):
        yes = [float(answers[item.question.split()[-1].rstrip("?")][number]) for item in checklist.items]
        score = score_checklist(checklist, [Verdict({"yes": p, "no": 1 - p}, method="logprobs") for p in yes])
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


def improved(checklist, answers, labels, *, bootstrap=DRAWS, each=2, **options):
    return improve(checklist, rows_of(checklist, answers, labels, each), bootstrap=bootstrap, **options)


def last_third(rows):
    """The places of the rows of the last third of the groups, as the module docstring draws them."""
    groups = list(dict.fromkeys(row.group for row in rows))
    order = np.random.default_rng(0).permutation(len(groups))
    last = {groups[n] for n in np.array_split(order, 3)[2]}
    return [place for place, row in enumerate(rows) if row.group in last]


def correlation(rows, labels):
    """Of the scores of the last third of the groups with their labels."""
    last = last_third(rows)
    return np.corrcoef([rows[place].score.primary_score for place in last], [labels[place] for place in last])[0, 1]


def kinds(found, kept=True):
    return [step.change.kind for step in found.steps if step.kept is kept]


def faults(found):
    return {(one.item.question, one.fault) for one in found.findings}


def questions(found):
    return [item.question for item in found.checklist.items]


# --- what is wrong with items


RUDE = {("Is it rude?", "disagrees"), ("Is it new?", "unrelated")}


def test_an_item_that_disagrees_is_turned_and_an_unrelated_one_dropped():
    answers, labels = world()
    answers["rude"] = 1 - answers["big"]
    found = improved(asked("red", "old", "rude", "new"), answers, labels)
    assert faults(found) == RUDE and found.findings[0].fault == "disagrees"
    assert kinds(found)[:2] == ["turn", "drop"] and questions(found)[:3] == ["Is it red?", "Is it old?", "Is it rude?"]
    assert [item.weight < 0 for item in found.checklist.items] == [False, False, True]
    assert found.figures["gain"].low > 0.2
    assert [step.level for step in found.steps[:2]] == [0.025, pytest.approx(0.05 / 6)]


def test_copies_are_merged_and_the_figures_are_those_of_the_score():
    answers, labels = world(900)
    answers["crimson"] = answers["red"] * 0.98
    checklist = asked("red", "crimson", "old", "big", crimson=2)
    found = improved(checklist, answers, labels)
    assert {one.fault for one in found.findings} == {"redundant"}
    assert kinds(found)[0] in ("merge", "drop") and len(found.checklist) == 3
    for name, shown in (("before", checklist), ("after", found.checklist)):
        assert found.figures[name].value == pytest.approx(correlation(rows_of(shown, answers, labels), labels))


def test_of_two_items_that_contradict_each_other_the_wrong_one_goes():
    answers, labels = world()
    answers["pale"] = 1 - answers["red"] * 0.99
    for checklist in (asked("red", "pale", "old"), asked("pale", "red", "old")):
        found = improved(checklist, answers, labels)
        contradict = {("Is it red?", "contradicts"), ("Is it pale?", "contradicts"), ("Is it pale?", "disagrees")}
        assert contradict <= faults(found)
        assert kinds(found)[0] in ("turn", "drop") and "merge" not in kinds(found)
        left = {item.question: item.weight for item in found.checklist.items}
        assert left["Is it red?"] > 0 and left.get("Is it pale?", -1) < 0


def test_a_constant_item_goes_only_with_a_tolerance():
    answers, labels = world()
    answers["long"] = np.full(600, 0.9)
    checklist = asked("red", "old", "big", "long")
    found = improved(checklist, answers, labels)
    assert [one.fault for one in found.findings] == ["no_variance"] and found.checklist.items == checklist.items
    assert not kinds(found) and found.stopped == "no gain" and found.figures["gain"].value == 0
    assert found.rows == (200, 200, 200) and found.reads == 0
    assert kinds(improved(checklist, answers, labels, tolerance=0.01)) == ["drop"]


def test_weights_are_the_last_stage():
    answers, labels = world(900)
    found = improved(asked(*WORDS, red=8, new=0.05), answers, labels + 0.02 * answers["new"])
    assert kinds(found)[-1] == "reweight" and len(found.checklist) == 3, "an item whose weight is near 0 goes"
    weights = [item.weight for item in found.checklist.items]
    assert max(weights) / min(weights) < 1.5 and found.figures["gain"].low > 0
    assert "reweight, kept: weights fitted to the labels" in found.diff()
    assert "- Is it red? (weight 8)" in found.diff()
    assert json.loads(json.dumps(found.dumped()))["steps"][-1]["kind"] == "reweight"


@pytest.mark.parametrize("kind", ["plain", "penalties", "required", "unanswered", "pass rate"])
def test_the_figures_are_those_of_the_scores(kind):
    answers, labels = world(120)
    weight = {"plain": 2, "penalties": -2}.get(kind, 1)
    words = [{"question": f"Is it {word}?", "weight": weight if kind == "penalties" else 1} for word in WORDS]
    words[0] |= {"weight": weight, "required": kind == "required"}
    checklist = Checklist.parse(words)
    rules = Aggregation(primary_metric="pass" if kind == "pass rate" else "expected")
    rows = []
    for place, row in enumerate(rows_of(checklist, answers, -labels if kind == "penalties" else labels)):
        verdicts = [line.verdict() for line in row.score.items]
        if kind == "unanswered":
            verdicts[place % 4] = Verdict(unanswered="timeout")
        rows.append(replace(row, score=score_checklist(checklist, verdicts, rules)))
    found = improve(checklist, rows, bootstrap=QUICKLY)
    assert found.figures["before"].value == pytest.approx(correlation(rows, [row.labels for row in rows]))


# --- chance


def test_few_groups_of_dependent_rows_change_nothing_by_chance():
    """With the normal quantile and without G / (G - 1), 13 % of such runs kept a change."""
    kept = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        answers = {word: rng.beta(0.4, 0.4, 60) for word in WORDS}
        labels = rng.standard_normal(60) + np.repeat(rng.standard_normal(15), 4)  # a part common to a group
        kept += bool(kinds(improved(asked(*WORDS), answers, labels, bootstrap=QUICKLY, each=4)))
    assert kept <= 3


# --- pairs as labels


def preferred(labels, each=2):
    """A pair per input: the text with the higher label is chosen."""
    firsts = range(0, len(labels), each)
    return [(n, n + 1) if labels[n] > labels[n + 1] else (n + 1, n) for n in firsts]


def test_preferences_are_labels_too():
    answers, labels = world(900)
    answers["rude"] = 1 - answers["big"]
    checklist = asked("red", "old", "rude", "new")
    rows = rows_of(checklist, answers, np.zeros(900))
    found = improve(checklist, rows, pairs=preferred(labels), bootstrap=DRAWS)
    assert faults(found) == RUDE
    assert kinds(found)[0] == "turn" and found.measure == "in order" and found.rows == (150, 150, 150)
    assert found.figures["before"].value < 0.75 < 0.85 < found.figures["after"].value
    last, scores = set(last_third(rows)), [row.score.primary_score for row in rows]
    in_order = np.mean([scores[one] > scores[other] for one, other in preferred(labels) if one in last])
    assert found.figures["before"].value == pytest.approx(in_order)
    assert f"agreement on 150 test pairs: {in_order:.3f}" in found.diff()
    assert found.dumped()["measure"] == "in order"
    by_chance = [pair[:: int(sign)] for pair, sign in zip(preferred(labels), [1, -1] * 225, strict=True)]
    assert not kinds(improved(asked(*WORDS[:3]), answers, labels, pairs=by_chance))


# --- a writer


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


def unread(checklist):
    return [
        ScoredText(str(n), f"rows.jsonl, row {n + 1}", group=f"input {n // 2}", labels=float(label),
                   sample=Sample(checklist, text, f"input {n // 2}"))
        for n, (text, label) in enumerate(zip(*reading(), strict=True))
    ]  # fmt: skip


@contextmanager
def writing(reply, store=False, proposer=None):
    """`write(checklist, ...)` improves a checklist with a writer that always gives this reply. The server of
    the writer, and the scorer and the writer of the last run, are its attributes."""
    with scripted(json.dumps(REPLIES[reply])) as server:

        def write(checklist, **options):
            write.scorer = scorer_by(finds, store=store)
            made = {"backend": "openai", "base_url": server.base_url, "store": store}
            write.writer = Rewriter("writer", **made)
            write.writer.proposer = proposer or write.writer.proposer
            last = {"scorer": write.scorer, "writer": write.writer, "bootstrap": DRAWS}
            return improve(checklist, unread(checklist), **last, **options)

        write.server = server
        yield write


def test_a_writer_adds_what_is_missing_and_a_second_run_asks_nobody(tmp_path):
    found, prompts, reads = [], [], []
    with writing("new", store=tmp_path / "store.sqlite") as write:
        for _ in range(2):
            found.append(write(asked("red", "old")))
            prompts.append(len(write.server.prompts))
            reads.append(write.scorer.receipt.asked)
    assert found[0] == found[1] and prompts[0] == prompts[1] > 0 and reads[0] > reads[1] == 0
    assert kinds(found[0])[0] == "new" and "Is it big?" in questions(found[0])
    assert found[0].figures["gain"].value > 0.1 and found[0].reads == 240


def test_a_question_about_two_things_is_split():
    with writing("split", proposer=lambda groups: [[], None]) as write:
        found = write(Checklist.parse(["Is it red?", "Is it old? Is it big?"]))
    assert not any(isinstance(one, ChecklistError) for one in write.writer.failures), "an empty one counts as none"
    [split] = [step for step in found.steps if step.change.kind == "split"]
    assert split.kept and [item.weight for item in split.change.after] == [0.5, 0.5]
    assert any(one.fault == "wording" for one in found.findings)


def test_what_is_no_question_or_asked_already_is_no_change():
    checklist = Checklist.parse(["Is it red?", "Is it old? Is it big?", "Is it big?"])
    weak = [Finding(checklist.items[0], "unrelated", "")]
    wordings, halves = ["Say whether it is red.", "is it BIG?", "Is it crimson?"], ["Is it old?", "Is it big?"]
    with scripted(json.dumps({"wordings": wordings, "questions": halves})) as server:
        writer = Rewriter("writer", base_url=server.base_url, store=False)
        writer.paraphraser.count = 3
        changes = writer.changes(checklist, weak, [])
        alone = writer.changes(Checklist(items=checklist.items[:2]), [], [])
    assert [one.after[0].question for one in changes] == ["Is it crimson?"]
    assert [[item.question for item in one.after] for one in alone] == [halves]


def test_the_budget_of_reads_is_kept():
    checklist = asked("red", "old")
    with writing("new") as write:
        found = write(checklist, max_reads=79)
    assert found.stopped == "budget" and found.reads == 0 and found.checklist.items == checklist.items


# --- what is refused


STORED = rows_of(asked(*WORDS), *world(60))
PAIRED = {"rows": rows_of(asked("red", "old"), *world(200)), "checklist": asked("red", "old")}
PAIRS = preferred(world(200)[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": STORED[:59]}, "rows.jsonl has 59 labelled rows in 30 groups; .* at least 60 in 15"),
        (
            {"checklist": asked("red", "odd")},
            r"row 1: item \w+ \('Is it odd\?'\) of the checklist has no stored answer",
        ),
        (
            {"rows": [replace(row, labels=1.0) for row in STORED]},
            "all labels of a third of the groups are equal",
        ),
        ({"writer": Rewriter("writer", store=False)}, "a writer's items have no stored answers"),
        ({"tolerance": 1}, "tolerance=1 is not allowed"),
        (
            {**PAIRED, "pairs": [*PAIRS, (0, 3)]},
            "of the groups 'input 0' and 'input 1'; the texts of a pair need one group",
        ),
        (
            {**PAIRED, "pairs": PAIRS[:40]},
            "has 40 pairs in 40 groups; improving a checklist needs at least 60",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, words):
    with pytest.raises(SampleError, match=words):
        improve(**{"checklist": asked(*WORDS), "rows": STORED} | arguments)
