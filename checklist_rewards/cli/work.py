"""From CLI options to a pipeline: the config with the user's changes, the writer, the judge and the store.

No model is loaded here. `--concurrency` is an engine setting, so it requires an engine of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from checklist_rewards.backends import Engine, choose_backend
from checklist_rewards.backends.servers import OPENAI
from checklist_rewards.cli import options as o
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.report import Report
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.base import Judge, Prices, Receipt
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.jury import load_jury
from checklist_rewards.judges.meter import Meter
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.pipelines import Pipeline, PipelineConfig, assemble
from checklist_rewards.scores.reasons import Reason

_WRITER_FIELDS = ("reference", "context", "candidates", "chosen", "rejected")


@dataclass(frozen=True)
class Work:
    """The pipeline config, engines and store of one command. Create it with [`Work.of`]."""

    config: PipelineConfig
    writer: Engine
    judge: Engine
    store: Store | None
    concurrency: int | None = None
    budget: Budget | None = None
    writes: bool = False
    """Whether the command writes checklists. If not, `writer` is unused with a file of judges."""
    meters: list[Meter] = field(default_factory=list)
    """Cost of writing. The cost of judging is in the scorer's receipt."""

    @classmethod
    def of(
        cls,
        preset: o.Preset,
        kept: o.Kept,
        *,
        writing: o.Writing | None = None,
        writer: Engine | None = None,
        judge: o.Judge | None = None,
        concurrency: int | None = None,
        dry: o.Dry | None = None,
    ) -> Work:
        """The preset, overridden by the user's options. Raises a [`ChecklistRewardsError`] for unusable options."""
        config = preset.load()
        changes: dict[str, object] = {}
        if writing is not None:
            changes |= {"generator": writing.settings} if writing.settings else {}
            changes |= {"refiners": writing.refiner} if writing.refiner else {}
        if judge is not None and judge.settings:
            changes["scorer"] = judge.settings
        config = config.replace(changes, "options") if changes else config
        if config.scorer.judge is not None:
            _alone(config.scorer.judge, concurrency, dry)
        judging = judge.engine if judge is not None else writer
        assert judging is not None
        for engine in (judging, writer):
            if concurrency is not None and engine is not None and not _served(engine):
                raise SampleError(
                    f"--concurrency {concurrency} applies to servers only, but {engine.model!r} runs in this process; "
                    "omit it."
                )
        budget = None
        if dry is not None and dry.budget is not None and not dry.dry_run:
            budget = Budget(dry.budget, prices_from(dry.price))
        return cls(config, writer or judging, judging, kept.opened(), concurrency, budget, writer is not None)

    def pipeline(self, engine: Callable[[Engine], Engine] | None = None) -> Pipeline:
        """The pipeline for checking rows. `engine`, if given, replaces each engine (a dry run counts this way)."""
        put, jury = engine or self.limited, self._jury()
        if jury is None:
            judge = put(self.judge)
            writer = judge if self.writer == self.judge and engine is None else put(self.writer)
        else:
            judge, writer = self.judge, put(self.writer) if self.writes else self.writer
        return assemble(
            self.config, writer, judge, self.store, lambda name: put(replace(self.writer, model=name)), jury
        )

    def metered(self) -> Pipeline:
        """The pipeline for doing the work, with a meter on the writer's engines."""
        jury = self._jury()
        judge = self.limited(self.judge) if jury is None else self.judge
        writer = judge if self.writer == self.judge and jury is None else self.limited(self.writer)
        return assemble(
            self.config,
            self.metered_engine(writer),
            judge,
            self.store,
            lambda name: self.metered_engine(self.limited(replace(self.writer, model=name))),
            jury,
        )

    def _jury(self) -> Judge | None:
        """The judges of a --judge file, each limited by --budget; None without a file or a budget.

        Without a budget, the scorer reads the file itself.
        """
        if self.config.scorer.judge is None or self.budget is None:
            return None
        return load_jury(self.config.scorer.judge, False if self.store is None else self.store, self.limited)

    def account(self, report: Report, pipe: Pipeline, prices: Prices) -> None:
        """Add the cost of writing to the report and, if prices are given, the total cost."""
        spent = sum((meter.spent for meter in self.meters), Receipt())
        if spent.calls:
            report.extra |= {
                "writer calls": spent.calls,
                "writer prompt tokens": spent.prompt_tokens,
                "writer reply tokens": spent.completion_tokens,
            }
        if prices:
            judged = getattr(pipe.scorer, "receipt", Receipt())
            cost, of_reads = (spent + judged).cost(prices), judged.cost(prices)
            report.extra["US dollars"] = cost if cost is not None else "unknown: set --price for every model"
            if (
                judged.asked and of_reads is not None and Reason.BUDGET not in report.unanswered
            ):  # refused reads cost nothing
                report.extra["US dollars per read asked"] = of_reads / judged.asked
        if self.budget is not None and self.budget.overshoot:
            report.extra["US dollars over the budget"] = self.budget.overshoot

    def metered_engine(self, engine: Engine) -> Engine:
        """The engine with a meter on its replies."""
        self.meters.append(Meter(engine))
        return Engine(engine.model, self.meters[-1], engine.base_url)

    def limited(self, engine: Engine) -> Engine:
        """The engine limited by --concurrency and --budget."""
        limited = self._paced(engine)
        return limited if self.budget is None else self.budget.limited(limited)

    def _paced(self, engine: Engine) -> Engine:
        if self.concurrency is None or not _served(engine):
            return engine
        return replace(engine, settings={**engine.settings, "concurrency": self.concurrency})

    def writer_keys(self, keys: o.WriterKeys) -> dict[str, str | None]:
        """The fields that the writer's prompt uses, each with the column named by the user."""
        shown = self.pipeline().shown
        named = {name: getattr(keys, f"{name}_key") for name in _WRITER_FIELDS}
        return {name: key for name, key in named.items() if name in shown or key is not None}


def _alone(judges: str, concurrency: int | None, dry: o.Dry | None) -> None:
    """Refuse options that have no effect on the judges of a --judge file."""
    for option, there in (("--dry-run", dry is not None and dry.dry_run), ("--concurrency", concurrency is not None)):
        if there:
            raise SampleError(f"{option} requires --model: it has no effect on the judges in {judges}; omit it.")


def _served(engine: Engine) -> bool:
    assert isinstance(engine.backend, str)
    return engine.backend == REMOTE or choose_backend(engine.model, engine.backend, engine.base_url) == OPENAI
