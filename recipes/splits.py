"""Loading the data of the training recipes from a Hub id, a folder or a file.

`DataArguments` are the common command-line options; recipes subclass it. An empty file raises an error here, because
the error of `datasets` does not explain the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from checklist_rewards.errors import SampleError

READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}


@dataclass
class DataArguments:
    """Training and test data."""

    dataset_name: str = field(metadata={"help": "A Hub id, a folder or a file (.jsonl, .json, .parquet)."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub dataset."})
    dataset_train_split: str = field(
        default="train", metadata={"help": "Training split; a single file is loaded as this split."}
    )
    dataset_test_split: str = field(
        default="test", metadata={"help": "Test split, loaded if `eval_strategy` is not `no`."}
    )


def load_splits(data: DataArguments) -> DatasetDict:
    """Load the splits of a dataset. A single file, or a folder with a single dataset, is the training split.

    Raises:
        SampleError: If a file has an unknown extension or no rows.
    """
    path = Path(data.dataset_name)
    if path.is_file():
        return _read(path, data.dataset_train_split)
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        saved = load_from_disk(str(path))
        return DatasetDict({data.dataset_train_split: saved}) if isinstance(saved, Dataset) else saved
    return load_dataset(data.dataset_name, name=data.dataset_config)


def _read(path: Path, split: str) -> DatasetDict:
    if path.suffix not in READERS:
        raise SampleError(f"{path}: unknown file extension; allowed: {', '.join(READERS)}.")
    try:
        return load_dataset(READERS[path.suffix], data_files={split: str(path)})
    except (DatasetGenerationError, StopIteration) as error:  # an empty file raises StopIteration
        why = str(error.__cause__ or "").strip() or "it has no rows"
        raise SampleError(f"{path} cannot be read as a dataset: {why.splitlines()[0]:.200}.") from error
