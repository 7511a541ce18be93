"""The benchmark on a GPU: a small run on a CPU, the fit of costs to passes, and the page that its JSON file gives."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.benchmarks import gpu, gpu_page

from checklist_rewards.backends.trees import CPU


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    paths = {"--output": folder / "gpu.json", "--page": folder / "gpu.md"}
    words = [str(word) for pair in paths.items() for word in pair]
    return gpu.main(["--shapes", "tiny", "--only", gpu.SMALLEST, *words]), *paths.values()


def test_a_small_run_measures_every_way(run):
    results, output, _ = run
    assert json.loads(output.read_text())["machine"]["device"] == results["machine"]["device"]
    errors = {name: case for name, case in results["cases"].items() if "error" in case or "skipped" in case}
    assert errors == {}
    cases = [case for case in results["cases"].values() if "reads_per_second" in case]
    assert len(cases) == 2
    (passes,) = (case for case in results["cases"].values() if "passes" in case)
    # times of a busy machine may fit no cost
    measured = {"prefill", *gpu_page.WAYS} - ({"fitted"} if "not_fitted" in passes else set())
    for case in cases:
        assert case["seconds"].keys() == measured
        ways = case["ways"]
        assert ways["separate"]["computed"] == case["prompt_tokens"] and ways["separate"]["separate"] == 64
        assert ways["wide"]["computed"] == case["floor"] <= ways["planner"]["computed"]
        assert case["floor"] <= ways["kept"]["computed"] and ways["wide"]["cached"] == 0
        assert case["difference"]["largest"] < 0.05
    flex = results["cases"][f"{gpu.SMALLEST}: flex"]
    assert all(apart < 0.05 for apart in flex["largest_difference"].values())


def test_the_page_of_a_cpu_says_that_no_gpu_was_measured(run):
    results, output, written = run
    text = written.read_text()
    assert "**No GPU was measured yet.**" in text and "python -P recipes/studies/benchmarks/gpu.py" in text
    on_gpu = json.loads(output.read_text())
    on_gpu["settings"]["shapes"] = "real"
    on_gpu["machine"] |= {"device": "cuda", "name": "NVIDIA H100", "driver_version": "1", "memory_gib": 80}
    assert "No GPU" not in gpu_page.page(on_gpu) and "NVIDIA H100" in gpu_page.page(on_gpu)


def test_cases_that_failed_or_were_skipped_are_on_the_page(run):
    results = json.loads(run[1].read_text())
    results["cases"] |= {"grpo": {"error": "OutOfMemoryError: 3 GiB"}, "x: 8": {"skipped": "only 2 s were left"}}
    text = gpu_page.page(results)
    assert "- grpo: OutOfMemoryError: 3 GiB" in text and "- x: 8: only 2 s were left" in text


def test_an_error_ends_its_case_and_a_case_without_time_is_skipped(tmp_path):
    words = ["--output", str(tmp_path / "gpu.json"), "--page", str(tmp_path / "gpu.md"), "--shapes", "tiny"]

    def fail():
        raise MemoryError("14 GiB of weights, 3 GiB free")

    run = gpu.Run(gpu.parser().parse_args(words))
    assert run.case("first", fail)["error"] == "MemoryError: 14 GiB of weights, 3 GiB free"
    assert run.case("second", lambda: {"value": 1})["value"] == 1
    late = gpu.Run(gpu.parser().parse_args([*words, "--minutes", "-1"]))
    assert "skipped" in late.case("third", fail)
    assert json.loads((tmp_path / "gpu.json").read_text())["cases"].keys() == {"third"}


@pytest.mark.parametrize("shapes", ["real", "tiny"])
@given(
    st.floats(0.5, 20),
    st.floats(1, 20_000),
    st.floats(-200, 1000),
    st.floats(0.5, 40),
    st.sampled_from([64, 896, 3584]),
)
@settings(max_examples=30, deadline=None)
def test_costs_that_made_the_times_of_passes_are_found_again(shapes, even, one, skipped, copied, size):
    costs = CPU._replace(even=even, one=one, skipped=skipped, copied=copied).of(size, 8192)
    passes = []
    for kind, several in gpu.PASSES[shapes].items():
        for rows, width, past in several:
            if kind == "plain":
                tokens = costs.one + rows * (costs.prefix(width, 0) - costs.one)
            else:
                tokens = costs.one + rows * (costs._replace(one=0).row(width, past))
            if tokens > 0:
                seconds = 1e-6 * tokens
                passes.append({"kind": kind, "rows": rows, "width": width, "past": past, "seconds": seconds})
    found = gpu.fitted(passes, size)
    expected = {"even": even, "one": one, "skipped": skipped, "copied": copied}
    assert found["figures"] == pytest.approx(expected, rel=0.01, abs=0.5)
    assert found["errors"].max() < 1e-6
