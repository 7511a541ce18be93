"""Benchmark of reads: throughput of the engines, and cost per read of this package (`make bench`).

All engines run the same model on the same 64 targets x 8 questions (a prefix of about 430 tokens, tails of about 20).
They take turns, so that other load on the machine affects all of them; medians are reported. Every repeat uses new
texts, so that no prefix cache contains them.

(a) plain         a loop of `transformers` over whole prompts, one at a time
(b) transformers  the transformers engine of this package: trees of prompts
(c) vllm          the vLLM engine of this package: prompts ordered by prefix, prefix cache on (skipped if missing)
(d) groups        8 completions of one prompt x 8 questions, for inputs of 30 to 2,000 tokens: all in one call, the
                  same without kept prefixes (`rows`), one call per completion, and a plain forward pass of as many
                  tokens as the tree has (`prefill`, in rows of 512). With one thread on a CPU, the time is that of
                  the processor, so that other load counts less
(e) adapter       10,000 reads on an engine that answers instantly: time per read for rendering, hashing, planning,
                  storing and scoring

(d) is measured with `--only groups`, the others without. Prints a table and writes `runs/bench/reads.json`.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pocket.world import distinct_questions, sample_plan, sample_task, words_of, write_text
from studies.benchmarks.figures import Figure, figures, finish, parser_of, turns
from studies.benchmarks.instant import Instant

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Answer, ReadGroup
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.trees import PrefixTree, branches_of, floor_tokens
from checklist_rewards.errors import ModelError
from checklist_rewards.prompts import load_prompt

LABELS = ("yes", "no")
PREFIX_TOKENS = 430
INPUT_TOKENS = (30, 150, 400, 2_000)
WORDS = "the of and to in is it you that he was for on are with as his they be at one have this from or had by".split()
ADAPTER_READS = 10_000
T = TypeVar("T")
Clock = Callable[[], float]
CLOCK = time.perf_counter
Timed = tuple[float, int]
"""Seconds, and computed prompt tokens."""


def workload(backend: TransformersBackend, targets: int, questions: int, seed: int) -> list[ReadGroup]:
    """Groups of reads, rendered with the packaged judge prompt. Every seed gives other texts."""
    rng = random.Random(seed)
    prompt = load_prompt("judges/item", "judge")
    groups = []
    for _ in range(targets):
        instruction = sample_task(rng, split="train").instruction
        target, prefix = "", ""
        while True:
            longer = f"{target} {write_text(rng, sample_plan(rng, 1), words_of('train'))}".strip()
            rendered = prompt.prefix(input=instruction, target=longer)
            [tokens] = backend.tokens.groups([ReadGroup(prompt.system, rendered, ())])
            if prefix and len(tokens.prefix) > PREFIX_TOKENS:
                break
            target, prefix = longer, rendered
        groups.append(
            ReadGroup(prompt.system, prefix, tuple(prompt.tail(q) for q in distinct_questions(rng, questions)))
        )
    return groups


@torch.inference_mode()
def plain_loop(backend: TransformersBackend, groups: Sequence[ReadGroup]) -> tuple[int, list[float]]:
    """A plain loop over whole prompts, one at a time. Returns computed tokens, and P(yes) of each read."""
    yes, no = (list(forms) for forms in backend.tokens.label_groups(LABELS))
    computed, answers = 0, []
    for group in backend.tokens.groups(groups):
        for tail in group.tails:
            ids = torch.tensor([group.prefix + tail], device=backend.device)
            last = backend.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1].float()
            weights = [last[yes].logsumexp(-1).exp().item(), last[no].logsumexp(-1).exp().item()]
            answers.append(weights[0] / sum(weights))
            computed += ids.numel()
    return computed, answers


def p_yes(answers: Sequence[Answer]) -> list[float]:
    reads = [read.logprobs for read in answers]
    assert all(reads), "a read of the benchmark is unanswered"
    return [1 / (1 + math.exp(no - yes)) for yes, no in reads]  # type: ignore[misc]


def engines(model: str) -> tuple[dict[str, Any], str | None]:
    """The engines to compare, by name, and the reason if vLLM is missing."""
    ours = TransformersBackend(model)
    try:
        from checklist_rewards.backends.vllm import VLLMBackend

        return {"plain loop": ours, "transformers": ours, "vllm": VLLMBackend(model)}, None
    except (ImportError, ModelError) as error:
        return {"plain loop": ours, "transformers": ours}, str(error)


def run(name: str, engine: Any, groups: Sequence[ReadGroup]) -> tuple[Timed, list[float]]:
    started = time.perf_counter()
    if name == "plain loop":
        computed, answers = plain_loop(engine, groups)
        return (time.perf_counter() - started, computed), answers
    found, usage = engine.read(groups, LABELS)
    return (time.perf_counter() - started, usage.computed_tokens), p_yes(found)


def compare_engines(model: str, targets: int, questions: int, repeats: int) -> dict[str, Any]:
    """Answers per second and computed tokens of every engine. The engines take turns."""
    by_name, missing = engines(model)
    ours = by_name["transformers"]
    for name, engine in by_name.items():  # the first call allocates memory and fills caches
        run(name, engine, workload(ours, 4, questions, seed=-1))
    timed: dict[str, list[Timed]] = {name: [] for name in by_name}
    apart = 0.0
    for repeat in range(repeats):
        groups = workload(ours, targets, questions, seed=repeat)
        answers = {}
        for name in turns(by_name, repeat):
            outcome, answers[name] = run(name, by_name[name], groups)
            timed[name].append(outcome)
        apart = max(
            apart,
            *(abs(a - b) for other in answers.values() for a, b in zip(answers["plain loop"], other, strict=True)),
        )
    reads = targets * questions
    return {
        "reads": reads,
        "per_second": {name: [reads / seconds for seconds, _ in outcomes] for name, outcomes in timed.items()},
        "computed_tokens": {name: [computed for _, computed in outcomes] for name, outcomes in timed.items()},
        "largest_difference_in_p_yes": apart,
        "vllm_missing": missing,
    }


def ours_floor(backend: TransformersBackend, groups: Sequence[ReadGroup]) -> int:
    return floor_tokens(branches_of(backend.tokens.groups(groups), backend.limit))[1]


def group_workload(input_tokens: int, seed: int) -> list[ReadGroup]:
    """One prompt of about `input_tokens` tokens, 8 completions of 60 words, 8 questions about each."""
    rng = random.Random(seed)
    prompt, questions = load_prompt("judges/item", "judge"), distinct_questions(rng, 8)
    given = " ".join(rng.choices(WORDS, k=input_tokens))
    targets = [" ".join(rng.choices(WORDS, k=60)) for _ in range(8)]
    tails = tuple(prompt.tail(question) for question in questions)
    return [ReadGroup(prompt.system, prompt.prefix(input=given, target=target), tails) for target in targets]


@torch.inference_mode()
def prefill(backend: TransformersBackend, tokens: int, rows: int = 1) -> None:
    """A plain forward pass of `tokens` tokens, in rows of 512, `rows` of them at once."""
    ids = torch.arange(tokens, device=backend.device) % min(1000, backend.model.config.vocab_size)
    whole = tokens // 512 * 512
    parts = [part.view(-1, 512) for part in ids[:whole].split(512 * rows) if len(part)]
    for part in [*parts, *([ids[None, whole:]] if tokens > whole else [])]:
        backend.model(input_ids=part, use_cache=False, logits_to_keep=1)


def compare_groups(model: str, repeats: int) -> list[dict[str, Any]]:
    """For each length of the input: tokens of the tree, computed tokens, and the seconds of each way."""
    backend, lines = TransformersBackend(model), []
    clock = time.process_time if backend.device.type == "cpu" and torch.get_num_threads() == 1 else CLOCK

    def in_rows(groups: Sequence[ReadGroup]) -> None:
        with changed(backend, keeps=False):
            backend.read(groups, LABELS)

    for input_tokens in INPUT_TOKENS:
        if input_tokens + 400 > backend.limit:
            continue
        seconds: dict[str, list[float]] = {"together": [], "rows": [], "one_by_one": [], "prefill": []}
        for repeat in range(repeats):
            groups = group_workload(input_tokens, repeat)
            if repeat == 0:  # the first pass of a length allocates memory
                backend.read(groups[:1], LABELS)
            floor = ours_floor(backend, groups)
            ways: dict[str, Callable[[], object]] = {
                "together": lambda groups=groups: backend.read(groups, LABELS),
                "rows": lambda groups=groups: in_rows(groups),
                "one_by_one": lambda groups=groups: [backend.read([group], LABELS) for group in groups],
                "prefill": lambda floor=floor: prefill(backend, floor),
            }
            for name in turns(ways, repeat):
                seconds[name].append(timed(ways[name], clock)[0])
            _, usage = backend.read(groups, LABELS)
        counts = {"floor": floor, "computed": usage.computed_tokens, "cached": usage.cached}
        lines.append({"input_tokens": input_tokens, **counts, **seconds})
    return lines


@contextmanager
def changed(backend: TransformersBackend, **attributes: Any) -> Iterator[None]:
    """Context manager in which an engine has these attributes."""
    before = {name: getattr(backend, name) for name in attributes}
    vars(backend).update(attributes)
    try:
        yield
    finally:
        vars(backend).update(before)


def matmul_peak(sizes: tuple[int, int, int], device: torch.device, dtype: torch.dtype, clock: Clock = CLOCK) -> float:
    """Floating-point operations per second of `torch.matmul` of two matrices of random values, rows x inner and
    inner x columns: the best of 20 runs of ten products."""
    rows, inner, columns = sizes
    one = torch.randn(rows, inner, device=device, dtype=dtype)
    other = torch.randn(inner, columns, device=device, dtype=dtype)
    best = min(timed(lambda: [torch.matmul(one, other) for _ in range(10)], clock)[0] for _ in range(20))
    return 20 * rows * inner * columns / best


def layer_weights(model: Any) -> float:
    """Weights of the layers that a token meets: without the embeddings and the output head, and of experts, those that
    are chosen for it."""
    config = model.config.get_text_config()
    ends = [layer.weight for layer in (model.get_input_embeddings(), model.get_output_embeddings())]
    experts = getattr(config, "num_experts", None) or 1
    share = getattr(config, "num_experts_per_tok", 1) / experts
    return sum(
        weight.numel() * (share if ".experts." in name else 1)
        for name, weight in model.named_parameters()
        if not any(weight is end for end in ends)
    )


def floor_flop(backend: TransformersBackend, groups: Sequence[ReadGroup]) -> float:
    """Floating-point operations of all layers for the tokens of the tree, each of which attends to the tokens before
    it in its prompt, or in its window. The output head is left out: it runs at the answers only."""
    model, tree = backend.model, PrefixTree[None]()
    config = model.config.get_text_config()
    for group in backend.tokens.groups(groups):
        for tail in group.tails:
            tree.add([*group.prefix, *tail])
    seen = [depth + 1 for node in tree.segments() for depth in range(node.depth, node.depth + node.length)]
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    windows = [config.sliding_window if kind == "sliding_attention" else math.inf for kind in kinds]
    pairs = sum(count * sum(min(tokens, window) for tokens in seen) for window, count in Counter(windows).items())
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    return 2 * layer_weights(model) * len(tree.ids) + 4 * width * pairs


def samples(reads: int, questions: int = 8) -> list[Sample]:
    """Targets of about 1,000 characters with `questions` items each."""
    rng = random.Random(reads)
    checklists = [distinct_questions(rng, questions) for _ in range(64)]
    texts = [" ".join(f"word{rng.randrange(10**6)}" for _ in range(90)) for _ in range(reads // questions)]
    return [Sample(rng.choice(checklists), text, f"Write something about {text[:40]}.") for text in texts]


def adapter_cost(repeats: int) -> dict[str, list[float]]:
    """Milliseconds per read without the engine."""
    backend, reads = Instant(chunk_reads=512), ADAPTER_READS
    milliseconds: dict[str, list[float]] = {"without_store": [], "with_store": [], "all_stored": []}
    for _ in range(repeats):
        batch = samples(reads)
        with tempfile.TemporaryDirectory() as folder:
            stored = Path(folder) / "store.sqlite"
            for name, store in (("without_store", False), ("with_store", stored), ("all_stored", stored)):
                scorer = ChecklistScorer("instant", backend=backend, store=store)
                seconds, _ = timed(lambda scorer=scorer, batch=batch: scorer.score_batch(batch))
                milliseconds[name].append(1000 * seconds / reads)
    return milliseconds


def timed(call: Callable[[], T], clock: Clock = CLOCK) -> tuple[float, T]:
    """Seconds until the device has finished, and what was returned."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = clock()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - started, result


def measured_figures(results: dict[str, Any]) -> list[Figure]:
    """The figures of what was measured."""
    found: list[Figure] = []
    if "reads" in results:
        found += figures("answers per second", results["reads"]["per_second"], "plain loop")
        found += figures("prompt tokens computed", results["reads"]["computed_tokens"], "plain loop")
    for line in results.get("groups", ()):
        ways = {name: line[name] for name in ("prefill", "together", "rows", "one_by_one")}
        found += figures("seconds", ways, "prefill", f"input of {line['input_tokens']:,} words")
    if "adapter" in results:
        found += figures("ms per read", results["adapter"], "without_store")
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script."""
    parser = parser_of(__doc__, __file__, targets=64, questions=8, repeats=5)
    parser.add_argument("--model", default="pocket", help="pocket, a folder or a Hub ID (default: %(default)s)")
    parser.add_argument("--only", choices=("adapter", "groups", "reads"), help="measure only this")
    given = parser.parse_args(argv)
    parts: dict[str, Callable[[], object]] = {
        "reads": lambda: compare_engines(given.model, given.targets, given.questions, given.repeats),
        "adapter": lambda: adapter_cost(given.repeats),
        "groups": lambda: compare_groups(given.model, min(given.repeats, 3)),
    }
    names = [given.only] if given.only else ["reads", "adapter"]
    results: dict[str, Any] = {"model": given.model, "threads": torch.get_num_threads()}
    results |= {name: parts[name]() for name in names}
    title = (
        "8 completions of a prompt x 8 questions, one thread"
        if given.only == "groups"
        else "Reads, and the adapter's own cost"
    )
    return finish(given.output, title, measured_figures(results), results)


if __name__ == "__main__":
    main()
