// Trust: agreement with labels, calibration, attacks, and item analysis.

import { reliabilityChart } from "./charts.js";
import { el, folded, note, num, plural, section, table, tabled, verdict } from "./dom.js";

/** Whether the trust view has anything to show about a file. */
export function hasTrust(report, file) {
  return Boolean(report.trust[file.name] || file.analysis || file.labels.length || report.documents.some((one) => one.kind !== "summary"));
}

/** The trust view of a file. `at` opens rows, and in the app links to the columns with labels. */
export function trust(report, file, at) {
  const filter = at.openFilter;
  return [
    verdict(report.trust[file.name]?.verdict ?? file.analysis?.verdict ?? "Labels show whether the judge can be trusted; this report has none."),
    labelled(report, file, at),
    report.trust[file.name] ? labels(file, report.trust[file.name], filter) : null,
    report.documents.filter((one) => one.kind !== "summary").map((one) => one.sections.map((part) => tabled(part))), // the overview shows summaries
    ...Object.entries(report.extra.tables ?? {}).map(([heading, values]) => section(heading, table(["", ["", "n"]], Object.entries(values).map(([name, value]) => [name, typeof value === "number" && !Number.isInteger(value) ? num(value) : String(value ?? "–")])))),
    analysis(report.extra.items && report.files[0] === file ? report.extra.items : file.analysis, file, filter),
  ];
}

/** Which labels the figures are about: in the app links, in a report of one file the command that shows them. */
export function labelled(report, file, at) {
  const { labelled: address, column } = at.actions, names = new Set(report.files.flatMap((one) => one.labels));
  if (address && names.size) {
    const known = [[null, "exported from Annotate"], ...[...names].map((name) => [name, `the column ${name}`])];
    return el("nav", { class: "part choices", "aria-label": "labels" }, el("strong", {}, "How far does the judge agree with people? Labels: "), known.map(([name, shown]) => el("a", { href: address(name), "aria-current": name === column ? "page" : null }, shown)));
  }
  if (report.trust[file.name] || file.kind !== "scored") return null;
  return note("This report has no labels. ", file.labels.length ? [`The file has them in ${file.labels.join(", ")}: `, el("code", {}, `checklist-rewards report ${file.name} --label-key ${file.labels[0]}`)] : "Add --label-key or --labels to see how far the judge agrees with people.");
}

function labels(file, { reliability, sections }, filter) {
  const read = reliability.reduce((sum, bin) => sum + bin.count, 0);
  return [
    tabled(sections.items, (i) => filter(file, { item: sections.items.ids[i], peopleDiffer: true })),
    sections.rates.map((part) => tabled(part)),
    folded("Agreement with labels: statistics", el("div", { class: "columns" }, sections.comparison.map((part) => tabled(part)))),
    folded(
      "Calibration: statistics",
      el(
        "div",
        { class: "columns" },
        read ? el("div", {}, reliabilityChart(reliability, "Reliability diagram"), note(`${plural(read, "yes/no question")}: a calibrated judge lies on the diagonal. The size of a dot is its number of questions.`)) : note("No yes/no item has both a label and a probability."),
        typeof sections.calibration === "string" ? note(sections.calibration) : el("div", {}, sections.calibration.map((part) => tabled(part))),
      ),
    ),
  ];
}

/** An item analysis: its table, and what the flags mean. */
function analysis(figures, file, filter) {
  if (!figures) return null;
  if (figures.missing) return section("Item analysis", note(figures.missing));
  const [items, ...others] = figures.sections;
  return [
    tabled(items, (i) => filter(file, { item: items.ids[i] })),
    others.map((one) => tabled(one)),
  ];
}
