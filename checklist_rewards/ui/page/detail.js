// Detail: one row with its prompt, its text, and every answer.

import { answerBar, answerNotes, metricsLine } from "./answers.js";
import { el, fact, fixed, num, pieces, signed, stateName, table, thumbnails, written } from "./dom.js";

const GRPO_EPSILON = 1e-4; // GRPOTrainer adds it to the standard deviation
const UNREAD = "no_answer"; // the reason of items that the judge was not asked
const SCORES = ["pass", "weighted", "expected", "normalized", "net", "quality"];

/** The details of a row. `partner` is another file with answers to the same rows, or undefined. */
export function detail(file, row, partner) {
  const { rows } = file;
  const lower = rows.lower[row], upper = rows.upper[row];
  const bounded = !Number.isNaN(lower) && lower !== upper;
  const reward = rows.step[row] >= 0;
  const found = evidenceOf(file, row);
  const others = Object.entries(file.others).filter(([, column]) => column[row] >= 0);
  return [
    el(
      "div",
      { class: "scores" },
      fact("score", num(rows.score[row], 4), bounded ? `from ${fixed(lower)} to ${fixed(upper)}, whatever the missing answers` : null),
      reward ? fact("reward", num(rows.reward[row], 4), Number.isNaN(rows.reward[row]) ? "none: the trainer leaves this completion out" : null) : null,
      reward ? fact("advantage", num(rows.advantage[row], 4), "reward minus the mean of its group") : null,
      reward ? fact("step", String(rows.step[row])) : null,
      file.hasStates && file.state(row) ? fact("state", stateName(file.state(row))) : null,
      fact("words", String(rows.words[row])),
    ),
    metricsLine((name) => rows[name][row]),
    others.length ? el("dl", { class: "metrics", "aria-label": "other columns" }, others.map(([name, column]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, file.text(column[row]))))) : null,
    file.prompt(row) === null ? null : part("Prompt", written(file.prompt(row))),
    thumbnails(file.thumbnails(row)),
    part("Response", withEvidence(file, row, found)),
    reward ? makingOf(file, row) : null,
    file.isUnread(row) ? el("p", { class: "note" }, "The response has no answer, so the judge was not asked.") : null,
    file.rows.counts[row] ? part("Answers", answers(file, row, partner, found)) : el("p", { class: "note" }, "This row has no answers."),
  ];
}

/** From the score to the advantage, as the log recorded it; the last lines are computed here from the group. */
function makingOf(file, row) {
  const { rows } = file;
  const stages = file.shaping[row] ?? [["score", rows.score[row]]];
  const last = stages.at(-1)[1];
  const shown = (name) => (SCORES.includes(name) ? `score (${name})` : name.replaceAll("_", " "));
  const lines = stages.map(([name, value], i) => [shown(name), num(value, 4), i ? change(value, stages[i - 1][1]) : ""]);
  const reward = rows.reward[row];
  if (last !== reward && !(Number.isNaN(last ?? NaN) && Number.isNaN(reward))) lines.push([file.cellsOf(row).some((cell) => file.more[cell]?.held_out) ? "without the held-out items" : "other changes, which this log does not record", num(reward, 4), change(reward, last)]);
  lines.push([el("strong", {}, "reward"), num(reward, 4), ""]);
  if (!Number.isNaN(reward)) lines.push(...advantages(file, row));
  return part("What the reward was made of", table(["", ["value", "n"], ["change", "n"]], lines, { class: "making", "aria-label": "What the reward was made of" }));
}

function advantages(file, row) {
  const rewards = file.groupOf(row).map((other) => file.rows.reward[other]).filter((value) => !Number.isNaN(value));
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
  const away = file.rows.advantage[row];
  const std = Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (rewards.length - 1));
  return [
    [`mean of the ${rewards.length} rewards of its group`, num(mean, 4), ""],
    ["advantage: reward minus mean", num(away, 4), ""],
    rewards.length > 1 ? [`divided by the standard deviation ${fixed(std, 4)}, as GRPOTrainer does by default`, num(away / (std + GRPO_EPSILON), 4), ""] : null,
  ].filter(Boolean);
}

function change(value, before) {
  return value === null || before === null ? "" : value === before ? "–" : signed(value - before, 4);
}

function part(heading, ...children) {
  return el("section", {}, el("h3", {}, heading), ...children);
}

function answers(file, row, partner, found) {
  const { rows } = file, other = partner && file.rowIn(partner, row);
  const seen = new Map();
  const list = file.cellsOf(row).map((cell) => {
    const line = file.cell(cell);
    const k = seen.get(line.item.id) ?? 0;
    seen.set(line.item.id, k + 1);
    const theirs = other === undefined ? -1 : partner.cellOf(other, line.item.id, k);
    return answer(file, { ...line, threshold: Number.isNaN(rows.threshold[row]) ? null : rows.threshold[row] }, theirs < 0 ? null : [partner.name, partner.cell(theirs)], evidenceLine(found, cell));
  });
  return el("ol", { class: "answers" }, list);
}

function answer(file, line, theirs, evidence) {
  const { weight } = line.item, number = (value) => (Number.isNaN(value) ? null : value);
  const unanswered = line.reason && [line.reason, line.detail].filter(Boolean).join(": ");
  const given = { ...line, passed: [false, true][line.passed] ?? null, mass: number(line.mass), probabilities: line.probabilities ?? (Number.isNaN(line.p) ? null : { yes: line.p }), confidence: number(line.p), unanswered };
  return el(
    "li",
    {},
    el("div", { class: "question" }, line.item.question),
    el(
      "div",
      { class: "given" },
      answerBar(given),
      weight === null || weight === undefined ? null : tag(weight < 0 ? `penalty ${weight}` : `weight ${weight}`),
      line.item.required ? tag("required") : null,
      line.held_out ? tag("held out: not rewarded") : null,
      line.item.category ? tag(line.item.category) : null,
      line.stated === undefined ? null : tag(`from "${line.stated}"`),
      given.mass === null ? null : el("span", { class: "muted" }, "mass ", num(line.mass)),
      line.agreement === undefined ? null : el("span", { class: "muted" }, "agreement ", num(line.agreement)),
      line.judge || line.method ? el("span", { class: "muted" }, [line.judge, line.method].filter(Boolean).join(", ")) : null,
    ),
    line.label === null ? null : compared("people", line.label, line.label !== line.answer && line.reason !== UNREAD),
    line.shadow === undefined ? null : compared("shadow judge", line.shadow, line.shadow !== line.answer),
    theirs === null ? null : compared(theirs[0], theirs[1].answer ?? `unanswered: ${theirs[1].reason}`, theirs[1].answer !== line.answer, theirs[1]),
    line.reason === UNREAD ? null : answerNotes(given, file.overview.advice),
    line.probabilities ? el("p", { class: "muted" }, Object.entries(line.probabilities).map(([name, p]) => [`${name} `, num(p), "  "])) : null,
    evidence,
    line.votes ? el("details", {}, el("summary", {}, `${line.votes.length} votes`), el("ul", {}, line.votes.map((vote) => voted(file, vote)))) : null,
  );
}

function voted(file, vote) {
  return el(
    "li",
    {},
    `${vote.judge ?? "judge"}: ${vote.answer ?? `unanswered: ${vote.unanswered}`} `,
    vote.p === null ? null : num(vote.p),
    vote.reasoning < 0 ? null : written(file.text(vote.reasoning), { class: "written reasoning" }),
  );
}

function compared(who, answer, differs, line = null) {
  const p = line === null || Number.isNaN(line.p) ? null : [" P(yes) ", num(line.p, 4)];
  return el("div", { class: differs ? "compared differs" : "compared" }, `${who}: ${answer}`, p, differs ? " (differs)" : "");
}

function tag(text) {
  return el("span", { class: "tag" }, text);
}

/** The evidence of a row: a list of { cell, by, text, start, end }; `by` is null for a quote of the judge. */
function evidenceOf(file, row) {
  const letters = [...(file.target(row) ?? "")];
  return file.cellsOf(row).flatMap((cell) => (file.more[cell]?.spans ?? []).map((span) => ({ ...span, cell, text: letters.slice(span.start, span.end).join("") })));
}

/** The response with its evidence highlighted. The numbers of the items are drawn by the style, so that the text stays as it is. */
function withEvidence(file, row, found) {
  const target = file.target(row);
  if (!found.length) return written(target, { class: "written response" });
  const piece = ({ text, over, end }) => {
    if (!over.length) return text;
    const numbers = new Set(over.map((one) => one.cell - file.starts[row] + 1)), ends = over.some((one) => one.end === end);
    return el("mark", { title: over.map((one) => `${one.by ?? "judge"}: ${file.cell(one.cell).item.question}`).join("\n"), "data-items": ends ? [...numbers].join(" ") : null, class: over.every((one) => one.by !== null) ? "person" : null }, text);
  };
  return el("div", { class: "written response", dir: "auto" }, pieces(target, found).map(piece));
}

/** The evidence of one answer. */
function evidenceLine(found, cell) {
  const own = new Map(); // by text: who gave it
  for (const one of found) if (one.cell === cell) own.set(one.text, (own.get(one.text) ?? new Set()).add(one.by ?? "judge"));
  if (!own.size) return null;
  return el("p", { class: "evidence" }, el("span", { class: "muted" }, "evidence: "), [...own].map(([text, by], i) => [i ? ", " : "", el("q", {}, text), el("span", { class: "muted" }, ` (${[...by].join(", ")})`)]));
}
