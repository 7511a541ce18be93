"""Tiny encoders, made on the spot: a BERT of two layers over words, and a world in which it can learn something."""

import random
from pathlib import Path

from checklist_rewards.judges.labels import Labelled

WORDS = "red blue green cat dog house tree river stone cloud bread lamp".split()
_ASKED = "does it mention ? [PAD] [UNK] [CLS] [SEP]".split()


def tiny_bert(folder: Path, model_type: str = "bert", positions: int = 520) -> str:
    """A folder with an untrained encoder whose tokens are the words of the world."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*_ASKED, *WORDS])}
    raw = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = Whitespace()
    raw.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    config = AutoConfig.for_model(
        model_type,
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
        type_vocab_size=2,
        pad_token_id=vocabulary["[PAD]"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def compared(targets: int, seed: int = 0) -> list[Labelled]:
    """Texts of five words with a reference of one word, and always the same question: does the text mention it? The
    input is another word, which has nothing to do with the answer."""
    rng = random.Random(seed)
    pairs = []
    for number in range(targets):
        said = rng.sample(WORDS, 5)
        others = [word for word in WORDS if word not in said]
        asked, word = (rng.choice(rng.choice([said, others])) for _ in range(2))
        label = float(word in said)
        pairs.append(Labelled(" ".join(said), "does it mention it ?", label, f"{seed}/{number}", asked, word))
    return pairs


def mentions(targets: int, seed: int = 0, questions: int = 6) -> list[Labelled]:
    """Texts of five words, with questions about words that are in them and words that are not."""
    rng = random.Random(seed)
    pairs = []
    for number in range(targets):
        said = rng.sample(WORDS, 5)
        for word in rng.sample(WORDS, questions):
            pairs.append(
                Labelled(" ".join(said), f"does it mention {word} ?", float(word in said), f"{seed}/{number}")
            )
    return pairs
