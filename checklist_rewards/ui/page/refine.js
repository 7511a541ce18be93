// Refine: what a refiner would change, with before and after side by side, to accept or to discard.

import { post } from "./api.js";
import { el, note, plural, table } from "./dom.js";
import { alertOf, choice, field } from "./forms.js";
import { schemaForm } from "./schemaform.js";

/** `checklist()` and `samples()` are what is refined, `accept(items, sentence)` takes the result. */
export function refineForm(choices, { checklist, samples, judge, accept }) {
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
    button.disabled = true;
    state.textContent = "Refining …";
    try {
      const body = { refiner: select.value, settings: settings.value(), checklist: checklist(), samples: samples(), judge: judge() };
      show(select.value, await post("build/refine", body));
    } catch (error) {
      result.replaceChildren(alertOf(error.message));
    }
    state.textContent = "";
    button.disabled = false;
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
