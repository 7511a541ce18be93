"""`attack`: what counts as a rise, what the search finds, the budget, failures and resuming."""

import json
import re
from dataclasses import replace
from itertools import cycle

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.attacks.attack import attack, bad_responses, default_rows, frequent_words, prompt_key
from checklist_rewards.backends import Answer
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.judges.checked import run_check
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.rerank import Pool
from checklist_rewards.rows import Columns
from tests.fakes import FakeBackend
from tests.monitor.fakes import OptionsBackend
from tests.test_images import IMAGES, Seeing

COLORS = ("red", "blue", "green", "grey", "pink", "brown", "black", "white")
ROWS = [
    Pool([f"Is it a {color} bird?", "Is it a story?"], (f"Story: a {color} owl.",), f"Write about a {color} bird.")
    for color in COLORS
]
QUICK = dict(bootstrap=Bootstrap(50), budget_reads=2_000)


def scorer(rule, **settings) -> ChecklistScorer:
    return ChecklistScorer(backend=FakeBackend(rule), store=False, **settings)


def target(prefix: str) -> str:
    return prefix.split("<target-")[1]


def honest(prefix: str, tail: str) -> float:
    """Finds what the honest responses have, and nothing else."""
    text = target(prefix)
    return 0.9 if "Story:" in text and " owl." in text and "\u200b" not in text else 0.1


def gullible(prefix: str, tail: str) -> float:
    """Also believes what praises itself."""
    return 0.95 if "This response is excellent" in target(prefix) else honest(prefix, tail)


def figures(report, name):
    return next(one for one in report.attacks if one.name == name)


def test_the_weakness_of_a_judge_is_named_and_measured_on_prompts_that_the_search_has_not_seen():
    report = attack(scorer(gullible), ROWS, **QUICK)
    assert "self_praise" in report.chosen and report.searched == report.reported == 4
    assert report.worst.rise.value > 0.6 and report.worst.rise.refused == "needs 15 groups, has 4"
    praise = figures(report, "self_praise")
    assert praise.kind == "praise" and praise.beats.value == 1.0 and praise.failed == 0
    assert report.beats_before.value == pytest.approx(0.0, abs=0.3)
    # an empty response counts as the lowest, and this judge gives any text 0.1: a quarter of the cases
    assert figures(report, "all_met").rise.value == pytest.approx(0.1 / 4)
    assert report.kinds[0].attack in (one.name for one in report.attacks if "self_praise" in one.name)
    assert {item.name for item in report.fallen} <= {q for row in ROWS for q in row.checklist}
    example = report.examples[0]
    assert "This response is excellent" in example.attacked and example.attacked_score == pytest.approx(0.95)
    assert example.honest_score == pytest.approx(0.9) and example.score < 0.5


def test_a_judge_without_a_weakness_shows_none():
    # scores that differ by a rounding error only are equal: none beats an honest response
    report = attack(scorer(lambda prefix, tail: 0.3 + ("owl" not in prefix) * 1e-12), ROWS, **QUICK)
    rises = [one.rise.value for one in report.attacks if one.name != "empty"]
    # a bad empty response counts as the lowest, and any text is worth the judge's 0.3
    assert max(rises) <= 0.3 + 1e-9 and all(item.fell == 0 for item in report.fallen)
    assert report.beats_before.value == 0.0 and {one.beats.value for one in report.attacks} == {0.0}
    assert report.labels == ()


def by_word(prefix: str, tail: str) -> float:
    return 0.9 if "silver" in tail and "silver" in target(prefix) else 0.1


def test_words_that_meet_a_checked_item_are_earned_and_not_gamed():
    check = {"type": "regex", "pattern": "silver", "at_least": 1}
    items = [{"question": "Does it have 'silver'?", "check": check}, "Is it a story?"]
    rows = [Pool(items, row.candidates, row.input) for row in ROWS]
    for checks in ("only", "judge"):
        report = attack(scorer(by_word, checks=checks), rows, attacks=["keywords_after", "all_met"], **QUICK)
        words = figures(report, "keywords_after")
        assert words.earned.value >= 0.4 and words.rise.value == pytest.approx(0.0, abs=0.06), checks
        assert words.beats.value == 0.0, "what was earned beats no honest response"
        assert next(item.fell for item in report.fallen if "silver" in item.name) == 0
    # an empty response counts as the lowest; a text that really avoids a word has earned what it gets for that
    avoid = [{"question": "Is 'silver' absent?", "check": {"type": "regex", "pattern": "silver", "exactly": 0}}]
    rows_avoid = [Pool(avoid, (), row.input) for row in ROWS]
    report = attack(scorer(lambda prefix, tail: 0.9, checks="judge"), rows_avoid, attacks=["colon"], **QUICK)
    assert figures(report, "colon").rise.value == 0.0 and figures(report, "colon").earned.value > 0.3
    assert report.labels == ()  # code has confirmed it, so no label is needed
    # a judge that says yes where code says no is gamed
    judge = scorer(lambda prefix, tail: 0.9 if "All criteria" in prefix else 0.1, checks="judge")
    gamed = figures(attack(judge, rows, attacks=["all_met", "bold"], **QUICK), "all_met")
    assert gamed.rise.value > 0.7 and gamed.earned.value == 0.0


def test_a_judge_is_never_asked_more_than_the_budget_allows():
    judge, budget = scorer(gullible), 1_000
    report = attack(judge, ROWS, budget_reads=budget, bootstrap=Bootstrap(0))
    assert report.reads <= budget and judge.receipt.asked <= report.reads
    assert judge.receipt.reads >= 0.5 * report.reads


def test_a_panel_costs_one_read_per_judge():
    judges = [ChecklistScorer(backend=FakeBackend(gullible, identity=name), store=False).judge for name in "ab"]
    panel = ChecklistScorer(judge=PanelJudge(judges), store=False)
    reports = [
        attack(judge, ROWS, attacks=["colon"], prompts=4, budget_reads=200, bootstrap=Bootstrap(0))
        for judge in (scorer(gullible), panel)
    ]
    assert panel.receipt.asked <= reports[1].reads <= 200
    assert reports[1].rounds < reports[0].rounds


def test_failures_of_the_judge_are_reported_and_enter_no_figure():
    def silent_on_praise(prefix, tail):
        return None if "excellent" in prefix else honest(prefix, tail)

    report = attack(scorer(silent_on_praise), ROWS, attacks=["self_praise", "colon"], **QUICK)
    praise = figures(report, "self_praise")
    assert praise.failed > 0 and praise.cases == 0 and praise.rise.value is None
    assert report.unanswered["too_long"] > 0 and "self_praise" not in report.chosen
    nothing = attack(scorer(lambda prefix, tail: None), ROWS, attacks=["colon"], **QUICK)
    assert nothing.chosen is None and nothing.worst is None and nothing.honest.value is None
    assert nothing.missing["beats"] == "no honest response has a score"


def test_bad_responses_are_bad_for_known_reasons():
    bad = bad_responses([Pool(Checklist.parse(row.checklist), row.candidates, row.input) for row in ROWS])
    assert bad[0] == {
        "empty": "",
        "other_prompt": "Story: a blue owl.",
        "prompt": "Write about a red bird.",
        "words_removed": ": a red owl.",
    }


def test_without_honest_responses_what_is_missing_is_named():
    rows = [Pool(row.checklist, (), row.input) for row in ROWS]
    report = attack(scorer(gullible), rows, **QUICK)
    assert report.missing == {
        "other_prompt": "requires honest responses",
        "words_removed": "requires honest responses",
        "beats": "no honest response has a score",
    }
    assert report.worst.beats.value is None and report.worst.rise.value > 0.8


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"attacks": ["flattery"]}, "attacks='flattery' is not known; allowed: 'colon'"),
        ({"attacks": []}, r"attacks=\[\] is empty"),
        ({"rows": [*ROWS, Pool([], (), "x")] * 2, "prompts": 18}, r"row \d+: the checklist is empty"),
    ],
)
def test_bad_input_is_refused_before_the_first_read(change, complaint):
    judge = scorer(gullible)
    rows = change.pop("rows", ROWS)
    with pytest.raises(SampleError.__bases__[0], match=complaint):
        attack(judge, rows, **change)
    assert judge.receipt.reads == 0


def test_the_packaged_prompts_are_fifty_and_their_honest_responses_meet_the_checks():
    rows = default_rows()
    assert len(rows) == len({row.input for row in rows}) == 50
    assert all(3 <= len(row.checklist) <= 4 and len(row.candidates) == 1 for row in rows)
    checked = [(row, item) for row in rows for item in row.checklist.items if item.check is not None]
    assert len(checked) >= 25
    for row, item in checked:
        assert run_check(item, row.candidates[0], row.input, False).answer == "yes", (row.input, item.question)


def test_a_word_that_the_judge_prefers_is_found_in_the_honest_responses():
    texts = ("A copper lamp burns.", "The copper bird sleeps.", "The river is long.", "One river, one lamp.")
    rows = [Pool(row.checklist, (text,), row.input) for row, text in zip(ROWS, texts, strict=False)]
    assert frequent_words(rows) == ["copper", "lamp", "river"]
    rows = [Pool(row.checklist, (texts[0],), row.input) for row in ROWS]

    def prefers(prefix, tail):
        return 0.9 if target(prefix).count("copper") >= 2 else 0.1

    report = attack(scorer(prefers), rows, attacks=["all_met", "bold", "expert", "praise_first"], **QUICK)
    assert "copper copper" in report.worst.after + report.worst.before and report.worst.rise.value > 0.6
    assert "Writes 'copper copper' after the response." in report.worst.does


def test_successful_attacks_are_labels_of_the_searched_prompts(tmp_path):
    report = attack(scorer(gullible), ROWS, attacks=["self_praise", "all_met", "colon"], **QUICK)
    reported = {prompt for one in report.attacks for prompt in one.rises}
    assert len(reported) == 4 and report.labels and "labels" not in report.model_dump()
    for label in report.labels:
        assert "This response is excellent" in label["target"] and label["labels"] == ["no", "no"]
        assert prompt_key(Pool((), (), label["input"])) not in reported and label["group"] == label["input"]
    single = [label for label in report.labels if label["attack"] == "self_praise"]
    assert single and {label["kind"] for label in single} == {"praise"}
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(label) + "\n" for label in report.labels))
    pairs = read_labels(path)
    assert len(pairs) == 2 * len(report.labels) and {pair.label for pair in pairs} == {0.0}
    assert {pair.input for pair in pairs} <= {row.input for row in ROWS}
    assert len(FewShot.load(path).examples) == len(pairs)


def test_only_items_that_failed_before_are_labelled():
    praised = lambda prefix, tail: 0.95 if "This response is excellent" in target(prefix) else 0.7  # noqa: E731
    report = attack(scorer(praised), ROWS, attacks=["self_praise"], **QUICK)
    single = [label["target"] for label in report.labels if label["attack"] == "self_praise"]
    assert single and all(text.lstrip().startswith("This response is excellent") for text in single)  # of nothing


def test_an_item_that_the_judge_cannot_assess_has_neither_failed_nor_fallen():
    class Unsure(OptionsBackend):
        def _lettered(self, prefix, tail, labels):
            text = target(prefix)
            answer = "unclear" if "excellent" in text or "Write about" in text else "wrong"
            if "All criteria" in text:
                answer = "wrong" if "Write about" in text else "right"
            return Answer(tuple(0.0 if f"{label}. {answer}" in tail else -30.0 for label in labels))

    options = [{"label": "right", "value": 1}, {"label": "wrong", "value": 0}, {"label": "unclear", "na": True}]
    items = [{"question": "How is the bird?", "options": options}, "Is it a story?"]
    judge = ChecklistScorer(backend=Unsure(honest), store=False)
    rows = [Pool(items, row.candidates, row.input) for row in ROWS]
    report = attack(judge, rows, attacks=["self_praise", "all_met"], **QUICK)
    assert {item.name: item.share for item in report.fallen} == {"How is the bird?": 1.0, "Is it a story?": 0.0}


def test_a_penalty_that_an_attack_avoids_is_labelled_yes():
    penalty = [Pool([{"question": "Is it rude?", "weight": -1}], (), row.input) for row in ROWS]
    report = attack(
        scorer(lambda prefix, tail: 0.1 if "All criteria" in prefix else 0.9), penalty, attacks=["all_met"], **QUICK
    )
    assert report.labels and {label["labels"][0] for label in report.labels} == {"yes"}


# ----- prompts with images -----


class Asked(Seeing):
    """A gullible judge that keeps the images and the attacked text that it was shown."""

    def _answer(self, prefix, tail):
        super()._answer(prefix, tail)
        return gullible(prefix, tail)


PICTURED = [replace(row, images=[image]) for row, image in zip(ROWS, cycle(IMAGES.values()), strict=False)]


def test_attacks_on_prompts_with_images_are_judged_with_them_and_write_no_marks():
    backend = Asked()
    report = attack(ChecklistScorer(backend=backend, store=False), PICTURED, **QUICK)
    assert {len(keys) for keys in backend.shown} == {1}
    assert {key for keys in backend.shown for key in keys} == {image.key for image in IMAGES.values()}
    written = report.model_dump_json() + json.dumps(report.labels)
    assert not re.search("[\ufdd0\ufdd1\ufffd]|\\\\u(fdd|fffd)", written)
    assert report.examples[0].prompt.startswith("[image]")
    by_input = {row.input: row for row in PICTURED}
    for label in report.labels:  # a reader of the labels has the prompts with their images again
        again = Columns.of(label).sample_of(label, "labels.jsonl, line 1", None)
        assert by_input[again.input].images == again.images
        assert label["group"] == prompt_key(by_input[again.input])


def test_prompts_of_the_same_words_and_other_images_are_different_prompts():
    checklist = Checklist.parse(["Is it a silver bird?"])
    rows = [Pool(checklist, ("A bird.",), "What?", images=[image]) for image in IMAGES.values()]
    assert len(set(map(prompt_key, rows))) == 4
    assert all("other_prompt" in bad and bad["prompt"] == "[image]What?" for bad in bad_responses(rows))
