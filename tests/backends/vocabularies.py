"""Small tokenizers of the kinds that real models have, trained on a few lines: what matters is how they cut text."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_TEXT = [
    "## Instruction\n\n<input-123456>\nSay it.\n</input-123456>\n\n## Response\n\n<target-123456>\nHello there.\n",
    "</target-123456>\n\n## Question\n\nIs it short?\n\nAnswer yes or no. Yes No YES NO yes no",
    "Does the response end with a question? Is it red? Does it? Is it?",
    "user assistant system INST SYS",
    "A line, and two line ends at the end of a text.\n\n",
] * 8
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {% if messages[0].role == 'system' %}<<SYS>>\n"
    "{{ messages[0].content }}\n<</SYS>>\n\n{% endif %}{{ m.content.strip() }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }} </s>{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TEMPLATES = {"ChatML": CHATML, "Llama 2": LLAMA2, "Phi-3": PHI3}
SPECIAL = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"]


def tokenizer(kind: str, template: str = CHATML) -> PreTrainedTokenizerFast:
    """A tokenizer of this kind with a chat template."""
    found = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained(kind)), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    found.chat_template = template
    return found


@functools.cache
def _trained(kind: str) -> str:
    return KINDS[kind]().to_str()


def _byte_level(regex: str) -> Tokenizer:
    model = Tokenizer(BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _train(model, initial_alphabet=alphabet)


def _sentencepiece(*, legacy: bool) -> Tokenizer:
    """As converted from SentencePiece: the whole text is one word. Legacy ones put a space before every piece of text
    between two special tokens, the others before the first piece."""
    model = Tokenizer(BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        model.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        model.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    model.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    # Trained on lines with words kept apart, as SentencePiece does; a line end is a byte.
    lines = [line for text in _TEXT for line in text.split("\n") if line]
    trainer = Tokenizer(BPE(unk_token="<unk>"))
    trainer.normalizer = model.normalizer
    trainer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    trained = _train(
        trainer, initial_alphabet=["▁"], special=[*SPECIAL, *(f"<0x{b:02X}>" for b in range(256))], texts=lines
    )
    state = json.loads(trained.to_str())["model"]
    model.model = BPE(
        vocab=state["vocab"],
        merges=[tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in state["merges"]],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    model.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return model


def _train(
    model: Tokenizer, initial_alphabet: list[str], special: Sequence[str] = SPECIAL, texts: Sequence[str] = _TEXT
) -> Tokenizer:
    trainer = BpeTrainer(
        vocab_size=1500, special_tokens=list(special), initial_alphabet=initial_alphabet, show_progress=False
    )
    model.train_from_iterator(texts, trainer)
    return model


KINDS = {
    "GPT-2": lambda: _byte_level(_GPT2),
    "Llama 3": lambda: _byte_level(_LLAMA3),
    "SentencePiece": lambda: _sentencepiece(legacy=False),
    "SentencePiece, legacy": lambda: _sentencepiece(legacy=True),
}
