// What Judge and Build share below the checklist: the checklists of the library, and the settings as code.

import { getJson, post } from "./api.js";
import { el, note } from "./dom.js";
import { alertOf, choice, copyable } from "./forms.js";

const PAUSE = 200;

/** Open and save checklists of the library. `act` runs a request and shows its error, `tell` shows what was done. */
export function shelf(choices, { checklist, open, act, tell }) {
  const files = choice([["", "open a saved checklist"], ...choices.checklists], { name: "saved", "aria-label": "saved checklists" });
  files.addEventListener("change", () => act(async () => {
    if (!files.value) return;
    const value = JSON.parse((await getJson("library/file", { name: files.value })).text);
    open(Array.isArray(value) ? value : value.items);
  }));
  const name = el("input", { name: "checklist-name", placeholder: "name", "aria-label": "name of the checklist" });
  const save = el("button", { type: "button", name: "save", onclick: () => act(async () => {
    const file = `checklists/${name.value.replace(/\.json$/, "")}.json`;
    const known = choices.checklists.includes(file) ? (await getJson("library/file", { name: file })).stamp : null;
    await post("library/file", { name: file, checklist: checklist(), stamp: known });
    if (known === null) {
      choices.checklists.push(file);
      files.append(el("option", {}, file));
    }
    tell(`${file} is saved`);
  }) }, "Save checklist");
  return el("div", { class: "controls" }, files, name, save);
}

/** The settings on the screen as code, made while it is open. `refresh()` after a change. */
export function codePanel(body) {
  const code = el("div", {});
  let timer = null;
  const node = el("details", { class: "part", ontoggle: refresh }, el("summary", {}, "Export as code"), code);
  return { node, refresh };

  function refresh() {
    clearTimeout(timer);
    if (node.open) timer = setTimeout(load, PAUSE);
  }

  async function load() {
    try {
      const found = await post("code", body());
      code.replaceChildren(
        note("Each gives the figures of this page."),
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
