"""Where the training recipes get their data: a Hub id, a folder or a file, as the splits of a dataset.

`DataArguments` are the options that say which; a recipe adds its own to them. A file without rows is refused here,
because what reads it further down says nothing that helps.
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
    """What is trained on."""

    dataset_name: str = field(metadata={"help": "A Hub id, a folder or a file (.jsonl, .json, .parquet)."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub dataset."})
    dataset_train_split: str = field(default="train", metadata={"help": "A single file is this split."})
    dataset_test_split: str = field(default="test", metadata={"help": "Read if `eval_strategy` is not no."})


def load_splits(data: DataArguments) -> DatasetDict:
    """The dataset's splits; a single file, or a folder of one dataset, is its train split.

    Raises:
        SampleError: for a file of another kind, or one that has no rows.
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
        raise SampleError(f"{path}: unknown kind of file; allowed: {', '.join(READERS)}.")
    try:
        return load_dataset(READERS[path.suffix], data_files={split: str(path)})
    except (DatasetGenerationError, StopIteration) as error:  # the second is how an empty file ends
        why = str(error.__cause__ or "").strip() or "it has no rows"
        raise SampleError(f"{path} cannot be read as a dataset: {why.splitlines()[0]:.200}.") from error
