// Overview: what was scored, by which judge, and how it came out.

import { histogram, rateBar } from "./charts.js";
import { bounds, count, el, note, num, plural, section, table } from "./dom.js";
import { stateName } from "./states.js";

const MOST_ITEMS = 50;

/** The overview of one file. `open(view, filter)` opens the matrix with a filter. */
export function overview(report, file, open) {
  const facts = file.overview;
  const tiles = [
    tile("rows", count(facts.rows), facts.without_score ? `${count(facts.without_score)} without a checklist` : null),
    tile("mean score", num(facts.mean, 4), facts.unscored ? `${plural(facts.unscored, "row")} without a score` : null),
    tile("macro (mean pass rate)", num(facts.macro, 4)),
    tile("micro (DRFR)", num(facts.micro, 4), bounds(facts.micro_interval)),
    noAnswer(facts),
    tile("reads answered", `${count(facts.answered)} of ${count(facts.reads)}`),
    tile("label mass", num(facts.mass, 4), facts.masses ? "mean of the reads" : "not reported by this judge"),
  ];
  if (file.kind === "pairs") return [section("Pairs", el("p", {}, `${plural(facts.rows, "pair")}.`))];
  return [
    sampled(file),
    el("div", { class: "tiles" }, tiles),
    el(
      "div",
      { class: "columns" },
      section("Scores", facts.scored ? histogram(facts.score_bins, { label: `Distribution of ${count(facts.scored)} scores` }) : note("No row has a score.")),
      facts.mass_bins ? section("Label mass", histogram(facts.mass_bins, { label: "Distribution of the label mass" })) : null,
    ),
    states(facts, open),
    unanswered(facts, open),
    facts.categories.length ? section("Categories", rates(facts.categories, "category", (line) => line.category)) : null,
    items(facts, open),
    about(report, file, facts),
  ];
}

function tile(name, value, below = null) {
  return el("div", { class: "tile" }, el("span", { class: "muted" }, name), el("strong", {}, value), below && el("small", {}, below));
}

export function sampled(file) {
  if (file.length === file.total) return null;
  const what = file.kind === "rewards" ? "whole groups of completions, " : "";
  return note(
    `The matrix shows a random sample of ${count(file.length)} of the ${count(file.total)} rows (${what}seed ${file.seed}). `,
    "All figures of this page are computed over all rows.",
  );
}

/** The number of responses without an answer; files of earlier versions do not say. */
function noAnswer(facts) {
  if (!facts.with_state) return tile("without an answer", num(null), "not recorded in this file");
  const without = facts.states.filter((line) => line.state !== "cut").reduce((sum, line) => sum + line.count, 0);
  return tile("without an answer", `${count(without)} of ${count(facts.with_state)}`, facts.without_state ? `${plural(facts.without_state, "row")} without a state` : null);
}

function states(facts, open) {
  if (!facts.states.length) return null;
  const rows = facts.states.map((line) => [
    el("button", { class: "link", onclick: () => open("matrix", { state: line.state }) }, stateName(line.state)),
    count(line.count),
    num(line.count / facts.with_state),
    line.meaning,
  ]);
  const asked = facts.not_asked ? note(`The judge was not asked about ${plural(facts.not_asked, "row")} without an answer. Their scores count in the means, and not in reads and items.`) : null;
  return section("Responses without an answer, or cut", asked, table(["state", ["rows", "n"], ["share", "n"], "what it means"], rows, { "aria-label": "Responses without an answer, or cut" }));
}

function unanswered(facts, open) {
  if (!facts.unanswered.length) return null;
  const rows = facts.unanswered.map((line) => [
    el("button", { class: "link", onclick: () => open("matrix", { reason: line.reason }) }, line.reason),
    count(line.count),
    [line.advice ?? "", line.detail ? el("div", { class: "muted" }, line.detail) : null],
  ]);
  return section("Unanswered reads", table(["reason", ["reads", "n"], "what it means"], rows, { "aria-label": "Unanswered reads" }));
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
      el("button", { class: "link", onclick: () => open("matrix", { item: line.id }) }, line.question),
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
  return section(`Items (${count(order.length)})`, note("Pass rates with 95 % Wilson intervals, items with the most reads first."), search, body);
}

function about(report, file, facts) {
  const judges = facts.judges.map((line) => [line.judge || "not recorded", line.method || "not recorded", count(line.reads)]);
  const lists = facts.checklist_ids.map((line) => [el("code", {}, line.id), count(line.rows)]);
  const summaries = report.documents.filter((one) => one.kind === "summary").map(receipt);
  return [
    section("Judge", table(["judge", "read by", ["reads", "n"]], judges), table(["settings", ["rows", "n"]], facts.settings.map((line) => [line.settings, count(line.rows)]))),
    section(
      "Checklists",
      note(`${facts.checklists_more ? "at least " : ""}${plural(facts.checklists, "checklist")}, by content hash${facts.checklists > lists.length ? "; the most frequent:" : ":"}`),
      table(["checklist", ["rows", "n"]], lists),
    ),
    ...summaries,
  ];
}

function receipt(summary) {
  const lines = Object.entries({ ...summary.value, ...summary.value.receipt }).filter(([, value]) => value !== null && typeof value !== "object");
  const rows = lines.map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" && !Number.isInteger(value) ? num(value, 4) : String(value)]);
  for (const [model, [prompt, reply]] of Object.entries(summary.value.receipt?.tokens ?? {})) rows.push([`tokens of ${model}`, `${count(prompt)} in, ${count(reply)} out`]);
  return section(`Cost (${summary.name})`, table(["", ["", "n"]], rows, { "aria-label": "Cost" }));
}
