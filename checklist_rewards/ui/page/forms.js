// Fields of forms, and the settings of the judge.

import { el, note } from "./dom.js";

/** A labelled field. */
export function field(label, control, attributes = {}) {
  return el("label", { class: "field", ...attributes }, el("span", {}, label), control);
}

export function choice(options, attributes = {}) {
  const entries = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  const select = el("select", attributes, entries.map(([value, shown]) => el("option", { value }, shown)));
  if (attributes.value !== undefined) select.value = attributes.value;
  return select;
}

export function area(value, attributes = {}) {
  const control = el("textarea", { rows: 3, ...attributes });
  control.value = value ?? "";
  return control;
}

/** A sentence about something that failed. */
export function alertOf(message) {
  return el("p", { class: "note warning", role: "alert" }, message);
}

/** A button that copies a text. */
export function copying(text, shown = "Copy") {
  const button = el("button", { type: "button", class: "copy", title: text }, shown);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = shown), 1500);
  });
  return button;
}

/** Text to copy, such as a command. */
export function copyable(text, label) {
  return el("div", { class: "code" }, copying(text), el("pre", { tabindex: "0", "aria-label": label }, text));
}

const PAUSE = 200;

/** "Export as code": a section that asks `load` for the code when it is opened, and again by `refresh()`. */
export function exporter(load, told) {
  const code = el("div", {});
  let timer = null;
  const node = el("details", { class: "part export", ontoggle: refresh }, el("summary", {}, "Export as code"), code);
  return { node, refresh };

  function refresh() {
    clearTimeout(timer);
    if (node.open) timer = setTimeout(show, PAUSE);
  }

  async function show() {
    try {
      const found = await load();
      code.replaceChildren(
        note(told),
        el("h3", {}, "Python"),
        copyable(found.python, "Python"),
        el("h3", {}, "Command line"),
        copyable(found.cli, "command line"),
        el("h3", {}, "YAML (judge.yaml of the command)"),
        copyable(found.yaml, "YAML"),
      );
    } catch (error) {
      code.replaceChildren(alertOf(error.message));
    }
  }
}

const METRICS = ["pass", "weighted", "expected", "normalized", "net", "quality"];
const NUMBERS = [["threshold", "0.01"], ["min_answered", "0.01"], ["scale", "1"], ["samples", "1"]];

/** The settings of the judge as a form. `value()` gives those that differ from the command line. */
export function settingsForm(choices, changed = () => {}) {
  const set = choices.set;
  const shown = (name, otherwise) => `as started (${set[name] ?? otherwise})`;
  const controls = {
    pipeline: choice([["", "as started"], ...choices.pipelines.map((one) => one.name), ...choices.pipeline_files]),
    judge: choice([["", `as started (${choices.judge})`], ...choices.judge_files]),
    mode: choice([["", shown("mode", "item")], "item", "batch", "quality"]),
    metric: choice([["", shown("metric", "expected")], ...METRICS]),
    threshold: number("threshold", 0.6),
    min_answered: number("min_answered", 0.5),
    abstention: choice([["", shown("abstention", "skip")], "skip", "zero", "partial", "fail"]),
    no_answer: choice([["", shown("no_answer", "lowest")], "lowest", "unscored", "judge"]),
    scale: number("scale", "yes/no"),
    capture_reasoning: choice([["", shown("capture_reasoning", "no")], ["true", "yes"], ["false", "no"]]),
    samples: number("samples", 1),
    calibration: choice([["", "as started"], ...choices.calibrations]),
  };

  function number(name, otherwise) {
    const step = NUMBERS.find(([one]) => one === name)[1];
    return el("input", { type: "number", step, min: 0, placeholder: String(set[name] ?? otherwise), class: "short" });
  }

  for (const [name, control] of Object.entries(controls)) {
    control.name = name;
    control.addEventListener("change", changed);
  }
  return {
    controls,
    node: el("div", { class: "filters" }, Object.entries(controls).map(([name, control]) => field(name.replaceAll("_", " "), control))),
    value() {
      const given = Object.entries(controls).filter(([, control]) => control.value !== "");
      return Object.fromEntries(given.map(([name, control]) => [name, parsed(name, control.value)]));
    },
  };
}

function parsed(name, text) {
  if (NUMBERS.some(([one]) => one === name)) return Number(text);
  return name === "capture_reasoning" ? text === "true" : text;
}
