"""Images in prompts and responses: one value per image, and the mark that stands for it in a text.

Prompts are built from strings, store keys are their hashes, equal texts are read once. An image therefore stands in a
text as its *mark*, at the place where it stood in the messages. A mark contains the hash of the pixels, so all of this
holds for images too:

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
as long as an [`Image`] with this hash exists: a sample holds those of its texts. A mark is made of two noncharacters
of Unicode and the hash; [`clean`] replaces these characters in texts from outside, so no text can contain an image
that its message did not have.

Pixels are compared as the processors of models see them: rotated as the file says, in RGB, without transparency. Of a
file with several frames, the first one is the image; of a PIL image, the frame that it shows. A PIL image is copied.
An image that is only an address on the web is never fetched here; its hash is that of the address, and only a server
can look at it.

Files are decoded by Pillow, and only in the formats of `FORMATS`: Pillow starts other programs for some of the others.
The size of an image is read from its header and bounded before it is decoded.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.validation import MARKS, without_marks

if TYPE_CHECKING:
    from PIL.Image import Image as Pillow

T = TypeVar("T")

_OPEN, _CLOSE = MARKS
_MARK = re.compile(f"{_OPEN}([0-9a-f]{{32}}){_CLOSE}")
_MARK_LENGTH = 34
_DATA_URL = re.compile(r"data:image(?:/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.I)
_ON_THE_WEB = re.compile(r"https?://", re.I)
_NO_PATH = re.compile(r"data:|[a-z][a-z0-9+.-]+://", re.I)
PLACE = "[image]"
"""What stands for an image in a text for people, and for code that reads text only."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "MPO")
"""The formats of image files that are decoded, as Pillow names them."""
MAX_PIXELS = 64_000_000
"""Pixels of the largest image. A file may claim far more than its bytes suggest."""
MAX_BYTES = 4 * MAX_PIXELS
"""Bytes of the largest image file."""
_LONGEST = 300
"""Characters of the longest path in an error: a text that is no path may have millions."""
_SENT = ("PNG", "JPEG", "WEBP", "GIF")
"""Formats that servers of models accept."""
_ORIENTATION = 0x0112
"""Number of the Exif tag of the rotation."""
_CONTENTS = ("bytes", "path", "url", "image", "image_url")
"""Keys of a cell or part with an image; the first one that has a value counts."""
_STRIP = 32
"""Rows of an image whose bytes are in memory at once: a copy of all pixels takes longer than their hash."""
SEEING = (
    "use a vision-language model, such as Qwen2.5-VL, Gemma 3 or SmolVLM, or a server of one, or omit images with "
    "images='ignore' (--images ignore)"
)
"""What to do about a model that reads text only."""
NOT_FETCHED = (
    "an address, which is not fetched here; download it, use a server that fetches images, or omit images with "
    "images='ignore' (--images ignore)"
)
"""What to do about an image on the web."""
_ALLOWED = "a PIL image, the bytes of an image file, a path, a cell of datasets.Image, a data URL or an address"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Image:
    """An image, decoded when it is needed. Create it with [`image_of`]; equal pixels are one value."""

    key: str
    """Hash of the size and the pixels in RGB, or of the address; 32 hexadecimal digits."""
    size: tuple[int, int] | None
    """Width and height in pixels. None of an image on the web."""
    source: str | None = None
    """The address, or the absolute path, that it came from, of the first value with these pixels that had one."""
    _content: bytes | Pillow | None = field(default=None, repr=False)
    """The bytes of a file, or pixels in RGB."""
    _format: str | None = field(default=None, repr=False)
    """The format of a file that a server can get as it is, because each of its decoders returns the same pixels."""
    _url: str | None = field(default=None, repr=False, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the image of this process with these pixels."""
        return _restored, (self.key, self.size, self.source, self._content, self._format)

    @property
    def mark(self) -> str:
        """What stands for the image in a text."""
        return f"{_OPEN}{self.key}{_CLOSE}"

    @property
    def pillow(self) -> Pillow:
        """The image in RGB. Raises [`SampleError`] for an image on the web."""
        if self._content is None:
            raise SampleError(
                f"the image {self.source} is an address, which is not fetched here; download it, or use a judge on a "
                "server that fetches images."
            )
        return _in_rgb(_opened(self._content)) if isinstance(self._content, bytes) else self._content.copy()

    @property
    def url(self) -> str:
        """The address of an image on the web; of all others, a data URL with the same pixels: of the file if every
        decoder returns the same pixels, or else of a PNG. Made once."""
        if self._content is None:
            assert self.source is not None
            return self.source
        if self._url is None:
            content, kind = self._content, self._format
            if kind is None or not isinstance(content, bytes):
                file, kind = io.BytesIO(), "PNG"
                self.pillow.save(file, kind)
                content = file.getvalue()
            url = f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"
            object.__setattr__(self, "_url", url)
            return url
        return self._url


_KNOWN: WeakValueDictionary[str, Image] = WeakValueDictionary()
"""The images in memory, by key. A key belongs to one content, so it is the same for all."""
_LOCK = threading.Lock()


class TooManyImages(ChecklistRewardsError):
    """A request has more images, or more pixels, than it may have."""


@dataclass
class _Limits:
    """What may be decoded for a request, and what was: `seen`, by its content."""

    images: int
    pixels: int
    counted: int = 0
    seen: dict[bytes, Image] = field(default_factory=dict)

    def require(self, size: tuple[int, int]) -> None:
        """Count an image before it is decoded."""
        self.counted += size[0] * size[1]
        for count, most, what in (
            (len(self.seen) + 1, self.images, "images"),
            (self.counted, self.pixels, "pixels in images"),
        ):
            if count > most:
                raise TooManyImages(f"the request has more than {most:,} {what}; send less at once.")


_LIMITS: ContextVar[_Limits | None] = ContextVar("limits", default=None)


@contextmanager
def bounded(images: int, pixels: int) -> Iterator[None]:
    """Bound the different images that [`image_of`] reads inside of this context, and their pixels together, before
    they are decoded. Equal files are decoded once. Raises [`TooManyImages`]."""
    before = _LIMITS.set(_Limits(images, pixels))
    try:
        yield
    finally:
        _LIMITS.reset(before)


def image_of(
    value: Any,
    where: str = "the image",
    folder: str | Path | None = "",
    may_read: Callable[[Path], bool] | None = None,
) -> Image:
    """The image that a value stands for.

    Args:
        value: A PIL image, the bytes of an image file, a path, an array of shape (height, width, 3) of bytes, a cell
            of `datasets.Image`, an `image_url` part's {"url"}, a data URL, an http(s) address, or an [`Image`].
        where (`str`, *optional*): What the error calls it.
        folder (`str` or `Path`, *optional*): Where relative paths begin; by default, in the working folder. None if
            paths and addresses are refused, such as those of a client of a server.
        may_read (callable, *optional*): Whether the file of a path may be read; by default, every file.

    Raises:
        SampleError: One sentence, if the value is no image or the file cannot be read, or without Pillow.
        TooManyImages: If a request has more than it may have; see [`bounded`].
    """
    if isinstance(value, Image):
        return value
    if is_logged(value):
        return _of_log(value, where, folder, may_read)
    if isinstance(value, Mapping):
        value, source = _of_cell(value, where)
        # Data sets keep the names of files that they have copied, and a client may claim any path.
        placed = None if source is None or folder is None else Path(folder, source)
        source = None if placed is None or not placed.is_file() else str(placed)
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
        source = os.fspath(value).removeprefix("file://")  # as in the messages of Qwen-VL
        if folder is None:
            raise SampleError(f"{where} must be a data URL; got {source!r:.60}.")
        source = str(Path(folder, source))
        if may_read is not None and not may_read(Path(source)):
            raise SampleError(f"{where}: {source!r:.{_LONGEST}} may not be read.")
        try:
            value = _bytes_of(Path(source))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SampleError(f"{where}: {source!r:.{_LONGEST}} cannot be read: {reason}.") from None
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
    elif hasattr(value, "convert"):  # before its __array_interface__, which would load the pixels
        source = source or os.fsdecode(getattr(value, "filename", "")) or None
    elif hasattr(value, "__array_interface__"):
        value = _of_array(value, where)
    else:
        raise SampleError(f"{where} must be {_ALLOWED}; got {type(value).__name__} {value!r:.60}.")
    limits, content = _LIMITS.get(), value if isinstance(value, bytes) else None
    if limits is not None and content is not None and content in limits.seen:
        return limits.seen[content]
    named = f"{where} {source!r:.{_LONGEST}}" if source else where
    with _decoding(named):
        opened = _opened(value)
    if limits is not None:
        limits.require(opened.size)
    with _decoding(named):
        pixels = _in_rgb(opened)
        hashed = blake2b(f"{pixels.width}x{pixels.height}:".encode(), digest_size=16)
        for strip in pixel_bytes(pixels):
            hashed.update(strip)
        held = (pixels,) if content is None else (content, _format_sent(opened))
    absolute = source and os.path.abspath(source)
    image = _kept(Image(hashed.hexdigest(), pixels.size, absolute, *held))
    if limits is not None and content is not None:
        limits.seen[content] = image
    return image


def path_in(value: Any) -> str | None:
    """The path in the value of a cell, for an image that is given by its path alone."""
    while isinstance(value, Mapping) and not is_logged(value):
        value = next((value[name] for name in _CONTENTS if value.get(name) is not None), None)
    return value if isinstance(value, str) and value and not _NO_PATH.match(value) else None


def file_in(value: Any, folder: Path) -> str | None:
    """The file in the value of a cell, for an image that is given by the path of a file alone."""
    path = path_in(value)
    return None if path is None or not os.path.isfile(folder / path) else str(folder / path)


def once_per_content(make: Callable[..., T]) -> Callable[..., T]:
    """`make` as a function that is called once for equal contents: for one object, equal bytes, texts and cells of
    files, and PIL images with equal pixels. A trainer passes an image in the prompt and in the column, and its data
    set decodes it anew for each completion."""
    made: dict[int, tuple[Any, T]] = {}  # with the object, so that no other one gets its id
    alike: dict[Any, list[tuple[Any, T]]] = {}

    def once(value: Any, *where: Any) -> T:
        if id(value) not in made:
            others = alike.setdefault(_outline(value), [])
            found = next((other for other in others if _same_content(value, other[0])), None)
            if found is None:
                found = value, make(value, *where)
                others.append(found)
            made[id(value)] = value, found[1]
        return made[id(value)][1]

    return once


def _outline(value: Any) -> Any:
    """What values of equal content have in common: the content, if it can be hashed; of a PIL image in memory, some of
    its pixels; of another value, that it is the same object."""
    if isinstance(value, Mapping) and all(isinstance(part, str | bytes | None) for part in value.values()):
        return tuple(value.items())
    if _is_loaded(value) and value.mode in ("L", "RGB", "RGBA") and all(value.size):
        with suppress(Exception):  # of an image that is damaged or closed, which its reader reports
            return value.mode, value.size, _orientation(value), value.resize((8, 8), 0).tobytes()  # 0: nearest pixels
    return value if isinstance(value, str | bytes) else id(value)


def _same_content(value: Any, other: Any) -> bool:
    """Whether two values with equal outlines have the same content."""
    if not _is_loaded(value):
        return True
    return all(one == another for one, another in zip(pixel_bytes(value), pixel_bytes(other), strict=True))


def pixel_bytes(image: Pillow) -> Iterator[bytes]:
    """The bytes of an image, some rows at a time."""
    for top in range(0, image.height, _STRIP):
        yield image.crop((0, top, image.width, min(top + _STRIP, image.height))).tobytes()


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


def words_of(text: str) -> str:
    """The text for rules that read its words: spaces in place of each mark, so that places are those of [`shown`]."""
    return _MARK.sub(" " * len(PLACE), text) if _OPEN in text else text


def clean(text: str, images: Collection[Image] = ()) -> str:
    """A text from outside, without the characters of marks. The marks of the given images are kept."""
    if is_plain(text):
        return text
    known = {image.key for image in images}
    pieces = _MARK.split(text)  # texts, and between them keys
    for place, piece in enumerate(pieces):
        pieces[place] = f"{_OPEN}{piece}{_CLOSE}" if place % 2 else without_marks(piece)
        if place % 2 and piece not in known:
            pieces[place] = without_marks(pieces[place])
    return "".join(pieces)


def _kept(image: Image) -> Image:
    """The image with this key that is in memory already, or else this one; with the source of either."""
    with _LOCK:
        kept = _KNOWN.setdefault(image.key, image)
        if kept.source is None:
            object.__setattr__(kept, "source", image.source)
        return kept


def _restored(*fields: Any) -> Image:
    return _kept(Image(*fields))


def _bytes_of(path: Path) -> bytes:
    """The content of a file. Raises `ValueError` for one that may have no end, and for one that is too large."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"it has {status.st_size:,} bytes; at most {MAX_BYTES:,} are allowed")
    return path.read_bytes()


def _of_log(
    logged: Mapping[str, Any], where: str, folder: str | Path | None, may_read: Callable[[Path], bool] | None
) -> Image:
    """The image that was logged, if its file still has the same pixels."""
    path = logged.get("path")
    if path is None:
        raise SampleError(
            f"{where} was logged without a path, so it cannot be read again; log the path, or ignore images."
        )
    image = image_of(path, where, folder, may_read)
    if image.key != logged["hash"]:
        raise SampleError(f"{where}: {path!r} has other pixels than the image that was logged; ignore images.")
    return image


def _of_cell(cell: Mapping[str, Any], where: str) -> tuple[Any, str | None]:
    """The content of a cell of `datasets.Image`, or of the value of an `image_url` part, and its path."""
    path = cell.get("path")
    for name in _CONTENTS:
        if (content := cell.get(name)) is not None:
            if isinstance(content, Mapping):
                return _of_cell(content, where)
            return content, path if isinstance(path, str) else None
    raise SampleError(f"{where} must be {_ALLOWED}; got a mapping with {', '.join(map(repr, cell)) or 'no keys'}.")


def _of_array(value: Any, where: str) -> Pillow:
    try:
        return _pillow(where).fromarray(value)
    except (TypeError, ValueError, KeyError) as error:
        raise SampleError(f"{where} is an array that is no image: {error}.") from None


def _pillow(where: str = "an image") -> Any:
    """Pillow's module of images. Raises [`SampleError`] if Pillow is not installed."""
    try:
        from PIL import Image as PillowModule
    except ImportError as error:
        raise SampleError(f"{where} requires Pillow ({error}): pip install pillow.") from None
    return PillowModule


@contextmanager
def _decoding(named: str) -> Iterator[None]:
    """Convert the error of an image that cannot be decoded to a sentence."""
    pillow = _pillow(named)
    try:
        yield
    except MemoryError:  # of this machine, not of the image
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise SampleError(f"{named} has too many pixels; at most {MAX_PIXELS:,} are allowed.") from None
    except Exception as error:  # a damaged file may raise anything
        raise SampleError(f"{named} cannot be decoded as an image: {error}.") from None


def _opened(content: bytes | Pillow) -> Pillow:
    """An image of which nothing is decoded yet, in one of the formats and with no more than the pixels that are
    allowed; or a PIL image whose pixels are in memory."""
    pillow = _pillow()
    opened: Any = content
    if isinstance(content, bytes):
        try:
            # A file of MPO, several images of JPEG, is opened as JPEG, and then has the format MPO.
            opened = pillow.open(io.BytesIO(content), formats=[kind for kind in FORMATS if kind != "MPO"])
        except pillow.UnidentifiedImageError:
            raise ValueError(f"it is damaged, or not one of {', '.join(FORMATS)}") from None
    elif opened.format not in FORMATS and not _is_loaded(opened):
        raise ValueError(
            f"it is {opened.format}, and not one of {', '.join(FORMATS)}; load it before, if you trust it"
        )
    if opened.width * opened.height > MAX_PIXELS:
        raise ValueError(f"it has {opened.width}x{opened.height} pixels; at most {MAX_PIXELS:,} are allowed")
    return opened


def _is_loaded(value: Any) -> bool:
    """Whether a value is a PIL image whose pixels are in memory."""
    return hasattr(value, "getexif") and getattr(value, "_im", vars(value).get("im")) is not None


def _in_rgb(opened: Pillow) -> Pillow:
    """The pixels in RGB, rotated as the file says: what the processors of transformers see. Channels of 16 bits, of
    which Pillow would show everything but the darkest as white, get their upper 8 bits."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(opened) if _orientation(opened) != 1 else opened
    if turned.mode.startswith("I;16") or (turned.mode == "I" and opened.format == "PNG"):
        turned = turned.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    elif turned.mode in ("I", "F"):
        raise ValueError(f"it has 32 bits per pixel (mode {turned.mode}); convert it to 8 bits per channel")
    return turned.convert("RGB")


def _format_sent(opened: Pillow) -> str | None:
    """The format of an image that was decoded, if all decoders of its file return the same pixels: without rotation,
    transparency, further frames and other colours than RGB and grey."""
    if opened.format not in _SENT or opened.mode not in ("RGB", "L", "P", "1") or "transparency" in opened.info:
        return None
    return None if getattr(opened, "is_animated", False) or _orientation(opened) != 1 else opened.format


def _orientation(opened: Pillow) -> int:
    """The rotation that the file asks for, as Exif names it; 1 is none."""
    return opened.getexif().get(_ORIENTATION, 1)
