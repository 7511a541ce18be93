"""The packaged judge and the packaged writer of English: `model="english"`, `model="english-writer"`."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import Engine, load_backend
from checklist_rewards.backends.packaged import ADAPTED, ENGLISH, ENGLISH_WRITER, adapter_of
from checklist_rewards.pipelines import pipeline
from tests.backends.test_engine import GROUPS, LABELS

pytestmark = pytest.mark.slow

ANSWER = "The capital of Australia is Canberra."
CHECKLIST = Checklist.parse(
    [
        "Does the response say that Canberra is the capital of Australia?",
        "Does the response name 'Sydney' as its answer?",
    ]
)


@pytest.fixture(scope="module")
def english(smollm2) -> str:
    load_backend("english", "transformers")
    return "english"


def read(engine: Engine) -> list[float]:
    return [answer.logprobs[0] for answer in engine.load().read(GROUPS, LABELS)[0]]


def test_it_is_smollm2_with_the_packaged_adapter(english):
    merged = Engine(english, "transformers")
    adapted = Engine("smollm2", "transformers", settings={"adapter": str(adapter_of(ENGLISH))})
    assert read(merged) == pytest.approx(read(adapted), abs=1e-4)


def test_its_answers_are_labels(english):
    score = ChecklistScorer(english, backend="transformers", store=False).score(CHECKLIST, ANSWER)
    assert all(item.mass is not None and item.mass > 0.95 for item in score.items)
    stated, denied = (item.probabilities["yes"] for item in score.items)
    assert stated > denied


def test_the_card_names_data_and_licences():
    card = (adapter_of(ENGLISH) / "README.md").read_text()
    for text in ("REALSumm", "SemEval", "ArgKP", "EVOUNA", "CC BY-SA 3.0", "CDLA-Sharing", "Apache-2.0"):
        assert text in card, text
    card = (adapter_of(ENGLISH_WRITER) / "README.md").read_text()
    for text in ("InFoBench", "IFEval", "MIT", "Apache-2.0", "| constraints |", "recipes/english/train.py writer"):
        assert text in card, text
    for name in ADAPTED:
        config = json.loads((adapter_of(name) / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == "smollm2"


def test_the_pipeline_writes_and_judges_without_a_model_of_the_users(smollm2):
    pipe = pipeline("english", generator_backend="transformers", store=False)  # vLLM: cli/test_commands_exit.py
    prompt = "Write a short letter to a friend about a storm at the sea. Use at most 40 words and no commas."
    [checklist] = pipe.generate_batch([prompt])
    assert [item.evidence.text for item in checklist.items[:2]] == ["at most 40 words", "no commas"]
    written = checklist.items[2:]
    assert written and all(item.check is None and item.question.endswith("?") for item in written)
    assert checklist.model == "english-writer"
    texts = ["Dear Ann\nA storm came over the sea and our boat shook. We are safe now. Yours Tom", "Two, three, four."]
    good, bad = (pipe(prompt, text, checklist=checklist).score.primary_score for text in texts)
    assert good > bad
