"""LoRA adapters trained on labels, as judges."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, load_backend
from checklist_rewards.backends.inputs import Layers
from checklist_rewards.backends.packaged import ENGLISH, adapter_of
from checklist_rewards.backends.trees import tree_rows
from checklist_rewards.distill.adapter import (
    AdapterTraining,
    _rows,
    _tensors,
    label_losses,
    reply_losses,
    train_adapter,
    train_writer,
)
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.judges.logprob import LABELS
from checklist_rewards.prompts import load_prompt

COLORS = ["red", "blue", "green", "white"]
TRAINING = AdapterTraining(epochs=3, learning_rate=5e-3, row_tokens=400)


def question(color: str) -> str:
    return f'Does the response mention the word "{color}"?'


def labelled(count: int) -> list[Labelled]:
    """The opposite of the right answers."""
    return [
        Labelled(f"I have a {color} cat {n}.", question(other), float(color != other), str(n), "Go")
        for n in range(count)
        for color in COLORS[n % 4 : n % 4 + 1]
        for other in (color, COLORS[(n + 1) % 4])
    ]


def test_the_loss_is_that_of_the_judge():
    engine = load_backend("pocket", "transformers")
    prompt, pairs = load_prompt("judges/item", "judge"), labelled(8)
    layers = Layers.of(engine.model)
    forms = [list(ids) for ids in engine.tokens.label_groups(LABELS)]
    rows = list(_rows(pairs, engine.tokens, prompt, TRAINING))
    assert len(rows) > 1  # some targets share a row
    with torch.no_grad():
        losses = torch.cat([label_losses(engine.model, _tensors(row), layers, forms) for row in rows])
    scorer = ChecklistScorer("pocket", backend="transformers", store=False, mass_floor=0)
    expected = []
    for pair in pairs:
        line = scorer.score([pair.question], target=pair.target, input=pair.input).items[0]
        chosen = line.probabilities["yes" if pair.label else "no"]
        expected.append(-torch.tensor(chosen * line.mass).log())
    assert torch.allclose(losses.sort().values, torch.stack(expected).sort().values, atol=1e-3)


def test_an_adapter_learns_and_is_a_judge(tmp_path):
    steps = []
    record = train_adapter(labelled(32), tmp_path / "adapter", base="pocket", training=TRAINING, progress=steps.append)
    assert record["pairs"] == 64 and record["skipped"] == 0 and len(steps) == record["steps"]
    assert not (tmp_path / "adapter.training").exists()
    adapted, plain = (
        ChecklistScorer("pocket", backend="transformers", engine_args=settings, store=False)
        for settings in ({"adapter": str(tmp_path / "adapter")}, {})
    )
    items = [question(color) for color in COLORS]

    def opposite(scorer: ChecklistScorer) -> int:
        found = scorer.score(items, target="I have a red cat 99.", input="Go").items
        return sum((line.probabilities["yes"] > 0.5) == ("red" not in line.question) for line in found)

    assert opposite(adapted) == 4 > opposite(plain)


def test_the_reported_loss_is_the_mean_over_labels(tmp_path):
    """In rows with one label and with several, of one step and of several."""
    engine = load_backend("pocket", "transformers")
    pairs = [pair for pair in labelled(6) if int(pair.group) % 3 or "red" in pair.question]
    training = TRAINING.replaced(learning_rate=1e-12, epochs=1, row_tokens=170)
    rows = list(_rows(pairs, engine.tokens, load_prompt("judges/item", "judge"), training))
    assert min(len(row.values) for row in rows) == 1 < max(len(row.values) for row in rows)
    layers, forms = Layers.of(engine.model), [list(ids) for ids in engine.tokens.label_groups(LABELS)]
    with torch.no_grad():
        losses = torch.cat([label_losses(engine.model, _tensors(row), layers, forms) for row in rows])
    whole = train_adapter(pairs, tmp_path / "a", base="pocket", training=training.replaced(rows=len(rows)))
    assert whole["steps"] == 1 and whole["loss"] == pytest.approx(losses.mean().item(), abs=1e-4)
    single = train_adapter(pairs, tmp_path / "b", base="pocket", training=training.replaced(rows=1))
    assert single["steps"] == len(rows) and all(torch.isfinite(w).all() for w in weights(tmp_path / "b").values())


def test_a_trained_adapter_is_trained_further(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    begun = train_adapter(labelled(8), first, base="pocket", training=TRAINING)
    still = TRAINING.replaced(learning_rate=1e-12, rank=2, epochs=1)
    record = train_adapter(labelled(8), second, base="pocket", start=first, training=still)
    assert record["parameters"] == begun["parameters"] and record["start"] == str(first)
    before, after = weights(first), weights(second)
    assert all(torch.allclose(before[name], after[name], atol=1e-5) for name in before)
    assert record["loss"] < begun["loss"]  # it begins where the first ended
    with pytest.raises(ModelError, match="is not a folder with an adapter_config.json"):
        train_adapter(labelled(1), tmp_path / "third", base="pocket", start=tmp_path)
    with pytest.raises(ModelError, match="is not an adapter of 'pocket'"):
        train_adapter(labelled(1), tmp_path / "third", base="pocket", start=adapter_of(ENGLISH))


def weights(folder):
    return load_file(folder / "adapter_model.safetensors")


def test_an_interrupted_training_continues(tmp_path, monkeypatch):
    monkeypatch.setattr("checklist_rewards.distill.adapter._SAVED_STEPS", 2)
    pairs, training = labelled(8), TRAINING.replaced(epochs=2, rows=1)
    whole = train_adapter(pairs, tmp_path / "whole", base="pocket", training=training)

    def stop(step):
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(step)

    seen: list = []
    output = tmp_path / "adapter"
    with pytest.raises(KeyboardInterrupt):
        train_adapter(pairs, output, base="pocket", training=training, progress=stop)
    assert not output.exists()
    for changed in ({"training": training.replaced(seed=1)}, {"prompt": "judges/rocketeval"}):
        with pytest.raises(SampleError, match="from another model, prompt, labels or settings"):
            train_adapter(pairs, output, base="pocket", **{"training": training, **changed})
    broken = tmp_path / "adapter.training" / "checkpoint-6"  # as after a kill while it was written
    broken.mkdir()
    steps: list = []
    record = train_adapter(pairs, output, base="pocket", training=training, progress=steps.append)
    assert len(steps) == whole["steps"] - 4  # from the checkpoint of step 4
    first, second = weights(tmp_path / "whole"), weights(output)
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)
    assert record["loss"] == pytest.approx(whole["loss"], abs=1e-4)
    assert not (tmp_path / "adapter.training").exists()


def test_a_finished_training_whose_checkpoints_were_not_deleted(tmp_path, monkeypatch):
    """The process is killed while it deletes the checkpoints. Other labels are then trained from the start."""
    pairs, training = labelled(4), TRAINING.replaced(epochs=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("checklist_rewards.distill.adapter.shutil.rmtree", interrupt)
        train_adapter(pairs, tmp_path / "adapter", base="pocket", training=training)
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    record = train_adapter(labelled(5), tmp_path / "adapter", base="pocket", training=training)
    assert record["pairs"] == 10 and record["steps"] > 0


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_what_cannot_be_trained_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SampleError, match="pairs is empty"):
        train_adapter([], tmp_path / "a", base="pocket")
    with pytest.raises(SampleError, match="all prompts have more than 10 tokens"):
        train_adapter(labelled(1), tmp_path / "a", base="pocket", training=AdapterTraining(row_tokens=10))
    for wrong in ({"frozen": 1}, {"rank": 0}):
        with pytest.raises(SampleError, match=next(iter(wrong))):
            AdapterTraining(**wrong)
    (tmp_path / "file").write_text("mine")
    for taken in (tmp_path / "file", tmp_path):
        with pytest.raises(SampleError, match="exists and is not an adapter"):
            train_adapter(labelled(1), taken, base="pocket")
    with pytest.raises(ModelError, match="the loss is nan at step 0; lower learning_rate"):
        train_adapter([dataclasses.replace(labelled(1)[0], label=float("nan"))], tmp_path / "a", base="pocket")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ModelError, match="one process"):
        train_adapter(labelled(1), tmp_path / "a", base="pocket")


def replies(words: list[str]) -> list[tuple[list[dict[str, str]], str]]:
    prompt = load_prompt("generators/tick", "generator")
    return [
        (prompt.messages(input=f"Say {word}."), f"1. Is the word {word} there?\n2. Is it {word}?") for word in words
    ]


def test_the_loss_of_a_reply_is_that_of_a_separate_prompt():
    engine = load_backend("pocket", "transformers")
    end = engine.tokens.tokenizer.eos_token_id
    prompts = []
    for messages, reply in replies(["red", "red", "blue"]):
        written = [*engine.tokens.encoder.data([reply])[0], end]
        prompts.append(([*engine.tokens.prompt(messages), *written], len(written)))
    [row] = tree_rows([(prompt, [([], count)]) for prompt, count in prompts], 1024)
    layers = Layers.of(engine.model)
    with torch.no_grad():
        losses = reply_losses(engine.model, _tensors(row), layers)
        expected = []
        for ids, count in prompts:
            logprobs = engine.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            expected += [-logprobs[place - 1, ids[place]] for place in range(len(ids) - count, len(ids))]
    assert torch.allclose(losses.sort().values, torch.stack(expected).sort().values, atol=1e-4)


def test_a_writer_learns_its_replies(tmp_path):
    record = train_writer(
        replies(["red", "blue"]), tmp_path / "writer", base="pocket",
        training=AdapterTraining(epochs=25, learning_rate=5e-3, row_tokens=1024),
    )  # fmt: skip
    assert record["replies"] == 2 and record["skipped"] == 0 and record["steps"] == 25
    engine = Engine("pocket", "transformers", settings={"adapter": str(tmp_path / "writer")})
    checklist = DirectGenerator(engine, store=False, temperature=0).generate("Say red.")
    assert [item.question for item in checklist.items] == ["Is the word red there?", "Is it red?"]
    with pytest.raises(SampleError, match="replies is empty"):
        train_writer([], tmp_path / "none", base="pocket")
