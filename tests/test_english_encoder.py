"""The packaged encoder judge of English: `model="english-encoder"`, where judges are used."""

import json

import pytest
from typer.testing import CliRunner

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import choose_backend
from checklist_rewards.backends.packaged import english_encoder
from checklist_rewards.cli import app
from checklist_rewards.errors import ModelError
from checklist_rewards.judges import EncoderJudge

ANSWER = "The capital of Australia is Canberra."
CHECKLIST = Checklist.parse(
    ["Does the response say that Canberra is the capital of Australia?", "Does the response name Sydney?"]
)


@pytest.fixture(scope="module")
def scorer() -> ChecklistScorer:
    return ChecklistScorer("english-encoder", store=False)


def test_it_is_an_encoder_judge_without_any_setting(scorer):
    assert isinstance(scorer.judge, EncoderJudge) and scorer.judge.context == ("input", "reference")
    assert choose_backend("english-encoder") == "encoder"
    with pytest.raises(ModelError, match="english-encoder is a cross-encoder, which vllm does not support"):
        choose_backend("english-encoder", "vllm")


def test_it_tells_what_a_text_says_and_follows_the_not_of_a_question(scorer):
    negated = "Is it true that the response does not mention {}?".format
    asked = [*CHECKLIST.items, negated("Canberra"), negated("Oslo")]
    score = scorer.score(Checklist.parse([getattr(one, "question", one) for one in asked]), ANSWER)
    stated, denied, wrong, right = (item.probabilities["yes"] for item in score.items)
    assert stated > 0.8 and right > 0.8 and denied < 0.2 and wrong < 0.2


def test_the_command_line_scores_with_it(tmp_path):
    rows, scored = tmp_path / "rows.jsonl", tmp_path / "scored.jsonl"
    rows.write_text(json.dumps({"input": "?", "target": ANSWER, "checklist": [i.question for i in CHECKLIST.items]}))
    done = CliRunner().invoke(app, ["score", str(rows), "--model", "english-encoder", "-o", str(scored), "--no-store"])
    assert done.exit_code == 0, done.output
    assert json.loads(scored.read_text())["checklist_score"]["pass_rate"] == 0.5


def test_the_card_names_data_and_licences():
    card = (english_encoder() / "README.md").read_text()
    for text in ("REALSumm", "SemEval", "ArgKP", "EVOUNA", "CC BY-SA 3.0", "CDLA-Sharing", "Apache-2.0"):
        assert text in card, text
