// One prompt over the run: what the policy wrote for it at every step, and which items the completions passed.

import { points, sparkline } from "./charts.js";
import { changed } from "./difference.js";
import { choice, count, el, fixed, note, num, plural, shorter, signClass, signed, stateTag, table, written } from "./dom.js";

const MOST_PROMPTS = 500;
const RANKS = [["best", (own) => own[0]], ["median", (own) => own[Math.floor(own.length / 2)]], ["worst", (own) => own.at(-1)]];

/** The view of a prompt, with a list of all prompts. */
export function promptHistory(file, open) {
  const prompts = promptsOf(file);
  const select = choice(prompts.slice(0, MOST_PROMPTS).map(([prompt, , steps]) => [file.text(prompt) ?? "", `${plural(steps, "step")}: ${shorter(file.text(prompt) ?? "no prompt")}`]), { "aria-label": "prompt of the history" });
  const body = el("div");
  const draw = () => body.replaceChildren(...ofPrompt(file, prompts[select.selectedIndex][1], open).filter(Boolean));
  select.addEventListener("change", draw);
  draw();
  return [note("How the completions of one prompt changed; prompts seen in the most steps first."), el("div", { class: "controls" }, select), body];
}

function promptsOf(file) {
  const byPrompt = Map.groupBy(file.all, (row) => file.rows.prompt[row]);
  const spread = (rows) => new Set(rows.map((row) => file.rows.step[row])).size;
  return [...byPrompt].map(([prompt, rows]) => [prompt, rows, spread(rows)]).sort((a, b) => b[2] - a[2]);
}

function ofPrompt(file, rows, open) {
  const { step, reward } = file.rows;
  const steps = [...new Set(rows.map((row) => step[row]))].sort((a, b) => a - b);
  const value = (row) => (Number.isNaN(reward[row]) ? -Infinity : reward[row]);
  const at = new Map(steps.map((number) => [number, rows.filter((row) => step[row] === number).sort((a, b) => value(b) - value(a))])); // best first
  const known = (number) => at.get(number).map((row) => reward[row]).filter((one) => !Number.isNaN(one));

  const slider = el("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "step of the prompt" });
  const since = choice([["previous", "changes since the step before"], ["first", "changes since the first step"], ["none", "no changes marked"]], { "aria-label": "changes since" });
  const status = el("output", { class: "num" });
  const cards = el("div", { class: "cards", tabindex: "0", role: "group", "aria-label": "best, median and worst completion" });
  const items = el("div");
  const chart = points(rows.map((row) => step[row]), rows.map((row) => reward[row]), { label: "Rewards of the completions by step", pick: (number) => go(steps.indexOf(number)) });
  const list = table(
    ["step", ["completions", "n"], ["lowest", "n"], ["median", "n"], ["highest", "n"], "the completion with the median reward"],
    steps.map((number, place) => {
      const own = at.get(number), rewards = known(number), middle = RANKS[1][1](own);
      return [el("button", { class: "link", onclick: () => go(place) }, `step ${number}`), count(own.length), num(rewards.at(-1)), num(reward[middle]), num(rewards[0]), [marks(file, middle), el("div", { class: "two-lines", dir: "auto" }, file.target(middle) || "no text")]];
    }),
    { "aria-label": "Completions of the prompt", class: "short-table" },
  );
  slider.addEventListener("input", draw);
  since.addEventListener("change", draw);
  draw();
  return [
    written(file.prompt(rows[0])),
    chart.node,
    steps.length > 1 ? el("div", { class: "controls" }, slider, status, since) : el("div", { class: "controls" }, status),
    cards,
    items,
    el("details", {}, el("summary", {}, `All ${plural(steps.length, "step")}`), list),
  ];

  function go(place) {
    slider.value = place;
    draw();
  }

  function draw() {
    const place = Number(slider.value), number = steps[place], own = at.get(number), rewards = known(number);
    const before = place === 0 || since.value === "none" ? null : steps[since.value === "first" ? 0 : place - 1];
    status.textContent = `step ${number} (${place + 1} of ${steps.length}): ${plural(own.length, "completion")}${rewards.length ? `, rewards ${fixed(rewards.at(-1))} to ${fixed(rewards[0])}` : ", no reward"}`;
    chart.mark(number);
    cards.replaceChildren(
      ...RANKS.map(([name, pick]) => {
        const row = pick(own), earlier = before === null ? null : pick(at.get(before));
        const text = changed(earlier === null ? null : file.target(earlier), file.target(row));
        return card(file, row, open, { heading: before === null ? name : `${name}, changes since step ${before}`, text });
      }),
    );
    items.replaceChildren(itemRates(file, steps, at, place));
  }
}

/** Per item of the prompt: the share of the completions that pass, at the first, the chosen and the last step. */
function itemRates(file, steps, at, place) {
  const lines = new Map();
  steps.forEach((number, i) => {
    for (const row of at.get(number))
      for (let cell = file.starts[row]; cell < file.starts[row + 1]; cell++) {
        const item = file.cells.item[cell];
        if (!lines.has(item)) lines.set(item, steps.map(() => [0, 0]));
        if (file.cells.passed[cell] < 0) continue;
        lines.get(item)[i][0] += file.cells.passed[cell];
        lines.get(item)[i][1]++;
      }
  });
  const rate = ([passed, answered]) => (answered ? passed / answered : null);
  const shown = (counts) => [num(rate(counts), 2), el("span", { class: "bounds" }, ` ${counts[0]} of ${counts[1]}`)];
  const rows = [...lines].map(([item, counts]) => [file.items[item].question, shown(counts[0]), shown(counts[place]), shown(counts.at(-1)), sparkline(counts.map(rate))]);
  return table(["item", [`passes at step ${steps[0]}`, "n"], [`at step ${steps[place]}`, "n"], [`at step ${steps.at(-1)}`, "n"], "over the steps"], rows, { "aria-label": "Pass rates of the items of the prompt" });
}

/** A card. `text` replaces the completion's text, for example by one with its changes marked. */
export function card(file, row, open, { heading = null, text = null } = {}) {
  const { rows } = file;
  const advantage = rows.advantage[row];
  return el(
    "div",
    { class: "card" },
    heading && el("h3", {}, heading),
    el(
      "div",
      { class: "given" },
      el("strong", { class: signClass(advantage) }, Number.isNaN(advantage) ? "no reward" : signed(advantage)),
      el("span", { class: "muted" }, "reward ", num(rows.reward[row])),
      stateTag(file.state(row)),
      el("button", { class: "link", onclick: () => open(row) }, "details"),
    ),
    marks(file, row),
    text ?? written(file.target(row)),
  );
}

/** The answers of a row, one mark per item. */
function marks(file, row) {
  const mark = (line) => el("span", { class: "cell", "data-passed": line.passed, "data-step": 4, title: `${line.item.question}\nP(yes) ${fixed(line.p)}` }, line.answer ?? "–");
  return el("div", { class: "marks" }, file.cellsOf(row).map((cell) => mark(file.cell(cell))));
}
