"""SDPO with the checklist's feedback, in TRL's trainer, with the pocket model as the policy."""

import pytest
from datasets import Dataset
from transformers import AutoTokenizer
from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.rewards.sdpo import ChecklistSDPOTrainer, feedback_texts
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl
from tests.rewards.fakes import call, reward_by
from tests.rewards.test_trl_trainers import ON_CPU, rows

pytestmark = pytest.mark.slow

WORDS = {"digit": 0.05, "question": 0.95, "calm": 0.6, "lost": None}
CHECKLIST = [
    "Is there a digit?",
    "Is it a question?",
    "Is it calm?",
    "Is it lost?",
    {"question": "Is there a question mark?", "weight": -1},
]


def by_words() -> ChecklistReward:
    rule = lambda prefix, tail: next(value for word, value in WORDS.items() if word in tail)  # noqa: E731
    return reward_by(rule, scorer={"no_answer": "judge", "min_answered": 0.1})


def test_feedback_names_what_is_sure_and_nothing_that_was_not_answered():
    judged = by_words()
    assert feedback_texts(judged) == []
    judged(**call(["a text", "b"], "Write.", [CHECKLIST, CHECKLIST[1:2]]))
    text, nothing_failed = feedback_texts(judged)
    assert text == (
        "Wrong:\n- Is there a digit? no, but it should be yes.\n- Is there a question mark? yes, but it should be no."
        "\n\nRight:\n- Is it a question? yes"
    )
    assert nothing_failed is None
    assert "calm" in str(feedback_texts(judged, 0.05)[0])


def trainer(folder, rewards, kind=ChecklistSDPOTrainer, checklist=CHECKLIST[:2], **options):
    settings = {key: value for key, value in ON_CPU.items() if key != "beta"} | {"max_steps": 2}
    settings |= {"include_environment_feedback": True, "num_generations": 2, "max_completion_length": 12}
    rows = [{"prompt": [{"role": "user", "content": f"Write {n}."}], "checklist": checklist} for n in range(4)]
    return kind(
        model=str(pocket_dir()),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        reward_funcs=rewards,
        args=SDPOConfig(output_dir=str(folder), per_device_train_batch_size=4, **{**settings, **options}),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows),
    )


def test_the_teacher_reads_the_feedback_of_each_completion(tmp_path):
    reward = by_words()
    made, seen = trainer(tmp_path, reward), []
    inner = made.teacher_context_builder._inner
    tokenize = inner._tokenize_teacher_messages
    inner._tokenize_teacher_messages = lambda messages: seen.extend(messages) or tokenize(messages)
    made.train()
    assert len(seen) >= 8 and all("- Is there a digit? no, but it should be yes." in str(one) for one in seen)
    used = [e["self_distillation/feedback_used_fraction"] for e in made.state.log_history if "loss" in e]
    assert used == [1.0, 1.0]
    assert reward.last.groups == ["1.0", "1.0", "1.1", "1.1"], "consecutive completions, in the second call"


def test_one_prompt_in_a_call_is_no_pair_of_online_dpo(tmp_path, caplog):
    """As with the defaults: eight completions of one prompt on a device."""
    lost = iter([False, True, *[False] * 100])
    judged = reward_by(lambda prefix, tail: None if next(lost) else 0.9)
    trainer(tmp_path, judged, checklist=CHECKLIST[:1], max_steps=1, num_generations=4).train()
    assert judged.last.rewards == [None] * 4
    assert "This trainer counts None as 0" in caplog.text and "OnlineDPO" not in caplog.text


@pytest.mark.parametrize("kind", [SDPOTrainer, ChecklistSDPOTrainer])
def test_a_completion_without_a_score_takes_its_group_along_and_an_evaluation_is_none_of_training(tmp_path, kind):
    """SDPO counts None as 0, also if it has one reward, and passes no hooks that show the trainer."""
    lost = iter([False, True, *[False] * 100])
    options = {"log": tmp_path / "rewards.jsonl", "monitor": {"max_canary": None, "retest_share": 0}}
    judged = reward_by(lambda prefix, tail: None if next(lost) else 0.9, **options)
    evaluated = dict(max_steps=1, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=2)
    made = trainer(tmp_path, judged, kind=kind, checklist=CHECKLIST[:1], **evaluated)
    made.train()
    lines = read_jsonl(tmp_path / "rewards.jsonl")
    training = [line["reward"] for line in lines if "evaluation" not in line]
    groups = [training[:2], training[2:]]
    assert [None, None] in groups and [pytest.approx(0.9)] * 2 in groups
    assert len(lines) == 4 + 8 and judged.monitor.state["calls"] == 1
    assert judged.callback in made.callback_handler.callbacks and (tmp_path / "monitor.jsonl").is_file()


def test_with_the_defaults_of_trl(scorer, tmp_path, caplog):
    made = ChecklistSDPOTrainer(
        model=str(pocket_dir()),
        reward_funcs=ChecklistReward(scorer),
        args=SDPOConfig(
            output_dir=str(tmp_path),
            include_environment_feedback=True,  # required
            use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
            max_steps=1,  # the default is three epochs
        ),
        train_dataset=Dataset.from_list(rows(conversational=True, n=8)),
    )
    assert made.args.bf16 and made.args.gradient_checkpointing
    made.train()
    last = made.reward_funcs[0].last
    again = scorer.score_batch(last.samples)
    assert [score.primary_score for score in last.scores] == [
        pytest.approx(score.primary_score, abs=1e-6) for score in again
    ]
    assert len(again) == 8 and (tmp_path / "checkpoint-1" / "trainer_state.json").is_file()
    assert not [record for record in caplog.records if record.name.startswith("checklist_rewards")]


def test_the_reference_of_sdpo_is_the_base_of_an_adapter_for_it_keeps_no_other(tmp_path):
    with pytest.raises(ModelError, match=r"train an adapter \(peft_config=LoraConfig\(...\)\), or name a judge\.$"):
        trainer(tmp_path, ChecklistReward(model="reference", store=False), beta=0.1).train()


def test_it_needs_one_checklist_reward_and_feedback_that_is_used(tmp_path):
    with pytest.raises(SampleError, match="from one ChecklistReward; reward_funcs has 0"):
        trainer(tmp_path, lambda completions, **_: [0.0] * len(completions))
    with pytest.raises(SampleError, match="include_environment_feedback=False would leave out"):
        trainer(tmp_path, by_words(), include_environment_feedback=False)
