"""Save a trained model as the packaged `english` (an adapter), `english-encoder` or `english-writer`, with its card.

    python recipes/english/save.py adapter --runs runs/english --probes runs/english/probes.json
    python recipes/english/save.py encoder --runs runs/english --probes runs/english/encoder_probes.json
    python recipes/english/save.py writer --runs runs/writer

Reads `<runs>/adapter-all`, `<runs>/encoder-all` or `<runs>/writer` (`train.py`), and the figures `<runs>/figures.json`
(`evaluate.py`, `evaluate_writer.py`). Adapters are saved in float16, and encoders as their difference to
all-MiniLM-L6-v2 in 4 bits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import markdown, staged
from english.evaluate_writer import table
from english.train import ADAPTER, ENCODER, RECORD, WRITER, name_of
from safetensors.torch import load_file, save_file

from checklist_rewards.backends.difference import save_difference
from checklist_rewards.backends.packaged import (
    BERT,
    DIFFERENCE,
    ENGLISH,
    ENGLISH_WRITER,
    SMOLLM2,
    adapter_of,
    english_encoder,
    minilm_weights,
)
from checklist_rewards.evaluation.bootstrap import Figure

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_CARDS = {ADAPTER: "card.md", ENCODER: "card_encoder.md", WRITER: "card_writer.md"}
_METHODS = {ADAPTER: "SmolLM2 adapter", ENCODER: "encoder"}


def save_adapter(adapter: Path, output: Path) -> None:
    """Write the adapter in float16, and its configuration."""
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = SMOLLM2
    weights = {name: tensor.half() for name, tensor in load_file(adapter / WEIGHTS).items()}
    save_file(weights, output / WEIGHTS, metadata={"format": "pt"})
    (output / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def save_encoder(encoder: Path, output: Path) -> None:
    """Write the weights as a difference, and the configuration."""
    save_difference(load_file(encoder / "model.safetensors"), minilm_weights(), BERT, output / DIFFERENCE)
    (output / "config.json").write_text((encoder / "config.json").read_text(encoding="utf-8"), encoding="utf-8")


def model_card(kind: str, runs: Path, probes: Path | None = None) -> str:
    """The text of the card, with the facts of the training and the figures."""
    folder = runs / name_of(kind, None)
    facts, found = (json.loads(path.read_text(encoding="utf-8")) for path in (folder / RECORD, runs / "figures.json"))
    facts["minutes"] = facts["seconds"] / 60
    if "before" in facts:
        facts["before"]["minutes"] = facts["before"]["seconds"] / 60
    if kind != ENCODER:
        layers = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["layers_to_transform"]
        facts |= {"rank": facts["training"]["rank"], "first": min(layers), "last": max(layers)}
    if kind == WRITER:
        facts |= {"figures": table(found), "threshold": found["threshold"]}
        facts["instructions"] = found[ENGLISH_WRITER]["instructions"]
    else:
        facts["figures"] = _figures(found, _METHODS[kind])
        facts["probes"] = _probes(json.loads(probes.read_text(encoding="utf-8"))) if probes else ""
    return Path(__file__).with_name(_CARDS[kind]).read_text(encoding="utf-8").format(**facts)


def _figures(found: Mapping[str, Any], method: str) -> str:
    named = (f"{method}, within", f"{method}, unseen", "word overlap")
    rows = [
        [task, about["n"], *(_shown(about["methods"].get(name), "auc", 3) for name in named)]
        for task, about in found.items()
    ]
    return markdown(["task", "n", "AUC, trained on the task", "AUC, unseen", "AUC of word overlap"], rows)


def _probes(found: Mapping[str, Any]) -> str:
    rows = [[name, _shown(line, "auc", 2), _shown(line, "accuracy", 2)] for name, line in found.items()]
    return markdown(["probe", "AUC", "accuracy at 0.5"], rows)


def _shown(line: Mapping[str, Any] | None, name: str, digits: int) -> str:
    return "" if line is None else Figure(**line[name]).shown(digits)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=(ADAPTER, ENCODER, WRITER))
    parser.add_argument("--runs", type=Path, default=Path("runs/english"))
    parser.add_argument("--probes", type=Path, help="figures of `probes.py --json`, of a judge")
    parser.add_argument("--output", type=Path, help="by default the folder in the package")
    args = parser.parse_args(argv)
    if (args.probes is None) != (args.kind == WRITER):
        parser.error("--probes is required for a judge, and not allowed for a writer.")
    places = {ADAPTER: adapter_of(ENGLISH), ENCODER: english_encoder(), WRITER: adapter_of(ENGLISH_WRITER)}
    output: Path = args.output or places[args.kind]
    card = model_card(args.kind, args.runs, args.probes)
    with staged(output) as folder:
        (save_encoder if args.kind == ENCODER else save_adapter)(args.runs / name_of(args.kind, None), folder)
        (folder / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
