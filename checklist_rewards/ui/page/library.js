// Library: checklists, prompts, pipelines and judges as files. The server's parsers check a text while it is edited.

import { download, getJson, latest, post } from "./api.js";
import { count, el, field, note, plural, section } from "./dom.js";
import { alertOf, area, attempt, schemaForm } from "./forms.js";

const TITLES = { checklists: "Checklists", prompts: "Prompts", pipelines: "Pipelines", judges: "Judges" };
const PAUSE = 400;

export async function library(main) {
  const list = el("div", { class: "shelves" });
  const editor = el("div", { class: "editing" });
  const importer = el("div", {});
  let kinds = null, opened = null;
  main.replaceChildren(
    el("div", { class: "library" }, list, editor),
    el("details", { class: "part" }, el("summary", {}, "Import checklists of other projects"), importer),
  );
  addEventListener("beforeunload", (event) => opened?.changed() && event.preventDefault());
  await refresh();
  const asked = new URLSearchParams(location.search).get("name");
  if (asked) await open(asked);
  else editor.replaceChildren(note("Choose a file, or begin a new one. They are files of the project folder; commands and the other views use them by name."));

  async function refresh(name = null) {
    const found = await getJson("library");
    if (!kinds) importer.replaceChildren(importForm(found.importing, refresh));
    kinds = found;
    list.replaceChildren(...Object.entries(found.kinds).map(([kind, files]) => shelf(kind, files)));
    if (name) await open(name);
  }

  function shelf(kind, files) {
    return el(
      "section",
      { class: "part shelf" },
      el("div", { class: "heading" }, el("h2", {}, TITLES[kind]), el("button", { type: "button", name: `new-${kind}`, onclick: () => begin(kind) }, "New")),
      files.length ? el("ul", {}, files.map(entry)) : note(`No file in ${kind}/.`),
    );
  }

  function entry(file) {
    return el(
      "li",
      { class: file.error ? "wrong" : null },
      el("button", { type: "button", class: "link", "data-name": file.name, onclick: () => open(file.name) }, file.name.split("/").slice(1).join("/")),
      el("div", { class: "muted" }, file.error ? "not valid" : file.summary),
    );
  }

  function leave() {
    return !opened?.changed() || confirm(`Discard the changes of ${opened.name || "the new file"}?`);
  }

  async function open(name) {
    if (!leave()) return;
    opened = null;
    await attempt(editor, async () => {
      const file = await getJson("library/file", { name });
      history.replaceState(null, "", `/library?${new URLSearchParams({ name })}`);
      edit(file.name, file.text, file.stamp, file);
    });
  }

  function begin(kind) {
    if (!leave()) return;
    history.replaceState(null, "", "/library");
    edit(`${kind}/`, kinds.new[kind], null, { summary: null, error: null }, kind);
  }

  function edit(name, text, stamp, state, kind = null) {
    const control = area(text, { name: "text", rows: 12, class: "source grows", spellcheck: "false", "aria-label": "text of the file" });
    const title = kind ? el("input", { name: "name", value: `${name}mine${kinds.extensions[kind][0]}`, size: 40, "aria-label": "name of the file" }) : null;
    const told = el("div", { class: "told", "aria-live": "polite" });
    const save = el("button", { type: "button", class: "primary", name: "save", onclick: store }, "Save");
    const named = () => title?.value ?? name;
    const checked = latest("library/check");
    let saved = text, timer = null;
    opened = { get name() { return named(); }, changed: () => control.value !== saved };
    for (const one of [control, title]) {
      one?.addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(check, PAUSE);
      });
    }
    editor.replaceChildren(
      section(
        kind ? `New: ${TITLES[kind].toLowerCase()}` : name,
        title ? field("name", title) : null,
        control,
        told,
        el("div", { class: "controls" }, save, el("button", { type: "button", name: "download", onclick: () => download(named(), control.value) }, "Download")),
      ),
    );
    if (kind) check();
    else tell(state);
    if (matchMedia("(max-width: 900px)").matches) editor.scrollIntoView();
    for (const one of list.querySelectorAll("button.link")) {
      if (!kind && one.dataset.name === name) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
    }

    function tell(found) {
      told.replaceChildren(found.error ? alertOf(found.error) : el("p", { class: "note good-line" }, `Valid: ${found.summary}.`));
      save.disabled = Boolean(found.error);
    }

    async function check() {
      const found = await checked({ name: named(), text: control.value });
      if (found) tell(found);
    }

    function store() {
      return attempt(told, async () => {
        const found = await post("library/file", { name: named(), text: control.value, stamp });
        saved = control.value;
        opened = null;
        await refresh(found.name);
        editor.querySelector(".told")?.append(el("p", { class: "note", role: "status" }, "Saved."));
      });
    }
  }
}

/** Convert a file of another project; `done` is called with the name of the checklist that came of it, or null. */
function importForm(schema, done) {
  const form = schemaForm(schema), told = el("div", { "aria-live": "polite" });
  const button = el("button", { type: "button", name: "import", onclick: run }, "Import");
  return el(
    "div",
    {},
    note("Rubrics and checklists of other projects, in files of the project folder. A result in .json is one checklist; rows become a .jsonl file with a checklist per row. Without an output, it is named after the file. Pitfalls are items with a negative weight: what is a fault, or what is to be avoided. Files can be uploaded in Batch."),
    form.node,
    button,
    told,
  );

  function run() {
    return attempt(told, async () => {
      const found = await post("library/import", form.value());
      const what = found.rows === null ? `one checklist with ${plural(found.items, "item")}` : `${plural(found.rows, "row")} with ${count(found.items)} items`;
      told.replaceChildren(note(`${found.format}: ${what} in ${found.name}. ${found.taken.join("; ")}.`), found.dropped ? note(`Dropped fields that items cannot hold: ${found.dropped}.`) : "");
      await done(found.rows === null ? found.name : null);
    }, button);
  }
}
