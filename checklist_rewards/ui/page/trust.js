// Trust: agreement with labels, calibration, attacks, and item analysis.

import { reliabilityChart, scatter } from "./charts.js";
import { comparisonTables, figureTable, fileName, itemTable } from "./compare.js";
import { count, el, figure, fixed, folded, note, num, plural, section, table, verdict } from "./dom.js";

const MOST_ITEMS = 200, MOST_ATTACKS = 25;
const REASONS = { empty: "no text", other_prompt: "a response to another prompt", prompt: "the prompt itself", words_removed: "a response without the words of one item" };

/** Whether the trust view has anything to show about a file. */
export function hasTrust(report, file) {
  return Boolean(report.trust[file.name] || file.analysis || file.labels.length || report.documents.some((one) => one.kind !== "summary"));
}

/** The trust view of a file. `at` opens rows, and in the app links to the columns with labels. */
export function trust(report, file, at) {
  const filter = at.openFilter;
  return [
    verdict(report.trust[file.name]?.verdict ?? flagged(file.analysis)),
    labelled(report, file, at),
    report.trust[file.name] ? labels(file, report.trust[file.name], filter) : null,
    ...report.documents.map(documented),
    ...Object.entries(report.extra.tables ?? {}).map(([heading, values]) => section(heading, table(["", ["", "n"]], Object.entries(values).map(([name, value]) => [name, typeof value === "number" && !Number.isInteger(value) ? num(value) : String(value ?? "–")])))),
    analysis("Item analysis", report.extra.items && report.files[0] === file ? report.extra.items : file.analysis, file, filter),
  ];
}

/** Which labels the figures are about: in the app links, in a report of one file the command that shows them. */
function labelled(report, file, at) {
  const { labelled: address, column } = at.actions;
  if (address && file.labels.length) {
    const known = [[null, "exported from Annotate"], ...file.labels.map((name) => [name, `the column ${name}`])];
    return el("nav", { class: "part choices", "aria-label": "labels" }, el("strong", {}, "How far does the judge agree with people? Labels: "), known.map(([name, shown]) => el("a", { href: address(name), "aria-current": name === column ? "page" : null }, shown)));
  }
  if (report.trust[file.name] || file.kind !== "scored") return null;
  return note("This report has no labels. ", file.labels.length ? [`The file has them in ${file.labels.join(", ")}: `, el("code", {}, `checklist-rewards report ${file.name} --label-key ${file.labels[0]}`)] : "Add --label-key or --labels to see how far the judge agrees with people.");
}

function labels(file, figures, filter) {
  const calibrated = figures.calibration;
  const read = figures.reliability.reduce((sum, bin) => sum + bin.count, 0);
  return [
    section("Items against labels", note("Click an item to see where people give another answer."), itemTable(figures.items, true, (id) => filter(file, { item: id, peopleDiffer: true }))),
    corrected(figures.rates),
    folded("Agreement with labels: statistics", comparisonTables(figures.comparison)),
    folded(
      "Calibration: statistics",
      el(
        "div",
        { class: "columns" },
        read ? el("div", {}, reliabilityChart(figures.reliability, "Reliability diagram"), note(`${plural(read, "yes/no question")}: a calibrated judge lies on the diagonal. The size of a dot is its number of questions.`)) : note("No yes/no item has both a label and a probability."),
        typeof calibrated === "string" ? note(calibrated) : el("div", {}, Object.entries(calibrated).map(([kind, part]) => [el("h3", {}, `${kind} items, ${plural(part.reads, "read")}`), figureTable({ "before calibration": part.figures })])),
      ),
    ),
  ];
}

/** Rates of `agree`: of the judge, of the labels alone, and corrected. */
function corrected(rates) {
  if (!rates?.length) return null;
  const rows = rates.slice(0, MOST_ITEMS).map((one) => [one.name, figure(one.judged), count(one.labelled_units), figure(one.labelled), one.refused ? el("span", { class: "muted" }, one.refused) : figure(one.corrected)]);
  return section("Rates corrected by labels", note("The judge's rates over all rows, the rates of the labels alone, and the judge's rates corrected by the labels."), table(["rate", ["by the judge", "n"], ["labels", "n"], ["by labels", "n"], ["corrected", "n"]], rows, { "aria-label": "Corrected rates" }));
}

function documented(one) {
  if (one.kind === "agree") return [...one.value.comparisons.map((figures) => section(`${one.name}: ${fileName(figures.one)} and ${fileName(figures.other)}`, comparisonTables(figures))), ...Object.values(one.value.rates ?? {}).map(corrected), ...tests(one)];
  if (one.kind === "calibrate")
    return section(
      `${one.name}: calibration of ${one.value.judge}`,
      note("Held-out figures before calibration and with each method."),
      Object.entries(one.value.kinds).map(([kind, part]) => [el("h3", {}, `${kind} items: ${plural(part.reads, "read")}, ${plural(part.groups, "group")}; chosen: ${part.method}`), figureTable({ before: part.before, ...part.after })]),
    );
  if (one.kind === "attack") return attacked(one);
  if (one.kind === "inspect") return analysis(`${one.name}: items`, one.value, null, null);
  return null;
}

function tests(one) {
  return one.value.tests.map((test) => section(`${one.name}: ${fileName(test.one)} against ${fileName(test.other)}`, table(["", ["", "n"]], Object.entries(test).filter(([, value]) => typeof value === "number" || value === null).map(([name, value]) => [name.replaceAll("_", " "), num(value, 4)]))));
}

/** Without labels: what the item analysis found. */
function flagged(figures) {
  if (!figures?.items) return "Labels show whether the judge can be trusted; this report has none.";
  const found = figures.items.filter((line) => line.flags.length).length;
  return `No labels, so whether the judge is right is not known. ${found ? plural(found, "item") : "No item"} of ${count(figures.items.length)} ${found === 1 ? "has" : "have"} flags.`;
}

function analysis(heading, figures, file, filter) {
  if (!figures) return null;
  if (figures.missing) return section(heading, note(figures.missing));
  const order = figures.items.slice().sort((a, b) => b.flags.length - a.flags.length);
  const flagged = order.filter((line) => line.flags.length).length;
  const twin = (line) => [...new Set([line.flags.includes("same_answers") && line.same_answers, line.flags.includes("same_words") && line.same_words])].filter(Boolean).map((question) => el("div", { class: "muted" }, `like: ${question}`));
  const measured = ["similarity", "stability"].filter((name) => order.some((line) => line[name] !== null));
  const rows = order.slice(0, MOST_ITEMS).map((line) => [
    [file ? el("button", { class: "link", onclick: () => filter(file, { item: line.id }) }, line.question) : line.question, twin(line)],
    count(line.answered),
    num(line.pass_rate),
    num(line.variance),
    num(line.discrimination),
    num(line.phi),
    ...measured.map((name) => num(line[name])),
    line.flags.map((name) => [el("span", { class: "flag", title: figures.flags[name] }, name.replaceAll("_", " ")), " "]),
  ]);
  const known = figures.items.filter((line) => line.discrimination !== null && line.pass_rate !== null);
  const heads = ["question", ["answered", "n"], ["pass rate", "n"], ["variance", "n"], ["discrimination", "n"], ["phi", "n"], ...measured.map((name) => [name, "n"]), "flags"];
  const used = Object.entries(figures.flags).filter(([name]) => order.some((line) => line.flags.includes(name)));
  return section(
    heading,
    note(`${plural(figures.items.length, "item")} over ${plural(figures.targets, "target")}${figures.no_answer ? ` (${count(figures.no_answer)} without an answer are left out)` : ""}; ${count(flagged)} with flags. Discrimination is the correlation of an item with the rest of its checklist; phi that with the most similar item. A penalty passes if the answer is no.`),
    table(heads, rows, { "aria-label": heading }),
    order.length > MOST_ITEMS ? note(`${fixed(order.length - MOST_ITEMS, 0)} more items: see --json of inspect.`) : null,
    el(
      "div",
      { class: "columns" },
      known.length ? el("div", {}, scatter(known.map((line) => line.pass_rate), known.map((line) => line.discrimination), { label: "Discrimination against pass rate of the items", names: ["pass rate", "discrimination"], y: [-1, 1] })) : null,
      used.length ? el("div", {}, el("h3", {}, "Flags"), table(["flag", "meaning"], used.map(([name, meaning]) => [el("span", { class: "flag" }, name.replaceAll("_", " ")), meaning]))) : null,
    ),
  );
}

/** The sections of an attack on a judge. */
function attacked(one) {
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
