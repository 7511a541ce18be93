"""An option that has no effect in a combination is refused, and what Ctrl-C says is true of each command."""

import sys
from types import SimpleNamespace

import pytest
import typer

from checklist_rewards.cli import app
from checklist_rewards.cli.commands import _ENTRIES

MISSING = "missing.jsonl"
SAMPLING = ["--n", "--policy.temperature", "--policy.max-tokens", "--policy.seed"]
OF_A_WRITER = ["--context-key", "--candidates-key", "--chosen-key", "--rejected-key"]
JUDGE = ["--model", "--base-url", "--backend", "--mode", "--threshold", "--judge.prompt", "--judge.votes"]
JUDGE += ["--judge", "--scale"]
STORE = ["--store", "--no-store"]
KEYS = ["--input-key", "--reference-key", "--history-key"]
WRITER = [
    *("--writer.model", "--writer.base-url", "--writer.engine-args", "--writer.prompt", "--refiner", "--writer.seed"),
    *("--writer.min-items", "--writer.max-items", "--writer.temperature", "--writer.max-tokens", "--writer.shape"),
    *("--writer.constraints", "--writer.candidate-models", "--writer.num-candidates"),
]
OUT = ["-o", "out.jsonl"]
JSON = ["-o", "out.json"]
CASES = [
    (["rerank", MISSING, *OUT], SAMPLING, ["--policy.model", "org/policy"]),
    (["rerank", MISSING, *OUT, "--policy.model", "org/policy"], ["--candidates-key"], None),
    (
        ["inspect", MISSING],
        [*SAMPLING, "--prompts"],
        ["--policy.model", "org/policy"],
    ),
    (["inspect", MISSING], [*JUDGE, *STORE], ["--meta"]),
    (["inspect", MISSING], [*JUDGE[:-2], *STORE], ["--paraphrases", "2"]),
    (["inspect", MISSING, "--meta"], ["--paraphrase-rows"], ["--paraphrases", "2"]),
    (["attack", MISSING, *JSON], ["--target-key"], ["--responses", "other.jsonl"]),
    (["attack", *JSON], ["--checklist-key", *KEYS], None),
    (["attack", *JSON, "--responses", "other.jsonl"], ["--checklist-key"], None),
    (["run", MISSING, *OUT, "--checklist", "list.json"], [*WRITER, *OF_A_WRITER], None),
    (["run", MISSING, *OUT, "--pipeline", "checkeval", "--source", "s.json"], OF_A_WRITER, None),
    (["run", MISSING, *OUT], ["--writer.base-url"], ["--writer.model", "org/writer"]),
    (["generate", "source.json", *JSON, "--pipeline", "checkeval"], [*KEYS, *OF_A_WRITER], None),
    (["calibrate", MISSING, *JSON], ["--costs"], ["--fit-threshold", "cost"]),
    (["calibrate", MISSING, *JSON, "--fit-threshold", "f1"], ["--costs"], None),
    (["calibrate", MISSING, *JSON], [*JUDGE, *STORE, *KEYS], ["--contextual"]),
    (["agree", MISSING, "other.jsonl"], ["--label-range"], ["--label-key", "human"]),
    (["agree", MISSING], ["--target-key"], ["--labels", "other.jsonl"]),
    (["calibrate", MISSING, *JSON], ["--target-key"], ["--labels", "other.jsonl"]),
    (["fit", MISSING, *JSON], ["--target-key"], ["--pairs", "other.jsonl"]),
    (["report", MISSING], ["--group-key", "--checklist", "--checklist-key"], ["--label-key", "human"]),
    (
        ["replay", MISSING, *OUT],
        ["--engine-args", "--concurrency", "--budget", "--price", *STORE],
        ["--model", "pocket"],
    ),
    (["replay", MISSING, *OUT, "--model", "pocket"], ["--precision", "--bootstrap", "--seed"], ["--repeat", "2"]),
    (["pairs", MISSING, *OUT], ["--engine-args"], ["--model", "pocket"]),
    (
        ["improve", "list.json", "--data", MISSING, *JSON],
        ["--threshold", *STORE, "--max-reads"],
        ["--model", "pocket"],
    ),
    (["improve", "list.json", "--data", MISSING, *JSON, "--pairs", "other.jsonl"], ["--label-key"], None),
]
"""A command, options that have no effect in it, and what must be added for them to have one, if anything."""
VALUES = {
    **{"--threshold": "0.5", "--mode": "item", "--backend": "transformers", "--costs": "5,1", "--label-range": "1,5"},
    "--bootstrap": "20",
    **{
        "--base-url": "http://127.0.0.1:9/v1",
        "--writer.base-url": "http://127.0.0.1:9/v1",
        "--writer.shape": "questions",
    },
    **{
        "--writer.engine-args": "dtype=float32",
        "--engine-args": "dtype=float32",
        "--price": "pocket=1,1",
        "--refiner": "tagger",
        "--policy.temperature": "0.5",
        "--writer.temperature": "0.5",
    },
}
FLAGS = ("--no-store", "--writer.constraints")


def written(option: str) -> list[str]:
    return [option] if option in FLAGS else [option, VALUES.get(option, "2")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case[0]))
def test_an_option_without_effect_is_refused_by_its_name(run, case):
    command, options, more = case
    if command[:2] != ["attack", "-o"]:  # which would attack the pocket judge
        assert "has no effect" not in run(*command, code=None).stderr, "only what the user wrote is refused"
    for option in options:
        run(*command, *written(option), refused=[f"{option} has no effect", "omit it"])
    if more is not None:
        assert f"{options[0]} has no effect" not in run(*command, *written(options[0]), *more, code=None).stderr


NEEDED = {
    **dict.fromkeys(("score", "rerank", "pairs", "refine", "replay"), [MISSING, *OUT]),
    **dict.fromkeys(("calibrate", "fit"), [MISSING, *JSON]),
    "agree": [MISSING, "other.jsonl"],
    "cascade": [MISSING, "other.jsonl"],
    "report": [MISSING, "--label-key", "human"],
    "attack": [MISSING, *JSON],
}


def test_a_column_of_checklists_beside_a_checklist_is_refused_in_every_command(run):
    group = typer.main.get_command(app)
    options = {name: {one.opts[0] for one in group.commands[name].params} for name in _ENTRIES}
    both = {name for name, known in options.items() if {"--checklist", "--checklist-key"} <= known}
    assert both == set(NEEDED)
    for name, arguments in NEEDED.items():
        both = ["--checklist", "list.json", "--checklist-key", "criteria"]
        run(name, *arguments, *both, refused="--checklist-key has no effect with --checklist")


KEEPS = (
    *("generate", "score", "run", "rerank", "pairs", "refine", "replay", "attack", "calibrate", "improve", "inspect"),
    *("serve", "ui"),
)


def test_the_commands_that_keep_answers_are_known_by_their_options():
    group = typer.main.get_command(app)
    known = [name for name in _ENTRIES if group._has_store(SimpleNamespace(invoked_subcommand=name))]
    assert sorted(known) == sorted(KEEPS)


@pytest.mark.parametrize(
    ("module", "command", "keeps"),
    [
        ("trust", ["agree", MISSING, "other.jsonl"], False),
        ("improving", ["fit", MISSING, *JSON], False),
        ("trust", ["calibrate", MISSING, *JSON], True),
    ],
)
def test_ctrl_c_promises_to_continue_only_where_answers_are_kept(run, monkeypatch, module, command, keeps):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"checklist_rewards.cli.{module}.check_outputs", interrupted)
    done = run(*command, code=130)
    assert "Interrupted" in done.stderr
    assert ("are in the store" in done.stderr) == keeps
    assert ("rerun it to start from the beginning" in done.stderr) == (not keeps)


@pytest.mark.parametrize("where", ["import of the command", "import in the command"])
def test_ctrl_c_during_an_import_is_one_sentence(run, monkeypatch, where):
    def interrupted(*_, **__):
        monkeypatch.setitem(sys.modules, "checklist_rewards.cli.output", None)  # importing it now would fail
        raise KeyboardInterrupt

    if where == "import of the command":
        monkeypatch.setattr("checklist_rewards.cli.commands._built", interrupted)
        monkeypatch.setattr("checklist_rewards.cli.commands._Lazy.__getitem__", interrupted)
    else:
        monkeypatch.setattr("checklist_rewards.cli.scoring.Work", SimpleNamespace(of=interrupted))
    done = run(f"score {MISSING}", *OUT, code=130)
    begun = "are in the store" in done.stderr
    assert done.stderr.startswith("Interrupted: ") and begun == (where == "import in the command")
