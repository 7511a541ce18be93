"""A tokenizer whose vocabulary one can read."""

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from checklist_rewards.backends.tokens import ChatTokenizer

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


def word_tokenizer(words: str, template: str | None = PLAIN) -> ChatTokenizer:
    vocabulary = {word: index for index, word in enumerate(["[unk]", "[bos]", *words.split()])}
    model = Tokenizer(WordLevel(vocabulary, unk_token="[unk]"))
    model.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[unk]", bos_token="[bos]")
    tokenizer.chat_template = template
    return ChatTokenizer(tokenizer)
