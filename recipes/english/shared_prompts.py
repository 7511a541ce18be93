"""GRPO in which each prompt is computed once for all of its completions, and no padding is computed at all.

A group of 8 answers of 19 tokens to a prompt of 52 has 204 tokens that differ. TRL computes 8 rows of prompt and padded
answer, 736 tokens for answers of at most 40, and samples until the longest answer has ended. On a CPU, where every
token costs, this is most of a step. Here

- [`sample`] reads each prompt once, copies its key/value cache for its answers, and drops an answer that has ended;
- [`SharedPromptTrainer`] computes the log-probabilities of a group in one row. The answers follow the prompt, each
  starts with the prompt's last token at its place, and a mask lets it see the prompt and itself only.

The values are those of TRL up to rounding. For causal text models with rotary or learned positions and full attention,
on one process, without tools and images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer


@torch.no_grad()
def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    n: int,
    *,
    max_tokens: int,
    temperature: float,
    eos: Sequence[int],
) -> list[list[list[int]]]:
    """Sample `n` answers to each prompt.

    Args:
        model: a causal language model, or an adapter of one.
        prompts: token ids.
        n, max_tokens, temperature: answers per prompt, their most tokens, and the temperature of sampling.
        eos: ids of the tokens that end an answer.

    Returns:
        For each prompt, `n` lists of at most `max_tokens` ids, with the token that ended them, if any.
    """
    ids = pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True, padding_side="left")
    mask = pad_sequence(
        [torch.ones(len(prompt), dtype=torch.long) for prompt in prompts], batch_first=True, padding_side="left"
    )
    ids, mask, ends = ids.to(model.device), mask.to(model.device), torch.tensor(eos, device=model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
    cache = out.past_key_values
    cache.batch_repeat_interleave(n)
    logits, mask, position = (
        each.repeat_interleave(n, dim=0) for each in (out.logits[:, -1], mask, positions[:, -1:])
    )
    answers: list[list[int]] = [[] for _ in range(n * len(prompts))]
    rows = list(range(len(answers)))
    for _ in range(max_tokens):
        cumulated = (logits.float() / temperature).softmax(-1).cumsum(-1)
        # Ten times as fast as `multinomial` on a CPU.
        drawn = torch.rand_like(cumulated[:, :1]) * cumulated[:, -1:]
        tokens = torch.searchsorted(cumulated, drawn).clamp(max=cumulated.shape[1] - 1)
        for row, token in zip(rows, tokens[:, 0].tolist(), strict=True):
            answers[row].append(token)
        open_ = (~torch.isin(tokens[:, 0], ends)).nonzero()[:, 0]
        if not len(open_) or len(answers[rows[int(open_[0])]]) == max_tokens:
            break
        if len(open_) < len(rows):
            cache.batch_select_indices(open_)
            rows = [rows[place] for place in open_.tolist()]
        tokens, position = tokens[open_], position[open_] + 1
        mask = torch.cat([mask[open_], mask.new_ones(len(rows), 1)], dim=1)
        out = model(
            input_ids=tokens, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True
        )
        logits = out.logits[:, -1]
    return [answers[start : start + n] for start in range(0, len(answers), n)]


class SharedPromptTrainer(GRPOTrainer):
    """TRL's trainer, computing each prompt once. A step has to be one batch:
    `per_device_train_batch_size` is the number of completions per step."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs, rollout_func=_rollout)

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
        length = input_ids.shape[1] - logits_to_keep
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
            groups.setdefault(tuple(ids[:length][mask[:length] == 1].tolist()), []).append(row)
        logps: list[torch.Tensor] = [input_ids.new_empty(0)] * len(input_ids)
        entropies = list(logps)
        for prompt, rows in groups.items():
            answers = [input_ids[row, length:][attention_mask[row, length:] == 1] for row in rows]
            with self.accelerator.autocast():
                logits = model(**tree(prompt, answers)).logits[0]
            logprobs = (logits.float() / self.temperature).log_softmax(-1)
            taken = logprobs.gather(-1, torch.cat(answers)[:, None])[:, 0]
            entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(-1) if compute_entropy else taken
            sizes = [len(answer) for answer in answers]
            for row, some, of_some in zip(rows, taken.split(sizes), entropy.split(sizes), strict=True):
                logps[row], entropies[row] = some, of_some
        found = _padded(logps, logits_to_keep)
        return found, _padded(entropies, logits_to_keep) if compute_entropy else None, None


def tree(prompt: Sequence[int], answers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of a model for a prompt and its answers in one row: the prompt without its last token, and for each
    answer this token and the answer. All have the positions that they have in a row of their own. Logits are asked for
    the places before each token of an answer."""
    device = answers[0].device
    stem = torch.tensor(prompt[:-1], dtype=torch.long, device=device)
    last = torch.tensor(prompt[-1:], device=device)
    lengths = [len(answer) for answer in answers]
    ids = torch.cat([stem, *(part for answer in answers for part in (last, answer))])
    owner = torch.repeat_interleave(
        torch.arange(len(answers) + 1), torch.tensor([len(stem), *(n + 1 for n in lengths)])
    )
    place = torch.cat([torch.arange(len(stem)), *(len(stem) + torch.arange(n + 1) for n in lengths)])
    ends = torch.tensor([len(stem), *(n + 1 for n in lengths)]).cumsum(0)[1:] - 1
    asked = torch.ones(len(ids), dtype=torch.bool)
    asked[: len(stem)] = asked[ends] = False
    mask = (owner[:, None] == owner) | (owner == 0)
    row = {"input_ids": ids[None], "position_ids": place[None], "attention_mask": mask.tril()[None, None]}
    return {name: value.to(device) for name, value in {**row, "logits_to_keep": asked.nonzero()[:, 0]}.items()}


def _padded(values: Sequence[torch.Tensor], length: int) -> torch.Tensor:
    padded = pad_sequence(list(values), batch_first=True)
    return torch.nn.functional.pad(padded, (0, length - padded.shape[1]))


def _rollout(prompts: list[Any], trainer: SharedPromptTrainer) -> dict[str, Any]:
    """The completions of a step, each prompt repeated as often as it has completions."""
    ids, _, _ = trainer._tokenize_prompts(prompts)
    n = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    with trainer.accelerator.autocast():
        groups = sample(
            trainer.accelerator.unwrap_model(trainer.model),
            ids[::n],
            n,
            max_tokens=trainer.max_completion_length,
            temperature=trainer.temperature,
            eos=trainer.eos_token_ids,
        )
    return {"prompt_ids": ids, "completion_ids": [answer for group in groups for answer in group], "logprobs": None}
