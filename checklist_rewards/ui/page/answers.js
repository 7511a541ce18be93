// One answer of the judge while a score arrives, as text: nothing that a model wrote is read as HTML.

import { el, fixed, num, stateTag, written } from "./dom.js";

/** An answer in one line: the answer, a bar of P(yes) with the label mass below it, and the number. */
export function answerBar(line, shown = wordOf(line)) {
  const passed = isUnread(line) ? null : line.passed, kind = passed === true ? "pass" : passed === false ? "fail" : "open";
  const p = probabilityOf(line), threshold = isYesNo(line) && !line.votes ? line.threshold ?? null : null; // votes have none
  return [
    el("span", { class: `pill ${kind}` }, shown, kind === "open" ? null : el("small", {}, passed ? " passes" : " fails")),
    p === null ? null : el("span", { class: "meter", role: "img", "aria-label": `${nameOf(line)} ${fixed(p, 2)}${threshold === null ? "" : `, yes from ${fixed(threshold, 2)}`}${line.mass === null ? "" : `, label mass ${fixed(line.mass, 2)}`}`, vars: { "--p": p, "--mass": line.mass ?? 0, "--threshold": threshold } }, threshold === null ? null : el("span", { class: "threshold", title: `yes from ${threshold}` })),
    p === null ? null : num(p, 3),
  ];
}

/** What an answer needs to be explained: what an unanswered read means, the probability before calibration, a reason. */
export function answerNotes(line, advice = {}) {
  const [reason, ...detail] = (line.unanswered ?? "").split(": ");
  return [
    reason && !isUnread(line) ? el("p", { class: "reason" }, `No answer (${reason}): `, [advice[reason], detail.join(": ")].filter(Boolean).join("; "), ". It counts neither as yes nor as no.") : null,
    isUnread(line) ? el("p", { class: "reason" }, "The response has no answer, so the judge was not asked.") : null,
    line.uncalibrated ? el("p", { class: "reason" }, `before calibration ${Object.entries(line.uncalibrated).map(([label, q]) => `${label} ${fixed(q, 4)}`).join(", ")}`) : null,
    line.reasoning ? written(line.reasoning, { class: "written reasoning" }) : null,
  ].filter(Boolean);
}

/** P(yes), or the probability of the answer for other options; null if there is none. */
export function probabilityOf(line) {
  return line?.probabilities?.yes ?? line?.confidence ?? null;
}

function nameOf(line) {
  return line.probabilities && "yes" in line.probabilities ? "P(yes)" : `P(${wordOf(line)})`;
}

/** Whether the labels are yes and no, so that the threshold decides. A report keeps P(yes) alone. */
function isYesNo(line) {
  return ["yes", "no,yes"].includes(Object.keys(line.probabilities ?? {}).sort().join());
}

function wordOf(line) {
  return line.answer ?? (isUnread(line) ? "not asked" : "unanswered");
}

/** Whether the judge was not asked. */
function isUnread(line) {
  return line.unanswered?.startsWith("no_answer") ?? false;
}

/** The fields of a score that are figures, with the names that are shown. */
const METRICS = [
  ["pass_rate", "pass rate"],
  ["weighted_score", "weighted"],
  ["expected_score", "expected"],
  ["normalized_score", "normalized"],
  ["raw_score", "raw"],
  ["quality", "quality (1-5)"],
  ["answered_weight", "answered weight"],
];

/** The score, with its bounds if answers are missing. */
export function scoreLine(score) {
  return [
    el("span", { class: "muted" }, `score (${score.primary_metric})`),
    el("strong", { class: "score" }, num(score.primary_score, 4)),
    stateTag(score.state),
    score.lower !== score.upper && score.lower !== null ? el("small", {}, `from ${fixed(score.lower, 4)} to ${fixed(score.upper, 4)}, whatever the missing answers`) : null,
  ].filter(Boolean);
}

/** The other figures of a score, by `value(name)`. */
export function metricsLine(value) {
  const known = METRICS.filter(([name]) => !Number.isNaN(value(name) ?? NaN));
  return el("dl", { class: "metrics" }, known.map(([name, shown]) => el("div", {}, el("dt", {}, shown), el("dd", {}, num(value(name), 4)))));
}
