// Compare: two scored files, or two reward logs, by agreement, item by item, and row by row.

import { comparisonTables, itemTable } from "./agreement.js";
import { scatter } from "./charts.js";
import { count, el, note, num, section, table } from "./dom.js";

const MOST_ROWS = 100;
const HOW = {
  completion: "Rows with the same prompt and the same completion are compared.",
  step: "The completions differ: the n-th completion of a prompt in a step is compared with the n-th of the other run. What differs between single rows is chance, so look at items and groups.",
};

/** The comparisons of a report. `open` shows a row of a file, `filter(file, filter)` the matrix of a file with a filter. */
export function compare(report, open, filter) {
  return report.comparisons.map((one) => comparison(report, one, open, filter));
}

function comparison(report, compared, open, filter) {
  const { comparison: figures, items, match } = compared;
  const first = report.file(figures.one), second = report.file(figures.other);
  const sameText = match !== "step";
  const pairs = report.pairsOf(compared);
  const points = (sameText ? rowPairs : groupPairs)(first, second, pairs).filter((one) => !Number.isNaN(one.a) && !Number.isNaN(one.b));
  const order = points.toSorted((one, other) => Math.abs(other.a - other.b) - Math.abs(one.a - one.b)).slice(0, MOST_ROWS);
  const what = sameText ? "row" : "group";
  return [
    section(`${first.name} and ${second.name}`, match ? note(HOW[match]) : null, comparisonTables(figures)),
    section(
      "Items",
      note(sameText ? "How often the two answer differently. Click an item to see these rows." : "How often the two runs get different answers. Click an item to see its rows."),
      itemTable(items, false, (id) => filter(first, sameText ? { item: id, judgesDiffer: true } : { item: id })),
    ),
    section(
      "Scores",
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          scatter(points.map((one) => one.a), points.map((one) => one.b), {
            label: `Scores of ${points.length} ${what}s: ${first.name} against ${second.name}`, xLabel: first.name, yLabel: second.name, diagonal: true, pick: (i) => open(first, points[i].row),
          }),
          note(`${count(points.length)} points, one per ${what} on this page${sameText ? "" : " (its mean score)"}; click a point to open its row.`),
        ),
        el("div", {}, el("h3", {}, `${sameText ? "Rows" : "Groups"} that differ most`), differing(first, second, order, sameText, open)),
      ),
    ),
  ];
}

function differing(first, second, order, sameText, open) {
  const text = (file, row) => el("div", { class: "two-lines", dir: "auto" }, (file.target(row) ?? file.prompt(row) ?? "").slice(0, 200));
  const link = (file, row, shown) => el("button", { class: "link", onclick: () => open(file, row) }, shown);
  const rows = order.map((one) => [
    link(first, one.row, one.name),
    num(one.a),
    num(one.b),
    num(one.b - one.a),
    sameText ? text(first, one.row) : [text(first, one.row), el("hr"), text(second, one.other), link(second, one.other, `details in ${second.name}`)],
  ]);
  const heads = [sameText ? "row" : "step and prompt", [first.name, "n"], [second.name, "n"], ["difference", "n"], sameText ? "response" : "best completion of each"];
  return table(heads, rows, { class: "short-table", "aria-label": `${sameText ? "Rows" : "Groups"} that differ most` });
}

function rowPairs(first, second, pairs) {
  return pairs.map(([row, other]) => ({ row, other, name: first.id(row), a: first.rows.score[row], b: second.rows.score[other] }));
}

/** Per step and prompt: the mean scores, and the rows with the best score. */
function groupPairs(first, second, pairs) {
  const groups = new Map();
  for (const [row, other] of pairs) {
    const key = first.rows.group[row];
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([row, other]);
  }
  const mean = (scores) => scores.reduce((sum, score) => sum + score, 0) / scores.length;
  const side = (file, rows) => {
    const known = rows.filter((row) => !Number.isNaN(file.rows.score[row])).sort((a, b) => file.rows.score[b] - file.rows.score[a]);
    return [known[0] ?? rows[0], mean(known.map((row) => file.rows.score[row]))];
  };
  return [...groups.values()].map((members) => {
    const [row, a] = side(first, members.map((pair) => pair[0]));
    const [other, b] = side(second, members.map((pair) => pair[1]));
    return { row, other, name: `step ${first.rows.step[row]}: ${(first.prompt(row) ?? "").replace(/\s+/g, " ").slice(0, 80)}`, a, b };
  });
}
