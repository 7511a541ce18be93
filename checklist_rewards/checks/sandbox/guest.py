"""The interface of guests: interpreters for untrusted code, and the messages exchanged with them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

PROGRAM = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
"""The program that every guest runs."""
MESSAGE_BYTES = 16 * 2**20
"""Maximum length of a message from a guest."""


class Ended(Exception):
    """A guest ended before it replied; the message is the reason: "out of time", "left early", "crashed", ..."""


class Guest(Protocol):
    """A Python interpreter that runs `inside.py`."""

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the reply. Raises [`Ended`] if the guest ends without one."""

    def close(self) -> None:
        """Stop the guest, whatever it is doing."""


def framed(payload: bytes) -> bytes:
    """Encode a message: its length in eight bytes, then the payload."""
    return len(payload).to_bytes(8, "big") + payload


def unframed(data: bytes) -> bytes:
    """Decode the message that a guest has sent. Raises [`Ended`] unless `data` is exactly one message."""
    if len(data) < 8 or int.from_bytes(data[:8], "big") != len(data) - 8:
        raise Ended("crashed")
    return data[8:]
