"""`make bench`: one file of figures, and the page and the README lines made from it."""

import pytest
from studies.benchmarks import bench
from studies.benchmarks.figures import figures

FIGURES = figures("answers per second", {"plain loop": [50, 52, 60], "transformers": 260.0}, "plain loop")
TOKENS = figures("prompt tokens computed", {"plain loop": 9000, "transformers": 1000}, "plain loop")


def test_a_figure_is_a_median_with_its_range_and_its_ratio_to_the_peer():
    plain, ours = FIGURES
    assert (plain["value"], plain["low"], plain["high"], plain["ratio"]) == (52, 50, 60, 1)
    assert (ours["value"], ours["ratio"], ours["to"]) == (260, 5, "plain loop")
    assert figures("%", {"ours": 0.0, "plain": 0.0}, "plain")[0]["ratio"] is None


def test_the_page_and_the_readme_are_made_from_the_figures(tmp_path):
    results = {
        "machine": {"processor": "a CPU", "cores": 2},
        "versions": {"python": "3.11.2"},
        "commit": "0123456789ab",
        "load": 0.1,
        "failed": {"app": "it ended with exit code 1"},
        "parts": {"reads": {"title": "Reads", "seconds": 120, "figures": [*FIGURES, *TOKENS]}},
    }
    page = bench.tables(results)
    assert "Commit `0123456789ab`; 2 cores, a CPU" in page and "2 minutes" in page
    assert "| transformers | 260 |  | answers per second | 5.00 x plain loop (52.0) |" in page
    assert "| plain loop |" not in page  # a peer stands next to the ratio to it
    assert "- app: it ended with exit code 1" in page
    [line] = bench.readme_lines(results).splitlines()[2:]
    assert line.endswith("| 260 | a plain loop over the same prompts: 52.0 |")
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    assert bench.rewritten(path, "new\n") == "before\n<!-- bench -->\nnew\n<!-- /bench -->\nafter\n"


@pytest.mark.skipif(not bench.FILE.is_file(), reason="`make bench` has not run yet")
def test_page_and_readme_agree_with_the_file():
    import json

    results = json.loads(bench.FILE.read_text(encoding="utf-8"))
    assert bench.rewritten(bench.PAGE, f"\n{bench.tables(results)}\n") == bench.PAGE.read_text(encoding="utf-8")
    readme = bench.rewritten(bench.README, f"\n{bench.readme_lines(results)}\n")
    assert readme == bench.README.read_text(encoding="utf-8")
    assert len(bench.readme_lines(results).splitlines()) == 2 + len(bench.LINES)
