"""The dataset card: what a published dataset of checklists holds, where it comes from, and how to train with it."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
from datasets import Dataset
from huggingface_hub import DatasetCard, DatasetCardData

from checklist_rewards.datasets.columns import PROMPT
from checklist_rewards.version import __version__

_TAGS = ["checklist", "checklist-rewards", "reward-model", "trl"]
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_COLUMNS = {
    PROMPT: "what a policy is asked: a string or chat messages",
    "checklist": (
        "the questions about a response to it: a list of `id`, `question`, `weight` (negative: a penalty), "
        "`category`, `required` (a gate), `options` (possible answers and their values; null means yes and no), "
        "`check` (a code check that answers the question)"
    ),
    "checklist_id": "hash of the whole checklist",
    "checklist_source": "pipeline and version that wrote it",
    "checklist_model": "model that wrote it",
}
_WRITTEN = (
    "The checklists were written by a model, and no one has checked their questions one by one: look at some of them "
    "before you train."
)
_IMPORTED = "The checklists were imported as they were."
_TEXT = """\
# {title}

{prompts} prompts, each with a checklist: questions that tell whether a response does what its prompt asks, made to be
answered by a judge model and used as a reward.

| | |
|---|---|
| prompts | {prompts} |
| questions | {questions} ({mean:.1f} per prompt, from {least} to {most}) |
| written by | {models} |
| pipeline | {sources} |

## Columns

{columns}

## Train with it

```python
from datasets import load_dataset
from trl import GRPOTrainer

from checklist_rewards.rewards.trl import ChecklistReward

trainer = GRPOTrainer(
    model="<policy>",
    reward_funcs=ChecklistReward(model="<judge>"),
    train_dataset=load_dataset("{repo_id}", split="{split}"),
)
trainer.train()
```

The reward is the weighted share of the questions that the judge answers well, from its probability of yes.

## Limits

{origin} The prompts keep the licence of where they were taken from.

Made with checklist-rewards {version}.
"""


def checklist_card(dataset: Dataset, repo_id: str, *, split: str = "train") -> DatasetCard:
    """A card for a dataset with checklist columns.

    Args:
        dataset ([`~datasets.Dataset`]): with at least one row.
        repo_id (`str`): "user/name", where it will be.
        split (`str`, *optional*, defaults to `"train"`): the split that it will be there.
    """
    counts = _counts(dataset)
    models, sources = _names(dataset, "checklist_model"), _names(dataset, "checklist_source")
    title = repo_id.rpartition("/")[2]
    text = _TEXT.format(
        title=title,
        repo_id=repo_id,
        split=split,
        prompts=f"{len(dataset):,}",
        questions=f"{sum(counts):,}",
        mean=sum(counts) / len(counts),
        least=min(counts),
        most=max(counts),
        models=", ".join(models) or "not recorded",
        sources=", ".join(sources) or "not recorded",
        origin=_WRITTEN if models else _IMPORTED,
        version=__version__,
        columns="\n".join(f"- `{name}`: {_COLUMNS.get(name, 'from the source')}" for name in dataset.column_names),
    )
    data = DatasetCardData(
        pretty_name=title,
        tags=_TAGS,
        task_categories=["text-generation"],
        size_categories=[next((name for bound, name in _SIZES if len(dataset) < bound), "n>1M")],
    )
    return DatasetCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def completed_card(there: DatasetCard, ours: DatasetCard) -> DatasetCard:
    """A repository's card with what it lacks: its own text and entries stay, ours come where it has none."""
    data: dict[str, Any] = ours.data.to_dict() | there.data.to_dict()
    text = there.text if there.text.strip() else ours.text
    return DatasetCard(f"---\n{DatasetCardData(**data).to_yaml()}\n---\n\n{text.lstrip()}")


def _counts(dataset: Dataset) -> list[int]:
    """Questions of every row."""
    batches = dataset.select_columns("checklist").with_format("arrow").iter(1000)
    return [count for batch in batches for count in pc.list_value_length(batch["checklist"]).to_pylist()]


def _names(dataset: Dataset, column: str) -> list[str]:
    return [f"`{name}`" for name in sorted(filter(None, dataset.unique(column)))]
