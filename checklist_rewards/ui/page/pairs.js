// Pairs: the chosen and the rejected text of each prompt, side by side.

import { count, el, fixed, note, num, section, table, written } from "./dom.js";

const PAGE = 20;

/** The pairs of a file, a page at a time. */
export function pairs(file) {
  const order = Array.from({ length: file.length }, (_, row) => row);
  const margin = (row) => (file.pairs[row].score_chosen ?? NaN) - (file.pairs[row].score_rejected ?? NaN);
  const body = el("div");
  const status = el("span", { class: "num", role: "status" });
  let start = 0;
  const draw = () => {
    status.textContent = `${count(start + 1)} to ${count(Math.min(start + PAGE, order.length))} of ${count(order.length)}`;
    body.replaceChildren(...order.slice(start, start + PAGE).map((row) => pair(file, row, margin(row))));
  };
  const turn = (by) => () => {
    start = Math.max(0, Math.min(start + by, Math.floor((order.length - 1) / PAGE) * PAGE));
    draw();
    body.scrollIntoView();
  };
  const sort = el("select", { "aria-label": "order", onchange: (event) => {
    const sign = { largest: -1, smallest: 1 }[event.target.value];
    order.sort((a, b) => (sign ? sign * (margin(a) - margin(b)) || a - b : a - b));
    start = 0;
    draw();
  } }, [["file", "order of the file"], ["largest", "largest margin first"], ["smallest", "smallest margin first"]].map(([value, shown]) => el("option", { value }, shown)));
  draw();
  return [section(`Pairs (${count(file.length)})`, el("div", { class: "controls" }, sort, el("button", { onclick: turn(-PAGE) }, "previous"), status, el("button", { onclick: turn(PAGE) }, "next")), body)];
}

function pair(file, row, margin) {
  const { rejected, score_chosen, score_rejected, flipped } = file.pairs[row];
  const side = (name, text, score) => el("div", {}, el("h3", {}, `${name} `, el("span", { class: "muted" }, num(score))), written(text));
  const items = flipped.filter((item) => item && typeof item === "object");
  return el(
    "article",
    { class: "part card" },
    el("h3", {}, `${file.id(row)}: margin ${fixed(margin)}`),
    file.prompt(row) === null ? null : written(file.prompt(row)),
    el("div", { class: "columns" }, side("Chosen", file.target(row), score_chosen), side("Rejected", file.text(rejected), score_rejected)),
    items.length ? table(["only one of them passes", "chosen", "rejected"], items.map((item) => [item.question ?? item.id, String(item.chosen ?? "–"), String(item.rejected ?? "–")])) : note("No item decides between them alone."),
  );
}
