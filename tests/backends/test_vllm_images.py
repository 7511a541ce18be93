"""Images in vLLM: the requests have one placeholder per image and its pixels, and the answers are those of the
transformers engine."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from PIL import Image as Pillow
from transformers import AutoConfig

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.tokens import chat_tokenizer, load_chat_tokenizer
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.vision import Views
from checklist_rewards.backends.vllm import VLLMBackend, _requests
from checklist_rewards.images import image_of
from checklist_rewards.scores.reasons import Reason, Unanswered
from tests.backends import vision_architectures
from tests.backends.answers import LABELS, user
from tests.backends.test_vision import QWEN, TEXT
from tests.backends.test_vision_architectures import BLUE, GROUPS, RED, TALL, engine_of, folder_of
from tests.backends.vision_architectures import VISION, build
from tests.backends.vllmserver import engine_in_a_fork

LLAVA = "LLaVA"


@pytest.fixture
def requests_of(monkeypatch):
    """What is sent to vLLM for prompts."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(TokensPrompt=dict))
    return _requests


@pytest.mark.parametrize("name", ["Idefics3", LLAVA])
def test_a_request_has_a_placeholder_and_the_pixels_of_each_image_as_one_object_in_all_requests(requests_of, name):
    eyes = engine_of(name).eyes
    views, pictures = Views(eyes), []
    placeholder = eyes.tokens.tokenizer.convert_tokens_to_ids(eyes.placeholder)
    sent = eyes.send(GROUPS, views)
    prompts = [tokens.prefix + tail for tokens in sent for tail in tokens.tails]
    of_groups = zip(sent, ([RED], [RED], [BLUE], [TALL, RED]), strict=True)
    of_prompts = [images for tokens, images in of_groups for _ in tokens.tails]
    for prompt, images, request in zip(prompts, of_prompts, requests_of(prompts, views), strict=True):
        assert request["prompt_token_ids"].count(placeholder) == len(images)
        assert len(request["prompt_token_ids"]) <= len(prompt)
        assert request["multi_modal_uuids"] == {"image": [image.key for image in images]}
        shown = request["multi_modal_data"]["image"]
        assert [picture.size for picture in shown] == [image.size for image in images]
        pictures += shown
    assert len(pictures) == 15 and len(set(map(id, pictures))) == 3  # red, blue and the tall one
    assert requests_of([[1, 2]], views) == [{"prompt_token_ids": [1, 2]}]
    sent = eyes.send_prompt(user(f"{RED.mark} and {BLUE.mark} What is it?"), views)
    [request] = requests_of([sent], views)
    assert request["prompt_token_ids"].count(placeholder) == 2 and len(sent) > len(request["prompt_token_ids"])


def unloaded(name, **processor):
    """A backend without its engine, which keeps the prompts that it would send in `asked`."""
    backend = VLLMBackend.__new__(VLLMBackend)
    folder = folder_of(name)
    settings = SimpleNamespace(mm_processor_kwargs=processor)
    config = SimpleNamespace(
        hf_config=AutoConfig.from_pretrained(folder),
        trust_remote_code=False,
        revision=None,
        multimodal_config=settings,
    )
    backend.llm = SimpleNamespace(model_config=config)
    backend.tokens, backend._path, backend.sees, backend.limit = load_chat_tokenizer(folder), folder, True, 1024
    backend.over_limit, backend._reduced, backend.asked = Unanswered(Reason.TOO_LONG), False, []

    def ask(prompts, ids, groups=(), views=None):
        backend.asked += prompts
        return [Unanswered(Reason.BACKEND_ERROR)] * len(prompts), None

    backend._ask = ask
    return backend


def test_a_prompt_without_images_has_the_same_tokens_alone_and_among_prompts_with_images():
    """Also if the processor has a chat template of its own."""
    backend = unloaded(LLAVA)
    backend.tokens.tokenizer.chat_template = backend.tokens.tokenizer.chat_template.replace("ASSISTANT:", "MODEL:")
    backend.tokens = chat_tokenizer(backend.tokens.tokenizer)
    assert "ASSISTANT:" in backend.eyes.tokens.tokenizer.chat_template
    backend.read([TEXT[0]], LABELS)
    alone, backend.asked = backend.asked, []
    backend.read([GROUPS[0], TEXT[0], GROUPS[2]], LABELS)
    assert len(backend.asked) > len(alone) and [prompt for prompt in backend.asked if prompt in alone] == alone


def test_the_tokens_of_images_follow_the_processor_settings_of_the_engine():
    tiled, whole = unloaded("InternVL"), unloaded("InternVL", crop_to_patches=False)
    for backend in (tiled, whole):
        backend.read(GROUPS[3:], LABELS)
    assert len(tiled.asked[0]) > len(whole.asked[0])


def test_an_image_that_the_processor_refuses_costs_its_reads_only():
    thin = image_of(Pillow.new("RGB", (1, 400)))  # Qwen takes images up to 200 times as long as wide
    backend = unloaded(QWEN)
    answers, _ = backend.read([GROUPS[0], ReadGroup(None, thin.mark, ("Is it red?",)), GROUPS[2], TEXT[0]], LABELS)
    reasons = [str(answer.unanswered) for answer in answers]
    assert "cannot process an image: absolute aspect ratio" in reasons.pop(3)
    assert reasons == ["backend_error"] * 9 and len(backend.asked) == 9
    [[reply]] = backend.generate([[{"role": "user", "content": thin.mark}]], Sampling())
    assert "cannot process an image: absolute aspect ratio" in reply.unanswered


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_sees_what_transformers_sees(tmp_path, monkeypatch):
    """In transformers' class of LLaVA, which vLLM can run: its own imports torchvision, and that of the index needs
    CUDA."""
    wide = replace(VISION[LLAVA], text={**VISION[LLAVA].text, "head_dim": 32})  # vLLM's attention on a CPU has that
    monkeypatch.setitem(vision_architectures.VISION, LLAVA, wide)
    folder = build(LLAVA, tmp_path / "llava")
    ours = TransformersBackend(folder)
    settings = dict(limit_mm_per_prompt={"image": 2}, max_model_len=512, max_num_seqs=16, model_impl="transformers")
    with engine_in_a_fork():
        theirs = VLLMBackend(folder, **settings)
    try:
        groups = [*GROUPS, TEXT[0]]
        expected, _ = ours.read(groups, LABELS)
        answers, usage = theirs.read(groups, LABELS)
        for answer, other in zip(answers, expected, strict=True):
            assert answer.logprobs == pytest.approx(other.logprobs, abs=1e-3)
        assert usage.computed_tokens is not None
        assert usage.floor_tokens <= usage.computed_tokens < usage.prompt_tokens
        prompt = user(f"{RED.mark} What is it?")
        sampling = Sampling(max_tokens=6)
        assert theirs.generate([prompt], sampling)[0][0].text == ours.generate([prompt], sampling)[0][0].text
        three = ReadGroup(None, RED.mark + BLUE.mark + TALL.mark, ("Is it red?",))  # more than limit_mm_per_prompt
        *answers, refused = theirs.read([*groups, three], LABELS)[0]
        assert all(answer.logprobs for answer in answers) and "At most 2 image" in refused.unanswered.detail
        prompts = [[{"role": "user", "content": three.prefix}], prompt]
        for schema in (None, '{"enum": ["digits"]}'):
            [[refused], [reply]] = theirs.generate(prompts, replace(sampling, schema=schema))
            assert "At most 2 image" in refused.unanswered.detail and reply.text
        assert '"digits"'.startswith(reply.text)  # cut at 6 tokens
    finally:
        theirs.close()
