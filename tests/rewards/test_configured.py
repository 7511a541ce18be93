"""The module attribute that `trl grpo --reward_funcs` takes, and the YAML file that it is built from."""

import pytest

from checklist_rewards.errors import PromptError, SampleError
from checklist_rewards.rewards import configured
from checklist_rewards.rewards import trl as module


@pytest.fixture
def config(tmp_path, monkeypatch):
    path = tmp_path / "reward.yaml"
    monkeypatch.setenv(configured.CONFIG_VARIABLE, str(path))
    configured.configured_reward.cache_clear()
    return path


def test_the_module_attribute_is_built_from_the_yaml_file_that_the_environment_names(config, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    config.write_text(
        f"model: {tmp_path}/model\nstore: false\nname: tone\nmetric: pass\nthreshold: 0.7\ncategories: [style, fact]\n"
    )
    reward = module.reward
    assert (reward.__name__, reward.metric, reward.categories) == ("tone", "pass", ("style", "fact"))
    assert reward.scorer.aggregation.threshold == 0.7
    assert module.reward is reward


def test_the_yaml_file_may_shape_the_reward(config):
    steps = "[{name: earned, answers: hard}, gate, {name: length_penalty, free: 20, cap: 40}, clipped]"
    config.write_text(f"model: pocket\nstore: false\nretries: 2\nshaping: {steps}\n")
    reward = module.reward
    assert [step.name for step in reward.shaping.steps] == ["earned", "gate", "length_penalty", "clipped"]
    assert (reward.shaping.steps[0].answers, reward.shaping.steps[2].cap, reward.retries) == ("hard", 40, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "modle: pocket\n",
            r"reward.yaml: unknown key 'modle' .*allowed: metric, name, column.*, model, backend",
        ),
        ("scorer: x\n", "unknown key 'scorer'"),
        ("judge: x\n", "reward.yaml: x: the file of judges cannot be read"),
        ("- pocket\n", "reward.yaml must be a mapping of settings, got list"),
        ("a: [\n", "reward.yaml cannot be read as YAML"),
        ("shaping: clipped\n", "reward.yaml: shaping must be a list of steps"),
        ("shaping: [{name: gate, how: add}]\n", "reward.yaml: shaping, step 1 .gate.: how: .* got 'add'"),
        ("retries: -1\n", "reward.yaml: retries=-1 is not allowed"),
        ("keep_thinking: 'no'\n", "reward.yaml: keep_thinking='no' is not allowed; it must be True or False"),
        ("thinking_opened: 1\n", "reward.yaml: thinking_opened=1 is not allowed"),
        ("thinking_opened: true\nthinking_tags: []\n", "thinking_opened=True requires thoughts, but thinking_tags="),
        ("log: [a.jsonl]\n", r"reward.yaml: log=\['a.jsonl'\] is not allowed; it must be the path of a JSONL file"),
        ("threshold: high\n", "reward.yaml: threshold='high'"),
        ("model: ./nowhere\nstore: false\n", "reward.yaml: model not found: './nowhere'"),
        ("prompt: judges/none\n", "reward.yaml: prompt not found: 'judges/none'"),
    ],
)
def test_a_bad_yaml_file_is_refused_by_name(config, text, words):
    config.write_text(text)
    with pytest.raises((SampleError, PromptError, ValueError), match=words):
        _ = module.reward


def test_files_that_it_names_lie_beside_it(config, tmp_path):
    (tmp_path / "judges.yaml").write_text("panel: {rule: mean}\njudges: [pocket, pocket]\n")
    config.write_text("judge: judges.yaml\nstore: false\n")
    assert module.reward.scorer.judge.name == "mean of pocket, pocket"


def test_a_missing_variable_or_file_is_said(config, monkeypatch):
    with pytest.raises(SampleError, match="reward.yaml cannot be read"):
        _ = module.reward
    monkeypatch.delenv(configured.CONFIG_VARIABLE)
    with pytest.raises(SampleError, match="requires the environment variable CHECKLIST_REWARDS_CONFIG, the path"):
        _ = module.reward
    with pytest.raises(AttributeError, match="no attribute 'rewards'"):
        _ = module.rewards
