"""Save the pocket model. Each file is replaced atomically."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from english.common import save_json, staged
from pocket.tokenizer import END, PAD
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def save_pocket(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, output: Path, facts: dict[str, object]
) -> None:
    """Save float16 weights, the tokenizer and `pocket.json` (`facts`) to `output`."""
    small = copy.deepcopy(model).to(torch.float16)
    small.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=PAD)
    with staged(output) as folder:
        small.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        save_json(folder / "pocket.json", facts)
        _inline_chat_template(folder, tokenizer)


def _inline_chat_template(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Store the chat template in tokenizer_config.json, which every version of transformers reads."""
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"chat_template": tokenizer.chat_template, "tokenizer_class": "PreTrainedTokenizerFast"}
    save_json(path, config)
