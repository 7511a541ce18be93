// Fields, forms of JSON schemas, what can fail, and what can be copied.

import { latest, post } from "./api.js";
import { choice, el, field, note } from "./dom.js";

export function area(value, attributes = {}) {
  const control = el("textarea", { rows: 3, ...attributes });
  control.value = value ?? "";
  return control;
}

/** A sentence about something that failed. */
export function alertOf(message) {
  return el("p", { class: "note warning", role: "alert" }, message);
}

/** Do something that may fail, and show the sentence of its error in `problem`, unless it was aborted. `button` is
 *  disabled meanwhile. */
export async function attempt(problem, work, button = null) {
  problem.replaceChildren();
  if (button) button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") problem.replaceChildren(alertOf(error.message));
  }
  if (button) button.disabled = false;
}

/** The chip of every page: who judges, from which P(yes) on an answer is a yes, and whether the scores on the page are of
 *  what is on the page. `by` says whose judge it is. */
export function chip({ judge, models = [], threshold, caveats = [], toy = models.includes("pocket") }, state = null, by = "judge") {
  document.getElementById("chip").replaceChildren(
    `${by} `, el("strong", { title: [models.join(", "), ...caveats].join("\n") }, judge), threshold === null ? "" : `, yes from ${threshold}`,
    toy ? el("span", { class: "tag toy" }, "a toy: it means nothing on real text") : "",
    state === null ? "" : el("span", { class: "tag", "data-state": state }, state),
  );
}

/** The score of what is in the boxes, which hold `body()`. `of` is what the score on the page is of, or null, and `made` who
 *  gave it; `by` is who judges with these settings now, which `named()` asks for, also when the reader comes back: the files
 *  that they name may have changed. Then it calls `changed()`. `told` says what the code gives. */
export function scoring(by, body, changed, told) {
  const ask = latest("settings");
  const own = { by, of: null, made: by, isStale, state: () => (own.of === null ? "not scored" : isStale() ? "stale" : "current"), named };
  own.code = exporter(() => post("code", own.of ?? body()), () => (isStale() ? "Of the inputs that were scored, not of what is in the boxes now. " : "") + codeOf(told, own.of ? own.made : own.by));
  addEventListener("focus", named);
  return own;

  function isStale() {
    return own.of !== null && JSON.stringify([own.of, own.made.files]) !== JSON.stringify([body(), own.by.files]);
  }

  async function named() {
    const found = await ask({ settings: body().settings });
    if (found) own.by = found.error ? { ...own.by, files: [found.error] } : found; // by files that are now refused: stale
    changed();
  }
}

/** What exported code gives, and whose figures these are. */
export function codeOf(told, { judge, threshold }) {
  return `${told} Judge: ${judge}${threshold === null ? "" : `, yes from ${threshold}`}.`;
}

/** Do something when Ctrl+Enter is pressed. */
export function onSend(work) {
  document.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && work());
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

/** "Export as code": a section that asks `load` for the code when it is opened, and again by `refresh()`; `told()` says
 *  what the code is of. */
export function exporter(load, told) {
  const code = el("div", {});
  let timer = null;
  const node = el("details", { class: "part export", ontoggle: refresh }, el("summary", {}, "Export as code"), code);
  return { node, refresh };

  function refresh() {
    clearTimeout(timer);
    if (node.open) timer = setTimeout(show, PAUSE);
  }

  function show() {
    return attempt(code, async () => {
      const found = await load();
      const parts = [["Python", found.python], ["Command line", found.cli], ["YAML (judge.yaml of the command)", found.yaml]];
      code.replaceChildren(note(told()), ...parts.flatMap(([heading, text]) => [el("h3", {}, heading), copyable(text, heading)]));
    });
  }
}

/** A form of a JSON schema, as pydantic writes it: objects, lists, texts, numbers, choices and yes/no. It has a
 *  `node`, and `value()`: what the form holds. Empty optional fields and those with their default value are left out. */
export function schemaForm(schema, value = {}, changed = () => {}) {
  const made = part(schema, value ?? {}, schema.$defs ?? {}, "", changed);
  made.node.addEventListener("input", changed);
  return made;
}

function part(given, value, defs, name, changed) {
  const schema = resolved(given, defs);
  if (schema.type === "object") return group(schema, value ?? {}, defs, changed);
  if (schema.type === "array") return list(schema, value ?? schema.default ?? [], defs, name, changed);
  const shown = name.replaceAll("_", " ");
  if (schema.type === "boolean") {
    const control = el("input", { type: "checkbox", name, checked: value ?? schema.default ?? false });
    return { node: el("label", { class: "check" }, control, ` ${shown}`), value: () => control.checked };
  }
  const control = simple(schema, value ?? schema.default, name);
  return { node: field(shown, control), value: () => read(schema, control.value) };
}

function simple(schema, value, name) {
  if (schema.enum) return choice(schema.optional ? [["", schema.empty ?? "none"], ...schema.enum] : schema.enum, { name, value: value ?? (schema.optional ? "" : schema.enum[0]) });
  if (schema.type === "integer" || schema.type === "number") return el("input", { type: "number", name, step: schema.type === "integer" ? 1 : "any", class: "short", placeholder: schema.empty, value: value ?? "" });
  if (schema.type === "json") return area(value === undefined ? "" : JSON.stringify(value, null, 1), { name, rows: 3, class: "source", spellcheck: "false" });
  return area(value, { name, rows: 1, class: "grows", readonly: Boolean(schema.readOnly) });
}

function read(schema, text) {
  if (text === "" && (schema.optional || schema.type !== "string")) return undefined;
  if (schema.type === "integer" || schema.type === "number") return Number(text);
  if (schema.type !== "json") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the server's sentence names the field
  }
}

function group(schema, value, defs, changed) {
  const parts = Object.entries(schema.properties ?? {}).map(([name, one]) => [name, one, part(one, value[name], defs, name, changed)]);
  return {
    node: el("div", { class: "form" }, parts.map(([, , made]) => made.node)),
    value() {
      const found = parts.map(([name, one, made]) => [name, made.value(), one.default]);
      return Object.fromEntries(found.filter(([, own, otherwise]) => own !== undefined && JSON.stringify(own) !== JSON.stringify(otherwise)).map(([name, own]) => [name, own]));
    },
  };
}

/** Texts: one per line. Whole numbers: in one line. Objects: a form each. */
function list(schema, value, defs, name, changed) {
  const items = resolved(schema.items ?? {}, defs), shown = name.replaceAll("_", " ");
  if (items.type === "object") return objects(items, value, defs, shown, changed, schema.readOnly);
  const whole = items.type === "integer";
  const control = area(value.join(whole ? ", " : "\n"), { name, rows: whole ? 1 : 2, class: "grows" });
  const texts = () => control.value.split(whole ? /[\s,]+/ : "\n").filter((one) => one.trim());
  return { node: field(whole ? `${shown} (numbers)` : `${shown} (one per line)`, control), value: () => (whole ? texts().map(Number) : texts()) };
}

function objects(schema, value, defs, shown, changed, fixed) {
  const one = shown.replace(/s$/, ""), forms = [];
  const rows = el("div", {});
  const more = el("button", { type: "button", name: `add-${one}`, onclick: () => (add({}).node.querySelector("textarea, input")?.focus(), changed()) }, `Add ${one}`);
  value.forEach(add);
  return { node: el("div", { class: "group", role: "group", "aria-label": shown }, el("div", { class: "caption" }, shown), rows, fixed ? null : more), value: () => forms.map((made) => made.value()) };

  function add(entry) {
    const made = group(schema, entry, defs, changed);
    const own = el("div", { class: "entry" }, made.node, fixed ? null : el("button", { type: "button", class: "link", onclick: () => (forms.splice(forms.indexOf(made), 1), own.remove(), changed()) }, `remove this ${one}`));
    forms.push(made);
    rows.append(own);
    return made;
  }
}

/** Without references, and with `optional` for one that may be null. */
function resolved(schema, defs) {
  const named = schema.$ref ? defs[schema.$ref.split("/").pop()] : schema.allOf ? resolved(schema.allOf[0], defs) : schema;
  if (!named.anyOf) return named;
  const known = named.anyOf.filter((one) => one.type !== "null");
  return { ...resolved(known[0], defs), ...(named.default === undefined ? {} : { default: named.default ?? undefined }), optional: known.length < named.anyOf.length };
}
