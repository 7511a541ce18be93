"""The transformers engine on the pocket model: packed reads are the separate ones, and memory is bounded."""

import math
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.live import LiveBackend
from checklist_rewards.backends.models import pocket_dir
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.trees import branches_of, floor_tokens
from checklist_rewards.errors import BackendError, ModelError
from tests.backends.answers import LABELS, before_each_pass, near, turned, user

WRITE = [user("Write something.")]


@pytest.fixture(scope="module")
def own_pocket():
    """An engine that a test may change."""
    return TransformersBackend("pocket")


def one_by_one(groups: list[ReadGroup]) -> list[ReadGroup]:
    return [ReadGroup(group.system, group.prefix, (tail,)) for group in groups for tail in group.tails]


def test_order_batching_and_packing_do_not_change_an_answer(own_pocket, world_reads, monkeypatch):
    together, usage = own_pocket.read(world_reads, LABELS)
    assert near(together, own_pocket.read(one_by_one(world_reads), LABELS)[0])
    assert near(together, turned(own_pocket.read(world_reads[::-1], LABELS)[0], world_reads))
    monkeypatch.setattr(own_pocket, "packs", False)
    separate, costs = own_pocket.read(world_reads, LABELS)
    assert near(together, separate)
    assert costs.computed_tokens == costs.prompt_tokens == usage.prompt_tokens
    assert own_pocket.read([], LABELS)[1].computed_tokens == 0


def test_tokens_that_prompts_share_are_computed_once_where_that_saves_more_than_a_long_row_costs(
    own_pocket, world_reads, monkeypatch
):
    monkeypatch.setattr(own_pocket, "keeps", False)

    def computed(**costs):
        with monkeypatch.context() as patched:
            patched.setattr(own_pocket, "device_costs", own_pocket.device_costs._replace(**costs))
            return own_pocket.read(world_reads, LABELS)[1]

    by_cost, longest, one_target = computed(), computed(even=math.inf), computed(even=1e-9)
    assert by_cost.cached == 0 and by_cost.floor_tokens <= by_cost.computed_tokens < by_cost.prompt_tokens / 2
    assert longest.computed_tokens == by_cost.floor_tokens
    assert one_target.computed_tokens > by_cost.computed_tokens


def test_a_row_is_widened_by_other_targets_up_to_its_mask_and_the_questions_of_a_target_stay_together(
    own_pocket, world_reads, monkeypatch
):
    whole, _ = own_pocket.read(world_reads, LABELS)
    branches = branches_of(own_pocket.tokens.groups(world_reads), own_pocket.limit)
    each = [floor_tokens([branch])[1] for branch in branches]
    costs = own_pocket.device_costs._replace(even=math.inf, widest=max(each) - 1)
    monkeypatch.setattr(own_pocket, "device_costs", costs)
    widths = []
    with before_each_pass(own_pocket.model, lambda input_ids, **_: widths.append(input_ids.shape[1])):
        narrow, in_rows = own_pocket.read(world_reads, LABELS)
        monkeypatch.setattr(own_pocket, "device_costs", costs._replace(widest=0))
        alone, in_targets = own_pocket.read(world_reads, LABELS)
    assert max(widths) == max(each) and in_targets.computed_tokens == sum(each) >= in_rows.computed_tokens
    assert near(whole, narrow) and near(whole, alone)


def test_passes_and_masks_keep_to_the_token_budget_and_only_rows_with_several_reads_have_one(
    own_pocket, world_reads, monkeypatch
):
    passes = []

    def note(input_ids, attention_mask, **_):
        rows, width = input_ids.shape
        passes.append((rows, width, None if attention_mask is None else attention_mask.shape[-1]))

    groups = [*world_reads, *one_by_one(world_reads[:3])]
    whole = own_pocket.read(groups, LABELS)[0]
    before = own_pocket.max_batch_tokens
    with before_each_pass(own_pocket.model, note):
        for budget in (before, 1000, 64):  # the last is less than some prompts have
            monkeypatch.setattr(own_pocket, "max_batch_tokens", budget)
            passes.clear()
            assert near(whole, own_pocket.read(groups, LABELS)[0])
            assert any(mask is not None for _, _, mask in passes) == (budget > 64)
            assert all(rows == 1 or rows * width <= budget for rows, width, _ in passes)
            assert all(mask is None or rows * mask <= budget for rows, _, mask in passes)
            if budget == 64:
                assert any(mask is None and rows == 1 and width > 64 for rows, width, mask in passes)


def test_what_does_not_fit_is_too_long_and_costs_no_other_read(pocket):
    long = ReadGroup(None, "word " * 3000, ("Is it short?", "Is it long?"))
    short = ReadGroup(None, "A word. ", ("Is it short?",))
    answers, usage = pocket.read([long, short], LABELS)
    assert [answer.unanswered for answer in answers] == ["too_long", "too_long", None]
    assert answers[0].logprobs is None
    assert usage.prompt_tokens == pocket.read([short], LABELS)[1].prompt_tokens


def test_sampling_gives_n_replies_and_repeats_with_its_seed(pocket):
    sampling = Sampling(max_tokens=24, temperature=1.0, n=4, seed=1)
    [replies] = pocket.generate(WRITE, sampling)
    assert len(replies) == 4 and len({reply.text for reply in replies}) > 1
    assert [replies] == pocket.generate(WRITE, sampling) != pocket.generate(WRITE, replace(sampling, seed=2))


def test_a_reply_says_whether_it_ended_or_was_cut(pocket):
    [[cut]] = pocket.generate(WRITE, Sampling(max_tokens=2))
    assert cut.finish_reason == "length"
    assert cut.completion_tokens == 2 and cut.prompt_tokens == len(pocket.tokens.prompt(WRITE[0]))
    [[ended]] = pocket.generate(WRITE, Sampling(max_tokens=400))
    assert ended.finish_reason == "stop" and "<|end|>" not in ended.text


def test_a_prompt_that_leaves_no_room_gets_no_reply(pocket):
    [[first, second]] = pocket.generate([user("word " * 3000)], Sampling(n=2, max_tokens=4))
    assert (first.text, first.unanswered) == (None, "too_long") and second == first


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded with transformers"):
        TransformersBackend(str(tmp_path))


def short_of_memory(most_rows: int, most_tokens: int):
    """A pass beyond both limits does not fit."""

    def note(input_ids, **_):
        rows, width = input_ids.shape
        if rows > most_rows or rows * width > most_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    return note


def test_a_batch_that_does_not_fit_the_memory_is_halved_and_one_prompt_too_large_is_unanswered(
    own_pocket, world_reads
):
    whole, _ = own_pocket.read(world_reads, LABELS)
    longest = max(len(group.prefix) for group in own_pocket.tokens.groups(world_reads))
    groups = [*one_by_one(world_reads), ReadGroup(None, "word " * 900, ("Is it short?",))]
    with before_each_pass(own_pocket.model, short_of_memory(1, longest + 40)):
        *others, lost = own_pocket.read(groups, LABELS)[0]
    assert lost.unanswered.startswith("backend_error: out of memory") and near(whole, others)
    prompts = [user("Say it . " * count) for count in (1, 50, 2)]
    with before_each_pass(own_pocket.model, short_of_memory(99, 100)):
        [[first], [second], [third]] = own_pocket.generate(prompts, Sampling(max_tokens=4))
    assert second.unanswered.startswith("backend_error: out of memory")
    assert first.text is not None and third.text is not None


@pytest.mark.parametrize("wrapped", [False, True])
def test_replies_take_nothing_but_the_end_from_the_models_generation_config(pocket, wrapped):
    greedy, drawn = Sampling(max_tokens=12), Sampling(max_tokens=12, temperature=1.0, n=2)
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    own = model.generation_config
    hostile = {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1, "min_new_tokens": 12, "num_beams": 2, "top_k": 1}
    own.update(**hostile, temperature=0.1, max_length=3, num_return_sequences=2)
    engine = LiveBackend(get_peft_model(model, LoraConfig(target_modules="all-linear")) if wrapped else model)
    for sampling in (greedy, drawn):
        assert engine.generate(WRITE, sampling) == pocket.generate(WRITE, sampling)
    assert model.generation_config is own and own.num_beams == 2


def test_a_model_that_breaks_is_a_backend_error(own_pocket, world_reads):
    def broken(**_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with before_each_pass(own_pocket.model, broken):
        for ask in (lambda: own_pocket.read(world_reads, LABELS), lambda: own_pocket.generate(WRITE, Sampling())):
            with pytest.raises(BackendError, match="illegal memory access"):
                ask()
