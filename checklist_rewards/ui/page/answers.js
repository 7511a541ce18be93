// One answer of the judge while a score arrives, as text: nothing that a model wrote is read as HTML.

import { el, fixed, num, written } from "./dom.js";
import { stateTag } from "./states.js";

/** An answer with its probability, label mass and reason. */
export function answerLine(line) {
  const unread = line.unanswered?.startsWith("no_answer"); // the judge was not asked
  const passed = unread ? null : line.passed;
  const kind = passed === true ? "pass" : passed === false ? "fail" : "open";
  const word = passed === true ? "passes" : passed === false ? "fails" : "";
  const shown = line.answer ?? (unread ? "not asked" : "unanswered");
  const p = line.probabilities?.yes ?? line.confidence;
  const name = line.probabilities && "yes" in line.probabilities ? "P(yes)" : `P(${shown})`;
  return [
    el("span", { class: `pill ${kind}` }, shown, word ? el("small", {}, ` ${word}`) : null),
    p === null || p === undefined ? null : el("span", {}, `${name} `, num(p, 4)),
    line.mass === null ? null : el("span", { class: "muted" }, "mass ", num(line.mass, 4)),
    line.unanswered ? el("span", { class: "reason" }, line.unanswered) : null,
    line.uncalibrated ? el("span", { class: "muted" }, `before calibration ${Object.entries(line.uncalibrated).map(([label, q]) => `${label} ${fixed(q, 4)}`).join(", ")}`) : null,
    line.reasoning ? written(line.reasoning, { class: "written reasoning" }) : null,
  ];
}

/** The fields of a score that are figures, with the names that are shown. */
export const METRICS = [
  ["pass_rate", "pass rate"],
  ["weighted_score", "weighted"],
  ["expected_score", "expected"],
  ["normalized_score", "normalized"],
  ["raw_score", "raw"],
  ["quality", "quality (1-5)"],
  ["answered_weight", "answered weight"],
];

/** The figures of a score. */
export function scoreLine(score) {
  const known = METRICS.filter(([name]) => (score[name] ?? null) !== null);
  return [
    el("div", { class: "fact" }, el("span", { class: "muted" }, `score (${score.primary_metric})`), el("strong", { class: "score" }, num(score.primary_score, 4)), stateTag(score.state), score.lower !== score.upper && score.lower !== null ? el("small", {}, `from ${fixed(score.lower, 4)} to ${fixed(score.upper, 4)}, whatever the missing answers`) : null),
    el("dl", { class: "metrics" }, known.map(([name, shown]) => el("div", {}, el("dt", {}, shown), el("dd", {}, num(score[name], 4))))),
  ];
}
