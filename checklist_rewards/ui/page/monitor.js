// Monitor: held-out items, shadow judge, and alarms over the steps, from the file of a reward monitor.

import { lines } from "./charts.js";
import { count, el, note, num, plural, section, stateTag, table, tabled, verdict, written } from "./dom.js";

/** The view of all monitors of a report. */
export function monitor(report) {
  return report.monitors.map((one) => [verdict(one.verdict), alarms(one), section("Over the steps", el("div", { class: "columns" }, curves(one))), one.sections.map((part) => tabled(part))]);
}

function alarms(one) {
  const rows = one.alarms.map((alarm) => [
    `step ${count(alarm.step)}`,
    alarm.signal.replaceAll("_", " "),
    alarm.about,
    [num(alarm.size), el("span", { class: "bounds" }, ` of ${alarm.threshold}`)],
    [alarm.message, el("details", {}, el("summary", {}, plural(alarm.completions.length, "completion")), alarm.completions.map(completion))],
  ]);
  return section(
    `Alarms of ${one.name}`,
    rows.length ? table(["step", "signal", "about", ["size", "n"], "what it shows"], rows, { "aria-label": "Alarms" }) : note("None."),
  );
}

function completion(shown) {
  return el("div", {}, el("p", { class: "muted two-lines", dir: "auto" }, shown.prompt), written(shown.completion), el("p", { class: "muted" }, "reward ", num(shown.reward), `, ${shown.why} `, num(shown.evidence), " ", stateTag(shown.state)));
}

function curves({ steps, statistics, charts }) {
  return charts.map((chart) => lines(steps, chart.lines.map(([name, shown]) => ({ name: shown, values: statistics[name] })), { label: chart.label, low: 0, high: 1 }));
}
