"""The making of the English judges: tasks with their wordings, opposite questions, training, and saving."""

import json
import re
from collections import Counter

import pytest
import torch
from english import opposites, probes, save, train
from english.tasks import DEV, TASKS, TRAIN, WORDINGS, Example, load, training_pairs
from safetensors.torch import save_file

from checklist_rewards.backends.difference import apply_difference
from checklist_rewards.errors import SampleError


def example(target="It rains in Rome.", statement="it rains", label=1.0, group="g", **more):
    return Example("semeval", group, target, statement, label, **more)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_five_wordings_and_a_held_out_split(data_dir, task):
    training, dev = load(task, TRAIN, data_dir), load(task, DEV, data_dir)
    assert len(training) > 8000 and len(dev) > 800 and len(WORDINGS[task]) == 5
    assert all(0 <= one.label <= 1 and one.statement for one in training + dev)
    key = {(one.target, one.statement, one.input) for one in training}
    assert not [one for one in dev if (one.target, one.statement, one.input) in key]
    if task in ("realsumm", "argkp", "evouna"):
        assert not {one.group for one in training} & {one.group for one in dev}


def test_a_wording_quotes_the_statement_or_shows_it_as_the_reference():
    one = example(input="How is the weather?")
    quoted, shown = one.pair(0), one.pair(3)
    assert quoted.question == "Does the answer express the following: 'it rains'?" and quoted.reference is None
    assert shown.question == "Does the response say the same as the reference answer?"
    assert shown.reference == "it rains" and shown.input == quoted.input == "How is the weather?"


def test_training_data_has_equal_shares_of_the_tasks_and_whole_targets(data_dir):
    pairs = training_pairs(("argkp", "evouna"), 400, data=data_dir)
    assert pairs == training_pairs(("argkp", "evouna"), 400, data=data_dir)
    of_argkp = [pair for pair in pairs if pair.input is None]
    assert 200 <= len(of_argkp) < 230 and 200 <= len(pairs) - len(of_argkp) < 230
    taken, all_of = (Counter(one.target for one in some) for some in (of_argkp, load("argkp", TRAIN, data_dir)))
    assert taken == {target: all_of[target] for target in taken}
    assert len({pair.question.split("'")[0] for pair in of_argkp}) == 5


def test_opposites_are_the_same_label_the_other_way_round(data_dir):
    pairs = training_pairs(("argkp", "realsumm"), 200, data=data_dir, opposites=1)
    plain = training_pairs(("argkp", "realsumm"), 200, data=data_dir)
    starts = [text.split("{}")[0] for some in opposites.NEGATED.values() for text in some]
    negated = [pair for pair in pairs if any(pair.question.startswith(start) for start in starts if start != "Is '")]
    assert len(negated) > 100
    labels = {(pair.target, round(pair.label, 6)) for pair in plain}
    assert all((pair.target, round(1 - pair.label, 6)) in labels for pair in negated)
    assert 2 * len(plain) < len(pairs) <= 3 * len(plain) + 3  # each twice, and half as many about form


def test_questions_about_form_are_answered_by_code():
    texts = [f"Anna met {name}, who was {age}, in the old Harbor of Rome." for age, name in enumerate(probes.NAMES)]
    pairs = [pair for seed in range(5) for pair in opposites.form_pairs([*texts, "too short"], 400, seed)]
    assert 0.35 < sum(pair.label for pair in pairs) / len(pairs) < 0.6
    longer = [pair for pair in pairs if pair.question.startswith("Is the") and "longer than" in pair.question]
    for pair in longer:
        [words] = re.findall(r"\d+", pair.question)
        assert pair.label == (len(pair.target.split()) > int(words)), pair
    assert longer and all("too short" != pair.target for pair in pairs)


def test_a_trained_judge_is_not_trained_again(tmp_path):
    folder = tmp_path / "adapter-not-argkp"
    folder.mkdir()
    settings = {"reads": None, "epochs": 1.0, "seed": 0, "after": None}
    (folder / train.RECORD).write_text(json.dumps({"settings": settings}))
    arguments = ["adapter", "--output", str(tmp_path), "--leave-out", "argkp"]
    train.main(arguments)
    with pytest.raises(SampleError, match="was trained with .*choose another --output for .*'opposites': 0.5"):
        train.main([*arguments, "--opposites", "0.5"])


def test_a_packaged_encoder_is_a_difference_with_a_card(tmp_path, monkeypatch):
    runs, output = tmp_path / "runs", tmp_path / "english_encoder"
    folder = runs / "encoder-all"
    folder.mkdir(parents=True)
    base = {"pooler.dense.weight": torch.ones(2, 2), "pooler.dense.bias": torch.ones(2)}
    save_file(base, tmp_path / "model.safetensors")
    save_file({f"bert.{name}": tensor + 0.5 for name, tensor in base.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    before = {"pairs": 58793, "targets": 23984, "steps": 3055, "seconds": 4725}
    record = {"pairs": 29499, "steps": 1600, "seconds": 1800, "parameters": 22713601, "settings": {"reads": 20000}}
    record["before"] = before
    (folder / train.RECORD).write_text(json.dumps(record))
    (runs / "figures.json").write_text("{}")
    (runs / "probes.json").write_text("{}")
    monkeypatch.setattr(save, "minilm_weights", lambda: tmp_path / "model.safetensors")
    save.main(["encoder", "--runs", str(runs), "--probes", str(runs / "probes.json"), "--output", str(output)])
    back = apply_difference(output / "difference.safetensors", tmp_path / "model.safetensors", "bert.")
    torch.testing.assert_close(back["bert.pooler.dense.weight"], torch.full((2, 2), 1.5), atol=1e-3, rtol=0)
    card = (output / "README.md").read_text()
    assert "58,793 answers of people about 23,984 texts, one epoch of 3,055 steps in 79 minutes; then" in card
    assert "29,499 labels in 1,600 steps and 30 minutes: 20,000 of the answers again" in card
