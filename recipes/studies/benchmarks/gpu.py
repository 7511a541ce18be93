"""Benchmark of reads on one GPU: how near they are to the least work, which way of reading is the fastest, what a
forward pass costs, and what `model="reference"` costs in a GRPO step.

    python -P recipes/studies/benchmarks/gpu.py                  # one H100 or H200, at most 8 minutes
    python -P recipes/studies/benchmarks/gpu.py --shapes tiny    # a CPU: the same cases, to see that the script runs

It needs torch, transformers and pydantic (with rich, which the benchmarks use), no weights and no network: the models
are random weights in the shapes of Qwen2.5-0.5B, Qwen2.5-7B, Gemma-3-4B and Qwen3-30B-A3B cut to a quarter of its
layers, made on the device in bf16. The GRPO step is that of TRL with its defaults, and also needs trl, datasets and
peft.

Every case is measured by itself: if one fails, or the time is over, the page says why and the next one runs. Writes
`runs/bench/gpu.json` and the page `runs/bench/gpu.md`, both after each case, so that nothing is lost if the process is
stopped.

- *peak*: operations per second of a large `torch.matmul` in bf16.
- *passes*: forward passes of known shapes. The figures of `backends/trees.py` are fitted to their times.
- *reads*: 8 completions of a prompt x 8 items, inputs of 150, 400 and 2,000 tokens, in each way. Wall time with the
  device synchronized before and after, on new tokens each time, after a warm-up.
- *GRPO*: steps with and without the judge.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[3])]
try:
    import numpy as np
    import torch
    from studies.benchmarks.bench import identity, tables
    from studies.benchmarks.figures import Figure, figures, parser_of
    from studies.benchmarks.reads import changed, floor_flop, layer_weights, matmul_peak, p_yes, prefill, timed
    from transformers import AutoConfig, AutoModelForCausalLM

    from checklist_rewards.backends.inputs import Past, plain_inputs, prefix_inputs, tree_inputs
    from checklist_rewards.backends.tokens import TokenGroup
    from checklist_rewards.backends.transformers import TransformersBackend
    from checklist_rewards.backends.trees import MAX_BATCH_TOKENS, Costs, TreeRow, branches_of, floor_tokens, tree_rows
    from checklist_rewards.errors import first_line
except ModuleNotFoundError as error:
    raise SystemExit(
        f"error: {error.name} is not installed; gpu.py needs torch, transformers, pydantic and rich "
        "(recipes/studies/README.md says how to bring them to a machine without a network)."
    ) from None

T = TypeVar("T")
LABELS = ("yes", "no")
COMPLETIONS, ITEMS = 8, 8
LENGTHS = {"real": {"rules": 90, "target": 200, "tail": 20}, "tiny": {"rules": 8, "target": 12, "tail": 4}}
"""Tokens of the judge's rules, of a completion and of a question."""
PROMPT = 150
"""Tokens of the prompt of a GRPO step."""
REPEATS = 5
_QWEN = {"max_position_embeddings": 32_768, "rms_norm_eps": 1e-6}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-7B": _QWEN
    | {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28}
    | {"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064, "tie_word_embeddings": False},
    "Qwen2.5-0.5B": _QWEN
    | {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    | {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
    "Gemma-3-4B": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10_240}
    | {"num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    | {"sliding_window": 1024, "query_pre_attn_scalar": 256, "vocab_size": 262_208},
    "Qwen3-30B-A3B/4": _QWEN
    | {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 12}
    | {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128}
    | {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True, "vocab_size": 151_936},
}
SMALLEST = "Qwen2.5-0.5B"
POLICY = _QWEN | {"model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28}
POLICY |= {"num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True}
_TINY = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 16}
_TINY |= {"num_key_value_heads": 2, "vocab_size": 512, "sliding_window": 48, "query_pre_attn_scalar": 16}
_TINY |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NEAR = 1.03
"""The planner's choice counts as the fastest if it takes at most this much of the fastest way: two runs of one way
differ by as much."""
ABOUT = """# Reads on a GPU

{warning}A *read* is one item answered about one completion. Each case has {completions} completions of a prompt and \
{items} items about each, with {rules} tokens of rules, {target} per completion and {tail} per item. The models have \
random weights in bf16. Ways to read:

- *planner*: as the package chooses; *fitted*: as it would choose with the figures that fit the measured passes
- *rows*: what the planner chooses without kept prefixes; *wide*: rows as long as possible
- *kept*: prefixes kept as if a pass cost nothing; *separate*: separate prompts
- *prefill*: plain rows of 512 tokens, together as many as the tree of the prompts has

The least work is the layers' matrices for each token of the tree, and attention to the tokens before it. \
`checklist_rewards/backends/trees.py` has the costs of a pass in use: *one* is a pass in tokens, and *by formula* the \
time of the shortest pass, times the peak, divided by the operations of a token.

Aims: 1.00 of the least tokens; at most 1.2 x the time of *prefill*; 60% of the peak with the 7B shape; the planner's \
choice the fastest in 9 of 10 cases; the reference judge under 10% of a GRPO step and under 2% more memory.

"""


class Run:
    """The figures in the form of `bench.py`, and the time that is left. They are saved after each case.

    Args:
        args (`argparse.Namespace`): The arguments of the script.
    """

    def __init__(self, args: argparse.Namespace):
        self.args, self.tiny = args, args.shapes == "tiny"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.started = time.monotonic()
        self.inputs: Sequence[int] = (8, 60) if self.tiny else (150, 400, 2_000)
        self.repeats = 1 if self.tiny else REPEATS
        self.peak = 0.0
        self.medians: list[dict[str, float]] = []
        """Median seconds of each way, for each length of input of each shape."""
        self.results = identity() | {"load": os.getloadavg()[0], "failed": {}, "parts": {}}
        if self.device.type == "cuda":
            self.results["machine"]["processor"] = gpu_name()

    def sizes(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The sizes to measure of a shape."""
        if not self.tiny:
            return shape
        layers = 6 if shape["model_type"] == "gemma3_text" else 2  # the sixth layer is the first without a window
        return shape | {name: value for name, value in _TINY.items() if name in shape} | {"num_hidden_layers": layers}

    def reads(self, backend: Shape, tokens: int, count: int) -> list[list[TokenGroup]]:
        """Some batches of reads with an input of so many tokens, each with tokens of its own."""
        lengths, vocabulary = LENGTHS[self.args.shapes], backend.model.config.vocab_size
        return [reads_of(tokens, vocabulary, seed, lengths) for seed in range(count)]

    @property
    def left(self) -> float:
        """Seconds until the time is over."""
        return 60 * self.args.minutes - (time.monotonic() - self.started)

    def part(self, title: str) -> None:
        """Begin a part of the page."""
        self.began, self.current = time.monotonic(), {"title": title, "seconds": 0, "figures": list[Figure]()}
        self.results["parts"][title] = self.current

    def add(self, *arguments: Any) -> None:
        """Add [`figures`] to the part."""
        self.current["figures"] += figures(*arguments)

    def attempt(self, name: str, call: Callable[[], T]) -> T | None:
        """The value of a call; None, with the reason on the page, if it fails."""
        try:
            return call()
        except Exception as error:
            self.results["failed"][name] = f"{type(error).__name__}: {first_line(error)}"
            print(f"{name}: {self.results['failed'][name]}", flush=True)
        cleared()
        return None

    def case(self, name: str, call: Callable[[], T], least: float) -> T | None:
        """An attempt that also fails if fewer than `least` seconds are left. The page is saved after it."""

        def in_time() -> T:
            if self.left < (0 if self.tiny else least):
                raise TimeoutError(f"only {max(self.left, 0):.0f} s of {self.args.minutes:g} minutes were left")
            return call()

        started = time.monotonic()
        found = self.attempt(name, in_time)
        cleared()
        self.save()
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        return found

    def save(self) -> None:
        """Write the results and the page."""
        self.current["seconds"] = round(time.monotonic() - self.began)
        real = self.device.type == "cuda" and not self.tiny
        warning = "" if real else (
            "**No GPU was measured.** The tables are from a run with tiny shapes of the same architectures. They show "
            "that the script runs to its end. They say nothing about the speed of a GPU or of the models that they "
            "name.\n\n"
        )  # fmt: skip
        lengths = LENGTHS[self.args.shapes]
        page = ABOUT.format(warning=warning, completions=COMPLETIONS, items=ITEMS, **lengths) + tables(self.results)
        self.args.output.parent.mkdir(parents=True, exist_ok=True)
        self.args.output.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        self.args.output.with_suffix(".md").write_text(page, encoding="utf-8")


def gpu_name() -> str:
    """The GPU with its memory and CUDA, and driver, clocks and power limit where nvidia-smi can read them."""
    about = torch.cuda.get_device_properties(0)
    found = f"{about.name}, {about.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    query = "--query-gpu=driver_version,clocks.sm,clocks.max.sm,power.limit"
    try:
        command = ["nvidia-smi", query, "--format=csv,noheader", "--id=0"]
        line = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        driver, clock, most, power = (value.strip() for value in line.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return f"{found}, nvidia-smi not readable ({first_line(error)})"
    return f"{found}, driver {driver}, SM clock {clock} at the start, at most {most}, power limit {power}"


def cleared() -> None:
    """Free memory that is no longer used, and start to count its peak again."""
    gc.collect()
    if torch.cuda.is_available():
        with suppress(RuntimeError):  # after an error of the device, which is in the results
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def repeated(call: Callable[[], object], repeats: int, most: float = 3.0) -> list[float]:
    """Seconds of some repeats after a warm-up; fewer if they take more than `most` seconds."""
    call()
    seconds: list[float] = []
    while len(seconds) < repeats and (not seconds or sum(seconds) < most):
        seconds.append(timed(call)[0])
    return seconds


def ms(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    """The same in milliseconds."""
    return {name: [1000 * one for one in some] for name, some in seconds.items()}


class Ids:
    """Stands for a tokenizer: groups of reads are token ids already."""

    tokenizer = None

    def groups(self, groups: Sequence[TokenGroup]) -> list[TokenGroup]:
        """The groups."""
        return list(groups)

    def label_groups(self, labels: Sequence[str]) -> list[tuple[int, ...]]:
        """An arbitrary token for each label."""
        return [(11 + 12 * place,) for place, _ in enumerate(labels)]


class Shape(TransformersBackend):
    """The transformers engine of the package with a model that is in memory.

    Args:
        model (`PreTrainedModel`): The model.
    """

    def __init__(self, model: Any):
        self.identity, self._lock = "random weights", threading.Lock()
        self._use(model, Ids(), MAX_BATCH_TOKENS)

    def read(self, groups: Any, labels: Any) -> Any:
        """As the engine reads texts, of groups that are token ids."""
        found, usage = self._read_texts(branches_of(groups, self.limit), self.tokens.label_groups(labels))
        return [found[place] for place in sorted(found)], usage


def random_model(shape: dict[str, Any], device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A model with random weights, made on the device. Raises `MemoryError` if it would not fit."""
    torch.manual_seed(0)
    own = {name: value for name, value in shape.items() if name != "model_type"}
    config = AutoConfig.for_model(shape["model_type"], **own)
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if device.type == "cuda":
        free = torch.cuda.mem_get_info()[0]
        if 1.2 * weights * dtype.itemsize > free:
            raise MemoryError(f"{weights * dtype.itemsize / 2**30:.0f} GiB of weights, {free / 2**30:.0f} GiB free")
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.to(device).eval()


def reads_of(input_tokens: int, vocabulary: int, seed: int, lengths: dict[str, int]) -> list[TokenGroup]:
    """One prompt of `input_tokens` tokens, 8 completions, 8 questions about each, of random tokens."""
    rng = random.Random(seed)

    def some(count: int) -> list[int]:
        return [rng.randrange(100, vocabulary) for _ in range(count)]

    start, tails = some(lengths["rules"] + input_tokens), [some(lengths["tail"]) for _ in range(ITEMS)]
    return [TokenGroup(start + some(lengths["target"]), tails) for _ in range(COMPLETIONS)]


def ways(backend: Shape, fitted: Costs | None) -> dict[str, dict[str, Any]]:
    """The ways to read, by name, as changed attributes of the engine."""
    costs, packed = backend.device_costs, {"packs": True, "keeps": False}  # whatever the engine's self-check has found
    return {
        "planner": {},
        **({"fitted": {"device_costs": fitted}} if fitted else {}),
        "rows": packed,
        "wide": packed | {"device_costs": costs._replace(even=math.inf, widest=backend.max_batch_tokens)},
        "kept": packed | {"keeps": True, "device_costs": costs._replace(one=0)},
        "separate": {"packs": False, "keeps": False},
    }


def read_batches(
    backend: Shape, batches: Sequence[list[TokenGroup]], changes: dict[str, Any]
) -> tuple[list[float], list[list[float]], Any]:
    """Seconds of the batches after the first, which warms up; answers of each batch; and the usage of the last one.
    Fewer batches if they take more than 6 seconds."""
    seconds: list[float] = []
    answers: list[list[float]] = []
    with changed(backend, **changes):
        for seed, groups in enumerate(batches):
            spent, (found, usage) = timed(partial(backend.read, groups, LABELS))
            seconds.append(spent)
            answers.append(p_yes(found))
            if seed and sum(seconds) > 6:
                break
    return seconds[1:], answers, usage


def measure_reads(run: Run, name: str, backend: Shape, input_tokens: int, fitted: Costs | None) -> None:
    """The reads of one length of input, in each way."""
    about, batches = f"input of {input_tokens:,} tokens", run.reads(backend, input_tokens, run.repeats + 1)
    least = floor_tokens(branches_of(batches[0], backend.limit))[1]
    rows = max(backend._costs.batch // 512, 1)
    seconds = {"prefill": repeated(lambda: prefill(backend, least, rows), run.repeats)}
    computed, answers = {"least": least}, {}
    for way, changes in ways(backend, fitted).items():
        if found := run.attempt(f"{name}, {about}, {way}", partial(read_batches, backend, batches, changes)):
            seconds[way], answers[way], usage = found
            computed[way] = usage.computed_tokens
    medians = {way: statistics.median(some) for way, some in seconds.items()}
    run.medians.append(medians)
    run.add("ms", ms(seconds), "prefill", about)
    run.add("tokens computed", computed, "least", about)
    if "planner" in answers and "separate" in answers:
        rates = {way: COMPLETIONS * ITEMS / medians[way] for way in ("separate", "planner")}
        run.add("reads per second", rates, "separate", about)
        add_difference(run, answers["planner"], answers["separate"], f"{about}, planner from separate")
        if run.peak:
            done = floor_flop(backend, batches[0]) / medians["planner"]
            run.add("TFLOP/s of the least work", {"peak": run.peak / 1e12, "planner": done / 1e12}, "peak", about)


def add_difference(run: Run, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], about: str) -> None:
    """Mean and largest difference of P(yes) between two ways to read, over the batches that both have read."""
    apart = np.concatenate([np.abs(np.subtract(one, other)) for one, other in zip(ours, theirs, strict=False)])
    thousandths = {"mean": 1000 * float(apart.mean()), "largest": 1000 * float(apart.max())}
    run.add("difference of P(yes), in thousandths", thousandths, "mean", about)


def measure_single_precision(run: Run, backend: Shape) -> None:
    """Differences of P(yes) of bf16 from single precision, of the model's own weights. Changes the model."""
    batches = [groups for length in run.inputs for groups in run.reads(backend, length, run.repeats)]

    def read(engine: Shape, way: str) -> list[list[float]]:
        with changed(engine, **ways(engine, None)[way]):
            return [p_yes(engine.read(groups, LABELS)[0]) for groups in batches]

    half = {way: read(backend, way) for way in ("planner", "separate")}
    backend.model.float()
    single = read(Shape(backend.model), "separate")
    for way, values in half.items():
        add_difference(run, values, single, f"{way} in bf16 from float32")


PASSES: dict[str, dict[str, list[tuple[int, int, int]]]] = {
    "real": {
        "plain": [(1, width, 0) for width in (16, 256, 512, 1024, 2048, 4096, 8192)]
        + [(rows, 512, 0) for rows in (4, 8, 16)],
        "masked": [(1, width, 0) for width in (256, 512, 1024, 2048, 4096)]
        + [(4, 512, 0), (16, 512, 0), (8, 1024, 0), (4, 2048, 0)],
        "below": [(1, 256, 512), (8, 256, 512), (8, 256, 1024), (3, 256, 2048), (1, 1024, 2048), (1, 1024, 4096)],
    },
    "tiny": {
        "plain": [(1, 16, 0), (1, 128, 0), (4, 128, 0)],
        "masked": [(1, 128, 0), (4, 64, 0), (1, 256, 0)],
        "below": [(1, 32, 64), (4, 32, 64), (4, 32, 128)],
    },
}
"""Passes to measure by kind: rows, width of a row, and kept tokens."""


def measure_passes(run: Run, name: str, backend: Shape) -> Costs:
    """Passes of known shapes, and the costs that fit them. Returns these. Raises `ValueError` if none fit."""
    passes: list[dict[str, Any]] = []
    run.current["passes"] = passes
    for kind, several in PASSES[run.args.shapes].items():
        for spec in several:
            called = "{} rows of {} tokens below {}".format(*spec)
            call = partial(pass_seconds, backend, kind, *spec, run.repeats)
            if found := run.attempt(f"{name}, {kind}: {called}", call):
                line = {"kind": kind, **dict(zip(("rows", "width", "past"), spec, strict=True))}
                passes.append(line | {"seconds": statistics.median(found)})
    shortest = min((line["seconds"] for line in passes), default=0.0)
    layers = backend.model.config.num_hidden_layers
    run.add("µs per layer", {"shortest pass": 1e6 * shortest / layers}, "shortest pass")
    found, errors = fitted(passes, backend.model.get_input_embeddings().embedding_dim)
    by_formula = {"one": shortest * run.peak / (2 * layer_weights(backend.model))} if run.peak else {}
    for cost, value in found.items():
        values = {"in use": getattr(backend.device_costs, cost), "fitted": value}
        values |= {"by formula": by_formula[cost]} if cost in by_formula else {}
        run.add("tokens", values, "in use", f"costs of a pass, {cost}")
    error = {"median": float(np.median(errors)), "largest": float(errors.max())}
    run.add("relative error of the fitted costs", error, "median", "measured passes")
    return backend.device_costs._replace(**found)


def pass_seconds(backend: Shape, kind: str, rows: int, width: int, past: int, repeats: int) -> list[float]:
    """Seconds of a pass, with its inputs and masks."""
    rng, vocabulary = random.Random(width + past), backend.model.config.vocab_size
    layers, model, device = backend.layers, backend.model, backend.device

    def ids(count: int) -> list[int]:
        return [rng.randrange(100, vocabulary) for _ in range(count)]

    def row() -> TreeRow[Any]:
        """A target of half the width and eight questions about it."""
        each = max(width // 16, 1)
        tails = [(ids(each), place) for place in range(8)]
        return next(tree_rows([(ids(width - 8 * each), tails)], 2**31))

    with backend.in_turn():
        if kind == "plain":
            several = [next(tree_rows([(ids(width), [([], None)])], 0)) for _ in range(rows)]
            return repeated(lambda: backend._logits(plain_inputs(several, device)), repeats)
        assert layers is not None, "this model takes no masks"
        several, kept = [row() for _ in range(rows)], None
        if past:
            inputs = prefix_inputs(ids(past), layers, model, device)
            backend._logits(inputs)
            kept = Past(inputs.past)
        return repeated(lambda: backend._logits(tree_inputs(several, layers, model, device, kept)), repeats)


def fitted(passes: Sequence[dict[str, Any]], size: int) -> tuple[dict[str, float], np.ndarray]:
    """The figures of [`Costs`] with which the estimates are nearest to the measured seconds, by least squares of
    the relative errors; and these errors.

    seconds = launch + token x tokens + pair x (masked pairs + n^2 / 2 of plain rows) + more x plain tokens + copy x
    copied tokens. A negative coefficient is set to 0, except `more`, which is negative if a pair is cheaper without a
    mask.
    """
    columns: dict[str, list[float]] = {"launch": [], "token": [], "pair": [], "more": [], "copy": []}
    for line in passes:
        rows, width, past, plain = line["rows"], line["width"], line["past"], line["kind"] == "plain"
        columns["launch"].append(1)
        columns["token"].append(rows * width)
        columns["pair"].append(rows * width * (width / 2 if plain else past + width))
        columns["more"].append(rows * width if plain else 0)
        columns["copy"].append(rows * past)
    seconds = np.array([line["seconds"] for line in passes])
    names = [name for name, values in columns.items() if any(values)]
    while True:
        matrix = np.stack([columns[name] for name in names], axis=1) / seconds[:, None]
        scale = np.abs(matrix).max(axis=0)
        found = np.linalg.lstsq(matrix / scale, np.ones(len(passes)), rcond=None)[0] / scale
        value = dict.fromkeys(columns, 0.0) | dict(zip(names, map(float, found), strict=True))
        negative = [name for name in ("copy", "pair", "launch") if value[name] < 0]
        if not negative:
            break
        names.remove(negative[0])
    if value["token"] <= 0:
        raise ValueError("no costs fit the measured passes: a token would take no time")
    token, pair = value["token"], value["pair"]
    costs = {
        "even": token / pair / size if pair else 1e6,
        "one": value["launch"] / token,
        "skipped": value["more"] / pair if pair else 0.0,
        "copied": value["copy"] / pair if pair else 0.0,
    }
    return costs, np.abs(matrix @ found - 1)


def measure_experts(run: Run, name: str, backend: Shape) -> None:
    """The reads of the longest input with each implementation of the experts; the default is the peer."""
    model, [groups] = backend.model, run.reads(backend, run.inputs[-1], 1)
    default, seconds = model.config._experts_implementation, {}
    for implementation in (default, *{"grouped_mm", "eager", "batched_mm"} - {default}):
        model.set_experts_implementation(implementation)
        call = partial(repeated, partial(backend.read, groups, LABELS), min(run.repeats, 3))
        if found := run.attempt(f"{name}, experts: {implementation}", call):
            seconds[implementation] = found
    model.set_experts_implementation(default)
    run.add("ms", ms(seconds), default, f"experts, input of {run.inputs[-1]:,} tokens")


def measure_shape(run: Run, name: str) -> None:
    """All cases of a shape, with one model."""
    shape = run.sizes(SHAPES[name])
    run.part(name)
    backend = run.case(f"{name}: model", lambda: Shape(random_model(shape, run.device)), 20)
    if backend is None:
        return
    costs = run.case(f"{name}: passes", lambda: measure_passes(run, name, backend), 15)
    for tokens in run.inputs:
        run.case(f"{name}: {tokens}", partial(measure_reads, run, name, backend, tokens, costs), 15)
    if shape["model_type"] == "qwen3_moe":
        run.case(f"{name}: experts", partial(measure_experts, run, name, backend), 15)
    if name == SMALLEST:
        run.case(f"{name}: single precision", partial(measure_single_precision, run, backend), 30)


def word_tokenizer(vocabulary: int) -> Any:
    """A tokenizer with one token per word: "w0", "w1" ..., and the labels. All other words are unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<pad>", "<end>", "<user>", "<model>", "Yes", "No", "yes", "no"]
    words = {word: place for place, word in enumerate(special)}
    words |= {f"w{place}": place for place in range(len(special), vocabulary)}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<end>"}
    made = PreTrainedTokenizerFast(tokenizer_object=core, additional_special_tokens=["<user>", "<model>"], **names)
    made.chat_template = (
        "{% for message in messages %}{{ '<user> ' if message.role != 'assistant' else '<model> ' }}"
        "{{ message.content }} <end> {% endfor %}{% if add_generation_prompt %}{{ '<model> ' }}{% endif %}"
    )
    return made


def measure_grpo(run: Run) -> None:
    """GRPO steps of TRL with its defaults, LoRA on a float32 policy, and eight items per prompt. The first step of
    each arm warms up."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from checklist_rewards.rewards.trl import ChecklistReward

    shape = run.sizes(POLICY)
    tokenizer, count = word_tokenizer(shape["vocab_size"]), 3 if run.tiny else 4
    rng = random.Random(0)

    def words(number: int) -> str:
        return " ".join(f"w{rng.randrange(9, shape['vocab_size'])}" for _ in range(number))

    rows = [
        {
            "prompt": [{"role": "user", "content": words(PROMPT)}],
            "checklist": [f"Does the response mention {words(8)}?" for _ in range(ITEMS)],
        }
        for _ in range(count)
    ]

    def plain(completions: list[Any], **columns: Any) -> list[float]:
        return [float(place % 2) for place, _ in enumerate(completions)]

    reward: Any = ChecklistReward(model="reference", store=False, mass_floor=0)
    steps, memory = {}, {}
    # TRL's defaults, but for what reports and saves. Tiny shapes sample fewer tokens. On a CPU, bf16 needs `use_cpu`.
    few: dict[str, Any] = {"max_completion_length": 24} if run.tiny else {}
    few |= {"use_cpu": True} if run.device.type == "cpu" else {}
    for arm, function in (("without the judge", plain), ("with the judge", reward)):
        cleared()
        before = torch.cuda.memory_allocated() if run.device.type == "cuda" else 0
        with TemporaryDirectory() as folder:
            model = random_model(shape, run.device, torch.float32)
            tokenizer.save_pretrained(folder)  # the judge takes the tokenizer of the policy's files
            Path(folder, "config.json").write_text("{}")  # a model type would bring its own tokenizer
            model.config._name_or_path = folder
            quiet: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
            quiet["logging_steps"] = 1
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=function,
                args=GRPOConfig(f"{folder}/out", max_steps=count, seed=0, **quiet, **few),
                train_dataset=Dataset.from_list(rows),
                processing_class=tokenizer,
                peft_config=LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM"),
            )
            trainer.train()
        log = [entry for entry in trainer.state.log_history if "step_time" in entry]
        steps[arm] = [entry["step_time"] for entry in log[1:]]
        if run.device.type == "cuda":
            memory[arm] = (torch.cuda.max_memory_allocated() - before) / 2**30
        del trainer, model
    about = f"{COMPLETIONS} completions of {few.get('max_completion_length', 256)} tokens, {ITEMS} items"
    run.add("seconds per step", steps, "without the judge", about)
    judge, unscored = ([entry[f"checklist_reward/{name}"] for entry in log] for name in ("judge_seconds", "unscored"))
    run.add("seconds", {"step": steps["with the judge"], "judge": judge[1:]}, "step", about)
    receipt = reward.scorer.receipt
    run.add("tokens computed", {"least": receipt.floor_tokens, "judge": receipt.computed_tokens}, "least", about)
    run.add("share of unscored completions", {"judge": unscored}, "judge", about)
    if memory:
        run.add("GiB at most", memory, "without the judge", about)


def fastest(medians: Sequence[dict[str, float]]) -> dict[str, int]:
    """For the planner as it is and with fitted costs: in how many cases no other way is faster."""
    others = ("rows", "wide", "kept", "separate")
    best = [min((some[way] for way in others if way in some), default=math.inf) for some in medians]
    return {
        planner: sum(some.get(planner, math.inf) <= NEAR * least for some, least in zip(medians, best, strict=True))
        for planner in ("planner", "fitted")
    }


def measure(run: Run) -> None:
    """All cases, the most important first."""
    only = run.args.only or [*SHAPES, "grpo"]
    size = 64 if run.tiny else 8192
    run.part(f"A product of two {size:,} x {size:,} matrices in bf16")
    call = partial(matmul_peak, (size, size, size), run.device, torch.bfloat16)
    run.peak = run.case("peak", call, 5) or 0.0
    run.add("TFLOP/s", {"peak": run.peak / 1e12}, "peak")
    for name in SHAPES:
        if name in only:
            measure_shape(run, name)
    if run.medians:
        run.part("How often the planner's choice is the fastest of the package's ways")
        run.add(f"of {len(run.medians)} cases", fastest(run.medians), "planner")
    if "grpo" in only:
        run.part("A GRPO step with the reference as the judge, Qwen2.5-1.5B's shape with LoRA")
        run.case("grpo", partial(measure_grpo, run), 100)


def parser() -> argparse.ArgumentParser:
    """The arguments of the script."""
    found = parser_of(__doc__, __file__, minutes=7.5)
    sizes = "real" if torch.cuda.is_available() else "tiny"
    found.add_argument(
        "--shapes", choices=("real", "tiny"), default=sizes, help="real needs a GPU (here: %(default)s)"
    )
    found.add_argument("--only", nargs="+", choices=(*SHAPES, "grpo"), help="measure only these")
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    run = Run(parser().parse_args(argv))
    gc.collect()
    gc.freeze()  # a collection before each time looks only at what is made from here on
    with nullcontext() if run.device.type == "cuda" else torch.random.fork_rng():
        measure(run)
    gc.unfreeze()
    run.save()
    print(f"{run.args.output} and {run.args.output.with_suffix('.md')} are written.")
    return run.results


if __name__ == "__main__":
    main()
