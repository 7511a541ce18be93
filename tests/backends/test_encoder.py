"""Cross-encoders of several architectures: the answers of a batch are those of single rows."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.encoder import EncoderBackend
from tests.encoders import tiny_bert

LABELS = ("yes", "no")
GROUPS = [ReadGroup(None, "red blue cat " * count, ("does it mention dog ?",)) for count in (1, 2, 5, 9, 9)]


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "deberta-v2", "convbert"])
def test_answers_do_not_depend_on_the_lengths_of_other_texts(tmp_path, kind):
    base = tiny_bert(tmp_path, kind)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.2)
    model.save_pretrained(base)
    engine = EncoderBackend(base)
    assert engine.pads == (kind != "convbert")  # its convolutions mix padding into the text
    together = torch.tensor([answer.logprobs for answer in engine.read(GROUPS, LABELS)[0]])
    alone = torch.tensor([engine.read([group], LABELS)[0][0].logprobs for group in GROUPS])
    assert (together - alone).abs().max() < 1e-5
