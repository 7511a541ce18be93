"""What the two kinds of guests have in common: the messages, and how a guest ends."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

PROGRAM = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
"""What every guest runs."""
MESSAGE_BYTES = 16 * 2**20
"""The longest message of a guest."""


class Ended(Exception):
    """A guest ended before it answered: "out of time", "left early", "crashed" or "said too much"."""


class Guest(Protocol):
    """A Python interpreter that runs `inside.py`."""

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the answer. Raises [`Ended`] if none will come."""

    def close(self) -> None:
        """End the guest, whatever it does."""


def framed(payload: bytes) -> bytes:
    """A message as it is sent: its length in eight bytes, then the payload."""
    return len(payload).to_bytes(8, "big") + payload


def unframed(data: bytes) -> bytes:
    """The payload of what a guest has sent. Raises [`Ended`] unless that is exactly one message."""
    if len(data) < 8 or int.from_bytes(data[:8], "big") != len(data) - 8:
        raise Ended("crashed")
    return data[8:]
