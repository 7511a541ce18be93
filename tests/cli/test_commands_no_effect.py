"""An option that has no effect in a combination is refused, and what Ctrl-C says is true of each command."""

import sys
from types import SimpleNamespace

import pytest

OF_A_POLICY = "--policy.base-url --policy.engine-args"
SAMPLING = "--n --policy.temperature --policy.max-tokens --policy.seed"
JUDGE = "--model --base-url --backend --mode --threshold --judge.prompt --judge.votes"
STORE = "--store --no-store"
KEYS = "--input-key --reference-key --history-key"
WRITER = (
    "--writer.model --writer.base-url --writer.engine-args --writer.prompt --refiner --writer.seed --writer.min-items "
    "--writer.max-items --writer.temperature --writer.max-tokens --writer.shape --writer.constraints "
    "--writer.candidate-models --writer.num-candidates"
)
CASES = [
    ("rerank missing.jsonl -o out.jsonl", SAMPLING, "--policy.model org/policy"),
    ("rerank missing.jsonl -o out.jsonl --policy.model org/policy", "--candidates-key --gold-key", None),
    ("inspect missing.jsonl", f"{SAMPLING} --prompts --scored", "--policy.model org/policy"),
    ("inspect missing.jsonl", f"{JUDGE} --judge --scale {STORE}", "--meta"),
    ("attack missing.jsonl -o out.json", "--target-key", "--responses other.jsonl"),
    ("attack -o out.json", f"--checklist --checklist-key {KEYS}", None),
    ("run missing.jsonl -o out.jsonl --checklist list.json", f"{WRITER} --source", None),
    ("refine missing.jsonl -o out.jsonl", OF_A_POLICY, "--policy.model org/policy"),
    ("score missing.jsonl -o out.jsonl", "--actors --num-gpus --shard-rows", None),
    ("generate source.json -o out.json --pipeline checkeval", KEYS, None),
    ("calibrate missing.jsonl -o out.json", "--costs", "--fit-threshold cost"),
    ("calibrate missing.jsonl -o out.json", f"{JUDGE} --judge --scale {STORE} {KEYS}", "--contextual"),
    ("agree missing.jsonl other.jsonl", "--label-range", "--label-key human"),
    ("agree missing.jsonl", "--target-key", "--labels other.jsonl"),
    ("fit missing.jsonl -o out.json", "--target-key", "--pairs other.jsonl"),
    ("fit missing.jsonl -o out.json --pairs other.jsonl", "--label-key --labels", None),
    ("report missing.jsonl", "--group-key --checklist --checklist-key", "--label-key human"),
    ("replay missing.jsonl -o out.jsonl", f"--engine-args --concurrency --budget --price {STORE}", "--model pocket"),
    ("replay missing.jsonl -o out.jsonl --model pocket", "--precision --bootstrap --seed --json", "--repeat 2"),
    ("pairs missing.jsonl -o out.jsonl", "--engine-args", "--model pocket"),
    ("improve list.json --data missing.jsonl -o out.json", f"--threshold {STORE} --max-reads", "--model pocket"),
    ("improve list.json --data missing.jsonl -o out.json --pairs other.jsonl", "--label-key", None),
]
"""A command, options that have no effect in it, and what must be added for them to have one, if anything."""
URL, LOADING = "http://127.0.0.1:9/v1", "dtype=float32"
VALUES = {
    "--threshold": "0.5",
    "--mode": "item",
    "--backend": "transformers",
    "--costs": "5,1",
    "--label-range": "1,5",
}
VALUES |= {"--bootstrap": "20", "--base-url": URL, "--writer.base-url": URL, "--writer.shape": "questions"}
VALUES |= {"--engine-args": LOADING, "--writer.engine-args": LOADING, "--price": "pocket=1,1", "--refiner": "tagger"}
VALUES |= {"--policy.base-url": URL, "--policy.engine-args": LOADING}
VALUES |= {"--policy.temperature": "0.5", "--writer.temperature": "0.5"}
FLAGS = ("--no-store", "--writer.constraints")


def written(option: str) -> str:
    return option if option in FLAGS else f"{option} {VALUES.get(option, '2')}"


@pytest.mark.parametrize(("command", "options", "more"), CASES)
def test_an_option_without_effect_is_refused_by_its_name(run, command, options, more):
    options = options.split()
    if not command.startswith("attack -o"):  # which would attack the pocket judge
        assert "has no effect" not in run(command, code=None).stderr, "only what the user wrote is refused"
    for option in options:
        run(f"{command} {written(option)}", refused=[f"{option} has no effect", "omit it"])
    if more is not None:
        done = run(f"{command} {written(options[0])} {more}", code=None)
        assert f"{options[0]} has no effect" not in done.stderr


NEEDED = dict.fromkeys(("score", "rerank", "pairs", "refine", "replay"), "-o out.jsonl")
NEEDED |= dict.fromkeys(("calibrate", "fit", "attack"), "-o out.json")
NEEDED |= {"agree": "other.jsonl", "cascade": "other.jsonl", "report": "--label-key human"}


def test_a_column_of_checklists_beside_a_checklist_is_refused_in_every_command(run):
    for name, arguments in NEEDED.items():
        both = "--checklist list.json --checklist-key criteria"
        run(f"{name} missing.jsonl {arguments} {both}", refused="--checklist-key has no effect with --checklist")


@pytest.mark.parametrize(
    ("command", "keeps"),
    [("agree missing.jsonl other.jsonl", False), ("calibrate missing.jsonl -o out.json", True)],
)
def test_ctrl_c_promises_to_continue_only_where_answers_are_kept(run, monkeypatch, command, keeps):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("checklist_rewards.cli.trust.check_outputs", interrupted)
    done = run(command, code=130)
    assert "Interrupted" in done.stderr
    assert ("are in the store" in done.stderr) == keeps
    assert ("rerun it to start from the beginning" in done.stderr) == (not keeps)


def test_ctrl_c_during_an_import_is_one_sentence(run, monkeypatch):
    def interrupted(*_, **__):
        monkeypatch.setitem(sys.modules, "checklist_rewards.cli.output", None)  # importing it now would fail
        raise KeyboardInterrupt

    monkeypatch.setattr("checklist_rewards.cli.scoring.Work", SimpleNamespace(of=interrupted))
    done = run("score missing.jsonl -o out.jsonl", code=130)
    assert done.stderr.startswith("Interrupted: ") and "are in the store" in done.stderr
