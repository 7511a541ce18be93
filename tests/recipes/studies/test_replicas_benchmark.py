"""The benchmark of replicas: what it sends, how it routes, and what it counts, on imitated vLLM servers."""

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console
from studies.benchmarks import replicas as benchmark

from checklist_rewards.backends.openai.replicas import Replicas
from tests.backends.replicaservers import VLLM_CARD, replicas

ADDRESSES = ["http://one/v1", "http://two/v1", "http://three/v1"]


def test_the_traffic_is_that_of_a_step():
    batch = benchmark.traffic(3, 4, 5, 60, seed=0)
    assert len(batch) == 12 and len({sample.input for sample in batch}) == 3
    assert len({sample.target for sample in batch}) == 12
    assert all(len(sample.checklist) == 5 for sample in batch)
    assert batch == benchmark.traffic(3, 4, 5, 60, seed=0)


def test_round_robin_takes_the_replicas_in_turns_and_ours_does_not():
    places = [benchmark.RoundRobin(ADDRESSES, 1.0), Replicas(ADDRESSES, 1.0)]
    in_turns, same = [[one.choose("key", 0.0).place for _ in range(6)] for one in places]
    assert sorted(in_turns[:3]) == [0, 1, 2] and in_turns[:3] == in_turns[3:]
    assert len(set(same)) == 1


@pytest.mark.parametrize("round_robin", [False, True])
def test_tokens_are_counted_over_all_servers(round_robin):
    with replicas(3, VLLM_CARD) as started:
        servers = [benchmark.Server(int(one.address.split(":")[2].removesuffix("/v1")), Path()) for one in started]
        addresses = [one.address for one in started]
        backend = benchmark.connect(addresses, 8, lists=True, model="valid", round_robin=round_robin)
        found = benchmark.measure(backend, servers, benchmark.traffic(2, 3, 4, 20, seed=1))
    assert (found["reads"], found["lost"]) == (24, 0)
    assert found["hit_rate"] == pytest.approx(0.5, abs=0.01)
    assert found["computed_tokens"] == pytest.approx(found["prompt_tokens"] / 2, abs=3)


def test_a_router_that_is_not_installed_is_skipped_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    row = {"computed_tokens": 10, "hit_rate": 0.5, "reads_per_second": 1.0, "busiest_share": 0.4}
    monkeypatch.setattr(benchmark, "connect", lambda *arguments, **settings: None)
    monkeypatch.setattr(benchmark, "measure", lambda *arguments: row)
    rows = benchmark.policies([], [], 8, tmp_path)
    screen = io.StringIO()
    benchmark.show({"policies": rows, "reads": 24, "kill": None, "load": [1.0, 1.0]}, Console(file=screen, width=100))
    assert "vllm-router cache_aware is skipped: vllm-router is not installed." in screen.getvalue()
    assert "│ ours        │              10 │    1.00 │    50.0% │" in screen.getvalue()
