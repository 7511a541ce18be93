"""Checklists on held-out prompts while a trainer trains.

    >>> callback = ChecklistEvalCallback(trainer, scorer, held_out, every=50, reference="answer")  # doctest: +SKIP
    >>> trainer.add_callback(callback)  # doctest: +SKIP

Every so many steps the policy answers the prompts (each rank its share), the main process scores the answers, and the
means go to the trainer's log and so to every tracker. The texts with their scores go to a JSONL file per evaluation,
and as a table to the trackers that show one: wandb, trackio, TensorBoard (as text). A tracker that fails to take the
table costs the table, not the training.

Answers that the judge did not score are in no mean; `unscored` says how many they are. Of the win rate are left out
the prompts where the answer or the reference has no score.
"""

from __future__ import annotations

import copy
import importlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import GenerationConfig, Trainer, TrainerCallback
from trl.models.utils import unwrap_model_for_generation

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import atomic_path
from checklist_rewards.rewards.content import described
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score, ratio

logger = logging.getLogger(__name__)

_SHOWN_ROWS = 20
"""Of a table in TensorBoard, which has text only."""


class ChecklistEvalCallback(TrainerCallback):
    """Scores the policy's answers to held-out prompts; add it with `trainer.add_callback`.

    Args:
        trainer ([`~transformers.Trainer`]): any trainer of a causal language model that it is added to.
        scorer ([`ChecklistScorer`]): answers the checklists. With a store the references are read once for all runs.
        dataset: rows with `prompt` (a string or chat messages) and a checklist each: a `datasets.Dataset` or a list of
            mappings.
        every (`int`): evaluate after every so many steps.
        at_start (`bool`, *optional*, defaults to `True`): evaluate before the first step as well.
        name (`str`, *optional*, defaults to `"checklist_eval"`): what the logged names begin with.
        column (`str`, *optional*, defaults to `"checklist"`): the column of the checklists. None in a row is refused:
            there is nothing to learn from it.
        reference (`str`, *optional*): the column of texts to win against: each prompt counts 1 if the answer's score
            is higher, 0.5 if it is equal. They are judged as the answers are.
        generation ([`~transformers.GenerationConfig`], *optional*): how to answer; greedily, up to 256 tokens, if
            nothing is given. Sampling draws random numbers, which changes the training after it.
        batch_size (`int`, *optional*): prompts answered at once; defaults to the trainer's evaluation batch.
        keep_thinking (`bool`, *optional*, defaults to `False`): judge `<think>` blocks too.
        thinking_opened (`bool`, *optional*, defaults to `False`): every answer begins inside a thinking block. Not
            needed for a prompt that ends in `<think>`, by itself or by the chat template.

    Raises:
        SampleError, ChecklistError: naming the row, for a dataset that cannot be scored.
    """

    def __init__(
        self,
        trainer: Trainer,
        scorer: ChecklistScorer,
        dataset: Any,
        *,
        every: int,
        at_start: bool = True,
        name: str = "checklist_eval",
        column: str = "checklist",
        reference: str | None = None,
        generation: GenerationConfig | None = None,
        batch_size: int | None = None,
        keep_thinking: bool = False,
        thinking_opened: bool = False,
    ):
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise SampleError(f"every={every!r} is not allowed; it is a whole number from 1 up.")
        self.trainer, self.scorer, self.every, self.at_start, self.name = trainer, scorer, every, at_start, name
        self.generation = generation or GenerationConfig(max_new_tokens=256, do_sample=False)
        self.batch_size, self.keep_thinking, self.thinking_opened = batch_size, keep_thinking, thinking_opened
        rows = [dict(row) for row in dataset]
        if not rows:
            raise SampleError(f"{name}: the dataset has no rows.")
        for number, row in enumerate(rows, start=1):
            for key in ("prompt", column, *([] if reference is None else [reference])):
                if row.get(key) is None:
                    raise SampleError(f"{name}, row {number}: there is no {key!r}; the row has {', '.join(row)}.")
        self.prompts = [row["prompt"] for row in rows]
        self.checklists = [Checklist.parse(row[column], f"{name}, row {n}") for n, row in enumerate(rows, start=1)]
        self.references = None if reference is None else [self._shown(row[reference]) for row in rows]
        self.categories = list(
            dict.fromkeys(item.category for c in self.checklists for item in c.items if item.category is not None)
        )
        self._reference_scores: list[Score] | None = None
        self._done_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step, if that is wanted."""
        if self.at_start and state.global_step == 0:
            self.evaluate()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after every `every` steps."""
        if state.global_step % self.every == 0 and state.global_step != self._done_at:
            self.evaluate()

    def evaluate(self) -> dict[str, float] | None:
        """Answer, score and log, now. All ranks must call it.

        Returns:
            the numbers that were logged, on the main process: means over the prompts of `<name>/score`,
            `<name>/pass_rate` and `<name>/unscored`, `<name>/category/<c>` (share of the answered items of the
            category that passed), and `<name>/win_rate` in [0, 1]. A number that does not exist is left out.
        """
        self._done_at = self.trainer.state.global_step
        texts = self._answers()
        if not self.trainer.accelerator.is_main_process:
            return None
        scores = self._scores(texts)
        if self.references is not None and self._reference_scores is None:
            self._reference_scores = self._scores(self.references)
        numbers = {f"{self.name}/{key}": value for key, value in self._numbers(scores).items() if value is not None}
        self._log(numbers)
        self._write_table(self._table(texts, scores))
        return numbers

    def _answers(self) -> list[str]:
        """The policy's answer to every prompt, on every rank; each rank writes its share."""
        accelerator = self.trainer.accelerator
        with accelerator.split_between_processes(list(range(len(self.prompts)))) as mine:
            answers = self._generate([self.prompts[number] for number in mine])
            written = gather_object(list(zip(mine, answers, strict=True)))
        return [text for _, text in sorted(written)]

    def _generate(self, prompts: Sequence[Any]) -> list[str]:
        trainer = self.trainer
        processor: Any = trainer.processing_class
        tokenizer = getattr(processor, "tokenizer", processor)
        size = self.batch_size or trainer.args.per_device_eval_batch_size
        generation = copy.deepcopy(self.generation)
        generation.update(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
        answers: list[str] = []
        policy: Any = trainer.model
        was_training = policy.training
        policy.eval()
        try:
            with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
                for start in range(0, len(prompts), size):
                    batch = [self._rendered(tokenizer, prompt) for prompt in prompts[start : start + size]]
                    inputs = tokenizer(
                        [text for text, _ in batch],
                        return_tensors="pt",
                        padding=True,
                        padding_side="left",
                        add_special_tokens=batch[0][1],
                    ).to(trainer.accelerator.device)
                    tokens = model.generate(
                        input_ids=inputs["input_ids"],
                        attention_mask=inputs["attention_mask"],
                        generation_config=generation,
                    )
                    replies = tokens[:, inputs["input_ids"].shape[1] :]
                    texts = tokenizer.batch_decode(replies, skip_special_tokens=True)
                    answers += [
                        self._shown(text, self.thinking_opened or opens_thinking(asked))
                        for text, (asked, _) in zip(texts, batch, strict=True)
                    ]
        finally:
            policy.train(was_training)
        return answers

    def _rendered(self, tokenizer: Any, prompt: Any) -> tuple[str, bool]:
        """The prompt as text, and whether special tokens are still to be added: a chat template has them."""
        if isinstance(prompt, str):
            return prompt, True
        settings = getattr(self.trainer, "chat_template_kwargs", {})  # those that the trainer renders prompts with
        return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **settings), False

    def _shown(self, text: Any, opened: bool = False) -> str:
        return completion_text(text, keep_thinking=self.keep_thinking, opened=opened)

    def _scores(self, texts: Sequence[str]) -> list[Score]:
        asked = [prompt_text(prompt) for prompt in self.prompts]
        return self.scorer.score_batch(
            [
                Sample(checklist, text, input, history=history)
                for checklist, text, (input, history) in zip(self.checklists, texts, asked, strict=True)
            ]
        )

    def _numbers(self, scores: Sequence[Score]) -> dict[str, float | None]:
        numbers = {
            "score": _mean([score.primary_score for score in scores]),
            "pass_rate": _mean([score.pass_rate for score in scores]),
            "unscored": sum(score.primary_score is None for score in scores) / len(scores),
        }
        lines = [line for score in scores for line in score.items if line.passed is not None]
        for category in self.categories:
            numbers[f"category/{category}"] = _mean([line.passed for line in lines if line.category == category])
        if self._reference_scores is not None:
            numbers["win_rate"] = win_rate(scores, self._reference_scores)
        return numbers

    def _log(self, numbers: Mapping[str, float]) -> None:
        control = self.trainer.control
        should_log = control.should_log
        # The plain trainer's: those of TRL put the running means of training into whatever is logged next, and empty
        # them. And whoever logs has done the logging of this step, which the trainer itself still has to do.
        Trainer.log(self.trainer, dict(numbers))
        control.should_log = should_log

    def _table(self, texts: Sequence[str], scores: Sequence[Score]) -> list[dict[str, Any]]:
        step = self.trainer.state.global_step
        rows = [
            {
                "step": step,
                "prompt": prompt if isinstance(prompt, str) else json.dumps(described(prompt), ensure_ascii=False),
                "completion": text,
                "score": score.primary_score,
                "detail": score.model_dump_json(),
            }
            for prompt, text, score in zip(self.prompts, texts, scores, strict=True)
        ]
        if self.references is not None and self._reference_scores is not None:
            for row, text, score in zip(rows, self.references, self._reference_scores, strict=True):
                row |= {"reference": text, "reference_score": score.primary_score}
        return rows

    def _write_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        trainer = self.trainer
        step = trainer.state.global_step
        folder = Path(str(trainer.args.output_dir)) / self.name
        try:
            with atomic_path(folder / f"step_{step:05d}.jsonl") as temporary:
                temporary.write_text(
                    "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
                )
        except Exception as error:  # a full disk, text that is not UTF-8: it costs this table, not the training
            logger.warning("the table of step %d cannot be written (%s); training goes on without it.", step, error)
        for tracker in ("wandb", "trackio"):
            if tracker in (trainer.args.report_to or ()):
                try:
                    show_table(importlib.import_module(tracker), f"{self.name}/table", rows)
                except Exception as error:  # whatever a tracker raises, it costs its table, not the training
                    logger.warning(
                        "%s took no table (%s: %s); it is in %s.", tracker, type(error).__name__, error, folder
                    )
        for callback in trainer.callback_handler.callbacks:
            writer = getattr(callback, "tb_writer", None)
            if writer is not None:
                writer.add_text(f"{self.name}/table", as_markdown(rows[:_SHOWN_ROWS]), step)


def win_rate(scores: Sequence[Score], references: Sequence[Score]) -> float | None:
    """The share of answers that beat their reference, a tie counting half, over those where both have a score."""
    pairs = [(s.primary_score, r.primary_score) for s, r in zip(scores, references, strict=True)]
    return _mean([(s > r) + 0.5 * (s == r) for s, r in pairs if s is not None and r is not None])


def show_table(tracker: Any, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log rows as a table of wandb or trackio, which share these names."""
    import pandas as pd

    tracker.log({name: tracker.Table(dataframe=pd.DataFrame(list(rows)))})


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, without their details."""
    keys = [key for key in rows[0] if key != "detail"]
    lines = [keys, ["---"] * len(keys), *([_cell(row[key]) for key in keys] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return ratio(sum(known), len(known))
