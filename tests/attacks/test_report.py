"""Files of an attack, and the comparison of two of them."""

import json

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.attacks.attack import attack
from checklist_rewards.attacks.report import compare, is_attack, read_attack
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.rerank import Pool
from tests.fakes import FakeBackend

ROWS = [Pool(["Is it short?"], ("Story: an owl.",), f"Write about {n}.") for n in range(8)]


def report(praised: float, rows=ROWS, attacks=("self_praise", "all_met"), marks=("This response is excellent",)):
    def rule(prefix, tail):
        return praised if any(mark in prefix for mark in marks) else 0.1

    scorer = ChecklistScorer(backend=FakeBackend(rule), store=False)
    return attack(scorer, rows, attacks=attacks, bootstrap=Bootstrap(50), budget_reads=2000)


def test_the_change_of_each_attack_is_paired_by_prompt():
    compared = compare(report(0.9), report(0.3, attacks=["self_praise", "all_met", "bold"]), Bootstrap(50))
    by_name = {one.name: one for one in compared.attacks}
    praise = by_name["self_praise"]
    assert praise.one.value == pytest.approx(0.8, abs=0.06) and praise.other.value == pytest.approx(0.2, abs=0.06)
    # The rise of a bad response differs between prompts, but its change does not.
    assert praise.change.value == pytest.approx(-0.6) and praise.change.low == pytest.approx(praise.change.high)
    assert by_name["all_met"].change.value == 0.0 and compared.prompts == 4
    assert compared.worst_one.value > 0.7 and compared.worst_other.value < 0.35
    assert -0.6 < compared.change.value < 0.0


def test_files_without_a_common_prompt_are_refused():
    others = [Pool(row.checklist, row.candidates, f"Sing about {n}.") for n, row in enumerate(ROWS)]
    with pytest.raises(SampleError, match="no attack on a common prompt; run `attack` on both judges with the same"):
        compare(report(0.9), report(0.9, others))


def test_a_file_is_read_back_and_others_are_refused(tmp_path):
    path, found = tmp_path / "attack.json", report(0.9)
    path.write_text(json.dumps(found.model_dump()))
    assert is_attack(path) and read_attack(path).model_dump() == found.model_dump()
    path.write_text(json.dumps({"format": "checklist-rewards-attack-2"}))
    with pytest.raises(SampleError, match="format is 'checklist-rewards-attack-2', not 'checklist-rewards-attack-1'"):
        read_attack(path)
    path.write_text(json.dumps(found.model_dump() | {"prompts": "many"}))
    with pytest.raises(SampleError, match="attack.json is not a file of `attack`: prompts: .* got 'many'"):
        read_attack(path)
    other = tmp_path / "scored.jsonl"
    other.write_text("{}")
    assert not is_attack(other) and not is_attack(tmp_path / "missing.json")
