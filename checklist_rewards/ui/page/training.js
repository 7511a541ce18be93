// Training: curves over steps, what the policy learned, one group side by side, and one prompt over the run.

import { lines, sparkline } from "./charts.js";
import { bounds, el, note, num, plural, section, shorter, signClass, signed, stateName, table, written } from "./dom.js";
import { sampled } from "./overview.js";
import { card, promptHistory } from "./prompt.js";

const MOST_LEARNED = 30;

/** The training view. `open(row)` shows the details of a row. */
export function training(report, file, open) {
  const { learned } = file.training;
  return [
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
  const changed = figures.changed ?? [];
  const breaks = changed.some(Boolean) ? changed : [];
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
      "Pass rates in the first and in the last third of the steps, with 95 % Wilson intervals, by how much they changed. ",
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
