// Monitor: held-out items, shadow judge, and alarms over the steps, from the file of a reward monitor.

import { lines } from "./charts.js";
import { count, el, note, num, plural, section, stateTag, table, tabled, verdict, written } from "./dom.js";

const PAIRS = [
  ["Rewarded and held-out items", [["reward_rewarded", "mean credit of rewarded items"], ["reward_held_out", "of held-out items"]]],
  ["Judge and shadow judge", [["shadow_own", "judge"], ["shadow_reward", "shadow judge"]]],
  ["Reward at the length of the start", [["reward_mean", "reward"], ["length_matched", "at the length of the start"]]],
  ["Completions without an answer, or cut", [["empty", "empty"], ["cut_in_thought", "cut in thought"], ["unfinished", "unfinished"], ["cut", "cut"]]],
  ["Label mass and unanswered reads", [["label_mass", "label mass"], ["unanswered", "unanswered"]]],
];
const ABOUT = { hacking: "reward hacking", judge: "the judge", training: "training" };

/** The view of all monitors of a report. */
export function monitor(report) {
  return report.monitors.map((one) => [verdict(one.verdict), alarms(one), section("Over the steps", el("div", { class: "columns" }, curves(one))), one.sections.map((part) => tabled(part))]);
}

function alarms(one) {
  const rows = one.alarms.map((alarm) => [
    `step ${count(alarm.step)}`,
    alarm.signal.replaceAll("_", " "),
    ABOUT[alarm.about] ?? alarm.about,
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

function curves({ steps, statistics }) {
  const known = ([name]) => statistics[name]?.some((value) => value !== null);
  return PAIRS.map(([label, names]) => [label, names.filter(known)])
    .filter(([, names]) => names.length)
    .map(([label, names]) => lines(steps, names.map(([name, shown]) => ({ name: shown, values: statistics[name] })), { label, low: 0, high: 1 }));
}
