"""Tiny random vision-language models of many architectures, with the pocket tokenizer: what reads must be exact on.

Each has the markers of its family, its chat template (typed in; system texts and tools are left out), its processor,
and images as small as the architecture allows. Windows are 16 tokens wide, so images and texts reach beyond them. The
weights are drawn wider than a model's own initialisation, as in `architectures.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import transformers
from PIL import Image as Pillow
from PIL import ImageDraw
from transformers import AutoModelForImageTextToText, AutoTokenizer

from checklist_rewards.backends.models import pocket_dir
from tests.backends.architectures import saved

WINDOW = 16
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_LAYERS = ["sliding_attention", "full_attention"] * 2
_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}IMAGE{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ first if loop.first }}{% if m.content is string %}{{ m.content | trim }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text | trim }}{% endif %}{% endfor %}{% endif %}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


@dataclass(frozen=True)
class Vision:
    """An architecture: its configuration, with the settings of its parts and its own, and its processor."""

    config: str
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    processor: str
    pixels: Mapping[str, Any]  # the image processor's file
    template: str
    special: Mapping[str, str]  # tokens by the attribute of the tokenizer, or by a name of their own
    ids: Mapping[str, str]  # settings of the configuration that are ids, by token
    settings: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the processor
    shares: bool = True  # whether reads share the prompt up to the image


_QWEN_VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
_QWEN = Vision(
    "Qwen2VLConfig",
    {"rope_parameters": _MROPE},
    {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14},
    "Qwen2VLProcessor",
    {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 24},
    _CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    {"start": "<|im_start|>", "end": "<|im_end|>", "image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    | {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"},
    {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    | {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"},
)

_QWEN3_PIXELS = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "min_pixels": 32 * 32}
_QWEN3_PIXELS |= {"max_pixels": 32 * 32 * 24}
_SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
_IDEFICS = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}"
    "{{ ':' if m.content[0]['type'] == 'image' else ': ' }}{% for c in m.content %}"
    "{% if c['type'] == 'text' %}{{ c['text'] }}{% elif c['type'] == 'image' %}<image>"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
_IMAGES_FIRST = (
    "{% for m in messages %}OPEN{% for c in m.content | selectattr('type', 'equalto', 'image') %}<image>AFTER"
    "{% endfor %}{% for c in m.content | selectattr('type', 'equalto', 'text') %}TEXT{% endfor %}CLOSE{% endfor %}"
    "{% if add_generation_prompt %}PROMPT{% endif %}"
)


def _images_first(**words: str) -> str:
    text = _IMAGES_FIRST
    for name, word in words.items():
        text = text.replace(name, word)
    return text


_MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"
    "{% elif m.role == 'user' %}[INST]{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'text' %}{{ c.text }}{% elif c.type in ['image', 'image_url'] %}[IMG]{% endif %}{% endfor %}"
    "{% endif %}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
_PIXTRAL_TOKENS = {
    "bos_token": "<s>",
    "image_token": "[IMG]",
    "break": "[IMG_BREAK]",
    "over": "[IMG_END]",
    "inst": "[INST]",
}
_PIXTRAL_TOKENS |= {"closed": "[/INST]", "system": "[SYSTEM_PROMPT]", "rules": "[/SYSTEM_PROMPT]"}
_TILES = {f"tile{row}{col}": f"<row_{row}_col_{col}>" for row in (1, 2, 3) for col in (1, 2, 3)}
_AYA = (
    "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ m.role }}|>{% if m.content is string %}"
    "{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}"
    "{% endif %}{% endfor %}{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
)

_IDEFICS3 = Vision(
    "Idefics3Config",
    {"model_type": "llama"},
    {**_SIGLIP, "image_size": 56, "patch_size": 14},
    "Idefics3Processor",
    {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 112}}
    | {"max_image_size": {"longest_edge": 56}},
    _IDEFICS,
    {"start": "<|im_start|>", "end": "<end_of_utterance>", "image_token": "<image>", "whole": "<global-img>"}
    | {"fake": "<fake_token_around_image>", **_TILES},
    {"image_token_id": "<image>"},
    {"scale_factor": 2},
    {"image_seq_len": 4},
)

_PIXTRAL = Vision(
    "LlavaConfig",
    {"model_type": "mistral", "sliding_window": None},
    {**_SIGLIP, "model_type": "pixtral", "image_size": 112, "patch_size": 14, "head_dim": 16},
    "PixtralProcessor",
    {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 56}}
    | {"patch_size": {"height": 14, "width": 14}},
    _MISTRAL,
    _PIXTRAL_TOKENS,
    {"image_token_index": "[IMG]"},
    {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
    {"patch_size": 14},
)

VISION: dict[str, Vision] = {
    "Qwen2-VL": _QWEN,
    "Qwen2.5-VL": replace(
        _QWEN,
        config="Qwen2_5_VLConfig",
        vision=_QWEN_VISION | {"window_size": 56, "fullatt_block_indexes": [1], "patch_size": 14},
        processor="Qwen2_5_VLProcessor",
    ),
    "Qwen3-VL": replace(
        _QWEN,
        config="Qwen3VLConfig",
        text={"rope_parameters": {**_MROPE, "mrope_interleaved": True}},
        vision=_QWEN_VISION | {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1], "patch_size": 16},
        processor="Qwen3VLProcessor",
        pixels=_QWEN3_PIXELS,
    ),
    "Qwen3.5": replace(
        _QWEN,
        config="Qwen3_5Config",
        text={
            "rope_parameters": {**_MROPE, "mrope_interleaved": True, "partial_rotary_factor": 1.0},
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"] * 2,
        },
        vision=_QWEN_VISION | {"num_position_embeddings": 64, "patch_size": 16},
        processor="Qwen3VLProcessor",
        pixels=_QWEN3_PIXELS,
        shares=False,
    ),
    "GLM-4V": replace(
        _QWEN,
        config="Glm4vConfig",
        text={"rope_parameters": {**_MROPE, "partial_rotary_factor": 1.0}},
        vision=_QWEN_VISION | {"image_size": 56, "patch_size": 14},
        processor="Glm4vProcessor",
        pixels={"image_processor_type": "Glm4vImageProcessor"}
        | {"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 48}},
        ids={"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
        | {"image_start_token_id": "<|vision_start|>", "image_end_token_id": "<|vision_end|>"},
    ),
    "Idefics3": _IDEFICS3,
    "SmolVLM": replace(
        _IDEFICS3,
        config="SmolVLMConfig",
        processor="SmolVLMProcessor",
        pixels={**_IDEFICS3.pixels, "image_processor_type": "SmolVLMImageProcessor"},
    ),
    "LLaVA-OneVision": Vision(
        "LlavaOnevisionConfig",
        {"model_type": "qwen2"},
        {**_SIGLIP, "model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14},
        "LlavaOnevisionProcessor",
        {"image_processor_type": "LlavaOnevisionImageProcessor", "size": {"height": 28, "width": 28}}
        | {"image_grid_pinpoints": [[28, 28], [28, 56], [56, 28], [56, 56]]},
        _images_first(
            OPEN="<|im_start|>{{ m.role }} ",
            AFTER="",
            TEXT="{{ '\n' + c.text }}",
            CLOSE="<|im_end|>",
            PROMPT="<|im_start|>assistant\n",
        ),
        {"start": "<|im_start|>", "end": "<|im_end|>", "image_token": "<image>", "video_token": "<video>"},
        {"image_token_index": "<image>", "video_token_index": "<video>"},
        {"image_grid_pinpoints": [[28, 28], [28, 56], [56, 28], [56, 56]], "vision_feature_select_strategy": "full"},
        {"num_image_tokens": 4, "vision_feature_select_strategy": "full"},
    ),
    "InternVL": Vision(
        "InternVLConfig",
        {"model_type": "qwen2"},
        {**_SIGLIP, "image_size": [56, 56], "patch_size": [14, 14]},
        "InternVLProcessor",
        {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 56, "width": 56}}
        | {"crop_to_patches": True, "min_patches": 1, "max_patches": 4},
        _CHATML.replace("IMAGE", "<IMG_CONTEXT>\n"),
        {"start": "<|im_start|>", "end": "<|im_end|>", "start_image_token": "<img>", "end_image_token": "</img>"}
        | {"context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
        {"image_token_id": "<IMG_CONTEXT>"},
        {"image_seq_length": 4, "downsample_ratio": 0.5},
        {"image_seq_length": 4},
    ),
    "Pixtral": _PIXTRAL,
    "Mistral 3": replace(
        _PIXTRAL,
        config="Mistral3Config",
        pixels={**_PIXTRAL.pixels, "size": {"longest_edge": 84}, "patch_size": {"height": 28, "width": 28}},
        settings={"vision_feature_layer": -1, "spatial_merge_size": 2},
        arguments={"patch_size": 14, "spatial_merge_size": 2},
    ),
    "LLaVA": Vision(
        "LlavaConfig",
        {"model_type": "llama"},
        {**_SIGLIP, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14},
        "LlavaProcessor",
        {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28}}
        | {"crop_size": {"height": 28, "width": 28}},
        _images_first(
            OPEN="{{ m.role.upper() }}: ", AFTER="\n", TEXT="{{ c.text + ' ' }}", CLOSE="", PROMPT="ASSISTANT:"
        ),
        {"image_token": "<image>"},
        {"image_token_index": "<image>"},
        {"vision_feature_layer": -1, "vision_feature_select_strategy": "default"},
        {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
    ),
    "Aya Vision": Vision(
        "AyaVisionConfig",
        {"model_type": "cohere2", "sliding_window": WINDOW, "layer_types": _LAYERS},
        {**_SIGLIP, "model_type": "siglip_vision_model", "image_size": 56, "patch_size": 14},
        "AyaVisionProcessor",
        {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 56, "width": 56}}
        | {"crop_to_patches": True, "min_patches": 1, "max_patches": 4},
        _AYA,
        {"bos_token": "<BOS_TOKEN>", "image_token": "<image>", "turn": "<|START_OF_TURN_TOKEN|>"}
        | {"end": "<|END_OF_TURN_TOKEN|>", "bot": "<|CHATBOT_TOKEN|>", "from": "<|START_OF_IMG|>"}
        | {"to": "<|END_OF_IMG|>", "patch": "<|IMG_PATCH|>"},
        {"image_token_index": "<|IMG_PATCH|>"},
        {"vision_feature_layer": -1, "downsample_factor": 2},
        {"patch_size": 28, "img_size": 56},
    ),
    "Gemma 3": Vision(
        "Gemma3Config",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 16, "layer_types": _LAYERS},
        {**_SIGLIP, "image_size": 56, "patch_size": 14},
        "Gemma3Processor",
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}},
        _GEMMA,
        {"bos_token": "<bos>", "turn": "<start_of_turn>", "end": "<end_of_turn>", "boi_token": "<start_of_image>"}
        | {"eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
        {"image_token_id": "<image_soft_token>", "boi_token_id": "<start_of_image>", "eoi_token_id": "<end_of_image>"},
        {"mm_tokens_per_image": 4},
        {"image_seq_length": 4},
    ),
    "Gemma 4": Vision(
        "Gemma4Config",
        {"sliding_window": WINDOW, "layer_types": _LAYERS, "global_head_dim": 16, "num_global_key_value_heads": 2}
        | {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8},
        {**_SIGLIP, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 14, "pooling_kernel_size": 2}
        | {"position_embedding_size": 64},
        "Gemma4Processor",
        {"image_processor_type": "Gemma4ImageProcessor", "patch_size": 14, "pooling_kernel_size": 2}
        | {"max_soft_tokens": 70},
        _GEMMA.replace("<start_of_turn>", "<|turn>")
        .replace("<end_of_turn>", "<turn|>")
        .replace("<start_of_image>", "<|image|>"),
        {
            "bos_token": "<bos>",
            "turn": "<|turn>",
            "end": "<turn|>",
            "image_token": "<|image|>",
            "boi_token": "<|image>",
        }
        | {"eoi_token": "<image|>", "video_token": "<|video|>", "audio_token": "<|audio|>"}
        | {"boa_token": "<|audio>", "eoa_token": "<audio|>"},
        {"image_token_id": "<|image|>", "boi_token_id": "<|image>", "eoi_token_id": "<image|>"}
        | {"video_token_id": "<|video|>", "audio_token_id": "<|audio|>", "boa_token_id": "<|audio>"}
        | {"eoa_token_index": "<audio|>"},
    ),
}


def build(name: str, folder: Path) -> str:
    """Save a random model of this architecture, with its tokenizer and processor, and give its folder."""
    of = VISION[name]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir(), extra_special_tokens=dict(of.special))
    tokenizer.chat_template = of.template
    if "bos_token" in of.special:
        tokenizer.bos_token = of.special["bos_token"]
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in of.ids.items()}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    text = {**_TEXT, "vocab_size": len(tokenizer), **ends, **of.text}
    config = getattr(transformers, of.config)(text_config=text, vision_config=dict(of.vision), **ids, **of.settings)
    saved(AutoModelForImageTextToText, config, tokenizer, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"processor_class": of.processor, **of.pixels}))
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": of.processor, **of.arguments}))
    return str(folder)


def drawing(color: str, size: tuple[int, int] = (84, 56)) -> Pillow.Image:
    """A drawn image: a disc of a colour on white, left of a black square."""
    picture = Pillow.new("RGB", size, "white")
    pen, (width, height) = ImageDraw.Draw(picture), size
    pen.ellipse((4, 4, height - 8, height - 8), fill=color)
    pen.rectangle((width - 16, height // 2, width - 4, height - 4), fill="black")
    return picture
