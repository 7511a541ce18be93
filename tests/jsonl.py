"""Files of JSON lines."""

import json
from pathlib import Path


def write_jsonl(path: str | Path, *rows: object) -> Path:
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return Path(path)


def read_jsonl(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
