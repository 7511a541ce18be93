import json
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.evolving import FromGenerator
from checklist_rewards.generators import ContrastiveGenerator
from checklist_rewards.refiners import Deduplicator, UnitTester
from checklist_rewards.ui.figures import TrainingFigures
from tests.evolving.fakes import BASE, BLUE, TEXTS, Script, active, call, evolving, finds, state
from tests.generators.fakes import Replies
from tests.jsonl import read_jsonl
from tests.rewards.fakes import asked, reward_by, scorer_by
from tests.rewards.fakes import call as batch_of
from tests.rewards.test_batch_call import Trainer

RED = [0.9] * 4
QUIET = {"held_out": 0, "retest_share": 0, "max_canary": None}
"""A monitor that reads nothing more."""


def none(group):
    return []


def as_json(value):
    return json.loads(json.dumps(value))


# --- which items count


def test_an_item_that_tells_the_group_apart_counts_in_the_same_call():
    reward = evolving(lambda group: ["Is it blue?", "Is it green?"])
    assert call(reward) == pytest.approx(BLUE)
    assert active(reward) == ["Is it blue?"]
    [group] = reward.evolving.proposer.groups
    assert group.responses == tuple(TEXTS) and group.scores == pytest.approx(RED)
    assert [item.question for item in group.persistent] == BASE and group.active == ()


def test_a_completion_keeps_its_state_when_its_checklist_changes():
    reward = evolving()
    assert call(reward, [*TEXTS, ""]) == pytest.approx([*BLUE, 0.0])
    assert [score.state for score in reward.last.scores] == [*["answered"] * len(TEXTS), "empty"]


@pytest.mark.parametrize("source", ["environments", "array"])
def test_checklists_evolve_wherever_they_come_from(source):
    reward, column = evolving(), np.empty(len(TEXTS), dtype=object)
    column[:] = [BASE] * len(TEXTS)
    environments = [SimpleNamespace(checklist=BASE) for _ in TEXTS]
    given = {"environments": environments} if source == "environments" else {"checklist": column}
    texts = {name: value for name, value in batch_of(TEXTS, items=BASE).items() if name != "checklist"}
    assert reward(**texts, **given) == pytest.approx(BLUE)


def test_candidates_are_read_once_and_nothing_else_again():
    reward = evolving(every=2)
    call(reward)
    assert len(asked(reward)) == 2 + 2  # two distinct texts, two items
    call(reward, ["red green", "blue"], step=1)
    assert len(reward.evolving.proposer.groups) == 1, "no proposal at the second call"
    assert len(asked(reward)) == 4 + 4


def test_an_item_without_deviation_retires_and_the_reward_forgets_it():
    reward = evolving()
    call(reward)
    assert call(reward, ["red blue", "blue"], step=1) == pytest.approx([0.9, 0.1])
    [record] = reward.evolving.state["prompts"]
    assert record["active"] == [] and record["inactive"][0]["question"] == "Is it blue?"
    assert record["persistent"] == [{"id": record["persistent"][0]["id"], "question": "Is it red?"}]


def test_an_item_counts_if_it_tells_one_of_the_groups_of_its_prompt_apart(tmp_path):
    trainer, reward = Trainer(tmp_path, num_generations=2), evolving()
    for step in range(2):
        rewards = call(reward, [*TEXTS[:2], "red", "red"], step, log_metric=trainer.log_metric)
        assert rewards == pytest.approx([0.5, 0.9, 0.5, 0.5]) and active(reward) == ["Is it blue?"]


@pytest.mark.parametrize(("metric", "items"), [("weighted", ["Is it blue?"]), ("pass", [])])
def test_probabilities_tell_completions_apart_unless_the_metric_counts_passed_items(metric, items):
    def sure(prefix, tail):
        return 0.9 if finds(prefix, tail) > 0.5 else 0.6

    reward = evolving(judge=sure, reward={"metric": metric})
    call(reward)
    assert active(reward) == items


def test_prompts_have_their_own_checklists_and_a_completion_alone_is_no_group():
    reward = evolving(lambda group: ["Is it blue?" if group.input == "One." else "Is it green?"])
    texts = ["red", "red blue", "red", "red green", "red blue"]
    rewards = call(reward, texts, prompts=["One.", "One.", "Two.", "Two.", "Three."])
    assert rewards == pytest.approx([0.5, 0.9, 0.5, 0.9, 0.9])
    assert sorted(active(reward)) == ["Is it blue?", "Is it green?"]
    assert [group.input for group in reward.evolving.proposer.groups] == ["One.", "Two."]


def test_the_groups_that_waited_longest_are_proposed_for():
    reward = evolving(none, max_groups=1)
    for step in range(4):
        call(reward, step=step, prompts=["a", "a", "b", "b"])
    assert [group.input for group in reward.evolving.proposer.groups] == ["a", "b", "a", "b"]


def test_known_questions_are_not_proposed_again():
    reward = evolving(lambda group: ["is it RED?", "Is it blue?", "Is it blue?"])
    call(reward)
    assert active(reward) == ["Is it blue?"] and reward.pop_stats()["checklist_reward/evolving/proposed"] == 1


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
            assert call(reward, step=step) == pytest.approx(RED)
    assert reward.evolving.failures == {part: 2} and active(reward) == []
    assert caplog.text.count(f"{part} failed") == 1
    assert reward.pop_stats()["checklist_reward/evolving/failures"] > 0


def test_a_judge_that_fails_on_a_candidate_admits_nothing():
    reward = evolving(judge=lambda prefix, tail: None if "blue" in tail else 0.7)
    assert call(reward) == pytest.approx([0.7] * 4) and active(reward) == []


# --- proposers and refiners


def test_near_duplicates_of_known_items_are_dropped_and_persistent_items_are_not_merged():
    def embedder(texts):
        return np.array([[1.0, 0.0] if "red" in text else [0.0, 1.0] for text in texts])

    questions = ["Is it reddish?", "Is it blue?", "Is it blueish?"]
    reward = evolving(lambda group: questions, refiners=[Deduplicator(embedder=embedder)])
    call(reward, ["red", "red blue blueish"])
    assert len(active(reward)) == 1 and "blue" in active(reward)[0]
    assert [item["question"] for item in reward.evolving.state["prompts"][0]["persistent"]] == BASE


def test_the_refiners_decide_before_an_item_counts():
    rewrites = Replies(lambda text, sampling: '{"response": "still blue"}')
    tester = UnitTester("fake", backend=rewrites, scorer=scorer_by(lambda prefix, tail: 0.9), store=False)
    reward = evolving(refiners=[tester])
    assert call(reward) == pytest.approx(RED), "the rewrites that should fail it pass it"
    assert active(reward) == [] and rewrites.sampled


def generator(reply):
    return ContrastiveGenerator("fake", backend=Replies(lambda text, sampling: reply), store=False)


def test_a_generator_proposes_from_the_responses():
    reward = evolving(generator('{"questions": [{"question": "Is it blue?", "weight": 1}]}'))
    assert isinstance(reward.evolving.proposer, FromGenerator)
    assert call(reward) == pytest.approx(BLUE)


def test_the_defaults_test_items_with_the_model_that_proposes():
    with_model = reward_by(evolving={"proposer": generator("")})
    assert [refiner.name for refiner in with_model.evolving.refiners] == ["deduplicator", "unit_tester"]
    assert with_model.evolving.refiners[1].scorer is with_model.scorer
    without = reward_by(evolving={"proposer": Script(lambda group: None)}).evolving
    assert [refiner.name for refiner in without.refiners] == ["deduplicator"]


# --- in a training run


def test_an_evaluation_uses_the_checklists_and_changes_none(tmp_path):
    trainer, reward = Trainer(tmp_path, model=SimpleNamespace(training=True)), evolving()
    call(reward, log_metric=trainer.log_metric)
    assert trainer.metrics["checklist_reward/evolving/admitted"] == 1
    before = json.dumps(reward.evolving.state)
    trainer.model.training = False
    assert call(reward, ["red blue", "red blue"], 1, log_metric=trainer.log_metric) == pytest.approx([0.9, 0.9])
    assert json.dumps(reward.evolving.state) == before and len(reward.evolving.proposer.groups) == 1


def test_a_monitor_watches_it_and_log_and_report_mark_the_change(tmp_path):
    settings = {"log": tmp_path / "r.jsonl", "monitor": {"log": tmp_path / "m.jsonl", **QUIET}}
    reward = evolving(every=2, reward=settings)
    assert call(reward, ["red", "red"]) == pytest.approx([0.9, 0.9])
    call(reward, step=1)
    assert call(reward, step=2) == pytest.approx(BLUE)
    steps = [line["statistics"] for line in read_jsonl(tmp_path / "m.jsonl") if line["kind"] == "step"]
    assert [step.get("checklists_changed") for step in steps] == [None, None, 1.0]
    assert [step["reward_rewarded"] for step in steps] == pytest.approx([0.9] * 3), "persistent items alone"
    assert not [line for line in read_jsonl(tmp_path / "m.jsonl") if line["kind"] == "failure"]
    hashes = {line["step"]: line["checklist_hash"] for line in read_jsonl(tmp_path / "r.jsonl")}
    assert hashes[0] == hashes[1] != hashes[2] == reward.evolving.state["prompts"][0]["checklist_hash"]
    assert read_jsonl(tmp_path / "r.checklists.jsonl")[1:] == reward.evolving.state["prompts"]
    figures = TrainingFigures()
    for record in ScoredFile(tmp_path / "r.jsonl"):
        figures.add(record)
    assert figures.as_json()["changed"] == [0, 0, 1]


def test_a_held_out_item_stays_held_out_while_the_checklist_evolves(tmp_path):
    checklist = [f"Is it {color}?" for color in ("red", "black", "white", "pink", "brown")]
    held_out = []
    for name, rule, steps in (("r", lambda group: ["Is it blue?"], 3), ("p", none, 1)):
        log = tmp_path / f"{name}.jsonl"
        reward = evolving(rule, reward={"log": log, "monitor": QUIET | {"held_out": 0.4}})
        for step in range(steps):
            call(reward, step=step, checklist=checklist)
        held_out.append({tuple(line["held_out"]) for line in read_jsonl(log)})
    assert held_out[0] == held_out[1]


# --- runs that go on


def test_a_run_that_resumes_has_the_checklists_of_its_step():
    def rule(group):
        return [f"Is it {('blue', 'green', 'grey')[len(group.active)]}?"]

    texts = [["red", "red blue"], ["red blue", "green"], ["red blue grey", "green"], ["blue", "red green grey"]]
    whole = evolving(rule)
    expected = [call(whole, of_step, step) for step, of_step in enumerate(texts)]
    first, callbacks = evolving(rule), {}
    for step in (0, 1):
        call(first, texts[step], trainer_state=state(step, callbacks))
    saved = as_json(callbacks)
    call(first, texts[2], trainer_state=state(2, callbacks))  # a step after the checkpoint, which is lost
    second = evolving(rule)
    resumed = [call(second, texts[step], trainer_state=state(step, saved)) for step in (2, 3)]
    assert resumed == expected[2:] and second.evolving.state == whole.evolving.state


def test_without_a_trainer_the_file_is_where_a_run_goes_on_unless_a_state_was_restored_by_hand(tmp_path):
    def alone(rule=none):
        return evolving(rule, buffer=tmp_path / "b.jsonl")

    first = evolving(buffer=tmp_path / "b.jsonl")
    call(first, trainer_state=None)
    checkpoint = as_json(first.state)
    assert call(alone(), trainer_state=None) == pytest.approx(BLUE)
    by_hand = alone()
    by_hand.restore(checkpoint)  # and the file is of a later call
    call(by_hand, trainer_state=None)
    assert by_hand.evolving.state["calls"] == 2
    assert call(alone(), trainer_state=state(0)) == pytest.approx(RED), "a new training starts anew"


def test_a_checkpoint_of_before_the_stages_is_restored():
    """The states of `RewardMonitor(EvolvingChecklistReward(...))` after two steps, written by 46fd139."""
    path = Path(__file__).parents[1] / "data" / "checkpoint_46fd139.json"
    saved, written = json.loads(path.read_text()), json.loads(path.read_text())
    by_hand, resumed = (evolving(none, reward={"monitor": QUIET}) for _ in range(2))
    by_hand.restore(saved)
    restored, monitor_of = as_json(by_hand.state), by_hand.monitor.key
    assert restored[monitor_of]["watch"].pop("checklists") == {}, "they had no rows of the dataset"
    assert written[monitor_of]["watch"].pop("checklists") and restored == written
    assert call(resumed, step=2, trainer_state=state(2, saved)) == pytest.approx(BLUE)
    assert active(resumed) == ["Is it blue?"] and resumed.evolving.state["calls"] == 3
    assert resumed.monitor.state["calls"] == 3 and saved == as_json(resumed.state)


# --- what is refused


def test_a_missing_column_and_a_bad_checklist_are_reported_by_the_reward():
    reward = evolving(none)
    with pytest.raises(SampleError, match="no column 'checklist'"):
        reward(prompts=["a"], completions=["b"])
    with pytest.raises(ChecklistError, match="row 1 of the batch"):
        call(reward, ["red", "red"], checklist=[])
    with pytest.raises(SampleError, match="split.. requires fixed checklists; omit evolving=..."):
        reward.split("sign")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"proposer": "pocket"}, "evolving: proposer='pocket' is not allowed; it must be a mapping"),
        ({"proposer": None}, "evolving: proposer requires a model"),
    ],
)
def test_settings_are_checked(settings, message):
    given = {"proposer": Script(none)} | settings
    with pytest.raises(SampleError, match=message):
        reward_by(evolving={name: value for name, value in given.items() if value is not None})
