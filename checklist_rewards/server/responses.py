"""Bodies of responses, as ASCII JSON: client data may contain half a surrogate pair, which UTF-8 cannot encode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse

from checklist_rewards.scores import Score
from checklist_rewards.server.rows import ErrorRecord


class AsciiJson(JSONResponse):
    """JSON in ASCII."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return _json(content)


def error_response(
    message: str, errors: Sequence[ErrorRecord], status: int, headers: Mapping[str, str] | None = None
) -> AsciiJson:
    """The response for an error, with one record per row."""
    return AsciiJson({"error": message, "errors": list(errors)}, status, headers=headers)


def score_content(scores: Sequence[Score | None], errors: Sequence[ErrorRecord]) -> bytes:
    """The body of a response of `/score`."""
    items = ",".join("null" if score is None else _score_json(score) for score in scores)
    return b'{"scores":[%s],"errors":%s}' % (items.encode(), _json(errors))


def _score_json(score: Score) -> str:
    try:
        return score.model_dump_json()
    except ValueError:  # half a surrogate pair
        return _json(score.model_dump(mode="json")).decode()


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
