"""The page of the benchmark on a GPU (`gpu.py`), written from its JSON file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from english.common import markdown

Figures = dict[str, Any]
WAYS = ("planner", "fitted", "rows", "wide", "kept", "separate")
AIMS = {"floor": 1.0, "prefill": 1.2, "peak": 0.6, "step": 0.1, "memory": 0.02}
NEAR = 1.03
"""The planner's choice counts as the fastest if it takes at most this much of the fastest way: two runs of one way
differ by as much."""
RUN = "python -P recipes/studies/benchmarks/gpu.py --output docs/studies/gpu.json --page docs/studies/gpu.md"


def page(results: Figures) -> str:
    """`docs/studies/gpu.md` from the results."""
    where, cases, settings = results["machine"], results["cases"], results["settings"]
    measured = where["device"] != "cpu" and settings["shapes"] == "real"
    lines = ["# Reads on a GPU", ""]
    if not measured:
        lines += [
            "**No GPU was measured yet.** The tables below are from a run on a CPU with tiny shapes of the same "
            "architectures. They show that the script runs to its end. They say nothing about the speed of a GPU or "
            "of the models that they name.",
            "",
        ]
    versions = f"torch {where['torch']}, transformers {where['transformers']}, Python {where['python']}"
    lines.append(f"Device: {where['name']}; {versions}.")
    if where["device"] != "cpu":
        lines.append(
            f"Driver {where['driver_version']}, CUDA {where.get('cuda')}, {where['memory_gib']:.0f} GiB; SM clock "
            f"{where.get('clocks.sm', 'unknown')} at the start, at most {where.get('clocks.max.sm', 'unknown')}; "
            f"power limit {where.get('power.limit', 'unknown')}."
        )
    peak = cases.get("peak", {}).get("flops")
    if peak:
        size = cases["peak"]["size"]
        lines.append(f"A product of two {size:,} x {size:,} matrices in bf16: {peak / 1e12:,.3g} TFLOP/s, the *peak*.")
    lines += [
        f"The run took {results['seconds']:.0f} s. The models have random weights in bf16, "
        + ("in the shapes named." if settings["shapes"] == "real" else "in tiny shapes."),
        "",
        f"A *read* is one item answered about one completion. Each case has {settings['completions']} completions of "
        f"a prompt and {settings['items']} items about each, with {settings['rules']} tokens of rules, "
        f"{settings['target']} per completion and {settings['tail']} per item.",
        "",
        "## Reads",
        "",
        _reads(cases),
        "",
        f"Aims: tokens computed {AIMS['floor']:.2f} of the floor; time at most {AIMS['prefill']} of *prefill*, a "
        f"plain pass of as many tokens in rows of 512; {AIMS['peak']:.0%} of the peak with the 7B shape. The share "
        "of the peak counts the least work: the layers' matrices for each token of the tree, and attention to the "
        "tokens before it.",
        "",
        "## Ways to read",
        "",
        _ways(cases),
        "",
        "*Rows* is what the planner chooses without kept prefixes, *wide* has rows as long as possible, *kept* keeps "
        "prefixes as if a pass cost nothing, and *flex* has the rows of *wide* with block masks, which the package "
        "does not use. *Fitted* is the planner with the figures of the next table.",
        "",
        _chosen(cases),
        "",
        "## What a pass costs",
        "",
        _fits(cases),
        "",
        "`checklist_rewards/backends/trees.py` has the figures in use. *One* is the cost of a pass in tokens; *by "
        "formula* is the time of the shortest pass, times the peak, divided by the operations of a token. *Error* is "
        "that of the fitted estimate, the median and the largest over the measured passes.",
        "",
        "## Difference from separate prompts",
        "",
        _differences(cases),
        "",
        "## Experts",
        "",
        _experts(cases),
        "",
        "## A GRPO step with the reference as the judge",
        "",
        _step(cases.get("grpo", {})),
        "",
        _missing(cases),
        "## How to repeat it",
        "",
        f"`{RUN}` on a machine with one GPU; at most 8 minutes. It needs torch, transformers, "
        "pydantic and rich, and no network. The JSON file and this page are written after each case. If pydantic is "
        "missing, bring it as wheels: `pip download -d wheels pydantic` where there is a network, and `pip install "
        "--no-index --find-links wheels --target site pydantic` and `PYTHONPATH=site` where there is none. With "
        "`trl`, `datasets` and `peft` brought in the same way, the GRPO step is that of TRL.",
        "",
        "`--shapes tiny` runs the same cases on a CPU; `--redraw` writes this page from the JSON file.",
        "",
    ]
    return "\n".join(line for line in lines if line is not None)


def _of(cases: Figures, key: str) -> Iterator[tuple[str, str, Figures]]:
    """Shape, case and results of all cases that have a figure."""
    for name, case in cases.items():
        if key in case:
            shape, _, rest = name.rpartition(": ")
            yield shape, rest, case


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:,.1f}"


def _table(columns: Sequence[str], rows: list[list[str]]) -> str:
    return markdown(columns, rows) if rows else "Not measured."


def _reads(cases: Figures) -> str:
    rows = [
        [
            *(shape, f"{int(tokens):,}", f"{case['reads_per_second']:,.0f}", f"{case['computed_over_floor']:.2f}"),
            *(f"{case['over_prefill']:.2f}", f"{case['share_of_peak']:.0%}" if case["share_of_peak"] else ""),
        ]
        for shape, tokens, case in _of(cases, "reads_per_second")
    ]
    columns = ("shape", "input tokens", "reads/s", "computed / floor", "time / prefill", "share of the peak")
    return _table(columns, rows)


def _ways(cases: Figures) -> str:
    names = ("prefill", *WAYS)
    rows = []
    for shape, tokens, case in _of(cases, "reads_per_second"):
        flex = cases.get(f"{shape}: flex", {}).get("seconds", {})
        seconds = [*(case["seconds"].get(name) for name in names), flex.get(tokens, flex.get(int(tokens)))]
        rows.append([shape, f"{int(tokens):,}", *map(_ms, seconds)])
    return _table(("milliseconds", "input tokens", *names, "flex"), rows)


def chosen(cases: Figures) -> dict[str, tuple[int, int]]:
    """For the planner as it is and with fitted costs: in how many cases it is the fastest, of how many."""
    found = {}
    for planner in ("planner", "fitted"):
        known = [case["seconds"] for *_, case in _of(cases, "reads_per_second") if planner in case["seconds"]]
        others = ("rows", "wide", "kept", "separate")
        best = [min(seconds[way] for way in others if way in seconds) for seconds in known]
        won = sum(seconds[planner] <= NEAR * least for seconds, least in zip(known, best, strict=True))
        found[planner] = won, len(known)
    return found


def _chosen(cases: Figures) -> str:
    counts = chosen(cases)
    (own, of), (fitted, of_fitted) = counts["planner"], counts["fitted"]
    if not of:
        return "Not measured."
    return (
        f"The planner's choice is the fastest of the package's ways, or within {NEAR - 1:.0%} of it, in {own} of {of} "
        f"cases; with the fitted figures in {fitted} of {of_fitted}. Aim: 9 of 10."
    )


def _fits(cases: Figures) -> str:
    rows = []
    for shape, _, case in _of(cases, "fitted"):
        rows.append(
            [
                shape,
                *(f"{case['fitted'][name]:,.1f} ({case['in_code'][name]:,g})" for name in case["fitted"]),
                f"{case['one_by_formula']:,.0f}" if case["one_by_formula"] else "",
                f"{1e6 * case['launch_per_layer']:,.0f}",
                f"{case['relative_error']['median']:.0%}, {case['relative_error']['largest']:.0%}",
            ]
        )
    columns = (
        "fitted (in use)",
        "even",
        "one",
        "skipped",
        "copied",
        "one by formula",
        "µs per layer, at least",
        "error",
    )
    return _table(columns, rows)


def _differences(cases: Figures) -> str:
    rows = [
        [shape, f"{int(tokens):,}", "bf16, separate prompts", *_apart(case["difference"])]
        for shape, tokens, case in _of(cases, "difference")
    ]
    for shape, _, case in _of(cases, "planner"):
        rows += [[shape, "all", f"float32, {way} in bf16", *_apart(case[way])] for way in ("planner", "separate")]
    columns = ("shape", "input tokens", "from", "reads", "largest difference of P(yes)", "mean")
    return _table(columns, rows)


def _apart(apart: Figures) -> list[str]:
    return [f"{apart['reads']:,}", f"{apart['largest']:.1e}", f"{apart['mean']:.1e}"]


def _experts(cases: Figures) -> str:
    rows = [
        [
            f"{name} (default)" if name == case["default"] else name,
            _ms(case["seconds"].get(name)) or case["errors"][name],
        ]
        for _, _, case in _of(cases, "default")
        for name in (*case["seconds"], *case.get("errors", {}))
    ]
    return _table(("experts_implementation", "milliseconds for the reads of the longest input"), rows)


def _step(case: Figures) -> str:
    if "judge_seconds" not in case:
        return "Not measured."
    seconds, memory = case["step_seconds"], case["memory_gib"]
    more = case["more_memory"]
    memories = (
        f"{memory['judge']:.2f} GiB at most, {memory['plain']:.2f} GiB without ({more:+.1%})"
        if more is not None
        else "memory: not measured on a CPU"
    )
    floor = ""
    if case.get("floor_tokens"):
        floor = f" The judge computed {case['computed_tokens'] / case['floor_tokens']:.2f} of the floor."
    return (
        f"Qwen2.5-1.5B's shape with LoRA, {case['completions']} completions of {case['completion_tokens']} tokens, "
        f"{case['items']} items ({case['how']}): {seconds['judge']:.2f} s per step with the judge, "
        f"{seconds['plain']:.2f} s without; the judge took {case['judge_seconds']:.2f} s, {case['judge_share']:.1%} "
        f"of the step; {memories}.{floor} Aims: under {AIMS['step']:.0%} of the step and under {AIMS['memory']:.0%} "
        "more memory."
    )


def _missing(cases: Figures) -> str | None:
    lines = [
        f"- {name}: {case.get('error') or case.get('skipped')}"
        for name, case in cases.items()
        if "error" in case or "skipped" in case
    ]
    lines += [
        f"- {shape}, {tokens} tokens, {way}: {found['error']}"
        for shape, tokens, case in _of(cases, "ways")
        for way, found in case["ways"].items()
        if "error" in found
    ]
    return "\n".join(["## Not measured", "", *lines, ""]) if lines else None
