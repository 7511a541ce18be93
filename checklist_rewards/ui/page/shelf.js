// What Judge and Build share below the checklist: the checklists of the library.

import { getJson, post } from "./api.js";
import { el } from "./dom.js";
import { choice } from "./forms.js";
import { itemsOf } from "./items.js";

/** Open and save checklists of the library. `act` runs a request and shows its error, `tell` shows what was done. */
export function shelf(choices, { checklist, open, act, tell }) {
  const files = choice([["", "open a saved checklist"], ...choices.checklists], { name: "saved", "aria-label": "saved checklists" });
  files.addEventListener("change", () => act(async () => {
    if (!files.value) return;
    open(itemsOf((await getJson("library/file", { name: files.value })).text));
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
