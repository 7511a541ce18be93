"""The simulation of judges that serve a trainer: nothing is lost, and simple cases have known answers."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("simpy")
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.benchmarks import simulate as tables
from studies.benchmarks.cluster import Engine, Failure, Senders, Traffic, simulate

ENGINE = Engine(block=1)
FREE = Senders(4, 0, 0)
SMALL = Traffic(prompts=6, completions=4, questions=5, steps=2)
POLICIES = ("text", "prompt", "least", "round_robin")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("per_call", [None, 2])
def test_one_replica_computes_every_prefix_once(policy, per_call):
    run = simulate(ENGINE, replace(SMALL, per_call=per_call), 1, policy, FREE)
    assert run.reads == 2 * 6 * 4 * 5 and len(run.latencies) == run.calls
    assert run.computed == run.floor < run.asked


def test_a_single_call_takes_its_own_cost():
    engine = Engine(step_s=1.0, token_s=0.01, read_s=0.1, block=1)
    traffic = Traffic(1, 1, 2, prompt_tokens=10, target_tokens=20, question_tokens=5, steps=1)
    run = simulate(engine, traffic, 1, "text", FREE)
    assert run.seconds == pytest.approx(1.0 + 0.01 * run.floor + 0.1 * 2)
    slower = simulate(engine, traffic, 1, "text", Senders(1, call_s=3.0, read_s=0.5))
    assert slower.seconds == pytest.approx(run.seconds + 4.0) and slower.sending_s == 4.0


def test_a_block_that_is_not_full_is_computed_by_every_read():
    traffic = Traffic(1, 1, 4, prompt_tokens=40, target_tokens=1, question_tokens=5, steps=1)
    whole = simulate(Engine(block=1), traffic, 1, "text", FREE)
    blocks = simulate(Engine(block=32), traffic, 1, "text", FREE)
    assert whole.computed == 41 + 4 * 5 and blocks.computed == 32 + 4 * (9 + 5)


@settings(max_examples=30, deadline=None)
@given(
    replicas=st.integers(1, 6),
    policy=st.sampled_from(POLICIES),
    per_call=st.sampled_from([None, 1, 3]),
    tokens=st.integers(64, 2000),
    cache=st.integers(0, 3000),
)
def test_every_read_is_answered_and_no_token_is_below_the_floor(replicas, policy, per_call, tokens, cache):
    engine = replace(ENGINE, step_tokens=tokens, cache_tokens=cache)
    run = simulate(engine, replace(SMALL, per_call=per_call), replicas, policy, FREE)
    assert run.reads == 2 * 6 * 4 * 5 and len(run.latencies) == run.calls
    assert run.floor <= run.computed <= run.asked
    assert run.busy_s <= replicas * run.seconds + 1e-9


@settings(max_examples=20, deadline=None)
@given(at=st.floats(0.001, 2.0), down=st.floats(0.01, 5.0), policy=st.sampled_from(POLICIES))
def test_a_replica_that_dies_loses_no_read(at, down, policy):
    run = simulate(ENGINE, SMALL, 3, policy, FREE, [Failure(0, at, down)])
    assert len(run.latencies) == run.calls == 2 * 6 * 4


def test_a_failure_of_no_replica_is_refused():
    with pytest.raises(ValueError, match="failure of replica 3: replicas are 0 to 2"):
        simulate(ENGINE, SMALL, 3, "text", FREE, [Failure(3, 1.0)])


def test_the_fewest_that_are_enough():
    assert [tables.fewest(lambda n, least=least: n >= least, 8) for least in (1, 5, 8, 9)] == [1, 5, 8, None]


def test_the_command_writes_its_tables(tmp_path, monkeypatch, capsys):
    (tmp_path / "engine.json").write_text(json.dumps({"step_s": 0.5}))
    monkeypatch.setattr(tables, "SIZES", (1, 2))
    options = ["--engine", "engine.json", "--table", "scaling", "--output", "out.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["simulate.py", *options])
    tables.main()
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["engine"]["step_s"] == 0.5 and len(found["scaling"]) == 16
    assert "round_robin" in capsys.readouterr().out
