// Compare: two scored files, or two reward logs, by agreement, item by item, and row by row. Pairs: the chosen and the
// rejected text of each prompt, side by side.

import { scatter } from "./charts.js";
import { choice, count, el, fixed, folded, note, num, section, table, tabled, thumbnails, verdict, written } from "./dom.js";

const MOST_ROWS = 100, PAGE = 20;

/** The comparisons of a report. `open` shows a row of a file, `filter(file, filter)` the matrix of a file with a filter. */
export function compare(report, { openRow: open, openFilter: filter }) {
  return report.comparisons.map((one) => comparison(report, one, open, filter));
}

/** The judges that scored a file, each once. Code checks are none. */
export const judgesOf = ({ overview }) => overview.judges.filter((one) => one !== "code").map((one) => one || "an unrecorded judge");

function comparison(report, compared, open, filter) {
  const { comparison: figures, sections, match } = compared, { ids } = sections.items;
  const first = report.file(figures.one), second = report.file(figures.other);
  const sameText = match !== "step";
  const pairs = report.pairsOf(compared);
  const points = (sameText ? rowPairs : groupPairs)(first, second, pairs).filter((one) => !Number.isNaN(one.a) && !Number.isNaN(one.b));
  const order = points.toSorted((one, other) => Math.abs(other.a - other.b) - Math.abs(one.a - one.b)).slice(0, MOST_ROWS);
  const what = sameText ? "row" : "group", range = [Math.min(first.overview.lowest, second.overview.lowest), 1];
  return [
    verdict(compared.people, compared.verdict),
    note([first, second].map((file) => `${file.name}: scored by ${judgesOf(file).join(", ") || "code checks"}. `)),
    compared.how ? note(compared.how) : null,
    tabled(sections.items, (i) => filter(first, { item: ids[i], judgesDiffer: sameText })),
    section(
      "Scores",
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          scatter(points.map((one) => one.a), points.map((one) => one.b), {
            label: `Scores of ${points.length} ${what}s: ${first.name} against ${second.name}`, names: [first.name, second.name], range, pick: (i) => open(first, points[i].row),
          }),
          note(`${count(points.length)} points, one per ${what} on this page${sameText ? "" : " (its mean score)"}; click a point to open its row.`),
        ),
        el("div", {}, el("h3", {}, `${sameText ? "Rows" : "Groups"} that differ most`), differing(first, second, order, sameText, open)),
      ),
    ),
    folded(`${first.name} and ${second.name}: statistics`, el("div", { class: "columns" }, sections.comparison.map((part) => tabled(part)))),
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
  const groups = Map.groupBy(pairs, ([row]) => first.rows.group[row]);
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

/** The pairs of a file, more of them on request. */
export function pairs(file) {
  const order = file.all;
  const margin = (row) => (file.pairs[row].score_chosen ?? NaN) - (file.pairs[row].score_rejected ?? NaN);
  const body = el("div");
  const more = el("button", { onclick: draw }, `Show ${PAGE} more`);
  function draw() {
    const shown = body.childElementCount;
    body.append(...order.slice(shown, shown + PAGE).map((row) => pair(file, row, margin(row))));
    more.hidden = shown + PAGE >= order.length;
  }
  const sort = choice([["file", "order of the file"], ["largest", "largest margin first"], ["smallest", "smallest margin first"]], { "aria-label": "order", onchange: () => {
    const sign = { largest: -1, smallest: 1 }[sort.value];
    order.sort((a, b) => (sign ? sign * (margin(a) - margin(b)) || a - b : a - b));
    body.replaceChildren();
    draw();
  } });
  draw();
  return [section(`Pairs (${count(file.length)})`, el("div", { class: "controls" }, sort), body, more)];
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
    thumbnails(file.thumbnails(row)),
    el("div", { class: "columns" }, side("Chosen", file.target(row), score_chosen), side("Rejected", file.text(rejected), score_rejected)),
    items.length ? table(["only one of them passes", "chosen", "rejected"], items.map((item) => [item.question ?? item.id, String(item.chosen ?? "–"), String(item.rejected ?? "–")])) : note("No item decides between them alone."),
  );
}
