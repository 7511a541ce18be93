import json
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.evolving import FromGenerator
from checklist_rewards.generators import ContrastiveGenerator
from checklist_rewards.refiners import Deduplicator, UnitTester
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.ui.figures import TrainingFigures
from tests.evolving.fakes import BASE, Script, active, call, evolving, finds, state
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies
from tests.jsonl import read_jsonl

TEXTS = ["red", "red blue", "red", "red blue"]


def test_an_item_that_tells_the_group_apart_counts_in_the_same_call():
    reward = evolving(lambda group: ["Is it blue?", "Is it green?"])
    assert call(reward, TEXTS) == pytest.approx([0.5, 0.9, 0.5, 0.9])
    assert active(reward) == ["Is it blue?"]
    [group] = reward.evolving.proposer.groups
    assert group.responses == tuple(TEXTS) and group.scores == pytest.approx([0.9] * 4)
    assert [item.question for item in group.persistent] == BASE and group.active == ()


def test_candidates_are_read_once_and_nothing_else_again():
    backend = FakeBackend(finds)
    reward = evolving(lambda group: ["Is it blue?"], every=2, backend=backend)
    call(reward, TEXTS)
    assert len(backend.asked) == 2 + 2  # two distinct texts, two items
    call(reward, ["red green", "blue"], step=1)
    assert len(reward.evolving.proposer.groups) == 1, "no proposal at the second call"
    assert len(backend.asked) == 4 + 4


def test_a_negative_item_lowers_the_reward():
    reward = evolving(lambda group: [{"question": "Is it blue?", "weight": -1}])
    plain, blue = call(reward, TEXTS)[:2]
    assert plain > blue


def test_an_item_without_deviation_retires_and_the_reward_forgets_it():
    reward = evolving(lambda group: ["Is it blue?"])
    call(reward, TEXTS)
    assert call(reward, ["red blue", "blue"], step=1) == pytest.approx([0.9, 0.1])
    [record] = reward.evolving.state["prompts"]
    assert record["active"] == [] and record["inactive"][0]["question"] == "Is it blue?"
    assert record["persistent"] == [{"id": record["persistent"][0]["id"], "question": "Is it red?"}]


def test_prompts_have_their_own_checklists():
    reward = evolving(lambda group: ["Is it blue?" if group.input == "One." else "Is it green?"])
    texts = ["red", "red blue", "red", "red green"]
    rewards = call(reward, texts, prompts=["One.", "One.", "Two.", "Two."])
    assert rewards == pytest.approx([0.5, 0.9, 0.5, 0.9])
    assert sorted(active(reward)) == ["Is it blue?", "Is it green?"]


def test_the_groups_that_waited_longest_are_proposed_for():
    reward = evolving(lambda group: [], max_groups=1)
    for step in range(4):
        call(reward, TEXTS, step, prompts=["a", "a", "b", "b"])
    assert [group.input for group in reward.evolving.proposer.groups] == ["a", "b", "a", "b"]


def test_a_completion_alone_is_no_group():
    reward = evolving(lambda group: ["Is it blue?"])
    assert call(reward, ["red blue"]) == pytest.approx([0.9]) and reward.evolving.proposer.groups == []


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        (lambda group: 1 / 0, "proposer"),
        (lambda group: GenerationError("the reply cannot be read."), "proposal"),
        (lambda group: [{"question": " "}], "proposal"),
        (lambda group: [{"question": "Is it blue?", "check": {"name": "code"}}], "reading"),
    ],
)
def test_a_failed_proposal_changes_nothing(rule, part, caplog):
    reward = evolving(rule)
    with caplog.at_level(logging.WARNING):
        for step in range(2):
            assert call(reward, TEXTS, step) == pytest.approx([0.9] * 4)
    assert reward.evolving.failures == {part: 2} and active(reward) == []
    assert caplog.text.count(f"{part} failed") == 1
    assert reward.pop_stats()["checklist_reward/evolving/failures"] > 0


def test_a_judge_that_fails_on_a_candidate_admits_nothing():
    reward = evolving(lambda group: ["Is it blue?"], judge=lambda prefix, tail: None if "blue" in tail else 0.7)
    assert call(reward, TEXTS) == pytest.approx([0.7] * 4) and active(reward) == []


def test_known_questions_are_not_proposed_again():
    reward = evolving(lambda group: ["is it RED?", "Is it blue?", "Is it blue?"])
    call(reward, TEXTS)
    assert active(reward) == ["Is it blue?"] and reward.pop_stats()["checklist_reward/evolving/proposed"] == 1


def test_near_duplicates_of_known_items_are_dropped_and_persistent_items_are_not_merged():
    def embedder(texts):
        return np.array([[1.0, 0.0] if "red" in text else [0.0, 1.0] for text in texts])

    rule = lambda group: ["Is it reddish?", "Is it blue?", "Is it blueish?"]  # noqa: E731
    reward = evolving(rule, refiners=[Deduplicator(embedder=embedder)])
    call(reward, ["red", "red blue blueish"])
    assert len(active(reward)) == 1 and "blue" in active(reward)[0]
    assert [item["question"] for item in reward.evolving.state["prompts"][0]["persistent"]] == BASE


def test_the_refiners_decide_before_an_item_counts():
    rewrites = Replies(lambda text, sampling: '{"response": "still blue"}')
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.9), store=False)
    tester = UnitTester("fake", backend=rewrites, scorer=scorer, store=False)
    reward = evolving(lambda group: ["Is it blue?"], refiners=[tester])
    assert call(reward, TEXTS) == pytest.approx([0.9] * 4), "the rewrites that should fail it pass it"
    assert active(reward) == [] and rewrites.sampled


def test_a_generator_proposes_from_the_responses():
    reply = '{"questions": [{"question": "Is it blue?", "weight": 1}]}'
    generator = ContrastiveGenerator("fake", backend=Replies(lambda text, sampling: reply), store=False)
    reward = evolving(generator)
    assert isinstance(reward.evolving.proposer, FromGenerator)
    assert call(reward, TEXTS) == pytest.approx([0.5, 0.9, 0.5, 0.9])


def test_the_defaults_test_items_with_the_model_that_proposes():
    generator = ContrastiveGenerator("fake", backend=Replies(lambda text, sampling: ""), store=False)
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    with_model = ChecklistReward(scorer, evolving={"proposer": generator}).evolving
    assert [refiner.name for refiner in with_model.refiners] == ["deduplicator", "unit_tester"]
    assert with_model.refiners[1].scorer is scorer
    without = ChecklistReward(scorer, evolving={"proposer": Script(lambda group: None)}).evolving
    assert [refiner.name for refiner in without.refiners] == ["deduplicator"]


def test_an_evaluation_uses_the_checklists_and_changes_none():
    class Trainer:
        def __init__(self):
            self.model, self.logged = SimpleNamespace(training=True), {}

        def log_metric(self, name, value):
            self.logged[name] = value

    trainer = Trainer()
    reward = evolving(lambda group: ["Is it blue?"])
    call(reward, TEXTS, log_metric=trainer.log_metric)
    assert trainer.logged["checklist_reward/evolving/admitted"] == 1
    before = json.dumps(reward.evolving.state)
    trainer.model.training = False
    assert call(reward, ["red blue", "red blue"], 1, log_metric=trainer.log_metric) == pytest.approx([0.9, 0.9])
    assert json.dumps(reward.evolving.state) == before and len(reward.evolving.proposer.groups) == 1


def test_the_log_carries_the_hash_and_the_report_marks_the_change(tmp_path):
    reward = evolving(lambda group: ["Is it blue?"], reward={"log": tmp_path / "r.jsonl"}, every=2)
    call(reward, ["red", "red"], 0)
    call(reward, TEXTS, 1)
    call(reward, TEXTS, 2)
    hashes = {line["step"]: line["checklist_hash"] for line in read_jsonl(tmp_path / "r.jsonl")}
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[2] == reward.evolving.state["prompts"][0]["checklist_hash"]
    assert read_jsonl(tmp_path / "r.checklists.jsonl")[1:] == reward.evolving.state["prompts"]
    figures = TrainingFigures()
    for record in ScoredFile(tmp_path / "r.jsonl"):
        figures.add(record)
    assert figures.as_json()["changed"] == [0, 0, 1]


def test_a_run_that_resumes_has_the_checklists_of_its_step():
    def rule(group):
        return [f"Is it {('blue', 'green', 'grey')[len(group.active)]}?"]

    texts = [["red", "red blue"], ["red blue", "green"], ["red blue grey", "green"], ["blue", "red green grey"]]
    whole = evolving(rule)
    expected = [call(whole, of_step, step) for step, of_step in enumerate(texts)]
    first, callbacks = evolving(rule), {}
    for step in (0, 1):
        call(first, texts[step], trainer_state=state(step, callbacks))
    saved = json.loads(json.dumps(callbacks))
    call(first, texts[2], trainer_state=state(2, callbacks))  # a step after the checkpoint, which is lost
    second = evolving(rule)
    resumed = [call(second, texts[step], trainer_state=state(step, saved)) for step in (2, 3)]
    assert resumed == expected[2:] and second.evolving.state == whole.evolving.state


def test_without_a_trainer_the_file_is_where_a_run_goes_on(tmp_path):
    first = evolving(lambda group: ["Is it blue?"], buffer=tmp_path / "b.jsonl")
    call(first, TEXTS, trainer_state=None)
    second = evolving(lambda group: [], buffer=tmp_path / "b.jsonl")
    assert call(second, TEXTS, trainer_state=None) == pytest.approx([0.5, 0.9, 0.5, 0.9])
    fresh = evolving(lambda group: [], buffer=tmp_path / "b.jsonl")
    assert call(fresh, TEXTS, trainer_state=state(0)) == pytest.approx([0.9] * 4), "a new training starts anew"


def test_without_a_trainer_a_state_that_was_restored_by_hand_is_not_replaced_by_a_later_file(tmp_path):
    first = evolving(lambda group: ["Is it blue?"], buffer=tmp_path / "b.jsonl")
    call(first, TEXTS, trainer_state=None)
    checkpoint = json.loads(json.dumps(first.state))
    call(first, TEXTS, trainer_state=None)
    second = evolving(lambda group: [], buffer=tmp_path / "b.jsonl")
    second.restore(checkpoint)
    call(second, TEXTS, trainer_state=None)
    assert second.evolving.state["calls"] == 2


def test_a_monitor_watches_it(tmp_path):
    monitor = {"log": tmp_path / "m.jsonl", "held_out": 0, "retest_share": 0, "max_canary": None}
    settings = {"log": tmp_path / "r.jsonl", "monitor": monitor}
    reward = evolving(lambda group: ["Is it blue?"], every=2, reward=settings)
    assert call(reward, ["red", "red"]) == pytest.approx([0.9, 0.9])
    call(reward, TEXTS, 1)
    assert call(reward, TEXTS, 2) == pytest.approx([0.5, 0.9, 0.5, 0.9])
    steps = [line["statistics"] for line in read_jsonl(tmp_path / "m.jsonl") if line["kind"] == "step"]
    assert [step.get("checklists_changed") for step in steps] == [None, None, 1.0]
    assert [step["reward_rewarded"] for step in steps] == pytest.approx([0.9] * 3), "persistent items alone"
    assert not [line for line in read_jsonl(tmp_path / "m.jsonl") if line["kind"] == "failure"]


def test_one_state_has_the_monitor_and_the_checklists():
    monitor = {"held_out": 0, "retest_share": 0, "max_canary": None}
    first, second = (evolving(lambda group: ["Is it blue?"], reward={"monitor": monitor}) for _ in range(2))
    call(first, TEXTS)
    assert set(first.state) == {"RewardMonitor/checklist_reward", "EvolvingChecklistReward/checklist_reward"}
    second.restore(json.loads(json.dumps({**first.state, "of another callback": {}})))
    assert second.state == first.state
    assert call(second, TEXTS, 1) == pytest.approx([0.5, 0.9, 0.5, 0.9])


def test_a_checkpoint_of_before_the_stages_is_restored():
    """The states of `RewardMonitor(EvolvingChecklistReward(...))` after two steps, written by 46fd139."""
    path = Path(__file__).parents[1] / "data" / "checkpoint_46fd139.json"
    saved = json.loads(path.read_text())
    monitor = {"held_out": 0, "retest_share": 0, "max_canary": None}
    by_hand, resumed = (evolving(lambda group: [], reward={"monitor": monitor}) for _ in range(2))
    by_hand.restore(saved)
    restored, monitor_of = json.loads(json.dumps(by_hand.state)), by_hand.monitor.key
    assert restored[monitor_of]["watch"].pop("checklists") == {}, "they had no rows of the dataset"
    written = json.loads(path.read_text())
    assert written[monitor_of]["watch"].pop("checklists") and restored == written
    assert call(resumed, TEXTS, 2, trainer_state=state(2, saved)) == pytest.approx([0.5, 0.9, 0.5, 0.9])
    assert active(resumed) == ["Is it blue?"] and resumed.evolving.state["calls"] == 3
    assert resumed.monitor.state["calls"] == 3 and saved == json.loads(json.dumps(resumed.state))


def test_a_held_out_item_stays_held_out_while_the_checklist_evolves(tmp_path):
    checklist = [f"Is it {color}?" for color in ("red", "black", "white", "pink", "brown")]
    monitor = {"held_out": 0.4, "retest_share": 0, "max_canary": None}
    reward = evolving(lambda group: ["Is it blue?"], reward={"log": tmp_path / "r.jsonl", "monitor": monitor})
    for step in range(3):
        call(reward, TEXTS, step, checklist=checklist)
    plain = evolving(lambda group: [], reward={"log": tmp_path / "p.jsonl", "monitor": monitor})
    call(plain, TEXTS, checklist=checklist)
    assert {tuple(line["held_out"]) for line in read_jsonl(tmp_path / "r.jsonl")} == {
        tuple(line["held_out"]) for line in read_jsonl(tmp_path / "p.jsonl")
    }


def test_a_missing_column_and_a_bad_checklist_are_reported_by_the_reward():
    reward = evolving(lambda group: [])
    with pytest.raises(SampleError, match="no column 'checklist'"):
        reward(prompts=["a"], completions=["b"])
    with pytest.raises(ChecklistError, match="row 1 of the batch"):
        call(reward, ["red", "red"], checklist=[])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"max_active": True}, "max_active=True"),
        ({"min_deviation": 2}, "min_deviation=2"),
        ({"max_groups": 0}, "max_groups=0"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(SampleError, match=message):
        evolving(lambda group: [], **options)


def test_the_settings_are_checked():
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    with pytest.raises(SampleError, match="evolving: proposer='pocket' is not allowed; it must be a mapping"):
        ChecklistReward(scorer, evolving={"proposer": "pocket"})
    with pytest.raises(SampleError, match="evolving: proposer requires a model"):
        ChecklistReward(scorer, evolving={})
    reward = evolving(lambda group: [])
    with pytest.raises(SampleError, match="split.. requires fixed checklists; omit evolving=..."):
        reward.split("sign")
