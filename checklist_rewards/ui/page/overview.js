// Overview: what failed, what was scored, by which judge, and how it came out.

import { histogram, rateBar } from "./charts.js";
import { bounds, cell, count, el, fact, folded, note, num, plural, questionOf, section, table, tabled, verdict } from "./dom.js";

const MOST_ITEMS = 50, MOST_FAILING = 8;

/** The overview of one file. `at` opens other views, and rows by a filter. */
export function overview(report, file, at) {
  const facts = file.overview, open = (filter, order, row) => at.openFilter(file, filter, order, row);
  const failing = facts.items.filter((one) => one.counted && one.rate < 1).sort((a, b) => a.rate - b.rate).slice(0, MOST_FAILING);
  const failed = (one) => el("button", { class: "link", onclick: () => open({ item: one.id, answer: "fail" }, undefined, -1) }, questionOf(one));
  return [
    verdict(facts.verdict, report.trust[file.name]?.verdict),
    attention(file, at, open),
    el(
      "div",
      { class: "columns" },
      section("Scores", facts.scored ? histogram(facts.score_bins, { low: facts.lowest, label: `Distribution of ${count(facts.scored)} scores` }) : note("No row has a score.")),
      failing.length ? section("Fail most", table(["item", ["pass rate", "wide"], ["", "n"]], failing.map((one) => [failed(one), rateBar(one.rate, one.interval), num(one.rate)]), { "aria-label": "Items that fail most" })) : null,
    ),
    facts.categories.length ? section("Categories", rates(facts.categories, "category", (line) => line.category)) : null,
    items(facts, open),
    folded("Statistics, judge, checklists and cost", el("div", { class: "tiles" }, file.tiles.map(([name, value, below]) => fact(name, cell(value), below))), [...file.sections, ...report.documents.filter((one) => one.kind === "summary").flatMap((one) => one.sections)].map((part) => tabled(part))),
  ];
}

/** What failed and what to look at first, each with the rows that it is about one click away: the first of them is opened. */
function attention(file, at, show) {
  const line = ({ text, rest, failed, filter, order, view }) => {
    const go = () => (view ? at.openView(view) : show(filter, order ?? undefined, -1));
    return el("li", { class: failed ? "failed" : null }, view || filter ? el("button", { class: "link", onclick: go }, text) : text, " ", el("span", { class: "muted" }, rest));
  };
  const { advice, reads } = file.overview;
  return section("Look at this first", el("ul", { class: "attention" }, Object.keys(advice).length || !reads ? null : el("li", { class: "passed-line" }, "Every question was answered."), file.attention.map(line)));
}

export function sampled(file) {
  if (file.shown === file.total) return null;
  const what = file.kind === "rewards" ? "whole groups of completions, " : "";
  return note(
    `The rows on this page are a random sample of ${count(file.shown)} of the ${count(file.total)} rows (${what}seed ${file.seed}). `,
    "All figures of this page are computed over all rows.",
  );
}

function rates(lines, head, name) {
  const rows = lines.map((line) => [
    name(line),
    rateBar(line.rate, line.interval),
    [num(line.rate), bounds(line.interval)],
    count(line.counted),
    ...(head === "item" ? [count(Object.values(line.unanswered).reduce((a, b) => a + b, 0))] : []),
  ]);
  const heads = [head, ["pass rate", "wide"], ["", "n"], ["answers", "n"], ...(head === "item" ? [["unanswered", "n"]] : [])];
  return table(heads, rows, { class: "rates", "aria-label": `Pass rates by ${head}` });
}

function items(facts, open) {
  const reads = (line) => line.counted + Object.values(line.unanswered).reduce((a, b) => a + b, 0);
  const order = facts.items.slice().sort((a, b) => reads(b) - reads(a)); // stable: a shared checklist keeps its order
  const body = el("div", {});
  const show = (text) => {
    const wanted = text.toLowerCase();
    const kept = order.filter((line) => line.question.toLowerCase().includes(wanted));
    const named = (line) => [
      el("button", { class: "link", onclick: () => open({ item: line.id }) }, questionOf(line)),
      line.category ? el("span", { class: "tag" }, line.category) : null,
    ];
    const more = kept.length - MOST_ITEMS;
    body.replaceChildren(
      rates(kept.slice(0, MOST_ITEMS), "item", named),
      more > 0 ? note(`${plural(more, "more item")}; search to see them.`) : "",
    );
  };
  show("");
  const search = el("input", { type: "search", placeholder: "search items", "aria-label": "search items", oninput: (event) => show(event.target.value) });
  return section(`Items (${count(order.length)})`, note("Pass rates with 95 % Wilson intervals (from 15 texts on), items with the most answers first. A penalty passes if the answer is no."), search, body);
}
