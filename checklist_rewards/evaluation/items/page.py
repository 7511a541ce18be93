"""Item analysis as one HTML page: figures, plots and flagged items. The page is self-contained and has no scripts."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.evaluation.items.items import FLAGS, ItemReport
from checklist_rewards.validation import import_extra

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.flag { background: #fde8d7; border-radius: 3px; padding: 0 .3rem; white-space: nowrap }
img { max-width: 100% } h2 { margin-top: 2.2rem } .note { color: #666 }
"""
_COLUMNS = ("answered", "pass_rate", "variance", "discrimination", "phi", "similarity", "stability")
_MOST_ROWS = 500


def page(
    reports: Sequence[ItemReport],
    *,
    title: str,
    targets: int,
    figures: Mapping[str, Any] | None = None,
) -> str:
    """Render the item analysis as HTML.

    Args:
        reports (sequence of [`ItemReport`]): all items. The table shows the first 500, flagged items first.
        title (`str`): page title, such as the name of the file.
        targets (`int`): number of scored targets.
        figures (mapping, *optional*): further tables, as heading -> {name: number}.

    Returns:
        `str`: The HTML document.

    Raises:
        SampleError: If matplotlib is not installed (the extra `evaluation`).
    """
    flagged = sum(bool(line.flags) for line in reports)
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{_text(title)}</title>",
        f"<style>{_STYLE}</style><h1>{_text(title)}</h1>",
        f"<p>{len(reports)} items over {targets} targets; {flagged} of them have flags.</p>",
        f"<img alt='pass rates and discrimination' src='data:image/png;base64,{_plots(reports)}'>",
    ]
    for heading, values in (figures or {}).items():
        rows = "".join(
            f"<tr><td>{_text(name)}</td><td class='n'>{_number(value)}</td></tr>" for name, value in values.items()
        )
        parts.append(f"<h2>{_text(heading)}</h2><table>{rows}</table>")
    parts.append(f"<h2>Items</h2><table><tr><th>question</th>{_heads()}<th>flags</th></tr>")
    ordered = sorted(reports, key=lambda line: -len(line.flags))
    parts += [_row(line) for line in ordered[:_MOST_ROWS]]
    parts.append("</table>")
    if len(ordered) > _MOST_ROWS:
        parts.append(f"<p class='note'>{len(ordered) - _MOST_ROWS} more items are in the JSON report.</p>")
    meaning = "".join(
        f"<tr><td><span class='flag'>{name}</span></td><td>{why}</td></tr>" for name, why in FLAGS.items()
    )
    parts.append(f"<h2>Meaning of the flags</h2><table>{meaning}</table></html>")
    return "\n".join(parts)


def _heads() -> str:
    return "".join(f"<th class='n'>{name.replace('_', ' ')}</th>" for name in _COLUMNS)


def _row(line: ItemReport) -> str:
    cells = "".join(f"<td class='n'>{_number(getattr(line, name))}</td>" for name in _COLUMNS)
    flags = " ".join(f"<span class='flag'>{name}</span>" for name in line.flags)
    twins = {line.same_answers if "same_answers" in line.flags else None} | {
        line.same_words if "same_words" in line.flags else None
    }
    notes = "".join(f"<div class='note'>like: {_text(twin)}</div>" for twin in sorted(twins - {None}, key=str))
    return f"<tr><td>{_text(line.question)}{notes}</td>{cells}<td>{flags}</td></tr>"


def _plots(reports: Sequence[ItemReport]) -> str:
    [figures] = import_extra("matplotlib.figure")

    figure = figures.Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist([line.pass_rate for line in reports if line.pass_rate is not None], bins=20, range=(0, 1), color="C0")
    left.set(xlabel="pass rate", ylabel="items", title="Item difficulty")
    known = [line for line in reports if line.discrimination is not None and line.pass_rate is not None]
    right.axhline(0, color="grey", linewidth=0.8)
    right.scatter([line.pass_rate for line in known], [line.discrimination for line in known], s=14, alpha=0.6)
    right.set(xlabel="pass rate", ylabel="item-rest correlation", xlim=(-0.02, 1.02), title="Item discrimination")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=130)
    return base64.b64encode(image.getvalue()).decode()


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else _text(str(value))


def _text(value: Any) -> str:
    return html.escape(str(value))
