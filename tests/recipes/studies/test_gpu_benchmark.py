"""The benchmark on a GPU: a small run on a CPU, and its page."""

import json

from studies.benchmarks import gpu


def figure(figures, name, unit, about):
    return next(one for one in figures if (one["name"], one["unit"], one["about"]) == (name, unit, about))


def test_a_small_run_measures_every_way(tmp_path):
    output = tmp_path / "gpu.json"
    results = gpu.main(["--shapes", "tiny", "--only", gpu.SMALLEST, "--output", str(output)])
    page = output.with_suffix(".md").read_text()
    assert json.loads(output.read_text()) == results
    assert page.startswith("# Reads on a GPU\n\n**No GPU was measured.**") and "\nCommit `" in page
    # times of a busy machine may fit no cost
    not_fitted = f"{gpu.SMALLEST}: passes" in results["failed"]
    assert set(results["failed"]) <= {f"{gpu.SMALLEST}: passes"}
    figures = results["parts"][gpu.SMALLEST]["figures"]
    for length in (8, 60):
        about = f"input of {length} tokens"
        measured = {one["name"] for one in figures if (one["unit"], one["about"]) == ("ms", about)}
        ways = {"planner", "rows", "wide", "kept", "separate"} | (set() if not_fitted else {"fitted"})
        assert measured == {"prefill"} | ways
        ratio = {way: figure(figures, way, "tokens computed", about)["ratio"] for way in ways}
        assert ratio["wide"] == 1 <= min(ratio.values()) and ratio["separate"] == max(ratio.values()) > 2
        unit, apart = "difference of P(yes), in thousandths", f"{about}, planner from separate"
        assert figure(figures, "largest", unit, apart)["value"] < 50
    passes = results["parts"][gpu.SMALLEST]["passes"]
    assert len(passes) == sum(map(len, gpu.PASSES["tiny"].values())) and all(line["seconds"] > 0 for line in passes)
    assert f"### {gpu.SMALLEST}" in page and "| input of 60 tokens: planner |" in page
    assert "of 2 cases" in page


def test_an_error_ends_its_case_and_a_case_without_time_is_skipped(tmp_path):
    words = ["--output", str(tmp_path / "gpu.json"), "--shapes", "tiny"]

    def fail():
        raise MemoryError("14 GiB of weights, 3 GiB free")

    run = gpu.Run(gpu.parser().parse_args(words))
    run.part("A shape")
    assert run.case("first", fail, 5) is None and run.case("second", lambda: 1, 5) == 1
    assert run.results["failed"] == {"first": "MemoryError: 14 GiB of weights, 3 GiB free"}
    late = gpu.Run(gpu.parser().parse_args([*words, "--minutes", "-1"]))
    late.part("A shape")
    assert late.case("third", lambda: 1, 5) is None
    assert "- third: TimeoutError: only 0 s of -1 minutes were left" in (tmp_path / "gpu.md").read_text()
