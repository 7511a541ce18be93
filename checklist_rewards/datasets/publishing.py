"""Saving a dataset atomically, and publishing it with a card: its contents, its origin, and how to train with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from datasets import Dataset
from huggingface_hub import DatasetCard, DatasetCardData

from checklist_rewards.datasets.columns import PROMPT
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import atomic_path, replace_folder
from checklist_rewards.files.rows import file_format, write_rows
from checklist_rewards.version import __version__

_TAGS = ["checklist", "checklist-rewards", "reward-model", "trl"]
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_COLUMNS = {
    PROMPT: "the prompt of the policy: a string or chat messages",
    "checklist": (
        "the questions about a response: a list of `id`, `question`, `weight` (negative: a penalty), "
        "`category`, `required` (a gate), `options` (possible answers and their values; null means yes and no), "
        "`check` (a code check that answers the question), `scope` (the messages it is about), `evidence` (the part "
        "of the prompt that states it)"
    ),
    "checklist_id": "hash of the whole checklist",
    "checklist_source": "pipeline and version that wrote it",
    "checklist_model": "model that wrote it",
}
_WRITTEN = (
    "The checklists were written by a model and have not been reviewed question by question: inspect a sample before "
    "you train."
)
_IMPORTED = "The checklists were imported or found by rules; no model wrote them."
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
    """Create the card of a dataset with checklist columns and at least one checklist, for a split of the repository
    `repo_id` ("user/name"). Rows without a checklist, which `generate` writes after a failure, do not count."""
    batches = dataset.select_columns("checklist").with_format("arrow").iter(1000)
    counts = [count for batch in batches for count in pc.list_value_length(batch["checklist"]).drop_null().to_pylist()]
    models, sources = _names(dataset, "checklist_model"), _names(dataset, "checklist_source")
    title = repo_id.rpartition("/")[2]
    text = _TEXT.format(
        title=title,
        repo_id=repo_id,
        split=split,
        prompts=f"{len(counts):,}",
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


def _names(dataset: Dataset, column: str) -> list[str]:
    return [f"`{name}`" for name in sorted(filter(None, dataset.unique(column)))]


def save_dataset(dataset: Dataset, path: str | Path) -> None:
    """Save to a `.parquet`, `.jsonl` or `.csv` file, or, without an extension, to a folder for
    [`~datasets.load_from_disk`]. Saving is atomic and replaces an existing file or saved dataset at `path`.

    Raises:
        SampleError: If `path` cannot be written, or is a folder with content other than a saved dataset.
    """
    path = Path(path)
    if not path.suffix or path.is_dir():
        _save_folder(dataset, path)
    elif file_format(path) == ".parquet":
        with atomic_path(path) as temporary:
            dataset.to_parquet(temporary)
    else:
        with write_rows(path) as rows:
            for row in dataset:
                rows.write(row)


def push_to_hub(dataset: Dataset, repo_id: str, **options: Any) -> str:
    """Push to the Hub with a dataset card ([`checklist_card`]). An existing card keeps its text.

    Args:
        dataset ([`~datasets.Dataset`]): a dataset with checklist columns.
        repo_id (`str`): the repository, "user/name".
        **options: arguments of [`~datasets.Dataset.push_to_hub`], such as `private`, `split`, `token` or `revision`.

    Returns:
        `str`: The URL of the commit with the data.
    """
    from huggingface_hub import DatasetCard, HfApi

    if not isinstance(dataset, Dataset):
        raise SampleError(
            f"the card counts rows, which {type(dataset).__name__} cannot report; call its own push_to_hub(repo_id, "
            "num_shards=...), which adds no card."
        )
    card = checklist_card(dataset, repo_id, split=options.get("split") or "train")
    commit = dataset.push_to_hub(repo_id, **options)
    api = HfApi(token=options.get("token"))
    place: dict[str, Any] = {
        "repo_id": repo_id,
        "repo_type": "dataset",
        "revision": commit.pr_revision or options.get("revision"),
    }
    # push_to_hub has just written a README with the metadata that load_dataset needs; it must be kept.
    existing = DatasetCard(Path(api.hf_hub_download(filename="README.md", **place)).read_text(encoding="utf-8"))
    text = str(completed_card(existing, card)).encode()
    api.upload_file(path_or_fileobj=text, path_in_repo="README.md", commit_message="Dataset card", **place)
    return commit.commit_url


def _save_folder(dataset: Dataset, path: Path) -> None:
    if path.exists() and not (path / "dataset_info.json").is_file() and (path.is_file() or any(path.iterdir())):
        raise SampleError(f"{path}: cannot be written, because it exists and is not a saved dataset.")
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            dataset.save_to_disk(Path(folder, "finished"))
            replace_folder(Path(folder, "finished"), path, Path(folder, "replaced"))
    except OSError as error:
        raise SampleError(f"{path}: cannot be written ({error.strerror or error}).") from error
