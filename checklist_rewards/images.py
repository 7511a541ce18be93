"""Images in prompts and responses: one value per image, and the mark that stands for it in a text.

Texts are passed through this package as strings: prompts are built from them, store keys are their hashes, equal texts
are read once, completions of one prompt share their beginning. An image therefore stands in a text as its *mark*, at
the place where it stood in the messages. A mark contains the hash of the pixels, so all of this holds for images too:

    >>> from PIL import Image as Pillow
    >>> red = image_of(Pillow.new("RGB", (8, 8), "red"))
    >>> text = f"What is this? {red.mark}"
    >>> text == f"What is this? {image_of(Pillow.new('RGB', (8, 8), '#ff0000')).mark}"
    True
    >>> [part if isinstance(part, str) else part.size for part in parts(text)]
    ['What is this? ', (8, 8)]
    >>> shown(text)
    'What is this? [image]'

An engine that sees splits its prompts at the marks ([`parts`]) and gets the pixels by their hash. They are in memory
as long as an [`Image`] with this hash exists: a sample holds those of its texts, and the mark of an image that is not
in memory is an error. A mark is made of two noncharacters of Unicode and the hash; [`clean`] replaces these characters
in texts from outside, so no text can contain an image that its message did not have.

Pixels are compared as the processors of models see them: rotated as the file says, in RGB. An image that is only an
address on the web is never fetched here; its hash is that of the address, and only a server can look at it.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from checklist_rewards.errors import SampleError

if TYPE_CHECKING:
    from PIL.Image import Image as Pillow

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_OPEN}([0-9a-f]{{32}}){_CLOSE}")
_MARK_LENGTH = 34
_FOREIGN = str.maketrans(dict.fromkeys((_OPEN, _CLOSE), "\ufffd"))
_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w=.+-]+)*;base64,", re.I)
_ON_THE_WEB = re.compile(r"https?://", re.I)
PLACE = "[image]"
"""What stands for an image in a text for people, and for code that reads text only."""
MAX_PIXELS = 64_000_000
"""Pixels of the largest image. A file may claim far more than its bytes suggest."""
SEEING = (
    "use a vision-language model, such as Qwen2.5-VL, Gemma 3 or SmolVLM, or a server of one, or omit images with "
    "images='ignore' (--images ignore)"
)
"""What to do about a model that reads text only."""
_ALLOWED = "a PIL image, the bytes of an image file, a path, a cell of datasets.Image, a data URL or an address"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Image:
    """An image, decoded when it is needed. Create it with [`image_of`]; equal pixels are one value."""

    key: str
    """Hash of the size and the pixels in RGB, or of the address; 32 hexadecimal digits."""
    size: tuple[int, int] | None
    """Width and height in pixels. None of an image on the web."""
    source: str | None = None
    """The path or the address that it came from."""
    _content: bytes | Pillow | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the image of this process with these pixels."""
        return _restored, (self.key, self.size, self.source, self._content)

    @property
    def mark(self) -> str:
        """What stands for the image in a text."""
        return f"{_OPEN}{self.key}{_CLOSE}"

    @property
    def place(self) -> str | None:
        """The source, with a path from the root, so that it is found from other folders."""
        return self.source if self.source is None or _ON_THE_WEB.match(self.source) else os.path.abspath(self.source)

    @property
    def pillow(self) -> Pillow:
        """The image in RGB. Raises [`SampleError`] for an image on the web."""
        if self._content is None:
            raise SampleError(
                f"the image {self.source} is an address, which is not fetched here; download it, or use a judge on a "
                "server that fetches images."
            )
        return _decoded(self._content)

    @property
    def url(self) -> str:
        """The address of an image on the web; of all others, a data URL with the same pixels (PNG)."""
        if self._content is None:
            assert self.source is not None
            return self.source
        file = io.BytesIO()
        self.pillow.save(file, "PNG")
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


_KNOWN: WeakValueDictionary[str, Image] = WeakValueDictionary()
"""The images in memory, by key. A key belongs to one content, so it is the same for all."""


def image_of(
    value: Any,
    where: str = "the image",
    folder: str | Path | None = "",
    may_read: Callable[[Path], bool] | None = None,
) -> Image:
    """The image that a value stands for.

    Args:
        value: A PIL image, the bytes of an image file, a path, an array of shape (height, width, 3) of bytes, a cell
            of `datasets.Image` ({"bytes", "path"}), an `image_url` part's {"url"}, a data URL, an http(s) address, or
            an [`Image`].
        where (`str`, *optional*): What the error calls it.
        folder (`str` or `Path`, *optional*): Where relative paths begin; by default, in the working folder. None if
            paths and addresses are refused, such as those of a client of a server.
        may_read (callable, *optional*): Whether the file of a path may be read; by default, every file.

    Raises:
        SampleError: One sentence, if the value is no image or the file cannot be read.
    """
    if isinstance(value, Image):
        return value
    if is_logged(value):
        return _of_log(value, where, folder)
    if isinstance(value, Mapping):
        value, source = _of_cell(value, where)
    else:
        source = None
    if isinstance(value, str) and folder is not None and _ON_THE_WEB.match(value):
        return _kept(Image(blake2b(value.encode(), digest_size=16).hexdigest(), None, value))
    if isinstance(value, str) and (match := _DATA_URL.match(value)):
        try:
            value = base64.b64decode(value[match.end() :], validate=True)
        except binascii.Error as error:
            raise SampleError(f"{where} is a data URL that cannot be decoded: {error}.") from None
    if isinstance(value, str | os.PathLike):
        source = os.fspath(value)
        if folder is None:
            raise SampleError(f"{where} must be a data URL; got {source!r:.60}.")
        source = str(Path(folder, source))
        if may_read is not None and not may_read(Path(source)):
            raise SampleError(f"{where}: {source!r} may not be read.")
        try:
            value = Path(source).read_bytes()
        except (OSError, ValueError) as error:
            raise SampleError(
                f"{where}: {source!r} cannot be read: {getattr(error, 'strerror', None) or error}."
            ) from None
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
    elif hasattr(value, "__array_interface__") and not hasattr(value, "convert"):
        value = _of_array(value, where)
    elif hasattr(value, "convert"):
        source = source or getattr(value, "filename", None) or None
    else:
        raise SampleError(f"{where} must be {_ALLOWED}; got {type(value).__name__} {value!r:.60}.")
    try:
        pixels = _decoded(value)
        content = pixels.tobytes()
    except Exception as error:  # a damaged file may raise anything
        named = f" {source!r}" if source else ""
        raise SampleError(f"{where}{named} cannot be decoded as an image: {error}.") from None
    key = blake2b(f"{pixels.width}x{pixels.height}:".encode() + content, digest_size=16).hexdigest()
    return _kept(Image(key, pixels.size, source, value))


def is_logged(value: Any) -> bool:
    """Whether a value is an image in a reward log: its hash, and its path if it has one."""
    return isinstance(value, Mapping) and isinstance(value.get("hash"), str) and value.keys() <= {"hash", "path"}


def parts(text: str) -> list[str | Image]:
    """A text as its parts, in order: texts, which are not empty, and images. Raises [`SampleError`] for the mark of an
    image that is not in memory."""
    pieces = _MARK.split(text)  # texts, and between them keys
    found: list[str | Image] = []
    for place, piece in enumerate(pieces):
        if place % 2:
            image = _KNOWN.get(piece)
            if image is None:
                raise SampleError(f"the image {piece} of a text is not in memory; read its row again.")
            found.append(image)
        elif piece:
            found.append(piece)
    return found


def images_in(*texts: str | None) -> list[Image]:
    """The images of some texts, in order."""
    return [part for text in texts if text and _OPEN in text for part in parts(text) if isinstance(part, Image)]


def has_images(text: str | None) -> bool:
    """Whether a text contains the mark of an image."""
    return text is not None and _OPEN in text and _MARK.search(text) is not None


def outside(text: str, place: int) -> int:
    """The first place in a text, from a place on, that is not inside of a mark."""
    opened = text.rfind(_OPEN, max(0, place - _MARK_LENGTH), place)
    mark = _MARK.match(text, opened) if opened >= 0 else None
    return place if mark is None else max(place, mark.end())


def is_plain(text: Any) -> bool:
    """Whether a value has no character of a mark."""
    return not isinstance(text, str) or (_OPEN not in text and _CLOSE not in text)


def shown(text: str) -> str:
    """The text for people and for code that reads text only, with "[image]" in place of each mark."""
    return _MARK.sub(PLACE, text) if _OPEN in text else text


def clean(text: str, images: Collection[Image] = ()) -> str:
    """A text from outside, without the characters of marks. The marks of the given images are kept."""
    if is_plain(text):
        return text
    known = {image.key for image in images}
    pieces = _MARK.split(text)  # texts, and between them keys
    for place, piece in enumerate(pieces):
        pieces[place] = f"{_OPEN}{piece}{_CLOSE}" if place % 2 else piece.translate(_FOREIGN)
        if place % 2 and piece not in known:
            pieces[place] = pieces[place].translate(_FOREIGN)
    return "".join(pieces)


def _kept(image: Image) -> Image:
    """The image with this key that is in memory already, or else this one."""
    return _KNOWN.setdefault(image.key, image)


def _restored(*fields: Any) -> Image:
    return _kept(Image(*fields))


def _of_log(logged: Mapping[str, Any], where: str, folder: str | Path | None) -> Image:
    """The image that was logged, if its file still has the same pixels."""
    path = logged.get("path")
    if path is None:
        raise SampleError(
            f"{where} was logged without a path, so it cannot be read again; log the path, or ignore images."
        )
    image = image_of(path, where, folder)
    if image.key != logged["hash"]:
        raise SampleError(f"{where}: {path!r} has other pixels than the image that was logged; ignore images.")
    return image


def _of_cell(cell: Mapping[str, Any], where: str) -> tuple[Any, str | None]:
    """The content of a cell of `datasets.Image`, or of the value of an `image_url` part, and its path."""
    path = cell.get("path")
    for name in ("bytes", "path", "url", "image", "image_url"):
        if (content := cell.get(name)) is not None:
            if isinstance(content, Mapping):
                return _of_cell(content, where)
            return content, path if isinstance(path, str) else None
    raise SampleError(f"{where} must be {_ALLOWED}; got a mapping with {', '.join(map(repr, cell)) or 'no keys'}.")


def _of_array(value: Any, where: str) -> Pillow:
    from PIL import Image as PillowModule

    try:
        return PillowModule.fromarray(value)
    except (TypeError, ValueError, KeyError) as error:
        raise SampleError(f"{where} is an array that is no image: {error}.") from None


def _decoded(content: bytes | Pillow) -> Pillow:
    """The pixels in RGB, rotated as the file says: what the processors of transformers see."""
    from PIL import Image as PillowModule
    from PIL import ImageOps

    opened: Any = PillowModule.open(io.BytesIO(content)) if isinstance(content, bytes) else content
    if opened.width * opened.height > MAX_PIXELS:
        raise ValueError(f"it has {opened.width}x{opened.height} pixels; at most {MAX_PIXELS:,} are allowed")
    return ImageOps.exif_transpose(opened).convert("RGB")
