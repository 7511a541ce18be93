// Training: curves over steps, what the policy learned, one group side by side, and one prompt over the run.

import { lines, points, sparkline } from "./charts.js";
import { changed } from "./difference.js";
import { bounds, choice, count, el, fixed, note, num, plural, questionOf, section, shorter, signClass, signed, stateName, stateTag, table, verdict, written } from "./dom.js";
import { sampled } from "./overview.js";

const MOST_LEARNED = 30, MOST_PROMPTS = 500;
const RANKS = [["best", (own) => own[0]], ["median", (own) => own[Math.floor(own.length / 2)]], ["worst", (own) => own.at(-1)]];

/** The training view. `open(row)` shows the details of a row. */
export function training(report, file, open) {
  const { learned } = file.training;
  return [
    verdict(file.training.verdict),
    section("What the policy learned", learnedTable(learned)),
    runs(report.files.filter((one) => one.training)),
    section("Over the steps", note("Faint lines are the values of the steps, strong lines their moving average."), el("div", { class: "columns" }, curves(file.training))),
    section("One group of completions", sampled(file), report.ready ? groups(file, open) : note("Unpacking the rows …")),
    report.ready ? section("One prompt over the run", promptHistory(file, open)) : null,
  ];
}

/** Curves over the steps, from the figures of a run. */
export function curves(figures) {
  const { steps, series, categories } = figures;
  const breaks = figures.changed?.some(Boolean) ? figures.changed : [];
  const line = (name, shown = name) => ({ name: shown, values: series[name] });
  const names = Object.keys(categories), states = Object.keys(figures.states);
  return [
    lines(steps, [line("reward"), line("score"), line("pass_rate", "pass rate")], { label: breaks.length ? "Reward, score and pass rate, interrupted where checklists changed" : "Reward, score and pass rate", low: 0, high: 1, breaks }),
    names.length ? lines(steps, names.slice(0, 6).map((name) => ({ name, values: categories[name] })), { label: "Pass rate by category", low: 0, high: 1 }) : null,
    lines(steps, [line("words", "words")], { label: states.length ? "Length of the completions with an answer" : "Length of the completions", digits: 1 }),
    states.length ? lines(steps, states.map((name) => ({ name: stateName(name), values: figures.states[name] })), { label: "Completions without an answer, or cut", low: 0, high: 1 }) : null,
    lines(steps, [line("reward_std_in_group", "standard deviation of the reward in a group"), line("groups_without_variance", "groups without variance"), line("without_reward", "completions without a reward")], { label: "Variance and failures", low: 0 }),
  ];
}

/** Several runs on the same axes, and their last thirds question by question. */
function runs(files) {
  if (files.length < 2) return null;
  const steps = [...new Set(files.flatMap((file) => file.training.steps))].sort((a, b) => a - b);
  const spread = (file, name) => {
    const values = new Map(file.training.steps.map((step, i) => [step, file.training.series[name][i]]));
    return { name: file.name, values: steps.map((step) => values.get(step) ?? null) };
  };
  const last = files.map((file) => new Map(file.training.learned.map((line) => [line.pattern, line.after])));
  const shared = [...last[0].keys()].filter((pattern) => last.every((own) => own.get(pattern)?.counted));
  const cells = (pattern) => last.map((own) => [num(own.get(pattern).rate), bounds(own.get(pattern).interval)]);
  return section(
    "Runs",
    el("div", { class: "columns" }, lines(steps, files.map((file) => spread(file, "reward")), { label: "Reward", low: 0, high: 1 }), lines(steps, files.map((file) => spread(file, "words")), { label: "Words", digits: 1 })),
    note("Pass rates in the last third of each run."),
    table(["question", ...files.map((file) => [file.name, "n"])], shared.slice(0, MOST_LEARNED).map((pattern) => [pattern, ...cells(pattern)]), { "aria-label": "Runs" }),
  );
}

/** How the pass rates of questions changed. */
export function learnedTable(learned) {
  const known = learned.filter((line) => line.change !== null);
  if (!known.length) return note("No question has enough answers in the first and in the last third of the steps.");
  const shown = known.length > MOST_LEARNED ? [...known.slice(0, MOST_LEARNED / 2), ...known.slice(-MOST_LEARNED / 2)] : known;
  const side = (part) => [num(part.rate), bounds(part.interval), el("div", { class: "muted" }, plural(part.counted, "answer"))];
  const rows = shown.map((line) => [
    line.pattern,
    el("strong", { class: signClass(line.change) }, signed(line.change)),
    side(line.before),
    side(line.after),
    sparkline(line.series),
  ]);
  return [
    note(
      "Pass rates in the first and in the last third of the steps, with 95 % Wilson intervals (from 15 texts on), by how much they changed. ",
      "Questions that differ only in a quoted text or a number are one line.",
      known.length > shown.length ? ` Shown are the ${MOST_LEARNED} of ${known.length} that changed most.` : "",
    ),
    table(["question", ["change", "n"], ["first third", "n"], ["last third", "n"], "over the steps"], rows, { class: "learned", "aria-label": "What the policy learned" }),
  ];
}

function groups(file, open) {
  const { step, group } = file.rows;
  const byStep = Map.groupBy(file.all, (row) => step[row]);
  const steps = [...byStep.keys()].sort((a, b) => a - b);
  let inStep = [];
  const slider = el("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "step" });
  const shown = el("output", { class: "num" });
  const select = el("select", { "aria-label": "prompt" });
  const cards = el("div");
  const fill = () => {
    const at = steps[slider.value];
    inStep = [...Map.groupBy(byStep.get(at), (row) => group[row]).values()];
    shown.textContent = `step ${at}, ${plural(inStep.length, "group")}`;
    select.replaceChildren(...inStep.map((rows) => el("option", { value: file.prompt(rows[0]) ?? "" }, shorter(file.prompt(rows[0]) ?? "no prompt"))));
    draw();
  };
  const draw = () => {
    const rows = inStep[select.selectedIndex];
    const order = rows.slice().sort((a, b) => (file.rows.advantage[b] || 0) - (file.rows.advantage[a] || 0));
    cards.replaceChildren(written(file.prompt(rows[0])), el("div", { class: "cards", tabindex: "0", role: "group", "aria-label": "completions of the group" }, order.map((row) => card(file, row, open))));
  };
  slider.addEventListener("input", fill);
  select.addEventListener("change", draw);
  fill();
  return [note("Advantage: the reward minus the mean of its group, before the trainer scales it. Highest first."), el("div", { class: "controls" }, slider, shown, select), cards];
}

/** The view of a prompt, with a list of all prompts. */
function promptHistory(file, open) {
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
  const rows = [...lines].map(([item, counts]) => [questionOf(file.items[item]), shown(counts[0]), shown(counts[place]), shown(counts.at(-1)), sparkline(counts.map(rate))]);
  return table(["item", [`passes at step ${steps[0]}`, "n"], [`at step ${steps[place]}`, "n"], [`at step ${steps.at(-1)}`, "n"], "over the steps"], rows, { "aria-label": "Pass rates of the items of the prompt" });
}

/** A card. `text` replaces the completion's text, for example by one with its changes marked. */
function card(file, row, open, { heading = null, text = null } = {}) {
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
