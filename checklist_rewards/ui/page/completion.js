// One completion of a training run: its advantage, the answers as marks, and its text.

import { el, fixed, num, signClass, signed, written } from "./dom.js";
import { stateTag } from "./states.js";

/** A card. `text` replaces the completion's text, for example by one with its changes marked. */
export function card(file, row, open, { heading = null, text = null } = {}) {
  const { rows } = file;
  const advantage = rows.advantage[row];
  return el(
    "div",
    { class: "card" },
    heading && el("h3", {}, heading),
    el(
      "div",
      { class: "given" },
      el("strong", { class: signClass(advantage) }, Number.isNaN(advantage) ? "no reward" : signed(advantage)),
      el("span", { class: "muted" }, "reward ", num(rows.reward[row])),
      stateTag(file.state(row)),
      el("button", { class: "link", onclick: () => open(row) }, "details"),
    ),
    marks(file, row),
    text ?? written(file.target(row)),
  );
}

/** The answers of a row, one mark per item. */
export function marks(file, row) {
  const cells = [];
  for (let cell = file.starts[row]; cell < file.starts[row + 1]; cell++) {
    const line = file.cell(cell);
    const shown = line.answer ?? "–";
    cells.push(el("span", { class: "cell", "data-passed": line.passed, "data-step": 4, title: `${line.item.question}\nP(yes) ${fixed(line.p)}` }, shown));
  }
  return el("div", { class: "marks" }, cells);
}

/** The beginning of a text, on one line. */
export function shorter(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > 110 ? `${line.slice(0, 109)}…` : line;
}
