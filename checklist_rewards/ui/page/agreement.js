// Figures of `agree` and `calibrate` as tables, for comparisons of two files and for labels.

import { count, el, figure, fixed, note, num, table } from "./dom.js";

const MOST_ITEMS = 50;

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
    ),
    table(["", ...sections.map(([name]) => [name, "n"])], rows, { "aria-label": "Agreement" }),
    el("div", { class: "columns" }, confusions),
  ];
}

/** The last part of a path. */
export function fileName(path) {
  return path.split(/[\\/]/).pop();
}

function confusion(kind, section, comparison) {
  const heads = ["", ...section.labels.map((label) => [label, "n"])];
  const rows = section.confusion.map((row, i) => [section.labels[i], ...row.map(count)]);
  return el("div", {}, el("h3", {}, `Answers to ${kind} items`), note(`Rows: ${fileName(comparison.one)}. Columns: ${fileName(comparison.other)}.`), table(heads, rows));
}

/** Per item: how often the two sides answered differently, and kappa. `pick(id)` is called for a question. */
export function itemTable(items, against, pick) {
  const rows = items.slice(0, MOST_ITEMS).map((line) => [
    el("button", { class: "link", onclick: () => pick(line.id) }, line.question),
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

/** Figures with intervals: heads are the names of columns, each a mapping of figures. */
export function figureTable(columns, digits = 4) {
  const names = [...new Set(Object.values(columns).flatMap((figures) => Object.keys(figures)))];
  const rows = names.map((name) => [name.replaceAll("_", " "), ...Object.values(columns).map((figures) => (name in figures ? figure(figures[name], digits) : ""))]);
  return table(["", ...Object.keys(columns).map((name) => [name, "n"])], rows);
}
