"""Several judges from a file."""

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import ChecklistRewardsError, ConfigError
from checklist_rewards.judges import CascadeJudge, LogprobJudge, PanelJudge, ReasonedJudge
from checklist_rewards.judges.settings import load_jury
from tests.jsonl import read_jsonl, write_jsonl

PANEL = """
panel: {rule: majority, weights: [2, 1], quorum: 0.6}
judges:
  - pocket
  - {model: pocket, backend: transformers, capture_reasoning: true}
"""
CASCADE = """
cascade: {margin: 0.3}
judges:
  - {model: pocket, mass_floor: 0.2}
  - panel:
    judges: [pocket, {model: pocket, votes: 3}]
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "judges.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_panel(file):
    panel = load_jury(file(PANEL), store=False)
    assert isinstance(panel, PanelJudge)
    assert (panel.rule, panel.weights, panel.quorum) == ("majority", [2, 1], 0.6)
    assert [type(judge) for judge in panel.judges] == [LogprobJudge, ReasonedJudge]


def test_a_cascade_that_ends_in_a_panel(file):
    cascade = load_jury(file(CASCADE), store=False)
    assert isinstance(cascade, CascadeJudge) and cascade.margin == 0.3
    first, last = cascade.judges
    assert first.mass_floor == 0.2 and isinstance(last, PanelJudge) and last.rule == "mean"


def test_the_scorer_takes_the_file_and_a_judge_answers_twice_as_itself(file, pocket):
    checklist, target = ["Does the response mention the word river?"], "The river is long."
    both = "panel:\njudges: [{model: pocket, backend: transformers}, {model: pocket, backend: transformers}]"
    score = ChecklistScorer(judge=file(both), store=False).score(checklist, target)
    alone = ChecklistScorer("pocket", backend="transformers", store=False).score(checklist, target)
    assert score.items[0].confidence == pytest.approx(alone.items[0].confidence)
    assert score.items[0].agreement == 1 and len(score.items[0].votes) == 2


def test_a_model_beside_the_file_is_refused(file):
    with pytest.raises(ChecklistRewardsError, match=r"model='org/m' has no effect with judge="):
        ChecklistScorer("org/m", judge=file(PANEL))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("panel: [", r"judges.yaml:1: not valid YAML"),
        ("judges: [pocket, pocket]", "expected either 'panel' or 'cascade'"),
        ("model: pocket\nthreshold: 0.5", "judges.yaml: 'threshold' is a setting of the scorer.*: --threshold on the"),
        ("panel:\njudges: [pocket, pocket]\nmetric: pass", "judges.yaml: 'metric' is a setting of the scorer"),
        ("panel:\njudges: [pocket, {min_answered: 1}]", "'min_answered' is a setting .*: --min-answered on"),
        ("panel:\ncascade:\njudges: [pocket]", "expected either 'panel' or 'cascade'"),
        ("panel:\njudges: pocket", "expected either 'panel' or 'cascade'"),
        ("panel: {rule: best}\njudges: [pocket, pocket]", "judges.yaml, panel: rule='best' is not known"),
        ("panel: {margin: 1}\njudges: [pocket, pocket]", "judges.yaml, panel: unknown key 'margin'; allowed: rule"),
        ("panel:\njudges: [pocket]", "judges.yaml, panel: a panel requires two or more"),
        (
            "panel:\njudges: [pocket, {modle: x}]",
            r"judges.yaml, judge 2: unknown key 'modle' \(did you mean 'mode' or 'model'\?\); allowed: model",
        ),
        ("panel:\njudges: [pocket, {mode: many}]", "judges.yaml, judge 2: mode='many' is not known"),
        ("panel:\njudges: [pocket, {calibration: 3}]", "judges.yaml, judge 2: calibration=3 is not allowed"),
        ("panel:\njudges: [pocket, 3]", "judges.yaml, judge 2: expected a mapping, got 3"),
        ("cascade: {margin: [1]}\njudges: [pocket, pocket]", "judges.yaml, cascade: margin=.* is not allowed"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(file, text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_jury(file(text), store=False)


def test_the_command_line_takes_it(file, run):
    question = "Does the response mention the word river?"
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "The river is long.", "checklist": [question]})
    file("panel:\njudges: [{model: pocket, backend: transformers}, {model: pocket, backend: transformers}]")
    command = "score rows.jsonl -o out.jsonl --judge judges.yaml --no-store"
    run(command)
    [row] = read_jsonl("out.jsonl")
    assert row["checklist_score"]["items"][0]["agreement"] == 1
    run(f"{command} --concurrency 3", refused="has no effect on the judges in")
    counted = run(f"{command} --dry-run")
    lines = [line for line in counted.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line.split("│")[1:4]] for line in lines] == [["scores", "pocket", "1"]] * 2
    assert "Each judge of" in counted.stdout and "is counted with every read" in counted.stdout


def test_a_file_may_hold_the_settings_of_one_judge(file, pocket):
    judge = load_jury(file("{model: pocket, backend: transformers, capture_reasoning: true}"), store=False)
    assert isinstance(judge, ReasonedJudge)
    with pytest.raises(
        ConfigError, match=r"judges.yaml: unknown key 'modle' \(did you mean 'mode' or 'model'\?\); allowed: model"
    ):
        load_jury(file("{model: pocket, modle: x}"), store=False)
    checklist, target = ["Does the response mention the word river?"], "The river is long."
    scorer = ChecklistScorer(judge=file("{model: pocket, backend: transformers}"), store=False)
    alone = ChecklistScorer("pocket", backend="transformers", store=False)
    assert scorer.score(checklist, target) == alone.score(checklist, target)
