"""Thumbnails of the images of rows, for the report and the app.

A thumbnail is a JPEG of at most 96 pixels in a data URL, made with Pillow while the report is written. Nothing is
fetched: an image that is only an address is shown as this address. An image that cannot be read is shown as the
sentence of the error, so no image makes a report fail. The number of images is bounded per row and per report.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.images import Image, image_of, is_logged

SIDES = (96, 64, 32)
"""Longest side in pixels. A thumbnail with too many bytes is made smaller."""
MAX_BYTES = 4096
MAX_IMAGES = 300
"""Different images of a report."""
MAX_OF_A_ROW = 16
_LONGEST = 300


@dataclass
class Thumbnails:
    """The thumbnails of a report. Equal cells are read once.

    Args:
        may_read (callable, *optional*): Whether a file may be read; by default, every file.
    """

    may_read: Callable[[Path], bool] | None = None
    left_out: int = 0
    """Number of images that are not shown, because there were too many."""
    _made: dict[bytes, str] = field(default_factory=dict, repr=False)

    def of(self, record: ScoredText) -> list[str]:
        """The thumbnails of a row, in order; for an image without one, its address or why it is not shown."""
        images, own = record.images, len(record.prompt_images)
        found = [
            # A policy may have written a path into its text. A log has the paths of the images that were seen.
            self._of(image, record.columns.folder if place < own or is_logged(image) else None)
            for place, image in enumerate(images[:MAX_OF_A_ROW])
        ]
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
            self._made[key] = self._read(image, folder)
        return self._made[key]

    def _read(self, image: Any, folder: Path | None) -> str:
        try:
            return thumbnail(image_of(image, "not shown: it", folder, self.may_read))
        except (SampleError, RecursionError) as error:
            return str(error)[:_LONGEST]


def thumbnail(image: Image) -> str:
    """A data URL of the image in small; the address of an image on the web."""
    if image.size is None:
        return str(image.source)[:_LONGEST]
    pixels = image.pillow
    content = b""
    for side in SIDES:
        pixels.thumbnail((side, side))
        file = io.BytesIO()
        pixels.save(file, "JPEG", quality=70)
        content = file.getvalue()
        if len(content) <= MAX_BYTES:
            break
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
