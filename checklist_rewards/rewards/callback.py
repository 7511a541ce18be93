"""Checklist evaluation on held-out prompts during training.

    >>> callback = ChecklistEvalCallback(trainer, scorer, held_out, reference_column="answer")  # doctest: +SKIP
    >>> trainer.add_callback(callback)  # doctest: +SKIP

Every `every` steps the policy answers the prompts (split across ranks), the main process scores the answers, and the
means are logged by the trainer to all its trackers. Texts and scores are written to one JSONL file per evaluation and
as a table to wandb, trackio and TensorBoard (as text). If a tracker fails to log the table, training continues without
it. The other ranks wait until the main process is done, without a timeout (`ranks.py`).

Unscored answers are excluded from the means; `unscored` is their fraction. The win rate excludes prompts where the
answer or the reference has no score.
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

from checklist_rewards.chat import CompletionReader, Target, completion_text, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.keys import described
from checklist_rewards.messages import images_of, with_images, without_images
from checklist_rewards.rewards.batch import Readers, ReadingConfig
from checklist_rewards.rewards.placement import bind_reference, together
from checklist_rewards.rewards.ranks import wait_for_all_ranks
from checklist_rewards.rows import images_of_row
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score, ratio
from checklist_rewards.scores.reasons import is_transient
from checklist_rewards.validation import whole_number

logger = logging.getLogger(__name__)

_SHOWN_ROWS = 20
"""Rows of the table in TensorBoard, which only supports text."""


class ChecklistEvalCallback(TrainerCallback):
    """Scores the policy's answers to held-out prompts; add it with `trainer.add_callback`.

    Args:
        trainer ([`~transformers.Trainer`]): Trainer of a causal language model to which the callback is added.
        scorer ([`ChecklistScorer`]): Scorer for the answers. With a store, the references are scored only once across
            runs. References that failed for a transient reason are read again at the next evaluation.
        dataset (`datasets.Dataset` or list of mappings): Rows with a `prompt` (a string or chat messages) and a
            checklist.
        every (`int`): Number of steps between two evaluations. The first one is before the first step.
        name (`str`, *optional*, defaults to `"checklist_eval"`): Prefix of the logged metrics.
        column (`str`, *optional*, defaults to `"checklist"`): Column of the checklists, which every row must
            have.
        reference_column (`str`, *optional*): Column of reference texts for the win rate. They are judged like the
            answers. A prompt counts 1 if the answer's score is higher than that of its reference, and 0.5 if they are
            equal.
        generation ([`~transformers.GenerationConfig`], *optional*): Generation settings. Defaults to greedy decoding
            of up to 256 tokens. Sampling consumes random numbers and therefore changes the training that follows.
        **reading: The fields of [`ReadingConfig`], such as `keep_thinking`, `thinking_tags` and `images`.

    Raises:
        SampleError, ChecklistError: If a row of the dataset cannot be scored. The error names the row.
    """

    def __init__(
        self,
        trainer: Trainer,
        scorer: ChecklistScorer,
        dataset: Any,
        *,
        every: int,
        name: str = "checklist_eval",
        column: str = "checklist",
        reference_column: str | None = None,
        generation: GenerationConfig | None = None,
        **reading: Any,
    ):
        whole_number("every", every)
        self.trainer, self.scorer, self.every, self.name = trainer, scorer, every, name
        self.generation = generation or GenerationConfig(max_new_tokens=256, do_sample=False)
        self.readers = Readers(ReadingConfig(**reading))
        images = self.readers.config.images
        rows = [dict(row) for row in dataset]
        if not rows:
            raise SampleError(f"{name}: the dataset has no rows.")
        for number, row in enumerate(rows, start=1):
            for key in ("prompt", column, *([] if reference_column is None else [reference_column])):
                if row.get(key) is None:
                    raise SampleError(
                        f"{name}, row {number}: column {key!r} is missing or None; the row has {', '.join(row)}."
                    )
            try:
                prompt_text(row["prompt"], images=images)
                if images == "show" and (images_of_row(row, "the row") or images_of(with_images(row["prompt"]))):
                    raise SampleError("answers are generated from text only; images='ignore' omits the images.")
            except SampleError as error:
                raise SampleError(f"{name}, row {number}: {error}") from None
        self.prompts = [row["prompt"] for row in rows]
        self.checklists = [Checklist.parse(row[column], f"{name}, row {n}") for n, row in enumerate(rows, start=1)]
        self.references = (
            None if reference_column is None else [Target(completion_text(row[reference_column])) for row in rows]
        )
        self.categories = list(
            dict.fromkeys(item.category for c in self.checklists for item in c.items if item.category is not None)
        )
        self._reference_scores: list[Score] | None = None
        self._done_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step."""
        self._done_at = None  # in this training
        if state.global_step == 0:
            self.evaluate()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after every `every` steps."""
        if state.global_step % self.every == 0 and state.global_step != self._done_at:
            self.evaluate()

    def evaluate(self) -> dict[str, float] | None:
        """Run one evaluation now. All ranks must call it.

        Returns:
            `dict[str, float]` or `None`: The logged metrics on the main process, None on other ranks: the means
            `<name>/score`, `<name>/pass_rate` and `<name>/unscored` over the prompts, `<name>/empty`,
            `<name>/cut_in_thought` and `<name>/cut` (shares of the answers in these states), `<name>/category/<c>`
            (fraction of the answered items of the category that passed), and `<name>/win_rate`, all in [0, 1]. Metrics
            without a value are omitted.
        """
        self._done_at = self.trainer.state.global_step
        texts = self._answers()
        bind_reference(self.scorer.judge, self.trainer)
        with together(self.scorer.judge):
            numbers = self._judged(texts) if self.trainer.accelerator.is_main_process else None
        wait_for_all_ranks()
        return numbers

    def _judged(self, answers: Sequence[Target]) -> dict[str, float]:
        """Score the answers, and log and write what they are worth."""
        scores = self._scores(answers)
        if self.references is not None:
            self._score_references(self.references)
        numbers = {f"{self.name}/{key}": value for key, value in self._numbers(scores).items() if value is not None}
        self._log(numbers)
        self._write_table(self._table(answers, scores))
        return numbers

    def _answers(self) -> list[Target]:
        """The policy's answers to all prompts, gathered on every rank; each rank generates a part of them."""
        accelerator = self.trainer.accelerator
        # Not by `split_between_processes`: of fewer prompts than ranks, older versions of accelerate repeat the last.
        indices = range(accelerator.process_index, len(self.prompts), accelerator.num_processes)
        answers = self._generate([self.prompts[index] for index in indices])
        return [text for _, text in sorted(gather_object(list(zip(indices, answers, strict=True))))]

    def _generate(self, prompts: Sequence[Any]) -> list[Target]:
        trainer = self.trainer
        reader = self.readers.of(trainer)
        tokenizer = reader.tokenizer
        size = trainer.args.per_device_eval_batch_size
        generation = copy.deepcopy(self.generation)
        policy: Any = trainer.model
        own = policy.generation_config.eos_token_id  # some policies have several ends, and their tokenizers name one
        ends = {tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])} - {None}
        generation.update(pad_token_id=tokenizer.pad_token_id, eos_token_id=sorted(ends) or None)
        ends.add(tokenizer.pad_token_id)
        answers: list[Target] = []
        was_training = policy.training
        policy.eval()
        try:
            with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
                for start in range(0, len(prompts), size):
                    rows = [self._tokenized(reader, prompt) for prompt in prompts[start : start + size]]
                    inputs = tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt")
                    inputs = inputs.to(trainer.accelerator.device)
                    tokens = model.generate(**inputs, generation_config=generation)
                    ids = [_until(ends, reply) for reply in tokens[:, inputs["input_ids"].shape[1] :].tolist()]
                    answers += reader.read_batch(
                        tokenizer.batch_decode(ids, skip_special_tokens=True),
                        prompts=tokenizer.batch_decode(rows, skip_special_tokens=False),
                        ids=ids,
                        limit=self.generation.max_new_tokens,
                        opened=self.readers.config.thinking_opened,
                    )
        finally:
            policy.train(was_training)
        return answers

    def _tokenized(self, reader: CompletionReader, prompt: Any) -> list[int]:
        """The tokens of a prompt, as in training."""
        if isinstance(prompt, str):
            return list(reader.tokenizer(prompt)["input_ids"])
        if self.readers.config.images == "ignore":
            prompt = without_images(prompt)
        return list(reader.render(prompt, tokenize=True, return_dict=True)["input_ids"][0])

    def _score_references(self, references: Sequence[Target]) -> None:
        """Score the references at the first evaluation. Later ones repeat reads that failed for a transient reason."""
        if self._reference_scores is None:
            self._reference_scores = self._scores(references)
            return
        lost = [place for place, score in enumerate(self._reference_scores) if _is_lost(score)]
        for place, score in zip(lost, self._scores(references, lost), strict=True):
            self._reference_scores[place] = score

    def _scores(self, answers: Sequence[Target], places: Sequence[int] | None = None) -> list[Score]:
        """The scores of all answers, or of those in some places."""
        samples, reader = [], self.readers.of(self.trainer)
        for place in range(len(answers)) if places is None else places:
            input, history = reader.prompt_text(self.prompts[place])
            samples.append(Sample.of(self.checklists[place], answers[place], input, history=history))
        return self.scorer.score_batch(samples)

    def _numbers(self, scores: Sequence[Score]) -> dict[str, float | None]:
        # Pass rates are those of scored answers: a failed judge leaves only the code checks of an answer.
        scored = [score for score in scores if score.primary_score is not None]
        numbers = {
            "score": _mean([score.primary_score for score in scores]),
            "pass_rate": _mean([score.pass_rate for score in scored]),
            "unscored": sum(score.primary_score is None for score in scores) / len(scores),
        }
        for state in ("empty", "cut_in_thought", "cut"):
            numbers[state] = sum(score.state == state for score in scores) / len(scores)
        lines = [line for score in scored for line in score.items if line.passed is not None]
        for category in self.categories:
            numbers[f"category/{category}"] = _mean([line.passed for line in lines if line.category == category])
        if self._reference_scores is not None:
            numbers["win_rate"] = win_rate(scores, self._reference_scores)
        return numbers

    def _log(self, numbers: Mapping[str, float]) -> None:
        control = self.trainer.control
        should_log = control.should_log
        # Call `log` of the base trainer: TRL's trainers add the running means of training to the next logged metrics
        # and reset them. Logging also clears `should_log`, so restore it: the trainer has yet to log this step.
        Trainer.log(self.trainer, dict(numbers))
        control.should_log = should_log

    def _table(self, answers: Sequence[Target], scores: Sequence[Score]) -> list[dict[str, Any]]:
        step = self.trainer.state.global_step
        rows = [
            {
                "step": step,
                "prompt": prompt if isinstance(prompt, str) else json.dumps(described(prompt), ensure_ascii=False),
                "completion": answer.text,
                "state": score.state,
                "score": score.primary_score,
                "detail": score.model_dump_json(),
            }
            for prompt, answer, score in zip(self.prompts, answers, scores, strict=True)
        ]
        if self.references is not None and self._reference_scores is not None:
            for row, reference, score in zip(rows, self.references, self._reference_scores, strict=True):
                row |= {"reference": reference.text, "reference_score": score.primary_score}
        return rows

    def _write_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        trainer = self.trainer
        step = trainer.state.global_step
        folder = Path(str(trainer.args.output_dir)) / self.name
        try:
            with write_rows(folder / f"step_{step:05d}.jsonl") as table:
                for row in rows:
                    table.write(row)
        except Exception as error:  # a full disk, for example: training must continue
            logger.warning("cannot write the table of step %d (%s); training continues without it.", step, error)
        for tracker in ("wandb", "trackio"):
            if tracker in (trainer.args.report_to or ()):
                try:
                    show_table(importlib.import_module(tracker), f"{self.name}/table", rows)
                except Exception as error:  # a tracker may raise anything; training must continue
                    logger.warning("%s failed to log the table (%r); it is in %s.", tracker, error, folder)
        for callback in trainer.callback_handler.callbacks:
            writer = getattr(callback, "tb_writer", None)
            if writer is not None:
                writer.add_text(f"{self.name}/table", as_markdown(rows[:_SHOWN_ROWS]), step)


def _until(ends: set[int | None], ids: Sequence[int]) -> list[int]:
    """Token ids up to the first end token, which is included."""
    last = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return list(ids[: last + 1])


def _is_lost(score: Score) -> bool:
    """Whether an item of a score is unanswered for a transient reason."""
    return any(is_transient(line.unanswered) for line in score.items)


def win_rate(scores: Sequence[Score], references: Sequence[Score]) -> float | None:
    """Fraction of answers with a higher score than their reference; ties count half. Unscored pairs are excluded."""
    pairs = [(s.primary_score, r.primary_score) for s, r in zip(scores, references, strict=True)]
    return _mean([(s > r) + 0.5 * (s == r) for s, r in pairs if s is not None and r is not None])


def show_table(tracker: Any, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log rows as a table to `tracker`, the module wandb or trackio, which have the same interface."""
    import pandas as pd

    tracker.log({name: tracker.Table(dataframe=pd.DataFrame(list(rows)))})


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, without the `detail` column."""
    keys = [key for key in rows[0] if key != "detail"]
    lines = [keys, ["---"] * len(keys), *([_cell(row[key]) for key in keys] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return ratio(sum(known), len(known))
