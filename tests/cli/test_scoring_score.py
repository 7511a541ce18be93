"""`score`, `generate` and `run`: what is written and told, and the exit code. Code checks and servers as judges."""

import json
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer, Sample, Score
from checklist_rewards.backends import Reply
from checklist_rewards.cli.scoring import check_weights
from checklist_rewards.datasets.shards import find_shards
from checklist_rewards.judges.weights import Weights
from checklist_rewards.rows import Columns
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl
from tests.rewards.integrations.test_queue import knows

NUMBERED = {"question": "Is it short?", "check": {"type": "words", "at_most": 9}}
QUESTIONS = ["Does the response end with a question mark?", "Does the response contain a digit?"]
ROWS = [
    {"id": 1, "input": "Write a note.", "target": "the 3 lamo is old?", "checklist": QUESTIONS},
    {"id": 2, "input": "Write a text.", "target": "", "checklist": [{"question": QUESTIONS[0], "weight": -1.5}]},
    {"id": 3, "input": "Wríte 日本 🙂.", "target": "</s> {target} <|assistant|>", "checklist": QUESTIONS},
]


def by_word(prefix: str, tail: str) -> float | None:
    """Yes if the question's second word is in the prompt; nothing about what is lost."""
    return None if "lost" in prefix else 0.9 if tail.split()[1].rstrip("?") in prefix else 0.1


def test_a_scored_row_is_the_row_and_the_score_that_score_batch_gives(run, pocket):
    write_jsonl("rows.jsonl", *ROWS)
    run("score rows.jsonl -o out.jsonl --backend transformers --no-store")
    out = read_jsonl("out.jsonl")
    assert [{k: v for k, v in row.items() if k != "checklist_score"} for row in out] == ROWS
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    scores = scorer.score_batch([Sample(row["checklist"], row["target"], row["input"]) for row in ROWS])
    assert [Score.model_validate(row["checklist_score"]) for row in out] == scores
    Path("rows.jsonl").write_text('{"input": "\\udc00", "target": "cut \\ud83d", "checklist": ["Is it \\ud83d?"]}\n')
    for name in ("out.jsonl", "out.csv", "out.parquet"):
        run(f"score rows.jsonl -o {name} --backend transformers --judge.mass-floor 0 --no-store")
    assert read_jsonl("out.jsonl")[0]["target"] == "cut \ud83d", "half a surrogate pair is judged as text"


WITHOUT = [
    ("empty", []),
    ("cut_in_thought", "<think>red, I"),
    ("cut_in_thought", [{"role": "assistant", "content": "", "reasoning_content": "red"}]),
    ("unfinished", [{"role": "assistant", "content": "Is it red?", "tool_calls": [{"function": {"name": "search"}}]}]),
]


def test_a_target_without_an_answer_gets_the_lowest_score_and_is_no_error(run, engine):
    """Penalties included: no text is free of every mistake, which would be the best score."""
    fake = engine(lambda prefix, tail: 0.1)
    checklist = ["Is it red?", {"question": "Is it dull?", "weight": -1}]
    write_jsonl("rows.jsonl", *({"prompt": "Paint.", "target": t, "checklist": checklist} for _, t in WITHOUT))
    done = run("score rows.jsonl -o out.jsonl --summary sum.json --no-store")
    assert fake.asked == [] and "0 of 0" in done.stderr
    assert "4 of 4 targets (2 cut_in_thought, 1 empty, 1 unfinished); scored as the lowest" in done.stderr
    scores = [row["checklist_score"] for row in read_jsonl("out.jsonl")]
    found = [(score["primary_score"], score["state"], score["answered"]) for score in scores]
    assert found == [(0.0, state, 0) for state, _ in WITHOUT]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["no_answer"] == {"cut_in_thought": 2, "empty": 1, "unfinished": 1}
    assert (summary["unanswered"], summary["reads"]) == ({}, 0)


@pytest.mark.parametrize(
    ("rule", "code", "worth", "told"), [("unscored", 1, None, "not scored"), ("judge", 0, 0.1, "judged like other")]
)
def test_what_a_target_without_an_answer_is_worth_is_an_option(run, engine, rule, code, worth, told):
    engine(lambda prefix, tail: 0.9 if "\nred\n" in prefix else 0.1)
    targets = ["red", "", "<think>red, I", "<think>blue</think>red"]
    write_jsonl("rows.jsonl", *({"target": target, "checklist": ["Is it?"]} for target in targets))
    done = run(f"score rows.jsonl -o out.jsonl --no-store --no-answer {rule} --summary sum.json", code=code)
    assert f"2 of 4 targets (1 cut_in_thought, 1 empty); {told}" in done.stderr, done.output
    found = [row["checklist_score"] for row in read_jsonl("out.jsonl")]
    assert [score["state"] for score in found] == ["answered", "empty", "cut_in_thought", "answered"]
    expected = [0.9, worth, worth, 0.9]
    assert [score["primary_score"] for score in found] == [one and pytest.approx(one) for one in expected]
    summary = json.loads(Path("sum.json").read_text())
    assert summary["unanswered"] == ({"no_answer": 2} if rule == "unscored" else {})
    assert ("see --no-answer" in done.stderr) == (rule == "unscored")


@pytest.mark.parametrize(
    ("options", "roles", "said"),
    [
        ("--target-key messages", ["user", "assistant"], "do not see the messages before it"),
        ("--target-key messages", ["assistant"], None),
        ("--target-key ask --input-key messages", ["user", "assistant"], "is shown as part of the input"),
        ("--target-key ask --input-key messages", ["user", "assistant", "user"], None),
    ],
)
def test_a_conversation_with_its_answer_is_warned_of_once(run, engine, caplog, monkeypatch, options, roles, said):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    engine(by_word)
    messages = [{"role": role, "content": "hm"} for role in roles]
    write_jsonl("rows.jsonl", *[{"ask": "Sum up.", "checklist": ["Is it?"], "messages": messages}] * 2)
    run("score rows.jsonl -o out.jsonl --no-store", *options.split())
    found = [message for message in caplog.messages if "conversation" in message]
    assert len(found) == (said is not None)
    assert all(said in message and message.startswith("rows.jsonl, line 1, 'messages': ") for message in found)


@pytest.mark.parametrize(
    ("row", "options", "warned"),
    [
        ({"instruction": "Write a note."}, "", "instruction"),
        ({"prompt": None, "query": "Who is it?"}, "", "query"),
        ({"doc": {}, "arguments": {"gen_args_0": {"arg_0": "Who is it?", "arg_1": {"until": []}}}}, "", "arguments"),
        ({"instruction": "Write a note."}, "--input-key instruction", None),
        ({"task": "summaries", "id": "a b", "label": "very good"}, "", None),
        ({"question": "Who is it?", "checklist": [NUMBERED]}, "", None),
    ],
)
def test_a_prompt_in_a_column_of_another_name_is_warned_of(run, engine, caplog, monkeypatch, row, options, warned):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    engine(by_word)
    write_jsonl("rows.jsonl", *[{"target": "hm", "checklist": ["Is it?"], **row}] * 2)
    run("score rows.jsonl -o out.jsonl --no-store", *options.split())
    found = [message for message in caplog.messages if "the judge sees no input" in message]
    assert [f"rows.jsonl, line 1, {warned!r}: " in message for message in found] == [True] * (warned is not None)


@pytest.mark.parametrize("command", ["score", "pairs", "attack", "run --checklist one.json"])
def test_weights_of_no_item_are_refused_before_any_read_and_single_ones_warned_of(run, engine, caplog, command):
    fake = engine(by_word)
    row = {"target": "hm", "candidates": ["hm", "Is"], "checklist": ["Is it?"]}
    write_jsonl("rows.jsonl", *({"prompt": f"Write {n}.", **row} for n in range(4)))
    Path("one.json").write_text('["Is it?"]')
    Path("weights.json").write_text('{"Is itt?": 2, "tone": 1}')
    output = "out.json" if command == "attack" else "out.jsonl"
    words = f"{command} rows.jsonl -o {output} --weights weights.json --no-store --model pocket"
    run(words, refused="no item of rows.jsonl has the id, question or category 'Is itt?' and 1 more")
    assert fake.asked == []
    Path("weights.json").write_text('{"Is it?": 2, "tone": 1}')
    run(words, code=None)
    assert "--weights: no item of rows.jsonl has the id, question or category 'tone'." in caplog.messages


def test_weights_of_no_item_in_any_shard_are_refused_before_a_cluster_starts(run, caplog):
    pytest.importorskip("ray")
    Path("rows").mkdir()
    write_jsonl("rows/a.jsonl", {"target": "hm", "checklist": None}, {"target": "hm", "checklist": ["Is it?"]})
    Path("rows/b.jsonl").write_text('{"target": "hm", "checklist": 7}\n{"target": "hm", "checklist": ["Is that?"]}\n{')
    Path("weights.json").write_text('{"Is itt?": 2}')
    words = "no item of rows has the id, question or category 'Is itt?'"
    run("score rows -o out --ray --model pocket --weights weights.json", refused=words)
    for weights in (Weights({"Is that?": 2, "Is it?": 1}), Weights({"Is that?": 2, "tone": 1})):
        check_weights(weights, Columns(()), find_shards("rows"), Path("rows"))
    assert caplog.messages == ["--weights: no item of rows has the id, question or category 'tone'."]


def test_the_checklist_and_the_judge_of_all_rows_are_options(run, engine):
    fake = engine(by_word)
    Path("polite.json").write_text(json.dumps({"items": [{"question": "Is polite?", "weight": 2}]}))
    Path("mine.md").write_text("Mine: {target} {question}")
    write_jsonl("rows.jsonl", {"said": "a polite text"}, {"said": "another"})
    options = "--checklist polite.json --judge.prompt mine.md --metric pass --threshold 0.05 --target-key said"
    run(f"score rows.jsonl -o out.jsonl --no-store {options}")
    scores = [row["checklist_score"] for row in read_jsonl("out.jsonl")]
    assert [score["expected_score"] for score in scores] == pytest.approx([0.9, 0.1])
    assert [(score["primary_metric"], score["primary_score"]) for score in scores] == [("pass", 1.0)] * 2
    assert all(prefix.startswith("Mine: ") for prefix, _ in fake.asked)


def test_unanswered_reads_are_told_with_row_and_reason_and_the_exit_code_is_1(run, engine):
    engine(by_word)
    rows = [{"target": text, "checklist": ["Is red?", "Is blue?"]} for text in ("red", "lost", "blue")]
    write_jsonl("rows.jsonl", *rows)
    done = run("score rows.jsonl -o out.jsonl --summary sum.json --no-store", code=1)
    assert "too_long" in done.stderr and "4 of 6" in done.stderr and "1 without a score" in done.stderr
    out = read_jsonl("out.jsonl")
    assert [row["checklist_score"]["answered"] for row in out] == [2, 0, 2]
    assert out[1]["checklist_score"]["primary_score"] is None
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["rows"], summary["scored"], summary["unscored"], summary["reads"]) == (3, 2, 1, 6)
    assert summary["unanswered"] == {"too_long": 2} and summary["receipt"]["asked"] == 6
    assert summary["macro"] == summary["micro"] == 0.5 and summary["mean_score"] == pytest.approx(0.5)


def test_a_row_whose_checklist_is_null_is_kept_without_a_score(run, engine):
    engine(by_word)
    Path("rows.csv").write_text('target,checklist\na,"[""Is a?""]"\nb,\n')
    assert "no_checklist" in run("score rows.csv -o out.jsonl --no-store", code=1).stderr
    assert [row["checklist_score"] is None for row in read_jsonl("out.jsonl")] == [False, True]


def test_memory_is_bounded_by_chunks_of_rows(run, engine):
    fake = engine(by_word, chunk_reads=10_000)
    write_jsonl("rows.jsonl", *({"target": f"text {number}", "checklist": ["Is a?"]} for number in range(4184)))
    run("score rows.jsonl -o out.jsonl --no-store")
    assert [len(groups) for groups in fake.calls] == [4096, 88]
    assert [row["target"] for row in read_jsonl("out.jsonl")] == [f"text {number}" for number in range(4184)]


def test_an_interruption_writes_nothing_and_keeps_what_was_paid(run, engine):
    answered = []

    def interrupted(prefix: str, tail: str) -> float:
        if len(answered) == 7:
            raise KeyboardInterrupt
        answered.append(prefix)
        return 0.9

    write_jsonl("rows.jsonl", *({"target": f"text {number}", "checklist": ["Is a?"]} for number in range(9)))
    Path("out.jsonl").write_text("old\n")
    engine(interrupted, chunk_reads=1)
    done = run("score rows.jsonl -o out.jsonl --store s.sqlite", code=130)
    assert "rerun the same command" in done.stderr
    assert Path("out.jsonl").read_text() == "old\n"
    assert sorted(path.name for path in Path().glob("*out*")) == ["out.jsonl"]
    fake = engine(lambda prefix, tail: 0.9, chunk_reads=1)
    run("score rows.jsonl -o out.jsonl --store s.sqlite")
    assert len(read_jsonl("out.jsonl")) == 9 and len(fake.asked) == 2


REPLY = "1. Is red there?\n2. Is blue there?\n"


def test_generate_adds_the_checklist_columns_and_keeps_a_row_without_a_usable_reply(run, engine):
    def reply(messages):
        return Reply(REPLY if "Paint 1." in messages[-1]["content"] else "I would rather not.", "stop")

    engine().generate = lambda prompts, sampling, arrived=None: [[reply(messages)] for messages in prompts]
    write_jsonl("rows.jsonl", {"ask": "Paint 1.", "extra": 1}, {"ask": "Paint 2.", "extra": 2})
    done = run("generate rows.jsonl -o out.jsonl --input-key ask --no-store", code=1)
    said = " ".join(done.stderr.replace("│", " ").split())  # a narrow terminal wraps the table's cells
    assert "not_generated" in said and "I would rather not." in said
    row, without = read_jsonl("out.jsonl")
    assert [item["question"] for item in row["checklist"]] == ["Is red there?", "Is blue there?"]
    assert (row["ask"], row["extra"], row["prompt"]) == ("Paint 1.", 1, "Paint 1.")
    assert row["checklist_source"].startswith("tick/") and row["checklist_model"] == "pocket" and row["checklist_id"]
    assert without["checklist"] is None and without["checklist_id"] is None
    run("score out.jsonl -o scored.jsonl --target-key ask --no-store", code=1)


def test_a_checklist_that_is_replaced_is_warned_of(run, no_engine, caplog, monkeypatch):
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    rows = ({"prompt": "Write.", "target": "", "checklist": of} for of in (None, ["Is it?"], ["Is it?"]))
    write_jsonl("rows.jsonl", *rows)
    run("generate rows.jsonl -o out.jsonl --dry-run")
    said = "rows.jsonl, line 2, 'checklist': the row's own checklist is replaced by the one that is written."
    assert caplog.messages.count(said) == 1


CODE = {"question": "Does the code run?", "check": '{"type": "code"}'}


def rows(*checklists):
    write_jsonl("rows.jsonl", *({"prompt": "p", "target": "One. Two.", "checklist": items} for items in checklists))


def lines():
    return [item for row in read_jsonl("out.jsonl") for item in row["checklist_score"]["items"]]


def test_code_runs_only_where_it_is_allowed(run, no_engine, monkeypatch):
    rows([CODE])
    run("score rows.jsonl -o out.jsonl", refused="--allow-code")
    run("score rows.jsonl -o out.jsonl --allow-code")
    assert [line["answer"] for line in lines()] == ["no"]  # "One. Two." is not Python
    monkeypatch.setattr("checklist_rewards.checks.sandbox.unavailable", lambda: "wasmtime is not installed")
    run("score rows.jsonl -o new.jsonl --allow-code", refused=["wasmtime is not installed", "--allow-unsafe-code"])
    run("score rows.jsonl -o out.jsonl --allow-unsafe-code")
    assert [line["answer"] for line in lines()] == ["no"]


SAID = [
    {"prompt": "Say.", "completion": f"{text} thing", "checklist": ["Is red?"]} for text in ("red", "blue", "boom")
]


def boom(prefix: str, tail: str) -> bool:
    return "boom" in prefix


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from checklist_rewards.server import build_app
    from tests.serving import serving

    scorer = ChecklistScorer(backend=FakeBackend(knows, fails=boom, chunk_reads=1), store=False)
    with serving(build_app(scorer, token="secret")) as address:
        yield address


@pytest.fixture
def ask(run, server, monkeypatch):
    """`ask("score ...")` with the server as the judge."""
    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "secret")
    return lambda command, **expected: run(f"{command} --backend remote --base-url {server}", **expected)


def test_rows_are_scored_by_the_server_and_what_it_cannot_answer_is_listed(ask, no_engine):
    write_jsonl("rows.jsonl", *SAID)
    options = "--concurrency 2 --no-store --metric pass --threshold 0.05"  # thresholds and metrics are the command's
    result = ask(f"score rows.jsonl -o scored.jsonl {options}", code=1)  # the third row's read failed
    scores = [row["checklist_score"] for row in read_jsonl("scored.jsonl")]
    assert [score["expected_score"] for score in scores] == [pytest.approx(0.9), pytest.approx(0.1), None]
    assert [score["primary_score"] for score in scores] == [1.0, 1.0, None]
    assert scores[2]["items"][0]["unanswered"] == "backend_error: the engine broke"
    assert "backend_error" in result.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("score rows.jsonl -o s.jsonl --mode batch", "mode='batch' has no effect with"),
        ("score rows.jsonl -o s.jsonl --dry-run", "--dry-run counts the requests of this process"),
        ("score rows.jsonl -o s.jsonl --model org/judge", "judges with 'pocket', not 'org/judge'"),
        ("run rows.jsonl -o s.jsonl", "neither writes nor reads prompts"),
        ("probe", "neither writes nor reads prompts"),
    ],
)
def test_what_a_reward_server_cannot_do_is_one_sentence(ask, no_engine, command, says):
    write_jsonl("rows.jsonl", *SAID)
    ask(command, refused=says)


def test_a_wrong_token_is_one_sentence(run, server, monkeypatch):
    write_jsonl("rows.jsonl", *SAID)
    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "wrong")
    words = f"score rows.jsonl -o s.jsonl --backend remote --base-url {server}"
    run(words, refused="set CHECKLIST_REWARDS_TOKEN")


def test_keys_have_other_names_and_several_inputs_are_joined(run, engine):
    fake = engine(by_word)
    write_jsonl("rows.jsonl", {"ask": "Sum up.", "text": "A text.", "none": "", "said": "hm", "asked": ["Is it?"]})
    keys = "--input-key ask --input-key none --input-key text --target-key said --checklist-key asked"
    run(f"score rows.jsonl -o out.jsonl --no-store {keys}")
    assert "\nSum up.\n\nA text.\n" in fake.asked[0][0] and "\nhm\n" in fake.asked[0][0]
