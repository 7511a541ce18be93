"""Tables of the report that Python writes."""

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.ui.sections import of_document, of_monitor


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


def test_the_signals_of_a_monitor_have_their_last_and_largest_size():
    signal = {"name": "shadow_gap", "about": "hacking", "doc": "Rise.", "threshold": 0.1, "alarm": [False, True, True]}
    values = {"now": [0.1, 0.4, None], "size": [0.2, 0.3, 0.25], "error": [None, None, 0.05]}
    monitor = {"signals": [signal | values], "not_evaluated": ["no_answer"], "canaries": [], "failures": []}
    [found] = of_monitor(monitor)
    name, about, now, size, error, largest, threshold, above = found["rows"][0]
    assert (name, about, now, size) == ("shadow gap\nRise.", "reward hacking", {"value": 0.4}, {"value": 0.25})
    assert (error, largest, threshold, above) == ({"value": 0.05}, {"value": 0.3}, {"value": 0.1}, "2 steps")
    assert found["note"].endswith("because there were no data for them: no answer.")
