// Compare: two scored files, or two reward logs, by agreement, item by item, and row by row; and the tables of `agree`
// and `calibrate`, which are also those of labels. Pairs: the chosen and the rejected text of each prompt, side by side.

import { scatter } from "./charts.js";
import { choice, count, el, figure, fixed, folded, note, num, questionOf, section, table, verdict, written } from "./dom.js";

const MOST_ROWS = 100, MOST_ITEMS = 50, PAGE = 20;
const HOW = {
  completion: "Rows with the same prompt and the same completion are compared.",
  step: "The completions differ: the n-th completion of a prompt in a step is compared with the n-th of the other run. What differs between single rows is chance, so look at items and groups.",
};

/** The comparisons of a report. `open` shows a row of a file, `filter(file, filter)` the matrix of a file with a filter. */
export function compare(report, { openRow: open, openFilter: filter }) {
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
    verdict(compared.people, compared.verdict),
    note([first, second].map((file) => `${file.name}: scored by ${file.overview.judges.map((one) => one.judge || "an unrecorded judge").join(", ")}. `)),
    match ? note(HOW[match]) : null,
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
            label: `Scores of ${points.length} ${what}s: ${first.name} against ${second.name}`, names: [first.name, second.name], diagonal: true, pick: (i) => open(first, points[i].row),
          }),
          note(`${count(points.length)} points, one per ${what} on this page${sameText ? "" : " (its mean score)"}; click a point to open its row.`),
        ),
        el("div", {}, el("h3", {}, `${sameText ? "Rows" : "Groups"} that differ most`), differing(first, second, order, sameText, open)),
      ),
    ),
    folded(`${first.name} and ${second.name}: statistics`, comparisonTables(figures)),
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

/** A comparison of `agree`: all sections side by side, and confusion matrices. */
export function comparisonTables(comparison) {
  const sections = Object.entries({ ...comparison.items, "target scores": comparison.targets, preferences: comparison.preferences }).filter(([, section]) => section && section.units);
  const names = [...new Set(sections.flatMap(([, section]) => Object.keys(section.figures)))];
  const known = names.filter((name) => sections.some(([, section]) => (section.figures[name]?.value ?? null) !== null));
  const rows = [
    ["units", ...sections.map(([, section]) => count(section.units))],
    ...known.map((name) => [name.replaceAll("_", " "), ...sections.map(([, section]) => (name in section.figures ? figure(section.figures[name]) : ""))]),
  ];
  const confusions = sections.filter(([, section]) => section.confusion).map(([kind, section]) => confusion(kind, section, comparison));
  return [
    note(
      "Coverage ", figure(comparison.coverage), ` of ${count(comparison.units)} items.`,
      comparison.unmatched_rows ? ` ${count(comparison.unmatched_rows)} rows are on one side only.` : "",
      comparison.unmatched_items ? ` ${count(comparison.unmatched_items)} items are on one side only.` : "",
      comparison.no_answer ? ` ${count(comparison.no_answer)} rows have no answer and are left out.` : "",
      comparison.ranked ? " The labels of whole responses are not on the scale from 0 to 1, so only their correlation with the scores is shown." : "",
      comparison.code_checks ? ` Code checks: ${count(comparison.code_checks_equal)} of ${count(comparison.code_checks)} agree (they count in target scores only).` : "",
    ),
    el("div", { class: "columns" }, table(["", ...sections.map(([name]) => [name, "n"])], rows, { "aria-label": "Agreement", class: "fit" }), el("div", {}, confusions)),
  ];
}

/** The last part of a path. */
export function fileName(path) {
  return path.split(/[\\/]/).pop();
}

function confusion(kind, section, comparison) {
  const heads = ["", ...section.labels.map((label) => [label, "n"])];
  const rows = section.confusion.map((row, i) => [section.labels[i], ...row.map(count)]);
  return el("div", {}, el("h3", {}, `Answers to ${kind} items`), note(`Rows: ${fileName(comparison.one)}. Columns: ${fileName(comparison.other)}.`), table(heads, rows, { class: "fit" }));
}

/** Per item: how often the two sides answered differently, and kappa. `pick(id)` is called for a question. */
export function itemTable(items, against, pick) {
  const rows = items.slice(0, MOST_ITEMS).map((line) => [
    el("button", { class: "link", onclick: () => pick(line.id) }, `${questionOf(line)}${line.by_code ? " (code check)" : ""}`),
    count(line.answered),
    [count(line.flipped), el("span", { class: "bounds" }, line.answered ? ` ${fixed((100 * line.flipped) / line.answered, 1)} %` : "")],
    el("span", { class: "muted" }, line.flips.slice(0, 3).map((flip) => `${flip.one} → ${flip.other}: ${flip.count}`).join("; ")),
    num(line.accuracy),
    num(line.kappa),
    ...(against ? [num(line.f1 ?? null)] : []),
  ]);
  const heads = ["item", ["both answered", "n"], [against ? "wrong" : "flips", "n"], against ? "judge → people" : "first → second", ["accuracy", "n"], ["kappa", "n"], ...(against ? [["F1", "n"]] : [])];
  const more = items.length - MOST_ITEMS;
  return [table(heads, rows, { "aria-label": "Items" }), more > 0 ? note(`${count(more)} more items, with fewer differences.`) : null];
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
    el("div", { class: "columns" }, side("Chosen", file.target(row), score_chosen), side("Rejected", file.text(rejected), score_rejected)),
    items.length ? table(["only one of them passes", "chosen", "rejected"], items.map((item) => [item.question ?? item.id, String(item.chosen ?? "–"), String(item.rejected ?? "–")])) : note("No item decides between them alone."),
  );
}
