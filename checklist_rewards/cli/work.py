"""The engines and the pipeline of one command: the config with the user's changes, the models and the store.

No model is loaded here. A command assembles its pipeline once, with limits and a bill on the engines. `--concurrency`
is an engine setting, so it requires an engine of its own.

In a dry run, a [`Counter`] takes the place of each engine, counts requests and answers none. The rows, the prompts and
the store are the real ones, so stored answers are not counted. Some things are not known before the run:

- The length of replies is counted at its limit.
- A checklist that is not written yet is counted with as many questions as the writer may produce.
- Second attempts after an unusable reply, and refiners on checklists that are not written yet, are not counted.

Prompt tokens are counted with the model's tokenizer if its files are on this machine, otherwise as one token per byte,
the upper bound (`backends/tokens.py`). Every prompt counts in full, although an engine that shares prefixes computes
fewer tokens; with the tokenizer, that number is shown in a note. The printed cost is therefore an upper bound, except
for requests that fail and are sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typing_extensions import override

from checklist_rewards.backends import (
    OPENAI,
    SERVED,
    Answer,
    Arrived,
    Backend,
    Engine,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    choose_backend,
)
from checklist_rewards.backends.budget import Bill, Budget, Prices, Receipt
from checklist_rewards.backends.tokens import Bounds, Tokens, local_tokenizer
from checklist_rewards.backends.trees import branches_of, floor_tokens
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.output import RunReport, check_outputs
from checklist_rewards.datasets.tasks import RowTask
from checklist_rewards.errors import ConfigError, SampleError, StoreError
from checklist_rewards.files.rows import CHUNK_ROWS, Row, RowWriter, file_format, read_rows_for
from checklist_rewards.files.store import Store
from checklist_rewards.judges import EncoderJudge, Judge, Member
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import CONTEXT, HISTORY, PROMPT, REFERENCE, Columns
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores.reasons import Reason, Unanswered

if TYPE_CHECKING:
    from checklist_rewards.pipelines import Pipeline

ANSWERS, CANDIDATES, CHECKLISTS, SCORES = PURPOSES = ("answers", "candidates", "checklists", "scores")
"""What requests are for, in the order of the table."""
_ANY_LENGTH = 2**31
_UNANSWERED = Unanswered(Reason.BACKEND_ERROR, "dry run")  # a reason that the store does not save


class Counter(Backend):
    """A backend that counts the requests to an engine for one purpose and leaves them unanswered: a line of the table.
    The engine is never loaded."""

    chunk_reads = 4096
    continues = True
    limit = None
    """Unknown: conversations are counted as for a judge that reads them whole, which takes the most tokens."""

    def __init__(self, purpose: str, engine: Engine):
        self.purpose, self.engine, self.name = purpose, engine, engine.backend_name
        self.calls = self.prompt_tokens = self.reply_tokens = self.floor_tokens = 0

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The identity of the engine."""
        return self.engine.identity

    @property
    def context(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the engine reads, if it is an encoder."""
        return EncoderJudge(self.engine).context

    @property
    def sees(self) -> bool:  # type: ignore[override]
        """Whether the engine takes images."""
        return self.engine.sees

    @property
    def in_process(self) -> bool:  # type: ignore[override]
        """Whether the engine runs in this process, where addresses of images are not fetched."""
        return self.engine.in_process

    @property
    def counted(self) -> Engine:
        """The engine that counts, under the name of the model."""
        return Engine(self.engine.model, self, self.engine.base_url)

    @cached_property
    def bounds(self) -> Bounds:
        """Counts the tokens of requests. On an OpenAI-compatible server, a read may take a second one."""
        requests = 2 if isinstance(self.engine.backend, str) and _backend_of(self.engine) == OPENAI else 1
        return Bounds(self.engine.model, local_tokenizer(self.engine.model), requests=requests)

    def cost(self, prices: Prices) -> float | None:
        """Upper bound in US dollars; None if the model has no price."""
        if self.engine.model not in prices:
            return None
        per_prompt, per_reply = prices[self.engine.model]
        return (self.prompt_tokens * per_prompt + self.reply_tokens * per_reply) / 1e6

    @override
    def stand_in(self, max_tokens: int, place: int) -> str:
        """A thought of `max_tokens` words, so that the reads after thoughts are counted too. Thoughts at several
        places differ."""
        return " ".join(["and", "or"][place >> bit & 1] for bit in range(max_tokens))

    @override
    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Count the reads; none is answered."""
        self._count(self.bounds.reads(groups))
        if self.bounds.tokens is not None:
            self.floor_tokens += floor_tokens(branches_of(self.bounds.tokens.groups(groups), _ANY_LENGTH))[1]
        return [Answer(None, _UNANSWERED)] * sum(len(group.tails) for group in groups), Usage()

    @override
    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Count the prompts; the replies are empty."""
        self._count([self.bounds.reply(messages, sampling) for messages in prompts])
        return [[Reply(None, unanswered=_UNANSWERED)] * sampling.n for _ in prompts]

    def _count(self, calls: Sequence[Tokens]) -> None:
        self.calls += len(calls)
        self.prompt_tokens += sum(tokens.prompt for tokens in calls)
        self.reply_tokens += sum(tokens.completion for tokens in calls)


def prices_from(options: Sequence[str] | None) -> Prices:
    """US dollars per million prompt and reply tokens by model, from "MODEL=IN,OUT". Raises [`SampleError`] for a price
    that is not two numbers from 0 up."""
    prices: dict[str, tuple[float, float]] = {}
    for text in options or ():
        model, _, pair = text.rpartition("=")
        try:
            per_prompt, per_reply = map(float, pair.split(","))
        except ValueError:
            raise SampleError(
                f"--price {text}: expected two prices, as in org/model=0.15,0.6 (US dollars per million prompt and "
                "reply tokens)."
            ) from None
        if not model or not (0 <= per_prompt < float("inf") and 0 <= per_reply < float("inf")):
            raise SampleError(f"--price {text}: expected MODEL=IN,OUT, with prices of at least 0.")
        prices[model] = per_prompt, per_reply
    return prices


@dataclass(frozen=True)
class Work:
    """The pipeline config, engines and store of one command. Create it with [`Work.of`]."""

    config: PipelineConfig
    judge: Engine
    writer: Engine | None
    """None for a command that writes no checklists."""
    store: Store | None
    unusable: StoreError | None = None
    """Why the store cannot be opened. A command that asks a judge raises it."""
    concurrency: int | None = None
    budget: Budget | None = None
    prices: Prices = field(default_factory=dict)
    """US dollars per million prompt and reply tokens of each model."""
    dry_run: bool = False
    bill: Bill = field(default_factory=Bill)
    """Cost of writing. The cost of judging is in the scorer's receipt."""
    lines: list[Counter] = field(default_factory=list)
    """The lines of a dry run's table."""

    @classmethod
    def of(
        cls,
        preset: o.Preset,
        store_options: o.StoreOptions,
        *,
        writing: o.Writing | None = None,
        writer: Engine | None = None,
        judge: o.JudgeOptions | None = None,
        concurrency: int | None = None,
        dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
        may_need_no_store: bool = False,
    ) -> Work:
        """The preset, overridden by the user's options. Raises a [`ChecklistRewardsError`] for unusable options; with
        `may_need_no_store`, [`Work.check_judge`] raises that of the store."""
        config = preset.load()
        changes: dict[str, object] = {}
        if writing is not None:
            changes |= {"generator": writing.settings} if writing.settings else {}
            changes |= {"refiners": writing.refiner} if writing.refiner else {}
        if judge is not None and judge.settings:
            changes["scorer"] = judge.settings
        try:
            config = config.replace(changes, "options") if changes else config
        except ConfigError as error:  # without the names of parts, which are those of a config file
            message = re.sub(r"^options: ((scorer|generator): )?", "", str(error))
            raise ConfigError(message) from None
        if config.scorer.judge is not None and concurrency is not None:
            raise SampleError(
                f"--concurrency requires --model: it has no effect on the judges in {config.scorer.judge}; omit it."
            )
        judging, writer = _named_by(config, judge, writing, writer)
        for engine in (judging, writer):
            if concurrency is not None and engine is not None and not _served(engine):
                raise SampleError(
                    f"--concurrency {concurrency} applies to servers only, but {engine.model!r} runs in this process; "
                    "omit it."
                )
        prices = prices_from(dry.price)
        budget = Budget(dry.budget, prices) if dry.budget is not None and not dry.dry_run else None
        store, unusable = None, None
        try:
            store = store_options.open(writes=not dry.dry_run)
        except StoreError as error:
            if dry.dry_run or not may_need_no_store:
                raise
            unusable = error
        return cls(config, judging, writer, store, unusable, concurrency, budget, prices, dry.dry_run)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline of the command. It has a generator only if the command writes checklists."""
        from checklist_rewards.pipelines import assemble  # with all generators; a third of the time to start

        jury, writer = self._jury(), self.writer
        return assemble(
            self.config,
            None if writer is None else self.engine(CHECKLISTS, writer),
            self.engine(SCORES, self.judge) if jury is None else self.judge,
            self.store,
            None if writer is None else lambda name: self.engine(CANDIDATES, writer.named(name)),
            jury,
        )

    @property
    def scorer(self) -> ChecklistScorer:
        """The scorer of a command without a pipeline file, which alone can name another one."""
        assert isinstance(self.pipeline.scorer, ChecklistScorer)
        return self.pipeline.scorer

    @property
    def receipt(self) -> Receipt | None:
        """The cost of judging; None for a scorer that does not count it."""
        return getattr(self.pipeline.scorer, "receipt", None)

    @property
    def judge_name(self) -> str:
        """The judge's name for messages: its model, the file of judges, or the URL of the reward server."""
        judge = self.judge
        return self.config.scorer.judge or (str(judge.base_url) if judge.backend == REMOTE else judge.model)

    def asks(self, checklist: Checklist) -> bool:
        """Whether the judge is asked about any item of a checklist."""
        scorer = self.pipeline.scorer
        return not isinstance(scorer, ChecklistScorer) or scorer.asks(checklist)

    def check_judge(self, asks: bool, rows: object) -> None:
        """Refuse a judge that cannot work, unless no item `asks` it, and weights that no item of these rows has, whose
        checklists have been checked. Warn of single weights that none has. `rows` is None if checklists are not
        written yet."""
        weights = getattr(self.pipeline.scorer, "weights", None)
        if weights is not None and rows is not None:
            weights.check_used(rows)
        if asks and self.unusable is not None:
            raise self.unusable
        if asks:
            self.pipeline.scorer.validate()

    def engine(self, purpose: str, engine: Engine) -> Engine:
        """An engine as the command uses it: within its limits, and with a bill unless it judges. In a dry run, a
        counter."""
        if self.dry_run and engine.backend == REMOTE:
            raise SampleError(
                f"--dry-run counts the requests of this process, but with the backend remote the server at "
                f"{engine.base_url} runs the judge; omit --dry-run, or use another backend."
            )
        if self.dry_run:
            self.lines.append(Counter(purpose, engine))
            return self.lines[-1].counted
        if purpose == SCORES:
            return self._limited(engine)
        return self._limited(engine).within(bill=self.bill)

    def task(self, columns: Columns, **what: Any) -> RowTask:
        """The work on rows as a value for other processes; `what` as in [`RowTask`]."""
        writer = None if self.writer is None else self._limited(self.writer)
        return RowTask(self.config, self._limited(self.judge), columns, writer=writer, **what)

    def account(self, report: RunReport) -> None:
        """Add the cost of writing to the report and, if prices are given, the total cost."""
        prices = self.prices
        report.left_out.update(self.pipeline.left_out)
        spent = self.bill.receipt + report.written
        if spent.calls:
            report.extra |= {
                "writer calls": spent.calls,
                "writer prompt tokens": spent.prompt_tokens,
                "writer reply tokens": spent.completion_tokens,
            }
        if prices:
            judged = report.judged or self.receipt or Receipt()
            cost, of_reads = (spent + judged).cost(prices), judged.cost(prices)
            report.extra["US dollars"] = cost if cost is not None else "unknown: set --price for every model"
            if (
                judged.asked and of_reads is not None and Reason.BUDGET not in report.unanswered
            ):  # refused reads cost nothing
                report.extra["US dollars per read asked"] = of_reads / judged.asked
        if self.budget is not None and self.budget.overshoot:
            report.extra["US dollars over the budget"] = self.budget.overshoot

    def writer_keys(self, keys: o.Keys) -> dict[str, str | None]:
        """The fields that the writer's prompt uses, with the column that the user named for the reference."""
        fields: dict[str, str | None] = {name: None for name in CONTEXT if name in self.pipeline.shown - {HISTORY}}
        return fields if keys.reference_key is None else fields | {REFERENCE: keys.reference_key}

    def _jury(self) -> Judge | Member | None:
        """The judges of a --judge file, each limited by --budget or, in a dry run, replaced by a counter.

        None without a file. Without a budget and a dry run, the scorer reads the file itself.
        """
        if self.config.scorer.judge is None or (self.budget is None and not self.dry_run):
            return None
        store = False if self.store is None else self.store
        return load_jury(self.config.scorer.judge, store, lambda engine: self.engine(SCORES, engine))

    def _limited(self, engine: Engine) -> Engine:
        """The engine limited by --concurrency and --budget."""
        if self.concurrency is not None and _served(engine):
            engine = replace(engine, settings={**engine.settings, "concurrency": self.concurrency})
        return engine if self.budget is None else self.budget.limited(engine)


class RowRun:
    """A command that reads rows, adds columns to them, writes them, and prints a summary. Rows are read twice: once to
    validate them and once to process them.

    Args:
        command (`str`): The name of the command.
        work ([`Work`]): Pipeline, engines and store.
        files ([`Files`]): The files of rows and the summary.
        named (mapping): Arguments of [`Columns.of`].
        card (`Path`, *optional*): Output file of a dataset card.

    Raises:
        SampleError: If a file cannot be read or written, or if there are no rows. Nothing was done at that point.
    """

    def __init__(self, command: str, work: Work, files: o.Files, named: Mapping[str, Any], card: Path | None = None):
        self.report, self.work, self.files = RunReport(command), work, files
        check_outputs(output=files.output, summary=files.summary, card=card)
        file_format(files.output)
        first = next(iter(self), None)
        if first is None:
            raise SampleError(f"{files.rows} has no rows.")
        self.columns = Columns.of(first, **named)
        self.reads, self.asks = 0, False
        """Reads of the checklists seen so far, and whether the judge is asked about any of their items."""

    def expect(self, checklist: Checklist | None, texts: int = 1) -> None:
        """Count the reads of a checklist about a number of texts."""
        if checklist is not None:
            self.reads += texts * len(checklist)
            self.asks = self.asks or self.work.asks(checklist)

    def __iter__(self) -> Iterator[Row]:
        return read_rows_for(self.files.rows, self.files.output)

    def write(
        self, out: RowWriter, process: Callable[[list[Row]], Iterable[Mapping[str, Any]]], size: int = CHUNK_ROWS
    ) -> None:
        """Process the rows in lists of up to `size`, and write the results."""
        for chunk in self.chunks(size):
            for row in process(chunk):
                out.write(row)

    def chunks(self, size: int) -> Iterator[list[Row]]:
        """The rows in lists of up to `size`."""
        rows = iter(self)
        while chunk := list(islice(rows, size)):
            yield chunk

    def finish(self, receipt: Receipt | None) -> NoReturn:
        """Print the summary, write it if the user named a file, and exit: with 1 if anything is missing."""
        self.work.account(self.report)
        raise typer.Exit(self.report.finish(self.files.output, receipt, self.files.summary))


def require_input(columns: Columns, row: Row) -> None:
    """Refuse a file without a column of inputs."""
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)


def asked(columns: Columns, row: Row) -> Any:
    """The prompt of a row for a policy, with its images. Raises [`SampleError`] for a blank one."""
    require_input(columns, row)
    prompt = columns.asked_of(row.data, row.where)
    if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
        raise SampleError(f"{row.where}: the input is empty; a model needs a prompt.")
    return prompt


def _named_by(
    config: PipelineConfig, judge: o.JudgeOptions | None, writing: o.Writing | None, writer: Engine | None
) -> tuple[Engine, Engine | None]:
    """The engines of the judge and the writer, with the config's models where the user named none."""
    if judge is not None and not judge.names_no_model:
        return judge.engine, writer
    judging = None if judge is None else config.scorer.asked.overridden(judge.engine)
    if judge is not None and writer == judge.engine and writing is None:
        writer = judging
    if isinstance(writing, o.Writer | o.OwnWriter) and writing.names_no_model and config.generator.model is not None:
        writer = None if writer is None else writer.named(config.generator.model)
    asked = judging or writer
    assert asked is not None
    return asked, writer


def _served(engine: Engine) -> bool:
    return engine.backend == REMOTE or _backend_of(engine) in SERVED


def _backend_of(engine: Engine) -> str:
    assert isinstance(engine.backend, str)
    return choose_backend(engine.model, engine.backend, engine.base_url)
