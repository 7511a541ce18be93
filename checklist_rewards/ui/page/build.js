// Build: write a checklist stage by stage, refine it, edit it with a live preview, save it. Nothing typed is lost: what
// replaces the checklist can be undone, and the page keeps its text while the tab is open.

import { getJson, post } from "./api.js";
import { choice, el, note, plural, section, table } from "./dom.js";
import { attempt, exporter, field, onSend, schemaForm } from "./forms.js";
import { itemEditor, shelf } from "./items.js";
import { samplesPreview } from "./preview.js";
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
  const form = schemaForm(choices.settings, {}, changed);
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
          el("div", { class: "heading" }, el("h2", {}, "Checklist"), state, undo),
          problem,
          editor.node,
          shelf(choices, { checklist: editor.checklist, open: (items) => use(items, "opened"), act: (work) => attempt(problem, work), tell: (text) => (state.textContent = text) }),
        ),
        preview.node,
      ),
    ),
  );
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  complete = true;
  preview.update();
  onSend(preview.read);

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
}

/** What a refiner would change, before and after side by side, to accept or to discard. `checklist()` and `samples()` are what is refined, `accept(items, sentence)` takes the result. */
function refineForm(choices, { checklist, samples, judge, accept }) {
  const select = choice(choices.refiners.map((one) => one.name), { name: "refiner" });
  const about = el("div", { class: "about" }), own = el("div", {}), result = el("div", { "aria-live": "polite" });
  const button = el("button", { type: "button", class: "primary", name: "refine", onclick: refine }, "Refine");
  const state = el("span", { class: "muted", role: "status" });
  let settings = null;
  select.addEventListener("change", draw);
  draw();
  return el(
    "div",
    { class: "refine" },
    el("div", { class: "controls" }, field("refiner", select), button, state),
    about,
    el("details", { class: "settings" }, el("summary", {}, "Settings of the refiner"), own),
    result,
  );

  function draw() {
    const one = choices.refiners.find((entry) => entry.name === select.value);
    about.replaceChildren(note(one.description.replaceAll("`", "")));
    settings = schemaForm(one.settings);
    own.replaceChildren(Object.keys(one.settings.properties).length ? settings.node : note("It has none."));
  }

  async function refine() {
    state.textContent = "Refining …";
    await attempt(result, async () => {
      const body = { refiner: select.value, settings: settings.value(), checklist: checklist(), samples: samples(), judge: judge() };
      show(select.value, await post("build/refine", body));
    }, button);
    state.textContent = "";
  }

  function show(name, found) {
    const count = (side, state) => found[side].filter((line) => line.state === state).length;
    const sentence = `${name}: ${plural(found.before.length, "item")} before, ${found.after.length} after; ${count("before", "dropped")} dropped or merged, ${count("after", "changed")} changed, ${count("after", "new")} new`;
    result.replaceChildren(
      note(sentence, "."),
      el("div", { class: "columns" }, side("Before", found.before), side("After", found.after)),
      el(
        "div",
        { class: "controls" },
        el("button", { type: "button", class: "primary", name: "accept", onclick: () => (result.replaceChildren(), accept(found.items, sentence)) }, "Accept"),
        el("button", { type: "button", name: "discard", onclick: () => result.replaceChildren() }, "Discard"),
      ),
    );
  }

  function side(heading, lines) {
    const rows = lines.map((line) => [[line.question, line.reason ? el("div", { class: "reason" }, line.reason) : null], el("span", { class: `state ${line.state}` }, line.state)]);
    return el("div", {}, el("h3", {}, heading), table(["item", "what became of it"], rows, { "aria-label": heading }));
  }
}
