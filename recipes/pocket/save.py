"""Save the pocket model. Each file is replaced atomically."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from pathlib import Path

import torch
from pocket.tokenizer import END, PAD
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def save_pocket(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, output: Path, facts: dict[str, object]
) -> None:
    """Save float16 weights, the tokenizer and `pocket.json` (`facts`) to `output`.

    All files are written to a temporary folder first and then moved one by one, the weights last.
    """
    output.mkdir(parents=True, exist_ok=True)
    small = copy.deepcopy(model).to(torch.float16)
    small.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=PAD)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        staged = Path(folder)
        small.save_pretrained(staged)
        tokenizer.save_pretrained(staged)
        (staged / "pocket.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        _inline_chat_template(staged, tokenizer)
        for path in sorted(staged.iterdir(), key=lambda p: p.suffix == ".safetensors"):
            path.chmod(0o644)
            os.replace(path, output / path.name)


def _inline_chat_template(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Store the chat template in tokenizer_config.json, which every version of transformers reads."""
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"chat_template": tokenizer.chat_template, "tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
