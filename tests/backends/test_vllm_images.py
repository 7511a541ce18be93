"""Images in vLLM: the requests have one placeholder per image and its pixels, and the answers are those of the
transformers engine."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checklist_rewards.backends import Sampling
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.vision import Views
from tests.backends import vision_architectures
from tests.backends.test_vision import TEXT
from tests.backends.test_vision_architectures import BLUE, GROUPS, LABELS, RED, TALL, engine_of
from tests.backends.vision_architectures import VISION, build

LLAVA = "LLaVA"


def test_a_request_has_a_placeholder_and_the_pixels_of_each_image(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(TokensPrompt=dict))
    from checklist_rewards.backends.vllm import _request

    eyes = engine_of(LLAVA).eyes
    views = Views(eyes)
    placeholder = eyes.tokens.tokenizer.convert_tokens_to_ids("<image>")
    for group, tokens in zip([*GROUPS, TEXT[0]], eyes.send([*GROUPS, TEXT[0]], views), strict=True):
        images = {GROUPS[2].prefix: [BLUE], GROUPS[3].prefix: [TALL, RED], TEXT[0].prefix: []}.get(group.prefix, [RED])
        for tail in tokens.tails:
            request = _request(tokens.prefix + tail, views)
            assert request["prompt_token_ids"].count(placeholder) == len(images)
            assert len(request["prompt_token_ids"]) <= len(tokens.prefix + tail)
            if images:
                assert request["multi_modal_uuids"] == {"image": [image.key for image in images]}
                assert [picture.size for picture in request["multi_modal_data"]["image"]] == [i.size for i in images]
            else:
                assert set(request) == {"prompt_token_ids"} and request["prompt_token_ids"] == tokens.prefix + tail


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_sees_what_transformers_sees(tmp_path, monkeypatch):
    pytest.importorskip("torchvision", reason="vLLM's class of LLaVA imports torchvision")
    from checklist_rewards.backends.vllm import VLLMBackend

    wide = replace(VISION[LLAVA], text={**VISION[LLAVA].text, "head_dim": 32})  # vLLM's attention on a CPU has no 16
    monkeypatch.setitem(vision_architectures.VISION, LLAVA, wide)
    folder = build(LLAVA, tmp_path / "llava")
    ours = TransformersBackend(folder)
    theirs = VLLMBackend(folder, limit_mm_per_prompt={"image": 2}, max_model_len=512, max_num_seqs=16)
    try:
        groups = [*GROUPS, TEXT[0]]
        expected, _ = ours.read(groups, LABELS)
        answers, usage = theirs.read(groups, LABELS)
        for answer, other in zip(answers, expected, strict=True):
            assert answer.logprobs == pytest.approx(other.logprobs, abs=1e-3)
        assert usage.computed_tokens is not None
        assert usage.floor_tokens <= usage.computed_tokens < usage.prompt_tokens
        prompt = [{"role": "user", "content": f"{RED.mark} What is it?"}]
        sampling = Sampling(max_tokens=6)
        assert theirs.generate([prompt], sampling)[0][0].text == ours.generate([prompt], sampling)[0][0].text
    finally:
        theirs.close()
