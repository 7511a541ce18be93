// Compare: two scored files with the same rows, by agreement, item by item, and row by row.

import { comparisonTables, itemTable } from "./agreement.js";
import { scatter } from "./charts.js";
import { el, num, note, section, table } from "./dom.js";

const MOST_ROWS = 100;

/** The comparisons of a report. `open` shows a row of a file, `filter(file, filter)` the matrix of a file with a filter. */
export function compare(report, open, filter) {
  return report.comparisons.map((one) => comparison(report, one, open, filter));
}

function comparison(report, { comparison: figures, items }, open, filter) {
  const first = report.file(figures.one), second = report.file(figures.other);
  const pairs = [];
  for (let row = 0; row < first.length; row++) {
    const other = second.rowOf(first.id(row));
    if (other !== undefined) pairs.push([row, other, first.rows.score[row], second.rows.score[other]]);
  }
  const known = pairs.filter(([, , a, b]) => !Number.isNaN(a) && !Number.isNaN(b));
  const order = known.slice().sort((a, b) => Math.abs(b[2] - b[3]) - Math.abs(a[2] - a[3])).slice(0, MOST_ROWS);
  const pick = (i) => open(first, known[i][0]);
  const rows = order.map(([row, , one, other]) => [
    el("button", { class: "link", onclick: () => open(first, row) }, first.id(row)),
    num(one),
    num(other),
    num(other - one),
    el("div", { class: "two-lines", dir: "auto" }, (first.target(row) ?? first.prompt(row) ?? "").slice(0, 200)),
  ]);
  return [
    section(`${first.name} and ${second.name}`, comparisonTables(figures)),
    section("Items", note("How often the two answer differently. Click an item to see these rows."), itemTable(items, false, (id) => filter(first, { item: id, judgesDiffer: true }))),
    section(
      "Scores",
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          scatter(known.map((pair) => pair[2]), known.map((pair) => pair[3]), {
            label: `Scores of ${known.length} rows: ${first.name} against ${second.name}`, xLabel: first.name, yLabel: second.name, diagonal: true, pick,
          }),
          note("One point per row on this page; click a point to open its row."),
        ),
        el("div", {}, el("h3", {}, "Rows that differ most"), table(["row", [first.name, "n"], [second.name, "n"], ["difference", "n"], "response"], rows, { class: "short-table", "aria-label": "Rows that differ most" })),
      ),
    ),
  ];
}
