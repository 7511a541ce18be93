"""The transformers engine: batched chat generation, and label reads by one packed pass per target.

All questions about a target go through the model together. The row is the prefix once, then every question tail; under
the *tree mask* a tail sees the prefix and itself, never another tail, and its positions restart after the prefix, so
each answer is the one a separate prompt would give. Rows of several targets are padded to one batch. The output head
runs at the answer positions only.

    prefix  p p p p            positions 0 1 2 3
    tail 1  . . . . a a        positions         4 5
    tail 2  . . . .     b b b  positions         4 5 6

Batches are bounded by `max_batch_tokens` (padding included), so memory does not grow with the number of reads. Models
whose attention is not plain full attention over rotary positions (sliding windows, state-space layers) read their
prompts separately; a small packed read is compared with a separate one when the model is loaded, so an unknown
architecture that would be wrong is noticed and read separately too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList

from checklist_rewards.backends.base import (
    TOO_LONG,
    Arrived,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
    reply_seed,
)
from checklist_rewards.backends.models import model_identity, resolve_model
from checklist_rewards.backends.sampling import RowSampler
from checklist_rewards.backends.tokens import ChatTokenizer, TokenGroup, count_tokens
from checklist_rewards.errors import BackendError, ModelError

logger = logging.getLogger(__name__)

_PACKED_TOLERANCE = 0.1  # nats between a packed and a separate read: above the noise of bf16


_CPU_READ_TOKENS = 2048  # in one pass; larger batches fall out of a CPU's caches and read slower


class _Row(NamedTuple):
    """One packed row: some tails of one group, with where each belongs in the result."""

    group: int
    prefix: list[int]
    tails: list[tuple[int, list[int]]]

    @property
    def length(self) -> int:
        return len(self.prefix) + sum(len(tail) for _, tail in self.tails)


class TransformersBackend:
    """A causal language model of `transformers`, on the GPU if there is one.

    Args:
        model (`str`): "pocket", a folder or a Hub id.
        max_batch_tokens (`int`, *optional*, defaults to `8192`): padded tokens in one forward pass; bounds memory. A
            single read longer than this is still computed, alone.

    Raises [`ModelError`] if the model cannot be loaded.
    """

    chunk_reads = 512

    def __init__(self, model: str, *, max_batch_tokens: int = 8192):
        path = resolve_model(model)
        self.identity = model_identity(model)
        self._lock = threading.Lock()  # trainers may score from several threads; the engine is one
        self.max_batch_tokens = max_batch_tokens
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.tokens = ChatTokenizer(AutoTokenizer.from_pretrained(path))
            self.model: Any = AutoModelForCausalLM.from_pretrained(
                path,
                dtype=torch.float32 if self.device.type == "cpu" else "auto",
                attn_implementation="sdpa",
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"model {model!r} cannot be loaded with transformers: {reason}") from error
        self.model.to(self.device).eval()  # type: ignore[arg-type]
        config = self.model.config.get_text_config()
        self.max_length: int = getattr(config, "max_position_embeddings", 2**31)
        layers = getattr(config, "layer_types", None) or ["full_attention"]
        self.packs = set(layers) == {"full_attention"} and self._packing_is_exact()

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        forms = self.tokens.label_groups(labels)
        tokenized = self.tokens.groups(groups)
        reads: list[list[LabelRead]] = [[LabelRead(None, TOO_LONG)] * len(group.tails) for group in tokenized]
        computed = 0
        rows = self._rows(tokenized)
        budget = min(self.max_batch_tokens, _CPU_READ_TOKENS) if self.device.type == "cpu" else self.max_batch_tokens
        for batch in self._batches(rows, [row.length for row in rows], budget):
            with self._lock:
                logprobs = self._label_logprobs(batch, forms)
            computed += sum(row.length for row in batch)
            answers = iter(logprobs.tolist())
            for row in batch:
                for index, _ in row.tails:
                    reads[row.group][index] = LabelRead(tuple(next(answers)))
        prompt_tokens, floor_tokens = count_tokens(tokenized, self.max_length)
        return ReadResult([tuple(group) for group in reads], prompt_tokens, computed, floor_tokens)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]. Prompts are batched by length and padded on the left. `sampling.schema` is not enforced."""
        ids = [self.tokens.prompt(messages) for messages in prompts]
        replies: list[list[Reply]] = [[Reply(None, unanswered=TOO_LONG)] * sampling.n for _ in prompts]
        fitting = [index for index, prompt in enumerate(ids) if len(prompt) < self.max_length]
        fitting.sort(key=lambda index: len(ids[index]))
        costs = [(len(ids[index]) + sampling.max_tokens) * sampling.n for index in fitting]
        for batch in self._batches(fitting, costs, self.max_batch_tokens):
            with self._lock:
                sampled = self._sample([ids[i] for i in batch], sampling)
            for index, texts in zip(batch, sampled, strict=True):
                replies[index] = texts
                if arrived is not None:
                    arrived(index, texts)
        return replies

    def _rows(self, groups: Sequence[TokenGroup]) -> list[_Row]:
        """Cut groups into rows within the token budget, longest first so that a batch pads little."""
        rows: list[_Row] = []
        for number, group in enumerate(groups):
            tails: list[tuple[int, list[int]]] = []
            length = len(group.prefix)
            for index, tail in group.fitting(self.max_length):
                if tails and (length + len(tail) > self.max_batch_tokens or not self.packs):
                    rows.append(_Row(number, group.prefix, tails))
                    tails, length = [], len(group.prefix)
                tails.append((index, tail))
                length += len(tail)
            if tails:
                rows.append(_Row(number, group.prefix, tails))
        rows.sort(key=lambda row: -row.length)
        return rows

    @staticmethod
    def _batches(rows: Sequence[Any], costs: Sequence[int], budget: int) -> Iterator[list[Any]]:
        batch: list[Any] = []
        widest = 0
        for row, cost in zip(rows, costs, strict=True):
            widest = max(widest, cost)
            if batch and widest * (len(batch) + 1) > budget:
                yield batch
                batch, widest = [], cost
            batch.append(row)
        if batch:
            yield batch

    @torch.inference_mode()
    def _label_logprobs(self, rows: Sequence[_Row], forms: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """ln P(label) for every tail of every row, in row order: (reads, labels)."""
        width = max(row.length for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        positions = torch.zeros(len(rows), width, dtype=torch.long)
        # branch 0 is the prefix, k is tail k, -1 is padding
        branch = torch.full((len(rows), width), -1, dtype=torch.long)
        answers: list[tuple[int, int]] = []
        for r, row in enumerate(rows):
            start = len(row.prefix)
            ids[r, :start] = torch.tensor(row.prefix, dtype=torch.long)
            positions[r, :start] = torch.arange(start)
            branch[r, :start] = 0
            for k, (_, tail) in enumerate(row.tails, start=1):
                end = start + len(tail)
                ids[r, start:end] = torch.tensor(tail, dtype=torch.long)
                positions[r, start:end] = torch.arange(len(row.prefix), len(row.prefix) + len(tail))
                branch[r, start:end] = k
                answers.append((r, end - 1))
                start = end
        branch = branch.to(self.device)
        query, key = branch[:, :, None], branch[:, None, :]
        visible = ((key == 0) | (key == query)).tril()  # padding sees itself, so that no softmax row is empty
        mask = torch.zeros(visible.shape, dtype=self.model.dtype, device=self.device)
        mask.masked_fill_(~visible, torch.finfo(self.model.dtype).min)
        at = torch.tensor(answers, device=self.device)
        logits = self._logits(ids.to(self.device), mask[:, None], positions.to(self.device), at).float()
        logprobs = logits - logits.logsumexp(-1, keepdim=True)
        return torch.stack([logprobs[:, list(group)].logsumexp(-1) for group in forms], dim=-1).cpu()

    def _logits(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """Next-token logits at the positions `at` ((row, column) pairs): (reads, vocabulary).

        The hidden states are gathered on the way into the output head, so whatever the model does after its head
        (scaling, soft-capping) still happens, and the head never sees a position that is not an answer.
        """

        def gather(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return (args[0][at[:, 0], at[:, 1]].unsqueeze(0), *args[1:])

        hook = self.model.get_output_embeddings().register_forward_pre_hook(gather)
        try:
            out = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        except torch.OutOfMemoryError as error:
            raise BackendError(
                f"out of GPU memory on {tuple(ids.shape)} tokens; lower max_batch_tokens ({self.max_batch_tokens})."
            ) from error
        finally:
            hook.remove()
        return out.logits[0]

    def _packing_is_exact(self) -> bool:
        """Does one packed pass give what separate passes give? Asked once, on a few arbitrary tokens."""
        size = self.model.get_input_embeddings().num_embeddings
        tokens = [(17 * k + 11) % size for k in range(48)]
        tails = [(0, tokens[24:30]), (1, tokens[30:41]), (2, tokens[41:48])]
        forms = [(tokens[0],), (tokens[1],)]
        packed = self._label_logprobs([_Row(0, tokens[:24], tails)], forms)
        separate = self._label_logprobs([_Row(0, tokens[:24], [tail]) for tail in tails], forms)
        exact = bool((packed - separate).abs().max() < _PACKED_TOLERANCE)
        if not exact:
            logger.warning("this architecture cannot answer packed questions exactly; reading each prompt separately.")
        return exact

    @torch.inference_mode()
    def _sample(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[list[Reply]]:
        tokenizer = self.tokens.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        processors = LogitsProcessorList()
        if sampling.temperature > 0:
            seeds = [reply_seed(sampling.seed, prompt, index) for prompt in prompts for index in range(sampling.n)]
            processors.append(RowSampler(seeds, sampling, self.device))
            ids, mask = ids.repeat_interleave(sampling.n, 0), mask.repeat_interleave(sampling.n, 0)
        out = self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=min(sampling.max_tokens, self.max_length - width),
            do_sample=False,
            logits_processor=processors,
            pad_token_id=pad,
        )[:, width:].tolist()
        ends = self.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        per_prompt = len(out) // len(prompts)
        replies = [
            self._reply(tokens, ends, 0 if place % per_prompt else len(prompts[place // per_prompt]))
            for place, tokens in enumerate(out)
        ]
        copies = sampling.n // per_prompt  # greedy replies are equal: sampled once, given n times
        return [replies[i * per_prompt : (i + 1) * per_prompt] * copies for i in range(len(prompts))]

    def _reply(self, tokens: list[int], ends: set[int], prompt_tokens: int) -> Reply:
        end = next((index for index, token in enumerate(tokens) if token in ends), None)
        text, used = self.tokens.decode(tokens[:end]), len(tokens) if end is None else end + 1
        return Reply(text, "length" if end is None else "stop", prompt_tokens=prompt_tokens, completion_tokens=used)
