// Library: checklists, prompts, pipelines and judges as text files of the project. The server checks a file before it writes it.

import { getJson, post } from "./api.js";
import { el, note, section } from "./dom.js";
import { alertOf, area, choice, field } from "./forms.js";

const STARTS = {
  checklists: ["checklists/new.json", '[\n  "Does the response …?",\n  {"question": "Is it rude?", "weight": -1}\n]\n'],
  prompts: ["prompts/new.md", "Write a checklist for the instruction.\n\n{input}\n"],
  pipelines: ["pipelines/new.yaml", "name: new\ngenerator: {max_items: 8}\nscorer: {metric: expected}\n"],
  judges: ["judges/new.yaml", "panel: {rule: majority}\njudges:\n  - {model: org/one}\n  - {model: org/two}\n"],
};

export async function library(main) {
  const list = el("div", {});
  const name = el("input", { name: "name", "aria-label": "name", class: "name" });
  const text = area("", { rows: 18, name: "text", "aria-label": "text", class: "source", spellcheck: "false" });
  const status = el("div", { role: "status" });
  let stamp = null;
  const kinds = choice(Object.keys(STARTS), { name: "kind" });
  main.replaceChildren(
    section(
      "Library",
      note("Files of the project folder: versions and exchange are those of git."),
      el(
        "div",
        { class: "library" },
        el("div", {}, list, field("new", kinds), el("button", { type: "button", name: "new", onclick: () => edit({ name: STARTS[kinds.value][0], text: STARTS[kinds.value][1], stamp: null }) }, "New file")),
        el("div", {}, field("name", name), field("text", text), el("button", { type: "button", class: "primary", name: "save", onclick: save }, "Save"), status),
      ),
    ),
  );
  await refresh();

  async function refresh() {
    const found = await getJson("library");
    list.replaceChildren(
      ...Object.entries(found).map(([folder, names]) =>
        el("section", {}, el("h3", {}, folder), names.length ? el("ul", {}, names.map((one) => el("li", {}, el("button", { type: "button", class: "link", onclick: () => open(one) }, one.slice(folder.length + 1))))) : note("none")),
      ),
    );
  }

  function edit(file) {
    name.value = file.name;
    text.value = file.text;
    stamp = file.stamp;
    status.replaceChildren();
  }

  async function open(one) {
    try {
      edit(await getJson("library/file", { name: one }));
    } catch (error) {
      status.replaceChildren(alertOf(error.message));
    }
  }

  async function save() {
    try {
      const done = await post("library/file", { name: name.value, text: text.value, stamp });
      stamp = done.stamp;
      status.replaceChildren(note(`${done.name} is saved.`));
      await refresh();
    } catch (error) {
      status.replaceChildren(alertOf(error.message));
    }
  }
}
