"""A judge loaded beside a policy: whole, whatever the trainer shards, and with a warning if every rank loads one."""

import logging

import pytest
from transformers import AutoModelForSequenceClassification
from transformers.integrations import deepspeed

from checklist_rewards.backends.encoder import EncoderBackend
from checklist_rewards.backends.models import warn_about_copies
from checklist_rewards.backends.transformers import TransformersBackend
from tests.backends.sharded_ranks import Zero3, p_yes
from tests.encoders import tiny_bert
from tests.ranks import on_two_ranks


@pytest.fixture
def zero3():
    config = Zero3()  # transformers holds a weak reference
    deepspeed.set_hf_deepspeed_config(config)
    yield config
    deepspeed.unset_hf_deepspeed_config()


@pytest.fixture
def encoder_folder(tmp_path):
    base = tiny_bert(tmp_path)
    AutoModelForSequenceClassification.from_pretrained(base, num_labels=1).save_pretrained(tmp_path)
    return base


def test_a_judge_is_loaded_whole_under_zero3_and_the_policy_is_still_sharded(encoder_folder, zero3):
    judges = TransformersBackend("pocket"), EncoderBackend(encoder_folder)
    assert all(parameter.numel() for judge in judges for parameter in judge.model.parameters())
    assert deepspeed.is_deepspeed_zero3_enabled() and deepspeed.deepspeed_config() is zero3.config


def test_a_judge_that_cannot_be_loaded_leaves_zero3_as_it_was(zero3, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "none"}')
    with pytest.raises(Exception, match="cannot be loaded"):
        TransformersBackend(str(tmp_path))
    assert deepspeed.is_deepspeed_zero3_enabled()


@pytest.mark.slow
def test_every_rank_reads_with_a_whole_judge_under_zero3_and_fsdp(tmp_path):
    ranks = on_two_ranks("backends/sharded_ranks.py", tmp_path)
    alone = p_yes(TransformersBackend("pocket"))
    for found in ranks:
        assert found == {
            "zero3": pytest.approx(alone, abs=1e-4),
            "policies are still sharded": True,
            "fsdp": pytest.approx(alone, abs=1e-4),
            "environment": "true",
        }


@pytest.mark.parametrize(("rank", "warnings"), [("0", 1), ("1", 0)])
def test_every_engine_warns_once_where_each_rank_would_load_its_own_judge(
    rank, warnings, monkeypatch, caplog, encoder_folder
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    for load in (lambda: TransformersBackend("pocket"), lambda: EncoderBackend(encoder_folder), warn_about_copies):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            load()
        assert caplog.text.count("each of the 2 processes loads its own copy of the judge") == warnings
        assert caplog.text.count("pass its base_url") == warnings
