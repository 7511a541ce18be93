"""The transformers engine on the pocket model: packed reads are the separate ones, and memory is bounded."""

import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import ReadGroup, Sampling, load_backend
from checklist_rewards.backends.live import LiveBackend
from checklist_rewards.backends.models import pocket_dir
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.trees import branches_of, floor_tokens
from checklist_rewards.errors import BackendError, ModelError
from tests.backends.answers import turned

LABELS = ("yes", "no")


@pytest.fixture(scope="module")
def own_pocket():
    """An engine that a test may change."""
    return TransformersBackend("pocket")


def flat(result) -> torch.Tensor:
    return torch.tensor([read.logprobs for read in result[0]])


def one_by_one(groups: list[ReadGroup]) -> list[ReadGroup]:
    return [ReadGroup(group.system, group.prefix, (tail,)) for group in groups for tail in group.tails]


def test_packed_reads_equal_separate_prompts(own_pocket, world_reads):
    packed = flat(own_pocket.read(world_reads, LABELS))
    ids = [group.prefix + tail for group in own_pocket.tokens.groups(world_reads) for tail in group.tails]
    forms = own_pocket.tokens.label_groups(LABELS)
    with torch.inference_mode():
        last = torch.stack([own_pocket.model(torch.tensor([prompt])).logits[0, -1] for prompt in ids]).log_softmax(-1)
    separate = torch.stack([last[:, list(group)].logsumexp(-1) for group in forms], dim=-1)
    assert own_pocket.packs
    assert (packed - separate).abs().max() < 1e-4
    assert (packed.exp() - separate.exp()).abs().max() < 1e-5


def test_order_and_batching_do_not_change_an_answer(own_pocket, world_reads):
    together = flat(own_pocket.read(world_reads, LABELS))
    alone = flat(own_pocket.read(one_by_one(world_reads), LABELS))
    backwards, _ = own_pocket.read(world_reads[::-1], LABELS)
    assert (together - alone).abs().max() < 1e-4
    assert (together - flat((turned(backwards, world_reads), None))).abs().max() < 1e-4


def test_a_model_that_cannot_pack_gives_the_same_answers(own_pocket, world_reads):
    packed = own_pocket.read(world_reads, LABELS)
    own_pocket.packs = False
    try:
        separate = own_pocket.read(world_reads, LABELS)
    finally:
        own_pocket.packs = True
    assert (flat(packed) - flat(separate)).abs().max() < 1e-4
    assert separate[1].computed_tokens == separate[1].prompt_tokens == packed[1].prompt_tokens


def test_tokens_that_prompts_share_are_computed_once_where_that_saves_more_than_a_long_row_costs(
    own_pocket, world_reads, monkeypatch
):
    monkeypatch.setattr(own_pocket, "keeps", False)
    _, result = own_pocket.read(world_reads, LABELS)
    assert result.cached == 0 and result.floor_tokens <= result.computed_tokens < result.prompt_tokens / 2
    assert flat_of_trees(own_pocket, world_reads, math.inf).computed_tokens == result.floor_tokens
    assert flat_of_trees(own_pocket, world_reads, 1e-9).computed_tokens > result.computed_tokens


def test_a_row_is_widened_by_other_targets_up_to_its_mask_and_the_questions_of_a_target_stay_together(
    own_pocket, world_reads, monkeypatch
):
    whole = own_pocket.read(world_reads, LABELS)
    each = [
        floor_tokens([branch])[1] for branch in branches_of(own_pocket.tokens.groups(world_reads), own_pocket.limit)
    ]
    costs = own_pocket.device_costs._replace(even=math.inf, widest=max(each) - 1)
    monkeypatch.setattr(own_pocket, "device_costs", costs)
    widths = []
    hook = own_pocket.model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        narrow = own_pocket.read(world_reads, LABELS)
        monkeypatch.setattr(own_pocket, "device_costs", costs._replace(widest=0))
        alone = own_pocket.read(world_reads, LABELS)
    finally:
        hook.remove()
    assert max(widths) == max(each) and alone[1].computed_tokens == sum(each) >= narrow[1].computed_tokens
    assert (flat(whole) - flat(narrow)).abs().max() < 1e-4 and (flat(whole) - flat(alone)).abs().max() < 1e-4


def flat_of_trees(engine, groups, even):
    """A read in rows as long as possible (even = inf), or with one target in each (even = 0)."""
    engine.device_costs, before = engine.device_costs._replace(even=even), engine.device_costs
    try:
        return engine.read(groups, LABELS)[1]
    finally:
        engine.device_costs = before


def test_no_forward_pass_is_larger_than_the_token_budget(own_pocket, world_reads):
    shapes = []
    hook = own_pocket.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    whole = flat(own_pocket.read(world_reads, LABELS))
    longest = max(rows * width for rows, width in shapes)
    own_pocket.max_batch_tokens, before = longest // 4, own_pocket.max_batch_tokens
    shapes.clear()
    try:
        bounded = flat(own_pocket.read(world_reads, LABELS))
    finally:
        own_pocket.max_batch_tokens = before
        hook.remove()
    assert len(shapes) >= 4
    assert all(rows * width <= longest // 4 for rows, width in shapes)
    assert (whole - bounded).abs().max() < 1e-4


def test_only_rows_with_several_reads_get_a_mask_and_they_keep_to_the_token_budget(own_pocket, world_reads):
    passes = []

    def note(module, args, kwargs):
        mask = kwargs["attention_mask"]
        passes.append((None if mask is None else mask.shape[-1], *kwargs["input_ids"].shape))

    groups = [*world_reads, *one_by_one(world_reads[:3])]
    expected, _ = own_pocket.read(world_reads, LABELS)
    expected = expected + expected[: sum(len(group.tails) for group in world_reads[:3])]
    hook = own_pocket.model.register_forward_pre_hook(note, with_kwargs=True)
    own_pocket.max_batch_tokens, before = 64, own_pocket.max_batch_tokens  # less than some prompts have
    try:
        small = own_pocket.read(groups, LABELS)
        own_pocket.max_batch_tokens = before
        whole = own_pocket.read(groups, LABELS)
    finally:
        own_pocket.max_batch_tokens = before
        hook.remove()
    assert any(mask is None and rows == 1 and width > 64 for mask, rows, width in passes)
    assert any(mask is not None for mask, _, _ in passes)
    assert all(mask is None or rows * mask <= before for mask, rows, _ in passes)
    for result in (small, whole):
        assert (flat(result).exp() - flat((expected, None)).exp()).abs().max() < 1e-4


def test_what_does_not_fit_is_too_long_and_costs_no_other_read(pocket):
    long = ReadGroup(None, "word " * 3000, ("Is it short?", "Is it long?"))
    short = ReadGroup(None, "A word. ", ("Is it short?",))
    answers, usage = pocket.read([long, short], LABELS)
    assert [answer.unanswered for answer in answers] == ["too_long", "too_long", None]
    assert answers[0].logprobs is None
    assert usage.prompt_tokens == pocket.read([short], LABELS)[1].prompt_tokens


def test_labels_are_shares_of_the_full_vocabulary(pocket, world_reads):
    [read, *_], _ = pocket.read(world_reads[:1], LABELS)
    yes, no = (math.exp(logprob) for logprob in read.logprobs)
    assert 0 < yes + no <= 1 + 1e-6


def test_no_reads_cost_nothing(pocket):
    assert pocket.read([], LABELS)[1].computed_tokens == 0


def test_greedy_replies_are_equal_however_they_are_batched(pocket):
    prompts = [
        [{"role": "user", "content": text}] for text in ("Write something.", "Write one sentence. Avoid digits.")
    ]
    together = pocket.generate(prompts, Sampling(max_tokens=24))
    assert together == [pocket.generate([prompt], Sampling(max_tokens=24))[0] for prompt in prompts]


def test_sampling_gives_n_replies_and_repeats_with_its_seed(pocket):
    prompts = [[{"role": "user", "content": "Write something."}]]
    [replies] = pocket.generate(prompts, Sampling(max_tokens=24, temperature=1.0, n=4, seed=1))
    assert len(replies) == 4
    assert len({reply.text for reply in replies}) > 1
    assert [replies] == pocket.generate(prompts, Sampling(max_tokens=24, temperature=1.0, n=4, seed=1))
    assert [replies] != pocket.generate(prompts, Sampling(max_tokens=24, temperature=1.0, n=4, seed=2))


def test_a_reply_says_whether_it_ended_or_was_cut(pocket):
    prompts = [[{"role": "user", "content": "Write something."}]]
    [[cut]] = pocket.generate(prompts, Sampling(max_tokens=2))
    assert cut.finish_reason == "length"
    assert cut.completion_tokens == 2 and cut.prompt_tokens == len(pocket.tokens.prompt(prompts[0]))
    [[ended]] = pocket.generate(prompts, Sampling(max_tokens=400))
    assert ended.finish_reason == "stop"
    assert "<|end|>" not in ended.text


def test_a_prompt_that_leaves_no_room_gets_no_reply(pocket):
    [[first, second]] = pocket.generate([[{"role": "user", "content": "word " * 3000}]], Sampling(n=2, max_tokens=4))
    assert (first.text, first.unanswered) == (None, "too_long") and second == first


def test_one_engine_serves_everybody_who_asks_for_the_model(pocket):
    assert load_backend("pocket", "transformers") is pocket


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded with transformers"):
        TransformersBackend(str(tmp_path))
    with pytest.raises(ModelError, match="model not found"):
        load_backend("/no/such/model", "transformers")


def test_a_batch_that_does_not_fit_the_memory_is_halved_and_one_prompt_too_large_is_unanswered(
    own_pocket, world_reads
):
    whole = own_pocket.read(world_reads, LABELS)
    longest = max(len(prefix) for prefix, _ in own_pocket.tokens.groups(world_reads))

    def short_of_memory(module, args, kwargs):
        rows, width = kwargs["input_ids"].shape
        if rows > 1 or width > longest + 40:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    hook = own_pocket.model.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    try:
        result = own_pocket.read([*one_by_one(world_reads), ReadGroup(None, "word " * 900, ("Is it short?",))], LABELS)
    finally:
        hook.remove()
    *others, lost = result[0]
    assert lost.unanswered.startswith("backend_error: out of memory")
    assert (torch.tensor([read.logprobs for read in others]) - flat(whole)).abs().max() < 1e-4


def test_a_prompt_too_large_for_the_memory_costs_its_own_replies(own_pocket):
    def short_of_memory(module, args, kwargs):
        if kwargs["input_ids"].shape[0] * kwargs["input_ids"].shape[1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    prompts = [[{"role": "user", "content": "Say it . " * count}] for count in (1, 50, 2)]
    hook = own_pocket.model.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    try:
        [[first], [second], [third]] = own_pocket.generate(prompts, Sampling(max_tokens=4))
    finally:
        hook.remove()
    assert second.unanswered.startswith("backend_error: out of memory")
    assert first.text is not None and third.text is not None


@pytest.mark.filterwarnings("error::FutureWarning", "error::DeprecationWarning")
def test_nothing_that_an_engine_calls_is_deprecated(world_reads):
    own = TransformersBackend("pocket")
    own.device_costs = own.device_costs._replace(one=-1e9)  # below kept prefixes, which is a pass with a cache
    assert own.read(world_reads[:4], LABELS)[1].cached
    own.generate([[{"role": "user", "content": "Write something."}]], Sampling(max_tokens=4, n=2, temperature=1.0))


@pytest.mark.parametrize("wrapped", [False, True])
def test_replies_take_nothing_but_the_end_from_the_models_generation_config(wrapped):
    prompts, sampling = [[{"role": "user", "content": "Write something."}]], Sampling(max_tokens=12)
    drawn = Sampling(max_tokens=12, temperature=1.0, n=2)
    plain = TransformersBackend("pocket")
    expected = plain.generate(prompts, sampling), plain.generate(prompts, drawn)
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    own = model.generation_config
    hostile = {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1, "min_new_tokens": 12, "num_beams": 2, "top_k": 1}
    own.update(**hostile, temperature=0.1, max_length=3, num_return_sequences=2)
    engine = LiveBackend(get_peft_model(model, LoraConfig(target_modules="all-linear")) if wrapped else model)
    assert (engine.generate(prompts, sampling), engine.generate(prompts, drawn)) == expected
    assert model.generation_config is own and own.num_beams == 2


def test_a_model_that_breaks_is_a_backend_error(own_pocket, world_reads):
    def broken(module, args, kwargs):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    hook = own_pocket.model.register_forward_pre_hook(broken, with_kwargs=True)
    try:
        with pytest.raises(BackendError, match="illegal memory access"):
            own_pocket.read(world_reads, LABELS)
        with pytest.raises(BackendError, match="illegal memory access"):
            own_pocket.generate([[{"role": "user", "content": "Say it."}]], Sampling())
    finally:
        hook.remove()
