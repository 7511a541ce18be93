"""The pocket tokenizer: a word has the same tokens everywhere in a text.

A tiny model learns to find a word of the question in the response only if both have the same tokens. So a capital
letter becomes a marker and a lower-case letter, and a word without a space before it gets a space and a marker:

    ` Bakto`  ->  CAP, ` bak`, `to`
    `Bakto`   ->  CAP+GLUE, ` bak`, `to`
    `"bakto`  ->  `"`, GLUE, ` bak`, `to`

Known English words are one token each, an invented word is two syllables, digits and punctuation marks are single
tokens, and all other characters are bytes, so any text can be encoded. Decoding restores every text that does not
contain the two marker characters. Exception: "yes" and "no" at the start of a text are single tokens without a marker,
because they are the judge's whole answer.
"""

from __future__ import annotations

import re
import string
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pocket.world import CODAS, CONSONANTS, FAMILIES, FUNCTION_WORDS, OPENERS, TEST_WORDS, TRAIN_WORDS, VOWELS

GLUE, CAP = "\x01", "\x02"
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
PAD, SYSTEM, USER, ASSISTANT, END = range(len(SPECIAL))
EXTRA_PIECES = (GLUE, CAP, CAP + GLUE, ' "', "\n\n", "##", "</")
_PIECES = rf'{CAP}{GLUE}|{CAP}|{GLUE}| "|\n\n|##|</| [a-z]+|[a-z]+|[0-9]|[\s\S]'
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>' + message['content'] }}"
    "{%- if message['role'] == 'assistant' %}{{- '<|end|>' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def known_words(texts: list[str]) -> list[str]:
    """All lower-case words of the phrases of the pocket world and of `texts`, sorted."""
    phrases = [p for family in FAMILIES.values() for p in (*family.instructions, *family.questions)]
    words = set(re.findall(r"[a-z]+", " ".join([*phrases, *OPENERS, *FUNCTION_WORDS, *texts, "sentence"]).lower()))
    words.discard("v")
    clash = words & {*TRAIN_WORDS, *TEST_WORDS}
    if clash:
        raise ValueError(f"words of the prompts must not be content words of the pocket world: {sorted(clash)}.")
    return sorted(words)


def build_tokenizer(prompt_texts: list[str], later_texts: list[str]) -> PreTrainedTokenizerFast:
    """The tokenizer, with the chat template. `prompt_texts` are the prompt files whose words become tokens.

    The words of `later_texts` get the last ids, so that a model trained without them keeps its ids.
    """
    byte_level = pre_tokenizers.ByteLevel.alphabet()
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def surface(piece: str) -> str:
        return to_bytes.pre_tokenize_str(piece)[0][0]

    space = surface(" ")
    merges = [(space, c) for c in CONSONANTS] + [(space + c, v) for c in CONSONANTS for v in VOWELS]
    merges += [(space + c + v, d) for c in CONSONANTS for v in VOWELS for d in CODAS]
    merges += [(c, v) for c in CONSONANTS for v in VOWELS]
    tokens = [*SPECIAL, *sorted(byte_level), *(a + b for a, b in merges)]
    tokens += [surface(piece) for piece in EXTRA_PIECES]
    tokens += [space + word for word in known_words(prompt_texts)] + ["yes", "no"]
    tokens += [space + word for word in known_words(later_texts)]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    core.normalizer = _normalizer()
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_PIECES), "isolated"), to_bytes])
    core.decoder = _decoder()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[PAD],
        eos_token=SPECIAL[END],
        chat_template=CHAT_TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def _normalizer() -> normalizers.Normalizer:
    steps = [normalizers.Replace(Regex(f"[{GLUE}{CAP}]"), "")]
    for capital in string.ascii_uppercase:
        steps += [
            normalizers.Replace(f" {capital}", f"{CAP} {capital.lower()}"),
            normalizers.Replace(capital, f"{CAP}{capital.lower()}"),
        ]
    for letter in string.ascii_lowercase:
        whole_answer = r"(?!\A(?:yes|no)\b)" if letter in "yn" else ""
        steps.append(normalizers.Replace(Regex(f"(?<![ a-z]){whole_answer}{letter}"), f"{GLUE} {letter}"))
    return normalizers.Sequence(steps)


def _decoder() -> decoders.Decoder:
    steps: list[decoders.Decoder] = [decoders.ByteLevel(), decoders.Fuse(), decoders.Replace(f"{GLUE} ", "")]
    for capital in string.ascii_uppercase:
        steps += [
            decoders.Replace(f"{CAP} {capital.lower()}", f" {capital}"),
            decoders.Replace(f"{CAP}{capital.lower()}", capital),
        ]
    return decoders.Sequence([*steps, decoders.Replace(GLUE, ""), decoders.Replace(CAP, "")])
