"""Loading the data of a training script from a Hub id, a folder or a file.

[`DataArguments`] are command-line options for `trl.TrlParser`; scripts subclass it. An empty file and a missing split
raise an error here, because the errors of `datasets` do not name the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from checklist_rewards.errors import SampleError
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

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


def load_splits(data: DataArguments, *, evaluates: bool) -> tuple[Dataset, Dataset | None]:
    """Load the training split, and the test split if the run evaluates.

    A single file, or a folder with a single dataset, is the training split.

    Raises:
        SampleError: If a file has an unknown extension or no rows, or if a split does not exist.
    """
    splits = _load(data)
    wanted = {"dataset_train_split": data.dataset_train_split}
    if evaluates:
        wanted["dataset_test_split"] = data.dataset_test_split
    for option, name in wanted.items():
        if name not in splits:
            advice = ", or eval_strategy='no'" if option == "dataset_test_split" else ""
            raise SampleError(
                f"{data.dataset_name} has no split {name!r}; the splits are {', '.join(splits)}. Set {option}{advice}."
            )
    return splits[data.dataset_train_split], splits[data.dataset_test_split] if evaluates else None


def _load(data: DataArguments) -> DatasetDict:
    [datasets] = import_extra("datasets", extra="datasets")
    path = Path(data.dataset_name)
    if path.is_file():
        if path.suffix not in READERS:
            raise SampleError(f"{path}: unknown file extension; allowed: {', '.join(READERS)}.")
        try:
            return datasets.load_dataset(READERS[path.suffix], data_files={data.dataset_train_split: str(path)})
        except (datasets.exceptions.DatasetGenerationError, StopIteration) as error:  # an empty file: StopIteration
            why = str(error.__cause__ or "").strip() or "it has no rows"
            late = "; its first rows set the types of a JSON file, so write .parquet instead" if "cast" in why else ""
            raise SampleError(f"{path} cannot be read as a dataset: {why.splitlines()[0]:.200}{late}.") from error
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        saved = datasets.load_from_disk(str(path))
        single = isinstance(saved, datasets.Dataset)
        return datasets.DatasetDict({data.dataset_train_split: saved}) if single else saved
    return datasets.load_dataset(data.dataset_name, name=data.dataset_config)
