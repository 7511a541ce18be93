"""Commands whose judge is a reward server."""

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from checklist_rewards import ChecklistScorer
from checklist_rewards.server import build_app
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl
from tests.rewards.integrations.test_queue import knows
from tests.serving import serving

ROWS = [
    {"prompt": "Say.", "completion": f"{text} thing", "checklist": ["Is red?"]} for text in ("red", "blue", "boom")
]


def boom(prefix: str, tail: str) -> bool:
    return "boom" in prefix


@pytest.fixture(scope="module")
def server():
    scorer = ChecklistScorer(backend=FakeBackend(knows, fails=boom, chunk_reads=1), store=False)
    with serving(build_app(scorer, token="secret")) as address:
        yield address


@pytest.fixture
def ask(run, server, monkeypatch):
    """`ask("score ...")` with the server as the judge."""
    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "secret")
    return lambda command, **expected: run(f"{command} --backend remote --base-url {server}", **expected)


def test_rows_are_scored_by_the_server_and_what_it_cannot_answer_is_listed(ask, no_engine):
    write_jsonl("rows.jsonl", *ROWS)
    result = ask("score rows.jsonl -o scored.jsonl --concurrency 2 --no-store", code=1)  # the third row's read failed
    scores = [row["checklist_score"] for row in read_jsonl("scored.jsonl")]
    assert [score["primary_score"] for score in scores] == [pytest.approx(0.9), pytest.approx(0.1), None]
    assert scores[2]["items"][0]["unanswered"] == "backend_error: the engine broke"
    assert "backend_error" in result.stderr


def test_thresholds_and_metrics_are_the_commands_own(ask, no_engine):
    write_jsonl("rows.jsonl", *ROWS[:2])
    ask("score rows.jsonl -o s.jsonl --metric pass --threshold 0.05")
    assert [row["checklist_score"]["primary_score"] for row in read_jsonl("s.jsonl")] == [1.0, 1.0]


def test_candidates_are_ranked_by_the_server(ask, no_engine):
    write_jsonl("c.jsonl", {"prompt": "Say.", "candidates": ["blue", "red"], "checklist": ["Is red?"]})
    ask("rerank c.jsonl -o ranked.jsonl")
    assert read_jsonl("ranked.jsonl")[0]["checklist_best"] == ["red"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("score rows.jsonl -o s.jsonl --mode batch", "mode='batch' has no effect with"),
        ("score rows.jsonl -o s.jsonl --pipeline tick", "mode='batch' has no effect with"),
        ("score rows.jsonl -o s.jsonl --dry-run", "--dry-run counts the requests of this process"),
        ("score rows.jsonl -o s.jsonl --model org/judge", "judges with 'pocket', not 'org/judge'"),
        ("run rows.jsonl -o s.jsonl", "neither writes nor reads prompts"),
        ("probe", "neither writes nor reads prompts"),
    ],
)
def test_what_a_reward_server_cannot_do_is_one_sentence(ask, no_engine, command, says):
    write_jsonl("rows.jsonl", *ROWS)
    ask(command, refused=says)


def test_a_wrong_token_and_a_missing_address_are_one_sentence(run, server, monkeypatch):
    write_jsonl("rows.jsonl", *ROWS)
    monkeypatch.setenv("CHECKLIST_REWARDS_TOKEN", "wrong")
    score = "score rows.jsonl -o s.jsonl --backend remote"
    run(f"{score} --base-url {server}", refused="set CHECKLIST_REWARDS_TOKEN")
    run(score, refused="address of a reward server")


def test_help_says_what_it_is(run):
    shown = " ".join(run("score --help-all").stdout.split())  # its lines break anywhere
    assert "`remote`: a `checklist-rewards serve` at --base-url" in shown
    assert 'ChecklistScorer(backend="remote"' in run("serve --help").stdout
