"""The dataset card of a published dataset: its contents, its origin, and how to train with it."""

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
    PROMPT: "the prompt of the policy: a string or chat messages",
    "checklist": (
        "the questions about a response: a list of `id`, `question`, `weight` (negative: a penalty), "
        "`category`, `required` (a gate), `options` (possible answers and their values; null means yes and no), "
        "`check` (a code check that answers the question)"
    ),
    "checklist_id": "hash of the whole checklist",
    "checklist_source": "pipeline and version that wrote it",
    "checklist_model": "model that wrote it",
}
_WRITTEN = (
    "The checklists were written by a model and have not been reviewed question by question: inspect a sample before "
    "you train."
)
_IMPORTED = "The checklists were imported unchanged."
_TEXT = """\
# {title}

{prompts} prompts, each with a checklist: questions about whether a response does what the prompt asks. A judge model
answers them, and the answers are used as a reward.

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

The reward is the weighted mean of the answers, computed from the judge's probability of yes.

## Limits

{origin} The prompts keep the licence of their source.

Made with checklist-rewards {version}.
"""


def checklist_card(dataset: Dataset, repo_id: str, *, split: str = "train") -> DatasetCard:
    """Create the card of a dataset with checklist columns.

    Args:
        dataset ([`~datasets.Dataset`]): the dataset, with at least one row.
        repo_id (`str`): the repository on the Hub, "user/name".
        split (`str`, *optional*, defaults to `"train"`): the split in the repository.
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


def completed_card(existing: DatasetCard, ours: DatasetCard) -> DatasetCard:
    """The existing card of a repository, with missing text and metadata filled in from ours."""
    data: dict[str, Any] = ours.data.to_dict() | existing.data.to_dict()
    text = existing.text if existing.text.strip() else ours.text
    return DatasetCard(f"---\n{DatasetCardData(**data).to_yaml()}\n---\n\n{text.lstrip()}")


def _counts(dataset: Dataset) -> list[int]:
    """Number of questions per row."""
    batches = dataset.select_columns("checklist").with_format("arrow").iter(1000)
    return [count for batch in batches for count in pc.list_value_length(batch["checklist"]).to_pylist()]


def _names(dataset: Dataset, column: str) -> list[str]:
    return [f"`{name}`" for name in sorted(filter(None, dataset.unique(column)))]
