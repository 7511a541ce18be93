// The editor of a checklist, for Judge and Build: the items with their weights, gates, categories, options and checks.

import { getJson, post } from "./api.js";
import { choice, el, field, note } from "./dom.js";
import { area, attempt, schemaForm } from "./forms.js";

let loading = null;

/** The types of code checks, asked for once. */
function checkTypes() {
  loading ??= getJson("build").then((found) => found.checks);
  loading.catch(() => (loading = null));
  return loading;
}

/** The items of a checklist that is given as JSON: a list, or an object with `items`. */
export function itemsOf(text) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`The checklist is not valid JSON: ${error.message}`);
  }
  const items = Array.isArray(value) ? value : value?.items;
  if (!Array.isArray(items)) throw new Error("The checklist must be a list of items, or an object with `items`.");
  return items;
}

/** What is to be known of an item besides its question, as tags. */
export function tagsOf({ weight = 1, required, category, options, check, scope, evidence }) {
  const names = [weight !== 1 && (weight < 0 ? `penalty ${weight}` : `weight ${weight}`), required && "required", category, options && `options: ${options.map((one) => one.label).join(", ")}`, check && "code check", scope?.replaceAll("_", " "), evidence && `from "${evidence.text}"`];
  return names.filter(Boolean).map((name) => el("span", { class: "tag" }, name));
}

/** An item is one line, and is edited on click. `changed(item, asks)` is called after an edit; `asks` tells whether the
 *  answer to the item depends on it. */
export function itemEditor(changed, empty = "no answer yet") {
  const items = []; // { question, weight, required, more, answer, notes, node }
  const list = el("ol", { class: "editor" });
  const more = el("button", { type: "button", name: "add", onclick: () => (add({ question: "" }).question.focus(), changed(null, false)) }, "Add item");
  return { node: el("div", {}, list, el("div", { class: "controls" }, more)), add, replace, asked, checklist };

  function asked() {
    return items.filter((item) => item.question.value.trim());
  }

  function checklist() {
    return asked().map((item) => {
      const weight = Number(item.weight.value);
      return { question: item.question.value, ...(weight === 1 ? {} : { weight }), ...(item.required.checked ? { required: true } : {}), ...item.more };
    });
  }

  function replace(values) {
    items.length = 0;
    list.replaceChildren();
    for (const value of values) add(value);
  }

  function add(value) {
    const { question, weight = 1, required = false, ...more } = typeof value === "string" ? { question: value } : value;
    delete more.id; // follows from the question
    const item = { more };
    item.question = area(question, { rows: 2, class: "question grows", "aria-label": "question", placeholder: "Does the response …?" });
    item.weight = el("input", { type: "number", step: "any", class: "short", "aria-label": "weight", value: weight });
    item.required = el("input", { type: "checkbox", "aria-label": "required", checked: required });
    item.answer = el("div", { class: "given" }, el("span", { class: "muted" }, empty));
    item.notes = el("div", { class: "notes" });
    const remove = el("button", { type: "button", class: "link", onclick: () => (items.splice(items.indexOf(item), 1), item.node.remove(), changed(null, false)) }, "remove");
    const edited = (asks) => (draw(), changed(item, asks));
    const shown = el("button", { type: "button", class: "open-item", "aria-expanded": "false", onclick: () => toggle(edit.hidden) });
    const edit = el("div", { class: "edit", hidden: true, onkeydown: (event) => event.key === "Escape" && (toggle(false), shown.focus()) }, item.question, el("div", { class: "controls" }, field("weight", item.weight), el("label", { class: "check" }, item.required, " required"), remove), extras(item.more, edited));
    item.node = el("li", { class: "item" }, el("div", { class: "line" }, shown, item.answer), item.notes, edit);
    item.question.addEventListener("input", () => edited(true));
    for (const control of [item.weight, item.required]) control.addEventListener("input", () => edited(false));
    items.push(item);
    list.append(item.node);
    draw();
    toggle(!question);
    return item;

    function toggle(open) {
      edit.hidden = !open;
      shown.setAttribute("aria-expanded", String(open));
      if (open && item.node.isConnected) item.question.focus();
    }

    function draw() {
      shown.replaceChildren(el("span", {}, item.question.value || "New item"), ...tagsOf({ ...more, weight: Number(item.weight.value), required: item.required.checked }));
    }
  }
}

const OPTION = { label: { type: "string" }, value: { type: "number", optional: true }, na: { type: "boolean", default: false } };
const MORE = { category: { type: "string", optional: true }, options: { type: "array", items: { type: "object", properties: OPTION } } };

/** Category, options and code check of an item; made when it is opened. */
function extras(more, edited) {
  const details = el("details", { class: "more" }, el("summary", {}, "Category, options, code check"));
  details.addEventListener("toggle", async () => {
    if (!details.open || details.children.length > 1) return;
    const labels = () => JSON.stringify((more.options ?? []).map((one) => [one.label, one.na]));
    const form = schemaForm({ type: "object", properties: MORE }, more, () => {
      const before = labels(), { category, options } = form.value();
      set(more, "category", category);
      set(more, "options", options);
      edited(labels() !== before);
    });
    const check = el("div", {});
    details.append(form.node, note("Without options, the answers are yes and no. An option has a value from 0 to 1; “na” stands for “cannot assess” and has none."), check);
    await attempt(check, async () => check.replaceChildren(checkForm(more, await checkTypes(), edited)));
  });
  return details;
}

function set(more, name, value) {
  if (value === undefined || value === null || value.length === 0) delete more[name];
  else more[name] = value;
}

/** A code check by name, with its fields as a form. */
function checkForm(more, types, edited) {
  const given = typeof more.check === "string" ? parsed(more.check) : more.check;
  const select = choice([["", "none: the judge answers"], ...types.map((one) => one.name)], { name: "check", value: given?.type ?? "" });
  const fields = el("div", {});
  select.addEventListener("change", () => {
    const type = types.find((one) => one.name === select.value);
    draw(type?.example ?? {});
    set(more, "check", type ? { type: type.name, ...type.example } : null);
    edited(true);
  });
  const { type, ...values } = given ?? {};
  draw(values);
  return el("div", { class: "group", role: "group", "aria-label": "code check" }, field("code check", select), fields);

  function draw(values) {
    const type = types.find((one) => one.name === select.value);
    if (!type) return fields.replaceChildren();
    const form = schemaForm(type.form, values, () => {
      more.check = { type: type.name, ...form.value() };
      edited(true);
    });
    fields.replaceChildren(note(type.summary, type.runs_code ? " It runs code: start the app with --allow-code." : ""), form.node);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Open and save checklists of the library. `act` runs a request and shows its error, `tell` shows what was done. A file is
 *  replaced only if it is the one that was opened or saved last; of another one, the server's sentence is shown first. */
export function shelf(choices, { checklist, open, act, tell }) {
  const SAVE = "Save checklist";
  let seen = { file: null, stamp: null }; // what was opened or saved here
  let offered = null; // what another one saved, which the next click replaces
  const files = choice([["", "open a saved checklist"], ...choices.checklists], { name: "saved", "aria-label": "saved checklists" });
  files.addEventListener("change", () => act(async () => {
    if (!files.value) return;
    const found = await getJson("library/file", { name: files.value });
    [seen, offered] = [{ file: found.name, stamp: found.stamp }, null];
    name.value = found.name.replace(/^checklists\/|\.json$/g, "");
    save.textContent = SAVE;
    open(itemsOf(found.text));
  }));
  const name = el("input", { name: "checklist-name", placeholder: "name", "aria-label": "name of the checklist" });
  const save = el("button", { type: "button", name: "save", onclick: () => act(async () => {
    const file = `checklists/${name.value.replace(/\.json$/, "")}.json`;
    const stamp = [offered, seen].find((one) => one?.file === file)?.stamp ?? null;
    try {
      seen = { file, stamp: (await post("library/file", { name: file, checklist: checklist(), stamp })).stamp };
      offered = null;
    } catch (error) {
      if (error.stamp !== undefined) {
        offered = { file, stamp: error.stamp };
        save.textContent = `Replace ${file}`;
      }
      throw error;
    }
    save.textContent = SAVE;
    if (!choices.checklists.includes(file)) {
      choices.checklists.push(file);
      files.append(el("option", {}, file));
    }
    tell(`${file} is saved`);
  }) }, SAVE);
  name.addEventListener("input", () => {
    offered = null;
    save.textContent = SAVE;
  });
  return el("div", { class: "controls" }, files, name, save);
}
