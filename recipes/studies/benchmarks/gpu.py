"""Benchmark of reads on one GPU: how near they are to the least work, which way of reading is the fastest, what a
forward pass costs, and what `model="reference"` costs in a GRPO step.

    python -P recipes/studies/benchmarks/gpu.py                  # one H100 or H200, at most 8 minutes
    python -P recipes/studies/benchmarks/gpu.py --shapes tiny    # a CPU: the same cases, to see that the script runs
    python -P recipes/studies/benchmarks/gpu.py --redraw         # write the page again from the JSON file

It needs torch, transformers and pydantic (with rich, which the benchmarks use), no weights and no network: the models
are random weights in the shapes of Qwen2.5-0.5B, Qwen2.5-7B, Gemma-3-4B and Qwen3-30B-A3B cut to a quarter of its
layers, made on the device in bf16. With trl, datasets and peft, the GRPO step is that of TRL with its defaults;
otherwise a step written here stands in for it, and the page reports it.

Every case is measured by itself: if one fails, or the time is over, the file says why and the next one runs. The JSON
file and the page are written after each case, so that nothing is lost if the process is stopped.

- *peak*: operations per second of a large `torch.matmul` in bf16, by CUDA events.
- *reads*: 8 completions of a prompt x 8 items, inputs of 150, 400 and 2,000 tokens, in each way: as the planner
  chooses, rows with masks as the planner would choose without kept prefixes (`rows`), rows as long as possible
  (`wide`), prefixes kept as if a pass cost nothing (`kept`), separate prompts (`separate`), and `prefill`: plain rows
  of 512 tokens, together as many as the tree of the prompts has. Seconds are medians of wall time with the device
  synchronized before and after, on new tokens each time, after a warm-up.
- *passes*: forward passes of known shapes. The figures of `backends/trees.py` are fitted to their times, and the reads
  are repeated with a planner that uses them (`fitted`).
- *flex*: the same rows as long as possible, with block masks and flex_attention. The package has no such way.
- *grpo*: steps with and without the judge.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[3])]
try:
    import numpy as np
    import torch
    import transformers
    from english.common import save_json
    from studies.benchmarks.gpu_page import WAYS, page
    from studies.benchmarks.reads import floor_flop, layer_weights, p_yes
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

    from checklist_rewards.backends.inputs import Inputs, Past, plain_inputs, prefix_inputs, tree_inputs
    from checklist_rewards.backends.tokens import TokenGroup
    from checklist_rewards.backends.transformers import TransformersBackend
    from checklist_rewards.backends.trees import MAX_BATCH_TOKENS, Costs, TreeRow, floor_tokens, tree_rows
    from checklist_rewards.errors import first_line
except ModuleNotFoundError as error:
    raise SystemExit(
        f"error: {error.name} is not installed; gpu.py needs torch, transformers, pydantic and rich "
        "(recipes/studies/README.md says how to bring them to a machine without a network)."
    ) from None

Figures = dict[str, Any]
T = TypeVar("T")
LABELS = ("yes", "no")
COMPLETIONS, ITEMS = 8, 8
LENGTHS = {"real": {"rules": 90, "target": 200, "tail": 20}, "tiny": {"rules": 8, "target": 12, "tail": 4}}
"""Tokens of the judge's rules, of a completion and of a question."""
PROMPT = 150
"""Tokens of the prompt of a GRPO step."""
REPEATS = 5
_QWEN = {"max_position_embeddings": 32_768, "rms_norm_eps": 1e-6}
SHAPES: dict[str, Figures] = {
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
_TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
_TINY |= {"num_key_value_heads": 2, "vocab_size": 512, "sliding_window": 48, "query_pre_attn_scalar": 16}
_TINY |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


class Run:
    """The results, and the time that is left. They are saved after each case.

    Args:
        args (`argparse.Namespace`): The arguments of the script.
    """

    def __init__(self, args: argparse.Namespace):
        self.args, self.tiny = args, args.shapes == "tiny"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.started = time.monotonic()
        self.inputs: Sequence[int] = (8, 60) if self.tiny else (150, 400, 2_000)
        self.repeats = 1 if self.tiny else REPEATS
        self.cases: dict[str, Figures] = {}
        self.results: Figures = {"settings": settings_of(args), "machine": machine(self.device), "cases": self.cases}
        only = args.only or [*SHAPES, "grpo"]
        self.shapes = {name: shape | self._small(shape) for name, shape in SHAPES.items() if name in only}
        self.grpo = "grpo" in only

    def _small(self, shape: Figures) -> Figures:
        if not self.tiny:
            return {}
        layers = 6 if shape["model_type"] == "gemma3_text" else 2  # the sixth layer is the first without a window
        return {name: value for name, value in _TINY.items() if name in shape} | {"num_hidden_layers": layers}

    def reads(self, backend: Shape, tokens: int, count: int) -> list[list[TokenGroup]]:
        """Some batches of reads with an input of so many tokens, each with tokens of its own."""
        lengths, vocabulary = LENGTHS[self.args.shapes], backend.model.config.vocab_size
        return [reads_of(tokens, vocabulary, seed, lengths) for seed in range(count)]

    @property
    def left(self) -> float:
        """Seconds until the time is over."""
        return 60 * self.args.minutes - (time.monotonic() - self.started)

    def case(self, name: str, call: Callable[[], Figures], seconds: float = 10) -> Figures:
        """Measure a case, unless fewer than `seconds` are left. An error becomes its result."""
        started, found = time.monotonic(), Figures()
        if self.left < (0 if self.tiny else seconds):
            found = {"skipped": f"only {max(self.left, 0):.0f} s of {self.args.minutes:g} minutes were left"}
        else:
            cleared(self.device)
            try:
                found = call()
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {first_line(error)}"}
            found["case_seconds"] = round(time.monotonic() - started, 2)
            found["peak_gib"] = memory_in_use(self.device, peak=True) / 2**30
        cleared(self.device)
        self.cases[name] = found
        self.save()
        state = found.get("error") or found.get("skipped") or f"{found['case_seconds']} s"
        print(f"{name}: {state}", flush=True)
        return found

    def save(self) -> None:
        """Write the results and the page."""
        self.results["seconds"] = round(time.monotonic() - self.started, 1)
        save_json(self.args.output, self.results)
        self.args.page.parent.mkdir(parents=True, exist_ok=True)
        self.args.page.write_text(page(self.results), encoding="utf-8")


def settings_of(args: argparse.Namespace) -> Figures:
    """What was asked for, without the paths."""
    asked: Figures = {"shapes": args.shapes, "minutes": args.minutes, "only": args.only, "seed": 0}
    return asked | {"completions": COMPLETIONS, "items": ITEMS} | LENGTHS[args.shapes]


def machine(device: torch.device) -> Figures:
    """The device, its driver and clocks where they can be read, and the versions."""
    found: Figures = {"device": device.type, "python": platform.python_version(), "torch": torch.__version__}
    found |= {"transformers": transformers.__version__, "threads": torch.get_num_threads(), "cores": os.cpu_count()}
    if device.type != "cuda":
        return found | {"name": f"CPU ({platform.machine()})"}
    of = torch.cuda.get_device_properties(device)
    found |= {"name": of.name, "memory_gib": of.total_memory / 2**30, "multiprocessors": of.multi_processor_count}
    return found | {"cuda": torch.version.cuda} | smi("driver_version", "clocks.sm", "clocks.max.sm", "power.limit")


def smi(*names: str) -> dict[str, str]:
    """Values that nvidia-smi reads from the first GPU; for the first name, the reason if they cannot be read."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "--id=0"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return dict(zip(names, (value.strip() for value in line.splitlines()[0].split(",")), strict=True))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {names[0]: f"not readable ({first_line(error)})"}


def cleared(device: torch.device) -> None:
    """Free memory that is no longer used, and start to count its peak again."""
    gc.collect()
    if device.type == "cuda":
        with suppress(RuntimeError):  # after an error of the device, which is in the results
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def memory_in_use(device: torch.device, peak: bool = False) -> int:
    """Bytes that tensors use on a GPU, or used at most; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()


def timed(call: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """Seconds of wall time until the device has finished, and what was returned."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, result


def median_seconds(call: Callable[[], object], device: torch.device, repeats: int, most: float = 3.0) -> float:
    """The median of some repeats after a warm-up; fewer if they take more than `most` seconds."""
    call()
    seconds: list[float] = []
    while len(seconds) < repeats and (not seconds or sum(seconds) < most):
        seconds.append(timed(call, device)[0])
    return statistics.median(seconds)


def gemm_peak(device: torch.device, size: int) -> Figures:
    """Operations per second of a product of two square bf16 matrices of random values: the median of five times."""
    torch.manual_seed(0)
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def seconds(products: int) -> float:
        if device.type != "cuda":
            return timed(lambda: [one @ other for _ in range(products)], device)[0] / products
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(products):
            one @ other
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000 / products

    seconds(3)
    found = {"size": size, "flops": 2 * size**3 / statistics.median(seconds(10) for _ in range(5))}
    return found if device.type != "cuda" else found | smi("clocks.sm", "temperature.gpu")


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
        answers, usage = self._read_texts(groups, labels)
        return list(chain.from_iterable(answers)), usage


def random_model(shape: Figures, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Any:
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


def reads_of(input_tokens: int, vocabulary: int, seed: int, lengths: Figures) -> list[TokenGroup]:
    """One prompt of `input_tokens` tokens, 8 completions, 8 questions about each, of random tokens."""
    rng = random.Random(seed)

    def some(count: int) -> list[int]:
        return [rng.randrange(100, vocabulary) for _ in range(count)]

    start, tails = some(lengths["rules"] + input_tokens), [some(lengths["tail"]) for _ in range(ITEMS)]
    return [TokenGroup(start + some(lengths["target"]), tails) for _ in range(COMPLETIONS)]


@contextmanager
def reading(backend: Shape, way: str, fitted: Costs | None = None) -> Iterator[None]:
    """Context manager in which an engine reads in one of the ways."""
    before = {name: getattr(backend, name) for name in ("device_costs", "keeps", "packs")}
    costs = backend.device_costs
    packed = {"packs": True, "keeps": False}  # whatever the self-check of the engine has found
    changes: dict[str, Figures] = {
        "planner": {},
        "fitted": {"device_costs": fitted or costs},
        "rows": packed,
        "wide": packed | {"device_costs": costs._replace(even=math.inf, widest=backend.max_batch_tokens)},
        "kept": packed | {"keeps": True, "device_costs": costs._replace(one=0)},
        "separate": {"keeps": False, "packs": False},
    }
    for name, value in changes[way].items():
        setattr(backend, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(backend, name, value)


@torch.inference_mode()
def prefill(backend: Shape, tokens: int, width: int = 512) -> None:
    """A plain forward pass of `tokens` tokens, in rows of 512, as many in a pass as the engine would take."""
    ids = torch.arange(tokens, device=backend.device) % min(1000, backend.model.config.vocab_size)
    whole, most = tokens // width * width, max(backend._costs.batch // width, 1)
    for rows in ids[:whole].view(-1, width).split(most) if whole else ():
        backend.model(input_ids=rows, use_cache=False, logits_to_keep=1)
    if tokens > whole:
        backend.model(input_ids=ids[None, whole:], use_cache=False, logits_to_keep=1)


def read_case(backend: Shape, run: Run, input_tokens: int, peak: float, fitted: Costs | None) -> Figures:
    """The reads of one length of input, in each way."""
    device, batches = backend.device, run.reads(backend, input_tokens, run.repeats + 1)
    separate, floor = floor_tokens(batches[0], backend.limit)
    found: Figures = {"prompt_tokens": separate, "floor": floor, "packs": backend.packs, "keeps": backend.keeps}
    seconds: Figures = {}
    answers: dict[str, list[list[float]]] = {}
    found["seconds"], found["ways"] = seconds, {}
    seconds["prefill"] = median_seconds(lambda: prefill(backend, floor), device, run.repeats)
    for way in WAYS:
        if way == "fitted" and fitted is None:
            continue
        try:
            with reading(backend, way, fitted):
                taken: list[float] = []
                answers[way] = []
                for seed, groups in enumerate(batches):  # the first is the warm-up
                    spent, last = timed(lambda groups=groups: backend.read(groups, LABELS), device)
                    taken.append(spent)
                    answers[way].append(p_yes(last[0]))
                    if seed and sum(taken) > 6:
                        break
            seconds[way] = statistics.median(taken[1:])
            _, usage = last
            found["ways"][way] = {
                "computed": usage.computed_tokens,
                "cached": usage.cached,
                "separate": usage.separate,
            }
        except Exception as error:
            found["ways"][way] = {"error": first_line(error)}
            cleared(device)
    if "planner" in seconds:
        found["reads_per_second"] = COMPLETIONS * ITEMS / seconds["planner"]
        found["computed_over_floor"] = found["ways"]["planner"]["computed"] / floor
        found["over_prefill"] = seconds["planner"] / seconds["prefill"]
        found["flop"] = floor_flop(backend, batches[0])
        found["share_of_peak"] = found["flop"] / seconds["planner"] / peak if peak else None
    if "planner" in answers and "separate" in answers:
        found["difference"] = difference(answers["planner"], answers["separate"])
    return found


def difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Figures:
    """Largest and mean difference of P(yes) between two ways to read, over the batches that both have read."""
    apart = np.concatenate([np.abs(np.subtract(one, other)) for one, other in zip(ours, theirs, strict=False)])
    return {"reads": len(apart), "largest": float(apart.max()), "mean": float(apart.mean())}


def single_case(backend: Shape, run: Run) -> Figures:
    """Differences of P(yes) of bf16 from single precision, of the model's own weights. Changes the model."""
    batches = [groups for length in run.inputs for groups in run.reads(backend, length, run.repeats)]

    def read(way: str, groups: list[TokenGroup]) -> list[float]:
        with reading(backend, way):
            return p_yes(backend.read(groups, LABELS)[0])

    half = {way: [read(way, groups) for groups in batches] for way in ("planner", "separate")}
    backend.model.float()
    exact = Shape(backend.model)
    with reading(exact, "separate"):
        single = [p_yes(exact.read(groups, LABELS)[0]) for groups in batches]
    return {way: difference(values, single) for way, values in half.items()}


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


def pass_case(backend: Shape, run: Run, peak: float) -> Figures:
    """Seconds of passes of known shapes, and the figures of `backends/trees.py` that fit them."""
    passes = []
    specs = [(kind, *spec) for kind, several in PASSES[run.args.shapes].items() for spec in several]
    for kind, rows, width, past in specs:
        line: Figures = {"kind": kind, "rows": rows, "width": width, "past": past}
        passes.append(line)
        try:
            line["seconds"] = pass_seconds(backend, kind, rows, width, past, run.repeats)
        except Exception as error:
            line["error"] = first_line(error)
            cleared(backend.device)
    try:
        return {"passes": passes, **fit(passes, backend, peak)}
    except ValueError as error:  # none was measured, or none fits
        return {"passes": passes, "not_fitted": first_line(error)}


def pass_seconds(backend: Shape, kind: str, rows: int, width: int, past: int, repeats: int) -> float:
    """Median seconds of a pass, with its inputs and masks."""
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
            return median_seconds(lambda: backend._logits(plain_inputs(several, device)), device, repeats)
        assert layers is not None, "this model takes no masks"
        several, kept = [row() for _ in range(rows)], None
        if past:
            inputs = prefix_inputs(ids(past), layers, model, device)
            backend._logits(inputs)
            kept = Past(inputs.past)
        return median_seconds(
            lambda: backend._logits(tree_inputs(several, layers, model, device, kept)), device, repeats
        )


def fitted(passes: Sequence[Figures], size: int) -> Figures:
    """The figures of [`Costs`] with which the estimates are nearest to the measured seconds, by least squares of
    the relative errors.

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
    figures = {
        "even": token / pair / size if pair else 1e6,
        "one": value["launch"] / token,
        "skipped": value["more"] / pair if pair else 0.0,
        "copied": value["copy"] / pair if pair else 0.0,
    }
    return {"figures": figures, "token": token, "errors": np.abs(matrix @ found - 1)}


def fit(passes: Sequence[Figures], backend: Shape, peak: float) -> Figures:
    """The fitted figures beside those in use, and the cost of a pass that its launch and the peak predict."""
    known = [line for line in passes if "seconds" in line]
    found = fitted(known, backend.model.get_input_embeddings().embedding_dim)
    shortest = min(line["seconds"] for line in known)
    return {
        "fitted": found["figures"],
        "in_code": {name: getattr(backend.device_costs, name) for name in found["figures"]},
        "seconds_per_token": found["token"],
        "relative_error": {"median": float(np.median(found["errors"])), "largest": float(found["errors"].max())},
        "shortest_pass": shortest,
        "launch_per_layer": shortest / backend.model.config.num_hidden_layers,
        "one_by_formula": shortest * peak / (2 * layer_weights(backend.model)) if peak else None,
    }


def experts_case(backend: Shape, run: Run, input_tokens: int) -> Figures:
    """Seconds of the same reads with each implementation of the experts, and which is the default."""
    model, [groups] = backend.model, run.reads(backend, input_tokens, 1)
    default = model.config._experts_implementation
    found: Figures = {"default": default, "seconds": {}}
    for name in ("grouped_mm", "eager", "batched_mm"):
        try:
            model.set_experts_implementation(name)
            found["seconds"][name] = median_seconds(
                lambda: backend.read(groups, LABELS),
                backend.device,
                min(run.repeats, 3),
            )
        except Exception as error:
            found.setdefault("errors", {})[name] = first_line(error)
            cleared(backend.device)
    model.set_experts_implementation(default)
    return found


def shape_cases(run: Run, name: str, shape: Figures, peak: float) -> None:
    """All cases of a shape, with one model."""
    held: list[Shape] = []

    def load() -> Figures:
        seconds, backend = timed(lambda: Shape(random_model(shape, run.device)), run.device)
        held.append(backend)
        model = backend.model
        weights = sum(weight.numel() for weight in model.parameters())
        return {"load_seconds": seconds, "weights": weights, "active_weights": layer_weights(model)} | {
            "packs": held[0].packs,
            "keeps": held[0].keeps,
        }

    run.case(f"{name}: model", load, 20)
    if not held:
        return
    backend = held[0]
    passes = run.case(f"{name}: passes", lambda: pass_case(backend, run, peak), 15)
    costs = backend.device_costs._replace(**passes["fitted"]) if "fitted" in passes else None
    for tokens in run.inputs:
        run.case(f"{name}: {tokens}", lambda tokens=tokens: read_case(backend, run, tokens, peak, costs), 15)
    if shape["model_type"] == "qwen3_moe":
        run.case(f"{name}: experts", lambda: experts_case(backend, run, run.inputs[-1]), 15)
    if name == SMALLEST:
        run.case(f"{name}: single precision", lambda: single_case(backend, run), 30)


def block_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **_: Any
) -> tuple[torch.Tensor, None]:
    """flex_attention as an attention implementation of transformers; compiled on a GPU."""
    heads = query.shape[1]
    if heads & (heads - 1):  # its kernels share keys between powers of two only
        times = heads // key.shape[1]
        key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    out = _flex(query.device.type)(
        query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=heads != key.shape[1]
    )
    return out.transpose(1, 2).contiguous(), None


_compiled: dict[str, Any] = {}


def _flex(device: str) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    if device not in _compiled:
        _compiled[device] = flex_attention if device == "cpu" else torch.compile(flex_attention)
    return _compiled[device]


def block_inputs(rows: Sequence[TreeRow[Any]], backend: Shape) -> Inputs:
    """Inputs of rows with block masks, padded to whole blocks."""
    from torch.nn.attention.flex_attention import create_block_mask

    device, config = backend.device, backend.model.config.get_text_config()
    width = -(-max(len(row.ids) for row in rows) // 128) * 128
    most = max(len(row.starts) for row in rows)
    ids, positions = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(2))
    segments = torch.full((len(rows), width), most, dtype=torch.long)
    seen = torch.zeros(len(rows), most + 1, most + 1, dtype=torch.bool)
    seen[:, most, most] = True
    for place, row in enumerate(rows):
        end, count = len(row.ids), len(row.starts)
        ids[place, :end] = torch.tensor(row.ids)
        positions[place, :end] = torch.from_numpy(row.positions())
        segments[place, :end] = torch.from_numpy(row.segments())
        seen[place, :count, :count] = torch.from_numpy(row.ancestors())
    ids, positions, segments, seen = (part.to(device) for part in (ids, positions, segments, seen))

    def mask(window: int | None) -> Any:
        def visible(b: Any, _: Any, q: Any, k: Any) -> Any:
            inside = seen[b, segments[b, q], segments[b, k]] & (q >= k)
            return inside if window is None else inside & (positions[b, q] - positions[b, k] < window)

        return create_block_mask(visible, len(rows), None, width, width, device=device.type)

    kinds = {"full_attention": None, "sliding_attention": getattr(config, "sliding_window", None)}
    assert backend.layers is not None
    masks = {kind: mask(kinds[kind]) for kind in backend.layers.kinds}
    answers = [(place, column) for place, row in enumerate(rows) for column in row.answers]
    given = masks if backend.layers.keyed else masks[backend.layers.kinds[0]]
    return Inputs(ids, positions, given, torch.tensor(answers, device=device))


def flex_case(run: Run, name: str, shape: Figures) -> Figures:
    """Rows as long as possible with block masks, for each length of input; the package's rows beside them."""
    AttentionInterface.register("block_masks", block_attention)
    torch._dynamo.config.recompile_limit = 64  # one kernel for each shape and length; above, it runs uncompiled
    backend = Shape(random_model(shape, run.device))
    found: Figures = {"seconds": {}, "largest_difference": {}}

    def read(groups: list[TokenGroup]) -> list[float]:
        branches = backend._branches(groups)[False]
        forms = backend.tokens.label_groups(LABELS)
        answers = [0.0] * (COMPLETIONS * ITEMS)
        for row in tree_rows(branches, backend.max_batch_tokens):
            with backend.in_turn():
                logits = backend._logits(block_inputs([row], backend))
            yes, no = (logits[:, list(ids)].logsumexp(-1) for ids in forms)
            for (group, tail), value in zip(row.values, (yes - no).sigmoid().tolist(), strict=True):
                answers[group * ITEMS + tail] = value
        return answers

    for tokens in run.inputs:
        [groups] = run.reads(backend, tokens, 1)
        with reading(backend, "separate"):
            plain = p_yes(backend.read(groups, LABELS)[0])
        with using(backend, "block_masks"):
            if run.device.type == "cuda":
                read(groups)  # compiles the kernels
            timings = [timed(lambda groups=groups: read(groups), run.device) for _ in range(run.repeats)]
        found["seconds"][tokens], ours = statistics.median(seconds for seconds, _ in timings), timings[0][1]
        found["largest_difference"][tokens] = max(abs(a - b) for a, b in zip(ours, plain, strict=True))
    return found


@contextmanager
def using(backend: Shape, attention: str) -> Iterator[None]:
    """Context manager in which a model and its engine use an attention implementation."""
    before, own = backend.model.config._attn_implementation, getattr(backend, "attention", None)
    backend.model.set_attn_implementation(attention)
    if own is not None:
        backend.attention = attention
    try:
        yield
    finally:
        backend.model.set_attn_implementation(before)
        if own is not None:
            backend.attention = own


def word_tokenizer(vocabulary: int) -> Any:
    """A tokenizer with one token per word: "w0", "w1" ..., and the labels. All other words are unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<pad>", "<end>", "<user>", "<model>", "Yes", "No", "yes", "no"]
    words = {word: place for place, word in enumerate(special)}
    words |= {f"w{place}": place for place in range(len(special), vocabulary)}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=["<user>", "<model>"],
    )
    made.chat_template = (
        "{% for message in messages %}{{ '<user> ' if message.role != 'assistant' else '<model> ' }}"
        "{{ message.content }} <end> {% endfor %}{% if add_generation_prompt %}{{ '<model> ' }}{% endif %}"
    )
    return made


def step_summary(
    steps: dict[str, list[float]], judge: Sequence[float], memory: dict[str, float], how: str, **more: Any
) -> Figures:
    """Medians without the first step, which warms up."""
    seconds = {name: statistics.median(values[1:]) for name, values in steps.items()}
    judged = statistics.median(judge[1:])
    return {
        "how": how,
        "step_seconds": seconds,
        "judge_seconds": judged,
        "judge_share": judged / seconds["judge"],
        "memory_gib": {name: value / 2**30 for name, value in memory.items()},
        "more_memory": memory["judge"] / memory["plain"] - 1 if memory["plain"] else None,
        "completions": COMPLETIONS,
        "items": ITEMS,
        **more,
    }


def grpo_case(run: Run) -> Figures:
    """Steps with and without the judge: TRL's if it is installed, else those written here."""
    try:
        import datasets  # noqa: F401
        import peft  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        found = by_hand(run)
        found["how"] += f"; TRL's step needs trl, datasets and peft ({first_line(error)})"
        return found
    return by_trl(run)


def by_trl(run: Run) -> Figures:
    """GRPO steps of TRL with its defaults, LoRA on a float32 policy, and eight items per prompt."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from checklist_rewards.rewards.trl import ChecklistReward

    shape = POLICY | run._small(POLICY)
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

    class Clock(TrainerCallback):
        """Notes the time at the end of each step."""

        def __init__(self) -> None:
            self.ends = [time.perf_counter()]

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if run.device.type == "cuda":
                torch.cuda.synchronize()
            self.ends.append(time.perf_counter())

    def plain(completions: list[Any], **columns: Any) -> list[float]:
        return [float(place % 2) for place, _ in enumerate(completions)]

    judge: list[float] = []
    receipt: Figures = {}

    def judged(reward: Any) -> Any:
        def call(**columns: Any) -> Any:
            seconds, given = timed(lambda: reward(**columns), run.device)
            judge.append(seconds)
            receipt["unscored"] = receipt.get("unscored", 0) + sum(value is None for value in given)
            return given

        return call

    reward = ChecklistReward(model="reference", store=False, mass_floor=0)
    steps, memory = {}, {}
    for arm, function in (("plain", plain), ("judge", judged(reward))):
        cleared(run.device)
        before = memory_in_use(run.device)
        clock = Clock()
        # TRL's defaults, but for what reports and saves. Tiny shapes sample fewer tokens, and
        # bf16 on a CPU needs `use_cpu`.
        few: Figures = {"max_completion_length": 24} if run.tiny else {}
        few |= {"use_cpu": True} if run.device.type == "cpu" else {}
        with TemporaryDirectory() as folder:
            args = GRPOConfig(
                f"{folder}/out",
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                max_steps=count,
                seed=0,
                **few,
            )
            model = random_model(shape, run.device, torch.float32)
            tokenizer.save_pretrained(folder)  # the judge takes the tokenizer of the policy's files
            Path(folder, "config.json").write_text("{}")  # a model type would bring its own tokenizer
            model.config._name_or_path = folder
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=function,
                args=args,
                train_dataset=Dataset.from_list(rows),
                processing_class=tokenizer,
                peft_config=LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM"),
                callbacks=[clock],
            )
            trainer.train()
        steps[arm] = list(np.diff(clock.ends))
        memory[arm] = memory_in_use(run.device, peak=True) - before
        del trainer, model
    counts = {name: getattr(reward.scorer.receipt, name) for name in ("computed_tokens", "floor_tokens", "separate")}
    tokens = few.get("max_completion_length", 256)
    return step_summary(steps, judge, memory, "GRPOTrainer", completion_tokens=tokens, **receipt, **counts)


class LowRank(torch.nn.Module):
    """A linear layer with a trained low-rank term, as LoRA has.

    Args:
        base (`torch.nn.Linear`): The layer, which is frozen.
        rank (`int`, *optional*, defaults to `16`): The rank.
    """

    on = True

    def __init__(self, base: torch.nn.Linear, rank: int = 16):
        super().__init__()
        self.base = base
        self.down = torch.nn.Parameter(torch.randn(rank, base.in_features, device=base.weight.device) / rank)
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """The layer, and the trained term while it is switched on."""
        out = self.base(states)
        linear = torch.nn.functional.linear
        return out + 2 * linear(linear(states, self.down), self.up) if LowRank.on else out


def by_hand(run: Run) -> Figures:
    """Steps that stand in for TRL's: sampling, the judge by the frozen base, and one update, in bf16 autocast with
    gradient checkpointing."""
    shape = POLICY | run._small(POLICY)
    model = random_model(shape, run.device, torch.float32).requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name)))
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-6)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    length, count = (24, 3) if run.tiny else (256, 4)
    rng = torch.Generator(run.device).manual_seed(0)
    kind = run.device.type

    def autocast() -> Any:
        return torch.autocast(kind, dtype=torch.bfloat16)

    with frozen_base(model), autocast():
        backend = Shape(model)
    judge: list[float] = []
    read: list[Any] = []

    def judged(prompt: list[int], completions: list[list[int]]) -> None:
        tails = run.reads(backend, 1, 1)[0][0].tails
        groups = [TokenGroup(prompt + ids, tails) for ids in completions]
        with frozen_base(model), autocast():
            seconds, result = timed(lambda: backend.read(groups, LABELS), run.device)
        judge.append(seconds)
        read.append(result)

    def step(with_judge: bool) -> None:
        prompt = torch.randint(100, shape["vocab_size"], (1, PROMPT), generator=rng, device=run.device)
        model.eval()
        with torch.no_grad(), autocast():
            texts = model.generate(
                prompt.expand(COMPLETIONS, -1),
                attention_mask=torch.ones(COMPLETIONS, prompt.shape[1], device=run.device, dtype=torch.long),
                do_sample=True,
                max_new_tokens=length,
                min_new_tokens=length,
                pad_token_id=0,
            )
        if with_judge:
            judged(prompt[0].tolist(), texts[:, prompt.shape[1] :].tolist())
        model.train()
        with autocast():
            logits = model(input_ids=texts, use_cache=False, logits_to_keep=length + 1).logits[:, :-1]
        chosen = logits.float().log_softmax(-1).gather(-1, texts[:, -length:, None])
        advantages = torch.linspace(-1, 1, COMPLETIONS, device=run.device)[:, None, None]
        (-(advantages * chosen).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    steps, memory = {}, {}
    for arm in ("plain", "judge"):
        cleared(run.device)
        steps[arm] = [timed(lambda arm=arm: step(arm == "judge"), run.device)[0] for _ in range(count)]
        memory[arm] = memory_in_use(run.device, peak=True)
    more = {"computed_tokens": read[-1][1].computed_tokens, "floor_tokens": read[-1][1].floor_tokens}
    more |= {"separate": read[-1][1].separate, "completion_tokens": length}
    return step_summary(steps, judge, memory, "a step written in this script stands in for TRL's", **more)


@contextmanager
def frozen_base(model: Any) -> Iterator[None]:
    """Context manager in which the low-rank terms are off and the model is in evaluation mode."""
    training = model.training
    model.eval()
    LowRank.on = False
    try:
        yield
    finally:
        LowRank.on = True
        model.train(training)


def measure(run: Run) -> None:
    """All cases, the most important first."""
    size = 64 if run.tiny else 8192
    peak = run.case("peak", lambda: gemm_peak(run.device, size), 5).get("flops", 0.0)
    for name, shape in run.shapes.items():
        shape_cases(run, name, shape, peak)
    if run.grpo:
        run.case("grpo", lambda: grpo_case(run), 100)
    for name, shape in run.shapes.items():  # last, because compiling its kernels takes long
        run.case(f"{name}: flex", lambda name=name, shape=shape: flex_case(run, name, shape), 40)


def parser() -> argparse.ArgumentParser:
    """The arguments of the script."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--shapes",
        choices=("real", "tiny"),
        default="real" if torch.cuda.is_available() else "tiny",
        help="sizes of the models and inputs (default: real on a GPU, tiny without one)",
    )
    found.add_argument("--minutes", type=float, default=7.5, help="start no case that may end later (default: 7.5)")
    found.add_argument(
        "--only", nargs="+", choices=(*SHAPES, "grpo"), help="measure only these shapes, and the GRPO step if named"
    )
    folder = Path("runs/bench")
    found.add_argument("--output", type=Path, default=folder / "gpu.json", help="JSON file (default: %(default)s)")
    found.add_argument("--page", type=Path, default=folder / "gpu.md", help="page (default: %(default)s)")
    found.add_argument("--redraw", action="store_true", help="only write the page from the JSON file")
    return found


def main(argv: Sequence[str] | None = None) -> Figures:
    """Run the benchmark, or write the page again."""
    args = parser().parse_args(argv)
    if args.redraw:
        results = json.loads(args.output.read_text(encoding="utf-8"))
        args.page.write_text(page(results), encoding="utf-8")
        return results
    run = Run(args)
    with nullcontext() if run.device.type == "cuda" else torch.random.fork_rng():
        measure(run)
    run.save()
    print(f"{args.output} and {args.page} written after {run.results['seconds']} s")
    return run.results


if __name__ == "__main__":
    main()
