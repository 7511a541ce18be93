"""Save a trained adapter as the packaged judge `english`, with its model card.

    python recipes/english/save.py --runs runs/english --probes runs/english/probes.json

Reads the adapter `<runs>/adapter-all` (`train.py`) and its figures `<runs>/figures.json` (`protocol.py`). The
weights are saved in float16, which halves the wheel's share of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.train import ADAPTER, RECORD, name_of  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from checklist_rewards.backends.packaged import SMOLLM2, english_adapter  # noqa: E402
from checklist_rewards.evaluation.agreement import Figure  # noqa: E402

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_CARD = Path(__file__).with_name("card.md")


def save(adapter: Path, output: Path, card: str) -> None:
    """Write the adapter in float16, its configuration and the card. Each file is replaced atomically."""
    output.mkdir(parents=True, exist_ok=True)
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = SMOLLM2
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        staged = Path(folder)
        weights = {name: tensor.half() for name, tensor in load_file(adapter / WEIGHTS).items()}
        save_file(weights, staged / WEIGHTS, metadata={"format": "pt"})
        (staged / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (staged / "README.md").write_text(card, encoding="utf-8")
        for path in staged.iterdir():
            path.chmod(0o644)
            os.replace(path, output / path.name)


def model_card(runs: Path, probes: Path) -> str:
    """The text of the card, with the facts of the training and the figures."""
    adapter = runs / name_of(ADAPTER, None)
    record = json.loads((adapter / RECORD).read_text(encoding="utf-8"))
    layers = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))["layers_to_transform"]
    return _CARD.read_text(encoding="utf-8").format(
        **record,
        minutes=record["seconds"] / 60,
        rank=record["training"]["rank"],
        first=min(layers),
        last=max(layers),
        figures=_figures(json.loads((runs / "figures.json").read_text(encoding="utf-8"))),
        probes=_probes(json.loads(probes.read_text(encoding="utf-8"))),
    )


def _figures(found: Mapping[str, Any]) -> str:
    lines = ["| task | n | AUC, trained on the task | AUC, unseen | AUC of word overlap |", "|---|---|---|---|---|"]
    for task, about in found.items():
        named = ("SmolLM2 adapter, within", "SmolLM2 adapter, unseen", "word overlap")
        cells = [_shown(about["methods"].get(method), "auc", 3) for method in named]
        lines.append(f"| {task} | {about['n']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _probes(found: Mapping[str, Any]) -> str:
    lines = ["| probe | AUC | accuracy at 0.5 |", "|---|---|---|"]
    lines += [f"| {name} | {_shown(line, 'auc', 2)} | {_shown(line, 'accuracy', 2)} |" for name, line in found.items()]
    return "\n".join(lines)


def _shown(line: Mapping[str, Any] | None, name: str, digits: int) -> str:
    return "" if line is None else Figure(**line[name]).shown(digits)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/english"))
    parser.add_argument("--probes", type=Path, required=True, help="figures of `probes.py --json`")
    parser.add_argument("--output", type=Path, default=english_adapter())
    args = parser.parse_args(argv)
    save(args.runs / name_of(ADAPTER, None), args.output, model_card(args.runs, args.probes))


if __name__ == "__main__":
    main()
