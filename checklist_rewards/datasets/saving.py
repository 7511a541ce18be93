"""Saving a dataset atomically, and publishing it with a dataset card."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Any

from datasets import Dataset

from checklist_rewards.datasets.card import checklist_card, completed_card
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.rows import file_format, write_rows


def save_dataset(dataset: Dataset, path: str | Path) -> None:
    """Save to a `.parquet`, `.jsonl` or `.csv` file, or, without an extension, to a folder for
    [`~datasets.load_from_disk`].

    Saving is atomic and replaces an existing file or saved dataset at `path`.

    Args:
        dataset ([`~datasets.Dataset`]): the dataset.
        path (`str` or `Path`): the file or folder.

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
    fresh, old = (path.with_name(f".{path.name}.{secrets.token_hex(4)}.{kind}") for kind in ("tmp", "old"))
    try:
        dataset.save_to_disk(fresh)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
    except OSError as error:
        raise SampleError(f"{path}: cannot be written ({error.strerror or error}).") from error
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)
