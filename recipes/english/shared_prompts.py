"""GRPO that computes each prompt once for all of its completions, and no padding.

A prompt of 52 tokens with 8 answers of 19 tokens has 204 different tokens. TRL computes 8 rows of the prompt and a
padded answer, 736 tokens if the longest answer has 40, and samples all answers until the longest one has ended. On a
CPU, where every token costs, this is most of a step. Here

- [`sample`] reads each prompt once, copies its key/value cache for the answers, and drops an answer that has ended;
- [`SharedPromptTrainer`] computes the log-probabilities of all answers to a prompt in one row, under a mask that lets
  an answer see the prompt and itself.

The values are those of TRL up to rounding. For causal text models whose layers see the whole context, on one process,
without tools and images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer


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
    cache = out.past_key_values
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
            past_key_values=cache,
            use_cache=True,
        )
        logits = out.logits[:, -1]
    return [answers[start : start + n] for start in range(0, len(answers), n)]


class SharedPromptTrainer(GRPOTrainer):
    """TRL's trainer, computing each prompt once per batch. Most is shared if a step is one batch:
    `per_device_train_batch_size` is then the number of completions per step."""

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
        start = input_ids.shape[1] - logits_to_keep
        rows_of: dict[tuple[int, ...], list[int]] = {}
        for row, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
            rows_of.setdefault(tuple(ids[:start][mask[:start] == 1].tolist()), []).append(row)
        logps, entropies = ([torch.empty(0)] * len(input_ids) for _ in range(2))
        for prompt, rows in rows_of.items():
            answers = [input_ids[row, start:][attention_mask[row, start:] == 1] for row in rows]
            with self.accelerator.autocast():
                logits = model(**one_row(prompt, answers)).logits[0]
            logprobs = (logits.float() / self.temperature).log_softmax(-1)
            taken = logprobs.gather(-1, torch.cat(answers)[:, None])[:, 0]
            # TRL uses entropies without their gradient.
            entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(-1) if compute_entropy else taken
            sizes = [len(answer) for answer in answers]
            for row, *values in zip(rows, taken.split(sizes), entropy.split(sizes), strict=True):
                logps[row], entropies[row] = values
        found = _right_padded(logps, logits_to_keep)
        return found, _right_padded(entropies, logits_to_keep) if compute_entropy else None, None


def one_row(prompt: Sequence[int], answers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of a model for a prompt and its answers: the prompt without its last token, and for each answer this
    token and the answer, at the positions of a row of their own. Logits are asked for where a token of an answer comes
    next: the model returns as many as the answers have tokens, in their order."""
    device, before = answers[0].device, len(prompt) - 1
    stem, last = torch.tensor(prompt, device=device).split([before, 1])
    ids = torch.cat([stem, *(part for answer in answers for part in (last, answer))])
    sizes = torch.tensor([before, *(len(answer) + 1 for answer in answers)])
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    places = torch.cat([torch.arange(before), *(before + torch.arange(size) for size in sizes[1:].tolist())])
    next_is_answer = owner > 0
    next_is_answer[sizes.cumsum(0)[1:] - 1] = False
    row = {
        "input_ids": ids[None],
        "position_ids": places[None],
        "attention_mask": ((owner[:, None] == owner) | (owner == 0)).tril()[None, None],
        "logits_to_keep": next_is_answer.nonzero()[:, 0],
    }
    return {name: value.to(device) for name, value in row.items()}


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
