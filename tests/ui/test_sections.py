"""Tables of the report that Python writes."""

import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from checklist_rewards.ui.figures import FileFigures
from checklist_rewards.ui.sections import attention, curves, of_document, of_flips, of_monitor, of_rates
from tests.attacks.test_report import report as attack_report


def test_the_cost_of_a_run_has_its_numbers_and_tokens():
    receipt = {"reads": 4, "stored": 1, "seconds": 0.25, "tokens": {"m": [1200, 4]}}
    [cost] = of_document("s.json", "summary", {"command": "score", "rows": 2, "reads": 4, "receipt": receipt})
    assert cost["heading"] == "Cost (s.json)"
    assert ["seconds", {"value": 0.25}] in cost["rows"] and ["tokens of m", "1,200 in, 4 out"] in cost["rows"]
    assert ["reads", 4] in cost["rows"] and not any(row[0] == "receipt" for row in cost["rows"])


def test_a_calibration_has_a_column_per_method():
    ece = {"value": 0.2, "low": 0.1, "high": 0.3}
    part = {"before": {"ece": ece}, "after": {"isotonic": {"ece": ece, "log_loss": ece}}, "reads": 1500, "groups": 9}
    value = {"judge": "j", "kinds": {"yes/no": {**part, "method": "isotonic"}}}
    [found] = of_document("c.json", "calibrate", value)
    assert found["heads"] == ["", ["before", "n"], ["isotonic", "n"]]
    assert found["rows"] == [["ece", ece, ece], ["log loss", None, ece]]
    assert "1,500 questions, 9 groups; chosen: isotonic" in found["note"]


def test_a_result_that_lacks_a_field_is_one_sentence():
    with pytest.raises(SampleError, match=r"a.json is not a complete result of attack \(KeyError: 'attacks'\)"):
        of_document("a.json", "attack", {"judge": "j"})


def test_an_attack_has_its_figures_the_items_that_fall_and_an_example():
    found = attack_report(0.9)
    first, *_ = found.attacks
    sections = {one["heading"]: one["rows"] for one in of_document("a.json", "attack", found.model_dump())}
    name, kind, rise, *_ = next(iter(sections.values()))[0]
    assert name.startswith(first.name) and (kind, rise["value"]) == (first.kind, first.rise.value)
    assert {"Before an attack", "Items that fall"} <= set(sections)
    example = next(rows for heading, rows in sections.items() if "example of" in heading)
    assert "attacked" in [what for what, *_ in example]


def test_the_signals_of_a_monitor_have_their_last_and_largest_size():
    about = {"shadow_gap": {"about": "hacking", "doc": "Rise.", "threshold": 0.1}, "no_answer": {}}
    readings = [{"now": 0.1, "size": 0.2, "error": None, "alarm": False}]
    readings += [{"now": 0.4, "size": 0.3, "alarm": True}, {"now": None, "size": 0.25, "error": 0.05, "alarm": True}]
    monitor = {"steps": [0, 1, 2], "canaries": [], "failures": []}
    [found] = of_monitor(monitor, about, {"shadow_gap": readings})
    name, about, now, size, error, largest, threshold, above = found["rows"][0]
    assert (name, about, now, size) == ("shadow gap\nRise.", "reward hacking", {"value": 0.4}, {"value": 0.25})
    assert (error, largest, threshold, above) == ({"value": 0.05}, {"value": 0.3}, {"value": 0.1}, "2 steps")
    assert found["note"].endswith("because there were no data for them: no answer.")


FIGURE = {"value": 0.5, "low": 0.4, "high": 0.6}


def test_a_comparison_has_a_column_per_kind_and_its_answers():
    yes_no = {"units": 4, "figures": {"accuracy": FIGURE}, "labels": ["yes", "no"], "confusion": [[3, 0], [1, 0]]}
    targets = {"units": 2, "figures": {"pearson": FIGURE, "bias": {"value": None}}, "confusion": None}
    compared = {"one": "a/b.jsonl", "other": "c.jsonl", "units": 1200, "coverage": FIGURE, "unmatched_rows": 3}
    compared |= {"items": {"yes/no": yes_no, "A/B": {"units": 0}}, "targets": targets, "code_checks": 2}
    value = {"comparisons": [compared | {"code_checks_equal": 1}], "tests": [], "bootstrap": {}}
    figures, answers = of_document("x.json", "agree", value)
    assert figures["heading"] == "x.json: a/b.jsonl and c.jsonl"
    assert figures["heads"] == ["", ["yes/no", "n"], ["target scores", "n"]]
    assert figures["rows"] == [["units", 4, 2], ["accuracy", FIGURE, None], ["pearson", None, FIGURE]]
    assert figures["note"] == (
        "Coverage 0.500 [0.400, 0.600] of 1,200 items. 3 rows are on one side only. "
        "Code checks: 1 of 2 agree (they count in target scores only)."
    )
    assert answers["rows"] == [["yes", 3, 0], ["no", 1, 0]] and answers["note"] == "Rows: a/b.jsonl. Columns: c.jsonl."


def test_items_are_listed_by_their_different_answers():
    flips = [{"one": "yes", "other": "no", "count": 1}]
    item = {"id": "i", "question": "Is it?", "penalty": True, "by_code": True, "answered": 3, "flipped": 1}
    items = [item | {"flips": flips, "accuracy": 2 / 3, "kappa": None}] * 51
    found = of_flips(items, "Items", "Click.", against=True)
    assert found["rows"][0][:4] == ["penalty: Is it? (code check)", 3, "1 (33.3 %)", "yes → no: 1"]
    assert found["rows"][0][4:] == [{"value": 2 / 3}, {"value": None}, {"value": None}]
    assert len(found["rows"]) == len(found["ids"]) == 50 and found["note"].endswith(
        "1 more items, with fewer differences."
    )


def test_a_rate_that_is_not_corrected_says_why():
    rate = {"name": "all", "judged": FIGURE, "labelled_units": 3, "labelled": FIGURE, "corrected": {"value": None}}
    [found] = of_rates([rate | {"refused": "too few labels"}])
    assert found["rows"] == [["all", FIGURE, 3, FIGURE, "too few labels"]]
    assert of_rates([]) == []


def test_the_curves_of_a_monitor_are_those_with_values():
    [chart] = curves({"reward_mean": [None, 0.5], "length_matched": [None, None]})
    assert chart == {"label": "Reward at the length of the start", "lines": [["reward_mean", "reward"]]}


def test_thresholds_and_judges_of_a_file_are_named_once_and_a_low_label_mass_is_looked_at_first():
    figures = FileFigures()
    for threshold, method in ((0.5, "logprobs"), (0.7, "reply"), (0.5, "logprobs")):
        verdict = Verdict({"yes": 0.9, "no": 0.1}, mass=0.5, judge="a", method=method)
        score = score_checklist(Checklist.parse(["Is it?"]), [verdict], Aggregation(threshold=threshold))
        figures.add(ScoredText("1", "row 1", score))
    assert (figures.overview()["thresholds"], figures.overview()["judges"]) == ([0.5, 0.7], ["a"])
    assert attention(figures, None, 0)[0]["text"] == "The probability on the answers is 0.500"
