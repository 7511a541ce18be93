// Build: write a checklist stage by stage, refine it, edit it with a live preview, save it. Nothing typed is lost: what
// replaces the checklist can be undone, and the page keeps its text while the tab is open.

import { getJson, post } from "./api.js";
import { el, note, section } from "./dom.js";
import { alertOf, exporter, settingsForm } from "./forms.js";
import { itemEditor } from "./items.js";
import { samplesPreview } from "./preview.js";
import { refineForm } from "./refine.js";
import { shelf } from "./shelf.js";
import { OPEN, stagesForm } from "./stages.js";

const KEPT = "build-view";

export async function build(main) {
  const [choices, parts] = await Promise.all([getJson("choices"), getJson("build")]);
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const past = []; // earlier checklists, for Undo
  let complete = false;
  const editor = itemEditor(changed, "no sample yet");
  const preview = samplesPreview(editor, { served: choices.served, settings: () => form.value() }, kept.preview ?? {}, keep);
  const code = exporter(() => post("code", { input: preview.value().prompt, target: preview.samples()[0]?.target ?? "", checklist: editor.checklist(), settings: form.value() }), "Each gives the figures of this page.");
  const form = settingsForm(choices, changed);
  const stages = stagesForm(parts, kept.stages ?? {}, use, keep);
  const refine = refineForm(parts, { checklist: editor.checklist, samples: preview.samples, judge: () => form.value(), accept: use });
  const problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const undo = el("button", { type: "button", name: "undo", disabled: true, onclick: takeBack }, "Undo");

  main.replaceChildren(
    el(
      "div",
      { class: "build" },
      el(
        "div",
        {},
        section("Write in stages", note("Each stage reads what the one before it holds, with your edits."), stages.node),
        section("Refine", el("details", { name: OPEN }, el("summary", {}, "Merge, drop or rewrite items, and see why before you accept it"), refine)),
        el("details", { class: "part settings", name: OPEN }, el("summary", {}, `Settings of the judge (${choices.judge})`), form.node),
        code.node,
      ),
      el(
        "div",
        { class: "in-sight" },
        el(
          "section",
          { class: "part" },
          el("h2", {}, "Checklist"),
          el("div", { class: "controls" }, undo, state),
          problem,
          editor.node,
          el("div", { class: "controls" }, el("button", { type: "button", name: "add", onclick: () => (editor.add({ question: "" }).question.focus(), changed()) }, "Add item")),
          shelf(choices, { checklist: editor.checklist, open: (items) => use(items, "opened"), act, tell: (text) => (state.textContent = text) }),
        ),
        preview.node,
      ),
    ),
  );
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  complete = true;
  preview.update();
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) preview.read();
  });

  function changed() {
    keep();
    preview.update();
    code.refresh();
  }

  /** Another checklist takes the place of the one on the page. */
  function use(items, sentence) {
    past.push(editor.checklist());
    undo.disabled = false;
    editor.replace(items);
    state.textContent = sentence;
    changed();
  }

  function takeBack() {
    const items = past.pop();
    undo.disabled = !past.length;
    editor.replace(items.length ? items : [{ question: "" }]);
    state.textContent = "undone";
    changed();
  }

  function keep() {
    if (!complete) return;
    sessionStorage.setItem(KEPT, JSON.stringify({ stages: stages.value(), checklist: editor.checklist(), preview: preview.value() }));
  }

  async function act(work) {
    try {
      await work();
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
    }
  }
}
