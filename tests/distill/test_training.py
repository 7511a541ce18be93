"""Training: batches, what is refused, and a folder that appears whole."""

import json
import math

import pytest
import torch

from checklist_rewards.distill import training as training_module
from checklist_rewards.distill.training import Batches, PackedLoss, Training, train_encoder
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.judges.labels import Labelled
from tests.encoders import compared, mentions, tiny_bert

SHORT = Training(epochs=1, targets=8, bf16=True)


def test_a_batch_has_whole_targets_and_an_epoch_every_pair_once_in_an_order_of_its_own():
    pairs = mentions(50)
    batches = Batches(pairs, Training(targets=8))
    first, second = list(batches), list(batches)
    assert len(first) == len(batches) == 7
    for batch in first:
        by_text = {pairs[place].target: 0 for place in batch}
        assert len(by_text) <= 8 and len(batch) == sum(pair.target in by_text for pair in pairs)
    assert sorted(place for batch in first for place in batch) == list(range(len(pairs)))
    assert first != second and first == list(Batches(pairs, Training(targets=8)))


def test_a_batch_of_many_tokens_is_computed_in_chunks_with_the_same_loss_and_gradients(tmp_path, monkeypatch):
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(tiny_bert(tmp_path / "base"), num_labels=1)
    encoder.model.config.checklist_layout = "packed"
    encoder.model.eval()  # no dropout
    pairs = mentions(6)
    sizes, computed = [], training_module.logits

    def counted(model, rows):
        sizes.append(len(rows))
        return computed(model, rows)

    monkeypatch.setattr(training_module, "logits", counted)
    found = []
    for tokens in (4096, 1):  # one chunk, or one per row, whose activations are computed twice
        monkeypatch.setattr(training_module, "_CHUNK_TOKENS", tokens)
        encoder.model.zero_grad()
        labels = torch.tensor([float(pair.label) for pair in pairs])
        loss = PackedLoss(encoder, pairs)([list(range(len(pairs)))], labels)
        loss.backward()
        found.append((loss.detach(), encoder.model.classifier.weight.grad.clone()))
    assert sizes == [6] + 12 * [1]
    torch.testing.assert_close(found[0], found[1])

    loss = PackedLoss(encoder, [Labelled("a text", "word " * 400, 1.0, "g")])
    too_long = loss([[0]], torch.tensor([1.0]))
    too_long.backward()  # no error, and nothing to learn
    assert too_long.item() == 0 and math.isnan(loss.recent)


@pytest.mark.slow
def test_a_model_is_saved_whole_with_its_card_and_replaces_the_one_before(tmp_path):
    base = tiny_bert(tmp_path / "base")
    told = []
    output = tmp_path / "made" / "judge"
    for card in ("first".format_map, "second".format_map):  # the text itself, whatever it is told
        record = train_encoder(mentions(20), output, base=base, training=SHORT, card=card, progress=told.append)
        assert (output / "README.md").read_text() == card({})
    assert [path.name for path in output.parent.iterdir()] == ["judge"]
    assert json.loads((output / "config.json").read_text())["checklist_layout"] == "packed"
    assert (record["pairs"], record["targets"], record["groups"]) == (120, 20, 20)
    assert len(told) == 2 * record["steps"] == 2 * SHORT.steps(mentions(20)) == 6
    assert 0 < record["loss"] < 2


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_the_model(tmp_path, exists):
    base, link, target = tiny_bert(tmp_path / "base"), tmp_path / "judge", tmp_path / "elsewhere" / "model"
    link.symlink_to(target)
    if exists:
        target.mkdir(parents=True)
        (target / "config.json").write_text("{}")
    train_encoder(mentions(20), link, base=base, training=SHORT)
    assert link.is_symlink() and json.loads((target / "config.json").read_text())["model_type"] == "bert"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "elsewhere", "judge"]
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_word_embeddings_stay_as_they_are_unless_told_otherwise(tmp_path):
    from safetensors.torch import load_file

    base = tiny_bert(tmp_path / "base")
    before = load_file(tmp_path / "base" / "model.safetensors")
    train_encoder(mentions(20), tmp_path / "judge", base=base, training=SHORT)
    after = load_file(tmp_path / "judge" / "model.safetensors")

    def same(name):
        return bool((before[name] == after[f"bert.{name}"]).all())

    assert same("embeddings.word_embeddings.weight")
    assert not same("encoder.layer.0.attention.self.query.weight")


def test_what_cannot_be_trained_is_refused(tmp_path):
    with pytest.raises(SampleError, match="needs at least one label"):
        train_encoder([], tmp_path / "judge")
    with pytest.raises(ModelError, match="cannot load the encoder '.*missing'"):
        train_encoder(mentions(2), tmp_path / "judge", base=str(tmp_path / "missing"))
    with pytest.raises(SampleError, match="epochs=0 is not allowed"):
        Training(epochs=0)
    short = tiny_bert(tmp_path / "short", positions=256)
    with pytest.raises(
        ModelError, match="has 256 positions; training on labels with an input or a reference needs 512"
    ):
        train_encoder(compared(2), tmp_path / "judge", base=short)
    assert not (tmp_path / "judge").exists()
