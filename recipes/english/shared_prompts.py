"""GRPO that computes each prompt once for all of its completions, and no padding.

A prompt of 52 tokens with 8 answers of 19 tokens has 204 different tokens. TRL computes 8 rows of the prompt and a
padded answer, 736 tokens if the longest answer has 40, and samples all answers until the longest one has ended. On a
CPU, where every token costs, this is most of a step. Here

- [`sample`] reads each prompt once, copies its key/value cache for the answers, and drops an answer that has ended;
- [`SharedPromptTrainer`] computes the log-probabilities of all answers to a prompt in one row, a prefix tree as in the
  package's own reads (`checklist_rewards/backends/trees.py`).

The values are those of TRL up to rounding, which the trainer checks for its model before it begins. For text models on
one process, without tools and images, sampled by temperature only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer

from checklist_rewards.backends.inputs import Inputs, Layers, cache_argument, packs_exactly, tree_inputs
from checklist_rewards.backends.trees import TreeRow, tree_rows


@torch.no_grad()
def sample(
    model: Any, prompts: Sequence[Sequence[int]], n: int, *, max_tokens: int, temperature: float, eos: Sequence[int]
) -> list[list[list[int]]]:
    """Sample `n` answers to each prompt.

    Args:
        model: a causal language model, or an adapter of one.
        prompts: token ids, at least one for each prompt.
        n, max_tokens, temperature: answers per prompt, their most tokens, and the temperature (above 0).
        eos: ids of the tokens that end an answer.

    Returns:
        For each prompt, `n` lists of 1 to `max_tokens` ids, with the token that ended them, if any.
    """
    ids = _left_padded([torch.tensor(prompt) for prompt in prompts]).to(model.device)
    mask = _left_padded([torch.ones(len(prompt), dtype=torch.long) for prompt in prompts]).to(model.device)
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    ends = torch.tensor(eos, device=model.device)
    out = model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1)
    named = cache_argument(model)
    cache = out[named]
    cache.batch_repeat_interleave(n)
    logits, mask, place = (one.repeat_interleave(n, dim=0) for one in (out.logits[:, -1], mask, places[:, -1:]))
    answers: list[list[int]] = [[] for _ in range(n * len(prompts))]
    rows = list(range(len(answers)))
    for length in range(1, max_tokens + 1):
        tokens = _drawn((logits.float() / temperature).softmax(-1))
        for row, token in zip(rows, tokens[:, 0].tolist(), strict=True):
            answers[row].append(token)
        going_on = (~torch.isin(tokens[:, 0], ends)).nonzero()[:, 0]
        if not len(going_on) or length == max_tokens:
            break
        if len(going_on) < len(rows):
            cache.batch_select_indices(going_on)
            rows = [rows[index] for index in going_on.tolist()]
        mask = torch.cat([mask[going_on], mask.new_ones(len(rows), 1)], dim=1)
        place = place[going_on] + 1
        out = model(
            input_ids=tokens[going_on],
            attention_mask=mask,
            position_ids=place,
            use_cache=True,
            **{named: cache},
        )
        logits = out.logits[:, -1]
    return [answers[start : start + n] for start in range(0, len(answers), n)]


class SharedPromptTrainer(GRPOTrainer):
    """TRL's trainer, computing each prompt once per batch. Most is shared if a step is one batch:
    `per_device_train_batch_size` is then the number of completions per step.

    Raises:
        ValueError: If the model or the configuration needs what this trainer does not do.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs, rollout_func=_rollout)
        how, model = self.args, self.accelerator.unwrap_model(self.model)
        if how.top_p != 1.0 or how.top_k or how.min_p or how.repetition_penalty != 1.0 or how.generation_kwargs:
            raise ValueError("SharedPromptTrainer samples by temperature only; leave top_p, top_k and the like out.")
        if how.use_vllm or self.accelerator.num_processes > 1:
            raise ValueError("SharedPromptTrainer runs in one process without vLLM; use GRPOTrainer for the rest.")
        layers, training = Layers.of(model), model.training
        model.eval()
        if layers is None or not packs_exactly(model, layers, self._logits, model.device):
            raise ValueError(f"{type(model).__name__} gives other values if prompts share a row; use GRPOTrainer.")
        model.train(training)
        self.layers = layers

    @torch.no_grad()
    def _logits(self, inputs: Inputs) -> torch.Tensor:
        """The logits after each prompt of some rows, in single precision."""
        rows, columns = inputs.answers.T
        # Without autocast, whose rounding would hide a difference or look like one.
        out = self.model(input_ids=inputs.ids, position_ids=inputs.positions, attention_mask=inputs.mask)
        return out.logits[rows, columns].float()

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """As in TRL: two tensors of shape (rows, logits_to_keep). Their values on padding are 0."""
        start = input_ids.shape[1] - logits_to_keep
        prompts, answers = (
            [ids[mask == 1].tolist() for ids, mask in zip(input_ids[:, part], attention_mask[:, part], strict=True)]
            for part in (slice(start), slice(start, None))
        )
        of_prompt: dict[tuple[int, ...], list[int]] = {}
        for number, prompt in enumerate(prompts):
            of_prompt.setdefault(tuple(prompt), []).append(number)
        found: list[tuple[torch.Tensor, ...]] = [()] * len(answers)
        for prompt, numbers in of_prompt.items():
            values = self._answered(model, prompt, [answers[number] for number in numbers])
            for number, *of_answer in zip(numbers, *values, strict=True):
                found[number] = tuple(of_answer)
        logps, entropies = (_right_padded(values, logits_to_keep) for values in zip(*found, strict=True))
        return logps, entropies if compute_entropy else None, None

    def _answered(
        self, model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]]
    ) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """The log-probabilities of the tokens of each answer to a prompt, and the entropies before them."""
        [row] = tree_rows([(prompt, [(answer, None) for answer in answers])], 2**31)
        columns = [
            column
            for end, answer in zip(row.answers, answers, strict=True)
            for column in _columns(row, end, len(answer))
        ]
        inputs = tree_inputs([row], self.layers, self.accelerator.unwrap_model(model), model.device)
        before = torch.from_numpy(row.parent_columns())[columns].to(model.device)
        asked, places = before.unique(return_inverse=True)
        with self.accelerator.autocast():
            out = model(
                input_ids=inputs.ids,
                position_ids=inputs.positions,
                attention_mask=inputs.mask,
                logits_to_keep=asked,
            )
        logprobs = (out.logits[0].float() / self.temperature).log_softmax(-1)
        # TRL uses entropies without their gradient.
        entropies = -(logprobs.detach().exp() * logprobs.detach()).sum(-1)
        sizes = [len(answer) for answer in answers]
        return logprobs[places, inputs.ids[0, columns]].split(sizes), entropies[places].split(sizes)


def _columns(row: TreeRow[Any], end: int, length: int) -> list[int]:
    """The columns of the last `length` tokens of the prompt that ends in column `end`, in order."""
    before, columns = row.parent_columns(), [end]
    while len(columns) < length:
        columns.append(int(before[columns[-1]]))
    return columns[::-1]


def _drawn(probabilities: torch.Tensor) -> torch.Tensor:
    """One index for each row. A tenth of the time of `torch.multinomial` on a CPU."""
    cumulated = probabilities.cumsum(-1)
    drawn = torch.rand_like(cumulated[:, :1]) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, drawn, right=True).clamp(max=probabilities.shape[1] - 1)


def _left_padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_side="left")


def _right_padded(rows: Sequence[torch.Tensor], length: int) -> torch.Tensor:
    padded = pad_sequence(list(rows), batch_first=True)
    return torch.nn.functional.pad(padded, (0, length - padded.shape[1]))


def _rollout(prompts: list[Any], trainer: SharedPromptTrainer) -> dict[str, Any]:
    """The completions of a step. Each prompt comes as often as it has completions."""
    ids, _, _ = trainer._tokenize_prompts(prompts)
    n = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    if any(one != ids[place - place % n] for place, one in enumerate(ids)):
        raise ValueError(f"The {n} completions of a prompt are not next to each other in this step.")
    model = trainer.accelerator.unwrap_model(trainer.model)
    training = model.training
    model.eval()  # gradient checkpointing, a default of TRL, leaves no cache of a model in training
    try:
        with trainer.accelerator.autocast():
            groups = sample(
                model,
                ids[::n],
                n,
                max_tokens=trainer.max_completion_length,
                temperature=trainer.temperature,
                eos=trainer.eos_token_ids,
            )
    finally:
        model.train(training)
    return {"prompt_ids": ids, "completion_ids": [answer for group in groups for answer in group], "logprobs": None}
