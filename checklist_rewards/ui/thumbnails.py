"""The images of rows: thumbnails for the report and the app, and the images of a request of the page for the judge.

A thumbnail is a JPEG of at most 96 pixels in a data URL, made with Pillow while the report is written. Nothing is
fetched: an image that is only an address is shown as this address. An image that cannot be read is shown as the
sentence of the error, so no image makes a report fail. The number of images is bounded per row and per report.

A page has the texts of a row with "[image]" in place of each image, and names the row when it sends them. [`with_row`]
puts the images of the row at these places. They are read as the row says: a page names no image.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.images import PLACE, Image, image_of, is_logged

SIDE = 96
"""Longest side in pixels."""
MAX_IMAGES = 300
"""Different images of a report."""
MAX_OF_A_ROW = 16
_LONGEST = 300


@dataclass
class Thumbnails:
    """The thumbnails of a report. Equal cells are read once."""

    may_read: Callable[[Path], bool] | None = None
    """Whether a file may be read; by default, every file."""
    left_out: int = 0
    """Number of images that are not shown, because there were too many."""
    _made: dict[bytes, str] = field(default_factory=dict, repr=False)

    def of(self, record: ScoredText) -> list[str]:
        """The thumbnails of a row, in order; for an image without one, its address or why it is not shown."""
        images = [image for part in _placed(record) for image in part]
        found = [self._of(image, folder) for image, folder in images[:MAX_OF_A_ROW]]
        more = len(images) - len(found)
        self.left_out += more
        return [*found, *([f"{more:,} more images are not shown"] if more > 0 else [])]

    @property
    def notes(self) -> list[str]:
        """A sentence about images that were left out; none if all are shown."""
        if not self.left_out:
            return []
        most = f"at most {MAX_IMAGES} different images, and {MAX_OF_A_ROW} of a row"
        return [f"{self.left_out:,} images are not shown: a report has thumbnails of {most}."]

    def _of(self, image: Any, folder: Path | None) -> str:
        if image is None:
            return "not shown: its row does not have it"
        key = blake2b(pickle.dumps((folder, image))).digest()
        if key not in self._made:
            if len(self._made) >= MAX_IMAGES:
                self.left_out += 1
                return "not shown: too many images"
            try:
                self._made[key] = thumbnail(image_of(image, "not shown: it", folder, self.may_read))
            except (SampleError, RecursionError) as error:
                self._made[key] = str(error)[:_LONGEST]
        return self._made[key]


def _placed(record: ScoredText) -> tuple[list[tuple[Any, Path | None]], list[tuple[Any, Path | None]]]:
    """The images of the prompt and of the text, each with the folder in which its path begins; None if it may have no
    path."""
    folder, own = record.columns.folder, len(record.prompt_images)
    # A policy may have written a path into its text. A log has the paths of the images that were seen.
    target = [(image, folder if is_logged(image) else None) for image in record.images[own:]]
    return [(image, folder) for image in record.prompt_images], target


def has_places(body: Mapping[str, Any], *names: str) -> bool:
    """Whether one of these texts of a request has the place of an image."""
    return any(PLACE in str(body.get(name)) for name in names)


def with_row(body: Mapping[str, Any], record: ScoredText, may_read: Callable[[Path], bool]) -> dict[str, Any]:
    """A request of the page with the images of its row: an `input` and a `target` with "[image]" in them become chat
    messages with the images in their order. A text without "[image]" is judged without images.

    Raises:
        SampleError: If a text has more or fewer places than the row has images, or an image cannot be read.
    """
    found = dict(body)
    texts = (("input", "user", "prompt"), ("target", "assistant", "response"))
    for (name, role, what), images in zip(texts, _placed(record), strict=True):
        text = body.get(name)
        if not isinstance(text, str) or PLACE not in text:
            continue
        first, *others = text.split(PLACE)
        if len(others) != len(images):
            raise SampleError(
                f"the {what} has {PLACE} {len(others)} times, but {record.where} has {len(images)} images for it; "
                f"open the row again, or remove {PLACE} to use the text alone."
            )
        parts: list[Mapping[str, Any]] = [{"type": "text", "text": first}]
        for number, ((image, folder), after) in enumerate(zip(images, others, strict=True), start=1):
            where = f"image {number} of the {what} of {record.where}"
            if image is None:
                raise SampleError(f"{where} is missing: its row does not have it.")
            seen = image_of(image, where, folder, may_read)
            parts += [{"type": "image", "image": seen}, {"type": "text", "text": after}]
        found[name] = [{"role": role, "content": parts}]
    return found


def thumbnail(image: Image) -> str:
    """A data URL of the image in small; the address of an image on the web."""
    if image.size is None:
        return str(image.source)[:_LONGEST]
    pixels, file = image.pillow, io.BytesIO()
    pixels.thumbnail((SIDE, SIDE))
    pixels.save(file, "JPEG", quality=70)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
