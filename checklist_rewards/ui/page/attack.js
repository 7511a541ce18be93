// The result of `attack`: how much attacked texts raise the score, what falls, and the worst examples side by side.

import { count, el, figure, fixed, note, plural, section, table } from "./dom.js";

const MOST_ATTACKS = 25;
const REASONS = { empty: "no text", other_prompt: "a response to another prompt", prompt: "the prompt itself", words_removed: "a response without the words of one item" };

/** The sections of an attack on a judge. */
export function attacked(one) {
  const report = one.value;
  const shown = report.attacks.filter((line, place) => place < MOST_ATTACKS || line.name === report.chosen);
  const rows = shown.map((line) => [
    [line.name, line.name === report.chosen ? el("span", { class: "flag" }, "chosen") : null, el("div", { class: "muted" }, line.does)],
    line.kind,
    figure(line.rise),
    figure({ value: line.earned.value }),
    line.beats.value === null ? "–" : `${fixed(100 * line.beats.value, 0)} %`,
    count(line.failed),
  ]);
  const before = [...Object.entries(report.bad).map(([reason, value]) => [REASONS[reason] ?? reason, figure(value)]), ["honest responses", figure(report.honest)]];
  return [
    section(
      `${one.name}: attack on ${report.judge}`,
      note(`Rise of the score of bad responses. Attacks were chosen on ${plural(report.searched, "prompt")} and measured on ${count(report.reported)} others; ${count(report.reads)} reads.`),
      table(["attack", "kind", ["rise", "n"], ["earned", "n"], ["beats honest", "n"], ["failed", "n"]], rows, { "aria-label": "Attacks" }),
      el("div", { class: "columns" }, el("div", {}, el("h3", {}, "Before an attack"), table(["", ["score", "n"]], before)), fallen("Kinds of questions that fall", report.kinds), fallen("Items that fall", report.fallen)),
    ),
    ...report.examples.map((example) => section(`${one.name}: ${example.attack}`, side(example))),
  ];
}

function fallen(heading, groups) {
  if (!groups.length) return null;
  const rows = groups.slice(0, 8).map((group) => [group.name, `${fixed(group.failed ? (100 * group.fell) / group.failed : 0, 0)} %`, count(group.failed), group.attack]);
  return el("div", {}, el("h3", {}, heading), table(["", ["falls", "n"], ["of", "n"], "most often under"], rows));
}

function side(example) {
  const text = (value) => el("div", { class: "written" }, value);
  const rows = [["prompt", "", text(example.prompt)], [REASONS[example.reason] ?? example.reason, fixed(example.score), text(example.response)], ["attacked", fixed(example.attacked_score), text(example.attacked)]];
  if (example.honest !== null) rows.push(["honest", fixed(example.honest_score), text(example.honest)]);
  return table(["", ["score", "n"], "text"], rows, { "aria-label": "Example" });
}
