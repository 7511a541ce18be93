// Training: curves over steps, what the policy learned, and one prompt over the run.

import { lines, sparkline } from "./charts.js";
import { changed } from "./difference.js";
import { bounds, choice, el, fixed, note, num, plural, section, shorter, signClass, signed, stateName, stateTag, table, verdict, written } from "./dom.js";
import { sampled } from "./overview.js";

const MOST_LEARNED = 30;
const RANKS = [["best", (own) => own[0]], ["median", (own) => own[Math.floor(own.length / 2)]], ["worst", (own) => own.at(-1)]];

/** The training view. `open(row)` shows the details of a row. */
export function training(report, file, open) {
  const { learned } = file.training;
  return [
    verdict(file.training.verdict),
    section("What the policy learned", learnedTable(learned)),
    runs(report.files.filter((one) => one.training)),
    section("Over the steps", note("Faint lines are the values of the steps, strong lines their moving average."), el("div", { class: "columns" }, curves(file.training))),
    section("One prompt over the run", sampled(file), report.ready ? completions(file, open) : note("Unpacking the rows …")),
  ];
}

/** Curves over the steps, from the figures of a run. */
export function curves(figures) {
  const { steps, series, categories } = figures;
  const breaks = figures.changed.some(Boolean) ? figures.changed : [];
  const line = (name, shown = name) => ({ name: shown, values: series[name] });
  const names = Object.keys(categories), states = Object.keys(figures.states);
  return [
    lines(steps, [line("reward"), line("score"), line("pass_rate", "pass rate")], { label: breaks.length ? "Reward, score and pass rate, interrupted where checklists changed" : "Reward, score and pass rate", low: 0, high: 1, breaks }),
    names.length ? lines(steps, names.slice(0, 6).map((name) => ({ name, values: categories[name] })), { label: "Pass rate by category", low: 0, high: 1 }) : null,
    lines(steps, [line("words", "words")], { label: states.length ? "Length of the completions with an answer" : "Length of the completions", digits: 1 }),
    states.length ? lines(steps, states.map((name) => ({ name: stateName(name), values: figures.states[name] })), { label: "Completions without an answer, or cut", low: 0, high: 1 }) : null,
    lines(steps, [line("without_reward", "completions without a reward")], { label: "Completions without a reward", low: 0 }),
  ];
}

/** Several runs on the same axes. */
function runs(files) {
  if (files.length < 2) return null;
  const steps = [...new Set(files.flatMap((file) => file.training.steps))].sort((a, b) => a - b);
  const spread = (file, name) => {
    const values = new Map(file.training.steps.map((step, i) => [step, file.training.series[name][i]]));
    return { name: file.name, values: steps.map((step) => values.get(step) ?? null) };
  };
  const chart = (name, options) => lines(steps, files.map((file) => spread(file, name)), options);
  return section("Runs", el("div", { class: "columns" }, chart("reward", { label: "Reward", low: 0, high: 1 }), chart("words", { label: "Words", digits: 1 })));
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

/** The completions of one prompt in one step, and how those of the prompt changed. `open(row)` shows the details of a row. */
function completions(file, open) {
  const { step, prompt, reward } = file.rows;
  const own = file.all.filter((row) => file.rows.counts_in_run[row]); // without evaluations and steps that were done again
  if (!own.length) return note("No completion of the run is on this page.");
  const byStep = Map.groupBy(own, (row) => step[row]), byPrompt = Map.groupBy(own, (row) => prompt[row]);
  const steps = [...byStep.keys()].sort((a, b) => a - b);
  const value = (row) => (Number.isNaN(reward[row]) ? -Infinity : reward[row]);
  const slider = el("input", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "step", oninput: fill });
  const select = el("select", { "aria-label": "prompt", onchange: () => ((wanted = here[select.selectedIndex]), choose()) });
  const since = choice([["previous", "changes since the step before"], ["first", "changes since the first step"], ["none", "no changes marked"]], { "aria-label": "changes since", onchange: draw });
  const status = el("output", { class: "num" }), text = el("div"), history = el("div");
  const cards = el("div", { class: "cards", tabindex: "0", role: "group", "aria-label": "completions of the prompt" });
  let here = [], shown = null, at = null; // the prompts of the step, the one that is shown, its rows by step, best first
  let wanted = null; // the prompt to show in each step that has it
  fill();
  return [note("Highest reward first. Advantage: the reward minus the mean of its group, before the trainer scales it."), el("div", { class: "controls" }, slider, select, since), status, text, cards, history];

  /** List the prompts of the step, those of the most steps first. */
  function fill() {
    const seen = (one) => new Set(byPrompt.get(one).map((row) => step[row])).size;
    const found = [...new Set(byStep.get(steps[slider.value]).map((row) => prompt[row]))].map((one) => [one, seen(one)]).sort((a, b) => b[1] - a[1]);
    here = found.map(([one]) => one);
    select.replaceChildren(...found.map(([one, times]) => el("option", { value: file.text(one) ?? "" }, `${plural(times, "step")}: ${shorter(file.text(one) ?? "no prompt")}`)));
    wanted ??= here[0];
    select.selectedIndex = Math.max(0, here.indexOf(wanted));
    choose();
  }

  function choose() {
    const before = shown;
    shown = here[select.selectedIndex];
    if (shown !== before) over();
    draw();
  }

  /** Show the prompt and its rewards over the run. */
  function over() {
    at = new Map([...Map.groupBy(byPrompt.get(shown), (row) => step[row])].sort((a, b) => a[0] - b[0]).map(([number, own]) => [number, own.sort((a, b) => value(b) - value(a))]));
    const of = (name, pick) => ({ name, values: [...at.values()].map((own) => (Number.isNaN(reward[pick(own)]) ? null : reward[pick(own)])) });
    text.replaceChildren(written(file.text(shown)));
    history.replaceChildren(at.size > 1 ? lines([...at.keys()], RANKS.map(([name, pick]) => of(name, pick)), { label: "Reward of the best, the median and the worst completion" }) : "");
  }

  function draw() {
    const number = steps[slider.value], seen = [...at.keys()], place = seen.indexOf(number), own = at.get(number), rewards = own.map((row) => reward[row]).filter((one) => !Number.isNaN(one));
    const before = place === 0 || since.value === "none" ? null : seen[since.value === "first" ? 0 : place - 1];
    const ranks = new Map(RANKS.toReversed().map(([name, pick]) => [pick(own), [name, pick]])); // of one completion: the best
    status.textContent = `step ${number}, ${plural(here.length, "prompt")}; ${place + 1} of ${plural(seen.length, "step")} with this one: ${plural(own.length, "completion")}${rewards.length ? `, rewards ${fixed(rewards.at(-1))} to ${fixed(rewards[0])}` : ", no reward"}`;
    cards.replaceChildren(...own.map((row) => {
      const [name, pick] = ranks.get(row) ?? [], earlier = pick && before !== null ? file.target(pick(at.get(before))) : null;
      return card(file, row, open, name && (before === null ? name : `${name}, changes since step ${before}`), changed(earlier, file.target(row)));
    }));
  }
}

/** A completion; `text` is a node with its text. */
function card(file, row, open, heading, text) {
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
    text,
  );
}

/** The answers of a row, one mark per item. */
function marks(file, row) {
  const mark = (line) => el("span", { class: "cell", "data-passed": line.passed, "data-step": 4, title: `${line.item.question}\nP(yes) ${fixed(line.p)}` }, line.answer ?? "–");
  return el("div", { class: "marks" }, file.cellsOf(row).map((cell) => mark(file.cell(cell))));
}
